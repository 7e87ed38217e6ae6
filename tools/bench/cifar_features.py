"""Features of CIFAR-10 without a trained network, for benchmarks and checks of classifiers, and the file format of stored features.

96 patches of 6 x 6 pixels are cut out of training images, centred and scaled; an image's responses to them, less a threshold and
no less than zero, are averaged over its four quarters: 384 values, with which a linear classifier reaches about 59 %.
"""

import io
import json
import struct

import numpy as np


def images(path, rows=None):
    import pyarrow.parquet
    from PIL import Image

    table = pyarrow.parquet.read_table(path).slice(0, rows)
    pixels = [np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in table["img"].to_pylist()]
    return np.stack(pixels), np.array(table["label"].to_pylist())


def compute(folder, train_rows=None, test_rows=None):
    """Training features and labels, then those of the test images, of a folder with train.parquet and test.parquet: all of
    them, or the first so many. The patches are those of the first 5,000 training images in any case."""
    import torch
    from torch.nn import functional

    def prepared(pixels):
        return (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25

    train, train_labels = images(f"{folder}/train.parquet", train_rows and max(train_rows, 5000))
    test, test_labels = images(f"{folder}/test.parquet", test_rows)
    draw = torch.Generator().manual_seed(0)
    first = prepared(train[:5000])
    train, train_labels = train[:train_rows], train_labels[:train_rows]
    patches = []
    for index in torch.randint(0, len(first), (96,), generator=draw).tolist():
        top, left = torch.randint(0, 26, (2,), generator=draw).tolist()
        patch = first[index, :, top : top + 6, left : left + 6]
        patches.append((patch - patch.mean()) / (patch - patch.mean()).norm())
    filters = torch.stack(patches)

    def averaged(part):
        # The responses of a thousand images take 280 MB: only their averages are kept.
        return functional.adaptive_avg_pool2d(functional.relu(functional.conv2d(part, filters) - 0.5), 2).flatten(1)

    def features(pixels):
        return torch.cat([averaged(prepared(part)) for part in np.array_split(pixels, -(-len(pixels) // 1000))]).numpy()

    return features(train), train_labels, features(test), test_labels


def save(path, features, labels):
    """Writes features as `dino-vmf features` does, without names."""
    features, labels = features.astype("<f4"), labels.astype("<i8")
    tensors = {
        "labels": {"dtype": "I64", "shape": list(labels.shape), "data_offsets": [0, labels.nbytes]},
        "features": {
            "dtype": "F32",
            "shape": list(features.shape),
            "data_offsets": [labels.nbytes, labels.nbytes + features.nbytes],
        },
    }
    header = json.dumps({"__metadata__": {"format": "dino-vmf features"}, **tensors}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + labels.tobytes() + features.tobytes())
