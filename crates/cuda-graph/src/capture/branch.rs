//! Branches: forks of a capture, and their joins.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::CudaStream;

use super::session::Session;
use super::streams::Lane;
use super::{Branch, Capture, Kind, Mode};
use crate::driver::{self, event::Event};
use crate::graph::InTurn;
use crate::{Error, Result};

/// Where a capture was split into `N` branches. It holds the capture until they are joined.
///
/// Dropped, it abandons the capture if that is its root.
#[must_use = "a capture whose branches are not joined is abandoned"]
pub struct Joint<K: Kind, M: Mode, const N: usize> {
    parent: Capture<K, M>,
    split: u64,
    /// Not to be ended on another thread while this one's branches record, whatever the mode.
    not_send: PhantomData<*const ()>,
}

/// Where a capture was split, and the branches.
pub type Split<K, M, const N: usize> = (Joint<K, M, N>, [Capture<Branch, M>; N]);

/// An event behind what `stream` was given to record.
fn event_behind(session: &Session, stream: &CudaStream) -> Result<Event> {
    session.position(stream)?;
    driver::bind(stream.context())?;
    let event = Event::new()?;
    event.record(stream.cu_stream())?;
    Ok(event)
}

/// A stream that goes on from where `event` was recorded.
fn fork(stream: &Arc<CudaStream>, event: &Event) -> Result<Lane> {
    let lane = Lane::pooled(stream.context())?;
    driver::capture::wait(lane.stream().cu_stream(), event)?;
    Ok(lane)
}

/// Has `stream` wait for what `branch` was given.
fn join(session: &Session, stream: &CudaStream, branch: &Lane) -> Result<()> {
    session.position(stream)?;
    let event = event_behind(session, branch.stream())?;
    driver::capture::wait(stream.cu_stream(), &event)
}

impl<M: Mode> Capture<Branch, M> {
    pub(super) fn branch(session: &Arc<Session>, lane: Lane, split: u64) -> Self {
        Capture {
            session: session.clone(),
            lane,
            split,
            in_turn: InTurn::default(),
            kind: PhantomData,
            mode: PhantomData,
        }
    }
}

impl<K: Kind, M: Mode> Capture<K, M> {
    /// Splits it into `N` branches, which start from here and are joined by the [`Joint`].
    ///
    /// # Errors
    ///
    /// What the driver says when streams or events cannot be had; the capture is abandoned then.
    pub fn split<const N: usize>(self) -> Result<Split<K, M, N>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let split = NEXT.fetch_add(1, Ordering::Relaxed);
        let stream = self.lane.stream();
        let mut lanes = Vec::with_capacity(N);
        let event = event_behind(&self.session, stream)?;
        for _ in 0..N {
            lanes.push(fork(stream, &event)?);
        }
        let mut lanes = lanes.into_iter();
        let branches = std::array::from_fn(|_| {
            let lane = lanes.next().expect("there are as many as branches");
            Capture::branch(&self.session, lane, split)
        });
        let joint = Joint {
            parent: self,
            split,
            not_send: PhantomData,
        };
        Ok((joint, branches))
    }

    /// Records branches that start from here and run side by side; what is recorded afterwards waits for all of them.
    ///
    /// ```
    /// # use cuda_graph::{Buffer, FillOp, Graph};
    /// # let device = cuda_graph::device(0)?;
    /// # let stream = device.context().new_stream()?;
    /// # let (a, b) = (Buffer::<u32>::zeroed(&stream, 4)?, Buffer::<u32>::zeroed(&stream, 4)?);
    /// # stream.synchronize()?;
    /// let (graph, ()) = Graph::capture(&stream, |c| {
    ///     c.parallel(|p| {
    ///         p.branch(|c| c.record(FillOp::new(&a, 1u32)?))?;
    ///         p.branch(|c| c.record(FillOp::new(&b, 2u32)?))?;
    ///         Ok(())
    ///     })
    /// })?;
    /// assert_eq!(graph.roots()?.len(), 2);
    /// # Ok::<(), cuda_graph::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Whatever `record` returns. What the branches recorded is joined all the same, also when it panics, so that the
    /// capture can go on.
    pub fn parallel<T>(
        &mut self,
        record: impl FnOnce(&mut Parallel<'_, M>) -> Result<T>,
    ) -> Result<T> {
        let stream = self.lane.stream().clone();
        let start = if self.session.is_eager() {
            None
        } else {
            Some(event_behind(&self.session, &stream)?)
        };
        let mut parallel = Parallel {
            session: &self.session,
            stream: &stream,
            start,
            lanes: Vec::new(),
            in_turn: InTurn::default(),
            mode: PhantomData,
        };
        let result = record(&mut parallel);
        let joined = parallel.join();
        let in_turn = parallel.in_turn;
        drop(parallel);
        self.in_turn.append(in_turn);
        let value = result?;
        joined?;
        Ok(value)
    }
}

