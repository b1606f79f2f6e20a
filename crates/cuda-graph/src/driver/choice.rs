//! Which driver runs the program: a GPU's, or `softcuda`.
//!
//! The choice is made once, before the first call of the driver, because cudarc loads the driver
//! then and keeps it. Software is put in place by loading `softcuda`'s library first: its SONAME is
//! `libcuda.so.1`, so the loader answers cudarc with it.
//!
//! cudarc panics when it finds no driver. So nothing here calls the driver before [`choose`] said
//! yes.

use std::fmt;
use std::sync::OnceLock;

use libloading::Library;

use crate::{Error, Result};

/// A driver that programs can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// The driver of a GPU.
    Gpu,
    /// `softcuda`, on the CPU.
    Software,
}

impl Driver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Driver::Gpu => "gpu",
            Driver::Software => "software",
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Chooses the driver, once for the process.
pub(crate) fn choose() -> Result<Driver> {
    static CHOICE: OnceLock<Result<Driver>> = OnceLock::new();
    CHOICE.get_or_init(choose_as_asked).clone()
}

fn choose_as_asked() -> Result<Driver> {
    let value = std::env::var_os("CUDA_GRAPH_DRIVER").unwrap_or_default();
    let (chosen, remedy) = match value.to_str() {
        Some("" | "auto") => (
            installed().or_else(|gpu| software().map_err(|why| format!("{gpu}; {why}"))),
            "Install NVIDIA's driver, or enable the feature `software` to run on the CPU.",
        ),
        Some("gpu") => (
            installed(),
            "CUDA_GRAPH_DRIVER asks for a GPU: install NVIDIA's driver, or unset the variable.",
        ),
        Some("software") => (
            software(),
            "CUDA_GRAPH_DRIVER asks for software: enable the feature `software`, or unset the \
             variable.",
        ),
        _ => {
            return Err(Error::UnknownDriver {
                value: value.to_string_lossy().into_owned(),
            });
        }
    };
    chosen.map_err(|looked_for| Error::NoDriver { looked_for, remedy })
}

/// The driver that cudarc would find by itself, if it has a device; otherwise what was looked for.
fn installed() -> std::result::Result<Driver, String> {
    let mut tried = Vec::new();
    for name in ["libcuda.so", "libcuda.so.1"] {
        // SAFETY: this runs the initializers of a CUDA driver, as cudarc's first call would do.
        let why = match unsafe { Library::new(name) } {
            Err(_) => "is not installed".into(),
            Ok(library) => match start(&library) {
                Ok(driver) => {
                    // It stays loaded for cudarc.
                    std::mem::forget(library);
                    return Ok(driver);
                }
                Err(why) => format!("is installed, but {why}"),
            },
        };
        tried.push(format!("{name} {why}"));
    }
    Err(tried.join(", "))
}

/// Starts a driver library, and says whose it is.
fn start(library: &Library) -> std::result::Result<Driver, String> {
    // SAFETY: `cuInit` and `cuDeviceGetCount` have had these signatures since CUDA 2.0.
    let (init, count) = unsafe {
        (
            library
                .get::<unsafe extern "C" fn(u32) -> u32>(b"cuInit\0")
                .map_err(|_| "has no cuInit")?,
            library
                .get::<unsafe extern "C" fn(*mut i32) -> u32>(b"cuDeviceGetCount\0")
                .map_err(|_| "has no cuDeviceGetCount")?,
        )
    };
    // SAFETY: 0 is the one flag value that `cuInit` takes.
    let status = unsafe { init(0) };
    if status != 0 {
        return Err(format!("cuInit answers error {status}"));
    }
    let mut devices = 0;
    // SAFETY: `devices` is a valid place for the count.
    let status = unsafe { count(&mut devices) };
    if status != 0 || devices == 0 {
        return Err("it has no device".into());
    }
    // SAFETY: the symbol's address alone is taken; softcuda exports it and no other driver does.
    let ours = unsafe { library.get::<*const ()>(b"softcuda_version\0") }.is_ok();
    Ok(if ours { Driver::Software } else { Driver::Gpu })
}

fn software() -> std::result::Result<Driver, String> {
    #[cfg(feature = "software")]
    return match softcuda::install() {
        Ok(()) => Ok(Driver::Software),
        Err(error) => Err(format!("the software driver could not be loaded: {error}")),
    };
    #[cfg(not(feature = "software"))]
    Err("the feature `software` is off".into())
}
