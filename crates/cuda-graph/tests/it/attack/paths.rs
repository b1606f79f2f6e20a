//! Recordings that go on where something failed, and what they hold.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use cuda_graph::cudarc::driver::{CudaStream, sys};
use cuda_graph::testing::with_failing_call;
use cuda_graph::{
    Body, Buffer, Capture, Eager, EmptyOp, Error, Graph, IfOp, NodeId, NodeKind, Path, Recorder,
    Result,
};

use super::fills_model::Random;
use crate::capture::scene::{foreign, launch_add, launch_store};
use crate::fixture::{Watch, Watched, add, alone, assert_soon, context, store, stream, words};

/// An error of a step's own.
fn failure() -> Error {
    Error::other(std::io::Error::other("as meant"))
}

#[track_caller]
fn read(stream: &Arc<CudaStream>, of: &Buffer<u32>) -> u32 {
    of.to_host(stream).expect("it can be read")[0]
}

#[track_caller]
fn run(graph: &Graph, stream: &Arc<CudaStream>) {
    let mut exec = graph.instantiate().expect("it is whole");
    exec.launch(stream).expect("it is launched");
    stream.synchronize().expect("it runs");
}

#[track_caller]
fn names(graph: &Graph) -> Vec<Vec<String>> {
    let sets = graph.checkpoints();
    let names = |set: &cuda_graph::Checkpoints| set.names().map(String::from).collect();
    sets.iter().map(names).collect()
}

/// Where the last launch stopped, by the only set of checkpoints.
#[track_caller]
fn stopped(graph: &Graph, stream: &Arc<CudaStream>) -> Option<String> {
    let sets = graph.checkpoints();
    assert!(sets.len() < 2, "{sets:?}");
    let stopped = sets.first()?.stopped(stream).expect("it can be read")?;
    Some(stopped.to_string())
}

/// One thing that a program records.
#[derive(Clone, Debug)]
enum Act {
    /// Adds one to a cell.
    Plus(usize),
    /// A checkpoint, with a flag that is set or not.
    Check(String, bool),
    If(bool, Vec<Act>),
    IfElse(bool, Vec<Act>, Vec<Act>),
    /// A loop of so many turns, with a number of its own.
    Loop(usize, u32, Vec<Act>),
    Side(Vec<Vec<Act>>),
    /// Foreign work that adds one.
    Foreign(usize),
    Keep,
    /// A body that is not entered and fails at its end.
    Failing(Vec<Act>),
    /// A body that is not entered and panics at its end.
    Panicking(Vec<Act>),
    /// A branch that fails at its end.
    FailingSide(Vec<Act>),
    /// Foreign work that fails.
    FailingForeign,
    /// A checkpoint in a branch, which is refused.
    SideCheck(String),
}

use Act::{
    Check, Failing, FailingForeign, FailingSide, Foreign, If, IfElse, Keep, Loop, Panicking, Plus,
    Side, SideCheck,
};

const CELLS: usize = 6;
const LOOPS: usize = 24;

/// The memory of a program.
struct Scene {
    stream: Arc<CudaStream>,
    cells: Vec<Buffer<u32>>,
    left: Vec<Buffer<u32>>,
    one: Buffer<u32>,
    minus: Buffer<u32>,
    set: Buffer<u32>,
    clear: Buffer<u32>,
    watches: Mutex<Vec<Watch>>,
}

impl Scene {
    fn new() -> Scene {
        let stream = stream();
        let word = |value| words(&stream, &[value]);
        let scene = Scene {
            cells: (0..CELLS).map(|_| word(0)).collect(),
            left: (0..LOOPS).map(|_| word(0)).collect(),
            one: word(1),
            minus: word(u32::MAX),
            set: word(1),
            clear: word(0),
            watches: Mutex::default(),
            stream: stream.clone(),
        };
        stream.synchronize().expect("it runs");
        scene
    }

    fn prepare(&self) {
        for cell in &self.cells {
            cell.copy_from_host(&self.stream, &[0]).expect("it fits");
        }
    }

    fn read(&self) -> Vec<u32> {
        let read = |cell| read(&self.stream, cell);
        self.cells.iter().map(read).collect()
    }

    fn flag(&self, set: bool) -> &Buffer<u32> {
        if set { &self.set } else { &self.clear }
    }

    fn held(&self) -> Arc<Watched> {
        let (watch, watched) = Watch::new();
        self.watches.lock().expect("no holder panics").push(watch);
        Arc::new(watched)
    }

    #[track_caller]
    fn is_clean(&self, what: &str) {
        for watch in std::mem::take(&mut *self.watches.lock().expect("no holder panics")) {
            assert_soon(|| watch.is_dropped(), &format!("{what}: an owner leaks"));
        }
    }

    fn record(&self, r: &mut dyn Recorder, acts: &[Act]) -> Result<()> {
        acts.iter().try_for_each(|act| self.record_one(r, act))
    }

