//! Accesses of what is not there, is not theirs, or is not aligned.

use super::*;

/// Instructions that access `[%a]`, by what they do and how many bytes: in loops and fibers alike.
const ACCESSES: &[(&str, &str)] = &[
    ("ld1", "ld.global.u8 %r1, [%a];"),
    ("ld2", "ld.u16 %h1, [%a];"),
    ("ld4", "ld.volatile.global.u32 %r1, [%a];"),
    ("ld8", "ld.u64 %rd1, [%a];"),
    ("ld16", "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%a];"),
    ("ld32", "ld.global.v4.u64 {%rd1, %rd2, %rd3, %rd4}, [%a];"),
    ("ld128", "ld.global.b128 %q1, [%a];"),
    ("st1", "st.u8 [%a], %r1;"),
    ("st2", "st.global.u16 [%a], %h1;"),
    ("st4", "st.relaxed.gpu.global.u32 [%a], %r1;"),
    ("st8", "st.global.f64 [%a], 0d3FF0000000000000;"),
    ("st16", "st.v2.u64 [%a], {%rd1, %rd2};"),
    ("st32", "st.global.v4.u64 [%a], {%rd1, %rd2, %rd3, %rd4};"),
    ("atom4", "atom.global.add.u32 %r1, [%a], 1;"),
    ("atom8", "atom.cas.b64 %rd1, [%a], 0, 1;"),
    ("atom2", "atom.global.cas.b16 %h1, [%a], 0, 1;"),
    ("atom16", "atom.global.cas.b128 %q1, [%a], %q2, %q3;"),
    ("atomf", "atom.global.add.f32 %f1, [%a], 0f3F800000;"),
    ("red4", "red.global.max.u32 [%a], 7;"),
    ("red8", "red.add.f64 [%a], 0d3FF0000000000000;"),
];

/// A variable of the test's own, which the device knows nothing of.
static mut OURS: [u64; 8] = [0; 8];

/// What a kernel is given, found when its process runs.
type Arguments = fn() -> [u64; 3];

/// Addresses that nothing may be at.
const WILD: &[(&str, Arguments)] = &[
    ("null", || [0, 0, 0]),
    ("tiny", || [32, 0, 0]),
    ("huge", || [1 << 62, 0, 0]),
    ("half", || [1 << 63, 0, 0]),
    ("not_canonical", || [0x0000_8000_0000_0000, 0, 0]),
    ("kernel_space", || [0xFFFF_8000_0000_0000, 0, 0]),
    ("last", || [0u64.wrapping_sub(32), 0, 0]),
    ("host_stack", || {
        let here = [0u64; 16];
        [(here.as_ptr() as u64).next_multiple_of(32), 0, 0]
    }),
    ("host_heap", || {
        let there = vec![0u64; 64].leak();
        [(there.as_ptr() as u64).next_multiple_of(32), 0, 0]
    }),
    ("host_static", || {
        [(&raw const OURS as u64).next_multiple_of(32), 0, 0]
    }),
    ("host_code", || [buffer as *const () as u64 & !31, 0, 0]),
    ("freed", || {
        let pointer = buffer();
        unsafe { cuMemFree_v2(pointer).must() };
        [pointer, 0, 0]
    }),
    ("freed_large", || unsafe {
        let pointer = memory(64 << 20);
        cuMemFree_v2(pointer).must();
        [pointer + (32 << 20), 0, 0]
    }),
    ("freed_pinned", || unsafe {
        let pointer = pinned(4096);
        cuMemFreeHost(pointer).must();
        [pointer as u64, 0, 0]
    }),
    ("past_the_end", || [buffer() + 4096, 0, 0]),
    ("before_the_start", || [buffer() - 32, 0, 0]),
];

/// The registered part of a page: what is beside it stays the program's own.
fn registered() -> u64 {
    let page = vec![0u8; 12288].leak();
    let start = (page.as_ptr() as u64).next_multiple_of(4096) + 4096;
    unsafe { cuMemHostRegister_v2(start as *mut _, 64, 0).must() };
    start
}

