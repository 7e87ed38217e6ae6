#!/usr/bin/env python3
"""Reference results of the weighted kNN classifier -> crates/eval/tests/fixtures/knn.json

    python tools/oracle/knn_fixture.py

Needs: numpy, scikit-learn. Everything is a brute-force sort in f64; scikit-learn's own classifier has to agree on top-1.

Features are closed forms of vit_hash.uniform, rounded to f32. With C classes and width D:
    class of row i          (5 i + 2) mod C for training, (3 i + 1) mod C for test
    centre of class c       u(10, c D + j)
    training feature i      (1 + 0.5 u(11, i)) * (centre + NOISE * u(12, i D + j))
    test feature i          the same with streams 13 and 14
Rows have different lengths on purpose: only their directions may count.

Rule: cosine; the k largest (ties: lower row); weight exp(cosine / temperature); score of a class = sum of its weights; the
best class (ties: lower class) for top-1 and the best min(5, k) classes for top-5, classes without a vote having score 0.

Format:
    train, test, dim, classes, noise, temperature
    results[], leave_one_out[]   k, and how many test rows are right: top1, top5
    neighbors[]                  for the first test rows: rows[], the 10 nearest, and cosines[]
"""

import json
import pathlib

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

import vit_hash

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "eval" / "tests" / "fixtures" / "knn.json"
TRAIN, TEST, DIM, CLASSES, NOISE, TEMPERATURE = 220, 130, 12, 9, 1.25, 0.07
KS = (1, 2, 5, 10, 20, 100)


def features(rows, classes, length_stream, noise_stream):
    centres = vit_hash.uniform(10, CLASSES * DIM).reshape(CLASSES, DIM)
    noise = vit_hash.uniform(noise_stream, rows * DIM).reshape(rows, DIM)
    lengths = 1 + 0.5 * vit_hash.uniform(length_stream, rows)
    values = lengths[:, None] * (centres[classes] + NOISE * noise)
    return values.astype(np.float32).astype(np.float64)


def cosines(test, train):
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit(test) @ unit(train).T


def count_right(similarity, train_classes, test_classes, k):
    """Rows whose class is the best, and among the best min(5, k)."""
    top1 = top5 = 0
    for row, right in zip(similarity, test_classes):
        nearest = np.lexsort((np.arange(len(row)), -row))[:k]
        scores = np.zeros(CLASSES)
        np.add.at(scores, train_classes[nearest], np.exp(row[nearest] / TEMPERATURE))
        ranked = np.lexsort((np.arange(CLASSES), -scores))
        voted = np.sort(scores[scores > 0])
        assert np.all(np.diff(voted) > 1e-5 * voted[1:]), "two classes are too close for f32: choose another NOISE"
        top1 += int(ranked[0] == right)
        top5 += int(right in ranked[: min(5, k)])
    return top1, top5


def main():
    train_classes = (5 * np.arange(TRAIN) + 2) % CLASSES
    test_classes = (3 * np.arange(TEST) + 1) % CLASSES
    train, test = features(TRAIN, train_classes, 11, 12), features(TEST, test_classes, 13, 14)
    similarity, own = cosines(test, train), cosines(train, train)
    np.fill_diagonal(own, -np.inf)
    results, leave_one_out = [], []
    for k in KS:
        top1, top5 = count_right(similarity, train_classes, test_classes, k)
        theirs = KNeighborsClassifier(
            n_neighbors=k, metric="cosine", algorithm="brute", weights=lambda d: np.exp((1 - d) / TEMPERATURE)
        ).fit(train, train_classes)
        assert int((theirs.predict(test) == test_classes).sum()) == top1, "scikit-learn disagrees"
        results.append({"k": k, "top1": top1, "top5": top5})
        top1, top5 = count_right(own, train_classes, train_classes, k)
        leave_one_out.append({"k": k, "top1": top1, "top5": top5})
        print(f"k {k}: {results[-1]} of {TEST}, leave one out {leave_one_out[-1]} of {TRAIN}")
    nearest = [np.argsort(-row)[:10] for row in similarity[:4]]
    gaps = [np.diff(np.sort(-row)[:12]).min() for row in similarity]
    print(f"smallest gap between neighbours: {min(gaps):.1e}")
    fixture = {
        "train": TRAIN,
        "test": TEST,
        "dim": DIM,
        "classes": CLASSES,
        "noise": NOISE,
        "temperature": TEMPERATURE,
        "results": results,
        "leave_one_out": leave_one_out,
        "neighbors": [
            {"rows": rows.tolist(), "cosines": [float(f"{x:.12g}") for x in similarity[i][rows]]}
            for i, rows in enumerate(nearest)
        ],
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(fixture, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {OUT.name}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
