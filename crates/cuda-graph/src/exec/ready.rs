//! Kernel nodes whose arguments are patched where the driver reads them.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUgraphExec, CUgraphNode};

use super::Exec;
use crate::graph::{AnyOp, NodeId};
use crate::{Error, Result, driver};

const _: () = assert!(size_of::<*mut c_void>() == size_of::<u64>());

/// A kernel node with its parameters, put together for the driver once.
pub(crate) struct Ready {
    node: CUgraphNode,
    /// Points to `block`.
    params: CUDA_KERNEL_NODE_PARAMS,
    /// A pointer for each argument, and then the words that they point to.
    block: *mut [*mut c_void],
    /// Where the words begin.
    words: usize,
}

// SAFETY: the pointers lead to what it owns, and to the driver's function and node, which any
// thread may use.
unsafe impl Send for Ready {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for Ready {}

impl Drop for Ready {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and goes once.
        drop(unsafe { Box::from_raw(self.block) });
    }
}

impl Ready {
    /// Puts `new` where the words `at` are.
    #[inline]
    pub(crate) fn patch(&mut self, at: &Range<u16>, new: &[u64]) {
        let (start, end) = (usize::from(at.start), usize::from(at.end));
        assert!(self.words + end <= self.block.len() && end - start == new.len());
        // SAFETY: within the block, which is its own and has room for a word wherever it has one
        // for a pointer. The driver reads it during its calls alone.
        unsafe {
            let words = self.block.cast::<u64>().add(self.words + start);
            words.copy_from_nonoverlapping(new.as_ptr(), new.len());
        }
    }

    /// Sets the node in its executable.
    #[inline]
    pub(crate) fn set(&self, exec: CUgraphExec) -> Result<()> {
        driver::exec::set_kernel(exec, self.node, &self.params)
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
        if self.optimized.is_some() {
            return Err(Error::UnknownSource);
        }
        let raw = source.look().handle_of(&node).ok_or(Error::GraphGone)?;
        let (starts, values) = op.arguments().to_words();
        let starts = starts.collect::<Vec<_>>();
        let words = starts.len();
        let block = vec![ptr::null_mut::<c_void>(); words + values.len()];
        let block = Box::into_raw(block.into_boxed_slice());
        let first = block.cast::<*mut c_void>();
        // SAFETY: within the block: so many pointers, and behind them so many words, for each of
        // which there is the room of a pointer.
        unsafe {
            let begin = first.add(words);
            for (at, start) in starts.into_iter().enumerate() {
                first.add(at).write(begin.add(start).cast());
            }
            let values_at = begin.cast::<u64>();
            values_at.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        let params = op.with_launch(self.context().cu_ctx(), |params| CUDA_KERNEL_NODE_PARAMS {
            kernelParams: first,
            ..*params
        });
        Ok(Ready {
            node: raw,
            params,
            block,
            words,
        })
    }

    /// Makes the context the thread's if none is, for [`Ready::set`].
    #[inline]
    pub(crate) fn bind_some(&self) -> Result<()> {
        driver::bind_some(self.context())
    }
}
