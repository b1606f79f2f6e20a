//! Damaged modules: whatever the text, loading it ends soon and in an answer, and what loads
//! compiles.
//!
//! Three kinds of damage: to bytes, to tokens, and to the syntax tree. The last is what gets past
//! the parser: most of its modules are well formed, and many load, so it is names, decoding,
//! lowering and Cranelift that are tried.
//!
//! The damage is pseudo-random from a seed, a case at a time, so that any case can be made again by
//! itself: `SOFTCUDA_FUZZ_CASES` sets the number of cases (a share that takes some seconds by
//! default, 100,000 for a whole run), `SOFTCUDA_FUZZ_SEED` the seed, `SOFTCUDA_FUZZ_CASE` runs one
//! case alone and prints its text.

mod both;
mod divided;
mod execution;
mod masked;
mod modules;
mod products;
mod rewriting;
mod rows;
mod tokens;
mod unrolled;
mod vectors;
mod waiting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub(super) use modules::Random;
use modules::{Seeds, damage, forms, loadable, tree};

use crate::jit::compile::CompileError;
use crate::jit::module::{LoadOptions, Module};

/// Cases of a plain `cargo test`.
const DEFAULT_CASES: u64 = 1_500;
/// The longest that one input may take. Far above what any takes, for machines that do much else.
const PATIENCE: Duration = Duration::from_secs(20);
/// At most this many failures are told of one run.
const TOLD: usize = 10;

/// A number from the environment.
pub(super) fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is no number")),
    )
}

/// Which of many combinations a plain `cargo test` tries: about one in `of`, wherever they lie in
/// the loops. All, where the number of cases is set.
pub(super) struct Sample {
    random: Random,
    of: usize,
}

impl Sample {
    pub fn one_in(of: usize) -> Sample {
        Sample {
            random: Random(of as u64),
            of: setting("SOFTCUDA_FUZZ_CASES").map_or(of, |_| 1),
        }
    }

    /// Whether the next one is tried.
    pub fn takes(&mut self) -> bool {
        self.random.below(self.of) == 0
    }
}

/// What a run of cases found.
#[derive(Default)]
pub(super) struct Tally {
    failures: Mutex<Vec<(u64, String)>>,
    slowest: Mutex<(Duration, u64)>,
    loaded: AtomicU64,
    kernels: AtomicU64,
}

/// Runs `one` for each case on every processor, and fails with what it says of those that went
/// wrong.
///
/// Each case has its own random numbers, so that its outcome does not depend on the others.
pub(super) fn run_cases(
    cases: u64,
    one: impl Fn(u64, &mut Random, &Tally) -> Result<(), String> + Sync,
) -> Tally {
    let seed = setting("SOFTCUDA_FUZZ_SEED").unwrap_or(1);
    let tally = Tally::default();
    let alone = setting("SOFTCUDA_FUZZ_CASE");
    let next = AtomicU64::new(alone.unwrap_or(0));
    let end = alone.map_or(cases, |case| case + 1);
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get().min(8));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let case = next.fetch_add(1, Ordering::Relaxed);
                    if case >= end || tally.failures.lock().len() >= TOLD {
                        return;
                    }
                    let mut random = Random(
                        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
                            .wrapping_add(case << 20),
                    );
                    let start = Instant::now();
                    let result = catch_unwind(AssertUnwindSafe(|| one(case, &mut random, &tally)));
                    let took = start.elapsed();
                    let mut slowest = tally.slowest.lock();
                    *slowest = (*slowest).max((took, case));
                    drop(slowest);
                    let failure = match result {
                        Ok(Ok(())) if took > PATIENCE => format!("it took {took:?}"),
                        Ok(Ok(())) => continue,
                        Ok(Err(failure)) => failure,
                        Err(_) => "a panic, told above".to_owned(),
                    };
                    tally.failures.lock().push((case, failure));
                }
            });
        }
    });
    let failures = tally.failures.lock();
    let mut text = String::new();
    for (case, failure) in failures.iter() {
        text += &format!("case {case} of seed {seed}: {failure}\n");
    }
    assert!(failures.is_empty(), "{text}");
    drop(failures);
    tally
}

impl Tally {
    /// A line for those who watch.
    fn tell(&self, what: &str, cases: u64) {
        let (slowest, case) = *self.slowest.lock();
        println!(
            "{cases} {what}: {} loaded, {} kernels compiled; the slowest, case {case}, took {slowest:?}",
            self.loaded.load(Ordering::Relaxed),
            self.kernels.load(Ordering::Relaxed),
        );
    }
}

