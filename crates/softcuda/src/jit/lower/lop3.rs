//! `lop3`: any function of three words.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use ptx::ast::{Immediate, Type};

use super::Lower;
use crate::jit::decode::{Arg, Operation, Reader, Refusal};

/// `lop3.b32`, with its optional predicate result.
#[derive(Debug)]
struct Lop3 {
    dst: Arg,
    predicate: Option<(Arg, Boolean, Arg)>,
    sources: [Arg; 3],
    table: u8,
}

#[derive(Clone, Copy, Debug)]
enum Boolean {
    And,
    Or,
}

/// Decodes it.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let boolean = r.eat_any(&[("and", Boolean::And), ("or", Boolean::Or)]);
    r.ty_of(&[Type::B32])?;
    let (dst, predicate, [a, b, c, table]) = match boolean {
        None => {
            let [dst, a, b, c, table] = r.finish()?;
            (dst, None, [a, b, c, table])
        }
        Some(boolean) => {
            let [pair, a, b, c, table, q] = r.finish()?;
            let Arg::Pair(dst, p) = pair else {
                return Err(r.invalid("needs a destination of the form d|p".into()));
            };
            (*dst, Some((*p, boolean, q)), [a, b, c, table])
        }
    };
    match table {
        Arg::Imm(Immediate::Int { bits, .. }) if bits < 256 => Ok(Box::new(Lop3 {
            dst,
            predicate,
            sources: [a, b, c],
            table: bits as u8,
        })),
        _ => Err(r.invalid("needs a constant look-up table from 0 to 255".into())),
    }
}

impl Operation for Lop3 {
    fn pure(&self) -> bool {
        true
    }

    fn vectorizes(&self) -> bool {
        self.predicate.is_none()
    }

    fn lower(&self, l: &mut Lower<'_>) {
        let [a, b, c] = [0, 1, 2].map(|i| l.read(&self.sources[i], Type::B32));
        // A sum of minterms over the truth table, with the forms compilers emit most as one or two
        // instructions.
        let result = match self.table {
            0x00 => l.word(0),
            0xff => l.word(-1),
            0x80 => {
                let ab = l.b.ins().band(a, b);
                l.b.ins().band(ab, c)
            }
            0xfe => {
                let ab = l.b.ins().bor(a, b);
                l.b.ins().bor(ab, c)
            }
            0x96 => {
                let ab = l.b.ins().bxor(a, b);
                l.b.ins().bxor(ab, c)
            }
            0xca => l.b.ins().bitselect(a, b, c),
            table => {
                // c chooses between two functions of a and b.
                let [when_set, when_clear] = [1, 0].map(|bit| {
                    let half = (0..4).fold(0, |half, i| half | (table >> (2 * i + bit) & 1) << i);
                    two_input(l, half, a, b)
                });
                l.b.ins().bitselect(c, when_set, when_clear)
            }
        };
        if let Some((p, boolean, q)) = &self.predicate {
            let nonzero = l.b.ins().icmp_imm(IntCC::NotEqual, result, 0);
            let q = l.read(q, Type::Pred);
            let value = match boolean {
                Boolean::And => l.b.ins().band(nonzero, q),
                Boolean::Or => l.b.ins().bor(nonzero, q),
            };
            l.write(p, Type::Pred, value);
        }
        l.write(&self.dst, Type::B32, result);
    }
}

/// The function of two inputs whose value for (a, b) is bit `2a + b` of `table`.
fn two_input(l: &mut Lower<'_>, table: u8, a: Value, b: Value) -> Value {
    match table & 15 {
        0 => l.word(0),
        1 => {
            let either = l.b.ins().bor(a, b);
            l.b.ins().bnot(either)
        }
        2 => l.b.ins().band_not(b, a),
        3 => l.b.ins().bnot(a),
        4 => l.b.ins().band_not(a, b),
        5 => l.b.ins().bnot(b),
        6 => l.b.ins().bxor(a, b),
        7 => {
            let both = l.b.ins().band(a, b);
            l.b.ins().bnot(both)
        }
        8 => l.b.ins().band(a, b),
        9 => {
            let differ = l.b.ins().bxor(a, b);
            l.b.ins().bnot(differ)
        }
        10 => b,
        11 => {
            let not = l.b.ins().bnot(a);
            l.b.ins().bor(not, b)
        }
        12 => a,
        13 => {
            let not = l.b.ins().bnot(b);
            l.b.ins().bor(a, not)
        }
        14 => l.b.ins().bor(a, b),
        _ => l.word(-1),
    }
}
