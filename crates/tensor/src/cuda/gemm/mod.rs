//! Matrix products by cuBLASLt.
//!
//! Our matrices are row-major and cuBLASLt's are column-major, so every product is asked for transposed: with
//! `C = A B` row-major, the same memory read column-major is `C^T = B^T A^T`.

mod choice;
mod descriptors;

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublaslt::{result, sys};

use self::choice::{Algorithm, Choice, Choices};
use self::descriptors::Descriptors;
use super::memory::{Arena, Piece};
use super::{Cuda, DeviceError};
use crate::device::CudaPrecision;
use crate::tensor::{DType, Tensor};

/// What cuBLASLt recommends for Hopper.
const WORKSPACE: usize = 32 << 20;

/// A row-major matrix in device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub address: u64,
    pub rows: usize,
    pub columns: usize,
    pub transposed: bool,
}

impl Matrix {
    pub(crate) fn new(address: u64, rows: usize, columns: usize) -> Self {
        Self { address, rows, columns, transposed: false }
    }

    /// All of a tensor, which must be of the type of activations.
    pub(crate) fn of(tensor: &Tensor) -> Self {
        assert_eq!(tensor.dtype(), tensor.device().dtype(), "a matrix product reads activations");
        Self::new(tensor.cuda_address(), tensor.rows(), tensor.columns())
    }

    pub(crate) fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    fn shape(self) -> (usize, usize) {
        if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }
}

/// The result of a product: overwritten, or added to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub address: u64,
    pub dtype: DType,
    /// Where the matrix that the product is added to is, of the same shape and type; nowhere to overwrite.
    pub added_to: Option<u64>,
    /// A number for each column, in the type of the result, added to every row.
    pub bias: Option<u64>,
    /// What the product is multiplied by before anything is added.
    pub factor: f32,
}

impl Product {
    /// A plain product that overwrites.
    pub(crate) fn to(address: u64, dtype: DType) -> Self {
        Self { address, dtype, added_to: None, bias: None, factor: 1.0 }
    }
}

/// Everything that the choice of an algorithm depends on: a column-major product of m x k by k x n.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    m: u64,
    n: u64,
    k: u64,
    transposed: (bool, bool),
    exact_result: bool,
    adds: bool,
    bias: bool,
    alignment: u32,
}

pub(crate) struct Blas {
    handle: sys::cublasLtHandle_t,
    workspace: Piece,
    precision: CudaPrecision,
    choices: Choices,
}

impl Blas {
    /// The context must be current.
    pub(crate) fn new(arena: &Arc<Arena>, precision: CudaPrecision) -> Result<Self, String> {
        let handle = result::create_handle().map_err(|e| format!("cuBLASLt does not start: {e:?}"))?;
        let workspace = arena.take(WORKSPACE).map_err(|_| "no memory for cuBLASLt".to_string())?;
        Ok(Self { handle, workspace, precision, choices: Choices::default() })
    }

    fn operand_type(&self) -> sys::cudaDataType {
        match self.precision {
            CudaPrecision::Bf16 => sys::cudaDataType::CUDA_R_16BF,
            CudaPrecision::F32 => sys::cudaDataType::CUDA_R_32F,
        }
    }
}

/// Where the matrices of a product are, in cuBLASLt's order.
#[derive(Clone, Copy, Debug)]
struct Operands {
    first: u64,
    second: u64,
    added_to: u64,
    result: u64,
    bias: Option<u64>,
    factor: f32,
}

impl Cuda {
    /// result = factor a b, or that plus what it is added to, with a bias for each column where one is given.
    pub(crate) fn product(&self, a: Matrix, b: Matrix, to: Product) {
        let ((rows, inner), (inner_b, columns)) = (a.shape(), b.shape());
        assert_eq!(inner, inner_b, "inner extents of a product");
        if rows == 0 || columns == 0 || !(self.plans || self.is_usable()) {
            return;
        }
        if inner == 0 {
            // An empty sum; cuBLASLt does not take such shapes.
            assert!(to.bias.is_none() && to.dtype == DType::F32, "a product without inner extent gives plain zeros");
            if to.added_to.is_none() {
                let arguments = super::arguments![to.address, (rows * columns) as i64, 0.0f32];
                self.launch_flat(("elementwise", "fill_f32"), rows * columns, &arguments);
            }
            return;
        }
        // Column-major, the second factor comes first.
        let operands = Operands {
            first: b.address,
            second: a.address,
            added_to: to.added_to.unwrap_or(to.address),
            result: to.address,
            bias: to.bias,
            factor: to.factor,
        };
        let size = self.dtype().size() as u64;
        let strides = [a.columns, b.columns, columns].map(|c| c as u64 * size);
        let addresses = [a.address, b.address, to.address, operands.added_to, to.bias.unwrap_or(0)];
        let shared = addresses.iter().chain(&strides).fold(16, |bits, x| bits | x);
        let key = Key {
            m: columns as u64,
            n: rows as u64,
            k: inner as u64,
            transposed: (b.transposed, a.transposed),
            exact_result: to.dtype == DType::F32,
            adds: to.added_to.is_some(),
            bias: to.bias.is_some(),
            alignment: 1u32 << shared.trailing_zeros(),
        };
        if self.plans {
            return self.gpu.blas.choices.plan(&key);
        }
        self.bind();
        let name = || format!("{rows} x {columns} x {inner}");
        if let Err(e) = self.timed("matrix products", name, || self.multiply(&key, &operands)) {
            let reason = format!("{e:?} for {key:?}");
            self.fail(DeviceError::Gpu { what: "a matrix product by cuBLASLt".into(), reason });
        }
    }

    /// With the algorithm chosen for such shapes; where that one refuses, with the one whose bits it gives, and where that
    /// one refuses too, with the heuristic's for this very shape.
    fn multiply(&self, key: &Key, operands: &Operands) -> Result<(), result::CublasError> {
        let blas = &self.gpu.blas;
        let Choice { fastest, heuristic } = blas.choices.of(blas, key)?;
        self.multiply_by(&fastest, key, operands).or_else(|_| self.multiply_by(&heuristic, key, operands)).or_else(
            |_| {
                let heuristic = choice::heuristic(blas, key)?;
                self.multiply_by(&heuristic, key, operands)?;
                blas.choices.replace(key, heuristic);
                Ok(())
            },
        )
    }

    fn multiply_by(&self, algorithm: &Algorithm, key: &Key, operands: &Operands) -> Result<(), result::CublasError> {
        let blas = &self.gpu.blas;
        let d = Descriptors::new(blas, key, operands.bias)?;
        let [first, second, result_layout] = d.layouts();
        let beta = if key.adds { 1.0f32 } else { 0.0 };
        // SAFETY: the matrices have the shapes of their layouts; the workspace is used by one product at a time, because
        // all of them are queued on one stream.
        unsafe {
            result::matmul(
                blas.handle,
                d.product(),
                (&raw const operands.factor).cast(),
                (&raw const beta).cast(),
                operands.first as *const c_void,
                first,
                operands.second as *const c_void,
                second,
                operands.added_to as *const c_void,
                result_layout,
                operands.result as *mut c_void,
                result_layout,
                std::ptr::from_ref(algorithm),
                blas.workspace.address() as *mut c_void,
                WORKSPACE,
                self.gpu.stream.cast(),
            )
        }
    }
}
