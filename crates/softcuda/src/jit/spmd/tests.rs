//! Plans of small kernels.

use super::{Class, Distance, Exit, Loop, Plan, Rows, Target, Way};
use crate::jit::decode::RegId;
use crate::jit::harness;
use crate::jit::module::Module;
use crate::jit::program::Step;

/// A module of a kernel with this body.
fn module(body: &str) -> std::sync::Arc<Module> {
    harness::load(&harness::module(&format!(
        ".shared .align 4 .b8 tile[4096];
        .visible .entry k(.param .u64 a, .param .u32 n) {{
            .reg .b32 %r<12>; .reg .b64 %rd<8>; .reg .f32 %f<4>; .reg .pred %p<4>;
            {body}
        }}"
    )))
}

/// The plan of a kernel with this body, and the ways of its instructions.
fn plan(body: &str) -> Option<(Plan, Vec<Way>)> {
    let module = module(body);
    let function = &module.program().functions[0];
    let body = function.body.as_ref().expect("it has a body");
    let plan = Plan::of(function, body, (Rows::Any, true))?;
    let ways = body.steps.iter().zip(&plan.ways);
    let ways = ways.filter_map(|(step, way)| match step {
        Step::Instruction(_) => Some(*way),
        Step::Label(_) => None,
    });
    let ways = ways.collect();
    Some((plan, ways))
}

fn ways(body: &str) -> Vec<Way> {
    plan(body).expect("it has a plan").1
}

#[test]
fn code_is_for_blocks_of_a_shape() {
    for (block, alone, waiting) in [
        ([32, 1, 1], Rows::OfWarps, Rows::OfWarps),
        ([64, 3, 1], Rows::OfWarps, Rows::OfWarps),
        ([40, 1, 1], Rows::Any, Rows::Any),
        ([8, 5, 1], Rows::Any, Rows::Any),
        ([100, 1, 1], Rows::WithRest, Rows::RowAndRest),
        ([9, 1, 1], Rows::WithRest, Rows::RowAndRest),
        ([12, 12, 1], Rows::WithRest, Rows::Across),
        ([6, 4, 1], Rows::Any, Rows::Across),
        ([10, 10, 1], Rows::WithRest, Rows::AcrossAndRest),
        ([3, 3, 1], Rows::Any, Rows::AcrossAndRest),
        ([1, 37, 1], Rows::Any, Rows::AcrossAndRest),
        ([7, 1, 1], Rows::Any, Rows::Any),
        ([2, 2, 1], Rows::Any, Rows::Any),
    ] {
        assert_eq!(Rows::of(block, false), alone, "{block:?}");
        assert_eq!(Rows::of(block, true), waiting, "{block:?}");
    }
}

#[test]
fn what_is_the_same_is_done_once() {
    let ways = ways(
        "ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [n]; mov.u32 %r2, %ctaid.x;
        mad.lo.u32 %r3, %r1, %r2, 5; ld.global.u32 %r4, [%rd1]; st.global.u32 [%rd1], %r3;",
    );
    assert_eq!(ways, [Way::Once; 6]);
}

#[test]
fn distances_are_followed() {
    let (plan, ways) = plan(
        "ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mad.lo.u32 %r2, %r1, 3, 7;
        mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2; ld.global.f32 %f1, [%rd3];
        sub.u32 %r3, %r2, %r1; shl.b32 %r4, %r3, 2; sub.u32 %r5, %r1, %r1;",
    )
    .expect("it has a plan");
    assert!(matches!(ways[3], Way::Widen { signed: false, .. }));
    assert_eq!(ways[5], Way::Row);
    let count = |class| plan.classes.iter().filter(|known| **known == class).count();
    assert_eq!(count(Class::Affine(1)), 1, "{plan}");
    assert_eq!(count(Class::Affine(3)), 1, "{plan}");
    assert_eq!(count(Class::Affine(12)), 2, "{plan}");
    assert_eq!(count(Class::Affine(2)), 1, "{plan}");
    assert_eq!(count(Class::Affine(8)), 1, "{plan}");
    assert_eq!(count(Class::Varying), 1, "{plan}");
}

/// `t / 32` and `t % 32` of an `int`: there is nothing to add to numbers below zero.
#[test]
fn numbers_of_threads_have_no_sign() {
    let divides = |block: &str, then: &str| {
        plan(&format!(
            "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.{block}; mad.lo.s32 %r4, %r2, 256, %r1;
            shr.s32 %r5, %r4, 31; shr.u32 %r6, %r5, 27; add.s32 %r7, %r4, %r6;
            shr.s32 %r0, %r7, 5; and.b32 %r3, %r7, -32; {then}"
        ))
        .expect("it has a plan")
    };
    for (block, in_first_blocks) in [("x", true), ("y", false)] {
        let (plan, ways) = divides(block, "");
        assert_eq!(plan.in_first_blocks, in_first_blocks, "{plan}");
        assert_eq!(ways, [Way::Once; 8]);
    }
    // What is written twice may be any.
    let (plan, _) = divides("x", "mov.u32 %r2, %r0;");
    assert!(!plan.in_first_blocks, "{plan}");
}

#[test]
fn what_threads_write_apart_varies_where_they_join() {
    // %r3 is 1 or 2; %r4 is the same whoever came by.
    let ways = ways(
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 2; mov.u32 %r3, 1; mov.u32 %r4, 9;
        @%p1 bra on; mov.u32 %r3, 2; on: add.u32 %r5, %r3, 1; add.u32 %r6, %r4, 1;",
    );
    assert_eq!(ways[6], Way::Vector);
    assert_eq!(ways[7], Way::Once);
}

