//! Loops on the device, of one-thread kernels, the last of which counts the flag down.

use cuda_graph::{FillOp, KernelOp, Recorder, Result};

use crate::case::{Case, Setting};
use crate::memory::Memory;

/// The turns of a loop.
const TURNS: u32 = 1000;

pub fn do_while(setting: &Setting, kernels: u32) -> Result<Case> {
    of(setting, kernels, true)
}

/// The flag is looked at first.
pub fn while_first(setting: &Setting, kernels: u32) -> Result<Case> {
    of(setting, kernels, false)
}

fn of(setting: &Setting, kernels: u32, is_do_while: bool) -> Result<Case> {
    let mut memory: Memory = setting.memory();
    let (cell, flag, turns) = (memory.zeros(1)?, memory.zeros(1)?, memory.zeros(1)?);
    let start = FillOp::new(&flag, TURNS)?;
    let ops: Result<Vec<KernelOp>> = (1..kernels)
        .map(|at| setting.tiny.step(&cell, at))
        .chain([setting.tiny.count_down(&flag, &turns)])
        .collect();
    let ops = ops?;
    let name = match is_do_while {
        true => "do-while",
        false => "while",
    };
    let plural = if kernels == 1 { "" } else { "s" };
    let title = format!(
        "{name} loop, {TURNS} turns of {kernels} one-thread kernel{plural}, of which one counts"
    );
    let body =
        move |r: &mut dyn Recorder| ops.iter().try_for_each(|op| r.record(op.clone()).map(drop));
    let case = Case::recorded(setting, &title, memory, move |r| {
        r.record(start.clone())?;
        match is_do_while {
            true => r.do_while_nonzero(&flag, &body),
            false => r.while_nonzero(&flag, &body),
        }
    });
    Ok(Case {
        turns: Some(TURNS),
        ..case
    })
}
