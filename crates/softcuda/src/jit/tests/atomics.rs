//! `atom` and `red` against what PTX says they do.

use crate::jit::harness::{self, buffer, module};

/// A kernel `k(.u64 out)` of one or more threads with registers to spare.
fn kernel(body: &str) -> String {
    module(&format!(
        ".visible .entry k(.param .u64 out)
        {{
            .reg .pred %p<8>;
            .reg .b16 %h<16>;
            .reg .b32 %r<32>;
            .reg .b64 %rd<16>;
            .reg .b128 %rq<8>;
            .reg .f32 %f<16>;
            .reg .f64 %fd<16>;
            .shared .align 16 .b8 s[64];
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %tid.x;
            {body}
            ret;
        }}"
    ))
}

/// One operation on one value: the old value and the new one.
fn atom32(op: &str, space: &str, old: u32, b: u32) -> [u32; 2] {
    let address = if space == ".shared" { "s" } else { "%rd1" };
    let source = kernel(&format!(
        "ld.global.b32 %r2, [%rd1];
        st.shared.b32 [s], %r2;
        ld.global.b32 %r3, [%rd1+4];
        atom{space}.{op} %r4, [{address}], %r3;
        ld{space}.b32 %r5, [{address}];
        st.global.b32 [%rd1], %r4;
        st.global.b32 [%rd1+4], %r5;"
    ));
    let mut data = [old, b];
    harness::run(&source, "k", [1; 3], [1; 3], &mut [buffer(&mut data)], &[]).unwrap();
    data
}

/// In generic and in shared memory, which agree.
fn atom64(op: &str, old: u64, b: u64) -> [u64; 2] {
    let source = kernel(&format!(
        "ld.global.b64 %rd2, [%rd1]; ld.global.b64 %rd3, [%rd1+8]; st.shared.b64 [s+8], %rd2;
        atom.{op} %rd4, [%rd1], %rd3; st.global.b64 [%rd1+8], %rd4;
        atom.shared.{op} %rd4, [s+8], %rd3; ld.shared.b64 %rd5, [s+8];
        st.global.v2.b64 [%rd1+16], {{%rd5, %rd4}};"
    ));
    let mut data = [old, b, 0, 0];
    harness::run(&source, "k", [1; 3], [1; 3], &mut [buffer(&mut data)], &[]).unwrap();
    assert_eq!(data[..2], data[2..], "{op} in shared memory");
    [data[1], data[0]]
}

#[test]
fn integers() {
    let minus = |n: i32| n as u32;
    for (op, old, b, new) in [
        ("add.u32", 5, 7, 12),
        ("add.s32", minus(-5), 3, minus(-2)),
        ("relaxed.gpu.add.u32", u32::MAX, 2, 1),
        ("exch.b32", 1, 2, 2),
        ("min.s32", minus(-1), 1, minus(-1)),
        ("min.u32", minus(-1), 1, 1),
        ("max.s32", minus(-1), 1, 1),
        ("acq_rel.sys.max.u32", minus(-1), 1, minus(-1)),
        ("and.b32", 0b1100, 0b1010, 0b1000),
        ("or.b32", 0b1100, 0b1010, 0b1110),
        ("xor.b32", 0b1100, 0b1010, 0b0110),
        ("inc.u32", 3, 4, 4),
        ("inc.u32", 4, 4, 0),
        ("inc.u32", u32::MAX, u32::MAX, 0),
        ("dec.u32", 3, 4, 2),
        ("dec.u32", 0, 4, 4),
        ("dec.u32", 4, 4, 3),
        ("dec.u32", 5, 4, 4),
        ("dec.u32", 1, 0, 0),
    ] {
        for space in ["", ".global", ".shared"] {
            assert_eq!(atom32(op, space, old, b), [old, new], "{op} {space}");
        }
    }
    for (op, old, b, new) in [
        ("add.u64", 5, u64::MAX, 4),
        ("exch.b64", 1, 1 << 40, 1 << 40),
        ("min.s64", u64::MAX, 1, u64::MAX),
        ("min.u64", u64::MAX, 1, 1),
        ("max.s64", u64::MAX, 1, 1),
        ("max.u64", u64::MAX, 1, u64::MAX),
        ("and.b64", 6, 3, 2),
        ("or.b64", 6, 3, 7),
        ("xor.b64", 6, 3, 5),
    ] {
        assert_eq!(atom64(op, old, b), [old, new], "{op}");
    }
}

