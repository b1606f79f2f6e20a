//! Blocks that reach the shared memory of others of their cluster.

use crate::grid::launch::{Fault, FaultKind};
use crate::jit::harness::{self, buffer};
use crate::jit::module::Form;

/// What a kernel leaves behind in all forms, in clusters of `blocks`: `%r1` is the thread's number,
/// `%r2` the block's rank, `%r3` how many blocks there are, `%r4` the address of 64 bytes of shared
/// memory. A thread leaves `%r9` at its place in `out`.
pub(super) fn all(body: &str, blocks: u32, clusters: u32, threads: u32) -> Result<Vec<u32>, Fault> {
    let source = harness::module(&format!(
        ".visible .entry k(.param .u64 out)
        {{
            .reg .pred %p<8>;
            .reg .b16 %h<8>;
            .reg .b32 %r<32>;
            .reg .b64 %rd<16>;
            .shared .align 128 .b8 s[4096];
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %cluster_nctarank;
            mov.u32 %r4, s; mov.u32 %r9, 0;
            {body}
            mov.u32 %r30, %ctaid.x; mov.u32 %r31, %ntid.x; mad.lo.u32 %r30, %r30, %r31, %r1;
            mul.wide.u32 %rd15, %r30, 4; add.u64 %rd15, %rd15, %rd1;
            st.global.u32 [%rd15], %r9;
            ret;
        }}"
    ));
    let outcomes = [Form::Vectors, Form::Rounds, Form::Fibers].map(|form| {
        let module = harness::load_as(&source, form);
        let mut data = vec![0u32; 1024];
        let memory = crate::memory::alloc(
            crate::memory::Device::FIRST,
            4096,
            16,
            crate::memory::Kind::Device,
        )
        .unwrap();
        for at in 0..1024u32 {
            // SAFETY: the allocation has as many bytes, and nobody else knows it.
            unsafe { (memory.base as *mut u32).add(at as usize).write(at * 3) };
        }
        let kernel = module.kernel("k").unwrap();
        let start = memory.base.to_le_bytes();
        let grid = [blocks * clusters, 1, 1];
        let mut launch = harness::launch(&module, kernel, grid, [threads, 1, 1], 0, &[&start]);
        launch.cluster = [blocks, 1, 1];
        let result = crate::grid::run(&launch);
        let bytes = buffer(&mut data);
        // SAFETY: as above, and the launch is over.
        unsafe {
            std::ptr::copy_nonoverlapping(memory.base as *const u8, bytes.as_mut_ptr(), bytes.len())
        };
        crate::memory::free(memory.base);
        result.map(|()| data)
    });
    let [vectors, rounds, fibers] = outcomes;
    for other in [&vectors, &rounds] {
        match (other, &fibers) {
            (Ok(other), Ok(fibers)) => assert_eq!(other, fibers),
            (Err(other), Err(fibers)) => assert_eq!(other.kind, fibers.kind, "{}", other.detail),
            _ => panic!("{other:?} in vectors or rounds, {fibers:?} as fibers"),
        }
    }
    vectors
}

const SYNC: &str = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;";

