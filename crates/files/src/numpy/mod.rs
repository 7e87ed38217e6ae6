//! NumPy's arrays: in files of their own (`.npy`), and inside pickles. Read only, and nothing is run.

mod element;
mod in_pickle;
mod npy;

pub use element::Element;
pub use in_pickle::{floats, integers};
pub use npy::{NpyError, NpyFile};
