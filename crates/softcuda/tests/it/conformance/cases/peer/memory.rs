//! What the driver says of the other device's memory, and who may free it.

use super::{enable, new_context_of, reads, synchronizes};
use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, two_devices};
use crate::conformance::fixture::*;
use crate::conformance::sides::Side;
use crate::conformance::structs::IpcHandle;
use crate::graphs::api::named;

const CONTEXT: u32 = 1;
const SYNC_MEMOPS: u32 = 6;
const ORDINAL: u32 = 9;

/// Writes down the attributes of an address, as facts: which context or pointer rather than its
/// value.
unsafe fn attributes(line: &mut Line, when: &str, [zero, one]: [&Side; 2], address: u64) {
    let contexts = [("zero", zero.context), ("one", one.context)];
    for number in 1..=21u32 {
        // P2P tokens are obsolete, and the size of the driver's own mapping is its business.
        if matches!(number, 5 | 18) {
            continue;
        }
        let mut value = [0x5555_5555_5555_5555u64; 8];
        let answer = cuPointerGetAttribute(value.as_mut_ptr().cast(), number, address);
        let word = value[0];
        let fact = match number {
            CONTEXT => named(word as usize, &contexts).to_string(),
            3 | 4 | 11 | 17 | 19 => named(word as usize, &[("it", address as usize)]).to_string(),
            7 | 20 => (if word == 0 { "zero" } else { "some" }).to_string(),
            12 => word.to_string(),
            6 | 8 | 10 | 13 | 15 | 21 => (word as u8).to_string(),
            2 | 9 | 14 => (word as u32 as i32).to_string(),
            _ => (word & 0xffff_ffff).to_string(),
        };
        line.gives(format!("{when}_{number}"), answer, fact);
    }
}

