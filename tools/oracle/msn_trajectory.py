#!/usr/bin/env python3
"""Six training steps of MSN on a toy problem -> crates/ssl/tests/fixtures/msn_trajectory.json

    python tools/oracle/msn_trajectory.py

Needs: torch. All in f64 with autograd and torch.optim.AdamW; network, pixels and schedules are those of toy_network.py, also
its rule for positions (DINO's). It first checks the losses against published values and at the end how much rounding can move
the results.

Parameters after the head's linear layers: prototypes [10, 16], or in mode vmf prototypes.weight_g [10, 1] (1 + 0.3 sin(0.5 k))
and prototypes.weight_v [10, 16]. Both branches use the student's as they are before the step; no gradient through targets.
View 0 is the teacher's alone and whole. Anchors are view 1, of which image b keeps at iteration t the patches i with
sin(1.1 i + 0.4 + 1.7 b + 0.8 t) > -0.3 and always the class token, and the whole views 2 and 3.
Loss = mean cross-entropy + (ln K - entropy of the mean anchor probability); temperature 0.1, targets sharpened by 0.25.
All but the prototypes: gradients clipped together at 0.05, decayed unless a bias or 1-D, averaged into the teacher after the
step. The prototypes: neither clipped, decayed nor averaged. Nothing is frozen.

Modes:
    sinkhorn   3 iterations on the targets of the batch
    plain      without them
    vmf        logits g <v / |v|, y> / 0.1 + Delta(|g| / 0.1), p = 16, of both branches; targets softmax(logits / 0.25)

Format:
    torch, lr[], weight_decay[], momentum[]     the version and the schedules by iteration
    modes{name}:
        steps[]:  loss, cross_entropy, me_max
                  kept              patches that view 1 keeps, of all images
                  gradient_norm     of all gradients but the prototypes' together, before clipping
                  prototype_gradient_norm     in mode vmf of g and v together
                  student_norm      of all parameters after the step, with the prototypes
                  teacher_norm      the same after its average, without the prototypes
        prototypes[]     first 5 values at the end; in mode vmf of weight_v
        weight_g[]       first 5 values at the end, only in mode vmf
        moved[7]  the largest relative change of the float results of each step, then of the values at the end, when all weights
                  are changed by a relative 1e-13: how far to trust them if the two sides' weights differ that much. Rounding
                  alone (hidden units summed in other orders) moved no result by more than 1e-10.
"""

import functools
import json
import math
import pathlib

import torch
import torch.nn.functional as F

import toy_network as toy

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "ssl" / "tests" / "fixtures" / "msn_trajectory.json"
PROTOTYPES, TEMPERATURE, SHARPEN, CLIP, SINKHORN_ITERATIONS, ME_MAX = 10, 0.1, 0.25, 0.05, 3, 1.0
MODES = ("sinkhorn", "plain", "vmf")


def sinkhorn(t):
    """Rows t [B, K] of probabilities so rescaled that the prototypes are used evenly."""
    b, k = t.shape
    q = t.T / t.sum()
    for _ in range(SINKHORN_ITERATIONS):
        q = q / q.sum(dim=1, keepdim=True) / k
        q = q / q.sum(dim=0, keepdim=True) / b
    return (q * b).T


