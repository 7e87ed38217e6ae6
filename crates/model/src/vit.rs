//! The vision transformer: from pixels to the tokens that are read, and back.

mod attention;

pub use attention::ClassAttention;

use std::ops::Range;

use tensor::ops::{self, Embeddings, Grid, Pixels, RowStatistics, TokenLayout};
use tensor::{Device, ParamId, ParamSet, Rows, Tensor};

use crate::block::{
    Block, BlockOfStep, BlockSaved, Branches, ClassBlockSaved, Entry, LastOfRead, LastOfStep, NextNorm, ReadBlockSaved,
};
use crate::config::{ConfigError, VitConfig};
use crate::io::{Kept, Masked, Readout, Tokens, VitInput};
use crate::layers::{LayerNorm, Linear, NormSaved, ResidualBranch};
use crate::layout::{Init, Layout};

/// A vision transformer. What goes in and what is read out are arguments, and what nobody reads is not computed.
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
    registers: Option<ParamId>,
    position: ParamId,
    patch: Linear,
    blocks: Vec<Block>,
    norm: LayerNorm,
    /// Where its parameters begin in the layout, where those of each block do, and of the last norm, and where they end.
    boundaries: Vec<usize>,
    keeps_inputs_only: bool,
}

/// What the derivative of a block needs: all of it, or the block's input, from which the rest is recomputed.
#[derive(Debug)]
enum BlockKept {
    All(Box<BlockSaved>),
    Input(Tensor, Branches),
}

/// What the derivative of a forward pass needs.
#[derive(Debug)]
pub struct VitSaved {
    tokens: TokenLayout,
    patches: Tensor,
    /// Masked patches and their token.
    masked: Option<(Rows, ParamId)>,
    /// The tokens that went through the blocks, where not all did.
    kept: Option<Rows>,
    blocks: Vec<BlockKept>,
    end: EndSaved,
}

/// What the derivative of a network's end needs.
#[derive(Debug)]
enum EndSaved {
    /// The last block for class tokens alone, and the norm of those.
    Class { last: Box<ClassBlockSaved>, class: Tensor, rows: Rows, statistics: RowStatistics },
    /// The last block as far as some tokens need it, and the norm of those.
    Some { last: Box<ReadBlockSaved>, x: Tensor, rows: Rows, statistics: RowStatistics },
    /// The norm of all tokens.
    All { x: Tensor, rows: Rows, statistics: RowStatistics },
}

/// What is read after the last block.
enum Read<'a> {
    Class,
    Some(&'a Kept),
    All,
}

impl Vit {
    /// Adds the parameters of a network to a layout, their names behind `prefix`.
    pub fn new(layout: &mut Layout, prefix: &str, config: VitConfig) -> Self {
        let dim = config.dim;
        let mut boundaries = vec![layout.specs().len()];
        let (grid_h, grid_w) = config.grid();
        let small = Init::Normal { deviation: 0.02 };
        let class_token = layout.add(format!("{prefix}cls_token"), &[1, 1, dim], small);
        let registers = Some(config.extras.registers).filter(|&count| count > 0);
        let registers = registers.map(|count| layout.add(format!("{prefix}register_tokens"), &[1, count, dim], small));
        let position = layout.add(format!("{prefix}pos_embed"), &[1, 1 + grid_h * grid_w, dim], small);
        // The patch embedding is a convolution and keeps that layer's own default.
        let uniform = Init::Uniform { bound: 1.0 / (config.patch_values() as f64).sqrt() };
        let kernel = [dim, config.channels, config.patch, config.patch];
        let patch = Linear {
            weight: layout.add(format!("{prefix}patch_embed.proj.weight"), &kernel, uniform),
            bias: layout.add(format!("{prefix}patch_embed.proj.bias"), &[dim], uniform),
            outputs: dim,
        };
        let mut blocks = Vec::with_capacity(config.depth);
        for i in 0..config.depth {
            boundaries.push(layout.specs().len());
            blocks.push(Block::new(layout, &format!("{prefix}blocks.{i}"), &config));
        }
        boundaries.push(layout.specs().len());
        let norm = LayerNorm::new(layout, &format!("{prefix}norm"), dim, config.extras.norm_epsilon);
        boundaries.push(layout.specs().len());
        Self { config, class_token, registers, position, patch, blocks, norm, boundaries, keeps_inputs_only: false }
    }

    /// The ids of its parameters, which are neighbours in the layout.
    pub fn parameters(&self) -> Range<usize> {
        self.boundaries[0]..self.boundaries[self.boundaries.len() - 1]
    }

