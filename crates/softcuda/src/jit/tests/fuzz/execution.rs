//! Damaged kernels, run: whatever a kernel does to memory, barriers and its stack, the process
//! lives and the launch ends.

use super::modules::{Random, loadable, straighten, tree};
use super::{is_limit, refusal, run_cases, seeds, setting};
use crate::grid;
use crate::jit::harness;
use crate::jit::module::{LoadOptions, Module as Loaded};
use crate::memory::{self, Kind};

/// Cases of a plain `cargo test`, and of a whole run the part that is run, too.
const DEFAULT_CASES: u64 = 300;
const SHARE: u64 = 5;

/// Something to pass as a parameter of this size: an address that is right, or nearly, or a number.
pub(super) fn argument(random: &mut Random, size: usize, buffer: u64) -> Vec<u8> {
    let stack = 0u8;
    let word = match random.below(10) {
        0..=5 => buffer,
        6 => buffer + random.below(5000) as u64,
        7 => std::ptr::from_ref(&stack) as u64,
        8 => random.next(),
        _ => random.below(100) as u64,
    };
    word.to_le_bytes().into_iter().cycle().take(size).collect()
}

#[test]
fn damaged_kernels_run() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    let alone = setting("SOFTCUDA_FUZZ_CASE").is_some();
    // A crash takes the process down before it can say which case it was: this says it.
    let loud = alone || std::env::var_os("SOFTCUDA_FUZZ_LOUD").is_some();
    let seeds = seeds();
    let runs = std::sync::atomic::AtomicU64::new(0);
    let faults = std::sync::atomic::AtomicU64::new(0);
    run_cases(cases, |case, random, _| {
        let mut module = seeds.module(random).clone();
        tree::damage(random, &mut module, &seeds);
        straighten(&mut module);
        let module = loadable(module, 5, &refusal);
        let text = module.to_string();
        if loud {
            eprintln!("case {case}");
        }
        if alone {
            println!("{text}");
        }
        let Ok(loaded) = Loaded::load(text.as_bytes(), &LoadOptions::default()) else {
            return Ok(());
        };
        let buffer =
            memory::alloc(memory::Device::FIRST, 4096, 1, Kind::Device).map_err(|_| "no memory")?;
        for kernel in loaded.kernels() {
            match kernel.compile() {
                Ok(_) => {}
                Err(error) if is_limit(&error) => continue,
                Err(error) => return Err(format!("{error}\n{text}")),
            }
            if kernel.attributes.shared_offset > 200 << 10 || kernel.attributes.local > 1 << 20 {
                continue;
            }
            let values: Vec<Vec<u8>> = kernel
                .params
                .iter()
                .map(|field| argument(random, field.size as usize, buffer.base))
                .collect();
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            let block = [[1, 1, 1], [33, 1, 1], [8, 3, 2]][random.below(3)];
            let launch = harness::launch(&loaded, kernel, [2, 1, 1], block, 64, &values);
            let result = grid::run(&launch);
            runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if result.is_err() {
                faults.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        memory::free(buffer.base);
        Ok(())
    });
    println!("{cases} damaged modules: {runs:?} launches, {faults:?} of them ended in a fault");
}
