//! How much memory each device has.

use std::str::FromStr;

use super::Device;

const GIB: u64 = 1 << 30;

/// The most that is taken without being asked for.
const DEFAULT_MOST: u64 = 64 * GIB;
/// The least that a device has.
const LEAST: u64 = 64 << 20;

/// `SOFTCUDA_MEMORY`, or a device's part of half of the machine's memory.
pub(super) fn configured() -> u64 {
    let default = (machine() / 2 / Device::count() as u64).min(DEFAULT_MOST);
    let size = match std::env::var("SOFTCUDA_MEMORY") {
        Ok(text) => parse(&text).unwrap_or_else(|| {
            tracing::warn!(
                "SOFTCUDA_MEMORY={text} is no size such as 8G: {default} bytes are used"
            );
            default
        }),
        Err(_) => default,
    };
    size.max(LEAST).next_multiple_of(2 << 20)
}

/// A number of bytes, with K, M, G or T for the powers of 1024; `GB` and `GiB` mean `G`.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit
        .trim()
        .to_ascii_uppercase()
        .trim_end_matches('B')
        .trim_end_matches('I')
    {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    let number = f64::from_str(number).ok()?;
    let size = number * (1u64 << shift) as f64;
    (size >= 1.0 && size <= (1u64 << 46) as f64).then_some(size as u64)
}

/// The machine's memory, or what the process may use of it where that is less.
fn machine() -> u64 {
    // SAFETY: sysconf only reads its arguments.
    let (pages, page) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    let physical = u64::try_from(pages.saturating_mul(page)).unwrap_or(4 * GIB);
    let limits = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let limit = limits.iter().find_map(|path| {
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    });
    physical.min(limit.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes() {
        for (text, size) in [
            ("1024", 1024),
            ("8G", 8 << 30),
            ("1.5g", 3 << 29),
            (" 512 MiB ", 512 << 20),
            ("2TB", 2 << 40),
        ] {
            assert_eq!(parse(text), Some(size), "{text}");
        }
        for text in ["", "G", "0", "-1", "8X", "1e9", "999999T"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
