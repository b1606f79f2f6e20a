//! Sums that a worker [puts aside](crate::grid::sums): nobody notices, whatever else a kernel does.

use crate::grid::launch::FaultKind;
use crate::grid::sums::TURNS;
use crate::jit::harness::{self, buffer, launch, load, load_as, module};
use crate::jit::module::Form;
use crate::memory::{self, Device, Kind};

/// A kernel `k(.u64 sums, .u64 out, .u64 other)` of which `%at` is the address of the sum that
/// belongs to the thread's number in the grid, `%i`, and `%to` that of its word of `out`.
fn kernel(body: &str) -> String {
    module(&format!(
        ".visible .entry k(.param .u64 sums, .param .u64 out, .param .u64 other)
        {{
            .reg .pred %p<4>;
            .reg .b32 %i, %r<8>;
            .reg .b64 %sums, %out, %other, %at, %to, %rd<8>;
            .shared .align 8 .b8 tile[64];
            ld.param.u64 %sums, [sums];
            ld.param.u64 %out, [out];
            ld.param.u64 %other, [other];
            mov.u32 %r1, %ctaid.x;
            mov.u32 %r2, %ntid.x;
            mov.u32 %r3, %tid.x;
            mad.lo.u32 %i, %r1, %r2, %r3;
            mul.wide.u32 %rd1, %i, 4;
            add.s64 %at, %sums, %rd1;
            add.s64 %to, %out, %rd1;
            {body}
            ret;
        }}"
    ))
}

/// How often a launch has begun to put sums aside, and given that up, on this thread of the host.
fn turns(of: impl FnOnce()) -> [u32; 2] {
    TURNS.set([0; 2]);
    of();
    TURNS.get()
}

/// What a kernel of one block of 64 threads, whose sums are 100 at first, leaves in sums and `out`,
/// how often it begins to put sums aside and gives it up.
fn one_block(body: &str) -> ([u32; 64], [u32; 64], [u32; 2]) {
    let (mut sums, mut out, mut other) = ([100u32; 64], [0u32; 64], [1000u32; 64]);
    let turns = turns(|| {
        let (sums, out, other) = (buffer(&mut sums), buffer(&mut out), buffer(&mut other));
        let buffers = &mut [sums, out, other];
        harness::run(&kernel(body), "k", [1; 3], [64, 1, 1], buffers, &[]).unwrap();
    });
    (sums, out, turns)
}

#[test]
fn sums_come_into_memory() {
    for (ty, count) in [("u32", 256u32), ("s32", 7), ("u64", 256), ("u32", 1)] {
        for add in [
            "red.global.add",
            "atom.global.add",
            "red.add",
            "red.relaxed.gpu.global.add",
        ] {
            let bytes = if ty == "u64" { 8 } else { 4 };
            let b = 8 * bytes;
            let result = if add.starts_with("atom") { "%r0, " } else { "" };
            let result = if b == 64 {
                result.replace("%r0", "%rd0")
            } else {
                result.into()
            };
            let source = kernel(&format!(
                "mul.lo.u32 %r4, %i, 40503; shr.u32 %r4, %r4, 3; rem.u32 %r4, %r4, {count};
                mul.wide.u32 %rd2, %r4, {bytes}; add.s64 %at, %sums, %rd2;
                add.u32 %r5, %i, 4000000000; cvt.u{b}.u32 {value}, %r5;
                {add}.{ty} {result}[%at], {value};",
                value = if b == 64 { "%rd5" } else { "%r6" },
            ));
            let (blocks, threads) = (300u32, 96u32);
            let mut expected = vec![5u64; count as usize];
            for i in 0..blocks * threads {
                let at = i.wrapping_mul(40503) / 8 % count;
                expected[at as usize] += u64::from(i.wrapping_add(4_000_000_000));
            }
            let mut sums = vec![5u32; (bytes / 4) as usize * count as usize];
            if bytes == 8 {
                sums.iter_mut()
                    .skip(1)
                    .step_by(2)
                    .for_each(|high| *high = 0);
            }
            let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
            let sums_bytes = buffer(&mut sums);
            let buffers = &mut [sums_bytes, &mut [], &mut []];
            harness::run(&source, "k", grid, block, buffers, &[]).unwrap();
            let got: Vec<u64> = match bytes {
                8 => {
                    let (pairs, _) = sums.as_chunks::<2>();
                    let whole = |[low, high]: &[u32; 2]| u64::from(*high) << 32 | u64::from(*low);
                    pairs.iter().map(whole).collect()
                }
                _ => sums.iter().map(|sum| u64::from(*sum)).collect(),
            };
            if bytes == 4 {
                expected.iter_mut().for_each(|sum| *sum &= 0xffff_ffff);
            }
            assert_eq!(got, expected, "{add}.{ty} of {count}");
        }
    }
}

#[test]
fn a_histogram_is_put_aside() {
    let (sums, _, turns) = one_block(
        "and.b32 %r4, %i, 3; mul.wide.u32 %rd2, %r4, 4;
        add.s64 %at, %sums, %rd2; atom.global.add.u32 %r5, [%at], 2;",
    );
    assert_eq!(sums[..5], [132, 132, 132, 132, 100]);
    assert_eq!(turns, [1, 0]);
}

