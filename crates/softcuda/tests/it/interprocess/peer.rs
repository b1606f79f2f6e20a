//! Another process to talk to: this test's own binary, started again with a role.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What a process does that is started as a peer. It ends when this returns.
pub type Role = unsafe fn(&mut Channel);

/// Names the role in the process that is started.
const ROLE: &str = "SOFTCUDA_TEST_PEER";
/// How long one side waits for the other.
const PATIENCE: Duration = Duration::from_secs(20);

/// A pipe in both directions: messages of bytes, and descriptors.
pub struct Channel(UnixStream);

impl Channel {
    fn new(stream: UnixStream) -> Channel {
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("the time is not zero");
        Channel(stream)
    }

    /// Sends a message.
    pub fn put(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("messages are short");
        let message = [&length.to_le_bytes(), bytes].concat();
        self.0.write_all(&message).expect("the other side lives");
    }

    /// Receives a message.
    pub fn get(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.0
            .read_exact(&mut length)
            .expect("the other side answers");
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        self.0
            .read_exact(&mut bytes)
            .expect("the other side answers");
        bytes
    }

    /// Receives a message of so many bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        self.get()
            .try_into()
            .expect("both sides mean the same message")
    }

    /// Waits for the other side to come here too.
    pub fn meet(&mut self) {
        self.put(b"meet");
        assert_eq!(self.get(), b"meet");
    }

    /// Sends a descriptor; this process keeps its own.
    pub fn put_descriptor(&mut self, fd: RawFd) {
        let mut control = [0u64; 4];
        let mut vector = [IoSlice::new(&[1])];
        // SAFETY: all that the header points to lives during the call, and the control buffer has
        // room for one descriptor.
        let sent = unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = vector.as_mut_ptr().cast();
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(4) as usize;
            let message = libc::CMSG_FIRSTHDR(&header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(message).cast::<i32>().write_unaligned(fd);
            libc::sendmsg(self.0.as_raw_fd(), &header, 0)
        };
        assert_eq!(sent, 1, "the other side lives");
    }

    /// Receives a descriptor.
    pub fn descriptor(&mut self) -> OwnedFd {
        let mut control = [0u64; 4];
        let mut byte = [0u8];
        let mut vector = [IoSliceMut::new(&mut byte)];
        // SAFETY: all that the header points to lives during the call; a descriptor that came is
        // this process's and nobody else's.
        unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = vector.as_mut_ptr().cast();
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&control);
            let got = libc::recvmsg(self.0.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC);
            assert_eq!(got, 1, "the other side answers");
            let message = libc::CMSG_FIRSTHDR(&header);
            assert!(!message.is_null(), "a descriptor came");
            OwnedFd::from_raw_fd(libc::CMSG_DATA(message).cast::<i32>().read_unaligned())
        }
    }
}

/// Another process.
pub struct Peer {
    process: Child,
    /// The way to it.
    pub channel: Channel,
}

impl Peer {
    /// Starts this binary again; `role` is its name in `roles`.
    pub fn start(role: &str) -> Peer {
        let (own, theirs) = UnixStream::pair().expect("sockets can be made");
        let test = std::env::current_exe().expect("the test knows its own path");
        let process = Command::new(test)
            .args(["interprocess::peer_process", "--exact", "--ignored"])
            .env(ROLE, role)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the test starts itself");
        Peer {
            process,
            channel: Channel::new(own),
        }
    }

    /// Waits for its end; whether it did all that it should.
    pub fn ends_well(mut self) -> bool {
        self.process.wait().is_ok_and(|status| status.success())
    }

    /// Ends it at once.
    pub fn kill(mut self) {
        self.process.kill().expect("the process is ours");
        self.process.wait().expect("the process is ours");
    }
}

/// The side of the process that was started.
pub fn play(roles: &[(&str, Role)]) {
    let name = std::env::var(ROLE).expect("only a test starts this");
    let (_, role) = roles
        .iter()
        .find(|(role, _)| *role == name)
        .expect("both sides are the same program");
    // SAFETY: the test that started this process gave it a socket as its input, which nobody else
    // here uses.
    let stream = unsafe { UnixStream::from_raw_fd(0) };
    let mut channel = Channel::new(stream);
    // SAFETY: roles call the driver with right arguments, or such that it must refuse.
    unsafe { role(&mut channel) };
}
