//! `tensor_map.cu`: tensor maps that kernels make of zeros, or change.

use super::case::{Buffer, Case, Shape, Tensor, args, structure};
use super::tensor_maps::{
    TENSOR_MAP, bytes, counting, image, place, rows, singles, size, tensor, words,
};

super::cases! {
    maps_made, maps_made_swizzled, maps_made_filled, maps_made_of_singles, maps_made_of_doubles,
    maps_made_of_little, maps_made_in_3d, maps_changed, maps_made_to_store,
}

/// What a kernel sets in a map.
fn fields(tensor: &Tensor) -> Vec<u8> {
    let Shape::Tile(tile) = &tensor.shape else {
        unreachable!("kernels make maps of tiles");
    };
    let mut fields = vec![];
    for dimension in 0..4 {
        let stride = tensor.strides.get(dimension).copied().unwrap_or(0);
        fields.extend(stride.to_le_bytes());
    }
    fields.extend((tensor.dims.len() as u32).to_le_bytes());
    let dims: Vec<u32> = tensor.dims.iter().map(|dim| *dim as u32).collect();
    for list in [tile, &dims, &tensor.steps] {
        for dimension in 0..5 {
            let number = list.get(dimension).copied().unwrap_or(1);
            fields.extend(number.to_le_bytes());
        }
    }
    fields
}

/// Loads a box by a map that the kernel makes; `start` is the host's map, if it begins with one.
fn load(case: &mut Case, kernel: &'static str, start: Option<Tensor>, tensor: Tensor, at: &[i32]) {
    let bytes = bytes(&tensor);
    let (rows, _) = rows(&tensor, at, &[]);
    let pitch = match tensor.swizzle {
        0 => bytes / rows.len() as u32,
        swizzle => 16 << swizzle,
    };
    let span = (pitch * rows.len() as u32).next_multiple_of(128) + 64;
    let output = case.output::<u16>(span as usize / 2);
    let contents = case.contents(tensor.buffer);
    let image = image(&tensor, contents, at, &[], 0, span as usize);
    case.expect(output, &words(&image));
    let (made, map) = (structure(fields(&tensor)), case.scratch(128));
    let place = structure(place(at, &[], 0, bytes, span));
    let args = match start {
        Some(start) => args![start, tensor.buffer, made, map, place, output],
        None => args![tensor.buffer, made, map, place, output],
    };
    case.launch(kernel, 1, 64, args).shared(16 << 10);
}

const U8: u32 = 0;
const U16: u32 = 1;
const U32: u32 = 2;
const F16: u32 = 6;

fn maps_made(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    for at in [[8, 2], [-8, -2], [56, 15]] {
        let plain = tensor(input, U16, &[64, 20], &[32, 8]);
        load(&mut case, "made_of_u16", None, plain, &at);
    }
    let steps = Tensor {
        steps: vec![1, 3],
        ..tensor(input, U16, &[64, 20], &[32, 8])
    };
    load(&mut case, "made_of_u16", None, steps, &[8, 2]);
    let apart = Tensor {
        strides: vec![256],
        ..tensor(input, U16, &[64, 20], &[8, 256])
    };
    load(&mut case, "made_of_u16", None, apart, &[8, 2]);
    case
}

fn maps_made_swizzled(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    let swizzled = |swizzle, data, row| Tensor {
        swizzle,
        ..tensor(input, data, &[64, 40], &[row, 20])
    };
    load(
        &mut case,
        "made_swizzled",
        None,
        swizzled(3, F16, 64),
        &[0, 3],
    );
    load(
        &mut case,
        "made_swizzled_less",
        None,
        swizzled(2, U16, 32),
        &[32, -3],
    );
    case
}

fn maps_made_filled(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    let filled = Tensor {
        fill: 1,
        ..tensor(input, F16, &[64, 20], &[16, 4])
    };
    load(&mut case, "made_filled", None, filled, &[-8, -2]);
    case
}

fn maps_made_of_singles(name: &'static str) -> Case {
    let mut case = Case::new(name, TENSOR_MAP);
    let input = singles(&mut case);
    let swizzled = Tensor {
        swizzle: 1,
        ..tensor(input, 7, &[32, 20], &[8, 8])
    };
    load(&mut case, "made_of_singles", None, swizzled, &[8, 2]);
    case
}

fn maps_made_of_doubles(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    let doubles = tensor(input, 8, &[16, 20], &[4, 8]);
    load(&mut case, "made_of_doubles", None, doubles, &[6, 2]);
    case
}

/// What is not set is as it is in zeros.
fn maps_made_of_little(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    let bytes = tensor(input, U8, &[64, 20], &[16, 8]);
    load(&mut case, "made_of_bytes", None, bytes, &[16, 2]);
    case
}

fn maps_made_in_3d(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    // The kernel names the type by the number that kernels have for it.
    let deep = Tensor {
        steps: vec![1, 2, 1],
        ..tensor(input, 9, &[32, 7, 5], &[8, 3, 2])
    };
    load(&mut case, "made_in_3d", None, deep, &[8, 5, 4]);
    case
}

fn maps_changed(name: &'static str) -> Case {
    let (mut case, input) = counting(name);
    let other: Buffer = case.input(&[7u16; 2048]);
    let start = Tensor {
        swizzle: 2,
        steps: vec![1, 2],
        ..tensor(other, F16, &[32, 64], &[16, 4])
    };
    let changed = Tensor {
        buffer: input,
        dims: vec![64, 30],
        strides: vec![384],
        shape: Shape::Tile(vec![32, 12]),
        ..start.clone()
    };
    load(&mut case, "changed", Some(start), changed, &[32, 5]);
    case
}

fn maps_made_to_store(name: &'static str) -> Case {
    let mut case = Case::new(name, TENSOR_MAP);
    let output = case.inout(&[5u32; 32 * 20]);
    let tensor = tensor(output, U32, &[32, 20], &[16, 8]);
    let span = 16 * 8 * size(U32);
    let values: Vec<u32> = (0..span / 4).collect();
    let input = case.input(&values);
    let (made, map) = (structure(fields(&tensor)), case.scratch(128));
    let place = structure(place(&[8, 15], &[], 0, 0, span));
    let args = args![output, made, map, place, input];
    case.launch("made_to_store", 1, 64, args).shared(16 << 10);
    case
}
