#!/usr/bin/env python3
"""Reference results of `eval::certainty` -> crates/eval/tests/fixtures/certainty.json

    python tools/oracle/certainty.py

Needs: numpy, mpmath, scikit-learn.

A mixture of K prototypes in P dimensions at temperature TAU, all closed forms of vit_hash.uniform rounded to f32:
    direction v_k    u(20, k P + j)
    length g_k       0.02 * 1.45^k, the fourth one negative
    feature x_i      u(21, i P + j) + 2 v_(i mod K), of which y_i = x_i / |x_i|
Densities, entropies and components are sums over all K components with 50 digits, C_p by mpmath's Bessel function.

Scores, judgements and probabilities of IMAGES images:
    score s_i        round(8 u(22, i)) / 8, so that many are equal;  other score: round(8 u(23, i)) / 8 - 0.25
    probability c_i  (1 + u(24, i)) / 2;  right_i: u(25, i) < c_i
The area under the risk-coverage curve is that of NumPy's cumulative sums where no scores are equal (the c_i), and with equal
ones (the first nine s_i) the mean over all orders of equals, each written out. The ROC curve is scikit-learn's.

Format: k, p, tau, images; vmf[] and plain[]: log_density, entropy, component, kappa of each feature; aurc, excess (of c_i),
aurc_tied (of the first nine s_i), ece (of c_i, 15 ranges), auroc (of s_i and the other scores).
"""

import itertools
import json
import pathlib

import mpmath
import numpy as np
from sklearn.metrics import roc_auc_score

import vit_hash

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "eval" / "tests" / "fixtures" / "certainty.json"
K, P, TAU, FEATURES, IMAGES, TIED = 18, 16, 0.07, 24, 300, 9
mpmath.mp.dps = 50


def f32(values):
    return np.asarray(values).astype(np.float32).astype(np.float64)


def mixture():
    directions = f32(vit_hash.uniform(20, K * P)).reshape(K, P)
    lengths = f32(0.02 * 1.45 ** np.arange(K))
    lengths[3] = -lengths[3]
    noise = vit_hash.uniform(21, FEATURES * P).reshape(FEATURES, P)
    return directions, lengths, f32(noise + 2 * directions[np.arange(FEATURES) % K])


def unit(row):
    row = [mpmath.mpf(x) for x in row]
    norm = mpmath.sqrt(sum(x * x for x in row))
    return [x / norm for x in row]


def log_normalizer(kappa):
    nu = mpmath.mpf(P) / 2 - 1
    return nu * mpmath.log(kappa) - (nu + 1) * mpmath.log(2 * mpmath.pi) - mpmath.log(mpmath.besseli(nu, kappa))


def described(is_vmf):
    directions, lengths, features = mixture()
    means, rows = [unit(v) for v in directions], []
    for x in features:
        y, terms = unit(x), []
        for mu, g in zip(means, lengths):
            kappa = abs(mpmath.mpf(g)) / mpmath.mpf(TAU)
            cosine = sum(a * b for a, b in zip(mu, y)) * mpmath.sign(g)
            terms.append(kappa * cosine + (log_normalizer(kappa) if is_vmf else 0) - mpmath.log(K))
        largest = max(terms)
        log_p = largest + mpmath.log(sum(mpmath.exp(t - largest) for t in terms))
        entropy = -sum(mpmath.exp(t - log_p) * (t - log_p) for t in terms)
        best = terms.index(largest)
        second = sorted(terms)[-2]
        assert largest - second > 1e-6, "two components are too close"
        rows.append({"log_density": float(log_p), "entropy": float(entropy), "component": best,
                     "kappa": float(abs(lengths[best]) / TAU)})
    return rows


def aurc(wrong_in_order):
    wrong = np.asarray(wrong_in_order, dtype=np.float64)
    return float(np.mean(np.cumsum(wrong) / np.arange(1, len(wrong) + 1)))


def aurc_tied(scores, wrong):
    order = np.argsort(-scores, kind="stable")
    groups = [list(group) for _, group in itertools.groupby(order, key=lambda i: scores[i])]
    orders = itertools.product(*(itertools.permutations(group) for group in groups))
    return float(np.mean([aurc(wrong[list(itertools.chain(*one))]) for one in orders]))


def ece(probabilities, right, bins=15):
    edges = np.linspace(0, 1, bins + 1)
    bin_of = np.digitize(probabilities, edges, right=True) - 1
    total = 0.0
    for b in range(bins):
        members = bin_of == b
        if members.any():
            total += members.mean() * abs(right[members].mean() - probabilities[members].mean())
    return float(total)


def main():
    quantised = lambda stream: np.round(8 * vit_hash.uniform(stream, IMAGES)) / 8
    scores, other = quantised(22), quantised(23) - 0.25
    probabilities = (1 + vit_hash.uniform(24, IMAGES)) / 2
    right = vit_hash.uniform(25, IMAGES) < probabilities
    assert len(np.unique(probabilities)) == IMAGES and len(np.unique(scores[:TIED])) < TIED
    by_probability = aurc(~right[np.argsort(-probabilities)])
    result = {
        "k": K, "p": P, "tau": TAU, "features": FEATURES, "images": IMAGES, "tied": TIED,
        "vmf": described(True), "plain": described(False),
        "aurc": by_probability, "excess": by_probability - aurc(np.sort(~right)),
        "aurc_tied": aurc_tied(scores[:TIED], ~right[:TIED]),
        "ece": ece(probabilities, right),
        "auroc": float(roc_auc_score(np.r_[np.ones(IMAGES), np.zeros(IMAGES)], np.r_[scores, other])),
    }
    OUT.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{OUT}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
