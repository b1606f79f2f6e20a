//! `ldmatrix` against a model, in all forms: addresses of every kind, of lanes that are there and
//! of those that are not, in shared memory of all sizes.

use std::sync::atomic::{AtomicU64, Ordering};

use super::fuzz::{Random, run_cases, setting};
use crate::grid::launch::FaultKind;
use crate::jit::harness::{self, buffer};
use crate::jit::module::Form;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Base {
    Word,
    Wide,
    Symbol,
}

struct Case {
    threads: u32,
    fixed: u32,
    dynamic: u32,
    count: usize,
    trans: bool,
    base: Base,
    offset: i64,
    /// Of immediate addresses and symbols.
    number: u64,
    addresses: Vec<u64>,
    exited: u64,
    /// The last of them are not taken.
    sinks: usize,
    form_of_to: usize,
    guard: usize,
    place: usize,
}

fn case(random: &mut Random) -> Case {
    let threads = [
        1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 20, 24, 31, 32, 32, 32, 33, 40, 64,
    ][random.below(20)] as u32;
    let fixed = [0, 0, 8, 16, 24, 30, 40, 100, 512, 1000, 4096][random.below(11)];
    let dynamic = [0, 0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 24, 40, 512, 518][random.below(15)];
    let size = (fixed + dynamic).max(1) as u64;
    let base = [
        Base::Word,
        Base::Word,
        Base::Word,
        Base::Wide,
        Base::Wide,
        Base::Symbol,
        Base::Symbol,
    ][random.below(7)];
    let offset = match random.below(8) {
        0..=2 => 0,
        3 => 16 * (random.below(64) as i64 - 32),
        4 => [-1i64, 1, 4, 8, -8, -16, 16, 48, 32, 15][random.below(10)],
        5 => [
            i64::from(i32::MAX),
            i64::from(i32::MIN),
            -0x1000_0000,
            0x7fff_fff0,
            -0x7fff_fff0,
        ][random.below(5)],
        6 => [
            0x8000_0000i64,
            0xffff_fff0,
            -0x8000_0010,
            0x1_0000_0000,
            -0x1_0000_0000,
        ][random.below(5)],
        _ => 16,
    };
    let mostly = random.below(4);
    let addresses = (0..64)
        .map(|_| {
            let row = 16 * (random.below((size.div_ceil(16) as usize).max(1)) as u64);
            let there = if row + 16 <= size || mostly == 0 {
                row
            } else {
                0
            };
            let wanted = match random.below([4, 1000, 1000, 100000][mostly]) {
                0 => [
                    size,
                    size & !15,
                    size.wrapping_sub(16),
                    8,
                    1,
                    2,
                    0x100_0000,
                    0x200_0010,
                    0x1100_0000,
                    !15,
                    1 << 32,
                    1 << 63,
                    0xffff_fff0,
                ][random.below(13)],
                _ => there,
            };
            let back = wanted.wrapping_sub(offset as u64);
            match base {
                Base::Word => back & 0xffff_ffff,
                _ if random.below(300) == 0 => back | 1 << 40,
                _ => back,
            }
        })
        .collect();
    Case {
        threads,
        fixed,
        dynamic,
        count: [1, 2, 4][random.below(3)],
        trans: random.below(2) == 0,
        base,
        offset,
        number: 16 * random.below(8) as u64 + if random.below(20) == 0 { 4 } else { 0 },
        addresses,
        exited: match random.below(5) {
            0 => wide(random) & wide(random),
            1 => 0xff,
            2 => !0xff_0000_00ff,
            _ => 0,
        },
        sinks: [0, 0, 0, 1, 2][random.below(5)],
        form_of_to: random.below(6),
        guard: random.below(6),
        place: random.below(5),
    }
}

type Fault = (FaultKind, Option<[u32; 3]>);

fn part(address: u64, row: u64, size: u64, shared: &[u8]) -> Result<u32, FaultKind> {
    let total = shared.len() as u64;
    if !address.is_multiple_of(16) {
        return Err(FaultKind::Misaligned);
    }
    let at = address + row;
    if at < total && total - at >= size {
        let mut value = 0;
        for n in 0..size {
            value |= u32::from(shared[(at + n) as usize]) << (8 * n);
        }
        return Ok(value);
    }
    let rank = at >> 24;
    Err(if (1..=16).contains(&rank) {
        FaultKind::IllegalInstruction
    } else {
        FaultKind::IllegalAddress
    })
}

