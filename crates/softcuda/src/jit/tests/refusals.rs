//! What is wrong or not run is refused when the module is loaded, and the log says where.

use crate::jit::harness;
use crate::jit::module::{LoadErrorKind, LoadOptions, Module};

fn log(body: &str) -> String {
    let source = harness::module(&format!(
        ".visible .entry k(.param .u64 p) {{ .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %rd<4>;\n{body}\n}}"
    ));
    let error = harness::refusal(&source);
    assert_eq!(error.kind, LoadErrorKind::InvalidPtx, "{body}");
    assert!(error.log.contains("line 5;"), "{body}: {}", error.log);
    error.log
}

#[test]
fn names() {
    assert!(log("mov.u32 %r1, %r4;").contains("`%r4`"));
    assert!(log("mov.u32 %r1, nothing;").contains("`nothing`"));
    assert!(log("bra $nowhere;").contains("`$nowhere`"));
    assert!(log("@%q bra $a; $a:").contains("`%q`"));
    assert!(log("@%r1 bra $a; $a:").contains("no predicate"));
    assert!(log(".reg .u32 a; .reg .u64 a;").contains("twice"));
    assert!(log("$a: $a:").contains("twice"));
    assert!(log("{ $a: } bra $a;").contains("`$a`"));
    assert!(log("mov.u32 %r1, %tid.q;").contains("component"));
    assert!(log("mov.u32 %r1, %r01;").contains("`%r01`"));
    assert!(log("ld.global.u32 %r1, [%f1];").contains("`%f1`"));
}

/// What is wrong is told once, though a comparison is made again behind a wait.
#[test]
fn comparisons_are_refused_once() {
    for wrong in [
        "setp.foo.u32 %p1, %r1, 2;",
        "setp.lt.u32 %p1, %tid.x, 2;",
        "setp.lt.u32 %p1, %f1, 2;",
    ] {
        let log = log(&format!(
            "{wrong} bar.sync 0; @%p1 bra out; bar.sync 1; @%p1 bra out; out: ret;"
        ));
        assert_eq!(log.matches("line 5;").count(), 1, "{log}");
    }
}

#[test]
fn types() {
    for body in [
        "add.u32 %r1, %r2, %rd1;",
        "add.f32 %r1, %f1, %h1;",
        "add.s32 %f1, %r1, %r2;",
        "add.u64 %rd1, %rd2, %r1;",
        "and.b32 %r1, %r2, %p1;",
        "and.pred %p1, %p2, %r1;",
        "mul.lo.u32 %rd1, %r1, %r2;",
        "fma.rn.f64 %rd1, %rd1, %f1, %rd2;",
        "neg.f32 %f1, %h2;",
    ] {
        assert!(log(body).contains("does not fit"), "{body}");
    }
    // A number is no register, and untyped registers hold anything of their size.
    harness::load(&harness::module(
        ".entry k() { .reg .b32 %r<3>; .reg .f32 %f<3>; .reg .s32 %s<3>; .reg .b16 %h<3>; .reg .b64 %d<3>; .reg .u64 %u<2>;
    add.f32 %r1, %f1, 0f3F800000; add.u32 %r1, %s1, -1; add.f64 %d1, %d2, 1.0; and.b32 %f1, %f2, %r1;
    add.f16 %h1, %h2, %h1; mul.wide.u32 %u1, %r1, %s2; mad.wide.u32 %d1, %r1, 4, %u1; add.f16x2 %s1, %r1, %r2; }",
    ));
}

#[test]
fn operands() {
    for body in [
        "ld.global.u32 %r1, %rd1;",
        "ld.global.v2.u32 %r1, [%rd1];",
        "ld.global.v4.u32 {%r1, %r2}, [%rd1];",
        "ld.global.u32 {%r1, %r2}, [%rd1];",
        "ld.global.pred %p1, [%rd1];",
        "ld.global.u32 %p1, [%rd1];",
        "st.global.u32 [%rd1], _;",
        "st.const.u32 [%rd1], %r1;",
        "st.param.u64 [p], %rd1;",
        "ld.u64 %rd1, [p];",
        "ld.shared.u64 %rd1, [p];",
        ".shared .u64 s; ld.global.u64 %rd1, [s];",
        ".const .u64 c; st.global.u64 [c], 1;",
        ".local .u64 l; red.shared.add.u64 [l], 1;",
        "ld.param.u64 %rd1, [p+8];",
        "ld.param.u64 %rd1, [p+-1];",
        "ld.global.v8.b64 {%rd1, %rd1, %rd1, %rd1, %rd1, %rd1, %rd1, %rd1}, [%rd1];",
        "mov.b64 %rd1, {%r1, %r2, %r3};",
        "mov.v2.u32 %r1, %r2;",
        "bra %r1;",
        "call k;",
        "call %rd1;",
        "call nothing;",
        "call %rd1, (%r1), $a; $a:",
        "brx.idx %r1, $a; $a:",
        "ret %r1;",
        "add.f32 %f1, %f2, !%f3;",
        "and.b32 %r1, %r2, !%r3;",
        "exit.now;",
    ] {
        log(body);
    }
}

