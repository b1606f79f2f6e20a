//! Waiting for, and writing, single words of memory.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v2, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUstreamBatchMemOpParams, CUstreamBatchMemOpType, CUstreamWaitValue_flags, cuuint32_t,
    cuuint64_t,
};

use super::{Op, Tag, labelled, shared_tag};
use crate::error::NodeKind;
use crate::memory::Target;
use crate::{Error, Owner, Result, driver};

/// When a word that is waited for is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitCondition {
    /// At least the value, as a signed difference.
    AtLeast,
    /// Equal to the value.
    Equal,
    /// Has a bit of the value.
    And,
    /// Has not all the bits that the value has not: `!(word | value)` is not zero.
    Nor,
}

impl WaitCondition {
    fn flag(self) -> u32 {
        use CUstreamWaitValue_flags as F;
        match self {
            WaitCondition::AtLeast => F::CU_STREAM_WAIT_VALUE_GEQ as u32,
            WaitCondition::Equal => F::CU_STREAM_WAIT_VALUE_EQ as u32,
            WaitCondition::And => F::CU_STREAM_WAIT_VALUE_AND as u32,
            WaitCondition::Nor => F::CU_STREAM_WAIT_VALUE_NOR as u32,
        }
    }

    fn from_flags(flags: u32) -> WaitCondition {
        match flags & 3 {
            0 => WaitCondition::AtLeast,
            1 => WaitCondition::Equal,
            2 => WaitCondition::And,
            _ => WaitCondition::Nor,
        }
    }
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

/// Waits for, and writes, words of memory, in order.
#[derive(Clone)]
pub struct BatchOp {
    batch: Arc<Batch>,
}

#[derive(Clone)]
struct Batch {
    params: Vec<CUstreamBatchMemOpParams>,
    owners: Vec<Owner>,
    tag: Tag,
}

labelled!(BatchOp);

impl BatchOp {
    /// An empty batch, to be filled by the other functions.
    #[track_caller]
    #[expect(
        clippy::new_without_default,
        reason = "a default would not know where it was made"
    )]
    pub fn new() -> BatchOp {
        BatchOp::of(Vec::new(), Tag::here())
    }

    fn of(params: Vec<CUstreamBatchMemOpParams>, tag: Tag) -> BatchOp {
        let owners = Vec::new();
        BatchOp {
            batch: Arc::new(Batch {
                params,
                owners,
                tag,
            }),
        }
    }

    /// Also writes `value` to the first 4 bytes of `to`.
    pub fn write32(self, to: impl Target, value: u32) -> Result<Self> {
        let region = to.target();
        self.with(region, 4, MemoryOperation::Write32 { address: 0, value })
    }

    /// Also writes `value` to the first 8 bytes of `to`.
    pub fn write64(self, to: impl Target, value: u64) -> Result<Self> {
        let region = to.target();
        self.with(region, 8, MemoryOperation::Write64 { address: 0, value })
    }

    /// Also waits for the first 4 bytes of `at`.
    pub fn wait32(self, at: impl Target, value: u32, condition: WaitCondition) -> Result<Self> {
        let region = at.target();
        let address = 0;
        self.with(
            region,
            4,
            MemoryOperation::Wait32 {
                address,
                value,
                condition,
            },
        )
    }

    /// Also waits for the first 8 bytes of `at`.
    pub fn wait64(self, at: impl Target, value: u64, condition: WaitCondition) -> Result<Self> {
        let region = at.target();
        let address = 0;
        self.with(
            region,
            8,
            MemoryOperation::Wait64 {
                address,
                value,
                condition,
            },
        )
    }

    fn with(
        mut self,
        region: crate::memory::Region,
        bytes: usize,
        operation: MemoryOperation,
    ) -> Result<Self> {
        if region.bytes() < bytes {
            return Err(Error::OutOfRange {
                start: 0,
                end: bytes,
                len: region.bytes(),
            });
        }
        let batch = Arc::make_mut(&mut self.batch);
        batch.params.push(encode(operation, region.address()));
        batch.owners.extend(region.owner);
        Ok(self)
    }

    /// What it does, in order.
    pub fn operations(&self) -> Vec<MemoryOperation> {
        self.batch.params.iter().map(decode).collect()
    }
}

