//! What is measured: graphs, and the memory that they work on.

use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Graph, Recorder, Result};

use crate::memory::Memory;
use crate::tiny::Tiny;
use crate::{conjugate, decode, lines, loops, multigrid};

/// What cases are made with.
pub struct Setting {
    pub stream: Arc<CudaStream>,
    pub tiny: Tiny,
}

impl Setting {
    pub fn memory(&self) -> Memory {
        Memory::new(&self.stream)
    }
}

/// Makes the graph. It is the same each time.
pub type Define = Box<dyn Fn() -> Result<Graph>>;

/// A graph to measure.
pub struct Case {
    /// What it is.
    pub title: String,
    /// The turns of its loop, if it is one loop.
    pub turns: Option<u32>,
    pub memory: Memory,
    pub define: Define,
}

impl Case {
    pub fn new(title: &str, memory: Memory, define: Define) -> Case {
        Case {
            title: title.into(),
            turns: None,
            memory,
            define,
        }
    }

    /// A case whose graph `record` records.
    pub fn recorded(
        setting: &Setting,
        title: &str,
        memory: Memory,
        record: impl Fn(&mut dyn Recorder) -> Result<()> + 'static,
    ) -> Case {
        let context = setting.stream.context().clone();
        let define = move || {
            let (graph, ()) = Graph::record(&context, |path| record(path))?;
            Ok(graph)
        };
        Case::new(title, memory, Box::new(define))
    }

    /// A case whose graph `record` records in a capture of the stream.
    pub fn captured(
        setting: &Setting,
        title: &str,
        memory: Memory,
        record: impl Fn(&mut dyn Recorder) -> Result<()> + 'static,
    ) -> Case {
        let stream = setting.stream.clone();
        let define = move || {
            let (graph, ()) = Graph::capture(&stream, |path| record(path))?;
            Ok(graph)
        };
        Case::new(title, memory, Box::new(define))
    }
}

type Make = fn(&Setting) -> Result<Case>;

/// All cases, by name. What is before a dash is the name of several.
pub const CASES: &[(&str, Make)] = &[
    ("edges", lines::edges),
    ("fills-between", lines::fills_between),
    ("fills-beside", lines::fills_beside),
    ("copies", lines::copies),
    ("loop-1", |setting| loops::do_while(setting, 1)),
    ("loop-2", |setting| loops::do_while(setting, 2)),
    ("loop-5", |setting| loops::do_while(setting, 5)),
    ("loop-while", |setting| loops::while_first(setting, 2)),
    ("wide", lines::wide),
    ("chains", lines::chains),
    ("lanes", lines::lanes),
    ("decode", decode::case),
    ("multigrid", multigrid::case),
    ("conjugate", conjugate::case),
];

/// Whether `name` is that of this case, or of the several that it is one of.
pub fn is_named(case: &str, name: &str) -> bool {
    let rest = case.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}
