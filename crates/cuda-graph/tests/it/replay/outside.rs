//! Sections for the host in a step: executables before, between and after, and parts that the host
//! drives because such a section is in them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, CopyOp, Error, Graph, HostOp, Recorder, Replay, Result, Step};

use super::{
    Counting, assert_balanced, assert_failure, call, eagerly, failure, read, replay, set, word,
};
use crate::fixture::{add, alone, context, store, stream, words};

#[test]
fn sections_run_in_the_order_of_the_step() {
    let stream = stream();
    let mut replay = replay();
    // Kept, so that no address comes again.
    let cells: Vec<_> = (0..5).map(|_| word(&stream, 0)).collect();
    for (number, to) in (0..5).zip(&cells) {
        let seen = RefCell::new(Vec::new());
        let look = |stream: &Arc<CudaStream>| {
            seen.borrow_mut().push(read(stream, to));
            Ok(())
        };
        let did = call(&mut replay, &stream, |r| {
            r.outside(look)?;
            r.record(store(to, number + 1))?;
            r.outside(look)?;
            r.outside(look)?;
            r.record(add(to, to))?;
            r.record(add(to, to))?;
            r.outside(look)?;
            r.record(store(to, 3)).map(drop)
        });
        let value = number + 1;
        assert_eq!(*seen.borrow(), [0, value, value, 4 * value]);
        assert_eq!(read(&stream, to), 3);
        assert_eq!(did.launches, 3);
        assert_eq!(did.builds, if number == 0 { 3 } else { 0 });
        assert_eq!(did.hits, if number == 0 { 0 } else { 3 });
        assert_eq!(did.updated, if number == 0 { 0 } else { 4 });
        assert_eq!((replay.executables(), replay.nodes()), (3, 4));
        assert_eq!(did.host_driven, 0);
    }
    assert_balanced(&replay);
}

#[test]
fn the_host_may_give_work_to_the_stream_itself() {
    let stream = stream();
    let mut replay = replay();
    let (to, from) = (words(&stream, &[0; 4]), words(&stream, &[0; 4]));
    for number in 0..4 {
        let did = call(&mut replay, &stream, |r| {
            r.record(store(&to, 100))?;
            // Neither waits for what was recorded before, nor for what comes after.
            r.outside(|stream| from.copy_from_host(stream, &[number; 4]))?;
            r.record(CopyOp::new(&to, &from)?)?;
            r.record(add(&to, &from)).map(drop)
        });
        let expected = [2 * number, number, number, number];
        assert_eq!(to.to_host(&stream).unwrap(), expected);
        assert_eq!(did.builds, if number == 0 { 2 } else { 0 });
    }
}

/// What is read back decides what is recorded next.
#[test]
fn a_read_back_decides_what_comes_next() {
    let stream = stream();
    let mut replay = replay();
    let (value, to) = (word(&stream, 0), word(&stream, 0));
    let counting = Counting::new(&stream);
    for number in 0..12u32 {
        set(&stream, &value, number);
        let mut step = |r: &mut dyn Recorder| {
            r.record(add(&value, &counting.one))?;
            let mut got = 0;
            r.outside(|stream| {
                got = read(stream, &value);
                Ok(())
            })?;
            match got % 3 {
                0 => r.record(store(&to, got)).map(drop),
                1 => {
                    r.record(store(&to, got))?;
                    r.record(add(&to, &counting.one)).map(drop)
                }
                _ => r.record(CopyOp::new(&to, &value)?).map(drop),
            }
        };
        let did = call(&mut replay, &stream, &mut step);
        let got = read(&stream, &to);
        set(&stream, &value, number);
        eagerly(&stream, step);
        assert_eq!(got, read(&stream, &to));
        assert_eq!(got, number + 1 + u32::from((number + 1) % 3 == 1));
        let built = match number {
            0 => 2,
            1 | 2 => 1,
            _ => 0,
        };
        assert_eq!((did.builds, did.launches), (built, 2), "call {number}");
    }
    assert_eq!(replay.executables(), 4);
    assert_balanced(&replay);
}

