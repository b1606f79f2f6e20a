//! Matrix instructions that are used wrongly: each ends the same in all forms.

use super::forms;
use super::fuzz::{Sample, setting};
use crate::grid::launch::FaultKind;
use crate::jit::harness;
use crate::jit::module::{Form, LoadOptions, Module};

/// What a body leaves, or its fault, the same in all forms. Which of several threads is first to
/// fault is chance.
fn same(body: &str, threads: u32) -> Result<Vec<u32>, FaultKind> {
    let source = forms::kernel(body);
    let [vectors, rounds, fibers] = [Form::Vectors, Form::Rounds, Form::Fibers].map(|form| {
        let outcome = forms::run(&source, form, [1, 1, 1], [threads, 1, 1], 0);
        outcome.map_err(|(kind, ..)| kind)
    });
    for (got, form) in [(&vectors, "vectors"), (&rounds, "rounds")] {
        assert!(
            *got == fibers,
            "{form} of {threads} threads, {} for {}:\n{body}",
            short(got),
            short(&fibers)
        );
    }
    fibers
}

fn short(outcome: &Result<Vec<u32>, FaultKind>) -> String {
    match outcome {
        Ok(words) => format!("{:x?}", &words[..40]),
        Err(kind) => format!("{kind:?}"),
    }
}

/// Registers of a product, with numbers that differ from lane to lane.
const OPERANDS: &str = "
    .reg .b32 %a<8>, %b<8>, %c<16>, %d<16>; .reg .b64 %q<8>; .reg .f64 %e<8>;
    mad.lo.u32 %a0, %r1, 0x1011, 0x3c00; mad.lo.u32 %a1, %r1, 77, 0x3d113800;
    mad.lo.u32 %a2, %r1, 0x10001, 0x3c004000; xor.b32 %a3, %a1, %r1;
    mad.lo.u32 %b0, %r1, 0x20003, 0x39003c00; xor.b32 %b1, %b0, 0x8000;
    mov.b32 %c0, 0x3f800000; mov.b32 %c1, 0x40000000; mov.b32 %c2, %r1; mov.b32 %c3, 0;";

/// Fills shared memory with zeros: what it holds at first is what another block left.
const CLEAR: &str = "
    mov.u64 %q7, 0; mov.u32 %r5, 0;
    clear: st.shared.u64 [%r5], %q7; add.u32 %r5, %r5, 8; setp.lt.u32 %p3, %r5, 8192;
    @%p3 bra clear; bar.sync 0;";

/// Adds what a product left to what the thread leaves.
const SUMS: &str = "
    xor.b32 %r9, %c0, %c1; mad.lo.u32 %r9, %r9, 31, %c2; mad.lo.u32 %r9, %r9, 31, %c3;";

/// Instructions of whole warps.
const PRODUCTS: &[&str] = &[
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%c0, %c1, %c2, %c3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1, %c2, %c3};",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32
    {%c0, %c1, %c2, %c3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1, %c2, %c3};",
    "movmatrix.sync.aligned.m8n8.trans.b16 %c0, %a0;",
    "mov.u32 %a4, s; shl.b32 %a5, %r1, 4; add.u32 %a4, %a4, %a5;
    st.shared.v4.b32 [%a4], {%a0, %a1, %a2, %a3}; bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%c0, %c1}, [%a4];",
];

/// Shared memory begins with what another block left. Lanes that are not there have the address of
/// its first row, which the first lane may leave unwritten.
const FIRST_ROW: &str = "setp.eq.u32 %p1, %r1, 0; mov.u32 %a4, s; mov.b32 %a5, 0;
    @%p1 st.shared.v4.b32 [%a4], {%a5, %a5, %a5, %a5}; bar.warp.sync -1;";

/// Lanes that have ended, or never were, have zeros. What another block left there is not seen.
#[test]
fn lanes_that_are_not_there() {
    for product in PRODUCTS {
        for (before, threads) in [
            ("", 16),
            ("", 40),
            ("setp.gt.u32 %p1, %r1, 20; @%p1 bra over;", 32),
            ("setp.lt.u32 %p1, %r1, 8; @%p1 bra over;", 64),
            ("setp.eq.u32 %p1, %r1, 0; @%p1 exit;", 33),
            (
                "and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 0; @%p1 exit;",
                32,
            ),
        ] {
            // The lanes leave something first, so that words of theirs are in the tile.
            for first in ["", PRODUCTS[0]] {
                let body =
                    format!("{OPERANDS} {FIRST_ROW} {first} {before} {product} {SUMS} over:");
                let once = same(&body, threads);
                let again = same(&body, threads);
                assert_eq!(once, again, "{body}");
            }
        }
    }
}