def losses(anchors, targets, with_sinkhorn):
    """Cross-entropy and me-max of logits [A * B, K] (view-major) and [B, K]."""
    t = torch.softmax(targets.detach() / SHARPEN, dim=-1)
    if with_sinkhorn:
        t = sinkhorn(t)
    log_p = torch.log_softmax(anchors, dim=-1)
    cross_entropy = -(t.repeat(len(anchors) // len(t), 1) * log_p).sum(dim=-1).mean()
    mean = log_p.exp().mean(dim=0)
    return cross_entropy, math.log(anchors.shape[-1]) + (mean * mean.log()).sum()


def logits(net, y):
    if "prototypes" in net:
        return y @ F.normalize(net["prototypes"], dim=1, eps=1e-12).T / TEMPERATURE
    g, v = net["prototypes.weight_g"], net["prototypes.weight_v"]
    raw = y @ (g * v / v.norm(dim=1, keepdim=True)).T
    return raw / TEMPERATURE + toy.delta(g.abs().flatten() / TEMPERATURE, toy.BOTTLENECK)


def kept(iteration, image):
    wave = torch.sin(1.1 * torch.arange(toy.GRID**2, dtype=torch.float64) + 0.4 + 1.7 * image + 0.8 * iteration)
    assert (wave + 0.3).abs().min() > 1e-4  # no rounding decides about a patch
    return torch.nonzero(wave > -0.3).flatten()


def class_vector(net, images, keep=None):
    """Unit vectors [b, 16]; keep is a list of the patches that each image keeps. Images may keep different numbers of them,
    so then each goes through the network alone."""
    x = toy.embed(net, images)
    if keep is None:
        return toy.project(net, toy.encode(net, x)[:, 0])
    alone = [torch.cat((x[b : b + 1, :1], x[b : b + 1, 1 + index]), dim=1) for b, index in enumerate(keep)]
    return torch.cat([toy.project(net, toy.encode(net, tokens)[:, 0]) for tokens in alone])


def network(mode, **change):
    if mode == "vmf":
        tail = {"prototypes.weight_g": (PROTOTYPES, 1), "prototypes.weight_v": (PROTOTYPES, toy.BOTTLENECK)}
    else:
        tail = {"prototypes": (PROTOTYPES, toy.BOTTLENECK)}
    lengths = {"prototypes.weight_g": 1 + 0.3 * torch.sin(0.5 * torch.arange(PROTOTYPES, dtype=torch.float64))}
    return toy.parameters(toy.shapes(tail), lengths, **change)


def train(mode, **change):
    student = {name: p.requires_grad_() for name, p in network(mode, **change).items()}
    encoder = {name: p for name, p in student.items() if not name.startswith("prototypes")}
    heads = {name: p for name, p in student.items() if name.startswith("prototypes")}
    teacher = {name: p.detach().clone() for name, p in encoder.items()}
    optimizer = toy.adamw([p for n, p in encoder.items() if toy.decayed(n, p)],
                          [p for n, p in encoder.items() if not toy.decayed(n, p)] + list(heads.values()))
    schedule = toy.schedules()
    steps = []
    for t in range(toy.ITERATIONS):
        toy.set_step(optimizer, schedule["lr"][t], schedule["weight_decay"][t])
        views, keep = [toy.pixels(v, t) for v in range(toy.VIEWS)], [kept(t, b) for b in range(toy.BATCH)]
        with torch.no_grad():
            target = logits(student, class_vector(teacher, views[0]))
        anchors = torch.cat([class_vector(student, views[1], keep), class_vector(student, views[2]),
                             class_vector(student, views[3])])
        cross_entropy, me_max = losses(logits(student, anchors), target, mode == "sinkhorn")
        loss = cross_entropy + ME_MAX * me_max

        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        gradient_norm = toy.norm(p.grad for p in encoder.values())
        prototype_gradient_norm = toy.norm(p.grad for p in heads.values())
        coefficient = min(1.0, CLIP / (gradient_norm + 1e-6))
        for p in encoder.values():
            p.grad.mul_(coefficient)
        optimizer.step()
        m = schedule["momentum"][t]
        with torch.no_grad():
            for name in teacher:
                teacher[name] = m * teacher[name] + (1 - m) * student[name]
        steps.append({
            "loss": loss.item(), "cross_entropy": cross_entropy.item(), "me_max": me_max.item(),
            "kept": sum(len(index) for index in keep),
            "gradient_norm": gradient_norm, "prototype_gradient_norm": prototype_gradient_norm,
            "student_norm": toy.norm(student.values()), "teacher_norm": toy.norm(teacher.values()),
        })
    if mode == "vmf":
        return {"steps": steps, "prototypes": toy.first(heads["prototypes.weight_v"]),
                "weight_g": toy.first(heads["prototypes.weight_g"])}
    return {"steps": steps, "prototypes": toy.first(heads["prototypes"])}


def check_msn():
    """The published numbers of MSN's loss."""
    def wave(phase, step, *shape):
        return torch.sin(phase + step * torch.arange(math.prod(shape), dtype=torch.float64)).reshape(shape)

    for with_sinkhorn, ce, of_prototypes, of_anchors in ((False, 9.339449653318, 1.8668670768, 2.0487394299),
                                                         (True, 10.263708918179, 1.6415845893, 1.9876214082)):
        anchors, net = wave(0.2, 0.47, 6, 8).requires_grad_(), {"prototypes": wave(0.9, 0.71, 6, 8).requires_grad_()}
        cross_entropy, me_max = losses(logits(net, F.normalize(anchors, dim=1)),
                                       logits(net, F.normalize(wave(0.6, 0.33, 2, 8), dim=1)), with_sinkhorn)
        (cross_entropy + me_max).backward()
        toy.close(cross_entropy, ce, 1e-11, "cross-entropy")
        toy.close(me_max, 0.137532143367, 1e-11, "me-max")
        toy.close(net["prototypes"].grad.norm(), of_prototypes, 1e-9, "gradient of the prototypes")
        toy.close(anchors.grad.norm(), of_anchors, 1e-9, "gradient of the anchors")


def main():
    torch.set_num_threads(1)
    toy.check_parts()
    check_msn()
    out = {"torch": torch.__version__.split("+")[0], **toy.schedules(), "modes": {}}
    for mode in MODES:
        out["modes"][mode] = train(mode)
        out["modes"][mode]["moved"] = toy.conditioning(mode, functools.partial(train, mode), out["modes"][mode])
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
