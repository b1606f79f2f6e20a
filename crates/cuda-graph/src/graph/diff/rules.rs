//! Whether a node of an executable takes over what another node does, as the driver decides.
//!
//! These are the answers of an H200, which softcuda's tests have recorded (`graph/update/..`).

use cudarc::driver::sys::CUcontext;

use super::snapshot::Member;
use crate::driver::memory::{Part, may_move};
use crate::error::UpdateFailure;
use crate::graph::AnyOp;
use crate::graph::operation::{Holds, Operation};
use crate::memory::{Region, Space};
use crate::op::{Op, is_cooperative};

/// What the driver says of a node.
pub(super) enum Answer {
    Fine,
    Refused(UpdateFailure),
    /// What one of them does is not known.
    Unknown,
}

/// Whether a copy or a fill takes over what another does, if their memory is alike.
pub(crate) fn is_taken_over(was: &AnyOp, is: &AnyOp) -> bool {
    match (was, is) {
        _ if was.launch().is_some() => true,
        (AnyOp::Copy(was), AnyOp::Copy(is)) => {
            let sides =
                was.to().space() == is.to().space() && was.from().space() == is.from().space();
            sides && (was.is_line() && is.is_line() || was.has_same_params(is))
        }
        (AnyOp::Fill(was), AnyOp::Fill(is)) => {
            let (was, is) = (was.rows_of_memset(), is.rows_of_memset());
            was.height <= 1 && is.height <= 1 || was == is
        }
        _ => true,
    }
}

/// What it says of `old`, made in a context, that is to do what `new` does, made in another.
/// They are of one kind.
pub(super) fn answer(old: (&Member, CUcontext), new: (&Member, CUcontext)) -> Answer {
    let (context, is_same_context) = (old.1, old.1 == new.1);
    let (old, new) = (old.0, new.0);
    let may = |fine: bool, reason| match fine {
        true => Answer::Fine,
        false => Answer::Refused(reason),
    };
    let (was, is) = (&old.does, &new.does);
    if let (Some(was), Some(is)) = (was.launch(), is.launch()) {
        // A function is of one context; those of a graph are taken to be of the graph's.
        if !is_same_context && was.kernel().raw() != is.kernel().raw() {
            return Answer::Refused(UpdateFailure::FunctionNotSupported);
        }
        let same = is_cooperative(was.attributes()) == is_cooperative(is.attributes());
        return may(same, UpdateFailure::AttributesChanged);
    }
    let parameters = UpdateFailure::ParametersChanged;
    match (was, is) {
        (AnyOp::Copy(_), AnyOp::Copy(_)) | (AnyOp::Fill(_), AnyOp::Fill(_)) => {
            match is_taken_over(was, is) {
                false => Answer::Refused(parameters),
                true => moves(was, is, context),
            }
        }
        (AnyOp::Batch(was), AnyOp::Batch(is)) => {
            may(is_same_context && was.kinds() == is.kinds(), parameters)
        }
        _ => match (was.holds(), is.holds()) {
            (Holds::Bodies(was), Holds::Bodies(is)) => {
                may(was.branches_as(is), UpdateFailure::NotSupported)
            }
            _ if old.is_same_node(new) => Answer::Fine,
            _ if old.is_unknown() || new.is_unknown() => Answer::Unknown,
            // The driver may refuse another number of them; that was not asked.
            _ if matches!(was, AnyOp::SignalSemaphores(_) | AnyOp::WaitSemaphores(_)) => {
                Answer::Unknown
            }
            _ => Answer::Fine,
        },
    }
}

/// What it says of memory: a node moves between addresses that are alike to its context.
fn moves(was: &AnyOp, is: &AnyOp, context: CUcontext) -> Answer {
    let move_of = |was: &Region, is: &Region, part| match was.space() {
        // The driver need not know of it.
        Space::Host => Some(true),
        _ => may_move(was.address(), is.address(), part, context),
    };
    let all = match (was, is) {
        (AnyOp::Copy(was), AnyOp::Copy(is)) => [
            move_of(was.to(), is.to(), Part::Target),
            move_of(was.from(), is.from(), Part::Source),
        ],
        (AnyOp::Fill(was), AnyOp::Fill(is)) => [move_of(was.to(), is.to(), Part::Fill), Some(true)],
        _ => [Some(true); 2],
    };
    match all {
        [Some(true), Some(true)] => Answer::Fine,
        [Some(false), _] | [_, Some(false)] => Answer::Refused(UpdateFailure::ParametersChanged),
        _ => Answer::Unknown,
    }
}
