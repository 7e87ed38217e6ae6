#!/usr/bin/env python3
"""What iBOT's masks are like: statistics of many draws by the described rule.

    python tools/oracle/mask_statistics.py > crates/ssl/tests/fixtures/mask_statistics.json

Needs nothing but Python. Written from the description of the rule: half of the views stay whole, the others have a share
drawn from U(0.1, 0.5) covered; rectangles of an area from U((min(H, W) // 3)^2, room) and a log-uniform aspect ratio from
0.3 to 1 / 0.3 are tried up to ten times and taken where they cover something new and not more than there is room for.
Random masks cover exactly the whole part of their share.
"""

import json
import math
import random
import statistics

DRAWS = 200_000


def block_mask(rng, height, width, high):
    covered, count = set(), 0
    while count < high:
        added = 0
        for _ in range(10):
            area = rng.uniform((min(height, width) // 3) ** 2, high - count)
            aspect = math.exp(rng.uniform(math.log(0.3), math.log(1 / 0.3)))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if h >= height or w >= width:
                continue
            top, left = rng.randint(0, height - h), rng.randint(0, width - w)
            new = {(y, x) for y in range(top, top + h) for x in range(left, left + w)} - covered
            if 0 < len(new) <= high - count:
                covered |= new
                added = len(new)
                break
        if not added:
            break
        count += added
    return covered


def random_mask(rng, height, width, high):
    places = [(y, x) for y in range(height) for x in range(width)]
    return set(rng.sample(places, int(high)))


def describe(name, draw, height, width):
    rng = random.Random(7)
    shares, whole, corner, middle, edges = [], 0, 0, 0, []
    for _ in range(DRAWS):
        ratio = rng.uniform(0.1, 0.5)
        if rng.random() < 0.5:
            whole += 1
            continue
        covered = draw(rng, height, width, ratio * height * width)
        shares.append(len(covered) / (height * width))
        corner += (0, 0) in covered
        middle += (height // 2, width // 2) in covered
        # Neighbours of which both are covered, by covered patch: one for each place of a mask without holes.
        edges.append(sum((y, x + 1) in covered for y, x in covered) / max(1, len(covered)))
    masked = len(shares)
    return {
        "shape": name,
        "grid": [height, width],
        "whole": whole / DRAWS,
        "mean": statistics.fmean(shares),
        "deviation": statistics.pstdev(shares),
        "quartiles": statistics.quantiles(shares, n=4),
        "corner": corner / masked,
        "middle": middle / masked,
        "neighbours": statistics.fmean(edges),
        "neighbours_deviation": statistics.pstdev(edges),
    }


def main():
    cases = [("block", block_mask, 14, 14), ("block", block_mask, 6, 9), ("random", random_mask, 14, 14)]
    print(json.dumps([describe(*case) for case in cases], indent=1))


main()
