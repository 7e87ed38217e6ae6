#!/usr/bin/env python3
"""Compares `dino-vmf eval linear` on stored features with PyTorch's SGD: the same epochs, the same batches in the same order.

    python tools/oracle/linear_compare.py --binary target/release/dino-vmf --train train.safetensors --test test.safetensors

Needs: torch, safetensors, numpy. Writes nothing. Ends with status 1 where a learning rate's top-1 after the last epoch, or the
best over epochs, differs by more than 0.2 points.

PyTorch's side is a torch.nn.Linear for each learning rate under torch.optim.SGD(momentum=0.9) and CosineAnnealingLR. Orders
and initial weights are those of the program, drawn by its rule: a ChaCha8 stream whose key is (seed, epoch, sample, view,
purpose), Fisher and Yates, Box and Muller (crates/random/src/lib.rs), written out again here.

Give learning rates at which the loss falls: above 2 / (largest eigenvalue) SGD is chaotic, and PyTorch in f32 is then as far
from PyTorch in f64 as either is from the program (features of length 17, rate 0.1: several points within the run).
"""

import argparse
import json
import math
import subprocess
import sys

import numpy as np
import torch
from safetensors.numpy import load_file

INIT, SHUFFLE = 1, 2


class Stream:
    """ChaCha with eight rounds, a 64-bit counter from zero and a zero nonce, many blocks at a time."""

    BLOCKS = 4096

    def __init__(self, seed, purpose, epoch=0, sample=0, view=0):
        words = [seed & 0xFFFFFFFF, seed >> 32, epoch & 0xFFFFFFFF, epoch >> 32, sample & 0xFFFFFFFF, sample >> 32]
        self.key = [*words, view, purpose]
        self.counter, self.ready = 0, iter(())

    def blocks(self):
        counters = np.arange(self.counter, self.counter + self.BLOCKS, dtype=np.uint64)
        self.counter += self.BLOCKS
        constant = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
        state = [np.full(self.BLOCKS, word, np.uint32) for word in (*constant, *self.key)]
        state += [counters.astype(np.uint32), (counters >> np.uint64(32)).astype(np.uint32)]
        state += [np.zeros(self.BLOCKS, np.uint32)] * 2
        x = [word.copy() for word in state]
        turn = lambda word, bits: (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))

        def quarter(a, b, c, d):
            for low, high, bits in ((a, d, 16), (c, b, 12), (a, d, 8), (c, b, 7)):
                other = b if low == a else d
                x[low] = x[low] + x[other]
                x[high] = turn(x[high] ^ x[low], bits)

        for _ in range(4):
            for column in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
                quarter(*column)
            for diagonal in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
                quarter(*diagonal)
        words = np.stack([a + b for a, b in zip(x, state)], 1).reshape(-1, 2).astype(np.uint64)
        return (words[:, 0] | (words[:, 1] << np.uint64(32))).tolist()

    def bits(self):
        value = next(self.ready, None)
        if value is None:
            self.ready = iter(self.blocks())
            value = next(self.ready)
        return value

    def uniform(self):
        return (self.bits() >> 11) / (1 << 53)

    def below(self, n):
        threshold = ((1 << 64) - n) % n
        while True:
            wide = self.bits() * n
            if wide & 0xFFFFFFFFFFFFFFFF >= threshold:
                return wide >> 64

    def normal(self):
        radius = math.sqrt(-2 * math.log(1 - self.uniform()))
        return radius * math.cos(2 * math.pi * self.uniform())

    def shuffled(self, n):
        items = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
        return items


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def train_by_torch(train, test, classes, rates, epochs, batch, seed):
    (x, y), (test_x, test_y) = train, test
    stream = Stream(seed, INIT, sample=fnv(b"linear.weight"))
    initial = torch.tensor([0.01 * stream.normal() for _ in range(classes * x.shape[1])]).reshape(classes, -1)
    models = []
    for rate in rates:
        model = torch.nn.Linear(x.shape[1], classes)
        with torch.no_grad():
            model.weight.copy_(initial)
            model.bias.zero_()
        optimizer = torch.optim.SGD(model.parameters(), rate * batch / 256, momentum=0.9, weight_decay=0)
        models.append((model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs, eta_min=0)))
    accuracies = []
    for epoch in range(epochs):
        order = torch.tensor(Stream(seed, SHUFFLE, epoch=epoch).shuffled(len(x)))
        for rows in order.split(batch):
            for model, optimizer, _ in models:
                loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        for *_, schedule in models:
            schedule.step()
        with torch.no_grad():
            accuracies.append([100 * (m(test_x).argmax(1) == test_y).double().mean().item() for m, _, _ in models])
    return np.array(accuracies)


def main():
    check = Stream(42, SHUFFLE, epoch=3)
    assert [check.bits(), check.bits(), check.below(1000)] == [3980555888462246319, 16912972802004852387, 862]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/dino-vmf")
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--rates", default="0.001,0.003,0.01")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rates = [float(rate) for rate in args.rates.split(",")]
    command = [args.binary, "eval", "linear", "--train", args.train, "--test", args.test, "--rates", args.rates, "--json"]
    command += ["--epochs", str(args.epochs), "--step-images", str(args.batch), "--seed", str(args.seed), "--device", "cpu"]
    ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    sets = [load_file(path) for path in (args.train, args.test)]
    sets = [(torch.tensor(s["features"]), torch.tensor(s["labels"])) for s in sets]
    classes = 1 + max(int(y.max()) for _, y in sets)
    theirs = train_by_torch(*sets, classes, rates, args.epochs, args.batch, args.seed)
    worst = 0.0
    for i, (rate, row) in enumerate(zip(rates, ours["results"])):
        best, last = theirs[:, i].max(), theirs[-1, i]
        worst = max(worst, abs(best - row["top1"]), abs(last - row["last_top1"]))
        print(f"rate {rate}: best {row['top1']:.2f} here, {best:.2f} PyTorch; last {row['last_top1']:.2f}, {last:.2f}")
    print(f"largest difference {worst:.3f} points")
    sys.exit(int(worst > 0.2))


if __name__ == "__main__":
    main()
