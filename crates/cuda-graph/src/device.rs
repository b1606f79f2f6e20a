//! A device, opened on whichever driver there is.

use std::sync::Arc;

use cudarc::driver::CudaContext;

use crate::{Driver, Error, Result, driver};

/// An open device: cudarc's context, and which driver runs it. Clones share the context.
#[derive(Clone, Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    driver: Driver,
}

/// Opens device `ordinal`: a GPU where there is one, otherwise software where the feature
/// `software` allows it.
///
/// `CUDA_GRAPH_DRIVER=gpu` or `=software` decides by hand; `auto` is the default. The choice is
/// made once for the process. Call this before any other use of cudarc: the first call loads the
/// driver, and without one cudarc panics where this answers with an error.
///
/// # Errors
///
/// [`Error::NoDriver`], [`Error::NoDevice`], or [`Error::UnknownDriver`] if the variable's value
/// means nothing.
pub fn device(ordinal: usize) -> Result<Device> {
    let driver = driver::choose()?;
    let count = CudaContext::device_count().map_err(Error::call("cuDeviceGetCount"))?;
    let count = usize::try_from(count).unwrap_or(0);
    if ordinal >= count {
        return Err(Error::NoDevice {
            ordinal,
            count,
            driver: driver.name(),
        });
    }
    let context = CudaContext::new(ordinal).map_err(Error::call("cuDevicePrimaryCtxRetain"))?;
    Ok(Device { context, driver })
}

impl Device {
    /// The primary context of the device, cudarc's own.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// The driver that runs it.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Its name, as the driver gives it.
    pub fn name(&self) -> Result<String> {
        self.context.name().map_err(Error::call("cuDeviceGetName"))
    }
}
