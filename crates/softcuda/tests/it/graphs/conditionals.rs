//! Conditional nodes: which bodies run and how often, nested, launched again, updated, captured.

use super::conditions::*;
use super::*;
use crate::capture::api::{
    cuStreamBeginCapture_v2, cuStreamBeginCaptureToGraph, cuStreamEndCapture,
    cuStreamGetCaptureInfo_v2, cuStreamUpdateCaptureDependencies_v2,
};
use crate::numbers::Numbers;

/// Device words, all zero.
unsafe fn words(count: usize) -> u64 {
    let at = memory(4 * count);
    fill_words(at, 0, count);
    at
}

#[test]
fn the_same_executable_takes_another_body_each_time() {
    unsafe {
        context();
        let (kernels, stream, at) = (Kernels::load(), stream(), words(4));
        for (kind, count) in [(IF, 1), (IF, 2), (SWITCH, 1), (SWITCH, 3)] {
            let graph = graph();
            let condition = condition(graph, 0);
            let set = kernels.set_from(graph, &[], condition, at);
            let (node, bodies) = add_conditional(graph, &[set], condition, kind, count);
            for (body, number) in bodies.iter().zip(0..) {
                add_fill(*body, &[], at + 4, number);
            }
            kernels.count(graph, &[node], at + 8);
            let exec = instantiate(graph);
            for value in [0, 1, 2, 3, 1, 0, u32::MAX, 2, 2, 0] {
                fill_words(at, value, 1);
                fill_words(at + 4, 77, 1);
                run(exec, stream);
                let taken = match (kind, value) {
                    (SWITCH, body) => body,
                    (_, 0) => 1,
                    _ => 0,
                };
                let expected = if taken < count { taken } else { 77 };
                assert_eq!(word(at + 4), expected, "{kind} of {count} with {value}");
            }
        }
        assert_eq!(word(at + 8), 40);
    }
}

#[test]
fn loops_turn_never_once_and_thousands_of_times() {
    unsafe {
        context();
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), words(4), graph());
        let condition = condition(graph, 1);
        let set = kernels.set_from(graph, &[], condition, at);
        let (node, body) = add_single(graph, &[set], condition, WHILE);
        let turn = kernels.count_to(body, &[], condition, at + 4, 10_000);
        kernels.count(body, &[turn], at + 8);
        kernels.count(graph, &[node], at + 12);
        let exec = instantiate(graph);
        for turns in [0, 1, 2, 10_000, 0, 3] {
            fill_words(at, u32::from(turns > 0), 1);
            fill_words(at + 4, 10_000 - turns, 1);
            fill_words(at + 8, 0, 1);
            run(exec, stream);
            assert_eq!(word(at + 8), turns);
        }
        assert_eq!(word(at + 12), 6);
    }
}

#[test]
fn a_body_of_branches_is_over_before_it_begins_again() {
    unsafe {
        context();
        const LANES: u64 = 5;
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), words(64), graph());
        let condition = condition(graph, 1);
        let (_, body) = add_single(graph, &[], condition, WHILE);
        let first = kernels.count(body, &[], at);
        let lanes: Vec<Handle> = (1..=LANES)
            .map(|lane| {
                let one = kernels.count(body, &[first], at + 4 * lane);
                kernels.count(body, &[one], at + 4 * lane)
            })
            .collect();
        // Each counter is read and written by one kernel at a time, so a turn that overtakes
        // another loses counts.
        let join = kernels.count(body, &lanes, at);
        kernels.count_to(body, &[join], condition, at + 4 * (LANES + 1), 500);
        let exec = instantiate(graph);
        for times in 1..4 {
            fill_words(at + 4 * (LANES + 1), 0, 1);
            run(exec, stream);
            for lane in 0..=LANES {
                assert_eq!(word(at + 4 * lane), times * 1000);
            }
        }
    }
}

