//! What is different about two graphs, and what an update of an executable says to it.
//!
//! Nodes are paired as the driver pairs them ([`pair`]). Where it cannot, they are matched by what
//! people know them by ([`script`]). What a pair does is compared ([`parameters`]), and whether the
//! driver lets one take the other's place is decided by its rules ([`rules`]).

mod pair;
mod parameters;
mod rules;
mod script;
mod snapshot;

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::sys::CUgraphEdgeData;

pub(crate) use pair::counterparts;
pub(crate) use rules::is_taken_over;
pub(crate) use snapshot::Snapshot;

use super::operation::Holds;
use super::state::{State, lock_both};
use super::{AnyOp, Graph, NodeId, Operation};
use crate::error::{
    Change, ChangedParameter, Difference, NodeName, NodeParameter, UpdateFailure, Verdict, Within,
};
use crate::op::{Op, priority};
use crate::{Error, Result, driver};
use pair::Pairing;
use parameters::Counterparts;
use rules::Answer;
use snapshot::Member;

/// What a comparison found.
pub(crate) struct Compared {
    pub difference: Difference,
    /// The nodes of the new graph that were added, or changed.
    pub marks: HashMap<NodeId, Mark>,
    pub removed: Vec<Removed>,
}

/// How a node of the new graph is different.
pub(crate) enum Mark {
    Added,
    Changed(Vec<ChangedParameter>),
}

/// A node that only the old graph has, for pictures of the new one.
pub(crate) struct Removed {
    /// The number of the graph that it was in, in the new hierarchy.
    pub graph: u32,
    pub index: u32,
    pub does: AnyOp,
    /// What it waited for, and what waited for it, as far as the new graph has that.
    pub before: Vec<NodeId>,
    pub after: Vec<NodeId>,
}

/// What the verdict depends on besides both graphs.
pub(crate) struct Terms {
    /// Kernels run at their nodes' priorities.
    pub node_priority: bool,
    /// Conditional nodes need not take turns.
    pub loops_at_once: bool,
    /// Another executable has the memory that the new graph allocates.
    pub is_claimed: bool,
}

impl Graph {
    /// What is different about `new`, by what the driver compares when it updates an executable of
    /// this graph from `new` ([`Exec::update_in_place`](crate::Exec::update_in_place)).
    ///
    /// [`Difference::verdict`] tells the driver's answer without asking it. Nodes are paired as the
    /// driver does: from the nodes that none waits for, the one that became such a node last first,
    /// to what they wait for. So the order counts in which nodes and edges were made. Where the
    /// edges are others, nodes are matched that have one label, or that one source line made.
    ///
    /// Here the driver refuses to update a fill of two rows to one of three:
    ///
    /// ```
    /// # use cuda_graph::{Buffer, CopyOp, FillOp, Graph, Verdict};
    /// # let device = cuda_graph::device(0)?;
    /// # let stream = device.context().new_stream()?;
    /// # let (a, b) = (Buffer::<u32>::zeroed(&stream, 16)?, Buffer::<u32>::zeroed(&stream, 16)?);
    /// let capture = |rows: usize| {
    ///     Graph::capture(&stream, |path| {
    ///         path.record(FillOp::rows(&a, 7, 2, rows, 16)?.label("border"))?;
    ///         path.record(CopyOp::new(&b, &a)?)
    ///     })
    /// };
    /// let (old, _) = capture(2)?;
    /// let (new, _) = capture(3)?;
    /// let difference = old.diff(&new)?;
    /// assert!(matches!(difference.verdict(), Verdict::Refused { .. }));
    ///
    /// let error = old.instantiate()?.update_in_place(&new).unwrap_err();
    /// println!("{error}");
    /// # let text = error.to_string();
    /// # assert!(text.starts_with("the executable cannot be updated: a parameter changed that may \
    /// #     not change (fill node 0 \"border\" ("), "{text}");
    /// # assert!(text.contains("\n  changed: fill node 0 \"border\" ("), "{text}");
    /// # assert!(text.ends_with("): size: 8x2 -> 8x3"), "{text}");
    /// # Ok::<(), cuda_graph::Error>(())
    /// ```
    ///
    /// It prints, with the source line of the fill:
    ///
    /// ```text
    /// the executable cannot be updated: a parameter changed that may not change
    ///     (fill node 0 "border" (src/main.rs:9:25)): CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
    ///   changed: fill node 0 "border" (src/main.rs:9:25): size: 8x2 -> 8x3
    /// ```
    ///
    /// What a node of other code does is read from the driver. What cannot be read is unknown: it
    /// is reported as different ([`NodeParameter::Operation`](crate::NodeParameter::Operation)).
    ///
    /// The verdict is for an executable with the default options. What other code did to the graphs
    /// besides adding nodes, or will do to memory, is not known to it. Nodes of other contexts than
    /// their graph's are taken to be of the graph's.
    ///
    /// # Errors
    ///
    /// [`Error::GraphGone`]. Otherwise what the driver answers when it is asked for nodes and
    /// edges.
    pub fn diff(&self, new: &Graph) -> Result<Difference> {
        Ok(self.compare(new)?.difference)
    }

