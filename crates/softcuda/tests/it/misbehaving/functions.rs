//! Functions of the device, called wrongly: `printf`, `assert`, `malloc`, `free`. And arithmetic
//! that has no answer.

use super::*;

const PRINTF: &str = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 args);
.visible .global .align 8 .b8 text[64] = {37, 100, 10, 0};
.visible .global .align 8 .b8 open[4] = {65, 65, 65, 65};";

/// Prints what the format at `%rd1` says of the arguments at `%rd2`.
const PRINT: &str = "{
        .param .b64 f;
        .param .b64 args;
        .param .b32 r;
        st.param.b64 [f], %rd1;
        st.param.b64 [args], %rd2;
        call.uni (r), vprintf, (f, args);
        ld.param.b32 %r1, [r];
    }
    st.global.u32 [%a+128], %r1;";

const HEAP: &str = ".extern .func (.param .b64 r) malloc(.param .b64 size);
.extern .func free(.param .b64 p);";

/// Allocates `%rd1` bytes; the address is in `%rd2`.
const MALLOC: &str = "{
        .param .b64 size;
        .param .b64 r;
        st.param.b64 [size], %rd1;
        call.uni (r), malloc, (size);
        ld.param.b64 %rd2, [r];
    }";

/// Frees what is at `%rd2`.
const FREE: &str = "{
        .param .b64 p;
        st.param.b64 [p], %rd2;
        call.uni free, (p);
    }";

/// The bytes of a format, in a variable of the module.
fn format(text: &str) -> String {
    let bytes: Vec<String> = text
        .bytes()
        .chain([0])
        .map(|byte| byte.to_string())
        .collect();
    format!(
        "{PRINTF}\n.visible .global .align 8 .b8 said[{}] = {{{}}};",
        bytes.len(),
        bytes.join(", ")
    )
}

/// Prints with a format of the test's own, and arguments in the kernel's buffer: the buffer's own
/// address first.
fn prints(name: &str, answer: u32, text: &str) -> Case {
    case(
        format!("printf/{name}"),
        answer,
        kernel(
            &format(text),
            &format!("st.global.u64 [%a], %a; mov.u64 %rd1, said; mov.u64 %rd2, %a;\n{PRINT}"),
        ),
    )
}

