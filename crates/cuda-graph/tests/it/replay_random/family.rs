//! Families of steps: trees of items, whose cells, numbers and sizes are a call's arguments.

use proptest::prelude::*;

/// So many switches there are, which include or leave out parts.
pub const SWITCHES: usize = 4;

/// One item of a step. `slot` tells its arguments from those of other items.
#[derive(Clone, Debug)]
pub enum Item {
    /// A kernel that sets, adds up, or counts in many threads; which of them is an argument.
    /// While the switch is on, it has a launch attribute.
    Kernel { slot: u32, attribute: Option<usize> },
    /// By a memset, or by a kernel while the switch is on.
    Fill { slot: u32, by_kernel: Option<usize> },
    Copy {
        slot: u32,
        sides: Sides,
        /// Whether it may copy nothing.
        may_be_empty: bool,
    },
    /// Goes through memory of its own, which the step lets go of.
    Temporary { slot: u32, is_foreign: bool },
    /// A host function; it is left out in bodies.
    Host { slot: u32 },
    /// An embedded graph. While the switch is on, it has another node.
    Child { slot: u32, more: Option<usize> },
    /// Work of other code. While the switch is on, there is more of it.
    Foreign {
        slot: u32,
        more: Option<usize>,
        may_be_empty: bool,
        bomb: u32,
    },
    /// A branch that fails, which the step takes no notice of.
    Failing { slot: u32 },
    /// A section for the host, which writes what follows from what it reads.
    Outside { slot: u32, bomb: u32 },
    /// A section for the host that reads a cell, and one of two parts.
    Decide {
        slot: u32,
        then: Vec<Item>,
        otherwise: Vec<Item>,
    },
    /// Where a call may fail.
    Bomb(u32),
    Loop {
        slot: u32,
        flag: usize,
        /// While the switch is on, there is one turn at least.
        once_at_least: Option<usize>,
        /// Whether a turn is counted at its start or at its end.
        early: bool,
        body: Vec<Item>,
    },
    /// A branch or a switch, by as many cases as it has.
    Choice {
        slot: u32,
        flag: usize,
        control: Choice,
        cases: Vec<Vec<Item>>,
    },
    /// Side by side, each with cells of its own.
    Side(Vec<Vec<Item>>),
    Part {
        switch: usize,
        then: Vec<Item>,
        otherwise: Vec<Item>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sides {
    Device,
    FromHost,
    ToHost,
}

#[derive(Clone, Copy, Debug)]
pub enum Choice {
    If,
    IfElse,
    Switch,
}

/// A step, and how much of everything it uses.
#[derive(Clone, Debug)]
pub struct Family {
    pub items: Vec<Item>,
    pub slots: u32,
    pub bombs: u32,
    pub flags: usize,
}

impl Family {
    fn new(mut items: Vec<Item>) -> Family {
        let mut family = Family {
            items: Vec::new(),
            slots: 0,
            bombs: 0,
            flags: 0,
        };
        family.number(&mut items);
        family.items = items;
        family
    }

    /// Gives the items their slots, places to fail, and flags.
    fn number(&mut self, items: &mut [Item]) {
        let next = |count: &mut u32| {
            *count += 1;
            *count - 1
        };
        for item in items {
            match item {
                Item::Kernel { slot, .. }
                | Item::Fill { slot, .. }
                | Item::Copy { slot, .. }
                | Item::Temporary { slot, .. }
                | Item::Host { slot }
                | Item::Failing { slot }
                | Item::Child { slot, .. } => *slot = next(&mut self.slots),
                Item::Foreign { slot, bomb, .. } | Item::Outside { slot, bomb } => {
                    *slot = next(&mut self.slots);
                    *bomb = next(&mut self.bombs);
                }
                Item::Decide {
                    slot,
                    then,
                    otherwise,
                } => {
                    *slot = next(&mut self.slots);
                    self.number(then);
                    self.number(otherwise);
                }
                Item::Bomb(bomb) => *bomb = next(&mut self.bombs),
                Item::Loop {
                    slot, flag, body, ..
                } => {
                    *slot = next(&mut self.slots);
                    *flag = self.flags;
                    self.flags += 1;
                    self.number(body);
                }
                Item::Choice {
                    slot, flag, cases, ..
                } => {
                    *slot = next(&mut self.slots);
                    *flag = self.flags;
                    self.flags += 1;
                    cases.iter_mut().for_each(|case| self.number(case));
                }
                Item::Side(branches) => {
                    branches.iter_mut().for_each(|branch| self.number(branch));
                }
                Item::Part {
                    then, otherwise, ..
                } => {
                    self.number(then);
                    self.number(otherwise);
                }
            }
        }
    }
}

/// Items without others inside. `outside` says whether sections for the host are among them.
fn leaf(outside: bool) -> BoxedStrategy<Item> {
    let switch = || prop::option::weighted(0.2, 0..SWITCHES);
    let sides = prop_oneof![
        4 => Just(Sides::Device),
        1 => Just(Sides::FromHost),
        1 => Just(Sides::ToHost),
    ];
    let of_device = prop_oneof![
        12 => switch().prop_map(|attribute| Item::Kernel { slot: 0, attribute }),
        4 => switch().prop_map(|by_kernel| Item::Fill { slot: 0, by_kernel }),
        5 => (sides, prop::bool::weighted(0.1)).prop_map(|(sides, may_be_empty)| Item::Copy {
            slot: 0,
            sides,
            may_be_empty,
        }),
        1 => any::<bool>().prop_map(|is_foreign| Item::Temporary { slot: 0, is_foreign }),
        1 => Just(Item::Host { slot: 0 }),
        2 => switch().prop_map(|more| Item::Child { slot: 0, more }),
        2 => (switch(), prop::bool::weighted(0.1)).prop_map(|(more, may_be_empty)| {
            Item::Foreign {
                slot: 0,
                more,
                may_be_empty,
                bomb: 0,
            }
        }),
        1 => Just(Item::Bomb(0)),
    ];
    match outside {
        true => prop_oneof![
            20 => of_device,
            1 => Just(Item::Outside { slot: 0, bomb: 0 }),
        ]
        .boxed(),
        // What the host drives in vain is not known.
        false => prop_oneof![
            60 => of_device,
            1 => Just(Item::Failing { slot: 0 }),
        ]
        .boxed(),
    }
}

fn compound(item: BoxedStrategy<Item>, outside: bool) -> BoxedStrategy<Item> {
    let block = move |most: usize| prop::collection::vec(item.clone(), 0..=most);
    let choice = |control: Choice, cases: Vec<Vec<Item>>| Item::Choice {
        slot: 0,
        flag: 0,
        control,
        cases,
    };
    let part = (0..SWITCHES, block(3), block(2)).prop_map(|(switch, then, otherwise)| Item::Part {
        switch,
        then,
        otherwise,
    });
    let decide = (block(2), block(2)).prop_map(|(then, otherwise)| Item::Decide {
        slot: 0,
        then,
        otherwise,
    });
    let of_device = prop_oneof![
        4 => (prop::option::of(0..SWITCHES), any::<bool>(), block(4)).prop_map(
            |(once_at_least, early, body)| Item::Loop {
                slot: 0,
                flag: 0,
                once_at_least,
                early,
                body,
            },
        ),
        1 => block(3).prop_map(move |then| choice(Choice::If, vec![then])),
        1 => prop::collection::vec(block(3), 2)
            .prop_map(move |cases| choice(Choice::IfElse, cases)),
        1 => prop::collection::vec(block(2), 1..4)
            .prop_map(move |cases| choice(Choice::Switch, cases)),
        2 => prop::collection::vec(block(3), 1..4).prop_map(Item::Side),
        3 => part,
    ];
    match outside {
        true => prop_oneof![12 => of_device, 1 => decide].boxed(),
        false => of_device.boxed(),
    }
}

fn items(outside: bool) -> impl Strategy<Value = Family> {
    let mut item = leaf(outside);
    for _ in 0..3 {
        item = prop_oneof![
            3 => leaf(outside),
            2 => compound(item.clone(), outside),
        ]
        .boxed();
    }
    prop::collection::vec(item, 1..14).prop_map(Family::new)
}

/// Families, half of them with sections for the host.
pub fn family() -> impl Strategy<Value = Family> {
    prop_oneof![items(false), items(true)]
}
