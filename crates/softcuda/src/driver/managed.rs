//! Managed memory: what the program said of how it is used. It is remembered and of no effect: host
//! and device share it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::memory::{Made, owner};
use super::pool::Pool;
use super::{CUresult, Result, context, device};
use crate::memory::Device;

/// A location of `CUmemLocation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A device.
    Device(Device),
    /// The host.
    Host,
}

/// The device number that means none.
const NOWHERE: i32 = -2;
/// The device number of the host.
const HOST: i32 = -1;

impl Location {
    /// Of a device number, -1 for the host.
    pub fn of_device(number: i32) -> Result<Self> {
        match number {
            HOST => Ok(Location::Host),
            _ => device::check(number).map(Location::Device),
        }
    }

    /// Of `CUmemLocationType` and number: device, host, a node of the host's memory, the nearest
    /// one.
    pub fn of_kind(kind: u32, number: i32) -> Result<Self> {
        match kind {
            1 => device::check(number).map(Location::Device),
            2 | 4 => Ok(Location::Host),
            3 if number == 0 => Ok(Location::Host),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn number(this: Option<Self>) -> i32 {
        match this {
            Some(Location::Device(device)) => device.number(),
            Some(Location::Host) => HOST,
            None => NOWHERE,
        }
    }

    fn kind(this: Option<Self>) -> i32 {
        match this {
            Some(Location::Device(_)) => 1,
            Some(Location::Host) => 2,
            None => 0,
        }
    }
}

/// What was said of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    read_mostly: bool,
    preferred: Option<Location>,
    /// The set of devices that access it.
    by_devices: u32,
    by_host: bool,
    prefetched: Option<Location>,
}

/// What was said of the bytes of an allocation: pieces that follow one another, each with its end.
#[derive(Debug)]
pub(crate) struct Advice(Vec<(u64, Said)>);

impl Advice {
    /// Nothing was said of an allocation of this size.
    pub fn new(size: u64) -> Self {
        Advice(vec![(size, Said::default())])
    }

    /// Changes what was said of the bytes from `start` to `end`.
    fn change(&mut self, start: u64, end: u64, change: impl Fn(&mut Said)) {
        self.split(start);
        self.split(end);
        let mut from = 0;
        for (to, said) in &mut self.0 {
            if from >= start && *to <= end {
                change(said);
            }
            from = *to;
        }
        self.0.dedup_by(|later, earlier| {
            let same = later.1 == earlier.1;
            if same {
                earlier.0 = later.0;
            }
            same
        });
    }

    /// Makes a piece end at `at`.
    fn split(&mut self, at: u64) {
        let piece = self.0.partition_point(|&(end, _)| end <= at);
        let begins_here = at == 0 || piece > 0 && self.0[piece - 1].0 == at;
        if let Some(&(_, said)) = self.0.get(piece)
            && !begins_here
        {
            self.0.insert(piece, (at, said));
        }
    }