/// What threads take, by their number.
type Taken = Vec<(u32, Vec<u32>)>;

/// What lanes of a warp take, or the first fault.
fn model(case: &Case, warp: u32, shared: &[u8]) -> Result<Taken, (FaultKind, u32)> {
    let there = |lane: u32| {
        let thread = 32 * warp + lane;
        thread < case.threads && case.exited >> thread & 1 == 0
    };
    let address = |lane: u32| match there(lane) {
        false => 0,
        true => match case.base {
            // A sum of 32 bits wraps.
            Base::Word => {
                let own = case.addresses[(32 * warp + lane) as usize];
                u64::from((own as u32).wrapping_add(case.offset as u32))
            }
            Base::Wide => {
                case.addresses[(32 * warp + lane) as usize].wrapping_add(case.offset as u64)
            }
            Base::Symbol => case.number.wrapping_add(case.offset as u64),
        },
    };
    let mut all = vec![];
    for lane in (0..32).filter(|lane| there(*lane)) {
        let mut words = vec![];
        for m in 0..case.count as u32 {
            words.push(match case.trans {
                false => part(
                    address(8 * m + lane / 4),
                    4 * u64::from(lane % 4),
                    4,
                    shared,
                )
                .map_err(|k| (k, lane))?,
                true => {
                    let mut word = 0;
                    for n in 0..2 {
                        let row = 2 * (lane % 4) + n;
                        word |= part(address(8 * m + row), 2 * u64::from(lane / 4), 2, shared)
                            .map_err(|k| (k, lane))?
                            << (16 * n);
                    }
                    word
                }
            });
        }
        all.push((32 * warp + lane, words));
    }
    Ok(all)
}

