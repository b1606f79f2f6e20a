//! Threads that spin: they look at memory until another has written there.

use crate::grid::context::Mode;
use crate::grid::launch::{Fault, FaultKind};
use crate::jit::harness::{self, buffer};
use crate::jit::module::Form;

/// A kernel `k(.u64 out)` with `%r1` a thread's number in its block, `%r2` the block's, `%rd1`
/// `out`, and some shared memory.
fn kernel(body: &str) -> String {
    harness::module(&format!(
        ".visible .entry k(.param .u64 out)
        {{
            .reg .pred %p<8>;
            .reg .b32 %r<32>;
            .reg .b64 %rd<16>;
            .shared .align 4 .b8 s[4096];
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %tid.x;
            mov.u32 %r2, %ctaid.x;
            {body}
            ret;
        }}"
    ))
}

/// What a kernel leaves behind in all forms; in the first two, it runs in rounds.
fn all<const N: usize>(
    body: &str,
    grid: [u32; 3],
    block: [u32; 3],
    cooperative: bool,
) -> Result<[u32; N], Fault> {
    let outcomes = [Form::Vectors, Form::Rounds, Form::Fibers].map(|form| {
        let module = harness::load_as(&kernel(body), form);
        let mode = module.kernel("k").unwrap().compile().unwrap().mode;
        assert_eq!(mode == Mode::Fibers, form == Form::Fibers);
        let mut data = [0u32; N];
        let memory = crate::memory::alloc(4 * N as u64, 1, crate::memory::Kind::Device).unwrap();
        let start = memory.base.to_le_bytes();
        // SAFETY: the allocation has as many bytes, and nobody else knows it.
        unsafe { std::ptr::write_bytes(memory.base as *mut u8, 0, 4 * N) };
        let kernel = module.kernel("k").unwrap();
        let mut launch = harness::launch(&module, kernel, grid, block, 0, &[&start]);
        launch.cooperative = cooperative;
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
            (Err(other), Err(fibers)) => assert_eq!(other.kind, fibers.kind),
            _ => panic!("{other:?} in vectors or rounds, {fibers:?} as fibers"),
        }
    }
    vectors
}

/// The last thread starts a chain: each waits for the one after it.
const CHAIN: &str = "
    mov.u32 %r3, s;
    mad.lo.u32 %r3, %r1, 4, %r3;
    mov.u32 %r4, 0;
    st.shared.u32 [%r3], %r4;
    bar.sync 0;
    mov.u32 %r5, %ntid.x;
    sub.u32 %r5, %r5, 1;
    setp.eq.u32 %p1, %r1, %r5;
    mov.u32 %r6, 1000;
    @%p1 bra go;
    again: ld.volatile.shared.u32 %r6, [%r3+4];
    setp.eq.u32 %p2, %r6, 0;
    @%p2 bra again;
    go:
    add.u32 %r6, %r6, 1;
    st.volatile.shared.u32 [%r3], %r6;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd2, %rd2, %rd1;
    st.global.u32 [%rd2], %r6;";

#[test]
fn each_waits_for_the_next() {
    fn chain<const N: usize>() {
        let data: [u32; N] = all(CHAIN, [1; 3], [N as u32, 1, 1], false).unwrap();
        for (thread, got) in (0..).zip(data) {
            assert_eq!(got, 1000 + N as u32 - thread, "{N}");
        }
    }
    chain::<3>();
    chain::<8>();
    chain::<64>();
    chain::<100>();
    chain::<136>();
    chain::<1000>();
}

/// Who holds a lock waits, as its neighbours see it, for those that want it.
#[test]
fn a_lock_in_each_lane() {
    let data: [u32; 1] = all(
        "add.u64 %rd2, %rd1, 0;
        mov.u32 %r3, s;
        mov.u32 %r4, 0;
        st.shared.u32 [%r3], %r4;
        bar.sync 0;
        mov.u32 %r9, 0;
        more:
        take: atom.shared.cas.b32 %r5, [%r3], 0, 1;
        setp.ne.u32 %p1, %r5, 0;
        @%p1 bra take;
        ld.global.u32 %r6, [%rd2];
        add.u32 %r6, %r6, 1;
        st.global.u32 [%rd2], %r6;
        atom.shared.exch.b32 %r7, [%r3], 0;
        add.u32 %r9, %r9, 1;
        setp.lt.u32 %p2, %r9, 5;
        @%p2 bra more;",
        [1; 3],
        [96, 1, 1],
        false,
    )
    .unwrap();
    assert_eq!(data, [5 * 96]);
}

/// Blocks wait for later ones: each starts though those before it spin.
#[test]
fn blocks_wait_for_later_ones() {
    let data: [u32; 33] = all(
        "mul.wide.u32 %rd2, %r2, 4;
        add.u64 %rd2, %rd2, %rd1;
        mov.u32 %r3, %nctaid.x;
        sub.u32 %r3, %r3, 1;
        setp.eq.u32 %p1, %r2, %r3;
        mov.u32 %r4, 1;
        @%p1 bra go;
        again: ld.acquire.gpu.global.u32 %r4, [%rd2+4];
        setp.eq.u32 %p2, %r4, 0;
        @%p2 bra again;
        go:
        bar.sync 0;
        setp.ne.u32 %p3, %r1, 5;
        add.u32 %r4, %r4, 1;
        @!%p3 st.release.gpu.global.u32 [%rd2], %r4;",
        [33, 1, 1],
        [40, 1, 1],
        false,
    )
    .unwrap();
    for (block, got) in (0..).zip(data) {
        assert_eq!(got, 34 - block);
    }
}

