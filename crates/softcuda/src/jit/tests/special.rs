//! Special registers, over a block and a grid with three dimensions.

use crate::jit::harness::{self, buffer};

/// Each thread of a 2x3x2 grid of 3x2x7 blocks stores a register's value, in order of linear block
/// and thread.
fn values(register: &str) -> Vec<u32> {
    let source = harness::module(&format!(
        ".visible .entry k(.param .u64 out) {{
    .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.z; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r1, %r1, 3, %r3;
    mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r1, 2, %r3;
    mov.u32 %r3, %tid.z; mad.lo.u32 %r1, %r1, 7, %r3;
    mov.u32 %r3, %tid.y; mad.lo.u32 %r1, %r1, 2, %r3;
    mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, 3, %r3;
    mad.wide.u32 %rd2, %r1, 4, %rd1; {register} st.global.u32 [%rd2], %r2; }}"
    ));
    let mut out = vec![u32::MAX; 12 * 42];
    harness::run(
        &source,
        "k",
        [2, 3, 2],
        [3, 2, 7],
        &mut [buffer(&mut out)],
        &[],
    )
    .unwrap();
    out
}

fn check(register: &str, wanted: impl Fn(u32, u32) -> u32) {
    let text = match register.contains(';') {
        true => register.to_owned(),
        false => format!("mov.u32 %r2, {register};"),
    };
    let got = values(&text);
    let wanted: Vec<u32> = (0..12)
        .flat_map(|block| (0..42).map(move |thread| (block, thread)))
        .map(|(b, t)| wanted(b, t))
        .collect();
    assert_eq!(got, wanted, "{register}");
}

#[test]
fn indices() {
    check("%tid.x", |_, t| t % 3);
    check("%tid.y", |_, t| t / 3 % 2);
    check("%tid.z", |_, t| t / 6);
    check("%tid.w", |_, _| 0);
    check("%ntid.x", |_, _| 3);
    check("%ntid.z", |_, _| 7);
    check("%ctaid.x", |b, _| b % 2);
    check("%ctaid.y", |b, _| b / 2 % 3);
    check("%ctaid.z", |b, _| b / 6);
    check("%nctaid.y", |_, _| 3);
    check(
        ".reg .v4 .u32 v; mov.v4.u32 v, %tid; mov.u32 %r2, v.z;",
        |_, t| t / 6,
    );
}

#[test]
fn lanes() {
    check("%laneid", |_, t| t % 32);
    check("%warpid", |_, t| t / 32);
    check("%lanemask_eq", |_, t| 1 << (t % 32));
    check("%lanemask_lt", |_, t| (1 << (t % 32)) - 1);
    check("%lanemask_ge", |_, t| !((1u32 << (t % 32)) - 1));
    check("%lanemask_le", |_, t| ((1u64 << (t % 32 + 1)) - 1) as u32);
    check("%lanemask_gt", |_, t| !((1u64 << (t % 32 + 1)) - 1) as u32);
    check("WARP_SZ", |_, _| 32);
    check(
        "mov.u64 %rd3, %current_graph_exec; cvt.u32.u64 %r2, %rd3;",
        |_, _| 0,
    );
}

/// A register that holds a number divides as the number does.
#[test]
fn numbers_in_registers_divide() {
    let thread = |b: u32, t: u32| 42 * b + t;
    let warp = "mov.u32 %r4, WARP_SZ;";
    check(&format!("{warp} rem.u32 %r2, %r1, %r4;"), |b, t| {
        thread(b, t) % 32
    });
    check(&format!("{warp} div.u32 %r2, %r1, %r4;"), |b, t| {
        thread(b, t) / 32
    });
    let negative = |b, t| 100 - thread(b, t).cast_signed();
    let below = format!("{warp} sub.s32 %r5, 100, %r1;");
    check(&format!("{below} rem.s32 %r2, %r5, %r4;"), |b, t| {
        (negative(b, t) % 32).cast_unsigned()
    });
    check(&format!("{below} div.s32 %r2, %r5, %r4;"), |b, t| {
        (negative(b, t) / 32).cast_unsigned()
    });
    check("mov.b32 %r4, 7; div.u32 %r2, %r1, %r4;", |b, t| {
        thread(b, t) / 7
    });
    // It holds others, too.
    let twice = format!("{warp} rem.u32 %r2, %r1, %r4; mov.u32 %r4, 5; rem.u32 %r2, %r2, %r4;");
    check(&twice, |b, t| thread(b, t) % 32 % 5);
    let sometimes = "mov.u32 %r4, 7; setp.lt.u32 %p, %r1, 9; @%p mov.u32 %r4, 4;
        rem.u32 %r2, %r1, %r4;";
    check(sometimes, |b, t| match thread(b, t) {
        few @ 0..9 => few % 4,
        more => more % 7,
    });
}

#[test]
fn clusters_of_one_block() {
    check("%cluster_ctarank", |_, _| 0);
    check("%cluster_nctarank", |_, _| 1);
    check("%clusterid.y", |b, _| b / 2 % 3);
    check("%nclusterid.z", |_, _| 2);
    check("%cluster_ctaid.x", |_, _| 0);
    check(
        "mov.pred %p, %is_explicit_cluster; selp.u32 %r2, 1, 0, %p;",
        |_, _| 0,
    );
}

#[test]
fn sizes() {
    check("%dynamic_smem_size", |_, _| 0);
    check(
        ".shared .u32 s[5]; st.shared.u32 [s], 1; mov.u32 %r2, %total_smem_size;",
        |_, _| 20,
    );
    check("%envreg1", |_, _| 0);
    check("%pm3", |_, _| 0);
}

#[test]
fn clocks_go_on() {
    let ok = "mov.u64 %rd3, %CLOCK; .reg .b64 %x; mov.u64 %x, %CLOCK; setp.ge.u64 %p, %x, %rd3; selp.u32 %r2, 1, 0, %p;";
    check(&ok.replace("%CLOCK", "%clock64"), |_, _| 1);
    check(&ok.replace("%CLOCK", "%globaltimer"), |_, _| 1);
    let values = values(
        "mov.u32 %r2, %clock; mov.u32 %r2, %clock_hi; mov.u32 %r2, %globaltimer_lo; mov.u32 %r2, %globaltimer_hi;",
    );
    // Seconds since 1970 are beyond 2^30, so nanoseconds are beyond 2^60.
    assert!(values.iter().all(|high| *high > 1 << 28));
}
