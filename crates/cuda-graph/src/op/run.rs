//! Operations given to a stream, to run at once.

use cudarc::driver::sys::{CUlaunchAttribute, CUstream};
use smallvec::SmallVec;

use super::AnyOp;
use crate::{Result, driver};

impl AnyOp {
    /// Gives the operation to `stream`, of the current context; none for one that streams do not take. Whoever calls holds
    /// what it uses until it has run.
    pub(crate) fn run(&self, stream: CUstream) -> Option<Result<()>> {
        Some(match self {
            AnyOp::Kernel(op) => {
                let mut attributes: SmallVec<[CUlaunchAttribute; 4]> = op
                    .attributes()
                    .iter()
                    .map(|attribute| attribute.of_launch())
                    .collect();
                op.with_params(std::ptr::null_mut(), |params| {
                    driver::run::kernel(params, &mut attributes, stream)
                })
            }
            AnyOp::Copy(op) if op.bytes() == 0 => Ok(()),
            AnyOp::Copy(op) => driver::run::copy(op.params(), stream),
            AnyOp::Fill(op) => driver::run::fill(&op.params(std::ptr::null_mut()), stream),
            AnyOp::Host(op) => {
                let (function, data) = op.as_raw();
                driver::run::host(function, data, stream)
            }
            AnyOp::RecordEvent(op) => driver::run::record(op.event().raw(), stream),
            AnyOp::WaitEvent(op) => driver::run::wait(op.event().raw(), stream),
            AnyOp::Empty(_) => Ok(()),
            _ => return None,
        })
    }
}
