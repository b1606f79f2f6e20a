//! Checkpoints: where steps stop, and how they go on.
//!
//! Programs run to their end by every recorder, stopped and resumed wherever a flag is set. An
//! interpreter on the host says where they stop, and what the memory is there.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaStream, PushKernelArg};
use cuda_graph::testing::with_driver_version;
use cuda_graph::{
    Body, Buffer, Capture, ChildOp, CopyOp, Eager, Error, Exec, Graph, HostOp, Outcome, Param,
    Path, PinnedBuffer, Recorder, Replay, Result,
};

use super::{Counting, Step, assert_failure, failure, read, replay, replay_of, set, word};
use crate::fixture::{add, alone, context, function, one, store, stream};

/// One thing to do. A number is that of a cell, or a value.
#[derive(Clone, Debug)]
enum Act {
    Put(usize, u32),
    Plus(usize, usize),
    /// A loop of so many turns, counted by the first cell; it is told whether the body runs first.
    Loop(usize, u32, bool, Vec<Act>),
    While(usize, Vec<Act>),
    DoWhile(usize, Vec<Act>),
    If(usize, Vec<Act>),
    IfElse(usize, Vec<Act>, Vec<Act>),
    Switch(usize, Vec<Vec<Act>>),
    Side(Vec<Vec<Act>>),
    /// An embedded graph that adds one.
    Child(usize),
    /// Foreign work that adds one cell to another.
    Foreign(usize, usize),
    /// A section for the host.
    Look,
    Check(&'static str, usize),
}

use Act::{Check, Child, DoWhile, Foreign, If, IfElse, Look, Loop, Plus, Put, Side, Switch, While};

/// The cell that is always 1, and the one that is always -1.
const ONE: usize = 0;
const MINUS: usize = 1;

/// Where a program stopped, and its memory there.
type Stops = Vec<(&'static str, Vec<u32>)>;

/// Runs acts on the host. Checkpoints are noted, and passed.
fn interpret(acts: &[Act], cells: &mut [u32], stops: &mut Stops) {
    for act in acts {
        match act {
            Put(to, value) => cells[*to] = *value,
            Plus(to, from) | Foreign(to, from) => {
                cells[*to] = cells[*to].wrapping_add(cells[*from])
            }
            Child(to) => cells[*to] = cells[*to].wrapping_add(1),
            Loop(left, turns, once, body) => {
                cells[*left] = *turns;
                let mut first = *once;
                while std::mem::take(&mut first) || cells[*left] != 0 {
                    interpret(body, cells, stops);
                    cells[*left] = cells[*left].wrapping_sub(1);
                }
            }
            While(on, body) => {
                while cells[*on] != 0 {
                    interpret(body, cells, stops);
                }
            }
            DoWhile(on, body) => loop {
                interpret(body, cells, stops);
                if cells[*on] == 0 {
                    break;
                }
            },
            If(on, body) => {
                if cells[*on] != 0 {
                    interpret(body, cells, stops);
                }
            }
            IfElse(on, then, otherwise) => {
                let body = if cells[*on] != 0 { then } else { otherwise };
                interpret(body, cells, stops);
            }
            Switch(on, cases) => {
                if let Some(case) = cases.get(cells[*on] as usize) {
                    interpret(case, cells, stops);
                }
            }
            Side(branches) => {
                for branch in branches {
                    interpret(branch, cells, stops);
                }
            }
            Look => {}
            Check(name, flag) => {
                if cells[*flag] != 0 {
                    stops.push((name, cells.to_vec()));
                }
            }
        }
    }
}

/// Cells on a device, and how acts are recorded there.
struct Scene {
    stream: Arc<CudaStream>,
    cells: Vec<Buffer<u32>>,
    adds_one: RefCell<HashMap<usize, Graph>>,
    looks: Cell<u32>,
}

impl Scene {
    fn new(cells: usize) -> Scene {
        let stream = stream();
        Scene {
            cells: (0..cells).map(|_| word(&stream, 0)).collect(),
            adds_one: RefCell::default(),
            looks: Cell::new(0),
            stream,
        }
    }

    fn prepare(&self, values: &[u32]) {
        for (cell, value) in self.cells.iter().zip(values) {
            set(&self.stream, cell, *value);
        }
    }

    fn read(&self) -> Vec<u32> {
        let read = |cell| read(&self.stream, cell);
        self.cells.iter().map(read).collect()
    }

    fn record(&self, r: &mut dyn Recorder, acts: &[Act]) -> Result<()> {
        acts.iter().try_for_each(|act| self.record_one(r, act))
    }

    fn record_one(&self, r: &mut dyn Recorder, act: &Act) -> Result<()> {
        let cell = |at: &usize| &self.cells[*at];
        let with = |r: &mut dyn Recorder, body: &[Act]| self.record(r, body);
        match act {
            Put(to, value) => r.record(store(cell(to), *value)).map(drop),
            Plus(to, from) => r.record(add(cell(to), cell(from))).map(drop),
            Loop(left, turns, once, body) => {
                r.record(store(cell(left), *turns))?;
                let turn = |r: &mut dyn Recorder| {
                    with(r, body)?;
                    r.record(add(cell(left), cell(&MINUS))).map(drop)
                };
                match once {
                    true => r.do_while_nonzero(cell(left), turn),
                    false => r.while_nonzero(cell(left), turn),
                }
            }
            While(on, body) => r.while_nonzero(cell(on), |r| with(r, body)),
            DoWhile(on, body) => r.do_while_nonzero(cell(on), |r| with(r, body)),
            If(on, body) => r.if_nonzero(cell(on), |r| with(r, body)),
            IfElse(on, then, otherwise) => {
                r.if_else_nonzero(cell(on), |r| with(r, then), |r| with(r, otherwise))
            }
            Switch(on, cases) => {
                let mut cases: Vec<_> = cases
                    .iter()
                    .map(|case| move |r: &mut dyn Recorder| with(r, case))
                    .collect();
                let mut cases: Vec<&mut Body<'_>> =
                    cases.iter_mut().map(|case| case as _).collect();
                r.switch_on(cell(on), &mut cases)
            }
            Side(branches) => {
                let mut branches: Vec<_> = branches
                    .iter()
                    .map(|branch| move |r: &mut dyn Recorder| with(r, branch))
                    .collect();
                let mut branches: Vec<&mut Body<'_>> =
                    branches.iter_mut().map(|branch| branch as _).collect();
                r.parallel(&mut branches)
            }
            Child(to) => {
                let mut graphs = self.adds_one.borrow_mut();
                let graph = graphs.entry(*to).or_insert_with(|| {
                    let graph = Graph::new(&context()).unwrap();
                    graph.add(add(cell(to), cell(&ONE)), ()).unwrap();
                    graph
                });
                r.record(ChildOp::new(graph)).map(drop)
            }
            Foreign(to, from) => {
                r.keep(cell(to).owner())?;
                r.keep(cell(from).owner())?;
                // SAFETY: the memory is kept.
                unsafe {
                    r.foreign(|stream| {
                        let (add, to, from) =
                            (function("add"), cell(to).address(), cell(from).address());
                        let mut launch = stream.launch_builder(&add);
                        launch.arg(&to).arg(&from);
                        launch.launch(one())?;
                        Ok(())
                    })
                }
            }
            Look => r.outside(|_| {
                self.looks.set(self.looks.get() + 1);
                Ok(())
            }),
            Check(name, flag) => r.checkpoint(*name, cell(flag)),
        }
    }
}

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Through {
    Replay,
    Graph,
    Capture,
    Eager,
    /// A replay on a driver without conditional nodes.
    Old,
}

fn has(acts: &[Act], is: fn(&Act) -> bool) -> bool {
    acts.iter().any(|act| {
        is(act)
            || match act {
                Loop(_, _, _, body) | While(_, body) | DoWhile(_, body) | If(_, body) => {
                    has(body, is)
                }
                IfElse(_, then, otherwise) => has(then, is) || has(otherwise, is),
                Switch(_, bodies) | Side(bodies) => bodies.iter().any(|body| has(body, is)),
                _ => false,
            }
    })
}

fn checkpoints_of(acts: &[Act]) -> u64 {
    let inside = |bodies: &[Vec<Act>]| bodies.iter().map(|body| checkpoints_of(body)).sum();
    acts.iter()
        .map(|act| match act {
            Check(..) => 1,
            Loop(_, _, _, body) | While(_, body) | DoWhile(_, body) | If(_, body) => {
                checkpoints_of(body)
            }
            IfElse(_, then, otherwise) => checkpoints_of(then) + checkpoints_of(otherwise),
            Switch(_, bodies) | Side(bodies) => inside(bodies),
            _ => 0,
        })
        .sum()
}

/// Runs a program to its end, and returns where it stopped.
fn run(scene: &Scene, acts: &[Act], through: Through, replay: &mut Replay) -> Stops {
    let mut stops = Stops::new();
    let mut stopped = |name: Option<Arc<str>>| {
        let name = name?;
        assert!(stops.len() < 1000, "it stops again and again");
        // Each name is a static string of the program.
        let name: &'static str = NAMES.iter().find(|known| ***known == *name).unwrap();
        stops.push((name, scene.read()));
        Some(name)
    };
    let step = |r: &mut dyn Recorder| scene.record(r, acts);
    match through {
        Through::Replay | Through::Old => {
            let mut outcome = replay.call(&scene.stream, step).unwrap();
            while stopped(outcome.stopped().unwrap()).is_some() {
                outcome = replay.resume(&scene.stream, step).unwrap();
            }
            let again = replay.resume(&scene.stream, step);
            assert!(matches!(again, Err(Error::NotStopped)), "{again:?}");
        }
        Through::Eager => {
            let mut eager = Eager::new(&scene.stream).unwrap();
            step(&mut eager).unwrap();
            while let Some(name) = stopped(eager.take_stopped()) {
                let recorder: &mut dyn Recorder = &mut eager;
                recorder.resume_after(name, step).unwrap();
            }
        }
        Through::Graph | Through::Capture => {
            let record = |name: Option<&str>| {
                let record = |path: &mut Path| {
                    let recorder: &mut dyn Recorder = path;
                    match name {
                        Some(name) => recorder.resume_after(name, step),
                        None => step(recorder),
                    }
                };
                let recorded = match through {
                    Through::Capture => Graph::capture(&scene.stream, record),
                    _ => Graph::record(&context(), record),
                };
                recorded.unwrap().0
            };
            let mut graphs = HashMap::<Option<&str>, (Graph, Exec)>::new();
            let mut name = None;
            loop {
                let (graph, exec) = graphs.entry(name).or_insert_with(|| {
                    let graph = record(name);
                    let exec = graph.instantiate().unwrap();
                    (graph, exec)
                });
                exec.launch(&scene.stream).unwrap();
                let checkpoints = graph.checkpoints();
                assert!(checkpoints.len() <= 1);
                let at = checkpoints
                    .first()
                    .and_then(|checkpoints| checkpoints.stopped(&scene.stream).unwrap());
                name = stopped(at);
                if name.is_none() {
                    break;
                }
            }
        }
    }
    stops
}

/// The names of all checkpoints.
const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// Has a program run in every way, twice by a replay.
#[track_caller]
fn agrees(acts: &[Act], values: &[u32], case: &str) -> Stops {
    let scene = Scene::new(values.len());
    let (mut wants, mut stops) = (values.to_vec(), Stops::new());
    interpret(acts, &mut wants, &mut stops);
    let is_host = has(acts, |act| matches!(act, Look));
    let is_foreign = has(acts, |act| matches!(act, Foreign(..)));
    let mut replay = replay_of(1000);
    for through in [
        Through::Eager,
        Through::Replay,
        Through::Replay,
        Through::Graph,
        Through::Capture,
    ] {
        let is_graph = matches!(through, Through::Graph | Through::Capture);
        if is_graph && is_host || through == Through::Graph && is_foreign {
            continue;
        }
        let before = replay.counters();
        scene.prepare(values);
        let got = run(&scene, acts, through, &mut replay);
        let case = || format!("{case} through {through:?}: {acts:?} from {values:?}");
        assert_eq!(got, stops, "{}", case());
        assert_eq!(scene.read(), wants, "{}", case());
        if through == Through::Replay && !is_host {
            let builds = replay.counters().builds - before.builds;
            let most = if before.calls == 0 {
                1 + checkpoints_of(acts)
            } else {
                0
            };
            assert!(builds <= most, "{builds} builds of {most}: {}", case());
        }
    }
    stops
}

#[track_caller]
fn names(stops: &Stops) -> Vec<&'static str> {
    stops.iter().map(|(name, _)| *name).collect()
}

/// Cells 2 to 7 are 0; 8 is 1 and 9 is 2.
const VALUES: [u32; 10] = [1, u32::MAX, 0, 0, 0, 0, 0, 0, 1, 2];
/// A flag that is set.
const SET: usize = 8;
/// A flag that is not.
const CLEAR: usize = 7;

fn plus(to: usize) -> Act {
    Plus(to, ONE)
}

#[test]
fn a_step_stops_and_goes_on_at_the_top() {
    let _alone = alone();
    let programs: [(Vec<Act>, &[&str]); 9] = [
        (vec![plus(2), Check("a", SET), plus(3)], &["a"]),
        (vec![plus(2), Check("a", CLEAR), plus(3)], &[]),
        (vec![Check("a", SET), plus(2)], &["a"]),
        (vec![plus(2), Check("a", SET)], &["a"]),
        (vec![Check("a", SET)], &["a"]),
        (vec![Check("a", SET), Check("b", SET), plus(2)], &["a", "b"]),
        (
            vec![
                plus(2),
                Check("a", CLEAR),
                plus(2),
                Check("b", SET),
                plus(2),
                Check("c", SET),
            ],
            &["b", "c"],
        ),
        // What comes before sets it, and what comes behind clears it.
        (
            vec![Put(3, 1), Check("a", 3), Put(3, 0), Check("b", 3), plus(4)],
            &["a"],
        ),
        (
            vec![
                plus(2),
                Check("a", SET),
                Side(vec![vec![plus(3)], vec![plus(4), plus(4)], vec![]]),
                Child(5),
                Check("b", SET),
                Foreign(6, 5),
                Child(5),
            ],
            &["a", "b"],
        ),
    ];
    for (acts, stops) in programs {
        assert_eq!(names(&agrees(&acts, &VALUES, "at the top")), stops);
    }
}

#[test]
fn a_step_stops_in_any_turn_of_a_loop() {
    let _alone = alone();
    for once in [false, true] {
        for turn in 0..4 {
            // Cell 9 is the number of turns before the flag is set, cell 3 the flag.
            let body = vec![
                plus(2),
                IfElse(9, vec![Plus(9, MINUS)], vec![Put(3, 1)]),
                Check("a", 3),
                Put(3, 0),
                plus(4),
            ];
            let acts = [Loop(5, 3, once, body), plus(6)];
            let mut values = VALUES;
            values[9] = turn;
            let stops = agrees(&acts, &values, "in a turn");
            let count = 3u32.saturating_sub(turn) as usize;
            assert_eq!(stops.len(), count, "turn {turn}");
            if count > 0 {
                assert_eq!(stops[0].1[2], turn + 1, "it stopped in that turn");
                assert_eq!(stops[0].1[4], turn, "the rest was passed over");
                assert_eq!(stops[0].1[6], 0, "what comes behind, too");
            }
        }
        // The first and the last thing in a body, and alone there.
        for body in [
            vec![Check("a", SET), plus(2)],
            vec![plus(2), Check("a", SET)],
            vec![Check("a", SET)],
            vec![Check("a", SET), Check("b", SET)],
            vec![plus(2), Check("a", SET), plus(3), Check("b", SET), plus(4)],
        ] {
            let expected = 2 * checkpoints_of(&body) as usize;
            let stops = agrees(&[Loop(5, 2, once, body)], &VALUES, "in a body");
            assert_eq!(stops.len(), expected);
        }
        let acts = [
            Put(3, 1),
            match once {
                true => DoWhile(3, vec![plus(2), Check("a", SET), Put(3, 0)]),
                false => While(3, vec![Put(3, 0), Check("a", 3), plus(2), Check("b", SET)]),
            },
        ];
        assert_eq!(agrees(&acts, &VALUES, "uncounted").len(), 1);
        // No turn at all, or one.
        let acts = [
            Loop(5, u32::from(once), once, vec![Check("a", SET)]),
            plus(2),
        ];
        assert_eq!(agrees(&acts, &VALUES, "few turns").len(), usize::from(once));
    }
}

#[test]
fn a_step_stops_in_branches() {
    let _alone = alone();
    let programs = [
        vec![If(SET, vec![plus(2), Check("a", SET), plus(3)]), plus(4)],
        vec![If(CLEAR, vec![plus(2), Check("a", SET), plus(3)]), plus(4)],
        vec![
            IfElse(
                SET,
                vec![plus(2), Check("a", SET), plus(3)],
                vec![plus(5), Check("b", SET), plus(6)],
            ),
            plus(4),
        ],
        vec![
            IfElse(
                CLEAR,
                vec![plus(2), Check("a", SET), plus(3)],
                vec![plus(5), Check("b", SET), plus(6)],
            ),
            plus(4),
            Check("c", SET),
            plus(4),
        ],
        vec![
            Switch(
                9,
                vec![
                    vec![Check("a", SET)],
                    vec![plus(2), Check("b", SET), plus(3)],
                    vec![plus(4), Check("c", SET), plus(5)],
                    vec![Check("d", SET)],
                ],
            ),
            plus(6),
        ],
        // The flag of the branch is another when the rest runs.
        vec![
            Put(2, 1),
            If(2, vec![Put(2, 0), Check("a", SET), plus(3)]),
            If(2, vec![Check("b", SET), plus(4)]),
            plus(5),
        ],
        vec![
            If(
                SET,
                vec![
                    If(SET, vec![Check("a", SET), plus(2)]),
                    plus(3),
                    Check("b", SET),
                ],
            ),
            Side(vec![vec![plus(4)], vec![If(SET, vec![plus(5)])]]),
        ],
    ];
    for acts in programs {
        agrees(&acts, &VALUES, "in branches");
    }
}

#[test]
fn a_step_stops_in_loops_within_loops() {
    let _alone = alone();
    for once in [false, true] {
        let inner = vec![plus(2), Check("a", SET), plus(3)];
        let outer = vec![
            plus(4),
            Loop(5, 2, once, inner.clone()),
            plus(6),
            Check("b", SET),
        ];
        let stops = agrees(&[Loop(9, 2, !once, outer), plus(4)], &VALUES, "nested");
        assert!(stops.len() >= 6, "{stops:?}");
        // Behind a checkpoint, and in a branch, and two loops in a body.
        let body = vec![
            Check("b", SET),
            Loop(5, 2, once, inner.clone()),
            If(
                SET,
                vec![Loop(6, 2, !once, vec![plus(2), Check("c", SET)]), plus(2)],
            ),
            plus(7),
        ];
        let mut values = VALUES;
        values[7] = 0;
        agrees(&[Loop(4, 2, once, body)], &values, "two loops in a body");
        let deep = Loop(
            4,
            2,
            once,
            vec![Loop(5, 2, !once, vec![Loop(6, 2, once, inner)])],
        );
        agrees(&[deep, plus(7)], &VALUES, "three deep");
    }
}

/// The rest of the step holds everything that steps hold.
#[test]
fn the_rest_of_a_step_may_hold_anything() {
    let _alone = alone();
    let rest = || {
        vec![
            Side(vec![
                vec![plus(2)],
                vec![Child(3)],
                vec![If(SET, vec![plus(4)])],
            ]),
            Foreign(5, SET),
            Child(6),
            Loop(
                7,
                2,
                false,
                vec![plus(6), Side(vec![vec![plus(2)], vec![plus(3)]])],
            ),
        ]
    };
    let with = |before: Vec<Act>, body: Vec<Act>| [before, body, rest()].concat();
    agrees(&with(rest(), vec![Check("a", SET)]), &VALUES, "rest");
    let body = with(vec![plus(2)], vec![Check("a", SET)]);
    let inside = [vec![Loop(9, 2, false, body)], rest()].concat();
    agrees(&inside, &VALUES, "rest in a body");
    // With sections for the host: before, behind, in loops, and next to each other.
    let hosts = [
        vec![plus(2), Look, plus(3), Check("a", SET), plus(4)],
        vec![
            plus(2),
            Check("a", SET),
            plus(3),
            Look,
            plus(4),
            Check("b", SET),
            plus(5),
        ],
        vec![Look, Check("a", SET), Look, plus(2), Look],
        vec![Check("a", SET), Look, Look, Check("b", SET)],
        vec![
            Loop(5, 3, false, vec![plus(2), Look, Check("a", SET), plus(3)]),
            plus(4),
        ],
        vec![
            Loop(5, 3, true, vec![plus(2), Check("a", SET), Look, plus(3)]),
            plus(4),
        ],
        vec![
            Loop(
                5,
                2,
                true,
                vec![If(SET, vec![Check("a", SET), Look, plus(3)]), plus(2)],
            ),
            Check("b", SET),
            plus(4),
        ],
        vec![
            Check("a", SET),
            Side(vec![vec![plus(2), Look], vec![plus(3)]]),
            plus(4),
        ],
        vec![
            Switch(
                9,
                vec![
                    vec![],
                    vec![],
                    vec![plus(2), Look, Check("a", SET), Look, plus(3)],
                ],
            ),
            Foreign(4, SET),
            Child(4),
        ],
        vec![Loop(
            5,
            2,
            false,
            vec![Loop(6, 2, true, vec![Look, Check("a", SET), plus(2)])],
        )],
    ];
    for acts in hosts {
        agrees(&acts, &VALUES, "sections");
    }
}

#[test]
fn sections_for_the_host_run_once_for_each_time_that_they_are_reached() {
    let _alone = alone();
    let scene = Scene::new(VALUES.len());
    let acts = [
        Look,
        plus(2),
        Check("a", SET),
        Look,
        plus(3),
        Check("b", CLEAR),
        Look,
    ];
    for _ in 0..3 {
        scene.prepare(&VALUES);
        scene.looks.set(0);
        let mut replay = replay();
        let step = |r: &mut dyn Recorder| scene.record(r, &acts);
        let outcome = replay.call(&scene.stream, step).unwrap();
        assert_eq!(outcome.stopped().unwrap().as_deref(), Some("a"));
        assert_eq!(scene.looks.get(), 1);
        let outcome = replay.resume(&scene.stream, step).unwrap();
        assert_eq!(outcome.stopped().unwrap(), None);
        assert_eq!(scene.looks.get(), 3);
        assert_eq!(scene.read()[2..4], [1, 1]);
    }
}

/// Numbers that look random, and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 16) % most as u64) as usize
    }
}

