//! `cuLaunch*`.

use super::types::{CUevent, CUfunction, CUstream};
use super::{In, NullStream, export};
use crate::driver::function::{self, Function};
use crate::driver::graph::attribute::Attributes;
use crate::driver::launch::{self, Config, Trigger};
use crate::driver::stream::Attribute;
use crate::driver::{CUresult, Result, capture, event, stream};

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    stream: CUstream,
    attributes: usize,
    attribute_count: u32,
}

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchAttribute {
    id: u32,
    reserved: u32,
    value: Attribute,
}

/// `CUlaunchAttributeID`.
mod attribute {
    pub const IGNORE: u32 = 0;
    pub const ACCESS_POLICY_WINDOW: u32 = 1;
    pub const COOPERATIVE: u32 = 2;
    pub const CLUSTER_DIMENSION: u32 = 4;
    pub const CLUSTER_SCHEDULING_POLICY_PREFERENCE: u32 = 5;
    pub const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;
    pub const PROGRAMMATIC_EVENT: u32 = 7;
    pub const PRIORITY: u32 = 8;
    pub const MEM_SYNC_DOMAIN_MAP: u32 = 9;
    pub const MEM_SYNC_DOMAIN: u32 = 10;
    pub const PREFERRED_CLUSTER_DIMENSION: u32 = 11;
    pub const LAUNCH_COMPLETION_EVENT: u32 = 12;
    pub const DEVICE_UPDATABLE_KERNEL_NODE: u32 = 13;
    pub const PREFERRED_SHARED_MEMORY_CARVEOUT: u32 = 14;
    pub const NVLINK_UTIL_CENTRIC_SCHEDULING: u32 = 16;
}

/// `CU_LAUNCH_PARAM_END`, `_BUFFER_POINTER` and `_BUFFER_SIZE`.
const PARAM_END: usize = 0;
const PARAM_BUFFER_POINTER: usize = 1;
const PARAM_BUFFER_SIZE: usize = 2;
/// The most bytes of parameters that any kernel takes.
const MOST_PARAMETERS: usize = 32764;

/// The 32-bit words that an attribute's value starts with.
fn words(value: &Attribute) -> [u32; 4] {
    [
        value[0] as u32,
        (value[0] >> 32) as u32,
        value[1] as u32,
        (value[1] >> 32) as u32,
    ]
}

