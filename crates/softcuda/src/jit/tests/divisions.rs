//! Divisions of what is the same in all threads, and of what counts up from thread to thread, by
//! what is the same: as PTX says, and where it leaves them open, as an H200 does it.

use crate::jit::harness::{self, buffer};
use crate::jit::module::Form;

const THREADS: u32 = 32;

/// Numbers beside those where something changes.
fn numbers(bits: u32) -> Vec<u64> {
    let mask = u64::MAX >> (64 - bits);
    let edges = [0, 10, 64, mask >> 2, mask >> 1, mask ^ mask >> 2];
    let near = |edge: u64| [-33, -9, -2, -1, 0, 1, 7, 24].map(|by| edge.wrapping_add_signed(by));
    let mut numbers: Vec<u64> = edges
        .into_iter()
        .flat_map(near)
        .map(|number| number & mask)
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Quotient and remainder.
fn divided(a: u64, b: u64, bits: u32, signed: bool) -> [u64; 2] {
    let shift = 64 - bits;
    let mask = u64::MAX >> shift;
    if b == 0 {
        return [mask; 2];
    }
    if !signed {
        return [a / b, a % b];
    }
    let [a, b] = [a, b].map(|number| (number << shift) as i64 >> shift);
    [a.wrapping_div(b), a.wrapping_rem(b)].map(|number| number as u64 & mask)
}

/// All pairs by all divisions: `row` is added to the dividend, times the thread's number.
fn check(bits: u32, signed: bool, row: u64) {
    let numbers = numbers(bits);
    let pairs: Vec<[u64; 2]> = numbers
        .iter()
        .flat_map(|a| numbers.iter().map(|b| [*a, *b]))
        .collect();
    let ty = format!("{}{bits}", if signed { 's' } else { 'u' });
    // The addresses are what tells that neighbours are in one row.
    let source = harness::module(&format!(
        ".visible .entry k(.param .u64 pairs, .param .u64 out, .param .u32 count)
        {{
            .reg .b64 %pairs, %out, %at, %step; .reg .b32 %count, %me; .reg .pred %p;
            .reg .b{bits} %a, %b, %more, %q, %r;
            ld.param.u64 %pairs, [pairs]; ld.param.u64 %out, [out]; ld.param.u32 %count, [count];
            mov.u32 %me, %tid.x; cvt.u{bits}.u32 %more, %me; mul.lo.u{bits} %more, %more, {row};
            mul.wide.u32 %at, %me, {size}; add.u64 %out, %out, %at;
            again: ld.global.b{bits} %a, [%pairs]; ld.global.b{bits} %b, [%pairs+8];
            add.u{bits} %a, %a, %more;
            div.{ty} %q, %a, %b; rem.{ty} %r, %a, %b;
            st.global.b{bits} [%out], %q; st.global.b{bits} [%out+{all}], %r;
            add.u64 %pairs, %pairs, 16; add.u64 %out, %out, {next};
            sub.u32 %count, %count, 1; setp.ne.u32 %p, %count, 0; @%p bra again;
            ret;
        }}",
        size = bits / 8,
        all = bits / 8 * THREADS,
        next = bits / 8 * THREADS * 2,
    ));
    let (size, mask) = (bits as usize / 8, u64::MAX >> (64 - bits));
    let expected: Vec<u8> = pairs
        .iter()
        .flat_map(|[a, b]| {
            let threads = (0..u64::from(THREADS)).map(|n| a.wrapping_add(n * row) & mask);
            let both: Vec<[u64; 2]> = threads.map(|a| divided(a, *b, bits, signed)).collect();
            [0, 1].map(|which| {
                both.iter()
                    .map(move |both| both[which])
                    .collect::<Vec<u64>>()
            })
        })
        .flatten()
        .flat_map(|number| number.to_le_bytes()[..size].to_vec())
        .collect();
    for form in [Form::Vectors, Form::Rounds, Form::Fibers] {
        let mut out = vec![0u8; expected.len()];
        let mut input: Vec<u64> = pairs.iter().flatten().copied().collect();
        let buffers: &mut [&mut [u8]] = &mut [buffer(&mut input), buffer(&mut out)];
        let count = (pairs.len() as u32).to_le_bytes();
        let module = harness::load_as(&source, form);
        let block = [THREADS, 1, 1];
        harness::run_in(&module, "k", [1; 3], block, 0, buffers, &[&count]).unwrap();
        let at = out
            .iter()
            .zip(&expected)
            .position(|(got, expected)| got != expected);
        let what = at.map(|at| {
            let of_pair = size * THREADS as usize * 2;
            (pairs[at / of_pair], at % of_pair / size)
        });
        assert_eq!(what, None, "{form:?} {ty}, {row} a thread: pair and place");
    }
}

#[test]
fn of_what_is_the_same_in_all_threads() {
    for bits in [16, 32, 64] {
        for signed in [false, true] {
            check(bits, signed, 0);
        }
    }
}

#[test]
fn of_what_counts_up() {
    for bits in [16, 32, 64] {
        for signed in [false, true] {
            for row in [1, 3] {
                check(bits, signed, row);
            }
        }
    }
}

/// Rows that go round, whose addresses tell that neighbours are in one row: shifted by any number
/// of columns, by rows of all lengths.
#[test]
fn of_columns_that_go_round() {
    for ty in ["u32", "s32"] {
        let body = |operations: &str| {
            let operations = operations.replace("ty", ty);
            format!(
                "mov.u32 %r24, 5; and.b32 %r20, %r3, 63; shr.u32 %r21, %r3, 6;
                add.u32 %r22, %r1, %r20; {operations} setp.gt.u32 %p1, %r23, 63; @%p1 bra far;
                mul.wide.u32 %rd4, %r23, 4; add.u64 %rd4, %rd2, %rd4; ld.global.u32 %r24, [%rd4];
                far: mad.lo.u32 %r9, %r23, 31, %r24;"
            )
        };
        for operations in [
            "rem.ty %r23, %r22, %r21;",
            "sub.u32 %r22, %r22, 33; rem.ty %r23, %r22, %r21;",
            "sub.u32 %r22, %r22, 163; rem.ty %r23, %r22, %r21; add.ty %r23, %r23, %r21;",
            "sub.u32 %r22, %r22, 163; div.ty %r23, %r22, %r21; add.ty %r23, %r23, 3;",
            "add.u32 %r22, %r22, %r21; rem.ty %r23, %r22, %r21;",
            "div.ty %r23, %r22, %r21;",
            "sub.u32 %r22, %r22, 33; div.ty %r23, %r22, %r21;",
            "div.ty %r23, %r22, %r21; mul.lo.u32 %r25, %r23, %r21; sub.u32 %r26, %r22, %r25;
            mad.lo.u32 %r23, %r26, 3, %r23;",
        ] {
            let body = body(operations);
            for length in [
                0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 40, 63, 64, 65, 70, 90, 100,
            ] {
                for by in [0, 1, 7, 31, 63] {
                    super::forms::same(&body, [64, 1, 1], length << 6 | by).unwrap();
                }
            }
        }
    }
}
