#!/usr/bin/env python3
"""Retrieval and copy detection -> crates/eval/tests/fixtures/retrieval/{*.pkl, expected.json}

    python tools/oracle/retrieval_fixtures.py

Needs: torch, timm, pillow, numpy. The pictures are those of features_fixture.py, the network is timm's vit_tiny_patch16_224
with the closed-form weights of vit_hash.py and DINO's positions for other sizes.

*.pkl: a small ground truth in the form of the official files. lists_N: lists of Python's numbers, protocol N; arrays_N: NumPy
arrays and scalars; harmful_*: what Python would run if it loaded them (nothing of consequence: os.system("true") and the
like); laughs: a list of lists of lists, 10^9 in all, in a few hundred bytes.

expected.json:
    truth          what the sound pickles hold
    interpolated[] height, width, scale; level (y, x, channel) = (37 y + 101 x + 61 channel + 13 y x) mod 256; shape and values of
                   torch's bilinear interpolation of the normalised image, f32
    scales[]       file; side; the size of Pillow's thumbnail (Lanczos); first 32 of the class feature at that size, its norm,
                   and first 32 of the mean over three scales, divided by its norm
    copies[]       file; side; first 16 values of the class token and of the patch tokens' mean of fourth powers, to the 1/4, and
                   the norms of both (Resize((side, side), bicubic))
    whitening      x [12][5]; y [3][5] as the whitening of x's gives them, and the eigenvalues of x'x / 12
"""

import json
import pickle
import pickletools

import numpy as np
import timm
import torch
from PIL import Image
from torch.nn import functional as F
from torchvision import transforms

import vit_hash
from features_fixture import DEVIATION, MEAN
from vit_fixtures import PATCH, ROOT, interpolated_positions

OUT = ROOT / "crates" / "eval" / "tests" / "fixtures" / "retrieval"
IMAGES = ROOT / "crates" / "cli" / "tests" / "fixtures" / "features" / "images"
SCALES = (1, 1 / 2**0.5, 1 / 2)

TRUTH = {
    "imlist": [f"all_souls_{i:06}" for i in range(12)],
    "qimlist": ["query_a", "query_b"],
    "gnd": [
        {"bbx": [136.5, 34.1, 648.5, 955.7], "easy": [3, 5], "hard": [2], "junk": [7, 0]},
        {"bbx": [0.0, 1.0, 2.0, 3.0], "easy": [], "hard": [6, 11], "junk": [0]},
    ],
}


def with_arrays(dtype):
    arrays = lambda q: {key: np.array(q[key], dtype=dtype) for key in ("easy", "hard", "junk")}
    truth = {**TRUTH, "gnd": [{**q, **arrays(q)} for q in TRUTH["gnd"]]}
    truth["gnd"][0]["bbx"] = np.array(TRUTH["gnd"][0]["bbx"])
    truth["gnd"][1]["bbx"] = [np.float64(x) for x in TRUTH["gnd"][1]["bbx"]]
    truth["gnd"][1]["hard"] = [np.int64(x) for x in TRUTH["gnd"][1]["hard"]]
    return truth


class Calls:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def write_pickles():
    import builtins
    import os
    import subprocess

    for protocol in range(6):
        (OUT / f"lists_{protocol}.pkl").write_bytes(pickle.dumps(TRUTH, protocol))
    for protocol, dtype in ((2, "<i8"), (4, ">i4"), (5, "<u2")):
        (OUT / f"arrays_{protocol}.pkl").write_bytes(pickle.dumps(with_arrays(dtype), protocol))
    harmful = {
        "system": Calls(os.system, "true"),
        "system_inside": {**TRUTH, "note": Calls(os.system, "true")},
        "system_as_list": {**TRUTH, "gnd": [{**TRUTH["gnd"][0], "easy": Calls(os.system, "true")}, TRUTH["gnd"][1]]},
        "eval": {**TRUTH, "imlist": Calls(builtins.eval, "['a'] * 12")},
        "popen": {**TRUTH, "qimlist": [Calls(subprocess.Popen, ["true"]), "b"]},
        "getattr": {**TRUTH, "gnd": Calls(getattr, {}, "clear")},
    }
    for name, value in harmful.items():
        (OUT / f"harmful_{name}.pkl").write_bytes(pickle.dumps(value, 3))
    laughs = [0] * 10
    for _ in range(8):
        laughs = [laughs] * 10
    truth = {**TRUTH, "gnd": [{**TRUTH["gnd"][0], "junk": laughs}, TRUTH["gnd"][1]]}
    (OUT / "laughs.pkl").write_bytes(pickle.dumps(truth, 3))
    for path in sorted(OUT.glob("*.pkl")):
        pickletools.dis(path.read_bytes(), out=open("/dev/null", "w"))


