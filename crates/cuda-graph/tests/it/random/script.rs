//! Random edits of a graph, each with what the library is to say to it.

use std::collections::{BTreeSet, HashSet};

use cuda_graph::{Edge, EdgeData, Error, Graph, NodeId, Result};
use proptest::prelude::*;
use proptest::sample::Index;

use super::model::{Kind, Model, Name};

/// One edit. An index picks one of the nodes, or edges, that there are at the time.
#[derive(Clone, Debug)]
pub enum Step {
    /// Adds a node after some; `near` picks among the latest.
    Add {
        kind: Kind,
        value: u32,
        near: bool,
        after: Vec<Index>,
    },
    AddEdge(Index, Index),
    /// Several at once, from anywhere to anywhere.
    AddEdges(Vec<(Index, Index)>),
    /// One that may be missing.
    RemoveEdge(Index, Index),
    /// Some that are there, at once.
    RemoveEdges(Vec<Index>),
    /// Edits one side of a node as a set.
    Side {
        node: Index,
        before: bool,
        edit: Edit,
        others: Vec<Index>,
    },
    Destroy(Index),
    Replace(Index, u32),
    /// Goes on with a clone.
    Clone,
    Run,
}

#[derive(Clone, Copy, Debug)]
pub enum Edit {
    Add,
    Remove,
    Set,
    Clear,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        6 => Just(Kind::Gather),
        2 => Just(Kind::Write),
        4 => Just(Kind::Call),
        2 => Just(Kind::Fill),
        2 => Just(Kind::Copy),
        2 => Just(Kind::Empty),
        1 => Just(Kind::Child),
    ]
}

fn add() -> impl Strategy<Value = Step> {
    let after = prop::collection::vec(any::<Index>(), 0..4);
    (kind(), any::<u32>(), any::<bool>(), after).prop_map(|(kind, value, near, after)| Step::Add {
        kind,
        value,
        near,
        after,
    })
}

/// Any edit; `adds` of so many in all add a node.
pub fn step(adds: u32) -> impl Strategy<Value = Step> {
    let several = prop::collection::vec(any::<Index>(), 0..5);
    let side = prop_oneof![
        Just(Edit::Add),
        Just(Edit::Remove),
        Just(Edit::Set),
        Just(Edit::Clear)
    ];
    let pairs = prop::collection::vec(any::<(Index, Index)>(), 0..4);
    prop_oneof![
        adds => add(),
        3 => any::<(Index, Index)>().prop_map(|(from, to)| Step::AddEdge(from, to)),
        2 => pairs.prop_map(Step::AddEdges),
        1 => any::<(Index, Index)>().prop_map(|(from, to)| Step::RemoveEdge(from, to)),
        2 => several.clone().prop_map(Step::RemoveEdges),
        4 => (any::<Index>(), any::<bool>(), side, several)
            .prop_map(|(node, before, edit, others)| Step::Side { node, before, edit, others }),
        2 => any::<Index>().prop_map(Step::Destroy),
        4 => any::<(Index, u32)>().prop_map(|(node, value)| Step::Replace(node, value)),
    ]
}

/// What the library says to an edit.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done,
    SelfEdge,
    DuplicateEdge,
    DuplicateNode,
    NoEdge,
    Cycle,
}

fn answer(result: Result<()>) -> Answer {
    match result {
        Ok(()) => Answer::Done,
        Err(Error::SelfEdge { .. }) => Answer::SelfEdge,
        Err(Error::DuplicateEdge { .. }) => Answer::DuplicateEdge,
        Err(Error::DuplicateNode { .. }) => Answer::DuplicateNode,
        Err(Error::NoEdge { .. }) => Answer::NoEdge,
        Err(Error::Cycle { .. }) => Answer::Cycle,
        Err(error) => panic!("an edit ends in {error}"),
    }
}

type Pair = (Name, Name);

