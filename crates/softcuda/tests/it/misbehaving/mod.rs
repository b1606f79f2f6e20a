//! Kernels that do what they must not: each ends in its error, and the process lives.
//!
//! A failure is the process's, so every case runs in a process of its own, with a time limit: one
//! that crashes or hangs fails its case and no other. These are promises of the software driver
//! alone; a GPU would take some of them for ever.

#![allow(
    unsafe_op_in_unsafe_fn,
    clippy::undocumented_unsafe_blocks,
    reason = "raw driver calls whose arguments are right; what is wrong is what kernels do with them"
)]

mod addresses;
mod calls;
mod functions;
mod waits;

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::conformance::api::*;
use crate::conformance::fixture::*;
use crate::driver::{Driver, driver};

const CASE: &str = "SOFTCUDA_MISBEHAVING_CASE";
/// How long a case may take, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

const SUCCESS: u32 = 0;
const INVALID_VALUE: u32 = 1;
const ILLEGAL_ADDRESS: u32 = 700;
const ASSERT: u32 = 710;
const MISALIGNED_ADDRESS: u32 = 716;
const INVALID_PC: u32 = 718;
const LAUNCH_FAILED: u32 = 719;

/// A launch, and what it must end in.
struct Case {
    name: String,
    /// What waiting for it answers; what the launch itself does, where that refuses it.
    answer: u32,
    attack: Attack,
}

/// A launch of the kernel `k` of a module.
struct Attack {
    ptx: String,
    grid: u32,
    block: u32,
    shared: u32,
    cooperative: bool,
    /// The kernel's three parameters, made in the process of the case.
    arguments: fn() -> [u64; 3],
    /// What the case does after its context is made and before it launches.
    before: fn(),
    /// The first word at the first argument afterwards, where the launch succeeds.
    result: Option<u32>,
}

/// A case of one block of one thread, whose parameters are a buffer of 4096 bytes of zeros and two
/// zeros.
fn case(name: impl Into<String>, answer: u32, ptx: String) -> Case {
    Case {
        name: name.into(),
        answer,
        attack: Attack {
            ptx,
            grid: 1,
            block: 1,
            shared: 0,
            cooperative: false,
            arguments: || [buffer(), 0, 0],
            before: || {},
            result: None,
        },
    }
}

impl Case {
    fn grid(mut self, blocks: u32, threads: u32) -> Case {
        (self.attack.grid, self.attack.block) = (blocks, threads);
        self
    }

    fn shared(mut self, bytes: u32) -> Case {
        self.attack.shared = bytes;
        self
    }

    fn cooperative(mut self) -> Case {
        self.attack.cooperative = true;
        self
    }

    fn arguments(mut self, arguments: fn() -> [u64; 3]) -> Case {
        self.attack.arguments = arguments;
        self
    }

    fn before(mut self, before: fn()) -> Case {
        self.attack.before = before;
        self
    }

    fn result(mut self, word: u32) -> Case {
        self.attack.result = Some(word);
        self
    }
}

/// 4096 bytes of zeros on the device.
fn buffer() -> u64 {
    unsafe {
        let pointer = memory(4096);
        cuMemsetD8_v2(pointer, 0, 4096).must();
        pointer
    }
}

/// A module whose kernel `k(a, b, c)` does this with its parameters, which are in `%a`, `%b` and
/// `%c`; `%t` is `%tid.x`.
fn kernel(outside: &str, body: &str) -> String {
    format!(
        ".version 8.8
.target sm_90
.address_size 64
{outside}
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc)
{{
    .reg .pred %p<8>;
    .reg .b16 %h<8>;
    .reg .b32 %r<16>, %t;
    .reg .b64 %rd<16>, %a, %b, %c;
    .reg .b128 %q<4>;
    .reg .f32 %f<8>;
    ld.param.u64 %a, [pa];
    ld.param.u64 %b, [pb];
    ld.param.u64 %c, [pc];
    mov.u32 %t, %tid.x;
    {body}
    ret;
}}
.visible .entry healthy(.param .u64 to)
{{
    .reg .b64 %rd;
    .reg .b32 %r;
    ld.param.u64 %rd, [to];
    mov.u32 %r, %ntid.x;
    st.global.u32 [%rd], %r;
    ret;
}}
"
    )
}

/// The same, as a kernel whose threads are fibers: they meet at a barrier first.
fn waiting_kernel(outside: &str, body: &str) -> String {
    kernel(outside, &format!("bar.sync 0;\n{body}"))
}

fn cases() -> Vec<Case> {
    let mut cases = addresses::cases();
    cases.extend(calls::cases());
    cases.extend(functions::cases());
    cases.extend(waits::cases());
    cases
}

