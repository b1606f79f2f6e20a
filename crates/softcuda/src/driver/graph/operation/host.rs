//! Host nodes: calls into the program, on a thread where CUDA may not be called.

use crate::driver::host_function::{HostFn, UserData};

/// A function of the program's and what it is called with.
#[derive(Clone, Copy)]
pub(crate) struct HostNode {
    /// The function.
    pub function: HostFn,
    /// Its argument.
    pub data: UserData,
}

impl HostNode {
    /// Calls the function.
    pub fn call(&self) {
        // SAFETY: the program said that the function may be called with this data by every launch
        // of the graph, on a thread of ours.
        unsafe { (self.function)(self.data.get()) }
    }
}
