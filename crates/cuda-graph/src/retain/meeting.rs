//! Launches that wait for each other, and calls of the driver that wait for all launches.
//!
//! Ranks of one process wait for each other inside their launches. A call that frees page-locked
//! memory, or destroys an executable with conditional nodes, waits until its context has run
//! everything, and lets no launch in meanwhile. Were it made between the launches of two ranks, it
//! would wait for the first, which waits for the second, which is not let in: for ever, on an H200.
//! Other contexts go on, as two H200s showed.
//! So such calls wait until no launch is in flight that others wait for, and no such launch begins
//! while one of them is under way (invariant L27). Where no ranks are, they wait for nothing.

use std::any::Any;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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
        gate.lock().watch(context, end.clone());
        Ok(Meeting { gate, end })
    }

    /// Makes a launch in `stream`.
    pub(crate) fn launch<T>(
        &self,
        stream: &CudaStream,
        launch: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _launching = self.gate.enter();
        let launched = launch()?;
        // The stream of the launch before may have gone, and made its own context the thread's.
        driver::bind(stream.context())?;
        self.end.record(stream.cu_stream())?;
        Ok(launched)
    }
}

/// Keeps a context's launches that others wait for apart from what waits for the context.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    /// Told when what waits for the context is done.
    free: Condvar,
}

#[derive(Default)]
struct State {
    /// How many make a launch, or want to. A launch may wait for room until another thread has
    /// made one, so nobody waits for these.
    launching: usize,
    /// How many wait for the context.
    waiting: usize,
    /// Behind the launches.
    ends: Vec<Arc<Event>>,
}

impl Gate {
    fn of(context: &Arc<CudaContext>) -> Result<Arc<Gate>> {
        static GATES: PerContext<Arc<Gate>> = PerContext::new();
        GATES.get(context, || Ok(Arc::default()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a launch in, once nothing waits for the context.
    fn enter(&self) -> Inside<'_> {
        let mut state = self.lock();
        state.launching += 1;
        let waits = |state: &mut State| state.waiting > 0;
        let free = self.free.wait_while(state, waits);
        drop(free.unwrap_or_else(PoisonError::into_inner));
        Inside(self, |state| &mut state.launching)
    }

    /// Lets in what waits for the context, if no launch is in flight that others wait for.
    fn try_wait(&self, context: &CudaContext) -> Option<Inside<'_>> {
        let mut state = self.lock();
        if !state.is_idle(context) {
            return None;
        }
        state.waiting += 1;
        Some(Inside(self, |state| &mut state.waiting))
    }
}

impl State {
    /// `end` is to be behind launches.
    fn watch(&mut self, context: &CudaContext, end: Arc<Event>) {
        if self.ends.len() == self.ends.capacity() {
            self.have_passed(context);
        }
        self.ends.push(end);
    }

    fn is_idle(&mut self, context: &CudaContext) -> bool {
        self.launching == 0 && self.have_passed(context)
    }

    /// Whether all events have. Drops those that have and that nobody will record again.
    fn have_passed(&mut self, context: &CudaContext) -> bool {
        if self.ends.is_empty() {
            return true;
        }
        // What the thread had current may be gone, which answers as if the context were.
        let bound = driver::bind(context).is_ok();
        // Nothing runs in a context that has failed.
        let is_over = |end: &Event| driver::capture::undisturbed(|| end.is_over()).unwrap_or(true);
        let mut all = true;
        self.ends.retain(|end| {
            let is_over = !bound || is_over(end);
            all &= is_over;
            !is_over || Arc::strong_count(end) > 1
        });
        all
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // They went with the context.
        self.ends.drain(..).for_each(mem::forget);
    }
}

/// One of those that a gate counts.
struct Inside<'a>(&'a Gate, fn(&mut State) -> &mut usize);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        *(self.1)(&mut state) -= 1;
        if state.waiting == 0 && state.launching > 0 {
            self.0.free.notify_all();
        }
    }
}

/// Whether no launch is in flight in the context that others wait for.
pub(crate) fn is_idle(context: &Arc<CudaContext>) -> bool {
    // Without a gate nothing was launched through it.
    Gate::of(context).map_or(true, |gate| gate.lock().is_idle(context))
}

/// What waits until a context has run everything. What it returns is dropped when the context may
/// be used again.
pub(crate) type Work = Box<dyn FnOnce() -> Box<dyn Any> + Send>;

/// Does what waits until `context` has run everything: now if no launch is in flight there that
/// others wait for, or else later, on the reaper's thread.
pub(crate) fn when_idle(context: Arc<CudaContext>, work: Work) {
    let Ok(gate) = Gate::of(&context) else {
        return drop(work());
    };
    match gate.try_wait(&context) {
        Some(inside) => {
            let rest = work();
            drop(inside);
            drop(rest);
        }
        None => run_when_idle(context, work),
    }
}
