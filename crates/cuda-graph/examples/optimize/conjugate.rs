//! Conjugate gradients for Poisson's problem on a square, in a loop on the device.

use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaContext, LaunchConfig};
use cuda_graph::{Buffer, CopyOp, FillOp, Kernel, KernelOp, Module, Recorder, Result};

use crate::case::{Case, Setting};
use crate::memory::{Memory, values};
use crate::tiny::{HEADER, launch};

/// The points of a side; the kernels know that, too.
const SIDE: usize = 64;

/// It is over after so many turns at the latest.
const MOST_TURNS: u32 = 500;

const WARP: usize = 32;
const THREADS: usize = 256;

struct Kernels {
    start: Kernel,
    first: Kernel,
    apply: Kernel,
    length: Kernel,
    advance: Kernel,
    test: Kernel,
    direct: Kernel,
}

impl Kernels {
    fn load(context: &Arc<CudaContext>) -> Result<Kernels> {
        let parts = [
            HEADER,
            include_str!("sum.ptx"),
            include_str!("conjugate.ptx"),
        ];
        let module = Module::load(context, parts.concat())?;
        Ok(Kernels {
            start: module.kernel("start")?,
            first: module.kernel("first")?,
            apply: module.kernel("apply")?,
            length: module.kernel("length")?,
            advance: module.kernel("advance")?,
            test: module.kernel("test")?,
            direct: module.kernel("direct")?,
        })
    }
}

/// Vectors, with zeros around the points, and numbers.
struct System {
    b: Buffer<f32>,
    x: Buffer<f32>,
    r: Buffer<f32>,
    p: Buffer<f32>,
    q: Buffer<f32>,
    partials: Buffer<f32>,
    scalars: Buffer<u32>,
    go: Buffer<u32>,
}

impl System {
    fn new(memory: &mut Memory) -> Result<System> {
        let side = SIDE + 2;
        let mut b = values(side * side, 1.0, 1);
        for (at, value) in b.iter_mut().enumerate() {
            let (row, column) = (at / side, at % side);
            if [row, column].iter().any(|at| [0, side - 1].contains(at)) {
                *value = 0.0;
            }
        }
        let b = memory.buffer(b)?;
        let mut vector = || memory.zeros(side * side);
        let (x, r, p, q) = (vector()?, vector()?, vector()?, vector()?);
        Ok(System {
            b,
            x,
            r,
            p,
            q,
            partials: memory.zeros(WARP)?,
            scalars: memory.zeros(5)?,
            go: memory.zeros(1)?,
        })
    }
}

/// All operations of it.
struct Steps {
    clear: FillOp,
    copies: [CopyOp; 2],
    begin: [KernelOp; 2],
    turn: [KernelOp; 5],
    go: Buffer<u32>,
}

impl Steps {
    fn new(kernels: &Kernels, system: &System) -> Result<Steps> {
        let System { b, x, r, p, q, .. } = system;
        let (partials, scalars, go) = (&system.partials, &system.scalars, &system.go);
        let points: LaunchConfig = launch(SIDE * SIDE / THREADS, THREADS);
        let warp = launch(1, WARP);
        // SAFETY: the arguments are the kernels' parameters; vectors have the length that the
        // kernels know, and so do parts and scalars.
        let (begin, turn) = unsafe {
            let start = KernelOp::new(&kernels.start, points, (r, partials))?;
            let first = KernelOp::new(&kernels.first, warp, (partials, scalars))?;
            let apply = KernelOp::new(&kernels.apply, points, (p, q, partials))?;
            let length = KernelOp::new(&kernels.length, warp, (partials, scalars))?;
            let arguments = (x, r, p, q, scalars, partials);
            let advance = KernelOp::new(&kernels.advance, points, arguments)?;
            let arguments = (partials, scalars, go, MOST_TURNS);
            let test = KernelOp::new(&kernels.test, warp, arguments)?;
            let direct = KernelOp::new(&kernels.direct, points, (p, r, scalars))?;
            ([start, first], [apply, length, advance, test, direct])
        };
        Ok(Steps {
            clear: FillOp::new(x, 0.0)?,
            copies: [CopyOp::new(r, b)?, CopyOp::new(p, b)?],
            begin,
            turn,
            go: go.clone(),
        })
    }

    fn record(&self, r: &mut dyn Recorder) -> Result<()> {
        r.record(self.clear.clone())?;
        for copy in &self.copies {
            r.record(copy.clone())?;
        }
        for op in &self.begin {
            r.record(op.clone())?;
        }
        r.do_while_nonzero(&self.go, |r| {
            self.turn
                .iter()
                .try_for_each(|op| r.record(op.clone()).map(drop))
        })
    }
}

pub fn case(setting: &Setting) -> Result<Case> {
    let kernels = Kernels::load(setting.stream.context())?;
    let mut memory = setting.memory();
    let steps = Steps::new(&kernels, &System::new(&mut memory)?)?;
    let title = "captured: conjugate gradients, 64 x 64 points, a loop of 5 kernels on the device";
    Ok(Case::captured(setting, title, memory, move |r| {
        steps.record(r)
    }))
}
