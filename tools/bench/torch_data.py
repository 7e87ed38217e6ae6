#!/usr/bin/env python3
"""The torchvision/Pillow side of `dino-vmf bench data`: DINO's multi-crop views of a folder of images, loaded by torch.

    python tools/bench/torch_data.py --data photos --batch-size 64 --local-crops 8 --workers 2 --seconds 20 --json
    python tools/bench/torch_data.py --data photos --local-crops 8 --operations

Needs: torch, torchvision and Pillow. Written against the specification of DINO's augmentations, not taken from any
repository.

An image is decoded to RGB and shown in two global views of 224 pixels and `--local-crops` local ones of 96. A view is a
random resized crop (bicubic), mirrored with probability 0.5, colour jitter (0.4, 0.4, 0.2, 0.1) with 0.8, grey with
0.2, Pillow's Gaussian blur with sigma from 0.1 to 2.0 (global 1 always, global 2 with 0.1, local with 0.5), solarised
(global 2 with 0.2), then a normalised float tensor.

What makes it a fair opponent:
  * one process a worker, each with one thread: more threads in a worker only fight over the same processors;
  * batches go on across the end of an epoch, so the workers never stand still between epochs;
  * the clock starts when every worker has delivered a batch, and covers the same number of batches of every worker.
Memory is not pinned: nothing here copies to a GPU.

Prints ONE JSON object on standard output: images_per_second, views_per_second, workers, batch_size, local_crops,
seconds, images, processor_microseconds (for an image, of all processes together) and the versions. With `--operations`
instead: processor microseconds of each operation for an image with all its views, in this process alone, the fastest of
three passes over each of up to `--sample` images, which are spread evenly over the sorted list of files.
"""

import argparse
import io
import json
import multiprocessing
import os
import random
import sys
import time

import PIL
import torch
import torchvision
from PIL import Image, ImageFilter, ImageOps
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate
from torchvision import transforms
from torchvision.transforms import functional as F

EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GLOBAL_SIZE, GLOBAL_SCALE = 224, (0.4, 1.0)
LOCAL_SIZE, LOCAL_SCALE = 96, (0.05, 0.4)
RATIO = (3.0 / 4.0, 4.0 / 3.0)
BICUBIC = transforms.InterpolationMode.BICUBIC
JITTER = transforms.ColorJitter(0.4, 0.4, 0.2, 0.1)
# Size, scale, and probabilities of blur and solarisation of the three kinds of view.
GLOBAL_1 = (GLOBAL_SIZE, GLOBAL_SCALE, 1.0, 0.0)
GLOBAL_2 = (GLOBAL_SIZE, GLOBAL_SCALE, 0.1, 0.2)
LOCAL = (LOCAL_SIZE, LOCAL_SCALE, 0.5, 0.0)
PASSES = 3


class Blur:
    """Pillow's Gaussian blur, with a probability."""

    def __init__(self, probability):
        self.probability = probability

    def __call__(self, image):
        if random.random() >= self.probability:
            return image
        return image.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))


class Solarize:
    """Pillow's solarisation, with a probability."""

    def __init__(self, probability):
        self.probability = probability

    def __call__(self, image):
        return ImageOps.solarize(image) if random.random() < self.probability else image


def view_transform(size, scale, blur, solarize):
    steps = [
        transforms.RandomResizedCrop(size, scale=scale, ratio=RATIO, interpolation=BICUBIC),
        transforms.RandomHorizontalFlip(0.5),
        transforms.RandomApply([JITTER], p=0.8),
        transforms.RandomGrayscale(0.2),
        Blur(blur),
    ]
    if solarize > 0.0:
        steps.append(Solarize(solarize))
    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)])


class Views(Dataset):
    """A folder of images, each as the list of its views."""

    def __init__(self, files, local_crops):
        self.files = files
        local = view_transform(*LOCAL)
        self.transforms = [view_transform(*GLOBAL_1), view_transform(*GLOBAL_2)] + [local] * local_crops

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            image = Image.open(file).convert("RGB")
        return [transform(image) for transform in self.transforms]


class EndlessBatches(Sampler):
    """Whole batches of one shuffled epoch after the other."""

    def __init__(self, images, batch_size):
        self.images, self.batch_size = images, batch_size

    def __iter__(self):
        while True:
            order = torch.randperm(self.images).tolist()
            for first in range(0, self.images - self.batch_size + 1, self.batch_size):
                yield order[first : first + self.batch_size]


def start_worker(worker):
    torch.set_num_threads(1)
    random.seed(torch.initial_seed() + worker)


def image_files(folder):
    found = []
    for parent, _, names in os.walk(folder):
        found += [os.path.join(parent, name) for name in names if name.lower().endswith(EXTENSIONS)]
    if not found:
        raise SystemExit(f"torch_data.py: no images in {folder} or below")
    # The order of dino-vmf: by folder, then by name.
    return sorted(found, key=lambda path: (os.path.dirname(path), os.path.basename(path)))