fn source(case: &Case) -> String {
    let Case {
        threads,
        fixed,
        count,
        offset,
        number,
        ..
    } = *case;
    let trans = if case.trans { ".trans" } else { "" };
    let sign = if offset < 0 {
        format!("+-{}", offset.unsigned_abs())
    } else {
        format!("+{offset}")
    };
    let sign = if offset == 0 { String::new() } else { sign };
    let address = match case.base {
        Base::Word => format!("[%r4{sign}]"),
        Base::Wide => format!("[%rd4{sign}]"),
        Base::Symbol => match (number as i64).wrapping_add(offset) {
            0 => "[s]".into(),
            n if n > 0 => format!("[s+{n}]"),
            n => format!("[s+-{}]", n.unsigned_abs()),
        },
    };
    let names = match case.form_of_to {
        0 => ["%f1", "%f2", "%f3", "%f4"],
        1 => ["%x1", "%x2", "%x3", "%x4"],
        2 if case.base == Base::Word => ["%r4", "%r11", "%r12", "%r13"],
        3 if case.base == Base::Word => ["%r10", "%r4", "%r12", "%r13"],
        4 => ["%i1", "%f2", "%x3", "%r13"],
        _ => ["%r10", "%r11", "%r12", "%r13"],
    };
    let kept = count.saturating_sub(case.sinks).max(1);
    let list: Vec<&str> = (0..count)
        .map(|n| if n < kept { names[n] } else { "_" })
        .collect();
    let list = list.join(", ");
    let guard = match case.guard {
        0 => "@%p1 ",
        1 => "@!%p2 ",
        _ => "",
    };
    let load = format!(
        "{guard}ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{list}}}, {address};"
    );
    let load = match case.place {
        0 => format!(
            "mov.u32 %r20, 0; again: {load} add.u32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 1; @%p4 bra again;"
        ),
        1 => format!("@%p2 bra past; {load} past:"),
        2 => format!(
            "mov.u32 %r21, %tid.x; and.b32 %r21, %r21, 3; setp.eq.u32 %p5, %r21, 1; @%p5 bra odd; add.u32 %r22, %r21, 1; bra both; odd: st.global.u32 [%rd6+16], %r21; both: {load}"
        ),
        _ => load,
    };
    let store: String = (0..kept)
        .map(|n| match names[n].as_bytes()[1] {
            b'f' => format!("st.global.f32 [%rd6+{}], {};", 4 * n, names[n]),
            _ => format!("st.global.b32 [%rd6+{}], {};", 4 * n, names[n]),
        })
        .collect();
    let fixed = if fixed > 0 {
        format!(".shared .align 16 .b8 s[{fixed}];")
    } else {
        String::new()
    };
    let outside = ".extern .shared .align 16 .b8 d[];";
    let symbol = if fixed.is_empty() { "d" } else { "s" };
    let load = load.replace("[s", &format!("[{symbol}"));
    let total = case.fixed + case.dynamic;
    let exits = format!(
        "mov.u64 %rd7, {}; shr.u64 %rd7, %rd7, %r1; and.b64 %rd7, %rd7, 1; setp.ne.u64 %p3, %rd7, 0;",
        case.exited as i64
    );
    let _ = threads;
    harness::module(&format!(
        "{outside}
        .visible .entry k(.param .u64 out, .param .u64 addresses, .param .u64 content, .param .u32 size) {{
            .reg .pred %p<8>; .reg .b32 %r<32>; .reg .f32 %f<8>; .reg .b32 %x<8>; .reg .s32 %i<8>; .reg .b64 %rd<16>;
            .reg .b16 %h<4>; {fixed}
            ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [addresses]; ld.param.u64 %rd3, [content];
            ld.param.u32 %r2, [size];
            mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, %r1; setp.ne.u32 %p2, %r1, %r1;
            mul.wide.u32 %rd6, %r1, 32; add.u64 %rd6, %rd6, %rd1;
            mul.wide.u32 %rd5, %r1, 8; add.u64 %rd5, %rd5, %rd2; ld.global.u64 %rd4, [%rd5]; cvt.u32.u64 %r4, %rd4;
            setp.ne.u32 %p6, %r1, 0; @%p6 bra filled;
            mov.u32 %r5, 0;
            fill: setp.ge.u32 %p6, %r5, %r2; @%p6 bra filled;
            cvt.u64.u32 %rd8, %r5; add.u64 %rd8, %rd8, %rd3; ld.global.u8 %h1, [%rd8]; st.shared.u8 [%r5], %h1;
            add.u32 %r5, %r5, 1; bra fill;
            filled: bar.sync 0;
            mov.u32 %r9, d; add.u32 %r9, %r9, {total};
            {exits} @%p3 exit;
            {load}
            {store}
            ret;
        }}"
    ))
}

