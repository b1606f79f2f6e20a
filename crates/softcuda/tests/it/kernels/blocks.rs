//! `barriers.cu`, `cooperative.cu`: threads of a block, and of the grid, that wait for each other.

use super::case::{Case, Ptx, args};
use super::input::Inputs;

const BARRIERS: Ptx = super::ptx!("barriers");
const COOPERATIVE: Ptx = super::ptx!("cooperative");

super::cases! {
    barrier_votes, producer_consumer, named_pairs, spin_flag, spin_lock, exited_threads, grid_sync_loop, tiles,
    coalesced_filter, labeled_groups,
}

fn barrier_votes(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let mut values = inputs.make(480, |s| s.below(1000) as i32);
    values[96..192].iter_mut().for_each(|v| *v = 3 + *v % 900);
    values[192..288].fill(995);
    values[288..384].iter_mut().for_each(|v| *v = 901 + *v % 90);
    let mut case = Case::new(name, BARRIERS);
    let (input, out) = (case.input(&values), case.output::<i32>(6 * 480));
    let block = |v: &[i32]| {
        let row = [
            v.iter().filter(|v| **v > 500).count() as i32,
            v.iter().all(|v| *v > 2) as i32,
            v.iter().any(|v| *v > 990) as i32,
            v.iter().filter(|v| **v & 1 == 1).count() as i32,
            v.iter().all(|v| *v > 1) as i32,
            v.iter().any(|v| *v <= 900) as i32,
        ];
        v.iter().flat_map(|_| row).collect::<Vec<i32>>()
    };
    case.columns(out, 6);
    case.expect(
        out,
        &values.chunks(96).flat_map(block).collect::<Vec<i32>>(),
    );
    case.launch(name, 5, 96, args![input, out]);
    case
}

fn producer_consumer(name: &'static str) -> Case {
    let rounds = 9usize;
    let values = Inputs::new(name).make(64 * rounds, |s| s.next() as i32);
    let mut case = Case::new(name, BARRIERS);
    let (input, out) = (case.input(&values), case.output::<i32>(64));
    let thread = |t: usize| {
        (0..rounds).fold(0i32, |sum, r| {
            sum.wrapping_mul(31).wrapping_add(values[r * 64 + 63 - t])
        })
    };
    case.expect(out, &(0..64).map(thread).collect::<Vec<i32>>());
    case.launch(name, 1, 128, args![input, out, rounds as i32]);
    case
}

fn named_pairs(name: &'static str) -> Case {
    let values = Inputs::new(name).make(256, |s| s.next() as i32);
    let mut case = Case::new(name, BARRIERS);
    let (input, out) = (case.input(&values), case.output::<i32>(256));
    let mut expected = values.clone();
    for pair in 0..4 {
        for _ in 0..=pair {
            let before = expected.clone();
            for i in pair * 64..(pair + 1) * 64 {
                expected[i] = before[i].wrapping_mul(3).wrapping_add(before[i ^ 32]);
            }
        }
    }
    case.expect(out, &expected);
    case.launch(name, 1, 256, args![input, out]);
    case
}

fn spin_flag(name: &'static str) -> Case {
    let mut case = Case::new(name, BARRIERS);
    let (input, out) = (case.input(&[21i32]), case.output::<i32>(1));
    case.expect(out, &[43i32]);
    case.launch(name, 1, 64, args![input, out]);
    case
}

fn spin_lock(name: &'static str) -> Case {
    let mut case = Case::new(name, BARRIERS);
    let (lock, pair) = (case.inout(&[0u32]), case.inout(&[5u32, 0]));
    case.expect(lock, &[0u32]);
    case.expect(pair, &[5 + 48, 47 * 48 / 2u32]);
    case.launch(name, 48, 32, args![lock, pair]);
    case
}

fn exited_threads(name: &'static str) -> Case {
    let values = Inputs::new(name).make(128, |s| s.below(1000) as i32);
    let mut case = Case::new(name, BARRIERS);
    let (input, out) = (case.input(&values), case.output::<i32>(128));
    let second: Vec<i32> = (0..96).map(|t| values[t] + values[95 - t]).collect();
    let mut expected: Vec<i32> = (0..64).map(|t| second[t] + second[63 - t]).collect();
    expected.resize(128, 0xa5a5_a5a5u32 as i32);
    case.expect(out, &expected);
    case.launch(name, 1, 128, args![input, out]);
    case
}