impl LaunchConfig {
    /// What the launch asks for, its attributes understood.
    pub(super) fn decode(&self) -> Result<Config> {
        let mut config = Config::new(self.grid, self.block, self.dynamic_shared);
        let attributes = In::<u8>::from_address(self.attributes).cast::<LaunchAttribute>();
        for LaunchAttribute { id, value, .. } in attributes.list(self.attribute_count as usize)? {
            let [first, second, third, _] = words(&value);
            match id {
                attribute::COOPERATIVE => config.cooperative = first != 0,
                attribute::CLUSTER_DIMENSION => config.cluster = Some([first, second, third]),
                attribute::PROGRAMMATIC_EVENT => config.ended = Some(trigger(&value)?),
                attribute::LAUNCH_COMPLETION_EVENT => config.begun = Some(trigger(&value)?),
                attribute::PROGRAMMATIC_STREAM_SERIALIZATION => config.programmatic = first != 0,
                // They say how a device would best run the launch, or let it run earlier than it
                // must.
                attribute::IGNORE
                | attribute::ACCESS_POLICY_WINDOW
                | attribute::PRIORITY
                | attribute::MEM_SYNC_DOMAIN_MAP
                | attribute::PREFERRED_CLUSTER_DIMENSION
                | attribute::NVLINK_UTIL_CENTRIC_SCHEDULING => {}
                attribute::CLUSTER_SCHEDULING_POLICY_PREFERENCE if first <= 2 => {}
                attribute::MEM_SYNC_DOMAIN if first <= 1 => {}
                attribute::PREFERRED_SHARED_MEMORY_CARVEOUT
                    if (-1..=100).contains(&(first as i32)) => {}
                attribute::DEVICE_UPDATABLE_KERNEL_NODE if first == 0 => {}
                // It is for nodes of graphs.
                attribute::DEVICE_UPDATABLE_KERNEL_NODE => {
                    return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
                }
                _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        }
        Ok(config)
    }

    /// The attributes that a node for the launch keeps, beside those in `attributes`.
    fn keep(&self, mut attributes: Attributes) -> Result<Attributes> {
        let given = In::<u8>::from_address(self.attributes).cast::<LaunchAttribute>();
        for LaunchAttribute { id, value, .. } in given.list(self.attribute_count as usize)? {
            // What is for the launch alone, nodes do not know.
            if attributes.get(id).is_ok() {
                attributes.set(id, value)?;
            }
        }
        Ok(attributes)
    }
}

/// The event of an attribute that names one: a handle, flags, and whether the start of the blocks
/// is meant.
fn trigger(value: &Attribute) -> Result<Trigger> {
    let [_, _, flags, at_block_start] = words(value);
    Ok(Trigger {
        event: event::resolve(CUevent(value[0] as usize))?,
        flags,
        at_block_start: at_block_start != 0,
    })
}

/// The values of a kernel's parameters, as the signature lays them out.
pub(super) fn parameters(
    function: &Function,
    values: In<usize>,
    extra: In<usize>,
) -> Result<Box<[u8]>> {
    let kernel = function.kernel();
    if !values.is_null() && !extra.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if !extra.is_null() {
        return buffer(kernel.params_size, extra);
    }
    let mut bytes = vec![0; kernel.params_size].into_boxed_slice();
    for (index, &(offset, size)) in kernel.params.iter().enumerate() {
        let value = In::<u8>::from_address(values.some()?.at(index).get()?);
        bytes[offset..offset + size].copy_from_slice(value.bytes(size)?);
    }
    Ok(bytes)
}

/// The parameters from a list of keys and values that names one buffer.
fn buffer(params_size: usize, extra: In<usize>) -> Result<Box<[u8]>> {
    let (mut data, mut size) = (None, None);
    let mut index = 0;
    loop {
        match extra.at(index).get()? {
            PARAM_END => break,
            PARAM_BUFFER_POINTER => data = Some(In::<u8>::from_address(extra.at(index + 1).get()?)),
            PARAM_BUFFER_SIZE => {
                size = Some(In::<u8>::from_address(extra.at(index + 1).get()?).cast::<usize>())
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        index += 2;
    }
    let (Some(data), Some(size)) = (data, size) else {
        return match params_size {
            0 => Ok(Box::default()),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
    };
    // Less than the kernel takes leaves the rest zero.
    match size.get()? {
        0 => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        given if given > MOST_PARAMETERS => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        given if given > params_size => Err(CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
        given => {
            let mut bytes = vec![0; params_size].into_boxed_slice();
            bytes[..given].copy_from_slice(data.bytes(given)?);
            Ok(bytes)
        }
    }
}

fn run(
    handle: CUfunction,
    stream: CUstream,
    null: NullStream,
    config: impl FnOnce() -> Result<Config>,
    values: In<usize>,
    extra: In<usize>,
    keep: impl FnOnce(Attributes) -> Result<Attributes>,
) -> Result {
    let stream = stream::resolve(stream, null)?;
    let config = config()?;
    let function = function::resolve_for(handle, &stream)?;
    if stream.is_capturing() {
        let params = || parameters(&function, values, extra);
        return capture::launch(&stream, &function, &config, params, keep);
    }
    let params = parameters(&function, values, extra)?;
    launch::launch(&function, &stream, &config, params)
}

/// A launch as `cuFuncSetBlockShape` and its like prepared it.
fn run_old(handle: CUfunction, width: i32, height: i32, stream: CUstream) -> Result {
    if width <= 0 || height <= 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let stream = stream::resolve(stream, NullStream::Legacy)?;
    let function = function::resolve(handle)?;
    let mut old = function.old.lock().clone();
    old.params.resize(function.kernel().params_size, 0);
    let config = Config::new([width as u32, height as u32, 1], old.block, old.shared);
    if stream.is_capturing() {
        let params = || Ok(old.params.into());
        return capture::launch(&stream, &function, &config, params, Ok);
    }
    launch::launch(&function, &stream, &config, old.params.into())
}

export! {
    /// Launches a kernel.
    fn cuLaunchKernel | cuLaunchKernel_ptsz(
        null; handle: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: CUstream, values: In<usize>, extra: In<usize>,
    ) {
        let config = Config::new([grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared);
        run(handle, stream, null, || Ok(config), values, extra, Ok)
    }

    /// Launches a kernel with attributes.
    fn cuLaunchKernelEx | cuLaunchKernelEx_ptsz(
        null; config: In<LaunchConfig>, handle: CUfunction, values: In<usize>, extra: In<usize>,
    ) {
        let config = config.get()?;
        run(handle, config.stream, null, || config.decode(), values, extra, |attributes| config.keep(attributes))
    }

    /// Launches a kernel whose blocks may wait for each other.
    fn cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz(
        null; handle: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: CUstream, values: In<usize>,
    ) {
        let config = Config::new([grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared);
        let config = Config { cooperative: true, ..config };
        run(handle, stream, null, || Ok(config), values, In::<u8>::from_address(0).cast(), Ok)
    }

    /// Launches one block, as the deprecated calls prepared it.
    fn cuLaunch(handle: CUfunction) { run_old(handle, 1, 1, CUstream::NULL) }

    /// Launches a grid, as the deprecated calls prepared it.
    fn cuLaunchGrid(handle: CUfunction, width: i32, height: i32) { run_old(handle, width, height, CUstream::NULL) }

    /// Launches a grid in a stream, as the deprecated calls prepared it.
    fn cuLaunchGridAsync(handle: CUfunction, width: i32, height: i32, stream: CUstream) {
        run_old(handle, width, height, stream)
    }
}
