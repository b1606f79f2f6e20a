//! NCCL's library: found when it is first asked for, and its functions, checked.
//!
//! The library is looked for by the name that packages install (`libnccl.so.2`), which bindings
//! that look for `libnccl.so` alone do not find.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::CUstream;
use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use crate::{Error, Result};

const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
/// The oldest version that is used, as NCCL writes it: 2.18.
const OLDEST: c_int = 21_800;

/// `ncclComm_t`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Comm(*mut c_void);

// SAFETY: it is a handle; NCCL's functions take it from any thread, and this library calls them one
// after the other.
unsafe impl Send for Comm {}

/// `ncclUniqueId`: what the ranks of a communicator find each other by.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId(pub [u8; 128]);

/// `ncclResult_t` of what goes well, and of what goes on.
const SUCCESS: u32 = 0;
const IN_PROGRESS: u32 = 7;

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)+) => {
        /// NCCL's functions.
        #[allow(non_snake_case, reason = "the functions are NCCL's")]
        pub(super) struct Library {
            $($name: unsafe extern "C" fn($($type),*) -> u32,)+
            ncclGetErrorString: unsafe extern "C" fn(u32) -> *const c_char,
        }

        impl Library {
            fn of(handle: &Handle) -> std::result::Result<Library, libloading::Error> {
                // SAFETY: these are the types of NCCL's functions of these names since 2.18, and the
                // library is never unloaded.
                unsafe {
                    Ok(Library {
                        $($name: *handle.get(concat!(stringify!($name), "\0").as_bytes())?,)+
                        ncclGetErrorString: *handle.get(b"ncclGetErrorString\0")?,
                    })
                }
            }

            $(
                /// The function of this name, its answer checked.
                ///
                /// # Safety
                ///
                /// As NCCL says: communicators and streams live, and memory holds what is said.
                #[allow(
                    non_snake_case,
                    clippy::too_many_arguments,
                    reason = "the functions are NCCL's"
                )]
                pub(super) unsafe fn $name(&self, $($argument: $type),*) -> Result<()> {
                    // SAFETY: by the caller.
                    let answer = unsafe { (self.$name)($($argument),*) };
                    self.check(stringify!($name), answer)
                }
            )+
        }
    };
}

functions! {
    ncclGetVersion(version: &mut c_int);
    ncclGetUniqueId(id: &mut UniqueId);
    ncclCommInitRank(comm: &mut Comm, size: c_int, id: UniqueId, rank: c_int);
    ncclCommDestroy(comm: Comm);
    ncclCommAbort(comm: Comm);
    ncclCommGetAsyncError(comm: Comm, error: &mut u32);
    ncclGroupStart();
    ncclGroupEnd();
    ncclAllReduce(from: u64, to: u64, count: usize, element: u32, by: u32, comm: Comm, stream: CUstream);
    ncclBroadcast(from: u64, to: u64, count: usize, element: u32, root: c_int, comm: Comm, stream: CUstream);
    ncclReduce(from: u64, to: u64, count: usize, element: u32, by: u32, root: c_int, comm: Comm, stream: CUstream);
    ncclAllGather(from: u64, to: u64, count: usize, element: u32, comm: Comm, stream: CUstream);
    ncclReduceScatter(from: u64, to: u64, count: usize, element: u32, by: u32, comm: Comm, stream: CUstream);
    ncclSend(from: u64, count: usize, element: u32, peer: c_int, comm: Comm, stream: CUstream);
    ncclRecv(to: u64, count: usize, element: u32, peer: c_int, comm: Comm, stream: CUstream);
}

impl Comm {
    pub(super) const NONE: Comm = Comm(std::ptr::null_mut());
}

impl Library {
    /// The library, or why there is none.
    pub(super) fn find() -> std::result::Result<&'static Library, &'static str> {
        static FOUND: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            if !cfg!(feature = "nccl") {
                return Err("this library was built without the feature `nccl`".into());
            }
            let open = |name: &&str| {
                // SAFETY: NCCL runs nothing of consequence when it is loaded.
                unsafe { Handle::open(Some(*name), RTLD_NOW | RTLD_LOCAL) }.ok()
            };
            let Some(handle) = NAMES.iter().find_map(open) else {
                let names = NAMES.join(" and ");
                return Err(format!("NCCL was not found: the loader knows no {names}"));
            };
            let library = Library::of(&handle).map_err(|error| format!("NCCL: {error}"))?;
            // Its functions stay where they are.
            std::mem::forget(handle);
            let mut version = 0;
            // SAFETY: it writes a number.
            unsafe { library.ncclGetVersion(&mut version) }.map_err(|error| error.to_string())?;
            match version {
                OLDEST.. => Ok(library),
                _ => Err(format!(
                    "NCCL {version} is too old: {OLDEST} is the oldest that is used"
                )),
            }
        });
        found.as_ref().map_err(String::as_str)
    }

    fn check(&self, call: &'static str, answer: u32) -> Result<()> {
        match answer {
            SUCCESS | IN_PROGRESS => Ok(()),
            _ => Err(Error::Nccl {
                call,
                why: self.words(answer).into(),
            }),
        }
    }

    /// What a result means.
    fn words(&self, answer: u32) -> String {
        // SAFETY: NCCL gives a string of its own for every number.
        let text = unsafe { (self.ncclGetErrorString)(answer) };
        if text.is_null() {
            return format!("result {answer}");
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    /// What failed of what a communicator does by itself, if something did.
    ///
    /// # Safety
    ///
    /// The communicator lives.
    pub(super) unsafe fn failure(&self, comm: Comm) -> Option<String> {
        let mut error = SUCCESS;
        // SAFETY: by the caller.
        match unsafe { self.ncclCommGetAsyncError(comm, &mut error) } {
            Err(error) => Some(error.to_string()),
            Ok(()) if matches!(error, SUCCESS | IN_PROGRESS) => None,
            Ok(()) => Some(self.words(error)),
        }
    }
}
