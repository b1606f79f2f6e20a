//! A family's step, for any recorder.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::sync::{Arc, PoisonError};

use cuda_graph::cudarc::driver::{CudaStream, LaunchConfig, PushKernelArg};
use cuda_graph::{
    AnyOp, Body, Buffer, ChildOp, CopyOp, Error, FillOp, Graph, HostOp, KernelOp, Recorder, Result,
};

use super::calls::Args;
use super::family::{Choice, Item, Sides};
use super::shapes::{Event, Key};
use super::world::{CELLS, WORDS, World};
use crate::control::kernels::{count, kernels, nearer, plus, put, put_param, put_to};
use crate::fixture::{kernel, one};

/// What a step panics with.
pub struct Bomb;

/// A call of a step.
pub struct Step<'a> {
    pub world: &'a World,
    pub stream: &'a Arc<CudaStream>,
    pub args: Args,
    pub events: RefCell<Vec<Event>>,
}

/// Where items are recorded.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The cells that they may use.
    scope: &'a [usize],
    in_body: bool,
}

impl Step<'_> {
    pub fn record(&self, r: &mut dyn Recorder, items: &[Item], scope: &[usize]) -> Result<()> {
        let in_body = false;
        self.items(r, items, Place { scope, in_body })
    }

    fn note(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }

    /// Records an operation, of this kind in the key of its shape.
    #[track_caller]
    fn put(&self, r: &mut dyn Recorder, key: Key, op: impl Into<AnyOp>) -> Result<()> {
        r.record(op.into())?;
        self.note(Event::Key(key));
        Ok(())
    }

    fn items(&self, r: &mut dyn Recorder, items: &[Item], place: Place<'_>) -> Result<()> {
        items.iter().try_for_each(|item| self.item(r, item, place))
    }

    fn item(&self, r: &mut dyn Recorder, item: &Item, place: Place<'_>) -> Result<()> {
        let (world, args) = (self.world, &self.args);
        let cell = |slot, which| {
            let among = place.scope.len() as u32;
            place.scope[args.number(slot, which, among) as usize]
        };
        let number = |slot, which, below| args.number(slot, which, below);
        let value = |slot, which| number(slot, which, 7) as i32 - 2;
        match item {
            Item::Kernel { slot, attribute } => {
                let to = cell(*slot, 0);
                let op = match number(*slot, 1, 4) {
                    0 => match number(*slot, 5, 4) {
                        0 => put_param(world.word(to), &world.value),
                        // In a branch, others have the other cells.
                        1 if place.scope.len() == CELLS => put_to(&world.target, value(*slot, 2)),
                        _ => put(world.word(to), value(*slot, 2)),
                    },
                    1 => count(world.word(to), world.word(cell(*slot, 3)), 1),
                    2 => plus(world.word(to), world.word(cell(*slot, 3))),
                    _ => bump(world.cell(to), 1 + number(*slot, 4, WORDS as u32)),
                };
                match args.is_on(*attribute) {
                    true => self.put(r, Key::Kernel { attributes: true }, op.priority(-1)),
                    false => self.put(r, Key::Kernel { attributes: false }, op),
                }
            }
            Item::Fill { slot, by_kernel } => {
                let start = number(*slot, 0, WORDS as u32) as usize;
                let end = start + 1 + number(*slot, 1, (WORDS - start) as u32) as usize;
                let to = world.cell(cell(*slot, 2)).slice(start..end)?;
                if !args.is_on(*by_kernel) && number(*slot, 4, 3) == 0 {
                    let value = world.value.clone();
                    r.record_with(move || FillOp::new(&to, value.get()?))?;
                    self.note(Event::Key(Key::Memset));
                    return Ok(());
                }
                match args.is_on(*by_kernel) {
                    true => self.put(r, Key::FillKernel, FillOp::by_kernel(&to, value(*slot, 3))?),
                    false => self.put(r, Key::Memset, FillOp::new(&to, value(*slot, 3))?),
                }
            }
            Item::Copy {
                slot,
                sides,
                may_be_empty,
            } => {
                let words = match may_be_empty {
                    true => number(*slot, 0, 4),
                    false => 1 + number(*slot, 0, WORDS as u32 / 2),
                } as usize;
                let part = |which| {
                    let start = number(*slot, which, (WORDS - words) as u32 + 1) as usize;
                    start..start + words
                };
                let (to, from) = (cell(*slot, 3), cell(*slot, 4));
                let op = match sides {
                    // Its regions do not overlap.
                    Sides::Device if to == from => CopyOp::new(
                        &world.cell(to).slice(..words.min(2))?,
                        &world.cell(from).slice(2..2 + words.min(2))?,
                    )?,
                    Sides::Device => CopyOp::new(
                        &world.cell(to).slice(part(1))?,
                        &world.cell(from).slice(part(2))?,
                    )?,
                    Sides::FromHost => {
                        let size = (words * 4, 1, 1);
                        copy_start(&world.cell(to).slice(part(1))?, world.pinned(from), size)?
                    }
                    Sides::ToHost => {
                        let size = (words * 4, 1, 1);
                        copy_start(world.pinned(to), &world.cell(from).slice(part(2))?, size)?
                    }
                };
                let key = match words {
                    0 => Key::Empty,
                    _ => Key::Copy(*sides),
                };
                self.put(r, key, op)
            }
            Item::Temporary { slot, is_foreign } => {
                let (to, value) = (world.word(cell(*slot, 1)), value(*slot, 0));
                let plain = Key::Kernel { attributes: false };
                if !is_foreign {
                    let memory = Buffer::<i32>::zeroed(self.stream, 1)?;
                    self.put(r, plain, put(&memory, value))?;
                    return self.put(r, plain, plus(to, &memory));
                }
                let memory = Buffer::from_host(self.stream, &[value])?;
                r.keep(memory.owner())?;
                r.keep(to.owner())?;
                // SAFETY: both are parts of buffers that are kept.
                unsafe { r.foreign(|stream| launch_plus(stream, to, &memory)) }?;
                let keys = [Key::Keep, Key::Keep, Key::Foreign { more: false }];
                keys.into_iter().for_each(|key| self.note(Event::Key(key)));
                Ok(())
            }
            Item::Host { .. } if place.in_body => Ok(()),
            Item::Host { slot } => {
                let (pinned, seen) = (world.pinned(cell(*slot, 0)).clone(), world.seen.clone());
                let (slot, value) = (*slot, value(*slot, 1));
                let op = HostOp::new(move || {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    let seen = seen.entry(slot).or_default();
                    seen.push(value);
                    seen.extend(pinned.to_vec());
                });
                self.put(r, Key::Host, op)
            }
            Item::Child { slot, more } => {
                let to = world.word(cell(*slot, 0));
                let graph = Graph::new(r.context())?;
                let first = graph.add(put(to, value(*slot, 1)), ())?;
                let more = args.is_on(*more);
                if more {
                    graph.add(plus(to, world.word(cell(*slot, 2))), first)?;
                }
                self.put(r, Key::Child { more }, ChildOp::new(&graph))
            }
            Item::Foreign {
                slot,
                more,
                may_be_empty,
                bomb,
            } => {
                let (to, from) = (cell(*slot, 0), cell(*slot, 1));
                let (to, from) = (world.word(to), world.word(from));
                for kept in [to, from] {
                    r.keep(kept.owner())?;
                    self.note(Event::Key(Key::Keep));
                }
                let more = args.is_on(*more);
                let is_empty = *may_be_empty && number(*slot, 2, 4) == 0;
                // SAFETY: both are parts of buffers that are kept.
                unsafe {
                    r.foreign(|stream| {
                        if is_empty {
                            return self.bomb(*bomb);
                        }
                        launch_plus(stream, to, from)?;
                        self.bomb(*bomb)?;
                        match more {
                            true => launch_plus(stream, to, to),
                            false => Ok(()),
                        }
                    })
                }?;
                if !is_empty {
                    self.note(Event::Key(Key::Foreign { more }));
                }
                Ok(())
            }
            Item::Failing { slot } => {
                let flag = world.word(cell(*slot, 0));
                let failed = r.if_nonzero(flag, |r| {
                    let fail = |_: &mut dyn Recorder| Err(meant());
                    r.while_nonzero(flag, fail)
                });
                assert!(
                    matches!(failed, Ok(()) | Err(Error::Other(_))),
                    "{failed:?}"
                );
                Ok(())
            }
            Item::Outside { slot, bomb } => self.outside(r, |stream| {
                let read = world.cell(cell(*slot, 0)).to_host(stream)?;
                self.bomb(*bomb)?;
                match read[0] & 1 {
                    0 => launch_plus(
                        stream,
                        world.word(cell(*slot, 1)),
                        world.word(cell(*slot, 2)),
                    ),
                    _ => world.cell(cell(*slot, 1)).copy_from_host(stream, &read),
                }
            }),
            Item::Decide {
                slot,
                then,
                otherwise,
            } => {
                let seen = Cell::new(0);
                self.outside(r, |stream| {
                    seen.set(world.word(cell(*slot, 0)).to_host(stream)?[0]);
                    Ok(())
                })?;
                let part = if seen.get() & 1 == 0 { then } else { otherwise };
                self.items(r, part, place)
            }
            Item::Bomb(bomb) => self.bomb(*bomb),
            Item::Loop {
                slot,
                flag,
                once_at_least,
                early,
                body,
            } => {
                let flag = world.flag(*flag, number(*slot, 0, 2));
                let plain = Key::Kernel { attributes: false };
                self.put(r, plain, put(flag, number(*slot, 1, 3) as i32))?;
                let once_at_least = args.is_on(*once_at_least);
                let record = |r: &mut dyn Recorder| {
                    if *early {
                        self.put(r, plain, nearer(flag))?;
                    }
                    let in_body = true;
                    self.items(r, body, Place { in_body, ..place })?;
                    match *early {
                        true => Ok(()),
                        false => self.put(r, plain, nearer(flag)),
                    }
                };
                let key = match once_at_least {
                    true => Key::DoWhile,
                    false => Key::While,
                };
                self.flow(key, &[&record], |bodies| {
                    let body = &mut *bodies[0];
                    match once_at_least {
                        true => r.do_while_nonzero(flag, body),
                        false => r.while_nonzero(flag, body),
                    }
                })
            }
            Item::Choice {
                slot,
                flag,
                control,
                cases,
            } => {
                // One that is set just before, or a cell.
                let of_cell = number(*slot, 2, 2) == 0;
                let (own, other) = (
                    world.flag(*flag, number(*slot, 0, 2)),
                    world.word(cell(*slot, 1)),
                );
                let plain = Key::Kernel { attributes: false };
                self.put(r, plain, count(own, other, 1))?;
                let flag = if of_cell { other } else { own };
                let record = |case| {
                    let in_body = true;
                    move |r: &mut dyn Recorder| self.items(r, case, Place { in_body, ..place })
                };
                let records: Vec<_> = cases.iter().map(|case| record(case)).collect();
                let records: Vec<&Record<'_>> = records.iter().map(|case| case as _).collect();
                match control {
                    Choice::If => self.flow(Key::If, &records, |bodies| {
                        r.if_nonzero(flag, &mut *bodies[0])
                    }),
                    Choice::IfElse => self.flow(Key::IfElse, &records, |bodies| {
                        let [then, otherwise] = bodies else {
                            unreachable!("there are two")
                        };
                        r.if_else_nonzero(flag, &mut **then, &mut **otherwise)
                    }),
                    Choice::Switch => {
                        self.flow(Key::Switch, &records, |bodies| r.switch_on(flag, bodies))
                    }
                }
            }
            Item::Side(branches) => {
                let share = place.scope.len().div_ceil(branches.len());
                let shares = place.scope.chunks(share).zip(branches);
                let record = |(scope, branch): (_, &'_ Vec<Item>)| {
                    let branch = branch.clone();
                    move |r: &mut dyn Recorder| self.items(r, &branch, Place { scope, ..place })
                };
                let records: Vec<_> = shares.map(record).collect();
                let records: Vec<&Record<'_>> = records.iter().map(|branch| branch as _).collect();
                self.flow(Key::Fork, &records, |bodies| r.parallel(bodies))
            }
            Item::Part {
                switch,
                then,
                otherwise,
            } => {
                let part = match args.switches[*switch] {
                    true => then,
                    false => otherwise,
                };
                self.items(r, part, place)
            }
        }
    }

    /// Fails, if it is to fail here.
    fn bomb(&self, bomb: u32) -> Result<()> {
        match self.args.bomb {
            Some((here, panics)) if here == bomb => {
                self.note(Event::Fail);
                if panics {
                    let bomb: Box<dyn Any + Send> = Box::new(Bomb);
                    resume_unwind(bomb);
                }
                Err(meant())
            }
            _ => Ok(()),
        }
    }

    fn outside(
        &self,
        r: &mut dyn Recorder,
        mut work: impl FnMut(&Arc<CudaStream>) -> Result<()>,
    ) -> Result<()> {
        let done = r.outside(|stream| {
            self.note(Event::Outside);
            work(stream)
        });
        if matches!(done, Err(Error::OutsideGraph)) {
            self.note(Event::Refused);
        }
        done
    }

    /// Records a loop, branch or parallel part, and notes which bodies are called.
    fn flow(
        &self,
        key: Key,
        records: &[&Record<'_>],
        take: impl FnOnce(&mut [&mut Body<'_>]) -> Result<()>,
    ) -> Result<()> {
        self.note(Event::Flow(key, records.len()));
        let closures = records.iter().enumerate().map(|(index, record)| {
            move |r: &mut dyn Recorder| {
                self.note(Event::Body(index));
                let recorded = record(r);
                self.note(Event::BodyOver);
                recorded
            }
        });
        let mut closures: Vec<_> = closures.collect();
        let mut bodies: Vec<&mut Body<'_>> = Vec::new();
        for closure in &mut closures {
            bodies.push(closure);
        }
        let taken = take(&mut bodies);
        let is_refused = matches!(taken, Err(Error::OutsideGraph));
        self.note(Event::FlowOver { is_refused });
        taken
    }
}

/// The error of a step that is to fail.
fn meant() -> Error {
    Error::other(std::io::Error::other("as meant"))
}

type Record<'a> = dyn Fn(&mut dyn Recorder) -> Result<()> + 'a;

/// Adds 1 to the first `words` words of `to`, in blocks of one thread.
#[track_caller]
fn bump(to: &Buffer<i32>, words: u32) -> KernelOp {
    let config = LaunchConfig {
        grid_dim: (words, 1, 1),
        ..one()
    };
    // SAFETY: `bump` writes as many words as it is told, and there are at least so many.
    unsafe { KernelOp::new(kernel("bump"), config, (to, words)) }.expect("the arguments fit")
}

/// Copies the first bytes of `from` to the start of `to`.
#[track_caller]
fn copy_start(
    to: impl cuda_graph::Target,
    from: impl cuda_graph::Source,
    size: (usize, usize, usize),
) -> Result<CopyOp> {
    let rows = cuda_graph::Pitched::default();
    CopyOp::volume(to, rows, from, rows, size)
}

/// Has the device compute `plus` through cudarc alone.
fn launch_plus(stream: &Arc<CudaStream>, to: &Buffer<i32>, from: &Buffer<i32>) -> Result<()> {
    let (to, from) = (to.address(), from.address());
    let mut launch = stream.launch_builder(&kernels().plus_function);
    launch.arg(&to).arg(&from);
    // SAFETY: `plus` reads and writes one word of each.
    unsafe { launch.launch(one()) }?;
    Ok(())
}