#[test]
fn calls_must_fit() {
    let functions = ".func (.param .b32 r) f(.param .b32 a, .param .b64 b) { ret; }\n.func g() { ret; }\n.extern .func missing();\n.func declared();";
    for body in [
        "{ .param .b32 x; call (x), f, (x); }",
        "{ .param .b32 x; .param .b32 y; call (x), f, (x, y); }",
        "{ .param .b32 x; .param .b64 y; call f, (x, y); }",
        "{ .param .b32 x; .param .b64 y; call (y), f, (x, y); }",
        "{ .param .b32 x; call (x), g; }",
        "call missing;",
        "call declared;",
        "{ .param .b32 x; .reg .b64 %a; mov.b64 %a, x; }",
    ] {
        let source = harness::module(&format!("{functions}\n.entry k() {{ {body} }}"));
        let error = harness::refusal(&source);
        assert_eq!(
            error.kind,
            LoadErrorKind::InvalidPtx,
            "{body}: {}",
            error.log
        );
    }
    let source = harness::module(".extern .func missing(); .entry k() { call missing; }");
    assert_eq!(
        harness::refusal(&source).log,
        "ptxas fatal   : Unresolved extern function 'missing'"
    );
    // What is only declared does no harm.
    harness::load(&harness::module(
        ".extern .func missing(); .extern .global .u32 g; .entry k() { }",
    ));
}

#[test]
fn functions_that_never_run_are_checked_too() {
    let source = harness::module(
        ".entry k() { ret; }\n.func f() { frobnicate.u32; }\n.func g() { add.frobnicate; tex.1d; }",
    );
    let log = harness::refusal(&source).log;
    for name in ["frobnicate.u32", "add.frobnicate"] {
        assert!(log.contains(name), "{log}");
    }
    assert!(!log.contains("tex"), "{log}");
}

/// Right PTX that is not run fails where a kernel reaches it, and nothing else.
#[test]
fn what_is_not_run() {
    let module = harness::load(&harness::module(
        ".global .texref image;
.func sample() { .reg .b32 %r<5>;
  tex.1d.v4.s32.s32 {%r0, %r1, %r2, %r3}, [image, {%r4}]; ret; }
.func between() { call sample; ret; }
.entry direct() { .reg .b32 %r<5>; pmevent 1; ret; }
.entry through() { call between; ret; }
.entry other() { ret; }
.entry wide() { .reg .b32 %r<3>; .reg .b64 %rd<3>;
  multimem.ld_reduce.add.u32 %r1, [%rd1]; ret; }",
    ));
    let error = |name: &str| module.kernel(name).unwrap().compile().unwrap_err();
    assert!(error("direct").unsupported);
    assert!(
        error("direct")
            .to_string()
            .contains("line 8, in `direct`: `pmevent`")
    );
    assert!(error("wide").unsupported);
    assert!(error("through").unsupported);
    assert!(
        error("through")
            .to_string()
            .contains("line 6, in `sample`: `image`")
    );
    module.kernel("other").unwrap().compile().unwrap();
    for line in ["line 6; warning ", "line 8; warning "] {
        assert!(module.warnings.contains(line), "{}", module.warnings);
    }
}

