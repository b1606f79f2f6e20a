//! The files that are shared, their labels, and the handles that tell where they are.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;

use crate::driver::{CUresult, Result};
use crate::memory::{PAGE, PageFile};

/// What a file is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum What {
    /// Physical memory of `cuMemCreate`.
    Physical = 1,
    /// A pool.
    Pool = 2,
    /// An allocation of `cuMemAlloc`.
    Allocation = 3,
    /// An event.
    Event = 4,
}

/// A number that no other thing has, in any process.
pub(crate) type Id = [u64; 2];

/// What stands behind a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// What it is.
    pub what: What,
    /// Which one.
    pub id: Id,
    /// The size of the contents in bytes.
    pub size: u64,
    /// `CUmemLocation` of memory.
    pub location: (u32, i32),
}

/// Begins labels and handles: the version of their format is in it.
const MAGIC: u64 = u64::from_le_bytes(*b"softcud1");
/// A label's size.
const LABEL: usize = 48;
/// No file is larger.
const MOST: u64 = 1 << 46;
/// The size of a file never changes, nor what may change.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A new number.
pub(crate) fn new_id() -> Result<Id> {
    let mut bytes = [0u8; 16];
    // SAFETY: the buffer has as many bytes as the call may write.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match got == bytes.len() as isize {
        true => Ok(words(&bytes)),
        false => Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM),
    }
}

/// Numbers of 64 bits out of bytes.
pub(crate) fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    std::array::from_fn(|index| {
        let bytes = &bytes[8 * index..8 * index + 8];
        u64::from_le_bytes(bytes.try_into().expect("a word has eight bytes"))
    })
}

impl Label {
    fn encode(&self) -> [u8; LABEL] {
        let (kind, number) = self.location;
        let words = [
            MAGIC,
            self.what as u64,
            self.id[0],
            self.id[1],
            self.size,
            u64::from(kind) | u64::from(number as u32) << 32,
        ];
        let mut bytes = [0; LABEL];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; LABEL]) -> Option<Label> {
        let [magic, what, id, more_id, size, location] = words(bytes);
        let what = match what {
            1 => What::Physical,
            2 => What::Pool,
            3 => What::Allocation,
            4 => What::Event,
            _ => return None,
        };
        (magic == MAGIC).then_some(Label {
            what,
            id: [id, more_id],
            size,
            location: (location as u32, (location >> 32) as i32),
        })
    }

    /// Makes a file of this label, whose contents are zero.
    pub fn create(&self) -> Result<PageFile> {
        const FULL: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let pages = self.size.checked_next_multiple_of(PAGE);
        let pages = pages.filter(|&pages| pages <= MOST).ok_or(FULL)?;
        let file = PageFile::new(pages + PAGE)?;
        let labelled = file.file().write_all_at(&self.encode(), pages);
        labelled.map_err(|_| FULL)?;
        // SAFETY: the descriptor is open.
        match unsafe { libc::fcntl(file.file().as_raw_fd(), libc::F_ADD_SEALS, SEALS) } {
            0 => Ok(file),
            _ => Err(FULL),
        }
    }

    /// The label of a file; `None` where the file is something else.
    fn of(file: &File) -> Option<Label> {
        // SAFETY: the descriptor is open.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return None;
        }
        let pages = file.metadata().ok()?.len().checked_sub(PAGE)?;
        let mut bytes = [0; LABEL];
        file.read_exact_at(&mut bytes, pages).ok()?;
        let label = Label::decode(&bytes)?;
        let fits = label.size.checked_next_multiple_of(PAGE) == Some(pages);
        (fits && pages <= MOST).then_some(label)
    }
}

/// A descriptor of a file for the program, which closes it.
pub(crate) fn export(file: &PageFile, closed_on_exec: bool) -> Result<RawFd> {
    let command = match closed_on_exec {
        true => libc::F_DUPFD_CLOEXEC,
        false => libc::F_DUPFD,
    };
    // SAFETY: the descriptor is open.
    match unsafe { libc::fcntl(file.file().as_raw_fd(), command, 0) } {
        fd if fd >= 0 => Ok(fd),
        _ => Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM),
    }
}

