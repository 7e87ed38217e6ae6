#!/usr/bin/env python3
"""Six training steps of iBOT and iBOT-vMF on a toy problem -> crates/ssl/tests/fixtures/ibot_trajectory.json

    python tools/oracle/ibot_trajectory.py

Needs: torch. All in f64 with autograd and torch.optim.AdamW; network, pixels and schedules are those of toy_network.py.
It first checks the losses against published values and at the end how much rounding can move the results.

Parameters after the head's linear layers: head.last_layer.weight_g [K, 1] and .weight_v [K, 16]; with a separate patch layer
head.last_layer2.weight_g [Kp, 1] and .weight_v [Kp, 16]; last mask_token [1, 32], which the teacher has not. K = 24, Kp = 20.
Patch i of global view v of image b is masked at iteration t where sin(0.7 i + 0.1 + 1.3 (2 v + b) + 0.9 t) > 0.2, but at
even t view 1 of image 1 has no mask. Student: masked globals, whole locals. Teacher: whole globals.
Loss = class + 0.7 patch. Student temperature 0.1; teacher's by epoch 0.04, 0.07, 0.07 (class) and 0.05, 0.08, 0.08 (patch).
The centres begin at 0 and move with momentum 0.9 after the loss; the patch centre sees all patches, masked or not.
Each tensor's gradient is clipped at 0.05; the prototypes are frozen in epoch 0; the teacher moves after the step.

Modes:
    none_logit_shared          g trained, centres of raw logits divided by the temperature, patches use last_layer
    vmf_probability_shared     with the normaliser at each network's own temperature, centres of log mean probabilities that are
                               not divided by the temperature; g begins as 1 + 0.3 sin(0.5 k)
    vmf_probability_separate   the same, patches use last_layer2 with g from 1 + 0.3 cos(0.5 k)
    l2_logit_shared            as the first with g = 1 throughout

Format:
    torch, lr[], weight_decay[], momentum[]     the version and the schedules by iteration
    teacher_feature[2][4]     class token after the final norm, view 0 at iteration 0 before the first step: 4 values an image
    modes{name}:
        steps[]:  loss, class_loss, patch_loss (before its factor 0.7)
                  masked           masked patches of all views and images
                  gradient_norm    of all gradients together before clipping, the frozen prototypes' included
                  clipped          tensors that the clipping changed, frozen ones not counted
                  student_norm     of all parameters after the step, with mask_token and an untrained g
                  teacher_norm     the same after its average, without mask_token
                  class_centre_norm, patch_centre_norm     after the step
        class_centre[], patch_centre[], mask_token[], weight_g[]     first 5 values at the end; the last two the student's,
                  weight_g that of head.last_layer
        moved[7]  the largest relative change of the float results of each step, then of the values at the end, when all weights
                  are changed by a relative 1e-13: how far to trust them if the two sides' weights differ that much. Rounding
                  alone (hidden units summed in other orders) moved no result by more than 1e-10.
"""

import functools
import json
import math
import pathlib

import torch

import toy_network as toy

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "ssl" / "tests" / "fixtures" / "ibot_trajectory.json"
CLASSES, PATCH_CLASSES, GLOBALS = 24, 20, 2
STUDENT_TEMPERATURE, CLASS_TEMPERATURE, PATCH_TEMPERATURE = 0.1, (0.04, 0.07, 0.07), (0.05, 0.08, 0.08)
PATCH_FACTOR, CENTRE_MOMENTUM, CLIP, FROZEN_EPOCHS = 0.7, 0.9, 0.05, 1
# mode: (normaliser, centring, separate patch layer)
MODES = {
    "none_logit_shared": ("none", "logit", False),
    "vmf_probability_shared": ("vmf", "probability", False),
    "vmf_probability_separate": ("vmf", "probability", True),
    "l2_logit_shared": ("l2", "logit", False),
}


def scaled(raw, g, temperature, normaliser):
    """Logits in units of the temperature, from raw ones <w, y> [..., K] and the prototypes' lengths [K, 1]."""
    if normaliser != "vmf":
        return raw / temperature
    return raw / temperature + toy.delta(g.abs().flatten() / temperature, toy.BOTTLENECK)


