//! An event that several processes record, ask and wait for.
//!
//! Each record has a ticket, one more than the last. The event is what was recorded last: it has
//! ended once a ticket as late as the last one that was given out is done.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::label::{self, Handle, Label, What};
use crate::driver::{CUresult, Result};
use crate::memory::{PAGE, PageFile};

/// What the processes have in common.
#[repr(C)]
struct State {
    /// The last ticket that was given out.
    issued: AtomicU32,
    /// The latest ticket that is done: what waiters sleep on.
    done: AtomicU32,
    /// The process that recorded last.
    recorder: AtomicU32,
}

/// How long a waiter sleeps before it asks whether the recorder still lives.
const DOZE: Duration = Duration::from_millis(100);

/// The shared side of an event.
pub(crate) struct Shared {
    file: PageFile,
    label: Label,
    state: NonNull<State>,
}

// SAFETY: the state is atomic, and mapped until this is dropped.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `map` mapped the page, and nobody refers to it any more.
        unsafe { libc::munmap(self.state.as_ptr().cast(), PAGE as usize) };
    }
}

/// A ticket `a` that was given out after `b`, where the numbers may have wrapped in between.
fn later(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

/// A duty to say that a ticket is done: done when this is dropped, so that nobody waits for ever.
pub(crate) struct Ticket(Arc<Shared>, u32);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.finish(self.1);
    }
}

/// Whether a process has ended. One whose parent has not waited for it yet runs nothing any more.
fn is_gone(process: u32) -> bool {
    // SAFETY: the signal 0 is none: the call only says whether the process exists.
    let failed = unsafe { libc::kill(process as libc::pid_t, 0) } != 0;
    if failed {
        return std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    }
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return false;
    };
    // The name of the program is in parentheses, and may hold any character. Its state follows, and
    // as the 18th word the number of its threads: the first may end before the others.
    let (_, after) = stat.rsplit_once(')').unwrap_or_default();
    let mut words = after.split_whitespace();
    let ended = matches!(words.next(), Some("Z" | "X"));
    ended && matches!(words.nth(16), Some("0" | "1"))
}

impl Shared {
    /// The shared side of a new event.
    pub fn new() -> Result<Arc<Shared>> {
        let label = Label {
            what: What::Event,
            id: label::new_id()?,
            size: PAGE,
            location: (0, 0),
        };
        Shared::map(label.create()?, label)
    }

