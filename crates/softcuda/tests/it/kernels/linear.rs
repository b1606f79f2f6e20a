//! `transpose.cu`, `gemm.cu`, `spmv.cu`, `nbody.cu`, `softmax.cu`, `stencil.cu`: numerical work on
//! arrays.

use super::case::{Case, Ptx, args, relative, structure, ulp};
use super::input::Inputs;

const TRANSPOSE: Ptx = super::ptx!("transpose");
const GEMM: Ptx = super::ptx!("gemm");
const SPMV: Ptx = super::ptx!("spmv");
const NBODY: Ptx = super::ptx!("nbody");
const SOFTMAX: Ptx = super::ptx!("softmax");
const STENCIL: Ptx = super::ptx!("stencil");

super::cases! {
    transpose_f32, transpose_u8, gemm_f32, gemm_f64, gemm_u32, gemm_register_tile, spmv_scalar, spmv_warp, nbody,
    nbody_f64, softmax_rows, softmax_online, layer_norm, stencil_5, stencil_5_shared, stencil_7, life,
}

fn transposed<T: Copy>(values: &[T], width: usize) -> Vec<T> {
    (0..width)
        .flat_map(|x| values.iter().skip(x).step_by(width).copied())
        .collect()
}

fn transpose_f32(name: &'static str) -> Case {
    let (width, height) = (75usize, 50usize);
    let values = Inputs::new(name).moderate(width * height, 1e3);
    let mut case = Case::new(name, TRANSPOSE);
    let (input, out) = (case.input(&values), case.output::<f32>(width * height));
    case.expect(out, &transposed(&values, width));
    case.launch(
        name,
        (3, 2),
        (32, 8),
        args![input, out, width as u32, height as u32],
    );
    case
}

fn transpose_u8(name: &'static str) -> Case {
    let (width, height) = (64usize, 33usize);
    let values = Inputs::new(name).make(width * height, |s| s.next() as u8);
    let mut case = Case::new(name, TRANSPOSE);
    let (input, out) = (case.input(&values), case.output::<u8>(width * height));
    case.expect(out, &transposed(&values, width));
    case.launch(
        name,
        (2, 2),
        (32, 8),
        args![input, out, width as u32, height as u32],
    );
    case
}

/// `C = A B`, each sum in the order of `k`, by `step(sum, a, b)`. The tiles pad `k` with zeros up
/// to a multiple of 16.
fn product<T: Copy + Default>(
    a: &[T],
    b: &[T],
    n: usize,
    k: usize,
    step: impl Fn(T, T, T) -> T,
) -> Vec<T> {
    let cell = |row: usize, col: usize| {
        let sum = (0..k).fold(T::default(), |sum, i| {
            step(sum, a[row * k + i], b[i * n + col])
        });
        (k..k.next_multiple_of(16)).fold(sum, |sum, _| step(sum, T::default(), T::default()))
    };
    (0..a.len() / k)
        .flat_map(|row| (0..n).map(move |col| (row, col)))
        .map(|(row, col)| cell(row, col))
        .collect()
}

fn gemm_f32(name: &'static str) -> Case {
    let (m, n, k) = (37usize, 29usize, 50usize);
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.moderate(m * k, 4.0), inputs.moderate(k * n, 4.0));
    let mut case = Case::new(name, GEMM);
    let (da, db, dc) = (case.input(&a), case.input(&b), case.output::<f32>(m * n));
    case.columns(dc, n);
    case.expect(
        dc,
        &product(&a, &b, n, k, |sum: f32, x, y| x.mul_add(y, sum)),
    );
    case.launch(
        name,
        (2, 3),
        (16, 16),
        args![da, db, dc, m as u32, n as u32, k as u32],
    );
    case
}

fn gemm_f64(name: &'static str) -> Case {
    let (m, n, k) = (20usize, 33usize, 40usize);
    let mut inputs = Inputs::new(name);
    let a = inputs.make(m * k, |s| s.between(-1.0, 1.0) / 7.0);
    let b = inputs.make(k * n, |s| s.between(-1.0, 1.0) / 3.0);
    let mut case = Case::new(name, GEMM);
    let (da, db, dc) = (case.input(&a), case.input(&b), case.output::<f64>(m * n));
    case.columns(dc, n);
    case.expect(
        dc,
        &product(&a, &b, n, k, |sum: f64, x, y| x.mul_add(y, sum)),
    );
    case.launch(
        name,
        (3, 2),
        (16, 16),
        args![da, db, dc, m as u32, n as u32, k as u32],
    );
    case
}

