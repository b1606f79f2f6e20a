//! An element a thread.

use std::hint::black_box;

use cudarc::driver::{CudaFunction, PushKernelArg};
use rayon::prelude::*;

use super::Outcome;
use super::device::{Device, ELEMENTWISE, Kernel, config};
use super::input::noise;
use super::measure::{Measured, Row, check, timed, timed_in_rust};

pub const SAXPY: Row = Row {
    name: "streaming: saxpy, 16 M floats",
    aim: 2.0,
    kernel: Kernel {
        source: ELEMENTWISE,
        name: "saxpy",
    },
    run: saxpy,
};

fn saxpy(device: &Device, function: &CudaFunction) -> Outcome<Measured> {
    let n = 1 << 24;
    let (x, y) = (noise(n, 1), noise(n, 2));
    let stream = &device.stream;
    let (x_device, mut y_device) = (stream.clone_htod(&x)?, stream.clone_htod(&y)?);
    let mut launch = |a: f32| -> Outcome<()> {
        let count = n as u32;
        let mut call = stream.launch_builder(function);
        call.arg(&a).arg(&x_device).arg(&mut y_device).arg(&count);
        // SAFETY: the arguments are those of `saxpy`, and both buffers hold `n` elements.
        unsafe { call.launch(config(n / 256, 256)) }?;
        Ok(stream.synchronize()?)
    };
    let softcuda = timed(|| launch(0.0))?;
    launch(2.0)?;
    let mut host = y;
    let mut in_rust = |a: f32| {
        host.par_iter_mut()
            .zip(&x)
            .with_min_len(1 << 14)
            .for_each(|(y, x)| *y += a * *x)
    };
    let rust = timed_in_rust(|| in_rust(black_box(0.0)))?;
    in_rust(2.0);
    check(&stream.clone_dtoh(&y_device)?, &host, 1e-6)?;
    Ok(Measured { softcuda, rust })
}
