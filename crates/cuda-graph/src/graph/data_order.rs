//! Order by data: a node waits for those that write what it reads or writes, and for those that
//! read what it writes.
//!
//! A graph keeps, for each piece of memory, the nodes that a later access has to wait for: the last
//! that wrote it, and those that have read it since. They are few where nodes are added in order of
//! their data. Nodes that were added otherwise may leave conflicts among themselves without an
//! order; then a piece has several writers, and a later node waits for all of them.
//!
//! Looking for a way from one node to another stops after a bounded number of nodes. What is not
//! found is taken to be unordered, which at worst gives an edge that was not needed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::content::Content;
use super::operation::Operation;
use super::state::{Body, RawNodes, State};
use super::{Graph, Node};
use crate::op::{Access, Op};
use crate::{Error, Result, driver};

/// How many nodes are looked at in search of a way.
const MOST_VISITS: usize = 256;

/// What is known of the nodes of a graph, for the order by data. It is forgotten when a node is
/// destroyed or does something else, and when an edge is removed.
#[derive(Default)]
pub(crate) struct DataOrder {
    /// By number: those that were looked at.
    nodes: Vec<Known>,
    /// Memory that they touch, in pieces that do not overlap, by the first address.
    pieces: BTreeMap<u64, Piece>,
    /// Nodes that may touch everything, without those that are before another of them.
    unknown: Vec<u32>,
    /// How often [`unknown`](DataOrder::unknown) has changed.
    epoch: u32,
    /// The nodes that no other waits for.
    last: BTreeSet<u32>,
    /// The last search.
    search: u32,
    /// Every edge leads from a node to one with a larger number.
    ascending: bool,
    /// It tells this from what was known before something was forgotten.
    id: u64,
}

#[derive(Clone, Default)]
struct Known {
    /// What it waits for.
    after: SmallVec<[u32; 4]>,
    /// It is after all unknown nodes of this epoch, if it is not 0.
    epoch: u32,
    /// The last search that came here.
    search: u32,
    is_waited_for: bool,
}

#[derive(Clone, Default)]
struct Piece {
    end: u64,
    writers: SmallVec<[u32; 2]>,
    readers: SmallVec<[u32; 2]>,
}

