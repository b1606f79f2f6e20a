//! The processor's floating-point control word: how operations round, whether subnormals are zeros,
//! and which exceptions trap.
//!
//! Kernels and everything here expect [`DEFAULT`]. It is the calling thread's own, so a program may
//! have changed it, and a thread that the program starts inherits it. A call of the driver sets the
//! default and puts back what was there; our threads set it where they start, and again after each
//! function of the program's that they call.

#[cfg(target_arch = "x86_64")]
mod word {
    use std::arch::asm;

    /// To nearest even, subnormals kept, every exception masked.
    pub const DEFAULT: u32 = 0x1f80;
    /// All but the flags of exceptions that have been.
    pub const CONTROL: u32 = !0x3f;

    /// MXCSR.
    pub fn get() -> u32 {
        let mut word = 0u32;
        // SAFETY: the instruction is part of x86-64 and writes these four bytes.
        unsafe { asm!("stmxcsr [{}]", in(reg) &mut word, options(nostack, preserves_flags)) };
        word
    }

    /// Sets MXCSR.
    ///
    /// # Safety
    /// The word is one that this thread had before, or [`DEFAULT`].
    pub unsafe fn set(word: u32) {
        // SAFETY: no reserved bit is set, as the caller says, so that the instruction does not
        // fault.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &word, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod word {
    use std::arch::asm;

    /// To nearest even, subnormals kept, every exception masked.
    pub const DEFAULT: u32 = 0;
    /// It has no flags.
    pub const CONTROL: u32 = !0;

    /// FPCR.
    pub fn get() -> u32 {
        let word: u64;
        // SAFETY: it reads a register that every program may read.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nostack, preserves_flags)) };
        word as u32
    }

    /// Sets FPCR.
    ///
    /// # Safety
    /// The word is one that this thread had before, or [`DEFAULT`].
    pub unsafe fn set(word: u32) {
        let word = u64::from(word);
        // SAFETY: every program may write the register, and the caller vouches for the word.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod word {
    pub const DEFAULT: u32 = 0;
    pub const CONTROL: u32 = !0;

    pub fn get() -> u32 {
        DEFAULT
    }

    /// # Safety
    /// None is needed.
    pub unsafe fn set(_: u32) {}
}

use word::{CONTROL, DEFAULT};

/// Puts back the control word that the thread had.
#[must_use = "dropping it puts the program's word back"]
pub(crate) struct Restored {
    /// `None`: it was the default.
    word: Option<u32>,
}

/// Sets the default for this thread, until what this gives is dropped.
#[inline]
pub(crate) fn by_default() -> Restored {
    let word = word::get();
    let changed = word & CONTROL != DEFAULT & CONTROL;
    if changed {
        set_default();
    }
    Restored {
        word: changed.then_some(word),
    }
}

/// Sets the default for this thread, for good.
pub(crate) fn set_default() {
    // SAFETY: it is the default.
    unsafe { word::set(DEFAULT) };
}

/// Sets the default when it is dropped: after a function of the program's, on a thread of ours.
pub(crate) struct DefaultAfter;

impl Drop for DefaultAfter {
    fn drop(&mut self) {
        set_default();
    }
}

impl Drop for Restored {
    #[inline]
    fn drop(&mut self) {
        if let Some(word) = self.word {
            // SAFETY: the thread had this word.
            unsafe { word::set(word) };
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_program_s_word_comes_back() {
        // Toward zero, subnormals flushed.
        let other = 0x1f80 | 0xe040;
        // SAFETY: these bits are part of x86-64 with SSE2.
        unsafe { word::set(other) };
        {
            let _default = by_default();
            assert_eq!(word::get() & CONTROL, DEFAULT);
            {
                let _inner = by_default();
            }
            assert_eq!(word::get() & CONTROL, DEFAULT);
        }
        assert_eq!(word::get(), other);
        drop(DefaultAfter);
        assert_eq!(word::get(), DEFAULT);
    }
}
