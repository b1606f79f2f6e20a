//! Our own picture, in Graphviz' language.

use std::fmt::{self, Write};

use super::Picture;
use crate::{Graph, Result};

impl Graph {
    /// A picture in Graphviz' language: each node with its kernel, grid, bytes, label and source
    /// line, embedded graphs and the bodies of conditional nodes as clusters, programmatic
    /// dependencies dashed.
    pub fn dot(&self) -> Result<String> {
        let picture = Picture::of(self)?;
        let mut text = String::from("digraph {\n  node [shape=box];\n");
        write(&picture, "n", 1, &mut text).expect("a string takes what it is given");
        text.push_str("}\n");
        Ok(text)
    }
}

/// Writes nodes and edges. A node is called by the places on the way to it.
fn write(picture: &Picture, prefix: &str, depth: usize, text: &mut String) -> fmt::Result {
    let indent = "  ".repeat(depth);
    for (at, drawn) in picture.nodes.iter().enumerate() {
        let name = format!("{prefix}{at}");
        let label = escape(&drawn.lines.join("\n"));
        if drawn.inside.is_empty() {
            writeln!(text, "{indent}{name} [label=\"{label}\"];")?;
            continue;
        }
        writeln!(text, "{indent}subgraph cluster_{name} {{")?;
        // Edges lead to and from this node, which stands for the cluster.
        writeln!(text, "{indent}  {name} [label=\"{label}\", style=dashed];")?;
        for (body, (title, child)) in drawn.inside.iter().enumerate() {
            let Some(title) = title else {
                write(child, &format!("{name}_"), depth + 1, text)?;
                continue;
            };
            writeln!(text, "{indent}  subgraph cluster_{name}_{body} {{")?;
            writeln!(text, "{indent}    label=\"{title}\";")?;
            write(child, &format!("{name}_{body}_"), depth + 2, text)?;
            writeln!(text, "{indent}  }}")?;
        }
        writeln!(text, "{indent}}}")?;
    }
    for (from, to, programmatic) in &picture.edges {
        let style = if *programmatic { " [style=dashed]" } else { "" };
        writeln!(text, "{indent}{prefix}{from} -> {prefix}{to}{style};")?;
    }
    Ok(())
}

fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}
