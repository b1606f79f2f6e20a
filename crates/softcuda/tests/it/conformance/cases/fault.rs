//! Kernels that fail, and what the driver answers from then on.

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone};
use crate::conformance::fixture::*;

/// Launches, waits, and writes both answers down.
unsafe fn runs(
    line: &mut Line,
    function: Handle,
    threads: u32,
    arguments: &mut [*mut std::ffi::c_void],
) {
    line.says_as("launch", launch(function, 1, threads, 0, arguments));
    line.says_as("synchronize", cuCtxSynchronize());
    line.says_as("again", cuCtxSynchronize());
    line.says_as("alloc", cuMemAlloc_v2(&mut 0, 16));
}

unsafe fn stores(line: &mut Line, address: u64) {
    let (mut address, mut value) = (address, 1u32);
    runs(
        line,
        function(c"store"),
        1,
        &mut [void(&mut address), void(&mut value)],
    );
}

unsafe fn loads(line: &mut Line, address: u64) {
    let (mut to, mut address) = (memory(64), address);
    runs(
        line,
        function(c"load"),
        1,
        &mut [void(&mut to), void(&mut address)],
    );
}

/// Leaves the context with the sticky error of an illegal address.
unsafe fn poison() {
    let (mut address, mut value) = (0u64, 1u32);
    launch(
        function(c"store"),
        1,
        1,
        0,
        &mut [void(&mut address), void(&mut value)],
    )
    .must();
    cuCtxSynchronize().ignore();
}

unsafe fn shared_at(line: &mut Line, offset: u32, shared: u32) {
    let mut offset = offset;
    let function = function(c"shared_at");
    let mut arguments = [void(&mut offset)];
    let none = std::ptr::null_mut();
    line.says_as(
        "launch",
        cuLaunchKernel(
            function,
            1,
            1,
            1,
            1,
            1,
            1,
            shared,
            0,
            arguments.as_mut_ptr(),
            none,
        ),
    );
    line.says_as("synchronize", cuCtxSynchronize());
}

unsafe fn recurses(line: &mut Line, depth: u32) {
    let (to, mut depth) = (memory(64), depth);
    let mut argument = to;
    line.says_as(
        "launch",
        launch(
            function(c"recurse"),
            1,
            1,
            0,
            &mut [void(&mut argument), void(&mut depth)],
        ),
    );
    if line.says_as("synchronize", cuCtxSynchronize()) {
        line.value("sum", word(to));
    }
}

