//! Kernels: small CUDA C++ files inside the binary, compiled by NVRTC at first use and kept on disk.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use cudarc::driver::{result, sys};
use cudarc::nvrtc;
use random::StableHash;

const COMMON: &str = include_str!("kernels/common.cuh");

/// What the two fast attention files share.
const STRIPS: &str = include_str!("kernels/attention_strips.cuh");

macro_rules! sources {
    ($($name:ident $(after $shared:ident)?),* $(,)?) => {
        /// Every kernel file: its name, and the parts of its text, those that it shares with others first.
        const SOURCES: &[(&str, &[&str])] = &[$((
            stringify!($name),
            &[$($shared,)? include_str!(concat!("kernels/", stringify!($name), ".cu"))],
        )),*];
    };
}
sources!(
    attention_backward after STRIPS,
    attention_exact,
    attention_forward after STRIPS,
    attention_plain,
    class_attention,
    elementwise,
    gelu,
    largest,
    layer_norm,
    optimizer,
    prototypes,
    reduce,
    residual,
    scale,
    softmax,
    tokens,
    views,
    wire,
);

/// Compiling or loading a kernel went wrong.
#[derive(Debug, thiserror::Error)]
#[error("{file}.cu: {reason}")]
pub(crate) struct ProgramError {
    file: String,
    reason: String,
}

/// The element types that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Types {
    /// Activations and the residual stream in bf16.
    Bf16,
    /// bf16 activations beside an f32 residual stream.
    Bf16WithF32Residual,
    /// All in f32.
    F32,
}

/// The files whose kernels touch the residual stream.
const OF_RESIDUAL_STREAM: [&str; 3] = ["layer_norm", "residual", "tokens"];

/// Compiled kernels of one device.
pub(crate) struct Programs {
    architecture: String,
    types: Types,
    /// The folder of the cache of compiled kernels, where there is one.
    cache: Option<PathBuf>,
    driver: i32,
    /// Bytes of shared memory that a block may have.
    most_shared: i32,
    loaded: Mutex<HashMap<(&'static str, &'static str), Function>>,
    modules: Mutex<HashMap<&'static str, Module>>,
}

#[derive(Clone, Copy)]
struct Module(sys::CUmodule);
// SAFETY: a module handle may be used from any thread that has its context current.
unsafe impl Send for Module {}

/// A kernel that can be launched.
#[derive(Clone, Copy)]
pub(crate) struct Function(pub sys::CUfunction);
// SAFETY: as for modules.
unsafe impl Send for Function {}

impl Programs {
    pub(crate) fn new(properties: &super::Properties, types: Types, cache: Option<PathBuf>) -> Self {
        Self {
            architecture: format!("sm_{}{}", properties.capability.0, properties.capability.1),
            types,
            cache,
            driver: properties.driver,
            most_shared: properties.most_shared,
            loaded: Mutex::default(),
            modules: Mutex::default(),
        }
    }

    /// A kernel by its file and name; the context must be current.
    pub(crate) fn function(&self, file: &'static str, name: &'static str) -> Result<Function, ProgramError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(&function) = loaded.get(&(file, name)) {
            return Ok(function);
        }
        let module = self.module(file)?;
        let fail = |e: &dyn std::fmt::Display| ProgramError { file: file.into(), reason: format!("{name}: {e}") };
        let symbol = CString::new(name).map_err(|e| fail(&e))?;
        // SAFETY: the module is loaded and stays so.
        let function = unsafe { result::module::get_function(module.0, symbol) }.map_err(|e| fail(&e))?;
        // SAFETY: the function is valid. More than 48 KiB of shared memory must be asked for once.
        let most = unsafe {
            let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
            let fixed = result::function::get_function_attribute(function, attribute).unwrap_or(0);
            let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // As many blocks as possible side by side, rather than a larger first-level cache.
            let carveout = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
            let share = if matches!(file, "attention_forward" | "attention_backward") { 100 } else { -1 };
            result::function::set_function_attribute(function, attribute, self.most_shared - fixed)
                .and_then(|()| result::function::set_function_attribute(function, carveout, share))
        };
        most.map_err(|e| fail(&e))?;
        loaded.insert((file, name), Function(function));
        Ok(Function(function))
    }

    fn module(&self, file: &'static str) -> Result<Module, ProgramError> {
        let mut modules = self.modules.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(&module) = modules.get(file) {
            return Ok(module);
        }
        let image = self.image(file)?;
        // SAFETY: the image is a whole cubin, made by NVRTC for this architecture.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) }
            .map_err(|e| ProgramError { file: file.into(), reason: format!("the driver does not take it: {e}") })?;
        modules.insert(file, Module(module));
        Ok(Module(module))
    }

    /// The machine code of a file, from the cache or made now.
    fn image(&self, file: &str) -> Result<Vec<u8>, ProgramError> {
        let options = options(file, &self.architecture, self.types);
        let source = source(file);
        let key = self.cache.as_ref().map(|folder| {
            let (major, minor) = nvrtc_version();
            let content = digest(&[source.as_bytes(), options.join(" ").as_bytes()]);
            folder.join(format!("{file}-{}-{}-{major}.{minor}-{content:016x}.cubin", self.architecture, self.driver))
        });
        if let Some(image) = key.as_ref().and_then(|path| read_whole(path)) {
            return Ok(image);
        }
        let image = compile(file, &source, &options)?;
        if let Some(path) = key {
            // A cache that cannot be written costs a few seconds next time, nothing else.
            let made = path.parent().map(std::fs::create_dir_all);
            if matches!(made, Some(Ok(()))) {
                let _ = files::replace_with(&path, &[&image[..], &digest(&[&image]).to_le_bytes()].concat());
            }
        }
        Ok(image)
    }
}

