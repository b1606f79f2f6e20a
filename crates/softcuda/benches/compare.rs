//! What softcuda costs beside the same work written in Rust with rayon, all in one run: `cargo
//! bench -p softcuda`.
//!
//! Each row runs a kernel of `kernels/` through the driver API and its Rust counterpart on the same
//! data, checks that they agree, and prints the median of several runs. Copies are not timed. The
//! last rows are the cost of an empty launch with synchronize and the time to compile each kernel.
//! Times are of this machine's CPU; they say nothing about a GPU.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaStream, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use rayon::prelude::*;

type Outcome<T> = Result<T, Box<dyn Error>>;

const ELEMENTWISE: &str = include_str!("../../../kernels/ptx/elementwise.ptx");
const NBODY: &str = include_str!("../../../kernels/ptx/nbody.ptx");
const GEMM: &str = include_str!("../../../kernels/ptx/gemm.ptx");
const REDUCE: &str = include_str!("../../../kernels/ptx/reduce.ptx");
const SOFTMAX: &str = include_str!("../../../kernels/ptx/softmax.ptx");
const SPMV: &str = include_str!("../../../kernels/ptx/spmv.ptx");
const EMPTY: &str =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n";

struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

impl Device {
    fn open() -> Outcome<Device> {
        softcuda::install()?;
        let context = CudaContext::new(0)?;
        let stream = context.default_stream();
        Ok(Device { context, stream })
    }

    fn module(&self, source: &str) -> Outcome<Arc<CudaModule>> {
        Ok(self.context.load_module(Ptx::from_src(source))?)
    }

    fn function(&self, source: &str, name: &str) -> Outcome<CudaFunction> {
        Ok(self.module(source)?.load_function(name)?)
    }
}

/// The median time of `run`, over at least 5 runs and about half a second.
fn median(mut run: impl FnMut() -> Outcome<()>) -> Outcome<Duration> {
    run()?;
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5
        || (started.elapsed() < Duration::from_millis(500) && times.len() < 10_000)
    {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}

fn row(name: &str, softcuda: Duration, rust: Duration, aim: f64) {
    let ratio = softcuda.as_secs_f64() / rust.as_secs_f64();
    let verdict = if ratio <= aim { "met" } else { "missed" };
    println!(
        "| {name} | {:.3} ms | {:.3} ms | {ratio:.2} | {aim} | {verdict} |",
        softcuda.as_secs_f64() * 1e3,
        rust.as_secs_f64() * 1e3,
    );
}

/// Numbers in [-1, 1), the same on every run.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..count)
        .map(|_| (next() >> 40) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

fn check(name: &str, got: &[f32], want: &[f32], tolerance: f32) -> Outcome<()> {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let near = (got - want).abs() <= tolerance * want.abs().max(1.0);
        if !near {
            return Err(format!("{name}: element {i} is {got}, in Rust it is {want}").into());
        }
    }
    Ok(())
}

fn config(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (blocks, 1, 1),
        block_dim: (threads, 1, 1),
        shared_mem_bytes: 0,
    }
}

fn streaming(device: &Device) -> Outcome<()> {
    let n = 1 << 24;
    let (x, y) = (noise(n, 1), noise(n, 2));
    let function = device.function(ELEMENTWISE, "saxpy")?;
    let stream = &device.stream;
    let (x_device, mut y_device) = (stream.clone_htod(&x)?, stream.clone_htod(&y)?);
    let mut launch = |a: f32| -> Outcome<()> {
        let count = n as u32;
        let mut call = stream.launch_builder(&function);
        call.arg(&a).arg(&x_device).arg(&mut y_device).arg(&count);
        // SAFETY: the arguments are those of `saxpy`, and both buffers hold `n` elements.
        unsafe { call.launch(config(n as u32 / 256, 256)) }?;
        Ok(stream.synchronize()?)
    };
    launch(2.0)?;
    let soft = median(|| launch(0.0))?;
    let mut host = y.clone();
    let mut rust = |a: f32| {
        host.par_iter_mut()
            .zip(&x)
            .with_min_len(1 << 14)
            .for_each(|(y, x)| *y += a * *x)
    };
    rust(2.0);
    let rust_time = median(|| {
        rust(black_box(0.0));
        Ok(())
    })?;
    check("streaming", &stream.clone_dtoh(&y_device)?, &host, 1e-6)?;
    row("streaming: saxpy, 16 M floats", soft, rust_time, 2.0);
    Ok(())
}

