//! Kernels with a guard, a wait or a trigger in front, made of the PTX that their module was loaded
//! from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUresult;
use ptx::rewrite::{Refusal, Rewrite, Rewriter};

use super::module::Loaded;
use super::{Keep, Kernel};
use crate::{Error, Result};

/// What a kernel is to have in front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Variant {
    /// One more parameter, the last: the address of a `u32` in device memory. Where that is 0, the
    /// kernel returns at once.
    pub guard: bool,
    /// `griddepcontrol.wait`, before anything else.
    pub wait: bool,
    /// `griddepcontrol.launch_dependents`, before that.
    pub trigger: bool,
}

/// Why there is no such variant of a kernel. Its text follows the kernel's name.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NoVariant {
    #[error("its PTX is not known: load it by `Module::load`")]
    NoSource,
    #[error("its module is in another context")]
    OtherContext,
    /// The driver reads it, and this library does not.
    #[error("its PTX is not understood: {0}")]
    NotRead(ptx::Errors),
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The driver does not take the rewritten module: the device is too old, or the PTX is for an
    /// older one.
    #[error("the driver does not take the variant: {0}")]
    NotLoaded(Error),
}

impl NoVariant {
    /// Why, without what differs from kernel to kernel.
    pub(crate) fn in_short(&self) -> &'static str {
        match self {
            NoVariant::NoSource => "its PTX is not known: load it by `Module::load`",
            NoVariant::OtherContext => "its module is in another context",
            NoVariant::NotRead(_) => "its PTX is not understood",
            NoVariant::Refused(_) => "what is put in front could change what its PTX does",
            NoVariant::NotLoaded(_) => "the driver does not take its PTX with something in front",
        }
    }
}

/// A variant, or why there is none.
pub(crate) type Made = std::result::Result<Kernel, NoVariant>;

/// PTX, and what was made of it.
pub(super) struct Source {
    ptx: Arc<str>,
    rewriter: OnceLock<std::result::Result<Rewriter, ptx::Errors>>,
    /// By the name of the kernel.
    variants: Mutex<HashMap<(Box<str>, Variant), Made>>,
}

impl Source {
    pub(super) fn new(ptx: Arc<str>) -> Source {
        Source {
            ptx,
            rewriter: OnceLock::new(),
            variants: Mutex::default(),
        }
    }

    pub(super) fn ptx(&self) -> &Arc<str> {
        &self.ptx
    }

    /// The text of a module that has a variant of `kernel`, and the variant's name there.
    fn rewrite(
        &self,
        kernel: &str,
        variant: Variant,
    ) -> std::result::Result<(String, String), NoVariant> {
        let rewriter = self.rewriter.get_or_init(|| {
            let text = self.ptx.trim_end_matches('\0');
            Rewriter::new(text)
        });
        let rewriter = rewriter
            .as_ref()
            .map_err(|errors| NoVariant::NotRead(errors.clone()))?;
        let guarded = if variant.guard { "__guarded" } else { "" };
        let waiting = if variant.wait { "__waiting" } else { "" };
        let early = if variant.trigger { "__early" } else { "" };
        let name = rewriter.unused_name(&format!("{kernel}{guarded}{waiting}{early}"));
        let rewrite = Rewrite {
            kernel,
            guard: variant.guard,
            wait: variant.wait,
            trigger: variant.trigger,
            name: &name,
        };
        let text = rewriter.rewrite(&[rewrite])?;
        Ok((text, name))
    }
}

impl Kernel {
    /// This kernel with something in front, or why there is no such kernel. The same is given each
    /// time: it is loaded once for each module, and stays loaded with that. The variant keeps its
    /// own module loaded, and not that of this kernel.
    ///
    /// Whether a launch may be changed so is another matter: the caller refuses those with
    /// attributes for clusters or cooperation.
    ///
    /// # Errors
    ///
    /// When the driver fails for other reasons than the PTX. What failed is tried again next time.
    pub(crate) fn variant(&self, context: &Arc<CudaContext>, variant: Variant) -> Result<Made> {
        if variant == Variant::default() {
            return Ok(Ok(self.clone()));
        }
        let Keep::Module(module) = &self.inner.keep else {
            return Ok(Err(NoVariant::NoSource));
        };
        let Some(source) = module.source() else {
            return Ok(Err(NoVariant::NoSource));
        };
        if !module.is_in(context) {
            return Ok(Err(NoVariant::OtherContext));
        }
        // Held while the driver compiles, so that nothing is loaded twice.
        let mut variants = source
            .variants
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let key = (self.name().into(), variant);
        if let Some(made) = variants.get(&key) {
            return Ok(made.clone());
        }
        let made = match source.rewrite(self.name(), variant) {
            Ok((text, name)) => loaded(module, context, &text, &name)?,
            Err(refusal) => Err(refusal),
        };
        variants.insert(key, made.clone());
        Ok(made)
    }
}

/// The kernel of a rewritten module, or the refusal that is the driver's.
fn loaded(module: &Loaded, context: &CudaContext, text: &str, name: &str) -> Result<Made> {
    use CUresult as R;
    match module.load_beside(context, text) {
        Ok(module) => module.kernel(name).map(Ok),
        Err(error) => match error.code() {
            Some(
                R::CUDA_ERROR_INVALID_IMAGE
                | R::CUDA_ERROR_INVALID_PTX
                | R::CUDA_ERROR_NO_BINARY_FOR_GPU
                | R::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                | R::CUDA_ERROR_JIT_COMPILER_NOT_FOUND
                | R::CUDA_ERROR_JIT_COMPILATION_DISABLED,
            ) => Ok(Err(NoVariant::NotLoaded(error))),
            _ => Err(error),
        },
    }
}
