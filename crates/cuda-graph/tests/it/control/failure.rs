//! Bodies that are left half-way, by an error, a panic or a driver call that fails, at any depth
//! and through each recorder: of the loop or branch around them no node stays, what they held is
//! dropped, the stream works, and what was there before goes on.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::cudarc::driver::result::memset_d8_async;
use cuda_graph::testing::with_failing_call;
use cuda_graph::{Buffer, Eager, FillOp, Graph, Path, Recorder, Result};

use super::kernels::{nearer, plus, put};
use super::program::Memory;
use super::{BUILT, EVERY, Through, alone, launch, recorded};
use crate::capture::scene::Scene;
use crate::exit::{Exit, How, is_left};
use crate::fixture::words;
use crate::resource::Seen;

// What is added up, what is added, and the flags of each level.
const SUM: usize = 0;
const ONE: usize = 1;
const FLAG: usize = 2;
const CELLS: usize = 6;

/// A device's memory, and buffers that are used in one place each.
struct Stage {
    scene: Scene,
    memory: Memory,
    spare: RefCell<Vec<Buffer<u32>>>,
    seen: RefCell<Vec<Seen>>,
}

impl Stage {
    fn new() -> Stage {
        let scene = Scene::new();
        Stage {
            memory: Memory::new(&scene.stream, CELLS),
            scene,
            spare: RefCell::default(),
            seen: RefCell::default(),
        }
    }

    /// Nothing can be allocated while a stream is captured.
    fn prepare(&self) {
        let mut spare = self.spare.borrow_mut();
        while spare.len() < 40 {
            spare.push(words(&self.scene.stream, &[0]));
        }
        self.reset();
    }

    fn reset(&self) {
        self.memory.write(&self.scene.stream, &[0, 1, 1, 1, 1, 1]);
    }

    /// Records what holds owners: an operation, and other code's work, which may be left too.
    fn holds(&self, r: &mut dyn Recorder, exit: &Exit) -> Result<()> {
        let buffer = self.spare.borrow_mut().pop().expect("there are enough");
        self.seen.borrow_mut().push(Seen::of_owner(&buffer.owner()));
        r.record(FillOp::new(&buffer, 1u32)?)?;
        r.keep(self.scene.held())?;
        r.keep(buffer.owner())?;
        if !r.has_stream() {
            return exit.here();
        }
        let work = |stream: &Arc<CudaStream>| {
            // SAFETY: the buffer has four bytes, and is kept.
            unsafe { memset_d8_async(buffer.address(), 2, 4, stream.cu_stream()) }?;
            exit.here()
        };
        // SAFETY: as above.
        unsafe { r.foreign(work) }
    }

    #[track_caller]
    fn is_clean(&self, what: &str) {
        self.scene.is_clean(what);
        for seen in self.seen.take() {
            seen.assert_dropped(what);
        }
    }

    /// A loop or branch of each kind, each inside the one before; adds 1 at last. What is left at
    /// depth `again` is done again at once.
    fn level(&self, r: &mut dyn Recorder, depth: usize, again: usize, exit: &Exit) -> Result<()> {
        let cell = |number| self.memory.cell(number);
        self.holds(r, exit)?;
        exit.here()?;
        if depth == again {
            let what = format!("left at depth {depth}");
            let never = Exit::never();
            if exit.takes(&what, || self.inner(r, depth, again, exit)) {
                // Some of it may have run, which sets flags.
                for flag in FLAG..CELLS {
                    r.record(put(cell(flag), 1))?;
                }
                r.record(put(cell(SUM), 0))?;
                self.inner(r, depth, usize::MAX, &never)?;
            }
        } else {
            self.inner(r, depth, again, exit)?;
        }
        exit.here()?;
        if depth > 0 {
            r.record(nearer(cell(FLAG + depth - 1)))?;
        }
        Ok(())
    }

