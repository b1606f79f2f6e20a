//! Functions: direct, recursive and indirect calls, their parameters, frames and ends.

use crate::grid::launch::{Fault, FaultKind};
use crate::jit::harness::{self, buffer};
use crate::jit::module::{LoadOptions, Module};

/// Each thread stores `f(tid, n)` to its output.
fn run(functions: &str, threads: u32, n: u64) -> Result<Vec<u32>, Fault> {
    let source = harness::module(&format!(
        "{functions}
.visible .entry k(.param .u64 out, .param .u64 n)
{{
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [n];
    mov.u32 %r1, %tid.x;
    {{
        .param .b32 param0;
        .param .b64 param1;
        .param .b32 retval0;
        st.param.b32 [param0+0], %r1;
        st.param.b64 [param1+0], %rd2;
        call.uni (retval0), f, (param0, param1);
        ld.param.b32 %r2, [retval0+0];
    }}
    mad.wide.u32 %rd3, %r1, 4, %rd1;
    st.global.u32 [%rd3], %r2;
    ret;
}}"
    ));
    let mut out = vec![0u32; threads as usize];
    harness::run(
        &source,
        "k",
        [1, 1, 1],
        [threads, 1, 1],
        &mut [buffer(&mut out)],
        &[&n.to_le_bytes()],
    )?;
    Ok(out)
}

const HEAD: &str =
    ".func (.param .b32 func_retval0) f(.param .b32 f_param_0, .param .b64 f_param_1)";
const REGISTERS: &str = ".reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .pred %p<4>;
    ld.param.u32 %r1, [f_param_0]; ld.param.u64 %rd1, [f_param_1];";

#[test]
fn direct() {
    let f = format!(
        "{HEAD} {{ {REGISTERS} cvt.u32.u64 %r2, %rd1; mad.lo.u32 %r3, %r1, %r2, 1; st.param.b32 [func_retval0+0], %r3; ret; }}"
    );
    assert_eq!(run(&f, 5, 10).unwrap(), [1, 11, 21, 31, 41]);
}

#[test]
fn recursive_with_frames() {
    // fib by naive recursion; each level keeps its argument in its own frame, across both calls.
    let f = format!(
        ".func (.param .b32 r) fib(.param .b32 n);
.func (.param .b32 r) fib(.param .b32 n)
{{
    .reg .b32 %r<8>; .reg .pred %p; .reg .b64 %rd<4>;
    .local .align 8 .b8 depot[8];
    mov.u64 %rd1, depot; cvta.local.u64 %rd2, %rd1;
    ld.param.u32 %r1, [n]; st.u32 [%rd2+4], %r1;
    setp.lt.u32 %p, %r1, 2; @%p st.param.b32 [r], %r1; @%p ret;
    {{ .param .b32 a; .param .b32 b; sub.u32 %r2, %r1, 1; st.param.b32 [a], %r2; call (b), fib, (a); ld.param.b32 %r3, [b]; }}
    {{ .param .b32 a; .param .b32 b; ld.local.u32 %r2, [depot+4]; sub.u32 %r2, %r2, 2; st.param.b32 [a], %r2; call (b), fib, (a); ld.param.b32 %r4, [b]; }}
    add.u32 %r5, %r3, %r4; st.param.b32 [r], %r5; ret;
}}
{HEAD} {{ {REGISTERS} {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), fib, (a); ld.param.b32 %r2, [b]; }}
    st.param.b32 [func_retval0+0], %r2; ret; }}"
    );
    assert_eq!(
        run(&f, 12, 0).unwrap(),
        [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
    );
}

#[test]
fn endless_recursion_overflows() {
    for frame in ["", ".local .b8 big[1024];", ".local .b8 big[131072];"] {
        let f = format!(
            ".func (.param .b32 func_retval0) f(.param .b32 f_param_0, .param .b64 f_param_1);
{HEAD} {{ {frame} {REGISTERS} {{ .param .b32 a; .param .b64 b; .param .b32 c; st.param.b32 [a], %r1; st.param.b64 [b], %rd1;
    call (c), f, (a, b); ld.param.b32 %r2, [c]; }} add.u32 %r2, %r2, 1; st.param.b32 [func_retval0+0], %r2; ret; }}"
        );
        assert_eq!(
            run(&f, 3, 0).unwrap_err().kind,
            FaultKind::StackOverflow,
            "{frame}"
        );
    }
}