#[test]
fn a_loop_that_threads_leave_one_by_one() {
    // How often each came by is its own; what is counted within is not, until they leave.
    let ways = ways(
        "mov.u32 %r1, %tid.x; mov.u32 %r2, 0; again: add.u32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, %r1; @%p1 bra again; add.u32 %r3, %r2, 1;",
    );
    assert_eq!(ways[2], Way::Vector);
    assert_eq!(ways[5], Way::Vector);
}

#[test]
fn guards_that_differ_make_vectors_of_numbers() {
    let ways = ways(
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 2; mov.u32 %r2, 5; @%p1 mov.u32 %r2, 7;
        @%p1 st.shared.u32 [tile], %r2;",
    );
    assert_eq!(ways[2..], [Way::Once, Way::Vector, Way::Each]);
}

#[test]
fn local_memory_that_few_come_to_is_used_one_by_one() {
    let body = |local: &str| {
        format!(
            ".local .align 4 .b8 l[16]; ld.param.u32 %r7, [n]; mov.u32 %r1, %tid.x;
            mul.lo.u32 %r2, %r1, %r1; xor.b32 %r2, %r2, 5; mul.lo.u32 %r2, %r2, %r1;
            or.b32 %r2, %r2, 3; xor.b32 %r3, %r2, %r1; setp.lt.u32 %p1, %r3, 9; @%p1 bra past;
            {local} ld.local.u32 %r4, [l]; add.u32 %r2, %r2, %r4;
            past: mul.lo.u32 %r2, %r2, 7; xor.b32 %r2, %r2, %r3; st.shared.u32 [tile], %r2;"
        )
    };
    let (plan, _) = plan(&body("st.local.u32 [l], %r1;")).expect("it has a plan");
    assert!(plan.has_alone(), "{plan}");
    let generic = "cvta.local.u64 %rd1, %rd2; st.u32 [%rd1], %r1;";
    assert!(super::tests::plan(&body(generic)).is_none());
}

#[test]
fn what_has_no_plan() {
    for body in [
        // A wait that some threads of a group leave out.
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 2; @%p1 bar.sync 0;",
        // Local memory, which a group has but once.
        ".local .b32 own; st.local.u32 [own], 1;",
        "add.cc.u32 %r1, %r2, 1; addc.u32 %r3, %r3, 0;",
    ] {
        assert!(plan(body).is_none(), "{body}");
    }
}

#[test]
fn the_number_in_the_group_is_split_off() {
    let (plan, ways) = plan(
        "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
        mad.lo.u32 %r4, %r2, %r3, %r1; shr.u32 %r5, %r4, 5; and.b32 %r6, %r4, 31;
        and.b32 %r7, %r4, -32; st.shared.u32 [tile], %r5; st.shared.u32 [tile], %r6;
        st.shared.u32 [tile], %r7;",
    )
    .expect("it has a plan");
    assert!(ways[..7].iter().all(|way| *way == Way::Once), "{plan}");
    let affine = |class: &&Class| **class == Class::Affine(1);
    assert_eq!(plan.classes.iter().filter(affine).count(), 3, "{plan}");
    // From where it starts is not known here.
    let ways = self::ways(
        "ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; add.u32 %r3, %r1, %r2; shr.u32 %r4, %r3, 5;
        and.b32 %r5, %r3, 31; shr.u32 %r6, %r2, 1; and.b32 %r7, %r2, 1;",
    );
    assert_eq!(ways[3..], [Way::Vector; 4]);
}

/// A sum along a row as compilers unroll it: `turns` gives how often the first loop is gone through
/// before the second, which begins at `%r3`.
fn unrolled(turns: &str) -> (Plan, Vec<Way>) {
    plan(&format!(
        "ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, %r2;
        {turns} setp.eq.u32 %p1, %r5, 0; @%p1 bra second;
        first: add.f32 %f1, %f1, 0f3f800000; add.u32 %r3, %r3, 32; sub.u32 %r5, %r5, 1;
        setp.ne.u32 %p2, %r5, 0; @%p2 bra first;
        second: mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2;
        again: ld.global.f32 %f2, [%rd3]; add.f32 %f1, %f1, %f2; add.s64 %rd3, %rd3, 256;
        add.u32 %r3, %r3, 64; setp.lt.s32 %p3, %r3, %r1; @%p3 bra again;
        mul.wide.u32 %rd4, %r2, 4; add.s64 %rd5, %rd1, %rd4; st.global.f32 [%rd5], %f1;"
    ))
    .expect("it has a plan")
}

#[test]
fn unrolled_loops_are_assumed_to_be_left_together() {
    let (plan, ways) = unrolled("not.b32 %r4, %r2; add.u32 %r4, %r4, %r1; shr.u32 %r5, %r4, 5;");
    let is = |ways: &[Way], is: fn(&Way) -> bool| ways.iter().filter(|way| is(way)).count();
    let same: fn(&Way) -> bool = |way| matches!(way, Way::Same(same) if same.by == -1);
    let assume: fn(&Way) -> bool = |way| matches!(way, Way::Assume { by: 1, .. });
    let row: fn(&Way) -> bool = |way| *way == Way::Row;
    assert_eq!(is(&ways, same), 1, "{plan}");
    // Threads for which it is not so come to the second loop apart.
    assert_eq!((is(&ways, assume), is(&ways, row)), (1, 2), "{plan}");
    // Where that depends on memory, neighbours may go round as often as they like.
    let (plan, ways) =
        unrolled("ld.global.u32 %r4, [%rd1]; add.u32 %r4, %r4, %r2; shr.u32 %r5, %r4, 5;");
    assert_eq!(is(&ways, same), 0, "{plan}");
    assert_eq!((is(&ways, assume), is(&ways, row)), (1, 2), "{plan}");
    // So it is where a turn less is not rare, and where more is done with what is assumed.
    for turns in [
        "shr.u32 %r5, %r2, 3;",
        "mul.lo.u32 %r4, %r2, 7; shr.u32 %r5, %r4, 5; st.shared.u32 [tile], %r5;",
    ] {
        let (plan, ways) = unrolled(turns);
        assert_eq!(is(&ways, same), 0, "{plan}");
    }
}

