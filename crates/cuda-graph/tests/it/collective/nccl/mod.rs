//! NCCL as the engine: on a GPU, where its library is found.
//!
//! Ranks are processes: with two devices each has its own. With one, both have that. NCCL from 2.30
//! on does the same as on two devices then, if it is told to (`NCCL_MULTI_RANK_GPU_ENABLE=1`): set
//! that to run everything here. Otherwise NCCL takes them for ranks of two machines
//! (`NCCL_HOSTID`), which it connects by the network: then collectives are no single kernels, and
//! only run eagerly.
//!
//! Processes that share a device run at once through MPS. There, one that is killed takes the
//! others' contexts along, as MPS's documentation says: tests of that do not run.
//!
//! A test that cannot run says so.

mod loops;
mod one;
mod ranks;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cuda_graph::cudarc::driver::CudaContext;
use cuda_graph::{Buffer, Cluster, Communicator, CommunicatorOptions, Driver, Engine};

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

/// Runs a test of this folder in a process with NCCL's settings.
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

/// A name, and what a rank does.
type Case = (&'static str, fn(&Communicator));

/// What ranks do, each in a process of its own, by the name of the test that starts them.
const CASES: [Case; 12] = [
    ("every_kind", ranks::every_kind_of),
    ("leaves_early", ranks::leave),
    ("never_launches", ranks::never_launch),
    ("ends_with_a_launch", ranks::end_with_a_launch),
    ("other_communicators", ranks::change),
    ("many_threads", ranks::run_threads),
    ("goes_on_without", ranks::go_on),
    ("random_programs", ranks::run_programs),
    ("loops_in_step", loops::loop_in_step),
    ("killed_in_a_loop", loops::die),
    ("stays_in_a_loop", loops::stay),
    ("goes_in_every_order", loops::go_in_every_order),
];

/// Starts a rank of `size` as a process that does `case`.
fn start(case: &str, rank: usize, size: usize, port: u16) -> Child {
    let devices = CudaContext::device_count().unwrap() as usize;
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
        .env("WORLD_SIZE", size.to_string())
        .env("LOCAL_RANK", (rank % devices).to_string())
        .env("CUDA_GRAPH_RENDEZVOUS", format!("127.0.0.1:{port}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if devices < size && std::env::var_os(SHARED).is_none() {
        command.env("NCCL_HOSTID", format!("machine {rank}"));
    }
    command.spawn().expect("the test starts itself")
}

/// Runs a case on so many ranks; gives what they wrote.
fn on(size: usize, case: &str) -> Option<Vec<String>> {
    if !is_there(&format!("collective::nccl::{case}")) {
        return None;
    }
    // Below those that connections take by themselves, and apart from other tests'.
    let from_time = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_micros() as u16;
    let port = 10_000 + from_time % 1_250 * 16;
    let ranks: Vec<Child> = (0..size)
        .map(|rank| start(case, rank, size, port))
        .collect();
    let wrote = ranks.into_iter().map(|rank| {
        let output = rank.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let left = text.contains("leaving");
        assert!(output.status.success() || left, "{case}:\n{text}");
        text
    });
    Some(wrote.collect())
}

/// Runs a case whose collectives are in graphs.
fn in_graphs(size: usize, case: &str) -> Option<Vec<String>> {
    let devices = CudaContext::device_count().map_or(0, |devices| devices as usize);
    if devices >= size || std::env::var_os(SHARED).is_some() {
        return on(size, case);
    }
    println!("collective::nccl::{case} did not run: between machines graphs take no collectives");
    None
}

/// Runs a case in which ranks die without a word.
fn that_kills(size: usize, case: &str) -> Option<Vec<String>> {
    if std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").is_some() {
        println!("collective::nccl::{case} did not run: MPS lets all clients fail with one");
        return None;
    }
    in_graphs(size, case)
}

#[test]
#[ignore = "the other tests of this folder run it, for each rank in a process of its own"]
fn rank() {
    let cluster = Cluster::from_environment().unwrap();
    let device = cuda_graph::device(cluster.local_rank() as usize).unwrap();
    let case = std::env::var(CASE).expect("another test starts this one");
    let timeout = match &case[..] {
        "never_launches" | "ends_with_a_launch" | "killed_in_a_loop" | "stays_in_a_loop"
        | "goes_on_without" => 3,
        _ => 20,
    };
    let options = CommunicatorOptions::default().timeout(Duration::from_secs(timeout));
    let communicator = Communicator::join(device.context(), &cluster, &options).unwrap();
    assert_eq!(communicator.engine(), Engine::Nccl);
    let run = CASES.iter().find(|(name, _)| *name == case);
    run.expect("there is such a case").1(&communicator);
}

/// A communicator of the first `size` ranks of another, as its `turn`th, where this one is `rank`.
fn another(first: &Communicator, turn: u16, rank: u32, size: u32) -> Communicator {
    let address = std::env::var("CUDA_GRAPH_RENDEZVOUS").unwrap();
    let (host, port) = address.rsplit_once(':').unwrap();
    let port = port.parse::<u16>().unwrap() + turn;
    let cluster = Cluster::new(rank, size, 0, host, port).unwrap();
    Communicator::join(first.context(), &cluster, &options()).unwrap()
}

/// A buffer of `count` numbers from `first` on.
fn numbers(communicator: &Communicator, first: u32, count: u32) -> Buffer<u32> {
    let stream = communicator.context().default_stream();
    let values: Vec<u32> = (first..first + count).collect();
    let buffer = Buffer::from_host(&stream, &values).unwrap();
    stream.synchronize().unwrap();
    buffer
}
