//! Matrix products of a warp: every shape and type of `mma` and `wmma.mma` up to sm_90. Their PTX
//! is made here, a kernel for each form, in which a warp loads its registers, multiplies once and
//! stores the result.

use std::fmt::Write;

use super::case::{Case, Ptx, args};
use super::input::Inputs;

super::cases! {
    halves, halves_and_singles, bfloats, tf32s, bytes, doubles, integers, bits, quads,
    sparse_floats, sparse_integers, fragments_of_halves, fragments_of_others,
    groups_of_floats, groups_of_integers, groups_in_patterns, sparse_groups_of_floats,
    sparse_groups_of_integers, sparse_groups_in_patterns,
}

/// What registers hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// So many bits of exponent and fraction, in as many parts of the register as there are.
    Floats(u32, u32),
    Double,
    /// The bits of a single in an untyped register.
    Tf32,
    Any,
    /// Metadata, and whether one of two is there or two of four.
    Places {
        of_two: bool,
    },
}

const F16: Holds = Holds::Floats(5, 10);
const BF16: Holds = Holds::Floats(8, 7);
const F32: Holds = Holds::Floats(8, 23);
const TF32: Holds = Holds::Tf32;
const E4M3: Holds = Holds::Floats(4, 3);
const E5M2: Holds = Holds::Floats(5, 2);

impl Holds {
    fn ty(self) -> &'static str {
        match self {
            Holds::Double => "f64",
            F32 => "f32",
            _ => "b32",
        }
    }

    fn size(self) -> usize {
        if self == Holds::Double { 8 } else { 4 }
    }

    /// The bytes of a register. The sets of inputs differ in their exponents.
    fn make(self, inputs: &mut Inputs, set: u64) -> Vec<u8> {
        match self {
            Holds::Double => float(inputs, 11, 52, set).to_le_bytes().to_vec(),
            Holds::Tf32 => F32.make(inputs, set),
            Holds::Any => (inputs.next() as u32).to_le_bytes().to_vec(),
            Holds::Floats(exponent, fraction) => {
                let bits = 1 + exponent + fraction;
                let parts = (0..32 / bits).fold(0, |word, at| {
                    word | float(inputs, exponent, fraction, set) << (bits * at)
                });
                (parts as u32).to_le_bytes().to_vec()
            }
            Holds::Places { of_two } => {
                let places: &[u32] = match of_two {
                    true => &[0x4, 0xe],
                    false => &[0x4, 0x8, 0x9, 0xc, 0xd, 0xe],
                };
                let four = |inputs: &mut Inputs| places[inputs.below(places.len() as u64) as usize];
                let word = (0..8).fold(0, |word, at| word | four(inputs) << (4 * at));
                word.to_le_bytes().to_vec()
            }
        }
    }
}

/// A float whose exponent the set decides: near one, so that all digits of a sum count, or far
/// apart, or among zeros, subnormals, infinities and what is no number.
fn float(inputs: &mut Inputs, exponent: u32, fraction: u32, set: u64) -> u64 {
    let (word, pick) = (inputs.next(), inputs.next());
    let bias = (1u64 << (exponent - 1)) - 1;
    let top = (1 << exponent) - 1;
    let mut digits = word & ((1 << fraction) - 1);
    let field = match set % 8 {
        0 => word >> 52 & top,
        1 => bias - 4 + pick % 9,
        2 => bias - 1 + pick % 3,
        3 => (word >> 52 & top) % top,
        4 if pick & 1 == 0 => {
            digits = 0;
            0
        }
        4 => bias - bias.min(8) + (pick >> 1) % 15,
        5 => bias - pick % bias.min(28),
        6 => match pick % 8 {
            0 => 0,
            1 if pick >> 8 & 7 == 0 => {
                digits *= pick >> 16 & 1;
                top
            }
            _ => bias - 2 + (pick >> 12) % 5,
        },
        _ => {
            digits &= !0 << fraction.saturating_sub(2);
            bias + pick % 2
        }
    };
    (word >> 63) << (exponent + fraction) | field.min(top) << fraction | digits
}