/// What is said to edges that are themselves wrong.
fn of_list(edges: &[Pair]) -> Answer {
    let mut seen = HashSet::new();
    for edge in edges {
        if edge.0 == edge.1 {
            return Answer::SelfEdge;
        }
        if !seen.insert(edge) {
            return Answer::DuplicateEdge;
        }
    }
    Answer::Done
}

impl Model {
    fn has(&self, edge: &Pair) -> bool {
        self.nodes[&edge.1].before.contains(&edge.0)
    }

    /// Adds edges, all or none.
    fn connect(&mut self, edges: &[Pair]) -> Answer {
        let answer = of_list(edges);
        if answer != Answer::Done {
            return answer;
        }
        if edges.iter().any(|edge| self.has(edge)) {
            return Answer::DuplicateEdge;
        }
        let before = self.nodes.clone();
        for (from, to) in edges {
            let to = self.nodes.get_mut(to).expect("it was picked");
            to.before.insert(*from);
        }
        if edges.iter().any(|(from, to)| self.reaches(*to, *from)) {
            self.nodes = before;
            return Answer::Cycle;
        }
        Answer::Done
    }

    /// Removes edges, all or none.
    fn disconnect(&mut self, edges: &[Pair]) -> Answer {
        let once: BTreeSet<Pair> = edges.iter().copied().collect();
        let answer = of_list(&once.into_iter().collect::<Vec<_>>());
        if answer != Answer::Done {
            return answer;
        }
        if !edges.iter().all(|edge| self.has(edge)) {
            return Answer::NoEdge;
        }
        for (from, to) in edges {
            let to = self.nodes.get_mut(to).expect("it was picked");
            to.before.remove(from);
        }
        Answer::Done
    }

    fn handle(&self, name: Name) -> NodeId {
        self.nodes[&name].node.id()
    }

    fn pick(&self, index: &Index) -> Option<Name> {
        let count = self.nodes.len();
        (count > 0).then(|| *self.nodes.keys().nth(index.index(count)).expect("so many"))
    }

    fn pick_all(&self, indices: &[Index]) -> Vec<Name> {
        indices
            .iter()
            .filter_map(|index| self.pick(index))
            .collect()
    }

