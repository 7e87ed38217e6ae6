//! The vision transformer: pixels to class-token features, and back.

use tensor::ops::{self, Grid, Pixels, RowStatistics, TokenLayout};
use tensor::{Device, ParamId, ParamSet, Rows, Tensor};

use crate::block::{Block, BlockOfStep, BlockSaved, Branches, ClassBlockSaved, LastOfStep};
use crate::config::{ConfigError, VitConfig};
use crate::drop_path::DropPath;
use crate::layers::{LayerNorm, Linear};
use crate::layout::{Init, Layout};

/// A vision transformer whose output is the class token after the final norm.
///
/// ```
/// use model::{Arch, Layout, Vit, VitConfig};
/// use tensor::ops::{PixelData, Pixels};
/// let device = tensor::Device::cpu(Default::default())?;
/// let mut layout = Layout::default();
/// let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Nano, 8, (32, 32), 3)?);
/// let weights = layout.initial(&device, 0);
/// // Images of any size: positions are interpolated.
/// let pixels = vec![0.1; 2 * 3 * 48 * 24];
/// let images = Pixels { count: 2, height: 48, width: 24, channels: 3, data: PixelData::Values(&pixels) };
/// assert_eq!(vit.features(&weights, &device, &[images])?.shape(), [2, 64]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Vit {
    config: VitConfig,
    class_token: ParamId,
    position: ParamId,
    patch: Linear,
    blocks: Vec<Block>,
    norm: LayerNorm,
    keeps_inputs_only: bool,
}

/// What the derivative of a block needs: all of it, or the block's input, from which it is made again.
#[derive(Debug)]
enum Kept {
    All(Box<BlockSaved>),
    Input(Tensor, Branches),
}

/// What the derivative of a forward pass needs.
#[derive(Debug)]
pub struct VitSaved {
    tokens: TokenLayout,
    patches: Tensor,
    blocks: Vec<Kept>,
    last: ClassBlockSaved,
    class: Tensor,
    class_rows: Rows,
    statistics: RowStatistics,
}

impl Vit {
    /// Adds the parameters of a network to a layout, their names behind `prefix`.
    pub fn new(layout: &mut Layout, prefix: &str, config: VitConfig) -> Self {
        let dim = config.dim;
        let (grid_h, grid_w) = config.grid();
        let small = Init::Normal { deviation: 0.02 };
        let class_token = layout.add(format!("{prefix}cls_token"), &[1, 1, dim], small);
        let position = layout.add(format!("{prefix}pos_embed"), &[1, 1 + grid_h * grid_w, dim], small);
        // The patch embedding is a convolution and keeps that layer's own default.
        let uniform = Init::Uniform { bound: 1.0 / (config.patch_values() as f64).sqrt() };
        let kernel = [dim, config.channels, config.patch, config.patch];
        let patch = Linear {
            weight: layout.add(format!("{prefix}patch_embed.proj.weight"), &kernel, uniform),
            bias: layout.add(format!("{prefix}patch_embed.proj.bias"), &[dim], uniform),
            outputs: dim,
        };
        let block = |layout: &mut Layout, i| {
            Block::new(layout, &format!("{prefix}blocks.{i}"), dim, config.heads, config.mlp_dim)
        };
        let blocks = (0..config.depth).map(|i| block(layout, i)).collect();
        let norm = LayerNorm::new(layout, &format!("{prefix}norm"), dim);
        Self { config, class_token, position, patch, blocks, norm, keeps_inputs_only: false }
    }

    /// Keep of each block but the last its input only, and compute it again in the backward pass: a quarter more time
    /// for a third of the memory. The same numbers.
    pub fn keep_inputs_only(mut self, yes: bool) -> Self {
        self.keeps_inputs_only = yes;
        self
    }

    /// Its shape.
    pub fn config(&self) -> &VitConfig {
        &self.config
    }

