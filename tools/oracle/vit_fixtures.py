#!/usr/bin/env python3
"""Reference features and gradients of timm's ViTs -> crates/model/tests/fixtures/vit_{tiny,small,base}.json

    python tools/oracle/vit_fixtures.py

Needs: torch, timm, numpy. Weights, images and loss are closed forms (vit_hash.py), so the fixtures carry only results.

Each case runs the backbone on 2 images and takes L = sum_{b,j} c[b,j] feature[b,j] with c[b,j] = u(LOSS_STREAM, b*dim+j).
The 224x224 case is timm's own forward; other sizes use timm's layers with DINO's rule for the position embeddings:
F.interpolate(scale_factor=((h + 0.1) / 14, (w + 0.1) / 14), mode="bicubic").

Format (numbers are f64 results unless the name says f32):
    arch, dim, depth, heads, patch, timm, torch
    cases[]: number       case number c, so that image values are 2 * u(INPUT_STREAM + c, i)
             height, width
             features     [2][16]: the first 16 values of the class-token feature of each image
             feature_norm [2]: its L2 norm over all dim values
             loss
             gradients    {parameter name: [L2 norm of dL/dp, <dL/dp, r>]}, r = u(PROJECTION_STREAM + q, i)
                          (all parameters in the 224x224 case, those near the input in the others)
             f32_error    what PyTorch's own f32 run differs from these: {"feature": max |difference| / feature norm,
                          "gradient": max over parameters of |norm or projection difference| / gradient norm}
Compare a projection relative to the gradient's norm, not to itself: it may be near zero.
"""

import json
import pathlib
import re

import numpy as np
import timm
import torch
import torch.nn.functional as F

import vit_hash

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "crates" / "model" / "tests" / "fixtures"
PATCH, GRID, BATCH = 16, 14, 2
NEAR_INPUT = ("cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias", "blocks.0.attn.qkv.weight")
SIZES = {"vit_tiny": [(224, 224), (96, 96), (160, 224)], "vit_small": [(224, 224)], "vit_base": [(224, 224)]}


def interpolated_positions(pos_embed, h, w):
    """DINO's position embeddings for a grid of h x w patches; the class position is left alone."""
    if h == GRID and w == GRID:
        return pos_embed
    patches = pos_embed[:, 1:].transpose(1, 2).unflatten(2, (GRID, GRID))
    scale = ((h + 0.1) / GRID, (w + 0.1) / GRID)
    resized = F.interpolate(patches, scale_factor=scale, mode="bicubic")
    assert resized.shape[2:] == (h, w)
    return torch.cat((pos_embed[:, :1], resized.flatten(2).transpose(1, 2)), dim=1)


def any_size_forward(model, images):
    """timm's layers on images of any size, as DINO runs them."""
    height, width = images.shape[2:]
    tokens = model.patch_embed.proj(images).flatten(2).transpose(1, 2)
    tokens = torch.cat((model.cls_token.expand(len(images), -1, -1), tokens), dim=1)
    tokens = tokens + interpolated_positions(model.pos_embed, height // PATCH, width // PATCH)
    for block in model.blocks:
        tokens = block(tokens)
    return model.norm(tokens)[:, 0]


def run_case(arch, dtype, number, height, width):
    """Features [2, dim], loss and {name: (gradient norm, projection)}, all as f64 whatever the run was in."""
    model = timm.create_model(f"{arch}_patch16_224", pretrained=False, num_classes=0).to(dtype).eval()
    assert model.norm.eps == 1e-6 and model.blocks[0].norm1.eps == 1e-6
    vit_hash.fill(model)
    shape = (BATCH, 3, height, width)
    pixels = 2.0 * vit_hash.uniform(vit_hash.INPUT_STREAM + number, int(np.prod(shape)))
    images = torch.from_numpy(pixels.reshape(shape)).to(dtype)
    if (height, width) == (224, 224):
        features = model(images)
        with torch.no_grad():
            own = any_size_forward(model, images)
        assert torch.allclose(features, own, rtol=1e-4, atol=1e-4), "the hand-written forward is not timm's"
    else:
        features = any_size_forward(model, images)
    weights = vit_hash.uniform(vit_hash.LOSS_STREAM, features.numel()).reshape(tuple(features.shape))
    loss = (features * torch.from_numpy(weights).to(dtype)).sum()
    loss.backward()
    gradients = {}
    for q, (name, parameter) in enumerate(model.named_parameters()):
        gradient = parameter.grad.double().flatten().numpy()
        direction = vit_hash.uniform(vit_hash.PROJECTION_STREAM + q, gradient.size)
        gradients[name] = (float(np.linalg.norm(gradient)), float(gradient @ direction))
    return features.detach().double().numpy(), loss.item(), gradients


def make_case(arch, number, height, width):
    features, loss, gradients = run_case(arch, torch.float64, number, height, width)
    features32, _, gradients32 = run_case(arch, torch.float32, number, height, width)
    norms = np.linalg.norm(features, axis=1)
    feature_error = np.max(np.abs(features32 - features) / norms[:, None])
    gradient_error = max(
        max(abs(a - b) for a, b in zip(gradients[name], gradients32[name])) / gradients[name][0] for name in gradients
    )
    kept = gradients if (height, width) == (224, 224) else {name: gradients[name] for name in NEAR_INPUT}
    print(f"{arch} {height}x{width}: norms {norms}, loss {loss:.6f}, f32 {feature_error:.1e} {gradient_error:.1e}")
    return {
        "number": number,
        "height": height,
        "width": width,
        "features": features[:, :16].tolist(),
        "feature_norm": norms.tolist(),
        "loss": loss,
        "gradients": {name: list(pair) for name, pair in kept.items()},
        "f32_error": {"feature": float(f"{feature_error:.2e}"), "gradient": float(f"{gradient_error:.2e}")},
    }


def write(path, fixture):
    """JSON with one list of numbers per line: small, and a difference can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(fixture, indent=1)
    text = re.sub(r"\[([-+.,e\d\s]+)\]", lambda match: "[" + " ".join(match[1].split()) + "]", text)
    path.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}: {path.stat().st_size} bytes")


def main():
    torch.manual_seed(0)
    for arch, sizes in SIZES.items():
        model = timm.create_model(f"{arch}_patch16_224", pretrained=False, num_classes=0)
        fixture = {
            "arch": arch,
            "dim": model.embed_dim,
            "depth": len(model.blocks),
            "heads": model.blocks[0].attn.num_heads,
            "patch": PATCH,
            "timm": timm.__version__,
            "torch": torch.__version__.split("+")[0],
            "cases": [make_case(arch, number, height, width) for number, (height, width) in enumerate(sizes)],
        }
        write(OUT / f"{arch}.json", fixture)


if __name__ == "__main__":
    main()
