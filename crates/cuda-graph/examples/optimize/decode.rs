//! A transformer's step for one token: 4 layers of 256 values, 8 heads, a cache of 64 positions.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaContext;
use cuda_graph::{
    Buffer, CopyOp, FillOp, Kernel, KernelOp, Module, PinnedBuffer, Recorder, Result,
};

use crate::case::{Case, Setting};
use crate::memory::{Memory, values};
use crate::tiny::{HEADER, launch};

const LAYERS: u32 = 4;
/// The values of a vector, of one inside the feed-forward part, and the tokens. The kernels know
/// the width, and that a head has 32 values.
const WIDTH: usize = 256;
const HEADS: usize = 8;
const INNER: usize = 512;
const TOKENS: usize = 256;
const POSITIONS: usize = 64;

/// The rows that a block multiplies, with a warp each.
const ROWS: usize = 4;
const WARP: usize = 32;

struct Kernels {
    embed: Kernel,
    norm: Kernel,
    matvec: Kernel,
    attend: Kernel,
    silu: Kernel,
    choose: Kernel,
}

impl Kernels {
    fn load(context: &Arc<CudaContext>) -> Result<Kernels> {
        let parts = [HEADER, include_str!("sum.ptx"), include_str!("decode.ptx")];
        let module = Module::load(context, parts.concat())?;
        Ok(Kernels {
            embed: module.kernel("embed")?,
            norm: module.kernel("norm")?,
            matvec: module.kernel("matvec")?,
            attend: module.kernel("attend")?,
            silu: module.kernel("silu")?,
            choose: module.kernel("choose")?,
        })
    }

    fn norm(&self, x: &Buffer<f32>, gain: &Buffer<f32>, out: &Buffer<f32>) -> Result<KernelOp> {
        assert!([x, gain, out].iter().all(|vector| vector.len() == WIDTH));
        // SAFETY: these are the kernel's parameters, of the length that it knows.
        unsafe { KernelOp::new(&self.norm, launch(1, WIDTH), (x, gain, out)) }
    }

    /// Adds a product to `y`.
    fn matvec(&self, w: &Buffer<f32>, x: &Buffer<f32>, y: &Buffer<f32>) -> Result<KernelOp> {
        let (rows, columns) = (y.len(), x.len());
        assert!(rows.is_multiple_of(ROWS) && columns.is_multiple_of(WARP));
        assert_eq!(w.len(), rows * columns);
        let config = launch(rows / ROWS, ROWS * WARP);
        // SAFETY: these are the kernel's parameters; each row and column has its value.
        unsafe { KernelOp::new(&self.matvec, config, (w, x, y, columns as u32)) }
    }
}

struct Layer {
    attention_gain: Buffer<f32>,
    attention_in: Buffer<f32>,
    attention_out: Buffer<f32>,
    feed_gain: Buffer<f32>,
    feed_in: Buffer<f32>,
    feed_out: Buffer<f32>,
    keys: Buffer<f32>,
    values: Buffer<f32>,
}

impl Layer {
    fn new(memory: &mut Memory, seed: u32) -> Result<Layer> {
        let mut number = seed * 100;
        let mut weights = |len| {
            number += 1;
            memory.buffer(values(len, 0.05, number))
        };
        Ok(Layer {
            attention_in: weights(3 * WIDTH * WIDTH)?,
            attention_out: weights(WIDTH * WIDTH)?,
            feed_in: weights(INNER * WIDTH)?,
            feed_out: weights(WIDTH * INNER)?,
            keys: weights(POSITIONS * WIDTH)?,
            values: weights(POSITIONS * WIDTH)?,
            attention_gain: memory.buffer(vec![1.0; WIDTH])?,
            feed_gain: memory.buffer(vec![1.0; WIDTH])?,
        })
    }
}

/// All that a step works on. It is that of the last position.
struct Model {
    kernels: Kernels,
    /// The token and its position, on the host and on the device; the next token there and here.
    given: PinnedBuffer<u32>,
    input: Buffer<u32>,
    next: Buffer<u32>,
    said: PinnedBuffer<u32>,
    tokens: Buffer<f32>,
    positions: Buffer<f32>,
    layers: Vec<Layer>,
    last_gain: Buffer<f32>,
    last: Buffer<f32>,
    x: Buffer<f32>,
    normal: Buffer<f32>,
    qkv: Buffer<f32>,
    attended: Buffer<f32>,
    inner: Buffer<f32>,
    logits: Buffer<f32>,
}

