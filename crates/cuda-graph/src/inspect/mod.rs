//! Pictures of graphs: the driver's own, and ours in Graphviz' language and as SVG.

mod dot;
mod driver_dot;
mod svg;

pub use driver_dot::DriverDot;

use crate::op::AnyOp;
use crate::{Graph, Result};

/// A graph as pictures show it, with what is embedded in it.
struct Picture {
    /// What each node says, line by line, and the graphs inside it.
    nodes: Vec<(Vec<String>, Vec<Picture>)>,
    /// By position among the nodes.
    edges: Vec<(usize, usize, bool)>,
}

impl Picture {
    fn of(graph: &Graph) -> Result<Picture> {
        let ids = graph.nodes()?;
        let mut nodes = Vec::with_capacity(ids.len());
        for &id in &ids {
            let inside = graph.views(id)?;
            let inside = inside.iter().map(Picture::of).collect::<Result<_>>()?;
            nodes.push((lines(id.index(), &graph.any_op(id)?), inside));
        }
        let place: std::collections::HashMap<_, _> =
            ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
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

/// What a picture says of a node.
fn lines(index: u32, op: &AnyOp) -> Vec<String> {
    let mut lines = vec![format!("{index}: {}", op.kind())];
    if let Some(label) = op.label_text() {
        lines.push(format!("\"{label}\""));
    }
    match op {
        AnyOp::Kernel(op) => {
            let ((gx, gy, gz), (bx, by, bz)) = (op.grid(), op.block());
            lines[0] = format!("{index}: {}", op.kernel().name());
            lines.push(format!("grid {gx}x{gy}x{gz}, block {bx}x{by}x{bz}"));
            if op.shared_bytes() > 0 {
                lines.push(format!("{} bytes shared", op.shared_bytes()));
            }
            lines.extend(
                op.attributes()
                    .iter()
                    .map(|attribute| format!("{attribute:?}")),
            );
        }
        AnyOp::Copy(op) => {
            let (from, to) = (op.from().space(), op.to().space());
            lines.push(format!("{} bytes, {from:?} to {to:?}", op.bytes()).to_lowercase());
        }
        AnyOp::Fill(op) => {
            let (width, height) = op.size();
            let bytes = width * height * op.value_bytes() as usize;
            lines.push(format!("{bytes} bytes of {:#x}", op.value()));
        }
        AnyOp::Alloc(op) => lines.push(format!(
            "{} bytes, {:?}",
            op.bytes(),
            op.location_of_memory()
        )),
        AnyOp::Free(op) => lines.push(format!("{:#x}", op.address())),
        AnyOp::Batch(op) => lines.push(format!("{} operations", op.operations().len())),
        _ => {}
    }
    if let Some(location) = op.tag().location {
        lines.push(format!("{}:{}", location.file(), location.line()));
    }
    lines
}