/// Memory that the part works on.
struct Parts {
    stream: Arc<CudaStream>,
    counting: Counting,
    /// What flags decide by, and what is counted.
    cells: Vec<Buffer<u32>>,
    /// What the host saw.
    seen: RefCell<Vec<u32>>,
}

/// A part of a step that has a section for the host somewhere inside.
type Part = fn(&Parts, &mut dyn Recorder) -> Result<()>;

impl Parts {
    fn new() -> Parts {
        let stream = stream();
        Parts {
            counting: Counting::new(&stream),
            cells: (0..6).map(|_| word(&stream, 0)).collect(),
            seen: RefCell::default(),
            stream,
        }
    }

    fn add(&self, r: &mut dyn Recorder, to: usize) -> Result<()> {
        r.record(add(&self.cells[to], &self.counting.one)).map(drop)
    }

    fn take(&self, r: &mut dyn Recorder, from: usize) -> Result<()> {
        let op = add(&self.cells[from], &self.counting.minus);
        r.record(op).map(drop)
    }

    fn look(&self, r: &mut dyn Recorder, at: usize) -> Result<()> {
        r.outside(|stream| {
            self.seen.borrow_mut().push(read(stream, &self.cells[at]));
            Ok(())
        })
    }

    /// What `run` leaves of these values, and what the host saw meanwhile.
    fn after(&self, values: [u32; 6], run: impl FnOnce()) -> (Vec<u32>, Vec<u32>) {
        for (cell, value) in self.cells.iter().zip(values) {
            set(&self.stream, cell, value);
        }
        self.seen.borrow_mut().clear();
        run();
        let cells = self.cells.iter().map(|cell| read(&self.stream, cell));
        (cells.collect(), self.seen.borrow().clone())
    }
}

/// How many parts the host drives, by the first cell's value.
type Driven = fn(u32) -> u64;

