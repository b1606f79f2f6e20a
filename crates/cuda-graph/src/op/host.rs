//! Calling a function on the host.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS_v2, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUstream,
};

use super::{Op, Tag, labelled, shared_tag};
use crate::error::NodeKind;
use crate::retain::contain;
use crate::{Owner, Result, driver};

/// Calls a Rust closure, or a C function with its data, on a thread of the driver.
///
/// The function must not call CUDA: the driver answers NOT_PERMITTED.
#[derive(Clone)]
pub struct HostOp {
    call: Arc<Call>,
}

#[derive(Clone)]
struct Call {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
    owner: Option<Owner>,
    tag: Tag,
}

// SAFETY: `data` is handed to the driver alone; what it points to is `Sync` by `new`'s bound or by `raw`'s contract.
unsafe impl Send for Call {}
// SAFETY: as above.
unsafe impl Sync for Call {}

labelled!(HostOp);

impl HostOp {
    /// Calls `function` each time the node runs. Several launches may call it at once. If it panics, the panic ends there and is logged;
    /// the graph runs on.
    #[track_caller]
    pub fn new<F: Fn() + Send + Sync + 'static>(function: F) -> HostOp {
        let function = Arc::new(function);
        let data = Arc::as_ptr(&function).cast_mut().cast();
        HostOp {
            call: Arc::new(Call {
                function: call::<F>,
                data,
                owner: Some(function),
                tag: Tag::here(),
            }),
        }
    }

    /// Calls a C function with `data`, and keeps `owner` alive.
    ///
    /// # Safety
    ///
    /// Whenever the node runs, on whatever thread and perhaps several times at once, `function(data)` is sound, and it does not unwind;
    /// what `data` points to lives for as long as `owner` does, or a graph, executable or launch uses it.
    #[track_caller]
    pub unsafe fn raw(
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
        owner: Option<Owner>,
    ) -> HostOp {
        HostOp {
            call: Arc::new(Call {
                function,
                data,
                owner,
                tag: Tag::here(),
            }),
        }
    }

    /// The C function and its data; a Rust closure has them too.
    pub fn as_raw(&self) -> (unsafe extern "C" fn(*mut c_void), *mut c_void) {
        (self.call.function, self.call.data)
    }
}

impl Op for HostOp {
    shared_tag!(call);

    fn kind(&self) -> NodeKind {
        NodeKind::Host
    }

    fn owners(&self) -> &[Owner] {
        self.call.owner.as_slice()
    }

    fn run(&self, stream: CUstream) -> Option<Result<()>> {
        let (function, data) = self.as_raw();
        Some(driver::run::host(function, data, stream))
    }

    fn with_params<R>(
        &self,
        _: &CudaContext,
        call: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST);
        // SAFETY: plain data for which zero is a value of every field; later CUDA versions have more of them.
        let mut host: CUDA_HOST_NODE_PARAMS_v2 = unsafe { std::mem::zeroed() };
        host.fn_ = Some(self.call.function);
        host.userData = self.call.data;
        params.__bindgen_anon_1.host = host;
        Ok(call(&mut params))
    }

    fn read(node: CUgraphNode) -> Result<HostOp> {
        let params = driver::node::host_params(node)?;
        Ok(HostOp {
            call: Arc::new(Call {
                function: params.fn_.unwrap_or(nothing),
                data: params.userData,
                owner: None,
                tag: Tag::read(),
            }),
        })
    }
}

/// Calls the closure that `data` points to.
///
/// # Safety
///
/// `data` points to an `F` that lives for the length of the call.
unsafe extern "C" fn call<F: Fn()>(data: *mut c_void) {
    // SAFETY: by this function's contract; whoever has the node run holds the closure until it has run (L4, L5).
    let function = unsafe { &*data.cast_const().cast::<F>() };
    contain("a host function that a graph calls panicked", function);
}

/// What a node with no function calls.
unsafe extern "C" fn nothing(_: *mut c_void) {}

impl fmt::Debug for HostOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "HostOp {:p}({:p}) made at {:?}",
            self.call.function, self.call.data, self.call.tag
        )
    }
}
