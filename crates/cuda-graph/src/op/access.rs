//! What memory operations read and write.
//!
//! Two operations conflict if one writes what the other reads or writes. An operation of which it
//! is not known what it touches conflicts with every other.
//!
//! Memory is told by its addresses. Memory that is mapped at two addresses counts as two.

use std::ops::Range;

use super::Op;
use crate::memory::Region;

/// A range of addresses that an operation reads or writes. It is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub(crate) range: Range<u64>,
    pub(crate) writes: bool,
}

impl Access {
    /// An access to `range`, unless that is empty.
    pub(crate) fn of(range: Range<u64>, writes: bool) -> Option<Access> {
        (!range.is_empty()).then_some(Access { range, writes })
    }

    /// An access to all of a region, unless it has no bytes.
    pub(super) fn to(region: &Region, writes: bool) -> Option<Access> {
        let end = region.address.saturating_add(region.bytes as u64);
        Access::of(region.address..end, writes)
    }

    fn conflicts_with(&self, other: &Access) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        overlap && (self.writes || other.writes)
    }
}

/// Whether one of two operations writes what the other reads or writes, or may do so.
pub(crate) fn conflicts(one: &impl Op, other: &impl Op) -> bool {
    let (Some(one), Some(other)) = (one.accesses(), other.accesses()) else {
        return true;
    };
    let with_others = |access: &Access| other.iter().any(|other| access.conflicts_with(other));
    one.iter().any(with_others)
}
