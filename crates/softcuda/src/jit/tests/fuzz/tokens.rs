//! Damage to a text token by token: the lines keep the look of PTX.

use super::modules::Random;

/// Tokens that stand for others well, or badly.
const STRANGE: &[&str] = &[
    "0",
    "1",
    "-1",
    "255",
    "4294967295",
    "4294967296",
    "-2147483648",
    "9223372036854775807",
    "18446744073709551615",
    "0xFFFFFFFFFFFFFFFF",
    "0f7FC00000",
    "0d7FF0000000000000",
    "%r0",
    "%r99999999999",
    "_",
    "WARP_SZ",
    "%tid.x",
    "%clock64",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ";",
    ",",
    ":",
    "@",
    "!",
    "|",
    "+",
    "-",
    "<",
    ">",
    "=",
    ".reg",
    ".b8",
    ".b128",
    ".pred",
    ".f16x2",
    ".v2",
    ".v4",
    ".align",
    ".shared",
    ".extern",
    ".entry",
    ".func",
    "bra",
    "call",
    "ret",
    "exit",
    "trap",
    "mov",
    "{ }",
    "[0]",
    "()",
    "/*",
    "//",
    ".branchtargets",
    ".callprototype",
    ".local",
    ".param",
];

/// Words, numbers and names, with their dots and percent signs; blank space; anything else by
/// itself.
fn split(text: &str) -> Vec<&str> {
    let mut tokens = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || "_$%".contains(c);
        let end = if first.is_whitespace() {
            rest.find(|c: char| !c.is_whitespace())
        } else if word(first) || first == '.' {
            // A modifier keeps its dot, and each is a token.
            let after = first.len_utf8();
            rest[after..]
                .find(|c: char| !word(c))
                .map(|end| end + after)
        } else {
            Some(first.len_utf8())
        };
        let (token, after) = rest.split_at(end.unwrap_or(rest.len()));
        tokens.push(token);
        rest = after;
    }
    tokens
}

/// One to eight injuries to `text`, some with tokens of `other`.
pub(super) fn damage(random: &mut Random, text: &str, other: &str) -> String {
    let mut tokens = split(text);
    let others = split(other);
    for _ in 0..[1, 1, 2, 3, 4, 8][random.below(6)] {
        if tokens.is_empty() {
            break;
        }
        let at = random.below(tokens.len());
        let from = random.below(tokens.len());
        match random.below(10) {
            0 => drop(tokens.remove(at)),
            1 => tokens.insert(at, tokens[from]),
            2 => tokens.swap(at, from),
            3 => tokens[at] = STRANGE[random.below(STRANGE.len())],
            4 => tokens.insert(at, STRANGE[random.below(STRANGE.len())]),
            5 => tokens[at] = others[random.below(others.len())],
            // One of the same kind: a modifier for a modifier, a register for a register.
            6 | 7 => {
                let kind = tokens[at].chars().next();
                let alike: Vec<&str> = tokens
                    .iter()
                    .chain(&others)
                    .filter(|token| token.chars().next() == kind)
                    .copied()
                    .collect();
                tokens[at] = alike[random.below(alike.len())];
            }
            8 => {
                let end = tokens.len().min(from + random.below(30));
                let piece: Vec<&str> = tokens[from..end].to_vec();
                tokens.splice(at..at, piece);
            }
            _ => {
                let end = tokens.len().min(at + random.below(12));
                tokens.drain(at..end);
            }
        }
    }
    tokens.concat()
}

#[test]
fn tokens_make_up_the_text() {
    let text = "@!%p1 ld.global.v2.f32 {%f1, %f2}, [%rd1+4]; // ünïcode\n";
    let tokens = split(text);
    assert_eq!(tokens.concat(), text);
    for token in ["%p1", "ld", ".global", ".v2", "{", "%rd1", "+", "4"] {
        assert!(tokens.contains(&token), "{token} in {tokens:?}");
    }
}