#[test]
fn threads_see_what_they_have_added() {
    // The address is a sum of 64 bits, and an element of an array, whose length is known.
    for (address, turns) in [("%at", [1, 1]), ("%rd3", [0, 0])] {
        let (sums, out, took) = one_block(&format!(
            "red.global.add.u32 [%at], %i;
            mul.wide.u32 %rd2, %i, 4; add.s64 %rd3, %sums, %rd2;
            mov.u64 %rd4, %rd1; xor.b64 %rd4, %rd4, 0; add.s64 %at, %sums, %rd4;
            ld.global.u32 %r4, [{address}]; st.global.u32 [%to], %r4;"
        ));
        for i in 0..64 {
            assert_eq!([sums[i], out[i]], [100 + i as u32; 2], "{address}");
        }
        assert_eq!(took, turns, "{address}");
    }
}

#[test]
fn a_block_sees_what_it_has_added() {
    let (sums, out, turns) = one_block(
        "red.global.add.u32 [%sums], %i;
        bar.sync 0;
        ld.global.u32 %r4, [%sums]; st.global.u32 [%to], %r4;",
    );
    assert_eq!(sums[0], 100 + 63 * 64 / 2);
    assert_eq!(out, [sums[0]; 64]);
    assert_eq!(turns, [1, 1]);
}

#[test]
fn stores_and_sums_keep_their_order() {
    let stores = "mul.lo.u32 %r4, %i, 3; xor.b64 %rd4, %rd1, 0; add.s64 %rd5, %sums, %rd4;";
    for (body, value) in [
        (
            "st.global.u32 [%rd5], %r4; red.global.add.u32 [%at], %i;",
            4,
        ),
        (
            "red.global.add.u32 [%at], %i; st.global.u32 [%rd5], %r4;",
            3,
        ),
        (
            "red.global.add.u32 [%at], %i; st.global.u32 [%rd5], %r4;
          red.global.add.u32 [%at], %i;",
            4,
        ),
    ] {
        let (sums, ..) = one_block(&format!("{stores} {body}"));
        assert_eq!(sums, std::array::from_fn(|i| value * i as u32), "{body}");
    }
}

#[test]
fn sums_of_another_size_go_to_the_same_array() {
    // The lower half's carry goes on to the upper half as long as both are added to as one.
    let (sums, _, turns) = one_block(
        "and.b32 %r4, %i, 62; mul.wide.u32 %rd2, %r4, 4; add.s64 %at, %sums, %rd2;
        mov.u64 %rd3, 0xffffffff; red.global.add.u64 [%at], %rd3;
        red.global.add.u32 [%at+4], 7; red.global.add.u64 [%at], %rd3;",
    );
    // Two threads and two sums each.
    let whole = (100u64 << 32 | 100) + 4 * 0xffff_ffff + (14 << 32);
    let expected = std::array::from_fn(|i| (whole >> (32 * (i & 1))) as u32);
    assert_eq!(sums, expected);
    assert_eq!(turns, [1, 1]);
}

#[test]
fn of_two_arrays_one_is_put_aside() {
    let (mut sums, mut other) = ([0u32; 8], [0u32; 8]);
    let source = kernel(
        "and.b32 %r4, %i, 7; mul.wide.u32 %rd2, %r4, 4;
        add.s64 %at, %sums, %rd2; add.s64 %rd3, %other, %rd2;
        red.global.add.u32 [%at], 1; red.global.add.u32 [%rd3], %r4;
        red.global.add.u32 [%at], 1;",
    );
    let grid = [100, 1, 1];
    let (first, last) = (buffer(&mut sums), buffer(&mut other));
    harness::run(
        &source,
        "k",
        grid,
        [64, 1, 1],
        &mut [first, &mut [], last],
        &[],
    )
    .unwrap();
    assert_eq!(sums, [1600; 8]);
    assert_eq!(other, std::array::from_fn(|i| 800 * i as u32));
}

