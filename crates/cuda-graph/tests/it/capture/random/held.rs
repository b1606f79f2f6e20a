//! What the model knows of captures, streams and guards, and the errors that misuse may end in.

use std::collections::BTreeSet;
use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::cudarc::driver::sys::CUresult;
use cuda_graph::{Branch, Capture, Error, Joint, Root, ThreadLocal};

/// What a stream's next operation comes after: operations by their numbers.
pub(super) type Known = BTreeSet<usize>;

/// What is known of a capture.
pub(super) struct Told {
    pub origin: usize,
    pub recorded: Known,
    pub into: bool,
    pub over: bool,
}

/// A stream of the program's.
pub(super) struct Line {
    pub stream: Arc<CudaStream>,
    /// The capture that it takes part in.
    pub capture: Option<usize>,
    pub known: Known,
}

/// The guards of a capture.
pub(super) struct Held {
    pub capture: usize,
    pub guards: Guards,
}

pub(super) enum Guards {
    Whole(Capture),
    Split(Joint<Root, ThreadLocal, 2>, Box<[Side; 2]>),
}

/// A branch.
pub(super) struct Side {
    pub known: Known,
    pub guards: SideGuards,
}

pub(super) enum SideGuards {
    Whole(Capture<Branch>),
    Split(Joint<Branch, ThreadLocal, 2>, Box<[Side; 2]>),
    Gone,
}

impl Side {
    pub(super) fn of([one, two]: [Capture<Branch>; 2], known: &Known) -> Box<[Side; 2]> {
        let side = |branch| Side {
            known: known.clone(),
            guards: SideGuards::Whole(branch),
        };
        Box::new([side(one), side(two)])
    }

    /// A branch that is not split, below this one.
    pub(super) fn leaf(&mut self, choice: usize) -> &mut Side {
        match self.guards {
            SideGuards::Split(..) => match &mut self.guards {
                SideGuards::Split(_, sides) => sides[choice % 2].leaf(choice / 2),
                _ => unreachable!("it is split"),
            },
            _ => self,
        }
    }

    /// Joins what can be joined in the branch.
    pub(super) fn join(&mut self) {
        let SideGuards::Split(_, sides) = &mut self.guards else {
            return;
        };
        if let Some(inner) = sides
            .iter_mut()
            .find(|side| matches!(side.guards, SideGuards::Split(..)))
        {
            return inner.join();
        }
        let guards = std::mem::replace(&mut self.guards, SideGuards::Gone);
        let SideGuards::Split(joint, sides) = guards else {
            unreachable!("it is split");
        };
        if let (Some(branches), known) = whole(*sides) {
            match joint.join(branches) {
                Ok(branch) => {
                    self.guards = SideGuards::Whole(branch);
                    self.known.extend(known);
                }
                Err(error) => fits(&error),
            }
        }
    }
}

/// Both branches, if they are there, and what they know.
pub(super) fn whole([one, two]: [Side; 2]) -> (Option<[Capture<Branch>; 2]>, Known) {
    let known = &one.known | &two.known;
    match (one.guards, two.guards) {
        (SideGuards::Whole(one), SideGuards::Whole(two)) => (Some([one, two]), known),
        _ => (None, known),
    }
}

/// An error of those that misuse of captures ends in.
#[track_caller]
pub(super) fn fits(error: &Error) {
    match error {
        Error::CaptureInvalidated(why) => {
            assert!(why.begun.file().contains("capture/random/"));
            assert!(!why.remedy().is_empty());
        }
        Error::AlreadyCapturing { .. } | Error::GraphGone | Error::InvalidOperation { .. } => {}
        Error::Call { source, .. } | Error::Foreign { source } => {
            let code = source.0 as u32;
            let expected = (900..=908).contains(&code)
                || [
                    CUresult::CUDA_ERROR_ILLEGAL_STATE,
                    CUresult::CUDA_ERROR_INVALID_VALUE,
                ]
                .contains(&source.0);
            assert!(expected, "{error:?}");
        }
        Error::Node { source, .. } => fits(source),
        Error::Other(_) => {}
        error => panic!("{error:?}"),
    }
}
