//! Compiled kernels that are kept on disk: each case in processes of its own, whose environment
//! says where.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use tempfile::TempDir;

use crate::driver::{Driver, driver};

/// Tests of kernels with everything that code refers to: barriers and warp operations, functions
/// called by their address, variables, `printf`, assertions and traps that name their thread.
const KERNELS: &[&str] = &[
    "kernels::control",
    "kernels::reductions",
    "kernels::stops",
    "kernels::warps",
];

/// A folder that nobody else may use.
fn private() -> TempDir {
    let mut builder = tempfile::Builder::new();
    let builder = builder.permissions(Permissions::from_mode(0o700));
    builder
        .tempdir()
        .expect("there is room for temporary files")
}

/// These tests, to be run in a process with nothing said about its cache.
fn tests(names: &[&str]) -> Command {
    let test = std::env::current_exe().expect("the test knows its own path");
    let mut command = Command::new(test);
    command.args(names).arg("--test-threads=2");
    for name in ["SOFTCUDA_CACHE", "SOFTCUDA_CACHE_SIZE", "SOFTCUDA_DUMP"] {
        command.env_remove(name);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(command: &mut Command) -> Child {
    command.spawn().expect("the test starts itself")
}

/// Waits for tests, which must pass.
fn pass(child: Child) {
    let output = child.wait_with_output().expect("the child is ours");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains(" 0 passed"), "{text}");
}

/// The files of a cache by name: which file it is, when it was used, and its size.
fn files(folder: &Path) -> BTreeMap<String, (u64, SystemTime, u64)> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    entries
        .map(|entry| {
            let entry = entry.expect("the folder can be read");
            let found = entry.metadata().expect("nobody removes files");
            assert_eq!(found.mode() & 0o777, 0o600, "{:?}", entry.path());
            let used = found.modified().expect("files have times");
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, (found.ino(), used, found.len()))
        })
        .collect()
}

/// A GPU's driver has a cache of its own.
fn is_ours() -> bool {
    driver() == Driver::Software
}

#[test]
fn what_one_process_compiles_the_next_runs() {
    if !is_ours() {
        return;
    }
    let folder = private();
    let run = || pass(start(tests(KERNELS).env("SOFTCUDA_CACHE", folder.path())));
    run();
    let first = files(folder.path());
    assert!(first.len() > 20, "{first:?}");
    run();
    let second = files(folder.path());
    assert_eq!(first.len(), second.len());
    for (name, (file, used, _)) in &first {
        let (again, later, _) = &second[name];
        assert_eq!(file, again, "{name} was compiled once more");
        assert!(later > used, "{name} was not used");
    }
}

/// Every process has its memory and its libraries elsewhere, so code with an address in it would
/// not be the same.
#[test]
fn what_two_processes_compile_is_the_same() {
    if !is_ours() {
        return;
    }
    let folders = [private(), private()];
    for folder in &folders {
        pass(start(tests(KERNELS).env("SOFTCUDA_CACHE", folder.path())));
    }
    let [first, second] = folders.each_ref().map(|folder| files(folder.path()));
    assert!(first.keys().eq(second.keys()));
    for name in first.keys() {
        let [first, second] = folders
            .each_ref()
            .map(|folder| fs::read(folder.path().join(name)).expect("the file is ours"));
        assert!(first == second, "{name} differs");
    }
}

#[test]
fn processes_share_a_folder() {
    if !is_ours() {
        return;
    }
    let folder = private();
    let children: Vec<Child> = (0..3)
        .map(|_| {
            let mut command = tests(&["kernels::control"]);
            // So little that they remove each other's files all the time.
            command.env("SOFTCUDA_CACHE", folder.path());
            command.env("SOFTCUDA_CACHE_SIZE", "64K");
            start(&mut command)
        })
        .collect();
    children.into_iter().for_each(pass);
    let total: u64 = files(folder.path()).values().map(|(_, _, size)| size).sum();
    assert!(total <= 3 * (64 << 10), "{total} bytes");
}

#[test]
fn it_is_where_the_environment_says_and_nowhere_when_that_says_off() {
    if !is_ours() {
        return;
    }
    let home = private();
    let run = |name: &str, value: &str| {
        let mut command = tests(&["kernels::control"]);
        command.env("XDG_CACHE_HOME", home.path());
        pass(start(command.env(name, value)));
    };
    run("SOFTCUDA_CACHE", "off");
    run("SOFTCUDA_CACHE_SIZE", "0");
    let dumps = home.path().join("dumps");
    run("SOFTCUDA_DUMP", &dumps.to_string_lossy());
    let folder = home.path().join("softcuda");
    assert!(!folder.exists());
    run("SOFTCUDA_CACHE", "");
    assert!(!files(&folder).is_empty());
    let mode = fs::metadata(&folder).expect("it is there").mode();
    assert_eq!(mode & 0o777, 0o700);

    // One that cannot be used, and one that others may enter.
    run("SOFTCUDA_CACHE", "/proc/softcuda");
    let shared = home.path().join("shared");
    fs::create_dir(&shared).expect("the folder is ours");
    fs::set_permissions(&shared, Permissions::from_mode(0o755)).expect("the folder is ours");
    run("SOFTCUDA_CACHE", &shared.to_string_lossy());
    assert!(files(&shared).is_empty());
}
