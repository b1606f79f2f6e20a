//! Functions that compiled code calls: what Cranelift has no instruction for, and the doors to the
//! grid.
//!
//! A function is defined by the [`runtime!`] macro, which also makes the [`RuntimeFn`] that
//! lowering calls it by, and the list of the file's functions. Compiled code names a function by
//! its [number](number) in the list of all, because it may be loaded by another process, where the
//! function is elsewhere.

pub(crate) mod access;
pub(crate) mod approx;
pub(crate) mod arrays;
pub(crate) mod convert;
pub(crate) mod copy;
pub(crate) mod float;
pub(crate) mod half;
#[cfg(target_arch = "x86_64")]
pub(crate) mod halves;
mod libcalls;

use std::collections::HashMap;
use std::sync::LazyLock;

use cranelift_codegen::ir::{Type, types};

/// All functions, by number: the lists that the [`runtime!`] macro makes, one after the other.
static ALL: LazyLock<Vec<&'static RuntimeFn>> = LazyLock::new(|| {
    let lists = [
        access::FUNCTIONS,
        approx::FUNCTIONS,
        convert::FUNCTIONS,
        copy::FUNCTIONS,
        float::FUNCTIONS,
        half::FUNCTIONS,
        #[cfg(target_arch = "x86_64")]
        halves::FUNCTIONS,
        libcalls::FUNCTIONS,
        super::lower::bit_functions::FUNCTIONS,
    ];
    let lists = lists.iter().chain(crate::grid::FUNCTIONS);
    lists.flat_map(|list| list.iter().copied()).collect()
});

/// The number of a function, as long as the library is built from the same source.
pub(crate) fn number(function: &'static RuntimeFn) -> u32 {
    fn key(function: &'static RuntimeFn) -> usize {
        std::ptr::from_ref(function).addr()
    }
    static NUMBERS: LazyLock<HashMap<usize, u32>> =
        LazyLock::new(|| ALL.iter().map(|function| key(function)).zip(0..).collect());
    let found = NUMBERS.get(&key(function)).copied();
    found.unwrap_or_else(|| panic!("`{}` is in no list of runtime functions", function.name))
}

/// The function of a number.
pub(crate) fn numbered(number: u32) -> Option<&'static RuntimeFn> {
    ALL.get(number as usize).copied()
}

pub(crate) use libcalls::libcall;

/// A function that compiled code can call.
pub(crate) struct RuntimeFn {
    /// Its symbol in dumps.
    pub name: &'static str,
    /// Its address.
    pub address: fn() -> usize,
    /// Parameter types.
    pub params: &'static [Type],
    /// Result type, if it has one.
    pub result: Option<Type>,
    /// By Windows' convention, whatever the host: `xmm6` to `xmm15` outlive a call of it.
    pub keeps_vectors: bool,
}

/// A Rust type that crosses between compiled code and the runtime.
pub(crate) trait Crosses {
    /// The same type in the compiler.
    const TYPE: Type;
}

macro_rules! crosses {
    ($($rust:ty => $clif:ident),* $(,)?) => { $(impl Crosses for $rust { const TYPE: Type = types::$clif; })* };
}
crosses!(u8 => I8, i8 => I8, u16 => I16, i16 => I16, u32 => I32, i32 => I32, u64 => I64, i64 => I64, f32 => F32, f64 => F64);
#[cfg(target_arch = "x86_64")]
crosses!(std::arch::x86_64::__m128i => I32X4);
impl<T> Crosses for *mut T {
    const TYPE: Type = types::I64;
}
impl<T> Crosses for *const T {
    const TYPE: Type = types::I64;
}

/// Defines runtime functions: `runtime! { /// What it does. SIN_F32 = fn sin_f32(x: f32) -> f32 {
/// x.sin() } }`.
///
/// Integers narrower than 32 bits may not cross: the two sides could disagree about their upper
/// bits.
macro_rules! runtime {
    ($($(#[$meta:meta])* $konst:ident = fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => { $(
        $(#[$meta])*
        pub(crate) extern "C" fn $name($($arg: $ty),*) $(-> $ret)? $body

        $(#[$meta])*
        pub(crate) static $konst: $crate::jit::runtime::RuntimeFn = $crate::jit::runtime::RuntimeFn {
            name: stringify!($name),
            address: || $name as *const () as usize,
            params: &[$(<$ty as $crate::jit::runtime::Crosses>::TYPE),*],
            result: $crate::jit::runtime::runtime!(@result $($ret)?),
            keeps_vectors: false,
        };
    )*

        /// The runtime functions of this file.
        pub(crate) static FUNCTIONS: &[&$crate::jit::runtime::RuntimeFn] = &[$(&$konst),*];
    };
    (@result) => { None };
    (@result $ret:ty) => { Some(<$ret as $crate::jit::runtime::Crosses>::TYPE) };
}
pub(crate) use runtime;
