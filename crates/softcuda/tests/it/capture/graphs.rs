//! The graph of a capture while it goes on: what it tells, what the program may do with it,
//! captures into graphs.

use super::*;

#[test]
fn a_capture_tells_what_comes_next() {
    alone(|| unsafe {
        context();
        let (stream, empty) = (stream(), function(c"empty"));
        let (mut told, mut id, mut graph, mut count) = (77, 5, 6, 7);
        cuStreamGetCaptureInfo_v2(
            stream,
            &mut told,
            &mut id,
            &mut graph,
            std::ptr::null_mut(),
            &mut count,
        )
        .must();
        assert_eq!((told, id, graph, count), (NONE_STATUS, 5, 6, 7));
        begin(stream, GLOBAL);
        let (first, graph, dependencies_now, _) = info(stream);
        assert_eq!(dependencies_now, []);
        launch(empty, 1, 1, stream, &mut []).must();
        let (id, same, dependencies_now, data) = info(stream);
        assert_eq!((id, same), (first, graph));
        assert_eq!(dependencies_now, nodes(graph));
        assert_eq!(data, [EdgeData::default()]);
        assert_eq!(end(stream), graph);
        begin(stream, GLOBAL);
        assert!(info(stream).0 > first);
        end(stream);
    });
}

/// The program adds nodes of its own, and has the stream go on after them.
#[test]
fn nodes_of_the_program_s_own_join_in() {
    alone(|| unsafe {
        context();
        let (stream, store, pointer) = (stream(), function(c"store"), memory(8));
        begin(stream, GLOBAL);
        launch_store(store, stream, pointer, 1).must();
        let graph = graph_of(stream);
        let copied = {
            let on = dependencies(stream);
            add_store(graph, &on, store, pointer + 4, 2)
        };
        cuStreamUpdateCaptureDependencies_v2(stream, &copied, std::ptr::null(), 1, 1).must();
        launch_store(store, stream, pointer, 3).must();
        assert_eq!(end(stream), graph);
        assert_eq!(edges(graph), [(0, 1), (1, 2)]);
        run_once(graph, stream);
        assert_eq!((word(pointer), word(pointer + 4)), (3, 2));
    });
}

#[test]
fn dependencies_are_added_or_set() {
    alone(|| unsafe {
        context();
        let (main, side, empty) = (stream(), stream(), function(c"empty"));
        let step = |stream| launch(empty, 1, 1, stream, &mut []).must();
        let update = |stream, list: &[Handle], flags| {
            cuStreamUpdateCaptureDependencies_v2(
                stream,
                list.as_ptr(),
                std::ptr::null(),
                list.len(),
                flags,
            )
            .code
        };
        assert_eq!(update(main, &[], 0), ILLEGAL_STATE);
        begin(main, GLOBAL);
        step(main);
        let [a] = dependencies(main)[..] else {
            panic!()
        };
        step(main);
        let [b] = dependencies(main)[..] else {
            panic!()
        };
        let foreign = add_empty(graph(), &[]);
        for (list, flags, expected, then) in [
            (&[a, a][..], 0, 0, &[b, a][..]),
            (&[a], 0, 0, &[b, a]),
            (&[foreign], 0, INVALID_VALUE, &[b, a]),
            (&[a, foreign], 1, INVALID_VALUE, &[b, a]),
            (&[BOGUS], 1, INVALID_VALUE, &[b, a]),
            (&[a], 2, INVALID_VALUE, &[b, a]),
            (&[a, a], 1, 0, &[a]),
            (&[], 1, 0, &[]),
            (&[b], 0, 0, &[b]),
        ] {
            if list.contains(&BOGUS) && !is_software() {
                continue;
            }
            assert_eq!(update(main, list, flags), expected);
            assert_eq!(dependencies(main), then);
        }
        // What goes from a stream's dependencies need not be joined.
        order(main, side);
        step(side);
        assert_eq!(update(side, &[], 1), 0);
        end(main);
    });
}

#[test]
fn a_capture_continues_a_graph_after_chosen_nodes() {
    alone(|| unsafe {
        context();
        let (stream, store, pointer) = (stream(), function(c"store"), memory(12));
        let graph = graph();
        let a = add_store(graph, &[], store, pointer, 1);
        let b = add_store(graph, &[], store, pointer + 4, 2);
        let none = std::ptr::null();
        let begin_after = |nodes: &[Handle]| {
            cuStreamBeginCaptureToGraph(stream, graph, nodes.as_ptr(), none, nodes.len(), GLOBAL)
        };
        begin_after(&[a, b]).must();
        assert_eq!(info(stream).1, graph);
        assert_eq!(dependencies(stream), [a, b]);
        cuMemcpyDtoDAsync_v2(pointer + 8, pointer + 4, 4, stream).must();
        assert_eq!(end(stream), graph);
        assert_eq!(edges(graph), [(0, 2), (1, 2)]);
        run_once(graph, stream);
        assert_eq!(word(pointer + 8), 2);
        let foreign = add_empty(crate::graphs::api::graph(), &[]);
        for wrong in [&[foreign][..], &[a, foreign]] {
            assert_eq!(begin_after(wrong).code, INVALID_VALUE);
            assert_eq!(status(stream), NONE_STATUS);
        }
        begin_after(&[]).must();
        assert_eq!(dependencies(stream), []);
        end(stream);
        cuGraphDestroy(graph).must();
    });
}

/// A graph that is captured to loses nothing, and a capture that fails leaves none, not even one
/// that was there before.
#[test]
fn the_graph_is_the_capture_s_while_it_goes_on() {
    alone(|| unsafe {
        context();
        let (stream, empty) = (stream(), function(c"empty"));
        let graph = graph();
        let node = add_empty(graph, &[]);
        cuStreamBeginCaptureToGraph(stream, graph, &node, std::ptr::null(), 1, RELAXED).must();
        launch(empty, 1, 1, stream, &mut []).must();
        assert_eq!(cuGraphDestroy(graph).code, ILLEGAL_STATE);
        assert_eq!(cuGraphDestroyNode(node).code, ILLEGAL_STATE);
        let mut clone = 0;
        cuGraphClone(&mut clone, graph).must();
        assert_eq!(nodes(clone).len(), 2);
        if is_software() {
            // A real driver crashes on it.
            let other = super::stream();
            let answer =
                cuStreamBeginCaptureToGraph(other, graph, &node, std::ptr::null(), 1, RELAXED);
            assert_ne!(answer.code, 0);
            assert_eq!(status(other), NONE_STATUS);
        }
        assert_eq!(cuStreamQuery(stream).code, UNSUPPORTED);
        assert_eq!(cuGraphDestroy(graph).code, ILLEGAL_STATE);
        assert_eq!(end_failed(stream), INVALIDATED);
        if is_software() {
            assert_eq!(cuGraphDestroyNode(node).code, INVALID_VALUE);
            assert_eq!(cuGraphDestroy(graph).code, INVALID_VALUE);
        }
        assert_eq!(nodes(clone).len(), 2);
        assert!(is_of_use(stream));
    });
}
