//! The functions of NCCL that are used here, found when the program runs.
//!
//! The types are those of `nccl.h`. Its configuration structure grows at the end from version to version, and says its own
//! size and version: the one below is that of 2.18, which every later version takes.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::CUstream;
use libloading::Library;

use super::NcclError;
use crate::cuda::library;

/// The oldest version that can be ended from another thread while it communicates.
const OLDEST: c_int = 21900;

pub(super) const SUCCESS: c_int = 0;
pub(super) const IN_PROGRESS: c_int = 7;
/// `ncclUint8`.
pub(super) const BYTES: c_int = 1;
/// `ncclFloat32`.
pub(super) const FLOATS: c_int = 7;
/// `ncclSum`.
pub(super) const SUM: c_int = 0;

/// A communicator of NCCL's.
pub(super) type Handle = *mut c_void;

/// What the processes of a communicator know each other by.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId(pub [u8; super::ID_BYTES]);

/// `ncclConfig_t` of version 2.18.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cluster_size: c_int,
    least_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
    split_share: c_int,
}

impl Config {
    /// Everything as NCCL likes it, but no call waits for other processes.
    pub(super) fn not_blocking() -> Self {
        /// `NCCL_CONFIG_UNDEF_INT`.
        const UNDEFINED: c_int = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: 21800,
            blocking: 0,
            cluster_size: UNDEFINED,
            least_blocks: UNDEFINED,
            most_blocks: UNDEFINED,
            network: std::ptr::null(),
            split_share: UNDEFINED,
        }
    }
}

macro_rules! functions {
    ($($name:ident = $symbol:literal($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of an opened library.
        pub(super) struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// All of them, or the name of one that is missing.
            fn of(library: &Library) -> Result<Self, &'static str> {
                // SAFETY: the types are those of the functions in NCCL's header. The library stays open.
                unsafe { Ok(Self { $($name: *library.get($symbol).map_err(|_| $symbol)?,)* }) }
            }
        }
    };
}
functions! {
    get_version = "ncclGetVersion"(*mut c_int) -> c_int;
    get_unique_id = "ncclGetUniqueId"(*mut UniqueId) -> c_int;
    init_rank = "ncclCommInitRankConfig"(*mut Handle, c_int, UniqueId, c_int, *mut Config) -> c_int;
    get_async_error = "ncclCommGetAsyncError"(Handle, *mut c_int) -> c_int;
    finalize = "ncclCommFinalize"(Handle) -> c_int;
    destroy = "ncclCommDestroy"(Handle) -> c_int;
    abort = "ncclCommAbort"(Handle) -> c_int;
    group_start = "ncclGroupStart"() -> c_int;
    group_end = "ncclGroupEnd"() -> c_int;
    all_reduce = "ncclAllReduce"(u64, u64, usize, c_int, c_int, Handle, CUstream) -> c_int;
    all_gather = "ncclAllGather"(u64, u64, usize, c_int, Handle, CUstream) -> c_int;
    send = "ncclSend"(u64, usize, c_int, c_int, Handle, CUstream) -> c_int;
    receive = "ncclRecv"(u64, usize, c_int, c_int, Handle, CUstream) -> c_int;
    error_string = "ncclGetErrorString"(c_int) -> *const c_char;
    last_error = "ncclGetLastError"(Handle) -> *const c_char;
}

/// An opened library.
pub(super) struct Nccl {
    pub functions: Functions,
    pub version: c_int,
    pub place: String,
}

/// NCCL, opened at the first call and kept for the rest of the process.
pub(super) fn nccl() -> Result<&'static Nccl, NcclError> {
    static NCCL: OnceLock<Result<Nccl, NcclError>> = OnceLock::new();
    NCCL.get_or_init(|| load(["libnccl.so.2", "libnccl.so"])).as_ref().map_err(Clone::clone)
}

