//! Loops of devices that go on together, as processes; what becomes of them when a rank goes.

use std::process::Command;
use std::time::{Duration, Instant};

use cuda_graph::{
    Buffer, CollectiveOp, Communicator, Eager, FillOp, Graph, KernelOp, Module, Recorder,
    Reduction, Replay,
};

use super::{another, in_graphs, numbers, that_kills};

/// Each device loops by itself, as long as all say together: the same by every recorder.
pub(super) fn loop_in_step(communicator: &Communicator) {
    let rank = communicator.rank();
    let context = communicator.context();
    let stream = context.new_stream().unwrap();
    let left = numbers(communicator, 0, 1);
    let go = numbers(communicator, 0, 1);
    let total = numbers(communicator, 0, 1);
    let turns = numbers(communicator, 0, 3);
    let (one, inner) = (numbers(communicator, 1, 1), numbers(communicator, 0, 1));
    let most = |to: &Buffer<u32>, from: &Buffer<u32>| {
        CollectiveOp::all_reduce(communicator, to, from, Reduction::Max)
    };
    let kernel = kernels(communicator);
    // Rank 1 has more to do; rank 0 goes on as long. The loop within runs once in two turns.
    let step = |r: &mut dyn Recorder| -> cuda_graph::Result<()> {
        r.record(FillOp::new(&left, 5 + 8 * rank)?)?;
        r.record(FillOp::new(&turns, 0u32)?)?;
        r.record(FillOp::new(&total, 0u32)?)?;
        r.do_while_nonzero(&go, |turn| {
            turn.record(kernel("add", &turns.slice(..1)?, &one))?;
            turn.record(kernel("lower", &left, &one))?;
            let sum = CollectiveOp::all_reduce(communicator, &inner, &one, Reduction::Sum)?;
            turn.record(sum)?;
            turn.record(kernel("add", &total, &inner))?;
            turn.record(kernel("odd", &inner, &turns.slice(..1)?))?;
            turn.while_nonzero(&inner, |within| {
                within.record(kernel("add", &turns.slice(1..2)?, &one))?;
                within.record(FillOp::new(&inner, 0u32)?)?;
                within.record(most(&inner, &inner)?).map(drop)
            })?;
            turn.record(most(&go, &left)?).map(drop)
        })
    };
    let check = |what: &str| {
        let read = |buffer: &Buffer<u32>| buffer.to_host(&stream).unwrap();
        let wants = (vec![26], vec![13, 7, 0]);
        assert_eq!((read(&total), read(&turns)), wants, "{what} on rank {rank}");
    };
    let mut eager = Eager::new(&stream).unwrap();
    step(&mut eager).unwrap();
    communicator.wait(&stream).unwrap();
    check("eager");
    let (graph, ()) = Graph::record(context, |path| step(path)).unwrap();
    let mut exec = graph.instantiate().unwrap();
    for _ in 0..3 {
        exec.launch(&stream).unwrap();
        communicator.wait(&stream).unwrap();
        check("graph");
    }
    let (graph, ()) = Graph::capture(&stream, |captured| step(captured)).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    communicator.wait(&stream).unwrap();
    check("capture");
    let mut replay = Replay::new(context).unwrap();
    for _ in 0..3 {
        replay.call(&stream, |r| step(r)).unwrap();
        communicator.wait(&stream).unwrap();
        check("replay");
    }
    assert!(replay.why_eager().is_none());
    assert_eq!(replay.counters().builds, 1);
    communicator.check().unwrap();
}

/// Kernels of one thread, each of which does `to = to op from`: `add`; `lower`, as far as 0; and
/// `odd`, whether `from` is.
fn kernels(communicator: &Communicator) -> impl Fn(&str, &Buffer<u32>, &Buffer<u32>) -> KernelOp {
    let kernel = |name: &str, work: &str| {
        format!(
            ".visible .entry {name}(.param .u64 to, .param .u64 from) {{
                .reg .b64 %a, %b;
                .reg .b32 %t, %f, %r;
                ld.param.u64 %a, [to];
                ld.param.u64 %b, [from];
                ld.global.u32 %t, [%a];
                ld.global.u32 %f, [%b];
                {work}
                st.global.u32 [%a], %r;
                ret;
            }}\n"
        )
    };
    let text = [
        ".version 6.0\n.target sm_52\n.address_size 64\n".into(),
        kernel("add", "add.u32 %r, %t, %f;"),
        kernel("lower", "max.u32 %r, %t, %f; sub.u32 %r, %r, %f;"),
        kernel("odd", "and.b32 %r, %f, 1;"),
    ]
    .concat();
    let module = Module::load(communicator.context(), text).unwrap();
    move |name, to, from| {
        let kernel = module.kernel(name).unwrap();
        // SAFETY: the kernel reads a word at both addresses, and writes the first.
        unsafe { KernelOp::new(&kernel, crate::fixture::one(), (to, from)) }.unwrap()
    }
}

