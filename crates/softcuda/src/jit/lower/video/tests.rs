//! Every form over edge values, against the reference; and what is refused.

use super::reference;
use crate::jit::harness::{self, buffer};
use crate::jit::module::{LoadOptions, Module};

fn run(instruction: &str, a: u32, b: u32, c: u32) -> u32 {
    let source = harness::module(&format!(
        ".visible .entry k(.param .u64 out, .param .u32 a, .param .u32 b, .param .u32 c) {{
.reg .b32 %r<5>; .reg .b64 %rd1;
ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [a]; ld.param.u32 %r2, [b]; ld.param.u32 %r3, [c];
{instruction} %r4, %r1, %r2, %r3; st.global.u32 [%rd1], %r4; }}"
    ));
    let mut out = [0u32];
    let scalars = [a, b, c].map(u32::to_le_bytes);
    let scalars = scalars.each_ref().map(|bytes| &bytes[..]);
    let one = [1, 1, 1];
    harness::run(&source, "k", one, one, &mut [buffer(&mut out)], &scalars).unwrap();
    out[0]
}

#[test]
fn lanes_do_not_touch_each_other() {
    let (a, b) = (0x80ff_7f01, 0x01ff_8002);
    assert_eq!(run("vabsdiff4.u32.u32.u32", a, b, 9), 0x7f00_0101);
    assert_eq!(run("vabsdiff4.u32.u32.u32.add", a, b, 9), 0x7f + 2 + 9);
    assert_eq!(run("vadd4.u32.u32.u32", a, b, 0), 0x81fe_ff03);
    assert_eq!(run("vadd4.u32.u32.u32.sat", a, b, 0), 0x81ff_ff03);
    assert_eq!(run("vadd4.s32.s32.s32.sat", a, b, 0), 0x81fe_ff03);
    assert_eq!(run("vsub4.s32.s32.s32.sat", a, b, 0), 0x8000_7fff);
    assert_eq!(run("vmin4.s32.s32.s32", a, b, 0), 0x80ff_8001);
    assert_eq!(run("vmax4.u32.u32.u32", a, b, 0), 0x80ff_8002);
    assert_eq!(run("vavrg4.u32.u32.u32", a, b, 0), 0x41ff_8002);
    assert_eq!(run("vset4.u32.u32.lt", a, b, 0), 0x0000_0101);
    assert_eq!(run("vset4.u32.u32.ge.add", a, b, 10), 12);
    assert_eq!(run("vadd2.u32.u32.u32", 0xffff_0001, 0x0001_ffff, 0), 0);
    assert_eq!(
        run("vsub2.s32.s32.s32.sat", 0x8000_7fff, 0x0001_ffff, 0),
        0x8000_7fff
    );
    assert_eq!(
        run("vabsdiff2.s32.s32.s32", 0x8000_0001, 0x7fff_ffff, 0),
        0xffff_0002
    );
}

/// Runs every form on every set of registers.
fn check(forms: Vec<String>) {
    let names: Vec<String> = (0..forms.len().div_ceil(32))
        .map(|at| format!("k{at}"))
        .collect();
    let chunks = || names.iter().zip(forms.chunks(32));
    let kernels: String = chunks()
        .map(|(name, forms)| reference::kernel(name, forms))
        .collect();
    let module = harness::load(&harness::module(&kernels));
    for (name, forms) in chunks() {
        let mut sets = reference::sets();
        let mut out = vec![0u32; forms.len() * reference::SETS];
        let grid = [(reference::SETS / reference::BLOCK) as u32, 1, 1];
        let block = [reference::BLOCK as u32, 1, 1];
        let buffers = &mut [buffer(&mut sets), buffer(&mut out)];
        harness::run_in(&module, name, grid, block, 0, buffers, &[]).unwrap();
        let want = reference::results(forms);
        if let Some(at) = (0..out.len()).find(|at| out[*at] != want[*at]) {
            let (form, set) = (&forms[at % forms.len()], sets[at / forms.len()]);
            panic!("`{form}` of {set:x?}: {:x}, not {:x}", out[at], want[at]);
        }
    }
}

#[test]
fn scalars_of_every_form() {
    check(reference::scalars());
}

#[test]
fn products_of_every_form() {
    check(reference::products());
}

#[test]
fn lanes_of_every_form() {
    check(reference::simd());
}

#[test]
fn results_as_documented() {
    let run = |form: &str, a, b, c| {
        let form = form.to_owned();
        let source = harness::module(&reference::kernel("k", &[form]));
        let mut sets = vec![[0u32; 3]; reference::SETS];
        sets[0] = [a, b, c];
        let mut out = vec![0u32; reference::SETS];
        let buffers = &mut [buffer(&mut sets), buffer(&mut out)];
        harness::run(&source, "k", [1, 1, 1], [1, 1, 1], buffers, &[]).unwrap();
        out[0]
    };
    let r = |form| run(form, 0x80ff_7f01, 0x0102_8004, 0x1122_3344);
    assert_eq!(r("vadd.s32.s32.s32 %r4, %r1.b2, %r2.b0"), 3);
    assert_eq!(r("vsub.s32.u32.s32.sat %r4, %r1, %r2.h0"), i32::MAX as u32);
    assert_eq!(r("vmax.s32.s32.s32 %r4.b1, %r1, %r2.b1, %r3"), 0x1122_8044);
    assert_eq!(r("vshr.u32.s32.u32.clamp %r4, %r1.b3, %r2.b0"), 0xffff_fff8);
    assert_eq!(r("vset.u32.u32.gt.add %r4, %r1, %r2, %r3"), 0x1122_3345);
    assert_eq!(
        r("vmad.u32.u32.u32.shr7 %r4, %r1.h0, %r2.b0, 128"),
        0x7f01 * 4 / 128 + 1
    );
    assert_eq!(
        r("vmad.s32.u32.u32 %r4, -%r1.b1, %r2.b0, 7"),
        (7i32 - 0x7f * 4) as u32
    );
    assert_eq!(
        r("vadd2.u32.u32.u32 %r4.h1, %r1.h01, %r2.h32, %r3"),
        0x8003_3344
    );
    assert_eq!(
        r("vadd4.s32.s32.s32.add %r4.b30, %r1, %r2, %r3"),
        0x1122_3344 - 122
    );
}

