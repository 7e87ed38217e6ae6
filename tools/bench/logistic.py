#!/usr/bin/env python3
"""Times the transfer protocol (strengths x 5 folds of logistic regression) against scikit-learn, in one run.

    cargo build --release
    python tools/bench/logistic.py --binary target/release/dino-vmf --data cifar10 [--threads 2] [--strengths 45] [--folds 5]

Needs: scikit-learn, pyarrow, torch, pillow. --data is a folder with CIFAR-10's train.parquet and test.parquet. The features are
those of cifar_features.py, 50,000 x 384 in f32 for both sides.

scikit-learn: for every fold LogisticRegression(tol=1e-4, max_iter=100, warm_start=True) along the strengths, as the protocol has
it; its L-BFGS stops after 100 steps wherever that is. Ours: `eval transfer`, to the minimum. With --folds F scikit-learn fits
only F of the five folds and its time is multiplied by 5 / F; with --strengths N both sides take N of the 45, evenly spaced.
Both run on the same threads, one after the other; wall and processor seconds are printed, with their ratios.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--strengths", type=int, default=45)
    parser.add_argument("--folds", type=int, default=5)
    return parser.parse_args()


def ours(args, folder, strengths):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [args.binary, "eval", "transfer", "--train", folder / "train.safetensors", "--test", folder / "test.safetensors"]
    command += ["--threads", str(args.threads), "--strengths", ",".join(repr(float(s)) for s in strengths), "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return result, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    args = arguments()
    # Before NumPy is loaded, which reads these once.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(args.threads)
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import warnings

    import cifar_features
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    warnings.simplefilter("ignore")
    x, y, x_test, y_test = cifar_features.compute(args.data)
    every = np.logspace(-6, 5, 45).astype(np.float32).astype(float)
    strengths = every[np.linspace(0, 44, args.strengths).round().astype(int)]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        cifar_features.save(folder / "train.safetensors", x, y)
        cifar_features.save(folder / "test.safetensors", x_test, y_test)
        result, our_cpu = ours(args, folder, strengths)
    accuracy = {round(v["strength"], 9): v["top1"] for v in result["validation"]}
    print(f"ours: {result['seconds']:.1f} s, {our_cpu:.1f} s of processors, {result['fits']} fits, "
          f"{result['converged']} at the minimum, test top-1 {result['top1']:.2f} % at {result['best_strength']:.3g}", flush=True)
    wall, cpu, steps, correct = time.perf_counter(), time.process_time(), 0, np.zeros(len(strengths))
    rows = 0
    splits = list(StratifiedKFold(5, shuffle=True, random_state=0).split(x, y))[: args.folds]
    for train, held_out in splits:
        model = LogisticRegression(tol=1e-4, max_iter=100, warm_start=True)
        rows += len(held_out)
        for i, strength in enumerate(strengths):
            model.set_params(C=1 / strength).fit(x[train], y[train])
            steps += int(model.n_iter_[0])
            correct[i] += (model.predict(x[held_out]) == y[held_out]).sum()
            print(f"  {strength:9.3g}: {int(model.n_iter_[0])} steps, held-out {100 * correct[i] / rows:.2f} %, "
                  f"ours {accuracy.get(round(float(strength), 9), float('nan')):.2f} %, {time.perf_counter() - wall:.0f} s", flush=True)
    scale = 5 / len(splits)
    wall, cpu = scale * (time.perf_counter() - wall), scale * (time.process_time() - cpu)
    of = "" if scale == 1 else f" ({len(splits)} of 5 folds, times {scale:g})"
    print(f"scikit-learn: {wall:.1f} s, {cpu:.1f} s of processors{of}, {scale * steps:.0f} steps")
    print(f"ratio: {wall / result['seconds']:.1f} in wall time, {cpu / our_cpu:.1f} in processor time; ours with the last fit on all images")


if __name__ == "__main__":
    main()
