//! Our own picture, laid out and drawn.

use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, LineEndKind, ShapeKind};
use layout::topo::layout::VisualGraph;

use super::{Drawn, Picture};
use crate::{Graph, Result};

impl Graph {
    /// A picture as SVG, with what [`dot`](Graph::dot) says. A node with an embedded graph, or bodies, is joined to the roots of
    /// these by lines that say which body it is. No other program is needed; laying out takes long from some hundreds of nodes on.
    pub fn svg(&self) -> Result<String> {
        let picture = Picture::of(self)?;
        if picture.nodes.is_empty() {
            return Ok(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\"></svg>\n"
                    .into(),
            );
        }
        let mut drawing = VisualGraph::new(Orientation::TopToBottom);
        add(&picture, &mut drawing);
        let mut writer = SVGWriter::new();
        drawing.do_it(false, false, false, &mut writer);
        Ok(writer.finalize())
    }
}

/// Adds nodes and edges; says which of the nodes wait for none.
fn add(picture: &Picture, drawing: &mut VisualGraph) -> Vec<layout::adt::dag::NodeHandle> {
    let mut handles = Vec::with_capacity(picture.nodes.len());
    for Drawn { lines, inside } in &picture.nodes {
        let width = lines
            .iter()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0);
        let size = Point::new(10. * width as f64 + 20., 20. * lines.len() as f64 + 10.);
        let shape = ShapeKind::new_box(&lines.join("\n"));
        let element = Element::create(shape, StyleAttr::simple(), Orientation::TopToBottom, size);
        let handle = drawing.add_node(element);
        for (title, child) in inside {
            for root in add(child, drawing) {
                let mut arrow = Arrow::simple(title.as_deref().unwrap_or_default());
                arrow.end = LineEndKind::None;
                drawing.add_edge(arrow, handle, root);
            }
        }
        handles.push(handle);
    }
    for (from, to, _) in &picture.edges {
        drawing.add_edge(Arrow::simple(""), handles[*from], handles[*to]);
    }
    let waits = |at: usize| picture.edges.iter().any(|(_, to, _)| *to == at);
    (0..handles.len())
        .filter(|&at| !waits(at))
        .map(|at| handles[at])
        .collect()
}