#[test]
fn rows_of_a_model() {
    let cases = setting("SOFTCUDA_FUZZ_CASES").unwrap_or(300);
    let [done, faults] = [0, 1].map(|_| AtomicU64::new(0));
    run_cases(cases, |_, random, _| {
        let case = case(random);
        let text = source(&case);
        for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
            let module = harness::load_as(&text, form);
            let kernel = module.kernel("k").unwrap();
            let fixed = kernel.attributes.shared_offset;
            let total = (fixed + case.dynamic) as usize;
            let mut content: Vec<u8> = (0..total.max(1))
                .map(|n| (n * 7 + n / 251 + 1) as u8)
                .collect();
            let shared = content[..total].to_vec();
            let mut out = vec![0xeeu32 * 0x0101_0101; 8 * 64];
            let mut addresses = case.addresses.clone();
            let result = harness::run_in(
                &module,
                "k",
                [1, 1, 1],
                [case.threads, 1, 1],
                case.dynamic,
                &mut [
                    buffer(&mut out),
                    buffer(&mut addresses),
                    buffer(&mut content),
                ],
                &[&(total as u32).to_le_bytes()],
            );
            let warps = case.threads.div_ceil(32);
            let models: Vec<_> = (0..warps).map(|warp| model(&case, warp, &shared)).collect();
            let wanted_faults: Vec<Fault> = (0..warps)
                .zip(&models)
                .filter_map(|(warp, m)| {
                    m.as_ref()
                        .err()
                        .map(|(kind, lane)| (*kind, Some([32 * warp + lane, 0, 0])))
                })
                .collect();
            let describe = || {
                format!(
                    "{form:?} threads {} fixed {} (asked {}) dynamic {} count {} trans {} base {:?} offset {} exited {:x}\n{:x?}\n{text}",
                    case.threads,
                    fixed,
                    case.fixed,
                    case.dynamic,
                    case.count,
                    case.trans,
                    case.base,
                    case.offset,
                    case.exited,
                    case.addresses,
                )
            };
            match result {
                Err(fault) => {
                    faults.fetch_add(1, Ordering::Relaxed);
                    if !wanted_faults.contains(&(fault.kind, fault.thread)) {
                        return Err(format!(
                            "fault {:?} {:?} {:?}, not {wanted_faults:?}: {}",
                            fault.kind,
                            fault.thread,
                            fault.access,
                            describe()
                        ));
                    }
                }
                Ok(()) if !wanted_faults.is_empty() => {
                    return Err(format!("no fault, not {wanted_faults:?}: {}", describe()));
                }
                Ok(()) => {
                    let kept = case.count.saturating_sub(case.sinks).max(1);
                    for (thread, words) in models.into_iter().flatten().flatten() {
                        let got = &out[8 * thread as usize..][..kept];
                        if got != &words[..kept] {
                            return Err(format!(
                                "thread {thread} has {got:x?}, not {words:x?}: {}",
                                describe()
                            ));
                        }
                    }
                }
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let [done, faults] = [done, faults].map(AtomicU64::into_inner);
    assert!(
        cases < 100 || faults > done / 4 && faults < 3 * done,
        "{faults} faults in {done} cases"
    );
}

fn wide(random: &mut Random) -> u64 {
    (0..4).fold(0, |all, _| all << 16 | random.below(1 << 16) as u64)
}

const FORMS: [Form; 3] = [Form::Vectors, Form::Rounds, Form::Fibers];

/// Of rows of which a part is there, those that take that part alone read it.
#[test]
fn rows_of_which_a_part_is_there() {
    for (threads, matrix) in [(2, "x1"), (16, "x1.trans")] {
        let source = harness::module(&format!(
            ".extern .shared .align 16 .b8 d[];
            .visible .entry k(.param .u64 out) {{
                .reg .b32 %r<8>; .reg .b64 %rd<4>;
                ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x;
                mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd2, %rd1;
                mov.u32 %r2, d; mov.u32 %r4, 0x10001;
                st.shared.b32 [%r2], %r4; st.shared.b32 [%r2+4], %r4; bar.sync 0;
                ldmatrix.sync.aligned.m8n8.{matrix}.shared.b16 {{%r3}}, [%r2];
                st.global.u32 [%rd2], %r3; ret;
            }}"
        ));
        for form in FORMS {
            let module = harness::load_as(&source, form);
            let mut out = vec![0u32; threads as usize];
            let (grid, block) = ([1, 1, 1], [threads, 1, 1]);
            harness::run_in(&module, "k", grid, block, 8, &mut [buffer(&mut out)], &[]).unwrap();
            assert_eq!(out, vec![0x10001; threads as usize], "{form:?} {threads}");
        }
    }
}

/// Lanes store a row and read others' with no barrier, again and again.
#[test]
fn rows_stored_and_read_in_turns() {
    for threads in [32u32, 64, 96] {
        for (name, before, inside) in [
            ("plain", "", ""),
            (
                "apart",
                "and.b32 %r20, %r1, 3; setp.eq.u32 %p4, %r20, 1;",
                "@%p4 bra odd; add.u32 %r21, %r21, %r1; bra both; odd: st.global.u32 [%rd2+1024], %r1; ld.global.u32 %r22, [%rd2+1024]; add.u32 %r21, %r21, %r22; both:",
            ),
            (
                "loop",
                "and.b32 %r20, %r1, 3;",
                "mov.u32 %r23, 0; turn: ld.volatile.global.u32 %r22, [%rd2+1024]; add.u32 %r21, %r21, %r22; add.u32 %r23, %r23, 1; setp.lt.u32 %p4, %r23, %r20; @%p4 bra turn;",
            ),
        ] {
            for trans in ["", ".trans"] {
                let source = harness::module(&format!(
                    ".visible .entry k(.param .u64 out) {{ .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<8>;
                    .shared .align 16 .b8 s[2048];
                    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd2, %rd1;
                    mov.u32 %r2, s; shl.b32 %r3, %r1, 4; add.u32 %r2, %r2, %r3; mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r21, 0;
                    mad.lo.u32 %r4, %r1, 0x9e3779b9, 7; mov.u32 %r9, %r1;
                    {before}
                    again:
                    xor.b32 %r5, %r4, 0x55; add.u32 %r6, %r4, %r10; mul.lo.u32 %r7, %r4, 3;
                    st.shared.v4.b32 [%r2], {{%r4, %r5, %r6, %r7}};
                    {inside}
                    ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r2];
                    mad.lo.u32 %r9, %r9, 31, %r4; mad.lo.u32 %r9, %r9, 31, %r5; mad.lo.u32 %r9, %r9, 31, %r6; mad.lo.u32 %r9, %r9, 31, %r7;
                    add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 9; @%p1 bra again;
                    add.u32 %r9, %r9, %r21; st.global.u32 [%rd2], %r9; ret; }}"
                ));
                // What it must be.
                let mut wanted = vec![];
                for warp in 0..threads / 32 {
                    let id = |lane: u32| 32 * warp + lane;
                    let mut four: Vec<u32> = (0..32)
                        .map(|l| id(l).wrapping_mul(0x9e37_79b9).wrapping_add(7))
                        .collect();
                    let mut hash: Vec<u32> = (0..32).map(id).collect();
                    for turn in 0..9u32 {
                        let rows: Vec<[u32; 4]> = four
                            .iter()
                            .map(|r4| [*r4, r4 ^ 0x55, r4.wrapping_add(turn), r4.wrapping_mul(3)])
                            .collect();
                        let element = |m: usize, row: usize, column: usize| {
                            rows[8 * m + row][column / 2] >> (16 * (column % 2)) & 0xffff
                        };
                        for lane in 0..32 {
                            let (g, t) = (lane / 4, 2 * (lane % 4));
                            let word = |m| match trans {
                                "" => element(m, g, t) | element(m, g, t + 1) << 16,
                                _ => element(m, t, g) | element(m, t + 1, g) << 16,
                            };
                            for m in 0..4 {
                                hash[lane] = hash[lane].wrapping_mul(31).wrapping_add(word(m));
                            }
                            four[lane] = word(0);
                        }
                    }
                    for lane in 0..32 {
                        let more = match name {
                            "plain" => 0,
                            "apart" => 9 * id(lane),
                            _ => 0,
                        };
                        wanted.push(hash[lane as usize].wrapping_add(more));
                    }
                }
                for form in FORMS {
                    let module = harness::load_as(&source, form);
                    let mut out = vec![0u32; 1024];
                    harness::run_in(
                        &module,
                        "k",
                        [1, 1, 1],
                        [threads, 1, 1],
                        0,
                        &mut [buffer(&mut out)],
                        &[],
                    )
                    .unwrap();
                    assert_eq!(
                        out[..threads as usize],
                        wanted[..],
                        "{form:?} {threads} {name} {trans}"
                    );
                }
            }
        }
    }
}

