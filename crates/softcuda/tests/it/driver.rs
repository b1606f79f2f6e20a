//! Which driver the tests run on, and its functions by name.
//!
//! `CUDA_GRAPH_DRIVER` decides: `gpu`, `software`, or `auto`, the default, which takes the GPU's
//! driver where the loader finds one. The choice is made once a process, before the first driver
//! call.

use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// The name under which every CUDA driver is loaded.
const DRIVER: &str = "libcuda.so.1";

/// What answers the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    Gpu,
    Software,
}

/// The driver of this process; installs the software driver when it is the choice.
pub fn driver() -> Driver {
    loaded().0
}

/// The address of a driver function, zero when the driver has none of that name.
pub fn symbol(name: &str) -> usize {
    // SAFETY: the symbol is read as an address only; whoever calls it gives it its type.
    match unsafe { loaded().1.get::<*const ()>(name.as_bytes()) } {
        Ok(symbol) => symbol.as_raw_ptr() as usize,
        Err(_) => 0,
    }
}

fn loaded() -> &'static (Driver, Library) {
    static LOADED: OnceLock<(Driver, Library)> = OnceLock::new();
    LOADED.get_or_init(|| {
        let choice = std::env::var("CUDA_GRAPH_DRIVER").unwrap_or_else(|_| "auto".to_string());
        match choice.as_str() {
            "gpu" => (
                Driver::Gpu,
                open(DRIVER).expect("CUDA_GRAPH_DRIVER=gpu, and the loader finds no libcuda.so.1"),
            ),
            "software" => (Driver::Software, software()),
            "auto" => match open(DRIVER) {
                Ok(library) => (Driver::Gpu, library),
                Err(_) => (Driver::Software, software()),
            },
            other => panic!("CUDA_GRAPH_DRIVER={other}: it takes gpu, software or auto"),
        }
    })
}

/// Loads the software driver, which cargo built beside this test.
fn software() -> Library {
    let test = std::env::current_exe().expect("the test knows its own path");
    let tried: Vec<PathBuf> = test
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("libsoftcuda.so"))
        .collect();
    tried
        .iter()
        .find_map(|path| open(path.as_path()).ok())
        .unwrap_or_else(|| panic!("no software driver in {tried:?}"))
}

fn open(path: impl libloading::AsFilename) -> Result<Library, libloading::Error> {
    // SAFETY: a CUDA driver runs no code of consequence when it is loaded, and it is never
    // unloaded.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }
}
