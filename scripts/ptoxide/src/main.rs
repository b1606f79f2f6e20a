//! Prints softcuda beside ptoxide, a crate that runs PTX on the processor in a virtual machine: the
//! time of a launch, on the same data, with results checked.
//!
//! `cargo run --release --manifest-path scripts/ptoxide/Cargo.toml`
//!
//! It first tries which kernels of softcuda's benchmark ptoxide takes. Each kernel is tried in a
//! module of its own, because one that it does not take keeps it from loading the others.

use std::error::Error;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use ptoxide::{Argument, Context, LaunchParams};

type Outcome<T> = Result<T, Box<dyn Error>>;

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("../../../kernels/ptx/", $name, ".ptx"))
    };
}

/// The kernels of the benchmark, by files.
const KERNELS: &[(&str, &[&str])] = &[
    (
        file!("bench"),
        &[
            "black_scholes",
            "mandelbrot",
            "bfs_level",
            "sum_atomic",
            "softmax_block",
        ],
    ),
    (file!("elementwise"), &["saxpy"]),
    (file!("gemm"), &["gemm_f32", "gemm_register_tile"]),
    (file!("histogram"), &["histogram"]),
    (file!("nbody"), &["nbody", "nbody_f64"]),
    (file!("reduce"), &["reduce_shared_f32"]),
    (file!("scan"), &["scan_lookback"]),
    (file!("softmax"), &["layer_norm"]),
    (file!("spmv"), &["spmv_scalar", "spmv_warp"]),
    (file!("stencil"), &["stencil_5_shared"]),
];

/// The benchmark's `saxpy` has a loop over a special register that ptoxide does not know; here each
/// thread has one element.
const SAXPY: &str = "
.version 8.3
.target sm_89
.address_size 64

.visible .entry saxpy(.param .u32 a, .param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .f32 %f<5>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<7>;

    ld.param.f32 %f1, [a];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r5, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra $L_end;
    cvt.u64.u32 %rd3, %r4;
    shl.b64 %rd4, %rd3, 2;
    add.s64 %rd5, %rd1, %rd4;
    add.s64 %rd6, %rd2, %rd4;
    ld.global.f32 %f2, [%rd5];
    ld.global.f32 %f3, [%rd6];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd6], %f4;

$L_end:
    ret;
}
";

fn main() -> Outcome<()> {
    let modules = KERNELS
        .iter()
        .flat_map(|(file, names)| names.iter().map(|name| (*name, alone(file, name))));
    let modules: Vec<(&str, String)> = modules.collect();
    // What it does not take, ptoxide may refuse by a panic.
    std::panic::set_hook(Box::new(|_| {}));
    let taken = |module: &str| catch_unwind(|| Context::new_with_module(module).is_ok());
    let is_taken = |(_, module): &&(&str, String)| taken(module).unwrap_or(false);
    let takes: Vec<&str> = modules
        .iter()
        .filter(is_taken)
        .map(|(name, _)| *name)
        .collect();
    let _ = std::panic::take_hook();
    let (count, all) = (takes.len(), modules.len());
    println!(
        "ptoxide takes {count} of {all} kernels: {}\n",
        takes.join(", ")
    );

    softcuda::install()?;
    let stream = CudaContext::new(0)?.default_stream();
    println!("| work | softcuda | ptoxide | ptoxide / softcuda |\n|---|---|---|---|");
    saxpy(&stream)?;
    let (_, gemm_f32) = modules
        .iter()
        .find(|(name, _)| *name == "gemm_f32")
        .expect("it is one of the kernels");
    gemm(&stream, gemm_f32)
}

/// The module of `file` with one kernel alone.
fn alone(file: &str, name: &str) -> String {
    let from = |text: &str| {
        file.find(text)
            .unwrap_or_else(|| panic!("{text} is missing"))
    };
    let head = &file[from(".version")..];
    let head: String = head.split_inclusive('\n').take(3).collect();
    let outside = file
        .lines()
        .filter(|line| line.starts_with(".extern .shared"));
    let kernel = &file[from(&format!(".visible .entry {name}("))..];
    let end = kernel.find("\n}").expect("a kernel ends") + "\n}".len();
    let outside: String = outside.map(|line| format!("{line}\n")).collect();
    format!("{head}{outside}{}\n", &kernel[..end])
}

