//! Programs made up at random: what they ask of graphs and streams is mostly right, and often not.
//!
//! A program's number is its name and decides all that it does, as long as the driver answers the
//! same. Handles are used only as long as they live: the driver does not know a dead one from
//! another. Each kernel, fill and copy of a graph writes to a word of its own, so that the memory
//! after a launch says which of them ran.
//!
//! `SOFTCUDA_RANDOM` says which programs there are, to search for differences: record a few
//! thousand on a GPU, then in software, and compare the two files.

mod capture;
mod definition;
mod executable;
mod streams;
mod world;

use std::sync::LazyLock;

use super::case::{Case, Line};
use super::fixture::context;
use streams::Streams;
use world::World;

/// How many programs of each kind the record holds.
const RECORDED: usize = 60;
/// How many steps a program has.
const STEPS: usize = 60;

static PROGRAMS: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let numbers = std::env::var("SOFTCUDA_RANDOM").map_or(0..RECORDED, |numbers| {
        let number = |text: &str| text.parse().ok();
        let range = numbers
            .split_once("..")
            .and_then(|(from, to)| Some(number(from)?..number(to)?));
        range.expect("SOFTCUDA_RANDOM is two numbers, such as 0..1000")
    });
    let both = |number: usize| {
        [
            program(format!("random/graphs/{number:05}"), ask_about_graphs),
            program(format!("random/streams/{number:05}"), ask_about_streams),
        ]
    };
    numbers.flat_map(both).collect()
});

fn program(name: String, ask: unsafe fn(&mut Line)) -> Case {
    Case {
        name: name.leak(),
        alone: false,
        devices: 1,
        ask,
    }
}

pub(super) fn programs() -> &'static [Case] {
    &PROGRAMS
}

fn number_of(line: &Line) -> u64 {
    let number = line.name().rsplit('/').next().and_then(|n| n.parse().ok());
    number.expect("the name ends with a number")
}

unsafe fn ask_about_streams(line: &mut Line) {
    context();
    let mut streams = Streams::new(number_of(line), line);
    for _ in 0..STEPS {
        streams.step();
    }
    streams.finish();
}

unsafe fn ask_about_graphs(line: &mut Line) {
    context();
    let mut world = World::new(number_of(line), line);
    for _ in 0..STEPS {
        match world.random.below(40) {
            0..2 => world.creates(),
            2..11 => world.adds(),
            11..13 => world.connects(),
            13 => world.connects_with_data(),
            14 => world.disconnects(),
            15 => world.destroys(),
            16..18 => world.tells(),
            18..20 => world.sets(),
            20..22 => world.asks(),
            22 => world.attributes(),
            23 => world.keeps(),
            24..27 => world.instantiates(),
            27..30 => world.sets_in_executable(),
            30 => world.enables(),
            31..34 => world.updates(),
            34 => world.uploads(),
            35..38 => world.launches(),
            38 => world.captures(),
            _ => world.lets_go(),
        }
    }
}