#[test]
fn loops_in_step() {
    in_graphs(2, "loops_in_step");
}

/// A loop that nobody ends. Rank 1 dies in there, or never comes.
fn loop_for_ever(communicator: &Communicator, dies: bool) {
    let stream = communicator.context().new_stream().unwrap();
    let go = numbers(communicator, 1, 1);
    let (graph, ()) = Graph::record(communicator.context(), |path| {
        path.while_nonzero(&go, |turn| {
            let sum = CollectiveOp::all_reduce(communicator, &go, &go, Reduction::Max)?;
            turn.record(sum).map(drop)
        })
    })
    .unwrap();
    let mut exec = graph.instantiate().unwrap();
    let comes = communicator.rank() == 0 || dies;
    if comes {
        exec.launch(&stream).unwrap();
    }
    if communicator.rank() == 1 {
        std::thread::sleep(Duration::from_secs(2));
        println!("leaving");
        if dies {
            let me = std::process::id().to_string();
            Command::new("kill").args(["-KILL", &me]).status().unwrap();
        }
        std::thread::sleep(Duration::from_secs(8));
        std::process::exit(3);
    }
    let begun = Instant::now();
    let failed = communicator.wait(&stream).unwrap_err();
    println!("told after {:?}: {failed}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(12));
    drop((exec, graph));
    let word = Buffer::<u32>::zeroed(&stream, 1).unwrap();
    let graph = Graph::new(communicator.context()).unwrap();
    graph.add(FillOp::new(&word, 7u32).unwrap(), ()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(word.to_host(&stream).unwrap(), [7]);
}

pub(super) fn die(communicator: &Communicator) {
    loop_for_ever(communicator, true);
}

pub(super) fn stay(communicator: &Communicator) {
    loop_for_ever(communicator, false);
}

#[test]
fn killed_in_a_loop() {
    if let Some(wrote) = that_kills(2, "killed_in_a_loop") {
        assert!(wrote[0].contains("told after"), "{wrote:?}");
        println!("{}", wrote[0]);
    }
}

#[test]
fn stays_in_a_loop() {
    if let Some(wrote) = that_kills(2, "stays_in_a_loop") {
        assert!(wrote[0].contains("nothing got on"), "{wrote:?}");
        println!("{}", wrote[0]);
    }
}

/// Both ranks let go of graph, executable, operation and communicator in every order, while what
/// they launched still runs.
pub(super) fn go_in_every_order(first: &Communicator) {
    let stream = first.context().new_stream().unwrap();
    let mut orders = Vec::new();
    for order in 0..256usize {
        let order = [order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6];
        if (0..4).all(|at| order.contains(&at)) {
            orders.push(order);
        }
    }
    assert_eq!(orders.len(), 24);
    for (turn, order) in (1..).zip(orders.into_iter().step_by(3)) {
        let communicator = another(first, turn, first.rank(), 2);
        let own = numbers(&communicator, 10 * first.rank(), 4);
        let sum = CollectiveOp::all_reduce(&communicator, &own, &own, Reduction::Sum).unwrap();
        let graph = Graph::new(first.context()).unwrap();
        graph.add(sum.clone(), ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        exec.launch(&stream).unwrap();
        let mut things: [Option<Box<dyn std::any::Any>>; 4] = [
            Some(Box::new(communicator)),
            Some(Box::new(graph)),
            Some(Box::new(exec)),
            Some(Box::new(sum)),
        ];
        for at in order {
            drop(things[at].take());
        }
        assert_eq!(own.to_host(&stream).unwrap(), [10, 12, 14, 16], "{order:?}");
    }
    first.check().unwrap();
}

#[test]
fn goes_in_every_order() {
    in_graphs(2, "goes_in_every_order");
}
