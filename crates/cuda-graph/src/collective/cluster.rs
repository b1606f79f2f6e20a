//! Ranks that are processes: which one this is, as the program that started it says, and how they
//! find each other.
//!
//! Rank 0 listens at an address that all know. Each other rank connects and says which it is. Once
//! all have come, rank 0 gives each the number by which NCCL's ranks find each other. So ranks that
//! do not come are told by their numbers, within the timeout, before NCCL waits for them.

use std::env;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// What ranks say first, so that other programs' connections are told apart.
const GREETING: u64 = u64::from_le_bytes(*b"cudagrph");
/// How often a rank looks again whether others are there.
const PERIOD: Duration = Duration::from_millis(20);
/// The port, where nobody says another.
const PORT: u16 = 29_501;

/// The processes that a program was started as: this one's rank, how many there are, and where they
/// meet.
///
/// ```no_run
/// use cuda_graph::{Cluster, Communicator};
///
/// // torchrun --nproc-per-node 8 --no-python ./program
/// // mpirun -n 8 ./program
/// // srun -n 8 ./program
/// let cluster = Cluster::from_environment()?;
/// let device = cuda_graph::device(cluster.local_rank() as usize)?;
/// let rank = Communicator::join(device.context(), &cluster, &Default::default())?;
/// # Ok::<(), cuda_graph::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    rank: u32,
    size: u32,
    local_rank: u32,
    /// Host and port at which rank 0 listens.
    address: (String, u16),
}

/// The variables of a launcher: rank, size, rank on the machine.
const LAUNCHERS: [[&str; 3]; 4] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    [
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    ],
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
];

impl Cluster {
    /// What `torchrun`, `mpirun` (Open MPI, MPICH) or `srun` say in the environment; a cluster of
    /// one if none of them started this process.
    ///
    /// Ranks meet at `CUDA_GRAPH_RENDEZVOUS` (`host:port`), or else at the host that `MASTER_ADDR`
    /// or `SLURM_LAUNCH_NODE_IPADDR` names (this machine without either), at the port after
    /// `MASTER_PORT`, which `torchrun` listens at itself, or 29501.
    ///
    /// # Errors
    ///
    /// [`Error::NoCommunicator`] for variables that say no number, or a rank that is none.
    pub fn from_environment() -> Result<Cluster> {
        Cluster::of(|name| env::var(name).ok())
    }

