//! Runs cases in child processes, so that one that crashes, hangs or breaks its context is an
//! answer like any other.
//!
//! Cases of one topic share a child until one of them does not come back; those it took down with
//! it run again, each in a child of its own. Children run one after another: a case may ask for
//! what its neighbours on a device would change.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::CHILD;
use super::api::{cuDeviceGetCount, cuInit};
use super::case::{Case, END, ITEM, Line, case};
use super::cases;
use super::fixture;
use crate::driver::{Driver, driver};

/// How long a child may be silent before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(30);

/// The line of each case, by name.
pub type Lines = BTreeMap<String, String>;

/// Runs the cases and collects their lines.
pub fn run(cases: &[&Case]) -> Lines {
    let mut lines = Lines::new();
    let mut groups: BTreeMap<(&str, usize), Vec<&Case>> = BTreeMap::new();
    let mut single: Vec<&Case> = Vec::new();
    for case in cases {
        if case.alone {
            single.push(case);
        } else {
            let group = (topic(case), case.devices);
            groups.entry(group).or_default().push(case);
        }
    }
    for group in groups.values() {
        let answers = run_child(group);
        for case in group {
            match answers.ended.get(case.name) {
                Some(line) => drop(lines.insert(case.name.to_string(), line.clone())),
                None => single.push(case),
            }
        }
    }
    for case in single {
        let answers = run_child(&[case]);
        let line = answers.ended.get(case.name).cloned().unwrap_or_else(|| {
            let mut items = answers.begun.get(case.name).cloned().unwrap_or_default();
            items.push(answers.fate);
            items.join("; ")
        });
        lines.insert(case.name.to_string(), line);
    }
    lines
}

/// How many devices a case may need on this machine, one at least: the software driver has as many
/// as it takes.
pub fn device_count() -> usize {
    if driver() == Driver::Software {
        return usize::MAX;
    }
    // In a child: the test itself never starts the driver.
    let lines = run(&[&COUNT]);
    let number = lines[COUNT.name].strip_prefix("devices=");
    number
        .and_then(|text| text.parse().ok())
        .map_or(1, |count: usize| count.max(1))
}

const COUNT: Case = case!("itself/devices", |line| {
    let mut count = 0;
    cuInit(0).must();
    line.gives("devices", cuDeviceGetCount(&mut count), count);
});

fn topic(case: &Case) -> &'static str {
    case.name
        .split('/')
        .next()
        .expect("a split has a first part")
}

/// What a child answered before it was gone.
struct Answers {
    /// The lines of the cases that came to their end.
    ended: Lines,
    /// The items of those that did not.
    begun: BTreeMap<String, Vec<String>>,
    /// How the child ended.
    fate: String,
}

fn run_child(cases: &[&Case]) -> Answers {
    let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
    let mut child = Command::new(std::env::current_exe().expect("the test knows its own path"))
        .args([
            "conformance::answers",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, names.join(","))
        .env("RUST_BACKTRACE", "0")
        // The same for all: cases that need different numbers share no child.
        .env("SOFTCUDA_DEVICES", cases[0].devices.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the test can run itself");
    let messages = read_lines(&mut child);
    let mut answers = Answers {
        ended: Lines::new(),
        begun: BTreeMap::new(),
        fate: String::new(),
    };
    loop {
        match messages.recv_timeout(PATIENCE) {
            Ok(message) => take(&message, &mut answers),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill().expect("the child is ours");
                answers.fate = "timeout".to_string();
                break;
            }
        }
    }
    let status = child.wait().expect("the child is ours");
    if answers.fate.is_empty() {
        answers.fate = match status.signal() {
            Some(signal) => format!("crash signal {signal}"),
            None => format!("exit code {}", status.code().unwrap_or_default()),
        };
    }
    answers
}

fn read_lines(child: &mut Child) -> Receiver<String> {
    let out = BufReader::new(child.stdout.take().expect("the child's output is piped"));
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        // Bytes, not text: a kernel may print anything.
        for line in out.split(b'\n') {
            let Ok(line) = line else { return };
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    receiver
}

fn take(message: &str, answers: &mut Answers) {
    if let Some((name, item)) = message
        .strip_prefix(ITEM)
        .and_then(|rest| rest.split_once('\t'))
    {
        answers
            .begun
            .entry(name.to_string())
            .or_default()
            .push(item.to_string());
    } else if let Some((name, _)) = message
        .strip_prefix(END)
        .and_then(|rest| rest.split_once('\t'))
    {
        let items = answers.begun.remove(name).unwrap_or_default();
        answers.ended.insert(name.to_string(), items.join("; "));
    }
}

/// The child's side: asks the named cases, one after another, and ends the process.
pub fn run_as_child(names: &str) -> ! {
    let itself = MISBEHAVING.iter().chain([&COUNT]);
    let all: Vec<&Case> = cases::all().into_iter().chain(itself).collect();
    for name in names.split(',') {
        let case = all
            .iter()
            .find(|case| case.name == name)
            .expect("parent and child are the same program");
        let (name, ask) = (case.name, case.ask);
        let asked = std::thread::spawn(move || {
            // SAFETY: the case runs in a child process, on a thread with no context, as cases are
            // written for.
            unsafe { ask(&mut Line::new(name)) };
        });
        let mut line = Line::new(name);
        if let Err(panic) = asked.join() {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            line.value("stopped", text.unwrap_or_default());
        }
        line.end();
        // SAFETY: as for the case; the rest run in other processes when this one is no longer fit.
        if names.contains(',') && !unsafe { fixture::context_is_healthy() } {
            break;
        }
    }
    // Not `exit`: the driver's own cleanup would wait for work that a case left blocked on purpose.
    // SAFETY: ends the process and nothing else.
    unsafe { libc::_exit(0) }
}

/// Cases that make no driver call, to see what becomes of children that go wrong.
const MISBEHAVING: &[Case] = &[
    case!("itself/fine", |line| {
        line.value("here", 1);
    }),
    case!("itself/aborts", |line| {
        line.value("before", 1);
        std::process::abort();
    }),
    case!("itself/exits", |line| {
        line.value("before", "two words; and more");
        std::process::exit(3);
    }),
    case!("itself/panics", |line| {
        line.value("before", 1);
        panic!("because");
    }),
];

#[test]
fn a_child_that_dies_is_an_answer() {
    let cases: Vec<&Case> = MISBEHAVING.iter().collect();
    let lines = run(&cases);
    let got: Vec<(&str, &str)> = lines
        .iter()
        .map(|(name, line)| (name.as_str(), line.as_str()))
        .collect();
    let expected = [
        ("itself/aborts", "before=1; crash signal 6"),
        ("itself/exits", "before=two words; and more; exit code 3"),
        ("itself/fine", "here=1"),
        ("itself/panics", "before=1; stopped=because"),
    ];
    assert_eq!(got, expected);
}
