//! Launches that wait for each other, and calls of the driver that wait for all launches.
//!
//! Ranks of one process wait for each other inside their launches. A call that frees page-locked
//! memory, or destroys an executable with conditional nodes, waits until its context has run
//! everything, and lets no launch in meanwhile. Were it made between the launches of two ranks, it
//! would wait for the first, which waits for the second, which is not let in: for ever, on an H200.
//! So such calls wait until no launch is in flight that others wait for, and no such launch begins
//! while one of them is under way (invariant L27).

use std::any::Any;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use cudarc::driver::{CudaContext, CudaStream};

use super::reaper::run_when_idle;
use crate::driver::event::Event;
use crate::driver::per_context::PerContext;
use crate::{Result, driver};

/// Whose launches others wait for.
pub(crate) struct Meeting {
    gate: Arc<Gate>,
    /// Behind the last launch. Each waits for the one before.
    end: Arc<Event>,
}

impl Meeting {
    pub(crate) fn new(context: &Arc<CudaContext>) -> Result<Meeting> {
        let gate = Gate::of(context)?;
        driver::bind(context)?;
        let end = Arc::new(Event::new()?);
        gate.watch(context, end.clone());
        Ok(Meeting { gate, end })
    }

    /// Makes a launch in `stream`.
    pub(crate) fn launch<T>(
        &self,
        stream: &CudaStream,
        launch: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let launching = &self.gate.launching;
        let _launching = launching.read().unwrap_or_else(PoisonError::into_inner);
        let launched = launch()?;
        // The stream of the launch before may have gone, and made its own context the thread's.
        driver::bind(stream.context())?;
        self.end.record(stream.cu_stream())?;
        Ok(launched)
    }
}

/// The launches of a context that meet others.
struct Gate {
    /// Shared by those who launch. Had alone, if it can be at once, for what waits for the context:
    /// a launch may itself wait for room, until another thread has launched.
    launching: RwLock<()>,
    /// Behind the launches.
    ends: Mutex<Vec<Arc<Event>>>,
}

impl Gate {
    fn of(context: &Arc<CudaContext>) -> Result<Arc<Gate>> {
        static GATES: PerContext<Arc<Gate>> = PerContext::new();
        GATES.get(context, || {
            Ok(Arc::new(Gate {
                launching: RwLock::default(),
                ends: Mutex::default(),
            }))
        })
    }

    fn ends(&self) -> MutexGuard<'_, Vec<Arc<Event>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `end` is to be behind launches.
    fn watch(&self, context: &CudaContext, end: Arc<Event>) {
        let mut ends = self.ends();
        if ends.len() == ends.capacity() {
            let_go(&mut ends, context);
        }
        ends.push(end);
    }

    /// Lets nobody launch, if nothing is in flight that others wait for.
    fn try_alone(&self, context: &CudaContext) -> Option<RwLockWriteGuard<'_, ()>> {
        let alone = match self.launching.try_write() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let_go(&mut self.ends(), context).then_some(alone)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // They went with the context.
        self.ends().drain(..).for_each(mem::forget);
    }
}

/// Drops the events that nobody will record again and that have passed. Returns whether all have.
fn let_go(ends: &mut Vec<Arc<Event>>, context: &CudaContext) -> bool {
    // What the thread had current may be gone, which answers as if the context were.
    let bound = driver::bind(context).is_ok();
    // Nothing runs in a context that has failed.
    let is_over = |end: &Event| driver::capture::undisturbed(|| end.is_over()).unwrap_or(true);
    let mut all = true;
    ends.retain(|end| {
        let is_over = !bound || is_over(end);
        all &= is_over;
        !is_over || Arc::strong_count(end) > 1
    });
    all
}

/// Whether no launch is in flight in the contexts that others wait for.
pub(super) fn are_idle(contexts: &[Arc<CudaContext>]) -> bool {
    let is_idle = |context: &Arc<CudaContext>| {
        Gate::of(context).map_or(true, |gate| let_go(&mut gate.ends(), context))
    };
    contexts.iter().all(is_idle)
}

/// What waits until contexts have run everything. What it returns is dropped when they may be used
/// again.
pub(crate) type Work = Box<dyn FnOnce() -> Box<dyn Any> + Send>;

/// Does what waits until `contexts` have run everything: now if no launch is in flight there that
/// others wait for, or else later, on the reaper's thread.
pub(crate) fn when_idle(contexts: Vec<Arc<CudaContext>>, work: Work) {
    let gates: Vec<_> = contexts.iter().map(Gate::of).collect();
    let mut alone = Vec::with_capacity(gates.len());
    for (gate, context) in gates.iter().zip(&contexts) {
        // Without a gate nothing was launched through it.
        let Ok(gate) = gate else { continue };
        match gate.try_alone(context) {
            Some(one) => alone.push(one),
            None => {
                drop(alone);
                return run_when_idle(contexts, work);
            }
        }
    }
    let rest = work();
    drop(alone);
    drop(rest);
}
