//! Matrix products of a warpgroup, `wgmma`: 64 rows, of which each of four warps has 16, and up to
//! 256 columns. `B` lies in shared memory, and `A` there or in registers; descriptors say where.
//!
//! Each warp computes its rows by itself, when it comes to the instruction: nothing that it reads
//! may change before the group waits for it.
//!
//! The lanes bring `C`, then the registers of `A` or its descriptor, the descriptor of `B`, whether
//! `C` counts, and the metadata of a sparse `A`, see [`sparse`]. `C` and `D` are tiles beside each
//! other as in [`super`].

use super::float::Group as Floats;
use super::{Element, Words, integer, sparse};

/// Bytes of a line, which lie together in memory.
const LINE: usize = 16;

/// What a product is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupProduct {
    /// The columns of `B`, a multiple of 8.
    pub columns: u32,
    pub elements: [Element; 2],
    /// `C` and `D` are of halves; otherwise of singles or integers of 32 bits.
    pub half: bool,
    /// Integers do not wrap.
    pub saturates: bool,
    /// `A` lies in registers.
    pub in_registers: bool,
    /// The elements of `A` and of `B` are negated.
    pub negated: [bool; 2],
    /// `A` goes by columns in memory, `B` by rows.
    pub turned: [bool; 2],
    /// Half of the elements of `A` are zero and not there; which of four lanes have the metadata.
    pub sparse: Option<u32>,
}

impl GroupProduct {
    /// How many bits [`code`](GroupProduct::code) takes.
    pub const CODE_BITS: u32 = 22;

    /// A number that says all of it.
    pub fn code(self) -> u32 {
        let mut code = self.columns / 8 - 1;
        let mut put = |bits: u32, value: u32| code = code << bits | value;
        for element in self.elements {
            put(4, element as u32);
        }
        let [negated, turned] = [self.negated, self.turned];
        for bit in [self.half, self.saturates, self.in_registers]
            .into_iter()
            .chain(negated)
            .chain(turned)
        {
            put(1, u32::from(bit));
        }
        put(1, u32::from(self.sparse.is_some()));
        put(1, self.sparse.unwrap_or(0));
        code
    }

    /// What a code says.
    pub fn of_code(code: u32) -> GroupProduct {
        let bit = |n: u32| code >> n & 1 != 0;
        let element = |n: u32| Element::ALL[(code >> n & 0xf) as usize % Element::ALL.len()];
        GroupProduct {
            columns: 8 * ((code >> 17 & 0x1f) + 1),
            elements: [element(13), element(9)],
            half: bit(8),
            saturates: bit(7),
            in_registers: bit(6),
            negated: [bit(5), bit(4)],
            turned: [bit(3), bit(2)],
            sparse: bit(1).then_some(code & 1),
        }
    }

    /// The columns of `A`: 32 bytes are there.
    pub fn depth(self) -> u32 {
        (256 / self.elements[0].bits()) << u32::from(self.sparse.is_some())
    }

    /// How many words a lane has of `C` and of `D`.
    pub fn sums(self) -> usize {
        self.columns as usize / if self.half { 4 } else { 2 }
    }

    /// How many words a lane brings.
    pub fn brought(self) -> usize {
        let of_a = if self.in_registers { 4 } else { 2 };
        self.sums() + of_a + 2 + 1 + usize::from(self.sparse.is_some())
    }

