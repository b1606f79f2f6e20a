//! Programs that change how their threads compute: no kernel, no module and no time comes out
//! otherwise. Each case is a process of its own, whose first threads start so.

use std::arch::asm;
use std::process::Command;

use super::*;

const CASE: &str = "SOFTCUDA_TEST_CONTROL_WORD";

/// Rounding down, up, to zero; subnormals are zeros; exceptions trap.
const WORDS: [u32; 6] = [0x3f80, 0x5f80, 0x7f80, 0x9fc0, 0x0000, 0xe040];

const SOURCE: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry computes(.param .u64 out, .param .f32 one, .param .f64 three)
{
    .reg .b32 %r<4>; .reg .f32 %f<8>; .reg .f64 %d<8>; .reg .b64 %rd<4>;
    .shared .align 4 .b8 s[4];
    ld.param.u64 %rd1, [out];
    ld.param.f32 %f1, [one];
    ld.param.f64 %d1, [three];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    mul.wide.u32 %rd2, %r1, 32;
    add.u64 %rd1, %rd1, %rd2;
    cvt.rn.f32.f64 %f2, %d1;
    div.rn.f32 %f3, %f1, %f2;
    st.global.f32 [%rd1], %f3;
    mul.rn.f32 %f4, %f3, 0f00800000;
    st.global.f32 [%rd1+4], %f4;
    add.rn.f32 %f5, %f4, %f4;
    st.global.f32 [%rd1+8], %f5;
    sqrt.approx.f32 %f6, %f2;
    st.global.f32 [%rd1+12], %f6;
    bar.sync 0;
    mov.f64 %d2, 0.1;
    div.rn.f64 %d3, %d2, %d1;
    st.global.f64 [%rd1+16], %d3;
    sin.approx.f32 %f7, %f2;
    cvt.f64.f32 %d4, %f7;
    st.global.f64 [%rd1+24], %d4;
    ret;
}";

const BLOCKS: u32 = 40;
const THREADS: u32 = 64;

/// The word of this thread, without what exceptions have left in it.
fn word_of_thread() -> u32 {
    let mut word = 0u32;
    unsafe { asm!("stmxcsr [{}]", in(reg) &mut word) };
    word & !0x3f
}

fn set(word: u32) {
    unsafe { asm!("ldmxcsr [{}]", in(reg) &word) };
}

/// Does `work` with another word, and looks whether it is the same after.
fn with<R>(word: u32, work: impl FnOnce() -> R) -> R {
    set(word);
    let result = work();
    let after = word_of_thread();
    set(0x1f80);
    assert_eq!(after, word);
    result
}

#[derive(Clone, Copy)]
struct Setting {
    computes: Handle,
    out: u64,
    stream: Handle,
}

const SIZE: usize = (BLOCKS * THREADS * 32) as usize;

impl Setting {
    unsafe fn launch(mut self) {
        let (mut one, mut three) = (1f32, 3f64);
        let arguments = &mut [void(&mut self.out), void(&mut one), void(&mut three)];
        launch(self.computes, BLOCKS, THREADS, self.stream, arguments).must();
    }

    unsafe fn results(self) -> Vec<u32> {
        let mut results = vec![0u32; SIZE / 4];
        cuMemcpyDtoH_v2(results.as_mut_ptr().cast(), self.out, SIZE).must();
        results
    }
}

/// What comes out where nobody has changed a word, but for what is approximate.
fn expected() -> Vec<u32> {
    let third = 1f32 / 3.0;
    let small = third * f32::MIN_POSITIVE;
    let tenth = (0.1f64 / 3.0).to_bits();
    let one = [
        third.to_bits(),
        small.to_bits(),
        (small + small).to_bits(),
        0,
        tenth as u32,
        (tenth >> 32) as u32,
        0,
        0,
    ];
    one.repeat((BLOCKS * THREADS) as usize)
}

/// All but what is approximate agrees with `expected`, and is the same in all threads.
fn check(results: &[u32], what: &str) {
    let expected = expected();
    let first = &results[..8];
    for (got, expected) in results.chunks(8).zip(expected.chunks(8)) {
        assert_eq!(got[..3], expected[..3], "{what}");
        assert_eq!(got[4..6], expected[4..6], "{what}");
        assert_eq!(got, first, "{what}");
    }
}

/// The program's thread has another word from the start, and does all itself.
unsafe fn everywhere(word: u32) {
    let setting = with(word, || {
        context();
        Setting {
            computes: function_of(module_of(SOURCE), c"computes"),
            out: memory(SIZE),
            stream: stream(),
        }
    });
    for round in 0..20 {
        with(word, || setting.launch());
        if round % 2 == 0 {
            // Once a thread of the driver runs it, and once this one.
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        with(word, || cuStreamSynchronize(setting.stream).must());
        check(&setting.results(), "on the program's thread");
    }
    let (start, end) = (event(), event());
    let mut milliseconds = 0f32;
    with(word, || {
        cuEventRecord(start, setting.stream).must();
        setting.launch();
        cuEventRecord(end, setting.stream).must();
        cuEventSynchronize(end).must();
        cuEventElapsedTime(&mut milliseconds, start, end).must();
    });
    assert!(milliseconds >= 0.0);
}

/// Host functions change the word of the driver's thread that calls them.
unsafe fn in_host_functions(word: u32) {
    unsafe extern "C" fn change(word: *mut c_void) {
        set(word as usize as u32);
    }
    unsafe extern "C" fn change_again(_: Handle, _: u32, word: *mut c_void) {
        set(word as usize as u32);
    }
    context();
    let setting = Setting {
        computes: function_of(module_of(SOURCE), c"computes"),
        out: memory(SIZE),
        stream: stream(),
    };
    for round in 0..20 {
        let data = word as usize as *mut c_void;
        match round % 2 {
            0 => cuLaunchHostFunc(setting.stream, Some(change), data).must(),
            _ => cuStreamAddCallback(setting.stream, Some(change_again), data, 0).must(),
        }
        setting.launch();
        cuStreamSynchronize(setting.stream).must();
        check(&setting.results(), "after a host function");
    }
    assert_eq!(word_of_thread(), 0x1f80);
}

#[test]
#[ignore = "the other tests of this file run it, each in a process of its own"]
fn child() {
    let case = std::env::var(CASE).expect("a case");
    let (name, word) = case.split_once(' ').expect("a name and a word");
    let word = word.parse().expect("a number");
    unsafe {
        match name {
            "everywhere" => everywhere(word),
            _ => in_host_functions(word),
        }
    }
}

/// Nothing is said of another driver, whose own work may trap.
fn run(name: &str) {
    if crate::driver::driver() != crate::driver::Driver::Software {
        return;
    }
    let test = std::env::current_exe().expect("the test knows its own path");
    for word in WORDS {
        let mut command = Command::new(&test);
        let child = "execution::control_word::child";
        command.args([child, "--exact", "--ignored", "--nocapture"]);
        let output = command.env(CASE, format!("{name} {word}")).output();
        let output = output.expect("the test starts itself");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let text = text + &String::from_utf8_lossy(&output.stderr);
        let passed = output.status.success() && text.contains("1 passed");
        assert!(passed, "{word:#x}: {:?} {text}", output.status);
    }
}

#[test]
fn kernels_compute_as_ever_whatever_the_program_s_thread_does() {
    run("everywhere");
}

#[test]
fn what_host_functions_change_is_undone() {
    run("in_host_functions");
}
