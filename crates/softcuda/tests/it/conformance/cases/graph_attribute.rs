//! Attributes of kernel nodes.

use std::ptr::{null, null_mut};

use super::graph_run::runs;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::LaunchAttributeValue;
use crate::graphs::api::*;

const COOPERATIVE: u32 = 2;
const CLUSTER: u32 = 4;
const POLICY: u32 = 5;
const PRIORITY: u32 = 8;

/// Kernels that say themselves that they run in clusters.
const CLUSTERS: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry explicit() .explicitcluster { ret; }
.visible .entry two() .reqnctapercluster 2, 1, 1 { ret; }
";

fn value(words: [u32; 3]) -> LaunchAttributeValue {
    let low = u64::from(words[0]) | u64::from(words[1]) << 32;
    LaunchAttributeValue([low, words[2].into(), 0, 0, 0, 0, 0, 0])
}

unsafe fn set(node: Handle, id: u32, words: [u32; 3]) -> Answer {
    cuGraphKernelNodeSetAttribute(node, id, &value(words))
}

/// Writes down the first three words of an attribute.
unsafe fn get(line: &mut Line, what: &str, node: Handle, id: u32) {
    let mut got = value([0; 3]);
    let answer = cuGraphKernelNodeGetAttribute(node, id, &mut got);
    let words = [
        got.0[0] as u32 as i32,
        (got.0[0] >> 32) as i32,
        got.0[1] as u32 as i32,
    ];
    line.gives(what, answer, format!("{words:?}"));
}

/// A graph with one node of a kernel without parameters, of four blocks.
unsafe fn one_node() -> (Handle, Handle) {
    let (graph, mut node) = (graph(), 0);
    let params = KernelParams {
        grid: [4, 1, 1],
        ..kernel_params(function(c"empty"), &mut [])
    };
    cuGraphAddKernelNode_v2(&mut node, graph, NONE, 0, &params).must();
    (graph, node)
}

