//! Kernel nodes whose arguments are patched where the driver reads them.

use std::ffi::c_void;
use std::ops::Range;

use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUgraphNode};

use super::Exec;
use crate::graph::{AnyOp, NodeId};
use crate::{Error, Result, driver};

/// A kernel node with its parameters, put together for the driver once.
pub(crate) struct Ready {
    node: CUgraphNode,
    /// Points to `pointers`, which point into `words`.
    params: CUDA_KERNEL_NODE_PARAMS,
    pointers: *mut [*mut c_void],
    words: *mut [u64],
}

// SAFETY: the pointers lead to what it owns, and to the driver's function and node, which any
// thread may use.
unsafe impl Send for Ready {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for Ready {}

impl Drop for Ready {
    fn drop(&mut self) {
        // SAFETY: both came from boxes, and go once.
        unsafe {
            drop(Box::from_raw(self.pointers));
            drop(Box::from_raw(self.words));
        }
    }
}

impl Ready {
    /// Puts `new` where the words `at` are.
    #[inline]
    pub(crate) fn patch(&mut self, at: &Range<u16>, new: &[u64]) {
        // SAFETY: the words are its own. The driver reads them during its calls alone.
        let words = unsafe { &mut (&mut *self.words)[usize::from(at.start)..usize::from(at.end)] };
        if let ([word], [new]) = (&mut *words, new) {
            *word = *new;
        } else {
            words.copy_from_slice(new);
        }
    }
}

impl Exec {
    /// Puts together what sets a kernel node, for as long as the executable lives and the node does
    /// the same but for its arguments.
    pub(crate) fn ready(&self, node: NodeId) -> Result<Ready> {
        let (Some(AnyOp::Kernel(op)), Some((source, _))) = (self.table.get(node), &self.source)
        else {
            return Err(Error::UnknownSource);
        };
        let raw = source.look().handle_of(node).ok_or(Error::GraphGone)?;
        let (starts, words) = op.arguments().to_words();
        let words = Box::into_raw(words);
        let first = words.cast::<u64>();
        let pointers = starts.map(|start| first.wrapping_add(start).cast());
        let pointers = Box::into_raw(pointers.collect::<Box<[*mut c_void]>>());
        let params = op.with_launch(self.context.cu_ctx(), |params| CUDA_KERNEL_NODE_PARAMS {
            kernelParams: pointers.cast(),
            ..*params
        });
        Ok(Ready {
            node: raw,
            params,
            pointers,
            words,
        })
    }

    /// Sets the node.
    #[inline]
    pub(crate) fn set_ready(&mut self, ready: &Ready) -> Result<()> {
        driver::exec::set_kernel(self.raw, ready.node, &ready.params)
    }

    /// Makes the context the thread's if none is, for [`set_ready`](Exec::set_ready).
    #[inline]
    pub(crate) fn bind_some(&self) -> Result<()> {
        driver::bind_some(&self.context)
    }
}
