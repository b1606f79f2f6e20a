//! Memory of one process in another.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::peer::{Channel, Peer, Role};
use crate::conformance::api::*;
use crate::conformance::fixture::*;
use crate::conformance::structs::{
    Access, AllocationProperties, IpcHandle, Location, PoolProperties,
};

pub const ROLES: &[(&str, Role)] = &[
    ("memory/writer", write_through_handles),
    ("memory/physical", map_what_was_made_elsewhere),
    ("memory/pool", use_the_pool_of_another),
    ("memory/reader", read_and_say),
];

const DEVICE: Location = Location { kind: 1, id: 0 };
const READ_WRITE: Access = Access {
    location: DEVICE,
    flags: 3,
};
const FILE_DESCRIPTOR: u32 = 1;

unsafe fn write_through_handles(parent: &mut Channel) {
    context();
    let handles: [IpcHandle; 3] = std::array::from_fn(|_| IpcHandle(parent.array()));
    for (number, handle) in (1..).zip(handles) {
        let mut address = 0;
        cuIpcOpenMemHandle_v2(&mut address, handle, 1).must();
        assert_eq!(word(address), 10 * number);
        cuMemsetD32_v2(address, 100 * number, 1).must();
        cuCtxSynchronize().must();
        cuIpcCloseMemHandle(address).must();
    }
}

/// Handles of several allocations that lie side by side, made while kernels and fills write them:
/// nothing that is written is lost, and the other process sees it and writes it.
#[test]
fn allocations_are_seen_and_written_by_another_process() {
    unsafe {
        context();
        let stream = stream();
        let memory: [u64; 3] = std::array::from_fn(|_| memory(1000));
        for (number, &address) in (1..).zip(&memory) {
            cuMemsetD32Async(address, 7, 250, stream).must();
            cuMemsetD32Async(address, 10 * number, 1, stream).must();
        }
        let handles = memory.map(|address| {
            let mut handle = IpcHandle([0; 64]);
            cuIpcGetMemHandle(&mut handle, address).must();
            handle
        });
        cuStreamSynchronize(stream).must();
        let mut peer = Peer::start("memory/writer");
        handles
            .iter()
            .for_each(|handle| peer.channel.put(&handle.0));
        assert!(peer.ends_well());
        for (number, &address) in (1..).zip(&memory) {
            assert_eq!(word(address), 100 * number);
            assert_eq!(word(address + 996), 7);
            cuMemFree_v2(address).must();
        }
    }
}

/// Many threads write one allocation each while it gets its handle.
#[test]
fn no_write_is_lost_when_memory_is_shared() {
    unsafe {
        let own = context();
        std::thread::scope(|scope| {
            for seed in 0..4u32 {
                scope.spawn(move || {
                    cuCtxSetCurrent(own).must();
                    let stream = stream();
                    for round in 0..20u32 {
                        let address = memory(64 << 10);
                        let last = address + (64 << 10) - 4;
                        for turn in 0..4 {
                            cuMemsetD32Async(address, seed + round + turn, 16 << 10, stream).must();
                        }
                        cuIpcGetMemHandle(&mut IpcHandle([0; 64]), address).must();
                        cuStreamSynchronize(stream).must();
                        assert_eq!(word(address), seed + round + 3);
                        assert_eq!(word(last), seed + round + 3);
                        cuMemFree_v2(address).must();
                    }
                });
            }
        });
    }
}

unsafe fn read_and_say(parent: &mut Channel) {
    context();
    let mut address = 0;
    cuIpcOpenMemHandle_v2(&mut address, IpcHandle(parent.array()), 1).must();
    parent.meet();
    // Freed by its owner, and here still.
    parent.meet();
    parent.put(&word(address).to_le_bytes());
    cuIpcCloseMemHandle(address).must();
}

#[test]
fn who_opened_memory_keeps_it() {
    unsafe {
        context();
        let address = memory(4 << 20);
        fill_words(address, 77, 1 << 20);
        let mut handle = IpcHandle([0; 64]);
        cuIpcGetMemHandle(&mut handle, address).must();
        let mut peer = Peer::start("memory/reader");
        peer.channel.put(&handle.0);
        peer.channel.meet();
        cuMemFree_v2(address).must();
        let other = memory(4 << 20);
        fill_words(other, 1, 1 << 20);
        peer.channel.meet();
        assert_eq!(u32::from_le_bytes(peer.channel.array()), 77);
        assert!(peer.ends_well());
    }
}

unsafe fn mapped(handle: u64, size: usize) -> u64 {
    let mut address = 0;
    cuMemAddressReserve(&mut address, size, 0, 0, 0).must();
    cuMemMap(address, size, 0, handle, 0).must();
    cuMemSetAccess(address, size, &READ_WRITE, 1).must();
    address
}

unsafe fn map_what_was_made_elsewhere(parent: &mut Channel) {
    context();
    let fd = parent.descriptor();
    let mut handle = 0;
    cuMemImportFromShareableHandle(&mut handle, fd.as_raw_fd() as usize, FILE_DESCRIPTOR).must();
    drop(fd);
    let address = mapped(handle, 4 << 20);
    assert_eq!((word(address), word(address + (4 << 20) - 4)), (1, 2));
    cuMemsetD32_v2(address, 3, 1).must();
    cuCtxSynchronize().must();
    cuMemUnmap(address, 4 << 20).must();
    cuMemRelease(handle).must();
}

