//! Pictures of graphs: the driver's own, and ours in Graphviz' language and as SVG.

mod diff_svg;
mod dot;
mod driver_dot;
mod svg;

pub use driver_dot::DriverDot;

use std::collections::HashMap;

use crate::Result;
use crate::graph::diff::{Compared, Mark};
use crate::graph::operation::Holds;
use crate::graph::{AnyOp, Conditional, Graph, Operation};
use crate::op::{Op, hex};

/// A graph as pictures show it, with what is embedded in it.
struct Picture {
    nodes: Vec<Drawn>,
    /// By position among the nodes.
    edges: Vec<(usize, usize, bool)>,
}

/// A node.
struct Drawn {
    /// The colour of its box.
    look: Look,
    /// What it says, line by line.
    lines: Vec<String>,
    /// The graphs inside it, with what each is called, unless it is the only one and speaks for
    /// itself.
    inside: Vec<(Option<String>, Picture)>,
}

/// How a node's box looks.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    Plain,
    Added,
    Changed,
    Removed,
}

impl Picture {
    fn of(graph: &Graph) -> Result<Picture> {
        Picture::marked(graph, None)
    }

    /// A graph with what a comparison with an older one found.
    fn marked(graph: &Graph, found: Option<&Compared>) -> Result<Picture> {
        let ids = graph.nodes()?;
        let mut nodes = Vec::with_capacity(ids.len());
        for &id in &ids {
            let op = graph.any_op(id)?;
            let views = graph.views(id)?.into_iter().enumerate();
            let inside = views
                .map(|(number, view)| Ok((title(&op, number), Picture::marked(&view, found)?)));
            let mut drawn = Drawn {
                look: Look::Plain,
                inside: inside.collect::<Result<_>>()?,
                lines: lines(id.index(), &op),
            };
            match found.and_then(|found| found.marks.get(&id)) {
                None => {}
                Some(Mark::Added) => {
                    drawn.look = Look::Added;
                    drawn.lines.insert(0, "added".into());
                }
                Some(Mark::Changed(parameters)) => {
                    drawn.look = Look::Changed;
                    drawn.lines.insert(0, "changed".into());
                    drawn
                        .lines
                        .extend(parameters.iter().map(ToString::to_string));
                }
            }
            nodes.push(drawn);
        }
        let place: HashMap<_, _> = ids.iter().zip(0..).collect();
        let mut lost = Vec::new();
        let removed = found.iter().flat_map(|found| &found.removed);
        for removed in removed.filter(|removed| removed.graph == graph.body_index()) {
            let own = nodes.len();
            let before = removed.before.iter().filter_map(|id| place.get(id));
            lost.extend(before.map(|from| (*from, own, false)));
            let after = removed.after.iter().filter_map(|id| place.get(id));
            lost.extend(after.map(|to| (own, *to, false)));
            let mut lines = lines(removed.index, &removed.does);
            lines.insert(0, "removed".into());
            nodes.push(Drawn {
                look: Look::Removed,
                lines,
                inside: Vec::new(),
            });
        }
        // A frame around nothing is not drawn.
        if nodes.is_empty() {
            nodes.push(Drawn {
                look: Look::Plain,
                lines: vec!["nothing".into()],
                inside: Vec::new(),
            });
        }
        let edges = graph.edges()?;
        let edges = edges.iter().filter_map(|edge| {
            let (from, to) = (place.get(&edge.from)?, place.get(&edge.to)?);
            Some((*from, *to, edge.data.programmatic))
        });
        Ok(Picture {
            edges: edges.chain(lost).collect(),
            nodes,
        })
    }
}

/// What body `number` of a conditional node is called.
fn title(op: &AnyOp, number: usize) -> Option<String> {
    match (op, number) {
        (AnyOp::While(_), _) => Some("body".into()),
        (AnyOp::If(_) | AnyOp::IfElse(_), 0) => Some("then".into()),
        (AnyOp::IfElse(_), _) => Some("else".into()),
        (AnyOp::Switch(_), _) => Some(format!("case {number}")),
        _ => None,
    }
}

/// What a picture says of a node.
fn lines(index: u32, op: &AnyOp) -> Vec<String> {
    let name = match op {
        AnyOp::Kernel(op) => op.kernel().name().to_string(),
        AnyOp::Collective(op) => op.collective().to_string(),
        AnyOp::While(_) => "while".into(),
        AnyOp::If(_) => "if".into(),
        AnyOp::IfElse(_) => "if/else".into(),
        AnyOp::Switch(op) => format!("switch of {}", op.bodies()),
        _ => op.kind().to_string(),
    };
    let mut lines = vec![format!("{index}: {name}")];
    if let Holds::Bodies(branching) = op.holds() {
        lines.push(format!("{:?}", branching.condition));
    }
    if let Some(label) = op.label_text() {
        lines.push(format!("\"{label}\""));
    }
    match op {
        AnyOp::Kernel(op) => {
            let ((gx, gy, gz), (bx, by, bz)) = (op.grid(), op.block());
            lines.push(format!("grid {gx}x{gy}x{gz}, block {bx}x{by}x{bz}"));
            if op.shared_bytes() > 0 {
                lines.push(format!("{} bytes shared", op.shared_bytes()));
            }
            let attributes = op.attributes().iter();
            lines.extend(attributes.map(|attribute| format!("{attribute:?}")));
        }
        AnyOp::Copy(op) => {
            let (from, to) = (op.from().space(), op.to().space());
            lines.push(format!("{} bytes, {from:?} to {to:?}", op.bytes()).to_lowercase());
        }
        AnyOp::Fill(op) => {
            let (width, height) = op.size();
            let bytes = width * height * op.value().len();
            lines.push(format!("{bytes} bytes of {}", hex(op.value())));
        }
        AnyOp::Alloc(op) => {
            let place = op.location_of_memory();
            lines.push(format!("{} bytes, {place:?}", op.bytes()));
        }
        AnyOp::Free(op) => lines.push(format!("{:#x}", op.address())),
        AnyOp::Batch(op) => lines.push(format!("{} operations", op.operations().len())),
        _ => {}
    }
    if let Some(location) = op.tag().location {
        lines.push(format!("{}:{}", location.file(), location.line()));
    }
    lines
}
