//! Nodes that move from one kind of memory to another.

use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaContext, result};
use cuda_graph::{
    AllocOp, AnyOp, Buffer, CopyOp, FillOp, Graph, MemoryLocation, RawMemory, Verdict,
};

use super::random::check;
use crate::fixture::{alone, contexts, stream};

/// Two places in one kind of memory.
struct Kind {
    name: &'static str,
    at: [u64; 2],
}

/// Memory that no context's pool gave.
fn plain(context: &Arc<CudaContext>) -> u64 {
    context.bind_to_thread().unwrap();
    // SAFETY: it is never freed.
    unsafe { result::malloc_sync(64) }.unwrap()
}

/// Memory of a graph that stays allocated, with the graph that it must not outlive.
fn of_graph(context: &Arc<CudaContext>) -> u64 {
    let graph = Graph::new(context).unwrap();
    let node = graph
        .add(AllocOp::new(MemoryLocation::Device(0), 64), ())
        .unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream()).unwrap();
    stream().synchronize().unwrap();
    // SAFETY: it is used as long as the executable is there: always.
    let memory = unsafe { graph.allocation(node) }.unwrap();
    let address = memory.address();
    std::mem::forget((exec, graph));
    address
}

fn word(address: u64) -> RawMemory {
    // SAFETY: all places are there until the process ends, and no launch uses them.
    unsafe { RawMemory::device(address, 4) }
}

/// What moves: where a copy writes, where it reads, where a fill writes.
const PARTS: [fn(u64, u64) -> AnyOp; 3] = [
    |moves, stays| CopyOp::new(word(moves), word(stays)).unwrap().into(),
    |moves, stays| CopyOp::new(word(stays), word(moves)).unwrap().into(),
    |moves, _| FillOp::pattern(word(moves), 7u32).unwrap().into(),
];

#[test]
fn from_each_kind_of_memory_to_each() {
    let _alone = alone();
    let all = contexts();
    let stream = stream();
    let pool = || {
        let buffer = Buffer::<u32>::zeroed(&stream, 16).unwrap();
        let address = buffer.address();
        std::mem::forget(buffer);
        address
    };
    let mut kinds = vec![
        Kind {
            name: "pool",
            at: [pool(), pool()],
        },
        Kind {
            name: "plain",
            at: [plain(&all[0]), plain(&all[0])],
        },
        Kind {
            name: "graph",
            at: [of_graph(&all[0]), of_graph(&all[0])],
        },
    ];
    if let Some(other) = all.get(1) {
        kinds.push(Kind {
            name: "other device's",
            at: [plain(other), plain(other)],
        });
    }
    let stays = plain(&all[0]);
    let graph = |op: AnyOp| {
        let graph = Graph::new(&all[0]).unwrap();
        graph.add(op, ()).unwrap();
        graph
    };
    let mut refused = Vec::new();
    for (part, op) in PARTS.into_iter().enumerate() {
        for from in &kinds {
            for to in &kinds {
                let (old, new) = (graph(op(from.at[0], stays)), graph(op(to.at[1], stays)));
                let mut exec = old.instantiate().unwrap();
                let predicted = exec.diff(&new).unwrap();
                let answer = exec.update_in_place(&new);
                check(&predicted, &answer);
                let is_open = matches!(predicted.verdict(), Verdict::Unknown { .. });
                let of_graph = |kind: &Kind| kind.name == "graph";
                // The driver does not say that memory is a graph's.
                assert!(
                    !is_open || of_graph(from) || of_graph(to),
                    "{part}: {} to {}",
                    from.name,
                    to.name
                );
                if answer.is_err() {
                    refused.push((part, from.name, to.name));
                }
                // The executable does what the answer says.
                let now = exec.diff(&new).unwrap();
                assert_eq!(now.is_empty(), answer.is_ok());
            }
        }
    }
    assert!(refused.contains(&(0, "pool", "plain")), "{refused:?}");
    assert!(refused.contains(&(1, "plain", "pool")), "{refused:?}");
    assert!(!refused.contains(&(2, "pool", "plain")), "{refused:?}");
}
