//! Modules that know the PTX they were loaded from.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUfunction, CUmodule, CUresult};

use super::variant::Source;
use super::{Keep, Kernel};
use crate::{Error, Result, driver};

/// A module that was loaded from PTX and knows it.
///
/// Clones are cheap. The module stays loaded as long as one of them or one of its [`Kernel`]s is
/// there, and operations keep their kernels.
///
/// ```
/// # use cuda_graph::{Buffer, Graph, KernelOp, Module};
/// # use cudarc::driver::LaunchConfig;
/// # let device = cuda_graph::device(0)?;
/// # let stream = device.context().default_stream();
/// let module = Module::load(
///     device.context(),
///     "
///     .version 7.0
///     .target sm_70
///     .address_size 64
///     .visible .entry store(.param .u64 to, .param .u32 value) {
///         .reg .b32 %v;
///         .reg .b64 %p;
///         ld.param.u64 %p, [to];
///         ld.param.u32 %v, [value];
///         st.global.u32 [%p], %v;
///         ret;
///     }",
/// )?;
/// assert_eq!(module.names()?, ["store"]);
///
/// let (store, to) = (module.kernel("store")?, Buffer::<u32>::zeroed(&stream, 1)?);
/// let graph = Graph::new(device.context())?;
/// // SAFETY: `store` writes one value to where its first argument points.
/// graph.add(unsafe { KernelOp::new(store, LaunchConfig::for_num_elems(1), (&to, 7u32)) }?, ())?;
/// graph.instantiate()?.launch(&stream)?;
/// assert_eq!(to.to_host(&stream)?, [7]);
/// # Ok::<(), cuda_graph::Error>(())
/// ```
///
/// # Variables
///
/// An optimized graph may run changed copies of the module's kernels. A copy has variables of its
/// own where the PTX says that nobody writes them: they have an initial value, no linkage such as
/// `.visible`, and no kernel that writes them. Other code that finds such a variable by its name in
/// the raw module must not write it.
#[derive(Clone)]
pub struct Module {
    loaded: Arc<Loaded>,
}

impl Module {
    /// Loads PTX into a context.
    ///
    /// # Errors
    ///
    /// [`PtxRefused`](Error::PtxRefused) with the driver's own words when the PTX is not right, or
    /// not for this device.
    pub fn load(context: &Arc<CudaContext>, ptx: impl Into<Arc<str>>) -> Result<Module> {
        let source = Source::new(ptx.into());
        let text = source.ptx().clone();
        let home = Home::Held(context.clone());
        let loaded = Loaded::load(context, home, &text, Some(source))?;
        Ok(Module { loaded })
    }

    /// The kernel of a name. Asking again is a call of the driver and a table look-up.
    ///
    /// # Errors
    ///
    /// [`UnknownKernel`](Error::UnknownKernel) when there is none, and
    /// [`Unsupported`](Error::Unsupported) when the driver is older than CUDA 12.4, as
    /// [`Kernel::new`].
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        self.loaded.kernel(name)
    }

    /// The names of its kernels, in the driver's order.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) when the driver is older than CUDA 12.4.
    pub fn names(&self) -> Result<Vec<String>> {
        self.loaded.bind()?;
        let functions = driver::module::functions(self.loaded.raw.0)?;
        let name = |function| driver::node::function_name(function);
        functions.into_iter().map(name).collect()
    }

    /// The PTX that it was loaded from.
    pub fn ptx(&self) -> &str {
        let source = self.loaded.source.as_ref();
        source.expect("a module of `load` has a source").ptx()
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUmodule {
        self.loaded.raw.0
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "module {:?}", self.raw())
    }
}

/// A module in the driver.
pub(super) struct Loaded {
    raw: Handle,
    /// The driver's handle of the context that it is in.
    context: usize,
    home: Home,
    /// Absent for a module that was made of another's source.
    source: Option<Source>,
}

#[derive(Clone, Copy)]
struct Handle(CUmodule);

// SAFETY: the driver takes a module's handle from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// How long a module stays loaded.
#[derive(Clone)]
enum Home {
    /// As long as this is there, which holds its context.
    Held(Arc<CudaContext>),
    /// As long as its context.
    Context,
}

/// The modules that are loaded and held, by the driver's handle. An entry goes before its module is
/// unloaded, so a handle that is given out again is not taken for the one before.
static LOADED: LazyLock<Mutex<HashMap<usize, Weak<Loaded>>>> = LazyLock::new(Mutex::default);

impl Loaded {
    /// Loads PTX into a context, to be unloaded with that.
    pub(super) fn with_context(context: &CudaContext, ptx: &str) -> Result<Arc<Loaded>> {
        Loaded::load(context, Home::Context, ptx, Some(Source::new(ptx.into())))
    }

    /// Loads a module that was made of the source of this one, to stay as long.
    pub(super) fn load_beside(&self, context: &CudaContext, ptx: &str) -> Result<Arc<Loaded>> {
        Loaded::load(context, self.home.clone(), ptx, None)
    }

    fn load(
        context: &CudaContext,
        home: Home,
        ptx: &str,
        source: Option<Source>,
    ) -> Result<Arc<Loaded>> {
        let ptx = CString::new(ptx.trim_end_matches('\0')).map_err(Error::other)?;
        driver::bind(context)?;
        // Loading a module is forbidden to a thread that captures.
        let raw = driver::capture::undisturbed(|| driver::module::load(&ptx))?;
        let loaded = Arc::new(Loaded {
            raw: Handle(raw),
            context: context.cu_ctx() as usize,
            home,
            source,
        });
        if let Home::Held(_) = loaded.home {
            let mut all = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(raw as usize, Arc::downgrade(&loaded));
        }
        Ok(loaded)
    }

    /// The module of a function, if this library loaded it and something holds it.
    pub(super) fn of_function(function: CUfunction) -> Option<Arc<Loaded>> {
        let all = || LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if all().is_empty() {
            return None;
        }
        let module = driver::module::of_function(function).ok()?;
        all().get(&(module as usize))?.upgrade()
    }

    /// The kernel of a name.
    pub(super) fn kernel(self: &Arc<Self>, name: &str) -> Result<Kernel> {
        let unknown = || Error::UnknownKernel {
            kernel: name.into(),
        };
        let c_name = CString::new(name).map_err(|_| unknown())?;
        self.bind()?;
        let raw =
            driver::module::function(self.raw.0, &c_name).map_err(|error| match error.code() {
                Some(CUresult::CUDA_ERROR_NOT_FOUND) => unknown(),
                _ => error,
            })?;
        let keep = || Keep::Module(self.clone());
        match self.home {
            Home::Held(_) => Kernel::kept(raw, keep),
            // Its handle may be given out again while this is there: it does not go into the table.
            Home::Context => Kernel::of(raw, keep()),
        }
    }

    /// Makes its context the calling thread's, if the module holds that. For one that does not,
    /// whoever loads it has done so.
    fn bind(&self) -> Result<()> {
        match &self.home {
            Home::Held(context) => driver::bind(context),
            Home::Context => Ok(()),
        }
    }

    /// Whether it is in this context.
    pub(super) fn is_in(&self, context: &CudaContext) -> bool {
        self.context == context.cu_ctx() as usize
    }

    /// What it was loaded from.
    pub(super) fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let Home::Held(context) = &self.home else {
            return;
        };
        let mut all = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&(self.raw.0 as usize));
        drop(all);
        let unload = || {
            driver::bind(context)?;
            driver::module::unload(self.raw.0)
        };
        driver::log_leak("a module", driver::capture::undisturbed(unload));
    }
}