#[test]
fn inner_loops_turn_as_often_as_the_outer_turn_says() {
    unsafe {
        context();
        let (kernels, stream, at, graph) = (Kernels::load(), stream(), words(4), graph());
        let (outer, inner) = (condition(graph, 1), condition(graph, 0));
        let (_, body) = add_single(graph, &[], outer, WHILE);
        // In turn i the inner counter begins with i, and the inner loop goes on to 6.
        let begin = add_copy(body, &[], &line_copy(at + 4, at, 4));
        let arm = kernels.set_to(body, &[begin], inner, 1);
        let (node, innermost) = add_single(body, &[arm], inner, WHILE);
        let turn = kernels.count_to(innermost, &[], inner, at + 4, 6);
        kernels.count(innermost, &[turn], at + 8);
        kernels.count_to(body, &[node], outer, at, 6);
        let exec = instantiate(graph);
        for times in 1..4 {
            fill_words(at, 0, 1);
            run(exec, stream);
            assert_eq!(
                (word(at), word(at + 8)),
                (6, times * (6 + 5 + 4 + 3 + 2 + 1))
            );
        }
    }
}

/// Part of a random program.
enum Part {
    Count(usize),
    If(u32, Vec<Part>, Option<Vec<Part>>),
    Switch(u32, Vec<Vec<Part>>),
    While(u32, Vec<Part>),
    Child(Vec<Part>),
}

impl Numbers {
    fn parts(&mut self, depth: u32) -> Vec<Part> {
        (0..self.below(4)).map(|_| self.part(depth)).collect()
    }

    fn part(&mut self, depth: u32) -> Part {
        let inside = depth.saturating_sub(1);
        match self.below(if depth == 0 { 1 } else { 6 }) {
            0 | 1 => Part::Count(self.below(8)),
            2 => {
                let otherwise = (self.below(2) == 0).then(|| self.parts(inside));
                Part::If(self.below(2) as u32, self.parts(inside), otherwise)
            }
            3 => {
                let count = 1 + self.below(4);
                let bodies = (0..count).map(|_| self.parts(inside)).collect();
                Part::Switch(self.below(count + 1) as u32, bodies)
            }
            4 => Part::While(self.below(4) as u32, self.parts(inside)),
            _ => Part::Child(self.parts(0)),
        }
    }
}

/// What a program counts.
fn expect(parts: &[Part], counts: &mut [u32; 8]) {
    for part in parts {
        match part {
            Part::Count(at) => counts[*at] += 1,
            Part::If(0, _, otherwise) => expect(otherwise.as_deref().unwrap_or(&[]), counts),
            Part::If(_, then, _) => expect(then, counts),
            Part::Switch(value, bodies) => {
                let none = Vec::new();
                expect(bodies.get(*value as usize).unwrap_or(&none), counts);
            }
            Part::While(turns, body) => (0..*turns).for_each(|_| expect(body, counts)),
            Part::Child(inside) => expect(inside, counts),
        }
    }
}

/// Makes a program into nodes, one after the other; loops count in words of their own behind the
/// first eight.
unsafe fn build(
    kernels: &Kernels,
    root: Handle,
    graph: Handle,
    parts: &[Part],
    at: u64,
    next: &mut u64,
) {
    let mut last: Vec<Handle> = Vec::new();
    for part in parts {
        let node = match part {
            Part::Count(place) => kernels.count(graph, &last, at + 4 * *place as u64),
            Part::If(value, then, otherwise) => {
                let condition = condition(root, 1 - value);
                let set = kernels.set_to(graph, &last, condition, *value);
                let count = 1 + u32::from(otherwise.is_some());
                let (node, bodies) = add_conditional(graph, &[set], condition, IF, count);
                build(kernels, root, bodies[0], then, at, next);
                if let Some(otherwise) = otherwise {
                    build(kernels, root, bodies[1], otherwise, at, next);
                }
                node
            }
            Part::Switch(value, parts) => {
                let condition = condition(graph, 0);
                let set = kernels.set_to(graph, &last, condition, *value);
                let count = parts.len() as u32;
                let (node, bodies) = add_conditional(graph, &[set], condition, SWITCH, count);
                for (body, parts) in bodies.iter().zip(parts) {
                    build(kernels, root, *body, parts, at, next);
                }
                node
            }
            Part::While(turns, parts) => {
                let condition = condition(root, 0);
                let counter = at + 4 * *next;
                *next += 1;
                let clear = add_fill(graph, &last, counter, 0);
                let set = kernels.set_to(graph, &[clear], condition, u32::from(*turns > 0));
                let (node, body) = add_single(graph, &[set], condition, WHILE);
                build(kernels, root, body, parts, at, next);
                let ends = nodes(body);
                kernels.count_to(body, &ends, condition, counter, *turns);
                node
            }
            Part::Child(parts) => {
                let inner = super::api::graph();
                build(kernels, inner, inner, parts, at, next);
                add_child(graph, &last, inner)
            }
        };
        last = vec![node];
    }
}