    fn side(&self, r: &mut dyn Recorder, branches: &[Vec<Act>]) -> Result<()> {
        let mut branches: Vec<_> = branches
            .iter()
            .map(|branch| move |r: &mut dyn Recorder| self.record(r, branch))
            .collect();
        let mut branches: Vec<&mut Body<'_>> = branches.iter_mut().map(|it| it as _).collect();
        r.parallel(&mut branches)
    }

    fn record_one(&self, r: &mut dyn Recorder, act: &Act) -> Result<()> {
        match act {
            Plus(to) => r.record(add(&self.cells[*to], &self.one)).map(drop),
            Check(name, set) => r.checkpoint(&**name, self.flag(*set)),
            If(set, body) => r.if_nonzero(self.flag(*set), |r| self.record(r, body)),
            IfElse(set, then, otherwise) => r.if_else_nonzero(
                self.flag(*set),
                |r| self.record(r, then),
                |r| self.record(r, otherwise),
            ),
            Loop(at, turns, body) => {
                let left = &self.left[*at];
                r.record(store(left, *turns))?;
                r.do_while_nonzero(left, |r| {
                    self.record(r, body)?;
                    r.record(add(left, &self.minus)).map(drop)
                })
            }
            Side(branches) => self.side(r, branches),
            Foreign(to) => {
                // SAFETY: the scene keeps the memory.
                unsafe { r.foreign(|stream| launch_add(stream, &self.cells[*to], &self.one)) }
            }
            Keep => r.keep(self.held()),
            Failing(body) => {
                let failed = r.if_nonzero(&self.clear, |r| {
                    self.record(r, body)?;
                    Err(failure())
                });
                drop(failed);
                Ok(())
            }
            Panicking(body) => {
                let panics = catch_unwind(AssertUnwindSafe(|| {
                    r.if_nonzero(&self.clear, |r| {
                        self.record(r, body)?;
                        resume_unwind(Box::new("as meant"))
                    })
                }));
                drop(panics);
                Ok(())
            }
            FailingSide(body) => {
                let failed = r.parallel(&mut [&mut |r| {
                    self.record(r, body)?;
                    Err(failure())
                }]);
                drop(failed);
                Ok(())
            }
            FailingForeign => {
                // SAFETY: nothing is used.
                let failed = unsafe { r.foreign(|_| Err::<(), _>(failure())) };
                drop(failed);
                Ok(())
            }
            SideCheck(name) => {
                let refused = r.parallel(&mut [&mut |r| r.checkpoint(&**name, &self.clear)]);
                drop(refused);
                Ok(())
            }
        }
    }
}

/// What random programs may hold.
struct Making {
    random: Random,
    names: u32,
    loops: usize,
    foreign: bool,
}

impl Making {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("c{}", self.names - 1)
    }

    fn acts(&mut self, depth: usize, side: bool) -> Vec<Act> {
        let count = self.random.next(5 - depth) + usize::from(depth == 0);
        (0..count).map(|_| self.act(depth, side)).collect()
    }

    fn act(&mut self, depth: usize, side: bool) -> Act {
        let cell = self.random.next(CELLS);
        let set = self.random.next(2) == 0;
        loop {
            break match self.random.next(18) {
                0..3 => Plus(cell),
                3..6 if !side => Check(self.name(), set),
                6 if depth < 3 => If(set, self.acts(depth + 1, side)),
                7 if depth < 3 => {
                    IfElse(set, self.acts(depth + 1, side), self.acts(depth + 1, side))
                }
                8 if depth < 3 && self.loops < LOOPS => {
                    self.loops += 1;
                    let (at, turns) = (self.loops - 1, 1 + self.random.next(2) as u32);
                    Loop(at, turns, self.acts(depth + 1, side))
                }
                9 if depth < 3 => {
                    let count = self.random.next(3);
                    // Branches may run side by side: each has its cell.
                    let branch = |at| vec![Plus(at); 1 + at % 2];
                    let mut branches: Vec<_> = (0..count).map(branch).collect();
                    if count > 0 && self.foreign && self.random.next(2) == 0 {
                        branches[0] = vec![Foreign(0)];
                    }
                    Side(branches)
                }
                10 | 11 if self.foreign => Foreign(cell),
                12 => Keep,
                13 if depth < 3 => Failing(self.acts(depth + 1, side)),
                14 if depth < 3 => Panicking(self.acts(depth + 1, side)),
                15 if depth < 3 => FailingSide(self.acts(depth + 1, true)),
                16 if self.foreign => FailingForeign,
                17 => {
                    self.names += 1;
                    SideCheck(format!("c{}", self.names - 1))
                }
                _ => continue,
            };
        }
    }
}

fn program(seed: u64, foreign: bool) -> Vec<Act> {
    let mut making = Making {
        random: Random(seed),
        names: 0,
        loops: 0,
        foreign,
    };
    making.acts(0, false)
}

/// By what a program is recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Record,
    Capture,
    RecordInto,
    CaptureInto,
    Guard,
    Split,
}

