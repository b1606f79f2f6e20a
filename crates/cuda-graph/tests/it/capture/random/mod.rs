//! Random sequences of what programs may and may not do with captures, on a few streams, against a model of what must
//! hold: nothing crashes, every failure is an error of a kind that fits, a capture that is intact ends well and its
//! graph computes what was recorded, a graph that was there before is what it was, and in the end every stream takes
//! new work.
//!
//! The model knows what was recorded in which order. Whether a capture is intact the driver is asked: what invalidates
//! one is told apart by the tests of invalidation.
//!
//! `CUDA_GRAPH_RANDOM=n` runs n times as many cases.

mod held;
mod world;

use proptest::prelude::*;

use super::scene::works;
use crate::random::cases;
use world::World;

/// Streams and captures are named by any number: it is taken modulo how many there are.
#[derive(Clone, Debug)]
enum Step {
    Begin {
        stream: usize,
        into: bool,
    },
    Record {
        capture: usize,
        lane: usize,
        after: usize,
    },
    Launch {
        stream: usize,
        after: usize,
    },
    LaunchInBranch {
        capture: usize,
        lane: usize,
        after: usize,
    },
    Order {
        first: usize,
        then: usize,
    },
    Split {
        capture: usize,
        lane: usize,
    },
    Join {
        capture: usize,
    },
    End {
        capture: usize,
    },
    Drop {
        capture: usize,
        panicking: bool,
    },
    DropBranch {
        capture: usize,
        lane: usize,
    },
    Closure {
        stream: usize,
        leaving: Leaving,
    },
    Synchronize {
        stream: usize,
        elsewhere: bool,
    },
    Query {
        stream: usize,
    },
    Allocate {
        elsewhere: bool,
    },
    EndRaw {
        stream: usize,
    },
}

/// How a closure is left.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    Well,
    WithAnError,
    WithAPanic,
    Spoilt,
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0..12usize;
    let leaving = prop_oneof![
        Just(Leaving::Well),
        Just(Leaving::WithAnError),
        Just(Leaving::WithAPanic),
        Just(Leaving::Spoilt),
    ];
    prop_oneof![
        8 => (number(), prop::bool::weighted(0.3)).prop_map(|(stream, into)| Step::Begin { stream, into }),
        16 => (number(), number(), number()).prop_map(|(capture, lane, after)| Step::Record { capture, lane, after }),
        10 => (number(), number()).prop_map(|(stream, after)| Step::Launch { stream, after }),
        5 => (number(), number(), number())
            .prop_map(|(capture, lane, after)| Step::LaunchInBranch { capture, lane, after }),
        6 => (number(), number()).prop_map(|(first, then)| Step::Order { first, then }),
        5 => (number(), number()).prop_map(|(capture, lane)| Step::Split { capture, lane }),
        8 => number().prop_map(|capture| Step::Join { capture }),
        8 => number().prop_map(|capture| Step::End { capture }),
        2 => (number(), any::<bool>()).prop_map(|(capture, panicking)| Step::Drop { capture, panicking }),
        1 => (number(), number()).prop_map(|(capture, lane)| Step::DropBranch { capture, lane }),
        2 => (number(), leaving).prop_map(|(stream, leaving)| Step::Closure { stream, leaving }),
        1 => (number(), any::<bool>())
            .prop_map(|(stream, elsewhere)| Step::Synchronize { stream, elsewhere }),
        1 => number().prop_map(|stream| Step::Query { stream }),
        1 => any::<bool>().prop_map(|elsewhere| Step::Allocate { elsewhere }),
        1 => number().prop_map(|stream| Step::EndRaw { stream }),
    ]
}

fn live(steps: &[Step]) {
    let mut world = World::new();
    for step in steps {
        world.step(step);
        world.compare();
    }
    while let Some(held) = world.take(steps.len()) {
        let capture = held.capture;
        drop(held);
        world.was_left(capture);
    }
    world.compare();
    let used = world
        .branches
        .iter()
        .chain(world.lines.iter().map(|line| &line.stream));
    for stream in used {
        works(stream, "in the end");
    }
    world.check_base();
    let ran = world.at_once.to_host(&world.check).expect("it is there");
    for &operation in &world.ran {
        assert_eq!(
            ran[operation], world.values[operation],
            "operation {operation}"
        );
    }
    assert_eq!(world.context.check_err(), Ok(()), "cudarc keeps an error");
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn captures_live(steps in prop::collection::vec(step(), 0..120)) {
        live(&steps);
    }
}
