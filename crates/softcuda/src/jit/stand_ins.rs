//! Instructions that Cranelift does not have. It compiles a stand-in with the same operands, whose
//! bytes are changed when the machine code is there.
//!
//! | stand-in | instruction | result |
//! |---|---|---|
//! | `floor.f64x2` | `vcvtph2ps` | the four `.f16` in the lower half of a vector, as singles |
//! | `ceil.f64x2` | `vcvtps2ph` | four singles, rounded to nearest `.f16`, in the lower half |
//! | `uload8` that may trap | `prefetcht0` | none: what is loaded soon comes into the caches |
//! | `uload16` that may trap | `prefetchw` | none: so does what is stored soon |
//!
//! Lowering makes these for nothing else: doubles are rounded one at a time, and no other load may
//! trap. The operands of the first two are computed, or used elsewhere too: Cranelift takes from
//! memory what is loaded for one use alone. The optimizer knows nothing about them but that they
//! are pure, and keeps the others because they may trap. Where each one's code begins is told by a
//! source location, which it gets after optimization.

use std::ops::Range;

use cranelift_codegen::ir::{Function, Inst, Opcode, RelSourceLoc, types};

/// Gives each stand-in a location of its own.
pub(super) fn mark(func: &mut Function) {
    let mut number = 0;
    for block in func.layout.blocks().collect::<Vec<_>>() {
        let mut next = func.layout.first_inst(block);
        while let Some(inst) = next {
            if is_stand_in(func, inst) {
                func.srclocs[inst] = RelSourceLoc::new(number);
                number += 1;
            }
            next = func.layout.next_inst(inst);
        }
    }
}

fn is_stand_in(func: &Function, inst: Inst) -> bool {
    let data = &func.dfg.insts[inst];
    match data.opcode() {
        Opcode::Floor | Opcode::Ceil => {
            func.dfg.value_type(func.dfg.first_result(inst)) == types::F64X2
        }
        Opcode::Uload8 | Opcode::Uload16 => data.memflags().is_some_and(|flags| !flags.notrap()),
        _ => false,
    }
}

/// Puts the instructions where their stand-ins are: one in the bytes of each location.
pub(super) fn replace(code: &mut [u8], locations: Vec<Range<u32>>) -> Result<(), String> {
    for location in locations {
        let part = code.get_mut(location.start as usize..location.end as usize);
        let part = part.ok_or("a location is outside of the code")?;
        if fetch(part) {
            continue;
        }
        let found = |at: &usize| part.get(*at..*at + SIZE).is_some_and(is_rounding);
        // Behind it may be moves, and before it the load of a constant.
        let mut places = (0..part.len()).filter(found);
        let (Some(at), None) = (places.next(), places.next()) else {
            return Err(format!("no stand-in, or several, in {part:02x?}"));
        };
        let instruction = instead_of(&part[at..at + SIZE]);
        part[at..at + SIZE].copy_from_slice(&instruction);
    }
    Ok(())
}

/// Makes a load that begins here one that fetches; `false` if it is none.
fn fetch(code: &mut [u8]) -> bool {
    // The prefix has the upper bits of the registers' numbers, first that of the one loaded into.
    let prefix = usize::from(code.first().is_some_and(|byte| byte & 0xf0 == 0x40));
    let Some([0x0f, opcode @ (MOVZX_BYTE | MOVZX_WORD), operands]) =
        code.get_mut(prefix..prefix + 3)
    else {
        return false;
    };
    *opcode = match *opcode {
        MOVZX_BYTE => PREFETCH,
        _ => PREFETCHW,
    };
    // Instead of the register stands what both are told by.
    *operands = *operands & 0xc7 | 1 << 3;
    if prefix == 1 {
        code[0] &= !4;
    }
    true
}

const MOVZX_BYTE: u8 = 0xb6;
const MOVZX_WORD: u8 = 0xb7;
const PREFETCH: u8 = 0x18;
const PREFETCHW: u8 = 0x0d;

/// Bytes of a stand-in: VEX prefix (3), opcode, registers, way to round.
const SIZE: usize = 6;
/// The maps of opcodes that the second byte names, besides upper bits of register numbers.
const MAP: u8 = 0x1f;
const MAP_0F38: u8 = 2;
const MAP_0F3A: u8 = 3;
/// The third byte: 128 bits, prefix 66, no third register.
const PLAIN: u8 = 0x79;
const VROUNDPD: u8 = 0x09;
const VCVTPH2PS: u8 = 0x13;
const VCVTPS2PH: u8 = 0x1d;
const NOP: u8 = 0x90;
const UP: u8 = 2;

