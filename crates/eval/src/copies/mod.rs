//! Copy detection on Copydays, by the protocol of DINO: which original is this a copy of?
//!
//! A feature is [class token ; GeM of the patch tokens], optionally whitened. The originals, with distractors if there are any,
//! are searched for the image that a query was made from, by cosine; the 20 nearest are judged by average precision, block
//! by block. `strong` (prints, drawings, collages) is the number that is reported.
//!
//! - [`CopySet`]: the images, as they are downloaded.
//! - [`describe`]: their features. [`Whitening`]: what makes their directions equally wide.
//! - [`score`]: average precision of a block.

mod features;
mod layout;
mod score;
mod whitening;

pub use features::describe;
pub use layout::{Block, CopySet, CopySetError};
pub use score::{DEPTH, score};
pub use whitening::Whitening;
