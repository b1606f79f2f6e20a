//! Values that change from call to call, and whose users are known.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Arguments, KernelArgument};
use crate::memory::Region;
use crate::{Error, Result};

/// A value that is declared to change: a number, a plain structure, a buffer.
///
/// A reference to one is a kernel argument wherever its value is one, and the flag of a loop or
/// branch. Everything else about an operation, such as a grid, the size of a copy, the value of a
/// fill or the data of a host function, is given by [`get`](Param::get) in a closure for
/// [`record_with`](crate::Path::record_with). A [`Replay`](crate::Replay) then knows who uses it:
/// [`Replay::run`](crate::Replay::run) sets those nodes alone, without calling the step again.
///
/// Clones are the same parameter.
///
/// ```
/// use cuda_graph::{Buffer, FillOp, Param, Replay};
///
/// let device = cuda_graph::device(0)?;
/// let stream = device.context().new_stream()?;
/// let buffer = Buffer::<u32>::zeroed(&stream, 4)?;
/// let value = Param::new("value");
/// let mut replay = Replay::new(device.context())?;
///
/// replay.bind(&value, 1u32)?;
/// replay.call(&stream, |r| {
///     let (buffer, value) = (buffer.clone(), value.clone());
///     r.record_with(move || FillOp::new(&buffer, value.get()?))
/// })?;
/// assert_eq!(buffer.to_host(&stream)?, [1; 4]);
///
/// replay.bind(&value, 2)?;
/// replay.run(&stream)?;
/// assert_eq!(buffer.to_host(&stream)?, [2; 4]);
/// # Ok::<(), cuda_graph::Error>(())
/// ```
pub struct Param<T> {
    slot: Arc<Slot<T>>,
}

struct Slot<T> {
    name: Box<str>,
    /// How often a value was given.
    version: AtomicU64,
    value: Mutex<Option<T>>,
}

/// Counts beginnings and ends of what gives parameters values, all of them together.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// Twice the number of values that parameters were given, all of them together. While it stands
/// still, none has another value. It is one more while a parameter gets a value: whoever has seen
/// the new version sees the beginning too, and whoever has seen the end sees the version.
#[inline]
pub(crate) fn values_given() -> u64 {
    GIVEN.load(Ordering::Acquire)
}

/// A parameter of whatever type.
pub trait AnyParam: Send + Sync {
    fn name(&self) -> &str;

    /// How often a value was given.
    fn version(&self) -> u64;

    /// Adds its value as an argument. Returns the value's version.
    fn write(&self, arguments: &mut Arguments) -> Result<u64>;

    /// The memory that its value is.
    fn region(&self) -> Result<Option<Region>>;
}

thread_local! {
    /// The parameters that a closure looks at while it makes an operation.
    static LOOKED_AT: RefCell<Option<Vec<LookedAt>>> = const { RefCell::new(None) };
}

/// A parameter that a closure looked at, and the version of the value then.
pub(crate) type LookedAt = (Arc<dyn AnyParam>, u64);

/// Runs `make`, and returns the parameters too that it looked at.
pub(crate) fn tracked<R>(make: impl FnOnce() -> R) -> (R, Vec<LookedAt>) {
    /// What an outer closure looked at goes on.
    struct Outer(Option<Vec<LookedAt>>);
    impl Drop for Outer {
        fn drop(&mut self) {
            LOOKED_AT.set(self.0.take());
        }
    }
    let outer = Outer(LOOKED_AT.replace(Some(Vec::new())));
    let made = make();
    let looked_at = LOOKED_AT.take().unwrap_or_default();
    drop(outer);
    (made, looked_at)
}

impl<T: KernelArgument + Clone + Send + 'static> Param<T> {
    /// A parameter without a value. Errors call it `name`.
    pub fn new(name: impl Into<Box<str>>) -> Param<T> {
        Param {
            slot: Arc::new(Slot {
                name: name.into(),
                version: AtomicU64::new(0),
                value: Mutex::new(None),
            }),
        }
    }

    /// A parameter that has a value from the beginning.
    pub fn with_value(name: impl Into<Box<str>>, value: T) -> Param<T> {
        let param = Param::new(name);
        param.set(value);
        param
    }

    /// Gives it a value, which every step uses that is recorded from now on, and every replay that
    /// is run. What the value must fit is checked then; [`Replay::bind`](crate::Replay::bind)
    /// checks it at once. Returns the value that it had.
    pub fn set(&self, value: T) -> Option<T> {
        self.exchange(Some(value))
    }

    pub(crate) fn exchange(&self, value: Option<T>) -> Option<T> {
        let mut place = self
            .slot
            .value
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Under the lock: nobody else counts.
        let version = self.slot.version.load(Ordering::Relaxed);
        GIVEN.fetch_add(1, Ordering::Relaxed);
        self.slot.version.store(version + 1, Ordering::Release);
        GIVEN.fetch_add(1, Ordering::Release);
        std::mem::replace(&mut *place, value)
    }

    /// Its value.
    ///
    /// # Errors
    ///
    /// [`Error::Unbound`] if it has none.
    pub fn get(&self) -> Result<T> {
        let value = self
            .slot
            .value
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        LOOKED_AT.with_borrow_mut(|looked_at| {
            if let Some(looked_at) = looked_at {
                looked_at.push((self.any(), self.slot.version()));
            }
        });
        value.clone().ok_or_else(|| self.slot.unbound())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.slot.name
    }

    pub(crate) fn as_any(&self) -> &dyn AnyParam {
        &*self.slot
    }

    pub(crate) fn any(&self) -> Arc<dyn AnyParam> {
        self.slot.clone()
    }
}

impl<T> Slot<T> {
    fn unbound(&self) -> Error {
        Error::Unbound {
            name: self.name.clone(),
        }
    }
}

impl<T: KernelArgument + Clone + Send + 'static> AnyParam for Slot<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn write(&self, arguments: &mut Arguments) -> Result<u64> {
        let (value, version) = {
            let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
            (value.clone(), self.version())
        };
        // A value of the program's own type may use the parameter.
        value.ok_or_else(|| self.unbound())?.add_to(arguments);
        Ok(version)
    }

    fn region(&self) -> Result<Option<Region>> {
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        match &*value {
            Some(value) => Ok(value.region()),
            None => Err(self.unbound()),
        }
    }
}

impl<T: KernelArgument + Clone + Send + 'static> KernelArgument for &Param<T> {
    fn add_to(self, arguments: &mut Arguments) {
        arguments.parameter(self.any());
    }
}

impl<T> Clone for Param<T> {
    fn clone(&self) -> Self {
        Param {
            slot: self.slot.clone(),
        }
    }
}

impl<T> fmt::Debug for Param<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Param `{}`", self.slot.name)
    }
}
