use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaContext, CudaStream, LaunchConfig};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{Buffer, Kernel, KernelOp, Result};

/// A launch of one thread.
const ONE: LaunchConfig = LaunchConfig {
    grid_dim: (1, 1, 1),
    block_dim: (1, 1, 1),
    shared_mem_bytes: 0,
};

/// The numbers, their roots so far, and three words for the loop.
struct Roots {
    a: Buffer<f32>,
    x: Buffer<f32>,
    moved: Buffer<u32>,
    go: Buffer<u32>,
    turns: Buffer<u32>,
}

impl Roots {
    fn new(stream: &Arc<CudaStream>, numbers: &[f32]) -> Result<Roots> {
        Ok(Roots {
            a: Buffer::from_host(stream, numbers)?,
            x: Buffer::from_host(stream, &vec![1.0; numbers.len()])?,
            moved: Buffer::zeroed(stream, 1)?,
            go: Buffer::zeroed(stream, 1)?,
            turns: Buffer::zeroed(stream, 1)?,
        })
    }

    /// Panics unless the roots are right.
    fn check(&self, stream: &CudaStream) -> Result<()> {
        for (x, a) in self.x.to_host(stream)?.iter().zip(self.a.to_host(stream)?) {
            assert!((x * x - a).abs() <= 1e-5 * a, "{x} is not the root of {a}");
        }
        Ok(())
    }
}

struct Kernels {
    improve: Kernel,
    decide: Kernel,
}

impl Kernels {
    fn load(context: &Arc<CudaContext>) -> Result<Kernels> {
        let module = context.load_module(Ptx::from_src(PTX))?;
        Ok(Kernels {
            improve: Kernel::new(&module.load_function("improve")?)?,
            decide: Kernel::new(&module.load_function("decide")?)?,
        })
    }

    fn improve(&self, roots: &Roots) -> Result<KernelOp> {
        let n = roots.x.len() as u32;
        let arguments = (&roots.x, &roots.a, &roots.moved, n);
        // SAFETY: these are the parameters of `improve`, and both vectors have `n` values.
        unsafe { KernelOp::new(&self.improve, LaunchConfig::for_num_elems(n), arguments) }
    }

    fn decide(&self, roots: &Roots, limit: u32) -> Result<KernelOp> {
        let arguments = (&roots.moved, &roots.go, &roots.turns, limit);
        // SAFETY: these are the parameters of `decide`, and it is one thread.
        unsafe { KernelOp::new(&self.decide, ONE, arguments) }
    }
}
