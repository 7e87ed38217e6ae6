#!/usr/bin/env python3
"""The PyTorch side of `dino-vmf bench step`: one training step of DINO, iBOT or MSN on the CPU or on a GPU, tuned.

    python tools/bench/torch_step.py --arch vit_tiny --patch-size 16 --batch-size 8 --local-crops 6 \
        --out-dim 4096 --steps 10 --threads 2 --json
    python tools/bench/torch_step.py --device cuda --compile --arch vit_small --batch-size 128 --local-crops 8 \
        --out-dim 65536 --steps 20 --json
    python tools/bench/torch_step.py --device cuda --compile --method ibot --arch vit_small --batch-size 64 \
        --local-crops 10 --out-dim 8192 --steps 20 --json

Needs: torch (2.4 or newer), for `--device cuda` with CUDA and on a GPU that computes in bf16 (Ampere or newer), for
`--compile` also a C++ compiler. Written against the specifications of the methods, not taken from any repository;
`torch_check.py` compares the losses with digits of the released code.

One step is: teacher forward, student forward and backward (one backbone pass per resolution, one pass through the
head), gradient clipping at 3.0, AdamW, exponential moving average of the teacher. By `--method`:
  * dino (torch_dino.py): the teacher sees the two 224-pixel crops, the student all crops; cross-entropy over all pairs
    of different views; a centre; every tensor clipped by its own norm;
  * ibot (torch_ibot.py): the same, and the cross-entropy of masked patches, with a centre of their own;
  * msn (torch_msn.py): the teacher sees one 224-pixel crop, the student another one without 0.15 of its patches and
    the local ones; batch norm in the head; Sinkhorn and me-max; all clipped by the common norm.
Pixels are random, made before the clock starts and already where the step computes; so are masks. Untimed steps come
first: two on the CPU, ten on a GPU (under `--compile` the compilation is in them).

What makes it a fair opponent:
  * attention by `F.scaled_dot_product_attention`, which never builds the [N, N] matrix (on a GPU the only kernel that
    would is switched off);
  * patches by one matrix product, drop path and the residual sum in one `addcmul` on the CPU;
  * the loss sums the targets of each student view first, so each [rows, K] matrix is visited once, not once per pair;
  * of iBOT's patches the student's go through norm, head and prototypes only where they are masked, and the teacher's
    through the prototypes only then unless the centre needs them all; MSN's dropped patches are in no block;
  * AdamW with `fused=True`, the moving average by `torch._foreach_lerp_`, gradients set to None between steps;
  * on the CPU the teacher runs in inference mode, and large blocks stay in the process between steps (see
    `keep_large_blocks`), which saves the page faults that glibc's allocator otherwise causes on every step;
  * on a GPU both networks run under bf16 autocast (the weights and the loss are f32, and so is the residual stream
    unless `--stream bf16` asks for less), what stays f32 may use TF32, old gradients are freed before the forward pass,
    and the host never waits for the GPU: the clock is read before the first and after the last timed step, and the loss
    after that;
  * `--compile` uses torch.compile for the student, the teacher and the loss, without graph breaks and with shapes that
    are the same in every step; `--compile-mode` is its `mode`.

Prints ONE JSON object on standard output: images_per_second and step_ms (median over the timed steps), step_ms_min,
peak_memory_bytes, memory_before_model_bytes, device, threads, torch_version, stream, loss, method, hidden_patches (what
the student does not see in a step) and the shape. On the CPU the peak is VmHWM of this process, and memory_before_model_bytes the share of that which importing torch costs. On a GPU it
is the most that PyTorch's allocator had handed out, from before the model is built to the last step;
peak_reserved_bytes, on a GPU alone, is the most that it had taken from the driver for that. `--profile FILE` writes a
table of operators to FILE.
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import time


def keep_large_blocks():
    """Tells glibc to keep freed blocks in the heap instead of giving them back to the kernel after every step.

    Must run before torch allocates. `mallopt` codes: M_MMAP_MAX -4, M_TRIM_THRESHOLD -1, M_TOP_PAD -2. Other C
    libraries have no such switch; there the call is skipped.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-4, 0)
        libc.mallopt(-1, 2**31 - 1)
        libc.mallopt(-2, 64 * 2**20)
    except (OSError, AttributeError):
        print("torch_step: no glibc mallopt here, default allocator settings are used", file=sys.stderr)


# On a GPU no large block comes from the heap. The arguments are parsed only later, with torch there.
if "--default-malloc" not in sys.argv and not any(argument.endswith("cuda") for argument in sys.argv):
    keep_large_blocks()

import torch  # noqa: E402  (the allocator must be set first)

from torch_dino import Dino  # noqa: E402
from torch_ibot import Ibot  # noqa: E402
from torch_msn import Msn  # noqa: E402
from torch_trainer import CudaTrainer, Trainer, finite  # noqa: E402
from torch_vit import ARCHITECTURES, STREAMS  # noqa: E402

METHODS = {"dino": Dino, "ibot": Ibot, "msn": Msn}
DROP_PATH = {"dino": 0.1, "ibot": 0.1, "msn": 0.0}
WARM_UP_STEPS = {"cpu": 2, "cuda": 10}


