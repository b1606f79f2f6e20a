//! Host memory that one context allocated or registered, in the hands of the other.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::{new_context_of, reads, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::Side;

const PORTABLE: u32 = 1;
const MAPPED: u32 = 2;
const PAGE: usize = 4096;

/// Two pages of the process itself.
fn pages() -> *mut c_void {
    let layout =
        std::alloc::Layout::from_size_align(2 * PAGE, PAGE).expect("a page is a power of two");
    // SAFETY: the layout is not empty.
    unsafe { std::alloc::alloc_zeroed(layout).cast() }
}

unsafe fn allocated(flags: u32) -> *mut c_void {
    let mut host = null_mut();
    cuMemHostAlloc(&mut host, PAGE, flags).must();
    host
}

/// Uses host memory of the first device's context from the other one's.
unsafe fn used(line: &mut Line, [zero, one]: [&Side; 2], host: *mut c_void) {
    one.enter();
    let (mut address, mut flags) = (0, 77);
    let answer = cuMemHostGetDevicePointer_v2(&mut address, host, 0);
    line.gives("pointer", answer, address == host as u64);
    line.gives("flags", cuMemHostGetFlags(&mut flags, host), flags);
    let (mut kind, mut context, mut ordinal) = (77u32, 77usize, -7);
    let at = host as u64;
    line.gives("kind", cuPointerGetAttribute(void(&mut kind), 2, at), kind);
    let answer = cuPointerGetAttribute(void(&mut context), 1, at);
    let known = [("zero", zero.context), ("one", one.context)];
    line.gives(
        "context",
        answer,
        crate::graphs::api::named(context, &known),
    );
    line.gives(
        "ordinal",
        cuPointerGetAttribute(void(&mut ordinal), 9, at),
        ordinal,
    );
    let word = host.cast::<u32>();
    word.write_volatile(51);
    line.says_as("copy", cuMemcpyHtoDAsync_v2(one.word, host, 4, one.stream));
    line.says_as("copy_end", cuStreamSynchronize(one.stream));
    reads(line, "copied", one.word);
    line.says_as("store", one.store(host as u64, 52));
    line.value("stored", word.read_volatile());
    synchronizes(line, [zero, one]);
}

pub const CASES: &[Case] = &[
    two_devices!("peer/host/allocated_plain", |line, zero, one| {
        used(line, [zero, one], allocated(0));
    }),
    two_devices!("peer/host/allocated_portable", |line, zero, one| {
        used(line, [zero, one], allocated(PORTABLE));
    }),
    two_devices!("peer/host/allocated_mapped", |line, zero, one| {
        used(line, [zero, one], allocated(MAPPED));
    }),
    two_devices!("peer/host/registered_plain", |line, zero, one| {
        let host = pages();
        cuMemHostRegister_v2(host, 2 * PAGE, 0).must();
        used(line, [zero, one], host);
    }),
    two_devices!("peer/host/registered_portable", |line, zero, one| {
        let host = pages();
        cuMemHostRegister_v2(host, 2 * PAGE, PORTABLE).must();
        used(line, [zero, one], host);
    }),
    two_devices!("peer/host/registered_twice", |line, zero, one| {
        let host = pages();
        cuMemHostRegister_v2(host, 2 * PAGE, 0).must();
        one.enter();
        line.says_as("again", cuMemHostRegister_v2(host, 2 * PAGE, 0));
        line.says_as(
            "again_portable",
            cuMemHostRegister_v2(host, 2 * PAGE, PORTABLE),
        );
        line.says_as("unregister", cuMemHostUnregister(host));
        line.says_as("unregister_twice", cuMemHostUnregister(host));
        zero.enter();
        line.says_as("unregister_zero", cuMemHostUnregister(host));
    }),
    two_devices!("peer/host/freed_by_other", |line, zero, one| {
        let (plain, portable) = (allocated(0), allocated(PORTABLE));
        one.enter();
        line.says_as("plain", cuMemFreeHost(plain));
        line.says_as("portable", cuMemFreeHost(portable));
        zero.enter();
        line.says_as("plain_again", cuMemFreeHost(plain));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/host/owner_reset", |line, _zero, one| {
        let (plain, portable) = (allocated(0), allocated(PORTABLE));
        line.says_as("reset", cuDevicePrimaryCtxReset_v2(0));
        one.enter();
        let mut flags = 77;
        line.says_as("flags", cuMemHostGetFlags(&mut flags, plain));
        line.says_as("flags_portable", cuMemHostGetFlags(&mut flags, portable));
        line.says_as("free", cuMemFreeHost(plain));
        line.says_as("free_portable", cuMemFreeHost(portable));
        line.says_as("end_one", cuCtxSynchronize());
    }),
    two_devices!("peer/host/flags_by_who_asks", |line, zero, one| {
        let (plain, portable) = (allocated(0), allocated(PORTABLE));
        let made = new_context_of(0);
        for (what, context) in [
            ("own", zero.context),
            ("beside", made),
            ("other", one.context),
        ] {
            cuCtxSetCurrent(context).must();
            for (kind, host) in [("plain", plain), ("portable", portable)] {
                let mut flags = 77;
                line.gives(
                    format!("{what}_{kind}"),
                    cuMemHostGetFlags(&mut flags, host),
                    flags,
                );
            }
        }
    }),
];
