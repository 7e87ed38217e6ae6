#!/usr/bin/env python3
"""Steps of torch.optim.AdamW in double precision -> crates/tensor/tests/fixtures/adamw.txt

    python tools/oracle/adamw_fixture.py

Needs: torch. The learning rate and the weight decay change at every step, the first rate is zero as a warm-up's is, one
gradient element is always zero and one is far smaller than epsilon.

Format: lines of a name and numbers, separated by spaces, each number as Python prints an f64 (it reads back exactly).
    start     the parameter before the first step
    then for each step
    step      lr, weight decay
    gradient  the gradient that the optimiser was given
    value, first, second      the parameter and its two moments after the step
"""

import pathlib

import torch

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "tensor" / "tests" / "fixtures" / "adamw.txt"
STEPS = [(0.0, 0.04), (0.01, 0.05), (0.01, 0.1), (0.0085, 0.2), (0.005, 0.3), (1e-6, 0.4)]
ELEMENTS = 8


def line(name, numbers):
    return " ".join([name, *(repr(float(n)) for n in numbers)]) + "\n"


def main():
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(ELEMENTS, dtype=torch.float64))
    optimizer = torch.optim.AdamW([parameter], lr=1.0, betas=(0.9, 0.999), eps=1e-8, foreach=False, fused=False)
    text = f"# AdamW; made by tools/oracle/adamw_fixture.py with torch {torch.__version__.split('+')[0]}\n"
    text += line("start", parameter.detach())
    for lr, decay in STEPS:
        gradient = torch.randn(ELEMENTS, dtype=torch.float64)
        gradient[0] = 0.0
        gradient[1] *= 1e-12
        for group in optimizer.param_groups:
            group["lr"], group["weight_decay"] = lr, decay
        parameter.grad = gradient
        optimizer.step()
        state = optimizer.state[parameter]
        text += line("step", (lr, decay)) + line("gradient", gradient)
        text += line("value", parameter.detach())
        text += line("first", state["exp_avg"]) + line("second", state["exp_avg_sq"])
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(text)


if __name__ == "__main__":
    main()
