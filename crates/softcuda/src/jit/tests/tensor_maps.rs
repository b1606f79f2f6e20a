//! Copies of boxes of tensors, in all forms. What boxes hold is compared with an H200 by the
//! kernels of `kernels/tensor_map.cu`; here, copies are compared with each other.

use crate::grid::launch::{Fault, FaultKind};
use crate::grid::tensor::map::{DataType, Interleave, Shape, Swizzle, TensorMap};
use crate::jit::harness::{self, buffer};
use crate::jit::module::Form;
use crate::memory::{self, Kind};

/// Words of 16 bits of the tensor.
const WORDS: usize = 4096;

fn map(dims: &[u64], tile: &[u16]) -> TensorMap {
    let mut map = TensorMap {
        data: DataType::Uint16,
        rank: dims.len() as u8,
        address: 0,
        dims: [1; 5],
        strides: [0; 4],
        steps: [1; 5],
        interleave: Interleave::None,
        swizzle: Swizzle::None,
        nan: false,
        shape: Shape::Tile(std::array::from_fn(|at| tile.get(at).copied().unwrap_or(1))),
    };
    map.dims[..dims.len()].copy_from_slice(dims);
    let mut bytes = 2;
    for (stride, dim) in map.strides.iter_mut().zip(&dims[..dims.len() - 1]) {
        bytes *= dim;
        *stride = bytes;
    }
    map
}

/// Runs `body` in all forms: `%rd1` is where the map is, `%rd2` the tensor's place, of words that
/// count, `%rd3` the output's, `%r4` a shared address and `%r1` the thread. Gives the tensor and
/// the output.
fn run(map: TensorMap, threads: u32, body: &str) -> Result<[Vec<u16>; 2], Fault> {
    let source = harness::module(&format!(
        ".visible .entry k(.param .u64 map, .param .u64 tensor, .param .u64 out)
        {{
            .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;
            .shared .align 1024 .b8 s[16384];
            ld.param.u64 %rd1, [map]; ld.param.u64 %rd2, [tensor]; ld.param.u64 %rd3, [out];
            mov.u32 %r1, %tid.x; mov.u32 %r4, s;
            {body}
            ret;
        }}"
    ));
    let outcomes = [Form::Vectors, Form::Rounds, Form::Fibers].map(|form| {
        let module = harness::load_as(&source, form);
        let tensor =
            memory::alloc(memory::Device::FIRST, 2 * WORDS as u64, 1, Kind::Device).unwrap();
        for at in 0..WORDS {
            // SAFETY: the allocation has as many words, and nobody else knows it.
            unsafe { (tensor.base as *mut u16).add(at).write(at as u16) };
        }
        let mut moved = map;
        moved.address = tensor.base;
        let bytes = moved.to_bytes();
        let mut out = vec![0xeeeeu16; WORDS];
        let place = tensor.base.to_le_bytes();
        let map = memory::alloc(memory::Device::FIRST, 128, 1, Kind::Device).unwrap();
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), map.base as *mut u8, 128) };
        let output =
            memory::alloc(memory::Device::FIRST, 2 * WORDS as u64, 1, Kind::Device).unwrap();
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(output.base as *mut u8, 0xee, 2 * WORDS) };
        let kernel = module.kernel("k").unwrap();
        let values = [map.base.to_le_bytes(), place, output.base.to_le_bytes()];
        let values: Vec<&[u8]> = values.iter().map(|value| &value[..]).collect();
        let launch = harness::launch(&module, kernel, [1; 3], [threads, 1, 1], 0, &values);
        let result = crate::grid::run(&launch);
        let mut all = vec![0u16; WORDS];
        for (base, into) in [(tensor.base, &mut all), (output.base, &mut out)] {
            let into = buffer(into);
            // SAFETY: as above, and the launch is over.
            unsafe {
                std::ptr::copy_nonoverlapping(base as *const u8, into.as_mut_ptr(), into.len())
            };
        }
        for base in [map.base, tensor.base, output.base] {
            memory::free(base);
        }
        result.map(|()| [all, out])
    });
    let [vectors, rounds, fibers] = outcomes;
    for other in [&vectors, &rounds] {
        match (other, &fibers) {
            (Ok(other), Ok(fibers)) => assert_eq!(other, fibers),
            (Err(other), Err(fibers)) => assert_eq!(other.kind, fibers.kind),
            _ => panic!("{other:?} in vectors or rounds, {fibers:?} as fibers"),
        }
    }
    fibers
}

