#!/usr/bin/env python3
"""A mixture of von Mises-Fisher distributions fitted by EM, by plain means -> crates/vmf/tests/fixtures/mixture.txt

    python tools/oracle/mixture_fixture.py

Needs: numpy, scipy, mpmath. Bessel functions are mpmath's with 40 digits (scipy.special.ive has to agree), concentrations
are roots found by scipy.optimize.brentq, densities are multiplied as they are, without the log domain: another path all
the way.

Points are closed forms of vit_hash.uniform in P = 8 dimensions, 150 of them, divided by their lengths:
    point i, coordinate j    u(20, (i mod 3) P + j) + 0.9 u(21, i P + j)
    mean k where it begins   u(22, k P + j), divided by its length; weights 1/3; kappa 2 + k

Format, for each of {soft, hard} x {free, shared}: a line `fit ASSIGNMENT KAPPA`, then lines `objective` (31 numbers: before
each of 30 M-steps and after the last), `weights`, `kappas` and `means`.
"""

import pathlib

import mpmath
import numpy as np
from scipy.optimize import brentq
from scipy.special import ive

import vit_hash

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "vmf" / "tests" / "fixtures" / "mixture.txt"
P, POINTS, COMPONENTS, STEPS = 8, 150, 3, 30
mpmath.mp.dps = 40


def normalizer(kappa):
    nu = mpmath.mpf(P) / 2 - 1
    value = mpmath.mpf(kappa) ** nu / ((2 * mpmath.pi) ** (nu + 1) * mpmath.besseli(nu, kappa))
    by_scipy = kappa**3 / ((2 * np.pi) ** 4 * ive(3, kappa) * np.exp(kappa))
    assert abs(float(value) / by_scipy - 1) < 1e-12
    return float(value)


def ratio(kappa):
    return float(mpmath.besseli(mpmath.mpf(P) / 2, kappa) / mpmath.besseli(mpmath.mpf(P) / 2 - 1, kappa))


def concentration(length):
    return brentq(lambda kappa: ratio(kappa) - length, 1e-6, 1e4, xtol=1e-13, rtol=1e-14)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def fit(y, hard, shared):
    means = unit(vit_hash.uniform(22, COMPONENTS * P).reshape(COMPONENTS, P))
    weights, kappas = np.full(COMPONENTS, 1 / COMPONENTS), 2.0 + np.arange(COMPONENTS)
    objective = []
    for step in range(STEPS + 1):
        constants = np.array([normalizer(kappa) for kappa in kappas])
        joint = weights * constants * np.exp(kappas * (y @ means.T))
        if hard:
            r = np.eye(COMPONENTS)[joint.argmax(1)]
            objective.append(np.log(joint.max(1)).mean())
        else:
            r = joint / joint.sum(1, keepdims=True)
            objective.append(np.log(joint.sum(1)).mean())
        if step == STEPS:
            return objective, weights, kappas, means
        members, resultants = r.sum(0), r.T @ y
        lengths = np.linalg.norm(resultants, axis=1)
        assert (members > 0).all()
        weights, means = members / len(y), resultants / lengths[:, None]
        if shared:
            kappas = np.full(COMPONENTS, concentration(lengths.sum() / len(y)))
        else:
            kappas = np.array([concentration(l / n) for l, n in zip(lengths, members)])


def main():
    centres = vit_hash.uniform(20, 3 * P).reshape(3, P)
    noise = vit_hash.uniform(21, POINTS * P).reshape(POINTS, P)
    y = unit(centres[np.arange(POINTS) % 3] + 0.9 * noise)
    lines = []
    for hard in (False, True):
        for shared in (False, True):
            lines.append(f"fit {'hard' if hard else 'soft'} {'shared' if shared else 'free'}")
            for name, values in zip(("objective", "weights", "kappas", "means"), fit(y, hard, shared)):
                lines.append(name + " " + " ".join(f"{x:.15g}" for x in np.ravel(values)))
                print(lines[-1][:110])
    OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
