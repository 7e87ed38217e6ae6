#!/usr/bin/env python3
"""Compares `dino-vmf features` of JPEG files with timm under torch.compile with its own data loader, images a second.

    cargo build --release
    python tools/bench/features.py --binary target/release/dino-vmf --data FOLDER
    python tools/bench/features.py --binary target/release/dino-vmf --data FOLDER --precision bf16 f32 --workers 16

Needs: timm, torch, torchvision, safetensors, numpy.

Both sides read the same JPEG files, hard links to one copy of those below `--data` in a temporary folder, `--images` in all:
they are in the page cache for both. Both run the same network, a ViT of timm with random weights, which is saved for
ours, and both make the features of all images as one array of f32 in a file. Resize to 256 (bicubic) and the centre 224 pixels
on both sides; EXIF orientations are ignored on both, as timm does. The features are compared at the end: what is fast and
something else is no match.

  * timm: `create_loader` as its validate.py calls it, with `--workers` processes that stay from pass to pass, pinned memory and
    its prefetcher, which normalises on the GPU; `torch.compile`, under bf16 autocast for bf16, with PyTorch's usual settings for f32. A
    first pass over a few batches, which starts the workers and compiles, does not count. The clock is on for a whole pass.
  * ours: the whole command, from its start to its end, into a new file each time. What a start costs is measured by the
    same command on `--few` images; "beyond the start" is the rate of the images that are more.

The sides run in turn, `--rounds` times in the first precision and once in others. Ours runs with each of `--our-batch`.
"""

import argparse
import csv
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import timm
import torch
from safetensors.torch import save_file

SIZE, RESIZED = 224, 256
JPEG = (".jpg", ".jpeg")


def link(folder, originals, images):
    """`images` links to the originals, over and over, a folder for each time."""
    for number in range(images):
        turn, place = divmod(number, len(originals))
        at = folder / f"{turn:04}"
        if place == 0:
            at.mkdir(parents=True)
        os.link(originals[place], at / originals[place].name)


class Timm:
    """timm's network and loader, compiled and with its workers started."""

    def __init__(self, args, folder, network):
        self.device, self.network, self.batch = torch.device(args.device), network, args.batch
        self.dataset = timm.data.create_dataset("", root=str(folder))
        self.loader = timm.data.create_loader(
            self.dataset, input_size=(3, SIZE, SIZE), batch_size=args.batch, interpolation="bicubic", crop_pct=SIZE / RESIZED,
            mean=timm.data.IMAGENET_DEFAULT_MEAN, std=timm.data.IMAGENET_DEFAULT_STD, num_workers=args.workers,
            pin_memory=self.device.type == "cuda", device=self.device,
        )  # fmt: skip
        self.compile = not args.no_compile

    def start(self, precision):
        """Compiles for this precision; also starts the workers. Returns the seconds of it and the images a second of the network alone."""
        began = time.monotonic()
        self.forward = torch.compile(self.network) if self.compile else self.network
        self.is_bf16 = precision == "bf16"
        with torch.inference_mode():
            for _, (pixels, _) in zip(range(3), self.loader):
                self.features(pixels)
            self.done()
            seconds = time.monotonic() - began
            alone, count = time.monotonic(), 20 if self.device.type == "cuda" else 1
            for _ in range(count):
                self.features(pixels)
            self.done()
        return seconds, count * len(pixels) / (time.monotonic() - alone)

    def features(self, pixels):
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_bf16):
            return self.forward(pixels)

    def done(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def run(self, out):
        """Seconds of a pass over all images."""
        began = time.monotonic()
        with torch.inference_mode():
            # They stay on the GPU, so that nothing waits for a copy of each batch.
            rows = [self.features(pixels).float() for pixels, _ in self.loader]
            np.save(out, torch.cat(rows).cpu().numpy())
        return time.monotonic() - began

    def names(self):
        return [pathlib.Path(name).as_posix() for name in self.dataset.filenames()]


def ours(args, weights, data, out, precision, batch):
    """Seconds of the whole command."""
    command = [args.binary, "features", "--weights", weights, "--data", data, "--out", out, "--device", args.device,
               "--orientation", "as-stored", "--precision", precision, "--threads", args.workers]  # fmt: skip
    command += ["--batch-size", batch] if batch else []
    began = time.monotonic()
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"dino-vmf ended with {run.returncode}: {run.stderr.strip()[-1000:]}")
    return time.monotonic() - began