pub const CASES: &[Case] = &[
    two_devices!("peer/memory/attributes", |line, zero, one| {
        attributes(line, "zero", [zero, one], one.word);
        one.enter();
        attributes(line, "one", [zero, one], one.word);
        cuCtxSetCurrent(0).must();
        attributes(line, "none", [zero, one], one.word);
    }),
    two_devices!("peer/memory/attributes_with_access", |line, zero, one| {
        enable(zero, one);
        attributes(line, "zero", [zero, one], one.word);
        cuCtxDisablePeerAccess(one.context).must();
        attributes(line, "disabled", [zero, one], one.word);
    }),
    two_devices!(
        "peer/memory/attributes_with_access_of_others",
        |line, zero, one| {
            // Access that the other way, or another context of the device, has.
            const ACCESS_FLAGS: u32 = 16;
            enable(one, zero);
            zero.enter();
            let mut pointer = 0u64;
            line.says_as(
                "other_way",
                cuPointerGetAttribute(void(&mut pointer), 3, one.word),
            );
            let made = new_context_of(1);
            zero.enter();
            cuCtxEnablePeerAccess(made, 0).must();
            line.says_as(
                "other_context",
                cuPointerGetAttribute(void(&mut pointer), 3, one.word),
            );
            let mut flags = 77u32;
            line.gives(
                "flags",
                cuPointerGetAttribute(void(&mut flags), ACCESS_FLAGS, one.word),
                flags,
            );
        }
    ),
    two_devices!("peer/memory/attributes_of_interior", |line, zero, one| {
        one.enter();
        let its = memory(1000);
        zero.enter();
        let (mut start, mut size, mut ordinal) = (0u64, 0usize, -7);
        line.gives(
            "start",
            cuPointerGetAttribute(void(&mut start), 11, its + 100),
            start == its,
        );
        line.gives(
            "size",
            cuPointerGetAttribute(void(&mut size), 12, its + 100),
            size,
        );
        line.gives(
            "ordinal",
            cuPointerGetAttribute(void(&mut ordinal), ORDINAL, its + 100),
            ordinal,
        );
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/memory/attributes_together", |line, zero, one| {
        let mut which = [CONTEXT, 2, 3, ORDINAL];
        for (side, what) in [(zero, "zero"), (one, "one")] {
            side.enter();
            let (mut context, mut kind, mut pointer, mut ordinal) = (77usize, 77u32, 77u64, -7);
            let mut data = [
                void(&mut context),
                void(&mut kind),
                void(&mut pointer),
                void(&mut ordinal),
            ];
            let answer = cuPointerGetAttributes(4, which.as_mut_ptr(), data.as_mut_ptr(), one.word);
            line.says_as(what, answer);
            line.value(
                "context",
                named(context, &[("zero", zero.context), ("one", one.context)]),
            );
            line.value("kind", kind);
            line.value(
                "pointer",
                named(pointer as usize, &[("it", one.word as usize)]),
            );
            line.value("ordinal", ordinal);
        }
    }),
    two_devices!("peer/memory/synchronous_operations", |line, zero, one| {
        let (on, mut found) = (1u32, 77u8);
        line.says_as(
            "set",
            cuPointerSetAttribute((&raw const on).cast(), SYNC_MEMOPS, one.word),
        );
        for (side, what) in [(zero, "zero"), (one, "one")] {
            side.enter();
            line.gives(
                what,
                cuPointerGetAttribute(void(&mut found), SYNC_MEMOPS, one.word),
                found,
            );
        }
        cuCtxSetCurrent(0).must();
        line.says_as(
            "set_none_current",
            cuPointerSetAttribute((&raw const on).cast(), SYNC_MEMOPS, one.word),
        );
    }),
    two_devices!("peer/memory/range", |line, zero, one| {
        one.enter();
        let its = memory(1000);
        zero.enter();
        let (mut base, mut size) = (0, 0);
        for when in ["without", "with"] {
            line.gives(
                when,
                cuMemGetAddressRange_v2(&mut base, &mut size, its + 10),
                base == its,
            );
            line.value("size", size);
            cuCtxEnablePeerAccess(one.context, 0).ignore();
        }
        cuCtxSetCurrent(0).must();
        line.says_as(
            "none_current",
            cuMemGetAddressRange_v2(&mut base, &mut size, its),
        );
    }),
    two_devices!("peer/memory/freed_by_other", |line, zero, one| {
        line.says_as("free", cuMemFree_v2(one.word));
        line.says_as("twice", cuMemFree_v2(one.word));
        one.enter();
        line.says_as("by_owner", cuMemFree_v2(one.word));
        line.says_as("fill", cuMemsetD32_v2(one.word, 1, 1));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/memory/freed_without_context", |line, zero, one| {
        cuCtxSetCurrent(0).must();
        line.says_as("free", cuMemFree_v2(one.word));
        one.enter();
        line.says_as("by_owner", cuMemFree_v2(one.word));
        synchronizes(line, [zero, one]);
    }),
    two_devices!(
        "peer/memory/freed_while_its_stream_works",
        |line, zero, one| {
            // A free waits for the work of the memory's own context.
            let gate = Gate::close(one.stream);
            cuMemsetD32Async(one.word, 7, 1, one.stream).must();
            let word = one.word;
            let patience = std::time::Duration::from_millis(300);
            let (answer, waited) = while_held(gate, patience, || cuMemFree_v2(word));
            line.says_as("free", answer);
            line.value("waited", waited);
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!(
        "peer/memory/freed_while_own_stream_works",
        |line, zero, one| {
            // And for that of the current context, or not.
            let gate = Gate::close(zero.stream);
            let word = one.word;
            let patience = std::time::Duration::from_millis(300);
            let (answer, waited) = while_held(gate, patience, || cuMemFree_v2(word));
            line.says_as("free", answer);
            line.value("waited", waited);
            synchronizes(line, [zero, one]);
        }
    ),
    two_devices!("peer/memory/ipc_handles", |line, zero, one| {
        let mut handle = IpcHandle([0; 64]);
        line.says_as("get_its", cuIpcGetMemHandle(&mut handle, one.word));
        let mut address = 0;
        line.says_as("open_here", cuIpcOpenMemHandle_v2(&mut address, handle, 1));
        one.enter();
        line.says_as("open_there", cuIpcOpenMemHandle_v2(&mut address, handle, 1));
        synchronizes(line, [zero, one]);
    }),
    two_devices!("peer/memory/addresses_are_distinct", |line, zero, one| {
        line.value("words", zero.word != one.word);
        reads(line, "zero", zero.word);
        reads(line, "one", one.word);
        one.enter();
        reads(line, "zero_then", zero.word);
        reads(line, "one_then", one.word);
    }),
    two_devices!("peer/memory/pointers_without_context", |line, zero, one| {
        const POINTER: u32 = 3;
        let (host, shared) = (pinned(4) as u64, managed(4));
        cuCtxSetCurrent(0).must();
        for (what, address) in [
            ("own", zero.word),
            ("its", one.word),
            ("pinned", host),
            ("managed", shared),
        ] {
            let mut pointer = 0u64;
            line.gives(
                what,
                cuPointerGetAttribute(void(&mut pointer), POINTER, address),
                pointer == address,
            );
        }
    }),
];
