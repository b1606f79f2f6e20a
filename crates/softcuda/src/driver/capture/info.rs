//! What the program may ask of a capture, and the dependencies that it may set.

use std::sync::atomic::Ordering;

use super::{COUNT, ONGOING, merge, with};
use crate::abi::types::CUgraph;
use crate::driver::graph::definition::Graph;
use crate::driver::graph::edge::{Edge, EdgeData, Edges};
use crate::driver::stream::Stream;
use crate::driver::{CUresult, Result};

/// A stream's dependencies where the program can read them: until they change or the capture ends.
pub(super) struct Shown {
    nodes: Box<[usize]>,
    data: Box<[EdgeData]>,
}

/// What a capture tells of a stream.
pub(crate) enum Info {
    /// It takes part in none.
    None,
    /// It takes part in one that was invalidated.
    Invalidated,
    /// It takes part in one.
    Active {
        /// The capture's id.
        id: u64,
        /// The graph.
        graph: CUgraph,
        /// Where the handles of its dependencies are; 0 where it has none.
        nodes: usize,
        /// Where their data is; 0 where it has none.
        data: usize,
        /// How many.
        count: usize,
        /// Some have data.
        has_data: bool,
    },
}

impl Info {
    /// `CUstreamCaptureStatus`.
    pub fn status(&self) -> u32 {
        match self {
            Info::None => 0,
            Info::Active { .. } => 1,
            Info::Invalidated => 2,
        }
    }
}

/// `cuStreamGetCaptureInfo`. The legacy stream has no answer while a stream that it waits for is in
/// a capture, which is not invalidated.
pub(crate) fn info(stream: &Stream) -> Result<Info> {
    let seat = stream.seat();
    if stream.is_legacy() {
        let ongoing = match COUNT.load(Ordering::Relaxed) {
            0 => return Ok(Info::None),
            _ => ONGOING.lock(),
        };
        let mut captures = ongoing.values();
        return match captures.any(|capture| capture.holds_up_legacy(seat.context)) {
            true => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
            false => Ok(Info::None),
        };
    }
    if !seat.is_taken() {
        return Ok(Info::None);
    }
    with(seat, |capture, place| {
        if capture.invalid {
            return Ok(Info::Invalidated);
        }
        let member = &mut capture.members[place];
        let dependencies = &member.dependencies;
        let shown = member.shown.get_or_insert_with(|| Shown {
            nodes: dependencies.iter().map(|edge| edge.node).collect(),
            data: dependencies.iter().map(|edge| edge.data).collect(),
        });
        let count = shown.nodes.len();
        let address = |address: usize| if count == 0 { 0 } else { address };
        Ok(Info::Active {
            id: seat.capture.load(Ordering::Relaxed),
            graph: capture.graph.handle(),
            nodes: address(shown.nodes.as_ptr() as usize),
            data: address(shown.data.as_ptr() as usize),
            count,
            has_data: dependencies.iter().any(|edge| !edge.data.is_default()),
        })
    })
}

/// Dependencies that a program names, each once, where they are nodes of the graph that can have
/// their data.
pub(super) fn checked(dependencies: &[Edge], graph: &Graph) -> Result<Edges> {
    let mut all = Edges::new();
    graph.read(|definition| {
        for &edge in dependencies {
            let node = definition.nodes.get(&edge.node);
            let node = node.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            edge.data.check_source(node.operation.kind())?;
            merge(&mut all, edge);
        }
        Ok(())
    })?;
    Ok(all)
}

/// `cuStreamUpdateCaptureDependencies`: adds to a stream's dependencies, or replaces them. What
/// goes need not be joined.
pub(crate) fn update(stream: &Stream, dependencies: &[Edge], replace: bool) -> Result {
    with(stream.seat(), |capture, place| {
        capture.check()?;
        let new = checked(dependencies, &capture.graph)?;
        let member = &mut capture.members[place];
        if !replace {
            member.join(&new);
            return Ok(());
        }
        for edge in &member.dependencies {
            if new.iter().all(|it| it.node != edge.node) {
                capture.open.remove(&edge.node);
            }
        }
        member.set(new);
        Ok(())
    })
}