pub fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (at, (kind, arguments)) in WILD.iter().enumerate() {
        for step in 0..4 {
            let (access, instruction) = ACCESSES[(at * 3 + step * 5) % ACCESSES.len()];
            let (mode, ptx) = match step % 2 {
                0 => ("loop", kernel("", instruction)),
                _ => ("fiber", waiting_kernel("", instruction)),
            };
            cases.push(
                case(
                    format!("address/{kind}/{access}/{mode}"),
                    ILLEGAL_ADDRESS,
                    ptx,
                )
                .arguments(*arguments),
            );
        }
    }
    for (access, instruction) in ACCESSES.iter().filter(|(access, _)| !access.ends_with('1')) {
        cases.push(
            case(
                format!("misaligned/{access}"),
                MISALIGNED_ADDRESS,
                kernel("", instruction),
            )
            .arguments(|| [buffer() + 1, 0, 0]),
        );
    }
    for (access, instruction) in ACCESSES {
        // Its first byte is inside, or would be were it smaller; its last is not.
        if access.ends_with("16") || access.ends_with("32") || access.ends_with('8') {
            cases.push(
                case(
                    format!("straddles/{access}"),
                    ILLEGAL_ADDRESS,
                    kernel("", instruction),
                )
                .arguments(|| unsafe { [memory(4100) + 4096, 0, 0] }),
            );
        }
    }
    cases.extend(windows());
    cases.extend(constants());
    cases
}

