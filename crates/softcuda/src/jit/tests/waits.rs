//! Barriers, warp operations and polling, as compiled code does them.

use crate::grid::launch::FaultKind;
use crate::grid::{self};
use crate::jit::harness::{self, buffer, module};

/// A kernel `k(.u64 out)`, where `%rd2` is the address of the thread's own word.
fn kernel(body: &str) -> String {
    module(&format!(
        ".visible .entry k(.param .u64 out)
        {{
            .reg .pred %p<8>;
            .reg .b32 %r<32>;
            .reg .b64 %rd<16>;
            .shared .align 4 .b8 s[4096];
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %tid.x;
            mul.wide.u32 %rd3, %r1, 4;
            add.s64 %rd2, %rd1, %rd3;
            {body}
            ret;
        }}"
    ))
}

fn run<const N: usize>(body: &str, threads: u32) -> [u32; N] {
    let mut data = [0u32; N];
    harness::run(
        &kernel(body),
        "k",
        [1; 3],
        [threads, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap();
    data
}

#[test]
fn a_barrier_orders_shared_memory() {
    // Each thread reads what the one across the block wrote, ten times over.
    let data: [u32; 256] = run(
        "mov.u32 %r2, 0;
        mov.u32 %r7, s;
        shl.b32 %r5, %r1, 2;
        sub.u32 %r6, 1020, %r5;
        add.u32 %r5, %r5, %r7;
        add.u32 %r6, %r6, %r7;
        again:
        add.u32 %r3, %r1, %r2;
        st.shared.u32 [%r5], %r3;
        bar.sync 0;
        ld.shared.u32 %r4, [%r6];
        barrier.sync.aligned 1, 256;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, 10;
        @%p1 bra again;
        st.global.u32 [%rd2], %r4;",
        256,
    );
    for (n, value) in data.iter().enumerate() {
        assert_eq!(*value, 255 - n as u32 + 9);
    }
}

#[test]
fn barriers_reduce() {
    let data: [u32; 64] = run(
        "setp.lt.u32 %p1, %r1, 10;
        setp.lt.u32 %p2, %r1, 100;
        bar.red.popc.u32 %r2, 0, %p1;
        bar.red.popc.u32 %r7, 0, 64, !%p1;
        bar.red.and.pred %p3, 1, %p1;
        barrier.cta.red.or.aligned.pred %p4, 1, %p1;
        bar.red.and.pred %p5, 2, 64, %p2;
        selp.u32 %r3, 256, 0, %p3;
        selp.u32 %r4, 512, 0, %p4;
        selp.u32 %r5, 1024, 0, %p5;
        add.u32 %r2, %r2, %r3;
        add.u32 %r2, %r2, %r4;
        add.u32 %r2, %r2, %r5;
        shl.b32 %r7, %r7, 16;
        add.u32 %r2, %r2, %r7;
        st.global.u32 [%rd2], %r2;",
        64,
    );
    assert_eq!(data, [10 + 512 + 1024 + (54 << 16); 64]);
}

#[test]
fn a_barrier_in_a_called_function() {
    let source = module(
        ".func meet() { bar.sync 0; ret; }
        .visible .entry k(.param .u64 out)
        {
            .reg .pred %p<2>;
            .reg .b32 %r<4>;
            .reg .b64 %rd<4>;
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %tid.x;
            red.global.add.u32 [%rd1], 1;
            call meet;
            ld.global.u32 %r2, [%rd1];
            setp.eq.u32 %p1, %r2, 96;
            @%p1 red.global.add.u32 [%rd1+4], 1;
            ret;
        }",
    );
    let mut data = [0u32; 2];
    harness::run(
        &source,
        "k",
        [1; 3],
        [96, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap();
    assert_eq!(data, [96, 96]);
}

#[test]
fn a_warp_sums_by_shuffles() {
    let data: [u32; 64] = run(
        "mov.u32 %r2, %r1;
        shfl.sync.bfly.b32 %r3, %r2, 16, 31, -1;
        add.u32 %r2, %r2, %r3;
        shfl.sync.bfly.b32 %r3, %r2, 8, 31, -1;
        add.u32 %r2, %r2, %r3;
        shfl.sync.bfly.b32 %r3, %r2, 4, 31, -1;
        add.u32 %r2, %r2, %r3;
        shfl.sync.bfly.b32 %r3, %r2, 2, 31, -1;
        add.u32 %r2, %r2, %r3;
        shfl.sync.bfly.b32 %r3|%p1, %r2, 1, 31, -1;
        @%p1 add.u32 %r2, %r2, %r3;
        shfl.sync.up.b32 %r4|%p2, %r1, 1, 0, -1;
        selp.u32 %r5, 65536, 0, %p2;
        add.u32 %r2, %r2, %r5;
        st.global.u32 [%rd2], %r2;",
        64,
    );
    for (n, value) in data.iter().enumerate() {
        let sum = if n < 32 { 496 } else { 496 + 1024 };
        assert_eq!(*value, sum + if n % 32 == 0 { 0 } else { 65536 });
    }
}

#[test]
fn votes_matches_and_reductions() {
    let data: [u32; 32 * 8] = {
        let mut data = [0u32; 32 * 8];
        let body = "mul.wide.u32 %rd3, %r1, 32;
            add.s64 %rd2, %rd1, %rd3;
            and.b32 %r2, %r1, 3;
            setp.eq.u32 %p1, %r2, 0;
            vote.sync.ballot.b32 %r3, %p1, -1;
            vote.sync.ballot.b32 %r4, !%p1, -1;
            vote.sync.any.pred %p2, %p1, -1;
            vote.sync.all.pred %p3, %p1, -1;
            selp.u32 %r5, 1, 0, %p2;
            selp.u32 %r6, 2, 0, %p3;
            add.u32 %r5, %r5, %r6;
            match.any.sync.b32 %r6, %r2, -1;
            cvt.u64.u32 %rd4, %r2;
            shl.b64 %rd4, %rd4, 40;
            match.all.sync.b64 %r7|%p4, %rd4, -1;
            selp.u32 %r8, 4, 0, %p4;
            add.u32 %r5, %r5, %r8;
            redux.sync.add.s32 %r8, %r1, -1;
            sub.s32 %r9, %r1, 20;
            redux.sync.min.s32 %r10, %r9, -1;
            redux.sync.xor.b32 %r11, %r1, -1;
            elect.sync _|%p5, -1;
            selp.u32 %r12, 1, 0, %p5;
            st.global.v4.u32 [%rd2], {%r3, %r4, %r5, %r6};
            add.u32 %r10, %r10, %r12;
            st.global.v4.u32 [%rd2+16], {%r7, %r8, %r10, %r11};";
        harness::run(
            &kernel(body),
            "k",
            [1; 3],
            [32, 1, 1],
            &mut [buffer(&mut data)],
            &[],
        )
        .unwrap();
        data
    };
    for (n, values) in data.chunks(8).enumerate() {
        let n = n as u32;
        let least = -20 + i32::from(n == 0);
        assert_eq!(
            values,
            [
                0x1111_1111,
                0xeeee_eeee,
                1,
                0x1111_1111 << (n % 4),
                0,
                496,
                least as u32,
                0
            ],
            "lane {n}"
        );
    }
}

#[test]
fn a_vote_has_sync_before_or_behind_its_mode() {
    let data: [u32; 32] = run(
        "setp.lt.u32 %p1, %r1, 5;
        vote.ballot.sync.b32 %r2, %p1, -1;
        vote.any.sync.pred %p2, %p1, -1;
        selp.u32 %r3, 0x100, 0, %p2;
        or.b32 %r2, %r2, %r3;
        st.global.u32 [%rd2], %r2;",
        32,
    );
    assert_eq!(data, [0x11f; 32]);
}

#[test]
fn reserved_shared_memory_lies_beside_the_kernels_own() {
    // A thread writes all of it, between a static variable and what the launch adds; neither
    // changes.
    let source = module(
        ".extern .shared .align 4 .b8 more[];
        .visible .entry k(.param .u64 out)
        {
            .reg .pred %p<2>;
            .reg .b32 %r<16>;
            .reg .b64 %rd<4>;
            .shared .align 4 .b8 own[4];
            ld.param.u64 %rd1, [out];
            st.shared.u32 [own], 11;
            mov.u32 %r1, more;
            st.shared.u32 [%r1+508], 22;
            st.shared.u32 [%r1], 33;
            mov.u32 %r2, %reserved_smem_offset_1;
            mov.u32 %r3, %reserved_smem_offset_end;
            mov.u32 %r4, %r2;
            again:
            st.shared.u32 [%r4], -1;
            add.u32 %r4, %r4, 4;
            setp.lt.u32 %p1, %r4, %r3;
            @%p1 bra again;
            sub.u32 %r4, %r3, %r2;
            ld.shared.u32 %r5, [own];
            ld.shared.u32 %r6, [%r1];
            ld.shared.u32 %r7, [%r1+508];
            st.global.v4.u32 [%rd1], {%r4, %r5, %r6, %r7};
            ret;
        }",
    );
    let module = harness::load(&source);
    let kernel = module.kernel("k").expect("it is there");
    assert_eq!(kernel.attributes.static_shared, 4);
    let mut data = [0u32; 4];
    let buffers = &mut [buffer(&mut data)];
    harness::run_in(&module, "k", [1; 3], [1; 3], 512, buffers, &[]).unwrap();
    assert_eq!(data, [1024, 11, 33, 22]);
}

#[test]
fn older_forms_take_the_lanes_that_are_there() {
    let source = kernel(
        "setp.ge.u32 %p1, %r1, 20;
        @%p1 bra done;
        vote.ballot.b32 %r2, 1;
        shfl.idx.b32 %r3, %r1, 7, 31;
        activemask.b32 %r4;
        add.u32 %r2, %r2, %r3;
        add.u32 %r2, %r2, %r4;
        st.global.u32 [%rd2], %r2;
        done:",
    )
    .replace(
        "vote.ballot.b32 %r2, 1;",
        "setp.lt.u32 %p2, %r1, 20; vote.ballot.b32 %r2, %p2;",
    );
    let mut data = [0u32; 32];
    harness::run(
        &source,
        "k",
        [1; 3],
        [32, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap();
    assert_eq!(data[..20], [2 * 0xf_ffff + 7; 20]);
    assert_eq!(data[20..], [0; 12]);
}

#[test]
fn a_barrier_that_some_never_reach_is_a_deadlock() {
    let source = kernel(
        "setp.lt.u32 %p1, %r1, 16;
        @%p1 bar.sync 1, 64;
        @!%p1 bar.sync 2, 64;",
    );
    let mut data = [0u32; 1];
    let fault = harness::run(
        &source,
        "k",
        [3, 1, 1],
        [64, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap_err();
    assert_eq!(fault.kind, FaultKind::Deadlock);
    assert_eq!(&*fault.kernel, "k");
}

#[test]
fn a_fault_ends_those_that_wait() {
    let source = kernel(
        "setp.eq.u32 %p1, %r1, 40;
        @%p1 trap;
        bar.sync 0;",
    );
    let mut data = [0u32; 1];
    let fault = harness::run(
        &source,
        "k",
        [50, 1, 1],
        [64, 1, 1],
        &mut [buffer(&mut data)],
        &[],
    )
    .unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap);
    assert_eq!(fault.thread, Some([40, 0, 0]));
}

/// The way cooperative groups meet over the grid, three times.
#[test]
fn a_cooperative_grid_meets() {
    let source = kernel(
        "mov.u32 %r2, %envreg2;
        cvt.u64.u32 %rd4, %r2;
        mov.u32 %r3, %envreg1;
        cvt.u64.u32 %rd5, %r3;
        bfi.b64 %rd6, %rd5, %rd4, 32, 32;
        mov.u32 %r20, 0;
        round:
        red.global.add.u32 [%rd1], 1;
        barrier.sync 0;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra wait;
        mov.u32 %r4, %ctaid.x;
        mov.u32 %r5, %nctaid.x;
        setp.eq.u32 %p2, %r4, 0;
        mov.u32 %r6, -2147483647;
        sub.u32 %r7, %r6, %r5;
        selp.b32 %r8, %r7, 1, %p2;
        atom.add.release.gpu.u32 %r9, [%rd6+4], %r8;
        spin:
        ld.acquire.gpu.u32 %r10, [%rd6+4];
        xor.b32 %r11, %r10, %r9;
        setp.gt.s32 %p3, %r11, -1;
        @%p3 bra spin;
        wait:
        barrier.sync 0;
        ld.global.u32 %r12, [%rd1];
        add.u32 %r20, %r20, 1;
        mov.u32 %r13, %ntid.x;
        mul.lo.u32 %r14, %r13, %r20;
        mov.u32 %r5, %nctaid.x;
        mul.lo.u32 %r14, %r14, %r5;
        setp.lt.u32 %p4, %r12, %r14;
        @%p4 trap;
        setp.lt.u32 %p5, %r20, 3;
        @%p5 bra round;",
    );
    let module = harness::load(&source);
    let kernel = module.kernel("k").unwrap();
    let cell = crate::memory::alloc(
        crate::memory::Device::FIRST,
        4,
        4,
        crate::memory::Kind::Device,
    )
    .unwrap();
    for (blocks, threads) in [(1, 1), (7, 33), (64, 64)] {
        // SAFETY: the allocation is this test's own.
        unsafe { crate::memory::access::fill(cell.base, 0, 4, 1) };
        let params = cell.base.to_le_bytes();
        let mut launch = harness::launch(
            &module,
            kernel,
            [blocks, 1, 1],
            [threads, 1, 1],
            0,
            &[&params],
        );
        launch.cooperative = true;
        grid::run(&launch).unwrap();
        let mut total = [0; 4];
        // SAFETY: as above.
        unsafe { crate::memory::access::read(cell.base, &mut total) };
        assert_eq!(u32::from_le_bytes(total), 3 * blocks * threads);
    }
    crate::memory::free(cell.base);
}

#[test]
fn clusters_meet() {
    let source = kernel(
        "mov.u32 %r2, %cluster_ctarank;
        mov.u32 %r3, %cluster_nctarank;
        mov.u32 %r4, %clusterid.x;
        mul.wide.u32 %rd3, %r4, 4;
        add.s64 %rd2, %rd1, %rd3;
        red.global.add.u32 [%rd2], 1;
        barrier.cluster.arrive.release.aligned;
        barrier.cluster.wait.acquire.aligned;
        ld.global.u32 %r5, [%rd2];
        mov.u32 %r6, %ntid.x;
        mul.lo.u32 %r6, %r6, %r3;
        setp.ne.u32 %p1, %r5, %r6;
        @%p1 trap;
        setp.ge.u32 %p2, %r2, %r3;
        @%p2 trap;",
    );
    let module = harness::load(&source);
    let kernel = module.kernel("k").unwrap();
    let cells = crate::memory::alloc(
        crate::memory::Device::FIRST,
        16,
        4,
        crate::memory::Kind::Device,
    )
    .unwrap();
    // SAFETY: the allocation is this test's own.
    unsafe { crate::memory::access::fill(cells.base, 0, 4, 4) };
    let params = cells.base.to_le_bytes();
    let mut launch = harness::launch(&module, kernel, [8, 1, 1], [48, 1, 1], 0, &[&params]);
    launch.cluster = [2, 1, 1];
    grid::run(&launch).unwrap();
    crate::memory::free(cells.base);
}

#[test]
fn fences_load() {
    for fence in [
        "membar.cta",
        "membar.gl",
        "membar.sys",
        "fence.sc.gpu",
        "fence.acq_rel.cta",
        "fence.acquire.gpu",
        "fence.gpu",
        "fence.proxy.alias",
        "fence.proxy.async.shared::cta",
        "fence.mbarrier_init.release.cluster",
        "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128",
    ] {
        harness::load(&kernel(&format!("{fence};")));
    }
    for refused in [
        "fence.sc",
        "membar.all",
        "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 64",
    ] {
        harness::refusal(&kernel(&format!("{refused};")));
    }
}

/// Nobody comes to the last block of a kernel, which has no `ret` of its own.
#[test]
fn steps_behind_the_last_ret() {
    let source = module(
        ".visible .entry k(.param .u64 out)
        {
            .reg .b32 %r<8>;
            .reg .b64 %rd<4>;
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %tid.x;
            bar.sync 0;
            st.global.u32 [%rd1], 7;
            ret;
            mov.u32 %r2, %ctaid.x;
            mad.lo.u32 %r3, %r2, %r2, %r1;
            shl.b32 %r4, %r3, 4;
            mul.wide.u32 %rd2, %r4, 8;
            st.global.u32 [%rd2], %r1;
        }",
    );
    for block in [8, 64, 70] {
        let mut word = [0u32];
        let module = harness::load(&source);
        let out = &mut [buffer(&mut word)];
        harness::run_in(&module, "k", [1; 3], [block, 1, 1], 0, out, &[]).unwrap();
        assert_eq!(word, [7]);
    }
}
