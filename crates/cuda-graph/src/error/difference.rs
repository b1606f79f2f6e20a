//! What is different about two graphs, and whether an executable of the one takes an update from
//! the other.

use std::fmt;
use std::sync::Arc;

use super::{NodeName, UpdateFailure, or_nothing};

/// What is different about two graphs: the result of [`Graph::diff`](crate::Graph::diff) and
/// [`Exec::diff`](crate::Exec::diff).
///
/// As text it is one line for each change, and a last line that says what an update answers.
#[derive(Clone, Debug)]
pub struct Difference {
    pub(crate) changes: Vec<Change>,
    pub(crate) verdict: Verdict,
}

impl Difference {
    /// The changes, in the order of the new graph's nodes; what was removed comes last. What is
    /// inside of a node follows the node.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether nothing is different: an update changes nothing of what launches do.
    ///
    /// Labels and source lines do not count.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What a whole-graph update of an executable
    /// ([`update_in_place`](crate::Exec::update_in_place)) answers.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }
}

/// Something that is different.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// Only the new graph has the node.
    #[non_exhaustive]
    Added {
        /// The node of the new graph.
        node: NodeName,
        /// The nodes that it is inside of.
        within: Within,
    },
    /// Only the old graph has the node.
    #[non_exhaustive]
    Removed {
        /// The node of the old graph.
        node: NodeName,
        /// The nodes of the old graph that it is inside of.
        within: Within,
    },
    /// The node does something else, or waits for others.
    #[non_exhaustive]
    Changed {
        /// The node of the old graph.
        old: NodeName,
        /// Its counterpart in the new graph.
        new: NodeName,
        /// The nodes of the new graph that it is inside of.
        within: Within,
        /// What is different about it.
        parameters: Vec<ChangedParameter>,
    },
}

/// The nodes around a node, the outermost first, each with the number of its body that is meant.
pub type Within = Arc<[(NodeName, u32)]>;

/// A parameter that changed, with its values as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedParameter {
    /// Which one.
    pub parameter: NodeParameter,
    /// What it was; `None` if it is not known.
    pub old: Option<String>,
    /// What it is; `None` if it is not known.
    pub new: Option<String>,
}

/// A parameter of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeParameter {
    /// The node's kind.
    Kind,
    /// A kernel's function.
    Function,
    /// A kernel's grid.
    Grid,
    /// A kernel's block.
    Block,
    /// A kernel's dynamic shared memory.
    SharedMemory,
    /// A kernel's argument of this number.
    Argument(usize),
    /// A kernel's launch attributes.
    Attributes,
    /// Where a copy reads.
    From,
    /// Where a copy or a fill writes.
    To,
    /// How much a copy, a fill or an allocation is.
    Size,
    /// How the rows of a copy or a fill lie: pitches, rows of a plane, where the box starts.
    Rows,
    /// What a fill writes.
    Value,
    /// What a host node calls, with which data.
    Call,
    /// An event.
    Event,
    /// The address that a node frees.
    Address,
    /// Where an allocation is, and who reaches it.
    Location,
    /// An operation of a batch.
    MemoryOperation(usize),
    /// Semaphores.
    Semaphores,
    /// How a conditional node branches.
    Branching,
    /// What the condition of a conditional node is when a launch begins.
    ConditionDefault,
    /// The nodes that it waits for.
    Dependencies,
    /// What the node does, of which nothing more is known.
    Operation,
}

impl fmt::Display for NodeParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use NodeParameter as P;
        let text = match self {
            P::Argument(index) => return write!(f, "argument {index}"),
            P::MemoryOperation(index) => return write!(f, "operation {index}"),
            P::Kind => "kind",
            P::Function => "function",
            P::Grid => "grid",
            P::Block => "block",
            P::SharedMemory => "shared memory",
            P::Attributes => "launch attributes",
            P::From => "source",
            P::To => "target",
            P::Size => "size",
            P::Rows => "rows",
            P::Value => "value",
            P::Call => "function and data",
            P::Event => "event",
            P::Address => "address",
            P::Location => "location",
            P::Semaphores => "semaphores",
            P::Branching => "branching",
            P::ConditionDefault => "the condition's default",
            P::Dependencies => "waits for",
            P::Operation => "what it does",
        };
        f.write_str(text)
    }
}

