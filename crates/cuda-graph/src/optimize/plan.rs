//! A graph as values: what passes work on.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use cudarc::driver::sys::{CUgraph, CUgraphNode};
use smallvec::SmallVec;

use super::order::Ordered;
use crate::error::{NodeKind, NodeName};
use crate::graph::operation::Holds;
use crate::graph::setter::Latch;
use crate::graph::state::{Body, State};
use crate::graph::{AnyOp, Condition, EdgeData, Operation};
use crate::op::Op;
use crate::{Result, driver};

/// A node of the program's graph: the number of its graph in the hierarchy, and its number there.
pub(crate) type Place = (u32, u32);

/// A graph with everything embedded in it. The first is the root.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    pub graphs: Vec<Nodes>,
    /// Nodes of other code: what they do is known here only.
    pub read: HashSet<Place>,
    /// The kernels of each loop that was unrolled because all of them do nothing where its flag is
    /// 0, with the one that sets its condition by that. They must go on to name one flag.
    pub one_flag: Vec<Vec<Place>>,
    /// Lines that were ordered by data. The order must stay right.
    pub ordered: Vec<Ordered>,
    /// By what conditions of the graph that this was [renamed](Plan::rename) from are told by, and
    /// by their handles: those of the program's own graph.
    pub conditions: HashMap<(u64, u64), Condition>,
}

/// The nodes of one graph, each behind those that it waits for.
pub(crate) type Nodes = Vec<Planned>;

/// A node.
#[derive(Clone)]
pub(crate) struct Planned {
    pub op: AnyOp,
    /// How `op` comes from what the program's nodes do.
    pub does: Does,
    /// What its kernel has in front.
    pub front: Front,
    /// The program's nodes that it stands for.
    pub of: SmallVec<[Place; 1]>,
    pub after: Waits,
    /// The numbers of the graphs inside of it.
    pub inside: SmallVec<[u32; 1]>,
}

/// What a planned node does for those that it stands for.
#[derive(Clone)]
pub(crate) enum Does {
    /// The same as the only one.
    Same,
    /// What several fills and copies do, by a kernel.
    Transfers,
    /// It says in memory what the only one makes of a condition.
    Latch(Latch),
    /// It runs a copy of what is embedded there, and nothing of it was changed.
    Copies(Box<Copied>),
}

/// What a kernel has in front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Front {
    /// It returns at once where the word at this address is 0.
    pub guard: Option<u64>,
    /// It waits for the kernel before.
    pub wait: bool,
    /// It lets the kernel behind begin.
    pub trigger: bool,
}

/// A graph that is copied as it is, with work of other code in it.
#[derive(Clone)]
pub(crate) struct Copied {
    pub raw: CUgraph,
    pub nodes: Vec<(Place, CUgraphNode, Option<Box<Copied>>)>,
}

// SAFETY: handles of the driver, used under the lock of the hierarchy that they are of.
unsafe impl Send for Copied {}

impl Copied {
    fn rename(&mut self, name: &dyn Fn(&Place) -> Option<Place>) -> bool {
        self.nodes.iter_mut().all(|(place, _, inner)| {
            let is_found = name(place).map(|name| *place = name).is_some();
            is_found && inner.as_mut().is_none_or(|inner| inner.rename(name))
        })
    }
}

/// By node, how many wait for it.
pub(crate) fn waited_for(nodes: &Nodes) -> Vec<u32> {
    let mut counts = vec![0; nodes.len()];
    for after in nodes.iter().flat_map(|node| &node.after) {
        counts[after.node as usize] += 1;
    }
    counts
}

/// Nodes that are waited for. Until they are [sorted](sort), one may be there twice.
pub(crate) type Waits = SmallVec<[After; 2]>;

/// A wait for a node, by its number in the same graph.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct After {
    pub node: u32,
    pub data: EdgeData,
}

impl Planned {
    /// Whether it sets this condition.
    pub(crate) fn sets(&self, condition: u64) -> bool {
        match &self.op {
            AnyOp::Kernel(op) if op.condition_of().is_some() => {
                let mut conditions = op.arguments().conditions();
                conditions.any(|handle| handle == condition)
            }
            _ => false,
        }
    }

