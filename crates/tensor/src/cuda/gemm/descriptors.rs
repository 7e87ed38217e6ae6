//! cuBLASLt's descriptions of a product. They hold memory of the library's, and give it back when dropped.

use std::ffi::c_void;

use cudarc::cublaslt::{result, sys};

use super::{Blas, Key, WORKSPACE};

/// Something of a C library's, destroyed when dropped.
struct Owned<T: Copy, E> {
    raw: T,
    destroy: unsafe fn(T) -> Result<(), E>,
}

impl<T: Copy, E> Drop for Owned<T, E> {
    fn drop(&mut self) {
        // SAFETY: `raw` was made by the function that `destroy` undoes, and nothing uses it after this. An error leaves it
        // to the library.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

type Layout = Owned<sys::cublasLtMatrixLayout_t, result::CublasError>;

fn layout(kind: sys::cudaDataType, rows: u64, columns: u64, transposed: bool) -> Result<Layout, result::CublasError> {
    let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
    let raw = result::create_matrix_layout(kind, rows, columns, rows.max(1) as i64)?;
    Ok(Owned { raw, destroy: result::destroy_matrix_layout })
}

/// A product and its three matrices.
pub(super) struct Descriptors {
    product: Owned<sys::cublasLtMatmulDesc_t, result::CublasError>,
    layouts: [Layout; 3],
}

impl Descriptors {
    pub(super) fn new(blas: &Blas, key: &Key, bias: Option<u64>) -> Result<Self, result::CublasError> {
        use sys::cublasLtMatmulDescAttributes_t as A;
        let raw =
            result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType::CUDA_R_32F)?;
        let product = Owned { raw, destroy: result::destroy_matmul_desc };
        let set = |attribute, value: *const c_void, size| {
            // SAFETY: the descriptor was just made; the value has the size that is named.
            unsafe { result::set_matmul_desc_attribute(product.raw, attribute, value, size) }
        };
        // cublasOperation_t: 0 as it is, 1 transposed.
        let (a, b) = (i32::from(key.transposed.0), i32::from(key.transposed.1));
        set(A::CUBLASLT_MATMUL_DESC_TRANSA, (&raw const a).cast(), size_of_val(&a))?;
        set(A::CUBLASLT_MATMUL_DESC_TRANSB, (&raw const b).cast(), size_of_val(&b))?;
        let operand = blas.operand_type();
        let result_type = if key.exact_result { sys::cudaDataType::CUDA_R_32F } else { operand };
        if key.bias {
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
            let bias = bias.unwrap_or(0);
            set(A::CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const epilogue).cast(), size_of_val(&epilogue))?;
            set(A::CUBLASLT_MATMUL_DESC_BIAS_POINTER, (&raw const bias).cast(), size_of_val(&bias))?;
            set(A::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (&raw const result_type).cast(), size_of_val(&result_type))?;
        }
        let layouts = [
            layout(operand, key.m, key.k, key.transposed.0)?,
            layout(operand, key.k, key.n, key.transposed.1)?,
            layout(result_type, key.m, key.n, false)?,
        ];
        Ok(Self { product, layouts })
    }

    pub(super) fn product(&self) -> sys::cublasLtMatmulDesc_t {
        self.product.raw
    }

    /// The two factors and the result.
    pub(super) fn layouts(&self) -> [sys::cublasLtMatrixLayout_t; 3] {
        [0, 1, 2].map(|i| self.layouts[i].raw)
    }
}

/// What an algorithm may count on: its workspace, and how the matrices lie.
pub(super) struct Preference(Owned<sys::cublasLtMatmulPreference_t, result::CublasError>);

impl Preference {
    pub(super) fn new(key: &Key) -> Result<Self, result::CublasError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as P;
        let preference = Owned { raw: result::create_matmul_pref()?, destroy: result::destroy_matmul_pref };
        let set = |attribute, value: *const c_void, size| {
            // SAFETY: the preference was just made; the value has the size that is named.
            unsafe { result::set_matmul_pref_attribute(preference.raw, attribute, value, size) }
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
        Ok(Self(preference))
    }

    pub(super) fn raw(&self) -> sys::cublasLtMatmulPreference_t {
        self.0.raw
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static DESTROYED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }

    fn made(raw: u32) -> Owned<u32, ()> {
        fn destroy(raw: u32) -> Result<(), ()> {
            DESTROYED.with_borrow_mut(|all| all.push(raw));
            Err(())
        }
        Owned { raw, destroy }
    }

    #[test]
    fn what_was_made_before_a_failure_is_destroyed_once() {
        let fails = |fails: bool| if fails { Err("the third failed") } else { Ok(made(3)) };
        let all = |third| Ok::<_, &str>([made(1), made(2), fails(third)?]);
        assert!(all(true).is_err());
        assert_eq!(DESTROYED.take(), [2, 1]);
        drop(all(false));
        assert_eq!(DESTROYED.take(), [1, 2, 3]);
    }
}