#[test]
fn versions_and_targets() {
    let load = |version: &str, target: &str, size: &str| {
        let source = format!(".version {version}\n.target {target}\n{size}\n.entry k() {{ }}");
        Module::load(source.as_bytes(), &LoadOptions::default()).map_err(|error| error.kind)
    };
    let size = ".address_size 64";
    for (version, target) in [
        ("6.0", "sm_30"),
        ("7.8", "sm_86, debug"),
        ("9.0", "sm_90a"),
        ("8.0", "compute_90"),
    ] {
        if let Err(kind) = load(version, target, size) {
            panic!("{version} {target}: {kind:?}");
        }
    }
    assert_eq!(
        load("9.1", "sm_90", size).unwrap_err(),
        LoadErrorKind::UnsupportedPtxVersion
    );
    assert_eq!(
        load("10.0", "sm_90", size).unwrap_err(),
        LoadErrorKind::UnsupportedPtxVersion
    );
    let on_request = LoadOptions {
        newest: (9, 5),
        ..LoadOptions::default()
    };
    let later = |version: &str| {
        let source = format!(".version {version}\n.target sm_90\n{size}\n.entry k() {{ }}");
        Module::load(source.as_bytes(), &on_request).map_err(|error| error.log)
    };
    assert!(later("9.5").is_ok());
    assert_eq!(
        later("9.6").unwrap_err(),
        "ptxas application ptx input, line 1; fatal   : Unsupported .version 9.6; current version is '9.5'"
    );
    assert_eq!(
        load("8.8", "sm_100", size).unwrap_err(),
        LoadErrorKind::NoBinaryForGpu
    );
    assert_eq!(
        load("8.8", "sm_90", ".address_size 32").unwrap_err(),
        LoadErrorKind::InvalidPtx
    );
    for image in [
        &b""[..],
        b"\x7fELF",
        b"hello",
        b"\0\0\0",
        b"// only a comment",
        b"/* .version",
    ] {
        let error = Module::load(image, &LoadOptions::default()).unwrap_err();
        assert_eq!(error.kind, LoadErrorKind::InvalidImage);
    }
    let error = Module::load(
        b".version 8.8\n.target sm_90\n.entry k( {",
        &LoadOptions::default(),
    )
    .unwrap_err();
    assert_eq!(error.kind, LoadErrorKind::InvalidPtx);
    assert!(error.log.contains("line 3;"), "{}", error.log);
}

#[test]
fn huge_declarations_cost_nothing() {
    let module = harness::load(&harness::module(
        ".entry k() { .reg .b32 %r<4294967295>; mov.u32 %r4294967294, 1; mov.u32 %r0, %r4294967294; }",
    ));
    module.kernel("k").unwrap().compile().unwrap();
    for body in [".local .b8 l[100000000];", ".param .b8 l[100000000];"] {
        let error = harness::refusal(&harness::module(&format!(".entry k() {{ {body} }}")));
        assert_eq!(error.kind, LoadErrorKind::InvalidPtx);
    }
}

#[test]
fn attributes() {
    let module = harness::load(&harness::module(
        ".shared .u32 used[10]; .shared .u64 unused[10]; .const .u32 c[3];
.func f() { .reg .b32 %r1; ld.shared.u32 %r1, [used]; ret; }
.visible .entry k(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20]) .maxntid 16, 16, 1 .minnctapersm 2 { .local .b8 l[24]; call f; ret; }
.visible .entry plain() .reqntid 64 { ret; }",
    ));
    let k = module.kernel("k").unwrap();
    assert_eq!(k.attributes.static_shared, 40);
    assert_eq!(k.attributes.constant, 12);
    assert_eq!(k.attributes.local, 24);
    assert_eq!(k.attributes.max_threads, 256);
    assert_eq!(k.attributes.maxntid, Some([16, 16, 1]));
    assert_eq!(k.attributes.min_blocks, Some(2));
    assert_eq!(k.attributes.ptx_version, 88);
    assert_eq!(k.attributes.binary_version, 90);
    let places: Vec<(u64, u64)> = k
        .params
        .iter()
        .map(|field| (field.offset, field.size))
        .collect();
    assert_eq!(places, [(0, 1), (8, 8), (16, 20)]);
    assert_eq!(k.params_size, 36);
    let plain = module.kernel("plain").unwrap();
    assert_eq!(plain.attributes.reqntid, Some([64, 1, 1]));
    assert_eq!(plain.attributes.static_shared, 0);
    assert_eq!(module.kernels().len(), 2);
}

#[test]
fn special_registers_are_integers() {
    assert!(log("mov.f32 %r1, %tid.x;").contains("special register"));
    assert!(log("mov.f64 %rd1, %clock64;").contains("special register"));
}

#[test]
fn counts_of_registers() {
    for count in ["16", "41", "264", "%r1"] {
        log(&format!("setmaxnreg.inc.sync.aligned.u32 {count};"));
    }
}

/// The log of a module for this target and version, with a body of this line; empty if it loads.
fn log_for(version: &str, target: &str, line: &str) -> String {
    let source = format!(
        ".version {version}\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 p) {{
    .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<4>;
    .reg .s32 %s<4>; .reg .f64 %fd<4>; .reg .f16x2 %x<4>; .shared .align 8 .b8 s[64];
{line}\n}}"
    );
    match Module::load(source.as_bytes(), &LoadOptions::default()) {
        Ok(module) => module.warnings.clone(),
        Err(error) => {
            assert_eq!(error.kind, LoadErrorKind::InvalidPtx, "{line}");
            assert!(error.log.contains("line 7;"), "{line}: {}", error.log);
            error.log
        }
    }
}

