//! CUDA graphs for Rust: safe, fast and pleasant, on any GPU and on a machine with none.
//!
//! So far the crate opens a device and decides which driver runs it; graphs follow.
//!
//! ```
//! let device = cuda_graph::device(0)?;
//! println!("{} on the {} driver", device.name()?, device.driver());
//! let stream = device.context().default_stream();
//! let ones = stream.clone_htod(&[1.0f32; 16])?;
//! assert_eq!(stream.clone_dtoh(&ones)?, [1.0; 16]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]

mod device;
mod driver;
mod error;

pub use cudarc;
pub use device::{Device, device};
pub use driver::Driver;
pub use error::{Error, Result};