/// Shared and local memory, and parameters.
fn windows() -> Vec<Case> {
    let tile = ".shared .align 16 .b8 tile[64];\n.extern .shared .align 16 .b8 dynamic[];";
    let depot = ".local .align 16 .b8 depot[64];";
    let shared = |name: &str, answer, body: &str| {
        [
            case(format!("shared/{name}/loop"), answer, kernel(tile, body)).shared(128),
            case(
                format!("shared/{name}/fiber"),
                answer,
                waiting_kernel(tile, body),
            )
            .shared(128)
            .grid(2, 64),
        ]
    };
    let mut cases = vec![];
    cases.extend(shared(
        "static_past",
        ILLEGAL_ADDRESS,
        "st.shared.u32 [tile+4096], 1;",
    ));
    cases.extend(shared(
        "static_before",
        ILLEGAL_ADDRESS,
        "st.shared.u32 [tile+-4], 1;",
    ));
    cases.extend(shared(
        "dynamic_past",
        ILLEGAL_ADDRESS,
        "mov.u32 %r1, dynamic; st.shared.v2.u32 [%r1+128], {%r1, %r1};",
    ));
    cases.extend(shared(
        "straddles",
        ILLEGAL_ADDRESS,
        "mov.u32 %r1, dynamic; add.u32 %r1, %r1, 124; atom.shared.add.u64 %rd1, [%r1+4], 1;",
    ));
    cases.extend(shared(
        "negative_32",
        ILLEGAL_ADDRESS,
        "mov.u32 %r1, -16; ld.shared.u32 %r2, [%r1]; st.shared.u32 [tile], %r2;",
    ));
    cases.extend(shared(
        "negative_64",
        ILLEGAL_ADDRESS,
        "mov.u64 %rd1, -16; st.shared.u32 [%rd1], 5;",
    ));
    cases.extend(shared(
        "huge_64",
        ILLEGAL_ADDRESS,
        "mov.u64 %rd1, 0x7FFFFFFFFFFFFFF0; st.shared.u32 [%rd1], 5;",
    ));
    cases.extend(shared(
        "global_as_shared",
        ILLEGAL_ADDRESS,
        "st.shared.u32 [%a], 5;",
    ));
    cases.extend(shared(
        "misaligned",
        MISALIGNED_ADDRESS,
        "mov.u32 %r1, tile; st.shared.u32 [%r1+2], 5;",
    ));
    cases.extend(shared(
        "generic_past",
        ILLEGAL_ADDRESS,
        "mov.u64 %rd1, tile; cvta.shared.u64 %rd2, %rd1; st.u32 [%rd2+1048576], 5;",
    ));
    cases.extend(shared(
        "generic_before",
        ILLEGAL_ADDRESS,
        "mov.u64 %rd1, tile; cvta.shared.u64 %rd2, %rd1; ld.u32 %r1, [%rd2+-64]; st.global.u32 [%a], %r1;",
    ));
    cases.extend(shared(
        "generic_misaligned",
        MISALIGNED_ADDRESS,
        "mov.u64 %rd1, tile; cvta.shared.u64 %rd2, %rd1; red.add.u32 [%rd2+1], 5;",
    ));
    cases.extend(shared(
        "walks_off",
        ILLEGAL_ADDRESS,
        "mov.u32 %r1, tile; $more: st.shared.u32 [%r1], %t; add.u32 %r1, %r1, 4; bra $more;",
    ));
    for (mode, make) in [
        ("loop", kernel as fn(&str, &str) -> String),
        ("fiber", waiting_kernel),
    ] {
        let local = |name: &str, answer, body: &str| {
            case(
                format!("local/{name}/{mode}"),
                answer,
                make("", &format!("{depot} mov.u64 %rd1, depot; {body}")),
            )
            .grid(1, 33)
        };
        cases.push(local(
            "past",
            ILLEGAL_ADDRESS,
            "st.local.u32 [%rd1+16777216], 1;",
        ));
        cases.push(local(
            "before",
            ILLEGAL_ADDRESS,
            "st.local.u32 [%rd1+-16], 1;",
        ));
        cases.push(local(
            "wraps",
            ILLEGAL_ADDRESS,
            "add.u64 %rd1, %rd1, 0xFFFFFFFFFFFFFF00; ld.local.u32 %r1, [%rd1]; st.local.u32 [depot], %r1;",
        ));
        cases.push(local(
            "generic_past",
            ILLEGAL_ADDRESS,
            "cvta.local.u64 %rd2, %rd1; st.u8 [%rd2+33554432], 1;",
        ));
        cases.push(local(
            "misaligned",
            MISALIGNED_ADDRESS,
            "st.local.u64 [%rd1+4], %rd1;",
        ));
        cases.push(local(
            "walks_off",
            ILLEGAL_ADDRESS,
            "$more: st.local.u32 [%rd1], %t; add.u64 %rd1, %rd1, 4; bra $more;",
        ));
        cases.push(local(
            "generic_walks_off",
            ILLEGAL_ADDRESS,
            "cvta.local.u64 %rd2, %rd1; $more: st.v2.u32 [%rd2], {%t, %t}; add.u64 %rd2, %rd2, 8; bra $more;",
        ));
        // Another thread's local memory is not this one's.
        cases.push(local(
            "of_another",
            ILLEGAL_ADDRESS,
            "setp.ne.u32 %p1, %t, 0; cvta.local.u64 %rd2, %rd1; add.u64 %rd3, %rd2, 1048576; @!%p1 st.global.u64 [%a], %rd3;
             ld.global.u64 %rd4, [%a]; st.u32 [%rd4], 1;",
        ));
    }
    cases.push(case(
        "param/generic_write",
        ILLEGAL_ADDRESS,
        kernel(
            "",
            "mov.u64 %rd1, pa; cvta.param.u64 %rd2, %rd1; st.u32 [%rd2], 1;",
        ),
    ));
    cases.push(case(
        "param/generic_past",
        ILLEGAL_ADDRESS,
        kernel(
            "",
            "mov.u64 %rd1, pa; cvta.param.u64 %rd2, %rd1; ld.u32 %r1, [%rd2+65536]; st.u32 [%a], %r1;",
        ),
    ));
    cases.push(case(
        "param/register_past",
        ILLEGAL_ADDRESS,
        kernel(
            "",
            "mov.u64 %rd1, 1000000; ld.param.u32 %r1, [%rd1]; st.u32 [%a], %r1;",
        ),
    ));
    cases
}

