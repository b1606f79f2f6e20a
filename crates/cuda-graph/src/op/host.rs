//! Calling a function on the host.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUstream};

use super::access::Access;
use super::{Op, Shared, Tag, operation, shared};
use crate::memory::{Region, Source, Target};
use crate::retain::contain;
use crate::{Owner, Result, driver};

operation! {
    /// Calls a Rust closure, or a C function with its data, on a thread of the driver.
    ///
    /// The function must not call CUDA: the driver answers NOT_PERMITTED.
    HostOp(Call)
}

#[derive(Clone)]
struct Call {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
    /// What it reads and writes, if that is declared.
    accesses: Option<Vec<Access>>,
}

// SAFETY: `data` is handed to the driver alone; what it points to is `Sync` by `new`'s bound or by
// `raw`'s contract.
unsafe impl Send for Call {}
// SAFETY: as above.
unsafe impl Sync for Call {}

impl Call {
    fn new(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Call {
        Call {
            function,
            data,
            accesses: None,
        }
    }
}

impl HostOp {
    /// Calls `function` each time the node runs. Several launches may call it at once. If it
    /// panics, the panic ends there and is logged; the graph runs on.
    #[track_caller]
    pub fn new<F: Fn() + Send + Sync + 'static>(function: F) -> HostOp {
        let owner = Arc::new(function);
        let data = Arc::as_ptr(&owner).cast_mut().cast();
        // SAFETY: `call` is sound with the closure, which the owner is.
        unsafe { HostOp::raw(call::<F>, data, Some(owner)) }
    }

    /// Calls a C function with `data`, and keeps `owner` alive.
    ///
    /// # Safety
    ///
    /// Whenever the node runs, on whatever thread and perhaps several times at once,
    /// `function(data)` is sound, and it does not unwind; what `data` points to lives for as long
    /// as `owner` does, or a graph, executable or launch uses it.
    #[track_caller]
    pub unsafe fn raw(
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
        owner: Option<Owner>,
    ) -> HostOp {
        HostOp(Shared::new(Call::new(function, data), owner, Tag::here()))
    }

    /// The same call, which is declared to read `memory`: as
    /// [`KernelOp::reads`](crate::KernelOp::reads) says, it is taken
    /// to touch nothing else that other operations touch.
    pub fn reads(self, memory: impl Source) -> Self {
        self.declare(&memory.source(), false)
    }

    /// The same call, which is declared to write `memory`.
    pub fn writes(self, memory: impl Target) -> Self {
        self.declare(&memory.target(), true)
    }

    fn declare(mut self, region: &Region, writes: bool) -> Self {
        let accesses = &mut Arc::make_mut(&mut self.0).value.accesses;
        let access = Access::to(region, writes);
        accesses.get_or_insert_default().extend(access);
        self
    }

    /// The C function and its data; a Rust closure has them too.
    pub fn as_raw(&self) -> (unsafe extern "C" fn(*mut c_void), *mut c_void) {
        (self.0.value.function, self.0.value.data)
    }
}

impl Op for HostOp {
    shared!(Host);

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (function, data) = self.as_raw();
        write!(f, " {function:p}({data:p})")
    }

    fn is_same(&self, other: &Self) -> bool {
        let (own, others) = (&self.0, &other.0);
        ptr::fn_addr_eq(own.value.function, others.value.function)
            && own.value.data == others.value.data
            && own.value.accesses == others.value.accesses
            && own.owners.len() == others.owners.len()
    }

    fn accesses(&self) -> Option<Vec<Access>> {
        self.0.value.accesses.clone()
    }

    fn run(&self, stream: CUstream) -> Option<Result<()>> {
        let (function, data) = self.as_raw();
        Some(driver::run::host(function, data, stream))
    }

    fn node_params(&self, _: &CudaContext) -> Result<CUgraphNodeParams> {
        let (function, data) = self.as_raw();
        let mut params = driver::node::blank(CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST);
        params.__bindgen_anon_1.host.fn_ = Some(function);
        params.__bindgen_anon_1.host.userData = data;
        Ok(params)
    }

    fn read(node: CUgraphNode) -> Result<HostOp> {
        let params = driver::node::host_params(node)?;
        let call = Call::new(params.fn_.unwrap_or(nothing), params.userData);
        Ok(HostOp(Shared::new(call, None, Tag::read())))
    }
}

/// Calls the closure that `data` points to.
///
/// # Safety
///
/// `data` points to an `F` that lives for the length of the call.
unsafe extern "C" fn call<F: Fn()>(data: *mut c_void) {
    // SAFETY: by this function's contract; whoever has the node run holds the closure until it has
    // run (L4, L5).
    let function = unsafe { &*data.cast_const().cast::<F>() };
    contain("a host function that a graph calls panicked", function);
}

/// What a node with no function calls.
unsafe extern "C" fn nothing(_: *mut c_void) {}
