//! Gives the cdylib the name that CUDA programs load, and tells the crate where the build leaves
//! it, and what it is built from.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=SOFTCUDA_BUILD={:016x}", build());
    // glibc answers `dlopen("libcuda.so.1")` with a library that is loaded and has this name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // The table behind cuGetProcAddress means our functions, also where another driver was loaded
    // before.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Worker threads run code of the library until the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // OUT_DIR is `<profile>/build/softcuda-<hash>/out`; the library is in `<profile>/deps`.
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    let profile = Path::new(&out)
        .ancestors()
        .nth(3)
        .unwrap_or(Path::new(&out));
    println!(
        "cargo::rustc-env=SOFTCUDA_PROFILE_DIR={}",
        profile.display()
    );
}

/// A hash of all that decides what the library's own code is: kernels that another build compiled
/// and kept are not for this one. Versions would not tell builds of a working copy apart.
fn build() -> u64 {
    let mut hash = DefaultHasher::new();
    // The parser is a crate beside this one, unless both come from a registry.
    for folder in ["src", "../ptx/src"] {
        if Path::new(folder).is_dir() {
            println!("cargo::rerun-if-changed={folder}");
            files(Path::new(folder), &mut hash);
        }
    }
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC for build scripts");
    let version = Command::new(rustc).arg("-vV").output();
    version.map(|output| output.stdout).ok().hash(&mut hash);
    for name in ["TARGET", "PROFILE", "OPT_LEVEL", "CARGO_ENCODED_RUSTFLAGS"] {
        env::var_os(name).hash(&mut hash);
    }
    hash.finish()
}

fn files(folder: &Path, hash: &mut DefaultHasher) {
    let entries = fs::read_dir(folder).expect("the folder of sources can be read");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("the folder of sources can be read").path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files(&path, hash);
        } else {
            path.hash(hash);
            fs::read(&path).expect("sources can be read").hash(hash);
        }
    }
}
