//! The graph of a vision transformer, from its sizes and its tensors.
//!
//! Tensors have the names and shapes of DINO's state dict. The batch is as long as whoever runs the model likes; the
//! image has one size, for which the caller has interpolated the position embeddings: interpolation inside the graph is
//! what other exporters and runtimes stumble over.
//!
//! ```text
//! pixels [batch, channels, height, width], normalised
//!   ──► Conv ──► class token in front, positions added, registers between the two
//!   ──► blocks: x + attention(LayerNorm x), x + MLP(LayerNorm x) ──► LayerNorm
//!   ──► class [batch, dim], patches [batch, patches, dim]
//! class ──► head: Linear, GELU, ..., Linear, unit length ──► kappa [batch], log_density [batch]
//! ```

mod block;
mod build;
mod head;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use crate::graph::{Attribute, Dim, Element, Model, ValueInfo};
use crate::run::OPSET;

use build::Builder;
pub use head::{Head, Mixture};

/// The name of the batch's length.
const BATCH: &str = "batch";

/// The sizes of a vision transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct VitGraph {
    /// Width of a token.
    pub dim: usize,
    /// Blocks.
    pub depth: usize,
    /// Heads of attention, which share the width evenly.
    pub heads: usize,
    /// Width of the MLP's hidden layer.
    pub mlp_dim: usize,
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Rows and columns of an image. Those beyond a whole number of patches are ignored, as DINO does.
    pub image: (usize, usize),
    /// Register tokens, which stand between the class token and the patches and have no position.
    pub registers: usize,
    /// Whether each branch is scaled by a learnt vector before it is added.
    pub layer_scale: bool,
    /// What the LayerNorms add to the variance.
    pub epsilon: f32,
}

/// Where the tensors of a network are, by the names of DINO's state dict.
pub trait Tensors {
    /// The shape of a tensor; none where there is no such tensor.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;

    /// Its elements, row-major. Asked for when the file has come to them, and perhaps more than once.
    fn values(&self, name: &str) -> io::Result<Cow<'_, [f32]>>;
}

/// Why a network has no graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// Sizes that make no network.
    #[error("a network with {what} cannot be")]
    Sizes {
        /// What is wrong with them.
        what: String,
    },
    /// A tensor that is not there.
    #[error("the network has no tensor `{name}`")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A tensor of another shape than the sizes ask for.
    #[error("tensor `{name}` has the shape {found:?} and should have {expected:?}")]
    Shape {
        /// Its name.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The right one.
        expected: Vec<usize>,
    },
    /// A mixture whose parts do not fit together.
    #[error("the mixture has {components} components, but {found} {what}")]
    Mixture {
        /// Components, by the number of concentrations.
        components: usize,
        /// What does not fit.
        what: &'static str,
        /// How many of them there are.
        found: usize,
    },
}

impl VitGraph {
    /// Rows and columns of patches.
    pub fn grid(&self) -> (usize, usize) {
        let patch = self.patch.max(1);
        (self.image.0 / patch, self.image.1 / patch)
    }

    /// Patches of an image.
    pub fn patches(&self) -> usize {
        self.grid().0 * self.grid().1
    }

