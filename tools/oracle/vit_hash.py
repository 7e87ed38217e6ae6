"""Closed-form numbers for the ViT fixtures: the same ones can be made in any language without a weight file.

Every number is u(stream, i): splitmix64 of (stream << 32 | i), its upper 53 bits mapped to [-1, 1):

    z = (stream << 32 | i) + 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    z = z ^ (z >> 31)                              (all modulo 2^64)
    u = (z >> 11) * 2^-52 - 1                      (exact in f64)

Streams:
    q                     parameter number q; i is the flat row-major index
    INPUT_STREAM  + c     the images of case c; i flat over [batch, 3, height, width]
    LOSS_STREAM           the loss weights c_j; i flat over [batch, dim]
    PROJECTION_STREAM + q the direction r that the gradient of parameter q is projected on

Parameters are numbered in the order cls_token, pos_embed, patch_embed.proj.{weight,bias}, then for each block
norm1.{weight,bias}, attn.qkv.{weight,bias}, attn.proj.{weight,bias}, norm2.{weight,bias}, mlp.fc1.{weight,bias},
mlp.fc2.{weight,bias}, and last norm.{weight,bias}. Values, computed in f64:
    LayerNorm weight (norm*.weight)   1 + 0.2 u
    every bias                        0.1 u
    cls_token, pos_embed              0.5 u
    every other weight                sqrt(3 / fan_in) u     (variance 1 / fan_in; fan_in = elements of one output row)
"""

import numpy as np

INPUT_STREAM = 1_000_000
LOSS_STREAM = 2_000_000
PROJECTION_STREAM = 3_000_000

_MASK = (1 << 64) - 1


def uniform(stream, count):
    """u(stream, 0 .. count-1) as f64."""
    with np.errstate(over="ignore"):
        z = np.arange(count, dtype=np.uint64) + np.uint64(((stream << 32) + 0x9E3779B97F4A7C15) & _MASK)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


def parameter_names(depth):
    """State-dict names of a DINO or timm ViT backbone in the order that numbers them."""
    names = ["cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"]
    layers = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
    for block in range(depth):
        names += [f"blocks.{block}.{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    return names + ["norm.weight", "norm.bias"]


def parameter_values(name, number, shape):
    """The values of one parameter as f64, in its shape."""
    u = uniform(number, int(np.prod(shape))).reshape(shape)
    if name.endswith("bias"):
        return 0.1 * u
    if "norm" in name:
        return 1.0 + 0.2 * u
    if name in ("cls_token", "pos_embed"):
        return 0.5 * u
    fan_in = int(np.prod(shape[1:]))
    return np.sqrt(3.0 / fan_in) * u


def fill(model):
    """Overwrites the parameters of a timm ViT (any float type) with the closed form."""
    import torch

    parameters = dict(model.named_parameters())
    names = parameter_names(len(model.blocks))
    if list(parameters) != names:
        raise SystemExit(f"timm's parameters are not the expected ones: {sorted(set(parameters) ^ set(names))}")
    with torch.no_grad():
        for number, name in enumerate(names):
            parameter = parameters[name]
            parameter.copy_(torch.from_numpy(parameter_values(name, number, tuple(parameter.shape))))
    return model
