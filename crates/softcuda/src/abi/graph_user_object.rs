//! `cuUserObject*`, and the references of graphs.

use std::ffi::c_void;

use super::types::{CUgraph, CUuserObject};
use super::{Out, export};
use crate::driver::graph::{definition, user_object};
use crate::driver::host_function::HostFn;

export! {
    /// Makes a user object.
    fn cuUserObjectCreate(
        object: Out<CUuserObject>, data: *mut c_void, destroy: Option<HostFn>, count: u32, flags: u32,
    ) {
        object.some()?;
        object.set(user_object::create(data, destroy, count, flags)?)
    }

    /// Gives the program more references.
    fn cuUserObjectRetain(object: CUuserObject, count: u32) { user_object::retain(object, count) }

    /// Takes references of the program's away.
    fn cuUserObjectRelease(object: CUuserObject, count: u32) { user_object::release(object, count) }

    /// Gives a graph references.
    fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: u32, flags: u32) {
        definition::resolve(graph)?.retain(object, count, flags)
    }

    /// Takes references of a graph's away.
    fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: u32) {
        definition::resolve(graph)?.release(object, count)
    }
}
