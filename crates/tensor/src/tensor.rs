//! Dense, row-major memory on a device.

use std::borrow::Cow;
use std::ops::Range;

use half::bf16;

use crate::cpu::{Buffer, on_device};
use crate::cuda::CudaBuffer;
use crate::device::Device;

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// bfloat16: activations on a GPU.
    Bf16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::Bf16 => 2,
            DType::F32 => 4,
            DType::F64 => 8,
        }
    }
}

/// Where the elements are.
pub(crate) enum Storage {
    F32(Buffer<f32>),
    F64(Buffer<f64>),
    Cuda(CudaBuffer),
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
    pub(crate) fn empty(device: &Device, shape: &[usize], dtype: DType) -> Self {
        let len = shape.iter().product();
        let storage = match (device.as_cuda(), dtype) {
            (Some(cuda), _) => Storage::Cuda(cuda.allocate(len, dtype)),
            (None, DType::F32) => Storage::F32(device.as_cpu().allocate(len)),
            (None, DType::F64) => Storage::F64(device.as_cpu().allocate(len)),
            (None, DType::Bf16) => unreachable!("the host computes in f32 or f64"),
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

    /// The same elements under another shape.
    ///
    /// # Panics
    /// When it has not the same number of elements.
    pub fn reshaped(self, shape: &[usize]) -> Self {
        assert_eq!(self.len(), shape.iter().product::<usize>(), "elements of shape {:?}", self.shape);
        Self { shape: shape.to_vec(), ..self }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        match &self.storage {
            Storage::F32(_) => DType::F32,
            Storage::F64(_) => DType::F64,
            Storage::Cuda(b) => b.dtype,
        }
    }

    /// A tensor of the same shape and element type, all zero: where a gradient of this one begins.
    pub fn zeros_like(&self) -> Self {
        let mut zeros = Tensor::empty(&self.device, &self.shape, self.dtype());
        zeros.fill(0.0);
        zeros
    }

    /// A copy.
    pub fn duplicate(&self) -> Self {
        let mut copy = Tensor::empty(&self.device, &self.shape, self.dtype());
        copy.copy_from(self);
        copy
    }

    /// Overwrites the elements with another tensor's.
    ///
    /// # Panics
    /// When the number of elements or the element type differs.
    pub fn copy_from(&mut self, other: &Tensor) {
        on_device!(other, T => T::slice_mut(self).copy_from_slice(T::slice(other)), cuda => {
            assert_eq!((self.len(), self.dtype()), (other.len(), other.dtype()), "a copy has the same elements");
            cuda.copy(self.cuda_address_mut(), other.cuda_address(), other.len() * other.dtype().size());
        });
    }

    /// Overwrites the elements with neighbouring ones of another tensor.
    ///
    /// # Panics
    /// When there are not as many, or the element type differs.
    pub fn copy_part_of(&mut self, other: &Tensor, part: Range<usize>) {
        on_device!(other, T => T::slice_mut(self).copy_from_slice(&T::slice(other)[part]), cuda => {
            assert!(part.end <= other.len(), "a part of the other's elements");
            assert_eq!((self.len(), self.dtype()), (part.len(), other.dtype()), "a copy has the same elements");
            let size = other.dtype().size();
            cuda.copy(self.cuda_address_mut(), other.cuda_address() + (part.start * size) as u64, part.len() * size);
        });
    }

    /// Sets every element.
    pub fn fill(&mut self, value: f64) {
        let device = self.device.clone();
        on_device!(self, T => device.as_cpu().fill(T::slice_mut(self), T::from_f64(value)), cuda => {
            if let Storage::Cuda(buffer) = &mut self.storage {
                cuda.fill(buffer, value);
            }
        });
    }

    /// Overwrites the elements from the host.
    ///
    /// # Panics
    /// When the number of elements differs.
    pub fn copy_from_f64(&mut self, values: &[f64]) {
        assert_eq!(self.len(), values.len(), "values for shape {:?}", self.shape);
        on_device!(self, T => {
            T::slice_mut(self).iter_mut().zip(values).for_each(|(x, &v)| *x = T::from_f64(v));
        }, cuda => self.upload(cuda, values.iter().map(|&x| x as f32)));
    }

    /// Overwrites the elements from the host.
    ///
    /// # Panics
    /// When the number of elements differs.
    pub fn copy_from_f32(&mut self, values: &[f32]) {
        assert_eq!(self.len(), values.len(), "values for shape {:?}", self.shape);
        on_device!(self, T => {
            T::slice_mut(self).iter_mut().zip(values).for_each(|(x, &v)| *x = T::from_f64(f64::from(v)));
        }, cuda => match self.dtype() {
            DType::Bf16 => self.upload(cuda, values.iter().copied()),
            DType::F32 | DType::F64 => cuda.upload(self.cuda_address_mut(), values),
        });
    }

    /// The elements on the host, exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        on_device!(
            self,
            T => T::slice(self).iter().map(|x| x.to_f64()).collect(),
            _cuda => self.to_f32().into_iter().map(f64::from).collect(),
        )
    }

