//! What fills and copies have in common: rows of bytes that go to a place.

use super::access::Access;
use crate::memory::Region;

/// What a fill or a copy does. Its sizes are in bytes, rows and planes; one of them may be 0.
pub struct Transfer<'a> {
    pub(crate) to: Side<'a>,
    pub(crate) from: From<'a>,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

/// Where the bytes come from.
pub enum From<'a> {
    /// A value, which is repeated. A row has a whole number of them.
    Value(&'a [u8]),
    Memory(Side<'a>),
}

/// How the bytes lie on one side.
pub struct Side<'a> {
    pub(crate) region: &'a Region,
    /// The first byte.
    pub(crate) start: u64,
    /// From one row to the next, in bytes; it counts only beyond the first row.
    pub(crate) pitch: u64,
    /// From one plane to the next, in bytes; it counts only beyond the first plane.
    pub(crate) plane: u64,
}

impl Transfer<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        let plane = self.width.saturating_mul(self.height);
        plane.saturating_mul(self.depth)
    }

    /// The addresses from the first byte to the last on one side, and what lies between its rows.
    pub(crate) fn range(&self, side: &Side<'_>) -> std::ops::Range<u64> {
        if self.bytes() == 0 {
            return side.start..side.start;
        }
        let rows = side.pitch.saturating_mul(self.height - 1);
        let planes = side.plane.saturating_mul(self.depth - 1);
        let last_row = side.start.saturating_add(rows).saturating_add(planes);
        side.start..last_row.saturating_add(self.width)
    }

    /// The same with as few rows and planes as can be: those that lie close together are one row.
    pub(super) fn flattened(mut self) -> Self {
        for _ in 0..2 {
            let from_pitch = match &self.from {
                From::Value(_) => self.width,
                From::Memory(side) => side.pitch,
            };
            let close = self.to.pitch == self.width && from_pitch == self.width;
            if close && let Some(all) = self.width.checked_mul(self.height) {
                (self.width, self.height) = (all, 1);
            }
            if self.height == 1 {
                // Planes of one row are rows.
                (self.height, self.depth) = (self.depth, 1);
                self.to.pitch = self.to.plane;
                if let From::Memory(side) = &mut self.from {
                    side.pitch = side.plane;
                }
            }
        }
        self
    }

    /// What it reads and writes.
    pub(crate) fn accesses(&self) -> Vec<Access> {
        let access = |side, writes| Access::of(self.range(side), writes);
        let read = match &self.from {
            From::Value(_) => None,
            From::Memory(side) => access(side, false),
        };
        access(&self.to, true).into_iter().chain(read).collect()
    }
}
