//! `tiles.cu`: products in tiles, with operands on their way while others are multiplied.
//!
//! Each runs twice: on small integers, so that the host's sums are exact, and on any values, of
//! which the record tells.

use half::f16;

use super::case::{Buffer, Case, Element, Ptx, Shape, Tensor, args};
use super::input::Inputs;

const PTX: Ptx = super::ptx!("tiles");

super::cases! { staged_halves, staged_bytes, cluster_halves, packed_small }

/// Rows of the result, its columns, and the terms of each sum.
#[derive(Clone, Copy)]
struct Sizes {
    m: usize,
    n: usize,
    k: usize,
}

impl Sizes {
    /// The product of a matrix by rows and one whose element is at `of_b(k, column)`.
    fn product(self, a: &[f64], b: &[f64], of_b: impl Fn(usize, usize) -> usize) -> Vec<f64> {
        let Sizes { m, n, k } = self;
        let sum = |row: usize, column: usize| -> f64 {
            (0..k)
                .map(|term| a[row * k + term] * b[of_b(term, column)])
                .sum()
        };
        (0..m * n).map(|at| sum(at / n, at % n)).collect()
    }
}

fn each<F: Copy, T>(values: &[F], turn: impl Fn(F) -> T) -> Vec<T> {
    values.iter().map(|value| turn(*value)).collect()
}

/// Both runs on halves, both matrices by rows.
fn halves(
    name: &'static str,
    sizes: Sizes,
    launch: impl Fn(&mut Case, Buffer, Buffer, Buffer),
) -> Case {
    let Sizes { m, n, k } = sizes;
    let (mut case, mut inputs) = (Case::new(name, PTX), Inputs::new(name));
    for exact in [true, false] {
        let mut make = |count| match exact {
            true => inputs.make(count, |s| s.below(17) as f64 - 8.0),
            false => inputs.make(count, |s| s.between(-2.0, 2.0)),
        };
        let (a, b) = (make(m * k), make(k * n));
        let of_a = case.input(&each(&a, f16::from_f64));
        let of_b = case.input(&each(&b, f16::from_f64));
        let out = case.output::<f32>(m * n);
        case.columns(out, n);
        if exact {
            let sums = sizes.product(&a, &b, |term, column| term * n + column);
            case.expect(out, &each(&sums, |sum| sum as f32));
        }
        launch(&mut case, of_a, of_b, out);
    }
    case
}

/// Blocks that make up a side.
fn blocks(length: usize, side: usize) -> u32 {
    length.div_ceil(side) as u32
}

fn staged_halves(name: &'static str) -> Case {
    let sizes = Sizes {
        m: 150,
        n: 88,
        k: 200,
    };
    let Sizes { m, n, k } = sizes;
    halves(name, sizes, |case, a, b, out| {
        let grid = (blocks(n, 64), blocks(m, 128));
        case.launch(
            name,
            grid,
            128,
            args![a, b, out, m as i32, n as i32, k as i32],
        );
    })
}

fn staged_bytes(name: &'static str) -> Case {
    let sizes = Sizes {
        m: 150,
        n: 75,
        k: 336,
    };
    let Sizes { m, n, k } = sizes;
    let (mut case, mut inputs) = (Case::new(name, PTX), Inputs::new(name));
    let a = inputs.make(m * k, |s| s.next() as i8);
    let b = inputs.make(n * k, |s| s.next() as i8);
    let sums = sizes.product(
        &each(&a, f64::from),
        &each(&b, f64::from),
        |term, column| column * k + term,
    );
    let [of_a, of_b] = [case.input(&a), case.input(&b)];
    let out = case.output::<i32>(m * n);
    case.columns(out, n);
    case.expect(out, &each(&sums, |sum| sum as i32));
    let grid = (blocks(n, 64), blocks(m, 128));
    case.launch(
        name,
        grid,
        128,
        args![of_a, of_b, out, m as i32, n as i32, k as i32],
    );
    case
}

