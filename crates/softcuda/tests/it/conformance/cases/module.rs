//! Modules: loading, functions, globals.

use std::ffi::CString;
use std::ptr::{null, null_mut};

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;

/// Writes down how an image loads.
unsafe fn loads(line: &mut Line, what: &str, image: &str) {
    let (text, mut module) = (CString::new(image).expect("no zero byte inside"), 7);
    line.says_as(what, cuModuleLoadData(&mut module, text.as_ptr().cast()));
}

/// Whether an image loads: `+` or `-`, and `?` where another error is told than for wrong PTX.
unsafe fn sign(image: &str) -> char {
    const INVALID_PTX: u32 = 218;
    let (text, mut module) = (CString::new(image).expect("no zero byte inside"), 7);
    match cuModuleLoadData(&mut module, text.as_ptr().cast()).code {
        0 => '+',
        INVALID_PTX => '-',
        _ => '?',
    }
}

fn with_header(version: &str, target: &str, body: &str) -> String {
    format!(".version {version}\n.target {target}\n.address_size 64\n{body}\n")
}

pub const CASES: &[Case] = &[
    case!("module/load/right", |line| {
        context();
        loads(line, "suite", KERNELS);
        loads(line, "no_kernels", &with_header("7.0", "sm_80", ""));
        loads(
            line,
            "old_target",
            &with_header("6.0", "sm_50", ".visible .entry f() { ret; }"),
        );
        loads(
            line,
            "comment_first",
            &format!("// a comment\n/* and another */\n{KERNELS}"),
        );
        loads(
            line,
            "arch_specific",
            &with_header("8.0", "sm_90a", ".visible .entry f() { ret; }"),
        );
        loads(
            line,
            "newest",
            &with_header("9.0", "sm_90", ".visible .entry f() { ret; }"),
        );
    }),
    case!("module/load/wrong_text", |line| {
        context();
        loads(
            line,
            "syntax",
            &with_header("7.0", "sm_80", ".visible .entry f() { nonsense; }"),
        );
        loads(
            line,
            "unknown_register",
            &with_header(
                "7.0",
                "sm_80",
                ".visible .entry f() { mov.u32 %r1, 1; ret; }",
            ),
        );
        loads(
            line,
            "unclosed",
            &with_header("7.0", "sm_80", ".visible .entry f() { ret;"),
        );
        loads(
            line,
            "type_mismatch",
            &with_header(
                "7.0",
                "sm_80",
                ".entry f() { .reg .b64 %a; mov.u32 %a, 1; ret; }",
            ),
        );
        loads(
            line,
            "twice_defined",
            &with_header("7.0", "sm_80", ".entry f() { ret; } .entry f() { ret; }"),
        );
        loads(
            line,
            "undefined_label",
            &with_header("7.0", "sm_80", ".entry f() { bra nowhere; }"),
        );
        loads(
            line,
            "no_version",
            ".target sm_80\n.address_size 64\n.visible .entry f() { ret; }",
        );
        loads(
            line,
            "no_target",
            ".version 7.0\n.address_size 64\n.visible .entry f() { ret; }",
        );
        loads(line, "version_alone", ".version 7.0\n");
        loads(
            line,
            "shared_too_large",
            &with_header(
                "7.0",
                "sm_80",
                ".entry f() { .shared .b8 s[1000000]; ret; }",
            ),
        );
        loads(
            line,
            "unresolved",
            &with_header(
                "7.0",
                "sm_80",
                ".extern .func g(); .entry f() { call g; ret; }",
            ),
        );
    }),
    case!("module/load/too_new", |line| {
        context();
        loads(
            line,
            "version_9_9",
            &with_header("9.9", "sm_90", ".visible .entry f() { ret; }"),
        );
        loads(
            line,
            "version_99_0",
            &with_header("99.0", "sm_90", ".visible .entry f() { ret; }"),
        );
        loads(
            line,
            "target_sm_100",
            &with_header("8.6", "sm_100", ".visible .entry f() { ret; }"),
        );
        loads(
            line,
            "target_sm_999",
            &with_header("8.0", "sm_999", ".visible .entry f() { ret; }"),
        );
        loads(
            line,
            "target_unknown",
            &with_header("8.0", "vax", ".visible .entry f() { ret; }"),
        );
        loads(
            line,
            "target_before_version",
            &with_header("6.0", "sm_90", ".visible .entry f() { ret; }"),
        );
    }),
    case!("module/load/state_spaces", |line| {
        context();
        for variable in ["p", "g", "c", "s", "l"] {
            for space in ["", ".param", ".global", ".const", ".shared", ".local"] {
                for access in [
                    "ld{}.u32 %r1, [{v}]",
                    "st{}.u32 [{v}], %r1",
                    "red{}.add.u32 [{v}], %r1",
                ] {
                    let access = access.replace("{}", space).replace("{v}", variable);
                    let body = format!(
                        ".global .u32 g; .const .u32 c;
                        .visible .entry f(.param .u32 p) {{ .reg .b32 %r<2>;
                        .shared .u32 s; .local .u32 l; mov.u32 %r1, 0; {access}; ret; }}"
                    );
                    loads(
                        line,
                        &access.replace(' ', ""),
                        &with_header("8.0", "sm_90", &body),
                    );
                }
            }
        }
        for access in [
            "mbarrier.init.shared.b64 [g], 1",
            "mbarrier.init.b64 [g], 1",
            "mbarrier.init.b64 [s], 1",
            "cp.async.ca.shared.global [s], [g], 4",
            "cp.async.ca.shared.global [g], [g], 4",
            "cp.async.ca.shared.global [s], [s], 4",
            "prefetch.global.L2 [c]",
            "prefetch.L2 [g]",
            "fence.proxy.tensormap::generic.acquire.gpu [c], 128",
        ] {
            let body = format!(
                ".global .align 128 .b8 g[128]; .const .align 128 .b8 c[128];
                .visible .entry f() {{ .shared .align 8 .b8 s[8]; {access}; ret; }}"
            );
            loads(
                line,
                &access.replace(' ', ""),
                &with_header("8.6", "sm_90", &body),
            );
        }
    }),
    case!("module/load/state_spaces_of_others", |line| {
        context();
        let spaced = |access: &str| {
            ["", ".param", ".global", ".const", ".shared", ".local"]
                .map(|space| access.replace("{}", space))
        };
        let mut accesses: Vec<String> = [
            "ld.volatile{}.u32 %r1, [{v}]",
            "ld.relaxed.gpu{}.u32 %r1, [{v}]",
            "ld.acquire.gpu{}.u32 %r1, [{v}]",
            "st.volatile{}.u32 [{v}], %r1",
            "st.relaxed.gpu{}.u32 [{v}], %r1",
            "st.release.gpu{}.u32 [{v}], %r1",
            "cvta{}.u64 %rd1, {v}",
            "wmma.load.c.sync.aligned.row.m16n16k16{}.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, [{v}]",
            "wmma.store.d.sync.aligned.row.m16n16k16{}.f32 [{v}], {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}",
        ]
        .iter()
        .flat_map(|access| spaced(access))
        .collect();
        accesses.extend(
            [
                "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [{v}]",
                "ldmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [{v}]",
                "stmatrix.sync.aligned.m8n8.x1.shared.b16 [{v}], {%r1}",
                "stmatrix.sync.aligned.m8n8.x1.b16 [{v}], {%r1}",
                "prefetchu.L1 [{v}]",
                "ldu.global.u32 %r1, [{v}]",
                "ld.global.nc.u32 %r1, [{v}]",
                "mapa.shared::cluster.u64 %rd1, {v}, 0",
                "mapa.u64 %rd1, {v}, 0",
                "getctarank.shared::cluster.u64 %r1, {v}",
                "getctarank.u64 %r1, {v}",
                "isspacep.shared %p1, {v}",
                "mov.u64 %rd1, {v}",
                "applypriority.global.L2::evict_normal [{v}], 128",
                "discard.global.L2 [{v}], 128",
                "cp.async.bulk.prefetch.L2.global [{v}], 16",
                "cp.async.mbarrier.arrive.shared.b64 [{v}]",
                "mbarrier.arrive.shared.b64 %rd1, [{v}]",
                "mbarrier.test_wait.b64 %p1, [{v}], %rd1",
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [g], 16, [{v}]",
                "cp.async.bulk.global.shared::cta.bulk_group [{v}], [s], 16",
                "cp.async.bulk.global.shared::cta.bulk_group [g], [{v}], 16",
                "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [{v}], [s], 128",
                "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [g], [{v}], 128",
                "tensormap.replace.tile.rank.global.b1024.b32 [{v}], 1",
                "tensormap.replace.tile.rank.shared::cta.b1024.b32 [{v}], 1",
                "fence.proxy.tensormap::generic.acquire.gpu [{v}], 128",
            ]
            .map(str::to_string),
        );
        for access in accesses {
            let mut answers = String::new();
            for variable in ["p", "g", "c", "s", "l"] {
                let body = format!(
                    ".global .align 128 .b8 g[128]; .const .align 128 .b8 c[128];
                    .visible .entry f(.param .align 64 .b8 p[128]) {{
                    .reg .b32 %r<2>; .reg .b64 %rd<2>; .reg .f32 %f<8>; .reg .pred %p<2>;
                    .shared .align 128 .b8 s[128]; .local .align 16 .b8 l[128];
                    mov.u32 %r1, 0; mov.u64 %rd1, 0; {}; ret; }}",
                    access.replace("{v}", variable)
                );
                answers.push(sign(&with_header("8.6", "sm_90a", &body)));
            }
            line.value(access.replace([' ', ';'], ""), answers);
        }
    }),
    case!("module/load/no_image", |line| {
        context();
        loads(line, "empty", "");
        loads(line, "space", "  \n");
        loads(line, "text", "hello");
        loads(line, "garbage", "\u{7f}\u{1}\u{2}garbage");
        line.says_as("null_image", cuModuleLoadData(&mut 0, null()));
        line.says_as(
            "null_out",
            cuModuleLoadData(null_mut(), c"x".as_ptr().cast()),
        );
        line.says_as(
            "file_missing",
            cuModuleLoad(&mut 0, c"/nowhere/at/all.ptx".as_ptr()),
        );
        line.says_as("file_null", cuModuleLoad(&mut 0, null()));
    }),
    alone!("module/load/broken_elf", |line| {
        context();
        let mut image = [0u8; 4096];
        image[..4].copy_from_slice(b"\x7fELF");
        line.says(cuModuleLoadData(&mut 0, image.as_ptr().cast()));
    }),
    alone!("module/load/broken_fatbin", |line| {
        context();
        let mut image = [0u8; 4096];
        image[..4].copy_from_slice(&0xba55_ed50u32.to_le_bytes());
        line.says(cuModuleLoadData(&mut 0, image.as_ptr().cast()));
        line.says(cuModuleLoadFatBinary(&mut 0, image.as_ptr().cast()));
    }),
    case!("module/function", |line| {
        context();
        let (module, mut first, mut second) = (module(), 0, 0);
        line.says(cuModuleGetFunction(&mut first, module, c"empty".as_ptr()));
        line.gives(
            "same",
            cuModuleGetFunction(&mut second, module, c"empty".as_ptr()),
            first == second,
        );
        line.says_as(
            "missing",
            cuModuleGetFunction(&mut second, module, c"missing".as_ptr()),
        );
        line.says_as(
            "not_an_entry",
            cuModuleGetFunction(&mut second, module, c"descend".as_ptr()),
        );
        line.says_as(
            "a_global",
            cuModuleGetFunction(&mut second, module, c"counter".as_ptr()),
        );
        line.says_as(
            "empty_name",
            cuModuleGetFunction(&mut second, module, c"".as_ptr()),
        );
        line.says_as(
            "null_name",
            cuModuleGetFunction(&mut second, module, null()),
        );
        line.says_as(
            "null_out",
            cuModuleGetFunction(null_mut(), module, c"empty".as_ptr()),
        );
        line.says_as(
            "null_module",
            cuModuleGetFunction(&mut second, 0, c"empty".as_ptr()),
        );
    }),
    case!("module/global", |line| {
        context();
        let (module, mut pointer, mut size) = (module(), 0, 0);
        line.gives(
            "counter",
            cuModuleGetGlobal_v2(&mut pointer, &mut size, module, c"counter".as_ptr()),
            size,
        );
        line.value("initial", word(pointer));
        line.gives(
            "buffer",
            cuModuleGetGlobal_v2(&mut pointer, &mut size, module, c"buffer".as_ptr()),
            size,
        );
        line.value("zeroed", word(pointer + 20));
        line.gives(
            "constant",
            cuModuleGetGlobal_v2(&mut pointer, &mut size, module, c"table".as_ptr()),
            size,
        );
        line.value("third", word(pointer + 8));
        line.says_as(
            "size_alone",
            cuModuleGetGlobal_v2(null_mut(), &mut size, module, c"counter".as_ptr()),
        );
        line.says_as(
            "pointer_alone",
            cuModuleGetGlobal_v2(&mut pointer, null_mut(), module, c"counter".as_ptr()),
        );
        line.says_as(
            "neither",
            cuModuleGetGlobal_v2(null_mut(), null_mut(), module, c"counter".as_ptr()),
        );
        line.says_as(
            "neither_missing",
            cuModuleGetGlobal_v2(null_mut(), null_mut(), module, c"no".as_ptr()),
        );
        line.says_as(
            "missing",
            cuModuleGetGlobal_v2(&mut pointer, &mut size, module, c"missing".as_ptr()),
        );
        line.says_as(
            "not_visible",
            cuModuleGetGlobal_v2(&mut pointer, &mut size, module, c"message".as_ptr()),
        );
        line.says_as(
            "a_kernel",
            cuModuleGetGlobal_v2(&mut pointer, &mut size, module, c"empty".as_ptr()),
        );
        line.says_as(
            "null_name",
            cuModuleGetGlobal_v2(&mut pointer, &mut size, module, null()),
        );
        line.says_as(
            "null_module",
            cuModuleGetGlobal_v2(&mut pointer, &mut size, 0, c"counter".as_ptr()),
        );
    }),
    case!("module/global/per_module", |line| {
        context();
        let (first, second, mut here, mut there, mut size) = (module(), module(), 0, 0, 0);
        cuModuleGetGlobal_v2(&mut here, &mut size, first, c"counter".as_ptr()).must();
        cuModuleGetGlobal_v2(&mut there, &mut size, second, c"counter".as_ptr()).must();
        line.value("apart", here != there);
        line.says(launch(function_of(first, c"count"), 2, 3, 0, &mut []));
        cuCtxSynchronize().must();
        line.value("values", format!("{} {}", word(here), word(there)));
    }),
    case!("module/functions", |line| {
        context();
        let (module, mut count) = (module(), 77);
        line.gives("count", cuModuleGetFunctionCount(&mut count, module), count);
        line.says_as("count_null", cuModuleGetFunctionCount(null_mut(), module));
        line.says_as("count_null_module", cuModuleGetFunctionCount(&mut count, 0));
        let mut functions = [0; 32];
        line.says_as(
            "enumerate",
            cuModuleEnumerateFunctions(functions.as_mut_ptr(), 32, module),
        );
        let mut names: Vec<String> = Vec::new();
        for &function in functions.iter().filter(|&&function| function != 0) {
            let mut name = null();
            cuFuncGetName(&mut name, function).must();
            names.push(text(name));
        }
        names.sort();
        line.value("names", names.join(" "));
        functions = [0; 32];
        line.says_as(
            "enumerate_two",
            cuModuleEnumerateFunctions(functions.as_mut_ptr(), 2, module),
        );
        line.value(
            "two",
            functions.iter().filter(|&&function| function != 0).count(),
        );
        line.says_as(
            "enumerate_none",
            cuModuleEnumerateFunctions(functions.as_mut_ptr(), 0, module),
        );
        line.says_as(
            "enumerate_null",
            cuModuleEnumerateFunctions(null_mut(), 2, module),
        );
    }),
    case!("module/loading_mode", |line| {
        device();
        let mut mode = 77;
        line.gives("mode", cuModuleGetLoadingMode(&mut mode), mode);
        line.says_as("null", cuModuleGetLoadingMode(null_mut()));
    }),
    case!("module/unload", |line| {
        context();
        let (module, mut pointer, mut size) = (module(), 0, 0);
        cuModuleGetGlobal_v2(&mut pointer, &mut size, module, c"counter".as_ptr()).must();
        line.says(cuModuleUnload(module));
        line.says_as("null", cuModuleUnload(0));
    }),
    alone!("module/unload/twice", |line| {
        context();
        let module = module();
        line.says_as("first", cuModuleUnload(module));
        line.says_as("second", cuModuleUnload(module));
    }),
    alone!("module/unload/then_function", |line| {
        context();
        let module = module();
        cuModuleUnload(module).must();
        line.says(cuModuleGetFunction(&mut 0, module, c"empty".as_ptr()));
    }),
    alone!("module/unload/while_running", |line| {
        context();
        let (module, stream, flag) = (module(), stream(), pinned(64));
        *flag.cast::<u32>() = 0;
        let mut argument = flag as u64;
        launch(
            function_of(module, c"wait_for"),
            1,
            1,
            stream,
            &mut [void(&mut argument)],
        )
        .must();
        let flag = flag as usize;
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            // SAFETY: pinned memory that is never freed.
            unsafe { (flag as *mut u32).write_volatile(1) };
        });
        line.says(cuModuleUnload(module));
        opener.join().expect("the thread does not panic");
        line.says(cuStreamSynchronize(stream));
    }),
];
