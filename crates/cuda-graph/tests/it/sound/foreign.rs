//! Random recordings with foreign work: typed operations, foreign blocks with forks of their own,
//! blocks and bodies that fail, loops, branches, and stray launches. Each gives what [`Eager`]
//! gives, or an error that names the stray work; afterwards its streams take new work.
//!
//! `CUDA_GRAPH_RANDOM=n` runs n times as many.

mod program;
mod walk;

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::testing::settle;
use cuda_graph::{Capture, Eager, EmptyOp, Error, Graph, IfOp, NodeKind, Path, Result, StrayWork};
use proptest::prelude::*;

use crate::fixture::alone;
use crate::random::cases;
use program::{Act, CELLS, Settling, steps};
use walk::{Last, Walk, World, walk, walk_guard};

/// How a program is recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Capture,
    /// By a guard, and guards of blocks.
    Guard,
    /// Into a graph that is there.
    Into,
    /// The same by a guard.
    GuardInto,
    /// Into a body that is there.
    IntoBody,
}

const WAYS: [Way; 5] = [
    Way::Capture,
    Way::Guard,
    Way::Into,
    Way::GuardInto,
    Way::IntoBody,
];

impl Way {
    /// Whether it goes into a graph that is there.
    fn is_aside(self) -> bool {
        !matches!(self, Way::Capture | Way::Guard)
    }
}

/// A graph to record into, and how many nodes it has.
fn target(way: Way, world: &World) -> Result<Option<Target>> {
    if !way.is_aside() {
        return Ok(None);
    }
    let graph = Graph::new(world.stream.context())?;
    let mut path = Path::new(&graph);
    path.record(world.put(world.cell(0), 1))?;
    if way != Way::IntoBody {
        let into = cuda_graph::ChildOp::new(&graph).graph();
        return Ok(Some(Target { graph, into }));
    }
    path.if_nonzero(world.always(), |r| r.record(EmptyOp::new()).map(drop))?;
    let mut nodes = graph.nodes()?.into_iter();
    let node = nodes.rfind(|node| node.kind() == NodeKind::Conditional);
    let into = graph.body(
        node.and_then(|node| node.typed::<IfOp>())
            .expect("it is there"),
    )?;
    Ok(Some(Target { graph, into }))
}

struct Target {
    graph: Graph,
    /// The graph, or a body of it.
    into: Graph,
}

impl Target {
    /// The nodes to record after: those at the end.
    fn ends(&self) -> Result<Vec<cuda_graph::NodeId>> {
        Ok(self.into.nodes()?.pop().into_iter().collect())
    }
}

/// What was recorded, and what was there before if that failed.
fn record(way: Way, acts: &[Act], walking: &Walk<'_>) -> (Result<Graph>, Option<Target>) {
    let stream = &walking.world.stream;
    let target = target(way, walking.world).expect("a graph can be made");
    let recorded = match (&target, way) {
        (None, Way::Guard) => Capture::begin(stream).and_then(|guard| {
            let guard = walk_guard(guard, acts, walking)?;
            guard.end()
        }),
        (None, _) => Graph::capture(stream, |path| walk(path, acts, walking)).map(|made| made.0),
        (Some(target), Way::GuardInto) => target.ends().and_then(|ends| {
            let guard = Capture::begin_into(stream, &target.into, ends.as_slice())?;
            let guard = walk_guard(guard, acts, walking)?;
            guard.end().map(drop)?;
            Ok(cuda_graph::ChildOp::new(&target.graph).graph())
        }),
        (Some(target), _) => target.ends().and_then(|ends| {
            let record = |path: &mut Path| walk(path, acts, walking);
            target.into.capture_into(stream, ends.as_slice(), record)?;
            Ok(cuda_graph::ChildOp::new(&target.graph).graph())
        }),
    };
    (recorded, target)
}

