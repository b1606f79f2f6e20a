//! PTX to native code, in four steps that read top to bottom: parse (crate `ptx`), check (`resolve` names, then `decode` each
//! instruction into an [`Operation`]), lower (operations to Cranelift's IR), compile (Cranelift).
//!
//! Parse and check happen when a module is loaded: what cannot run is refused there, with line and instruction. Lower and
//! compile happen when a kernel is first launched or asked for.

pub(crate) mod decode;
pub(crate) mod lower;
pub(crate) mod module;
pub(crate) mod runtime;
