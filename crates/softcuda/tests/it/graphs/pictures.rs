//! Pictures of definitions, and nodes by the functions for any kind.

use std::ffi::CString;

use super::*;

#[test]
fn a_picture_has_every_node_and_edge_and_what_its_flags_ask_for() {
    unsafe {
        context();
        let (graph, inner, pointer) = (graph(), super::api::graph(), memory(4));
        let fill = add_fill(graph, &[], pointer, 0xabc);
        let store = add_store(graph, &[fill], function(c"store"), pointer, 1);
        add_empty(inner, &[]);
        add_child(graph, &[store], inner);
        let file = std::env::temp_dir().join(format!("softcuda-{}.dot", std::process::id()));
        let path = CString::new(file.to_str().unwrap()).unwrap();
        let print = |flags| {
            cuGraphDebugDotPrint(graph, path.as_ptr(), flags).must();
            std::fs::read_to_string(&file).unwrap()
        };
        let (brief, verbose) = (print(0), print(1));
        std::fs::remove_file(&file).unwrap();
        for text in [&brief, &verbose] {
            assert!(text.starts_with("digraph") && text.trim_end().ends_with('}'));
            assert_eq!(text.matches("subgraph").count(), 2);
            assert!(text.contains("store") && text.contains("MEMSET"));
        }
        assert!(brief.matches("->").count() >= 2);
        assert!(verbose.len() > brief.len());
        assert_ne!(cuGraphDebugDotPrint(graph, std::ptr::null(), 0).code, 0);
        assert_ne!(
            cuGraphDebugDotPrint(graph, c"/nowhere/at/all.dot".as_ptr(), 0).code,
            0
        );
    }
}

#[test]
fn nodes_of_any_kind_by_one_function() {
    unsafe {
        let context = context();
        let (graph, stream, pointer, seen) = (graph(), stream(), memory(8), counter());
        let add = |on: &[Handle], mut params: NodeParams| {
            let mut node = 0;
            let no_data = std::ptr::null();
            cuGraphAddNode_v2(
                &mut node,
                graph,
                on.as_ptr(),
                no_data,
                on.len(),
                &mut params,
            )
            .must();
            node
        };
        let fill_words = |value: u64| [pointer, 0, 4 << 32 | value, 1, 1, context as u64];
        let fill = add(&[], node_params(2, &fill_words(3)));
        let host = [add_one as *const () as u64, pointer_to(seen) as u64];
        let host = add(&[fill], node_params(3, &host));
        let waited = event();
        add(&[host], node_params(6, &[waited as u64]));
        add(&[host], node_params(5, &[]));
        let exec = instantiate(graph);
        run(exec, stream);
        assert_eq!((word(pointer), seen.load(Ordering::SeqCst)), (3, 1));
        cuGraphExecNodeSetParams(exec, fill, &mut node_params(2, &fill_words(4))).must();
        run(exec, stream);
        assert_eq!(word(pointer), 4);
        // The wrong kind, a kind that is none, bytes that should be zero.
        let mut wrong = node_params(2, &fill_words(4));
        wrong.last = 1;
        let mut also = node_params(2, &fill_words(4));
        also.union[20] = 1;
        let mut node = 0;
        for mut params in [wrong, also, node_params(99, &[])] {
            let answer =
                cuGraphAddNode_v2(&mut node, graph, NONE, std::ptr::null(), 0, &mut params);
            assert_eq!(answer.code, INVALID_VALUE);
        }
        let answer = cuGraphExecNodeSetParams(exec, host, &mut node_params(2, &fill_words(4)));
        assert_eq!(answer.code, INVALID_VALUE);
        // A programmatic edge is between kernels alone.
        let data = [1, 0, 1, 0, 0, 0, 0, 0];
        let answer = cuGraphAddNode_v2(&mut node, graph, &fill, &data, 1, &mut node_params(5, &[]));
        assert_eq!(answer.code, INVALID_VALUE);
        assert_eq!(nodes(graph).len(), 4);
    }
}
