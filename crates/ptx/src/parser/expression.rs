//! Numbers and constant expressions, folded as they are read.
//!
//! PTX's rules, where its document leaves room those of NVIDIA's assembler: integers are of 64
//! bits, signed unless a suffix, a cast or their size says otherwise; floating-point arithmetic is
//! in double; `0f` literals are exact singles and take no part in arithmetic.

use super::{Parsed, Parser};
use crate::ast::Immediate;
use crate::lexer::Token;

/// The operators by how tightly they bind; C's order.
fn precedence(token: Token) -> Option<u8> {
    Some(match token {
        Token::OrOr => 1,
        Token::AndAnd => 2,
        Token::Or => 3,
        Token::Caret => 4,
        Token::And => 5,
        Token::EqualEqual | Token::NotEqual => 6,
        Token::Less | Token::Greater | Token::LessEqual | Token::GreaterEqual => 7,
        Token::ShiftLeft | Token::ShiftRight => 8,
        Token::Plus | Token::Minus => 9,
        Token::Star | Token::Slash | Token::Percent => 10,
        _ => return None,
    })
}

const WARP_SIZE: Immediate = Immediate::Int {
    bits: 32,
    signed: true,
};

fn signed(value: i64) -> Immediate {
    Immediate::Int {
        bits: value as u64,
        signed: true,
    }
}

fn unsigned(bits: u64) -> Immediate {
    Immediate::Int {
        bits,
        signed: false,
    }
}

