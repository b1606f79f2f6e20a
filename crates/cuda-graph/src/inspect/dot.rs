//! Our own picture, in Graphviz' language.

use std::fmt::Write;

use super::Picture;
use crate::{Graph, Result};

impl Graph {
    /// A picture in Graphviz' language: each node with its kernel, grid, bytes, label and source line, embedded graphs and the
    /// bodies of conditional nodes as clusters, programmatic dependencies dashed.
    pub fn dot(&self) -> Result<String> {
        let picture = Picture::of(self)?;
        let mut text = String::from("digraph {\n  node [shape=box];\n");
        write_graph(&picture, "n", 1, &mut text);
        text.push_str("}\n");
        Ok(text)
    }
}

/// Writes nodes and edges. A node is called by the places on the way to it.
fn write_graph(picture: &Picture, prefix: &str, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for (at, drawn) in picture.nodes.iter().enumerate() {
        let name = format!("{prefix}{at}");
        let lines: Vec<String> = drawn.lines.iter().map(|line| escape(line)).collect();
        let label = lines.join("\\n");
        match drawn.inside.as_slice() {
            [] => put(text, format_args!("{indent}{name} [label=\"{label}\"];\n")),
            inside => {
                put(text, format_args!("{indent}subgraph cluster_{name} {{\n"));
                // Edges lead to and from this node, which stands for the cluster.
                put(
                    text,
                    format_args!("{indent}  {name} [label=\"{label}\", style=dashed];\n"),
                );
                for (body, (title, child)) in inside.iter().enumerate() {
                    let Some(title) = title else {
                        write_graph(child, &format!("{name}_"), depth + 1, text);
                        continue;
                    };
                    put(
                        text,
                        format_args!(
                            "{indent}  subgraph cluster_{name}_{body} {{\n{indent}    label=\"{title}\";\n"
                        ),
                    );
                    write_graph(child, &format!("{name}_{body}_"), depth + 2, text);
                    put(text, format_args!("{indent}  }}\n"));
                }
                put(text, format_args!("{indent}}}\n"));
            }
        }
    }
    for (from, to, programmatic) in &picture.edges {
        let style = if *programmatic { " [style=dashed]" } else { "" };
        put(
            text,
            format_args!("{indent}{prefix}{from} -> {prefix}{to}{style};\n"),
        );
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what)
        .expect("a string takes what it is given");
}

fn escape(line: &str) -> String {
    line.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
