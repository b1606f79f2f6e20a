//! Access of a device to another's memory.

use cudarc::driver::CudaContext;

use crate::{Error, Result, driver};

/// Whether the device of `context` can reach the memory of `peer`'s device. A device reaches its
/// own.
///
/// # Errors
///
/// [`Error::Call`] if the driver does not answer.
pub fn can_access_peer(context: &CudaContext, peer: &CudaContext) -> Result<bool> {
    if context.cu_device() == peer.cu_device() {
        return Ok(true);
    }
    driver::peer::can_access(context.cu_device(), peer.cu_device())
}

/// Lets kernels, copies and fills of `context`'s device reach memory of `peer`: what cudarc and
/// this library allocated there and will allocate, and what `cuMemAlloc` did.
///
/// In one direction: call it again the other way round for the other. That access was enabled
/// before is no error, and for contexts of one device there is nothing to do. Memory of a pool that
/// is not the device's current one, and of mappings, has access rules of its own
/// (`cuMemPoolSetAccess`, `cuMemSetAccess`).
///
/// ```
/// use cuda_graph::{Buffer, CopyOp, Graph};
/// use cuda_graph::cudarc::driver::CudaContext;
///
/// let own = cuda_graph::device(0)?;
/// # if CudaContext::device_count().unwrap() < 2 { return Ok(()) }
/// let other = cuda_graph::device(1)?;
/// cuda_graph::enable_peer_access(own.context(), other.context())?;
///
/// let (here, there) = (own.context().new_stream()?, other.context().new_stream()?);
/// let from = Buffer::from_host(&there, &[1u32, 2, 3])?;
/// there.synchronize()?;
/// let to = Buffer::<u32>::zeroed(&here, 3)?;
/// let graph = Graph::new(own.context())?;
/// graph.add(CopyOp::new(&to, &from)?, ())?;
/// graph.instantiate()?.launch(&here)?;
/// assert_eq!(to.to_host(&here)?, [1, 2, 3]);
/// # Ok::<(), cuda_graph::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::NoPeerAccess`] if the devices cannot reach each other; [`Error::Call`].
pub fn enable_peer_access(context: &CudaContext, peer: &CudaContext) -> Result<()> {
    if context.cu_device() == peer.cu_device() {
        return Ok(());
    }
    if !can_access_peer(context, peer)? {
        return Err(Error::NoPeerAccess {
            device: context.ordinal(),
            peer: peer.ordinal(),
        });
    }
    driver::bind(context)?;
    driver::peer::enable(peer.cu_ctx())?;
    match peer.has_async_alloc() {
        true => {
            let pool = driver::peer::current_pool(peer.cu_device())?;
            driver::peer::open_pool(pool, context.ordinal())
        }
        false => Ok(()),
    }
}
