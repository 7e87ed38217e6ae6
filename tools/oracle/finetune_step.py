"""Writes crates/eval/tests/fixtures/finetune_step.json: three optimiser steps of both fine-tuning recipes with timm and PyTorch.

    python tools/oracle/finetune_step.py

Needs torch, timm and numpy (made with torch 2.15.0, timm 1.0.31). The network is timm's ViT, tiny (8 wide, 3 blocks, 2 heads,
MLP of 16, patches of 4 of images of 8 x 8, 5 classes), in f64. Weights, images, labels and the branches that drop path takes
are closed forms (vit_hash.py), so the fixture carries only results:

    weights   parameter q of vit_hash.parameter_names, then head.weight and head.bias, by vit_hash.parameter_values
    images    of step s: 2 u(INPUT_STREAM + s, i), six of them
    targets   timm's mixup_target of the labels (i + s) mod 5 with lambda = LAMBDAS[s] and a smoothing of 0.1
    drop path branch b of block k of image i in step s is skipped where u(4000000 + s, 6 i + 2 k + b) < -0.6; never in block 0

beit: AdamW with BEiT's layers (0 for tokens, positions and patches, i + 1 for block i, the last for norm and head; timm's own
param_groups_layer_decay has a layer more), a decay of 0.65 between them, positions and class token not decayed.
deit: AdamW with the groups of timm's param_groups_weight_decay, without a list of exceptions, as for iBOT's network.

    losses       of the three steps
    gradients    {name: [norm, projection on u(PROJECTION_STREAM + q)]} of the first step
    updates      the same of what three steps have added to the weights
"""

import json
import pathlib

import numpy as np
import timm.data.mixup
import timm.loss
import timm.optim
import torch
from timm.models.vision_transformer import VisionTransformer

import vit_hash

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates/eval/tests/fixtures/finetune_step.json"
DEPTH, IMAGES, CLASSES, RATE, DECAY = 3, 6, 5, 0.2, 0.65
RATES, LAMBDAS = [1e-3, 2e-3, 5e-4], [0.3, 1.0, 0.85]
BRANCH_STREAM = 4_000_000


class GivenDropPath(torch.nn.Module):
    def __init__(self, block, branch):
        super().__init__()
        self.block, self.branch, self.step = block, branch, 0
        self.keep = 1.0 - torch.linspace(0, RATE, DEPTH)[block].item()

    def forward(self, x):
        drawn = vit_hash.uniform(BRANCH_STREAM + self.step, IMAGES * DEPTH * 2)
        own = drawn.reshape(IMAGES, DEPTH, 2)[:, self.block, self.branch]
        taken = torch.from_numpy((own >= -0.6) | (self.block == 0)).to(x.dtype)
        return x * (taken / self.keep)[:, None, None]


def network():
    model = VisionTransformer(
        img_size=8, patch_size=4, num_classes=CLASSES, embed_dim=8, depth=DEPTH, num_heads=2, mlp_ratio=2.0
    ).double()
    assert model.norm.eps == 1e-6
    names = vit_hash.parameter_names(DEPTH) + ["head.weight", "head.bias"]
    parameters = dict(model.named_parameters())
    assert list(parameters) == names
    with torch.no_grad():
        for q, name in enumerate(names):
            values = vit_hash.parameter_values(name, q, tuple(parameters[name].shape))
            parameters[name].copy_(torch.from_numpy(values))
    for k, block in enumerate(model.blocks):
        block.drop_path1, block.drop_path2 = GivenDropPath(k, 0), GivenDropPath(k, 1)
    return model.train(), names


def groups(model, recipe):
    if recipe == "deit":
        return timm.optim.param_groups_weight_decay(model, 0.05)
    found = []
    for name, parameter in model.named_parameters():
        layer = int(name.split(".")[1]) + 1 if name.startswith("blocks.") else 0
        layer = DEPTH + 1 if name.startswith(("norm", "head")) else layer
        kept = parameter.ndim == 1 or name in model.no_weight_decay()
        group = {"params": [parameter], "lr_scale": DECAY ** (DEPTH + 1 - layer)}
        found.append(group | {"weight_decay": 0.0 if kept else 0.05})
    return found


def summary(values, q):
    flat = values.detach().double().flatten().numpy()
    return [float(np.linalg.norm(flat)), float(flat @ vit_hash.uniform(vit_hash.PROJECTION_STREAM + q, flat.size))]


def run(recipe):
    model, names = network()
    begun = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(groups(model, recipe), lr=1.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05)
    losses, gradients = [], {}
    for step, (lr, lam) in enumerate(zip(RATES, LAMBDAS)):
        for block in model.blocks:
            block.drop_path1.step = block.drop_path2.step = step
        pixels = 2.0 * vit_hash.uniform(vit_hash.INPUT_STREAM + step, IMAGES * 3 * 8 * 8)
        images = torch.from_numpy(pixels.reshape(IMAGES, 3, 8, 8))
        labels = (torch.arange(IMAGES) + step) % CLASSES
        torch.set_default_dtype(torch.float64)
        targets = timm.data.mixup.mixup_target(labels, CLASSES, lam, 0.1)
        torch.set_default_dtype(torch.float32)
        loss = timm.loss.SoftTargetCrossEntropy()(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = {name: summary(p.grad, q) for q, (name, p) in enumerate(model.named_parameters())}
        for group in optimizer.param_groups:
            group["lr"] = lr * group.get("lr_scale", 1.0)
        optimizer.step()
        losses.append(loss.item())
    updates = {n: summary(p - begun[n], q) for q, (n, p) in enumerate(model.named_parameters())}
    print(recipe, losses)
    return {"losses": losses, "gradients": gradients, "updates": updates}


def main():
    result = {"rates": RATES, "lambdas": LAMBDAS, "drop_path": RATE, "layer_decay": DECAY}
    result |= {recipe: run(recipe) for recipe in ("beit", "deit")}
    OUT.write_text(json.dumps(result, indent=0).replace("[\n", "[").replace(",\n-", ", -") + "\n")
    print(OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
