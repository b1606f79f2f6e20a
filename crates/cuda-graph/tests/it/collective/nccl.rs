//! NCCL as the engine: on a GPU, where its library is found.
//!
//! Ranks are processes: with two devices each has its own. With one, both have that. NCCL from 2.30
//! on does the same as on two devices then, if it is told to (`NCCL_MULTI_RANK_GPU_ENABLE=1`): set
//! that to run everything here. Otherwise NCCL takes them for ranks of two machines
//! (`NCCL_HOSTID`), which it connects by the network: then collectives are no single kernels, and
//! only run eagerly.
//!
//! A test that cannot run says so.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cuda_graph::cudarc::driver::CudaContext;
use cuda_graph::{
    Buffer, Cluster, CollectiveOp, Communicator, CommunicatorOptions, Driver, Eager, Engine, Error,
    FillOp, Graph, KernelOp, Module, Recorder, Reduction, Replay, Transmission,
};

use crate::fixture::in_process;

const CASE: &str = "CUDA_GRAPH_NCCL_CASE";
/// Tells NCCL, from 2.30 on, that ranks may share a device.
const SHARED: &str = "NCCL_MULTI_RANK_GPU_ENABLE";
const SETTINGS: [(&str, &str); 4] = [
    ("NCCL_GRAPH_MIXING_SUPPORT", "0"),
    ("NCCL_RUNTIME_CONNECT", "0"),
    ("NCCL_SOCKET_IFNAME", "lo"),
    ("NCCL_IB_DISABLE", "1"),
];

fn options() -> CommunicatorOptions {
    CommunicatorOptions::default().timeout(Duration::from_secs(20))
}

/// Whether there is NCCL, or that a test did not run.
fn is_there(test: &str) -> bool {
    let device = cuda_graph::device(0).expect("there is a device");
    let contexts = [device.context().clone()];
    match Communicator::all(&contexts, &options().engine(Engine::Nccl)) {
        Ok(_) => true,
        Err(error) => {
            assert!(
                device.driver() == Driver::Software || error.to_string().contains("not found"),
                "{error}"
            );
            println!("{test} did not run: {error}");
            false
        }
    }
}

/// Runs a test of this file in a process with NCCL's settings.
fn with_settings(test: &str) -> bool {
    if std::env::var_os("CUDA_GRAPH_CASE").is_some() {
        return true;
    }
    if is_there(test) {
        let driver = [("CUDA_GRAPH_DRIVER", "gpu")];
        in_process(test, &[&SETTINGS[..], &driver].concat());
    }
    false
}

/// Whether collectives between processes are single kernels here, which graphs take.
fn are_kernels() -> bool {
    std::env::var_os(SHARED).is_some() || CudaContext::device_count().unwrap() > 1
}

/// Starts rank `rank` of two as a process that does `case`.
fn start(case: &str, rank: usize, port: u16) -> Child {
    let devices = CudaContext::device_count().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "collective::nccl::rank",
            "--nocapture",
            "--ignored",
        ])
        .envs(SETTINGS)
        .env("CUDA_GRAPH_DRIVER", "gpu")
        .env(CASE, case)
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", "2")
        .env("LOCAL_RANK", if devices > 1 { rank } else { 0 }.to_string())
        .env("CUDA_GRAPH_RENDEZVOUS", format!("127.0.0.1:{port}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if devices == 1 && std::env::var_os(SHARED).is_none() {
        command.env("NCCL_HOSTID", format!("machine {rank}"));
    }
    command.spawn().expect("the test starts itself")
}

