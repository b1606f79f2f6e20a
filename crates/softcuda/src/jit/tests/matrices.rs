//! Matrix instructions where they are misused, and what they promise beyond their numbers, which
//! the integration test `kernels` compares with an H200's.

use crate::grid::launch::{Fault, FaultKind};
use crate::jit::harness::{self, buffer};
use crate::jit::module::Form;

const FORMS: [Form; 3] = [Form::Vectors, Form::Rounds, Form::Fibers];

fn kernel(body: &str) -> String {
    format!(
        ".version 9.0\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 out) {{
    .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<32>; .reg .f32 %f<32>; .reg .f64 %d<16>;
    .reg .b64 %rd<16>; .shared .align 1024 .b8 area[4096];
    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd2, %rd1, %rd2; mov.u32 %r2, area;
    {body}
}}"
    )
}

fn run(form: Form, body: &str, threads: u32, out: &mut [u32]) -> Result<(), Fault> {
    let module = harness::load_as(&kernel(body), form);
    let (grid, block) = ([1, 1, 1], [threads, 1, 1]);
    harness::run_in(&module, "k", grid, block, 0, &mut [buffer(out)], &[])
}

#[test]
fn wrong_forms_are_refused() {
    for body in [
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5}, {%f1,%f2,%f3,%f4};",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%rd1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
        "mma.sync.aligned.m16n8k16.col.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
        "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
        "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s4.s32 {%r1,%r2}, {%r3}, {%r4}, {%r5,%r6};",
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%r9,%r10}, {%r1,%r2,%r3,%r4};",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r5,%r6}, {%f1,%f2,%f3,%f4}, %r7, 4;",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r5,%r6}, {%f1,%f2,%f3,%f4}, %r7, %r8;",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
        "mma.sync.aligned.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r5}, {%f1};",
        "wmma.mma.sync.aligned.row.col.m16n16k16.s32.f16 {%r1}, {%r1}, {%r5}, {%r1};",
        "wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32 {%r1,%r2}, {%r3}, {%r4}, {%r5,%r6};",
        "wmma.load.a.sync.aligned.row.m16n16k16.f32 {%f1}, [%rd1];",
        "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1,%r2,%r3,%r4}, [%rd1];",
        "wmma.load.d.sync.aligned.row.m16n16k16.f16 {%r1,%r2,%r3,%r4}, [%rd1];",
        "wmma.load.a.sync.aligned.m16n16k16.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1];",
        "wmma.store.d.sync.aligned.row.m16n16k16.s8 [%rd1], {%r1,%r2};",
        "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r1,%r2,%r3}, [%r2];",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r2];",
        "ldmatrix.sync.aligned.m8n8.x1.global.b16 {%r1}, [%rd1];",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%h1}, [%r2];",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {_};",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r1;",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3}, %rd1, %rd2, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %r1, %rd2, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, %p1, 2, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, %p1, 1, 1;",
        "wgmma.mma_async.sync.aligned.m64n8k8.f64.f64.f64 {%d1,%d2,%d3,%d4}, %rd1, %rd2, %p1, 1, 1;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, %r1, 0, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, %r1, 2, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8 {%r1,%r2,%r3,%r4}, %rd1, %rd2, %r1, 1, %p1;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8 {%r1,%r2,%r3,%r4}, %rd1, %rd2, %rd1, 0, %p1;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8 {%r1,%r2,%r3,%r4}, %rd1, %rd2, %p1;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k512.s32.b1.b1.and.popc {%r1,%r2,%r3,%r4}, %rd1, %rd2, %r1, 0, %p1;",
        "wgmma.wait_group.sync.aligned;",
    ] {
        let error = harness::refusal(&kernel(body));
        assert!(error.log.contains("line 9;"), "{body}: {}", error.log);
    }
}

