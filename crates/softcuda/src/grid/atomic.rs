//! Atomic operations that are no single instruction: loops of compare and exchange.
//!
//! Addresses are host addresses that compiled code has checked: they are mapped, writable and
//! aligned for the operation, and stay mapped. Every operation is sequentially consistent, which is
//! at least what any `.sem` and `.scope` ask for.

use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use half::{bf16, f16};

use super::cluster::is_shared;
use super::context::BlockContext;
use crate::jit::runtime::runtime;

/// What an operation on halves computes: the number that compiled code passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum HalfOp {
    /// `.add`
    Add,
    /// `.min`
    Min,
    /// `.max`
    Max,
}

/// Set in the number of an operation on `.bf16`, which is otherwise on `.f16`.
pub(crate) const BF16: u32 = 4;

const NAN_F32: u32 = 0x7fff_ffff;

/// Adds singles as the global memory's atomic units do: subnormals, taken or given, are zeros of
/// their sign.
fn add_flushed(a: f32, b: f32) -> f32 {
    let flush = |x: f32| {
        if x.is_subnormal() {
            0f32.copysign(x)
        } else {
            x
        }
    };
    flush(flush(a) + flush(b))
}

/// The bits of such a sum.
pub(super) fn flushed_sum(a: f32, b: f32) -> u32 {
    bits(add_flushed(a, b))
}

/// The bits of a sum of which subnormals are kept.
pub(super) fn whole_sum(a: f32, b: f32) -> u32 {
    bits(a + b)
}

fn bits(x: f32) -> u32 {
    if x.is_nan() { NAN_F32 } else { x.to_bits() }
}

fn update_u32(address: *mut u8, mut new: impl FnMut(u32) -> u32) -> u32 {
    // SAFETY: see the module: mapped, writable, aligned, and never a Rust reference's.
    let cell = unsafe { AtomicU32::from_ptr(address.cast()) };
    let (Ok(old) | Err(old)) = cell.fetch_update(AcqRel, Acquire, |old| Some(new(old)));
    old
}

/// Adds values one after the other, at once for who looks: the old value.
fn add_f32(shared: bool, address: *mut u8, values: &[f32]) -> f32 {
    let old = update_u32(address, |old| {
        let values = values.iter();
        values.fold(old, |old, value| sum_f32(shared, old, *value))
    });
    f32::from_bits(old)
}

/// A sum in shared memory or in global memory.
fn sum_f32(shared: bool, old: u32, value: f32) -> u32 {
    let old = f32::from_bits(old);
    bits(match shared {
        true => old + value,
        false => add_flushed(old, value),
    })
}

/// The same of doubles.
fn add_f64(address: *mut u8, values: &[f64]) -> f64 {
    // SAFETY: see the module.
    let cell = unsafe { AtomicU64::from_ptr(address.cast()) };
    let (Ok(old) | Err(old)) = cell.fetch_update(AcqRel, Acquire, |old| {
        let add = |old: f64, value: &f64| old + value;
        Some(values.iter().fold(f64::from_bits(old), add).to_bits())
    });
    f64::from_bits(old)
}

/// So many addresses, and as many values.
///
/// # Safety
/// There are as many, and nobody writes to them meanwhile.
unsafe fn both<'a, T>(addresses: *const u64, values: *const T, count: u64) -> (&'a [u64], &'a [T]) {
    // SAFETY: the caller's promise.
    unsafe {
        (
            std::slice::from_raw_parts(addresses, count as usize),
            std::slice::from_raw_parts(values, count as usize),
        )
    }
}

/// Adds singles to where they belong, which may be shared memory.
fn add_all_f32(shared: impl Fn(u64) -> bool, addresses: &[u64], values: &[f32]) {
    let four = |address, values: &[f32; 4]| {
        let shared = shared(address);
        let add = |old: [u32; 4]| std::array::from_fn(|at| sum_f32(shared, old[at], values[at]));
        update_u128(address as *mut u128, |old| of_words(add(words(old))));
    };
    add_all(addresses, values, four, |address, values| {
        add_f32(shared(address), address as *mut u8, values);
    });
}

/// The same of doubles.
fn add_all_f64(addresses: &[u64], values: &[f64]) {
    let two = |address, values: &[f64; 2]| {
        let add = |old: u128, at: usize| {
            let old = f64::from_bits((old >> (64 * at)) as u64);
            u128::from((old + values[at]).to_bits()) << (64 * at)
        };
        update_u128(address as *mut u128, |old| add(old, 0) | add(old, 1));
    };
    add_all(addresses, values, two, |address, values| {
        add_f64(address as *mut u8, values);
    });
}

/// Changes 16 bytes, aligned, at once for who looks, where [`wide::is_native`] says that all do.
fn update_u128(address: *mut u128, new: impl Fn(u128) -> u128) {
    let mut old = wide::load(address);
    loop {
        let found = wide::compare_exchange(address, old, new(old));
        if found == old {
            return;
        }
        old = found;
    }
}