/// Each block reads what the next one wrote, by each kind of address.
#[test]
fn blocks_read_each_other() {
    for read in [
        "mapa.shared::cluster.u32 %r6, %r4, %r5; add.u32 %r6, %r6, %r7;
        ld.shared::cluster.u32 %r9, [%r6];",
        "mapa.shared::cluster.u32 %r6, s, %r5; add.u32 %r6, %r6, %r7; cvt.u64.u32 %rd2, %r6;
        cvta.shared::cluster.u64 %rd2, %rd2; ld.u32 %r9, [%rd2];",
        "mov.u64 %rd2, s; cvta.shared.u64 %rd2, %rd2; mapa.u64 %rd3, %rd2, %r5;
        cvt.u64.u32 %rd4, %r7; add.u64 %rd3, %rd3, %rd4; ld.u32 %r9, [%rd3];",
        "mov.u64 %rd2, s; cvta.shared.u64 %rd2, %rd2; mapa.u64 %rd3, %rd2, %r5;
        cvta.to.shared::cluster.u64 %rd3, %rd3; cvt.u32.u64 %r6, %rd3; add.u32 %r6, %r6, %r7;
        mov.u32 %r8, 0; atom.shared::cluster.add.u32 %r9, [%r6], %r8;",
    ] {
        let body = format!(
            "shl.b32 %r7, %r1, 2; add.u32 %r8, %r4, %r7;
            mad.lo.u32 %r10, %r2, 1000, %r1; st.shared.u32 [%r8], %r10;
            {SYNC}
            add.u32 %r5, %r2, 1; rem.u32 %r5, %r5, %r3;
            {read}
            {SYNC}"
        );
        for (blocks, clusters, threads) in [(1, 2, 8), (2, 3, 33), (5, 2, 64), (8, 1, 16)] {
            let got = all(&body, blocks, clusters, threads).unwrap();
            for block in 0..blocks * clusters {
                let rank = (block % blocks + 1) % blocks;
                for thread in 0..threads {
                    let at = block * threads + thread;
                    assert_eq!(got[at as usize], rank * 1000 + thread, "{read}");
                }
            }
        }
    }
}

#[test]
fn ranks_and_spaces() {
    let body = format!(
        "{SYNC}
        mapa.shared::cluster.u32 %r5, %r4, 2;
        mov.u64 %rd2, s; cvta.shared.u64 %rd3, %rd2; mapa.u64 %rd4, %rd3, 2;
        getctarank.shared::cluster.u32 %r6, %r5; mov.u32 %r9, %r6;
        getctarank.u64 %r6, %rd4; mad.lo.u32 %r9, %r9, 10, %r6;
        getctarank.shared::cluster.u32 %r6, s; mad.lo.u32 %r9, %r9, 10, %r6;
        getctarank.u64 %r6, %rd3; mad.lo.u32 %r9, %r9, 10, %r6;
        isspacep.shared::cluster %p1, %rd4; selp.u32 %r6, 1, 0, %p1; mad.lo.u32 %r9, %r9, 10, %r6;
        isspacep.shared::cta %p1, %rd4; selp.u32 %r6, 1, 0, %p1; mad.lo.u32 %r9, %r9, 10, %r6;
        isspacep.shared::cluster %p1, %rd1; selp.u32 %r6, 1, 0, %p1; mad.lo.u32 %r9, %r9, 10, %r6;
        isspacep.shared %p1, %rd3; selp.u32 %r6, 1, 0, %p1; mad.lo.u32 %r9, %r9, 10, %r6;
        {SYNC}"
    );
    let got = all(&body, 3, 1, 1).unwrap();
    for (rank, got) in (0..3).zip(got) {
        let own = u32::from(rank == 2);
        let digits = [2, 2, rank, rank, 1, own, 0, 1];
        assert_eq!(got, digits.iter().fold(0, |all, digit| 10 * all + digit));
    }
}

/// Blocks wait for each other at an `mbarrier` of the first, and so without a cluster's barrier
/// but the first.
#[test]
fn remote_arrivals() {
    let body = format!(
        "setp.ne.u32 %p1, %r1, 0; @%p1 bra ready;
        mov.u32 %r5, %ntid.x; mul.lo.u32 %r5, %r5, %r3;
        mbarrier.init.shared.b64 [%r4], %r5; mov.u32 %r5, 0; st.shared.u32 [%r4+64], %r5;
        fence.mbarrier_init.release.cluster;
        ready: {SYNC}
        mapa.shared::cluster.u32 %r6, %r4, 0;
        add.u32 %r7, %r1, 1; red.shared::cluster.add.u32 [%r6+64], %r7;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];
        setp.ne.u32 %p2, %r2, 0; @%p2 bra done;
        wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r4], 0;
        @!%p3 bra wait;
        ld.shared.u32 %r9, [%r4+64];
        done: {SYNC}"
    );
    for (blocks, threads) in [(2, 8), (4, 40)] {
        let got = all(&body, blocks, 2, threads).unwrap();
        for block in 0..2 * blocks {
            let wanted = match block % blocks {
                0 => blocks * threads * (threads + 1) / 2,
                _ => 0,
            };
            assert_eq!(got[(block * threads) as usize], wanted);
        }
    }
}

