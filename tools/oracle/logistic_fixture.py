#!/usr/bin/env python3
"""Reference solutions of multinomial logistic regression -> crates/eval/tests/fixtures/logistic.json

    python tools/oracle/logistic_fixture.py

Needs: numpy, scikit-learn. Every problem is solved by scikit-learn to convergence (newton-cholesky, checked by the gradient)
and once more as the transfer protocol does it: L-BFGS, tol 1e-4, max_iter 100, warm-started from weak to strong penalties.

Features are closed forms of vit_hash.uniform, rounded to f32. With C classes and width D:
    class of row i          (7 i + 2) mod C for training, (11 i + 1) mod C for test
    centre of class c       u(20, c D + j)
    training feature i, j   10^(-2 j / D) * (offset + centre + noise * u(21, i D + j))
    test feature i, j       the same with stream 22
The columns' scales differ and their means are not zero on purpose: that is what makes such problems slow.
The case "fewshot" has its rows centred and scaled to unit length afterwards, and no intercept.

Objective: sum of cross-entropies + strength / 2 * |W|^2, which is scikit-learn's divided by C = 1 / strength. Strengths are
torch.logspace(-6, 5, 45) in f32, as the protocol has them.

Format, by case:
    name, train, test, dim, classes, noise, offset, intercept, preprocess
    strengths[]
    objectives[]    the minimum for each strength
    protocol[]      the objective where the protocol stops
    predictions[]   for each strength a string with the class of each test row, "." where two logits are within 1e-3
"""

import json
import pathlib
import warnings

import numpy as np
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

import vit_hash

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "eval" / "tests" / "fixtures" / "logistic.json"
# torch.logspace computes in f32, and so are these.
STRENGTHS = np.logspace(-6, 5, 45, dtype=np.float64).astype(np.float32).astype(np.float64)
CASES = [
    dict(name="overlapping", train=300, test=60, dim=12, classes=5, noise=1.5, offset=1.0, intercept=True),
    dict(name="separable", train=60, test=60, dim=24, classes=6, noise=0.5, offset=1.0, intercept=True),
    dict(name="fewshot", train=40, test=60, dim=30, classes=8, noise=0.9, offset=0.3, intercept=False),
]


def features(case, rows, classes, stream):
    dim = case["dim"]
    centres = vit_hash.uniform(20, case["classes"] * dim).reshape(-1, dim)
    noise = vit_hash.uniform(stream, rows * dim).reshape(rows, dim)
    scales = 10.0 ** (-2.0 * np.arange(dim) / dim)
    values = (scales * (case["offset"] + centres[classes] + case["noise"] * noise)).astype(np.float32).astype(np.float64)
    if case["name"] == "fewshot":
        values = values - values.mean(axis=1, keepdims=True)
        values = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32).astype(np.float64)
    return values


def objective(model, x, y, strength):
    logits = model.decision_function(x)
    loss = (logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]).sum()
    p = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    residual = p - np.eye(logits.shape[1])[y]
    gradient = residual.T @ x + strength * model.coef_
    return loss + 0.5 * strength * (model.coef_**2).sum(), np.abs(gradient).max() / len(y)


def solve(case):
    warnings.simplefilter("ignore")
    y, y_test = (7 * np.arange(case["train"]) + 2) % case["classes"], (11 * np.arange(case["test"]) + 1) % case["classes"]
    x, x_test = features(case, case["train"], y, 21), features(case, case["test"], y_test, 22)
    common = dict(fit_intercept=case["intercept"])
    protocol = LogisticRegression(solver="lbfgs", tol=1e-4, max_iter=100, warm_start=True, **common)
    exact = LogisticRegression(solver="newton-cholesky", tol=1e-11, max_iter=10000, warm_start=True, **common)
    out = dict(case, strengths=STRENGTHS.tolist(), objectives=[], protocol=[], predictions=[])
    for strength in STRENGTHS:
        protocol.set_params(C=1 / strength).fit(x, y)
        out["protocol"].append(objective(protocol, x, y, strength)[0])
    for strength in STRENGTHS[::-1]:
        exact.set_params(C=1 / strength).fit(x, y)
        value, gradient = objective(exact, x, y, strength)
        # f - f* <= |g|^2 / (2 alpha), with everything divided by n.
        bound = gradient**2 * case["dim"] * case["classes"] / (2 * strength / len(y)) * len(y) / value
        assert bound < 1e-8, (case["name"], strength, gradient, bound)
        logits = exact.decision_function(x_test)
        two = np.sort(logits, axis=1)[:, -2:]
        clear = two[:, 1] - two[:, 0] > 1e-3
        text = "".join(str(c) if ok else "." for c, ok in zip(logits.argmax(axis=1), clear))
        out["objectives"].insert(0, value)
        out["predictions"].insert(0, text)
    ratio = np.array(out["protocol"]) / np.array(out["objectives"]) - 1
    print(f"{case['name']:12} protocol above the minimum by {ratio.max():.2e} at most, {np.median(ratio):.2e} in the median")
    return out


def main():
    OUT.write_text(json.dumps([solve(case) for case in CASES], indent=1) + "\n")
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