    /// Does one edit to the graph and here, and checks that the library says to it what it should.
    pub fn edit(&mut self, graph: &Graph, step: &Step) {
        match step {
            Step::Add {
                kind,
                value,
                near,
                after,
            } => {
                if !self.has_room() {
                    return;
                }
                let after: Vec<Name> = if *near {
                    let latest: Vec<Name> = self.nodes.keys().rev().take(8).copied().collect();
                    let pick = |index: &Index| index.get(&latest);
                    after
                        .iter()
                        .filter(|_| !latest.is_empty())
                        .map(pick)
                        .copied()
                        .collect()
                } else {
                    self.pick_all(after)
                };
                let twice = after.iter().collect::<HashSet<_>>().len() < after.len();
                let wanted = if twice {
                    Answer::DuplicateNode
                } else {
                    Answer::Done
                };
                let said = answer(self.add(graph, *kind, *value, &after));
                assert_eq!(said, wanted, "{step:?}");
            }
            Step::AddEdge(from, to) => {
                let (Some(from), Some(to)) = (self.pick(from), self.pick(to)) else {
                    return;
                };
                let said = graph.add_edge(self.handle(from), self.handle(to));
                assert_eq!(answer(said), self.connect(&[(from, to)]), "{step:?}");
            }
            Step::AddEdges(pairs) => {
                let pick = |(from, to): &(Index, Index)| Some((self.pick(from)?, self.pick(to)?));
                let edges: Vec<Pair> = pairs.iter().filter_map(pick).collect();
                let handles: Vec<Edge> = (edges.iter())
                    .map(|(from, to)| Edge {
                        from: self.handle(*from),
                        to: self.handle(*to),
                        data: EdgeData::default(),
                    })
                    .collect();
                let said = graph.add_edges(handles);
                assert_eq!(answer(said), self.connect(&edges), "{step:?}");
            }
            Step::RemoveEdge(from, to) => {
                let (Some(from), Some(to)) = (self.pick(from), self.pick(to)) else {
                    return;
                };
                let said = graph.remove_edge(self.handle(from), self.handle(to));
                assert_eq!(answer(said), self.disconnect(&[(from, to)]), "{step:?}");
            }
            Step::RemoveEdges(picks) => {
                let there = self.edges();
                let edges: Vec<Pair> = if there.is_empty() {
                    Vec::new()
                } else {
                    picks.iter().map(|index| *index.get(&there)).collect()
                };
                let handles: Vec<_> = (edges.iter())
                    .map(|(from, to)| (self.handle(*from), self.handle(*to)))
                    .collect();
                let said = graph.remove_edges(handles);
                assert_eq!(answer(said), self.disconnect(&edges), "{step:?}");
            }
            Step::Side {
                node,
                before,
                edit,
                others,
            } => self.edit_side(graph, node, *before, *edit, others),
            Step::Destroy(node) => {
                let Some(name) = self.pick(node) else {
                    return;
                };
                let handle = self.handle(name);
                graph.destroy(handle).expect("it is there");
                assert!(matches!(graph.destroy(handle), Err(Error::NodeGone { .. })));
                self.forget(name);
            }
            Step::Replace(node, value) => {
                let Some(name) = self.pick(node) else {
                    return;
                };
                self.replace(graph, name, *value)
                    .expect("it keeps its kind");
            }
            Step::Clone | Step::Run => unreachable!("not an edit"),
        }
        self.settle(graph);
    }

    fn edit_side(
        &mut self,
        graph: &Graph,
        node: &Index,
        before: bool,
        edit: Edit,
        others: &[Index],
    ) {
        let Some(node) = self.pick(node) else {
            return;
        };
        let there: BTreeSet<Name> = if before {
            self.nodes[&node].before.clone()
        } else {
            self.after(node)
        };
        let others = match edit {
            Edit::Clear => Vec::new(),
            // Mostly what is there: every other one of the neighbours, and one more node at most.
            Edit::Remove => {
                let some = there.iter().copied().step_by(2);
                let odd = others.len() == 3;
                some.chain(self.pick_all(&others[..usize::from(odd)]))
                    .collect()
            }
            Edit::Add | Edit::Set => self.pick_all(others),
        };
        let edge = |other: Name| if before { (other, node) } else { (node, other) };
        let edges: Vec<Pair> = others.iter().map(|other| edge(*other)).collect();
        let handles: Vec<NodeId> = others.iter().map(|other| self.handle(*other)).collect();
        let this = self.handle(node);
        let side = if before {
            graph.predecessors(this)
        } else {
            graph.successors(this)
        };
        let (said, wanted) = match edit {
            Edit::Add => (side.add(handles), self.connect(&edges)),
            Edit::Remove => (side.remove(handles), self.disconnect(&edges)),
            Edit::Set => (side.set(handles), self.set_side(&there, &edges, edge)),
            Edit::Clear => (side.set(()), self.set_side(&there, &[], edge)),
        };
        assert_eq!(answer(said), wanted, "{edit:?} of {others:?} to {node}");
    }

    fn set_side(
        &mut self,
        there: &BTreeSet<Name>,
        edges: &[Pair],
        edge: impl Fn(Name) -> Pair,
    ) -> Answer {
        let answer = of_list(edges);
        if answer != Answer::Done {
            return answer;
        }
        let old: Vec<Pair> = there.iter().map(|other| edge(*other)).collect();
        let nodes = self.nodes.clone();
        self.disconnect(&old);
        let answer = self.connect(edges);
        if answer != Answer::Done {
            self.nodes = nodes;
        }
        answer
    }
}
