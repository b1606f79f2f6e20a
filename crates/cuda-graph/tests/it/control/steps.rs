//! Steps that pick how they run, and drivers that are too old for some loops and branches, or for
//! all.

use std::sync::{Arc, Mutex};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::testing::with_driver_version;
use cuda_graph::{
    Buffer, Condition, EmptyOp, Error, Graph, HostOp, IfElseOp, IfOp, Recorder, Result, Step,
    SwitchOp, WhileOp,
};

use super::kernels::{kernels, nearer, plus};
use super::program::{Act, By, Memory, interpret, record};
use super::{BUILT, EVERY, Through, alone, recorded, run};
use crate::fixture::{Watch, assert_soon, context, stream, words};

/// What an error says is missing, who has it, and who there is.
#[track_caller]
fn unsupported(error: &Error) -> (&'static str, &str, &str) {
    match error {
        Error::Unsupported { what, needs, have } => (what, needs, have),
        Error::Node { error, .. } => unsupported(error),
        error => panic!("{error:?}"),
    }
}

#[test]
fn explicit_forms_say_what_the_driver_is_too_old_for() {
    let graph = Graph::new(&context()).unwrap();
    let have = ["one for CUDA 12.2", "one for CUDA 12.4"];
    let (first, then) = ("a driver for CUDA 12.3", "a driver for CUDA 12.8");
    with_driver_version(12_020, || {
        let error = graph.condition(None).unwrap_err();
        assert_eq!(unsupported(&error), ("a condition", first, have[0]));
    });
    type Add = fn(&Graph, &Condition) -> Result<()>;
    let forms: [(Add, &str, &str, i32); 4] = [
        (
            |graph, c| graph.add(IfOp::new(c), ()).map(drop),
            "a conditional node",
            first,
            12_030,
        ),
        (
            |graph, c| graph.add(WhileOp::new(c), ()).map(drop),
            "a conditional node",
            first,
            12_030,
        ),
        (
            |graph, c| graph.add(IfElseOp::new(c), ()).map(drop),
            "an else body",
            then,
            12_080,
        ),
        (
            |graph, c| graph.add(SwitchOp::new(c, 2), ()).map(drop),
            "a switch node",
            then,
            12_080,
        ),
    ];
    for (add, what, needs, version) in forms {
        for (driver, have) in [12_020, 12_040].into_iter().zip(have) {
            let graph = Graph::new(&context()).unwrap();
            // Made before the driver is said to be too old.
            let condition = graph.condition(None).unwrap();
            let answer = with_driver_version(driver, || add(&graph, &condition));
            if driver >= version {
                answer.unwrap();
                continue;
            }
            let error = answer.unwrap_err();
            assert_eq!(unsupported(&error), (what, needs, have));
            assert_eq!(graph.nodes().unwrap(), []);
        }
        with_driver_version(12_080, || {
            let graph = Graph::new(&context()).unwrap();
            add(&graph, &graph.condition(None).unwrap()).unwrap();
        });
    }
}

/// A step with each kind of loop and branch that a driver may lack.
#[derive(Clone, Copy, Debug)]
enum Uses {
    Nothing,
    Loops,
    Cases,
}

const INPUT: usize = 0;
const ONE: usize = 1;
const SUM: usize = 2;

fn acts(uses: Uses) -> Vec<Act> {
    let by = By::Library;
    let add = |to, from| Act::Plus { to, from, by };
    match uses {
        Uses::Nothing => vec![add(SUM, INPUT)],
        Uses::Loops => vec![Act::While {
            on: INPUT,
            body: vec![add(SUM, INPUT), Act::Nearer(INPUT)],
        }],
        Uses::Cases => vec![Act::DoWhile {
            on: INPUT,
            body: vec![
                Act::Switch {
                    on: INPUT,
                    cases: vec![vec![add(SUM, ONE)], vec![], vec![add(SUM, INPUT)]],
                },
                Act::IfElse {
                    on: INPUT,
                    then: vec![add(SUM, INPUT)],
                    otherwise: vec![add(SUM, ONE)],
                },
                Act::Nearer(INPUT),
            ],
        }],
    }
}

/// The versions of drivers, and what each of them has.
const DRIVERS: [(i32, bool, bool); 4] = [
    (12_020, false, false),
    (12_040, true, false),
    (12_080, true, true),
    (13_000, true, true),
];

#[test]
fn a_step_is_a_graph_where_it_can_be() {
    let _alone = alone();
    let streams = [stream(), stream()];
    for uses in [Uses::Nothing, Uses::Loops, Uses::Cases] {
        for (driver, loops, cases) in DRIVERS {
            let what = format!("{uses:?} with driver {driver}");
            let graph = match uses {
                Uses::Nothing => true,
                Uses::Loops => loops,
                Uses::Cases => cases,
            };
            let memory = Arc::new(Memory::new(&streams[0], 3));
            let used = memory.clone();
            let mut step = with_driver_version(driver, || {
                Step::new(&context(), move |r| record(r, &acts(uses), &used))
            })
            .unwrap();
            assert_eq!(step.why_eager().is_none(), graph, "{what}: {step:?}");
            assert_eq!(step.exec().is_some(), graph, "{what}");
            let debug = format!("{step:?}");
            match step.why_eager() {
                None => assert!(debug.starts_with("Step as a graph"), "{what}: {debug}"),
                Some(why) => {
                    let (missing, needs, _) = unsupported(why);
                    for part in ["Step run eagerly", missing, needs] {
                        assert!(debug.contains(part), "{what}: {debug}");
                    }
                }
            }
            // Again and again, in one stream and in another.
            for (at, input) in [2, 0, 1, -2, 3, 2].into_iter().enumerate() {
                let stream: &Arc<CudaStream> = &streams[at / 2 % 2];
                let mut cells = [input, 1, 0];
                memory.write(stream, &cells);
                interpret(&acts(uses), &mut cells);
                step.launch(stream).unwrap();
                assert_eq!(memory.read(stream), cells, "{what}, with {input}");
            }
        }
    }
}