fn bodies(position: &[f32], softening: f32) -> Vec<f32> {
    let (all, _) = position.as_chunks::<4>();
    all.par_iter()
        .flat_map_iter(|me| {
            let mut force = [0.0f32; 4];
            for other in all {
                let (dx, dy, dz) = (other[0] - me[0], other[1] - me[1], other[2] - me[2]);
                let r = 1.0 / (dx * dx + dy * dy + dz * dz + softening).sqrt();
                let s = other[3] * r * r * r;
                force[0] += dx * s;
                force[1] += dy * s;
                force[2] += dz * s;
            }
            force[3] = me[3];
            force
        })
        .collect()
}

fn nbody_tiled(device: &Device) -> Outcome<()> {
    let n = 4096;
    let position: Vec<f32> = noise(4 * n, 3);
    let function = device.function(NBODY, "nbody")?;
    let stream = &device.stream;
    let position_device = stream.clone_htod(&position)?;
    let mut force = stream.alloc_zeros::<f32>(4 * n)?;
    let softening = 0.01f32;
    let soft = median(|| {
        let count = n as u32;
        let mut call = stream.launch_builder(&function);
        call.arg(&position_device)
            .arg(&mut force)
            .arg(&count)
            .arg(&softening);
        // SAFETY: the arguments are those of `nbody`, and both buffers hold `n` bodies.
        unsafe { call.launch(config(n as u32 / 64, 64)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut host = Vec::new();
    let rust = median(|| {
        host = bodies(black_box(&position), softening);
        Ok(())
    })?;
    check("n-body", &stream.clone_dtoh(&force)?, &host, 1e-3)?;
    row(
        "n-body f32 through a shared tile, 4,096 bodies (barriers)",
        soft,
        rust,
        10.0,
    );
    Ok(())
}

fn nbody_plain(device: &Device) -> Outcome<()> {
    let n = 2048;
    let position: Vec<f64> = noise(4 * n, 4).into_iter().map(f64::from).collect();
    let function = device.function(NBODY, "nbody_f64")?;
    let stream = &device.stream;
    let position_device = stream.clone_htod(&position)?;
    let mut force = stream.alloc_zeros::<f64>(3 * n)?;
    let softening = 0.01f64;
    let soft = median(|| {
        let count = n as u32;
        let mut call = stream.launch_builder(&function);
        call.arg(&position_device)
            .arg(&mut force)
            .arg(&count)
            .arg(&softening);
        // SAFETY: the arguments are those of `nbody_f64`, and the buffers hold `n` bodies.
        unsafe { call.launch(config(n as u32 / 64, 64)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut host: Vec<f64> = Vec::new();
    let rust = median(|| {
        let (all, _) = black_box(&position[..]).as_chunks::<4>();
        host = all
            .par_iter()
            .flat_map_iter(|me| {
                let mut force = [0.0f64; 3];
                for other in all {
                    let (dx, dy, dz) = (other[0] - me[0], other[1] - me[1], other[2] - me[2]);
                    let d = dx * dx + dy * dy + dz * dz + softening;
                    let s = other[3] / (d * d.sqrt());
                    force[0] += dx * s;
                    force[1] += dy * s;
                    force[2] += dz * s;
                }
                force
            })
            .collect();
        Ok(())
    })?;
    // In Rust the products are rounded before they are added: without target features it has no
    // fused multiply-add but a slow call.
    for (got, want) in stream.clone_dtoh(&force)?.iter().zip(&host) {
        if (got - want).abs() > 1e-9 * want.abs().max(1.0) {
            return Err(format!("n-body f64: {got} is {want} in Rust").into());
        }
    }
    row("n-body f64, 2,048 bodies (arithmetic)", soft, rust, 2.0);
    Ok(())
}

fn gemm(device: &Device) -> Outcome<()> {
    let n = 512;
    let (a, b) = (noise(n * n, 5), noise(n * n, 6));
    let function = device.function(GEMM, "gemm_f32")?;
    let stream = &device.stream;
    let (a_device, b_device) = (stream.clone_htod(&a)?, stream.clone_htod(&b)?);
    let mut c_device = stream.alloc_zeros::<f32>(n * n)?;
    let soft = median(|| {
        let size = n as u32;
        let mut call = stream.launch_builder(&function);
        call.arg(&a_device)
            .arg(&b_device)
            .arg(&mut c_device)
            .arg(&size)
            .arg(&size)
            .arg(&size);
        let blocks = n as u32 / 16;
        // SAFETY: the arguments are those of `gemm_f32`, and the buffers hold `n` by `n` elements.
        unsafe {
            call.launch(LaunchConfig {
                grid_dim: (blocks, blocks, 1),
                block_dim: (16, 16, 1),
                shared_mem_bytes: 0,
            })
        }?;
        Ok(stream.synchronize()?)
    })?;
    let mut c = vec![0.0f32; n * n];
    // The same tiling: 16 rows at a time against 16 rows of B, the inner loop along a row of B and
    // C.
    let rust = median(|| {
        let (a, b) = (black_box(&a), black_box(&b));
        c.par_chunks_mut(16 * n).enumerate().for_each(|(tile, c)| {
            c.fill(0.0);
            for k0 in (0..n).step_by(16) {
                for (row, c) in c.chunks_exact_mut(n).enumerate() {
                    for k in k0..k0 + 16 {
                        let a = a[(tile * 16 + row) * n + k];
                        for (c, b) in c.iter_mut().zip(&b[k * n..(k + 1) * n]) {
                            *c += a * b;
                        }
                    }
                }
            }
        });
        Ok(())
    })?;
    check("gemm", &stream.clone_dtoh(&c_device)?, &c, 1e-3)?;
    row(
        "tiled GEMM f32, 512 x 512 x 512 (barriers)",
        soft,
        rust,
        10.0,
    );
    Ok(())
}

fn reduction(device: &Device) -> Outcome<()> {
    let n: usize = 1 << 22;
    let input = noise(n, 7);
    let function = device.function(REDUCE, "reduce_shared_f32")?;
    let stream = &device.stream;
    let input_device = stream.clone_htod(&input)?;
    let blocks = n / 256;
    let mut sums = stream.alloc_zeros::<f32>(blocks)?;
    let soft = median(|| {
        let count = n as u32;
        let mut call = stream.launch_builder(&function);
        call.arg(&input_device).arg(&mut sums).arg(&count);
        // SAFETY: the arguments are those of `reduce_shared_f32`; `sums` has an element for each
        // block.
        unsafe {
            call.launch(LaunchConfig {
                shared_mem_bytes: 4 * 256,
                ..config(blocks as u32, 256)
            })
        }?;
        Ok(stream.synchronize()?)
    })?;
    let mut host = vec![0.0f32; blocks];
    let rust = median(|| {
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
        Ok(())
    })?;
    check("reduction", &stream.clone_dtoh(&sums)?, &host, 1e-5)?;
    row(
        "block reduction f32, 4 M in blocks of 256 (9 barriers)",
        soft,
        rust,
        10.0,
    );
    Ok(())
}

fn reduction_by_shuffles(device: &Device) -> Outcome<()> {
    let n: usize = 1 << 22;
    let input = noise(n, 8);
    let function = device.function(REDUCE, "reduce_shuffle_f32")?;
    let stream = &device.stream;
    let input_device = stream.clone_htod(&input)?;
    let blocks = n / 256;
    let mut sums = stream.alloc_zeros::<f32>(blocks)?;
    let soft = median(|| {
        let count = n as u32;
        let mut call = stream.launch_builder(&function);
        call.arg(&input_device).arg(&mut sums).arg(&count);
        // SAFETY: the arguments are those of `reduce_shuffle_f32`; `sums` has an element for each
        // block.
        unsafe { call.launch(config(blocks as u32, 256)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut host = vec![0.0f32; blocks];
    let rust = median(|| {
        let (chunks, _) = black_box(&input[..]).as_chunks::<256>();
        host.par_iter_mut()
            .zip(chunks)
            .with_min_len(64)
            .for_each(|(sum, chunk)| *sum = chunk.iter().sum());
        Ok(())
    })?;
    check(
        "reduction by shuffles",
        &stream.clone_dtoh(&sums)?,
        &host,
        1e-4,
    )?;
    row(
        "block reduction f32, 4 M in blocks of 256 (5 shuffles, 1 barrier)",
        soft,
        rust,
        10.0,
    );
    Ok(())
}

fn softmax(device: &Device) -> Outcome<()> {
    let (rows, width) = (8192usize, 256usize);
    let input = noise(rows * width, 9);
    let function = device.function(SOFTMAX, "softmax_online")?;
    let stream = &device.stream;
    let input_device = stream.clone_htod(&input)?;
    let mut output = stream.alloc_zeros::<f32>(rows * width)?;
    let soft = median(|| {
        let (columns, count) = (width as u32, rows as u32);
        let mut call = stream.launch_builder(&function);
        call.arg(&input_device)
            .arg(&mut output)
            .arg(&columns)
            .arg(&count);
        // SAFETY: the arguments are those of `softmax_online`, with a warp for each row.
        unsafe {
            call.launch(LaunchConfig {
                block_dim: (32, 8, 1),
                ..config(rows as u32 / 8, 256)
            })
        }?;
        Ok(stream.synchronize()?)
    })?;
    let mut host = vec![0.0f32; rows * width];
    let rust = median(|| {
        host.par_chunks_mut(width)
            .zip(black_box(&input[..]).par_chunks(width))
            .with_min_len(64)
            .for_each(|(out, row)| {
                let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f32 = row.iter().map(|v| (v - top).exp()).sum();
                for (out, v) in out.iter_mut().zip(row) {
                    *out = (v - top).exp() / sum;
                }
            });
        Ok(())
    })?;
    check("softmax", &stream.clone_dtoh(&output)?, &host, 1e-5)?;
    row(
        "softmax f32, 8192 rows of 256, a warp each (10 shuffles)",
        soft,
        rust,
        10.0,
    );
    Ok(())
}

fn sparse(device: &Device) -> Outcome<()> {
    // The 5-point Laplacian on a square grid.
    let side = 1024usize;
    let rows = side * side;
    let (mut offsets, mut columns, mut values) = (vec![0u32], Vec::new(), Vec::new());
    for row in 0..rows {
        let (i, j) = (row / side, row % side);
        let neighbours = [
            (i > 0).then(|| row - side),
            (j > 0).then(|| row - 1),
            Some(row),
            (j + 1 < side).then(|| row + 1),
            (i + 1 < side).then(|| row + side),
        ];
        for column in neighbours.into_iter().flatten() {
            columns.push(column as u32);
            values.push(if column == row { 4.0f32 } else { -1.0 });
        }
        offsets.push(columns.len() as u32);
    }
    let x = noise(rows, 8);
    let function = device.function(SPMV, "spmv_scalar")?;
    let stream = &device.stream;
    let (offsets_device, columns_device) =
        (stream.clone_htod(&offsets)?, stream.clone_htod(&columns)?);
    let (values_device, x_device) = (stream.clone_htod(&values)?, stream.clone_htod(&x)?);
    let mut y_device = stream.alloc_zeros::<f32>(rows)?;
    let soft = median(|| {
        let count = rows as u32;
        let mut call = stream.launch_builder(&function);
        call.arg(&offsets_device)
            .arg(&columns_device)
            .arg(&values_device)
            .arg(&x_device)
            .arg(&mut y_device)
            .arg(&count);
        // SAFETY: the arguments are those of `spmv_scalar` and describe one matrix of `rows` rows.
        unsafe { call.launch(config(rows as u32 / 256, 256)) }?;
        Ok(stream.synchronize()?)
    })?;
    let mut y = vec![0.0f32; rows];
    let rust = median(|| {
        let (offsets, columns, values, x) = (&offsets, &columns, &values, black_box(&x));
        y.par_iter_mut()
            .enumerate()
            .with_min_len(1 << 12)
            .for_each(|(row, y)| {
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                *y = columns[range.clone()]
                    .iter()
                    .zip(&values[range])
                    .fold(0.0, |sum: f32, (&column, &value)| {
                        sum + value * x[column as usize]
                    });
            });
        Ok(())
    })?;
    check("sparse", &stream.clone_dtoh(&y_device)?, &y, 1e-5)?;
    row("sparse mat-vec CSR f32, 1 M rows of 5", soft, rust, 2.0);
    Ok(())
}

fn empty_launch(device: &Device) -> Outcome<()> {
    let function = device.function(EMPTY, "empty")?;
    let one = median(|| {
        // SAFETY: the kernel takes no arguments.
        unsafe { device.stream.launch_builder(&function).launch(config(1, 1)) }?;
        Ok(device.stream.synchronize()?)
    })?;
    let submit = median(|| {
        for _ in 0..1000 {
            // SAFETY: the kernel takes no arguments.
            unsafe { device.stream.launch_builder(&function).launch(config(1, 1)) }?;
        }
        Ok(device.stream.synchronize()?)
    })?;
    println!(
        "\nempty launch with synchronize: {:.2} µs (aim 20)",
        one.as_secs_f64() * 1e6
    );
    println!(
        "1,000 empty launches, then synchronize: {:.2} µs each",
        submit.as_secs_f64() * 1e3
    );
    Ok(())
}

/// The names of the kernels that a PTX file defines.
fn entries(source: &str) -> Vec<&str> {
    source
        .split(".entry ")
        .skip(1)
        .filter_map(|rest| rest.split(['(', '\n']).next())
        .map(str::trim)
        .collect()
}

fn compile_times(device: &Device) -> Outcome<()> {
    println!("\n| PTX file | load: parse and check | kernels | compile, each |\n|---|---|---|---|");
    for (name, source) in [
        ("elementwise", ELEMENTWISE),
        ("n-body", NBODY),
        ("gemm", GEMM),
        ("reduce", REDUCE),
        ("softmax", SOFTMAX),
        ("spmv", SPMV),
    ] {
        let start = Instant::now();
        let module = device.module(source)?;
        let load = start.elapsed();
        let kernels = entries(source);
        let start = Instant::now();
        for kernel in &kernels {
            let function = module.load_function(kernel)?;
            // SAFETY: the handle is the live function's; loading it is what compiles it.
            unsafe { cudarc::driver::sys::cuFuncLoad(function.cu_function()) }.result()?;
        }
        let each = start.elapsed() / kernels.len() as u32;
        println!(
            "| {name} ({} KiB) | {:.2} ms | {} | {:.2} ms |",
            source.len() / 1024,
            load.as_secs_f64() * 1e3,
            kernels.len(),
            each.as_secs_f64() * 1e3
        );
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let device = Device::open()?;
    println!(
        "softcuda on {} threads, beside Rust with rayon on as many\n",
        rayon::current_num_threads()
    );
    println!("| work | softcuda | Rust | ratio | aim | |\n|---|---|---|---|---|---|");
    streaming(&device)?;
    nbody_plain(&device)?;
    sparse(&device)?;
    nbody_tiled(&device)?;
    gemm(&device)?;
    reduction(&device)?;
    reduction_by_shuffles(&device)?;
    softmax(&device)?;
    empty_launch(&device)?;
    compile_times(&device)
}
