//! Random programs that define, clone, embed, instantiate, update, launch and drop, with a model of
//! who needs what: nothing goes while someone needs it, and when all launches are over, what nobody
//! holds is gone.
//!
//! `CUDA_GRAPH_RANDOM=n` runs n times as many.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{ChildOp, Error, Exec, Graph, HostOp, Node};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::door::Door;
use crate::fixture::{Watch, Watched, assert_soon, context, stream};
use crate::random::cases;

/// How many nodes every definition has behind its door.
const NODES: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    NewOwner,
    DropHandle(Index),
    Define([Index; NODES]),
    Clone(Index),
    /// Defines a graph that embeds another.
    Embed(Index),
    UpdateNode(Index, usize, Index),
    DropGraph(Index),
    Instantiate(Index),
    UpdateNodeOfExec(Index, usize, Index),
    UpdateExec(Index, Index),
    Launch(Index, usize),
    DropExec(Index),
    /// Launches do not end from here on, until they are let.
    Close,
    Open,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    let place = 0..NODES;
    prop_oneof![
        3 => Just(Step::NewOwner),
        2 => index().prop_map(Step::DropHandle),
        2 => any::<[Index; NODES]>().prop_map(Step::Define),
        1 => index().prop_map(Step::Clone),
        1 => index().prop_map(Step::Embed),
        3 => (index(), place.clone(), index())
            .prop_map(|(graph, place, op)| Step::UpdateNode(graph, place, op)),
        2 => index().prop_map(Step::DropGraph),
        2 => index().prop_map(Step::Instantiate),
        3 => (index(), place, index())
            .prop_map(|(exec, place, op)| Step::UpdateNodeOfExec(exec, place, op)),
        3 => (index(), index()).prop_map(|(exec, graph)| Step::UpdateExec(exec, graph)),
        4 => (index(), 0..3usize).prop_map(|(exec, stream)| Step::Launch(exec, stream)),
        2 => index().prop_map(Step::DropExec),
        2 => Just(Step::Close),
        2 => Just(Step::Open),
    ]
}

/// An owner's number.
type Owner = usize;

/// A definition, and whose calls its nodes make.
struct Definition {
    graph: Graph,
    /// The graph with the nodes: itself, or what is embedded in it.
    place: Graph,
    nodes: [(Node<HostOp>, Owner); NODES],
    embeds: bool,
    id: usize,
}

struct Executable {
    exec: Exec,
    /// The definition that it was made of.
    of: usize,
    nodes: [Node<HostOp>; NODES],
    /// What its nodes call.
    calls: [Owner; NODES],
    /// What the definition called that it was last updated from, if that is another one.
    holds: BTreeSet<Owner>,
    embeds: bool,
}

struct World {
    door: Arc<Door>,
    closed: bool,
    streams: [Arc<CudaStream>; 3],
    watches: Vec<Watch>,
    handles: Vec<(HostOp, Owner)>,
    definitions: Vec<Definition>,
    executables: Vec<Executable>,
    /// What launches call that cannot be over.
    in_flight: BTreeSet<Owner>,
    defined: Cell<usize>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.door.open();
    }
}

/// Takes one of `list`, if there is one.
fn pick<'a, T>(list: &'a mut [T], index: &Index) -> Option<&'a mut T> {
    (!list.is_empty()).then(|| index.get_mut(list))
}

fn take<T>(list: &mut Vec<T>, index: &Index) -> Option<T> {
    (!list.is_empty()).then(|| list.swap_remove(index.index(list.len())))
}

