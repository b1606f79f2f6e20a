//! Device memory: one reserved range of the process's address space, in which everything a device address can
//! mean is allocated, so that a device address is a host address and a look-up says what it belongs to.
//!
//! Invariant: arena pages stay mapped readable and writable for the process's life, so an access that was checked
//! against an allocation freed meanwhile reads or writes stale bytes, never an unmapped page.

/// What an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cuMemAlloc`, pools, device `malloc`.
    Device,
    /// `cuMemAllocHost`, `cuMemHostAlloc`.
    Pinned,
    /// `cuMemAllocManaged`, `.managed` variables.
    Managed,
    /// Host memory of the program, by `cuMemHostRegister`: outside the arena.
    Registered,
    /// A `.global` variable of a module.
    Global,
    /// A `.const` variable of a module: kernels may not write it.
    Constant,
}

/// A live allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    /// Its first byte.
    pub base: u64,
    /// Its size in bytes, as asked for.
    pub size: u64,
    /// What it is.
    pub kind: Kind,
    /// Unique among all allocations ever made.
    pub id: u64,
}
