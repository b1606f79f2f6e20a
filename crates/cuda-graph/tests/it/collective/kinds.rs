//! Every kind, element and reduction, with counts around every boundary, beside a plain reference.

use std::fmt::Debug;
use std::time::Duration;

use cuda_graph::{Buffer, CollectiveOp, Element, Error, Exec, Graph, PinnedBuffer, Reduction};

use super::{Rank, ranks, ranks_on, run};
use crate::fixture::on_devices;

/// An element that the tests compute with.
trait Number: Element + PartialEq + Debug {
    /// A value made of a number.
    fn of(number: u64) -> Self;

    /// The reduction of values, in their order.
    fn reduced(values: &[Self], reduction: Reduction) -> Self;
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl Number for $type {
            fn of(number: u64) -> Self {
                number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) as $type
            }

            fn reduced(values: &[Self], reduction: Reduction) -> Self {
                let sum = || values.iter().fold(0, |sum: $type, value| sum.wrapping_add(*value));
                match reduction {
                    Reduction::Sum => sum(),
                    Reduction::Product => {
                        values.iter().fold(1, |all: $type, value| all.wrapping_mul(*value))
                    }
                    Reduction::Min => *values.iter().min().expect("there is one"),
                    Reduction::Max => *values.iter().max().expect("there is one"),
                    _ => sum() / values.len() as $type,
                }
            }
        }
    )+};
}

integers!(u8, i8, u32, i32, u64, i64);

macro_rules! floats {
    ($($type:ty as $over:ty: $made:expr, $wide:expr, $back:expr;)+) => {$(
        impl Number for $type {
            fn of(number: u64) -> Self {
                // Of very different sizes: another order gives another sum.
                let part = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as i32 - (1 << 23);
                let scale = [1e-3, 1.0, 7.0, 1e3][number as usize % 4];
                $made(f64::from(part) * scale / f64::from(1 << 22))
            }

            fn reduced(values: &[Self], reduction: Reduction) -> Self {
                let mut wide = values.iter().map(|value| $wide(*value));
                let first = wide.next().expect("there is one");
                let count = values.len() as $over;
                $back(match reduction {
                    Reduction::Sum => wide.fold(first, |a, b| a + b),
                    Reduction::Product => wide.fold(first, |a, b| a * b),
                    Reduction::Min => wide.fold(first, |a, b| a.min(b)),
                    Reduction::Max => wide.fold(first, |a, b| a.max(b)),
                    _ => wide.fold(first, |a, b| a + b) / count,
                })
            }
        }
    )+};
}

floats! {
    f32 as f32: |value: f64| value as f32, |value: f32| value, |value: f32| value;
    f64 as f64: |value: f64| value, |value: f64| value, |value: f64| value;
    half::f16 as f32: half::f16::from_f64, |value: half::f16| value.to_f32(), half::f16::from_f32;
    half::bf16 as f32: half::bf16::from_f64, |value: half::bf16| value.to_f32(), half::bf16::from_f32;
}

/// What rank `rank` gives: `count` values.
fn given<T: Number>(rank: u32, count: usize) -> Vec<T> {
    let value = |i| T::of(1 + u64::from(rank) * 1_000_003 + i as u64);
    (0..count).map(value).collect()
}

/// The kinds, with what each needs to know.
#[derive(Clone, Copy, Debug)]
enum Does {
    AllReduce(Reduction),
    Broadcast(u32),
    Reduce(Reduction, u32),
    AllGather,
    ReduceScatter(Reduction),
}

impl Does {
    /// The elements that a rank of `size` gives and gets, for `count`.
    fn lengths(self, count: usize, size: usize) -> (usize, usize) {
        match self {
            Does::AllGather => (count, count * size),
            Does::ReduceScatter(_) => (count * size, count),
            _ => (count, count),
        }
    }

