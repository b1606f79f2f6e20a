//! A program as people write it: cudarc's safe layer, which knows nothing of what is below it.

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

use crate::driver::driver;

const SAXPY: &str = "
.version 7.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u64 n)
{
    .reg .pred %p<2>; .reg .b32 %r<5>; .reg .f32 %f<5>; .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    ld.param.f32 %f1, [a];
    ld.param.u64 %rd3, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %rd4, %r4;
    setp.ge.u64 %p1, %rd4, %rd3;
    @%p1 bra done;
    cvta.to.global.u64 %rd5, %rd1;
    cvta.to.global.u64 %rd6, %rd2;
    shl.b64 %rd7, %rd4, 2;
    add.u64 %rd8, %rd5, %rd7;
    add.u64 %rd9, %rd6, %rd7;
    ld.global.f32 %f2, [%rd9];
    ld.global.f32 %f3, [%rd8];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd8], %f4;
done:
    ret;
}";

#[test]
fn cudarcs_safe_layer_copies_launches_and_reads_back() {
    driver();
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let module = context.load_module(Ptx::from_src(SAXPY)).unwrap();
    let saxpy = module.load_function("saxpy").unwrap();
    let n = 10_007usize;
    let x: Vec<f32> = (0..n).map(|index| index as f32).collect();
    let x = stream.clone_htod(&x).unwrap();
    let mut y = stream.alloc_zeros::<f32>(n).unwrap();
    let mut launch = stream.launch_builder(&saxpy);
    launch.arg(&mut y).arg(&x).arg(&0.5f32).arg(&n);
    unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }.unwrap();
    let y = stream.clone_dtoh(&y).unwrap();
    assert!(
        y.iter()
            .enumerate()
            .all(|(index, &value)| value == index as f32 * 0.5)
    );
    assert!(context.check_err().is_ok());
}
