//! Rewritten kernels: what changes, what stays, and what is refused.

mod refusals;

use ptx::ast::{Function, Item, Module, Statement};
use ptx::rewrite::{Refusal, Rewrite, Rewriter};

use crate::corpus;

const HEAD: &str = ".version 7.0\n.target sm_70\n.address_size 64\n";

fn guard(kernel: &str) -> Rewrite<'_> {
    Rewrite {
        kernel,
        guard: true,
        wait: false,
        trigger: false,
        name: "rewritten",
    }
}

fn rewriter(source: &str) -> Rewriter {
    Rewriter::new(source).unwrap_or_else(|errors| panic!("{errors}\n{source}"))
}

/// The rewritten text of a kernel of a module without its head.
#[track_caller]
fn rewritten(items: &str, rewrite: Rewrite<'_>) -> String {
    let text = rewriter(&format!("{HEAD}{items}")).rewrite(&[rewrite]);
    text.unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn parsed(text: &str) -> Module {
    ptx::parse(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

fn function<'m>(module: &'m Module, name: &str) -> &'m Function {
    let mut functions = module.items.iter().filter_map(|item| match item {
        Item::Function(function) if function.name == name && function.body.is_some() => {
            Some(function)
        }
        _ => None,
    });
    functions
        .next()
        .unwrap_or_else(|| panic!("no `{name}` in\n{module}"))
}

fn k(body: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 p)\n{{\n.reg .b64 %rd<4>;\n.reg .b32 %r<4>;\n{body}\nret;\n}}\n"
    )
}

#[test]
fn the_text_of_all_three() {
    let both = Rewrite {
        wait: true,
        trigger: true,
        ..guard("k")
    };
    let source = ".visible .entry k(\n\t.param .u64 p // where to\n)\n.maxntid 32, 1, 1\n{\n\t.reg .b64 %rd;\n\n// first\nL:\tld.param.u64 %rd, [p];\n\tret;\n}";
    let text = rewritten(source, both);
    assert_eq!(
        text,
        ".version 7.8
.target sm_90
.address_size 64

.visible .entry rewritten(
\t.param .u64 p,
\t.param .u64 guard0_flag // where to
)
.maxntid 32, 1, 1
{
\t.reg .b64 %rd;

// first
griddepcontrol.launch_dependents;
\tgriddepcontrol.wait;
\t{
\t.reg .pred %guard0_down;
\t.reg .b32 %guard0_word;
\t.reg .b64 %guard0_at;
\tld.param.u64 %guard0_at, [guard0_flag];
\tcvta.to.global.u64 %guard0_at, %guard0_at;
\tld.volatile.global.u32 %guard0_word, [%guard0_at];
\tsetp.eq.u32 %guard0_down, %guard0_word, 0;
\t@%guard0_down ret;
\t}
\tL:\tld.param.u64 %rd, [p];
\tret;
}

"
    );
}

#[test]
fn neither_is_the_kernel_itself() {
    let same = Rewrite {
        guard: false,
        name: "k",
        ..guard("k")
    };
    let kernel = k("ld.param.u64 %rd1, [p];");
    let text = rewritten(&format!("{kernel}.visible .entry other() {{ ret; }}"), same);
    assert_eq!(text, format!("{HEAD}\n{}\n\n", kernel.trim_end()));
}

/// Every kernel of the corpus is refused, or has the same parameters, directives and statements
/// with more in front.
#[test]
fn kernels_of_the_corpus_keep_what_they_are() {
    let (mut kept, mut refused) = (0, Vec::new());
    for (name, source) in corpus::files() {
        let module = parsed(&source);
        let rewriter = rewriter(&source);
        let kernels = module.items.iter().filter_map(|item| match item {
            Item::Function(function) if function.kernel && function.body.is_some() => {
                Some(function)
            }
            _ => None,
        });
        for kernel in kernels {
            for (guard, wait) in [(true, false), (false, true), (true, true)] {
                let rewrite = Rewrite {
                    kernel: &kernel.name,
                    guard,
                    wait,
                    trigger: false,
                    name: "rewritten",
                };
                let text = match rewriter.rewrite(&[rewrite]) {
                    Ok(text) => text,
                    Err(refusal) => {
                        refused.push(format!("{name}: {refusal}"));
                        continue;
                    }
                };
                kept += 1;
                let new = parsed(&text);
                let new = function(&new, "rewritten");
                let mut expected = kernel.clone();
                expected.name = "rewritten".into();
                if guard {
                    let flag = new.params.last().expect("there is a flag").clone();
                    let (signature, before) = (new.signature(), kernel.signature());
                    assert_eq!(signature.params[..before.params.len()], before.params[..]);
                    assert_eq!((flag.size(), flag.alignment()), (8, 8));
                    expected.params.push(flag);
                }
                let body = expected.body.as_mut().expect("it has a body");
                let first = body
                    .iter()
                    .position(|statement| !matches!(statement, Statement::Variable(_)));
                let added = usize::from(guard) + usize::from(wait);
                let in_front = new.body.as_ref().expect("it has a body");
                let first = first.unwrap_or(body.len());
                body.splice(first..first, in_front[first..first + added].to_vec());
                assert_eq!(*new, expected, "{name}");
            }
        }
    }
    refused.sort_unstable();
    refused.dedup();
    println!("{kept} kept; refused:\n{}", refused.join("\n"));
    assert!(kept > 40, "{kept} are rewritten");
}

