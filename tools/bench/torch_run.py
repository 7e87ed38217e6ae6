"""A whole DINO or DINO-vMF training in PyTorch: autograd, `torch.optim.AdamW`, and the views and the initial weights of
another program.

Written against the paper and DINO's published description; the networks are those of the step benchmark (torch_vit.py).
The log-normaliser is the power series of the Bessel function, summed in f64, which is not how dino-vmf computes it.
"""

import json
import math

import numpy
import torch
import torch.nn.functional as F
from torch import nn

from torch_dino import GLOBAL_CROPS, between_views
from torch_trainer import clip_each, clip_each_on_device
from torch_vit import ARCHITECTURES, Backbone, Head

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NO_CLASS = 2**32 - 1


class Bytes:
    """What `dino-vmf views --raw` or `--raw-images` writes: a line of JSON, then bytes."""

    def __init__(self, pipe):
        self.pipe = pipe
        line = pipe.readline()
        if not line:
            raise SystemExit("the other side has written nothing; what it said is above")
        self.header = json.loads(line)

    def take(self, count):
        """So many bytes, or none at the end."""
        data = bytearray(count)
        view, filled = memoryview(data), 0
        while filled < count:
            read = self.pipe.readinto(view[filled:])
            if not read:
                if filled:
                    raise SystemExit(f"the other side has ended in the middle, after {filled} of {count} bytes")
                return None
            filled += read
        return torch.from_numpy(numpy.frombuffer(data, dtype=numpy.uint8))

    def steps(self):
        """Each step's groups of views, [views x images, height, width, channels], and the branches that are taken."""
        keys = ("count", "height", "width", "channels")
        shapes = [tuple(group[key] for key in keys) for group in self.header["groups"]]
        branches = self.header["branches"]
        for _ in range(self.header["batches"]):
            groups = [self.take(math.prod(shape)).view(shape) for shape in shapes]
            yield groups, self.take(math.prod(branches)).view(branches) if branches else None

    def images(self, batch):
        """Images [images, height, width, channels] and their classes, some at a time."""
        height, width, channels = (self.header[key] for key in ("height", "width", "channels"))
        size, found = 4 + height * width * channels, []
        while (record := self.take(size)) is not None:
            found.append(record)
            if len(found) == batch:
                yield self._split(found, (height, width, channels))
                found = []
        if found:
            yield self._split(found, (height, width, channels))

    @staticmethod
    def _split(records, shape):
        records = torch.stack(records)
        classes = records[:, :4].contiguous().view(torch.int32).view(-1).long() % 2**32
        if (classes == NO_CLASS).any():
            raise SystemExit("images without a class cannot be judged")
        return records[:, 4:].reshape(-1, *shape), classes


def normalized(pixels, like):
    """Bytes [images, height, width, channels] as a network takes them."""
    mean, deviation = (torch.tensor(values, dtype=like.dtype, device=like.device) for values in (MEAN, DEVIATION))
    values = pixels.to(like.device).to(like.dtype).div(255).sub(mean).div(deviation)
    return values.permute(0, 3, 1, 2).contiguous()


class LogNormalizer:
    """Delta(kappa) = log C_p(kappa) - log C_p(0) = -log 0F1(; p/2; kappa^2 / 4), term by term in f64."""

    def __init__(self, p):
        self.half = p / 2

    def __call__(self, kappa):
        kappa = kappa.double()
        with torch.no_grad():
            largest = kappa.max().item()
            # The largest term of the series, and what is left behind it.
            peak = (math.sqrt(self.half**2 + largest**2) - self.half) / 2
            count = int(peak + 12 * math.sqrt(peak + 1) + 40)
            m = torch.arange(count, dtype=torch.float64, device=kappa.device)
            constant = torch.lgamma(m + 1) + torch.lgamma(m + self.half) - math.lgamma(self.half)
        return -torch.logsumexp(m * (2 * torch.log(kappa / 2)).unsqueeze(1) - constant, dim=1)


class Network(nn.Module):
    """Backbone and head of a recipe, with the names of dino-vmf's weights on the way in and out."""

    def __init__(self, recipe, drop_path, stream):
        super().__init__()
        (dim, depth), size = ARCHITECTURES[recipe["arch"]], recipe["global_size"]
        self.backbone = Backbone(dim, depth, recipe["patch_size"], drop_path, stream, size)
        self.head = Head(dim, recipe["out_dim"], recipe["head_bottleneck"],
                         hidden=recipe["head_hidden"], batch_norm=recipe["head_batch_norm"])  # fmt: skip

    @staticmethod
    def name(of_file):
        parts = {"patch_embed.proj.": "embed.", "attn.": "", "last_layer.": "", ".mlp.fc": ".fc"}
        for theirs, ours in parts.items():
            of_file = of_file.replace(theirs, ours)
        return of_file

    def load(self, weights, prefix=""):
        """Takes weights by the names that files have: all parameters whose names begin with `prefix`."""
        own = dict(self.named_parameters())
        found = {self.name(prefix + name): tensor for name, tensor in weights.items()}
        missing = [name for name in own if name not in found and name.startswith(prefix)]
        if missing or not set(found) <= set(own):
            raise SystemExit(f"weights do not fit: missing {missing[:3]}, unknown {sorted(set(found) - set(own))[:3]}")
        with torch.no_grad():
            for name, tensor in found.items():
                own[name].copy_(tensor.reshape(own[name].shape))

    def forward(self, groups, branches=None):
        """Raw logits <w, y>, one pass through the head for the views of all resolutions."""
        parts = [None] * len(groups) if branches is None else branches.split([len(images) for images in groups])
        return self.head(torch.cat([self.backbone(images, taken) for images, taken in zip(groups, parts)]))


