//! Damaged sources: whatever happens to the text, parsing ends soon and in an answer; and where it
//! still parses, the tree prints and parses to itself.
//!
//! The damage is pseudo-random from a fixed seed, so that a run can be repeated. `PTX_FUZZ_CASES`
//! sets the number of cases (20,000 by default), `PTX_FUZZ_SEED` the seed.

use std::time::{Duration, Instant};

use crate::corpus;
use crate::damage::{FRAGMENTS, Random, damage};

/// Pieces of the corpus, whole functions among them, each small enough to be damaged often.
fn seeds() -> Vec<Vec<u8>> {
    const HEADER: &str = ".version 9.0\n.target sm_90\n.address_size 64\n";
    let mut seeds = Vec::new();
    for (_, source) in corpus::files() {
        seeds.push(source.as_bytes().to_vec());
        let module = ptx::parse(&source).expect("the corpus parses");
        for item in &module.items {
            let text = item.to_string();
            if text.len() < 4000 {
                seeds.push(format!("{HEADER}{text}\n").into_bytes());
            }
        }
    }
    seeds
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is no number"))
    })
}

#[test]
fn damaged_sources() {
    let seed = setting("PTX_FUZZ_SEED", 1);
    let cases = setting("PTX_FUZZ_CASES", 20_000);
    let seeds = seeds();
    let mut random = Random(seed);
    let (mut parsed, mut slowest) = (0, Duration::ZERO);
    for case in 0..cases {
        // Whole files are long: one case in fifty damages one of them.
        let whole = case % 50 == 0;
        let mut text = loop {
            let text = &seeds[random.below(seeds.len())];
            if whole || text.len() < 4000 {
                break text.clone();
            }
        };
        let other = &seeds[random.below(seeds.len())];
        damage(&mut random, &mut text, other);
        let start = Instant::now();
        let result = std::panic::catch_unwind(|| ptx::parse_bytes(&text));
        slowest = slowest.max(start.elapsed());
        let tell = || {
            format!(
                "case {case} of seed {seed}:\n{}",
                String::from_utf8_lossy(&text)
            )
        };
        match result {
            Err(_) => panic!("a panic in {}", tell()),
            Ok(Err(errors)) => {
                assert!(!errors.as_slice().is_empty() && errors.as_slice().len() <= 50);
                let order: Vec<_> = errors.iter().map(|error| error.pos.line).collect();
                assert!(
                    order.is_sorted(),
                    "errors out of order {order:?} in {}",
                    tell()
                );
            }
            Ok(Ok(module)) => {
                parsed += 1;
                let again = ptx::parse(&module.to_string());
                assert_eq!(
                    again.as_ref(),
                    Ok(&module),
                    "printed as\n{module}\nfrom {}",
                    tell()
                );
            }
        }
    }
    assert!(
        slowest < Duration::from_secs(2),
        "{slowest:?} for one source"
    );
    // Damage that always or never breaks the source would test little.
    assert!(
        parsed > cases / 20 && parsed < cases / 2,
        "{parsed} of {cases} still parse"
    );
}

#[test]
fn arbitrary_bytes() {
    let mut random = Random(setting("PTX_FUZZ_SEED", 1));
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..random.below(200))
            .map(|_| random.next() as u8)
            .collect();
        let _ = ptx::parse_bytes(&bytes);
        bytes.splice(0..0, *b".version 8.0 .target sm_90 .entry k() {");
        let _ = ptx::parse_bytes(&bytes);
    }
}

/// Any order of the language's own words.
#[test]
fn arbitrary_words() {
    let mut random = Random(setting("PTX_FUZZ_SEED", 1));
    for _ in 0..20_000 {
        let mut text = b".version 8.0 .target sm_90 ".to_vec();
        for _ in 0..random.below(60) {
            text.extend_from_slice(FRAGMENTS[random.below(FRAGMENTS.len())]);
            text.extend_from_slice(&b" a "[..random.below(4)]);
        }
        let _ = ptx::parse_bytes(&text);
    }
}

/// A source that ends too early, at every byte.
#[test]
fn truncated_sources() {
    for (name, source) in corpus::files() {
        let step = source.len() / 300 + 1;
        for end in (0..source.len()).step_by(step) {
            if let Err(errors) = ptx::parse_bytes(&source.as_bytes()[..end]) {
                assert!(
                    errors.as_slice().len() <= 3,
                    "{name} up to {end}:\n{errors}"
                );
            }
        }
    }
}
