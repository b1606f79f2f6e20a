//! Ranks that are processes: which one this is, as the program that started it says, and how they
//! find each other.
//!
//! Rank 0 listens at an address that all know. Each other rank connects and says which it is. Once
//! all have come, rank 0 gives each the number by which NCCL's ranks find each other. So ranks that
//! do not come are told by their numbers, within the timeout, before NCCL waits for them.
//!
//! Other programs may connect to rank 0, or listen where it is expected. Both sides begin with a
//! word of their own, and neither waits for a stranger longer than the timeout.

use std::env;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// What ranks say first, so that other programs' connections are told apart.
const GREETING: u64 = u64::from_le_bytes(*b"cudagrph");
/// What rank 0 answers first. It differs from the greeting: a connection to a free port of this
/// machine may reach itself.
const ANSWER: u64 = u64::from_le_bytes(*b"cudarank");
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
        // What is not Unicode is no number, not nothing.
        Cluster::of(|name| Some(env::var_os(name)?.to_string_lossy().into_owned()))
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
        let host: String = host.into();
        // As in URLs, an address of IPv6 may come in brackets. Look-ups take none.
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        Ok(Cluster {
            rank,
            size,
            local_rank,
            address: (bare.map_or_else(|| host.clone(), str::to_owned), port),
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

    /// Meets the other ranks. All get what `make` makes, which rank 0 calls once all have come:
    /// NCCL begins a thread for each number, which stays.
    pub(super) fn meet(
        &self,
        timeout: Duration,
        make: impl FnOnce() -> Result<[u8; 128]>,
    ) -> Result<[u8; 128]> {
        let end = Deadline::after(timeout);
        match self.rank {
            0 => self.receive(end, make),
            _ => self.connect(end),
        }
    }

    /// Waits for all other ranks, and gives each what `make` makes.
    fn receive(
        &self,
        end: Deadline,
        make: impl FnOnce() -> Result<[u8; 128]>,
    ) -> Result<[u8; 128]> {
        let (host, port) = &self.address;
        let listener = self
            .listen()
            .map_err(|error| refused(format!("rank 0 cannot listen at {host}:{port}: {error}")))?;
        let mut others: Vec<Option<TcpStream>> = (1..self.size).map(|_| None).collect();
        let mut guests: Vec<Guest> = Vec::new();
        while others.iter().any(Option::is_none) {
            if end.is_over() {
                let ranks = (1..).zip(&others);
                let missing: Vec<u32> = ranks
                    .filter(|(_, other)| other.is_none())
                    .map(|(rank, _)| rank)
                    .collect();
                return Err(refused(format!("ranks {missing:?} did not come")));
            }
            let came = (0..AT_ONCE).map_while(|_| listener.accept().ok());
            guests.extend(came.filter_map(|(stream, _)| Guest::new(stream).ok()));
            for mut guest in std::mem::take(&mut guests) {
                let [rank, size] = match guest.listen() {
                    Heard::All(words) => words,
                    Heard::NotYet => {
                        guests.push(guest);
                        continue;
                    }
                    // Whoever says nothing, or something else, is none of the ranks.
                    Heard::Stranger => continue,
                };
                let place = others.get_mut((rank as usize).wrapping_sub(1));
                match place {
                    Some(place) if size == self.size && place.is_none() => {
                        *place = Some(guest.stream);
                    }
                    _ => {
                        return Err(refused(format!(
                            "a process came as rank {rank} of {size}, to {} ranks, not for the \
                             first time or to the wrong ones",
                            self.size
                        )));
                    }
                }
            }
            thread::sleep(PERIOD);
        }
        let id = make()?;
        let mut words = ANSWER.to_le_bytes().to_vec();
        words.extend(id);
        for (rank, other) in (1..).zip(others) {
            let mut stream = other.expect("all have come");
            let gone = |error| refused(format!("rank {rank} is gone: {error}"));
            stream.write_all(&words).map_err(gone)?;
        }
        Ok(id)
    }

    /// Listens on all interfaces: by IPv6 if the host has no other address.
    fn listen(&self) -> io::Result<TcpListener> {
        let (host, port) = &self.address;
        let found = (host.as_str(), *port).to_socket_addrs();
        let is_v6 = found.is_ok_and(|mut found| found.all(|address| address.is_ipv6()));
        let listener = TcpListener::bind((if is_v6 { "::" } else { "0.0.0.0" }, *port))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Says to rank 0 which this is, and waits for what it gives.
    fn connect(&self, end: Deadline) -> Result<[u8; 128]> {
        let (host, port) = &self.address;
        let mut last = None;
        while !end.is_over() {
            match self.dial(end).and_then(|stream| self.greet(stream, end)) {
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

    /// Connects to the first address of the host that answers.
    fn dial(&self, end: Deadline) -> io::Result<TcpStream> {
        /// So long one address is tried before the next.
        const PATIENCE: Duration = Duration::from_secs(5);
        let (host, port) = &self.address;
        let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
        for address in (host.as_str(), *port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, end.left().min(PATIENCE)) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn greet(&self, mut stream: TcpStream, end: Deadline) -> io::Result<[u8; 128]> {
        let mut words = GREETING.to_le_bytes().to_vec();
        words.extend(self.rank.to_le_bytes());
        words.extend(self.size.to_le_bytes());
        stream.write_all(&words)?;
        let mut answer = [0; 8];
        read(&mut stream, &mut answer, end)?;
        if u64::from_le_bytes(answer) != ANSWER {
            let why = "another program listens there";
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        let mut id = [0; 128];
        read(&mut stream, &mut id, end)?;
        Ok(id)
    }
}

/// Fills `bytes`, if they come in time.
fn read(stream: &mut TcpStream, mut bytes: &mut [u8], end: Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        if end.is_over() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(end.left()))?;
        match stream.read(bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// When a wait is over. `None` is never: the timeout is longer than clocks count.
#[derive(Clone, Copy)]
struct Deadline(Option<Instant>);

impl Deadline {
    fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(timeout))
    }

    fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }

    /// How long there is; never nothing, which sockets take for an error.
    fn left(self) -> Duration {
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        self.0.map_or(Duration::MAX, left).max(PERIOD)
    }
}

/// So many connections are taken before those that came are heard.
const AT_ONCE: usize = 128;

/// Somebody who connected, until it has said which rank it is.
struct Guest {
    stream: TcpStream,
    came: Instant,
    said: [u8; 16],
    heard: usize,
}

enum Heard {
    /// Rank and size.
    All([u32; 2]),
    NotYet,
    Stranger,
}

impl Guest {
    fn new(stream: TcpStream) -> io::Result<Guest> {
        stream.set_nonblocking(true)?;
        Ok(Guest {
            stream,
            came: Instant::now(),
            said: [0; 16],
            heard: 0,
        })
    }

    /// Takes what it has said by now.
    fn listen(&mut self) -> Heard {
        /// How long a guest may take.
        const PATIENCE: Duration = Duration::from_secs(2);
        while self.heard < self.said.len() {
            match self.stream.read(&mut self.said[self.heard..]) {
                Ok(0) => return Heard::Stranger,
                Ok(count) => self.heard += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return match self.came.elapsed() < PATIENCE {
                        true => Heard::NotYet,
                        false => Heard::Stranger,
                    };
                }
                Err(_) => return Heard::Stranger,
            }
        }
        let number = |at: usize| {
            let bytes: [u8; 4] = std::array::from_fn(|byte| self.said[at + byte]);
            u32::from_le_bytes(bytes)
        };
        match self.said[..8] == GREETING.to_le_bytes() {
            true => Heard::All([number(8), number(12)]),
            false => Heard::Stranger,
        }
    }
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
                        .meet(timeout, || panic!("not all came"))
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

    fn of_two(rank: u32, host: &str, port: u16) -> Cluster {
        Cluster::new(rank, 2, rank, host, port).unwrap()
    }

    /// Both ranks of two, by a host.
    fn pair_meets(host: &str, timeout: Duration) {
        let port = port();
        let ids = thread::scope(|scope| {
            let begin =
                |rank| scope.spawn(move || of_two(rank, host, port).meet(timeout, || Ok([9; 128])));
            [0, 1].map(begin).map(|rank| rank.join().unwrap())
        });
        for id in ids {
            assert_eq!(id.unwrap(), [9; 128]);
        }
    }

    #[test]
    fn the_longest_timeout_is_never() {
        pair_meets("127.0.0.1", Duration::MAX);
    }

    #[test]
    fn all_meet_by_ipv6() {
        if TcpListener::bind("[::1]:0").is_err() {
            println!("skipped: this machine has no IPv6");
            return;
        }
        for host in ["::1", "[::1]"] {
            pair_meets(host, Duration::from_secs(20));
        }
    }

    #[test]
    fn silent_strangers_hold_nobody_up() {
        let port = port();
        thread::scope(|scope| {
            let timeout = Duration::from_secs(5);
            let first =
                scope.spawn(move || of_two(0, "127.0.0.1", port).meet(timeout, || Ok([9; 128])));
            let mut strangers = Vec::new();
            while strangers.len() < 20 {
                strangers.extend(TcpStream::connect(("127.0.0.1", port)));
                thread::sleep(PERIOD / 4);
            }
            let second = of_two(1, "127.0.0.1", port).meet(timeout, || unreachable!());
            assert_eq!(second.unwrap(), [9; 128]);
            assert_eq!(first.join().unwrap().unwrap(), [9; 128]);
        });
    }

    #[test]
    fn another_program_is_not_rank_0() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.write_all(&[b'x'; 400]);
            }
        });
        let timeout = Duration::from_millis(300);
        let met = of_two(1, "127.0.0.1", port).meet(timeout, || unreachable!());
        let error = met.unwrap_err().to_string();
        assert!(error.contains("another program listens there"), "{error}");
    }

    #[test]
    fn who_takes_no_connection_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
            waiting.push(stream);
            assert!(waiting.len() < 100_000, "the queue has an end");
        }
        let (timeout, begun) = (Duration::from_millis(300), Instant::now());
        let met = of_two(1, "127.0.0.1", address.port()).meet(timeout, || unreachable!());
        assert!(met.is_err());
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