/// A form of a product: the instruction, and the registers that a lane has of `A`, `B`, `C` and
/// `D`.
struct Form {
    instruction: String,
    registers: [(Holds, usize); 4],
    /// The selector, and whether one of two is there.
    sparse: Option<(u32, bool)>,
}

fn form(instruction: impl Into<String>, registers: [(Holds, usize); 4]) -> Form {
    Form {
        instruction: instruction.into(),
        registers,
        sparse: None,
    }
}

/// How many sets of inputs each form has.
const SETS: usize = 64;

/// A case of these forms.
fn case_of(name: &'static str, forms: &[Form]) -> Case {
    let mut text = ".version 9.0\n.target sm_90\n.address_size 64\n".to_owned();
    for (at, form) in forms.iter().enumerate() {
        text += &kernel(at, form);
    }
    let text: &'static str = text.leak();
    let mut case = Case::new(name, Ptx { name, text });
    let mut inputs = Inputs::new(name);
    for (at, form) in forms.iter().enumerate() {
        let [a, b, c, (result, results)] = form.registers;
        let mut bytes = vec![];
        for set in 0..SETS as u64 {
            for _lane in 0..32 {
                for (holds, count) in [a, b, c] {
                    for _ in 0..count {
                        bytes.extend(holds.make(&mut inputs, set));
                    }
                }
                if let Some((_, of_two)) = form.sparse {
                    bytes.extend(Holds::Places { of_two }.make(&mut inputs, set));
                }
                bytes.resize(bytes.len().next_multiple_of(8), 0);
            }
        }
        let input = case.input(&bytes);
        let words = SETS * 32 * results * result.size() / 4;
        let output = case.output::<u32>(words);
        let kernel: &'static str = format!("product_{at}").leak();
        case.launch(kernel, SETS as u32 / 2, 64, args![input, output]);
    }
    case
}

/// A kernel that multiplies once. Each thread has its registers beside each other in memory.
fn kernel(at: usize, form: &Form) -> String {
    let [a, b, c, d] = form.registers;
    let (mut body, mut offset, mut count) = (String::new(), 0, 0);
    let mut lists = vec![];
    let mut next = |holds: Holds| {
        count += 1;
        let prefix = match holds.ty() {
            "f64" => "%d",
            "f32" => "%f",
            _ => "%r",
        };
        format!("{prefix}{}", count + 8)
    };
    for (holds, count) in [a, b, c] {
        let list: Vec<String> = (0..count).map(|_| next(holds)).collect();
        for register in &list {
            let ty = holds.ty();
            writeln!(body, "    ld.global.{ty} {register}, [%rd1+{offset}];").unwrap();
            offset += holds.size();
        }
        lists.push(format!("{{{}}}", list.join(", ")));
    }
    let mut metadata = String::new();
    if let Some((selector, _)) = form.sparse {
        writeln!(body, "    ld.global.b32 %r1, [%rd1+{offset}];").unwrap();
        offset += 4;
        metadata = format!(", %r1, {selector}");
    }
    let list: Vec<String> = (0..d.1).map(|_| next(d.0)).collect();
    let (instruction, operands) = (&form.instruction, lists.join(", "));
    writeln!(
        body,
        "    {instruction} {{{}}}, {operands}{metadata};",
        list.join(", ")
    )
    .unwrap();
    for (at, register) in list.iter().enumerate() {
        let place = at * d.0.size();
        writeln!(
            body,
            "    st.global.{} [%rd2+{place}], {register};",
            d.0.ty()
        )
        .unwrap();
    }
    let (stride, results) = (offset.next_multiple_of(8), d.1 * d.0.size());
    format!(
        ".visible .entry product_{at}(.param .u64 in, .param .u64 out)
{{
    .reg .b32 %r<64>; .reg .f32 %f<64>; .reg .f64 %d<64>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r2, %r2, 64, %r3;
    mad.wide.u32 %rd1, %r2, {stride}, %rd1; mad.wide.u32 %rd2, %r2, {results}, %rd2;
{body}    ret;
}}
"
    )
}

/// A form that goes by rows of `A` and columns of `B`: shape, types of `D`, `A`, `B` and `C`.
fn mma(shape: &str, types: &str, registers: [(Holds, usize); 4]) -> Form {
    form(
        format!("mma.sync.aligned.{shape}.row.col.{types}"),
        registers,
    )
}