impl Model {
    fn new(setting: &Setting, memory: &mut Memory) -> Result<Model> {
        let layers: Result<Vec<Layer>> = (1..=LAYERS)
            .map(|number| Layer::new(memory, number))
            .collect();
        Ok(Model {
            kernels: Kernels::load(setting.stream.context())?,
            given: memory.pinned(vec![72, POSITIONS as u32 - 1])?,
            input: memory.zeros(2)?,
            next: memory.zeros(1)?,
            said: memory.pinned(vec![0])?,
            tokens: memory.buffer(values(TOKENS * WIDTH, 1.0, 1))?,
            positions: memory.buffer(values(POSITIONS * WIDTH, 1.0, 2))?,
            layers: layers?,
            last_gain: memory.buffer(vec![1.0; WIDTH])?,
            last: memory.buffer(values(TOKENS * WIDTH, 0.05, 3))?,
            x: memory.zeros(WIDTH)?,
            normal: memory.zeros(WIDTH)?,
            qkv: memory.zeros(3 * WIDTH)?,
            attended: memory.zeros(WIDTH)?,
            inner: memory.zeros(INNER)?,
            logits: memory.zeros(TOKENS)?,
        })
    }

    fn embed(&self) -> Result<KernelOp> {
        let arguments = (&self.input, &self.tokens, &self.positions, &self.x);
        // SAFETY: these are the kernel's parameters; the token and the position are in the tables.
        unsafe { KernelOp::new(&self.kernels.embed, launch(1, WIDTH), arguments) }
    }

    fn attend(&self, layer: &Layer) -> Result<KernelOp> {
        let arguments = (&self.qkv, &layer.keys, &layer.values, &self.attended);
        let config = launch(HEADS, WIDTH);
        // SAFETY: these are the kernel's parameters, of the lengths that it knows.
        unsafe { KernelOp::new(&self.kernels.attend, config, arguments) }
    }

    fn silu(&self) -> Result<KernelOp> {
        let config = launch(INNER / 256, 256);
        // SAFETY: this is the kernel's parameter; each thread has a value.
        unsafe { KernelOp::new(&self.kernels.silu, config, (&self.inner,)) }
    }

    fn choose(&self) -> Result<KernelOp> {
        let arguments = (&self.logits, &self.next);
        // SAFETY: these are the kernel's parameters; each thread has a logit.
        unsafe { KernelOp::new(&self.kernels.choose, launch(1, TOKENS), arguments) }
    }

    fn step(&self, r: &mut dyn Recorder) -> Result<()> {
        let (kernels, x, normal, qkv) = (&self.kernels, &self.x, &self.normal, &self.qkv);
        let row = (POSITIONS - 1) * WIDTH..POSITIONS * WIDTH;
        r.record(CopyOp::new(&self.input, &self.given)?)?;
        r.record(self.embed()?)?;
        for layer in &self.layers {
            r.record(kernels.norm(x, &layer.attention_gain, normal)?)?;
            r.record(FillOp::new(qkv, 0.0)?)?;
            r.record(kernels.matvec(&layer.attention_in, normal, qkv)?)?;
            let (key, value) = (qkv.slice(WIDTH..2 * WIDTH)?, qkv.slice(2 * WIDTH..)?);
            r.record(CopyOp::new(&layer.keys.slice(row.clone())?, &key)?)?;
            r.record(CopyOp::new(&layer.values.slice(row.clone())?, &value)?)?;
            r.record(self.attend(layer)?)?;
            r.record(kernels.matvec(&layer.attention_out, &self.attended, x)?)?;
            r.record(kernels.norm(x, &layer.feed_gain, normal)?)?;
            r.record(FillOp::new(&self.inner, 0.0)?)?;
            r.record(kernels.matvec(&layer.feed_in, normal, &self.inner)?)?;
            r.record(self.silu()?)?;
            r.record(kernels.matvec(&layer.feed_out, &self.inner, x)?)?;
        }
        r.record(kernels.norm(x, &self.last_gain, normal)?)?;
        r.record(FillOp::new(&self.logits, 0.0)?)?;
        r.record(kernels.matvec(&self.last, normal, &self.logits)?)?;
        r.record(self.choose()?)?;
        r.record(CopyOp::new(&self.said, &self.next)?)?;
        Ok(())
    }
}

pub fn case(setting: &Setting) -> Result<Case> {
    let mut memory = setting.memory();
    let model = Model::new(setting, &mut memory)?;
    let title = "captured: a transformer's decode step, 36 kernels, 9 fills, 10 copies";
    Ok(Case::captured(setting, title, memory, move |r| {
        model.step(r)
    }))
}