struct Held(#[expect(dead_code, reason = "its drop is what counts")] Watched);

impl World {
    fn new() -> World {
        World {
            door: Arc::new(Door::default()),
            closed: false,
            streams: [stream(), stream(), context().per_thread_stream()],
            watches: Vec::new(),
            handles: Vec::new(),
            definitions: Vec::new(),
            executables: Vec::new(),
            in_flight: BTreeSet::new(),
            defined: Cell::new(0),
        }
    }

    fn next_id(&self) -> usize {
        self.defined.set(self.defined.get() + 1);
        self.defined.get()
    }

    fn handle(&self, index: &Index) -> Option<(HostOp, Owner)> {
        (!self.handles.is_empty()).then(|| index.get(&self.handles).clone())
    }

    fn embed(&self, inner: &Definition) -> Definition {
        let graph = Graph::new(&context()).unwrap();
        let first = graph.add(self.door.op(), ()).unwrap();
        let node = graph.add(ChildOp::new(&inner.graph), first).unwrap();
        let place = graph.child(node).unwrap();
        // The door is the first, and the others follow in a line.
        let mut at = place.roots().unwrap()[0];
        let nodes = inner.nodes.map(|(_, owner)| {
            at = place.successors(at).list().unwrap()[0];
            (at.typed().unwrap(), owner)
        });
        Definition {
            graph,
            place,
            nodes,
            embeds: true,
            id: self.next_id(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::NewOwner => {
                let (watch, watched) = Watch::new();
                let held = Held(watched);
                let op = HostOp::new(move || {
                    let _ = &held;
                });
                self.handles.push((op, self.watches.len()));
                self.watches.push(watch);
            }
            Step::DropHandle(handle) => drop(take(&mut self.handles, handle)),
            Step::Define(handles) => {
                let Some(first) = self.handle(&handles[0]) else {
                    return;
                };
                let graph = Graph::new(&context()).unwrap();
                let mut last = graph.add(self.door.op(), ()).unwrap();
                let nodes = [0, 1, 2].map(|k| {
                    let (op, owner) = self.handle(&handles[k]).unwrap_or_else(|| first.clone());
                    last = graph.add(op, last).unwrap();
                    (last, owner)
                });
                let place = ChildOp::new(&graph).graph();
                self.definitions.push(Definition {
                    graph,
                    place,
                    nodes,
                    embeds: false,
                    id: self.next_id(),
                });
            }
            // Making things anew may wait for what is in flight, on some drivers.
            Step::Clone(_) | Step::Embed(_) | Step::Instantiate(_) if self.closed => {}
            Step::Clone(graph) => {
                let Some(of) = pick(&mut self.definitions, graph) else {
                    return;
                };
                if of.embeds {
                    return;
                }
                let clone = of.graph.try_clone().unwrap();
                let find = |(node, owner)| (of.graph.find_in_clone(node, &clone).unwrap(), owner);
                let nodes = of.nodes.map(find);
                let place = ChildOp::new(&clone).graph();
                self.definitions.push(Definition {
                    graph: clone,
                    place,
                    nodes,
                    embeds: false,
                    id: self.next_id(),
                });
            }
            Step::Embed(graph) => {
                if self.definitions.is_empty() {
                    return;
                }
                let inner = graph.get(&self.definitions);
                if !inner.embeds {
                    let outer = self.embed(inner);
                    self.definitions.push(outer);
                }
            }
            Step::UpdateNode(graph, place, handle) => {
                let Some((op, owner)) = self.handle(handle) else {
                    return;
                };
                if let Some(definition) = pick(&mut self.definitions, graph) {
                    let (node, was) = &mut definition.nodes[*place];
                    definition.place.update(*node, op).unwrap();
                    *was = owner;
                }
            }
            Step::DropGraph(graph) => drop(take(&mut self.definitions, graph)),
            Step::Instantiate(graph) => {
                if let Some(of) = pick(&mut self.definitions, graph) {
                    let calls = of.nodes.map(|(_, owner)| owner);
                    self.executables.push(Executable {
                        exec: of.graph.instantiate().unwrap(),
                        of: of.id,
                        nodes: of.nodes.map(|(node, _)| node),
                        calls,
                        holds: BTreeSet::new(),
                        embeds: of.embeds,
                    });
                }
            }
            Step::UpdateNodeOfExec(exec, place, handle) => {
                let Some((op, owner)) = self.handle(handle) else {
                    return;
                };
                if let Some(exec) = pick(&mut self.executables, exec) {
                    // The definition that names the node may be gone.
                    exec.exec.update(exec.nodes[*place], op).unwrap();
                    exec.calls[*place] = owner;
                }
            }
            Step::UpdateExec(exec, graph) => {
                let (Some(exec), Some(from)) = (
                    pick(&mut self.executables, exec),
                    pick(&mut self.definitions, graph),
                ) else {
                    return;
                };
                match exec.exec.update_in_place(&from.graph) {
                    Ok(()) => {
                        assert_eq!(exec.embeds, from.embeds);
                        exec.calls = from.nodes.map(|(_, owner)| owner);
                        exec.holds = match exec.of == from.id {
                            true => BTreeSet::new(),
                            false => exec.calls.into(),
                        };
                    }
                    Err(Error::Update { .. }) => assert_ne!(exec.embeds, from.embeds),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Launch(exec, stream) => {
                if let Some(exec) = pick(&mut self.executables, exec) {
                    exec.exec.launch(&self.streams[*stream]).unwrap();
                    if self.closed {
                        self.in_flight.extend(exec.calls);
                    }
                }
            }
            Step::DropExec(exec) => drop(take(&mut self.executables, exec)),
            Step::Close => {
                self.door.close();
                self.closed = true;
            }
            Step::Open => self.settle(),
        }
    }

    /// Whatever must be alive is.
    fn check(&self, after: &Step) {
        let handles = self.handles.iter().map(|(_, owner)| *owner);
        let nodes = self.definitions.iter().flat_map(|of| of.nodes);
        let calls = self.executables.iter().flat_map(|exec| exec.calls);
        let needed = (handles.chain(nodes.map(|(_, owner)| owner)).chain(calls))
            .chain(self.in_flight.iter().copied());
        for owner in needed {
            let gone = self.watches[owner].is_dropped();
            assert!(!gone, "owner {owner} is gone early, after {after:?}");
        }
    }

    /// Lets every launch end: then whatever nobody holds goes.
    fn settle(&mut self) {
        self.door.open();
        self.closed = false;
        for stream in &self.streams {
            stream.synchronize().unwrap();
        }
        self.in_flight.clear();
        let mut held: BTreeSet<Owner> = self.handles.iter().map(|(_, owner)| *owner).collect();
        let nodes = self.definitions.iter().flat_map(|of| of.nodes);
        held.extend(nodes.map(|(_, owner)| owner));
        for exec in &self.executables {
            held.extend(exec.calls);
            held.extend(&exec.holds);
        }
        for (owner, watch) in self.watches.iter().enumerate() {
            if held.contains(&owner) {
                assert!(!watch.is_dropped(), "owner {owner} is gone early");
            } else {
                assert_soon(|| watch.is_dropped(), &format!("owner {owner} leaks"));
            }
        }
    }
}

proptest! {
    // To find that something stays takes a while, so that few smaller cases can be tried.
    #![proptest_config(ProptestConfig { max_shrink_iters: 20, ..cases(300) })]
    #[test]
    fn nothing_goes_early_and_nothing_stays(steps in prop::collection::vec(step(), 0..120)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check(step);
        }
        world.settle();
        world.handles.clear();
        world.definitions.clear();
        world.executables.clear();
        world.settle();
    }
}
