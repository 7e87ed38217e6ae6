"""Writes crates/data/tests/fixtures/augment/many.txt: 320 random images and parameters for every operation.

    python tools/oracle/augment_many.py

Needs pillow, numpy, torch and torchvision (made with Pillow 13.0.0, torchvision 0.29.2, torch 2.15.0).

A line is the name of an operation and the CRC-32 of each result, eight hexadecimal digits each. Neither images nor
parameters are stored: case `n` of operation `k` draws them from SplitMix64 with seed `k * 2^32 + n`, here and again in
tests/augment_many.rs, in the same order.
"""

import zlib

import torchvision.transforms as T
import torchvision.transforms.functional as F
from PIL import Image, ImageFilter, ImageOps

from augment_fixtures import FILTERS, OUT, crc, make_image, make_view

CASES = 320
MASK = (1 << 64) - 1


class Draws:
    def __init__(self, seed):
        self.state = seed

    def bits(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def whole(self, low, high):
        """Both ends included."""
        return low + self.bits() % (high - low + 1)

    def uniform(self, low, high):
        return low + (self.bits() >> 11) * 2.0**-53 * (high - low)

    def chance(self, p):
        return self.uniform(0.0, 1.0) < p

    def image(self):
        kind = ["noise", "smooth", "smooth", "gray"][self.whole(0, 3)]
        seed, largest = self.whole(0, 9999), [12, 80, 230][self.whole(0, 2)]
        width, height = self.whole(1, largest), self.whole(1, largest)
        return make_image(kind, seed, width, height)

    def rect(self, image):
        height, width = self.whole(1, image.height), self.whole(1, image.width)
        return [self.whole(0, image.height - height), self.whole(0, image.width - width), height, width]


def resize(name):
    def run(d):
        image = d.image()
        width, height = d.whole(1, 230), d.whole(1, 230)
        return image.resize((width, height), FILTERS[name])

    return run


def resized_crop(d):
    image = d.image()
    rect, size = d.rect(image), [d.whole(1, 230), d.whole(1, 230)]
    return F.resized_crop(image, *rect, size, T.InterpolationMode.BICUBIC)


def thumbnail(d):
    image = d.image()
    image.thumbnail((d.whole(1, 230), d.whole(1, 230)), Image.LANCZOS)
    return image


def eval_transform(d):
    image = d.image()
    # A line of pixels would become an image of many million.
    size, crop = (256, 224) if max(image.size) < 8 * min(image.size) else (24, 20)
    mode = T.InterpolationMode.BICUBIC if d.chance(0.5) else T.InterpolationMode.BILINEAR
    return T.Compose([T.Resize(size, interpolation=mode), T.CenterCrop(crop)])(image)


def view(side, blur_p, solarize_p):
    def run(d):
        image = d.image()
        rect = d.rect(image)
        flip, jitter, gray = d.chance(0.5), d.chance(0.8), d.chance(0.2)
        order = [0, 1, 2, 3]
        for i in (3, 2, 1):
            j = d.whole(0, i)
            order[i], order[j] = order[j], order[i]
        factors = [d.uniform(0.6, 1.4), d.uniform(0.6, 1.4), d.uniform(0.8, 1.2), d.uniform(-0.1, 0.1)]
        blur, sigma, solarize = d.chance(blur_p), d.uniform(0.1, 2.0), d.chance(solarize_p)
        order, sigma, threshold = order if jitter else None, sigma if blur else None, 128 if solarize else None
        return make_view(image, rect, side, flip, order, factors, gray, sigma, threshold)

    return run


NORMALIZE = T.Compose([T.ToTensor(), T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])

OPERATIONS = {
    "brightness": lambda d: F.adjust_brightness(d.image(), d.uniform(0.0, 2.0)),
    "contrast": lambda d: F.adjust_contrast(d.image(), d.uniform(0.0, 2.0)),
    "saturation": lambda d: F.adjust_saturation(d.image(), d.uniform(0.0, 2.0)),
    "hue": lambda d: F.adjust_hue(d.image(), d.uniform(-0.5, 0.5)),
    "grayscale": lambda d: F.rgb_to_grayscale(d.image(), 3),
    "flip": lambda d: F.hflip(d.image()),
    "solarize": lambda d: ImageOps.solarize(d.image(), d.whole(0, 255)),
    "blur": lambda d: d.image().filter(ImageFilter.GaussianBlur(radius=d.uniform(0.0, 4.0))),
    "normalize": lambda d: NORMALIZE(d.image()),
    "resize_bilinear": resize("bilinear"),
    "resize_bicubic": resize("bicubic"),
    "resize_lanczos": resize("lanczos"),
    "resized_crop": resized_crop,
    "center_crop": lambda d: F.center_crop(d.image(), [d.whole(1, 230), d.whole(1, 230)]),
    "eval_transform": eval_transform,
    "thumbnail": thumbnail,
    "reduce": lambda d: d.image().reduce((d.whole(1, 9), d.whole(1, 9))),
    "view_global1": view(224, 1.0, 0.0),
    "view_global2": view(224, 0.1, 0.2),
    "view_local": view(96, 0.5, 0.0),
}


def main():
    lines = []
    for k, (name, run) in enumerate(OPERATIONS.items()):
        sums = "".join(f"{crc(run(Draws((k << 32) + n))):08x}" for n in range(CASES))
        lines.append(f"{name} {sums}\n")
        print(name, f"{zlib.crc32(sums.encode()):08x}")
    (OUT / "many.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
