//! The step of one token, for any recorder.

use cuda_graph::{Buffer, Recorder, Result};

use super::kernels::Then;
use super::model::Model;

/// Reads the token at position `pos` of a text, remembers it, and writes the token that follows to
/// `next`. The tokens before it must have been read.
///
/// The operations are the same for every token; of their arguments the tokens' places, the position
/// and the buffer of the residual stream are not.
pub fn step(
    r: &mut dyn Recorder,
    model: &Model,
    token: &Buffer<u32>,
    next: &Buffer<u32>,
    pos: u32,
) -> Result<()> {
    let (kernels, weights) = (&model.kernels, &model.weights);
    let x = &model.residual[pos as usize % 2];
    let (normal, qkv, attended, inner) = (&model.normal, &model.qkv, &model.attended, &model.inner);

    r.record(kernels.embed(token, &weights.tokens, &weights.positions, x, pos)?)?;
    for (layer, cache) in weights.layers.iter().zip(&model.caches) {
        let (keys, values) = (&cache.keys, &cache.values);
        r.record(kernels.normalize(x, &layer.attention_gain, normal)?)?;
        r.record(kernels.multiply(&layer.attention_in, normal, qkv, Then::Store)?)?;
        r.record(kernels.cache(qkv, keys, values, pos)?)?;
        r.record(kernels.attend(qkv, keys, values, attended, model.heads, pos)?)?;
        r.record(kernels.multiply(&layer.attention_out, attended, x, Then::Add)?)?;
        r.record(kernels.normalize(x, &layer.feed_gain, normal)?)?;
        r.record(kernels.multiply(&layer.feed_in, normal, inner, Then::Activate)?)?;
        r.record(kernels.multiply(&layer.feed_out, inner, x, Then::Add)?)?;
    }
    r.record(kernels.normalize(x, &weights.last_gain, normal)?)?;
    r.record(kernels.multiply(&weights.logits, normal, &model.logits, Then::Store)?)?;
    r.record(kernels.choose(&model.logits, next)?)?;
    Ok(())
}
