//! The pool of graph memory, and its figures.

use std::ptr::{null, null_mut};

use super::graph_run::launches;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

/// Writes down the four figures of the pool, in MiB, or whether they are more than nothing.
unsafe fn figures(line: &mut Line, what: &str) {
    let mut all = [0u64; 4];
    for (number, value) in all.iter_mut().enumerate() {
        cuDeviceGetGraphMemAttribute(0, number as u32, value).must();
    }
    line.value(what, format!("{:?}", all.map(|bytes| bytes >> 20)));
}

pub const CASES: &[Case] = &[
    alone!("graph/pool/figures", |line| {
        context();
        figures(line, "before");
        let (graph, stream) = (graph(), stream());
        let (node, address) = add_alloc(graph, &[], 64 << 20);
        figures(line, "node");
        add_free(graph, &[node], address);
        let exec = instantiate(graph);
        figures(line, "instantiated");
        launches(line, "run", exec, stream);
        figures(line, "launched");
        line.says(cuGraphExecDestroy(exec));
        line.says(cuGraphDestroy(graph));
        figures(line, "destroyed");
        line.says(cuDeviceGraphMemTrim(0));
        figures(line, "trimmed");
        line.says(cuDeviceSetGraphMemAttribute(0, 1, &0));
        line.says(cuDeviceSetGraphMemAttribute(0, 3, &0));
        figures(line, "reset");
    }),
    alone!("graph/pool/figures_of_kept", |line| {
        context();
        let (graph, stream) = (graph(), stream());
        let (_, address) = add_alloc(graph, &[], 64 << 20);
        let exec = instantiate(graph);
        launches(line, "run", exec, stream);
        figures(line, "launched");
        line.says(cuDeviceGraphMemTrim(0));
        figures(line, "trimmed");
        line.says(cuMemFree_v2(address));
        figures(line, "freed");
        line.says(cuDeviceGraphMemTrim(0));
        figures(line, "trimmed");
        launches(line, "again", exec, stream);
        figures(line, "launched");
    }),
    alone!("graph/pool/figures_of_little", |line| {
        context();
        let stream = stream();
        let little = |line: &mut Line, what: &str, graphs: &[Handle]| {
            let execs: Vec<Handle> = graphs.iter().map(|&graph| instantiate(graph)).collect();
            for exec in execs {
                launches(line, what, exec, stream);
                figures(line, what);
            }
        };
        let build = |size: usize| {
            let graph = graph();
            let (node, address) = add_alloc(graph, &[], size);
            add_free(graph, &[node], address);
            graph
        };
        let two = [build(64), build(64)];
        little(line, "little", &two);
        little(line, "more", &[build(3 << 20)]);
        little(line, "forty", &[build(40 << 20)]);
        little(line, "little_again", &[build(64)]);
        line.says(cuDeviceGraphMemTrim(0));
        figures(line, "trimmed");
    }),
    case!("graph/pool/attributes", |line| {
        context();
        let mut value = 9u64;
        line.says_as(
            "get_device",
            cuDeviceGetGraphMemAttribute(99, 0, &mut value),
        );
        line.says_as("get_out", cuDeviceGetGraphMemAttribute(0, 0, null_mut()));
        line.says_as(
            "get_unknown",
            cuDeviceGetGraphMemAttribute(0, 4, &mut value),
        );
        for attribute in 0..5 {
            for value in [0u64, 1] {
                let answer = cuDeviceSetGraphMemAttribute(0, attribute, &value);
                line.says_as(format!("set_{attribute}_{value}"), answer);
            }
        }
        line.says_as("set_device", cuDeviceSetGraphMemAttribute(99, 1, &0));
        line.says_as("set_value", cuDeviceSetGraphMemAttribute(0, 1, null()));
        line.says_as("trim_device", cuDeviceGraphMemTrim(99));
        cuCtxSetCurrent(0).must();
        line.says_as("without_context", cuDeviceGraphMemTrim(0));
    }),
];
