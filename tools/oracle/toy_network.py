"""The toy vision transformer, its data and its schedules, shared by ibot_trajectory.py and msn_trajectory.py. Writes nothing.

Everything is f64. A network is a dict {name: tensor} in the order of its parameters; the position q in that order and the flat
row-major index i give each value through a = sin(0.9 q + 0.37 i). The first rule that fits counts:
    names ending in weight_g    1, or what a script says instead
    names ending in bias        0.02 a
    names containing norm       1 + 0.05 a
    everything else             0.2 a
Pixels of view v at iteration t, i flat over [BATCH, 3, side, side]: sin(0.3 t + 0.7 v + 0.11 i) + 0.5 cos(0.05 i (v + 1)).
Arguments are evaluated in f64 from left to right without fused operations: they reach 2000, where another order moves a sine
by 1e-13.
"""

import math

import torch
import torch.nn.functional as F

DIM, DEPTH, HEADS, MLP, PATCH, SIDE, LOCAL_SIDE = 32, 2, 2, 128, 8, 32, 16
GRID = SIDE // PATCH
BATCH, VIEWS = 2, 4  # views 0 and 1 are global, 2 and 3 local
HIDDEN, BOTTLENECK = 48, 16
ITERATIONS, PER_EPOCH = 6, 2
LAYER_NORM_EPS = 1e-6


def shapes(tail):
    """Names and shapes of the backbone and of the head's layers, followed by those of `tail`."""
    out = {
        "backbone.cls_token": (1, 1, DIM),
        "backbone.pos_embed": (1, 1 + GRID * GRID, DIM),
        "backbone.patch_embed.proj.weight": (DIM, 3, PATCH, PATCH),
        "backbone.patch_embed.proj.bias": (DIM,),
    }

    def affine(name, *weight):
        out[f"{name}.weight"], out[f"{name}.bias"] = weight, weight[:1]

    for b in range(DEPTH):
        block = f"backbone.blocks.{b}"
        affine(f"{block}.norm1", DIM)
        affine(f"{block}.attn.qkv", 3 * DIM, DIM)
        affine(f"{block}.attn.proj", DIM, DIM)
        affine(f"{block}.norm2", DIM)
        affine(f"{block}.mlp.fc1", MLP, DIM)
        affine(f"{block}.mlp.fc2", DIM, MLP)
    affine("backbone.norm", DIM)
    affine("head.mlp.0", HIDDEN, DIM)
    affine("head.mlp.2", HIDDEN, HIDDEN)
    affine("head.mlp.4", BOTTLENECK, HIDDEN)
    out.update(tail)
    return out


