//! `__assertfail`: what C's `assert` calls.

use std::io::Write;

use super::{Caller, param};
use crate::grid::context::{BlockContext, Status, ThreadContext};
use crate::grid::launch::FaultKind;
use crate::grid::running::fault;
use crate::jit::runtime::runtime;

runtime! {
    /// `__assertfail(message, file, line, function, size of a character)`: says what failed, and
    /// ends the launch.
    ASSERTFAIL = fn assertfail(
        thread: *mut ThreadContext, block: *mut BlockContext, _returns: *mut u8, params: *const u8,
    ) -> u32 {
        let caller = Caller { thread, block };
        match fail(&caller, params) {
            Ok(detail) => fault(thread, block, FaultKind::Assert, None, detail),
            Err(status) => status,
        }
    }
}

/// Writes the message to standard error, and gives the assertion.
fn fail(caller: &Caller, params: *const u8) -> Result<String, Status> {
    let text = |offset| {
        let text = caller.string(param(params, offset))?;
        Ok::<_, Status>(String::from_utf8_lossy(&text).into_owned())
    };
    let (message, file, function) = (text(0)?, text(8)?, text(24)?);
    let line: u32 = param(params, 16);
    let [bx, by, bz] = caller.owner().ctaid();
    let [tx, ty, tz] = caller.tid();
    let told = format!(
        "{file}:{line}: {function}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `{message}` failed.\n"
    );
    // A closed standard error is no reason to end otherwise.
    let _ = std::io::stderr().write_all(told.as_bytes());
    Ok(format!("{file}:{line}: assertion `{message}` failed"))
}
