//! Programs against sums [aside](crate::grid::sums): each leaves what it leaves where a fence at
//! its end keeps all sums in place.

use super::fuzz::{Random, run_cases, setting};
use crate::jit::harness::{self, buffer};
use crate::jit::module::Form;
use crate::memory::{self, Device, Kind};

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 24;
const SHARE: u64 = 20;

/// Threads of a block, and bytes of memory that each has in an array.
const THREADS: u32 = 64;
const OWN: u32 = 16;

/// A kernel `k(.u64 x, .u64 y, .u64 out)` with `%t` a thread's number in its block, and `%i` in the
/// grid. A thread leaves `%r9` in its word of `out`.
fn kernel(body: &str, end: &str) -> String {
    harness::module(&format!(
        ".visible .entry k(.param .u64 x, .param .u64 y, .param .u64 out)
        {{
            .reg .pred %p<8>; .reg .b32 %t, %i, %block, %r<24>; .reg .f32 %f<4>;
            .reg .b64 %x, %y, %out, %at, %rd<20>;
            ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; ld.param.u64 %out, [out];
            mov.u32 %t, %tid.x; mov.u32 %block, %ctaid.x;
            mad.lo.u32 %i, %block, {THREADS}, %t;
            mov.u32 %r9, 7;
            {body}
            mul.wide.u32 %rd0, %i, 4; add.u64 %rd0, %out, %rd0; st.global.u32 [%rd0], %r9;
            {end}
            ret;
        }}"
    ))
}

