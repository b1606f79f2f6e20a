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
        let memory = crate::memory::alloc(
            crate::memory::Device::FIRST,
            4 * N as u64,
            1,
            crate::memory::Kind::Device,
        )
        .unwrap();
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
    assert_eq!(fault.kind, FaultKind::Trap);
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
        // Not as a retry is recognized.
        xor.b32 %r7, %r6, %r4;
        setp.eq.u32 %p1, %r7, 0;
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

/// A kernel's mode and what it leaves, in all forms: of those that run in rounds, as fibers too.
fn modes<const N: usize>(body: &str, blocks: u32, threads: u32) -> (Mode, [u32; N]) {
    let outcomes = [Form::Vectors, Form::Rounds, Form::Fibers].map(|form| {
        let module = harness::load_as(&kernel(body), form);
        let mode = module.kernel("k").unwrap().compile().unwrap().mode;
        let mut data = [0u32; N];
        let buffers = &mut [buffer(&mut data)];
        let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
        harness::run_in(&module, "k", grid, block, 0, buffers, &[]).unwrap();
        (mode, data)
    });
    let [vectors, rounds, fibers] = outcomes;
    assert_eq!((vectors.1, vectors.1), (rounds.1, fibers.1), "{body}");
    assert_eq!(vectors.0, rounds.0);
    vectors
}

/// Compare-and-swaps that are done again until they succeed need nobody's turn but their own.
#[test]
fn retries_wait_for_nobody() {
    let add = "add.u32 %r5, %r4, 1;";
    let from_what_was_found = |space: &str, at: &str| {
        format!(
            "ld{space}.u32 %r4, [{at}];
            retry: {add}
            atom{space}.cas.b32 %r6, [{at}], %r4, %r5;
            setp.ne.s32 %p1, %r6, %r4;
            mov.b32 %r4, %r6;
            @%p1 bra retry;"
        )
    };
    let global = from_what_was_found(".global", "%rd1");
    for body in [
        global.clone(),
        // Under a branch, and in a loop of a known length.
        format!("setp.gt.u32 %p2, %r1, 2000; @%p2 bra over; {global} over:"),
        format!(
            "mov.u32 %r9, 0; more: {global} add.u32 %r9, %r9, 1;
            setp.ne.u32 %p3, %r9, 1; @%p3 bra more;"
        ),
        // As older compilers have it.
        format!(
            "ld.global.u32 %r4, [%rd1]; bra.uni retry; again: mov.u32 %r4, %r6;
            retry: {add} atom.cas.b32 %r6, [%rd1], %r4, %r5;
            setp.eq.u32 %p1, %r4, %r6; @%p1 bra over; bra.uni again; over:"
        ),
        // What is there is loaded each time.
        format!(
            "retry: ld.volatile.global.u32 %r4, [%rd1]; {add}
            atom.global.cas.b32 %r6, [%rd1], %r4, %r5;
            setp.ne.u32 %p1, %r4, %r6; @%p1 bra retry;"
        ),
        // Whoever is too small gives up.
        format!(
            "ld.global.u32 %r4, [%rd1];
            retry: setp.gt.u32 %p2, %r4, 100000; @%p2 bra over;
            {add} atom.global.cas.b32 %r6, [%rd1], %r4, %r5;
            setp.eq.u32 %p1, %r6, %r4; mov.u32 %r4, %r6; @!%p1 bra retry; over:"
        ),
        // A list, of which each thread's word is an element.
        "mad.lo.u32 %r3, %r2, 64, %r1; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd2, %rd1;
        ld.global.u32 %r4, [%rd1];
        retry: st.global.u32 [%rd2+8], %r4; add.u32 %r5, %r4, 1;
        atom.global.cas.b32 %r6, [%rd1], %r4, %r5;
        setp.ne.u32 %p1, %r6, %r4; mov.u32 %r4, %r6; @%p1 bra retry;
        st.global.u32 [%rd2+8], 7;"
            .to_string(),
        // 64 bits.
        "ld.global.u64 %rd4, [%rd1];
        retry: add.u64 %rd5, %rd4, 1; atom.global.cas.b64 %rd6, [%rd1], %rd4, %rd5;
        setp.ne.s64 %p1, %rd6, %rd4; mov.b64 %rd4, %rd6; @%p1 bra retry;"
            .to_string(),
    ] {
        let (mode, data) = modes::<300>(&body, 4, 64);
        assert_eq!((mode, data[0]), (Mode::Loop, 4 * 64), "{body}");
        // With a barrier, threads run in other ways, and may part before it.
        let (mode, data) = modes::<300>(&format!("bar.sync 0; {body} bar.sync 0;"), 4, 64);
        assert_eq!((mode, data[0]), (Mode::Rounds, 4 * 64), "{body}");
    }
    let shared = from_what_was_found(".shared", "%r3");
    let body = format!(
        "mov.u32 %r3, s; setp.ne.u32 %p4, %r1, 0; @%p4 bra ready; st.shared.u32 [%r3], 0; ready:
        bar.sync 0; {shared} bar.sync 0; ld.shared.u32 %r7, [%r3];
        @!%p4 red.global.add.u32 [%rd1], %r7;"
    );
    assert_eq!(modes::<1>(&body, 3, 100), (Mode::Rounds, [300]));
}

