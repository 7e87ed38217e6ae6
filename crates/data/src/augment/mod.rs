//! Operations on 8-bit images, one family a file.
//!
//! Every operation rounds to bytes before the next begins, as a chain of Pillow calls does, and equals Pillow 13 and
//! torchvision byte for byte (`tests/augment.rs` and `tests/augment_many.rs` hold them to it). Most are plain loops that
//! the `simd!` macro compiles for each instruction set; where a kernel is written by hand, the plain loop stays beside it
//! as its oracle.

pub mod affine;
pub mod blur;
pub mod color;
pub mod crop;
pub mod flip;
pub mod histogram;
pub mod hue;
pub mod nearest;
pub mod points;
pub mod rand_augment;
pub mod reduce;
pub mod resize;
pub mod sharpness;
pub mod solarize;

pub use affine::{rotate, shear_x, shear_y, translate_x, translate_y};
pub use blur::{Blur, gaussian_blur};
pub use color::{brightness, contrast, grayscale, saturation};
pub use crop::{Rect, center_crop, crop};
pub use flip::flip_horizontal;
pub use histogram::{autocontrast, equalize};
pub use hue::{hue, hue_shift};
pub use nearest::resize_nearest;
pub use points::{invert, posterize, solarize_add};
pub use rand_augment::{Operation, RandAugment};
pub use reduce::reduce;
pub use resize::{Filter, resize, resize_crop};
pub(crate) use resize::{Resizer, Window};
pub use sharpness::sharpness;
pub use solarize::solarize;
