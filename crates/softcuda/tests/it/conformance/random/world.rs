//! What a program has made so far.

use std::ffi::c_void;
use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::conformance::api::*;
use crate::conformance::case::Line;
use crate::conformance::error_name;
use crate::conformance::fixture::*;
use crate::conformance::structs::Copy3d;
use crate::graphs::api::*;
use crate::numbers::Numbers;

/// Kinds of nodes, as the driver numbers them.
pub const KERNEL: u32 = 0;
pub const COPY: u32 = 1;
pub const FILL: u32 = 2;
pub const HOST: u32 = 3;
pub const CHILD: u32 = 4;
pub const WAIT: u32 = 6;
pub const RECORD: u32 = 7;

/// How many words of memory there are for what nodes write.
const WORDS: usize = 1024;

/// The most graphs of its own that a program has at once.
pub const MOST_GRAPHS: usize = 4;
pub const MOST_EXECUTABLES: usize = 4;

#[derive(Clone, Copy)]
pub struct Node {
    pub handle: Handle,
    pub kind: u32,
}

pub struct Graph {
    pub handle: Handle,
    pub nodes: Vec<Node>,
    /// The node that it belongs to, a child graph's or a conditional one; and the graph of that.
    pub of: Option<(Handle, Handle)>,
}

pub struct Executable {
    pub handle: Handle,
    /// What it was made from, which may be gone.
    pub graph: Handle,
}

pub struct World<'l> {
    pub random: Numbers,
    line: &'l mut Line,
    pub empty: Handle,
    pub store: Handle,
    pub graphs: Vec<Graph>,
    pub executables: Vec<Executable>,
    pub streams: [Handle; 2],
    /// For nodes, and for streams in captures.
    pub events: [Handle; 2],
    pub captured: [Handle; 2],
    /// Whether there are nodes that allocate and free, and conditional ones: they forbid much.
    pub allocates: bool,
    pub conditions: bool,
    /// Of allocation nodes.
    pub addresses: Vec<u64>,
    /// User objects, each with so many references that none is ever gone.
    pub objects: [Handle; 2],
    words: u64,
    next_word: usize,
    counters: Vec<&'static AtomicU32>,
}

