"""What the tests of several processes share (tools/mpi-test, tools/nccl-test): a small training, and what it leaves."""

import hashlib
import json

# 120 images in batches of 24: five steps an epoch.
DATA = "synthetic:train=120,test=24,size=32"
SMALL = ("--arch vit_nano --patch-size 8 --global-size 32 --local-size 16 --local-crops 2 --out-dim 64 --batch-size 24 "
         "--threads 1 --no-report --seed 3 --set log_every=1 --set knn_every=0 --set head_hidden=64 --set head_bottleneck=32 "
         "--set on_collapse=continue").split()  # fmt: skip
METHODS = {
    "dino-vmf": ["--set", "head_batch_norm=false"],
    "dino-vmf with batch norm": ["--set", "head_batch_norm=true"],
    "ibot-vmf": ["--method", "ibot", "--set", "head_batch_norm=false"],
    "ibot-vmf with batch norm": ["--method", "ibot", "--set", "head_batch_norm=true"],
    "msn": ["--method", "msn"],
}


def losses(out):
    """The loss of every step that the log of a run has."""
    log = out / "metrics.jsonl"
    # The last line may not be written to its end yet.
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    records = [json.loads(line) for line in lines]
    return {record["step"]: record["loss"] for record in records if "loss" in record}


def digest(out):
    """A digest of the weights that a run ended with."""
    return hashlib.sha256((out / "backbone.safetensors").read_bytes()).hexdigest()


def worst_difference(shared, whole):
    """The largest relative difference of two curves of the same steps."""
    assert shared.keys() == whole.keys(), f"{len(shared)} steps and {len(whole)}"
    return max(abs(shared[step] - loss) / abs(loss) for step, loss in whole.items())


def last_step(out):
    """The last step that the log of a run has, looked at often while it grows; 0 before the first."""
    log = out / "metrics.jsonl"
    if not log.exists():
        return 0
    with open(log, "rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - 65536))
        whole = file.read().split(b"\n")[:-1]
    return json.loads(whole[-1])["step"] if whole and whole[-1].startswith(b"{") else 0
