//! Code of several texts.

use super::*;

const HEADER: &str = ".version 7.0\n.target sm_80\n.address_size 64\n";

unsafe fn add(state: Handle, text: &str) -> Answer {
    let text = format!("{HEADER}{text}\0");
    let none = std::ptr::null_mut;
    let data = text.as_ptr().cast_mut().cast();
    cuLinkAddData_v2(
        state,
        1,
        data,
        text.len(),
        c"part".as_ptr(),
        0,
        none(),
        none().cast(),
    )
}

#[test]
fn a_kernel_calls_a_function_of_another_text() {
    unsafe {
        context();
        let (mut state, mut image, mut size, mut module) = (0, std::ptr::null_mut(), 0, 0);
        cuLinkCreate_v2(0, std::ptr::null_mut(), std::ptr::null_mut(), &mut state).must();
        add(
            state,
            ".extern .func (.param .b32 r) scaled(.param .b32 x);
             .extern .global .align 4 .u32 factor;
             .visible .entry run(.param .u64 to)
             {
                 .reg .b64 %rd<3>; .reg .b32 %r<4>;
                 ld.param.u64 %rd1, [to];
                 cvta.to.global.u64 %rd2, %rd1;
                 mov.u32 %r1, 5;
                 { .param .b32 a; .param .b32 b;
                   st.param.b32 [a], %r1;
                   call.uni (b), scaled, (a);
                   ld.param.b32 %r2, [b]; }
                 ld.global.u32 %r3, [factor];
                 add.u32 %r2, %r2, %r3;
                 st.global.u32 [%rd2], %r2;
                 ret;
             }",
        )
        .must();
        add(
            state,
            ".visible .global .align 4 .u32 factor = 3;
             .visible .func (.param .b32 r) scaled(.param .b32 x)
             {
                 .reg .b32 %r<4>;
                 ld.param.b32 %r1, [x];
                 ld.global.u32 %r2, [factor];
                 mul.lo.u32 %r3, %r1, %r2;
                 st.param.b32 [r], %r3;
                 ret;
             }",
        )
        .must();
        cuLinkComplete(state, &mut image, &mut size).must();
        cuModuleLoadData(&mut module, image).must();
        cuLinkDestroy(state).must();
        let pointer = memory(4);
        let mut argument = pointer;
        launch(
            function_of(module, c"run"),
            1,
            1,
            0,
            &mut [void(&mut argument)],
        )
        .must();
        assert_eq!(word(pointer), 18);
    }
}