/// A program to make: cells 2 to 7 are free, those behind count turns.
struct Making {
    dice: Dice,
    cells: usize,
    names: usize,
    host: bool,
}

impl Making {
    fn cell(&mut self) -> usize {
        2 + self.dice.below(6)
    }

    fn block(&mut self, depth: usize, most: usize, stops: bool) -> Vec<Act> {
        let count = self.dice.below(most + 1);
        (0..count).map(|_| self.act(depth, stops)).collect()
    }

    fn act(&mut self, depth: usize, stops: bool) -> Act {
        let (to, from) = (self.cell(), self.dice.below(8));
        let kinds = if depth > 0 { 20 } else { 12 };
        match self.dice.below(kinds) {
            0..=3 => Plus(to, from),
            4 | 5 => Put(to, self.dice.below(3) as u32),
            6..=9 if stops && self.names < NAMES.len() => {
                self.names += 1;
                Check(NAMES[self.names - 1], from)
            }
            10 => Child(to),
            11 if self.host && stops => Look,
            6..=11 => Plus(to, ONE),
            12..=15 => {
                let left = self.cells;
                self.cells += 1;
                let turns = 1 + self.dice.below(2) as u32;
                let once = self.dice.below(2) == 0;
                Loop(left, turns, once, self.block(depth - 1, 4, stops))
            }
            16 => If(from, self.block(depth - 1, 4, stops)),
            17 => IfElse(
                from,
                self.block(depth - 1, 3, stops),
                self.block(depth - 1, 3, stops),
            ),
            18 => {
                let cases = 1 + self.dice.below(3);
                Switch(
                    from,
                    (0..cases)
                        .map(|_| self.block(depth - 1, 3, stops))
                        .collect(),
                )
            }
            // What runs side by side has cells of its own.
            _ => Side(vec![
                vec![plus(2), Plus(2, ONE)],
                vec![plus(3)],
                vec![Child(4)],
            ]),
        }
    }
}

