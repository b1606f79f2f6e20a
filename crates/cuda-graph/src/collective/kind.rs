//! What collectives do, to which elements: in words, and as the two numbers that ranks compare.

use std::fmt;

use bytemuck::Pod;

/// How values of several ranks become one.
///
/// Values are taken in the order of the ranks, whoever computes: all ranks get the same bits. Sums
/// and products of integers wrap. Values of 16 bits are computed as `f32`, and rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// The smallest. Of a float and a NaN, the float.
    Min,
    /// The largest. Of a float and a NaN, the float.
    Max,
    /// Their sum divided by how many ranks there are. Integers are cut towards zero.
    Average,
}

/// What a collective is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CollectiveKind {
    /// Every rank gets the reduction of all values.
    AllReduce,
    /// Every rank gets the values of one.
    Broadcast,
    /// One rank gets the reduction of all values.
    Reduce,
    /// Every rank gets the values of all, one rank's behind the other's.
    AllGather,
    /// Every rank gets its part of the reduction of all values.
    ReduceScatter,
    /// Sends and receives that get on together.
    Exchange,
}

impl CollectiveKind {
    pub(super) const ALL: [CollectiveKind; 6] = [
        CollectiveKind::AllReduce,
        CollectiveKind::Broadcast,
        CollectiveKind::Reduce,
        CollectiveKind::AllGather,
        CollectiveKind::ReduceScatter,
        CollectiveKind::Exchange,
    ];

    /// Whether values become one.
    pub(crate) fn reduces(self) -> bool {
        use CollectiveKind as K;
        matches!(self, K::AllReduce | K::Reduce | K::ReduceScatter)
    }

    /// Whether one rank is not as the others.
    pub(crate) fn has_root(self) -> bool {
        matches!(self, CollectiveKind::Broadcast | CollectiveKind::Reduce)
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CollectiveKind::AllReduce => "AllReduce",
            CollectiveKind::Broadcast => "Broadcast",
            CollectiveKind::Reduce => "Reduce",
            CollectiveKind::AllGather => "AllGather",
            CollectiveKind::ReduceScatter => "ReduceScatter",
            CollectiveKind::Exchange => "Exchange",
        })
    }
}

impl Reduction {
    /// Each once.
    pub const ALL: [Reduction; 5] = [
        Reduction::Sum,
        Reduction::Product,
        Reduction::Min,
        Reduction::Max,
        Reduction::Average,
    ];
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reduction::Sum => "sum",
            Reduction::Product => "product",
            Reduction::Min => "min",
            Reduction::Max => "max",
            Reduction::Average => "average",
        })
    }
}

/// Declares the types of elements.
macro_rules! elements {
    ($($(#[$attribute:meta])* $kind:ident($type:ty) = $name:literal, $bytes:literal;)+) => {
        /// The type of a collective's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the names are Rust's own")]
        pub enum ElementType {
            $($kind,)+
        }

        impl ElementType {
            pub(super) const ALL: &[ElementType] = &[$(ElementType::$kind,)+];

            /// Its size in bytes.
            pub fn bytes(self) -> usize {
                match self {
                    $(ElementType::$kind => $bytes,)+
                }
            }
        }

        impl fmt::Display for ElementType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(ElementType::$kind => $name,)+
                })
            }
        }

        $(
            $(#[$attribute])*
            impl sealed::Sealed for $type {}

            $(#[$attribute])*
            impl Element for $type {
                const TYPE: ElementType = ElementType::$kind;
            }
        )+
    };
}

pub(super) mod sealed {
    pub trait Sealed {}
}

/// A type that collectives have elements of: integers of 8, 32 and 64 bits, `f32` and `f64`, and
/// with the feature `half` `half::f16` and `half::bf16`.
pub trait Element: Pod + sealed::Sealed {
    /// What it is.
    const TYPE: ElementType;
}

elements! {
    U8(u8) = "u8", 1;
    I8(i8) = "i8", 1;
    U32(u32) = "u32", 4;
    I32(i32) = "i32", 4;
    U64(u64) = "u64", 8;
    I64(i64) = "i64", 8;
    F32(f32) = "f32", 4;
    F64(f64) = "f64", 8;
    #[cfg(feature = "half")]
    F16(half::f16) = "f16", 2;
    #[cfg(feature = "half")]
    Bf16(half::bf16) = "bf16", 2;
}

/// What a rank says that it does, for the others to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub kind: CollectiveKind,
    pub element: ElementType,
    pub reduction: Option<Reduction>,
    pub root: u32,
    /// Elements: of each rank where the kind has as many on both sides, and else on the side that
    /// has fewer.
    pub count: u64,
}

impl Call {
    /// The first number that ranks compare; the second is the count. It is never 0.
    pub(crate) fn code(&self) -> u64 {
        let reduction = self.reduction.map_or(0, |reduction| 1 + reduction as u64);
        let (kind, element) = (1 + self.kind as u64, self.element as u64);
        kind | element << 8 | reduction << 16 | u64::from(self.root) << 32
    }

    /// What two numbers say, if they say something.
    pub(crate) fn decode(code: u64, count: u64) -> Option<Call> {
        let at = |shift: u32| (code >> shift & 0xff) as usize;
        let kind = *CollectiveKind::ALL.get(at(0).checked_sub(1)?)?;
        let reduction = match at(16) {
            0 => None,
            number => Some(*Reduction::ALL.get(number - 1)?),
        };
        Some(Call {
            kind,
            element: *ElementType::ALL.get(at(8))?,
            reduction,
            root: (code >> 32) as u32,
            count,
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, count, element) = (self.kind, self.count, self.element);
        match kind {
            // A message is compared with the one that it meets.
            CollectiveKind::Exchange => write!(f, "a message of {count} {element}"),
            _ => write!(f, "{kind} of {count} {element}"),
        }?;
        if let Some(reduction) = self.reduction {
            write!(f, " by {reduction}")?;
        }
        match (kind, self.root) {
            (CollectiveKind::Broadcast, root) => write!(f, " from rank {root}"),
            (CollectiveKind::Reduce, root) => write!(f, " to rank {root}"),
            _ => Ok(()),
        }
    }
}
