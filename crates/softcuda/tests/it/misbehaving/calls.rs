//! Calls and jumps that go wrong: recursion without end, pointers to no function, tables left
//! behind; and stacks as such.

use super::*;

/// A function that calls itself until its parameter is zero, with this much local memory in its
/// frame, and so many registers that live across the call.
fn recursive(local: u32, live: u32) -> String {
    let mut before = String::new();
    let mut after = String::new();
    for n in 0..live {
        before += &format!("mad.lo.u64 %live{n}, %n, {}, {n};\n", 2 * n + 3);
        after += &format!("xor.b64 %sum, %sum, %live{n};\n");
    }
    let depot = match local {
        0 => String::new(),
        size => format!(
            ".local .align 16 .b8 depot[{size}]; st.local.u64 [depot+{}], %n;",
            size - 8
        ),
    };
    format!(
        ".func (.param .b64 out) deeper(.param .b64 in)
{{
    .reg .pred %p;
    .reg .b64 %n, %m, %sum, %got, %live<{live}>;
    ld.param.b64 %n, [in];
    {depot}
    mov.u64 %sum, %n;
    setp.eq.u64 %p, %n, 0;
    @%p bra $end;
    {before}
    sub.u64 %m, %n, 1;
    {{
        .param .b64 argument;
        .param .b64 result;
        st.param.b64 [argument], %m;
        call.uni (result), deeper, (argument);
        ld.param.b64 %got, [result];
    }}
    add.u64 %sum, %sum, %got;
    {after}
$end:
    st.param.b64 [out], %sum;
    ret;
}}"
    )
}

const CALL: &str = "{
        .param .b64 argument;
        .param .b64 result;
        st.param.b64 [argument], %c;
        call.uni (result), deeper, (argument);
        ld.param.b64 %rd1, [result];
    }
    st.global.u32 [%a], %rd1;";

const FOR_EVER: fn() -> [u64; 3] = || [buffer(), 0, u64::MAX];

const POINTED: &str = ".func (.param .b32 out) plus(.param .b32 in)
{
    .reg .b32 %r;
    ld.param.b32 %r, [in];
    add.u32 %r, %r, 1;
    st.param.b32 [out], %r;
    ret;
}
.func (.param .b32 out) wide(.param .align 8 .b8 in[64])
{
    .reg .b32 %r;
    ld.param.b32 %r, [in+60];
    st.param.b32 [out], %r;
    ret;
}
.visible .global .u64 table[2] = {plus, wide};
.visible .global .align 8 .b8 data[64];";

/// Calls what is at `%rd1` as a function from a word to a word.
const THROUGH: &str = "{
        .param .b32 argument;
        .param .b32 result;
        st.param.b32 [argument], 41;
        shape: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (result), %rd1, (argument), shape;
        ld.param.b32 %r1, [result];
    }
    st.global.u32 [%a], %r1;";

