//! Putting a graph better to the driver: passes over graphs as values.
//!
//! A pass takes a [`Plan`] and changes it. Every node of it knows which of the program's nodes it
//! stands for, and how what it does comes from what those do, so that updates go on speaking of the
//! program's nodes. The driver is spoken to at the end alone. No pass changes what any launch
//! writes; what a pass does not understand it leaves.

mod branches;
mod edges;
pub(crate) mod emit;
mod front;
mod inline;
mod loops;
mod order;
pub(crate) mod plan;
mod programmatic;
mod report;
mod transfers;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaContext;

pub use report::{Left, PassReport, Report};

use crate::graph::checkpoints::words as words_on_device;
use crate::{Buffer, Owner};
use plan::{Place, Plan};

/// A way to put a graph better to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pass {
    /// Embedded graphs become part of the graph around them.
    Inline,
    /// Edges go that others imply, and empty nodes that only pass an order on.
    Edges,
    /// Lines of nodes whose memory is known run beside each other where no data orders them, and
    /// chains of kernels that each fill the device run in two lanes.
    Order,
    /// Fills and small copies become kernels, several that do not depend on each other one.
    Transfers,
    /// Branches of few small kernels go: their kernels return at once where the branch is not
    /// taken.
    Branches,
    /// Bodies of loops are repeated under a guard, so that a turn is paid for once for several
    /// repetitions.
    Loops,
    /// A kernel in a line is put on the device before the one before it has ended.
    Programmatic,
}

/// What a pass is given besides the graph.
pub(crate) struct Given<'a> {
    pub context: &'a Arc<CudaContext>,
    /// Nodes to be left as they are, because an update broke what a pass had made of them.
    pub pinned: &'a HashSet<Place>,
    /// Nodes that are disabled.
    pub disabled: &'a HashSet<Place>,
    /// Memory of the executable's own.
    pub words: &'a Words,
    /// How often bodies of loops are repeated; 0 if the pass is to choose.
    pub unroll: u32,
}

/// Words on the device that passes use.
#[derive(Default)]
pub(crate) struct Words {
    /// The memory, and how many of its words are in use.
    memory: RefCell<Option<(Buffer<u32>, usize)>>,
}

impl Words {
    const MOST: usize = 256;

    /// Whether passes use some.
    pub(crate) fn is_used(&self) -> bool {
        self.memory.borrow().is_some()
    }

    /// What holds them, if there are some.
    pub(crate) fn into_owner(self) -> Option<Owner> {
        let memory = self.memory.into_inner();
        memory.map(|(memory, _)| Arc::new(memory) as Owner)
    }
}

impl Given<'_> {
    /// Whether a node stands for one that is to be left as it is.
    fn is_pinned(&self, node: &plan::Planned) -> bool {
        node.of.iter().any(|place| self.pinned.contains(place))
    }

    /// Whether a node stands for one that is to be left as it is, or is disabled.
    fn is_pinned_or_disabled(&self, node: &plan::Planned) -> bool {
        self.is_pinned(node) || node.of.iter().any(|place| self.disabled.contains(place))
    }

    /// The address of a word that nothing else uses.
    fn word(&self) -> Option<u64> {
        let mut words = self.words.memory.borrow_mut();
        if words.is_none() {
            let memory = words_on_device(self.context, Words::MOST);
            let memory = memory.map_err(|error| tracing::debug!("no memory for passes: {error}"));
            *words = Some((memory.ok()?, 0));
        }
        let (memory, used) = words.as_mut()?;
        if *used == Words::MOST {
            return None;
        }
        *used += 1;
        Some(memory.address() + 4 * (*used as u64 - 1))
    }
}

type Run = fn(&mut Plan, &Given<'_>) -> PassReport;

/// The passes, in their order.
const PASSES: &[(Pass, Run)] = &[
    (Pass::Inline, inline::run),
    (Pass::Edges, edges::run),
    (Pass::Order, order::run),
    (Pass::Transfers, transfers::run),
    (Pass::Branches, branches::run),
    (Pass::Loops, loops::run),
    (Pass::Programmatic, programmatic::run),
];

/// Which passes run when a graph is instantiated: none unless said otherwise.
///
/// ```
/// use cuda_graph::{Optimize, Pass};
///
/// assert!(Optimize::ALL.has(Pass::Edges));
/// assert!(!Optimize::ALL.without(Pass::Edges).has(Pass::Edges));
/// assert_eq!(Optimize::default(), Optimize::NONE);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Optimize {
    passes: u32,
    unroll: u32,
}

impl Optimize {
    /// No pass. The driver gets the graph as it is.
    pub const NONE: Optimize = Optimize {
        passes: 0,
        unroll: 0,
    };

    /// The most that a loop's body is repeated.
    pub const MOST_REPETITIONS: u32 = 256;

    /// Every pass.
    pub const ALL: Optimize = {
        let mut all = Optimize::NONE;
        let mut at = 0;
        while at < PASSES.len() {
            all = all.with(PASSES[at].0);
            at += 1;
        }
        all
    };

    /// The same, and this pass.
    pub const fn with(self, pass: Pass) -> Optimize {
        Optimize {
            passes: self.passes | 1 << pass as u32,
            ..self
        }
    }

    /// The same without this pass.
    pub const fn without(self, pass: Pass) -> Optimize {
        Optimize {
            passes: self.passes & !(1 << pass as u32),
            ..self
        }
    }

    /// The same, with the bodies of loops repeated so often, up to
    /// [`MOST_REPETITIONS`](Optimize::MOST_REPETITIONS). 1 leaves loops as they are. With 0, which
    /// is the default, [`Pass::Loops`] chooses.
    pub const fn unroll(self, repetitions: u32) -> Optimize {
        let unroll = match repetitions {
            0..=Optimize::MOST_REPETITIONS => repetitions,
            _ => Optimize::MOST_REPETITIONS,
        };
        Optimize { unroll, ..self }
    }

    /// How often bodies of loops are to be repeated; 0 if the pass is to choose.
    pub(crate) fn repetitions(self) -> u32 {
        self.unroll
    }

    /// Whether this pass runs.
    pub const fn has(self, pass: Pass) -> bool {
        self.passes & 1 << pass as u32 != 0
    }

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.passes == 0
    }

    /// The passes that run, in their order.
    pub fn passes(self) -> impl Iterator<Item = Pass> {
        let all = PASSES.iter().map(|(pass, _)| *pass);
        all.filter(move |pass| self.has(*pass))
    }

    /// Has the passes change `plan`.
    pub(crate) fn run(self, plan: &mut Plan, given: &Given<'_>) -> Report {
        let before = (plan.len(), plan.edges());
        let passes = PASSES.iter().filter(|(pass, _)| self.has(*pass));
        let passes = passes.map(|(_, run)| run(plan, given)).collect();
        Report::new(before, (plan.len(), plan.edges()), passes)
    }
}

impl From<Pass> for Optimize {
    fn from(pass: Pass) -> Optimize {
        Optimize::NONE.with(pass)
    }
}

impl fmt::Debug for Optimize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Optimize ")?;
        f.debug_set().entries(self.passes()).finish()?;
        match self.unroll {
            0 => Ok(()),
            repetitions => write!(f, " unroll {repetitions}"),
        }
    }
}
