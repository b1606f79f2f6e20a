//! Signalling, and waiting for, external semaphores.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2, CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2,
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUexternalSemaphore, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
};

use super::{Op, Tag, labelled, shared_tag};
use crate::error::NodeKind;
use crate::{Owner, Result, driver};

macro_rules! semaphores {
    ($op:ident, $inner:ident, $what:literal, $node_kind:ident, $params:ident, $node:ident, $kind:ident, $member:ident, $read:path) => {
        #[doc = $what]
        #[derive(Clone)]
        pub struct $op {
            each: Arc<$inner>,
        }

        #[derive(Clone)]
        struct $inner {
            semaphores: Vec<CUexternalSemaphore>,
            params: Vec<$params>,
            owner: Option<Owner>,
            tag: Tag,
        }

        // SAFETY: handles, which may be used from any thread.
        unsafe impl Send for $inner {}
        // SAFETY: as above.
        unsafe impl Sync for $inner {}

        labelled!($op);

        impl $op {
            /// Of each of `semaphores`, with its parameters; `owner` is kept alive.
            ///
            /// # Safety
            ///
            /// The semaphores live, and the parameters fit them, for as long as `owner` does, or a graph, executable or launch uses them.
            #[track_caller]
            pub unsafe fn new(
                semaphores: impl IntoIterator<Item = (CUexternalSemaphore, $params)>,
                owner: Option<Owner>,
            ) -> $op {
                let (semaphores, params) = semaphores.into_iter().unzip();
                $op {
                    each: Arc::new($inner {
                        semaphores,
                        params,
                        owner,
                        tag: Tag::here(),
                    }),
                }
            }

            /// The semaphores.
            pub fn semaphores(&self) -> &[CUexternalSemaphore] {
                &self.each.semaphores
            }

            /// The parameters of each.
            pub fn params(&self) -> &[$params] {
                &self.each.params
            }
        }

        impl Op for $op {
            shared_tag!(each);

            fn kind(&self) -> NodeKind {
                NodeKind::$node_kind
            }

            fn owners(&self) -> &[Owner] {
                self.each.owner.as_slice()
            }

            fn with_params<R>(
                &self,
                _: &CudaContext,
                call: impl FnOnce(&mut CUgraphNodeParams) -> R,
            ) -> Result<R> {
                let mut params = driver::node::blank(CUgraphNodeType::$kind);
                // SAFETY: plain data for which zero is a value of every field.
                let mut node: $node = unsafe { std::mem::zeroed() };
                node.extSemArray = self.each.semaphores.as_ptr().cast_mut();
                node.paramsArray = self.each.params.as_ptr();
                node.numExtSems = self.each.semaphores.len() as u32;
                params.__bindgen_anon_1.$member = node;
                Ok(call(&mut params))
            }

            fn read(node: CUgraphNode) -> Result<$op> {
                let params = $read(node)?;
                let count = params.numExtSems as usize;
                let (semaphores, params) = if count == 0 {
                    (Vec::new(), Vec::new())
                } else {
                    // SAFETY: the driver gives so many of both, which live as long as the node.
                    unsafe {
                        (
                            std::slice::from_raw_parts(params.extSemArray, count).to_vec(),
                            std::slice::from_raw_parts(params.paramsArray, count).to_vec(),
                        )
                    }
                };
                Ok($op {
                    each: Arc::new($inner {
                        semaphores,
                        params,
                        owner: None,
                        tag: Tag::read(),
                    }),
                })
            }
        }

        impl fmt::Debug for $op {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "{} of {:?} made at {:?}",
                    stringify!($op),
                    self.each.semaphores,
                    self.each.tag
                )
            }
        }
    };
}

semaphores!(
    SignalSemaphoresOp,
    Signal,
    "Signals external semaphores.",
    SignalSemaphores,
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2,
    CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
    extSemSignal,
    driver::node::signal_params
);
semaphores!(
    WaitSemaphoresOp,
    Wait,
    "Waits for external semaphores.",
    WaitSemaphores,
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2,
    CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
    extSemWait,
    driver::node::wait_params
);
