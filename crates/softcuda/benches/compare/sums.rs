//! Work in which the threads of a block add up.

use std::hint::black_box;

use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use rayon::prelude::*;

use super::Outcome;
use super::device::{Device, Kernel, REDUCE, config};
use super::input::noise;
use super::measure::{Measured, Row, check, timed, timed_in_rust};

pub const BLOCK_REDUCTION: Row = Row {
    name: "block reduction f32, 4 M in blocks of 256 (9 barriers)",
    aim: 10.0,
    kernel: Kernel {
        source: REDUCE,
        name: "reduce_shared_f32",
    },
    run: block_reduction,
};

fn block_reduction(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n: usize = 1 << 22;
    let input = noise(n, 7);
    let stream = &device.stream;
    let input_device = stream.clone_htod(&input)?;
    let blocks = n / 256;
    let mut sums = stream.alloc_zeros::<f32>(blocks)?;
    let softcuda = timed(|| {
        let count = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&input_device).arg(&mut sums).arg(&count);
        // SAFETY: the arguments are those of `reduce_shared_f32`; `sums` has an element for each
        // block.
        unsafe {
            call.launch(LaunchConfig {
                shared_mem_bytes: 4 * 256,
                ..config(blocks, 256)
            })
        }?;
        Ok(stream.synchronize()?)
    })?;
    let mut host = vec![0.0f32; blocks];
    let rust = timed_in_rust(|| {
        let (chunks, _) = black_box(&input[..]).as_chunks::<256>();
        host.par_iter_mut()
            .zip(chunks)
            .with_min_len(64)
            .for_each(|(sum, chunk)| {
                let mut tree = *chunk;
                let mut width = 128;
                while width > 0 {
                    let (low, high) = tree.split_at_mut(width);
                    for (a, b) in low.iter_mut().zip(high.iter()) {
                        *a += b;
                    }
                    width /= 2;
                }
                *sum = tree[0];
            });
    })?;
    check(&stream.clone_dtoh(&sums)?, &host, 1e-5)?;
    Ok(Measured { softcuda, rust })
}
