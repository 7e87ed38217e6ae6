#!/usr/bin/env python3
"""Times the J and F of DAVIS masks against NumPy and OpenCV, in turn, on the same threads.

    cargo build --release
    python tools/bench/davis.py target/release/dino-vmf DAVIS DAVIS/Results/osvos [--threads 2] [--rounds 7]

Needs: numpy, opencv-python, pillow. Each side reads all masks and annotations from files (which are in the page cache) and gives
J and F of every object in every frame. Ours is the whole program, from its start to its end. The other is a pool of processes,
started and warmed up before the clock runs, each with one OpenCV thread and frames handed out as they come; J by boolean
arrays, F by the boundary map and `cv2.dilate` with the disk, inside the box that the two boundaries and the disk need (the
rest of a frame cannot agree); with --whole in whole frames, as the benchmark's own code does it. The mean J and F of both must
be equal to 1e-9. Prints the medians of seconds and of processor time, which depends far less on what else runs on the machine,
and the medians of the ratios.
"""

import argparse
import json
import math
import multiprocessing
import pathlib
import resource
import statistics
import subprocess
import time

import cv2
import numpy as np
from PIL import Image


def labels(path):
    return np.asarray(Image.open(path))


def boundary(mask):
    edge = np.zeros_like(mask)
    edge[:, :-1] |= mask[:, :-1] != mask[:, 1:]
    edge[:-1, :] |= mask[:-1, :] != mask[1:, :]
    edge[:-1, :-1] |= mask[:-1, :-1] != mask[1:, 1:]
    edge[-1, :-1] = mask[-1, :-1] != mask[-1, 1:]
    edge[:-1, -1] = mask[:-1, -1] != mask[1:, -1]
    edge[-1, -1] = False
    return edge


def f_measure(p, g, whole):
    bp, bg = boundary(p), boundary(g)
    np_, ng = np.count_nonzero(bp), np.count_nonzero(bg)
    if np_ == 0 or ng == 0:
        return float(np_ == ng)
    r = math.ceil(0.008 * math.hypot(*p.shape))
    v, u = np.mgrid[-r : r + 1, -r : r + 1]
    disk = (u * u + v * v <= r * r).astype(np.uint8)
    if not whole:
        x, y, w, h = cv2.boundingRect((bp | bg).view(np.uint8))
        part = np.s_[max(0, y - r) : y + h + r, max(0, x - r) : x + w + r]
        bp, bg = bp[part], bg[part]
    near_p, near_g = (cv2.dilate(np.ascontiguousarray(b).view(np.uint8), disk).view(bool) for b in (bp, bg))
    precision, recall = np.count_nonzero(bp & near_g) / np_, np.count_nonzero(bg & near_p) / ng
    return 0.0 if precision + recall == 0 else 2 * precision * recall / (precision + recall)


def judge(task):
    start = time.process_time()
    truth, result, objects, whole = task
    truth, result = labels(truth), labels(result)
    values = []
    for label in range(1, objects + 1):
        p, g = result == label, truth == label
        union = np.count_nonzero(p | g)
        values.append((np.count_nonzero(p & g) / union if union else 1.0, f_measure(p, g, whole)))
    return values, time.process_time() - start


def prepare():
    cv2.setNumThreads(1)


def theirs(pool, davis, masks, whole):
    start, used = time.perf_counter(), time.process_time()
    tasks, sizes = [], []
    for name in (davis / "ImageSets/2017/val.txt").read_text().split():
        frames = sorted((davis / "Annotations/480p" / name).glob("*.png"))
        objects = int(labels(frames[0]).max())
        tasks += [(str(f), str(masks / name / f.name), objects, whole) for f in frames[1:-1]]
        sizes.append((len(frames) - 2, objects))
    judged, spent = zip(*pool.map(judge, tasks, chunksize=4))
    means, at = [], 0
    for frames, objects in sizes:
        part = np.asarray(judged[at : at + frames])
        means += [part[:, o].mean(0) for o in range(objects)]
        at += frames
    j, f = np.mean(means, 0)
    return time.perf_counter() - start, sum(spent) + time.process_time() - used, j, f


def ours(binary, davis, masks, threads):
    command = [binary, "eval", "video", "--davis", davis, "--masks", masks, "--json", "--threads", str(threads), "--device", "cpu"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    result = json.loads(done.stdout)
    return seconds, used, result["j"]["mean"], result["f"]["mean"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("davis", type=pathlib.Path)
    parser.add_argument("masks", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--whole", action="store_true", help="dilate whole frames, as the benchmark's own code does")
    args = parser.parse_args()
    with multiprocessing.Pool(args.threads, prepare) as pool:
        theirs(pool, args.davis, args.masks, args.whole)
        ours(args.binary, args.davis, args.masks, args.threads)
        rounds = []
        for _ in range(args.rounds):
            them = theirs(pool, args.davis, args.masks, args.whole)
            us = ours(args.binary, args.davis, args.masks, args.threads)
            assert all(abs(a - b) < 1e-9 for a, b in zip(them[2:], us[2:])), (them, us)
            rounds.append((them, us))
    print(f"{args.threads} threads, {args.rounds} rounds, {'whole frames' if args.whole else 'boxes'}")
    for i, name in enumerate(["seconds", "processor time"]):
        ratio = statistics.median(them[i] / us[i] for them, us in rounds)
        them, us = (statistics.median(r[side][i] for r in rounds) for side in (0, 1))
        print(f"{name}: NumPy/OpenCV {1000 * them:.1f} ms, ours {1000 * us:.1f} ms, {ratio:.2f}x")


if __name__ == "__main__":
    main()
