//! Compiled functions, one after the other: calls between them are filled in, and what else they
//! refer to is listed.

use std::collections::HashMap;

use cranelift_codegen::CompiledCode;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{self, ExternalName};
use cranelift_codegen::{FinalizedMachReloc, FinalizedRelocTarget};

use super::{Name, Outside, Relocation};
use crate::jit::layout::align_up;
use crate::jit::runtime;

/// The most bytes of a kernel's code.
const MOST: u64 = 64 << 20;

/// A compiled function.
#[derive(Debug)]
pub(crate) struct Piece {
    code: Vec<u8>,
    align: u32,
    /// What it refers to, at offsets in its code.
    calls: Vec<Call>,
    relocations: Vec<Relocation>,
}

/// The functions placed so far.
#[derive(Debug, Default)]
pub(crate) struct Image {
    code: Vec<u8>,
    starts: HashMap<Name, u32>,
    calls: Vec<Call>,
    relocations: Vec<Relocation>,
}

/// A call of another function of the image.
#[derive(Clone, Copy, Debug)]
struct Call {
    at: u32,
    to: Name,
    addend: i64,
    kind: Reloc,
}

impl Piece {
    /// A function that was compiled, for a multiple of `align`.
    pub fn of(
        function: &ir::Function,
        compiled: &CompiledCode,
        align: u32,
    ) -> Result<Piece, String> {
        let mut piece = Piece {
            code: compiled.code_buffer().to_vec(),
            align: align.max(compiled.buffer.alignment),
            calls: vec![],
            relocations: vec![],
        };
        for relocation in compiled.buffer.relocs() {
            piece
                .refer(function, relocation)
                .ok_or_else(|| format!("a relocation is unknown: {relocation:?}"))?;
        }
        Ok(piece)
    }

    /// Bytes of its code.
    pub fn size(&self) -> usize {
        self.code.len()
    }

    fn refer(&mut self, function: &ir::Function, relocation: &FinalizedMachReloc) -> Option<()> {
        let name = match &relocation.target {
            FinalizedRelocTarget::ExternalName(ExternalName::User(name)) => {
                Name::of(&function.params.user_named_funcs()[*name])?
            }
            FinalizedRelocTarget::ExternalName(ExternalName::LibCall(call)) => {
                let function = runtime::libcall(*call)?;
                Name::Outside(Outside::Runtime(runtime::number(function)))
            }
            _ => return None,
        };
        let FinalizedMachReloc {
            offset: at,
            kind,
            addend,
            ..
        } = *relocation;
        match (name, kind) {
            (Name::Outside(of), Reloc::Abs8) => {
                self.relocations.push(Relocation { at, of, addend });
            }
            (to, Reloc::X86CallPCRel4 | Reloc::Arm64Call) => self.calls.push(Call {
                at,
                to,
                addend,
                kind,
            }),
            _ => return None,
        }
        Some(())
    }
}

impl Image {
    /// Adds a function.
    pub fn place(&mut self, name: Name, piece: &Piece) -> Result<(), String> {
        let start = align_up(self.code.len() as u64, u64::from(piece.align));
        // Calls reach 2 GiB, and on other processors less.
        if start + piece.code.len() as u64 > MOST {
            return Err(format!("more than {MOST} bytes of machine code"));
        }
        let start = start as u32;
        self.code.resize(start as usize, 0);
        self.code.extend_from_slice(&piece.code);
        self.starts.insert(name, start);
        let calls = piece.calls.iter().map(|call| Call {
            at: start + call.at,
            ..*call
        });
        self.calls.extend(calls);
        let relocations = piece.relocations.iter().map(|relocation| Relocation {
            at: start + relocation.at,
            ..*relocation
        });
        self.relocations.extend(relocations);
        Ok(())
    }

    /// Where a function is.
    pub fn start(&self, name: Name) -> Option<u32> {
        self.starts.get(&name).copied()
    }

    /// The code, and where it needs addresses.
    pub fn link(mut self) -> Result<(Vec<u8>, Vec<Relocation>), String> {
        for call in &self.calls {
            let to = self.starts.get(&call.to).copied();
            let to = to.ok_or_else(|| format!("{:?} is called and not there", call.to))?;
            let distance = i64::from(to) + call.addend - i64::from(call.at);
            let at = call.at as usize;
            let field = &mut self.code[at..at + 4];
            let field: &mut [u8; 4] = field.try_into().expect("the slice has four bytes");
            let bits = match call.kind {
                Reloc::X86CallPCRel4 => distance as u32,
                // Words, in the low bits of the instruction.
                _ => u32::from_le_bytes(*field) | (distance >> 2) as u32 & 0x03ff_ffff,
            };
            *field = bits.to_le_bytes();
        }
        Ok((self.code, self.relocations))
    }
}
