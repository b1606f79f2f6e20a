//! Device, timing, checks, inputs.
use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, LaunchConfig};
use cudarc::nvrtc::Ptx;

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// The device, and the kernels.
pub struct Gpu {
    pub stream: Arc<CudaStream>,
    pub module: Arc<CudaModule>,
}

impl Gpu {
    pub fn open(ptx: &str) -> Outcome<Gpu> {
        softcuda::install()?;
        let context = CudaContext::new(0)?;
        let stream = context.default_stream();
        let module = context.load_module(Ptx::from_src(ptx))?;
        Ok(Gpu { stream, module })
    }

    pub fn kernel(&self, name: &str) -> Outcome<CudaFunction> {
        Ok(self.module.load_function(name)?)
    }

    /// A grid of blocks of these sizes over a plane.
    pub fn plane(&self, w: usize, h: usize, bx: usize, by: usize) -> LaunchConfig {
        shape((w.div_ceil(bx), h.div_ceil(by), 1), (bx, by, 1))
    }

    /// A grid with a thread for each of `n`.
    pub fn cover(&self, n: usize, threads: usize) -> LaunchConfig {
        line(n.div_ceil(threads), threads)
    }
}

pub fn shape(grid: (usize, usize, usize), block: (usize, usize, usize)) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (grid.0 as u32, grid.1 as u32, grid.2 as u32),
        block_dim: (block.0 as u32, block.1 as u32, block.2 as u32),
        shared_mem_bytes: 0,
    }
}

pub fn line(blocks: usize, threads: usize) -> LaunchConfig {
    shape((blocks, 1, 1), (threads, 1, 1))
}

#[macro_export]
macro_rules! launch {
    ($gpu:expr, $f:expr, $config:expr, $($arg:expr),+ $(,)?) => {{
        let mut call = $gpu.stream.launch_builder(&$f);
        $(call.arg($arg);)+
        let config = $config;
        // SAFETY: the arguments are those of the kernel, and arrays have what its threads access.
        unsafe { call.launch(config) }?;
    }};
}

/// What was measured of a row.
pub struct Times {
    pub name: String,
    first: Duration,
    gpu: Vec<Duration>,
    rust: Vec<Duration>,
}

/// Runs both in turn, the same number of times each.
pub fn race(
    name: &str,
    mut gpu: impl FnMut() -> Outcome<()>,
    mut rust: impl FnMut(),
) -> Outcome<Times> {
    let mut once_gpu = || -> Outcome<Duration> {
        let start = Instant::now();
        gpu()?;
        Ok(start.elapsed())
    };
    let mut once_rust = || {
        let start = Instant::now();
        rust();
        start.elapsed()
    };
    let first = once_gpu()?;
    once_rust();
    once_gpu()?;
    once_rust();
    let (mut g, mut r) = (Vec::new(), Vec::new());
    let started = Instant::now();
    while g.len() < 18 || (started.elapsed() < Duration::from_millis(700) && g.len() < 400) {
        for _ in 0..3 {
            g.push(once_gpu()?);
        }
        for _ in 0..3 {
            r.push(once_rust());
        }
    }
    g.sort();
    r.sort();
    Ok(Times {
        name: name.into(),
        first,
        gpu: g,
        rust: r,
    })
}

fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

impl Times {
    /// Prints the row if the results were right. The ratio of medians.
    pub fn print(&self, checked: Outcome<()>) -> Outcome<f64> {
        let name = &self.name;
        checked.map_err(|error| format!("{name}: {error}"))?;
        let middle = |times: &[Duration]| ms(times[times.len() / 2]);
        let (gpu, rust) = (middle(&self.gpu), middle(&self.rust));
        let (least, compile) = (ms(self.gpu[0]) / ms(self.rust[0]), ms(self.first) - gpu);
        let ratio = gpu / rust;
        println!(
            "| {name} | {gpu:.3} ms | {rust:.3} ms | {ratio:.2} | {least:.2} | {compile:.0} ms |"
        );
        Ok(ratio)
    }
}

pub fn check<T: Copy + Display + Into<f64>>(got: &[T], want: &[T], tolerance: f64) -> Outcome<()> {
    check_some(got, want, tolerance, 0.0)
}

/// As many as `part` of the values may differ.
pub fn check_some<T: Copy + Display + Into<f64>>(
    got: &[T],
    want: &[T],
    tolerance: f64,
    part: f64,
) -> Outcome<()> {
    if got.len() != want.len() {
        return Err(format!("{} elements, in Rust {}", got.len(), want.len()).into());
    }
    let mut bad = 0;
    let mut first = None;
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let (gf, wf): (f64, f64) = (g.into(), w.into());
        let near = (gf - wf).abs() <= tolerance * wf.abs().max(1.0);
        if !near {
            bad += 1;
            first.get_or_insert((i, g, w));
        }
    }
    match first {
        Some((i, g, w)) if bad as f64 > part * got.len() as f64 => {
            Err(format!("{bad} differ, element {i} is {g}, in Rust {w}").into())
        }
        _ => Ok(()),
    }
}

pub fn words(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

pub fn noise(count: usize, seed: u64) -> Vec<f32> {
    words(seed)
        .take(count)
        .map(|w| (w >> 40) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

pub fn noise64(count: usize, seed: u64) -> Vec<f64> {
    noise(count, seed).into_iter().map(f64::from).collect()
}

pub fn between(from: f32, to: f32, count: usize, seed: u64) -> Vec<f32> {
    noise(count, seed)
        .into_iter()
        .map(|x| from + (to - from) * (x + 1.0) / 2.0)
        .collect()
}

pub fn below(limit: u32, count: usize, seed: u64) -> Vec<i32> {
    words(seed)
        .take(count)
        .map(|w| ((w >> 32) as u32 % limit) as i32)
        .collect()
}
