//! `tensor_map.cu`: boxes of tensors.

use super::case::{Buffer, Case, Ptx, Shape, Tensor, args, structure};

pub(super) const TENSOR_MAP: Ptx = super::ptx!("tensor_map");

super::cases! {
    tile_boxes, tiles_beyond_the_edge, tiles_filled_with_nan, tiles_swizzled, tiles_swizzled_narrow,
    tiles_with_steps, tiles_of_all_ranks, tiles_of_subnormals, columns, columns_with_steps,
    columns_swizzled, columns_past_the_last, columns_filled_with_nan,
}

const U8: u32 = 0;
const U16: u32 = 1;
const F16: u32 = 6;
const F32: u32 = 7;
const F64: u32 = 8;
const F32_FTZ: u32 = 10;

pub(super) fn size(data: u32) -> u32 {
    [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4][data as usize]
}

/// A tensor at the beginning of a buffer, without gaps, and a box of it.
pub(super) fn tensor(buffer: Buffer, data: u32, dims: &[u64], tile: &[u32]) -> Tensor {
    let rows = dims.iter().scan(u64::from(size(data)), |bytes, dim| {
        *bytes *= dim;
        Some(*bytes)
    });
    Tensor {
        buffer,
        data,
        dims: dims.to_vec(),
        strides: rows.take(dims.len() - 1).collect(),
        steps: vec![1; dims.len()],
        interleave: 0,
        swizzle: 0,
        fill: 0,
        shape: Shape::Tile(tile.to_vec()),
    }
}

/// The same with columns of pixels.
pub(super) fn images(
    buffer: Buffer,
    dims: &[u64],
    lower: &[i32],
    upper: &[i32],
    channels: u32,
    pixels: u32,
) -> Tensor {
    Tensor {
        shape: Shape::Columns {
            lower: lower.to_vec(),
            upper: upper.to_vec(),
            channels,
            pixels,
        },
        ..tensor(buffer, U16, dims, &[])
    }
}

/// The bytes of a box.
pub(super) fn bytes(tensor: &Tensor) -> u32 {
    let elements: u32 = match &tensor.shape {
        Shape::Tile(tile) => {
            let steps = tensor.steps.iter().enumerate();
            let taken = steps.map(|(at, step)| match at {
                0 => tile[0],
                _ => tile[at].div_ceil(*step),
            });
            taken.product()
        }
        Shape::Columns {
            channels, pixels, ..
        } => channels * pixels,
    };
    elements * size(tensor.data)
}

/// A box as the kernels take it.
pub(super) fn place(at: &[i32], offsets: &[u16], shared: u32, bytes: u32, span: u32) -> Vec<u8> {
    let mut place = vec![];
    for dimension in 0..5 {
        let at = at.get(dimension).copied().unwrap_or(0);
        place.extend(at.to_le_bytes());
    }
    for dimension in 0..3 {
        let offset = offsets.get(dimension).copied().unwrap_or(0);
        place.extend(offset.to_le_bytes());
    }
    place.extend([0; 2]);
    for word in [shared, bytes, span] {
        place.extend(word.to_le_bytes());
    }
    place
}

pub(super) fn words(bytes: &[u8]) -> Vec<u16> {
    let words = bytes.chunks_exact(2);
    words
        .map(|word| u16::from_le_bytes([word[0], word[1]]))
        .collect()
}

/// A case whose input counts words of 16 bits.
pub(super) fn counting(name: &'static str) -> (Case, Buffer) {
    let mut case = Case::new(name, TENSOR_MAP);
    let values: Vec<u16> = (0..32768).collect();
    let input = case.input(&values);
    (case, input)
}

