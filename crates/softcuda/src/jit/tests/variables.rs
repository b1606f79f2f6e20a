//! Variables of a module: where they are, what they hold at first.

use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer};
use crate::jit::module::LoadErrorKind;

const KERNEL: &str = ".visible .entry k(.param .u64 out) {
    .reg .b32 %r<8>; .reg .b64 %rd<8>; ld.param.u64 %rd1, [out]; ";

#[test]
fn initializers() {
    let source = harness::module(
        ".global .u8 bytes[6] = { 1, -1, 255, 0x41 };
.visible .global .align 8 .f64 doubles[2] = { 1.5, 0d4000000000000000 };
.global .f32 singles[3] = { 1.0, 0f40000000, 3 };
.global .s16 grid[2][3] = { { 1, 2 }, { -4, 5, 6 } };
.const .v2 .u32 pairs[2] = { { 1, 2 }, { 3, 4 } };
.global .u32 open[] = { 7, 8, 9 };
.global .u64 pointers[3] = { bytes, generic(doubles)+8, grid };
.global .u32 scalar = 0xdeadbeef;
.global .align 4 .b8 parts[4] = { 0xFF(scalar), 0xFF00(scalar), 0xFF0000(scalar), 0xFF000000(scalar) };
.global .b8 zero[100000];",
    );
    let module = harness::load(&source);
    let read = |name: &str| {
        let (address, size) = module.global(name).unwrap();
        // SAFETY: the module is alive, and so are its variables.
        unsafe { std::slice::from_raw_parts(address as *const u8, size as usize) }.to_vec()
    };
    assert_eq!(read("bytes"), [1, 255, 255, 0x41, 0, 0]);
    assert_eq!(
        read("doubles"),
        [1.5f64.to_le_bytes(), 2f64.to_le_bytes()].concat()
    );
    assert_eq!(
        read("singles"),
        [1f32, 2.0, 3.0].map(f32::to_le_bytes).concat()
    );
    assert_eq!(
        read("grid"),
        [1i16, 2, 0, -4, 5, 6].map(i16::to_le_bytes).concat()
    );
    assert_eq!(
        read("pairs"),
        [1u32, 2, 3, 4].map(u32::to_le_bytes).concat()
    );
    assert_eq!(read("open"), [7u32, 8, 9].map(u32::to_le_bytes).concat());
    let at = |name: &str| module.global(name).unwrap().0;
    assert_eq!(
        read("pointers"),
        [at("bytes"), at("doubles") + 8, at("grid")]
            .map(u64::to_le_bytes)
            .concat()
    );
    assert_eq!(read("parts"), (at("scalar") as u32).to_le_bytes());
    assert!(read("zero").iter().all(|byte| *byte == 0));
    assert_eq!(module.global("k"), None);
}

#[test]
fn kernels_reach_them() {
    let source = harness::module(&format!(
        ".global .u32 counter; .const .u32 table[4] = {{ 10, 20, 30, 40 }}; .visible .global .attribute(.managed) .u32 shared_with_host = 5;
{KERNEL} .global .u32 inner = 6;
    ld.global.u32 %r1, [counter]; add.u32 %r1, %r1, 1; st.global.u32 [counter], %r1; st.global.u32 [%rd1], %r1;
    ld.const.u32 %r1, [table+8]; st.global.u32 [%rd1+4], %r1; mov.u64 %rd2, table; ld.const.u32 %r1, [%rd2+4]; st.global.u32 [%rd1+8], %r1;
    cvta.const.u64 %rd2, %rd2; ld.u32 %r1, [%rd2+12]; st.global.u32 [%rd1+12], %r1; ld.u32 %r1, [shared_with_host]; st.global.u32 [%rd1+16], %r1;
    ld.global.u32 %r1, [inner]; st.global.u32 [%rd1+20], %r1; }}"
    ));
    let module = harness::load(&source);
    for n in 1..4 {
        let mut out = [0u32; 6];
        harness::run_in(
            &module,
            "k",
            [1, 1, 1],
            [1, 1, 1],
            0,
            &mut [buffer(&mut out)],
            &[],
        )
        .unwrap();
        assert_eq!(out, [n, 30, 20, 40, 5, 6]);
    }
}

