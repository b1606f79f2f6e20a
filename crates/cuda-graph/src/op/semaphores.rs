//! Signalling, and waiting for, external semaphores.

use std::fmt;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUexternalSemaphore, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
};

use super::{Op, Shared, Tag, operation, shared};
use crate::{Owner, Result, driver};

#[derive(Clone)]
struct Semaphores<P> {
    handles: Vec<CUexternalSemaphore>,
    params: Vec<P>,
}

// SAFETY: handles, which may be used from any thread; `P` is one of the driver's structures.
unsafe impl<P> Send for Semaphores<P> {}
// SAFETY: as above.
unsafe impl<P> Sync for Semaphores<P> {}

macro_rules! semaphore_operations {
    ($($(#[$doc:meta])* $op:ident: $params:ident, $kind:ident, $node:ident, $member:ident,
       $read:path;)+) => {$(
        operation! {
            $(#[$doc])*
            $op(Semaphores<$params>)
        }

        impl $op {
            /// Of each of `semaphores`, with its parameters; `owner` is kept alive.
            ///
            /// # Safety
            ///
            /// The semaphores live, and the parameters fit them, for as long as `owner` does, or a
            /// graph, executable or launch uses them.
            #[track_caller]
            pub unsafe fn new(
                semaphores: impl IntoIterator<Item = (CUexternalSemaphore, $params)>,
                owner: Option<Owner>,
            ) -> $op {
                let (handles, params) = semaphores.into_iter().unzip();
                $op(Shared::new(Semaphores { handles, params }, owner, Tag::here()))
            }

            /// The semaphores.
            pub fn semaphores(&self) -> &[CUexternalSemaphore] {
                &self.0.value.handles
            }

            /// The parameters of each.
            pub fn params(&self) -> &[$params] {
                &self.0.value.params
            }
        }

        impl Op for $op {
            shared!($kind);

            fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, " of {:?}", self.semaphores())
            }

            fn node_params(&self, _: &CudaContext) -> Result<CUgraphNodeParams> {
                let mut params = driver::node::blank(CUgraphNodeType::$node);
                let (handles, each) = (self.semaphores(), self.params());
                params.__bindgen_anon_1.$member.extSemArray = handles.as_ptr().cast_mut();
                params.__bindgen_anon_1.$member.paramsArray = each.as_ptr();
                params.__bindgen_anon_1.$member.numExtSems = handles.len() as u32;
                Ok(params)
            }

            fn read(node: CUgraphNode) -> Result<$op> {
                let params = $read(node)?;
                let count = params.numExtSems as usize;
                // SAFETY: the driver gives so many of both, which live as long as the node.
                let semaphores = unsafe {
                    Semaphores {
                        handles: super::copied(params.extSemArray, count),
                        params: super::copied(params.paramsArray, count),
                    }
                };
                Ok($op(Shared::new(semaphores, None, Tag::read())))
            }
        }
    )+};
}

semaphore_operations! {
    /// Signals external semaphores.
    SignalSemaphoresOp: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, SignalSemaphores,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, extSemSignal, driver::node::signal_params;
    /// Waits for external semaphores.
    WaitSemaphoresOp: CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, WaitSemaphores,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, extSemWait, driver::node::wait_params;
}
