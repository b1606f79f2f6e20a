//! Lines of nodes, and several beside each other.

use cuda_graph::{Buffer, CopyOp, FillOp, Graph, KernelOp, Node, NodeId, PinnedBuffer, Result};

use crate::case::{Case, Setting};

/// How many fills or copies there are.
const TRANSFERS: u32 = 100;

/// A fill of so many words; a copy of 1 KiB.
const FILLED: usize = 64;
const COPIED: usize = 256;

/// 200 kernels in a line, each of which waits for the 9 before it.
pub fn edges(setting: &Setting) -> Result<Case> {
    let mut memory = setting.memory();
    let cell = memory.zeros(1)?;
    let ops: Result<Vec<KernelOp>> = (0..200).map(|at| setting.tiny.step(&cell, at)).collect();
    let (ops, context) = (ops?, setting.stream.context().clone());
    let define = move || {
        let graph = Graph::new(&context)?;
        let mut nodes: Vec<Node<KernelOp>> = Vec::with_capacity(ops.len());
        for op in &ops {
            let before = &nodes[nodes.len().saturating_sub(9)..];
            nodes.push(graph.add(op.clone(), before)?);
        }
        Ok(graph)
    };
    let title = "200 one-thread kernels in a line, 8 redundant edges each";
    Ok(Case::new(title, memory, Box::new(define)))
}

/// Each kernel reads what the fill before it wrote, and changes it.
pub fn fills_between(setting: &Setting) -> Result<Case> {
    let mut memory = setting.memory();
    let (sum, cells) = (memory.zeros(1)?, memory.zeros(FILLED)?);
    let gather = setting.tiny.gather(&sum, &cells)?;
    let fills: Result<Vec<FillOp>> = (0..TRANSFERS).map(|at| FillOp::new(&cells, at)).collect();
    let fills = fills?;
    let title = "100 fills of 256 bytes among 100 one-thread kernels, in a line";
    Ok(Case::recorded(setting, title, memory, move |r| {
        for fill in &fills {
            r.record(gather.clone())?;
            r.record(fill.clone())?;
        }
        Ok(())
    }))
}

/// Fills that do not wait for each other.
pub fn fills_beside(setting: &Setting) -> Result<Case> {
    let mut memory = setting.memory();
    let fills: Result<Vec<FillOp>> = (0..TRANSFERS)
        .map(|at| FillOp::new(&memory.zeros(FILLED)?, at + 1))
        .collect();
    let (fills, context) = (fills?, setting.stream.context().clone());
    let define = move || {
        let graph = Graph::new(&context)?;
        for fill in &fills {
            graph.add(fill.clone(), ())?;
        }
        Ok(graph)
    };
    let title = "100 fills of 256 bytes beside each other";
    Ok(Case::new(title, memory, Box::new(define)))
}

/// Each kernel reads what the copy before it wrote, and changes it.
pub fn copies(setting: &Setting) -> Result<Case> {
    let mut memory = setting.memory();
    let (sum, cells) = (memory.zeros(1)?, memory.zeros::<u32>(COPIED)?);
    let gather = setting.tiny.gather(&sum, &cells)?;
    let copy = |at: u32| -> Result<CopyOp> {
        let from: Vec<u32> = (0..COPIED as u32).map(|word| word * 7 + at).collect();
        let from: PinnedBuffer<u32> = memory.pinned(from)?;
        CopyOp::new(&cells, &from)
    };
    let copies: Result<Vec<CopyOp>> = (0..TRANSFERS).map(copy).collect();
    let copies = copies?;
    let title = "100 copies of 1 KiB of pinned memory among 100 one-thread kernels, in a line";
    Ok(Case::recorded(setting, title, memory, move |r| {
        for copy in &copies {
            r.record(gather.clone())?;
            r.record(copy.clone())?;
        }
        Ok(())
    }))
}

pub fn wide(setting: &Setting) -> Result<Case> {
    let mut memory = setting.memory();
    let data = memory.zeros(64 * 1024 / size_of::<u32>())?;
    let ops: Result<Vec<KernelOp>> = (0..1000).map(|at| setting.tiny.wide(&data, at)).collect();
    let ops = ops?;
    let title = "1,000 kernels of 132 x 256 threads over 64 KiB, in a line";
    Ok(Case::recorded(setting, title, memory, move |r| {
        ops.iter().try_for_each(|op| r.record(op.clone()).map(drop))
    }))
}

pub fn chains(setting: &Setting) -> Result<Case> {
    let mut memory = setting.memory();
    let cells: Result<Vec<Buffer<u32>>> = (0..8).map(|_| memory.zeros(1)).collect();
    let mut chains = Vec::new();
    for cell in cells? {
        let ops: Result<Vec<KernelOp>> = (0..50).map(|at| setting.tiny.step(&cell, at)).collect();
        chains.push(ops?);
    }
    let context = setting.stream.context().clone();
    let define = move || {
        let graph = Graph::new(&context)?;
        for chain in &chains {
            let mut last: Option<NodeId> = None;
            for op in chain {
                last = Some(graph.add(op.clone(), last)?.id());
            }
        }
        Ok(graph)
    };
    let title = "8 chains of 50 one-thread kernels, which do not wait for each other";
    Ok(Case::new(title, memory, Box::new(define)))
}

/// Kernels in a line that say what they touch, and touch what only every fourth does.
pub fn lanes(setting: &Setting) -> Result<Case> {
    let mut memory = setting.memory();
    let cells: Result<Vec<Buffer<u32>>> = (0..4).map(|_| memory.zeros(1)).collect();
    let each = (0..).zip(cells?.into_iter().cycle()).take(200);
    let ops = each.map(|(at, cell)| Ok(setting.tiny.step(&cell, at)?.writes(&cell)));
    let ops: Vec<KernelOp> = ops.collect::<Result<_>>()?;
    let title =
        "200 one-thread kernels in a line, which declare that every fourth touches the same";
    let context = setting.stream.context().clone();
    let define = move || {
        let graph = Graph::new(&context)?;
        let mut last: Option<NodeId> = None;
        for op in &ops {
            last = Some(graph.add(op.clone(), last)?.id());
        }
        Ok(graph)
    };
    Ok(Case::new(title, memory, Box::new(define)))
}
