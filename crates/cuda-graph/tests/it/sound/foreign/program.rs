//! Random programs over a few words.

use proptest::prelude::*;

/// The words that programs work on; each loop has one more of its own.
pub const CELLS: usize = 6;

/// One thing to do. A number is that of a word.
#[derive(Clone, Debug)]
pub enum Act {
    Put {
        to: usize,
        value: u32,
        how: How,
    },
    Plus {
        to: usize,
        from: usize,
    },
    /// Takes a count from 0 to 3 from a word.
    Few {
        to: usize,
        from: usize,
    },
    /// Takes 1 from a word.
    Less(usize),
    Foreign {
        works: Vec<Work>,
        fails: Option<Failing>,
    },
    Flow {
        control: Control,
        on: usize,
        bodies: Vec<Vec<Act>>,
    },
    /// Side by side: no two use the same word.
    Side(Vec<Vec<Act>>),
    /// A loop or branch that is not taken and whose closure fails, or a branch beside others that
    /// fails after what it did.
    Swallow {
        around: Around,
        panics: bool,
        acts: Vec<Act>,
    },
    /// Has something kept.
    Keep,
    /// A launch on the outer stream, outside of all blocks.
    Stray,
}

/// What other code gives to its stream.
#[derive(Clone, Debug)]
pub enum Work {
    Put {
        to: usize,
        value: u32,
    },
    Plus {
        to: usize,
        from: usize,
    },
    Fill {
        to: usize,
        value: u32,
    },
    Copy {
        to: usize,
        from: usize,
    },
    /// In another stream, beside this one, which joins it.
    Fork {
        side: Vec<Work>,
        beside: Vec<Work>,
    },
}

/// Kinds of operations that set a word.
#[derive(Clone, Copy, Debug)]
pub enum How {
    Kernel,
    Fill,
    Copy,
}

#[derive(Clone, Copy, Debug)]
pub enum Control {
    While,
    DoWhile,
    If,
    IfElse,
    Switch,
}

#[derive(Clone, Copy, Debug)]
pub enum Around {
    While,
    If,
    Switch,
    Parallel,
}

/// How a block comes to nothing.
#[derive(Clone, Copy, Debug)]
pub enum Failing {
    /// It returns an error.
    Error,
    /// It returns an error, and leaves a stream unjoined.
    Unjoined,
    /// It waits for its stream, which invalidates a capture, and returns the answer.
    Invalid,
    /// It does so, and does not look at the answer.
    Silent,
    Panic,
}

/// An act whose words are told apart once it is known which there are: a number counts among those
/// that it may use.
#[derive(Clone, Debug)]
pub enum Step {
    Put(usize, u32, How),
    Plus(usize, usize),
    Foreign(Vec<Piece>, Option<Failing>),
    Loop {
        once_at_least: bool,
        from: usize,
        early: bool,
        body: Vec<Step>,
    },
    If(usize, Vec<Step>),
    IfElse(usize, Vec<Step>, Vec<Step>),
    Switch(usize, Vec<Vec<Step>>),
    Side(Vec<Vec<Step>>),
    Swallow(Around, bool, Vec<Step>),
    Keep,
    Stray,
}

/// A work in the same way.
#[derive(Clone, Debug)]
pub enum Piece {
    Put(usize, u32),
    Plus(usize, usize),
    Fill(usize, u32),
    Copy(usize, usize),
    Fork(Vec<Piece>, Vec<Piece>),
}

fn cell() -> std::ops::Range<usize> {
    0..CELLS
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let leaf = || {
        prop_oneof![
            2 => (cell(), 0..4_u32).prop_map(|(to, value)| Piece::Put(to, value)),
            4 => (cell(), cell()).prop_map(|(to, from)| Piece::Plus(to, from)),
            1 => (cell(), 0..4_u32).prop_map(|(to, value)| Piece::Fill(to, value)),
            1 => (cell(), cell()).prop_map(|(to, from)| Piece::Copy(to, from)),
        ]
    };
    let mut piece = leaf().boxed();
    for _ in 0..2 {
        let some = prop::collection::vec(piece, 0..4);
        let fork = (some.clone(), some).prop_map(|(side, beside)| Piece::Fork(side, beside));
        piece = prop_oneof![4 => leaf(), 1 => fork].boxed();
    }
    prop::collection::vec(piece, 0..5)
}

fn simple() -> impl Strategy<Value = Step> {
    let how = prop_oneof![Just(How::Kernel), Just(How::Fill), Just(How::Copy)];
    let failing = prop_oneof![
        Just(Failing::Error),
        Just(Failing::Unjoined),
        Just(Failing::Invalid),
        Just(Failing::Silent),
        Just(Failing::Panic),
    ];
    let failing = prop_oneof![8 => Just(None), 1 => failing.prop_map(Some)];
    prop_oneof![
        12 => (cell(), 0..4_u32, how).prop_map(|(to, value, how)| Step::Put(to, value, how)),
        20 => (cell(), cell()).prop_map(|(to, from)| Step::Plus(to, from)),
        30 => (pieces(), failing).prop_map(|(works, fails)| Step::Foreign(works, fails)),
        4 => Just(Step::Keep),
        5 => Just(Step::Stray),
    ]
}

