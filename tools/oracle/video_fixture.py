#!/usr/bin/env python3
"""Reference values of the video protocol -> crates/eval/tests/fixtures/video.json

    python tools/oracle/video_fixture.py

Needs: numpy, torch, opencv-python, pillow. Inputs are closed forms of integers or of vit_hash.uniform. Long results are kept as
h = 31 h + value (mod 2^32) over all values in order.

Format:
    nearest[]      from, to, hash         which of `from` pixels each of `to` is in Pillow's resize(.., NEAREST)
    bilinear[]     from, to (height, width), hash
                   OpenCV's resize of the RGB image whose byte (y, x, c) is
                   ((3 x x + 5 y y + 7 x y + 11 c) * 2654435761 mod 2^32) >> 24
    agreement[]    size (height, width), j, f of objects 1 and 2
                   J and F by NumPy and OpenCV (cv2.dilate with the disk). An object is the union of disks, strictly within
                   their radius: 1 has (h/2, w/3, h/4), 2 has (h/3, 2w/3, h/5), drawn later; of the result the centres are
                   (h/2 + 3, w/3 - 2) and (h/3 - 1, 2w/3 + 4), and the radius of 1 is two less
    propagation    labels of 4 frames carried from the first, in f64: features of frame t are
                   u(20, i) + 0.5 u(21 + t, i), grid 6 x 9, width 24; the first mask, of 25 x 38 pixels, shows label
                   (x > 12) + (y > 9 and x > 20); neighbourhood 2, 5 most similar, 2 last frames beside the first one
        soft       the soft labels of the last frame, [patches, labels]
        masks      hash of each frame's mask of 25 x 38 pixels, patches of 4 pixels
"""

import json
import math
import pathlib

import cv2
import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

import vit_hash

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates/eval/tests/fixtures/video.json"


def rolling(values):
    h = 0
    for value in np.asarray(values).ravel().tolist():
        h = (31 * h + int(value)) % 2**32
    return h


def nearest(pairs):
    for source, to in pairs:
        # Numbers up to 65535 need a mode of 32 bits; the places are the same in all modes.
        line = Image.fromarray(np.arange(source, dtype=np.int32)[None, :])
        across = np.asarray(line.resize((to, 1), Image.NEAREST))[0]
        column = Image.fromarray(np.arange(source, dtype=np.int32)[:, None])
        assert (np.asarray(column.resize((1, to), Image.NEAREST))[:, 0] == across).all()
        yield {"from": source, "to": to, "hash": rolling(across)}


def bilinear(pairs):
    for (h, w), to in pairs:
        y, x, c = np.meshgrid(np.arange(h), np.arange(w), np.arange(3), indexing="ij")
        image = (((3 * x * x + 5 * y * y + 7 * x * y + 11 * c) * 2654435761 % 2**32) >> 24).astype(np.uint8)
        yield {"from": [h, w], "to": to, "hash": rolling(cv2.resize(image, (to[1], to[0])))}


def boundary(mask):
    right, below, both = np.zeros_like(mask), np.zeros_like(mask), np.zeros_like(mask)
    right[:, :-1], below[:-1], both[:-1, :-1] = mask[:, 1:], mask[1:], mask[1:, 1:]
    edge = mask ^ right | mask ^ below | mask ^ both
    edge[-1] = mask[-1] ^ right[-1]
    edge[:, -1] = mask[:, -1] ^ below[:, -1]
    edge[-1, -1] = False
    return edge


