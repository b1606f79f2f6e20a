//! Signalling, and waiting for, external semaphores.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2, CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2,
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUexternalSemaphore, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
};

use super::{Tag, tagged};
use crate::{Owner, Result, driver};

macro_rules! semaphores {
    ($op:ident, $what:literal, $params:ident, $node:ident, $kind:ident, $member:ident, $read:path) => {
        #[doc = $what]
        #[derive(Clone)]
        pub struct $op {
            each: Arc<(Vec<CUexternalSemaphore>, Vec<$params>)>,
            owner: Option<Owner>,
            pub(super) tag: Tag,
        }

        // SAFETY: handles, which may be used from any thread.
        unsafe impl Send for $op {}
        // SAFETY: as above.
        unsafe impl Sync for $op {}

        tagged!($op);

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
                $op {
                    each: Arc::new(semaphores.into_iter().unzip()),
                    owner,
                    tag: Tag::here(),
                }
            }

            /// The semaphores.
            pub fn semaphores(&self) -> &[CUexternalSemaphore] {
                &self.each.0
            }

            /// The parameters of each.
            pub fn params(&self) -> &[$params] {
                &self.each.1
            }

            pub(super) fn owners(&self) -> &[Owner] {
                self.owner.as_slice()
            }

            pub(super) fn with_params<R>(
                &self,
                call: impl FnOnce(&mut CUgraphNodeParams) -> R,
            ) -> R {
                let mut params = driver::node::blank(CUgraphNodeType::$kind);
                // SAFETY: plain data for which zero is a value of every field.
                let mut node: $node = unsafe { std::mem::zeroed() };
                node.extSemArray = self.each.0.as_ptr().cast_mut();
                node.paramsArray = self.each.1.as_ptr();
                node.numExtSems = self.each.0.len() as u32;
                params.__bindgen_anon_1.$member = node;
                call(&mut params)
            }

            pub(super) fn read(node: CUgraphNode) -> Result<$op> {
                let params = $read(node)?;
                let count = params.numExtSems as usize;
                let each = if count == 0 {
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
                    each: Arc::new(each),
                    owner: None,
                    tag: Tag::default(),
                })
            }
        }

        impl fmt::Debug for $op {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "{} of {:?} made at {:?}",
                    stringify!($op),
                    self.each.0,
                    self.tag
                )
            }
        }
    };
}

semaphores!(
    SignalSemaphoresOp,
    "Signals external semaphores.",
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2,
    CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
    extSemSignal,
    driver::node::signal_params
);
semaphores!(
    WaitSemaphoresOp,
    "Waits for external semaphores.",
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2,
    CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
    extSemWait,
    driver::node::wait_params
);
