#!/usr/bin/env python3
"""Reference values of the map of features -> crates/eval/tests/fixtures/map.json

    python tools/oracle/map_fixture.py

Needs: numpy, scikit-learn. Exact t-SNE of scikit-learn on unit vectors, from its own start by principal components.

Features are closed forms of vit_hash.uniform, rounded to f32 and then scaled to unit length:
    feature i, value j      u(20, (i mod C) D + j) + NOISE * u(21, i D + j)

Format:
    rows, dim, classes, noise, perplexity
    affinities[]         p_ij of the first rows with all others, row by row
    places[], kl         places of the embedding, and the divergence that scikit-learn computes for it
    trustworthiness      of it, with 5 neighbours
"""

import json
import pathlib

import numpy as np
from scipy.spatial.distance import squareform
from sklearn.manifold import TSNE, trustworthiness
from sklearn.manifold._t_sne import _joint_probabilities
from sklearn.metrics import pairwise_distances

import vit_hash

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "eval" / "tests" / "fixtures" / "map.json"
ROWS, DIM, CLASSES, NOISE, PERPLEXITY = 140, 10, 6, 1.1, 20.0
LISTED = 3


def features():
    centres = vit_hash.uniform(20, CLASSES * DIM).reshape(CLASSES, DIM)
    noise = vit_hash.uniform(21, ROWS * DIM).reshape(ROWS, DIM)
    values = (centres[np.arange(ROWS) % CLASSES] + NOISE * noise).astype(np.float32).astype(np.float64)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def main():
    x = features()
    squared = pairwise_distances(x, metric="euclidean", squared=True)
    p = squareform(_joint_probabilities(squared, PERPLEXITY, verbose=0))
    tsne = TSNE(perplexity=PERPLEXITY, method="exact", init="pca", random_state=0, max_iter=1000)
    places = tsne.fit_transform(x)
    result = {
        "rows": ROWS, "dim": DIM, "classes": CLASSES, "noise": NOISE, "perplexity": PERPLEXITY,
        "affinities": [float(f"{v:.7e}") for v in p[:LISTED].ravel()],
        "places": [round(float(v), 4) for v in places.ravel()],
        "kl": float(tsne.kl_divergence_),
        "trustworthiness": float(trustworthiness(x, places, n_neighbors=5)),
    }
    OUT.write_text(json.dumps(result) + "\n")
    print(OUT.name, OUT.stat().st_size, "bytes, KL", result["kl"], "trustworthiness", result["trustworthiness"])


if __name__ == "__main__":
    main()
