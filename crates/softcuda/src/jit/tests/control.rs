//! Jumps, guards, scopes, ends; and that threads of a block, which run in one loop, do not see each
//! other's registers.

use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer};

/// Runs a kernel with one output of `.u32`, one for each of `threads` threads.
fn outputs(body: &str, threads: u32) -> Vec<u32> {
    let mut out = vec![0u32; threads as usize];
    let source = kernel(body);
    harness::run(
        &source,
        "k",
        [1, 1, 1],
        [threads, 1, 1],
        &mut [buffer(&mut out)],
        &[],
    )
    .unwrap();
    out
}

/// `%r0` is `%tid.x`, `%rd1` the address of the thread's output, `%r1` what is stored there at
/// `$end`.
fn kernel(body: &str) -> String {
    harness::module(&format!(
        "
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p<8>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %rd1, %r0, 4, %rd0;
    {body}
$end:
    st.global.u32 [%rd1], %r1;
    ret;
}}"
    ))
}

fn fault(body: &str) -> FaultKind {
    let mut out = vec![0u32; 4];
    let source = kernel(body);
    harness::run(
        &source,
        "k",
        [1, 1, 1],
        [4, 1, 1],
        &mut [buffer(&mut out)],
        &[],
    )
    .unwrap_err()
    .kind
}

#[test]
fn loops_of_different_lengths() {
    let out = outputs(
        "mov.u32 %r1, 0; mov.u32 %r2, 0;
$loop:
    setp.ge.u32 %p1, %r2, %r0;
    @%p1 bra $end;
    add.u32 %r1, %r1, %r2;
    add.u32 %r2, %r2, 1;
    bra.uni $loop;",
        40,
    );
    let wanted: Vec<u32> = (0..40u32).map(|n| (0..n).sum()).collect();
    assert_eq!(out, wanted);
}

#[test]
fn registers_start_at_zero_in_every_thread() {
    // %r3 is read before it is written: what the thread before left in it must not be there.
    let out = outputs(
        "add.u32 %r1, %r3, 1; add.u32 %r3, %r0, 100; addc.u32 %r4, %r1, 0;",
        8,
    );
    assert_eq!(out, [1; 8]);
    // Written under a guard alone.
    let out = outputs("setp.eq.u32 %p1, %r0, 2; @%p1 mov.u32 %r1, 77;", 4);
    assert_eq!(out, [0, 0, 77, 0]);
    // The carry flag, too.
    let out = outputs("addc.u32 %r1, 0, 0; add.cc.u32 %r2, 0xffffffff, 1;", 4);
    assert_eq!(out, [0; 4]);
}

#[test]
fn guards_on_everything() {
    let out = outputs(
        "mov.u32 %r1, 5;
    setp.lt.u32 %p1, %r0, 2;
    @%p1 add.u32 %r1, %r1, 1;
    @!%p1 add.u32 %r1, %r1, 10;
    @%p1 st.global.u32 [%rd1], %r1;
    @%p1 ret;
    @!%p1 bra $end;
    trap;",
        4,
    );
    assert_eq!(out, [6, 6, 15, 15]);
}

#[test]
fn irreducible_flow() {
    // Two blocks that jump to each other, each entered from outside.
    let out = outputs(
        "mov.u32 %r1, 0; mov.u32 %r2, 0;
    and.b32 %r3, %r0, 1;
    setp.eq.u32 %p1, %r3, 0;
    @%p1 bra $b;
$a:
    add.u32 %r1, %r1, 1;
    add.u32 %r2, %r2, 1;
    setp.gt.u32 %p2, %r2, 10;
    @%p2 bra $end;
$b:
    add.u32 %r1, %r1, 100;
    add.u32 %r2, %r2, 1;
    setp.le.u32 %p3, %r2, 10;
    @%p3 bra $a;",
        4,
    );
    let step = |mut a: bool| {
        let (mut sum, mut n) = (0, 0);
        loop {
            sum += if a { 1 } else { 100 };
            n += 1;
            if n > 10 {
                return sum;
            }
            a = !a;
        }
    };
    assert_eq!(out, [step(false), step(true), step(false), step(true)]);
}

