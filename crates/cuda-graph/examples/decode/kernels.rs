//! The kernels of `kernels/decode.cu`, as operations. Sizes follow from the buffers and are
//! checked, so making an operation is safe.

use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaContext, LaunchConfig};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{Buffer, Error, Kernel, KernelOp, Result};

use super::sizes::VOCABULARY;

const PTX: &str = include_str!("../../../../kernels/ptx/decode.ptx");

/// What the kernels are compiled for: the threads of a block; the rows of a block that multiplies,
/// and the threads that share a row.
pub const THREADS: usize = 256;
const ROWS: usize = 32;
const PARTS: usize = 16;

/// What becomes of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u32)]
pub enum Then {
    /// It is what `out` holds.
    Store = 0,
    /// It is added to what `out` holds.
    Add = 1,
    /// `out` holds its SiLU: the activation.
    Activate = 2,
}

/// The kernels, loaded.
pub struct Kernels {
    embed: Kernel,
    normalize: Kernel,
    multiply: Kernel,
    cache: Kernel,
    attend: Kernel,
    choose: Kernel,
}

fn launch(blocks: usize, threads: usize) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (blocks as u32, 1, 1),
        block_dim: (threads as u32, 1, 1),
        shared_mem_bytes: 0,
    }
}

/// Checks that `buffer` holds so many values, which kernels can count in 32 bits.
fn holds<T>(what: &'static str, buffer: &Buffer<T>, values: usize) -> Result<()> {
    if buffer.len() == values && u32::try_from(values).is_ok() {
        return Ok(());
    }
    Err(Error::SizeMismatch {
        what,
        wants: values.saturating_mul(size_of::<T>()),
        got: buffer.bytes(),
    })
}

/// The positions of a table that has `width` values for each, among which `pos` must be.
fn positions(table: &Buffer<f32>, width: usize, pos: u32) -> Result<usize> {
    let context = table.len().checked_div(width).unwrap_or(0);
    let pos = pos as usize;
    if pos >= context {
        return Err(Error::OutOfRange {
            start: pos,
            end: pos + 1,
            len: context,
        });
    }
    holds("a table of positions", table, context * width)?;
    Ok(context)
}

impl Kernels {
    pub fn load(context: &Arc<CudaContext>) -> Result<Kernels> {
        let module = context.load_module(Ptx::from_src(PTX))?;
        let kernel = |name| Kernel::new(&module.load_function(name)?);
        Ok(Kernels {
            embed: kernel("embed")?,
            normalize: kernel("normalize")?,
            multiply: kernel("multiply")?,
            cache: kernel("cache")?,
            attend: kernel("attend")?,
            choose: kernel("choose")?,
        })
    }

    /// `x` = the token's row of `tokens` + the row `pos` of `positions`.
    #[track_caller]
    pub fn embed(
        &self,
        token: &Buffer<u32>,
        tokens: &Buffer<f32>,
        table: &Buffer<f32>,
        x: &Buffer<f32>,
        pos: u32,
    ) -> Result<KernelOp> {
        let width = x.len();
        holds("a token", token, 1)?;
        holds("a table of tokens", tokens, VOCABULARY * width)?;
        positions(table, width, pos)?;
        let config = launch(width.div_ceil(THREADS), THREADS);
        let arguments = (token, tokens, table, x, width as u32, pos);
        // SAFETY: these are the kernel's parameters. `x` has `width` values, `tokens` a row for
        // every token, beyond which the kernel does not read, and `table` the row `pos`.
        unsafe { KernelOp::new(&self.embed, config, arguments) }
    }

    /// `out` = `x` divided by the root of its mean square, times `gain`.
    #[track_caller]
    pub fn normalize(
        &self,
        x: &Buffer<f32>,
        gain: &Buffer<f32>,
        out: &Buffer<f32>,
    ) -> Result<KernelOp> {
        let width = x.len();
        holds("a gain", gain, width)?;
        holds("what is normalized", out, width)?;
        let arguments = (x, gain, out, width as u32);
        // SAFETY: these are the kernel's parameters. All three have `width` values.
        unsafe { KernelOp::new(&self.normalize, launch(1, THREADS), arguments) }
    }

