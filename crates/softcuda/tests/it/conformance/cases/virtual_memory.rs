//! Addresses and physical memory apart: reserve, create, map, set access.

use std::ptr::{null, null_mut};

use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;
use crate::conformance::structs::{Access, AllocationProperties, Location};

const ON_DEVICE: AllocationProperties = AllocationProperties {
    kind: 1,
    handle_types: 0,
    location: Location { kind: 1, id: 0 },
    win32_metadata: 0,
    flags: [0; 8],
};

const READ_WRITE: Access = Access {
    location: Location { kind: 1, id: 0 },
    flags: 3,
};

/// Two megabytes, the granularity.
const UNIT: usize = 2 << 20;

unsafe fn reserved(bytes: usize) -> u64 {
    let mut address = 0;
    cuMemAddressReserve(&mut address, bytes, 0, 0, 0).must();
    address
}

unsafe fn created(bytes: usize) -> u64 {
    let mut handle = 0;
    cuMemCreate(&mut handle, bytes, &ON_DEVICE, 0).must();
    handle
}

pub const CASES: &[Case] = &[
    case!("virtual/granularity", |line| {
        context();
        let mut size = 0;
        line.gives(
            "minimum",
            cuMemGetAllocationGranularity(&mut size, &ON_DEVICE, 0),
            size,
        );
        line.gives(
            "recommended",
            cuMemGetAllocationGranularity(&mut size, &ON_DEVICE, 1),
            size,
        );
        line.says_as(
            "unknown",
            cuMemGetAllocationGranularity(&mut size, &ON_DEVICE, 9),
        );
        line.says_as(
            "null_out",
            cuMemGetAllocationGranularity(null_mut(), &ON_DEVICE, 0),
        );
        line.says_as(
            "null_in",
            cuMemGetAllocationGranularity(&mut size, null(), 0),
        );
        let wrong = AllocationProperties {
            location: Location { kind: 1, id: 1000 },
            ..ON_DEVICE
        };
        line.says_as(
            "wrong_device",
            cuMemGetAllocationGranularity(&mut size, &wrong, 0),
        );
        let wrong = AllocationProperties {
            kind: 9,
            ..ON_DEVICE
        };
        line.says_as(
            "wrong_kind",
            cuMemGetAllocationGranularity(&mut size, &wrong, 0),
        );
    }),
    case!("virtual/life", |line| {
        context();
        let (mut address, mut handle, mut flags) = (0, 0, 77);
        line.says(cuMemAddressReserve(&mut address, 2 * UNIT, 0, 0, 0));
        line.value("aligned", address.is_multiple_of(UNIT as u64));
        line.says(cuMemCreate(&mut handle, UNIT, &ON_DEVICE, 0));
        line.says(cuMemMap(address, UNIT, 0, handle, 0));
        line.says_as("fill_without_access", cuMemsetD8_v2(address, 1, 4));
        line.says(cuMemSetAccess(address, UNIT, &READ_WRITE, 1));
        line.gives(
            "access",
            cuMemGetAccess(&mut flags, &READ_WRITE.location, address),
            flags,
        );
        line.says(cuMemsetD8_v2(address, 1, 4));
        line.value("value", word(address));
        let (mut base, mut size) = (0, 0);
        line.gives(
            "range",
            cuMemGetAddressRange_v2(&mut base, &mut size, address + 8),
            base == address,
        );
        line.value("range_size", size == UNIT);
        line.says_as("free_mapped", cuMemFree_v2(address));
        let mut again = 0;
        line.gives(
            "retain",
            cuMemRetainAllocationHandle(&mut again, address as *mut _),
            again == handle,
        );
        line.says_as("release", cuMemRelease(handle));
        line.says_as("release_retained", cuMemRelease(handle));
        line.says_as("still_there", cuMemsetD8_v2(address, 2, 4));
        line.says_as("free_before_unmap", cuMemAddressFree(address, 2 * UNIT));
        line.says(cuMemUnmap(address, UNIT));
        line.says_as("unmap_twice", cuMemUnmap(address, UNIT));
        line.says_as("fill_unmapped", cuMemsetD8_v2(address, 1, 4));
        line.says_as("free_part", cuMemAddressFree(address, UNIT));
        line.says(cuMemAddressFree(address, 2 * UNIT));
        line.says_as("free_twice", cuMemAddressFree(address, 2 * UNIT));
    }),
    case!("virtual/reserve/wrong", |line| {
        context();
        let mut address = 0;
        line.says_as("zero", cuMemAddressReserve(&mut address, 0, 0, 0, 0));
        line.says_as("odd", cuMemAddressReserve(&mut address, 1000, 0, 0, 0));
        line.says_as("flags", cuMemAddressReserve(&mut address, UNIT, 0, 0, 1));
        line.says_as(
            "alignment_odd",
            cuMemAddressReserve(&mut address, UNIT, 3, 0, 0),
        );
        line.says_as(
            "alignment_small",
            cuMemAddressReserve(&mut address, UNIT, 4096, 0, 0),
        );
        line.says_as(
            "alignment_large",
            cuMemAddressReserve(&mut address, UNIT, 64 << 20, 0, 0),
        );
        line.value("aligned_large", address.is_multiple_of(64 << 20));
        line.says_as(
            "too_much",
            cuMemAddressReserve(&mut address, 1 << 60, 0, 0, 0),
        );
        line.says_as("null_out", cuMemAddressReserve(null_mut(), UNIT, 0, 0, 0));
    }),
    case!("virtual/create/wrong", |line| {
        context();
        let mut handle = 0;
        line.says_as("zero", cuMemCreate(&mut handle, 0, &ON_DEVICE, 0));
        line.says_as("odd", cuMemCreate(&mut handle, 1000, &ON_DEVICE, 0));
        line.says_as("too_much", cuMemCreate(&mut handle, 1 << 44, &ON_DEVICE, 0));
        line.says_as("flags", cuMemCreate(&mut handle, UNIT, &ON_DEVICE, 1));
        line.says_as("null_out", cuMemCreate(null_mut(), UNIT, &ON_DEVICE, 0));
        line.says_as("null_in", cuMemCreate(&mut handle, UNIT, null(), 0));
        let wrong = AllocationProperties {
            location: Location { kind: 9, id: 0 },
            ..ON_DEVICE
        };
        line.says_as("location", cuMemCreate(&mut handle, UNIT, &wrong, 0));
        let wrong = AllocationProperties {
            location: Location { kind: 1, id: 1000 },
            ..ON_DEVICE
        };
        line.says_as("device", cuMemCreate(&mut handle, UNIT, &wrong, 0));
        let mut properties = AllocationProperties {
            kind: 0,
            ..ON_DEVICE
        };
        let answer = cuMemGetAllocationPropertiesFromHandle(&mut properties, created(UNIT));
        line.gives(
            "properties",
            answer,
            format!("{} {}", properties.kind, properties.location.kind),
        );
    }),
    case!("virtual/map/wrong", |line| {
        context();
        let (address, handle) = (reserved(4 * UNIT), created(UNIT));
        line.says_as("unreserved", cuMemMap(WILD, UNIT, 0, handle, 0));
        line.says_as("odd_address", cuMemMap(address + 4096, UNIT, 0, handle, 0));
        line.says_as("size_over", cuMemMap(address, 2 * UNIT, 0, handle, 0));
        line.says_as("size_odd", cuMemMap(address, 4096, 0, handle, 0));
        line.says_as("size_zero", cuMemMap(address, 0, 0, handle, 0));
        line.says_as("offset", cuMemMap(address, UNIT, UNIT, handle, 0));
        line.says_as("flags", cuMemMap(address, UNIT, 0, handle, 1));
        line.says_as("right", cuMemMap(address, UNIT, 0, handle, 0));
        line.says_as("twice_here", cuMemMap(address, UNIT, 0, handle, 0));
        line.says_as(
            "also_there",
            cuMemMap(address + UNIT as u64, UNIT, 0, handle, 0),
        );
        line.says_as(
            "access_unmapped",
            cuMemSetAccess(address + 2 * UNIT as u64, UNIT, &READ_WRITE, 1),
        );
        line.says_as(
            "access_none_given",
            cuMemSetAccess(address, UNIT, null(), 1),
        );
        line.says_as("access_zero", cuMemSetAccess(address, UNIT, &READ_WRITE, 0));
        let wrong = Access {
            flags: 2,
            ..READ_WRITE
        };
        line.says_as(
            "access_write_only",
            cuMemSetAccess(address, UNIT, &wrong, 1),
        );
        line.says_as("unmap_part", cuMemUnmap(address, 4096));
        line.says_as(
            "unmap_never_mapped",
            cuMemUnmap(address + 3 * UNIT as u64, UNIT),
        );
    }),
    alone!("virtual/handle/wrong", |line| {
        context();
        line.says_as("release_zero", cuMemRelease(0));
        let (handle, mut other) = (created(UNIT), 0);
        line.says_as(
            "retain_plain",
            cuMemRetainAllocationHandle(&mut other, memory(64) as *mut _),
        );
        line.says_as("release", cuMemRelease(handle));
        line.says_as("release_twice", cuMemRelease(handle));
    }),
    alone!("virtual/alias", |line| {
        context();
        let (address, handle) = (reserved(2 * UNIT), created(UNIT));
        let other = address + UNIT as u64;
        cuMemMap(address, UNIT, 0, handle, 0).must();
        cuMemMap(other, UNIT, 0, handle, 0).must();
        cuMemSetAccess(address, 2 * UNIT, &READ_WRITE, 1).must();
        cuMemsetD32_v2(address, 17, 1).must();
        line.value("seen_through_other", word(other));
        line.says_as("unmap_both", cuMemUnmap(address, 2 * UNIT));
    }),
];
