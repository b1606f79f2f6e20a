//! A step that is called again and again, for the price of a launch and of what changed.

mod bound;
mod core;
mod script;
mod shape;
mod standing;
mod walk;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::{CudaContext, CudaStream};

use self::core::Core;
use crate::collective::{self, Communicator};
use crate::exec::{Exec, InstantiateOptions};
use crate::graph::Checkpoints;
use crate::kernel::{KernelArgument, Param};
use crate::optimize::Report;
use crate::record::{Eager, Recorder, resume_after};
use crate::{Error, Result, driver};
use walk::Walk;

/// Calls a step again and again, with new buffers, sizes and values, for the price of a launch and
/// of the nodes that changed.
///
/// The first call builds a graph of what the step records, instantiates it and launches it. A later
/// call walks the step beside the executable: operations that are the same cost a comparison, those
/// that differ are set on their nodes, and then the executable is launched. A step that records
/// something else than before gets another executable; a bounded number of them is kept.
///
/// ```
/// use cuda_graph::{Buffer, CopyOp, FillOp, Recorder, Replay, Result};
///
/// let device = cuda_graph::device(0)?;
/// let stream = device.context().new_stream()?;
/// let buffers = [Buffer::<u32>::zeroed(&stream, 4)?, Buffer::<u32>::zeroed(&stream, 4)?];
/// let result = Buffer::<u32>::zeroed(&stream, 4)?;
///
/// let step = |r: &mut dyn Recorder, from: &Buffer<u32>, value: u32| -> Result<()> {
///     r.record(FillOp::new(from, value)?)?;
///     r.record(CopyOp::new(&result, from)?)?;
///     Ok(())
/// };
/// let mut replay = Replay::new(device.context())?;
/// for value in 0..10 {
///     let from = &buffers[value as usize % 2];
///     replay.call(&stream, |r| step(r, from, value))?;
///     assert_eq!(result.to_host(&stream)?, [value; 4]);
/// }
/// assert_eq!(replay.counters().builds, 1);
/// # Ok::<(), cuda_graph::Error>(())
/// ```
///
/// # What can change without a new executable
///
/// | of | what changes |
/// |---|---|
/// | kernels | function, grid, block, shared memory, arguments; not the launch attributes |
/// | fills | region, value, size; not between a memset and a kernel ([`FillOp`](crate::FillOp)) |
/// | copies | regions and sizes; not the sides |
/// | host functions, events | all; the host drives bodies that hold one |
/// | loops and branches | the flag |
/// | foreign work, embedded graphs | all that the driver updates in a child node |
///
/// Anything else, and anything that the driver refuses to update, makes another executable.
/// Kernels, fills, copies and embedded graphs change in bodies too.
///
/// # What a call may do
///
/// A call that fails, or whose step panics, changes nothing and launches nothing, unless the step
/// has sections for the host ([`outside`](trait.Recorder.html#method.outside)): what came before
/// such a section was launched. What a step uses is held while an executable has it or a launch in
/// flight uses it. Where the device lacks conditional nodes, calls run through an [`Eager`].
pub struct Replay {
    core: Core,
    /// Runs the calls, where no graph can.
    eager: Option<(Eager, Error)>,
    /// What came of the last call, if it may have stopped.
    last: Option<Outcome>,
}

/// How many executables a [`Replay`] keeps, and how they are made.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The most executables that are kept. The one that was not used for longest goes first; those
    /// that a call needs stay.
    pub executables: usize,
    /// The most bytes of this library's buffers that the executables may hold, each allocation
    /// counted once. Those of the last call stay, whatever they hold.
    pub bytes: u64,
    /// How executables are made.
    pub instantiate: InstantiateOptions,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions {
            executables: 16,
            bytes: u64::MAX,
            instantiate: InstantiateOptions::default(),
        }
    }
}