#[test]
fn floats_round_once_and_flush_in_global_memory_alone() {
    let add = |space, a: u32, b: u32| atom32("add.f32", space, a, b)[1];
    let (one, tiny, nan) = (1f32.to_bits(), 1, 0x7fc0_1234);
    assert_eq!(add(".global", one, 0.5f32.to_bits()), 1.5f32.to_bits());
    // The smallest subnormal: flushed in global memory with its sign, kept in shared memory.
    assert_eq!(add(".global", tiny, tiny), 0);
    assert_eq!(add(".global", 0x8000_0001, 0x8000_0001), 0x8000_0000);
    assert_eq!(add("", tiny, tiny), 0);
    assert_eq!(add(".shared", tiny, tiny), 2);
    assert_eq!(add(".shared", nan, one), 0x7fff_ffff);
    let double = |a: f64, b: f64| atom64("add.f64", a.to_bits(), b.to_bits())[1];
    assert_eq!(double(1.0, 2f64.powi(-60)), 1f64.to_bits());
    assert_eq!(double(f64::from_bits(1), f64::from_bits(1)), 2);
}

#[test]
fn halves() {
    let source = kernel(
        "ld.global.b16 %h1, [%rd1+4];
        atom.add.noftz.f16 %h2, [%rd1], %h1;
        atom.add.noftz.bf16 %h3, [%rd1+2], %h1;
        ld.global.b32 %r2, [%rd1+4];
        atom.global.add.noftz.f16x2 %r3, [%rd1+8], %r2;
        red.global.add.noftz.bf16x2 [%rd1+12], %r2;
        st.global.b16 [%rd1+16], %h2;
        st.global.b16 [%rd1+18], %h3;
        st.global.b32 [%rd1+20], %r3;
        red.global.v2.f16.min.noftz [%rd1+24], {%h1, %h2};",
    );
    // The last line's order of modifiers is not PTX's.
    let source = source.replace("red.global.v2.f16.min.noftz", "red.global.min.noftz.v2.f16");
    // 1.0 and 2.0 in f16 are 0x3c00 and 0x4000; in bf16 0x3f80 and 0x4000.
    let mut data = [
        0x3c00u16, 0x3f80, 0x4000, 0x4000, 0x3c00, 0x4000, 0x3f80, 0x4000, 0, 0, 0, 0, 0x7e00,
        0x4200,
    ];
    harness::run(&source, "k", [1; 3], [1; 3], &mut [buffer(&mut data)], &[]).unwrap();
    assert_eq!(
        data[..8],
        [
            0x4200, 0x4040, 0x4000, 0x4000, 0x4200, 0x4400, 0x4040, 0x4080
        ]
    );
    assert_eq!(data[8..12], [0x3c00, 0x3f80, 0x3c00, 0x4000]);
    // NaN gives way to the number.
    assert_eq!(data[12..], [0x4000, 0x3c00]);
}

