//! A tensor map: what a tensor in global memory is, and the box that a copy takes of it.
//!
//! Programs hold it as 128 bytes that mean nothing to them: the driver writes them, and kernels
//! hand them to copies. What is in them here is written and read by this file alone.

/// Bytes of a map, as programs hold it.
pub(crate) const SIZE: usize = 128;
/// The most dimensions.
pub(crate) const MOST_RANK: usize = 5;

/// What elements are: `CUtensorMapDataType`, by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DataType {
    Uint8,
    Uint16,
    Uint32,
    Int32,
    Uint64,
    Int64,
    Float16,
    Float32,
    Float64,
    Bfloat16,
    Float32Ftz,
    Tfloat32,
    Tfloat32Ftz,
}

impl DataType {
    const ALL: [DataType; 13] = {
        use DataType::*;
        [
            Uint8,
            Uint16,
            Uint32,
            Int32,
            Uint64,
            Int64,
            Float16,
            Float32,
            Float64,
            Bfloat16,
            Float32Ftz,
            Tfloat32,
            Tfloat32Ftz,
        ]
    };

    pub fn of(number: u32) -> Option<DataType> {
        Self::ALL.get(number as usize).copied()
    }

    /// Of the numbers that `tensormap.replace` takes.
    pub fn of_kernels(number: u32) -> Option<DataType> {
        use DataType::*;
        let all = [
            Uint8,
            Uint16,
            Uint32,
            Int32,
            Uint64,
            Int64,
            Float16,
            Float32,
            Float32Ftz,
            Float64,
            Bfloat16,
            Tfloat32,
            Tfloat32Ftz,
        ];
        all.get(number as usize).copied()
    }

    /// In bytes.
    pub fn size(self) -> u64 {
        use DataType::*;
        match self {
            Uint8 => 1,
            Uint16 | Float16 | Bfloat16 => 2,
            Uint32 | Int32 | Float32 | Float32Ftz | Tfloat32 | Tfloat32Ftz => 4,
            Uint64 | Int64 | Float64 => 8,
        }
    }

    pub fn is_float(self) -> bool {
        use DataType::*;
        !matches!(self, Uint8 | Uint16 | Uint32 | Int32 | Uint64 | Int64)
    }
}

/// How channels are stored: `CUtensorMapInterleave`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Interleave {
    None,
    /// In slices of 16 bytes.
    B16,
    /// In slices of 32 bytes.
    B32,
}

impl Interleave {
    pub fn of(number: u32) -> Option<Interleave> {
        use Interleave::*;
        [None, B16, B32].get(number as usize).copied()
    }
}

/// How 16 bytes at a time change places in shared memory: `CUtensorMapSwizzle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Swizzle {
    None,
    B32,
    B64,
    B128,
}

impl Swizzle {
    pub fn of(number: u32) -> Option<Swizzle> {
        use Swizzle::*;
        [None, B32, B64, B128].get(number as usize).copied()
    }

    /// Bytes within which they change places.
    pub fn span(self) -> Option<u64> {
        match self {
            Swizzle::None => None,
            Swizzle::B32 => Some(32),
            Swizzle::B64 => Some(64),
            Swizzle::B128 => Some(128),
        }
    }

    /// Where the bytes go that are at an offset in shared memory.
    pub fn place(self, offset: u64) -> u64 {
        let mask = match self {
            Swizzle::None => 0,
            Swizzle::B32 => 1,
            Swizzle::B64 => 3,
            Swizzle::B128 => 7,
        };
        offset ^ (offset >> 7 & mask) << 4
    }
}

/// Which elements a copy takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A box, of so many elements in each dimension.
    Tile([u16; MOST_RANK]),
    /// Columns of pixels.
    Im2col {
        /// By dimension of pixels, where its coordinates begin, and where they end before the
        /// tensor's.
        lower: [i16; 3],
        upper: [i16; 3],
        channels: u16,
        pixels: u16,
    },
}

/// A tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TensorMap {
    pub data: DataType,
    pub rank: u8,
    pub address: u64,
    /// Elements by dimension, the innermost first.
    pub dims: [u64; MOST_RANK],
    /// Bytes from an element to the next in each dimension but the first.
    pub strides: [u64; MOST_RANK - 1],
    /// By dimension, every how many elements one is taken.
    pub steps: [u8; MOST_RANK],
    pub interleave: Interleave,
    pub swizzle: Swizzle,
    /// What is outside of the tensor reads as no number, otherwise as zero.
    pub nan: bool,
    pub shape: Shape,
}

/// What the bytes of a map begin with.
const MARK: u32 = 0x736f_7463;