fn gemm_u32(name: &'static str) -> Case {
    let (m, n, k) = (18usize, 16usize, 31usize);
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.words32(m * k), inputs.words32(k * n));
    let mut case = Case::new(name, GEMM);
    let (da, db, dc) = (case.input(&a), case.input(&b), case.output::<u32>(m * n));
    case.columns(dc, n);
    case.expect(
        dc,
        &product(&a, &b, n, k, |sum: u32, x, y| {
            sum.wrapping_add(x.wrapping_mul(y))
        }),
    );
    case.launch(
        name,
        (1, 2),
        (16, 16),
        args![da, db, dc, m as u32, n as u32, k as u32],
    );
    case
}

fn gemm_register_tile(name: &'static str) -> Case {
    let (m, n, k) = (64usize, 96usize, 32usize);
    let mut inputs = Inputs::new(name);
    let (a, b) = (inputs.moderate(m * k, 2.0), inputs.moderate(k * n, 2.0));
    let mut case = Case::new(name, GEMM);
    let (da, db, dc) = (case.input(&a), case.input(&b), case.output::<f32>(m * n));
    case.columns(dc, n);
    case.expect(
        dc,
        &product(&a, &b, n, k, |sum: f32, x, y| x.mul_add(y, sum)),
    );
    case.launch(name, (3, 2), 64, args![da, db, dc, n as u32, k as u32]);
    case
}

/// Row offsets and columns of a sparse matrix; some rows are empty.
fn sparse(inputs: &mut Inputs, rows: usize, columns: u64, longest: u64) -> (Vec<u32>, Vec<u32>) {
    let mut offsets = vec![0u32];
    let mut entries = Vec::new();
    for _ in 0..rows {
        let length = inputs.below(longest + 1).saturating_sub(2);
        (0..length).for_each(|_| entries.push(inputs.below(columns) as u32));
        offsets.push(entries.len() as u32);
    }
    (offsets, entries)
}

fn spmv_scalar(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (offsets, columns) = sparse(&mut inputs, 300, 200, 20);
    let (values, x) = (
        inputs.moderate(columns.len(), 10.0),
        inputs.moderate(200, 10.0),
    );
    let mut case = Case::new(name, SPMV);
    let buffers = (
        case.input(&offsets),
        case.input(&columns),
        case.input(&values),
        case.input(&x),
    );
    let y = case.output::<f32>(300);
    let row = |row: usize| {
        let range = offsets[row] as usize..offsets[row + 1] as usize;
        range.fold(0.0f32, |sum, i| {
            values[i].mul_add(x[columns[i] as usize], sum)
        })
    };
    case.expect(y, &(0..300).map(row).collect::<Vec<f32>>());
    case.launch(
        name,
        3,
        128,
        args![buffers.0, buffers.1, buffers.2, buffers.3, y, 300u32],
    );
    case
}

fn spmv_warp(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (offsets, columns) = sparse(&mut inputs, 50, 128, 100);
    let values = inputs.make(columns.len(), |s| s.between(-1.0, 1.0) / 3.0);
    let x = inputs.make(128, |s| s.between(-5.0, 5.0) / 7.0);
    let mut case = Case::new(name, SPMV);
    let buffers = (
        case.input(&offsets),
        case.input(&columns),
        case.input(&values),
        case.input(&x),
    );
    let y = case.output::<f64>(50);
    let row = |row: usize| {
        let range = offsets[row] as usize..offsets[row + 1] as usize;
        let lane = |lane: usize| {
            let entries = range.clone().skip(lane).step_by(32);
            entries.fold(0.0f64, |sum, i| {
                values[i].mul_add(x[columns[i] as usize], sum)
            })
        };
        let mut lanes: Vec<f64> = (0..32).map(lane).collect();
        for d in [16, 8, 4, 2, 1] {
            (0..d).for_each(|i| lanes[i] += lanes[i + d]);
        }
        lanes[0]
    };
    case.expect(y, &(0..50).map(row).collect::<Vec<f64>>());
    case.launch(
        name,
        7,
        256,
        args![buffers.0, buffers.1, buffers.2, buffers.3, y, 50u32],
    );
    case
}

