//! An executable that goes on from run to run: nothing changes but one parameter's value, or
//! nothing at all.
//!
//! Such a run costs little beyond the driver's calls only if it touches little memory: between two
//! runs a program works, and the processor's caches are then full of that. So what the run needs
//! lies here together, and what it changes is written back when something else is done with the
//! executable.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUgraphExec;
use smallvec::SmallVec;

use super::Counters;
use super::shape::NotApplied;
use crate::driver;
use crate::exec::Ready;
use crate::kernel::{AnyParam, Arguments, values_given};

/// An executable that does what parameters say. It stands until it is used otherwise.
pub(super) struct Standing {
    exec: CUgraphExec,
    /// The stream of its last launch. The executable holds it.
    stream: *const CudaStream,
    /// What [`values_given`] said before that launch.
    values: u64,
    /// The parameter that changed last.
    changing: Option<Changing>,
}

// SAFETY: any thread may use the handle, one at a time; the stream is compared, and not looked at.
unsafe impl Send for Standing {}

/// A parameter that is an argument of kernels and nothing else, and holds nothing.
pub(super) struct Changing {
    pub param: Arc<dyn AnyParam>,
    /// The version of the value that the kernels have.
    pub applied: u64,
    /// Its words.
    pub words: SmallVec<[u64; 2]>,
    /// The kernels, by their place among those that are ready, and the words of the argument.
    pub users: SmallVec<[(u32, Range<u16>); 1]>,
    /// All kernels with parameters of the executable, as long as it stands.
    pub ready: Vec<Ready>,
    /// The place of the parameter among those of the executable.
    pub place: usize,
}

impl Standing {
    pub(super) fn new(
        exec: CUgraphExec,
        stream: *const CudaStream,
        values: u64,
        changing: Option<Changing>,
    ) -> Standing {
        Standing {
            exec,
            stream,
            values,
            changing,
        }
    }

    pub(super) fn is_of(&self, exec: CUgraphExec) -> bool {
        self.exec == exec
    }

    pub(super) fn into_changing(self) -> Option<Changing> {
        self.changing
    }

    /// Whether a value of `param` needs no look before a run.
    #[inline]
    pub(super) fn is_changing(&self, param: &dyn AnyParam) -> bool {
        let changing = self.changing.as_ref();
        changing.is_some_and(|now| std::ptr::addr_eq(Arc::as_ptr(&now.param), param))
    }

    /// Runs it, if nothing else has changed. Counts that.
    #[inline]
    pub(super) fn run(
        &mut self,
        stream: &Arc<CudaStream>,
        counters: &mut Counters,
    ) -> Option<std::result::Result<(), NotApplied>> {
        if self.stream != Arc::as_ptr(stream) {
            return None;
        }
        let mut set = 0;
        if values_given() != self.values {
            let changing = self.changing.as_mut()?;
            let given = changing.param.version().wrapping_sub(changing.applied);
            // After the version: the count has the beginning of each that was seen.
            let values = values_given();
            // Another parameter has a new value.
            if values.wrapping_sub(self.values) != given.wrapping_mul(2) {
                return None;
            }
            let set_it = driver::bind_some(stream.context())
                .map_err(NotApplied::as_it_was)
                .and_then(|()| changing.set(self.exec));
            match set_it {
                Ok(Some(nodes)) => set = nodes,
                Ok(None) => return None,
                Err(error) => {
                    counters.calls += 1;
                    counters.hits += 1;
                    return Some(Err(error));
                }
            }
            self.values = values;
        }
        counters.calls += 1;
        counters.hits += 1;
        counters.updated += set;
        let launched = driver::bind_some(stream.context())
            .and_then(|()| driver::exec::launch(self.exec, stream.cu_stream()));
        counters.launches += u64::from(launched.is_ok());
        Some(launched.map_err(NotApplied::as_it_was))
    }
}

impl Changing {
    /// Gives the kernels its new value. Returns how many nodes were set, or none if the value is of
    /// another kind than the one before.
    #[inline]
    fn set(&mut self, exec: CUgraphExec) -> std::result::Result<Option<u64>, NotApplied> {
        let mut value = Arguments::default();
        let version = self
            .param
            .write(&mut value)
            .map_err(NotApplied::as_it_was)?;
        if !value.is_plain() || value.words().len() != self.words.len() {
            return Ok(None);
        }
        let set = set_words(
            exec,
            &mut self.ready,
            &self.users,
            &self.words,
            value.words(),
        )?;
        self.applied = version;
        self.words.copy_from_slice(value.words());
        Ok(Some(set))
    }
}

/// Gives arguments of kernels, by their place in `ready`, other words, all or none. Returns how
/// many nodes were set.
#[inline]
pub(super) fn set_words(
    exec: CUgraphExec,
    ready: &mut [Ready],
    users: &[(u32, Range<u16>)],
    old: &[u64],
    new: &[u64],
) -> std::result::Result<u64, NotApplied> {
    let mut set = 0;
    for (done, (kernel, words)) in users.iter().enumerate() {
        let next = users.get(done + 1);
        let is_again = next.is_some_and(|(next, _)| next == kernel);
        let kernel = &mut ready[*kernel as usize];
        kernel.patch(words, new);
        if is_again {
            // Several arguments of a kernel are set at once.
            continue;
        }
        if let Err(error) = kernel.set(exec) {
            let restored = restore(exec, ready, &users[..=done], old);
            return Err(NotApplied { error, restored });
        }
        set += 1;
    }
    Ok(set)
}

#[cold]
fn restore(
    exec: CUgraphExec,
    ready: &mut [Ready],
    users: &[(u32, Range<u16>)],
    old: &[u64],
) -> bool {
    let mut restored = true;
    for (kernel, words) in users {
        let kernel = &mut ready[*kernel as usize];
        kernel.patch(words, old);
        restored &= kernel.set(exec).is_ok();
    }
    restored
}
