//! `reduce.cu`, `scan.cu`, `histogram.cu`, `sort.cu`: work that meets across threads and blocks.

use super::case::{Case, Ptx, args};
use super::input::Inputs;

const REDUCE: Ptx = super::ptx!("reduce");
const SCAN: Ptx = super::ptx!("scan");
const HISTOGRAM: Ptx = super::ptx!("histogram");
const SORT: Ptx = super::ptx!("sort");

super::cases! {
    reduce_shuffle_i32, reduce_shuffle_f32, reduce_shared_f32, reduce_shared_f64, reduce_redux, arg_max,
    reduce_last_block, scan_block, scan_lookback, histogram, histogram_match, bitonic_shared, bitonic_step, radix_warp,
}

fn reduce_shuffle_i32(name: &'static str) -> Case {
    let values = Inputs::new(name).make(5000, |s| s.next() as i32 >> 8);
    let mut case = Case::new(name, REDUCE);
    let (input, total) = (case.input(&values), case.inout(&[1000u64]));
    let sum: i64 = values.iter().map(|&v| v as i64).sum();
    case.expect(total, &[1000u64.wrapping_add(sum as u64)]);
    case.launch(name, 7, 192, args![input, total, 5000u32]);
    case
}

/// A warp's sum in the order of shuffles down by 16, 8, 4, 2, 1.
fn warp_sum(values: &[f32]) -> f32 {
    let mut lanes: Vec<f32> = values.to_vec();
    for d in [16, 8, 4, 2, 1] {
        let before = lanes.clone();
        (0..32).for_each(|i| lanes[i] += if i + d < 32 { before[i + d] } else { before[i] });
    }
    lanes[0]
}

fn reduce_shuffle_f32(name: &'static str) -> Case {
    let values = Inputs::new(name).moderate(3000, 100.0);
    let (grid, block) = (5u32, 128u32);
    let mut case = Case::new(name, REDUCE);
    let (input, out) = (case.input(&values), case.output::<f32>(grid as usize));
    let expected: Vec<f32> = (0..grid as usize)
        .map(|b| {
            let stride = (grid * block) as usize;
            let thread = |t: usize| {
                values
                    .iter()
                    .skip(b * 128 + t)
                    .step_by(stride)
                    .fold(0.0f32, |sum, v| sum + v)
            };
            let threads: Vec<f32> = (0..128).map(thread).collect();
            let mut partial: Vec<f32> = threads.chunks(32).map(warp_sum).collect();
            partial.resize(32, 0.0);
            warp_sum(&partial)
        })
        .collect();
    case.expect(out, &expected);
    case.launch(name, grid, block, args![input, out, 3000u32]);
    case
}

/// A block's sum as a tree that halves.
fn tree_sum<T: Copy + std::ops::AddAssign>(mut values: Vec<T>) -> T {
    let mut d = values.len() / 2;
    while d > 0 {
        (0..d).for_each(|i| {
            let other = values[i + d];
            values[i] += other;
        });
        d /= 2;
    }
    values[0]
}

fn reduce_shared_f32(name: &'static str) -> Case {
    let values = Inputs::new(name).moderate(1000, 1e6);
    let mut case = Case::new(name, REDUCE);
    let (input, out) = (case.input(&values), case.output::<f32>(4));
    let mut padded = values.clone();
    padded.resize(1024, 0.0);
    let expected: Vec<f32> = padded
        .chunks(256)
        .map(|block| tree_sum(block.to_vec()))
        .collect();
    case.expect(out, &expected);
    case.launch(name, 4, 256, args![input, out, 1000u32])
        .shared(256 * 4);
    case
}

fn reduce_shared_f64(name: &'static str) -> Case {
    let values = Inputs::new(name).make(500, |s| s.between(-1.0, 1.0) / 3.0);
    let mut case = Case::new(name, REDUCE);
    let (input, out) = (case.input(&values), case.output::<f64>(8));
    let mut padded = values.clone();
    padded.resize(512, 0.0);
    let expected: Vec<f64> = padded
        .chunks(64)
        .map(|block| tree_sum(block.to_vec()))
        .collect();
    case.expect(out, &expected);
    case.launch(name, 8, 64, args![input, out, 500u32])
        .shared(64 * 8);
    case
}

fn reduce_redux(name: &'static str) -> Case {
    let values = Inputs::new(name).words32(512);
    let mut case = Case::new(name, REDUCE);
    let (input, out) = (case.input(&values), case.output::<u32>(16 * 8));
    let warp = |v: &[u32]| {
        let signed = || v.iter().map(|&x| x as i32);
        [
            v.iter().fold(0u32, |s, x| s.wrapping_add(*x)),
            signed().min().expect("32 lanes") as u32,
            signed().max().expect("32 lanes") as u32,
            *v.iter().min().expect("32 lanes"),
            *v.iter().max().expect("32 lanes"),
            v.iter().fold(!0, |s, x| s & (x | 0x00ff_0000)),
            v.iter().fold(0, |s, x| s | (x & 0x0f0f_0f0f)),
            v.iter().fold(0, |s, x| s ^ x),
        ]
    };
    let expected: Vec<u32> = values.chunks(32).flat_map(warp).collect();
    case.columns(out, 8);
    case.expect(out, &expected);
    case.launch(name, 4, 128, args![input, out]);
    case
}

