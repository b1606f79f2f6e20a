//! An operation given as the driver's own parameters.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys::CUgraphNodeParams;

use super::{AnyOp, NodeKind, Operation, Tag, tagged};
use crate::{Error, Owner, Result};

/// Whatever the driver's own node parameters say: the way to kinds that this library does not know.
#[derive(Clone)]
pub struct RawOp {
    kind: NodeKind,
    params: Option<Arc<Params>>,
    owners: Arc<[Owner]>,
    pub(super) tag: Tag,
}

struct Params(CUgraphNodeParams);

// SAFETY: plain data; what its pointers mean is the business of whoever made it, by `RawOp::new`'s contract.
unsafe impl Send for Params {}
// SAFETY: as above.
unsafe impl Sync for Params {}

tagged!(RawOp);

impl RawOp {
    /// The operation that `params` describes; `owners` are kept alive.
    ///
    /// # Safety
    ///
    /// The parameters are what the driver expects of their kind; what they point to lives until the last call with this operation
    /// returned; what the node uses when it runs lives for as long as the owners do, or a graph, executable or launch uses it.
    #[track_caller]
    pub unsafe fn new(params: CUgraphNodeParams, owners: impl IntoIterator<Item = Owner>) -> RawOp {
        RawOp {
            kind: NodeKind::from_driver(params.type_ as u32),
            params: Some(Arc::new(Params(params))),
            owners: owners.into_iter().collect(),
            tag: Tag::here(),
        }
    }

    /// A node of which only the kind can be told.
    pub(super) fn opaque(kind: NodeKind) -> RawOp {
        RawOp {
            kind,
            params: None,
            owners: Arc::default(),
            tag: Tag::default(),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> NodeKind {
        self.kind
    }

    /// Its parameters; none for a node that this library did not make.
    pub fn params(&self) -> Option<&CUgraphNodeParams> {
        self.params.as_ref().map(|params| &params.0)
    }

    pub(crate) fn owners(&self) -> &[Owner] {
        &self.owners
    }

    pub(super) fn with_params<R>(
        &self,
        call: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        let Some(params) = self.params() else {
            return Err(Error::InvalidOperation {
                why: format!(
                    "the parameters of a node of {} that was read back are not known",
                    self.kind
                ),
            });
        };
        // SAFETY: the parameters are plain data; the driver writes its answers into this copy.
        let mut copy: CUgraphNodeParams = unsafe { std::ptr::read(params) };
        Ok(call(&mut copy))
    }
}

impl Operation for RawOp {
    fn into_any(self) -> AnyOp {
        AnyOp::Raw(self)
    }

    fn from_any(op: AnyOp) -> Option<Self> {
        match op {
            AnyOp::Raw(op) => Some(op),
            op => {
                let tag = op.tag().clone();
                Some(RawOp {
                    tag,
                    ..RawOp::opaque(op.kind())
                })
            }
        }
    }

    fn has_kind(_: NodeKind) -> bool {
        true
    }
}

impl fmt::Debug for RawOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawOp of kind {} made at {:?}", self.kind, self.tag)
    }
}