const PARTS: [(&str, Part, Driven); 12] = [
    (
        "while",
        |p, r| {
            r.while_nonzero(&p.cells[0], |r| {
                p.add(r, 1)?;
                p.look(r, 1)?;
                p.take(r, 0)
            })
        },
        |_| 1,
    ),
    (
        "do-while",
        |p, r| {
            r.do_while_nonzero(&p.cells[0], |r| {
                p.look(r, 0)?;
                p.add(r, 1)?;
                // Down to 0, from 0 too.
                r.if_nonzero(&p.cells[0], |r| p.take(r, 0))
            })
        },
        |_| 1,
    ),
    (
        "if",
        |p, r| {
            r.if_nonzero(&p.cells[0], |r| {
                p.add(r, 1)?;
                p.look(r, 1)
            })
        },
        |_| 1,
    ),
    (
        "if-else",
        |p, r| {
            r.if_else_nonzero(
                &p.cells[0],
                |r| p.add(r, 1),
                |r| {
                    p.add(r, 2)?;
                    p.look(r, 2)?;
                    p.add(r, 3)
                },
            )
        },
        |_| 1,
    ),
    (
        "switch",
        |p, r| {
            r.switch_on(
                &p.cells[0],
                &mut [&mut |r| p.add(r, 1), &mut |r| p.look(r, 1), &mut |r| {
                    p.look(r, 2)?;
                    p.add(r, 3)
                }],
            )
        },
        |_| 1,
    ),
    (
        "branches",
        |p, r| {
            r.parallel(&mut [
                &mut |r| p.add(r, 1),
                &mut |r| {
                    p.add(r, 2)?;
                    p.look(r, 2)?;
                    p.add(r, 2)
                },
                &mut |r| p.add(r, 3),
            ])
        },
        |_| 1,
    ),
    (
        "a loop in a loop",
        |p, r| {
            r.while_nonzero(&p.cells[0], |r| {
                r.record(CopyOp::new(&p.cells[4], &p.cells[0])?)?;
                r.while_nonzero(&p.cells[4], |r| {
                    p.look(r, 4)?;
                    p.add(r, 1)?;
                    p.take(r, 4)
                })?;
                p.take(r, 0)
            })
        },
        |turns| u64::from(turns) + 1,
    ),
    (
        "a loop in a loop, and nothing before it",
        |p, r| {
            r.while_nonzero(&p.cells[0], |r| {
                r.while_nonzero(&p.cells[5], |r| {
                    p.look(r, 5)?;
                    p.take(r, 5)
                })?;
                p.take(r, 0)
            })
        },
        |turns| u64::from(turns) + 1,
    ),
    (
        "a loop whose inner loop is a graph's",
        |p, r| {
            r.while_nonzero(&p.cells[0], |r| {
                r.record(CopyOp::new(&p.cells[4], &p.cells[0])?)?;
                r.while_nonzero(&p.cells[4], |r| {
                    p.add(r, 1)?;
                    p.take(r, 4)
                })?;
                p.look(r, 1)?;
                p.take(r, 0)
            })
        },
        |_| 1,
    ),
    (
        "a branch of a loop",
        |p, r| {
            r.parallel(&mut [
                &mut |r| {
                    r.while_nonzero(&p.cells[0], |r| {
                        p.look(r, 0)?;
                        p.take(r, 0)
                    })
                },
                &mut |r| p.add(r, 2),
            ])
        },
        |_| 2,
    ),
    (
        "branches in a loop",
        |p, r| {
            r.while_nonzero(&p.cells[0], |r| {
                r.parallel(&mut [&mut |r| p.look(r, 0), &mut |r| p.add(r, 1)])?;
                p.take(r, 0)
            })
        },
        |turns| 1 + u64::from(turns),
    ),
    (
        "two loops, of which one looks",
        |p, r| {
            r.while_nonzero(&p.cells[5], |r| {
                p.add(r, 1)?;
                p.take(r, 5)
            })?;
            r.while_nonzero(&p.cells[0], |r| {
                p.look(r, 0)?;
                p.take(r, 0)
            })?;
            r.do_while_nonzero(&p.cells[5], |r| p.add(r, 2))
        },
        |_| 1,
    ),
];

#[test]
fn parts_with_a_section_for_the_host_run_as_they_do_eagerly() {
    let _alone = alone();
    for (name, part, driven) in PARTS {
        let parts = Parts::new();
        let mut replay = replay();
        let step = |r: &mut dyn Recorder| {
            parts.add(r, 3)?;
            part(&parts, r)?;
            parts.add(r, 2)?;
            parts.add(r, 3)
        };
        for (number, turns) in [3, 0, 1, 2, 3, 3, 0].into_iter().enumerate() {
            let case = format!("{name}, call {number}");
            let values = [turns, 10, 20, 30, 0, 2];
            let mut did = None;
            let replayed = parts.after(values, || {
                did = Some(call(&mut replay, &parts.stream, step));
            });
            let eager = parts.after(values, || eagerly(&parts.stream, step));
            assert_eq!(replayed, eager, "{case}");
            let did = did.unwrap();
            assert_eq!(did.host_driven, driven(turns), "{case}: {did:?}");
            if number >= 4 {
                assert_eq!(did.builds + did.updated, 0, "{case}: {did:?}");
            }
            assert_balanced(&replay);
        }
    }
}

