//! A program that knows nothing of capture: its steps are plain cudarc launches, fills, copies and
//! events over two streams. It is captured as it is, also in loops and branches, and computes what
//! it computes when run eagerly.

use std::sync::Arc;

use cuda_graph::cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig,
    PushKernelArg,
};
use cuda_graph::{
    Captured, ChildOp, Eager, FillOp, Graph, HostOp, KernelOp, NodeKind, Path, Recorder, Result,
};

use super::scene::{apart, foreign, works};
use crate::fixture::{add, alone, function, kernel, one, store, words};

const WORDS: u32 = 1000;

fn all() -> LaunchConfig {
    LaunchConfig {
        grid_dim: (WORDS.div_ceil(128), 1, 1),
        block_dim: (128, 1, 1),
        shared_mem_bytes: 0,
    }
}

/// A simulation in two streams: the first advances the state, the second keeps a history of it.
struct Simulation {
    main: Arc<CudaStream>,
    side: Arc<CudaStream>,
    advanced: CudaEvent,
    saved: CudaEvent,
    bump: CudaFunction,
    add: CudaFunction,
    state: CudaSlice<u32>,
    scratch: CudaSlice<u32>,
    history: CudaSlice<u32>,
    sum: CudaSlice<u32>,
}

impl Simulation {
    fn new(context: &Arc<CudaContext>) -> Result<Simulation> {
        let (main, side) = (context.new_stream()?, context.new_stream()?);
        let start: Vec<u32> = (0..WORDS).collect();
        let simulation = Simulation {
            advanced: context.new_event(None)?,
            saved: context.new_event(None)?,
            bump: function("bump"),
            add: function("add"),
            state: main.clone_htod(&start)?,
            scratch: main.alloc_zeros(WORDS as usize)?,
            history: main.alloc_zeros(2 * WORDS as usize)?,
            sum: main.alloc_zeros(1)?,
            main,
            side,
        };
        simulation.main.synchronize()?;
        Ok(simulation)
    }

    /// One step. It is the same code whether the streams run or record.
    fn step(&mut self) -> std::result::Result<(), DriverError> {
        // The state advances twice; the side stream takes it in between.
        self.advance()?;
        self.advanced.record(&self.main)?;
        self.side.wait(&self.advanced)?;
        let (older, newer) = (0..WORDS as usize, WORDS as usize..2 * WORDS as usize);
        self.side
            .memcpy_dtod(&self.history.slice(newer.clone()), &mut self.scratch)?;
        self.side
            .memcpy_dtod(&self.scratch, &mut self.history.slice_mut(older))?;
        self.side
            .memcpy_dtod(&self.state, &mut self.history.slice_mut(newer))?;
        self.saved.record(&self.side)?;
        // Meanwhile the main stream works on what the side stream does not use.
        self.main.memset_zeros(&mut self.sum)?;
        self.total()?;
        self.main.wait(&self.saved)?;
        self.advance()?;
        // The host reads nothing back here; the second total sees what the side stream saved.
        self.total()
    }

    fn advance(&mut self) -> std::result::Result<(), DriverError> {
        let mut launch = self.main.launch_builder(&self.bump);
        launch.arg(&mut self.state).arg(&WORDS);
        // SAFETY: `bump` adds to so many words, which the state has.
        unsafe { launch.launch(all()) }.map(drop)
    }

    /// Adds the first word of the state to the sum.
    fn total(&mut self) -> std::result::Result<(), DriverError> {
        let mut launch = self.main.launch_builder(&self.add);
        launch.arg(&mut self.sum).arg(&self.state);
        // SAFETY: `add` reads and writes one word of each.
        unsafe { launch.launch(one()) }.map(drop)
    }

    fn result(&self) -> Result<[Vec<u32>; 3]> {
        self.side.synchronize()?;
        Ok([
            self.main.clone_dtoh(&self.state)?,
            self.main.clone_dtoh(&self.history)?,
            self.main.clone_dtoh(&self.sum)?,
        ])
    }

