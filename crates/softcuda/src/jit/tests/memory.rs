//! Loads and stores in every space: widths, edges, alignment, windows; and that nothing else is
//! touched.

use super::forms;
use super::fuzz::Sample;
use crate::grid::launch::{Fault, FaultKind};
use crate::jit::harness::{self, buffer};
use crate::jit::module::Form;

/// One thread; `%rd1` and `%rd2` are the addresses of two buffers, `%rd3` a number.
fn kernel(declarations: &str, body: &str) -> String {
    harness::module(&format!(
        "
{declarations}
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 n)
{{
    .reg .pred %p<8>;
    .reg .b8 %c<8>;
    .reg .b16 %h<8>;
    .reg .b32 %r<16>;
    .reg .f32 %f<8>;
    .reg .b64 %rd<16>;
    .reg .b128 %q<4>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [n];
    {body}
    ret;
}}"
    ))
}

fn run(declarations: &str, body: &str, a: &mut [u8], b: &mut [u8], n: u64) -> Result<(), Fault> {
    let source = kernel(declarations, body);
    harness::run(
        &source,
        "k",
        [1, 1, 1],
        [1, 1, 1],
        &mut [a, b],
        &[&n.to_le_bytes()],
    )
}

fn fault(declarations: &str, body: &str, n: u64) -> Fault {
    run(declarations, body, &mut [0; 64], &mut [0; 64], n).unwrap_err()
}

#[test]
fn widths_and_signs() {
    let mut a = [
        0x80, 0xff, 0x34, 0x92, 1, 2, 3, 0x84, 9, 9, 9, 9, 9, 9, 9, 9,
    ];
    let mut out = [0u64; 8];
    run(
        "",
        "ld.global.u8 %rd4, [%rd1]; st.global.u64 [%rd2], %rd4;
    ld.global.s8 %rd4, [%rd1]; st.global.u64 [%rd2+8], %rd4;
    ld.global.s16 %r1, [%rd1+2]; st.global.u32 [%rd2+16], %r1;
    ld.global.u16 %rd4, [%rd1+2]; st.global.u64 [%rd2+24], %rd4;
    ld.global.s32 %rd4, [%rd1+4]; st.global.u64 [%rd2+32], %rd4;
    ld.global.b8 %c1, [%rd1+1]; st.global.b8 [%rd2+40], %c1;
    mov.u32 %r2, 0x12345678; st.global.u8 [%rd2+48], %r2; st.global.u16 [%rd2+50], %r2;
    ld.global.b64 %rd4, [%rd1+8]; st.global.b32 [%rd2+56], %rd4;",
        &mut a,
        buffer(&mut out),
        0,
    )
    .unwrap();
    assert_eq!(out[0], 0x80);
    assert_eq!(out[1], 0x80u8 as i8 as i64 as u64);
    assert_eq!(out[2], u64::from(0x9234u16 as i16 as i32 as u32));
    assert_eq!(out[3], 0x9234);
    assert_eq!(out[4], 0x8403_0201u32 as i32 as i64 as u64);
    assert_eq!(out[5], 0xff);
    assert_eq!(out[6], 0x5678_0078);
    assert_eq!(out[7], 0x0909_0909);
}

#[test]
fn vectors_and_modifiers() {
    let mut a: Vec<u32> = (1..=16).collect();
    let mut out = [0u32; 16];
    run(
        "",
        "ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
    st.global.cs.v4.u32 [%rd2], {%r4, %r3, %r2, %r1};
    ld.volatile.global.v2.u32 {%r1, %r2}, [%rd1+16];
    st.volatile.global.v2.u32 [%rd2+16], {%r1, %r2};
    ld.relaxed.gpu.global.L1::evict_last.u32 %r1, [%rd1+24];
    st.release.sys.global.u32 [%rd2+24], %r1;
    ld.acquire.cta.u32 %r1, [%rd1+28]; st.relaxed.cluster.u32 [%rd2+28], %r1;
    ld.mmio.relaxed.sys.global.u32 %r1, [%rd1+32]; st.mmio.relaxed.sys.global.u32 [%rd2+32], %r1;
    ld.global.cv.v2.u32 {%r1, _}, [%rd1+40]; st.weak.global.wt.u32 [%rd2+36], %r1;
    ld.global.v2.b64 {%rd4, %rd5}, [%rd1+48]; st.global.v2.b64 [%rd2+48], {%rd5, %rd4};
    ld.global.v4.b64 {%rd4, %rd5, %rd6, %rd7}, [%rd1]; st.global.v2.f32 [%rd2+40], {%f1, 0f3F800000};
    prefetch.global.L2 [%rd1]; prefetchu.L1 [%rd1]; discard.global.L2 [%rd1], 128; applypriority.global.L2::evict_normal [%rd1], 128;
    ldu.global.u32 %r1, [%rd1];",
        buffer(&mut a),
        buffer(&mut out),
        0,
    )
    .unwrap();
    assert_eq!(
        out,
        [
            4,
            3,
            2,
            1,
            5,
            6,
            7,
            8,
            9,
            11,
            0,
            1f32.to_bits(),
            15,
            16,
            13,
            14
        ]
    );
}

