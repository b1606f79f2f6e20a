//! Gives the cdylib the name that CUDA programs load, and tells the crate where the build leaves
//! it.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
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
