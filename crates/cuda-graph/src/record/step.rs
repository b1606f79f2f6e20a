//! A step that is run again and again, as a graph where that can be.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};

use super::{Eager, Recorder};
use crate::exec::Exec;
use crate::graph::Graph;
use crate::{Error, Result};

/// A step in the form that runs fastest here: a graph that is launched, or, where the driver lacks what the graph would
/// need, a function that is run eagerly each time.
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
    form: Form,
}

type Run = Box<dyn FnMut(&mut dyn Recorder) -> Result<()> + Send>;

enum Form {
    /// The graph keeps its nodes, for updates.
    Graph(Exec, Graph),
    Eager {
        run: Run,
        why: Error,
        /// The stream that it was launched in last.
        recorder: Option<Eager>,
    },
}

impl Step {
    /// Builds a graph of what `record` records. Where that is [`Error::Unsupported`], `record` is kept, and called at each
    /// launch.
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
            Ok((graph, ())) => Form::Graph(graph.instantiate()?, graph),
            Err(why) if why.is_unsupported() => Form::Eager {
                run: Box::new(record),
                why,
                recorder: None,
            },
            Err(error) => return Err(error),
        };
        Ok(Step { form })
    }

    /// Runs it in the order of `stream`. As a graph it returns at once; eagerly, the host waits wherever a flag is read.
    ///
    /// # Errors
    ///
    /// The driver's; eagerly, whatever the step returns, and those of [`Eager::new`].
    pub fn launch(&mut self, stream: &Arc<CudaStream>) -> Result<()> {
        match &mut self.form {
            Form::Graph(exec, _) => exec.launch(stream),
            Form::Eager { run, recorder, .. } => {
                let recorder = match recorder {
                    Some(recorder) if Arc::ptr_eq(&recorder.stream, stream) => recorder,
                    other => other.insert(Eager::new(stream)?),
                };
                let ran = run(recorder);
                recorder.end_step();
                ran
            }
        }
    }

    /// Why it runs eagerly, if it does.
    pub fn why_eager(&self) -> Option<&Error> {
        match &self.form {
            Form::Graph(..) => None,
            Form::Eager { why, .. } => Some(why),
        }
    }

    /// The executable, if it is one: to update its nodes.
    pub fn exec(&mut self) -> Option<&mut Exec> {
        match &mut self.form {
            Form::Graph(exec, _) => Some(exec),
            Form::Eager { .. } => None,
        }
    }

    /// The graph, if it is one: to look at, and to draw.
    pub fn graph(&self) -> Option<&Graph> {
        match &self.form {
            Form::Graph(_, graph) => Some(graph),
            Form::Eager { .. } => None,
        }
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.form {
            Form::Graph(exec, _) => write!(f, "Step as a graph, {exec:?}"),
            Form::Eager { why, .. } => write!(f, "Step run eagerly, because {why}"),
        }
    }
}