    /// Computes what the lanes of a warp of the group take, over what they brought. `None`, if a
    /// descriptor names memory that the block does not have.
    pub fn compute(self, warp: u32, words: &mut [Words], shared: &Shared) -> Option<()> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function needs.
            return unsafe { self.compute_in_wide_vectors(warp, words, shared) };
        }
        self.compute_anywhere(warp, words, shared)
    }

    /// The same code, for vectors of 256 bits.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn compute_in_wide_vectors(
        self,
        warp: u32,
        words: &mut [Words],
        shared: &Shared,
    ) -> Option<()> {
        self.compute_anywhere(warp, words, shared)
    }

    #[inline(always)]
    fn compute_anywhere(self, warp: u32, words: &mut [Words], shared: &Shared) -> Option<()> {
        let (sums, rest) = words.split_at_mut(self.sums());
        let (of_a, rest) = rest.split_at(if self.in_registers { 4 } else { 2 });
        let of_b = Matrix::new(self.elements[1], self.turned[1], &rest[..2]);
        if rest[2][0] == 0 {
            sums.iter_mut().for_each(|words| *words = [0; 32]);
        }
        let [element_a, element_b] = self.elements;
        let in_memory = Matrix::new(element_a, self.turned[0], &of_a[..2]);
        let first = 16 * (warp as usize % 4);
        let depth = match element_a {
            Element::B1 => 8,
            _ => self.depth() as usize,
        };
        let count = depth >> u32::from(self.sparse.is_some());
        let places = sparse::columns(element_a, self.depth(), self.sparse, &rest[3..]);
        // The bits of each element that is there, row by row; of `B` column by column.
        let mut rows = [[0u32; 32]; 16];
        if self.in_registers {
            super::each_element(of_a, element_a, 2, |row, at, bits| rows[row][at] = bits);
        } else {
            for (half, rows) in rows.chunks_mut(8).enumerate() {
                in_memory.read(shared, first + 8 * half, count, rows)?;
            }
        }
        let mut floats = (!element_a.is_integer()).then(|| Floats::new(self, &rows, count, places));
        let of_tile = self.sums() / (self.columns as usize / 8);
        for (tile, sums) in sums.chunks_mut(of_tile).enumerate() {
            let mut columns = [[0u32; 64]; 8];
            of_b.read(shared, 8 * tile, depth, &mut columns)?;
            match &mut floats {
                Some(floats) => floats.tile(&columns, sums),
                None => {
                    let how = ([element_a, element_b], self.saturates);
                    let places = self.sparse.map(|_| &places);
                    integer::tile(how, (&rows, count), places, &columns, sums);
                }
            }
        }
        Some(())
    }
}

/// The shared memory of a block.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    /// Where it begins, and its size.
    start: *const u8,
    size: usize,
}

impl Shared {
    /// A block that has none.
    pub const NONE: Shared = Shared {
        start: std::ptr::null(),
        size: 0,
    };

    /// # Safety
    /// As long as this is used there are so many bytes, which other threads may write. They begin
    /// at a multiple of 16.
    pub unsafe fn new(start: *const u8, size: usize) -> Shared {
        Shared { start, size }
    }

    /// It has so many bytes at this address, which is a multiple of their number.
    pub fn has(&self, address: u64, bytes: u64) -> bool {
        let size = self.size as u64;
        address.is_multiple_of(bytes) && address < size && size - address >= bytes
    }

    /// The 16 bytes from a multiple of 16 on.
    #[inline(always)]
    fn line(&self, at: usize) -> Option<[u8; LINE]> {
        let end = at.checked_add(LINE)?;
        debug_assert!(at.is_multiple_of(LINE));
        // SAFETY: they lie in the memory.
        let words = (end <= self.size).then(|| unsafe { self.words(at) })?;
        let mut line = [0; LINE];
        for (to, word) in line.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
        Some(line)
    }

    /// Such a line, in two words.
    ///
    /// # Safety
    /// It lies in the memory, and `at` is a multiple of 16.
    #[inline(always)]
    unsafe fn words(&self, at: usize) -> [u64; 2] {
        // SAFETY: the caller vouches for the line, which is aligned as the memory is. That is never
        // unmapped while a block runs, and a byte that another thread writes meanwhile is one that
        // the program must not look at.
        unsafe {
            let start = self.start.add(at).cast::<u64>();
            [start.read_volatile(), start.add(1).read_volatile()]
        }
    }

    /// The lines at these addresses, given by their lower and upper words, if all are there.
    #[inline(always)]
    pub fn lines(&self, lows: &[u32; 8], highs: &[u32; 8]) -> Option<[[u64; 2]; 8]> {
        let last = self.size.checked_sub(LINE)?;
        let highest = lows.iter().fold(0, |highest, low| (*low).max(highest));
        let bits = lows.iter().fold(0, |bits, low| bits | (low % LINE as u32));
        let bits = highs.iter().fold(bits, |bits, high| bits | high);
        if bits != 0 || highest as usize > last {
            return None;
        }
        // SAFETY: all begin at multiples of 16 that are not beyond the last such line.
        Some(lows.map(|at| unsafe { self.words(at as usize) }))
    }

