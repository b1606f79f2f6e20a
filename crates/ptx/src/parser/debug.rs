//! Debug data: `.file`, `.loc` and the `.section`s of DWARF.

use super::{Parsed, Parser};
use crate::ast::{InlinedAt, Item, Loc, SectionLine, SectionValue};
use crate::lexer::Token;

impl Parser<'_> {
    /// `.file index "name" [, timestamp, size]`
    pub(super) fn file(&mut self) -> Parsed<Item> {
        self.bump();
        let index = self.literal()?;
        let name = self.string()?;
        let mut stamp = None;
        if self.eat(Token::Comma) {
            let timestamp = self.literal()?;
            self.expect(Token::Comma)?;
            stamp = Some((timestamp, self.literal()?));
        }
        Ok(Item::File { index, name, stamp })
    }

    /// `.loc file line column [, function_name label [+ n], inlined_at file line column]`
    pub(super) fn loc(&mut self) -> Parsed<Loc> {
        self.bump();
        let (file, line, column) = self.place()?;
        let mut inlined = None;
        if self.eat(Token::Comma) {
            self.keyword("function_name")?;
            let function = self.ident("a label of the debug strings")?;
            let offset = self.label_offset()?;
            self.expect(Token::Comma)?;
            self.keyword("inlined_at")?;
            inlined = Some(InlinedAt {
                function,
                offset,
                at: self.place()?,
            });
        }
        Ok(Loc {
            file,
            line,
            column,
            inlined,
        })
    }

    fn place(&mut self) -> Parsed<(u32, u32, u32)> {
        Ok((self.literal()?, self.literal()?, self.literal()?))
    }

    fn keyword(&mut self, word: &str) -> Parsed<()> {
        if self.token() != Token::Ident || self.text() != word {
            return Err(self.expected(&format!("`{word}`")));
        }
        self.bump();
        Ok(())
    }

    /// `.section name { label: .b8 1, 2 ... }`
    pub(super) fn section(&mut self) -> Parsed<Item> {
        self.bump();
        if self.token() != Token::Dotted {
            return Err(self.expected("the name of a section, with its dot"));
        }
        let name = self.text().to_owned();
        self.bump();
        self.expect(Token::OpenBrace)?;
        let mut lines = Vec::new();
        loop {
            match (self.token(), self.dotted()) {
                (Token::CloseBrace, _) => {
                    self.bump();
                    return Ok(Item::Section { name, lines });
                }
                (Token::Ident, _) => {
                    lines.push(SectionLine::Label(self.ident("a label")?));
                    self.expect(Token::Colon)?;
                }
                (_, Some(ty @ ("b8" | "b16" | "b32" | "b64"))) => {
                    self.bump();
                    let values = self.comma_separated(Self::section_value)?;
                    lines.push(SectionLine::Data {
                        ty: ty.to_owned(),
                        values,
                    });
                }
                _ => return Err(self.expected("a label, `.b8`, `.b16`, `.b32`, `.b64` or `}`")),
            }
        }
    }

    fn section_value(&mut self) -> Parsed<SectionValue> {
        if !matches!(self.token(), Token::Ident | Token::Dotted) {
            return Ok(SectionValue::Int(self.wide_integer()?));
        }
        let symbol = self.text().to_owned();
        self.bump();
        if self.token() == Token::Minus && matches!(self.ahead(1), Token::Ident | Token::Dotted) {
            self.bump();
            let from = self.text().to_owned();
            self.bump();
            return Ok(SectionValue::Difference(symbol, from));
        }
        Ok(SectionValue::Symbol(symbol, self.label_offset()?))
    }

    /// `+` and a number: what is added to a label of a section; 0 if nothing is.
    fn label_offset(&mut self) -> Parsed<i64> {
        match self.eat(Token::Plus) {
            true => self.literal(),
            false => Ok(0),
        }
    }
}
