//! What the prototypes of a head have become: which of them are one and the same, which are used, how concentrated they are.
//!
//! A head compares a unit vector y with w_k = g_k v_k / |v_k|. Prototypes whose directions nearly agree are duplicates
//! ([`duplicates`]); one large set of them often points away from all data, the void set of the paper ([`VoidSet`]). Features reach
//! the head's sphere by [`project()`]; which prototypes they choose there is [`Assignments`], which images stand for one
//! [`exemplars`], and kappa = |w| / tau says how narrow a component is ([`Spread`]).

mod assign;
mod duplicates;
mod exemplars;
mod project;
mod spread;
mod statistics;
mod void;

pub use assign::{Assignments, Choice, PrototypeKind, assign};
pub use duplicates::{DEFAULT_THRESHOLDS, Directions, Duplicates, duplicates};
pub use exemplars::{Exemplar, exemplars};
pub(crate) use project::each_part;
pub use project::project;
pub use spread::Spread;
pub(crate) use statistics::HeadStatistics;
pub use void::VoidSet;
