#!/usr/bin/env python3
"""Checks that the PyTorch side of the comparisons computes what it is to be timed for.

    python tools/bench/torch_check.py

The losses, and the centres after them, against digits of the released code of iBOT and MSN on toy problems (the ones
that the tests of dino-vmf use); DINO's loss against the sum over its pairs of views; the log-normaliser against what it
is in two and three dimensions; the derivative of `TakeRows` against that of plain indexing; the masks against their
rule. In f32, as the step computes, but for the normaliser. Ends with an error at the first difference.
"""

import math

import torch
import torch.nn.functional as F

from torch_dino import between_views
from torch_ibot import (
    DRAWS,
    MASKED_VIEWS,
    PATCH_TEMPERATURE,
    Ibot,
    Teacher,
    draw_masks,
    ibot_loss,
    rows_and_weights,
)
from torch_msn import msn_loss, sinkhorn
from torch_run import LogNormalizer
from torch_vit import TakeRows

CLASS_CENTRE = [0.0194320107, 0.0213595067, 0.0174262561, 0.0087114873, -0.0023935905]
PATCH_CENTRE = [0.0020658639, 0.0027692946, 0.0032414553, 0.0034429148, 0.0033568487]


def near(what, got, expected, tolerance=1e-5):
    got, expected = torch.as_tensor(got), torch.as_tensor(expected)
    if not torch.allclose(got, expected.to(got.dtype), rtol=tolerance, atol=tolerance * 1e-2):
        raise SystemExit(f"torch_check: {what} is {got.tolist()}, not {expected.tolist()}")
    print(f"{what}: as expected")


def sines(phase, step, *shape):
    """sin(phase + step * i) over the elements of a tensor."""
    count = math.prod(shape)
    return torch.sin(phase + step * torch.arange(count, dtype=torch.float64)).float().view(shape)


def check_ibot():
    batch, views, patches, k = 2, 2, 9, 5
    masks = torch.stack([sines(0.1 + 0.7 * view, 1.3, batch, patches) > 0.2 for view in range(views)])
    masks[1, 1] = False
    rows, weights = rows_and_weights(masks.flatten(0, 1))

    def read(of_class, of_patches):
        tokens = torch.cat((of_class.view(-1, 1, k), of_patches.view(-1, patches, k)), dim=1)
        return tokens.flatten(0, 1)[rows]

    student = read(sines(0.1, 0.37, views * batch, k), sines(0.2, 0.41, views * batch, patches, k))
    student = torch.cat((student, sines(0.5, 0.61, 2 * batch, k)))
    t_class, t_patches = sines(0.3, 0.53, views * batch, k), sines(0.4, 0.29, views * batch, patches, k)
    teacher, zero = read(t_class, t_patches), torch.zeros(1, k)
    loss = ibot_loss(student, (teacher, None), zero, zero, weights, batch)
    near("iBOT's loss", loss, 3.149792501095 + 4.957863337621)
    near("iBOT's class loss", ibot_loss(student, (teacher, None), zero, zero, 0 * weights, batch), 3.149792501095)
    step = Ibot.__new__(Ibot)
    step.centering, step.hidden_patches, step.centres = "logit", len(weights), (torch.zeros(1, k), torch.zeros(1, k))
    step.after_backward((teacher, t_patches.mean((0, 1)).view(1, k)))
    near("iBOT's class centre", step.centres[0][0], CLASS_CENTRE)
    near("iBOT's patch centre", step.centres[1][0], PATCH_CENTRE)


@torch.no_grad()
def check_centre_of_patches():
    """The logits of the mean are the mean of the logits; and the mean of probabilities, in units of logits."""
    network = Teacher(192, 1, 16, 50, stream=torch.float32, centering="logit")
    y = F.normalize(torch.randn(5, 8, 256), dim=-1)
    logits = network.head.logits(y).flatten(0, 1)
    near("the mean of logits", network.mean_logits(y)[0], logits.mean(0))
    log_mean = torch.logsumexp(F.log_softmax(logits / PATCH_TEMPERATURE, dim=-1), dim=0) - math.log(40)
    near("the mean of probabilities", network.log_mean_probabilities(y)[0], PATCH_TEMPERATURE * log_mean)