/// In a function that the kernel calls, from a branch, and with others' addresses in a cluster.
#[test]
fn rows_in_functions_and_clusters() {
    let fill = "mov.u32 %r2, s; shl.b32 %r3, %r1, 4; add.u32 %r2, %r2, %r3; mul.lo.u32 %r4, %r1, 0x01010101; xor.b32 %r5, %r4, 0x55; st.shared.v4.b32 [%r2], {%r4, %r5, %r4, %r5}; bar.sync 0;";
    let head = |body: &str, func: &str| {
        harness::module(&format!(
        ".shared .align 16 .b8 s[2048];
        {func}
        .visible .entry k(.param .u64 out) {{ .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<8>;
        ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd2, %rd1;
        {fill} {body} st.global.u32 [%rd2], %r9; ret; }}"
    ))
    };
    let plain = head(
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r8, %r9}, [%r2+16]; mad.lo.u32 %r9, %r9, 31, %r8;",
        "",
    );
    let func = ".func (.reg .b32 %o) f(.reg .b32 %a) { .reg .b32 %x<4>; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%x1, %x2}, [%a+16]; mad.lo.u32 %o, %x2, 31, %x1; ret; }";
    let called = head("call (%r9), f, (%r2);", func);
    let mut results = vec![];
    for source in [&plain, &called] {
        for form in FORMS {
            for threads in [16u32, 32, 40, 64] {
                let module = harness::load_as(source, form);
                let mut out = vec![0u32; 64];
                harness::run_in(
                    &module,
                    "k",
                    [1, 1, 1],
                    [threads, 1, 1],
                    0,
                    &mut [buffer(&mut out)],
                    &[],
                )
                .unwrap();
                results.push((threads, out));
            }
        }
    }
    for at in 0..results.len() {
        assert_eq!(results[at], results[at % 4], "{at}");
    }
    // Blamed in a function.
    let called = head(
        "setp.eq.u32 %p1, %r1, 13; @%p1 mov.u32 %r2, 0x7fff0; call (%r9), f, (%r2);",
        func,
    );
    for form in FORMS {
        let module = harness::load_as(&called, form);
        let mut out = vec![0u32; 64];
        let (grid, block) = ([1, 1, 1], [32, 1, 1]);
        let fault = harness::run_in(&module, "k", grid, block, 0, &mut [buffer(&mut out)], &[]);
        let fault = fault.expect_err("a row is not there");
        // Row 5 of the second matrix.
        assert_eq!(fault.kind, FaultKind::IllegalAddress, "{form:?}");
        assert_eq!(fault.thread, Some([20, 0, 0]), "{form:?}");
        assert_eq!(fault.access, Some((0x80000, 4)), "{form:?}");
    }
}

