//! The parameters of nodes as they cross the ABI: structures of `cuda.h`, to operations and back.

use std::ffi::c_void;
use std::sync::Arc;

use super::copy::Copy3d;
use super::launch::parameters;
use super::pool::PoolProperties;
use super::types::{CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUkernel};
use super::{In, InOut, Out};
use crate::driver::context::Context;
use crate::driver::graph::attribute::Attributes;
use crate::driver::graph::edge::EdgeData;
use crate::driver::graph::operation::{
    BatchNode, CopyNode, EventNode, FillNode, FillParams, HostNode, KernelNode, WRONG_KIND,
};
use crate::driver::graph::{Kind, Operation, memory};
use crate::driver::host_function::{HostFn, UserData};
use crate::driver::launch::Config;
use crate::driver::memory as owned;
use crate::driver::memory_operation::Parameters;
use crate::driver::virtual_memory::Access;
use crate::driver::{CUresult, Result, context, event, function, library};
use crate::memory::Device;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelParams1 {
    function: CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    values: In<usize>,
    extra: In<usize>,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelParams {
    first: KernelParams1,
    kernel: CUkernel,
    context: CUcontext,
}

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FillParams1 {
    address: CUdeviceptr,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FillParams2 {
    first: FillParams1,
    context: CUcontext,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CopyParams {
    flags: i32,
    reserved: i32,
    context: CUcontext,
    copy: Copy3d,
}

/// `CUDA_HOST_NODE_PARAMS` and `_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostParams {
    function: Option<HostFn>,
    data: *mut c_void,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS` and `_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatchParams {
    context: CUcontext,
    count: u32,
    operations: In<Parameters>,
    flags: u32,
}

/// `CUDA_CHILD_GRAPH_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ChildParams {
    /// The graph.
    pub graph: CUgraph,
    /// `CUgraphChildGraphNodeOwnership`.
    pub ownership: u32,
}

/// `CUDA_CONDITIONAL_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConditionalParams {
    /// The condition's handle.
    pub condition: u64,
    /// `CUgraphConditionalNodeType`.
    pub kind: u32,
    /// How many bodies.
    pub count: u32,
    /// Where the driver says what they are.
    pub bodies: In<CUgraph>,
    /// Where it runs.
    pub context: CUcontext,
}

/// No data of edges.
pub(super) fn no_data() -> In<EdgeData> {
    In::<u8>::from_address(0).cast()
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS` and `_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllocParams {
    properties: PoolProperties,
    access: In<Access>,
    access_count: usize,
    size: usize,
    address: CUdeviceptr,
}

impl AllocParams {
    /// What is to be allocated.
    pub(super) fn decode(&self) -> Result<memory::AllocParams> {
        // One for each device, as an H200 counts them: whose they are is looked at later.
        if self.access_count > Device::count() {
            return Err(INVALID);
        }
        Ok(memory::AllocParams {
            properties: self.properties.decode(),
            access: self.access.list(self.access_count)?.into(),
            size: self.size as u64,
        })
    }

    /// The same, with the address.
    pub(super) fn with_address(self, address: u64) -> AllocParams {
        AllocParams { address, ..self }
    }
}

/// `CUDA_MEM_FREE_NODE_PARAMS`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct FreeParams(pub CUdeviceptr);

impl Params for AllocParams {
    fn decode(&self, _old: Option<&Operation>) -> Result<Operation> {
        // What is allocated cannot change, and new nodes are not made by this.
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    fn encode(operation: &Operation) -> Result<Self> {
        let Operation::Alloc(memory) = operation else {
            return Err(WRONG_KIND);
        };
        let params = memory.params();
        Ok(AllocParams {
            properties: PoolProperties::encode(&params.properties),
            access: In::<u8>::from_address(match params.access.len() {
                0 => 0,
                _ => params.access.as_ptr() as usize,
            })
            .cast(),
            access_count: params.access.len(),
            size: params.size as usize,
            address: memory.address(),
        })
    }
}

impl Params for FreeParams {
    fn decode(&self, _old: Option<&Operation>) -> Result<Operation> {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    fn encode(operation: &Operation) -> Result<Self> {
        match operation {
            Operation::Free(memory) => Ok(FreeParams(memory.address())),
            _ => Err(WRONG_KIND),
        }
    }
}

/// The context that a node names: where it names none, the current one, or else that of the memory.
fn context_for(handle: CUcontext, addresses: &[u64]) -> Result<Arc<Context>> {
    let found = context::resolve_or_current(handle);
    let owner = || {
        let owners = addresses.iter().filter_map(|&it| owned::owner(it));
        owners.map(|owned| owned.context).next()
    };
    match found {
        Err(CUresult::CUDA_ERROR_INVALID_CONTEXT) if handle.is_null() => {
            owner().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
        }
        found => found,
    }
}

/// Parameters of one kind of node: to an operation that takes the place of `old`, where there is
/// one, and back.
pub(super) trait Params: Copy + Sized {
    fn decode(&self, old: Option<&Operation>) -> Result<Operation>;
    fn encode(operation: &Operation) -> Result<Self>;
}

impl Params for KernelParams1 {
    fn decode(&self, old: Option<&Operation>) -> Result<Operation> {
        let second = KernelParams {
            first: *self,
            kernel: CUkernel::NULL,
            context: CUcontext::NULL,
        };
        second.decode(old)
    }

    fn encode(operation: &Operation) -> Result<Self> {
        Ok(KernelParams::encode(operation)?.first)
    }
}

impl Params for KernelParams {
    fn decode(&self, old: Option<&Operation>) -> Result<Operation> {
        let first = &self.first;
        let named = (!self.kernel.is_null()).then_some(self.kernel);
        let function = match named {
            Some(kernel) if first.function.is_null() => {
                let context = context::resolve_or_current(self.context)?;
                library::kernel(kernel)?.function(&context)?
            }
            // A kernel does not stand in for its function here.
            _ => function::resolve_itself(first.function)?,
        };
        function.context().check()?;
        let config = Config::new(first.grid, first.block, first.dynamic_shared);
        let values =
            parameters(&function, first.values, first.extra).map_err(|error| match error {
                CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES => INVALID,
                error => error,
            })?;
        let attributes = match old {
            Some(Operation::Kernel(old)) => old.attributes().clone(),
            _ => Attributes::default(),
        };
        let node = KernelNode::new(function, named, &config, values, attributes)?;
        Ok(Operation::Kernel(Arc::new(node)))
    }

    fn encode(operation: &Operation) -> Result<Self> {
        let Operation::Kernel(node) = operation else {
            return Err(WRONG_KIND);
        };
        let (grid, block, dynamic_shared) = node.shape();
        Ok(KernelParams {
            first: KernelParams1 {
                function: node.function().handle(),
                grid,
                block,
                dynamic_shared,
                values: In::<u8>::from_address(node.places().as_ptr() as usize).cast(),
                extra: In::<u8>::from_address(0).cast(),
            },
            kernel: node.kernel().unwrap_or(CUkernel::NULL),
            context: node.function().context().handle(),
        })
    }
}

impl Params for FillParams2 {
    fn decode(&self, old: Option<&Operation>) -> Result<Operation> {
        let context = match (self.context.is_null(), old) {
            (true, Some(Operation::Fill(old))) => old.context().clone(),
            _ => context_for(self.context, &[self.first.address])?,
        };
        context.check()?;
        let params = FillParams {
            address: self.first.address,
            pitch: self.first.pitch as u64,
            value: self.first.value,
            element: self.first.element,
            width: self.first.width as u64,
            height: self.first.height as u64,
        };
        FillNode::new(params, context).map(|node| Operation::Fill(Arc::new(node)))
    }

    fn encode(operation: &Operation) -> Result<Self> {
        let Operation::Fill(node) = operation else {
            return Err(WRONG_KIND);
        };
        let params = node.params();
        Ok(FillParams2 {
            first: FillParams1 {
                address: params.address,
                pitch: params.pitch as usize,
                value: params.value,
                element: params.element,
                width: params.width as usize,
                height: params.height as usize,
            },
            context: node.context().handle(),
        })
    }
}

impl FillParams1 {
    /// With the context that another parameter of the call names.
    pub(super) fn in_context(self, context: CUcontext) -> FillParams2 {
        FillParams2 {
            first: self,
            context,
        }
    }
}

impl FillParams2 {
    /// Without the context.
    pub(super) fn first(&self) -> FillParams1 {
        self.first
    }
}

impl CopyParams {
    /// With the context that another parameter of the call names.
    pub(super) fn new(copy: Copy3d, context: CUcontext) -> CopyParams {
        CopyParams {
            flags: 0,
            reserved: 0,
            context,
            copy,
        }
    }

    /// The copy alone.
    pub(super) fn copy(&self) -> Copy3d {
        self.copy
    }
}

impl Params for CopyParams {
    fn decode(&self, old: Option<&Operation>) -> Result<Operation> {
        if self.flags != 0 || self.reserved != 0 {
            return Err(INVALID);
        }
        let (target, source, extent) = self.copy.ends()?;
        let context = match (self.context.is_null(), old) {
            (true, Some(Operation::Copy(old))) => old.context().clone(),
            _ => context_for(self.context, &[target.end.address(), source.end.address()])?,
        };
        context.check()?;
        let node = CopyNode::new(target, source, extent, context)?;
        Ok(Operation::Copy(Arc::new(node)))
    }

    fn encode(operation: &Operation) -> Result<Self> {
        let Operation::Copy(node) = operation else {
            return Err(WRONG_KIND);
        };
        let copy = Copy3d::encode(node.params());
        Ok(CopyParams::new(copy, node.context().handle()))
    }
}

impl Params for HostParams {
    fn decode(&self, _old: Option<&Operation>) -> Result<Operation> {
        Ok(Operation::Host(HostNode {
            function: self.function.ok_or(INVALID)?,
            data: UserData(self.data),
        }))
    }

    fn encode(operation: &Operation) -> Result<Self> {
        let Operation::Host(node) = operation else {
            return Err(WRONG_KIND);
        };
        Ok(HostParams {
            function: Some(node.function),
            data: node.data.get(),
        })
    }
}

impl Params for BatchParams {
    fn decode(&self, _old: Option<&Operation>) -> Result<Operation> {
        if self.count > 256 || self.context.is_null() {
            return Err(INVALID);
        }
        let operations = self.operations.list(self.count as usize)?;
        let context = context::resolve(self.context)?;
        context.check()?;
        let node = BatchNode::new(context, operations, self.flags)?;
        Ok(Operation::Batch(Arc::new(node)))
    }

    fn encode(operation: &Operation) -> Result<Self> {
        let Operation::Batch(node) = operation else {
            return Err(WRONG_KIND);
        };
        let operations = node.parameters();
        Ok(BatchParams {
            context: node.context().handle(),
            count: operations.len() as u32,
            operations: In::<u8>::from_address(operations.as_ptr() as usize).cast(),
            flags: node.flags(),
        })
    }
}

/// The event of a record node.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct RecordParams(pub CUevent);

/// The event of a wait node.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct WaitParams(pub CUevent);

impl Params for RecordParams {
    fn decode(&self, _old: Option<&Operation>) -> Result<Operation> {
        let event = event::resolve(self.0).map_err(|_| INVALID)?;
        Ok(Operation::EventRecord(EventNode::new(event)))
    }

    fn encode(operation: &Operation) -> Result<Self> {
        match operation {
            Operation::EventRecord(node) => Ok(RecordParams(node.event().handle())),
            _ => Err(WRONG_KIND),
        }
    }
}

impl Params for WaitParams {
    fn decode(&self, _old: Option<&Operation>) -> Result<Operation> {
        let event = event::resolve(self.0).map_err(|_| INVALID)?;
        Ok(Operation::EventWait(EventNode::new(event)))
    }

    fn encode(operation: &Operation) -> Result<Self> {
        match operation {
            Operation::EventWait(node) => Ok(WaitParams(node.event().handle())),
            _ => Err(WRONG_KIND),
        }
    }
}

/// `CUgraphNodeParams`, but for its union.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NodeParams {
    kind: u32,
    reserved: [i32; 3],
    union: [u64; 29],
    last: u64,
}

/// Where the union is.
const UNION: usize = 16;

/// The parameters in the union of the caller's structure.
pub(super) fn member<T: Copy>(params: In<NodeParams>) -> In<T> {
    params.cast::<u8>().at(UNION).cast()
}

/// The same, to write.
pub(super) fn member_out<T>(params: Out<NodeParams>) -> Out<T> {
    params.cast::<u8>().at(UNION).cast()
}

/// The same, to read and write.
pub(super) fn member_in_out<T>(params: Out<NodeParams>) -> InOut<T> {
    InOut::from_out(member_out(params))
}

impl NodeParams {
    /// `CUgraphNodeType`, in a structure whose unused bytes are zero where `used` is what its kind
    /// has.
    pub(super) fn kind(&self) -> Result<u32> {
        let used = match self.kind {
            0 => size_of::<KernelParams>(),
            1 => size_of::<CopyParams>(),
            2 => size_of::<FillParams2>(),
            3 => size_of::<HostParams>(),
            4 => size_of::<ChildParams>(),
            6 | 7 | 11 => 8,
            8 | 9 => 24,
            10 => size_of::<AllocParams>(),
            12 => size_of::<BatchParams>(),
            13 => size_of::<ConditionalParams>(),
            5 => 0,
            _ => return Err(INVALID),
        };
        let unused = &self.union[used.div_ceil(8)..];
        let zero =
            self.reserved == [0; 3] && self.last == 0 && unused.iter().all(|&word| word == 0);
        if zero { Ok(self.kind) } else { Err(INVALID) }
    }
}

/// The operation of parameters of any kind but child graphs, which are not values.
pub(super) fn decode(params: In<NodeParams>, old: Option<&Operation>) -> Result<Operation> {
    const KERNEL: u32 = Kind::Kernel as u32;
    const COPY: u32 = Kind::Copy as u32;
    const FILL: u32 = Kind::Fill as u32;
    const HOST: u32 = Kind::Host as u32;
    const EMPTY: u32 = Kind::Empty as u32;
    const WAIT: u32 = Kind::EventWait as u32;
    const RECORD: u32 = Kind::EventRecord as u32;
    const BATCH: u32 = Kind::Batch as u32;
    let kind = params.get()?.kind()?;
    if old.is_some_and(|old| old.kind() as u32 != kind) {
        return Err(WRONG_KIND);
    }
    match kind {
        KERNEL => member::<KernelParams>(params).get()?.decode(old),
        COPY => member::<CopyParams>(params).get()?.decode(old),
        FILL => member::<FillParams2>(params).get()?.decode(old),
        HOST => member::<HostParams>(params).get()?.decode(old),
        EMPTY => Ok(Operation::Empty),
        WAIT => member::<WaitParams>(params).get()?.decode(old),
        RECORD => member::<RecordParams>(params).get()?.decode(old),
        BATCH => member::<BatchParams>(params).get()?.decode(old),
        _ => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
    }
}