def check_msn():
    anchors = F.normalize(sines(0.2, 0.47, 6, 8), dim=-1).requires_grad_()
    target, prototypes = F.normalize(sines(0.6, 0.33, 2, 8), dim=-1), sines(0.9, 0.71, 6, 8).requires_grad_()
    loss = msn_loss(anchors, target, prototypes)
    near("MSN's loss", loss, 10.263708918179 + 0.137532143367)
    loss.backward()
    near("the gradient of MSN's prototypes", prototypes.grad.norm(), 1.6415845893)
    shares = sinkhorn(F.softmax(3.0 * sines(0.0, 1.3, 12, 5), dim=-1))
    near("the rows of Sinkhorn", shares.sum(1), torch.ones(12))


def check_dino():
    batch, views, k = 3, 5, 7
    student = F.log_softmax(3.0 * sines(0.1, 0.37, views * batch, k), dim=-1)
    teacher = F.softmax(3.0 * sines(0.3, 0.53, 2 * batch, k), dim=-1)
    pairs = [(q, v) for q in range(2) for v in range(views) if q != v]
    rows = lambda of, view: of[view * batch : (view + 1) * batch]
    expected = sum(-(rows(teacher, q) * rows(student, v)).sum(-1).mean() for q, v in pairs) / len(pairs)
    near("DINO's loss", between_views(student, teacher, batch), expected)


def check_normalizer():
    """In three dimensions the normaliser has sinh(kappa) / kappa, in two the Bessel function I_0."""
    kappa = torch.tensor([0.01, 0.5, 3.0, 40.0, 300.0], dtype=torch.float64, requires_grad=True)
    found, flat = LogNormalizer(3)(kappa), LogNormalizer(2)(kappa)
    sinh = kappa + torch.log(-torch.expm1(-2 * kappa) / (2 * kappa))
    near("the normaliser in three dimensions", found, -sinh, 1e-12)
    (slope,) = torch.autograd.grad(found.sum(), kappa)
    near("its derivative", slope[1:], (1 / kappa - 1 / torch.tanh(kappa))[1:], 1e-10)
    near("the normaliser in two dimensions", flat, -(kappa + torch.log(torch.special.i0e(kappa))), 1e-12)


def check_rows():
    x, index = torch.randn(7, 3, requires_grad=True), torch.tensor([5, 0, 3])
    weights = torch.randn(3, 3)
    (expected,) = torch.autograd.grad((x[index] * weights).sum(), x)
    (got,) = torch.autograd.grad((TakeRows.apply(x, index) * weights).sum(), x)
    near("the derivative of TakeRows", got, expected)


def check_masks():
    views = DRAWS
    drawn = draw_masks(views, 14)
    sizes = [len(patches) for patches in drawn if patches]
    near("the share of masked views", len(sizes) / views, MASKED_VIEWS, 0.1)
    # At most a share of 0.1 to 0.5, and little less: a small rectangle nearly always fits.
    mean = sum(sizes) / len(sizes) / 14**2
    if not (0.25 < mean < 0.3 and max(sizes) <= 0.5 * 14**2):
        raise SystemExit(f"torch_check: masked views have {mean} of their patches masked, and up to {max(sizes)}")
    print(f"masked views: {mean:.3f} of the patches, in all {sum(sizes) / views:.2f} a view")
    for count in (2900, 3400):
        near(f"masks of {count} patches", float(sum(map(len, draw_masks(128, 14, count)))), float(count), 1e-2)


if __name__ == "__main__":
    torch.manual_seed(0)
    check_ibot()
    check_centre_of_patches()
    check_msn()
    check_dino()
    check_normalizer()
    check_rows()
    check_masks()