pub const CASES: &[Case] = &[
    alone!("fault/write/null", |line| {
        context();
        stores(line, 0);
    }),
    alone!("fault/write/wild", |line| {
        context();
        stores(line, 0x7_0000_0000_0000);
    }),
    alone!("fault/write/far_past_the_end", |line| {
        context();
        stores(line, memory(64) + (1 << 40));
    }),
    alone!("fault/write/misaligned", |line| {
        context();
        stores(line, memory(64) + 1);
    }),
    alone!("fault/write/misaligned_null", |line| {
        context();
        stores(line, 1);
    }),
    alone!("fault/write/pinned", |line| {
        context();
        stores(line, pinned(64) as u64);
    }),
    alone!("fault/write/managed", |line| {
        context();
        stores(line, managed(64));
    }),
    alone!("fault/read/null", |line| {
        context();
        loads(line, 0);
    }),
    alone!("fault/read/wild", |line| {
        context();
        loads(line, 0x7_0000_0000_0000);
    }),
    alone!("fault/read/misaligned", |line| {
        context();
        loads(line, memory(64) + 2);
    }),
    alone!("fault/trap", |line| {
        context();
        runs(line, function(c"trap_always"), 1, &mut []);
    }),
    alone!("fault/assert", |line| {
        context();
        runs(line, function(c"assert_always"), 1, &mut []);
    }),
    alone!("fault/shared/within", |line| {
        context();
        shared_at(line, 252, 256);
    }),
    alone!("fault/shared/far_outside", |line| {
        context();
        shared_at(line, 1 << 20, 256);
    }),
    alone!("fault/shared/misaligned", |line| {
        context();
        shared_at(line, 2, 256);
    }),
    alone!("fault/stack/shallow", |line| {
        context();
        recurses(line, 2);
    }),
    alone!("fault/stack/raised", |line| {
        context();
        cuCtxSetLimit(0, 65536).must();
        recurses(line, 100);
    }),
    alone!("fault/stack/overflow", |line| {
        context();
        recurses(line, 100_000);
    }),
    alone!("fault/sticky/calls", |line| {
        context();
        let (pointer, pinned, stream, event, module) =
            (memory(64), pinned(64), stream(), event(), module());
        let (done, empty) = (self::event(), function_of(module, c"empty"));
        cuEventRecord(done, stream).must();
        cuStreamSynchronize(stream).must();
        poison();
        line.says(cuMemcpyHtoD_v2(pointer, pinned, 4));
        line.says(cuMemcpyDtoD_v2(pointer, pointer + 32, 4));
        line.says(cuMemcpyHtoDAsync_v2(pointer, pinned, 4, stream));
        line.says(cuMemsetD8_v2(pointer, 0, 4));
        line.says(cuMemsetD8Async(pointer, 0, 4, stream));
        line.says(launch(empty, 1, 1, stream, &mut []));
        line.says(cuStreamSynchronize(stream));
        line.says(cuStreamQuery(stream));
        line.says(cuStreamWaitEvent(stream, done, 0));
        line.says(cuEventRecord(event, stream));
        line.says_as("query_unrecorded", cuEventQuery(event));
        line.says_as("query_done_before", cuEventQuery(done));
        line.says(cuEventSynchronize(done));
        line.says(cuEventElapsedTime(&mut 0.0, done, done));
        line.says(cuCtxSynchronize());
    }),
    alone!("fault/sticky/objects", |line| {
        context();
        let (pointer, pinned, stream, event, module) =
            (memory(64), pinned(64), stream(), event(), module());
        poison();
        line.says(cuMemAlloc_v2(&mut 0, 64));
        line.says(cuMemAllocHost_v2(&mut std::ptr::null_mut(), 64));
        line.says(cuMemAllocManaged(&mut 0, 64, 1));
        line.says(cuMemAllocAsync(&mut 0, 64, stream));
        line.says(cuStreamCreate(&mut 0, 0));
        line.says(cuEventCreate(&mut 0, 0));
        line.says(cuModuleLoadData(
            &mut 0,
            c".version 7.0\n.target sm_80\n.address_size 64\n"
                .as_ptr()
                .cast(),
        ));
        line.says(cuModuleGetFunction(&mut 0, module, c"empty".as_ptr()));
        line.says(cuModuleGetGlobal_v2(
            &mut 0,
            &mut 0,
            module,
            c"counter".as_ptr(),
        ));
        line.says(cuEventDestroy_v2(event));
        line.says(cuStreamDestroy_v2(stream));
        line.says(cuModuleUnload(module));
        line.says(cuMemFree_v2(pointer));
        line.says(cuMemFreeHost(pinned));
    }),
    alone!("fault/sticky/questions", |line| {
        context();
        let (pointer, stream, function) = (memory(64), stream(), function(c"empty"));
        poison();
        let (mut number, mut handle, mut size) = (0, 0, 0);
        line.says(cuCtxGetCurrent(&mut handle));
        line.says(cuCtxGetDevice(&mut number));
        line.says(cuCtxGetFlags(&mut 0));
        line.says(cuCtxGetLimit(&mut size, 0));
        line.says(cuCtxGetStreamPriorityRange(&mut 0, &mut 0));
        line.says(cuMemGetInfo_v2(&mut 0, &mut size));
        line.says(cuMemGetAddressRange_v2(&mut 0, &mut size, pointer));
        line.says(cuPointerGetAttribute(void(&mut number), 2, pointer));
        line.says(cuFuncGetAttribute(&mut number, 0, function));
        line.says(cuFuncGetParamInfo(function, 0, &mut 0, &mut 0));
        line.says(cuStreamGetFlags(stream, &mut 0));
        line.says(cuStreamGetCtx(stream, &mut handle));
        line.says(cuDeviceGetAttribute(&mut number, 10, 0));
        line.says(cuDevicePrimaryCtxGetState(0, &mut 0, &mut number));
        line.says(cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &mut number,
            function,
            128,
            0,
        ));
        line.says(cuLaunchHostFunc(stream, None, std::ptr::null_mut()));
    }),
    alone!("fault/sticky/wrong_arguments", |line| {
        context();
        let function = function(c"empty");
        poison();
        line.says_as("alloc_zero", cuMemAlloc_v2(&mut 0, 0));
        line.says_as("copy_nothing", cuMemcpyDtoD_v2(0, 0, 0));
        line.says_as("free_null", cuMemFree_v2(0));
        line.says_as("launch_no_blocks", launch(function, 0, 1, 0, &mut []));
        line.says_as("null_out", cuStreamCreate(std::ptr::null_mut(), 0));
    }),
    alone!("fault/sticky/other_context", |line| {
        let primary = context();
        poison();
        let mut made = 0;
        line.says(cuCtxCreate_v2(&mut made, 0, 0));
        line.says(cuMemAlloc_v2(&mut 0, 64));
        line.says(cuCtxSynchronize());
        line.says(cuCtxSetCurrent(primary));
        line.says(cuCtxSynchronize());
    }),
    alone!("fault/sticky/own_context", |line| {
        let primary = context();
        let made = new_context();
        poison();
        line.says_as("made", cuCtxSynchronize());
        line.says(cuCtxDestroy_v2(made));
        line.says(cuCtxSetCurrent(primary));
        line.says_as("primary", cuCtxSynchronize());
        line.says(cuMemAlloc_v2(&mut 0, 64));
    }),
    alone!("fault/sticky/reset", |line| {
        context();
        poison();
        line.says_as("before", cuCtxSynchronize());
        line.says(cuDevicePrimaryCtxReset_v2(0));
        line.says_as("after", cuCtxSynchronize());
        let mut context = 0;
        line.says(cuDevicePrimaryCtxRetain(&mut context, 0));
        line.says(cuCtxSetCurrent(context));
        line.says(cuMemAlloc_v2(&mut 0, 64));
        line.says(cuCtxSynchronize());
    }),
    alone!("fault/sticky/released", |line| {
        context();
        poison();
        line.says(cuDevicePrimaryCtxRelease_v2(0));
        let mut context = 0;
        line.says(cuDevicePrimaryCtxRetain(&mut context, 0));
        line.says(cuCtxSetCurrent(context));
        line.says(cuMemAlloc_v2(&mut 0, 64));
    }),
    alone!("fault/found_by_copy", |line| {
        context();
        let (mut address, mut value, pointer) = (0u64, 1u32, memory(64));
        launch(
            function(c"store"),
            1,
            1,
            0,
            &mut [void(&mut address), void(&mut value)],
        )
        .must();
        line.says(cuMemcpyDtoH_v2(void(&mut value), pointer, 4));
        line.says(cuCtxSynchronize());
    }),
    alone!("fault/found_by_stream", |line| {
        context();
        let (mut address, mut value, stream) = (0u64, 1u32, stream());
        launch(
            function(c"store"),
            1,
            1,
            stream,
            &mut [void(&mut address), void(&mut value)],
        )
        .must();
        line.says(cuStreamSynchronize(stream));
        line.says(cuStreamQuery(0));
    }),
    alone!("fault/found_by_event", |line| {
        context();
        let (mut address, mut value, stream, event) = (0u64, 1u32, stream(), event());
        launch(
            function(c"store"),
            1,
            1,
            stream,
            &mut [void(&mut address), void(&mut value)],
        )
        .must();
        line.says(cuEventRecord(event, stream));
        line.says(cuEventSynchronize(event));
        line.says(cuEventQuery(event));
    }),
    alone!("fault/host_function_after", |line| {
        use std::sync::atomic::{AtomicU32, Ordering};
        unsafe extern "C" fn mark(counter: *mut std::ffi::c_void) {
            (*counter.cast::<AtomicU32>()).store(1, Ordering::SeqCst);
        }
        context();
        let (mut address, mut value, stream) = (0u64, 1u32, stream());
        let ran = Box::leak(Box::new(AtomicU32::new(0)));
        let store = function(c"store");
        let gate = Gate::close(stream);
        launch(
            store,
            1,
            1,
            stream,
            &mut [void(&mut address), void(&mut value)],
        )
        .must();
        line.says(cuLaunchHostFunc(stream, Some(mark), void(ran)));
        gate.open();
        line.says(cuStreamSynchronize(stream));
        std::thread::sleep(std::time::Duration::from_millis(50));
        line.value("ran", ran.load(Ordering::SeqCst));
    }),
];
