//! A step that is run again and again, as a graph where that can be.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::{Eager, Recorder};
use crate::exec::Exec;
use crate::graph::Graph;
use crate::{Error, Result};

/// A step in the form that runs fastest here: a graph that is launched, or, where the driver lacks
/// what the graph would need, a function that is run eagerly each time.
///
/// ```
/// # use cuda_graph::{Buffer, FillOp, Step};
/// # let device = cuda_graph::device(0)?;
/// # let stream = device.context().new_stream()?;
/// # let (flag, a) = (Buffer::from_host(&stream, &[1u32])?, Buffer::<u32>::zeroed(&stream, 4)?);
/// # stream.synchronize()?;
/// let to = a.slice(..)?;
/// let mut step = Step::new(device.context(), move |r| {
///     r.if_nonzero(&flag, |r| r.record(FillOp::new(&to, 7u32)?).map(drop))
/// })?;
/// step.launch(&stream)?;
/// assert_eq!(a.to_host(&stream)?, [7; 4]);
/// println!("{step:?}");
/// # Ok::<(), cuda_graph::Error>(())
/// ```
pub struct Step {
    /// The executable and its graph, which keeps the nodes for updates, or what runs instead.
    form: std::result::Result<(Exec, Graph), Function>,
}

type Run = dyn FnMut(&mut dyn Recorder) -> Result<()> + Send;

/// A step that is run eagerly.
struct Function {
    run: Box<Run>,
    why: Error,
    /// The stream that it was launched in last.
    recorder: Option<Eager>,
}

impl Step {
    /// Builds a graph of what `record` records. Where that is [`Error::Unsupported`] or
    /// [`Error::OutsideGraph`], `record` is kept, and called at each launch.
    ///
    /// # Errors
    ///
    /// Whatever else `record` or the instantiation returns: an operation that a body may not hold is
    /// [`Error::NotInBody`], though it would run eagerly.
    pub fn new(
        context: &Arc<CudaContext>,
        mut record: impl FnMut(&mut dyn Recorder) -> Result<()> + Send + 'static,
    ) -> Result<Step> {
        let form = match Graph::record(context, |path| record(path)) {
            Ok((graph, ())) => Ok((graph.instantiate()?, graph)),
            Err(why) if why.is_unsupported() || matches!(why, Error::OutsideGraph) => {
                Err(Function {
                    run: Box::new(record),
                    why,
                    recorder: None,
                })
            }
            Err(error) => return Err(error),
        };
        Ok(Step { form })
    }

    /// Runs it in the order of `stream`. As a graph it returns at once; eagerly, the host waits
    /// wherever a flag is read.
    ///
    /// # Errors
    ///
    /// The driver's; eagerly, whatever the step returns, and those of [`Eager::new`].
    pub fn launch(&mut self, stream: &Arc<CudaStream>) -> Result<()> {
        let function = match &mut self.form {
            Ok((exec, _)) => return exec.launch(stream),
            Err(function) => function,
        };
        let recorder = match &mut function.recorder {
            Some(recorder) if Arc::ptr_eq(&recorder.stream, stream) => recorder,
            other => other.insert(Eager::new(stream)?),
        };
        let ran = (function.run)(recorder);
        recorder.end_step();
        ran
    }

    /// Why it runs eagerly, if it does.
    pub fn why_eager(&self) -> Option<&Error> {
        self.form.as_ref().err().map(|function| &function.why)
    }

    /// The executable, if it is one: to update its nodes.
    pub fn exec(&mut self) -> Option<&mut Exec> {
        self.form.as_mut().ok().map(|(exec, _)| exec)
    }

    /// The graph, if it is one: to look at, and to draw.
    pub fn graph(&self) -> Option<&Graph> {
        self.form.as_ref().ok().map(|(_, graph)| graph)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.form {
            Ok((exec, _)) => write!(f, "Step as a graph, {exec:?}"),
            Err(function) => write!(f, "Step run eagerly, because {}", function.why),
        }
    }
}
