"""Writes crates/data/tests/fixtures/augment/mixing.json: batches mixed by timm's Mixup in the mode `batch`, from given draws.

    python tools/oracle/mixing.py

Needs numpy, torch, torchvision, pillow and timm (made with timm 1.0.31). The rectangle of cutmix is that of timm 0.4.12, whose
two halves are both rounded down; all else is timm's own code.

A case: height, width, cutmix (true or false), lambda as drawn, row and column of the centre, the CRC-32 of the mixed f32
batch of four images, and their targets over five classes with a smoothing of 0.1. The images are the noise of
augment_fixtures.make_image with the seeds 0 to 3, normalised as torchvision does; their labels are 0, 3, 3 and 1.
"""

import json
import random
import zlib

import numpy as np
import timm.data.mixup as mixup
import torch

from augment_fixtures import OUT, make_image
from augment_many import NORMALIZE

LABELS = torch.tensor([0, 3, 3, 1])


def old_box(shape, lam, margin=0.0, count=None):
    ratio = np.sqrt(1 - lam)
    height, width = shape[-2:]
    rows, columns = int(height * ratio), int(width * ratio)
    y, x = Draws.center
    clip = lambda at, side: int(np.clip(at, 0, side))
    return (
        clip(y - rows // 2, height),
        clip(y + rows // 2, height),
        clip(x - columns // 2, width),
        clip(x + columns // 2, width),
    )


class Draws:
    center = (0, 0)
    lam = 0.5
    cutmix = False


class GivenMixup(mixup.Mixup):
    def _params_per_batch(self):
        return Draws.lam, Draws.cutmix


def main():
    mixup.rand_bbox = old_box
    mix = GivenMixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=5)
    rng = random.Random(5)
    cases = []
    for n in range(40):
        height, width = rng.randint(2, 24), rng.randint(2, 24)
        Draws.cutmix, Draws.lam = n % 2 == 0, rng.random()
        Draws.center = (rng.randrange(height), rng.randrange(width))
        batch = torch.stack([NORMALIZE(make_image("noise", seed, width, height)) for seed in range(4)])
        mixed, targets = mix(batch, LABELS)
        sum_ = zlib.crc32(mixed.contiguous().numpy().astype("<f4").tobytes())
        targets = [[round(t, 7) for t in row] for row in targets.double().tolist()]
        cases.append([height, width, Draws.cutmix, Draws.lam, *Draws.center, sum_, targets])
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (OUT / "mixing.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
