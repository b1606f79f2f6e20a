//! From a definition to an executable.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphExec, CUgraphInstantiate_flags as Flags,
    CUgraphInstantiateResult, CUresult,
};

use super::Exec;
use super::optimized::Optimized;
use super::others::Others;
use super::turns::Turns;
use crate::collective::Communicator;
use crate::driver::Driver;
use crate::error::InstantiateFailure;
use crate::graph::Graph;
use crate::graph::state::State;
use crate::optimize::Optimize;
use crate::retain::Meeting;
use crate::{Error, Result, driver};

/// How to instantiate a graph.
#[derive(Clone, Debug, Default)]
pub struct InstantiateOptions {
    /// Frees what the graph allocated and did not free when it is launched again.
    pub auto_free: bool,
    /// May be launched from the device.
    pub device_launch: bool,
    /// Runs kernels at their nodes' priorities instead of the stream's.
    pub node_priority: bool,
    /// Lets loops run beside other loops. Otherwise launches of graphs with loops in one context
    /// wait for each other, and a graph whose own loops could run at once is refused: the driver
    /// for CUDA 13.0 has been seen to fail such launches on an H200. On the software driver, loops
    /// of a context that several ranks of a communicator share run at once in any case.
    pub loops_at_once: bool,
    /// Which passes put the graph better to the driver. Nothing that a launch writes changes, and
    /// updates go on speaking of the graph's nodes; [`Exec::report`] says what was done.
    pub optimize: Optimize,
    /// Brings the executable to the device on this stream at once.
    pub upload: Option<Arc<CudaStream>>,
}

const AUTO_FREE: u32 = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0;
const DEVICE_LAUNCH: u32 = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0;
const NODE_PRIORITY: u32 = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
const UPLOAD: u32 = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0;

impl InstantiateOptions {
    fn flags(&self) -> u64 {
        let flags = [
            (self.auto_free, AUTO_FREE),
            (self.device_launch, DEVICE_LAUNCH),
            (self.node_priority, NODE_PRIORITY),
            (self.upload.is_some(), UPLOAD),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        set.fold(0, |flags, (_, flag)| flags | u64::from(flag))
    }

    /// What an executable remembers of them.
    pub(super) fn kept(&self) -> InstantiateOptions {
        InstantiateOptions {
            upload: None,
            ..*self
        }
    }

    pub(super) fn from_flags(flags: u64) -> InstantiateOptions {
        let has = |flag| flags & u64::from(flag) != 0;
        InstantiateOptions {
            auto_free: has(AUTO_FREE),
            device_launch: has(DEVICE_LAUNCH),
            node_priority: has(NODE_PRIORITY),
            ..InstantiateOptions::default()
        }
    }
}

/// How long an executable that was let go is waited for where there may be one alone, and how long
/// between looks: what it waits for may be a launch of the thread's own.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_micros(50);

impl Graph {
    /// Makes an executable of the graph as it is now.
    ///
    /// # Errors
    ///
    /// [`Error::Instantiate`] says why, and names the node where the driver does. A graph with
    /// conditional or allocation nodes has one executable at a time; one that got conditional nodes
    /// has none while a copy of it exists, such as one embedded in another graph. One that was let
    /// go while launches of ranks run is waited for, for 30 seconds; it goes once no rank's launch
    /// runs in the context.
    /// [`Error::SideBySide`] if conditional nodes could run at once that must take turns.
    #[inline]
    pub fn instantiate(&self) -> Result<Exec> {
        self.instantiate_with(&InstantiateOptions::default())
    }

    /// Makes an executable, with options.
    ///
    /// # Errors
    ///
    /// As [`instantiate`](Graph::instantiate).
    pub fn instantiate_with(&self, options: &InstantiateOptions) -> Result<Exec> {
        driver::bind(self.context())?;
        match self.hierarchy().is_left() {
            false => self.make(options),
            true => self.make_patiently(options),
        }
    }

    /// Waits for the executable that was let go, if there may be one alone.
    #[cold]
    fn make_patiently(&self, options: &InstantiateOptions) -> Result<Exec> {
        let begun = Instant::now();
        loop {
            let is_left = self.hierarchy().is_left();
            match self.make(options) {
                Err(Error::Instantiate {
                    reason: InstantiateFailure::HasExecutable,
                    ..
                }) if is_left && begun.elapsed() < PATIENCE => thread::sleep(PAUSE),
                made => return made,
            }
        }
    }

    #[inline(always)]
    fn make(&self, options: &InstantiateOptions) -> Result<Exec> {
        let mut state = self.hierarchy().lock();
        if !options.optimize.is_none() {
            return self.make_optimized(&mut state, options);
        }
        let (raw, others) = self.instantiate_raw(&mut state, options)?;
        Ok(Exec::of(raw, self, &mut state, others, Some(options)))
    }

