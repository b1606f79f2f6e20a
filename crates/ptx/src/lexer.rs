//! Source text to tokens.
//!
//! A token is its kind and its place; its text stays in the source. Whatever the text, the tokens
//! cover it in order and end with one [`Token::End`]: what no rule knows becomes
//! [`Token::Unknown`], and saying so is the parser's business.
//!
//! No input costs stack: what repeats without bound is scanned by a loop in a callback, never by
//! nested repetition in a pattern; and what means nothing is a token like any other, dropped by
//! [`tokens`], as the generated lexer would call itself for each one it skips.

use logos::Logos;

/// The kind of a token.
#[derive(Logos, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A name: of a register, a symbol, an opcode.
    #[regex(r"[a-zA-Z][a-zA-Z0-9_$]*|[_$%][a-zA-Z0-9_$]+")]
    Ident,
    /// A dot and what follows it: a directive, a type, a modifier (`.1d`, `.L2::128B`), a
    /// component.
    #[regex(r"\.[a-zA-Z0-9_$]+", qualified)]
    Dotted,
    /// An integer in any base, with or without `U`.
    #[regex(r"[0-9]+U?|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?")]
    Int,
    /// A decimal with a point or an exponent.
    #[regex(r"[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+[eE][+-][0-9]+")]
    Decimal,
    /// `0f` and hexadecimal digits, however many.
    #[regex(r"0[fF][0-9a-fA-F]+")]
    Single,
    /// `0d` and hexadecimal digits, however many.
    #[regex(r"0[dD][0-9a-fA-F]+")]
    Double,
    /// A string with its quotes.
    #[token("\"", string)]
    String,
    #[token(",")]
    Comma,
    #[token(";")]
    Semicolon,
    #[token(":")]
    Colon,
    #[token("{")]
    OpenBrace,
    #[token("}")]
    CloseBrace,
    #[token("[")]
    OpenBracket,
    #[token("]")]
    CloseBracket,
    #[token("(")]
    OpenParen,
    #[token(")")]
    CloseParen,
    #[token("<")]
    Less,
    #[token(">")]
    Greater,
    #[token("<=")]
    LessEqual,
    #[token(">=")]
    GreaterEqual,
    #[token("==")]
    EqualEqual,
    #[token("!=")]
    NotEqual,
    #[token("<<")]
    ShiftLeft,
    #[token(">>")]
    ShiftRight,
    #[token("&&")]
    AndAnd,
    #[token("||")]
    OrOr,
    #[token("=")]
    Equal,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("*")]
    Star,
    #[token("/")]
    Slash,
    #[token("%")]
    Percent,
    #[token("!")]
    Bang,
    #[token("~")]
    Tilde,
    #[token("&")]
    And,
    #[token("|")]
    Or,
    #[token("^")]
    Caret,
    #[token("?")]
    Question,
    #[token("@")]
    At,
    #[token("_")]
    Underscore,
    /// White space; never leaves this module.
    #[regex(r"[ \t\r\n\x0b\x0c]+")]
    Blank,
    /// A comment to the end of the line; never leaves this module.
    #[token("//", line)]
    LineComment,
    /// A comment in `/*` and `*/`; leaves this module where nothing closes it.
    #[token("/*", block_comment)]
    BlockComment,
    /// A `#`. Where that is the first in its line it takes the line with it, as C preprocessors
    /// leave them, and never leaves this module.
    #[token("#", preprocessor)]
    Hash,
    /// A string that its line does not close.
    OpenString,
    /// What no rule knows.
    Unknown,
    /// The end of the source.
    End,
}

/// A token and its bytes in the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexeme {
    pub token: Token,
    pub start: u32,
    pub end: u32,
}

/// The tokens of `source`, with [`Token::End`] last. The source must be shorter than 4 GiB.
pub(crate) fn tokens(source: &str) -> Vec<Lexeme> {
    let mut lexer = Token::lexer(source);
    // PTX has a token about every five bytes.
    let mut tokens = Vec::with_capacity(source.len() / 5 + 16);
    while let Some(token) = lexer.next() {
        let span = lexer.span();
        let token = match token {
            Ok(Token::Blank | Token::LineComment) => continue,
            Ok(Token::BlockComment)
                if lexer.slice().len() >= 4 && lexer.slice().ends_with("*/") =>
            {
                continue;
            }
            Ok(Token::Hash) if lexer.slice().len() > 1 => continue,
            Ok(Token::String) if !closed(lexer.slice()) => Token::OpenString,
            Ok(token) => token,
            Err(()) => Token::Unknown,
        };
        tokens.push(Lexeme {
            token,
            start: span.start as u32,
            end: span.end as u32,
        });
    }
    tokens.push(Lexeme {
        token: Token::End,
        start: source.len() as u32,
        end: source.len() as u32,
    });
    tokens
}

/// Takes in the `::cta`, `::128B` parts that follow a dotted word.
fn qualified(lexer: &mut logos::Lexer<Token>) {
    let rest = lexer.remainder().as_bytes();
    let mut taken = 0;
    while rest[taken..].starts_with(b"::") {
        let word = rest[taken + 2..]
            .iter()
            .take_while(|c| c.is_ascii_alphanumeric() || **c == b'_')
            .count();
        if word == 0 {
            break;
        }
        taken += 2 + word;
    }
    lexer.bump(taken);
}

/// Takes in a string up to its closing quote, or to the end of the line where that is missing.
/// Nothing escapes a quote: a backslash is a character like any other, as NVIDIA's assembler has
/// it.
fn string(lexer: &mut logos::Lexer<Token>) {
    let rest = lexer.remainder();
    let end = rest.find(['"', '\n']).unwrap_or(rest.len());
    lexer.bump(end + usize::from(rest[end..].starts_with('"')));
}

/// Whether a string token, as [`string`] took it, has its closing quote.
fn closed(text: &str) -> bool {
    text.len() > 1 && text.ends_with('"')
}

fn block_comment(lexer: &mut logos::Lexer<Token>) {
    let rest = lexer.remainder();
    lexer.bump(rest.find("*/").map_or(rest.len(), |at| at + 2));
}

/// Takes in the rest of the line where the `#` begins it.
fn preprocessor(lexer: &mut logos::Lexer<Token>) {
    let before = &lexer.source().as_bytes()[..lexer.span().start];
    let previous = before
        .iter()
        .rev()
        .find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    if matches!(previous, None | Some(b'\n')) {
        line(lexer);
    }
}

/// Takes in the rest of the line and its end.
fn line(lexer: &mut logos::Lexer<Token>) {
    let rest = lexer.remainder();
    lexer.bump(rest.find('\n').map_or(rest.len(), |at| at + 1));
}

impl Token {
    /// How an error message names the token.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Token::Ident => "a name",
            Token::Dotted => "a directive",
            Token::Int => "an integer",
            Token::Decimal | Token::Single | Token::Double => "a number",
            Token::String => "a string",
            Token::Comma => "`,`",
            Token::Semicolon => "`;`",
            Token::Colon => "`:`",
            Token::OpenBrace => "`{`",
            Token::CloseBrace => "`}`",
            Token::OpenBracket => "`[`",
            Token::CloseBracket => "`]`",
            Token::OpenParen => "`(`",
            Token::CloseParen => "`)`",
            Token::Less => "`<`",
            Token::Greater => "`>`",
            Token::Equal => "`=`",
            Token::BlockComment => "a comment that is never closed",
            Token::OpenString => "a string that is never closed",
            Token::End => "the end of the file",
            _ => "an operator",
        }
    }
}
