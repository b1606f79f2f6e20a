//! Random programs, and the arguments of their calls.

use super::super::random::Random;

/// So many loops and branches may be inside each other.
pub const DEPTH: usize = 3;
/// So many switches there are, which include or leave out parts.
pub const SWITCHES: usize = 3;

/// What an operation is. Its operands and numbers are arguments of the call.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Kernel,
    Fill,
    Copy,
    CopyIn,
    CopyOut,
    Host,
}

/// A part of a program. The numbers are *slots*, which tell the arguments of one item from those of
/// others.
#[derive(Debug)]
pub enum Item {
    Op(usize, Kind),
    /// An embedded graph. Its nodes come one after the other, or after those that they must.
    Child {
        in_line: bool,
        ops: Vec<(usize, Kind)>,
    },
    /// Work of other code.
    Foreign(usize),
    Loop {
        slot: usize,
        /// There is one turn at least.
        is_do: bool,
        /// The turn is counted before the body and not behind it.
        is_early: bool,
        body: Vec<Item>,
    },
    /// A branch or a switch.
    Branch(usize, Choice, Vec<Vec<Item>>),
    /// Side by side, each with cells of its own.
    Side(Vec<Vec<Item>>),
    /// A section for the host.
    Outside(usize),
    /// Where the program may stop.
    Checkpoint(usize),
    /// What is there while a switch is on.
    Part(usize, Vec<Item>),
}

#[derive(Clone, Copy, Debug)]
pub enum Choice {
    If,
    IfElse,
    Switch,
}

/// A random program.
pub struct Program {
    pub items: Vec<Item>,
    slots: usize,
    /// Whether there may be sections for the host, which cut it into several executables.
    pub outside: bool,
}

impl Program {
    pub fn new(random: &mut Random) -> Program {
        let mut maker = Maker {
            outside: random.one_in(5),
            random,
            // One at least, also where there is nothing but an embedded graph of nothing.
            slots: 1,
            has_stops: false,
        };
        let at = Where {
            depth: 0,
            is_top: true,
            is_plain: maker.random.one_in(3),
        };
        Program {
            items: maker.items(12, at),
            slots: maker.slots,
            outside: maker.outside,
        }
    }
}

/// Makes programs.
struct Maker<'a> {
    random: &'a mut Random,
    slots: usize,
    outside: bool,
    /// Whether there was a checkpoint. What is behind one is a body, where no host function may be.
    has_stops: bool,
}

/// Where items are.
#[derive(Clone, Copy)]
struct Where {
    depth: usize,
    /// In no body, and beside nothing.
    is_top: bool,
    /// Of kernels and what becomes kernels, so that loops can be unrolled.
    is_plain: bool,
}

impl Maker<'_> {
    fn slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    fn items(&mut self, most: usize, at: Where) -> Vec<Item> {
        let count = 1 + self.random.below(most);
        (0..count).map(|_| self.item(at)).collect()
    }

    fn kind(&mut self, at: Where) -> Kind {
        match self.random.below(if at.is_plain { 12 } else { 16 }) {
            0..8 => Kind::Kernel,
            8..10 => Kind::Fill,
            10..13 => Kind::Copy,
            13 => Kind::CopyIn,
            14 => Kind::CopyOut,
            _ if at.is_top && !self.has_stops => Kind::Host,
            _ => Kind::Kernel,
        }
    }

    fn item(&mut self, at: Where) -> Item {
        let may_nest = at.depth < DEPTH;
        let inner = Where {
            depth: at.depth + 1,
            is_top: false,
            is_plain: at.is_plain || self.random.one_in(2),
        };
        match self.random.below(24) {
            0 | 1 => {
                let at = Where {
                    is_top: false,
                    ..at
                };
                let count = self.random.below(5);
                Item::Child {
                    in_line: self.random.one_in(2),
                    ops: (0..count).map(|_| (self.slot(), self.kind(at))).collect(),
                }
            }
            2 if !at.is_plain => Item::Foreign(self.slot()),
            3..6 if may_nest => Item::Loop {
                slot: self.slot(),
                is_do: self.random.one_in(2),
                is_early: self.random.one_in(3),
                body: self.items(4, inner),
            },
            6 if may_nest && !at.is_plain => {
                let (choice, cases) = match self.random.below(3) {
                    0 => (Choice::If, 1),
                    1 => (Choice::IfElse, 2),
                    _ => (Choice::Switch, 1 + self.random.below(3)),
                };
                let slot = self.slot();
                let cases = (0..cases).map(|_| self.items(3, inner)).collect();
                Item::Branch(slot, choice, cases)
            }
            7 => {
                // Flags are there once for each depth, so one of them alone has loops.
                let count = 1 + self.random.below(3);
                let branch = |number| Where {
                    depth: if number == 0 { at.depth } else { DEPTH },
                    is_top: false,
                    ..at
                };
                Item::Side((0..count).map(|at| self.items(3, branch(at))).collect())
            }
            8 if self.outside && !at.is_plain => Item::Outside(self.slot()),
            9 if at.is_top => {
                self.has_stops = true;
                Item::Checkpoint(self.slot())
            }
            10 | 11 => {
                let switch = self.random.below(SWITCHES);
                Item::Part(switch, self.items(2, at))
            }
            _ => Item::Op(self.slot(), self.kind(at)),
        }
    }
}

/// What a call gives its program.
#[derive(Clone, Debug)]
pub struct Args {
    /// By the item's slot.
    seeds: Vec<u64>,
    pub switches: [bool; SWITCHES],
}

impl Args {
    /// Those of a first call.
    pub fn new(random: &mut Random, program: &Program) -> Args {
        Args {
            seeds: (0..program.slots)
                .map(|_| u64::from(random.word()))
                .collect(),
            switches: std::array::from_fn(|_| random.one_in(2)),
        }
    }

    /// Argument `which` of an item, a number below `below`.
    pub fn number(&self, slot: usize, which: u64, below: usize) -> usize {
        Random::new(self.seeds[slot] * 64 + which).below(below)
    }

    /// The arguments of a call behind the one with these.
    pub fn next(&self, random: &mut Random, known: &[Args]) -> Args {
        let mut next = self.clone();
        let slots = next.seeds.len();
        match random.below(8) {
            0 => {}
            1 => next = known[random.below(known.len())].clone(),
            2 => next.seeds.fill_with(|| u64::from(random.word())),
            _ => {
                for _ in 0..1 + random.below(3) {
                    next.seeds[random.below(slots)] = u64::from(random.word());
                }
            }
        }
        if random.one_in(6) {
            next.switches[random.below(SWITCHES)] ^= true;
        }
        next
    }
}