pub const CASES: &[Case] = &[
    case!("graph/attribute/which", |line| {
        context();
        let (_, node) = one_node();
        for id in [1u32, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 99] {
            let mut got = value([0; 3]);
            line.says_as(
                format!("get_{id}"),
                cuGraphKernelNodeGetAttribute(node, id, &mut got),
            );
        }
    }),
    case!("graph/attribute/defaults", |line| {
        context();
        let (_, node) = one_node();
        for id in [COOPERATIVE, CLUSTER, POLICY, PRIORITY] {
            get(line, &format!("value_{id}"), node, id);
        }
    }),
    case!("graph/attribute/set_which", |line| {
        context();
        let (_, node) = one_node();
        for id in [1u32, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 99] {
            line.says_as(format!("set_{id}"), set(node, id, [0; 3]));
        }
        for carveout in [-2, -1, 0, 50, 100, 101] {
            let answer = set(node, 14, [carveout as u32, 0, 0]);
            line.says_as(format!("carveout_{carveout}"), answer);
        }
        for map in [0x0100, 0, 0x0001, 0x0404] {
            line.says_as(format!("map_{map:#06x}"), set(node, 9, [map, 0, 0]));
        }
        for domain in [1, 2] {
            line.says_as(format!("domain_{domain}"), set(node, 10, [domain, 0, 0]));
        }
    }),
    case!("graph/attribute/wrong", |line| {
        context();
        let (graph, node) = one_node();
        let (other, mut got) = (add_empty(graph, &[]), value([0; 3]));
        line.says_as(
            "get_kind",
            cuGraphKernelNodeGetAttribute(other, PRIORITY, &mut got),
        );
        line.says_as("set_kind", set(other, PRIORITY, [0; 3]));
        line.says_as("set_unknown", set(node, 99, [0; 3]));
        line.says_as("set_of_streams", set(node, 3, [0; 3]));
    }),
    alone!("graph/attribute/get_to_null", |line| {
        context();
        let (_, node) = one_node();
        line.says(cuGraphKernelNodeGetAttribute(node, PRIORITY, null_mut()));
    }),
    alone!("graph/attribute/set_from_null", |line| {
        context();
        let (_, node) = one_node();
        line.says(cuGraphKernelNodeSetAttribute(node, PRIORITY, null()));
    }),
    alone!("graph/attribute/null_node", |line| {
        context();
        line.says_as(
            "get",
            cuGraphKernelNodeGetAttribute(0, PRIORITY, &mut value([0; 3])),
        );
        line.says_as("set", set(0, PRIORITY, [0; 3]));
    }),
    case!("graph/attribute/priority", |line| {
        context();
        let (graph, node) = one_node();
        for priority in [0, -1, -5, -6, -100, 1, 7] {
            let answer = set(node, PRIORITY, [priority as u32, 0, 0]);
            line.says_as(format!("set_{priority}"), answer);
            get(line, &format!("then_{priority}"), node, PRIORITY);
        }
        runs(line, "last", graph);
    }),
    case!("graph/attribute/cooperative", |line| {
        context();
        let (graph, node) = one_node();
        for value in [1, 0, 2] {
            line.says_as(
                format!("set_{value}"),
                set(node, COOPERATIVE, [value, 0, 0]),
            );
            get(line, &format!("then_{value}"), node, COOPERATIVE);
        }
        set(node, COOPERATIVE, [1, 0, 0]).must();
        runs(line, "few", graph);
        set(node, PRIORITY, [-1i32 as u32, 0, 0]).must();
        let many = KernelParams {
            grid: [1_000_000, 1, 1],
            ..kernel_params(function(c"empty"), &mut [])
        };
        line.says_as("many", cuGraphKernelNodeSetParams_v2(node, &many));
        get(line, "kept", node, COOPERATIVE);
        runs(line, "many", graph);
    }),
    case!("graph/attribute/cooperative_of_many", |line| {
        context();
        let (graph, mut node) = (graph(), 0);
        let many = KernelParams {
            grid: [1_000_000, 1, 1],
            ..kernel_params(function(c"empty"), &mut [])
        };
        cuGraphAddKernelNode_v2(&mut node, graph, NONE, 0, &many).must();
        line.says_as("set", set(node, COOPERATIVE, [1, 0, 0]));
        runs(line, "many", graph);
    }),
    case!("graph/attribute/cluster", |line| {
        context();
        let (graph, node) = one_node();
        for (name, words) in [
            ("two", [2, 1, 1]),
            ("zero", [0, 0, 0]),
            ("zero_y", [2, 0, 1]),
            ("four", [4, 1, 1]),
        ] {
            line.says_as(name, set(node, CLUSTER, words));
            get(line, &format!("then_{name}"), node, CLUSTER);
        }
        runs(line, "four", graph);
    }),
    case!("graph/attribute/cluster_does_not_fit", |line| {
        context();
        let (graph, node) = one_node();
        line.says_as("three", set(node, CLUSTER, [3, 1, 1]));
        runs(line, "three", graph);
        line.says_as("wide", set(node, CLUSTER, [1, 2, 1]));
        runs(line, "wide", graph);
        let many = KernelParams {
            grid: [16, 1, 1],
            ..kernel_params(function(c"empty"), &mut [])
        };
        cuGraphKernelNodeSetParams_v2(node, &many).ignore();
        line.says_as("sixteen", set(node, CLUSTER, [16, 1, 1]));
        runs(line, "sixteen", graph);
    }),
    case!("graph/attribute/policy", |line| {
        context();
        let (_, node) = one_node();
        for value in [0, 1, 2, 3] {
            line.says_as(format!("set_{value}"), set(node, POLICY, [value, 0, 0]));
        }
        get(line, "last", node, POLICY);
    }),
    case!("graph/attribute/survives_parameters", |line| {
        context();
        let (_, node) = one_node();
        set(node, PRIORITY, [-2i32 as u32, 0, 0]).must();
        let params = kernel_params(function(c"empty"), &mut []);
        line.says(cuGraphKernelNodeSetParams_v2(node, &params));
        get(line, "priority", node, PRIORITY);
    }),
    case!("graph/attribute/clone", |line| {
        context();
        let (graph, node) = one_node();
        set(node, PRIORITY, [-2i32 as u32, 0, 0]).must();
        let (mut clone, mut cloned) = (0, 0);
        cuGraphClone(&mut clone, graph).must();
        cuGraphNodeFindInClone(&mut cloned, node, clone).must();
        get(line, "priority", cloned, PRIORITY);
    }),
    case!("graph/attribute/copy", |line| {
        context();
        let ((graph, from), (_, to)) = (one_node(), one_node());
        let other = add_empty(graph, &[]);
        set(from, PRIORITY, [-3i32 as u32, 0, 0]).must();
        set(to, COOPERATIVE, [1, 0, 0]).must();
        line.says_as("right", cuGraphKernelNodeCopyAttributes(to, from));
        get(line, "priority", to, PRIORITY);
        get(line, "cooperative", to, COOPERATIVE);
        line.says_as("itself", cuGraphKernelNodeCopyAttributes(to, to));
        line.says_as("to_kind", cuGraphKernelNodeCopyAttributes(other, from));
        line.says_as("from_kind", cuGraphKernelNodeCopyAttributes(to, other));
        line.says_as("to_null", cuGraphKernelNodeCopyAttributes(0, from));
        line.says_as("from_null", cuGraphKernelNodeCopyAttributes(to, 0));
    }),
    case!("graph/attribute/copy_of_a_cluster", |line| {
        context();
        let ((graph, from), mut one) = (one_node(), 0);
        let params = kernel_params(function(c"empty"), &mut []);
        cuGraphAddKernelNode_v2(&mut one, graph, NONE, 0, &params).must();
        set(from, CLUSTER, [2, 1, 1]).must();
        line.says(cuGraphKernelNodeCopyAttributes(one, from));
        get(line, "then", one, CLUSTER);
    }),
    case!("graph/attribute/grid_beside_a_cluster", |line| {
        context();
        let (graph, node) = one_node();
        set(node, CLUSTER, [2, 1, 1]).must();
        for blocks in [3, 6] {
            let params = KernelParams {
                grid: [blocks, 1, 1],
                ..kernel_params(function(c"empty"), &mut [])
            };
            let answer = cuGraphKernelNodeSetParams_v2(node, &params);
            line.says_as(format!("blocks_{blocks}"), answer);
        }
        let exec = instantiate(graph);
        for blocks in [5, 8] {
            let params = KernelParams {
                grid: [blocks, 1, 1],
                ..kernel_params(function(c"empty"), &mut [])
            };
            let answer = cuGraphExecKernelNodeSetParams_v2(exec, node, &params);
            line.says_as(format!("exec_{blocks}"), answer);
        }
    }),
    case!("graph/attribute/clusters_by_the_kernel", |line| {
        context();
        let module = module_of(CLUSTERS);
        for (name, kernel, blocks) in [
            ("explicit", c"explicit", 4),
            ("two", c"two", 4),
            ("two_of_three", c"two", 3),
        ] {
            let (graph, mut node) = (graph(), 0);
            let params = KernelParams {
                grid: [blocks, 1, 1],
                ..kernel_params(function_of(module, kernel), &mut [])
            };
            let answer = cuGraphAddKernelNode_v2(&mut node, graph, NONE, 0, &params);
            if line.says_as(name, answer) {
                get(line, &format!("{name}_cluster"), node, CLUSTER);
                runs(line, &format!("{name}_plain"), graph);
                line.says_as(format!("{name}_set"), set(node, CLUSTER, [4, 1, 1]));
                runs(line, &format!("{name}_set"), graph);
            }
        }
    }),
    case!("graph/attribute/values", |line| {
        context();
        let (_, node) = one_node();
        for id in [1, 9, 10, 13, 14] {
            get(line, &format!("default_{id}"), node, id);
        }
        set(node, 14, [50, 0, 0]).must();
        get(line, "carveout", node, 14);
        set(node, 9, [0x0302, 0, 0]).must();
        get(line, "map", node, 9);
    }),
];
