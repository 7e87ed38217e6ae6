//! Tensors while a graph is run.

use crate::graph::{Element, Tensor};

use super::problem::Problem;

/// The most sides that a value may have.
const MAX_RANK: usize = 8;

/// A tensor in memory, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    shape: Vec<usize>,
    data: Data,
}

/// The elements of a [`Value`].
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// In single precision.
    F32(Vec<f32>),
    /// Whole numbers.
    I64(Vec<i64>),
}

/// A number of elements that is not that of the shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shape {shape:?} does not have {elements} elements")]
pub struct NotItsShape {
    /// The shape.
    pub shape: Vec<usize>,
    /// The elements that there are.
    pub elements: usize,
}

impl Value {
    /// A value of these elements.
    pub fn new(shape: &[usize], data: Data) -> Result<Self, NotItsShape> {
        let elements = data.len();
        match shape.iter().try_fold(1usize, |product, &side| product.checked_mul(side)) {
            Some(product) if product == elements => Ok(Self { shape: shape.to_vec(), data }),
            _ => Err(NotItsShape { shape: shape.to_vec(), elements }),
        }
    }

    /// A value in single precision.
    pub fn f32(shape: &[usize], values: Vec<f32>) -> Result<Self, NotItsShape> {
        Self::new(shape, Data::F32(values))
    }

    /// A value of whole numbers.
    pub fn i64(shape: &[usize], values: Vec<i64>) -> Result<Self, NotItsShape> {
        Self::new(shape, Data::I64(values))
    }

    /// Its shape; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its elements.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The type of its elements.
    pub fn element(&self) -> Element {
        match self.data {
            Data::F32(_) => Element::F32,
            Data::I64(_) => Element::I64,
        }
    }

    /// Its elements, where they are in single precision.
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.data {
            Data::F32(values) => Some(values),
            Data::I64(_) => None,
        }
    }

    /// Its elements, where they are whole numbers.
    pub fn as_i64(&self) -> Option<&[i64]> {
        match &self.data {
            Data::F32(_) => None,
            Data::I64(values) => Some(values),
        }
    }

    /// The same elements in another shape.
    pub(crate) fn reshaped(self, shape: &[usize]) -> Result<Self, Problem> {
        Ok(Self::new(shape, self.data)?)
    }

    /// The elements of a constant.
    pub(crate) fn of_tensor(tensor: &Tensor<'_>, limit: usize) -> Result<Self, Problem> {
        count(&tensor.shape, limit)?;
        let bytes =
            tensor.load().map_err(|error| Problem::Unreadable { name: tensor.name.clone(), why: error.to_string() })?;
        let data = match tensor.element {
            Element::F32 => Data::F32(bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()),
            Element::I64 => Data::I64(bytes.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect()),
        };
        Ok(Self::new(&tensor.shape, data)?)
    }
}

impl Data {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Data::F32(values) => values.len(),
            Data::I64(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements at these places, which are all within.
    pub(crate) fn pick(&self, places: impl Iterator<Item = usize>) -> Data {
        match self {
            Data::F32(values) => Data::F32(places.map(|i| values[i]).collect()),
            Data::I64(values) => Data::I64(places.map(|i| values[i]).collect()),
        }
    }
}

/// The elements of a shape, at most `limit`. Sides of length zero count as one, so that no product of some sides of an
/// accepted shape can overflow.
pub(crate) fn count(shape: &[usize], limit: usize) -> Result<usize, Problem> {
    if shape.len() > MAX_RANK {
        return Err(Problem::Rank { rank: shape.len(), limit: MAX_RANK });
    }
    let at_least_one = shape.iter().try_fold(1usize, |product, &side| product.checked_mul(side.max(1)));
    match at_least_one {
        Some(elements) if elements <= limit => Ok(shape.iter().product()),
        _ => Err(Problem::TooLarge { shape: shape.to_vec(), limit }),
    }
}

/// For a row-major value, how far apart neighbours along each side are.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1);
    }
    strides
}

/// A view on elements: a shape, where its first element is, and how far apart neighbours along each side are.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) shape: Vec<usize>,
    pub(crate) start: isize,
    pub(crate) strides: Vec<isize>,
}

impl View {
    /// All elements of a row-major value.
    pub(crate) fn whole(shape: &[usize]) -> Self {
        let strides = strides(shape).into_iter().map(|stride| stride as isize).collect();
        Self { shape: shape.to_vec(), start: 0, strides }
    }

