//! Conditional nodes that must take turns (invariant L16).
//!
//! On an H200 (driver for CUDA 13.0, plain driver calls) a launch does not end if a body has two
//! conditional nodes beside each other and beside a third branch, and fails if a graph has four
//! loops side by side. IFs and SWITCHes that are in no body and hold no other conditional node
//! were never seen to. So all others are put one after the other by who records them, and a graph
//! where they are not makes no executable.

use super::Graph;
use super::state::State;
use crate::{Error, Result, driver};

impl Graph {
    /// Refuses a graph in which two conditional nodes could run at once that must take turns.
    pub(crate) fn check_turns(&self, state: &mut State) -> Result<()> {
        let mut suspects = Vec::new();
        state.each_body(self.body_index(), &mut |number, body| {
            if !body.ascending || body.conditionals().nth(1).is_some() {
                suspects.push(number);
            }
        });
        suspects
            .into_iter()
            .try_for_each(|number| state.check_line(number))
    }
}

impl State {
    /// Whether conditional node `node` of graph `body` takes turns.
    fn takes_turns(&self, body: u32, node: u32) -> bool {
        let graph = &self.bodies[body as usize];
        let holds_flow = |inside| self.bodies[inside as usize].conditionals().next().is_some();
        self.is_in_body(body) || graph.may_loop(node) || graph.inside(node).any(holds_flow)
    }

    /// Goes through the nodes in the order of the edges. Each node knows the last node that takes
    /// turns before it; such a node must know the one just before.
    fn check_line(&mut self, body: u32) -> Result<()> {
        let graph = self.body_mut(body)?;
        for raw in driver::graph::nodes(graph.raw)? {
            graph.number(raw)?;
        }
        let conditionals: Vec<u32> = graph.conditionals().collect();
        if conditionals.len() < 2 {
            return Ok(());
        }
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
        // By node: how many that take turns are surely over before it.
        let mut over = vec![0; count];
        let mut line: Vec<u32> = Vec::new();
        while let Some(node) = ready.pop() {
            let mut before = over[node as usize];
            if conditionals.binary_search(&node).is_ok() && self.takes_turns(body, node) {
                if before != line.len() {
                    let name = |node| Box::new(self.bodies[body as usize].name(node));
                    return Err(Error::SideBySide {
                        first: name(line[line.len() - 1]),
                        second: name(node),
                    });
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
        Ok(())
    }
}
