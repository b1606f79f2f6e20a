//! What a launch prints: gathered while it runs, written when it ends.

use parking_lot::Mutex;

/// Beyond this much, output is written before the launch ends.
const ENOUGH: usize = 1 << 20;

/// The text that the `printf` calls of a launch made, in order.
#[derive(Default)]
pub(crate) struct Output(Mutex<Vec<u8>>);

impl Output {
    /// Adds the text of one call.
    pub fn push(&self, text: &[u8]) {
        let mut held = self.0.lock();
        held.extend_from_slice(text);
        if held.len() > ENOUGH {
            write(&std::mem::take(&mut *held));
        }
    }

    /// Writes what there is.
    pub fn flush(&self) {
        let mut held = self.0.lock();
        if !held.is_empty() {
            write(&std::mem::take(&mut *held));
        }
    }
}

unsafe extern "C" {
    /// C's standard output stream.
    static stdout: *mut libc::FILE;
}

/// Writes to C's standard output stream and flushes it: text that a C program printed before stays before.
fn write(text: &[u8]) {
    // SAFETY: `stdout` is libc's own stream, open unless the program closed it, in which case writing to it fails; the
    // pointer and length are a live slice's.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
        libc::fflush(stdout);
    }
}