#[test]
fn a_vector_may_overwrite_its_own_address() {
    let mut a = [0u64; 2];
    let mut out = [0u64; 2];
    a[0] = 5;
    a[1] = 6;
    run(
        "",
        "mov.b64 %rd4, %rd1; ld.global.v2.u64 {%rd4, %rd5}, [%rd4]; st.global.v2.u64 [%rd2], {%rd5, %rd4};",
        buffer(&mut a),
        buffer(&mut out),
        0,
    )
    .unwrap();
    assert_eq!(out, [6, 5]);
}

#[test]
fn wide_values() {
    let mut a: Vec<u8> = (0..32).collect();
    let mut out = [0u8; 32];
    run(
        "",
        "ld.global.b128 %q1, [%rd1]; mov.b128 {%rd4, %rd5}, %q1; mov.b128 %q2, {%rd5, %rd4}; st.global.b128 [%rd2], %q2;
    mov.b64 {%r1, %r2}, %rd4; mov.b64 %rd6, {%r2, %r1}; st.global.u64 [%rd2+16], %rd6;
    mov.b32 {%h1, %h2}, %r1; mov.b32 %r3, {%h2, %h1}; st.global.u32 [%rd2+24], %r3;
    mov.b64 {%h1, %h2, %h3, %h4}, %rd4; mov.b64 %rd6, {%h4, %h3, %h2, %h1}; mov.b64 {_, %r5}, %rd6; st.global.u32 [%rd2+28], %r5;",
        &mut a,
        &mut out,
        0,
    )
    .unwrap();
    assert_eq!(
        out[..16],
        [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7]
    );
    assert_eq!(out[16..24], [4, 5, 6, 7, 0, 1, 2, 3]);
    assert_eq!(out[24..28], [2, 3, 0, 1]);
    assert_eq!(out[28..], [2, 3, 0, 1]);
}

#[test]
fn edges_of_an_allocation() {
    // The buffer has 64 bytes: the last of each width is inside, the next is not.
    for (ty, size) in [
        ("u8", 1u64),
        ("u16", 2),
        ("u32", 4),
        ("u64", 8),
        ("v2.u64", 16),
        ("v4.u64", 32),
    ] {
        let register = match ty {
            "v2.u64" => "{%rd5, %rd6}",
            "v4.u64" => "{%rd5, %rd6, %rd7, %rd8}",
            "u64" => "%rd5",
            "u8" | "u16" => "%h1",
            _ => "%r1",
        };
        for write in [false, true] {
            let body = match write {
                false => format!("add.u64 %rd4, %rd1, %rd3; ld.global.{ty} {register}, [%rd4];"),
                true => format!("add.u64 %rd4, %rd1, %rd3; st.{ty} [%rd4], {register};"),
            };
            run("", &body, &mut [0; 64], &mut [], 64 - size).unwrap();
            run("", &body, &mut [0; 64], &mut [], 0).unwrap();
            let beyond = run("", &body, &mut [0; 64], &mut [], 64).unwrap_err();
            assert_eq!(beyond.kind, FaultKind::IllegalAddress, "{ty} {write}");
            assert_eq!(beyond.access.map(|access| access.1), Some(size as u32));
            let below = run("", &body, &mut [0; 64], &mut [], 0u64.wrapping_sub(size)).unwrap_err();
            assert_eq!(below.kind, FaultKind::IllegalAddress, "{ty} {write}");
            if size > 1 {
                let body = body.replace("ld.", "ld.volatile.");
                for off in [1, size / 2] {
                    let odd = run("", &body, &mut [0; 64], &mut [], off).unwrap_err();
                    assert_eq!(odd.kind, FaultKind::Misaligned, "{ty} {write} {off}");
                }
            }
        }
    }
}

#[test]
fn a_passed_check_admits_no_other_address() {
    // The same site: first inside, then below, above, and far away.
    let source = harness::module(
        ".visible .entry k(.param .u64 a, .param .u64 n) {
    .reg .b32 %r<4>; .reg .b64 %rd<8>; .reg .pred %p;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [n];
    mov.u32 %r1, %tid.x; setp.eq.u32 %p, %r1, 15;
    mul.wide.u32 %rd3, %r1, 4; @%p mov.u64 %rd3, %rd2; add.u64 %rd3, %rd1, %rd3;
    ld.global.u32 %r2, [%rd3]; add.u32 %r2, %r2, 1; st.global.u32 [%rd3], %r2; }",
    );
    for (offset, kind) in [
        (64u64, FaultKind::IllegalAddress),
        (0u64.wrapping_sub(4), FaultKind::IllegalAddress),
        (1 << 40, FaultKind::IllegalAddress),
        (1 << 63, FaultKind::IllegalAddress),
        (62, FaultKind::Misaligned),
        (2, FaultKind::Misaligned),
    ] {
        let mut a = [0u32; 16];
        let fault = harness::run(
            &source,
            "k",
            [1, 1, 1],
            [16, 1, 1],
            &mut [buffer(&mut a)],
            &[&offset.to_le_bytes()],
        )
        .unwrap_err();
        assert_eq!(
            (fault.kind, fault.thread),
            (kind, Some([15, 0, 0])),
            "{offset}"
        );
        // How far the neighbours came that ran together with it is open.
        assert_eq!((&a[..8], a[15]), (&[1; 8][..], 0));
    }
}

