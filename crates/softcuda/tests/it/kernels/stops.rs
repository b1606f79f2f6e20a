//! `printf_assert.cu`: what kernels print, and how a failed assertion or a trap ends a context.
//!
//! Each case runs in a process of its own, which is this test again with `SOFTCUDA_KERNELS_CHILD`
//! set: output goes to the process's own descriptors, and a context that has failed stays so.

use std::ffi::c_int;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::process::Command;

use cudarc::driver::{DriverError, result};

use super::case::{Case, Ptx, args};
use super::device::{Allocation, context, module, start};
use super::record::{Keep, Recorded, from_hex, record, to_hex};

const PTX: Ptx = super::ptx!("printf_assert");
const CHILD: &str = "SOFTCUDA_KERNELS_CHILD";

/// What a child saw: the launch's result, a later call's result, standard output and standard
/// error.
struct Seen {
    status: i32,
    later: i32,
    output: String,
    errors: String,
}

/// Runs the case in a child process; in the child itself gives nothing.
fn seen(test: &str, case: impl FnOnce() -> Case) -> Option<Seen> {
    if std::env::var_os(CHILD).is_some() {
        report(case());
        return None;
    }
    let path = format!("kernels::stops::{test}");
    let child = Command::new(std::env::current_exe().expect("the test knows its own path"))
        .args(["--exact", &path, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("the child runs");
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    let said = |what: &str| {
        let line = text.lines().find_map(|line| {
            line.strip_prefix("seen ")?
                .strip_prefix(what)?
                .strip_prefix(' ')
        });
        let errors = String::from_utf8_lossy(&child.stderr);
        line.unwrap_or_else(|| panic!("the child says no {what}: {text}\n{errors}"))
            .to_string()
    };
    let number = |what: &str| said(what).parse().expect("a number");
    let bytes = |what: &str| String::from_utf8_lossy(&from_hex(&said(what))).into_owned();
    Some(Seen {
        status: number("status"),
        later: number("later"),
        output: bytes("output"),
        errors: bytes("errors"),
    })
}

/// In the child: runs the case's launch with both descriptors caught, and says what came.
fn report(case: Case) {
    let _context = context();
    let module = module(case.ptx);
    let buffers: Vec<_> = case
        .buffers
        .iter()
        .map(|buffer| Allocation::from(&buffer.initial))
        .collect();
    let (output, errors) = (Caught::begin(1), Caught::begin(2));
    let status =
        start(module, &case.launches[0], &buffers).and_then(|()| result::ctx::synchronize());
    // SAFETY: an allocation that is freed again.
    let later = unsafe { result::malloc_sync(16).and_then(|pointer| result::free_sync(pointer)) };
    let (output, errors) = (output.end(), errors.end());
    let code = |result: Result<(), DriverError>| result.map_or_else(|error| error.0 as i32, |()| 0);
    println!("\nseen status {}\nseen later {}", code(status), code(later));
    println!(
        "seen output {}\nseen errors {}",
        to_hex(&output),
        to_hex(&errors)
    );
}

/// A descriptor of this process that goes to a file for a while.
struct Caught {
    descriptor: c_int,
    before: c_int,
    file: File,
}

impl Caught {
    fn begin(descriptor: c_int) -> Self {
        let path = std::env::temp_dir().join(format!(
            "softcuda-kernels-{}-{descriptor}",
            std::process::id()
        ));
        let open = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path);
        let file = open.expect("a file for what is printed");
        let _ = std::fs::remove_file(&path);
        // SAFETY: flushing all of C's streams and duplicating open descriptors; both are ours.
        let before = unsafe {
            libc::fflush(std::ptr::null_mut());
            let before = libc::dup(descriptor);
            assert!(
                before >= 0 && libc::dup2(file.as_raw_fd(), descriptor) >= 0,
                "the descriptor is redirected"
            );
            before
        };
        Caught {
            descriptor,
            before,
            file,
        }
    }

    fn end(mut self) -> Vec<u8> {
        // SAFETY: as in `begin`; `before` is a duplicate that only this holds.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            assert!(
                libc::dup2(self.before, self.descriptor) >= 0,
                "the descriptor is restored"
            );
            libc::close(self.before);
        }
        let mut bytes = Vec::new();
        self.file.rewind().expect("the file can be read again");
        self.file.read_to_end(&mut bytes).expect("what was printed");
        bytes
    }
}