/// Constant memory, variables of modules, and memory of the host.
fn constants() -> Vec<Case> {
    let table =
        ".const .align 8 .b8 table[64] = {1, 2, 3};\n.visible .global .align 4 .b8 global[100];";
    let of = |name: &str, answer, body: &str| {
        case(format!("module/{name}"), answer, kernel(table, body))
    };
    vec![
        of(
            "constant_write",
            ILLEGAL_ADDRESS,
            "mov.u64 %rd1, table; cvta.const.u64 %rd2, %rd1; st.u32 [%rd2], 1;",
        ),
        of("constant_write_global", ILLEGAL_ADDRESS, "mov.u64 %rd1, table; st.global.u32 [%rd1], 1;"),
        of("constant_atomic", ILLEGAL_ADDRESS, "mov.u64 %rd1, table; red.global.add.u32 [%rd1], 1;"),
        of("constant_past", ILLEGAL_ADDRESS, "ld.const.u32 %r1, [table+64]; st.u32 [%a], %r1;"),
        of("constant_wild", ILLEGAL_ADDRESS, "ld.const.u32 %r1, [%b]; st.u32 [%a], %r1;"),
        of("global_past", ILLEGAL_ADDRESS, "st.global.u32 [global+100], 1;"),
        of("global_straddles", MISALIGNED_ADDRESS, "st.global.u32 [global+98], 1;"),
        of("global_before", ILLEGAL_ADDRESS, "ld.global.u32 %r1, [global+-4]; st.u32 [%a], %r1;"),
        // What was read through a site before does not let a write through.
        of(
            "constant_read_then_write",
            ILLEGAL_ADDRESS,
            "mov.u64 %rd1, %a; mov.u32 %r1, 0;
             $more: st.u32 [%rd1], %r1; add.u32 %r1, %r1, 1; mov.u64 %rd1, table; setp.lt.u32 %p1, %r1, 3; @%p1 bra $more;",
        ),
        case("host/registered", SUCCESS, kernel("", "st.global.u32 [%a], 77;"))
            .arguments(|| [registered(), 0, 0]),
        case("host/registered_past", ILLEGAL_ADDRESS, kernel("", "st.global.u32 [%a+64], 77;"))
            .arguments(|| [registered(), 0, 0]),
        case("host/registered_before", ILLEGAL_ADDRESS, kernel("", "st.global.u32 [%a+-4], 77;"))
            .arguments(|| [registered(), 0, 0]),
        case("host/unregistered", ILLEGAL_ADDRESS, kernel("", "st.global.u32 [%a], 77;")).arguments(|| {
            let pointer = registered();
            unsafe { cuMemHostUnregister(pointer as *mut _).must() };
            [pointer, 0, 0]
        }),
        // One block fails while others go on for long.
        case(
            "blocks/one_of_many",
            ILLEGAL_ADDRESS,
            kernel(
                "",
                "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 500; @%p1 st.global.u32 [%b], 1;
                 mov.u32 %r2, 0; $more: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 20000; @%p2 bra $more;
                 st.global.u32 [%a], %r2;",
            ),
        )
        .grid(1000, 64),
        case(
            "blocks/one_of_many_fibers",
            ILLEGAL_ADDRESS,
            kernel(
                "",
                "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 100; mov.u32 %r2, 0;
                 $more: bar.sync 0; add.u32 %r2, %r2, 1; @%p1 st.global.u32 [%b], 1;
                 setp.lt.u32 %p2, %r2, 100; @%p2 bra $more; st.global.u32 [%a], %r2;",
            ),
        )
        .grid(200, 96),
    ]
}
