//! Hooks for this crate's own tests.

/// Runs `body` while call number `nth` (from 0) that this crate makes of the driver on this thread fails with OUT_OF_MEMORY, without being
/// made. Says whether there was such a call.
pub fn with_failing_call<R>(nth: u32, body: impl FnOnce() -> R) -> (R, bool) {
    crate::driver::with_failing_call(nth, body)
}

/// Runs `body` as if the driver were of `version` (12030 is 12.3), as far as this thread asks for it.
pub fn with_driver_version<R>(version: i32, body: impl FnOnce() -> R) -> R {
    crate::driver::with_version(version, body)
}

/// Runs `body` as if devices freed memory in no stream's order, as far as this thread asks for it.
pub fn without_ordered_frees<R>(body: impl FnOnce() -> R) -> R {
    crate::driver::memory::without_order(body)
}

/// Looks a driver function up, as its first call does.
pub fn find_function(name: &'static str) -> crate::Result<()> {
    crate::driver::find(&std::sync::atomic::AtomicBool::new(false), name)
}

/// Waits until what executables let go of while a launch used it is dropped.
pub fn settle() {
    crate::retain::settle()
}
