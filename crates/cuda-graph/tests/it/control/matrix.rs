//! Every kind of loop and branch, taken and not, alone and inside each other, filled in every way,
//! launched again with other flags.

use cuda_graph::{Graph, Path};

use super::alone;
use super::program::{Act, By, How, Memory, agrees, every_way, record};
use crate::fixture::stream;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    While,
    DoWhile,
    If,
    IfElse,
    Switch,
}

const KINDS: [Kind; 5] = [
    Kind::While,
    Kind::DoWhile,
    Kind::If,
    Kind::IfElse,
    Kind::Switch,
];

// The cells of these programs: what is given to them, what they count with, what they add up, and a
// flag for each level.
const INPUT: usize = 0;
const ONE: usize = 1;
const TEN: usize = 2;
const SUM: usize = 3;
const OTHER: usize = 4;
const FLAG: usize = 5;

/// What is given, 1 and 10.
fn given(inputs: impl IntoIterator<Item = i32>) -> Vec<Vec<i32>> {
    inputs.into_iter().map(|input| vec![input, 1, 10]).collect()
}

fn adds(to: usize, from: usize) -> Act {
    let by = By::Library;
    Act::Plus { to, from, by }
}

impl Kind {
    /// A loop or branch by cell `on`, with `body` where it is decided for. A loop ends.
    fn around(self, on: usize, mut body: Vec<Act>) -> Act {
        match self {
            Kind::While | Kind::DoWhile => {
                body.push(Act::Nearer(on));
                match self {
                    Kind::While => Act::While { on, body },
                    _ => Act::DoWhile { on, body },
                }
            }
            Kind::If => Act::If { on, then: body },
            Kind::IfElse => Act::IfElse {
                on,
                then: body,
                otherwise: vec![adds(OTHER, TEN)],
            },
            Kind::Switch => Act::Switch {
                on,
                cases: vec![vec![adds(OTHER, ONE)], body, vec![]],
            },
        }
    }
}

#[test]
fn each_kind_is_taken_or_not_and_again_with_other_flags() {
    let _alone = alone();
    let flags = [0, 1, 2, 3, 4, -1, -2, 0];
    for kind in KINDS {
        let acts = [
            adds(FLAG, INPUT),
            kind.around(FLAG, vec![adds(SUM, ONE)]),
            adds(SUM, TEN),
        ];
        let bodies = agrees(&acts, 6, &given(flags), &every_way());
        let expected = match kind {
            Kind::While => [0, 1, 2, 3, 4, 1, 2, 0],
            Kind::DoWhile => [1, 1, 2, 3, 4, 1, 2, 1],
            Kind::If => [0, 1, 1, 1, 1, 1, 1, 0],
            Kind::IfElse => [1; 8],
            Kind::Switch => [1, 1, 1, 0, 0, 0, 0, 1],
        };
        assert_eq!(bodies, expected, "{kind:?}");
    }
}

#[test]
fn a_switch_has_one_case_or_many_and_none_for_any_other_number() {
    let _alone = alone();
    for count in [1, 2, 9] {
        let case = |number: i32| {
            let put = Act::Put {
                to: OTHER,
                value: number % 5,
                how: How::Kernel,
            };
            vec![put, adds(SUM, TEN)]
        };
        let acts = [Act::Switch {
            on: INPUT,
            cases: (0..count).map(case).collect(),
        }];
        let flags = [0, 1, 7, 8, 9, 10, -1, -9, i32::MIN, i32::MAX];
        let bodies = agrees(&acts, 5, &given(flags), &every_way());
        let taken = |flag: &i32| u32::from((0..count).contains(flag));
        assert_eq!(bodies, flags.iter().map(taken).collect::<Vec<_>>());
    }
}

#[test]
fn loops_run_thousands_of_times() {
    let _alone = alone();
    let turns = [2000, 0, -1500, 1];
    for (kind, least) in [(Kind::While, 0), (Kind::DoWhile, 1)] {
        let acts = [kind.around(INPUT, vec![adds(SUM, ONE)])];
        let bodies = agrees(&acts, 4, &given(turns), &every_way());
        let expected = turns.map(|turns| turns.unsigned_abs().max(least));
        assert_eq!(bodies, expected, "{kind:?}");
        // With a branch in each turn, and a loop of few turns.
        let inner = vec![
            Act::Count {
                to: FLAG,
                from: INPUT,
                sign: -1,
            },
            Kind::IfElse.around(FLAG, vec![adds(SUM, ONE)]),
            Kind::While.around(FLAG, vec![adds(SUM, TEN)]),
        ];
        agrees(
            &[kind.around(INPUT, inner)],
            6,
            &given([300, -100]),
            &every_way(),
        );
    }
}