def processor_seconds():
    """Processor time of this process and its workers so far; None where /proc is missing."""
    ticks = 0
    for pid in [os.getpid(), *(worker.pid for worker in multiprocessing.active_children())]:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            return None
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def load(files, args):
    """Takes batches for the given time; returns the images, the seconds and the processor seconds."""
    loader = DataLoader(
        Views(files, args.local_crops),
        batch_sampler=EndlessBatches(len(files), args.batch_size),
        num_workers=args.workers,
        worker_init_fn=start_worker,
        pin_memory=False,
    )
    batches = iter(loader)
    for _ in range(args.workers):
        next(batches)
    count, start, seconds, before = 0, time.perf_counter(), 0.0, processor_seconds()
    while seconds < args.seconds:
        for _ in range(args.workers):
            next(batches)
        count += args.workers
        seconds = time.perf_counter() - start
    processor = None if before is None else processor_seconds() - before
    return count * args.batch_size, seconds, processor


class Clock:
    """Adds up the processor time of each operation."""

    def __init__(self):
        self.seconds = {}

    def time(self, name, work, *arguments):
        start = time.thread_time()
        result = work(*arguments)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.thread_time() - start
        return result


def read(path):
    with open(path, "rb") as file:
        return file.read()


def timed_view(image, kind, clock):
    """The same view as `view_transform` makes, with a clock on every operation."""
    size, scale, blur, solarize = kind
    box = clock.time("draw", transforms.RandomResizedCrop.get_params, image, list(scale), list(RATIO))
    view = clock.time("resize", lambda: F.resized_crop(image, *box, [size, size], BICUBIC))
    if random.random() < 0.5:
        view = clock.time("flip", F.hflip, view)
    if random.random() < 0.8:
        order, *factors = JITTER.get_params(JITTER.brightness, JITTER.contrast, JITTER.saturation, JITTER.hue)
        names = ("brightness", "contrast", "saturation", "hue")
        adjustments = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
        for i in order.tolist():
            view = clock.time(names[i], adjustments[i], view, factors[i])
    if random.random() < 0.2:
        view = clock.time("grayscale", F.rgb_to_grayscale, view, 3)
    if random.random() < blur:
        view = clock.time("blur", view.filter, ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))
    if random.random() < solarize:
        view = clock.time("solarize", ImageOps.solarize, view)
    tensor = clock.time("to tensor", F.to_tensor, view)
    return clock.time("normalize", F.normalize, tensor, MEAN, DEVIATION)


def collate_seconds(views):
    """What it takes, for an image, to put the views of a batch into one tensor each."""
    fastest = float("inf")
    for _ in range(PASSES):
        start = time.thread_time()
        default_collate(views)
        fastest = min(fastest, (time.thread_time() - start) / len(views))
    return fastest


def operations(files, args):
    """Mean microseconds of each operation for an image, and the number of images."""
    torch.set_num_threads(1)
    sample = files[:: -(-len(files) // args.sample)]
    kinds = [GLOBAL_1, GLOBAL_2] + [LOCAL] * args.local_crops
    sums, batch = {}, []
    for number, path in enumerate(sample):
        fastest = {}
        for _ in range(PASSES):
            # The same draws in every pass, so that the same work is compared.
            random.seed(number)
            torch.manual_seed(number)
            clock = Clock()
            data = clock.time("read", read, path)
            image = clock.time("decode", lambda: Image.open(io.BytesIO(data)).convert("RGB"))
            views = [timed_view(image, kind, clock) for kind in kinds]
            fastest = {name: min(time, fastest.get(name, time)) for name, time in clock.seconds.items()}
        for name, seconds in fastest.items():
            sums[name] = sums.get(name, 0.0) + seconds
        batch.append(views)
    sums["collate"] = collate_seconds(batch) * len(sample)
    return {name: 1e6 * total / len(sample) for name, total in sums.items()}, len(sample)


def main():
    parser = argparse.ArgumentParser(description="DINO's views by torchvision and Pillow")
    parser.add_argument("--data", required=True, help="folder of images, searched to any depth")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--local-crops", type=int, default=8)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--operations", action="store_true", help="time the operations one by one instead")
    parser.add_argument("--sample", type=int, default=128, help="most images for --operations")
    parser.add_argument("--json", action="store_true", help="accepted for symmetry; the output is always JSON")
    args = parser.parse_args()
    files = image_files(args.data)
    torch.manual_seed(0)
    result = {
        "local_crops": args.local_crops,
        "source_images": len(files),
        "torch_version": torch.__version__,
        "torchvision_version": torchvision.__version__,
        "pillow_version": PIL.__version__,
    }
    if args.operations:
        microseconds, images = operations(files, args)
        total = sum(microseconds.values())
        result["operations"] = [
            {"name": name, "microseconds": value, "share": value / total} for name, value in microseconds.items()
        ]
        result.update(operations_microseconds=total, operations_images=images)
    else:
        if args.batch_size > len(files):
            sys.exit(f"torch_data.py: a batch of {args.batch_size} does not fit into {len(files)} images")
        images, seconds, processor = load(files, args)
        rate = images / seconds
        result.update(
            images_per_second=rate,
            views_per_second=rate * (2 + args.local_crops),
            worker_microseconds=1e6 * args.workers / rate,
            processor_microseconds=None if processor is None else 1e6 * processor / images,
            workers=args.workers,
            batch_size=args.batch_size,
            seconds=seconds,
            images=images,
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
