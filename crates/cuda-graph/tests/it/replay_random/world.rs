//! The memory that steps compute in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, Param, PinnedBuffer};

use crate::fixture::context;

/// How many cells there are besides flags.
pub const CELLS: usize = 6;
/// How many words a cell has.
pub const WORDS: usize = 4;

/// What host functions saw, by their slots.
pub type Seen = BTreeMap<u32, Vec<i32>>;

pub struct World {
    /// The cells, then two flags for each loop or branch.
    cells: Vec<Buffer<i32>>,
    /// The first word of each.
    words: Vec<Buffer<i32>>,
    pinned: Vec<PinnedBuffer<i32>>,
    /// A number that kernels and fills store.
    pub value: Param<i32>,
    /// A word that kernels store to.
    pub target: Param<Buffer<i32>>,
    pub seen: Arc<Mutex<Seen>>,
}

/// All that a step can change.
#[derive(Debug, PartialEq)]
pub struct Contents {
    cells: Vec<Vec<i32>>,
    pinned: Vec<Vec<i32>>,
    seen: Seen,
}

impl World {
    pub fn new(stream: &Arc<CudaStream>, flags: usize) -> World {
        let start = |cell: usize| {
            let value = |word: usize| ((cell * 5 + word * 3) % 7) as i32 - 2;
            (0..WORDS).map(value).collect::<Vec<_>>()
        };
        let cell = |cell| Buffer::from_host(stream, &start(cell)).expect("it fits");
        let cells: Vec<_> = (0..CELLS + 2 * flags).map(cell).collect();
        let word = |cell: &Buffer<i32>| cell.slice(..1).expect("it is a part");
        let pin = |cell| PinnedBuffer::from_slice(&context(), &start(cell)).expect("it fits");
        World {
            words: cells.iter().map(word).collect(),
            cells,
            value: Param::new("value"),
            target: Param::new("target"),
            pinned: (CELLS..2 * CELLS).map(pin).collect(),
            seen: Arc::default(),
        }
    }

    pub fn cell(&self, number: usize) -> &Buffer<i32> {
        &self.cells[number]
    }

    /// The first word of a cell.
    pub fn word(&self, number: usize) -> &Buffer<i32> {
        &self.words[number]
    }

    /// One of the two flags of a loop or branch.
    pub fn flag(&self, number: usize, which: u32) -> &Buffer<i32> {
        &self.words[CELLS + 2 * number + which as usize]
    }

    pub fn pinned(&self, number: usize) -> &PinnedBuffer<i32> {
        &self.pinned[number]
    }

    /// The values of the parameters for a seed.
    pub fn params(&self, seed: u16) -> (i32, Buffer<i32>) {
        let word = self.word(usize::from(seed / 7) % CELLS).clone();
        (i32::from(seed % 7) - 2, word)
    }

    /// Gives the parameters their values for a seed.
    pub fn set_params(&self, seed: u16) {
        let (value, target) = self.params(seed);
        self.value.set(value);
        self.target.set(target);
    }

    /// What is there once everything in `stream` has run.
    pub fn read(&self, stream: &CudaStream) -> Contents {
        stream.synchronize().expect("it runs");
        let cell = |cell: &Buffer<i32>| cell.to_host(stream).expect("it is there");
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Contents {
            cells: self.cells.iter().map(cell).collect(),
            pinned: self.pinned.iter().map(PinnedBuffer::to_vec).collect(),
            seen: seen.clone(),
        }
    }

    pub fn write(&self, stream: &CudaStream, contents: &Contents) {
        for (cell, values) in self.cells.iter().zip(&contents.cells) {
            cell.copy_from_host(stream, values).expect("it fits");
        }
        for (pinned, values) in self.pinned.iter().zip(&contents.pinned) {
            pinned.write(values).expect("it fits");
        }
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = contents.seen.clone();
    }
}
