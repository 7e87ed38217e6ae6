"""Writes crates/data/tests/fixtures/augment/rand_augment.txt: every operation of timm's RandAugment (`inc1`) on random images.

    python tools/oracle/rand_augment.py

Needs pillow, numpy, torch, torchvision and timm (made with timm 1.0.31, Pillow 13.0.0). The operations and their levels are
those of timm 0.4.12, with one difference in Pillow: from version 13 on, `posterize` refuses to keep no bits, which a
magnitude of 10 asks for; before, the image became black, which is what stands here.

A line is the name of an operation and the CRC-32 of each result, eight hexadecimal digits each. Neither images nor
parameters are stored: case `n` of operation `k` draws them from SplitMix64 with seed `(k + 100) * 2^32 + n`, here and
again in tests/rand_augment.rs, in the same order: image, magnitude (one in eight is 10), direction.
"""

import zlib

import timm.data.auto_augment as aa
from PIL import Image

from augment_fixtures import OUT, crc
from augment_many import Draws

CASES = 160
# Of 255 * mean, as timm.data.transforms_factory rounds it.
MEAN = tuple(min(255, round(255 * x)) for x in (0.485, 0.456, 0.406))
HPARAMS = dict(translate_const=100, img_mean=MEAN, interpolation=Image.BICUBIC)


class Direction:
    """In the place of Python's `random`: timm negates above 0.5."""

    value = 0.0

    @classmethod
    def random(cls):
        return cls.value


def run(name, d):
    image = d.image()
    magnitude = 10.0 if d.whole(0, 7) == 0 else d.uniform(0.0, 10.0)
    Direction.value = 1.0 if d.chance(0.5) else 0.0
    if name == "PosterizeIncreasing" and magnitude == 10.0:
        return Image.new("RGB", image.size)
    return aa.AugmentOp(name, prob=1.0, magnitude=magnitude, hparams=HPARAMS)(image)


def main():
    assert MEAN == (124, 116, 104)
    aa.random = Direction
    lines = []
    for k, name in enumerate(aa._RAND_INCREASING_TRANSFORMS):
        sums = "".join(f"{crc(run(name, Draws(((k + 100) << 32) + n))):08x}" for n in range(CASES))
        lines.append(f"{name} {sums}\n")
        print(name, f"{zlib.crc32(sums.encode()):08x}")
    (OUT / "rand_augment.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