    fn op<T: Number>(self, rank: &Rank, to: &Buffer<T>, from: &Buffer<T>) -> CollectiveOp {
        let rank = &rank.communicator;
        match self {
            Does::AllReduce(by) => CollectiveOp::all_reduce(rank, to, from, by),
            Does::Broadcast(root) => CollectiveOp::broadcast(rank, to, from, root),
            Does::Reduce(by, root) => CollectiveOp::reduce(rank, to, from, by, root),
            Does::AllGather => CollectiveOp::all_gather(rank, to, from),
            Does::ReduceScatter(by) => CollectiveOp::reduce_scatter(rank, to, from, by),
        }
        .expect("it can be made")
    }

    /// What a rank gets of what all give; `before` is what it had.
    fn expected<T: Number>(self, all: &[Vec<T>], rank: usize, before: Vec<T>) -> Vec<T> {
        let reduced = |i: usize, by| {
            let values: Vec<T> = all.iter().map(|values| values[i]).collect();
            T::reduced(&values, by)
        };
        let len = before.len();
        match self {
            Does::AllReduce(by) => (0..len).map(|i| reduced(i, by)).collect(),
            Does::Broadcast(root) => all[root as usize].clone(),
            Does::Reduce(by, root) if root as usize == rank => {
                (0..len).map(|i| reduced(i, by)).collect()
            }
            Does::Reduce(..) => before,
            Does::AllGather => all.concat(),
            Does::ReduceScatter(by) => (0..len).map(|i| reduced(rank * len + i, by)).collect(),
        }
    }
}

/// Runs one collective, and once more with other values, and compares bit by bit.
#[track_caller]
fn check<T: Number>(ranks: &[Rank], does: Does, count: usize, in_place: bool) {
    let size = ranks.len();
    let (gives, gets) = does.lengths(count, size);
    let mut execs: Vec<Exec> = Vec::new();
    let mut memory = Vec::new();
    for (number, rank) in ranks.iter().enumerate() {
        // In place, the smaller side is this rank's part of the larger.
        let whole = Buffer::<T>::zeroed(&rank.stream, gives.max(gets)).expect("memory");
        let part = |len: usize| match gives == gets || len > count {
            true => whole.clone(),
            false => whole
                .slice(number * count..(number + 1) * count)
                .expect("a part"),
        };
        let (to, from) = match in_place {
            true => (part(gets), part(gives)),
            false => (
                Buffer::<T>::zeroed(&rank.stream, gets).expect("memory"),
                Buffer::<T>::zeroed(&rank.stream, gives).expect("memory"),
            ),
        };
        execs.push(rank.exec([does.op(rank, &to, &from)]));
        memory.push((to, from));
    }
    for turn in 0..2 {
        let all: Vec<Vec<T>> = (0..size as u32)
            .map(|rank| given(rank + 10 * turn, gives))
            .collect();
        let mut before = Vec::new();
        for ((rank, (to, from)), values) in ranks.iter().zip(&memory).zip(&all) {
            if !in_place {
                to.copy_from_host(&rank.stream, &given(77, gets))
                    .expect("it fits");
            }
            from.copy_from_host(&rank.stream, values).expect("it fits");
            before.push(to.to_host(&rank.stream).expect("it can be read"));
        }
        run(ranks, &mut execs);
        for (number, (rank, before)) in ranks.iter().zip(before).enumerate() {
            let got = memory[number]
                .0
                .to_host(&rank.stream)
                .expect("it can be read");
            let wanted = does.expected(&all, number, before);
            let bytes = cuda_graph::bytemuck::cast_slice::<T, u8>;
            assert!(
                bytes(&got) == bytes(&wanted),
                "{does:?} of {count}, rank {number} of {size}, in place {in_place}:\n{:?}",
                got.iter()
                    .zip(&wanted)
                    .enumerate()
                    .find(|(_, (got, wanted))| got != wanted)
            );
        }
    }
}

fn all_kinds(size: usize) -> Vec<Does> {
    let last = size as u32 - 1;
    let mut all = vec![Does::AllGather, Does::Broadcast(0), Does::Broadcast(last)];
    for by in Reduction::ALL {
        all.extend([
            Does::AllReduce(by),
            Does::Reduce(by, last),
            Does::ReduceScatter(by),
        ]);
    }
    all
}