#[test]
fn physical_memory_is_mapped_by_another_process() {
    unsafe {
        context();
        let properties = AllocationProperties {
            kind: 1,
            handle_types: FILE_DESCRIPTOR,
            location: DEVICE,
            win32_metadata: 0,
            flags: [0; 8],
        };
        let (mut handle, mut fd) = (0, -1i32);
        cuMemCreate(&mut handle, 4 << 20, &properties, 0).must();
        cuMemExportToShareableHandle(void(&mut fd), handle, FILE_DESCRIPTOR, 0).must();
        let fd = OwnedFd::from_raw_fd(fd);
        let address = mapped(handle, 4 << 20);
        cuMemRelease(handle).must();
        fill_words(address, 1, 1);
        fill_words(address + (4 << 20) - 4, 2, 1);
        let mut peer = Peer::start("memory/physical");
        peer.channel.put_descriptor(fd.as_raw_fd());
        assert!(peer.ends_well());
        assert_eq!(word(address), 3);
        cuMemUnmap(address, 4 << 20).must();
        cuMemAddressFree(address, 4 << 20).must();
    }
}

unsafe fn use_the_pool_of_another(parent: &mut Channel) {
    context();
    let fd = parent.descriptor();
    let data = [parent.array::<64>(), parent.array()];
    let stream = stream();
    let mut pool = 0;
    cuMemPoolImportFromShareableHandle(&mut pool, fd.as_raw_fd() as usize, FILE_DESCRIPTOR, 0)
        .must();
    drop(fd);
    for (number, data) in (1..).zip(&data) {
        let mut address = 0;
        cuMemPoolImportPointer(&mut address, pool, data).must();
        assert_eq!(word(address), number);
        cuMemsetD32Async(address, 10 * number, 1, stream).must();
        cuStreamSynchronize(stream).must();
        cuMemFreeAsync(address, stream).must();
    }
    cuStreamSynchronize(stream).must();
    cuMemPoolDestroy(pool).must();
}

#[test]
fn pools_are_used_by_another_process() {
    unsafe {
        context();
        let properties = PoolProperties {
            kind: 1,
            handle_types: FILE_DESCRIPTOR,
            location: DEVICE,
            win32_attributes: 0,
            max_size: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let (mut pool, mut fd) = (0, -1i32);
        cuMemPoolCreate(&mut pool, &properties).must();
        cuMemPoolExportToShareableHandle(void(&mut fd), pool, FILE_DESCRIPTOR, 0).must();
        let fd = OwnedFd::from_raw_fd(fd);
        let stream = stream();
        let mut peer = Peer::start("memory/pool");
        peer.channel.put_descriptor(fd.as_raw_fd());
        let memory = [1, 2].map(|number| {
            let (mut address, mut data) = (0, [0; 64]);
            cuMemAllocFromPoolAsync(&mut address, 5000, pool, stream).must();
            cuMemsetD32Async(address, number, 1250, stream).must();
            cuStreamSynchronize(stream).must();
            cuMemPoolExportPointer(&mut data, address).must();
            peer.channel.put(&data);
            address
        });
        assert!(peer.ends_well());
        for (number, address) in (1..).zip(memory) {
            assert_eq!((word(address), word(address + 4)), (10 * number, number));
            cuMemFreeAsync(address, stream).must();
        }
        cuStreamSynchronize(stream).must();
        let mut used = 1u64;
        cuMemPoolGetAttribute(pool, 7, void(&mut used)).must();
        assert_eq!(used, 0);
        cuMemPoolDestroy(pool).must();
    }
}

/// Freed memory of an exportable pool is another allocation's, and its bytes do not come back.
#[test]
fn an_exportable_pool_gives_memory_out_again() {
    unsafe {
        context();
        let properties = PoolProperties {
            kind: 1,
            handle_types: FILE_DESCRIPTOR,
            location: DEVICE,
            win32_attributes: 0,
            max_size: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let mut pool = 0;
        cuMemPoolCreate(&mut pool, &properties).must();
        // What a stream still frees lets go of addresses that another one takes meanwhile.
        let work = |first: u32| {
            context();
            let stream = stream();
            for round in 0..200usize {
                let numbers = [first, first + 1];
                let both = numbers.map(|number| {
                    let mut address = 0;
                    let size = 4096 * (1 + round % 7);
                    cuMemAllocFromPoolAsync(&mut address, size, pool, stream).must();
                    cuMemsetD32Async(address, number, 1024, stream).must();
                    address
                });
                cuStreamSynchronize(stream).must();
                assert_eq!(both.map(|address| word(address)), numbers);
                for address in both {
                    cuMemFreeAsync(address, stream).must();
                }
            }
            cuStreamSynchronize(stream).must();
            cuStreamDestroy_v2(stream).must();
        };
        std::thread::scope(|scope| {
            for first in [1, 3, 5] {
                scope.spawn(move || work(first));
            }
        });
        cuMemPoolDestroy(pool).must();
    }
}