/// Each loads with the oldest target and version that have it, and not with older ones.
#[test]
fn what_is_too_new_for_the_module() {
    for (line, before, target, version) in [
        ("wgmma.fence.sync.aligned;", "sm_90", "sm_90a", "8.0"),
        (
            "setmaxnreg.inc.sync.aligned.u32 40;",
            "sm_90",
            "sm_90a",
            "8.0",
        ),
        (
            "tensormap.replace.tile.rank.global.b1024.b32 [%rd1], 1;",
            "sm_90",
            "sm_90a",
            "8.3",
        ),
        ("mbarrier.init.b64 [%rd1], 1;", "sm_75", "sm_80", "7.0"),
        (
            "mbarrier.try_wait.b64 %p1, [%rd1], %rd2;",
            "sm_80",
            "sm_90",
            "7.8",
        ),
        ("cp.async.wait_all;", "sm_75", "sm_80", "7.0"),
        ("cp.async.bulk.commit_group;", "sm_80", "sm_90", "8.0"),
        ("mapa.u64 %rd1, %rd2, 1;", "sm_80", "sm_90", "7.8"),
        ("elect.sync _|%p1, -1;", "sm_80", "sm_90", "8.0"),
        ("barrier.cluster.arrive;", "sm_80", "sm_90", "7.8"),
        ("fence.proxy.async;", "sm_80", "sm_90", "8.0"),
        ("griddepcontrol.wait;", "sm_80", "sm_90", "7.8"),
        (
            "ldmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [%rd1];",
            "sm_70",
            "sm_75",
            "6.5",
        ),
        (
            "stmatrix.sync.aligned.m8n8.x1.b16 [%rd1], {%r1};",
            "sm_80",
            "sm_90",
            "7.8",
        ),
        ("redux.sync.add.u32 %r1, %r2, -1;", "sm_75", "sm_80", "7.0"),
        ("cvt.rn.bf16.f32 %h1, %f1;", "sm_75", "sm_80", "7.0"),
        ("cvt.rn.bf16.s32 %h1, %r1;", "sm_80", "sm_90", "7.8"),
        (
            "atom.global.gpu.add.u32 %r1, [%rd1], 1;",
            "sm_52",
            "sm_60",
            "5.0",
        ),
        ("ld.acquire.gpu.u32 %r1, [%rd1];", "sm_61", "sm_70", "6.0"),
    ] {
        let (major, minor) = version.split_once('.').unwrap();
        let (major, minor): (u32, u32) = (major.parse().unwrap(), minor.parse().unwrap());
        let older = match minor {
            0 => format!("{}.9", major - 1),
            minor => format!("{major}.{}", minor - 1),
        };
        assert_eq!(log_for("9.0", target, line), "", "{line}");
        let refused = log_for("9.0", before, line);
        let needs = format!("needs .target {target} or newer");
        assert!(refused.contains(&needs), "{line}: {refused}");
        // Versions older than the target itself are refused for that.
        if !matches!(version, "5.0" | "6.0" | "7.0" | "7.8") && !target.ends_with('a') {
            let refused = log_for(&older, target, line);
            let needs = format!("needs .version {version} or newer");
            assert!(refused.contains(&needs), "{line}: {refused}");
        }
    }
    let needs_100 = log_for("9.0", "sm_90a", "st.bulk.weak.shared::cta [%r3], 16, 0;");
    assert!(needs_100.contains("needs .target sm_100"), "{needs_100}");
}

