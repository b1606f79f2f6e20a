//! Waiting for, and writing, single words of memory.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v2, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUstreamBatchMemOpParams, CUstreamBatchMemOpType as Type, CUstreamWaitValue_flags as Flags,
};

use super::{Op, Shared, Tag, copied, operation, shared};
use crate::memory::{Region, Target};
use crate::{Error, Result, driver};

/// When a word that is waited for is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum WaitCondition {
    /// At least the value, as a signed difference.
    AtLeast = Flags::CU_STREAM_WAIT_VALUE_GEQ as u32,
    /// Equal to the value.
    Equal = Flags::CU_STREAM_WAIT_VALUE_EQ as u32,
    /// Has a bit of the value.
    And = Flags::CU_STREAM_WAIT_VALUE_AND as u32,
    /// Has not all the bits that the value has not: `!(word | value)` is not zero.
    Nor = Flags::CU_STREAM_WAIT_VALUE_NOR as u32,
}

/// One memory operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "an address, a value, a condition")]
pub enum MemoryOperation {
    /// Waits for a word of 32 bits.
    Wait32 {
        address: u64,
        value: u32,
        condition: WaitCondition,
    },
    /// Waits for a word of 64 bits.
    Wait64 {
        address: u64,
        value: u64,
        condition: WaitCondition,
    },
    /// Writes a word of 32 bits.
    Write32 { address: u64, value: u32 },
    /// Writes a word of 64 bits.
    Write64 { address: u64, value: u64 },
    /// Any other kind, read back from a node.
    Other { kind: u32 },
}

operation! {
    /// Waits for, and writes, words of memory, in order.
    BatchOp(Vec<CUstreamBatchMemOpParams>)
}

impl BatchOp {
    /// An empty batch, to be filled by the other functions.
    #[track_caller]
    pub fn new() -> BatchOp {
        BatchOp(Shared::new(Vec::new(), None, Tag::here()))
    }

    /// Also writes `value` to the first 4 bytes of `to`.
    pub fn write32(self, to: impl Target, value: u32) -> Result<Self> {
        let write = Type::CU_STREAM_MEM_OP_WRITE_VALUE_32;
        self.with(to.target(), 4, write, value.into(), 0)
    }

    /// Also writes `value` to the first 8 bytes of `to`.
    pub fn write64(self, to: impl Target, value: u64) -> Result<Self> {
        let write = Type::CU_STREAM_MEM_OP_WRITE_VALUE_64;
        self.with(to.target(), 8, write, value, 0)
    }

    /// Also waits for the first 4 bytes of `at`.
    pub fn wait32(self, at: impl Target, value: u32, condition: WaitCondition) -> Result<Self> {
        let wait = Type::CU_STREAM_MEM_OP_WAIT_VALUE_32;
        self.with(at.target(), 4, wait, value.into(), condition as u32)
    }

    /// Also waits for the first 8 bytes of `at`.
    pub fn wait64(self, at: impl Target, value: u64, condition: WaitCondition) -> Result<Self> {
        let wait = Type::CU_STREAM_MEM_OP_WAIT_VALUE_64;
        self.with(at.target(), 8, wait, value, condition as u32)
    }

    fn with(
        mut self,
        region: Region,
        end: usize,
        operation: Type,
        value: u64,
        flags: u32,
    ) -> Result<Self> {
        let len = region.bytes();
        if len < end {
            return Err(Error::OutOfRange { start: 0, end, len });
        }
        let mut params = CUstreamBatchMemOpParams { pad: [0; 6] };
        // A write has the same fields as a wait. A value of 32 bits is the first half of one of 64.
        params.waitValue.operation = operation;
        params.waitValue.address = region.address();
        params.waitValue.__bindgen_anon_1.value64 = value;
        params.waitValue.flags = flags;
        let batch = Arc::make_mut(&mut self.0);
        batch.value.push(params);
        batch.owners.extend(region.owner);
        Ok(self)
    }

    /// What it does, in order.
    pub fn operations(&self) -> Vec<MemoryOperation> {
        self.0.value.iter().map(decode).collect()
    }
}

impl BatchOp {
    /// What kinds of operations it does, as the driver numbers them.
    pub(crate) fn kinds(&self) -> Vec<u32> {
        // SAFETY: the kind is the first field of every member, read as a number.
        let kind = |params: &CUstreamBatchMemOpParams| unsafe {
            (&raw const *params).cast::<u32>().read()
        };
        self.0.value.iter().map(kind).collect()
    }
}

impl Op for BatchOp {
    shared!(Batch);

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {:x?}", self.operations())
    }

    fn node_params(&self, context: &CudaContext) -> Result<CUgraphNodeParams> {
        thread_local! {
            /// A copy for the driver, which may write to it, until this thread's next call.
            static COPY: RefCell<Vec<CUstreamBatchMemOpParams>> = const { RefCell::new(Vec::new()) };
        }
        let list = COPY.with_borrow_mut(|copy| {
            copy.clone_from(&self.0.value);
            copy.as_mut_ptr()
        });
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
        params.__bindgen_anon_1.memOp = CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 {
            ctx: context.cu_ctx(),
            count: self.0.value.len() as u32,
            paramArray: list,
            flags: 0,
        };
        Ok(params)
    }

    fn read(node: CUgraphNode) -> Result<BatchOp> {
        let params = driver::node::batch_params(node)?;
        // SAFETY: the driver gives so many, which live as long as the node.
        let operations = unsafe { copied(params.paramArray, params.count as usize) };
        Ok(BatchOp(Shared::new(operations, None, Tag::read())))
    }
}

fn decode(params: &CUstreamBatchMemOpParams) -> MemoryOperation {
    use WaitCondition as Is;
    const WAIT_32: u32 = Type::CU_STREAM_MEM_OP_WAIT_VALUE_32 as u32;
    const WAIT_64: u32 = Type::CU_STREAM_MEM_OP_WAIT_VALUE_64 as u32;
    const WRITE_32: u32 = Type::CU_STREAM_MEM_OP_WRITE_VALUE_32 as u32;
    const WRITE_64: u32 = Type::CU_STREAM_MEM_OP_WRITE_VALUE_64 as u32;
    // SAFETY: the kind is the first field of every member. It is read as a number, because a later
    // driver may have more kinds. The other fields are numbers in all of them.
    let (kind, address, value, flags) = unsafe {
        let kind = (&raw const *params).cast::<u32>().read();
        let fields = (&raw const params.waitValue.__bindgen_anon_1.value64).read();
        (
            kind,
            params.waitValue.address,
            fields,
            params.waitValue.flags,
        )
    };
    let condition = [Is::AtLeast, Is::Equal, Is::And, Is::Nor][(flags & 3) as usize];
    match kind {
        WAIT_32 => MemoryOperation::Wait32 {
            address,
            value: value as u32,
            condition,
        },
        WAIT_64 => MemoryOperation::Wait64 {
            address,
            value,
            condition,
        },
        WRITE_32 => MemoryOperation::Write32 {
            address,
            value: value as u32,
        },
        WRITE_64 => MemoryOperation::Write64 { address, value },
        kind => MemoryOperation::Other { kind },
    }
}
