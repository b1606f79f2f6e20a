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
