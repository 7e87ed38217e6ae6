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
        Self { images, drop_path: None, masked: None }
    }
}

/// Which tokens of an image are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// The class token. The last block then computes nothing but what that one needs.
    Class,
    /// The class token and all patch tokens after it.
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