    /// What reports call it.
    pub(crate) fn name(&self) -> NodeName {
        self.op.name(self.of.first().map(|place| place.1))
    }
}

impl After {
    pub(crate) fn plain(node: u32) -> After {
        let data = EdgeData::default();
        After { node, data }
    }

    pub(crate) fn is_plain(self) -> bool {
        self.data == EdgeData::default()
    }
}

/// Puts waits into the order of their nodes, each once.
pub(super) fn sort(waits: &mut Waits) {
    let key = |wait: &After| {
        let EdgeData {
            from_port,
            to_port,
            programmatic,
        } = wait.data;
        (wait.node, from_port, to_port, programmatic)
    };
    waits.sort_unstable_by_key(key);
    waits.dedup();
}

/// Makes a graph anew without some of its nodes.
///
/// `put` gets each node with its number, once it waits for nodes of the new graph. It [puts](push)
/// the node there or not, and returns what takes its place: whoever waited for the node waits for
/// that.
///
/// A list of waits is passed on, not copied, where one node alone takes it over. So nodes that
/// vanish one behind the other cost no more than their edges.
pub(super) fn rewired(
    old: Nodes,
    mut put: impl FnMut(&mut Nodes, usize, Planned) -> Waits,
) -> Nodes {
    let mut waiting = vec![0u32; old.len()];
    for after in old.iter().flat_map(|node| &node.after) {
        waiting[after.node as usize] += 1;
    }
    let mut new = Nodes::with_capacity(old.len());
    // By the number of each old node.
    let mut instead: Vec<Waits> = Vec::with_capacity(old.len());
    for (at, mut node) in old.into_iter().enumerate() {
        let mut after = Waits::new();
        for edge in &node.after {
            let from = edge.node as usize;
            waiting[from] -= 1;
            let mut waits = match waiting[from] {
                0 => std::mem::take(&mut instead[from]),
                _ => instead[from].clone(),
            };
            if !edge.is_plain() {
                waits.iter_mut().for_each(|wait| wait.data = edge.data);
            }
            if waits.len() > after.len() {
                std::mem::swap(&mut waits, &mut after);
            }
            after.append(&mut waits);
        }
        node.after = after;
        instead.push(put(&mut new, at, node));
    }
    new
}

/// Puts a node behind the others. Returns a wait for it, which takes its place.
pub(super) fn push(nodes: &mut Nodes, mut node: Planned) -> Waits {
    sort(&mut node.after);
    nodes.push(node);
    Waits::from_slice(&[After::plain(nodes.len() as u32 - 1)])
}

/// Why a graph is left as it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NotPlanned {
    pub node: Option<Box<NodeName>>,
    pub why: &'static str,
}

/// Stops planning.
pub(crate) enum Stop {
    Left(NotPlanned),
    Error(crate::Error),
}

impl From<crate::Error> for Stop {
    fn from(error: crate::Error) -> Stop {
        Stop::Error(error)
    }
}

type Planning<T> = std::result::Result<T, Stop>;

impl Plan {
    /// What graph `body` says.
    pub(crate) fn of(
        state: &mut State,
        body: u32,
    ) -> Result<std::result::Result<Plan, NotPlanned>> {
        if state.is_lent {
            return Ok(Err(NotPlanned {
                node: None,
                why: "other code has handles of the driver, and may change nodes unseen",
            }));
        }
        let mut plan = Plan::default();
        let read = plan.read(state, body);
        // Part of a graph need not use all of them.
        let made = if body == 0 { state.conditions } else { 0 };
        match read.and_then(|_| plan.check_conditions(made)) {
            Ok(()) => Ok(Ok(plan)),
            Err(Stop::Left(left)) => Ok(Err(left)),
            Err(Stop::Error(error)) => Err(error),
        }
    }

    /// How many nodes there are, with all that is inside of others.
    pub(crate) fn len(&self) -> usize {
        self.graphs.iter().map(Vec::len).sum()
    }

    /// Lets go of what the operations use. What they are is known elsewhere, unless they were read.
    pub(crate) fn release(&mut self) {
        for node in self.graphs.iter_mut().flatten() {
            let is_read = node.of.len() == 1 && self.read.contains(&node.of[0]);
            if !node.op.owners().is_empty() && !is_read {
                node.op = node.op.name_only();
            }
        }
    }

