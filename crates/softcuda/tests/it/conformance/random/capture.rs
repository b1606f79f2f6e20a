//! A step that captures what two streams are given.

use std::ptr::null;

use super::world::*;
use crate::capture::api::*;
use crate::conformance::api::*;
use crate::conformance::fixture::*;

impl World<'_> {
    /// Captures a few calls into a graph of their own, or behind nodes of one that there is.
    pub unsafe fn captures(&mut self) {
        let stream = self.streams[0];
        let into = match self.random.once_in(2) {
            // A capture that fails takes a child graph from its node, which crashes later calls.
            true => self.own_graph(),
            false => None,
        };
        let mode = self.random.below(3) as u32;
        let answer = match into {
            Some(at) => {
                let (graph, on) = (self.graphs[at].handle, self.some_of(at));
                let (nodes, count) = (on.as_ptr(), on.len());
                cuStreamBeginCaptureToGraph(stream, graph, nodes, null(), count, mode)
            }
            None => cuStreamBeginCapture_v2(stream, mode),
        };
        if !self.says("begin", answer) {
            return;
        }
        for _ in 0..self.random.below(7) {
            self.captured_call();
        }
        let mut graph = 0;
        let ended = self.says("end", cuStreamEndCapture(stream, &mut graph));
        match into {
            Some(at) if ended => self.look_again(at),
            // A capture that failed takes the graph with it.
            Some(at) => self.forget(self.graphs[at].handle),
            None if ended => self.adopt(graph, None),
            None => {}
        }
        for at in 0..2 {
            let mut status = 7;
            cuStreamIsCapturing(self.streams[at], &mut status).must();
            self.value("capturing", status);
        }
    }

    unsafe fn captured_call(&mut self) {
        let stream = self.streams[self.random.below(2)];
        let event = self.captured[self.random.below(2)];
        let (at, value) = self.fresh_word();
        let (name, answer) = match self.random.below(8) {
            0..2 => {
                let (mut at, mut value) = (at, value);
                let values = &mut [void(&mut at), void(&mut value)];
                ("launches", launch(self.store, 1, 1, stream, values))
            }
            2 => ("fills", cuMemsetD32Async(at, value, 1, stream)),
            3 => {
                let host = self.host();
                ("calls", cuLaunchHostFunc(stream, host.function, host.data))
            }
            4..6 => ("records", cuEventRecord(event, stream)),
            _ => ("waits", cuStreamWaitEvent(stream, event, 0)),
        };
        self.says(name, answer);
    }
}
