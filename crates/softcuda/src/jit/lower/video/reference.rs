//! What video instructions give on a device of `sm_90`, in wide integers, and their forms. Tests of
//! the instructions and of kernels use it.

/// Words at the limits of bytes, halves and words, and of shift amounts.
const EDGES: [u32; 20] = [
    0,
    1,
    2,
    31,
    32,
    33,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0xffff_fffe,
    0x8000_7fff,
    0x7f80_ff01,
    0x00ff_8000,
    0x1234_5678,
];

/// How many sets of registers there are, in blocks of so many threads.
pub const SETS: usize = EDGES.len() * EDGES.len();
pub const BLOCK: usize = 80;

/// What `%r1`, `%r2` and `%r3` hold: each two edges, with a third.
pub fn sets() -> Vec<[u32; 3]> {
    let pairs = EDGES.iter().flat_map(|a| EDGES.iter().map(|b| [*a, *b]));
    let thirds = EDGES.iter().cycle();
    let sets = pairs.zip(thirds.step_by(7));
    sets.map(|([a, b], c)| [a, b, *c]).collect()
}

/// A kernel in which each thread reads its set, and stores what each form gives.
pub fn kernel(name: &str, forms: &[String]) -> String {
    let mut body = String::new();
    for (at, form) in forms.iter().enumerate() {
        body += &format!("    {form}; st.global.u32 [%rd2+{}], %r4;\n", 4 * at);
    }
    let results = 4 * forms.len();
    format!(
        ".visible .entry {name}(.param .u64 in, .param .u64 out)
{{
    .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    mov.u32 %r5, %ctaid.x; mov.u32 %r6, %tid.x; mad.lo.u32 %r5, %r5, {BLOCK}, %r6;
    mad.wide.u32 %rd1, %r5, 12, %rd1; mad.wide.u32 %rd2, %r5, {results}, %rd2;
    ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd1+4]; ld.global.u32 %r3, [%rd1+8];
{body}    ret;
}}
"
    )
}

/// What the forms give, set by set.
pub fn results(forms: &[String]) -> Vec<u32> {
    let parsed: Vec<Form<'_>> = forms.iter().map(|form| Form::parse(form)).collect();
    let sets = sets().into_iter();
    sets.flat_map(|set| parsed.iter().map(move |form| form.result(set)))
        .collect::<Vec<u32>>()
}

const TYPES: [&str; 2] = ["u32", "s32"];
const PARTS: [&str; 7] = ["", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"];
const COMPARISONS: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];

/// Takes the values in turn.
struct Turns {
    at: usize,
}

impl Turns {
    /// Two parts of operands, which come round in all pairs.
    fn parts(&mut self) -> [&'static str; 2] {
        self.at += 1;
        [PARTS[self.at % 7], PARTS[self.at / 7 % 7]]
    }

    /// A selector of two halves or four bytes.
    fn lanes(&mut self, lanes: usize) -> String {
        self.at += 1;
        let mut state = self.at * 0x9e37 + 0x79b9;
        if state.is_multiple_of(4) {
            return String::new();
        }
        let mut selector = String::from(if lanes == 2 { ".h" } else { ".b" });
        for _ in 0..lanes {
            state = state.wrapping_mul(0x41c6_4e6d).wrapping_add(12345) & 0x7fff_ffff;
            selector += &(state >> 16 & (2 * lanes - 1)).to_string();
        }
        // The word for a type of 1,024 bits is none for bytes.
        selector.replace(".b1024", ".b1025")
    }
}

/// The scalar instructions but `vmad`: every modifier and every part of the destination.
pub fn scalars() -> Vec<String> {
    let mut heads = vec![];
    let mut typed = |name: &str, more: &str| {
        for d in TYPES {
            for a in TYPES {
                for b in TYPES {
                    let shift = more == ".clamp" || more == ".wrap";
                    if !shift || b == "u32" {
                        for sat in ["", ".sat"] {
                            heads.push(format!("{name}.{d}.{a}.{b}{sat}{more}"));
                        }
                    }
                }
            }
        }
    };
    for name in ["vadd", "vsub", "vabsdiff", "vmin", "vmax"] {
        typed(name, "");
    }
    for name in ["vshl", "vshr"] {
        typed(name, ".clamp");
        typed(name, ".wrap");
    }
    for a in TYPES {
        for b in TYPES {
            heads.extend(COMPARISONS.map(|comparison| format!("vset.{a}.{b}.{comparison}")));
        }
    }
    let mut turns = Turns { at: 0 };
    let mut forms = vec![];
    for head in heads {
        let [a, b] = turns.parts();
        forms.push(format!("{head} %r4, %r1, %r2"));
        forms.push(format!("{head} %r4, %r1{a}, %r2{b}"));
        for second in [".add", ".min", ".max"] {
            let [a, b] = turns.parts();
            forms.push(format!("{head}{second} %r4, %r1, %r2, %r3"));
            forms.push(format!("{head}{second} %r4, %r1{a}, %r2{b}, %r3"));
        }
        for part in PARTS {
            let [a, b] = turns.parts();
            forms.push(format!("{head} %r4{part}, %r1{a}, %r2{b}, %r3"));
        }
    }
    forms
}