def targets(raw, g, temperature, normaliser, centring, centre):
    """The teacher's probabilities, and the centre after them (over all leading dimensions)."""
    logits = scaled(raw, g, temperature, normaliser)
    if centring == "probability":
        q = torch.softmax(logits - centre, dim=-1)
        rows = torch.log_softmax(logits, dim=-1).flatten(0, -2)
        mean = torch.logsumexp(rows, dim=0) - math.log(len(rows))
    elif normaliser == "vmf":  # its centre holds the normaliser and is already divided by the temperature
        q = torch.softmax(logits - centre, dim=-1)
        mean = logits.flatten(0, -2).mean(dim=0)
    else:
        q = torch.softmax((raw - centre) / temperature, dim=-1)
        mean = raw.flatten(0, -2).mean(dim=0)
    return q, CENTRE_MOMENTUM * centre + (1 - CENTRE_MOMENTUM) * mean


def class_loss(student, q):
    """Student logits [V, B, K] and targets [G, B, K]: all pairs of different views."""
    log_p = torch.log_softmax(student, dim=-1)
    terms = [-(q[i] * log_p[j]).sum(dim=-1).mean() for i in range(len(q)) for j in range(len(log_p)) if i != j]
    return sum(terms) / len(terms)


def patch_loss(student, q, mask):
    """Student logits and targets [G, B, N, K], mask [G, B, N]: mean over an image's masked patches, then images and views."""
    cross_entropy = -(q * torch.log_softmax(student, dim=-1)).sum(dim=-1)
    per_image = (cross_entropy * mask).sum(dim=-1) / mask.sum(dim=-1).clamp(min=1)
    return per_image.mean()


def prototypes(g, v):
    return g * v / v.norm(dim=1, keepdim=True)


def masks(iteration):
    """[GLOBALS, BATCH, patches]"""
    i = torch.arange(toy.GRID**2, dtype=torch.float64)
    out = torch.zeros(GLOBALS, toy.BATCH, len(i), dtype=torch.bool)
    for v in range(GLOBALS):
        for b in range(toy.BATCH):
            wave = torch.sin(0.7 * i + 0.1 + 1.3 * (2 * v + b) + 0.9 * iteration)
            assert (wave - 0.2).abs().min() > 1e-4  # no rounding decides about a patch
            out[v, b] = wave > 0.2
    if iteration % 2 == 0:
        out[1, 1] = False
    return out


def raw_logits(net, images, separate, mask=None):
    """<w, y> of the class token [b, K] and of the patches [b, N, K or Kp]."""
    y = toy.project(net, toy.encode(net, toy.embed(net, images, mask)))
    layer = [prototypes(net[f"head.{name}.weight_g"], net[f"head.{name}.weight_v"])
             for name in ("last_layer", "last_layer2" if separate else "last_layer")]
    return y[:, 0] @ layer[0].T, y[:, 1:] @ layer[1].T


def network(separate, normaliser, **change):
    layers = {"last_layer": CLASSES, "last_layer2": PATCH_CLASSES} if separate else {"last_layer": CLASSES}
    tail = {}
    for name, count in layers.items():
        tail[f"head.{name}.weight_g"], tail[f"head.{name}.weight_v"] = (count, 1), (count, toy.BOTTLENECK)
    tail["mask_token"] = (1, toy.DIM)
    lengths = {}
    if normaliser == "vmf":
        lengths["head.last_layer.weight_g"] = 1 + 0.3 * torch.sin(0.5 * torch.arange(CLASSES, dtype=torch.float64))
        lengths["head.last_layer2.weight_g"] = 1 + 0.3 * torch.cos(0.5 * torch.arange(PATCH_CLASSES, dtype=torch.float64))
    return toy.parameters(toy.shapes(tail), lengths, **change)