/// The file of a descriptor of the program's, which keeps its own; `CUDA_ERROR_UNKNOWN` for a
/// descriptor of anything else.
pub(crate) fn import(fd: RawFd) -> Result<(PageFile, Label)> {
    const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;
    // SAFETY: a number that is no descriptor is an error of the call.
    let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if own < 0 {
        return Err(UNKNOWN);
    }
    // SAFETY: the descriptor was just opened and is nobody else's.
    let file = unsafe { File::from_raw_fd(own) };
    let label = Label::of(&file).ok_or(UNKNOWN)?;
    Ok((PageFile::of_file(file), label))
}

/// An IPC handle of 64 bytes: which process has a file, at which descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    process: u32,
    fd: RawFd,
    what: What,
    /// Which one.
    pub id: Id,
    /// A number of whoever made the handle.
    pub number: u64,
}

impl Handle {
    /// Of a file of this process.
    pub fn new(file: &PageFile, label: &Label, number: u64) -> Handle {
        Handle {
            process: std::process::id(),
            fd: file.file().as_raw_fd(),
            what: label.what,
            id: label.id,
            number,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; 64] {
        let place = u64::from(self.process) | u64::from(self.fd as u32) << 32;
        let [id, more_id] = self.id;
        let words = [MAGIC, place, self.what as u64, id, more_id, self.number];
        let mut bytes = [0; 64];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The handle in bytes; `None` for other bytes.
    pub fn decode(bytes: &[u8; 64], what: What) -> Option<Handle> {
        let [magic, place, of, id, more_id, number] = words(bytes);
        (magic == MAGIC && of == what as u64).then_some(Handle {
            process: place as u32,
            fd: (place >> 32) as RawFd,
            what,
            id: [id, more_id],
            number,
        })
    }

    /// It is of this very process.
    pub fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// The file, as long as the process that made the handle has it.
    pub fn open(&self) -> Option<(PageFile, Label)> {
        let path = format!("/proc/{}/fd/{}", self.process, self.fd);
        let mut options = File::options();
        // A descriptor may be of anything by now, such as a pipe nobody writes to.
        let options = std::os::unix::fs::OpenOptionsExt::custom_flags(
            options.read(true).write(true),
            libc::O_NONBLOCK | libc::O_CLOEXEC,
        );
        let file = options.open(path).ok()?;
        let label = Label::of(&file)?;
        (label.what == self.what && label.id == self.id).then(|| (PageFile::of_file(file), label))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn label(what: What) -> Label {
        Label {
            what,
            id: new_id().unwrap(),
            size: 5000,
            location: (1, -3),
        }
    }

    #[test]
    fn files_tell_what_they_are() {
        for what in [What::Physical, What::Pool, What::Allocation, What::Event] {
            let label = label(what);
            let file = label.create().unwrap();
            let fd = export(&file, true).unwrap();
            let (again, found) = import(fd).unwrap();
            assert_eq!(found, label);
            // SAFETY: the test's own descriptor.
            drop(unsafe { File::from_raw_fd(fd) });
            assert!(again.file().set_len(0).is_err(), "its size is fixed");
            let handle = Handle::new(&file, &label, 7);
            assert!(handle.is_own());
            let read = Handle::decode(&handle.encode(), what).unwrap();
            assert_eq!(read, handle);
            assert_eq!(read.open().unwrap().1, label);
            drop(file);
            assert!(read.open().is_none(), "the descriptor is closed");
        }
    }

    #[test]
    fn other_files() {
        let mut plain = tempfile::tempfile().unwrap();
        plain.write_all(&[0; 8192]).unwrap();
        assert!(import(plain.as_raw_fd()).is_err());
        assert!(import(-1).is_err());
        // Pages without a label, and ones whose size may change.
        let pages = PageFile::new(8192).unwrap();
        assert!(import(pages.file().as_raw_fd()).is_err());
        let loose = PageFile::new(8192 + PAGE).unwrap();
        let bytes = label(What::Pool).encode();
        loose.file().write_all_at(&bytes, 8192).unwrap();
        assert!(import(loose.file().as_raw_fd()).is_err());
    }

    #[test]
    fn other_bytes_are_no_handles() {
        for bytes in [[0; 64], [0x5a; 64], [0xff; 64]] {
            assert_eq!(Handle::decode(&bytes, What::Event), None);
        }
        let label = label(What::Event);
        let file = label.create().unwrap();
        let bytes = Handle::new(&file, &label, 0).encode();
        assert_eq!(Handle::decode(&bytes, What::Allocation), None);
        let mut other = Handle::decode(&bytes, What::Event).unwrap();
        other.id[0] ^= 1;
        assert!(other.open().is_none());
    }
}
