//! What an executable's nodes do now, and what is held for them.

use std::mem;
use std::sync::Arc;

use crate::Owner;
use crate::error::{NodeKind, NodeName};
use crate::graph::NodeId;
use crate::graph::content::{Content, Contents};
use crate::graph::diff::counterparts;
use crate::graph::graphs::Graphs;
use crate::graph::shape::Shape;
use crate::graph::state::State;
use crate::op::Op;

/// By the number of each graph of the definition, what its nodes do in the executable.
///
/// A table shares each graph's list with the definition until one of them changes it.
#[derive(Default)]
pub(super) struct Table {
    /// Empty for graphs that are not in the executable.
    graphs: Graphs<Contents>,
    /// Owners that belong to no node.
    kept: Vec<Owner>,
}

impl Table {
    /// What graph `body`, and everything inside of it, does now.
    #[inline]
    pub(super) fn of(state: &mut State, body: u32) -> Table {
        // Most graphs are roots with none inside, and need no list of graphs.
        if let (0, Some(root)) = (body, state.bodies.get_mut(0))
            && root.inside.is_empty()
            && root.lingering.is_empty()
        {
            return Table {
                graphs: Graphs::new(root.contents.share()),
                kept: Vec::new(),
            };
        }
        Table::of_all(state, body)
    }

    #[inline(never)]
    fn of_all(state: &mut State, body: u32) -> Table {
        let mut table = Table::default();
        table.share(state, body);
        table
    }

    fn share(&mut self, state: &mut State, body: u32) {
        let Some(graph) = state.bodies.get_mut(body) else {
            return;
        };
        self.kept.extend_from_slice(&graph.lingering);
        self.put(body, graph.contents.share());
        if !graph.inside.is_empty() {
            let inside: Vec<u32> = graph.all_inside().collect();
            inside.iter().for_each(|inside| self.share(state, *inside));
        }
    }

    fn put(&mut self, number: u32, contents: Contents) {
        while self.graphs.len() <= number {
            self.graphs.push(Contents::default());
        }
        self.graphs[number] = contents;
    }

    #[inline]
    pub(super) fn get(&self, node: NodeId) -> Option<&Content> {
        self.graphs.get(node.body)?.get(node.index as usize)
    }

    /// A node's place, to be changed.
    #[inline]
    pub(super) fn edit(&mut self, node: &NodeId) -> Option<&mut Content> {
        let contents = self.graphs.get_mut(node.body)?;
        contents.edit().get_mut(node.index as usize)
    }

    /// As [`edit`](Table::edit), if the list is the table's own.
    #[inline(always)]
    pub(super) fn own(&mut self, node: &NodeId) -> Option<&mut Content> {
        match self.graphs.get_mut(node.body)? {
            Contents::Own(list) => list.get_mut(node.index as usize),
            Contents::Shared(_) => None,
        }
    }

    /// Holds what belongs to no node.
    pub(super) fn hold(&mut self, owner: Owner) {
        self.kept.push(owner);
    }

    /// An empty table that holds what another one holds.
    pub(super) fn holding(other: Table) -> Table {
        Table {
            graphs: Graphs::default(),
            kept: vec![other.into_owner()],
        }
    }

    pub(super) fn into_owner(self) -> Owner {
        Arc::new(self)
    }

    /// Takes the lists of some graphs out.
    pub(super) fn take_if(&mut self, take: impl Fn(u32) -> bool) -> Table {
        let mut taken = Table::default();
        for (number, contents) in (0..).zip(self.graphs.iter_mut()) {
            if !contents.is_empty() && take(number) {
                taken.put(number, mem::take(contents));
            }
        }
        taken
    }

    /// Takes over what is known of the graph of `other` and of those inside of it, of which the
    /// driver has updated the graph of `own`. What nodes are called that have no counterpart is
    /// taken from `old`.
    ///
    /// Whoever calls this holds everything that the other graph uses, besides what the table holds
    /// for single nodes.
    pub(super) fn pair(&mut self, old: &Table, own: &Shape, other: &Shape, from: &State) {
        counterparts(own, other, &mut |body, counterpart, nodes| {
            let mut contents = old.graphs.get(body).map_or_else(Vec::new, names);
            let graph = &from.bodies[counterpart];
            for &(node, counterpart) in nodes {
                let node = node as usize;
                if contents.len() <= node {
                    contents.resize_with(node + 1, || Content::unknown(NodeKind::Other(u32::MAX)));
                }
                if let Some(content) = graph.content(counterpart) {
                    contents[node] = content.clone();
                }
            }
            self.put(body, contents.into());
        });
    }

    /// Takes over what the nodes of `old` are called. What they do is not known any more.
    pub(super) fn forget(&mut self, old: &Table) {
        for (number, contents) in (0..).zip(old.graphs.iter()) {
            if !contents.is_empty() {
                self.put(number, names(contents).into());
            }
        }
    }

    /// What errors call a node.
    pub(super) fn name(&self, node: NodeId) -> NodeName {
        match self.get(node) {
            Some(content) => content.name(node.index),
            None => NodeName::of_kind(node.kind, node.index),
        }
    }

    /// Calls `visit` with everything that the nodes hold.
    pub(super) fn each_owner(&self, visit: &mut dyn FnMut(&Owner)) {
        for owner in self.contents().flat_map(Content::owners) {
            match owner.downcast_ref::<Table>() {
                // What an embedded graph holds.
                Some(table) => table.each_owner(visit),
                None => visit(owner),
            }
        }
        self.kept.iter().for_each(visit);
    }

    /// Calls `visit` with the graph, the number and the content of every node.
    pub(super) fn each(&self, visit: &mut dyn FnMut(u32, u32, &Content)) {
        for (graph, contents) in (0..).zip(self.graphs.iter()) {
            for (index, content) in (0..).zip(&**contents) {
                visit(graph, index, content);
            }
        }
    }

    /// How many nodes there are.
    pub(super) fn node_count(&self) -> usize {
        self.graphs.iter().map(|contents| contents.len()).sum()
    }

    /// How many operations it holds.
    pub(super) fn len(&self) -> usize {
        let holds = |content: &&Content| content.op().is_some_and(|op| !op.owners().is_empty());
        self.contents().filter(holds).count()
    }

    fn contents(&self) -> impl Iterator<Item = &Content> {
        self.graphs.iter().flat_map(|contents| &**contents)
    }
}

/// What nodes are called, and nothing else of them.
fn names(contents: &Contents) -> Vec<Content> {
    contents.iter().map(Content::name_only).collect()
}