/// What looks like a retry, and may wait for another thread.
#[test]
fn what_may_wait_for_another_is_no_retry() {
    let swap = "atom.global.cas.b32 %r6, [%rd1+4], %r4, %r5;";
    let bodies = [
        // A lock: the same is expected each time, by a number or a register.
        "retry: atom.global.cas.b32 %r6, [%rd1+4], 0, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra retry;
        st.volatile.global.u32 [%rd1+4], 0;"
            .to_string(),
        format!(
            "mov.u32 %r4, 0; mov.u32 %r5, 1;
            retry: {swap} setp.ne.u32 %p1, %r6, %r4; @%p1 bra retry;
            st.volatile.global.u32 [%rd1+4], 0;"
        ),
        // Only sometimes what was found.
        format!(
            "mov.u32 %r4, 0; mov.u32 %r5, 1; setp.gt.u32 %p3, %r1, 9999;
            retry: {swap} setp.ne.u32 %p1, %r6, %r4; @%p3 mov.u32 %r4, %r6; @%p1 bra retry;
            st.volatile.global.u32 [%rd1+4], 0;"
        ),
        format!(
            "mov.u32 %r4, 0; mov.u32 %r5, 1; setp.gt.u32 %p3, %r1, 9999;
            retry: {swap} setp.eq.u32 %p1, %r6, %r4; @%p1 bra over; @!%p3 bra retry;
            mov.u32 %r4, %r6; bra retry; over: st.volatile.global.u32 [%rd1+4], 0;"
        ),
        // It goes on as long as it succeeds.
        format!(
            "ld.global.u32 %r4, [%rd1+4]; mov.u32 %r8, 0;
            retry: add.u32 %r8, %r8, 1; add.u32 %r5, %r4, 0; {swap}
            setp.eq.u32 %p1, %r6, %r4; mov.u32 %r4, %r6; setp.lt.u32 %p2, %r8, 3;
            and.pred %p1, %p1, %p2; @%p1 bra retry;"
        ),
        // It succeeds, but waits for a number.
        format!(
            "ld.global.u32 %r4, [%rd1+4];
            retry: mov.u32 %r5, %r4; {swap} setp.ne.u32 %p1, %r6, %r4; mov.u32 %r4, %r6;
            @%p1 bra retry; setp.ne.u32 %p2, %r4, 0; @%p2 bra retry;"
        ),
        // The outer loop waits for what the inner one found, by a flag of its own.
        format!(
            "mov.u32 %r8, 0;
            more: ld.global.u32 %r4, [%rd1+4];
            retry: mov.u32 %r5, %r4; {swap} setp.ne.u32 %p1, %r6, %r4; mov.u32 %r4, %r6;
            @%p1 bra retry; setp.ne.u32 %p2, %r4, 0; @%p2 bra still; mov.u32 %r8, 1;
            still: setp.eq.u32 %p3, %r8, 0; @%p3 bra more;"
        ),
        // By how often it failed.
        format!(
            "mov.u32 %r8, 0;
            more: ld.global.u32 %r4, [%rd1+4];
            retry: add.u32 %r8, %r8, 1; mov.u32 %r5, %r4; {swap} setp.ne.u32 %p1, %r6, %r4;
            mov.u32 %r4, %r6; @%p1 bra retry; setp.lt.u32 %p3, %r8, 9; @%p3 bra more;"
        ),
        // Or for memory.
        format!(
            "more: ld.global.u32 %r4, [%rd1+4];
            retry: mov.u32 %r5, %r4; {swap} setp.ne.u32 %p1, %r6, %r4; mov.u32 %r4, %r6;
            @%p1 bra retry; ld.global.u32 %r7, [%rd1+8]; setp.ne.u32 %p3, %r7, 0; @%p3 bra more;"
        ),
        // Another place each time, or what is written there between.
        format!(
            "add.u64 %rd1, %rd1, 0; ld.global.u32 %r4, [%rd1+4];
            retry: mov.u32 %r5, %r4; {swap} setp.ne.u32 %p1, %r6, %r4; mov.u32 %r4, %r6;
            add.u64 %rd1, %rd1, 0; @%p1 bra retry;"
        ),
        format!(
            "ld.global.u32 %r4, [%rd1+4];
            retry: mov.u32 %r5, %r4; {swap} setp.ne.u32 %p1, %r6, %r4; mov.u32 %r4, %r6;
            st.volatile.global.u32 [%rd1+8], 0; @%p1 bra retry;"
        ),
        // A load from elsewhere, or of fewer bits.
        format!(
            "retry: ld.volatile.global.u32 %r4, [%rd1+8]; mov.u32 %r5, %r4; {swap}
            setp.ne.u32 %p1, %r6, %r4; @%p1 bra retry;"
        ),
        format!(
            "retry: ld.volatile.global.u16 %r4, [%rd1+4]; mov.u32 %r5, %r4; {swap}
            setp.ne.u32 %p1, %r6, %r4; @%p1 bra retry;"
        ),
        // Another comparison.
        format!(
            "ld.global.u32 %r4, [%rd1+4];
            retry: mov.u32 %r5, %r4; {swap} setp.ne.u16 %p1, %r6, %r4; setp.gt.u32 %p1, %r6, %r4;
            mov.u32 %r4, %r6; @%p1 bra retry;"
        ),
        // A sleep, and a load that needs not see anything.
        "retry: ld.global.u32 %r4, [%rd1+4]; nanosleep.u32 5; setp.ne.u32 %p1, %r4, 0;
        @%p1 bra retry;"
            .to_string(),
        // Exchanges.
        "retry: atom.global.exch.b32 %r4, [%rd1+4], 0; setp.ne.u32 %p1, %r4, 0; @%p1 bra retry;"
            .to_string(),
    ];
    for body in bodies {
        let body = format!("{body} red.global.add.u32 [%rd1], 1;");
        let source = kernel(&body.replace("setp.ne.u16 %p1, %r6, %r4;", ""));
        let module = harness::load_as(&source, Form::Vectors);
        let mode = module.kernel("k").unwrap().compile().unwrap().mode;
        assert_eq!(mode, Mode::Rounds, "{body}");
        let mut data = [0u32; 4];
        let buffers = &mut [buffer(&mut data)];
        harness::run_in(&module, "k", [3, 1, 1], [40, 1, 1], 0, buffers, &[]).unwrap();
        assert_eq!(data[0], 120, "{body}");
    }
}