#[test]
fn random_programs_count_as_they_say() {
    unsafe {
        context();
        let (kernels, stream, at) = (Kernels::load(), stream(), words(4096));
        for seed in 1..40 {
            let mut random = Numbers(seed * 0x9e37_79b9);
            let mut program = random.parts(4);
            program.extend(random.parts(4));
            let mut expected = [0; 8];
            expect(&program, &mut expected);
            let (graph, mut next) = (graph(), 8);
            build(&kernels, graph, graph, &program, at, &mut next);
            let exec = instantiate(graph);
            for times in 1..3 {
                run(exec, stream);
                for (place, count) in expected.iter().enumerate() {
                    assert_eq!(word(at + 4 * place as u64), count * times, "program {seed}");
                }
            }
            fill_words(at, 0, 8);
            cuGraphExecDestroy(exec).must();
            cuGraphDestroy(graph).must();
        }
    }
}

#[test]
fn loops_run_beside_each_other_in_one_launch_and_in_several() {
    // On an H200 (driver 580) this ends in LAUNCH_FAILED, and four loops in one launch do so from
    // time to time; why is not known.
    if !super::is_software() {
        return;
    }
    unsafe {
        let context = context();
        let kernels = Kernels::load();
        let build = |at: u64| {
            let graph = graph();
            for lane in 0..3 {
                let condition = condition(graph, 1);
                let counter = at + 4 * lane;
                let clear = add_fill(graph, &[], counter, 0);
                let (_, body) = add_single(graph, &[clear], condition, WHILE);
                kernels.count_to(body, &[], condition, counter, 200 + lane as u32);
            }
            instantiate(graph)
        };
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let at = words(4);
                let (exec, stream) = (build(at), stream());
                std::thread::spawn(move || {
                    cuCtxSetCurrent(context).must();
                    for _ in 0..10 {
                        cuGraphLaunch(exec, stream).must();
                    }
                    cuStreamSynchronize(stream).must();
                    assert_eq!([word(at), word(at + 4), word(at + 8)], [200, 201, 202]);
                })
            })
            .collect();
        threads.into_iter().for_each(|it| it.join().unwrap());
    }
}

#[test]
fn updates_of_bodies_reach_later_launches_alone() {
    unsafe {
        context();
        let (stream, at) = (stream(), words(4));
        let build = |default: u32, value: u32| {
            let graph = graph();
            let (_, body) = add_single(graph, &[], condition(graph, default), IF);
            let (_, inner) = add_single(body, &[], condition(graph, 1), IF);
            (graph, add_fill(inner, &[], at, value))
        };
        let ((graph, node), (other, _)) = (build(1, 5), build(1, 7));
        let (off, _) = build(0, 8);
        let exec = instantiate(graph);
        let gate = Gate::close(stream);
        cuGraphLaunch(exec, stream).must();
        let params = word_fill(at, 6);
        cuGraphExecMemsetNodeSetParams(exec, node, &params, current()).must();
        gate.open();
        cuStreamSynchronize(stream).must();
        assert_eq!(word(at), 5);
        run(exec, stream);
        assert_eq!(word(at), 6);
        let mut info = UpdateInfo::default();
        cuGraphExecUpdate_v2(exec, other, &mut info).must();
        run(exec, stream);
        assert_eq!(word(at), 7);
        // The condition goes with the graph: its default is another.
        cuGraphExecUpdate_v2(exec, off, &mut info).must();
        run(exec, stream);
        assert_eq!(word(at), 7);
        cuGraphNodeSetEnabled(exec, node, 0).must();
        cuGraphExecUpdate_v2(exec, graph, &mut info).must();
        fill_words(at, 0, 1);
        cuGraphDestroy(graph).must();
        run(exec, stream);
        assert_eq!(word(at), 0);
    }
}

