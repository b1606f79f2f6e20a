//! Steps that build graphs, change them and ask what they are.

use std::ptr::null;

use super::world::*;
use crate::conformance::api::*;
use crate::conformance::structs::LaunchAttributeValue;
use crate::graphs::api::*;
use crate::graphs::conditions::*;

impl World<'_> {
    /// Makes a graph, or a copy of one.
    pub unsafe fn creates(&mut self) {
        let own = self.graphs.iter().filter(|graph| graph.of.is_none());
        if own.count() >= MOST_GRAPHS {
            return;
        }
        let mut handle = 0;
        if self.random.once_in(3)
            && let Some(source) = self.any_graph()
        {
            let source = self.graphs[source].handle;
            if !self.says("clone", cuGraphClone(&mut handle, source)) {
                return;
            }
        } else {
            cuGraphCreate(&mut handle, 0).must();
        }
        self.adopt(handle, None);
    }

    /// Adds a node of any kind.
    pub unsafe fn adds(&mut self) {
        let Some(at) = self.any_graph() else {
            return self.creates();
        };
        let (graph, on) = (self.graphs[at].handle, self.some_of(at));
        let (nodes, count) = (on.as_ptr(), on.len());
        let mut node = 0;
        let new = &mut node;
        let (name, answer) = match self.random.below(16) {
            0..4 => (
                "kernel",
                self.with_kernel(|params| {
                    cuGraphAddKernelNode_v2(new, graph, nodes, count, params)
                }),
            ),
            4..6 => {
                let fill = self.fill();
                let answer = cuGraphAddMemsetNode(new, graph, nodes, count, &fill, current());
                ("fill", answer)
            }
            6..8 => {
                let copy = self.copy();
                let answer = cuGraphAddMemcpyNode(new, graph, nodes, count, &copy, current());
                ("copy", answer)
            }
            8 => {
                let host = self.host();
                ("host", cuGraphAddHostNode(new, graph, nodes, count, &host))
            }
            9 => {
                let event = self.events[self.random.below(2)];
                match self.random.below(2) {
                    0 => (
                        "record",
                        cuGraphAddEventRecordNode(new, graph, nodes, count, event),
                    ),
                    _ => (
                        "wait",
                        cuGraphAddEventWaitNode(new, graph, nodes, count, event),
                    ),
                }
            }
            10..12 => return self.adds_child(at, &on),
            12..14 if self.conditions => return self.adds_conditional(at, &on),
            14 if self.allocates => {
                let mut params = alloc_params(1 << 16);
                let answer = cuGraphAddMemAllocNode(new, graph, nodes, count, &mut params);
                if answer.code == 0 {
                    self.addresses.push(params.address);
                }
                ("alloc", answer)
            }
            15 if self.allocates => {
                let Some(last) = self.addresses.len().checked_sub(1) else {
                    return;
                };
                let address = self.addresses[last - self.random.below(last + 1).min(2)];
                (
                    "free",
                    cuGraphAddMemFreeNode(new, graph, nodes, count, address),
                )
            }
            _ => ("empty", cuGraphAddEmptyNode(new, graph, nodes, count)),
        };
        if self.says(name, answer) {
            self.look_again(at);
        }
    }

    /// Adds a child graph: a copy, or the graph itself.
    unsafe fn adds_child(&mut self, at: usize, on: &[Handle]) {
        let graph = self.graphs[at].handle;
        let (nodes, count) = (on.as_ptr(), on.len());
        let mut node = 0;
        let moves = self.random.once_in(3);
        let child = match moves {
            true => self.own_graph(),
            false => self.any_graph(),
        };
        let Some(child) = child.map(|child| self.graphs[child].handle) else {
            return;
        };
        // A real driver crashes on a graph inside itself.
        if self.is_inside(graph, child) {
            return;
        }
        if !moves {
            let answer = cuGraphAddChildGraphNode(&mut node, graph, nodes, count, child);
            if self.says("child", answer) {
                self.look_again(at);
            }
            return;
        }
        let mut params = node_params(CHILD, &[child as u64, 1]);
        let answer = cuGraphAddNode_v2(&mut node, graph, nodes, null(), count, &mut params);
        if self.says("moved_child", answer) {
            let moved = self.graphs.iter_mut().find(|known| known.handle == child);
            moved.expect("it was found above").of = Some((graph, node));
            self.graphs[at].nodes.push(Node {
                handle: node,
                kind: CHILD,
            });
        }
    }

    /// Whether a graph is another, or somewhere in it.
    fn is_inside(&self, graph: Handle, other: Handle) -> bool {
        let mut next = Some(graph);
        while let Some(graph) = next {
            if graph == other {
                return true;
            }
            let known = self.graphs.iter().find(|known| known.handle == graph);
            next = known.and_then(|known| known.of).map(|(of, _)| of);
        }
        false
    }

    unsafe fn adds_conditional(&mut self, at: usize, on: &[Handle]) {
        let graph = self.graphs[at].handle;
        let kind = [IF, WHILE, SWITCH][self.random.below(3)];
        // A loop must come to an end by itself: it does not begin.
        let value = match kind {
            WHILE => 0,
            _ => self.random.below(3) as u32,
        };
        let mut condition = 0;
        let answer =
            cuGraphConditionalHandleCreate(&mut condition, graph, current(), value, ASSIGN);
        if !self.says("condition", answer) {
            return;
        }
        let count = self.random.below(4) as u32;
        let mut params = conditional_params(condition, kind, count);
        let (answer, node) = try_conditional(graph, on, &mut params);
        if self.says("conditional", answer) {
            self.graphs[at].nodes.push(Node {
                handle: node,
                kind: CONDITIONAL,
            });
            for body in bodies(&params) {
                self.adopt(body, Some((graph, node)));
            }
        }
    }

    /// Pairs of a graph's nodes.
    fn pairs(&mut self, at: usize) -> Option<(Vec<Handle>, Vec<Handle>)> {
        let count = 1 + self.random.below(3);
        let mut pairs = (vec![], vec![]);
        for _ in 0..count {
            pairs.0.push(self.node_of(at)?.handle);
            pairs.1.push(self.node_of(at)?.handle);
        }
        Some(pairs)
    }

    pub unsafe fn connects(&mut self) {
        let Some(at) = self.any_graph() else { return };
        let Some((from, to)) = self.pairs(at) else {
            return;
        };
        let graph = self.graphs[at].handle;
        let answer = cuGraphAddDependencies(graph, from.as_ptr(), to.as_ptr(), from.len());
        self.says("connect", answer);
    }

    /// Adds an edge with data, which few kinds of nodes take.
    pub unsafe fn connects_with_data(&mut self) {
        let Some(at) = self.any_graph() else { return };
        let (Some(from), Some(to)) = (self.node_of(at), self.node_of(at)) else {
            return;
        };
        let graph = self.graphs[at].handle;
        let mut data = [0; 8];
        data[..3].copy_from_slice(&[
            self.random.below(4) as u8,
            self.random.below(6) as u8 / 5,
            self.random.below(3) as u8,
        ]);
        let answer = cuGraphAddDependencies_v2(graph, &from.handle, &to.handle, &data, 1);
        self.says("connect_with_data", answer);
        let data = &raw const data;
        let answer = cuGraphRemoveDependencies_v2(graph, &from.handle, &to.handle, data, 1);
        self.says("disconnect_data", answer);
    }

    /// Removes edges: some that are there, or any.
    pub unsafe fn disconnects(&mut self) {
        let Some(at) = self.any_graph() else { return };
        let graph = self.graphs[at].handle;
        let (mut from, mut to) = edge_ends(graph);
        if self.random.once_in(2) || from.is_empty() {
            let Some(pairs) = self.pairs(at) else { return };
            (from, to) = pairs;
        } else {
            let keep = 1 + self.random.below(from.len());
            from.truncate(keep);
            to.truncate(keep);
        }
        let answer = cuGraphRemoveDependencies(graph, from.as_ptr(), to.as_ptr(), from.len());
        self.says("disconnect", answer);
    }

    pub unsafe fn destroys(&mut self) {
        let Some(at) = self.any_graph() else { return };
        let nodes = &self.graphs[at].nodes;
        if nodes.is_empty() {
            return;
        }
        let node = nodes[self.random.below(nodes.len())];
        if self.says("destroy_node", cuGraphDestroyNode(node.handle)) {
            self.forget_node(at, node.handle);
        }
    }

    /// What a graph looks like: its nodes' kinds, its edges, its roots.
    pub unsafe fn tells(&mut self) {
        let Some(at) = self.any_graph() else { return };
        let graph = self.graphs[at].handle;
        let place = |handle: &Handle| {
            let mut nodes = self.graphs[at].nodes.iter();
            nodes.position(|node| node.handle == *handle)
        };
        let list = |handles: &[Handle]| {
            let places = handles.iter().map(|handle| match place(handle) {
                Some(place) => place.to_string(),
                None => "?".to_string(),
            });
            places.collect::<Vec<_>>().join(" ")
        };
        let (from, to) = edge_ends(graph);
        let (mut roots, mut count) = (vec![0; 64], 64);
        cuGraphGetRootNodes(graph, roots.as_mut_ptr(), &mut count).must();
        roots.truncate(count);
        let text = format!(
            "{}, {} > {}, {}",
            list(&nodes(graph)),
            list(&from),
            list(&to),
            list(&roots)
        );
        self.value("graph", text);
    }

    /// Asks what a node does, by the function for its kind, or for another.
    pub unsafe fn asks(&mut self) {
        let Some(node) = self.any_node() else { return };
        let kind = self.kind_of(node, 6);
        let node = node.handle;
        match kind {
            KERNEL => {
                let mut params = kernel_params(0, &mut []);
                let answer = cuGraphKernelNodeGetParams_v2(node, &mut params);
                let (grid, block) = (params.grid, params.block);
                let is_store = params.function == self.store;
                self.says_with(
                    "get_kernel",
                    answer,
                    format_args!("{grid:?},{block:?},{},{is_store}", params.shared),
                );
            }
            FILL => {
                let mut params = word_fill(0, 0);
                let answer = cuGraphMemsetNodeGetParams(node, &mut params);
                let FillParams {
                    pitch,
                    value,
                    element,
                    width,
                    height,
                    ..
                } = params;
                self.says_with(
                    "get_fill",
                    answer,
                    format_args!("{pitch},{value},{element},{width},{height}"),
                );
            }
            COPY => {
                let mut params = line_copy(0, 0, 0);
                let answer = cuGraphMemcpyNodeGetParams(node, &mut params);
                let kinds = (params.src_kind, params.dst_kind, params.width);
                self.says_with("get_copy", answer, format_args!("{kinds:?}"));
            }
            HOST => {
                let mut params = self.host();
                params.function = None;
                let answer = cuGraphHostNodeGetParams(node, &mut params);
                self.says_with("get_host", answer, params.function.is_some());
            }
            RECORD | WAIT => {
                let mut event = 0;
                let answer = match kind {
                    RECORD => cuGraphEventRecordNodeGetEvent(node, &mut event),
                    _ => cuGraphEventWaitNodeGetEvent(node, &mut event),
                };
                let which = self.events.iter().position(|known| *known == event);
                self.says_with("get_event", answer, format_args!("{which:?}"));
            }
            _ => {
                let mut kind = 77;
                let answer = cuGraphNodeGetType(node, &mut kind);
                self.says_with("kind", answer, kind);
            }
        }
    }

    /// Sets or asks an attribute of a node, a kernel's mostly.
    pub unsafe fn attributes(&mut self) {
        let Some(node) = self.any_node() else { return };
        // Access window, cooperative, cluster, preferred cluster's policy, priority, and none.
        let id = [1, 2, 4, 5, 8, 77][self.random.below(6)];
        let mut value = LaunchAttributeValue([0; 8]);
        if self.random.once_in(2) {
            let answer = cuGraphKernelNodeGetAttribute(node.handle, id, &mut value);
            self.says_with("get_attribute", answer, format_args!("{id},{}", value.0[0]));
            return;
        }
        value.0[0] = self.random.below(3) as u64;
        if id == 4 {
            // Three numbers of 32 bits.
            value.0[0] |= 1 << 32;
            value.0[1] = 1;
        }
        let answer = cuGraphKernelNodeSetAttribute(node.handle, id, &value);
        self.says_with("set_attribute", answer, id);
    }

    /// Has a graph keep a user object alive, or let go of it.
    pub unsafe fn keeps(&mut self) {
        let Some(at) = self.any_graph() else { return };
        let (graph, object) = (self.graphs[at].handle, self.objects[self.random.below(2)]);
        let count = self.random.below(4) as u32;
        match self.random.below(2) {
            0 => {
                let flags = self.random.below(3) as u32;
                let answer = cuGraphRetainUserObject(graph, object, count, flags);
                self.says("retain", answer);
            }
            _ => {
                self.says("release", cuGraphReleaseUserObject(graph, object, count));
            }
        }
    }

    /// Sets what a node does, by the function for its kind, or for another.
    pub unsafe fn sets(&mut self) {
        let Some(node) = self.any_node() else { return };
        let kind = self.kind_of(node, 6);
        let node = node.handle;
        let event = self.events[self.random.below(2)];
        match kind {
            KERNEL => {
                let answer = self.with_kernel(|params| cuGraphKernelNodeSetParams_v2(node, params));
                self.says("set_kernel", answer);
            }
            FILL => {
                let fill = self.fill();
                self.says("set_fill", cuGraphMemsetNodeSetParams(node, &fill));
            }
            COPY => {
                let copy = self.copy();
                self.says("set_copy", cuGraphMemcpyNodeSetParams(node, &copy));
            }
            HOST => {
                let host = self.host();
                self.says("set_host", cuGraphHostNodeSetParams(node, &host));
            }
            RECORD => {
                self.says("set_record", cuGraphEventRecordNodeSetEvent(node, event));
            }
            WAIT => {
                self.says("set_wait", cuGraphEventWaitNodeSetEvent(node, event));
            }
            _ => {
                let (mut before, mut after) = (0, 0);
                let none = std::ptr::null_mut;
                cuGraphNodeGetDependencies(node, none(), &mut before).must();
                cuGraphNodeGetDependentNodes(node, none(), &mut after).must();
                self.value("node", format_args!("{before} before, {after} after"));
            }
        }
    }
}
