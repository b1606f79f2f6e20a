//! The operands of instructions.

use super::{Parsed, Parser};
use crate::ast::{Address, AddressBase, Immediate, Index, Operand};
use crate::lexer::Token;

impl Parser<'_> {
    /// One operand. Parentheses hold a list of operands in a `call`, and part of an expression
    /// elsewhere.
    pub(super) fn operand(&mut self, call: bool) -> Parsed<Operand> {
        let first = match self.token() {
            Token::OpenBrace => self.nested(|p| {
                p.bump();
                let elements = p.comma_separated(|p| p.operand(false))?;
                if p.token() != Token::CloseBrace {
                    return Err(p.expected("`,` or `}`"));
                }
                p.bump();
                Ok(Operand::Vector(elements))
            })?,
            Token::OpenBracket => self.nested(Self::address)?,
            Token::OpenParen if call => {
                self.bump();
                let mut list = Vec::new();
                if self.token() != Token::CloseParen {
                    list = self.comma_separated(|p| p.operand(false))?;
                }
                if self.token() != Token::CloseParen {
                    return Err(self.expected("`,` or `)`"));
                }
                self.bump();
                Operand::List(list)
            }
            Token::Bang if self.ahead(1) == Token::Ident && !self.is_warp_size(1) => {
                self.bump();
                Operand::Not(Box::new(self.named()?))
            }
            Token::Minus if self.ahead(1) == Token::Ident && !self.is_warp_size(1) => {
                self.bump();
                Operand::Negate(Box::new(self.named()?))
            }
            // The named constant stays a name where it stands alone.
            Token::Minus if self.is_warp_size(1) && self.ends_operand(2) => {
                self.bump();
                Operand::Negate(Box::new(self.named()?))
            }
            Token::Ident if self.at_warp_size() && !self.ends_operand(1) => {
                Operand::Immediate(self.expression("an operand")?)
            }
            Token::Ident => match (self.named()?, self.token()) {
                (Operand::Name(name), Token::Plus) => Operand::Offset(name, self.offset()?),
                (Operand::Name(name), Token::OpenBracket) => {
                    let index = self.nested(Self::index)?;
                    Operand::Element(name, index)
                }
                (named, _) => named,
            },
            Token::Underscore => {
                self.bump();
                Operand::Sink
            }
            _ => Operand::Immediate(self.expression("an operand")?),
        };
        if !self.eat(Token::Or) {
            return Ok(first);
        }
        let second = match self.token() {
            Token::Underscore => {
                self.bump();
                Operand::Sink
            }
            _ => self.named()?,
        };
        Ok(Operand::Pair(Box::new(first), Box::new(second)))
    }

    fn is_warp_size(&self, by: usize) -> bool {
        self.ahead(by) == Token::Ident && self.text_at(self.at + by) == "WARP_SZ"
    }

    fn ends_operand(&self, by: usize) -> bool {
        use Token::*;
        matches!(
            self.ahead(by),
            Comma | Semicolon | CloseBrace | CloseBracket | CloseParen | End
        )
    }

    /// `name` or `name.component`.
    fn named(&mut self) -> Parsed<Operand> {
        let name = self.ident("a name")?;
        match self.dotted() {
            Some(component) => {
                self.bump();
                Ok(Operand::Member(name, component.to_owned()))
            }
            None => Ok(Operand::Name(name)),
        }
    }

    /// `[index]` behind the name of an array.
    fn index(&mut self) -> Parsed<Index> {
        self.bump();
        let index = match self.token() {
            Token::Ident if !self.at_warp_size() => Index {
                register: Some(self.ident("a register")?),
                offset: self.offset()?,
            },
            _ => {
                let at = self.at;
                match self.expression("an index")? {
                    Immediate::Int { bits, .. } => Index {
                        register: None,
                        offset: bits as i64,
                    },
                    _ => return Err(self.error_at(at, "an integer index")),
                }
            }
        };
        if self.token() != Token::CloseBracket {
            return Err(self.expected("`+` or `]`"));
        }
        self.bump();
        Ok(index)
    }

    /// `[base+offset]`, `[base, operand, ...]`
    fn address(&mut self) -> Parsed<Operand> {
        self.bump();
        let base = match self.token() {
            Token::Ident if !self.at_warp_size() => AddressBase::Name(self.ident("a name")?),
            _ => {
                let at = self.at;
                match self.expression("an address")? {
                    Immediate::Int { bits, .. } => AddressBase::Immediate(bits),
                    _ => return Err(self.error_at(at, "an integer address")),
                }
            }
        };
        let offset = self.offset()?;
        let mut rest = Vec::new();
        if self.eat(Token::Comma) {
            rest = self.comma_separated(|p| p.operand(false))?;
        }
        if self.token() != Token::CloseBracket {
            return Err(self.expected("`+`, `,` or `]`"));
        }
        self.bump();
        Ok(Operand::Address(Address { base, offset, rest }))
    }
}
