//! When kernels are compiled: once each, and several at once.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tracing::span;
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

use crate::jit::harness;

/// Sees what the compiler logs on a thread.
#[derive(Clone, Default)]
struct Log {
    /// How many kernels have been compiled, on all threads that have the log.
    compiled: Arc<(Mutex<u32>, Condvar)>,
    /// A thread waits in the compiler until as many have been.
    wait_for: u32,
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "softcuda::jit::compile"
    }

    fn event(&self, _: &Event<'_>) {
        let (count, changed) = &*self.compiled;
        let mut count = count.lock().expect("no thread panics with it");
        *count += 1;
        changed.notify_all();
        let limit = Duration::from_secs(60);
        let others = |count: &mut u32| *count < self.wait_for;
        let (_count, waited) = changed
            .wait_timeout_while(count, limit, others)
            .expect("no thread panics with it");
        assert!(!waited.timed_out(), "other threads do not get as far");
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

const KERNELS: u32 = 4;

/// A module of kernels.
fn module() -> Arc<crate::jit::module::Module> {
    let kernels: String = (0..KERNELS)
        .map(|n| format!(".visible .entry k{n}(.param .u64 out) {{ ret; }}\n"))
        .collect();
    harness::load(&harness::module(&kernels))
}

/// All threads are inside of the compiler at the same time, each with another kernel of one module.
#[test]
fn threads_compile_different_kernels_at_once() {
    let module = module();
    let log = Log {
        wait_for: KERNELS,
        ..Log::default()
    };
    std::thread::scope(|scope| {
        for kernel in module.kernels() {
            let log = log.clone();
            scope.spawn(move || with_default(log, || kernel.compile().expect("it compiles")));
        }
    });
}

#[test]
fn a_kernel_is_compiled_once() {
    let module = module();
    let log = Log::default();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (log, kernel) = (log.clone(), &module.kernels()[0]);
            scope.spawn(move || with_default(log, || kernel.compile().expect("it compiles")));
        }
    });
    assert_eq!(*log.compiled.0.lock().expect("no thread panics with it"), 1);
}

/// Code behind a jump that leads back into two loops: a case of the fuzzer's, whose compilation did
/// not end.
#[test]
fn code_that_cannot_be_reached_compiles() {
    let source = "
        .version 9.0
        .target sm_90a
        .address_size 64
        .visible .entry k(.param .align 128 .b8 map[128], .param .u64 out)
        {
            .reg .b32 %r<18>; .reg .b64 %rd<9>; .reg .b64 state; .reg .pred p;
            .shared .align 128 .b8 tile[4096];
            .shared .align 8 .u64 barrier;
            mov.b64 %rd3, map;
            ld.param.u64 %rd4, [out];
            cvta.to.global.u64 %rd6, %rd4;
            mov.u32 %r1, barrier;
            mov.u32 %r2, 1;
            mbarrier.init.shared::cta.b64 [%r1], %r2;
            fence.proxy.async.shared::cta;
            cvta.param.u64 %rd2, %rd3;
            mov.u32 %r3, tile;
            mov.u32 %r11, 0;
            mov.u32 %r12, 8;
            cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
                [%r3], [%rd2, {%r11, %r12}], [%r1];
            mov.u32 %r8, 4096;
            mbarrier.arrive.expect_tx.shared::cta.b64 state, [%r1], %r8;
        WAIT:
            mbarrier.try_wait.parity.shared::cta.b64 p, [%r1], %r11;
        DONE:
            bra WAIT;
            @p bra DONE;
            mov.u32 %r14, %tid.x;
            shl.b32 %r15, %r14, 2;
            add.s32 %r16, %r3, %r15;
            ld.shared.u32 %r17, [%r16];
            mul.wide.u32 %rd7, %r14, 4;
            add.s64 %rd8, %rd6, %rd7;
            st.global.u32 [%rd8], %r17;
            cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd2, {%r11, %r12}], [%r3];
            cp.async.bulk.commit_group;
            cp.async.bulk.wait_group.read 0;
            wgmma.fence.sync.aligned;
            wgmma.commit_group.sync.aligned;
            wgmma.wait_group.sync.aligned 0;
            ret;
        }";
    let module = harness::load(source);
    let kernel = module.kernel("k").expect("it is there");
    kernel.compile().expect("it compiles");
}
