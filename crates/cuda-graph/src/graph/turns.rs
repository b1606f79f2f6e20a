//! Nodes that must run one after the other: conditional nodes (invariant L16), and the collectives
//! of a communicator (invariant L26).
//!
//! On an H200 (driver for CUDA 13.0, plain driver calls) a launch does not end if a body has two
//! conditional nodes beside each other and beside a third branch, and fails if a graph has four
//! loops side by side. IFs and SWITCHes that are in no body and hold no other conditional node
//! were never seen to. So all others are put one after the other by who records them, and a graph
//! where they are not makes no executable.

use smallvec::SmallVec;

use super::Graph;
use super::state::{Body, State};
use crate::collective::Communicator;
use crate::error::NodeName;
use crate::op::Op;
use crate::{Error, Result, driver};

/// Two nodes, by what errors call them.
type Pair = (Box<NodeName>, Box<NodeName>);

impl Graph {
    /// Refuses a graph in which two conditional nodes could run at once that must take turns.
    pub(crate) fn check_turns(&self, state: &mut State) -> Result<()> {
        let mut suspects = Vec::new();
        state.each_body(self.body_index(), &mut |number, body| {
            if !body.ascending || body.conditionals().nth(1).is_some() {
                suspects.push(number);
            }
        });
        for number in suspects {
            state.number_all(number)?;
            let graph = &state.bodies[number];
            let line = graph
                .conditionals()
                .filter(|&node| state.takes_turns(number, node));
            let line: Vec<u32> = line.collect();
            if let Some((first, second)) = state.side_by_side(number, &line)? {
                return Err(Error::SideBySide { first, second });
            }
        }
        Ok(())
    }

    /// Refuses a graph in which two collectives of one communicator could run at once: their order
    /// would differ from rank to rank (invariant L26). So a graph is one rank's: another one's
    /// would wait for it, and it for that. Returns the communicators.
    pub(crate) fn check_collectives(
        &self,
        state: &mut State,
    ) -> Result<SmallVec<[Communicator; 1]>> {
        let communicators = state.communicators(self.body_index());
        for (at, communicator) in communicators.iter().enumerate() {
            let mut others = communicators[..at].iter();
            if let Some(other) = others.find(|other| other.is_of_same(communicator)) {
                let ranks = [other.rank(), communicator.rank()];
                return Err(Error::RanksInOneGraph { ranks });
            }
        }
        for communicator in &communicators {
            let mut lines = Vec::new();
            state.each_body(self.body_index(), &mut |number, body| {
                let holds = |node: &u32| state.holds_collective(body, *node, communicator.id());
                let line: Vec<u32> = (0..body.len()).filter(holds).collect();
                if line.len() > 1 {
                    lines.push((number, line));
                }
            });
            for (number, line) in lines {
                state.number_all(number)?;
                if let Some((first, second)) = state.side_by_side(number, &line)? {
                    return Err(Error::CollectivesAtOnce { first, second });
                }
            }
        }
        Ok(communicators)
    }
}

impl State {
    /// Whether conditional node `node` of graph `body` takes turns.
    fn takes_turns(&self, body: u32, node: u32) -> bool {
        let graph = &self.bodies[body];
        let holds_flow = |inside| self.bodies[inside].conditionals().next().is_some();
        self.is_in_body(body) || graph.may_loop(node) || graph.inside(node).any(holds_flow)
    }

    /// Whether node `node` of a graph is a collective of a communicator, or has one inside.
    fn holds_collective(&self, graph: &Body, node: u32, id: u64) -> bool {
        let content = graph.content(node).filter(|_| graph.handle(node).is_some());
        let own = content.and_then(Op::of_communicator);
        let holds = |inside| self.communicators(inside).iter().any(|of| of.id() == id);
        own.is_some_and(|own| own.id() == id) || graph.inside(node).any(holds)
    }

    /// Has every node of graph `body` be known.
    fn number_all(&mut self, body: u32) -> Result<()> {
        let graph = self.body_mut(body)?;
        for raw in driver::graph::nodes(graph.raw)? {
            graph.number(raw)?;
        }
        Ok(())
    }

    /// Two nodes of `line` that could run side by side, if there are such.
    ///
    /// Goes through the nodes in the order of the edges. Each node knows the last node of the line
    /// before it; a node of the line must know the one just before. `line` is in ascending order.
    fn side_by_side(&mut self, body: u32, line: &[u32]) -> Result<Option<Pair>> {
        if line.len() < 2 {
            return Ok(None);
        }
        let members = line;
        let graph = self.body_mut(body)?;
        let count = graph.handles.len();
        let mut after = vec![Vec::new(); count];
        let mut waits = vec![0u32; count];
        for edge in driver::graph::edges(graph.raw)? {
            let (from, to) = (graph.number(edge.from)?, graph.number(edge.to)?);
            after[from as usize].push(to);
            waits[to as usize] += 1;
        }
        let mut ready: Vec<u32> = (0..count as u32).collect();
        ready.retain(|&node| waits[node as usize] == 0);
        // By node: how many of the line are surely over before it.
        let mut over = vec![0; count];
        let mut line: Vec<u32> = Vec::new();
        while let Some(node) = ready.pop() {
            let mut before = over[node as usize];
            if members.binary_search(&node).is_ok() {
                if before != line.len() {
                    let name = |node| Box::new(self.bodies[body].name(node));
                    return Ok(Some((name(line[line.len() - 1]), name(node))));
                }
                line.push(node);
                before = line.len();
            }
            for &next in &after[node as usize] {
                let at = next as usize;
                over[at] = over[at].max(before);
                waits[at] -= 1;
                if waits[at] == 0 {
                    ready.push(next);
                }
            }
        }
        Ok(None)
    }
}
