#!/usr/bin/env python3
"""Times one DINO training step of `dino-vmf` against PyTorch, side by side in one run on the CPU.

    python tools/bench/step.py --binary target/release/dino-vmf --threads 2
    python tools/bench/step.py --binary target/release/dino-vmf --threads 2 --shape vit_tiny:16:8:6:4096 --rounds 5

Needs: Python 3.9 or newer for this file, and torch in the interpreter of the PyTorch side (`--python`, by default the
one that runs this file). Build the binary first: `cargo build --release`.

For each shape ARCH:PATCH:BATCH:LOCAL:K the two sides run as separate processes, in turn (torch, ours, torch, ours ...),
so that a slow minute of the machine meets both. Each process reports the median of its own steps; the table shows the
median over rounds, and the ratios are medians of the ratios of neighbouring runs.

The machine must be quiet: PyTorch's threads wait for each other actively and lose far more than their share (up to ten
times) to any other busy process, which would flatter us. So the share of the processors that others used is measured
during every run, and a round above 5 % is thrown away and repeated, at most `--retries` times for each shape.

Memory is the peak resident size of the process. PyTorch's includes what importing it costs (0.6 GiB for the package with
CUDA); the last column takes that off before comparing.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

from alternate import DISTURBED, alternate

TORCH_SIDE = pathlib.Path(__file__).resolve().parent / "torch_step.py"
DEFAULT_SHAPES = ["vit_tiny:16:8:6:4096", "vit_small:16:8:8:65536"]
GIB = 2.0**30


def parse_shape(text):
    parts = text.split(":")
    if len(parts) != 5 or not all(part.isdigit() for part in parts[1:]):
        raise argparse.ArgumentTypeError(f"'{text}' is not ARCH:PATCH:BATCH:LOCAL:K, as in {DEFAULT_SHAPES[0]}")
    return parts


def shape_arguments(shape, steps, threads):
    arch, patch, batch, local_crops, out_dim = shape
    return [
        "--arch", arch, "--patch-size", patch, "--batch-size", batch, "--local-crops", local_crops,
        "--out-dim", out_dim, "--steps", str(steps), "--threads", str(threads), "--json",
    ]  # fmt: skip


def compare(shape, args):
    """Alternates the two sides and returns a row of medians."""
    common = shape_arguments(shape, args.steps, args.threads)
    torch_command = [args.python, str(TORCH_SIDE), *common] + (["--compile"] if args.compile else [])
    our_command = [args.binary, "bench", "step", "--device", "cpu", *common]
    pairs, disturbance = [], []
    names, commands, about = ("torch", "dino-vmf"), (torch_command, our_command), f"{':'.join(shape)} "
    for theirs, ours, others in alternate(names, commands, args.threads, args.rounds, args.retries, about, digits=3):
        pairs.append((theirs, ours))
        disturbance.append(others)
    median = lambda values: statistics.median(list(values))  # noqa: E731
    row = {
        "shape": ":".join(shape),
        "torch_images_per_second": median(t["images_per_second"] for t, _ in pairs),
        "our_images_per_second": median(o["images_per_second"] for _, o in pairs),
        "speed_ratio": median(o["images_per_second"] / t["images_per_second"] for t, o in pairs),
        "torch_peak_memory_bytes": median(t["peak_memory_bytes"] for t, _ in pairs),
        "our_peak_memory_bytes": median(o["peak_memory_bytes"] for _, o in pairs),
        "memory_ratio": median(o["peak_memory_bytes"] / t["peak_memory_bytes"] for t, o in pairs),
        "memory_ratio_without_import": median(
            o["peak_memory_bytes"] / (t["peak_memory_bytes"] - t["memory_before_model_bytes"]) for t, o in pairs
        ),
        "torch_version": pairs[0][0]["torch_version"],
        "rounds": args.rounds,
        "threads": args.threads,
        "other_processes": max(disturbance),
    }
    if all("mfu" in o for _, o in pairs):
        row["our_mfu"] = median(o["mfu"] for _, o in pairs)
    return row


def print_table(rows):
    version, threads, rounds = rows[0]["torch_version"], rows[0]["threads"], rows[0]["rounds"]
    print(f"PyTorch {version}, {threads} threads, median of {rounds} round(s); ratios are dino-vmf / PyTorch")
    titles = ("arch:patch:batch:local:K", "PyTorch img/s", "dino-vmf img/s", "speed", "PyTorch GiB", "dino-vmf GiB",
              "memory", "without import")  # fmt: skip
    print(f"| {' | '.join(titles)} |")
    print("| --- |" + " ---: |" * (len(titles) - 1))
    for row in rows:
        print(
            f"| {row['shape']} | {row['torch_images_per_second']:.2f} | {row['our_images_per_second']:.2f} "
            f"| {row['speed_ratio']:.2f}x | {row['torch_peak_memory_bytes'] / GIB:.2f} "
            f"| {row['our_peak_memory_bytes'] / GIB:.2f} | {row['memory_ratio']:.2f}x "
            f"| {row['memory_ratio_without_import']:.2f}x |"
        )
    if any(row["other_processes"] > DISTURBED for row in rows):
        print("NOT VALID: other processes used more than 5 % of the processors. Repeat on a quiet machine.")


def main():
    parser = argparse.ArgumentParser(description="DINO step on the CPU: dino-vmf against PyTorch, alternating.")
    parser.add_argument("--binary", required=True, help="path of the dino-vmf binary (release build)")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch")
    parser.add_argument("--shape", dest="shapes", action="append", type=parse_shape, metavar="ARCH:PATCH:BATCH:LOCAL:K",
                        help=f"may be repeated; default {' and '.join(DEFAULT_SHAPES)}")  # fmt: skip
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each process")
    parser.add_argument("--retries", type=int, default=3, help="disturbed rounds to repeat, for each shape")
    parser.add_argument("--compile", action="store_true", help="let PyTorch use torch.compile (needs a C++ compiler)")
    parser.add_argument("--json", action="store_true", help="print the rows as one JSON object instead of a table")
    args = parser.parse_args()
    if not os.access(args.binary, os.X_OK):
        parser.error(f"no program at {args.binary}; build it with `cargo build --release`")
    rows = [compare(shape, args) for shape in args.shapes or [parse_shape(text) for text in DEFAULT_SHAPES]]
    if args.json:
        print(json.dumps({"rows": rows}))
    else:
        print_table(rows)


if __name__ == "__main__":
    main()
