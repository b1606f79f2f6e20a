//! What the driver says of an address: `cuPointerGetAttribute`.

use super::memory::{Made, Owned, owner};
use super::pool::Pool;
use super::{CUresult, Result, context, module, virtual_memory};
use crate::memory::{self, Allocation, Kind};

/// An attribute's value, by its size in the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PointerValue {
    /// A boolean of a byte.
    Flag(bool),
    /// A number or an enumeration of 32 bits.
    Word(u32),
    /// An address, a handle, a size.
    Long(u64),
}

const MEMORY_TYPE_HOST: u32 = 1;
const MEMORY_TYPE_DEVICE: u32 = 2;
/// `CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE`.
const READ_WRITE: u32 = 3;
/// The largest part of the address space that one mapping has.
const MAPPING: u64 = 2 << 20;

/// The attributes are numbered from 1 to this.
const LAST: u32 = 21;

/// The attribute exists.
pub(crate) fn is_attribute(number: u32) -> bool {
    (1..=LAST).contains(&number)
}

/// An attribute of an address; an error where the address is no allocation's or the attribute not
/// the allocation's.
pub(crate) fn attribute(address: u64, number: u32) -> Result<PointerValue> {
    const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
    let allocation = memory::find(address).ok_or(INVALID)?;
    let owned = owner(address);
    use PointerValue::{Flag, Long, Word};
    let pool = owned.as_ref().and_then(pool_of);
    let pooled = pool.is_some();
    let mapped = match owned {
        Some(_) => None,
        None => virtual_memory::handle_types_at(address),
    };
    let host = matches!(
        allocation.kind,
        Kind::Pinned
            | Kind::Registered
            | Kind::RegisteredReadOnly
            | Kind::HostPool
            | Kind::HostOnly
    );
    let managed = allocation.kind == Kind::Managed;
    let plain = matches!(
        &owned,
        Some(Owned {
            made: Made::Plain,
            ..
        })
    );
    Ok(match number {
        1 if mapped.is_some() => Long(0),
        1 => Long(context_of(address, owned.as_ref())),
        2 if host => Word(MEMORY_TYPE_HOST),
        2 => Word(MEMORY_TYPE_DEVICE),
        3 if allocation.kind == Kind::HostOnly => return Err(INVALID),
        3 if !current_reaches(&allocation)? => return Err(INVALID),
        3 => Long(address),
        4 if host || managed => Long(address),
        6 => Flag(owned.is_some_and(|owned| owned.sync_memops)),
        7 | 20 => Long(allocation.id),
        8 => Flag(managed),
        9 => Word(allocation.device.number() as u32),
        10 | 15 | 21 => Flag(plain),
        11 if host && pooled => Long(0),
        11 => Long(allocation.base),
        12 => Long(allocation.size),
        13 => Flag(true),
        14 => Word(match (pool, &mapped) {
            (Some(pool), _) => pool.exportable(),
            (None, mapped) => mapped.unwrap_or(0),
        }),
        16 => Word(access_to(&allocation, mapped.is_some())),
        17 => Long(pool.map_or(0, |pool| pool.handle().0 as u64)),
        18 => Long(allocation.size.next_multiple_of(MAPPING)),
        19 => Long(mapping_of(&allocation, owned.as_ref())),
        _ => return Err(INVALID),
    })
}

/// An attribute of an address that may be no allocation's: `cuPointerGetAttributes` answers nothing
/// rather than an error.
pub(crate) fn attribute_or_nothing(address: u64, number: u32) -> Result<PointerValue> {
    if !is_attribute(number) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(attribute(address, number).unwrap_or(match number {
        2 | 14 | 16 => PointerValue::Word(0),
        9 => PointerValue::Word(-2i32 as u32),
        6 | 8 | 10 | 13 | 15 | 21 => PointerValue::Flag(false),
        _ => PointerValue::Long(0),
    }))
}

/// Whether kernels of the current context reach an allocation; there must be one.
fn current_reaches(allocation: &Allocation) -> Result<bool> {
    match context::top()? {
        context::Top::Live(context) => Ok(context.fills().reaches(allocation)),
        context::Top::Destroyed(_) => Ok(true),
        context::Top::Empty => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    }
}

/// What may be done to an allocation: to a mapping by the current context's device, to any other by
/// its own device, whoever asks.
fn access_to(allocation: &Allocation, is_mapping: bool) -> u32 {
    const READ: u32 = 1;
    let asking = match context::top() {
        Ok(context::Top::Live(context)) if is_mapping => context.device(),
        _ => allocation.device,
    };
    match (allocation.kind, allocation.reach.of(asking)) {
        (Kind::Device, (false, _)) => 0,
        (Kind::Device, (true, false)) => READ,
        _ => READ_WRITE,
    }
}

/// The context that made it; memory of pools and of graphs has none.
fn context_of(address: u64, owned: Option<&Owned>) -> u64 {
    match owned {
        Some(Owned {
            made: Made::Pooled(..) | Made::Graph(_),
            ..
        }) => 0,
        Some(owned) => owned.context.handle().0 as u64,
        // A variable of a module, or memory that a kernel allocated.
        None => match module::context_at(address) {
            Some(context) => context.handle().0 as u64,
            None => context::top_handle().map_or(0, |handle| handle.0 as u64),
        },
    }
}

fn pool_of(owned: &Owned) -> Option<&Pool> {
    match &owned.made {
        Made::Pooled(pool, _) => Some(pool),
        _ => None,
    }
}

fn mapping_of(allocation: &Allocation, owned: Option<&Owned>) -> u64 {
    match owned {
        Some(Owned {
            made: Made::Host { mapping, .. },
            ..
        }) => *mapping,
        // Variables lie in a mapping of their module's.
        _ if matches!(allocation.kind, Kind::Global | Kind::Constant) => {
            allocation.base & !(MAPPING - 1)
        }
        _ => allocation.base,
    }
}