impl Graph {
    /// Adds a node that does `op` after exactly those nodes of this graph that it conflicts with:
    /// that write what it reads or writes, or read what it writes. Where one of these is after
    /// another, the edge from the earlier one is left out if that is cheap to know.
    ///
    /// Fills and copies know their memory. [`KernelOp::reads`](crate::KernelOp::reads) and
    /// [`writes`](crate::KernelOp::writes) declare that of kernels, and
    /// [`HostOp`](crate::HostOp) has the same. An [`EmptyOp`](crate::EmptyOp) touches nothing. All
    /// other nodes, of kernels without declarations, of embedded graphs, loops and branches, of
    /// events, allocations and so on, may touch everything: so they conflict with every node.
    ///
    /// Memory is told by its addresses, from the first byte that an operation touches to the last,
    /// with what lies between its rows. Memory that is mapped at two addresses counts as two. The
    /// edges stay as they are when a node or its memory is updated later.
    ///
    /// A graph where nodes are only added is looked at once. After other edits it is looked at
    /// anew, and each time if edges lead to nodes that were there before, or [`raw`](Graph::raw)
    /// gave it away.
    ///
    /// ```
    /// # use cuda_graph::{Buffer, CopyOp, FillOp, Graph};
    /// # let device = cuda_graph::device(0)?;
    /// # let stream = device.context().default_stream();
    /// # let (a, b) = (Buffer::<u32>::zeroed(&stream, 8)?, Buffer::<u32>::zeroed(&stream, 8)?);
    /// let graph = Graph::new(device.context())?;
    /// let sevens = graph.add_after_data(FillOp::new(&a.slice(..4)?, 7)?)?;
    /// let eights = graph.add_after_data(FillOp::new(&a.slice(4..)?, 8)?)?;
    /// let copy = graph.add_after_data(CopyOp::new(&b, &a)?)?;
    ///
    /// // The fills touch different memory. The copy reads what both have written.
    /// assert_eq!(graph.roots()?.len(), 2);
    /// let before = graph.predecessors(copy).list()?;
    /// assert!(before.contains(&sevens.id()) && before.contains(&eights.id()));
    ///
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(b.to_host(&stream)?, [7, 7, 7, 7, 8, 8, 8, 8]);
    /// # Ok::<(), cuda_graph::Error>(())
    /// ```
    ///
    /// A kernel says what it touches:
    ///
    /// ```
    /// # use cuda_graph::{Buffer, FillOp, Graph, KernelOp};
    /// # use cudarc::driver::LaunchConfig;
    /// # let device = cuda_graph::device(0)?;
    /// # let stream = device.context().default_stream();
    /// # let ptx = "
    /// # .version 7.0
    /// # .target sm_70
    /// # .address_size 64
    /// # .visible .entry add(.param .u64 to, .param .u64 from) {
    /// #     .reg .b32 %v, %w; .reg .b64 %p, %q;
    /// #     ld.param.u64 %p, [to];
    /// #     ld.param.u64 %q, [from];
    /// #     ld.global.u32 %v, [%p];
    /// #     ld.global.u32 %w, [%q];
    /// #     add.u32 %v, %v, %w;
    /// #     st.global.u32 [%p], %v;
    /// #     ret;
    /// # }";
    /// # let one_thread = LaunchConfig { block_dim: (1, 1, 1), ..LaunchConfig::for_num_elems(1) };
    /// # let module = device.context().load_module(cudarc::nvrtc::Ptx::from_src(ptx))?;
    /// # let add = module.load_function("add")?;
    /// # let (sum, one) = (Buffer::<u32>::zeroed(&stream, 1)?, Buffer::<u32>::zeroed(&stream, 1)?);
    /// let graph = Graph::new(device.context())?;
    /// let fill = graph.add_after_data(FillOp::new(&one, 1)?)?;
    /// // SAFETY: `add` adds the word at its second argument to that at its first.
    /// let op = unsafe { KernelOp::new(&add, one_thread, (&sum, &one)) }?;
    /// let kernel = graph.add_after_data(op.reads(&one).writes(&sum))?;
    /// assert_eq!(graph.predecessors(kernel).list()?, [fill.id()]);
    /// # graph.instantiate()?.launch(&stream)?;
    /// # assert_eq!(sum.to_host(&stream)?, [1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`add`](Graph::add).
    pub fn add_after_data<O: Operation>(&self, op: O) -> Result<Node<O>> {
        let (kind, accesses) = (op.kind(), op.accesses());
        let (after, id) = {
            let mut state = self.hierarchy().lock();
            let mut data = state.take_data_order(self.body_index())?;
            let after = data.conflicting(accesses.as_deref());
            let id = data.id;
            state.body_mut(self.body_index())?.data = Some(data);
            (after, id)
        };
        let index = self.insert(op, |body: &Body, nodes: &mut RawNodes| {
            for &index in &after {
                let gone = || Error::NodeGone {
                    node: Box::new(body.name(index)),
                };
                nodes.push(body.handle(index).ok_or_else(gone)?);
            }
            Ok(())
        })?;
        let mut state = self.hierarchy().lock();
        if let Ok(body) = state.body_mut(self.body_index())
            && let Some(data) = body.data.as_mut().filter(|_| body.ascending)
            && (data.id, data.nodes.len()) == (id, index as usize)
        {
            // Nobody else has changed the graph meanwhile.
            data.add_ordered(index, accesses.as_deref(), after);
        }
        Ok(Node::new(self.id_of(index, kind)))
    }
}

