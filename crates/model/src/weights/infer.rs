//! The network that the shapes of a backbone's tensors describe.

use std::path::Path;

use super::LoadOptions;
use super::described::{self, HeadsFrom};
use super::error::WeightsError;
use super::file::{TensorInfo, WeightsFile};
use super::names::{KeyLayout, Matched};
use crate::{Extras, Layout, VitConfig};

/// Reads the network's shape off its tensors, which must all be there, and the rest off what the file says; and who says
/// how many heads there are.
pub(super) fn config(
    file: &WeightsFile,
    matched: &Matched<'_>,
    options: &LoadOptions,
) -> Result<(VitConfig, HeadsFrom), WeightsError> {
    let (path, metadata) = (file.path(), file.metadata());
    let [_, _, dim] = extents(path, matched, "cls_token", "[1, 1, width]", |&[a, b, _]| (a, b) == (1, 1))?;
    let [_, positions, _] =
        extents(path, matched, "pos_embed", &format!("[1, 1 + patches, {dim}]"), |&[a, _, d]| (a, d) == (1, dim))?;
    let expected = format!("[{dim}, channels, patch, patch]");
    let [_, channels, patch, _] =
        extents(path, matched, "patch_embed.proj.weight", &expected, |&[d, _, p, q]| d == dim && p == q)?;
    let fc1 = "blocks.0.mlp.fc1.weight";
    let [mlp_dim, _] = extents(path, matched, fc1, &format!("[hidden, {dim}]"), |&[_, d]| d == dim)?;

    let (depth, is_checkpoint) = (matched.depth, matched.report.layout == KeyLayout::Checkpoint);
    let (heads, heads_from) = described::heads(path, metadata, (dim, depth), options.heads, is_checkpoint)?;
    let image = image_size(path, positions - 1, patch, options.image.or_else(|| described::image(metadata)))?;
    let config = VitConfig { dim, depth, heads, mlp_dim, patch, image, channels, extras: Extras::NONE }
        .checked()
        .map_err(|source| WeightsError::Config { path: path.to_owned(), source })?;
    described::check(path, metadata, &config)?;
    Ok((config, heads_from))
}

/// The extents of a tensor, if it has `N` of them, all above zero, and they are plausible.
fn extents<const N: usize>(
    path: &Path,
    matched: &Matched<'_>,
    name: &str,
    expected: &str,
    plausible: impl Fn(&[usize; N]) -> bool,
) -> Result<[usize; N], WeightsError> {
    let tensor = matched.tensor(name);
    let extents = tensor.and_then(|tensor| <[usize; N]>::try_from(tensor.shape.as_slice()).ok());
    extents.filter(|extents| !extents.contains(&0) && plausible(extents)).ok_or_else(|| {
        let (name, found) = tensor.map_or((name.to_owned(), vec![]), |t| (t.name.clone(), t.shape.clone()));
        WeightsError::Shape { path: path.to_owned(), name, found, expected: expected.to_owned(), others: 0 }
    })
}

/// Rows and columns in pixels of the images that these positions are for.
fn image_size(
    path: &Path,
    patches: usize,
    patch: usize,
    given: Option<(usize, usize)>,
) -> Result<(usize, usize), WeightsError> {
    if let Some(image) = given {
        let fits = (image.0 / patch).checked_mul(image.1 / patch) == Some(patches);
        let path = path.to_owned();
        return if fits { Ok(image) } else { Err(WeightsError::ImageSize { path, image, patch, patches }) };
    }
    let side = patches.isqrt();
    if side == 0 || side * side != patches {
        return Err(WeightsError::Grid { path: path.to_owned(), patches });
    }
    Ok((side * patch, side * patch))
}

/// An error unless every tensor has the shape of its parameter.
pub(super) fn check_shapes(path: &Path, matched: &Matched<'_>, layout: &Layout) -> Result<(), WeightsError> {
    let wrong: Vec<(&TensorInfo, &[usize])> = layout
        .specs()
        .iter()
        .filter_map(|spec| matched.tensor(&spec.name).map(|tensor| (tensor, spec.shape.as_slice())))
        .filter(|(tensor, shape)| tensor.shape != *shape)
        .collect();
    match wrong.first() {
        None => Ok(()),
        Some((tensor, shape)) => Err(WeightsError::Shape {
            path: path.to_owned(),
            name: tensor.name.clone(),
            found: tensor.shape.clone(),
            expected: format!("{shape:?}"),
            others: wrong.len() - 1,
        }),
    }
}