/// A kernel that copies elements of rows, of a table that an index chooses them from; `divides`
/// gives the row and the column of a thread.
fn rows(divides: &str) -> (Plan, Vec<Way>) {
    plan(&format!(
        "ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; {divides}
        mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r5, [%rd3];
        mad.lo.s32 %r6, %r5, %r1, %r4; mul.wide.s32 %rd4, %r6, 4; add.s64 %rd5, %rd1, %rd4;
        ld.global.f32 %f1, [%rd5]; mul.wide.s32 %rd6, %r2, 4; add.s64 %rd7, %rd1, %rd6;
        st.global.f32 [%rd7], %f1;"
    ))
    .expect("tests have all plans")
}

#[test]
fn neighbours_are_assumed_to_be_in_one_row() {
    let count = |ways: &[Way], is: fn(&Way) -> bool| ways.iter().filter(|way| is(way)).count();
    let same: fn(&Way) -> bool = |way| matches!(way, Way::Same(_));
    let row: fn(&Way) -> bool = |way| *way == Way::Row;
    let least = |plan: &Plan| plan.granted().map(|granted| granted.least);
    // The row's index is loaded once, its elements are a row of memory.
    for (divides, divided) in [
        (
            "div.s32 %r3, %r2, %r1; mul.lo.s32 %r7, %r3, %r1; sub.s32 %r4, %r2, %r7;",
            1,
        ),
        ("div.u32 %r3, %r2, %r1; rem.u32 %r4, %r2, %r1;", 2),
    ] {
        let (plan, ways) = rows(divides);
        assert_eq!(
            (count(&ways, same), count(&ways, row)),
            (divided, 2),
            "{plan}"
        );
        assert_eq!(least(&plan), Some(16), "{plan}");
    }
    // By a number that is not small, nothing need be asked of a launch.
    let (plan, ways) = rows("div.u32 %r3, %r2, 20; rem.u32 %r4, %r2, 20;");
    assert_eq!((count(&ways, same), least(&plan)), (2, None), "{plan}");
    // Small numbers, and those from memory, tell nothing.
    for divides in [
        "div.u32 %r3, %r2, 5; rem.u32 %r4, %r2, 5;",
        "ld.global.u32 %r7, [%rd1]; div.s32 %r3, %r2, %r7; rem.s32 %r4, %r2, %r7;",
        "ld.global.u32 %r7, [%rd1]; add.u32 %r7, %r7, %r2; div.s32 %r3, %r7, %r1;
        rem.s32 %r4, %r7, %r1;",
    ] {
        let (plan, ways) = rows(divides);
        assert_eq!((count(&ways, same), least(&plan)), (0, None), "{plan}");
    }
}

#[test]
fn one_row_more_is_worth_less() {
    let (plan, ways) = plan(
        "ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x;
        rem.s32 %r4, %r2, %r1; mul.wide.s32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;
        ld.global.f32 %f1, [%rd3]; mul.wide.s32 %rd6, %r2, 4; add.s64 %rd7, %rd1, %rd6;
        st.global.f32 [%rd7], %f1;",
    )
    .expect("it has a plan");
    assert_eq!(
        plan.granted().map(|granted| granted.least),
        Some(64),
        "{plan}"
    );
    assert!(ways.iter().any(|way| matches!(way, Way::Same(_))), "{plan}");
}

/// On a torus, neighbours to both sides are in one row most often; what all have in common is
/// computed while threads may be by themselves, and used by all behind.
#[test]
fn neighbours_on_a_torus() {
    let (plan, ways) = plan(
        "ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x;
        add.s32 %r4, %r2, %r1; rem.s32 %r5, %r4, %r1; add.s32 %r6, %r2, 1; rem.s32 %r7, %r6, %r1;
        mul.lo.s32 %r8, %r3, %r1; add.s32 %r9, %r5, %r8; mul.wide.s32 %rd2, %r9, 4;
        add.s64 %rd2, %rd1, %rd2; ld.global.f32 %f1, [%rd2]; add.s32 %r10, %r7, %r8;
        mul.wide.s32 %rd3, %r10, 4; add.s64 %rd3, %rd1, %rd3; ld.global.f32 %f2, [%rd3];
        add.f32 %f1, %f1, %f2; add.s32 %r11, %r8, %r2; mul.wide.s32 %rd4, %r11, 4;
        add.s64 %rd4, %rd1, %rd4;
        st.global.f32 [%rd4], %f1;",
    )
    .expect("it has a plan");
    let count = |is: fn(&Way) -> bool| ways.iter().filter(|way| is(way)).count();
    assert_eq!(count(|way| matches!(way, Way::Same(_))), 2, "{plan}");
    assert_eq!(count(|way| *way == Way::Row), 3, "{plan}");
}

/// A divisor that is computed from itself, around a loop or before it has a value.
#[test]
fn divisors_in_a_circle() {
    for circle in [
        "mov.u32 %r3, %r4; mov.u32 %r4, %r3;",
        "again: add.u32 %r3, %r4, 1; add.u32 %r5, %r3, %r1; sub.u32 %r4, %r5, 2;
        setp.lt.u32 %p1, %r4, 9; @%p1 bra again;",
    ] {
        let plan = plan(&format!(
            "ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; {circle}
            div.u32 %r6, %r2, %r4; mul.wide.u32 %rd2, %r6, 4; add.s64 %rd3, %rd1, %rd2;
            ld.global.f32 %f1, [%rd3]; st.global.f32 [%rd3], %f1;"
        ));
        assert!(plan.is_some_and(|(plan, _)| plan.granted().is_none()));
    }
}

