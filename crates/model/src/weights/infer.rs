//! The network that the shapes of a backbone's tensors describe.

use std::path::Path;

use super::LoadOptions;
use super::described::{self, HeadsFrom};
use super::error::WeightsError;
use super::file::WeightsFile;
use super::matching::Matched;
use super::names::KeyLayout;
use super::origin::{LeadingPositions, Origin};
use crate::{Extras, Layout, VitConfig};

/// A network as a file describes it.
pub(super) struct Described {
    pub config: VitConfig,
    pub heads_from: HeadsFrom,
    pub leading: LeadingPositions,
    /// The square grid of patch positions that could also be an oblong one behind a class token's.
    pub grid_taken: Option<(usize, usize)>,
}

/// Reads the network's shape off its tensors, which must all be there, and the rest off what the file says; and who says
/// how many heads there are.
pub(super) fn config(
    file: &WeightsFile,
    matched: &Matched<'_>,
    options: &LoadOptions,
) -> Result<Described, WeightsError> {
    let (path, metadata) = (file.path(), file.metadata());
    let [_, _, dim] = extents(path, matched, "cls_token", "[1, 1, width]", |&[a, b, _]| (a, b) == (1, 1))?;
    let [_, positions, _] =
        extents(path, matched, "pos_embed", &format!("[1, 1 + patches, {dim}]"), |&[a, _, d]| (a, d) == (1, dim))?;
    let expected = format!("[{dim}, channels, patch, patch]");
    let [_, channels, patch, _] =
        extents(path, matched, "patch_embed.proj.weight", &expected, |&[d, _, p, q]| d == dim && p == q)?;
    let fc1 = "blocks.0.mlp.fc1.weight";
    let [mlp_dim, _] = extents(path, matched, fc1, &format!("[hidden, {dim}]"), |&[_, d]| d == dim)?;
    // Half of what the first layer gives is a gate for the other half.
    let of_second = matched.tensor("blocks.0.mlp.fc2.weight");
    if let Some(second) = of_second.filter(|tensor| tensor.shape == [dim, mlp_dim / 2]) {
        let (path, names) = (path.to_owned(), vec![second.name.clone()]);
        return Err(WeightsError::UnknownParts { path, what: "a SwiGLU MLP", names });
    }

    let (depth, is_checkpoint) = (matched.depth, matched.report.layout == KeyLayout::Checkpoint);
    let (heads, heads_from) = described::heads(path, metadata, (dim, depth), options.heads, is_checkpoint)?;
    let given = options.image.or_else(|| described::image(metadata));
    let (leading, image) = positions_of(path, (positions, matched.extras.registers), patch, given)?;
    let said = options.interpolation.or(described::interpolation(path, metadata)?);
    let extras = Extras {
        interpolation: said.unwrap_or(matched.extras.interpolation),
        norm_epsilon: match options.norm_epsilon.or(described::norm_epsilon(path, metadata)?) {
            Some(said) => said,
            None => matched.extras.norm_epsilon,
        },
        ..matched.extras
    };
    let config = VitConfig { dim, depth, heads, mlp_dim, patch, image, channels, extras }
        .checked()
        .map_err(|source| WeightsError::Config { path: path.to_owned(), source })?;
    described::check(path, metadata, &config)?;
    // With registers, positions for patches alone are usual.
    let is_taken = given.is_none() && leading == LeadingPositions::None && config.extras.registers == 0;
    let grid_taken = is_taken.then(|| config.grid());
    Ok(Described { config, heads_from, leading, grid_taken })
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

/// What stands before the positions of patches, and rows and columns in pixels of the images that they are for.
fn positions_of(
    path: &Path,
    (positions, registers): (usize, usize),
    patch: usize,
    given: Option<(usize, usize)>,
) -> Result<(LeadingPositions, (usize, usize)), WeightsError> {
    let ways = [(LeadingPositions::Class, 1), (LeadingPositions::None, 0), (LeadingPositions::All, 1 + registers)];
    // Without registers two are one. DeiT III's positions are those of patches alone.
    let ways = if registers == 0 { &ways[..2] } else { &ways[..] };
    let mut first = None;
    for &(leading, rows) in ways {
        match image_size(path, positions.saturating_sub(rows), patch, given) {
            Ok(image) => return Ok((leading, image)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or(WeightsError::Grid { path: path.to_owned(), patches: positions }))
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

/// Where the values of every parameter come from; an error unless every tensor fits.
pub(super) fn origins(
    path: &Path,
    matched: &Matched<'_>,
    layout: &Layout,
    described: &Described,
) -> Result<Vec<Origin>, WeightsError> {
    let registers = described.config.extras.registers;
    let origin = |spec| Origin::of(spec, matched, described.leading);
    let origins: Vec<Origin> = layout.specs().iter().filter_map(origin).collect();
    let misfits = layout.specs().iter().zip(&origins).filter_map(|(spec, origin)| origin.misfit(spec, registers));
    let wrong: Vec<_> = misfits.collect();
    match wrong.first() {
        None => Ok(origins),
        Some((tensor, shape)) => Err(WeightsError::Shape {
            path: path.to_owned(),
            name: tensor.name.clone(),
            found: tensor.shape.clone(),
            expected: format!("{shape:?}"),
            others: wrong.len() - 1,
        }),
    }
}
