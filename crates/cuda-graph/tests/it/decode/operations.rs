//! Each kernel against the reference.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, Eager, Error, KernelOp, Result};

use super::kernels::{Kernels, Then};
use super::reference;
use super::sizes::VOCABULARY;
use crate::fixture::{context, stream, words};

/// Values that differ from each other, of both signs, about as large as 1.
fn values(count: usize, salt: u32) -> Vec<f32> {
    let value = |i: usize| {
        let mixed = (i as u32 + 1)
            .wrapping_mul(2_654_435_761)
            .wrapping_add(salt.wrapping_mul(40_503_019));
        (mixed >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..count).map(value).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

#[track_caller]
fn assert_close(got: &[f32], expected: &[f64]) {
    assert_eq!(got.len(), expected.len());
    for (at, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs();
        assert!(
            error <= 1e-5 * expected.abs().max(1.0),
            "value {at}: {got}, not {expected}"
        );
    }
}

/// A stream, kernels and buffers.
struct Bench {
    stream: Arc<CudaStream>,
    kernels: Kernels,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            stream: stream(),
            kernels: Kernels::load(&context()).unwrap(),
        }
    }

    fn buffer(&self, values: &[f32]) -> Buffer<f32> {
        Buffer::from_host(&self.stream, values).unwrap()
    }

    /// A buffer of what no kernel leaves.
    fn unwritten(&self, count: usize) -> Buffer<f32> {
        self.buffer(&vec![f32::NAN; count])
    }

    #[track_caller]
    fn run(&self, op: Result<KernelOp>) {
        let mut eager = Eager::new(&self.stream).unwrap();
        eager.record(op.unwrap()).unwrap();
    }

    fn read(&self, buffer: &Buffer<f32>) -> Vec<f32> {
        buffer.to_host(&self.stream).unwrap()
    }
}

#[test]
fn a_token_and_its_position_are_embedded() {
    let bench = Bench::new();
    let (width, context) = (300, 5);
    let (tokens, table) = (values(VOCABULARY * width, 1), values(context * width, 2));
    let (on_device, positions) = (bench.buffer(&tokens), bench.buffer(&table));
    // A word that is no token counts as the last.
    for (word, token) in [(0, 0), (77, 77), (255, 255), (256, 255), (u32::MAX, 255)] {
        let (word, x) = (words(&bench.stream, &[word]), bench.unwritten(width));
        bench.run(bench.kernels.embed(&word, &on_device, &positions, &x, 4));
        let expected = reference::embed(&tokens, &table, width, token, 4);
        assert_close(&bench.read(&x), &expected);
    }
}

#[test]
fn a_vector_is_normalized() {
    let bench = Bench::new();
    for width in [1, 24, 256, 700] {
        let (x, gain) = (values(width, 1), values(width, 2));
        let out = bench.unwritten(width);
        let op = (bench.kernels).normalize(&bench.buffer(&x), &bench.buffer(&gain), &out);
        bench.run(op);
        assert_close(&bench.read(&out), &reference::normalize(&wide(&x), &gain));
    }
}