#[test]
fn bounds_and_constants() {
    for (body, kind) in [
        ("ld.global.u32 %r1, [g+16];", FaultKind::IllegalAddress),
        ("ld.global.u32 %r1, [g+-4];", FaultKind::IllegalAddress),
        ("ld.global.u32 %r1, [g+2];", FaultKind::Misaligned),
        (
            "mov.u64 %rd2, c; st.global.u32 [%rd2], 1;",
            FaultKind::IllegalAddress,
        ),
        (
            "mov.u64 %rd2, c; st.u32 [%rd2], 1;",
            FaultKind::IllegalAddress,
        ),
    ] {
        let source = harness::module(&format!(
            ".global .u32 g[4]; .const .u32 c[4]; {KERNEL} {body} }}"
        ));
        let fault =
            harness::run(&source, "k", [1, 1, 1], [1, 1, 1], &mut [&mut [0; 8]], &[]).unwrap_err();
        assert_eq!(fault.kind, kind, "{body}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    for text in [
        ".global .u32 g[2] = { 1, 2, 3 };",
        ".global .u32 g[2][2] = { { 1, 2, 3 }, { 1 } };",
        ".global .u32 g = { 1, 2 };",
        ".global .u32 g = missing;",
        ".global .u32 g = other; .global .u32 other;",
        ".const .u32 c[20000];",
        ".const .b8 a[65536]; .const .b8 b;",
        ".shared .u32 s = 4;",
        ".shared .b8 s[300000];",
        ".global .pred g;",
        ".global .align 3 .u32 g;",
        ".global .u32 g; .global .u32 g;",
        ".global .u32 g; .shared .u32 g;",
    ] {
        let error = harness::refusal(&harness::module(text));
        assert_eq!(
            error.kind,
            LoadErrorKind::InvalidPtx,
            "{text}: {}",
            error.log
        );
    }
    let error = harness::refusal(&harness::module(".global .b8 g[1000000000000000];"));
    assert_eq!(error.kind, LoadErrorKind::OutOfMemory);
}

#[test]
fn modules_have_their_own() {
    let source = harness::module(".visible .global .b8 g[200000000];");
    let (a, b) = (harness::load(&source), harness::load(&source));
    assert_ne!(a.global("g"), b.global("g"));
    let (address, size) = a.global("g").unwrap();
    // Near its end, where no other test is given a place meanwhile.
    let end = address + size - 1;
    assert!(crate::memory::find(end).is_some());
    drop(a);
    assert!(crate::memory::find(end).is_none());
}

#[test]
fn reserved_shared_memory_is_the_kernels_to_use_and_apart_from_its_own() {
    let source = harness::module(
        ".visible .entry k(.param .u64 out)
        {
            .reg .b32 %r<8>;
            .reg .b64 %rd<4>;
            .reg .pred %p<4>;
            .shared .align 4 .b8 own[8];
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %reserved_smem_offset_begin;
            mov.u32 %r2, %reserved_smem_offset_end;
            mov.u32 %r5, own;
            mov.u32 %r3, 11;
            st.shared.u32 [own], %r3;
            st.shared.u32 [%r1], 22;
            st.shared.u32 [%r2+-4], 33;
            ld.shared.u32 %r4, [own];
            ld.shared.u32 %r6, [%r1];
            ld.shared.u32 %r7, [%r2+-4];
            setp.eq.u32 %p1, %r4, 11;
            vote.all.sync.pred %p2, %p1, -1;
            @%p2 add.u32 %r7, %r7, 100;
            st.global.u32 [%rd1], %r4;
            st.global.u32 [%rd1+4], %r6;
            st.global.u32 [%rd1+8], %r7;
            ret;
        }",
    );
    let mut out = [0u32; 3];
    harness::run(&source, "k", [1; 3], [1; 3], &mut [buffer(&mut out)], &[]).unwrap();
    assert_eq!(out, [11, 22, 133]);
}

/// An index counts scalars of the array's type, also in vectors and rows.
#[test]
fn elements() {
    let source = harness::module(
        ".global .u32 g[4] = { 10, 11, 12, 13 };
.visible .entry k(.param .u64 out, .param .align 8 .b32 q[4]) {
    .reg .b32 %r<8>; .reg .s32 %s; .reg .b64 %rd<8>;
    .shared .v4 .u32 v[4]; .shared .u16 rows[4][8]; .local .u64 l[4];
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; cvt.u64.u32 %rd2, %r1; sub.s32 %s, 1, %r1;
    st.shared.u32 v[5], 50; ld.shared.u32 %r2, [v+20]; st.global.u32 [%rd1], %r2;
    st.shared.u32 v[%r1+6], 60; ld.shared.u32 %r2, [v+28]; st.global.u32 [%rd1+4], %r2;
    st.shared.u16 rows[%rd2], 70; mov.u32 %r3, rows[1]; ld.shared.u16 %r2, [%r3];
    st.global.u32 [%rd1+8], %r2;
    mov.u32 %r3, rows[%r1+3]; mov.u32 %r4, rows; sub.u32 %r2, %r3, %r4;
    st.global.u32 [%rd1+12], %r2;
    ld.global.u32 %r2, g[3]; st.global.u32 [%rd1+16], %r2;
    cvta.global.u64 %rd3, g[2]; ld.u32 %r2, [%rd3]; st.global.u32 [%rd1+20], %r2;
    st.local.u64 l[%r1], 80; ld.local.u32 %r2, [l+8]; st.global.u32 [%rd1+24], %r2;
    ld.param.u32 %r2, q[1]; st.global.u32 [%rd1+28], %r2;
    ld.param.u32 %r2, q[%r1+1]; st.global.u32 [%rd1+32], %r2;
    ld.global.u32 %r2, g[%s+2]; st.global.u32 [%rd1+36], %r2;
}",
    );
    let params: Vec<u8> = [90u32, 91, 92, 93]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let mut out = [0u32; 10];
    let (grid, block) = ([1, 1, 1], [2, 1, 1]);
    // The threads write the same but for what their number decides; the second is asked for.
    let source = source.replace("ld.param.u64 %rd1", ".reg .pred %p; ld.param.u64 %rd1");
    let source = source.replace("sub.s32 %s", "setp.eq.u32 %p, %r1, 0; @%p ret; sub.s32 %s");
    harness::run(
        &source,
        "k",
        grid,
        block,
        &mut [buffer(&mut out)],
        &[&params],
    )
    .unwrap();
    assert_eq!(out, [50, 60, 70, 8, 13, 12, 80, 91, 92, 12]);
}

#[test]
fn what_has_no_elements() {
    for body in [
        "ld.shared.u32 %r1, one[0];",
        "ld.shared.u32 %r1, many[%q];",
        "ld.shared.u32 %r1, %r1[0];",
        "ld.shared.u32 %r1, many[%f1];",
        "atom.shared.add.u32 %r1, many[1], 1;",
        "add.u32 %r1, many[1], 1;",
        "mov.u32 %r1, many[%rd1];",
    ] {
        let source = harness::module(&format!(
            ".shared .u32 one; .shared .u32 many[4]; .entry k() {{
            .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b64 %rd<2>; {body} }}"
        ));
        let error = harness::refusal(&source);
        assert_eq!(
            error.kind,
            LoadErrorKind::InvalidPtx,
            "{body}: {}",
            error.log
        );
    }
}
