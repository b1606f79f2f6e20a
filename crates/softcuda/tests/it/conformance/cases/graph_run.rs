//! What cases of graphs have in common: graphs that are run, and executables that are updated.

use crate::conformance::api::*;
use crate::conformance::case::Line;
use crate::conformance::fixture::*;
use crate::graphs::api::*;

/// Instantiates a graph, launches it and waits for it, and writes down what that answered as far as
/// it went.
pub unsafe fn runs(line: &mut Line, what: &str, graph: Handle) {
    let (mut exec, stream) = (0, stream());
    let instantiated = cuGraphInstantiateWithFlags(&mut exec, graph, 0);
    if line.says_as(format!("{what}_instantiate"), instantiated) {
        launches(line, what, exec, stream);
    }
}

/// Launches an executable and waits for it.
pub unsafe fn launches(line: &mut Line, what: &str, exec: Handle, stream: Handle) {
    line.says_as(format!("{what}_launch"), cuGraphLaunch(exec, stream));
    line.says_as(format!("{what}_end"), cuStreamSynchronize(stream));
}

/// Updates, and writes down the answer and what it says: the reason, the node, the node at an
/// edge's other end.
pub unsafe fn updates(
    line: &mut Line,
    what: &str,
    exec: Handle,
    graph: Handle,
    names: &[(&str, Handle)],
) {
    let mut info = UpdateInfo {
        result: 77,
        node: 0x77,
        from: 0x77,
    };
    line.says_as(what, cuGraphExecUpdate_v2(exec, graph, &mut info));
    let [node, from] = [info.node, info.from].map(|node| named(node, names));
    line.value(
        format!("{what}_told"),
        format!("{} {node} {from}", info.result),
    );
}
