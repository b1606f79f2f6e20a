//! Runs a PTX kernel over a million elements on whatever device there is, and checks every one.
//!
//! `cargo run --release --example hello`

use std::error::Error;
use std::time::Instant;

use cudarc::driver::{LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

/// `y[i] = a * x[i] + y[i]`, a thread for each element.
const SAXPY: &str = r#"
.version 7.0
.target sm_70
.address_size 64

.visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %i, %block, %size, %n;
    .reg .b64 %x, %y, %at;
    .reg .f32 %a, %v, %w;

    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %i, %tid.x;
    mad.lo.u32 %i, %block, %size, %i;
    ld.param.u32 %n, [n];
    setp.ge.u32 %p, %i, %n;
    @%p ret;

    ld.param.f32 %a, [a];
    ld.param.u64 %x, [x];
    ld.param.u64 %y, [y];
    mul.wide.u32 %at, %i, 4;
    add.u64 %x, %x, %at;
    add.u64 %y, %y, %at;
    ld.global.f32 %v, [%x];
    ld.global.f32 %w, [%y];
    fma.rn.f32 %w, %a, %v, %w;
    st.global.f32 [%y], %w;
    ret;
}
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let device = cuda_graph::device(0)?;
    println!("device: {}, driver: {}", device.name()?, device.driver());

    let n = 1 << 20;
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let stream = device.context().default_stream();
    let x_device = stream.clone_htod(&x)?;
    let mut y_device = stream.alloc_zeros::<f32>(n)?;

    let saxpy = device
        .context()
        .load_module(Ptx::from_src(SAXPY))?
        .load_function("saxpy")?;
    let (a, count) = (2.0f32, n as u32);
    let launch = || {
        let mut call = stream.launch_builder(&saxpy);
        call.arg(&a).arg(&x_device).arg(&mut y_device).arg(&count);
        // SAFETY: these are the parameters of `saxpy`, and both buffers hold `n` elements.
        unsafe { call.launch(LaunchConfig::for_num_elems(count)) }?;
        stream.synchronize()
    };
    let started = Instant::now();
    let mut launch = launch;
    launch()?;
    let first = started.elapsed();
    let started = Instant::now();
    launch()?;
    let second = started.elapsed();

    // Each launch added 2 x.
    for (i, y) in stream.clone_dtoh(&y_device)?.into_iter().enumerate() {
        assert_eq!(y, 4.0 * i as f32, "element {i}");
    }
    println!("saxpy over {n} elements, launched twice: every element is right");
    println!("first launch, kernel compiled: {first:?}; second: {second:?}");
    Ok(())
}