fn grid_sync_loop(name: &'static str) -> Case {
    let (n, rounds) = (1000usize, 12u32);
    let values = Inputs::new(name).words32(n);
    let mut case = Case::new(name, COOPERATIVE);
    let (a, b) = (case.inout(&values), case.output::<u32>(n));
    let (mut from, mut to) = (values, vec![0; n]);
    for r in 0..rounds {
        for i in 0..n {
            let source = from[(i * 97 + r as usize) % n];
            to[i] = source
                .wrapping_mul(1664525)
                .wrapping_add(1013904223)
                .wrapping_add(r);
        }
        std::mem::swap(&mut from, &mut to);
    }
    case.expect(a, &from);
    case.expect(b, &to);
    case.launch(name, 6, 64, args![a, b, n as u32, rounds])
        .cooperative();
    case
}

fn tiles(name: &'static str) -> Case {
    let values = Inputs::new(name).make(128, |s| s.below(2400) as i32 - 1200);
    let mut case = Case::new(name, COOPERATIVE);
    let (input, out) = (case.input(&values), case.output::<i32>(12 * 128));
    let mut expected = Vec::new();
    for (i, &v) in values.iter().enumerate() {
        let tile = &values[i / 8 * 8..i / 8 * 8 + 8];
        let warp = &values[i / 32 * 32..i / 32 * 32 + 32];
        let rank = i % 8;
        expected.extend([
            tile[3],
            if rank >= 2 { tile[rank - 2] } else { v },
            if rank < 7 { tile[rank + 1] } else { v },
            tile[rank ^ 5],
            tile.iter().any(|v| *v > 1000) as i32,
            tile.iter().all(|v| *v > -1000) as i32,
            tile.iter()
                .enumerate()
                .fold(0, |m, (i, v)| m | (v & 1) << i),
            tile.iter().sum(),
            *tile.iter().max().expect("eight lanes"),
            tile[..=rank].iter().sum(),
            (i % 64 / 8 * 100 + rank) as i32,
            *warp.iter().min().expect("32 lanes"),
        ]);
    }
    case.columns(out, 12);
    case.expect(out, &expected);
    case.launch(name, 2, 64, args![input, out]);
    case
}

fn coalesced_filter(name: &'static str) -> Case {
    let values = Inputs::new(name).make(200, |s| s.below(100) as i32);
    let mut case = Case::new(name, COOPERATIVE);
    let (input, count, counted) = (
        case.input(&values),
        case.inout(&[0i32]),
        case.output::<i32>(200),
    );
    case.expect(
        count,
        &[values.iter().filter(|v| *v % 3 == 0).count() as i32],
    );
    case.expect(
        counted,
        &values
            .iter()
            .map(|v| if v % 3 == 0 { 1 } else { -1 })
            .collect::<Vec<i32>>(),
    );
    case.launch(name, 2, 128, args![input, count, counted, 200u32]);
    case
}

fn labeled_groups(name: &'static str) -> Case {
    let values = Inputs::new(name).make(128, |s| s.next() as u32);
    let mut case = Case::new(name, COOPERATIVE);
    let (input, out) = (case.input(&values), case.output::<u32>(256));
    let mut expected = Vec::new();
    for warp in values.chunks(32) {
        for (i, v) in warp.iter().enumerate() {
            let same = |w: &&u32| *w % 5 == v % 5;
            let size = warp.iter().filter(same).count() as u32;
            let rank = warp[..i].iter().filter(same).count() as u32;
            expected.extend([
                size * 100 + rank,
                warp.iter()
                    .filter(same)
                    .fold(0u32, |s, w| s.wrapping_add(*w)),
            ]);
        }
    }
    case.columns(out, 2);
    case.expect(out, &expected);
    case.launch(name, 2, 64, args![input, out]);
    case
}