/// `vmad`: every scale and every operand that can be negated.
pub fn products() -> Vec<String> {
    let mut turns = Turns { at: 0 };
    let mut forms = vec![];
    for d in TYPES {
        for a in TYPES {
            for b in TYPES {
                for sat in ["", ".sat"] {
                    for scale in ["", ".shr7", ".shr15"] {
                        for (po, signs) in [
                            ("", ["", "", ""]),
                            (".po", ["", "", ""]),
                            (".po", ["-", "-", ""]),
                            ("", ["-", "", ""]),
                            ("", ["", "-", ""]),
                            ("", ["-", "-", ""]),
                            ("", ["", "", "-"]),
                            ("", ["-", "-", "-"]),
                        ] {
                            let head = format!("vmad.{d}.{a}.{b}{po}{sat}{scale}");
                            let [x, y, z] = signs;
                            for [of_a, of_b] in [["", ""], turns.parts()] {
                                forms.push(format!(
                                    "{head} %r4, {x}%r1{of_a}, {y}%r2{of_b}, {z}%r3"
                                ));
                            }
                        }
                    }
                }
            }
        }
    }
    forms
}

/// The instructions of two halves or four bytes, with selectors and masks.
pub fn simd() -> Vec<String> {
    const MASKS: [&[&str]; 2] = [
        &["", ".h0", ".h1", ".h10"],
        &[
            "", ".b0", ".b1", ".b10", ".b2", ".b20", ".b21", ".b210", ".b3", ".b30", ".b31",
            ".b310", ".b32", ".b320", ".b321", ".b3210",
        ],
    ];
    let mut turns = Turns { at: 0 };
    let mut forms = vec![];
    for (lanes, masks) in [2, 4].into_iter().zip(MASKS) {
        let mut heads = vec![];
        for a in TYPES {
            for b in TYPES {
                for name in ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"] {
                    for d in TYPES {
                        for end in ["", ".sat", ".add"] {
                            heads.push(format!("{name}{lanes}.{d}.{a}.{b}{end}"));
                        }
                    }
                }
                for comparison in COMPARISONS {
                    for end in ["", ".add"] {
                        heads.push(format!("vset{lanes}.{a}.{b}.{comparison}{end}"));
                    }
                }
            }
        }
        for (at, head) in heads.iter().enumerate() {
            for step in 0..4 {
                let mask = masks[(4 * at + step) % masks.len()];
                let [a, b] = [turns.lanes(lanes), turns.lanes(lanes)];
                forms.push(format!("{head} %r4{mask}, %r1{a}, %r2{b}, %r3"));
            }
        }
    }
    forms
}

/// The last bits of a number.
fn low(value: i128, bits: u32) -> i128 {
    value & ((1 << bits) - 1)
}

/// The last bits of a number, extended by their sign.
fn signed(value: i128, bits: u32) -> i128 {
    let value = low(value, bits);
    match value >> (bits - 1) {
        0 => value,
        _ => value - (1 << bits),
    }
}

fn number(value: i128, bits: u32, is_signed: bool) -> i128 {
    match is_signed {
        true => signed(value, bits),
        false => low(value, bits),
    }
}

/// The nearest number of so many bits.
fn clamp(value: i128, bits: u32, is_signed: bool) -> i128 {
    match is_signed {
        true => value.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        false => value.clamp(0, (1 << bits) - 1),
    }
}

/// An instruction: its opcode, its modifiers, and the sign and selector of each operand.
struct Form<'a> {
    name: &'a str,
    words: Vec<&'a str>,
    operands: Vec<(bool, &'a str)>,
}

impl<'a> Form<'a> {
    fn parse(text: &'a str) -> Form<'a> {
        let (head, operands) = text.split_once(' ').expect("an opcode and operands");
        let mut words = head.split('.');
        let operand = |operand: &'a str| {
            let operand = operand.trim();
            let selector = operand.split_once('.').map_or("", |(_, selector)| selector);
            (operand.starts_with('-'), selector)
        };
        Form {
            name: words.next().expect("an opcode"),
            words: words.collect(),
            operands: operands.split(',').map(operand).collect(),
        }
    }

    fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    fn result(&self, set: [u32; 3]) -> u32 {
        let set = set.map(i128::from);
        let value = match (self.name, self.name.strip_suffix(['2', '4'])) {
            (_, Some(name)) => self.simd(name, set),
            ("vmad", _) => self.product(set),
            _ => self.scalar(set),
        };
        value as u32
    }

    /// The size and place of a part.
    fn part(&self, operand: usize) -> (u32, u32) {
        let (_, selector) = self.operands[operand];
        let place = || u32::from(selector.as_bytes()[1] - b'0');
        match selector.as_bytes().first() {
            None => (32, 0),
            Some(b'h') => (16, 16 * place()),
            Some(_) => (8, 8 * place()),
        }
    }

    fn source(&self, operand: usize, word: i128, is_signed: bool) -> i128 {
        let (bits, at) = self.part(operand);
        number(word >> at, bits, is_signed)
    }

