//! What a random graph is to be: its nodes, its edges, and the words that a run leaves, in plain
//! Rust.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use cuda_graph::{
    AnyOp, ChildOp, CopyOp, EmptyOp, Exec, FillOp, Graph, KernelOp, Node, Operation, Result,
};

use super::cells::{self, CELLS, CONSTANTS, Cells};
use crate::fixture::{context, number_bytes};

/// What a node does with its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A kernel that adds up the words of what it waits for.
    Gather,
    /// A kernel that writes a value.
    Write,
    /// A host function that adds up the words of what it waits for.
    Call,
    Fill,
    /// Copies the word of one node that it waits for, or a constant.
    Copy,
    Empty,
    /// Two kernels in an embedded graph, the second after the first.
    Child,
}

/// A name that a node keeps in clones.
pub type Name = usize;

#[derive(Clone, Debug)]
pub struct Known {
    pub node: Node<AnyOp>,
    pub kind: Kind,
    pub value: u32,
    pub cell: u32,
    /// What it waits for.
    pub before: BTreeSet<Name>,
    /// What a copy copies.
    source: Option<Name>,
    /// The kernels of a child.
    inner: Option<[Node<KernelOp>; 2]>,
}

/// A graph as it is to be.
#[derive(Clone)]
pub struct Model {
    pub nodes: BTreeMap<Name, Known>,
    cells: Arc<Cells>,
    next: Name,
    next_cell: u32,
}

/// How many words a node reads at most, besides those of the nodes that it waits for itself.
const READS: usize = 24;

impl Known {
    /// Whether it does not read what it waits for, so that only what comes after it can tell that
    /// it waited.
    fn passes_on(&self) -> bool {
        !matches!(self.kind, Kind::Gather | Kind::Call | Kind::Child)
    }

    /// Whether the driver can have it pass its turn.
    pub fn can_be_disabled(&self) -> bool {
        matches!(
            self.kind,
            Kind::Gather | Kind::Write | Kind::Fill | Kind::Copy
        )
    }
}

impl Model {
    pub fn new(cells: &Arc<Cells>) -> Model {
        Model {
            nodes: BTreeMap::new(),
            cells: cells.clone(),
            next: 0,
            next_cell: CONSTANTS as u32,
        }
    }

    /// The kernels of a child; the second writes the node's own cell.
    fn inner_ops(&self, cell: u32, value: u32) -> [KernelOp; 2] {
        [
            cells::gather(&self.cells, cell + 1, value),
            cells::gather(&self.cells, cell, !value),
        ]
    }

    fn op(&self, kind: Kind, cell: u32, value: u32, source: Option<Name>) -> AnyOp {
        let cells = &self.cells;
        match kind {
            Kind::Gather => cells::gather(cells, cell, value).into(),
            Kind::Write => cells::write(cells, cell, value).into(),
            Kind::Call => cells::call(cells, cell, value).into(),
            Kind::Fill => FillOp::pattern(cells::cell_memory(cells, cell), value)
                .expect("a word is filled with a word")
                .into(),
            Kind::Copy => {
                let from = source.map_or(value % CONSTANTS as u32, |name| self.nodes[&name].cell);
                let (to, from) = (
                    cells::cell_memory(cells, cell),
                    cells::cell_memory(cells, from),
                );
                CopyOp::new(&to, &from).expect("words have one size").into()
            }
            Kind::Empty => EmptyOp::new().into(),
            Kind::Child => {
                let inner = Graph::new(&context()).expect("a graph can be made");
                let [first, second] = self.inner_ops(cell, value);
                let first = inner.add(first, ()).expect("a kernel can be added");
                inner.add(second, first).expect("a kernel can be added");
                ChildOp::new(&inner).into()
            }
        }
    }

    /// Whether there is room for one more node.
    pub fn has_room(&self) -> bool {
        (self.next_cell as usize) < CELLS - 2
    }

    /// Adds a node to the graph and, if that went well, here.
    pub fn add(&mut self, graph: &Graph, kind: Kind, value: u32, after: &[Name]) -> Result<()> {
        let source = after.first().copied().filter(|_| kind == Kind::Copy);
        let cell = self.next_cell;
        let op = self.op(kind, cell, value, source);
        let handles: Vec<_> = after.iter().map(|name| self.nodes[name].node).collect();
        let node = graph.add(op, handles)?;
        let inner = (kind == Kind::Child).then(|| inner_nodes(graph, node));
        let known = Known {
            node,
            kind,
            value,
            cell,
            before: after.iter().copied().collect(),
            source,
            inner,
        };
        self.nodes.insert(self.next, known);
        self.next += 1;
        self.next_cell += 2;
        Ok(())
    }

    /// Whether `to` waits for `from`, however indirectly, or is it.
    pub fn reaches(&self, from: Name, to: Name) -> bool {
        let mut seen = HashSet::new();
        let mut next = vec![to];
        while let Some(name) = next.pop() {
            if name == from {
                return true;
            }
            if seen.insert(name) {
                next.extend(&self.nodes[&name].before);
            }
        }
        false
    }

