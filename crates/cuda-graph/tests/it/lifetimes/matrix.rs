//! Every kind of resource, in every consumer, let go in every way: 12 x 7 x 5 cases.
//!
//! In each, the resource is held by the consumer alone once everything else has let go; the
//! consumer still works, and when it ends, or lets go, the resource goes. Seen by drops: never
//! early, never leaked. Every combination can be: to destroy a node or replace its operation is
//! done to what the consumer came from, which must not reach it, then to the consumer itself where
//! it is a graph or an executable; a definition's executable in flight is one made of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{AnyOp, ChildOp, Exec, Graph, Node};

use crate::door::Door;
use crate::fixture::{context, stream};
use crate::resource::{Handle, RESOURCES, Resource, Seen};

/// What holds the resource.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Consumer {
    /// The graph that the operation was added to.
    Definition,
    Clone,
    /// A graph that the definition was embedded in.
    Parent,
    Executable,
    /// A launch whose executable may be gone.
    Launch,
    /// An executable that was given the operation for one node.
    UpdatedNode,
    /// An executable that was updated from the definition.
    UpdatedWhole,
}

/// How something lets go.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LetGo {
    DropHandle,
    DropDefinition,
    DestroyNode,
    ReplaceOperation,
    DropExecutableInFlight,
}

const WAYS: [LetGo; 5] = [
    LetGo::DropHandle,
    LetGo::DropDefinition,
    LetGo::DestroyNode,
    LetGo::ReplaceOperation,
    LetGo::DropExecutableInFlight,
];

type Place = (Graph, Node<AnyOp>);

/// A consumer that holds the resource, and what it came from.
struct Scene {
    consumer: Consumer,
    stream: Arc<CudaStream>,
    door: Arc<Door>,
    /// Where the operation was added.
    source: Option<Place>,
    /// The clone or the parent.
    own: Option<Place>,
    /// What the executable was made from, when that is not the source.
    base: Option<Place>,
    exec: Option<Exec>,
    /// The node of the executable.
    node: Node<AnyOp>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.door.open();
    }
}

/// A graph that passes through the door and then does `op`.
fn define(door: &Arc<Door>, op: AnyOp) -> Place {
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(door.op(), ()).unwrap();
    let node = graph.add(op, first).unwrap();
    (graph, node)
}

impl Scene {
    fn new(consumer: Consumer, stream: &Arc<CudaStream>, op: AnyOp, other: &AnyOp) -> Scene {
        let door = Arc::new(Door::default());
        let (mut base, mut own, mut exec) = (None, None, None);
        let mut source = None;
        if matches!(consumer, Consumer::UpdatedNode | Consumer::UpdatedWhole) {
            let place = define(&door, other.clone());
            exec = Some(place.0.instantiate().unwrap());
            base = Some(place);
        }
        if consumer == Consumer::UpdatedNode {
            let node = base.as_ref().unwrap().1;
            exec.as_mut().unwrap().update(node, op).unwrap();
        } else {
            source = Some(define(&door, op));
        }
        if let Some((graph, node)) = &source {
            match consumer {
                Consumer::Clone => {
                    let clone = graph.try_clone().unwrap();
                    let copy = graph.find_in_clone(*node, &clone).unwrap();
                    own = Some((clone, copy));
                }
                Consumer::Parent => {
                    let parent = Graph::new(&context()).unwrap();
                    let node = parent.add(AnyOp::from(ChildOp::new(graph)), ()).unwrap();
                    own = Some((parent, node));
                }
                Consumer::Executable | Consumer::Launch => {
                    exec = Some(graph.instantiate().unwrap());
                }
                Consumer::UpdatedWhole => exec.as_mut().unwrap().update_in_place(graph).unwrap(),
                Consumer::Definition | Consumer::UpdatedNode => {}
            }
        }
        let node = base.as_ref().or(source.as_ref()).unwrap().1;
        let mut scene = Scene {
            consumer,
            stream: stream.clone(),
            door,
            source,
            own,
            base,
            exec,
            node,
        };
        if consumer == Consumer::Launch {
            scene.take_off();
        }
        scene
    }

    /// The graph that is the consumer, if it is one.
    fn graph(&self) -> Option<&Place> {
        match self.consumer {
            Consumer::Definition => self.source.as_ref(),
            Consumer::Clone | Consumer::Parent => self.own.as_ref(),
            _ => None,
        }
    }

