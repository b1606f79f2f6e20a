//! The layers of ARCHITECTURE.md are those of the code: no folder of `src` names one above itself.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::map::{MAP, repository};

/// The folders of the library from the bottom to the top, as ARCHITECTURE.md lists them.
fn layers() -> Vec<&'static str> {
    let table = MAP.split("Layers of `cuda-graph`").nth(1);
    let table = table.expect("ARCHITECTURE.md lists the layers");
    let rows = table.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next())
        .collect()
}

/// The words and signs of a source, without comments and strings.
fn tokens(source: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = literal(rest) {
            length
        } else if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            tokens.push(&rest[..length]);
            length
        } else {
            let length = if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            if !first.is_whitespace() {
                tokens.push(&rest[..length]);
            }
            length
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of the string or character that `source` starts with.
fn literal(source: &str) -> Option<usize> {
    let hashes = |at: usize| source[at..].chars().take_while(|&c| c == '#').count();
    let raw = match source.as_bytes() {
        [b'r', b'"' | b'#', ..] => Some(1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] => Some(2),
        _ => None,
    };
    if let Some(at) = raw
        && source[at + hashes(at)..].starts_with('"')
    {
        let start = at + hashes(at) + 1;
        let end = format!("\"{}", "#".repeat(hashes(at)));
        return Some(start + source[start..].find(&end)? + end.len());
    }
    let quote = source.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    if quote == '\'' {
        // A lifetime is no literal.
        let mut after = source.chars().skip(1);
        let (first, second) = (after.next()?, after.next()?);
        if first != '\\' && second != '\'' {
            return None;
        }
    }
    let mut escaped = false;
    for (at, c) in source.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Where the names in the library's root come from, as `lib.rs` says: the folder of each name.
fn roots(lib: &str) -> HashMap<&str, &str> {
    let tokens = tokens(lib);
    let mut names = HashMap::new();
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "mod" => {
                names.insert(tokens[at + 1], tokens[at + 1]);
            }
            "use" => {
                // A crate is no folder.
                let is_crate = tokens[at + 2] == ";";
                let folder = if is_crate { "" } else { tokens[at + 1] };
                names.entry(tokens[at + 1]).or_insert(folder);
                let end = tokens[at..].iter().position(|&token| token == ";");
                let end = at + end.expect("a `use` ends");
                for name in &tokens[at + 2..end] {
                    names.entry(name).or_insert(folder);
                }
            }
            _ => {}
        }
    }
    names
}

/// The first names of the paths after `crate::` or `super::`, of which a `use` may have several.
fn first_names<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    if tokens.first() != Some(&"{") {
        return tokens.first().copied().into_iter().collect();
    }
    let (mut depth, mut names, mut is_first) = (0, Vec::new(), false);
    for &token in tokens {
        match token {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && matches!(token, "{" | ",") {
            is_first = true;
        } else if std::mem::take(&mut is_first) {
            names.push(token);
        }
    }
    names
}