    fn map(file: PageFile, label: Label) -> Result<Arc<Shared>> {
        use std::os::fd::AsRawFd;
        if label.size != PAGE {
            return Err(CUresult::CUDA_ERROR_MAP_FAILED);
        }
        // SAFETY: a new mapping at an address that the system chooses touches nothing that exists.
        // The file has the page and cannot lose it (`Label`).
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.file().as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast()) {
            Some(state) if at != libc::MAP_FAILED => Ok(Arc::new(Shared { file, label, state })),
            _ => Err(CUresult::CUDA_ERROR_MAP_FAILED),
        }
    }

    /// `cuIpcGetEventHandle`.
    pub fn handle(&self) -> [u8; 64] {
        Handle::new(&self.file, &self.label, 0).encode()
    }

    /// `cuIpcOpenEventHandle`, of an event of another process.
    pub fn open(handle: &[u8; 64]) -> Result<Arc<Shared>> {
        const FAILED: CUresult = CUresult::CUDA_ERROR_MAP_FAILED;
        let handle = Handle::decode(handle, What::Event).ok_or(FAILED)?;
        if handle.is_own() {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        let (file, label) = handle.open().ok_or(FAILED)?;
        Shared::map(file, label)
    }

    fn state(&self) -> &State {
        // SAFETY: mapped until this is dropped, zeros or atomically written by any process; every
        // number is a value.
        unsafe { self.state.as_ref() }
    }

    /// From now on the event is what the ticket is for.
    pub fn record(self: &Arc<Self>) -> Ticket {
        let state = self.state();
        state.recorder.store(std::process::id(), Ordering::Relaxed);
        let ticket = state.issued.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        Ticket(self.clone(), ticket)
    }

    fn finish(&self, ticket: u32) {
        let done = &self.state().done;
        let more = |done| later(ticket, done).then_some(ticket);
        if done
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, more)
            .is_ok()
        {
            // SAFETY: the address is that of a mapped number; the call reads nothing else.
            unsafe { libc::syscall(libc::SYS_futex, done.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        }
    }

    /// The last ticket that was given out.
    pub fn last(&self) -> u32 {
        self.state().issued.load(Ordering::Acquire)
    }

    /// What was recorded with a ticket, or later, has ended; so has what a process recorded that is
    /// gone.
    pub fn reached(&self, ticket: u32) -> bool {
        if !later(ticket, self.state().done.load(Ordering::Acquire)) {
            return true;
        }
        let recorder = self.state().recorder.load(Ordering::Relaxed);
        if recorder == std::process::id() || !is_gone(recorder) {
            return false;
        }
        tracing::warn!(recorder, "the process that recorded an event is gone");
        self.finish(ticket);
        true
    }

    /// Waits for a ticket. One of a process that is gone is done.
    pub fn wait(&self, ticket: u32) {
        let state = self.state();
        loop {
            let done = state.done.load(Ordering::Acquire);
            if !later(ticket, done) {
                return;
            }
            let doze = libc::timespec {
                tv_sec: 0,
                tv_nsec: DOZE.as_nanos() as libc::c_long,
            };
            let (at, wait) = (state.done.as_ptr(), libc::FUTEX_WAIT);
            // SAFETY: the address is that of a mapped number, and the time lives during the call.
            unsafe { libc::syscall(libc::SYS_futex, at, wait, done, &raw const doze) };
            if self.reached(ticket) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_record_counts() {
        let event = Shared::new().unwrap();
        assert!(event.reached(event.last()), "never recorded");
        let (first, second) = (event.record(), event.record());
        assert!(!event.reached(event.last()));
        drop(first);
        assert!(!event.reached(event.last()));
        drop(second);
        assert!(event.reached(event.last()));
        let (first, second) = (event.record(), event.record());
        drop(second);
        assert!(event.reached(event.last()), "an earlier one does not count");
        drop(first);
        assert!(event.reached(event.last()));
    }

    #[test]
    fn tickets_wrap() {
        assert!(later(0, u32::MAX) && !later(u32::MAX, 0) && !later(5, 5));
        let event = Shared::new().unwrap();
        event.state().issued.store(u32::MAX, Ordering::Relaxed);
        event.state().done.store(u32::MAX, Ordering::Relaxed);
        let ticket = event.record();
        assert_eq!(event.last(), 0);
        assert!(!event.reached(0));
        drop(ticket);
        assert!(event.reached(0));
    }

    #[test]
    fn waiters_wake_and_do_not_wait_for_the_dead() {
        let event = Shared::new().unwrap();
        let ticket = event.record();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| event.wait(event.last()));
            std::thread::sleep(Duration::from_millis(5));
            assert!(!waiter.is_finished());
            drop(ticket);
        });
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        std::mem::forget(event.record());
        event.state().recorder.store(gone, Ordering::Relaxed);
        event.wait(event.last());
    }

    /// A process that was killed is gone before its parent waits for it.
    #[test]
    fn the_dead_are_gone_before_their_parents_notice() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let event = Shared::new().unwrap();
        std::mem::forget(event.record());
        event.state().recorder.store(child.id(), Ordering::Relaxed);
        assert!(!event.reached(event.last()));
        child.kill().unwrap();
        event.wait(event.last());
        assert!(event.reached(event.last()));
        child.wait().unwrap();
    }

    #[test]
    fn handles_are_of_other_processes() {
        let event = Shared::new().unwrap();
        let own = Shared::open(&event.handle()).err();
        assert_eq!(own, Some(CUresult::CUDA_ERROR_INVALID_CONTEXT));
        for bytes in [[0; 64], [0x5a; 64]] {
            let error = Shared::open(&bytes).err();
            assert_eq!(error, Some(CUresult::CUDA_ERROR_MAP_FAILED));
        }
    }
}
