//! Every floating-point instruction, compiled and run, against references that are exact by another
//! way: the processor's own rounding modes, integer arithmetic, the pseudocode of the PTX
//! documentation.

mod angles;
mod compare;
mod convert;
mod forms;
mod half;
mod single;
mod special;

use std::sync::Arc;

use crate::jit::harness;
use crate::jit::module::{Form as Threads, Module};
use crate::jit::runtime::float::tests::Random;

/// What an instruction should give for operands given as bits; `None` where anything goes.
type Reference = Box<dyn Fn([u64; 3]) -> u64>;

/// An instruction to run over many operands.
struct Form {
    /// With operands `%d` (the destination), `%a`, `%b`, `%c`.
    text: String,
    /// Classes of the destination and the operands: `p`redicate, `h`alf (16 bits), `r` (32), `l`
    /// (64), `f`32, `d` (f64).
    classes: &'static str,
    reference: Reference,
}

fn form(
    text: impl Into<String>,
    classes: &'static str,
    reference: impl Fn([u64; 3]) -> u64 + 'static,
) -> Form {
    Form {
        text: text.into(),
        classes,
        reference: Box::new(reference),
    }
}

fn bits_of(class: u8) -> u32 {
    match class {
        b'p' => 1,
        b'h' => 16,
        b'r' | b'f' => 32,
        _ => 64,
    }
}

/// Operands for a form: all of them where there are 2^16 at most, otherwise edges and random ones.
fn operands(classes: &[u8], random: &mut Random) -> Vec<[u64; 3]> {
    if classes == b"h" {
        return (0..=0xffff).map(|bits| [bits, 0, 0]).collect();
    }
    const HALVES: [u16; 24] = [
        0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x0401, 0x3c00, 0xbc00, 0x3c01, 0x7bff, 0xfbff,
        0x7c00, 0xfc00, 0x7c01, 0x7e00, 0x7fff, 0xffff, 0x007f, 0x0080, 0x3f80, 0x7f7f, 0x7f80,
        0x7f81,
    ];
    let half = |random: &mut Random| -> u64 {
        let pick = random.next();
        u64::from(match pick & 3 {
            0 => HALVES[(pick >> 8) as usize % HALVES.len()],
            // Near each other, so that sums cancel and products are near ties.
            1 => 0x3c00 ^ (pick >> 8) as u16 & 0x8fff,
            _ => (pick >> 8) as u16,
        })
    };
    (0..4000)
        .map(|_| {
            let mut values = [0; 3];
            for (value, class) in values.iter_mut().zip(classes) {
                *value = match class {
                    b'h' => half(random),
                    b'r' if random.next() & 1 == 0 => half(random) << 16 | half(random),
                    b'r' | b'l' => {
                        let number = random.next() >> (random.next() & 63);
                        let number = if random.next() & 1 == 0 {
                            number
                        } else {
                            number.wrapping_neg()
                        };
                        if *class == b'r' {
                            number & 0xffff_ffff
                        } else {
                            number
                        }
                    }
                    b'f' => u64::from(random.single().to_bits()),
                    b'd' => random.double().to_bits(),
                    _ => random.next() & 1,
                };
            }
            values
        })
        .collect()
}

