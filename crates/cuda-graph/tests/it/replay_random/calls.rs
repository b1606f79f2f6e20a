//! The calls of a replay: their arguments, and what happens around them.

use proptest::prelude::*;

use super::family::SWITCHES;

/// What a call gives its step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Args {
    pub seed: u16,
    /// One item has the arguments of another seed.
    pub patch: Option<(u32, u16)>,
    pub switches: [bool; SWITCHES],
    /// Where the call fails, and whether by a panic.
    pub bomb: Option<(u32, bool)>,
}

impl Args {
    /// Argument `which` of the item with this slot, a number below `below`.
    pub fn number(&self, slot: u32, which: u32, below: u32) -> u32 {
        let seed = match self.patch {
            Some((patched, seed)) if patched == slot => seed,
            _ => self.seed,
        };
        let mixed = [u64::from(seed), u64::from(slot), u64::from(which)]
            .into_iter()
            .fold(0x9e37_79b9_7f4a_7c15_u64, |mixed, number| {
                let mixed = (mixed ^ number).wrapping_mul(0xff51_afd7_ed55_8ccd);
                mixed ^ (mixed >> 32)
            });
        (mixed % u64::from(below)) as u32
    }

    /// Whether an item does what it does while its switch is on.
    pub fn is_on(&self, switch: Option<usize>) -> bool {
        switch.is_some_and(|switch| self.switches[switch])
    }
}

/// Which arguments a call has.
#[derive(Clone, Copy, Debug)]
pub enum Pick {
    Fresh(u16),
    Same,
    /// One of a few that come again and again.
    Known(u16),
    /// The same but for one item.
    Patched(u32, u16),
}

#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub pick: Pick,
    pub flip: Option<usize>,
    pub bomb: Option<(u32, bool)>,
    /// The replay is called on another thread.
    pub elsewhere: bool,
    /// It is called in the other stream from now on.
    pub other_stream: bool,
    /// What it computed is looked at before the next call.
    pub is_checked: bool,
    /// Behind it, the replay is run again with parameters of this seed.
    pub rerun: Option<u16>,
}

impl Call {
    /// The arguments of the call behind the one with `last`.
    pub fn next(&self, last: Args, slots: u32, bombs: u32) -> Args {
        let mut args = Args {
            bomb: match self.bomb {
                Some((bomb, panics)) if bombs > 0 => Some((bomb % bombs, panics)),
                _ => None,
            },
            ..last
        };
        match self.pick {
            Pick::Fresh(seed) => (args.seed, args.patch) = (1000 + seed, None),
            Pick::Same => {}
            Pick::Known(seed) => (args.seed, args.patch) = (seed, None),
            Pick::Patched(slot, seed) => args.patch = Some((slot % slots.max(1), seed)),
        }
        if let Some(switch) = self.flip {
            args.switches[switch] ^= true;
        }
        args
    }
}

/// Calls that belong together.
fn burst() -> impl Strategy<Value = Vec<Pick>> {
    let known = || 0..4_u16;
    prop_oneof![
        4 => any::<u16>().prop_map(|seed| vec![Pick::Fresh(seed % 60_000)]),
        1 => (1..4_usize).prop_map(|times| vec![Pick::Same; times]),
        2 => (known(), known(), 1..5_usize).prop_map(|(one, other, times)| {
            [Pick::Known(one), Pick::Known(other)].repeat(times)
        }),
        1 => (known(), known(), known(), 1..3_usize).prop_map(|(a, b, c, times)| {
            [Pick::Known(a), Pick::Known(b), Pick::Known(c)].repeat(times)
        }),
        2 => (any::<u32>(), any::<u16>())
            .prop_map(|(slot, seed)| vec![Pick::Patched(slot, seed)]),
    ]
}

/// At most `most` calls, and mostly nearly so many.
pub fn calls(most: usize) -> impl Strategy<Value = Vec<Call>> {
    let around = (
        prop::option::weighted(0.08, 0..SWITCHES),
        prop::option::weighted(0.06, (any::<u32>(), any::<bool>())),
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.08),
        prop::bool::weighted(0.7),
        prop::option::weighted(0.3, any::<u16>()),
    );
    prop::collection::vec((burst(), prop::collection::vec(around, 12)), 1..=most).prop_map(
        move |bursts| {
            let bursts = bursts.into_iter();
            let calls = bursts.flat_map(|(picks, around)| picks.into_iter().zip(around));
            let call = |(pick, (flip, bomb, elsewhere, other_stream, is_checked, rerun))| Call {
                pick,
                flip,
                bomb,
                elsewhere,
                other_stream,
                is_checked,
                rerun,
            };
            calls.take(most).map(call).collect()
        },
    )
}
