//! Tokens to the syntax tree, by recursive descent.
//!
//! Every rule that fails has told its error, and answers [`Failed`]; the rule that can go on (a
//! statement, an item) then skips to where the next of its kind begins. Nesting is bounded by
//! [`MAX_DEPTH`], so neither parsing nor dropping nor printing a tree costs more stack than that,
//! and each step of a loop takes at least one token, so time is linear in the source.

mod debug;
mod directive;
mod expression;
mod operand;
mod places;
mod statement;

pub(crate) use places::{FunctionPlaces, Places};

use crate::ast::{Module, Pos};
use crate::error::{Error, Errors, MAX_ERRORS};
use crate::lexer::{self, Lexeme, Token};

/// How deep scopes, initializers, operands and expressions may nest, all together. nvcc needs
/// three.
const MAX_DEPTH: u32 = 128;

/// Parses a PTX source.
///
/// # Errors
/// All errors found, up to fifty: after one, parsing goes on at the next statement or directive.
pub fn parse(source: &str) -> Result<Module, Errors> {
    parse_with_places(source).map(|(module, _)| module)
}

/// Parses a PTX source, and says where each item of the module stands in it.
pub(crate) fn parse_with_places(source: &str) -> Result<(Module, Vec<Places>), Errors> {
    let Ok(_) = u32::try_from(source.len()) else {
        let found = format!("{} bytes", source.len());
        let pos = Pos { line: 1, column: 1 };
        return Err(Errors::new(vec![Error {
            pos,
            found,
            expected: "a source of less than 4 GiB".into(),
        }]));
    };
    let mut parser = Parser {
        source,
        tokens: lexer::tokens(source),
        at: 0,
        depth: 0,
        lines: Vec::new(),
        places: Vec::new(),
        function: None,
        errors: vec![],
        told: None,
    };
    parser.lines = std::iter::once(0)
        .chain(newlines(source).map(|at| at + 1))
        .collect();
    match parser.module() {
        Ok(module) if parser.errors.is_empty() => Ok((module, parser.places)),
        _ => Err(Errors::new(parser.errors)),
    }
}

/// Parses a PTX source as a driver receives it: bytes that should be UTF-8, and that one or more
/// NUL may end.
///
/// # Errors
/// Those of [`parse`]; the first byte that is not UTF-8.
pub fn parse_bytes(source: &[u8]) -> Result<Module, Errors> {
    let end = source
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    match std::str::from_utf8(&source[..end]) {
        Ok(source) => parse(source),
        Err(error) => {
            let valid = &source[..error.valid_up_to()];
            let line = valid.iter().filter(|byte| **byte == b'\n').count() as u32 + 1;
            let column = valid
                .iter()
                .rev()
                .take_while(|byte| **byte != b'\n')
                .count() as u32
                + 1;
            let found = format!("the byte 0x{:02X}", source[error.valid_up_to()]);
            Err(Errors::new(vec![Error {
                pos: Pos { line, column },
                found,
                expected: "UTF-8 text".into(),
            }]))
        }
    }
}

fn newlines(source: &str) -> impl Iterator<Item = u32> + '_ {
    source
        .bytes()
        .enumerate()
        .filter(|(_, byte)| *byte == b'\n')
        .map(|(at, _)| at as u32)
}

/// A rule did not match, and its error is told.
struct Failed;

type Parsed<T> = Result<T, Failed>;

struct Parser<'s> {
    source: &'s str,
    /// Ends with [`Token::End`], which is never passed.
    tokens: Vec<Lexeme>,
    /// The current token.
    at: usize,
    depth: u32,
    /// Where each line starts.
    lines: Vec<u32>,
    /// Where the items read so far stand.
    places: Vec<Places>,
    /// Where the parts of the function read last stand, until its item is over.
    function: Option<FunctionPlaces>,
    errors: Vec<Error>,
    /// The token of the last error.
    told: Option<usize>,
}

impl<'s> Parser<'s> {
    fn token(&self) -> Token {
        self.tokens[self.at].token
    }

