//! Many threads at once, on graphs of their own and on the same ones.

use super::*;
use crate::numbers::Numbers;

#[test]
fn threads_build_and_run_graphs_of_their_own() {
    unsafe {
        context();
        let module = module();
        let store = function_of(module, c"store");
        let threads: Vec<_> = (0..6)
            .map(|thread| {
                std::thread::spawn(move || {
                    context();
                    let (stream, pointer, mut numbers) =
                        (stream(), memory(4 * 64), Numbers(thread));
                    for _ in 0..10 {
                        let graph = graph();
                        let mut made: Vec<Handle> = Vec::new();
                        for number in 0..64 {
                            let mut on: Vec<Handle> = (0..numbers.below(4))
                                .filter(|_| !made.is_empty())
                                .map(|_| made[numbers.below(made.len())])
                                .collect();
                            on.sort();
                            on.dedup();
                            let to = pointer + 4 * number;
                            made.push(add_store(graph, &on, store, to, number as u32 + 100));
                        }
                        cuMemsetD32Async(pointer, 0, 64, stream).must();
                        let exec = instantiate(graph);
                        cuGraphLaunch(exec, stream).must();
                        cuGraphDestroy(graph).must();
                        cuGraphExecDestroy(exec).must();
                        cuStreamSynchronize(stream).must();
                        let seen: Vec<u32> = (0..64).map(|at| word(pointer + 4 * at)).collect();
                        assert_eq!(seen, (100..164).collect::<Vec<_>>());
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

/// The driver does not promise that this works: it must not crash, hang or lose what graphs keep.
#[test]
fn threads_that_share_graphs_get_answers() {
    if !is_software() {
        return;
    }
    unsafe {
        context();
        let (shared, parent, small, gone) = (graph(), graph(), graph(), counter());
        add_empty(small, &[]);
        let mut object = 0;
        cuUserObjectCreate(&mut object, pointer_to(gone), Some(add_one), 1, 1).must();
        cuGraphRetainUserObject(shared, object, 1, 1).must();
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                std::thread::spawn(move || {
                    context();
                    let (stream, mut numbers) = (stream(), Numbers(thread));
                    let (mut out, mut node) = (0, 0);
                    for _ in 0..300 {
                        let all = nodes(shared);
                        let some = match all.len() {
                            0 => 0,
                            count => all[numbers.below(count)],
                        };
                        match numbers.below(8) {
                            0 => cuGraphDestroyNode(some),
                            1 => cuGraphAddEmptyNode(&mut node, shared, &some, 1),
                            2 => cuGraphAddEmptyNode(&mut node, shared, NONE, 0),
                            3 => add_edge(shared, some, all.last().copied().unwrap_or(0)),
                            4 => cuGraphAddChildGraphNode(&mut node, parent, NONE, 0, shared),
                            5 => cuGraphAddChildGraphNode(&mut node, shared, NONE, 0, small),
                            6 if cuGraphClone(&mut out, shared).code == 0 => cuGraphDestroy(out),
                            _ if cuGraphInstantiateWithFlags(&mut out, shared, 0).code == 0 => {
                                cuGraphLaunch(out, stream).must();
                                cuGraphExecDestroy(out)
                            }
                            _ => continue,
                        }
                        .ignore();
                        if all.len() > 40 || nodes(parent).len() > 4 {
                            for node in nodes(parent).into_iter().chain(all) {
                                cuGraphDestroyNode(node).ignore();
                            }
                        }
                    }
                    cuStreamSynchronize(stream).must();
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(gone.load(Ordering::SeqCst), 0);
        cuGraphDestroy(shared).must();
        cuGraphDestroy(parent).must();
        assert!(comes_to(gone, 1));
    }
}
