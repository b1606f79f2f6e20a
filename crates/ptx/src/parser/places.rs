//! Where items stand in the source, for those who edit its text.

use std::ops::Range;

use super::Parser;
use crate::ast::Space;
use crate::lexer::Token;

/// Where an item stands: its bytes in the source, from its first token to its last.
pub(crate) struct Places {
    /// Variables of one declaration share it.
    pub item: Range<usize>,
    /// The parts of a function.
    pub function: Option<FunctionPlaces>,
}

/// Where the parts of a function stand.
pub(crate) struct FunctionPlaces {
    /// Its name.
    pub name: Range<usize>,
    /// What stands between the parentheses of its parameters, up to the last token there; `None`
    /// without parentheses.
    pub params: Option<Range<usize>>,
    /// The first statement of the body that is no declaration, or the brace that closes the body;
    /// `None` without a body.
    pub first_statement: Option<usize>,
}

impl Parser<'_> {
    /// Notes that the items up to number `count` began at token `start`, and end here.
    pub(super) fn place_items(&mut self, start: usize, count: usize) {
        let item = self.tokens[start].start as usize..self.tokens[self.at - 1].end as usize;
        let mut function = self.function.take();
        while self.places.len() < count {
            self.places.push(Places {
                item: item.clone(),
                function: function.take(),
            });
        }
    }

    /// Notes where the parts of a function stand: its name at a token, its parameters with their
    /// parentheses at several or none, and its body, if any, at the current one.
    pub(super) fn place_function(&mut self, name: usize, list: Range<usize>) {
        let bytes = |at: usize| self.tokens[at].start as usize..self.tokens[at].end as usize;
        self.function = Some(FunctionPlaces {
            name: bytes(name),
            params: (!list.is_empty()).then(|| bytes(list.start).end..bytes(list.end - 2).end),
            first_statement: (self.token() == Token::OpenBrace)
                .then(|| bytes(self.first_statement(self.at + 1)).start),
        });
    }

    /// The token at which the declarations that begin at token `at` are over.
    fn first_statement(&self, mut at: usize) -> usize {
        let is_declaration = |at: usize| {
            self.tokens[at].token == Token::Dotted
                && Space::from_name(&self.text_at(at)[1..]).is_some()
        };
        while is_declaration(at) {
            // No declaration has a `;` in it.
            while !matches!(self.tokens[at].token, Token::Semicolon | Token::End) {
                at += 1;
            }
            at = (at + 1).min(self.tokens.len() - 1);
        }
        at
    }
}