def parameters(shape_of, weight_g=None, noise=0.0, order=None, seed=0):
    """A network. `weight_g` gives the values of names ending in weight_g that are not ones. Every value is multiplied by
    1 + noise * r with r uniform in [-1, 1). With `order` (a seed) the hidden units are put in another order: the same function
    and the same norms, but other sums."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for q, (name, shape) in enumerate(shape_of.items()):
        count = math.prod(shape)
        a = torch.sin(0.9 * q + 0.37 * torch.arange(count, dtype=torch.float64))
        if name.endswith("weight_g"):
            value = (weight_g or {}).get(name, torch.ones(count, dtype=torch.float64))
        elif name.endswith("bias"):
            value = 0.02 * a
        elif "norm" in name:
            value = 1 + 0.05 * a
        else:
            value = 0.2 * a
        if noise:
            value = value * (1 + noise * (2 * torch.rand(count, dtype=torch.float64, generator=generator) - 1))
        out[name] = value.reshape(shape).clone()
    if order is not None:
        reorder(out, order)
    return out


def reorder(net, seed):
    generator = torch.Generator().manual_seed(seed)

    def shuffled(count, start=0):
        return start + torch.randperm(count, generator=generator)

    def move(producer, consumer, outputs, inputs):
        for name in (f"{producer}.weight", f"{producer}.bias"):
            net[name] = net[name][outputs]
        net[f"{consumer}.weight"] = net[f"{consumer}.weight"][:, inputs]

    size = DIM // HEADS
    for number in range(DEPTH):
        block = f"backbone.blocks.{number}"
        units = shuffled(MLP)
        move(f"{block}.mlp.fc1", f"{block}.mlp.fc2", units, units)
        key, value = (torch.cat([shuffled(size, h * size) for h in range(HEADS)]) for _ in range(2))
        move(f"{block}.attn.qkv", f"{block}.attn.proj", torch.cat((key, DIM + key, 2 * DIM + value)), value)
    for layer in (0, 2):
        units = shuffled(HIDDEN)
        move(f"head.mlp.{layer}", f"head.mlp.{layer + 2}", units, units)


def pixels(view, iteration):
    side = SIDE if view < 2 else LOCAL_SIDE
    i = torch.arange(BATCH * 3 * side * side, dtype=torch.float64)
    value = torch.sin(0.3 * iteration + 0.7 * view + 0.11 * i) + 0.5 * torch.cos(0.05 * i * (view + 1))
    return value.reshape(BATCH, 3, side, side)


def resized(grid, rows, columns):
    """A map [1, channels, g, g] resized to rows x columns as DINO does it, with 0.1 added in the scale."""
    g = grid.shape[-1]
    out = F.interpolate(grid, scale_factor=((rows + 0.1) / g, (columns + 0.1) / g), mode="bicubic", align_corners=False)
    assert out.shape[2:] == (rows, columns)
    return out


def positions(pos_embed, rows, columns):
    if rows == GRID and columns == GRID:
        return pos_embed
    grid = pos_embed[:, 1:].transpose(1, 2).reshape(1, DIM, GRID, GRID)
    return torch.cat((pos_embed[:, :1], resized(grid, rows, columns).flatten(2).transpose(1, 2)), dim=1)


def layer_norm(net, name, x):
    return F.layer_norm(x, (DIM,), net[f"{name}.weight"], net[f"{name}.bias"], LAYER_NORM_EPS)


def linear(net, name, x):
    return F.linear(x, net[f"{name}.weight"], net[f"{name}.bias"])


def embed(net, images, mask=None):
    """Tokens [b, 1 + patches, DIM] with their positions. Where mask [b, patches] is true, mask_token takes the patch's place
    before the position is added."""
    rows, columns = images.shape[2] // PATCH, images.shape[3] // PATCH
    weight, bias = net["backbone.patch_embed.proj.weight"], net["backbone.patch_embed.proj.bias"]
    patches = F.conv2d(images, weight, bias, stride=PATCH).flatten(2).transpose(1, 2)
    if mask is not None:
        patches = torch.where(mask[:, :, None], net["mask_token"][:, None, :], patches)
    cls = net["backbone.cls_token"].expand(len(images), -1, -1)
    return torch.cat((cls, patches), dim=1) + positions(net["backbone.pos_embed"], rows, columns)


def encode(net, x):
    """The blocks and the final norm, for tokens [b, n, DIM]."""
    b, n, _ = x.shape
    for number in range(DEPTH):
        block = f"backbone.blocks.{number}"
        qkv = linear(net, f"{block}.attn.qkv", layer_norm(net, f"{block}.norm1", x))
        query, key, value = qkv.reshape(b, n, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        attention = (query @ key.transpose(-2, -1) * (DIM // HEADS) ** -0.5).softmax(dim=-1)
        x = x + linear(net, f"{block}.attn.proj", (attention @ value).transpose(1, 2).reshape(b, n, DIM))
        hidden = F.gelu(linear(net, f"{block}.mlp.fc1", layer_norm(net, f"{block}.norm2", x)))
        x = x + linear(net, f"{block}.mlp.fc2", hidden)
    return layer_norm(net, "backbone.norm", x)


def project(net, x):
    """The head up to its unit vectors, over the last dimension."""
    x = F.gelu(linear(net, "head.mlp.0", x))
    x = F.gelu(linear(net, "head.mlp.2", x))
    return F.normalize(linear(net, "head.mlp.4", x), dim=-1, eps=1e-12)


def delta(kappa, p):
    """log C_p(kappa) - log C_p(0) by the one-term uniform expansion."""
    nu = p / 2 - 1
    u = kappa**2 / (torch.sqrt(nu**2 + kappa**2) + nu)
    return nu * torch.log1p(u / (2 * nu)) - u + 0.5 * torch.log1p(u / nu)


def cosine(base, final, warmup_epochs=0):
    """One value per iteration; the warm-up is a ramp from 0 to base with both ends."""
    total, warm = ITERATIONS, warmup_epochs * PER_EPOCH
    ramp = torch.linspace(0, base, warm, dtype=torch.float64).tolist() if warm else []
    rest = total - warm
    return ramp + [final + 0.5 * (base - final) * (1 + math.cos(math.pi * i / rest)) for i in range(rest)]


def schedules():
    return {
        "lr": cosine(0.01, 1e-4, warmup_epochs=1),
        "weight_decay": cosine(0.04, 0.4),
        "momentum": cosine(0.9, 1.0),
    }


def decayed(name, parameter):
    return not name.endswith(".bias") and parameter.dim() > 1


def adamw(decay, plain):
    """AdamW over two lists of parameters; the first is decayed."""
    groups = [{"params": decay}, {"params": plain}]
    return torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, foreach=False, fused=False)


def set_step(optimizer, lr, weight_decay):
    for group, decay in zip(optimizer.param_groups, (weight_decay, 0.0)):
        group["lr"], group["weight_decay"] = lr, decay


def norm(tensors):
    """L2 norm of all values of all tensors together."""
    return math.sqrt(sum(float((t.detach() ** 2).sum()) for t in tensors))


def first(tensor, count=5):
    return tensor.detach().flatten()[:count].tolist()


def close(got, want, tolerance, what):
    got = torch.as_tensor(got, dtype=torch.float64).detach()
    worst = float((got - torch.as_tensor(want, dtype=torch.float64)).abs().max())
    assert worst < tolerance, f"{what}: {got.tolist()} instead of {want}"
    return worst


def check_parts():
    """Published values of the pieces that both methods use."""
    kappa = torch.tensor([0, 1, 10, 100 / 7, 25, 50, 100, 200, 500, 1000], dtype=torch.float64, requires_grad=True)
    value = delta(kappa, 256)
    close(value, [0, -0.0019529891308691, -0.19515293086771, -0.39795933594884, -1.2149266817044, -4.7944819023804,
                  -18.285571486461, -63.936200865921, -270.24146608395, -689.86703459296], 1e-10, "delta")
    (slope,) = torch.autograd.grad(value.sum(), kappa)
    close(-slope, [0, 0.0039059487120517, 0.039001152984806, 0.055628850058453, 0.096743648760376, 0.18841990071255,
                   0.34453313782407, 0.54779637370576, 0.77681445255939, 0.88054017804017], 1e-12, "slope of delta")
    grid = torch.sin(0.37 * torch.arange(14 * 14, dtype=torch.float64)).reshape(1, 1, 14, 14)
    row = [-0.43428076, 0.37869161, 0.9258493, 0.83380666, 0.18987975, -0.60891144]
    close(resized(grid, 6, 6)[0, 0, 0], row, 1e-8, "resized grid")


def numbers(tree, path=""):
    """(path, number) of every number in a tree of dicts and lists."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from numbers(value, f"{path}.{key}" if path else key)
    elif isinstance(tree, list):
        for key, value in enumerate(tree):
            yield from numbers(value, f"{path}[{key}]")
    else:
        yield path, tree