    /// The program's nodes at the ends of programmatic edges that a pass made.
    pub(crate) fn programmatic(&self) -> HashSet<Place> {
        let mut found = HashSet::new();
        for graph in &self.graphs {
            for node in graph.iter().filter(|node| node.front.wait) {
                found.extend(&node.of);
                let before = node.after.iter().map(|after| &graph[after.node as usize]);
                found.extend(before.flat_map(|node| &node.of));
            }
        }
        found
    }

    /// Whether both have the same nodes and edges, whatever the nodes do.
    pub(crate) fn has_shape_of(&self, other: &Plan) -> bool {
        let same = |(own, other): (&Planned, &Planned)| {
            own.op.kind() == other.op.kind()
                && std::mem::discriminant(&own.does) == std::mem::discriminant(&other.does)
                && own.front.guard.is_some() == other.front.guard.is_some()
                && (own.front.wait, own.front.trigger) == (other.front.wait, other.front.trigger)
                && own.after == other.after
                && own.inside == other.inside
                && own.of.len() == other.of.len()
        };
        self.graphs.len() == other.graphs.len()
            && self.one_flag == other.one_flag
            && self.ordered == other.ordered
            && self
                .graphs
                .iter()
                .zip(&other.graphs)
                .all(|(own, other)| own.len() == other.len() && own.iter().zip(other).all(same))
    }

    /// Has every node stand for its counterpart in the program's own graph, and name the conditions
    /// of that, which `own` is the plan of. Returns whether all have counterparts. Otherwise the
    /// plan is of no use.
    pub(crate) fn rename(&mut self, counterparts: &HashMap<Place, Place>, own: &Plan) -> bool {
        let name = |place: &Place| counterparts.get(place).copied();
        let read: Option<_> = self.read.iter().map(name).collect();
        let Some(read) = read else {
            return false;
        };
        self.read = read;
        let is_named = self.graphs.iter_mut().flatten().all(|node| {
            let of = node.of.iter().map(name).collect();
            let is_found = Option::map(of, |of| node.of = of).is_some();
            is_found
                && match &mut node.does {
                    Does::Copies(copied) => copied.rename(&name),
                    _ => true,
                }
        });
        is_named && self.rename_conditions(own)
    }

    /// Has nodes that stand for those of `own` name the conditions of that.
    fn rename_conditions(&mut self, own: &Plan) -> bool {
        let own: HashMap<Place, Condition> = own.looking().collect();
        let named = self.looking().map(|(place, condition)| {
            let own = own.get(&place)?;
            let named = (condition.of, condition.raw());
            Some((named, condition.with_handle_of(own)))
        });
        let Some(conditions) = named.collect() else {
            return false;
        };
        self.conditions = conditions;
        let mut graphs = std::mem::take(&mut self.graphs);
        for node in graphs.iter_mut().flatten() {
            self.name_conditions(&mut node.op);
        }
        self.graphs = graphs;
        true
    }

