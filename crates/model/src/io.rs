//! What goes into a network, and what is read out of it.

use tensor::ops::Pixels;
use tensor::{ParamId, Rows};

use crate::drop_path::DropPath;

/// What goes into a network in training.
#[derive(Clone, Copy, Debug)]
pub struct VitInput<'a> {
    /// The images, in groups of one size.
    pub images: &'a [Pixels<'a>],
    /// Which residual branches each image takes; all of them where nothing is said.
    pub drop_path: Option<&'a DropPath>,
    /// Patches that it does not see; all are seen where nothing is said.
    pub masked: Option<Masked<'a>>,
    /// The tokens that go through the blocks; all of them where nothing is said.
    pub kept: Option<&'a Kept>,
}

/// Some tokens of a batch: those that go through the blocks, the others being left out of the packed matrix at no cost, or
/// those that are read after the last block.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Among all tokens.
    pub(crate) tokens: Rows,
    /// Those of each image in the matrix of what is kept.
    pub(crate) segments: Rows,
}

impl Kept {
    /// Of each image, in order: the number of its patches, and the numbers of those that are kept, ascending; none where it
    /// keeps all. The `leading` tokens before them, class token and registers, are always kept.
    pub fn new<'a>(leading: usize, images: impl IntoIterator<Item = (usize, Option<&'a [usize]>)>) -> Self {
        let (mut tokens, mut lengths, mut first) = (Vec::new(), Vec::new(), 0);
        for (patches, kept) in images {
            let before = tokens.len();
            tokens.extend(first..first + leading);
            match kept {
                Some(kept) => tokens.extend(kept.iter().map(|patch| first + leading + patch)),
                None => tokens.extend(first + leading..first + leading + patches),
            }
            lengths.push(tokens.len() - before);
            first += leading + patches;
        }
        Self { tokens: Rows::some(first, &tokens), segments: Rows::all(lengths) }
    }

    /// Those of each image in the matrix of what is kept.
    pub fn segments(&self) -> &Rows {
        &self.segments
    }

    /// Those of the images that are taken, in the matrix of all tokens of these images; `rows` has a segment for each image.
    pub(crate) fn among_taken(&self, rows: &Rows, taken: Option<&[bool]>) -> Rows {
        let Some(taken) = taken else { return self.tokens.clone() };
        let of_tokens = |s| self.tokens.start(s)..self.tokens.start(s) + self.tokens.segment_len(s);
        let mut tokens = (0..self.tokens.segments()).flat_map(of_tokens);
        let (mut found, mut first) = (Vec::with_capacity(self.tokens.count()), 0);
        for (image, &is_taken) in taken.iter().enumerate() {
            let of_image = tokens.by_ref().take(self.segments.segment_len(image));
            if is_taken {
                found.extend(of_image.map(|token| first + token - rows.start(image)));
                first += rows.segment_len(image);
            } else {
                of_image.for_each(drop);
            }
        }
        Rows::some(first, &found)
    }
}

/// Patches whose embedding is replaced by a mask token. They keep their positions.
#[derive(Clone, Copy, Debug)]
pub struct Masked<'a> {
    /// Which, among the patches of all images in their order.
    pub patches: &'a Rows,
    /// What stands for them: a parameter of a token's width.
    pub token: ParamId,
}

impl<'a> VitInput<'a> {
    /// Images alone.
    pub fn images(images: &'a [Pixels<'a>]) -> Self {
        Self { images, drop_path: None, masked: None, kept: None }
    }
}

/// Which tokens of an image are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// The class token. The last block then computes nothing but what that one needs.
    Class,
    /// The class token, the registers and all patch tokens after them.
    All,
}

/// What an evaluation reads out of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readout {
    /// Which tokens.
    pub tokens: Tokens,
    /// After how many of the last blocks, at least one.
    pub layers: usize,
    /// Whether through the network's final norm.
    pub norm: bool,
}

impl Default for Readout {
    /// The class token of the last block after the norm: DINO's feature.
    fn default() -> Self {
        Self { tokens: Tokens::Class, layers: 1, norm: true }
    }
}
