//! Child graphs that change owner: `CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE`.

use super::conditions::*;
use super::user_objects::{lives, owning_graph, went};
use super::*;

/// Tries to move a graph into a node.
unsafe fn try_move(parent: Handle, on: &[Handle], child: Handle) -> (Answer, Handle) {
    let (mut node, mut params) = (0, node_params(4, &[child as u64, 1]));
    let answer = cuGraphAddNode(&mut node, parent, on.as_ptr(), on.len(), &mut params);
    (answer, node)
}

unsafe fn move_child(parent: Handle, on: &[Handle], child: Handle) -> Handle {
    let (answer, node) = try_move(parent, on, child);
    answer.must();
    node
}

unsafe fn child_of(node: Handle) -> Handle {
    let mut own = 0;
    cuGraphChildGraphNodeGetGraph(node, &mut own).must();
    own
}

#[test]
fn handles_of_graph_and_nodes_stay() {
    unsafe {
        context();
        let (parent, child, stream, pointer) = (graph(), graph(), stream(), memory(8));
        let first = add_fill(child, &[], pointer, 1);
        let node = move_child(parent, &[], child);
        assert_eq!(child_of(node), child);
        assert_eq!(nodes(child), [first]);
        // It is still edited through its handle, and the parent has the changes.
        add_fill(child, &[first], pointer + 4, 2);
        cuGraphMemsetNodeSetParams(first, &word_fill(pointer, 3)).must();
        let exec = instantiate(parent);
        run(exec, stream);
        assert_eq!((word(pointer), word(pointer + 4)), (3, 2));
        cuGraphExecMemsetNodeSetParams(exec, first, &word_fill(pointer, 4), current()).must();
        run(exec, stream);
        assert_eq!((word(pointer), word(pointer + 4)), (4, 2));
        cuGraphDestroy(parent).must();
        if is_software() {
            assert_ne!(cuGraphDestroy(child).code, 0, "it went with its parent");
        }
    }
}

#[test]
fn a_graph_is_moved_to_the_top_into_a_child_and_into_a_body() {
    unsafe {
        context();
        for place in ["top", "child", "moved", "body"] {
            let (root, stream, pointer) = (graph(), stream(), memory(4));
            fill_words(pointer, 0, 1);
            let into = match place {
                "top" => root,
                "child" => child_of(add_child(root, &[], graph())),
                "moved" => child_of(move_child(root, &[], graph())),
                _ => add_single(root, &[], condition(root, 1), IF).1,
            };
            let (child, gone) = owning_graph();
            add_store(child, &[], function(c"store"), pointer, 7);
            move_child(into, &[], child);
            let exec = instantiate(root);
            cuGraphDestroy(root).must();
            assert!(lives(gone), "{place}");
            run(exec, stream);
            assert_eq!(word(pointer), 7, "{place}");
            cuGraphExecDestroy(exec).must();
            assert!(went(gone), "{place}");
        }
    }
}

#[test]
fn user_objects_go_with_the_node() {
    unsafe {
        context();
        let (parent, (child, gone)) = (graph(), owning_graph());
        let node = move_child(parent, &[], child);
        assert!(lives(gone));
        cuGraphDestroyNode(node).must();
        assert!(went(gone));

        let (parent, (child, gone), mut clone) = (graph(), owning_graph(), 0);
        move_child(parent, &[], child);
        cuGraphClone(&mut clone, parent).must();
        cuGraphDestroy(parent).must();
        assert!(lives(gone));
        cuGraphDestroy(clone).must();
        assert!(went(gone));
    }
}

#[test]
fn a_move_that_fails_leaves_the_graph_to_the_program() {
    unsafe {
        context();
        let (parent, (child, gone)) = (graph(), owning_graph());
        let elsewhere = add_empty(graph(), &[]);
        assert_ne!(try_move(parent, &[elsewhere], child).0.code, 0);
        assert_eq!(nodes(parent).len(), 0);
        instantiate(child);
        let (other, node) = (graph(), move_child(parent, &[], child));
        assert_ne!(try_move(other, &[], child).0.code, 0, "it has an owner");
        assert_ne!(try_move(parent, &[], child).0.code, 0, "it has an owner");
        assert_eq!((nodes(other).len(), nodes(parent)), (0, vec![node]));
        assert!(lives(gone));
    }
}

#[test]
fn no_graph_is_moved_into_itself() {
    if !is_software() {
        return;
    }
    unsafe {
        context();
        let (root, inner, innermost) = (graph(), graph(), graph());
        move_child(root, &[], inner);
        move_child(inner, &[], innermost);
        for into in [root, inner, innermost] {
            assert_ne!(try_move(into, &[], root).0.code, 0);
        }
        assert_eq!(nodes(innermost).len(), 0);
        cuGraphDestroy(root).must();
    }
}

/// A graph that allocates memory, fills and frees it.
unsafe fn with_memory() -> Handle {
    let child = graph();
    let (alloc, address) = add_alloc(child, &[], 64);
    let fill = add_fill(child, &[alloc], address, 3);
    add_free(child, &[fill], address);
    child
}

#[test]
fn memory_nodes_go_into_no_child_graph() {
    unsafe {
        context();
        let (root, middle, child) = (graph(), graph(), with_memory());
        let node = move_child(root, &[], middle);
        assert_ne!(try_move(middle, &[], child).0.code, 0);
        assert_ne!(
            cuGraphAddMemAllocNode(&mut 0, middle, NONE, 0, &mut alloc_params(64)).code,
            0
        );
        cuGraphDestroyNode(node).must();
        // Its executable would be one of a graph that is no other's.
        let exec = instantiate(child);
        assert_ne!(try_move(root, &[], child).0.code, 0);
        cuGraphExecDestroy(exec).must();
        let node = move_child(root, &[], child);
        run(instantiate(root), stream());
        assert_ne!(cuGraphInstantiateWithFlags(&mut 0, root, 0).code, 0);
        assert_ne!(cuGraphDestroyNode(node).code, 0);
    }
}

#[test]
fn a_node_set_to_own_a_graph_has_none() {
    unsafe {
        context();
        let (root, new) = (graph(), graph());
        let node = add_child(root, &[], graph());
        cuGraphNodeSetParams(node, &mut node_params(4, &[new as u64, 1])).must();
        assert_ne!(cuGraphChildGraphNodeGetGraph(node, &mut 0).code, 0);
        if is_software() {
            assert_ne!(cuGraphInstantiateWithFlags(&mut 0, root, 0).code, 0);
            assert_ne!(cuGraphClone(&mut 0, root).code, 0);
            cuGraphDestroyNode(node).must();
            run(instantiate(root), stream());
            cuGraphDestroy(new).must();
        }
    }
}