/// How far from each access of a kernel with this body something is fetched.
fn fetched(body: &str) -> Vec<Option<Distance>> {
    let module = module(&format!(
        "ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x;
        mov.u32 %r4, %ntid.x; {body} ld.global.f32 %f1, [%rd7]; st.global.f32 [%rd7], %f1;"
    ));
    let function = &module.program().functions[0];
    let body = function.body.as_ref().expect("it has a body");
    let plan = Plan::of(function, body, (Rows::Any, true)).expect("it has a plan");
    let steps = body.steps.iter().enumerate();
    let accesses = steps.filter_map(|(at, step)| match step {
        Step::Instruction(step) => step.operation.plain_access().map(|_| plan.ahead(at)),
        Step::Label(_) => None,
    });
    accesses.collect()
}

/// Blocks that number themselves get one number in each turn of the processors.
#[test]
fn blocks_that_number_themselves() {
    let of = |count: &str, leave: &str, take: &str| {
        next_block(&format!(
            ".shared .b32 number; setp.ne.u32 %p1, %r2, 0; @%p1 bra over; {count} {leave}
            over: bar.sync 0; {take} mad.lo.u32 %r7, %r6, %r4, %r2;
            mul.wide.u32 %rd6, %r7, 4; add.s64 %rd7, %rd1, %rd6;"
        ))
    };
    let count = "atom.global.add.u32 %r5, [%rd1], 1;";
    let leave = "st.shared.u32 [number], %r5;";
    let take = "ld.shared.u32 %r6, [number];";
    let distance = Distance {
        in_turns: true,
        ..Distance::of(Some(RegId(4)), 4)
    };
    assert_eq!(of(count, leave, take), Some(distance));
    // What is not counted, not left for others, or of each thread by itself.
    for other in [
        of("ld.global.u32 %r5, [%rd1];", leave, take),
        of(count, "st.global.u32 [%rd1], %r5;", take),
        of(
            count,
            leave,
            "mov.u32 %r7, number; ld.shared.u32 %r6, [%r7];",
        ),
        of(count, leave, "mov.u32 %r6, %r5;"),
    ] {
        assert_eq!(other, None);
    }
}

/// The same of a thread that goes through a loop by itself.
#[test]
fn threads_go_through_streams() {
    let streams = |turn: &str| {
        let module = module(&format!(
            "ld.param.u64 %rd1, [a]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x;
            mul.wide.u32 %rd2, %r2, 4; add.s64 %rd7, %rd1, %rd2; ld.global.u32 %r3, [%rd7];
            again: mul.wide.u32 %rd3, %r3, 4; add.s64 %rd4, %rd1, %rd3; {turn}
            setp.lt.u32 %p1, %r3, %r1; @%p1 bra again;"
        ));
        let function = &module.program().functions[0];
        let body = function.body.as_ref().expect("it has a body");
        let mut streams: Vec<i64> = super::streams_of_threads(body).into_values().collect();
        streams.sort_unstable();
        streams
    };
    // Further by elements, by a cast, by a number before it; backwards; a pointer that counts.
    assert_eq!(
        streams("ld.global.u32 %r4, [%rd4]; add.s32 %r3, %r3, 1;"),
        [2048]
    );
    assert_eq!(
        streams(
            "ld.global.u32 %r4, [%rd4]; add.s32 %r5, %r3, 1; mul.wide.u32 %rd5, %r5, 4;
            add.s64 %rd6, %rd1, %rd5; ld.global.u32 %r6, [%rd6]; add.s32 %r3, %r3, 2;"
        ),
        [2048; 2]
    );
    assert_eq!(
        streams("ld.global.u32 %r4, [%rd4]; add.s32 %r3, %r3, -1;"),
        [-2048]
    );
    assert_eq!(
        streams("ld.global.u32 %r3, [%rd7]; add.s64 %rd7, %rd7, 8;"),
        [2048]
    );
    // What is loaded, what stays, what is shared, and what lies far.
    for other in [
        "ld.global.u32 %r3, [%rd4];",
        "ld.global.u32 %r4, [%rd7]; add.s32 %r3, %r3, 1;",
        "ld.shared.u32 %r4, [%rd4]; add.s32 %r3, %r3, 1;",
        "ld.global.u32 %r4, [%rd4]; add.s32 %r3, %r3, 1024;",
        "ld.global.u32 %r4, [%rd4]; add.s32 %r3, %r3, 1; add.s32 %r3, %r3, %r4;",
    ] {
        assert_eq!(streams(other), [0; 0], "{other}");
    }
}

/// The same of the last access.
fn next_block(body: &str) -> Option<Distance> {
    *fetched(body).last().expect("it has an access")
}