/// The words of 16 bytes.
fn words(all: u128) -> [u32; 4] {
    std::array::from_fn(|at| (all >> (32 * at)) as u32)
}

fn of_words(words: [u32; 4]) -> u128 {
    let words = words.into_iter().enumerate();
    words.fold(0, |all, (at, word)| all | u128::from(word) << (32 * at))
}

/// Adds values one after the other: those that fill 16 bytes side by side with one operation, and
/// so those that follow each other and have one address.
fn add_all<T, const N: usize>(
    mut addresses: &[u64],
    mut values: &[T],
    add_row: impl Fn(u64, &[T; N]),
    add: impl Fn(u64, &[T]),
) {
    let native = wide::is_native();
    while let (Some(first), false) = (addresses.first(), values.is_empty()) {
        let lies = |(at, address): (u64, &u64)| *address == first + at * size_of::<T>() as u64;
        if let (Some(row), Some(of_row)) = (addresses.first_chunk::<N>(), values.first_chunk::<N>())
            && native
            && first.is_multiple_of(16)
            && (0..).zip(row).all(lies)
        {
            add_row(*first, of_row);
            (addresses, values) = (&addresses[N..], &values[N..]);
            continue;
        }
        let same = addresses.iter().take_while(|address| *address == first);
        let count = same.count();
        add(*first, &values[..count]);
        (addresses, values) = (&addresses[count..], &values[count..]);
    }
}

/// From a half's bits to a single, and back to the nearest half.
type Widths = (fn(u16) -> f32, fn(f32) -> u16);

pub(super) fn half_op(op: u32, a: u16, b: u16) -> u16 {
    let (wide, narrow): Widths = match op & BF16 {
        0 => (
            |x| f16::from_bits(x).to_f32(),
            |x| f16::from_f32(x).to_bits(),
        ),
        _ => (
            |x| bf16::from_bits(x).to_f32(),
            |x| bf16::from_f32(x).to_bits(),
        ),
    };
    let (x, y) = (wide(a), wide(b));
    // Rounding the sum first to 24 bits and then to 11 or 8 gives what rounding once gives.
    let result = match op & !BF16 {
        0 => x + y,
        _ if x.is_nan() => y,
        _ if y.is_nan() => x,
        // A negative zero is less than a positive one.
        1 if x < y || (x == y && x.is_sign_negative()) => x,
        2 if x > y || (x == y && x.is_sign_positive()) => x,
        _ => y,
    };
    if result.is_nan() {
        0x7fff
    } else {
        narrow(result)
    }
}

runtime! {
    /// `atom.add.f32`: the old value. It depends on where the address points whether subnormals are
    /// flushed.
    ATOM_ADD_F32 = fn atom_add_f32(block: *mut BlockContext, address: *mut u8, value: f32) -> f32 {
        add_f32(is_shared(block, address as u64), address, &[value])
    }

    /// `atom.add.f64`: the old value.
    ATOM_ADD_F64 = fn atom_add_f64(address: *mut u8, value: f64) -> f64 {
        add_f64(address, &[value])
    }

    /// `red.add.f32` of `count` threads, in their order.
    ATOM_ADD_ALL_F32 = fn atom_add_all_f32(block: *mut BlockContext, addresses: *const u64, values: *const f32, count: u64) {
        // SAFETY: compiled code has put so many there.
        let (addresses, values) = unsafe { both(addresses, values, count) };
        add_all_f32(|address| is_shared(block, address), addresses, values);
    }

    /// `red.add.f64` of `count` threads, in their order.
    ATOM_ADD_ALL_F64 = fn atom_add_all_f64(addresses: *const u64, values: *const f64, count: u64) {
        // SAFETY: compiled code has put so many there.
        let (addresses, values) = unsafe { both(addresses, values, count) };
        add_all_f64(addresses, values);
    }

    /// An operation on one half: the old value. `op` is a [`HalfOp`], and [`BF16`] or not.
    ATOM_HALF = fn atom_half(address: *mut u8, value: u32, op: u32) -> u32 {
        // SAFETY: see the module.
        let cell = unsafe { AtomicU16::from_ptr(address.cast()) };
        let (Ok(old) | Err(old)) = cell.fetch_update(AcqRel, Acquire, |old| Some(half_op(op, old, value as u16)));
        old.into()
    }

    /// The same on two packed halves.
    ATOM_HALF2 = fn atom_half2(address: *mut u8, value: u32, op: u32) -> u32 {
        update_u32(address, |old| {
            let low = half_op(op, old as u16, value as u16);
            let high = half_op(op, (old >> 16) as u16, (value >> 16) as u16);
            u32::from(high) << 16 | u32::from(low)
        })
    }

    /// `atom.inc`: counts up to `limit`, then from 0 again; the old value.
    ATOM_INC = fn atom_inc(address: *mut u8, limit: u32) -> u32 {
        update_u32(address, |old| if old >= limit { 0 } else { old + 1 })
    }

    /// `atom.dec`: counts down to 0, then from `limit` again; the old value.
    ATOM_DEC = fn atom_dec(address: *mut u8, limit: u32) -> u32 {
        update_u32(address, |old| if old == 0 || old > limit { limit } else { old - 1 })
    }

    /// `atom.cas.b128`: the old value goes to `old`, low half first.
    ATOM_CAS_B128 = fn atom_cas_b128(
        address: *mut u8, compare_low: u64, compare_high: u64, new_low: u64, new_high: u64, old: *mut u64,
    ) {
        let compare = u128::from(compare_high) << 64 | u128::from(compare_low);
        let found = wide::compare_exchange(address.cast(), compare, u128::from(new_high) << 64 | u128::from(new_low));
        give(old, found);
    }

    /// `atom.exch.b128`: the old value goes to `old`, low half first.
    ATOM_EXCH_B128 = fn atom_exch_b128(address: *mut u8, new_low: u64, new_high: u64, old: *mut u64) {
        let new = u128::from(new_high) << 64 | u128::from(new_low);
        let mut guess = 0;
        loop {
            let found = wide::compare_exchange(address.cast(), guess, new);
            if found == guess {
                return give(old, found);
            }
            guess = found;
        }
    }

    /// An ordered load of 128 bits, which go to `to`, low half first.
    LOAD_B128 = fn load_b128(address: *const u8, to: *mut u64) {
        give(to, wide::load(address.cast()));
    }

    /// An ordered store of 128 bits.
    STORE_B128 = fn store_b128(address: *mut u8, low: u64, high: u64) {
        wide::store(address.cast(), u128::from(high) << 64 | u128::from(low));
    }
}