/// Under a guard that differs from lane to lane, in whole warps, and where who does not come ends.
#[test]
fn rows_under_guards() {
    for threads in [32u32, 40, 64] {
        for guard in [
            "setp.lt.u32 %p1, %r1, 32;",
            "setp.lt.u32 %p1, %r1, 20;",
            "setp.ge.u32 %p1, %r1, 9;",
            "and.b32 %r9, %r1, 1; setp.ne.u32 %p1, %r9, 0;",
            "setp.eq.u32 %p1, %r1, 77;",
        ] {
            for bad in [
                "",
                "setp.eq.u32 %p3, %r1, 13; @%p3 mov.u32 %r2, 0x7fff0;",
                "setp.eq.u32 %p3, %r1, 13; @%p3 add.u32 %r2, %r2, 8;",
            ] {
                for trans in ["", ".trans"] {
                    let source = harness::module(&format!(
                    ".visible .entry k(.param .u64 out) {{ .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<8>;
                    .shared .align 16 .b8 s[2048];
                    ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd2, %rd1;
                    mov.u32 %r2, s; shl.b32 %r3, %r1, 4; add.u32 %r2, %r2, %r3; mov.u32 %r10, %r1; mov.u32 %r11, 5;
                    st.shared.v4.b32 [%r2], {{%r1, %r2, %r3, %r1}}; bar.sync 0; {guard} {bad}
                    @%p1 ldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 {{%r10, %r11}}, [%r2];
                    mad.lo.u32 %r10, %r10, 31, %r11; st.global.u32 [%rd2], %r10; ret; }}"
                ));
                    let got = FORMS.map(|form| {
                        let module = harness::load_as(&source, form);
                        let mut out = vec![0u32; 64];
                        let result = harness::run_in(
                            &module,
                            "k",
                            [1, 1, 1],
                            [threads, 1, 1],
                            0,
                            &mut [buffer(&mut out)],
                            &[],
                        );
                        match result {
                            Ok(()) => (out, None),
                            Err(f) => (vec![], Some((f.kind, f.thread, f.access))),
                        }
                    });
                    assert!(
                        got[0] == got[1] && got[1] == got[2],
                        "{threads} {guard} {bad}: {got:?}"
                    );
                }
            }
        }
    }
}
