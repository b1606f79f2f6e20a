//! From an address in the arena to the allocation it is in, without a lock.
//!
//! The arena is divided into pages and these into granules. A page that one allocation covers names
//! its slot; a page that several share says so, and each of its granules names one. No granule is
//! of two allocations.
//!
//! Invariant: a slot's fields are written only between an odd and the next even value of its
//! sequence number, by the holder of the writer's lock; a reader that sees the same even number
//! before and after has read one allocation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use parking_lot::Mutex;

use super::arena::Zeroed;
use super::{Allocation, Device, Kind, OutOfMemory, Reach};

/// What allocations are aligned to.
pub(super) const GRANULE: u64 = 512;
const PAGE: u64 = 64 << 10;
/// In the table of pages: look in the table of granules.
const SHARED: u32 = u32::MAX;
/// How many allocations can live at once.
const MOST: u64 = 1 << 24;

/// A number that no allocation had before.
pub(super) fn new_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(1);
    IDS.fetch_add(1, Ordering::Relaxed)
}

struct Slot {
    sequence: AtomicU32,
    /// The kind, and the device above it.
    kind: AtomicU32,
    base: AtomicU64,
    size: AtomicU64,
    id: AtomicU64,
    reach: AtomicU64,
}

// SAFETY: it has atomic integers alone; zeros are an allocation of no bytes.
unsafe impl super::arena::Zero for Slot {}

/// Which allocation each address is in.
pub(super) struct Index {
    base: u64,
    /// Slot numbers, 0 for none.
    pages: Zeroed<AtomicU32>,
    granules: Zeroed<AtomicU32>,
    /// The first is not used.
    slots: Zeroed<Slot>,
    writer: Mutex<Writer>,
}

#[derive(Default)]
struct Writer {
    /// Slots by base.
    live: HashMap<u64, u32>,
    /// Slots that were used and are free again.
    free: Vec<u32>,
    /// How many slots were ever used.
    used: u32,
    /// How many allocations each shared page has.
    sharing: HashMap<u64, u32>,
}

impl Index {
    /// An index of the addresses from `base`, a multiple of the page's size.
    pub fn new(base: u64, size: u64) -> std::io::Result<Self> {
        Ok(Index {
            base,
            pages: Zeroed::new(size.div_ceil(PAGE))?,
            granules: Zeroed::new(size.div_ceil(GRANULE))?,
            slots: Zeroed::new(MOST)?,
            writer: Mutex::default(),
        })
    }

    /// The allocation that an address of the arena is in.
    pub fn find(&self, address: u64) -> Option<Allocation> {
        let offset = address - self.base;
        loop {
            let slot = match self.pages[offset / PAGE].load(Ordering::Acquire) {
                SHARED => self.granules[offset / GRANULE].load(Ordering::Acquire),
                slot => slot,
            };
            if slot == 0 {
                return None;
            }
            if let Some(allocation) = self.slots[u64::from(slot)].read() {
                return allocation.contains(address).then_some(allocation);
            }
            std::hint::spin_loop();
        }
    }

    /// Changes what the allocation that begins at `base` is, and who reaches it.
    pub fn change(&self, base: u64, kind: Kind, reach: Reach) {
        let writer = self.writer.lock();
        if let Some(&slot) = writer.live.get(&base) {
            let slot = &self.slots[u64::from(slot)];
            if let Some(allocation) = slot.read() {
                slot.write(Allocation {
                    kind,
                    reach,
                    ..allocation
                });
            }
        }
    }

    /// Adds an allocation at a multiple of [`GRANULE`], where there is none.
    pub fn insert(
        &self,
        base: u64,
        size: u64,
        (device, kind, reach): (Device, Kind, Reach),
    ) -> Result<Allocation, OutOfMemory> {
        let allocation = Allocation {
            base,
            size,
            kind,
            id: new_id(),
            device,
            reach,
        };
        let mut writer = self.writer.lock();
        let slot = match writer.free.pop() {
            Some(slot) => slot,
            None if u64::from(writer.used) + 1 >= MOST => return Err(OutOfMemory),
            None => {
                writer.used += 1;
                writer.used
            }
        };
        self.slots[u64::from(slot)].write(allocation);
        writer.live.insert(base, slot);
        self.paint(&mut writer, &allocation, slot);
        Ok(allocation)
    }

    /// Removes the allocation that begins at `base`.
    pub fn remove(&self, base: u64) -> Option<Allocation> {
        let mut writer = self.writer.lock();
        let slot = writer.live.remove(&base)?;
        let allocation = self.slots[u64::from(slot)]
            .read()
            .expect("the writer's lock is held");
        self.paint(&mut writer, &allocation, 0);
        self.slots[u64::from(slot)].write(Allocation {
            size: 0,
            ..allocation
        });
        writer.free.push(slot);
        Some(allocation)
    }

    /// Names `slot` in all pages and granules of an allocation; 0 removes it from them.
    fn paint(&self, writer: &mut Writer, allocation: &Allocation, slot: u32) {
        let start = allocation.base - self.base;
        let end = (start + allocation.size).next_multiple_of(GRANULE);
        let mut at = start;
        while at < end {
            let page = at / PAGE;
            let page_end = (page + 1) * PAGE;
            if at == page * PAGE && end >= page_end {
                self.pages[page].store(slot, Ordering::Release);
            } else {
                for granule in at / GRANULE..end.min(page_end) / GRANULE {
                    self.granules[granule].store(slot, Ordering::Release);
                }
                let sharing = writer.sharing.entry(page).or_insert(0);
                *sharing = if slot == 0 {
                    *sharing - 1
                } else {
                    *sharing + 1
                };
                if *sharing == 0 {
                    writer.sharing.remove(&page);
                    self.pages[page].store(0, Ordering::Release);
                } else {
                    self.pages[page].store(SHARED, Ordering::Release);
                }
            }
            at = page_end;
        }
    }
}

impl Slot {
    /// The allocation; `None` while it is being written.
    fn read(&self) -> Option<Allocation> {
        let before = self.sequence.load(Ordering::Acquire);
        if before & 1 == 1 {
            return None;
        }
        let base = self.base.load(Ordering::Relaxed);
        let size = self.size.load(Ordering::Relaxed);
        let id = self.id.load(Ordering::Relaxed);
        let kind = self.kind.load(Ordering::Relaxed);
        let reach = self.reach.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if self.sequence.load(Ordering::Relaxed) != before {
            return None;
        }
        let [kind, device, ..] = kind.to_le_bytes();
        let kind = match kind {
            0 => Kind::Device,
            1 => Kind::Pinned,
            2 => Kind::Managed,
            3 => Kind::Registered,
            4 => Kind::RegisteredReadOnly,
            5 => Kind::Global,
            6 => Kind::Constant,
            7 => Kind::HostPool,
            _ => Kind::HostOnly,
        };
        Some(Allocation {
            base,
            size,
            kind,
            id,
            device: Device::of_index(device),
            reach: Reach::decode(reach),
        })
    }

    /// Puts an allocation in; the writer's lock is held.
    fn write(&self, allocation: Allocation) {
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.base.store(allocation.base, Ordering::Relaxed);
        self.size.store(allocation.size, Ordering::Relaxed);
        self.id.store(allocation.id, Ordering::Relaxed);
        let kind = [allocation.kind as u8, allocation.device.index() as u8, 0, 0];
        self.kind.store(u32::from_le_bytes(kind), Ordering::Relaxed);
        self.reach
            .store(allocation.reach.encode(), Ordering::Relaxed);
        self.sequence
            .store(before.wrapping_add(2), Ordering::Release);
    }
}