#[test]
fn null_and_wild_addresses() {
    for n in [0, 4, 0xffff_ffff_ffff_fffc, 1 << 47, 0x7fff_ffff_f000] {
        for body in [
            "ld.u32 %r1, [%rd3];",
            "st.global.u32 [%rd3], 1;",
            "ld.global.u32 %r1, [%rd3+-4];",
            "mov.u64 %rd3, 16; ld.u32 %r1, [%rd3];",
        ] {
            assert_eq!(
                fault("", body, n).kind,
                FaultKind::IllegalAddress,
                "{body} {n:#x}"
            );
        }
    }
}

#[test]
fn shared_memory() {
    let declarations = ".shared .align 8 .b8 first[24];\n.shared .u32 second[4];";
    let mut out = [0u32; 8];
    run(
        declarations,
        "mov.u32 %r1, first; mov.u64 %rd4, second; mov.u32 %r2, second+4;
    st.shared.u32 [first+20], 7; st.shared.u32 [%r1+4], 8; st.shared.u32 [second], 9; st.shared.u32 [%r2], 10; st.shared.u32 [%rd4+8], 11;
    cvta.shared.u64 %rd5, %rd4; ld.u32 %r3, [%rd5+8]; st.global.u32 [%rd2], %r3;
    ld.u32 %r3, [%rd5+4]; st.global.u32 [%rd2+4], %r3;
    cvta.to.shared.u64 %rd6, %rd5; ld.shared.u32 %r3, [%rd6]; st.global.u32 [%rd2+8], %r3;
    ld.shared.u32 %r3, [first+20]; st.global.u32 [%rd2+12], %r3;
    ld.shared::cta.u32 %r3, [%r1+4]; st.global.u32 [%rd2+16], %r3;
    isspacep.shared %p1, %rd5; selp.u32 %r4, 1, 0, %p1; isspacep.global %p1, %rd5; selp.u32 %r5, 2, 0, %p1;
    isspacep.global %p1, %rd1; selp.u32 %r6, 4, 0, %p1; isspacep.shared %p1, %rd1; selp.u32 %r7, 8, 0, %p1;
    add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, %r7; st.global.u32 [%rd2+20], %r4;",
        &mut [0; 8],
        buffer(&mut out),
        0,
    )
    .unwrap();
    assert_eq!(out[..6], [11, 10, 9, 7, 8, 5]);
    for (body, n, kind) in [
        ("ld.shared.u32 %r1, [%rd3];", 40, FaultKind::IllegalAddress),
        (
            "ld.shared.u32 %r1, [%rd3];",
            1 << 32,
            FaultKind::IllegalAddress,
        ),
        ("ld.shared.u32 %r1, [%rd3];", 38, FaultKind::Misaligned),
        (
            "st.shared.v4.u32 [%rd3], {%r1, %r1, %r1, %r1};",
            32,
            FaultKind::IllegalAddress,
        ),
        ("st.shared.u32 [first+40], 1;", 0, FaultKind::IllegalAddress),
        ("st.shared.u32 [first+-4], 1;", 0, FaultKind::IllegalAddress),
        (
            "cvta.shared.u64 %rd4, %rd3; ld.u32 %r1, [%rd4];",
            40,
            FaultKind::IllegalAddress,
        ),
        (
            "cvta.shared.u64 %rd4, %rd3; st.u32 [%rd4], 1;",
            2,
            FaultKind::Misaligned,
        ),
    ] {
        assert_eq!(
            fault(
                declarations,
                &format!("mov.u32 %r1, first; mov.u32 %r2, second; {body}"),
                n
            )
            .kind,
            kind,
            "{body}"
        );
    }
    // The last word is inside.
    run(
        declarations,
        "mov.u32 %r1, first; mov.u32 %r2, second; ld.shared.u32 %r1, [%rd3];",
        &mut [0; 8],
        &mut [],
        36,
    )
    .unwrap();
}

#[test]
fn dynamic_shared_memory_starts_aligned_after_the_static() {
    let source = kernel(
        ".shared .b8 fixed[5];\n.extern .shared .align 16 .b8 dynamic[];",
        "mov.u32 %r1, dynamic; st.global.u32 [%rd2], %r1; mov.u32 %r2, fixed; mov.u32 %r3, %dynamic_smem_size; st.global.u32 [%rd2+4], %r3;
    st.shared.u32 [dynamic+12], 3; ld.shared.u32 %r4, [%r1+12]; st.global.u32 [%rd2+8], %r4; ld.shared.u32 %r4, [%rd3];",
    );
    let module = harness::load(&source);
    assert_eq!(module.kernel("k").unwrap().attributes.static_shared, 5);
    let mut out = [0u32; 3];
    let mut run = |n: u64| {
        let buffers = &mut [&mut [][..], buffer(&mut out)];
        harness::run_in(
            &module,
            "k",
            [1, 1, 1],
            [1, 1, 1],
            16,
            buffers,
            &[&n.to_le_bytes()],
        )
    };
    run(28).unwrap();
    assert_eq!(run(32).unwrap_err().kind, FaultKind::IllegalAddress);
    assert_eq!(out, [16, 16, 3]);
}

