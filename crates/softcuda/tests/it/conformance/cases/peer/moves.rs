//! To what memory the nodes of an executable may move: every kind of it to every other.

use super::pool::{pool_of, set};
use super::pool_use::word_of;
use super::virtual_memory::mapped_for;
use super::{enable, new_context_of};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::{Side, access};
use crate::graphs::api::*;

/// A kind of memory, and two places in it.
struct Kind {
    name: &'static str,
    at: [u64; 2],
}

/// Which part of a node moves.
#[derive(Clone, Copy)]
enum Part {
    Target,
    Source,
    Fill,
}

/// A word of a device's memory that a graph allocated, for both devices.
unsafe fn of_graph(side: &Side) -> u64 {
    side.enter();
    let wishes = [access(1 - side.device)];
    let mut params = alloc_params(4);
    params.properties[3] = side.device as u32;
    (params.access, params.access_count) = (wishes.as_ptr() as usize, 1);
    let graph = graph();
    cuGraphAddMemAllocNode(&mut 0, graph, NONE, 0, &mut params).must();
    cuGraphLaunch(instantiate(graph), side.stream).must();
    cuStreamSynchronize(side.stream).must();
    params.address
}

/// A word of a pool that both devices may use.
unsafe fn of_pool(side: &Side) -> u64 {
    let pool = pool_of(side.device);
    set(pool, 1 - side.device, 3).must();
    word_of(pool, side)
}

unsafe fn kinds(zero: &Side, one: &Side) -> Vec<Kind> {
    let both = |name, mut of: Box<dyn FnMut() -> u64>| Kind {
        name,
        at: [of(), of()],
    };
    new_context_of(0);
    let beside = both("beside", Box::new(|| memory(4)));
    one.enter();
    let its = both("its", Box::new(|| memory(4)));
    zero.enter();
    let mut table = 0;
    cuModuleGetGlobal_v2(
        &mut table,
        std::ptr::null_mut(),
        zero.module,
        c"buffer".as_ptr(),
    )
    .must();
    let all = vec![
        both("plain", Box::new(|| memory(4))),
        beside,
        Kind {
            name: "global",
            at: [table, table + 8],
        },
        both("pool", Box::new(|| of_pool(zero))),
        both("graph", Box::new(|| of_graph(zero))),
        both("mapped", Box::new(|| mapped_for(0, &[0]))),
        both("managed", Box::new(|| managed(4))),
        both("pinned", Box::new(|| pinned(4) as u64)),
        its,
        both("its_pool", Box::new(|| of_pool(one))),
        both("its_graph", Box::new(|| of_graph(one))),
        both("its_mapped", Box::new(|| mapped_for(1, &[0, 1]))),
    ];
    zero.enter();
    all
}

/// A node that works on an address, and on one that stays.
unsafe fn add(graph: Handle, part: Part, address: u64, stays: u64) -> Handle {
    match part {
        Part::Target => add_copy(graph, &[], &line_copy(address, stays, 4)),
        Part::Source => add_copy(graph, &[], &line_copy(stays, address, 4)),
        Part::Fill => add_fill(graph, &[], address, 6),
    }
}

/// Has a node of an executable do that.
unsafe fn moves(exec: Handle, node: Handle, part: Part, address: u64, stays: u64) -> Answer {
    match part {
        Part::Target => {
            let copy = line_copy(address, stays, 4);
            cuGraphExecMemcpyNodeSetParams(exec, node, &copy, current())
        }
        Part::Source => {
            let copy = line_copy(stays, address, 4);
            cuGraphExecMemcpyNodeSetParams(exec, node, &copy, current())
        }
        Part::Fill => cuGraphExecMemsetNodeSetParams(exec, node, &word_fill(address, 6), current()),
    }
}

/// Writes down, for each kind of memory, to which others a node may move: by itself, and by an
/// update from another graph.
unsafe fn matrix(line: &mut Line, zero: &Side, one: &Side, part: Part) {
    let kinds = kinds(zero, one);
    let stays = memory(4);
    for from in &kinds {
        let (mut by_node, mut by_graph) = (Vec::new(), Vec::new());
        for to in &kinds {
            let old = graph();
            let node = add(old, part, from.at[0], stays);
            let exec = instantiate(old);
            if moves(exec, node, part, to.at[1], stays).code == 0 {
                by_node.push(to.name);
            }
            let new = graph();
            add(new, part, to.at[1], stays);
            let exec = instantiate(old);
            let mut info = UpdateInfo::default();
            if cuGraphExecUpdate_v2(exec, new, &mut info).code == 0 {
                by_graph.push(to.name);
            }
        }
        line.value(from.name, by_node.join(","));
        if by_graph != by_node {
            line.value(format!("{}_by_graph", from.name), by_graph.join(","));
        }
    }
}

pub const CASES: &[Case] = &[
    two_devices!("peer/moves/target", |line, zero, one| {
        matrix(line, zero, one, Part::Target);
    }),
    two_devices!("peer/moves/source", |line, zero, one| {
        matrix(line, zero, one, Part::Source);
    }),
    two_devices!("peer/moves/fill", |line, zero, one| {
        matrix(line, zero, one, Part::Fill);
    }),
    two_devices!("peer/moves/target_with_access", |line, zero, one| {
        enable(zero, one);
        matrix(line, zero, one, Part::Target);
    }),
    two_devices!("peer/moves/source_with_access", |line, zero, one| {
        enable(zero, one);
        matrix(line, zero, one, Part::Source);
    }),
    two_devices!("peer/moves/fill_with_access", |line, zero, one| {
        enable(zero, one);
        matrix(line, zero, one, Part::Fill);
    }),
    two_devices!("peer/moves/copy_across", |line, zero, one| {
        // The ends of a copy between devices, seen from the context of either.
        let more = memory(4);
        one.enter();
        let its = memory(4);
        for (what, side) in [("zero", zero), ("one", one)] {
            side.enter();
            for (way, to, from) in [
                ("there", one.word, zero.word),
                ("back", zero.word, one.word),
            ] {
                let graph = graph();
                let node = add_copy(graph, &[], &line_copy(to, from, 4));
                for (which, to, from) in [
                    ("same", to, from),
                    ("target", if to == one.word { its } else { more }, from),
                    ("source", to, if from == one.word { its } else { more }),
                    ("turned", from, to),
                    ("within_zero", more, zero.word),
                    ("within_one", its, one.word),
                ] {
                    let exec = instantiate(graph);
                    let copy = line_copy(to, from, 4);
                    line.says_as(
                        format!("{what}_{way}_{which}"),
                        cuGraphExecMemcpyNodeSetParams(exec, node, &copy, current()),
                    );
                }
            }
        }
    }),
];