def process_memory(field):
    """A field of /proc/self/status in bytes (VmHWM: peak resident size, VmRSS: resident size now)."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


def clock(device):
    """Seconds, read when everything that was started has ended."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def write_profile(trainer, device, path, steps=2):
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with profile(activities=activities) as trace:
        for _ in range(steps):
            trainer.step()
    key = f"self_{device}_time_total"
    with open(path, "w", encoding="utf-8") as out:
        out.write(trace.key_averages().table(sort_by=key, row_limit=45, max_name_column_width=60))


def main():
    parser = argparse.ArgumentParser(description="One training step in PyTorch on the CPU or on a GPU.")
    parser.add_argument("--method", choices=sorted(METHODS), default="dino")
    parser.add_argument("--device", choices=sorted(WARM_UP_STEPS), default="cpu")
    parser.add_argument("--arch", choices=sorted(ARCHITECTURES), default="vit_tiny")
    parser.add_argument("--patch-size", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--local-crops", type=int, default=6)
    parser.add_argument("--out-dim", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as PyTorch chooses")
    parser.add_argument("--drop-path", type=float, help="default "
                        + ", ".join(f"{rate} for {method}" for method, rate in DROP_PATH.items()))  # fmt: skip
    parser.add_argument("--centering", choices=("logit", "probability"), default="logit",
                        help="ibot: what the centres move towards; see torch_ibot.py")  # fmt: skip
    parser.add_argument("--hidden-patches", type=int, metavar="N",
                        help="ibot: about so many masked patches in a step; default: the recipe's average")  # fmt: skip
    parser.add_argument("--stream", choices=sorted(STREAMS), default="f32",
                        help="type of the residual stream; f32 is what autocast gives, bf16 is for cuda")  # fmt: skip
    parser.add_argument("--optimizer", choices=("fused", "foreach", "loop"), default="fused")
    parser.add_argument("--compile", action="store_true", help="torch.compile the networks and the loss")
    parser.add_argument("--compile-mode", default="default", help="`mode` of torch.compile, as in max-autotune")
    parser.add_argument("--default-malloc", action="store_true", help="leave glibc's allocator as it is")
    parser.add_argument("--profile", metavar="FILE", help="write a table of operators here, after the timed steps")
    parser.add_argument("--begin-when", metavar="FILE", help="say 'ready' after the untimed steps and wait for FILE, so that "
                        "others need not wait for a compilation")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="accepted for symmetry: the output is JSON anyway")
    args = parser.parse_args()

    cuda = args.device == "cuda"
    if cuda and not torch.cuda.is_available():
        parser.error("this PyTorch sees no CUDA device")
    if args.stream == "bf16" and not cuda:
        parser.error("--stream bf16 is for --device cuda: on the CPU nothing is bf16")
    if args.method != "ibot" and (args.centering != "logit" or args.hidden_patches is not None):
        parser.error("--centering and --hidden-patches are for --method ibot")
    if args.drop_path is None:
        args.drop_path = DROP_PATH[args.method]
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    if cuda:
        torch.cuda.init()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        before = process_memory("VmRSS")
    make_trainer = CudaTrainer if cuda else Trainer
    trainer = make_trainer(args, METHODS[args.method])
    loss, warm_up = float("nan"), WARM_UP_STEPS[args.device]
    for _ in range(warm_up):
        trainer.step()
    if args.begin_when:
        clock(args.device)
        print("ready", file=sys.stderr, flush=True)
        while not os.path.exists(args.begin_when):
            time.sleep(0.05)
        # The GPU has been idle meanwhile.
        for _ in range(warm_up):
            trainer.step()
    times = []
    if cuda:
        start = clock(args.device)
        for _ in range(args.steps):
            loss = trainer.step()
        times.append((clock(args.device) - start) / args.steps)
        loss = finite(loss)
    else:
        for _ in range(args.steps):
            start = clock(args.device)
            loss = trainer.step()
            times.append(clock(args.device) - start)
    if cuda:
        memory = {"peak_memory_bytes": torch.cuda.max_memory_allocated(),
                  "peak_reserved_bytes": torch.cuda.max_memory_reserved()}  # fmt: skip
    else:
        memory = {"peak_memory_bytes": process_memory("VmHWM")}
    if args.profile:
        write_profile(trainer, args.device, args.profile)
    median = statistics.median(times)
    print(
        json.dumps(
            {
                "images_per_second": args.batch_size / median,
                "step_ms": 1e3 * median,
                "step_ms_min": 1e3 * min(times),
                **memory,
                "memory_before_model_bytes": before,
                "device": torch.cuda.get_device_name() if cuda else "cpu",
                "threads": torch.get_num_threads(),
                "torch_version": torch.__version__,
                "stream": args.stream,
                "loss": loss,
                "method": args.method,
                "arch": args.arch,
                "patch_size": args.patch_size,
                "batch_size": args.batch_size,
                "local_crops": args.local_crops,
                "out_dim": args.out_dim,
                "hidden_patches": trainer.method.hidden_patches,
                "steps": args.steps,
                "compile": args.compile,
                "compile_mode": args.compile_mode if args.compile else None,
            }
        )
    )


if __name__ == "__main__":
    main()