#[test]
fn local_memory() {
    let mut out = [0u32; 6];
    run(
        "",
        ".local .align 16 .b8 depot[32]; .local .u16 other;
    mov.u64 %rd4, depot; cvta.local.u64 %rd5, %rd4;
    st.local.u32 [%rd4+4], 1; st.u32 [%rd5+8], 2; st.local.u32 [depot+12], 3; st.local.u16 [other], 4;
    ld.u32 %r1, [%rd5+4]; st.global.u32 [%rd2], %r1; ld.local.u32 %r1, [depot+8]; st.global.u32 [%rd2+4], %r1;
    ld.local.u32 %r1, [%rd4+12]; st.global.u32 [%rd2+8], %r1; ld.local.u16 %r1, [other]; st.global.u32 [%rd2+12], %r1;
    isspacep.local %p1, %rd5; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd2+16], %r1;",
        &mut [],
        buffer(&mut out),
        0,
    )
    .unwrap();
    assert_eq!(out, [1, 2, 3, 4, 1, 0]);
    for (body, n, kind) in [
        (
            "ld.local.u32 %r1, [%rd3];",
            1 << 30,
            FaultKind::IllegalAddress,
        ),
        (
            "st.local.u32 [%rd3], 1;",
            0u64.wrapping_sub(4),
            FaultKind::IllegalAddress,
        ),
        ("st.local.u64 [%rd3], %rd1;", 4, FaultKind::Misaligned),
        (
            "cvta.local.u64 %rd4, %rd3; ld.u32 %r1, [%rd4];",
            2,
            FaultKind::Misaligned,
        ),
    ] {
        assert_eq!(
            fault("", &format!(".local .b8 depot[16]; {body}"), n).kind,
            kind,
            "{body}"
        );
    }
}

#[test]
fn local_memory_is_each_threads_own() {
    let source = harness::module(
        ".visible .entry k(.param .u64 out) {
    .reg .b32 %r<8>; .reg .b64 %rd<8>; .local .u32 mine[2];
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; st.local.u32 [mine+4], %r1;
    mov.u64 %rd2, mine; cvta.local.u64 %rd3, %rd2; barrier.sync 0; ld.u32 %r2, [%rd3+4];
    mad.wide.u32 %rd4, %r1, 4, %rd1; st.global.u32 [%rd4], %r2; }",
    );
    for barrier in [true, false] {
        if barrier && crate::jit::lower::decoder("barrier").is_none() {
            continue;
        }
        let source = if barrier {
            source.clone()
        } else {
            source.replace("barrier.sync 0;", "")
        };
        let mut out = [99u32; 64];
        harness::run(
            &source,
            "k",
            [1, 1, 1],
            [64, 1, 1],
            &mut [buffer(&mut out)],
            &[],
        )
        .unwrap();
        assert!(out.iter().copied().eq(0..64));
    }
}

#[test]
fn parameters() {
    let source = harness::module(
        ".visible .entry k(.param .u64 out, .param .align 8 .b8 s[24], .param .u8 c) {
    .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p;
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [s+4]; st.global.u32 [%rd1], %r1;
    mov.b64 %rd2, s; ld.param.u32 %r1, [%rd2+8]; st.global.u32 [%rd1+4], %r1;
    cvta.param.u64 %rd3, %rd2; ld.u32 %r1, [%rd3+12]; st.global.u32 [%rd1+8], %r1;
    ld.param.u8 %r1, [c]; st.global.u32 [%rd1+12], %r1;
    isspacep.param %p, %rd3; selp.u32 %r1, 1, 0, %p; st.global.u32 [%rd1+16], %r1;
    ld.param::entry.v2.u32 {%r1, %r2}, [s+16]; st.global.v2.u32 [%rd1+24], {%r1, %r2}; }",
    );
    let mut out = [0u32; 8];
    let s: Vec<u8> = (0..6u32).flat_map(|n| (n + 1).to_le_bytes()).collect();
    harness::run(
        &source,
        "k",
        [1, 1, 1],
        [2, 1, 1],
        &mut [buffer(&mut out)],
        &[&s, &[200]],
    )
    .unwrap();
    assert_eq!(out, [2, 3, 4, 200, 1, 0, 5, 6]);
    for (body, kind) in [
        (
            "mov.b64 %rd4, n; ld.param.u64 %rd5, [%rd4+8];",
            FaultKind::IllegalAddress,
        ),
        (
            "mov.b64 %rd4, n; ld.param.u64 %rd5, [%rd4+4];",
            FaultKind::Misaligned,
        ),
        (
            "mov.b64 %rd4, n; cvta.param.u64 %rd4, %rd4; st.u64 [%rd4], 1;",
            FaultKind::IllegalAddress,
        ),
        (
            "mov.b64 %rd4, n; cvta.param.u64 %rd4, %rd4; ld.u64 %rd5, [%rd4+8];",
            FaultKind::IllegalAddress,
        ),
    ] {
        assert_eq!(fault("", body, 0).kind, kind, "{body}");
    }
}