#[test]
fn parts_with_a_section_for_the_host_take_other_memory() {
    let _alone = alone();
    for (name, part, _) in PARTS {
        let mut replay = replay();
        let mut builds = 0;
        for number in 0..4 {
            let parts = Parts::new();
            let step = |r: &mut dyn Recorder| {
                parts.add(r, 3)?;
                part(&parts, r)?;
                parts.add(r, 2)
            };
            let values = [2, 10, 20, 30, 0, 2];
            let replayed = parts.after(values, || {
                builds = call(&mut replay, &parts.stream, step).builds;
            });
            let eager = parts.after(values, || eagerly(&parts.stream, step));
            assert_eq!(replayed, eager, "{name}, call {number}");
        }
        assert_eq!(builds, 0, "{name}");
    }
}

#[test]
fn iterations_share_executables() {
    let _alone = alone();
    let parts = Parts::new();
    let mut replay = replay();
    let values = [50, 0, 0, 0, 0, 0];
    let step = |r: &mut dyn Recorder| PARTS[0].1(&parts, r);
    let mut did = None;
    parts.after(values, || {
        did = Some(call(&mut replay, &parts.stream, step))
    });
    let did = did.unwrap();
    assert_eq!((did.launches, did.builds), (100, 2));
    assert_eq!((replay.executables(), replay.counters().hits), (2, 98));
}

/// Closures of a part are called once to find out that the host drives it, and then as they run.
#[test]
fn closures_are_called_as_often_as_they_run() {
    let _alone = alone();
    let stream = stream();
    let counting = Counting::new(&stream);
    let left = word(&stream, 0);
    let mut replay = replay();
    for number in 0..4 {
        set(&stream, &left, 3);
        let mut times = 0;
        call(&mut replay, &stream, |r| {
            r.record(store(&left, 3))?;
            r.while_nonzero(&left, |r| {
                times += 1;
                r.outside(|_| Ok(()))?;
                r.record(add(&left, &counting.minus)).map(drop)
            })
        });
        assert_eq!(times, if number == 0 { 4 } else { 3 });
    }
}

#[test]
fn closures_of_branches_are_called_once_when_it_is_known_that_the_host_runs_them() {
    let stream = stream();
    let to = word(&stream, 0);
    let mut replay = replay();
    for number in 0..4 {
        let mut times = 0;
        call(&mut replay, &stream, |r| {
            r.record(store(&to, number))?;
            r.parallel(&mut [&mut |r| {
                times += 1;
                r.outside(|_| Ok(()))
            }])
        });
        assert_eq!(times, if number == 0 { 2 } else { 1 });
    }
}

/// A loop is a graph's again where no section for the host is in it.
#[test]
fn a_loop_without_a_section_is_not_driven_because_another_was() {
    let _alone = alone();
    let stream = stream();
    let counting = Counting::new(&stream);
    let (left, turns) = (word(&stream, 0), word(&stream, 0));
    let mut replay = replay();
    for number in 0..8 {
        set(&stream, &left, 3);
        set(&stream, &turns, 0);
        let looks = number % 2 == 0;
        let did = call(&mut replay, &stream, |r| {
            r.record(store(&turns, 5))?;
            match looks {
                true => r.while_nonzero(&left, |r| {
                    counting.turn(r, &left, &turns)?;
                    r.outside(|_| Ok(()))
                }),
                false => r.while_nonzero(&left, |r| counting.turn(r, &left, &turns)),
            }
        });
        assert_eq!(read(&stream, &turns), 8);
        assert_eq!(did.host_driven, u64::from(looks), "call {number}");
    }
}

#[test]
fn a_step_that_has_no_section_any_more_is_one_launch_again() {
    let _alone = alone();
    let stream = stream();
    let counting = Counting::new(&stream);
    let (left, turns) = (word(&stream, 0), word(&stream, 0));
    let mut replay = replay();
    for number in 0..6 {
        set(&stream, &left, 3);
        set(&stream, &turns, 0);
        let looks = number < 3;
        let did = call(&mut replay, &stream, |r| {
            r.while_nonzero(&left, |r| {
                counting.turn(r, &left, &turns)?;
                match looks {
                    true => r.outside(|_| Ok(())),
                    false => Ok(()),
                }
            })
        });
        assert_eq!(read(&stream, &turns), 3);
        if number == 5 {
            assert_eq!((did.launches, did.host_driven), (1, 0));
        }
    }
}

