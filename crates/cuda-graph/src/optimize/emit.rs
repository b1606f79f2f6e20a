//! From a plan to a definition that the driver instantiates.

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphNode};

use super::plan::{Copied, Does, Place, Plan};
use crate::error::NodeKind;
use crate::graph::operation::Holds;
use crate::graph::state::{Hierarchy, RawNodes, State};
use crate::graph::{AnyOp, Condition, Graph, Operation, Slot};
use crate::op::Op;
use crate::{Error, Result, driver};

/// A definition made of a plan. A node has the number that it has in the plan.
pub(crate) struct Emitted {
    /// None once nothing but its handles are asked for.
    graph: Option<Graph>,
    hierarchy: Arc<Hierarchy>,
    /// The numbers of the plan's graphs in its hierarchy.
    numbers: Vec<Option<u32>>,
    /// By the node that embeds it, what was copied as it is.
    pub copied: HashMap<Place, Copied>,
    /// By the handles of the program's conditions.
    conditions: HashMap<u64, Condition>,
}

impl Emitted {
    pub(crate) fn of(plan: &Plan, context: &Arc<CudaContext>) -> Result<Emitted> {
        Emitted::root(plan, 0, context)
    }

    fn root(plan: &Plan, number: u32, context: &Arc<CudaContext>) -> Result<Emitted> {
        let graph = Graph::new(context)?;
        let hierarchy = graph.hierarchy().clone();
        let mut emitted = Emitted {
            graph: Some(graph),
            hierarchy: hierarchy.clone(),
            numbers: vec![None; plan.graphs.len()],
            copied: HashMap::new(),
            conditions: HashMap::new(),
        };
        emitted.add(plan, number, &mut hierarchy.lock(), &hierarchy, 0)?;
        Ok(emitted)
    }

    /// The driver's handle of node `node` of graph `number` of the plan.
    pub(crate) fn handle(&self, number: u32, node: u32) -> Option<CUgraphNode> {
        let body = (*self.numbers.get(number as usize)?)?;
        self.hierarchy.look().body(body).ok()?.handle(node)
    }

    /// The definition.
    pub(crate) fn graph(&self) -> &Graph {
        self.graph
            .as_ref()
            .expect("it is asked for before it is released")
    }

    /// The definition, for good.
    pub(crate) fn into_graph(mut self) -> Graph {
        let graph = self.graph.take();
        graph.expect("it is asked for before it is released")
    }

    /// Lets go of what the nodes use. The handles stay.
    pub(crate) fn released(mut self) -> Emitted {
        self.graph = None;
        self
    }