    /// The product of `weights`, column by column, and `x`.
    #[track_caller]
    pub fn multiply(
        &self,
        weights: &Buffer<f32>,
        x: &Buffer<f32>,
        out: &Buffer<f32>,
        then: Then,
    ) -> Result<KernelOp> {
        let (rows, columns) = (out.len(), x.len());
        holds("a matrix", weights, rows * columns)?;
        let config = launch(rows.div_ceil(ROWS), ROWS * PARTS);
        let (rows, columns) = (rows as u32, columns as u32);
        let arguments = (weights, x, out, rows, columns, then as u32);
        // SAFETY: these are the kernel's parameters. `out` has `rows` values, `x` has `columns`,
        // and `weights` one for each pair.
        unsafe { KernelOp::new(&self.multiply, config, arguments) }
    }

    /// Puts the key and the value of `qkv` to position `pos` of the cache.
    #[track_caller]
    pub fn cache(
        &self,
        qkv: &Buffer<f32>,
        keys: &Buffer<f32>,
        values: &Buffer<f32>,
        pos: u32,
    ) -> Result<KernelOp> {
        let width = qkv.len() / 3;
        holds("a query, key and value", qkv, 3 * width)?;
        let context = positions(keys, width, pos)?;
        holds("the cache of values", values, context * width)?;
        let config = launch(width.div_ceil(THREADS), THREADS);
        let arguments = (qkv, keys, values, width as u32, context as u32, pos);
        // SAFETY: these are the kernel's parameters. `qkv` has 3 times `width` values, `keys` and
        // `values` have `width` for each of `context` positions, and `pos` is one of those.
        unsafe { KernelOp::new(&self.cache, config, arguments) }
    }

    /// `out` = for each head, the values at positions up to `pos`, weighted by the softmax of what
    /// the query makes of their keys.
    #[track_caller]
    pub fn attend(
        &self,
        qkv: &Buffer<f32>,
        keys: &Buffer<f32>,
        values: &Buffer<f32>,
        out: &Buffer<f32>,
        heads: usize,
        pos: u32,
    ) -> Result<KernelOp> {
        let width = out.len();
        let head = width / heads;
        assert!(
            head * heads == width && THREADS.is_multiple_of(head),
            "sizes are checked when options are read"
        );
        holds("a query, key and value", qkv, 3 * width)?;
        let context = positions(keys, width, pos)?;
        holds("the cache of values", values, context * width)?;
        let config = LaunchConfig {
            shared_mem_bytes: (context * size_of::<f32>()) as u32,
            ..launch(heads, THREADS)
        };
        let (width, head, context) = (width as u32, head as u32, context as u32);
        let arguments = (qkv, keys, values, out, width, head, context, pos);
        // SAFETY: these are the kernel's parameters. `out` and the query in `qkv` have `width`
        // values, `keys` and `values` as many for each of `context` positions, of which `pos` is
        // one; the blocks' heads share the width, and a block has shared memory for all positions.
        unsafe { KernelOp::new(&self.attend, config, arguments) }
    }

    /// `next` = the token whose logit is the largest; the first of several.
    #[track_caller]
    pub fn choose(&self, logits: &Buffer<f32>, next: &Buffer<u32>) -> Result<KernelOp> {
        holds("the logits", logits, VOCABULARY)?;
        holds("the next token", next, 1)?;
        // SAFETY: these are the kernel's parameters. A thread reads its token's logit, and one
        // writes the one word of `next`.
        unsafe { KernelOp::new(&self.choose, launch(1, VOCABULARY), (logits, next)) }
    }
}
