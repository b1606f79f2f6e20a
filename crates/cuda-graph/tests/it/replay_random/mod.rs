//! Random steps, called again and again through a [`Replay`] with other arguments: each call leaves
//! what an [`Eager`] leaves that runs the same step, and no more executables are built than there
//! were shapes.
//!
//! `CUDA_GRAPH_RANDOM=n` runs n times as many families, and each up to 25 times as often.

mod calls;
mod family;
mod found;
mod shapes;
mod step;
mod world;

use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Eager, Error, Replay, ReplayOptions, Result};
use proptest::prelude::*;

use crate::control::kernels::kernels;
use crate::fixture::{alone, context, function, stream};
use crate::random::cases;
use calls::{Args, Call, calls};
use family::{Family, SWITCHES, family};
use shapes::{Event, Sections, Shape};
use step::{Bomb, Step};
use world::{CELLS, World};

/// How a call ended.
#[derive(Debug, PartialEq)]
enum Ended {
    Well,
    AsMeant,
}

/// A family that is called.
struct Calling<'a> {
    family: &'a Family,
    streams: [Arc<CudaStream>; 2],
    /// Where the replay computes, and where the eager steps do.
    replayed: World,
    eager: World,
    replay: Replay,
    shapes: HashSet<Shape>,
    /// Whether all shapes are known.
    are_known: bool,
}