/// Each lane reads, at once, what another stored.
#[test]
fn what_was_stored_is_there_for_all_lanes() {
    let zeros = (0..8).map(|n| format!("mov.b32 %f{}, {n}.0; ", n + 1));
    let zeros: String = zeros.collect();
    let body = format!(
        "{zeros} cvt.rn.f32.u32 %f9, %r1; add.f32 %f1, %f1, %f9;
    wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r2], {{%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}}, 16;
    xor.b32 %r3, %r1, 31; shl.b32 %r3, %r3, 3; add.u32 %r3, %r3, %r2;
    ld.shared.b32 %r4, [%r3]; st.global.b32 [%rd2], %r4;
    stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {{%r1}};
    ld.shared.b32 %r4, [%r3]; st.global.b32 [%rd2+128], %r4; ret;"
    );
    let rows = "mov.u32 %r6, 15; and.b32 %r5, %r1, 7; mad.lo.u32 %r5, %r5, 16, %r2;";
    let body = body.replace("stmatrix", &format!("{rows} stmatrix"));
    for form in FORMS {
        let mut out = [0u32; 64];
        run(form, &body, 32, &mut out).unwrap();
        let (sums, matrix) = out.split_at(32);
        for (lane, word) in sums.iter().enumerate() {
            // Two columns of a row, of which the lane's element has the number of its register,
            // or of the lane where that is 0.
            let place = 2 * (lane ^ 31);
            let (row, column) = (place / 16, place % 16);
            let owner = 4 * (row % 8) + column % 8 / 2;
            let register = if row >= 8 { 2 } else { 0 } + if column >= 8 { 4 } else { 0 };
            let own = if register == 0 { owner } else { register };
            assert_eq!(f32::from_bits(*word), own as f32, "{form:?} {lane}");
        }
        // Eight rows of four words: pairs of 16 bits, one word for each lane.
        for (lane, word) in matrix.iter().enumerate() {
            let place = 2 * (lane ^ 31);
            if place < 32 {
                assert_eq!(*word as usize, place, "{form:?} {lane}");
            }
        }
    }
}

#[test]
fn rows_that_are_not_there() {
    let row = |address: &str, what: &str| {
        format!("mad.lo.u32 %r3, %r1, 16, %r2; {address} {what} st.global.b32 [%rd2], %r4; ret;")
    };
    let load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];";
    let store = "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r3], {%r4};";
    for form in FORMS {
        for what in [load, store] {
            let fault = |address: &str| {
                let result = run(form, &row(address, what), 32, &mut [0; 32]);
                result.expect_err(address).kind
            };
            assert_eq!(fault("add.u32 %r3, %r3, 4096;"), FaultKind::IllegalAddress);
            assert_eq!(fault("add.u32 %r3, %r3, 8;"), FaultKind::Misaligned);
            run(form, &row("", what), 32, &mut [0; 32]).unwrap();
        }
    }
}

/// Of a row that is not there, the first thread that takes a part of it is blamed, and that part is
/// named.
#[test]
fn who_takes_a_row_that_is_not_there() {
    for form in FORMS {
        for (trans, size) in [("", 4), (".trans", 2)] {
            let fault = |bad: &str| {
                let body = format!(
                    "mad.lo.u32 %r3, %r1, 16, %r2; and.b32 %r8, %r1, 7; setp.{bad};
                    @%p1 mad.lo.u32 %r3, %r1, 16, 0x10000;
                    ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r3];
                    st.global.b32 [%rd2], %r4; ret;"
                );
                let fault = run(form, &body, 32, &mut [0; 32]).expect_err(bad);
                assert_eq!(fault.kind, FaultKind::IllegalAddress, "{body}");
                (fault.thread, fault.access)
            };
            let taken_by = |lane: u32| {
                let thread = match trans {
                    "" => 4 * (lane % 8),
                    _ => lane % 8 / 2,
                };
                let address = u64::from(0x10000 + 16 * lane);
                (Some([thread, 0, 0]), Some((address, size)))
            };
            for lane in [0, 1, 7, 8, 15, 21, 30, 31] {
                let bad = format!("eq.u32 %p1, %r1, {lane}");
                assert_eq!(fault(&bad), taken_by(lane), "{form:?} {bad}");
            }
            // The last rows of all matrices: of the first of them, in the first matrix.
            assert_eq!(fault("ge.u32 %p1, %r8, 5"), taken_by(5), "{form:?}");
        }
    }
}