def agreement(size):
    h, w = size
    y, x = np.mgrid[:h, :w]

    def draw(disks):
        labels = np.zeros(size, np.uint8)
        for label, (row, column, radius) in enumerate(disks, 1):
            labels[(y - row) ** 2 + (x - column) ** 2 < radius**2] = label
        return labels

    truth = draw([(h // 2, w // 3, h // 4), (h // 3, 2 * w // 3, h // 5)])
    result = draw([(h // 2 + 3, w // 3 - 2, h // 4 - 2), (h // 3 - 1, 2 * w // 3 + 4, h // 5)])
    r = math.ceil(0.008 * math.hypot(h, w))
    v, u = np.mgrid[-r : r + 1, -r : r + 1]
    disk = (u * u + v * v <= r * r).astype(np.uint8)
    js, fs = [], []
    for label in (1, 2):
        p, g = result == label, truth == label
        js.append((p & g).sum() / (p | g).sum())
        bp, bg = boundary(p), boundary(g)
        near_g, near_p = (cv2.dilate(b.astype(np.uint8), disk) > 0 for b in (bg, bp))
        precision, recall = (bp & near_g).sum() / bp.sum(), (bg & near_p).sum() / bg.sum()
        fs.append(2 * precision * recall / (precision + recall))
    return {"size": size, "j": js, "f": fs}


def carry(context, target, labels, grid, reach=2, most=5):
    h, w = grid
    source = F.normalize(torch.cat(context), dim=1)
    weights = torch.exp(F.normalize(target, dim=1) @ source.T / 0.1)
    rows, columns = torch.arange(h * w) // w, torch.arange(h * w) % w
    near = ((rows[:, None] - rows).abs() <= reach) & ((columns[:, None] - columns).abs() <= reach)
    weights = weights * near.repeat(1, len(context))
    least = weights.topk(most, dim=1).values[:, -1:]
    weights = torch.where(weights >= least, weights, torch.zeros(()).double())
    weights = weights / weights.sum(1, keepdim=True)
    return weights @ torch.cat(labels)


def propagation():
    grid, width, patch, size = (6, 9), 24, 4, (25, 38)
    count = grid[0] * grid[1]
    frames = [
        torch.tensor(vit_hash.uniform(20, count * width) + 0.5 * vit_hash.uniform(21 + t, count * width)).view(count, width)
        for t in range(4)
    ]
    y, x = np.mgrid[: size[0], : size[1]]
    mask = ((x > 12).astype(np.uint8) + ((y > 9) & (x > 20))).astype(np.uint8)
    small = torch.tensor(np.asarray(Image.fromarray(mask).resize((grid[1], grid[0]), Image.NEAREST)).copy()).long()
    first = F.one_hot(small.view(-1)).double()
    queue, masks = [], [rolling(mask)]
    for frame in frames[1:]:
        soft = carry([frames[0]] + [f for f, _ in queue], frame, [first] + [s for _, s in queue], grid)
        queue = (queue + [(frame, soft)])[-2:]
        maps = F.interpolate(soft.T.reshape(1, -1, *grid), scale_factor=patch, mode="bilinear", align_corners=False)[0]
        for channel in maps:
            if channel.max() > 0:
                channel -= channel.min().clone()
                channel /= channel.max().clone()
        labels = Image.fromarray(maps.max(0).indices.numpy().astype(np.uint8))
        masks.append(rolling(np.asarray(labels.resize((size[1], size[0]), Image.NEAREST))))
    return {"soft": soft.tolist(), "masks": masks}


def main():
    fixture = {
        "nearest": list(nearest([(854, 52), (480, 30), (832, 854), (910, 56), (896, 910), (476, 480), (52, 854), (7, 3), (3, 7), (1, 5), (5, 1), (640, 640), (427, 26)])),
        "bilinear": list(bilinear([([48, 85], [48, 83]), ([480, 854], [480, 832]), ([37, 53], [64, 128]), ([100, 200], [48, 64]), ([64, 64], [32, 32]), ([50, 60], [70, 61]), ([1, 1], [3, 5]), ([9, 1], [4, 2])])),
        "agreement": [agreement(size) for size in ([50, 70], [100, 129], [300, 400])],
        "propagation": propagation(),
    }  # fmt: skip
    OUT.write_text(json.dumps(fixture, indent=1) + "\n")


if __name__ == "__main__":
    main()