    /// Has a launch be in flight.
    fn take_off(&mut self) {
        if let Some((graph, _)) = self.graph() {
            self.exec = Some(graph.instantiate().unwrap());
        }
        self.door.close();
        self.exec.as_mut().unwrap().launch(&self.stream).unwrap();
        self.door.until_someone_waits();
    }

    /// Lets what is in flight end.
    fn land(&self) {
        self.door.open();
        self.stream.synchronize().unwrap();
    }

    /// Launches what there is once, unless that is in flight.
    fn works(&mut self) {
        if let Some((graph, _)) = self.graph() {
            graph.instantiate().unwrap().launch(&self.stream).unwrap();
        } else if self.consumer != Consumer::Launch
            && let Some(exec) = &mut self.exec
        {
            exec.launch(&self.stream).unwrap();
        }
        if self.consumer != Consumer::Launch {
            self.stream.synchronize().unwrap();
        }
    }

    /// Drops what the consumer came from. A launch in flight is left alone with what it uses.
    fn leave_alone(&mut self) {
        if self.consumer == Consumer::Launch {
            self.exec = None;
        }
        if self.consumer != Consumer::Definition {
            self.source = None;
        }
        self.base = None;
    }

    /// Ends the consumer.
    fn end(&mut self) {
        self.exec = None;
        self.own = None;
        if self.consumer == Consumer::Definition {
            self.source = None;
        }
        self.land();
    }
}

fn drop_handle(mut scene: Scene, handle: Handle, seen: &Seen) {
    scene.leave_alone();
    drop(handle);
    seen.assert_alive("with the handle");
    scene.works();
    seen.assert_alive("by a launch");
    scene.end();
    seen.assert_dropped("with the handle dropped");
}

fn drop_handle_last(mut scene: Scene, handle: Handle, seen: &Seen) {
    scene.leave_alone();
    scene.end();
    drop(scene);
    seen.assert_alive("under a handle");
    drop(handle);
    seen.assert_dropped("after the last handle");
}

fn drop_definition(mut scene: Scene, seen: &Seen) {
    scene.leave_alone();
    if scene.consumer != Consumer::Definition {
        seen.assert_alive("with the definition");
        scene.works();
        seen.assert_alive("by a launch");
    }
    scene.end();
    seen.assert_dropped("with the definition dropped");
}

fn destroy_node(mut scene: Scene, seen: &Seen) {
    if scene.consumer == Consumer::Launch {
        scene.exec = None;
    }
    for (graph, node) in scene.source.iter().chain(&scene.base) {
        graph.destroy(*node).unwrap();
    }
    if scene.consumer != Consumer::Definition {
        seen.assert_alive("with the definition's node");
        scene.works();
        seen.assert_alive("by a launch");
        match &scene.own {
            Some((graph, node)) => graph.destroy(*node).unwrap(),
            None => scene.end(),
        }
    }
    seen.assert_dropped("with the node destroyed");
    scene.works();
}

/// Replaces the operation of a definition's node. A driver may refuse to give a child another
/// graph: then the node is destroyed.
fn replace((graph, node): &Place, other: &AnyOp) {
    match graph.update(*node, other.clone()) {
        Ok(()) => {}
        Err(_) if matches!(other, AnyOp::Child(_)) => graph.destroy(*node).unwrap(),
        Err(error) => panic!("the operation is not replaced: {error}"),
    }
}