    fn capture(&mut self) -> Result<Graph> {
        let main = self.main.clone();
        Ok(Graph::capture(&main, |path| self.record(path))?.0)
    }

    /// The step as a foreign block. It uses its own streams, and is kept by the tests.
    fn record(&mut self, path: &mut Path) -> Result<()> {
        foreign(path, |_| Ok(self.step()?))
    }
}

/// What `steps` steps compute.
fn eagerly(context: &Arc<CudaContext>, steps: u32) -> Result<[Vec<u32>; 3]> {
    let mut simulation = Simulation::new(context)?;
    for _ in 0..steps {
        simulation.step()?;
    }
    simulation.result()
}

#[test]
fn steps_of_plain_cudarc_calls_over_two_streams_are_captured_as_they_are() -> Result<()> {
    let context = apart();
    let expected = eagerly(&context, 7)?;
    assert_eq!(expected[0][..3], [14, 15, 16]);

    let mut simulation = Simulation::new(&context)?;
    let graph = simulation.capture()?;
    let kinds: Vec<NodeKind> = graph.nodes()?.iter().map(|node| node.kind()).collect();
    let count = |kind| kinds.iter().filter(|&&other| other == kind).count();
    let counts = (
        count(NodeKind::Kernel),
        count(NodeKind::Copy),
        count(NodeKind::Fill),
    );
    assert_eq!((counts, kinds.len()), ((4, 3, 1), 8));
    let mut exec = graph.instantiate()?;
    for _ in 0..7 {
        exec.launch(&simulation.main)?;
    }
    assert_eq!(simulation.result()?, expected);

    // Both streams do as they did before, between launches too.
    simulation.step()?;
    exec.launch(&simulation.main)?;
    assert_eq!(simulation.result()?, eagerly(&context, 9)?);
    works(&simulation.main, "the main stream");
    works(&simulation.side, "the side stream");
    Ok(())
}

#[test]
fn captured_again_it_updates_what_was_instantiated() -> Result<()> {
    let context = apart();
    let mut first = Simulation::new(&context)?;
    let mut exec = first.capture()?.instantiate()?;
    exec.launch(&first.main)?;
    // Another simulation, of the same steps on other memory and in other streams.
    let mut second = Simulation::new(&context)?;
    exec.update_from(&second.capture()?)?;
    for _ in 0..3 {
        exec.launch(&second.main)?;
    }
    first.main.synchronize()?;
    assert_eq!(second.result()?, eagerly(&context, 3)?);
    assert_eq!(first.result()?, eagerly(&context, 1)?);
    Ok(())
}

#[test]
fn captured_it_is_embedded_and_extended() -> Result<()> {
    let context = apart();
    let mut simulation = Simulation::new(&context)?;
    let (twice, seen) = (words(&simulation.main, &[0]), words(&simulation.main, &[0]));
    let step = simulation.capture()?;

    // Two steps as one graph, nested twice, with operations of this library around.
    let main = simulation.main.clone();
    let (pair, ()) = Graph::capture(&main, |path| {
        path.record(store(&twice, 21))?;
        path.record(ChildOp::new(&step))?;
        path.parallel(
            &mut [&mut |r| r.record(ChildOp::new(&step)).map(drop), &mut |r| {
                r.record(add(&twice, &twice)).map(drop)
            }],
        )
    })?;
    let whole = Graph::new(&context)?;
    let first = whole.add(ChildOp::new(&pair), ())?;
    let second = whole.add(ChildOp::new(&pair), first)?;
    // SAFETY: `add` reads and writes one word of each.
    let last = unsafe { KernelOp::new(kernel("add"), one(), (&seen, &twice)) }?;
    whole.add(last, second)?;
    let mut exec = whole.instantiate()?;
    exec.launch(&main)?;
    assert_eq!(simulation.result()?, eagerly(&context, 4)?);
    assert_eq!(
        (twice.to_host(&main)?, seen.to_host(&main)?),
        (vec![42], vec![42])
    );

    // The step itself, with more of its own kind after its last node, and what is not.
    let ends: Vec<_> = step
        .nodes()?
        .into_iter()
        .filter(|&node| {
            step.successors(node)
                .list()
                .is_ok_and(|after| after.is_empty())
        })
        .collect();
    step.capture_into(&main, ends.as_slice(), |path| simulation.record(path))?;
    let calls = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = calls.clone();
    step.add(
        HostOp::new(move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }),
        (),
    )?;
    let mut exec = step.instantiate()?;
    for _ in 0..2 {
        exec.launch(&main)?;
    }
    assert_eq!(simulation.result()?, eagerly(&context, 8)?);
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 2);
    Ok(())
}

