use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;

#[test]
fn an_allocation_is_found_in_all_of_it_and_nowhere_else() {
    for size in [
        1,
        511,
        512,
        513,
        65_535,
        65_536,
        65_537,
        1 << 20,
        (1 << 20) + 1,
    ] {
        let allocation = alloc(Device::FIRST, size, 1, Kind::Pinned).unwrap();
        assert_eq!(allocation.base % ALIGNMENT, 0);
        for offset in [0, size / 3, size / 2, size - 1] {
            assert_eq!(
                find(allocation.base + offset),
                Some(allocation),
                "{size} at {offset}"
            );
        }
        for outside in [allocation.base - 1, allocation.end()] {
            assert_ne!(
                find(outside).map(|other| other.id),
                Some(allocation.id),
                "{size}"
            );
        }
        assert_eq!(free(allocation.base), Some(allocation));
        assert_eq!(free(allocation.base), None);
        assert_ne!(
            find(allocation.base).map(|other| other.id),
            Some(allocation.id)
        );
    }
}

#[test]
fn only_the_base_frees() {
    let allocation = alloc(Device::FIRST, 4096, 1, Kind::Pinned).unwrap();
    assert_eq!(free(allocation.base + 512), None);
    assert_eq!(free(0), None);
    assert_eq!(free(u64::MAX), None);
    assert_eq!(free(allocation.base), Some(allocation));
}

#[test]
fn addresses_after_an_end_are_nobodys() {
    let all: Vec<_> = (0..64)
        .map(|_| alloc(Device::FIRST, 1024, 1, Kind::Pinned).unwrap())
        .collect();
    for allocation in &all {
        assert_eq!(find(allocation.end()), None);
    }
    for allocation in all {
        free(allocation.base);
    }
}

#[test]
fn memory_of_no_bytes_has_an_address_of_its_own() {
    let empty = alloc(Device::FIRST, 0, 1, Kind::Pinned).unwrap();
    let other = alloc(Device::FIRST, 0, 1, Kind::Pinned).unwrap();
    assert_ne!(empty.base, other.base);
    assert_eq!(find(empty.base), None);
    assert!(free(empty.base).is_some() && free(other.base).is_some());
}

#[test]
fn more_than_there_is_is_refused() {
    for size in [capacity() + 1, u64::MAX, u64::MAX - 4096, 1 << 62] {
        assert_eq!(
            alloc(Device::FIRST, size, 1, Kind::Device),
            Err(OutOfMemory)
        );
    }
    assert_eq!(
        alloc(Device::FIRST, u64::MAX, 1, Kind::Pinned),
        Err(OutOfMemory)
    );
    let much = alloc(Device::FIRST, capacity() / 4, 1, Kind::Device).unwrap();
    free(much.base);
}

#[test]
fn freed_pages_stay_mapped() {
    let allocation = alloc(Device::FIRST, 1 << 20, 1, Kind::Device).unwrap();
    // SAFETY: the range is a live allocation, and stays mapped after that.
    unsafe {
        access::fill(allocation.base, 0xa5, 1, allocation.size);
        free(allocation.base);
        let mut byte = [1];
        access::read(allocation.base + 4096, &mut byte);
        access::fill(allocation.base + 4096, 7, 1, 1);
    }
}

#[test]
fn registered_ranges_do_not_overlap() {
    let memory = vec![0u8; 16384];
    let base = memory.as_ptr() as u64;
    let registered = register(Device::FIRST, base + 4096, 4096, true).unwrap();
    assert_eq!(registered.kind, Kind::Registered);
    for (start, size) in [(0, 4097), (4096, 1), (8191, 1), (0, 16384), (5000, 16)] {
        assert_eq!(
            register(Device::FIRST, base + start, size, true),
            Err(Overlap),
            "{start}, {size}"
        );
    }
    let (below, above) = (
        register(Device::FIRST, base, 4096, true).unwrap(),
        register(Device::FIRST, base + 8192, 1, true).unwrap(),
    );
    assert_eq!(find(base + 4095), Some(below));
    assert_eq!(find(base + 8191), Some(registered));
    assert_eq!(find(base + 8192), Some(above));
    assert_eq!(find(base + 8193), None);
    assert_eq!(unregister(base + 1), None);
    for range in [below, registered, above] {
        assert_eq!(unregister(range.base), Some(range));
    }
    assert_eq!(find(base), None);
    let inside = alloc(Device::FIRST, 4096, 1, Kind::Pinned).unwrap();
    assert_eq!(register(Device::FIRST, inside.base, 1, true), Err(Overlap));
    free(inside.base);
}