/// Without a barrier of the cluster: a block spins at its own memory until another writes there.
#[test]
fn blocks_that_only_spin() {
    let body = "
        setp.eq.u32 %p1, %r2, 0; @%p1 bra first;
        bar.sync 0;
        wait: ld.volatile.shared.u32 %r9, [%r4]; setp.eq.u32 %p2, %r9, 0; @%p2 bra wait;
        bra done;
        first:
        bar.sync 0;
        mapa.shared::cluster.u32 %r5, %r4, 1;
        mov.u32 %r6, 7;
        st.release.cluster.shared::cluster.u32 [%r5], %r6;
        done:";
    let got = all(body, 2, 1, 16);
    // Shared memory begins with what was there, so it may not even wait.
    got.unwrap();
}

/// Where nobody waits, blocks run one after the other, each on its own memory.
#[test]
fn blocks_that_do_not_wait() {
    let body = "shl.b32 %r5, %r1, 2; add.u32 %r5, %r5, %r4; add.u32 %r6, %r1, 10;
        mapa.shared::cluster.u32 %r7, %r5, %r2;
        st.shared::cluster.u32 [%r7], %r6;
        xor.b32 %r8, %r2, 1; mapa.shared::cluster.u32 %r8, %r5, %r8;
        getctarank.shared::cluster.u32 %r10, %r8;
        ld.shared.u32 %r9, [%r5]; mad.lo.u32 %r9, %r9, 10, %r10;";
    let got = all(body, 2, 3, 12).unwrap();
    for (at, got) in (0..72).zip(&got[..72]) {
        assert_eq!(*got, (at % 12 + 10) * 10 + ((at / 12 % 2) ^ 1));
    }
}

#[test]
fn wrong_ranks_and_offsets_fault() {
    for (access, fault) in [
        // As an H200 answered.
        (
            "mapa.shared::cluster.u32 %r5, %r4, 5; ld.shared::cluster.u32 %r9, [%r5];",
            FaultKind::LaunchFailure,
        ),
        (
            "mov.u64 %rd2, s; cvta.shared.u64 %rd2, %rd2; mapa.u64 %rd3, %rd2, 5;
            ld.u32 %r9, [%rd3];",
            FaultKind::LaunchFailure,
        ),
        (
            "xor.b32 %r6, %r2, 1; mapa.shared::cluster.u32 %r5, %r4, %r6;
            ld.shared.u32 %r9, [%r5];",
            FaultKind::IllegalInstruction,
        ),
        (
            "mapa.shared::cluster.u32 %r5, %r4, 5;
            mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];",
            FaultKind::LaunchFailure,
        ),
        (
            "mapa.shared::cluster.u32 %r5, %r4, 1; ld.shared::cluster.u32 %r9, [%r5+2];",
            FaultKind::Misaligned,
        ),
        (
            "mapa.shared::cluster.u32 %r5, %r4, 1; ld.shared::cluster.u32 %r9, [%r5+0x40000];",
            FaultKind::IllegalAddress,
        ),
    ] {
        let body = format!("{SYNC} {access} {SYNC}");
        let fault_of = all(&body, 2, 1, 8).unwrap_err();
        assert_eq!(fault_of.kind, fault, "{access}: {}", fault_of.detail);
    }
}