    fn of(get: impl Fn(&str) -> Option<String>) -> Result<Cluster> {
        let number = |name: &str| match get(name) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<u32>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(refused(format!("{name}={text} is no number"))),
            },
        };
        let mut found = (0, 1, 0);
        for [rank, size, local] in LAUNCHERS {
            if let (Some(rank), Some(size)) = (number(rank)?, number(size)?) {
                found = (rank, size, number(local)?.unwrap_or(rank));
                break;
            }
        }
        let (rank, size, local_rank) = found;
        let (host, port) = match get("CUDA_GRAPH_RENDEZVOUS") {
            Some(text) => {
                let parts = text.rsplit_once(':');
                let parts =
                    parts.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
                let why = || refused(format!("CUDA_GRAPH_RENDEZVOUS={text} is no host:port"));
                parts.ok_or_else(why)?
            }
            None => {
                let host = get("MASTER_ADDR").or_else(|| get("SLURM_LAUNCH_NODE_IPADDR"));
                let port = match number("MASTER_PORT")? {
                    None => PORT,
                    Some(port) => u16::try_from(port.saturating_add(1))
                        .map_err(|_| refused(format!("no port follows MASTER_PORT={port}")))?,
                };
                (host.unwrap_or_else(|| "127.0.0.1".into()), port)
            }
        };
        Cluster::new(rank, size, local_rank, host, port)
    }

    /// A cluster that something else started: rank `rank` of `size`, the `local_rank`th on its
    /// machine. Rank 0 listens at `host` and `port`.
    ///
    /// # Errors
    ///
    /// [`Error::NoCommunicator`] if `rank` is none of `size` ranks.
    pub fn new(
        rank: u32,
        size: u32,
        local_rank: u32,
        host: impl Into<String>,
        port: u16,
    ) -> Result<Cluster> {
        if rank >= size {
            return Err(refused(format!(
                "rank {rank} of {size} ranks, counted from 0"
            )));
        }
        Ok(Cluster {
            rank,
            size,
            local_rank,
            address: (host.into(), port),
        })
    }

    /// This process's rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Which of the ranks on this machine it is, from 0: the device to take, where each rank has
    /// one.
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// Meets the other ranks. All get what `make` makes, which rank 0 calls.
    pub(super) fn meet(
        &self,
        timeout: Duration,
        make: impl FnOnce() -> Result<[u8; 128]>,
    ) -> Result<[u8; 128]> {
        let end = Instant::now() + timeout;
        match self.rank {
            0 => self.receive(end, &make()?),
            _ => self.connect(end),
        }
    }

    /// Waits for all other ranks, and gives each `id`.
    fn receive(&self, end: Instant, id: &[u8; 128]) -> Result<[u8; 128]> {
        let (host, port) = &self.address;
        let listener = TcpListener::bind(("0.0.0.0", *port))
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| refused(format!("rank 0 cannot listen at {host}:{port}: {error}")))?;
        let mut others: Vec<Option<TcpStream>> = (1..self.size).map(|_| None).collect();
        while others.iter().any(Option::is_none) {
            let Ok((stream, _)) = listener.accept() else {
                if Instant::now() >= end {
                    let ranks = (1..).zip(&others);
                    let missing: Vec<u32> = ranks
                        .filter(|(_, other)| other.is_none())
                        .map(|(rank, _)| rank)
                        .collect();
                    return Err(refused(format!("ranks {missing:?} did not come")));
                }
                thread::sleep(PERIOD);
                continue;
            };
            // Whoever says nothing, or something else, is none of the ranks.
            let Some([rank, size]) = greeted(&stream, end) else {
                continue;
            };
            let place = others.get_mut((rank as usize).wrapping_sub(1));
            match place {
                Some(place) if size == self.size && place.is_none() => *place = Some(stream),
                _ => {
                    return Err(refused(format!(
                        "a process came as rank {rank} of {size}, to {} ranks, not for the first \
                         time or to the wrong ones",
                        self.size
                    )));
                }
            }
        }
        for (rank, other) in (1..).zip(others) {
            let mut stream = other.expect("all have come");
            let gone = |error| refused(format!("rank {rank} is gone: {error}"));
            stream.write_all(id).map_err(gone)?;
        }
        Ok(*id)
    }

    /// Says to rank 0 which this is, and waits for what it gives.
    fn connect(&self, end: Instant) -> Result<[u8; 128]> {
        let (host, port) = &self.address;
        let mut last = None;
        while Instant::now() < end {
            let connected = (host.as_str(), *port)
                .to_socket_addrs()
                .and_then(|addresses| TcpStream::connect(&*addresses.collect::<Vec<_>>()));
            match connected.and_then(|stream| self.greet(stream, end)) {
                Ok(id) => return Ok(id),
                Err(error) => last = Some(error),
            }
            thread::sleep(PERIOD);
        }
        let last = last.map_or_else(String::new, |error| format!(": {error}"));
        Err(refused(format!(
            "rank {} did not meet the others by rank 0 at {host}:{port}{last}",
            self.rank
        )))
    }

    fn greet(&self, mut stream: TcpStream, end: Instant) -> std::io::Result<[u8; 128]> {
        stream.set_read_timeout(Some(left(end)))?;
        let mut words = GREETING.to_le_bytes().to_vec();
        words.extend(self.rank.to_le_bytes());
        words.extend(self.size.to_le_bytes());
        stream.write_all(&words)?;
        let mut id = [0; 128];
        stream.read_exact(&mut id)?;
        Ok(id)
    }
}

/// How long there is; never nothing, which would be for ever.
fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now()).max(PERIOD)
}

/// The rank and size that somebody says who connected.
fn greeted(mut stream: &TcpStream, end: Instant) -> Option<[u32; 2]> {
    const PATIENCE: Duration = Duration::from_secs(2);
    stream.set_nonblocking(false).ok()?;
    let patience = left(end).min(PATIENCE);
    stream.set_read_timeout(Some(patience)).ok()?;
    let mut words = [0; 16];
    stream.read_exact(&mut words).ok()?;
    let greeting = u64::from_le_bytes(words[..8].try_into().ok()?);
    let number = |at: usize| Some(u32::from_le_bytes(words[at..at + 4].try_into().ok()?));
    (greeting == GREETING).then_some([number(8)?, number(12)?])
}

fn refused(why: String) -> Error {
    Error::NoCommunicator { why: why.into() }
}