#[test]
fn operands_of_other_types() {
    for line in [
        "mbarrier.init.shared.b64 [%r3], %rd1;",
        "mbarrier.arrive.shared.b64 %r4, [%r3];",
        "mbarrier.test_wait.shared.b64 %p1, [%r3], %r4;",
        "mbarrier.test_wait.parity.shared.b64 %p1, [%r3], %rd1;",
        "mbarrier.test_wait.parity.shared.b64 %p1, [%r3], 2;",
        "mbarrier.try_wait.parity.shared.b64 %r1, [%r3], 0;",
        "mbarrier.pending_count.b64 %rd1, %rd2;",
        "mbarrier.arrive.noComplete.shared.b64 %rd1, [%r3], 0;",
        "mbarrier.arrive.shared.b64 %rd1, [%r3], %tid.x;",
        "cp.async.ca.shared.global [%r3], [%rd1], 16, %rd2;",
        "cp.async.ca.shared.global [%r3], [%rd1], 16, 17;",
        "cp.async.ca.shared.global.L2::96B [%r3], [%rd1], 4;",
        "cp.async.ca.global.shared [%rd1], [%r3], 4;",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 15;",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], -16;",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], %rd2;",
        "cp.async.bulk.prefetch.L2.global [%rd1], 8;",
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%rd2}], [%r3];",
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%f2}], [%r3];",
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {{%r2}}], [%r3];",
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1+64, {%r2}], [%r3];",
        "tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 5, %r1;",
        "tensormap.replace.tile.rank.global.b1024.b32 [%rd1], %rd2;",
        "tensormap.replace.tile.elemtype.global.b1024.b32 [%rd1], 13;",
        "tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%rd1], 4;",
        "mapa.shared::cluster.u32 %r4, %r3, %rd1;",
        "mapa.u64 %r4, %rd1, 1;",
        "mapa.u32 %r4, %rd1, 1;",
        "getctarank.u32 %r4, %rd1;",
        "getctarank.u64 %rd2, %rd1;",
        "elect.sync %r1|%p1, %rd1;",
        "elect.sync %p1, -1;",
        "elect.sync _|_, -1;",
        "createpolicy.fractional.L2::evict_first.b64 %r1;",
        "createpolicy.fractional.L2::evict_first.b64 %rd1, 2.0;",
        "createpolicy.fractional.L2::evict_first.b64 %rd1, 0.0;",
        "createpolicy.fractional.L2::evict_first.L2::evict_last.b64 %rd1;",
        "createpolicy.range.L2::evict_first.b64 %rd1, [%rd2], 16, 8;",
        "createpolicy.cvt.L2.b64 %rd1, %r1;",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r3], %rd1, [%r3];",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
            [%r3], %rd1, [%r3];",
        "red.async.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r3], %r1, [%r3];",
        "red.async.relaxed.cta.shared::cluster.mbarrier::complete_tx::bytes.add.u32
            [%r3], %r1, [%r3];",
        "fence.mbarrier_init.release.cta;",
        "istypep.texref %p1, %r1;",
        "istypep.samplerref %r1, %rd1;",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r1, [%r3];",
        "movmatrix.sync.aligned.m8n8.trans.b16 %rd1, %r2;",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r1, 1;",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
            {%f0, %f1, %f2, %f3}, {%f4, %f5}, {%r4}, {%f0, %f1, %f2, %f3};",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
            {%f0, %f1, %f2, %f3}, {%r4, %r5}, {%r4}, {0, 0, 0, 0};",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
            {%f0, %f1, %f2, %f3}, {%r4, %r5}, %r4, {%f0, %f1, %f2, %f3};",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
            {%f0, %f1, %f2, %f3}, %rd1, %rd1, %r1, 1, 1, 0, 0;",
        "wgmma.wait_group.sync.aligned -1;",
        "st.global.frobnicate.u32 [%rd1], %r1;",
        "ld.global.u32 %r1, [%r2];",
        "st.u32 [%r2], %r1;",
        "mbarrier.inval.b64 [%r2];",
        // A parameter's name is no barrier, no place for a tensor, and nothing in shared memory.
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
            [s], [%rd1, {%r1, %r2}], [p];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
            [p], [%rd1, {%r1, %r2}], [s];",
        "ld.shared.u32 %r1, [p];",
    ] {
        assert_ne!(log_for("8.8", "sm_90a", line), "", "{line}");
    }
    let integers = |columns: u32| {
        let registers = vec!["%r1"; columns as usize / 2].join(", ");
        let line = format!(
            "wgmma.mma_async.sync.aligned.m64n{columns}k32.s32.s8.s8 {{{registers}}}, %rd1, %rd1, 1;"
        );
        log_for("8.8", "sm_90a", &line)
    };
    for columns in [8, 24, 48, 80, 256] {
        assert_eq!(integers(columns), "", "{columns}");
    }
    for columns in [40, 56, 248] {
        assert!(integers(columns).contains("no such shape"), "{columns}");
    }
}