#[test]
fn ends_inside() {
    // exit ends the thread, not the block; the frame of the function that it left is given back.
    let f = format!(
        "{HEAD} {{ .local .b8 big[4096]; {REGISTERS} and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 exit; add.u32 %r2, %r1, 50; st.param.b32 [func_retval0+0], %r2; ret; }}"
    );
    let wanted: Vec<u32> = (0..64)
        .map(|n| if n % 2 == 1 { 0 } else { n + 50 })
        .collect();
    assert_eq!(run(&f, 64, 0).unwrap(), wanted);
    let f = format!("{HEAD} {{ {REGISTERS} setp.eq.u32 %p1, %r1, 2; @%p1 trap; ret; }}");
    let fault = run(&f, 4, 0).unwrap_err();
    assert_eq!(
        (fault.kind, fault.thread),
        (FaultKind::Trap, Some([2, 0, 0]))
    );
    let f = format!("{HEAD} {{ {REGISTERS} ld.u32 %r2, [%rd1]; ret; }}");
    assert_eq!(run(&f, 4, 64).unwrap_err().kind, FaultKind::IllegalAddress);
}

#[test]
fn special_registers_inside() {
    let f = format!(
        "{HEAD} {{ {REGISTERS} mov.u32 %r2, %tid.x; mov.u32 %r3, %laneid; mad.lo.u32 %r2, %r2, 1000, %r3; st.param.b32 [func_retval0+0], %r2; ret; }}"
    );
    let wanted: Vec<u32> = (0..70).map(|n| n * 1000 + n % 32).collect();
    assert_eq!(run(&f, 70, 0).unwrap(), wanted);
}

const TWO: &str = "
.func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %r<3>; ld.param.u32 %r1, [a]; add.u32 %r1, %r1, %r1; st.param.b32 [r], %r1; ret; }
.func (.param .b32 r) square(.param .b32 a) { .reg .b32 %r<3>; ld.param.u32 %r1, [a]; mul.lo.u32 %r1, %r1, %r1; st.param.b32 [r], %r1; ret; }
.func (.param .b64 r) other(.param .b64 a) { st.param.b64 [r], 3; ret; }
.global .align 8 .u64 table[2] = { twice, square };
.visible .global .align 8 .u64 wrong[1] = { other };";

fn indirect(pointer: &str, n: u64) -> Result<Vec<u32>, Fault> {
    let f = format!(
        "{TWO} {HEAD} {{ {REGISTERS} {pointer}
    {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (b), %rd4, (a), proto; ld.param.b32 %r2, [b]; }}
    st.param.b32 [func_retval0+0], %r2; ret; }}"
    );
    run(&f, 4, n)
}

#[test]
fn through_pointers() {
    let from_table = "and.b32 %r5, %r1, 1; mul.wide.u32 %rd5, %r5, 8; mov.u64 %rd6, table; add.u64 %rd5, %rd5, %rd6; ld.global.u64 %rd4, [%rd5];";
    assert_eq!(indirect(from_table, 0).unwrap(), [0, 1, 4, 9]);
    assert_eq!(indirect("mov.u64 %rd4, square;", 0).unwrap(), [0, 1, 4, 9]);
    let targets = format!(
        "{TWO} {HEAD} {{ {REGISTERS} mov.u64 %rd4, twice;
    {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; list: .calltargets twice, square;
    call (b), %rd4, (a), list; ld.param.b32 %r2, [b]; }}
    st.param.b32 [func_retval0+0], %r2; ret; }}"
    );
    assert_eq!(run(&targets, 4, 0).unwrap(), [0, 2, 4, 6]);
}

#[test]
fn wild_pointers() {
    for n in [0, 1, 8, 16, 0x7fff_0000_0000, u64::MAX, 1 << 62] {
        assert_eq!(
            indirect("mov.u64 %rd4, %rd1;", n).unwrap_err().kind,
            FaultKind::InvalidPc,
            "{n:#x}"
        );
    }
    for pointer in [
        "mov.u64 %rd4, square; add.u64 %rd4, %rd4, 1;",
        "mov.u64 %rd4, square; add.u64 %rd4, %rd4, 0x10000;",
        "mov.u64 %rd4, twice; sub.u64 %rd4, %rd4, 16;",
        "mov.u64 %rd4, table;",
        // A function with another signature, and a kernel's address.
        "ld.global.u64 %rd4, [wrong];",
    ] {
        assert_eq!(
            indirect(pointer, 0).unwrap_err().kind,
            FaultKind::InvalidPc,
            "{pointer}"
        );
    }
}