#[test]
fn indexed_branches() {
    let body = "
$targets: .branchtargets $zero, $one, $two;
    mov.u32 %r1, 9;
    brx.idx %r0, $targets;
$zero: mov.u32 %r1, 100; bra $end;
$one: mov.u32 %r1, 101; bra $end;
$two: mov.u32 %r1, 102;";
    assert_eq!(outputs(body, 3), [100, 101, 102]);
    assert_eq!(fault(body), FaultKind::InvalidPc);
}

#[test]
fn inner_names_hide_outer_ones() {
    let out = outputs(
        "mov.u32 %r1, 1;
    {
        .reg .b32 %r<3>;
        .reg .b32 x;
        mov.u32 %r1, 2; mov.u32 x, 7;
        {
            .reg .b32 %r1;
            mov.u32 %r1, 3; mov.u32 %r2, 4;
            bra $inner;
        $inner:
        }
        { $inner: }
        add.u32 %r1, %r1, %r2;
    }
    { .reg .b64 x; mov.b64 x, 1; }
    add.u32 %r1, %r1, 40;",
        2,
    );
    assert_eq!(out, [41, 41]);
}

#[test]
fn ends() {
    assert_eq!(
        outputs("setp.eq.u32 %p1, %r0, 1; mov.u32 %r1, 3; @%p1 exit;", 3),
        [3, 0, 3]
    );
    assert_eq!(fault("trap;"), FaultKind::Trap);
    assert_eq!(
        fault("setp.eq.u32 %p1, %r0, 3; @%p1 trap;"),
        FaultKind::Trap
    );
    // Code after an end, and a body that ends without one.
    assert_eq!(
        outputs("mov.u32 %r1, 1; bra $end; mov.u32 %r1, 2; trap; exit;", 2),
        [1, 1]
    );
    let mut out = [0u32];
    let source = harness::module(
        ".entry k(.param .u64 out) { .reg .b64 %r; ld.param.u64 %r, [out]; st.global.u32 [%r], 8; }",
    );
    harness::run(
        &source,
        "k",
        [1, 1, 1],
        [1, 1, 1],
        &mut [buffer(&mut out)],
        &[],
    )
    .unwrap();
    assert_eq!(out, [8]);
    harness::run(
        &harness::module(".entry k() { }"),
        "k",
        [2, 1, 1],
        [3, 1, 1],
        &mut [],
        &[],
    )
    .unwrap();
}

#[test]
fn a_jump_to_itself_is_stopped_by_nothing_but_its_condition() {
    let out = outputs(
        "mov.u32 %r1, 0; mov.u32 %r2, %r0;
$again: add.u32 %r1, %r1, 1; sub.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0xffffffff; @%p1 bra $again;",
        3,
    );
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn labels_at_the_end_and_doubled() {
    let out = outputs("mov.u32 %r1, 4; bra $b; $a: $b: $c: bra $d; $d:", 1);
    assert_eq!(out, [4]);
}

#[test]
fn long_bodies() {
    // A chain of thousands of blocks must neither overflow a stack nor take long.
    let mut body = String::from("mov.u32 %r1, 0;\n");
    for n in 0..3000 {
        body.push_str(&format!(
            "setp.eq.u32 %p1, %r0, {n}; @%p1 bra $skip{n}; add.u32 %r1, %r1, 1;\n$skip{n}:\n"
        ));
    }
    assert_eq!(outputs(&body, 2), [2999, 2999]);
}

#[test]
fn predicates_as_values() {
    let out = outputs(
        "setp.gt.u32 %p1, %r0, 1;
    mov.pred %p2, %p1;
    not.pred %p3, %p2;
    and.pred %p4, %p1, %p3;
    or.pred %p5, %p1, %p3;
    xor.pred %p6, %p5, 1;
    selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 2, 0, %p3; selp.u32 %r4, 4, 0, %p4; selp.u32 %r5, 8, 0, %p5;
    selp.u32 %r6, 16, 0, %p6;
    add.u32 %r1, %r2, %r3; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5; add.u32 %r1, %r1, %r6;",
        3,
    );
    assert_eq!(out, [10, 10, 9]);
}
