#!/usr/bin/env python3
"""Exports a network in every format and runs it in the programs that the formats are for.

    python tools/oracle/export_check.py BINARY WEIGHTS [WEIGHTS ...]

For each WEIGHTS (a run, a file, a folder): `BINARY export` to dino, timm, hf and onnx; then from the same pixels the
features of `BINARY features`, of timm (`local-dir:` and `checkpoint_path=`), of transformers (`from_pretrained`), and of
onnxruntime for batches of 1 and 7, with `onnx.checker`. No key may be missing or unexpected. Prints the largest relative
difference for each, and fails above 1e-5. Exports of the exports must have the same bits.

Needs: torch, timm, transformers, safetensors, onnx, onnxruntime, numpy, Pillow.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
import timm
import torch
import transformers
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

TOLERANCE = 1e-5


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def difference(ours, theirs):
    ours, theirs = torch.as_tensor(ours), torch.as_tensor(theirs)
    return ((ours - theirs).norm(dim=-1) / ours.norm(dim=-1)).max().item()


def check(binary, weights):
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        dino, timm_folder, hf, graph = (folder / name for name in ("w.safetensors", "timm", "hf", "w.onnx"))
        for target, out in [("dino", dino), ("timm", timm_folder), ("hf", hf), ("onnx", graph)]:
            run(binary, "export", "--weights", weights, "--to", target, "--out", out)
        said = safe_open(dino, "pt").metadata()
        height, width = map(int, said["image_size"].split("x"))
        mean, std = (torch.tensor(json.loads(said[key])) for key in ("mean", "std"))

        # Seven images whose pixels the program leaves as they are: 256/224 of the size, of which it takes the centre.
        (folder / "images").mkdir()
        random = np.random.default_rng(0)
        batch = []
        for i in range(7):
            if said["image_part"] == "whole":
                pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
                seen = pixels
            else:
                full = (round(height * 256 / 224), round(width * 256 / 224))
                pixels = random.integers(0, 256, (*full, 3), dtype=np.uint8)
                top, left = round((full[0] - height) / 2), round((full[1] - width) / 2)
                seen = pixels[top : top + height, left : left + width]
            Image.fromarray(pixels).save(folder / "images" / f"{i}.png")
            batch.append(((torch.from_numpy(seen.copy()).float() / 255 - mean) / std).permute(2, 0, 1))
        batch = torch.stack(batch)
        run(binary, "features", "--weights", weights, "--data", folder / "images", "--out", folder / "f.npy", "--device", "cpu")
        ours = np.load(folder / "f.npy")

        with torch.no_grad():
            network = timm.create_model(f"local-dir:{timm_folder}", pretrained=True).eval()
            network.load_state_dict(load_file(timm_folder / "model.safetensors"), strict=True)
            results["timm local-dir"] = difference(ours, network(batch))
            arguments = json.loads((timm_folder / "config.json").read_text())["model_args"]
            network = timm.create_model(
                "vit_small_patch16_224", checkpoint_path=str(timm_folder / "model.safetensors"), **arguments
            )
            results["timm checkpoint_path"] = difference(ours, network.eval()(batch))

            name = json.loads((hf / "config.json").read_text())["architectures"][0]
            extra = {"add_pooling_layer": False} if name == "ViTModel" else {}
            network, info = getattr(transformers, name).from_pretrained(hf, output_loading_info=True, **extra)
            assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
            results[name] = difference(ours, network.eval()(batch).last_hidden_state[:, 0])
            images = [Image.open(folder / "images" / f"{i}.png") for i in range(7)]
            processor = transformers.AutoImageProcessor.from_pretrained(hf)
            seen = processor(images, return_tensors="pt")["pixel_values"]
            if said["image_part"] == "whole" or height == width:
                results["image processor"] = ((seen - batch).norm() / batch.norm()).item()

        onnx.checker.check_model(onnx.load(graph), full_check=True)
        session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
        outputs = [output.name for output in session.get_outputs()]
        for count in (1, 7):
            values = dict(zip(outputs, session.run(outputs, {"pixels": batch[:count].numpy()})))
            results[f"onnxruntime {count}"] = difference(ours[:count], values["class"])
            assert all(np.isfinite(value).all() for value in values.values())
        results["outputs"] = outputs

        # A round trip through each format.
        for name, source in [("dino", dino), ("timm", timm_folder), ("hf", hf)]:
            again = folder / f"again-{name}.safetensors"
            heads = ["--attention-heads", said["heads"]]
            run(binary, "export", "--weights", source, "--to", "dino", "--out", again, *heads)
            first, second = load_file(dino), load_file(again)
            assert all(torch.equal(first[key].view(torch.int32), second[key].view(torch.int32)) for key in first), name
    return results


def main():
    binary, *all_weights = sys.argv[1:]
    worst = 0.0
    for weights in all_weights:
        results = check(binary, weights)
        print(pathlib.Path(weights).name, end=": ")
        print(", ".join(f"{key} {value:.1e}" if isinstance(value, float) else f"{key} {value}" for key, value in results.items()))
        worst = max([worst] + [value for value in results.values() if isinstance(value, float)])
    print(f"largest relative difference: {worst:.1e}")
    sys.exit(worst > TOLERANCE)


if __name__ == "__main__":
    main()
