//! Instructions that Cranelift does not have. It compiles a stand-in with the same operands, whose
//! bytes are changed when the machine code is there.
//!
//! | stand-in | instruction | result |
//! |---|---|---|
//! | `floor.f64x2` | `vcvtph2ps` | the four `.f16` in the lower half of a vector, as singles |
//! | `ceil.f64x2` | `vcvtps2ph` | four singles, rounded to nearest `.f16`, in the lower half |
//!
//! Lowering makes these for nothing else: doubles are rounded one at a time. Their operands are
//! computed, or used elsewhere too: Cranelift takes from memory what is loaded for one use alone.
//! The optimizer knows nothing about them but that they are pure. Where each one's code begins is
//! told by a source location, which it gets after optimization.

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
    matches!(func.dfg.insts[inst].opcode(), Opcode::Floor | Opcode::Ceil)
        && func.dfg.value_type(func.dfg.first_result(inst)) == types::F64X2
}

/// Puts the instructions where their stand-ins are: one in the bytes of each location.
pub(super) fn replace(code: &mut [u8], locations: Vec<Range<u32>>) -> Result<(), String> {
    for location in locations {
        let part = code.get_mut(location.start as usize..location.end as usize);
        let part = part.ok_or("a location is outside of the code")?;
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