impl Parser<'_> {
    /// A constant expression; `what` says what else an error would call it.
    pub(super) fn expression(&mut self, what: &str) -> Parsed<Immediate> {
        let condition = self.binary(1, what)?;
        if self.token() != Token::Question {
            return Ok(condition);
        }
        let at = self.at;
        self.bump();
        self.nested(|p| {
            let then = p.expression(what)?;
            p.expect(Token::Colon)?;
            let otherwise = p.expression(what)?;
            let Immediate::Int { bits, .. } = condition else {
                return Err(p.error_at(at, "an integer condition before `?`"));
            };
            match (then, otherwise) {
                // The chosen one keeps its own type: ptxas does not bring the two to a common one.
                (Immediate::Int { .. }, Immediate::Int { .. })
                | (Immediate::F64(_), Immediate::F64(_)) => {
                    Ok(if bits != 0 { then } else { otherwise })
                }
                _ => Err(p.error_at(at, "two integers or two doubles after `?`")),
            }
        })
    }

    /// Operators that bind at least as tightly as `least`.
    fn binary(&mut self, least: u8, what: &str) -> Parsed<Immediate> {
        let mut left = self.unary(what)?;
        while let Some(level) = precedence(self.token()).filter(|level| *level >= least) {
            let (operator, at) = (self.token(), self.at);
            self.bump();
            let right = self.binary(level + 1, what)?;
            left = self.apply(operator, at, left, right)?;
        }
        Ok(left)
    }

    fn unary(&mut self, what: &str) -> Parsed<Immediate> {
        let (operator, at) = (self.token(), self.at);
        let cast = operator == Token::OpenParen
            && self.ahead(1) == Token::Dotted
            && matches!(self.text_at(at + 1), ".s64" | ".u64")
            && self.ahead(2) == Token::CloseParen;
        if cast {
            let to_signed = self.text_at(at + 1) == ".s64";
            self.bump();
            self.bump();
            self.bump();
            return match self.nested(|p| p.unary(what))? {
                Immediate::Int { bits, .. } => Ok(Immediate::Int {
                    bits,
                    signed: to_signed,
                }),
                _ => Err(self.error_at(at, "a cast of an integer")),
            };
        }
        if !matches!(
            operator,
            Token::Plus | Token::Minus | Token::Tilde | Token::Bang
        ) {
            return self.primary(what);
        }
        self.bump();
        let value = self.nested(|p| p.unary(what))?;
        Ok(match (operator, value) {
            (Token::Plus, value) => value,
            (Token::Minus, Immediate::Int { bits, signed }) => Immediate::Int {
                bits: bits.wrapping_neg(),
                signed,
            },
            (Token::Minus, Immediate::F64(bits)) => Immediate::F64(bits ^ 1 << 63),
            (Token::Tilde, Immediate::Int { bits, .. }) => Immediate::Int {
                bits: !bits,
                signed: false,
            },
            (_, Immediate::Int { bits, .. }) => signed(i64::from(bits == 0)),
            _ => return Err(self.error_at(at, "an operator for floating-point numbers")),
        })
    }

    fn primary(&mut self, what: &str) -> Parsed<Immediate> {
        match self.token() {
            Token::Int => {
                let bits = self.digits(what)?;
                let unsigned = self.text().ends_with('U') || bits > i64::MAX as u64;
                self.bump();
                Ok(Immediate::Int {
                    bits,
                    signed: !unsigned,
                })
            }
            Token::Single => {
                let digits = &self.text()[2..];
                match u32::from_str_radix(digits, 16) {
                    Ok(bits) if digits.len() == 8 => {
                        self.bump();
                        Ok(Immediate::F32(bits))
                    }
                    _ => Err(self.expected("`0f` and 8 hexadecimal digits")),
                }
            }
            Token::Double => {
                let digits = &self.text()[2..];
                match u64::from_str_radix(digits, 16) {
                    Ok(bits) if digits.len() == 16 => {
                        self.bump();
                        Ok(Immediate::F64(bits))
                    }
                    _ => Err(self.expected("`0d` and 16 hexadecimal digits")),
                }
            }
            Token::Decimal => self.decimal(),
            Token::Dotted if self.text()[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                self.decimal()
            }
            Token::Ident if self.at_warp_size() => {
                self.bump();
                Ok(WARP_SIZE)
            }
            Token::OpenParen => {
                self.bump();
                let value = self.nested(|p| p.expression("a number"))?;
                self.expect(Token::CloseParen)?;
                Ok(value)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// `1.5`, `.5`, `1e-3`: a double.
    fn decimal(&mut self) -> Parsed<Immediate> {
        // Rust's reading is correctly rounded, as PTX wants it, and it takes each of these
        // spellings.
        let Ok(value) = self.text().parse::<f64>() else {
            return Err(self.expected("a decimal number"));
        };
        self.bump();
        Ok(Immediate::F64(value.to_bits()))
    }

    pub(super) fn at_warp_size(&self) -> bool {
        self.token() == Token::Ident && self.text() == "WARP_SZ"
    }

    fn apply(
        &mut self,
        operator: Token,
        at: usize,
        left: Immediate,
        right: Immediate,
    ) -> Parsed<Immediate> {
        match (left, right) {
            (Immediate::Int { bits: a, signed: s }, Immediate::Int { bits: b, signed: t }) => {
                self.integers(operator, at, (a, s), (b, t))
            }
            (Immediate::F64(a), Immediate::F64(b)) => {
                let (a, b) = (f64::from_bits(a), f64::from_bits(b));
                let value = match operator {
                    Token::Plus => a + b,
                    Token::Minus => a - b,
                    Token::Star => a * b,
                    Token::Slash => a / b,
                    Token::Less => return Ok(signed(i64::from(a < b))),
                    Token::Greater => return Ok(signed(i64::from(a > b))),
                    Token::LessEqual => return Ok(signed(i64::from(a <= b))),
                    Token::GreaterEqual => return Ok(signed(i64::from(a >= b))),
                    Token::EqualEqual => return Ok(signed(i64::from(a == b))),
                    Token::NotEqual => return Ok(signed(i64::from(a != b))),
                    _ => return Err(self.error_at(at, "an operator for floating-point numbers")),
                };
                Ok(Immediate::F64(value.to_bits()))
            }
            _ => Err(self.error_at(at, "an operator between two integers or two doubles")),
        }
    }

    fn integers(
        &mut self,
        operator: Token,
        at: usize,
        (a, s): (u64, bool),
        (b, t): (u64, bool),
    ) -> Parsed<Immediate> {
        // The usual conversions: signed where both are.
        let both_signed = s && t;
        let order = if both_signed {
            (a as i64).cmp(&(b as i64))
        } else {
            a.cmp(&b)
        };
        let truth = |value: bool| Ok(signed(i64::from(value)));
        let bits = match operator {
            Token::Plus => a.wrapping_add(b),
            Token::Minus => a.wrapping_sub(b),
            Token::Star => a.wrapping_mul(b),
            Token::Slash | Token::Percent if b == 0 => {
                return Err(self.error_at(at + 1, "a divisor other than zero"));
            }
            Token::Slash if both_signed => (a as i64).wrapping_div(b as i64) as u64,
            Token::Slash => a / b,
            // A remainder is unsigned whatever its operands.
            Token::Percent => return Ok(unsigned(a % b)),
            // The amount counts modulo 64, as ptxas has it; the result is of the first operand's
            // type.
            Token::ShiftLeft => {
                return Ok(Immediate::Int {
                    bits: a << (b & 63),
                    signed: s,
                });
            }
            Token::ShiftRight if s => return Ok(signed(a as i64 >> (b & 63))),
            Token::ShiftRight => return Ok(unsigned(a >> (b & 63))),
            Token::And => a & b,
            Token::Or => a | b,
            Token::Caret => a ^ b,
            Token::AndAnd => return truth(a != 0 && b != 0),
            Token::OrOr => return truth(a != 0 || b != 0),
            Token::EqualEqual => return truth(order.is_eq()),
            Token::NotEqual => return truth(order.is_ne()),
            Token::Less => return truth(order.is_lt()),
            Token::LessEqual => return truth(order.is_le()),
            Token::Greater => return truth(order.is_gt()),
            Token::GreaterEqual => return truth(order.is_ge()),
            _ => return Err(self.error_at(at, "an operator for integers")),
        };
        Ok(Immediate::Int {
            bits,
            signed: both_signed,
        })
    }

    /// The value of the integer token that stands here, without taking it.
    fn digits(&mut self, what: &str) -> Parsed<u64> {
        if self.token() != Token::Int {
            return Err(self.expected(what));
        }
        let text = self.text();
        let text = text.strip_suffix('U').unwrap_or(text);
        let (digits, radix) = match text.as_bytes() {
            [b'0', b'x' | b'X', ..] => (&text[2..], 16),
            [b'0', b'b' | b'B', ..] => (&text[2..], 2),
            [b'0', _, ..] => (&text[1..], 8),
            _ => (text, 10),
        };
        u64::from_str_radix(digits, radix).map_err(|error| match error.kind() {
            std::num::IntErrorKind::PosOverflow => self.expected("an integer of 64 bits"),
            _ => self.expected("an octal number after `0`"),
        })
    }

    /// An integer literal that fits: a count, an index, an alignment, a line.
    pub(super) fn literal<T: TryFrom<u64>>(&mut self) -> Parsed<T> {
        let value = self.digits("an integer")?;
        let Ok(value) = T::try_from(value) else {
            return Err(self.expected(&format!("an integer of {} bits", 8 * size_of::<T>())));
        };
        self.bump();
        Ok(value)
    }

    fn integer(&mut self) -> Parsed<(u64, bool)> {
        let at = self.at;
        match self.expression("an integer")? {
            Immediate::Int { bits, signed } => Ok((bits, signed)),
            _ => Err(self.error_at(at, "an integer")),
        }
    }

    /// An integer expression that is not negative: a dimension.
    pub(super) fn unsigned(&mut self) -> Parsed<u64> {
        let at = self.at;
        match self.integer()? {
            (bits, true) if (bits as i64) < 0 => {
                Err(self.error_at(at, "an integer that is not negative"))
            }
            (bits, _) => Ok(bits),
        }
    }

    /// An integer expression with its sign.
    pub(super) fn wide_integer(&mut self) -> Parsed<i128> {
        let (bits, signed) = self.integer()?;
        Ok(if signed {
            i128::from(bits as i64)
        } else {
            i128::from(bits)
        })
    }

    /// `+` and a constant expression: what is added to a symbol or a register; 0 if nothing is.
    ///
    /// As for ptxas, nothing is subtracted: `[%p-4]` is written `[%p+-4]`.
    pub(super) fn offset(&mut self) -> Parsed<i64> {
        if !self.eat(Token::Plus) {
            return Ok(0);
        }
        let at = self.at;
        match self.expression("an offset")? {
            Immediate::Int { bits, .. } => Ok(bits as i64),
            _ => Err(self.error_at(at, "an integer offset")),
        }
    }
}