fn random_programs(seeds: std::ops::Range<u64>, host: bool) {
    let _alone = alone();
    let mut stopped = 0;
    for seed in seeds {
        let mut making = Making {
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            cells: 8,
            names: 0,
            host,
        };
        let acts = making.block(3, 9, true);
        let mut values = vec![0; making.cells];
        values[..2].copy_from_slice(&VALUES[..2]);
        for value in &mut values[2..8] {
            *value = making.dice.below(3) as u32;
        }
        stopped += agrees(&acts, &values, &format!("seed {seed}")).len();
    }
    assert!(stopped > 20, "they stopped {stopped} times");
}

#[test]
fn random_programs_stop_and_go_on() {
    random_programs(1..200, false);
}

#[test]
fn random_programs_with_sections_for_the_host_stop_and_go_on() {
    random_programs(1000..1200, true);
}

#[test]
fn an_old_driver_runs_the_same_with_the_same_outcomes() {
    let _alone = alone();
    let programs = [
        vec![plus(2), Check("a", SET), plus(3), Check("b", SET)],
        vec![
            Loop(5, 2, false, vec![plus(2), Check("a", SET), plus(3)]),
            plus(4),
        ],
        vec![Look, plus(2), Check("a", SET), plus(3)],
        vec![
            Look,
            Loop(5, 2, true, vec![plus(2), Check("a", SET), plus(3)]),
            plus(4),
        ],
    ];
    for acts in programs {
        let scene = Scene::new(VALUES.len());
        let (mut wants, mut stops) = (VALUES.to_vec(), Stops::new());
        interpret(&acts, &mut wants, &mut stops);
        // Making kernels asks the driver what an old one does not tell.
        let ops = Graph::new(&context()).unwrap();
        ops.add(add(&scene.cells[2], &scene.cells[0]), ()).unwrap();
        ops.add(store(&scene.cells[2], 0), ()).unwrap();
        for _ in 0..2 {
            let mut replay = replay();
            for _ in 0..2 {
                scene.prepare(&VALUES);
                let got =
                    with_driver_version(12_020, || run(&scene, &acts, Through::Old, &mut replay));
                assert_eq!(got, stops, "{acts:?}");
                assert_eq!(scene.read(), wants, "{acts:?}");
            }
        }
    }
}

