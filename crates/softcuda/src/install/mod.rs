//! Makes this process's CUDA driver the software one.
//!
//! A client such as `cudarc` finds the driver by `dlopen("libcuda.so.1")` or, before that,
//! `dlopen("libcuda.so")`. glibc answers with a library that is loaded and has that name for its
//! SONAME. [`install`] therefore loads softcuda's library, whose SONAME is `libcuda.so.1`, and a
//! library of no code whose SONAME is `libcuda.so` and which needs the other.

mod alias;

use std::env;
use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use parking_lot::Mutex;

/// The name of the library's file.
const FILE: &str = "libsoftcuda.so";
/// The name that programs load the driver by.
const DRIVER: &CStr = c"libcuda.so.1";
/// The environment variable that names the library.
const VARIABLE: &str = "SOFTCUDA_LIBRARY";
/// How many folders upwards from the program the library is looked for.
const LEVELS: usize = 4;

/// Why [`install`] could not make the software driver this process's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Another driver is loaded, so a client would get that one.
    #[error("a CUDA driver is already loaded, from {}: install softcuda before the first CUDA call", path.display())]
    DriverLoaded {
        /// Its file.
        path: PathBuf,
    },
    /// The library is nowhere.
    #[error(
        "{FILE} was not found; set {VARIABLE} to it, or build it with `cargo build -p softcuda`; looked for {}",
        looked_for.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NotFound {
        /// Every file that was tried.
        looked_for: Vec<PathBuf>,
    },
    /// The library is there, but does not load.
    #[error("{} does not load: {reason}", path.display())]
    NotLoaded {
        /// The file.
        path: PathBuf,
        /// What the loader said.
        reason: String,
    },
    /// The file is another library, or softcuda of another version.
    #[error("{} is not softcuda {}", path.display(), env!("CARGO_PKG_VERSION"))]
    NotSoftcuda {
        /// The file.
        path: PathBuf,
    },
}

/// The version of the library, for [`install`] to compare.
#[unsafe(no_mangle)]
pub extern "C" fn softcuda_version() -> *const std::ffi::c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Makes this process's CUDA driver the software one: call it before the first CUDA call. Does
/// nothing when it is already.
///
/// The library is, in this order, what the environment variable `SOFTCUDA_LIBRARY` names;
/// `libsoftcuda.so` beside the program, in the folders above it and in their `deps`; where the
/// build of this crate left it; or wherever the system's loader finds it.
///
/// # Errors
/// [`InstallError`] says what is in the way.
///
/// # Examples
/// ```
/// softcuda::install().expect("the library is built with the crate");
/// softcuda::install().expect("once more does no harm");
/// ```
pub fn install() -> Result<(), InstallError> {
    // Two threads that install at once must not both find no driver.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    if let Some(loaded) = Library::already_loaded(DRIVER) {
        return match loaded.is_softcuda() {
            true => Ok(()),
            false => Err(InstallError::DriverLoaded {
                path: loaded.path(),
            }),
        };
    }
    let path = find()?;
    let library = Library::load(&path)?;
    if !library.is_softcuda() {
        return Err(InstallError::NotSoftcuda { path });
    }
    if let Err(reason) = alias::load() {
        tracing::warn!("dlopen(\"libcuda.so\") may still find another driver: {reason}");
    }
    Ok(())
}

/// The library's file.
fn find() -> Result<PathBuf, InstallError> {
    if let Some(path) = env::var_os(VARIABLE) {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => Ok(path),
            false => Err(InstallError::NotFound {
                looked_for: vec![path],
            }),
        };
    }
    let looked_for = candidates();
    if let Some(found) = looked_for.iter().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    // A bare name, for the system's loader to search.
    let bare = PathBuf::from(FILE);
    match Library::load(&bare) {
        Ok(_) => Ok(bare),
        Err(_) => Err(InstallError::NotFound { looked_for }),
    }
}

/// Where the library may be. Cargo renews `deps` with each build, and the folder above only when
/// softcuda itself is built, so `deps` comes first.
fn candidates() -> Vec<PathBuf> {
    let program = env::current_exe().ok();
    let above = program
        .iter()
        .flat_map(|program| program.ancestors().skip(1).take(LEVELS));
    let folders = above
        .map(Path::to_path_buf)
        .chain([PathBuf::from(env!("SOFTCUDA_PROFILE_DIR"))]);
    folders
        .flat_map(|folder| [folder.join("deps").join(FILE), folder.join(FILE)])
        .collect()
}

/// A loaded library; it is never unloaded.
struct Library(NonNull<c_void>);

impl Library {
    fn already_loaded(name: &CStr) -> Option<Self> {
        // SAFETY: the name is a C string, and with RTLD_NOLOAD no code runs.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
        NonNull::new(handle).map(Library)
    }

    fn load(path: &Path) -> Result<Self, InstallError> {
        let not_loaded = |reason: String| InstallError::NotLoaded {
            path: path.to_owned(),
            reason,
        };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|error| not_loaded(error.to_string()))?;
        // SAFETY: the name is a C string. Loading runs the library's initializers: it is the
        // program's choice to install it.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        NonNull::new(handle)
            .map(Library)
            .ok_or_else(|| not_loaded(loader_error()))
    }

    fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is of a loaded library and the name is a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    /// It is softcuda's library, of this version.
    fn is_softcuda(&self) -> bool {
        let Some(version) = self.symbol(c"softcuda_version") else {
            return false;
        };
        // SAFETY: no other library has a function of this name; it takes nothing and gives a C
        // string that lives forever.
        let version = unsafe {
            let version: extern "C" fn() -> *const std::ffi::c_char =
                std::mem::transmute(version.as_ptr());
            CStr::from_ptr(version())
        };
        version.to_bytes() == env!("CARGO_PKG_VERSION").as_bytes()
    }

    /// Its file, as far as the loader knows.
    fn path(&self) -> PathBuf {
        let unknown = || PathBuf::from(OsStr::from_bytes(DRIVER.to_bytes()));
        let Some(symbol) = self.symbol(c"cuInit") else {
            return unknown();
        };
        // SAFETY: zeros are a value of this structure of pointers.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is ours, and any address may be asked for.
        if unsafe { libc::dladdr(symbol.as_ptr(), &mut info) } == 0 || info.dli_fname.is_null() {
            return unknown();
        }
        // SAFETY: dladdr gave the name of a loaded library's file, which is a C string as long as
        // it is loaded.
        let name = unsafe { CStr::from_ptr(info.dli_fname) };
        PathBuf::from(OsStr::from_bytes(name.to_bytes()))
    }
}

/// What the loader said of its last failure on this thread.
fn loader_error() -> String {
    // SAFETY: dlerror gives null or a C string that lives until the thread's next call of the
    // loader.
    match NonNull::new(unsafe { libc::dlerror() }) {
        // SAFETY: as above.
        Some(text) => unsafe { CStr::from_ptr(text.as_ptr()) }
            .to_string_lossy()
            .into_owned(),
        None => "no reason given".to_owned(),
    }
}
