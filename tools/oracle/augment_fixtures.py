"""Writes crates/data/tests/fixtures/augment/*.json: what Pillow and torchvision make of images given by a formula.

    python tools/oracle/augment_fixtures.py

Needs pillow, numpy, torch and torchvision (made with Pillow 13.0.0, torchvision 0.29.2, torch 2.15.0).

A case is a list [kind, seed, width, height, parameters.., expected]. `expected` is the CRC-32 of the result's bytes, row
by row, channels interleaved; of a tensor, of its little-endian f32 in memory order. The formulas of the input images are
in `make_image`, and again in tests/augment.rs.
"""

import json
import random
import zlib
from pathlib import Path

import numpy as np
import torch
import torchvision.transforms as T
import torchvision.transforms.functional as F
from PIL import Image, ImageFilter, ImageOps

OUT = Path(__file__).resolve().parents[2] / "crates/data/tests/fixtures/augment"
FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}
CASES = 44


def make_image(kind, seed, width, height):
    count = width * height * 3
    i = np.arange(count, dtype=np.uint64)
    if kind == "smooth":
        channel, x, y = i % 3, i // 3 % width, i // 3 // width
        v = (x * (2 + seed % 5) + y * (3 + seed % 4) + x * y // 9 + channel * 90) % 510
        data = np.where(v < 256, v, 510 - v)
    else:
        if kind == "gray":
            i = i // 3
        with np.errstate(over="ignore"):
            z = (i + np.uint64(seed) * np.uint64(1 << 32) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        data = z >> np.uint64(56)
    return Image.fromarray(data.astype(np.uint8).reshape(height, width, 3), "RGB")


def crc(image):
    data = image.tobytes() if isinstance(image, Image.Image) else image.numpy().astype("<f4").tobytes()
    return zlib.crc32(data)


SIZES = [(1, 1), (1, 7), (9, 1), (2, 3), (3, 2), (5, 5), (16, 16), (17, 31), (33, 20), (64, 48), (97, 33), (120, 150)]


def inputs(rng, count=CASES):
    """Every size with noise first, then other kinds and sizes."""
    cases = [("noise", n, *size) for n, size in enumerate(SIZES)]
    while len(cases) < count:
        kind = rng.choice(["noise", "smooth", "smooth", "gray"])
        size = rng.choice([rng.choice(SIZES), (rng.randint(2, 130), rng.randint(2, 130))])
        cases.append((kind, len(cases), *size))
    return cases


def numbers(rng, fixed, low, high, count=CASES):
    return fixed + [rng.uniform(low, high) for _ in range(count - len(fixed))]


def write(name, cases):
    assert len(cases) >= 40 or name in ("hsv",), (name, len(cases))
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (OUT / f"{name}.json").write_text(f"[\n{lines}\n]\n")
    print(name, len(cases))


def point_operation(name, apply, parameters=None):
    rng = random.Random(name)
    cases = []
    for n, case in enumerate(inputs(rng)):
        given = [] if parameters is None else [parameters[n]]
        cases.append([*case, *given, crc(apply(make_image(*case), *given))])
    write(name, cases)


def point_operations():
    rng = random.Random(1)
    factors = [0.0, 1.0, 1.4, 0.6, 0.999999, 1.000001, 0.5, 2.0, 0.8, 1.2, 3.7]
    point_operation("brightness", F.adjust_brightness, numbers(rng, factors, 0.6, 1.4))
    point_operation("contrast", F.adjust_contrast, numbers(rng, factors, 0.6, 1.4))
    point_operation("saturation", F.adjust_saturation, numbers(rng, factors, 0.8, 1.2))
    turns = [0.0, 0.1, -0.1, 0.5, -0.5, 0.25, -0.25, 0.003, -0.003, 1 / 255, -1 / 255, 0.0999, -0.0999]
    point_operation("hue", F.adjust_hue, numbers(rng, turns, -0.1, 0.1))
    point_operation("grayscale", lambda im: F.rgb_to_grayscale(im, 3))
    point_operation("flip", F.hflip)
    thresholds = [128, 0, 1, 255, 127, 129] + [rng.randint(0, 255) for _ in range(CASES)]
    point_operation("solarize", ImageOps.solarize, thresholds)
    sigmas = [0.1, 2.0, 0.3, 0.77, 1.0, 1.414, 1.4143, 1.5, 1e-4, 3.0, 5.5, 11.0]
    blur = lambda im, sigma: im.filter(ImageFilter.GaussianBlur(radius=sigma))
    point_operation("blur", blur, numbers(rng, sigmas, 0.1, 2.0))
    point_operation("normalize", T.Compose([T.ToTensor(), T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]))


def blends():
    """All 65536 pairs of bytes for each factor."""
    ramp = np.arange(256, dtype=np.uint8)
    first = Image.fromarray(np.repeat(ramp[:, None], 256, 1), "L")
    second = Image.fromarray(np.repeat(ramp[None, :], 256, 0), "L")
    rng = random.Random(2)
    factors = numbers(rng, [0.0, 1.0, 1.4, 0.6, 0.999999, 1.000001, 0.5, 2.0, -0.5], 0.0, 1.6)
    write("blend", [[f, zlib.crc32(Image.blend(first, second, f).tobytes())] for f in factors])


def hsv():
    """Both conversions of all 2^24 colours."""
    i = np.arange(1 << 24, dtype=np.uint32)
    colors = np.stack([i >> 16, i >> 8 & 255, i & 255], -1).astype(np.uint8).reshape(4096, 4096, 3)
    forward = Image.fromarray(colors, "RGB").convert("HSV")
    planes = [Image.fromarray(np.ascontiguousarray(colors[..., c]), "L") for c in range(3)]
    backward = Image.merge("HSV", planes).convert("RGB")
    write("hsv", [["rgb_to_hsv", zlib.crc32(forward.tobytes())], ["hsv_to_rgb", zlib.crc32(backward.tobytes())]])


def resizes():
    for name, filter in FILTERS.items():
        rng = random.Random(name)
        cases = []
        for kind, seed, w, h in inputs(rng, 60):
            target = rng.choice([
                (rng.randint(1, 40), rng.randint(1, 40)),
                (w, rng.randint(1, 60)),
                (rng.randint(1, 60), h),
                (w, h),
                (max(1, w // 3), max(1, h // 2)),
                (2 * w + 1, 3 * h),
                (224, 224) if seed % 6 == 0 else (96, 96),
            ])
            out = make_image(kind, seed, w, h).resize(target, filter)
            cases.append([kind, seed, w, h, target[1], target[0], crc(out)])
        write(f"resize_{name}", cases)


def random_rect(rng, w, h):
    height, width = rng.randint(1, h), rng.randint(1, w)
    return [rng.randint(0, h - height), rng.randint(0, w - width), height, width]


def crops():
    rng = random.Random(4)
    cases = []
    for case in inputs(rng):
        rect = random_rect(rng, case[2], case[3])
        size = [rng.choice([8, 32, 96]), rng.choice([8, 33, 96])]
        out = F.resized_crop(make_image(*case), *rect, size, T.InterpolationMode.BICUBIC)
        cases.append([*case, *rect, *size, crc(out)])
    write("resized_crop", cases)

    cases = []
    for case in inputs(rng, 60):
        size = [rng.choice([1, 2, 15, 32, case[3], 64, 151]), rng.choice([1, 3, 16, 33, case[2], 64, 151])]
        cases.append([*case, *size, crc(F.center_crop(make_image(*case), size))])
    write("center_crop", cases)

    # No crop of ten times the area fits, so `get_params` falls back to the centre.
    cases = []
    for n in range(80):
        w, h = rng.choice([(rng.randint(1, 60), rng.randint(1, 60)), (rng.randint(1, 9), rng.randint(1, 900)), (500, n + 1)])
        rect = T.RandomResizedCrop.get_params(Image.new("RGB", (w, h)), (10.0, 10.0), (3 / 4, 4 / 3))
        cases.append([w, h, *rect])
    write("central_fallback", cases)


def evaluation():
    rng = random.Random(5)
    cases = []
    for case in inputs(rng):
        resize, crop = rng.choice([(256, 224), (64, 56), (32, 28), (40, 64), (17, 17)])
        name = rng.choice(["bicubic", "bicubic", "bilinear"])
        if max(case[2:]) > 20 * min(case[2:]):
            resize, crop = 17, 17
        mode = T.InterpolationMode.BICUBIC if name == "bicubic" else T.InterpolationMode.BILINEAR
        out = T.Compose([T.Resize(resize, interpolation=mode), T.CenterCrop(crop)])(make_image(*case))
        cases.append([*case, resize, crop, name, crc(out)])
    write("eval_transform", cases)

    # Large ones, too: they are reduced by whole blocks first, and the last block is cut off.
    large = [("smooth", n, rng.randint(150, 500), rng.randint(150, 500)) for n in range(30)]
    cases = []
    for case in inputs(rng, 60) + large:
        size = (rng.choice([1, 5, 16, 40, 97, 200]), rng.choice([1, 7, 16, 33, 97, 200]))
        out = make_image(*case)
        out.thumbnail(size, Image.LANCZOS)
        cases.append([*case, size[1], size[0], out.height, out.width, crc(out)])
    write("thumbnail", cases)

    cases = []
    for case in inputs(rng, 60):
        fy, fx = rng.choice([(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (1, 3), (4, 1), (7, 2), (rng.randint(1, 40), rng.randint(1, 40))])
        cases.append([*case, fy, fx, crc(make_image(*case).reduce((fx, fy)))])
    write("reduce", cases)


def make_view(image, rect, side, flip, order, factors, gray, sigma, threshold):
    """A whole view. `order`, `sigma` and `threshold` are None for a step that is left out."""
    adjust = [F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue]
    view = F.resized_crop(image, *rect, [side, side], T.InterpolationMode.BICUBIC)
    if flip:
        view = F.hflip(view)
    for step in order or []:
        view = adjust[step](view, factors[step])
    if gray:
        view = F.rgb_to_grayscale(view, 3)
    if sigma is not None:
        view = view.filter(ImageFilter.GaussianBlur(radius=sigma))
    if threshold is not None:
        view = ImageOps.solarize(view, threshold)
    return view


def pipelines():
    """Whole views. -1 stands for a step that is left out."""
    for name, size, blur_p, solarize_p in [("global1", 224, 1.0, 0.0), ("global2", 224, 0.1, 0.2), ("local", 96, 0.5, 0.0)]:
        rng = random.Random(name)
        cases = []
        for case in inputs(rng):
            size_ = rng.choice([size, size // 7])
            rect = random_rect(rng, case[2], case[3])
            flip, jitter, gray = rng.random() < 0.5, rng.random() < 0.8, rng.random() < 0.2
            order = rng.sample(range(4), 4)
            factors = [rng.uniform(0.6, 1.4), rng.uniform(0.6, 1.4), rng.uniform(0.8, 1.2), rng.uniform(-0.1, 0.1)]
            order = order if jitter else None
            sigma = rng.uniform(0.1, 2.0) if rng.random() <= blur_p else None
            solarize = 128 if rng.random() < solarize_p else None
            view = make_view(make_image(*case), rect, size_, flip, order, factors, gray, sigma, solarize)
            order, sigma, solarize = (-1 if step is None else step for step in (order, sigma, solarize))
            cases.append([*case, *rect, size_, flip, order, *factors, gray, sigma, solarize, crc(view)])
        write(f"view_{name}", cases)


if __name__ == "__main__":
    torch.manual_seed(0)
    OUT.mkdir(parents=True, exist_ok=True)
    point_operations()
    blends()
    hsv()
    resizes()
    crops()
    evaluation()
    pipelines()
