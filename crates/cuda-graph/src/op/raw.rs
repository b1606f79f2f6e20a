//! An operation given as the driver's own parameters.

use std::fmt;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphNode, CUgraphNodeParams};

use super::{Op, Shared, Tag, operation, shared};
use crate::error::NodeKind;
use crate::{Error, Owner, Result, driver};

operation! {
    /// Whatever the driver's own node parameters say: the way to kinds that this library does not
    /// know.
    RawOp(Raw)
}

#[derive(Clone)]
struct Raw {
    kind: NodeKind,
    /// None for a node that was read back or that other code made.
    params: Option<CUgraphNodeParams>,
}

// SAFETY: plain data; whoever made it vouches for its pointers, by `RawOp::new`'s contract.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl RawOp {
    /// The operation that `params` describes. `owners` are kept alive.
    ///
    /// # Safety
    ///
    /// The parameters are what the driver expects of their kind. What they point to lives until the
    /// last call with this operation returned. What the node uses when it runs lives for as long as
    /// the owners do, or a graph, executable or launch uses it.
    #[track_caller]
    pub unsafe fn new(params: CUgraphNodeParams, owners: impl IntoIterator<Item = Owner>) -> RawOp {
        let kind = NodeKind::from_driver(params.type_ as u32);
        let params = Some(params);
        RawOp(Shared::new(Raw { kind, params }, owners, Tag::here()))
    }

    /// What a node does whose parameters cannot be told.
    pub(crate) fn opaque(kind: NodeKind, tag: Tag, owners: Vec<Owner>) -> RawOp {
        RawOp(Shared::new(Raw { kind, params: None }, owners, tag))
    }

    /// Its kind.
    pub fn kind(&self) -> NodeKind {
        self.0.value.kind
    }

    /// Its parameters. A node that was read back has none.
    pub fn params(&self) -> Option<&CUgraphNodeParams> {
        self.0.value.params.as_ref()
    }
}

impl Op for RawOp {
    shared!();

    fn kind(&self) -> NodeKind {
        self.0.value.kind
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " of kind {}", self.kind())
    }

    fn node_params(&self, _: &CudaContext) -> Result<CUgraphNodeParams> {
        // A copy, because the driver writes its answers there.
        self.0.value.params.ok_or_else(|| Error::UnknownOperation {
            node: Box::new(self.name(None)),
        })
    }

    fn read(node: CUgraphNode) -> Result<RawOp> {
        let kind = NodeKind::from_driver(driver::node::kind(node)?);
        Ok(RawOp::opaque(kind, Tag::read(), Vec::new()))
    }
}