#[test]
fn what_a_kernel_uses_comes_along_and_nothing_else() {
    let items = "
        .pragma \"nounroll\";
        .file 1 \"a.cu\"
        .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
        .func deep();
        .func unused() { ret; }
        .const .u32 table[2] = {1, 2};
        .global .u32 first = 1, second = 2;
        .shared .b32 tile[32];
        .extern .shared .b8 dynamic[];
        .visible .global .u32 counter;
        .func shallow() { .reg .b32 %r; ld.const.u32 %r, [table+4]; call deep; ret; }
        .alias renamed, shallow;
        .func deep() { .reg .b32 %r; ld.global.u32 %r, [second]; ld.shared.b32 %r, [tile]; ret; }
        .visible .entry other() { .reg .b32 %r; st.global.u32 [counter], 1; ret; }
        .section .debug_str { info: .b8 97, 0 }
        .section .debug_abbrev { .b8 1 }";
    let kernel = k("call renamed; ld.shared.b32 %r1, [dynamic];");
    let text = rewritten(&format!("{items}\n{kernel}"), guard("k"));
    let module = parsed(&text);
    let names: Vec<&str> = module
        .items
        .iter()
        .map(|item| match item {
            Item::Variable(variable) => &*variable.name,
            Item::Function(function) => &*function.name,
            Item::Alias { name, .. } => name,
            Item::Section { name, .. } => name,
            Item::Pragma(_) => "pragma",
            Item::File { name, .. } => name,
            Item::Loc(_) => "loc",
        })
        .collect();
    let expected = [
        "pragma",
        "a.cu",
        "deep",
        "table",
        "first",
        "second",
        "tile",
        "dynamic",
        "shallow",
        "renamed",
        "deep",
        ".debug_str",
        "rewritten",
    ];
    assert_eq!(names, expected);
}

#[test]
fn several_kernels_share_what_they_use() {
    let source = format!(
        "{HEAD}.func f() {{ ret; }}
        .entry a() {{ call f; ret; }}
        .entry b {{ call f; ret; }}"
    );
    let rewrites = [("a", "a1", false), ("a", "a2", true), ("b", "b1", false)];
    let rewrites = rewrites.map(|(kernel, name, wait)| Rewrite {
        kernel,
        guard: true,
        wait,
        trigger: false,
        name,
    });
    let text = rewriter(&source).rewrite(&rewrites).expect("all may be");
    let module = parsed(&text);
    assert_eq!(module.items.len(), 4, "{text}");
    for name in ["a1", "a2", "b1"] {
        assert_eq!(function(&module, name).signature().size, 8, "{text}");
    }
}

/// Whatever parameters look like, there is one more.
#[test]
fn parameter_lists() {
    for (list, size) in [
        ("", 8),
        ("()", 8),
        ("( /* none */ )", 8),
        ("(.param .u8 a)", 16),
        (
            "(.param .u64 .ptr .global .align 16 a, .param .align 4 .b8 b[12] // )\n)",
            32,
        ),
    ] {
        let text = rewritten(&format!(".entry k{list} {{ ret; }}"), guard("k"));
        let module = parsed(&text);
        let signature = function(&module, "rewritten").signature();
        assert_eq!(signature.size, size, "{text}");
    }
}