/// A copy of a box into shared memory, and from there, as it lies, to the output.
fn load(copy: &str, bytes: u32) -> String {
    format!(
        "setp.ne.u32 %p1, %r1, 0; @%p1 bra ready;
        mbarrier.init.shared.b64 [%r4+16376], 1;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4+16376], {bytes};
        {copy}
        ready: bar.sync 0;
        wait: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4+16376], 0; @!%p2 bra wait;
        @%p1 bra done;
        cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r4], {bytes};
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        done:"
    )
}

const LOAD: &str = ".shared::cluster.global.tile.mbarrier::complete_tx::bytes";

#[test]
fn tiles_of_two_dimensions() {
    let copy = format!(
        "mov.u32 %r5, 8; mov.s32 %r6, -1;
        cp.async.bulk.tensor.2d{LOAD} [%r4], [%rd1, {{%r5, %r6}}], [%r4+16376];"
    );
    for threads in [1, 8, 40] {
        let [_, out] = run(map(&[64, 20], &[32, 4]), threads, &load(&copy, 256)).unwrap();
        for (at, got) in (0..128).zip(out) {
            let (x, y) = (at % 32 + 8, at / 32);
            let wanted = if y == 0 { 0 } else { (y - 1) * 64 + x };
            assert_eq!(got, wanted);
        }
    }
}

/// What is swizzled on the way in comes out as it was on the way back.
#[test]
fn swizzled_tiles_come_back() {
    for (swizzle, row) in [(Swizzle::B32, 16), (Swizzle::B64, 32), (Swizzle::B128, 64)] {
        let body = load(
            &format!(
                "mov.u32 %r5, 0; mov.u32 %r6, 3; mov.u32 %r7, 20;
                cp.async.bulk.tensor.2d{LOAD} [%r4], [%rd1, {{%r5, %r6}}], [%r4+16376];
                fence.proxy.async.shared::cta;
                cp.async.bulk.tensor.2d.global.shared::cta.bulk_group
                    [%rd1, {{%r5, %r7}}], [%r4];"
            ),
            row * 2 * 9,
        );
        let mut swizzled = map(&[64, 40], &[row as u16, 9]);
        swizzled.swizzle = swizzle;
        let [tensor, _] = run(swizzled, 8, &body).unwrap();
        for y in 0..9 {
            for x in 0..row as usize {
                assert_eq!(tensor[(20 + y) * 64 + x], ((3 + y) * 64 + x) as u16);
            }
        }
    }
}

#[test]
fn columns_of_pixels() {
    let mut columns = map(&[16, 6, 5, 2], &[]);
    columns.shape = Shape::Im2col {
        lower: [-1, -1, 0],
        upper: [-1, -1, 0],
        channels: 16,
        pixels: 40,
    };
    let copy = "mov.s32 %r5, -1; mov.u32 %r6, 0; mov.u16 %h1, 1; mov.u16 %h2, 2;
        cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
            [%r4], [%rd1, {%r6, %r5, %r5, %r6}], [%r4+16376], {%h1, %h2};";
    let [_, out] = run(columns, 8, &load(copy, 16 * 40 * 2)).unwrap();
    let mut pixels = vec![];
    for n in 0..2 {
        for y in -1..4 {
            for x in -1..5 {
                pixels.push((x + 1, y + 2, n));
            }
        }
    }
    for (at, (x, y, n)) in pixels.into_iter().take(40).enumerate() {
        let inside = (0..6).contains(&x) && (0..5).contains(&y);
        for channel in 0..16 {
            let wanted = match inside {
                true => channel + 16 * (x + 6 * (y + 5 * n)),
                false => 0,
            };
            assert_eq!(
                i32::from(out[at * 16 + channel as usize]),
                wanted,
                "{x} {y} {n}"
            );
        }
    }
}