#[test]
fn a_freed_buffer_is_no_longer_there() {
    // Large, and looked at near its end, so that no other test is given the same place meanwhile.
    let size = 256 << 20;
    let freed = crate::memory::alloc(
        crate::memory::Device::FIRST,
        size,
        1,
        crate::memory::Kind::Device,
    )
    .unwrap();
    crate::memory::free(freed.base);
    let end = freed.base + size - 8;
    assert_eq!(
        fault("", "ld.global.u32 %r1, [%rd3];", end).kind,
        FaultKind::IllegalAddress
    );
}

#[test]
fn shared_addresses_of_32_bits_wrap() {
    let mut out = [0u32; 1];
    run(
        ".shared .u32 s[4];",
        "st.shared.u32 [s+8], 6; mov.u32 %r1, 0xfffffffc; ld.shared.u32 %r2, [%r1+12]; st.global.u32 [%rd2], %r2;",
        &mut [],
        buffer(&mut out),
        0,
    )
    .unwrap();
    assert_eq!(out, [6]);
}

#[test]
fn nans_keep_their_bits_through_copies() {
    // What is loaded is stored as it is; what is computed is the device's NaN.
    let mut a = [0x7f80_0001u32, 0xffc1_2345, 0x7fff_ffff, 0xff80_0000];
    let mut out = [0u32; 8];
    run(
        "",
        "ld.global.f32 %f1, [%rd1]; st.global.f32 [%rd2], %f1; mov.f32 %f2, %f1; st.global.b32 [%rd2+4], %f2;
    ld.global.f32 %f3, [%rd1+4]; add.f32 %f4, %f3, 0f3F800000; st.global.f32 [%rd2+8], %f4; mov.b32 %r1, %f4; st.global.u32 [%rd2+12], %r1;
    ld.global.f32 %f5, [%rd1+12]; sub.f32 %f5, %f5, %f5; mov.f32 %f6, %f5; mul.f32 %f7, %f6, %f6; st.global.f32 [%rd2+16], %f7;
    st.global.f32 [%rd2+20], %f6; selp.f32 %f6, %f3, %f4, %p1; st.global.f32 [%rd2+24], %f6; ld.global.b32 %r2, [%rd1+4];
    @!%p1 fma.rn.f32 %f3, %f3, %f3, %f3; st.global.f32 [%rd2+28], %f3;",
        buffer(&mut a),
        buffer(&mut out),
        0,
    )
    .unwrap();
    let nan = 0x7fff_ffff;
    assert_eq!(
        out,
        [0x7f80_0001, 0x7f80_0001, nan, nan, nan, nan, nan, nan]
    );
}

/// Accesses at one register in one basic block are checked together: every one of them must still
/// be.
#[test]
fn accesses_checked_together() {
    let four = "ld.global.u32 %r1, [%rd4]; ld.global.u32 %r2, [%rd4+8]; st.global.u32 [%rd4+-8], %r2; st.global.u32 [%rd4+4], %r1;";
    let body = format!("add.u64 %rd4, %rd1, %rd3; {four}");
    let run_at = |n: u64| {
        let mut a: Vec<u32> = (0..16).collect();
        run("", &body, buffer(&mut a), &mut [], n).map(|()| a)
    };
    for at in [8u64, 20, 52] {
        let mut wanted: Vec<u32> = (0..16).collect();
        let n = at as usize / 4;
        wanted[n - 2] = n as u32 + 2;
        wanted[n + 1] = n as u32;
        assert_eq!(run_at(at).unwrap(), wanted);
    }
    for (at, kind, access) in [
        (4u64, FaultKind::IllegalAddress, 4i64 - 8),
        (0, FaultKind::IllegalAddress, -8),
        (56, FaultKind::IllegalAddress, 64),
        (64, FaultKind::IllegalAddress, 64),
        (1 << 40, FaultKind::IllegalAddress, 1 << 40),
        (10, FaultKind::Misaligned, 10),
        (9, FaultKind::Misaligned, 9),
    ] {
        let mut a = [0u32; 16];
        let mut b = [0u64; 1];
        let body = format!("st.global.u64 [%rd2], %rd1; {body}");
        let fault = run("", &body, buffer(&mut a), buffer(&mut b), at).unwrap_err();
        assert_eq!(fault.kind, kind, "{at}");
        assert_eq!(
            fault.access,
            Some((b[0].wrapping_add_signed(access), 4)),
            "{at}"
        );
    }
}