/// What the driver's compiler takes beside the plain forms.
#[test]
fn operands_that_are_right() {
    for line in [
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s64
            [%r3], %rd1, [%r3];",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
            {%f0, %f1, %f2, %f3}, 5, %rd1, !%p1, 1, 1, 0, 0;",
        "wgmma.wait_group.sync.aligned 100;",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
            {%r0, %f1, _, %f3}, {%f4, %r5}, {%x1}, {%f0, 0f3F800000, %f2, %f3};",
        "mapa.shared::cluster.u32 %r4, s, 1;",
        "mbarrier.pending_count.b64 %r4, 5;",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%f1, %r2}], [%r3];",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [s];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
            [s], [%rd1, {%r1, %r2}], [s];",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 1048560;",
        "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd1, 1.0;",
        "createpolicy.cvt.L2.b64 %rd1, %rd2;",
    ] {
        assert_eq!(log_for("8.8", "sm_90a", line), "", "{line}");
    }
    // A selector that the compiler takes, and whose meaning is written nowhere.
    let log = log_for(
        "8.8",
        "sm_90a",
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32
            {%f0, %f1, %f2, %f3}, {%r4, %r5, %r4, %r5}, {%r4, %r5, %r4, %r5},
            {%f0, %f1, %f2, %f3}, %r1, 2;",
    );
    assert!(log.contains("selector 2 is not supported"), "{log}");
}

#[test]
fn sizes_of_blocks() {
    for directives in [
        ".reqntid 0",
        ".maxntid 8, 0",
        ".minnctapersm 0",
        ".maxntid 8 .reqntid 8",
    ] {
        let source = harness::module(&format!(".entry k() {directives} {{ ret; }}"));
        let error = harness::refusal(&source);
        assert_eq!(error.kind, LoadErrorKind::InvalidPtx, "{directives}");
    }
    harness::load(&harness::module(
        ".entry k() .reqntid 8 .minnctapersm 1 .reqnctapercluster 0 { ret; }",
    ));
}

#[test]
fn addresses_where_none_are_taken() {
    for line in [
        "add.s64 %rd1, [%rd2], %rd1;",
        "mov.u64 %rd1, [%rd2+8];",
        "setp.eq.u32 %p1, [s], 1;",
        "cvta.to.global.u64 %rd1, [s];",
        "popc.b64 %r1, [%rd2];",
        "shfl.sync.idx.b32 %r1, [%rd1], 1, 31, -1;",
        "mapa.u64 %rd1, [%rd2], 1;",
    ] {
        let log = log_for("8.8", "sm_90a", line);
        assert!(
            log.contains("takes no address in brackets"),
            "{line}: {log}"
        );
    }
}

#[test]
fn registers_that_are_compared() {
    for line in [
        "setp.ne.or.f64 %r1, %r2, %r3, %r4;",
        "setp.ne.f64 %p1, %r2, %r3;",
        "setp.eq.s32 %r1, %r2, %r3;",
        "setp.eq.and.s32 %p1, %r2, %r3, %r4;",
        "setp.lt.u64 %p1, %r1, 3;",
        "setp.eq.s32 %p1, %f1, 3;",
        "set.eq.u32.f32 %rd1, %f1, %f2;",
        "selp.b32 %r1, %rd2, %r3, %p1;",
        "selp.b32 %r1, %r2, %r3, %r4;",
        "slct.f32.s32 %f1, %f2, %f3, %rd1;",
    ] {
        let log = log_for("8.8", "sm_90a", line);
        assert!(log.contains("takes a register of type"), "{line}: {log}");
    }
    for line in [
        "setp.ne.and.f64 %p1|%p2, %rd1, %fd2, !%p3;",
        "setp.eq.s16 %p1, %h1, 0;",
        "setp.eq.f32 %p1, %r1, %f1;",
        "setp.eq.b32 %p1, %f1, %f2;",
        "setp.eq.f16x2 %p1|%p2, %r1, %r2;",
        "set.eq.f32.s32 %r1, %r2, %r3;",
        "set.gt.u32.f16 %r1, %h1, %h2;",
        "selp.f32 %r1, %f2, 0f00000000, %p1;",
        "slct.f32.s32 %f1, %f2, %f3, %r1;",
    ] {
        assert_eq!(log_for("8.8", "sm_90a", line), "", "{line}");
    }
}

