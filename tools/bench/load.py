#!/usr/bin/env python3
"""Times the loading of a weights file of 1.2 GB against PyTorch, in turn.

    cargo build --release -p model --example load
    python tools/bench/load.py target/release/examples/load [--rounds 5]

Needs: torch. Writes a ViT-L/16 of random weights (303 million values) to a temporary file with torch.save; then, each in a
process of its own and in turn: `torch.load` and `load_state_dict` into a ViT that is built on the meta device and then made
empty, and ours. The file is in the page cache for both. Prints the medians of the seconds, their ratio, and the peak of
each process's memory less what it had before loading.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

TORCH_SIDE = """
import sys, time, torch
sys.path.insert(0, {tools!r})
def peak(): return next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmHWM'))
from load import Vit
with torch.device('meta'): model = Vit()
model = model.to_empty(device='cpu')
before = peak()
start = time.perf_counter()
model.load_state_dict(torch.load({path!r}, weights_only=True))
print(time.perf_counter() - start, peak() - before)
"""


def Vit(dim=1024, depth=24, patch=16, image=224):
    """The parameters of a ViT-L/16 in DINO's names; what it computes does not matter here."""
    import torch
    from torch import nn

    model = nn.Module()
    model.cls_token = nn.Parameter(torch.empty(1, 1, dim))
    model.pos_embed = nn.Parameter(torch.empty(1, 1 + (image // patch) ** 2, dim))
    model.patch_embed = nn.Module()
    model.patch_embed.proj = nn.Conv2d(3, dim, patch, patch)
    model.blocks = nn.ModuleList()
    for _ in range(depth):
        block = nn.Module()
        block.norm1, block.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        block.attn, block.mlp = nn.Module(), nn.Module()
        block.attn.qkv, block.attn.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        block.mlp.fc1, block.mlp.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        model.blocks.append(block)
    model.norm = nn.LayerNorm(dim)
    return model


def main():
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "vit_large.pth")
        model = Vit()
        with torch.no_grad():
            for p in model.parameters():
                p.normal_(std=0.02)
        torch.save(model.state_dict(), path)
        size = pathlib.Path(path).stat().st_size
        del model
        code = TORCH_SIDE.format(tools=str(pathlib.Path(__file__).resolve().parent), path=path)
        theirs, ours, memory = [], [], []
        for _ in range(args.rounds):
            seconds, peak = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
            line = subprocess.run([args.binary, path], capture_output=True, text=True, check=True).stdout.split()
            theirs.append(float(seconds))
            ours.append(float(line[0]))
            memory.append((int(peak) / 2**20, int(line[-2]) / 2**20))
        ratio = statistics.median(o / t for o, t in zip(ours, theirs))
        print(f"{size / 1e9:.2f} GB: PyTorch {statistics.median(theirs):.2f} s, ours {statistics.median(ours):.2f} s ({ratio:.2f} of it)")
        print(f"peak: PyTorch {max(m[0] for m in memory):.2f} GiB above its start, ours {max(m[1] for m in memory):.2f} GiB in all")


if __name__ == "__main__":
    main()
