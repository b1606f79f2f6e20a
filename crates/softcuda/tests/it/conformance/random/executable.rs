//! Steps with executables.

use super::world::*;
use crate::conformance::api::*;
use crate::graphs::api::*;

/// `CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE`.
const STRUCTURE: u32 = 2;

impl World<'_> {
    pub unsafe fn instantiates(&mut self) {
        if self.executables.len() >= MOST_EXECUTABLES {
            return;
        }
        let Some(at) = self.any_graph() else { return };
        let graph = self.graphs[at].handle;
        // To free what the last launch left, to launch from the device, by nodes' priorities.
        let flags = [0, 0, 0, 1, 4, 8, 16][self.random.below(7)];
        if flags == 4 && self.has_circle() {
            // It crashes a real driver.
            return;
        }
        let mut params = InstantiateParams {
            flags,
            ..Default::default()
        };
        let mut handle = 0;
        let answer = cuGraphInstantiateWithParams(&mut handle, graph, &mut params);
        let node = match params.result {
            // Of nodes in a circle a real driver names one by rules of its own.
            STRUCTURE => "one".to_string(),
            _ => self.place(params.node),
        };
        let told = format!("{},{node}", params.result);
        if self.says_with("instantiate", answer, told) {
            self.executables.push(Executable { handle, graph });
        }
    }

    /// An executable, and a node of what it was made from, or another.
    fn executable_and_node(&mut self) -> Option<(Handle, Node)> {
        let at = self.any_executable()?;
        let Executable { handle, graph } = self.executables[at];
        let source = self.graphs.iter().position(|known| known.handle == graph);
        let graph = match source {
            Some(source) if !self.random.once_in(8) => source,
            _ => self.any_graph()?,
        };
        Some((handle, self.node_of(graph)?))
    }

    /// Sets what a node of an executable does, by the function for its kind, or for another.
    pub unsafe fn sets_in_executable(&mut self) {
        let Some((exec, node)) = self.executable_and_node() else {
            return;
        };
        let kind = self.kind_of(node, 8);
        let node = node.handle;
        let event = self.events[self.random.below(2)];
        match kind {
            KERNEL => {
                let answer = self
                    .with_kernel(|params| cuGraphExecKernelNodeSetParams_v2(exec, node, params));
                self.says("exec_kernel", answer);
            }
            FILL => {
                let fill = self.fill();
                let answer = cuGraphExecMemsetNodeSetParams(exec, node, &fill, current());
                self.says("exec_fill", answer);
            }
            COPY => {
                let copy = self.copy();
                let answer = cuGraphExecMemcpyNodeSetParams(exec, node, &copy, current());
                self.says("exec_copy", answer);
            }
            HOST => {
                let host = self.host();
                self.says("exec_host", cuGraphExecHostNodeSetParams(exec, node, &host));
            }
            RECORD => {
                let answer = cuGraphExecEventRecordNodeSetEvent(exec, node, event);
                self.says("exec_record", answer);
            }
            WAIT => {
                let answer = cuGraphExecEventWaitNodeSetEvent(exec, node, event);
                self.says("exec_wait", answer);
            }
            CHILD => {
                let Some(child) = self.any_graph() else {
                    return;
                };
                let child = self.graphs[child].handle;
                let answer = cuGraphExecChildGraphNodeSetParams(exec, node, child);
                self.says("exec_child", answer);
            }
            _ => {
                let mut enabled = 7;
                let answer = cuGraphNodeGetEnabled(exec, node, &mut enabled);
                self.says_with("enabled", answer, enabled);
            }
        }
    }

    pub unsafe fn enables(&mut self) {
        let Some((exec, node)) = self.executable_and_node() else {
            return;
        };
        let enabled = self.random.below(2) as u32;
        self.says("enable", cuGraphNodeSetEnabled(exec, node.handle, enabled));
    }

    pub unsafe fn updates(&mut self) {
        let Some(at) = self.any_executable() else {
            return;
        };
        let Executable { handle, graph } = self.executables[at];
        let source = self.graphs.iter().position(|known| known.handle == graph);
        let graph = match source {
            Some(source) if self.random.once_in(2) => source,
            _ => match self.any_graph() {
                Some(any) => any,
                None => return,
            },
        };
        let graph = self.graphs[graph].handle;
        let mut info = UpdateInfo::default();
        let answer = cuGraphExecUpdate_v2(handle, graph, &mut info);
        let (node, from) = (self.place(info.node), self.place(info.from));
        self.says_with(
            "update",
            answer,
            format_args!("{},{node},{from}", info.result),
        );
    }

    /// Asks about an executable's flags, and gets it ready.
    pub unsafe fn uploads(&mut self) {
        let Some(at) = self.any_executable() else {
            return;
        };
        let (exec, mut flags) = (self.executables[at].handle, 77);
        let answer = cuGraphExecGetFlags(exec, &mut flags);
        self.says_with("flags", answer, flags);
        let stream = self.streams[self.random.below(2)];
        self.says("upload", cuGraphUpload(exec, stream));
    }

    pub unsafe fn launches(&mut self) {
        let Some(at) = self.any_executable() else {
            return;
        };
        self.forget_what_ran();
        let (exec, stream) = (self.executables[at].handle, self.streams[0]);
        let answer = cuGraphLaunch(exec, stream);
        cuStreamSynchronize(stream).must();
        let ran = self.what_ran();
        self.says_with("launch", answer, ran);
    }

    /// Destroys an executable, or a graph.
    pub unsafe fn lets_go(&mut self) {
        if self.random.once_in(2)
            && let Some(at) = self.any_executable()
        {
            let gone = self.executables.swap_remove(at);
            self.says("destroy_executable", cuGraphExecDestroy(gone.handle));
        } else if let Some(at) = self.own_graph() {
            let gone = self.graphs[at].handle;
            let answer = cuGraphDestroy(gone);
            self.forget(gone);
            self.says("destroy_graph", answer);
        }
    }
}