#[test]
fn reductions_and_prefetches() {
    let body = "mov.u32 %r5, 0; mov.u32 %r6, 16; mov.u32 %r7, 7;
        cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r5, %r5}];
        st.shared.v4.u32 [%r4], {%r6, %r7, %r6, %r7};
        cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group
            [%rd1, {%r5, %r7}], [%r4];
        cp.reduce.async.bulk.tensor.2d.global.shared::cta.xor.bulk_group.L2::cache_hint
            [%rd1, {%r5, %r7}], [%r4], %rd2;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;";
    let mut words = map(&[16, 20], &[4, 1]);
    words.data = DataType::Uint32;
    words.strides[0] = 64;
    let [tensor, _] = run(words, 1, body).unwrap();
    let before = |at: usize| (at as u32 * 2) | (at as u32 * 2 + 1) << 16;
    for (at, by) in [16, 7, 16, 7].into_iter().enumerate() {
        let place = 7 * 16 + at;
        let got = u32::from(tensor[2 * place]) | u32::from(tensor[2 * place + 1]) << 16;
        assert_eq!(got, (before(place) + by) ^ by);
    }
}

/// A kernel changes its map.
#[test]
fn maps_are_changed_in_place() {
    let copy = format!(
        "add.u64 %rd5, %rd2, 512; mov.u32 %r6, 2;
        tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd5;
        tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 0, 8;
        tensormap.replace.tile.box_dim.b1024.b32 [%rd1], 1, %r6;
        tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 1, 9;
        tensormap.replace.tile.global_stride.global.b1024.b64 [%rd1], 0, 64;
        tensormap.replace.tile.element_stride.global.b1024.b32 [%rd1], 1, 1;
        tensormap.replace.tile.elemtype.global.b1024.b32 [%rd1], 2;
        tensormap.replace.tile.rank.global.b1024.b32 [%rd1], 1;
        tensormap.replace.tile.interleave_layout.global.b1024.b32 [%rd1], 0;
        tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%rd1], 0;
        tensormap.replace.tile.fill_mode.global.b1024.b32 [%rd1], 0;
        fence.proxy.tensormap::generic.release.gpu;
        fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
        mov.u32 %r5, 4; mov.u32 %r6, 8;
        cp.async.bulk.tensor.2d{LOAD} [%r4], [%rd1, {{%r5, %r6}}], [%r4+16376];"
    );
    let [_, out] = run(map(&[64, 20], &[32, 4]), 1, &load(&copy, 64)).unwrap();
    for at in 0..16u16 {
        assert_eq!(out[at as usize], 256 + 8 * 32 + 8 + at);
        // Beyond the last row.
        assert_eq!(out[16 + at as usize], 0);
    }
}

/// Replaces fields of the map at `s+16128`, of which `%rd6` is the beginning.
fn replaced(fields: &[(&str, &str)]) -> String {
    let line = |(field, value): &(&str, &str)| {
        let (field, ord) = field.split_once(' ').unwrap_or((field, ""));
        let bits = match field {
            "global_address" | "global_stride" => 64,
            _ => 32,
        };
        let ord = if ord.is_empty() {
            String::new()
        } else {
            format!("{ord}, ")
        };
        format!(
            "tensormap.replace.tile.{field}.shared::cta.b1024.b{bits} [%rd6+16128], {ord}{value};"
        )
    };
    fields.iter().map(line).collect()
}

/// The first warp makes the map of zeros in shared memory, and copies it to where maps are.
fn made(replaced: &str) -> String {
    format!(
        "cvt.u64.u32 %rd6, %r4;
        setp.ge.u32 %p1, %r1, 32; @%p1 bra made;
        shl.b32 %r10, %r1, 2; add.u32 %r10, %r10, %r4; st.shared.u32 [%r10+16128], 0;
        bar.warp.sync -1;
        setp.ne.u32 %p2, %r1, 31; @%p2 bra replaced;
        {replaced}
        replaced:
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
            [%rd1], [%rd6+16128], 128;
        st.shared.u32 [%r10+16128], 0xffffffff;
        fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
        made: bar.sync 0;"
    )
}