/// A product that lanes come to on different ways, and one that some never come to.
#[test]
fn lanes_that_part() {
    for product in PRODUCTS {
        for condition in [
            "setp.lt.u32 %p1, %r1, 16;",
            "and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 0;",
            "setp.eq.u32 %p1, %r1, 31;",
        ] {
            let guarded = product.trim_end_matches(';').rsplit_once(';');
            let guarded = match guarded {
                None => format!("@%p1 {product} @!%p1 {product}"),
                Some((before, last)) => format!("{before}; @%p1 {last}; @!%p1 {last};"),
            };
            for body in [
                format!("{condition} {guarded}"),
                format!("{condition} @%p1 bra a; {product} bra b; a: {product} b:"),
            ] {
                let body = format!("{OPERANDS} {body} {SUMS}");
                same(&body, 32).unwrap_or_else(|fault| panic!("{fault:?} {body}"));
            }
            let body = format!(
                "{OPERANDS} {condition} @%p1 bra a; bar.sync 0; bra b; a: {product} bar.sync 0; b:"
            );
            let kind = same(&body, 32);
            assert_eq!(kind, Err(FaultKind::Deadlock), "{body}");
        }
    }
}

#[test]
fn rows_outside_of_shared_memory() {
    for (instruction, lanes) in [
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%c0}, [%a4];", 8),
        (
            "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%c0, %c1}, [%a4];",
            16,
        ),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%a4], {%c0};", 8),
        (
            "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%a4], {%c0, %c1, %c2, %c3};",
            32,
        ),
    ] {
        for bad in [0u32, 7, 8, 15, 16, 31] {
            for (address, kind) in [
                ("8192", FaultKind::IllegalAddress),
                ("8184", FaultKind::Misaligned),
                ("0xfffffff0", FaultKind::IllegalAddress),
                ("8", FaultKind::Misaligned),
                ("2", FaultKind::Misaligned),
            ] {
                let body = format!(
                    "{OPERANDS} {CLEAR} mov.u32 %a4, s; shl.b32 %a5, %r1, 4; add.u32 %a4, %a4, %a5;
                    setp.eq.u32 %p1, %r1, {bad}; @%p1 mov.u32 %a4, {address};
                    {instruction} {SUMS}"
                );
                let outcome = same(&body, 32);
                match bad < lanes {
                    true => assert_eq!(outcome.err(), Some(kind), "{body}"),
                    false => drop(outcome.unwrap_or_else(|fault| panic!("{fault:?} {body}"))),
                }
            }
        }
    }
}

#[test]
fn fragments_outside_of_memory() {
    let mut sample = Sample::one_in(2);
    for (instruction, good) in [
        (
            "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16
        {%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}, [%r4], %r5;",
            true,
        ),
        (
            "wmma.load.b.sync.aligned.row.m16n16k16.f16
        {%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}, [%rd9], %r5;",
            false,
        ),
        (
            "wmma.store.d.sync.aligned.col.m16n16k16.shared.f32
        [%r4], {%c0, %c1, %c2, %c3, %c0, %c1, %c2, %c3}, %r5;",
            true,
        ),
        (
            "wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%rd1+4096], {%e0, %e1}, %r5;",
            false,
        ),
    ] {
        for (start, stride) in [
            (0, 16),
            (0, 0),
            (0, 8),
            (2, 16),
            (8190, 16),
            (0, 0x7fff_fff0),
            (0, 0xffff_fff0u32),
            (6, 17),
        ] {
            if !sample.takes() {
                continue;
            }
            let body = format!(
                "{OPERANDS} {CLEAR} mov.b32 %a4, 0; mov.b32 %a5, 0; mov.b32 %a6, 0; mov.b32 %a7, 0;
                mov.f64 %e0, 0d3ff0000000000000; mov.f64 %e1, %e0;
                mov.u32 %r4, {start}; mov.u32 %r5, {stride};
                mov.u64 %rd8, s; cvta.shared.u64 %rd9, %rd8; add.u64 %rd9, %rd9, {start};
                mad.lo.u32 %r6, %r1, 256, 0; st.shared.v4.b32 [%r6], {{%a0, %a1, %a2, %a3}};
                {instruction} xor.b32 %c0, %c0, %a0; xor.b32 %c1, %c1, %a3; {SUMS}"
            );
            let outcome = same(&body, 32);
            if stride == 16 && start == 0 && good {
                outcome.unwrap_or_else(|fault| panic!("{fault:?} {body}"));
            }
        }
    }
}