/// What the driver's compiler takes and other readers of PTX may not.
#[test]
fn words_that_may_be_left_out_or_moved() {
    for line in [
        "barrier.cta.red.aligned.popc.u32 %r1, 0, %p1;",
        "barrier.red.popc.u32.aligned %r1, 0, 64, %p1;",
        "bar.cta.red.u32.popc %r1, 0, %p1;",
        "mma.sync.aligned.m8n8k4.row.col.rn.f64.f64.f64.f64
            {%fd0, %fd1}, {%fd2}, {%fd3}, {%fd0, %fd1};",
        "wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64
            {%fd0, %fd1}, {%fd2}, {%fd3}, {%fd0, %fd1};",
        "cvt.bf16.f16 %h1, %h2;",
        "cvt.rz.ftz.f32.bf16 %f1, %h1;",
        "match.all.sync.b32 _|%p1, %r2, -1;",
        "match.all.sync.b32 _, %r2, -1;",
        "ld.volatile.L2::128B.u32 %r1, [%rd1];",
        "ld.volatile.global.L2::256B.v2.u32 {%r1, %r2}, [%rd1];",
        "vote.sync.ballot.b32 %r1, 2, -1;",
        "bar.red.or.pred %p1, 0, 32, -1;",
    ] {
        assert_eq!(log_for("8.8", "sm_90a", line), "", "{line}");
    }
    let load = |aligned: &str| {
        format!("wmma.load.c.sync{aligned}.row.m16n16k16.f16 {{%r1, %r2, %r3, %r4}}, [%rd1];")
    };
    assert_eq!(log_for("6.2", "sm_70", &load("")), "");
    assert!(log_for("6.2", "sm_70", &load(".aligned")).contains("needs .version 6.3"));
    assert!(log_for("6.3", "sm_70", &load("")).contains("aligned"));
    let product = "mma.sync.aligned.m8n8k4.row.col.rz.f64.f64.f64.f64
        {%fd0, %fd1}, {%fd2}, {%fd3}, {%fd0, %fd1};";
    let log = log_for("8.8", "sm_90", product);
    assert!(log.contains("this rounding is not supported"), "{log}");
}

#[test]
fn operands_that_are_no_registers() {
    for line in [
        "setp.eq.u32 %p1, %tid.x, 1;",
        "add.u32 %r1, %laneid, 1;",
        "st.global.u32 [%rd1], %tid.x;",
        "cvt.rn.f32.u32 %f1, %tid.x;",
        "mov.u64 %rd1, %laneid;",
        "mov.u32 %r1, %clock64;",
        "mov.u32 %r1, %is_explicit_cluster;",
        "mov.u32 %r1, %tid;",
        "add.u32 %r1, s, 1;",
        "add.u32 %r1, %reserved_smem_offset_begin, 1;",
        "st.global.u32 [%rd1], s;",
        "add.u32 %r1+4, %r2, %r3;",
        "ld.shared.u32 %r1, [4];",
        "atom.global.add.u32 %r1, [16], 1;",
    ] {
        assert_ne!(log_for("8.8", "sm_90", line), "", "{line}");
    }
    for line in [
        "mov.u16 %h1, %ntid.x;",
        "mov.u64 %rd1, %current_graph_exec;",
        "mov.pred %p1, %is_explicit_cluster;",
        "cvt.u64.u32 %rd1, %tid.x;",
        "mov.b64 %rd1, {%tid.x, %r1};",
        "add.u32 %r1, s+4, %r2+8;",
        "mapa.shared::cluster.u32 %r1, %r2+4, %r3;",
        "fma.rn.f32 %f1, %r2+4, %f2, %f3;",
        "cvt.u64.u32 %rd1, %reserved_smem_offset_begin;",
        "ld.local.u32 %r1, [4];",
    ] {
        assert_eq!(log_for("8.8", "sm_90", line), "", "{line}");
    }
}

#[test]
fn registers_that_do_not_hold_the_value() {
    for line in [
        "ld.global.u32 %h1, [%rd1];",
        "ld.global.b64 %r1, [%rd1];",
        "ld.global.u32 %f1, [%rd1];",
        "ld.global.f32 %s1, [%rd1];",
        "ld.global.f16 %h1, [%rd1];",
        "ld.global.u32 _, [%rd1];",
        "st.global.u64 [%rd1], %r1;",
        "st.global.f32 [%rd1], 1;",
        "st.global.u32 [%rd1], 1.0;",
        "shfl.sync.idx.b32 %rd1, %r1, 1, 31, -1;",
        "shfl.sync.idx.b32 %r1|%r2, %r1, 1, 31, -1;",
        "vote.sync.ballot.b32 %r1, %r2, -1;",
        "vote.sync.all.pred %r1, %p1, -1;",
        "match.any.sync.b64 %r1, %r2, -1;",
        "match.any.sync.b32 %r1|%p1, %r2, -1;",
        "redux.sync.add.u32 %r1, %f1, -1;",
        "redux.sync.and.b32 %rd1, %r2, -1;",
        "activemask.b32 %h1;",
        "bar.warp.sync %rd1;",
        "bar.sync 16;",
        "bar.sync 0, 63;",
        "bar.arrive 0, 0;",
        "bar.red.popc.u32 %p1, 0, %p2;",
        "bar.sync.aligned 0;",
        "cvt.rn.bf16.u8 %h1, %h2;",
        "cvt.rn.sat.bf16.u16 %h1, %h2;",
        "cvt.rni.sat.s32.bf16 %r1, %h2;",
    ] {
        assert_ne!(log_for("8.8", "sm_90", line), "", "{line}");
    }
    for line in [
        "ld.global.u8 %rd1, [%rd2];",
        "ld.global.b16 %fd1, [%rd2];",
        "ld.global.f32 %rd1, [%rd2];",
        "ld.global.s32 %x1, [%rd2];",
        "ld.global.v2.u32 {%r1, _}, [%rd2];",
        "st.global.f64 [%rd1], 0f3F800000;",
        "st.global.b32 [%rd1], 0f3F800000;",
        "shfl.sync.idx.b32 %f1, %f2, 1, 31, -1;",
        "{ .reg .b8 %b; cvt.rn.bf16.u8 %h1, %b; }",
    ] {
        assert_eq!(log_for("8.8", "sm_90", line), "", "{line}");
    }
}