/// Sets what NCCL must read in the environment for its collectives to go into graphs and their
/// loops: `NCCL_GRAPH_MIXING_SUPPORT=0`, without which it adds nodes that no body holds, and
/// `NCCL_RUNTIME_CONNECT=0`, so that all connections are made when a communicator is. What is set
/// already stays.
///
/// With mixing off, NCCL leaves it to the program that collectives of one communicator run one
/// after the other, as this library does within a graph.
///
/// # Safety
///
/// Call it before NCCL is first used, while no other thread reads or changes the environment: at
/// the start of `main`.
pub unsafe fn set_nccl_environment() {
    for name in ["NCCL_GRAPH_MIXING_SUPPORT", "NCCL_RUNTIME_CONNECT"] {
        if env::var_os(name).is_none() {
            // SAFETY: by the caller, no other thread uses the environment.
            unsafe { env::set_var(name, "0") };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Cluster> {
        Cluster::of(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn launchers_say_who_one_is() {
        let alone = of(&[]).unwrap();
        assert_eq!((alone.rank(), alone.size(), alone.local_rank()), (0, 1, 0));
        let torchrun = of(&[
            ("RANK", "9"),
            ("WORLD_SIZE", "16"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "29500"),
        ])
        .unwrap();
        assert_eq!(torchrun, Cluster::new(9, 16, 1, "node0", 29_501).unwrap());
        let mpirun = of(&[
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ])
        .unwrap();
        assert_eq!(mpirun, Cluster::new(1, 2, 1, "127.0.0.1", PORT).unwrap());
        let srun = of(&[
            ("SLURM_PROCID", "3"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"),
            ("CUDA_GRAPH_RENDEZVOUS", "[::1]:7"),
        ])
        .unwrap();
        assert_eq!(srun, Cluster::new(3, 4, 0, "[::1]", 7).unwrap());
        for wrong in [
            &[("RANK", "2"), ("WORLD_SIZE", "2")][..],
            &[("RANK", "x"), ("WORLD_SIZE", "2")],
            &[("CUDA_GRAPH_RENDEZVOUS", "host")],
            &[("MASTER_PORT", "65535")],
            &[("MASTER_PORT", "4294967295")],
        ] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }

    /// A port that nobody listens at.
    fn port() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    }

    #[test]
    fn all_meet_and_get_the_same() {
        let port = port();
        let ids: Vec<[u8; 128]> = thread::scope(|scope| {
            let ranks = (0..4).rev().map(|rank| {
                scope.spawn(move || {
                    let cluster = Cluster::new(rank, 4, rank, "127.0.0.1", port).unwrap();
                    cluster.meet(Duration::from_secs(20), || Ok([rank as u8 + 7; 128]))
                })
            });
            let ranks: Vec<_> = ranks.collect();
            // Who connects and is none of the ranks holds nobody up.
            for _ in 0..3 {
                let stranger = TcpStream::connect(("127.0.0.1", port));
                let _ = stranger.map(|mut stranger| stranger.write_all(b"GET / HTTP/1.1\r\n\r\n"));
                thread::sleep(PERIOD / 4);
            }
            ranks
                .into_iter()
                .map(|it| it.join().unwrap().unwrap())
                .collect()
        });
        assert_eq!(ids, [[7; 128]; 4]);
    }

    #[test]
    fn who_does_not_come_is_told() {
        let port = port();
        let timeout = Duration::from_millis(300);
        thread::scope(|scope| {
            for rank in [0, 2] {
                scope.spawn(move || {
                    let cluster = Cluster::new(rank, 4, rank, "127.0.0.1", port).unwrap();
                    let error = cluster
                        .meet(timeout, || Ok([1; 128]))
                        .unwrap_err()
                        .to_string();
                    let told = match rank {
                        0 => "ranks [1, 3] did not come",
                        _ => "rank 2 did not meet the others",
                    };
                    assert!(error.contains(told), "{error}");
                });
            }
        });
    }

    #[test]
    fn two_of_one_rank_are_refused() {
        let port = port();
        let timeout = Duration::from_millis(500);
        let refused: Vec<bool> = thread::scope(|scope| {
            let ranks = [0, 1, 1].map(|rank| {
                scope.spawn(move || {
                    let cluster = Cluster::new(rank, 3, rank, "127.0.0.1", port).unwrap();
                    cluster.meet(timeout, || Ok([1; 128])).is_err()
                })
            });
            ranks.map(|rank| rank.join().unwrap()).into()
        });
        assert_eq!(refused, [true; 3]);
    }
}