#[test]
fn register_parameters_and_immediates() {
    let f = format!(
        ".func (.reg .b32 out) sum(.reg .b32 a, .reg .b64 b, .reg .f32 c) {{ .reg .b32 %r<4>; cvt.u32.u64 %r1, b; cvt.rzi.u32.f32 %r2, c; add.u32 out, a, %r1; add.u32 out, out, %r2; ret; }}
{HEAD} {{ {REGISTERS} .reg .f32 %f1; cvt.rn.f32.u32 %f1, %r1; call (%r2), sum, (%r1, 100, %f1); st.param.b32 [func_retval0+0], %r2; ret; }}"
    );
    assert_eq!(run(&f, 3, 0).unwrap(), [100, 102, 104]);
}

#[test]
fn parameters_in_memory() {
    // A structure by value, of which the callee takes the address, changes it, and the caller's
    // stays.
    let f = format!(
        ".func (.param .align 4 .b8 r[12]) swap(.param .b8 x, .param .align 4 .b8 s[12]) {{
    .reg .b32 %r<8>; .reg .b64 %rd<4>; mov.b64 %rd1, s; cvta.local.u64 %rd2, %rd1; ld.u32 %r1, [%rd2]; ld.local.u32 %r2, [%rd1+4];
    st.u32 [%rd2], 1000; ld.param.u32 %r3, [s]; ld.param.u8 %r4, [x]; add.u32 %r3, %r3, %r4;
    st.param.b32 [r], %r2; st.param.b32 [r+4], %r1; st.param.b32 [r+8], %r3; ret; }}
{HEAD} {{ {REGISTERS} {{ .param .b8 x; .param .align 4 .b8 s[12]; .param .align 4 .b8 r[12];
    st.param.b8 [x], 5; st.param.v2.b32 [s], {{%r1, 7}}; call (r), swap, (x, s);
    ld.param.b32 %r2, [r]; ld.param.b32 %r3, [r+4]; ld.param.b32 %r4, [r+8]; ld.param.b32 %r5, [s]; }}
    mad.lo.u32 %r2, %r2, 10, %r3; mad.lo.u32 %r2, %r2, 10000, %r4; mad.lo.u32 %r2, %r5, 10000000, %r2; st.param.b32 [func_retval0+0], %r2; ret; }}"
    );
    assert_eq!(run(&f, 3, 0).unwrap(), [701005, 10711005, 20721005]);
}

#[test]
fn many_calls_share_the_stack() {
    let mut calls = String::new();
    for n in 0..200 {
        calls.push_str(&format!(
            "{{ .param .align 8 .b8 a[256]; .param .b32 b; st.param.b32 [a+8], {n}; call (b), pick, (a); ld.param.b32 %r3, [b]; add.u32 %r2, %r2, %r3; }}\n"
        ));
    }
    let f = format!(
        ".func (.param .b32 r) pick(.param .align 8 .b8 a[256]) {{ .reg .b32 %r1; ld.param.u32 %r1, [a+8]; st.param.b32 [r], %r1; ret; }}
{HEAD} {{ {REGISTERS} mov.u32 %r2, %r1; {calls} st.param.b32 [func_retval0+0], %r2; ret; }}"
    );
    assert_eq!(run(&f, 2, 0).unwrap(), [19900, 19901]);
}

#[test]
fn aliases() {
    let f = format!(
        "{HEAD} {{ {REGISTERS} {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), second, (a); ld.param.b32 %r2, [b]; }} st.param.b32 [func_retval0+0], %r2; ret; }}
.visible .func (.param .b32 r) first(.param .b32 a) {{ st.param.b32 [r], 66; ret; }}"
    );
    let f = format!(
        ".visible .func (.param .b32 r) second(.param .b32 a);\n.visible .func (.param .b32 r) first(.param .b32 a);\n{f}\n.alias second, first;"
    );
    assert_eq!(run(&f, 1, 0).unwrap(), [66]);
}