#[test]
fn accesses_checked_together_in_windows() {
    let shared = ".shared .align 8 .b8 s[64];";
    let keep = "st.shared.u8 [s], 0;";
    let body = "st.shared.u32 [%rd3], 1; st.shared.u32 [%rd3+16], 2; ld.shared.u32 %r1, [%rd3+12];";
    run(shared, &format!("{keep} {body}"), &mut [], &mut [], 44).unwrap();
    for (n, kind) in [
        (48, FaultKind::IllegalAddress),
        (60, FaultKind::IllegalAddress),
        (64, FaultKind::IllegalAddress),
        (u64::MAX - 15, FaultKind::IllegalAddress),
        (u64::MAX - 3, FaultKind::IllegalAddress),
        (2, FaultKind::Misaligned),
        (46, FaultKind::Misaligned),
    ] {
        assert_eq!(
            fault(shared, &format!("{keep} {body}"), n).kind,
            kind,
            "{n}"
        );
        // At a register of 32 bits, too.
        let narrow = format!(
            "{keep} cvt.u32.u64 %r4, %rd3; {}",
            body.replace("%rd3", "%r4")
        );
        assert_eq!(fault(shared, &narrow, n).kind, kind, "{n}");
        // Wider than the whole of it.
        let wide = format!("{keep} st.shared.u32 [%rd3], 1; st.shared.u32 [%rd3+128], 2;");
        assert_ne!(
            fault(shared, &wide, n & 60).kind,
            FaultKind::Misaligned,
            "{n}"
        );
    }
    let local = ".local .align 8 .b8 l[64]; st.local.u32 [%rd3], 1; st.local.u32 [%rd3+-4], 2; ld.local.u32 %r1, [%rd3+4];";
    run("", local, &mut [], &mut [], 4).unwrap();
    assert_eq!(fault("", local, 0).kind, FaultKind::IllegalAddress);
    assert_eq!(fault("", local, 1 << 32).kind, FaultKind::IllegalAddress);
    assert_eq!(fault("", local, 6).kind, FaultKind::Misaligned);
}

#[test]
fn a_check_made_together_ends_where_its_register_changes() {
    // The register is moved out of bounds between two accesses; under a guard; by the load itself;
    // and after a jump.
    for (body, n) in [
        (
            "ld.global.u32 %r1, [%rd4]; add.u64 %rd4, %rd4, %rd3; ld.global.u32 %r1, [%rd4+4];",
            64,
        ),
        (
            "setp.ne.u64 %p1, %rd3, 0; ld.global.u32 %r1, [%rd4]; @%p1 add.u64 %rd4, %rd4, %rd3; ld.global.u32 %r1, [%rd4+4];",
            64,
        ),
        (
            "st.global.u64 [%rd4], %rd3; ld.global.u64 %rd4, [%rd4]; ld.global.u64 %rd5, [%rd4+8];",
            64,
        ),
        (
            "setp.ne.u64 %p1, %rd3, 0; ld.global.u32 %r1, [%rd4]; @!%p1 bra $a; add.u64 %rd4, %rd4, %rd3; $a: ld.global.u32 %r1, [%rd4+4];",
            64,
        ),
    ] {
        let body = format!("mov.u64 %rd4, %rd1; {body}");
        assert_eq!(
            fault("", &body, n).kind,
            FaultKind::IllegalAddress,
            "{body}"
        );
    }
    // What a guard keeps from happening is not checked.
    run("", "setp.ne.u64 %p1, %rd3, 0; ld.global.u32 %r1, [%rd1]; @%p1 ld.global.u32 %r1, [%rd1+64]; ld.global.u32 %r1, [%rd1+4];", &mut [0; 64], &mut [], 0).unwrap();
    // Nor what comes after the thread's end.
    run("", "setp.eq.u64 %p1, %rd3, 0; ld.global.u32 %r1, [%rd1]; @%p1 exit; ld.global.u32 %r1, [%rd1+64];", &mut [0; 64], &mut [], 0).unwrap();
    // Different sizes and distances from alignment.
    run("", "ld.global.u32 %r1, [%rd4+4]; ld.global.u64 %rd5, [%rd4+8]; ld.global.u8 %r2, [%rd4+1]; ld.global.u16 %r3, [%rd4+2]; ld.global.u8 %r2, [%rd4+63];".replace("%rd4", "%rd1").as_str(), &mut [0; 64], &mut [], 0).unwrap();
    assert_eq!(
        fault(
            "",
            "add.u64 %rd4, %rd1, 2; ld.global.u32 %r1, [%rd4+2]; ld.global.u32 %r1, [%rd4+4];",
            0
        )
        .kind,
        FaultKind::Misaligned
    );
    // Constant memory is read together, and not written.
    let constant = ".const .u32 c[4];";
    run(
        constant,
        "mov.u64 %rd4, c; ld.const.u32 %r1, [%rd4]; ld.const.u32 %r1, [%rd4+12];",
        &mut [],
        &mut [],
        0,
    )
    .unwrap();
    assert_eq!(
        fault(
            constant,
            "mov.u64 %rd4, c; ld.u32 %r1, [%rd4]; st.u32 [%rd4+12], %r1;",
            0
        )
        .kind,
        FaultKind::IllegalAddress
    );
}

