//! How a parameter comes out of the tensors of a file: as it is, or put together.

use super::dialects::Part;
use super::error::WeightsError;
use super::file::{TensorInfo, WeightsFile};
use super::matching::{Matched, Pieces};
use super::values::Values;
use crate::layout::ParamSpec;

/// Where the values of one parameter come from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// One tensor as it is.
    Whole(TensorInfo),
    /// Queries, keys and values below one another.
    Stacked(Vec<TensorInfo>),
    /// Positions of patches alone: that of the class token, which is part of the token itself, becomes zero.
    WithoutClass(TensorInfo),
    /// Positions of class token, registers and patches: all but those of the registers.
    WithoutRegisters(TensorInfo),
    /// Register tokens and their positions, which are added.
    WithPositions(TensorInfo, TensorInfo),
}

/// What stands before the positions of patches in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeadingPositions {
    /// Nothing: timm's networks with registers.
    None,
    /// That of the class token.
    Class,
    /// Those of the class token and of the registers.
    All,
}

impl Origin {
    /// Of a parameter whose tensors are there.
    pub(super) fn of(spec: &ParamSpec, matched: &Matched<'_>, leading: LeadingPositions) -> Option<Self> {
        let positions = || matched.tensor("pos_embed").cloned();
        let pieces: &Pieces<'_> = matched.pieces(&spec.name)?;
        Some(match (pieces.get(&Part::Whole), spec.name.as_str(), leading) {
            (None, _, _) => Origin::Stacked(pieces.values().map(|&tensor| tensor.clone()).collect()),
            (Some(&tensor), "pos_embed", LeadingPositions::None) => Origin::WithoutClass(tensor.clone()),
            (Some(&tensor), "pos_embed", LeadingPositions::All) => Origin::WithoutRegisters(tensor.clone()),
            (Some(&tensor), "register_tokens", LeadingPositions::All) => {
                Origin::WithPositions(tensor.clone(), positions()?)
            }
            (Some(&tensor), _, _) => Origin::Whole(tensor.clone()),
        })
    }

    /// Bytes of the file that it is read from.
    pub(super) fn bytes(&self) -> u64 {
        let of = |tensor: &TensorInfo| tensor.place.bytes.end - tensor.place.bytes.start;
        match self {
            Origin::Whole(tensor) | Origin::WithoutClass(tensor) | Origin::WithoutRegisters(tensor) => of(tensor),
            Origin::WithPositions(tensor, _) => of(tensor),
            Origin::Stacked(tensors) => tensors.iter().map(of).sum(),
        }
    }

    /// A tensor of this origin that does not fit the parameter, and the shape that would.
    pub(super) fn misfit(&self, spec: &ParamSpec, registers: usize) -> Option<(&TensorInfo, Vec<usize>)> {
        let with_rows = |axis: usize, rows: usize| {
            let mut shape = spec.shape.clone();
            shape[axis] = rows;
            shape
        };
        let wants: Vec<(&TensorInfo, Vec<usize>)> = match self {
            Origin::Whole(tensor) | Origin::WithPositions(tensor, _) => vec![(tensor, spec.shape.clone())],
            Origin::Stacked(tensors) => {
                tensors.iter().map(|tensor| (tensor, with_rows(0, spec.shape[0] / tensors.len()))).collect()
            }
            Origin::WithoutClass(tensor) => vec![(tensor, with_rows(1, spec.shape[1] - 1))],
            Origin::WithoutRegisters(tensor) => vec![(tensor, with_rows(1, spec.shape[1] + registers))],
        };
        wants.into_iter().find(|(tensor, shape)| tensor.shape != *shape)
    }

    /// The values, in the shape of the parameter, whose last extent is `width`.
    pub(super) fn read(&self, file: &mut WeightsFile, width: usize, registers: usize) -> Result<Values, WeightsError> {
        Ok(match self {
            Origin::Whole(tensor) => file.read(tensor)?,
            Origin::Stacked(tensors) => {
                let pieces: Vec<Values> = tensors.iter().map(|tensor| file.read(tensor)).collect::<Result<_, _>>()?;
                Values::joined(pieces)
            }
            Origin::WithoutClass(tensor) => Values::joined(vec![Values::F32(vec![0.0; width]), file.read(tensor)?]),
            Origin::WithoutRegisters(tensor) => {
                let (values, end) = (file.read(tensor)?, (1 + registers) * width);
                Values::joined(vec![values.part(0..width), values.part(end..tensor.values())])
            }
            Origin::WithPositions(tensor, positions) => {
                let positions = file.read(positions)?.part(width..(1 + registers) * width);
                file.read(tensor)?.plus(&positions)
            }
        })
    }
}
