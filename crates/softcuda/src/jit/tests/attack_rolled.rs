//! Attacks on loops that are [one again](crate::jit::resolve::unrolled): whatever the PTX, a kernel
//! leaves the same bytes, or the same fault, as if its loops had stayed as they are.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use super::fuzz::{Random, run_cases, setting};
use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer};
use crate::jit::module::{Form, Module};
use crate::jit::resolve::unrolled;

/// Cases of a plain `cargo test`, and of a whole run the part that is run here.
const DEFAULT_CASES: u64 = 20;
const SHARE: u64 = 10;
/// Words that all threads read, of a row that a thread has to itself, and of what each leaves.
const WORDS: usize = 20_480;
const ROW: usize = 640;
const THREADS: usize = 512;
const OWN: usize = 8;

/// The two loops and what is around them, as `nvcc` writes them, line by line.
#[derive(Clone, Default)]
struct Parts {
    name: String,
    /// Before the block of the loops.
    first: Vec<String>,
    /// In that block, before what counts.
    pre: Vec<String>,
    /// Where it goes on to the short loop.
    count: Vec<String>,
    short_before: Vec<String>,
    short: Vec<String>,
    /// Counts down, and asks.
    down: Vec<String>,
    middle: Vec<String>,
    long_before: Vec<String>,
    long: Vec<String>,
    /// Counts, and asks.
    up: Vec<String>,
    behind: Vec<String>,
}

fn lines(text: &str) -> Vec<String> {
    let all = text.split([';', '\n']).map(str::trim);
    let all = all.filter(|line| !line.is_empty());
    all.map(|line| format!("{line};")).collect()
}

impl Parts {
    /// Counts and branches, without anything to do.
    fn empty(name: &str, log: u32, signed: bool) -> Parts {
        let step = 1 << log;
        let ty = if signed { "s32" } else { "u32" };
        Parts {
            name: name.into(),
            first: lines(&format!("setp.ge.{ty} %p2, %r3, %r13; @%p2 bra OVER{name}")),
            pre: lines("not.b32 %r18, %r3; add.s32 %r4, %r18, %r13; mov.u32 %r43, %r3"),
            count: lines(&format!(
                "shr.u32 %r19, %r4, {log}; add.s32 %r20, %r19, 1; and.b32 %r42, %r20, 3;
                setp.eq.s32 %p3, %r42, 0"
            )),
            short: lines(&format!("add.s32 %r43, %r43, {step}")),
            down: lines("add.s32 %r42, %r42, -1; setp.ne.s32 %p4, %r42, 0"),
            middle: lines(&format!("setp.lt.u32 %p5, %r4, {}", 3 * step)),
            up: lines(&format!(
                "add.s32 %r43, %r43, {}; setp.lt.{ty} %p6, %r43, %r13",
                4 * step
            )),
            ..Parts::default()
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut put = |lines: &[String]| {
            for line in lines {
                writeln!(text, "{line}").expect("text takes text");
            }
        };
        let name = &self.name;
        put(&self.first);
        put(&self.pre);
        put(&self.count);
        put(&[format!("@%p3 bra MID{name};")]);
        put(&self.short_before);
        put(&[format!("SHORT{name}:")]);
        put(&self.short);
        put(&self.down);
        put(&[format!("@%p4 bra SHORT{name};"), format!("MID{name}:")]);
        put(&self.middle);
        put(&[format!("@%p5 bra OVER{name};")]);
        put(&self.long_before);
        put(&[format!("LONG{name}:")]);
        put(&self.long);
        put(&self.up);
        put(&[format!("@%p6 bra LONG{name};"), format!("OVER{name}:")]);
        put(&self.behind);
        text
    }
}

/// A kernel: `%rd1` is the array that all read and `%rd2` the thread's row, such that `%r5`, where
/// threads begin to count, is their first element; `%rd3` is what the thread leaves, `%r3` and
/// `%r13` its first index and the limit.
fn kernel(body: &str) -> String {
    harness::module(&format!(
        ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 own, .param .u32 n, .param .u32 s)
        {{
            .reg .pred %p<100>; .reg .b32 %r<600>; .reg .b64 %rd<600>; .reg .f32 %f<600>;
            .shared .align 16 .b8 tile[4096];
            ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [own];
            ld.param.u32 %r13, [n]; ld.param.u32 %r5, [s];
            mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r6, %ntid.x;
            mad.lo.u32 %r2, %r2, %r6, %r1;
            mad.wide.u32 %rd2, %r2, {row}, %rd2; mad.wide.u32 %rd3, %r2, {own}, %rd3;
            add.u64 %rd2, %rd2, 64; mov.u64 %rd4, %rd2; mov.u64 %rd5, %rd1;
            mov.u32 %r8, tile; mad.lo.u32 %r9, %r1, 16, %r8;
            mul.wide.s32 %rd6, %r5, -4; add.s64 %rd1, %rd1, %rd6; add.s64 %rd2, %rd2, %rd6;
            and.b32 %r7, %r1, 31; add.s32 %r3, %r5, %r7;
            mov.f32 %f39, 0f00000000; mov.f32 %f38, 0fFF800000; mov.u32 %r43, 77; mov.u32 %r44, 5;
            mov.u32 %r45, 0; mov.u32 %r46, 9; mov.u32 %r47, 0; mov.u32 %r48, 0; mov.u64 %rd9, 0;
            setp.gt.u32 %p9, %r1, 3; setp.ne.u32 %p4, %r7, 5; setp.lt.u32 %p5, %r7, 17;
            setp.gt.u32 %p6, %r7, 9; and.b32 %r10, %r1, 7;
            mad.lo.u32 %r71, %r1, 4, 0;
            fill: add.u32 %r72, %r71, %r8; st.shared.u32 [%r72], %r71; mad.lo.u32 %r71, %r6, 4, %r71;
            setp.lt.u32 %p90, %r71, 4096; @%p90 bra fill;
            bar.sync 0; st.shared.v4.u32 [%r9], {{%r1, %r2, %r13, %r5}}; bar.sync 0;
            {body}
            st.global.f32 [%rd3], %f39; st.global.u32 [%rd3+4], %r44; st.global.u32 [%rd3+8], %r45;
            st.global.f32 [%rd3+12], %f38; st.global.u32 [%rd3+16], %r47;
            st.global.u32 [%rd3+20], %r48;
            ret;
        }}",
        row = ROW * 4,
        own = OWN * 4,
    ))
}

fn load(source: &str, leave: bool) -> Arc<Module> {
    unrolled::LEAVE.set(leave);
    let module = harness::load(source);
    unrolled::LEAVE.set(false);
    module
}

