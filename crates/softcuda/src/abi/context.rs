//! `cuCtx*`, `cuDevicePrimaryCtx*`.

use super::types::{CUcontext, CUdevice};
use super::{In, Out, export};
use crate::driver::{CUresult, Result, capture, context, device, stream};

/// `CUexecAffinityParam`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExecAffinity {
    kind: u32,
    count: u32,
}

/// `CUctxCreateParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ContextParameters {
    affinity: usize,
    affinity_count: i32,
    shared: usize,
}

fn create(handle: Out<CUcontext>, flags: u32, device: CUdevice) -> Result {
    handle.some()?;
    handle.set(context::create(device::check(device)?, flags)?.handle())
}

/// The API version of contexts made through the current functions.
const API_VERSION: u32 = 3020;

export! {
    /// Makes a context and makes it current.
    fn cuCtxCreate(handle: Out<CUcontext>, flags: u32, device: CUdevice) { create(handle, flags, device) }

    /// Makes a context and makes it current.
    fn cuCtxCreate_v2(handle: Out<CUcontext>, flags: u32, device: CUdevice) { create(handle, flags, device) }

    /// Makes a context and makes it current; execution affinity needs MPS and is not supported.
    fn cuCtxCreate_v3(handle: Out<CUcontext>, affinity: In<ExecAffinity>, count: i32, flags: u32, device: CUdevice) {
        if count != 0 || !affinity.is_null() {
            return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
        create(handle, flags, device)
    }

    /// Makes a context and makes it current; execution affinity and shared contexts are not
    /// supported.
    fn cuCtxCreate_v4(handle: Out<CUcontext>, parameters: In<ContextParameters>, flags: u32, device: CUdevice) {
        if let Some(parameters) = parameters.get_if_given() {
            if parameters.affinity_count != 0 || parameters.affinity != 0 {
                return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
            }
            if parameters.shared != 0 {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
        }
        create(handle, flags, device)
    }

    /// Ends a context.
    fn cuCtxDestroy(handle: CUcontext) { context::destroy(handle) }

    /// Ends a context.
    fn cuCtxDestroy_v2(handle: CUcontext) { context::destroy(handle) }

    /// Makes a context current, above the ones that were.
    fn cuCtxPushCurrent(handle: CUcontext) { context::push(handle) }

    /// Makes a context current, above the ones that were.
    fn cuCtxPushCurrent_v2(handle: CUcontext) { context::push(handle) }

    /// Makes the context below the current one current.
    fn cuCtxPopCurrent(handle: Out<CUcontext>) {
        handle.set_if_wanted(context::pop()?);
        Ok(())
    }

    /// Makes the context below the current one current.
    fn cuCtxPopCurrent_v2(handle: Out<CUcontext>) {
        handle.set_if_wanted(context::pop()?);
        Ok(())
    }

    /// Makes a context current in place of the one that is.
    fn cuCtxSetCurrent(handle: CUcontext) { context::set_current(handle) }

    /// The current context, or null.
    fn cuCtxGetCurrent(handle: Out<CUcontext>) {
        handle.set(context::top_handle()?)
    }

    /// The current context's device.
    fn cuCtxGetDevice(device: Out<CUdevice>) {
        device.set(context::top_device()?.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?.number())
    }

    /// A context's device.
    fn cuCtxGetDevice_v2(device: Out<CUdevice>, handle: CUcontext) {
        device.set(context::resolve_or_current(handle)?.device().number())
    }

    /// The current context's flags.
    fn cuCtxGetFlags(flags: Out<u32>) {
        let context = context::usable()?;
        flags.set(context.flags())
    }

    /// Sets the current context's flags.
    fn cuCtxSetFlags(flags: u32) { context::usable()?.set_flags(flags) }

    /// The number that tells a context from every other.
    fn cuCtxGetId(handle: CUcontext, id: Out<u64>) {
        let context = context::resolve_or_current(handle)?;
        id.set(context.id())
    }

    /// Waits for all work of the current context.
    fn cuCtxSynchronize() {
        let current = context::current()?;
        capture::refuse_context(&current)?;
        stream::synchronize_context(&current)
    }

    /// Waits for all work of a context.
    fn cuCtxSynchronize_v2(handle: CUcontext) {
        let context = context::resolve_or_current(handle)?;
        capture::refuse_context(&context)?;
        stream::synchronize_context(&context)
    }

    /// Sets a limit of the current context.
    fn cuCtxSetLimit(limit: u32, value: usize) {
        capture::permit()?;
        context::current()?.set_limit(limit, value as u64)
    }

    /// A limit of the current context.
    fn cuCtxGetLimit(value: Out<usize>, limit: u32) {
        let context = context::current()?;
        value.some()?.set(context.limits.get(limit)? as usize)
    }

    /// The cache configuration of the current context: no more than a preference.
    fn cuCtxGetCacheConfig(config: Out<u32>) {
        let context = context::current()?;
        config.set(context.cache_config())
    }

    /// Sets the cache configuration of the current context.
    fn cuCtxSetCacheConfig(config: u32) {
        capture::permit()?;
        context::current()?.set_cache_config(config)
    }

    /// The shared memory bank size: the device has banks of four bytes alone.
    fn cuCtxGetSharedMemConfig(config: Out<u32>) {
        context::current()?;
        config.set(1)
    }

    /// Accepts a shared memory bank size, which the device does not change.
    fn cuCtxSetSharedMemConfig(config: u32) {
        capture::permit()?;
        context::current()?;
        match config {
            0..=2 => Ok(()),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// The API version a context was made for.
    fn cuCtxGetApiVersion(handle: CUcontext, version: Out<u32>) {
        context::resolve_or_current(handle)?;
        version.set(API_VERSION)
    }

    /// The least and the greatest stream priority.
    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        context::current()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    /// There is no persisting cache to reset.
    fn cuCtxResetPersistingL2Cache() { context::current().map(drop) }

    /// The execution affinity of the current context: all multiprocessors.
    fn cuCtxGetExecAffinity(affinity: Out<ExecAffinity>, kind: u32) {
        context::current()?;
        match kind {
            0 => Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY),
            _ => affinity.some().and(Err(CUresult::CUDA_ERROR_INVALID_VALUE)),
        }
    }

    /// Takes a reference to the current context.
    fn cuCtxAttach(handle: Out<CUcontext>, flags: u32) {
        handle.some()?;
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        handle.set(context::attach()?.handle())
    }

    /// Gives a reference to the current context back.
    fn cuCtxDetach(handle: CUcontext) { context::detach(handle) }

    /// Keeps the primary context alive until it is released.
    fn cuDevicePrimaryCtxRetain(handle: Out<CUcontext>, device: CUdevice) {
        handle.some()?;
        handle.set(context::primary_retain(device::check(device)?)?.handle())
    }

    /// Gives the primary context back.
    fn cuDevicePrimaryCtxRelease(device: CUdevice) {
        context::primary_release(device::check(device)?)
    }

    /// Gives the primary context back.
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) {
        context::primary_release(device::check(device)?)
    }

    /// Sets the flags of the primary context.
    fn cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: u32) {
        context::primary_set_flags(device::check(device)?, flags)
    }

    /// Sets the flags of the primary context.
    fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: u32) {
        context::primary_set_flags(device::check(device)?, flags)
    }

    /// The flags of the primary context, and whether it is active.
    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<u32>, active: Out<i32>) {
        let (now, is_active) = context::primary_state(device::check(device)?);
        flags.some()?;
        active.some()?;
        flags.set(now)?;
        active.set(is_active.into())
    }

    /// Ends the primary context's life, whoever holds it.
    fn cuDevicePrimaryCtxReset(device: CUdevice) {
        context::primary_reset(device::check(device)?)
    }

    /// Ends the primary context's life, whoever holds it.
    fn cuDevicePrimaryCtxReset_v2(device: CUdevice) {
        context::primary_reset(device::check(device)?)
    }
}
