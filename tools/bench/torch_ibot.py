"""iBOT in PyTorch: the networks, the masks, the loss and the two centres of one step.

The student sees the global crops with some patches replaced by a token, the local ones whole. Of its patches only the
masked ones go through final norm, head and prototypes, in one pass with the class tokens. The teacher sees everything:
all its patches go through the projector, because its centre is a mean over all of them, and the masked ones and the
class tokens through the prototypes. Class tokens are compared as DINO's are, masked patches with the teacher's at the
same place; head and prototypes are shared.

Masks are drawn before the clock starts, by iBOT's rule (half of the views masked, a share of 0.1 to 0.5 covered by
rectangles), and are the same in every step. What torch.compile gets is of constant shape: a tensor that says of each
patch whether it is masked, and an index of the rows that are read. For that the number of masked patches must not be a
matter of luck either: of many draws that one is taken which has as many as the rule gives on average
(`--hidden-patches` asks for another number). Nothing is padded.

`--centering` says what the centre of patches moves towards:
  * `logit`, as published: the mean of all patches' logits. Being linear, it is taken as the logits of the mean unit
    vector, which spares the prototypes all patches that are not masked;
  * `probability`, as `dino-vmf` does by default: the logarithm of the mean probability. That needs the logits of all
    patches. With it both sides do the same work on them; what dino-vmf still does besides is the log-normaliser of
    its prototypes, a number for each of them.
"""

import math
import random

import torch
import torch.nn.functional as F
from torch import nn

from torch_dino import CENTRE_MOMENTUM, GLOBAL_CROPS, STUDENT_TEMPERATURE, TEACHER_TEMPERATURE, dino_loss, random_crops
from torch_vit import ARCHITECTURES, GLOBAL_SIZE, STREAMS, Backbone, Head, TakeRows

PATCH_TEMPERATURE = 0.07
MASKED_VIEWS, LEAST_COVERED, MOST_COVERED = 0.5, 0.1, 0.5
NARROWEST, TRIES = 0.3, 10
DRAWS = 2000