def train(mode, **change):
    normaliser, centring, separate = MODES[mode]
    student, teacher = (network(separate, normaliser, **change) for _ in range(2))
    del teacher["mask_token"]
    trained = {n: p.requires_grad_() for n, p in student.items() if normaliser != "l2" or not n.endswith("weight_g")}
    optimizer = toy.adamw([p for n, p in trained.items() if toy.decayed(n, p)],
                          [p for n, p in trained.items() if not toy.decayed(n, p)])
    schedule = toy.schedules()
    patch_layer = "head.last_layer2" if separate else "head.last_layer"
    class_centre = torch.zeros(CLASSES, dtype=torch.float64)
    patch_centre = torch.zeros(PATCH_CLASSES if separate else CLASSES, dtype=torch.float64)
    steps = []
    for t in range(toy.ITERATIONS):
        epoch = t // toy.PER_EPOCH
        toy.set_step(optimizer, schedule["lr"][t], schedule["weight_decay"][t])
        views, mask = [toy.pixels(v, t) for v in range(toy.VIEWS)], masks(t)
        with torch.no_grad():
            cls, patches = zip(*(raw_logits(teacher, views[v], separate) for v in range(GLOBALS)))
            class_q, next_class_centre = targets(torch.stack(cls), teacher["head.last_layer.weight_g"],
                                                 CLASS_TEMPERATURE[epoch], normaliser, centring, class_centre)
            patch_q, next_patch_centre = targets(torch.stack(patches), teacher[f"{patch_layer}.weight_g"],
                                                 PATCH_TEMPERATURE[epoch], normaliser, centring, patch_centre)
        cls, patches = zip(*(raw_logits(student, views[v], separate, mask[v] if v < GLOBALS else None)
                             for v in range(toy.VIEWS)))
        of_class = class_loss(scaled(torch.stack(cls), student["head.last_layer.weight_g"], STUDENT_TEMPERATURE,
                                     normaliser), class_q)
        of_patch = patch_loss(scaled(torch.stack(patches[:GLOBALS]), student[f"{patch_layer}.weight_g"],
                                     STUDENT_TEMPERATURE, normaliser), patch_q, mask)
        loss = of_class + PATCH_FACTOR * of_patch
        class_centre, patch_centre = next_class_centre, next_patch_centre

        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        gradient_norm = toy.norm(p.grad for p in trained.values() if p.grad is not None)
        clipped = 0
        for name, p in trained.items():
            if epoch < FROZEN_EPOCHS and "last_layer" in name:
                p.grad = None
                continue
            size = float(p.grad.norm())
            assert abs(size + 1e-6 - CLIP) > 1e-6 * CLIP  # no rounding decides about a tensor
            coefficient = CLIP / (size + 1e-6)
            if coefficient < 1:
                p.grad.mul_(coefficient)
                clipped += 1
        optimizer.step()
        m = schedule["momentum"][t]
        with torch.no_grad():
            for name in teacher:
                teacher[name] = m * teacher[name] + (1 - m) * student[name]
        steps.append({
            "loss": loss.item(), "class_loss": of_class.item(), "patch_loss": of_patch.item(), "masked": int(mask.sum()),
            "gradient_norm": gradient_norm, "clipped": clipped,
            "student_norm": toy.norm(student.values()), "teacher_norm": toy.norm(teacher.values()),
            "class_centre_norm": toy.norm([class_centre]), "patch_centre_norm": toy.norm([patch_centre]),
        })
    return {
        "steps": steps, "class_centre": toy.first(class_centre), "patch_centre": toy.first(patch_centre),
        "mask_token": toy.first(student["mask_token"]), "weight_g": toy.first(student["head.last_layer.weight_g"]),
    }


def check_ibot():
    """The published numbers of iBOT's loss."""
    def wave(phase, step, *shape):
        return torch.sin(phase + step * torch.arange(math.prod(shape), dtype=torch.float64)).reshape(shape)

    k, b, n, g, l = 5, 2, 9, 2, 2
    # the mask of view i is sin(0.7 i + 0.1 + 1.3 n) > 0.2 with n flat over images and patches
    mask = torch.stack([wave(0.1 + 0.7 * view, 1.3, b, n) > 0.2 for view in range(g)])
    mask[1, 1] = False
    centre, ones = torch.zeros(k, dtype=torch.float64), torch.ones(k, 1, dtype=torch.float64)
    class_q, class_centre = targets(wave(0.3, 0.53, g, b, k), ones, 0.04, "none", "logit", centre)
    patch_q, patch_centre = targets(wave(0.4, 0.29, g, b, n, k), ones, 0.07, "none", "logit", centre)
    student = torch.cat((wave(0.1, 0.37, g, b, k), wave(0.5, 0.61, l, b, k)))
    toy.close(class_loss(student / 0.1, class_q), 3.149792501095, 1e-11, "class loss")
    toy.close(patch_loss(wave(0.2, 0.41, g, b, n, k) / 0.1, patch_q, mask), 4.957863337621, 1e-11, "patch loss")
    toy.close(class_centre, [0.0194320107, 0.0213595067, 0.0174262561, 0.0087114873, -0.0023935905], 1e-9, "class centre")
    toy.close(patch_centre, [0.0020658639, 0.0027692946, 0.0032414553, 0.0034429148, 0.0033568487], 1e-9, "patch centre")


