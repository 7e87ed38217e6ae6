#!/usr/bin/env python3
"""Compares the loader of `dino-vmf` with torchvision and Pillow in torch's DataLoader, on the same files.

    python tools/bench/data.py --binary target/release/dino-vmf --data photos --workers 2
    python tools/bench/data.py --binary target/release/dino-vmf --data photos --workers 8 --seconds 60 --rounds 5

Needs: Python 3.9 or newer for this file, and torch, torchvision and Pillow in the interpreter of the other side
(`--python`, by default the one that runs this file). Build the binary first: `cargo build --release`.

The two sides run as separate processes, in turn (torch, ours, torch, ours ...), with the same batch, the same views and
the same number of workers, so that a slow minute of the machine meets both. Every round and the medians are printed;
the ratio is the median of the ratios of neighbouring runs.

The share of the processors that other programs used is measured during every run; a round above 5 % is repeated, at
most `--retries` times. Processor time of an image is what all threads or processes of a side computed for it: it depends far
less on what else runs on the machine than images per second do.

The last table has the operations one by one, in processor time of one thread, for an image with all its views, on the
same sample of the files. Ours mirrors while it resizes, hands out bytes and normalises on the way into the network, so
that nothing stands against `flip`, `to tensor`, `normalize` and `collate`.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

from alternate import DISTURBED, alternate, fail, run

TORCH_SIDE = pathlib.Path(__file__).resolve().parent / "torch_data.py"
ORDER = ["read", "decode", "draw", "resize", "flip", "brightness", "contrast", "saturation", "hue", "grayscale", "blur",
         "solarize", "to tensor", "normalize", "collate"]  # fmt: skip


def measure(args):
    """Alternates the two sides; returns the rounds that count and how much each was disturbed."""
    common = ["--data", args.data, "--local-crops", str(args.local_crops)]
    loading = ["--batch-size", str(args.batch_size), "--workers", str(args.workers), "--seconds", str(args.seconds)]
    torch_command = [args.python, str(TORCH_SIDE), *common, *loading, "--json"]
    our_command = [args.binary, "bench", "data", *common, *loading, "--json"]
    sides, rounds = [("torchvision", torch_command), ("dino-vmf", our_command)], []
    for (theirs, ours), others in alternate(sides, args.workers, args.rounds, args.retries):
        if theirs["source_images"] != ours["source_images"]:
            counts = f"torchvision {theirs['source_images']}, dino-vmf {ours['source_images']}"
            fail(f"the two sides see different files ({counts}); give a folder without a held-out part")
        rounds.append({"torchvision": theirs, "dino_vmf": ours, "other_programs": others})
    operations, _ = run([args.python, str(TORCH_SIDE), *common, "--operations"], 1)
    return rounds, operations


def speed_table(rounds):
    lines = [
        "| round | torchvision img/s | dino-vmf img/s | speed "
        "| torchvision processor ms | dino-vmf processor ms | ratio |",
        "| --- |" + " ---: |" * 6,
    ]

    def row(name, theirs, ours, speed, their_work, our_work, ratio):
        lines.append(
            f"| {name} | {theirs:.1f} | {ours:.1f} | {speed:.2f}x | {their_work:.2f} | {our_work:.2f} | {ratio:.2f}x |"
        )

    rows = []
    for number, pair in enumerate(rounds, 1):
        theirs, ours = pair["torchvision"], pair["dino_vmf"]
        their_work, our_work = (1e-3 * (side["processor_microseconds"] or float("nan")) for side in (theirs, ours))
        speed = ours["images_per_second"] / theirs["images_per_second"]
        cells = (theirs["images_per_second"], ours["images_per_second"], speed, their_work, our_work)
        rows.append((*cells, their_work / our_work))
        row(number, *rows[-1])
    medians = [statistics.median(column) for column in zip(*rows)]
    row("median", *medians)
    return lines, medians


def operation_table(theirs, ours):
    sides = [{item["name"]: item["microseconds"] for item in side["operations"]} for side in (theirs, ours)]
    totals = [sum(side.values()) for side in sides]
    lines = [
        "| operation | torchvision us | share | dino-vmf us | share | speed |",
        "| --- |" + " ---: |" * 5,
    ]
    for name in ORDER + sorted(set().union(*sides) - set(ORDER)):
        cells = [f"{side[name]:.0f} | {100 * side[name] / total:.1f} %" if name in side else "- | -"
                 for side, total in zip(sides, totals)]  # fmt: skip
        both = all(side.get(name, 0.0) > 0.0 for side in sides)
        ratio = f"{sides[0][name] / sides[1][name]:.2f}x" if both else "-"
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {ratio} |")
    lines.append(f"| all | {totals[0]:.0f} | | {totals[1]:.0f} | | {totals[0] / totals[1]:.2f}x |")
    return lines


def main():
    parser = argparse.ArgumentParser(description="The loader of dino-vmf against torchvision and Pillow, alternating.")
    parser.add_argument("--binary", required=True, help="path of the dino-vmf binary (release build)")
    parser.add_argument("--data", required=True, help="folder of images, searched to any depth")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch and torchvision")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--local-crops", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0, help="timed seconds of each process")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--retries", type=int, default=3, help="disturbed rounds to repeat")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object instead of tables")
    args = parser.parse_args()
    if not os.access(args.binary, os.X_OK):
        parser.error(f"no program at {args.binary}; build it with `cargo build --release`")
    rounds, operations = measure(args)
    lines, medians = speed_table(rounds)
    if args.json:
        print(json.dumps({"rounds": rounds, "torchvision_operations": operations, "speed": medians[2]}))
        return
    first = rounds[0]["torchvision"]
    print(
        f"torchvision {first['torchvision_version']}, Pillow {first['pillow_version']}, torch {first['torch_version']}"
        f"; {first['source_images']} images, {args.workers} workers, batch {args.batch_size}, "
        f"2 + {args.local_crops} views"
    )
    print("\n".join(lines))
    if any(pair["other_programs"] > DISTURBED for pair in rounds):
        print("NOT VALID: other programs used more than 5 % of the processors. Repeat on a quiet machine.")
    print()
    print("\n".join(operation_table(operations, rounds[-1]["dino_vmf"])))


if __name__ == "__main__":
    main()