struct Writer {
    bytes: [u8; SIZE],
    at: usize,
}

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn half(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

impl TensorMap {
    /// As programs hold it.
    pub fn to_bytes(self) -> [u8; SIZE] {
        let mut to = Writer {
            bytes: [0; SIZE],
            at: 0,
        };
        to.put(&MARK.to_le_bytes());
        let tiled = matches!(self.shape, Shape::Tile(_));
        to.put(&[
            self.data as u8,
            self.rank,
            self.interleave as u8,
            self.swizzle as u8,
            u8::from(self.nan),
            u8::from(tiled),
            0,
            0,
        ]);
        to.put(&[0; 4]);
        to.put(&self.address.to_le_bytes());
        for dim in self.dims {
            // From 1 to 2^32.
            to.put(&(dim.wrapping_sub(1) as u32).to_le_bytes());
        }
        to.put(&[0; 4]);
        for stride in self.strides {
            to.put(&stride.to_le_bytes());
        }
        to.put(&self.steps);
        to.put(&[0; 3]);
        match self.shape {
            Shape::Tile(size) => size.iter().for_each(|size| to.put(&size.to_le_bytes())),
            Shape::Im2col {
                lower,
                upper,
                channels,
                pixels,
            } => {
                for corner in lower.into_iter().chain(upper) {
                    to.put(&corner.to_le_bytes());
                }
                to.put(&channels.to_le_bytes());
                to.put(&pixels.to_le_bytes());
            }
        }
        to.bytes
    }

    /// What kernels make their maps of: zeros.
    const BLANK: TensorMap = TensorMap {
        data: DataType::Uint8,
        rank: 1,
        address: 0,
        dims: [1; MOST_RANK],
        strides: [0; MOST_RANK - 1],
        steps: [1; MOST_RANK],
        interleave: Interleave::None,
        swizzle: Swizzle::None,
        nan: false,
        shape: Shape::Tile([1; MOST_RANK]),
    };

    /// What bytes hold; `None` for what is no map.
    pub fn of_bytes(bytes: &[u8; SIZE]) -> Option<TensorMap> {
        if *bytes == [0; SIZE] {
            return Some(TensorMap::BLANK);
        }
        let mut from = Reader(bytes);
        if from.word()? != MARK {
            return None;
        }
        let [data, rank, interleave, swizzle, nan, tiled, _, _] = from.take::<8>()?;
        from.take::<4>()?;
        let address = from.long()?;
        let mut map = TensorMap {
            data: DataType::of(data.into())?,
            rank: (1..=MOST_RANK as u8).contains(&rank).then_some(rank)?,
            address,
            interleave: Interleave::of(interleave.into())?,
            swizzle: Swizzle::of(swizzle.into())?,
            nan: nan != 0,
            ..TensorMap::BLANK
        };
        for dim in &mut map.dims {
            *dim = u64::from(from.word()?) + 1;
        }
        from.take::<4>()?;
        for stride in &mut map.strides {
            *stride = from.long()?;
        }
        for step in &mut map.steps {
            *step = from.byte()?.max(1);
        }
        from.take::<3>()?;
        map.shape = if tiled != 0 {
            let mut size = [1; MOST_RANK];
            for size in &mut size {
                *size = from.half()?;
            }
            Shape::Tile(size)
        } else {
            let (mut lower, mut upper) = ([0; 3], [0; 3]);
            for corner in lower.iter_mut().chain(&mut upper) {
                *corner = from.half()? as i16;
            }
            Shape::Im2col {
                lower,
                upper,
                channels: from.half()?,
                pixels: from.half()?,
            }
        };
        Some(map)
    }

    /// Whether the driver could have made it. Kernels change maps field by field and may write any
    /// bytes, so a copy asks before it trusts that its box is small and that a row of the box fits
    /// into the span that is swizzled. The address is not looked at.
    pub fn is_sound(&self) -> bool {
        let rank = usize::from(self.rank);
        let row = match &self.shape {
            Shape::Tile(size) => {
                if !size[..rank].iter().all(|size| (1..=256).contains(size)) {
                    return false;
                }
                u64::from(size[0])
            }
            Shape::Im2col {
                channels, pixels, ..
            } => {
                if rank < 3 || !(1..=256).contains(channels) || !(1..=1024).contains(pixels) {
                    return false;
                }
                u64::from(*channels)
            }
        };
        let row = row * self.data.size();
        let fits = |span| row <= span;
        row.is_multiple_of(16)
            && self.strides[..rank - 1]
                .iter()
                .all(|s| s.is_multiple_of(16))
            && (self.interleave != Interleave::None || self.swizzle.span().is_none_or(fits))
    }

    /// Of a tile, how many elements it has in a dimension.
    pub fn taken(&self, size: &[u16; MOST_RANK], dimension: usize) -> u64 {
        let size = u64::from(size[dimension]);
        match dimension {
            // The innermost elements lie side by side.
            0 => size,
            _ => size.div_ceil(u64::from(self.steps[dimension])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_come_back_from_their_bytes() {
        let tile = TensorMap {
            data: DataType::Bfloat16,
            rank: 5,
            address: 0x7f00_1234_5670,
            dims: [1, 1 << 32, 7, 20, 3],
            strides: [16, (1 << 40) - 16, 32, 48],
            steps: [1, 2, 8, 1, 4],
            interleave: Interleave::B32,
            swizzle: Swizzle::B64,
            nan: true,
            shape: Shape::Tile([256, 1, 2, 3, 4]),
        };
        assert_eq!(TensorMap::of_bytes(&tile.to_bytes()), Some(tile));
        let columns = TensorMap {
            shape: Shape::Im2col {
                lower: [-1, 2, -32768],
                upper: [3, -4, 32767],
                channels: 256,
                pixels: 1024,
            },
            ..tile
        };
        assert_eq!(TensorMap::of_bytes(&columns.to_bytes()), Some(columns));
        assert_eq!(TensorMap::of_bytes(&[0; SIZE]), Some(TensorMap::BLANK));
        assert_eq!(TensorMap::of_bytes(&[1; SIZE]), None);
        assert_eq!(TensorMap::of_bytes(&[0xff; SIZE]), None);
    }

    #[test]
    fn swizzles_are_their_own_inverse() {
        for swizzle in [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128] {
            for offset in (0..4096).step_by(16) {
                let place = swizzle.place(offset);
                assert_eq!(swizzle.place(place), offset);
                let span = swizzle.span().unwrap_or(16);
                assert_eq!(place / span, offset / span);
            }
        }
    }
}