/// What a [`Replay`] did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Calls, also those that failed.
    pub calls: u64,
    /// Launches of executables.
    pub launches: u64,
    /// Executables made because a step recorded something new.
    pub builds: u64,
    /// Executables made for arguments that came again, so that they need not be set each time.
    pub twins: u64,
    /// Launches of an executable that was there.
    pub hits: u64,
    /// Executables that were dropped to keep to the bounds.
    pub evictions: u64,
    /// Operations that were compared with what a node did.
    pub compared: u64,
    /// Nodes, flags and foreign work that were set.
    pub updated: u64,
    /// Loops, branches and parallel parts that the host drove, because of a section for the host.
    pub host_driven: u64,
    /// Calls that ran eagerly.
    pub eager: u64,
}

/// What came of a call.
#[derive(Clone)]
pub struct Outcome {
    stopped: Stopped,
}

/// Where a step stopped.
#[derive(Clone)]
enum Stopped {
    Known(Option<Arc<str>>),
    /// The device says so.
    Asked {
        checkpoints: Checkpoints,
        stream: Arc<CudaStream>,
        /// Those that the step has collectives of.
        communicators: Vec<Communicator>,
        /// The number of the call, and of the last one.
        call: u64,
        last: Arc<AtomicU64>,
    },
}

impl Outcome {
    /// The checkpoint at which the step stopped, if it did. Waits until the step is over.
    ///
    /// # Errors
    ///
    /// [`Error::OutcomeGone`] if another call was made since; [`Error::Communicator`] if the step
    /// has collectives, and their communicator fails; what the driver answers.
    pub fn stopped(&self) -> Result<Option<Arc<str>>> {
        match &self.stopped {
            Stopped::Known(stopped) => Ok(stopped.clone()),
            Stopped::Asked { call, last, .. } if last.load(Ordering::Relaxed) != *call => {
                Err(Error::OutcomeGone)
            }
            Stopped::Asked {
                checkpoints,
                stream,
                communicators,
                ..
            } => {
                collective::wait_for_step(stream, &mut communicators.clone())?;
                checkpoints.stopped(stream)
            }
        }
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stopped {
            Stopped::Known(None) => f.write_str("Outcome: the step is whole"),
            Stopped::Known(Some(name)) => write!(f, "Outcome: stopped at `{name}`"),
            Stopped::Asked { checkpoints, .. } => write!(f, "Outcome: {checkpoints:?} know"),
        }
    }
}

impl Replay {
    /// A replay of steps on the device of `context`.
    pub fn new(context: &Arc<CudaContext>) -> Result<Replay> {
        Replay::with_options(context, ReplayOptions::default())
    }

    /// A replay with options.
    pub fn with_options(context: &Arc<CudaContext>, options: ReplayOptions) -> Result<Replay> {
        driver::choose()?;
        Ok(Replay {
            core: Core::new(context.clone(), options),
            eager: None,
            last: None,
        })
    }

    /// Runs `step` in the order of `stream`.
    ///
    /// `step` is called once; again if the device turns out to lack what its graph needs. Bodies of
    /// loops with sections for the host are called once for each iteration, and once more when that
    /// is found out.
    ///
    /// # Errors
    ///
    /// What `step` returns; [`Error::ForeignStream`]; what building, instantiating and launching
    /// return. After an error in the step nothing was launched or changed, except for what comes
    /// before a section for the host.
    pub fn call(
        &mut self,
        stream: &Arc<CudaStream>,
        mut step: impl FnMut(&mut dyn Recorder) -> Result<()>,
    ) -> Result<Outcome> {
        self.check_stream(stream)?;
        self.begin_call();
        if self.eager.is_none() {
            let mut walk = Walk::new(&mut self.core, stream);
            let walked = step(&mut walk).and_then(|()| walk.finish());
            let (lacks, launched) = (walk.unsupported.take(), walk.launched);
            let (stopped, checkpoints) = (walk.stopped.take(), walk.checkpoints.take());
            drop(walk);
            let error = match (walked, lacks) {
                (Ok(()), None) => {
                    self.core.trim();
                    return Ok(self.outcome(stopped, checkpoints, stream));
                }
                (_, Some(error)) | (Err(error), None) => error,
            };
            if launched || !error.is_unsupported() {
                return Err(error);
            }
            tracing::debug!("steps run eagerly from now on: {error}");
            self.eager = Some((Eager::new(stream)?, error));
        }
        self.call_eagerly(stream, &mut step)
    }