/// A program of `kinds`, each inside the one before. The flag of each is what that of the one
/// around it is at the time.
fn nested(kinds: &[Kind], from: usize, flag: usize) -> Vec<Act> {
    let Some((&kind, inner)) = kinds.split_first() else {
        return vec![adds(SUM, ONE)];
    };
    let first = Act::Count {
        to: flag,
        from,
        sign: if flag.is_multiple_of(2) { -1 } else { 1 },
    };
    let mut body = nested(inner, flag, flag + 1);
    body.insert(0, adds(OTHER, flag));
    vec![first, kind.around(flag, body), adds(OTHER, ONE)]
}

fn nest(kinds: &[Kind]) -> Vec<u32> {
    let acts = nested(kinds, INPUT, FLAG);
    agrees(&acts, FLAG + kinds.len(), &given(0..4), &every_way())
}

#[test]
fn every_kind_holds_every_kind() {
    let _alone = alone();
    for outer in KINDS {
        for inner in KINDS {
            let bodies = nest(&[outer, inner]);
            // How often an inner loop turns depends on the outer one's turn.
            if (outer, inner) == (Kind::While, Kind::While) {
                assert_eq!(bodies, [0, 2, 5, 9]);
            }
        }
    }
}

#[test]
fn three_levels_of_every_kind() {
    let _alone = alone();
    for first in KINDS {
        for second in KINDS {
            for third in KINDS {
                nest(&[first, second, third]);
            }
        }
    }
}

#[test]
fn nested_deep() {
    use Kind::{DoWhile, If, IfElse, Switch, While};
    let _alone = alone();
    let bodies = nest(&[While, If, If, If, If]);
    assert_eq!(bodies, [0, 5, 10, 15]);
    nest(&[While, While, While, While]);
    nest(&[If, Switch, IfElse, DoWhile, If, While, IfElse]);
}

#[test]
fn loops_beside_each_other_and_branches_inside() {
    let _alone = alone();
    // Four cells for each of the branches, after those that are given.
    let branch = |number: usize, kind: Kind| {
        let (flag, sum) = (5 + 2 * number, 6 + 2 * number);
        let copy = Act::Count {
            to: flag,
            from: INPUT,
            sign: 1 - 2 * (number as i32 % 2),
        };
        let body = vec![adds(sum, flag), adds(sum, TEN)];
        vec![copy, kind.around(flag, body)]
    };
    let loops = [Kind::While, Kind::DoWhile, Kind::If, Kind::While];
    let branches = || {
        let branches = loops.iter().enumerate();
        Act::Side(branches.map(|(at, &kind)| branch(at, kind)).collect())
    };
    let beside = [branches(), adds(SUM, ONE)];
    agrees(&beside, 13, &given(0..4), &every_way());

    // In each turn of a loop, with what comes after all of them.
    let mut turn = beside.to_vec();
    turn.extend((0..4).map(|number| adds(SUM, 6 + 2 * number)));
    let within = [Kind::While.around(INPUT, turn)];
    agrees(&within, 13, &given(0..4), &every_way());
}

/// Each launch enters its loops anew, whatever the one before it left, and however many are
/// waiting.
#[test]
fn launches_in_a_row_are_not_waited_for() {
    let _alone = alone();
    let stream = stream();
    for (kind, turns) in [(Kind::While, 3), (Kind::DoWhile, 3), (Kind::DoWhile, 0)] {
        let acts = [
            Act::Put {
                to: FLAG,
                value: turns,
                how: How::Kernel,
            },
            kind.around(FLAG, vec![adds(SUM, ONE)]),
        ];
        let memory = Memory::new(&stream, 6);
        memory.write(&stream, &[0, 1, 10, 0, 0, 0]);
        let by_path = Graph::new(stream.context()).unwrap();
        record(&mut Path::new(&by_path), &acts, &memory).unwrap();
        let (by_capture, ()) = Graph::capture(&stream, |c| record(c, &acts, &memory)).unwrap();
        let mut execs = [by_path, by_capture].map(|graph| graph.instantiate().unwrap());
        for launch in 0..40 {
            execs[launch % 3 / 2].launch(&stream).unwrap();
        }
        assert_eq!(memory.read(&stream)[SUM], 40 * turns.max(1), "{kind:?}");
    }
}