/// A row of 64 words of 16 bits, but for its rank, and where it is.
const ROWS: &[(&str, &str)] = &[
    ("global_address", "%rd2"),
    ("rank", "1"),
    ("box_dim 0", "16"),
    ("box_dim 1", "3"),
    ("global_dim 0", "64"),
    ("global_dim 1", "20"),
    ("global_stride 0", "128"),
    ("elemtype", "1"),
];

#[test]
fn maps_are_made_of_zeros() {
    let other = map(&[256], &[8]);
    let copy = format!(
        "mov.u32 %r5, 8; mov.u32 %r6, 18;
        cp.async.bulk.tensor.2d{LOAD} [%r4], [%rd1, {{%r5, %r6}}], [%r4+16376];"
    );
    for threads in [32, 40, 96] {
        let body = made(&replaced(ROWS)) + &load(&copy, 96);
        let [_, out] = run(other, threads, &body).unwrap();
        for at in 0..16u16 {
            assert_eq!(out[at as usize], 18 * 64 + 8 + at);
            assert_eq!(out[16 + at as usize], 19 * 64 + 8 + at);
            assert_eq!(out[32 + at as usize], 0);
        }
    }
    // Bits that a field has no room for are lost, and sizes are one more than what is kept.
    let odd = [
        ("rank", "9"),
        ("box_dim 1", "259"),
        ("element_stride 1", "9"),
        ("global_stride 0", "136"),
    ];
    let body = made(&(replaced(ROWS) + &replaced(&odd))) + &load(&copy, 96);
    let [_, out] = run(other, 32, &body).unwrap();
    assert_eq!(out[16], 19 * 64 + 8);
}

/// As an H200 answered.
#[test]
fn maps_that_are_not_whole() {
    use FaultKind::{IllegalInstruction, Misaligned};
    let two = format!(
        "mov.u32 %r5, 0;
        cp.async.bulk.tensor.2d{LOAD} [%r4], [%rd1, {{%r5, %r5}}], [%r4+16376];"
    );
    let one = two.replace("2d", "1d").replace("%r5, %r5}", "%r5}");
    let but = |field: &str| {
        let rest = ROWS
            .iter()
            .copied()
            .filter(|(name, _)| !name.starts_with(field));
        replaced(&rest.collect::<Vec<_>>())
    };
    let with = |field: &'static str, value| replaced(ROWS) + &replaced(&[(field, value)]);
    for (fields, copy, fault) in [
        (String::new(), &one, IllegalInstruction),
        (but("rank"), &two, IllegalInstruction),
        (but("box_dim"), &two, IllegalInstruction),
        (with("box_dim 0", "4"), &two, IllegalInstruction),
        (with("box_dim 0", "12"), &two, IllegalInstruction),
        (with("global_address", "%rd7"), &two, Misaligned),
    ] {
        let body = format!("add.u64 %rd7, %rd2, 8; {}{}", made(&fields), load(copy, 96));
        let got = run(map(&[256], &[8]), 32, &body).expect_err(&body);
        assert_eq!(got.kind, fault, "{body}");
    }
    for (fields, copy, bytes) in [(but("elemtype"), &two, 48), (but("rank"), &one, 32)] {
        run(map(&[256], &[8]), 32, &(made(&fields) + &load(copy, bytes))).unwrap();
    }
}

/// As an H200 does it: the tensor ends within 16 bytes.
#[test]
fn stores_go_by_16_bytes() {
    let mut rows = map(&[20, 3], &[32, 2]);
    rows.strides[0] = 64;
    for (store, stored) in [
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", 7),
        (
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.or.bulk_group",
            39,
        ),
    ] {
        let mut map = rows;
        if stored == 39 {
            // The same bytes.
            map.data = DataType::Uint32;
            map.dims[0] = 10;
            map.shape = Shape::Tile([16, 2, 1, 1, 1]);
        }
        let body = format!(
            "mov.u32 %r5, 0; mov.u32 %r6, {:#x}; add.u32 %r7, %r4, 128;
            fill: st.shared.u32 [%r4], %r6; add.u32 %r4, %r4, 4;
            setp.lt.u32 %p1, %r4, %r7; @%p1 bra fill; mov.u32 %r4, s;
            {store} [%rd1, {{%r5, %r5}}], [%r4];",
            0x0007_0007 | if stored == 39 { 0x0020_0020 } else { 0 }
        );
        let [tensor, _] = run(map, 1, &body).unwrap();
        for (at, word) in (0..96u16).zip(tensor) {
            let wanted = match at % 32 < 24 && at < 64 {
                true if stored == 39 => at | 39,
                true => 7,
                false => at,
            };
            assert_eq!(word, wanted, "{store} {at}");
        }
    }
}

