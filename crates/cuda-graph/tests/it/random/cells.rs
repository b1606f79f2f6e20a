//! The memory that random graphs compute in, and the two ways to compute: a kernel and a host
//! function that do the same.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use cuda_graph::cudarc::driver::{CudaContext, result, sys::CUmemAttach_flags};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{HostOp, Kernel, KernelOp, Owner, RawMemory};

use crate::fixture::{context, kernel, one};

/// `gather(words, rows, cell, value)`: `words[cell] = value` plus every `words[i]` with `i` in row
/// `cell`. A row lies in `rows` from `rows[cell]` up to `rows[cell + 1]`.
const GATHER: &str = "
.version 7.0
.target sm_70
.address_size 64

.visible .entry gather(.param .u64 words, .param .u64 rows, .param .u32 cell, .param .u32 value)
{
    .reg .pred %done;
    .reg .b32 %c, %sum, %k, %end, %i, %w;
    .reg .b64 %words, %rows, %at, %offset;
    ld.param.u64 %words, [words];
    ld.param.u64 %rows, [rows];
    ld.param.u32 %c, [cell];
    ld.param.u32 %sum, [value];
    mul.wide.u32 %offset, %c, 4;
    add.u64 %at, %rows, %offset;
    ld.global.u32 %k, [%at];
    ld.global.u32 %end, [%at+4];
next:
    setp.ge.u32 %done, %k, %end;
    @%done bra over;
    mul.wide.u32 %at, %k, 4;
    add.u64 %at, %rows, %at;
    ld.global.u32 %i, [%at];
    mul.wide.u32 %at, %i, 4;
    add.u64 %at, %words, %at;
    ld.global.u32 %w, [%at];
    add.u32 %sum, %sum, %w;
    add.u32 %k, %k, 1;
    bra next;
over:
    add.u64 %at, %words, %offset;
    st.global.u32 [%at], %sum;
    ret;
}
";

/// How many words there are.
pub const CELLS: usize = 8192;
/// The first of them have values of their own, from which nodes copy.
pub const CONSTANTS: usize = 16;
const ROWS: usize = CELLS + 1 + (1 << 17);

/// A constant's value.
pub fn constant(cell: u32) -> u32 {
    0x0101_0101_u32.wrapping_mul(cell + 1)
}

/// Managed memory, which kernels, copies, fills and the host all reach: words, and the rows that
/// say which words a node reads. It also counts the calls of host functions.
pub struct Cells {
    context: Arc<CudaContext>,
    address: u64,
    /// When the host function of a cell was called, counted from 1, and how often.
    tickets: Vec<(AtomicU32, AtomicU32)>,
    last: AtomicU32,
}

impl Drop for Cells {
    fn drop(&mut self) {
        self.context.bind_to_thread().expect("the context is there");
        // SAFETY: allocated by `new`; whatever used it held it.
        unsafe { result::free_sync(self.address) }.expect("it is there");
    }
}

impl Cells {
    pub fn new() -> Arc<Cells> {
        let context = context();
        context.bind_to_thread().expect("the context is there");
        // SAFETY: every word is written before it is read, by `reset` and `set_rows`.
        let address = unsafe {
            result::malloc_managed((CELLS + ROWS) * 4, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL)
        }
        .expect("there is so much memory");
        Arc::new(Cells {
            context,
            address,
            tickets: (0..CELLS).map(|_| Default::default()).collect(),
            last: AtomicU32::new(0),
        })
    }

    fn at(&self, index: usize) -> *mut u32 {
        assert!(index < CELLS + ROWS);
        (self.address as *mut u32).wrapping_add(index)
    }

    pub fn word(&self, cell: u32) -> u32 {
        // SAFETY: within the allocation. Devices write it only where an edge or a synchronization
        // orders it with this; where a test proves that wrong, the volatile read gives a wrong
        // word.
        unsafe { self.at(cell as usize).read_volatile() }
    }