#[test]
fn a_second_checkpoint_of_one_name_is_refused() {
    let stream = stream();
    let flag = word(&stream, 0);
    #[track_caller]
    fn assert_duplicate<T: std::fmt::Debug>(answer: Result<T>) {
        let is = matches!(&answer, Err(Error::DuplicateCheckpoint { name }) if &**name == "a");
        assert!(is, "{answer:?}");
    }
    let steps: [Step<'_>; 3] = [
        &|r| {
            r.checkpoint("a", &flag)?;
            r.checkpoint("a", &flag)
        },
        &|r| {
            r.checkpoint("a", &flag)?;
            r.if_nonzero(&flag, |r| r.checkpoint("a", &flag))
        },
        &|r| {
            r.if_else_nonzero(
                &flag,
                |r| r.checkpoint("a", &flag),
                |r| r.checkpoint("a", &flag),
            )
        },
    ];
    for step in steps {
        assert_duplicate(Graph::record(&context(), |path| step(path)));
        assert_duplicate(Graph::capture(&stream, |path| step(path)));
        let mut replay = replay();
        assert_duplicate(replay.call(&stream, step));
        assert_eq!(replay.counters().launches, 0);
    }
}

#[test]
fn a_checkpoint_of_a_part_that_failed_is_none() {
    let _alone = alone();
    let stream = stream();
    let (flag, to) = (word(&stream, 1), word(&stream, 0));
    let step = |r: &mut dyn Recorder| {
        let failed = r.if_nonzero(&flag, |r| {
            r.checkpoint("a", &flag)?;
            Err(failure())
        });
        assert_failure(failed);
        // It can be in no body.
        r.record(HostOp::new(|| {}))?;
        r.checkpoint("a", &flag)?;
        r.record(store(&to, 1)).map(drop)
    };
    let (graph, ()) = Graph::record(&context(), |path| step(path)).unwrap();
    assert_eq!(graph.checkpoints()[0].names().collect::<Vec<_>>(), ["a"]);
    let mut replay = replay();
    let outcome = replay.call(&stream, step).unwrap();
    assert_eq!(outcome.stopped().unwrap().as_deref(), Some("a"));
    assert_eq!(read(&stream, &to), 0);
}

