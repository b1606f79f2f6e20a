//! Bits that are worked on by a function of the host: fields with counts known at run time only,
//! `fns`, `szext`, `bmsk`, `prmt`.

use super::bits::field_mask;
use crate::jit::runtime::runtime;

/// `bfe`, as the ISA's pseudocode has it: bits beyond the word are the sign of the field.
fn bfe(a: u64, pos: u32, len: u32, width: u32, signed: bool) -> u64 {
    let (pos, len) = (pos & 255, len & 255);
    let bit = |at: u32| a >> at.min(63) & 1;
    let sign = match () {
        () if !signed || len == 0 => 0,
        () => bit((pos + len - 1).min(width - 1)),
    };
    (0..width).fold(0, |value, i| {
        let from = pos.saturating_add(i);
        let set = if i < len && from < width {
            bit(from)
        } else {
            sign
        };
        value | set << i
    })
}

fn bfi(a: u64, b: u64, pos: u32, len: u32, width: u64) -> u64 {
    let mask = field_mask(u64::from(pos & 255), u64::from(len & 255), width);
    let up = if pos & 255 >= 64 { 0 } else { a << (pos & 255) };
    (up & mask) | (b & !mask)
}

/// `prmt` by a selector in the default form.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |value, i| {
        let pick = selector >> (4 * i) & 15;
        let byte = (bytes >> (8 * (pick & 7))) as u8;
        let byte = if pick & 8 != 0 {
            ((byte as i8) >> 7) as u8
        } else {
            byte
        };
        value | u32::from(byte) << (8 * i)
    })
}

runtime! {
    /// `fns.b32`
    FNS = fn fns(mask: u32, base: u32, offset: i32) -> u32 {
        // The ISA leaves bases beyond the word open.
        if base > 31 {
            return u32::MAX;
        }
        let set = |bit: u32| mask >> bit & 1 == 1;
        let found = match offset {
            0 => set(base).then_some(base),
            1.. => (base..32).filter(|&bit| set(bit)).nth(offset as usize - 1),
            _ => (0..=base).rev().filter(|&bit| set(bit)).nth(offset.unsigned_abs() as usize - 1),
        };
        found.unwrap_or(u32::MAX)
    }

    /// `bfe.u32`
    BFE_U32 = fn bfe_u32(a: u32, pos: u32, len: u32) -> u32 { bfe(u64::from(a), pos, len, 32, false) as u32 }
    /// `bfe.s32`
    BFE_S32 = fn bfe_s32(a: u32, pos: u32, len: u32) -> u32 { bfe(u64::from(a), pos, len, 32, true) as u32 }
    /// `bfe.u64`
    BFE_U64 = fn bfe_u64(a: u64, pos: u32, len: u32) -> u64 { bfe(a, pos, len, 64, false) }
    /// `bfe.s64`
    BFE_S64 = fn bfe_s64(a: u64, pos: u32, len: u32) -> u64 { bfe(a, pos, len, 64, true) }
    /// `bfi.b32`
    BFI_B32 = fn bfi_b32(a: u32, b: u32, pos: u32, len: u32) -> u32 { bfi(u64::from(a), u64::from(b), pos, len, 32) as u32 }
    /// `bfi.b64`
    BFI_B64 = fn bfi_b64(a: u64, b: u64, pos: u32, len: u32) -> u64 { bfi(a, b, pos, len, 64) }

    /// `szext.u32`: the low bits of `a`, zero-extended; the count clamps at 32 or wraps.
    SZEXT_U32 = fn szext_u32(a: u32, bits: u32, wrap: u32) -> u32 {
        match if wrap != 0 { bits & 31 } else { bits.min(32) } {
            32 => a,
            bits => a & ((1 << bits) - 1),
        }
    }
    /// `szext.s32`: the low bits of `a`, sign-extended.
    SZEXT_S32 = fn szext_s32(a: u32, bits: u32, wrap: u32) -> u32 {
        match if wrap != 0 { bits & 31 } else { bits.min(32) } {
            0 => 0,
            bits => ((a << (32 - bits)) as i32 >> (32 - bits)) as u32,
        }
    }
    /// `bmsk.b32`: `len` ones from `pos`.
    BMSK = fn bmsk(pos: u32, len: u32, wrap: u32) -> u32 {
        let (pos, len) = if wrap != 0 { (pos & 31, len & 31) } else { (pos, len) };
        field_mask(u64::from(pos), u64::from(len), 32) as u32
    }

    /// `prmt.b32`
    PRMT = fn prmt(a: u32, b: u32, selector: u32) -> u32 { permute(a, b, selector) }
    /// `prmt.b32.mode`: the two low bits of the selector choose one of four permutations.
    PRMT_MODE = fn prmt_mode(a: u32, b: u32, selector: u32, mode: u32) -> u32 {
        const TABLES: [[u32; 4]; 6] = [
            [0x3210, 0x4321, 0x5432, 0x6543], // f4e
            [0x5670, 0x6701, 0x7012, 0x0123], // b4e
            [0x0000, 0x1111, 0x2222, 0x3333], // rc8
            [0x3210, 0x3211, 0x3222, 0x3333], // ecl
            [0x0000, 0x1110, 0x2210, 0x3210], // ecr
            [0x1010, 0x3232, 0x1010, 0x3232], // rc16
        ];
        permute(a, b, TABLES[mode as usize - 1][selector as usize & 3])
    }
}

