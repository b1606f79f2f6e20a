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

/// Code behind a jump that leads back into two loops.
#[test]
fn code_that_cannot_be_reached_compiles() {
    let source = harness::module(
        ".visible .entry k(.param .u64 p) {
            .reg .pred %p; .reg .b32 %r;
            mov.u32 %r, %tid.x; setp.eq.u32 %p, %r, 0;
            again: @%p bra done; bar.sync 0;
            back: bra again; @%p bra back; bra again;
            done: ret;
        }",
    );
    let module = harness::load(&source);
    module
        .kernel("k")
        .expect("it is there")
        .compile()
        .expect("it compiles");
}