    pub fn after(&self, name: Name) -> BTreeSet<Name> {
        let waits = |known: &Known| known.before.contains(&name);
        let all = self.nodes.iter().filter(|(_, known)| waits(known));
        all.map(|(after, _)| *after).collect()
    }

    pub fn edges(&self) -> Vec<(Name, Name)> {
        let to = |(to, known): (&Name, &Known)| {
            let to = *to;
            let from: Vec<Name> = known.before.iter().copied().collect();
            from.into_iter().map(move |from| (from, to))
        };
        self.nodes.iter().flat_map(to).collect()
    }

    pub fn forget(&mut self, name: Name) {
        self.nodes.remove(&name);
        for known in self.nodes.values_mut() {
            known.before.remove(&name);
        }
    }

    /// Has copies of what they no longer wait for copy a constant instead.
    pub fn settle(&mut self, graph: &Graph) {
        let lost = |known: &Known| {
            known
                .source
                .is_some_and(|source| !known.before.contains(&source))
        };
        let lost: Vec<Name> = (self.nodes.iter().filter(|(_, known)| lost(known)))
            .map(|(name, _)| *name)
            .collect();
        for name in lost {
            let known = self.nodes.get_mut(&name).expect("just seen");
            known.source = None;
            let value = known.value;
            self.replace(graph, name, value)
                .expect("a copy is replaced");
        }
    }

    /// Has a node of the definition do the same with another value.
    pub fn replace(&mut self, graph: &Graph, name: Name, value: u32) -> Result<()> {
        let known = &self.nodes[&name];
        if let Some(inner) = known.inner {
            let child = known.node.id().typed::<ChildOp>().expect("it is a child");
            let view = graph.child(child)?;
            for (node, op) in inner.into_iter().zip(self.inner_ops(known.cell, value)) {
                view.update(node, op)?;
            }
        } else {
            let op = self.op(known.kind, known.cell, value, known.source);
            graph.update(known.node, op)?;
        }
        self.nodes.get_mut(&name).expect("just seen").value = value;
        Ok(())
    }

    /// Has a node of an executable do the same with another value.
    pub fn replace_in(&mut self, exec: &mut Exec, name: Name, value: u32) -> Result<()> {
        let known = &self.nodes[&name];
        if let Some(inner) = known.inner {
            for (node, op) in inner.into_iter().zip(self.inner_ops(known.cell, value)) {
                exec.update(node, op)?;
            }
        } else {
            let op = self.op(known.kind, known.cell, value, known.source);
            exec.update(known.node, op)?;
        }
        self.nodes.get_mut(&name).expect("just seen").value = value;
        Ok(())
    }

    /// What a clone of `graph`, made now, is to be.
    pub fn of_clone(&self, graph: &Graph, clone: &Graph) -> Model {
        let mut model = self.clone();
        for known in model.nodes.values_mut() {
            known.node = graph
                .find_in_clone(known.node, clone)
                .expect("a clone has every node");
            if known.inner.is_some() {
                known.inner = Some(inner_nodes(clone, known.node));
            }
        }
        model
    }

    /// In an order that the edges allow.
    fn sorted(&self) -> Vec<Name> {
        let mut waits: BTreeMap<Name, usize> = BTreeMap::new();
        let mut after: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
        for (&name, known) in &self.nodes {
            waits.insert(name, known.before.len());
            for &before in &known.before {
                after.entry(before).or_default().push(name);
            }
        }
        let mut ready: Vec<Name> = (waits.iter().filter(|(_, count)| **count == 0))
            .map(|(name, _)| *name)
            .collect();
        let mut sorted = Vec::with_capacity(waits.len());
        while let Some(name) = ready.pop() {
            sorted.push(name);
            for next in after.get(&name).into_iter().flatten() {
                let count = waits
                    .get_mut(next)
                    .expect("every node waits for some number");
                *count -= 1;
                if *count == 0 {
                    ready.push(*next);
                }
            }
        }
        assert_eq!(sorted.len(), self.nodes.len(), "the model has a cycle");
        sorted
    }

    /// The cells that each node reads when it runs: those of the nodes that it waits for, and
    /// through nodes that do not read, those of what these wait for. So an edge into such a node is
    /// proved by what comes after it.
    fn reads(&self, sorted: &[Name], off: &BTreeSet<Name>) -> BTreeMap<Name, Vec<u32>> {
        let mut reads: BTreeMap<Name, Vec<u32>> = BTreeMap::new();
        for name in sorted {
            let before = &self.nodes[name].before;
            let mut cells: Vec<u32> = before.iter().map(|name| self.nodes[name].cell).collect();
            let mut room = READS;
            for name in before {
                let known = &self.nodes[name];
                if !known.passes_on() && !off.contains(name) {
                    continue;
                }
                for cell in &reads[name] {
                    if room > 0 && !cells.contains(cell) {
                        cells.push(*cell);
                        room -= 1;
                    }
                }
            }
            reads.insert(*name, cells);
        }
        reads
    }