/// The two depths of a shape of 16 rows, with the registers of `A` and `B`.
fn depths(one: u32) -> [(String, usize, usize); 2] {
    [(one, 2, 1), (2 * one, 4, 2)].map(|(k, a, b)| (format!("m16n8k{k}"), a, b))
}

fn halves(name: &'static str) -> Case {
    let forms = depths(8).map(|(shape, a, b)| {
        let registers = [(F16, a), (F16, b), (F16, 2), (F16, 2)];
        mma(&shape, "f16.f16.f16.f16", registers)
    });
    case_of(name, &forms)
}

fn halves_and_singles(name: &'static str) -> Case {
    let forms = depths(8).map(|(shape, a, b)| {
        let registers = [(F16, a), (F16, b), (F32, 4), (F32, 4)];
        mma(&shape, "f32.f16.f16.f32", registers)
    });
    case_of(name, &forms)
}

fn bfloats(name: &'static str) -> Case {
    let forms = depths(8).map(|(shape, a, b)| {
        let registers = [(BF16, a), (BF16, b), (F32, 4), (F32, 4)];
        mma(&shape, "f32.bf16.bf16.f32", registers)
    });
    case_of(name, &forms)
}

fn tf32s(name: &'static str) -> Case {
    let forms = depths(4).map(|(shape, a, b)| {
        let registers = [(TF32, a), (TF32, b), (F32, 4), (F32, 4)];
        mma(&shape, "f32.tf32.tf32.f32", registers)
    });
    case_of(name, &forms)
}

fn bytes(name: &'static str) -> Case {
    let mut forms = vec![];
    for (of_a, a) in [("e4m3", E4M3), ("e5m2", E5M2)] {
        for (of_b, b) in [("e4m3", E4M3), ("e5m2", E5M2)] {
            for (shape, in_a, in_b) in depths(16) {
                for (sum, c, count) in [("f32", F32, 4), ("f16", F16, 2)] {
                    let registers = [(a, in_a), (b, in_b), (c, count), (c, count)];
                    forms.push(mma(
                        &shape,
                        &format!("{sum}.{of_a}.{of_b}.{sum}"),
                        registers,
                    ));
                }
            }
        }
    }
    case_of(name, &forms)
}

fn doubles(name: &'static str) -> Case {
    const F64: Holds = Holds::Double;
    let forms = [
        ("m8n8k4", 1, 1, 2),
        ("m16n8k4", 2, 1, 4),
        ("m16n8k8", 4, 2, 4),
        ("m16n8k16", 8, 4, 4),
    ];
    let forms = forms.map(|(shape, a, b, c)| {
        mma(
            shape,
            "f64.f64.f64.f64",
            [(F64, a), (F64, b), (F64, c), (F64, c)],
        )
    });
    case_of(name, &forms)
}

fn integers(name: &'static str) -> Case {
    let mut forms = vec![];
    for (types, one) in [(["s8", "u8"], 16), (["s4", "u4"], 32)] {
        for a in types {
            for b in types {
                for saturates in ["", "satfinite."] {
                    let types = format!("{saturates}s32.{a}.{b}.s32");
                    let any = |counts: [usize; 4]| counts.map(|count| (Holds::Any, count));
                    forms.push(mma(&format!("m8n8k{one}"), &types, any([1, 1, 2, 2])));
                    for (shape, a, b) in depths(one) {
                        forms.push(mma(&shape, &types, any([a, b, 4, 4])));
                    }
                }
            }
        }
    }
    case_of(name, &forms)
}

fn bits(name: &'static str) -> Case {
    let mut forms = vec![];
    for combine in ["xor", "and"] {
        let types = format!("s32.b1.b1.s32.{combine}.popc");
        let any = |counts: [usize; 4]| counts.map(|count| (Holds::Any, count));
        forms.push(mma("m8n8k128", &types, any([1, 1, 2, 2])));
        for (shape, a, b) in depths(128) {
            forms.push(mma(&shape, &types, any([a, b, 4, 4])));
        }
    }
    case_of(name, &forms)
}

