//! The device, and kernels compiled for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, LaunchConfig, sys};
use cudarc::nvrtc::Ptx;

use super::Outcome;

/// A file of PTX.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Source {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! sources {
    ($($constant:ident: $name:literal),+ $(,)?) => {
        $(pub const $constant: Source = Source {
            name: $name,
            text: include_str!(concat!("../../../../kernels/ptx/", $name, ".ptx")),
        };)+

        /// The files of `kernels/` that hold the benchmark's kernels.
        pub const SOURCES: &[Source] = &[$($constant),+];
    };
}

sources! {
    BENCH: "bench", ELEMENTWISE: "elementwise", GEMM: "gemm", HISTOGRAM: "histogram",
    NBODY: "nbody", REDUCE: "reduce", SCAN: "scan", SOFTMAX: "softmax", SPMV: "spmv",
    STENCIL: "stencil", TENSOR: "tensor",
}

/// A kernel that does nothing.
pub const EMPTY: Kernel = Kernel {
    source: Source {
        name: "empty",
        text: ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n",
    },
    name: "empty",
};

#[derive(Clone, Copy)]
pub struct Kernel {
    pub source: Source,
    pub name: &'static str,
}

pub struct Device {
    context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
}

impl Device {
    pub fn open() -> Outcome<Device> {
        softcuda::install()?;
        let context = CudaContext::new(0)?;
        let stream = context.default_stream();
        Ok(Device { context, stream })
    }

    /// Loads a module, which parses and checks its PTX.
    pub fn module(&self, source: Source) -> Outcome<Arc<CudaModule>> {
        Ok(self.context.load_module(Ptx::from_src(source.text))?)
    }

    /// The kernel, compiled, in a module of its own.
    pub fn compile(&self, kernel: Kernel) -> Outcome<Compiled> {
        Compiled::of(&self.module(kernel.source)?, kernel.name)
    }
}

pub struct Compiled {
    pub function: CudaFunction,
    /// How long the compiler took.
    pub time: Duration,
}

impl Compiled {
    pub fn of(module: &Arc<CudaModule>, name: &str) -> Outcome<Compiled> {
        let function = module.load_function(name)?;
        let start = Instant::now();
        // SAFETY: the handle is the live function's; loading it is what compiles it.
        unsafe { sys::cuFuncLoad(function.cu_function()) }.result()?;
        let time = start.elapsed();
        Ok(Compiled { function, time })
    }
}

/// A line of blocks, each a line of threads.
pub fn config(blocks: usize, threads: usize) -> LaunchConfig {
    plane((blocks, 1), (threads, 1))
}

/// A plane of blocks, each a plane of threads: columns, then rows.
pub fn plane(blocks: (usize, usize), threads: (usize, usize)) -> LaunchConfig {
    LaunchConfig {
        grid_dim: (blocks.0 as u32, blocks.1 as u32, 1),
        block_dim: (threads.0 as u32, threads.1 as u32, 1),
        shared_mem_bytes: 0,
    }
}