/// The coordinates of the first element of each row of a box, in the order of the rows, and how
/// many elements a row has.
pub(super) fn rows(tensor: &Tensor, at: &[i32], offsets: &[u16]) -> (Vec<Vec<i64>>, u32) {
    let mut place: Vec<i64> = at.iter().map(|at| i64::from(*at)).collect();
    match &tensor.shape {
        Shape::Tile(tile) => {
            let mut rows = vec![place];
            for dimension in 1..at.len() {
                let step = i64::from(tensor.steps[dimension]);
                let taken = i64::from(tile[dimension]).div_euclid(step)
                    + i64::from(i64::from(tile[dimension]) % step != 0);
                let moved = |n: i64, row: &Vec<i64>| {
                    let mut row = row.clone();
                    row[dimension] += n * step;
                    row
                };
                rows = (0..taken)
                    .flat_map(|n| {
                        rows.iter()
                            .map(move |row| moved(n, row))
                            .collect::<Vec<_>>()
                    })
                    .collect();
            }
            (rows, tile[0])
        }
        Shape::Columns {
            lower,
            upper,
            channels,
            pixels,
        } => {
            let mut rows = vec![];
            for _ in 0..*pixels {
                let mut row = place.clone();
                for (at, offset) in row[1..].iter_mut().zip(offsets) {
                    *at += i64::from(*offset);
                }
                rows.push(row);
                let mut dimension = 1;
                loop {
                    place[dimension] += i64::from(tensor.steps[dimension]);
                    if dimension == at.len() - 1 {
                        break;
                    }
                    let end = tensor.dims[dimension] as i64 + i64::from(upper[dimension - 1]);
                    if place[dimension] < end {
                        break;
                    }
                    place[dimension] = i64::from(lower[dimension - 1]);
                    dimension += 1;
                }
            }
            (rows, *channels)
        }
    }
}

/// What is in shared memory behind a copy of a box from `contents`.
pub(super) fn image(
    tensor: &Tensor,
    contents: &[u8],
    at: &[i32],
    offsets: &[u16],
    shared: usize,
    span: usize,
) -> Vec<u8> {
    let mut image = vec![0xee; span];
    let size = size(tensor.data) as usize;
    let (rows, count) = rows(tensor, at, offsets);
    let pitch = match tensor.swizzle {
        0 => count as usize * size,
        swizzle => 16 << swizzle,
    };
    for (number, row) in rows.iter().enumerate() {
        for element in 0..count as usize {
            let mut place = row.clone();
            place[0] += element as i64;
            let inside = place
                .iter()
                .zip(&tensor.dims)
                .all(|(at, dim)| (0..*dim as i64).contains(at));
            let from = || {
                let outer = place[1..].iter().zip(&tensor.strides);
                let outer: usize = outer
                    .map(|(at, stride)| *at as usize * *stride as usize)
                    .sum();
                place[0] as usize * size + outer
            };
            for byte in 0..size {
                let to = shared + number * pitch + element * size + byte;
                let lines = to >> 7 & ((1 << tensor.swizzle) - 1);
                image[to ^ lines << 4] = match inside {
                    true => contents[from() + byte],
                    // Halves are filled so.
                    false if tensor.fill != 0 => [0xf7, 0x7f][byte],
                    false => 0,
                };
            }
        }
    }
    image
}

/// Loads a box: what is in shared memory comes out, with some bytes behind the box.
fn load(case: &mut Case, tensor: Tensor, at: &[i32], offsets: &[u16], shared: u32) {
    let bytes = bytes(&tensor);
    let (rows, _) = rows(&tensor, at, offsets);
    let pitch = match tensor.swizzle {
        0 => bytes / rows.len() as u32,
        swizzle => 16 << swizzle,
    };
    let span = shared + (pitch * rows.len() as u32).next_multiple_of(128) + 64;
    let output = case.output::<u16>(span as usize / 2);
    let contents = case.contents(tensor.buffer);
    let image = image(
        &tensor,
        contents,
        at,
        offsets,
        shared as usize,
        span as usize,
    );
    case.expect(output, &words(&image));
    let kernel = match (&tensor.shape, at.len()) {
        (Shape::Tile(_), 1) => "tile_1d",
        (Shape::Tile(_), 2) => "tile_2d",
        (Shape::Tile(_), 3) => "tile_3d",
        (Shape::Tile(_), 4) => "tile_4d",
        (Shape::Tile(_), _) => "tile_5d",
        (_, 3) => "columns_3d",
        (_, 4) => "columns_4d",
        _ => "columns_5d",
    };
    let place = structure(place(at, offsets, shared, bytes, span));
    case.launch(kernel, 1, 64, args![tensor, place, output])
        .shared(16 << 10);
}