/// Whether an executable of the old graph takes an update from the new one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// It does.
    InPlace,
    /// It does not.
    #[non_exhaustive]
    Refused {
        /// Why not.
        reason: UpdateFailure,
        /// The node of the new graph at fault, where the driver names one.
        node: Option<Box<NodeName>>,
    },
    /// This library refuses: two conditional nodes could run side by side that must take turns.
    /// [`loops_at_once`](crate::InstantiateOptions::loops_at_once) allows that.
    #[non_exhaustive]
    SideBySide {
        /// One of them.
        first: Box<NodeName>,
        /// The other.
        second: Box<NodeName>,
    },
    /// It cannot be told before: what a node does is not known, or what its memory is. The driver
    /// does not say which memory a graph allocated, nor which devices a pool gives access.
    #[non_exhaustive]
    Unknown {
        /// The node of the new graph.
        node: Box<NodeName>,
    },
}

impl Change {
    /// The nodes around the node.
    pub fn within(&self) -> &Within {
        match self {
            Change::Added { within, .. }
            | Change::Removed { within, .. }
            | Change::Changed { within, .. } => within,
        }
    }
}

impl fmt::Display for ChangedParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChangedParameter {
            parameter,
            old,
            new,
        } = self;
        match (old, new) {
            (None, None) => write!(f, "{parameter}: cannot be compared"),
            (old, new) => {
                let text =
                    |value: &Option<String>| value.as_deref().unwrap_or("unknown").to_owned();
                write!(f, "{parameter}: {} -> {}", text(old), text(new))
            }
        }
    }
}

/// One line, or for a changed node one line for each parameter.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = place(self.within());
        match self {
            Change::Added { node, .. } => write!(f, "added: {node}{place}"),
            Change::Removed { node, .. } => write!(f, "removed: {node}{place}"),
            Change::Changed {
                old,
                new,
                parameters,
                ..
            } => {
                let was = (old != new).then_some(old);
                let was = or_nothing(", was ", &was, "");
                for (at, parameter) in parameters.iter().enumerate() {
                    let line = if at > 0 { "\n" } else { "" };
                    write!(f, "{line}changed: {new}{place}{was}: {parameter}")?;
                }
                Ok(())
            }
        }
    }
}

/// Where a node is, if it is inside of others.
fn place(within: &Within) -> String {
    let around = within.iter().rev();
    let place = around.map(|(node, body)| match node.kind {
        super::NodeKind::Conditional => format!(" in body {body} of {node}"),
        _ => format!(" in {node}"),
    });
    place.collect()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::InPlace => f.write_str("an executable is updated in place"),
            Verdict::Refused { reason, node } => {
                let node = or_nothing(" (", node, ")");
                write!(f, "an executable is not updated in place: {reason}{node}")
            }
            Verdict::SideBySide { first, second } => write!(
                f,
                "an executable is not updated in place: the {first} and the {second} could run \
                 side by side"
            ),
            Verdict::Unknown { node } => write!(
                f,
                "an executable may be updated in place: what the {node} does is not known"
            ),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changes.is_empty() {
            writeln!(f, "no node is different")?;
        }
        for change in &self.changes {
            writeln!(f, "{change}")?;
        }
        self.verdict.fmt(f)
    }
}

/// So many lines of a difference are in the text of an error.
const MOST_LINES: usize = 12;

/// The changes, as the text of an error has them.
pub(super) fn in_short(difference: &Option<Arc<Difference>>) -> String {
    let changes = difference.iter().flat_map(|it| &it.changes);
    let mut text = String::new();
    let (mut lines, mut more) = (0, 0);
    for change in changes {
        let own = match change {
            Change::Changed { parameters, .. } => parameters.len(),
            _ => 1,
        };
        if lines >= MOST_LINES {
            more += own;
            continue;
        }
        for line in change.to_string().lines() {
            text.push_str("\n  ");
            text.push_str(line);
        }
        lines += own;
    }
    match more {
        0 => text,
        more => format!("{text}\n  and {more} more"),
    }
}
