//! Definitions as DOT: `cuGraphDebugDotPrint`.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::Arc;

use super::definition::Graph;
use super::operation::{Choice, ConditionalNode, Operation, memory_type};
use super::snapshot::{Member, Snapshot};
use crate::driver::Result;
use crate::driver::copy::Side;

/// `CUgraphDebugDot_flags`.
mod flag {
    pub const VERBOSE: u32 = 1 << 0;
    pub const KERNEL_NODE_PARAMS: u32 = 1 << 2;
    pub const MEMCPY_NODE_PARAMS: u32 = 1 << 3;
    pub const MEMSET_NODE_PARAMS: u32 = 1 << 4;
    pub const HOST_NODE_PARAMS: u32 = 1 << 5;
    pub const EVENT_NODE_PARAMS: u32 = 1 << 6;
    pub const KERNEL_NODE_ATTRIBUTES: u32 = 1 << 9;
    pub const HANDLES: u32 = 1 << 10;
    pub const MEM_ALLOC_NODE_PARAMS: u32 = 1 << 11;
    pub const MEM_FREE_NODE_PARAMS: u32 = 1 << 12;
    pub const BATCH_MEM_OP_NODE_PARAMS: u32 = 1 << 13;
    pub const EXTRA_TOPO_INFO: u32 = 1 << 14;
    /// All there are.
    pub const ALL: u32 = (1 << 16) - 1;
}

/// `cuGraphDebugDotPrint`: the text of a graph.
pub(crate) fn dot(graph: &Arc<Graph>, flags: u32) -> Result<String> {
    let snapshot = Snapshot::of(graph)?;
    let flags = match flags & flag::VERBOSE {
        0 => flags,
        _ => flag::ALL,
    };
    let mut picture = Picture {
        text: String::new(),
        flags,
        graphs: 0,
        bodies: VecDeque::new(),
    };
    let drawn = picture.all(&snapshot);
    drawn.expect("a string takes all text");
    Ok(picture.text)
}

struct Picture<'a> {
    text: String,
    flags: u32,
    /// How many graphs have a number.
    graphs: u32,
    /// Bodies that are drawn after the graph that they are in, and their numbers.
    bodies: VecDeque<(u32, &'a Snapshot)>,
}

/// Text inside a quoted string of DOT.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('<', "\\<")
        .replace('>', "\\>")
}

impl<'a> Picture<'a> {
    fn all(&mut self, snapshot: &'a Snapshot) -> fmt::Result {
        writeln!(self.text, "digraph dot {{")?;
        let first = self.number();
        self.graph(first, snapshot)?;
        while let Some((number, body)) = self.bodies.pop_front() {
            self.graph(number, body)?;
        }
        writeln!(self.text, "}}")
    }

    fn number(&mut self) -> u32 {
        self.graphs += 1;
        self.graphs
    }

    /// A graph with the child graphs in it.
    fn graph(&mut self, graph: u32, snapshot: &'a Snapshot) -> fmt::Result {
        writeln!(self.text, "subgraph cluster_{graph} {{")?;
        writeln!(
            self.text,
            "label=\"graph_{graph}\" graph[style=\"dashed\"];"
        )?;
        for (number, member) in snapshot.members.iter().enumerate() {
            if let Operation::Conditional(node) = &member.operation {
                self.conditional(
                    &format!("graph_{graph}_node_{number}"),
                    number,
                    member,
                    node,
                )?;
                continue;
            }
            let (shape, label) = self.describe(member)?;
            writeln!(
                self.text,
                "\"graph_{graph}_node_{number}\"[style=\"solid\" shape=\"{shape}\" label=\"{number}\n{label}\"];"
            )?;
            if let Some(inner) = member.inner.first() {
                let child = self.number();
                self.graph(child, inner)?;
                if !inner.members.is_empty() {
                    writeln!(
                        self.text,
                        "\"graph_{graph}_node_{number}\" -> \"graph_{child}_node_0\" [style=\"dotted\" lhead=\"cluster_{child}\"];"
                    )?;
                }
            }
        }
        for (to, member) in snapshot.members.iter().enumerate() {
            for (place, &(from, data)) in member.dependencies.iter().enumerate() {
                write!(
                    self.text,
                    "\"graph_{graph}_node_{from}\" -> \"graph_{graph}_node_{to}\""
                )?;
                if self.has(flag::EXTRA_TOPO_INFO) {
                    write!(self.text, " [headlabel={place}]")?;
                }
                if !data.is_default() {
                    write!(
                        self.text,
                        " [label=\"port {} to {}, type {}\"]",
                        data.from_port, data.to_port, data.kind
                    )?;
                }
                writeln!(self.text, ";")?;
            }
        }
        writeln!(self.text, "}}")
    }

