//! What the H200 gave, case by case, checked in under `kernels/h200/` and carried in the test.
//!
//! `digests.txt` holds a line per buffer that must be equal: its name, its length, 128 bits over
//! its canonical bytes, and its first sixteen words to look at. `outputs.txt` holds buffers
//! compared within bounds, and texts, whole, in hexadecimal. With `SOFTCUDA_RECORD_KERNELS=folder`
//! the test writes both there instead of comparing, and every buffer's bytes under `folder/full/`;
//! with `SOFTCUDA_KERNELS_FULL=folder/full` it compares with those too, which shows where a buffer
//! differs and not only that it does.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

const DIGESTS: &str = include_str!("../../../../../kernels/h200/digests.txt");
const OUTPUTS: &str = include_str!("../../../../../kernels/h200/outputs.txt");

/// How a buffer is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Digest,
    Whole,
}

/// What the record says of a buffer.
pub enum Recorded {
    /// It was written down now.
    Now,
    /// There is no record at all.
    Nothing,
    /// There is one, without this buffer.
    Missing,
    Digest(String),
    Whole(Vec<u8>),
}

/// Writes the buffer down, or says what was written.
pub fn record(name: &str, keep: Keep, bytes: &[u8]) -> Recorded {
    if let Some(folder) = std::env::var_os("SOFTCUDA_RECORD_KERNELS") {
        write(PathBuf::from(folder), name, keep, bytes);
        return Recorded::Now;
    }
    static KEPT: OnceLock<[BTreeMap<&str, &str>; 2]> = OnceLock::new();
    let [digests, outputs] = KEPT.get_or_init(|| [read(DIGESTS), read(OUTPUTS)]);
    if digests.is_empty() && outputs.is_empty() {
        return Recorded::Nothing;
    }
    match keep {
        Keep::Digest => digests
            .get(name)
            .map_or(Recorded::Missing, |line| Recorded::Digest(line.to_string())),
        Keep::Whole => outputs
            .get(name)
            .map_or(Recorded::Missing, |hex| Recorded::Whole(from_hex(hex))),
    }
}

/// The buffer's bytes among the full outputs, where the environment names their folder.
pub fn full(name: &str) -> Option<Vec<u8>> {
    let folder = PathBuf::from(std::env::var_os("SOFTCUDA_KERNELS_FULL")?);
    std::fs::read(folder.join(format!("{name}.bin"))).ok()
}

/// The line that stands for a buffer: its length, its digest, its first words.
pub fn digest(bytes: &[u8]) -> String {
    let mut line = format!("{} {:032x}", bytes.len(), fold(bytes));
    for word in bytes.chunks(4).take(16) {
        let mut padded = [0; 4];
        padded[..word.len()].copy_from_slice(word);
        write!(line, " {:08x}", u32::from_le_bytes(padded)).expect("a string takes all");
    }
    line
}

/// 128 bits over all bytes and their number, by two multiply-and-fold chains.
fn fold(bytes: &[u8]) -> u128 {
    let chain = |mut state: u64, factor: u64| {
        for chunk in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            let product = (state ^ u64::from_le_bytes(padded)) as u128 * factor as u128;
            state = (product as u64 ^ (product >> 64) as u64)
                .wrapping_add(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
        }
        let product = (state ^ bytes.len() as u64) as u128 * factor as u128;
        product as u64 ^ (product >> 64) as u64
    };
    (chain(0x243f_6a88_85a3_08d3, 0xd6e8_feb8_6659_fd93) as u128) << 64
        | chain(0x1319_8a2e_0370_7344, 0xa076_1d64_78bd_642f) as u128
}

fn read(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .collect()
}

fn write(folder: PathBuf, name: &str, keep: Keep, bytes: &[u8]) {
    static WRITTEN: Mutex<[BTreeMap<String, String>; 2]> =
        Mutex::new([BTreeMap::new(), BTreeMap::new()]);
    let mut written = WRITTEN.lock().unwrap_or_else(|broken| broken.into_inner());
    let (at, file, line) = match keep {
        Keep::Digest => (0, "digests.txt", digest(bytes)),
        Keep::Whole => (1, "outputs.txt", to_hex(bytes)),
    };
    if written[at].is_empty() {
        // Cases recorded one process each add up.
        let before = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        written[at].extend(
            read(&before)
                .into_iter()
                .map(|(name, line)| (name.to_string(), line.to_string())),
        );
    }
    written[at].insert(name.to_string(), line);
    let lines: String = written[at]
        .iter()
        .map(|(name, line)| format!("{name} {line}\n"))
        .collect();
    std::fs::create_dir_all(folder.join("full")).expect("the record's folder");
    std::fs::write(folder.join(file), lines).expect("the record");
    std::fs::write(folder.join("full").join(format!("{name}.bin")), bytes)
        .expect("the full output");
}

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn from_hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len() / 2).map(|i| digit(2 * i)).collect()
}
