#!/usr/bin/env python3
"""Files of weights that an enemy, or a mistake, would make: crates/model/tests/fixtures/hostile/.

    python tools/oracle/hostile_weights.py

Needs: torch, numpy (PyTorch needs it). None of these files is ever loaded with Python here.
"""

import io
import pathlib
import pickle
import struct
import zipfile
from collections import OrderedDict

import torch

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "crates/model/tests/fixtures/hostile"


def archive(name, pickled, storages=(), method=zipfile.ZIP_STORED):
    """A file as `torch.save` lays it out, with any pickle in it."""
    with zipfile.ZipFile(FOLDER / name, "w", method) as out:
        out.writestr("archive/data.pkl", pickled)
        for key, content in storages:
            out.writestr(f"archive/data/{key}", content)


class Storage:
    def __init__(self, key, count, kind="FloatStorage"):
        self.key, self.count, self.kind = key, count, kind


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, Storage):
            return ("storage", getattr(torch, value.kind), value.key, "cpu", value.count)
        return None


class Tensor:
    """What would be a tensor with any numbers."""

    def __init__(self, storage, offset, shape, strides):
        self.arguments = (storage, offset, shape, strides, False, OrderedDict())

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, self.arguments


def pickled(value):
    out = io.BytesIO()
    Pickler(out, protocol=2).dump(value)
    return out.getvalue()


class RunsAProgram:
    def __reduce__(self):
        import os

        return os.system, ("touch executed-by-a-pickle",)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    zeros = bytes(64)
    archive("os_system.pth", pickled({"state_dict": RunsAProgram(), "epoch": 3}))
    claims = Tensor(Storage("0", 2**60), 0, (2**30, 2**30), (2**30, 1))
    archive("claims_2_60.pth", pickled({"cls_token": claims}), [("0", zeros)])
    expanded = Tensor(Storage("0", 1), 0, (2**30, 2**30), (0, 0))
    archive("expanded.pth", pickled({"cls_token": expanded}), [("0", zeros)])
    beyond = Tensor(Storage("0", 16), 12, (8,), (1,))
    archive("beyond_storage.pth", pickled({"cls_token": beyond}), [("0", zeros)])
    archive("no_storage.pth", pickled({"cls_token": Tensor(Storage("7", 16), 0, (16,), (1,))}))
    # 64 MiB that pack into 64 KiB.
    archive("zip_bomb.pth", b"\x80\x02" + b"N" * (64 << 20) + b".", method=zipfile.ZIP_DEFLATED)
    # A dict that holds itself ten times over, a billion times in all.
    layer = {"x": 1}
    for _ in range(9):
        layer = {str(i): layer for i in range(10)}
    archive("laughs.pth", pickled(layer))
    circle = {}
    circle["again"] = circle
    archive("circle.pth", pickled(circle))
    # Another program's archive, and a script of TorchScript.
    with zipfile.ZipFile(FOLDER / "not_torch.pth", "w") as out:
        out.writestr("word/document.xml", "<w/>")
    # An old file whose storage claims more than there is.
    old = io.BytesIO()
    for value in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}):
        pickle.dump(value, old, 2)
    tensor = Tensor(Storage("0", 2**60), 0, (2**60,), (1,))
    Pickler(old, 2).dump({"cls_token": tensor})
    pickle.dump(["0"], old, 2)
    old.write(struct.pack("<q", 2**60) + zeros)
    (FOLDER / "legacy_claims.pth").write_bytes(old.getvalue())
    # Names that almost are a backbone's.
    names = [f"blocks.{i}.attn.qkv.weight" for i in range(2)] + ["cls_token", "norm.weight"]
    torch.save({f"wrong.prefix.{name}": torch.zeros(2) for name in names}, FOLDER / "wrong_prefix.pth")
    many = {f"blocks.{i}.{part}": torch.zeros(1) for i in range(12) for part in ("other.weight", "another.bias")}
    two = {"norm.weight": torch.zeros(8), "norm.bias": torch.zeros(8)}
    torch.save({"model": {**many, **two}}, FOLDER / "two_of_many.pth")
    print(*sorted(f"{path.stat().st_size:8} {path.name}" for path in FOLDER.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
