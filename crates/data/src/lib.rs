//! Images on their way to a batch: source -> decode -> augment -> views -> batches.
//!
//! - [`source`]: where images come from: folders, tar, parquet, CIFAR and IDX files, lists, the procedural set `synthetic`.
//! - [`decode`]: bytes of a file to upright 8-bit RGB, as Pillow's `convert("RGB")` gives it.
//! - [`augment`]: one operation each, on 8-bit images, equal to Pillow and torchvision byte for byte.
//! - [`views`]: the multi-crop recipe. Parameters are drawn first, as plain data, and applied after.
//! - [`transform`]: what evaluation does to an image instead.
//! - [`loader`]: batches of views, prepared by threads, in an order that only (seed, epoch, position) decide.
//! - [`encode`]: images as small files for pages; [`sheet`]: views as a picture for people; [`label_map`]: segmentations as pictures with a palette.
//! - [`supervised`]: what becomes of views where a classifier is trained: erasing, mixing, smoothed labels.
//!
//! Randomness is a function of a [`random::Key`]: neither the number of threads nor a resume can change a view.

pub mod augment;
pub mod decode;
pub mod encode;
pub mod image;
pub mod label_map;
pub mod loader;
pub mod sheet;
pub mod source;
pub mod supervised;
pub mod transform;
pub mod views;

pub use crate::image::Image;
pub use decode::{DecodeError, DecodeLimits, Orientation};
pub use loader::{BadSample, Batch, CropGroup, Decoding, Loader, LoaderConfig, LoaderError};
pub use source::{Census, Copies, OpenError, PathsSource, ReadError, Reader, Source, Split, Stored, open, open_all};
pub use transform::{EvalTransform, IMAGENET_MEAN, IMAGENET_STD, normalization, normalize_chw};
pub use views::{MultiCrop, ViewParams};