def changes(run, reference, variations):
    """{path: largest relative change of that number} over the variations; integers may not change at all."""
    worst = {}
    for variation in variations:
        moved = dict(numbers(run(**variation)))
        for path, value in numbers(reference):
            if isinstance(value, int):
                assert moved[path] == value, f"{path} is not stable"
                continue
            change = abs(moved[path] - value) / (abs(value) or 1.0)
            worst[path] = max(worst.get(path, 0.0), change)
    return worst


def conditioning(name, run, reference):
    """Prints by which fraction of themselves the results of run(**change of the parameters) move
      * by rounding alone, when hidden units are summed in another order: fails at 1e-9;
      * when all weights are changed by a relative 1e-13. This is not held below 1e-9, because some modes amplify it more.
    Returns the latter for each step and then for the values at the end, to one digit."""
    rounding = changes(run, reference, [{"order": seed} for seed in range(1, 7)])
    noise = changes(run, reference, [{"noise": 1e-13, "seed": seed} for seed in range(1, 7)])
    for what, worst in (("another order of sums", rounding), ("weights * (1 +- 1e-13)", noise)):
        path = max(worst, key=worst.get)
        above = sum(change >= 1e-9 for change in worst.values())
        print(f"{name}: {what}: at most {worst[path]:.1e} ({path}), {above} of {len(worst)} numbers above 1e-9")
    assert max(rounding.values()) < 1e-9
    groups = [f"steps[{t}]." for t in range(ITERATIONS)]
    by_step = [max((c for path, c in noise.items() if path.startswith(g)), default=0.0) for g in groups]
    end = max((c for path, c in noise.items() if not path.startswith("steps[")), default=0.0)
    return [float(f"{c:.0e}") for c in (*by_step, end)]