    fn call_eagerly(
        &mut self,
        stream: &Arc<CudaStream>,
        step: &mut dyn FnMut(&mut dyn Recorder) -> Result<()>,
    ) -> Result<Outcome> {
        let Some((eager, _)) = &mut self.eager else {
            return Err(Error::RecordingOver);
        };
        if !eager.runs_in(stream) {
            *eager = Eager::new(stream)?;
        }
        self.core.counters.eager += 1;
        let ran = step(eager);
        eager.end_step();
        let stopped = eager.take_stopped();
        ran.map(|()| self.outcome(stopped, None, stream))
    }

    fn begin_call(&mut self) {
        self.core.counters.calls += 1;
        if let Some(serial) = &self.core.serial {
            serial.store(self.core.counters.calls, Ordering::Relaxed);
        }
        self.last = None;
    }

    fn outcome(
        &mut self,
        stopped: Option<Arc<str>>,
        checkpoints: Option<Checkpoints>,
        stream: &Arc<CudaStream>,
    ) -> Outcome {
        let stopped = match (stopped, checkpoints) {
            (None, Some(checkpoints)) => Stopped::Asked {
                checkpoints,
                stream: stream.clone(),
                communicators: self.core.communicators.clone(),
                call: self.core.counters.calls,
                last: self.core.serial(),
            },
            (stopped, _) => Stopped::Known(stopped),
        };
        let outcome = Outcome { stopped };
        if !matches!(outcome.stopped, Stopped::Known(None)) {
            self.last = Some(outcome.clone());
        }
        outcome
    }

    /// Goes on with a step behind the checkpoint at which the last call stopped, with everything as
    /// it was. `step` is the same step; what comes before the checkpoint is passed over
    /// ([`resume_after`](trait.Recorder.html#method.resume_after)).
    ///
    /// ```
    /// use cuda_graph::{Buffer, FillOp, Recorder, Replay, Result};
    ///
    /// let device = cuda_graph::device(0)?;
    /// let stream = device.context().new_stream()?;
    /// let (a, b) = (Buffer::<u32>::zeroed(&stream, 1)?, Buffer::<u32>::zeroed(&stream, 1)?);
    /// let pause = Buffer::from_host(&stream, &[1u32])?;
    /// let step = |r: &mut dyn Recorder| -> Result<()> {
    ///     r.record(FillOp::new(&a, 1)?)?;
    ///     r.checkpoint("between", &pause)?;
    ///     r.record(FillOp::new(&b, 1)?)?;
    ///     Ok(())
    /// };
    /// let mut replay = Replay::new(device.context())?;
    /// let outcome = replay.call(&stream, step)?;
    /// assert_eq!(outcome.stopped()?.as_deref(), Some("between"));
    /// assert_eq!(b.to_host(&stream)?, [0]);
    ///
    /// let outcome = replay.resume(&stream, step)?;
    /// assert_eq!(outcome.stopped()?, None);
    /// assert_eq!(b.to_host(&stream)?, [1]);
    /// # Ok::<(), cuda_graph::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotStopped`]; as [`call`](Replay::call).
    pub fn resume(
        &mut self,
        stream: &Arc<CudaStream>,
        mut step: impl FnMut(&mut dyn Recorder) -> Result<()>,
    ) -> Result<Outcome> {
        let last = self.last.clone().ok_or(Error::NotStopped)?;
        let name = last.stopped()?.ok_or(Error::NotStopped)?;
        let resumed = self.call(stream, |r| resume_after(r, &name, &mut step));
        if resumed.is_err() {
            // It can be gone on with again.
            let stopped = Stopped::Known(Some(name));
            self.last = Some(Outcome { stopped });
        }
        resumed
    }

