"""MSN in PyTorch: the networks and the loss of one step.

The teacher sees one crop of 224 pixels of each image, the target. The student sees the anchors: another such crop of
which 0.15 of the patches are left out, and the local ones, which MSN calls focal. Which patches are kept is drawn for
each image before the clock starts and the same in every step; their number is constant, so torch.compile sees constant
shapes. All anchors go through the projector in one pass, and its batch norm has one statistic of them, as in dino-vmf
(the released code has one for each size of crop). Prototypes are parameters of the loss: unit vectors, the same for
both networks.

Targets are scaled by three iterations of Sinkhorn, on the device that the step computes on.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from torch_dino import random_crops
from torch_vit import ARCHITECTURES, GLOBAL_SIZE, STREAMS, Backbone, Projector, TakeRows

TEMPERATURE, SHARPENING = 0.1, 0.25
SINKHORN_ITERATIONS = 3
PATCH_DROP = 0.15
BOTTLENECK = 256


class Network(nn.Module):
    """Backbone and projector; `kept` names the tokens that are left of the first group of images."""

    def __init__(self, dim, depth, patch, drop_path, stream):
        super().__init__()
        self.backbone = Backbone(dim, depth, patch, drop_path, stream)
        self.projector = Projector(dim, bottleneck=BOTTLENECK, batch_norm=True)

    def forward(self, groups, kept=None):
        features = []
        for images in groups:
            x = self.backbone.tokens(self.backbone.patches(images))
            if kept is not None:
                x, kept = TakeRows.apply(x.flatten(0, 1), kept).unflatten(0, (x.shape[0], -1)), None
            features.append(self.backbone.through_blocks(x)[:, 0])
        return self.projector(self.backbone.norm(torch.cat(features)))


def sinkhorn(targets):
    """Targets [images, K] scaled so that each prototype has about the same share of them; rows stay distributions."""
    images, prototypes = targets.shape
    targets = targets / targets.sum()
    for _ in range(SINKHORN_ITERATIONS):
        targets = targets / (targets.sum(0, keepdim=True) * prototypes)
        targets = targets / (targets.sum(1, keepdim=True) * images)
    return targets * images


def msn_loss(anchors, target, prototypes):
    """Cross-entropy of anchors and targets, both unit vectors, and me-max. Rows of anchors are view-major.

    In f32, whatever autocast made the vectors.
    """
    directions = F.normalize(prototypes, dim=-1)
    with torch.no_grad():
        targets = F.softmax(F.linear(target.float(), directions) / (TEMPERATURE * SHARPENING), dim=-1)
        targets = sinkhorn(targets)
    images, count = targets.shape
    log_probabilities = F.log_softmax(F.linear(anchors.float(), directions) / TEMPERATURE, dim=-1)
    # All anchors of an image have the same target.
    of_images = log_probabilities.view(-1, images, count).sum(0)
    cross_entropy = -torch.dot(of_images.reshape(-1), targets.reshape(-1)) / anchors.shape[0]
    mean = log_probabilities.exp().mean(0)
    return cross_entropy + math.log(count) + torch.dot(mean, mean.log())


class Msn:
    """What `Trainer` needs of MSN."""

    clips_each_tensor = False

    def __init__(self, args):
        shape, stream = (*ARCHITECTURES[args.arch], args.patch_size), STREAMS[args.stream]
        self.student, self.teacher = Network(*shape, args.drop_path, stream), Network(*shape, 0.0, stream)
        prototypes = nn.Parameter(torch.empty(args.out_dim, BOTTLENECK).uniform_(-1 / 16, 1 / 16))
        images, patches = args.batch_size, (GLOBAL_SIZE // args.patch_size) ** 2
        count = int(patches * (1.0 - PATCH_DROP))
        kept = torch.rand(images, patches).argsort(dim=1)[:, :count].sort(dim=1).values
        # Behind its class token, which always stays.
        kept = F.pad(kept + 1, (1, 0)) + torch.arange(images)[:, None] * (1 + patches)
        self.hidden_patches = images * (patches - count)
        large, *focal = random_crops(images, 2, args.local_crops)
        target, random_anchor = large.chunk(2)
        self.student_input, self.teacher_input = ([random_anchor, *focal], kept.flatten()), ([target],)
        self.own_parameters = (prototypes,)
        self.loss, self.loss_input = msn_loss, (prototypes,)

    def after_backward(self, _):
        """There is no centre."""