/// Descriptors of every kind, at random, and warps that are not all there.
#[test]
fn descriptors_outside_of_shared_memory() {
    let mut random = super::fuzz::Random(7);
    for case in 0..setting("SOFTCUDA_FUZZ_CASES").map_or(40, |_| 120) {
        let threads = [128, 32, 16, 130, 256][random.below(5)];
        let descriptor = match random.below(3) {
            0 => random.next(),
            1 => random.next() & 0xc000_0000_0000_0000 | (random.next() & 0x3f) << 16 | 8 << 32,
            _ => random.next() & 0xc00e_007f_007f_01ff,
        };
        let exits = [
            "",
            "setp.eq.u32 %p2, %r1, 0; @%p2 exit;",
            "setp.gt.u32 %p2, %r1, 40; @%p2 exit;",
        ][random.below(3)];
        let (a, words) = match random.below(2) {
            0 => ("{%a0, %a1, %a2, %a3}", "1, 1, 1"),
            _ => ("%q0", "1, -1, 0, 1"),
        };
        let body = format!(
            "{OPERANDS} {CLEAR} shl.b32 %r5, %r1, 4; and.b32 %r5, %r5, 8191;
            st.shared.v4.b32 [%r5], {{%a0, %a1, %a2, %a3}};
            setp.ne.u32 %p1, %r3, 1; bar.sync 0;
            mov.u64 %q0, {descriptor}; mov.u64 %q1, 0x4000000800000010;
            {exits}
            wgmma.fence.sync.aligned;
            wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
            {{%c0, %c1, %c2, %c3}}, {a}, %q{}, %p1, {words};
            wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; {SUMS}",
            case % 2
        );
        let once = same(&body, threads);
        assert_eq!(once, same(&body, threads), "{body}");
    }
}

/// The lane whose end completes the product does not hide that a descriptor was wrong.
#[test]
fn a_descriptor_that_a_lane_s_end_shows_to_be_wrong() {
    for exits in ["setp.eq.u32 %p2, %r1, 31;", "setp.gt.u32 %p2, %r1, 7;"] {
        let body = format!(
            "{OPERANDS} mov.u64 %q1, 0x3fff; {exits} @%p2 exit;
            wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
            {{%c0, %c1, %c2, %c3}}, {{%a0, %a1, %a2, %a3}}, %q1, 1, 1, 1, 0; {SUMS}"
        );
        assert_eq!(same(&body, 32).err(), Some(FaultKind::IllegalAddress));
    }
}

