//! Gives the cdylib the name that CUDA programs load.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // glibc answers `dlopen("libcuda.so.1")` with a library that is loaded and has this name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // The table behind cuGetProcAddress means our functions, also where another driver was loaded before.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Worker threads run code of the library until the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