#[track_caller]
fn assert_not_here<T: std::fmt::Debug>(answer: Result<T>) {
    assert!(matches!(answer, Err(Error::CheckpointHere)), "{answer:?}");
}

#[test]
fn no_checkpoint_is_in_a_branch_of_several() {
    let _alone = alone();
    let stream = stream();
    let (flag, clear) = (word(&stream, 1), word(&stream, 0));
    let steps: [Step<'_>; 3] = [
        &|r| r.parallel(&mut [&mut |r| r.checkpoint("a", &clear), &mut |_| Ok(())]),
        &|r| {
            r.parallel(&mut [&mut |_| Ok(()), &mut |r| {
                r.if_nonzero(&flag, |r| r.checkpoint("a", &clear))
            }])
        },
        &|r| {
            r.if_nonzero(&flag, |r| {
                r.parallel(&mut [&mut |r| r.checkpoint("a", &clear)])
            })
        },
    ];
    for step in steps {
        assert_not_here(Graph::record(&context(), |path| step(path)));
        assert_not_here(Graph::capture(&stream, |path| step(path)));
        assert_not_here(replay().call(&stream, step));
        assert_not_here(step(&mut Eager::new(&stream).unwrap()));
    }
    // The host drives the part: it is the same step.
    let driven = |r: &mut dyn Recorder| {
        r.parallel(&mut [&mut |r| {
            r.outside(|_| Ok(()))?;
            r.checkpoint("a", &clear)
        }])
    };
    let mut replay = replay();
    for _ in 0..2 {
        assert_not_here(replay.call(&stream, driven));
    }
    // A branch that panics leaves the part.
    let mut eager = Eager::new(&stream).unwrap();
    let panics = catch_unwind(AssertUnwindSafe(|| {
        eager.parallel(&mut [&mut |_| panic!("as meant")])
    }));
    assert!(panics.is_err());
    eager.checkpoint("a", &flag).unwrap();
    assert_eq!(eager.take_stopped().as_deref(), Some("a"));
    // Behind the part it may be.
    let outcome = replay.call(&stream, |r| {
        r.parallel(&mut [&mut |_| Ok(()), &mut |_| Ok(())])?;
        r.checkpoint("a", &flag)
    });
    assert_eq!(outcome.unwrap().stopped().unwrap().as_deref(), Some("a"));
}

