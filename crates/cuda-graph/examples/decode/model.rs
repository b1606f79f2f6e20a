//! A model on the device: its weights, what it remembers of a text, and room to work in.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, Eager, FillOp, Result};

use super::kernels::Kernels;
use super::sizes::{Sizes, VOCABULARY};
use super::weights::Weights;

/// The keys and values of a layer at the positions so far.
pub struct Cache {
    pub keys: Buffer<f32>,
    pub values: Buffer<f32>,
}

pub struct Model {
    pub kernels: Kernels,
    pub heads: usize,
    pub weights: Weights<Buffer<f32>>,
    pub caches: Vec<Cache>,
    /// The residual stream of a token, and that of the next: they take turns.
    pub residual: [Buffer<f32>; 2],
    pub normal: Buffer<f32>,
    /// Query, key and value of the token.
    pub qkv: Buffer<f32>,
    pub attended: Buffer<f32>,
    pub inner: Buffer<f32>,
    pub logits: Buffer<f32>,
}

impl Model {
    /// Puts a model on the device, in the order of `stream`.
    pub fn new(
        stream: &Arc<CudaStream>,
        sizes: &Sizes,
        weights: &Weights<Vec<f32>>,
    ) -> Result<Model> {
        let values = |count| Buffer::<f32>::zeroed(stream, count);
        let vector = || values(sizes.width);
        let cache = |_| {
            Ok(Cache {
                keys: values(sizes.context * sizes.width)?,
                values: values(sizes.context * sizes.width)?,
            })
        };
        Ok(Model {
            kernels: Kernels::load(stream.context())?,
            heads: sizes.heads,
            weights: weights.try_map(|values| Buffer::from_host(stream, values))?,
            caches: (0..sizes.layers).map(cache).collect::<Result<_>>()?,
            residual: [vector()?, vector()?],
            normal: vector()?,
            qkv: values(3 * sizes.width)?,
            attended: vector()?,
            inner: values(sizes.inner())?,
            logits: values(VOCABULARY)?,
        })
    }

    /// Forgets the text, so that the next one finds nothing of it.
    pub fn forget(&self, stream: &Arc<CudaStream>) -> Result<()> {
        let mut eager = Eager::new(stream)?;
        for Cache { keys, values } in &self.caches {
            eager.record(FillOp::new(keys, 0f32)?)?;
            eager.record(FillOp::new(values, 0f32)?)?;
        }
        Ok(())
    }
}
