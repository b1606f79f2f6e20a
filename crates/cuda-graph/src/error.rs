//! What can go wrong, saying what, where and what to do about it.

use cudarc::driver::DriverError;

use crate::Driver;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no driver to run on.
    #[error("no CUDA driver to run on: {looked_for}. {remedy}")]
    NoDriver {
        /// What was looked for, and what came of it.
        looked_for: String,
        /// What to do about it.
        remedy: &'static str,
    },

    /// The environment variable `CUDA_GRAPH_DRIVER` has a value that means nothing.
    #[error("CUDA_GRAPH_DRIVER is `{value}`: it takes `auto`, `gpu` or `software`")]
    UnknownDriver {
        /// Its value.
        value: String,
    },

    /// There is no device of this number.
    #[error("no device {ordinal}: the {driver} driver has {count}, counted from 0")]
    NoDevice {
        /// The device asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
        /// The driver that was asked.
        driver: Driver,
    },

    /// A call of the driver failed.
    #[error("{call} failed: {source}")]
    Call {
        /// The driver function.
        call: &'static str,
        /// What it answered.
        source: DriverError,
    },
}

impl Error {
    /// Names the call that failed.
    pub(crate) fn call(call: &'static str) -> impl FnOnce(DriverError) -> Error {
        move |source| Error::Call { call, source }
    }
}
