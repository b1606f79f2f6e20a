//! What the kernels compute, as textbooks write it: in double precision, on the host.

use super::sizes::{Sizes, VOCABULARY};
use super::weights::Weights;

pub fn embed(tokens: &[f32], positions: &[f32], width: usize, token: u32, pos: usize) -> Vec<f64> {
    let row = |table: &[f32], row: usize| table[row * width..(row + 1) * width].to_vec();
    let (token, position) = (row(tokens, token as usize), row(positions, pos));
    let pairs = token.iter().zip(&position);
    pairs.map(|(&a, &b)| f64::from(a) + f64::from(b)).collect()
}

pub fn normalize(x: &[f64], gain: &[f32]) -> Vec<f64> {
    let square = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (square + 1e-5).sqrt();
    let pairs = x.iter().zip(gain);
    pairs
        .map(|(x, &gain)| x * scale * f64::from(gain))
        .collect()
}

/// The matrix lies column by column.
pub fn multiply(weights: &[f32], x: &[f64]) -> Vec<f64> {
    let rows = weights.len() / x.len();
    let of_row = |row| {
        let products = x.iter().enumerate();
        let products = products.map(|(column, x)| f64::from(weights[column * rows + row]) * x);
        products.sum()
    };
    (0..rows).map(of_row).collect()
}

pub fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// Keys and values are those of each position so far.
pub fn attend(query: &[f64], keys: &[Vec<f64>], values: &[Vec<f64>], heads: usize) -> Vec<f64> {
    let head = query.len() / heads;
    let mut out = vec![0.0; query.len()];
    for first in (0..query.len()).step_by(head) {
        let score = |key: &Vec<f64>| {
            let products = (first..first + head).map(|d| query[d] * key[d]);
            (products.sum::<f64>() / (head as f64).sqrt()).exp()
        };
        let scores: Vec<f64> = keys.iter().map(score).collect();
        let total: f64 = scores.iter().sum();
        for (score, value) in scores.iter().zip(values) {
            (first..first + head).for_each(|d| out[d] += score / total * value[d]);
        }
    }
    out
}

pub fn choose(logits: &[f32]) -> u32 {
    let best = (0..logits.len()).rev().max_by(|&a, &b| {
        let (a, b) = (logits[a], logits[b]);
        a.partial_cmp(&b).expect("a logit is a number")
    });
    best.expect("there are logits") as u32
}

/// The logits after each of `text`.
pub fn logits(sizes: &Sizes, weights: &Weights<Vec<f32>>, text: &[u32]) -> Vec<Vec<f64>> {
    let mut caches = vec![(Vec::new(), Vec::new()); sizes.layers];
    let mut after = Vec::new();
    for (pos, &token) in text.iter().enumerate() {
        let add = |x: &mut Vec<f64>, more: Vec<f64>| {
            x.iter_mut().zip(more).for_each(|(x, more)| *x += more);
        };
        let mut x = embed(&weights.tokens, &weights.positions, sizes.width, token, pos);
        for (layer, (keys, values)) in weights.layers.iter().zip(&mut caches) {
            let qkv = multiply(&layer.attention_in, &normalize(&x, &layer.attention_gain));
            let [query, key, value] = [0, 1, 2].map(|at| &qkv[at * sizes.width..][..sizes.width]);
            keys.push(key.to_vec());
            values.push(value.to_vec());
            let attended = attend(query, keys, values, sizes.heads);
            add(&mut x, multiply(&layer.attention_out, &attended));
            let mut inner = multiply(&layer.feed_in, &normalize(&x, &layer.feed_gain));
            inner.iter_mut().for_each(|value| *value = silu(*value));
            add(&mut x, multiply(&layer.feed_out, &inner));
        }
        let logits = multiply(&weights.logits, &normalize(&x, &weights.last_gain));
        assert_eq!(logits.len(), VOCABULARY);
        after.push(logits);
    }
    after
}