    /// What was said of all bytes from `start` to `end`; where pieces differ, what `get` gives for
    /// nothing said.
    fn common<T: PartialEq>(&self, start: u64, end: u64, get: impl Fn(&Said) -> T) -> T {
        let first = self.0.partition_point(|&(to, _)| to <= start);
        let last = self.0.partition_point(|&(to, _)| to < end);
        let mut values = self.0[first..=last.min(self.0.len() - 1)]
            .iter()
            .map(|(_, said)| get(said));
        match values.next() {
            Some(value) if values.all(|other| other == value) => value,
            _ => get(&Said::default()),
        }
    }
}

/// A range of a managed allocation.
struct Range {
    said: Arc<Mutex<Advice>>,
    start: u64,
    end: u64,
    /// The pool that the memory is from.
    pool: Option<Arc<Pool>>,
}

/// The managed allocation that a range is in, and where.
fn range(address: u64, size: u64) -> Result<Range> {
    const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
    if size == 0 {
        return Err(INVALID);
    }
    let owned = owner(address).ok_or(INVALID)?;
    let (said, pool) = match owned.made {
        Made::Managed(said) => (said, None),
        Made::Pooled(pool, Some(said)) => (said, Some(pool)),
        _ => return Err(INVALID),
    };
    let start = address - owned.allocation.base;
    let end = start
        .checked_add(size)
        .filter(|&end| end <= owned.allocation.size)
        .ok_or(INVALID)?;
    Ok(Range {
        said,
        start,
        end,
        pool,
    })
}

/// `cuMemAdvise`, by the numbers of `CUmem_advise`.
pub(crate) fn advise(
    address: u64,
    size: u64,
    advice: u32,
    location: impl FnOnce() -> Result<Location>,
) -> Result {
    context::current()?;
    let Range {
        said,
        start,
        end,
        pool,
    } = range(address, size)?;
    if pool.is_some() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let change: Box<dyn Fn(&mut Said)> = match advice {
        1 | 2 => Box::new(move |said| said.read_mostly = advice == 1),
        3 => {
            let location = location()?;
            Box::new(move |said| said.preferred = Some(location))
        }
        4 => Box::new(|said| said.preferred = None),
        5 | 6 => {
            let location = location()?;
            Box::new(move |said| match location {
                Location::Device(device) if advice == 5 => said.by_devices |= device.bit(),
                Location::Device(device) => said.by_devices &= !device.bit(),
                Location::Host => said.by_host = advice == 5,
            })
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    said.lock().change(start, end, change);
    Ok(())
}

/// `cuMemPrefetchAsync`: there is nowhere to bring the memory to, so all that happens is that it is
/// remembered.
pub(crate) fn prefetch(
    address: u64,
    size: u64,
    location: impl FnOnce() -> Result<Location>,
) -> Result {
    let range = range(address, size)?;
    let location = location()?;
    range.said.lock().change(range.start, range.end, |said| {
        said.prefetched = Some(location)
    });
    Ok(())
}

/// `cuStreamAttachMemAsync`, by the flags of `CUmemAttach_flags`: a whole allocation; to one
/// stream, it must not be the legacy default one.
pub(crate) fn attach(address: u64, size: u64, flags: u32, to_legacy: bool) -> Result {
    const SINGLE: u32 = 4;
    let whole = owner(address).is_some_and(|owned| {
        let managed = matches!(owned.made, Made::Managed(_));
        managed && owned.allocation.base == address && (size == 0 || size == owned.allocation.size)
    });
    match whole && matches!(flags, 1 | 2 | SINGLE) && !(flags == SINGLE && to_legacy) {
        true => Ok(()),
        false => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// All of a range is managed memory.
pub(crate) fn check_range(address: u64, size: u64) -> Result {
    range(address, size).map(drop)
}

/// `cuMemRangeGetAttribute`, by the numbers of `CUmem_range_attribute`: the value as numbers of 32
/// bits.
pub(crate) fn range_attribute(
    address: u64,
    size: u64,
    attribute: u32,
    bytes: usize,
) -> Result<Vec<i32>> {
    const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
    context::current()?;
    let Range {
        said,
        start,
        end,
        pool,
    } = range(address, size)?;
    let said = said.lock();
    let preferred = || said.common(start, end, |said| said.preferred);
    let prefetched = || said.common(start, end, |said| said.prefetched);
    if attribute == 3 {
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(INVALID);
        }
        let (by_devices, by_host) = match &pool {
            Some(pool) => pool.reached_by(),
            None => (
                said.common(start, end, |said| said.by_devices),
                said.common(start, end, |said| said.by_host),
            ),
        };
        let devices = Device::all().filter(|device| by_devices & device.bit() != 0);
        let listed = devices.map(Device::number).chain(by_host.then_some(HOST));
        return Ok(listed
            .chain(std::iter::repeat(NOWHERE))
            .take(bytes / 4)
            .collect());
    }
    let home = pool.as_ref().map(|pool| pool.home());
    let value = match (attribute, home) {
        (2, Some(home)) => home.preferred_number(),
        (5, Some(home)) => home.location() as i32,
        (6, Some(home)) => home.preferred_id(),
        (1, _) => i32::from(said.common(start, end, |said| said.read_mostly)),
        (2 | 6, None) => Location::number(preferred()),
        (4 | 8, _) => Location::number(prefetched()),
        (5, None) => Location::kind(preferred()),
        (7, _) => Location::kind(prefetched()),
        _ => return Err(INVALID),
    };
    match bytes {
        4 => Ok(vec![value]),
        _ => Err(INVALID),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_agree_with_a_byte_each(changes in prop::collection::vec((0u64..100, 1u64..100, any::<bool>()), 0..30)) {
            let mut advice = Advice::new(100);
            let mut bytes = [false; 100];
            for (start, size, value) in changes {
                let end = (start + size).min(100);
                advice.change(start, end, |said| said.read_mostly = value);
                bytes[start as usize..end as usize].fill(value);
                prop_assert_eq!(advice.0.last().unwrap().0, 100);
                prop_assert!(advice.0.is_sorted_by(|a, b| a.0 < b.0));
                for (from, to) in [(0, 100), (start, end), (0, end), (start, 100), (start, start + 1)] {
                    let all = bytes[from as usize..to as usize].iter().all(|&byte| byte);
                    prop_assert_eq!(advice.common(from, to, |said| said.read_mostly), all);
                }
            }
        }
    }
}
