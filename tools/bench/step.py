#!/usr/bin/env python3
"""Times one training step of `dino-vmf` against PyTorch, side by side in one run, on the CPU or on a GPU.

    python tools/bench/step.py --binary target/release/dino-vmf --threads 2
    python tools/bench/step.py --binary target/release/dino-vmf --threads 2 --shape vit_tiny:16:8:6:4096 --rounds 5
    python tools/bench/step.py --binary target/release/dino-vmf --device cuda
    python tools/bench/step.py --binary target/release/dino-vmf --device cuda --method ibot
    python tools/bench/step.py --binary target/release/dino-vmf --device cuda --method ibot --centering probability
    python tools/bench/step.py --binary target/release/dino-vmf --device cuda --method ibot --centering logit
    python tools/bench/step.py --binary target/release/dino-vmf --device cuda --method msn

Needs: Python 3.9 or newer for this file, and torch in the interpreter of the PyTorch side (`--python`, by default the
one that runs this file); for `--device cuda` a torch with CUDA, a C++ compiler for torch.compile, and a binary that has
CUDA. Build the binary first: `cargo build --release`.

`--method` is DINO, iBOT or MSN; LOCAL of a shape is the number of local crops, which MSN calls focal. Of iBOT each side
makes its own default, PyTorch the published centre and ours iBOT-vMF's, which is more work; `--centering logit` or
`probability` gives both the same (torch_ibot.py says what that means; with `logit` our prototypes have no normaliser). How
many patches the student does not see is a matter of luck on our side, and the same in every run; PyTorch takes the
average. A line after the table says both, and `--hidden-patches` gives PyTorch our number.

For each shape ARCH:PATCH:BATCH:LOCAL:K the sides run as separate processes, in turn (torch, ours, torch, ours ...), so
that a slow minute of the machine meets all of them. Each process reports the median of its own steps; the table shows
the median over rounds, and the ratios are medians of the ratios of neighbouring runs.

On the CPU the machine must be quiet: PyTorch's threads wait for each other actively and lose far more than their share
(up to ten times) to any other busy process, which would flatter us. So the share of the processors that others used is
measured during every run, and a round above 5 % is thrown away and repeated, at most `--retries` times for each shape.
Memory is the peak resident size of the process. PyTorch's includes what importing it costs (0.6 GiB for the package
with CUDA); the last column takes that off before comparing.

On a GPU there are three sides: PyTorch eager, PyTorch compiled, and ours; the ratios are against PyTorch compiled.
Memory is that of the GPU: for PyTorch the most that its allocator had handed out (what it took from the driver is
more), for us what the binary reports. MFU is what our binary reports; that of a PyTorch side follows from ours and the
ratio of the speeds, with the same count of operations for an image. Nobody else may use the GPU; nothing here checks
that. Each side keeps the residual stream in its own default type; `--stream bf16` or `--stream f32` gives all sides the
same one.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

from alternate import DISTURBED, alternate

TORCH_SIDE = pathlib.Path(__file__).resolve().parent / "torch_step.py"
DEFAULT_SHAPES = {
    ("dino", "cpu"): ["vit_tiny:16:8:6:4096", "vit_small:16:8:8:65536"],
    ("dino", "cuda"): ["vit_small:16:128:8:65536", "vit_base:16:128:8:65536"],
    ("ibot", "cpu"): ["vit_tiny:16:8:6:4096"],
    ("ibot", "cuda"): ["vit_small:16:64:10:8192"],
    ("msn", "cpu"): ["vit_tiny:16:8:6:1024"],
    ("msn", "cuda"): ["vit_small:16:64:10:1024"],
}
DEFAULT_STEPS = {"cpu": 5, "cuda": 20}
GIB = 2.0**30


def parse_shape(text):
    parts = text.split(":")
    if len(parts) != 5 or not all(part.isdigit() for part in parts[1:]):
        raise argparse.ArgumentTypeError(f"'{text}' is not ARCH:PATCH:BATCH:LOCAL:K, as in vit_tiny:16:8:6:4096")
    return parts


def commands(shape, args):
    """The commands of PyTorch eager, PyTorch compiled and ours."""
    arch, patch, batch, local_crops, out_dim = shape
    common = [
        "--method", args.method, "--device", args.device, "--arch", arch, "--patch-size", patch, "--batch-size", batch,
        "--local-crops", local_crops, "--out-dim", out_dim, "--steps", str(args.steps),
        "--threads", str(args.threads), "--json",
    ]  # fmt: skip
    if args.stream:
        common += ["--stream", args.stream]
    eager = [args.python, str(TORCH_SIDE), *common]
    if args.centering:
        eager += ["--centering", args.centering]
    if args.hidden_patches:
        eager += ["--hidden-patches", str(args.hidden_patches)]
    compiled = [*eager, "--compile", "--compile-mode", args.compile_mode]
    ours = [args.binary, "bench", "step", *common]
    if args.centering:
        ours += ["--centering", args.centering, "--prototypes", {"logit": "none", "probability": "vmf"}[args.centering]]
    return eager, compiled, ours


def hidden_patches(torch_side, ours):
    """Patches that the student does not see in a step, on both sides."""
    return {"torch_hidden_patches": torch_side["hidden_patches"], "our_hidden_patches": ours.get("hidden_patches")}


def median(values):
    return statistics.median(list(values))


def compare_cpu(shape, args):
    """Alternates the two sides and returns a row of medians."""
    eager, compiled, our_command = commands(shape, args)
    sides, about = [("torch", compiled if args.compile else eager), ("dino-vmf", our_command)], f"{':'.join(shape)} "
    pairs, disturbance = [], []
    for pair, others in alternate(sides, args.threads, args.rounds, args.retries, about, digits=3):
        pairs.append(pair)
        disturbance.append(others)
    row = {
        "method": args.method,
        "shape": ":".join(shape),
        "torch_images_per_second": median(t["images_per_second"] for t, _ in pairs),
        "our_images_per_second": median(o["images_per_second"] for _, o in pairs),
        "speed_ratio": median(o["images_per_second"] / t["images_per_second"] for t, o in pairs),
        "torch_peak_memory_bytes": median(t["peak_memory_bytes"] for t, _ in pairs),
        "our_peak_memory_bytes": median(o["peak_memory_bytes"] for _, o in pairs),
        "memory_ratio": median(o["peak_memory_bytes"] / t["peak_memory_bytes"] for t, o in pairs),
        "memory_ratio_without_import": median(
            o["peak_memory_bytes"] / (t["peak_memory_bytes"] - t["memory_before_model_bytes"]) for t, o in pairs
        ),
        "torch_version": pairs[0][0]["torch_version"],
        **hidden_patches(*pairs[0]),
        "rounds": args.rounds,
        "threads": args.threads,
        "other_processes": max(disturbance),
    }
    if all("mfu" in o for _, o in pairs):
        row["our_mfu"] = median(o["mfu"] for _, o in pairs)
    return row


def compare_cuda(shape, args):
    """Alternates the three sides and returns a row of medians."""
    sides = list(zip(("torch eager", "torch compiled", "dino-vmf"), commands(shape, args)))
    about, retries = f"{':'.join(shape)} ", 0
    rounds = [results for results, _ in alternate(sides, args.threads, args.rounds, retries, about, watch=False)]
    first = rounds[0][1]
    row = {
        "method": args.method,
        "shape": ":".join(shape),
        "eager_images_per_second": median(e["images_per_second"] for e, _, _ in rounds),
        "compiled_images_per_second": median(c["images_per_second"] for _, c, _ in rounds),
        "our_images_per_second": median(o["images_per_second"] for _, _, o in rounds),
        "speed_ratio": median(o["images_per_second"] / c["images_per_second"] for _, c, o in rounds),
        "speed_ratio_eager": median(o["images_per_second"] / e["images_per_second"] for e, _, o in rounds),
        "eager_peak_memory_bytes": median(e["peak_memory_bytes"] for e, _, _ in rounds),
        "compiled_peak_memory_bytes": median(c["peak_memory_bytes"] for _, c, _ in rounds),
        "compiled_peak_reserved_bytes": median(c["peak_reserved_bytes"] for _, c, _ in rounds),
        "our_peak_memory_bytes": median(o["peak_memory_bytes"] for _, _, o in rounds),
        "memory_ratio": median(o["peak_memory_bytes"] / c["peak_memory_bytes"] for _, c, o in rounds),
        "torch_version": first["torch_version"],
        **hidden_patches(first, rounds[0][2]),
        "compile_mode": first["compile_mode"],
        "device": first["device"],
        "stream": args.stream,
        "torch_stream": first["stream"],
        "rounds": args.rounds,
    }
    if all("mfu" in o for _, _, o in rounds):
        row["our_mfu"] = median(o["mfu"] for _, _, o in rounds)
        for name, side in (("eager_mfu", 0), ("compiled_mfu", 1)):
            # The operations of an image are the same, so the shares of the limit are as the speeds.
            row[name] = median(r[2]["mfu"] * r[side]["images_per_second"] / r[2]["images_per_second"] for r in rounds)
    if all(o.get("shares") for _, _, o in rounds):
        kinds = dict.fromkeys(kind for _, _, o in rounds for kind in o["shares"])
        row["our_shares"] = {kind: median(o["shares"].get(kind, 0.0) for _, _, o in rounds) for kind in kinds}
    return row


def print_header(titles):
    print(f"| {' | '.join(titles)} |")
    print("| --- |" + " ---: |" * (len(titles) - 1))


def print_cpu_table(rows):
    version, threads, rounds = rows[0]["torch_version"], rows[0]["threads"], rows[0]["rounds"]
    print(f"{rows[0]['method']}: PyTorch {version}, {threads} threads, median of {rounds} round(s)")
    print("ratios are dino-vmf / PyTorch")
    titles = ("arch:patch:batch:local:K", "PyTorch img/s", "dino-vmf img/s", "speed", "PyTorch GiB", "dino-vmf GiB",
              "memory", "without import")  # fmt: skip
    print_header(titles)
    for row in rows:
        print(
            f"| {row['shape']} | {row['torch_images_per_second']:.2f} | {row['our_images_per_second']:.2f} "
            f"| {row['speed_ratio']:.2f}x | {row['torch_peak_memory_bytes'] / GIB:.2f} "
            f"| {row['our_peak_memory_bytes'] / GIB:.2f} | {row['memory_ratio']:.2f}x "
            f"| {row['memory_ratio_without_import']:.2f}x |"
        )
    print_hidden_patches(rows)
    if any(row["other_processes"] > DISTURBED for row in rows):
        print("NOT VALID: other processes used more than 5 % of the processors. Repeat on a quiet machine.")


def print_cuda_table(rows):
    version, mode, device, rounds = (rows[0][key] for key in ("torch_version", "compile_mode", "device", "rounds"))
    print(f"{rows[0]['method']}: PyTorch {version} (compile mode {mode}) on {device}, median of {rounds} round(s)")
    ours = "the same" if rows[0]["stream"] else "its default"
    print(f"residual stream: {rows[0]['torch_stream']} in PyTorch, {ours} in dino-vmf")
    print("speed and memory are dino-vmf / PyTorch compiled")
    titles = ("arch:patch:batch:local:K", "eager img/s", "compiled img/s", "dino-vmf img/s", "speed", "compiled GiB",
              "dino-vmf GiB", "memory", "dino-vmf MFU")  # fmt: skip
    print_header(titles)
    for row in rows:
        print(
            f"| {row['shape']} | {row['eager_images_per_second']:.0f} | {row['compiled_images_per_second']:.0f} "
            f"| {row['our_images_per_second']:.0f} | {row['speed_ratio']:.2f}x "
            f"| {row['compiled_peak_memory_bytes'] / GIB:.2f} | {row['our_peak_memory_bytes'] / GIB:.2f} "
            f"| {row['memory_ratio']:.2f}x | {percent(row.get('our_mfu'))} |"
        )
    print_hidden_patches(rows)
    for row in rows:
        if "our_mfu" in row:
            eager, compiled = percent(row["eager_mfu"]), percent(row["compiled_mfu"])
            print(f"{row['shape']} MFU of PyTorch: eager {eager}, compiled {compiled}")
        if "our_shares" in row:
            shares = sorted(row["our_shares"].items(), key=lambda item: -item[1])
            print(f"{row['shape']} dino-vmf's step: " + ", ".join(f"{kind} {percent(share)}" for kind, share in shares))


def print_hidden_patches(rows):
    for row in rows:
        if row["torch_hidden_patches"]:
            hidden = f"{row['torch_hidden_patches']} in PyTorch, {row['our_hidden_patches']} in dino-vmf"
            print(f"{row['shape']} patches that the student does not see in a step: {hidden}")


def percent(share):
    return "-" if share is None else f"{100 * share:.1f} %"


def main():
    parser = argparse.ArgumentParser(description="Training step: dino-vmf against PyTorch, alternating.")
    defaults = "; ".join(f"{' on '.join(of)}: {' and '.join(shapes)}" for of, shapes in DEFAULT_SHAPES.items())
    parser.add_argument("--binary", required=True, help="path of the dino-vmf binary (release build)")
    parser.add_argument("--method", choices=("dino", "ibot", "msn"), default="dino")
    parser.add_argument("--device", choices=sorted(DEFAULT_STEPS), default="cpu")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch")
    parser.add_argument("--shape", dest="shapes", action="append", type=parse_shape, metavar="ARCH:PATCH:BATCH:LOCAL:K",
                        help=f"may be repeated; default {defaults}")  # fmt: skip
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="timed steps of each process; default "
                        + ", ".join(f"{steps} on {device}" for device, steps in DEFAULT_STEPS.items()))  # fmt: skip
    parser.add_argument("--retries", type=int, default=3, help="disturbed rounds to repeat, for each shape, on the CPU")
    parser.add_argument("--compile", action="store_true",
                        help="on the CPU, let PyTorch use torch.compile (needs a C++ compiler)")  # fmt: skip
    parser.add_argument("--compile-mode", default="default", help="`mode` of torch.compile, as in max-autotune")
    parser.add_argument("--stream", choices=("bf16", "f32"),
                        help="on cuda: type of the residual stream on all sides; default: each its own")  # fmt: skip
    parser.add_argument("--centering", choices=("logit", "probability"),
                        help="ibot: what the centres move towards, on both sides; default: each its own")  # fmt: skip
    parser.add_argument("--hidden-patches", type=int, metavar="N",
                        help="ibot: about so many masked patches on the PyTorch side; default: the average")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the rows as one JSON object instead of a table")
    args = parser.parse_args()
    if not os.access(args.binary, os.X_OK):
        parser.error(f"no program at {args.binary}; build it with `cargo build --release`")
    if args.compile and args.device == "cuda":
        parser.error("--compile is for the CPU; on cuda PyTorch runs both ways in any case")
    if args.stream and args.device != "cuda":
        parser.error("--stream is for cuda: on the CPU nothing is bf16")
    if (args.centering or args.hidden_patches) and args.method != "ibot":
        parser.error("--centering and --hidden-patches are for --method ibot")
    args.steps = args.steps or DEFAULT_STEPS[args.device]
    compare, print_table = (compare_cuda, print_cuda_table) if args.device == "cuda" else (compare_cpu, print_cpu_table)
    rows = [compare(shape, args) for shape in args.shapes or map(parse_shape, DEFAULT_SHAPES[args.method, args.device])]
    if args.json:
        print(json.dumps({"rows": rows}))
    else:
        print_table(rows)


if __name__ == "__main__":
    main()