    /// Launches an executable and checks that every node did what it was to do, when it was to.
    /// Nodes in `off` are to pass their turn.
    pub fn check_run(&self, mut launch: impl FnMut(), off: &BTreeSet<Name>, poison: u32) {
        let sorted = self.sorted();
        let reads = self.reads(&sorted, off);
        let mut rows = vec![Vec::new(); CELLS];
        for (name, known) in &self.nodes {
            if known.kind == Kind::Child {
                rows[known.cell as usize] = vec![known.cell + 1];
                rows[known.cell as usize + 1] = reads[name].clone();
            } else {
                rows[known.cell as usize] = reads[name].clone();
            }
        }
        self.cells.set_rows(&rows);
        self.cells.reset(poison);
        launch();

        let mut words = vec![poison; CELLS];
        for cell in 0..CONSTANTS as u32 {
            words[cell as usize] = cells::constant(cell);
        }
        for name in &sorted {
            let known = &self.nodes[name];
            let add = |sum: u32, cell: &u32| sum.wrapping_add(words[*cell as usize]);
            let sum = reads[name].iter().fold(known.value, add);
            let word = match known.kind {
                _ if off.contains(name) => poison,
                Kind::Gather | Kind::Call => sum,
                Kind::Write | Kind::Fill => known.value,
                Kind::Copy => match known.source {
                    Some(source) => words[self.nodes[&source].cell as usize],
                    None => cells::constant(known.value % CONSTANTS as u32),
                },
                Kind::Empty => poison,
                Kind::Child => (!known.value).wrapping_add(sum),
            };
            words[known.cell as usize] = word;
            assert_eq!(
                self.cells.word(known.cell),
                word,
                "the word of node {name}, {known:?}, which reads cells {:?}",
                reads[name]
            );
        }
        self.check_tickets(&reads);
    }

    /// Every host function was called once, after those that it reads.
    fn check_tickets(&self, reads: &BTreeMap<Name, Vec<u32>>) {
        for (name, known) in &self.nodes {
            let (when, calls) = self.cells.ticket(known.cell);
            let wanted = u32::from(known.kind == Kind::Call);
            assert_eq!(calls, wanted, "calls of node {name}, {known:?}");
            if known.kind != Kind::Call {
                continue;
            }
            for cell in &reads[name] {
                let (earlier, _) = self.cells.ticket(*cell);
                assert!(earlier < when, "node {name} ran before what it waits for");
            }
        }
    }

    /// The graph has the nodes and edges that it is to have, and each node says that it does what
    /// it is to do.
    pub fn check_structure(&self, graph: &Graph) {
        let nodes: HashSet<_> = graph
            .nodes()
            .expect("a graph has nodes")
            .into_iter()
            .collect();
        let wanted: HashSet<_> = self.nodes.values().map(|known| known.node.id()).collect();
        assert_eq!(nodes, wanted, "the nodes");
        let edges = graph.edges().expect("a graph has edges");
        let there: HashSet<_> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
        assert_eq!(there.len(), edges.len(), "an edge is there once");
        let id = |name: &Name| self.nodes[name].node.id();
        let wanted: HashSet<_> = (self.edges().iter())
            .map(|(from, to)| (id(from), id(to)))
            .collect();
        assert_eq!(there, wanted, "the edges");
        let roots: HashSet<_> = graph
            .roots()
            .expect("a graph has roots")
            .into_iter()
            .collect();
        let wanted: HashSet<_> = (self.nodes.values().filter(|known| known.before.is_empty()))
            .map(|known| known.node.id())
            .collect();
        assert_eq!(roots, wanted, "the roots");
    }

    /// Each node knows its neighbours and its operation.
    pub fn check_nodes(&self, graph: &Graph) {
        for (name, known) in &self.nodes {
            let id = |name: &Name| self.nodes[name].node.id();
            let before = graph.predecessors(known.node).list().expect("it is there");
            let wanted: HashSet<_> = known.before.iter().map(id).collect();
            assert_eq!(before.into_iter().collect::<HashSet<_>>(), wanted);
            let after = graph.successors(known.node).list().expect("it is there");
            let wanted: HashSet<_> = self.after(*name).iter().map(id).collect();
            assert_eq!(after.into_iter().collect::<HashSet<_>>(), wanted);
            match graph.any_op(known.node).expect("it is there") {
                AnyOp::Kernel(op) => {
                    let value = number_bytes(&op, op.arguments().len() - 1);
                    assert_eq!(value.as_deref(), Some(&known.value.to_le_bytes()[..]));
                }
                AnyOp::Fill(op) => assert_eq!(op.value(), known.value.to_le_bytes()),
                op => assert!(AnyOp::has_kind(op.kind())),
            }
        }
    }
}

/// The kernels of a child, the first first.
fn inner_nodes(graph: &Graph, node: Node<AnyOp>) -> [Node<KernelOp>; 2] {
    let child = node.id().typed::<ChildOp>().expect("it is a child");
    let view = graph.child(child).expect("a child is a graph");
    let roots = view.roots().expect("it has a root");
    let next = view
        .successors(roots[0])
        .list()
        .expect("it has another node");
    [roots[0], next[0]].map(|node| node.typed().expect("both are kernels"))
}
