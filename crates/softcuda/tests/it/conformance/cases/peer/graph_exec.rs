//! Executables whose nodes are moved from one device to the other.

use super::super::graph_run::{launches, updates};
use super::pool::{pool_of, set};
use super::pool_use::word_of;
use super::{enable, new_context_of, reads, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, two_devices};
use crate::conformance::fixture::*;
use crate::graphs::api::*;

pub const CASES: &[Case] = &[
    two_devices!("peer/graph_exec/kernel_moved", |line, zero, one| {
        let graph = graph();
        let node = add_store(graph, &[], zero.function(c"store"), zero.word, 5);
        let exec = instantiate(graph);
        one.enter();
        let (mut to, mut value) = (one.word, 6u32);
        let mut values = [void(&mut to), void(&mut value)];
        let mut params = kernel_params(one.function(c"store"), &mut values);
        line.says_as(
            "exec",
            cuGraphExecKernelNodeSetParams_v2(exec, node, &params),
        );
        params.context = one.context;
        line.says_as(
            "exec_context",
            cuGraphExecKernelNodeSetParams_v2(exec, node, &params),
        );
        params.context = 0;
        line.says_as("definition", cuGraphKernelNodeSetParams_v2(node, &params));
        zero.enter();
        launches(line, "run", exec, zero.stream);
        reads(line, "word_zero", zero.word);
        reads(line, "word_one", one.word);
    }),
    two_devices!(
        "peer/graph_exec/kernel_kept_from_other",
        |line, zero, one| {
            // The same function, changed while the other context is current.
            let graph = graph();
            let store = zero.function(c"store");
            let node = add_store(graph, &[], store, zero.word, 5);
            let exec = instantiate(graph);
            one.enter();
            let (mut to, mut value) = (zero.word, 6u32);
            let mut values = [void(&mut to), void(&mut value)];
            let params = kernel_params(store, &mut values);
            line.says_as(
                "exec",
                cuGraphExecKernelNodeSetParams_v2(exec, node, &params),
            );
            line.says_as("definition", cuGraphKernelNodeSetParams_v2(node, &params));
            launches(line, "run", exec, one.stream);
            reads(line, "value", zero.word);
        }
    ),
    two_devices!("peer/graph_exec/library_kernel_moved", |line, zero, one| {
        let (library, mut kernel) = (library(), 0);
        cuLibraryGetKernel(&mut kernel, library, c"store".as_ptr()).must();
        let graph = graph();
        let (mut to, mut value) = (zero.word, 5u32);
        let mut values = [void(&mut to), void(&mut value)];
        let mut params = kernel_params(0, &mut values);
        (params.kernel, params.context) = (kernel, zero.context);
        let mut node = 0;
        cuGraphAddKernelNode_v2(&mut node, graph, NONE, 0, &params).must();
        let exec = instantiate(graph);
        params.context = one.context;
        line.says_as(
            "exec",
            cuGraphExecKernelNodeSetParams_v2(exec, node, &params),
        );
        line.says_as("definition", cuGraphKernelNodeSetParams_v2(node, &params));
        one.enter();
        params.context = 0;
        line.says_as(
            "one_current",
            cuGraphExecKernelNodeSetParams_v2(exec, node, &params),
        );
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/graph_exec/update_kernel", |line, zero, one| {
        let (old, new) = (graph(), graph());
        add_store(old, &[], zero.function(c"store"), zero.word, 5);
        let exec = instantiate(old);
        one.enter();
        let node = add_store(new, &[], one.function(c"store"), one.word, 6);
        updates(line, "update", exec, new, &[("node", node)]);
        launches(line, "run", exec, one.stream);
        synchronizes(line, [zero, one]);
        reads(line, "word_zero", zero.word);
        reads(line, "word_one", one.word);
    }),
    two_devices!("peer/graph_exec/update_from_other", |line, zero, one| {
        // Nothing moves; the other context is current.
        let (old, new) = (graph(), graph());
        add_store(old, &[], zero.function(c"store"), zero.word, 5);
        let node = add_store(new, &[], zero.function(c"store"), zero.word, 6);
        let exec = instantiate(old);
        one.enter();
        updates(line, "update", exec, new, &[("node", node)]);
        launches(line, "run", exec, one.stream);
        reads(line, "value", zero.word);
    }),
    two_devices!("peer/graph_exec/fill_moved", |line, zero, one| {
        let graph = graph();
        let node = add_fill(graph, &[], zero.word, 5);
        let exec = instantiate(graph);
        for (what, address, context) in [
            ("both", one.word, one.context),
            ("address", one.word, zero.context),
            ("context", zero.word, one.context),
            ("neither", zero.word, zero.context),
        ] {
            let params = word_fill(address, 6);
            line.says_as(
                what,
                cuGraphExecMemsetNodeSetParams(exec, node, &params, context),
            );
        }
        line.says_as(
            "definition",
            cuGraphMemsetNodeSetParams(node, &word_fill(one.word, 6)),
        );
        launches(line, "run", exec, zero.stream);
        synchronizes(line, [zero, one]);
        reads(line, "word_zero", zero.word);
        reads(line, "word_one", one.word);
    }),
    two_devices!("peer/graph_exec/copy_moved", |line, zero, one| {
        let more = memory(4);
        one.enter();
        let its = memory(4);
        zero.enter();
        let graph = graph();
        let node = add_copy(graph, &[], &line_copy(more, zero.word, 4));
        let exec = instantiate(graph);
        for (what, to, from, context) in [
            ("target", one.word, zero.word, zero.context),
            ("source", more, one.word, zero.context),
            ("all", its, one.word, one.context),
            ("context", more, zero.word, one.context),
            ("nothing", more, zero.word, zero.context),
        ] {
            let copy = line_copy(to, from, 4);
            line.says_as(
                what,
                cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context),
            );
        }
        line.says_as(
            "definition",
            cuGraphMemcpyNodeSetParams(node, &line_copy(one.word, zero.word, 4)),
        );
        launches(line, "run", exec, zero.stream);
        synchronizes(line, [zero, one]);
        reads(line, "more", more);
    }),
    two_devices!("peer/graph_exec/update_copy_across", |line, zero, one| {
        // A copy within a device becomes one across, and the other way round.
        let more = memory(4);
        let (within, across) = (graph(), graph());
        add_copy(within, &[], &line_copy(more, zero.word, 4));
        let node = add_copy(across, &[], &line_copy(one.word, zero.word, 4));
        let exec = instantiate(within);
        updates(line, "to_across", exec, across, &[("node", node)]);
        let exec = instantiate(across);
        let node = nodes(within)[0];
        updates(line, "to_within", exec, within, &[("node", node)]);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/graph_exec/event_moved", |line, zero, one| {
        let own = event();
        one.enter();
        let its = event();
        zero.enter();
        let graph = graph();
        let (mut record, mut wait) = (0, 0);
        cuGraphAddEventRecordNode(&mut record, graph, NONE, 0, own).must();
        cuGraphAddEventWaitNode(&mut wait, graph, &record, 1, own).must();
        let exec = instantiate(graph);
        line.says_as(
            "record",
            cuGraphExecEventRecordNodeSetEvent(exec, record, its),
        );
        line.says_as("wait", cuGraphExecEventWaitNodeSetEvent(exec, wait, its));
        line.says_as("definition", cuGraphEventRecordNodeSetEvent(record, its));
        launches(line, "run", exec, zero.stream);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/graph_exec/upload_in_its_stream", |line, zero, one| {
        let graph = graph();
        add_store(graph, &[], zero.function(c"store"), zero.word, 5);
        let exec = instantiate(graph);
        line.says_as("its", cuGraphUpload(exec, one.stream));
        one.enter();
        line.says_as("one_current", cuGraphUpload(exec, zero.stream));
        line.says_as("null", cuGraphUpload(exec, 0));
        launches(line, "run", exec, one.stream);
        synchronizes(line, [zero, one]);
        reads(line, "value", zero.word);
    }),
    two_devices!(
        "peer/graph_exec/instantiated_by_third",
        |line, zero, one| {
            let graph = graph();
            add_store(graph, &[], zero.function(c"store"), zero.word, 5);
            let made = new_context_of(1);
            let exec = instantiate(graph);
            line.says_as("destroy", cuCtxDestroy_v2(made));
            zero.enter();
            launches(line, "run", exec, zero.stream);
            synchronizes(line, [zero, one]);
            reads(line, "value", zero.word);
        }
    ),
    two_devices!("peer/graph_exec/moved_with_access", |line, zero, one| {
        // Nodes whose context reaches the memory that they are moved to.
        enable(zero, one);
        let more = memory(4);
        let graph = graph();
        let copy = add_copy(graph, &[], &line_copy(more, zero.word, 4));
        let fill = add_fill(graph, &[], zero.word, 5);
        let exec = instantiate(graph);
        for (what, to, from) in [
            ("target", one.word, zero.word),
            ("source", more, one.word),
            ("neither", more, zero.word),
        ] {
            line.says_as(
                what,
                cuGraphExecMemcpyNodeSetParams(exec, copy, &line_copy(to, from, 4), zero.context),
            );
        }
        let params = word_fill(one.word, 6);
        line.says_as(
            "fill",
            cuGraphExecMemsetNodeSetParams(exec, fill, &params, zero.context),
        );
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/graph_exec/moved_within_the_device",
        |line, zero, one| {
            // To memory of another context of the device, of its pool, of another device's pool.
            let own = word_of(pool_of(0), zero);
            let pool = pool_of(1);
            let its = word_of(pool, one);
            set(pool, 0, 3).must();
            let made = new_context_of(0);
            let beside = memory(4);
            zero.enter();
            let more = memory(4);
            let graph = graph();
            let copy = add_copy(graph, &[], &line_copy(more, zero.word, 4));
            let fill = add_fill(graph, &[], zero.word, 5);
            let exec = instantiate(graph);
            for (what, address, context) in [
                ("beside", beside, zero.context),
                ("beside_there", beside, made),
                ("there", zero.word, made),
                ("own_pool", own, zero.context),
                ("its_pool", its, zero.context),
                ("pinned", pinned(4) as u64, zero.context),
                ("managed", managed(4), zero.context),
            ] {
                let (params, copied) = (word_fill(address, 6), line_copy(address, zero.word, 4));
                line.says_as(
                    format!("fill_{what}"),
                    cuGraphExecMemsetNodeSetParams(exec, fill, &params, context),
                );
                line.says_as(
                    format!("copy_{what}"),
                    cuGraphExecMemcpyNodeSetParams(exec, copy, &copied, context),
                );
            }
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/graph_exec/update_moved", |line, zero, one| {
        // By another graph, whose fill, whose event, is the other device's.
        let own = event();
        let beside = new_context_of(0);
        let near = event();
        one.enter();
        let its = event();
        zero.enter();
        for (what, address, event) in [
            ("fill", one.word, own),
            ("event", zero.word, its),
            ("near_event", zero.word, near),
        ] {
            let (old, new) = (graph(), graph());
            let first = add_fill(old, &[], zero.word, 5);
            cuGraphAddEventRecordNode(&mut 0, old, &first, 1, own).must();
            let first = add_fill(new, &[], address, 6);
            let mut second = 0;
            cuGraphAddEventRecordNode(&mut second, new, &first, 1, event).must();
            let exec = instantiate(old);
            updates(line, what, exec, new, &[("fill", first), ("event", second)]);
        }
        line.value("distinct", beside != zero.context);
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/graph_exec/event_of_another_context",
        |line, zero, one| {
            let own = event();
            let made = new_context_of(0);
            let near = event();
            zero.enter();
            let graph = graph();
            let mut record = 0;
            cuGraphAddEventRecordNode(&mut record, graph, NONE, 0, own).must();
            let exec = instantiate(graph);
            line.says_as(
                "record",
                cuGraphExecEventRecordNodeSetEvent(exec, record, near),
            );
            line.value("distinct", made != zero.context);
            synchronizes(line, [zero, one]);
        }
    ),
];
