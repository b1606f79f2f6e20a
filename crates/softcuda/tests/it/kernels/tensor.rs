//! `tensor.cu`: matrices between shared memory and registers, `wmma`, a tiled product of halves,
//! attention.

use half::{bf16, f16};

use super::case::{Buffer, Case, Element, Ptx, absolute, args};
use super::input::Inputs;

const PTX: Ptx = super::ptx!("tensor");

super::cases! {
    load_matrices, store_matrices, wmma_halves, wmma_singles, wmma_bfloats, wmma_bytes,
    wmma_doubles, wmma_tf32, gemm_halves, flash_attention, flash_attention_causal,
}

fn words(inputs: &mut Inputs, count: usize) -> Vec<u32> {
    inputs.make(count, |s| s.next() as u32)
}

fn load_matrices(name: &'static str) -> Case {
    let mut case = Case::new(name, PTX);
    let rows = words(&mut Inputs::new(name), 3 * 64 * 4);
    let (input, output) = (case.input(&rows), case.output::<u32>(3 * 64 * 14));
    case.columns(output, 14);
    let mut expected = vec![];
    for rows in rows.chunks(32 * 4) {
        let part = |row: usize, column: usize| {
            rows[4 * (row % 32) + column / 2] >> (16 * (column % 2)) & 0xffff
        };
        for lane in 0..32 {
            let (row, pair) = (lane / 4, 2 * (lane % 4));
            let straight = |matrix: usize| {
                let own = (8 * matrix + row) * 5 + 3;
                part(own, pair) | part(own, pair + 1) << 16
            };
            let turned = |matrix: usize, factor: usize, start: usize| {
                let own = |row: usize| (8 * matrix + row) * factor + start;
                part(own(pair), row) | part(own(pair + 1), row) << 16
            };
            expected.push(straight(0));
            expected.extend((0..2).map(straight));
            expected.extend((0..4).map(straight));
            expected.extend((0..2).map(|matrix| turned(matrix, 5, 3)));
            expected.extend((0..4).map(|matrix| turned(matrix, 5, 3)));
            expected.push(turned(0, 3, 1));
        }
    }
    case.expect(output, &expected);
    case.launch(name, 3, 64, args![input, output]);
    case
}

fn store_matrices(name: &'static str) -> Case {
    let blocks = 3;
    let mut case = Case::new(name, PTX);
    let values = words(&mut Inputs::new(name), blocks * 32 * 4);
    let input = case.input(&values);
    let output = case.output::<u32>(blocks * (4 * 32 * 4 + 32));
    case.launch(name, blocks as u32, 32, args![input, output]);
    case
}

/// The buffers of the kernels that multiply in all layouts.
fn matrices<F: Element, G: Element, S: Element>(
    case: &mut Case,
    [a, b]: [Vec<F>; 2],
    other: impl Fn(F) -> G,
    sums: Vec<S>,
    results: usize,
) -> [Buffer; 4] {
    let b: Vec<G> = b.into_iter().map(other).collect();
    let d = vec![sums[0]; results * LINES];
    [
        case.input(&a),
        case.input(&b),
        case.input(&sums),
        case.inout(&d),
    ]
}

/// Elements of a matrix, with those between its lines.
const LINES: usize = 48 * 48;

fn launch(mut case: Case, name: &'static str, buffers: [Buffer; 4]) -> Case {
    let [a, b, c, d] = buffers;
    case.launch(name, 1, 32, args![a, b, c, d]);
    case
}

fn wmma_halves(name: &'static str) -> Case {
    let (mut case, mut inputs) = (Case::new(name, PTX), Inputs::new(name));
    let factors = [inputs.f16s(LINES), inputs.f16s(LINES)];
    let sums = inputs.f16s(LINES);
    let buffers = matrices(&mut case, factors, |x| x, sums, 12);
    launch(case, name, buffers)
}

fn wmma_singles(name: &'static str) -> Case {
    let (mut case, mut inputs) = (Case::new(name, PTX), Inputs::new(name));
    let factors = [inputs.f16s(LINES), inputs.f16s(LINES)];
    let sums = inputs.f32s(LINES);
    let buffers = matrices(&mut case, factors, |x| x, sums, 12);
    launch(case, name, buffers)
}

fn wmma_bfloats(name: &'static str) -> Case {
    let (mut case, mut inputs) = (Case::new(name, PTX), Inputs::new(name));
    let factors = [inputs.bf16s(LINES), inputs.bf16s(LINES)];
    let sums = inputs.f32s(LINES);
    let buffers = matrices(&mut case, factors, |x: bf16| x, sums, 12);
    launch(case, name, buffers)
}

