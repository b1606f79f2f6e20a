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

/// Blocks that wait for the whole grid, through CUDA's device runtime. In each round every thread
/// takes what the next one has, plus one.
const GRID: &str = "
    .extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 scope);
    .extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
    .extern .func (.param .b32 r) cudaCGGetSize(.param .b64 a, .param .b64 b, .param .b64 handle);
    .extern .func (.param .b32 r) cudaCGGetRank(.param .b64 a, .param .b64 b, .param .b64 handle);
    .visible .entry rounds(.param .u64 values, .param .u32 count)
    {
        .local .align 8 .b8 answers[16];
        .reg .pred %p; .reg .b32 %r<12>; .reg .b64 %rd<12>;
        ld.param.u64 %rd1, [values];
        ld.param.u32 %r1, [count];
        mov.u64 %rd2, answers;
        cvta.local.u64 %rd2, %rd2;
        add.u64 %rd3, %rd2, 4;
        { .param .b32 a; .param .b64 r; st.param.b32 [a], 1;
          call (r), cudaCGGetIntrinsicHandle, (a); ld.param.b64 %rd4, [r]; }
        { .param .b64 a; .param .b64 b; .param .b64 c; .param .b32 r;
          st.param.b64 [a], %rd2; st.param.b64 [b], %rd3; st.param.b64 [c], %rd4;
          call (r), cudaCGGetSize, (a, b, c); }
        ld.local.u32 %r2, [answers];
        { .param .b64 a; .param .b64 b; .param .b64 c; .param .b32 r;
          st.param.b64 [a], %rd2; st.param.b64 [b], 0; st.param.b64 [c], %rd4;
          call (r), cudaCGGetRank, (a, b, c); }
        ld.local.u32 %r3, [answers];
        add.u32 %r4, %r3, 1;
        rem.u32 %r4, %r4, %r2;
        mad.wide.u32 %rd5, %r3, 4, %rd1;
        mad.wide.u32 %rd6, %r4, 4, %rd1;
    AGAIN:
        ld.global.u32 %r5, [%rd6];
        add.u32 %r5, %r5, 1;
        { .param .b64 a; .param .b32 b; .param .b32 r; st.param.b64 [a], %rd4; st.param.b32 [b], 0;
          call (r), cudaCGSynchronize, (a, b); ld.param.b32 %r6, [r]; }
        st.global.u32 [%rd5], %r5;
        { .param .b64 a; .param .b32 b; .param .b32 r; st.param.b64 [a], %rd4; st.param.b32 [b], 0;
          call (r), cudaCGSynchronize, (a, b); ld.param.b32 %r7, [r]; }
        or.b32 %r6, %r6, %r7;
        setp.ne.u32 %p, %r6, 0;
        @%p trap;
        sub.u32 %r1, %r1, 1;
        setp.ne.u32 %p, %r1, 0;
        @%p bra AGAIN;
        ret;
    }
    .visible .entry answers(.param .u64 to, .param .u32 scope)
    {
        .reg .pred %p; .reg .b32 %r<12>; .reg .b64 %rd<12>;
        ld.param.u64 %rd1, [to];
        ld.param.u32 %r1, [scope];
        { .param .b32 a; .param .b64 r; st.param.b32 [a], %r1;
          call (r), cudaCGGetIntrinsicHandle, (a); ld.param.b64 %rd2, [r]; }
        setp.ne.u64 %p, %rd2, 0;
        selp.u32 %r2, 1, 0, %p;
        st.global.u32 [%rd1], %r2;
        { .param .b64 a; .param .b32 b; .param .b32 r; st.param.b64 [a], %rd2; st.param.b32 [b], 0;
          call (r), cudaCGSynchronize, (a, b); ld.param.b32 %r3, [r]; }
        st.global.u32 [%rd1+4], %r3;
        add.u64 %rd3, %rd1, 12;
        add.u64 %rd4, %rd1, 16;
        { .param .b64 a; .param .b64 b; .param .b64 c; .param .b32 r;
          st.param.b64 [a], %rd3; st.param.b64 [b], %rd4; st.param.b64 [c], %rd2;
          call (r), cudaCGGetSize, (a, b, c); ld.param.b32 %r4, [r]; }
        st.global.u32 [%rd1+8], %r4;
        add.u64 %rd3, %rd1, 24;
        add.u64 %rd4, %rd1, 28;
        { .param .b64 a; .param .b64 b; .param .b64 c; .param .b32 r;
          st.param.b64 [a], %rd3; st.param.b64 [b], %rd4; st.param.b64 [c], %rd2;
          call (r), cudaCGGetRank, (a, b, c); ld.param.b32 %r5, [r]; }
        st.global.u32 [%rd1+20], %r5;
        ret;
    }";