#[test]
fn compare_and_swap_of_every_size() {
    let source = kernel(
        "mov.b16 %h1, 7;
        mov.b16 %h2, 9;
        atom.global.cas.b16 %h3, [%rd1], %h1, %h2;
        st.global.b16 [%rd1+2], %h3;
        atom.cas.b32 %r2, [%rd1+4], 3, 4;
        st.global.b32 [%rd1+8], %r2;
        atom.acquire.cta.global.cas.b64 %rd2, [%rd1+16], 5, 6;
        st.global.b64 [%rd1+24], %rd2;
        mov.u64 %rd3, 1;
        mov.u64 %rd4, 2;
        mov.b128 %rq1, {%rd3, %rd4};
        mov.b128 %rq2, {%rd4, %rd3};
        atom.global.cas.b128 %rq3, [%rd1+32], %rq1, %rq2;
        atom.global.exch.b128 %rq4, [%rd1+32], %rq1;
        mov.b128 {%rd5, %rd6}, %rq3;
        mov.b128 {%rd7, %rd8}, %rq4;
        st.global.v2.b64 [%rd1+48], {%rd5, %rd6};
        st.global.v2.b64 [%rd1+64], {%rd7, %rd8};",
    );
    let mut data = [0u64; 10];
    data[0] = 7 | 3 << 32;
    data[2] = 5;
    data[4..6].copy_from_slice(&[1, 2]);
    harness::run(&source, "k", [1; 3], [1; 3], &mut [buffer(&mut data)], &[]).unwrap();
    assert_eq!(data, [9 | 7 << 16 | 4 << 32, 3, 6, 5, 1, 2, 1, 2, 2, 1]);
}

#[test]
fn compare_and_swap_in_shared_memory() {
    let source = kernel(
        "mov.b16 %h1, 7; mov.b16 %h2, 9; mov.b32 %r2, 7; mov.b64 %rd2, 5;
        st.shared.b16 [s], %h1; st.shared.b32 [s+4], %r2; st.shared.b64 [s+8], %rd2;
        atom.shared.cas.b16 %h3, [s], %h1, %h2;
        atom.shared.cas.b32 %r3, [s+4], 8, 9;
        atom.shared.cas.b64 %rd3, [s+8], 5, 6;
        cvt.u32.u16 %r4, %h3; ld.shared.u16 %r5, [s]; st.global.v2.u32 [%rd1], {%r4, %r5};
        ld.shared.u32 %r5, [s+4]; st.global.v2.u32 [%rd1+8], {%r3, %r5};
        ld.shared.u64 %rd4, [s+8]; st.global.v2.u64 [%rd1+16], {%rd3, %rd4};",
    );
    let mut data = [0u32; 8];
    harness::run(&source, "k", [1; 3], [1; 3], &mut [buffer(&mut data)], &[]).unwrap();
    assert_eq!(data, [7, 9, 7, 7, 5, 0, 6, 0]);
}

