"""The networks of the PyTorch side: vision transformer, projector and prototypes.

Attention is `F.scaled_dot_product_attention`, which never builds the [N, N] matrix; patches are cut by one matrix
product; drop path and the residual sum are one `addcmul` on the CPU. Weights are f32. `stream` is the type of the
residual stream.
"""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURES = {"vit_nano": (64, 4), "vit_tiny": (192, 12), "vit_small": (384, 12), "vit_base": (768, 12),
                 "vit_large": (1024, 24)}  # fmt: skip
STREAMS = {"bf16": torch.bfloat16, "f32": torch.float32}
HEAD_DIM = 64
GLOBAL_SIZE, LOCAL_SIZE = 224, 96


class LayerNorm(nn.LayerNorm):
    """Gives what it gets: autocast by itself would widen a bf16 stream to f32 and write the result in f32 too.

    The parameters are rounded on the way in, because the CUDA kernel takes them in the type of its input alone; its
    arithmetic is f32 in any case.
    """

    def forward(self, x):
        if x.dtype == torch.float32:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
            return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class Block(nn.Module):
    """Pre-norm transformer block; `keep` is the probability that a sample keeps a residual branch."""

    def __init__(self, dim, keep):
        super().__init__()
        self.heads, self.keep = dim // HEAD_DIM, keep
        self.norm1, self.norm2 = LayerNorm(dim, eps=1e-6), LayerNorm(dim, eps=1e-6)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def add(self, x, branch, taken):
        """`taken` says of each sample whether it takes the branch; without it that is drawn."""
        if self.keep == 1.0:
            return x + branch
        if taken is None:
            mask = branch.new_empty(x.shape[0], 1, 1).bernoulli_(self.keep).div_(self.keep)
        else:
            mask = taken.to(branch.dtype).view(-1, 1, 1).div(self.keep)
        if branch.dtype != x.dtype:
            # Autocast would first copy the bf16 branch to f32 for `addcmul`; these two read it as it is.
            return x + branch * mask
        return torch.addcmul(x, branch, mask)

    def forward(self, x, taken=(None, None)):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, HEAD_DIM).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = self.add(x, self.proj(attended), taken[0])
        return self.add(x, self.fc2(F.gelu(self.fc1(self.norm2(x)))), taken[1])


class Backbone(nn.Module):
    """DINO's vision transformer, in three stages, so that a method can hide patches between them."""

    def __init__(self, dim, depth, patch, drop_path, stream, size=GLOBAL_SIZE):
        super().__init__()
        self.patch, self.grid, self.stream = patch, size // patch, stream
        self.embed = nn.Linear(3 * patch * patch, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + self.grid * self.grid, dim))
        rates = torch.linspace(0, drop_path, depth).tolist()
        self.blocks = nn.ModuleList(Block(dim, 1.0 - rate) for rate in rates)
        self.norm = LayerNorm(dim, eps=1e-6)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def positions(self, g):
        if g == self.grid:
            return self.pos_embed
        patches = self.pos_embed[:, 1:].transpose(1, 2).unflatten(2, (self.grid, self.grid))
        scale = (g + 0.1) / self.grid
        resized = F.interpolate(patches, scale_factor=(scale, scale), mode="bicubic")
        return torch.cat((self.pos_embed[:, :1], resized.flatten(2).transpose(1, 2)), dim=1)

    def patches(self, images):
        """Embedded patches [images, rows, columns, dim]."""
        b, c, size, _ = images.shape
        p, g = self.patch, size // self.patch
        return self.embed(images.view(b, c, g, p, g, p).permute(0, 2, 4, 1, 3, 5).reshape(b, g, g, c * p * p))

    def tokens(self, patches):
        """Class token and patches with their positions: where the residual stream begins."""
        b, g, _, _ = patches.shape
        x = torch.cat((self.cls_token.expand(b, -1, -1), patches.flatten(1, 2)), dim=1) + self.positions(g)
        return x.to(self.stream)

    def through_blocks(self, x, taken=None):
        """All tokens after the last block, not yet normalised. `taken` [samples, blocks, 2] has branches of others."""
        for i, block in enumerate(self.blocks):
            x = block(x) if taken is None else block(x, (taken[:, i, 0], taken[:, i, 1]))
        return x

    def forward(self, images, taken=None):
        """The normalised class token."""
        return self.norm(self.through_blocks(self.tokens(self.patches(images)), taken)[:, 0])


class Projector(nn.Sequential):
    """d-2048-2048-256 and L2 normalisation. Batch norm, where there is one, always uses the statistics of the batch."""

    def __init__(self, dim, hidden=2048, bottleneck=256, batch_norm=False):
        def layer(inputs):
            norm = [nn.BatchNorm1d(hidden, track_running_stats=False)] if batch_norm else []
            return nn.Linear(inputs, hidden), *norm, nn.GELU()

        super().__init__(*layer(dim), *layer(hidden), nn.Linear(hidden, bottleneck))
        for module in self:
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, features):
        return F.normalize(super().forward(features), dim=-1)


class Head(nn.Module):
    """Projector and K weight-normalised prototypes."""

    def __init__(self, dim, out_dim, bottleneck=256, **of_projector):
        super().__init__()
        self.mlp = Projector(dim, bottleneck=bottleneck, **of_projector)
        self.weight_g = nn.Parameter(torch.ones(out_dim, 1))
        self.weight_v = nn.Parameter(torch.empty(out_dim, bottleneck).uniform_(-1 / 16, 1 / 16))

    def logits(self, y):
        return F.linear(y, torch._weight_norm(self.weight_v, self.weight_g, 0))

    def forward(self, features):
        return self.logits(self.mlp(features))


class TakeRows(torch.autograd.Function):
    """Rows of a matrix by an index that names none of them twice.

    The derivative of plain indexing adds up what a row gets, by atomic operations or by sorting the index first. Here
    a row gets something once, and it is only written.
    """

    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx, gradient):
        (index,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.rows, gradient.shape[1]).index_copy_(0, index, gradient), None
