//! Copies between devices, which need no peer access.

#![allow(non_snake_case, reason = "the functions are the driver's")]

use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use super::{new_context_of, reads, synchronizes};
use crate::capture::api::{cuMemcpy3DPeerAsync, cuMemcpyPeerAsync};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::Side;
use crate::conformance::structs::{ArrayDescriptor, Copy2d, Copy3d};
use crate::driver;
use crate::graphs::api::line_copy;

driver_functions! {
    cuMemcpy3DPeer(copy: *const Copy3d);
}

/// `CUDA_MEMCPY3D_PEER`: as the other, with contexts in place of the reserved words.
unsafe fn peer_copy(to: &Side, from: &Side, bytes: usize) -> Copy3d {
    let mut copy = line_copy(to.word, from.word, bytes);
    (copy.reserved_0, copy.reserved_1) = (from.context, to.context);
    copy
}

/// Asks for a copy with parameters that were changed.
unsafe fn changed(line: &mut Line, what: &str, mut copy: Copy3d, change: impl Fn(&mut Copy3d)) {
    change(&mut copy);
    line.says_as(what, cuMemcpy3DPeer(&copy));
}

/// Copies in each stream, with each context current.
unsafe fn in_streams(line: &mut Line, sides: [&Side; 2], copy: impl Fn(Handle) -> Answer) {
    for (side, current) in sides.into_iter().zip(["zero", "one"]) {
        side.enter();
        for (stream, what) in [
            (sides[0].stream, "zero_stream"),
            (sides[1].stream, "one_stream"),
            (0, "null_stream"),
        ] {
            line.says_as(format!("{current}_{what}"), copy(stream));
        }
    }
    synchronizes(line, sides);
}

