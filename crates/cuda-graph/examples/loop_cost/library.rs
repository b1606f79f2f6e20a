//! This library: its operations, and its recorders.

use cuda_graph::{Buffer, Eager, FillOp, Graph, KernelOp, Path, Recorder, WhileOp};

use crate::kernels::{ONE_THREAD, Work};
use crate::{Contender, Result, Run};

/// A turn of a loop that writes whether there is another.
fn turn(work: &Work, counts: &Buffer<u32>, turns: u32, flag: &Buffer<u32>) -> Result<KernelOp> {
    let arguments = (counts, turns, flag);
    // SAFETY: the kernel takes two words that it counts in, a number, and a word.
    Ok(unsafe { KernelOp::new(&work.count_to_flag, ONE_THREAD, arguments) }?)
}

/// Instantiates a graph, and launches that again and again.
fn launched(work: &Work, graph: Graph) -> Result<Run<'_>> {
    let mut exec = graph.instantiate()?;
    Ok(Box::new(move || Ok(exec.launch(&work.stream)?)))
}

/// What `record` records, in a graph.
fn recorded(
    work: &Work,
    record: impl FnOnce(&mut dyn Recorder) -> cuda_graph::Result<()>,
) -> Result<Run<'_>> {
    let graph = Graph::new(work.stream.context())?;
    record(&mut Path::new(&graph))?;
    launched(work, graph)
}

/// [`WhileOp`], with the kernel that sets its condition itself.
pub fn while_op(work: &Work, turns: u32) -> Result<Contender<'_>> {
    let (graph, counts) = (Graph::new(work.stream.context())?, work.counts()?);
    let condition = graph.condition(Some(1))?;
    let node = graph.add(WhileOp::new(&condition), ())?;
    let arguments = (&counts, turns, condition);
    // SAFETY: the kernel takes two words that it counts in, a number, and a condition.
    let kernel = unsafe { KernelOp::new(&work.count_and_set, ONE_THREAD, arguments) }?;
    graph.body(node)?.add(kernel, ())?;
    Contender::new(turns, &counts, launched(work, graph)?)
}

pub fn do_while(work: &Work, turns: u32) -> Result<Contender<'_>> {
    let (counts, flag) = (work.counts()?, work.flag()?);
    let turn = turn(work, &counts, turns, &flag)?;
    let run = recorded(work, |r| {
        r.do_while_nonzero(&flag, |r| r.record(turn.clone()).map(drop))
    })?;
    Contender::new(turns, &counts, run)
}

/// The flag is set before the loop, which would not begin otherwise.
pub fn r#while(work: &Work, turns: u32) -> Result<Contender<'_>> {
    let (counts, flag) = (work.counts()?, work.flag()?);
    let (turn, arm) = (
        turn(work, &counts, turns, &flag)?,
        FillOp::new(&flag, 1u32)?,
    );
    let run = recorded(work, |r| {
        r.record(arm)?;
        r.while_nonzero(&flag, |r| r.record(turn.clone()).map(drop))
    })?;
    Contender::new(turns, &counts, run)
}

pub fn nested(work: &Work, outer: u32, inner: u32) -> Result<Contender<'_>> {
    let (counts, outer_counts) = (work.counts()?, work.counts()?);
    let (flag, outer_flag) = (work.flag()?, work.flag()?);
    let inner_turn = turn(work, &counts, inner, &flag)?;
    let outer_turn = turn(work, &outer_counts, outer, &outer_flag)?;
    let run = recorded(work, |r| {
        r.do_while_nonzero(&outer_flag, |r| {
            r.do_while_nonzero(&flag, |r| r.record(inner_turn.clone()).map(drop))?;
            r.record(outer_turn.clone()).map(drop)
        })
    })?;
    Contender::new(outer * inner, &counts, run)
}

pub fn ifs(work: &Work, count: u32) -> Result<Contender<'_>> {
    let counts = work.counts()?;
    // SAFETY: the kernel takes two words that it counts in.
    let kernel = unsafe { KernelOp::new(&work.count, ONE_THREAD, (&counts,)) }?;
    let run = recorded(work, |r| {
        (0..count).try_for_each(|_| r.if_nonzero(&work.one, |r| r.record(kernel.clone()).map(drop)))
    })?;
    Contender::new(count, &counts, run)
}

/// The same loop as [`do_while`], run at once.
pub fn eager(work: &Work, turns: u32) -> Result<Contender<'_>> {
    let (counts, flag) = (work.counts()?, work.flag()?);
    let turn = turn(work, &counts, turns, &flag)?;
    let mut eager = Eager::new(&work.stream)?;
    let run = move || Ok(eager.do_while_nonzero(&flag, |r| r.record(turn.clone()).map(drop))?);
    Contender::new(turns, &counts, Box::new(run))
}
