//! `nanosleep`: a thread sleeps about as long as it asked, threads side by side do not add up, and
//! who polls with it lets others write.

use std::time::{Duration, Instant};

use super::*;

const SLEEPERS: &str = ".version 7.8
.target sm_80
.address_size 64

// Sleeps so often for so many nanoseconds, and tells how long that took.
.visible .entry sleeps(.param .u64 sleeps_0, .param .u32 sleeps_1, .param .u32 sleeps_2)
{
    .reg .b64 %d<6>;
    .reg .b32 %r<4>;
    .reg .pred %p<2>;
    ld.param.u64 %d1, [sleeps_0];
    cvta.to.global.u64 %d2, %d1;
    ld.param.u32 %r1, [sleeps_1];
    ld.param.u32 %r2, [sleeps_2];
    mov.u64 %d3, %globaltimer;
again:
    nanosleep.u32 %r2;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra again;
    mov.u64 %d4, %globaltimer;
    sub.u64 %d5, %d4, %d3;
    st.global.u64 [%d2], %d5;
    ret;
}

// Thread 0 polls until the last thread has written, and sleeps in between.
.visible .entry polls(.param .u64 polls_0)
{
    .reg .b64 %d<3>;
    .reg .b32 %r<5>;
    .reg .pred %p<3>;
    ld.param.u64 %d1, [polls_0];
    cvta.to.global.u64 %d2, %d1;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ntid.x;
    sub.u32 %r2, %r2, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra writes;
polling:
    nanosleep.u32 1000000;
    ld.volatile.global.u32 %r3, [%d2];
    setp.eq.u32 %p2, %r3, 0;
    @%p2 bra polling;
    ret;
writes:
    setp.ne.u32 %p2, %r1, %r2;
    @%p2 bra done;
    st.volatile.global.u32 [%d2], 1;
done:
    ret;
}
";

/// Nanoseconds that the last thread of so many took.
unsafe fn sleep(blocks: u32, threads: u32, times: u32, nanoseconds: u32) -> u64 {
    let (function, out) = (function_of(module_of(SLEEPERS), c"sleeps"), memory(8));
    let (mut out, mut times, mut nanoseconds) = (out, times, nanoseconds);
    let arguments = &mut [void(&mut out), void(&mut times), void(&mut nanoseconds)];
    launch(function, blocks, threads, 0, arguments).must();
    let mut took = 0u64;
    cuMemcpyDtoH_v2(void(&mut took), out, 8).must();
    took
}

#[test]
fn a_thread_sleeps_about_as_long_as_it_asked() {
    unsafe {
        context();
        for (times, nanoseconds) in [(200, 5_000), (20, 100_000), (10, 1_000_000)] {
            let took = sleep(1, 1, times, nanoseconds);
            let asked = u64::from(times * nanoseconds);
            assert!(took >= asked / 2, "{asked} asked, {took} taken");
            // PTX lets each sleep take up to twice as long, but the machine may be busy.
            assert!(took <= 1_000_000_000, "{asked} asked, {took} taken");
        }
    }
}

#[test]
fn no_sleep_is_longer_than_a_millisecond() {
    unsafe {
        context();
        let start = Instant::now();
        sleep(1, 1, 5, u32::MAX);
        assert!(start.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn threads_sleep_side_by_side() {
    unsafe {
        context();
        let start = Instant::now();
        sleep(128, 256, 10, 1_000_000);
        // One after the other they would take 327 seconds.
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn who_polls_with_it_lets_others_write() {
    unsafe {
        context();
        for threads in [2, 64, 1024] {
            let mut flag = memory(4);
            fill_words(flag, 0, 1);
            let start = Instant::now();
            let function = function_of(module_of(SLEEPERS), c"polls");
            launch(function, 1, threads, 0, &mut [void(&mut flag)]).must();
            cuCtxSynchronize().must();
            assert!(start.elapsed() < Duration::from_secs(2), "{threads}");
        }
    }
}
