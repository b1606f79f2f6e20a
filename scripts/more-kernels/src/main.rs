//! Kernels as CUDA programmers write them, on softcuda beside the same work in Rust with rayon.
//!
//! `cargo run --release --manifest-path scripts/more-kernels/Cargo.toml [-- NAME…]`
//!
//! The kernels of softcuda's own benchmark are those that its compiler was made with. These were
//! written without regard to it, in one go, and then measured: they tell what a kernel may expect
//! that nobody here has seen. Where one is slow, the compiler is to be made better, not the kernel.
//!
//! Each set was written by somebody else. `kernels/*.ptx` is `kernels/*.cu`, compiled by
//! `nvcc -ptx -arch=compute_90 -O3` of CUDA 13.0.

#[macro_use]
mod harness;
mod first;
mod fourth;
mod second;
mod third;

use harness::{Gpu, Outcome};

/// A kernel's name, and what runs it on both sides, checks it and tells the ratio of times.
type Row = (&'static str, fn(&Gpu, &str) -> Outcome<f64>);

/// A set's name, its kernels and its rows.
type Set = (&'static str, &'static str, &'static [&'static [Row]]);

const SETS: [Set; 4] = [
    ("first", include_str!("../kernels/first.ptx"), first::ROWS),
    (
        "second",
        include_str!("../kernels/second.ptx"),
        second::ROWS,
    ),
    ("third", include_str!("../kernels/third.ptx"), third::ROWS),
    (
        "fourth",
        include_str!("../kernels/fourth.ptx"),
        fourth::ROWS,
    ),
];

fn main() -> Outcome<()> {
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("SOFTCUDA_CACHE", "off") };
    let names: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "Medians, and the least, of runs in turn; `compile` is what a first launch takes more."
    );
    let mut all = vec![];
    for (set, ptx, rows) in SETS {
        let rows = rows.concat();
        let asked = |row: &&Row| names.is_empty() || names.iter().any(|name| row.0.contains(name));
        let rows: Vec<&Row> = rows.iter().filter(asked).collect();
        if rows.is_empty() {
            continue;
        }
        let gpu = Gpu::open(ptx)?;
        println!("\n| {set} set | softcuda | Rust | ratio | of the least | compile |");
        println!("|---|---|---|---|---|---|");
        let mut ratios = vec![];
        for (name, run) in rows {
            ratios.push(run(&gpu, name)?);
        }
        print_mean(&ratios);
        all.extend(ratios);
    }
    print_mean(&all);
    Ok(())
}

fn print_mean(ratios: &[f64]) {
    let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len().max(1) as f64;
    println!(
        "\ngeometric mean of {} ratios: {:.2}",
        ratios.len(),
        mean.exp()
    );
}