fn compound(step: BoxedStrategy<Step>) -> impl Strategy<Value = Step> {
    let block = move |most: usize| prop::collection::vec(step.clone(), 0..=most);
    let turns = (any::<bool>(), cell(), any::<bool>(), block(4));
    let around = prop_oneof![
        Just(Around::While),
        Just(Around::If),
        Just(Around::Switch),
        Just(Around::Parallel),
    ];
    prop_oneof![
        6 => turns.prop_map(|(once_at_least, from, early, body)| Step::Loop {
            once_at_least,
            from,
            early,
            body,
        }),
        2 => (cell(), block(3)).prop_map(|(on, then)| Step::If(on, then)),
        2 => (cell(), block(3), block(3))
            .prop_map(|(on, then, otherwise)| Step::IfElse(on, then, otherwise)),
        2 => (cell(), prop::collection::vec(block(2), 1..4))
            .prop_map(|(on, cases)| Step::Switch(on, cases)),
        2 => prop::collection::vec(block(3), 1..4).prop_map(Step::Side),
        1 => (around, any::<bool>(), block(3))
            .prop_map(|(around, panics, steps)| Step::Swallow(around, panics, steps)),
    ]
}

/// Blocks nested up to three deep.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mut step = simple().boxed();
    for _ in 0..3 {
        step = prop_oneof![1 => simple(), 1 => compound(step.clone())].boxed();
    }
    prop::collection::vec(step, 0..7)
}

/// Takes stray launches out.
pub fn without_strays(acts: &mut Vec<Act>) {
    acts.retain(|act| !matches!(act, Act::Stray));
    for act in acts {
        match act {
            Act::Flow { bodies, .. } | Act::Side(bodies) => {
                bodies.iter_mut().for_each(without_strays);
            }
            Act::Swallow { acts, .. } => without_strays(acts),
            _ => {}
        }
    }
}

/// Settles which words the steps of a program use.
pub struct Settling {
    cells: usize,
}

impl Settling {
    pub fn new() -> Settling {
        Settling { cells: CELLS }
    }

    /// How many words a program uses.
    pub fn cells(&self) -> usize {
        self.cells
    }

    pub fn settle_all(&mut self, steps: &[Step]) -> Vec<Act> {
        let scope: Vec<usize> = (0..CELLS).collect();
        self.settle(steps, &scope)
    }

    fn settle(&mut self, steps: &[Step], scope: &[usize]) -> Vec<Act> {
        let cell = |number: usize| scope[number % scope.len()];
        let mut acts = Vec::new();
        for step in steps {
            let mut flow = |control, on: usize, bodies: &[&Vec<Step>]| Act::Flow {
                control,
                on: cell(on),
                bodies: bodies.iter().map(|body| self.settle(body, scope)).collect(),
            };
            let act = match step {
                Step::Put(to, value, how) => Act::Put {
                    to: cell(*to),
                    value: *value,
                    how: *how,
                },
                Step::Plus(to, from) => Act::Plus {
                    to: cell(*to),
                    from: cell(*from),
                },
                Step::Foreign(pieces, fails) => Act::Foreign {
                    works: works(pieces, scope),
                    fails: *fails,
                },
                Step::Loop {
                    once_at_least,
                    from,
                    early,
                    body,
                } => {
                    let on = self.cells;
                    self.cells += 1;
                    acts.push(Act::Few {
                        to: on,
                        from: cell(*from),
                    });
                    if *once_at_least {
                        // A turn takes 1 away, so one is needed.
                        acts.push(Act::Put {
                            to: on,
                            value: 2,
                            how: How::Kernel,
                        });
                    }
                    let mut body = self.settle(body, scope);
                    let at = if *early { 0 } else { body.len() };
                    body.insert(at, Act::Less(on));
                    Act::Flow {
                        control: match once_at_least {
                            true => Control::DoWhile,
                            false => Control::While,
                        },
                        on,
                        bodies: vec![body],
                    }
                }
                Step::If(on, then) => flow(Control::If, *on, &[then]),
                Step::IfElse(on, then, otherwise) => flow(Control::IfElse, *on, &[then, otherwise]),
                Step::Switch(on, cases) => {
                    flow(Control::Switch, *on, &cases.iter().collect::<Vec<_>>())
                }
                Step::Side(branches) => {
                    let share = scope.len().div_ceil(branches.len());
                    let shares = scope.chunks(share).zip(branches);
                    Act::Side(
                        shares
                            .map(|(scope, branch)| self.settle(branch, scope))
                            .collect(),
                    )
                }
                Step::Swallow(around, panics, steps) => Act::Swallow {
                    around: *around,
                    panics: *panics,
                    acts: self.settle(steps, scope),
                },
                Step::Keep => Act::Keep,
                Step::Stray => Act::Stray,
            };
            acts.push(act);
        }
        acts
    }
}

fn works(pieces: &[Piece], scope: &[usize]) -> Vec<Work> {
    let cell = |number: usize| scope[number % scope.len()];
    let mut all = Vec::new();
    for piece in pieces {
        all.push(match piece {
            Piece::Put(to, value) => Work::Put {
                to: cell(*to),
                value: *value,
            },
            Piece::Plus(to, from) => Work::Plus {
                to: cell(*to),
                from: cell(*from),
            },
            Piece::Fill(to, value) => Work::Fill {
                to: cell(*to),
                value: *value,
            },
            Piece::Copy(to, from) => Work::Copy {
                to: cell(*to),
                from: cell(*from),
            },
            // Each has words of its own.
            Piece::Fork(side, beside) if scope.len() > 1 => {
                let (left, right) = scope.split_at(scope.len() / 2);
                Work::Fork {
                    side: works(side, left),
                    beside: works(beside, right),
                }
            }
            Piece::Fork(side, beside) => {
                all.extend(works(side, scope));
                all.extend(works(beside, scope));
                continue;
            }
        });
    }
    all
}