/// Compares a text with the record.
fn compare(name: &str, text: &str) {
    match record(name, Keep::Whole, text.as_bytes()) {
        Recorded::Now => {}
        Recorded::Nothing => println!("{name}: no record of an H200 to compare with"),
        Recorded::Missing => panic!("{name} is not in the H200's record"),
        Recorded::Whole(want) => assert_eq!(
            text,
            String::from_utf8_lossy(&want),
            "{name}, against the H200"
        ),
        Recorded::Digest(_) => unreachable!("texts are kept whole"),
    }
}

fn sorted_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    lines.join("\n")
}

#[test]
fn print_formats() {
    let Some(seen) = seen("print_formats", || {
        let mut case = Case::new("print_formats", PTX);
        case.launch(
            "print_formats",
            1,
            1,
            args![42i32, -12_345_678_901i64, std::f64::consts::E, 0u64],
        );
        case
    }) else {
        return;
    };
    assert_eq!((seen.status, seen.later), (0, 0));
    let lines: Vec<&str> = seen.output.lines().collect();
    assert_eq!(lines[0], "plain");
    assert_eq!(lines[1], "returned 0");
    assert_eq!(
        lines[2],
        "ints 42    42|42   |00042 +42 -42 42 2a 2A 0x2a 52"
    );
    assert_eq!(
        lines[3],
        "long -12345678901 18446744061363872715 fffffffd2023e3cb -12345678901"
    );
    assert_eq!(
        lines[4],
        "float 2.718282 2.718       2.72|2.7       |2.718282e+00 2.72E+00 2.71828 2.71828E+10"
    );
    assert_eq!(lines[5], "char aZ string text      right|left  |cu");
    compare("print_formats", &seen.output);
}

#[test]
fn print_threads() {
    let Some(seen) = seen("print_threads", || {
        let mut case = Case::new("print_threads", PTX);
        case.launch("print_threads", 3, 40, args![]);
        case
    }) else {
        return;
    };
    assert_eq!((seen.status, seen.later), (0, 0));
    let expected: String = (0..3)
        .flat_map(|b| (0..40).map(move |t| format!("block {b} thread {t}\n")))
        .collect();
    assert_eq!(sorted_lines(&seen.output), sorted_lines(&expected));
}

#[test]
fn assert_holds() {
    let Some(seen) = seen("assert_holds", || {
        let mut case = Case::new("assert_below", PTX);
        let input = case.input(&[1i32; 32]);
        case.launch("assert_below", 1, 32, args![input, 50i32]);
        case
    }) else {
        return;
    };
    assert_eq!((seen.status, seen.later, seen.errors.as_str()), (0, 0, ""));
}

/// CUDA_ERROR_ASSERT, now and for every call after; the message names file, line, function, block
/// and thread.
#[test]
fn assert_fails() {
    let Some(seen) = seen("assert_fails", || {
        let mut case = Case::new("assert_below", PTX);
        let input = case.input(&(0..32).collect::<Vec<i32>>());
        case.launch("assert_below", 1, 32, args![input, 31i32]);
        case
    }) else {
        return;
    };
    assert_eq!((seen.status, seen.later), (710, 710));
    assert!(seen.errors.contains("thread: [31,0,0]"), "{}", seen.errors);
    assert!(
        seen.errors.contains("value within bound"),
        "{}",
        seen.errors
    );
    compare("assert_fails", &seen.errors);
}

#[test]
fn trap_stops() {
    let Some(seen) = seen("trap_stops", || {
        let mut case = Case::new("trap_if", PTX);
        case.launch("trap_if", 1, 1, args![1i32]);
        case
    }) else {
        return;
    };
    assert_ne!(seen.status, 0);
    compare("trap_stops", &format!("{} {}", seen.status, seen.later));
}
