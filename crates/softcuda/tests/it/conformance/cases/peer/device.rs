//! The devices themselves: which can reach which, and what each is known by.

use std::ffi::CStr;
use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, two_devices};
use crate::conformance::fixture::*;

const FAR: i32 = 1000;

pub const CASES: &[Case] = &[
    two_devices!("peer/device/can_access", |line| {
        let (first, mut can) = (device(), -7);
        for (what, own, peer) in [
            ("zero_one", first, 1),
            ("one_zero", 1, first),
            ("zero_zero", first, first),
            ("one_one", 1, 1),
            ("one_far", 1, FAR),
            ("far_one", FAR, 1),
            ("far_far", FAR, FAR),
            ("one_negative", 1, -1),
            ("negative_one", -1, 1),
        ] {
            line.gives(what, cuDeviceCanAccessPeer(&mut can, own, peer), can);
        }
        line.says_as("null", cuDeviceCanAccessPeer(null_mut(), 0, 1));
        line.says_as("null_far", cuDeviceCanAccessPeer(null_mut(), 0, FAR));
    }),
    two_devices!("peer/device/p2p_attribute", |line| {
        device();
        let mut value = -7;
        // A rank says how the machine is wired.
        line.says_as("rank", cuDeviceGetP2PAttribute(&mut value, 1, 0, 1));
        for (what, attribute) in [("access", 2), ("atomics", 3), ("arrays", 4)] {
            line.gives(
                what,
                cuDeviceGetP2PAttribute(&mut value, attribute, 0, 1),
                value,
            );
            line.gives(
                format!("{what}_back"),
                cuDeviceGetP2PAttribute(&mut value, attribute, 1, 0),
                value,
            );
        }
    }),
    two_devices!("peer/device/p2p_attribute/wrong", |line| {
        device();
        let mut value = -7;
        for (what, attribute, source, target) in [
            ("self_zero", 2, 0, 0),
            ("self_one", 2, 1, 1),
            ("far_target", 2, 0, FAR),
            ("far_source", 2, FAR, 0),
            ("negative", 2, -1, 0),
            ("attribute_0", 0, 0, 1),
            ("attribute_99", 99, 0, 1),
            ("attribute_99_self", 99, 1, 1),
        ] {
            line.says_as(
                what,
                cuDeviceGetP2PAttribute(&mut value, attribute, source, target),
            );
        }
        line.says_as("null", cuDeviceGetP2PAttribute(null_mut(), 2, 0, 1));
        line.value("untouched", value);
    }),
    two_devices!("peer/device/not_initialized", |line| {
        let mut value = -7;
        line.says(cuDeviceCanAccessPeer(&mut value, 0, 1));
        line.says(cuDeviceGetP2PAttribute(&mut value, 2, 0, 1));
        line.says(cuCtxEnablePeerAccess(0, 0));
        line.says(cuMemcpyPeer(0, 0, 0, 0, 0));
    }),
    two_devices!("peer/device/identity", |line| {
        device();
        let mut uuids = [[0; 16]; 2];
        let mut names = [[0i8; 128]; 2];
        for number in 0..2 {
            let (mut device, mut found, mut place) = (-7, -7, [0i8; 32]);
            line.gives("get", cuDeviceGet(&mut device, number as i32), device);
            cuDeviceGetUuid_v2(&mut uuids[number], device).must();
            cuDeviceGetName(names[number].as_mut_ptr(), 128, device).must();
            cuDeviceGetPCIBusId(place.as_mut_ptr(), 32, device).must();
            line.gives(
                "by_place",
                cuDeviceGetByPCIBusId(&mut found, place.as_ptr()),
                found,
            );
        }
        line.value("distinct", uuids[0] != uuids[1]);
        let [zero, one] = names.each_ref().map(|name| CStr::from_ptr(name.as_ptr()));
        line.value("same_name", zero == one);
    }),
];
