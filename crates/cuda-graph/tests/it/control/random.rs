//! Random programs of nested loops and branches: through a path, a capture, eagerly, and node by
//! node with bodies filled in every way, they compute what an interpreter on the host computes, and
//! do so again when they are launched again with other numbers.
//!
//! `CUDA_GRAPH_RANDOM=n` runs n times as many.

use proptest::prelude::*;

use super::alone;
use super::program::{Act, By, Fill, How, VALUES, Way, agrees};
use crate::random::cases;

/// The cells that programs work on; each loop has one more of its own.
const CELLS: usize = 6;

/// A statement whose cells are told apart once it is known which there are: a number counts among
/// those that it may use.
#[derive(Clone, Debug)]
enum Step {
    Put(usize, i32, How),
    Plus(usize, usize, By),
    /// Ends the loop around it after this turn.
    Stop,
    Loop {
        once_at_least: bool,
        from: usize,
        sign: i32,
        /// Whether a turn is counted at its start or at its end.
        early: bool,
        body: Vec<Step>,
    },
    If(usize, Vec<Step>),
    IfElse(usize, Vec<Step>, Vec<Step>),
    Switch(usize, Vec<Vec<Step>>),
    Side(Vec<Vec<Step>>),
}

fn simple() -> impl Strategy<Value = Step> {
    let cell = || 0..CELLS;
    let how = prop_oneof![Just(How::Kernel), Just(How::Fill), Just(How::Copy)];
    let by = prop_oneof![Just(By::Library), Just(By::OtherCode)];
    prop_oneof![
        4 => (cell(), VALUES, how).prop_map(|(to, value, how)| Step::Put(to, value, how)),
        6 => (cell(), cell(), by).prop_map(|(to, from, by)| Step::Plus(to, from, by)),
        1 => Just(Step::Stop),
    ]
}

fn compound(step: BoxedStrategy<Step>) -> impl Strategy<Value = Step> {
    let cell = || 0..CELLS;
    let block = move |most: usize| prop::collection::vec(step.clone(), 0..=most);
    let sign = prop_oneof![Just(1), Just(-1)];
    let turns = (any::<bool>(), cell(), sign, any::<bool>(), block(5));
    prop_oneof![
        6 => turns.prop_map(|(once_at_least, from, sign, early, body)| Step::Loop {
            once_at_least,
            from,
            sign,
            early,
            body,
        }),
        2 => (cell(), block(3)).prop_map(|(on, then)| Step::If(on, then)),
        2 => (cell(), block(3), block(3))
            .prop_map(|(on, then, otherwise)| Step::IfElse(on, then, otherwise)),
        2 => (cell(), prop::collection::vec(block(2), 1..4))
            .prop_map(|(on, cases)| Step::Switch(on, cases)),
        1 => prop::collection::vec(block(3), 2..4).prop_map(Step::Side),
    ]
}

/// Blocks nested up to three deep.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mut step = simple().boxed();
    for _ in 0..3 {
        step = prop_oneof![1 => simple(), 2 => compound(step.clone())].boxed();
    }
    prop::collection::vec(step, 2..8)
}

/// Settles which cells the steps of a program use.
struct Settling {
    cells: usize,
}

impl Settling {
    /// `scope` are the cells that `steps` may use, `turns` is the count of the loop around them.
    fn settle(&mut self, steps: &[Step], scope: &[usize], turns: Option<usize>) -> Vec<Act> {
        let cell = |number: usize| scope[number % scope.len()];
        let mut acts = Vec::new();
        for step in steps {
            let act = match step {
                Step::Put(to, value, how) => Act::Put {
                    to: cell(*to),
                    value: *value,
                    how: *how,
                },
                Step::Plus(to, from, by) => Act::Plus {
                    to: cell(*to),
                    from: cell(*from),
                    by: *by,
                },
                Step::Stop => match turns {
                    Some(turns) => Act::Put {
                        to: turns,
                        value: 0,
                        how: How::Fill,
                    },
                    None => continue,
                },
                Step::Loop {
                    once_at_least,
                    from,
                    sign,
                    early,
                    body,
                } => {
                    let on = self.cells;
                    self.cells += 1;
                    acts.push(Act::Count {
                        to: on,
                        from: cell(*from),
                        sign: *sign,
                    });
                    let mut body = self.settle(body, scope, Some(on));
                    let at = if *early { 0 } else { body.len() };
                    body.insert(at, Act::Nearer(on));
                    match once_at_least {
                        true => Act::DoWhile { on, body },
                        false => Act::While { on, body },
                    }
                }
                Step::If(on, then) => Act::If {
                    on: cell(*on),
                    then: self.settle(then, scope, turns),
                },
                Step::IfElse(on, then, otherwise) => Act::IfElse {
                    on: cell(*on),
                    then: self.settle(then, scope, turns),
                    otherwise: self.settle(otherwise, scope, turns),
                },
                Step::Switch(on, cases) => Act::Switch {
                    on: cell(*on),
                    cases: cases
                        .iter()
                        .map(|case| self.settle(case, scope, turns))
                        .collect(),
                },
                // Each branch has cells of its own.
                Step::Side(branches) => {
                    let share = scope.len().div_ceil(branches.len());
                    let shares = scope.chunks(share).zip(branches);
                    Act::Side(
                        shares
                            .map(|(scope, branch)| self.settle(branch, scope, None))
                            .collect(),
                    )
                }
            };
            acts.push(act);
        }
        acts
    }
}

fn fill() -> impl Strategy<Value = Fill> {
    prop_oneof![
        Just(Fill::Explicit),
        Just(Fill::Path),
        Just(Fill::Capture),
        Just(Fill::Parts)
    ]
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn programs_agree(
        steps in steps(),
        inputs in prop::collection::vec(prop::collection::vec(-3..5_i32, CELLS), 3),
        fills in prop::collection::vec(fill(), 1..6),
    ) {
        let _alone = alone();
        let mut settling = Settling { cells: CELLS };
        let scope: Vec<usize> = (0..CELLS).collect();
        let acts = settling.settle(&steps, &scope, None);
        let ways = [
            Way::Eager,
            Way::Path,
            Way::Capture,
            Way::Into,
            Way::Explicit(fills),
        ];
        agrees(&acts, settling.cells, &inputs, &ways);
    }
}
