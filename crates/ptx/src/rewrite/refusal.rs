//! Why a kernel cannot be rewritten.

use crate::ast::{Ident, Pos};

/// Why a kernel cannot be rewritten: what it, or a function that it calls, does that the rewritten
/// kernel would do differently, or that is not understood.
///
/// `function` is the kernel or the function that it calls where that is found, and `pos` where in
/// the source. Positions compare equal, see [`Pos`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "what is not said here of a field, its name and the text say"
)]
pub enum Refusal {
    /// The module defines no such kernel, or several.
    #[error("the module does not define one kernel `{kernel}`")]
    NoKernel { kernel: Ident },

    /// Only modules with 64-bit addresses are rewritten.
    #[error("the module has addresses of {bits} bits, not of 64")]
    AddressSize { bits: u32 },

    /// The target is no architecture, or too old for the edit that was asked for.
    #[error("the target is `{target}`, and {needs} is needed")]
    Target { target: Ident, needs: &'static str },

    /// The module was compiled for a debugger: its debug data describe its text as it is.
    #[error("the module was compiled for debugging")]
    Debug,

    /// The new name is no name of PTX, or the module or another rewritten kernel has it already.
    #[error("the new name `{name}` is no name, or is in use")]
    Name { name: Ident },

    /// The parameters would not fit any more.
    #[error("with one more parameter, `{kernel}` takes {bytes} bytes, and {most} is the most")]
    Parameters {
        kernel: Ident,
        bytes: u64,
        most: u64,
    },

    /// A variable of the module that the rewritten module would have a copy of.
    #[error("`{function}` uses the variable `{variable}`, which {why} (line {})", pos.line)]
    Variable {
        function: Ident,
        variable: Ident,
        /// Where the variable is declared.
        pos: Pos,
        why: NotCopied,
    },

    /// A texture, sampler or surface reference: the host binds it in one module.
    #[error("`{function}` uses the texture or surface reference `{name}` (line {})", pos.line)]
    Reference {
        function: Ident,
        name: Ident,
        pos: Pos,
    },

    /// The kernel controls when it and the next kernel start by itself.
    #[error("`{function}` has `griddepcontrol` itself (line {})", pos.line)]
    GridDependency { function: Ident, pos: Pos },

    /// The kernel is written for clusters of blocks.
    #[error("`{function}` is written for clusters: `{what}` (line {})", pos.line)]
    Cluster {
        function: Ident,
        what: Ident,
        pos: Pos,
    },

    /// The blocks of the grid synchronize, as cooperative groups compile it.
    #[error("`{function}` synchronizes the grid: `{what}` (line {})", pos.line)]
    GridSync {
        function: Ident,
        what: Ident,
        pos: Pos,
    },

    /// A call of a function that is defined elsewhere.
    #[error("`{function}` calls `{callee}`, which the module does not define (line {})", pos.line)]
    ForeignCall {
        function: Ident,
        callee: Ident,
        pos: Pos,
    },

    /// A call of a function by its address.
    #[error("`{function}` calls a function by its address (line {})", pos.line)]
    IndirectCall { function: Ident, pos: Pos },

    /// The address of a function or kernel is taken.
    #[error("`{function}` takes the address of `{of}` (line {})", pos.line)]
    FunctionAddress {
        function: Ident,
        of: Ident,
        pos: Pos,
    },

    /// An instruction or a declaration that is not known.
    #[error("`{function}` has `{what}`, which is not understood (line {})", pos.line)]
    NotUnderstood {
        function: Ident,
        what: Ident,
        pos: Pos,
    },
}

/// Why a module cannot have a copy of a variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotCopied {
    /// It is `.extern`, `.visible`, `.weak` or `.common`.
    #[error("other modules can see")]
    Linked,
    /// It is `.managed` or has another attribute.
    #[error("has an attribute")]
    Attribute,
    /// Nothing says what it holds: the host or a kernel writes it.
    #[error("has no initial value")]
    NoValue,
    /// Its initial value holds addresses, by which other variables could be written.
    #[error("holds addresses")]
    Addresses,
    /// It may be written, or its address goes where that is not seen.
    #[error("`{by}` may write")]
    Written {
        /// The function, or the variable that holds its address.
        by: Ident,
    },
    /// It is in a state space that only old modules have variables of.
    #[error("is in a state space of old modules")]
    Space,
}