#[test]
fn orders_and_scopes() {
    for line in [
        "ld.global.gpu.u32 %r1, [%rd1];",
        "st.weak.cta.u32 [%rd1], %r1;",
        "ld.relaxed.u32 %r1, [%rd1];",
        "ld.volatile.gpu.u32 %r1, [%rd1];",
        "ld.volatile.ca.u32 %r1, [%rd1];",
        "ld.acquire.gpu.cv.u32 %r1, [%rd1];",
        "ld.nc.u32 %r1, [%rd1];",
    ] {
        assert_ne!(log_for("8.8", "sm_90", line), "", "{line}");
    }
}

#[test]
fn what_a_call_passes() {
    for (ty, passes) in [("b8", true), ("f16", true), ("u8", false), ("s16", false)] {
        let source = harness::module(&format!(
            ".func f(.param .{ty} a) {{ ret; }} .entry k() {{ .param .{ty} x; call f, (x); }}
            .func uncalled(.param .u8 a) {{ ret; }} .func g(.param .u8 a[4]) {{ ret; }}
            .entry l() {{ .param .u8 x[4]; call g, (x); }}"
        ));
        let loaded = Module::load(source.as_bytes(), &LoadOptions::default());
        assert_eq!(loaded.is_ok(), passes, "{ty}");
    }
}

#[test]
fn directives_and_special_registers_of_later_versions() {
    for (version, target, text, needs) in [
        (
            "8.8",
            "sm_80",
            "mov.u32 %r1, %cluster_ctaid.x;",
            ".target sm_90",
        ),
        (
            "8.8",
            "sm_80",
            "mov.pred %p1, %is_explicit_cluster;",
            ".target sm_90",
        ),
        (
            "8.0",
            "sm_90",
            "mov.u32 %r1, %aggr_smem_size;",
            ".version 8.1",
        ),
        (
            "7.8",
            "sm_90",
            "mov.u64 %rd1, %current_graph_exec;",
            ".version 8.0",
        ),
        (
            "7.5",
            "sm_80",
            "mov.u32 %r1, %reserved_smem_offset_0;",
            ".version 7.6",
        ),
        (
            "8.8",
            "sm_80",
            "mbarrier.arrive.b64 %rd1, [%rd2], 1;",
            ".target sm_90",
        ),
        (
            "7.0",
            "sm_80",
            "mbarrier.arrive.b64 _, [%rd2];",
            ".version 7.1",
        ),
        ("8.8", "sm_80", "cvt.bf16.bf16 %h1, %h2;", ".target sm_90"),
        (
            "8.8",
            "sm_80",
            "cvt.ftz.f32.bf16 %f1, %h2;",
            ".target sm_90",
        ),
    ] {
        let log = log_for(version, target, text);
        assert!(
            log.contains(&format!("needs {needs} or newer")),
            "{text}: {log}"
        );
    }
    for directive in [
        ".reqnctapercluster 1",
        ".explicitcluster",
        ".maxclusterrank 4",
    ] {
        let load = |target: &str| {
            let source = format!(
                ".version 8.8\n.target {target}\n.address_size 64\n.entry k() {directive} {{ ret; }}"
            );
            Module::load(source.as_bytes(), &LoadOptions::default())
        };
        assert!(load("sm_90").is_ok(), "{directive}");
        let log = load("sm_80").unwrap_err().log;
        assert!(log.contains("needs .target sm_90"), "{directive}: {log}");
    }
}
