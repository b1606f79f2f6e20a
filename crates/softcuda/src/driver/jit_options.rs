//! The options of loading and linking PTX: most only tune what a real device's compiler does, and
//! are checked alone; the logs are filled.

use std::time::Duration;

use super::{CUresult, Result, code};
use crate::abi::{In, InOut, Out};

/// `CUjit_option`.
mod option {
    pub const MAX_REGISTERS: u32 = 0;
    pub const WALL_TIME: u32 = 2;
    pub const INFO_LOG_BUFFER: u32 = 3;
    pub const INFO_LOG_BUFFER_SIZE_BYTES: u32 = 4;
    pub const ERROR_LOG_BUFFER: u32 = 5;
    pub const ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;
    pub const TARGET: u32 = 9;
    pub const LOG_VERBOSE: u32 = 12;
    pub const CACHE_MODE: u32 = 14;
    pub const NEW_SM3X_OPT: u32 = 15;
    /// Past the last one.
    pub const END: u32 = 35;
}

/// Values of the target option: `CUjit_target` without the bits of variants.
const TARGETS: [u32; 22] = [
    30, 32, 35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120,
];

/// The options of a call, and where their results go. The caller keeps the arrays and log buffers
/// alive for as long as the call, or the linker's state, lasts.
#[derive(Default)]
pub(crate) struct Options {
    wall_time: Option<Out<usize>>,
    verbose: bool,
    info: Log,
    error: Log,
}

// SAFETY: the pointers are the program's, which promises that they are good for as long as the
// options are; nothing here is bound to a thread.
unsafe impl Send for Options {}
// SAFETY: as above; what is written through them the program reads after the call that wrote.
unsafe impl Sync for Options {}

/// A log: a buffer, its size, and the place in the array of values that gets the length of what
/// there was to write.
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
            // Only the low half of a value counts for a number of 32 bits.
            let number = value as u32;
            match name {
                option::WALL_TIME => options.wall_time = Some(place.out()),
                option::INFO_LOG_BUFFER => options.info.buffer = Some(Out::from_address(value)),
                option::ERROR_LOG_BUFFER => options.error.buffer = Some(Out::from_address(value)),
                option::INFO_LOG_BUFFER_SIZE_BYTES => {
                    options.info.size = Some((number as usize, place.out()))
                }
                option::ERROR_LOG_BUFFER_SIZE_BYTES => {
                    options.error.size = Some((number as usize, place.out()))
                }
                option::LOG_VERBOSE => options.verbose = number != 0,
                option::TARGET if number & 0xffff == code::capability() => {}
                option::TARGET if TARGETS.contains(&(number & 0xffff)) => {
                    return Err(CUresult::CUDA_ERROR_INVALID_SOURCE);
                }
                option::TARGET => return Err(CUresult::CUDA_ERROR_INVALID_IMAGE),
                option::MAX_REGISTERS if number == 0 => {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                // An H200's driver compiles nothing with it.
                option::NEW_SM3X_OPT => return Err(CUresult::CUDA_ERROR_INVALID_PTX),
                option::CACHE_MODE if number > 2 => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
                option::MAX_REGISTERS..option::END => {}
                _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        }
        options.info.check()?;
        options.error.check()?;
        Ok(options)
    }

    /// Writes the error log.
    pub fn log_error(&self, text: &str) {
        self.error.write(text);
    }

    /// Writes what a call that went well has to say.
    pub fn log_success(&self, info: impl FnOnce(bool) -> String, took: Duration) {
        self.info.write(&info(self.verbose));
        self.error.write("");
        if let Some(place) = self.wall_time {
            // A float in the low half of a pointer.
            place.set_if_wanted((took.as_secs_f32() * 1e3).to_bits() as usize);
        }
    }
}

impl Log {
    /// A buffer and its size come together.
    fn check(&self) -> Result {
        match (&self.buffer, &self.size) {
            (None, None) => Ok(()),
            (Some(buffer), Some((size, _))) if !buffer.is_null() || *size == 0 => Ok(()),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// As much of the text as fits, with its NUL; the length that is told back is the text's, up to
    /// the buffer's size.
    fn write(&self, text: &str) {
        let (Some(buffer), Some((size, length))) = (self.buffer, self.size) else {
            return;
        };
        if size > 0 {
            let written = text.len().min(size - 1);
            for (index, &byte) in text.as_bytes()[..written].iter().chain([&0]).enumerate() {
                buffer.at(index).set_if_wanted(byte);
            }
        }
        length.set_if_wanted(text.len().min(size));
    }
}
