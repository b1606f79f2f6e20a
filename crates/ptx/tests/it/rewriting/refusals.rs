//! What is refused, and what comes close to it and is not.

use ptx::ast::Pos;
use ptx::rewrite::{MOST_PARAMETERS, NotCopied, Refusal, Rewrite, Rewriter};

use super::{HEAD, guard, k, parsed, rewriter, rewritten};

/// Why `k` of a module without its head cannot be guarded.
#[track_caller]
fn refusal(items: &str) -> Refusal {
    let source = format!("{HEAD}{items}");
    rewriter(&source).rewrite(&[guard("k")]).unwrap_err()
}

#[test]
fn modules_that_are_refused() {
    let entry = ".entry k() { ret; }";
    for (head, expected) in [
        (
            ".version 7.0\n.target sm_70\n",
            Refusal::AddressSize { bits: 32 },
        ),
        (
            ".version 7.0\n.target sm_70\n.address_size 32\n",
            Refusal::AddressSize { bits: 32 },
        ),
        (
            ".version 7.0\n.target sm_70, debug\n.address_size 64\n",
            Refusal::Debug,
        ),
    ] {
        let rewriter = rewriter(&format!("{head}{entry}"));
        assert_eq!(rewriter.rewrite(&[guard("k")]).unwrap_err(), expected);
    }
    assert!(Rewriter::new("no PTX").is_err());
}

#[test]
fn kernels_that_are_not_there() {
    let none = Refusal::NoKernel { kernel: "k".into() };
    for items in [
        "",
        ".func k() { ret; }",
        ".entry k();",
        ".global .u32 k;",
        ".entry k() { ret; } .entry k() { ret; }",
    ] {
        assert_eq!(refusal(items), none, "{items}");
    }
    let declared = ".entry k(.param .u64 a); .entry k(.param .u64 a) { ret; }";
    let text = rewritten(declared, guard("k"));
    assert_eq!(parsed(&text).items.len(), 1, "{text}");
}

#[test]
fn parameters_beyond_the_most() {
    let of = |bytes: u64| format!(".entry k(.param .b8 p[{bytes}]) {{ ret; }}");
    rewritten(&of(MOST_PARAMETERS - 8), guard("k"));
    let expected = |bytes| Refusal::Parameters {
        kernel: "k".into(),
        bytes,
        most: MOST_PARAMETERS,
    };
    assert_eq!(
        refusal(&of(MOST_PARAMETERS - 7)),
        expected(MOST_PARAMETERS + 8)
    );
    let huge = refusal(&of(u64::MAX));
    assert!(matches!(huge, Refusal::Parameters { .. }), "{huge}");
    let wait = Rewrite {
        guard: false,
        wait: true,
        trigger: false,
        ..guard("k")
    };
    rewritten(&of(MOST_PARAMETERS), wait);
}

