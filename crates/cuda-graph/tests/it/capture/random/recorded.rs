//! What the model knows of recordings, and the errors that misuse may end in.

use std::collections::BTreeSet;

use cuda_graph::cudarc::driver::sys::CUresult;
use cuda_graph::{Branch, Capture, Error, Joint, NodeId, Path, Root};

/// Operations by their numbers.
pub(super) type Known = BTreeSet<usize>;

/// A recording by guards.
pub(super) struct Recording {
    pub stream: usize,
    pub into: bool,
    /// What is recorded so far.
    pub recorded: Known,
    /// The guards that record, in the order of lanes; none while a lane is split.
    pub guards: Guards,
    /// Other code ended its capture, or stray work reached it.
    pub spoilt: bool,
}

pub(super) enum Guards {
    Whole(Box<Capture>, Known),
    Split(Box<Joint<Root, 2>>, Box<[Side; 2]>),
}

/// A branch, and what is before its end.
pub(super) enum Side {
    Whole(Box<Capture<Branch>>, Known),
    Split(Box<Joint<Branch, 2>>, Box<[Side; 2]>),
    Gone,
}

impl Side {
    pub(super) fn both([one, two]: [Capture<Branch>; 2], known: &Known) -> Box<[Side; 2]> {
        let side = |branch| Side::Whole(Box::new(branch), known.clone());
        Box::new([side(one), side(two)])
    }

    /// A branch that is not split, below this one.
    pub(super) fn leaf(&mut self, choice: usize) -> &mut Side {
        match self {
            Side::Split(_, sides) => sides[choice % 2].leaf(choice / 2),
            side => side,
        }
    }

    /// Joins one split in it, the innermost first.
    pub(super) fn join(&mut self) {
        let Side::Split(_, sides) = self else {
            return;
        };
        if let Some(inner) = sides
            .iter_mut()
            .find(|side| matches!(side, Side::Split(..)))
        {
            return inner.join();
        }
        let Side::Split(joint, sides) = std::mem::replace(self, Side::Gone) else {
            unreachable!("it is split");
        };
        if let Some((branches, known)) = whole(*sides) {
            let branch = joint.join(branches).expect("they are its own");
            *self = Side::Whole(Box::new(branch), known);
        }
    }
}

/// Both branches, if they are there, and what they know.
pub(super) fn whole(sides: [Side; 2]) -> Option<([Capture<Branch>; 2], Known)> {
    match sides {
        [Side::Whole(one, first), Side::Whole(two, second)] => {
            Some(([*one, *two], &first | &second))
        }
        _ => None,
    }
}

impl Guards {
    /// A path of the recording, and what is before its end.
    pub(super) fn lane(&mut self, lane: usize) -> Option<(&mut Path, &mut Known)> {
        match self {
            Guards::Whole(guard, known) => Some((guard, known)),
            Guards::Split(_, sides) => match sides[lane % 2].leaf(lane / 2) {
                Side::Whole(guard, known) => Some((guard, known)),
                _ => None,
            },
        }
    }
}

/// The nodes of an operation that was recorded as such, and the operation that it comes after.
pub(super) struct Nodes {
    pub first: NodeId,
    pub last: NodeId,
    pub from: Option<usize>,
}

/// An error of those that misuse of captures ends in.
#[track_caller]
pub(super) fn fits(error: &Error) {
    match error {
        Error::CaptureInvalidated(why) => {
            assert!(why.begun.file().contains("capture/random/"));
            assert!(!why.remedy().is_empty());
        }
        Error::StrayWork(stray) => {
            assert!(stray.begun.file().contains("capture/random/"));
            assert!(!stray.found.is_empty(), "{error}");
        }
        Error::AlreadyCapturing { .. } | Error::RecordingOver | Error::SplitAside => {}
        Error::Call { code, .. } | Error::Foreign { code } => {
            let expected = (900..=908).contains(&(*code as u32))
                || [
                    CUresult::CUDA_ERROR_ILLEGAL_STATE,
                    CUresult::CUDA_ERROR_INVALID_VALUE,
                ]
                .contains(code);
            assert!(expected, "{error:?}");
        }
        Error::Node { error, .. } => fits(error),
        Error::Other(_) => assert_eq!(error.to_string(), "left"),
        error => panic!("{error:?}"),
    }
}