    fn ahead(&self, by: usize) -> Token {
        self.tokens
            .get(self.at + by)
            .map_or(Token::End, |lexeme| lexeme.token)
    }

    fn text(&self) -> &'s str {
        self.text_at(self.at)
    }

    fn text_at(&self, at: usize) -> &'s str {
        let lexeme = self.tokens[at];
        &self.source[lexeme.start as usize..lexeme.end as usize]
    }

    /// The current token without its dot, if it has one.
    fn dotted(&self) -> Option<&'s str> {
        (self.token() == Token::Dotted).then(|| &self.text()[1..])
    }

    fn pos(&self) -> Pos {
        self.pos_of(self.at)
    }

    fn pos_of(&self, at: usize) -> Pos {
        let start = self.tokens[at].start;
        let line = self.lines.partition_point(|line| *line <= start);
        Pos {
            line: line as u32,
            column: start - self.lines[line - 1] + 1,
        }
    }

    fn bump(&mut self) {
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    fn eat(&mut self, token: Token) -> bool {
        let found = self.token() == token;
        if found {
            self.bump();
        }
        found
    }

    fn expect(&mut self, token: Token) -> Parsed<()> {
        if self.eat(token) {
            Ok(())
        } else {
            Err(self.expected(token.description()))
        }
    }

    /// Takes `.word`, if that is what stands here.
    fn eat_dotted(&mut self, word: &str) -> bool {
        let found = self.dotted() == Some(word);
        if found {
            self.bump();
        }
        found
    }

    fn ident(&mut self, what: &str) -> Parsed<String> {
        if self.token() != Token::Ident {
            return Err(self.expected(what));
        }
        let name = self.text().to_owned();
        self.bump();
        Ok(name)
    }

    /// Takes `rule {, rule}`.
    fn comma_separated<T>(
        &mut self,
        mut rule: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut list = vec![rule(self)?];
        while self.eat(Token::Comma) {
            list.push(rule(self)?);
        }
        Ok(list)
    }

    /// Runs a rule one level deeper, or fails where that is too deep.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.expected(&format!("at most {MAX_DEPTH} levels of nesting")));
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// Tells that `what` was expected where the current token stands.
    fn expected(&mut self, what: &str) -> Failed {
        self.error_at(self.at, what)
    }

    /// Tells that `what` was expected where the token `at` stands.
    fn error_at(&mut self, at: usize, what: &str) -> Failed {
        // One token, one error: what the rules around the one that failed have to add is no news.
        // Nor is anything from the end of the file, to which the parser goes after the last error
        // that is told.
        if self.errors.len() < MAX_ERRORS && self.told != Some(at) {
            self.told = Some(at);
            let pos = self.pos_of(at);
            let found = self.found(at);
            self.errors.push(Error {
                pos,
                found,
                expected: what.to_owned(),
            });
            if self.errors.len() == MAX_ERRORS {
                self.at = self.tokens.len() - 1;
            }
        }
        Failed
    }

    /// The token `at`, as a message shows it.
    fn found(&self, at: usize) -> String {
        const SHOWN: usize = 40;
        let token = self.tokens[at].token;
        if matches!(token, Token::End | Token::BlockComment | Token::OpenString) {
            return token.description().to_owned();
        }
        let text = self.text_at(at);
        let mut shown: String = text
            .chars()
            .take(SHOWN)
            .flat_map(char::escape_debug)
            .collect();
        if text.chars().nth(SHOWN).is_some() {
            shown.push('…');
        }
        format!("`{shown}`")
    }

    /// Skips from an opening brace past the one that closes it.
    fn skip_braces(&mut self) {
        let mut open = 0u32;
        loop {
            match self.token() {
                Token::OpenBrace => open += 1,
                Token::CloseBrace => open = open.saturating_sub(1),
                Token::End => return,
                _ => {}
            }
            self.bump();
            if open == 0 {
                return;
            }
        }
    }
}