/// Enough against accidents; nobody has a reason to forge a kernel of their own cache.
fn digest(parts: &[&[u8]]) -> u64 {
    let mut hash = StableHash::new();
    parts.iter().for_each(|part| hash.write(part));
    hash.finish()
}

/// No compiled kernel is larger.
const MOST_BYTES: u64 = 1 << 28;

/// A cached image without the checksum behind it; none where that is wrong: the driver does not verify what it loads.
fn read_whole(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = files::read_bounded(path, MOST_BYTES).ok()?;
    let sum = bytes.split_off(bytes.len().checked_sub(8)?);
    (sum == digest(&[&bytes]).to_le_bytes()).then_some(bytes)
}

fn source(file: &str) -> String {
    let parts = SOURCES.iter().find(|(name, _)| *name == file).map_or(&[][..], |(_, parts)| parts);
    format!("{COMMON}\n{}", parts.join("\n"))
}

fn options(file: &str, architecture: &str, types: Types) -> Vec<String> {
    let mut options =
        vec!["--std=c++17".into(), "-default-device".into(), format!("--gpu-architecture={architecture}")];
    match types {
        Types::F32 => options.push("-DACT_IS_FLOAT".into()),
        // Other files are the same in both cases, and are compiled once for both.
        Types::Bf16WithF32Residual if OF_RESIDUAL_STREAM.contains(&file) => options.push("-DRES_IS_FLOAT".into()),
        Types::Bf16WithF32Residual | Types::Bf16 => {}
    }
    options
}

fn nvrtc_version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: two integers to write; the library is open.
    unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    (major, minor)
}

fn compile(file: &str, source: &str, options: &[String]) -> Result<Vec<u8>, ProgramError> {
    let fail = |reason: String| ProgramError { file: file.into(), reason };
    let text = CString::new(source).map_err(|e| fail(e.to_string()))?;
    let program = nvrtc::result::create_program(&text, None).map_err(|e| fail(e.to_string()))?;
    // SAFETY: the program was just made, and is destroyed once, below.
    let done = unsafe { nvrtc::result::compile_program(program, options) };
    let image = match done {
        Ok(()) => cubin(program).map_err(|e| fail(e.to_string())),
        Err(e) => {
            // SAFETY: as above.
            let log = unsafe { nvrtc::result::get_program_log(program) }.unwrap_or_default();
            let log: Vec<u8> = log.iter().map(|&c: &c_char| c as u8).filter(|&c| c != 0).collect();
            Err(fail(format!("{e}\n{}", String::from_utf8_lossy(&log))))
        }
    };
    // SAFETY: not used after this.
    let _ = unsafe { nvrtc::result::destroy_program(program) };
    image
}

fn cubin(program: nvrtc::sys::nvrtcProgram) -> Result<Vec<u8>, nvrtc::result::NvrtcError> {
    let mut size = 0;
    // SAFETY: a compiled program; the buffer has the size that NVRTC names.
    unsafe {
        nvrtc::sys::nvrtcGetCUBINSize(program, &raw mut size).result()?;
        let mut image = vec![0u8; size];
        nvrtc::sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()).result()?;
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kernel for the oldest and the newest architecture that is promised. Needs NVRTC but no GPU.
    #[test]
    fn every_kernel_compiles_for_sm_80_and_sm_90() {
        let found = super::super::library::cuda_libraries();
        if found.iter().any(|l| l.name == "nvrtc" && l.place.is_none()) {
            assert!(std::env::var_os("DINO_VMF_REQUIRE_NVRTC").is_none(), "NVRTC is required here and was not found");
            eprintln!("skipped: no NVRTC on this machine (pip install nvidia-cuda-nvrtc)");
            return;
        }
        for architecture in ["sm_80", "sm_90"] {
            for types in [Types::Bf16, Types::Bf16WithF32Residual, Types::F32] {
                for (file, _) in SOURCES {
                    let image = compile(file, &source(file), &options(file, architecture, types));
                    let image = image.unwrap_or_else(|e| panic!("{architecture}, {types:?}: {e}"));
                    assert!(image.starts_with(b"\x7fELF"), "{file} for {architecture}: no machine code");
                }
            }
        }
    }
}
