//! Video instructions: every form, over words at the limits of bytes, halves and words. Their PTX
//! is made here, a kernel for a few forms. The host's answer is that of the instructions' own
//! tests.

#[path = "../../../src/jit/lower/video/reference.rs"]
mod reference;

use super::case::{Case, Ptx, args};

super::cases! { scalars, products, simd }

/// The one form in which an H200's driver differs from what it gives of all others: where it shifts
/// by 0 it leaves out the maximum.
const APART: &str = "vshr.u32.u32.u32.sat.clamp.max %r4, %r1, %r2.h1, %r3";

/// How many forms a kernel has.
const FORMS: usize = 64;

fn case_of(name: &'static str, forms: &[String]) -> Case {
    let mut text = ".version 9.0\n.target sm_90\n.address_size 64\n".to_owned();
    for (at, forms) in forms.chunks(FORMS).enumerate() {
        text += &reference::kernel(&format!("video_{at}"), forms);
    }
    let text: &'static str = text.leak();
    let mut case = Case::new(name, Ptx { name, text });
    let sets: Vec<u32> = reference::sets().into_iter().flatten().collect();
    let input = case.input(&sets);
    for (at, forms) in forms.chunks(FORMS).enumerate() {
        let output = case.output::<u32>(forms.len() * reference::SETS);
        case.columns(output, forms.len());
        case.expect(output, &reference::results(forms));
        let kernel: &'static str = format!("video_{at}").leak();
        let grid = (reference::SETS / reference::BLOCK) as u32;
        case.launch(kernel, grid, reference::BLOCK as u32, args![input, output]);
    }
    case
}

fn scalars(name: &'static str) -> Case {
    let mut forms = reference::scalars();
    forms.retain(|form| form != APART);
    case_of(name, &forms)
}

fn products(name: &'static str) -> Case {
    case_of(name, &reference::products())
}

fn simd(name: &'static str) -> Case {
    case_of(name, &reference::simd())
}