    /// The program's nodes that look at a condition, and which.
    fn looking(&self) -> impl Iterator<Item = (Place, Condition)> + '_ {
        let nodes = self.graphs.iter().flatten();
        nodes.filter_map(|node| match node.op.holds() {
            Holds::Bodies(branching) => Some((*node.of.first()?, branching.condition)),
            _ => None,
        })
    }

    /// Has an operation name the conditions of the program's own graph.
    pub(crate) fn name_conditions(&self, op: &mut AnyOp) {
        if self.conditions.is_empty() {
            return;
        }
        let looks_at = match op.holds() {
            Holds::Bodies(branching) => Some(branching.condition),
            _ => None,
        };
        if let Some(old) = looks_at {
            let own = self.conditions.get(&(old.of, old.raw()));
            op.set_condition(*own.unwrap_or(&old));
        } else if let AnyOp::Kernel(kernel) = op
            && let Some(of) = kernel.condition_of()
        {
            let own = |old| self.conditions.get(&(of, old)).map_or(old, Condition::raw);
            let arguments = kernel.arguments_mut();
            arguments.exchange_conditions(|old| Some(own(old)));
        }
    }

    /// Whether the nodes of both stand for the same nodes.
    pub(crate) fn has_names_of(&self, other: &Plan) -> bool {
        let (own, other) = (self.graphs.iter(), other.graphs.iter());
        let of = |node: &Planned| node.of.clone();
        own.flatten().map(of).eq(other.flatten().map(of))
    }

    /// How many edges there are.
    pub(crate) fn edges(&self) -> usize {
        let nodes = self.graphs.iter().flatten();
        nodes.map(|node| node.after.len()).sum()
    }

    /// Reads graph `body`. Returns its number here.
    fn read(&mut self, state: &mut State, body: u32) -> Planning<u32> {
        let number = self.graphs.len() as u32;
        self.graphs.push(Nodes::new());
        let graph = state.body_mut(body)?;
        let raw = graph.raw;
        let indices = driver::graph::nodes(raw)?.into_iter();
        let indices: Vec<u32> = indices
            .map(|raw| graph.number(raw))
            .collect::<Result<_>>()?;
        let mut edges = Vec::new();
        for edge in driver::graph::edges(raw)? {
            let data = EdgeData::from_driver(edge.data);
            edges.push((graph.number(edge.from)?, graph.number(edge.to)?, data));
        }
        let order = order(indices, &edges, graph.len() as usize);
        let mut place = vec![u32::MAX; graph.len() as usize];
        for (at, &index) in (0..).zip(&order) {
            place[index as usize] = at;
        }
        let mut nodes = Nodes::with_capacity(order.len());
        for &index in &order {
            let node = self.read_node(state, body, index)?;
            nodes.push(node);
        }
        for (from, to, data) in edges {
            let (from, to) = (place[from as usize], place[to as usize]);
            nodes[to as usize].after.push(After { node: from, data });
        }
        for node in &mut nodes {
            sort(&mut node.after);
        }
        self.graphs[number as usize] = nodes;
        Ok(number)
    }

    fn read_node(&mut self, state: &mut State, body: u32, index: u32) -> Planning<Planned> {
        let graph = state.body(body)?;
        let node = Some(Box::new(graph.name(index)));
        let bodies = graph.inside(index);
        let left = |why| Stop::Left(NotPlanned { node, why });
        let content = graph.content(index).ok_or(crate::Error::GraphGone)?;
        let mut inside = SmallVec::new();
        let mut does = Does::Same;
        let op = match content.op() {
            Some(op) => op.clone(),
            None if content.kind() == NodeKind::Child => content.clone(),
            None => match read_unknown(graph, index) {
                Ok(op) => {
                    self.read.insert((body, index));
                    op
                }
                Err(why) => return Err(left(why)),
            },
        };
        match op.kind() {
            NodeKind::Alloc | NodeKind::Free => {
                return Err(left(
                    "memory that a graph allocates is at one address in one graph",
                ));
            }
            NodeKind::Child => {
                let child = state.child(body, index)?;
                let (copied, is_foreign) = copied(state, child)?;
                if is_foreign {
                    does = Does::Copies(Box::new(copied));
                } else {
                    inside.push(self.read(state, child)?);
                }
            }
            NodeKind::Conditional => {
                for body in bodies {
                    let number = self.read(state, body)?;
                    inside.push(number);
                }
            }
            _ => {}
        }
        Ok(Planned {
            op,
            does,
            front: Front::default(),
            of: SmallVec::from_slice(&[(body, index)]),
            after: SmallVec::new(),
            inside,
        })
    }

    /// Refuses what depends on the numbers of conditions in other ways than by a kernel's argument
    /// that is one, and a condition that no node uses: the driver refuses that. Of conditions that
    /// recorders made, nobody else has the number.
    fn check_conditions(&mut self, made: usize) -> Planning<()> {
        let of = |node: &Planned| match node.op.holds() {
            Holds::Bodies(branching) => Some(branching.condition),
            _ => None,
        };
        let nodes = || self.graphs.iter().flatten();
        let conditions: Vec<_> = nodes().filter_map(of).collect();
        if conditions.len() < made {
            return Err(Stop::Left(NotPlanned {
                node: None,
                why: "a condition is used by no node",
            }));
        }
        let all: HashSet<u64> = conditions.iter().map(|it| it.raw()).collect();
        let known = conditions.iter().filter(|it| !it.serves_again);
        let known: HashSet<u64> = known.map(|it| it.raw()).collect();
        for node in nodes().filter(|_| !all.is_empty()) {
            let left = |why| {
                Err(Stop::Left(NotPlanned {
                    node: Some(Box::new(node.name())),
                    why,
                }))
            };
            let is_foreign = node.op.tag().unowned || matches!(node.does, Does::Copies(_));
            if is_foreign && !known.is_empty() {
                return left("other code's work is in one graph with conditions");
            }
            let AnyOp::Kernel(kernel) = &node.op else {
                continue;
            };
            let arguments = kernel.arguments();
            if !arguments.conditions().all(|handle| all.contains(&handle)) {
                return left("it sets a condition that no node looks at");
            }
            if arguments.numbers().any(|number| known.contains(&number)) {
                return left("it has the number of a condition");
            }
        }
        // Whatever was read is held from here on.
        for node in self.graphs.iter_mut().flatten() {
            if node.op.tag().unowned {
                node.op.tag_mut().unowned = false;
            }
        }
        Ok(())
    }
}