/// How many pairs of loops are one: each has two labels of its own.
fn rolled([on, off]: &[Arc<Module>; 2]) -> u32 {
    let labels = |module: &Arc<Module>| {
        let body = module.program().functions[0].body.as_ref();
        body.expect("the kernel has a body").tables.labels
    };
    (labels(on) - labels(off)) / 2
}

/// Numbers that are floats of moderate size, of either sign.
static FLOATS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let hash = |n: usize| (n as u32).wrapping_mul(0x9e37_79b9);
    let float = |n: usize| (hash(n) & 0x83ff_ffff) | 0x3c00_0000;
    (0..THREADS * ROW + 64).map(float).collect()
});

type End = Result<Vec<u32>, (FaultKind, Option<[u32; 3]>)>;

#[derive(Clone, Copy, Debug)]
struct Launch {
    grid: u32,
    block: u32,
    n: u32,
    s: u32,
}

fn run(module: &Arc<Module>, launch: Launch) -> End {
    let threads = (launch.grid * launch.block) as usize;
    let mut all = FLOATS[..WORDS].to_vec();
    let mut rows = FLOATS[..threads * ROW + 64].to_vec();
    let mut own = vec![0u32; threads * OWN];
    let buffers: &mut [&mut [u8]] = &mut [buffer(&mut all), buffer(&mut rows), buffer(&mut own)];
    let scalars: &[&[u8]] = &[&launch.n.to_le_bytes(), &launch.s.to_le_bytes()];
    let (grid, block) = ([launch.grid, 1, 1], [launch.block, 1, 1]);
    match harness::run_in(module, "k", grid, block, 0, buffers, scalars) {
        Ok(()) => Ok([all, rows, own].concat()),
        // Blocks fault in any order.
        Err(fault) => Err((fault.kind, fault.thread.filter(|_| launch.grid == 1))),
    }
}

/// How a launch ended that does the same: whether it faults, and whether in another thread.
struct Same {
    faults: bool,
    elsewhere: bool,
}

/// What a launch does otherwise if loops are one. Which thread faults first is another question.
fn compare([on, off]: &[Arc<Module>; 2], launch: Launch) -> Result<Same, String> {
    let mut what = String::new();
    // Damaged kernels of other tests may write here meanwhile: what is wrong comes again.
    for _ in 0..3 {
        let (got, expected) = (run(on, launch), run(off, launch));
        let kinds = [&got, &expected].map(|end| end.as_ref().err().map(|fault| fault.0));
        if got == expected || kinds[0].is_some() && kinds[0] == kinds[1] {
            return Ok(Same {
                faults: expected.is_err(),
                elsewhere: got != expected,
            });
        }
        what = match (got, expected) {
            (Ok(got), Ok(expected)) => {
                let mut all = got.iter().zip(&expected).enumerate();
                let (at, (got, expected)) = all.find(|(_, (a, b))| a != b).expect("they differ");
                format!("word {at}: {got:x} for {expected:x}")
            }
            (got, expected) => format!("{:?} for {:?}", got.map(|_| ()), expected.map(|_| ())),
        };
    }
    Err(format!("{launch:?}: {what}"))
}

fn both(body: &str) -> [Arc<Module>; 2] {
    let source = kernel(body);
    [false, true].map(|leave| load(&source, leave))
}

/// A loop as `gemv_warp` has it, with a store of what it adds.
fn base() -> Parts {
    let mut parts = Parts::empty("", 5, true);
    parts.short_before =
        lines("mul.wide.s32 %rd18, %r3, 4; add.s64 %rd27, %rd1, %rd18; add.s64 %rd26, %rd2, %rd18");
    parts.short.splice(
        0..0,
        lines(
            "ld.global.f32 %f13, [%rd27]; add.f32 %f39, %f39, %f13; st.global.f32 [%rd26], %f39;
            add.s64 %rd27, %rd27, 128; add.s64 %rd26, %rd26, 128",
        ),
    );
    parts.long_before = lines(
        "mul.wide.s32 %rd20, %r43, 4; add.s64 %rd29, %rd1, %rd20; add.s64 %rd28, %rd2, %rd20",
    );
    for turn in 0..4 {
        parts.long.extend(lines(&format!(
            "ld.global.f32 %f15, [%rd29+{0}]; add.f32 %f39, %f39, %f15;
            st.global.f32 [%rd28+{0}], %f39",
            turn * 128
        )));
    }
    parts.long.extend(lines(
        "add.s64 %rd29, %rd29, 512; add.s64 %rd28, %rd28, 512",
    ));
    parts
}

/// Lines at the end of each turn.
fn at_the_end(parts: &mut Parts, of: impl Fn(usize) -> String) {
    parts.short.extend(lines(&of(0)));
    let mut long = vec![];
    for (turn, three) in parts.long[..12].chunks(3).enumerate() {
        long.extend_from_slice(three);
        long.extend(lines(&of(turn)));
    }
    long.extend_from_slice(&parts.long[12..]);
    parts.long = long;
}

fn everywhere(parts: &mut Parts, line: &str) {
    at_the_end(parts, |_| line.into());
}

fn before(parts: &mut Parts, line: &str) {
    parts.short_before.extend(lines(line));
    parts.long_before.extend(lines(line));
}

fn replace(lines: &mut [String], from: &str, to: &str) {
    let mut found = false;
    for line in lines {
        found |= line.contains(from);
        *line = line.replace(from, to);
    }
    assert!(found, "{from}");
}

