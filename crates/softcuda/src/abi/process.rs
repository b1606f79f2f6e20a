//! The library as a whole: initialization, versions, error texts, and the search for functions.

use std::ffi::{c_char, c_void};

use super::symbols::{SYMBOLS, Symbol};
use super::types::Unused;
use super::{In, Out, export};
use crate::driver::{CUresult, Result, init};

/// `cuDriverGetVersion`: CUDA 13.0.
const VERSION: i32 = 13_000;

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`.
const LEGACY_STREAM: u64 = 1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD_STREAM: u64 = 2;

/// `CUdriverProcAddressQueryResult`: how a search ended.
const FOUND: u32 = 0;
const SYMBOL_NOT_FOUND: u32 = 1;
const VERSION_NOT_SUFFICIENT: u32 = 2;

/// A name without the suffixes of versions and streams; whether it is of the thread's own stream.
fn base_name(name: &str) -> (&str, bool) {
    let (name, per_thread) = match name
        .strip_suffix("_ptsz")
        .or_else(|| name.strip_suffix("_ptds"))
    {
        Some(name) => (name, true),
        None => (name, false),
    };
    let base = match name.rsplit_once("_v") {
        Some((base, number))
            if !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) =>
        {
            base
        }
        _ => name,
    };
    (base, per_thread)
}

/// The newest function of a name that `version` had: `Err` says why there is none.
fn search(name: &str, version: i32, per_thread: bool) -> std::result::Result<&'static Symbol, u32> {
    let all = || {
        SYMBOLS
            .iter()
            .filter(|symbol| base_name(symbol.name).0 == name)
    };
    let newest = |own: bool| {
        all()
            .filter(|symbol| {
                base_name(symbol.name).1 == own && i64::from(symbol.since) <= i64::from(version)
            })
            .max_by_key(|symbol| symbol.since)
    };
    let own = if per_thread { newest(true) } else { None };
    own.or_else(|| newest(false)).ok_or(match all().next() {
        Some(_) => VERSION_NOT_SUFFICIENT,
        None => SYMBOL_NOT_FOUND,
    })
}

/// The address of the function; `Err` in it says why there is none. A negative version is the
/// newest.
fn find(
    name: In<c_char>,
    version: i32,
    flags: u64,
) -> Result<std::result::Result<*mut c_void, u32>> {
    let name = name.text()?;
    let both = LEGACY_STREAM | PER_THREAD_STREAM;
    if flags & !both != 0 || flags == both || version > VERSION {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let version = if version < 0 { VERSION } else { version };
    let found = search(&name.to_string_lossy(), version, flags == PER_THREAD_STREAM);
    Ok(found.map(|symbol| (symbol.address)() as *mut c_void))
}

export! {
    /// Makes the library ready.
    early fn cuInit(flags: u32) { init::init(flags) }

    /// The CUDA version that the library speaks.
    early fn cuDriverGetVersion(version: Out<i32>) { version.set(VERSION) }

    /// The name of a code.
    early fn cuGetErrorName(error: CUresult, name: Out<*const c_char>) {
        name.some()?;
        name.set(error.name().map_or(std::ptr::null(), |name| name.as_ptr()))?;
        error.name().map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// The text of a code.
    early fn cuGetErrorString(error: CUresult, text: Out<*const c_char>) {
        text.some()?;
        text.set(error.text().map_or(std::ptr::null(), |text| text.as_ptr()))?;
        error.text().map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// A function by name and CUDA version.
    early fn cuGetProcAddress(name: In<c_char>, function: Out<*mut c_void>, version: i32, flags: u64) {
        function.some()?;
        match find(name, version, flags)? {
            Ok(address) => function.set(address),
            Err(_) => Err(CUresult::CUDA_ERROR_NOT_FOUND),
        }
    }

    /// A function by name and CUDA version; where there is none, the status says why, and the
    /// answer is no error.
    early fn cuGetProcAddress_v2(name: In<c_char>, function: Out<*mut c_void>, version: i32, flags: u64, status: Out<u32>) {
        function.some()?;
        let (address, how) = match find(name, version, flags)? {
            Ok(address) => (address, FOUND),
            Err(why) => (std::ptr::null_mut(), why),
        };
        status.set_if_wanted(how);
        function.set(address)
    }

    /// Functions that only NVIDIA's own libraries know: none.
    early fn cuGetExportTable(table: Out<*const c_void>, id: In<Unused>) {
        table.some()?;
        id.some()?;
        table.set(std::ptr::null())?;
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(base: &str, version: i32, per_thread: bool) -> std::result::Result<&'static str, u32> {
        search(base, version, per_thread).map(|symbol| symbol.name)
    }

    #[test]
    fn the_newest_function_of_a_version_is_found() {
        assert_eq!(name("cuMemAlloc", 13_000, false), Ok("cuMemAlloc_v2"));
        assert_eq!(name("cuMemAlloc", 3010, false), Ok("cuMemAlloc"));
        assert_eq!(name("cuCtxCreate", 13_000, false), Ok("cuCtxCreate_v4"));
        assert_eq!(name("cuCtxCreate", 12_040, true), Ok("cuCtxCreate_v3"));
        assert_eq!(name("cuCtxCreate", 11_030, false), Ok("cuCtxCreate_v2"));
        assert_eq!(
            name("cuMemcpyHtoDAsync", 12_000, true),
            Ok("cuMemcpyHtoDAsync_v2_ptsz")
        );
        assert_eq!(
            name("cuMemcpyHtoDAsync", 12_000, false),
            Ok("cuMemcpyHtoDAsync_v2")
        );
        assert_eq!(
            name("cuMemcpyHtoDAsync", 6000, true),
            Ok("cuMemcpyHtoDAsync_v2")
        );
        assert_eq!(
            name("cuGetProcAddress", 13_000, true),
            Ok("cuGetProcAddress_v2")
        );
    }

    #[test]
    fn what_is_not_found_says_why() {
        assert_eq!(name("cuMemAlloc", 1000, false), Err(VERSION_NOT_SUFFICIENT));
        assert_eq!(
            name("cuCtxGetDevice", 13_000, false),
            Ok("cuCtxGetDevice_v2")
        );
        for wrong in [
            "",
            "cuNothing",
            "cuMemAlloc_v2",
            "cumemalloc",
            "cuMemcpyHtoDAsync_v2_ptsz",
            "cuDevSmResourceSplit",
            "cuEventCreateFromEGLSync",
        ] {
            assert_eq!(name(wrong, 13_000, false), Err(SYMBOL_NOT_FOUND), "{wrong}");
        }
    }

    #[test]
    fn the_table_is_sorted_and_every_entry_has_an_address_of_its_own() {
        assert!(SYMBOLS.is_sorted_by(|a, b| a.name < b.name));
        let addresses: std::collections::HashSet<_> =
            SYMBOLS.iter().map(|symbol| (symbol.address)()).collect();
        assert!(!addresses.contains(&0));
        assert!(
            addresses.len() > SYMBOLS.len() / 2,
            "functions with the same code may share an address"
        );
    }
}