#[cfg(test)]
mod tests {
    use super::super::bits::Permute;
    use super::*;

    #[test]
    fn prmt_modes_are_the_isa_tables() {
        let (a, b) = (0x3322_1100, 0x7766_5544);
        let all = |mode: Permute| [0, 1, 2, 3].map(|s| prmt_mode(a, b, s, mode as u32));
        assert_eq!(
            all(Permute::F4e),
            [0x3322_1100, 0x4433_2211, 0x5544_3322, 0x6655_4433]
        );
        assert_eq!(
            all(Permute::B4e),
            [0x5566_7700, 0x6677_0011, 0x7700_1122, 0x0011_2233]
        );
        assert_eq!(
            all(Permute::Rc8),
            [0, 0x1111_1111, 0x2222_2222, 0x3333_3333]
        );
        assert_eq!(
            all(Permute::Ecl),
            [0x3322_1100, 0x3322_1111, 0x3322_2222, 0x3333_3333]
        );
        assert_eq!(
            all(Permute::Ecr),
            [0, 0x1111_1100, 0x2222_1100, 0x3322_1100]
        );
        assert_eq!(
            all(Permute::Rc16),
            [0x1100_1100, 0x3322_3322, 0x1100_1100, 0x3322_3322]
        );
        // The sign of a byte, spread.
        assert_eq!(prmt(0x0080_7f00, 0xff00_0000, 0xfa98), 0xffff_0000);
    }

    #[test]
    fn fields_beyond_the_word() {
        assert_eq!(bfe_u32(0xdead_beef, 8, 16), 0xadbe);
        assert_eq!(bfe_s32(0xdead_beef, 8, 16), 0xffff_adbe);
        assert_eq!(bfe_s32(0x8000_0000, 31, 5), 0xffff_ffff);
        assert_eq!(bfe_u32(0x8000_0000, 31, 5), 1);
        assert_eq!(bfe_s32(0x8000_0000, 40, 5), 0xffff_ffff);
        assert_eq!(bfe_u32(!0, 0, 0), 0);
        assert_eq!(bfe_s32(!0, 0, 0), 0);
        assert_eq!(bfe_u64(!0, 0, 64), !0);
        assert_eq!(bfe_u64(!0, 60, 255), 15);
        assert_eq!(bfi_b32(0xff, 0x1234_5678, 8, 8), 0x1234_ff78);
        assert_eq!(bfi_b32(0xff, 0x1234_5678, 28, 8), 0xf234_5678);
        assert_eq!(bfi_b32(0xff, 0x1234_5678, 32, 8), 0x1234_5678);
        assert_eq!(bfi_b64(!0, 0, 0, 255), !0);
        assert_eq!(bmsk(30, 5, 0), 0xc000_0000);
        assert_eq!(bmsk(34, 5, 1), 0x7c);
        assert_eq!(bmsk(0, 32, 0), !0);
        assert_eq!(szext_s32(0x80, 8, 0), 0xffff_ff80);
        assert_eq!(szext_u32(!0, 33, 0), !0);
        assert_eq!(szext_u32(!0, 33, 1), 1);
    }

    #[test]
    fn fns_counts_from_base_both_ways() {
        assert_eq!(fns(0b1011_0110, 0, 1), 1);
        assert_eq!(fns(0b1011_0110, 2, 3), 5);
        assert_eq!(fns(0b1011_0110, 7, -2), 5);
        assert_eq!(fns(0b1011_0110, 3, 0), u32::MAX);
        assert_eq!(fns(0b1011_0110, 4, 0), 4);
        assert_eq!(fns(0, 4, 1), u32::MAX);
        assert_eq!(fns(!0, 40, 1), u32::MAX);
        assert_eq!(fns(!0, 0, i32::MIN), u32::MAX);
    }
}