impl Op for BatchOp {
    shared_tag!(batch);

    fn kind(&self) -> NodeKind {
        NodeKind::Batch
    }

    fn owners(&self) -> &[Owner] {
        &self.batch.owners
    }

    fn with_params<R>(
        &self,
        context: &CudaContext,
        call: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        let mut operations = self.batch.params.clone();
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
        params.__bindgen_anon_1.memOp = CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 {
            ctx: context.cu_ctx(),
            count: operations.len() as u32,
            paramArray: operations.as_mut_ptr(),
            flags: 0,
        };
        Ok(call(&mut params))
    }

    fn read(node: CUgraphNode) -> Result<BatchOp> {
        let params = driver::node::batch_params(node)?;
        let operations = if params.paramArray.is_null() {
            Vec::new()
        } else {
            // SAFETY: the driver gives so many, which live as long as the node.
            unsafe { std::slice::from_raw_parts(params.paramArray, params.count as usize) }.to_vec()
        };
        Ok(BatchOp::of(operations, Tag::read()))
    }
}

fn encode(operation: MemoryOperation, at: u64) -> CUstreamBatchMemOpParams {
    use CUstreamBatchMemOpType as T;
    let mut params = CUstreamBatchMemOpParams { pad: [0; 6] };
    match operation {
        MemoryOperation::Wait32 {
            value, condition, ..
        } => {
            params.operation = T::CU_STREAM_MEM_OP_WAIT_VALUE_32;
            params.waitValue.address = at;
            params.waitValue.__bindgen_anon_1.value = value as cuuint32_t;
            params.waitValue.flags = condition.flag();
        }
        MemoryOperation::Wait64 {
            value, condition, ..
        } => {
            params.operation = T::CU_STREAM_MEM_OP_WAIT_VALUE_64;
            params.waitValue.address = at;
            params.waitValue.__bindgen_anon_1.value64 = value as cuuint64_t;
            params.waitValue.flags = condition.flag();
        }
        MemoryOperation::Write32 { value, .. } => {
            params.operation = T::CU_STREAM_MEM_OP_WRITE_VALUE_32;
            params.writeValue.address = at;
            params.writeValue.__bindgen_anon_1.value = value as cuuint32_t;
        }
        MemoryOperation::Write64 { value, .. } => {
            params.operation = T::CU_STREAM_MEM_OP_WRITE_VALUE_64;
            params.writeValue.address = at;
            params.writeValue.__bindgen_anon_1.value64 = value as cuuint64_t;
        }
        MemoryOperation::Other { .. } => unreachable!("nothing makes one to encode"),
    }
    params
}

fn decode(params: &CUstreamBatchMemOpParams) -> MemoryOperation {
    use CUstreamBatchMemOpType as T;
    // SAFETY: the kind is the first field of every member, and says which member it is. Read as a number: a later driver may have more.
    unsafe {
        let kind = (&raw const *params).cast::<u32>().read();
        let (address, value, value64) = (
            params.waitValue.address,
            params.waitValue.__bindgen_anon_1.value,
            params.waitValue.__bindgen_anon_1.value64,
        );
        let condition = WaitCondition::from_flags(params.waitValue.flags);
        match kind {
            kind if kind == T::CU_STREAM_MEM_OP_WAIT_VALUE_32 as u32 => MemoryOperation::Wait32 {
                address,
                value,
                condition,
            },
            kind if kind == T::CU_STREAM_MEM_OP_WAIT_VALUE_64 as u32 => MemoryOperation::Wait64 {
                address,
                value: value64,
                condition,
            },
            kind if kind == T::CU_STREAM_MEM_OP_WRITE_VALUE_32 as u32 => {
                MemoryOperation::Write32 { address, value }
            }
            kind if kind == T::CU_STREAM_MEM_OP_WRITE_VALUE_64 as u32 => MemoryOperation::Write64 {
                address,
                value: value64,
            },
            kind => MemoryOperation::Other { kind },
        }
    }
}

impl fmt::Debug for BatchOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "BatchOp {:x?} made at {:?}",
            self.operations(),
            self.batch.tag
        )
    }
}