/// As an H200 answered.
#[test]
fn stores_that_fault() {
    let tile = |at: &str| {
        format!("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {{{at}}}], [%r4];")
    };
    let columns = |at: &str| {
        format!(
            "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group
                [%rd1, {{{at}}}], [%r4];"
        )
    };
    let add = |what: &str| {
        format!(
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.{what}.tile.bulk_group
                [%rd1, {{0, 0}}], [%r4];"
        )
    };
    let two = map(&[64, 20], &[16, 2]);
    let images = |lower: i16, upper: i16| TensorMap {
        shape: Shape::Im2col {
            lower: [lower, 0, 0],
            upper: [0, upper, 0],
            channels: 16,
            pixels: 4,
        },
        ..map(&[16, 6, 5, 2], &[])
    };
    let of = |data| {
        let mut map = map(&[16, 16], &[8, 1]);
        map.data = data;
        map.strides[0] = 128;
        map
    };
    for (map, store) in [
        (two, tile("1, 0")),
        (two, tile("-8, 0")),
        (two, tile("0, -1")),
        (images(-1, 0), columns("0, 0, 0, 0")),
        (images(0, 1), columns("0, 0, 0, 0")),
        (images(1, 0), columns("0, 0, 0, 0")),
        (images(0, -2), columns("0, 0, 3, 0")),
        (images(0, 0), columns("0, 0, 0, -1")),
        (of(DataType::Uint16), add("add")),
        (of(DataType::Int32), add("inc")),
        (of(DataType::Int64), add("add")),
        (of(DataType::Int64), add("xor")),
        (of(DataType::Float32), add("min")),
    ] {
        let got = run(map, 1, &store).expect_err(&store);
        assert_eq!(got.kind, FaultKind::IllegalInstruction, "{store}");
    }
    for (map, store) in [
        (two, tile("64, 0")),
        (two, tile("56, 19")),
        (images(0, 0), columns("0, 0, 0, 2")),
        (images(1, 0), columns("0, 1, 4, 1")),
        (of(DataType::Int32), add("xor")),
        (of(DataType::Int64), add("min")),
    ] {
        // Forms are compared by what they store, and shared memory begins with anything.
        let zeros = "add.u32 %r7, %r4, 1024; mov.u32 %r5, %r4;
            clear: st.shared.u32 [%r5], 0; add.u32 %r5, %r5, 4;
            setp.lt.u32 %p1, %r5, %r7; @%p1 bra clear;";
        run(map, 1, &format!("{zeros} {store}")).unwrap();
    }
}

/// As an H200 answered.
#[test]
fn misuse_faults() {
    use FaultKind::{IllegalAddress, IllegalInstruction, Misaligned};
    let two = |shared: &str, map: &str| {
        format!(
            "mov.u32 %r5, 0; mov.u32 %r6, 0;
            cp.async.bulk.tensor.2d{LOAD} [{shared}], [{map}, {{%r5, %r6}}], [%r4+16376];"
        )
    };
    let right = map(&[64, 20], &[32, 4]);
    for (map, copy, fault) in [
        (right, two("%r4", "%rd2"), IllegalInstruction),
        (
            map(&[64, 5, 4], &[32, 1, 1]),
            two("%r4", "%rd1"),
            IllegalInstruction,
        ),
        (right, two("%r4+0x10000", "%rd1"), IllegalAddress),
        (
            right,
            format!("add.u64 %rd1, %rd1, 8; {}", two("%r4", "%rd1")),
            Misaligned,
        ),
        (
            map(&[64, 2000], &[64, 70]),
            two("%r4", "%rd1"),
            IllegalAddress,
        ),
    ] {
        let got = run(map, 8, &load(&copy, 256)).unwrap_err();
        assert_eq!(got.kind, fault, "{copy} {}", got.detail);
    }
}

