//! `tensor_map.cu`: boxes that go to tensors.

use super::case::{Buffer, Case, Element, Tensor, args, structure};
use super::tensor_maps::{TENSOR_MAP, bytes, images, place, rows, tensor};

super::cases! {
    stores, stores_beyond_the_edge, stores_swizzled, stores_with_steps, stores_of_all_ranks,
    stores_of_singles, column_stores, column_stores_with_steps, column_stores_past_the_last,
    reductions_of_integers, reductions_of_signed_integers, reductions_of_long_integers,
    reductions_of_halves, reductions_of_singles, reductions_beyond_the_edge, reductions_in_columns,
}

/// A tensor of words that a generator gives.
fn random<T: Element>(case: &mut Case, count: usize, make: impl Fn(u64) -> T) -> Buffer {
    let values: Vec<T> = numbers(count, 1).map(make).collect();
    case.inout(&values)
}

/// Numbers that nothing is in common to.
fn numbers(count: usize, seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    (0..count).map(move |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

/// A tensor of words of 16 bits.
fn words(name: &'static str, count: usize) -> (Case, Buffer) {
    let mut case = Case::new(name, TENSOR_MAP);
    let tensor = random(&mut case, count, |number| number as u16);
    (case, tensor)
}

/// Runs a kernel that sends a box of these elements to the tensor.
fn send<T: Element>(
    case: &mut Case,
    kernel: &'static str,
    tensor: Tensor,
    at: &[i32],
    make: impl Fn(u64) -> T,
) {
    let (rows, _) = rows(&tensor, at, &[]);
    let pitch = match tensor.swizzle {
        0 => bytes(&tensor) as usize / rows.len(),
        swizzle => 16 << swizzle,
    };
    let span = (pitch * rows.len()).next_multiple_of(128);
    let count = span / T::KIND.size();
    let values: Vec<T> = numbers(count, 2 + at[0] as u64).map(make).collect();
    let input = case.input(&values);
    let place = structure(place(at, &[], 0, 0, span as u32));
    case.launch(kernel, 1, 64, args![tensor, place, input])
        .shared(16 << 10);
}

fn store(case: &mut Case, tensor: Tensor, at: &[i32]) {
    let kernel = ["1d", "2d", "3d", "4d", "5d"][at.len() - 1];
    let kernel: &'static str = format!("store_{kernel}").leak();
    send(case, kernel, tensor, at, |number| number as u16);
}

const U16: u32 = 1;

fn stores(name: &'static str) -> Case {
    let (mut case, output) = words(name, 8192);
    store(&mut case, tensor(output, U16, &[64, 20], &[32, 8]), &[8, 2]);
    store(&mut case, tensor(output, 0, &[64, 40], &[16, 8]), &[16, 32]);
    store(&mut case, tensor(output, 8, &[16, 40], &[4, 8]), &[6, 28]);
    case
}

fn stores_beyond_the_edge(name: &'static str) -> Case {
    let (mut case, output) = words(name, 8192);
    for at in [[40, 15], [64, 0], [0, 20], [48, 19], [24, 18]] {
        store(&mut case, tensor(output, U16, &[56, 20], &[32, 8]), &at);
    }
    case
}

fn stores_swizzled(name: &'static str) -> Case {
    let (mut case, output) = words(name, 16384);
    for (swizzle, row, at) in [
        (1, 16, 0),
        (2, 32, 20),
        (3, 64, 40),
        (3, 24, 60),
        (1, 8, 80),
    ] {
        let tensor = Tensor {
            swizzle,
            ..tensor(output, U16, &[64, 100], &[row, 20])
        };
        store(&mut case, tensor, &[0, at]);
    }
    let deep = Tensor {
        swizzle: 2,
        ..tensor(output, U16, &[32, 5, 4, 3], &[32, 3, 2, 2])
    };
    store(&mut case, deep, &[0, 3, 1, 1]);
    case
}

fn stores_with_steps(name: &'static str) -> Case {
    let (mut case, output) = words(name, 8192);
    for (steps, at) in [
        ([1, 2], [8, 1]),
        ([1, 3], [24, 46]),
        ([2, 1], [32, 1]),
        ([1, 8], [0, 40]),
    ] {
        let tensor = Tensor {
            steps: steps.to_vec(),
            ..tensor(output, U16, &[64, 50], &[16, 8])
        };
        store(&mut case, tensor, &at);
    }
    let deep = Tensor {
        steps: vec![1, 2, 3],
        ..tensor(output, U16, &[32, 7, 25], &[8, 4, 4])
    };
    store(&mut case, deep, &[8, 1, 20]);
    case
}

fn stores_of_all_ranks(name: &'static str) -> Case {
    let (mut case, output) = words(name, 8192);
    store(&mut case, tensor(output, U16, &[100], &[64]), &[56]);
    let three = tensor(output, U16, &[32, 7, 5], &[8, 3, 2]);
    store(&mut case, three, &[8, 5, 4]);
    let four = tensor(output, U16, &[16, 5, 4, 3], &[8, 2, 2, 2]);
    store(&mut case, four, &[8, 4, 3, 2]);
    let five = tensor(output, U16, &[16, 5, 4, 3, 2], &[8, 2, 2, 2, 2]);
    store(&mut case, five, &[8, 1, 1, 1, 1]);
    case
}

/// What loads would change goes to the tensor as it is.
fn stores_of_singles(name: &'static str) -> Case {
    let mut case = Case::new(name, TENSOR_MAP);
    for data in [7, 10, 11, 12] {
        let output = random(&mut case, 640, |number| number as u32);
        let tensor = tensor(output, data, &[32, 20], &[32, 8]);
        send(&mut case, "store_2d", tensor, &[0, 2], subnormal);
    }
    case
}

/// Bits of singles: subnormals, infinities, what is no number, and numbers.
fn subnormal(number: u64) -> u32 {
    let bits = number as u32;
    match number >> 32 & 7 {
        0 => bits & 0x807f_ffff,
        1 => bits & 0x8000_0000,
        2 => bits & 0x8000_0000 | 0x7f80_0000,
        3 => bits | 0x7fc0_0000,
        _ => bits,
    }
}

fn columns(case: &mut Case, tensor: Tensor, at: &[i32]) {
    let kernel = ["3d", "4d", "5d"][at.len() - 3];
    let kernel: &'static str = format!("store_columns_{kernel}").leak();
    send(case, kernel, tensor, at, |number| number as u16);
}

fn column_stores(name: &'static str) -> Case {
    let (mut case, output) = words(name, 16384);
    let line = |lower, upper| images(output, &[16, 9, 30], &[lower], &[upper], 16, 12);
    columns(&mut case, line(0, 0), &[0, 0, 0]);
    columns(&mut case, line(0, -2), &[0, 3, 10]);
    columns(&mut case, line(2, -1), &[0, 2, 20]);
    let flat = |lower: &[i32], upper: &[i32]| images(output, &[32, 6, 5, 16], lower, upper, 16, 40);
    columns(&mut case, flat(&[0, 0], &[0, 0]), &[16, 2, 1, 8]);
    columns(&mut case, flat(&[1, 0], &[-1, -2]), &[0, 1, 2, 11]);
    let swizzled = Tensor {
        swizzle: 2,
        ..images(output, &[32, 6, 5, 16], &[0, 0], &[0, 0], 32, 20)
    };
    columns(&mut case, swizzled, &[0, 0, 0, 0]);
    let deep = images(output, &[16, 4, 3, 3, 28], &[0, 0, 1], &[0, -1, 0], 16, 30);
    columns(&mut case, deep, &[0, 1, 0, 1, 26]);
    case
}

fn column_stores_with_steps(name: &'static str) -> Case {
    let (mut case, output) = words(name, 8192);
    let flat = Tensor {
        steps: vec![1, 2, 3, 1],
        ..images(output, &[16, 6, 5, 8], &[0, 0], &[0, 0], 16, 20)
    };
    columns(&mut case, flat, &[0, 0, 0, 0]);
    case
}

fn column_stores_past_the_last(name: &'static str) -> Case {
    let (mut case, output) = words(name, 8192);
    let flat = images(output, &[16, 6, 5, 2], &[0, 0], &[0, 0], 16, 40);
    columns(&mut case, flat, &[0, 0, 3, 1]);
    case
}

const ARITHMETIC: [&str; 3] = ["add", "min", "max"];
const BITS: [&str; 3] = ["and", "or", "xor"];

/// Each reduction of elements of a type.
fn reductions<T: Element>(case: &mut Case, data: u32, names: &[&str], make: impl Fn(u64) -> T) {
    for name in names {
        let output = random(case, 32 * 20, &make);
        let kernel: &'static str = format!("reduce_{name}").leak();
        let tensor = tensor(output, data, &[32, 20], &[16, 8]);
        send(case, kernel, tensor, &[16, 2], &make);
    }
}

fn reductions_of_integers(name: &'static str) -> Case {
    let mut case = Case::new(name, TENSOR_MAP);
    for names in [&ARITHMETIC[..], &BITS, &["inc", "dec"]] {
        reductions(&mut case, 2, names, |number| number as u32);
    }
    // Numbers that are alike.
    reductions(&mut case, 2, &["inc", "dec"], |number| number as u32 & 3);
    case
}

fn reductions_of_signed_integers(name: &'static str) -> Case {
    let mut case = Case::new(name, TENSOR_MAP);
    for names in [&ARITHMETIC, &BITS] {
        reductions(&mut case, 3, names, |number| number as u32);
    }
    reductions(&mut case, 5, &["min", "max"], |number| number);
    case
}

fn reductions_of_long_integers(name: &'static str) -> Case {
    let mut case = Case::new(name, TENSOR_MAP);
    for names in [&ARITHMETIC, &BITS] {
        reductions(&mut case, 4, names, |number| number);
    }
    case
}

fn reductions_of_halves(name: &'static str) -> Case {
    let mut case = Case::new(name, TENSOR_MAP);
    for data in [6, 9] {
        reductions(&mut case, data, &ARITHMETIC, |number| number as u16);
        // Of little difference.
        reductions(&mut case, data, &["add"], |number| {
            number as u16 & 0x83ff | 0x3c00
        });
    }
    case
}

fn reductions_of_singles(name: &'static str) -> Case {
    let mut case = Case::new(name, TENSOR_MAP);
    for data in [7, 10, 11, 12] {
        reductions(&mut case, data, &["add"], subnormal);
        reductions(&mut case, data, &["add"], |number| {
            number as u32 & 0x81ff_ffff | 0x3c00_0000
        });
    }
    reductions(&mut case, 8, &["add"], |number| {
        f64::from_bits(number & !(3 << 61) | 3 << 60)
    });
    case
}

fn reductions_beyond_the_edge(name: &'static str) -> Case {
    let mut case = Case::new(name, TENSOR_MAP);
    let output = random(&mut case, 2048, |number| number as u32);
    for at in [[40, 15], [64, 0], [0, 20], [48, 19]] {
        let tensor = tensor(output, 2, &[56, 20], &[32, 8]);
        send(&mut case, "reduce_add", tensor, &at, |number| number as u32);
    }
    let tensor = Tensor {
        swizzle: 3,
        steps: vec![1, 2],
        ..tensor(output, 2, &[56, 20], &[32, 8])
    };
    send(&mut case, "reduce_xor", tensor, &[8, 3], |number| {
        number as u32
    });
    case
}

fn reductions_in_columns(name: &'static str) -> Case {
    let mut case = Case::new(name, TENSOR_MAP);
    let output = random(&mut case, 2048, |number| number as u32);
    let flat = Tensor {
        data: 2,
        strides: vec![64, 384, 1920],
        ..images(output, &[16, 6, 5, 2], &[0, 0], &[0, -1], 16, 20)
    };
    send(&mut case, "reduce_columns", flat, &[0, 2, 1, 0], |number| {
        number as u32
    });
    case
}