#[test]
fn dynamic_frames() {
    // Each thread and each call finds the stack as it was; what it allocates is apart from the
    // frames.
    let f = format!(
        "{HEAD} {{ .local .u32 mine; {REGISTERS} stacksave.u64 %rd2; st.local.u32 [mine], 7; shl.b32 %r3, %r1, 4; add.u32 %r3, %r3, 4;
    cvt.u64.u32 %rd5, %r3; alloca.u64 %rd3, %rd5, 16; add.u64 %rd6, %rd3, %rd5; st.local.u32 [%rd6+-4], %r1; st.local.u32 [%rd3], %r1;
    alloca.u64 %rd4, 4; st.local.u32 [%rd4], 9; ld.local.u32 %r4, [%rd6+-4]; ld.local.u32 %r5, [mine]; mad.lo.u32 %r4, %r4, 10, %r5;
    stackrestore.u64 %rd2; stacksave.u64 %rd7; sub.u64 %rd7, %rd7, %rd2; cvt.u32.u64 %r6, %rd7; add.u32 %r4, %r4, %r6;
    st.param.b32 [func_retval0+0], %r4; ret; }}"
    );
    let wanted: Vec<u32> = (0..200).map(|n| n * 10 + 7).collect();
    assert_eq!(run(&f, 200, 0).unwrap(), wanted);
    for size in ["%rd1", "0xffffffffffffffff", "1000000"] {
        let f = format!(
            "{HEAD} {{ {REGISTERS} alloca.u64 %rd3, {size}; st.local.u32 [%rd3], 1; ret; }}"
        );
        assert_eq!(
            run(&f, 2, 1 << 40).unwrap_err().kind,
            FaultKind::StackOverflow,
            "{size}"
        );
    }
    let f = format!(
        "{HEAD} {{ .local .u32 mine; {REGISTERS} stackrestore.u64 %rd1; {{ .param .b32 a; .param .b64 b; .param .b32 c; call (c), g, (a, b); }} ret; }}"
    );
    let g = HEAD.replace(" f(", " g(");
    let f = format!("{g} {{ .local .b8 l[64]; st.local.u32 [l], 1; ret; }} {f}");
    assert_eq!(
        run(&f, 2, u64::MAX - 15).unwrap_err().kind,
        FaultKind::StackOverflow
    );
}

/// A device function reads its parameters where its own signature has them: a declaration that
/// differs is refused.
#[test]
fn device_functions_are_declared_as_they_are() {
    let call = |declared: &str, call: &str| {
        let source = harness::module(&format!(
            ".extern .func {declared};
             .visible .entry k() {{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b8 d; {call} }}"
        ));
        Module::load(source.as_bytes(), &LoadOptions::default()).map(drop)
    };
    let right = "(.param .b32 r) vprintf(.param .b64 f, .param .b64 a)";
    assert!(call(right, "call (c), vprintf, (a, b);").is_ok());
    for (declared, wrong) in [
        (
            "(.param .b32 r) vprintf(.param .b64 f)",
            "call (c), vprintf, (a);",
        ),
        (
            "(.param .b8 r) vprintf(.param .b64 f, .param .b64 a)",
            "call (d), vprintf, (a, b);",
        ),
        (
            "(.param .b32 r) vprintf(.param .b32 f, .param .b64 a)",
            "call (c), vprintf, (c, b);",
        ),
        (
            "(.param .b8 r) malloc(.param .b64 f)",
            "call (d), malloc, (a);",
        ),
        ("free(.param .b8 f)", "call free, (d);"),
        ("__assertfail(.param .b64 f)", "call __assertfail, (a);"),
        ("cudaGraphSetConditional()", "call cudaGraphSetConditional;"),
    ] {
        let error = call(declared, wrong).expect_err(declared);
        assert!(
            error.log.contains("is not declared as it is"),
            "{}",
            error.log
        );
    }
}

/// What a kernel's own frame takes of the native stack, for which the grid makes room.
#[test]
fn a_kernel_knows_its_frame() {
    let mut body = String::from(".reg .u64 %live<200>; .reg .u64 %rd<3>; ld.param.u64 %rd1, [p];");
    for n in 0..200 {
        body += &format!("ld.volatile.u64 %live{n}, [%rd1+{}];\n", 8 * n);
    }
    body += "mov.u64 %rd2, 0;\n";
    for n in 0..200 {
        body += &format!("mad.lo.u64 %rd2, %rd2, 3, %live{n};\n");
    }
    let source = harness::module(&format!(
        ".visible .entry k(.param .u64 p) {{ {body} st.global.u64 [%rd1], %rd2; }}"
    ));
    let module = harness::load(&source);
    let frame = module.kernels()[0].compile().unwrap().frame;
    assert!((1500..20_000).contains(&frame), "{frame}");
}