/// Loads a text and compiles every kernel of it. What must not happen is an error.
fn load_and_compile(text: &[u8], tally: &Tally) -> Result<(), String> {
    let loaded = catch_unwind(|| Module::load(text, &LoadOptions::default()))
        .map_err(|_| "loading it panics".to_owned())?;
    let module = match loaded {
        Ok(module) => module,
        Err(error) if error.log.is_empty() => return Err("it is refused without a log".into()),
        Err(_) => return Ok(()),
    };
    tally.loaded.fetch_add(1, Ordering::Relaxed);
    for kernel in module.kernels() {
        match kernel.compile() {
            Ok(_) => drop(tally.kernels.fetch_add(1, Ordering::Relaxed)),
            Err(error) if is_limit(&error) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// What the loader says of a text that it refuses, or of which something is not run.
fn refusal(text: &str) -> Option<String> {
    match Module::load(text.as_bytes(), &LoadOptions::default()) {
        Ok(module) if module.warnings.is_empty() => None,
        Ok(module) => Some(module.warnings.clone()),
        Err(error) => Some(error.log),
    }
}

/// What damage starts from.
fn seeds() -> Seeds {
    Seeds::new(&refusal)
}

/// What the compiler may say of a module that was checked: that something of it is too large, or
/// not run.
fn is_limit(error: &CompileError) -> bool {
    let what = error.to_string();
    error.unsupported
        || [
            "are too many",
            "is too large",
            "too much shared memory",
            "CodeTooLarge",
            "ImplLimitExceeded",
        ]
        .iter()
        .any(|limit| what.contains(limit))
}

/// The damaged text of a case.
fn damaged(case: u64, random: &mut Random, seeds: &Seeds) -> Vec<u8> {
    match case % 10 {
        0 | 1 => {
            let mut text = seeds.text(random).as_bytes().to_vec();
            let other = seeds.text(random).as_bytes();
            damage::damage(random, &mut text, other);
            text
        }
        2 | 3 => {
            let (text, other) = (seeds.text(random), seeds.text(random));
            tokens::damage(random, text, other).into_bytes()
        }
        _ => {
            let mut module = seeds.module(random).clone();
            tree::damage(random, &mut module, seeds);
            if random.below(4) != 0 {
                module = loadable(module, 5, &refusal);
            }
            module.to_string().into_bytes()
        }
    }
}

#[test]
fn damaged_modules() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").unwrap_or(DEFAULT_CASES);
    let seeds = seeds();
    let alone = setting("SOFTCUDA_FUZZ_CASE").is_some();
    let tally = run_cases(cases, |case, random, tally| {
        let text = damaged(case, random, &seeds);
        if alone {
            println!("{}", String::from_utf8_lossy(&text));
        }
        load_and_compile(&text, tally).map_err(|what| {
            let text = String::from_utf8_lossy(&text);
            let most = text.floor_char_boundary(6000);
            format!("{what}\n{}", &text[..most])
        })
    });
    tally.tell("damaged modules", cases);
    // Damage that never or always breaks the module would test little.
    let loaded = tally.loaded.load(Ordering::Relaxed);
    assert!(
        alone || (loaded > cases / 10 && loaded < cases * 9 / 10),
        "{loaded} of {cases} load"
    );
}

/// What the damage starts from is sound: every seed loads and compiles as it is.
#[test]
fn seeds_compile() {
    let seeds = seeds();
    let mut sample = Sample::one_in(3);
    let (mut tried, mut refused) = (0, vec![]);
    for module in seeds.modules() {
        if !sample.takes() {
            continue;
        }
        tried += 1;
        let tally = Tally::default();
        let text = module.to_string();
        if let Err(what) = load_and_compile(text.as_bytes(), &tally) {
            panic!("{what}\n{text}");
        }
        refused.extend(refusal(&text));
    }
    let most = tried / 4;
    assert!(
        refused.len() <= most,
        "{} of {tried} seeds are refused:\n{}",
        refused.len(),
        refused.join("\n")
    );
}

/// Nearly all forms are ones that are run: a family that is refused as a whole would go untested.
#[test]
fn forms_load() {
    let (all, declarations) = (forms::instructions(), forms::DECLARATIONS);
    let mut refused = vec![];
    for instruction in &all {
        let source = format!(
            ".version 8.8\n.target sm_90a\n.address_size 64\n.entry forms() {{ {declarations}\n{};\n}}",
            instruction.to_string().trim_end_matches(';')
        );
        if let Some(log) = refusal(&source) {
            refused.push(log.lines().next().unwrap_or_default().to_owned());
        }
    }
    println!("{}", refused.join("\n"));
    assert!(
        refused.len() < all.len() / 8,
        "{} of {} are refused",
        refused.len(),
        all.len()
    );
}