/// All blocks of a grid meet, several times, and exchange what they have between.
#[test]
fn a_grid_meets_by_hand() {
    let data: [u32; 9] = all(
        "mov.u32 %r9, 0;
        mul.wide.u32 %rd2, %r2, 4;
        add.u64 %rd2, %rd2, %rd1;
        mov.u32 %r10, %nctaid.x;
        round:
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra meet;
        ld.volatile.global.u32 %r3, [%rd2+4];
        add.u32 %r3, %r3, %r2;
        st.volatile.global.u32 [%rd2+4], %r3;
        membar.gl;
        atom.global.add.u32 %r4, [%rd1], 1;
        mad.lo.u32 %r5, %r9, %r10, %r10;
        again: ld.volatile.global.u32 %r4, [%rd1];
        setp.lt.u32 %p2, %r4, %r5;
        @%p2 bra again;
        meet:
        bar.sync 0;
        add.u32 %r9, %r9, 1;
        setp.lt.u32 %p3, %r9, 10;
        @%p3 bra round;",
        [8, 1, 1],
        [64, 1, 1],
        true,
    )
    .unwrap();
    assert_eq!(data, [80, 0, 10, 20, 30, 40, 50, 60, 70]);
}

/// Registers of each size, predicates and what is written under guards live through polls.
#[test]
fn what_lives_through_a_poll() {
    let data: [u32; 128] = all(
        "mov.u32 %r3, s;
        mov.u32 %r4, 0;
        st.shared.u32 [%r3], %r4;
        bar.sync 0;
        cvt.u64.u32 %rd3, %r1;
        shl.b64 %rd4, %rd3, 33;
        and.b32 %r5, %r1, 1;
        setp.eq.u32 %p1, %r5, 0;
        mul.lo.u32 %r6, %r1, 77;
        mov.u32 %r8, 0;
        again:
        ld.volatile.shared.u32 %r7, [%r3];
        @%p1 add.u32 %r8, %r8, %r6;
        @%p1 mov.u32 %r6, 0;
        setp.lt.u32 %p2, %r7, %r1;
        @%p2 bra again;
        setp.eq.u32 %p4, %r7, %r1;
        @%p4 atom.shared.add.u32 %r9, [%r3], 1;
        shr.u64 %rd4, %rd4, 33;
        cvt.u32.u64 %r10, %rd4;
        add.u32 %r10, %r10, %r8;
        @%p1 add.u32 %r10, %r10, 100000;
        mul.wide.u32 %rd2, %r1, 4;
        add.u64 %rd2, %rd2, %rd1;
        st.global.u32 [%rd2], %r10;",
        [1; 3],
        [128, 1, 1],
        false,
    )
    .unwrap();
    for (thread, got) in (0..).zip(data) {
        let even = thread % 2 == 0;
        let expected = thread + if even { 77 * thread + 100_000 } else { 0 };
        assert_eq!(got, expected, "{thread}");
    }
}

/// A thread spins for a write that never comes, another faults.
#[test]
fn a_fault_ends_those_that_spin() {
    let fault = all::<1>(
        "again: ld.volatile.global.u32 %r3, [%rd1];
        setp.ne.u32 %p2, %r3, 0;
        setp.eq.u32 %p1, %r1, 30;
        setp.eq.u32 %p3, %r2, 3;
        and.pred %p1, %p1, %p3;
        @%p1 trap;
        @!%p2 bra again;",
        [4, 1, 1],
        [64, 1, 1],
        false,
    )
    .unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalInstruction);
    assert_eq!((fault.block, fault.thread), ([3, 0, 0], Some([30, 0, 0])));
}

/// More polls than a block has before its threads have turns one by one.
#[test]
fn many_polls_that_wait_for_nobody() {
    let data: [u32; 1] = all(
        "mov.u32 %r3, 0;
        more:
        ld.global.u32 %r4, [%rd1];
        retry:
        add.u32 %r5, %r4, 1;
        atom.global.cas.b32 %r6, [%rd1], %r4, %r5;
        setp.eq.u32 %p1, %r6, %r4;
        mov.u32 %r4, %r6;
        @!%p1 bra retry;
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p2, %r3, 200;
        @%p2 bra more;",
        [3, 1, 1],
        [64, 2, 1],
        false,
    )
    .unwrap();
    assert_eq!(data, [3 * 128 * 200]);
}

/// In the body of a kernel whose frames are deep, on a stack of its own.
#[test]
fn who_spins_may_call() {
    let source = harness::module(
        ".func (.param .u32 to) more(.param .u32 from)
        {
            .reg .b32 %r<4>;
            .local .align 8 .b8 room[256];
            ld.param.u32 %r1, [from];
            st.local.u32 [room+128], %r1;
            ld.local.u32 %r2, [room+128];
            add.u32 %r2, %r2, 1;
            st.param.u32 [to], %r2;
            ret;
        }
        .visible .entry k(.param .u64 out)
        {
            .reg .pred %p<4>;
            .reg .b32 %r<8>;
            .reg .b64 %rd<4>;
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %tid.x;
            again: ld.volatile.global.u32 %r2, [%rd1];
            setp.ne.u32 %p1, %r2, %r1;
            @%p1 bra again;
            {
                .param .u32 a;
                .param .u32 b;
                st.param.u32 [a], %r2;
                call (b), more, (a);
                ld.param.u32 %r3, [b];
            }
            st.volatile.global.u32 [%rd1], %r3;
            ret;
        }",
    );
    for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
        let module = harness::load_as(&source, form);
        let mut data = [0u32];
        let buffers = &mut [buffer(&mut data)];
        harness::run_in(&module, "k", [1; 3], [70, 1, 1], 0, buffers, &[]).unwrap();
        assert_eq!(data, [70]);
    }
}