#[test]
fn no_checkpoint_is_in_a_path_without_an_end() {
    let stream = stream();
    let flag = word(&stream, 0);
    let graph = Graph::new(&context()).unwrap();
    let mut path = Path::new(&graph);
    assert_not_here(path.checkpoint("a", &flag));
    assert_not_here(path.if_nonzero(&flag, |r| r.checkpoint("a", &flag)));
    assert_eq!(graph.nodes().unwrap().len(), 0);
    let capture = Capture::begin(&stream).unwrap();
    let (joint, [mut one, two]) = capture.split().unwrap();
    assert_not_here(one.checkpoint("a", &flag));
    let mut capture = joint.join([one, two]).unwrap();
    capture.checkpoint("a", &flag).unwrap();
    let graph = capture.end().unwrap();
    assert_eq!(graph.checkpoints().len(), 1);
    // In a capture of other code.
    let (graph, ()) = Graph::capture(&stream, |path| {
        // SAFETY: nothing else uses the capture.
        unsafe {
            path.foreign(|stream| {
                Graph::record_in_capture(stream, |path| {
                    assert_not_here(path.checkpoint("a", &flag));
                    path.record(store(&flag, 0)).map(drop)
                })
            })
        }
    })
    .unwrap();
    assert_eq!(graph.checkpoints().len(), 0);
}