    /// A conditional node as a table that names its bodies, as an H200 draws it.
    fn conditional(
        &mut self,
        name: &str,
        number: usize,
        member: &'a Member,
        node: &ConditionalNode,
    ) -> fmt::Result {
        let mut rows = format!("CONDITIONAL\n| {{ID | {number}}}\n");
        if self.has(flag::HANDLES) {
            writeln!(rows, "| {{node handle| {:#x}}}", member.handle)?;
            let condition = node.condition().value.number();
            writeln!(rows, "| {{Conditional Handle|{condition}}}")?;
        }
        let choice = match node.choice() {
            Choice::If => "IF",
            Choice::While => "WHILE",
            Choice::Switch => "SWITCH",
        };
        writeln!(rows, "| {{Conditional Type| {choice}}}")?;
        for (place, body) in member.inner.iter().enumerate() {
            let graph = self.number();
            self.bodies.push_back((graph, body));
            match (node.choice(), place) {
                (Choice::Switch, _) => writeln!(rows, "| {{{place}|  graph_{graph}}}")?,
                (_, 0) => writeln!(rows, "| {{True | graph_{graph}}}")?,
                _ => writeln!(rows, "| {{False| graph_{graph}}}")?,
            }
        }
        writeln!(
            self.text,
            "\"{name}\"[style=\"bold\" shape=\"record\" label=\"{{\n{rows}}}\n\"];"
        )
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The shape of a node and the lines in it.
    fn describe(&self, member: &Member) -> std::result::Result<(&'static str, String), fmt::Error> {
        let mut lines = String::new();
        let shape = match &member.operation {
            Operation::Kernel(node) => {
                let name = quoted(&node.function().name().to_string_lossy());
                writeln!(lines, "{name}")?;
                let (grid, block, shared) = node.shape();
                if self.has(flag::KERNEL_NODE_PARAMS) {
                    let threads = block.iter().product::<u32>();
                    let blocks = grid.iter().map(|&dim| u64::from(dim)).product::<u64>();
                    writeln!(lines, "\\<\\<\\<{blocks},{threads},{shared}\\>\\>\\>")?;
                    writeln!(lines, "grid {grid:?}, block {block:?}, shared {shared}")?;
                }
                if self.has(flag::KERNEL_NODE_ATTRIBUTES) {
                    writeln!(
                        lines,
                        "cooperative {}, cluster {:?}",
                        node.attributes().cooperative(),
                        node.attributes().cluster().unwrap_or_default()
                    )?;
                }
                if self.has(flag::HANDLES) {
                    writeln!(lines, "function {:?}", node.function().handle())?;
                }
                "octagon"
            }
            Operation::Copy(node) => {
                let (target, source, extent) = node.params();
                let kind = |side: &Side| match memory_type(side.end) {
                    1 => "host",
                    2 => "device",
                    3 => "array",
                    _ => "unified",
                };
                writeln!(lines, "MEMCPY\n({} to {})", kind(&source), kind(&target))?;
                if self.has(flag::MEMCPY_NODE_PARAMS) {
                    let (from, to) = (source.end, target.end);
                    writeln!(
                        lines,
                        "{from:?} to {to:?}, {} x {} x {} bytes",
                        extent.width, extent.height, extent.depth
                    )?;
                }
                "invtrapezium"
            }
            Operation::Fill(node) => {
                let params = node.params();
                let bytes = params.width * u64::from(params.element) * params.height;
                writeln!(lines, "MEMSET\n({bytes} bytes)")?;
                if self.has(flag::MEMSET_NODE_PARAMS) {
                    writeln!(
                        lines,
                        "address {:#x}, value {:#x}, element {}, {} x {}, pitch {}",
                        params.address,
                        params.value,
                        params.element,
                        params.width,
                        params.height,
                        params.pitch
                    )?;
                }
                "invtrapezium"
            }
            Operation::Host(node) => {
                writeln!(lines, "HOST")?;
                if self.has(flag::HOST_NODE_PARAMS) {
                    let function = node.function as *const ();
                    writeln!(lines, "function {function:p}, data {:p}", node.data.get())?;
                }
                "rectangle"
            }
            // Drawn as a table.
            Operation::Conditional(_) => "record",
            Operation::Child(_) => {
                writeln!(lines, "GRAPH")?;
                "folder"
            }
            Operation::Empty => {
                writeln!(lines, "EMPTY")?;
                "rectangle"
            }
            Operation::EventRecord(node) | Operation::EventWait(node) => {
                let records = matches!(member.operation, Operation::EventRecord(_));
                writeln!(
                    lines,
                    "{}",
                    if records {
                        "EVENT_RECORD"
                    } else {
                        "EVENT_WAIT"
                    }
                )?;
                if self.has(flag::EVENT_NODE_PARAMS) {
                    writeln!(lines, "event {:?}", node.event().handle())?;
                }
                "rectangle"
            }
            Operation::Alloc(memory) => {
                writeln!(lines, "MEM_ALLOC")?;
                if self.has(flag::MEM_ALLOC_NODE_PARAMS) {
                    let size = memory.params().size;
                    writeln!(lines, "address {:#x}, {size} bytes", memory.address())?;
                }
                "rectangle"
            }
            Operation::Free(memory) => {
                writeln!(lines, "MEM_FREE")?;
                if self.has(flag::MEM_FREE_NODE_PARAMS) {
                    writeln!(lines, "address {:#x}", memory.address())?;
                }
                "rectangle"
            }
            Operation::Batch(node) => {
                writeln!(lines, "BATCH_MEM_OP")?;
                if self.has(flag::BATCH_MEM_OP_NODE_PARAMS) {
                    for it in node.parameters() {
                        let (operation, address, value) = (it.operation, it.address, it.value);
                        writeln!(
                            lines,
                            "operation {operation} at {address:#x}, value {value:#x}"
                        )?;
                    }
                }
                "rectangle"
            }
        };
        if self.has(flag::HANDLES) {
            writeln!(lines, "node {:#x}", member.handle)?;
        }
        Ok((shape, lines))
    }
}
