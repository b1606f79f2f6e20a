//! Every file of the corpus parses.

use std::path::PathBuf;

/// The corpus: the name and the text of each file, in the order of their names.
pub fn files() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a file of the corpus").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .map(|path| {
            let name = path
                .file_name()
                .expect("a file has a name")
                .to_string_lossy()
                .into_owned();
            (
                name,
                std::fs::read_to_string(&path).expect("the corpus is UTF-8"),
            )
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds no corpus", folder.display());
    files
}

#[test]
fn every_file_parses() {
    for (name, source) in files() {
        if let Err(errors) = ptx::parse(&source) {
            panic!("{name}:\n{errors}");
        }
    }
}
