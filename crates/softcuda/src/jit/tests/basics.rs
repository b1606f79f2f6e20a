//! The plainest kernels.

use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer};

pub(super) const SAXPY: &str = "
.version 8.8
.target sm_90
.address_size 64
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.b32 %r6, [a];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra $done;
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.s32 %rd5, %r5, 4;
    add.s64 %rd6, %rd3, %rd5;
    ld.global.b32 %r7, [%rd6];
    add.s64 %rd7, %rd4, %rd5;
    ld.global.b32 %r8, [%rd7];
    fma.rn.f32 %r9, %r6, %r7, %r8;
    st.global.b32 [%rd7], %r9;
$done:
    ret;
}
";

#[test]
fn saxpy() {
    let mut x: Vec<f32> = (0..1000).map(|n| n as f32).collect();
    let mut y = vec![1.0f32; 1000];
    harness::run(
        SAXPY,
        "saxpy",
        [8, 1, 1],
        [128, 1, 1],
        &mut [buffer(&mut x), buffer(&mut y)],
        &[&2.0f32.to_le_bytes(), &1000u32.to_le_bytes()],
    )
    .unwrap();
    for (n, y) in y.iter().enumerate() {
        assert_eq!(*y, 2.0 * n as f32 + 1.0);
    }
}

#[test]
fn saxpy_beyond_its_buffer_faults() {
    let mut x = vec![0f32; 100];
    let mut y = vec![0f32; 101];
    let fault = harness::run(
        SAXPY,
        "saxpy",
        [1, 1, 1],
        [128, 1, 1],
        &mut [buffer(&mut x), buffer(&mut y)],
        &[&2.0f32.to_le_bytes(), &101u32.to_le_bytes()],
    )
    .unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert_eq!(fault.thread, Some([100, 0, 0]));
    assert_eq!(fault.block, [0, 0, 0]);
}
