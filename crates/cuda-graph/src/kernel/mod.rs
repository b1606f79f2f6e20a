//! Kernels: a function, its name, and how its parameters lie.

mod arguments;
mod module;
mod param;
mod read;
mod variant;

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use cudarc::driver::sys::CUfunction;
use cudarc::driver::{CudaContext, CudaFunction};

pub use arguments::{Arguments, KernelArgument, KernelArguments};
pub(crate) use arguments::{Matching, Used};
use module::Loaded;
pub use module::Module;
pub use param::{AnyParam, Param};
pub(crate) use param::{LookedAt, tracked, values_given};
pub(crate) use variant::Variant;

use crate::{Owner, Result, driver};

/// A kernel. Clones are cheap, and each keeps the module loaded.
#[derive(Clone)]
pub struct Kernel {
    inner: Arc<Inner>,
}

/// The driver's handle of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Function(pub CUfunction);

// SAFETY: the driver takes a function's handle from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

struct Inner {
    raw: Function,
    name: String,
    parameters: Box<[Parameter]>,
    keep: Keep,
}

/// What keeps a kernel's module loaded.
enum Keep {
    /// Nothing: the function was read back from a node that this library did not make.
    Nothing,
    Function(CudaFunction),
    /// A module with its source.
    Module(Arc<Loaded>),
}

impl Drop for Inner {
    fn drop(&mut self) {
        // This may be the last of its module, which is unloaded then.
        if let Keep::Function(function) = mem::replace(&mut self.keep, Keep::Nothing) {
            driver::capture::undisturbed(|| drop(function));
        }
    }
}

/// Where a parameter lies in the kernel's parameter block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// In bytes.
    pub offset: usize,
    /// In bytes.
    pub size: usize,
}

/// The kernels of functions that are loaded, by the driver's handle.
static KNOWN: LazyLock<Mutex<HashMap<usize, Weak<Inner>>>> = LazyLock::new(Mutex::default);

impl Kernel {
    /// The kernel that `function` is. Asking again for the same function is a table look-up.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::Error::Unsupported) when the driver is older than CUDA 12.4: it does
    /// not tell the parameters of a kernel, without which arguments cannot be checked.
    pub fn new(function: &CudaFunction) -> Result<Kernel> {
        let keep = || Keep::Function(function.clone());
        Kernel::kept(function.cu_function(), keep)
    }

    /// The kernel of a handle, whose module something keeps loaded until it goes.
    fn kept(raw: CUfunction, keep: impl FnOnce() -> Keep) -> Result<Kernel> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        // An entry is alive only while its module is loaded, so its handle cannot have been given
        // out again.
        if let Some(inner) = known.get(&(raw as usize)).and_then(Weak::upgrade) {
            return Ok(Kernel { inner });
        }
        let kernel = Kernel::of(raw, keep())?;
        known.retain(|_, kernel| kernel.strong_count() > 0);
        known.insert(raw as usize, Arc::downgrade(&kernel.inner));
        Ok(kernel)
    }

    /// Kernels of this library's own, of a module that is loaded into `context` and goes with it.
    pub(crate) fn load<'a>(
        context: &CudaContext,
        ptx: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Arc<[Kernel]>> {
        let module = Loaded::with_context(context, ptx)?;
        names.into_iter().map(|name| module.kernel(name)).collect()
    }

    /// The kernel of a function's handle. A module that this library loaded from PTX stays loaded
    /// for it; another is kept loaded by nothing.
    pub(crate) fn found(raw: CUfunction) -> Result<Kernel> {
        match Loaded::of_function(raw) {
            Some(module) => Kernel::kept(raw, || Keep::Module(module)),
            None => Kernel::unowned(raw),
        }
    }

    /// The kernel of a handle, kept loaded by nothing.
    pub(crate) fn unowned(raw: CUfunction) -> Result<Kernel> {
        Kernel::of(raw, Keep::Nothing)
    }

    fn of(raw: CUfunction, keep: Keep) -> Result<Kernel> {
        driver::need(12_040, "asking for a kernel's parameters")?;
        let mut parameters = Vec::new();
        while let Some((offset, size)) = driver::node::function_parameter(raw, parameters.len())? {
            parameters.push(Parameter { offset, size });
        }
        let inner = Arc::new(Inner {
            raw: Function(raw),
            name: driver::node::function_name(raw)?,
            parameters: parameters.into(),
            keep,
        });
        Ok(Kernel { inner })
    }

    /// Its name, as the module has it.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its parameters.
    #[inline]
    pub fn parameters(&self) -> &[Parameter] {
        &self.inner.parameters
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUfunction {
        self.inner.raw.0
    }

    /// What keeps the module loaded.
    #[inline]
    pub(crate) fn into_owner(self) -> Owner {
        self.inner
    }

    /// The kernel that became this owner.
    pub(crate) fn from_owner(owner: &Owner) -> Option<Kernel> {
        let inner = owner.clone().downcast().ok()?;
        Some(Kernel { inner })
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}`", self.inner.name)
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Self) -> bool {
        self.raw() == other.raw()
    }
}

impl Eq for Kernel {}

/// What can name a kernel: a [`Kernel`], or cudarc's `CudaFunction`.
pub trait AsKernel {
    /// The kernel.
    fn as_kernel(&self) -> Result<Kernel>;

    /// The driver's handle, where that needs no look-up. Null otherwise.
    #[doc(hidden)]
    #[inline]
    fn handle(&self) -> CUfunction {
        std::ptr::null_mut()
    }
}

impl AsKernel for Kernel {
    fn as_kernel(&self) -> Result<Kernel> {
        Ok(self.clone())
    }

    #[inline]
    fn handle(&self) -> CUfunction {
        self.raw()
    }
}

impl AsKernel for CudaFunction {
    fn as_kernel(&self) -> Result<Kernel> {
        Kernel::new(self)
    }

    #[inline]
    fn handle(&self) -> CUfunction {
        self.cu_function()
    }
}

impl<K: AsKernel + ?Sized> AsKernel for &K {
    fn as_kernel(&self) -> Result<Kernel> {
        (**self).as_kernel()
    }

    #[inline]
    fn handle(&self) -> CUfunction {
        (**self).handle()
    }
}

/// A number that tells these numbers from most others.
pub(crate) fn digest_of(numbers: impl IntoIterator<Item = u64>) -> u64 {
    let mix = |digest: u64, number: u64| {
        (digest ^ number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    };
    numbers.into_iter().fold(1, mix).max(1)
}