#[test]
fn bodies_are_captured_into_and_conditional_nodes_added_to_captures() {
    unsafe {
        context();
        let (kernels, stream, at) = (Kernels::load(), stream(), words(4));
        let (count_to, count) = (kernels.get(c"count_to"), kernels.get(c"count"));
        cuStreamBeginCapture_v2(stream, 2).must();
        let (mut status, mut graph, mut on, mut width) = (0, 0, NONE, 0);
        cuMemsetD32Async(at, 0, 1, stream).must();
        cuStreamGetCaptureInfo_v2(stream, &mut status, &mut 0, &mut graph, &mut on, &mut width)
            .must();
        let mut condition = condition(graph, 1);
        let before = std::slice::from_raw_parts(on, width).to_vec();
        let (node, body) = add_single(graph, &before, condition, WHILE);
        let side = super::super::conformance::fixture::stream();
        cuStreamBeginCaptureToGraph(side, body, NONE, std::ptr::null(), 0, 2).must();
        let (mut counter, mut limit) = (at, 12u32);
        let mut values = [void(&mut condition), void(&mut counter), void(&mut limit)];
        launch(count_to, 1, 1, side, &mut values).must();
        let mut ended = 0;
        cuStreamEndCapture(side, &mut ended).must();
        assert_eq!(ended, body);
        cuStreamUpdateCaptureDependencies_v2(stream, &node, std::ptr::null(), 1, 1).must();
        let mut other = at + 4;
        launch(count, 1, 1, stream, &mut [void(&mut other)]).must();
        cuStreamEndCapture(stream, &mut ended).must();
        assert_eq!(ended, graph);
        let exec = instantiate(graph);
        for times in 1..4 {
            run(exec, stream);
            assert_eq!((word(at), word(at + 4)), (12, times));
        }
    }
}

#[test]
fn bodies_live_as_long_as_their_node() {
    unsafe {
        context();
        let (graph, at, stream) = (graph(), words(4), stream());
        let mut params = conditional_params(condition(graph, 2), SWITCH, 3);
        let (answer, node) = try_conditional(graph, &[], &mut params);
        answer.must();
        let first = bodies(&params);
        for _ in 0..100 {
            add_single(graph, &[], condition(graph, 0), IF);
        }
        // The array is where it was, with the same handles.
        assert_eq!(bodies(&params), first);
        for (body, number) in first.iter().zip(10..) {
            add_fill(*body, &[], at, number);
        }
        let exec = instantiate(graph);
        cuGraphDestroyNode(node).must();
        run(exec, stream);
        assert_eq!(word(at), 12);
        if super::is_software() {
            let mut count = 0;
            let gone = cuGraphGetNodes(first[0], std::ptr::null_mut(), &mut count);
            assert_eq!(gone.code, INVALID_VALUE);
        }
    }
}

#[test]
fn a_capture_into_a_body_keeps_its_graph_or_ends_the_body() {
    if !super::is_software() {
        return;
    }
    unsafe {
        context();
        let (graph, stream) = (graph(), stream());
        let (_, body) = add_single(graph, &[], condition(graph, 0), IF);
        cuStreamBeginCaptureToGraph(stream, body, NONE, std::ptr::null(), 0, 2).must();
        assert_ne!(cuGraphDestroy(graph).code, 0);
        let mut ended = 0;
        assert_ne!(cuStreamSynchronize(stream).code, 0);
        assert_ne!(cuStreamEndCapture(stream, &mut ended).code, 0);
        assert_eq!(ended, 0);
        let refused = cuGraphInstantiateWithFlags(&mut 0, graph, 0);
        assert_eq!(refused.code, INVALID_VALUE);
        cuGraphDestroy(graph).must();
    }
}