    /// The ids of a block's parameters; those of the last norm for the number behind the last block's.
    fn parameters_of(&self, block: usize) -> Range<usize> {
        self.boundaries[block + 1]..self.boundaries[block + 2]
    }

    /// Keep of each block only its input, and recompute the rest in the backward pass (activation checkpointing): a quarter
    /// more time for a third of the memory, and the same numbers. The last block keeps all where only class tokens are read.
    pub fn keep_inputs_only(mut self, yes: bool) -> Self {
        self.keeps_inputs_only = yes;
        self
    }

    /// Its shape.
    pub fn config(&self) -> &VitConfig {
        &self.config
    }

    /// The weights of each block's attention: of queries, keys and values, and of the output projection.
    pub(crate) fn attentions(&self) -> impl Iterator<Item = (ParamId, ParamId)> {
        self.blocks.iter().map(Block::attention_weights)
    }

    /// The position embeddings.
    pub(crate) fn position(&self) -> ParamId {
        self.position
    }

    /// Class-token features [images, dim] of images, after the final norm, keeping nothing.
    pub fn features(&self, p: &ParamSet, device: &Device, images: &[Pixels<'_>]) -> Result<Tensor, ConfigError> {
        let mut read = self.read(p, device, images, &Readout::default())?;
        Ok(read.swap_remove(0))
    }

    /// What `readout` asks for, keeping nothing: a matrix for each of the last layers, the last one last, with a row for
    /// each token that is read.
    pub fn read(
        &self,
        p: &ParamSet,
        device: &Device,
        images: &[Pixels<'_>],
        readout: &Readout,
    ) -> Result<Vec<Tensor>, ConfigError> {
        let depth = self.blocks.len();
        if !(1..=depth).contains(&readout.layers) {
            return Err(ConfigError::Layers { asked: readout.layers, depth });
        }
        let (tokens, patches) = self.cut(device, images)?;
        let (mut x, rows) = self.embed(p, &tokens, &patches, None);
        drop(patches);
        let class_rows = Rows::one_each(rows.segments());
        let (last, first) = self.split_last()?;
        let normed = |x: &Tensor, rows: &Rows| readout.norm.then(|| self.norm.forward(p, x, rows).0);
        let normed_class = |class: Tensor| normed(&class, &class_rows).unwrap_or(class);
        let mut read = Vec::with_capacity(readout.layers);
        for (i, block) in first.iter().enumerate() {
            x = block.infer(p, &x, &rows);
            if i + readout.layers >= depth {
                read.push(match readout.tokens {
                    Tokens::Class => normed_class(ops::gather(&x, &rows.first_of_each(), 1.0)),
                    Tokens::All => normed(&x, &rows).unwrap_or_else(|| x.duplicate()),
                });
            }
        }
        read.push(match readout.tokens {
            Tokens::Class => normed_class(self.class_of_last(p, last, x, &rows, &class_rows)),
            Tokens::All => {
                let x = last.infer(p, &x, &rows);
                normed(&x, &rows).unwrap_or(x)
            }
        });
        Ok(read)
    }

    /// Tokens that were read before the final norm, a row each, after it.
    pub fn final_norm(&self, p: &ParamSet, tokens: &Tensor) -> Tensor {
        self.norm.forward(p, tokens, &Rows::one_each(tokens.rows())).0
    }

    /// The class tokens after the last block, of which nothing else is computed.
    fn class_of_last(&self, p: &ParamSet, last: &Block, x: Tensor, rows: &Rows, class_rows: &Rows) -> Tensor {
        let last = LastOfStep::new(last, None, rows, class_rows);
        let entry = last.first_norm().enter(p, x);
        last.forward(p, entry).0
    }

    /// The tokens that are read, after the final norm, with what [`Vit::backward`] needs: class tokens [images, dim], or
    /// all tokens [tokens, dim], each image's class token and registers before its patches.
    pub fn forward(
        &self,
        p: &ParamSet,
        device: &Device,
        input: &VitInput<'_>,
        read: Tokens,
    ) -> Result<(Tensor, VitSaved), ConfigError> {
        let read = match read {
            Tokens::Class => Read::Class,
            Tokens::All => Read::All,
        };
        self.forward_reading(p, device, input, read)
    }

    /// The same of some tokens, which are the rows of the matrix that is returned; [`Vit::backward`] then takes the gradient
    /// of those. The tokens are numbered as they go through the blocks.
    pub fn forward_some(
        &self,
        p: &ParamSet,
        device: &Device,
        input: &VitInput<'_>,
        read: &Kept,
    ) -> Result<(Tensor, VitSaved), ConfigError> {
        self.forward_reading(p, device, input, Read::Some(read))
    }

    fn forward_reading(
        &self,
        p: &ParamSet,
        device: &Device,
        input: &VitInput<'_>,
        read: Read<'_>,
    ) -> Result<(Tensor, VitSaved), ConfigError> {
        let (tokens, patches) = self.cut(device, input.images)?;
        let (mut x, mut rows) = self.embed(p, &tokens, &patches, input.masked);
        if let Some(kept) = input.kept {
            x = ops::gather(&x, &kept.tokens, 1.0);
            rows = kept.segments.clone();
        }
        let choice = |i| input.drop_path.map(|d| d.block(i));
        let of_step = |(i, block)| BlockOfStep::new(block, choice(i), &rows);
        let mut kept = Vec::with_capacity(self.blocks.len());
        let mut keep = |saved: BlockSaved| {
            kept.push(if self.keeps_inputs_only {
                let (x, branches) = saved.into_input();
                BlockKept::Input(x, branches)
            } else {
                BlockKept::All(Box::new(saved))
            });
        };
        let (features, end) = match read {
            Read::Class => {
                let class_rows = Rows::one_each(rows.segments());
                let (last, first) = self.split_last()?;
                let last = LastOfStep::new(last, choice(first.len()), &rows, &class_rows);
                let first: Vec<BlockOfStep<'_>> = first.iter().enumerate().map(of_step).collect();
                device.prepare_rows(&first.iter().flat_map(BlockOfStep::rows).chain(last.rows()).collect::<Vec<_>>());
                let entry = through(p, x, &first, last.first_norm(), &mut keep);
                let (class, last) = last.forward(p, entry);
                let (features, statistics) = self.norm.forward(p, &class, &class_rows);
                (features, EndSaved::Class { last: Box::new(last), class, rows: class_rows, statistics })
            }
            Read::Some(read) => {
                let (last, first) = self.split_last()?;
                let last = LastOfRead::new(last, choice(first.len()), &rows, read);
                let first: Vec<BlockOfStep<'_>> = first.iter().enumerate().map(of_step).collect();
                device.prepare_rows(&first.iter().flat_map(BlockOfStep::rows).chain(last.rows()).collect::<Vec<_>>());
                let entry = through(p, x, &first, last.first_norm(), &mut keep);
                let (x, last) = last.forward(p, entry);
                let rows = Rows::one_each(x.rows());
                let (features, statistics) = self.norm.forward(p, &x, &rows);
                (features, EndSaved::Some { last: Box::new(last), x, rows, statistics })
            }
            Read::All => {
                let blocks: Vec<BlockOfStep<'_>> = self.blocks.iter().enumerate().map(of_step).collect();
                device.prepare_rows(&blocks.iter().flat_map(BlockOfStep::rows).collect::<Vec<_>>());
                let whole = ResidualBranch::new(&rows, None);
                let end = NextNorm { norm: &self.norm, branch: &whole };
                let NormSaved { x, normed, statistics } = through(p, x, &blocks, end, &mut keep).into_norm();
                (normed, EndSaved::All { x, rows, statistics })
            }
        };
        let masked = input.masked.map(|masked| (masked.patches.clone(), masked.token));
        let tokens_kept = input.kept.map(|kept| kept.tokens.clone());
        Ok((features, VitSaved { tokens, patches, masked, kept: tokens_kept, blocks: kept, end }))
    }

    /// Adds the gradients of all parameters, from that of the tokens that were read. Nothing flows to the pixels.
    pub fn backward(&self, p: &ParamSet, saved: VitSaved, d_features: &Tensor, grads: &mut ParamSet) {
        self.backward_telling(p, saved, d_features, grads, &mut |_, _| ());
    }

    /// The same; whoever sends gradients on is told the ids of those that nothing more is added to, as soon as that is so: of the
    /// last norm and of each block, from the last to the first. Those of the tokens and of the patches are final when this
    /// returns.
    pub fn backward_telling(
        &self,
        p: &ParamSet,
        saved: VitSaved,
        d_features: &Tensor,
        grads: &mut ParamSet,
        are_final: &mut dyn FnMut(&mut ParamSet, Range<usize>),
    ) {
        let VitSaved { tokens, patches, masked, kept, blocks, end } = saved;
        let depth = self.blocks.len();
        let mut dx = match (end, self.blocks.last()) {
            (EndSaved::Class { last, class, rows, statistics }, Some(block)) => {
                let mut d_class = class.zeros_like();
                self.norm.backward(p, &class, &rows, &statistics, d_features, &mut d_class, grads);
                are_final(grads, self.parameters_of(depth));
                let dx = block.backward_class(p, *last, d_class, grads);
                are_final(grads, self.parameters_of(depth - 1));
                dx
            }
            (EndSaved::Some { last, x, rows, statistics }, Some(block)) => {
                let mut d_read = x.zeros_like();
                self.norm.backward(p, &x, &rows, &statistics, d_features, &mut d_read, grads);
                drop(x);
                are_final(grads, self.parameters_of(depth));
                let dx = block.backward_read(p, *last, d_read, grads);
                are_final(grads, self.parameters_of(depth - 1));
                dx
            }
            (EndSaved::All { x, rows, statistics }, _) => {
                let mut dx = x.zeros_like();
                self.norm.backward(p, &x, &rows, &statistics, d_features, &mut dx, grads);
                are_final(grads, self.parameters_of(depth));
                dx
            }
            (EndSaved::Class { .. } | EndSaved::Some { .. }, None) => return,
        };
        for (i, (kept, block)) in blocks.into_iter().zip(&self.blocks).enumerate().rev() {
            let saved = match kept {
                BlockKept::All(saved) => *saved,
                BlockKept::Input(x, branches) => BlockOfStep::with_branches(block, branches).recompute(p, x),
            };
            dx = block.backward(p, saved, dx, grads);
            are_final(grads, self.parameters_of(i));
        }
        if let Some(kept) = kept {
            dx = ops::scatter(&dx, &kept);
        }
        let mut d_patches = self.backward_tokens(&tokens, &dx, grads);
        if let Some((rows, token)) = masked {
            ops::replace_rows_backward(&mut d_patches, &rows, &mut grads[token]);
        }
        self.patch.backward_weight(&patches, &d_patches, grads);
    }

    fn backward_tokens(&self, tokens: &TokenLayout, dx: &Tensor, grads: &mut ParamSet) -> Tensor {
        let mut learnt = match self.registers {
            None => {
                let [class, position] = grads.several_mut([self.class_token, self.position]);
                Embeddings { class, registers: None, position }
            }
            Some(registers) => {
                let [class, registers, position] = grads.several_mut([self.class_token, registers, self.position]);
                Embeddings { class, registers: Some(registers), position }
            }
        };
        ops::assemble_tokens_backward(tokens, dx, &mut learnt)
    }

    fn split_last(&self) -> Result<(&Block, &[Block]), ConfigError> {
        self.blocks.split_last().ok_or(ConfigError::Zero { what: "the depth" })
    }

    /// How the images become tokens, and their pixels as rows of patches.
    fn cut(&self, device: &Device, images: &[Pixels<'_>]) -> Result<(TokenLayout, Tensor), ConfigError> {
        let VitConfig { patch, extras, .. } = self.config;
        let mut groups = Vec::with_capacity(images.len());
        for g in images {
            let (height, width) = (g.height, g.width);
            if g.channels != self.config.channels {
                return Err(ConfigError::Channels { given: g.channels, expected: self.config.channels });
            }
            if height < patch || width < patch {
                return Err(ConfigError::ImageBelowPatch { height, width, patch });
            }
            let (grid, rule) = ((height / patch, width / patch), extras.interpolation);
            groups.push((g.count, Grid::new(grid, self.config.grid(), rule)));
        }
        Ok((TokenLayout::new(groups).with_registers(extras.registers), ops::patchify(device, images, patch)))
    }

    fn embed(
        &self,
        p: &ParamSet,
        tokens: &TokenLayout,
        patches: &Tensor,
        masked: Option<Masked<'_>>,
    ) -> (Tensor, Rows) {
        let mut embedded = ops::linear(patches, &self.patch.affine(p));
        if let Some(Masked { patches, token }) = masked {
            ops::replace_rows(&mut embedded, patches, &p[token]);
        }
        let learnt = Embeddings {
            class: &p[self.class_token],
            registers: self.registers.map(|registers| &p[registers]),
            position: &p[self.position],
        };
        let x = ops::assemble_tokens(tokens, &embedded, &learnt);
        (x, tokens.rows())
    }
}

/// All tokens through some blocks, up to the norm that follows them.
fn through(
    p: &ParamSet,
    x: Tensor,
    blocks: &[BlockOfStep<'_>],
    end: NextNorm<'_>,
    keep: &mut dyn FnMut(BlockSaved),
) -> Entry {
    let mut entry = blocks.first().map_or(end, BlockOfStep::first_norm).enter(p, x);
    for (i, block) in blocks.iter().enumerate() {
        let saved;
        (entry, saved) = block.forward(p, entry, blocks.get(i + 1).map_or(end, BlockOfStep::first_norm));
        keep(saved);
    }
    entry
}