/// Accesses at neighbouring indices in one basic block are checked together: what goes wrong is
/// what would with a check for each.
#[test]
fn neighbouring_indices_are_checked_together() {
    let mut sample = Sample::one_in(3);
    let body = |accesses: &str, wide: &str| {
        format!(
            "cvt.u32.u64 %r4, %rd3; add.s32 %r5, %r4, 1; add.s32 %r6, %r5, 2; add.s32 %r7, %r4, -1;
            mul.wide.{wide} %rd4, %r4, 4; mul.wide.{wide} %rd5, %r5, 4;
            mul.wide.{wide} %rd6, %r6, 4; mul.wide.{wide} %rd7, %r7, 4;
            add.s64 %rd8, %rd1, %rd4; add.s64 %rd9, %rd5, %rd1; add.s64 %rd10, %rd1, %rd6;
            add.s64 %rd11, %rd1, %rd7; mov.u32 %r9, 77; {accesses}"
        )
    };
    let outcome = |body: &str, n: u64| {
        let (mut a, mut b) = ((0..16u32).collect::<Vec<_>>(), [0u64; 1]);
        let body = format!("st.global.u64 [%rd2], %rd1; {body}");
        let end = run("", &body, buffer(&mut a), buffer(&mut b), n).map_err(|fault| {
            let access = fault.access.expect("an access is at fault");
            (fault.kind, access.0.wrapping_sub(b[0]) as i64, access.1)
        });
        // What a fault comes before is as it may be.
        end.map(|()| a)
    };
    let accesses = [
        "ld.global.u32 %r1, [%rd8]; | ld.global.u32 %r2, [%rd9]; | st.global.u32 [%rd10], %r2; |
        st.global.u32 [%rd11], %r1;",
        "st.global.u32 [%rd10], %r9; | st.global.u32 [%rd9], %r9; | st.global.u32 [%rd8], %r9;",
        "ld.u32 %r1, [%rd8+4]; | ld.u32 %r2, [%rd9+-8]; | st.u32 [%rd10+4], %r1; |
        st.u32 [%rd8], %r2;",
        // Others between; a size of its own; half an element further.
        "ld.global.u32 %r1, [%rd11]; | st.global.u32 [%rd8], %r1; | ld.global.u16 %r2, [%rd8+2]; |
        ld.global.u16 %r3, [%rd9+2]; | st.global.u8 [%rd9+3], %r9; | st.global.u16 [%rd10], %r2;",
        "ld.global.u32 %r2, [%rd9+2]; | ld.global.u32 %r1, [%rd8]; | ld.global.u32 %r2, [%rd10];",
        // The array, the index or the address change on the way; what was computed stays.
        "ld.global.u32 %r1, [%rd8]; | add.s64 %rd1, %rd1, 32; | add.s64 %rd9, %rd1, %rd5; |
        st.global.u32 [%rd9], %r1;",
        "add.s32 %r4, %r4, 64; | ld.global.u32 %r1, [%rd8]; | st.global.u32 [%rd9], %r1;",
        "ld.global.u32 %r1, [%rd8]; | add.s32 %r4, %r4, 8; | add.s32 %r5, %r4, 1; |
        mul.wide.u32 %rd5, %r5, 4; | add.s64 %rd9, %rd1, %rd5; | st.global.u32 [%rd9], %r1;",
        "st.global.u32 [%rd8], %r9; | ld.global.u32 %r5, [%rd8]; | mul.wide.u32 %rd5, %r5, 4; |
        add.s64 %rd9, %rd1, %rd5; | ld.global.u32 %r1, [%rd9];",
        // Under a guard, and the array so.
        "setp.lt.u32 %p1, %r4, 8; | ld.global.u32 %r1, [%rd8]; | @%p1 st.global.u32 [%rd10], %r1; |
        st.global.u32 [%rd9], %r1;",
        "setp.lt.u32 %p1, %r4, 8; | ld.global.u32 %r1, [%rd8]; | @%p1 add.s64 %rd1, %rd1, 16; |
        add.s64 %rd9, %rd1, %rd5; | st.global.u32 [%rd9], %r1;",
        "setp.lt.u32 %p1, %r4, 12; | ld.global.u32 %r1, [%rd8]; | @!%p1 exit; |
        st.global.u32 [%rd10], %r1;",
        // What a register of 32 bits keeps of an address is none.
        "cvt.u32.u64 %r1, %rd1; | ld.global.u32 %r2, [%rd8]; | add.u32 %r8, %r1, 8; |
        st.global.u32 [%rd9], %r2;",
    ];
    for accesses in accesses {
        for wide in ["u32", "s32"] {
            for before in ["", "add.s64 %rd1, %rd1, 2;"] {
                if !sample.takes() {
                    continue;
                }
                let together = format!("{before} {}", body(&accesses.replace('|', ""), wide));
                // A block for each.
                let mut parts = accesses.split('|');
                let mut each = parts.next().unwrap_or("").to_owned();
                for (at, part) in parts.enumerate() {
                    each += &format!(" $part{at}: {part}");
                }
                let each = format!("{before} {}", body(&each, wide));
                let far = [u64::from(u32::MAX), 1 << 31, (1 << 31) - 1, (1 << 31) - 3];
                for n in (0..18).chain(far).chain([u64::from(u32::MAX) - 2]) {
                    assert_eq!(outcome(&together, n), outcome(&each, n), "{n}: {together}");
                }
            }
        }
    }
}

