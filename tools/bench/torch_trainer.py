"""One training step around a method: forward passes, gradient, clipping, AdamW and the moving average of the teacher.

A method (`torch_dino.Dino`, `torch_ibot.Ibot`, `torch_msn.Msn`) is made under the device that it is to compute on, and
has:

  * `student` and `teacher`, networks with the same parameters, of which the second follow the first, and what each is
    called with in a step (`student_input`, `teacher_input`);
  * `loss`, a function of what the two return and of `loss_input`, and `own_parameters`, which it trains besides and
    which are neither averaged nor decayed nor clipped;
  * `after_backward`, which gets what the teacher returned, and moves a centre where there is one;
  * `clips_each_tensor`: whether the gradient of each tensor is clipped by its own norm, or all by their common one.
"""

import functools
import math

import torch

TEACHER_MOMENTUM, CLIP = 0.996, 3.0


def clip_each(parameters, limit=CLIP):
    """Scales every gradient tensor whose norm is above the limit; reading a norm is free on the CPU."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    for gradient, norm in zip(gradients, torch._foreach_norm(gradients)):
        coefficient = limit / (norm.item() + 1e-6)
        if coefficient < 1.0:
            gradient.mul_(coefficient)


def clip_each_on_device(parameters, limit=CLIP):
    """The same without reading a norm on the host, which would have to wait for the backward pass."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    coefficients = torch.stack(torch._foreach_norm(gradients)).add_(1e-6).reciprocal_().mul_(limit).clamp_(max=1.0)
    torch._foreach_mul_(gradients, list(coefficients.unbind()))


def clip_all(parameters):
    """Scales all gradients where their common norm is above CLIP. Nothing is read on the host."""
    torch.nn.utils.clip_grad_norm_(parameters, CLIP, foreach=True)


def finite(loss):
    value = loss.item()
    if not math.isfinite(value):
        raise SystemExit(f"torch_step: the loss is {value}")
    return value


def make_optimizer(method, kind):
    decayed = [p for n, p in method.student.named_parameters() if not (n.endswith(".bias") or p.ndim == 1)]
    plain = [p for n, p in method.student.named_parameters() if n.endswith(".bias") or p.ndim == 1]
    groups = [
        {"params": decayed, "weight_decay": 0.04},
        {"params": [*plain, *method.own_parameters], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-5, fused=kind == "fused", foreach=kind == "foreach")


class Trainer:
    """Everything that one step touches; `step` is what the clock sees, here on the CPU."""

    clip_each = staticmethod(clip_each)

    def __init__(self, args, make_method):
        torch.manual_seed(0)
        with torch.device(args.device):
            method = make_method(args)
        method.teacher.requires_grad_(False)
        method.teacher.load_state_dict(method.student.state_dict())
        self.method, self.compiled = method, args.compile
        self.pairs = (list(method.teacher.parameters()), list(method.student.parameters()))
        self.optimizer = make_optimizer(method, args.optimizer)
        self.student, self.teacher, self.loss = method.student, method.teacher, method.loss
        if args.compile:
            # Teacher and student share their code and differ in drop path. On a GPU, torch.compile must not take that
            # difference for a number that changes from call to call: it would generate slower code.
            compile_ = functools.partial(
                torch.compile, mode=args.compile_mode, dynamic=False if args.device == "cuda" else None
            )
            self.student, self.teacher = compile_(self.student), compile_(self.teacher)
            self.loss = compile_(self.loss)

    def step(self):
        method = self.method
        with torch.inference_mode():
            targets = self.teacher(*method.teacher_input)
        with torch.no_grad():
            targets = tuple(t.clone() for t in targets) if isinstance(targets, tuple) else targets.clone()
        loss = self.loss(self.student(*method.student_input), targets, *method.loss_input)
        value = finite(loss)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.update(targets)
        return value

    @torch.no_grad()
    def update(self, targets):
        """Everything that follows the backward pass."""
        self.method.after_backward(targets)
        clip = self.clip_each if self.method.clips_each_tensor else clip_all
        clip(self.pairs[1])
        self.optimizer.step()
        torch._foreach_lerp_(self.pairs[0], self.pairs[1], 1.0 - TEACHER_MOMENTUM)


class CudaTrainer(Trainer):
    """The step on a GPU: bf16 autocast, and nothing that makes the host wait before the step is complete."""

    clip_each = staticmethod(clip_each_on_device)

    def __init__(self, args, make_method):
        # Set before anything is compiled. Without the math kernel, attention that no fused kernel can do is an error
        # instead of a quiet [N, N] matrix.
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.set_float32_matmul_precision("high")
        torch.backends.cuda.enable_math_sdp(False)
        super().__init__(args, make_method)

    def step(self):
        method = self.method
        if self.compiled:
            # With CUDA graphs (--compile-mode reduce-overhead) the teacher's output must survive the student's pass.
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            # Not inference mode: torch.compile and autocast do not all work with its tensors.
            with torch.no_grad():
                targets = self.teacher(*method.teacher_input)
            predictions = self.student(*method.student_input)
        loss = self.loss(predictions, targets, *method.loss_input)
        del predictions  # the graph keeps what the backward pass needs
        loss.backward()
        self.update(targets)
        return loss.detach()