impl World<'_> {
    pub unsafe fn new(number: u64, line: &mut Line) -> World<'_> {
        let module = module();
        World {
            random: Numbers(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            line,
            empty: function_of(module, c"empty"),
            store: function_of(module, c"store"),
            graphs: vec![],
            executables: vec![],
            streams: [stream(), stream()],
            events: [event(), event()],
            captured: [event(), event()],
            allocates: number.is_multiple_of(4),
            conditions: number % 4 < 2,
            addresses: vec![],
            objects: [object(), object()],
            words: memory(4 * WORDS),
            next_word: 0,
            counters: vec![],
        }
    }

    /// Writes down what a step's call answered; whether it succeeded.
    pub fn says(&mut self, what: &str, answer: Answer) -> bool {
        self.line.says_as(what, answer)
    }

    pub fn says_with(&mut self, what: &str, answer: Answer, value: impl Display) -> bool {
        self.line
            .value(what, format_args!("{},{value}", error_name(answer.code)));
        answer.code == 0
    }

    pub fn value(&mut self, what: &str, value: impl Display) {
        self.line.value(what, value);
    }

    /// The index of one of the graphs.
    pub fn any_graph(&mut self) -> Option<usize> {
        (!self.graphs.is_empty()).then(|| self.random.below(self.graphs.len()))
    }

    /// The index of one that belongs to no node.
    pub fn own_graph(&mut self) -> Option<usize> {
        let own: Vec<usize> = (0..self.graphs.len())
            .filter(|at| self.graphs[*at].of.is_none())
            .collect();
        (!own.is_empty()).then(|| own[self.random.below(own.len())])
    }

    pub fn any_executable(&mut self) -> Option<usize> {
        (!self.executables.is_empty()).then(|| self.random.below(self.executables.len()))
    }

    /// A node of a graph, rarely one of another; nothing where that has none.
    pub fn node_of(&mut self, graph: usize) -> Option<Node> {
        let graph = match self.random.once_in(20) {
            true => self.any_graph()?,
            false => graph,
        };
        let nodes = &self.graphs[graph].nodes;
        (!nodes.is_empty()).then(|| nodes[self.random.below(nodes.len())])
    }

    /// A node of any graph.
    pub fn any_node(&mut self) -> Option<Node> {
        let graph = self.any_graph()?;
        self.node_of(graph)
    }

    /// A node's kind, but once in so many times any other.
    pub fn kind_of(&mut self, node: Node, other_once_in: usize) -> u32 {
        match self.random.once_in(other_once_in) {
            true => self.random.below(8) as u32,
            false => node.kind,
        }
    }

    /// A few nodes, as those that a new one comes after.
    pub fn some_of(&mut self, graph: usize) -> Vec<Handle> {
        let count = self.random.below(4);
        let nodes = (0..count).filter_map(|_| self.node_of(graph));
        nodes.map(|node| node.handle).collect()
    }

    /// Which graph holds a node, and which of its nodes that is.
    pub fn place(&self, node: Handle) -> String {
        let places = self.graphs.iter().enumerate().flat_map(|(at, graph)| {
            let nodes = graph.nodes.iter().enumerate();
            nodes.map(move |(number, node)| (node.handle, at, number))
        });
        match places.into_iter().find(|(handle, ..)| *handle == node) {
            Some((_, graph, number)) => format!("{graph}.{number}"),
            None if node == 0 => "null".to_string(),
            None => "other".to_string(),
        }
    }

    /// Takes a graph in, with all that is in it.
    pub unsafe fn adopt(&mut self, handle: Handle, of: Option<(Handle, Handle)>) {
        self.graphs.push(Graph {
            handle,
            nodes: vec![],
            of,
        });
        self.look_again(self.graphs.len() - 1);
    }

    /// Takes in what is in a graph and was not known.
    pub unsafe fn look_again(&mut self, at: usize) {
        let graph = self.graphs[at].handle;
        for handle in nodes(graph) {
            if self.graphs[at]
                .nodes
                .iter()
                .any(|node| node.handle == handle)
            {
                continue;
            }
            let mut kind = u32::MAX;
            cuGraphNodeGetType(handle, &mut kind).must();
            self.graphs[at].nodes.push(Node { handle, kind });
            if kind == CHILD {
                let mut child = 0;
                cuGraphChildGraphNodeGetGraph(handle, &mut child).must();
                self.adopt(child, Some((graph, handle)));
            }
        }
    }

    /// Whether a graph has nodes that wait for each other.
    pub unsafe fn has_circle(&self) -> bool {
        self.graphs.iter().any(|graph| {
            let (from, to) = edge_ends(graph.handle);
            let mut left: Vec<Handle> = graph.nodes.iter().map(|node| node.handle).collect();
            // Takes out nodes that no other is left before.
            loop {
                let waits = |node: &Handle| {
                    let mut ends = from.iter().zip(&to);
                    ends.any(|(before, after)| after == node && left.contains(before))
                };
                let rest: Vec<Handle> = left.iter().copied().filter(waits).collect();
                if rest.len() == left.len() {
                    return !rest.is_empty();
                }
                left = rest;
            }
        })
    }

    /// A graph is gone, and all that is in it.
    pub fn forget(&mut self, graph: Handle) {
        self.graphs.retain(|known| known.handle != graph);
        self.forget_inside(|of, _| of == graph);
    }

    /// A node is gone, and all that is in it.
    pub fn forget_node(&mut self, graph: usize, node: Handle) {
        self.graphs[graph]
            .nodes
            .retain(|known| known.handle != node);
        self.forget_inside(|_, inside| inside == node);
    }

    fn forget_inside(&mut self, is_gone: impl Fn(Handle, Handle) -> bool) {
        let gone = |graph: &&Graph| graph.of.is_some_and(|(of, node)| is_gone(of, node));
        let inside: Vec<Handle> = self.graphs.iter().filter(gone).map(|g| g.handle).collect();
        inside.into_iter().for_each(|graph| self.forget(graph));
    }

    /// A word that nothing else is written to, as long as there are any.
    pub fn fresh_word(&mut self) -> (u64, u32) {
        let at = self.next_word % WORDS;
        self.next_word += 1;
        (self.words + 4 * at as u64, 1 + at as u32)
    }

    /// A copy to a fresh word, of one that a kernel or fill may write.
    pub fn copy(&mut self) -> Copy3d {
        let (to, _) = self.fresh_word();
        // What is copied is the same at any time: nothing writes the last word.
        line_copy(to, self.words + 4 * (WORDS as u64 - 1), 4)
    }

    pub fn fill(&mut self) -> FillParams {
        let (at, value) = self.fresh_word();
        match self.random.below(6) {
            0 => FillParams {
                element: 1,
                ..word_fill(at, value & 0xff)
            },
            1 => FillParams {
                width: 0,
                ..word_fill(at, value)
            },
            2 => FillParams {
                element: 3,
                ..word_fill(at, value)
            },
            _ => word_fill(at, value),
        }
    }

    /// A host function that counts.
    pub fn host(&mut self) -> HostParams {
        let counter: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        self.counters.push(counter);
        HostParams {
            function: Some(count),
            data: std::ptr::from_ref(counter).cast_mut().cast(),
        }
    }

    /// Calls with a kernel's parameters, which live as long as the call.
    pub unsafe fn with_kernel<T>(&mut self, call: impl FnOnce(&KernelParams) -> T) -> T {
        let (mut to, mut value) = self.fresh_word();
        let values = &mut [void(&mut to), void(&mut value)];
        let mut params = kernel_params(self.store, values);
        match self.random.below(12) {
            0 => params.function = self.empty,
            1 => params.grid = [2, 1, 1],
            2 => params.block = [0, 1, 1],
            3 => params.block = [2048, 1, 1],
            4 => params.shared = 16 << 10,
            5 => params.shared = 512 << 10,
            _ => {}
        }
        call(&params)
    }

    pub unsafe fn forget_what_ran(&mut self) {
        // A stream that was not captured may still have work.
        cuCtxSynchronize().must();
        fill_words(self.words, 0, WORDS);
        fill_words(self.words + 4 * (WORDS as u64 - 1), 77, 1);
        for counter in &self.counters {
            counter.store(0, Ordering::SeqCst);
        }
    }

    /// A number that says which words were written and how often the host was called.
    pub unsafe fn what_ran(&mut self) -> u64 {
        if !self.counters.is_empty() {
            // An H200 does not wait for a host function that only a disabled node comes after.
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut words = vec![0u32; WORDS];
        cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), self.words, 4 * WORDS).must();
        let called = self.counters.iter().map(|n| n.load(Ordering::SeqCst));
        let mix = |sum: u64, word: u32| (sum ^ u64::from(word)).wrapping_mul(0x100_0000_01b3);
        words.into_iter().chain(called).fold(0xcbf2_9ce4, mix) % 1_000_000
    }
}

unsafe fn object() -> Handle {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let mut object = 0;
    cuUserObjectCreate(&mut object, std::ptr::null_mut(), Some(nothing), 1000, 1).must();
    object
}

unsafe extern "C" fn count(counter: *mut c_void) {
    (*counter.cast::<AtomicU32>()).fetch_add(1, Ordering::SeqCst);
}
