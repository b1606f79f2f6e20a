//! A definition as it was at some moment, child graphs included: what instantiation and whole-graph
//! updates work on.

use std::cmp::Reverse;
use std::sync::Arc;

use smallvec::SmallVec;

use super::definition::Graph;
use super::edge::EdgeData;
use super::operation::Operation;
use super::plan::Why;
use super::user_object::Reference;
use crate::driver::Result;
use crate::driver::context::Context;

/// A graph.
pub(super) struct Snapshot {
    /// Its nodes, in the order in which they were made.
    pub members: Vec<Member>,
    /// What it keeps alive for the program, without what graphs inside it do.
    pub references: Vec<Reference>,
}

/// A node.
pub(super) struct Member {
    /// Its handle.
    pub handle: usize,
    /// What it did.
    pub operation: Operation,
    /// The nodes it depends on, by their place in the graph.
    pub dependencies: SmallVec<[(u32, EdgeData); 2]>,
    /// Its child graph, or the bodies of a conditional node.
    pub inner: Vec<Snapshot>,
    /// Since when no other depends on it, where none does.
    exit_since: u64,
}

impl Snapshot {
    /// Of a graph, now.
    pub fn of(graph: &Arc<Graph>) -> Result<Snapshot> {
        graph.read(|definition| {
            let handles: Vec<usize> = definition.nodes.keys().copied().collect();
            let place = |handle: usize| {
                let place = handles.binary_search(&handle);
                place.expect("edges are between nodes of a graph") as u32
            };
            let mut members = Vec::with_capacity(handles.len());
            for (&handle, node) in &definition.nodes {
                let inner = match &node.operation {
                    Operation::Child(child) => vec![Snapshot::of(child)?],
                    Operation::Conditional(node) => {
                        let bodies = node.bodies().iter();
                        bodies.map(Snapshot::of).collect::<Result<_>>()?
                    }
                    _ => Vec::new(),
                };
                let dependencies = node.dependencies.iter();
                members.push(Member {
                    handle,
                    operation: node.operation.clone(),
                    dependencies: dependencies
                        .map(|edge| (place(edge.node), edge.data))
                        .collect(),
                    inner,
                    exit_since: node.exit_since,
                });
            }
            Ok(Snapshot {
                members,
                references: definition.references.values().cloned().collect(),
            })
        })
    }

    /// A node that an executable which kernels launch cannot have, and why not.
    pub fn first_not_for_kernels(&self) -> Option<(usize, Why)> {
        self.members.iter().find_map(|member| {
            let why = member.operation.why_not_for_kernels();
            let own = why.map(|why| (member.handle, why));
            let mut inner = member.inner.iter();
            own.or_else(|| inner.find_map(Snapshot::first_not_for_kernels))
        })
    }

    /// From now on nodes of others' graphs alone may free what its nodes allocate and it does not
    /// free.
    pub fn settle_memory(&self) {
        for member in &self.members {
            if let Operation::Alloc(memory) = &member.operation {
                memory.settle();
            }
            member.inner.iter().for_each(Snapshot::settle_memory);
        }
    }

    /// A node that the body of a conditional node cannot have, wherever it is, and why not: in the
    /// last of the bodies that have such.
    pub fn first_not_in_body(&self) -> Option<(usize, Why)> {
        self.members.iter().find_map(|member| {
            let mut inner = member.inner.iter().rev();
            match &member.operation {
                Operation::Conditional(node) => {
                    inner.find_map(|body| body.first_unfit(node.context()))
                }
                _ => inner.find_map(Snapshot::first_not_in_body),
            }
        })
    }

    /// The same where this is such a body, or inside one: all is in one context.
    fn first_unfit(&self, context: &Arc<Context>) -> Option<(usize, Why)> {
        self.members.iter().find_map(|member| {
            let own = member.operation.context();
            let foreign = own.is_some_and(|own| own.id() != context.id());
            let why = member.operation.why_not_in_body();
            let why = why.or(foreign.then_some(Why::SeveralContexts));
            let mut inner = member.inner.iter();
            why.map(|why| (member.handle, why))
                .or_else(|| inner.find_map(|inner| inner.first_unfit(context)))
        })
    }

    /// Lets go of the references.
    pub fn clear_references(&mut self) {
        self.references.clear();
        for member in &mut self.members {
            member.inner.iter_mut().for_each(Snapshot::clear_references);
        }
    }

    /// The nodes that no other depends on, the newest of these first.
    pub fn exits(&self) -> Vec<u32> {
        let mut has_dependents = vec![false; self.members.len()];
        for member in &self.members {
            for &(from, _) in &member.dependencies {
                has_dependents[from as usize] = true;
            }
        }
        let mut exits: Vec<u32> = (0..self.members.len() as u32)
            .filter(|&place| !has_dependents[place as usize])
            .collect();
        exits.sort_unstable_by_key(|&place| Reverse(self.members[place as usize].exit_since));
        exits
    }
}
