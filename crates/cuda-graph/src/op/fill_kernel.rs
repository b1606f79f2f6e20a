//! The kernels that fill memory with values no memset node takes.
//!
//! They are PTX, which every driver compiles for its device, and are loaded once for a context. The
//! module goes with its context: graphs and executables keep that, so they need not keep the
//! module.

use std::sync::Arc;

use cudarc::driver::{CudaContext, LaunchConfig};

use super::KernelOp;
use crate::driver::per_context::PerContext;
use crate::kernel::{Arguments, Kernel};
use crate::memory::Region;
use crate::{Error, Result};

/// The most bytes that a value has.
pub(super) const MOST: usize = 256;

const BLOCK: u32 = 256;
const MOST_BLOCKS: u64 = 2048;
const MOST_ROWS: u64 = 65535;

const HEAD: &str = ".version 7.0\n.target sm_70\n.address_size 64\n";

/// A kernel that stores words of so many bits. In row `r` it stores, for each word `i` below
/// `count`, word `i % period` of `value`. The threads of a row are `stride` words apart, a multiple
/// of `period`: so each thread stores one word again and again. Threads from `stride` on have
/// nothing to do.
const KERNEL: &str = "
.visible .entry cuda_graph_fill_BITS(.param .u64 to, .param .u64 pitch, .param .u64 count,
    .param .u64 rows, .param .u64 stride, .param .u64 period, .param .align 8 .b8 value[256])
{
    .reg .pred %over;
    .reg .b32 %a, %b, %c;
    .reg .b64 %i, %j, %r, %to, %pitch, %count, %rows, %stride, %period, %word, %at, %row, %step;
    mov.u32 %a, %ctaid.x;
    mov.u32 %b, %ntid.x;
    mov.u32 %c, %tid.x;
    mad.lo.u32 %c, %a, %b, %c;
    cvt.u64.u32 %i, %c;
    ld.param.u64 %stride, [stride];
    setp.ge.u64 %over, %i, %stride;
    @%over ret;
    ld.param.u64 %period, [period];
    rem.u64 %j, %i, %period;
    mov.u64 %at, value;
    mad.lo.u64 %at, %j, BYTES, %at;
    ld.param.uBITS %word, [%at];
    ld.param.u64 %to, [to];
    cvta.to.global.u64 %to, %to;
    ld.param.u64 %pitch, [pitch];
    ld.param.u64 %count, [count];
    ld.param.u64 %rows, [rows];
    mov.u32 %a, %ctaid.y;
    cvt.u64.u32 %r, %a;
    mov.u32 %a, %nctaid.y;
    cvt.u64.u32 %step, %a;
ROW:
    setp.ge.u64 %over, %r, %rows;
    @%over ret;
    mad.lo.u64 %row, %r, %pitch, %to;
    mov.u64 %j, %i;
WORD:
    setp.ge.u64 %over, %j, %count;
    @%over bra NEXT;
    mad.lo.u64 %at, %j, BYTES, %row;
    st.global.uBITS [%at], %word;
    add.u64 %j, %j, %stride;
    bra WORD;
NEXT:
    add.u64 %r, %r, %step;
    bra ROW;
}
";

/// The kernels of `context`, loaded if they are not; for words of 1, 2, 4 and 8 bytes.
fn kernels(context: &Arc<CudaContext>) -> Result<Arc<[Kernel]>> {
    static LOADED: PerContext<Arc<[Kernel]>> = PerContext::new();
    LOADED.get(context, || {
        let of_bytes = |text: &str, bytes: usize| {
            let text = text.replace("BITS", &(8 * bytes).to_string());
            text.replace("BYTES", &bytes.to_string())
        };
        let ptx: String = [1, 2, 4, 8].map(|bytes| of_bytes(KERNEL, bytes)).concat();
        let names = [1, 2, 4, 8].map(|bytes| of_bytes("cuda_graph_fill_BITS", bytes));
        Kernel::load(
            context,
            &format!("{HEAD}{ptx}"),
            names.iter().map(String::as_str),
        )
    })
}

/// A launch that fills `height` rows of `width` values in `to`.
pub(super) fn launch(
    context: &Arc<CudaContext>,
    to: &Region,
    value: &[u8],
    (width, height, pitch): (usize, usize, usize),
) -> Result<KernelOp> {
    if value.len() > MOST {
        return Err(Error::FillValueSize { bytes: value.len() });
    }
    // The widest words that the value, its place and its rows are multiples of.
    let apart = if height > 1 { pitch as u64 } else { 0 };
    let log = (value.len() as u64 | to.address() | apart | 8).trailing_zeros();
    let kernel = kernels(context)?[log as usize].clone();
    let period = (value.len() >> log) as u64;
    let count = (width as u64).saturating_mul(period);
    let blocks = count.div_ceil(u64::from(BLOCK)).clamp(1, MOST_BLOCKS);
    let rows = (height as u64).clamp(1, MOST_ROWS);
    // A block has at least as many threads as a value has words.
    let stride = blocks * u64::from(BLOCK) / period * period;
    let mut padded = [0u8; MOST];
    padded[..value.len()].copy_from_slice(value);
    let (pitch, height) = (pitch as u64, height as u64);
    let mut arguments = Arguments::default();
    for number in [to.address(), pitch, count, height, stride, period] {
        arguments.value(&number);
    }
    arguments.value(&padded);
    if let Some(owner) = &to.owner {
        arguments.keep(owner.clone());
    }
    let config = LaunchConfig {
        grid_dim: (blocks as u32, rows as u32, 1),
        block_dim: (BLOCK, 1, 1),
        shared_mem_bytes: 0,
    };
    // SAFETY: the kernel writes rows of whole values, which lie in the region; the operation keeps
    // it.
    unsafe { KernelOp::new(kernel, config, arguments) }
}