/// One change to the pattern, which must not be missed.
type Change = (&'static str, fn(&mut Parts));

const LAUNCHES: &[(u32, u32)] = &[
    (0, 1),
    (0, 33),
    (0, 100),
    (0, 128),
    (0, 200),
    (0, 330),
    (0, 500),
    (7, 290),
    (0xffff_ffd8, 300),
    (0x7fef_ff00, 0x7fef_fff3),
];

fn attack(changes: &[Change]) {
    let mut failures = String::new();
    for (name, change) in changes {
        let mut parts = base();
        change(&mut parts);
        let text = parts.text();
        let loaded = std::panic::catch_unwind(|| both(&text));
        let Ok(both) = loaded else {
            writeln!(failures, "{name}: it does not load").expect("text takes text");
            continue;
        };
        let mut what = None;
        'all: for block in [1, 7, 32, 40, 64] {
            for (s, n) in LAUNCHES {
                let launch = Launch {
                    grid: 1,
                    block,
                    n: *n,
                    s: *s,
                };
                if let Err(error) = compare(&both, launch) {
                    what = Some(error);
                    break 'all;
                }
            }
        }
        println!("{name}: rolled {}, {what:?}", rolled(&both));
        if let Some(what) = what {
            writeln!(failures, "{name}: {what}").expect("text takes text");
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn the_pattern_is_rolled() {
    let both = both(&base().text());
    assert_eq!(rolled(&both), 1);
    attack(&[("as it is", |_| {})]);
}

#[test]
fn predicates_of_the_loops_are_read() {
    attack(&[
        ("the short one's, before both", |parts| {
            parts.pre.extend(lines("setp.ge.u32 %p4, %r1, 0"));
            before(parts, "selp.f32 %f50, 0f3f800000, 0f40000000, %p4");
            everywhere(parts, "add.f32 %f38, %f38, %f50");
            everywhere(parts, "mov.b32 %r60, %f50; add.s32 %r44, %r44, %r60");
        }),
        ("the one past the long one", |parts| {
            parts.pre.extend(lines("setp.ge.u32 %p5, %r1, 0"));
            everywhere(parts, "@%p5 add.s32 %r44, %r44, 1");
        }),
        ("a second one that counts is written by", |parts| {
            replace(&mut parts.count, "%p3,", "%p3|%p9,");
            parts.count.extend(lines("selp.u32 %r47, 3, 4, %p9"));
        }),
        ("a second one of the short one", |parts| {
            replace(&mut parts.down, "%p4,", "%p4|%p9,");
            parts.pre.extend(lines("setp.lt.u32 %p9, %r1, 0"));
            parts.behind.extend(lines("selp.u32 %r47, 3, 4, %p9"));
        }),
        ("a second one of the long one", |parts| {
            replace(&mut parts.up, "%p6,", "%p6|%p9,");
            parts.pre.extend(lines("setp.lt.u32 %p9, %r1, 0"));
            parts.behind.extend(lines("selp.u32 %r47, 3, 4, %p9"));
        }),
    ]);
}

#[test]
fn what_counts_is_in_another_order() {
    attack(&[
        ("adds before it divides", |parts| {
            parts.pre.extend(lines("mov.u32 %r19, 0"));
            // The old value is of a loop around.
            parts.first.extend(lines("mov.u32 %r19, 2; bra AGAIN"));
            parts.pre.pop();
            parts.first.push("AGAIN:".into());
            parts.count.swap(0, 1);
        }),
        ("masks before it adds", |parts| {
            parts.first.extend(lines("mov.u32 %r20, 2; bra AGAIN"));
            parts.first.push("AGAIN:".into());
            parts.count.swap(1, 2);
        }),
        ("asks before it masks", |parts| {
            parts.first.extend(lines("mov.u32 %r42, 0; bra AGAIN"));
            parts.first.push("AGAIN:".into());
            parts.count.swap(2, 3);
        }),
        ("the limit is what it divides to", |parts| {
            parts.first.extend(lines("mov.u32 %r19, %r13; bra AGAIN"));
            parts.first.push("AGAIN:".into());
            replace(&mut parts.up, "%r13", "%r19");
        }),
        ("the limit is the turns", |parts| {
            parts.first.extend(lines("mov.u32 %r20, %r13; bra AGAIN"));
            parts.first.push("AGAIN:".into());
            replace(&mut parts.up, "%r13", "%r20");
        }),
    ]);
}

#[test]
fn where_places_begin() {
    attack(&[
        ("the long one at the first index", |parts| {
            replace(&mut parts.long_before, "%r43", "%r3");
        }),
        ("one of its places at the first index", |parts| {
            parts
                .long_before
                .extend(lines("mad.wide.s32 %rd29, %r3, 4, %rd1"));
        }),
        ("the counter is another meanwhile", |parts| {
            parts.short_before = lines(
                "mov.u32 %r43, %r5; mul.wide.s32 %rd18, %r43, 4; add.s64 %rd27, %rd1, %rd18;
                add.s64 %rd26, %rd2, %rd18; mov.u32 %r43, %r3",
            );
        }),
        ("a sum is read before each", |parts| {
            before(parts, "mov.u32 %r60, %r44");
            everywhere(
                parts,
                "add.s32 %r44, %r44, 3; mad.lo.s32 %r45, %r45, 31, %r60",
            );
        }),
        ("a sum begins anew", |parts| {
            parts.long_before.extend(lines("mov.f32 %f39, 0f00000000"));
        }),
        ("a sum is written with something else", |parts| {
            parts.pre.extend(lines(
                "mov.b64 %rd50, {%r46, %r1}; mov.b64 {%r44, %r61}, %rd50; mov.u32 %r60, 3",
            ));
            parts
                .short_before
                .extend(lines("mov.b64 {%r44, %r60}, %rd50"));
            everywhere(parts, "add.s32 %r44, %r44, %r60");
        }),
        ("memory is read before each, and written", |parts| {
            parts.pre.extend(lines("st.global.u32 [%rd3+24], 3"));
            before(parts, "ld.global.u32 %r60, [%rd3+24]");
            everywhere(
                parts,
                "st.global.u32 [%rd3+24], %r44; mad.lo.s32 %r44, %r44, 31, %r60",
            );
        }),
        ("memory is read before each, through a sum", |parts| {
            before(parts, "ld.global.f32 %f50, [%rd4]");
            everywhere(
                parts,
                "add.f32 %f39, %f39, %f50; st.global.f32 [%rd4], %f39",
            );
        }),
        ("memory is read in each turn of the long one", |parts| {
            parts
                .short_before
                .extend(lines("ld.global.u32 %r60, [%rd3+24]"));
            parts
                .long
                .splice(0..0, lines("ld.global.u32 %r60, [%rd3+24]"));
            parts
                .short
                .splice(0..0, lines("mad.lo.s32 %r44, %r44, 31, %r60"));
            parts
                .long
                .splice(1..1, lines(&"mad.lo.s32 %r44, %r44, 31, %r60;".repeat(4)));
            parts.short.extend(lines("st.global.u32 [%rd3+24], %r43"));
            let long: Vec<String> = parts.long[5..17].to_vec();
            let mut new = parts.long[..5].to_vec();
            for (turn, three) in long.chunks(3).enumerate() {
                new.extend_from_slice(three);
                new.extend(lines(&format!(
                    "add.s32 %r62, %r43, {}; st.global.u32 [%rd3+24], %r62",
                    32 * (turn + 1)
                )));
            }
            new.extend_from_slice(&parts.long[17..]);
            parts.long = new;
        }),
    ]);
}

#[test]
fn memory_is_read_twice_before() {
    attack(&[
        ("a store between", |parts| {
            parts.pre = lines(
                "st.global.u32 [%rd3+24], %r3; ld.global.u32 %r43, [%rd3+24];
                st.global.u32 [%rd3+24], %r5; ld.global.u32 %r63, [%rd3+24];
                not.b32 %r18, %r3; add.s32 %r4, %r18, %r13",
            );
            replace(&mut parts.short_before, "%r3", "%r63");
        }),
        ("a sum, a store between", |parts| {
            parts.pre.extend(lines(
                "st.global.u32 [%rd3+24], 3; ld.global.u32 %r44, [%rd3+24];
                st.global.u32 [%rd3+24], 8",
            ));
            parts
                .short_before
                .extend(lines("ld.global.u32 %r44, [%rd3+24]"));
            everywhere(parts, "mad.lo.u32 %r44, %r44, 3, 1");
        }),
        ("a barrier between", |parts| {
            parts.first = vec![];
            parts.pre = lines(
                "st.shared.u32 [%r9], %r3; ld.shared.u32 %r43, [%r9]; bar.sync 0;
                sub.s32 %r64, %r6, 1; sub.s32 %r64, %r64, %r1; mad.lo.s32 %r64, %r64, 16, %r8;
                st.shared.u32 [%r64], %r5; bar.sync 0; ld.shared.u32 %r63, [%r9];
                not.b32 %r18, %r3; add.s32 %r4, %r18, %r13",
            );
            replace(&mut parts.short_before, "%r3", "%r63");
        }),
    ]);
}

#[test]
fn guards() {
    attack(&[
        ("a register that was written before", |parts| {
            parts.pre.extend(lines("mov.u32 %r60, 5"));
            everywhere(
                parts,
                "setp.gt.f32 %p9, %f39, 0f3f000000; @%p9 mov.u32 %r60, 7;
                mad.lo.s32 %r44, %r44, 31, %r60",
            );
        }),
        ("a register that the long one writes at its end", |parts| {
            parts.pre.extend(lines("mov.u32 %r60, 5"));
            before(parts, "mov.u32 %r60, 5");
            everywhere(
                parts,
                "setp.gt.f32 %p9, %f39, 0f3f000000; @%p9 mov.u32 %r60, 7;
                mad.lo.s32 %r44, %r44, 31, %r60",
            );
            parts.long.extend(lines("mov.u32 %r60, 9"));
        }),
        ("a load that only the short one guards", |parts| {
            parts
                .pre
                .extend(lines("setp.ge.u32 %p9, %r1, 1000; mov.u64 %rd60, 8"));
            parts.short.extend(lines(
                "mov.u32 %r60, 3; @%p9 ld.global.u32 %r60, [%rd60]; add.s32 %r44, %r44, %r60",
            ));
            let copy = |_: usize| {
                "mov.u32 %r61, 3; ld.global.u32 %r62, [%rd60]; @%p9 mov.u32 %r61, %r62;
                add.s32 %r44, %r44, %r61"
            };
            let mut long = vec![];
            for (turn, three) in parts.long[..12].chunks(3).enumerate() {
                long.extend_from_slice(three);
                long.extend(lines(copy(turn)));
            }
            long.extend_from_slice(&parts.long[12..]);
            parts.long = long;
        }),
        ("a load that nobody reads, in the short one", |parts| {
            parts.pre.extend(lines("mov.u64 %rd60, 8"));
            parts.short.extend(lines("ld.global.u32 %r60, [%rd60]"));
        }),
        ("a load that nobody reads, in the long one", |parts| {
            parts.pre.extend(lines("mov.u64 %rd60, 8"));
            parts.long.extend(lines("ld.global.u32 %r60, [%rd60]"));
        }),
        ("a load that nobody reads, before the short one", |parts| {
            parts.pre.extend(lines("mov.u64 %rd60, 8"));
            parts
                .short_before
                .extend(lines("ld.global.u32 %r60, [%rd60]"));
        }),
        ("a load that nobody reads, before the long one", |parts| {
            parts.pre.extend(lines("mov.u64 %rd60, 8"));
            parts
                .long_before
                .extend(lines("ld.global.u32 %r60, [%rd60]"));
        }),
        ("loads in another order, of which one is none", |parts| {
            parts
                .pre
                .extend(lines("mov.u64 %rd60, 8; add.s64 %rd61, %rd4, 2"));
            parts.short.extend(lines(
                "ld.global.u32 %r60, [%rd60]; ld.global.u32 %r61, [%rd61];
                add.s32 %r44, %r44, %r60; add.s32 %r44, %r44, %r61",
            ));
            let copy = "ld.global.nc.u32 %r62, [%rd61]; ld.global.u32 %r63, [%rd60];
                add.s32 %r44, %r44, %r63; add.s32 %r44, %r44, %r62";
            let mut long = vec![];
            for three in parts.long[..12].chunks(3) {
                long.extend_from_slice(three);
                long.extend(lines(copy));
            }
            long.extend_from_slice(&parts.long[12..]);
            parts.long = long;
        }),
    ]);
}

/// Something of each turn in the short loop, and something else in the long one.
fn unlike(parts: &mut Parts, short: &str, long: &str) {
    parts.short.extend(lines(short));
    let mut new = vec![];
    for three in parts.long[..12].chunks(3) {
        new.extend_from_slice(three);
        new.extend(lines(long));
    }
    new.extend_from_slice(&parts.long[12..]);
    parts.long = new;
}

#[test]
fn halves_of_what_is_written() {
    attack(&[
        ("of a move", |parts| {
            parts.pre.extend(lines("mov.b64 %rd60, {%r1, %r13}"));
            unlike(
                parts,
                "mov.b64 {%r60, _}, %rd60; add.s32 %r44, %r44, %r60",
                "mov.b64 {_, %r61}, %rd60; add.s32 %r44, %r44, %r61",
            );
        }),
        ("of a load", |parts| {
            unlike(
                parts,
                "ld.global.v2.u32 {%r60, _}, [%rd4]; mad.lo.s32 %r44, %r44, 31, %r60",
                "ld.global.v2.u32 {_, %r61}, [%rd4]; mad.lo.s32 %r44, %r44, 31, %r61",
            );
        }),
        ("of a comparison", |parts| {
            unlike(
                parts,
                "setp.gt.f32 %p10|_, %f39, 0f3f000000; @%p10 add.s32 %r44, %r44, 1",
                "setp.gt.f32 _|%p11, %f39, 0f3f000000; @%p11 add.s32 %r44, %r44, 1",
            );
        }),
    ]);
}

#[test]
fn sums_in_indices() {
    attack(&[
        ("an index that wraps", |parts| {
            parts.pre.extend(lines(
                "mov.u32 %r44, 0x7fffeb4c; mov.u64 %rd60, 0x1ffffad30; sub.u64 %rd60, %rd5, %rd60",
            ));
            parts.short.splice(
                0..0,
                lines(
                    "add.s32 %r60, %r43, %r44; mul.wide.s32 %rd61, %r60, 4;
                    add.s64 %rd61, %rd61, %rd60; ld.global.nc.u32 %r62, [%rd61];
                    xor.b32 %r45, %r45, %r62; add.s32 %r44, %r44, 400",
                ),
            );
            let mut long = lines(
                "add.s32 %r60, %r43, %r44; mul.wide.s32 %rd61, %r60, 4;
                add.s64 %rd61, %rd61, %rd60",
            );
            for turn in 0..4 {
                long.extend(lines(&format!(
                    "ld.global.nc.u32 %r62, [%rd61+{}]; xor.b32 %r45, %r45, %r62;
                    add.s32 %r44, %r44, 400",
                    turn * 432 * 4
                )));
            }
            parts.long.splice(0..0, long);
        }),
        ("a step of 62 bits", |parts| {
            parts
                .short_before
                .extend(lines("cvt.s64.s32 %rd62, %r3; shl.b64 %rd62, %rd62, 57"));
            parts
                .long_before
                .extend(lines("cvt.s64.s32 %rd63, %r43; shl.b64 %rd63, %rd63, 57"));
            parts.short.extend(lines(
                "shr.u64 %rd64, %rd62, 57; cvt.u32.u64 %r60, %rd64; add.s32 %r44, %r44, %r60;
                add.s64 %rd62, %rd62, 0x4000000000000000",
            ));
            for turn in 0..4u64 {
                parts.long.extend(lines(&format!(
                    "add.s64 %rd65, %rd63, {}; shr.u64 %rd64, %rd65, 57;
                    cvt.u32.u64 %r60, %rd64; add.s32 %r44, %r44, %r60",
                    (turn << 62) as i64
                )));
            }
        }),
    ]);
}

/// What is done with what a turn loads.
#[derive(Clone, Copy)]
enum Do {
    Sum,
    Fma,
    Mix,
    Most,
    Store,
    May,
    Gather,
}

/// A load, and what is done with it.
#[derive(Clone)]
struct Op {
    own_row: bool,
    shared: bool,
    /// The pointer goes on from turn to turn, with so much added in the long loop; or an index is
    /// made to an address in each turn.
    pointer: Option<i64>,
    words: usize,
    constant: bool,
    signed: bool,
    near: i32,
    row: bool,
    base: usize,
    pointers: [usize; 2],
    does: Do,
}

struct Writer<'a> {
    random: &'a mut Random,
    parts: Parts,
    step: i64,
    temps: usize,
    /// What holds a sum now, in the long loop.
    sums: HashMap<&'static str, String>,
    chain: bool,
    stores: bool,
}

impl Writer<'_> {
    fn below(&mut self, n: usize) -> usize {
        self.random.below(n)
    }

    fn temp(&mut self) -> usize {
        self.temps += 1;
        self.temps
    }

    fn op(&mut self) -> Op {
        let large = self.step > 32;
        let shared = !large && self.below(6) == 0;
        let own_row = !shared && self.stores && self.below(3) == 0;
        let words = if own_row || shared {
            1
        } else {
            [1, 1, 1, 2, 4][self.below(5)]
        };
        let pointer = match self.below(3) {
            _ if shared => None,
            0 => None,
            1 => Some(0),
            _ => Some(self.step * words as i64 * 4 * [1, 2, -1][self.below(3)]),
        };
        let does = match self.below(8) {
            0 | 1 => Do::Sum,
            2 => Do::Fma,
            3 => Do::Mix,
            4 => Do::Most,
            5 => Do::May,
            6 => Do::Gather,
            _ => Do::Sum,
        };
        Op {
            own_row,
            shared,
            pointer,
            words,
            constant: !own_row && !shared && self.below(2) == 0,
            signed: self.below(2) == 0,
            near: [0, 0, 0, 1, 3, -1][self.below(6)],
            row: !shared && self.below(4) == 0,
            base: self.temp(),
            pointers: [self.temp(), self.temp()],
            does: if own_row && self.below(3) > 0 {
                Do::Store
            } else {
                does
            },
        }
    }

    /// Where the array begins, less the first index.
    fn base(&mut self, op: &Op) {
        let (to, temp, scale) = (op.base, self.temp(), op.words * 4);
        let sign = if op.signed { "s32" } else { "u32" };
        let from = if op.own_row { "%rd4" } else { "%rd5" };
        let text = if op.shared {
            format!(
                "shl.b32 %r{temp}, %r5, 2; sub.s32 %r{to}, %r8, %r{temp}; add.s32 %r{to}, %r{to}, 16"
            )
        } else {
            let index = if op.row {
                format!("mad.lo.s32 %r{temp}, %r10, %r11, %r5")
            } else {
                format!("mov.u32 %r{temp}, %r5")
            };
            format!(
                "{index}; mul.wide.{sign} %rd{temp}, %r{temp}, {scale};
                sub.s64 %rd{to}, {from}, %rd{temp}; add.s64 %rd{to}, %rd{to}, 16"
            )
        };
        self.parts.first.splice(0..0, lines(&text));
    }

    /// An address of an index that a register holds, and so much more.
    fn address(&mut self, op: &Op, index: &str, more: i64) -> (String, usize) {
        let (temp, to) = (self.temp(), self.temp());
        let sign = if op.signed { "s32" } else { "u32" };
        let mut index = index.to_owned();
        let mut text = String::new();
        let more = more + i64::from(op.near);
        let add_first = self.below(2) == 0 || !op.row;
        if more != 0 && add_first {
            write!(text, "add.s32 %r{temp}, {index}, {more};").expect("text takes text");
            index = format!("%r{temp}");
        }
        if op.row {
            write!(text, "mad.lo.s32 %r{to}, %r10, %r11, {index};").expect("text takes text");
            index = format!("%r{to}");
            if more != 0 && !add_first {
                write!(text, "add.s32 %r{temp}, {index}, {more};").expect("text takes text");
                index = format!("%r{temp}");
            }
        }
        let base = op.base;
        if op.shared {
            write!(
                text,
                "shl.b32 %r{to}, {index}, 2; add.s32 %r{to}, %r{base}, %r{to};"
            )
        } else if self.below(3) == 0 {
            let wide = if op.signed { "s64" } else { "u64" };
            let log = (op.words * 4).trailing_zeros();
            write!(
                text,
                "cvt.{wide}.{sign} %rd{to}, {index}; shl.b64 %rd{to}, %rd{to}, {log};
                add.s64 %rd{to}, %rd{base}, %rd{to};"
            )
        } else {
            let scale = op.words * 4;
            write!(
                text,
                "mul.wide.{sign} %rd{to}, {index}, {scale}; add.s64 %rd{to}, %rd{to}, %rd{base};"
            )
        }
        .expect("text takes text");
        (text, to)
    }

    /// An operation in the short loop, or in one of the turns of the long one.
    fn turn(&mut self, op: &Op, turn: Option<i64>) -> String {
        let more = turn.unwrap_or(0) * self.step;
        let (mut text, at) = match op.pointer {
            None => {
                let (text, to) = self.address(op, "%r43", more);
                let wide = if op.shared { "%r" } else { "%rd" };
                (text, format!("[{wide}{to}]"))
            }
            Some(bias) => {
                let scale = op.words as i64 * 4;
                let (which, bias) = if turn.is_some() { (1, bias) } else { (0, 0) };
                let offset = more * scale - bias;
                (
                    String::new(),
                    format!("[%rd{}+{offset}]", op.pointers[which]),
                )
            }
        };
        let values: Vec<String> = (0..op.words)
            .map(|_| format!("%f{}", self.temp()))
            .collect();
        let space = match op {
            Op { shared: true, .. } => "shared",
            Op { constant: true, .. } => "global.nc",
            _ => "global",
        };
        let load = match &values[..] {
            [one] => format!("ld.{space}.f32 {one}, {at};"),
            all => format!("ld.{space}.v{}.f32 {{{}}}, {at};", op.words, all.join(", ")),
        };
        text += &load;
        for value in values {
            let temp = self.temp();
            let does = match op.does {
                Do::Sum => {
                    let [from, to] = self.sum("%f39", turn);
                    format!("add.f32 {to}, {from}, {value};")
                }
                Do::Fma => {
                    let [from, to] = self.sum("%f39", turn);
                    format!("fma.rn.f32 {to}, {value}, {value}, {from};")
                }
                Do::Mix => {
                    let [from, to] = self.sum("%r44", turn);
                    format!("mov.b32 %r{temp}, {value}; mad.lo.s32 {to}, {from}, 31, %r{temp};")
                }
                Do::Most => {
                    let [from, to] = self.sum("%f38", turn);
                    let [index, is_at] = self.sum("%r45", turn);
                    let (here, gets) = match more {
                        0 => ("%r43".to_owned(), String::new()),
                        _ => (
                            format!("%r{temp}"),
                            format!("add.s32 %r{temp}, %r43, {more};"),
                        ),
                    };
                    let predicate = 10 + self.below(80);
                    format!(
                        "{gets} setp.gt.f32 %p{predicate}, {value}, {from};
                        selp.f32 {to}, {value}, {from}, %p{predicate};
                        selp.b32 {is_at}, {here}, {index}, %p{predicate};"
                    )
                }
                Do::Store => {
                    let [from, to] = self.sum("%f39", turn);
                    format!(
                        "fma.rn.f32 {to}, {value}, 0f3f000000, {from}; st.global.f32 {at}, {to};"
                    )
                }
                Do::May => {
                    let predicate = 10 + self.below(80);
                    format!(
                        "setp.gt.f32 %p{predicate}, {value}, 0f00000000;
                        @%p{predicate} add.s32 %r47, %r47, 1;"
                    )
                }
                Do::Gather => {
                    let [from, to] = self.sum("%f39", turn);
                    format!(
                        "mov.b32 %r{temp}, {value}; and.b32 %r{temp}, %r{temp}, 1023;
                        mul.wide.u32 %rd{temp}, %r{temp}, 4; add.s64 %rd{temp}, %rd5, %rd{temp};
                        ld.global.nc.f32 %f{temp}, [%rd{temp}]; add.f32 {to}, {from}, %f{temp};"
                    )
                }
            };
            text += &does;
        }
        text
    }

    /// The register that holds a sum, and the one that gets the next.
    fn sum(&mut self, of: &'static str, turn: Option<i64>) -> [String; 2] {
        if turn.is_none() || !self.chain {
            return [of.to_owned(), of.to_owned()];
        }
        let next = format!("{}{}", &of[..2], self.temp());
        let now = self.sums.insert(of, next.clone());
        [now.unwrap_or_else(|| of.to_owned()), next]
    }

    fn loops(&mut self) {
        let mut ops = vec![];
        for _ in 0..1 + self.below(3) {
            ops.push(self.op());
        }
        let mut short = vec![];
        for op in &ops {
            self.base(op);
            let text = self.turn(op, None);
            short.extend(lines(&text));
        }
        for turn in 0..4 {
            for op in &ops {
                let text = self.turn(op, Some(turn));
                self.parts.long.extend(lines(&text));
            }
        }
        let mut sums: Vec<(&str, String)> = self.sums.drain().collect();
        sums.sort();
        for (sum, from) in sums {
            self.parts.long.push(format!("mov.b32 {sum}, {from};"));
        }
        for op in &ops {
            let Some(bias) = op.pointer else { continue };
            let starts = ["%r3", "%r43"][self.below(2)];
            for (at, index) in [starts, "%r43"].into_iter().enumerate() {
                let (text, to) = self.address(op, index, 0);
                let pointer = op.pointers[at];
                let by = self.step * op.words as i64 * 4;
                let (more, by) = if at == 0 { (0, by) } else { (bias, 4 * by) };
                let begins = format!("{text} add.s64 %rd{pointer}, %rd{to}, {more}");
                let goes = format!("add.s64 %rd{pointer}, %rd{pointer}, {by};");
                if at == 0 {
                    self.parts.short_before.extend(lines(&begins));
                    short.push(goes);
                } else {
                    self.parts.long_before.extend(lines(&begins));
                    self.parts.long.push(goes);
                }
            }
        }
        self.parts.short.splice(0..0, short);
        if self.below(3) > 0 {
            self.parts
                .behind
                .extend(lines("mad.lo.s32 %r48, %r48, 31, %r43"));
        }
    }
}

/// A pair of loops with random work; whether it stores.
fn pair(random: &mut Random, name: &str, temps: usize, stores: bool, log: u32) -> (Parts, usize) {
    let signed = random.below(2) == 0;
    let mut parts = Parts::empty(name, log, signed);
    if random.below(6) == 0 {
        parts.first.clear();
    }
    match random.below(4) {
        0 => parts.first.splice(0..0, lines("add.s32 %r3, %r5, %r1")),
        1 => parts.first.splice(0..0, lines("add.s32 %r13, %r13, %r10")),
        2 => parts.first.splice(0..0, lines("mov.u32 %r3, %r5")),
        _ => parts.first.splice(0..0, vec![]),
    };
    let chain = random.below(2) == 0;
    let mut writer = Writer {
        random,
        parts,
        step: 1 << log,
        temps,
        sums: HashMap::new(),
        chain,
        stores,
    };
    writer.loops();
    (writer.parts, writer.temps)
}

/// Registers that say how often loops turn: nothing else is written to them.
const COUNT: [&str; 8] = ["%r43", "%r42", "%r13", "%r4", "%p4", "%p6", "%r49", "%p20"];

/// Lines that may come anywhere in or before the loops.
const MORE: [&str; 24] = [
    "mov.u32 %r44, 5;",
    "mov.f32 %f39, 0f00000000;",
    "mov.b32 %r44, %r45;",
    "@%p9 mov.f32 %f39, 0f3f800000;",
    "@%p9 mov.u32 %r46, %r43;",
    "mad.lo.s32 %r44, %r44, 7, %r46;",
    "@!%p9 add.s32 %r44, %r44, 3;",
    "@%p5 add.s32 %r44, %r44, 1;",
    "@%p4 add.s32 %r44, %r44, 1;",
    "@%p6 add.s32 %r44, %r44, 1;",
    "@%p3 add.s32 %r44, %r44, 1;",
    "ld.global.u32 %r46, [%rd4];",
    "st.global.u32 [%rd4], %r44;",
    "st.global.u32 [%rd4+8], %r43;",
    "ld.global.u32 %r47, [%rd4+8];",
    "xor.b32 %r44, %r44, %r42;",
    "xor.b32 %r44, %r44, %r20;",
    "mov.u32 %r47, %r19;",
    "mov.u32 %r46, %r44;",
    "add.s32 %r3, %r3, 1;",
    "mov.b64 %rd9, {%r44, %r45};",
    "mov.b64 {_, %r46}, %rd9;",
    "mov.b64 {%r46, _}, %rd9;",
    "ld.volatile.global.u32 %r46, [%rd4];",
];

fn written(line: &str) -> Option<&str> {
    let line = line.strip_prefix('@').map_or(line, |line| {
        line.split_once(' ').map_or(line, |(_, line)| line)
    });
    line.split([' ', ',', ';'])
        .find(|word| word.starts_with('%'))
}

/// One place of the pattern, other than it was; what it was and is.
fn damage(random: &mut Random, parts: &mut Parts) -> String {
    let registers: Vec<String> = {
        let text = parts.text();
        let words = text.split(|other: char| !(other.is_alphanumeric() || other == '%'));
        let all = words.filter(|word| word.starts_with('%') && word.len() > 2);
        all.map(str::to_owned).collect()
    };
    loop {
        let which = random.below(12);
        let turns = matches!(which, 5 | 7 | 8);
        let counts = matches!(which, 6 | 9 | 10);
        let section = match which {
            0 => &mut parts.pre,
            1 | 2 => &mut parts.short_before,
            3 | 4 => &mut parts.long_before,
            5 => &mut parts.short,
            6 => &mut parts.middle,
            7 | 8 => &mut parts.long,
            9 => &mut parts.count,
            10 => &mut parts.up,
            _ => &mut parts.pre,
        };
        let at = random.below(section.len() + 1);
        let line = section.get(at).cloned().unwrap_or_default();
        let is_count = written(&line).is_some_and(|register| COUNT.contains(&register));
        let what = random.below(10);
        let new = match what {
            0..=2 => {
                // Another number.
                let all: Vec<&str> = line
                    .trim_end_matches(';')
                    .split([',', '+', ']'])
                    .map(str::trim)
                    .filter(|word| word.parse::<i64>().is_ok())
                    .collect();
                let Some(old) = all.last() else { continue };
                let number: i64 = old.parse().unwrap_or_default();
                let other = [
                    number + 1,
                    number - 1,
                    number + 4,
                    number - 32,
                    number * 2,
                    -number,
                    0,
                    number + 128,
                ][random.below(8)];
                if other == number || is_count && (other <= 0 || which == 5) {
                    continue;
                }
                let at = line.rfind(*old).unwrap_or(0);
                format!("{}{other}{}", &line[..at], &line[at + old.len()..])
            }
            3 => {
                // In another order.
                if at + 1 >= section.len() {
                    continue;
                }
                section.swap(at, at + 1);
                return format!("swapped {line}");
            }
            4 if !is_count && !line.is_empty() => String::new(),
            5 if which != 10 => format!("{line} {line}"),
            6 if !counts && !line.is_empty() => {
                // Another register.
                let all: Vec<&str> = line
                    .split(|other: char| !(other.is_alphanumeric() || other == '%'))
                    .filter(|word| word.starts_with('%'))
                    .collect();
                let Some(old) = all.get(random.below(all.len().max(1))) else {
                    continue;
                };
                let class = |name: &str| name.trim_end_matches(char::is_numeric).to_owned();
                let other = &registers[random.below(registers.len())];
                let is_written = written(&line) == Some(*old);
                if class(other) != class(old)
                    || other == old
                    || is_written && (COUNT.contains(&other.as_str()) || is_count)
                {
                    continue;
                }
                let at = line.find(*old).unwrap_or(0);
                format!("{}{other}{}", &line[..at], &line[at + old.len()..])
            }
            7 => {
                let (from, to) = [
                    ("add.s32", "sub.s32"),
                    ("add.f32", "sub.f32"),
                    (".u32", ".s32"),
                    (".s32", ".u32"),
                    (".gt", ".ge"),
                    (".nc", ""),
                    ("shr.u32", "shr.s32"),
                    ("setp.lt", "setp.le"),
                    ("and.b32", "or.b32"),
                    ("%p6,", "%p6|%p9,"),
                    ("%p3,", "%p3|%p9,"),
                ][random.below(11)];
                if !line.contains(from) || is_count && from.contains("add") {
                    continue;
                }
                line.replacen(from, to, 1)
            }
            8 if !counts || which == 6 => {
                let more = MORE[random.below(MORE.len())];
                section.insert(at.min(section.len()), more.into());
                return format!("new in {which}: {more}");
            }
            9 if !turns && !counts => {
                let label = format!("X{}", parts.name);
                let new = match random.below(4) {
                    0 => format!("bra {label}; {label}:"),
                    1 => format!("@%p9 bra {label}; {label}:"),
                    // Not back: that would go on for ever.
                    2 if which < 3 => format!("@%p9 bra MID{};", parts.name),
                    _ => format!("@%p9 bra LONG{};", parts.name),
                };
                section.insert(at, new.clone());
                return format!("new in {which}: {new}");
            }
            _ => continue,
        };
        if at >= section.len() {
            continue;
        }
        section[at].clone_from(&new);
        return format!("{line} -> {new}");
    }
}

/// A body of some pairs, of which one is damaged or none; how many there are, whether they store,
/// and how far they go.
struct Case {
    body: String,
    pairs: u32,
    stores: bool,
    step: u32,
    what: String,
}

fn case(random: &mut Random, damaged: bool) -> Case {
    let log = [1, 2, 3, 4, 5, 5, 5, 6, 7, 8, 9][random.below(11)];
    let stores = log < 6 && random.below(2) == 0;
    let pairs = 1 + random.below(5) / 3;
    let is_hit = random.below(pairs);
    let strides = ["7", "500", "0x01000193", "0x10000000", "-3", "0"];
    let mut body = format!("mov.u32 %r11, {};\n", strides[random.below(6)]);
    let outer = random.below(5) == 0;
    if outer {
        body += "mov.u32 %r49, 0;\nOUT:\n";
    }
    let (mut temps, mut what) = (100, String::new());
    for at in 0..pairs {
        let (mut parts, next) = pair(random, &at.to_string(), temps, stores, log);
        temps = next;
        if damaged && at == is_hit {
            for _ in 0..1 + random.below(5) / 4 {
                what += &damage(random, &mut parts);
                what += "\n";
            }
        }
        body += &parts.text();
    }
    if outer {
        body += "add.u32 %r49, %r49, 1; setp.lt.u32 %p20, %r49, 3;\n@%p20 bra OUT;\n";
    }
    Case {
        body,
        pairs: pairs as u32,
        stores,
        step: 1 << log,
        what,
    }
}

fn launch(random: &mut Random, case: &Case) -> Launch {
    let most = if case.stores {
        440
    } else {
        (14 * case.step).clamp(200, 4600)
    };
    let starts: [u32; 12] = [
        0,
        0,
        0,
        5,
        1000,
        0xffff_ffd8,
        0xffff_fe00,
        0x7ff0_0000 - 200,
        0x7fef_0000,
        0x7fff_ff00,
        0x8000_0000 - 60,
        0x3fff_ff80,
    ];
    let s = starts[random.below(starts.len())];
    let far = match random.below(8) {
        0 => random.below(40) as u32,
        1 => (random.below(10) as u32).wrapping_neg(),
        2 => case.step * random.below(14) as u32 % most,
        _ => random.below(most as usize) as u32,
    };
    let blocks = [1, 5, 8, 31, 32, 33, 64, 100, 128, 256];
    Launch {
        grid: 1 + u32::from(random.below(4) == 0),
        block: blocks[random.below(10)],
        n: s.wrapping_add(far),
        s,
    }
}

/// How many kernels there were, pairs in them, those that are one, launches, faults, those in
/// another thread, and those of them where threads that run by themselves fault too.
#[derive(Default)]
struct Count([AtomicU64; 7]);

impl Count {
    fn add(&self, at: usize, by: u64) {
        self.0[at].fetch_add(by, Ordering::Relaxed);
    }

    fn of(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }
}

/// Whether the loops as they were leave something else where threads run one by one: damage may
/// have several write to one place.
fn races(source: &str, off: &Arc<Module>, launch: Launch) -> bool {
    unrolled::LEAVE.set(true);
    let alone = harness::load_as(source, Form::Rounds);
    unrolled::LEAVE.set(false);
    run(&alone, launch) != run(off, launch)
}

fn random_loops(damaged: bool) -> Count {
    let cases = setting("SOFTCUDA_FUZZ_CASES").map_or(DEFAULT_CASES, |cases| cases / SHARE);
    let alone = setting("SOFTCUDA_FUZZ_CASE").is_some();
    let count = Count::default();
    run_cases(cases, |_, random, _| {
        let case = case(random, damaged);
        let Case { body, what, .. } = &case;
        if alone {
            println!("{what}\n{body}");
        }
        let source = kernel(body);
        // Damage may be such that it is no PTX.
        let options = crate::jit::module::LoadOptions::default();
        if damaged && Module::load(source.as_bytes(), &options).is_err() {
            return Ok(());
        }
        let both = [false, true].map(|leave| load(&source, leave));
        count.add(0, 1);
        count.add(1, u64::from(case.pairs));
        count.add(2, u64::from(rolled(&both)));
        // Both are the same, and may race.
        if rolled(&both) == 0 {
            return Ok(());
        }
        for _ in 0..6 {
            let mut launch = launch(random, &case);
            if damaged {
                // Rows may no longer be apart, and blocks run side by side.
                launch.grid = 1;
            }
            let same = match compare(&both, launch) {
                Ok(same) => same,
                Err(_) if damaged && races(&source, &both[1], launch) => continue,
                Err(error) => {
                    let rolled = rolled(&both);
                    return Err(format!("rolled {rolled} {error}\n{what}\n{body}"));
                }
            };
            count.add(3, 1);
            count.add(4, u64::from(same.faults));
            count.add(5, u64::from(same.elsewhere));
            if same.elsewhere {
                // Whether threads by themselves fault where the loops as they were do.
                let alone = harness::load_as(&source, Form::Rounds);
                count.add(6, u64::from(run(&alone, launch) == run(&both[1], launch)));
            }
        }
        Ok(())
    });
    println!(
        "{} kernels, {} pairs, {} of them rolled, {} launches, {} faults, {} in another thread, of which {} as by themselves",
        count.of(0),
        count.of(1),
        count.of(2),
        count.of(3),
        count.of(4),
        count.of(5),
        count.of(6)
    );
    count
}

#[test]
fn random_pairs_do_the_same() {
    let count = random_loops(false);
    if setting("SOFTCUDA_FUZZ_CASE").is_none() {
        let [pairs, rolled] = [1, 2].map(|at| count.of(at));
        assert!(rolled * 10 > pairs * 7, "{rolled} of {pairs} are rolled");
        let [launches, faults] = [3, 4].map(|at| count.of(at));
        assert!(faults * 2 < launches, "{faults} of {launches} fault");
    }
}

#[test]
fn damaged_pairs_do_the_same() {
    random_loops(true);
}