pub const CASES: &[Case] = &[
    two_devices!("peer/copy/peer", |line, zero, one| {
        line.says_as(
            "to_one",
            cuMemcpyPeer(one.word, one.context, zero.word, zero.context, 4),
        );
        reads(line, "value", one.word);
        one.enter();
        cuMemsetD32_v2(one.word, 21, 1).must();
        line.says_as(
            "to_zero",
            cuMemcpyPeer(zero.word, zero.context, one.word, one.context, 4),
        );
        reads(line, "value_back", zero.word);
        let other = memory(4);
        line.says_as(
            "within",
            cuMemcpyPeer(other, one.context, one.word, one.context, 4),
        );
        line.says_as(
            "nothing",
            cuMemcpyPeer(zero.word, zero.context, one.word, one.context, 0),
        );
        line.says_as(
            "nothing_null",
            cuMemcpyPeer(0, zero.context, 0, one.context, 0),
        );
    }),
    two_devices!("peer/copy/peer/contexts", |line, zero, one| {
        let made = new_context_of(1);
        zero.enter();
        for (what, to, from) in [
            ("swapped", zero.context, one.context),
            ("both_zero", zero.context, zero.context),
            ("both_one", one.context, one.context),
            ("another_of_the_device", made, zero.context),
            ("null_to", 0, zero.context),
            ("null_from", one.context, 0),
            ("null_both", 0, 0),
        ] {
            line.says_as(what, cuMemcpyPeer(one.word, to, zero.word, from, 4));
        }
        cuCtxSetCurrent(0).must();
        line.says_as(
            "none_current",
            cuMemcpyPeer(one.word, one.context, zero.word, zero.context, 4),
        );
        cuCtxSetCurrent(made).must();
        line.says_as(
            "third_current",
            cuMemcpyPeer(one.word, one.context, zero.word, zero.context, 4),
        );
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/copy/peer/addresses", |line, zero, one| {
        let host = pinned(64) as u64;
        let (a, b) = (zero.context, one.context);
        line.says_as("null_to", cuMemcpyPeer(0, b, zero.word, a, 4));
        line.says_as("null_from", cuMemcpyPeer(one.word, b, 0, a, 4));
        line.says_as("wild_to", cuMemcpyPeer(WILD, b, zero.word, a, 4));
        line.says_as("wild_from", cuMemcpyPeer(one.word, b, WILD, a, 4));
        line.says_as("pinned_from", cuMemcpyPeer(one.word, b, host, a, 4));
        line.says_as("pinned_to", cuMemcpyPeer(host, b, zero.word, a, 4));
        line.says_as("managed", cuMemcpyPeer(managed(64), b, zero.word, a, 4));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/copy/peer/over_the_end", |line, zero, one| {
        const SIZE: usize = 4 << 20;
        let own = memory(2 * SIZE);
        one.enter();
        let its = memory(SIZE);
        let (a, b) = (zero.context, one.context);
        line.says_as("all", cuMemcpyPeer(its, b, own, a, SIZE));
        line.says_as("to_over", cuMemcpyPeer(its, b, own, a, SIZE + 1));
        line.says_as("from_over", cuMemcpyPeer(own, a, its, b, SIZE + 1));
        line.says_as("dtod_to_over", cuMemcpyDtoD_v2(its + 8, own, SIZE));
        line.says_as("dtod_from_over", cuMemcpyDtoD_v2(own, its + 8, SIZE));
        line.says_as("huge", cuMemcpyPeer(its, b, own, a, usize::MAX));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/copy/peer/destroyed_context", |line, zero, one| {
        let made = new_context_of(1);
        cuCtxDestroy_v2(made).must();
        zero.enter();
        line.says_as(
            "to",
            cuMemcpyPeer(one.word, made, zero.word, zero.context, 4),
        );
        line.says_as(
            "from",
            cuMemcpyPeer(zero.word, zero.context, one.word, made, 4),
        );
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/copy/peer/from_destroyed_context",
        |line, zero, one| {
            let made = new_context_of(1);
            cuCtxDestroy_v2(made).must();
            zero.enter();
            line.says_as(
                "from",
                cuMemcpyPeer(zero.word, zero.context, one.word, made, 4),
            );
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/copy/peer_async/streams", |line, zero, one| {
        in_streams(line, [zero, one], |stream| {
            let (a, b) = (zero.context, one.context);
            cuMemcpyPeerAsync(one.word, b, zero.word, a, 4, stream)
        });
        reads(line, "value", one.word);
    }),
    two_devices!("peer/copy/peer_async/third_stream", |line, zero, one| {
        let made = new_context_of(0);
        let third = stream();
        let (a, b) = (zero.context, one.context);
        for (current, what) in [(a, "zero"), (b, "one"), (made, "third"), (0, "none")] {
            cuCtxSetCurrent(current).must();
            line.says_as(what, cuMemcpyPeerAsync(one.word, b, zero.word, a, 4, third));
        }
        line.says_as("end", cuStreamSynchronize(third));
        zero.enter();
        reads(line, "value", one.word);
    }),
    two_devices!("peer/copy/peer_async/wrong", |line, zero, one| {
        let (a, b, stream) = (zero.context, one.context, zero.stream);
        let asks = |to, to_context, from, from_context, size| {
            cuMemcpyPeerAsync(to, to_context, from, from_context, size, stream)
        };
        line.says_as("swapped", asks(one.word, a, zero.word, b, 4));
        line.says_as("null_to_context", asks(one.word, 0, zero.word, a, 4));
        line.says_as("null_from_context", asks(one.word, b, zero.word, 0, 4));
        line.says_as("null_to", asks(0, b, zero.word, a, 4));
        line.says_as("wild_from", asks(one.word, b, WILD, a, 4));
        line.says_as("nothing", asks(one.word, b, zero.word, a, 0));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/copy/dtod", |line, zero, one| {
        line.says_as("zero_current", cuMemcpyDtoD_v2(one.word, zero.word, 4));
        reads(line, "value", one.word);
        cuMemsetD32_v2(zero.word, 31, 1).must();
        one.enter();
        line.says_as("one_current", cuMemcpyDtoD_v2(one.word, zero.word, 4));
        reads(line, "value_then", one.word);
        line.says_as("unified", cuMemcpy(zero.word, one.word, 4));
        cuCtxSetCurrent(0).must();
        line.says_as("none_current", cuMemcpyDtoD_v2(one.word, zero.word, 4));
        line.says_as("unified_none_current", cuMemcpy(one.word, zero.word, 4));
    }),
    two_devices!("peer/copy/dtod_async", |line, zero, one| {
        in_streams(line, [zero, one], |stream| {
            cuMemcpyDtoDAsync_v2(one.word, zero.word, 4, stream)
        });
        in_streams(line, [zero, one], |stream| {
            cuMemcpyAsync(zero.word, one.word, 4, stream)
        });
        reads(line, "value", zero.word);
    }),
    two_devices!("peer/copy/within_the_other", |line, zero, one| {
        // Both ends are the other device's, and so is not the current context.
        one.enter();
        let more = memory(64);
        zero.enter();
        line.says_as("sync", cuMemcpyDtoD_v2(more, one.word, 4));
        line.says_as(
            "own_stream",
            cuMemcpyDtoDAsync_v2(more + 8, one.word, 4, zero.stream),
        );
        line.says_as(
            "its_stream",
            cuMemcpyDtoDAsync_v2(more + 16, one.word, 4, one.stream),
        );
        synchronizes(line, [zero, one]);
        for at in [0, 8, 16] {
            reads(line, &format!("at_{at}"), more + at);
        }
    }),
    two_devices!("peer/copy/host_to_other", |line, zero, one| {
        let mut value = 41u32;
        let pinned = pinned(4).cast::<u32>();
        pinned.write(42);
        line.says_as("pageable", cuMemcpyHtoD_v2(one.word, void(&mut value), 4));
        reads(line, "value", one.word);
        line.says_as("pinned", cuMemcpyHtoD_v2(one.word, pinned.cast(), 4));
        reads(line, "value_pinned", one.word);
        in_streams(line, [zero, one], |stream| {
            cuMemcpyHtoDAsync_v2(one.word, pinned.cast(), 4, stream)
        });
    }),
    two_devices!("peer/copy/other_to_host", |line, zero, one| {
        let mut value = 0u32;
        line.gives(
            "pageable",
            cuMemcpyDtoH_v2(void(&mut value), one.word, 4),
            value,
        );
        let pinned = pinned(4).cast::<u32>();
        line.gives(
            "pinned",
            cuMemcpyDtoH_v2(pinned.cast(), one.word, 4),
            pinned.read_volatile(),
        );
        pinned.write(0);
        in_streams(line, [zero, one], |stream| {
            cuMemcpyDtoHAsync_v2(pinned.cast(), one.word, 4, stream)
        });
        line.value("value", pinned.read_volatile());
    }),
    two_devices!("peer/copy/2d", |line, zero, one| {
        let copy = Copy2d {
            src_x: 0,
            src_y: 0,
            src_kind: 2,
            src_host: null(),
            src_device: zero.word,
            src_array: 0,
            src_pitch: 0,
            dst_x: 0,
            dst_y: 0,
            dst_kind: 2,
            dst_host: null_mut(),
            dst_device: one.word,
            dst_array: 0,
            dst_pitch: 0,
            width: 4,
            height: 1,
        };
        line.says(cuMemcpy2D_v2(&copy));
        line.says(cuMemcpy2DUnaligned_v2(&copy));
        in_streams(line, [zero, one], |stream| {
            cuMemcpy2DAsync_v2(&copy, stream)
        });
        reads(line, "value", one.word);
    }),
    two_devices!("peer/copy/3d", |line, zero, one| {
        let copy = line_copy(one.word, zero.word, 4);
        line.says(cuMemcpy3D_v2(&copy));
        reads(line, "value", one.word);
        in_streams(line, [zero, one], |stream| {
            cuMemcpy3DAsync_v2(&copy, stream)
        });
    }),
    two_devices!("peer/copy/3d_peer", |line, zero, one| {
        let copy = peer_copy(one, zero, 4);
        line.says_as("right", cuMemcpy3DPeer(&copy));
        reads(line, "value", one.word);
        line.says_as("null", cuMemcpy3DPeer(null()));
    }),
    two_devices!("peer/copy/3d_peer/wrong", |line, zero, one| {
        let copy = peer_copy(one, zero, 4);
        changed(line, "swapped", copy, |copy| {
            (copy.reserved_0, copy.reserved_1) = (one.context, zero.context);
        });
        changed(line, "null_from_context", copy, |copy| copy.reserved_0 = 0);
        changed(line, "null_to_context", copy, |copy| copy.reserved_1 = 0);
        changed(line, "nothing", copy, |copy| copy.width = 0);
        changed(line, "kind_0", copy, |copy| copy.src_kind = 0);
        changed(line, "kind_9", copy, |copy| copy.dst_kind = 9);
        changed(line, "unified", copy, |copy| {
            (copy.src_kind, copy.dst_kind) = (4, 4);
        });
        changed(line, "null_address", copy, |copy| copy.src_device = 0);
        let host = pinned(64);
        changed(line, "from_host", copy, |copy| {
            (copy.src_kind, copy.src_host) = (1, host.cast_const());
        });
        cuCtxSetCurrent(0).must();
        line.says_as("none_current", cuMemcpy3DPeer(&copy));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/copy/3d_peer_async", |line, zero, one| {
        let copy = peer_copy(one, zero, 4);
        in_streams(line, [zero, one], |stream| {
            cuMemcpy3DPeerAsync(&copy, stream)
        });
        reads(line, "value", one.word);
        line.says_as("null", cuMemcpy3DPeerAsync(null(), zero.stream));
    }),
    two_devices!("peer/copy/arrays", |line, zero, one| {
        let descriptor = ArrayDescriptor {
            width: 16,
            height: 0,
            format: 3,
            channels: 1,
        };
        let (mut own, mut its) = (0, 0);
        cuArrayCreate_v2(&mut own, &descriptor).must();
        one.enter();
        cuArrayCreate_v2(&mut its, &descriptor).must();
        zero.enter();
        let mut copy = line_copy(0, zero.word, 4);
        (copy.dst_kind, copy.dst_array) = (3, its);
        line.says_as("into_its", cuMemcpy3D_v2(&copy));
        let mut copy = line_copy(0, 0, 4);
        (copy.src_kind, copy.src_array) = (3, its);
        (copy.dst_kind, copy.dst_array) = (3, own);
        line.says_as("between", cuMemcpy3D_v2(&copy));
        (copy.reserved_0, copy.reserved_1) = (one.context, zero.context);
        line.says_as("between_peers", cuMemcpy3DPeer(&copy));
        let mut found = descriptor;
        line.gives(
            "descriptor",
            cuArrayGetDescriptor_v2(&mut found, its),
            found.width,
        );
        line.says_as("destroy_its", cuArrayDestroy(its));
        synchronizes(line, [zero, one]);
    }),
];