#[test]
fn the_next_block_lies_a_row_further() {
    let of = |register: u32, by: i64| {
        let times = Some(RegId(register));
        Some(Distance::of(times, by))
    };
    // Rows of `n` elements: register 1, or the one that it is widened to.
    let row = next_block(
        "mul.lo.s32 %r5, %r3, %r1; add.s32 %r6, %r5, %r2; mul.wide.s32 %rd6, %r6, 4;
        add.s64 %rd7, %rd1, %rd6;",
    );
    assert_eq!(row, of(1, 4));
    let row = next_block(
        "cvt.s64.s32 %rd2, %r1; cvt.u64.u32 %rd3, %r3; mul.lo.s64 %rd4, %rd3, %rd2;
        shl.b64 %rd5, %rd4, 3; mul.wide.u32 %rd6, %r2, 4; add.s64 %rd7, %rd5, %rd6;
        add.s64 %rd7, %rd7, %rd1;",
    );
    assert_eq!(row.map(|row| row.by), Some(8));
    // It stays so in a loop along the row.
    let row = next_block(
        "mad.lo.s32 %r5, %r3, %r1, %r2; mul.wide.s32 %rd6, %r5, 4; add.s64 %rd7, %rd1, %rd6;
        mov.u32 %r6, 0; more: ld.global.f32 %f2, [%rd7]; add.s64 %rd7, %rd7, 1024;
        add.u32 %r6, %r6, 256; setp.lt.u32 %p1, %r6, %r1; @%p1 bra more;",
    );
    assert_eq!(row, of(1, 4));
    // Blocks that follow each other in memory.
    let follows = "mad.lo.s32 %r5, %r3, %r4, %r2; mul.wide.s32 %rd6, %r5, 4;
        add.s64 %rd7, %rd1, %rd6;";
    let stream = |by| Some(Distance::of(None, by));
    assert_eq!(next_block(follows), stream(2048));
    // But those of several rows do not.
    let rows = "mov.u32 %r7, %tid.y; mad.lo.s32 %r6, %r7, %r1, %r2; shl.b32 %r5, %r3, 5;
        add.s32 %r5, %r5, %r6; mul.wide.s32 %rd6, %r5, 4; add.s64 %rd7, %rd1, %rd6;";
    let block = Some(Distance::of(None, 128));
    assert_eq!(next_block(rows), block);
    // What comes from memory, or from two rows, tells nothing.
    for unknown in [
        "mul.wide.u32 %rd2, %r3, 4; add.s64 %rd2, %rd2, %rd1; ld.global.u32 %r5, [%rd2];
        mad.lo.s32 %r6, %r5, %r1, %r2; mul.wide.s32 %rd6, %r6, 4; add.s64 %rd7, %rd1, %rd6;",
        "mul.lo.s32 %r5, %r3, %r1; mul.lo.s32 %r6, %r5, %r1; mul.wide.s32 %rd6, %r6, 4;
        add.s64 %rd7, %rd1, %rd6;",
        "shr.u32 %r5, %r3, 2; mad.lo.s32 %r6, %r5, %r1, %r2; mul.wide.s32 %rd6, %r6, 4;
        add.s64 %rd7, %rd1, %rd6;",
    ] {
        assert_eq!(next_block(unknown), None, "{unknown}");
    }
}

#[test]
fn loops_access_next_what_the_next_turn_does() {
    let turn = |by: &str| {
        let accesses = fetched(&format!(
            "mov.u32 %r5, %r2; more: mul.wide.u32 %rd6, %r5, 4; add.s64 %rd7, %rd1, %rd6;
            ld.global.f32 %f2, [%rd7]; add.s32 %r5, %r5, {by}; setp.lt.u32 %p1, %r5, %r1;
            @%p1 bra more;"
        ));
        accesses[0]
    };
    let far = |times, by| Some(Distance::of(times, by));
    assert_eq!(turn("1024"), far(None, 4096));
    assert_eq!(turn("-1024"), far(None, -4096));
    // What is near is there already when it is asked for.
    assert_eq!(turn("32"), far(None, 2048));
    assert_eq!(turn("-32"), far(None, -2048));
    assert_eq!(turn("%r4"), far(Some(RegId(4)), 4));
    // What changes from turn to turn tells nothing.
    assert_eq!(turn("%r5"), None);
}

/// How the regions of a kernel are left, by region; the waits that they begin with.
fn regions(body: &str) -> Option<(Vec<Exit>, Vec<bool>)> {
    let (plan, _) = plan(body)?;
    let regions = plan.regions.expect("it waits").regions;
    let waits = regions.iter().map(|region| region.wait.is_some());
    Some((
        regions.iter().map(|region| region.exit).collect(),
        waits.collect(),
    ))
}

#[test]
fn regions_go_from_wait_to_wait() {
    let (exits, waits) = regions(
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 5; @%p1 bra over; add.u32 %r1, %r1, 1;
        over: bar.sync 0; add.u32 %r2, %r1, 1; bar.sync 0; st.shared.u32 [tile], %r2;",
    )
    .expect("it has regions");
    let to = |region| Exit::To(Target::Region(region));
    // The branch leads nobody past a wait.
    assert_eq!(exits, [to(1), to(2), Exit::To(Target::End)]);
    assert_eq!(waits, [false, true, true]);
}

#[test]
fn branches_past_a_wait_decide() {
    let (exits, waits) = regions(
        "ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; again: setp.ge.u32 %p1, %r2, %r1;
        @%p1 bra done; bar.sync 0; add.u32 %r2, %r2, 7; bra again;
        done: st.shared.u32 [tile], %r2;",
    )
    .expect("it has regions");
    // Before the loop, its head, what the barrier takes, the barrier, behind the loop.
    let decides = |exit: &&Exit| matches!(exit, Exit::Branch { .. });
    assert_eq!(exits.iter().filter(decides).count(), 1, "{exits:?}");
    assert_eq!(waits.iter().filter(|wait| **wait).count(), 1);
    let ends = exits.iter().filter(|exit| **exit == Exit::To(Target::End));
    assert_eq!(ends.count(), 1, "{exits:?}");
}

/// Wide groups leave out what they do not do, where few threads go by what is known of them.
#[test]
fn what_few_threads_do_is_left_out() {
    let left_out = |by: &str| {
        let (plan, _) = plan(&format!(
            "ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, tile;
            add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], %r1; bar.sync 0; ld.shared.u32 %r4, [%r3];
            add.u32 %r4, %r4, 1; {by} @%p1 bra on; atom.global.add.u32 %r5, [%rd1], %r4;
            st.shared.u32 [tile], %r5; on: bar.sync 0; st.shared.u32 [%r3], %r4;"
        ))
        .expect("it has a plan");
        let wide = plan.wide.filter(|wide| wide.regions[1])?;
        Some(wide.left_out.iter().flatten().count())
    };
    assert_eq!(left_out("setp.ne.u32 %p1, %r1, 255;"), Some(1));
    // Memory does not tell who goes there.
    assert_eq!(left_out("setp.ne.u32 %p1, %r4, 255;"), None);
}

