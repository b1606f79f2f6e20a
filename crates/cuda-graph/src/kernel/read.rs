//! The arguments of a launch that other code made, from the driver's parameters.
//!
//! A launch has its arguments in one of two ways: `kernelParams`, a pointer to each, or `extra`, a
//! list of keys and values that names one buffer, in which each lies at its parameter's offset.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::slice;

use smallvec::SmallVec;

use super::{Arguments, Kernel, Parameter};
use crate::{Error, Result};

/// The keys of `extra` (`CU_LAUNCH_PARAM_*`): what ends the list, what is followed by the buffer,
/// and what is followed by a pointer to its size.
const END: usize = 0;
const BUFFER: usize = 1;
const BUFFER_SIZE: usize = 2;

impl Arguments {
    /// The arguments of a launch of `kernel`.
    ///
    /// # Errors
    ///
    /// When an argument is in neither place: an operation always has all of them.
    ///
    /// # Safety
    ///
    /// `pointers` and `extra` are null or what the driver takes for a launch of this kernel.
    pub(crate) unsafe fn read(
        kernel: &Kernel,
        pointers: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Result<Arguments> {
        let missing = |why| Error::UnknownArguments {
            kernel: kernel.name().into(),
            why,
        };
        let mut arguments = Arguments::default();
        // SAFETY: by the caller.
        let buffer = unsafe { buffer(extra) };
        for (index, &Parameter { offset, size }) in kernel.parameters().iter().enumerate() {
            let (from, there) = match buffer {
                // SAFETY: the driver takes a pointer for each parameter.
                _ if !pointers.is_null() => unsafe { ((*pointers.add(index)).cast_const(), size) },
                Some((start, len)) if offset < len => {
                    (start.wrapping_byte_add(offset), size.min(len - offset))
                }
                Some(_) => return Err(missing("the buffer in `extra` ends before the last")),
                None => return Err(missing("the driver gives no `kernelParams` and no `extra`")),
            };
            if from.is_null() {
                return Err(missing("the driver gives a null pointer for one of them"));
            }
            // SAFETY: here are as many bytes, copied by the driver before, to which they are
            // numbers.
            let bytes = unsafe { slice::from_raw_parts(from.cast::<MaybeUninit<u8>>(), there) };
            let mut whole = SmallVec::<[MaybeUninit<u8>; 64]>::from_slice(bytes);
            // A buffer may end within the last: NCCL's do, whose kernels do not read the rest.
            whole.resize(size, MaybeUninit::new(0));
            // SAFETY: as above.
            unsafe { arguments.bytes(&whole, true) };
        }
        Ok(arguments)
    }
}

/// The buffer that `extra` names, and its size in bytes.
///
/// # Safety
///
/// `extra` is null or a list that the driver takes.
unsafe fn buffer(extra: *mut *mut c_void) -> Option<(*const c_void, usize)> {
    if extra.is_null() {
        return None;
    }
    let (mut buffer, mut size) = (None, None);
    for index in (0..).step_by(2) {
        // SAFETY: the list goes on until its end, and each key before it is followed by a value.
        let (key, value) = unsafe {
            match *extra.add(index) as usize {
                END => break,
                key => (key, *extra.add(index + 1)),
            }
        };
        match key {
            BUFFER => buffer = Some(value.cast_const()),
            // SAFETY: the value of this key is a pointer to the size.
            BUFFER_SIZE => size = Some(unsafe { value.cast::<usize>().read() }),
            _ => return None,
        }
    }
    buffer.zip(size)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// `mixed(a: u8, b: u32, c: u64)`.
    fn mixed() -> Kernel {
        let ptx = "
            .version 7.0
            .target sm_70
            .address_size 64
            .visible .entry mixed(.param .u8 a, .param .u32 b, .param .u64 c) { ret; }";
        let context = crate::device(0).unwrap().context().clone();
        let module = context
            .load_module(cudarc::nvrtc::Ptx::from_src(ptx))
            .unwrap();
        Kernel::new(&module.load_function("mixed").unwrap()).unwrap()
    }

    /// What is read, or why not.
    fn read(pointers: *mut *mut c_void, extra: *mut *mut c_void) -> String {
        // SAFETY: the tests below give what a driver takes, or too little of it.
        match unsafe { Arguments::read(&mixed(), pointers, extra) } {
            Ok(arguments) => format!("{arguments:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn arguments_come_from_the_buffer() {
        let mut buffer = [0x5_0000_0007u64, 0x909];
        let mut size = 16usize;
        let mut extra: [*mut c_void; 5] = [
            BUFFER_SIZE as _,
            (&raw mut size).cast(),
            BUFFER as _,
            buffer.as_mut_ptr().cast(),
            END as _,
        ];
        let list = extra.as_mut_ptr();
        assert_eq!(read(ptr::null_mut(), list), "[0x7, 0x5, 0x909]");
        // SAFETY: the size is alive; it is written the way that it is read.
        unsafe { (&raw mut size).write(9) };
        assert_eq!(read(ptr::null_mut(), list), "[0x7, 0x5, 0x9]");
        // SAFETY: as above.
        unsafe { (&raw mut size).write(8) };
        assert!(read(ptr::null_mut(), list).contains("ends before the last"));
    }

    #[test]
    fn arguments_that_are_nowhere_are_an_error() {
        let nowhere = read(ptr::null_mut(), ptr::null_mut());
        assert!(nowhere.contains("`mixed`") && nowhere.contains("no `kernelParams`"));
        let mut empty = [END as *mut c_void];
        assert_eq!(read(ptr::null_mut(), empty.as_mut_ptr()), nowhere);
        let mut pointers = [
            (&raw const *b"\x01\0\0\0").cast_mut().cast(),
            ptr::null_mut(),
        ];
        let null = read(pointers.as_mut_ptr(), ptr::null_mut());
        assert!(null.contains("null pointer"));
    }
}