    fn inner(&self, r: &mut dyn Recorder, depth: usize, again: usize, exit: &Exit) -> Result<()> {
        let cell = |number| self.memory.cell(number);
        let flag = cell(FLAG + depth);
        let mut deeper = |r: &mut dyn Recorder| self.level(r, depth + 1, again, exit);
        match depth {
            0 => r.while_nonzero(flag, deeper),
            1 => r.if_else_nonzero(flag, deeper, |r| {
                self.holds(r, exit)?;
                exit.here()
            }),
            2 => r.parallel(&mut [
                &mut |r| {
                    self.holds(r, exit)?;
                    exit.here()
                },
                &mut |r| r.do_while_nonzero(flag, &mut deeper),
                &mut |_| exit.here(),
            ]),
            3 => r.switch_on(
                flag,
                &mut [&mut |_| exit.here(), &mut |r| {
                    self.holds(r, exit)?;
                    exit.here()?;
                    r.record(plus(cell(SUM), cell(ONE))).map(drop)
                }],
            ),
            _ => unreachable!("there are four levels"),
        }
    }
}

fn left(how: How) {
    let _alone = alone();
    let stage = Stage::new();
    let stream = &stage.scene.stream;
    for through in EVERY {
        // Not caught before the recorder is gone.
        for at in 0.. {
            let what = format!("{through:?} left at {at} by {how:?}");
            stage.prepare();
            let exit = Exit::new(at, how);
            let step = |r: &mut dyn Recorder| stage.level(r, 0, usize::MAX, &exit);
            let left = exit.takes(&what, || super::run(through, stream, step));
            assert_eq!(left, exit.was_taken(), "{what}");
            stage.is_clean(&what);
            if !left {
                assert_eq!(stage.memory.read(stream)[SUM], 1, "{what}");
                assert!(at > 9, "{what}");
                break;
            }
        }
    }
}

#[test]
fn left_by_an_error_at_every_point() {
    left(How::Error);
}

#[test]
fn left_by_a_panic_at_every_point() {
    left(How::Panic);
}

