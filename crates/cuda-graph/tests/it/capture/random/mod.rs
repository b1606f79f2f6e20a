//! Random sequences of what programs may and may not do with recordings, on a few streams, against
//! a model of what must hold: nothing crashes, every failure is an error of a kind that fits, a
//! recording that is intact ends well and its graph computes what was recorded, stray work fails
//! it, a graph that was there before is what it was, and in the end every stream takes new work.
//!
//! The model knows what was recorded in which order, and which recordings stray work has reached.
//! Whether a capture was invalidated the driver is asked: what invalidates one is told apart by the
//! tests of invalidation.
//!
//! `CUDA_GRAPH_RANDOM=n` runs n times as many cases.

mod recorded;
mod world;

use proptest::prelude::*;

use super::scene::works;
use crate::random::cases;
use world::World;

/// Streams and recordings are named by any number: it is taken modulo how many there are.
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
    /// A foreign block.
    Block {
        capture: usize,
        lane: usize,
        acts: Vec<Act>,
        leaving: Leaving,
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
    /// A whole recording.
    Closure {
        stream: usize,
        acts: Vec<Act>,
        leaving: Leaving,
    },
    /// What other code does meanwhile, outside of blocks.
    Act(Act),
}

/// What other code does. In a block, stream 0 is that of the block.
#[derive(Clone, Debug)]
enum Act {
    Launch { stream: usize, after: usize },
    Order { first: usize, then: usize },
    Synchronize { stream: usize, elsewhere: bool },
    Query { stream: usize },
    Allocate { elsewhere: bool },
    EndRaw { stream: usize },
}

/// How a closure or a block is left.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaving {
    Well,
    WithAnError,
    WithAPanic,
    /// By a guard that is dropped, or ended.
    ByGuard {
        ended: bool,
    },
}

fn number() -> std::ops::Range<usize> {
    0..12
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => (number(), number()).prop_map(|(stream, after)| Act::Launch { stream, after }),
        8 => (number(), number()).prop_map(|(first, then)| Act::Order { first, then }),
        1 => (number(), any::<bool>())
            .prop_map(|(stream, elsewhere)| Act::Synchronize { stream, elsewhere }),
        1 => number().prop_map(|stream| Act::Query { stream }),
        1 => any::<bool>().prop_map(|elsewhere| Act::Allocate { elsewhere }),
        1 => number().prop_map(|stream| Act::EndRaw { stream }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let leaving = || {
        prop_oneof![
            4 => Just(Leaving::Well),
            1 => Just(Leaving::WithAnError),
            1 => Just(Leaving::WithAPanic),
            1 => Just(Leaving::ByGuard { ended: false }),
            2 => Just(Leaving::ByGuard { ended: true }),
        ]
    };
    // Most blocks launch alone, in one stream.
    let launch = (Just(0), number()).prop_map(|(stream, after)| Act::Launch { stream, after });
    let acts = prop_oneof![
        2 => prop::collection::vec(launch, 0..4),
        1 => prop::collection::vec(act(), 0..6),
    ];
    let acts = acts.boxed();
    prop_oneof![
        8 => (number(), prop::bool::weighted(0.3))
            .prop_map(|(stream, into)| Step::Begin { stream, into }),
        16 => (number(), number(), number())
            .prop_map(|(capture, lane, after)| Step::Record { capture, lane, after }),
        12 => (number(), number(), acts.clone(), leaving())
            .prop_map(|(capture, lane, acts, leaving)| Step::Block { capture, lane, acts, leaving }),
        5 => (number(), number()).prop_map(|(capture, lane)| Step::Split { capture, lane }),
        8 => number().prop_map(|capture| Step::Join { capture }),
        8 => number().prop_map(|capture| Step::End { capture }),
        2 => (number(), any::<bool>())
            .prop_map(|(capture, panicking)| Step::Drop { capture, panicking }),
        1 => (number(), number()).prop_map(|(capture, lane)| Step::DropBranch { capture, lane }),
        3 => (number(), acts, leaving())
            .prop_map(|(stream, acts, leaving)| Step::Closure { stream, acts, leaving }),
        5 => act().prop_map(Step::Act),
    ]
}

fn live(steps: &[Step]) {
    let mut world = World::new();
    for step in steps {
        world.step(step);
        world.compare();
    }
    world.end_all();
    world.compare();
    for stream in &world.streams {
        works(stream, "in the end");
    }
    world.check_base();
    world.check_ran();
    assert_eq!(world.context.check_err(), Ok(()), "cudarc keeps an error");
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn recordings_live(steps in prop::collection::vec(step(), 0..100)) {
        live(&steps);
    }
}