    // Not inlined: its frame is large, and most graphs are instantiated as they are.
    #[inline(never)]
    fn make_optimized(&self, state: &mut State, options: &InstantiateOptions) -> Result<Exec> {
        let made = Optimized::make(self, state, options)?;
        let (raw, others, optimized) = match made.exec {
            Some((raw, others, optimized)) => (raw, others, Some(optimized)),
            None => {
                let (raw, others) = self.instantiate_raw(state, options)?;
                (raw, others, None)
            }
        };
        let mut exec = Exec::of(raw, self, state, others, Some(options));
        if optimized.as_ref().is_some_and(|made| made.has_read()) {
            exec.table.hold(self.hierarchy().clone());
        }
        (exec.report, exec.optimized) = (Some(made.report), optimized);
        Ok(exec)
    }

    /// Has the driver instantiate the graph as it is.
    #[inline(always)]
    pub(super) fn instantiate_raw(
        &self,
        state: &mut State,
        options: &InstantiateOptions,
    ) -> Result<(CUgraphExec, Option<Arc<Others>>)> {
        let graph = state.body(self.body_index())?.raw;
        let others = self.checked(state, options.loops_at_once)?;
        let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags: options.flags(),
            hUploadStream: options
                .upload
                .as_ref()
                .map_or(std::ptr::null_mut(), |stream| stream.cu_stream()),
            hErrNode_out: std::ptr::null_mut(),
            result_out: CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS,
        };
        let made = driver::exec::instantiate(graph, &mut params);
        let raw = made.map_err(|error| match error {
            Error::Call { code, .. } => self.why_not(state, &params, code),
            error => error,
        })?;
        Ok((raw, others))
    }

    /// Refuses what would run at once and must not. Returns what launches heed of others.
    #[inline]
    pub(super) fn checked(
        &self,
        state: &mut State,
        loops_at_once: bool,
    ) -> Result<Option<Arc<Others>>> {
        match state.has_uncommon() || state.may_branch {
            false => Ok(None),
            true => self.check_all(state, loops_at_once),
        }
    }

    #[inline(never)]
    fn check_all(&self, state: &mut State, loops_at_once: bool) -> Result<Option<Arc<Others>>> {
        let communicators = self.check_collectives(state)?;
        let mut turns = None;
        if state.may_branch && !loops_at_once {
            self.check_turns(state)?;
            if state.has_loops(self.body_index()) {
                turns = Some(self.turns(&communicators)?);
            }
        }
        Ok(Others::of(turns, self.meeting(&communicators)?))
    }

    /// Whom launches with collectives of `communicators` meet in this process, if anybody.
    pub(super) fn meeting(&self, communicators: &[Communicator]) -> Result<Option<Meeting>> {
        let meets = communicators.iter().any(Communicator::meets_here);
        meets.then(|| Meeting::new(self.context())).transpose()
    }

    /// Whose turn a graph with loops waits for. Ranks that share a device wait for each other's
    /// loops inside, so those cannot take turns: a GPU does not run them at all.
    fn turns(&self, communicators: &[Communicator]) -> Result<Arc<Turns>> {
        let sharing = communicators.iter().map(Communicator::sharing);
        match sharing.into_iter().find(|ranks| !ranks.is_empty()) {
            Some(ranks) if driver::choose()? == Driver::Gpu => {
                Err(Error::LoopsShareDevice { ranks })
            }
            _ => Turns::of(self.context()),
        }
    }

    fn why_not(
        &self,
        state: &State,
        params: &CUDA_GRAPH_INSTANTIATE_PARAMS,
        code: CUresult,
    ) -> Error {
        // SAFETY: the driver wrote it; read as a number, because a later one may have more of them.
        let result = unsafe { (&raw const params.result_out).cast::<u32>().read() };
        let refused = code == CUresult::CUDA_ERROR_NOT_SUPPORTED;
        let reason = match result {
            1 if refused
                && (state.executables > 0 || state.may_branch)
                && self.body_index() == 0 =>
            {
                InstantiateFailure::HasExecutable
            }
            0 | 1 => InstantiateFailure::Driver,
            2 => InstantiateFailure::InvalidStructure,
            3 => InstantiateFailure::OperationNotSupported,
            4 => InstantiateFailure::SeveralContexts,
            5 => InstantiateFailure::ConditionUnused,
            other => InstantiateFailure::Other(other),
        };
        Error::Instantiate {
            reason,
            node: state.name_of_raw(params.hErrNode_out),
            code,
        }
    }
}
