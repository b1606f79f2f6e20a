//! Memory pools of two devices: whose they are, and whom they give access.

use std::ptr::null;

use super::synchronizes;
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::{access, location};
use crate::conformance::structs::{Access, Location, PoolProperties};

/// A new pool of a device.
pub unsafe fn pool_of(device: i32) -> Handle {
    let properties = PoolProperties {
        kind: 1,
        handle_types: 0,
        location: location(device),
        win32_attributes: 0,
        max_size: 0,
        usage: 0,
        reserved: [0; 54],
    };
    let mut pool = 0;
    cuMemPoolCreate(&mut pool, &properties).must();
    pool
}

pub unsafe fn default_pool(device: i32) -> Handle {
    let mut pool = 0;
    cuDeviceGetDefaultMemPool(&mut pool, device).must();
    pool
}

/// Asks for access of a device.
pub unsafe fn set(pool: Handle, device: i32, flags: u32) -> Answer {
    let wish = Access {
        flags,
        ..access(device)
    };
    cuMemPoolSetAccess(pool, &wish, 1)
}

/// Writes down what access each device has.
unsafe fn may(line: &mut Line, when: &str, pool: Handle) {
    for device in 0..2 {
        let mut flags = 77;
        line.gives(
            format!("{when}_{device}"),
            cuMemPoolGetAccess(&mut flags, pool, &mut location(device)),
            flags,
        );
    }
}

pub const CASES: &[Case] = &[
    two_devices!("peer/pool/defaults", |line, _zero, _one| {
        let pools = [default_pool(0), default_pool(1)];
        line.value("distinct", pools[0] != pools[1]);
        for device in 0..2 {
            let mut pool = 0;
            line.gives(
                "current",
                cuDeviceGetMemPool(&mut pool, device),
                pool == pools[device as usize],
            );
        }
        may(line, "of_zero", pools[0]);
        may(line, "of_one", pools[1]);
    }),
    two_devices!("peer/pool/without_contexts", |line| {
        device();
        may(line, "default", default_pool(1));
        let pool = pool_of(1);
        may(line, "made", pool);
        line.says_as("set", set(pool, 0, 3));
        may(line, "then", pool);
        let mut active = 77;
        for device in 0..2 {
            cuDevicePrimaryCtxGetState(device, &mut 0, &mut active).must();
            line.value("active", active);
        }
        line.says(cuMemPoolDestroy(pool));
    }),
    two_devices!("peer/pool/set_for_device", |line, _zero, _one| {
        let (of_zero, of_one) = (pool_of(0), pool_of(1));
        line.says_as("its_own", cuDeviceSetMemPool(1, of_one));
        line.says_as("the_other_s", cuDeviceSetMemPool(1, of_zero));
        line.says_as(
            "the_other_s_default",
            cuDeviceSetMemPool(1, default_pool(0)),
        );
        let mut pool = 0;
        line.gives("still", cuDeviceGetMemPool(&mut pool, 1), pool == of_one);
    }),
    two_devices!("peer/pool/access", |line, _zero, _one| {
        for (what, pool) in [("made", pool_of(0)), ("default", default_pool(0))] {
            may(line, what, pool);
            line.says_as("set", set(pool, 1, 3));
            may(line, "set", pool);
            line.says_as("set_twice", set(pool, 1, 3));
            line.says_as("revoke", set(pool, 1, 0));
            may(line, "revoked", pool);
            line.says_as("revoke_twice", set(pool, 1, 0));
        }
    }),
    two_devices!("peer/pool/access/wrong", |line, _zero, _one| {
        let pool = pool_of(0);
        line.says_as("read_only", set(pool, 1, 1));
        line.says_as("flags_2", set(pool, 1, 2));
        line.says_as("flags_9", set(pool, 1, 9));
        line.says_as("far", set(pool, 1000, 3));
        line.says_as("negative", set(pool, -1, 3));
        line.says_as("own_none", set(pool, 0, 0));
        line.says_as("nothing", cuMemPoolSetAccess(pool, null(), 0));
        line.says_as("null", cuMemPoolSetAccess(pool, null(), 1));
        line.says_as("null_pool", set(0, 1, 3));
        let host = Access {
            location: Location { kind: 2, id: 0 },
            flags: 3,
        };
        line.says_as("host", cuMemPoolSetAccess(pool, &host, 1));
        may(line, "then", pool);
    }),
    two_devices!("peer/pool/access/several", |line, _zero, _one| {
        let pool = pool_of(0);
        let none = Access {
            flags: 0,
            ..access(1)
        };
        let both = [access(0), access(1)];
        line.says_as("both", cuMemPoolSetAccess(pool, both.as_ptr(), 2));
        may(line, "both", pool);
        let twice = [access(1), access(1)];
        line.says_as("twice", cuMemPoolSetAccess(pool, twice.as_ptr(), 2));
        let mixed = [access(1), none];
        line.says_as(
            "set_and_revoke",
            cuMemPoolSetAccess(pool, mixed.as_ptr(), 2),
        );
        may(line, "mixed", pool);
        let wrong = [access(1), access(1000)];
        set(pool, 1, 0).ignore();
        line.says_as("one_wrong", cuMemPoolSetAccess(pool, wrong.as_ptr(), 2));
        may(line, "wrong", pool);
    }),
    two_devices!(
        "peer/pool/peer_access_is_none_to_pools",
        |line, zero, one| {
            let pool = pool_of(0);
            one.enter();
            cuCtxEnablePeerAccess(zero.context, 0).must();
            may(line, "made", pool);
            may(line, "default", default_pool(0));
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/pool/destroyed_from_other", |line, zero, one| {
        let pool = pool_of(1);
        let mut address = 0;
        line.says_as(
            "alloc",
            cuMemAllocFromPoolAsync(&mut address, 64, pool, one.stream),
        );
        line.says_as("destroy", cuMemPoolDestroy(pool));
        line.says_as("fill", cuMemsetD32Async(address, 7, 1, one.stream));
        line.says_as("free", cuMemFreeAsync(address, one.stream));
        synchronizes(line, [zero, one]);
    }),
];