    fn set(&self, index: usize, value: u32) {
        // SAFETY: as above.
        unsafe { self.at(index).write_volatile(value) }
    }

    /// Has every word be `poison`, but for the constants, and nobody have been called.
    pub fn reset(&self, poison: u32) {
        for cell in 0..CELLS {
            self.set(cell, poison);
            self.tickets[cell].0.store(0, Ordering::Relaxed);
            self.tickets[cell].1.store(0, Ordering::Relaxed);
        }
        for cell in 0..CONSTANTS as u32 {
            self.set(cell as usize, constant(cell));
        }
        self.last.store(0, Ordering::Relaxed);
    }

    /// Says which words each cell's node reads.
    pub fn set_rows(&self, rows: &[Vec<u32>]) {
        let mut end = CELLS + 1;
        for cell in 0..=CELLS {
            self.set(CELLS + cell, end as u32);
            for &read in rows.get(cell).map_or(&[][..], Vec::as_slice) {
                assert!(end < ROWS, "the rows are full");
                self.set(CELLS + end, read);
                end += 1;
            }
        }
    }

    fn row(&self, cell: u32) -> impl Iterator<Item = u32> {
        let start = CELLS + cell as usize;
        // SAFETY: as in `word`; nobody writes rows during a launch.
        let bounds = unsafe {
            (
                self.at(start).read_volatile(),
                self.at(start + 1).read_volatile(),
            )
        };
        // SAFETY: as above.
        (bounds.0..bounds.1).map(|k| unsafe { self.at(CELLS + k as usize).read_volatile() })
    }

    /// When the host function of a cell was called, and how often.
    pub fn ticket(&self, cell: u32) -> (u32, u32) {
        let (when, calls) = &self.tickets[cell as usize];
        (when.load(Ordering::SeqCst), calls.load(Ordering::SeqCst))
    }
}

/// A part of the memory, which it keeps.
fn part(cells: &Arc<Cells>, start: usize, words: usize) -> RawMemory {
    let owner: Owner = cells.clone();
    // SAFETY: within the allocation, which the owner keeps.
    unsafe { RawMemory::managed(cells.at(start) as u64, words * 4) }.owned_by(owner)
}

/// One cell's word.
pub fn cell_memory(cells: &Arc<Cells>, cell: u32) -> RawMemory {
    part(cells, cell as usize, 1)
}

/// A launch that gathers a cell's row.
pub fn gather(cells: &Arc<Cells>, cell: u32, value: u32) -> KernelOp {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    let kernel = KERNEL.get_or_init(|| {
        let module = context().load_module(Ptx::from_src(GATHER));
        let function = module.expect("it loads").load_function("gather");
        Kernel::new(&function.expect("it is there")).expect("its parameters are known")
    });
    let (words, rows) = (part(cells, 0, CELLS), part(cells, CELLS, ROWS));
    // SAFETY: `set_rows` has every row lie within the rows, and every cell within the words.
    unsafe { KernelOp::new(kernel, one(), (&words, &rows, cell, value)) }.expect("they fit")
}

/// A launch that writes a cell's word and reads nothing.
pub fn write(cells: &Arc<Cells>, cell: u32, value: u32) -> KernelOp {
    let word = cell_memory(cells, cell);
    // SAFETY: `store` writes one word.
    unsafe { KernelOp::new(kernel("store"), one(), (&word, value)) }.expect("they fit")
}

/// A host function that gathers a cell's row, and takes a ticket.
pub fn call(cells: &Arc<Cells>, cell: u32, value: u32) -> HostOp {
    let cells = cells.clone();
    HostOp::new(move || {
        let (when, calls) = &cells.tickets[cell as usize];
        when.store(
            cells.last.fetch_add(1, Ordering::SeqCst) + 1,
            Ordering::SeqCst,
        );
        calls.fetch_add(1, Ordering::SeqCst);
        let sum = cells
            .row(cell)
            .fold(value, |sum, read| sum.wrapping_add(cells.word(read)));
        cells.set(cell as usize, sum);
    })
}
