#!/usr/bin/env python3
"""Reference attention of timm's ViT-Tiny -> crates/model/tests/fixtures/attention.json

    python tools/oracle/attention_fixture.py

Needs: torch, timm, numpy. Weights and images are the closed forms of vit_hash.py; sizes other than 224 x 224 have DINO's
position embeddings, as in vit_fixtures.py. The tokens go through timm's blocks up to the last, whose attention is
softmax(q k^T / sqrt(d)) of timm's own qkv layer, in f64.

Format:
    cases[]: number   case number c, so that image values are 2 * u(INPUT_STREAM + c, i)
             height, width
             weights  [heads][patches] of the class token of the second of two images
"""

import pathlib

import numpy as np
import timm
import torch

import vit_hash
from vit_fixtures import BATCH, PATCH, interpolated_positions, write

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates/model/tests/fixtures/attention.json"


def attention(model, images):
    height, width = images.shape[2:]
    tokens = model.patch_embed.proj(images).flatten(2).transpose(1, 2)
    tokens = torch.cat((model.cls_token.expand(len(images), -1, -1), tokens), dim=1)
    tokens = tokens + interpolated_positions(model.pos_embed, height // PATCH, width // PATCH)
    for block in model.blocks[:-1]:
        tokens = block(tokens)
    last = model.blocks[-1]
    heads = last.attn.num_heads
    qkv = last.attn.qkv(last.norm1(tokens)).unflatten(2, (3, heads, -1))
    q, k = qkv[:, :, 0].transpose(1, 2), qkv[:, :, 1].transpose(1, 2)
    return (q @ k.transpose(2, 3) * last.attn.scale).softmax(-1)


def main():
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=0).double().eval()
    vit_hash.fill(model)
    cases = []
    for number, (height, width) in enumerate([(224, 224), (96, 160)]):
        shape = (BATCH, 3, height, width)
        pixels = 2.0 * vit_hash.uniform(vit_hash.INPUT_STREAM + number, int(np.prod(shape)))
        with torch.no_grad():
            weights = attention(model, torch.from_numpy(pixels.reshape(shape)))[1, :, 0, 1:]
        rounded = [[float(f"{x:.10e}") for x in head] for head in weights.tolist()]
        cases.append({"number": number, "height": height, "width": width, "weights": rounded})
    write(OUT, {"cases": cases})


if __name__ == "__main__":
    main()