fn every_kind_of<T: Number>() {
    for size in [1, 2, 3, 4] {
        let ranks = ranks(size);
        for does in all_kinds(size) {
            for in_place in [false, true] {
                check::<T>(&ranks, does, 13, in_place);
            }
        }
    }
}

#[test]
fn every_kind_of_u8() {
    every_kind_of::<u8>();
}

#[test]
fn every_kind_of_i8() {
    every_kind_of::<i8>();
}

#[test]
fn every_kind_of_u32() {
    every_kind_of::<u32>();
}

#[test]
fn every_kind_of_i32() {
    every_kind_of::<i32>();
}

#[test]
fn every_kind_of_u64() {
    every_kind_of::<u64>();
}

#[test]
fn every_kind_of_i64() {
    every_kind_of::<i64>();
}

#[test]
fn every_kind_of_f32() {
    every_kind_of::<f32>();
}

#[test]
fn every_kind_of_f64() {
    every_kind_of::<f64>();
}

#[test]
fn every_kind_of_f16() {
    every_kind_of::<half::f16>();
}

#[test]
fn every_kind_of_bf16() {
    every_kind_of::<half::bf16>();
}

/// Nothing, one value, a grain more or less, a slot more or less, several chunks of all blocks.
#[test]
fn every_count() {
    let counts = [
        0, 1, 63, 64, 65, 2047, 2048, 2049, 4099, 16_383, 16_385, 50_001,
    ];
    for size in [1, 2, 3] {
        let ranks = ranks(size);
        for count in counts {
            check::<f64>(&ranks, Does::AllReduce(Reduction::Sum), count, true);
            check::<u8>(&ranks, Does::AllGather, count, false);
            check::<f64>(&ranks, Does::ReduceScatter(Reduction::Sum), count, true);
            check::<u32>(&ranks, Does::Broadcast(size as u32 - 1), count, false);
        }
    }
}

/// The kernels read and write page-locked memory as they do a device's.
#[test]
fn pinned_memory() {
    let ranks = ranks(2);
    let mut execs = Vec::new();
    let mut sums = Vec::new();
    for rank in &ranks {
        let own = PinnedBuffer::from_slice(rank.context(), &[1.5f32, rank.number() as f32]);
        let own = own.expect("memory");
        let sum = Buffer::<f32>::zeroed(&rank.stream, 2).expect("memory");
        let op = CollectiveOp::all_reduce(&rank.communicator, &sum, &own, Reduction::Sum);
        execs.push(rank.exec([op.expect("it can be made")]));
        sums.push(sum);
    }
    run(&ranks, &mut execs);
    for (rank, sum) in ranks.iter().zip(&sums) {
        assert_eq!(
            sum.to_host(&rank.stream).expect("it can be read"),
            [3.0, 1.0]
        );
    }
}

/// The ranks' devices reach the memory where they meet, and need not reach each other's.
#[test]
fn every_kind_between_devices() {
    on_devices(
        2..=2,
        "collective::kinds::every_kind_between_devices",
        |contexts| {
            let ranks = ranks_on(contexts, Duration::from_secs(60));
            for does in all_kinds(2) {
                for count in [13, 50_001] {
                    check::<f64>(&ranks, does, count, true);
                    check::<half::bf16>(&ranks, does, count, false);
                }
            }
            // Memory of one device is not the other rank's.
            let foreign = Buffer::<f64>::zeroed(&ranks[0].stream, 4).expect("memory");
            let rank = &ranks[1].communicator;
            let refused = CollectiveOp::all_reduce(rank, &foreign, &foreign, Reduction::Sum);
            assert!(matches!(refused, Err(Error::ForeignRank { rank: 1, .. })));
            let own = Buffer::<f64>::zeroed(&ranks[1].stream, 4).expect("memory");
            let op = CollectiveOp::all_reduce(rank, &own, &own, Reduction::Sum);
            let op = op.expect("it can be made");
            let graph = Graph::new(ranks[0].context()).expect("a graph");
            let refused = graph.add(op, ());
            assert!(refused.is_err(), "the graph is the other device's");
        },
    );
}