    pub(crate) fn compare(&self, new: &Graph) -> Result<Compared> {
        driver::bind(self.context())?;
        let (mut theirs, mut ours) = lock_both(new.hierarchy(), self.hierarchy());
        let own: &mut State = match &mut ours {
            Some(ours) => ours,
            None => &mut theirs,
        };
        let old = Snapshot::of(self.hierarchy(), own, self.body_index())?;
        let is_same = self.view.is_same(&new.view);
        let terms = Terms {
            node_priority: false,
            loops_at_once: false,
            is_claimed: !is_same && theirs.claim.strong_count() > 0,
        };
        let compared = new.compared_with(&old, &mut theirs, &terms);
        // After unlocking: dropping what operations hold may run user code.
        drop((theirs, ours));
        compared
    }

    /// Compares this graph, whose hierarchy is locked, with an older one.
    pub(crate) fn compared_with(
        &self,
        old: &Snapshot,
        state: &mut State,
        terms: &Terms,
    ) -> Result<Compared> {
        let new = Snapshot::of(self.hierarchy(), state, self.body_index())?;
        let is_free = terms.loops_at_once || !state.may_branch;
        let verdict = match self.check_turns_unless(is_free, state) {
            Err(Error::SideBySide { first, second }) => Some(Verdict::SideBySide { first, second }),
            Err(error) => return Err(error),
            // The driver updates from no graph that is inside of another.
            Ok(()) if self.body_index() != 0 => Some(refused(UpdateFailure::Driver, None)),
            Ok(()) if terms.is_claimed && new.has_memory_nodes() => {
                Some(refused(UpdateFailure::Driver, None))
            }
            Ok(()) => None,
        };
        let mut counterparts = Counterparts::new();
        let matching = Matching::of(old, &new, &mut counterparts);
        let verdict = verdict.unwrap_or_else(|| {
            let mut unknown = None;
            let refusal = refusal(old, &new, &matching, &mut unknown);
            let refusal = refusal.or_else(|| match terms.node_priority {
                true => other_priority(old, &new, &matching),
                false => None,
            });
            match (refusal, unknown) {
                (Some(verdict), _) => verdict,
                (None, Some(node)) => Verdict::Unknown { node },
                (None, None) => Verdict::InPlace,
            }
        });
        let mut comparison = Comparison {
            counterparts,
            compared: Compared {
                difference: Difference {
                    changes: Vec::new(),
                    verdict,
                },
                marks: HashMap::new(),
                removed: Vec::new(),
            },
        };
        let nowhere: Within = Arc::new([]);
        comparison.graphs((old, &nowhere), (&new, &nowhere), &matching);
        Ok(comparison.compared)
    }

    fn check_turns_unless(&self, is_free: bool, state: &mut State) -> Result<()> {
        match is_free {
            true => Ok(()),
            false => self.check_turns(state),
        }
    }
}

fn refused(reason: UpdateFailure, node: Option<&Member>) -> Verdict {
    Verdict::Refused {
        reason,
        node: node.map(|node| Box::new(node.name())),
    }
}

/// Which nodes of two graphs belong together, at all depths.
struct Matching {
    pairing: Pairing,
    /// By the place of each new node, the place of its old one.
    to_old: Vec<Option<u32>>,
    /// By the place of each new node, those of the graphs inside.
    inside: HashMap<u32, Vec<Matching>>,
}