/// What was left is done again at once, in the same place: loops in graphs, branches in them, and
/// so on.
#[test]
fn done_again_at_any_depth() {
    let _alone = alone();
    let stage = Stage::new();
    for through in EVERY {
        for (how, again) in [How::Error, How::Panic]
            .into_iter()
            .flat_map(|how| (0..4).map(move |again| (how, again)))
        {
            for at in 0.. {
                let what = format!("{through:?} left at {at} by {how:?}, again at {again}");
                stage.prepare();
                let exit = Exit::new(at, how);
                let step = |r: &mut dyn Recorder| stage.level(r, 0, again, &exit);
                let run = || super::run(through, &stage.scene.stream, step);
                match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(Ok(())) => {
                        let cells = stage.memory.read(&stage.scene.stream);
                        assert_eq!(cells[SUM], 1, "{what}");
                    }
                    // Not everything is inside of what is done again.
                    Ok(Err(error)) => {
                        assert!(exit.was_taken() && is_left(&error), "{what}: {error}")
                    }
                    Err(panic) if !exit.was_taken() => resume_unwind(panic),
                    Err(_) => assert_eq!(how, How::Panic, "{what}"),
                }
                stage.is_clean(&what);
                if !exit.was_taken() {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_graph_has_the_nodes_that_it_had() {
    let _alone = alone();
    let stage = Stage::new();
    let stream = &stage.scene.stream;
    for how in [How::Error, How::Panic] {
        for at in 0.. {
            let what = format!("left at {at} by {how:?}");
            stage.prepare();
            let graph = Graph::new(stream.context()).unwrap();
            let mut path = Path::new(&graph);
            let (sum, one) = (stage.memory.cell(SUM), stage.memory.cell(ONE));
            let first = path.record(plus(sum, one)).unwrap();
            let exit = Exit::new(at, how);
            let left = exit.takes(&what, || stage.inner(&mut path, 0, usize::MAX, &exit));
            if !left {
                break;
            }
            assert_eq!(graph.nodes().unwrap(), [first.id()], "{what}");
            assert_eq!(path.ends().unwrap(), [first.id()], "{what}");
            for seen in stage.seen.take() {
                seen.assert_dropped(&what);
            }
            // It goes on, with what was to be there and what comes after.
            stage
                .inner(&mut path, 0, usize::MAX, &Exit::never())
                .unwrap();
            let last = path.record(plus(sum, one)).unwrap();
            assert_eq!(graph.nodes().unwrap().len(), 4, "{what}");
            assert_eq!(graph.predecessors(last).list().unwrap().len(), 1, "{what}");
            let mut exec = graph.instantiate().unwrap();
            for _ in 0..2 {
                stage.reset();
                launch(&mut exec, stream).unwrap();
                assert_eq!(stage.memory.read(stream)[SUM], 3, "{what}");
            }
            drop((path, graph, exec));
            stage.is_clean(&what);
        }
    }
}

/// Each driver call fails in turn.
#[test]
fn failing_at_every_call() {
    let _alone = alone();
    for through in EVERY {
        for nth in 0.. {
            // Nothing that another call left is in it.
            let stage = Stage::new();
            stage.prepare();
            let stream = &stage.scene.stream;
            let what = format!("{through:?}: call {nth} fails");
            let graph = Graph::new(stream.context()).unwrap();
            let mut path = Path::new(&graph);
            let first = path.record(put(stage.memory.cell(SUM), 0)).unwrap();
            let never = Exit::never();
            let step = |r: &mut dyn Recorder| stage.inner(r, 0, usize::MAX, &never);
            let (result, fired) = with_failing_call(nth, || match through {
                Through::Path => step(&mut path),
                Through::Capture => Graph::capture(stream, |c| step(c)).map(drop),
                Through::Into => graph.capture_into(stream, first, |c| step(c)),
                Through::Eager => step(&mut Eager::new(stream)?),
            });
            assert!(fired || result.is_ok(), "{what}: {result:?}");
            if let Err(error) = &result {
                let text = error.to_string();
                assert!(text.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{what}: {text}");
            }
            if matches!(through, Through::Path | Through::Into) {
                if result.is_err() {
                    assert_eq!(graph.nodes().unwrap(), [first.id()], "{what}");
                    assert_eq!(path.ends().unwrap(), [first.id()], "{what}");
                    stage.prepare();
                    step(&mut path).unwrap_or_else(|error| panic!("{what}: {error}"));
                }
                assert_eq!(graph.nodes().unwrap().len(), 3, "{what}");
                launch(&mut graph.instantiate().unwrap(), stream).unwrap();
                assert_eq!(stage.memory.read(stream)[SUM], 1, "{what}");
            }
            drop((path, graph));
            stage.is_clean(&what);
            stage.prepare();
            super::run(through, stream, step).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(stage.memory.read(stream)[SUM], 1, "{what}");
            stage.is_clean(&what);
            if !fired {
                break;
            }
            assert!(nth < 1000, "the calls have no end");
        }
    }
}

/// A branch that is left takes nothing from the others, nor from what comes after all of them.
#[test]
fn what_branches_recorded_is_waited_for_when_one_is_left() {
    let stage = Stage::new();
    let stream = &stage.scene.stream;
    let cell = |number| stage.memory.cell(number);
    for how in [How::Error, How::Panic] {
        let branches = |r: &mut dyn Recorder| {
            r.record(put(cell(SUM), 5))?;
            let exit = Exit::new(0, how);
            let left = exit.takes("in a branch", || {
                r.parallel(&mut [
                    &mut |r| r.record(put(cell(FLAG), 1)).map(drop),
                    &mut |r| {
                        r.record(put(cell(FLAG + 1), 2))?;
                        r.parallel(&mut [
                            &mut |r| r.record(put(cell(FLAG + 2), 3)).map(drop),
                            &mut |r| {
                                r.record(put(cell(FLAG + 3), 4))?;
                                exit.here()
                            },
                        ])
                    },
                    &mut |_| unreachable!("the one before is left"),
                ])
            });
            assert!(left);
            r.record(plus(cell(SUM), cell(ONE)))
        };
        for through in BUILT {
            let (graph, last) = recorded(through, stream, branches).unwrap();
            assert_eq!(graph.nodes().unwrap().len(), 6, "{how:?}");
            assert_eq!(graph.roots().unwrap().len(), 1, "{how:?}");
            // All but the last lead to it; a capture may keep edges to nodes further up.
            let leads = |node| !graph.successors(node).list().unwrap().is_empty();
            let loose = graph
                .nodes()
                .unwrap()
                .into_iter()
                .filter(|&node| !leads(node));
            assert_eq!(loose.collect::<Vec<_>>(), [last.unwrap().id()], "{how:?}");
            stage.memory.write(stream, &[0, 1, 0, 0, 0, 0]);
            launch(&mut graph.instantiate().unwrap(), stream).unwrap();
            assert_eq!(stage.memory.read(stream), [6, 1, 1, 2, 3, 4], "{how:?}");
        }
    }
    stage.scene.is_clean("branches");
}
