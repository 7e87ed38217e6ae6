#!/usr/bin/env python3
"""Files of `dino-vmf features` read by other programs, with the tokens that PyTorch gives. Writes nothing.

    python tools/oracle/features_files.py BINARY

Needs: torch, torchvision, timm, safetensors, pillow, numpy, pandas, pyarrow; polars and duckdb are asked too where they
are installed. A small ViT of timm with registers and random weights is saved, and a folder of random pictures, one of
them broken. For every choice of tokens and for each format the command is run; names, labels and classes must be those
of the folder, and features those of timm from the same pixels, to 1e-3 of the largest. Prints the largest difference
of each.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pandas
import pyarrow.parquet
import safetensors
import safetensors.torch
import torch
from PIL import Image
from timm.models.vision_transformer import VisionTransformer
from torchvision import transforms

SIZE, PATCH, WIDTH, DEPTH, REGISTERS = 64, 16, 128, 3, 4
TRANSFORM = transforms.Compose([
    transforms.Resize(73, transforms.InterpolationMode.BICUBIC),
    transforms.CenterCrop(SIZE),
    transforms.ToTensor(),
    transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
])


def network():
    torch.manual_seed(0)
    vit = VisionTransformer(img_size=SIZE, patch_size=PATCH, embed_dim=WIDTH, depth=DEPTH, num_heads=2, num_classes=0,
                            reg_tokens=REGISTERS, no_embed_class=False)
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return vit.eval()


def pictures(folder):
    """Names in the order of the source, and their classes."""
    rng, rows = np.random.default_rng(0), []
    for label, kind in enumerate(["cats, small", "dogs"]):
        (folder / kind).mkdir(parents=True)
        for i in range(5):
            name = f'{i} "é".png' if i == 2 else f"{i}.png"
            shape = (int(rng.integers(40, 120)), int(rng.integers(40, 120)), 3)
            Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(folder / kind / name)
            rows.append((f"{kind}/{name}", label, kind))
    (folder / "dogs" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return sorted(rows)


def expected(vit, folder, rows, tokens, layers, norm):
    pixels = torch.stack([TRANSFORM(Image.open(folder / name).convert("RGB")) for name, _, _ in rows])
    with torch.no_grad():
        outputs = vit.get_intermediate_layers(pixels, n=layers, return_prefix_tokens=True, norm=norm)
    classes = [prefix[:, 0] for _, prefix in outputs]
    patches = outputs[-1][0]
    return {
        "class": torch.cat(classes, 1),
        "mean": patches.mean(1),
        "both": torch.cat(classes + [patches.mean(1)], 1),
        "patches": patches,
    }[tokens].numpy()


def read(path, shape):
    """Features, names, labels, classes and what the file says, by each program that can read it."""
    if path.suffix == ".safetensors":
        with safetensors.safe_open(path, "np") as file:
            said = file.metadata()
            labels = file.get_tensor("labels").tolist()
            kinds = json.loads(said["class_names"])
            yield "safetensors", file.get_tensor("features"), json.loads(said["names"]), labels, [kinds[i] for i in labels], said
    elif path.suffix == ".npy":
        table, said = pandas.read_csv(path.with_suffix(".csv")), json.loads(path.with_suffix(".json").read_text())
        assert table.row.tolist() == list(range(len(table)))
        yield "numpy + pandas", np.load(path), table["name"].tolist(), table.label.tolist(), table["class"].tolist(), said
    else:
        said = {k.decode(): v.decode() for k, v in pyarrow.parquet.read_schema(path).metadata.items()}
        assert json.loads(said["feature_shape"]) == list(shape[1:])
        arrow = pyarrow.parquet.read_table(path)
        assert str(arrow.schema.field("feature").type) == "list<element: float not null>", arrow.schema
        rows = arrow.to_pydict()
        columns = lambda rows: (list(rows["name"]), list(rows["label"]), list(rows["class"]))
        yield "pyarrow", np.array(rows["feature"], np.float32).reshape(shape), *columns(rows), said
        frame = pandas.read_parquet(path)
        yield "pandas", np.stack(frame.feature.to_list()).reshape(shape), *columns(frame), said
        try:
            import polars
            frame = polars.read_parquet(path)
            yield "polars", frame["feature"].list.to_array(frame["feature"].list.len()[0]).to_numpy().reshape(shape), *columns(frame), said
        except ImportError:
            print("polars is not installed")
        try:
            import duckdb
            rows = duckdb.sql(f"select * from read_parquet('{path}')").fetchall()
            features, (names, labels, kinds) = [row[3] for row in rows], list(zip(*[row[:3] for row in rows]))
            yield "duckdb", np.array(features, np.float32).reshape(shape), list(names), list(labels), list(kinds), said
        except ImportError:
            print("duckdb is not installed")


def main():
    binary = sys.argv[1]
    vit, worst = network(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        rows = pictures(folder / "photos")
        safetensors.torch.save_file(vit.state_dict(), folder / "vit.safetensors")
        for tokens, layers, norm in [("class", 1, True), ("class", 3, True), ("class", 1, False), ("mean", 1, True),
                                     ("mean", 1, False), ("both", 1, True), ("both", 2, True), ("patches", 1, True)]:
            want = expected(vit, folder / "photos", rows, tokens, layers, norm)
            for ending in ["safetensors", "npy", "parquet"]:
                path = folder / f"{tokens}-{layers}-{norm}.{ending}"
                subprocess.run([binary, "features", "--weights", folder / "vit.safetensors", "--data", folder / "photos", "--heads", "2",
                                "--tokens", tokens, "--layers", str(layers), "--norm", "after" if norm else "before",
                                "--device", "cpu", "--batch-size", "3", "--out", path], check=True, capture_output=True)
                for who, features, names, labels, kinds, said in read(path, want.shape):
                    assert features.shape == want.shape and features.dtype == np.float32, (who, features.shape, features.dtype)
                    assert list(zip(names, labels, kinds)) == rows, (who, names, labels, kinds)
                    assert (said["tokens"], said["layers"]) == (tokens, str(layers)), said
                    difference = np.abs(features - want).max() / np.abs(want).max()
                    worst = max(worst, difference)
                    print(f"{tokens:8} {layers} {'after' if norm else 'before':6}  {who:15} {want.shape}  {difference:.1e}")
                    assert difference < 1e-3
    print(f"the largest difference is {worst:.1e}")


main()