def draw_mask(rng, grid):
    """The masked patches of one view of grid x grid patches."""
    room = rng.uniform(LEAST_COVERED, MOST_COVERED) * grid * grid
    masked = set()
    if rng.random() >= MASKED_VIEWS:
        return masked
    tries = 0
    while len(masked) < room and tries < TRIES:
        tries += 1
        area = rng.uniform((grid // 3) ** 2, room - len(masked))
        aspect = math.exp(rng.uniform(math.log(NARROWEST), -math.log(NARROWEST)))
        height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if height >= grid or width >= grid:
            continue
        top, left = rng.randint(0, grid - height), rng.randint(0, grid - width)
        block = {(top + row) * grid + left + column for row in range(height) for column in range(width)}
        if 0 < len(block - masked) <= room - len(masked):
            masked |= block
            tries = 0
    return masked


def draw_masks(views, grid, count=None):
    """The masked patches of each of some views: of many draws the one whose number of them is nearest to `count`, by
    default to the average of the rule."""
    rng = random.Random(0)
    drawn = [draw_mask(rng, grid) for _ in range(DRAWS)]
    if count is None:
        count = views * sum(map(len, drawn)) / DRAWS
    choices = (rng.choices(drawn, k=views) for _ in range(DRAWS))
    return min(choices, key=lambda masks: abs(sum(map(len, masks)) - count))


def rows_and_weights(masks):
    """The rows that are read of all tokens of the views [views * (1 + patches), dim], masked patches and then class
    tokens; and what each masked patch weighs: all of a view together as much as one view."""
    views, patches = masks.shape
    view, patch = masks.nonzero(as_tuple=True)
    class_rows = torch.arange(views) * (1 + patches)
    return torch.cat((class_rows[view] + 1 + patch, class_rows)), 1.0 / (views * masks.sum(1))[view]


class Student(nn.Module):
    """Logits of masked patches and class tokens: a row for each masked patch, then the global crops, then the local."""

    def __init__(self, dim, depth, patch, out_dim, drop_path, stream):
        super().__init__()
        self.backbone, self.head = Backbone(dim, depth, patch, drop_path, stream), Head(dim, out_dim)
        self.mask_token = nn.Parameter(torch.zeros(1, dim))

    def forward(self, groups, masks, rows):
        backbone = self.backbone
        patches = backbone.patches(groups[0])
        tokens = backbone.tokens(torch.where(masks, self.mask_token, patches))
        read = [TakeRows.apply(backbone.through_blocks(tokens).flatten(0, 1), rows)]
        for images in groups[1:]:
            read.append(backbone.through_blocks(backbone.tokens(backbone.patches(images)))[:, 0])
        return self.head(backbone.norm(torch.cat(read)))


class Teacher(Student):
    """Logits of masked patches and class tokens of the global crops, and what the centre of patches moves towards.

    It has the student's parameters, so that one can follow the other; its mask token is used by nobody.
    """

    def __init__(self, *shape, stream, centering):
        super().__init__(*shape, 0.0, stream)
        self.statistic = {"logit": self.mean_logits, "probability": self.log_mean_probabilities}[centering]

    def mean_logits(self, y):
        with torch.autocast(y.device.type, enabled=False):
            return self.head.logits(y.mean((0, 1), dtype=torch.float32)[None])

    def log_mean_probabilities(self, y):
        # Times the temperature: the loss divides a centre by it, as it does with logits.
        probabilities = F.softmax(self.head.logits(y).float() / PATCH_TEMPERATURE, dim=-1)
        return PATCH_TEMPERATURE * probabilities.mean((0, 1))[None].clamp_min(1e-38).log()

    def forward(self, images, rows):
        backbone = self.backbone
        y = self.head.mlp(backbone.norm(backbone.through_blocks(backbone.tokens(backbone.patches(images)))))
        return self.head.logits(y.flatten(0, 1).index_select(0, rows)), self.statistic(y[:, 1:])


def ibot_loss(student, targets, class_centre, patch_centre, weights, batch):
    """DINO's loss of class tokens, and the cross-entropy of each masked patch times its weight."""
    teacher, _ = targets
    masked = weights.shape[0]
    with torch.no_grad():
        probabilities = F.softmax((teacher[:masked] - patch_centre) / PATCH_TEMPERATURE, dim=-1)
    log_probabilities = F.log_softmax(student[:masked].float() / STUDENT_TEMPERATURE, dim=-1)
    of_patches = -torch.dot((probabilities * log_probabilities).sum(-1), weights)
    return dino_loss(student[masked:], teacher[masked:], class_centre, batch) + of_patches


class Ibot:
    """What `Trainer` needs of iBOT."""

    clips_each_tensor = True
    own_parameters = ()

    def __init__(self, args):
        shape, stream = (*ARCHITECTURES[args.arch], args.patch_size, args.out_dim), STREAMS[args.stream]
        self.student = Student(*shape, args.drop_path, stream)
        self.teacher = Teacher(*shape, stream=stream, centering=args.centering)
        self.centres, self.centering = (torch.zeros(1, args.out_dim), torch.zeros(1, args.out_dim)), args.centering
        views, grid = GLOBAL_CROPS * args.batch_size, GLOBAL_SIZE // args.patch_size
        masks = torch.zeros(views, grid * grid, dtype=torch.bool)
        drawn = draw_masks(views, grid, args.hidden_patches)
        masks.view(-1)[[view * grid * grid + patch for view, patches in enumerate(drawn) for patch in patches]] = True
        rows, weights = rows_and_weights(masks)
        self.hidden_patches = len(weights)
        crops = random_crops(args.batch_size, GLOBAL_CROPS, args.local_crops)
        self.student_input = (crops, masks.view(views, grid, grid, 1), rows)
        self.teacher_input = (crops[0], rows)
        self.loss, self.loss_input = ibot_loss, (*self.centres, weights, args.batch_size)

    def after_backward(self, targets):
        logits, of_patches = targets
        of_class = logits[self.hidden_patches :]
        if self.centering == "probability":
            probabilities = F.softmax(of_class.float() / TEACHER_TEMPERATURE, dim=-1)
            of_class = TEACHER_TEMPERATURE * probabilities.mean(0, keepdim=True).clamp_min(1e-38).log()
        of_class = of_class.mean(0, keepdim=True, dtype=torch.float32)
        torch._foreach_lerp_(self.centres, (of_class, of_patches.float()), 1.0 - CENTRE_MOMENTUM)
