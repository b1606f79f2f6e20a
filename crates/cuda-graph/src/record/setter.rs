//! The kernels that set conditions.
//!
//! They are PTX, which every driver compiles for its device, and are loaded once for a context. The module goes with its
//! context: graphs and executables keep that, so they need not keep the module.

use std::ffi::CStr;
use std::sync::Arc;

use cudarc::driver::{CudaContext, LaunchConfig};

use crate::driver::per_context::PerContext;
use crate::graph::{AnyOp, Condition};
use crate::kernel::{Arguments, Kernel, KernelArgument};
use crate::memory::Region;
use crate::op::KernelOp;
use crate::{Result, driver};

/// `set_condition(condition, flag)`: the condition is what the flag is. `enter_loop(condition)`: the condition is 1.
const PTX: &CStr = c"
.version 8.3
.target sm_70
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

.visible .entry set_condition(.param .u64 condition, .param .u64 flag)
{
    .reg .b32 %value;
    .reg .b64 %handle, %from;
    ld.param.u64 %handle, [condition];
    ld.param.u64 %from, [flag];
    cvta.to.global.u64 %from, %from;
    ld.global.u32 %value, [%from];
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %handle;
        st.param.b32 [b], %value;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

.visible .entry enter_loop(.param .u64 condition)
{
    .reg .b32 %value;
    .reg .b64 %handle;
    ld.param.u64 %handle, [condition];
    mov.u32 %value, 1;
    {
        .param .b64 a;
        .param .b32 b;
        st.param.b64 [a], %handle;
        st.param.b32 [b], %value;
        call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}
";

/// The kernels of a context.
#[derive(Clone)]
pub(super) struct Setter {
    set: Kernel,
    enter: Kernel,
}

/// Those of `context`, loaded if they are not.
pub(super) fn of(context: &Arc<CudaContext>) -> Result<Setter> {
    static LOADED: PerContext<Setter> = PerContext::new();
    LOADED.get(context, || {
        driver::bind(context)?;
        // Loading a module is forbidden to a thread that captures.
        driver::capture::undisturbed(|| {
            let module = driver::module::load(PTX)?;
            Ok(Setter {
                set: Kernel::unowned(driver::module::function(module, c"set_condition")?)?,
                enter: Kernel::unowned(driver::module::function(module, c"enter_loop")?)?,
            })
        })
    })
}

impl Setter {
    /// Sets `condition` to what `flag`, which is one number, is.
    pub(super) fn set(&self, condition: &Condition, flag: &Region) -> Result<AnyOp> {
        let mut arguments = Arguments::default();
        KernelArgument::add_to(condition, &mut arguments);
        arguments.value(&flag.address());
        if let Some(owner) = &flag.owner {
            arguments.keep(owner.clone());
        }
        let label = format!("sets {:#x} by {:#x}", condition.raw(), flag.address());
        launch(&self.set, arguments, label)
    }

    /// Sets `condition` to 1.
    pub(super) fn enter(&self, condition: &Condition) -> Result<AnyOp> {
        let mut arguments = Arguments::default();
        KernelArgument::add_to(condition, &mut arguments);
        launch(
            &self.enter,
            arguments,
            format!("enters {:#x}", condition.raw()),
        )
    }
}

/// An operation named for what it does to which condition, as pictures call that.
fn launch(kernel: &Kernel, arguments: Arguments, label: String) -> Result<AnyOp> {
    let one = LaunchConfig {
        grid_dim: (1, 1, 1),
        block_dim: (1, 1, 1),
        shared_mem_bytes: 0,
    };
    // SAFETY: the kernels read one number from the flag's address, which the operation keeps, and set a condition of the
    // graph that they become nodes of.
    let op = unsafe { KernelOp::new(kernel, one, arguments) }?;
    Ok(op.label(label).into())
}