pub fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (mode, make) in [
        ("loop", kernel as fn(&str, &str) -> String),
        ("fiber", waiting_kernel),
    ] {
        for (local, live) in [
            (0, 0),
            (16, 4),
            (4096, 0),
            (100_000, 0),
            (0, 300),
            (64, 1900),
        ] {
            cases.push(
                case(
                    format!("recursion/endless_{local}_{live}/{mode}"),
                    ILLEGAL_ADDRESS,
                    make(&recursive(local, live), CALL),
                )
                .arguments(FOR_EVER)
                .grid(3, 40),
            );
        }
        cases.push(
            case(
                format!("recursion/endless_with_the_largest_stack/{mode}"),
                ILLEGAL_ADDRESS,
                make(&recursive(0, 8), CALL),
            )
            .arguments(FOR_EVER)
            .before(|| unsafe { cuCtxSetLimit(0, 256 << 10).must() })
            .grid(2, 256),
        );
        // Deep, but not without end.
        cases.push(
            case(
                format!("recursion/deep/{mode}"),
                SUCCESS,
                make(&recursive(0, 0), CALL),
            )
            .arguments(|| [buffer(), 0, 200])
            .result(200 * 201 / 2),
        );
        for (name, pointer, answer) in [
            ("right", "ld.global.u64 %rd1, [table];", SUCCESS),
            ("null", "mov.u64 %rd1, 0;", INVALID_PC),
            ("small", "mov.u64 %rd1, 8;", INVALID_PC),
            ("ones", "mov.u64 %rd1, -1;", INVALID_PC),
            ("data", "mov.u64 %rd1, data;", INVALID_PC),
            ("buffer", "mov.u64 %rd1, %a;", INVALID_PC),
            (
                "beside",
                "mov.u64 %rd1, plus; add.u64 %rd1, %rd1, 1;",
                INVALID_PC,
            ),
            (
                "below",
                "mov.u64 %rd1, plus; sub.u64 %rd1, %rd1, 16;",
                INVALID_PC,
            ),
            (
                "beyond",
                "mov.u64 %rd1, plus; add.u64 %rd1, %rd1, 1600;",
                INVALID_PC,
            ),
            ("other_signature", "mov.u64 %rd1, wide;", INVALID_PC),
            ("host_code", "mov.u64 %rd1, %c;", INVALID_PC),
        ] {
            cases.push(
                case(
                    format!("pointer/{name}/{mode}"),
                    answer,
                    make(POINTED, &format!("{pointer}\n{THROUGH}")),
                )
                .arguments(|| [buffer(), 0, buffer as *const () as u64])
                .result(42),
            );
        }
    }
    cases.push(
        case(
            "pointer/of_another_module",
            INVALID_PC,
            kernel(POINTED, &format!("mov.u64 %rd1, %c;\n{THROUGH}")),
        )
        .arguments(|| unsafe {
            let other = module_of(&kernel(POINTED, "st.global.u32 [%a], 1;"));
            let (mut table, mut size, mut pointer) = (0, 0, 0u64);
            cuModuleGetGlobal_v2(&mut table, &mut size, other, c"table".as_ptr()).must();
            cuMemcpyDtoH_v2(void(&mut pointer), table, 8).must();
            [buffer(), 0, pointer]
        }),
    );
    // A table of the module that a kernel has written over.
    cases.push(case(
        "pointer/overwritten",
        INVALID_PC,
        kernel(
            POINTED,
            &format!("st.global.u64 [table], 12345; ld.global.u64 %rd1, [table];\n{THROUGH}"),
        ),
    ));
    for (name, index, answer) in [
        ("within", "mov.u32 %r1, 1;", SUCCESS),
        ("past", "mov.u32 %r1, 3;", INVALID_PC),
        ("negative", "mov.u32 %r1, -1;", INVALID_PC),
        ("huge", "mov.u32 %r1, 0x80000000;", INVALID_PC),
    ] {
        cases.push(
            case(
                format!("jump/{name}"),
                answer,
                kernel(
                    "",
                    &format!(
                        "{index}
                        labels: .branchtargets $zero, $one, $two;
                        brx.idx %r1, labels;
                        $zero: st.global.u32 [%a], 10; ret;
                        $one: st.global.u32 [%a], 11; ret;
                        $two: st.global.u32 [%a], 12;"
                    ),
                ),
            )
            .result(11),
        );
    }
    // A frame of the kernel itself that is far larger than what it asks for.
    let mut many = String::from(".reg .b64 %live<2500>;\n");
    for n in 0..2500 {
        many += &format!("ld.volatile.global.u64 %live{n}, [%a+{}];\n", n % 512 * 8);
    }
    many += "mov.u64 %rd1, 0;\nbar.sync 0;\n";
    for n in 0..2500 {
        many += &format!("mad.lo.u64 %rd1, %rd1, 3, %live{n};\n");
    }
    many += "st.global.u32 [%a], 5;";
    cases.push(
        case(
            "stack/kernel_of_many_registers/fiber",
            SUCCESS,
            kernel("", &many),
        )
        .grid(2, 64)
        .result(5),
    );
    cases.push(
        case(
            "stack/kernel_of_many_registers/loop",
            SUCCESS,
            kernel("", &many.replace("bar.sync 0;", "")),
        )
        .grid(2, 64)
        .result(5),
    );
    // All threads of a full block, each deep in calls.
    cases.push(
        case(
            "stack/full_blocks",
            SUCCESS,
            waiting_kernel(
                &recursive(64, 8),
                &CALL.replace("st.global.u32 [%a], %rd1;", "bar.sync 0;"),
            ),
        )
        .arguments(|| [buffer(), 0, 60])
        .before(|| unsafe { cuCtxSetLimit(0, 64 << 10).must() })
        .grid(4, 1024),
    );
    cases.push(
        case(
            "stack/full_blocks_without_end",
            ILLEGAL_ADDRESS,
            waiting_kernel(&recursive(64, 8), CALL),
        )
        .arguments(FOR_EVER)
        .before(|| unsafe { cuCtxSetLimit(0, 128 << 10).must() })
        .grid(4, 1024),
    );
    cases.push(
        case(
            "shared/too_much_dynamic",
            INVALID_VALUE,
            kernel(
                ".extern .shared .b8 dynamic[];",
                "st.shared.u8 [dynamic], 1;",
            ),
        )
        .shared(u32::MAX),
    );
    cases.push(
        case(
            "shared/one_more_than_allowed",
            INVALID_VALUE,
            kernel(
                ".extern .shared .b8 dynamic[];",
                "st.shared.u8 [dynamic], 1;",
            ),
        )
        .shared(48 * 1024 + 1),
    );
    cases
}