/// The operation of a node that other code made, or why it cannot be told.
fn read_unknown(graph: &Body, index: u32) -> std::result::Result<AnyOp, &'static str> {
    const UNREADABLE: &str = "its parameters cannot be read";
    let (raw, content) = graph
        .handle(index)
        .zip(graph.content(index))
        .ok_or(UNREADABLE)?;
    let mut op = AnyOp::read(raw).map_err(|_| UNREADABLE)?;
    match &op {
        AnyOp::Raw(_) => return Err("it is of a kind that this library cannot copy"),
        AnyOp::Kernel(_) => {
            let params = driver::node::kernel_params(raw).map_err(|_| UNREADABLE)?;
            let current = driver::current().map_err(|_| UNREADABLE)?;
            if !params.ctx.is_null() && params.ctx != current {
                return Err("it runs in another context");
            }
        }
        _ => {}
    }
    op.tag_mut().take_name_of(content.tag());
    Ok(op)
}

/// What is needed to copy graph `body` as it is, and whether there is other code's work in it.
fn copied(state: &mut State, body: u32) -> Result<(Copied, bool)> {
    let raw = state.body(body)?.raw;
    let mut nodes = Vec::new();
    let mut is_foreign = false;
    for handle in driver::graph::nodes(raw)? {
        let index = state.body_mut(body)?.number(handle)?;
        let graph = state.body(body)?;
        let inner = match graph.kind(index) {
            NodeKind::Child => {
                let child = state.child(body, index)?;
                let (inner, has_foreign) = copied(state, child)?;
                is_foreign |= has_foreign;
                Some(Box::new(inner))
            }
            _ => {
                is_foreign |= graph.content(index).and_then(AnyOp::op).is_none();
                None
            }
        };
        nodes.push(((body, index), handle, inner));
    }
    Ok((Copied { raw, nodes }, is_foreign))
}

/// The nodes, each behind those that it waits for, otherwise in the order of their numbers.
fn order(mut indices: Vec<u32>, edges: &[(u32, u32, EdgeData)], count: usize) -> Vec<u32> {
    indices.sort_unstable();
    if edges.iter().all(|(from, to, _)| from < to) {
        return indices;
    }
    let mut waits = vec![0u32; count];
    let mut next = vec![0u32; count + 1];
    for &(from, to, _) in edges {
        waits[to as usize] += 1;
        next[from as usize + 1] += 1;
    }
    for at in 0..count {
        next[at + 1] += next[at];
    }
    let mut targets = vec![0u32; edges.len()];
    let mut free = next.clone();
    for &(from, to, _) in edges {
        targets[free[from as usize] as usize] = to;
        free[from as usize] += 1;
    }
    let mut ready = BinaryHeap::new();
    ready.extend(
        indices
            .iter()
            .filter(|index| waits[**index as usize] == 0)
            .map(|i| Reverse(*i)),
    );
    let mut order = Vec::with_capacity(indices.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        let range = next[index as usize] as usize..next[index as usize + 1] as usize;
        for &to in &targets[range] {
            waits[to as usize] -= 1;
            if waits[to as usize] == 0 {
                ready.push(Reverse(to));
            }
        }
    }
    order
}
