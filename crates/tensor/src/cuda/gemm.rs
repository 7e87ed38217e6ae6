//! Matrix products by cuBLASLt.
//!
//! Our matrices are row-major and cuBLASLt's are column-major, so every product is asked for transposed: with
//! `C = A B` row-major, the same memory read column-major is `C^T = B^T A^T`.
//!
//! The algorithm is the first that cuBLASLt's own heuristic offers for the shape, with the number of rows rounded up, so that
//! batches of about the same size share one choice. It is not chosen by timing: two timings of the same algorithms do
//! not always agree, and then two runs would differ in their last bits.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use cudarc::cublaslt::{result, sys};

use super::memory::{Arena, Piece};
use super::{Cuda, DeviceError};
use crate::device::CudaPrecision;
use crate::tensor::{DType, Tensor};

/// What cuBLASLt recommends for Hopper.
const WORKSPACE: usize = 32 << 20;

/// Rows are rounded up to this for the choice of an algorithm.
const BUCKET: u64 = 1024;

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
    /// A number for each column, in the type of activations, added to every row.
    pub bias: Option<u64>,
}

impl Product {
    /// A plain product that overwrites.
    pub(crate) fn to(address: u64, dtype: DType) -> Self {
        Self { address, dtype, added_to: None, bias: None }
    }
}

/// Everything that the choice of an algorithm depends on.
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
    chosen: Mutex<HashMap<Key, sys::cublasLtMatmulAlgo_t>>,
}

impl Blas {
    /// The context must be current.
    pub(crate) fn new(arena: &Arc<Arena>, precision: CudaPrecision) -> Result<Self, String> {
        let handle = result::create_handle().map_err(|e| format!("cuBLASLt does not start: {e:?}"))?;
        let workspace = arena.take(WORKSPACE).map_err(|_| "no memory for cuBLASLt".to_string())?;
        Ok(Self { handle, workspace, precision, chosen: Mutex::default() })
    }

    fn operand_type(&self) -> sys::cudaDataType {
        match self.precision {
            CudaPrecision::Bf16 => sys::cudaDataType::CUDA_R_16BF,
            CudaPrecision::F32 => sys::cudaDataType::CUDA_R_32F,
        }
    }
}

/// Descriptors of one product, destroyed together.
struct Descriptors {
    product: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: made by `describe` and not used after this.
        unsafe {
            let _ = result::destroy_matmul_desc(self.product);
            for layout in self.layouts {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

fn describe(blas: &Blas, key: &Key, to: &Product) -> Result<Descriptors, result::CublasError> {
    use sys::cublasLtMatmulDescAttributes_t as A;
    let product =
        result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType::CUDA_R_32F)?;
    let set = |attribute, value: *const c_void, size| {
        // SAFETY: the descriptor was just made; the value has the size that is named.
        unsafe { result::set_matmul_desc_attribute(product, attribute, value, size) }
    };
    // cublasOperation_t: 0 as it is, 1 transposed.
    let (a, b) = (i32::from(key.transposed.0), i32::from(key.transposed.1));
    set(A::CUBLASLT_MATMUL_DESC_TRANSA, (&raw const a).cast(), size_of_val(&a))?;
    set(A::CUBLASLT_MATMUL_DESC_TRANSB, (&raw const b).cast(), size_of_val(&b))?;
    if let Some(bias) = to.bias {
        let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
        let kind = blas.operand_type();
        set(A::CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const epilogue).cast(), size_of_val(&epilogue))?;
        set(A::CUBLASLT_MATMUL_DESC_BIAS_POINTER, (&raw const bias).cast(), size_of_val(&bias))?;
        set(A::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (&raw const kind).cast(), size_of_val(&kind))?;
    }
    let operand = blas.operand_type();
    let result_type = if key.exact_result { sys::cudaDataType::CUDA_R_32F } else { operand };
    let layout = |kind, rows: u64, columns: u64, transposed: bool| {
        let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
        result::create_matrix_layout(kind, rows, columns, rows.max(1) as i64)
    };
    Ok(Descriptors {
        product,
        layouts: [
            layout(operand, key.m, key.k, key.transposed.0)?,
            layout(operand, key.k, key.n, key.transposed.1)?,
            layout(result_type, key.m, key.n, false)?,
        ],
    })
}

fn choose(blas: &Blas, key: &Key, to: &Product) -> Result<sys::cublasLtMatmulAlgo_t, result::CublasError> {
    use sys::cublasLtMatmulPreferenceAttributes_t as P;
    let d = describe(blas, key, to)?;
    let preference = result::create_matmul_pref()?;
    let set = |attribute, value: *const c_void, size| {
        // SAFETY: the preference was just made; the value has the size that is named.
        unsafe { result::set_matmul_pref_attribute(preference, attribute, value, size) }
    };
    let workspace = WORKSPACE;
    set(P::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const workspace).cast(), size_of_val(&workspace))?;
    for attribute in [
        P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    ] {
        set(attribute, (&raw const key.alignment).cast(), size_of_val(&key.alignment))?;
    }
    let [a, b, c] = d.layouts;
    // SAFETY: all descriptors are alive.
    let found = unsafe { result::get_matmul_algo_heuristic(blas.handle, d.product, a, b, c, c, preference) };
    // SAFETY: not used after this.
    let _ = unsafe { result::destroy_matmul_pref(preference) };
    found.map(|h| h.algo)
}