/// Why a variable of the module is refused, if it is.
fn variable(declaration: &str, body: &str) -> Option<NotCopied> {
    let source = format!("{HEAD}{declaration}\n{}", k(body));
    match rewriter(&source).rewrite(&[guard("k")]) {
        Ok(_) => None,
        Err(Refusal::Variable {
            function,
            variable,
            why,
            ..
        }) => {
            assert_eq!((&*function, &*variable), ("k", "v"));
            Some(why)
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn variables_that_a_copy_would_differ_from() {
    let load = "ld.global.u32 %r1, [v];";
    let by = |by: &str| Some(NotCopied::Written { by: by.into() });
    for (declaration, why) in [
        (".visible .global .u32 v = 1;", Some(NotCopied::Linked)),
        (".extern .global .u32 v;", Some(NotCopied::Linked)),
        (".weak .const .u32 v = 1;", Some(NotCopied::Linked)),
        (".common .global .u32 v;", Some(NotCopied::Linked)),
        (".global .u32 v;", Some(NotCopied::NoValue)),
        (".const .u32 v;", Some(NotCopied::NoValue)),
        (
            ".global .attribute(.managed) .u32 v = 1;",
            Some(NotCopied::Attribute),
        ),
        (
            ".global .u32 a = 1; .global .u64 v = a;",
            Some(NotCopied::Addresses),
        ),
        (".global .u32 v = 1; .global .u64 a[2] = {0, v};", by("a")),
        (
            ".global .u32 v = 1; .entry o() { st.global.u32 [v], 2; ret; }",
            by("o"),
        ),
        (".local .u32 v;", Some(NotCopied::Space)),
        (".global .u32 v = 1;", None),
        (".const .u32 v[2] = {1, 2};", None),
        (".shared .u32 v[2];", None),
        (".extern .shared .u32 v[];", None),
        (".visible .shared .u32 v;", None),
    ] {
        assert_eq!(variable(declaration, load), why, "{declaration}");
    }
}

#[test]
fn addresses_are_followed() {
    let take = "mov.u64 %rd1, v; cvta.global.u64 %rd2, %rd1; add.s64 %rd3, %rd2, 8;";
    let format = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
        .func (.param .b32 r) taken(.param .b64 f, .param .b64 a) { ret; }";
    let call = |callee: &str, more: &str| {
        format!(
            "{take} {{ .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %rd2;
             st.param.b64 [b], 0; {more} call (c), {callee}, (a, b); }}"
        )
    };
    for (body, is_written) in [
        (format!("{take} ld.global.u32 %r1, [%rd3+4];"), false),
        (
            format!("{take} ld.u32 %r1, [%rd2]; prefetch.global.L2 [%rd1];"),
            false,
        ),
        // Round a loop, against the order of the text.
        (
            "L: st.global.u32 [%rd2], 1; mov.u64 %rd2, %rd1; mov.u64 %rd1, v; bra L;".into(),
            true,
        ),
        (format!("{take} st.global.u32 [%rd3], 1;"), true),
        (format!("{take} st.global.u64 [%rd0], %rd3;"), true),
        (format!("{take} atom.global.add.u32 %r1, [%rd3], 1;"), true),
        (format!("{take} red.global.add.u32 [%rd3], 1;"), true),
        (
            format!("{take} mov.b64 {{%r1, %r2}}, %rd3; st.global.u32 [%rd0], %r1;"),
            true,
        ),
        ("st.global.u32 [v+4], 1;".into(), true),
        (call("vprintf", ""), false),
        (call("taken", ""), true),
        (call("vprintf", "ld.param.b64 %rd0, [a];"), true),
        (call("vprintf", "call (c), taken, (a, b);"), true),
        (call("vprintf", "call (c), taken, (b, b);"), false),
        ("call (%r1), vprintf, (v, 0);".into(), false),
        ("call (%r1), taken, (v, 0);".into(), true),
    ] {
        let why = variable(&format!("{format} .global .u32 v[4] = {{1, 2}};"), &body);
        let expected = is_written.then(|| NotCopied::Written { by: "k".into() });
        assert_eq!(why, expected, "{body}");
    }
    // One that is not the driver's.
    let own = ".func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a) { ret; }
        .global .u32 v[4] = {1, 2};";
    assert!(variable(own, &call("vprintf", "")).is_some());
}

#[test]
fn what_kernels_do_that_is_refused() {
    let function = || "k".to_owned();
    let pos = Pos::default();
    let cluster = |what: &str| Refusal::Cluster {
        function: function(),
        what: what.into(),
        pos,
    };
    let sync = |what: &str| Refusal::GridSync {
        function: function(),
        what: what.into(),
        pos,
    };
    let address = |of: &str| Refusal::FunctionAddress {
        function: function(),
        of: of.into(),
        pos,
    };
    let not_understood = |what: &str| Refusal::NotUnderstood {
        function: function(),
        what: what.into(),
        pos,
    };
    let foreign = |callee: &str| Refusal::ForeignCall {
        function: function(),
        callee: callee.into(),
        pos,
    };
    let depends = Refusal::GridDependency {
        function: function(),
        pos,
    };
    let indirect = Refusal::IndirectCall {
        function: function(),
        pos,
    };
    let reference = Refusal::Reference {
        function: function(),
        name: "image".into(),
        pos,
    };
    let items = ".func f() { ret; } .extern .func g(); .func h(); .global .texref image;
        .extern .func cudaCGSynchronize(); .entry o() { ret; } .alias a, f;\n";
    for (body, expected) in [
        ("griddepcontrol.launch_dependents;", depends.clone()),
        ("griddepcontrol.wait;", depends),
        (
            "barrier.cluster.arrive.aligned;",
            cluster("barrier.cluster.arrive.aligned"),
        ),
        ("mapa.u64 %rd1, %rd2, 0;", cluster("mapa.u64")),
        ("fence.acq_rel.cluster;", cluster("fence.acq_rel.cluster")),
        (
            "ld.shared::cluster.u32 %r1, [%r2];",
            cluster("ld.shared::cluster.u32"),
        ),
        (
            "mov.u32 %r1, %cluster_ctarank;",
            cluster("%cluster_ctarank"),
        ),
        ("mov.u32 %r1, %nclusterid.x;", cluster("%nclusterid")),
        ("mov.u32 %r1, %envreg2;", sync("%envreg2")),
        ("call cudaCGSynchronize;", sync("cudaCGSynchronize")),
        ("call g;", foreign("g")),
        ("call h;", foreign("h")),
        ("call o;", foreign("o")),
        ("call %rd1, p;", indirect.clone()),
        (".reg .b64 f; call f, p;", indirect),
        ("mov.u64 %rd1, f;", address("f")),
        ("mov.u64 %rd1, a;", address("a")),
        ("mov.u64 %rd1, o;", address("o")),
        (
            "tex.1d.v4.f32.f32 {%r1, %r1, %r1, %r1}, [image, {%r2}];",
            reference,
        ),
        ("frobnicate.u32 %r1, %r2;", not_understood("frobnicate")),
        ("{ .global .u32 inner; }", not_understood(".global inner")),
        (".shared .texref inner;", not_understood(".shared inner")),
    ] {
        let found = refusal(&format!("{items}{}", k(body)));
        assert_eq!(found, expected, "{body}");
    }
    for (directive, what) in [
        (".reqnctapercluster 2, 1, 1", ".reqnctapercluster"),
        (".explicitcluster", ".explicitcluster"),
        (".maxclusterrank 8", ".maxclusterrank"),
        (".blocksareclusters", ".blocksareclusters"),
    ] {
        let found = refusal(&format!(".entry k() {directive} {{ ret; }}"));
        assert_eq!(found, cluster(what));
    }
    let found = refusal(".entry k(.param .texref image) { ret; }");
    assert!(matches!(found, Refusal::Reference { .. }), "{found}");
}

/// What a function does counts for the kernels that call it, and for no others.
#[test]
fn calls_are_followed() {
    let items = ".global .u32 v;
        .func inner() { .reg .b32 %r; ld.global.u32 %r, [v]; ret; }
        .func outer() { call inner; ret; }\n";
    let found = refusal(&format!("{items}{}", k("call outer;")));
    let text = found.to_string();
    assert_eq!(
        text,
        "`inner` uses the variable `v`, which has no initial value (line 4)"
    );
    rewritten(&format!("{items}{}", k("")), guard("k"));
}

#[test]
fn what_may_be_called() {
    let items = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
        .extern .func (.param .b64 r) malloc(.param .b64 n);
        .extern .func free(.param .b64 p);
        .extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
        .extern .func cudaGraphSetConditional(.param .b64 a, .param .b32 b);\n";
    let body = "call (%r1), vprintf, (%rd1, %rd2); call (%rd1), malloc, (%rd2); call free, (%rd1);
        call __assertfail, (%rd1, %rd2, %r1, %rd1, %rd1);
        call cudaGraphSetConditional, (%rd1, %r1);
        X: .branchtargets Y; brx.idx %r1, X; Y:";
    rewritten(&format!("{items}{}", k(body)), guard("k"));
}
