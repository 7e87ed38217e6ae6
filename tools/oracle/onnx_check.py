#!/usr/bin/env python3
"""Checks ONNX files with the onnx package and onnxruntime.

    python tools/oracle/onnx_check.py FILE.onnx...
    python tools/oracle/onnx_check.py --write FILE.onnx...      keeps what onnxruntime gives in FILE.json

Needs: onnx, onnxruntime, numpy. Each file must pass onnx.checker with full_check (types and shapes are inferred and
compared with what the file says), and give outputs of the shapes it declares for batches of 1 and 7 images. The pixels
are closed forms (vit_hash.py): 2 u(INPUT_STREAM, i), so the first image of both batches is the same and must give the
same. Where FILE.json is beside a file, the outputs must be those, to 1e-5 of the largest.

Format of the JSON: {"file": {"bytes", "fnv1a"}, "onnxruntime": version, "batches": {"1", "7": {output: [numbers]}}}. The
digest is 64-bit FNV-1a of the whole file, so that a reader can tell that it is the very file that gave the numbers.
"""

import argparse
import json
import pathlib
import re

import numpy as np
import onnx
import onnxruntime

import vit_hash

BATCHES = (1, 7)
TOLERANCE = 1e-5


def pixels(batch, sides):
    shape = (batch, *sides)
    return (2.0 * vit_hash.uniform(vit_hash.INPUT_STREAM, int(np.prod(shape)))).astype(np.float32).reshape(shape)


def fnv1a(data):
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{digest:016x}"


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(runtime, batch):
    """{output name: array} for a batch of closed-form images."""
    (image,) = runtime.get_inputs()
    outputs = runtime.get_outputs()
    values = runtime.run(None, {image.name: pixels(batch, image.shape[1:])})
    for output, value in zip(outputs, values):
        assert list(value.shape) == [batch, *output.shape[1:]], f"{output.name}: {value.shape}, not {output.shape}"
        assert np.isfinite(value).all(), f"{output.name} is not finite"
    return {output.name: value for output, value in zip(outputs, values)}


def difference(found, expected):
    """Largest difference, relative to the largest value."""
    found, expected = np.asarray(found, np.float64).ravel(), np.asarray(expected, np.float64).ravel()
    assert found.shape == expected.shape, f"{found.size} numbers, not {expected.size}"
    return float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))


def write(path, fixture):
    """JSON with one list of numbers per line, to nine digits: those of single precision."""
    text = json.dumps(fixture, indent=1)
    number = lambda match: f"{float(match[0]):.9g}"
    line = lambda match: "[" + re.sub(r"-?\d[-+.e\d]*", number, " ".join(match[1].split())) + "]"
    path.write_text(re.sub(r"\[([-+.,e\d\s]+)\]", line, text) + "\n", encoding="utf-8")
    print(f"wrote {path}: {path.stat().st_size} bytes")


def check(path, keep):
    data = path.read_bytes()
    model = onnx.load_model_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    about = {entry.key: entry.value for entry in model.metadata_props}
    print(f"{path}: {len(data)} bytes, opset {model.opset_import[0].version}, {len(model.graph.node)} nodes, {about}")
    runtime = session(path)
    results = {batch: run(runtime, batch) for batch in BATCHES}
    for name, one in results[1].items():
        same = difference(results[7][name][:1], one)
        print(f"  {name} {list(one.shape)}: {one.ravel()[:4]} ..., alone and in a batch of seven {same:.1e}")
        assert same < TOLERANCE
    beside = path.with_suffix(".json")
    if keep:
        batches = {str(batch): {name: value.ravel().tolist() for name, value in outputs.items()}
                   for batch, outputs in results.items()}
        file = {"bytes": len(data), "fnv1a": fnv1a(data)}
        write(beside, {"file": file, "onnxruntime": onnxruntime.__version__, "batches": batches})
    elif beside.exists():
        expected = json.loads(beside.read_text(encoding="utf-8"))["batches"]
        for batch, outputs in results.items():
            for name, value in outputs.items():
                error = difference(value, expected[str(batch)][name])
                print(f"  {name}, batch {batch}: {error:.1e} from {beside.name}")
                assert error < TOLERANCE


def main():
    parser = argparse.ArgumentParser(description="Checks ONNX files with onnx.checker and onnxruntime.")
    parser.add_argument("--write", action="store_true", help="keep what onnxruntime gives beside each file")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    for path in arguments.files:
        check(path, arguments.write)


if __name__ == "__main__":
    main()
