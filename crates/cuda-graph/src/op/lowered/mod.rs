//! Fills and small copies as kernels of this library's own.
//!
//! A driver submits a memset node, or a copy of pinned memory, at many times the cost of a kernel.
//! A kernel that does the same stands for one such operation, or for several that do not depend on
//! each other. It does not stand for:
//!
//! - copies of arrays, of pageable memory, and from host to host;
//! - anything of managed memory: a launch would move its pages;
//! - memory of another device or context, and memory that the driver does not know;
//! - copies whose sides overlap;
//! - what is larger than [`MOST_BYTES`] says.

mod kernel;

use std::sync::Arc;

use cudarc::driver::CudaContext;

use super::transfer::{From, Side, Transfer};
use super::{KernelOp, Op};
use crate::driver::memory::Place;
use crate::memory::Space;
use crate::{Result, driver};
pub(crate) use kernel::MOST_SLOTS;
pub(super) use kernel::{MOST_VALUE, launch};

/// A way that bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    FillDevice,
    FillHost,
    DeviceToDevice,
    HostToDevice,
    DeviceToHost,
}

/// The most bytes of an operation that is done by a kernel.
///
/// Memory of the device: a large fill or copy is as fast either way, but a kernel takes
/// multiprocessors from others. Across the bus: a copy engine moves large blocks faster, and beside
/// kernels. The limits are where to start from; measurements will set them.
const MOST_BYTES: [(Way, u64); 5] = [
    (Way::FillDevice, 1 << 20),
    (Way::FillHost, 64 << 10),
    (Way::DeviceToDevice, 1 << 20),
    (Way::HostToDevice, 64 << 10),
    (Way::DeviceToHost, 64 << 10),
];

/// Which sizes are lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// Those that are better done so.
    Worthwhile,
    /// All: for an operation that is set on a node which stands for another one so far.
    All,
}

/// How many slots of a launch an operation takes at most, of [`MOST_SLOTS`] that there are. `None`
/// for what is no fill and no copy.
pub(crate) fn slots(op: &impl Op) -> Option<usize> {
    op.transfer().map(|transfer| kernel::slots(&transfer))
}

/// One launch that does what all of `ops` do, or `None` if there is none. They must not conflict.
///
/// Entry number i of the launch is operation number i. One that is not enabled is an entry that
/// does nothing. The launch holds what the operations hold. It has the
/// name and place of the first.
///
/// To change or disable one of several, or the one there is, lower all of them again, with
/// [`Sizes::All`]: the result differs from the launch before in its function, its grid and its
/// arguments, which a node of an executable takes.
pub(crate) fn lower<O: Op>(
    context: &Arc<CudaContext>,
    ops: &[&O],
    is_enabled: impl Fn(usize) -> bool,
    sizes: Sizes,
) -> Option<Result<KernelOp>> {
    let (first, rest) = ops.split_first()?;
    let untouched = rest.is_empty() && is_enabled(0);
    if untouched && let Some(launch) = first.launch().filter(|_| first.transfer().is_some()) {
        let mut launch = launch.clone();
        *launch.tag_mut() = first.tag().clone();
        return Some(Ok(launch));
    }
    if let Err(error) = driver::bind(context) {
        return Some(Err(error));
    }
    let transfers = (0..).zip(ops).map(|(index, op)| {
        // The memory of one that does nothing may be gone.
        match is_enabled(index) {
            true => placed(context, *op, sizes).map(Some),
            false => Some(None),
        }
    });
    let transfers: Vec<_> = transfers.collect::<Option<_>>()?;
    let owners = ops.iter().flat_map(|op| op.owners()).cloned();
    // SAFETY: the operations say that their memory may be read and written, and hold it; the device
    // reaches all of it at the addresses that were found.
    unsafe { launch(context, transfers, owners, first.tag().clone()) }
}

/// What an operation does, with addresses of the device of `context`. `None` if it is not lowered.
fn placed<'o>(context: &CudaContext, op: &'o impl Op, sizes: Sizes) -> Option<Transfer<'o>> {
    // What nobody holds may be gone.
    if op.tag().unowned || !op.attributes().is_empty() {
        return None;
    }
    let mut transfer = op.transfer()?;
    if transfer.bytes() == 0 {
        return Some(transfer);
    }
    let to = place(context, &transfer, &transfer.to)?;
    let from = match &transfer.from {
        From::Value(_) => None,
        From::Memory(side) => Some(place(context, &transfer, side)?),
    };
    let way = match (to.is_host, from.as_ref().map(|from| from.is_host)) {
        (false, None) => Way::FillDevice,
        (true, None) => Way::FillHost,
        (false, Some(false)) => Way::DeviceToDevice,
        (false, Some(true)) => Way::HostToDevice,
        (true, Some(false)) => Way::DeviceToHost,
        (true, Some(true)) => return None,
    };
    let (_, most) = MOST_BYTES.iter().find(|(of, _)| *of == way)?;
    if sizes == Sizes::Worthwhile && transfer.bytes() > *most {
        return None;
    }
    transfer.to.start = to.address;
    if let (From::Memory(side), Some(from)) = (&mut transfer.from, from) {
        side.start = from.address;
    }
    if let From::Memory(side) = &transfer.from {
        let (to, from) = (transfer.range(&transfer.to), transfer.range(side));
        if to.start < from.end && from.start < to.end {
            return None;
        }
    }
    Some(transfer)
}

/// Where the device of the current context, which is `context`, reaches one side.
fn place(context: &CudaContext, transfer: &Transfer<'_>, side: &Side<'_>) -> Option<Place> {
    let range = transfer.range(side);
    let place = driver::memory::place(&range, context.cu_ctx(), context.ordinal())?;
    let is_host = match side.region.space {
        Space::Device => false,
        Space::Host => true,
        Space::Managed => return None,
    };
    // What is said of raw memory may be wrong; the driver then goes by what it knows.
    (place.is_host == is_host).then_some(place)
}
