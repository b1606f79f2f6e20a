//! `cuDevice*` but for contexts and pools, and access between devices.

use std::ffi::c_char;

use super::types::{CUcontext, CUdevice};
use super::{In, Out, export};
use crate::driver::{CUresult, Result, capture, context, device};

/// `CUdevprop`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceProperties {
    max_threads_per_block: i32,
    max_threads_dim: [i32; 3],
    max_grid_size: [i32; 3],
    shared_mem_per_block: i32,
    total_constant_memory: i32,
    simd_width: i32,
    mem_pitch: i32,
    regs_per_block: i32,
    clock_rate: i32,
    texture_align: i32,
}

/// Writes a C string into `length` bytes, cut off where it does not fit.
fn set_text(target: Out<c_char>, length: i32, text: &str) -> Result {
    target.some()?;
    let room = usize::try_from(length)
        .ok()
        .filter(|&length| length > 0)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let kept = text.len().min(room - 1);
    for (index, byte) in text.bytes().take(kept).chain([0]).enumerate() {
        target.at(index).set(byte as c_char)?;
    }
    Ok(())
}

fn uuid(target: Out<[u8; 16]>, ordinal: CUdevice) -> Result {
    target.some()?;
    target.set(device::uuid(device::check(ordinal)?))
}

export! {
    /// A device by its number.
    fn cuDeviceGet(target: Out<CUdevice>, ordinal: i32) {
        target.some()?;
        device::check(ordinal)?;
        target.set(ordinal)
    }

    /// How many devices there are.
    fn cuDeviceGetCount(count: Out<i32>) { count.set(device::count()) }

    /// The device's name.
    fn cuDeviceGetName(name: Out<c_char>, length: i32, ordinal: CUdevice) {
        device::check(ordinal)?;
        set_text(name, length, device::name())
    }

    /// The device's number of 16 bytes.
    fn cuDeviceGetUuid(target: Out<[u8; 16]>, ordinal: CUdevice) { uuid(target, ordinal) }

    /// The device's number of 16 bytes.
    fn cuDeviceGetUuid_v2(target: Out<[u8; 16]>, ordinal: CUdevice) { uuid(target, ordinal) }

    /// What Windows calls the device; there is none here.
    fn cuDeviceGetLuid(_luid: Out<c_char>, _mask: Out<u32>, ordinal: CUdevice) {
        device::check(ordinal)?;
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    /// The device's memory in bytes.
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, ordinal: CUdevice) {
        bytes.some()?;
        device::check(ordinal)?;
        bytes.set(device::total_memory() as usize)
    }

    /// An attribute of the device.
    fn cuDeviceGetAttribute(value: Out<i32>, attribute: u32, ordinal: CUdevice) {
        value.some()?;
        value.set(device::attribute(device::check(ordinal)?, attribute)?)
    }

    /// The attributes of a device that CUDA 2 knew.
    fn cuDeviceGetProperties(properties: Out<DeviceProperties>, ordinal: CUdevice) {
        properties.some()?;
        let of = device::check(ordinal)?;
        let attribute = |number| device::attribute(of, number);
        let [threads, x, y, z, grid_x, grid_y, grid_z] = [1, 2, 3, 4, 5, 6, 7].map(attribute);
        let [shared, constant, warp, pitch, registers, clock, align] = [8, 9, 10, 11, 12, 13, 14].map(attribute);
        properties.set(DeviceProperties {
            max_threads_per_block: threads?,
            max_threads_dim: [x?, y?, z?],
            max_grid_size: [grid_x?, grid_y?, grid_z?],
            shared_mem_per_block: shared?,
            total_constant_memory: constant?,
            simd_width: warp?,
            mem_pitch: pitch?,
            regs_per_block: registers?,
            clock_rate: clock?,
            texture_align: align?,
        })
    }

    /// The compute capability.
    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, ordinal: CUdevice) {
        major.some()?;
        minor.some()?;
        device::check(ordinal)?;
        let capability = device::compute_capability();
        major.set(capability.0 as i32)?;
        minor.set(capability.1 as i32)
    }

    /// Whether contexts can be limited to some multiprocessors: they cannot.
    fn cuDeviceGetExecAffinitySupport(support: Out<i32>, _kind: u32, ordinal: CUdevice) {
        support.some()?;
        device::check(ordinal)?;
        support.set(0)
    }

    /// Where the device sits.
    fn cuDeviceGetPCIBusId(text: Out<c_char>, length: i32, ordinal: CUdevice) {
        text.some()?;
        let id = device::pci_bus_id(device::check(ordinal)?);
        if length <= id.len() as i32 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        set_text(text, length, &id)
    }

    /// The device that sits somewhere.
    fn cuDeviceGetByPCIBusId(target: Out<CUdevice>, text: In<c_char>) {
        target.some()?;
        let text = text.text()?.to_str().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if let Some(found) = device::at_pci_bus_id(text) {
            return target.set(found.number());
        }
        let numbers = text.split([':', '.']).all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_hexdigit()));
        match numbers && text.contains(':') {
            true => Err(CUresult::CUDA_ERROR_INVALID_DEVICE),
            false => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Whether a device can reach another's memory: each can, and none is its own peer.
    fn cuDeviceCanAccessPeer(can: Out<i32>, ordinal: CUdevice, peer: CUdevice) {
        can.some()?;
        can.set((device::check(ordinal)? != device::check(peer)?).into())
    }

    /// An attribute of the link between two devices.
    fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: u32, source: CUdevice, target: CUdevice) {
        value.some()?;
        if device::check(source)? == device::check(target)? {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        value.set(device::link_attribute(attribute)?)
    }

    /// Lets kernels of the current context use the memory of another device's context.
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: u32) {
        capture::permit()?;
        let context = context::current()?;
        let peer = context::resolve(peer)?;
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        context.enable_peer(&peer)
    }

    /// Ends what `cuCtxEnablePeerAccess` began.
    fn cuCtxDisablePeerAccess(peer: CUcontext) {
        capture::permit()?;
        let context = context::current()?;
        context.disable_peer(&*context::resolve(peer)?)
    }

    /// Makes writes from outside visible: they always are.
    fn cuFlushGPUDirectRDMAWrites(target: u32, scope: u32) {
        context::current()?;
        match (target, scope) {
            (0, 100 | 200) => Ok(()),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// The profiler listens to nothing.
    fn cuProfilerInitialize(_config: In<c_char>, _output: In<c_char>, _mode: u32) {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    /// Starts profiling, of which there is none.
    fn cuProfilerStart() {
        capture::permit()?;
        context::current().map(drop)
    }

    /// Stops profiling, of which there is none.
    fn cuProfilerStop() {
        capture::permit()?;
        context::current().map(drop)
    }
}