fn quads(name: &'static str) -> Case {
    let mut forms = vec![];
    for a in ["row", "col"] {
        for b in ["row", "col"] {
            for (d, c) in [("f32", "f32"), ("f16", "f16"), ("f32", "f16")] {
                let sums = |ty| if ty == "f32" { (F32, 8) } else { (F16, 4) };
                forms.push(form(
                    format!("mma.sync.aligned.m8n8k4.{a}.{b}.{d}.f16.f16.{c}"),
                    [(F16, 2), (F16, 2), sums(c), sums(d)],
                ));
            }
        }
    }
    case_of(name, &forms)
}

/// Both ways to write a sparse product, with each selector.
fn sparse(
    forms: &mut Vec<Form>,
    text: &str,
    registers: [(Holds, usize); 4],
    of_two: bool,
    selectors: u32,
) {
    for selector in 0..selectors {
        for sp in ["sp", "sp::ordered_metadata"] {
            let instruction = format!("mma.{sp}.sync.aligned.{text}");
            let mut form = form(instruction, registers);
            form.sparse = Some((selector, of_two));
            forms.push(form);
        }
    }
}

fn sparse_floats(name: &'static str) -> Case {
    let mut forms = vec![];
    for (ty, holds) in [("f16", F16), ("bf16", BF16)] {
        let types = format!("row.col.f32.{ty}.{ty}.f32");
        let registers = |count| [(holds, count), (holds, count), (F32, 4), (F32, 4)];
        sparse(
            &mut forms,
            &format!("m16n8k16.{types}"),
            registers(2),
            false,
            4,
        );
        sparse(
            &mut forms,
            &format!("m16n8k32.{types}"),
            registers(4),
            false,
            2,
        );
    }
    let registers = [(F16, 4), (F16, 4), (F16, 2), (F16, 2)];
    sparse(
        &mut forms,
        "m16n8k32.row.col.f16.f16.f16.f16",
        registers,
        false,
        2,
    );
    let registers = |count| [(TF32, count), (TF32, count), (F32, 4), (F32, 4)];
    let types = "row.col.f32.tf32.tf32.f32";
    sparse(
        &mut forms,
        &format!("m16n8k8.{types}"),
        registers(2),
        true,
        4,
    );
    sparse(
        &mut forms,
        &format!("m16n8k16.{types}"),
        registers(4),
        true,
        2,
    );
    for (of_a, a, of_b, b) in [("e4m3", E4M3, "e5m2", E5M2), ("e5m2", E5M2, "e4m3", E4M3)] {
        let types = format!("m16n8k64.row.col.f32.{of_a}.{of_b}.f32");
        sparse(
            &mut forms,
            &types,
            [(a, 4), (b, 4), (F32, 4), (F32, 4)],
            false,
            1,
        );
    }
    case_of(name, &forms)
}

fn sparse_integers(name: &'static str) -> Case {
    let mut forms = vec![];
    for (types, one) in [("s8.u8", 32), ("u8.u8", 32), ("s4.u4", 64), ("u4.s4", 64)] {
        let text = |k: u32| format!("m16n8k{k}.row.col.satfinite.s32.{types}.s32");
        let registers = |count| {
            [
                (Holds::Any, count),
                (Holds::Any, count),
                (Holds::Any, 4),
                (Holds::Any, 4),
            ]
        };
        sparse(&mut forms, &text(one), registers(2), false, 2);
        sparse(&mut forms, &text(2 * one), registers(4), false, 1);
    }
    case_of(name, &forms)
}

const SHAPES: [&str; 3] = ["m16n16k16", "m32n8k16", "m8n32k16"];

fn fragments_of_halves(name: &'static str) -> Case {
    let mut forms = vec![];
    for shape in SHAPES {
        for layouts in ["row.row", "row.col", "col.row", "col.col"] {
            for (d, c) in [
                ("f32", "f32"),
                ("f16", "f16"),
                ("f32", "f16"),
                ("f16", "f32"),
            ] {
                let sums = |ty| if ty == "f32" { (F32, 8) } else { (F16, 4) };
                forms.push(form(
                    format!("wmma.mma.sync.aligned.{layouts}.{shape}.{d}.{c}"),
                    [(F16, 8), (F16, 8), sums(c), sums(d)],
                ));
            }
        }
    }
    case_of(name, &forms)
}

