//! The options of loading and linking PTX: most only tune what a real device's compiler does, and are checked alone; the
//! logs are filled.

use std::time::Duration;

use super::{CUresult, Result};
use crate::abi::{In, InOut, Out};

/// `CUjit_option`.
mod option {
    pub const MAX_REGISTERS: u32 = 0;
    pub const THREADS_PER_BLOCK: u32 = 1;
    pub const WALL_TIME: u32 = 2;
    pub const INFO_LOG_BUFFER: u32 = 3;
    pub const INFO_LOG_BUFFER_SIZE_BYTES: u32 = 4;
    pub const ERROR_LOG_BUFFER: u32 = 5;
    pub const ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;
    /// Past the last one.
    pub const END: u32 = 36;
}

/// The options of a call, and where their results go. The caller keeps the arrays and log buffers alive for as long as
/// the call, or the linker's state, lasts.
#[derive(Default)]
pub(crate) struct Options {
    wall_time: Option<Out<usize>>,
    threads_per_block: Option<Out<usize>>,
    info: Log,
    error: Log,
}

// SAFETY: the pointers are the program's, which promises that they are good for as long as the options are; nothing here
// is bound to a thread.
unsafe impl Send for Options {}
// SAFETY: as above; what is written through them the program reads after the call that wrote.
unsafe impl Sync for Options {}

/// A log: a buffer, its size, and the place in the array of values that gets the length of what was written.
#[derive(Default)]
struct Log {
    buffer: Option<Out<u8>>,
    size: Option<(usize, Out<usize>)>,
}

impl Options {
    /// Reads options as the driver's functions take them: two arrays, of names and of values.
    pub fn read(count: u32, names: In<u32>, values: InOut<usize>) -> Result<Options> {
        let mut options = Options::default();
        if count == 0 {
            return Ok(options);
        }
        let names = names.list(count as usize)?;
        values.some()?;
        for (index, name) in names.into_iter().enumerate() {
            let place = values.at(index);
            let value = place.get()?;
            match name {
                option::THREADS_PER_BLOCK => options.threads_per_block = Some(place.out()),
                option::WALL_TIME => options.wall_time = Some(place.out()),
                option::INFO_LOG_BUFFER => options.info.buffer = Some(Out::from_address(value)),
                option::ERROR_LOG_BUFFER => options.error.buffer = Some(Out::from_address(value)),
                // Only the low half of a value counts for a number of 32 bits.
                option::INFO_LOG_BUFFER_SIZE_BYTES => {
                    options.info.size = Some((value as u32 as usize, place.out()));
                }
                option::ERROR_LOG_BUFFER_SIZE_BYTES => {
                    options.error.size = Some((value as u32 as usize, place.out()));
                }
                option::MAX_REGISTERS..option::END => {}
                _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        }
        Ok(options)
    }

    /// Writes the error log.
    pub fn log_error(&self, text: &str) {
        self.error.write(text);
    }

    /// Writes what a call that went well has to say.
    pub fn log_success(&self, info: &str, took: Duration) {
        self.info.write(info);
        self.error.write("");
        if let Some(place) = self.wall_time {
            // A float in the low half of a pointer.
            place.set_if_wanted(((took.as_secs_f32() * 1e3).to_bits()) as usize);
        }
    }
}

impl Log {
    /// As much of the text as fits, with its NUL.
    fn write(&self, text: &str) {
        let Some((size, length)) = self.size else {
            return;
        };
        let Some(buffer) = self.buffer.filter(|buffer| !buffer.is_null() && size > 0) else {
            return;
        };
        let written = text.len().min(size - 1);
        for (index, &byte) in text.as_bytes()[..written].iter().chain([&0]).enumerate() {
            buffer.at(index).set_if_wanted(byte);
        }
        length.set_if_wanted(written);
    }
}