/// Runs a case on two ranks; gives what they wrote.
fn on_two(case: &str) -> Option<[String; 2]> {
    let test = format!("collective::nccl::{case}");
    if !is_there(&test) {
        return None;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let ranks = [0, 1].map(|rank| start(case, rank, port));
    Some(ranks.map(|rank| {
        let output = rank.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let left = text.contains("leaving");
        assert!(output.status.success() || left, "{case}:\n{text}");
        text
    }))
}

#[test]
#[ignore = "the other tests of this file run it, for each rank in a process of its own"]
fn rank() {
    let cluster = Cluster::from_environment().unwrap();
    let device = cuda_graph::device(cluster.local_rank() as usize).unwrap();
    let timeout = match std::env::var(CASE).as_deref() {
        Ok("never_launches" | "killed_in_a_loop" | "stays_in_a_loop") => Duration::from_secs(3),
        _ => Duration::from_secs(20),
    };
    let options = CommunicatorOptions::default().timeout(timeout);
    let communicator = Communicator::join(device.context(), &cluster, &options).unwrap();
    assert_eq!(communicator.engine(), Engine::Nccl);
    match std::env::var(CASE).as_deref() {
        Ok("every_kind") => every_kind_of(&communicator),
        Ok("leaves_early") => leave(&communicator),
        Ok("never_launches") => never_launch(&communicator),
        Ok("loops_in_step") => loop_in_step(&communicator),
        Ok("killed_in_a_loop") => loop_for_ever(&communicator, true),
        Ok("stays_in_a_loop") => loop_for_ever(&communicator, false),
        Ok("goes_in_every_order") => go_in_every_order(&communicator),
        other => panic!("no case: {other:?}"),
    }
}

/// A buffer of `count` numbers from `first` on.
fn numbers(communicator: &Communicator, first: u32, count: u32) -> Buffer<u32> {
    let stream = communicator.context().default_stream();
    let values: Vec<u32> = (first..first + count).collect();
    let buffer = Buffer::from_host(&stream, &values).unwrap();
    stream.synchronize().unwrap();
    buffer
}

fn every_kind_of(communicator: &Communicator) {
    let rank = communicator.rank();
    let stream = communicator.context().new_stream().unwrap();
    let run = |op: CollectiveOp| {
        let mut eager = Eager::new(&stream).unwrap();
        eager.record(op.clone()).unwrap();
        communicator.wait(&stream).unwrap();
        // In a graph as well, where it is one kernel.
        let graph = Graph::new(communicator.context()).unwrap();
        match graph.add(op, ()) {
            Ok(_) => {
                let mut exec = graph.instantiate().unwrap();
                for _ in 0..3 {
                    exec.launch(&stream).unwrap();
                    communicator.wait(&stream).unwrap();
                }
            }
            Err(error) => {
                let error = error.to_string();
                assert!(
                    !are_kernels() && error.contains("not by one kernel"),
                    "{error}"
                );
                println!("{error}");
            }
        }
    };
    let read = |buffer: &Buffer<u32>| buffer.to_host(&stream).unwrap();
    let own = numbers(communicator, 100 * rank, 4);
    let to = numbers(communicator, 0, 4);
    let wide = numbers(communicator, 0, 8);
    for (reduction, wants) in [
        (Reduction::Sum, [100, 102, 104, 106]),
        (Reduction::Max, [100, 101, 102, 103]),
        (Reduction::Min, [0, 1, 2, 3]),
        (Reduction::Product, [0, 101, 204, 309]),
    ] {
        run(CollectiveOp::all_reduce(communicator, &to, &own, reduction).unwrap());
        assert_eq!(read(&to), wants, "{reduction:?}");
    }
    run(CollectiveOp::broadcast(communicator, &to, &own, 1).unwrap());
    assert_eq!(read(&to), [100, 101, 102, 103]);
    run(CollectiveOp::reduce(communicator, &to, &own, Reduction::Sum, 1).unwrap());
    if rank == 1 {
        assert_eq!(read(&to), [100, 102, 104, 106]);
    }
    run(CollectiveOp::all_gather(communicator, &wide, &own).unwrap());
    assert_eq!(read(&wide), [0, 1, 2, 3, 100, 101, 102, 103]);
    run(CollectiveOp::reduce_scatter(communicator, &to, &wide, Reduction::Sum).unwrap());
    let half = if rank == 0 {
        [0, 2, 4, 6]
    } else {
        [200, 202, 204, 206]
    };
    assert_eq!(read(&to), half);
    let other = 1 - rank;
    let messages = [
        Transmission::send(&own, other),
        Transmission::recv(&to, other),
    ];
    run(CollectiveOp::exchange(communicator, messages).unwrap());
    assert_eq!(read(&to)[0], 100 * other);
    let nothing = Buffer::<u32>::zeroed(&stream, 0).unwrap();
    run(CollectiveOp::all_reduce(communicator, &nothing, &nothing, Reduction::Sum).unwrap());
    communicator.check().unwrap();
}

/// Two ranks do every kind, eagerly and in graphs.
#[test]
fn every_kind() {
    on_two("every_kind");
}

/// What is left when a rank is gone: an error in time, and a device that works.
fn alone(communicator: &Communicator, within: Duration) {
    let stream = communicator.context().new_stream().unwrap();
    let own = numbers(communicator, 1, 1000);
    let sum = CollectiveOp::all_reduce(communicator, &own, &own, Reduction::Sum).unwrap();
    let begun = Instant::now();
    let mut eager = Eager::new(&stream).unwrap();
    let failed = eager.record(sum).map(drop);
    let failed = failed
        .and_then(|()| communicator.wait(&stream))
        .unwrap_err();
    println!("told after {:?}: {failed}", begun.elapsed());
    assert!(begun.elapsed() < within, "{:?}", begun.elapsed());
    assert!(communicator.check().is_err());
    let word = Buffer::<u32>::zeroed(&stream, 1).unwrap();
    let graph = Graph::new(communicator.context()).unwrap();
    graph.add(FillOp::new(&word, 7u32).unwrap(), ()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(word.to_host(&stream).unwrap(), [7]);
}

fn leave(communicator: &Communicator) {
    if communicator.rank() == 1 {
        println!("leaving");
        std::process::exit(3);
    }
    alone(communicator, Duration::from_secs(25));
}

#[test]
fn leaves_early() {
    if let Some([zero, one]) = on_two("leaves_early") {
        assert!(zero.contains("told after"), "{zero}");
        assert!(one.contains("leaving"), "{one}");
        println!("{zero}");
    }
}

fn never_launch(communicator: &Communicator) {
    match communicator.rank() {
        0 => alone(communicator, Duration::from_secs(10)),
        _ => std::thread::sleep(Duration::from_secs(12)),
    }
}

#[test]
fn never_launches() {
    if let Some([zero, _]) = on_two("never_launches") {
        assert!(zero.contains("nothing got on"), "{zero}");
    }
}

/// Runs a case on two ranks whose loops have collectives.
fn in_loops(case: &str) -> Option<[String; 2]> {
    if are_kernels() {
        return on_two(case);
    }
    println!("collective::nccl::{case} did not run: between machines loops take no collectives");
    None
}

/// Each device loops by itself, as long as all say together: the same by every recorder.
fn loop_in_step(communicator: &Communicator) {
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
    in_loops("loops_in_step");
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

#[test]
fn killed_in_a_loop() {
    if let Some([zero, _]) = in_loops("killed_in_a_loop") {
        assert!(zero.contains("told after"), "{zero}");
        println!("{zero}");
    }
}

#[test]
fn stays_in_a_loop() {
    if let Some([zero, _]) = in_loops("stays_in_a_loop") {
        assert!(zero.contains("nothing got on"), "{zero}");
        println!("{zero}");
    }
}

/// Both ranks let go of graph, executable, operation and communicator in every order, while what
/// they launched still runs.
fn go_in_every_order(first: &Communicator) {
    let stream = first.context().new_stream().unwrap();
    let cluster = |turn: u16| {
        let address = std::env::var("CUDA_GRAPH_RENDEZVOUS").unwrap();
        let (host, port) = address.rsplit_once(':').unwrap();
        let port = port.parse::<u16>().unwrap().wrapping_add(turn).max(1024);
        Cluster::new(first.rank(), 2, 0, host, port).unwrap()
    };
    let mut orders = Vec::new();
    for order in 0..256usize {
        let order = [order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6];
        if (0..4).all(|at| order.contains(&at)) {
            orders.push(order);
        }
    }
    assert_eq!(orders.len(), 24);
    for (turn, order) in (1..).zip(orders.into_iter().step_by(3)) {
        let options = options();
        let communicator = Communicator::join(first.context(), &cluster(turn), &options).unwrap();
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
    in_loops("goes_in_every_order");
}

/// A rank that sends to itself does so by one kernel: in graphs, in loops of the device, updated,
/// replayed.
#[test]
fn one_kernel_goes_where_kernels_go() {
    if !with_settings("collective::nccl::one_kernel_goes_where_kernels_go") {
        return;
    }
    let device = cuda_graph::device(0).unwrap();
    let contexts = [device.context().clone()];
    let ranks = Communicator::all(&contexts, &options().engine(Engine::Nccl)).unwrap();
    let rank = &ranks[0];
    let stream = rank.context().new_stream().unwrap();
    let pass = |to: &Buffer<u32>, from: &Buffer<u32>| {
        let messages = [Transmission::send(from, 0), Transmission::recv(to, 0)];
        CollectiveOp::exchange(rank, messages).unwrap()
    };
    let (a, b, c) = (
        numbers(rank, 5, 4),
        numbers(rank, 0, 4),
        numbers(rank, 50, 4),
    );
    let graph = Graph::new(rank.context()).unwrap();
    let node = graph.add(pass(&b, &a), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    rank.wait(&stream).unwrap();
    assert_eq!(b.to_host(&stream).unwrap(), [5, 6, 7, 8]);
    exec.update(node, pass(&b, &c)).unwrap();
    assert_eq!(exec.op(node).unwrap().communicator().rank(), 0);
    exec.launch(&stream).unwrap();
    rank.wait(&stream).unwrap();
    assert_eq!(b.to_host(&stream).unwrap(), [50, 51, 52, 53]);
    assert!(
        graph
            .svg()
            .unwrap()
            .contains("Exchange of 1 sends and 1 receives")
    );

    // A loop that ends by what the message brings.
    let (flag, zero) = (numbers(rank, 1, 1), numbers(rank, 0, 1));
    let step = |r: &mut dyn Recorder| {
        r.record(FillOp::new(&flag, 1u32)?)?;
        r.do_while_nonzero(&flag, |turn| {
            turn.record(pass(&b, &a))?;
            turn.record(pass(&flag, &zero)).map(drop)
        })
    };
    let (graph, ()) = Graph::record(rank.context(), |path| step(path)).unwrap();
    let mut exec = graph.instantiate().unwrap();
    for _ in 0..3 {
        exec.launch(&stream).unwrap();
        rank.wait(&stream).unwrap();
        assert_eq!(b.to_host(&stream).unwrap(), [5, 6, 7, 8]);
    }
    let mut replay = Replay::new(rank.context()).unwrap();
    for from in [&a, &c, &a] {
        replay
            .call(&stream, |r| r.record(pass(&b, from)).map(drop))
            .unwrap();
        rank.wait(&stream).unwrap();
        assert_eq!(b.to_host(&stream).unwrap(), from.to_host(&stream).unwrap());
    }
    assert_eq!(replay.counters().builds, 1);

    // Aborted while graphs are there: launches do no harm, and everything goes.
    rank.abort();
    assert!(rank.check().is_err());
    assert!(CollectiveOp::send(rank, &a, 0).is_err());
    drop((exec, replay, graph));
    drop(ranks);
    assert_eq!(a.to_host(&stream).unwrap(), [5, 6, 7, 8]);
}

/// Communicators, graphs and executables go in every order.
#[test]
fn everything_goes_in_every_order() {
    if !with_settings("collective::nccl::everything_goes_in_every_order") {
        return;
    }
    let device = cuda_graph::device(0).unwrap();
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let contexts = [device.context().clone()];
        let ranks = Communicator::all(&contexts, &options().engine(Engine::Nccl)).unwrap();
        let stream = ranks[0].context().new_stream().unwrap();
        let (a, b) = (numbers(&ranks[0], 5, 4), numbers(&ranks[0], 0, 4));
        let messages = [Transmission::send(&a, 0), Transmission::recv(&b, 0)];
        let op = CollectiveOp::exchange(&ranks[0], messages).unwrap();
        let graph = Graph::new(ranks[0].context()).unwrap();
        graph.add(op, ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        exec.launch(&stream).unwrap();
        let mut things: [Option<Box<dyn std::any::Any>>; 3] = [
            Some(Box::new(ranks)),
            Some(Box::new(graph)),
            Some(Box::new(exec)),
        ];
        for at in order {
            drop(things[at].take());
        }
        assert_eq!(b.to_host(&stream).unwrap(), [5, 6, 7, 8], "{order:?}");
    }
}

/// A rank that waits for others which never come is told.
#[test]
fn nobody_else_comes() {
    if !with_settings("collective::nccl::nobody_else_comes") {
        return;
    }
    let device = cuda_graph::device(0).unwrap();
    let cluster = Cluster::new(0, 3, 0, "127.0.0.1", 29_877).unwrap();
    let options = CommunicatorOptions::default().timeout(Duration::from_millis(500));
    let error = Communicator::join(device.context(), &cluster, &options).unwrap_err();
    assert!(
        error.to_string().contains("ranks [1, 2] did not come"),
        "{error}"
    );
}

/// What NCCL cannot do is told by name; without being asked for, the plain engine does it.
#[test]
fn without_it() {
    let device = cuda_graph::device(0).unwrap();
    let shared = vec![device.context().clone(); 2];
    let error = Communicator::all(&shared, &options().engine(Engine::Nccl)).unwrap_err();
    assert!(matches!(error, Error::NoCommunicator { .. }), "{error}");
    let plain = Communicator::all(&shared, &options()).unwrap();
    assert_eq!(plain[0].engine(), Engine::Plain);
    let cluster = Cluster::new(1, 2, 0, "127.0.0.1", 29_878).unwrap();
    let plain = options().engine(Engine::Plain);
    let error = Communicator::join(device.context(), &cluster, &plain).unwrap_err();
    assert!(error.to_string().contains("need NCCL"), "{error}");
    let alone = Cluster::new(0, 1, 0, "127.0.0.1", 29_879).unwrap();
    let alone = Communicator::join(device.context(), &alone, &options()).unwrap();
    assert_eq!((alone.size(), alone.engine()), (1, Engine::Plain));
}