/// The names in the root of the library that a source names. `module` is its path from there.
fn names<'a>(module: &[&'a str], source: &'a str) -> Vec<&'a str> {
    let tokens = tokens(source);
    let (mut module, mut opened, mut depth) = (module.to_vec(), Vec::new(), 0);
    let mut names = Vec::new();
    let (mut at, mut tests) = (0, None);
    while at < tokens.len() {
        match &tokens[at..] {
            ["cfg", "(", "test", ")", "]", "mod", ..] => tests = tests.or(Some(depth)),
            ["mod", name, "{", ..] => {
                module.push(name);
                opened.push(depth);
                depth += 1;
                at += 2;
            }
            ["{", ..] => depth += 1,
            ["}", ..] => {
                depth -= 1;
                if opened.last() == Some(&depth) {
                    opened.pop();
                    module.pop();
                }
                tests = tests.filter(|&outside| outside != depth);
            }
            // Tests inside of the library may use all of it.
            _ if tests.is_some() => {}
            ["crate", "::", rest @ ..] => names.extend(first_names(rest)),
            ["super", "::", ..] => {
                let mut up = 0;
                while tokens[at..].starts_with(&["super", "::"]) {
                    up += 1;
                    at += 2;
                }
                if up >= module.len() {
                    names.extend(first_names(&tokens[at..]));
                }
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    names
}

/// What a source names that is above it.
fn arrows_up(
    layers: &[&str],
    roots: &HashMap<&str, &str>,
    module: &[&str],
    source: &str,
) -> Vec<String> {
    let layer = |folder: &str| layers.iter().position(|layer| *layer == folder);
    // Files beside the folders are above all of them.
    let own = layer(module[0]).unwrap_or(layers.len());
    let mut found = Vec::new();
    for name in names(module, source) {
        let Some(folder) = roots.get(name) else {
            found.push(format!("{}: what is crate::{name}?", module.join("::")));
            continue;
        };
        let is_up = layer(folder).is_none_or(|folder| folder > own);
        if is_up && own < layers.len() && !folder.is_empty() {
            found.push(format!("{} names {folder}: {name}", module.join("::")));
        }
    }
    found
}

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("the sources can be listed").path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
}

/// The sources of the library but `lib.rs`: the path of each module, and its text.
fn modules() -> Vec<(Vec<String>, String)> {
    let src = repository().join("crates/cuda-graph/src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let module = |file: PathBuf| {
        let path = file.strip_prefix(&src).expect("it is in the folder");
        let path = path.with_extension("");
        let names = path.iter().map(|name| name.to_string_lossy().into_owned());
        let mut names: Vec<String> = names.collect();
        names.pop_if(|name| name == "mod");
        (names, fs::read_to_string(file).expect("it can be read"))
    };
    let files = files.into_iter().map(module);
    files.filter(|(names, _)| names != &["lib"]).collect()
}

const LIB: &str = include_str!("../../src/lib.rs");

#[test]
fn no_folder_names_one_above_itself() {
    let (layers, roots) = (layers(), roots(LIB));
    let modules = modules();
    let mut found = Vec::new();
    for (module, source) in &modules {
        let module: Vec<&str> = module.iter().map(String::as_str).collect();
        found.extend(arrows_up(&layers, &roots, &module, source));
    }
    assert!(found.is_empty(), "arrows lead up: {found:#?}");

    // What the guide shows is no module.
    let folders = modules
        .iter()
        .filter(|(module, _)| module.len() > 1 && module[0] != "guide");
    let mut folders: Vec<&str> = folders.map(|(module, _)| module[0].as_str()).collect();
    folders.sort_unstable();
    folders.dedup();
    let mut listed = layers;
    listed.sort_unstable();
    assert_eq!(folders, listed, "ARCHITECTURE.md lists the folders of src");
}

#[test]
fn an_arrow_that_leads_up_is_found() {
    let lib = "mod graph; pub mod exec; pub mod pool;
        pub use cudarc; pub use exec::{Exec, Options}; pub use graph::Graph;";
    let roots = roots(lib);
    let up = |module: &[&str], source| arrows_up(&["graph", "exec"], &roots, module, source).len();

    assert_eq!(up(&["graph", "node"], "use crate::exec::table::Table;"), 1);
    assert_eq!(up(&["graph", "node"], "fn f(_: crate::Exec) {}"), 1);
    let several = "use crate::{graph::{self, node}, Exec as E, cudarc, exec::{a, b}};";
    assert_eq!(up(&["graph", "node"], several), 2, "{several}");
    assert_eq!(
        up(&["graph", "node"], "use super::super::{Options, Graph};"),
        1
    );
    assert_eq!(up(&["graph"], "use super::exec;"), 1);
    assert_eq!(
        up(
            &["graph"],
            "mod a { use super::exec; mod b {} } use super::pool;"
        ),
        1
    );
    assert_eq!(up(&["graph"], "mod a { use super::super::exec; }"), 1);
    assert_eq!(
        up(
            &["graph"],
            "fn f<'a>(_: &'a str, _: [char; '\"' as usize], _: crate::Exec) {}"
        ),
        1
    );
    assert_eq!(up(&["graph"], "use crate::Unheard;"), 1);

    assert_eq!(up(&["exec", "table"], "use crate::{Graph, exec::Exec};"), 0);
    assert_eq!(
        up(
            &["graph", "node"],
            "use super::{Exec, exec}; // crate::exec"
        ),
        0
    );
    assert_eq!(
        up(
            &["graph"],
            "/// [`crate::Exec`]\n/* crate::Exec */ fn f() {}"
        ),
        0
    );
    assert_eq!(
        up(
            &["graph"],
            r##"const A: &str = r#"" crate::exec"#; "crate::exec";"##
        ),
        0
    );
    assert_eq!(
        up(&["graph"], "#[cfg(test)] mod tests { use crate::Exec; }"),
        0
    );
    assert_eq!(
        up(
            &["graph"],
            "#[cfg(test)] mod tests { mod a {} } use crate::Exec;"
        ),
        1
    );
    assert_eq!(up(&["pool"], "use crate::{Exec, Graph};"), 0);
}

/// The driver functions that a source calls.
fn driver_functions(source: &str) -> Vec<&str> {
    let is_function = |word: &&str| {
        let name = word.strip_prefix("cu");
        name.is_some_and(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
    };
    tokens(source).into_iter().filter(is_function).collect()
}

#[test]
fn the_driver_is_called_in_its_folder_alone() {
    let (mut inside, mut outside) = (0, Vec::new());
    for (module, source) in &modules() {
        let functions = driver_functions(source);
        match module[0].as_str() {
            "driver" => inside += functions.len(),
            _ => outside.extend(functions.iter().map(|name| format!("{module:?}: {name}"))),
        }
    }
    assert!(outside.is_empty(), "{outside:#?}");
    assert!(inside > 50, "driver/ calls {inside} functions");
    let call = "fn f() { unsafe { sys::cuGraphLaunch(a, b) } } // cuMemAlloc";
    assert_eq!(driver_functions(call), ["cuGraphLaunch"]);
}
