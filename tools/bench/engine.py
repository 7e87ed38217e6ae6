#!/usr/bin/env python3
"""Engine or recipe? Trains a finished run of `dino-vmf` again in PyTorch, and compares the two step by step.

    dino-vmf pretrain --set log_every=1 --out runs/ours
    python tools/bench/engine.py --binary target/release/dino-vmf --run runs/ours --json engine.json
    dino-vmf pretrain --data imagenette160 --arch vit_small --epochs 50 --set log_every=1 --set on_collapse=continue \
        --out runs/photos
    python tools/bench/engine.py --binary target/release/dino-vmf --run runs/photos --device cuda --json photos.json

Needs: Python 3.11 or newer, torch, numpy and safetensors; for `--device cuda` a torch with CUDA. The run is one of DINO
or DINO-vMF whose recipe torch_recipe.py knows.

PyTorch gets the recipe (`config.toml` of the run), the weights that the run began with, the very views of every step
and the residual branches that drop path skips: `dino-vmf views --raw --initial` writes them. It computes everything
else itself: networks, log-normaliser, centre, loss, gradient (autograd), clipping, AdamW, moving average, schedules. At
the end it classifies the held-out images by all training images (k and temperature as in the recipe), with the features
of its own teacher and with those of ours. The last must agree with what `dino-vmf eval knn` says of the run.

`--precision` is f32, f64 or bf16 (autocast; weights and loss in f32), by default f32 on the CPU and bf16 on a GPU, as
ours. In f64 PyTorch is the referee: how far two f32 computations stay together says little by itself, since a
difference in the last digit grows with every step. `--steps N` ends PyTorch's training after N steps. On a CPU that
others use too, `--threads 1` is faster than more: PyTorch's threads wait for each other actively.

The tables have the loss of both sides at some steps, how long the losses agree to within 1e-5, 1e-3 and 1e-2 of each
other, mean loss and entropy of the last tenth of the run, what became of it, and kNN.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file

from torch_recipe import Recipe
from torch_run import Bytes, Network, Training, features, knn

TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.float32}
AGREEMENTS = (1e-5, 1e-3, 1e-2)
# Loss and entropy this close to ln K, as a share of it, are those of a uniform teacher.
UNIFORM = 0.02


def ours(binary, *args):
    """Starts the program; what it writes can be read."""
    return subprocess.Popen([binary, *args], stdout=subprocess.PIPE)


def train(args, recipe, views_of):
    """Trains as the recipe says; the training, and the loss and entropy of every step."""
    with tempfile.TemporaryDirectory() as folder:
        weights = os.path.join(folder, "initial.safetensors")
        process = ours(args.binary, "views", *views_of, "--raw", str(recipe["epochs"]), "--initial", weights)
        # The weights are complete before the first line of the views.
        stream = Bytes(process.stdout)
        training = Training(recipe, load_file(weights), args.device, TYPES[args.precision], args.precision == "bf16")
    log, pending, begun = [], [], time.monotonic()
    for groups, branches in stream.steps():
        pending.append(torch.stack(training.step(groups, branches)))
        if len(pending) == recipe.epoch_steps or training.step_number == args.steps:
            log += torch.stack(pending).double().tolist()
            pending = []
            loss, entropy = log[-1]
            print(f"step {len(log)} of {recipe.steps}: loss {loss:.4f}, entropy {entropy:.4f}, "
                  f"{time.monotonic() - begun:.0f} s", file=sys.stderr)  # fmt: skip
            if not math.isfinite(loss):
                raise SystemExit(f"the loss of PyTorch is {loss} at step {len(log)}")
        if training.step_number == args.steps:
            break
    process.stdout.close()
    process.wait()
    return training, log, time.monotonic() - begun


def judge(args, recipe, views_of, backbones):
    """kNN of several backbones on the held-out images by all training images."""

    def images(split):
        process = ours(args.binary, "views", *views_of, "--raw-images", "--split", split)
        return [(pixels, classes) for pixels, classes in Bytes(process.stdout).images(64)]

    train_images, test_images = images("train"), images("test")
    found = []
    for backbone in backbones:
        train_features, test_features = features(backbone, train_images), features(backbone, test_images)
        found.append(knn(train_features, test_features, recipe["knn_k"], recipe["knn_temperature"]))
    return found


def loss_and_entropy(run):
    """By step, from the log of our run."""
    with open(run / "metrics.jsonl", encoding="utf-8") as log:
        records = [json.loads(line) for line in log]
    return {r["step"]: (r["loss"], r["teacher_entropy"]) for r in records if "teacher_entropy" in r}


def fate(log, recipe):
    """What became of a side, and the mean loss and entropy of the last tenth of its steps."""
    last = log[-max(len(log) // 10, 1) :]
    loss, entropy = (sum(column) / len(last) for column in zip(*last))
    uniform = math.log(recipe["out_dim"])
    is_uniform = all(abs(value - uniform) < UNIFORM * uniform for value in (loss, entropy))
    return {"fate": "uniform" if is_uniform else "not uniform", "loss": loss, "entropy": entropy}


def compare(own, theirs, recipe):
    """The two logs, step by step."""
    steps = [step for step in sorted(own) if step <= len(theirs)]
    apart = {step: abs(own[step][0] - theirs[step - 1][0]) / abs(theirs[step - 1][0]) for step in steps}
    shown = [step for step in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000) if step in apart]

    def row(step):
        (our_loss, our_entropy), (torch_loss, torch_entropy) = own[step], theirs[step - 1]
        return {"step": step, "ours": our_loss, "torch": torch_loss, "relative": apart[step],
                "our_entropy": our_entropy, "torch_entropy": torch_entropy}  # fmt: skip

    until = {str(limit): next((s - 1 for s in steps if apart[s] > limit), steps[-1]) for limit in AGREEMENTS}
    return {
        "steps": [row(step) for step in dict.fromkeys([*shown, steps[-1]])],
        "agree_until": until,
        "ours": fate([own[step] for step in steps], recipe),
        "torch": fate([theirs[step - 1] for step in steps], recipe),
    }


def our_knn(args, recipe):
    k = recipe["knn_k"]
    command = ["eval", "knn", "--weights", str(args.run), "--data", args.data, "--k", str(k), "--json"]
    out, _ = ours(args.binary, *command, *args.our_device).communicate()
    (result,) = [result for result in json.loads(out)["results"] if result["k"] == k]
    return result["top1"]


def report(result):
    trained = f"PyTorch {result['torch_version']} in {result['precision']} on {result['device']}"
    print(f"{result['run']}: {result['steps_trained']} steps, {trained}, {result['torch_seconds']:.0f} s\n")
    print("| step | loss, dino-vmf | loss, PyTorch | difference | entropy, dino-vmf | entropy, PyTorch |")
    print("| ---: |" + " ---: |" * 5)
    for row in result["steps"]:
        losses = f"{row['ours']:.7f} | {row['torch']:.7f} | {row['relative']:.1e}"
        print(f"| {row['step']} | {losses} | {row['our_entropy']:.4f} | {row['torch_entropy']:.4f} |")
    until = ", ".join(f"within {limit} until step {step}" for limit, step in result["agree_until"].items())
    print(f"\nthe losses agree {until}\n")
    print("| | fate | loss, last tenth | entropy, last tenth | kNN |\n| --- | --- | ---: | ---: | ---: |")
    for name, side in (("dino-vmf", "ours"), ("PyTorch", "torch")):
        at_end, accuracy = result[side], result.get(f"{side}_knn")
        print(f"| {name} | {at_end['fate']} | {at_end['loss']:.4f} | {at_end['entropy']:.4f} "
              f"| {'-' if accuracy is None else f'{accuracy:.2f}'} |")  # fmt: skip
    if "our_weights_by_torch_knn" in result:
        print(f"\nln K is {math.log(result['prototypes']):.4f}; our weights in PyTorch's network: "
              f"{result['our_weights_by_torch_knn']:.2f} %")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, help="path of the dino-vmf binary (release build)")
    parser.add_argument("--run", required=True, type=pathlib.Path, help="a finished run, with log_every = 1 at best")
    parser.add_argument("--data", help="the data of the run; by default where it was")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where PyTorch computes")
    parser.add_argument("--precision", choices=sorted(TYPES), help="default: f32 on the CPU, bf16 on a GPU")
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch; 0: as many as it chooses")
    parser.add_argument("--steps", type=int, help="stop after so many, and judge nothing")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all numbers here")
    args = parser.parse_args()
    if not os.access(args.binary, os.X_OK):
        parser.error(f"no program at {args.binary}; build it with `cargo build --release`")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("this PyTorch sees no CUDA device")
    args.precision = args.precision or ("bf16" if args.device == "cuda" else "f32")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    config = args.run / "config.toml"
    recipe, own = Recipe(config), loss_and_entropy(args.run)
    args.data = args.data or recipe.facts["source"]
    args.our_device = ["--device", args.device]
    views_of = ["--data", args.data, "--recipe", str(config)]
    training, log, seconds = train(args, recipe, views_of)
    result = {
        "run": str(args.run),
        "data": args.data,
        "prototypes": recipe["out_dim"],
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "precision": args.precision,
        "torch_version": torch.__version__,
        "torch_seconds": seconds,
        "steps_trained": len(log),
        **compare(own, log, recipe),
        "our_log": [own.get(step + 1) for step in range(len(log))],
        "torch_log": log,
    }
    if len(log) == recipe.steps:
        trained = training.teacher.backbone
        with torch.device(args.device):
            of_run = Network(recipe, 0.0, trained.stream).to(trained.pos_embed.dtype)
        of_run.load(load_file(args.run / "backbone.safetensors"), "backbone.")
        result["torch_knn"], result["our_weights_by_torch_knn"] = judge(
            args, recipe, views_of, [trained, of_run.backbone]
        )
        result["ours_knn"] = our_knn(args, recipe)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    report(result)


if __name__ == "__main__":
    main()
