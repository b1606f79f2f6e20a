//! What nvcc and rustc write loads and compiles.

use std::path::Path;

use crate::jit::module::{LoadErrorKind, LoadOptions, Module};

/// Every kernel of the corpus compiles; what is refused is an instruction that is not run, and is named.
#[test]
fn corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ptx/tests/corpus");
    let mut kernels = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let generated = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("generated"));
        if !generated || path.extension().is_none_or(|ext| ext != "ptx") {
            continue;
        }
        let source = std::fs::read(&path).unwrap();
        match Module::load(&source, &LoadOptions::default()) {
            Ok(module) => {
                for kernel in module.kernels() {
                    kernel
                        .compile()
                        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                    let (time, size) = kernel.compile_cost().unwrap();
                    println!("{}: {} {time:?} {size} bytes", path.display(), kernel.name);
                    kernels += 1;
                }
            }
            Err(error) => {
                println!("{}:\n{}", path.display(), error.log);
                assert_eq!(error.kind, LoadErrorKind::InvalidPtx);
                // Textures, tensor cores and asynchronous copies are not run.
                assert!(path.to_string_lossy().contains("tensors"), "{}", error.log);
            }
        }
    }
    assert!(kernels > 0);
}