/// A matrix of halves by rows, and boxes of it as wide as a line that is swizzled.
fn boxes(buffer: Buffer, rows: usize, columns: usize) -> Tensor {
    Tensor {
        buffer,
        data: 6,
        dims: vec![columns as u64, rows as u64],
        strides: vec![2 * columns as u64],
        steps: vec![1; 2],
        interleave: 0,
        swizzle: 3,
        fill: 0,
        shape: Shape::Tile(vec![64; 2]),
    }
}

fn cluster_halves(name: &'static str) -> Case {
    let sizes = Sizes {
        m: 200,
        n: 200,
        k: 296,
    };
    let Sizes { m, n, k } = sizes;
    halves(name, sizes, |case, a, b, out| {
        let (a, b) = (boxes(a, m, k), boxes(b, k, n));
        // Two blocks are a cluster.
        let grid = (blocks(n, 128), 2 * blocks(m, 256));
        case.launch(
            name,
            grid,
            384,
            args![a, b, out, m as i32, n as i32, k as i32],
        )
        .shared(3 * 4 * 64 * 64 * 2);
    })
}

/// A float of 8 bits with so many bits of mantissa: its value, and its bits. Never an infinity.
fn float(bits: u8, mantissa: u32) -> f64 {
    let (exponent, fraction) = (
        (bits & 0x7f) >> mantissa,
        f64::from(bits & ((1 << mantissa) - 1)),
    );
    let (bias, one) = (1 << (6 - mantissa), f64::from(1 << mantissa));
    let magnitude = match exponent {
        0 => fraction / one * 2f64.powi(1 - (bias - 1)),
        _ => (1.0 + fraction / one) * 2f64.powi(i32::from(exponent) - (bias - 1)),
    };
    if bits & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// The matrix by parts of 64 lines and 64 elements: 16 bytes of each line in turn.
fn packed<T: Element>(
    lines: usize,
    length: usize,
    width: usize,
    at: impl Fn(usize) -> T,
) -> Vec<T> {
    let mut packed = vec![];
    for part in (0..lines).step_by(64) {
        for start in (0..length).step_by(width) {
            for line in part..part + 64 {
                packed.extend((start..start + width).map(|column| at(line * length + column)));
            }
        }
    }
    packed
}

fn packed_small(name: &'static str) -> Case {
    let sizes = Sizes {
        m: 128,
        n: 192,
        k: 384,
    };
    let Sizes { m, n, k } = sizes;
    let (mut case, mut inputs) = (Case::new(name, PTX), Inputs::new(name));
    for exact in [true, false] {
        // Small integers, or powers from 2^-6 to 2^3.
        let mut make = |count, mantissa: u32| -> Vec<u8> {
            let least = (1 << (6 - mantissa)) - 7;
            let integers: Vec<u8> = (0..0x80)
                .filter(|bits| [0.0, 1.0, 2.0, 3.0].contains(&float(*bits, mantissa)))
                .collect();
            inputs.make(count, |s| {
                let sign = (s.below(2) as u8) << 7;
                match exact {
                    true => sign | integers[s.below(integers.len() as u64) as usize],
                    false => sign | (s.below(10 << mantissa) as u8 + (least << mantissa)),
                }
            })
        };
        let (a, b) = (make(m * k, 3), make(n * k, 2));
        let of_a = case.input(&packed(m, k, 16, |at| a[at]));
        let of_b = case.input(&packed(n, k, 16, |at| b[at]));
        let out = case.output::<f16>(m * n);
        case.columns(out, 64);
        if exact {
            let [a, b] = [(a, 3), (b, 2)].map(|(of, mantissa)| each(&of, |x| float(x, mantissa)));
            let sums = sizes.product(&a, &b, |term, column| column * k + term);
            case.expect(out, &packed(m, n, 64, |at| f16::from_f64(sums[at])));
        }
        let grid = (blocks(n, 64), blocks(m, 64));
        case.launch(name, grid, 160, args![of_a, of_b, out, (k / 64) as i32]);
    }
    case
}