impl Calling<'_> {
    /// Calls the step through the replay. Gives what it did, too.
    fn replay(&mut self, args: Args, call: &Call, stream: usize) -> (Ended, Vec<Event>) {
        let (family, stream) = (self.family, &self.streams[stream]);
        let (world, replay) = (&self.replayed, &mut self.replay);
        let mut run = || {
            let step = Step {
                world,
                stream,
                args,
                events: RefCell::default(),
            };
            let record = |r: &mut dyn cuda_graph::Recorder| {
                step.record(r, &family.items, &std::array::from_fn::<_, CELLS, _>(|i| i))
            };
            let called = catch_unwind(AssertUnwindSafe(|| replay.call(stream, record)));
            (
                ended(called.map(|called| called.map(drop))),
                step.events.take(),
            )
        };
        match call.elsewhere {
            true => std::thread::scope(|scope| scope.spawn(run).join())
                .unwrap_or_else(|panic| resume_unwind(panic)),
            false => run(),
        }
    }

    /// Runs the step eagerly.
    fn run(&self, args: Args, stream: usize) -> Result<()> {
        let stream = &self.streams[stream];
        let step = Step {
            world: &self.eager,
            stream,
            args,
            events: RefCell::default(),
        };
        let scope: Vec<usize> = (0..CELLS).collect();
        step.record(&mut Eager::new(stream)?, &self.family.items, &scope)
    }

    fn call(&mut self, args: Args, call: &Call, stream: usize) {
        for world in [&self.replayed, &self.eager] {
            world.set_params(args.seed);
        }
        let driven = self.replay.counters().host_driven;
        let (ended, events) = self.replay(args, call, stream);
        let sections = Sections::of(events, self.replay.counters().host_driven - driven);
        let some_ran = sections.some_ran;
        self.are_known &= sections.are_known;
        self.shapes.extend(sections.shapes);
        match ended {
            Ended::Well => {
                self.run(args, stream).expect("it runs eagerly too");
                if let Some(seed) = call.rerun {
                    self.rerun(args, seed, stream);
                }
            }
            // What came before a section for the host ran, and the eager step did not.
            Ended::AsMeant if some_ran => {
                let contents = self.replayed.read(&self.streams[stream]);
                self.eager.write(&self.streams[stream], &contents);
            }
            Ended::AsMeant => self.check(stream),
        }
        let counters = self.replay.counters();
        assert_eq!(counters.eager, 0, "{:?}", self.replay.why_eager());
        if self.are_known {
            let most = self.shapes.len() as u64 + counters.evictions;
            assert!(counters.builds <= most, "{most} shapes: {counters:?}");
        }
    }

    /// Runs the last call again with other values of the parameters, if it can be.
    fn rerun(&mut self, args: Args, seed: u16, stream: usize) {
        let (value, target) = self.replayed.params(seed);
        let bound = [
            self.replay.bind(&self.replayed.value, value),
            self.replay.bind(&self.replayed.target, target),
        ];
        for bound in bound {
            let is_unused = matches!(bound, Err(Error::UnusedParam { .. }));
            assert!(bound.is_ok() || is_unused, "{bound:?}");
        }
        self.replayed.set_params(seed);
        match self.replay.run(&self.streams[stream]) {
            Ok(_) => {
                self.eager.set_params(seed);
                self.run(args, stream).expect("it runs eagerly too");
            }
            Err(Error::NotCalled { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn check(&self, stream: usize) {
        let stream = &self.streams[stream];
        assert_eq!(self.replayed.read(stream), self.eager.read(stream));
    }
}

/// Whether a call ended well, or as it was meant to fail. It ends in no other way.
fn ended(called: std::thread::Result<Result<()>>) -> Ended {
    match called {
        Ok(Ok(())) => Ended::Well,
        Ok(Err(Error::Other(_))) => Ended::AsMeant,
        Ok(Err(error)) => panic!("{error}"),
        Err(panic) if panic.is::<Bomb>() => Ended::AsMeant,
        Err(panic) => resume_unwind(panic),
    }
}

/// Counts for whoever runs many.
static FAMILIES: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

fn check(family: &Family, calls: &[Call], options: ReplayOptions) {
    // They are loaded before anything is captured.
    kernels();
    function("bump");
    let streams = [stream(), stream()];
    let mut calling = Calling {
        family,
        replayed: World::new(&streams[0], family.flags),
        eager: World::new(&streams[0], family.flags),
        streams,
        replay: Replay::with_options(&context(), options).expect("it needs nothing"),
        shapes: HashSet::new(),
        are_known: true,
    };
    let mut args = Args {
        seed: 0,
        patch: None,
        switches: [false; SWITCHES],
        bomb: None,
    };
    let mut stream = 0;
    for (number, call) in calls.iter().enumerate() {
        if call.other_stream {
            calling.check(stream);
            stream = 1 - stream;
        }
        args = call.next(args, family.slots, family.bombs);
        let checked = catch_unwind(AssertUnwindSafe(|| {
            calling.call(args, call, stream);
            if call.is_checked || number + 1 == calls.len() {
                calling.check(stream);
            }
        }));
        if let Err(panic) = checked {
            eprintln!("call {number} fails: {args:?}");
            resume_unwind(panic);
        }
    }
    let families = FAMILIES.fetch_add(1, Ordering::Relaxed) + 1;
    let calls = CALLS.fetch_add(calls.len() as u64, Ordering::Relaxed) + calls.len() as u64;
    if times() > 1 && families.is_multiple_of(100) {
        let counters = calling.replay.counters();
        println!("{families} families, {calls} calls, the last: {counters:?}");
    }
}

/// How many times more are asked for.
fn times() -> usize {
    let times = std::env::var("CUDA_GRAPH_RANDOM");
    times.map_or(1, |times| times.parse().expect("it is a number"))
}

fn options() -> impl Strategy<Value = ReplayOptions> {
    let executables = prop_oneof![3 => Just(10_000), 1 => Just(16), 1 => 0..5_usize];
    let bytes = prop_oneof![4 => Just(u64::MAX), 1 => 0..400_u64];
    (executables, bytes).prop_map(|(executables, bytes)| ReplayOptions {
        executables,
        bytes,
        ..ReplayOptions::default()
    })
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn calls_agree_with_eager_steps(
        family in family(),
        calls in calls(40 * times().min(25)),
        options in options(),
    ) {
        let _alone = alone();
        check(&family, &calls, options);
    }
}
