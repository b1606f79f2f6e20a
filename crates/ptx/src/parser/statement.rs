//! What stands in a body: labels, declarations, instructions and scopes.

use super::{Failed, Parsed, Parser};
use crate::ast::*;
use crate::lexer::Token;

impl Parser<'_> {
    /// The statements up to the closing brace, and the brace; the opening one is taken already.
    pub(super) fn block(&mut self) -> Parsed<Vec<Statement>> {
        let mut statements = Vec::new();
        loop {
            match self.token() {
                Token::CloseBrace => {
                    self.bump();
                    return Ok(statements);
                }
                Token::End => return Err(self.expected("`}`")),
                _ => {
                    if self.statement(&mut statements).is_err() {
                        if self.at_item() {
                            return Err(Failed);
                        }
                        self.recover_statement();
                    }
                }
            }
        }
    }

    fn statement(&mut self, out: &mut Vec<Statement>) -> Parsed<()> {
        match self.token() {
            Token::Ident if self.ahead(1) == Token::Colon => self.labelled(out),
            Token::Ident | Token::At => {
                let instruction = self.instruction()?;
                out.push(Statement::Instruction(instruction));
                Ok(())
            }
            Token::Dotted => match self.dotted() {
                Some("loc") => {
                    out.push(Statement::Loc(self.loc()?));
                    Ok(())
                }
                Some("pragma") => {
                    out.push(Statement::Pragma(self.pragma()?));
                    Ok(())
                }
                Some(word) if Space::from_name(word).is_some() => self
                    .variables(Linkage::Internal, |variable| {
                        out.push(Statement::Variable(variable))
                    }),
                // The next item begins, so this body was never closed.
                _ if self.at_item() => Err(self.expected("`}`")),
                _ => Err(self.expected("an instruction, a label or a directive such as `.reg`")),
            },
            Token::OpenBrace => {
                let start = self.at;
                let block = self.nested(|p| {
                    p.bump();
                    p.block()
                });
                if block.is_err() && self.at == start {
                    // Too deep: the error is told, and the scope is left out whole.
                    self.skip_braces();
                    return Ok(());
                }
                out.push(Statement::Block(block?));
                Ok(())
            }
            _ => Err(self.expected("an instruction, a label or a directive such as `.reg`")),
        }
    }

    /// `name:` and, where it names one, the list of targets or the prototype.
    fn labelled(&mut self, out: &mut Vec<Statement>) -> Parsed<()> {
        let pos = self.pos();
        let name = self.ident("a label")?;
        self.bump();
        out.push(match self.dotted() {
            Some("branchtargets") => {
                self.bump();
                Statement::BranchTargets(pos, name, self.targets("a label")?)
            }
            Some("calltargets") => {
                self.bump();
                Statement::CallTargets(pos, name, self.targets("the name of a function")?)
            }
            Some("callprototype") => {
                self.bump();
                let mut returns = Vec::new();
                if self.token() == Token::OpenParen {
                    returns = self.params()?;
                }
                if !self.eat(Token::Underscore) {
                    self.ident("`_`")?;
                }
                let mut params = Vec::new();
                if self.token() == Token::OpenParen {
                    params = self.params()?;
                }
                let directives = self.function_directives()?;
                self.expect(Token::Semicolon)?;
                Statement::CallPrototype(
                    pos,
                    name,
                    Prototype {
                        returns,
                        params,
                        directives,
                    },
                )
            }
            _ => Statement::Label(pos, name),
        });
        Ok(())
    }

    fn targets(&mut self, what: &str) -> Parsed<Vec<Ident>> {
        let names = self.comma_separated(|p| p.ident(what))?;
        if self.token() != Token::Semicolon {
            return Err(self.expected("`,` or `;`"));
        }
        self.bump();
        Ok(names)
    }

    fn instruction(&mut self) -> Parsed<Instruction> {
        let mut guard = None;
        if self.eat(Token::At) {
            let negated = self.eat(Token::Bang);
            guard = Some(Guard {
                negated,
                register: self.ident("a predicate register")?,
            });
        }
        let pos = self.pos();
        if self.token() == Token::Ident
            && !self.text().starts_with(|c: char| c.is_ascii_alphabetic())
        {
            return Err(self.expected("an instruction"));
        }
        let opcode = self.ident("an instruction")?;
        let mut modifiers = Vec::new();
        while let Some(modifier) = self.dotted() {
            let mut modifier = modifier.to_owned();
            self.bump();
            // A constant bank, `ld.const[2].f32`: an address in this place would be followed by no
            // modifier.
            if modifier == "const"
                && (self.token(), self.ahead(1), self.ahead(2), self.ahead(3))
                    == (
                        Token::OpenBracket,
                        Token::Int,
                        Token::CloseBracket,
                        Token::Dotted,
                    )
            {
                self.bump();
                modifier = format!("const[{}]", self.literal::<u32>()?);
                self.bump();
            }
            modifiers.push(modifier);
        }
        let call = opcode == "call";
        let mut operands = Vec::new();
        if matches!(self.token(), Token::CloseBrace | Token::End) {
            return Err(self.expected("an operand or `;`"));
        }
        if self.token() != Token::Semicolon {
            operands = self.comma_separated(|p| p.operand(call))?;
        }
        if self.token() != Token::Semicolon {
            return Err(self.expected("`,` or `;`"));
        }
        self.bump();
        Ok(Instruction {
            pos,
            guard,
            opcode,
            modifiers,
            operands,
        })
    }

    /// Goes on after an error in a statement: past its `;`, or at the brace that closes the scope.
    fn recover_statement(&mut self) {
        loop {
            match self.token() {
                Token::End => return,
                Token::Semicolon => return self.bump(),
                // A brace that an operand goes on after closes a vector, not the scope.
                Token::CloseBrace if !self.operand_goes_on(1) => return,
                _ if self.at_item() => return,
                _ => self.bump(),
            }
        }
    }

    fn operand_goes_on(&self, by: usize) -> bool {
        use Token::*;
        matches!(
            self.ahead(by),
            Comma | Semicolon | Or | CloseBracket | CloseParen
        )
    }
}