/// Whether it is `vroundpd` of registers.
fn is_rounding(bytes: &[u8]) -> bool {
    matches!(bytes, [0xc4, map, PLAIN, VROUNDPD, 0xc0..=0xff, 1 | UP] if map & MAP == MAP_0F3A)
}

/// What a stand-in stands for.
fn instead_of(stand_in: &[u8]) -> [u8; SIZE] {
    let (extension, registers) = (stand_in[1] & !MAP, stand_in[4]);
    match stand_in[5] {
        // Here the register that is written is the second one. The upper bits of both numbers are
        // the first and the third bit of the extension.
        UP => {
            let swapped = extension & 0x40 | extension << 2 & 0x80 | extension >> 2 & 0x20;
            let registers = 0xc0 | registers << 3 & 0x38 | registers >> 3 & 7;
            [0xc4, swapped | MAP_0F3A, PLAIN, VCVTPS2PH, registers, 0]
        }
        _ => [0xc4, extension | MAP_0F38, PLAIN, VCVTPH2PS, registers, NOP],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As an assembler writes them, for registers with and without upper bits.
    #[test]
    fn registers_keep_their_places() {
        // vroundpd xmm1, xmm10, 1 is vcvtph2ps xmm1, xmm10.
        assert_eq!(
            instead_of(&[0xc4, 0xc3, 0x79, 0x09, 0xca, 1]),
            [0xc4, 0xc2, 0x79, 0x13, 0xca, NOP]
        );
        // vroundpd xmm1, xmm10, 2 is vcvtps2ph xmm1, xmm10, 0.
        assert_eq!(
            instead_of(&[0xc4, 0xc3, 0x79, 0x09, 0xca, 2]),
            [0xc4, 0x63, 0x79, 0x1d, 0xd1, 0]
        );
        // vroundpd xmm12, xmm3, 2 is vcvtps2ph xmm12, xmm3, 0.
        assert_eq!(
            instead_of(&[0xc4, 0x63, 0x79, 0x09, 0xe3, 2]),
            [0xc4, 0xc3, 0x79, 0x1d, 0xdc, 0]
        );
    }

    /// As an assembler writes them.
    #[test]
    fn loads_become_fetches() {
        for (load, fetches) in [
            // movzx eax, byte [rcx] is prefetcht0 [rcx].
            (&[0x0f, 0xb6, 0x01][..], &[0x0f, 0x18, 0x09][..]),
            // movzx r9d, byte [r10+r11*4+0x40] is prefetcht0 [r10+r11*4+0x40].
            (
                &[0x47, 0x0f, 0xb6, 0x4c, 0x9a, 0x40],
                &[0x43, 0x0f, 0x18, 0x4c, 0x9a, 0x40],
            ),
            // movzx r8d, word [rdx+0x1000] is prefetchw [rdx+0x1000].
            (
                &[0x44, 0x0f, 0xb7, 0x82, 0, 0x10, 0, 0],
                &[0x40, 0x0f, 0x0d, 0x8a, 0, 0x10, 0, 0],
            ),
        ] {
            let mut code = load.to_vec();
            assert!(fetch(&mut code));
            assert_eq!(code, fetches);
        }
        for other in [&[0x0f, 0xbe, 0x01][..], &[0x8b, 0x01], &[0x0f, 0xb6], &[]] {
            assert!(!fetch(&mut other.to_vec()), "{other:02x?}");
        }
    }

    /// What is no stand-in is never changed.
    #[test]
    fn others_are_refused() {
        for bytes in [
            // From memory, of 256 bits, of singles, to nearest.
            [0xc4, 0xe3, 0x79, 0x09, 0x0a, 1],
            [0xc4, 0xe3, 0x7d, 0x09, 0xca, 1],
            [0xc4, 0xe3, 0x79, 0x08, 0xca, 1],
            [0xc4, 0xe3, 0x79, 0x09, 0xca, 0],
        ] {
            assert!(!is_rounding(&bytes), "{bytes:02x?}");
        }
    }
}