/// Maps that kernels have changed to what the driver makes of no tensor: rows that are longer than
/// the span that is swizzled, or of no multiple of 16 bytes, and boxes with more than memory has.
#[test]
fn maps_that_no_driver_makes() {
    let replace = |what: &str, value: &str| {
        let bits = if what.contains("address") { 64 } else { 32 };
        format!("tensormap.replace.tile.{what}.global.b1024.b{bits} [%rd1]{value};")
    };
    let box_of = |sizes: &[u32]| {
        let sizes = sizes.iter().enumerate();
        sizes
            .map(|(at, size)| replace("box_dim", &format!(", {at}, {size}")))
            .collect::<String>()
    };
    let most = replace("rank", ", 4") + &box_of(&[65535, 65535, 65535, 65535, 65535]);
    for change in [
        replace("swizzle_mode", ", 1"),
        replace("swizzle_mode", ", 2"),
        replace("swizzle_mode", ", 3") + &box_of(&[8192, 1]),
        box_of(&[257, 1]),
        box_of(&[3, 4]),
        most,
    ] {
        let rank = if change.contains("rank") { 5 } else { 2 };
        let at = vec!["%r5"; rank].join(", ");
        for copy in [
            format!(
                "cp.async.bulk.tensor.{rank}d{LOAD} [%r4+8192], [%rd1, {{{at}}}], [%r4+16376];"
            ),
            format!(
                "cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%rd1, {{{at}}}], [%r4];"
            ),
            format!(
                "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.min.bulk_group [%rd1, {{{at}}}], [%r4];"
            ),
        ] {
            let mut map = map(&[256, 16], &[128, 2]);
            map.data = DataType::Int32;
            map.strides[0] = 1024;
            let body = format!(
                "setp.ne.u32 %p1, %r1, 0; @%p1 bra done; mov.u32 %r5, 0;
                mbarrier.init.shared.b64 [%r4+16376], 1;
                {change} {copy} done:"
            );
            let fault = run(map, 8, &body).expect_err(&body);
            assert_eq!(fault.kind, FaultKind::IllegalInstruction, "{body}");
        }
    }
}

#[test]
fn wrong_forms_are_refused() {
    for (line, what) in [
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
                [%r4], [%rd1, {%r5}], [%r6];",
            "takes a tensor map and 2 coordinates",
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
                [%r4], [%rd1], [%r6];",
            "takes a tensor map with coordinates",
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
                [%r4], [%rd1, {%r5, %r5}], [%r6], {%h1};",
            "takes columns of tensors of 3",
        ),
        (
            "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
                [%r4], [%rd1, {%r5, %r5, %r5, %r5}], [%r6], {%h1};",
            "takes 2 offsets of pixels",
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.mbarrier::complete_tx::bytes
                [%rd1, {%r5, %r5}], [%r4];",
            "completes in a group",
        ),
        (
            "tensormap.replace.tile.rank.global.b1024.b32 [%rd1], 0, 1;",
            "has not the operands",
        ),
        (
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
                [%rd1], [%r4], 64;",
            "copies 128 bytes",
        ),
        (
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.sync.aligned
                [%rd1], [%r4], 128;",
            "takes a scope",
        ),
        (
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.acquire.gpu.sync.aligned
                [%rd1], [%r4], 128;",
            ".release is expected",
        ),
        (
            "tensormap.replace.tile.elemtype.global.b1024.b32 [%rd1], %r5;",
            "an integer constant",
        ),
    ] {
        let source = harness::module(&format!(
            ".visible .entry k() {{
                .reg .b16 %h<2>; .reg .b32 %r<8>; .reg .b64 %rd<2>;
                {line}
            }}"
        ));
        let refusal = harness::complaint(&source);
        assert!(refusal.contains(what), "{line}: {refusal}");
    }
}
