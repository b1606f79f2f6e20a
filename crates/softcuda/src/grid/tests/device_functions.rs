use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::super::block::Block;
use super::super::context::{BlockContext, CONTINUE, Mode, Status, ThreadContext};
use super::super::device_functions::condition::{Condition, Conditions};
use super::super::device_functions::{device_function, heap};
use super::super::launch::FaultKind;
use super::super::run_in_graph;
use super::{cell, cells, go, launch, run, tid};
use crate::grid::context::DeviceFn;
use crate::memory::{self, Device, Kind};

/// Calls a device function as compiled code does.
fn call(
    name: &str,
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    params: &[u64],
) -> (Status, u64) {
    let function = device_function(name).unwrap();
    // SAFETY: every device function has this signature.
    let function = unsafe { std::mem::transmute::<usize, DeviceFn>((function.address)()) };
    let mut returns = 0u64;
    // SAFETY: the blocks of parameters and results are as large as the function's.
    let status = unsafe {
        function(
            thread,
            block,
            (&raw mut returns).cast(),
            params.as_ptr().cast(),
        )
    };
    (status, returns)
}

/// Puts bytes at an offset of the shared memory, and gives their generic address.
fn put(block: *mut BlockContext, offset: usize, bytes: &[u8]) -> u64 {
    // SAFETY: the launch has 4096 bytes of shared memory, and only one thread.
    unsafe {
        assert!(offset + bytes.len() <= (*block).shared_size as usize);
        let at = (*block).shared_base.add(offset);
        at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        at as u64
    }
}

/// What `printf` prints for these arguments, each 4 or 8 bytes, and what it answers.
fn printed(
    thread: *mut ThreadContext,
    block: *mut BlockContext,
    format: &str,
    arguments: &[&[u8]],
) -> (String, i32) {
    let mut buffer = Vec::new();
    for argument in arguments {
        buffer.resize(buffer.len().next_multiple_of(argument.len()), 0xaa);
        buffer.extend_from_slice(argument);
    }
    let format = put(block, 0, &[format.as_bytes(), b"\0"].concat());
    let buffer = put(block, 1024, &buffer);
    let (status, count) = call("vprintf", thread, block, &[format, buffer]);
    assert_eq!(status, CONTINUE);
    let text = Block::of(block).running().output.take();
    (String::from_utf8(text).unwrap(), count as u32 as i32)
}

/// An argument of `printf`, as the compiler passes it.
trait Argument {
    fn bytes(self) -> Vec<u8>;
}

macro_rules! argument {
    ($($ty:ty),*) => { $(impl Argument for $ty {
        fn bytes(self) -> Vec<u8> {
            self.to_ne_bytes().into()
        }
    })* };
}
argument!(i32, i64, u64, f64);

macro_rules! args {
    ($($value:expr),*) => { &[$(&Argument::bytes($value)),*] };
}

extern "C" fn prints(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let name = put(block, 2048, b"name\0");
    let cases: &[(&str, &[&[u8]], &str, i32)] = &[
        ("plain\n", &[], "plain\n", 0),
        (
            "%d|%i|%5d|%-5d|%05d|%+d",
            args![1, -2, 3, 4, -5, 6],
            "1|-2|    3|4    |-0005|+6",
            6,
        ),
        (
            "%u %x %X %#x %o %#o",
            args![-1i32, 255, 255, 255, 8, 8],
            "4294967295 ff FF 0xff 10 010",
            6,
        ),
        (
            "%lld %llu %lx %zu",
            args![-5i64, u64::MAX, 1u64 << 40, 7u64],
            "-5 18446744073709551615 10000000000 7",
            4,
        ),
        (
            "%hd %hhd %hu %hhu",
            args![65537, 257, -1, -1],
            "1 1 65535 255",
            4,
        ),
        ("%d %f %d", args![1, 2.5f64, 3], "1 2.500000 3", 3),
        (
            "%.3f %10.2e %-12g| %G %a",
            args![1.0f64 / 3.0, 12345.678f64, 1e-10f64, 1e20f64, 1.0f64],
            "0.333   1.23e+04 1e-10       | 1E+20 0x1p+0",
            5,
        ),
        (
            "%f %F %e",
            args![f64::INFINITY, f64::NAN, -0.0f64],
            "inf NAN -0.000000e+00",
            3,
        ),
        (
            "[%s] [%8s] [%-8s] [%.2s]",
            args![name, name, name, name],
            "[name] [    name] [name    ] [na]",
            4,
        ),
        (
            "%s %c%c %p",
            args![0u64, 65, 66, 0x1234u64],
            "(null) AB 0x1234",
            4,
        ),
        (
            "%*d|%-*d|%.*f",
            args![4, 1, 4, 2, 1, 0.55f64],
            "   1|2   |0.6",
            6,
        ),
        ("100%% %", &[], "100% %", 0),
        ("%y %k%d", args![9], "%y %k9", 1),
        ("%99999d", &[], "%99999d", 0),
        ("%5000.1f|%", &[], "%5000.1f|%", 0),
        ("%300d", args![1], &format!("{:300}", 1), 1),
    ];
    for (format, arguments, text, count) in cases {
        assert_eq!(
            printed(thread, block, format, arguments),
            (text.to_string(), *count),
            "{format}"
        );
    }
    assert_eq!(call("vprintf", thread, block, &[0, 0]).1 as i32, -1);
    cell(block, 0).fetch_add(1, Relaxed);
    CONTINUE
}