    /// Class-token features [images, dim] of images, keeping nothing.
    pub fn features(&self, p: &ParamSet, device: &Device, images: &[Pixels<'_>]) -> Result<Tensor, ConfigError> {
        let (tokens, patches) = self.cut(device, images)?;
        let (mut x, rows) = self.embed(p, &tokens, &patches);
        drop(patches);
        let (last, first) = self.blocks.split_last().ok_or(ConfigError::Zero { what: "the depth" })?;
        for block in first {
            x = block.infer(p, &x, &rows);
        }
        let class_rows = Rows::one_each(rows.segments());
        let last = LastOfStep::new(last, None, &rows, &class_rows);
        let entry = last.step().enter(p, x);
        let (class, _) = last.forward(p, entry);
        Ok(self.norm.forward(p, &class, &class_rows).0)
    }

    /// The same with what [`Vit::backward`] needs, and with residual branches skipped as drawn.
    pub fn forward(
        &self,
        p: &ParamSet,
        device: &Device,
        images: &[Pixels<'_>],
        drop_path: Option<&DropPath>,
    ) -> Result<(Tensor, VitSaved), ConfigError> {
        let (tokens, patches) = self.cut(device, images)?;
        let (x, rows) = self.embed(p, &tokens, &patches);
        let class_rows = Rows::one_each(rows.segments());
        let choice = |i| drop_path.map(|d| d.block(i));
        let (last, first) = self.blocks.split_last().ok_or(ConfigError::Zero { what: "the depth" })?;
        let last = LastOfStep::new(last, choice(first.len()), &rows, &class_rows);
        let of_step = |(i, block)| BlockOfStep::new(block, choice(i), &rows);
        let first: Vec<BlockOfStep<'_>> = first.iter().enumerate().map(of_step).collect();
        device.prepare_rows(&first.iter().flat_map(BlockOfStep::rows).chain(last.rows()).collect::<Vec<_>>());

        let mut entry = first.first().unwrap_or(last.step()).enter(p, x);
        let mut blocks = Vec::with_capacity(first.len());
        for (i, block) in first.iter().enumerate() {
            let saved;
            (entry, saved) = block.forward(p, entry, first.get(i + 1).unwrap_or(last.step()));
            blocks.push(if self.keeps_inputs_only {
                let (x, branches) = saved.into_input();
                Kept::Input(x, branches)
            } else {
                Kept::All(Box::new(saved))
            });
        }
        let (class, last) = last.forward(p, entry);
        let (features, statistics) = self.norm.forward(p, &class, &class_rows);
        Ok((features, VitSaved { tokens, patches, blocks, last, class, class_rows, statistics }))
    }

    /// Adds the gradients of all parameters, from that of the features. Nothing flows to the pixels.
    pub fn backward(&self, p: &ParamSet, saved: VitSaved, d_features: &Tensor, grads: &mut ParamSet) {
        let VitSaved { tokens, patches, blocks, last, class, class_rows, statistics } = saved;
        let mut d_class = class.zeros_like();
        self.norm.backward(p, &class, &class_rows, &statistics, d_features, &mut d_class, grads);
        let mut dx = match self.blocks.last() {
            Some(block) => block.backward_class(p, last, d_class, grads),
            None => return,
        };
        for (kept, block) in blocks.into_iter().zip(&self.blocks).rev() {
            let saved = match kept {
                Kept::All(saved) => *saved,
                Kept::Input(x, branches) => BlockOfStep::again(block, branches).recompute(p, x),
            };
            dx = block.backward(p, saved, dx, grads);
        }
        let (d_token, d_position) = grads.pair_mut(self.class_token, self.position);
        let d_patches = ops::assemble_tokens_backward(&tokens, &dx, d_token, d_position);
        self.patch.backward_weight(&patches, &d_patches, grads);
    }

    /// How the images become tokens, and their pixels as rows of patches.
    fn cut(&self, device: &Device, images: &[Pixels<'_>]) -> Result<(TokenLayout, Tensor), ConfigError> {
        let patch = self.config.patch;
        let mut groups = Vec::with_capacity(images.len());
        for g in images {
            let (height, width) = (g.height, g.width);
            if g.channels != self.config.channels {
                return Err(ConfigError::Channels { given: g.channels, expected: self.config.channels });
            }
            if height < patch || width < patch {
                return Err(ConfigError::ImageBelowPatch { height, width, patch });
            }
            groups.push((g.count, Grid::new((height / patch, width / patch), self.config.grid())));
        }
        Ok((TokenLayout::new(groups), ops::patchify(device, images, patch)))
    }

    fn embed(&self, p: &ParamSet, tokens: &TokenLayout, patches: &Tensor) -> (Tensor, Rows) {
        let embedded = ops::linear(patches, &self.patch.affine(p));
        let x = ops::assemble_tokens(tokens, &embedded, &p[self.class_token], &p[self.position]);
        (x, tokens.rows())
    }
}
