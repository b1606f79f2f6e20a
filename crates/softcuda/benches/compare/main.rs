//! What softcuda costs beside the same work written in Rust with rayon, all in one run: `cargo
//! bench -p softcuda`. With `-- NAME` only rows run whose name contains it; several names add up.
//!
//! Each row runs a kernel of `kernels/` through the driver API and its Rust counterpart on the same
//! data, checks that they agree, and prints the median of several runs. Copies are not timed,
//! except for what a search reads back between its levels. Under the table is the geometric mean of
//! all ratios, then what each kernel took before: its compilation, reading it from the cache of
//! another process, which compiles nothing, and its first launch. The last
//! rows are the cost of an empty launch with synchronize and the time to compile each file; they
//! are left out where names are given. Times are of this machine's CPU; they say nothing about a
//! GPU.

mod dense;
mod device;
mod elements;
mod input;
mod measure;
mod normalize;
mod overhead;
mod sparse;
mod sums;
mod tensor;

use std::error::Error;

use device::Device;
use measure::{Row, geometric_mean, print, verdict};
use overhead::{COMPILE_ONLY, Start, cached, code_sizes};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROWS: &[Row] = &[
    elements::SAXPY,
    elements::BLACK_SCHOLES,
    elements::MANDELBROT,
    elements::STENCIL_5,
    dense::NBODY_PLAIN,
    dense::NBODY_TILED,
    dense::GEMM_TILED,
    dense::GEMM_REGISTERS,
    sparse::THREAD_A_ROW,
    sparse::WARP_A_ROW,
    sparse::SEARCH,
    sums::BLOCK_REDUCTION,
    sums::REDUCTION,
    sums::PREFIX_SUMS,
    sums::BINS,
    normalize::SOFTMAX_ROWS,
    normalize::LAYER_NORM,
];

/// Rows that have no aim, and no part in the mean: one that another row's kernel also does, and
/// tensor cores, whose rounding is computed to the bit.
const MORE_ROWS: &[Row] = &[
    elements::SAXPY_OVER_THE_GRID,
    tensor::GEMM_HALVES,
    tensor::ATTENTION,
];

/// How many times as long as Rust the kernels may take, in the geometric mean.
const AIM: f64 = 2.0;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Cargo adds `--bench` itself.
    let (options, filters): (Vec<_>, Vec<_>) = arguments
        .into_iter()
        .partition(|argument| argument.starts_with('-'));
    let chosen =
        |row: &&Row| filters.is_empty() || filters.iter().any(|name| row.name.contains(name));
    let rows: Vec<&Row> = ROWS.iter().chain(MORE_ROWS).filter(chosen).collect();
    if rows.is_empty() {
        return Err(format!("no row's name contains {}", filters.join(" or ")).into());
    }
    let compile_only = options.iter().any(|option| option == COMPILE_ONLY);
    if !compile_only {
        // SAFETY: there is no other thread yet.
        unsafe { std::env::set_var("SOFTCUDA_CACHE", "off") };
    }
    let device = Device::open()?;
    if compile_only {
        for row in rows {
            let compiled = device.compile(row.kernel)?;
            println!("{} {}", row.kernel.name, compiled.time.as_nanos());
        }
        return Ok(());
    }

    println!(
        "softcuda on {} threads, beside Rust with rayon on as many\n",
        rayon::current_num_threads()
    );
    println!("| work | softcuda | Rust | ratio | aim | |\n|---|---|---|---|---|---|");
    let (mut ratios, mut starts) = (Vec::new(), Vec::new());
    for row in rows {
        let compiled = device.compile(row.kernel)?;
        let measured = (row.run)(&device, &compiled.function)
            .map_err(|error| format!("{}: {error}", row.name))?;
        print(row, &measured);
        if row.aim.is_finite() {
            ratios.push(measured.ratio());
        }
        starts.push(Start {
            kernel: row.kernel,
            compile: compiled.time,
            first: measured.softcuda.first,
            median: measured.softcuda.median,
        });
    }
    let mean = geometric_mean(ratios.iter().copied());
    println!(
        "\ngeometric mean of {} ratios: {mean:.2} (aim {AIM}, {})",
        ratios.len(),
        verdict(mean, AIM)
    );
    overhead::starts(&starts, &code_sizes(&filters)?, &cached(&filters)?);
    if filters.is_empty() {
        overhead::empty_launch(&device)?;
        overhead::files(&device)?;
    }
    Ok(())
}
