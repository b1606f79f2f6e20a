//! Physical memory of one device, mapped for one or both.

use super::{enable, new_context_of, reads, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::{access, location, physical};
use crate::conformance::structs::Access;

/// Two megabytes, the granularity.
const UNIT: usize = 2 << 20;

/// Memory of a device at an address that no device has access to yet.
unsafe fn mapped(device: i32) -> u64 {
    let (mut handle, mut address) = (0, 0);
    cuMemCreate(&mut handle, UNIT, &physical(device), 0).must();
    cuMemAddressReserve(&mut address, UNIT, 0, 0, 0).must();
    cuMemMap(address, UNIT, 0, handle, 0).must();
    address
}

/// Memory of a device that some devices have access to.
pub unsafe fn mapped_for(device: i32, devices: &[i32]) -> u64 {
    let address = mapped(device);
    let wishes: Vec<Access> = devices.iter().map(|&device| access(device)).collect();
    cuMemSetAccess(address, UNIT, wishes.as_ptr(), wishes.len()).must();
    address
}

/// Asks for access of one device.
unsafe fn set(address: u64, device: i32, flags: u32) -> Answer {
    let wish = Access {
        flags,
        ..access(device)
    };
    cuMemSetAccess(address, UNIT, &wish, 1)
}

/// Writes down what access each device has.
unsafe fn may(line: &mut Line, when: &str, address: u64) {
    for device in 0..2 {
        let mut flags = 77;
        line.gives(
            format!("{when}_{device}"),
            cuMemGetAccess(&mut flags, &location(device), address),
            flags,
        );
    }
}

pub const CASES: &[Case] = &[
    two_devices!("peer/virtual/on_other", |line, zero, one| {
        let (mut handle, mut size, mut found) = (0, 0, physical(0));
        line.gives(
            "granularity",
            cuMemGetAllocationGranularity(&mut size, &physical(1), 0),
            size,
        );
        line.says(cuMemCreate(&mut handle, UNIT, &physical(1), 0));
        line.gives(
            "device",
            cuMemGetAllocationPropertiesFromHandle(&mut found, handle),
            found.location.id,
        );
        let address = mapped(1);
        may(line, "mapped", address);
        line.says_as("set", set(address, 1, 3));
        may(line, "set", address);
        line.says_as("store", one.store(address, 5));
        zero.enter();
        reads(line, "value", address);
        let mut ordinal = -7;
        line.gives(
            "ordinal",
            cuPointerGetAttribute(void(&mut ordinal), 9, address),
            ordinal,
        );
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/virtual/access_of_both", |line, zero, one| {
        let address = mapped(1);
        let both = [access(0), access(1)];
        line.says_as("set", cuMemSetAccess(address, UNIT, both.as_ptr(), 2));
        may(line, "set", address);
        line.says_as("store_zero", zero.store(address, 5));
        reads(line, "value", address);
        line.says_as("store_one", one.store(address, 6));
        reads(line, "value_then", address);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/virtual/access_of_peer_alone", |line, zero, one| {
        let address = mapped(1);
        line.says_as("set", set(address, 0, 3));
        may(line, "set", address);
        line.says_as("store_zero", zero.store(address, 5));
        reads(line, "value", address);
        line.says_as("store_one", one.store(address, 6));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/virtual/kernel_without_access", |line, zero, one| {
        let address = mapped(1);
        set(address, 1, 3).must();
        line.says_as("store_zero", zero.store(address, 5));
        synchronizes(line, [zero, one]);
        one.enter();
        line.says_as("fill", cuMemsetD32_v2(address, 6, 1));
        reads(line, "value", address);
    }),
    two_devices!(
        "peer/virtual/kernel_with_peer_access_only",
        |line, zero, one| {
            let address = mapped(1);
            set(address, 1, 3).must();
            enable(zero, one);
            may(line, "enabled", address);
            line.says_as("store_zero", zero.store(address, 5));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/virtual/access_taken_away", |line, zero, one| {
        let address = mapped(1);
        set(address, 1, 3).must();
        line.says_as("give", set(address, 0, 3));
        line.says_as("store", zero.store(address, 5));
        line.says_as("take", set(address, 0, 0));
        may(line, "taken", address);
        line.says_as("store_after", zero.store(address, 6));
        synchronizes(line, [zero, one]);
        one.enter();
        reads(line, "value", address);
    }),
    two_devices!("peer/virtual/read_only_peer", |line, zero, one| {
        let address = mapped(1);
        set(address, 1, 3).must();
        one.enter();
        fill_words(address, 7, 1);
        zero.enter();
        line.says_as("give", set(address, 0, 1));
        may(line, "given", address);
        zero.enter();
        reads(line, "value", address);
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/virtual/access_wrong", |line, _zero, _one| {
        let address = mapped(1);
        line.says_as("far", set(address, 1000, 3));
        line.says_as("negative", set(address, -1, 3));
        line.says_as("flags_2", set(address, 0, 2));
        line.says_as("flags_9", set(address, 0, 9));
        let twice = [access(0), access(0)];
        line.says_as("twice", cuMemSetAccess(address, UNIT, twice.as_ptr(), 2));
        let none = Access {
            flags: 0,
            ..access(0)
        };
        let mixed = [access(0), none];
        line.says_as("mixed", cuMemSetAccess(address, UNIT, mixed.as_ptr(), 2));
        may(line, "mixed", address);
        let wrong = [access(1), access(1000)];
        line.says_as(
            "one_wrong",
            cuMemSetAccess(address, UNIT, wrong.as_ptr(), 2),
        );
        may(line, "wrong", address);
        let mut flags = 77;
        line.says_as(
            "get_far",
            cuMemGetAccess(&mut flags, &location(1000), address),
        );
        line.says_as(
            "get_negative",
            cuMemGetAccess(&mut flags, &location(-1), address),
        );
    }),
    two_devices!(
        "peer/virtual/copies_by_who_has_no_access",
        |line, zero, one| {
            let address = mapped(1);
            set(address, 1, 3).must();
            zero.enter();
            line.says_as("fill", cuMemsetD32_v2(address, 7, 1));
            reads(line, "value", address);
            line.says_as("dtod", cuMemcpyDtoD_v2(zero.word, address, 4));
            line.says_as(
                "peer",
                cuMemcpyPeer(zero.word, zero.context, address, one.context, 4),
            );
            line.says_as(
                "async",
                cuMemcpyDtoDAsync_v2(address, zero.word, 4, zero.stream),
            );
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!(
        "peer/virtual/copies_with_peer_s_access",
        |line, zero, one| {
            // The owner has no access, the other device has.
            let address = mapped(1);
            set(address, 0, 3).must();
            line.says_as("fill", cuMemsetD32_v2(address, 7, 1));
            reads(line, "value", address);
            one.enter();
            line.says_as("fill_by_owner", cuMemsetD32_v2(address, 8, 1));
            reads(line, "value_by_owner", address);
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/virtual/without_contexts", |line| {
        device();
        let address = mapped(1);
        line.says_as("set", set(address, 0, 3));
        may(line, "set", address);
        let mut active = 77;
        for device in 0..2 {
            cuDevicePrimaryCtxGetState(device, &mut 0, &mut active).must();
            line.value("active", active);
        }
        line.says(cuMemUnmap(address, UNIT));
        line.says(cuMemAddressFree(address, UNIT));
    }),
    two_devices!("peer/virtual/another_context", |line, zero, one| {
        // Access is a device's, whichever of its contexts.
        let address = mapped(1);
        set(address, 0, 3).must();
        new_context_of(0);
        let (store, stream) = (function(c"store"), stream());
        let (mut to, mut value) = (address, 5u32);
        let mut arguments = [void(&mut to), void(&mut value)];
        line.says_as("launch", launch(store, 1, 1, stream, &mut arguments));
        line.says_as("end", cuStreamSynchronize(stream));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/virtual/outlives_reset", |line, zero, one| {
        let address = mapped(1);
        let both = [access(0), access(1)];
        cuMemSetAccess(address, UNIT, both.as_ptr(), 2).must();
        line.says_as("store", zero.store(address, 5));
        line.says_as("reset", cuDevicePrimaryCtxReset_v2(1));
        zero.enter();
        reads(line, "value", address);
        line.says_as("store_after", zero.store(address, 6));
        line.says_as("unmap", cuMemUnmap(address, UNIT));
        line.says_as("end", cuCtxSynchronize());
        line.value("had_stream", one.stream != 0);
    }),
    two_devices!("peer/virtual/attributes", |line, zero, one| {
        const POINTER: u32 = 3;
        const ACCESS_FLAGS: u32 = 16;
        let address = mapped(1);
        for (what, of_zero, of_one) in [("own", 0, 3), ("peer", 3, 0), ("reading", 1, 1)] {
            set(address, 1, of_one).must();
            set(address, 0, of_zero).must();
            for (side, current) in [(zero, "zero"), (one, "one")] {
                side.enter();
                let (mut pointer, mut flags) = (0u64, 77u32);
                line.gives(
                    format!("{what}_{current}_pointer"),
                    cuPointerGetAttribute(void(&mut pointer), POINTER, address),
                    pointer == address,
                );
                line.gives(
                    format!("{what}_{current}_flags"),
                    cuPointerGetAttribute(void(&mut flags), ACCESS_FLAGS, address),
                    flags,
                );
            }
        }
    }),
];
