#!/usr/bin/env python3
"""JPEG files and their reference features -> crates/cli/tests/fixtures/features/{images/*.jpg, expected.json}

    python tools/oracle/features_fixture.py

Needs: torch, torchvision, timm, pillow, numpy. The pictures are closed forms; the network is timm's vit_tiny_patch16_224
with the closed-form weights of vit_hash.py (written in f32), so no weight file is kept.

Reference path: PIL.Image.open -> convert("RGB") -> Resize(256, BICUBIC) -> CenterCrop(224) -> ToTensor ->
Normalize(ImageNet mean and deviation) -> timm, class token after the final norm.

expected.json:
    arch, weights, and the versions of pillow, torchvision, timm, torch
    images[]: file, width, height
              decoded_mean   [3]: mean of the decoded RGB bytes, one per channel (tells a difference of the decoder)
              input_mean     [3]: mean of the normalised 224x224 input, one per channel (tells one of the resize)
              features       the first 32 of 192 values
              feature_norm   L2 norm of all 192
              one_level_error  |change of the feature| / norm when one decoded byte in ten moves by one level: what a
                             decoder that rounds differently from libjpeg-turbo costs
Existing JPEG files are kept, because another version of libjpeg may write other bytes; delete them to make them anew.
"""

import io
import json
import pathlib

import numpy as np
import PIL
import timm
import torch
import torchvision
from PIL import Image
from torchvision import transforms

import vit_hash
from vit_fixtures import ROOT, write

OUT = ROOT / "crates" / "cli" / "tests" / "fixtures" / "features"
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def grid(width, height):
    """Pixel centres: y and x in 0..1, and the pixel indices."""
    row, column = np.mgrid[0:height, 0:width].astype(np.float64)
    return (row + 0.5) / height, (column + 0.5) / width, row, column


def gradient(width, height):
    y, x, _, _ = grid(width, height)
    return np.stack([255 * x, 255 * y, 255 * (1 - 0.5 * (x + y))], axis=-1)


def discs(width, height):
    y, x, row, column = grid(width, height)
    picture = np.stack([40 + 60 * y, 70 + 40 * x, 120 - 50 * y], axis=-1)
    for k, colour in enumerate([(230, 60, 40), (40, 180, 90), (250, 220, 60), (70, 90, 230)]):
        cy, cx = height * (0.25 + 0.18 * k), width * (0.3 + 0.35 * (k % 2))
        radius = (18 + 9 * k) * min(width, height) / 200
        picture[(row - cy) ** 2 + (column - cx) ** 2 < radius**2] = colour
    return picture


def stripes(width, height):
    y, x, row, column = grid(width, height)
    wave = np.sin(0.35 * column + 0.12 * row)
    picture = np.stack([128 + 100 * wave, 128 + 80 * np.cos(0.2 * row), 90 + 120 * x], axis=-1)
    picture[height // 3 : height // 2, width // 4 : width // 2] = (245, 245, 235)
    return picture


def rings(width, height):
    y, x, _, _ = grid(width, height)
    radius = np.hypot(y - 0.45, x - 0.55)
    return np.stack([128 + 110 * np.sin(40 * radius), 255 * (1 - radius), 128 + 110 * np.cos(25 * radius)], axis=-1)


def checks(width, height):
    _, x, row, column = grid(width, height)
    board = ((row // 12 + column // 15) % 2)[..., None]
    return board * np.array([210.0, 80.0, 60.0]) + (1 - board) * np.array([30.0, 60.0, 160.0]) + 40 * x[..., None]


def hills(width, height):
    y, x, _, _ = grid(width, height)
    return 128 + 60 * np.sin(9 * x + 4 * y) + 50 * np.cos(13 * y * x) + 15 * np.sin(60 * x)


# file: picture, width, height, mode, options of Pillow's JPEG writer (subsampling 0: 4:4:4, 1: 4:2:2, 2: 4:2:0)
PICTURES = {
    "discs.jpg": (discs, 300, 200, "RGB", {"subsampling": 2}),
    "stripes_tall.jpg": (stripes, 257, 400, "RGB", {"subsampling": 0}),
    "rings_square.jpg": (rings, 224, 224, "RGB", {"subsampling": 1}),
    "checks_small.jpg": (checks, 120, 90, "RGB", {"subsampling": 2}),
    "hills_grey.jpg": (hills, 280, 260, "L", {}),
    "gradient_progressive.jpg": (gradient, 320, 240, "RGB", {"subsampling": 2, "progressive": True}),
}


def make_picture(name):
    paint, width, height, mode, options = PICTURES[name]
    pixels = np.clip(np.rint(paint(width, height)), 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, "JPEG", quality=90, optimize=True, **options)
    return buffer.getvalue()


def load_model():
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=0).eval()
    return vit_hash.fill(model)


def one_level(picture):
    """The picture with every tenth byte, chosen by the hash, one level off."""
    pixels = np.asarray(picture).astype(np.int16)
    u = vit_hash.uniform(vit_hash.INPUT_STREAM, pixels.size).reshape(pixels.shape)
    step = np.where(u < -0.9, -1, np.where(u > 0.9, 1, 0))
    return Image.fromarray(np.clip(pixels + step, 0, 255).astype(np.uint8))


def main():
    (OUT / "images").mkdir(parents=True, exist_ok=True)
    prepare = transforms.Compose(
        [
            transforms.Resize(256, interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, DEVIATION),
        ]
    )
    model, images, total = load_model(), [], 0
    for name in sorted(PICTURES):
        path = OUT / "images" / name
        if not path.exists():
            path.write_bytes(make_picture(name))
        total += path.stat().st_size
        picture = Image.open(path).convert("RGB")
        prepared = prepare(picture)
        with torch.inference_mode():
            both = model(torch.stack([prepared, prepare(one_level(picture))])).double().numpy()
        feature, moved = both
        norm = float(np.linalg.norm(feature))
        images.append(
            {
                "file": name,
                "width": picture.width,
                "height": picture.height,
                "decoded_mean": np.asarray(picture).reshape(-1, 3).mean(0).round(4).tolist(),
                "input_mean": prepared.double().mean((1, 2)).numpy().round(6).tolist(),
                "features": [float(f"{value:.8g}") for value in feature[:32]],
                "feature_norm": float(f"{norm:.8g}"),
                "one_level_error": float(f"{np.linalg.norm(moved - feature) / norm:.2e}"),
            }
        )
        print(f"{name}: {path.stat().st_size} bytes, norm {norm:.4f}, one level {images[-1]['one_level_error']}")
    print(f"images: {total} bytes")
    write(
        OUT / "expected.json",
        {
            "arch": "vit_tiny",
            "weights": "closed form of tools/oracle/vit_hash.py, f32",
            "pillow": PIL.__version__,
            "torchvision": torchvision.__version__.split("+")[0],
            "timm": timm.__version__,
            "torch": torch.__version__.split("+")[0],
            "images": images,
        },
    )


if __name__ == "__main__":
    main()