impl Matching {
    fn of(old: &Snapshot, new: &Snapshot, counterparts: &mut Counterparts) -> Matching {
        let pairing = Pairing::of(old, new);
        let to_old = match &pairing.to_old {
            Some(to_old) => to_old.iter().copied().map(Some).collect(),
            None => script::matched(old, new),
        };
        let mut inside = HashMap::new();
        for (place, (member, was)) in (0..).zip(new.nodes.iter().zip(&to_old)) {
            let Some(was) = was.map(|was| &old.nodes[was as usize]) else {
                continue;
            };
            if let (Holds::Bodies(was), Holds::Bodies(is)) = (was.does.holds(), member.does.holds())
            {
                counterparts.insert(was.condition.raw(), is.condition.raw());
            }
            if let (AnyOp::Alloc(was), AnyOp::Alloc(is)) = (&was.does, &member.does)
                && let (Some(was), Some(is)) = (was.address(), is.address())
            {
                counterparts.insert(was, is);
            }
            let graphs = was.inside.iter().zip(&member.inside);
            let graphs = graphs.map(|(was, is)| Matching::of(was, is, counterparts));
            let graphs: Vec<Matching> = graphs.collect();
            if !graphs.is_empty() {
                inside.insert(place, graphs);
            }
        }
        Matching {
            pairing,
            to_old,
            inside,
        }
    }

    /// The pairs of graphs inside of a new node and its old one.
    fn pairs<'a>(
        &'a self,
        place: u32,
        was: &'a Member,
        is: &'a Member,
    ) -> impl Iterator<Item = (&'a Snapshot, &'a Snapshot, &'a Matching)> {
        let inside = self.inside.get(&place).into_iter().flatten();
        let graphs = was.inside.iter().zip(&is.inside).zip(inside);
        graphs.map(|((was, is), matching)| (was, is, matching))
    }

    /// The new nodes with their old ones.
    fn nodes<'a>(
        &'a self,
        old: &'a Snapshot,
        new: &'a Snapshot,
    ) -> impl Iterator<Item = (u32, Option<&'a Member>, &'a Member)> {
        let nodes = (0..).zip(&new.nodes).zip(&self.to_old);
        nodes.map(|((place, is), was)| (place, was.map(|was| &old.nodes[was as usize]), is))
    }
}

/// The first reason of the driver not to update one from the other. `unknown` becomes the first
/// node of which its answer cannot be told.
fn refusal(
    old: &Snapshot,
    new: &Snapshot,
    matching: &Matching,
    unknown: &mut Option<Box<NodeName>>,
) -> Option<Verdict> {
    if let Some((reason, node)) = matching.pairing.refusal {
        return Some(refused(
            reason,
            node.map(|place| &new.nodes[place as usize]),
        ));
    }
    for (place, was, is) in matching.nodes(old, new) {
        let was = was?;
        match rules::answer((was, old.context), (is, new.context)) {
            Answer::Fine => {}
            Answer::Refused(reason) => return Some(refused(reason, Some(is))),
            Answer::Unknown => {
                unknown.get_or_insert_with(|| Box::new(is.name()));
            }
        }
        for (was, is, matching) in matching.pairs(place, was, is) {
            let inside = refusal(was, is, matching, unknown);
            if inside.is_some() {
                return inside;
            }
        }
    }
    None
}

/// The refusal of the first kernel that has another priority.
fn other_priority(old: &Snapshot, new: &Snapshot, matching: &Matching) -> Option<Verdict> {
    // What the driver makes of a priority beyond its range.
    let range = driver::stream::priorities().unwrap_or(i32::MIN..=i32::MAX);
    let of = |member: &Member| {
        let launch = member.does.launch()?;
        let priority = priority(launch.attributes());
        Some(priority.clamp(*range.start(), *range.end()))
    };
    for (place, was, is) in matching.nodes(old, new) {
        let was = was?;
        if of(was) != of(is) {
            return Some(refused(UpdateFailure::AttributesChanged, Some(is)));
        }
        for (was, is, matching) in matching.pairs(place, was, is) {
            let inside = other_priority(was, is, matching);
            if inside.is_some() {
                return inside;
            }
        }
    }
    None
}

/// A comparison under way.
struct Comparison {
    counterparts: Counterparts,
    compared: Compared,
}

