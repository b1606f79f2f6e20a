//! Pictures of graphs: the driver's own, and ours in Graphviz' language and as SVG.

mod dot;
mod driver_dot;
mod svg;

pub use driver_dot::DriverDot;

use std::collections::HashMap;

use crate::Result;
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
    /// What it says, line by line.
    lines: Vec<String>,
    /// The graphs inside it, with what each is called, unless it is the only one and speaks for
    /// itself.
    inside: Vec<(Option<String>, Picture)>,
}

impl Picture {
    fn of(graph: &Graph) -> Result<Picture> {
        let ids = graph.nodes()?;
        let mut nodes = Vec::with_capacity(ids.len());
        for &id in &ids {
            let op = graph.any_op(id)?;
            let views = graph.views(id)?.into_iter().enumerate();
            let inside = views.map(|(number, view)| Ok((title(&op, number), Picture::of(&view)?)));
            nodes.push(Drawn {
                inside: inside.collect::<Result<_>>()?,
                lines: lines(id.index(), &op),
            });
        }
        // A frame around nothing is not drawn.
        if nodes.is_empty() {
            nodes.push(Drawn {
                lines: vec!["nothing".into()],
                inside: Vec::new(),
            });
        }
        let place: HashMap<_, _> = ids.iter().zip(0..).collect();
        let edges = graph.edges()?;
        let edges = edges.iter().filter_map(|edge| {
            let (from, to) = (place.get(&edge.from)?, place.get(&edge.to)?);
            Some((*from, *to, edge.data.programmatic))
        });
        Ok(Picture {
            edges: edges.collect(),
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