def normalized(picture):
    return transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)])(picture)[None]


def interpolated():
    cases = []
    for height, width, scale in ((9, 13, SCALES[1]), (8, 7, SCALES[2]), (33, 20, SCALES[1])):
        y, x, c = np.mgrid[0:height, 0:width, 0:3]
        levels = ((37 * y + 101 * x + 61 * c + 13 * y * x) % 256).astype(np.uint8)
        out = F.interpolate(normalized(Image.fromarray(levels)), scale_factor=scale, mode="bilinear", align_corners=False)
        values = [float(f"{v:.9g}") for v in out[0].flatten().tolist()]
        cases.append({"height": height, "width": width, "scale": scale, "shape": list(out.shape[2:]), "values": values})
    return cases


def tokens(model, images):
    height, width = images.shape[2:]
    x = model.patch_embed.proj(images).flatten(2).transpose(1, 2)
    x = torch.cat((model.cls_token.expand(len(images), -1, -1), x), dim=1)
    x = x + interpolated_positions(model.pos_embed, height // PATCH, width // PATCH)
    for block in model.blocks:
        x = block(x)
    return model.norm(x)[0]


def short(values, count):
    return [float(f"{v:.8g}") for v in values[:count].tolist()]


def features():
    model = vit_hash.fill(timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=0).eval())
    scales, copies = [], []
    for file, side in (("discs.jpg", 160), ("stripes_tall.jpg", 200), ("checks_small.jpg", 500)):
        picture = Image.open(IMAGES / file).convert("RGB")
        reduced = picture.copy()
        reduced.thumbnail((side, side), Image.LANCZOS)
        image = normalized(reduced)
        with torch.inference_mode():
            at = lambda s: image if s == 1 else F.interpolate(image, scale_factor=s, mode="bilinear", align_corners=False)
            found = [tokens(model, at(s))[0].double() for s in SCALES]
            stretched = tokens(model, normalized(transforms.Resize((112, 112), interpolation=3)(picture))).double()
        mean = sum(found) / 3
        mean = mean / mean.norm()
        scales.append(
            {
                "file": file,
                "side": side,
                "size": [reduced.height, reduced.width],
                "single": short(found[0], 32),
                "norm": float(found[0].norm()),
                "together": short(mean, 32),
            }
        )
        gem = stretched[1:].clamp(min=1e-6).pow(4).mean(0).pow(0.25)
        copies.append(
            {
                "file": file,
                "side": 112,
                "class": short(stretched[0], 16),
                "gem": short(gem, 16),
                "norms": [float(stretched[0].norm()), float(gem.norm())],
            }
        )
    return scales, copies


def whitening():
    u = vit_hash.uniform(77, 15 * 5).reshape(15, 5)
    u[:, 4] = u[:, 0] + u[:, 1]  # a direction that no sample has
    u += 0.3
    x, y = u[:12].astype(np.float32).astype(np.float64), u[12:].astype(np.float32).astype(np.float64)
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    floored = np.maximum(values, values.max() * 1e-5)
    order = np.argsort(floored)[::-1]
    transform = np.diag(floored[order] ** -0.5) @ vectors[:, order].T
    white = (y - x.mean(0)) @ transform.T
    # Directions have no sign of their own, so what is compared is the cosine of every pair.
    unit = white / np.linalg.norm(white, axis=1, keepdims=True)
    return {
        "x": x.tolist(),
        "y": y.tolist(),
        "eigenvalues": values.tolist(),
        "norms": np.linalg.norm(white, axis=1).tolist(),
        "cosines": (unit @ unit.T).tolist(),
    }


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    write_pickles()
    scales, copies = features()
    expected = {
        "truth": TRUTH,
        "interpolated": interpolated(),
        "scales": scales,
        "copies": copies,
        "whitening": whitening(),
    }
    (OUT / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