    /// Adds what graph `number` of the plan says to graph `body`, which is empty.
    fn add(
        &mut self,
        plan: &Plan,
        number: u32,
        state: &mut State,
        hierarchy: &Hierarchy,
        body: u32,
    ) -> Result<()> {
        self.numbers[number as usize] = Some(body);
        let mut special = Vec::new();
        for (index, node) in (0..).zip(&plan.graphs[number as usize]) {
            let mut after = RawNodes::new();
            let handles = &state.body(body)?.handles;
            for edge in &node.after {
                let from = handles[edge.node as usize];
                match edge.is_plain() {
                    true => after.push(from),
                    false => special.push((from, index, edge.data.to_driver())),
                }
            }
            let mut op = node.op.clone();
            let tag = op.tag().clone();
            match (&node.does, op.kind()) {
                (Does::Copies(copied), _) => {
                    let raw = driver::graph::clone(copied.raw)?;
                    let copy = Graph::of_raw(&hierarchy.context, raw, true);
                    let found = copied.found_in(raw)?;
                    state.adopt(body, &copy, tag, &after, Slot::New)?;
                    self.copied.insert(node.of[0], found);
                }
                (_, NodeKind::Child) => {
                    let inner = Emitted::root(plan, node.inside[0], &hierarchy.context)?;
                    state.adopt(body, inner.graph(), tag, &after, Slot::New)?;
                    let first = state.body(body)?.inside(index).start;
                    for (own, number) in self.numbers.iter_mut().zip(inner.numbers) {
                        *own = own.or(number.map(|number| number + first));
                    }
                    self.copied.extend(inner.copied);
                    self.conditions.extend(inner.conditions);
                }
                _ => {
                    if let Holds::Bodies(branching) = op.holds() {
                        let old = branching.condition;
                        let new = self.condition(state, hierarchy, old)?;
                        op.set_condition(new);
                    }
                    let op = self.translated(op, plan, state, hierarchy)?;
                    state.insert(hierarchy, body, op, &after, Slot::New, None)?;
                    let inside = state.body(body)?.inside(index);
                    for (number, inside) in node.inside.iter().zip(inside) {
                        self.add(plan, *number, state, hierarchy, inside)?;
                    }
                }
            }
        }
        let graph = state.body(body)?;
        let from: Vec<_> = special.iter().map(|(from, ..)| *from).collect();
        let to = special.iter().map(|(_, to, _)| graph.handles[*to as usize]);
        let to: Vec<_> = to.collect();
        let data: Vec<_> = special.iter().map(|(.., data)| *data).collect();
        match special.is_empty() {
            true => Ok(()),
            false => driver::graph::add_edges(graph.raw, &from, &to, &data),
        }
    }

    /// The condition that stands for `old`.
    fn condition(
        &mut self,
        state: &mut State,
        hierarchy: &Hierarchy,
        old: Condition,
    ) -> Result<Condition> {
        if let Some(new) = self.conditions.get(&old.raw()) {
            return Ok(*new);
        }
        let new = state.condition(hierarchy, old.default_value())?;
        self.conditions.insert(old.raw(), new);
        Ok(new)
    }

    /// The operation, with the conditions that stand for those that it sets. Nodes that look at
    /// them may come later.
    fn translated(
        &mut self,
        op: AnyOp,
        plan: &Plan,
        state: &mut State,
        hierarchy: &Hierarchy,
    ) -> Result<AnyOp> {
        if !matches!(op, AnyOp::Kernel(_)) || op.condition_of().is_none() {
            return Ok(op);
        }
        if let Some(op) = self.with_conditions(&op) {
            return Ok(op);
        }
        for node in plan.graphs.iter().flatten() {
            if let Holds::Bodies(branching) = node.op.holds() {
                self.condition(state, hierarchy, branching.condition)?;
            }
        }
        self.with_conditions(&op).ok_or(Error::ForeignCondition)
    }

    /// The operation, with the conditions of this graph.
    pub(crate) fn with_conditions(&self, op: &AnyOp) -> Option<AnyOp> {
        let mut op = op.clone();
        if let AnyOp::Kernel(kernel) = &mut op
            && kernel.condition_of().is_some()
        {
            let new = |old| self.conditions.get(&old).map(Condition::raw);
            if !kernel.arguments_mut().exchange_conditions(new) {
                return None;
            }
        }
        Some(op)
    }
}

impl Copied {
    /// The same nodes in `copy`, the driver's copy of it.
    fn found_in(&self, copy: CUgraph) -> Result<Copied> {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for (place, handle, inner) in &self.nodes {
            let handle = driver::graph::find_in_clone(*handle, copy)?;
            let inner = match inner {
                Some(inner) => Some(Box::new(inner.found_in(driver::node::child(handle)?)?)),
                None => None,
            };
            nodes.push((*place, handle, inner));
        }
        Ok(Copied { raw: copy, nodes })
    }

    /// The handle of a node of the program's.
    pub(crate) fn handle(&self, place: Place) -> Option<CUgraphNode> {
        self.nodes.iter().find_map(|(own, handle, inner)| {
            let inner = inner.as_ref().and_then(|inner| inner.handle(place));
            (*own == place).then_some(*handle).or(inner)
        })
    }
}
