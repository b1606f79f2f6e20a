//! The reserved range itself, and the pages behind it.

use std::fs::File;
use std::io;
use std::ops::Index as At;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::index::{GRANULE, Index};
use super::space::Space;
use super::{Device, OutOfMemory, size};

/// Addresses between two allocations that belong to neither, so that running over the end of one is
/// found.
const GUARD: u64 = GRANULE;
/// Freed blocks from this size on give their pages back.
const DECOMMIT: u64 = 64 << 10;
pub(super) const OS_PAGE: u64 = 4096;
/// What the arena is aligned to.
const BASE_ALIGNMENT: u64 = 2 << 20;

/// The reserved range.
pub(super) struct Arena {
    base: u64,
    size: u64,
    /// The memory of each device.
    capacity: u64,
    space: Mutex<Space>,
    index: Index,
}

/// The one arena, reserved on first use.
pub(super) fn arena() -> &'static Arena {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| {
        Arena::reserve().expect("addresses for the device's memory can be reserved")
    })
}

impl Arena {
    /// Reserves several times the devices' memory, so that addresses rarely run out before memory
    /// does.
    fn reserve() -> io::Result<Self> {
        let capacity = size::configured();
        let all = capacity.saturating_mul(Device::count() as u64);
        let least = all + BASE_ALIGNMENT;
        let mut size = (all.saturating_mul(8)).max(256 << 30);
        let base = loop {
            match map_anonymous(size + BASE_ALIGNMENT) {
                Ok(base) => break base,
                Err(_) if size / 2 >= least => size /= 2,
                Err(error) => return Err(error),
            }
        };
        let base = (base.as_ptr() as u64).next_multiple_of(BASE_ALIGNMENT);
        // SAFETY: the range was just mapped; the advice only keeps it out of core dumps.
        unsafe { libc::madvise(base as *mut _, size as usize, libc::MADV_DONTDUMP) };
        Ok(Arena {
            base,
            size,
            capacity,
            space: Mutex::new(Space::new(base, size)),
            index: Index::new(base, size)?,
        })
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.size
    }

    pub fn overlaps(&self, base: u64, size: u64) -> bool {
        base < self.base + self.size && self.base < base.saturating_add(size)
    }

    /// Takes addresses, with a guard behind them. A block that is aligned to pages has its pages
    /// for itself.
    pub fn take(&self, size: u64, align: u64) -> Result<u64, OutOfMemory> {
        let unit = if align >= OS_PAGE { OS_PAGE } else { GRANULE };
        let block = size
            .max(1)
            .checked_next_multiple_of(GRANULE)
            .and_then(|size| size.checked_add(GUARD))
            .and_then(|size| size.checked_next_multiple_of(unit));
        self.space
            .lock()
            .take(block.ok_or(OutOfMemory)?, align.max(GRANULE))
            .ok_or(OutOfMemory)
    }

    /// Gives addresses back, and the pages behind them when they are many.
    ///
    /// The block of `base` begins there, or where its page does.
    pub fn give(&self, base: u64) {
        // The pages go first: once the addresses are free another thread may write to them.
        let mut space = self.space.lock();
        let blocks = [base, base & !(OS_PAGE - 1)];
        let block = blocks
            .into_iter()
            .find_map(|base| Some((base, space.size(base)?)));
        let Some((base, size)) = block else { return };
        if size >= DECOMMIT {
            let start = base.next_multiple_of(OS_PAGE);
            let end = (base + size) & !(OS_PAGE - 1);
            // SAFETY: these whole pages lie in a block that is no allocation's any more. They stay
            // mapped, and read as zero from now on.
            unsafe { libc::madvise(start as *mut _, (end - start) as usize, libc::MADV_DONTNEED) };
        }
        space.give(base);
    }

    /// Makes an allocation of ordinary pages read as zero: many pages are given back rather than
    /// written.
    pub fn clear(&self, base: u64, size: u64) {
        assert!(
            size == 0 || (self.contains(base) && self.contains(base + size - 1)),
            "the allocation lies here"
        );
        let end = base + size;
        let whole = match size >= DECOMMIT {
            true => base.next_multiple_of(OS_PAGE)..end & !(OS_PAGE - 1),
            false => end..end,
        };
        // SAFETY: the range lies in the arena, whose pages are always mapped and writable; those
        // given back read as zero.
        unsafe {
            std::ptr::write_bytes(base as *mut u8, 0, (whole.start - base) as usize);
            std::ptr::write_bytes(whole.end as *mut u8, 0, (end - whole.end) as usize);
            if !whole.is_empty() {
                let length = (whole.end - whole.start) as usize;
                libc::madvise(whole.start as *mut _, length, libc::MADV_DONTNEED);
            }
        }
    }