/// What is tried by adding, and taken back where there was not enough, is waited for.
#[test]
fn semaphores() {
    let semaphore = |take: &str, put: &str| {
        format!(
            "setp.ne.u32 %p1, %r1, 0; @%p1 bra put;
            take: {take} bra over;
            put: {put}
            over: red.global.add.u32 [%rd1+4], 1;"
        )
    };
    let counter = |taken: &str| {
        format!(
            "atom.global.add.u32 %r4, [%rd1], -1; setp.gt.s32 %p2, %r4, 0; @%p2 bra over;
            {taken} bra take;"
        )
    };
    for (take, put) in [
        (
            &counter("red.global.add.u32 [%rd1], 1;"),
            "red.global.add.u32 [%rd1], 1;",
        ),
        (
            &counter("atom.global.inc.u32 %r5, [%rd1], 100000;"),
            "red.global.add.u32 [%rd1], 1;",
        ),
        // The 32 bits of -1.
        (
            &"atom.global.add.u32 %r4, [%rd1], 4294967295; setp.gt.s32 %p2, %r4, 0; @%p2 bra over;
            red.global.add.u32 [%rd1], 1; bra take;"
                .to_string(),
            "red.global.add.u32 [%rd1], 1;",
        ),
        // A bit that others turn over, or set.
        (
            &"atom.global.xor.b32 %r4, [%rd1], 1; setp.eq.u32 %p2, %r4, 2; @%p2 bra over;
            atom.global.xor.b32 %r5, [%rd1], 1; bra take;"
                .to_string(),
            "red.global.xor.b32 [%rd1], 2;",
        ),
        (
            &"atom.global.xor.b32 %r4, [%rd1], 1; setp.eq.u32 %p2, %r4, 7; @%p2 bra over;
            atom.global.xor.b32 %r4, [%rd1], 1; bra take;"
                .to_string(),
            "st.volatile.global.u32 [%rd1], 7;",
        ),
    ] {
        let data: [u32; 2] = all(&semaphore(take, put), [1; 3], [2, 1, 1], false).unwrap();
        assert_eq!(data[1], 2, "{take}");
    }
    // A lock that counts how often it was asked for.
    let lock = "take: atom.global.add.u32 %r4, [%rd1], 1; setp.ne.u32 %p2, %r4, 0; @%p2 bra take;
        ld.volatile.global.u32 %r5, [%rd1+4]; add.u32 %r5, %r5, 1;
        st.volatile.global.u32 [%rd1+4], %r5;
        membar.gl; st.volatile.global.u32 [%rd1], 0;";
    let data: [u32; 2] = all(lock, [3, 1, 1], [40, 1, 1], false).unwrap();
    assert_eq!(data[1], 120);
}