/// What a body leaves, the same in all forms and with sums in place.
fn differs(body: &str, blocks: u32) -> Result<(), String> {
    let run = |end: &str, form| {
        let words = (blocks * THREADS * OWN / 4) as usize;
        let mut x: Vec<u32> = (0..words as u32)
            .map(|at| at.wrapping_mul(0x0101_0101))
            .collect();
        let mut y: Vec<u32> = (0..words as u32)
            .map(|at| !at.wrapping_mul(0x3001))
            .collect();
        let mut out = vec![0u32; (blocks * THREADS) as usize];
        let module = harness::load_as(&kernel(body, end), form);
        let buffers = &mut [buffer(&mut x), buffer(&mut y), buffer(&mut out)];
        let (grid, block) = ([blocks, 1, 1], [THREADS, 1, 1]);
        harness::run_in(&module, "k", grid, block, 0, buffers, &[])
            .map_err(|fault| (fault.kind, fault.block, fault.thread))?;
        Ok([x, y, out])
    };
    let expected: Result<_, (_, _, _)> = run("membar.gl;", Form::Fibers);
    for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
        let got = run("", form);
        if got != expected {
            let (Ok(got), Ok(expected)) = (&got, &expected) else {
                return Err(format!(
                    "{form:?} {blocks}: {got:x?} for {expected:x?}\n{body}"
                ));
            };
            for (name, (got, expected)) in ["x", "y", "out"].iter().zip(got.iter().zip(expected)) {
                let at = got.iter().zip(expected).position(|(a, b)| a != b);
                if let Some(at) = at {
                    return Err(format!(
                        "{form:?} {blocks}: {name}[{at}] {:x} for {:x}\n{body}",
                        got[at], expected[at]
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The address of a thread's own memory, by a way that is not known to be an array's.
const HIDDEN: &str = "mul.lo.u32 %r1, %i, 13; and.b32 %r1, %r1, 63; mul.wide.u32 %rd1, %r1, 16;
    xor.b64 %rd1, %rd1, 0;";

/// Threads load from two arrays with one check for two loads, the first of a group from the one
/// that all add to between.
#[test]
fn between_loads_that_are_checked_together() {
    for (mask, value) in [
        (7, 0),
        (7, 7),
        (1, 0),
        (1, 1),
        (31, 0),
        (31, 31),
        (32, 0),
        (32, 32),
    ] {
        for add in [
            "red.global.add.u32 [%rd3], 5; red.global.add.u32 [%rd3+4], 6;",
            "red.global.add.u64 [%rd3], %rd1;",
            "atom.global.add.u32 %r1, [%rd3+4], 5;",
        ] {
            for then in [
                "ld.global.u32 %r5, [%at+4]; ld.global.u32 %r6, [%at+8];",
                "st.global.u32 [%at+4], %r4;",
            ] {
                differs(
                    &format!(
                        "{HIDDEN}
                    and.b32 %r2, %t, {mask}; setp.eq.u32 %p1, %r2, {value};
                    selp.b64 %at, %x, %y, %p1; add.u64 %at, %at, %rd1; add.u64 %rd3, %x, %rd1;
                    mov.u32 %r5, 0; mov.u32 %r6, 0;
                    ld.global.u32 %r4, [%at]; {add} {then}
                    mad.lo.u32 %r9, %r4, 31, %r5; mad.lo.u32 %r9, %r9, 31, %r6;"
                    ),
                    1,
                )
                .unwrap_or_else(|what| panic!("{what}"));
            }
        }
    }
}

/// Two arrays that lie next to each other are loaded from with one check, which no site remembers.
#[test]
fn between_loads_from_two_arrays() {
    let arrays = [0; 2].map(|_| memory::alloc(Device::FIRST, 4096, 256, Kind::Device).unwrap());
    let [x, y] = arrays.each_ref().map(|array| array.base);
    let (low, distance) = (x.min(y), x.abs_diff(y));
    let source = kernel(
        &format!(
            "{HIDDEN} add.u64 %at, %x, %rd1;
            ld.global.u32 %r4, [%at]; ld.global.u32 %r5, [%at+{distance}];
            red.global.add.u32 [%at+4], 9;
            ld.global.u32 %r6, [%at+4];
            add.u32 %r9, %r6, %r4; add.u32 %r9, %r9, %r5;"
        ),
        "",
    );
    for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
        let out = memory::alloc(Device::FIRST, 4096, 256, Kind::Device).unwrap();
        // SAFETY: the allocations have so many bytes, which nobody else knows.
        unsafe {
            for base in [x, y, out.base] {
                (base as *mut u8).write_bytes(0, 4096);
            }
        }
        let module = harness::load_as(&source, form);
        let values = [low, 0, out.base].map(u64::to_le_bytes);
        let values = values.each_ref().map(|value| &value[..]);
        let kernel = module.kernel("k").unwrap();
        let of = harness::launch(&module, kernel, [1; 3], [THREADS, 1, 1], 0, &values);
        crate::grid::run(&of).unwrap();
        // SAFETY: as above, and the launch is over.
        let got = unsafe { std::slice::from_raw_parts(out.base as *const u32, THREADS as usize) };
        assert_eq!(
            got, [9; THREADS as usize],
            "{form:?}, {distance} bytes apart"
        );
        memory::free(out.base);
    }
    for array in arrays {
        memory::free(array.base);
    }
}

/// A random body: threads own words of an array, and others behind a barrier.
fn body(random: &mut Random) -> String {
    let mut body = String::new();
    let mut label = 0;
    for _ in 0..1 + random.below(3) {
        // Who owns what: a permutation, and which array.
        let (xor, times) = (random.below(64), [1, 1, 13, 37][random.below(4)]);
        body += &format!("bar.sync 0; mul.lo.u32 %r1, %t, {times}; xor.b32 %r1, %r1, {xor}; and.b32 %r1, %r1, 63; mad.lo.u32 %r1, %block, {THREADS}, %r1;
            mul.wide.u32 %rd1, %r1, {OWN};\n");
        if random.below(3) > 0 {
            body += "xor.b64 %rd1, %rd1, 0;\n";
        }
        for (at, of) in [("%rd3", random.below(4)), ("%rd4", random.below(4))] {
            let mask = [1, 2, 4, 7, 31, 32][random.below(6)];
            let value = if random.below(2) == 0 { 0 } else { mask };
            body += &match of {
                0 => format!("add.u64 {at}, %x, %rd1;\n"),
                1 => format!("add.u64 {at}, %y, %rd1;\n"),
                _ => format!(
                    "and.b32 %r2, %t, {mask}; setp.eq.u32 %p1, %r2, {value};
                    selp.b64 {at}, %x, %y, %p1; add.u64 {at}, {at}, %rd1;\n"
                ),
            };
        }
        let mut open = 0;
        for _ in 0..2 + random.below(10) {
            let at = ["%rd3", "%rd4"][random.below(2)];
            let (word, pair) = (4 * random.below(4), 8 * random.below(2));
            let guard = match random.below(6) {
                0 => "and.b32 %r2, %i, 5; setp.eq.u32 %p2, %r2, 4; @%p2 ",
                1 => "setp.lt.u32 %p2, %t, 19; @!%p2 ",
                _ => "",
            };
            body += &match random.below(16) {
                14 => "bar.sync 0;\n".into(),
                0..=3 => format!("{guard}red.global.add.u32 [{at}+{word}], %r9;\n"),
                4 => format!("cvt.u64.u32 %rd5, %r9; {guard}red.add.u64 [{at}+{pair}], %rd5;\n"),
                5..=7 => format!(
                    "{guard}ld.global.u32 %r5, [{at}+{word}]; mad.lo.u32 %r9, %r9, 31, %r5;\n"
                ),
                8 => format!(
                    "{guard}ld.global.v2.u32 {{%r5, %r6}}, [{at}+{pair}]; xor.b32 %r5, %r5, %r6; mad.lo.u32 %r9, %r9, 31, %r5;\n"
                ),
                9 => format!("{guard}st.global.u32 [{at}+{word}], %r9;\n"),
                10 => format!("{guard}red.global.max.u32 [{at}+{word}], %r9;\n"),
                11 => format!("{guard}atom.global.exch.b32 %r7, [{at}+{word}], %r9;\n"),
                12 if open == 0 => {
                    (label, open) = (label + 1, label + 1);
                    format!("mov.u32 %r8, {};\nloop{label}:\n", 1 + random.below(3))
                }
                13 if open == 0 => {
                    label += 1;
                    format!(
                        "and.b32 %r2, %i, 3; setp.eq.u32 %p3, %r2, 1; @%p3 bra past{label};
                        red.add.u32 [{at}+{word}], 77; past{label}:\n"
                    )
                }
                _ => format!("bar.warp.sync -1; {guard}red.global.add.s32 [{at}+{word}], -3;\n"),
            };
        }
        if open != 0 {
            body +=
                &format!("sub.u32 %r8, %r8, 1; setp.ne.u32 %p4, %r8, 0; @%p4 bra loop{open};\n");
        }
    }
    body
}

#[test]
fn random_programs() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    run_cases(cases, |case, random, _| {
        let body = format!("mov.u32 %r5, 1; mov.u32 %r6, 2;\n{}", body(random));
        differs(&body, [1, 3, 4][case as usize % 3])
    });
}