#[test]
fn wrong_forms_are_refused() {
    for wrong in [
        "vadd.s32.u32.s32.add %r4, %r1, %r2",
        "vadd.s32.u32.s32.max %r4.h0, %r1, %r2, %r3",
        "vadd.s32.u32.s32 %r4.h0, %r1, %r2",
        "vadd.s32.u32.s32 %r4.h10, %r1.b1, %r2.h1, %r3",
        "vadd.s32.u32.s32 %r4, %r1.h10, %r2",
        "vadd.s32.u32.s32 %r4, %r1.b4, %r2",
        "vadd.s32.u32.s32 %r4, %r1.h2, %r2",
        "vadd.s32.u32.s32 %r4, %r1.x, %r2",
        "vadd.s32.u32.s32.add %r4, %r1, %r2, %r3.b0",
        "vadd.s32.u32 %r4, %r1, %r2",
        "vadd.s32.u32.u64 %r4, %r1, %r2",
        "vadd.s32.u32.s32 %rd1, %r1, %r2",
        "vadd.s32.u32.s32 %f4, %f1, %r2",
        "vadd.s32.u32.s32 %r4, -%r1, %r2",
        "vadd.s32.u32.s32 %r4, %tid.x, %r2",
        "vadd.s32.u32.s32 %r4, 1.0, %r2",
        "vadd.s32.u32.s32 _, %r1, %r2",
        "vadd.s32.u32.s32 5, %r1, %r2",
        "vadd.s32.u32.s32 %r4, %r1",
        "vadd.u32.u32.u32.add.max %r4, %r1, %r2, %r3",
        "vadd.u32.u32.u32.clamp %r4, %r1, %r2, %r3",
        "vadd.u32.u32.u32.shr7 %r4, %r1, %r2, %r3",
        "vshl.s32.u32.s32.clamp %r4, %r1, %r2",
        "vshl.s32.u32.u32 %r4, %r1, %r2",
        "vshl.u32.u32.u32.clamp.wrap %r4, %r1, %r2, %r3",
        "vset.u32.s32.lt.sat %r4, %r1, %r2",
        "vset.u32.s32.lo %r4, %r1, %r2",
        "vset.u32.u32 %r4, %r1, %r2",
        "vset.u32.u32.s32.lt %r4, %r1, %r2",
        "vmad.s32.s32.u32 %r4, -%r1, %r2, -%r3",
        "vmad.u32.u32.u32.po %r4, %r1, -%r2.h0, %r3",
        "vmad.u32.u32.u32.po %r4, %r1, %r2, -%r3",
        "vmad.u32.u32.u32 %r4.b0, %r1, %r2, %r3",
        "vmad.u32.u32.u32 %r4, %r1, %r2, -%r3.b0",
        "vmad.u32.u32.u32 %r4, %r1, %r2",
        "vmad.u32.u32.u32.add %r4, %r1, %r2, %r3",
        "vmad.u32.u32.u32.shr7.shr15 %r4, %r1, %r2, %r3",
        "vadd2.u32.u32.u32 %r4.h01, %r1, %r2, %r3",
        "vadd2.u32.u32.u32 %r4.h11, %r1, %r2, %r3",
        "vadd2.u32.u32.u32 %r4, %r1.h0, %r2, %r3",
        "vadd2.u32.u32.u32 %r4, %r1.h04, %r2, %r3",
        "vadd2.u32.u32.u32 %r4, %r1.b3210, %r2, %r3",
        "vadd2.u32.u32.u32 %r4, %r1, %r2, %r3.h0",
        "vadd2.u32.u32.u32 %r4, %r1, 5, %r3",
        "vadd2.u32.u32.u32 %r4, %r1, %r2, 7",
        "vadd2.u32.u32.u32 %r4, %r1, %r2",
        "vadd2.u32.u32.u32.sat.add %r4, %r1, %r2, %r3",
        "vadd2.u32.u32.u32.max %r4, %r1, %r2, %r3",
        "vadd4.u32.u32.u32 %r4.b0123, %r1, %r2, %r3",
        "vadd4.u32.u32.u32 %r4.b00, %r1, %r2, %r3",
        "vadd4.u32.u32.u32 %r4, %r1.b0248, %r2, %r3",
        "vadd4.u32.u32.u32 %r4, %r1.b024, %r2, %r3",
        "vset4.u32.u32.lt.sat %r4, %r1, %r2, %r3",
        "add.u32 %r4, %r1.b0, %r2",
        "add.u32 %r4, %r1, -%r2",
    ] {
        let source = harness::module(&format!(
            ".visible .entry k() {{ .reg .b32 %r<5>; .reg .f32 %f<5>; .reg .b64 %rd<2>; {wrong}; }}"
        ));
        let loaded = Module::load(source.as_bytes(), &LoadOptions::default());
        assert!(loaded.is_err(), "`{wrong}` loads");
    }
}
