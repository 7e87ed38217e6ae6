"""The recipe of a finished run as the PyTorch trainer of whole runs reads it: settings and schedules.

Schedules are written against DINO's, one value a step, from the formulas in docs/methods/dino.md and not from the code
of dino-vmf.
"""

import math
import tomllib

# What `torch_run.py` does not compute: a recipe that says otherwise is refused.
AS_ALWAYS = {
    "method": "dino",
    "begin": "drawn",
    "registers": 0,
    "layer_scale": False,
    "positions": "dino",
    "norm_epsilon": 1e-6,
    "channels": 3,
    "koleo_weight": 0.0,
    "prototype_scale_lr": 1.0,
    "prototype_scale_log": False,
    "kappa_prior": "off",
    "head_layers": 3,
    "extension": "none",
    "backbone_lr": 1.0,
    "layer_decay": 1.0,
    "pull": 0.0,
    "accumulate": 1,
}


class Recipe(dict):
    """`config.toml` of a run."""

    def __init__(self, path):
        with open(path, "rb") as file:
            super().__init__(tomllib.load(file))
        for key, value in AS_ALWAYS.items():
            if self.get(key, value) != value:
                raise SystemExit(f"{path}: {key} = {self[key]!r}, and this trainer knows {value!r} only")
        size = self["global_size"]
        if not isinstance(size, int) or not isinstance(self["local_size"], int):
            raise SystemExit(f"{path}: views of {size} pixels, and this trainer knows square ones only")
        (self.facts,) = (table for table in self.values() if isinstance(table, dict))
        self.epoch_steps = self.facts["images"] // self["batch_size"]
        self.steps = self.epoch_steps * self["epochs"]

    def learning_rate(self, step):
        warm_up = min(round(self["warmup_epochs"] * self.epoch_steps), self.steps)
        peak = self["lr"] * self["batch_size"] / 256
        if step < warm_up:
            return peak * step / (warm_up - 1) if warm_up > 1 else 0.0
        return cosine(peak, self["min_lr"], step - warm_up, self.steps - warm_up)

    def weight_decay(self, step):
        return cosine(self["weight_decay"], self["weight_decay_end"], step, self.steps)

    def teacher_momentum(self, step):
        return cosine(self["momentum_teacher"], self["momentum_teacher_end"], step, self.steps)

    def teacher_temperature(self, step):
        """By epoch: evenly spaced from the first to the last, which the last epoch of the warm-up has."""
        epoch, count = step // self.epoch_steps, self["warmup_teacher_temp_epochs"]
        first, last = self["warmup_teacher_temp"], self["teacher_temp"]
        if epoch >= count:
            return last
        return first + (last - first) * epoch / (count - 1) if count > 1 else first

    def freezes_prototypes(self, step):
        return step // self.epoch_steps < self["freeze_last_layer"]


def cosine(first, last, step, steps):
    return last + 0.5 * (first - last) * (1 + math.cos(math.pi * step / steps))