/// Records the branches of a [`parallel`](Capture::parallel) part.
pub struct Parallel<'a, M: Mode> {
    session: &'a Arc<Session>,
    stream: &'a Arc<CudaStream>,
    /// Where the branches start; none where nothing is recorded and they run one after the other.
    start: Option<Event>,
    lanes: Vec<Lane>,
    /// Those of the branches so far.
    in_turn: InTurn,
    mode: PhantomData<M>,
}

impl<M: Mode> Parallel<'_, M> {
    /// Records one branch.
    pub fn branch<T>(
        &mut self,
        record: impl FnOnce(&mut Capture<Branch, M>) -> Result<T>,
    ) -> Result<T> {
        let Some(start) = &self.start else {
            let lane = Lane::of(self.stream.clone());
            return record(&mut Capture::branch(self.session, lane, 0));
        };
        let lane = fork(self.stream, start)?;
        let mut side = Side {
            branch: Capture::branch(self.session, lane, 0),
            of: self,
        };
        let result = record(&mut side.branch);
        let in_turn = side.branch.in_turn;
        drop(side);
        let chained = self.in_turn.chain(&self.session.graph(), in_turn);
        let value = result?;
        chained?;
        Ok(value)
    }

    fn join(&mut self) -> Result<()> {
        let lanes = std::mem::take(&mut self.lanes);
        lanes
            .iter()
            .try_for_each(|lane| join(self.session, self.stream, lane))
    }
}

impl<M: Mode> Drop for Parallel<'_, M> {
    /// There is something to join in a panic alone.
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::debug!("branches are not joined: {error}");
        }
    }
}

/// A branch that is recorded. However that ends, it is joined with the others.
struct Side<'a, 'b, M: Mode> {
    branch: Capture<Branch, M>,
    of: &'a mut Parallel<'b, M>,
}

impl<M: Mode> Drop for Side<'_, '_, M> {
    fn drop(&mut self) {
        let none = Lane::of(self.of.stream.clone());
        let lane = std::mem::replace(&mut self.branch.lane, none);
        self.of.lanes.push(lane);
    }
}

impl<K: Kind, M: Mode, const N: usize> Joint<K, M, N> {
    /// Joins the branches: what the capture records next waits for all of them.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignBranch`] for a branch of another split, and what the driver says; the capture is abandoned then.
    pub fn join(mut self, branches: [Capture<Branch, M>; N]) -> Result<Capture<K, M>> {
        for branch in &branches {
            if branch.split != self.split || !Arc::ptr_eq(&branch.session, &self.parent.session) {
                return Err(Error::ForeignBranch);
            }
        }
        let (graph, mut in_turn) = (self.parent.session.graph(), InTurn::default());
        for branch in &branches {
            join(&branch.session, self.parent.lane.stream(), &branch.lane)?;
            in_turn.chain(&graph, branch.in_turn)?;
        }
        self.parent.in_turn.append(in_turn);
        Ok(self.parent)
    }
}