    /// Puts pages of a file at reserved addresses.
    pub fn map(
        &self,
        base: u64,
        size: u64,
        file: &PageFile,
        offset: u64,
    ) -> Result<(), OutOfMemory> {
        assert!(
            self.contains(base) && self.contains(base + size - 1),
            "the range was reserved here"
        );
        // SAFETY: the range lies in the arena, in a block that was reserved for this, and MAP_FIXED
        // replaces its pages at once: at no time is it unmapped.
        let at = unsafe {
            libc::mmap(
                base as *mut _,
                size as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.0.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if at == libc::MAP_FAILED {
            Err(OutOfMemory)
        } else {
            Ok(())
        }
    }

    /// Makes pages of a file of what is at these addresses. Nobody writes there meanwhile.
    pub fn move_to(&self, base: u64, size: u64, file: &PageFile) -> Result<(), OutOfMemory> {
        file.write_from(base, size)?;
        self.map(base, size, file, 0)
    }

    /// Puts fresh pages at reserved addresses.
    pub fn unmap(&self, base: u64, size: u64) -> Result<(), OutOfMemory> {
        assert!(
            self.contains(base) && self.contains(base + size - 1),
            "the range was reserved here"
        );
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: as in `map`.
        let at = unsafe {
            libc::mmap(
                base as *mut _,
                size as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            Err(OutOfMemory)
        } else {
            Ok(())
        }
    }
}

/// Physical memory of `cuMemCreate`: it can be at several addresses, or none.
pub(crate) struct PageFile(File);

impl PageFile {
    /// Memory of this size.
    pub fn new(size: u64) -> Result<Self, OutOfMemory> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"softcuda".as_ptr(), flags) };
        if fd < 0 {
            return Err(OutOfMemory);
        }
        // SAFETY: the descriptor was just opened and is nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(size).map_err(|_| OutOfMemory)?;
        Ok(PageFile(file))
    }

    /// A file of pages that another process made. Its size must be fixed: a page that is gone could
    /// not be accessed.
    pub fn of_file(file: File) -> Self {
        PageFile(file)
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.0
    }

    /// Gives pages back; they read as zero from now on, wherever they are mapped.
    pub fn punch(&self, offset: u64, size: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open; the call touches no memory of this process but what is
        // mapped from the file, which stays mapped.
        unsafe { libc::fallocate(self.0.as_raw_fd(), mode, offset as _, size as _) };
    }

    /// Writes the bytes of a range of the arena, leaving pages out that are zero.
    fn write_from(&self, base: u64, size: u64) -> Result<(), OutOfMemory> {
        let mut page = [0; OS_PAGE as usize];
        for offset in (0..size).step_by(page.len()) {
            let length = page.len().min((size - offset) as usize);
            // SAFETY: the caller's range lies in the arena, whose pages are always mapped.
            unsafe {
                let from = (base + offset) as *const u8;
                std::ptr::copy_nonoverlapping(from, page.as_mut_ptr(), length);
            }
            if page[..length].iter().any(|&byte| byte != 0) {
                self.0
                    .write_all_at(&page[..length], offset)
                    .map_err(|_| OutOfMemory)?;
            }
        }
        Ok(())
    }
}

/// Maps pages that read as zero and take memory only once they are written. They are never
/// unmapped.
fn map_anonymous(size: u64) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let size = usize::try_from(size).map_err(io::Error::other)?;
    // SAFETY: a new mapping at an address that the system chooses touches nothing that exists.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    match NonNull::new(at.cast()) {
        Some(base) if at != libc::MAP_FAILED => Ok(base),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A table that begins as zeros and takes memory only where it is written.
pub(super) struct Zeroed<T> {
    base: NonNull<T>,
    count: u64,
}

/// A type for which zeros are a value.
///
/// # Safety
/// All bytes zero must be a valid value.
pub(super) unsafe trait Zero {}

// SAFETY: zeros are the number 0.
unsafe impl Zero for std::sync::atomic::AtomicU32 {}

impl<T: Zero> Zeroed<T> {
    pub fn new(count: u64) -> io::Result<Self> {
        let base = map_anonymous(count * size_of::<T>() as u64)?.cast();
        Ok(Zeroed { base, count })
    }
}

impl<T: Zero> At<u64> for Zeroed<T> {
    type Output = T;

    fn index(&self, index: u64) -> &T {
        assert!(index < self.count);
        // SAFETY: the table has `count` elements, is aligned to a page, is never unmapped, and
        // zeros are a `T`.
        unsafe { self.base.add(index as usize).as_ref() }
    }
}

// SAFETY: it is owned memory, shared as `&T` alone.
unsafe impl<T: Send + Sync> Send for Zeroed<T> {}
// SAFETY: it is owned memory, shared as `&T` alone.
unsafe impl<T: Send + Sync> Sync for Zeroed<T> {}
