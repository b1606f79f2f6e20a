//! Bulk copies and reductions, `st.async` and `red.async`, and the fences and hints around them, in
//! all forms.

use super::{clusters, forms};
use crate::grid::launch::FaultKind;
use crate::jit::harness;

/// The input's words.
fn input(at: u32) -> u32 {
    at.wrapping_mul(0x9e37_79b9)
}

/// Behind it, `%r4` is the address of shared memory, and a barrier at its 4096th byte waits for one
/// arrival.
const START: &str = "mov.u32 %r4, s;
    setp.ne.u32 %p1, %r1, 0; @%p1 bra ready;
    mbarrier.init.shared.b64 [%r4+4096], 1;
    fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
    ready: bar.sync 0;";

/// All threads wait for the barrier's first phase.
const WAIT: &str = "wait: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4+4096], 0;
    @!%p2 bra wait;";

#[test]
fn copies_complete_at_a_barrier() {
    for copy in [
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [%r4+128], [%rd2], 256, [%r4+4096];",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes
            [%r4+128], [%rd2], 256, [%r4+4096];",
        "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd4, 0.5;
        mov.u32 %r5, 256;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint
            [%r4+128], [%rd2], %r5, [%r4+4096], %rd4;",
        // What is no multiple of 16 bytes is left out, as an H200 does it.
        "mov.u32 %r5, 264;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [%r4+128], [%rd2], %r5, [%r4+4096];",
        "mov.u64 %rd4, 0;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [%r4+128], [%rd4], 0, [%r4+4096];
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [%r4+384], [%rd2], 128, [%r4+4096];
        cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
            [%r4+128], [%r4+384], 128, [%r4+4096];
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [%r4+256], [%rd2+128], 128, [%r4+4096];
        mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r4+4096], 128;",
    ] {
        let copy = copy.replace(", [%rd4], 0,", ", [%rd2], 0,");
        let body = format!(
            "{START}
            @%p1 bra started;
            cp.async.bulk.prefetch.L2.global [%rd2], 256;
            mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4+4096], 256;
            {copy}
            started: {WAIT}
            shl.b32 %r5, %r1, 2; add.u32 %r5, %r5, %r4; ld.shared.u32 %r9, [%r5+128];"
        );
        for threads in [8, 33, 64] {
            let got = forms::same(&body, [threads, 1, 1], 0).unwrap();
            let wanted: Vec<u32> = (0..threads).map(input).collect();
            assert_eq!(got[..threads as usize], wanted, "{copy}");
        }
    }
}

#[test]
fn copies_to_global_memory() {
    let body = "mov.u32 %r4, s; shl.b32 %r5, %r1, 2; add.u32 %r5, %r5, %r4;
        add.u32 %r6, %r1, 500; st.shared.u32 [%r5+16], %r6;
        fence.proxy.async; bar.sync 0;
        setp.ne.u32 %p1, %r1, 0; @%p1 bra done;
        cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%rd1+1024], [%r4+16], 128, %rd2;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 1;
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1+1024], [%r4+16], 64;
        done:";
    let got = forms::same(body, [32, 1, 1], 0).unwrap();
    for at in 0..32 {
        let times = if at < 16 { 2 } else { 1 };
        assert_eq!(got[256 + at as usize], (500 + at) * times);
    }
}