#[test]
fn a_step_that_fails_otherwise_is_no_step() {
    let stream = stream();
    let memory = Memory::new(&stream, 3);
    let flag = memory.cell(INPUT).clone();
    let answer = Step::new(&context(), move |r| {
        r.if_nonzero(&flag, |r| r.record(HostOp::new(|| {})).map(drop))
    });
    assert!(matches!(answer, Err(Error::NotInBody { .. })), "{answer:?}");
    let left = Step::new(&context(), |_| {
        Err(Error::other(std::io::Error::other("own")))
    });
    assert!(matches!(left, Err(Error::Other(_))), "{left:?}");
    Step::new(&context(), |_| Ok(())).unwrap();
}

#[test]
fn nodes_of_a_step_are_updated() {
    let _alone = alone();
    let stream = stream();
    let memory = Arc::new(Memory::new(&stream, 3));
    let node = Arc::new(std::sync::Mutex::new(None));
    let (used, found) = (memory.clone(), node.clone());
    let mut step = Step::new(&context(), move |r| {
        r.while_nonzero(used.cell(INPUT), |r| {
            *found.lock().unwrap() = r.record(plus(used.cell(SUM), used.cell(ONE)))?;
            r.record(nearer(used.cell(INPUT))).map(drop)
        })
    })
    .unwrap();
    let node = node.lock().unwrap().unwrap();
    let other = plus(memory.cell(SUM), memory.cell(INPUT));
    step.exec().unwrap().update(node, other).unwrap();
    memory.write(&stream, &[3, 1, 0]);
    step.launch(&stream).unwrap();
    assert_eq!(memory.read(&stream), [0, 1, 6]);
    assert!(step.graph().unwrap().dot().unwrap().contains(": while"));
}

/// Where the driver lacks a kind, nothing of it stays, and the recorder goes on.
#[test]
fn recorders_go_on_without_what_the_driver_lacks() {
    let _alone = alone();
    let stream = stream();
    kernels();
    for through in EVERY {
        let memory = Memory::new(&stream, 3);
        memory.write(&stream, &[2, 1, 0]);
        let (input, one, sum) = (memory.cell(INPUT), memory.cell(ONE), memory.cell(SUM));
        with_driver_version(12_040, || {
            run(through, &stream, |r| {
                let count = |r: &mut dyn Recorder| {
                    r.record(plus(sum, one))?;
                    r.record(nearer(input)).map(drop)
                };
                let lacks = |answer: Result<()>| match through {
                    Through::Eager => answer.unwrap(),
                    _ => assert_eq!(
                        unsupported(&answer.unwrap_err()).1,
                        "a driver for CUDA 12.8"
                    ),
                };
                lacks(r.switch_on(input, &mut [&mut |_| Ok(())]));
                lacks(r.if_else_nonzero(input, |_| Ok(()), |_| Ok(())));
                r.while_nonzero(input, |r| {
                    lacks(r.switch_on(input, &mut [&mut |_| Ok(())]));
                    count(r)
                })
            })
        })
        .unwrap();
        assert_eq!(memory.read(&stream), [0, 1, 2], "{through:?}");
    }
}

/// What is captured or built for a driver without any is refused before anything of it is there.
#[test]
fn without_conditions_nothing_is_left() {
    let _alone = alone();
    let stream = stream();
    let flag = Buffer::from_host(&stream, &[0i32]).unwrap();
    with_driver_version(12_020, || {
        let refused = |r: &mut dyn Recorder| {
            let answers = [
                r.while_nonzero(&flag, |_| Ok(())),
                r.do_while_nonzero(&flag, |_| Ok(())),
                r.if_nonzero(&flag, |_| Ok(())),
                r.if_else_nonzero(&flag, |_| Ok(()), |_| Ok(())),
                r.switch_on(&flag, &mut [&mut |_| Ok(())]),
            ];
            let needs = ["12.3", "12.3", "12.3", "12.8", "12.8"];
            for (answer, needs) in answers.into_iter().zip(needs) {
                let error = answer.unwrap_err();
                assert_eq!(unsupported(&error).1, format!("a driver for CUDA {needs}"));
            }
            r.record(EmptyOp::new()).map(drop)
        };
        for through in BUILT {
            let (graph, ()) = recorded(through, &stream, refused).unwrap();
            assert_eq!(graph.nodes().unwrap().len(), 1);
            graph.instantiate().unwrap().launch(&stream).unwrap();
        }
        stream.synchronize().unwrap();
    });
}

/// What a step keeps as it runs eagerly is held for that run alone, however often it runs.
#[test]
fn an_eager_step_keeps_for_one_run() {
    let (stream, seen) = (stream(), Arc::new(Mutex::new(Vec::new())));
    let flag = words(&stream, &[0]);
    let runs = seen.clone();
    let mut step = with_driver_version(12_020, || {
        Step::new(&context(), move |r| {
            let (watch, watched) = Watch::new();
            runs.lock().unwrap().push(watch);
            r.keep(Arc::new(watched))?;
            r.while_nonzero(&flag, |_| Ok(()))
        })
    })
    .unwrap();
    assert!(step.why_eager().is_some());
    for _ in 0..3 {
        step.launch(&stream).unwrap();
    }
    stream.synchronize().unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 3);
    for watch in seen.iter() {
        assert_soon(|| watch.is_dropped(), "what a run kept is held on");
    }
    drop(step);
}