fn wmma_bytes(name: &'static str) -> Case {
    let (mut case, mut inputs) = (Case::new(name, PTX), Inputs::new(name));
    let factors = [(); 2].map(|()| inputs.make(LINES, |s| s.next() as i8));
    let sums = inputs.make(LINES, |s| s.next() as i32);
    let buffers = matrices(&mut case, factors, |x| x as u8, sums, 12);
    launch(case, name, buffers)
}

fn wmma_doubles(name: &'static str) -> Case {
    let (mut case, mut inputs) = (Case::new(name, PTX), Inputs::new(name));
    let factors = [inputs.f64s(LINES), inputs.f64s(LINES)];
    let sums = inputs.f64s(LINES);
    let buffers = matrices(&mut case, factors, |x| x, sums, 4);
    launch(case, name, buffers)
}

fn wmma_tf32(name: &'static str) -> Case {
    let (mut case, mut inputs) = (Case::new(name, PTX), Inputs::new(name));
    let factors = [inputs.f32s(LINES), inputs.f32s(LINES)];
    let sums = inputs.f32s(LINES);
    let buffers = matrices(&mut case, factors, |x| x, sums, 1);
    launch(case, name, buffers)
}

/// Small integers, so that the host's sums are exact, and any halves, of which the record tells.
fn gemm_halves(name: &'static str) -> Case {
    const M: usize = 128;
    const N: usize = 192;
    const K: usize = 160;
    let (mut case, mut inputs) = (Case::new(name, PTX), Inputs::new(name));
    for exact in [true, false] {
        let one = |s: &mut Inputs| match exact {
            true => s.below(17) as f64 - 8.0,
            false => s.between(-2.0, 2.0),
        };
        let a = inputs.make(M * K, |s| f16::from_f64(one(s)));
        let b = inputs.make(K * N, |s| f16::from_f64(one(s)));
        let (of_a, of_b) = (case.input(&a), case.input(&b));
        let out = case.output::<f32>(M * N);
        case.columns(out, N);
        if exact {
            let sum = |row: usize, column: usize| -> f32 {
                let terms = (0..K).map(|k| a[row * K + k].to_f32() * b[k * N + column].to_f32());
                terms.sum()
            };
            let expected: Vec<f32> = (0..M * N).map(|at| sum(at / N, at % N)).collect();
            case.expect(out, &expected);
        }
        let grid = (N as u32 / 64, M as u32 / 64);
        case.launch(name, grid, 128, args![of_a, of_b, out, N as i32, K as i32]);
    }
    case
}

fn flash_attention(name: &'static str) -> Case {
    attention(name, false)
}

fn flash_attention_causal(name: &'static str) -> Case {
    attention(name, true)
}

fn attention(name: &'static str, causal: bool) -> Case {
    const LENGTH: usize = 128;
    const HEADS: usize = 1;
    const HEAD: usize = 64;
    let (mut case, mut inputs) = (Case::new(name, PTX), Inputs::new(name));
    let count = HEADS * LENGTH * HEAD;
    let [q, k, v] = [(); 3].map(|()| inputs.make(count, |s| f16::from_f64(s.between(-2.0, 2.0))));
    let scale = 0.125f32;
    let mut expected = vec![0f32; count];
    for head in 0..HEADS {
        let row = |of: &[f16], at: usize| -> Vec<f64> {
            let start = (head * LENGTH + at) * HEAD;
            of[start..start + HEAD].iter().map(|x| x.to_f64()).collect()
        };
        for at in 0..LENGTH {
            let own = row(&q, at);
            let end = if causal { at + 1 } else { LENGTH };
            let scores: Vec<f64> = (0..end)
                .map(|other| {
                    let dot: f64 = own.iter().zip(row(&k, other)).map(|(x, y)| x * y).sum();
                    dot * f64::from(scale)
                })
                .collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let total: f64 = weights.iter().sum();
            for (other, weight) in weights.iter().enumerate() {
                let start = (head * LENGTH + at) * HEAD;
                for (sum, value) in expected[start..].iter_mut().zip(row(&v, other)) {
                    *sum += (weight / total * value) as f32;
                }
            }
        }
    }
    let inputs = [case.input(&q), case.input(&k), case.input(&v)];
    let out = case.output::<f32>(count);
    case.expect(out, &expected);
    // Weights are rounded to halves before they are multiplied.
    case.near(out, &[absolute(2e-3)]);
    let grid = (LENGTH as u32 / 64, HEADS as u32);
    let [q, k, v] = inputs;
    let args = args![q, k, v, out, LENGTH as i32, scale, i32::from(causal)];
    case.launch("flash_attention", grid, 128, args);
    case
}
