//! A V-cycle of multigrid on 4 levels, for Poisson's problem on a square.

use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaContext, LaunchConfig};
use cuda_graph::{Buffer, FillOp, Kernel, KernelOp, Module, Recorder, Result};

use crate::case::{Case, Setting};
use crate::memory::{Memory, values};
use crate::tiny::{HEADER, launch};

/// The points of a side, level by level.
const SIDES: [usize; 4] = [63, 31, 15, 7];

/// How often a level is smoothed on the way down, and again on the way up; the last one.
const SMOOTHED: usize = 2;
const LAST_SMOOTHED: usize = 8;

const THREADS: usize = 256;

struct Kernels {
    smooth: Kernel,
    residual: Kernel,
    restrict: Kernel,
    prolong: Kernel,
}

/// What a level of so many points a side has. Points around the grid are zero.
struct Level {
    side: usize,
    u: Buffer<f32>,
    /// Where a step from `u` goes, and the residual.
    other: Buffer<f32>,
    f: Buffer<f32>,
}

impl Kernels {
    fn load(context: &Arc<CudaContext>) -> Result<Kernels> {
        let module = Module::load(context, [HEADER, include_str!("multigrid.ptx")].concat())?;
        Ok(Kernels {
            smooth: module.kernel("smooth")?,
            residual: module.kernel("residual")?,
            restrict: module.kernel("restrict_to")?,
            prolong: module.kernel("prolong")?,
        })
    }

    fn smooth(&self, level: &Level, from: &Buffer<f32>, to: &Buffer<f32>) -> Result<KernelOp> {
        let arguments = (from, &level.f, to, level.side as u32, level.area());
        // SAFETY: these are the kernel's parameters, and all grids are the level's.
        unsafe { KernelOp::new(&self.smooth, level.launch(), arguments) }
    }

    fn residual(&self, level: &Level) -> Result<KernelOp> {
        let (u, f, r) = (&level.u, &level.f, &level.other);
        let arguments = (u, f, r, level.side as u32, level.area());
        // SAFETY: as above.
        unsafe { KernelOp::new(&self.residual, level.launch(), arguments) }
    }

    fn restrict(&self, fine: &Level, coarse: &Level) -> Result<KernelOp> {
        let arguments = (&fine.other, &coarse.f, coarse.side as u32);
        // SAFETY: these are the kernel's parameters; the fine grid has twice the points of a side,
        // and one.
        unsafe { KernelOp::new(&self.restrict, coarse.launch(), arguments) }
    }

    fn prolong(&self, coarse: &Level, fine: &Level) -> Result<KernelOp> {
        let arguments = (&coarse.u, &fine.u, fine.side as u32);
        // SAFETY: as above.
        unsafe { KernelOp::new(&self.prolong, fine.launch(), arguments) }
    }

    /// Smooths in pairs of steps, forth and back.
    fn smoothed(&self, r: &mut dyn Recorder, level: &Level, times: usize) -> Result<()> {
        for _ in 0..times / 2 {
            r.record(self.smooth(level, &level.u, &level.other)?)?;
            r.record(self.smooth(level, &level.other, &level.u)?)?;
        }
        Ok(())
    }
}

impl Level {
    fn new(memory: &mut Memory, side: usize) -> Result<Level> {
        let len = (side + 2) * (side + 2);
        let f = match side == SIDES[0] {
            true => values(len, 1.0, 1),
            false => vec![0.0; len],
        };
        Ok(Level {
            side,
            u: memory.zeros(len)?,
            other: memory.zeros(len)?,
            f: memory.buffer(f)?,
        })
    }

    fn launch(&self) -> LaunchConfig {
        launch((self.side * self.side).div_ceil(THREADS), THREADS)
    }

    /// That of a cell of the grid.
    fn area(&self) -> f32 {
        let points = (self.side + 1) as f32;
        1.0 / (points * points)
    }
}

fn cycle(r: &mut dyn Recorder, kernels: &Kernels, levels: &[Level]) -> Result<()> {
    for pair in levels.windows(2) {
        let (fine, coarse) = (&pair[0], &pair[1]);
        kernels.smoothed(r, fine, SMOOTHED)?;
        r.record(FillOp::new(&fine.other, 0.0)?)?;
        r.record(kernels.residual(fine)?)?;
        r.record(kernels.restrict(fine, coarse)?)?;
        r.record(FillOp::new(&coarse.u, 0.0)?)?;
        r.record(FillOp::new(&coarse.other, 0.0)?)?;
    }
    kernels.smoothed(r, &levels[levels.len() - 1], LAST_SMOOTHED)?;
    for pair in levels.windows(2).rev() {
        let (fine, coarse) = (&pair[0], &pair[1]);
        r.record(kernels.prolong(coarse, fine)?)?;
        kernels.smoothed(r, fine, SMOOTHED)?;
    }
    Ok(())
}

pub fn case(setting: &Setting) -> Result<Case> {
    let kernels = Kernels::load(setting.stream.context())?;
    let mut memory = setting.memory();
    let levels: Result<Vec<Level>> = SIDES
        .iter()
        .map(|side| Level::new(&mut memory, *side))
        .collect();
    let levels = levels?;
    let title = "captured: a V-cycle of multigrid, 63 x 63 points, 4 levels";
    Ok(Case::captured(setting, title, memory, move |r| {
        cycle(r, &kernels, &levels)
    }))
}