def check_vmf():
    """The published numbers of the class loss with each normaliser and each centre."""
    i = torch.arange(16, dtype=torch.float64)
    v = torch.stack([torch.sin(1 + 0.7 * k + 0.3 * i) for k in range(6)])
    lengths = 1 + 0.5 * torch.arange(6, dtype=torch.float64)[:, None]
    z_student = torch.stack([torch.sin(0.5 + 0.8 * n + 0.55 * i) for n in range(8)])
    z_teacher = torch.stack([torch.cos(0.2 + 0.9 * n + 0.45 * i) for n in range(4)])
    centre = 0.05 * torch.arange(6, dtype=torch.float64)
    vmf = (14.110618884757, 2.4621469083, 3.3987570875,
           [-1.2434688323, -0.246875189, 0.5282048375, 1.1418437603, 2.0270229302, 2.1956608074])
    table = {
        ("none", "logit"): (11.805039575579, 4.7736770518, 4.2626064532,
                            [0.5390014837, 0.369997942, 1.0457414949, 0.7671244092, 0.3777381116, 1.4890720458],
                            [-0.0425979388, -0.011955292, 0.0652069641, 0.1889854029, 0.2984204707, 0.3731320531]),
        ("none", "probability"): (11.791096538591, 4.7676211848, 4.2674733255,
                                  [0.5390014906, 0.369997942, 1.0456511994, 0.7671854336, 0.3717759801, 1.490206726],
                                  [-2.3773258556, -3.073941087, -0.9511382691, -0.0036435698, 0.0371102288, 0.1577502908]),
        ("l2", "logit"): (5.2023332549, 1.5575175719, 1.6779057885, None, None),
        ("l2", "probability"): (5.201685585145, 1.5637474302, 1.7565766863, None,
                                [-0.8839234582, -1.1357953122, -0.1683281386, -0.0296106082, 0.0302985156, 0.1572185524]),
        ("vmf", "logit"): (*vmf, [-1.7256131727, -2.70521604, -2.8219875284, -2.0465046331, -1.5843426148, -1.8354034664]),
        ("vmf", "probability"): (*vmf, [-0.1386294354, -1.4686167285, -0.150712981, -0.0476016442, 0.0409180067,
                                        0.0863710667]),
    }
    for (normaliser, centring), (loss, of_v, of_z, of_g, moved) in table.items():
        g = (torch.ones_like(lengths) if normaliser == "l2" else lengths.clone()).requires_grad_()
        directions, z = v.clone().requires_grad_(), z_student.clone().requires_grad_()
        raw = torch.nn.functional.normalize(z, dim=1) @ prototypes(g, directions).T
        with torch.no_grad():
            teacher = torch.nn.functional.normalize(z_teacher, dim=1) @ prototypes(g, directions).T
            q, new = targets(teacher.reshape(2, 2, 6), g, 0.05, normaliser, centring, centre)
        got = class_loss(scaled(raw, g, 0.1, normaliser).reshape(4, 2, 6), q)
        got.backward()
        what = f"{normaliser}/{centring}"
        toy.close(got, loss, 1e-9, what)
        toy.close(directions.grad.norm(), of_v, 1e-9, f"{what} dv")
        toy.close(z.grad.norm(), of_z, 1e-9, f"{what} dz")
        if of_g:
            toy.close(g.grad.flatten(), of_g, 1e-9, f"{what} dg")
        if moved:
            toy.close(new, moved, 1e-9, f"{what} centre")


def teacher_feature(**change):
    net = network(False, "none", **change)
    with torch.no_grad():
        return toy.encode(net, toy.embed(net, toy.pixels(0, 0)))[:, 0, :4].tolist()


def main():
    torch.set_num_threads(1)
    toy.check_parts()
    check_ibot()
    check_vmf()
    out = {"torch": torch.__version__.split("+")[0], **toy.schedules(), "teacher_feature": teacher_feature(), "modes": {}}
    toy.conditioning("teacher_feature", teacher_feature, out["teacher_feature"])
    for mode in MODES:
        out["modes"][mode] = train(mode)
        out["modes"][mode]["moved"] = toy.conditioning(mode, functools.partial(train, mode), out["modes"][mode])
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