    fn compare(&self, a: i128, b: i128) -> i128 {
        i128::from(match self.words[2] {
            "eq" => a == b,
            "ne" => a != b,
            "lt" => a < b,
            "le" => a <= b,
            "gt" => a > b,
            _ => a >= b,
        })
    }

    fn scalar(&self, [a, b, c]: [i128; 3]) -> i128 {
        let is_signed = |word: usize| self.words[word] == "s32";
        let of_set = usize::from(self.name != "vset");
        let result_signed = is_signed(0);
        let a = self.source(1, a, is_signed(of_set));
        let b = self.source(2, b, is_signed(of_set + 1));
        let by = if self.has("wrap") { b & 31 } else { b.min(32) };
        let exact = match self.name {
            "vadd" => a + b,
            "vsub" => a - b,
            "vabsdiff" => (a - b).abs(),
            "vmin" => a.min(b),
            "vmax" => a.max(b),
            "vshl" => a << by,
            "vshr" => a >> by,
            _ => self.compare(a, b),
        };
        let (bits, at) = self.part(0);
        let sum = matches!(self.name, "vadd" | "vsub");
        let value = match (self.has("sat"), self.name) {
            (false, _) if sum => signed(exact, 32),
            (false, _) => signed(exact, 64),
            (true, "vshr") => clamp(signed(exact, 34), 32, result_signed),
            (true, "vshl") => signed(clamp(signed(exact, 34), 32, result_signed), 32),
            (true, _) if bits < 32 => {
                let most = clamp(i128::MAX, bits, result_signed);
                if (0..most).contains(&exact) {
                    exact
                } else {
                    most
                }
            }
            (true, _) if result_signed => clamp(exact, 32, true),
            (true, _) if sum => signed(exact.max(0), 32),
            (true, _) => exact.max(0),
        };
        let last = number(c, 32, result_signed);
        let key = |value: &i128| number(*value, 64, result_signed);
        match (self.has("add"), self.has("min"), self.has("max")) {
            (true, ..) => value + last,
            (_, true, _) => std::cmp::min_by_key(value, last, key),
            (.., true) => std::cmp::max_by_key(value, last, key),
            _ if bits == 32 => value,
            _ => {
                let upper = (bits, at) == (16, 16);
                let part = low(if upper { value >> 16 } else { value }, bits);
                (c & !(((1 << bits) - 1) << at)) | part << at
            }
        }
    }

    fn product(&self, [a, b, c]: [i128; 3]) -> i128 {
        let types = [1, 2].map(|word| self.words[word] == "s32");
        let a = signed(self.source(1, a, types[0]), 32);
        let b = signed(self.source(2, b, types[1]), 32);
        let negated = self.operands[1].0 != self.operands[2].0;
        let minus = self.operands[3].0;
        let product = if negated { -a * b } else { a * b };
        let last = if minus { -signed(c, 32) } else { signed(c, 32) };
        let sum = signed(product + last + i128::from(self.has("po")), 64);
        let is_signed = negated || minus || types.contains(&true);
        let shift = match (self.has("shr7"), self.has("shr15")) {
            (true, _) => 7,
            (_, true) => 15,
            _ => 0,
        };
        let value = match is_signed || shift == 0 {
            true => sum >> shift,
            false => low(sum, 64) >> shift,
        };
        match self.has("sat") {
            true => clamp(value, 32, is_signed),
            false => value,
        }
    }

    fn simd(&self, name: &str, [a, b, c]: [i128; 3]) -> i128 {
        let lanes: usize = if self.name.ends_with('2') { 2 } else { 4 };
        let bits = 32 / lanes as u32;
        let of_set = usize::from(name != "vset");
        let both = a | b << 32;
        let place = |digit: u8| u32::from(digit - b'0');
        let lane = |operand: usize, lane: usize| {
            let whole = ["", "h10", "b3210", "h32", "b7654"];
            let selector = match self.operands[operand].1 {
                "" => whole[2 * operand - 1 + usize::from(lanes == 4)],
                selector => selector,
            };
            let digit = selector.as_bytes()[lanes - lane];
            let is_signed = self.words[of_set + operand - 1] == "s32";
            number(both >> (bits * place(digit)), bits, is_signed)
        };
        let mut all = c;
        for at in 0..lanes {
            let mask = self.operands[0].1;
            let masked = mask[mask.len().min(1)..].bytes();
            if !mask.is_empty() && !masked.map(place).any(|lane| lane == at as u32) {
                continue;
            }
            let (a, b) = (lane(1, at), lane(2, at));
            let mut value = match name {
                "vadd" => a + b,
                "vsub" => a - b,
                "vavrg" => (a + b + i128::from(a + b >= 0)) >> 1,
                "vabsdiff" => (a - b).abs(),
                "vmin" => a.min(b),
                "vmax" => a.max(b),
                _ => self.compare(a, b),
            };
            if self.has("sat") {
                value = clamp(value, bits, self.words[0] == "s32");
            }
            all = match self.has("add") {
                true => all + value,
                false => {
                    let at = bits * at as u32;
                    (all & !(((1 << bits) - 1) << at)) | low(value, bits) << at
                }
            };
        }
        all
    }
}