impl Cuda {
    /// result = a b, or a b + what it is added to, with a bias for each column where one is given.
    pub(crate) fn product(&self, a: Matrix, b: Matrix, to: Product) {
        let ((rows, inner), (inner_b, columns)) = (a.shape(), b.shape());
        assert_eq!(inner, inner_b, "inner extents of a product");
        if rows == 0 || columns == 0 || !self.is_well() {
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
        self.bind();
        // Column-major, the second factor comes first.
        let addresses = [a.address, b.address, to.address, to.added_to.unwrap_or(to.address)];
        let size = self.dtype().size() as u64;
        let strides = [a.columns, b.columns, columns].map(|c| c as u64 * size);
        let shared = addresses.iter().chain(&strides).fold(16, |bits, x| bits | x);
        let alignment = 1u32 << shared.trailing_zeros();
        let key = Key {
            m: columns as u64,
            n: rows as u64,
            k: inner as u64,
            transposed: (b.transposed, a.transposed),
            exact_result: to.dtype == DType::F32,
            adds: to.added_to.is_some(),
            bias: to.bias.is_some(),
            alignment,
        };
        let name = || format!("{rows} x {columns} x {inner}");
        if let Err(e) = self.timed("matrix products", name, || self.multiply(&key, a, b, to)) {
            let reason = format!("{e:?} for {key:?}");
            self.fail(DeviceError::Gpu { what: "a matrix product by cuBLASLt".into(), reason });
        }
    }

    /// With the algorithm of the rounded shape, or where that one refuses, of the exact one.
    fn multiply(&self, key: &Key, a: Matrix, b: Matrix, to: Product) -> Result<(), result::CublasError> {
        let rounded = |x: u64| if x > BUCKET { x.next_multiple_of(BUCKET) } else { x };
        let class = Key { n: rounded(key.n), k: rounded(key.k), ..*key };
        self.multiply_as(&class, key, a, b, to).or_else(|_| self.multiply_as(key, key, a, b, to))
    }

    fn multiply_as(
        &self,
        class: &Key,
        key: &Key,
        a: Matrix,
        b: Matrix,
        to: Product,
    ) -> Result<(), result::CublasError> {
        let mut chosen = self.gpu.blas.chosen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let algorithm = match chosen.get(class) {
            Some(&algorithm) => algorithm,
            None => {
                let algorithm = choose(&self.gpu.blas, class, &to)?;
                *chosen.entry(*class).or_insert(algorithm)
            }
        };
        drop(chosen);
        let d = describe(&self.gpu.blas, key, &to)?;
        let [first, second, result_layout] = d.layouts;
        let (one, beta) = (1.0f32, if to.added_to.is_some() { 1.0f32 } else { 0.0 });
        let c = to.added_to.unwrap_or(to.address);
        // SAFETY: the matrices have the shapes of their layouts; the workspace is used by one product at a time, because
        // all of them are queued on one stream.
        unsafe {
            result::matmul(
                self.gpu.blas.handle,
                d.product,
                (&raw const one).cast(),
                (&raw const beta).cast(),
                b.address as *const c_void,
                first,
                a.address as *const c_void,
                second,
                c as *const c_void,
                result_layout,
                to.address as *mut c_void,
                result_layout,
                &raw const algorithm,
                self.gpu.blas.workspace.address() as *mut c_void,
                WORKSPACE,
                self.gpu.stream.cast(),
            )
        }
    }
}