/// Where an index wraps within a run, what comes after is looked at where it is.
#[test]
fn an_index_that_wraps_within_a_run() {
    for (wide, last) in [("u32", i64::from(u32::MAX)), ("s32", i64::from(i32::MAX))] {
        let body = format!(
            "cvt.u32.u64 %r4, %rd3; add.s32 %r5, %r4, 1; add.s32 %r6, %r4, 2;
            mul.wide.{wide} %rd4, %r4, 4; mul.wide.{wide} %rd5, %r5, 4;
            mul.wide.{wide} %rd6, %r6, 4; sub.s64 %rd1, %rd1, {};
            add.s64 %rd8, %rd1, %rd4; add.s64 %rd9, %rd1, %rd5; add.s64 %rd10, %rd1, %rd6;
            ld.global.u32 %r1, [%rd8]; ld.global.u32 %r2, [%rd9]; ld.global.u32 %r3, [%rd10];",
            (last - 8) * 4
        );
        // The last index is element 8.
        for n in last - 8..=last {
            let end = run("", &body, &mut [0; 64], &mut [], n as u64);
            assert_eq!(end.is_ok(), n <= last - 2, "{n} of {wide}");
        }
    }
}

/// As an H200 answered.
#[test]
fn addresses_of_another_space() {
    use FaultKind::{IllegalAddress, IllegalInstruction, InvalidAddressSpace};
    for (line, kind) in [
        ("ld.global.u32 %r9, [%rd5];", InvalidAddressSpace),
        ("ld.volatile.global.u32 %r9, [%rd5];", InvalidAddressSpace),
        ("st.global.u32 [%rd6], %r1;", InvalidAddressSpace),
        ("st.global.v2.u32 [%rd5], {%r1, %r1};", InvalidAddressSpace),
        (
            "ld.global.u32 %r9, [%rd5]; ld.global.u32 %r10, [%rd5+4]; add.u32 %r9, %r9, %r10;",
            InvalidAddressSpace,
        ),
        ("red.global.add.u32 [%rd5], 1;", InvalidAddressSpace),
        ("atom.global.add.u32 %r9, [%rd5], 1;", InvalidAddressSpace),
        (
            "cp.async.ca.shared.global [%r4], [%rd5], 16;",
            InvalidAddressSpace,
        ),
        (
            "cp.async.ca.shared.global [%r4], [%rd5], 16, 4;",
            InvalidAddressSpace,
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%rd5], [%r4+256], 16;",
            IllegalAddress,
        ),
        (
            "st.async.mbarrier::complete_tx::bytes.u32 [%rd1], %r1, [%rd5];",
            IllegalInstruction,
        ),
        (
            "st.async.mbarrier::complete_tx::bytes.u32 [%rd5], %r1, [%rd1];",
            IllegalInstruction,
        ),
        (
            "red.async.relaxed.cluster.mbarrier::complete_tx::bytes.add.u32 [%rd1], %r1, [%rd5];",
            IllegalInstruction,
        ),
    ] {
        let body = format!(
            "mov.u32 %r4, s; cvt.u64.u32 %rd5, %r4; cvta.shared.u64 %rd5, %rd5;
            mul.wide.u32 %rd6, %r1, 4; add.u64 %rd6, %rd6, %rd5; {line}"
        );
        let got = forms::same(&body, [32, 1, 1], 0).expect_err(line);
        assert_eq!(got.0, kind, "{line}");
    }
    // Lanes of a warp look at rows in another order in each form.
    let source = forms::kernel("stmatrix.sync.aligned.m8n8.x1.b16 [%rd1], {%r1};");
    for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
        let got = forms::run(&source, form, [1, 1, 1], [32, 1, 1], 0).unwrap_err();
        assert_eq!(got.0, IllegalInstruction, "{form:?}");
    }
    // A load takes rows of matrices from anywhere.
    let body = "ldmatrix.sync.aligned.m8n8.x1.b16 {%r9}, [%rd2];";
    forms::same(body, [32, 1, 1], 0).unwrap();
}

/// Only lanes that name rows say where they are, before or after a wait.
#[test]
fn rows_by_generic_addresses() {
    let address = "cvta.shared.u64 %rd5, %rd5; and.b32 %r9, %r1, 31; mul.wide.u32 %rd6, %r9, 16;
        add.u64 %rd6, %rd6, %rd5;";
    for body in [
        "bar.sync 0; stmatrix.sync.aligned.m8n8.x4.b16 [%rd6], {%r9, %r9, %r9, %r9};",
        "shfl.sync.bfly.b32 %r10, %r1, 1, 31, -1;
        stmatrix.sync.aligned.m8n8.x4.b16 [%rd6], {%r9, %r9, %r9, %r9};
        stmatrix.sync.aligned.m8n8.x2.trans.b16 [%rd6], {%r10, %r9};",
        "setp.lt.u32 %p1, %r9, 8; selp.b64 %rd6, %rd6, 0, %p1;
        stmatrix.sync.aligned.m8n8.x1.b16 [%rd6], {%r9};",
        "setp.lt.u32 %p1, %r9, 16; selp.b64 %rd6, %rd6, 0, %p1;
        stmatrix.sync.aligned.m8n8.x2.b16 [%rd6], {%r9, %r9};",
    ] {
        let body = format!("mov.u64 %rd5, s; {address} {body} bar.sync 0; ld.u32 %r9, [%rd5+8];");
        forms::same(&body, [64, 1, 1], 0).expect(&body);
    }
}
