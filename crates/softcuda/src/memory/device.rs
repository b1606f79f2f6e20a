//! Devices, as far as memory cares: how many there are, whose memory is whose, and who reaches it.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use super::Allocation;

/// One of the devices, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Device(u8);

impl Device {
    /// The most devices that there can be.
    pub const MOST: usize = 16;
    /// Device 0, which is always there.
    pub const FIRST: Device = Device(0);

    /// How many devices there are: what `SOFTCUDA_DEVICES` says, or 1.
    pub fn count() -> usize {
        static COUNT: OnceLock<usize> = OnceLock::new();
        *COUNT.get_or_init(|| {
            let Ok(text) = std::env::var("SOFTCUDA_DEVICES") else {
                return 1;
            };
            parse_count(&text).unwrap_or_else(|| {
                let most = Device::MOST;
                tracing::warn!("SOFTCUDA_DEVICES={text} is no number from 1 to {most}: 1 is used");
                1
            })
        })
    }

    /// All devices.
    pub fn all() -> impl Iterator<Item = Device> {
        (0..Device::count()).map(|index| Device(index as u8))
    }

    /// The device of a number, where there is one.
    pub fn of(number: i32) -> Option<Device> {
        let index = usize::try_from(number).ok()?;
        (index < Device::count()).then_some(Device(index as u8))
    }

    /// The device of an index that a device gave.
    pub fn of_index(index: u8) -> Device {
        Device(index)
    }

    /// Its number: `CUdevice`.
    pub fn number(self) -> i32 {
        self.0.into()
    }

    /// The same, as an index of tables of [`MOST`](Self::MOST).
    pub fn index(self) -> usize {
        self.0.into()
    }

    /// Whether its kernels, in whatever context, may read or write an allocation.
    pub fn reaches(self, allocation: &Allocation, write: bool) -> bool {
        let (reads, writes) = allocation.reach.of(self);
        allocation.kind.permits(write) && if write { writes } else { reads }
    }

    /// Its bit in a set of devices.
    pub fn bit(self) -> u32 {
        1 << self.0
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}

fn parse_count(text: &str) -> Option<usize> {
    let count = usize::from_str(text.trim()).ok()?;
    (1..=Device::MOST).contains(&count).then_some(count)
}

/// The devices whose kernels reach an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The set of those that read it.
    reads: u16,
    /// The set of those that write it.
    writes: u16,
    /// It is a context's, rather than given to devices one by one.
    of_context: bool,
}

impl Reach {
    /// No device.
    pub const NOBODY: Reach = Reach {
        reads: 0,
        writes: 0,
        of_context: false,
    };
    /// Every device.
    pub const EVERYBODY: Reach = Reach {
        reads: u16::MAX,
        writes: u16::MAX,
        of_context: false,
    };

    /// The device of the context that the memory is of. Others have to be given access.
    pub fn of_context(device: Device) -> Reach {
        Reach {
            of_context: true,
            ..Reach::NOBODY.with(device, true, true)
        }
    }

    /// The same, but for what one device may do.
    pub fn with(self, device: Device, read: bool, write: bool) -> Reach {
        let bit = device.bit() as u16;
        let put = |set: u16, on: bool| if on { set | bit } else { set & !bit };
        Reach {
            reads: put(self.reads, read),
            writes: put(self.writes, write),
            ..self
        }
    }

    /// Whether a device may read it, and whether it may write it.
    pub fn of(self, device: Device) -> (bool, bool) {
        let has = |set: u16| u32::from(set) & device.bit() != 0;
        (has(self.reads), has(self.writes))
    }

    /// It is a context's, rather than given to devices one by one.
    pub fn is_of_context(self) -> bool {
        self.of_context
    }

    /// Copies of a device may have it as an end.
    pub fn lets_copy(self, device: Device) -> bool {
        self.of_context || self == Reach::NOBODY || self.of(device).0
    }

    /// The set of devices that may write it.
    pub fn writers(self) -> u32 {
        self.writes.into()
    }

    pub(super) fn encode(self) -> u64 {
        u64::from(self.reads) | u64::from(self.writes) << 16 | u64::from(self.of_context) << 32
    }

    pub(super) fn decode(word: u64) -> Reach {
        Reach {
            reads: word as u16,
            writes: (word >> 16) as u16,
            of_context: word >> 32 & 1 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Kind;

    #[test]
    fn counts() {
        for (text, count) in [("1", 1), (" 4 ", 4), ("16", 16)] {
            assert_eq!(parse_count(text), Some(count), "{text}");
        }
        for text in ["", "0", "17", "-1", "two"] {
            assert_eq!(parse_count(text), None, "{text}");
        }
    }

    #[test]
    fn who_reaches_what() {
        let (own, other) = (Device(0), Device(3));
        let allocation = |reach, kind| Allocation {
            base: 0,
            size: 1,
            kind,
            id: 1,
            device: own,
            reach,
        };
        let may = |device: Device, allocation: &Allocation| {
            [false, true].map(|write| device.reaches(allocation, write))
        };
        let plain = allocation(Reach::of_context(own), Kind::Device);
        let constant = allocation(Reach::of_context(own), Kind::Constant);
        assert_eq!(may(own, &plain), [true; 2]);
        assert_eq!(may(own, &constant), [true, false]);
        assert_eq!(may(other, &plain), [false; 2]);
        let given = Reach::NOBODY.with(own, true, true);
        assert_eq!(may(other, &allocation(given, Kind::Device)), [false; 2]);
        let given = given.with(other, true, false);
        assert_eq!(may(other, &allocation(given, Kind::Device)), [true, false]);
        for reach in [
            Reach::of_context(other),
            given,
            Reach::NOBODY,
            Reach::EVERYBODY,
        ] {
            assert_eq!(Reach::decode(reach.encode()), reach);
        }
    }
}
