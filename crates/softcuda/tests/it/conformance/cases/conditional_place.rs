//! Where in a body a condition is set, and branches in loops to some depth.

use super::graph_run::launches;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

/// Where the kernel is that counts and sets the condition of the loop around it.
#[derive(Clone, Copy)]
enum Place {
    First,
    Middle,
    Last,
    /// Nothing in the body waits for it, nor does it.
    Beside,
    /// Last, after the first kernel has set the condition already.
    Again,
}

/// A loop of five turns, whose body has two kernels besides that one; launched twice.
unsafe fn sets(line: &mut Line, place: Place) {
    context();
    let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(16), graph());
    let condition = condition(graph, 1);
    let (_, body) = add_single(graph, &[], condition, WHILE);
    let decide = |on: &[Handle]| kernels.count_to(body, on, condition, at, 5);
    let counts = |on: &[Handle]| {
        let first = kernels.count(body, on, at + 4);
        kernels.count(body, &[first], at + 8)
    };
    match place {
        Place::First => {
            counts(&[decide(&[])]);
        }
        Place::Middle => {
            let first = kernels.count(body, &[], at + 4);
            kernels.count(body, &[decide(&[first])], at + 8);
        }
        Place::Last => {
            decide(&[counts(&[])]);
        }
        Place::Beside => {
            decide(&[]);
            counts(&[]);
        }
        Place::Again => {
            let set = kernels.set_to(body, &[], condition, 1);
            decide(&[counts(&[set])]);
        }
    }
    let exec = instantiate(graph);
    for what in ["first", "second"] {
        fill_words(at, 0, 4);
        launches(line, what, exec, stream);
        for place in 0..3 {
            line.value(place, word(at + 4 * place));
        }
    }
}

/// A loop of three turns around IFs in each other, each armed by the kernel before it. `loops`:
/// every other one of them is a loop of two turns.
unsafe fn deep(line: &mut Line, depth: u32, loops: bool) {
    context();
    let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(64), graph());
    fill_words(at, 0, 16);
    let outermost = condition(graph, 1);
    let (_, mut body) = add_single(graph, &[], outermost, WHILE);
    for level in 0..depth {
        let here = condition(graph, 0);
        let mut before = kernels.set_to(body, &[], here, 1);
        let turns = at + 16 + 4 * u64::from(level);
        let is_loop = loops && level % 2 == 1;
        if is_loop {
            before = add_fill(body, &[before], turns, 0);
        }
        let (node, inner) = add_single(body, &[before], here, if is_loop { WHILE } else { IF });
        if is_loop {
            kernels.count_to(inner, &[], here, turns, 2);
        }
        if level == 0 {
            kernels.count_to(body, &[node], outermost, at, 3);
        }
        body = inner;
    }
    kernels.count(body, &[], at + 4);
    launches(line, "it", instantiate(graph), stream);
    line.value("outer", word(at));
    line.value("innermost", word(at + 4));
}

/// A kernel sets the condition to a number from memory.
unsafe fn switches(line: &mut Line, values: &[i32]) {
    context();
    let (kernels, stream, at, graph) = (Kernels::load(), stream(), memory(32), graph());
    let condition = condition(graph, 0);
    let set = kernels.set_from(graph, &[], condition, at);
    let (node, bodies) = add_conditional(graph, &[set], condition, SWITCH, 3);
    for (body, place) in bodies.iter().zip(1..) {
        kernels.count(*body, &[], at + 4 * place);
    }
    kernels.count(graph, &[node], at + 16);
    let exec = instantiate(graph);
    for &value in values {
        fill_words(at, value as u32, 1);
        fill_words(at + 4, 0, 4);
        launches(line, &format!("of_{value}"), exec, stream);
        let ran: Vec<u32> = (1..5).map(|place| word(at + 4 * place)).collect();
        line.value("ran", format!("{ran:?}"));
    }
}

pub const CASES: &[Case] = &[
    case!("conditional/place/set_first", |line| {
        sets(line, Place::First)
    }),
    case!("conditional/place/set_in_the_middle", |line| {
        sets(line, Place::Middle)
    }),
    case!("conditional/place/set_last", |line| {
        sets(line, Place::Last)
    }),
    case!("conditional/place/set_beside_the_rest", |line| {
        sets(line, Place::Beside)
    }),
    case!("conditional/place/set_first_and_last", |line| {
        sets(line, Place::Again)
    }),
    case!("conditional/place/if_in_while", |line| {
        deep(line, 1, false)
    }),
    case!("conditional/place/two_ifs_in_while", |line| {
        deep(line, 2, false)
    }),
    case!("conditional/place/four_ifs_in_while", |line| {
        deep(line, 4, false)
    }),
    case!("conditional/place/eight_ifs_in_while", |line| {
        deep(line, 8, false)
    }),
    case!("conditional/place/while_in_if_in_while", |line| {
        deep(line, 2, true)
    }),
    case!("conditional/place/while_and_if_by_turns", |line| {
        deep(line, 4, true)
    }),
    case!("conditional/place/switch_from_memory", |line| {
        switches(line, &[0, 1, 2, 3, -1, i32::MIN])
    }),
];