/// What foreign steps use is held by nobody, unless it is kept: with that, the simulation may go.
#[test]
fn what_it_uses_is_kept_on_request() -> Result<()> {
    let context = apart();
    let simulation = Simulation::new(&context)?;
    let main = simulation.main.clone();
    let shared = Arc::new(std::sync::Mutex::new(simulation));
    let (graph, ()) = Graph::capture(&main, |path| {
        path.keep(shared.clone())?;
        shared.lock().expect("nobody panics").record(path)
    })?;
    let weak = Arc::downgrade(&shared);
    drop(shared);
    let mut exec = graph.instantiate()?;
    drop(graph);
    for _ in 0..3 {
        exec.launch(&main)?;
    }
    let result = weak
        .upgrade()
        .expect("it is kept")
        .lock()
        .expect("nobody panics")
        .result()?;
    assert_eq!(result, eagerly(&context, 3)?);
    drop(exec);
    crate::fixture::assert_soon(|| weak.strong_count() == 0, "the simulation leaks");
    Ok(())
}

/// Code with streams of its own, as the middle of a loop in a branch: the same step, captured, in
/// an existing graph, and run.
#[test]
fn it_is_recorded_in_loops_and_branches() -> Result<()> {
    let _alone = alone();
    let context = apart();
    let mut simulation = Simulation::new(&context)?;
    let main = simulation.main.clone();
    let [flag, turns, minus, count, plus] =
        [0, 3, u32::MAX, 0, 1].map(|value| words(&main, &[value]));
    let mut step = |r: &mut dyn Recorder| {
        r.record(FillOp::new(&count, 0u32)?)?;
        r.record(cuda_graph::CopyOp::new(&flag, &turns)?)?;
        r.if_else_nonzero(
            &flag,
            |r| {
                r.while_nonzero(&flag, |r| {
                    r.record(add(&count, &plus))?;
                    // SAFETY: the simulation outlives the graphs.
                    unsafe { r.foreign(|_| Ok(simulation.step()?)) }?;
                    r.record(add(&flag, &minus)).map(drop)
                })
            },
            |r| r.record(store(&count, 100)).map(drop),
        )?;
        r.parallel(&mut [
            // SAFETY: as above.
            &mut |r| unsafe { r.foreign(|_| Ok(simulation.step()?)) },
            &mut |r| r.record(add(&count, &plus)).map(drop),
        ])
    };
    let (graph, ()) = Graph::capture(&main, |path| step(path))?;
    let into = Graph::new(&context)?;
    into.capture_into(&main, (), |path| step(path))?;
    for graph in [&graph, &into] {
        graph.instantiate()?.launch(&main)?;
    }
    step(&mut Eager::new(&main)?)?;
    let Captured::Graph(graph, ()) = Graph::capture_or_run(&main, |r| step(r))? else {
        panic!("it can be recorded");
    };
    graph.instantiate()?.launch(&main)?;
    assert_eq!(count.to_host(&main)?, [4]);
    assert_eq!(simulation.result()?, eagerly(&context, 16)?);
    Ok(())
}