#[test]
fn names_do_not_clash() {
    // The words are in a register, a label, a parameter, a function and a comment.
    let items = "
        .func guard3_() { ret; }
        .entry k(.param .u64 guard0_flag) {
            .reg .b32 %guard1_word;
            .reg .pred %guard0_down<4>;
        guard2_x: // guard4_
            call guard3_;
            ret;
        }";
    let text = rewritten(items, guard("k"));
    assert!(text.contains(".param .u64 guard5_flag)"), "{text}");
    let both = Rewrite {
        name: "guard5_flag",
        ..guard("k")
    };
    let text = rewritten(items, both);
    assert!(
        text.contains(".entry guard5_flag(") && text.contains("%guard6_down"),
        "{text}"
    );
}

#[test]
fn new_names_are_checked() {
    let source = format!("{HEAD}.entry k(.param .u64 p) {{ L: ret; }} .entry o() {{ ret; }}");
    let rewriter = rewriter(&source);
    let named = |name| rewriter.rewrite(&[Rewrite { name, ..guard("k") }]);
    for name in ["o", "p", "L", "", "_", "1st", "a b", "a;", "é", "%r", "ret"] {
        let name_refused = Refusal::Name { name: name.into() };
        assert_eq!(named(name).unwrap_err(), name_refused, "{name}");
    }
    for name in ["k", "k1", "$k", "_k", "kernel$1"] {
        assert!(named(name).is_ok(), "{name}");
    }
    let twice = rewriter.rewrite(&[guard("k"), guard("o")]).unwrap_err();
    assert!(matches!(twice, Refusal::Name { .. }));
    assert_eq!(rewriter.unused_name("k1"), "k1");
    assert_eq!(rewriter.unused_name("k"), "k_");
}

#[test]
fn versions_and_targets_are_raised_for_waits_alone() {
    let head = |version: &str, target: &str| {
        let source = format!(
            ".version {version}\n.target {target}\n.address_size 64\n.entry k() {{ ret; }}"
        );
        let text = |guard, wait| {
            let rewrite = Rewrite {
                kernel: "k",
                guard,
                wait,
                trigger: false,
                name: "k",
            };
            rewriter(&source).rewrite(&[rewrite]).map(|text| {
                let module = parsed(&text);
                (module.version, module.target.join(","))
            })
        };
        (text(true, false), text(false, true))
    };
    let of = |version, target: &str| Ok((version, target.to_owned()));
    for (version, target, guarded, waiting) in [
        ("7.0", "sm_70", of((7, 0), "sm_70"), of((7, 8), "sm_90")),
        ("9.0", "sm_80", of((9, 0), "sm_80"), of((9, 0), "sm_90")),
        ("8.0", "sm_90a", of((8, 0), "sm_90a"), of((8, 0), "sm_90a")),
        (
            "8.8",
            "sm_100f",
            of((8, 8), "sm_100f"),
            of((8, 8), "sm_100f"),
        ),
        (
            "7.0",
            "sm_75, texmode_independent",
            of((7, 0), "sm_75,texmode_independent"),
            of((7, 8), "sm_90,texmode_independent"),
        ),
    ] {
        assert_eq!(
            head(version, target),
            (guarded, waiting),
            "{version} {target}"
        );
    }
    // Threads of a warp ran in step there.
    let (guarded, waiting) = head("6.0", "sm_60");
    assert_eq!(guarded, of((6, 0), "sm_60"));
    assert!(
        matches!(waiting, Err(Refusal::Target { .. })),
        "{waiting:?}"
    );
}

/// Sources of the parser's fuzz tests: whatever they are, nothing panics, and what is written
/// parses.
#[test]
fn damaged_sources() {
    let cases =
        std::env::var("PTX_FUZZ_CASES").map_or(2_000, |cases| cases.parse().expect("a number"));
    let files = corpus::files();
    let mut random = crate::damage::Random(7);
    let mut rewritten = 0;
    for _ in 0..cases {
        let (_, source) = &files[random.below(files.len())];
        let (_, other) = &files[random.below(files.len())];
        let mut bytes = source.clone().into_bytes();
        crate::damage::damage(&mut random, &mut bytes, other.as_bytes());
        let source = String::from_utf8_lossy(&bytes).into_owned();
        let Ok(rewriter) = Rewriter::new(&*source) else {
            continue;
        };
        let module = parsed(&source);
        for item in &module.items {
            let Item::Function(kernel) = item else {
                continue;
            };
            let rewrite = Rewrite {
                kernel: &kernel.name,
                guard: true,
                wait: random.below(2) == 0,
                trigger: false,
                name: "rewritten",
            };
            if let Ok(text) = rewriter.rewrite(&[rewrite]) {
                rewritten += 1;
                function(&parsed(&text), "rewritten");
            }
        }
    }
    println!("{rewritten} kernels rewritten");
}
