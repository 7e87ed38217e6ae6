"""DINO in PyTorch: the networks, the loss and the centre of one step."""

import torch
import torch.nn.functional as F
from torch import nn

from torch_vit import ARCHITECTURES, GLOBAL_SIZE, LOCAL_SIZE, STREAMS, Backbone, Head

GLOBAL_CROPS = 2
STUDENT_TEMPERATURE, TEACHER_TEMPERATURE = 0.1, 0.04
CENTRE_MOMENTUM = 0.9


class Network(nn.Module):
    """Backbone and head under DINO's multi-crop rule: one backbone pass per resolution, one pass through the head."""

    def __init__(self, dim, depth, patch, out_dim, drop_path, stream):
        super().__init__()
        self.backbone, self.head = Backbone(dim, depth, patch, drop_path, stream), Head(dim, out_dim)

    def forward(self, groups):
        return self.head(torch.cat([self.backbone(images) for images in groups]))


def between_views(log_probabilities, probabilities, batch):
    """Mean cross-entropy over the pairs (teacher view q, student view v), q != v; rows are view-major.

    Every student view v is compared with the same sum of teacher distributions, less its own where v is a global view,
    so each student row needs one product with one target.
    """
    with torch.no_grad():
        probabilities = probabilities.view(GLOBAL_CROPS, batch, -1)
        total = probabilities.sum(0)
        own = total - probabilities  # targets of the global views
        views = log_probabilities.shape[0] // batch
        pairs = GLOBAL_CROPS * (views - 1)
    log_probabilities = log_probabilities.view(views, batch, -1)
    loss = -torch.dot(log_probabilities[:GLOBAL_CROPS].reshape(-1), own.reshape(-1))
    if views > GLOBAL_CROPS:
        loss = loss - torch.dot(log_probabilities[GLOBAL_CROPS:].sum(0).reshape(-1), total.reshape(-1))
    return loss / (pairs * batch)


def dino_loss(student, teacher, centre, batch):
    """DINO's loss of logits. Computed in f32: bf16 logits are widened first, the teacher's by the centre."""
    with torch.no_grad():
        probabilities = F.softmax((teacher - centre) / TEACHER_TEMPERATURE, dim=-1)
    return between_views(F.log_softmax(student.float() / STUDENT_TEMPERATURE, dim=-1), probabilities, batch)


def random_crops(batch, global_crops, local_crops):
    """The crops of each resolution, one after another, so that grouping them costs no copy inside the step."""
    crops = [torch.randn(global_crops * batch, 3, GLOBAL_SIZE, GLOBAL_SIZE)]
    if local_crops:
        crops.append(torch.randn(local_crops * batch, 3, LOCAL_SIZE, LOCAL_SIZE))
    return crops


class Dino:
    """What `Trainer` needs of DINO."""

    clips_each_tensor = True
    hidden_patches = 0
    own_parameters = ()

    def __init__(self, args):
        shape, stream = (*ARCHITECTURES[args.arch], args.patch_size, args.out_dim), STREAMS[args.stream]
        self.student, self.teacher = Network(*shape, args.drop_path, stream), Network(*shape, 0.0, stream)
        self.centre = torch.zeros(1, args.out_dim)
        crops = random_crops(args.batch_size, GLOBAL_CROPS, args.local_crops)
        self.student_input, self.teacher_input = (crops,), (crops[:1],)
        self.loss, self.loss_input = dino_loss, (self.centre, args.batch_size)

    def after_backward(self, teacher_logits):
        mean = teacher_logits.mean(0, keepdim=True, dtype=torch.float32)
        self.centre.lerp_(mean, 1.0 - CENTRE_MOMENTUM)