/// What the words are after each of two runs by the host.
fn eagerly(way: Way, acts: &[Act], world: &World, start: &[u32]) -> [Vec<u32>; 2] {
    world.write(start);
    [(), ()].map(|()| {
        let walking = Walk::running(world);
        let mut eager = Eager::new(&world.stream).expect("the stream is free");
        if way.is_aside() {
            eager.record(world.put(world.cell(0), 1)).expect("it runs");
        }
        walk(&mut eager, acts, &walking).expect("nothing of it fails");
        drop(eager);
        let words = world.read();
        settle();
        walking.assert_all_gone("eagerly");
        words
    })
}

/// Checks one program, recorded in one way.
fn check(way: Way, acts: &[Act], world: &World, start: &[u32]) {
    let wanted = eagerly(way, acts, world, start);
    world.write(start);
    let walking = Walk::recording(world, way.is_aside());
    let (recorded, target) = record(way, acts, &walking);
    match recorded {
        Ok(graph) => {
            assert_eq!(walking.strays(), 0, "{way:?}: stray work passed");
            let mut exec = graph.instantiate().expect("it is whole");
            drop((graph, target));
            for wanted in wanted {
                exec.launch(&world.stream).expect("it launches");
                assert_eq!(world.read(), wanted, "{way:?}");
            }
            settle();
            walking.assert_kept();
            drop(exec);
        }
        Err(Error::StrayWork(stray)) => {
            check_stray(&stray, &walking);
            // It neither ran, nor did anything else.
            assert_eq!(world.read(), start, "{way:?}");
            if let Some(Target { graph, into }) = target {
                assert_eq!(into.nodes().expect("it is there").len(), 1, "{way:?}");
                graph.instantiate().expect("it is as it was");
            }
        }
        Err(error) => panic!("{way:?}: {error}"),
    }
    settle();
    walking.assert_all_gone("recorded");
    world.assert_usable();
}

/// The error names the stray launches, and the operations around them.
fn check_stray(stray: &StrayWork, walking: &Walk<'_>) {
    assert_eq!(stray.stream, walking.world.stream.cu_stream() as usize);
    let seen = walking.seen();
    assert_eq!(stray.found.len(), seen.strays, "{stray}");
    let is_stray = |name: &cuda_graph::NodeName| name.kernel.as_deref() == Some("stray");
    assert!(stray.found.iter().all(is_stray), "{stray}");
    let label = |name: &Option<cuda_graph::NodeName>| {
        let label = name.as_ref().and_then(|name| name.label.clone());
        label.map(|label| label.to_string())
    };
    assert_eq!(label(&stray.before), seen.before, "{stray}");
    match seen.last {
        Last::Nothing => assert!(stray.after.is_none(), "{stray}"),
        Last::Op(last) => assert_eq!(label(&stray.after), Some(last), "{stray}"),
        Last::Block(line) => {
            let name = stray.after.as_ref().expect("a block was recorded");
            let at = name.location.map(|location| location.line());
            assert_eq!((name.kind, at), (NodeKind::Child, Some(line)), "{stray}");
        }
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn recordings_agree_or_name_what_strayed(
        steps in steps(),
        start in prop::collection::vec(0..4_u32, CELLS),
        way in prop::sample::select(&WAYS),
    ) {
        let _alone = alone();
        let mut settling = Settling::new();
        let acts = settling.settle_all(&steps);
        let world = World::new(settling.cells());
        let start = world.start(&start);
        check(way, &acts, &world, &start);
    }

    /// The same without stray launches, so that long programs come to their end.
    #[test]
    fn recordings_without_stray_work_agree(
        steps in steps(),
        start in prop::collection::vec(0..4_u32, CELLS),
    ) {
        let _alone = alone();
        let mut settling = Settling::new();
        let mut acts = settling.settle_all(&steps);
        program::without_strays(&mut acts);
        let world = World::new(settling.cells());
        let start = world.start(&start);
        for way in WAYS {
            check(way, &acts, &world, &start);
        }
    }
}

/// A stream that nothing is captured in.
fn is_free(stream: &Arc<CudaStream>) -> bool {
    cuda_graph::CaptureInfo::of(stream).is_ok_and(|info| !info.is_capturing())
}
