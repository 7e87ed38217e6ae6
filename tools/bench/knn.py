#!/usr/bin/env python3
"""Compares the nearest-neighbour search of `dino-vmf` with PyTorch's matrix product and `topk`, as DINO's script uses them.

    python tools/bench/knn.py --binary target/release/dino-vmf --threads 2
    python tools/bench/knn.py --binary target/release/dino-vmf --threads 2 --k 200 --rounds 5
    python tools/bench/knn.py --binary target/release/dino-vmf --threads 16 --device cuda

Needs: torch in the interpreter of the other side (`--python`, by default the one that runs this file). Build the binary first:
`cargo build --release`.

PyTorch classifies chunks of a hundredth of the test features (`--chunks`), as DINO's eval_knn.py does: `mm` with all training
features, `topk`, votes. Ours is `bench knn`. The two sides run as separate processes, in turn, on random features of the same sizes.
Every round and the medians are printed, in seconds on the clock and in processor seconds, which depend far less on what
else runs on the machine. A round in which others used more than 5 % of the processors is repeated, at most `--retries`
times; on a GPU every round counts, and each side has classified everything once before its clock starts. Features are
normalised, and on the GPU, before PyTorch's clock starts; ours does that while its clock runs, and PyTorch too with
`--from-host`.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

from alternate import alternate


def torch_side(args):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    generator = torch.Generator().manual_seed(0)
    raw = lambda rows: torch.rand(rows, args.dim, generator=generator) * 2 - 1
    raw_train, raw_test = raw(args.train_images), raw(args.test_images)
    unit = lambda rows: F.normalize(rows.to(device), dim=1)
    train, test = unit(raw_train).t(), unit(raw_test)
    labels = torch.arange(args.train_images, device=device) % 1000
    done = lambda: torch.cuda.synchronize() if device.type == "cuda" else None

    def classify(test, chunk):
        right = 0
        with torch.no_grad():
            for start in range(0, len(test), chunk):
                distances, indices = torch.mm(test[start : start + chunk], train).topk(args.k, largest=True, sorted=True)
                votes = torch.zeros(len(distances), 1000, device=device)
                votes.scatter_add_(1, labels[indices], (distances / 0.07).exp())
                right += int(votes.argmax(1).sum())
        done()
        return right

    chunk = max(len(test) // args.chunks, 1)
    if device.type == "cuda":
        # As on the other side: kernels are loaded and memory is taken before the clock starts.
        classify(test, chunk)
    else:
        classify(test[: 2 * chunk], chunk)
    clock, processor = time.monotonic(), time.process_time()
    if args.from_host:
        train, test = unit(raw_train).t(), unit(raw_test)
    classify(test, chunk)
    print(json.dumps({"seconds": time.monotonic() - clock, "processor_seconds": time.process_time() - processor}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/dino-vmf")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--train-images", type=int, default=50_000)
    parser.add_argument("--test-images", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--chunks", type=int, default=100, help="in which PyTorch takes the test features")
    parser.add_argument("--from-host", action="store_true", help="PyTorch's clock too has features brought to the device and normalised")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="cpu or cuda, for both sides")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--retries", type=int, default=3)
    parser.add_argument("--torch-side", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.torch_side:
        return torch_side(args)
    sizes = [f"--{name}={getattr(args, name.replace('-', '_'))}" for name in ("train-images", "test-images", "dim", "k")]
    common = [*sizes, f"--threads={args.threads}", f"--device={args.device}"]
    theirs = [args.python, str(pathlib.Path(__file__).resolve()), "--torch-side", f"--chunks={args.chunks}", *common]
    theirs += ["--from-host"] if args.from_host else []
    ours = [args.binary, "bench", "knn", *common, "--json"]
    rows = []
    print("| round | torch s | dino-vmf s | speed | torch processor s | dino-vmf processor s | ratio | memory MiB |")
    print("| --- |" + " ---: |" * 7)
    show = lambda name, row: print(
        f"| {name} | {row[0]:.3f} | {row[1]:.3f} | {row[2]:.2f}x | {row[3]:.2f} | {row[4]:.2f} | {row[5]:.2f}x | {row[6]:.0f} |"
    )
    sides = [("torch", theirs), ("dino-vmf", ours)]
    for (torch, own), _ in alternate(sides, args.threads, args.rounds, args.retries, watch=args.device == "cpu"):
        speed, work = torch["seconds"] / own["seconds"], torch["processor_seconds"] / own["processor_seconds"]
        row = (torch["seconds"], own["seconds"], speed, torch["processor_seconds"], own["processor_seconds"], work)
        rows.append((*row, own["memory_bytes"] / 2**20))
        show(len(rows), rows[-1])
    show("median", [statistics.median(column) for column in zip(*rows)])


if __name__ == "__main__":
    main()