#[test]
fn captures_and_graphs_that_exist_take_checkpoints() {
    let _alone = alone();
    let scene = Scene::new(VALUES.len());
    let acts = [
        Loop(5, 2, false, vec![plus(2), Check("a", SET), plus(3)]),
        Foreign(4, 3),
        Check("b", SET),
        plus(6),
    ];
    let step = |r: &mut dyn Recorder| scene.record(r, &acts);
    let resumed = |name: Option<&str>, r: &mut dyn Recorder| match name {
        Some(name) => r.resume_after(name, step),
        None => step(r),
    };
    let (mut wants, mut stops) = (VALUES.to_vec(), Stops::new());
    interpret(&acts, &mut wants, &mut stops);
    for into in [false, true] {
        scene.prepare(&VALUES);
        let mut name: Option<Arc<str>> = None;
        let mut seen = Vec::new();
        loop {
            let graph = match into {
                false => {
                    let mut capture = Capture::begin(&scene.stream).unwrap();
                    let path: &mut Path = &mut capture;
                    resumed(name.as_deref(), path).unwrap();
                    capture.end().unwrap()
                }
                true => {
                    let graph = Graph::new(&context()).unwrap();
                    let first = graph.add(store(&scene.cells[9], 5), ()).unwrap();
                    graph
                        .capture_into(&scene.stream, first, |path| resumed(name.as_deref(), path))
                        .unwrap();
                    graph
                }
            };
            graph.instantiate().unwrap().launch(&scene.stream).unwrap();
            let checkpoints = graph.checkpoints();
            name = checkpoints
                .first()
                .and_then(|checkpoints| checkpoints.stopped(&scene.stream).unwrap());
            let Some(name) = &name else { break };
            seen.push(name.clone());
        }
        let seen: Vec<_> = seen.iter().map(|name| &**name).collect();
        assert_eq!(seen, names(&stops));
        assert_eq!(scene.read()[..8], wants[..8]);
    }
}

#[test]
fn a_step_goes_on_only_where_it_stopped() {
    let _alone = alone();
    let stream = stream();
    let (flag, to) = (word(&stream, 1), word(&stream, 0));
    let mut replay = replay();
    let step = |r: &mut dyn Recorder| {
        r.checkpoint("a", &flag)?;
        r.record(store(&to, 1)).map(drop)
    };
    let not_stopped = |replay: &mut Replay| {
        let answer = replay.resume(&stream, step);
        assert!(matches!(answer, Err(Error::NotStopped)), "{answer:?}");
    };
    not_stopped(&mut replay);
    set(&stream, &flag, 0);
    assert_eq!(replay.call(&stream, step).unwrap().stopped().unwrap(), None);
    not_stopped(&mut replay);
    set(&stream, &flag, 1);
    let stopped: Outcome = replay.call(&stream, step).unwrap();
    assert_eq!(stopped.stopped().unwrap().as_deref(), Some("a"));
    // Another step has no such checkpoint. The first may still go on.
    let answer = replay.resume(&stream, |r| r.record(store(&to, 5)).map(drop));
    assert!(
        matches!(&answer, Err(Error::UnknownCheckpoint { name }) if &**name == "a"),
        "{answer:?}"
    );
    assert_failure(replay.resume(&stream, |r| {
        step(r)?;
        Err(failure())
    }));
    set(&stream, &to, 0);
    assert_eq!(
        replay.resume(&stream, step).unwrap().stopped().unwrap(),
        None
    );
    assert_eq!(read(&stream, &to), 1);
    not_stopped(&mut replay);
    let gone = stopped.stopped();
    assert!(matches!(gone, Err(Error::OutcomeGone)), "{gone:?}");
    // A call that fails, and a reset.
    let stopped = replay.call(&stream, step).unwrap();
    assert_failure(replay.call(&stream, |_| Err(failure())));
    not_stopped(&mut replay);
    assert!(matches!(stopped.stopped(), Err(Error::OutcomeGone)));
    replay.call(&stream, step).unwrap();
    replay.reset(&context());
    not_stopped(&mut replay);
    // A recorder of another kind.
    let eager: &mut dyn Recorder = &mut Eager::new(&stream).unwrap();
    let answer = eager.resume_after("b", step);
    assert!(
        matches!(answer, Err(Error::UnknownCheckpoint { .. })),
        "{answer:?}"
    );
}