fn tile_boxes(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    load(
        &mut case,
        tensor(input, U16, &[64, 20], &[32, 8]),
        &[8, 2],
        &[],
        0,
    );
    load(
        &mut case,
        tensor(input, U8, &[64, 20], &[16, 8]),
        &[16, 2],
        &[],
        128,
    );
    load(
        &mut case,
        tensor(input, F64, &[16, 20], &[4, 8]),
        &[6, 2],
        &[],
        0,
    );
    case
}

fn tiles_beyond_the_edge(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    for at in [[-8, -2], [40, 15], [64, 0], [0, 20], [-32, 0], [0, -8]] {
        load(
            &mut case,
            tensor(input, U16, &[56, 20], &[32, 8]),
            &at,
            &[],
            0,
        );
    }
    case
}

fn tiles_filled_with_nan(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    let tensor = Tensor {
        fill: 1,
        ..tensor(input, F16, &[64, 20], &[16, 4])
    };
    load(&mut case, tensor, &[-8, -2], &[], 0);
    case
}

fn tiles_swizzled(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    for (swizzle, row, shared) in [
        (1, 16, 0),
        (2, 32, 0),
        (3, 64, 0),
        (3, 64, 128),
        (2, 32, 256),
    ] {
        let tensor = Tensor {
            swizzle,
            ..tensor(input, U16, &[64, 40], &[row, 20])
        };
        load(&mut case, tensor, &[0, 3], &[], shared);
    }
    let bytes = Tensor {
        swizzle: 3,
        ..tensor(input, U8, &[128, 40], &[128, 17])
    };
    load(&mut case, bytes, &[0, -2], &[], 0);
    let deep = Tensor {
        swizzle: 1,
        ..tensor(input, U16, &[16, 5, 4, 3], &[16, 3, 2, 2])
    };
    load(&mut case, deep, &[0, -1, 1, 1], &[], 0);
    case
}

/// Rows that are shorter than what is swizzled.
fn tiles_swizzled_narrow(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    for (swizzle, row) in [(3, 32), (3, 8), (2, 16), (1, 8), (3, 24)] {
        let tensor = Tensor {
            swizzle,
            ..tensor(input, U16, &[64, 40], &[row, 20])
        };
        load(&mut case, tensor, &[0, 0], &[], 0);
    }
    case
}

fn tiles_with_steps(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    for (steps, at) in [
        ([1, 2], [8, 1]),
        ([1, 3], [8, -2]),
        ([2, 1], [8, 1]),
        ([1, 8], [0, 0]),
    ] {
        let tensor = Tensor {
            steps: steps.to_vec(),
            ..tensor(input, U16, &[64, 20], &[32, 8])
        };
        load(&mut case, tensor, &at, &[], 0);
    }
    let deep = Tensor {
        steps: vec![1, 2, 3],
        ..tensor(input, U16, &[32, 7, 5], &[8, 4, 4])
    };
    load(&mut case, deep, &[8, 1, 0], &[], 0);
    case
}

fn tiles_of_all_ranks(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    load(&mut case, tensor(input, U16, &[100], &[64]), &[56], &[], 0);
    load(
        &mut case,
        tensor(input, U16, &[32, 7, 5], &[8, 3, 2]),
        &[8, 5, 4],
        &[],
        0,
    );
    load(
        &mut case,
        tensor(input, U16, &[16, 5, 4, 3], &[8, 2, 2, 2]),
        &[0, -1, 1, 1],
        &[],
        0,
    );
    let five = tensor(input, U16, &[16, 5, 4, 3, 2], &[8, 2, 2, 2, 2]);
    load(&mut case, five, &[8, 1, 1, 1, 1], &[], 0);
    case
}