#[test]
fn printf_prints_as_c_does() {
    for mode in [Mode::Loop, Mode::Fibers] {
        let cells = cells(1);
        let mut launch = launch(prints, 1);
        launch.code.mode = mode;
        run(launch, &cells).unwrap();
        assert_eq!(cells[0].load(Relaxed), 1);
    }
}

extern "C" fn prints_wildly(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let format = match cell(block, 0).load(Relaxed) {
        // Past the end of shared memory.
        0 => put(block, 4000, &[b'x'; 96]),
        1 => 8,
        // An argument that is not there.
        _ => put(block, 0, b"%d\0"),
    };
    call("vprintf", thread, block, &[format, 0]).0
}

#[test]
fn printf_checks_what_it_reads() {
    for case in 0..3 {
        let cells = cells(1);
        cells[0].store(case, Relaxed);
        let fault = run(launch(prints_wildly, 1), &cells).unwrap_err();
        assert_eq!(fault.kind, FaultKind::IllegalAddress);
    }
}

extern "C" fn asserts(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    if tid(thread) != 2 {
        return CONTINUE;
    }
    let message = put(block, 0, b"n > 3\0");
    let file = put(block, 100, b"a.cu\0");
    let function = put(block, 200, b"void k(int)\0");
    call(
        "__assertfail",
        thread,
        block,
        &[message, file, 17, function, 1],
    )
    .0
}

#[test]
fn a_failed_assertion_is_a_fault_that_tells_where() {
    let fault = run(launch(asserts, 4), &cells(1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Assert);
    assert_eq!(fault.thread, Some([2, 0, 0]));
    assert_eq!(fault.detail, "a.cu:17: assertion `n > 3` failed");
}

extern "C" fn allocates(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let (status, null) = call("malloc", thread, block, &[heap::DEFAULT_LIMIT + 1]);
    go!(status);
    assert_eq!((null, call("malloc", thread, block, &[u64::MAX]).1), (0, 0));
    let (status, address) = call("malloc", thread, block, &[100]);
    go!(status);
    assert!(address != 0 && address.is_multiple_of(16));
    assert!(memory::find(address + 99).is_some());
    go!(call("free", thread, block, &[address]).0);
    go!(call("free", thread, block, &[0]).0);
    cell(block, 0).fetch_add(1, Relaxed);
    call("free", thread, block, &[address + 1]).0
}

#[test]
fn the_device_heap() {
    let cells = cells(1);
    let fault = run(launch(allocates, 1), &cells).unwrap_err();
    assert_eq!(
        (cells[0].load(Relaxed), fault.kind),
        (1, FaultKind::LaunchFailure)
    );
    assert_eq!(heap::limit(Device::FIRST), heap::DEFAULT_LIMIT);
}

/// The number of the condition that [`decides`] sets.
static CONDITION: AtomicU64 = AtomicU64::new(0);

extern "C" fn decides(thread: *mut ThreadContext, block: *mut BlockContext) -> Status {
    let condition = CONDITION.load(Relaxed);
    call("cudaGraphSetConditional", thread, block, &[condition, 5]).0
}

#[test]
fn conditions_are_set_in_launches_of_their_graph() {
    let condition = Condition::new(Device::FIRST);
    CONDITION.store(condition.number(), Relaxed);
    let alone = run(launch(decides, 1), &cells(1)).unwrap_err();
    assert_eq!(
        (alone.kind, condition.get()),
        (FaultKind::IllegalAddress, 0)
    );
    let in_graph = |all| run_in_graph(&launch(decides, 1), Some(&Conditions::new(all))).unwrap();
    in_graph(vec![]);
    in_graph(vec![(condition.number() + 1, condition.clone())]);
    assert_eq!(condition.get(), 0);
    // By a number that another condition had when it was made.
    let other = Condition::new(Device::FIRST);
    in_graph(vec![
        (other.number(), condition.clone()),
        (condition.number(), other.clone()),
    ]);
    assert_eq!((condition.get(), other.get()), (0, 5));
    // Of another device.
    let far = Condition::new(Device::of_index(1));
    let all = Conditions::new(vec![(condition.number(), far.clone())]);
    let fault = run_in_graph(&launch(decides, 1), Some(&all)).unwrap_err();
    assert_eq!((fault.kind, far.get()), (FaultKind::IllegalAddress, 0));
}

extern "C" fn finds_workspace(_: *mut ThreadContext, block: *mut BlockContext) -> Status {
    // SAFETY: the grid gave the kernel this context, and a cooperative launch has this memory.
    unsafe {
        let workspace = (*block).workspace;
        assert_eq!(memory::find(workspace).unwrap().kind, Kind::Pinned);
        assert_eq!((workspace as *const [u8; 64]).read(), [0; 64]);
    }
    CONTINUE
}

#[test]
fn cooperative_launches_have_a_workspace() {
    let mut launch = launch(finds_workspace, 1);
    launch.cooperative = true;
    run(launch, &cells(1)).unwrap();
}