pub fn cases() -> Vec<Case> {
    let printf = |name: &str, answer, body: &str| {
        case(
            format!("printf/{name}"),
            answer,
            kernel(PRINTF, &format!("{body}\n{PRINT}")),
        )
    };
    let heap = |name: &str, answer, body: &str| {
        case(
            format!("heap/{name}"),
            answer,
            kernel(HEAP, &body.replace("MALLOC", MALLOC).replace("FREE", FREE)),
        )
    };
    let mut cases = vec![
        printf("format_null", SUCCESS, "mov.u64 %rd1, 0; mov.u64 %rd2, 0;"),
        printf("format_wild", ILLEGAL_ADDRESS, "mov.u64 %rd1, 4096; mov.u64 %rd2, 0;"),
        printf("format_huge", ILLEGAL_ADDRESS, "mov.u64 %rd1, -1; mov.u64 %rd2, 0;"),
        printf(
            "format_without_an_end",
            ILLEGAL_ADDRESS,
            "mov.u64 %rd1, open; mov.u64 %rd2, 0;",
        ),
        printf(
            "format_in_local_memory",
            SUCCESS,
            ".local .align 8 .b8 l[16]; st.local.u64 [l], 0x0A6425; mov.u64 %rd3, l; cvta.local.u64 %rd1, %rd3;
             mov.u64 %rd2, %a;",
        ),
        printf("arguments_null", ILLEGAL_ADDRESS, "mov.u64 %rd1, text; mov.u64 %rd2, 0;"),
        printf("arguments_wild", ILLEGAL_ADDRESS, "mov.u64 %rd1, text; mov.u64 %rd2, -4;"),
        printf(
            "arguments_end",
            ILLEGAL_ADDRESS,
            "mov.u64 %rd1, text; add.u64 %rd2, %a, 4094;",
        ),
        case(
            "printf/string_wild",
            ILLEGAL_ADDRESS,
            kernel(
                &format("%d %s\n"),
                &format!("st.global.u64 [%a+8], 4096; mov.u64 %rd1, said; mov.u64 %rd2, %a;\n{PRINT}"),
            ),
        ),
        prints("string_null", SUCCESS, "%p %s %s\n"),
        prints("string_of_itself", SUCCESS, "[%s]\n"),
        prints("count_written", SUCCESS, "%n%hhn%lln\n"),
        prints("giant_width", SUCCESS, "%1000000000d\n"),
        prints("giant_precision", SUCCESS, "%.1000000000f\n"),
        prints("overflowing_width", SUCCESS, "%99999999999999999999999999d%.99999999999999999999s\n"),
        prints("width_from_arguments", SUCCESS, "%*.*d\n%-*d%+-0 #*x\n"),
        prints("odd_conversions", SUCCESS, "%%%%%%%q%y%l%hhhhhd%lllllld%LLf%#+-0 5.3e%"),
        prints("more_arguments_than_there_are", ILLEGAL_ADDRESS, &"%lld".repeat(600)),
        prints("many_conversions", SUCCESS, &"%c%4096d%.4096e".repeat(80)),
        case(
            "printf/from_many_threads",
            SUCCESS,
            waiting_kernel(
                &format("%s%d %f %lld\n"),
                &format!("mov.u64 %rd1, said; add.u64 %rd2, %a, 1024;\n{PRINT}"),
            ),
        )
        .grid(50, 256),
        // Tens of gigabytes, if all of it were kept.
        case(
            "printf/without_end",
            SUCCESS,
            kernel(
                &format("%4000d%4000d%4000d%4000d%4000d%4000d%4000d%4000d\n"),
                &format!(
                    "mov.u64 %rd1, said; mov.u64 %rd2, %a; mov.u32 %r2, 0;
                     $more: {PRINT} add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 4000; @%p1 bra $more;"
                ),
            ),
        ),
        heap("null_is_freed", SUCCESS, "mov.u64 %rd2, 0; FREE"),
        heap("nothing", SUCCESS, "mov.u64 %rd1, 0; MALLOC FREE"),
        heap("too_much", SUCCESS, "mov.u64 %rd1, -1; MALLOC st.global.u64 [%a], %rd2;").result(0),
        heap(
            "exhausted",
            SUCCESS,
            "mov.u64 %rd1, 1000; $more: MALLOC setp.ne.u64 %p1, %rd2, 0; @%p1 st.u64 [%rd2], %rd2; @%p1 bra $more;
             st.global.u64 [%a], %rd2;",
        )
        .grid(8, 32)
        .result(0),
        heap("free_wild", LAUNCH_FAILED, "mov.u64 %rd2, 4096; FREE"),
        heap("free_huge", LAUNCH_FAILED, "mov.u64 %rd2, -16; FREE"),
        heap("free_not_its_own", LAUNCH_FAILED, "mov.u64 %rd2, %a; FREE"),
        heap("free_inside", LAUNCH_FAILED, "mov.u64 %rd1, 64; MALLOC add.u64 %rd2, %rd2, 16; FREE"),
        heap("free_twice", LAUNCH_FAILED, "mov.u64 %rd1, 64; MALLOC FREE FREE"),
        heap(
            "used_after_free",
            ILLEGAL_ADDRESS,
            "mov.u64 %rd1, 64; MALLOC st.u32 [%rd2], 1; FREE st.u32 [%rd2], 1;",
        ),
        heap("past_the_end", ILLEGAL_ADDRESS, "mov.u64 %rd1, 64; MALLOC st.u32 [%rd2+64], 1;"),
        case("trap", LAUNCH_FAILED, kernel("", "trap;")),
        case("trap/in_a_fiber", LAUNCH_FAILED, waiting_kernel("", "setp.eq.u32 %p1, %t, 77; @%p1 trap; bar.sync 0;")).grid(4, 128),
        case(
            "assert",
            ASSERT,
            kernel(
                ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 u, .param .b64 s);
                 .visible .global .align 1 .b8 words[4] = {110, 111, 33, 0};",
                ASSERTS,
            ),
        )
        .grid(8, 64),
        case(
            "assert/wild_message",
            ILLEGAL_ADDRESS,
            kernel(
                ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 u, .param .b64 s);
                 .visible .global .align 1 .b8 words[4] = {110, 111, 33, 0};",
                &ASSERTS.replace("mov.u64 %rd1, words;", "mov.u64 %rd1, 64;"),
            ),
        ),
    ];
    for (ty, register) in [
        ("u16", "%h"),
        ("s16", "%h"),
        ("u32", "%r"),
        ("s32", "%r"),
        ("u64", "%rd"),
        ("s64", "%rd"),
    ] {
        // A division by zero gives ones, and so does its remainder; the least by -1 gives itself,
        // with no remainder.
        let least = match ty {
            "s16" => "0x8000",
            "s32" => "0x80000000",
            _ => "0x8000000000000000",
        };
        cases.push(
            case(
                format!("division/{ty}"),
                SUCCESS,
                kernel(
                    "",
                    &format!(
                        "cvt.{ty}.u64 {register}1, %b; cvt.{ty}.u64 {register}2, %c;
                         div.{ty} {register}3, {register}2, {register}1;
                         rem.{ty} {register}4, {register}2, {register}1;
                         and.b{bits} {register}3, {register}3, {register}4;
                         mov.b{bits} {register}5, {least}; mov.b{bits} {register}6, -1;
                         div.{ty} {register}2, {register}5, {register}6;
                         rem.{ty} {register}1, {register}5, {register}6;
                         not.b{bits} {register}3, {register}3;
                         cvt.u32.{ty} %r7, {register}3; st.global.u32 [%a], %r7;",
                        bits = &ty[1..]
                    ),
                ),
            )
            .arguments(|| [buffer(), 0, 12345])
            .result(0),
        );
    }
    cases
}

const ASSERTS: &str = "mov.u64 %rd1, words; mov.u64 %rd2, words; setp.ne.u32 %p1, %t, 0; @%p1 bra $fine;
    {
        .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 u; .param .b64 s;
        st.param.b64 [m], %rd1; st.param.b64 [f], %rd2; st.param.b32 [l], 7; st.param.b64 [u], %rd2; st.param.b64 [s], 1;
        call.uni __assertfail, (m, f, l, u, s);
    }
    $fine:";
