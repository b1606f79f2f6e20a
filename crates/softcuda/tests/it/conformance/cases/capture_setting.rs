//! What the cases of captures share: a call asked in captures of several kinds, and what became of
//! each.

use std::ffi::c_void;
use std::fmt::Write;

use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::Line;
use crate::conformance::error_name;
use crate::conformance::fixture::*;
use crate::conformance::structs::{Copy2d, Location, PoolProperties};
use crate::graphs::api::*;

/// A case that makes one call in captures of every kind, with something that is made before.
macro_rules! asked {
    ($name:literal, |$it:ident| $call:expr) => {
        asked!($name, || 0, |$it| $call)
    };
    ($name:literal, $thing:expr, |$it:ident| $call:expr) => {
        case!($name, |line| {
            unsafe fn thing() -> u64 {
                let make = $thing;
                make()
            }
            unsafe fn call($it: &Setting) -> Answer {
                let _ = $it;
                $call
            }
            ask_everywhere(line, thing, call)
        })
    };
}
pub(super) use asked;

/// A capture that goes on, and what is around it.
#[derive(Clone, Copy)]
pub struct Setting {
    /// The stream that is captured, with a launch in it already.
    pub stream: Handle,
    /// One that is not.
    pub other: Handle,
    /// An event recorded in the capture, after the launch.
    pub captured: Handle,
    /// An event recorded in the other stream, whose work has ended.
    pub outside: Handle,
    /// An event that was never recorded.
    pub never: Handle,
    /// The context.
    pub context: Handle,
    /// A kernel that writes a word.
    pub store: Handle,
    /// A kernel that does nothing.
    pub empty: Handle,
    /// Device memory, of 256 bytes.
    pub memory: u64,
    /// Pageable memory of the host's, of 256 bytes.
    pub host: usize,
    /// What the case needs, made before the capture began.
    pub thing: u64,
}

/// How a capture was begun, and where the call is made.
struct Kind {
    name: &'static str,
    stream_flags: u32,
    mode: u32,
    elsewhere: bool,
    invalid: bool,
}

const fn kind(name: &'static str, mode: u32) -> Kind {
    Kind {
        name,
        stream_flags: NON_BLOCKING,
        mode,
        elsewhere: false,
        invalid: false,
    }
}

const KINDS: [Kind; 7] = [
    kind("global", GLOBAL),
    Kind {
        elsewhere: true,
        ..kind("global_elsewhere", GLOBAL)
    },
    kind("local", THREAD_LOCAL),
    Kind {
        elsewhere: true,
        ..kind("local_elsewhere", THREAD_LOCAL)
    },
    kind("relaxed", RELAXED),
    Kind {
        stream_flags: 0,
        ..kind("blocking", RELAXED)
    },
    Kind {
        invalid: true,
        ..kind("invalidated", RELAXED)
    },
];

/// Makes a call in captures of every kind; writes down what it answered, the status of the stream
/// then, and how the capture ended.
pub unsafe fn ask_everywhere(
    line: &mut Line,
    thing: unsafe fn() -> u64,
    call: unsafe fn(&Setting) -> Answer,
) {
    let context = context();
    let module = module();
    let host: &'static mut [u8; 256] = Box::leak(Box::new([0; 256]));
    for kind in KINDS {
        let (mut stream, other) = (0, stream());
        cuStreamCreate(&mut stream, kind.stream_flags).must();
        let setting = Setting {
            stream,
            other,
            captured: event(),
            outside: event(),
            never: event(),
            context,
            store: function_of(module, c"store"),
            empty: function_of(module, c"empty"),
            memory: memory(256),
            host: host.as_mut_ptr() as usize,
            thing: thing(),
        };
        cuEventRecord(setting.outside, other).must();
        cuStreamSynchronize(other).must();
        cuStreamBeginCapture_v2(stream, kind.mode).must();
        launch(setting.empty, 1, 1, stream, &mut []).must();
        cuEventRecord(setting.captured, stream).must();
        if kind.invalid {
            cuStreamWaitEvent(stream, setting.outside, 0).ignore();
        }
        let answer = match kind.elsewhere {
            true => elsewhere(context, move || call(&setting)),
            false => call(&setting),
        };
        let mut status = 77;
        cuStreamIsCapturing(stream, &mut status).ignore();
        let text = format!("{},{status},{}", error_name(answer.code), ending(stream));
        line.value(kind.name, text);
    }
}

