//! `cuStream*`, `cuLaunchHostFunc`.

use std::ffi::c_void;

use super::event::is_external;
use super::types::{CUcontext, CUdevice, CUevent, CUstream};
use super::{In, NullStream, Out, export};
use crate::driver::host_function::{self, HostFn, StreamCallback};
use crate::driver::stream::{Attribute, Stream};
use crate::driver::{CUresult, Result, capture, context, event, stream};

fn resolve(handle: CUstream, null: NullStream) -> Result<std::sync::Arc<Stream>> {
    stream::resolve(handle, null)
}

export! {
    /// Makes a stream.
    fn cuStreamCreate(handle: Out<CUstream>, flags: u32) {
        handle.some()?;
        handle.set(stream::create(&context::current()?, flags, 0)?)
    }

    /// Makes a stream with a priority.
    fn cuStreamCreateWithPriority(handle: Out<CUstream>, flags: u32, priority: i32) {
        handle.some()?;
        handle.set(stream::create(&context::current()?, flags, priority)?)
    }

    /// Destroys a stream; what it was given still runs.
    fn cuStreamDestroy(handle: CUstream) { stream::destroy(handle) }

    /// Destroys a stream; what it was given still runs.
    fn cuStreamDestroy_v2(handle: CUstream) { stream::destroy(handle) }

    /// Waits for all that the stream was given.
    fn cuStreamSynchronize | cuStreamSynchronize_ptsz(null; handle: CUstream) {
        let stream = stream::resolve_to_run(handle, null)?;
        capture::permit()?;
        stream.synchronize()
    }

    /// Says whether all that the stream was given has ended.
    fn cuStreamQuery | cuStreamQuery_ptsz(null; handle: CUstream) {
        let stream = stream::resolve_to_run(handle, null)?;
        capture::permit()?;
        stream.query()
    }

    /// The stream's priority.
    fn cuStreamGetPriority | cuStreamGetPriority_ptsz(null; handle: CUstream, priority: Out<i32>) {
        priority.some()?;
        priority.set(resolve(handle, null)?.priority())
    }

    /// The stream's device.
    fn cuStreamGetDevice | cuStreamGetDevice_ptsz(null; handle: CUstream, device: Out<CUdevice>) {
        device.some()?;
        device.set(stream::resolve_to_run(handle, null)?.context().device().number())
    }

    /// The flags that the stream was made with.
    fn cuStreamGetFlags | cuStreamGetFlags_ptsz(null; handle: CUstream, flags: Out<u32>) {
        flags.some()?;
        flags.set(stream::resolve_to_run(handle, null)?.flags())
    }

    /// A number that no other stream has.
    fn cuStreamGetId | cuStreamGetId_ptsz(null; handle: CUstream, id: Out<u64>) {
        id.some()?;
        id.set(stream::resolve_to_run(handle, null)?.id())
    }

    /// The stream's context.
    fn cuStreamGetCtx | cuStreamGetCtx_ptsz(null; handle: CUstream, owner: Out<CUcontext>) {
        owner.some()?;
        owner.set(resolve(handle, null)?.context().handle())
    }

    /// The stream's context; it has no green one.
    fn cuStreamGetCtx_v2 | cuStreamGetCtx_v2_ptsz(null; handle: CUstream, owner: Out<CUcontext>, green: Out<usize>) {
        owner.some()?;
        owner.set(resolve(handle, null)?.context().handle())?;
        green.set_if_wanted(0);
        Ok(())
    }

    /// The stream's green context: none.
    fn cuStreamGetGreenCtx(handle: CUstream, green: Out<usize>) {
        green.some()?;
        resolve(handle, NullStream::Legacy)?;
        green.set(0)
    }

    /// Later work of the stream waits for what the event recorded.
    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz(null; handle: CUstream, waited: CUevent, flags: u32) {
        let stream = resolve(handle, null)?;
        let event = event::resolve_any(waited)?;
        match is_external(flags)? {
            true => event.order_before_externally(&stream),
            false => event.order_before(&stream),
        }
    }

    /// Calls a function of the program in the stream's turn.
    fn cuStreamAddCallback | cuStreamAddCallback_ptsz(
        null; handle: CUstream, callback: Option<StreamCallback>, data: *mut c_void, flags: u32,
    ) {
        let callback = callback.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let stream = stream::resolve_to_run(handle, null)?;
        // SAFETY: the caller passes a callback that may be called once with its data, on a thread
        // of ours.
        unsafe { host_function::add_callback(&stream, callback, data) }
    }

    /// Calls a function of the program in the stream's turn.
    fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz(
        null; handle: CUstream, function: Option<HostFn>, data: *mut c_void,
    ) {
        let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let stream = resolve(handle, null)?;
        // SAFETY: the caller passes a function that may be called with its data, on a thread of
        // ours: once, or by every launch of the graph that is captured.
        unsafe { host_function::launch(&stream, function, data) }
    }

    /// Reads an attribute.
    fn cuStreamGetAttribute | cuStreamGetAttribute_ptsz(
        null; handle: CUstream, attribute: u32, value: Out<Attribute>,
    ) {
        value.some()?;
        value.set(resolve(handle, null)?.attribute(attribute)?)
    }

    /// Sets an attribute.
    fn cuStreamSetAttribute | cuStreamSetAttribute_ptsz(
        null; handle: CUstream, attribute: u32, value: In<Attribute>,
    ) {
        let value = value.get()?;
        resolve(handle, null)?.set_attribute(attribute, value)
    }

    /// Takes over another stream's attributes.
    fn cuStreamCopyAttributes | cuStreamCopyAttributes_ptsz(null; to: CUstream, from: CUstream) {
        let to = resolve(to, null)?;
        to.copy_attributes(&*resolve(from, null)?)
    }
}