fn fragments_of_others(name: &'static str) -> Case {
    let mut forms = vec![];
    let wmma = "wmma.mma.sync.aligned.row.col";
    let any = |counts: [usize; 4]| counts.map(|count| (Holds::Any, count));
    for (shape, bfloats, bytes) in [
        (SHAPES[0], (4, 4), (2, 2)),
        (SHAPES[1], (8, 2), (4, 1)),
        (SHAPES[2], (2, 8), (1, 4)),
    ] {
        let registers = [(BF16, bfloats.0), (BF16, bfloats.1), (F32, 8), (F32, 8)];
        forms.push(form(format!("{wmma}.{shape}.f32.bf16.bf16.f32"), registers));
        for (ty, saturates) in [("s8", ""), ("u8", ".satfinite")] {
            let text = format!("{wmma}.{shape}.s32.{ty}.{ty}.s32{saturates}");
            forms.push(form(text, any([bytes.0, bytes.1, 8, 8])));
        }
    }
    let registers = [(TF32, 4), (TF32, 4), (F32, 8), (F32, 8)];
    forms.push(form(
        format!("{wmma}.m16n16k8.f32.tf32.tf32.f32"),
        registers,
    ));
    let double = |count| (Holds::Double, count);
    let registers = [double(1), double(1), double(2), double(2)];
    forms.push(form(format!("{wmma}.m8n8k4.f64.f64.f64.f64"), registers));
    for ty in ["s4", "u4"] {
        let text = format!("{wmma}.m8n8k32.s32.{ty}.{ty}.s32");
        forms.push(form(text, any([1, 1, 2, 2])));
    }
    for combine in ["xor", "and"] {
        let text = format!("wmma.mma.{combine}.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32");
        forms.push(form(text, any([1, 1, 2, 2])));
    }
    case_of(name, &forms)
}

/// Where a matrix of a warpgroup lies in shared memory: the descriptor but for its address, and
/// whether the matrix is turned.
#[derive(Clone, Copy)]
struct Place {
    descriptor: u64,
    turned: bool,
}

/// A matrix whose core matrices lie alone, or in patterns of lines of so many bytes.
fn place(line: u64, turned: bool) -> Place {
    let mode = match line {
        128 => 1,
        64 => 2,
        32 => 3,
        _ => 0,
    };
    let (leading, stride) = match (line, turned) {
        (16, _) => (128, 256),
        // Beside each other lie as many as a line holds; those of the next depth follow.
        (line, true) => (16 * line, 8 * line),
        (line, false) => (16, 8 * line),
    };
    Place {
        descriptor: mode << 62 | (stride / 16) << 32 | (leading / 16) << 16,
        turned,
    }
}

/// A form of a product of a warpgroup.
struct GroupForm {
    columns: usize,
    /// Types of `D`, `A` and `B`, and what follows them.
    types: &'static str,
    holds: [Holds; 3],
    /// `A` lies in registers where it has no place.
    places: [Option<Place>; 2],
    negated: [bool; 2],
    /// Whether `C` counts.
    scale: bool,
    /// The selector, and whether one of two is there.
    sparse: Option<(u32, bool)>,
}

/// Bytes of shared memory for each of the two matrices.
const AREA: usize = 32 << 10;
/// How many sets of inputs each such form has.
const GROUP_SETS: usize = 8;