    /// The graph, whose weights remain where they are until it is written or run. Producer and metadata are empty: the
    /// caller knows what there is to say.
    pub fn build<'a>(&self, tensors: &'a dyn Tensors, head: Option<&Head>) -> Result<Model<'a>, BuildError> {
        self.check()?;
        let mut builder = Builder::new(tensors);
        builder.input(value("pixels", &[self.channels, self.image.0, self.image.1]));
        let mut x = self.tokens(&mut builder)?;
        for i in 0..self.depth {
            x = self.block(&mut builder, i, x)?;
        }
        let x = builder.layer_norm("norm", x, self.dim, self.epsilon)?;
        self.read_out(&mut builder, x);
        if let Some(head) = head {
            head.add(&mut builder, "class", self.dim)?;
        }
        Ok(Model {
            graph: builder.graph("vision transformer"),
            metadata: BTreeMap::new(),
            producer_name: String::new(),
            producer_version: String::new(),
            opset: OPSET,
        })
    }

    fn check(&self) -> Result<(), BuildError> {
        let wrong = |what: String| Err(BuildError::Sizes { what });
        let sizes = [self.dim, self.heads, self.mlp_dim, self.patch, self.channels];
        if sizes.contains(&0) || self.patches() == 0 {
            return wrong(format!(
                "a size of zero, or an image of {:?} without one patch of {}",
                self.image, self.patch
            ));
        }
        match self.dim % self.heads {
            0 => Ok(()),
            _ => wrong(format!("{} channels in {} heads", self.dim, self.heads)),
        }
    }

    /// From pixels to the tokens that enter the first block.
    fn tokens(&self, builder: &mut Builder<'_>) -> Result<String, BuildError> {
        let (dim, patch, patches) = (self.dim, self.patch, self.patches());
        let weight = builder.weight("patch_embed.proj.weight", &[dim, self.channels, patch, patch])?;
        let bias = builder.weight("patch_embed.proj.bias", &[dim])?;
        let sides = || Attribute::Ints(vec![patch as i64; 2]);
        let attributes = [("kernel_shape", sides()), ("strides", sides())];
        let map = builder.node("Conv", "patch_embed.map", &["pixels", &weight, &bias], attributes);
        let flat = builder.ints("patch_embed.flat_shape", &[0, dim as i64, patches as i64]);
        let flat = builder.node("Reshape", "patch_embed.flat", &[&map, &flat], []);
        let embedded = builder.transpose("patch_embed.patches", &flat, &[0, 2, 1]);

        // The learnt tokens stand once in the file and once before each image of the batch.
        let shape = builder.node("Shape", "batch.shape", &[&embedded], []);
        let zero = builder.ints("batch.axis", &[0]);
        let batch = builder.node("Gather", "batch.length", &[&shape, &zero], [("axis", Attribute::Int(0))]);
        let class = builder.weight("cls_token", &[1, 1, dim])?;
        let class = builder.for_each_image(&batch, class, 1, dim);
        let tokens = builder.concat("tokens", &[&class, &embedded], 1);
        let positions = builder.weight("pos_embed", &[1, 1 + patches, dim])?;
        let placed = builder.node("Add", "tokens.placed", &[&tokens, &positions], []);
        if self.registers == 0 {
            return Ok(placed);
        }
        let sizes = builder.ints("tokens.class_and_patches", &[1, patches as i64]);
        let [class, patches] = ["tokens.class", "tokens.patches"];
        builder.nodes("Split", &[class, patches], &[&placed, &sizes], [("axis", Attribute::Int(1))]);
        let registers = builder.weight("register_tokens", &[1, self.registers, dim])?;
        let registers = builder.for_each_image(&batch, registers, self.registers, dim);
        Ok(builder.concat("tokens.with_registers", &[class, &registers, patches], 1))
    }

    /// The outputs that every network has.
    fn read_out(&self, builder: &mut Builder<'_>, x: String) {
        let axis = || Attribute::Int(1);
        let first = builder.int("class.index", 0);
        builder.node("Gather", "class", &[&x, &first], [("axis", axis())]);
        builder.output(value("class", &[self.dim]));
        let start = 1 + self.registers;
        let starts = builder.ints("patches.start", &[start as i64]);
        let ends = builder.ints("patches.end", &[(start + self.patches()) as i64]);
        let axes = builder.ints("patches.axis", &[1]);
        builder.node("Slice", "patches", &[&x, &starts, &ends, &axes], []);
        builder.output(value("patches", &[self.patches(), self.dim]));
    }
}

/// An input or output with the batch in front.
fn value(name: &str, sides: &[usize]) -> ValueInfo {
    let sides = sides.iter().map(|&side| Dim::Fixed(side));
    let dims = [Dim::Named(BATCH.to_owned())].into_iter().chain(sides).collect();
    ValueInfo { name: name.to_owned(), element: Element::F32, dims }
}