#[test]
fn who_waits_first_or_under_a_guard_has_no_regions() {
    assert!(plan("bar.sync 0; mov.u32 %r1, %tid.x; st.shared.u32 [tile], %r1;").is_none());
    assert!(
        plan(
            "ld.param.u32 %r1, [n]; setp.eq.u32 %p1, %r1, 1; @%p1 bar.sync 0;
            mov.u32 %r1, %tid.x; st.shared.u32 [tile], %r1;"
        )
        .is_none()
    );
}

/// Loops that threads leave one by one are done by masks; several branches lead into one.
#[test]
fn loops_by_masks() {
    let (plan, _) = plan(
        "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 3; mov.u32 %r2, 0; mov.f32 %f1, 0f3f800000;
        @%p1 bra out;
        again: add.f32 %f1, %f1, %f1; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, %r1;
        @%p2 bra again;
        out: cvt.rzi.u32.f32 %r3, %f1; add.u32 %r3, %r3, 1;",
    )
    .expect("it has a plan");
    let masked: Vec<_> = plan.masked.iter().flatten().collect();
    let [first, last] = masked[..] else {
        panic!("two branches: {plan}");
    };
    assert_eq!((first.branch, last.branch), (0, 0), "{plan}");
    // Wide groups go on at the branch.
    assert_eq!(first.blocks, [1, 2], "{plan}");
    assert_eq!(first.loops, [Loop { head: 0, last: 1 }], "{plan}");
    // The sum is needed behind the loop; the count is not, and is the same in all that are in it.
    assert_eq!(first.shared[0].len(), 1, "{plan}");
    let counts = |class| plan.classes.iter().filter(|known| **known == class).count();
    assert_eq!(counts(Class::Affine(1)), 1, "{plan}");
}

/// What some threads count and others do not has no place of its own.
#[test]
fn a_count_that_some_skip_is_not_done_by_masks() {
    let (plan, _) = plan(
        "mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, 0;
        again: add.u32 %r3, %r3, %r1; setp.gt.u32 %p1, %r3, 40; @%p1 bra out;
        setp.eq.u32 %p2, %r3, 7; @%p2 bra again;
        add.u32 %r2, %r2, 1; setp.lt.u32 %p3, %r2, 9; @%p3 bra again;
        out: add.u32 %r4, %r3, 1;",
    )
    .expect("it has a plan");
    assert!(plan.masked.iter().all(Option::is_none), "{plan}");
}

/// What one of the threads that come to it does for all goes by masks where threads wait: each has
/// a context there.
#[test]
fn one_place_by_masks() {
    let body = "mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [a]; setp.ne.u32 %p1, %r1, 3;
        @%p1 bra out; ld.shared.u32 %r2, [tile]; st.global.u32 [%rd1], %r2; out: ret;";
    for (wait, by_masks) in [("bar.sync 0;", 1), ("", 0)] {
        let (plan, _) = plan(&format!("mov.u32 %r5, 1; {wait} {body}")).expect("it has a plan");
        let masked = plan.masked.iter().flatten().count();
        assert_eq!(masked, by_masks, "{plan}");
    }
}

/// Numbers that count up over a warp, and those that do over a row of the block.
#[test]
fn what_counts_on() {
    let (plan, _) = plan(
        "mov.u32 %r1, %tid.x; mov.u32 %r2, %laneid; mad.lo.u32 %r3, %r1, 3, 7;
        add.u32 %r4, %r2, %r1; mov.u32 %r5, %ctaid.x; add.u32 %r6, %r5, %r1;",
    )
    .expect("it has a plan");
    let affine = |class: &Class| matches!(class, Class::Affine(_));
    let of = (0u32..).map(crate::jit::decode::RegId);
    let affine = of.zip(&plan.classes).filter(|(_, class)| affine(class));
    let counts = affine.map(|(at, _)| (plan.counts_over_warp(at), plan.counts_over_row(at)));
    let counts: Vec<_> = counts.collect();
    let (on, not) = ((true, true), (true, false));
    assert_eq!(counts, [on, not, on, not, on], "{plan}");
}

/// Blocks that groups come to again before they wait.
#[test]
fn loops_within_regions() {
    let (plan, _) = plan(
        "mov.u32 %r1, 0; mov.u32 %r2, %tid.x;
        around: bar.sync 0;
        again: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra again;
        bar.sync 0; setp.lt.u32 %p2, %r1, 90; @%p2 bra around;",
    )
    .expect("it has a plan");
    let regions = plan.regions.as_ref().expect("it waits");
    let loops = regions.loops(&plan.control.graph.successors);
    // The inner loop's sum, and its branch.
    assert_eq!(loops.iter().filter(|inside| **inside).count(), 2, "{plan}");
}

/// Regions with few accesses to memory are simple, but for their loops.
#[test]
fn simple_regions() {
    let few = "ld.shared.u32 %r3, [tile+4];".repeat(8);
    let many = "ld.shared.u32 %r3, [tile+4];".repeat(9);
    for (accesses, expected) in [(few, [1, 1]), (many, [1, 0])] {
        let module = module(&format!(
            "mov.u32 %r1, 0; mov.u32 %r2, %tid.x; bar.sync 0; {accesses}"
        ));
        let function = &module.program().functions[0];
        let body = function.body.as_ref().expect("it has a body");
        let plan = Plan::of(function, body, (Rows::Any, true)).expect("it has a plan");
        let (regions, graph) = (
            plan.regions.as_ref().expect("it waits"),
            &plan.control.graph,
        );
        let simple = regions.simple(body, &graph.block_of, &graph.successors);
        let of = |region| {
            let inside = (0..simple.len()).filter(|block| regions.of[*block] == Some(region));
            usize::from(inside.into_iter().all(|block| simple[block]))
        };
        assert_eq!([of(0), of(1)], expected, "{plan}");
    }
}