/// Operands of every kind at every place: what loads compiles and runs.
#[test]
fn operands_of_other_kinds() {
    let kinds = [
        "%a0",
        "%q0",
        "%e0",
        "%p1",
        "%h0",
        "7",
        "0f3f800000",
        "_",
        "s",
        "%tid.x",
        "[%q0]",
        "{%a0}",
        "{%a0, %a1}",
        "{%a0, %a1, %a2, %a3}",
        "{%q0, %q1}",
        "{%e0, %e1}",
        "!%p1",
        "{%p1, %p2}",
        "{%h0, %h1, %h2, %h3}",
        "{_, _, _, _}",
        "{%f0, %f1, %f2, %f3}",
        "[%a0]",
        "[%p1]",
        "[%h0+1]",
        "[%f0]",
        "[s+4]",
        "[k]",
        "[_]",
        "k",
        "%zz",
        "[%zz]",
        "{%a0, 3, %a2, _}",
        "{}",
        "%a1|%p1",
    ];
    let instructions: &[(&str, &[&str])] = &[
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            &[
                "{%a0, %a1, %a2, %a3}",
                "{%a0, %a1, %a2, %a3}",
                "{%a0, %a1}",
                "{%a0, %a1, %a2, %a3}",
            ],
        ),
        (
            "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
            &[
                "{%a0, %a1, %a2, %a3}",
                "{%a0, %a1, %a2, %a3}",
                "{%a0, %a1, %a2, %a3}",
                "{%a0, %a1, %a2, %a3}",
                "%a0",
                "0",
            ],
        ),
        (
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
            &["{%e0, %e1}", "{%e0}", "{%e1}", "{%e0, %e1}"],
        ),
        ("movmatrix.sync.aligned.m8n8.trans.b16", &["%a0", "%a1"]),
        (
            "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16",
            &["{%a0, %a1}", "[%a2]"],
        ),
        (
            "stmatrix.sync.aligned.m8n8.x1.shared.b16",
            &["[%a2]", "{%a0}"],
        ),
        (
            "wmma.load.c.sync.aligned.row.m8n8k4.f64",
            &["{%e0, %e1}", "[%q0]", "%a0"],
        ),
        (
            "wmma.store.d.sync.aligned.row.m8n8k4.shared.f64",
            &["[%a0]", "{%e0, %e1}", "4"],
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
            &[
                "{%a0, %a1, %a2, %a3}",
                "%q0",
                "%q1",
                "%p1",
                "1",
                "1",
                "0",
                "0",
            ],
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
            &[
                "{%a0, %a1, %a2, %a3}",
                "{%a0, %a1, %a2, %a3}",
                "%q1",
                "%p1",
                "1",
                "1",
                "0",
            ],
        ),
        ("wgmma.wait_group.sync.aligned", &["0"]),
        ("mbarrier.init.shared.b64", &["[%a0]", "%a1"]),
        ("mbarrier.arrive.shared.b64", &["%q0", "[%a0]", "%a1"]),
        (
            "mbarrier.arrive.expect_tx.shared::cluster.b64",
            &["_", "[%a0]", "%a1"],
        ),
        (
            "mbarrier.try_wait.shared.b64",
            &["%p1", "[%a0]", "%q0", "%a1"],
        ),
        ("mbarrier.test_wait.parity.b64", &["%p1", "[%q0]", "%a0"]),
        ("mbarrier.pending_count.b64", &["%a0", "%q0"]),
        ("cp.async.ca.shared.global", &["[%a0]", "[%q0]", "8", "%a1"]),
        (
            "cp.async.cg.shared.global.L2::cache_hint",
            &["[%a0]", "[%q0]", "16", "%p1", "%q1"],
        ),
        ("cp.async.mbarrier.arrive.noinc.shared.b64", &["[%a0]"]),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
            &["[%a0]", "[%q0]", "%a1", "[%a2]", "%h0"],
        ),
        (
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32",
            &["[%q0]", "[%a0]", "%a1"],
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
            &["[%a0]", "[%q0, {%a1, %a2}]", "[%a3]"],
        ),
        (
            "tensormap.replace.tile.box_dim.global.b1024.b32",
            &["[%q0]", "0", "%a0"],
        ),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32",
            &["[%a0]", "{%a1, %a2}", "[%a3]"],
        ),
        (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64",
            &["[%a0]", "%q1", "[%a3]"],
        ),
        ("mapa.shared::cluster.u32", &["%a0", "%a1", "%a2"]),
        ("mapa.u64", &["%q0", "%q1", "%a2"]),
        ("getctarank.u64", &["%a0", "%q0"]),
        (
            "createpolicy.fractional.L2::evict_last.b64",
            &["%q0", "0f3f800000"],
        ),
    ];
    let mut loaded = 0;
    for (opcode, operands) in instructions {
        for place in 0..operands.len() {
            for kind in kinds {
                let mut operands = operands.to_vec();
                operands[place] = kind;
                let source = harness::module(&format!(
                    ".visible .entry k(.param .u64 out) {{
                    .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %a<8>; .reg .b64 %q<8>;
                    .reg .f32 %f<8>; .reg .f64 %e<8>; .reg .b128 %zz; .shared .align 16 .b8 s[64];
                    mov.u32 %a0, %tid.x; cvt.u64.u32 %q0, %a0; mov.b32 %f0, %a0; mov.b64 %e0, %q0;
                    setp.eq.u32 %p1, %a0, 7; mov.u32 %a1, 3; mov.u32 %a2, 9; mov.u32 %a3, 0;
                    cvt.u16.u32 %h0, %a0; mov.u64 %q1, 0; mov.b128 %zz, {{%q0, %q1}};
                    {opcode} {};
                    ld.param.u64 %q2, [out]; mul.wide.u32 %q3, %a2, 4; add.u64 %q2, %q2, %q3;
                    st.global.u32 [%q2], %a0;
                    }}",
                    operands.join(", ")
                ));
                for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
                    let options = LoadOptions {
                        form,
                        ..LoadOptions::default()
                    };
                    let Ok(module) = Module::load(source.as_bytes(), &options) else {
                        continue;
                    };
                    loaded += 1;
                    let kernel = module.kernel("k").unwrap();
                    if let Err(error) = kernel.compile() {
                        assert!(error.unsupported, "{error} {source}");
                        continue;
                    }
                    if form == Form::Rounds {
                        continue;
                    }
                    let mut out = [0u32; 64];
                    let buffers: &mut [&mut [u8]] = &mut [harness::buffer(&mut out)];
                    let _ = harness::run_in(&module, "k", [1; 3], [32, 1, 1], 0, buffers, &[]);
                }
            }
        }
    }
    println!("{loaded} load");
}
