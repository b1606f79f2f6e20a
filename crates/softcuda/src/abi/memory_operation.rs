//! `cuStreamWaitValue*`, `cuStreamWriteValue*`, `cuStreamBatchMemOp`.

use super::types::{CUdeviceptr, CUstream};
use super::{In, NullStream, export};
use crate::driver::memory_operation::{self, Parameters, operation};
use crate::driver::stream::{self, Stream};
use crate::driver::{CUresult, Result};

fn one(stream: &Stream, operation: Parameters) -> Result {
    memory_operation::submit(stream, &[operation])
}

fn batch(
    handle: CUstream,
    null: NullStream,
    count: u32,
    operations: In<Parameters>,
    flags: u32,
) -> Result {
    let stream = stream::resolve(handle, null)?;
    if flags != 0 || count > 256 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let operations = operations.list(count as usize)?;
    memory_operation::submit(&stream, &operations)
}

macro_rules! values {
    ($($(#[$meta:meta])* $name:ident | $thread:ident: $resolve:ident, $operation:ident, $ty:ty;)*) => {
        export! { $(
            $(#[$meta])*
            fn $name | $thread(null; handle: CUstream, address: CUdeviceptr, value: $ty, flags: u32) {
                one(&*stream::$resolve(handle, null)?, Parameters::new(operation::$operation, address, value.into(), flags))
            }
        )* }
    };
}

values! {
    /// Later work waits for a value in memory.
    cuStreamWaitValue32 | cuStreamWaitValue32_ptsz: resolve_to_run, WAIT_VALUE_32, u32;
    /// Later work waits for a value in memory.
    cuStreamWaitValue32_v2 | cuStreamWaitValue32_v2_ptsz: resolve, WAIT_VALUE_32, u32;
    /// Later work waits for a value in memory.
    cuStreamWaitValue64 | cuStreamWaitValue64_ptsz: resolve_to_run, WAIT_VALUE_64, u64;
    /// Later work waits for a value in memory.
    cuStreamWaitValue64_v2 | cuStreamWaitValue64_v2_ptsz: resolve, WAIT_VALUE_64, u64;
    /// Writes a value to memory.
    cuStreamWriteValue32 | cuStreamWriteValue32_ptsz: resolve_to_run, WRITE_VALUE_32, u32;
    /// Writes a value to memory.
    cuStreamWriteValue32_v2 | cuStreamWriteValue32_v2_ptsz: resolve, WRITE_VALUE_32, u32;
    /// Writes a value to memory.
    cuStreamWriteValue64 | cuStreamWriteValue64_ptsz: resolve_to_run, WRITE_VALUE_64, u64;
    /// Writes a value to memory.
    cuStreamWriteValue64_v2 | cuStreamWriteValue64_v2_ptsz: resolve, WRITE_VALUE_64, u64;
}

export! {
    /// Waits and writes, one after the other.
    fn cuStreamBatchMemOp | cuStreamBatchMemOp_ptsz(
        null; handle: CUstream, count: u32, operations: In<Parameters>, flags: u32,
    ) {
        stream::resolve_to_run(handle, null)?;
        batch(handle, null, count, operations, flags)
    }

    /// Waits and writes, one after the other.
    fn cuStreamBatchMemOp_v2 | cuStreamBatchMemOp_v2_ptsz(
        null; handle: CUstream, count: u32, operations: In<Parameters>, flags: u32,
    ) {
        batch(handle, null, count, operations, flags)
    }
}
