//! What kernels and their counterparts work on, the same on every run.

/// Random words.
pub fn words(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// Numbers in [-1, 1).
pub fn noise(count: usize, seed: u64) -> Vec<f32> {
    let number = |word| (word >> 40) as f32 / (1 << 23) as f32 - 1.0;
    words(seed).take(count).map(number).collect()
}

/// Numbers in [from, to).
pub fn between(from: f32, to: f32, count: usize, seed: u64) -> Vec<f32> {
    let number = |x| from + (to - from) * (x + 1.0) / 2.0;
    noise(count, seed).into_iter().map(number).collect()
}

/// Compressed sparse rows: row `i` has the columns from `offsets[i]` to `offsets[i + 1]`.
pub struct Rows {
    pub offsets: Vec<u32>,
    pub columns: Vec<u32>,
}

impl Rows {
    pub fn collect(rows: impl Iterator<Item = impl IntoIterator<Item = u32>>) -> Rows {
        let (mut offsets, mut columns) = (vec![0], Vec::new());
        for row in rows {
            columns.extend(row);
            offsets.push(columns.len() as u32);
        }
        Rows { offsets, columns }
    }

    /// A square matrix with `shortest` to `longest` random columns in each row.
    pub fn random(count: usize, shortest: usize, longest: usize, seed: u64) -> Rows {
        let mut words = words(seed);
        Rows::collect((0..count).map(|_| {
            let mut below = |limit: usize| words.next().unwrap_or(0) as usize % limit;
            let length = shortest + below(longest - shortest + 1);
            (0..length)
                .map(|_| below(count) as u32)
                .collect::<Vec<u32>>()
        }))
    }

    /// The columns of the 5-point Laplacian on a square grid.
    pub fn laplacian(side: usize) -> Rows {
        Rows::collect((0..side * side).map(|row| {
            let (i, j) = (row / side, row % side);
            let neighbours = [
                (i > 0).then(|| row - side),
                (j > 0).then(|| row - 1),
                Some(row),
                (j + 1 < side).then(|| row + 1),
                (i + 1 < side).then(|| row + side),
            ];
            neighbours.into_iter().flatten().map(|column| column as u32)
        }))
    }

    pub fn count(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }
}
