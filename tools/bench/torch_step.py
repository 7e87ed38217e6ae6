#!/usr/bin/env python3
"""The PyTorch side of `dino-vmf bench step`: one DINO training step on the CPU or on a GPU, tuned.

    python tools/bench/torch_step.py --arch vit_tiny --patch-size 16 --batch-size 8 --local-crops 6 \
        --out-dim 4096 --steps 10 --threads 2 --json
    python tools/bench/torch_step.py --device cuda --compile --arch vit_small --batch-size 128 --local-crops 8 \
        --out-dim 65536 --steps 20 --json

Needs: torch (2.4 or newer), for `--device cuda` with CUDA and on a GPU that computes in bf16 (Ampere or newer), for
`--compile` also a C++ compiler. Written against the specification of DINO, not taken from any repository.

One step is: teacher forward on the two 224-pixel crops, student forward and backward on all crops (one backbone pass
per resolution, one pass through the head), cross-entropy over all pairs of different views, per-tensor gradient
clipping at 3.0, AdamW, exponential moving average of the teacher. Pixels are random, made before the clock starts and
already where the step computes. Untimed steps come first: two on the CPU, ten on a GPU (under `--compile` the
compilation is in them).

What makes it a fair opponent:
  * attention by `F.scaled_dot_product_attention`, which never builds the [N, N] matrix (on a GPU the only kernel that
    would is switched off);
  * patches by one matrix product, drop path and the residual sum in one `addcmul` on the CPU;
  * the loss sums the targets of each student view first, so each [rows, K] matrix is visited once, not once per pair;
  * AdamW with `fused=True`, the moving average by `torch._foreach_lerp_`, gradients set to None between steps;
  * on the CPU the teacher runs in inference mode, and large blocks stay in the process between steps (see
    `keep_large_blocks`), which saves the page faults that glibc's allocator otherwise causes on every step;
  * on a GPU both networks run under bf16 autocast (the weights and the loss are f32, and so is the residual stream
    unless `--stream bf16` asks for less), what stays f32 may use TF32, old gradients are freed before the forward pass,
    and the host never waits for the GPU: the clock is read before the first and after the last timed step, and the loss
    after that;
  * `--compile` uses torch.compile for the student, the teacher and the loss; `--compile-mode` is its `mode`.

Prints ONE JSON object on standard output: images_per_second and step_ms (median over the timed steps), step_ms_min,
peak_memory_bytes, memory_before_model_bytes, device, threads, torch_version, stream, loss and the shape. On the CPU the
peak is VmHWM of this process, and memory_before_model_bytes the share of that which importing torch costs. On a GPU it
is the most that PyTorch's allocator had handed out, from before the model is built to the last step;
peak_reserved_bytes, on a GPU alone, is the most that it had taken from the driver for that. `--profile FILE` writes a
table of operators to FILE.
"""

import argparse
import ctypes
import functools
import json
import math
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
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

ARCHITECTURES = {"vit_tiny": (192, 12), "vit_small": (384, 12), "vit_base": (768, 12), "vit_large": (1024, 24)}
STREAMS = {"bf16": torch.bfloat16, "f32": torch.float32}
HEAD_DIM = 64
GLOBAL_SIZE, LOCAL_SIZE, GLOBAL_CROPS = 224, 96, 2
STUDENT_TEMPERATURE, TEACHER_TEMPERATURE = 0.1, 0.04
CENTRE_MOMENTUM, TEACHER_MOMENTUM, CLIP = 0.9, 0.996, 3.0
WARM_UP_STEPS = {"cpu": 2, "cuda": 10}


