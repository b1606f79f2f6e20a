//! Reading a flag back, into a word of pinned memory.
//!
//! Freeing pinned memory waits for everything that runs in the context: also for kernels that wait
//! for what this very thread launches next, as ranks of a communicator do. So a word that was read
//! serves the next read of its context, and goes with that.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaStream, result};

use crate::collective::{self, Communicator};
use crate::driver::begun::refuse_captured;
use crate::driver::per_context::PerContext;
use crate::memory::Region;
use crate::retain::{Fence, drop_after};
use crate::{Error, Result, driver};

/// The addresses of a context's words that nobody uses.
type Free = Mutex<Vec<usize>>;

/// A word of pinned memory, for this use alone.
struct Word {
    address: usize,
    free: Arc<Free>,
    _context: Arc<CudaContext>,
}

impl Word {
    fn of(context: &Arc<CudaContext>) -> Result<Word> {
        static FREE: PerContext<Arc<Free>> = PerContext::that_stay();
        let free = FREE.get(context, || Ok(Arc::default()))?;
        let known = free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let address = match known {
            Some(address) => address,
            None => {
                driver::bind(context)?;
                // SAFETY: the driver takes any size but 0. The memory lives as long as the context.
                let allocate = || unsafe { result::malloc_host(size_of::<u32>(), 0) };
                let allocated = driver::capture::undisturbed(allocate);
                allocated.map_err(Error::call("cuMemHostAlloc"))? as usize
            }
        };
        Ok(Word {
            address,
            free,
            _context: context.clone(),
        })
    }

    /// What was copied there.
    fn value(&self) -> u32 {
        // SAFETY: a word of the context, which lives, and no copy is under way.
        unsafe { (self.address as *const u32).read_volatile() }
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(self.address);
    }
}

/// The flag, once everything has run that `stream` was given.
pub(crate) fn read_flag(
    flag: &Region,
    stream: &Arc<CudaStream>,
    communicators: &mut Vec<Communicator>,
) -> Result<u32> {
    refuse_captured(stream)?;
    let word = Word::of(stream.context())?;
    driver::bind(stream.context())?;
    let to = word.address as *mut c_void;
    let read = driver::run::read_word(to, flag.address(), stream.cu_stream())
        .and_then(|()| collective::wait_for_step(stream, communicators));
    match read {
        Ok(()) => Ok(word.value()),
        Err(error) => {
            // The copy may be under way.
            drop_after(Fence::behind(stream.clone()), word);
            Err(error)
        }
    }
}