const ENTRIES: [Entry; 6] = [
    Entry::Record,
    Entry::Capture,
    Entry::RecordInto,
    Entry::CaptureInto,
    Entry::Guard,
    Entry::Split,
];

fn recorded(scene: &Scene, entry: Entry, name: Option<&str>, acts: &[Act]) -> Result<Graph> {
    let record = |path: &mut Path| {
        let r: &mut dyn Recorder = path;
        match name {
            Some(name) => r.resume_after(name, |r| scene.record(r, acts)),
            None => scene.record(r, acts),
        }
    };
    let before = || -> Result<(Graph, NodeId)> {
        let graph = Graph::new(&context())?;
        let first = graph.add(EmptyOp::new(), ())?.id();
        Ok((graph, first))
    };
    match entry {
        Entry::Record => Ok(Graph::record(&context(), record)?.0),
        Entry::Capture => Ok(Graph::capture(&scene.stream, record)?.0),
        Entry::RecordInto => {
            let (graph, first) = before()?;
            graph.record_into(first, record)?;
            Ok(graph)
        }
        Entry::CaptureInto => {
            let (graph, first) = before()?;
            graph.capture_into(&scene.stream, first, record)?;
            Ok(graph)
        }
        Entry::Guard => {
            let mut capture = Capture::begin(&scene.stream)?;
            record(&mut capture)?;
            capture.end()
        }
        Entry::Split => {
            let capture = Capture::begin(&scene.stream)?;
            let (joint, [mut left, right]) = capture.split()?;
            left.record(EmptyOp::new())?;
            let mut capture = joint.join([left, right])?;
            record(&mut capture)?;
            let (joint, branches) = match capture.split::<2>() {
                Ok(split) => split,
                // Behind a checkpoint there is no split.
                Err(Error::SplitAside) => return Graph::new(&context()),
                Err(error) => return Err(error),
            };
            joint.join(branches)?.end()
        }
    }
}

/// Where a program run at once stops, and its memory there.
fn eagerly(scene: &Scene, acts: &[Act]) -> Result<Vec<(Option<String>, Vec<u32>)>> {
    scene.prepare();
    let mut eager = Eager::new(&scene.stream)?;
    scene.record(&mut eager, acts)?;
    let mut seen = Vec::new();
    for _ in 0..64 {
        let name = eager.take_stopped().map(|name| name.to_string());
        seen.push((name.clone(), scene.read()));
        let Some(name) = name else { break };
        let r: &mut dyn Recorder = &mut eager;
        r.resume_after(&name, |r| scene.record(r, acts))?;
    }
    Ok(seen)
}

/// The same of graphs.
fn graphs(scene: &Scene, entry: Entry, acts: &[Act]) -> Result<Vec<(Option<String>, Vec<u32>)>> {
    scene.prepare();
    let mut seen = Vec::new();
    let mut name: Option<String> = None;
    for _ in 0..64 {
        let graph = recorded(scene, entry, name.as_deref(), acts)?;
        run(&graph, &scene.stream);
        name = stopped(&graph, &scene.stream);
        seen.push((name.clone(), scene.read()));
        if name.is_none() {
            break;
        }
    }
    Ok(seen)
}

/// Random programs with parts that fail or panic and go on, recorded by every entry.
#[test]
fn programs_that_fail_and_go_on_do_what_eager_does() {
    let _alone = alone();
    let scene = Scene::new();
    let mut stops = 0;
    for seed in 0..12 {
        for entry in ENTRIES {
            let is_foreign = !matches!(entry, Entry::Record | Entry::RecordInto);
            let acts = program(seed, is_foreign);
            let case = format!("{seed} by {entry:?}: {acts:?}");
            let want = eagerly(&scene, &acts).unwrap_or_else(|error| panic!("{case}: {error}"));
            if entry == Entry::Split && want.len() > 1 {
                continue;
            }
            let got = graphs(&scene, entry, &acts);
            let got = got.unwrap_or_else(|error| panic!("{case}: {error}"));
            if entry != Entry::Split {
                assert_eq!(got, want, "{case}");
            }
            stops += want.len() - 1;
        }
    }
    assert!(stops > 20, "only {stops} stops");
    scene.is_clean("at the end");
}