#[test]
fn a_run_stops_too_and_goes_on() {
    let _alone = alone();
    let stream = stream();
    let counting = Counting::new(&stream);
    let flags = [word(&stream, 0), word(&stream, 1)];
    let cells = [word(&stream, 0), word(&stream, 0)];
    let flag = Param::with_value("flag", flags[0].clone());
    let from = Param::with_value("from", counting.one.clone());
    let mut replay = replay();
    let step = |r: &mut dyn Recorder| {
        // SAFETY: `add` reads and writes one word of each.
        let op = |to: &Buffer<u32>| unsafe {
            cuda_graph::KernelOp::new(crate::fixture::kernel("add"), one(), (to, &from))
        };
        r.record(op(&cells[0])?)?;
        r.checkpoint("a", &flag)?;
        r.record(op(&cells[1])?).map(drop)
    };
    assert_eq!(replay.call(&stream, step).unwrap().stopped().unwrap(), None);
    let mut wants = [1, 1];
    for round in 1..6 {
        replay.bind(&flag, flags[round % 2].clone()).unwrap();
        let outcome = replay.run(&stream).unwrap();
        wants[0] += 1;
        match round % 2 {
            0 => assert_eq!(outcome.stopped().unwrap(), None),
            _ => {
                assert_eq!(outcome.stopped().unwrap().as_deref(), Some("a"));
                let outcome = replay.resume(&stream, step).unwrap();
                assert_eq!(outcome.stopped().unwrap(), None);
            }
        }
        wants[1] += 1;
        assert_eq!([read(&stream, &cells[0]), read(&stream, &cells[1])], wants);
        if round % 2 == 1 {
            // The rest of the step runs again.
            replay.run(&stream).unwrap();
            wants[1] += 1;
            assert_eq!([read(&stream, &cells[0]), read(&stream, &cells[1])], wants);
            replay
                .call(&stream, step)
                .unwrap()
                .stopped()
                .unwrap()
                .unwrap();
            wants[0] += 1;
        }
    }
    assert_eq!(replay.counters().builds, 2);
}

/// A loop is recorded twice behind a checkpoint in it, and so when another executable is made.
#[test]
fn a_resumed_step_may_need_another_executable_when_it_runs_again() {
    let _alone = alone();
    let scene = Scene::new(VALUES.len());
    scene.prepare(&VALUES);
    let stream = &scene.stream;
    let host = PinnedBuffer::from_slice(&context(), &[6u32]).unwrap();
    let is_host = Param::with_value("is_host", false);
    let mut replay = replay();
    let step = |r: &mut dyn Recorder| {
        scene.record(
            r,
            &[Loop(5, 2, false, vec![plus(2), Check("a", 3), plus(4)])],
        )?;
        let (to, device, host) = (scene.cells[6].clone(), scene.cells[9].clone(), host.clone());
        let is_host = is_host.clone();
        r.record_with(move || match is_host.get()? {
            true => CopyOp::new(&to, &host),
            false => CopyOp::new(&to, &device),
        })
    };
    set(stream, &scene.cells[3], 1);
    replay.call(stream, step).unwrap();
    set(stream, &scene.cells[3], 0);
    let outcome = replay.resume(stream, step).unwrap();
    assert_eq!(outcome.stopped().unwrap(), None);
    assert_eq!(scene.read()[4..7], [2, 0, 2]);
    replay.bind(&is_host, true).unwrap();
    set(stream, &scene.cells[5], 1);
    let outcome = replay.run(stream).unwrap();
    assert_eq!(outcome.stopped().unwrap(), None);
    // The rest of a turn, which was the last.
    assert_eq!(scene.read()[4..7], [3, 0, 6]);
}

#[test]
fn a_step_without_checkpoints_has_no_node_for_them() {
    let _alone = alone();
    let scene = Scene::new(VALUES.len());
    scene.prepare(&VALUES);
    let acts = [
        plus(2),
        Loop(5, 2, false, vec![plus(3)]),
        If(SET, vec![plus(4)]),
    ];
    let (graph, ()) = Graph::record(&context(), |path| scene.record(path, &acts)).unwrap();
    assert_eq!(graph.checkpoints().len(), 0);
    // The operations, and for each part the kernel that sets its condition.
    assert_eq!(graph.nodes().unwrap().len(), 1 + 1 + 2 + 2);
    let mut replay = replay();
    let outcome = replay
        .call(&scene.stream, |r| scene.record(r, &acts))
        .unwrap();
    assert_eq!(outcome.stopped().unwrap(), None);
    // In addition one operation in each body, and what ends a turn: two nodes.
    assert_eq!(replay.nodes(), 6 + 3 + 1);
}

#[test]
fn what_no_body_takes_is_refused_behind_a_checkpoint() {
    let _alone = alone();
    let stream = stream();
    let (flag, to) = (word(&stream, 1), word(&stream, 0));
    // The rest of the step goes into a body.
    let host = |r: &mut dyn Recorder| {
        r.checkpoint("a", &flag)?;
        r.record(HostOp::new(|| {})).map(drop)
    };
    let answer = Graph::record(&context(), |path| host(path));
    assert!(matches!(answer, Err(Error::NotInBody { .. })), "{answer:?}");
    let mut replay = replay();
    let answer = replay.call(&stream, host);
    assert!(matches!(answer, Err(Error::NotInBody { .. })), "{answer:?}");
    // Nothing of it is left.
    let outcome = replay.call(&stream, |r| {
        r.record(HostOp::new(|| {}))?;
        r.checkpoint("a", &flag)?;
        r.record(store(&to, 1)).map(drop)
    });
    assert_eq!(outcome.unwrap().stopped().unwrap().as_deref(), Some("a"));
    assert_eq!(read(&stream, &to), 0);
}