/// Rows are where a register and a number say, whose sum wraps as an H200's does, and rows of
/// threads that are not there do no harm.
#[test]
fn rows_at_a_distance() {
    let fill = "mad.lo.u32 %r3, %r1, 16, %r2; add.u32 %r3, %r3, 1024; shl.b32 %r4, %r1, 2;
        add.u32 %r5, %r4, 1; add.u32 %r6, %r4, 2; add.u32 %r7, %r4, 3;
        st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7}; bar.sync 0;
        sub.u32 %r8, %r3, 48; add.u32 %r9, %r3, 32; sub.u32 %r11, %r3, 8192;
        cvt.u64.u32 %rd5, %r3; sub.u64 %rd6, %rd5, 64;";
    let element = |row: usize, column: usize| match column % 2 {
        0 => (4 * row + column / 2) as u32,
        _ => 0,
    };
    for form in FORMS {
        for threads in [32, 16, 8] {
            for address in ["%r3", "%r8+48", "%r9+-32", "%r11+8192", "%rd5", "%rd6+64"] {
                for turned in [false, true] {
                    let trans = if turned { ".trans" } else { "" };
                    // What is stored transposed lies as it was.
                    let body = format!(
                        "{fill} ldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 {{%r10, _}},
                        [{address}]; bar.warp.sync -1;
                        stmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 [{address}], {{%r10}};
                        ldmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 {{%r10}}, [{address}];
                        st.global.b32 [%rd2], %r10; ret;"
                    );
                    let mut out = [0u32; 32];
                    run(form, &body, threads, &mut out).unwrap();
                    for (lane, word) in out.iter().enumerate().take(threads as usize) {
                        let (row, pair) = (lane / 4, 2 * (lane % 4));
                        let wanted = match turned {
                            false => element(row, pair) | element(row, pair + 1) << 16,
                            true => element(pair, row) | element(pair + 1, row) << 16,
                        };
                        assert_eq!(*word, wanted, "{form:?} {threads} {address} {lane}");
                    }
                }
            }
        }
    }
}

#[test]
fn descriptors_of_memory_that_is_not_there() {
    let body = |descriptor: u64| {
        format!(
            "mov.b32 %f1, 0f00000000; mov.b32 %f2, %f1; mov.b32 %f3, %f1; mov.b32 %f4, %f1;
    setp.eq.u32 %p1, %r1, %r1; mov.u64 %rd4, 0; mov.u64 %rd5, {descriptor:#x};
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f1,%f2,%f3,%f4}}, %rd4, %rd5, %p1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    st.global.f32 [%rd2], %f1; ret;"
        )
    };
    for form in FORMS {
        let mut out = [1u32; 128];
        run(form, &body(0), 128, &mut out).unwrap();
        for descriptor in [0x3fff, 0x3fff << 16, u64::MAX] {
            let fault = run(form, &body(descriptor), 128, &mut out).unwrap_err();
            assert_eq!(fault.kind, FaultKind::IllegalAddress, "{form:?}");
        }
    }
}

/// Lanes that have ended take no part; what they would have brought is any number.
#[test]
fn a_warp_without_all_lanes_goes_on() {
    let body = "setp.gt.u32 %p1, %r1, 20; @%p1 ret;
    mov.b32 %f1, 0f3f800000; mov.b32 %r3, 0; mov.b32 %r4, 0;
    mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r3,%r4}, {%r4}, {%f1,%f1,%f1,%f1};
    movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r1;
    st.global.b32 [%rd2], 7; ret;";
    for form in FORMS {
        let mut out = [0u32; 32];
        run(form, body, 32, &mut out).unwrap();
        assert!(out[..21].iter().all(|word| *word == 7), "{form:?}");
        assert!(out[21..].iter().all(|word| *word == 0), "{form:?}");
    }
}
