//! Decoding a text: the prompt's tokens, and then those that the model chooses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, Result};

use super::model::Model;
use super::step::step;
use super::way::Way;

pub struct Decoder<'a> {
    stream: &'a Arc<CudaStream>,
    model: &'a Model,
    prompt: Vec<u32>,
    /// The prompt and all that follows.
    text: Buffer<u32>,
    /// Where the model's guesses at the prompt go.
    ignored: Buffer<u32>,
}

/// What came of a text.
pub struct Decoded {
    /// The tokens after the prompt.
    pub tokens: Vec<u32>,
    /// How long it took the host to give the steps of those tokens.
    pub given: Duration,
    /// How long it took until the last of them was there.
    pub took: Duration,
}

impl<'a> Decoder<'a> {
    /// For texts of `prompt` and up to `tokens` more. The prompt has a token at least.
    pub fn new(
        stream: &'a Arc<CudaStream>,
        model: &'a Model,
        prompt: &[u8],
        tokens: usize,
    ) -> Result<Decoder<'a>> {
        Ok(Decoder {
            stream,
            model,
            prompt: prompt.iter().copied().map(u32::from).collect(),
            text: Buffer::zeroed(stream, prompt.len() + tokens)?,
            ignored: Buffer::zeroed(stream, 1)?,
        })
    }

    /// Has the steps of the prompt done, and then those of `tokens` tokens, which are timed. The
    /// host looks at no token before the last is there.
    pub fn decode(&self, way: &mut dyn Way, tokens: usize) -> Result<Decoded> {
        let first = self.prompt.len();
        // What an earlier text left would hide a step that was not done.
        self.model.forget(self.stream)?;
        let mut text = self.prompt.clone();
        text.resize(self.text.len(), 0);
        self.text.copy_from_host(self.stream, &text)?;

        for pos in 0..first - 1 {
            self.call(way, pos, &self.ignored)?;
        }
        self.stream.synchronize()?;
        let start = Instant::now();
        for pos in first - 1..first - 1 + tokens {
            self.call(way, pos, &self.text.slice(pos + 1..pos + 2)?)?;
        }
        let given = start.elapsed();
        self.stream.synchronize()?;
        let took = start.elapsed();
        let text = self.text.slice(first..first + tokens)?;
        Ok(Decoded {
            tokens: text.to_host(self.stream)?,
            given,
            took,
        })
    }

    fn call(&self, way: &mut dyn Way, pos: usize, next: &Buffer<u32>) -> Result<()> {
        let token = self.text.slice(pos..pos + 1)?;
        way.call(&mut |r| step(r, self.model, &token, next, pos as u32))
    }
}