fn nbody(name: &'static str) -> Case {
    let n = 150usize;
    let mut inputs = Inputs::new(name);
    // Bodies in a half space, so that forces do not cancel and a relative bound makes sense.
    let mut bodies = Vec::new();
    for i in 0..n {
        let far = if i == 0 { 0.0 } else { 2.0 };
        let xyz = [
            far + inputs.unit(),
            far + inputs.unit(),
            far + inputs.unit(),
        ];
        bodies.extend(xyz.map(|v| v as f32));
        bodies.push(inputs.between(0.5, 2.0) as f32);
    }
    let mut case = Case::new(name, NBODY);
    let (input, out) = (case.input(&bodies), case.output::<f32>(4 * n));
    let at = |i: usize, c: usize| bodies[4 * i + c] as f64;
    let mut scale = 0.0f64;
    let expected: Vec<f32> = (0..n)
        .flat_map(|i| {
            let mut force = [0.0f64; 3];
            for j in 0..n {
                let d = [0, 1, 2].map(|c| at(j, c) - at(i, c));
                let r2 = d.iter().map(|v| v * v).sum::<f64>() + 0.01f32 as f64;
                let s = at(j, 3) / (r2 * r2.sqrt());
                (0..3).for_each(|c| force[c] += d[c] * s);
                scale = scale.max(s);
            }
            [
                force[0] as f32,
                force[1] as f32,
                force[2] as f32,
                bodies[4 * i + 3],
            ]
        })
        .collect();
    // 150 terms, each off by a few ulp of the largest one: rsqrt.approx is within 2^-22.9.
    let bound = relative(1e-5).or_absolute(scale * 150.0 * 2f64.powi(-22));
    case.near(out, &[bound, bound, bound, ulp(0)]);
    case.expect(out, &expected);
    case.launch(name, 3, 64, args![input, out, n as u32, 0.01f32]);
    case
}

fn nbody_f64(name: &'static str) -> Case {
    let n = 96usize;
    let bodies = Inputs::new(name).make(4 * n, |s| s.between(0.1, 1.1) / 3.0);
    let mut case = Case::new(name, NBODY);
    let (input, out) = (case.input(&bodies), case.output::<f64>(3 * n));
    let expected: Vec<f64> = (0..n)
        .flat_map(|i| {
            let mut force = [0.0f64; 3];
            for j in 0..n {
                let d = [0, 1, 2].map(|c| bodies[4 * j + c] - bodies[4 * i + c]);
                let r2 = d[0].mul_add(d[0], d[1].mul_add(d[1], d[2].mul_add(d[2], 1e-3)));
                let s = bodies[4 * j + 3] / (r2 * r2.sqrt());
                (0..3).for_each(|c| force[c] = d[c].mul_add(s, force[c]));
            }
            force
        })
        .collect();
    case.columns(out, 3);
    case.expect(out, &expected);
    case.launch(name, 2, 64, args![input, out, n as u32, 1e-3f64]);
    case
}