class LayerNorm(nn.LayerNorm):
    """Gives what it gets: autocast by itself would widen a bf16 stream to f32 and write the result in f32 too.

    The parameters are rounded on the way in, because the CUDA kernel takes them in the type of its input alone; its
    arithmetic is f32 in any case.
    """

    def forward(self, x):
        if x.dtype == torch.float32:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
            return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class Block(nn.Module):
    """Pre-norm transformer block; `keep` is the probability that a sample keeps a residual branch."""

    def __init__(self, dim, keep):
        super().__init__()
        self.heads, self.keep = dim // HEAD_DIM, keep
        self.norm1, self.norm2 = LayerNorm(dim, eps=1e-6), LayerNorm(dim, eps=1e-6)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def add(self, x, branch):
        if self.keep == 1.0:
            return x + branch
        mask = branch.new_empty(x.shape[0], 1, 1).bernoulli_(self.keep).div_(self.keep)
        if branch.dtype != x.dtype:
            # Autocast would first copy the bf16 branch to f32 for `addcmul`; these two read it as it is.
            return x + branch * mask
        return torch.addcmul(x, branch, mask)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, HEAD_DIM).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = self.add(x, self.proj(attended))
        return self.add(x, self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class Backbone(nn.Module):
    """DINO's vision transformer; returns the normalised class token. `stream` is the type of the residual stream."""

    def __init__(self, dim, depth, patch, drop_path, stream):
        super().__init__()
        self.patch, self.grid, self.stream = patch, GLOBAL_SIZE // patch, stream
        self.embed = nn.Linear(3 * patch * patch, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + self.grid * self.grid, dim))
        rates = torch.linspace(0, drop_path, depth).tolist()
        self.blocks = nn.ModuleList(Block(dim, 1.0 - rate) for rate in rates)
        self.norm = LayerNorm(dim, eps=1e-6)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def positions(self, g):
        if g == self.grid:
            return self.pos_embed
        patches = self.pos_embed[:, 1:].transpose(1, 2).unflatten(2, (self.grid, self.grid))
        scale = (g + 0.1) / self.grid
        resized = F.interpolate(patches, scale_factor=(scale, scale), mode="bicubic")
        return torch.cat((self.pos_embed[:, :1], resized.flatten(2).transpose(1, 2)), dim=1)

    def forward(self, images):
        b, c, size, _ = images.shape
        p, g = self.patch, size // self.patch
        patches = images.view(b, c, g, p, g, p).permute(0, 2, 4, 1, 3, 5).reshape(b, g * g, c * p * p)
        x = torch.cat((self.cls_token.expand(b, -1, -1), self.embed(patches)), dim=1) + self.positions(g)
        x = x.to(self.stream)
        for block in self.blocks:
            x = block(x)
        return self.norm(x[:, 0])


class Head(nn.Module):
    """d-2048-2048-256, L2 normalisation, K weight-normalised prototypes."""

    def __init__(self, dim, out_dim, hidden=2048, bottleneck=256):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, bottleneck)
        )
        for module in self.mlp:
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        self.weight_g = nn.Parameter(torch.ones(out_dim, 1))
        self.weight_v = nn.Parameter(torch.empty(out_dim, bottleneck).uniform_(-1 / 16, 1 / 16))

    def forward(self, features):
        y = F.normalize(self.mlp(features), dim=-1)
        return F.linear(y, torch._weight_norm(self.weight_v, self.weight_g, 0))


class Network(nn.Module):
    """Backbone and head under DINO's multi-crop rule: one backbone pass per resolution, one pass through the head."""

    def __init__(self, dim, depth, patch, out_dim, drop_path, stream):
        super().__init__()
        self.backbone, self.head = Backbone(dim, depth, patch, drop_path, stream), Head(dim, out_dim)

    def forward(self, groups):
        return self.head(torch.cat([self.backbone(images) for images in groups]))


