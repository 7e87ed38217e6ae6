//! The family of architectures.

use std::fmt;
use std::str::FromStr;

use tensor::ops::Interpolation;

/// The sizes that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64 wide, 4 blocks: small images on a laptop. Ours; not one of the literature's sizes.
    Nano,
    /// 192 wide, 12 blocks.
    Tiny,
    /// 384 wide, 12 blocks.
    Small,
    /// 768 wide, 12 blocks.
    Base,
    /// 1024 wide, 24 blocks.
    Large,
}

impl Arch {
    /// All of them, smallest first.
    pub const ALL: [Arch; 5] = [Arch::Nano, Arch::Tiny, Arch::Small, Arch::Base, Arch::Large];

    /// Their names on the command line and in recipes, in the same order.
    pub const NAMES: [&'static str; 5] = ["vit_nano", "vit_tiny", "vit_small", "vit_base", "vit_large"];

    /// The name on the command line and in recipes.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Width of a token.
    pub fn dim(self) -> usize {
        self.dim_depth().0
    }

    /// Number of blocks.
    pub fn depth(self) -> usize {
        self.dim_depth().1
    }

    fn dim_depth(self) -> (usize, usize) {
        match self {
            Arch::Nano => (64, 4),
            Arch::Tiny => (192, 12),
            Arch::Small => (384, 12),
            Arch::Base => (768, 12),
            Arch::Large => (1024, 24),
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arch {
    type Err = ConfigError;
    fn from_str(s: &str) -> Result<Self, ConfigError> {
        Arch::ALL
            .into_iter()
            .find(|a| a.name() == s)
            .ok_or_else(|| ConfigError::UnknownArch { given: s.into(), known: Arch::NAMES.join(", ") })
    }
}

/// A network that cannot be.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ConfigError {
    /// No architecture of that name.
    #[error("unknown architecture `{given}`; there are {known}")]
    UnknownArch {
        /// What was asked for.
        given: String,
        /// The names there are.
        known: String,
    },
    /// An image that does not hold one patch.
    #[error("an image of {height}x{width} pixels does not hold one patch of {patch}x{patch}: use a smaller patch size")]
    ImageBelowPatch {
        /// Image rows.
        height: usize,
        /// Image columns.
        width: usize,
        /// Patch side.
        patch: usize,
    },
    /// Images of other channels than the network's.
    #[error("images of {given} channels do not fit a network for {expected}")]
    Channels {
        /// Channels of the images.
        given: usize,
        /// Channels of the network.
        expected: usize,
    },
    /// A size of zero.
    #[error("{what} must not be zero")]
    Zero {
        /// Which size.
        what: &'static str,
    },
    /// More layers read out than there are.
    #[error("{asked} layers cannot be read out of a network of {depth} blocks")]
    Layers {
        /// Layers asked for.
        asked: usize,
        /// Blocks there are.
        depth: usize,
    },
    /// Heads that do not divide the width.
    #[error("{heads} heads do not divide a width of {dim}")]
    Heads {
        /// Number of heads.
        heads: usize,
        /// Width.
        dim: usize,
    },
}

/// The shape of a vision transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct VitConfig {
    /// Width of a token.
    pub dim: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Attention heads of a block.
    pub heads: usize,
    /// Width of the hidden layer of a block's MLP.
    pub mlp_dim: usize,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Rows and columns in pixels of the images whose grid the position embeddings are learnt for.
    pub image: (usize, usize),
    /// Channels of an image.
    pub channels: usize,
    /// How it differs from DINO's.
    pub extras: Extras,
}

/// How a network differs from DINO's: what later ones have added to it, and other programs do otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extras {
    /// Register tokens between the class token and the patches, without positions.
    pub registers: usize,
    /// LayerScale: a learnt factor for each output of a residual branch.
    pub layer_scale: bool,
    /// How positions are interpolated for images of another size.
    pub interpolation: Interpolation,
    /// What LayerNorm adds to a variance.
    pub norm_epsilon: f64,
}

impl Extras {
    /// A network as DINO has it.
    pub const NONE: Extras =
        Extras { registers: 0, layer_scale: false, interpolation: Interpolation::Dino, norm_epsilon: 1e-6 };
}

impl VitConfig {
    /// One of the named sizes. Heads are 64 wide, the MLP four times as wide as a token.
    pub fn new(arch: Arch, patch: usize, image: (usize, usize), channels: usize) -> Result<Self, ConfigError> {
        let (dim, depth) = arch.dim_depth();
        let extras = Extras::NONE;
        Self { dim, depth, heads: dim / 64, mlp_dim: 4 * dim, patch, image, channels, extras }.checked()
    }

    /// The same, if such a network can be.
    pub fn checked(self) -> Result<Self, ConfigError> {
        let sizes = [
            (self.dim, "the width"),
            (self.depth, "the depth"),
            (self.heads, "the number of heads"),
            (self.mlp_dim, "the MLP width"),
            (self.patch, "the patch size"),
            (self.channels, "the number of channels"),
        ];
        if let Some((_, what)) = sizes.into_iter().find(|(size, _)| *size == 0) {
            return Err(ConfigError::Zero { what });
        }
        if !self.dim.is_multiple_of(self.heads) {
            return Err(ConfigError::Heads { heads: self.heads, dim: self.dim });
        }
        let (height, width) = self.image;
        if height < self.patch || width < self.patch {
            return Err(ConfigError::ImageBelowPatch { height, width, patch: self.patch });
        }
        Ok(self)
    }

    /// The named size that this network has; none where width, depth or heads are of no such size.
    pub fn arch(&self) -> Option<Arch> {
        let of_size = |arch: &Arch| arch.dim_depth() == (self.dim, self.depth);
        Arch::ALL.into_iter().find(of_size).filter(|_| self.dim == 64 * self.heads)
    }

    /// Rows and columns of patches in an image of the learnt size.
    pub fn grid(&self) -> (usize, usize) {
        (self.image.0 / self.patch, self.image.1 / self.patch)
    }

    /// Tokens of an image that stand before its patches: the class token and the registers.
    pub fn leading_tokens(&self) -> usize {
        1 + self.extras.registers
    }

    /// Tokens of an image of this size.
    pub fn tokens(&self, (height, width): (usize, usize)) -> usize {
        self.leading_tokens() + (height / self.patch) * (width / self.patch)
    }

    /// Values of one patch.
    pub fn patch_values(&self) -> usize {
        self.channels * self.patch * self.patch
    }

    /// Multiplications and additions of a forward pass over one image of this size, for all tokens of all blocks: the
    /// figure that published model FLOPs use.
    pub fn forward_flops(&self, (height, width): (usize, usize)) -> f64 {
        let patches = ((height / self.patch) * (width / self.patch)) as f64;
        let (tokens, dim) = (self.tokens((height, width)) as f64, self.dim as f64);
        let block = tokens * dim * (8.0 * dim + 4.0 * self.mlp_dim as f64) + 4.0 * tokens * tokens * dim;
        2.0 * patches * self.patch_values() as f64 * dim + self.depth as f64 * block
    }
}