impl State {
    /// What is known of a graph, with all nodes that it has now. It is out of its place.
    fn take_data_order(&mut self, body: u32) -> Result<Box<DataOrder>> {
        let body = self.body_mut(body)?;
        let known = body.data.take().filter(|_| body.ascending);
        let mut data = known.unwrap_or_else(DataOrder::new);
        data.ascending = body.ascending;
        if !body.ascending {
            for raw in driver::graph::nodes(body.raw)? {
                body.number(raw)?;
            }
        }
        // Before any is looked at: an edge may come from a node with a larger number.
        let first = data.nodes.len();
        data.nodes.resize(body.len() as usize, Known::default());
        for index in first as u32..body.len() {
            let Some(raw) = body.handle(index) else {
                continue;
            };
            let mut after = SmallVec::new();
            for (before, edge) in driver::graph::predecessors(raw)? {
                // Others let a node start before what it waits for is over.
                if edge.from_port == 0 && edge.type_ == 0 {
                    after.push(body.number(before)?);
                }
            }
            let op = body.content(index).and_then(Content::op);
            data.add(index, op.and_then(Op::accesses).as_deref(), after);
        }
        Ok(data)
    }
}

impl DataOrder {
    fn new() -> Box<DataOrder> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Box::new(DataOrder {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            ..DataOrder::default()
        })
    }

    /// That of nodes that are there in an order.
    pub(crate) fn of_a_line() -> Box<DataOrder> {
        let mut order = DataOrder::new();
        order.ascending = true;
        order
    }

    /// Which of the nodes before it the next one of a line has to wait for.
    pub(crate) fn next(&mut self, node: u32, accesses: &[Access]) -> SmallVec<[u32; 2]> {
        let after = self.conflicting(Some(accesses));
        let found = SmallVec::from_slice(&after);
        self.add_ordered(node, Some(accesses), after);
        found
    }

    /// The nodes that a new one waits for, if it has these accesses, in ascending order.
    fn conflicting(&mut self, accesses: Option<&[Access]>) -> Vec<u32> {
        let mut found: Vec<u32> = match accesses {
            None => self.last.iter().copied().collect(),
            Some(accesses) => {
                let mut found = Vec::new();
                for access in accesses {
                    for (_, piece) in self.touched(&access.range) {
                        found.extend_from_slice(&piece.writers);
                        if access.writes {
                            found.extend_from_slice(&piece.readers);
                        }
                    }
                }
                let epoch = self.epoch;
                let is_after_unknown = |node: &u32| self.nodes[*node as usize].epoch == epoch;
                if epoch > 0 && !found.iter().any(is_after_unknown) {
                    found.extend_from_slice(&self.unknown);
                }
                found
            }
        };
        found.sort_unstable();
        found.dedup();
        if accesses.is_some() {
            // Edges lead up.
            let bottom = found.first().filter(|_| self.ascending);
            self.search(&found, bottom.copied().unwrap_or(0));
            found.retain(|node| !self.was_found(*node));
        }
        found
    }

    /// A node that was added by other means is known from now on.
    fn add(&mut self, node: u32, accesses: Option<&[Access]>, after: SmallVec<[u32; 4]>) {
        self.connect(node, after);
        self.search(&[node], 0);
        match accesses {
            None => {
                let mut unknown = std::mem::take(&mut self.unknown);
                unknown.retain(|node| !self.was_found(*node));
                unknown.push(node);
                self.unknown = unknown;
                self.epoch += 1;
            }
            Some(accesses) => self.touch(node, accesses, DataOrder::was_found),
        }
    }

    /// A node is known from now on that was added after what
    /// [`conflicting`](DataOrder::conflicting) found.
    fn add_ordered(&mut self, node: u32, accesses: Option<&[Access]>, after: Vec<u32>) {
        self.nodes.push(Known::default());
        self.connect(node, SmallVec::from_vec(after));
        match accesses {
            // It is after everything.
            None => {
                self.unknown = vec![node];
                self.epoch += 1;
                self.pieces.clear();
            }
            Some(accesses) => {
                self.nodes[node as usize].epoch = self.epoch;
                self.touch(node, accesses, |_, _| true);
            }
        }
    }

    fn connect(&mut self, node: u32, after: SmallVec<[u32; 4]>) {
        for &before in &after {
            self.last.remove(&before);
            // It may have got its number a moment ago.
            if before as usize >= self.nodes.len() {
                self.nodes.resize(before as usize + 1, Known::default());
            }
            self.nodes[before as usize].is_waited_for = true;
        }
        let known = &mut self.nodes[node as usize];
        known.after = after;
        if !known.is_waited_for {
            self.last.insert(node);
        }
    }

    /// Notes what a node touches. `is_before` tells of others whether they are before it.
    fn touch(
        &mut self,
        node: u32,
        accesses: &[Access],
        is_before: impl Fn(&DataOrder, u32) -> bool,
    ) {
        for access in accesses {
            self.cut(access.range.start);
            self.cut(access.range.end);
            let starts: Vec<u64> = self
                .touched(&access.range)
                .map(|(start, _)| start)
                .collect();
            let mut at = access.range.start;
            let mut new: Vec<(u64, Piece)> = Vec::new();
            for start in starts {
                let mut piece = self.pieces.remove(&start).expect("it was just found");
                if at < start {
                    new.push((at, Piece::empty(start)));
                }
                at = piece.end;
                if access.writes {
                    let stays = |other: &mut u32| *other != node && !is_before(self, *other);
                    piece.writers.retain(stays);
                    piece.readers.retain(stays);
                }
                new.push((start, piece));
            }
            if at < access.range.end {
                new.push((at, Piece::empty(access.range.end)));
            }
            for (start, mut piece) in new {
                match access.writes {
                    true => piece.writers.push(node),
                    false if piece.readers.last() != Some(&node) => piece.readers.push(node),
                    false => {}
                }
                self.insert(start, piece);
            }
        }
    }

    /// Puts a piece in its place. One that says the same as the piece before becomes part of that.
    fn insert(&mut self, start: u64, piece: Piece) {
        if let Some((_, before)) = self.pieces.range_mut(..start).next_back()
            && before.end == start
            && before.writers == piece.writers
            && before.readers == piece.readers
        {
            before.end = piece.end;
            return;
        }
        self.pieces.insert(start, piece);
    }

    /// Has no piece lie on both sides of an address.
    fn cut(&mut self, at: u64) {
        if let Some((_, piece)) = self.pieces.range_mut(..at).next_back()
            && piece.end > at
        {
            let rest = piece.clone();
            piece.end = at;
            self.pieces.insert(at, rest);
        }
    }

    /// The pieces that share an address with `range`, which is not empty.
    fn touched(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Piece)> {
        let before = self.pieces.range(..range.start).next_back();
        let before = before.filter(|(_, piece)| piece.end > range.start);
        let inside = self.pieces.range(range.clone());
        before
            .into_iter()
            .chain(inside)
            .map(|(start, piece)| (*start, piece))
    }

    /// Finds nodes that are before one of `nodes`, those right before all of them first; from
    /// number `bottom` on, if that is enough.
    fn search(&mut self, nodes: &[u32], bottom: u32) {
        self.search += 1;
        let search = self.search;
        let mut next: Vec<u32> = nodes.to_vec();
        let (mut at, mut visits) = (0, 0);
        while let Some(&node) = next.get(at) {
            at += 1;
            visits += usize::from(at > nodes.len());
            if visits > MOST_VISITS {
                break;
            }
            let after = std::mem::take(&mut self.nodes[node as usize].after);
            for &before in &after {
                let known = &mut self.nodes[before as usize];
                if known.search != search && before >= bottom {
                    known.search = search;
                    next.push(before);
                }
            }
            self.nodes[node as usize].after = after;
        }
    }

    fn was_found(&self, node: u32) -> bool {
        self.nodes[node as usize].search == self.search
    }
}

impl Piece {
    /// A piece that nobody touches yet.
    fn empty(end: u64) -> Piece {
        Piece {
            end,
            ..Piece::default()
        }
    }
}
