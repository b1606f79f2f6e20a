//! What nvcc and rustc write loads and compiles.

use std::path::Path;

use crate::jit::module::{LoadErrorKind, LoadOptions, Module};

/// Every kernel of a folder compiles; what is refused is an instruction that is not run, and is
/// named.
fn compile_all(folder: &str, wanted: impl Fn(&str) -> bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut kernels = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".ptx") || !wanted(&name) {
            continue;
        }
        let source = std::fs::read(&path).unwrap();
        match Module::load(&source, &LoadOptions::default()) {
            Ok(module) => {
                for kernel in module.kernels() {
                    let compiled = match kernel.compile() {
                        Ok(compiled) => compiled,
                        // Textures and what else of sm_100 the corpus has are not run.
                        Err(error) if error.unsupported && name.contains("tensors") => continue,
                        Err(error) => panic!("{name}: {error}"),
                    };
                    let (time, size) = kernel.compile_cost().unwrap();
                    let mode = compiled.mode;
                    println!("{name}: {} {mode:?} {time:?} {size} bytes", kernel.name);
                    kernels += 1;
                }
            }
            Err(error) => {
                println!("{name}:\n{}", error.log);
                assert_eq!(error.kind, LoadErrorKind::InvalidPtx);
                assert!(name.contains("tensors"), "{}", error.log);
            }
        }
    }
    assert!(kernels > 0);
}

#[test]
fn corpus() {
    compile_all("../ptx/tests/corpus", |name| name.starts_with("generated"));
}

#[test]
fn kernels() {
    compile_all("../../kernels/ptx", |_| true);
}