impl Comparison {
    /// Compares two graphs.
    fn graphs(
        &mut self,
        (old, within_old): (&Snapshot, &Within),
        (new, within): (&Snapshot, &Within),
        matching: &Matching,
    ) {
        let mut to_new = vec![None; old.nodes.len()];
        for (place, was) in (0..).zip(&matching.to_old) {
            if let Some(was) = was {
                to_new[*was as usize] = Some(place);
            }
        }
        // Nodes that the driver pairs wait for pairs.
        let edges_differ = matching.pairing.to_old.is_none();
        for (place, was, is) in matching.nodes(old, new) {
            let Some(was) = was else {
                self.compared.marks.insert(is.id, Mark::Added);
                self.compared.difference.changes.push(Change::Added {
                    node: is.name(),
                    within: within.clone(),
                });
                continue;
            };
            let mut parameters = parameters::differences(was, is, &self.counterparts);
            if edges_differ {
                parameters.extend(other_edges((was, old), (is, new), &to_new));
            }
            if !parameters.is_empty() {
                let mark = Mark::Changed(parameters.clone());
                self.compared.marks.insert(is.id, mark);
                self.compared.difference.changes.push(Change::Changed {
                    old: was.name(),
                    new: is.name(),
                    within: within.clone(),
                    parameters,
                });
            }
            for (number, (graph_was, graph_is, matching)) in
                (0..).zip(matching.pairs(place, was, is))
            {
                let within_old = inside_of(within_old, was, number);
                let within = inside_of(within, is, number);
                self.graphs((graph_was, &within_old), (graph_is, &within), matching);
            }
        }
        self.removed(old, new, &to_new, within_old);
    }

    /// Notes the nodes that only the old graph has.
    fn removed(&mut self, old: &Snapshot, new: &Snapshot, to_new: &[Option<u32>], within: &Within) {
        let gone: Vec<usize> = (0..old.nodes.len())
            .filter(|&place| to_new[place].is_none())
            .collect();
        if gone.is_empty() {
            return;
        }
        let id = |place: u32| to_new[place as usize].map(|place| new.nodes[place as usize].id);
        let mut after: HashMap<u32, Vec<NodeId>> = HashMap::new();
        for (place, member) in (0..).zip(&old.nodes) {
            let Some(waits) = id(place) else { continue };
            for (from, _) in &member.before {
                if to_new[*from as usize].is_none() {
                    after.entry(*from).or_default().push(waits);
                }
            }
        }
        for place in gone {
            let member = &old.nodes[place];
            self.compared.difference.changes.push(Change::Removed {
                node: member.name(),
                within: within.clone(),
            });
            self.compared.removed.push(Removed {
                graph: new.body,
                index: member.id.index,
                does: member.does.clone(),
                before: member
                    .before
                    .iter()
                    .filter_map(|(from, _)| id(*from))
                    .collect(),
                after: after.remove(&(place as u32)).unwrap_or_default(),
            });
        }
    }
}

/// The way into graph `number` of a node.
fn inside_of(within: &Within, node: &Member, number: u32) -> Within {
    let way = within.iter().cloned();
    way.chain([(node.name(), number)]).collect()
}

/// What two nodes wait for, if that differs.
fn other_edges(
    (was, old): (&Member, &Snapshot),
    (is, new): (&Member, &Snapshot),
    to_new: &[Option<u32>],
) -> Option<ChangedParameter> {
    let waited = was.before.iter();
    let waited = waited.map(|(from, data)| to_new[*from as usize].map(|from| (from, *data)));
    if waited.eq(is.before.iter().map(|edge| Some(*edge))) {
        return None;
    }
    let list = |member: &Member, graph: &Snapshot| {
        let name = |(from, data): &(u32, CUgraphEdgeData)| {
            let name = short_name(&graph.nodes[*from as usize]);
            match driver::graph::is_plain(data) {
                true => name,
                false => format!("{name} (port {}, type {})", data.from_port, data.type_),
            }
        };
        let names: Vec<String> = member.before.iter().map(name).collect();
        match names.is_empty() {
            true => "nothing".to_owned(),
            false => names.join(", "),
        }
    };
    Some(ChangedParameter {
        parameter: NodeParameter::Dependencies,
        old: Some(list(was, old)),
        new: Some(list(is, new)),
    })
}

/// What a node is called in a list.
fn short_name(member: &Member) -> String {
    let name = NodeName {
        location: None,
        ..member.name()
    };
    name.to_string()
}

impl State {
    /// Whether graph `body` allocates or frees memory by itself, or by what is inside of it.
    fn allocates(&self, body: u32) -> bool {
        let mut found = false;
        self.each_body(body, &mut |_, graph| found |= graph.has_memory_nodes());
        found
    }

    /// The right of an executable to allocate what graph `body` allocates, which nobody else has
    /// while it is held.
    #[inline]
    pub(crate) fn claim(&mut self, body: u32) -> Option<Arc<()>> {
        match self.has_uncommon() {
            false => None,
            true => self.claim_if_it_allocates(body),
        }
    }

    #[inline(never)]
    fn claim_if_it_allocates(&mut self, body: u32) -> Option<Arc<()>> {
        self.allocates(body).then(|| {
            let claim = Arc::new(());
            self.claim = Arc::downgrade(&claim);
            claim
        })
    }
}