/// A name of a part that failed is free again, however deep the part was.
#[test]
fn names_of_bodies_that_failed_come_again_at_any_depth() {
    let _alone = alone();
    let scene = Scene::new();
    let step = |r: &mut dyn Recorder| -> Result<()> {
        r.if_nonzero(&scene.set, |r| {
            r.record(add(&scene.cells[0], &scene.one))?;
            for _ in 0..2 {
                let failed = r.if_nonzero(&scene.set, |r| {
                    r.if_nonzero(&scene.set, |r| r.checkpoint("a", &scene.set))?;
                    r.checkpoint("b", &scene.set)?;
                    Err(failure())
                });
                assert!(matches!(failed, Err(Error::Other(_))), "{failed:?}");
            }
            r.checkpoint("b", &scene.clear)?;
            r.if_nonzero(&scene.set, |r| r.checkpoint("a", &scene.set))?;
            r.record(add(&scene.cells[1], &scene.one)).map(drop)
        })?;
        r.record(add(&scene.cells[2], &scene.one)).map(drop)
    };
    let (graph, ()) = Graph::record(&context(), |path| step(path)).expect("it is recorded");
    assert_eq!(names(&graph), [["b", "a"]]);
    run(&graph, &scene.stream);
    assert_eq!(stopped(&graph, &scene.stream).as_deref(), Some("a"));
    assert_eq!(scene.read()[..3], [1, 0, 0]);
}

/// A recording whose only checkpoints were in a part that failed has none.
#[test]
fn a_recording_of_failed_checkpoints_is_one_without() {
    let _alone = alone();
    let scene = Scene::new();
    let plain = |path: &mut Path| path.record(add(&scene.cells[0], &scene.one)).map(drop);
    let with = |path: &mut Path| -> Result<()> {
        let failed = path.while_nonzero(&scene.set, |r| {
            r.checkpoint("a", &scene.set)?;
            Err(failure())
        });
        assert!(failed.is_err());
        let refused = path.parallel(&mut [&mut |r| r.checkpoint("a", &scene.set)]);
        assert!(matches!(refused, Err(Error::CheckpointHere)), "{refused:?}");
        let refused = path
            .parallel(&mut [&mut |r| r.if_nonzero(&scene.set, |r| r.checkpoint("a", &scene.set))]);
        assert!(matches!(refused, Err(Error::CheckpointHere)), "{refused:?}");
        plain(path)
    };
    for entry in 0..4 {
        let graph = || Graph::new(&context()).expect("it is made");
        let record = |work: &dyn Fn(&mut Path) -> Result<()>| match entry {
            0 => Graph::record(&context(), work).map(|(graph, ())| graph),
            1 => Graph::capture(&scene.stream, work).map(|(graph, ())| graph),
            2 => {
                let graph = graph();
                graph.record_into((), work).map(|()| graph)
            }
            _ => {
                let graph = graph();
                graph.capture_into(&scene.stream, (), work).map(|()| graph)
            }
        };
        let (one, other) = (record(&plain), record(&with));
        let (one, other) = (one.expect("it is recorded"), other.expect("it is recorded"));
        assert_eq!(names(&other), Vec::<Vec<String>>::new(), "{entry}");
        let count = |graph: &Graph| graph.nodes().expect("it is there").len();
        assert_eq!((count(&one), count(&other)), (1, 1), "{entry}");
        scene.prepare();
        run(&other, &scene.stream);
        assert_eq!(scene.read()[0], 1, "{entry}");
    }
}