/// A host function is for no body of a graph: the host drives the loop, and the function runs in
/// the stream's order.
#[test]
fn a_loop_with_what_no_body_holds_is_driven_by_the_host() {
    let _alone = alone();
    let stream = stream();
    let counting = Counting::new(&stream);
    let (left, turns) = (word(&stream, 0), word(&stream, 0));
    let mut replay = replay();
    for number in 0..4u32 {
        let times = number % 3;
        set(&stream, &left, times);
        set(&stream, &turns, 0);
        let ran = Arc::new(AtomicU32::new(0));
        let runs = ran.clone();
        let op = HostOp::new(move || {
            runs.fetch_add(1, Ordering::SeqCst);
        });
        let did = call(&mut replay, &stream, |r| {
            r.while_nonzero(&left, |r| {
                r.record(op.clone())?;
                counting.turn(r, &left, &turns)
            })?;
            r.record(op.clone()).map(drop)
        });
        stream.synchronize().unwrap();
        assert_eq!(read(&stream, &turns), times);
        assert_eq!(ran.load(Ordering::SeqCst), times + 1, "call {number}");
        assert_eq!(did.host_driven, 1);
    }
}

/// The flag of a loop that was a graph's is set, and another step's body has the section.
#[test]
fn what_was_recorded_of_a_part_that_the_host_drives_is_forgotten() {
    let _alone = alone();
    let stream = stream();
    let (flag, to) = (word(&stream, 1), word(&stream, 0));
    let mut replay = replay();
    for number in 0..4 {
        set(&stream, &to, 0);
        let step = |r: &mut dyn Recorder| {
            r.record(add(&to, &flag))?;
            r.if_nonzero(&flag, |r| {
                r.record(add(&to, &flag))?;
                r.parallel(
                    &mut [&mut |r| r.record(add(&to, &flag)).map(drop), &mut |r| {
                        r.if_nonzero(&flag, |r| r.outside(|_| Ok(())))
                    }],
                )?;
                r.record(add(&to, &flag)).map(drop)
            })?;
            r.record(add(&to, &flag)).map(drop)
        };
        call(&mut replay, &stream, step);
        assert_eq!(read(&stream, &to), 5, "call {number}");
    }
    assert_balanced(&replay);
}

#[test]
fn a_section_that_is_swallowed_in_a_body_has_the_host_drive_it() {
    let _alone = alone();
    let stream = stream();
    let (flag, to) = (word(&stream, 1), word(&stream, 0));
    let mut replay = replay();
    for number in 0..3 {
        let mut ran = 0;
        call(&mut replay, &stream, |r| {
            r.if_nonzero(&flag, |r| {
                // The error of a recorder that builds a graph is no error of the step's.
                let _ = r.outside(|_| {
                    ran += 1;
                    Ok(())
                });
                r.record(store(&to, number)).map(drop)
            })
        });
        assert_eq!((ran, read(&stream, &to)), (1, number));
    }
}

#[test]
fn an_error_in_a_section_or_behind_it_ends_the_call_there() {
    let _alone = alone();
    let stream = stream();
    let counting = Counting::new(&stream);
    let mut replay = replay();
    let to = word(&stream, 0);
    let left = word(&stream, 0);
    for number in 0..3 {
        for fails_at in 0..4 {
            set(&stream, &to, 0);
            set(&stream, &left, 3);
            let mut step = |r: &mut dyn Recorder| {
                let mut at = 0;
                let mut fail = || {
                    at += 1;
                    match at == fails_at {
                        true => Err(failure()),
                        false => Ok(()),
                    }
                };
                r.record(add(&to, &counting.one))?;
                r.outside(|_| fail())?;
                r.record(add(&to, &counting.one))?;
                r.while_nonzero(&left, |r| {
                    r.record(add(&to, &counting.one))?;
                    r.outside(|_| fail())?;
                    r.record(add(&left, &counting.minus)).map(drop)
                })
            };
            let answer = replay.call(&stream, &mut step);
            assert_eq!(answer.is_err(), fails_at > 0);
            let got = read(&stream, &to);
            set(&stream, &to, 0);
            set(&stream, &left, 3);
            let mut eager = cuda_graph::Eager::new(&stream).unwrap();
            let _ = step(&mut eager);
            assert_eq!(got, read(&stream, &to), "call {number} fails at {fails_at}");
        }
    }
}

