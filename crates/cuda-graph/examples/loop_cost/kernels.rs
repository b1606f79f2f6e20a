//! The kernels of all loops, each of one thread.

use std::sync::Arc;

use cuda_graph::cudarc;
use cuda_graph::{Buffer, Kernel};
use cudarc::driver::{CudaModule, CudaStream, LaunchConfig};
use cudarc::nvrtc::Ptx;

use crate::Result;

/// `counts[0]` counts the turns of a loop and begins again with the turn `limit`; `counts[1]`
/// counts all turns there ever were.
///
/// `count_and_set(counts, limit, condition)` sets the condition while there are turns to come,
/// `count_to_flag(counts, limit, flag)` writes that to a word, `set_from(condition, flag)` sets the
/// condition to a word, `count(counts)` counts in `counts[1]` alone.
const PTX: &str = "
.version 8.4
.target sm_70
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

.visible .entry count_and_set(.param .u64 counts, .param .u32 limit, .param .u64 condition)
{
    .reg .pred %more;
    .reg .b32 %turn, %all, %limit, %next, %set;
    .reg .b64 %p, %c;
    ld.param.u64 %p, [counts];
    ld.param.u32 %limit, [limit];
    ld.param.u64 %c, [condition];
    ld.global.u32 %turn, [%p];
    ld.global.u32 %all, [%p+4];
    add.u32 %turn, %turn, 1;
    add.u32 %all, %all, 1;
    setp.lt.u32 %more, %turn, %limit;
    selp.u32 %next, %turn, 0, %more;
    selp.u32 %set, 1, 0, %more;
    st.global.u32 [%p], %next;
    st.global.u32 [%p+4], %all;
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %c;
        st.param.b32 [b], %set;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

.visible .entry count_to_flag(.param .u64 counts, .param .u32 limit, .param .u64 flag)
{
    .reg .pred %more;
    .reg .b32 %turn, %all, %limit, %next, %set;
    .reg .b64 %p, %f;
    ld.param.u64 %p, [counts];
    ld.param.u32 %limit, [limit];
    ld.param.u64 %f, [flag];
    ld.global.u32 %turn, [%p];
    ld.global.u32 %all, [%p+4];
    add.u32 %turn, %turn, 1;
    add.u32 %all, %all, 1;
    setp.lt.u32 %more, %turn, %limit;
    selp.u32 %next, %turn, 0, %more;
    selp.u32 %set, 1, 0, %more;
    st.global.u32 [%p], %next;
    st.global.u32 [%p+4], %all;
    st.global.u32 [%f], %set;
    ret;
}

.visible .entry set_from(.param .u64 condition, .param .u64 flag)
{
    .reg .b32 %v;
    .reg .b64 %c, %p;
    ld.param.u64 %c, [condition];
    ld.param.u64 %p, [flag];
    ld.global.u32 %v, [%p];
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %c;
        st.param.b32 [b], %v;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

.visible .entry count(.param .u64 counts)
{
    .reg .b32 %all;
    .reg .b64 %p;
    ld.param.u64 %p, [counts];
    ld.global.u32 %all, [%p+4];
    add.u32 %all, %all, 1;
    st.global.u32 [%p+4], %all;
    ret;
}
";

pub const ONE_THREAD: LaunchConfig = LaunchConfig {
    grid_dim: (1, 1, 1),
    block_dim: (1, 1, 1),
    shared_mem_bytes: 0,
};

/// What all ways work with.
pub struct Work {
    pub stream: Arc<CudaStream>,
    pub count_and_set: Kernel,
    pub count_to_flag: Kernel,
    pub set_from: Kernel,
    pub count: Kernel,
    /// A word that is 1.
    pub one: Buffer<u32>,
}

impl Work {
    pub fn new(stream: Arc<CudaStream>) -> Result<Work> {
        let module: Arc<CudaModule> = stream.context().load_module(Ptx::from_src(PTX))?;
        let kernel = |name| -> Result<Kernel> { Ok(Kernel::new(&module.load_function(name)?)?) };
        Ok(Work {
            count_and_set: kernel("count_and_set")?,
            count_to_flag: kernel("count_to_flag")?,
            set_from: kernel("set_from")?,
            count: kernel("count")?,
            one: Buffer::from_host(&stream, &[1])?,
            stream,
        })
    }

    /// Words that a loop counts in.
    pub fn counts(&self) -> Result<Buffer<u32>> {
        Ok(Buffer::zeroed(&self.stream, 2)?)
    }

    /// A word that says whether a loop goes on.
    pub fn flag(&self) -> Result<Buffer<u32>> {
        Ok(Buffer::zeroed(&self.stream, 1)?)
    }
}