fn softmax_reference(values: &[f32], width: usize) -> Vec<f32> {
    let row = |row: &[f32]| {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = row.iter().map(|&v| ((v - top) as f64).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers
            .into_iter()
            .map(|p| (p / sum) as f32)
            .collect::<Vec<f32>>()
    };
    values.chunks(width).flat_map(row).collect()
}

fn softmax_rows(name: &'static str) -> Case {
    let (rows, width) = (9usize, 200usize);
    let values = Inputs::new(name).moderate(rows * width, 8.0);
    let mut case = Case::new(name, SOFTMAX);
    let (input, out) = (case.input(&values), case.output::<f32>(rows * width));
    // expf is within 2 ulp, the sums add rounding errors of a few more.
    case.near(out, &[relative(2f64.powi(-20))]);
    case.expect(out, &softmax_reference(&values, width));
    case.launch(name, rows as u32, 128, args![input, out, width as u32]);
    case
}

fn softmax_online(name: &'static str) -> Case {
    let (rows, width) = (10usize, 100usize);
    let values = Inputs::new(name).moderate(rows * width, 8.0);
    let mut case = Case::new(name, SOFTMAX);
    let (input, out) = (case.input(&values), case.output::<f32>(rows * width));
    // __expf of at most 16 is within 2 + 19 ulp, and every rescaling of the sum applies one.
    case.near(out, &[relative(2f64.powi(-16))]);
    case.expect(out, &softmax_reference(&values, width));
    case.launch(
        name,
        3,
        (32, 4),
        args![input, out, width as u32, rows as u32],
    );
    case
}

fn layer_norm(name: &'static str) -> Case {
    let (rows, width) = (6usize, 130usize);
    let mut inputs = Inputs::new(name);
    let (values, gain) = (
        inputs.moderate(rows * width, 3.0),
        inputs.moderate(width, 2.0),
    );
    let mut case = Case::new(name, SOFTMAX);
    let (input, scale, out) = (
        case.input(&values),
        case.input(&gain),
        case.output::<f32>(rows * width),
    );
    let row = |row: &[f32]| {
        let mean = row.iter().map(|&v| v as f64).sum::<f64>() / width as f64;
        let squares = row.iter().map(|&v| v as f64 * v as f64).sum::<f64>() / width as f64;
        let scale = 1.0 / (squares - mean * mean + 1e-5).sqrt();
        row.iter()
            .zip(&gain)
            .map(|(&v, &g)| ((v as f64 - mean) * scale * g as f64) as f32)
            .collect::<Vec<f32>>()
    };
    let expected: Vec<f32> = values.chunks(width).flat_map(row).collect();
    case.near(out, &[relative(2f64.powi(-18)).or_absolute(2f64.powi(-18))]);
    case.expect(out, &expected);
    case.launch(
        name,
        rows as u32,
        32,
        args![input, scale, out, width as u32],
    );
    case
}

fn heat(values: &[f32], width: usize, rate: f32) -> Vec<f32> {
    let height = values.len() / width;
    let cell = |i: usize| {
        let (x, y) = (i % width, i / width);
        if x == 0 || y == 0 || x == width - 1 || y == height - 1 {
            return values[i];
        }
        let around = (values[i - 1] + values[i + 1]) + (values[i - width] + values[i + width]);
        rate.mul_add((-4.0f32).mul_add(values[i], around), values[i])
    };
    (0..values.len()).map(cell).collect()
}

fn heat_case(name: &'static str) -> Case {
    let (width, height) = (70usize, 41usize);
    let values = Inputs::new("stencil_5").moderate(width * height, 100.0);
    let mut case = Case::new(name, STENCIL);
    let (a, b) = (case.inout(&values), case.output::<f32>(width * height));
    let once = heat(&values, width, 0.2);
    case.expect(a, &heat(&once, width, 0.2));
    case.expect(b, &once);
    case.columns(b, width);
    case.launch(
        name,
        (5, 3),
        (16, 16),
        args![a, b, width as i32, height as i32, 0.2f32],
    );
    case.launch(
        name,
        (5, 3),
        (16, 16),
        args![b, a, width as i32, height as i32, 0.2f32],
    );
    case
}

fn stencil_5(name: &'static str) -> Case {
    heat_case(name)
}

fn stencil_5_shared(name: &'static str) -> Case {
    heat_case(name)
}

fn stencil_7(name: &'static str) -> Case {
    let (w, h, d) = (13usize, 11usize, 9usize);
    let values = Inputs::new(name).make(w * h * d, |s| s.between(-1.0, 1.0) / 3.0);
    let mut case = Case::new(name, STENCIL);
    let (input, out) = (case.input(&values), case.output::<f64>(w * h * d));
    let cell = |i: usize| {
        let (x, y, z) = (i % w, i / w % h, i / (w * h));
        if x == 0 || y == 0 || z == 0 || x == w - 1 || y == h - 1 || z == d - 1 {
            return values[i];
        }
        let pair = |step: usize| values[i - step] + values[i + step];
        let sum = (pair(1) + pair(w)) + pair(w * h);
        0.1f64.mul_add((-6.0f64).mul_add(values[i], sum), values[i])
    };
    case.expect(out, &(0..w * h * d).map(cell).collect::<Vec<f64>>());
    let size = structure(
        [w, h, d]
            .iter()
            .flat_map(|v| (*v as u32).to_le_bytes())
            .collect(),
    );
    case.launch(
        name,
        (2, 3, 5),
        (8, 4, 2),
        vec![input.into(), out.into(), size, 0.1f64.into()],
    );
    case
}

fn life(name: &'static str) -> Case {
    let (width, height) = (40usize, 30usize);
    let values = Inputs::new(name).make(width * height, |s| (s.below(3) == 0) as u8);
    let mut case = Case::new(name, STENCIL);
    let (a, b) = (case.inout(&values), case.output::<u8>(width * height));
    let step = |cells: &[u8]| {
        let cell = |i: usize| {
            let (x, y) = (i % width, i / width);
            let mut count = 0;
            for dy in [height - 1, 0, 1] {
                for dx in [width - 1, 0, 1] {
                    count += cells[(y + dy) % height * width + (x + dx) % width];
                }
            }
            let alive = cells[i] == 1;
            (count == 3 || alive && count == 4) as u8
        };
        (0..cells.len()).map(cell).collect::<Vec<u8>>()
    };
    let once = step(&values);
    case.expect(a, &step(&once));
    case.expect(b, &once);
    case.launch(
        name,
        (3, 4),
        (16, 8),
        args![a, b, width as u32, height as u32],
    );
    case.launch(
        name,
        (3, 4),
        (16, 8),
        args![b, a, width as u32, height as u32],
    );
    case
}