/// The first library that goes by one of these names.
fn load(names: [&str; 2]) -> Result<Nccl, NcclError> {
    let (library, place) = library::open(&names.map(str::to_owned)).ok_or(NcclError::Missing)?;
    let function = |function: &'static str| NcclError::Function { function, place: place.clone() };
    let functions = Functions::of(&library).map_err(function)?;
    std::mem::forget(library);
    let mut version = 0;
    // SAFETY: one integer to write.
    unsafe { (functions.get_version)(&raw mut version) };
    if version < OLDEST {
        return Err(NcclError::Old { version: version_in_words(version), place });
    }
    Ok(Nccl { functions, version, place })
}

/// A version as people write it. Its number has two digits for each part behind the first.
pub(super) fn version_in_words(version: c_int) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

impl Nccl {
    /// What a code means, and what NCCL has to say of the last failure.
    pub(super) fn words(&self, code: c_int, handle: Handle) -> String {
        // SAFETY: both functions give texts that end with a zero and are never freed, or null.
        let (meaning, last) = unsafe { ((self.functions.error_string)(code), (self.functions.last_error)(handle)) };
        let text = |text: *const c_char| {
            if text.is_null() {
                return String::new();
            }
            // SAFETY: as above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
        };
        match (text(meaning), text(last)) {
            (meaning, last) if last.is_empty() => meaning,
            (meaning, last) => format!("{meaning}: {last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_the_layout_of_the_header() {
        // Of 2.18 on a machine of 64 bits: eight words of 4 bytes, a pointer, one more and its padding.
        assert_eq!((size_of::<Config>(), size_of::<UniqueId>()), (48, 128));
        assert_eq!(std::mem::offset_of!(Config, blocking), 16);
        assert_eq!(std::mem::offset_of!(Config, network), 32);
        assert_eq!(std::mem::offset_of!(Config, split_share), 40);
    }

    #[test]
    fn versions_are_written_as_people_do() {
        assert_eq!(version_in_words(23203), "2.32.3");
        assert_eq!(version_in_words(21900), "2.19.0");
    }

    #[test]
    fn a_library_that_is_missing_or_another_one_is_named() {
        let of = |names| load(names).err().map(|error| error.to_string()).unwrap_or_default();
        let missing = of(["libnccl.so.of-nobody", "libnccl-of-nobody.so"]);
        assert!(missing.contains("NCCL was not found") && missing.contains("nvidia-nccl-cu13"), "{missing}");
        // Any other library by that name, which every Linux of this kind has.
        if cfg!(all(target_os = "linux", target_env = "gnu")) {
            let other = of(["libnccl.so.of-nobody", "libc.so.6"]);
            assert!(other.contains("nccl") && other.contains("libc.so.6"), "{other}");
        }
    }

    /// The real library, where there is one: no GPU is needed for what is called here.
    #[test]
    fn every_function_is_found_in_a_real_library() {
        let nccl = match nccl() {
            Ok(nccl) => nccl,
            Err(NcclError::Missing) => {
                eprintln!("skipped: no NCCL on this machine (pip install nvidia-nccl-cu13)");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        println!("NCCL {} in {}", version_in_words(nccl.version), nccl.place);
        assert!(nccl.version >= OLDEST);
        assert_eq!(nccl.words(SUCCESS, std::ptr::null_mut()), "no error");
        assert!(nccl.words(IN_PROGRESS, std::ptr::null_mut()).contains("in progress"));
        let id = |()| {
            let mut id = UniqueId([0; super::super::ID_BYTES]);
            // SAFETY: room for one id.
            (unsafe { (nccl.functions.get_unique_id)(&raw mut id) } == SUCCESS).then_some(id.0)
        };
        match (id(()), id(())) {
            (Some(first), Some(second)) => assert_ne!(first, second, "each communicator has its own"),
            _ => eprintln!("skipped: NCCL finds no network here to make an id for"),
        }
    }
}
