//! The arguments of a kernel, by value.

use std::ffi::c_void;

/// One argument, in the form that the driver wants: memory of its exact size.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    Address(u64),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
}

impl Argument {
    pub(crate) fn pointer(&self) -> *mut c_void {
        match self {
            Argument::Address(x) => std::ptr::from_ref(x).cast_mut().cast(),
            Argument::Int(x) => std::ptr::from_ref(x).cast_mut().cast(),
            Argument::Long(x) => std::ptr::from_ref(x).cast_mut().cast(),
            Argument::Float(x) => std::ptr::from_ref(x).cast_mut().cast(),
            Argument::Double(x) => std::ptr::from_ref(x).cast_mut().cast(),
        }
    }
}

macro_rules! argument_from {
    ($($from:ty => $variant:ident),*) => {
        $(impl From<$from> for Argument {
            fn from(x: $from) -> Self {
                Argument::$variant(x)
            }
        })*
    };
}
argument_from!(u64 => Address, i32 => Int, i64 => Long, f32 => Float, f64 => Double);

/// A list of arguments; their types must be those of the kernel's parameters: u64 for pointers, i32 for `int`.
macro_rules! arguments {
    ($($x:expr),* $(,)?) => { [$($crate::cuda::Argument::from($x)),*] };
}
pub(crate) use arguments;