    /// The elements on the host, rounded to single precision.
    pub fn to_f32(&self) -> Vec<f32> {
        match &self.storage {
            Storage::F32(b) => b.as_slice().to_vec(),
            Storage::F64(b) => b.as_slice().iter().map(|&x| x as f32).collect(),
            Storage::Cuda(b) => match b.dtype {
                DType::Bf16 => self.download().into_iter().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
                DType::F32 | DType::F64 => self.download(),
            },
        }
    }

    /// The same, borrowed where the memory already is that.
    pub fn as_f32(&self) -> Cow<'_, [f32]> {
        match &self.storage {
            Storage::F32(b) => Cow::Borrowed(b.as_slice()),
            Storage::F64(_) | Storage::Cuda(_) => Cow::Owned(self.to_f32()),
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
            // A GPU is little-endian too.
            Storage::Cuda(b) => self
                .device
                .as_cuda()
                .map_or_else(Vec::new, |c| c.download(b.address(), self.len() * b.dtype.size()))
                .into(),
        }
    }

    /// Overwrites the elements from little-endian bytes of the tensor's element type; false when their number is wrong.
    #[must_use]
    pub fn copy_from_le_bytes(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() != self.len() * self.dtype().size() {
            return false;
        }
        if let Some(cuda) = self.device.clone().as_cuda() {
            cuda.upload(self.cuda_address_mut(), bytes);
            return true;
        }
        match &mut self.storage {
            Storage::Cuda(_) => unreachable!("a tensor of the GPU on a device of the host"),
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

    /// Values for a tensor on a GPU, rounded to nearest even where it is of a smaller type.
    fn upload(&mut self, cuda: &crate::cuda::Cuda, values: impl Iterator<Item = f32>) {
        let dtype = self.dtype();
        let address = self.cuda_address_mut();
        match dtype {
            DType::Bf16 => cuda.upload(address, &values.map(|x| bf16::from_f32(x).to_bits()).collect::<Vec<u16>>()),
            DType::F32 | DType::F64 => cuda.upload(address, &values.collect::<Vec<f32>>()),
        }
    }

    fn download<T: bytemuck::Pod>(&self) -> Vec<T> {
        self.device.as_cuda().map_or_else(Vec::new, |cuda| cuda.download(self.cuda_address(), self.len()))
    }

    pub(crate) fn cuda_buffer(&self) -> &CudaBuffer {
        match &self.storage {
            Storage::Cuda(buffer) => buffer,
            Storage::F32(_) | Storage::F64(_) => unreachable!("an operation of the GPU on a tensor of the host"),
        }
    }

    /// Where it is in the GPU's memory.
    pub(crate) fn cuda_address(&self) -> u64 {
        self.cuda_buffer().address()
    }

    /// Leaves sums over rows with it, for whoever needs them next.
    pub(crate) fn keep_column_sums(&mut self, sums: CudaBuffer) {
        if let Storage::Cuda(buffer) = &mut self.storage {
            buffer.keep_column_sums(sums);
        }
    }

    /// Where it is in the GPU's memory, to be written.
    pub(crate) fn cuda_address_mut(&mut self) -> u64 {
        match &mut self.storage {
            Storage::Cuda(buffer) => buffer.address_mut(),
            Storage::F32(_) | Storage::F64(_) => unreachable!("an operation of the GPU on a tensor of the host"),
        }
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
