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

/// The functions placed so far.
#[derive(Debug, Default)]
pub(crate) struct Image {
    code: Vec<u8>,
    starts: HashMap<Name, u32>,
    calls: Vec<Call>,
    relocations: Vec<Relocation>,
}

/// A call inside the image.
#[derive(Debug)]
struct Call {
    at: u32,
    to: Name,
    addend: i64,
    kind: Reloc,
}

impl Image {
    /// Adds a function that was compiled, at a multiple of `align`.
    pub fn place(
        &mut self,
        name: Name,
        function: &ir::Function,
        compiled: &CompiledCode,
        align: u32,
    ) -> Result<(), String> {
        let align = u64::from(align.max(compiled.buffer.alignment));
        let start = align_up(self.code.len() as u64, align);
        let end = start + compiled.code_buffer().len() as u64;
        // Calls reach 2 GiB, and on other processors less.
        if end > 64 << 20 {
            return Err("more than 64 MiB of machine code".into());
        }
        let start = start as u32;
        self.code.resize(start as usize, 0);
        self.code.extend_from_slice(compiled.code_buffer());
        self.starts.insert(name, start);
        for relocation in compiled.buffer.relocs() {
            self.refer(start, function, relocation)
                .ok_or_else(|| format!("a relocation is unknown: {relocation:?}"))?;
        }
        Ok(())
    }

    fn refer(
        &mut self,
        start: u32,
        function: &ir::Function,
        relocation: &FinalizedMachReloc,
    ) -> Option<()> {
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
        let (at, addend, kind) = (
            start + relocation.offset,
            relocation.addend,
            relocation.kind,
        );
        match (name, kind) {
            (Name::Outside(of), Reloc::Abs8) => {
                self.relocations.push(Relocation { at, of, addend });
            }
            (Name::Function(_) | Name::Cold(_), Reloc::X86CallPCRel4 | Reloc::Arm64Call) => {
                let to = name;
                self.calls.push(Call {
                    at,
                    to,
                    addend,
                    kind,
                });
            }
            _ => return None,
        }
        Some(())
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
