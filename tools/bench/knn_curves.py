"""Draws the accuracy of the online kNN over the epochs of some runs, as an SVG file.

    python tools/bench/knn_curves.py --out docs/images/cifar10-knn.svg DINO=runs/a DINO-vMF=runs/b

Needs nothing but Python. A run is given as NAME=FOLDER, where FOLDER holds its metrics.jsonl.
"""

import argparse
import json
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 130, 20, 50
COLORS = ["#1b6ca8", "#d1495b", "#3a7d44", "#8d5a97", "#b8860b"]


def curve(folder):
    """(epochs done, top-1) of a run."""
    points = []
    with open(Path(folder) / "metrics.jsonl") as lines:
        for line in lines:
            record = json.loads(line)
            if "knn_top1" in record:
                points.append((record["epoch"] + 1, record["knn_top1"]))
    if not points:
        raise SystemExit(f"{folder}: no kNN was evaluated in this run")
    return points


def ticks(low, high, wanted):
    """Round numbers from low to high, about as many as wanted."""
    span = max(high - low, 1e-9)
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if span / s <= wanted)
    first = -(-low // step) * step
    return [first + i * step for i in range(int((high - first) // step) + 1)]


def draw(runs):
    most = max(epoch for _, points in runs for epoch, _ in points)
    values = [value for _, points in runs for _, value in points]
    low, high = 5 * (min(values) // 5), 5 * -(-max(values) // 5)

    def x(epoch):
        return LEFT + (WIDTH - LEFT - RIGHT) * epoch / most

    def y(value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / max(high - low, 1e-9)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for value in ticks(low, high, 8):
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g} %</text>')
    for epoch in ticks(0, most, 10):
        parts.append(f'<text x="{x(epoch):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{epoch:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">epochs</text>')
    # Names from the highest curve down, kept apart.
    lowest = float("-inf")
    named = sorted(zip(runs, COLORS * len(runs)), key=lambda run: -run[0][1][-1][1])
    for (name, points), color in named:
        path = "L".join(f"{x(epoch):.1f} {y(value):.1f}" for epoch, value in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        for epoch, value in points:
            parts.append(f'<circle cx="{x(epoch):.1f}" cy="{y(value):.1f}" r="2.5" fill="{color}"/>')
        lowest = max(y(points[-1][1]) + 4, lowest + 17)
        text = f"{name} {points[-1][1]:.1f} %"
        parts.append(f'<text x="{WIDTH - RIGHT + 8}" y="{lowest:.1f}" fill="{color}">{escape(text)}</text>')
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--out", required=True, help="the SVG file")
    args = parser.parse_args()
    named = [run.partition("=") for run in args.runs]
    bad = [run for run, (_, equals, _) in zip(args.runs, named) if not equals]
    if bad:
        parser.error(f"{bad[0]} is not NAME=FOLDER")
    Path(args.out).write_text(draw([(name, curve(folder)) for name, _, folder in named]))


if __name__ == "__main__":
    main()