/// Of branches between which no thread can wait, the last before a wait decides.
#[test]
fn the_last_branch_decides() {
    let (exits, _) = regions(
        "ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; mov.u32 %r4, 0;
        again: bar.sync 0;
        setp.lt.u32 %p1, %r2, %r4; @%p1 bra over; add.u32 %r2, %r2, 3; over:
        setp.lt.u32 %p2, %r2, %r1; @%p2 bra past; add.u32 %r2, %r2, 5; past:
        add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, %r1; @%p3 bra again;
        st.shared.u32 [tile], %r2;",
    )
    .expect("it has regions");
    let decides = |exit: &&Exit| matches!(exit, Exit::Branch { .. });
    assert_eq!(exits.iter().filter(decides).count(), 1, "{exits:?}");
}

/// Groups go in step through a loop over memory by thread numbers; not through one by what was
/// loaded, or with a wait, nor where threads may spin.
#[test]
fn loops_in_step() {
    let in_step_after = |before: &str, turn: &str| {
        (0..4).any(|more| {
            let more = "mov.u32 %r7, 1;".repeat(more);
            let (plan, _) = plan(&format!(
                "{more} ld.param.u32 %r1, [n]; ld.param.u64 %rd1, [a]; mov.u32 %r2, %tid.x;
                mov.u32 %r3, %tid.x; mov.u32 %r4, 0; {before}
                again:
                mul.wide.u32 %rd2, %r2, 4; add.u64 %rd2, %rd2, %rd1; ld.global.u32 %r5, [%rd2];
                add.u32 %r4, %r4, %r5; {turn} @%p1 bra again;
                bar.sync 0; st.shared.u32 [tile], %r4;"
            ))
            .expect("it has a plan");
            !plan.paces.is_empty()
        })
    };
    let counts = "add.u32 %r2, %r2, 64; setp.lt.u32 %p1, %r2, %r1;";
    assert!(in_step_after("ld.volatile.global.u32 %r6, [%rd1];", counts));
    assert!(!in_step_after(
        "spin: ld.volatile.global.u32 %r6, [%rd1]; setp.eq.u32 %p2, %r6, 0; @%p2 bra spin;",
        counts
    ));
    let in_step = |turn: &str| in_step_after("", turn);
    assert!(in_step(counts));
    assert!(in_step(
        "setp.eq.u32 %p2, %r5, 1; @%p2 bra one; add.u32 %r4, %r4, 9; one:
        add.u32 %r2, %r2, 64; setp.gt.u32 %p1, %r1, %r2;"
    ));
    assert!(!in_step(
        "add.u32 %r2, %r2, %r5; setp.lt.u32 %p1, %r2, %r1;"
    ));
    assert!(!in_step("add.u32 %r2, %r2, 64; setp.lt.u32 %p1, %r2, %r5;"));
    assert!(!in_step(
        "bar.sync 0; add.u32 %r2, %r2, 64; setp.lt.u32 %p1, %r2, %r1;"
    ));
}

/// Where threads go by what they loaded and access memory at any place, they do so one after the
/// other, and groups never come to these blocks; not where vectors do the work.
#[test]
fn threads_go_apart_by_what_they_loaded() {
    let apart = |turn: &str| {
        (0..8).any(|more| {
            let more = "mov.u32 %r7, 1;".repeat(more);
            let (plan, _) = plan(&format!(
                "{more} ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; ld.param.u32 %r6, [n];
                mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd2, %rd1; ld.global.u32 %r2, [%rd2];
                mov.u32 %r3, 0; mov.u32 %r4, 0;
                setp.ge.u32 %p1, %r3, %r2; @%p1 bra none;
                again: {turn} add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %r2; @%p1 bra again;
                none: bar.sync 0; st.shared.u32 [tile], %r4;"
            ))
            .expect("it has a plan");
            let mut apart = plan.apart.iter().flatten();
            let some = apart.any(|apart| apart.always);
            assert_eq!(
                some,
                (0..plan.masked.len()).any(|block| plan.is_unreached(block)),
                "{plan}"
            );
            some
        })
    };
    let gather = "add.u32 %r5, %r3, %r2; mul.wide.u32 %rd3, %r5, 4; add.u64 %rd3, %rd3, %rd1;
        ld.global.u32 %r5, [%rd3]; add.u32 %r4, %r4, %r5;";
    assert!(apart(gather));
    assert!(!apart("add.u32 %r4, %r4, %r1;"));
    assert!(!apart(&format!("{gather} bar.warp.sync -1;")));
    assert!(!apart(&format!("{gather} mov.u32 %r5, %laneid;")));
}

