//! Addresses of one state space where an instruction names, or takes, another.

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone};
use crate::conformance::fixture::*;

/// Runs a line of PTX in a warp: `%rd1` is a global address, `%rd2` the generic address of shared
/// memory, which `%r1` names too; `%r2` to `%r5` are the thread's number.
unsafe fn runs(line: &mut Line, text: &str) {
    context();
    let module = module_of(&format!(
        ".version 8.6\n.target sm_90\n.address_size 64
        .visible .entry k(.param .u64 global)
        {{
            .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
            .shared .align 128 .b8 shared[4096];
            ld.param.u64 %rd1, [global];
            mov.u32 %r1, shared; cvt.u64.u32 %rd2, %r1; cvta.shared.u64 %rd2, %rd2;
            mov.u32 %r2, %tid.x; mov.u32 %r3, %r2; mov.u32 %r4, %r2; mov.u32 %r5, %r2;
            mbarrier.init.shared.b64 [%r1+64], 1; bar.sync 0;
            {text}
            bar.sync 0; ret;
        }}"
    ));
    let mut global = memory(4096);
    let arguments = &mut [void(&mut global)];
    line.says_as(
        "launch",
        launch(function_of(module, c"k"), 1, 32, 0, arguments),
    );
    line.says_as("synchronize", cuCtxSynchronize());
}

macro_rules! runs {
    ($name:literal, $text:literal) => {
        alone!($name, |line| {
            runs(line, $text);
        })
    };
}

pub const CASES: &[Case] = &[
    runs!("space/load_global/shared", "ld.global.u32 %r2, [%rd2]; st.u32 [%rd1], %r2;"),
    runs!("space/store_global/shared", "st.global.u32 [%rd2], %r2;"),
    runs!("space/atomic_global/shared", "red.global.add.u32 [%rd2], %r2;"),
    runs!("space/vector_global/shared", "st.global.v4.u32 [%rd2], {%r2, %r3, %r4, %r5};"),
    runs!(
        "space/async_copy/shared",
        "cp.async.ca.shared.global [%r1], [%rd2+256], 16; cp.async.wait_all;"
    ),
    runs!(
        "space/bulk_copy/shared",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1+64], 16;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd2+256], 16, [%r1+64];"
    ),
    runs!(
        "space/bulk_store/shared",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd2+256], [%r1], 16;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    ),
    runs!("space/prefetch_global/shared", "prefetch.global.L2 [%rd2];"),
    runs!(
        "space/load_matrix/global",
        "ldmatrix.sync.aligned.m8n8.x1.b16 {%r2}, [%rd1];"
    ),
    runs!(
        "space/load_matrix/shared",
        "ldmatrix.sync.aligned.m8n8.x1.b16 {%r2}, [%rd2];"
    ),
    runs!(
        "space/store_matrix/global",
        "stmatrix.sync.aligned.m8n8.x1.b16 [%rd1], {%r2};"
    ),
    runs!(
        "space/store_async/global",
        "st.async.mbarrier::complete_tx::bytes.u32 [%rd1], %r2, [%rd2+64];"
    ),
    runs!(
        "space/store_async/global_barrier",
        "st.async.mbarrier::complete_tx::bytes.u32 [%rd2], %r2, [%rd1+64];"
    ),
    runs!(
        "space/reduce_async/global",
        "red.async.relaxed.cluster.mbarrier::complete_tx::bytes.add.u32 [%rd1], %r2, [%rd2+64];"
    ),
    runs!(
        "space/wraps/load",
        "sub.u32 %r1, %r1, 8192; ld.shared.u32 %r2, [%r1+8192];"
    ),
    runs!(
        "space/wraps/load_matrix",
        "sub.u32 %r1, %r1, 8192; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1+8192];"
    ),
    runs!(
        "space/wraps/store_matrix",
        "sub.u32 %r1, %r1, 8192; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1+8192], {%r2};"
    ),
    runs!(
        "space/wraps/store_fragment",
        "sub.u32 %r1, %r1, 8192;
        wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [%r1+8192], {%r2, %r3, %r4, %r5};"
    ),
];
