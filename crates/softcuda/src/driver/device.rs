//! The devices: each an H200 as far as a program can tell, with the machine's cores as its
//! multiprocessors. Each has memory of its own, and all reach each other's.

use std::sync::OnceLock;

use super::{CUresult, Result};
use crate::abi::types::CUdevice;
use crate::memory::{self, Device};

/// The most that `CU_LIMIT_PERSISTING_L2_CACHE_SIZE` can be.
pub(crate) const PERSISTING_L2_MAX: u64 = 39_321_600;
/// The bus of the first device; the others sit on those after it.
const PCI_BUS: i32 = 0x5c;
/// The largest pitch of copies, in bytes.
pub(crate) const MAX_PITCH: u64 = 0x7fff_ffff;

/// `cuDeviceGetCount`.
pub(crate) fn count() -> i32 {
    Device::count() as i32
}

/// The device of a number.
pub(crate) fn check(device: CUdevice) -> Result<Device> {
    Device::of(device).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
}

/// `cuDeviceGetPCIBusId`: where a device sits.
pub(crate) fn pci_bus_id(device: Device) -> String {
    format!("0000:{:02X}:00.0", PCI_BUS + device.number())
}

/// `cuDeviceGetByPCIBusId`: the device that sits somewhere, with or without domain and function.
pub(crate) fn at_pci_bus_id(text: &str) -> Option<Device> {
    Device::all().find(|&device| {
        let id = pci_bus_id(device);
        let short = id.trim_start_matches("0000:");
        [&*id, short, short.trim_end_matches(".0")]
            .iter()
            .any(|form| form.eq_ignore_ascii_case(text))
    })
}

/// `cuDeviceGetUuid`: the same on every machine.
pub(crate) fn uuid(device: Device) -> [u8; 16] {
    let digit = char::from_digit(device.number() as u32, Device::MOST as u32);
    let mut uuid = *b"softcuda-device?";
    uuid[15] = digit.expect("a device's number has one digit") as u8;
    uuid
}

/// `cuDeviceGetP2PAttribute`, by the numbers of `CUdevice_P2PAttribute`, of two devices.
pub(crate) fn link_attribute(number: u32) -> Result<i32> {
    match number {
        // The rank of its speed: all are the same.
        1 => Ok(0),
        // Access, atomics, access to arrays.
        2..=4 => Ok(1),
        // Not all atomics.
        5 => Ok(0),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuDeviceGetName`: says that this is no GPU, and which processor it is.
pub(crate) fn name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let processor = std::fs::read_to_string("/proc/cpuinfo")
            .ok()
            .and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("model name"))?;
                Some(line.split_once(':')?.1.trim().to_owned())
            });
        match processor {
            Some(processor) => format!("softcuda on {processor}"),
            None => "softcuda".to_owned(),
        }
    })
}

/// The compute capability: 9.0, or what `SOFTCUDA_COMPUTE_CAPABILITY` says (`8.6`, `86`).
pub(crate) fn compute_capability() -> (u32, u32) {
    static CAPABILITY: OnceLock<(u32, u32)> = OnceLock::new();
    *CAPABILITY.get_or_init(|| {
        let Ok(text) = std::env::var("SOFTCUDA_COMPUTE_CAPABILITY") else {
            return (9, 0);
        };
        parse_capability(&text).unwrap_or_else(|| {
            tracing::warn!("SOFTCUDA_COMPUTE_CAPABILITY={text} is none such as 8.6: 9.0 is used");
            (9, 0)
        })
    })
}

fn parse_capability(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = match text.trim().split_once('.') {
        Some((major, minor)) => (major.parse().ok()?, minor.parse().ok()?),
        None => {
            let number: u32 = text.trim().parse().ok()?;
            (number / 10, number % 10)
        }
    };
    ((5..=12).contains(&major) && minor <= 9).then_some((major, minor))
}

/// How many blocks run at once: the machine's cores.
pub(crate) fn multiprocessors() -> u32 {
    static COUNT: OnceLock<u32> = OnceLock::new();
    *COUNT
        .get_or_init(|| std::thread::available_parallelism().map_or(1, |count| count.get() as u32))
}

/// `cuDeviceTotalMem`.
pub(crate) fn total_memory() -> u64 {
    memory::capacity()
}

/// `cuDeviceGetAttribute`, by the numbers of `CUdevice_attribute`.
pub(crate) fn attribute(device: Device, number: u32) -> Result<i32> {
    let (major, minor) = compute_capability();
    Ok(match number {
        // Threads, blocks, grids, registers, shared memory.
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65_535,
        8 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => MAX_PITCH as i32,
        12 | 82 => 65_536,
        16 => multiprocessors() as i32,
        39 => 2048,
        81 => 228 << 10,
        97 => 227 << 10,
        106 => 32,
        111 => 1 << 10,
        // Clocks in kHz, the bus in bits, caches in bytes.
        13 => 1_980_000,
        36 => 3_201_000,
        37 => 6144,
        38 => 60 << 20,
        87 => 2,
        108 => PERSISTING_L2_MAX as i32,
        109 => 128 << 20,
        // Textures and surfaces.
        14 | 30 => 512,
        21 | 22 | 56 | 70 => 131_072,
        23 | 57 => 65_536,
        24..=26 | 58..=60 => 16_384,
        27 | 28 | 42 | 45 | 46 | 49 | 52 | 53 | 55 | 61 | 63 | 64 | 66 | 67 | 73 | 74 | 77 => {
            32_768
        }
        29 | 43 | 62 | 65 => 2048,
        44 => 1,
        47 | 48 => 8192,
        51 => 32,
        54 | 68 => 2046,
        69 => 1 << 28,
        71 => 65_000,
        72 => 2_097_120,
        // Where and what it is.
        33 => PCI_BUS + device.number(),
        34 | 50 => 0,
        75 => major as i32,
        76 => minor as i32,
        139 => 0x2335_10de,
        140 => 0x18be_10de,
        // What it can do.
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 83 | 89 | 90 | 91 | 95 | 96 | 99 | 102 | 103 | 115
        | 122 | 123 | 125 => 1,
        40 => 3,
        112 | 113 | 114 | 121 | 127 | 129 => 1,
        119 => 9,
        120 => i32::from(major >= 9),
        126 => 4,
        130 => 0,
        131 => -1,
        144 | 145 => 1,
        // What it cannot, or is not.
        17 | 18 | 20 | 32 | 35 | 84 | 85 | 86 | 88 | 92 | 93 | 94 | 98 | 100 | 101 | 104 | 105
        | 107 | 110 => 0,
        116..=118 | 124 | 128 | 132 | 133 | 134 | 135..=138 | 141..=143 | 146 | 147 => 0,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities() {
        for (text, capability) in [
            ("9.0", (9, 0)),
            ("86", (8, 6)),
            (" 12.1 ", (12, 1)),
            ("120", (12, 0)),
        ] {
            assert_eq!(parse_capability(text), Some(capability), "{text}");
        }
        for text in ["", "9.", "x", "4.9", "13.0", "9.10"] {
            assert_eq!(parse_capability(text), None, "{text}");
        }
    }

    #[test]
    fn every_attribute_has_a_value() {
        for number in 1..=147 {
            assert!(attribute(Device::FIRST, number).is_ok(), "{number}");
        }
        for number in [0, 148, 9999, u32::MAX] {
            let answer = attribute(Device::FIRST, number);
            assert_eq!(answer, Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        }
    }
}
