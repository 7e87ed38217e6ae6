#!/usr/bin/env python3
"""Backbones of random weights in every layout and packing that people have, with the features that PyTorch gives.

    python tools/oracle/weights_files.py                      # the small fixtures of crates/model/tests/fixtures/layouts
    python tools/oracle/weights_files.py --check BINARY [--arch small base]
    python tools/oracle/weights_files.py --check BINARY --device cuda --precision f32 bf16 --jobs 6

The first writes tiny networks (width 16, one block) and `expected.json`: for each file the layout, and the class-token
features of closed-form pixels of the learnt size, of a larger square and of an oblong image. The second writes ViT-S/16
and ViT-B/16 into a temporary folder, runs `BINARY features` on JPEG files and compares with the same in PyTorch: pixels by
Pillow, resized and cropped as the program says it does. PyTorch computes in f32 on the CPU in every case, once for all
precisions of the program; it ends with 1 where a relative difference is above 1e-3 in f32 or 2e-2 in bf16.

Needs: torch, timm, transformers, safetensors, numpy, Pillow.

Every network runs in the program that its layout comes from where that program is in PyPI (timm, transformers); DINO's,
iBOT's and MSN's own are written out here from their description, with their rules for positions.
"""

import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import timm
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from torch import nn

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "crates/model/tests/fixtures/layouts"
TINY = dict(dim=16, depth=1, heads=2, mlp=32, patch=4, image=12)
ARCHITECTURES = {
    "small": dict(dim=384, depth=12, heads=6, mlp=1536, patch=16, image=224),
    "base": dict(dim=768, depth=12, heads=12, mlp=3072, patch=16, image=224),
}
SHAPES = [(224, 224), (240, 176)]
# Largest relative difference of a feature.
TOLERANCES = {"f32": 1e-3, "bf16": 2e-2}


class Block(nn.Module):
    def __init__(self, dim, heads, mlp):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.qkv, self.attn.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp.fc1, self.mlp.fc2 = nn.Linear(dim, mlp), nn.Linear(mlp, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.attn.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5).softmax(-1)
        x = x + self.attn.proj((weights @ v).transpose(1, 2).reshape(b, n, d))
        return x + self.mlp.fc2(F.gelu(self.mlp.fc1(self.norm2(x))))


class Vit(nn.Module):
    """DINO's network. `rule` is how it interpolates positions: "dino", or "msn", which knows square images alone."""

    def __init__(self, dim, depth, heads, mlp, patch, image, rule="dino"):
        super().__init__()
        self.patch, self.grid, self.rule = patch, image // patch, rule
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + self.grid**2, dim))
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(3, dim, patch, patch)
        self.blocks = nn.ModuleList(Block(dim, heads, mlp) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, eps=1e-6)

    def positions(self, h, w):
        if (h, w) == (self.grid, self.grid):
            return self.pos_embed
        patches = self.pos_embed[:, 1:].reshape(1, self.grid, self.grid, -1).permute(0, 3, 1, 2)
        if self.rule == "dino":
            scale = ((h + 0.1) / self.grid, (w + 0.1) / self.grid)
        else:
            assert h == w
            scale = math.sqrt(h * w / self.grid**2)
        patches = F.interpolate(patches, scale_factor=scale, mode="bicubic")
        assert patches.shape[2:] == (h, w)
        return torch.cat((self.pos_embed[:, :1], patches.flatten(2).transpose(1, 2)), 1)

    def forward(self, pixels):
        x = self.patch_embed.proj(pixels)
        h, w = x.shape[2:]
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)), 1) + self.positions(h, w)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, 0]


def randomize(module, seed):
    """Values of a size at which every part of the network matters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            scale = 1.0 / math.sqrt(p[0].numel()) if p.dim() in (2, 4) else 0.3
            is_factor = "norm" in name and name.endswith("weight") or "gamma" in name or "lambda" in name
            p.copy_(1.0 + 0.2 * noise if is_factor else scale * noise)
    return module.eval()


def head(dim, seed, hidden=24, bottleneck=8, prototypes=10):
    """A projection head in DINO's names, and its mean of logits."""
    g = torch.Generator().manual_seed(seed)
    shapes = {
        "mlp.0.weight": (hidden, dim), "mlp.0.bias": (hidden,), "mlp.2.weight": (hidden, hidden), "mlp.2.bias": (hidden,),
        "mlp.4.weight": (bottleneck, hidden), "mlp.4.bias": (bottleneck,),
        "last_layer.weight_g": (prototypes, 1), "last_layer.weight_v": (prototypes, bottleneck),
    }  # fmt: skip
    return {f"head.{name}": 0.1 * torch.randn(shape, generator=g) for name, shape in shapes.items()}