    /// As much of these lines as there is, and zeros.
    #[cold]
    pub fn parts_of_lines(&self, lows: &[u32; 8], highs: &[u32; 8]) -> [[u64; 2]; 8] {
        let byte = |at: usize| match at < self.size {
            // SAFETY: it lies in the memory; otherwise as above.
            true => unsafe { self.start.add(at).read_volatile() },
            false => 0,
        };
        std::array::from_fn(|row| match (lows[row] as usize, highs[row]) {
            (at, 0) if at.is_multiple_of(LINE) => [at, at + LINE / 2]
                .map(|at| u64::from_ne_bytes(std::array::from_fn(|n| byte(at + n)))),
            _ => [0; 2],
        })
    }
}

/// A matrix in shared memory, as a descriptor says.
///
/// Eight lines of 16 bytes are a core matrix. Lines go by what is contiguous in memory: along the
/// depth, or where the matrix is turned along its rows (of `B`, its columns). Core matrices lie
/// beside each other in patterns of 32, 64 or 128 bytes, whose lines are swizzled, or alone.
#[derive(Clone, Copy)]
struct Matrix {
    element: Element,
    turned: bool,
    start: usize,
    /// Bytes between core matrices, in either direction; which, the pattern says.
    leading: usize,
    stride: usize,
    /// Bytes of a line of a pattern: 16 without.
    line: usize,
    /// Where the pattern begins, in lines of 128 bytes.
    base: usize,
}

impl Matrix {
    fn new(element: Element, turned: bool, words: &[Words]) -> Matrix {
        let descriptor = u64::from(words[1][0]) << 32 | u64::from(words[0][0]);
        let field = |from: u32| (descriptor >> from & 0x3fff) as usize * 16;
        Matrix {
            element,
            turned,
            start: field(0),
            leading: field(16),
            stride: field(32),
            line: match descriptor >> 62 {
                0 => 16,
                1 => 128,
                2 => 64,
                _ => 32,
            },
            base: (descriptor >> 49 & 7) as usize,
        }
    }

    /// Reads the bits of eight rows (of `B` columns) from row `first` on, a multiple of 8, to a
    /// depth; of single bits, 32 are an element.
    #[inline(always)]
    fn read<const DEPTH: usize>(
        &self,
        shared: &Shared,
        first: usize,
        depth: usize,
        rows: &mut [[u32; DEPTH]],
    ) -> Option<()> {
        let bytes = match self.element.bits() {
            1 => 4,
            bits => bits as usize / 8,
        };
        let in_line = LINE / bytes;
        let mut bits = [0; LINE];
        if self.turned {
            // Elements of two bytes: a line has one of each row.
            for at in 0..depth {
                self.line_at(shared, first, at, bytes, &mut bits)?;
                for (row, bits) in rows.iter_mut().zip(bits) {
                    row[at] = bits;
                }
            }
            return Some(());
        }
        for (row, elements) in rows.iter_mut().enumerate() {
            for at in (0..depth).step_by(in_line) {
                self.line_at(shared, first + row, at, bytes, &mut bits)?;
                elements[at..at + in_line].copy_from_slice(&bits[..in_line]);
            }
        }
        Some(())
    }

    /// The elements of the line that begins with this one.
    #[inline(always)]
    fn line_at(
        &self,
        shared: &Shared,
        row: usize,
        at: usize,
        bytes: usize,
        elements: &mut [u32; LINE],
    ) -> Option<()> {
        let offset = if self.turned {
            let byte = row * bytes;
            let (group, in_group) = (byte / self.line, byte % self.line);
            let (across, along) = match self.line {
                16 => (self.stride, self.leading),
                _ => (self.leading, self.stride),
            };
            group * across + in_group + at % 8 * self.line + at / 8 * along
        } else {
            let byte = at * bytes;
            let along = byte / self.line * self.leading + byte % self.line;
            row % 8 * self.line + row / 8 * self.stride + along
        };
        let place = self.start + offset;
        let line_of_pattern = (place / 128).wrapping_sub(self.base) % (self.line / 16);
        let line = shared.line(place ^ (16 * line_of_pattern))?;
        match bytes {
            1 => {
                for n in 0..16 {
                    elements[n] = line[n].into();
                }
            }
            2 => {
                for n in 0..8 {
                    elements[n] = u16::from_le_bytes([line[2 * n], line[2 * n + 1]]).into();
                }
            }
            _ => {
                for n in 0..4 {
                    let bytes = [0, 1, 2, 3].map(|byte| line[4 * n + byte]);
                    elements[n] = u32::from_le_bytes(bytes);
                }
            }
        }
        Some(())
    }
}