fn arg_max(name: &'static str) -> Case {
    let values = Inputs::new(name).make(2000, |s| s.below(300) as u32);
    let mut case = Case::new(name, REDUCE);
    let (input, best) = (case.input(&values), case.inout(&[0u64]));
    let top = *values.iter().max().expect("not empty");
    let first = values.iter().position(|&v| v == top).expect("it is there") as u64;
    case.expect(best, &[(top as u64) << 32 | (0xffff_ffff - first)]);
    case.launch(name, 8, 256, args![input, best, 2000u32]);
    case
}

fn reduce_last_block(name: &'static str) -> Case {
    let values = Inputs::new(name).words32(3000);
    let mut case = Case::new(name, REDUCE);
    let (input, blocks) = (case.input(&values), case.output::<u32>(24));
    let (done, total) = (case.inout(&[0u32]), case.output::<u32>(1));
    let sum = |v: &[u32]| v.iter().fold(0u32, |s, x| s.wrapping_add(*x));
    let per_block: Vec<u32> = values.chunks(128).map(sum).collect();
    case.expect(blocks, &per_block);
    case.expect(done, &[0u32]);
    case.expect(total, &[sum(&values)]);
    case.launch(name, 24, 128, args![input, blocks, done, total, 3000u32]);
    case
}

fn prefix_sums(values: &[u32]) -> Vec<u32> {
    let mut sum = 0u32;
    values
        .iter()
        .map(|v| {
            sum = sum.wrapping_add(*v);
            sum
        })
        .collect()
}

fn scan_block(name: &'static str) -> Case {
    let values = Inputs::new(name).words32(2048);
    let mut case = Case::new(name, SCAN);
    let (input, out, sums) = (
        case.input(&values),
        case.output::<u32>(2048),
        case.output::<u32>(8),
    );
    case.expect(out, &prefix_sums(&values));
    case.launch("scan_block", 8, 256, args![input, out, sums])
        .shared(2 * 256 * 4);
    case.launch("scan_add_offsets", 8, 256, args![out, sums]);
    case
}

fn scan_lookback(name: &'static str) -> Case {
    let values = Inputs::new(name).words32(9000);
    let mut case = Case::new(name, SCAN);
    let (input, out) = (case.input(&values), case.output::<u32>(9000));
    let (status, next) = (case.scratch(71 * 8), case.scratch(4));
    case.expect(out, &prefix_sums(&values));
    case.launch(name, 71, 128, args![input, out, status, next, 9000u32]);
    case
}

fn histogram(name: &'static str) -> Case {
    let values = Inputs::new(name).make(6000, |s| (s.next() & s.next()) as u8);
    let start: Vec<u32> = (0..256).collect();
    let mut case = Case::new(name, HISTOGRAM);
    let (input, bins) = (case.input(&values), case.inout(&start));
    let mut expected = start;
    values.iter().for_each(|&v| expected[v as usize] += 1);
    case.expect(bins, &expected);
    case.launch(name, 6, 160, args![input, bins, 6000u32]);
    case
}

fn histogram_match(name: &'static str) -> Case {
    let values = Inputs::new(name).make(1000, |s| s.next() as u8);
    let mut case = Case::new(name, HISTOGRAM);
    let (input, bins) = (case.input(&values), case.inout(&[0u32; 16]));
    let mut expected = [0u32; 16];
    values.iter().for_each(|&v| expected[v as usize & 15] += 1);
    case.expect(bins, &expected);
    case.launch(name, 8, 128, args![input, bins, 1000u32]);
    case
}

fn bitonic_shared(name: &'static str) -> Case {
    let values = Inputs::new(name).words32(1024);
    let mut case = Case::new(name, SORT);
    let (input, out) = (case.input(&values), case.output::<u32>(1024));
    let mut expected = values.clone();
    expected.chunks_mut(256).for_each(|block| block.sort());
    case.expect(out, &expected);
    case.launch(name, 4, 256, args![input, out]).shared(256 * 4);
    case
}

fn bitonic_step(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    // Distinct keys, so that there is one order.
    let mut keys: Vec<f32> = (0..1024).map(|i| (i as f32 - 500.0) * 0.37).collect();
    for i in (1..1024).rev() {
        keys.swap(i, inputs.below(i as u64 + 1) as usize);
    }
    let values = inputs.words64(1024);
    let mut case = Case::new(name, SORT);
    let (dk, dv) = (case.inout(&keys), case.inout(&values));
    let mut expected: Vec<(f32, u64)> = keys.into_iter().zip(values).collect();
    expected.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (k, v): (Vec<f32>, Vec<u64>) = expected.into_iter().unzip();
    case.expect(dk, &k);
    case.expect(dv, &v);
    let mut size = 2u32;
    while size <= 1024 {
        let mut stride = size / 2;
        while stride > 0 {
            case.launch(name, 4, 256, args![dk, dv, size, stride]);
            stride /= 2;
        }
        size *= 2;
    }
    case
}

fn radix_warp(name: &'static str) -> Case {
    let values = Inputs::new(name).words32(256);
    let mut case = Case::new(name, SORT);
    let keys = case.inout(&values);
    let mut expected = values;
    expected.chunks_mut(32).for_each(|warp| warp.sort());
    case.expect(keys, &expected);
    case.launch(name, 8, 32, args![keys]);
    case
}
