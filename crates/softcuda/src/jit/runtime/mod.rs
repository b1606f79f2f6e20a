//! Functions that compiled code calls: what Cranelift has no instruction for, and the doors to the
//! grid.
//!
//! A function is defined by the [`runtime!`] macro, which also makes the [`RuntimeFn`] that
//! lowering calls it by.

pub(crate) mod access;
pub(crate) mod approx;
pub(crate) mod convert;
pub(crate) mod float;
pub(crate) mod half;

use cranelift_codegen::ir::{Type, types};

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
        };
    )* };
    (@result) => { None };
    (@result $ret:ty) => { Some(<$ret as $crate::jit::runtime::Crosses>::TYPE) };
}
pub(crate) use runtime;
