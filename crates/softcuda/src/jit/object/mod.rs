//! A kernel's native code that is at no address yet: its bytes, what they refer to by name, and the
//! data that goes with them.
//!
//! An object is the same in every process, so the [cache](super::cache) can keep it.
//! [`Code`](super::code::Code) puts it somewhere and fills the addresses in.

mod bytes;
mod image;

use cranelift_codegen::ir::UserExternalName;

pub(crate) use image::{Image, Piece};

use super::runtime::access::Access;
use super::runtime::arrays::Array;
use crate::grid::context::Mode;
use crate::grid::rounds::Wait;

/// A compiled kernel with the functions that it reaches.
#[derive(Debug)]
pub(crate) struct Object {
    /// Machine code. Calls inside it are relative, so it can lie anywhere.
    pub code: Vec<u8>,
    /// Where it needs an address of something else.
    pub relocations: Vec<Relocation>,
    /// Where the kernel's function starts.
    pub entry: u32,
    /// How it runs a block.
    pub mode: Mode,
    /// In rounds: the bytes that each thread keeps while it waits.
    pub kept: u32,
    /// In rounds: its threads may spin.
    pub spins: bool,
    /// Blocks may go through a loop in [step](super::spmd::Passes).
    pub passes: bool,
    /// It may reach the shared memory of other blocks of the cluster.
    pub reaches: bool,
    /// How many access sites it has.
    pub sites: u32,
    /// Bytes that the kernel's function takes of the native stack.
    pub frame: u32,
    /// In rounds: the places where its threads wait.
    pub waits: Vec<Wait>,
    /// What its cold paths look up, by number.
    pub accesses: Vec<Access>,
    /// Arrays that the kernel's parameters point to.
    pub arrays: Vec<Array>,
    /// How many functions the module has, where the code calls any by its address; otherwise 0.
    pub table: u32,
    /// The functions that such calls reach.
    pub targets: Vec<Reached>,
}

/// A function that is called by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Its number in the module.
    pub function: u32,
    /// Where it starts in the code.
    pub at: u32,
    /// What a call's [`Target::blocks`](super::code::Target::blocks) must be.
    pub blocks: u64,
}

/// Eight bytes of the code that hold an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relocation {
    /// Where they are.
    pub at: u32,
    /// What the address is of.
    pub of: Outside,
    /// What is added to it.
    pub addend: i64,
}

/// What code refers to outside of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outside {
    /// A runtime function, by its [number](super::runtime::number).
    Runtime(u32),
    /// A variable of the module.
    Global(u32),
    /// [`Program::function_base`](super::program::Program::function_base).
    Functions,
    /// The table that calls look their target up in.
    Table,
    /// The places where threads wait.
    Waits,
}

/// What a function refers to while it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    /// A function of the module.
    Function(u32),
    /// The second form of a kernel, which takes nothing for granted.
    Second(u32),
    /// The stub for cold calls of a runtime function.
    Cold(u32),
    /// What is not in the code.
    Outside(Outside),
}

impl Name {
    /// The name in Cranelift's IR.
    pub fn external(self) -> UserExternalName {
        let (namespace, index) = match self {
            Name::Function(at) => (0, at),
            Name::Cold(number) => (1, number),
            Name::Second(at) => (2, at),
            Name::Outside(outside) => {
                let (tag, index) = outside.parts();
                (3 + u32::from(tag), index)
            }
        };
        UserExternalName { namespace, index }
    }

    fn of(external: &UserExternalName) -> Option<Name> {
        let index = external.index;
        Some(match external.namespace {
            0 => Name::Function(index),
            1 => Name::Cold(index),
            2 => Name::Second(index),
            tag => Name::Outside(Outside::of_parts(u8::try_from(tag - 3).ok()?, index)?),
        })
    }
}

impl Outside {
    fn parts(self) -> (u8, u32) {
        match self {
            Outside::Runtime(number) => (0, number),
            Outside::Global(at) => (1, at),
            Outside::Functions => (2, 0),
            Outside::Table => (3, 0),
            Outside::Waits => (4, 0),
        }
    }

    fn of_parts(tag: u8, index: u32) -> Option<Outside> {
        Some(match (tag, index) {
            (0, number) => Outside::Runtime(number),
            (1, at) => Outside::Global(at),
            (2, 0) => Outside::Functions,
            (3, 0) => Outside::Table,
            (4, 0) => Outside::Waits,
            _ => return None,
        })
    }
}
