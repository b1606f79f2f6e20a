//! Accesses that are checked together: loads and stores of one basic block at one register plus
//! different offsets.
//!
//! Unrolled loops are full of them. Once the first is reached the others will be, unless one
//! faults: nothing between them ends the thread, jumps, waits or frees memory. So the first checks
//! the whole range that they span, and the others go unchecked. A range that does not pass as a
//! whole is looked at access by access, so that what faults is the access that is wrong, if only a
//! little earlier than its turn.

use std::collections::HashMap;

use ptx::ast::Space;

use crate::jit::decode::{Callee, Flow, RegId};
use crate::jit::program::{Body, Instruction, Step};
use crate::jit::runtime::access::Access;

/// The most accesses in a group, and the furthest apart.
pub(super) const MOST: usize = 128;
pub(super) const FURTHEST: i64 = 1 << 20;

/// A load or store at a register plus an offset, as far as checking it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainAccess {
    /// The register.
    pub base: RegId,
    /// Added to it.
    pub offset: i64,
    /// Where the address is; `None` is generic.
    pub space: Option<Space>,
    /// Bytes: a power of two.
    pub size: u32,
    /// It writes.
    pub write: bool,
}

impl PlainAccess {
    /// Whether its address is the host's, or may be.
    pub fn is_host(&self) -> bool {
        matches!(self.space, None | Some(Space::Global))
    }
}

/// Accesses that are checked together.
#[derive(Debug)]
pub(super) struct Group {
    /// The lowest offset.
    pub low: i64,
    /// The highest one, from the lowest.
    span: u64,
    /// Bytes of each access.
    size: u32,
    /// One of them writes.
    write: bool,
    /// Their offsets from the lowest, in the order of the source.
    offsets: Vec<u64>,
    /// Their steps.
    steps: Vec<u32>,
}

/// The groups of a body, and which step is in which.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub groups: Vec<Group>,
    pub of_step: HashMap<u32, u32>,
}

/// What the accesses of a group share: register, space, size, and offset within the size.
type Key = (RegId, Option<Space>, u32, i64);

impl Group {
    /// What its check is of.
    pub fn access(&self) -> Access {
        Access {
            offsets: self.offsets.clone(),
            ..Access::one(self.size, self.write)
        }
    }
}

/// What comes after may not be reached, or find other memory.
pub(super) fn ends(instruction: &Instruction) -> bool {
    let operation = &instruction.operation;
    operation.flow() != Flow::Next
        || operation.callee() != Callee::None
        || operation.waits()
        || operation.polls()
}

impl Groups {
    /// Finds them.
    pub fn of(body: &Body) -> Groups {
        let mut found = Groups::default();
        let mut open: HashMap<Key, Group> = HashMap::new();
        for (at, step) in (0..).zip(&body.steps) {
            let Step::Instruction(instruction) = step else {
                found.close_all(&mut open);
                continue;
            };
            let access = instruction.operation.plain_access();
            if ends(instruction) {
                found.close_all(&mut open);
            } else if let (Some(access), None) = (access, instruction.guard) {
                found.add(&mut open, access, at);
            }
            for register in &instruction.writes {
                let ended: Vec<Key> = open
                    .keys()
                    .filter(|key| key.0 == *register)
                    .copied()
                    .collect();
                for key in ended {
                    found.close(open.remove(&key));
                }
            }
        }
        found.close_all(&mut open);
        found
    }

    fn add(&mut self, open: &mut HashMap<Key, Group>, access: PlainAccess, at: u32) {
        if access.offset.unsigned_abs() > FURTHEST as u64 {
            return;
        }
        let size = i64::from(access.size);
        let key = (
            access.base,
            access.space,
            access.size,
            access.offset.rem_euclid(size),
        );
        if let Some(group) = open.get_mut(&key) {
            let low = group.low.min(access.offset);
            let high = (group.low + group.span as i64).max(access.offset);
            if high - low <= FURTHEST && group.offsets.len() < MOST {
                for offset in &mut group.offsets {
                    *offset += (group.low - low) as u64;
                }
                group.low = low;
                group.span = (high - low) as u64;
                group.offsets.push((access.offset - low) as u64);
                group.write |= access.write;
                group.steps.push(at);
                return;
            }
            self.close(open.remove(&key));
        }
        open.insert(
            key,
            Group {
                low: access.offset,
                span: 0,
                size: access.size,
                write: access.write,
                offsets: vec![0],
                steps: vec![at],
            },
        );
    }

    fn close_all(&mut self, open: &mut HashMap<Key, Group>) {
        for (_, group) in open.drain() {
            self.close(Some(group));
        }
    }

    fn close(&mut self, group: Option<Group>) {
        if let Some(group) = group.filter(|group| group.steps.len() > 1) {
            let number = self.groups.len() as u32;
            self.of_step
                .extend(group.steps.iter().map(|step| (*step, number)));
            self.groups.push(group);
        }
    }
}
