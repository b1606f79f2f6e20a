//! An operation given as the driver's own parameters.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraphNode, CUgraphNodeParams};

use super::{Op, Tag, labelled, shared_tag};
use crate::error::NodeKind;
use crate::{Error, Owner, Result, driver};

/// Whatever the driver's own node parameters say: the way to kinds that this library does not know.
#[derive(Clone)]
pub struct RawOp {
    raw: Arc<Raw>,
}

#[derive(Clone)]
struct Raw {
    kind: NodeKind,
    /// None for a node that was read back or that other code made.
    params: Option<CUgraphNodeParams>,
    owners: Vec<Owner>,
    tag: Tag,
}

// SAFETY: plain data; whoever made it vouches for its pointers, by `RawOp::new`'s contract.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

labelled!(RawOp);

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
        RawOp {
            raw: Arc::new(Raw {
                kind: NodeKind::from_driver(params.type_ as u32),
                params: Some(params),
                owners: owners.into_iter().collect(),
                tag: Tag::here(),
            }),
        }
    }

    /// What a node does whose parameters cannot be told.
    pub(crate) fn opaque(kind: NodeKind, tag: Tag, owners: Vec<Owner>) -> RawOp {
        let params = None;
        RawOp {
            raw: Arc::new(Raw {
                kind,
                params,
                owners,
                tag,
            }),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> NodeKind {
        self.raw.kind
    }

    /// Its parameters. A node that was read back has none.
    pub fn params(&self) -> Option<&CUgraphNodeParams> {
        self.raw.params.as_ref()
    }
}

impl Op for RawOp {
    shared_tag!(raw);

    fn kind(&self) -> NodeKind {
        self.raw.kind
    }

    fn owners(&self) -> &[Owner] {
        &self.raw.owners
    }

    fn with_params<R>(
        &self,
        _: &CudaContext,
        call: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        // The driver writes its answers into this copy.
        match self.raw.params {
            Some(mut params) => Ok(call(&mut params)),
            None => Err(Error::UnknownOperation {
                node: Box::new(self.name(None)),
            }),
        }
    }

    fn read(node: CUgraphNode) -> Result<RawOp> {
        let kind = NodeKind::from_driver(driver::node::kind(node)?);
        Ok(RawOp::opaque(kind, Tag::read(), Vec::new()))
    }
}

impl fmt::Debug for RawOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RawOp of kind {} made at {:?}",
            self.raw.kind, self.raw.tag
        )
    }
}