/// Nothing is put aside where another thread may learn how far one has come, or what it has found.
#[test]
fn what_tells_others_keeps_sums_in_place() {
    for tells in [
        "membar.gl;",
        "fence.acq_rel.cta;",
        "ld.volatile.global.u32 %r4, [%to];",
        "ld.relaxed.gpu.global.u32 %r4, [%to];",
        "ld.acquire.gpu.global.u32 %r4, [%to];",
        "st.volatile.global.u32 [%to], %i;",
        "st.release.gpu.global.u32 [%to], %i;",
        "atom.global.add.u32 %r4, [%to], 1; st.global.u32 [%to], %r4;",
        "atom.global.cas.b32 %r4, [%to], 0, 1; st.global.u32 [%to], %r4;",
        "red.release.gpu.global.add.u32 [%to], 1;",
        "barrier.cluster.arrive; barrier.cluster.wait;",
        "nanosleep.u32 0; ld.volatile.global.u32 %r4, [%to];",
        "red.relaxed.sys.global.add.u32 [%to], 1;",
    ] {
        let (sums, _, turns) = one_block(&format!("red.global.add.u32 [%at], 1; {tells}"));
        assert_eq!((sums, turns), ([101; 64], [0, 0]), "{tells}");
    }
    for silent in [
        "bar.sync 0;",
        "bar.warp.sync -1;",
        "vote.sync.ballot.b32 %r4, 1, -1;",
        "ld.global.nc.u32 %r4, [%to];",
        "st.global.u32 [%to], %i;",
        "atom.shared.add.u32 %r4, [tile], 1; st.global.u32 [%to], %r4;",
        "red.global.max.u32 [%to], 1;",
        "atom.global.exch.b32 %r4, [%to], 1;",
    ] {
        let (sums, _, turns) = one_block(&format!("red.global.add.u32 [%at], 1; {silent}"));
        assert_eq!((sums, turns), ([101; 64], [1, 0]), "{silent}");
    }
}

#[test]
fn memory_that_the_host_may_look_at_is_added_to_in_place() {
    let module = load(&kernel("red.global.add.u32 [%at], 3;"));
    let kernel = module.kernel("k").unwrap();
    for (kind, size, expected) in [
        (Kind::Device, 256, [1, 0]),
        (Kind::Device, 64 << 10, [1, 0]),
        (Kind::Device, (64 << 10) + 1, [0, 0]),
        (Kind::Managed, 256, [0, 0]),
        (Kind::Pinned, 256, [0, 0]),
        (Kind::Global, 256, [0, 0]),
    ] {
        let sums = memory::alloc(Device::FIRST, size, 256, kind).unwrap();
        // SAFETY: the allocation has so many bytes, which nobody else knows.
        unsafe { (sums.base as *mut u8).write_bytes(0, size as usize) };
        let none = 0u64.to_le_bytes();
        let values = [&sums.base.to_le_bytes()[..], &none, &none];
        let took = turns(|| {
            let of = launch(&module, kernel, [1; 3], [64, 1, 1], 0, &values);
            crate::grid::run(&of).unwrap();
        });
        // SAFETY: as above, and the launch is over.
        let words = unsafe { std::slice::from_raw_parts(sums.base as *const u32, 64) };
        assert_eq!(words, [3; 64], "{kind:?}");
        assert_eq!(took, expected, "{kind:?} of {size} bytes");
        memory::free(sums.base);
    }
}

#[test]
fn sums_outside_of_the_array_fault_as_ever() {
    let mut sums = [0u32; 64];
    for (offset, kind) in [
        ("1 << 40", FaultKind::IllegalAddress),
        ("2", FaultKind::Misaligned),
    ] {
        let source = kernel(&format!(
            "red.global.add.u32 [%at], 1;
            setp.eq.u32 %p1, %i, 37;
            @%p1 add.s64 %at, %at, {offset};
            red.global.add.u32 [%at], 1;"
        ));
        let sums = buffer(&mut sums);
        let buffers = &mut [sums, &mut [], &mut []];
        let fault = harness::run(&source, "k", [1; 3], [64, 1, 1], buffers, &[]).unwrap_err();
        assert_eq!((fault.kind, fault.thread), (kind, Some([37, 0, 0])));
    }
}

/// A sum goes to another allocation than the one that its site has put aside.
#[test]
fn one_site_adds_to_several_arrays() {
    let (mut sums, mut other) = ([0u32; 64], [0u32; 64]);
    let source = kernel(
        "and.b32 %r4, %i, 1; setp.eq.u32 %p1, %r4, 1;
        selp.b64 %rd2, %sums, %other, %p1; add.s64 %rd2, %rd2, %rd1;
        red.global.add.u32 [%rd2], %i;",
    );
    let (first, last) = (buffer(&mut sums), buffer(&mut other));
    harness::run(
        &source,
        "k",
        [1; 3],
        [64, 1, 1],
        &mut [first, &mut [], last],
        &[],
    )
    .unwrap();
    for i in 0..64 {
        let odd = i as u32 & 1;
        assert_eq!([sums[i], other[i]], [odd * i as u32, (1 - odd) * i as u32]);
    }
}

/// Each launch begins anew, on workers that have put another array aside before.
#[test]
fn launches_follow_each_other() {
    let source = kernel(
        "and.b32 %r4, %i, 15; mul.wide.u32 %rd2, %r4, 4; add.s64 %at, %sums, %rd2;
        red.global.add.u32 [%at], 1;",
    );
    for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
        let module = load_as(&source, form);
        for blocks in [1, 50, 3, 200] {
            let mut sums = [0u32; 16];
            let sums_bytes = buffer(&mut sums);
            let (grid, block) = ([blocks, 1, 1], [128, 1, 1]);
            let buffers = &mut [sums_bytes, &mut [], &mut []];
            harness::run_in(&module, "k", grid, block, 0, buffers, &[]).unwrap();
            assert_eq!(sums, [8 * blocks; 16], "{form:?}, {blocks} blocks");
        }
    }
}
