//! Launches of graphs with loops, one after the other.
//!
//! Where loops of two executables run at once, an H200 ends both in LAUNCH_FAILED (driver for CUDA
//! 13.0, each time, with plain driver calls too), and no context survives that. So such launches
//! wait for each other, in whatever streams of a context they are (invariant L16).

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaStream};

use crate::collective::Shared;
use crate::driver::event::Event;
use crate::driver::per_context::PerContext;
use crate::{Result, driver};

/// Whose turn it is in a context.
pub(super) struct Turns {
    /// Behind the last launch. It goes with its context, which may be gone before this is.
    last: ManuallyDrop<Event>,
    launching: Mutex<()>,
    shared: Shared,
}

impl Turns {
    pub(super) fn of(context: &Arc<CudaContext>) -> Result<Arc<Turns>> {
        static TURNS: PerContext<Arc<Turns>> = PerContext::new();
        TURNS.get(context, || {
            driver::bind(context)?;
            Ok(Arc::new(Turns {
                last: ManuallyDrop::new(Event::new()?),
                launching: Mutex::new(()),
                shared: Shared::of(context)?,
            }))
        })
    }

    /// Makes a launch in `stream`, which runs once the one before has. Ranks that share a context
    /// of software's take no turns.
    pub(super) fn take(
        &self,
        stream: &CudaStream,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if self.shared.is_shared() {
            return launch();
        }
        let _one = self
            .launching
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        driver::bind(stream.context())?;
        let raw = stream.cu_stream();
        // No capture takes a launch; the driver says so below.
        if !driver::capture::is_captured(raw)? {
            driver::run::wait(self.last.raw(), raw)?;
        }
        launch()?;
        // The stream of the launch before may have gone, and made its own context the thread's.
        // Without an event nothing tells later when the launch is over, so it is to be over now.
        driver::bind(stream.context())
            .and_then(|()| self.last.record(raw))
            .or_else(|_| driver::stream::synchronize(raw))
    }
}
