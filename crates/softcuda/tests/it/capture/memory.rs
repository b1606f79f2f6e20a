//! Allocations that a capture records.

use super::*;

#[test]
fn memory_is_taken_and_given_back_by_launches() {
    alone(|| unsafe {
        context();
        let (main, side, out) = (stream(), stream(), memory(8));
        begin(main, GLOBAL);
        let (mut a, mut b) = (0, 0);
        cuMemAllocAsync(&mut a, 256, main).must();
        order(main, side);
        cuMemAllocAsync(&mut b, 256, side).must();
        assert_ne!(a, b);
        cuMemsetD32Async(a, 4, 64, main).must();
        cuMemsetD32Async(b, 5, 64, side).must();
        cuMemcpyDtoDAsync_v2(out, a + 252, 4, main).must();
        cuMemcpyDtoDAsync_v2(out + 4, b + 252, 4, side).must();
        cuMemFreeAsync(b, side).must();
        order(side, main);
        cuMemFreeAsync(a, main).must();
        let graph = end(main);
        let exec = instantiate(graph);
        for _ in 0..3 {
            fill_words(out, 0, 2);
            cuGraphLaunch(exec, main).must();
            cuStreamSynchronize(main).must();
            assert_eq!((word(out), word(out + 4)), (4, 5));
        }
    });
}

/// What a graph does not free is the program's: freed in a stream, by another graph, or at once.
#[test]
fn memory_that_a_graph_keeps_is_the_program_s() {
    alone(|| unsafe {
        context();
        let (stream, mut kept) = (stream(), 0);
        begin(stream, GLOBAL);
        cuMemAllocAsync(&mut kept, 64, stream).must();
        cuMemsetD32Async(kept, 9, 16, stream).must();
        let exec = instantiate(end(stream));
        begin(stream, GLOBAL);
        cuMemFreeAsync(kept, stream).must();
        let free = instantiate(end(stream));
        for way in 0..3 {
            cuGraphLaunch(exec, stream).must();
            cuStreamSynchronize(stream).must();
            assert_eq!(word(kept), 9);
            if way == 0 {
                assert_eq!(cuGraphLaunch(exec, stream).code, INVALID_VALUE);
            }
            match way {
                0 => cuGraphLaunch(free, stream).must(),
                1 => cuMemFreeAsync(kept, stream).must(),
                _ => cuMemFree_v2(kept).must(),
            }
            cuStreamSynchronize(stream).must();
        }
    });
}

/// A capture frees what captures allocate, once, and nothing else.
#[test]
fn only_memory_of_captures_is_freed_in_them() {
    alone(|| unsafe {
        context();
        let (stream, plain, mut pooled, mut own) = (stream(), memory(64), 0, 0);
        cuMemAllocAsync(&mut pooled, 64, stream).must();
        begin(stream, GLOBAL);
        cuMemAllocAsync(&mut own, 64, stream).must();
        cuMemFreeAsync(own, stream).must();
        for wrong in [plain, pooled, own, WILD] {
            assert_eq!(cuMemFreeAsync(wrong, stream).code, INVALID_VALUE);
        }
        assert_eq!(kinds(end(stream)), [ALLOC, FREE]);
        cuMemFreeAsync(pooled, stream).must();
        cuStreamSynchronize(stream).must();
    });
}

/// A capture that fails gives back what it took.
#[test]
fn a_failed_capture_keeps_no_memory() {
    if !is_software() {
        return;
    }
    alone(|| unsafe {
        context();
        let (stream, mut free, mut now) = (stream(), 0, 0);
        cuMemGetInfo_v2(&mut free, &mut 0).must();
        for _ in 0..20 {
            begin(stream, RELAXED);
            let mut taken = 0;
            cuMemAllocAsync(&mut taken, 1 << 20, stream).must();
            cuMemsetD8Async(taken, 1, 1 << 20, stream).must();
            cuStreamQuery(stream).ignore();
            assert_eq!(end_failed(stream), INVALIDATED);
        }
        cuMemGetInfo_v2(&mut now, &mut 0).must();
        assert_eq!(free, now);
        assert!(is_of_use(stream));
    });
}