fn saxpy(stream: &Arc<CudaStream>) -> Outcome<()> {
    let n = 1 << 20;
    let (a, count, blocks) = (2.0f32, n as u32, n as u32 / 256);
    let (x, y) = (numbers(n, 7), numbers(n, 5));

    let function = stream
        .context()
        .load_module(Ptx::from_src(SAXPY))?
        .load_function("saxpy")?;
    let (x_device, mut y_device) = (stream.clone_htod(&x)?, stream.clone_htod(&y)?);
    let mut launches = 0;
    let softcuda = median(|| {
        launches += 1;
        let mut call = stream.launch_builder(&function);
        call.arg(&a).arg(&x_device).arg(&mut y_device).arg(&count);
        // SAFETY: the arguments are those of `saxpy`, and both buffers hold `n` elements.
        unsafe { call.launch(config((blocks, 1), (256, 1))) }?;
        Ok(stream.synchronize()?)
    })?;
    check(&stream.clone_dtoh(&y_device)?, |i| {
        y[i] + launches as f32 * a * x[i]
    })?;

    let mut machine = Context::new_with_module(SAXPY)?;
    let (x_machine, y_machine) = (machine.alloc(n), machine.alloc(n));
    machine.write(x_machine, &x);
    machine.write(y_machine, &y);
    let arguments = [
        Argument::U32(a.to_bits()),
        Argument::ptr(x_machine),
        Argument::ptr(y_machine),
        Argument::U32(count),
    ];
    let mut launches = 0;
    let ptoxide = median(|| {
        launches += 1;
        Ok(machine.run(
            LaunchParams::func_id(0).grid1d(blocks).block1d(256),
            &arguments,
        )?)
    })?;
    let mut sums = vec![0.0f32; n];
    machine.read(y_machine, &mut sums);
    check(&sums, |i| y[i] + launches as f32 * a * x[i])?;
    print("saxpy, 1 M floats, one a thread", softcuda, ptoxide);
    Ok(())
}

fn gemm(stream: &Arc<CudaStream>, module: &str) -> Outcome<()> {
    let n = 256;
    let (size, tiles) = (n as u32, n as u32 / 16);
    let (a, b) = (numbers(n * n, 7), numbers(n * n, 5));
    // Small whole numbers: sums in any order are exact.
    let product = |i: usize| (0..n).map(|k| a[i / n * n + k] * b[k * n + i % n]).sum();

    let function = stream
        .context()
        .load_module(Ptx::from_src(module))?
        .load_function("gemm_f32")?;
    let (a_device, b_device) = (stream.clone_htod(&a)?, stream.clone_htod(&b)?);
    let mut c_device = stream.alloc_zeros::<f32>(n * n)?;
    let softcuda = median(|| {
        let mut call = stream.launch_builder(&function);
        call.arg(&a_device).arg(&b_device).arg(&mut c_device);
        call.arg(&size).arg(&size).arg(&size);
        // SAFETY: the arguments are those of `gemm_f32`, and the buffers hold `n` by `n` elements.
        unsafe { call.launch(config((tiles, tiles), (16, 16))) }?;
        Ok(stream.synchronize()?)
    })?;
    check(&stream.clone_dtoh(&c_device)?, product)?;

    let mut machine = Context::new_with_module(module)?;
    let places = [(); 3].map(|()| machine.alloc::<f32>(n * n));
    machine.write(places[0], &a);
    machine.write(places[1], &b);
    let [a_machine, b_machine, c_machine] = places.map(Argument::ptr);
    let sizes = [(); 3].map(|()| Argument::U32(size));
    let [rows, columns, depth] = sizes;
    let arguments = [a_machine, b_machine, c_machine, rows, columns, depth];
    let shape = LaunchParams::func_id(0)
        .grid2d(tiles, tiles)
        .block2d(16, 16);
    let ptoxide = median(|| Ok(machine.run(shape, &arguments)?))?;
    let mut c = vec![0.0f32; n * n];
    machine.read(places[2], &mut c);
    check(&c, product)?;
    print("gemm_f32, 256 x 256 x 256 (barriers)", softcuda, ptoxide);
    Ok(())
}

/// Whole numbers around 0, `period` of them over and over.
fn numbers(count: usize, period: usize) -> Vec<f32> {
    let middle = (period / 2) as f32;
    (0..count).map(|i| (i % period) as f32 - middle).collect()
}

fn config(blocks: (u32, u32), threads: (u32, u32)) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (blocks.0, blocks.1, 1),
        block_dim: (threads.0, threads.1, 1),
        shared_mem_bytes: 0,
    }
}

/// The median of 5 runs, after one that does not count.
fn median(mut run: impl FnMut() -> Outcome<()>) -> Outcome<Duration> {
    run()?;
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}

fn check(got: &[f32], want: impl Fn(usize) -> f32) -> Outcome<()> {
    match got
        .iter()
        .enumerate()
        .find(|(i, value)| **value != want(*i))
    {
        Some((i, value)) => {
            Err(format!("element {i} is {value}, and should be {}", want(i)).into())
        }
        None => Ok(()),
    }
}

fn print(work: &str, softcuda: Duration, ptoxide: Duration) {
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let (own, other) = (milliseconds(softcuda), milliseconds(ptoxide));
    println!(
        "| {work} | {own:.3} ms | {other:.1} ms | {:.0} |",
        other / own
    );
}
