//! PTX to native code, in four steps that read top to bottom: parse (crate `ptx`), check (`resolve` names, then `decode` each
//! instruction into an [`Operation`]), lower (operations to Cranelift's IR), compile (Cranelift).
//!
//! Parse and check happen when a module is loaded: what cannot run is refused there, with line and instruction. Lower and
//! compile happen when a kernel is first launched or asked for.

mod analysis;
mod compile;
pub(crate) mod decode;
mod dump;
#[cfg(test)]
pub(crate) mod harness;
mod layout;
mod liveness;
pub(crate) mod lower;
pub(crate) mod module;
mod program;
mod resolve;
pub(crate) mod runtime;
#[cfg(test)]
mod tests;
mod variables;