def difference(theirs, names, our_file):
    """Largest relative difference of a feature, by file name: the sides may list files in another order."""
    with open(our_file.with_suffix(".csv"), newline="", encoding="utf-8") as table:
        rows = {row["name"]: int(row["row"]) for row in csv.DictReader(table)}
    mine = np.load(our_file)[[rows[name] for name in names]]
    return (np.linalg.norm(mine - theirs, axis=1) / np.linalg.norm(theirs, axis=1)).max()


def compare(args, folder, precision, rounds, timm_side, weights):
    compiled, alone = timm_side.start(precision)
    print(f"# {precision}: torch ready after {compiled:.1f} s; its network alone {alone:.0f} images/s", file=sys.stderr, flush=True)
    beyond = args.images - args.few
    rates, starts = {}, {}
    for batch in args.our_batch:
        starts[batch] = ours(args, weights, folder / "few", folder / f"{precision}-{batch}-few.npy", precision, batch)
    for number in range(rounds):
        said = []
        theirs = timm_side.run(folder / "theirs.npy")
        rates.setdefault("timm", []).append((theirs, args.images / theirs, args.images / theirs))
        for batch in args.our_batch:
            name = f"dino-vmf, batch {batch or 'as it is'}"
            made = folder / f"{precision}-{batch}-{number}.npy"
            few, whole = starts[batch], ours(args, weights, folder / "all", made, precision, batch)
            # On a busy machine few images can take as long as many: then there is no rate.
            rate = beyond / (whole - few) if whole > few else float("nan")
            rates.setdefault(name, []).append((whole, args.images / whole, rate))
            if number == 0:
                apart = difference(np.load(folder / "theirs.npy"), timm_side.names(), made)
                said.append(f"{args.few} images in {few:.2f} s, features apart by {apart:.1e} at most")
        said.insert(0, f"timm {args.images / theirs:.0f} images/s")
        print(f"# {precision} round {number + 1}: {', '.join(said)}", file=sys.stderr, flush=True)
    base = statistics.median(rate for _, _, rate in rates["timm"])
    for name, rounds in rates.items():
        seconds, whole, rate = (statistics.median(column) for column in zip(*rounds))
        each = " ".join(f"{rate:.0f}" for _, _, rate in rounds)
        print(f"| {precision} | {name} | {seconds:.2f} | {whole:.0f} | {rate:.0f} | {whole / base:.2f}x | {rate / base:.2f}x | {each} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/dino-vmf")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="folder of JPEG files")
    parser.add_argument("--images", type=int, default=22_016, help="files are repeated; a multiple of --batch is taken")
    parser.add_argument("--few", type=int, default=256, help="images with which the start of ours is measured")
    parser.add_argument("--model", default="vit_small_patch16_224")
    parser.add_argument("--batch", type=int, default=256, help="of timm's side")
    parser.add_argument("--our-batch", type=int, nargs="+", default=[0], help="of our side; 0 for what it takes by itself")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="of both sides")
    parser.add_argument("--device", default="cuda", help="cuda or cpu, for both sides")
    parser.add_argument("--precision", nargs="+", default=["bf16"], choices=["bf16", "f32"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true", help="to try this script where no compiler is")
    args = parser.parse_args()
    # A last batch of another size would be compiled again.
    args.images -= args.images % args.batch
    found = sorted(path for path in args.data.rglob("*") if path.suffix.lower() in JPEG)
    if not found or not 0 < args.few < args.images:
        sys.exit("features.py: needs JPEG files in --data, and --few below --images")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "copy").mkdir()
        originals = []
        for number, path in enumerate(found):
            # Numbered, so that names of several folders stay apart.
            originals.append(folder / "copy" / f"{number:06}.jpg")
            shutil.copyfile(path, originals[-1])
        for name, images in (("few", args.few), ("all", args.images)):
            link(folder / name, originals, images)
        torch.manual_seed(0)
        network = timm.create_model(args.model, num_classes=0).eval()
        weights = folder / "network.safetensors"
        save_file(network.state_dict(), weights)
        timm_side = Timm(args, folder / "all", network.to(args.device))
        print(f"{args.images} images, {args.model}, {args.workers} workers, timm {timm.__version__}, torch {torch.__version__}")
        print("| precision | side | seconds | images/s | beyond the start | speed | beyond the start | rounds |")
        print("| --- | --- |" + " ---: |" * 5 + " --- |", flush=True)
        for place, precision in enumerate(args.precision):
            compare(args, folder, precision, args.rounds if place == 0 else 1, timm_side, weights)


if __name__ == "__main__":
    main()