/// What is kept beside a foreign block lives as long as the graph, whether or not the block is all.
#[test]
fn what_is_kept_beside_a_block_goes_with_the_graph() {
    let scene = Scene::new();
    let block = |path: &mut Path| foreign(path, |stream| launch_store(stream, &scene.cells[0], 5));
    for order in 0..5 {
        let (watch, watched) = Watch::new();
        let watched: Arc<Watched> = Arc::new(watched);
        scene.prepare();
        let (graph, ()) = Graph::capture(&scene.stream, |path| {
            match order {
                0 => {
                    path.keep(watched.clone())?;
                    block(path)?;
                }
                1 => {
                    block(path)?;
                    path.keep(watched.clone())?;
                }
                2 => {
                    block(path)?;
                    path.keep(watched.clone())?;
                    path.record(add(&scene.cells[1], &scene.one))?;
                }
                3 => {
                    // A block that records nothing comes before, and one that fails behind.
                    foreign(path, |_| Ok(()))?;
                    block(path)?;
                    path.keep(watched.clone())?;
                    let failed = foreign(path, |_| Err::<(), _>(failure()));
                    assert!(failed.is_err());
                }
                _ => {
                    path.keep(watched.clone())?;
                    block(path)?;
                    // A loop that fails comes behind.
                    let failed = path.if_nonzero(&scene.set, |_| Err(failure()));
                    assert!(failed.is_err());
                }
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{order}: {error}"));
        drop(watched);
        let kinds: Vec<_> = graph.nodes().expect("it is there");
        let kinds: Vec<_> = kinds.iter().map(|node| node.kind()).collect();
        let want = match order {
            0 | 1 => vec![NodeKind::Kernel],
            2 => vec![NodeKind::Child, NodeKind::Kernel],
            // The second block and the loop made a node of the first.
            _ => vec![NodeKind::Child],
        };
        assert_eq!(kinds, want, "{order}");
        assert!(!watch.is_dropped(), "{order}");
        run(&graph, &scene.stream);
        assert_eq!(scene.read()[0], 5, "{order}");
        assert!(!watch.is_dropped(), "{order}");
        drop(graph);
        assert_soon(|| watch.is_dropped(), &format!("{order}: it leaks"));
    }
}

/// What a recording holds goes at once when the recording fails or its graph goes, on this thread
/// and under no lock: each owner looks at the graph that it goes with, or into.
#[test]
fn owners_of_recordings_go_at_once_and_under_no_lock() {
    /// Looks at a graph as it goes.
    struct Looks(Mutex<Graph>, mpsc::Sender<(usize, std::thread::ThreadId)>);
    impl Drop for Looks {
        fn drop(&mut self) {
            let graph = self.0.get_mut().expect("no holder panics");
            let count = graph.nodes().expect("it is there").len();
            let thread = std::thread::current().id();
            self.1.send((count, thread)).expect("somebody hears");
        }
    }
    let (says, hears) = mpsc::channel();
    // On a thread of its own, because a lock that is taken twice may be waited for without end.
    let thread = std::thread::spawn(move || {
        let scene = Scene::new();
        let graph = Graph::new(&context()).expect("it is made");
        graph.add(EmptyOp::new(), ()).expect("it fits");
        let owner = || Arc::new(Looks(Mutex::new(view_of(&graph)), says.clone()));
        for what in 0..6 {
            let work = |path: &mut Path| -> Result<()> {
                path.keep(owner())?;
                path.record(add(&scene.cells[0], &scene.one))?;
                path.checkpoint("a", &scene.clear)?;
                path.record(add(&scene.cells[0], &scene.one))?;
                path.if_nonzero(&scene.clear, |r| {
                    r.checkpoint("b", &scene.clear)?;
                    r.keep(owner())?;
                    r.record(EmptyOp::new()).map(drop)
                })?;
                match what {
                    0 | 3 => Err(failure()),
                    1 | 4 => resume_unwind(Box::new("as meant")),
                    _ => Ok(()),
                }
            };
            let done = catch_unwind(AssertUnwindSafe(|| match what {
                0..3 => Graph::record(&context(), work).map(drop),
                _ => graph.capture_into(&scene.stream, (), work),
            }));
            let is_ok = matches!(done, Ok(Ok(())));
            assert_eq!(is_ok, what % 3 == 2, "{what}");
        }
        // The last went into the graph, and views of the graph are among what it holds.
        graph.nodes().expect("it is there").len()
    });
    let thread_id = thread.thread().id();
    for which in 0..10 {
        let (count, thread) = hears
            .recv_timeout(Duration::from_secs(20))
            .unwrap_or_else(|error| panic!("owner {which}: {error}"));
        assert_eq!((count, thread), (1, thread_id), "{which}");
    }
    let count = thread.join().expect("it ends well");
    assert!(count > 1, "{count}");
}

/// Another handle of a graph.
fn view_of(graph: &Graph) -> Graph {
    let seen = Graph::record(graph.context(), |path| {
        *path = Path::new(graph);
        Ok(())
    });
    seen.expect("nothing is recorded").0
}

/// A recording whose path is exchanged for another gives what that one recorded.
#[test]
fn recordings_whose_paths_are_exchanged_behind_checkpoints() {
    let _alone = alone();
    let scene = Scene::new();
    let cell = |at: usize| &scene.cells[at];
    let (outer, inner) = Graph::record(&context(), |outer| {
        outer.record(add(cell(0), &scene.one))?;
        outer.checkpoint("outer", &scene.clear)?;
        let (inner, ()) = Graph::record(&context(), |inner| {
            inner.checkpoint("inner", &scene.set)?;
            std::mem::swap(outer, inner);
            inner.record(add(cell(1), &scene.one))?;
            inner.checkpoint("more", &scene.set)?;
            inner.record(add(cell(2), &scene.one))?;
            outer.record(add(cell(3), &scene.one)).map(drop)
        })?;
        outer.record(add(cell(4), &scene.one))?;
        Ok(inner)
    })
    .expect("both are recorded");
    assert_eq!(names(&inner), [["outer", "more"]]);
    assert_eq!(names(&outer), [["inner"]]);
    run(&inner, &scene.stream);
    assert_eq!(stopped(&inner, &scene.stream).as_deref(), Some("more"));
    assert_eq!(scene.read(), [1, 1, 0, 0, 0, 0]);
    scene.prepare();
    run(&outer, &scene.stream);
    assert_eq!(stopped(&outer, &scene.stream).as_deref(), Some("inner"));
    assert_eq!(scene.read(), [0; CELLS]);
    scene
        .set
        .copy_from_host(&scene.stream, &[0])
        .expect("it fits");
    run(&outer, &scene.stream);
    assert_eq!(stopped(&outer, &scene.stream), None);
    assert_eq!(scene.read(), [0, 0, 0, 1, 1, 0]);
}

/// A recording ends with a path in a graph, or in a body, that is there: it gives that graph.
#[test]
fn recordings_that_end_with_a_path_of_another_graph() {
    let scene = Scene::new();
    let (watch, watched) = Watch::new();
    let graph = Graph::new(&context()).expect("it is made");
    let condition = graph.condition(Some(1)).expect("it is made");
    let node = graph.add(IfOp::new(&condition), ()).expect("it fits");
    let body = graph.body(node).expect("it is there");
    body.keep(Arc::new(watched)).expect("it is there");
    let seen = Graph::capture(&scene.stream, |path| {
        path.record(add(&scene.cells[0], &scene.one))?;
        path.checkpoint("a", &scene.clear)?;
        *path = Path::new(&body);
        path.record(add(&scene.cells[1], &scene.one))?;
        let refused = path.checkpoint("b", &scene.clear);
        assert!(matches!(refused, Err(Error::CheckpointHere)), "{refused:?}");
        Ok(())
    });
    let (seen, ()) = seen.expect("the path ends");
    drop(body);
    assert_eq!(seen.nodes().expect("it is there").len(), 1);
    assert_eq!(names(&graph), Vec::<Vec<String>>::new());
    run(&graph, &scene.stream);
    assert_eq!(scene.read()[..2], [0, 1]);
    drop(graph);
    // The handle on the body keeps the root.
    assert_eq!(seen.nodes().expect("it is there").len(), 1);
    assert!(!watch.is_dropped());
    drop(seen);
    assert_soon(|| watch.is_dropped(), "it leaks");
}

/// Calls of the driver fail one after the other while a step with checkpoints is recorded: the
/// recording fails, gives all that was asked for, and lets everything go.
#[test]
fn a_step_with_checkpoints_is_recorded_whole_or_not_whichever_call_fails() {
    let _alone = alone();
    let scene = Scene::new();
    // Made before: making them asks the driver too.
    let plus: Vec<_> = scene.cells[..5]
        .iter()
        .map(|to| add(to, &scene.one))
        .collect();
    let (turns, minus) = (store(&scene.left[0], 2), add(&scene.left[0], &scene.minus));
    let step = |path: &mut Path| -> Result<()> {
        foreign(path, |stream| {
            launch_add(stream, &scene.cells[0], &scene.one)
        })?;
        path.keep(scene.held())?;
        path.checkpoint("a", &scene.clear)?;
        path.record(plus[1].clone())?;
        path.record(turns.clone())?;
        path.do_while_nonzero(&scene.left[0], |r| {
            r.checkpoint("b", &scene.clear)?;
            r.record(plus[2].clone())?;
            r.keep(scene.held())?;
            r.record(minus.clone()).map(drop)
        })?;
        path.record(plus[3].clone()).map(drop)
    };
    // A launch looks kernels up the first time.
    run(
        &Graph::capture(&scene.stream, step)
            .expect("no call fails")
            .0,
        &scene.stream,
    );
    let mut failures = 0;
    for nth in 0.. {
        scene.prepare();
        let (graph, fired) = with_failing_call(nth, || Graph::capture(&scene.stream, step));
        match graph {
            Ok((graph, ())) => {
                assert_eq!(names(&graph), [["a", "b"]], "{nth}");
                run(&graph, &scene.stream);
                assert_eq!(scene.read()[..4], [1, 1, 2, 1], "{nth}");
            }
            Err(_) => failures += 1,
        }
        scene.is_clean(&format!("call {nth} failed"));
        if !fired {
            break;
        }
    }
    assert!(failures > 5, "{failures}");
}

/// Where the memory goes that a recording makes for its checkpoints.
#[test]
fn recordings_with_checkpoints_leave_no_memory_behind() {
    if !crate::fixture::in_own_process(
        "attack::paths::recordings_with_checkpoints_leave_no_memory_behind",
    ) {
        return;
    }
    let scene = Scene::new();
    let free = || {
        cuda_graph::testing::settle();
        scene.stream.synchronize().expect("it runs");
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are places to write to.
        unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }
            .result()
            .expect("it is known");
        free
    };
    let round = || {
        for what in 0..6 {
            let work = |path: &mut Path| -> Result<()> {
                path.checkpoint("a", &scene.clear)?;
                path.while_nonzero(&scene.clear, |r| {
                    r.if_nonzero(&scene.clear, |r| {
                        r.checkpoint("b", &scene.clear)?;
                        match what {
                            1 => Err(failure()),
                            2 => resume_unwind(Box::new("as meant")),
                            _ => Ok(()),
                        }
                    })
                })
            };
            let recorded = catch_unwind(AssertUnwindSafe(|| {
                let (graph, ()) = Graph::record(&context(), work)?;
                if what == 3 {
                    run(&graph, &scene.stream);
                    assert_eq!(stopped(&graph, &scene.stream), None);
                }
                let mut capture = Capture::begin(&scene.stream)?;
                work(&mut capture)?;
                match what {
                    4 => drop(capture),
                    _ => drop(capture.end()?),
                }
                Ok::<_, Error>(())
            }));
            assert_eq!(matches!(recorded, Ok(Ok(()))), !matches!(what, 1 | 2));
        }
    };
    for _ in 0..3 {
        round();
    }
    let before = free();
    for _ in 0..10 {
        round();
    }
    // A word takes a page or a part of one: two recordings of six each, ten times.
    let lost = before.saturating_sub(free());
    assert!(lost < 4096, "{lost} bytes are lost");
}

/// In a capture of other code parts fail and the recording goes on: everything stays in line.
#[test]
fn a_joined_capture_goes_on_behind_what_is_refused() {
    let _alone = alone();
    let scene = Scene::new();
    let (watch, watched) = Watch::new();
    let watched: Arc<Watched> = Arc::new(watched);
    let (graph, ()) = Graph::capture(&scene.stream, |path| {
        foreign(path, |stream| {
            launch_store(stream, &scene.cells[0], 3)?;
            let join = |path: &mut Path| -> Result<()> {
                path.keep(watched.clone())?;
                let refused = path.checkpoint("a", &scene.set);
                assert!(matches!(refused, Err(Error::CheckpointHere)), "{refused:?}");
                path.record(add(&scene.cells[0], &scene.cells[0]))?;
                let refused = path.parallel(&mut [
                    &mut |r| r.record(add(&scene.cells[1], &scene.cells[0])).map(drop),
                    &mut |r| r.checkpoint("a", &scene.set),
                ]);
                assert!(matches!(refused, Err(Error::CheckpointHere)), "{refused:?}");
                assert!(path.has_stream());
                foreign(path, |stream| {
                    launch_add(stream, &scene.cells[1], &scene.cells[1])
                })
            };
            // SAFETY: nothing else uses the capture meanwhile.
            unsafe { Graph::record_in_capture(stream, join) }?;
            launch_add(stream, &scene.cells[2], &scene.cells[1])
        })
    })
    .expect("the rest is recorded");
    drop(watched);
    let edges = graph.edges().expect("it is there").len();
    assert_eq!((graph.nodes().expect("it is there").len(), edges), (5, 4));
    assert_eq!(names(&graph), Vec::<Vec<String>>::new());
    run(&graph, &scene.stream);
    assert_eq!(scene.read()[..3], [6, 12, 12]);
    assert!(!watch.is_dropped());
    drop(graph);
    assert_soon(|| watch.is_dropped(), "it leaks");
}

/// Behind a checkpoint a capture is not split. It is abandoned with all that it held.
#[test]
fn a_split_behind_a_checkpoint_lets_everything_go() {
    let scene = Scene::new();
    for depth in 0..2 {
        let mut capture = Capture::begin(&scene.stream).expect("the stream is free");
        foreign(&mut capture, |stream| {
            launch_store(stream, &scene.cells[0], 1)
        })
        .expect("it is recorded");
        capture.keep(scene.held()).expect("it is kept");
        if depth == 1 {
            let (joint, branches) = capture.split::<2>().expect("nothing is in the way");
            capture = joint.join(branches).expect("they are its own");
        }
        capture.checkpoint("a", &scene.set).expect("it is recorded");
        capture.keep(scene.held()).expect("it is kept");
        let refused = capture.split::<2>();
        let refused = refused.err();
        assert!(matches!(refused, Some(Error::SplitAside)), "{refused:?}");
        scene.is_clean("refused");
        // The stream is free.
        assert_eq!(read(&scene.stream, &scene.cells[0]), 0);
    }
}

/// A branch panics behind a checkpoint, and the recording goes on: the graph still says where its
/// launches stop, and takes checkpoints.
#[test]
fn a_branch_that_panics_takes_no_checkpoint_along() {
    let _alone = alone();
    let scene = Scene::new();
    let (graph, second) = Graph::record(&context(), |path| {
        path.checkpoint("a", &scene.set)?;
        let panics = catch_unwind(AssertUnwindSafe(|| {
            path.parallel(&mut [&mut |_| resume_unwind(Box::new("as meant"))])
        }));
        assert!(panics.is_err());
        path.record(add(&scene.cells[0], &scene.one))?;
        Ok(path.checkpoint("b", &scene.set))
    })
    .expect("the rest is recorded");
    run(&graph, &scene.stream);
    assert_eq!(scene.read()[0], 0, "the step stops");
    let found = (names(&graph).concat(), second.is_ok());
    assert_eq!(found, (vec!["a".into(), "b".into()], true), "{second:?}");
}

/// A branch of a joined capture panics, and the recording goes on in the capture.
#[test]
fn a_branch_that_panics_leaves_a_joined_capture_in_line() {
    let scene = Scene::new();
    let (graph, has_stream) = Graph::capture(&scene.stream, |path| {
        foreign(path, |stream| {
            launch_store(stream, &scene.cells[0], 3)?;
            let join = |path: &mut Path| -> Result<bool> {
                let panics = catch_unwind(AssertUnwindSafe(|| {
                    path.parallel(&mut [&mut |_| resume_unwind(Box::new("as meant"))])
                }));
                assert!(panics.is_err());
                path.record(add(&scene.cells[0], &scene.cells[0]))?;
                Ok(path.has_stream())
            };
            // SAFETY: nothing else uses the capture meanwhile.
            let has_stream = unsafe { Graph::record_in_capture(stream, join) }?;
            launch_add(stream, &scene.cells[1], &scene.cells[0])?;
            Ok(has_stream)
        })
    })
    .expect("the rest is recorded");
    // Three nodes, each behind the one before.
    let nodes = graph.nodes().expect("it is there");
    let mut edges: Vec<_> = graph.edges().expect("it is there");
    edges.sort_by_key(|edge| edge.to.index());
    let edges: Vec<_> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
    assert_eq!(edges, [(nodes[0], nodes[1]), (nodes[1], nodes[2])]);
    assert!(has_stream, "the path lost the capture");
}

/// A driver call fails in a checkpoint behind another one, and the checkpoint is recorded again:
/// what was recorded between them is still there, and both have their names.
#[test]
fn nothing_is_lost_when_a_checkpoint_fails_and_is_recorded_again() {
    let _alone = alone();
    let scene = Scene::new();
    let (first, second) = (
        add(&scene.cells[0], &scene.one),
        add(&scene.cells[1], &scene.one),
    );
    let mut wrong = Vec::new();
    for nth in 0.. {
        scene.prepare();
        let (mut fired, mut again) = (false, Ok(()));
        let recorded = Graph::record(&context(), |path| {
            path.checkpoint("a", &scene.clear)?;
            path.record(first.clone())?;
            let (failed, was) = with_failing_call(nth, || path.checkpoint("b", &scene.clear));
            fired = was;
            if failed.is_err() {
                again = path.checkpoint("b", &scene.clear);
            }
            path.record(second.clone()).map(drop)
        });
        if let Ok((graph, ())) = recorded {
            // A condition that a failed call left keeps a graph from being instantiated.
            if let Ok(mut exec) = graph.instantiate() {
                exec.launch(&scene.stream).expect("it is launched");
                let cells = scene.read()[..2].to_vec();
                if cells != [1, 1] || again.is_err() {
                    wrong.push((nth, cells, again.map_err(|error| error.to_string())));
                }
            }
        }
        if !fired {
            break;
        }
    }
    assert!(wrong.is_empty(), "when these calls failed: {wrong:?}");
}

/// A body panics behind a checkpoint, and the recording goes on: the name is free again.
#[test]
fn a_body_that_panics_takes_its_names_along() {
    let _alone = alone();
    let scene = Scene::new();
    let (graph, again) = Graph::record(&context(), |path| {
        let panics = catch_unwind(AssertUnwindSafe(|| {
            path.if_nonzero(&scene.set, |r| {
                r.checkpoint("a", &scene.set)?;
                resume_unwind(Box::new("as meant"))
            })
        }));
        assert!(panics.is_err());
        Ok(path.checkpoint("a", &scene.clear))
    })
    .expect("the rest is recorded");
    assert!(again.is_ok(), "{again:?}");
    assert_eq!(names(&graph), [["a"]]);
}

/// A driver call fails where a branch with a checkpoint is recorded behind another checkpoint, and
/// the branch is recorded again: it runs once, and so does what was recorded before and after it.
#[test]
fn nothing_is_lost_or_doubled_when_a_part_with_a_checkpoint_is_recorded_again() {
    let _alone = alone();
    let scene = Scene::new();
    let plus = |at: usize| add(&scene.cells[at], &scene.one);
    let mut wrong = Vec::new();
    for set in [false, true] {
        for nth in 0.. {
            scene.prepare();
            let mut fired = false;
            let part = |r: &mut dyn Recorder| {
                r.if_nonzero(&scene.set, |r| {
                    r.record(plus(1))?;
                    r.checkpoint("b", scene.flag(set))?;
                    r.record(plus(2)).map(drop)
                })
            };
            let recorded = Graph::record(&context(), |path| {
                path.checkpoint("a", &scene.clear)?;
                path.record(plus(0))?;
                let (failed, was) = with_failing_call(nth, || part(path));
                fired = was;
                if failed.is_err() {
                    part(path)?;
                }
                path.record(plus(3)).map(drop)
            });
            match recorded {
                Ok((graph, ())) => {
                    // A condition that a failed call left keeps a graph from being instantiated.
                    if let Ok(mut exec) = graph.instantiate() {
                        exec.launch(&scene.stream).expect("it is launched");
                        let cells = scene.read()[..4].to_vec();
                        let due = if set { [1, 1, 0, 0] } else { [1, 1, 1, 1] };
                        if cells != due || names(&graph) != [["a", "b"]] {
                            wrong.push((set, nth, format!("{cells:?}, {:?}", names(&graph))));
                        }
                    }
                }
                Err(error) => wrong.push((set, nth, error.to_string())),
            }
            if !fired {
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "when these calls failed: {wrong:?}");
}