/// Each reduction on elements of each type, on bits that tell them from each other.
#[test]
fn reductions() {
    let cases: &[(&str, u64, u64, u64)] = &[
        ("add.u32", 0xffff_fff0, 0x20, 0x10),
        ("add.s32", 5, 0xffff_ffff, 4),
        ("add.u64", 0xffff_ffff, 1, 0x1_0000_0000),
        ("min.u32", 5, 0xffff_ffff, 5),
        ("min.s32", 5, 0xffff_ffff, 0xffff_ffff),
        ("max.s32", 5, 0xffff_ffff, 5),
        ("min.s64", 5, u64::MAX, u64::MAX),
        ("max.u64", 5, u64::MAX, u64::MAX),
        ("max.s64", 5, u64::MAX, 5),
        ("inc.u32", 7, 7, 0),
        ("inc.u32", 6, 7, 7),
        ("dec.u32", 9, 7, 7),
        ("dec.u32", 0, 7, 7),
        ("and.b32", 0xff00, 0x0ff0, 0x0f00),
        ("or.b64", 0xff00 << 32, 0x0ff0, 0xff00 << 32 | 0x0ff0),
        ("xor.b32", 0xff00, 0x0ff0, 0xf0f0),
        ("add.noftz.f16", 0x3c00, 0x0001, 0x3c00),
        ("add.noftz.f16", 0x0001, 0x0001, 0x0002),
        ("min.f16", 0x7fff, 0x3c00, 0x3c00),
        ("max.bf16", 0x3f80, 0xbf80, 0x3f80),
        ("add.noftz.bf16", 0x3f80, 0x3f80, 0x4000),
        ("add.f32", 0x3f80_0000, 0x3f80_0000, 0x4000_0000),
        ("add.f64", 1f64.to_bits(), 2f64.to_bits(), 3f64.to_bits()),
    ];
    for (what, old, value, wanted) in cases {
        let wide = what.ends_with("64");
        let mask = match what {
            _ if wide => u64::MAX,
            _ if what.ends_with("16") => 0xffff,
            _ => 0xffff_ffff,
        };
        let body = format!(
            "mov.u32 %r4, s; mov.u64 %rd4, {value}; mov.u64 %rd5, 0;
            st.shared.v2.u64 [%r4], {{%rd4, %rd5}};
            mov.u64 %rd4, {old}; st.global.v2.u64 [%rd1+16], {{%rd4, %rd5}};
            cp.reduce.async.bulk.global.shared::cta.bulk_group.{what} [%rd1+16], [%r4], 16;"
        );
        let got = forms::same(&body, [1, 1, 1], 0).unwrap();
        let got = u64::from(got[4]) | u64::from(got[5]) << 32;
        assert_eq!(got & mask, *wanted, "{what} {old:#x} {value:#x}");
    }
}

/// To one other block, and to all of a mask.
#[test]
fn blocks_send_each_other_words() {
    let body = "
        setp.ne.u32 %p1, %r1, 0; @%p1 bra ready;
        mbarrier.init.shared.b64 [%r4+1024], 1;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4+1024], 128;
        mov.u32 %r6, 3; st.shared.u32 [%r4+16], %r6;
        fence.proxy.async.shared::cta;
        ready: barrier.cluster.arrive; barrier.cluster.wait;
        @%p1 bra sent;
        add.u32 %r5, %r2, 1; rem.u32 %r5, %r5, %r3;
        mapa.shared::cluster.u32 %r6, %r4, %r5;
        mov.u32 %r7, 100;
        st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r6], %r7, [%r6+1024];
        cvt.u64.u32 %rd4, %r2;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b64
            [%r6+32], {%rd4, %rd4}, [%r6+1024];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
            [%r6+16], %r2, [%r6+1024];
        add.u64 %rd5, %rd4, %rd4;
        mov.u64 %rd6, s; cvta.shared.u64 %rd6, %rd6; mapa.u64 %rd6, %rd6, %r5;
        st.async.mbarrier::complete_tx::bytes.u64 [%rd6+48], %rd5, [%rd6+1024];
        setp.ne.u32 %p2, %r2, 0; @%p2 bra sent;
        mov.u16 %h1, 7;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
            [%r4+64], [%rd1+16], 96, [%r4+1024], %h1;
        sent:
        wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r4+1024], 0;
        @!%p3 bra wait;
        ld.shared.u32 %r9, [%r4]; ld.shared.u32 %r10, [%r4+16]; ld.shared.u32 %r11, [%r4+40];
        ld.shared.u32 %r12, [%r4+64]; ld.shared.u32 %r13, [%r4+156]; ld.shared.u32 %r14, [%r4+48];
        mad.lo.u32 %r9, %r9, 10, %r10; mad.lo.u32 %r9, %r9, 10, %r11;
        mad.lo.u32 %r9, %r9, 100, %r12; mad.lo.u32 %r9, %r9, 100, %r13;
        mad.lo.u32 %r9, %r9, 10, %r14;
        barrier.cluster.arrive; barrier.cluster.wait;";
    // Each gets 4 + 16 + 4 + 8 bytes, and 96 of them all.
    let got = clusters::all(body, 3, 1, 8).unwrap();
    for (at, got) in (0..24).zip(&got[..24]) {
        let sender = (at / 8 % 3 + 2) % 3;
        let wanted = [
            (100, 10),
            (3 + sender, 10),
            (sender, 100),
            (12, 100),
            (81, 10),
            (2 * sender, 1),
        ];
        let wanted: u32 = wanted.iter().fold(0, |all, (digit, by)| (all + digit) * by);
        assert_eq!(*got, wanted, "{at}");
    }
}