class Training:
    """Student, teacher, optimiser and centre of a recipe."""

    def __init__(self, recipe, weights, device, dtype, autocast):
        self.recipe, self.autocast, self.device = recipe, autocast, device
        with torch.device(device):
            self.student, self.teacher = Network(recipe, recipe["drop_path"], dtype), Network(recipe, 0.0, dtype)
        for network in (self.student, self.teacher):
            network.to(dtype).load(weights)
        # The rates of the blocks are single-precision numbers in DINO, and so in dino-vmf.
        depth = len(self.student.backbone.blocks)
        for i, block in enumerate(self.student.backbone.blocks):
            block.keep = 1.0 - float(numpy.float32(recipe["drop_path"] * i / max(depth - 1, 1)))
        self.teacher.requires_grad_(False)
        prototypes = recipe["prototypes"]
        self.normalizer = LogNormalizer(recipe["head_bottleneck"]) if prototypes == "vmf" else None
        self.student.head.weight_g.requires_grad_(prototypes != "l2")
        self.centre = torch.zeros(recipe["out_dim"], dtype=dtype, device=device)
        self.optimizer = self.make_optimizer()
        self.pairs = (list(self.teacher.parameters()), list(self.student.parameters()))
        self.step_number = 0

    def make_optimizer(self):
        def decays(name, parameter):
            if name == "head.weight_g":
                return self.recipe["decay_prototype_scale"]
            return not (name.endswith(".bias") or parameter.ndim == 1)

        trained = [(n, p) for n, p in self.student.named_parameters() if p.requires_grad]
        groups = [{"params": [p for n, p in trained if decays(n, p) == decayed]} for decayed in (True, False)]
        betas = (self.recipe["adam_beta1"], self.recipe["adam_beta2"])
        return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=self.recipe["adam_eps"], foreach=True)

    def shifted(self, raw, network, temperature):
        """The logits of a network at a temperature, l = <w, y> / tau + Delta(|w| / tau)."""
        raw = raw.to(self.centre.dtype)
        if self.normalizer is None:
            return raw / temperature
        delta = self.normalizer(network.head.weight_g.abs().view(-1) / temperature)
        return raw / temperature + delta.to(raw.dtype)

    @torch.no_grad()
    def targets(self, raw, temperature):
        """The teacher's distributions, and what its centre moves towards."""
        logits, probability = self.shifted(raw, self.teacher, temperature), self.recipe["centering"] == "probability"
        if probability:
            towards = torch.logsumexp(F.log_softmax(logits, dim=-1), dim=0) - math.log(len(logits))
            if self.recipe["center_floor"] != "off":
                towards = towards.clamp(min=self.recipe["center_floor"])
        else:
            towards = logits.mean(0)
        # DINO keeps its centre in units of <w, y>: with a temperature that changes, that is another average.
        unit = 1.0 if probability or self.normalizer else temperature
        return F.log_softmax(logits - self.centre / unit, dim=-1), towards * unit

    def step(self, groups, branches):
        """One step; its loss and the mean entropy of the teacher, still on the device."""
        recipe, number = self.recipe, self.step_number
        groups = [normalized(pixels, self.centre) for pixels in groups]
        branches = None if branches is None else branches.to(self.device)
        images = len(groups[0]) // GLOBAL_CROPS
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.autocast):
            with torch.no_grad():
                teacher = self.teacher(groups[:1])
            student = self.student(groups, branches)
        log_targets, towards = self.targets(teacher, recipe.teacher_temperature(number))
        targets = log_targets.exp()
        predictions = F.log_softmax(self.shifted(student, self.student, recipe["student_temp"]), dim=-1)
        loss = between_views(predictions, targets, images)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.update(number)
        m = recipe["center_momentum"]
        self.centre = m * self.centre + (1 - m) * towards
        self.step_number += 1
        return loss.detach(), -(targets * log_targets).nansum(-1).mean()

    @torch.no_grad()
    def update(self, number):
        recipe = self.recipe
        if recipe["clip_grad"] > 0:
            clip = clip_each if self.device == "cpu" else clip_each_on_device
            clip(self.pairs[1], recipe["clip_grad"])
        if recipe.freezes_prototypes(number):
            self.student.head.weight_g.grad = self.student.head.weight_v.grad = None
        decayed, plain = self.optimizer.param_groups
        decayed["lr"] = plain["lr"] = recipe.learning_rate(number)
        decayed["weight_decay"], plain["weight_decay"] = recipe.weight_decay(number), 0.0
        self.optimizer.step()
        torch._foreach_lerp_(*self.pairs, 1.0 - recipe.teacher_momentum(number))


@torch.no_grad()
def features(backbone, images):
    """Unit class tokens of a stream of images, and their classes. In the type of the weights."""
    like, found = next(backbone.parameters()), []
    for pixels, classes in images:
        found.append((F.normalize(backbone(normalized(pixels, like)), dim=-1), classes.to(like.device)))
    return torch.cat([tokens for tokens, _ in found]), torch.cat([classes for _, classes in found])


@torch.no_grad()
def knn(train, test, k, temperature):
    """Per cent of test images whose class has most votes of the k nearest, each of weight exp(cosine / temperature)."""
    (voters, voter_classes), (queries, classes) = train, test
    count, right = int(voter_classes.max()) + 1, 0
    for rows in torch.arange(len(queries)).split(256):
        near, index = (queries[rows] @ voters.T).topk(k, dim=1)
        votes = near.new_zeros(len(rows), count).scatter_add_(1, voter_classes[index], (near / temperature).exp())
        right += int((votes.argmax(1) == classes[rows]).sum())
    return 100 * right / len(queries)