/// No rank of a block that is not there becomes one that is.
#[test]
fn absent_ranks() {
    for rank in [
        "2",
        "15",
        "16",
        "254",
        "255",
        "256",
        "257",
        "0x7fffffff",
        "-1",
    ] {
        for access in [
            "mapa.shared::cluster.u32 %r5, %r4, %r8; ld.shared::cluster.u32 %r9, [%r5];",
            "mapa.shared::cluster.u32 %r5, %r4, %r8; st.shared::cluster.u32 [%r5], %r1;",
            "mov.u64 %rd2, s; mapa.shared::cluster.u64 %rd3, %rd2, %r8;
            ld.shared::cluster.u32 %r9, [%rd3];",
            "mov.u64 %rd2, s; cvta.shared.u64 %rd3, %rd2; mapa.u64 %rd4, %rd3, %r8;
            st.u32 [%rd4], %r1;",
        ] {
            let body = format!("mov.u32 %r8, {rank}; {SYNC} {access} {SYNC}");
            let fault = all(&body, 2, 1, 8).expect_err(&body);
            assert_eq!(fault.kind, FaultKind::LaunchFailure, "{body}");
        }
    }
}

/// Blocks that write to one that has ended.
#[test]
fn a_block_ends_while_others_write_to_it() {
    for write in [
        "st.shared::cluster.u32 [%r5], %r1;",
        "atom.shared::cluster.add.u32 %r6, [%r5], %r1;",
        "cvt.u64.u32 %rd3, %r5; cvta.shared::cluster.u64 %rd4, %rd3; st.u32 [%rd4], %r1;",
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];",
    ] {
        let body = format!(
            "mapa.shared::cluster.u32 %r5, %r4, 0; setp.eq.u32 %p1, %r2, 0;
            mbarrier.init.shared.b64 [%r4], 1000; {SYNC}
            @%p1 bra over; mov.u32 %r7, 0;
            more: nanosleep.u32 1000; add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 20; @%p2 bra more;
            {write} over:"
        );
        let _ = all(&body, 3, 1, 40);
    }
}

/// Also by a generic address that was right before.
#[test]
fn accesses_to_a_block_that_has_ended_fault() {
    for access in [
        "st.u32 [%rd4], %r1;",
        "ld.u32 %r9, [%rd4];",
        "atom.add.u32 %r9, [%rd4], 1;",
        "ld.v4.u32 {%r9, %r10, %r11, %r12}, [%rd4];",
        "ld.shared::cluster.u32 %r9, [%r5];",
    ] {
        let body = format!(
            "mapa.shared::cluster.u32 %r5, %r4, 0; setp.eq.u32 %p1, %r2, 0;
            cvt.u64.u32 %rd3, %r5; cvta.shared::cluster.u64 %rd4, %rd3; {SYNC}
            @%p1 bra over; mov.u32 %r7, 0;
            more: nanosleep.u32 1000; setp.ne.u32 %p3, %r7, 0; setp.ne.u32 %p4, %r7, 40;
            and.pred %p3, %p3, %p4; @%p3 bra on; {access} on:
            add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 41; @%p2 bra more;
            over:"
        );
        let fault = all(&body, 2, 1, 40).expect_err(&body);
        assert_eq!(fault.kind, FaultKind::LaunchFailure, "{body}");
        assert!(fault.detail.contains("has ended"), "{}", fault.detail);
    }
}

#[test]
fn sums_as_operands() {
    let body = "st.shared.u32 [s+8], %r2; barrier.cluster.arrive; barrier.cluster.wait;
        mapa.shared::cluster.u32 %r5, %r4+8, %r2+-1; setp.eq.u32 %p1, %r2, 0;
        @%p1 mapa.shared::cluster.u32 %r5, %r4+8, %r3+-1;
        ld.shared::cluster.u32 %r9, [%r5]; add.u32 %r9, %r9+100, %r1;
        barrier.cluster.arrive; barrier.cluster.wait;";
    let out = all(body, 2, 1, 32).unwrap();
    for (at, value) in out.iter().take(64).enumerate() {
        let (block, thread) = (at as u32 / 32, at as u32 % 32);
        assert_eq!(*value, 1 - block + 100 + thread, "{at}");
    }
}