#[test]
fn a_product_is_stored_added_or_activated() {
    let bench = Bench::new();
    for (rows, columns) in [(1, 1), (37, 21), (32, 16), (70, 300)] {
        let (weights, x, before) = (
            values(rows * columns, 1),
            values(columns, 2),
            values(rows, 3),
        );
        let product = reference::multiply(&weights, &wide(&x));
        let (weights, x) = (bench.buffer(&weights), bench.buffer(&x));
        for then in [Then::Store, Then::Add, Then::Activate] {
            let out = bench.buffer(&before);
            bench.run(bench.kernels.multiply(&weights, &x, &out, then));
            let pairs = product.iter().zip(&before);
            let expected = pairs.map(|(&product, &before)| match then {
                Then::Store => product,
                Then::Add => f64::from(before) + product,
                Then::Activate => reference::silu(product),
            });
            assert_close(&bench.read(&out), &expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_query_attends_to_all_positions_so_far() {
    let bench = Bench::new();
    let context = 300;
    for (heads, width) in [(3, 24), (2, 512), (4, 4)] {
        let buffers = [(); 2].map(|()| bench.unwritten(context * width));
        let [keys, cached] = &buffers;
        let (mut all_keys, mut all_values) = (Vec::new(), Vec::new());
        for pos in 0..context {
            let qkv = values(3 * width, pos as u32);
            let parts = wide(&qkv);
            all_keys.push(parts[width..2 * width].to_vec());
            all_values.push(parts[2 * width..].to_vec());
            let (qkv, pos_number) = (bench.buffer(&qkv), pos as u32);
            bench.run(bench.kernels.cache(&qkv, keys, cached, pos_number));
            // Some of them: before and after the cache has more positions than a block threads.
            if ![0, 1, 20, 255, 256, 299].contains(&pos) {
                continue;
            }
            let out = bench.unwritten(width);
            let op = (bench.kernels).attend(&qkv, keys, cached, &out, heads, pos_number);
            bench.run(op);
            let expected = reference::attend(&parts[..width], &all_keys, &all_values, heads);
            assert_close(&bench.read(&out), &expected);
        }
    }
}

#[test]
fn large_scores_do_not_overflow() {
    let bench = Bench::new();
    let (width, context) = (8, 2);
    let (keys, cached, out) = (
        bench.unwritten(context * width),
        bench.unwritten(context * width),
        bench.unwritten(width),
    );
    for pos in 0..context {
        // The second position's scores are larger by far, so its value is all that counts.
        let qkv: Vec<f32> = (0..3 * width)
            .map(|i| match i / width {
                2 => i as f32 + pos as f32,
                _ => 100.0 * (pos + 1) as f32,
            })
            .collect();
        let qkv = bench.buffer(&qkv);
        bench.run(bench.kernels.cache(&qkv, &keys, &cached, pos as u32));
        let op = (bench.kernels).attend(&qkv, &keys, &cached, &out, 1, pos as u32);
        bench.run(op);
    }
    let expected: Vec<f64> = (0..width).map(|i| (2 * width + i + 1) as f64).collect();
    assert_close(&bench.read(&out), &expected);
}

#[test]
fn the_largest_logit_is_chosen_and_the_first_of_several() {
    let bench = Bench::new();
    let mut cases: Vec<Vec<f32>> = (0..4).map(|salt| values(VOCABULARY, salt)).collect();
    cases.push(vec![1.5; VOCABULARY]);
    cases.push((0..VOCABULARY).map(|i| -1.0 - i as f32).collect());
    cases.push((0..VOCABULARY).map(|i| i as f32 - 1000.0).collect());
    let tied = [9, 200].map(|at| at as usize);
    let tie = |i: usize| if tied.contains(&i) { 0.25 } else { -0.5 };
    cases.push((0..VOCABULARY).map(tie).collect());
    for logits in cases {
        let next = words(&bench.stream, &[u32::MAX]);
        bench.run(bench.kernels.choose(&bench.buffer(&logits), &next));
        let next = next.to_host(&bench.stream).unwrap();
        assert_eq!(next, [reference::choose(&logits)]);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let bench = Bench::new();
    let kernels = &bench.kernels;
    let [two, four, five, many] = [2, 4, 5, 2 * VOCABULARY].map(|count| bench.unwritten(count));
    let (word, none) = (
        words(&bench.stream, &[0]),
        words(&bench.stream, &[0]).slice(1..).unwrap(),
    );
    let mismatches = [
        kernels.embed(&none, &many, &four, &two, 1),
        kernels.embed(&word, &four, &four, &two, 1),
        kernels.embed(&word, &many, &five, &two, 1),
        kernels.normalize(&two, &two, &four),
        kernels.normalize(&two, &four, &two),
        kernels.multiply(&five, &two, &two, Then::Store),
        kernels.cache(&four, &two, &two, 0),
        kernels.cache(&bench.unwritten(6), &four, &two, 0),
        kernels.attend(&four, &four, &four, &two, 1, 0),
        kernels.choose(&four, &word),
        kernels.choose(&bench.unwritten(VOCABULARY), &none),
    ];
    for (at, refused) in mismatches.into_iter().enumerate() {
        let refused = refused.map(drop);
        assert!(
            matches!(refused, Err(Error::SizeMismatch { .. })),
            "case {at}: {refused:?}"
        );
    }
    let qkv = bench.unwritten(6);
    for refused in [
        kernels.embed(&word, &many, &four, &two, 2),
        kernels.cache(&qkv, &four, &four, 2),
        kernels.attend(&qkv, &four, &four, &two, 1, u32::MAX),
    ] {
        let refused = refused.map(drop);
        assert!(
            matches!(refused, Err(Error::OutOfRange { len: 2, .. })),
            "{refused:?}"
        );
    }
}