/// Work that is taken from a queue is there, or not: nobody waits for it.
#[test]
fn queues_wait_for_nobody() {
    let queue = |take: &str| {
        format!(
            "more: {take} setp.ge.u32 %p1, %r4, 100; @%p1 bra over;
            red.global.add.u32 [%rd1+4], 1; bra more;
            over:"
        )
    };
    for take in [
        "atom.global.add.u32 %r4, [%rd1], 1;",
        "atom.global.inc.u32 %r4, [%rd1], 4294967295;",
    ] {
        let (mode, data) = modes::<2>(&queue(take), 3, 64);
        assert_eq!((mode, data), (Mode::Loop, [100 + 3 * 64, 100]), "{take}");
    }
}

/// Loops that poll, and are over whatever they see.
#[test]
fn what_is_seen_decides_nothing() {
    let body = "mov.u32 %r8, 0; mov.u32 %r9, 0;
        more: ld.volatile.global.u32 %r4, [%rd1+4]; atom.global.exch.b32 %r5, [%rd1+8], %r8;
        setp.gt.u32 %p1, %r4, 5; @%p1 bra less; add.u32 %r9, %r9, 1; less:
        add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 10; @%p2 bra more;
        red.global.add.u32 [%rd1], %r9;";
    let (mode, data) = modes::<4>(body, 3, 64);
    assert_eq!((mode, data[0]), (Mode::Loop, 3 * 64 * 10));
}

/// Functions that do so need no fibers, where they are not called again and again: what they give
/// back might be waited for.
#[test]
fn retries_in_functions() {
    let source = |compare: &str, calls: &str| {
        harness::module(&format!(
            ".func (.param .u64 old) bump(.param .u64 at)
            {{
                .reg .pred %p<2>;
                .reg .b64 %rd<8>;
                .reg .f64 %d<2>;
                ld.param.u64 %rd1, [at];
                ld.u64 %rd2, [%rd1];
                retry:
                mov.b64 %d1, %rd2;
                add.f64 %d1, %d1, 0d3FF0000000000000;
                mov.b64 %rd3, %d1;
                atom.cas.b64 %rd4, [%rd1], %rd2, %rd3;
                {compare}
                mov.b64 %rd2, %rd4;
                @%p1 bra retry;
                st.param.u64 [old], %rd2;
                ret;
            }}
            .visible .entry k(.param .u64 out)
            {{
                .reg .pred %p<2>;
                .reg .b32 %r<4>;
                .reg .b64 %rd<4>;
                ld.param.u64 %rd1, [out];
                mov.u32 %r1, 0;
                more:
                {{
                    .param .u64 at;
                    .param .u64 old;
                    st.param.u64 [at], %rd1;
                    call (old), bump, (at);
                    ld.param.u64 %rd2, [old];
                }}
                {calls}
                ret;
            }}"
        ))
    };
    let (retry, other) = (
        "setp.ne.s64 %p1, %rd2, %rd4;",
        "xor.b64 %rd5, %rd2, %rd4; setp.ne.s64 %p1, %rd5, 0;",
    );
    let again = "add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 3; @%p1 bra more;";
    for (compare, calls, mode, times) in [
        (retry, "", Mode::Loop, 1),
        (retry, again, Mode::Fibers, 3),
        (other, "", Mode::Fibers, 1),
    ] {
        let module = harness::load(&source(compare, calls));
        assert_eq!(module.kernel("k").unwrap().compile().unwrap().mode, mode);
        let mut data = [0f64];
        let buffers = &mut [buffer(&mut data)];
        harness::run_in(&module, "k", [40, 1, 1], [256, 1, 1], 0, buffers, &[]).unwrap();
        assert_eq!(data, [f64::from(40 * 256 * times)], "{compare} {calls}");
    }
}

/// As many blocks as workers keep at once wait for each other: none is held back by a worker that
/// has no room for it.
#[test]
fn as_many_blocks_as_there_is_room_for() {
    let workers = crate::grid::workers().min(4);
    let blocks = workers * ((64 << 10) / 1000);
    let body = format!(
        "setp.ne.u32 %p1, %r1, 0; @%p1 bra wait;
        atom.global.add.u32 %r3, [%rd1], 1;
        spin: ld.acquire.gpu.global.u32 %r3, [%rd1]; setp.lt.u32 %p2, %r3, {blocks};
        @%p2 bra spin;
        wait: bar.sync 0; red.global.add.u32 [%rd1+4], 1;"
    );
    let words: [u32; 2] = all(&body, [blocks, 1, 1], [1000, 1, 1], false).unwrap();
    assert_eq!(words, [blocks, 1000 * blocks]);
}
