//! Matrix products of a warp: every shape and type of `mma` and `wmma.mma` up to sm_90. Their PTX is
//! made here, a kernel for each form, in which a warp loads its registers, multiplies once and
//! stores the result.

use std::fmt::Write;

use super::case::{Case, Ptx, args};
use super::input::Inputs;

super::cases! {
    halves, halves_and_singles, bfloats, tf32s, bytes, doubles, integers, bits, quads,
    sparse_floats, sparse_integers, fragments_of_halves, fragments_of_others,
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

/// A form of a product: the instruction, and the registers that a lane has of `A`, `B`, `C` and `D`.
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
