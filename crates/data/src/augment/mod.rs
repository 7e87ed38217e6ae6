//! Operations on 8-bit images, one family a file.
//!
//! Every operation rounds to bytes before the next begins, as a chain of Pillow calls does, and equals Pillow 13 and
//! torchvision byte for byte (`tests/augment.rs` holds them to it). These are the plain forms: whoever adds a faster
//! one keeps the plain one beside it as its oracle.

pub mod blur;
pub mod color;
pub mod crop;
pub mod flip;
pub mod hue;
pub mod reduce;
pub mod resize;
pub mod solarize;

pub use blur::{Blur, gaussian_blur};
pub use color::{brightness, contrast, grayscale, saturation};
pub use crop::{Rect, center_crop, crop};
pub use flip::flip_horizontal;
pub use hue::hue;
pub use reduce::reduce;
pub use resize::{Filter, Resize, Resizer, Window, resize, resize_crop};
pub use solarize::solarize;