/// Does something on a thread of its own.
pub fn elsewhere<R: Send>(context: Handle, f: impl FnOnce() -> R + Send) -> R {
    let call = || {
        // SAFETY: the context lives.
        unsafe { cuCtxSetCurrent(context).must() };
        f()
    };
    let result = std::thread::scope(|scope| scope.spawn(call).join());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Ends a capture: the error, or the kinds of the graph's nodes and its edges.
pub unsafe fn ending(stream: Handle) -> String {
    let mut graph = BOGUS;
    let answer = cuStreamEndCapture(stream, &mut graph);
    match (answer.code, graph) {
        (0, graph) => shape(graph),
        (code, 0) => error_name(code).to_string(),
        (code, _) => format!("{}+graph", error_name(code)),
    }
}

/// A graph's nodes by kind, and its edges with what data they have.
pub unsafe fn shape(graph: Handle) -> String {
    let all = nodes(graph);
    let mut text: String = kinds(graph).into_iter().map(letter).collect();
    let mut count = 16;
    let (mut from, mut to) = ([0; 16], [0; 16]);
    let mut data = [EdgeData::default(); 16];
    let (from_at, to_at) = (from.as_mut_ptr(), to.as_mut_ptr());
    let data_at = data.as_mut_ptr().cast();
    if cuGraphGetEdges_v2(graph, from_at, to_at, data_at, &mut count).code != 0 {
        count = 0;
    }
    let place = |node: Handle| all.iter().position(|&it| it == node).unwrap_or(99);
    let mut edges: Vec<_> = (0..count.min(16))
        .filter(|&at| from[at] != 0)
        .map(|at| (place(from[at]), place(to[at]), data[at]))
        .collect();
    edges.sort_unstable_by_key(|edge| (edge.0, edge.1));
    for (from, to, data) in edges {
        let _ = write!(text, " {from}>{to}{}", annotation(&data));
    }
    format!("({text})")
}

fn annotation(data: &EdgeData) -> String {
    match *data == EdgeData::default() {
        true => String::new(),
        false => format!(":{}.{}.{}", data.from_port, data.to_port, data.kind),
    }
}

fn letter(kind: u32) -> char {
    match kind {
        KERNEL => 'K',
        COPY => 'C',
        FILL => 'F',
        HOST => 'H',
        4 => 'G',
        5 => 'E',
        EVENT_WAIT => 'W',
        EVENT_RECORD => 'R',
        ALLOC => 'A',
        FREE => 'X',
        BATCH => 'B',
        _ => '?',
    }
}

/// What a stream's next node will depend on, by the order in which the graph's nodes were made.
pub unsafe fn depends(stream: Handle) -> String {
    if status(stream) != ACTIVE {
        return format!("status {}", status(stream));
    }
    let (_, graph, nodes_then, data) = info(stream);
    let all = nodes(graph);
    let place = |node: &Handle| match all.iter().position(|it| it == node) {
        Some(place) => place.to_string(),
        None => "?".to_string(),
    };
    let list: Vec<_> = nodes_then
        .iter()
        .zip(&data)
        .map(|(node, data)| place(node) + &annotation(data))
        .collect();
    format!("[{}]", list.join(","))
}

/// The status of a stream, or the error of asking.
pub unsafe fn state(stream: Handle) -> String {
    let mut status = 77;
    match cuStreamIsCapturing(stream, &mut status).code {
        0 => status.to_string(),
        code => error_name(code).to_string(),
    }
}

/// A pool of its own.
pub unsafe fn pool() -> u64 {
    let mut pool = 0;
    cuMemPoolCreate(&mut pool, &pool_properties()).must();
    pool as u64
}

pub fn pool_properties() -> PoolProperties {
    PoolProperties {
        kind: 1,
        handle_types: 0,
        location: Location { kind: 1, id: 0 },
        win32_attributes: 0,
        max_size: 0,
        usage: 0,
        reserved: [0; 54],
    }
}

/// An executable of one node that does nothing.
pub unsafe fn executable() -> u64 {
    let graph = graph();
    add_empty(graph, &[]);
    instantiate(graph) as u64
}

pub unsafe extern "C" fn nothing_done(_: *mut c_void) {}

pub unsafe extern "C" fn callback(_: Handle, _: u32, _: *mut c_void) {}

/// How many nodes a graph has; the error where it is gone.
pub unsafe fn count_of(graph: Handle) -> String {
    let mut count = 0;
    match cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count).code {
        0 => count.to_string(),
        code => error_name(code).to_string(),
    }
}

pub fn edge_data(from_port: u8, to_port: u8, kind: u8) -> EdgeData {
    EdgeData {
        from_port,
        to_port,
        kind,
        reserved: [0; 5],
    }
}

/// A copy of rows inside the setting's memory.
pub fn rows(it: &Setting) -> Copy2d {
    Copy2d {
        src_kind: 2,
        src_device: it.memory,
        src_pitch: 32,
        dst_kind: 2,
        dst_device: it.memory + 128,
        dst_pitch: 32,
        width: 16,
        height: 2,
        // SAFETY: all its parts may be zero.
        ..unsafe { std::mem::zeroed() }
    }
}

/// Two copies at once, inside the setting's memory.
pub unsafe fn copy_batch(it: &Setting, stream: Handle) -> Answer {
    let targets = [it.memory, it.memory + 8];
    let sources = [it.memory + 64, it.memory + 72];
    let attributes = [1, 0, 0, 0, 0, 0];
    let (sizes, first) = ([8; 2], 0);
    let (to, from) = (targets.as_ptr(), sources.as_ptr());
    cuMemcpyBatchAsync_v2(to, from, sizes.as_ptr(), 2, &attributes, &first, 1, stream)
}