fn give(to: *mut u64, value: u128) {
    // SAFETY: lowering passes the address of 16 bytes on the stack.
    unsafe { to.cast::<u128>().write_unaligned(value) };
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::asm;

    /// Whether all that is done here is atomic also for who accesses a part.
    pub fn is_native() -> bool {
        std::arch::is_x86_feature_detected!("cmpxchg16b")
    }

    /// Stores `new` where `compare` is; what was there.
    pub fn compare_exchange(address: *mut u128, compare: u128, new: u128) -> u128 {
        if !std::arch::is_x86_feature_detected!("cmpxchg16b") {
            return super::locked::compare_exchange(address, compare, new);
        }
        let (low, high): (u64, u64);
        // SAFETY: see the module of the callers: mapped, writable and aligned to 16; the processor
        // has the instruction. The compiler keeps `rbx` for itself, so it is exchanged and put
        // back.
        unsafe {
            asm!(
                "xchg rbx, rsi",
                "lock cmpxchg16b [rdi]",
                "mov rbx, rsi",
                in("rdi") address,
                inout("rsi") new as u64 => _,
                in("rcx") (new >> 64) as u64,
                inout("rax") compare as u64 => low,
                inout("rdx") (compare >> 64) as u64 => high,
                options(nostack),
            );
        }
        u128::from(high) << 64 | u128::from(low)
    }

    /// What is there, all of one time.
    pub fn load(address: *const u128) -> u128 {
        // What is not aligned is no memory that others share.
        if !address.is_aligned() {
            return super::locked::load(address);
        }
        if !std::arch::is_x86_feature_detected!("avx") {
            return compare_exchange(address.cast_mut(), 0, 0);
        }
        let mut value = 0u128;
        // SAFETY: see the module of the callers: mapped. Aligned, such a load is atomic on every
        // processor with AVX.
        unsafe {
            asm!(
                "vmovdqa {value}, [{from}]",
                "vmovdqu [{to}], {value}",
                value = out(xmm_reg) _,
                from = in(reg) address,
                to = in(reg) &raw mut value,
                options(nostack, preserves_flags),
            );
        }
        value
    }

    /// Writes all at once.
    pub fn store(address: *mut u128, value: u128) {
        if !address.is_aligned() {
            return super::locked::store(address, value);
        }
        if !std::arch::is_x86_feature_detected!("avx") {
            let mut guess = 0;
            loop {
                match compare_exchange(address, guess, value) {
                    found if found == guess => return,
                    found => guess = found,
                }
            }
        }
        // SAFETY: as in `load`, and writable.
        unsafe {
            asm!(
                "vmovdqu {value}, [{from}]",
                "vmovdqa [{to}], {value}",
                value = out(xmm_reg) _,
                from = in(reg) &raw const value,
                to = in(reg) address,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
use locked as wide;

/// Where the processor has no such instruction: atomic among operations of this size.
mod locked {
    use parking_lot::Mutex;

    static LOCK: Mutex<()> = Mutex::new(());

    /// Whether all that is done here is atomic also for who accesses a part.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_native() -> bool {
        false
    }

    /// Stores `new` where `compare` is; what was there.
    pub fn compare_exchange(address: *mut u128, compare: u128, new: u128) -> u128 {
        let _guard = LOCK.lock();
        // SAFETY: see the module of the callers: mapped, writable and aligned to 16.
        unsafe {
            let found = address.read();
            if found == compare {
                address.write(new);
            }
            found
        }
    }

    /// What is there, all of one time.
    pub fn load(address: *const u128) -> u128 {
        let _guard = LOCK.lock();
        // SAFETY: see the module of the callers: mapped.
        unsafe { address.read_unaligned() }
    }

    /// Writes all at once.
    pub fn store(address: *mut u128, value: u128) {
        let _guard = LOCK.lock();
        // SAFETY: see the module of the callers: mapped and writable.
        unsafe { address.write_unaligned(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_take_the_number_and_the_lesser_zero() {
        let (nan, one, zero, minus) = (0x7e00, 0x3c00, 0x0000, 0x8000);
        assert_eq!(half_op(HalfOp::Min as u32, nan, one), one);
        assert_eq!(half_op(HalfOp::Max as u32, one, nan), one);
        assert_eq!(half_op(HalfOp::Max as u32, nan, nan), 0x7fff);
        assert_eq!(half_op(HalfOp::Min as u32, zero, minus), minus);
        assert_eq!(half_op(HalfOp::Min as u32, minus, zero), minus);
        assert_eq!(half_op(HalfOp::Max as u32, minus, zero), zero);
        assert_eq!(half_op(HalfOp::Max as u32, zero, minus), zero);
        // The smallest subnormal is kept.
        assert_eq!(half_op(HalfOp::Add as u32, 1, 1), 2);
        assert_eq!(half_op(HalfOp::Add as u32 | BF16, 0x3f80, 0x3b80), 0x3f80);
        assert_eq!(half_op(HalfOp::Add as u32 | BF16, 0x7f80, 0xff80), 0x7fff);
    }

    /// Rows of numbers from any word on, and some of one place, by several threads at once.
    #[test]
    fn all_that_is_added_is_there() {
        const TURNS: u64 = 20_000;
        let begin = std::sync::Barrier::new(3);
        let mut cells = [0u128; 4];
        let base = cells.as_mut_ptr() as u64;
        let mut doubles = [0u128; 5];
        let of_doubles = doubles.as_mut_ptr() as u64;
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    for turn in 0..TURNS {
                        let first = (turn + thread) % 7;
                        let row = (0..8).map(|lane| base + 4 * (first + lane));
                        let row: Vec<u64> = row.chain([base + 60, base + 60]).collect();
                        let values = [1.0f32; 10];
                        add_all_f32(|_| false, &row, &values);
                        let row = (0..4).map(|lane| of_doubles + 8 * (first + lane));
                        let row: Vec<u64> = row.collect();
                        add_all_f64(&row, &[0.5; 4]);
                    }
                });
            }
        });
        let count = |at: u64, lanes: u64| {
            let all = (0..3).flat_map(|thread| (0..TURNS).map(move |turn| (turn + thread) % 7));
            all.filter(|first| (*first..first + lanes).contains(&at))
                .count()
        };
        for at in 0..16 {
            let more = if at == 15 { 6 * TURNS as usize } else { 0 };
            let cell = f32::from_bits(words(cells[at as usize / 4])[at as usize % 4]);
            assert_eq!(cell, (count(at, 8) + more) as f32, "word {at}");
        }
        for at in 0..10 {
            let bits = (doubles[at as usize / 2] >> (64 * (at % 2))) as u64;
            assert_eq!(
                f64::from_bits(bits),
                0.5 * count(at, 4) as f64,
                "double {at}"
            );
        }
    }

    #[test]
    fn wide_exchanges_agree() {
        for exchange in [wide::compare_exchange, locked::compare_exchange] {
            let mut cell = 5u128 << 70;
            assert_eq!(exchange(&mut cell, 1, 2), 5 << 70);
            assert_eq!(exchange(&mut cell, 5 << 70, 2), 5 << 70);
            assert_eq!(cell, 2);
        }
        let mut cells = [0u128; 2];
        let apart = cells.as_mut_ptr().wrapping_byte_add(8);
        for to in [cells.as_mut_ptr(), apart] {
            wide::store(to, 9 << 90 | 7);
            assert_eq!(wide::load(to), 9 << 90 | 7);
            locked::store(to, 3 << 90 | 5);
            assert_eq!(
                (locked::load(to), wide::load(to)),
                (3 << 90 | 5, 3 << 90 | 5)
            );
        }
    }
}
