//! What a launch is, and how it can fail.

use std::sync::Arc;

use crate::jit::module::Compiled;
use crate::memory::Device;

/// A kernel launch, ready to run.
pub(crate) struct Launch {
    /// The code.
    pub code: Compiled,
    /// Keeps the code and the module's variables alive.
    #[allow(dead_code, reason = "dropped with the launch, and not before")]
    pub owner: Arc<dyn std::any::Any + Send + Sync>,
    /// Where the kernel runs, which says what memory it reaches.
    pub device: Device,
    /// The kernel's name, for faults.
    pub kernel: Arc<str>,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub block: [u32; 3],
    /// Blocks in a cluster; 1, 1, 1 without.
    pub cluster: [u32; 3],
    /// Bytes of static shared memory.
    pub static_shared: u32,
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// Bytes of local memory a thread may use, frames of called functions included.
    pub local: u32,
    /// Bytes of native stack a thread may use, in fiber mode.
    pub stack: u32,
    /// All blocks must be resident and may wait for each other.
    pub cooperative: bool,
    /// Parameters, laid out as the signature says.
    pub params: Box<[u8]>,
}

/// What went wrong in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// An access outside every live allocation, or a write to constant memory.
    IllegalAddress,
    /// An address that is no multiple of the access's size.
    Misaligned,
    /// An address in the wrong space.
    InvalidAddressSpace,
    /// A jump or call to what is no target.
    InvalidPc,
    /// `trap`, or a barrier that is not there or not done in order.
    Trap,
    /// What a device answers for operands that an instruction does not take.
    IllegalInstruction,
    /// A failed device assertion.
    Assert,
    /// The stack or local memory overflowed.
    StackOverflow,
    /// A barrier or warp operation that can never complete.
    Deadlock,
    /// The kernel could not be compiled or set up.
    LaunchFailure,
}

/// The first fault of a launch.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// What.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: Arc<str>,
    /// The block.
    pub block: [u32; 3],
    /// The thread; `None` when it is not one thread's.
    pub thread: Option<[u32; 3]>,
    /// The address and size of the access, where there was one.
    pub access: Option<(u64, u32)>,
    /// More, where there is more to say.
    pub detail: String,
}