fn group_case(name: &'static str, forms: &[GroupForm]) -> Case {
    let mut text = ".version 9.0\n.target sm_90a\n.address_size 64\n".to_owned();
    for (at, form) in forms.iter().enumerate() {
        text += &group_kernel(at, form);
    }
    let text: &'static str = text.leak();
    let mut case = Case::new(name, Ptx { name, text });
    let mut inputs = Inputs::new(name);
    // All forms with elements of a type share the matrices.
    let mut matrices: Vec<([Holds; 2], super::case::Buffer)> = vec![];
    for (at, form) in forms.iter().enumerate() {
        let [a, b, c] = form.holds;
        let known = matrices.iter().find(|(holds, _)| *holds == [a, b]);
        let memory = match known {
            Some((_, buffer)) => *buffer,
            None => {
                let mut bytes = vec![];
                for set in 0..GROUP_SETS as u64 {
                    for holds in [a, b] {
                        for _ in 0..AREA / 4 {
                            bytes.extend(holds.make(&mut inputs, set));
                        }
                    }
                }
                let buffer = case.input(&bytes);
                matrices.push(([a, b], buffer));
                buffer
            }
        };
        let (sums, of_a) = form.registers();
        let mut bytes = vec![];
        for set in 0..GROUP_SETS as u64 {
            for _thread in 0..128 {
                for _ in 0..sums {
                    bytes.extend(c.make(&mut inputs, set));
                }
                for _ in 0..of_a {
                    bytes.extend(a.make(&mut inputs, set));
                }
                if let Some((_, of_two)) = form.sparse {
                    bytes.extend(Holds::Places { of_two }.make(&mut inputs, set));
                }
            }
        }
        let registers = case.input(&bytes);
        let output = case.output::<u32>(GROUP_SETS * 128 * sums);
        let kernel: &'static str = format!("group_{at}").leak();
        let args = args![memory, registers, output];
        case.launch(kernel, GROUP_SETS as u32, 128, args);
    }
    case
}

impl GroupForm {
    /// How many registers there are of `D`, and of `A`.
    fn registers(&self) -> (usize, usize) {
        let sums = self.columns / if self.holds[2] == F16 { 4 } else { 2 };
        (sums, if self.places[0].is_some() { 0 } else { 4 })
    }
}

