//! Dense, row-major memory on a device.

use std::borrow::Cow;

use crate::cpu::Buffer;
use crate::device::Device;

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F64 => 8,
        }
    }
}

/// Where the elements are. A CUDA buffer joins as a variant of its own.
pub(crate) enum Storage {
    F32(Buffer<f32>),
    F64(Buffer<f64>),
}

/// Dense, row-major memory on a [`Device`]; goes back to the device's pool when dropped.
///
/// Not `Clone`: copies of activations are never wanted by accident. [`Tensor::duplicate`] says it.
pub struct Tensor {
    device: Device,
    shape: Vec<usize>,
    storage: Storage,
}

impl Tensor {
    pub(crate) fn empty(device: &Device, shape: &[usize]) -> Self {
        let len = shape.iter().product();
        let cpu = device.as_cpu();
        let storage = match cpu.dtype() {
            DType::F32 => Storage::F32(cpu.allocate(len)),
            DType::F64 => Storage::F64(cpu.allocate(len)),
        };
        Self { device: device.clone(), shape: shape.to_vec(), storage }
    }

    /// The device that holds it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first extent: rows of the matrix that operations see.
    pub fn rows(&self) -> usize {
        self.shape[0]
    }

    /// Elements of one row: the product of all extents but the first.
    pub fn columns(&self) -> usize {
        self.shape[1..].iter().product()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        match self.storage {
            Storage::F32(_) => DType::F32,
            Storage::F64(_) => DType::F64,
        }
    }

    /// A copy.
    pub fn duplicate(&self) -> Self {
        let mut copy = self.device.empty(&self.shape);
        copy.copy_from(self);
        copy
    }

    /// Overwrites the elements with another tensor's.
    ///
    /// # Panics
    /// When the number of elements or the element type differs.
    pub fn copy_from(&mut self, other: &Tensor) {
        crate::cpu::on_cpu!(other, T => T::slice_mut(self).copy_from_slice(T::slice(other)));
    }

    /// Sets every element.
    pub fn fill(&mut self, value: f64) {
        let device = self.device.clone();
        crate::cpu::on_cpu!(self, T => device.as_cpu().fill(T::slice_mut(self), T::from_f64(value)));
    }

    /// Overwrites the elements from the host.
    ///
    /// # Panics
    /// When the number of elements differs.
    pub fn copy_from_f64(&mut self, values: &[f64]) {
        assert_eq!(self.len(), values.len(), "values for shape {:?}", self.shape);
        crate::cpu::on_cpu!(self, T => {
            T::slice_mut(self).iter_mut().zip(values).for_each(|(x, &v)| *x = T::from_f64(v));
        });
    }

    /// Overwrites the elements from the host.
    ///
    /// # Panics
    /// When the number of elements differs.
    pub fn copy_from_f32(&mut self, values: &[f32]) {
        assert_eq!(self.len(), values.len(), "values for shape {:?}", self.shape);
        crate::cpu::on_cpu!(self, T => {
            T::slice_mut(self).iter_mut().zip(values).for_each(|(x, &v)| *x = T::from_f64(f64::from(v)));
        });
    }

    /// The elements on the host, exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        crate::cpu::on_cpu!(self, T => T::slice(self).iter().map(|x| x.to_f64()).collect())
    }

    /// The elements on the host, rounded to single precision.
    pub fn to_f32(&self) -> Vec<f32> {
        match &self.storage {
            Storage::F32(b) => b.as_slice().to_vec(),
            Storage::F64(b) => b.as_slice().iter().map(|&x| x as f32).collect(),
        }
    }

    /// The elements as little-endian bytes of the tensor's element type, as a checkpoint keeps them; borrowed where the
    /// memory already is that.
    pub fn to_le_bytes(&self) -> Cow<'_, [u8]> {
        match &self.storage {
            Storage::F32(b) if cfg!(target_endian = "little") => Cow::Borrowed(bytemuck::cast_slice(b.as_slice())),
            Storage::F64(b) if cfg!(target_endian = "little") => Cow::Borrowed(bytemuck::cast_slice(b.as_slice())),
            Storage::F32(b) => b.as_slice().iter().flat_map(|x| x.to_le_bytes()).collect(),
            Storage::F64(b) => b.as_slice().iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    /// Overwrites the elements from little-endian bytes of the tensor's element type; false when their number is wrong.
    #[must_use]
    pub fn copy_from_le_bytes(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() != self.len() * self.dtype().size() {
            return false;
        }
        match &mut self.storage {
            Storage::F32(b) => {
                for (x, c) in b.as_mut_slice().iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *x = f32::from_le_bytes(*c);
                }
            }
            Storage::F64(b) => {
                for (x, c) in b.as_mut_slice().iter_mut().zip(bytes.as_chunks::<8>().0) {
                    *x = f64::from_le_bytes(*c);
                }
            }
        }
        true
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    pub(crate) fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor {:?} {:?}", self.shape, self.dtype())
    }
}