/// Neighbours that meet in one word, in every form: what each gets is the word of one before it.
#[test]
fn threads_of_a_group_meet_in_shared_memory() {
    let source = kernel(
        "mov.u32 %r2, s; and.b32 %r3, %r1, 4; add.u32 %r2, %r2, %r3;
        st.shared.u32 [%r2], 0; bar.sync 0;
        atom.shared.add.u32 %r4, [%r2], 1; bar.sync 0;
        mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2; st.global.u32 [%rd2], %r4;",
    );
    let mut data = [0u32; 64];
    harness::run(
        &source,
        "k",
        [1; 3],
        [64, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap();
    for part in [0, 4] {
        let threads = (0..64).filter(|thread| thread & 4 == part);
        let mut got: Vec<u32> = threads.map(|thread| data[thread]).collect();
        got.sort_unstable();
        assert_eq!(got, (0..32).collect::<Vec<u32>>());
    }
}

#[test]
fn many_threads_count_together() {
    let source = kernel(
        "red.global.add.u32 [%rd1], 1;
        atom.global.add.u32 %r2, [%rd1+4], 2;
        red.global.add.f32 [%rd1+8], 0f3F800000;
        atom.shared.inc.u32 %r3, [s], 15;
        red.relaxed.gpu.global.add.v2.f32 [%rd1+16], {0f3F800000, 0f40000000};
        atom.global.add.v4.f32 {%f1, _, %f2, _}, [%rd1+32], {0f3F800000, 0f3F800000, 0f3F800000, 0f40800000};",
    )
    .replace("{0f3F800000, 0f40000000}", "{%f8, %f9}")
    .replace("{0f3F800000, 0f3F800000, 0f3F800000, 0f40800000}", "{%f8, %f8, %f8, %f9}")
    .replace("mov.u32 %r1, %tid.x;", "mov.u32 %r1, %tid.x; mov.f32 %f8, 0f3F800000; mov.f32 %f9, 0f40000000;");
    let mut data = [0u32; 12];
    harness::run(
        &source,
        "k",
        [64, 1, 1],
        [100, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap();
    let float = |n: f32| n.to_bits();
    assert_eq!(data[..3], [6400, 12800, float(6400.0)]);
    assert_eq!(data[4..6], [float(6400.0), float(12800.0)]);
    assert_eq!(
        data[8..],
        [float(6400.0), float(6400.0), float(6400.0), float(12800.0)]
    );
}

/// A lock that every thread of a warp takes in turn: it hangs where a thread spins without letting
/// the others run.
#[test]
fn a_spin_lock_among_the_threads_of_a_warp() {
    let source = kernel(
        "again:
        atom.global.cas.b32 %r2, [%rd1], 0, 1;
        setp.ne.s32 %p1, %r2, 0;
        @%p1 bra again;
        ld.global.u32 %r3, [%rd1+4];
        add.u32 %r3, %r3, 1;
        st.global.u32 [%rd1+4], %r3;
        membar.gl;
        atom.global.exch.b32 %r4, [%rd1], 0;",
    );
    let mut data = [0u32; 2];
    harness::run(
        &source,
        "k",
        [8, 1, 1],
        [64, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap();
    assert_eq!(data, [0, 512]);
}

/// A thread that waits by reading with an addition of nothing.
#[test]
fn atomics_that_only_read_let_others_run() {
    let source = kernel(
        "setp.ne.u32 %p1, %r1, 0;
        @%p1 bra other;
        again:
        atom.global.add.u32 %r2, [%rd1], 0;
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra again;
        bra done;
        other:
        red.global.add.u32 [%rd1], 1;
        done:",
    );
    let mut data = [0u32; 1];
    harness::run(
        &source,
        "k",
        [1; 3],
        [40, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap();
    assert_eq!(data, [39]);
}

#[test]
fn what_is_wrong_is_refused() {
    for line in [
        "atom.global.add.b32 %r2, [%rd1], 1;",
        "atom.global.min.f32 %f1, [%rd1], %f2;",
        "red.global.exch.b32 [%rd1], 1;",
        "atom.local.add.u32 %r2, [%rd1], 1;",
        "atom.global.cas.b32 %r2, [%rd1], 1;",
        "atom.global.u32 %r2, [%rd1], 1;",
        "atom.global.add.v2.u32 {%r2, %r3}, [%rd1], {%r2, %r3};",
        "atom.global.add.wild.u32 %r2, [%rd1], 1;",
    ] {
        let error = harness::refusal(&kernel(line));
        assert!(
            error.log.contains("atom") || error.log.contains("red"),
            "{line}: {}",
            error.log
        );
    }
}

#[test]
fn wild_atomics_fault() {
    use crate::grid::launch::FaultKind;
    for (line, kind) in [
        (
            "mov.u64 %rd2, 64; atom.global.add.u32 %r2, [%rd2], 1;",
            FaultKind::IllegalAddress,
        ),
        (
            "atom.global.add.u32 %r2, [%rd1+2], 1;",
            FaultKind::Misaligned,
        ),
        (
            "mov.u32 %r2, 64; red.shared.add.u32 [%r2], 1;",
            FaultKind::IllegalAddress,
        ),
        (
            "atom.add.noftz.f16x2 %r2, [%rd1+1], %r3;",
            FaultKind::Misaligned,
        ),
    ] {
        let mut data = [0u32; 4];
        let fault = harness::run(
            &kernel(line),
            "k",
            [1; 3],
            [1; 3],
            &mut [buffer(&mut data)],
            &[],
        );
        assert_eq!(fault.unwrap_err().kind, kind, "{line}");
    }
}

/// What one block writes in 128 bits at once, another never sees in part.
#[test]
fn wide_accesses_are_whole() {
    for (store, load) in [
        (
            "st.relaxed.gpu.global.b128 [%rd2], %rq1;",
            "ld.relaxed.gpu.global.b128 %rq2, [%rd2];",
        ),
        (
            "st.release.sys.b128 [%rd2], %rq1;",
            "ld.acquire.sys.b128 %rq2, [%rd2];",
        ),
        (
            "st.volatile.global.b128 [%rd2], %rq1;",
            "ld.volatile.global.b128 %rq2, [%rd2];",
        ),
        (
            "atom.global.exch.b128 %rq3, [%rd2], %rq1;",
            "ld.relaxed.gpu.b128 %rq2, [%rd2];",
        ),
        (
            "st.relaxed.sys.b128 [%rd2], %rq1;",
            "atom.global.cas.b128 %rq2, [%rd2], %rq3, %rq3;",
        ),
        (
            "st.mmio.relaxed.sys.global.b128 [%rd2], %rq1;",
            "ld.mmio.relaxed.sys.global.b128 %rq2, [%rd2];",
        ),
    ] {
        let source = kernel(&format!(
            "add.u64 %rd2, %rd1, 16;
            mov.u64 %rd3, 0;
            mov.u32 %r2, %ctaid.x;
            and.b32 %r3, %r2, 1;
            setp.eq.u32 %p1, %r3, 0;
            mov.u64 %rd6, 0;
            @%p1 bra writes;
            reads:
            {load}
            mov.b128 {{%rd4, %rd5}}, %rq2;
            setp.ne.u64 %p2, %rd4, %rd5;
            @%p2 add.u64 %rd6, %rd6, 1;
            add.u64 %rd3, %rd3, 1;
            setp.lt.u64 %p3, %rd3, 1000000;
            @%p3 bra reads;
            red.global.add.u64 [%rd1], %rd6;
            ret;
            writes:
            mov.b128 %rq1, {{%rd3, %rd3}};
            {store}
            add.u64 %rd3, %rd3, 1;
            setp.lt.u64 %p3, %rd3, 1000000;
            @%p3 bra writes;"
        ));
        let mut data = [0u64; 4];
        harness::run(
            &source,
            "k",
            [9, 1, 1],
            [1; 3],
            &mut [buffer(&mut data)],
            &[],
        )
        .unwrap();
        assert_eq!(data[0], 0, "parts were seen: {store} {load}");
        assert_eq!(data[2], data[3], "{store}");
    }
}

/// By a generic address, they may be of any memory.
#[test]
fn wide_accesses_of_every_memory() {
    let source = kernel(
        ".local .align 16 .b8 own[32];
        mov.u64 %rd2, own; cvta.local.u64 %rd2, %rd2;
        mov.u64 %rd3, s; cvta.shared.u64 %rd3, %rd3;
        cvt.u64.u32 %rd4, %r1; add.u64 %rd5, %rd4, 7; mov.b128 %rq1, {%rd4, %rd5};
        st.relaxed.gpu.b128 [%rd2+16], %rq1;
        ld.acquire.gpu.b128 %rq2, [%rd2+16];
        setp.ne.u32 %p1, %r1, 1;
        @%p1 bra over;
        st.release.gpu.b128 [%rd3+32], %rq2;
        ld.volatile.shared.b128 %rq3, [s+32];
        st.volatile.shared.b128 [s+16], %rq3;
        ld.relaxed.gpu.b128 %rq4, [%rd3+16];
        mov.b128 {%rd6, %rd7}, %rq4;
        st.global.v2.b64 [%rd1], {%rd6, %rd7};
        over:",
    );
    let mut data = [0u64; 2];
    harness::run(
        &source,
        "k",
        [1; 3],
        [40, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap();
    assert_eq!(data, [1, 8]);
}