def prefixed(prefix, *states):
    return OrderedDict((prefix + name, value) for state in states for name, value in state.items())


def other(state):
    """Another network of the same shape, which must not be taken."""
    return OrderedDict((name, value + 1.0) for name, value in state.items())


def dino_family(sizes):
    """The layouts of DINO, iBOT, MSN, DeiT: what is saved, by name, the network that it holds and its layout."""
    dim = sizes["dim"]
    vit = randomize(Vit(**sizes), 1)
    flat, heads = vit.state_dict(), head(dim, 2)
    full = dict(
        student=prefixed("module.", prefixed("backbone.", other(flat)), heads),
        teacher=prefixed("", prefixed("backbone.", flat), heads),
        optimizer={"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 1e-3}]},
        epoch=7,
        args=argparse.Namespace(arch="vit_small", patch_size=sizes["patch"], lr=np.float64(0.5)),
        dino_loss=OrderedDict(center=torch.zeros(1, 10)),
    )
    masked = {"masked_embed": torch.zeros(1, dim)}
    second = {f"head.last_layer2.weight_{part}": heads[f"head.last_layer.weight_{part}"] for part in "gv"}
    ibot = dict(
        student=prefixed("module.", prefixed("backbone.", other(flat), masked), heads, second),
        teacher=prefixed("", prefixed("backbone.", flat), heads, second),
        epoch=3,
        ibot_loss=OrderedDict(center=torch.zeros(1, 10), center2=torch.zeros(1, 1, 10)),
    )
    msn = randomize(Vit(**sizes, rule="msn"), 3)
    fc = {"fc.fc1.weight": torch.zeros(4, dim), "fc.fc3.weight": torch.zeros(2, 4), "fc.bn1.running_mean": torch.zeros(4)}
    anchors = dict(
        encoder=prefixed("module.", other(msn.state_dict()), fc),
        opt={"state": {}, "param_groups": []},
        prototypes=torch.zeros(5, 2),
        target_encoder=prefixed("module.", msn.state_dict(), fc),
        epoch=1, loss=0.5, batch_size=8, world_size=1, lr=0.1, temperature=0.1,
    )  # fmt: skip
    deit = randomize(timm.models.VisionTransformer(
        img_size=sizes["image"], patch_size=sizes["patch"], embed_dim=dim, depth=sizes["depth"], num_heads=sizes["heads"],
        mlp_ratio=sizes["mlp"] / dim, num_classes=7, dynamic_img_size=True,
    ), 4)  # fmt: skip
    chunked = OrderedDict((name.replace("blocks.", "blocks.0."), value) for name, value in flat.items())
    transposed = OrderedDict(flat)
    transposed["blocks.0.attn.proj.weight"] = flat["blocks.0.attn.proj.weight"].t().contiguous().t()
    return [
        ("dino_backbone", flat, vit, "dino"),
        ("dino_full", full, vit, "dino"),
        ("dino_chunked", {"teacher": prefixed("backbone.", chunked)}, vit, "dino"),
        ("dino_transposed", transposed, vit, "dino"),
        ("ibot_full", ibot, vit, "ibot"),
        ("ibot_backbone", {"state_dict": flat}, vit, "dino"),
        ("msn", anchors, msn, "msn"),
        ("deit", {"model": deit.state_dict()}, deit, "timm"),
        ("module", vit, vit, "dino"),
    ]


def timm_models(sizes):
    common = dict(
        img_size=sizes["image"], patch_size=sizes["patch"], embed_dim=sizes["dim"], depth=sizes["depth"],
        num_heads=sizes["heads"], mlp_ratio=sizes["mlp"] / sizes["dim"], dynamic_img_size=True,
    )  # fmt: skip
    plain = timm.models.VisionTransformer(**common, num_classes=5)
    registers = dict(reg_tokens=3, init_values=1e-5, num_classes=5)
    no_class = timm.models.VisionTransformer(**common, **registers, no_embed_class=True)
    all_tokens = timm.models.VisionTransformer(**common, **registers)
    return [
        ("timm", randomize(plain, 5)),
        ("timm_reg", randomize(no_class, 6)),
        ("timm_reg_embedded", randomize(all_tokens, 7)),
    ]


def hugging_face_models(sizes):
    common = dict(
        hidden_size=sizes["dim"], num_hidden_layers=sizes["depth"], num_attention_heads=sizes["heads"],
        image_size=sizes["image"], patch_size=sizes["patch"],
    )  # fmt: skip
    vit = transformers.ViTModel(transformers.ViTConfig(**common, intermediate_size=sizes["mlp"]), add_pooling_layer=False)
    ratio = sizes["mlp"] // sizes["dim"]
    dinov2 = transformers.Dinov2Model(transformers.Dinov2Config(**common, mlp_ratio=ratio))
    registers = transformers.Dinov2WithRegistersModel(
        transformers.Dinov2WithRegistersConfig(**common, mlp_ratio=ratio, num_register_tokens=3)
    )
    return [("hf_vit", randomize(vit, 8)), ("hf_dinov2", randomize(dinov2, 9)), ("hf_dinov2_reg", randomize(registers, 10))]


def features(network, pixels):
    with torch.no_grad():
        if isinstance(network, Vit):
            return network(pixels)
        if isinstance(network, transformers.ViTModel):
            return network(pixels, interpolate_pos_encoding=True).last_hidden_state[:, 0]
        if isinstance(network, transformers.PreTrainedModel):
            return network(pixels).last_hidden_state[:, 0]
        return network.forward_features(pixels)[:, 0]


def files(folder, sizes):
    """Writes all files. Yields their path, the network, the layout and whether the file says how many heads there are."""
    for name, content, network, layout in dino_family(sizes):
        path = folder / f"{name}.pth"
        torch.save(content, path)
        yield path, network, layout, False
        if name in ("dino_backbone", "dino_full"):
            path = folder / f"{name}_legacy.pth"
            torch.save(content, path, _use_new_zipfile_serialization=False)
            yield path, network, layout, False
        if name == "dino_backbone":
            path = folder / "dino_backbone.safetensors"
            save_file(content, path)
            yield path, network, layout, False
            path = folder / "dino_backbone_bf16.pth"
            torch.save({key: value.bfloat16() for key, value in content.items()}, path)
            rounded = Vit(**sizes).eval()
            rounded.load_state_dict({key: value.bfloat16().float() for key, value in content.items()})
            yield path, rounded, layout, False
    for name, network in timm_models(sizes):
        path = folder / f"{name}.safetensors"
        save_file(network.state_dict(), path)
        yield path, network, "timm", False
    for name, network in hugging_face_models(sizes):
        network.save_pretrained(folder / name)
        yield folder / name, network, "huggingface", True
        path = folder / f"{name}.pth"
        torch.save(network.state_dict(), path)
        yield path, network, "huggingface", False
        if name == "hf_vit":
            parts = folder / f"{name}_shards"
            network.save_pretrained(parts, max_shard_size=sum(p.numel() for p in network.parameters()) * 2)
            assert (parts / "model.safetensors.index.json").exists()
            yield parts, network, "huggingface", True


def closed_form_pixels(height, width):
    index = torch.arange(3 * height * width, dtype=torch.float64)
    return (1.5 * torch.sin(0.7 * index + 0.01 * index**1.3)).reshape(1, 3, height, width).float()


def write_fixtures():
    FIXTURES.mkdir(parents=True, exist_ok=True)
    expected = {"heads": TINY["heads"], "files": []}
    image = TINY["image"]
    for path, network, layout, says_heads in files(FIXTURES, TINY):
        shapes = [(image, image), (2 * image, 2 * image), (image + 8, image - 4)]
        if layout == "msn":
            shapes.pop()
        wanted = [
            {"height": h, "width": w, "features": features(network, closed_form_pixels(h, w))[0].double().tolist()}
            for h, w in shapes
        ]
        name = str(path.relative_to(FIXTURES))
        expected["files"].append({"file": name, "layout": layout, "says_heads": says_heads, "images": wanted})
    (FIXTURES / "expected.json").write_text(json.dumps(expected, indent=None, separators=(",", ":")) + "\n")
    print(f"{len(expected['files'])} files in {FIXTURES}")


def photographs(folder):
    """Three JPEG files of closed-form content, of different shapes."""
    from PIL import Image

    (folder / "images").mkdir()
    for i, (height, width) in enumerate([(300, 400), (260, 256), (500, 333)]):
        y, x = np.mgrid[0:height, 0:width]
        channels = [127 + 120 * np.sin(x / (9 + 3 * c) + i) * np.cos(y / (7 + 2 * c)) for c in range(3)]
        image = Image.fromarray(np.stack(channels, -1).astype(np.uint8))
        image.save(folder / "images" / f"{i}.jpg", quality=92)
    return sorted((folder / "images").iterdir())


def prepared(paths, height, width):
    """What the program shows a network of a photograph: the shorter side such that the image covers 256/224 of the size, as
    torchvision's Resize does it, and the centre (docs/protocols)."""
    from PIL import Image

    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    batch = []
    for path in paths:
        image = Image.open(path).convert("RGB")
        short = min(image.size)
        side = round(max(height * short / image.height, width * short / image.width) * 256 / 224)
        wide = image.width > image.height
        size = (side * image.width // image.height, side) if wide else (side, side * image.height // image.width)
        image = image.resize(size, Image.BICUBIC)
        left, top = round((size[0] - width) / 2), round((size[1] - height) / 2)
        pixels = torch.from_numpy(np.asarray(image.crop((left, top, left + width, top + height))).copy())
        batch.append(((pixels.float() / 255 - mean) / std).permute(2, 0, 1))
    return torch.stack(batch)


class Checks:
    """Runs the program on files of weights, several at once, and keeps the largest difference by network and precision."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.until = time.monotonic() + args.seconds
        self.pool = ThreadPoolExecutor(args.jobs)
        # Files of ViT-B are large: no more of them are written ahead than are worked on.
        self.free = threading.Semaphore(2 * args.jobs)
        self.lock = threading.Lock()
        self.worst, self.failed, self.done, self.left_out = {}, 0, 0, 0
        self.submitted = []

    def features_of(self, path, images, shape, precision):
        out = self.folder / f"{threading.get_ident()}.npy"
        command = [self.args.check, "features", "--weights", path, "--data", images, "--out", out, "--force",
                   "--image-size", f"{shape[0]}x{shape[1]}", "--device", self.args.device,
                   "--precision", precision]  # fmt: skip
        run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(f"ended with {run.returncode}: {run.stderr.strip()[-500:]}")
        return torch.from_numpy(np.load(out))

    def check(self, arch, path, layout, images, wanted):
        """`wanted` has the features that are expected and the precision to compute in, for each time that the program runs."""
        said, is_good = [], True
        try:
            for shape, precision, theirs in wanted:
                ours = self.features_of(path, images, shape, precision)
                error = ((ours - theirs).norm(dim=1) / theirs.norm(dim=1)).max().item()
                # A NaN is not below the tolerance either.
                is_good &= error <= TOLERANCES[precision]
                said.append(f"{precision} {shape[0]}x{shape[1]} {error:.1e}")
                with self.lock:
                    self.worst.setdefault((arch, precision), []).append(error)
        except (RuntimeError, OSError, ValueError) as error:
            said.append(str(error))
            is_good = False
        finally:
            self.free.release()
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with self.lock:
            self.done += 1
            self.failed += not is_good
            mark = "" if is_good else "  FAILED"
            print(f"{arch:5} {path.name:28} {layout:11} {', '.join(said)}{mark}", flush=True)

    def run(self, arch):
        folder = self.folder / arch
        folder.mkdir()
        images = photographs(folder)
        references, pixels = {}, {}
        for number, (path, network, layout, _) in enumerate(files(folder, ARCHITECTURES[arch])):
            shapes = SHAPES[:1] if layout == "msn" else SHAPES
            if time.monotonic() > self.until:
                self.left_out += 1
                continue
            wanted = []
            for place, precision in enumerate(self.args.precision):
                # Each start takes seconds on a GPU: of further precisions, each file is read in one shape, in turn.
                for shape in shapes if place == 0 else [shapes[number % len(shapes)]]:
                    if shape not in pixels:
                        pixels[shape] = prepared(images, *shape)
                    if (network, shape) not in references:
                        references[network, shape] = features(network, pixels[shape])
                    wanted.append((shape, precision, references[network, shape]))
            self.free.acquire()
            self.submitted.append(self.pool.submit(self.check, arch, path, layout, folder / "images", wanted))


def check(args):
    """True when all files were read and all features are near enough."""
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(args, pathlib.Path(folder))
        with checks.pool:
            for arch in args.arch:
                checks.run(arch)
        for submitted in checks.submitted:
            # Whatever went wrong beside the comparison is told.
            submitted.result()
        for (arch, precision), errors in sorted(checks.worst.items()):
            print(f"{arch} {precision} on {args.device}: largest relative difference {max(errors):.1e} in {len(errors)} runs")
        print(f"{checks.done} files, {checks.failed} failed, {checks.left_out} left out for want of time")
        return checks.done > 0 and checks.failed == 0 and checks.left_out == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", metavar="BINARY")
    parser.add_argument("--arch", nargs="+", default=["small", "base"], choices=sorted(ARCHITECTURES))
    parser.add_argument("--device", default="cpu", help="where BINARY computes: cpu or cuda")
    parser.add_argument("--precision", nargs="+", default=["f32"], choices=sorted(TOLERANCES), help="on a GPU")
    parser.add_argument("--jobs", type=int, default=1, help="files that are checked at once")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no file is begun after so many")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.check:
        sys.exit(0 if check(args) else 1)
    write_fixtures()


if __name__ == "__main__":
    main()
