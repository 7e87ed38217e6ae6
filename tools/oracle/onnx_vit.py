#!/usr/bin/env python3
"""The exported tiny ViT in onnxruntime and in PyTorch -> crates/onnx/tests/fixtures/tiny_vit.json

    cargo run -p onnx --example closed_form_vit -- tiny target/tiny_vit.onnx
    python tools/oracle/onnx_vit.py target/tiny_vit.onnx

Needs: onnx, onnxruntime, torch, numpy. The network is computed a second time in PyTorch, in f64 and from the closed forms
of its weights rather than from the file; onnxruntime's outputs must agree to 1e-5 of the largest. Then they are written
down, in the format of onnx_check.py.

The network, as crates/onnx/tests/common has it: dim 16, 2 blocks of 2 heads, MLP 40, patches of 4 on images of 18 x 13, 2
registers, LayerScale, and a head 16-12-10-5 with 6 components. Weights are those of vit_hash.py; behind the last parameter
of the backbone are numbered
    register_tokens                                     0.5 u
    blocks.{i}.ls1.gamma, blocks.{i}.ls2.gamma          0.5 + 0.3 u
    head.mlp.{0,2,4}.{weight,bias}                      as every weight and bias
and the mixture has streams of its own, from MIXTURE_STREAM on:
    directions            u, then unit length           concentrations        40 + 30 u
    log-normalisers       300 - concentration + 5 u     log mixing weights    -2 + u
The log-normalisers are not those of these concentrations: they are large, so that a sum of exponentials overflows unless
the largest is subtracted first.
"""

import pathlib
import sys

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F

import onnx_check
import vit_hash

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "crates" / "onnx" / "tests" / "fixtures" / "tiny_vit.json"
MIXTURE_STREAM = 10_000
DIM, DEPTH, HEADS, MLP, PATCH, REGISTERS = 16, 2, 2, 40, 4, 2
CHANNELS, HEIGHT, WIDTH = 3, 18, 13
HEAD, COMPONENTS = (12, 10, 5), 6


def shapes():
    """Shapes of the backbone's parameters by the last parts of their names."""
    patches = (HEIGHT // PATCH) * (WIDTH // PATCH)
    return {
        "cls_token": (1, 1, DIM), "pos_embed": (1, 1 + patches, DIM),
        "patch_embed.proj.weight": (DIM, CHANNELS, PATCH, PATCH), "attn.qkv.weight": (3 * DIM, DIM),
        "attn.qkv.bias": (3 * DIM,), "attn.proj.weight": (DIM, DIM), "mlp.fc1.weight": (MLP, DIM),
        "mlp.fc1.bias": (MLP,), "mlp.fc2.weight": (DIM, MLP),
    }


def weights():
    """{name: f64 tensor} of values that were rounded to f32, as the file has them."""
    by_end = shapes()
    found = {}

    def add(name, values):
        found[name] = torch.from_numpy(values.astype(np.float32).astype(np.float64))

    for number, name in enumerate(vit_hash.parameter_names(DEPTH)):
        shape = next((shape for end, shape in by_end.items() if name.endswith(end)), (DIM,))
        add(name, vit_hash.parameter_values(name, number, shape))
    add("register_tokens", 0.5 * vit_hash.uniform(len(found), REGISTERS * DIM).reshape(1, REGISTERS, DIM))
    for name in [f"blocks.{block}.{scale}.gamma" for block in range(DEPTH) for scale in ("ls1", "ls2")]:
        add(name, 0.5 + 0.3 * vit_hash.uniform(len(found), DIM))
    for layer, (inputs, outputs) in enumerate(zip((DIM, *HEAD), HEAD)):
        for kind, shape in (("weight", (outputs, inputs)), ("bias", (outputs,))):
            name = f"head.mlp.{2 * layer}.{kind}"
            add(name, vit_hash.parameter_values(name, len(found), shape))
    return found


def backbone(w, images):
    """All tokens after the final norm."""
    tokens = F.conv2d(images, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=PATCH)
    tokens = tokens.flatten(2).transpose(1, 2)
    x = torch.cat((w["cls_token"].expand(len(images), -1, -1), tokens), dim=1) + w["pos_embed"]
    x = torch.cat((x[:, :1], w["register_tokens"].expand(len(images), -1, -1), x[:, 1:]), dim=1)

    def norm(name, x):
        return F.layer_norm(x, (DIM,), w[f"{name}.weight"], w[f"{name}.bias"], eps=1e-6)

    def linear(name, x):
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    for i in range(DEPTH):
        block = f"blocks.{i}"
        qkv = linear(f"{block}.attn.qkv", norm(f"{block}.norm1", x))
        q, k, v = qkv.unflatten(2, (3, HEADS, DIM // HEADS)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + w[f"{block}.ls1.gamma"] * linear(f"{block}.attn.proj", mixed)
        hidden = F.gelu(linear(f"{block}.mlp.fc1", norm(f"{block}.norm2", x)))
        x = x + w[f"{block}.ls2.gamma"] * linear(f"{block}.mlp.fc2", hidden)
    return norm("norm", x)


def density(w, features):
    """Concentration of the most responsible component, and log density."""
    y = features
    for layer in range(len(HEAD)):
        y = F.linear(F.gelu(y) if layer else y, w[f"head.mlp.{2 * layer}.weight"], w[f"head.mlp.{2 * layer}.bias"])
    y = F.normalize(y, dim=1)
    stream = lambda i, count: torch.from_numpy(vit_hash.uniform(MIXTURE_STREAM + i, count))
    mu = F.normalize(stream(0, COMPONENTS * HEAD[-1]).reshape(COMPONENTS, -1), dim=1)
    kappa = 40 + 30 * stream(1, COMPONENTS)
    log_c = 300 - kappa + 5 * stream(2, COMPONENTS)
    logits = (-2 + stream(3, COMPONENTS)) + log_c + kappa * (y @ mu.T)
    best = logits.topk(2, dim=1)
    assert (best.values[:, 0] - best.values[:, 1]).min() > 1e-2, "two components are responsible alike"
    return kappa[best.indices[:, 0]], torch.logsumexp(logits, dim=1)


def main():
    (path,) = map(pathlib.Path, sys.argv[1:])
    onnx_check.check(path, keep=False)
    runtime, w = onnx_check.session(path), weights()
    batches = {}
    for batch in onnx_check.BATCHES:
        images = torch.from_numpy(onnx_check.pixels(batch, (CHANNELS, HEIGHT, WIDTH)).astype(np.float64))
        tokens = backbone(w, images)
        kappa, log_density = density(w, tokens[:, 0])
        expected = {"class": tokens[:, 0], "patches": tokens[:, 1 + REGISTERS :], "kappa": kappa,
                    "log_density": log_density}
        found = onnx_check.run(runtime, batch)
        for name, value in expected.items():
            error = onnx_check.difference(found[name], value.numpy())
            print(f"{name}, batch {batch}: onnxruntime and PyTorch differ by {error:.1e}")
            assert error < onnx_check.TOLERANCE
        assert len(set(found["kappa"].tolist())) > 1 or batch == 1, "one component is responsible for everything"
        batches[str(batch)] = {name: value.ravel().tolist() for name, value in found.items()}
    data = path.read_bytes()
    file = {"bytes": len(data), "fnv1a": onnx_check.fnv1a(data)}
    versions = {"onnxruntime": onnxruntime.__version__, "torch": torch.__version__.split("+")[0]}
    onnx_check.write(OUT, {"file": file, **versions, "batches": batches})


if __name__ == "__main__":
    main()