def dino_loss(student, teacher, centre, batch):
    """Mean cross-entropy over the pairs (teacher view q, student view v), q != v; rows are view-major.

    Every student view v is compared with the same sum of teacher distributions, less its own where v is a global view,
    so each student row needs one product with one target. Computed in f32: bf16 logits are widened first, the teacher's
    by the centre.
    """
    with torch.no_grad():
        probabilities = F.softmax((teacher - centre) / TEACHER_TEMPERATURE, dim=-1).view(GLOBAL_CROPS, batch, -1)
        total = probabilities.sum(0)
        own = total - probabilities  # targets of the global views
        views = student.shape[0] // batch
        pairs = GLOBAL_CROPS * (views - 1)
    log_probabilities = F.log_softmax(student.float() / STUDENT_TEMPERATURE, dim=-1).view(views, batch, -1)
    loss = -torch.dot(log_probabilities[:GLOBAL_CROPS].reshape(-1), own.reshape(-1))
    if views > GLOBAL_CROPS:
        loss = loss - torch.dot(log_probabilities[GLOBAL_CROPS:].sum(0).reshape(-1), total.reshape(-1))
    return loss / (pairs * batch)


def clip_each(parameters):
    """Scales every gradient tensor whose norm is above CLIP; reading a norm is free on the CPU."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    for gradient, norm in zip(gradients, torch._foreach_norm(gradients)):
        coefficient = CLIP / (norm.item() + 1e-6)
        if coefficient < 1.0:
            gradient.mul_(coefficient)


def clip_each_on_device(parameters):
    """The same without reading a norm on the host, which would have to wait for the backward pass."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    coefficients = torch.stack(torch._foreach_norm(gradients)).add_(1e-6).reciprocal_().mul_(CLIP).clamp_(max=1.0)
    torch._foreach_mul_(gradients, list(coefficients.unbind()))


def finite(loss):
    value = loss.item()
    if not math.isfinite(value):
        raise SystemExit(f"torch_step: the loss is {value}")
    return value


