//! Vision transformers and projection heads: what they compute, forward and backward, and how weights come in.
//!
//! A network is a description; its weights are data. [`Layout`] lists the parameters by the names that DINO's files use, a
//! [`tensor::ParamSet`] holds a value for each, and the same [`Vit`] runs with the student's weights or the teacher's. A
//! layer's `forward` returns what its `backward` needs, and the two stand next to each other.
//!
//! Nothing here names a device: tensors know theirs.

mod block;
mod classifier;
mod config;
mod drop_path;
mod head;
mod io;
mod layers;
mod layout;
mod peers;
mod projector;
mod prototypes;
mod shared_norm;
mod start;
mod vit;
pub mod weights;

pub use classifier::Classifier;
pub use config::{Arch, ConfigError, Extras, VitConfig};
pub use drop_path::DropPath;
pub use head::{Head, HeadConfig};
pub use io::{Kept, Masked, Readout, Tokens, VitInput};
pub use layout::{Init, Layout, ParamSpec};
pub use peers::{Alone, Awaited, PeerError, Peers};
pub use projector::{Projected, Projector, ProjectorConfig};
pub use prototypes::PrototypeLayer;
pub use start::Start;
pub use vit::{ClassAttention, Vit, VitSaved};
