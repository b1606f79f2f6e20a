//! Damaged kernels with a guard or a wait in front (`ptx::rewrite`), beside what they were: with
//! the flag up they do the same to every byte, with the flag down nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ptx::rewrite::{Rewrite, Rewriter};

use super::execution::argument;
use super::modules::{loadable, loads_results, straighten, tree};
use super::{is_limit, refusal, run_cases, seeds, setting};
use crate::grid;
use crate::jit::harness;
use crate::jit::module::{Kernel, LoadOptions, Module as Loaded};
use crate::memory::{self, Kind};

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 200;
const SHARE: u64 = 10;

const BYTES: usize = 4096;

/// A launch: its shape and its arguments.
struct Shape {
    block: [u32; 3],
    values: Vec<Vec<u8>>,
    /// What the buffer holds before.
    filled: Vec<u8>,
}

/// What a launch leaves in the buffer at `base`, and whether it ended in a fault.
fn outcome(
    module: &Arc<Loaded>,
    kernel: &Kernel,
    shape: &Shape,
    flag: Option<u64>,
    base: u64,
) -> (Vec<u8>, bool) {
    // SAFETY: the allocation has as many bytes, and no launch is in flight.
    unsafe { std::ptr::copy_nonoverlapping(shape.filled.as_ptr(), base as *mut u8, BYTES) };
    let flag = flag.map(u64::to_le_bytes);
    let values: Vec<&[u8]> = (shape.values.iter().map(Vec::as_slice))
        .chain(flag.iter().map(<[u8; 8]>::as_slice))
        .collect();
    let launch = harness::launch(module, kernel, [1, 1, 1], shape.block, 64, &values);
    let is_fault = grid::run(&launch).is_err();
    let mut bytes = vec![0; BYTES];
    // SAFETY: as above; the launch is over.
    unsafe { std::ptr::copy_nonoverlapping(base as *const u8, bytes.as_mut_ptr(), BYTES) };
    (bytes, is_fault)
}

fn runs(kernel: &Kernel) -> Result<bool, String> {
    match kernel.compile() {
        Ok(_) => {}
        Err(error) if is_limit(&error) => return Ok(false),
        Err(error) => return Err(error.to_string()),
    }
    Ok(kernel.attributes.shared_offset <= 200 << 10 && kernel.attributes.local <= 1 << 20)
}

#[test]
fn rewritten_kernels_do_the_same() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    let alone = setting("SOFTCUDA_FUZZ_CASE").is_some();
    let seeds = seeds();
    let [compared, faults, refused, unsteady] = [const { AtomicU64::new(0) }; 4];
    run_cases(cases, |_, random, _| {
        let mut module = seeds.module(random).clone();
        let is_damaged = random.below(4) != 0;
        if is_damaged {
            tree::damage(random, &mut module, &seeds);
        }
        let whole = (!is_damaged).then(|| module.to_string());
        straighten(&mut module);
        let module = loadable(module, 5, &refusal);
        let text = module.to_string();
        let is_changed = whole.is_none_or(|whole| whole != text);
        if is_changed && loads_results(&module) {
            return Ok(());
        }
        if alone {
            println!("{text}");
        }
        let Ok(loaded) = Loaded::load(text.as_bytes(), &LoadOptions::default()) else {
            return Ok(());
        };
        let rewriter = Rewriter::new(&*text).map_err(|errors| errors.to_string())?;
        let buffer = memory::alloc(memory::Device::FIRST, BYTES as u64, 1, Kind::Device)
            .map_err(|_| "no memory")?;
        let flag =
            memory::alloc(memory::Device::FIRST, 4, 1, Kind::Device).map_err(|_| "no memory")?;
        for kernel in loaded.kernels() {
            let (guard, wait) = [(true, false), (true, true), (false, true)][random.below(3)];
            let rewrite = Rewrite {
                kernel: &kernel.name,
                guard,
                wait,
                trigger: false,
                name: "rewritten",
            };
            let Ok(text) = rewriter.rewrite(&[rewrite]) else {
                refused.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            if alone {
                println!("{text}");
            }
            let new = Loaded::load(text.as_bytes(), &LoadOptions::default())
                .map_err(|error| format!("{}\n{text}", error.log))?;
            let rewritten = new.kernel("rewritten").ok_or("it is not there")?;
            if !runs(kernel)? || !runs(rewritten)? {
                continue;
            }
            let shape = Shape {
                block: [[1, 1, 1], [33, 1, 1], [8, 3, 2]][random.below(3)],
                values: kernel
                    .params
                    .iter()
                    .map(|field| argument(random, field.size as usize, buffer.base))
                    .collect(),
                filled: (0..BYTES).map(|_| random.next() as u8).collect(),
            };
            let set = |word: u32| {
                // SAFETY: the allocation has four bytes, and no launch is in flight.
                unsafe { (flag.base as *mut u32).write(word) };
            };
            let was = || outcome(&loaded, kernel, &shape, None, buffer.base);
            let is = || {
                outcome(
                    &new,
                    rewritten,
                    &shape,
                    guard.then_some(flag.base),
                    buffer.base,
                )
            };
            // Clocks, and memory that nobody wrote, give one thing now and another then.
            let expected = was();
            if was() != expected {
                unsteady.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            set(1 << random.below(32));
            // What faults has no meaning to keep: a load past the parameters finds one more.
            let is_fault = expected.1;
            let count = if is_fault { &faults } else { &compared };
            count.fetch_add(1, Ordering::Relaxed);
            if !is_fault
                && is() != expected
                && (0..4).all(|_| was() == expected)
                && is() != expected
            {
                return Err(format!("`{}` does something else\n{text}", kernel.name));
            }
            set(0);
            if guard && is() != (shape.filled.clone(), false) {
                return Err(format!("`{}` runs with its flag down\n{text}", kernel.name));
            }
        }
        memory::free(flag.base);
        memory::free(buffer.base);
        Ok(())
    });
    println!(
        "{compared:?} kernels compared; {faults:?} fault, {refused:?} are refused, \
         {unsteady:?} unsteady"
    );
    let compared = compared.load(Ordering::Relaxed);
    assert!(
        alone || compared >= cases / 8,
        "{compared} of {cases} were compared"
    );
}