    /// Gives a parameter a value for the next [`run`](Replay::run) or call. Other replays and
    /// recorders that use the parameter get it too.
    ///
    /// # Errors
    ///
    /// [`Error::UnusedParam`] if steps were called and none of them uses it; otherwise what an
    /// operation that is made of it answers, or a loop whose flag it is. The parameter then has the
    /// value that it had.
    pub fn bind<T: KernelArgument + Clone + Send + 'static>(
        &mut self,
        param: &Param<T>,
        value: T,
    ) -> Result<()> {
        /// Gives the value back that there was before, also if a closure panics.
        struct Old<'a, T: KernelArgument + Clone + Send + 'static>(&'a Param<T>, Option<T>);
        impl<T: KernelArgument + Clone + Send + 'static> Drop for Old<'_, T> {
            fn drop(&mut self) {
                drop(self.0.exchange(self.1.take()));
            }
        }
        let mut old = Old(param, param.exchange(Some(value)));
        self.core.check_param(param.as_any())?;
        let replaced = old.1.take();
        std::mem::forget(old);
        drop(replaced);
        Ok(())
    }

    /// Runs what the last call ran, in the order of `stream`, without calling the step. Nodes whose
    /// [`Param`]s have other values are set first, and no others.
    ///
    /// # Errors
    ///
    /// [`Error::NotCalled`] if there is nothing to run again, because no call was made, the last
    /// one failed, the step has sections for the host, calls [run eagerly](Replay::why_eager), or
    /// the values need another executable for a step with embedded graphs or foreign work;
    /// otherwise as [`call`](Replay::call).
    pub fn run(&mut self, stream: &Arc<CudaStream>) -> Result<Outcome> {
        if let Some(launched) = self.core.run_again(stream) {
            let stopped = Stopped::Known(None);
            return launched.map(|()| Outcome { stopped });
        }
        self.check_stream(stream)?;
        if self.eager.is_some() {
            return Err(Error::NotCalled {
                why: "it runs eagerly",
            });
        }
        self.begin_call();
        let checkpoints = self.core.run(stream)?;
        self.core.trim();
        Ok(self.outcome(None, checkpoints, stream))
    }

    fn check_stream(&self, stream: &CudaStream) -> Result<()> {
        let (own, context) = (&self.core.context, stream.context());
        match Arc::ptr_eq(own, context) || own.cu_ctx() == context.cu_ctx() {
            true => Ok(()),
            false => Err(Error::ForeignStream),
        }
    }

    /// Forgets all executables, and goes on in another context: for one that was torn down and made
    /// again.
    pub fn reset(&mut self, context: &Arc<CudaContext>) {
        self.core.reset(context);
        self.eager = None;
        self.last = None;
    }

    /// What it did so far.
    pub fn counters(&self) -> Counters {
        self.core.counters
    }

    /// How many executables it keeps.
    pub fn executables(&self) -> usize {
        self.core.executables()
    }

    /// How many nodes the executables of the last call have.
    pub fn nodes(&self) -> usize {
        self.core.last_execs().map(Exec::node_count).sum()
    }

    /// What the passes did to the executables of the last call, if
    /// [`ReplayOptions::instantiate`] names some.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        self.core.last_execs().filter_map(Exec::report)
    }

    /// How many bytes of this library's buffers its executables hold. Each allocation counts once.
    pub fn bytes(&self) -> u64 {
        self.core.bytes()
    }

    /// Why it runs calls eagerly, if it does.
    pub fn why_eager(&self) -> Option<&Error> {
        self.eager.as_ref().map(|(_, why)| why)
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replay with {} executables", self.core.executables())
    }
}
