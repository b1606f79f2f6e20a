//! PTX to native code, in four steps that read top to bottom: parse (crate `ptx`), check (`resolve`
//! names, then `decode` each instruction into an [`Operation`]), lower (operations to Cranelift's
//! IR), compile (Cranelift, with passes of ours: [`exits`], [`blocks`] and [`phis`] before its
//! optimizer, [`schedule`], [`tiles`] and [`constants`] behind it, and instructions that it lacks
//! put into its code: `stand_ins`).
//!
//! Parse and check happen when a module is loaded: what the driver's compiler refuses is refused
//! there, with line and instruction. What is right and not run is remembered with the body, and
//! fails the launch of kernels that reach it. Some instructions become several steps
//! ([`resolve::fragments`]), loops that a compiler has unrolled are one again
//! ([`resolve::unrolled`]), and loops get registers of their own. Lower and compile happen when a
//! kernel is first launched or asked for, for the kernel and the device functions it can reach.
//! They give an [`object`], which has no address in it: [`code`] puts it where it can run, and
//! [`cache`] keeps it on disk for the next run. The code is kept with the module.
//!
//! [`analysis`] decides how a kernel's threads run, by whether they wait, or may spin ([`spins`]):
//!
//! - **loop**, where nothing that can be reached waits for another thread: the function loops over
//!   the threads of a block.
//! - **rounds**, where the kernel waits in its own body alone, at barriers, at operations of its
//!   warp, or at memory that it looks at in a loop: the function loops over the lanes that the grid
//!   gives a turn, each from wait to wait. Registers that are live at a wait ([`liveness`]) lie in
//!   a tile of the warp.
//! - **fibers**, everywhere else: the function runs one thread; each is a fiber with its own stack.
//!
//! A wait in rounds costs a few loads and stores a thread, where a fiber costs a switch of stacks:
//! 5 to 10 times less.
//!
//! [`waits`] finds the polls that only a cluster's own threads can end, at an `mbarrier`: where all
//! its threads stand at such or wait otherwise, the launch ends with a deadlock.
//!
//! In loops and rounds, neighbouring threads run together as long as they go the same way: the
//! vector form, which [`spmd`] plans and [`lower::lanes`] lowers, beside the form of one thread. In
//! rounds, compiled code gives the turns by itself while all threads of a block come to the same
//! waits; the grid decides once they do not. Between waits, short stretches have a form for more
//! threads at once, [`spmd::Wide`].
//!
//! One `dyn Operation` stands for each instruction. Decoding and lowering of a family are in one
//! file, so what is refused at load and what can be lowered cannot drift apart. A thread that
//! faults returns a status, and every caller returns it at once: compiled frames need no unwind
//! tables, and nothing is skipped.
//!
//! Each access is checked. A site keeps the range that it touched last
//! ([`Site`](crate::grid::context::Site)); the check is one subtraction, one rotation and one
//! comparison, which also finds misalignment. Only a miss asks [`crate::memory`]. Threads of a
//! group whose addresses lie at one distance, or turn out to, have one check. Of
//! [arrays](runtime::arrays) that parameters point to, a launch knows how many elements they have,
//! and an index is compared with that.

mod analysis;
mod blocks;
pub(crate) mod cache;
mod code;
mod compile;
mod constants;
pub(crate) mod decode;
mod dump;
mod exits;
#[cfg(test)]
pub(crate) mod harness;
mod layout;
mod liveness;
pub(crate) mod lower;
pub(crate) mod module;
mod object;
mod phis;
mod program;
mod recompute;
mod resolve;
pub(crate) mod runtime;
mod schedule;
mod spins;
pub(crate) mod spmd;
#[cfg(target_arch = "x86_64")]
mod stand_ins;
#[cfg(test)]
mod tests;
mod tiles;
mod variables;
pub(crate) mod waits;

pub(crate) use compile::MAX_NATIVE_FRAME;