/// As an H200 answered.
#[test]
fn misuse_faults() {
    use FaultKind::{IllegalAddress, LaunchFailure, Misaligned};
    let load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
    let store = "cp.async.bulk.global.shared::cta.bulk_group";
    for (copy, fault) in [
        (
            format!("{load} [%r4], [%rd2+8], 16, [%r4+4096];"),
            Misaligned,
        ),
        (
            format!("{load} [%r4+8], [%rd2], 16, [%r4+4096];"),
            Misaligned,
        ),
        (format!("{load} [%r4], [%rd2], 16, [%r4+4100];"), Misaligned),
        (
            format!("mov.u64 %rd4, 0; {load} [%r4], [%rd4], 16, [%r4+4096];"),
            IllegalAddress,
        ),
        (
            format!("{load} [%r4], [%rd2], 0xffff0, [%r4+4096];"),
            IllegalAddress,
        ),
        (
            format!("{load} [%r4+0x30000], [%rd2], 16, [%r4+4096];"),
            IllegalAddress,
        ),
        (
            format!(
                "mov.u16 %rs1, 4; {load}.multicast::cluster [%r4], [%rd2], 16, [%r4+4096], %rs1;"
            ),
            LaunchFailure,
        ),
        (format!("{store} [%rd1+8], [%r4], 16;"), Misaligned),
        (format!("{store} [%rd1], [%r4+8], 16;"), Misaligned),
        (
            format!("mov.u64 %rd4, 0; {store} [%rd4], [%r4], 16;"),
            IllegalAddress,
        ),
    ] {
        let body = format!("{{ .reg .b16 %rs<2>; {START} {copy} }}");
        let got = forms::same(&body, [1, 1, 1], 0).unwrap_err();
        assert_eq!(got.0, fault, "{copy}");
    }
}

#[test]
fn fences_and_hints_are_taken() {
    let body = "
        fence.proxy.alias; fence.proxy.async; fence.proxy.async.global;
        fence.proxy.async.shared::cta; fence.proxy.async.shared::cluster;
        fence.proxy.tensormap::generic.release.gpu;
        fence.proxy.tensormap::generic.acquire.sys [%rd1], 128;
        fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;
        fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;
        fence.acquire.sync_restrict::shared::cluster.cluster;
        fence.mbarrier_init.release.cluster; fence.acq_rel.cluster; membar.proxy.alias;
        createpolicy.fractional.L2::evict_first.b64 %rd4;
        createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %rd5, [%rd1], 0x100, 0x200;
        createpolicy.cvt.L2.b64 %rd6, %rd4;
        prefetch.global.L2 [%rd1]; prefetch.global.L2::evict_last [%rd1]; prefetchu.L1 [%rd1];
        prefetch.tensormap [%rd1]; prefetch.param.tensormap [%rd1];
        applypriority.global.L2::evict_normal [%rd1], 128; discard.global.L2 [%rd1+128], 128;
        ld.global.L2::cache_hint.u32 %r9, [%rd2+4], %rd4;
        st.global.L2::cache_hint.u32 [%rd3], %r9, %rd4;
        griddepcontrol.launch_dependents; griddepcontrol.wait;
        setmaxnreg.inc.sync.aligned.u32 40; setmaxnreg.dec.sync.aligned.u32 24;
        elect.sync %r10|%p1, -1; @%p1 add.u32 %r9, %r9, 1;";
    let got = forms::same(body, [32, 1, 1], 0).unwrap();
    assert_eq!(got[..2], [input(1) + 1, input(1)]);
}

#[test]
fn wrong_forms_are_refused() {
    for (line, what) in [
        (
            "cp.async.bulk.shared::cta.shared::cta.bulk_group [%r4], [%r5], 16;",
            "does not copy so",
        ),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1], 16;",
            "has not the operands",
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%rd1], %r4, 16;",
            "takes an address in brackets",
        ),
        ("cp.async.bulk.commit_group 1;", "takes 0 operands"),
        ("cp.async.bulk.wait_group.read;", "takes 1 operands"),
        (
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s64 [%rd1], [%r4], 16;",
            "does not take .s64",
        ),
        (
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd1], [%r4], 16;",
            "adds halves with .noftz",
        ),
        (
            "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.f32
                [%r4], [%r5], 16, [%r6];",
            "does not reduce so",
        ),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b64
                [%r4], {%rd1, %rd1, %rd1, %rd1}, [%r5];",
            "stores 16 bytes at most",
        ),
        (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.u64
                [%r4], %rd1, [%r5];",
            "does not take",
        ),
        (
            "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 64;",
            "and 128",
        ),
        (
            "fence.proxy.tensormap::generic.release.gpu [%rd1], 128;",
            "takes 0 operands",
        ),
        ("createpolicy.cvt.L2.b64 %rd4;", "has not the operands"),
    ] {
        let refusal = harness::complaint(&forms::kernel(line));
        assert!(refusal.contains(what), "{line}: {refusal}");
    }
}