/// [`GRID`] linked with the device runtime. Software needs no more of that than its name; on a GPU
/// `LIBCUDADEVRT` is the path of NVIDIA's, and without it there is nothing to test.
unsafe fn grid_module() -> Option<Handle> {
    let library = std::env::var("LIBCUDADEVRT").ok().map(std::fs::read);
    let library = match library {
        Some(library) => library.expect("LIBCUDADEVRT can be read"),
        None if crate::driver::driver() == crate::driver::Driver::Gpu => return None,
        None => {
            let member = |name: &str, data: &str| {
                let size = data.len();
                format!("{name:<48}{size:<10}`\n{data}")
            };
            let names = member("//", "cuda_device_runtime.o/\n\n");
            format!("!<arch>\n{names}{}", member("/0", "none")).into_bytes()
        }
    };
    let (mut state, mut image, mut size, mut module) = (0, std::ptr::null_mut(), 0, 0);
    let none = std::ptr::null_mut;
    cuLinkCreate_v2(0, none(), none().cast(), &mut state).must();
    add(state, GRID).must();
    cuLinkAddData_v2(
        state,
        4,
        library.as_ptr().cast_mut().cast(),
        library.len(),
        c"library".as_ptr(),
        0,
        none(),
        none().cast(),
    )
    .must();
    cuLinkComplete(state, &mut image, &mut size).must();
    cuModuleLoadData(&mut module, image).must();
    cuLinkDestroy(state).must();
    Some(module)
}

unsafe fn launch_together(function: Handle, blocks: u32, threads: u32, params: &mut [*mut c_void]) {
    cuLaunchCooperativeKernel(
        function,
        blocks,
        1,
        1,
        threads,
        1,
        1,
        0,
        0,
        params.as_mut_ptr(),
    )
    .must();
    cuCtxSynchronize().must();
}

#[test]
fn the_blocks_of_a_grid_meet_through_the_device_runtime() {
    unsafe {
        context();
        let Some(module) = grid_module() else { return };
        let function = function_of(module, c"rounds");
        for (blocks, threads, rounds) in [(1, 1, 3), (2, 33, 5), (16, 64, 4), (30, 7, 2)] {
            let count = (blocks * threads) as usize;
            let mut values: Vec<u32> = (0..count as u32).map(|n| 10 * n).collect();
            let (mut pointer, mut turns) = (memory(4 * count), rounds);
            cuMemcpyHtoD_v2(pointer, values.as_ptr().cast(), 4 * count).must();
            let params = &mut [void(&mut pointer), void(&mut turns)];
            launch_together(function, blocks, threads, params);
            cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), pointer, 4 * count).must();
            let expected = (0..count).map(|n| 10 * ((n as u32 + rounds) % count as u32) + rounds);
            assert_eq!(
                values,
                expected.collect::<Vec<_>>(),
                "{blocks} of {threads}"
            );
        }
    }
}

/// The answers are those of an H200.
#[test]
fn the_device_runtime_knows_no_group_but_a_cooperative_grid() {
    const UNKNOWN: u32 = 999;
    unsafe {
        context();
        let Some(module) = grid_module() else { return };
        let function = function_of(module, c"answers");
        for (together, scope) in [(true, 1), (true, 0), (true, 2), (false, 1), (false, 2)] {
            let (mut pointer, mut asked) = (memory(32), scope);
            let params = &mut [void(&mut pointer), void(&mut asked)];
            match together {
                true => launch_together(function, 1, 1, params),
                false => launch(function, 1, 1, 0, params).must(),
            }
            let mut answers = [0u32; 8];
            cuMemcpyDtoH_v2(answers.as_mut_ptr().cast(), pointer, 32).must();
            let expected = match (together, scope) {
                (true, 1) => [1, 0, 0, 1, 1, 0, 0, 1],
                _ => [0, UNKNOWN, UNKNOWN, 0, 0, UNKNOWN, 0, 0],
            };
            assert_eq!(answers, expected, "{together} {scope}");
        }
    }
}
