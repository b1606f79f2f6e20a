//! `softcuda::install`: each case in a process of its own, since a driver is loaded once.

use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use softcuda::InstallError;

const CASE: &str = "SOFTCUDA_TEST_INSTALL";

/// Runs a case of [`child`]; `library` is `SOFTCUDA_LIBRARY` in it.
fn run(case: &str, library: Option<&Path>) {
    let test = std::env::current_exe().expect("the test knows its own path");
    let mut command = Command::new(test);
    command.args(["install::child", "--exact", "--ignored", "--nocapture"]);
    command.env(CASE, case).env_remove("SOFTCUDA_LIBRARY");
    if let Some(library) = library {
        command.env("SOFTCUDA_LIBRARY", library);
    }
    let output = command.output().expect("the test starts itself");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

fn open(name: impl libloading::AsFilename) -> Library {
    // SAFETY: the libraries of these tests run no code of consequence when they are loaded.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.expect("the library loads")
}

fn is_softcuda(library: &Library) -> bool {
    // SAFETY: the symbol is only looked for.
    unsafe { library.get::<*const ()>(b"softcuda_version") }.is_ok()
}

/// A file of a folder of this test's own.
fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("softcuda-install-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    folder.join(name)
}

#[test]
#[ignore = "the other tests of this file run it, each in a process of its own"]
fn child() {
    let library = std::env::var_os("SOFTCUDA_LIBRARY").map(PathBuf::from);
    match std::env::var(CASE).as_deref() {
        Ok("clients") => {
            softcuda::install().expect("the library was built with this test");
            for name in ["libcuda.so.1", "libcuda.so"] {
                assert!(is_softcuda(&open(name)), "{name}");
            }
            let mut version = 0;
            // SAFETY: the pointer is valid for the call.
            unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) }
                .result()
                .expect("there is a driver");
            assert_eq!(version, 13_000);
            // SAFETY: the library is only looked at.
            let found =
                unsafe { cudarc::driver::sys::culib().get::<*const ()>(b"softcuda_version") };
            assert!(found.is_ok(), "cudarc speaks to another driver");
        }
        Ok("again") => {
            let threads: Vec<_> = (0..8)
                .map(|_| std::thread::spawn(softcuda::install))
                .collect();
            for thread in threads {
                thread.join().expect("no panic").expect("installed");
            }
            softcuda::install().expect("installed");
        }
        Ok("absent") => match softcuda::install() {
            Err(InstallError::NotFound { looked_for }) => {
                assert_eq!(looked_for, [library.expect("set")])
            }
            other => panic!("{other:?}"),
        },
        Ok("garbage") => match softcuda::install() {
            Err(InstallError::NotLoaded { path, reason }) => {
                assert_eq!(Some(path), library);
                assert!(!reason.is_empty());
            }
            other => panic!("{other:?}"),
        },
        Ok("other_library") => match softcuda::install() {
            Err(InstallError::NotSoftcuda { path }) => assert_eq!(Some(path), library),
            other => panic!("{other:?}"),
        },
        Ok("other_driver") => {
            let other = library.expect("set");
            assert!(!is_softcuda(&open(other.as_os_str())));
            match softcuda::install() {
                Err(InstallError::DriverLoaded { path }) => assert_eq!(path, other),
                result => panic!("{result:?}"),
            }
        }
        case => panic!("{case:?}"),
    }
}

#[test]
fn clients_get_the_software_driver() {
    run("clients", None);
}

#[test]
fn once_more_does_no_harm() {
    run("again", None);
}

#[test]
fn a_library_that_is_not_there_is_named() {
    run("absent", Some(Path::new("/nowhere/libsoftcuda.so")));
}

#[test]
fn a_file_that_is_no_library_is_refused() {
    let path = scratch("garbage.so");
    std::fs::write(&path, "not a library").expect("the temporary folder can be written");
    run("garbage", Some(&path));
}

/// Our library with its mark gone: what another driver looks like.
fn other_driver(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its own path");
    let ours = test.with_file_name("libsoftcuda.so");
    let mut bytes = std::fs::read(&ours).expect("the library was built with this test");
    let mark = b"softcuda_version";
    let places: Vec<_> = bytes
        .windows(mark.len())
        .enumerate()
        .filter(|(_, window)| window == mark)
        .collect();
    let places: Vec<_> = places.into_iter().map(|(place, _)| place).collect();
    assert!(!places.is_empty());
    for place in places {
        bytes[place] = b'S';
    }
    let path = scratch(name);
    std::fs::write(&path, bytes).expect("the temporary folder can be written");
    path
}

#[test]
fn another_library_is_refused() {
    run("other_library", Some(&other_driver("other.so")));
}

#[test]
fn a_driver_that_is_loaded_already_is_named() {
    run("other_driver", Some(&other_driver("loaded.so")));
}