/// A kernel that fills shared memory, multiplies once and stores the result.
fn group_kernel(at: usize, form: &GroupForm) -> String {
    let (sums, of_a) = form.registers();
    let ty = form.holds[2].ty();
    let prefix = if ty == "f32" { "%f" } else { "%r" };
    let list = |start: usize, count: usize, prefix: &str| {
        let list: Vec<String> = (start..start + count)
            .map(|n| format!("{prefix}{n}"))
            .collect();
        format!("{{{}}}", list.join(", "))
    };
    let mut body = String::new();
    for n in 0..sums {
        writeln!(
            body,
            "    ld.global.{ty} {prefix}{}, [%rd2+{}];",
            n + 10,
            4 * n
        )
        .unwrap();
    }
    for n in 0..of_a {
        writeln!(
            body,
            "    ld.global.b32 %r{}, [%rd2+{}];",
            n + 200,
            4 * (sums + n)
        )
        .unwrap();
    }
    let (mut sp, mut metadata) = ("", String::new());
    if let Some((selector, _)) = form.sparse {
        let place = 4 * (sums + of_a);
        writeln!(body, "    ld.global.b32 %r8, [%rd2+{place}];").unwrap();
        metadata = format!(", %r8, {selector}");
        sp = ".sp";
    }
    let [a, b] = form.places;
    let descriptor = |place: Option<Place>| place.map_or(0, |place| place.descriptor);
    let depth = match form.holds[0] {
        Holds::Floats(exponent, fraction) => 256 / (1 + exponent + fraction),
        Holds::Tf32 => 8,
        _ if form.types.contains("b1") => 256,
        _ => 32,
    };
    let depth = depth << usize::from(form.sparse.is_some());
    let left = match a {
        Some(_) => "%rd4".to_owned(),
        None => list(200, 4, "%r"),
    };
    let mut numbers = String::new();
    if !matches!(form.holds[0], Holds::Any) {
        for negated in form.negated {
            numbers += if negated { ", -1" } else { ", 1" };
        }
        if matches!(form.holds[0], F16 | BF16) {
            for place in [a, b].into_iter().flatten() {
                numbers += if place.turned { ", 1" } else { ", 0" };
            }
        }
    }
    let (columns, types) = (form.columns, form.types);
    let results = list(10, sums, prefix);
    writeln!(
        body,
        "    wgmma.mma_async{sp}.sync.aligned.m64n{columns}k{depth}.{types} {results}, {left}, %rd5{metadata}, %p1{numbers};",
    )
    .unwrap();
    body += "    wgmma.commit_group.sync.aligned;\n    wgmma.wait_group.sync.aligned 0;\n";
    for n in 0..sums {
        writeln!(
            body,
            "    st.global.{ty} [%rd3+{}], {prefix}{};",
            4 * n,
            n + 10
        )
        .unwrap();
    }
    format!(
        ".visible .entry group_{at}(.param .u64 memory, .param .u64 in, .param .u64 out)
{{
    .reg .pred %p<3>; .reg .b32 %r<256>; .reg .f32 %f<160>; .reg .b64 %rd<8>;
    .shared .align 1024 .b8 area[{both}];
    ld.param.u64 %rd1, [memory]; ld.param.u64 %rd2, [in]; ld.param.u64 %rd3, [out];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r1, 128, %r2;
    mad.wide.u32 %rd2, %r3, {registers}, %rd2; mad.wide.u32 %rd3, %r3, {results}, %rd3;
    mad.wide.u32 %rd1, %r1, {both}, %rd1;
    mov.u32 %r4, area; shl.b32 %r5, %r2, 2;
$fill:
    cvt.u64.u32 %rd6, %r5; add.u64 %rd6, %rd1, %rd6; ld.global.b32 %r6, [%rd6];
    add.u32 %r7, %r4, %r5; st.shared.b32 [%r7], %r6;
    add.u32 %r5, %r5, 512; setp.lt.u32 %p2, %r5, {both}; @%p2 bra $fill;
    fence.proxy.async; bar.sync 0;
    shr.u32 %r4, %r4, 4; cvt.u64.u32 %rd6, %r4; and.b64 %rd6, %rd6, 0x3fff;
    or.b64 %rd4, %rd6, {of_a:#x};
    add.u64 %rd6, %rd6, {area}; or.b64 %rd5, %rd6, {of_b:#x};
    setp.ne.u32 %p1, {scale}, 0;
    wgmma.fence.sync.aligned;
{body}    ret;
}}
",
        both = 2 * AREA,
        registers = 4 * (sums + of_a + usize::from(form.sparse.is_some())),
        results = 4 * sums,
        of_a = descriptor(a),
        of_b = descriptor(b),
        area = AREA / 16,
        scale = u32::from(form.scale),
    )
}

fn group(columns: usize, types: &'static str, holds: [Holds; 3]) -> GroupForm {
    GroupForm {
        columns,
        types,
        holds,
        places: [Some(place(16, false)); 2],
        negated: [false; 2],
        scale: true,
        sparse: None,
    }
}

/// The same of a sparse `A`.
fn sparse_group(
    columns: usize,
    types: &'static str,
    holds: [Holds; 3],
    selector: u32,
) -> GroupForm {
    let mut form = group(columns, types, holds);
    form.places[1] = Some(place_of_twice(16, false));
    form.sparse = Some((selector, holds[0] == TF32));
    form
}

/// Where a matrix of twice the depth lies.
fn place_of_twice(line: u64, turned: bool) -> Place {
    let plain = place(line, turned);
    let (leading, stride) = match (line, turned) {
        (16, _) => (128, 512),
        (32, false) => (8192, 256),
        _ => return plain,
    };
    Place {
        descriptor: plain.descriptor >> 62 << 62 | (stride / 16) << 32 | (leading / 16) << 16,
        turned,
    }
}

/// What `wgmma` multiplies and adds up, and what each matrix holds.
const GROUPS_OF_FLOATS: [(&str, [Holds; 3]); 10] = [
    ("f32.f16.f16", [F16, F16, F32]),
    ("f16.f16.f16", [F16, F16, F16]),
    ("f32.bf16.bf16", [BF16, BF16, F32]),
    ("f32.tf32.tf32", [TF32, TF32, F32]),
    ("f32.e4m3.e4m3", [E4M3, E4M3, F32]),
    ("f32.e4m3.e5m2", [E4M3, E5M2, F32]),
    ("f32.e5m2.e4m3", [E5M2, E4M3, F32]),
    ("f32.e5m2.e5m2", [E5M2, E5M2, F32]),
    ("f16.e4m3.e4m3", [E4M3, E4M3, F16]),
    ("f16.e5m2.e4m3", [E5M2, E4M3, F16]),
];

fn groups_of_floats(name: &'static str) -> Case {
    let mut forms = vec![];
    for (types, holds) in GROUPS_OF_FLOATS {
        forms.push(group(8, types, holds));
        let mut in_registers = group(24, types, holds);
        in_registers.places[0] = None;
        in_registers.negated = [true, false];
        forms.push(in_registers);
        let mut from_zero = group(16, types, holds);
        from_zero.negated = [false, true];
        from_zero.scale = false;
        forms.push(from_zero);
    }
    group_case(name, &forms)
}

fn groups_of_integers(name: &'static str) -> Case {
    let mut forms = vec![];
    for types in [
        "s32.s8.s8",
        "s32.u8.s8",
        "s32.s8.u8.satfinite",
        "s32.u8.u8",
        "s32.b1.b1.and.popc",
    ] {
        forms.push(group(8, types, [Holds::Any; 3]));
        let mut in_registers = group(32, types, [Holds::Any; 3]);
        in_registers.places[0] = None;
        forms.push(in_registers);
    }
    group_case(name, &forms)
}

/// Every pattern of shared memory, also of matrices that go the other way, and the most columns.
fn groups_in_patterns(name: &'static str) -> Case {
    let mut forms = vec![];
    for line in [16, 32, 64, 128] {
        for turned in [[false, false], [true, false], [false, true], [true, true]] {
            for columns in [8, 128] {
                let mut form = group(columns, "f32.f16.f16", [F16, F16, F32]);
                form.places = turned.map(|turned| Some(place(line, turned)));
                forms.push(form);
            }
        }
        let mut form = group(256, "f32.bf16.bf16", [BF16, BF16, F32]);
        form.places = [None, Some(place(line, true))];
        forms.push(form);
        let mut form = group(104, "f32.e4m3.e5m2", [E4M3, E5M2, F32]);
        form.places = [Some(place(line, false)); 2];
        forms.push(form);
    }
    group_case(name, &forms)
}

fn sparse_groups_of_floats(name: &'static str) -> Case {
    let mut forms = vec![];
    for (types, holds) in GROUPS_OF_FLOATS {
        let last = if matches!(holds[0], E4M3 | E5M2) {
            0
        } else {
            1
        };
        for selector in 0..=last {
            forms.push(sparse_group(8, types, holds, selector));
        }
        let mut in_registers = sparse_group(24, types, holds, last);
        in_registers.places[0] = None;
        in_registers.negated = [true, false];
        forms.push(in_registers);
        let mut from_zero = sparse_group(16, types, holds, 0);
        from_zero.negated = [false, true];
        from_zero.scale = false;
        forms.push(from_zero);
    }
    group_case(name, &forms)
}

fn sparse_groups_of_integers(name: &'static str) -> Case {
    let mut forms = vec![];
    for types in ["s32.s8.s8", "s32.u8.s8", "s32.s8.u8.satfinite", "s32.u8.u8"] {
        forms.push(sparse_group(8, types, [Holds::Any; 3], 0));
        let mut in_registers = sparse_group(32, types, [Holds::Any; 3], 0);
        in_registers.places[0] = None;
        forms.push(in_registers);
    }
    group_case(name, &forms)
}

fn sparse_groups_in_patterns(name: &'static str) -> Case {
    let mut forms = vec![];
    for line in [16, 32, 64, 128] {
        for turned in [[false, false], [true, false], [false, true], [true, true]] {
            for columns in [8, 128] {
                let mut form = sparse_group(columns, "f32.f16.f16", [F16, F16, F32], 1);
                form.places = [
                    Some(place(line, turned[0])),
                    Some(place_of_twice(line, turned[1])),
                ];
                forms.push(form);
            }
        }
        let mut form = sparse_group(256, "f32.bf16.bf16", [BF16, BF16, F32], 0);
        form.places = [None, Some(place_of_twice(line, true))];
        forms.push(form);
        let mut form = sparse_group(104, "f32.e4m3.e5m2", [E4M3, E5M2, F32], 0);
        form.places = [Some(place(line, false)), Some(place_of_twice(line, false))];
        forms.push(form);
    }
    group_case(name, &forms)
}
