//! A loop or branch as nodes: the condition, the kernel that sets it from the flag, the conditional node, its bodies.

use std::panic::Location;

use cudarc::driver::sys::CUgraphConditionalNodeType;
use smallvec::SmallVec;

use super::{Body, Control, Flow, Path, setter};
use crate::graph::{Condition, Graph, InTurn, NodeId};
use crate::op::{AnyOp, IfElseOp, IfOp, NodeKind, SwitchOp, WhileOp, need_conditional};
use crate::{Error, Result, driver};

/// A recorder that builds a graph.
pub(super) trait Builds {
    /// A place to come back to.
    type Mark;

    /// What it builds.
    fn graph(&self) -> Graph;

    /// Where it is.
    fn mark(&self) -> Result<Self::Mark>;

    /// The conditional nodes on the way to where it is that take turns.
    fn in_turn(&mut self) -> &mut InTurn;

    /// A node that does `op` after what was recorded before.
    fn add(&mut self, op: AnyOp) -> Result<NodeId>;

    /// Goes back to `mark`, and takes away the nodes recorded since: at once, or when the recorder is done.
    fn take_back(&mut self, nodes: &[NodeId], mark: Self::Mark) -> Result<()>;

    /// Has `fill` be recorded along a path through a body.
    fn fill(&mut self, path: &mut Path, flow: &Flow<'_>, fill: &mut Body<'_>) -> Result<()>;
}

/// An operation made for code at `location`.
fn at(mut op: AnyOp, location: &'static Location<'static>) -> AnyOp {
    op.tag_mut().location = Some(location);
    op
}

/// Records a loop or branch, or nothing.
pub(super) fn record<B: Builds>(
    builder: &mut B,
    flow: &Flow<'_>,
    bodies: &mut [&mut Body<'_>],
) -> Result<()> {
    let flag = flow.check(bodies)?;
    let count = bodies.len() as u32;
    // Asked first: such a driver does not load the kernels, and a condition could not be taken back.
    need_conditional(kind(flow.control), count)?;
    let setter = setter::of(builder.graph().context())?;
    let graph = builder.graph();
    // At the outside, the launch itself can see to it that a loop is entered. Inside a body that would hold for the first
    // time alone.
    let entered = flow.control == Control::DoWhile;
    let by_launch = entered && !graph.is_in_body();
    let mark = builder.mark()?;
    let condition = graph.own_condition(by_launch.then_some(1))?;
    graph.begin_half(condition);
    let mut half = Half {
        mark: Some(mark),
        condition,
        nodes: SmallVec::new(),
        builder,
    };
    match (entered, by_launch) {
        (_, true) => {}
        (true, false) => half.add(setter.enter(&condition)?, flow)?,
        (false, false) => half.add(setter.set(&condition, &flag)?, flow)?,
    }
    half.add(operation(flow.control, &condition, count), flow)?;
    let node = *half.nodes.last().expect("it was just added");
    let again = match flow.control {
        Control::While | Control::DoWhile => Some(setter.set(&condition, &flag)?),
        _ => None,
    };
    let mut simple = again.is_none() && !graph.is_in_body();
    for (view, body) in graph.views(node)?.iter().zip(bodies) {
        let mut path = Path::new(view);
        half.builder.fill(&mut path, flow, body)?;
        simple &= path.in_turn().is_empty();
        if let Some(op) = &again {
            path.add(at(op.clone(), flow.location))?;
        }
    }
    half.mark = None;
    graph.end_half(condition);
    if !simple {
        half.builder.in_turn().add(node);
    }
    Ok(())
}

fn kind(control: Control) -> CUgraphConditionalNodeType {
    use CUgraphConditionalNodeType as T;
    match control {
        Control::While | Control::DoWhile => T::CU_GRAPH_COND_TYPE_WHILE,
        Control::If | Control::IfElse => T::CU_GRAPH_COND_TYPE_IF,
        Control::Switch => T::CU_GRAPH_COND_TYPE_SWITCH,
    }
}

fn operation(control: Control, condition: &Condition, bodies: u32) -> AnyOp {
    match control {
        Control::While | Control::DoWhile => WhileOp::new(condition).into(),
        Control::If => IfOp::new(condition).into(),
        Control::IfElse => IfElseOp::new(condition).into(),
        Control::Switch => SwitchOp::new(condition, bodies).into(),
    }
}

/// What is not whole yet. Unless its mark is taken, it is taken back: by an error, or a panic.
struct Half<'a, B: Builds> {
    builder: &'a mut B,
    mark: Option<B::Mark>,
    nodes: SmallVec<[NodeId; 2]>,
    condition: Condition,
}

impl<B: Builds> Half<'_, B> {
    fn add(&mut self, op: impl Into<AnyOp>, flow: &Flow<'_>) -> Result<()> {
        let node = self.builder.add(at(op.into(), flow.location))?;
        self.nodes.push(node);
        Ok(())
    }

    /// Whether the conditional node is there.
    fn has_node(&self) -> bool {
        let mut kinds = self.nodes.iter().map(|node| node.kind());
        kinds.any(|kind| kind == NodeKind::Conditional)
    }
}

impl<B: Builds> Drop for Half<'_, B> {
    fn drop(&mut self) {
        let Some(mark) = self.mark.take() else {
            return;
        };
        let graph = self.builder.graph();
        match self.builder.take_back(&self.nodes, mark) {
            // Otherwise it is whole again, and the condition given back, with the node that looks at it, once that is gone.
            Ok(()) if !self.has_node() => graph.give_back(self.condition),
            Ok(()) => {}
            // The graph went with what failed, or goes at the end of its capture.
            Err(Error::GraphGone) => {}
            Err(error) if driver::capture::code(&error).is_some() => {}
            Err(error) => {
                tracing::error!(
                    "half a loop or branch stays in its graph, which cannot be instantiated: {error}"
                );
            }
        }
    }
}
