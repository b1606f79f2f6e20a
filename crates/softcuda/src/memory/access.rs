//! Reads, writes, copies and fills of memory that was checked before: the one place that touches
//! it.
//!
//! Device memory may be written by kernels and copies at the same time: programs that let this
//! happen without ordering get arbitrary bytes, as on a device. No Rust reference to it is ever
//! made.
//!
//! Each function of the crate holds memory where it is for as long as it runs (`hold`).

/// Copies bytes; the ranges may overlap.
///
/// # Safety
/// Both ranges are mapped, `source` readable and `target` writable: in the arena, or the program's
/// memory that the caller of the driver said it may use.
pub(super) unsafe fn copy(target: u64, source: u64, size: u64) {
    // SAFETY: the caller upholds it.
    unsafe { std::ptr::copy(source as *const u8, target as *mut u8, size as usize) }
}

/// Reads bytes.
///
/// # Safety
/// The range is mapped and readable.
pub(crate) unsafe fn read(source: u64, target: &mut [u8]) {
    let _held = super::hold();
    // SAFETY: the caller upholds it for the source; the target is a slice.
    unsafe { std::ptr::copy(source as *const u8, target.as_mut_ptr(), target.len()) }
}

/// Writes bytes.
///
/// # Safety
/// The range is mapped and writable.
pub(crate) unsafe fn write(target: u64, source: &[u8]) {
    let _held = super::hold();
    // SAFETY: the caller upholds it for the target; the source is a slice.
    unsafe { std::ptr::copy(source.as_ptr(), target as *mut u8, source.len()) }
}

/// Writes the low `width` bytes (1, 2 or 4) of `value` `count` times.
///
/// # Safety
/// The range is mapped and writable.
pub(crate) unsafe fn fill(target: u64, value: u32, width: u32, count: u64) {
    let _held = super::hold();
    let count = count as usize;
    let [byte, second, ..] = value.to_le_bytes();
    if width == 1 {
        // SAFETY: the caller upholds it.
        return unsafe { std::ptr::write_bytes(target as *mut u8, byte, count) };
    }
    for index in 0..count {
        // SAFETY: the caller upholds it; the element need not be aligned.
        unsafe {
            match width {
                2 => (target as *mut [u8; 2])
                    .add(index)
                    .write_unaligned([byte, second]),
                _ => (target as *mut u32).add(index).write_unaligned(value),
            }
        }
    }
}

/// Rows in memory: row `r` of slice `s` begins at `start + r * pitch + s * slice`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// Where the first row begins.
    pub start: u64,
    /// From one row to the next, in bytes.
    pub pitch: u64,
    /// From one slice of rows to the next, in bytes.
    pub slice: u64,
}

impl Rows {
    fn row(&self, row: u64, slice: u64) -> u64 {
        self.start + row * self.pitch + slice * self.slice
    }
}

/// Copies rows of `width` bytes: `height` in each of `depth` slices.
///
/// # Safety
/// As for [`copy`], for every row.
pub(crate) unsafe fn copy_rows(target: Rows, source: Rows, width: u64, height: u64, depth: u64) {
    let _held = super::hold();
    for slice in 0..depth {
        for row in 0..height {
            // SAFETY: the caller upholds it for every row.
            unsafe { copy(target.row(row, slice), source.row(row, slice), width) }
        }
    }
}