/// Words with subnormals of both signs.
pub(super) fn singles(case: &mut Case) -> Buffer {
    let values: Vec<u32> = (0..640u32)
        .map(|at| match at % 5 {
            0 => at << 12,
            1 => 0x8000_0000 | at << 11,
            2 => 0x7f80_0000 | at << 13,
            _ => at.wrapping_mul(0x9e37_79b9),
        })
        .collect();
    case.input(&values)
}

fn tiles_of_subnormals(name: &'static str) -> Case {
    let mut case = Case::new(name, TENSOR_MAP);
    let input = singles(&mut case);
    load(
        &mut case,
        tensor(input, F32_FTZ, &[32, 20], &[32, 8]),
        &[0, 2],
        &[],
        0,
    );
    load(
        &mut case,
        tensor(input, F32, &[32, 20], &[32, 8]),
        &[0, 2],
        &[],
        0,
    );
    case
}

fn columns(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    load(
        &mut case,
        images(input, &[16, 9, 3], &[0], &[0], 16, 12),
        &[0, 0, 0],
        &[0],
        0,
    );
    load(
        &mut case,
        images(input, &[16, 9, 3], &[-1], &[-1], 16, 20),
        &[0, -1, 0],
        &[2],
        0,
    );
    load(
        &mut case,
        images(input, &[32, 9, 3], &[0], &[-2], 16, 12),
        &[16, 3, 0],
        &[1],
        0,
    );
    let flat = |lower: &[i32], upper: &[i32]| images(input, &[16, 6, 5, 2], lower, upper, 16, 40);
    load(
        &mut case,
        flat(&[-1, -1], &[-1, -1]),
        &[0, -1, -1, 0],
        &[0, 1],
        0,
    );
    load(
        &mut case,
        flat(&[-1, -1], &[-1, -1]),
        &[0, 1, 2, 0],
        &[2, 2],
        0,
    );
    load(
        &mut case,
        flat(&[-1, -2], &[0, 1]),
        &[0, -1, -2, 0],
        &[0, 1],
        0,
    );
    let deep = images(
        input,
        &[16, 4, 3, 3, 2],
        &[-1, -1, -1],
        &[-1, -1, -1],
        16,
        60,
    );
    load(&mut case, deep, &[0, -1, -1, -1, 0], &[1, 0, 2], 0);
    case
}

fn columns_with_steps(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    let line = Tensor {
        steps: vec![1, 2, 1],
        ..images(input, &[16, 9, 3], &[-1], &[-1], 16, 12)
    };
    load(&mut case, line, &[0, -1, 1], &[1], 0);
    let flat = Tensor {
        steps: vec![1, 2, 2, 1],
        ..images(input, &[16, 6, 5, 2], &[-1, -1], &[-1, -1], 16, 20)
    };
    load(&mut case, flat, &[0, -1, -1, 0], &[1, 0], 0);
    case
}

fn columns_swizzled(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    let flat = Tensor {
        swizzle: 3,
        ..images(input, &[64, 6, 5, 2], &[-1, -1], &[-1, -1], 64, 16)
    };
    load(&mut case, flat, &[0, -1, -1, 0], &[0, 1], 0);
    case
}

fn columns_past_the_last(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    let flat = images(input, &[16, 6, 5, 2], &[-1, -1], &[-1, -1], 16, 40);
    load(&mut case, flat, &[0, 0, 1, 1], &[0, 0], 0);
    case
}

fn columns_filled_with_nan(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    let flat = Tensor {
        data: F16,
        fill: 1,
        ..images(input, &[16, 6, 5, 2], &[-1, -1], &[-1, -1], 16, 24)
    };
    load(&mut case, flat, &[0, -1, -1, 0], &[0, 0], 0);
    case
}
