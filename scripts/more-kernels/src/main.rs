//! Kernels as CUDA programmers write them, on softcuda beside the same work in Rust with rayon.
//!
//! `cargo run --release --manifest-path scripts/more-kernels/Cargo.toml [-- NAME…]`
//!
//! The kernels of softcuda's own benchmark are those that its compiler was made with. These were
//! written without regard to it, in one go, and then measured: they tell what a kernel may expect
//! that nobody here has seen. Where one is slow, the compiler is to be made better, not the kernel.
//!
//! `kernels.ptx` is `kernels.cu`, compiled by `nvcc -ptx -arch=compute_90 -O3` of CUDA 13.0.

#[macro_use]
mod harness;
mod dense;
mod grids;
mod misc;
mod reduce;
mod scans;
mod sparse;
mod stream;

use harness::{Gpu, Outcome};

/// A kernel's name, and what runs it on both sides, checks it and tells the ratio of times.
type Row = (&'static str, fn(&Gpu, &str) -> Outcome<f64>);

fn main() -> Outcome<()> {
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("SOFTCUDA_CACHE", "off") };
    let names: Vec<String> = std::env::args().skip(1).collect();
    let gpu = Gpu::open(include_str!("../kernels.ptx"))?;
    println!(
        "Medians, and the least, of runs in turn; `compile` is what a first launch takes more.\n"
    );
    println!("| kernel | softcuda | Rust | ratio | of the least | compile |");
    println!("|---|---|---|---|---|---|");
    let rows: Vec<Row> = [
        stream::ROWS,
        reduce::ROWS,
        grids::ROWS,
        scans::ROWS,
        sparse::ROWS,
        dense::ROWS,
        misc::ROWS,
    ]
    .concat();
    let asked = |row: &&Row| names.is_empty() || names.iter().any(|name| row.0.contains(name));
    let mut ratios = vec![];
    for (name, run) in rows.iter().filter(asked) {
        ratios.push(run(&gpu, name)?);
    }
    let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len().max(1) as f64;
    println!(
        "\ngeometric mean of {} ratios: {:.2}",
        ratios.len(),
        mean.exp()
    );
    Ok(())
}
