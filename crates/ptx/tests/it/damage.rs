//! Damage to source text, pseudo-random and repeatable. It knows nothing of this crate, so that the
//! tests of another can take this file in by its path.

/// SplitMix64: small, and its whole state is its seed.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E3779B97F4A7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn range(&mut self, length: usize, longest: usize) -> std::ops::Range<usize> {
        let start = self.below(length);
        start..length.min(start + 1 + self.below(longest))
    }
}

/// Words and fragments to splice in.
pub const FRAGMENTS: &[&[u8]] = &[
    b"{",
    b"}",
    b"(",
    b")",
    b"[",
    b"]",
    b"<",
    b">",
    b",",
    b";",
    b":",
    b"::",
    b"|",
    b"||",
    b"!",
    b"@",
    b"-",
    b"+",
    b"=",
    b"?",
    b"\"",
    b"/*",
    b"*/",
    b"//",
    b"#",
    b"\n",
    b"\0",
    b"\xFF",
    b"\xC3",
    b"\xF0\x9F\x98\x80",
    b"%",
    b"_",
    b"$",
    b".",
    b".param",
    b".reg",
    b".entry",
    b".func",
    b".visible",
    b".section",
    b".loc",
    b".file",
    b".align",
    b".v4",
    b".f32",
    b".b8",
    b"generic(",
    b"WARP_SZ",
    b"0x",
    b"0f",
    b"0d3FF0000000000000",
    b"18446744073709551616",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"08",
    b"1e999",
    b"1.",
    b".5",
    b"/0",
    b"%0",
    b"<4294967295>",
    b"[18446744073709551615]",
    b"call",
    b".callprototype",
    b".branchtargets",
    b".pragma",
    b"(.s64)",
    b"{{{{{{{{",
    b"((((((((",
    b"--------",
];

/// One to eight injuries to `text`, some of them with pieces of `other`.
pub fn damage(random: &mut Random, text: &mut Vec<u8>, other: &[u8]) {
    let injuries = [1, 1, 1, 2, 3, 8][random.below(6)];
    for _ in 0..injuries {
        let at = random.below(text.len() + 1);
        match random.below(9) {
            0 if !text.is_empty() => {
                let at = random.below(text.len());
                text[at] ^= 1 << random.below(8);
            }
            1 if !text.is_empty() => {
                let at = random.below(text.len());
                text[at] = random.next() as u8;
            }
            2 if !text.is_empty() => drop(text.drain(random.range(text.len(), 40))),
            3 => drop(text.splice(
                at..at,
                FRAGMENTS[random.below(FRAGMENTS.len())].iter().copied(),
            )),
            4 => drop(text.splice(at..at, other[random.range(other.len(), 80)].iter().copied())),
            5 if !text.is_empty() => {
                let piece = text[random.range(text.len(), 60)].to_vec();
                drop(text.splice(at..at, piece));
            }
            // A whole word becomes another.
            6 => {
                let word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$%.:".contains(byte);
                let end = at + text[at..].iter().take_while(|byte| word(byte)).count();
                drop(text.splice(
                    at..end,
                    FRAGMENTS[random.below(FRAGMENTS.len())].iter().copied(),
                ));
            }
            7 if random.below(4) == 0 => text.truncate(at),
            _ if !text.is_empty() => {
                let (a, b) = (random.below(text.len()), random.below(text.len()));
                text.swap(a, b);
            }
            _ => {}
        }
    }
}
