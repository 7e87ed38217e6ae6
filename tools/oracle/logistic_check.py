#!/usr/bin/env python3
"""Compares `eval transfer` and `eval fewshot` with scikit-learn on features of CIFAR-10. Writes nothing.

    python tools/oracle/logistic_check.py BINARY CIFAR_FOLDER [--rows 4000] [--every 1] [--solver newton-cholesky]

Needs: numpy, scikit-learn, pyarrow, torch, pillow. The features are those of tools/bench/cifar_features.py.

Transfer: with `--select holdout --validation` the objective of every strength is that of a fit to the training features, and the
validation accuracy that of its predictions for 2,000 other images. scikit-learn solves the same to convergence in
f64 (newton-cholesky, or another --solver: newton-cg takes hours for the weaker half), or only every so many strengths. Printed: the largest relative difference of the objectives, and the largest difference of accuracies in images.
Few-shot: row-centred, row-normalised, C = 1 / 0.075, no intercept, on all rows (--percent 100). Printed: both accuracies.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import cifar_features


def objective(model, x, y, strength):
    logits = model.decision_function(x)
    loss = (logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]).sum()
    return loss + 0.5 * strength * (model.coef_**2).sum()


def unit_rows(x):
    x = x - x.mean(axis=1, keepdims=True)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("data")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--solver", default="newton-cholesky")
    args = parser.parse_args()
    x, y, x_test, y_test = cifar_features.compute(args.data, args.rows, 2000)
    with tempfile.TemporaryDirectory() as folder:
        train, test = f"{folder}/train.safetensors", f"{folder}/test.safetensors"
        cifar_features.save(train, x, y)
        cifar_features.save(test, x_test, y_test)

        def run(*more):
            return json.loads(subprocess.run([args.binary, "eval", *more, "--json"], check=True, capture_output=True).stdout)

        sets = ["--train", train, "--test", test]
        transfer = run("transfer", *sets, "--validation", test, "--select", "holdout")
        fewshot = run("fewshot", *sets, "--percent", "100", "--splits", "1")
    wide, wide_test = x.astype(np.float64), x_test.astype(np.float64)
    few = LogisticRegression(C=1 / 0.075, fit_intercept=False, tol=1e-8, max_iter=10000)
    few.fit(unit_rows(wide), y)
    print(f"few-shot: ours {fewshot['top1']:.2f} %, scikit-learn {100 * few.score(unit_rows(wide_test), y_test):.2f} %")
    model = LogisticRegression(solver=args.solver, tol=1e-8, max_iter=1000, warm_start=True)
    worst, most = 0.0, 0.0
    for score in transfer["validation"][:: -args.every]:
        model.set_params(C=1 / score["strength"]).fit(wide, y)
        want = objective(model, wide, y, score["strength"])
        right = (model.predict(wide_test) == y_test).sum()
        difference, images = score["objective"] / want - 1, abs(right - score["top1"] * len(y_test) / 100)
        worst, most = max(worst, abs(difference)), max(most, images)
        print(f"{score['strength']:9.3g}: objective {score['objective']:.6f}, {difference:+.1e}; {images:.0f} images differ", flush=True)
    print(f"largest: {worst:.1e} of the objective, {most:.0f} of {len(y_test)} images")


if __name__ == "__main__":
    main()