    /// The same value repeated to a shape it can be broadcast to, as NumPy does: missing sides in front and sides of
    /// length one are repeated.
    pub(crate) fn broadcast(from: &[usize], to: &[usize]) -> Option<Self> {
        let missing = to.len().checked_sub(from.len())?;
        let mut view = Self { shape: to.to_vec(), start: 0, strides: vec![0; to.len()] };
        for (i, (&side, stride)) in from.iter().zip(strides(from)).enumerate() {
            match (side, to[missing + i]) {
                (1, _) => {}
                (a, b) if a == b => view.strides[missing + i] = stride as isize,
                _ => return None,
            }
        }
        Some(view)
    }

    /// The last side: its length and stride. A scalar has a side of one.
    pub(crate) fn row(&self) -> (usize, isize) {
        match (self.shape.last(), self.strides.last()) {
            (Some(&length), Some(&stride)) => (length, stride),
            _ => (1, 1),
        }
    }

    /// Where each row (all elements along the last side) begins, in row-major order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = isize> + '_ {
        let outer = self.shape.len().saturating_sub(1);
        let sides = &self.shape[..outer];
        let rows: usize = if self.shape.contains(&0) { 0 } else { sides.iter().product() };
        let (mut index, mut at) = (vec![0; outer], self.start);
        (0..rows).map(move |_| {
            let here = at;
            for axis in (0..outer).rev() {
                index[axis] += 1;
                at += self.strides[axis];
                if index[axis] < sides[axis] {
                    break;
                }
                at -= self.strides[axis] * sides[axis] as isize;
                index[axis] = 0;
            }
            here
        })
    }

    /// Where each element is, in row-major order.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> + '_ {
        let (length, stride) = self.row();
        self.rows().flat_map(move |row| (0..length).map(move |i| (row + i as isize * stride) as usize))
    }
}

/// The shape that two shapes broadcast to.
pub(crate) fn broadcast(left: &[usize], right: &[usize]) -> Result<Vec<usize>, Problem> {
    let rank = left.len().max(right.len());
    let side = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let sides = (0..rank).map(|i| match (side(left, i), side(right, i)) {
        (a, b) if a == b => Some(a),
        (1, b) => Some(b),
        (a, 1) => Some(a),
        _ => None,
    });
    let shapes = || Problem::Broadcast { left: left.to_vec(), right: right.to_vec() };
    sides.collect::<Option<_>>().ok_or_else(shapes)
}

/// An axis of a shape, where a negative one counts from the end.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize, Problem> {
    let counted = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(counted).ok().filter(|&i| i < rank).ok_or(Problem::Axis { axis, rank })
}

/// Lengths before, along and behind an axis.
pub(crate) fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_walks_as_its_strides_say() {
        let places = |view: View| view.places().collect::<Vec<_>>();
        assert_eq!(places(View::whole(&[2, 3])), [0, 1, 2, 3, 4, 5]);
        assert_eq!(places(View::whole(&[])), [0]);
        assert!(places(View::whole(&[3, 0])).is_empty() && places(View::whole(&[0, 3])).is_empty());
        assert_eq!(places(View { shape: vec![3, 2], start: 0, strides: vec![1, 3] }), [0, 3, 1, 4, 2, 5]);
        assert_eq!(places(View { shape: vec![2], start: 5, strides: vec![-2] }), [5, 3]);
        assert_eq!(places(View::broadcast(&[2, 1], &[2, 2, 3]).unwrap()), [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
        assert!(View::broadcast(&[2], &[3]).is_none() && View::broadcast(&[1, 1], &[1]).is_none());
    }

    #[test]
    fn shapes_broadcast_as_those_of_numpy() {
        assert_eq!(broadcast(&[4, 1, 3], &[2, 1]), Ok(vec![4, 2, 3]));
        assert_eq!(broadcast(&[], &[0, 1]), Ok(vec![0, 1]));
        assert!(broadcast(&[2], &[3]).is_err() && broadcast(&[0], &[2]).is_err());
    }

    #[test]
    fn a_shape_that_cannot_be_counted_is_refused() {
        assert_eq!(count(&[2, 0, 3], 6), Ok(0));
        assert!(count(&[2, 0, 4], 6).is_err() && count(&[usize::MAX, 2, 0], usize::MAX).is_err());
        assert!(matches!(count(&[1; 9], 10), Err(Problem::Rank { rank: 9, .. })));
        assert!(Value::f32(&[usize::MAX, 2], vec![]).is_err() && Value::i64(&[2], vec![1]).is_err());
    }
}