/// Runs a case: what waiting answers, after looking that all that follows fits it.
unsafe fn perform(case: &Case) {
    context();
    let attack = &case.attack;
    (attack.before)();
    let module = module_of(&attack.ptx);
    let (attacker, healthy) = (function_of(module, c"k"), function_of(module, c"healthy"));
    let answer = buffer();
    let mut arguments = (attack.arguments)();
    let mut values = arguments.each_mut().map(void);
    let launched = match attack.cooperative {
        true => cuLaunchCooperativeKernel(
            attacker,
            attack.grid,
            1,
            1,
            attack.block,
            1,
            1,
            attack.shared,
            0,
            values.as_mut_ptr(),
        ),
        false => cuLaunchKernel(
            attacker,
            attack.grid,
            1,
            1,
            attack.block,
            1,
            1,
            attack.shared,
            0,
            values.as_mut_ptr(),
            std::ptr::null_mut(),
        ),
    };
    if launched.code != 0 {
        assert_eq!(launched.code, case.answer, "the launch");
    } else {
        assert_eq!(cuCtxSynchronize().code, case.answer, "the wait");
    }
    // A failure stays; where there was none, all goes on.
    let sticky = if launched.code == 0 { case.answer } else { 0 };
    for round in 1..50 {
        let mut to = answer;
        let again = launch(healthy, 3, round, 0, &mut [void(&mut to)]);
        assert_eq!(again.code, sticky, "a launch after it");
        assert_eq!(cuCtxSynchronize().code, sticky, "a wait after it");
        if sticky == 0 {
            assert_eq!(word(answer), round, "what a kernel after it gives");
        }
    }
    if let (0, Some(result)) = (sticky, attack.result) {
        assert_eq!(word(arguments[0]), result, "what it gives");
    }
}

#[test]
#[ignore = "`each_ends_in_its_error` runs it, each case in a process of its own"]
fn child() {
    let name = std::env::var(CASE).expect("the parent names a case");
    let all = cases();
    let case = all
        .iter()
        .find(|case| case.name == name)
        .expect("parent and child are the same program");
    unsafe { perform(case) };
}

/// Runs a case in a process of its own; what is wrong with how it ended.
fn run(case: &Case) -> Result<(), String> {
    let test = std::env::current_exe().expect("the test knows its own path");
    let mut child = Command::new(test)
        .args(["misbehaving::child", "--exact", "--ignored", "--nocapture"])
        .env(CASE, &case.name)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test starts itself");
    // Kernels print: both pipes are emptied all the time, so that no child waits for its parent.
    let drains = [
        drain(child.stdout.take().expect("the child's output is piped")),
        drain(child.stderr.take().expect("the child's errors are piped")),
    ];
    let start = Instant::now();
    let status = loop {
        match child.try_wait().expect("the child is ours") {
            Some(status) => break Some(status),
            None if start.elapsed() > PATIENCE => {
                child.kill().expect("the child is ours");
                child.wait().expect("the child is ours");
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let text: Vec<String> = drains
        .into_iter()
        .map(|drain| drain.join().expect("reading ends with the child"))
        .collect();
    match status {
        Some(status) if status.success() && text[0].contains("1 passed") => Ok(()),
        Some(status) => Err(format!("{status}: {}", text.join("\n"))),
        None => Err(format!("no end after {PATIENCE:?}: {}", text.join("\n"))),
    }
}

/// The last of what a child writes.
fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut chunk) {
            kept.extend_from_slice(&chunk[..count]);
            if kept.len() > 1 << 16 {
                kept.drain(..1 << 15);
            }
        }
        String::from_utf8_lossy(&kept).into_owned()
    })
}

#[test]
fn each_ends_in_its_error() {
    if driver() != Driver::Software {
        println!("promises of the software driver alone");
        return;
    }
    let wanted = std::env::var("SOFTCUDA_CASES").unwrap_or_default();
    let all: Vec<Case> = cases()
        .into_iter()
        .filter(|case| case.name.contains(&wanted))
        .collect();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |count| count.get().min(8)) {
            scope.spawn(|| {
                while let Some(case) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(what) = run(case) {
                        failures
                            .lock()
                            .expect("no thread panics with it")
                            .push(format!("{}: {what}", case.name));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no thread panics with it");
    assert!(
        failures.is_empty(),
        "{} of {} cases:\n{}",
        failures.len(),
        all.len(),
        failures.join("\n\n")
    );
}

#[test]
fn names_are_distinct() {
    let mut names: Vec<String> = cases().into_iter().map(|case| case.name).collect();
    names.sort();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before);
}
