//! What Cranelift calls by itself where the processor has no instruction.

use cranelift_codegen::ir::LibCall;

use super::{RuntimeFn, runtime};

runtime! {
    CEIL_F32 = fn ceil_f32(x: f32) -> f32 { x.ceil() }
    CEIL_F64 = fn ceil_f64(x: f64) -> f64 { x.ceil() }
    FLOOR_F32 = fn floor_f32(x: f32) -> f32 { x.floor() }
    FLOOR_F64 = fn floor_f64(x: f64) -> f64 { x.floor() }
    TRUNC_F32 = fn trunc_f32(x: f32) -> f32 { x.trunc() }
    TRUNC_F64 = fn trunc_f64(x: f64) -> f64 { x.trunc() }
    NEAREST_F32 = fn nearest_f32(x: f32) -> f32 { x.round_ties_even() }
    NEAREST_F64 = fn nearest_f64(x: f64) -> f64 { x.round_ties_even() }
    FMA_F32 = fn fma_f32(x: f32, y: f32, z: f32) -> f32 { x.mul_add(y, z) }
    FMA_F64 = fn fma_f64(x: f64, y: f64, z: f64) -> f64 { x.mul_add(y, z) }
}

/// The function for a call that Cranelift makes; `None` for one that our code never needs.
pub(crate) fn libcall(call: LibCall) -> Option<&'static RuntimeFn> {
    Some(match call {
        LibCall::CeilF32 => &CEIL_F32,
        LibCall::CeilF64 => &CEIL_F64,
        LibCall::FloorF32 => &FLOOR_F32,
        LibCall::FloorF64 => &FLOOR_F64,
        LibCall::TruncF32 => &TRUNC_F32,
        LibCall::TruncF64 => &TRUNC_F64,
        LibCall::NearestF32 => &NEAREST_F32,
        LibCall::NearestF64 => &NEAREST_F64,
        LibCall::FmaF32 => &FMA_F32,
        LibCall::FmaF64 => &FMA_F64,
        _ => return None,
    })
}
