//! Programs of stream calls: captures that begin, part, join and end, and all that disturbs them.

use std::ptr::null;

use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::case::Line;
use crate::conformance::error_name;
use crate::conformance::fixture::*;
use crate::graphs::api::*;
use crate::numbers::Numbers;

const STREAMS: usize = 4;
const EVENTS: usize = 4;
/// The driver's word for work that is not over yet: when it is depends on the machine.
const NOT_READY: u32 = 600;

pub struct Streams<'l> {
    pub random: Numbers,
    line: &'l mut Line,
    store: Handle,
    /// Two that do not wait for the legacy stream, one that does, and a thread's own.
    streams: [Handle; STREAMS],
    events: [Handle; EVENTS],
    /// Of nodes, which a real driver crashes on where it is gone.
    external: Handle,
    at: u64,
    /// Of memory in stream order.
    allocations: Vec<u64>,
    /// Of captures that ended, in the order in which they did.
    graphs: Vec<Handle>,
    execs: Vec<Handle>,
}

impl Streams<'_> {
    pub unsafe fn new(number: u64, line: &mut Line) -> Streams<'_> {
        let mut blocking = 0;
        cuStreamCreate(&mut blocking, 0).must();
        Streams {
            random: Numbers(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            line,
            store: function(c"store"),
            streams: [stream(), stream(), blocking, PER_THREAD],
            events: [event(), event(), event(), event()],
            external: event(),
            at: memory(4096),
            allocations: vec![],
            graphs: vec![],
            execs: vec![],
        }
    }

    fn says(&mut self, what: &str, answer: Answer) {
        let code = match answer.code {
            NOT_READY => 0,
            code => code,
        };
        self.line.value(what, error_name(code));
    }

    /// Mostly one of the first, rarely the legacy one.
    fn stream(&mut self) -> (usize, Handle) {
        match self.random.below(24) {
            0 => (STREAMS, LEGACY),
            number => {
                let at = [0, 0, 0, 1, 1, 1, 2, 3][number % 8];
                (at, self.streams[at])
            }
        }
    }

    fn event(&mut self) -> Handle {
        self.events[self.random.below(EVENTS)]
    }

    pub unsafe fn step(&mut self) {
        let (at, stream) = self.stream();
        let event = self.event();
        let number = self.random.below(46);
        // What ends captures is rare enough for some to come to their own end.
        if matches!(number, 32..38 | 44) && !self.random.once_in(4) {
            return;
        }
        let named = |what: &str| format!("{what}_{at}");
        match number {
            0..6 => self.begins(&named("begin"), stream),
            6..10 => self.ends(&named("end"), stream),
            10..15 => {
                let answer = launch_store(self.store, stream, self.at, 1);
                self.says(&named("launch"), answer);
            }
            15 => self.says(&named("fill"), cuMemsetD32Async(self.at, 1, 1, stream)),
            16 => {
                let answer = cuMemcpyDtoDAsync_v2(self.at + 64, self.at, 4, stream);
                self.says(&named("copy"), answer);
            }
            17 => {
                unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}
                let answer = cuLaunchHostFunc(stream, Some(nothing), std::ptr::null_mut());
                self.says(&named("call"), answer);
            }
            18..24 => self.says(&named("record"), cuEventRecord(event, stream)),
            24..30 => self.says(&named("wait"), cuStreamWaitEvent(stream, event, 0)),
            30 => {
                let answer = cuEventRecordWithFlags(self.external, stream, EXTERNAL);
                self.says(&named("record_external"), answer);
            }
            31 => {
                let answer = cuStreamWaitEvent(stream, self.external, EXTERNAL);
                self.says(&named("wait_external"), answer);
            }
            32 => self.says(&named("event_query"), cuEventQuery(event)),
            33 => self.says(&named("event_synchronize"), cuEventSynchronize(event)),
            34 => self.says(&named("stream_query"), cuStreamQuery(stream)),
            35 => self.says(&named("stream_synchronize"), cuStreamSynchronize(stream)),
            36 => self.says(&named("context_synchronize"), cuCtxSynchronize()),
            37 => self.says(&named("alloc"), cuMemAlloc_v2(&mut 0, 64)),
            38 => {
                let mut pointer = 0;
                let answer = cuMemAllocAsync(&mut pointer, 64, stream);
                self.says(&named("alloc_async"), answer);
                if answer.code == 0 {
                    self.allocations.push(pointer);
                }
            }
            39 => {
                if let Some(pointer) = self.allocations.pop() {
                    self.says(&named("free_async"), cuMemFreeAsync(pointer, stream));
                }
            }
            40 => {
                let mut mode = self.random.below(4) as u32;
                let answer = cuThreadExchangeStreamCaptureMode(&mut mode);
                self.says(&named("exchange_mode"), answer);
                self.line.value("mode", mode);
            }
            41 if at < 2 => {
                self.says(&named("renew_stream"), cuStreamDestroy_v2(stream));
                self.streams[at] = crate::conformance::fixture::stream();
            }
            42 => {
                let which = self.random.below(EVENTS);
                let answer = cuEventDestroy_v2(self.events[which]);
                self.says(&named("renew_event"), answer);
                self.events[which] = crate::conformance::fixture::event();
            }
            43 => self.updates_dependencies(&named("update_dependencies"), stream),
            44 => {
                let answer = cuMemcpyDtoD_v2(self.at + 64, self.at, 4);
                self.says(&named("copy_now"), answer);
            }
            45 => self.launches_graph(&named("launch_graph"), stream),
            _ => {}
        }
        if self.random.once_in(6) {
            self.tells();
        }
    }

    unsafe fn begins(&mut self, name: &str, stream: Handle) {
        let mode = self.random.below(3) as u32;
        let answer = match self.graphs.last() {
            Some(&graph) if self.random.once_in(3) => {
                let all = nodes(graph);
                let on: Vec<Handle> = all.into_iter().rev().take(self.random.below(3)).collect();
                let (list, count) = (on.as_ptr(), on.len());
                let answer = cuStreamBeginCaptureToGraph(stream, graph, list, null(), count, mode);
                if answer.code == 0 {
                    // It comes back where the capture ends, and is gone where that fails.
                    self.graphs.pop();
                }
                answer
            }
            _ => cuStreamBeginCapture_v2(stream, mode),
        };
        self.says(name, answer);
    }

    unsafe fn ends(&mut self, name: &str, stream: Handle) {
        let mut graph = 0;
        let answer = cuStreamEndCapture(stream, &mut graph);
        self.says(name, answer);
        if answer.code != 0 {
            return;
        }
        self.line.value(
            "graph",
            format_args!("{:?} {:?}", kinds(graph), edges(graph)),
        );
        self.graphs.push(graph);
        let mut exec = 0;
        let answer = cuGraphInstantiateWithFlags(&mut exec, graph, 1);
        self.says("instantiate", answer);
        if answer.code == 0 {
            self.execs.push(exec);
        }
    }

    /// Has a stream's next node depend on some that are in its capture, or not.
    unsafe fn updates_dependencies(&mut self, name: &str, stream: Handle) {
        let (mut status, mut id, mut graph, mut list, mut count) = (0, 0, 0, null(), 0);
        let answer = cuStreamGetCaptureInfo_v2(
            stream,
            &mut status,
            &mut id,
            &mut graph,
            &mut list,
            &mut count,
        );
        let mut all = match answer.code == 0 && status == ACTIVE {
            true => nodes(graph),
            false => self.graphs.last().map_or(vec![], |graph| nodes(*graph)),
        };
        all.truncate(self.random.below(4));
        let flags = self.random.below(2) as u32;
        let answer =
            cuStreamUpdateCaptureDependencies_v2(stream, all.as_ptr(), null(), all.len(), flags);
        self.says(name, answer);
    }

    unsafe fn launches_graph(&mut self, name: &str, stream: Handle) {
        let Some(&exec) = self.execs.last() else {
            return;
        };
        self.says(name, cuGraphLaunch(exec, stream));
    }

    /// The state of each stream, and what its next node would depend on.
    unsafe fn tells(&mut self) {
        let mut text = String::new();
        for at in 0..STREAMS {
            let (mut status, mut id, mut graph, mut list, mut count) = (7, 0, 0, null(), 0);
            let answer = cuStreamGetCaptureInfo_v2(
                self.streams[at],
                &mut status,
                &mut id,
                &mut graph,
                &mut list,
                &mut count,
            );
            text.push_str(&format!("{},{status}", answer.code));
            if answer.code == 0 && status == ACTIVE {
                let all = nodes(graph);
                let place = |node: &Handle| all.iter().position(|known| known == node);
                let on: Vec<_> = (0..count).filter_map(|at| place(&*list.add(at))).collect();
                text.push_str(&format!(",{} {on:?}", all.len()));
            }
            text.push_str(" | ");
        }
        self.line.value("streams", text);
    }

    /// Ends all captures, and gives the thread's mode back.
    pub unsafe fn finish(&mut self) {
        self.tells();
        for at in 0..STREAMS {
            let mut status = 7;
            let answer = cuStreamIsCapturing(self.streams[at], &mut status);
            if answer.code == 0 && status != NONE_STATUS {
                self.ends("last_end", self.streams[at]);
            }
        }
        let mut mode = GLOBAL;
        cuThreadExchangeStreamCaptureMode(&mut mode).must();
        let answer = cuCtxSynchronize();
        self.says("synchronize", answer);
    }
}
