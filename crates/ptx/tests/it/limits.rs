//! Hostile sources cost neither stack nor memory nor much time.

use std::time::{Duration, Instant};

use ptx::ast::{Item, Statement};

const HEADER: &str = ".version 8.0 .target sm_90\n";

/// Parses on a small stack, in time; far more than a linear parser needs, far less than a quadratic
/// one.
fn parse(source: String) -> Result<ptx::ast::Module, ptx::Errors> {
    let start = Instant::now();
    let result = std::thread::Builder::new()
        .stack_size(512 << 10)
        .spawn(move || ptx::parse(&source))
        .expect("a thread")
        .join()
        .expect("no panic");
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    result
}

fn error(source: String) -> String {
    parse(source).unwrap_err().as_slice()[0].to_string()
}

#[test]
fn nesting_is_bounded() {
    const DEEP: usize = 300_000;
    let too_deep = "expected at most 128 levels of nesting";
    let in_body = |body: String| format!("{HEADER}.entry k() {{ {body} }}");
    for source in [
        in_body("{".repeat(DEEP)),
        in_body("{".repeat(DEEP) + &"}".repeat(DEEP)),
        in_body(format!(
            "mov.u32 %r, {}1{};",
            "(".repeat(DEEP),
            ")".repeat(DEEP)
        )),
        in_body(format!("mov.u32 %r, {}1;", "- ".repeat(DEEP))),
        in_body(format!("mov.u32 %r, {}1;", "(.s64)".repeat(DEEP))),
        in_body(format!("mov.u32 %r, {}1;", "1?2:".repeat(DEEP))),
        in_body(format!("mov.u32 %r, {}1;", "1?".repeat(DEEP))),
        in_body(format!("mov.u32 {}", "{".repeat(DEEP))),
        in_body(format!("mov.u32 {}", "[a,".repeat(DEEP))),
        in_body(format!("call {}", "(a, {".repeat(DEEP))),
        format!("{HEADER}.global .u32 x = {}", "{".repeat(DEEP)),
        format!("{HEADER}.global .u32 x[{}", "-".repeat(DEEP)),
    ] {
        let shown = source[..60].to_owned();
        let message = error(source);
        let understood = message.contains(too_deep) || shown.contains("call");
        assert!(understood, "{shown}: {message}");
    }
}

/// The deepest tree that parses also prints, compares and drops.
#[test]
fn what_nests_less_is_fine() {
    let depth = 120;
    let source = format!(
        "{HEADER}.entry k() {{ {} {} }}",
        "{".repeat(depth),
        "}".repeat(depth)
    );
    let module = parse(source).expect("deep, not too deep");
    assert_eq!(ptx::parse(&module.to_string()).expect("printed"), module);
    let list = format!(
        "{HEADER}.global .u32 x = {}1{};",
        "{".repeat(depth),
        "}".repeat(depth)
    );
    let module = parse(list).expect("deep, not too deep");
    assert_eq!(ptx::parse(&module.to_string()).expect("printed"), module);
}

/// The scope that is too deep is left out whole, and what follows it is read.
#[test]
fn parsing_goes_on_behind_what_is_too_deep() {
    let source = format!(
        "{HEADER}.entry k() {{ {} {} }}\n.entry l() {{ bad bad bad; }}",
        "{".repeat(200),
        "}".repeat(200)
    );
    let errors = parse(source).unwrap_err();
    let lines: Vec<_> = errors.iter().map(|error| error.pos.line).collect();
    assert_eq!(lines, [2, 3]);
}

#[test]
fn counts_are_not_memory() {
    let source = format!(
        "{HEADER}.entry k() {{ .reg .b32 %r<4294967295>; .local .b64 x[18446744073709551615][18446744073709551615]; }}"
    );
    let module = parse(source).expect("large numbers are numbers");
    let Item::Function(function) = &module.items[0] else {
        panic!("no function")
    };
    let [Statement::Variable(range), Statement::Variable(array)] =
        &function.body.as_ref().expect("a body")[..]
    else {
        panic!("two variables")
    };
    assert_eq!(range.range, Some(4294967295));
    assert_eq!(array.size(), u64::MAX);
}

#[test]
fn length_costs_linear_time() {
    const MANY: usize = 400_000;
    for piece in [
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "<",
        ",",
        ";",
        ":",
        "@",
        "!",
        "-",
        "|",
        "\"",
        "\"\n",
        "/*",
        "//",
        "//\n",
        "#",
        "#\n",
        " #",
        "a:",
        ".x",
        ".a::a",
        "::a",
        "1",
        "1+",
        "1*",
        "0x",
        ".5",
        "é",
        "\0",
        "%",
        "_",
        "_|",
        "$L:",
        "a.b,",
        ".loc 1 2 3 ",
        ".version",
        ".entry ",
        ".entry e() {",
        ".func f();",
        "a{",
        "{},",
        "}\n;",
        "/**/",
        "/",
        "*",
        "{a;",
        ".reg .b32 %r<9>;",
        "@p ",
        "a|",
    ] {
        let filler = piece.repeat(MANY);
        let _ = parse(filler.clone());
        let _ = parse(format!("{HEADER}{filler}"));
        let _ = parse(format!("{HEADER}.entry k() {{ {filler}"));
        let _ = parse(format!("{HEADER}.entry k() {{ mov {filler}"));
        let _ = parse(format!("{HEADER}.global .u32 x[] = {{ {filler}"));
        let _ = parse(format!("{HEADER}.section .x {{ {filler}"));
    }
}

/// A megabyte takes tens of milliseconds, even without optimization; the bound leaves room for a
/// busy machine.
#[test]
fn a_megabyte_is_read_quickly() {
    let body = crate::corpus::files()
        .into_iter()
        .find(|(name, _)| name == "generated_language_sm90.ptx")
        .expect("it")
        .1;
    let items = body.split_once(".address_size 64").expect("a header").1;
    let source = format!(
        ".version 9.0 .target sm_90 .address_size 64 {}",
        items.repeat((1 << 20) / items.len())
    );
    let start = Instant::now();
    let module = ptx::parse(&source).expect("it parses");
    let took = start.elapsed();
    println!(
        "{} bytes, {} items: {took:?}",
        source.len(),
        module.items.len()
    );
    assert!(took < Duration::from_secs(2), "{took:?}");
}