#[test]
fn a_section_behind_an_error_is_not_reached() {
    let stream = stream();
    let mut replay = replay();
    let to = word(&stream, 0);
    for _ in 0..3 {
        let answer = replay.call(&stream, |r| {
            r.record(store(&to, 5))?;
            r.record(HostOp::new(|| panic!("it never runs")))?;
            Err(failure())?;
            r.outside(|_| panic!("it never runs"))
        });
        assert_failure(answer);
    }
    assert_eq!((read(&stream, &to), replay.counters().launches), (0, 0));
}

#[test]
fn recorders_of_one_graph_refuse_sections() {
    let _alone = alone();
    let stream = stream();
    let flag = word(&stream, 1);
    let outside = |r: &mut dyn Recorder| r.outside(|_| panic!("no graph runs it"));
    let recorded = [
        Graph::record(&context(), |r| outside(r)),
        Graph::record(&context(), |r| r.if_nonzero(&flag, outside)),
        Graph::record(&context(), |r| r.parallel(&mut [&mut |r| outside(r)])),
        Graph::capture(&stream, |r| outside(r)),
    ];
    for recorded in recorded {
        assert!(matches!(recorded, Err(Error::OutsideGraph)), "{recorded:?}");
    }
}

#[test]
fn a_step_object_runs_sections_eagerly() {
    let _alone = alone();
    let stream = stream();
    let (to, flag) = (word(&stream, 0), word(&stream, 1));
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (cell, sees) = (to.clone(), seen.clone());
    let mut step = Step::new(&context(), move |r| {
        r.record(store(&cell, 4))?;
        r.if_nonzero(&flag, |r| {
            r.outside(|stream| {
                sees.lock().unwrap().push(read(stream, &cell));
                Ok(())
            })?;
            r.record(store(&cell, 6)).map(drop)
        })
    })
    .unwrap();
    assert!(matches!(step.why_eager(), Some(Error::OutsideGraph)));
    for _ in 0..2 {
        step.launch(&stream).unwrap();
        assert_eq!(read(&stream, &to), 6);
    }
    assert_eq!(*seen.lock().unwrap(), [4, 4]);
}

/// Sections divide a step: each has executables of its own.
#[test]
fn sections_by_themselves_are_updated_by_themselves() {
    let stream = stream();
    let mut replay: Replay = replay();
    let spare = word(&stream, 0);
    let cells: Vec<_> = (0..4).map(|_| word(&stream, 0)).collect();
    for number in 0..6u32 {
        let changes = number as usize % 3;
        let did = call(&mut replay, &stream, |r| {
            for (section, cell) in cells.iter().enumerate() {
                let value = if section == changes { number } else { 77 };
                r.record(store(cell, 1))?;
                r.record(store(cell, value))?;
                r.record(add(&spare, cell))?;
                r.outside(|_| Ok(()))?;
            }
            Ok(())
        });
        assert_eq!(did.launches, 4);
        assert_eq!(did.builds, if number == 0 { 4 } else { 0 });
        assert_eq!(did.updated, if number == 0 { 0 } else { 2 });
        for (section, cell) in cells.iter().enumerate() {
            let expected = if section == changes { number } else { 77 };
            assert_eq!(read(&stream, cell), expected);
        }
    }
}
