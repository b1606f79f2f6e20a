//! What passes did.

use std::fmt;

use super::Pass;
use super::plan::NotPlanned;
use crate::error::NodeName;

/// What the passes made of a graph.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// What each pass did, in the order in which they ran.
    pub passes: Vec<PassReport>,
    /// Nodes before and after, with those in bodies and embedded graphs.
    pub nodes: (usize, usize),
    /// Edges before and after.
    pub edges: (usize, usize),
    /// Why the graph was given to the driver as it is, if it was.
    pub left: Option<Left>,
    /// How often an update broke what a pass had assumed, so that the graph was optimized anew
    /// without that.
    pub fallbacks: u64,
}

/// What a pass did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PassReport {
    /// Which pass.
    pub pass: Pass,
    /// What it did, and how often.
    pub did: Vec<(&'static str, usize)>,
    /// What it expects that to spare a launch on an H200, in µs.
    pub gain: f64,
    /// What it left as it is, though it is of the kind that the pass is for.
    pub left: Vec<Left>,
}

/// Something that was left as it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Left {
    /// The node, if it is one; the first of several.
    pub node: Option<Box<NodeName>>,
    /// How many nodes were left for this reason.
    pub count: usize,
    /// Why.
    pub why: &'static str,
}

impl From<NotPlanned> for Left {
    fn from(left: NotPlanned) -> Left {
        let NotPlanned { node, why } = left;
        Left {
            node,
            count: 1,
            why,
        }
    }
}

impl PassReport {
    pub(super) fn new(pass: Pass) -> PassReport {
        PassReport {
            pass,
            did: Vec::new(),
            gain: 0.0,
            left: Vec::new(),
        }
    }

    /// How often it did what it calls `what` among what it [did](field@PassReport::did).
    pub fn count(&self, what: &str) -> usize {
        let done = self.did.iter().find(|(did, _)| *did == what);
        done.map_or(0, |(_, count)| *count)
    }

    /// Notes that it did something so often, which spares so much each.
    pub(super) fn did(&mut self, what: &'static str, count: usize, gain: f64) {
        if count == 0 {
            return;
        }
        self.gain += gain * count as f64;
        match self.did.iter_mut().find(|(did, _)| *did == what) {
            Some((_, done)) => *done += count,
            None => self.did.push((what, count)),
        }
    }

    /// Notes that a node was left.
    pub(super) fn leave(&mut self, node: impl FnOnce() -> NodeName, why: &'static str) {
        match self.left.iter_mut().find(|left| left.why == why) {
            Some(left) => left.count += 1,
            None => self.left.push(Left {
                node: Some(Box::new(node())),
                count: 1,
                why,
            }),
        }
    }
}

impl Report {
    pub(super) fn new(
        before: (usize, usize),
        after: (usize, usize),
        passes: Vec<PassReport>,
    ) -> Report {
        Report {
            passes,
            nodes: (before.0, after.0),
            edges: (before.1, after.1),
            left: None,
            fallbacks: 0,
        }
    }

    /// The report on a graph that no pass saw.
    pub(crate) fn left(left: impl Into<Left>) -> Report {
        Report {
            left: Some(left.into()),
            ..Report::new((0, 0), (0, 0), Vec::new())
        }
    }

    /// What this pass did, if it ran.
    pub fn pass(&self, pass: Pass) -> Option<&PassReport> {
        self.passes.iter().find(|report| report.pass == pass)
    }

    /// What all passes expect to spare a launch on an H200, in µs.
    pub fn gain(&self) -> f64 {
        self.passes.iter().map(|pass| pass.gain).sum()
    }

    /// Whether anything was changed.
    pub fn has_changed(&self) -> bool {
        self.passes.iter().any(|pass| !pass.did.is_empty())
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{node}")?,
            None => f.write_str("the graph")?,
        }
        match self.count {
            1 => write!(f, ": {}", self.why),
            count => write!(f, " and {} more: {}", count - 1, self.why),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(left) = &self.left {
            return writeln!(f, "left as it is: {left}");
        }
        let (nodes, edges) = (self.nodes, self.edges);
        writeln!(
            f,
            "nodes: {} to {}, edges: {} to {}",
            nodes.0, nodes.1, edges.0, edges.1
        )?;
        for pass in &self.passes {
            write!(f, "{:?}:", pass.pass)?;
            if pass.did.is_empty() {
                f.write_str(" nothing")?;
            }
            for (at, (what, count)) in pass.did.iter().enumerate() {
                let separator = if at > 0 { ", " } else { " " };
                write!(f, "{separator}{count} {what}")?;
            }
            match pass.gain > 0.0 {
                true => writeln!(f, "; {:.1} µs a launch expected", pass.gain)?,
                false => writeln!(f)?,
            }
            for left in &pass.left {
                writeln!(f, "  left: {left}")?;
            }
        }
        match self.fallbacks {
            0 => Ok(()),
            count => writeln!(f, "fallbacks: {count}"),
        }
    }
}