/// Blocks go in step through a loop over the grid if threads come to it anew in each pass, and keep
/// nothing from turn to turn but what counts.
#[test]
fn loops_over_the_grid() {
    let passes = |before: &str, turn: &str, next: &str| {
        let (plan, _) = plan(&format!(
            "ld.param.u64 %rd1, [a]; ld.param.u32 %r6, [n]; mov.u32 %r1, %tid.x;
            mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
            {before} mov.u32 %r5, %nctaid.x; mul.lo.u32 %r5, %r5, %r3;
            setp.ge.u32 %p1, %r4, %r6; @%p1 bra none;
            again: mul.wide.u32 %rd2, %r4, 4; add.u64 %rd2, %rd2, %rd1; {turn} {next}
            setp.lt.u32 %p1, %r4, %r6; @%p1 bra again;
            none: ret;"
        ))
        .expect("it has a plan");
        plan.passes.is_some()
    };
    let (store, next) = ("st.global.u32 [%rd2], %r4;", "add.u32 %r4, %r4, %r5;");
    assert!(passes("", store, next));
    assert!(passes("", store, "add.u32 %r4, 64, %r4;"));
    let branch = "setp.eq.u32 %p2, %r1, 3; @%p2 bra over; st.global.u32 [%rd2], %r4; over:";
    assert!(passes("", branch, next));
    for (before, turn, next) in [
        // What was done before is done once.
        ("st.global.u32 [%rd1], %r1;", store, next),
        ("ld.global.u32 %r7, [%rd1];", store, next),
        ("mov.u32 %r7, %clock;", store, next),
        // A sum; what counts by more each time, now and then, or twice.
        (
            "mov.u32 %r7, 0;",
            "ld.global.u32 %r0, [%rd2]; add.u32 %r7, %r7, %r0; st.global.u32 [%rd2], %r7;",
            next,
        ),
        ("", store, "add.u32 %r4, %r4, %r5; add.u32 %r5, %r5, 1;"),
        (
            "",
            store,
            "setp.gt.u32 %p2, %r6, 7; @%p2 add.u32 %r4, %r4, %r5;",
        ),
        ("", store, "add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r5;"),
        // Others may be waited for.
        (
            "",
            "ld.volatile.global.u32 %r7, [%rd1]; st.global.u32 [%rd2], %r7;",
            next,
        ),
        // Nothing goes through memory.
        ("", "", next),
    ] {
        assert!(!passes(before, turn, next), "{before} {turn} {next}");
    }
    // In another loop.
    let begin = "mov.u32 %r7, 0; outer:";
    let next = "add.u32 %r4, %r4, %r5;";
    let turn =
        "st.global.u32 [%rd2], %r7; add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 5; @%p2 bra outer;";
    assert!(!passes(begin, turn, next));
}

/// Which lanes do what is known where they compare their numbers, and not by other bits.
#[test]
fn lanes_part_by_their_numbers() {
    let plan = |number: &str| {
        let (plan, _) = plan(&format!(
            "mov.u32 %r1, %tid.x; ld.param.u32 %r2, [n]; {number}
            bar.sync 0; setp.ne.u32 %p1, %r3, 31; @%p1 bra past;
            mov.u32 %r4, tile; st.shared.u32 [%r4], %r2; past: bar.sync 0;"
        ))
        .expect("it has a plan");
        let known: Vec<u32> = plan.lanes.iter().copied().flatten().collect();
        let steps = plan.straight.iter().flatten().flatten();
        let some = steps.filter(|(_, lanes)| *lanes != super::straight::ALL);
        (known, some.map(|(_, lanes)| *lanes).collect::<Vec<u32>>())
    };
    for number in [
        "and.b32 %r3, %r1, 31;",
        "mov.u32 %r3, %laneid;",
        "add.u32 %r5, %r1, 64; and.b32 %r3, %r5, 31;",
    ] {
        // The address and the store.
        assert_eq!(
            plan(number),
            (vec![!(1 << 31)], vec![1 << 31; 2]),
            "{number}"
        );
    }
    let nothing = (vec![], vec![]);
    for number in [
        "and.b32 %r3, %r1, 63;",
        "and.b32 %r3, %r1, 32;",
        "and.b32 %r3, %r1, 31; or.b32 %r3, %r3, 64;",
        "and.b32 %r3, %r1, 31; add.u32 %r3, %r3, %r2;",
        "and.b32 %r3, %r1, 31; setp.eq.u32 %p2, %r2, 0; @%p2 mov.u32 %r3, 7;",
    ] {
        assert_eq!(plan(number), nothing, "{number}");
    }
}

/// The steps of a region that are done once for each column, as lines of the body.
fn once_for_columns(body: &str) -> Vec<Option<Vec<String>>> {
    let lines: Vec<&str> = body.split(';').map(str::trim).collect();
    let (plan, _) = plan(body).expect("it has a plan");
    let lines = |steps: &Vec<usize>| steps.iter().map(|at| lines[*at].to_owned()).collect();
    let columns = plan.columns.iter();
    columns
        .map(|column| column.as_ref().map(|column| lines(&column.steps)))
        .collect()
}

#[test]
fn columns_have_in_common_what_hangs_on_x() {
    let x = [
        "mov.u32 %r1, %tid.x",
        "mul.lo.u32 %r2, %r1, 40503",
        "shr.u32 %r3, %r2, 3",
    ];
    let y = ["mov.u32 %r4, %tid.y", "add.u32 %r5, %r4, %r3"];
    let body = |lines: &[&str]| {
        format!(
            "{}; st.shared.u32 [tile], %r5; bar.sync 0;",
            lines.join("; ")
        )
    };
    let both = [&x[..], &y].concat();
    let expected: Vec<String> = x.iter().map(|line| line.to_string()).collect();
    assert_eq!(once_for_columns(&body(&both))[0].as_ref(), Some(&expected));
    // Without rows, there is one thread of each column.
    let alone = body(&both).replace("%tid.y", "%tid.x");
    assert!(once_for_columns(&alone).iter().all(Option::is_none));
    // What is written twice, under a guard, or differs from row to row, is not of the column.
    for other in [
        "add.u32 %r2, %r2, 1",
        "@%p1 mov.u32 %r6, %r3",
        "add.u32 %r6, %r4, 1",
    ] {
        let lines = [&both[..], &[other]].concat();
        let columns = once_for_columns(&body(&lines));
        let steps = columns[0].as_ref().expect("one register is");
        assert!(!steps.contains(&other.to_owned()), "{steps:?}");
        assert_eq!(
            steps.len(),
            if other.contains("%r2, 1") { 1 } else { 3 },
            "{steps:?}"
        );
    }
}
