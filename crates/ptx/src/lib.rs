//! PTX front end: lexer, parser, syntax tree, printer, kernel signatures, rewritten kernels.
//!
//! Reads PTX as nvcc, NVRTC, LLVM and rustc emit it, ISA versions 6.0 to 9.x, into a [tree](ast)
//! that is generic in its instructions: every instruction is well formed here, and what it means is
//! for others to say. The tree prints as PTX again, and parses back to itself.
//!
//! ```
//! let module = ptx::parse(
//!     "
//!     .version 8.0
//!     .target sm_90
//!     .address_size 64
//!     .visible .entry scale(.param .u64 data, .param .f32 by) .maxntid 256, 1, 1
//!     {
//!         .reg .f32 %f<3>;
//!         .reg .b64 %rd<2>;
//!         ld.param.u64 %rd1, [data];
//!         ld.param.f32 %f1, [by];
//!         ld.global.f32 %f2, [%rd1+4];
//!         mul.f32 %f2, %f2, %f1;
//!         st.global.f32 [%rd1+4], %f2;
//!         ret;
//!     }",
//! )?;
//! let ptx::ast::Item::Function(scale) = &module.items[0] else { unreachable!() };
//! let signature = scale.signature();
//! assert_eq!((signature.params[1].offset, signature.params[1].size, signature.size), (8, 4, 12));
//!
//! assert_eq!(ptx::parse(&module.to_string())?, module);
//!
//! let errors = ptx::parse(".version 8.0\n.target sm_90\n.entry k( { ret; }").unwrap_err();
//! assert_eq!(errors.to_string(), "line 3, column 11: expected a state space such as `.param`, found `{`");
//! # Ok::<(), ptx::Errors>(())
//! ```
//!
//! Whatever the source, parsing neither panics nor hangs, takes time linear in its length and a
//! bounded depth of stack, and reports up to fifty [errors](Errors), each with line, column, the
//! token found and what was expected.

pub mod ast;
mod error;
mod lexer;
pub mod opcode;
mod parser;
mod printer;
pub mod rewrite;
pub mod signature;

pub use error::{Error, Errors};
pub use parser::{parse, parse_bytes};
pub use signature::Signature;