#[test]
fn physical_memory_at_two_addresses_is_one() {
    const SIZE: u64 = 2 << 20;
    let file = PageFile::new(SIZE).unwrap();
    let (one, two) = (reserve(SIZE, SIZE).unwrap(), reserve(SIZE, SIZE).unwrap());
    for at in [one, two] {
        map(at, SIZE, &file, 0).unwrap();
        assert_eq!(find(at), None);
        assert_eq!(
            expose(Device::FIRST, at, SIZE, Reach::of_context(Device::FIRST))
                .unwrap()
                .base,
            at
        );
    }
    let mut read = [0; 4];
    // SAFETY: both ranges are mapped.
    unsafe {
        access::copy(one + 100, b"same".as_ptr() as u64, 4);
        access::read(two + 100, &mut read);
    }
    assert_eq!(&read, b"same");
    for at in [one, two] {
        hide(at);
        assert_eq!(find(at), None);
        unmap(at, SIZE).unwrap();
        // SAFETY: the addresses stay mapped.
        unsafe { access::read(at + 100, &mut read) };
        assert_eq!(read, [0; 4]);
        unreserve(at);
    }
}

#[test]
fn look_ups_see_whole_allocations_while_others_come_and_go() {
    let stop = AtomicBool::new(false);
    let fixed = alloc(Device::FIRST, 100_000, 1, Kind::Pinned).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..2u64 {
            let stop = &stop;
            scope.spawn(move || {
                let mut step = seed;
                while !stop.load(Ordering::Relaxed) {
                    step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let allocation =
                        alloc(Device::FIRST, 1 + (step >> 40) % 200_000, 1, Kind::Managed).unwrap();
                    assert_eq!(find(allocation.end() - 1), Some(allocation));
                    assert_eq!(free(allocation.base), Some(allocation));
                }
            });
        }
        for round in 0..200_000u64 {
            let offset = round * 7919 % 600_000;
            if let Some(found) = find(fixed.base + offset) {
                assert!(found.contains(fixed.base + offset));
            }
            assert_eq!(find(fixed.base + offset % fixed.size), Some(fixed));
        }
        stop.store(true, Ordering::Relaxed);
    });
    free(fixed.base);
}

proptest! {
    #[test]
    fn look_ups_agree_with_a_list(steps in prop::collection::vec((any::<bool>(), 1u64..300_000, 0u32..18, any::<usize>()), 1..120)) {
        let mut live: BTreeMap<u64, Allocation> = BTreeMap::new();
        for (add, size, align, pick) in steps {
            if add || live.is_empty() {
                let allocation = alloc(Device::FIRST, size, 1 << align, Kind::Pinned).unwrap();
                prop_assert_eq!(allocation.base % (1 << align), 0);
                let below = live.range(..allocation.end()).next_back();
                prop_assert!(below.is_none_or(|(_, other)| other.end() <= allocation.base));
                live.insert(allocation.base, allocation);
            } else {
                let base = *live.keys().nth(pick % live.len()).unwrap();
                prop_assert_eq!(free(base), live.remove(&base));
                prop_assert_ne!(find(base).map(|other| other.base), Some(base));
            }
            for allocation in live.values() {
                for address in [allocation.base, allocation.base + allocation.size / 3, allocation.end() - 1] {
                    prop_assert_eq!(find(address), Some(*allocation));
                }
                prop_assert_eq!(find(allocation.end()), None);
            }
        }
        for base in live.into_keys() {
            free(base);
        }
    }
}

#[test]
fn cleared_memory_is_zero_to_its_ends_and_no_further() {
    for size in [1, 511, 4096, 65_536, 70_001, 1 << 20] {
        let neighbour = alloc(Device::FIRST, 512, 1, Kind::Pinned).unwrap();
        let allocation = alloc(Device::FIRST, size, 1, Kind::Pinned).unwrap();
        let after = alloc(Device::FIRST, 512, 1, Kind::Pinned).unwrap();
        for one in [&neighbour, &allocation, &after] {
            // SAFETY: the allocation is live, and nobody else's.
            unsafe { access::fill(one.base, 0xA5, 1, one.size) };
        }
        clear(&allocation);
        let mut bytes = vec![1; size as usize];
        // SAFETY: as above.
        unsafe { access::read(allocation.base, &mut bytes) };
        assert!(bytes.iter().all(|byte| *byte == 0), "{size}");
        for one in [neighbour, allocation, after] {
            let mut bytes = [0; 512];
            if one != allocation {
                // SAFETY: as above.
                unsafe { access::read(one.base, &mut bytes) };
                assert_eq!(bytes, [0xA5; 512], "{size}");
            }
            free(one.base);
        }
    }
}
