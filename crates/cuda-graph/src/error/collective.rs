//! Why a communicator failed.

use std::fmt;
use std::time::Duration;

/// Why a communicator failed. It stays failed: what was launched with it ends, later launches do
/// nothing, and the devices stay usable, unless a kernel failed: that ends all contexts of the
/// process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CollectiveFailure {
    /// Two ranks came with different operations.
    #[non_exhaustive]
    Mismatch {
        /// The rank that found it.
        rank: u32,
        /// What that rank does.
        does: Box<str>,
        /// The other rank.
        peer: u32,
        /// What the other rank does.
        peer_does: Box<str>,
    },
    /// A rank aborted.
    #[non_exhaustive]
    Aborted {
        /// The rank that did.
        rank: u32,
    },
    /// No collective got on for too long.
    #[non_exhaustive]
    TimedOut {
        /// The rank that waited.
        rank: u32,
        /// How long.
        after: Duration,
        /// The ranks that did not come to the operation that others wait in, as far as that is
        /// known.
        missing: Vec<u32>,
    },
    /// The engine lost other ranks, or their machines.
    #[non_exhaustive]
    PeerLost {
        /// The rank that found it.
        rank: u32,
        /// What NCCL says of it.
        why: Box<str>,
    },
    /// A rank could not be launched, or its work failed, while others wait for it.
    #[non_exhaustive]
    RankFailed {
        /// The rank.
        rank: u32,
        /// What failed.
        why: Box<str>,
    },
}

impl fmt::Display for CollectiveFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollectiveFailure::Mismatch {
                rank,
                does,
                peer,
                peer_does,
            } => write!(
                f,
                "rank {rank} came with {does}, and rank {peer} with {peer_does}: all ranks do the \
                 same operations in the same order, and take the same turns of loops and branches"
            ),
            CollectiveFailure::Aborted { rank } => write!(f, "rank {rank} aborted"),
            CollectiveFailure::TimedOut {
                rank,
                after,
                missing,
            } => {
                write!(f, "rank {rank} waited for {after:?} and nothing got on")?;
                match missing[..] {
                    [] => Ok(()),
                    [one] => write!(f, ": rank {one} did not come"),
                    _ => write!(f, ": ranks {missing:?} did not come"),
                }?;
                write!(
                    f,
                    "; each rank launches as often as the others, and loops of all ranks take the \
                     same turns"
                )
            }
            CollectiveFailure::PeerLost { rank, why } => {
                write!(f, "rank {rank} lost others: {why}")
            }
            CollectiveFailure::RankFailed { rank, why } => write!(f, "rank {rank} failed: {why}"),
        }
    }
}