fn replace_operation(mut scene: Scene, other: &AnyOp, seen: &Seen) {
    // Made now: making one may wait for the stream.
    let next = define(&scene.door, other.clone());
    for place in scene.source.iter().chain(&scene.base) {
        replace(place, other);
    }
    match scene.consumer {
        Consumer::Definition => {}
        Consumer::Clone => {
            seen.assert_alive("with the definition's operation");
            scene.works();
            replace(scene.own.as_ref().unwrap(), other);
        }
        Consumer::Parent => {
            seen.assert_alive("with the definition's operation");
            scene.works();
            replace(scene.own.as_ref().unwrap(), &ChildOp::new(&next.0).into());
        }
        Consumer::Launch => {
            let exec = scene.exec.as_mut().unwrap();
            // Where the definition's child could not be replaced, its node is gone, and the
            // executable's cannot be named.
            if scene.source.as_ref().unwrap().0.contains(scene.node) {
                exec.update(scene.node, other).unwrap();
                seen.assert_alive("with the executable's operation");
            }
            exec.update_in_place(&next.0).unwrap();
            scene.source = None;
            seen.assert_alive("with all of the executable's operations");
            scene.land();
        }
        Consumer::Executable | Consumer::UpdatedNode | Consumer::UpdatedWhole => {
            seen.assert_alive("with the definition's operation");
            scene.works();
            seen.assert_alive("by a launch");
            let exec = scene.exec.as_mut().unwrap();
            let made_from = scene.base.as_ref().or(scene.source.as_ref());
            // What was updated as a whole holds what the definition used until the next time.
            if made_from.unwrap().0.contains(scene.node) {
                exec.update(scene.node, other).unwrap();
                if scene.consumer != Consumer::UpdatedWhole {
                    seen.assert_dropped("with the executable's operation replaced");
                }
            }
            exec.update_in_place(&next.0).unwrap();
        }
    }
    seen.assert_dropped("with the operation replaced");
    scene.works();
    scene.end();
}

fn drop_executable_in_flight(mut scene: Scene, seen: &Seen) {
    scene.leave_alone();
    if scene.consumer != Consumer::Launch {
        scene.take_off();
    }
    scene.exec = None;
    seen.assert_alive("with the executable in flight");
    scene.land();
    if scene.graph().is_some() {
        seen.assert_alive("by a launch");
        scene.works();
        scene.end();
    }
    seen.assert_dropped("with the executable dropped in flight");
}

fn run(stream: &Arc<CudaStream>, resource: Resource, consumer: Consumer, let_go: LetGo) {
    // Freeing what another case let go waits on a GPU for every launch, this case's among them,
    // which waits for this case in turn.
    cuda_graph::testing::settle();
    let other = resource.other(stream);
    let scene = || {
        let (op, handle, seen) = resource.make(stream);
        (Scene::new(consumer, stream, op, &other), handle, seen)
    };
    let (held, handle, seen) = scene();
    if let_go == LetGo::DropHandle {
        drop_handle(held, handle, &seen);
        let (held, handle, seen) = scene();
        return drop_handle_last(held, handle, &seen);
    }
    drop(handle);
    seen.assert_alive("when it was made");
    match let_go {
        LetGo::DropHandle => unreachable!("done above"),
        LetGo::DropDefinition => drop_definition(held, &seen),
        LetGo::DestroyNode => destroy_node(held, &seen),
        LetGo::ReplaceOperation => replace_operation(held, &other, &seen),
        LetGo::DropExecutableInFlight => drop_executable_in_flight(held, &seen),
    }
}

/// Runs every case of a consumer, and names those that fail.
fn every_case(consumer: Consumer) {
    every_case_in(&stream(), consumer);
}

fn every_case_in(stream: &Arc<CudaStream>, consumer: Consumer) {
    let mut failed = Vec::new();
    for resource in RESOURCES {
        for let_go in WAYS {
            let case = format!("{resource:?} in {consumer:?}, {let_go:?}");
            let outcome =
                catch_unwind(AssertUnwindSafe(|| run(stream, resource, consumer, let_go)));
            if let Err(panic) = outcome {
                let said = panic.downcast_ref::<String>().cloned();
                let said =
                    said.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
                failed.push(format!("{case}: {}", said.unwrap_or_default()));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn in_definitions() {
    every_case(Consumer::Definition);
}

#[test]
fn in_clones() {
    every_case(Consumer::Clone);
}

#[test]
fn in_parents() {
    every_case(Consumer::Parent);
}

#[test]
fn in_executables() {
    every_case(Consumer::Executable);
}

#[test]
fn in_launches_in_flight() {
    every_case(Consumer::Launch);
}

#[test]
fn in_executables_after_an_update_of_the_node() {
    every_case(Consumer::UpdatedNode);
}

#[test]
fn in_executables_after_an_update_as_a_whole() {
    every_case(Consumer::UpdatedWhole);
}

/// The null stream waits for others and they for it.
#[test]
fn in_launches_in_the_null_stream() {
    every_case_in(&context().default_stream(), Consumer::Launch);
}

/// A thread's own stream is another one for the thread that lets go in the end.
#[test]
fn in_launches_in_a_threads_own_stream() {
    every_case_in(&context().per_thread_stream(), Consumer::Launch);
}