/// The PTX of a kernel that runs a form on the operands of each thread.
fn kernel(name: &str, form: &Form) -> String {
    let (dst, sources) = (form.classes.as_bytes()[0], &form.classes.as_bytes()[2..]);
    let mut text = format!(
        ".visible .entry {name}(.param .u64 in, .param .u64 out, .param .u32 n) {{
        .reg .pred %more, %q; .reg .b32 %i, %j, %w; .reg .b64 %in, %out, %x;
        ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u32 %w, [n];
        mov.u32 %i, %tid.x; mov.u32 %j, %ctaid.x; mad.lo.s32 %i, %j, 128, %i;
        setp.ge.u32 %more, %i, %w; @%more ret;
        mul.wide.u32 %x, %i, 24; add.u64 %in, %in, %x; mul.wide.u32 %x, %i, 8; add.u64 %out, %out, %x;\n"
    );
    let class = |class: u8| match class {
        b'p' => "pred",
        b'h' => "b16",
        b'r' => "b32",
        b'l' => "b64",
        b'f' => "f32",
        _ => "f64",
    };
    text.push_str(&format!(".reg .{} %d;\n", class(dst)));
    for (n, source) in sources.iter().enumerate() {
        let register = ["%a", "%b", "%c"][n];
        text.push_str(&format!(
            ".reg .{} {register}; ld.global.u64 %x, [%in+{}];\n",
            class(*source),
            8 * n
        ));
        text.push_str(&match source {
            b'p' => format!("setp.ne.u64 {register}, %x, 0;\n"),
            b'h' => format!("cvt.u16.u64 {register}, %x;\n"),
            b'r' => format!("cvt.u32.u64 {register}, %x;\n"),
            b'f' => format!("cvt.u32.u64 %w, %x; mov.b32 {register}, %w;\n"),
            _ => format!("mov.b64 {register}, %x;\n"),
        });
    }
    text.push_str(&format!("{};\n", form.text));
    text.push_str(match dst {
        b'p' => "selp.u64 %x, 1, 0, %d;\n",
        b'h' => "cvt.u64.u16 %x, %d;\n",
        b'r' => "cvt.u64.u32 %x, %d;\n",
        b'f' => "mov.b32 %w, %d; cvt.u64.u32 %x, %w;\n",
        _ => "mov.b64 %x, %d;\n",
    });
    text.push_str("st.global.u64 [%out], %x; ret; }\n");
    text
}

/// The results of a kernel for these cases.
fn run(module: &Arc<Module>, kernel: &str, cases: &[[u64; 3]]) -> Vec<u64> {
    let mut input: Vec<u64> = cases.as_flattened().to_vec();
    let mut output = vec![0u64; cases.len()];
    let count = cases.len() as u32;
    harness::run_in(
        module,
        kernel,
        [count.div_ceil(128), 1, 1],
        [128, 1, 1],
        0,
        &mut [harness::buffer(&mut input), harness::buffer(&mut output)],
        &[&count.to_le_bytes()],
    )
    .unwrap_or_else(|fault| panic!("{fault:?}"));
    output
}

/// Compiles and runs every form, in vectors and thread by thread; all that differ are told.
fn check(forms: Vec<Form>) {
    let mut text = String::from(".version 9.0\n.target sm_90\n.address_size 64\n");
    for (n, form) in forms.iter().enumerate() {
        text.push_str(&kernel(&format!("k{n}"), form));
    }
    let modules = [Threads::Vectors, Threads::Rounds].map(|form| harness::load_as(&text, form));
    let mut random = Random(77);
    let mut wrong = Vec::new();
    let both = (0..).zip(&forms).flat_map(|form| [form; 2]);
    for ((n, form), module) in both.zip(modules.iter().cycle()) {
        let (dst, sources) = (form.classes.as_bytes()[0], &form.classes.as_bytes()[2..]);
        let cases = operands(sources, &mut random);
        let results = run(module, &format!("k{n}"), &cases);
        let digits = bits_of(dst).div_ceil(4) as usize;
        let mut shown = 0;
        for (case, result) in cases.iter().zip(&results) {
            let expected = (form.reference)(*case);
            if *result != expected && shown < 4 {
                shown += 1;
                let operands: Vec<String> = sources
                    .iter()
                    .zip(case)
                    .map(|(class, bits)| {
                        format!("{bits:0w$x}", w = bits_of(*class).div_ceil(4) as usize)
                    })
                    .collect();
                wrong.push(format!(
                    "{}  {}: {result:0digits$x}, not {expected:0digits$x}",
                    form.text,
                    operands.join(" ")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
