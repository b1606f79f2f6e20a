//! The elements of a tensor that a copy takes: where each run of them lies in global memory, and
//! where in the box.

use super::map::{MOST_RANK, Shape, TensorMap};

/// Elements side by side, in the order of the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Where the first is in the box, in bytes.
    pub offset: u64,
    /// How many bytes of the box they are.
    pub length: u64,
    /// How many of these come before the tensor's first element in this row.
    pub before: u64,
    /// How many are of the tensor, and where they lie.
    pub inside: u64,
    pub address: u64,
}

/// Rows of the box, and the bytes of each.
fn rows(map: &TensorMap) -> (u64, u64) {
    match &map.shape {
        Shape::Tile(size) => {
            let rank = map.rank as usize;
            let taken = (1..rank).map(|dimension| map.taken(size, dimension));
            (taken.product(), map.taken(size, 0) * map.data.size())
        }
        Shape::Im2col {
            channels, pixels, ..
        } => (u64::from(*pixels), u64::from(*channels) * map.data.size()),
    }
}

/// The bytes from a row to the next in shared memory: what is swizzled there fills whole spans.
fn pitch(map: &TensorMap) -> u64 {
    map.swizzle.span().unwrap_or(rows(map).1)
}

/// The bytes of a box, as a barrier counts them.
pub(super) fn size(map: &TensorMap) -> u64 {
    let (rows, bytes) = rows(map);
    rows * bytes
}

/// The bytes of shared memory that a box takes.
pub(super) fn span(map: &TensorMap) -> u64 {
    rows(map).0 * pitch(map)
}

/// Whether a box can begin at these coordinates: as an H200 answers, the first elements lie at a
/// multiple of 16 bytes, and pixels within their bounds.
pub(super) fn begins(map: &TensorMap, at: &[i32; MOST_RANK]) -> bool {
    let first = i64::from(at[0]) * map.data.size() as i64;
    let within = match &map.shape {
        Shape::Tile(_) => true,
        Shape::Im2col { lower, upper, .. } => (0..map.rank as usize - 2).all(|dimension| {
            let last = map.dims[1 + dimension] as i64 - 1 + i64::from(upper[dimension]);
            (i64::from(lower[dimension])..=last).contains(&i64::from(at[1 + dimension]))
        }),
    };
    first % 16 == 0 && within
}

/// Whether a box at these coordinates can go to the tensor: as an H200 answers, no coordinate is
/// negative, and the bounds of pixels are within the tensor.
pub(super) fn goes_back(map: &TensorMap, at: &[i32; MOST_RANK]) -> bool {
    let rank = map.rank as usize;
    let within = match &map.shape {
        Shape::Tile(_) => true,
        Shape::Im2col { lower, upper, .. } => {
            let spatial = rank - 2;
            lower[..spatial].iter().all(|lower| *lower >= 0)
                && upper[..spatial].iter().all(|upper| *upper <= 0)
        }
    };
    within && at[..rank].iter().all(|at| *at >= 0)
}

/// Does `run` with each run of the elements at these coordinates.
pub(super) fn each<E>(
    map: &TensorMap,
    at: &[i32; MOST_RANK],
    offsets: &[u16; 3],
    mut run: impl FnMut(Run) -> Result<(), E>,
) -> Result<(), E> {
    match &map.shape {
        Shape::Tile(size) => tile(map, size, at, &mut run),
        Shape::Im2col { .. } => columns(map, at, offsets, &mut run),
    }
}

/// A run of `count` elements at these coordinates. Coordinates beyond the innermost are wide, as
/// those of a box may be beyond what 32 bits hold.
fn row(map: &TensorMap, at: &[i64; MOST_RANK], count: u64, offset: u64) -> Run {
    let size = map.data.size();
    let length = count * size;
    let outside = Run {
        offset,
        length,
        before: length,
        inside: 0,
        address: 0,
    };
    let rank = map.rank as usize;
    let within = |dimension: usize| (0..map.dims[dimension] as i64).contains(&at[dimension]);
    if !(1..rank).all(within) {
        return outside;
    }
    let first = at[0].max(0);
    let end = (at[0] + count as i64).min(map.dims[0] as i64);
    if end <= first {
        return outside;
    }
    let distance: u64 = (1..rank)
        .map(|dimension| (at[dimension] as u64).wrapping_mul(map.strides[dimension - 1]))
        .fold(first as u64 * size, u64::wrapping_add);
    Run {
        offset,
        length,
        before: (first - at[0]) as u64 * size,
        inside: (end - first) as u64 * size,
        address: map.address.wrapping_add(distance),
    }
}

fn tile<E>(
    map: &TensorMap,
    size: &[u16; MOST_RANK],
    at: &[i32; MOST_RANK],
    run: &mut impl FnMut(Run) -> Result<(), E>,
) -> Result<(), E> {
    let rank = map.rank as usize;
    let taken: [u64; MOST_RANK] = std::array::from_fn(|dimension| match dimension < rank {
        true => map.taken(size, dimension),
        false => 1,
    });
    let mut steps = [0u64; MOST_RANK];
    let pitch = pitch(map);
    let rows: u64 = taken[1..].iter().product();
    for number in 0..rows {
        let place = std::array::from_fn(|dimension| {
            let step = steps[dimension] as i64 * i64::from(map.steps[dimension]);
            i64::from(at[dimension]) + step
        });
        run(row(map, &place, taken[0], number * pitch))?;
        for dimension in 1..MOST_RANK {
            steps[dimension] += 1;
            if steps[dimension] < taken[dimension] {
                break;
            }
            steps[dimension] = 0;
        }
    }
    Ok(())
}

/// Pixels in the order of their coordinates, within the bounds of the map; each with its channels.
fn columns<E>(
    map: &TensorMap,
    at: &[i32; MOST_RANK],
    offsets: &[u16; 3],
    run: &mut impl FnMut(Run) -> Result<(), E>,
) -> Result<(), E> {
    let Shape::Im2col {
        lower,
        upper,
        channels,
        pixels,
    } = &map.shape
    else {
        return Ok(());
    };
    // Between the channels, and the number of the image, which has no bounds.
    let rank = map.rank as usize;
    let spatial = rank - 2;
    let pitch = pitch(map);
    let mut base: [i64; MOST_RANK] = at.map(i64::from);
    for number in 0..u64::from(*pixels) {
        let mut place = base;
        for dimension in 0..spatial {
            place[1 + dimension] += i64::from(offsets[dimension]);
        }
        run(row(map, &place, u64::from(*channels), number * pitch))?;
        let mut carry = true;
        for dimension in 0..spatial {
            base[1 + dimension] += i64::from(map.steps[1 + dimension]);
            let last = map.dims[1 + dimension] as i64 - 1 + i64::from(upper[dimension]);
            carry = base[1 + dimension] > last;
            if !carry {
                break;
            }
            base[1 + dimension] = i64::from(lower[dimension]);
        }
        if carry {
            base[rank - 1] += 1;
        }
    }
    Ok(())
}