def process_memory(field):
    """A field of /proc/self/status in bytes (VmHWM: peak resident size, VmRSS: resident size now)."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


def make_optimizer(student, kind):
    decayed = [p for n, p in student.named_parameters() if not (n.endswith(".bias") or p.ndim == 1)]
    plain = [p for n, p in student.named_parameters() if n.endswith(".bias") or p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 0.04}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-5, fused=kind == "fused", foreach=kind == "foreach")


class Trainer:
    """Everything that one step touches; `step` is what the clock sees, here on the CPU."""

    def __init__(self, args):
        torch.manual_seed(0)
        dim, depth = ARCHITECTURES[args.arch]
        self.batch, self.compiled = args.batch_size, args.compile
        with torch.device(args.device):
            shape, stream = (dim, depth, args.patch_size, args.out_dim), STREAMS[args.stream]
            self.student = Network(*shape, args.drop_path, stream)
            self.teacher = Network(*shape, 0.0, stream).requires_grad_(False)
            self.centre = torch.zeros(1, args.out_dim)
            # The crops of one resolution lie one after another, so that grouping them costs no copy inside the step.
            self.global_crops = torch.randn(GLOBAL_CROPS * self.batch, 3, GLOBAL_SIZE, GLOBAL_SIZE)
            self.crops = [self.global_crops]
            if args.local_crops:
                self.crops.append(torch.randn(args.local_crops * self.batch, 3, LOCAL_SIZE, LOCAL_SIZE))
        self.teacher.load_state_dict(self.student.state_dict())
        self.pairs = (list(self.teacher.parameters()), list(self.student.parameters()))
        self.optimizer = make_optimizer(self.student, args.optimizer)
        self.forward_student, self.forward_teacher, self.loss = self.student, self.teacher, dino_loss
        if args.compile:
            # Teacher and student share their code and differ in drop path. On a GPU, torch.compile must not take that
            # difference for a number that changes from call to call: it would generate slower code.
            compile_ = functools.partial(
                torch.compile, mode=args.compile_mode, dynamic=False if args.device == "cuda" else None
            )
            self.forward_student, self.forward_teacher = compile_(self.student), compile_(self.teacher)
            self.loss = compile_(dino_loss)

    def step(self):
        with torch.inference_mode():
            teacher_logits = self.forward_teacher([self.global_crops])
        with torch.no_grad():
            teacher_logits = teacher_logits.clone()
        loss = self.loss(self.forward_student(self.crops), teacher_logits, self.centre, self.batch)
        value = finite(loss)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        with torch.no_grad():
            self.centre.lerp_(teacher_logits.mean(0, keepdim=True), 1.0 - CENTRE_MOMENTUM)
            clip_each(self.pairs[1])
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.pairs[0], self.pairs[1], 1.0 - TEACHER_MOMENTUM)
        return value


class CudaTrainer(Trainer):
    """The step on a GPU: bf16 autocast, and nothing that makes the host wait before the step is complete."""

    def __init__(self, args):
        # Set before anything is compiled. Without the math kernel, attention that no fused kernel can do is an error
        # instead of a quiet [N, N] matrix.
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.set_float32_matmul_precision("high")
        torch.backends.cuda.enable_math_sdp(False)
        super().__init__(args)

    def step(self):
        if self.compiled:
            # With CUDA graphs (--compile-mode reduce-overhead) the teacher's output must survive the student's pass.
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            # Not inference mode: torch.compile and autocast do not all work with its tensors.
            with torch.no_grad():
                teacher_logits = self.forward_teacher([self.global_crops])
            student_logits = self.forward_student(self.crops)
        loss = self.loss(student_logits, teacher_logits, self.centre, self.batch)
        del student_logits  # the graph keeps what the backward pass needs
        loss.backward()
        with torch.no_grad():
            mean = teacher_logits.mean(0, keepdim=True, dtype=torch.float32)
            self.centre.lerp_(mean, 1.0 - CENTRE_MOMENTUM)
            clip_each_on_device(self.pairs[1])
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.pairs[0], self.pairs[1], 1.0 - TEACHER_MOMENTUM)
        return loss.detach()


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
    parser = argparse.ArgumentParser(description="One DINO step in PyTorch on the CPU or on a GPU.")
    parser.add_argument("--device", choices=sorted(WARM_UP_STEPS), default="cpu")
    parser.add_argument("--arch", choices=sorted(ARCHITECTURES), default="vit_tiny")
    parser.add_argument("--patch-size", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--local-crops", type=int, default=6)
    parser.add_argument("--out-dim", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as PyTorch chooses")
    parser.add_argument("--drop-path", type=float, default=0.1)
    parser.add_argument("--stream", choices=sorted(STREAMS), default="f32",
                        help="type of the residual stream; f32 is what autocast gives, bf16 is for cuda")  # fmt: skip
    parser.add_argument("--optimizer", choices=("fused", "foreach", "loop"), default="fused")
    parser.add_argument("--compile", action="store_true", help="torch.compile the networks and the loss")
    parser.add_argument("--compile-mode", default="default", help="`mode` of torch.compile, as in max-autotune")
    parser.add_argument("--default-malloc", action="store_true", help="leave glibc's allocator as it is")
    parser.add_argument("--profile", metavar="FILE", help="write a table of operators here, after the timed steps")
    parser.add_argument("--json", action="store_true", help="accepted for symmetry: the output is JSON anyway")
    args = parser.parse_args()

    cuda = args.device == "cuda"
    if cuda and not torch.cuda.is_available():
        parser.error("this PyTorch sees no CUDA device")
    if args.stream == "bf16" and not cuda:
        parser.error("--stream bf16 is for --device cuda: on the CPU nothing is bf16")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    if cuda:
        torch.cuda.init()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        before = process_memory("VmRSS")
    trainer = CudaTrainer(args) if cuda else Trainer(args)
    loss, warm_up = float("nan"), WARM_UP_STEPS[args.device]
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
                "arch": args.arch,
                "patch_size": args.patch_size,
                "batch_size": args.batch_size,
                "local_crops": args.local_crops,
                "out_dim": args.out_dim,
                "steps": args.steps,
                "compile": args.compile,
                "compile_mode": args.compile_mode if args.compile else None,
            }
        )
    )


if __name__ == "__main__":
    main()
