//! Division of integers, as an H200 does it where PTX leaves it open: quotient and remainder by
//! zero are all ones; the most negative number by -1 is itself, remainder 0. The host's division
//! never traps.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, Opcode, Value, types};
use ptx::ast::Type;

use super::{Lower, integer::signed, value_type};

/// `a / b`, towards zero. The divisor's value, where it is a constant.
pub(super) fn quotient(
    l: &mut Lower<'_>,
    ty: Type,
    a: Value,
    b: Value,
    divisor: Option<u64>,
) -> Value {
    if l.in_vectors() {
        let quotient = divide_vectors(l, signed(ty), a, b);
        return or_ones(l, quotient, b);
    }
    if is_plain(ty, divisor) {
        return match signed(ty) {
            true => l.b.ins().sdiv(a, b),
            false => l.b.ins().udiv(a, b),
        };
    }
    let safe = safe_divisor(l, ty, b);
    let quotient = if signed(ty) {
        let quotient = l.b.ins().sdiv(a, safe);
        let minus_one = l.b.ins().icmp_imm(IntCC::Equal, b, -1);
        let negated = l.b.ins().ineg(a);
        l.b.ins().select(minus_one, negated, quotient)
    } else {
        l.b.ins().udiv(a, safe)
    };
    ones_by_zero(l, quotient, b)
}

/// What `a / b` leaves, with the sign of `a`. The divisor's value, where it is a constant.
pub(super) fn remainder(
    l: &mut Lower<'_>,
    ty: Type,
    a: Value,
    b: Value,
    divisor: Option<u64>,
) -> Value {
    if l.in_vectors() {
        let quotient = divide_vectors(l, signed(ty), a, b);
        let product = l.b.ins().imul(quotient, b);
        let remainder = l.b.ins().isub(a, product);
        return or_ones(l, remainder, b);
    }
    if is_plain(ty, divisor) {
        return match signed(ty) {
            true => l.b.ins().srem(a, b),
            false => l.b.ins().urem(a, b),
        };
    }
    if !l.is_once() {
        return divided_remainder(l, ty, a, b);
    }
    // `(x + 1) % n`: a number that goes round, at most once.
    let kind = value_type(ty);
    let (positive, sign) = match signed(ty) {
        true => {
            let zero = l.b.ins().iconst(kind, 0);
            let sign = l.b.ins().band_imm(a, i64::MIN >> (64 - kind.bits()));
            (l.b.ins().smax(b, zero), Some(sign))
        }
        false => (b, None),
    };
    let less = l.b.ins().isub(a, positive);
    let near = l.b.ins().umin(a, less);
    // A number below zero is above all divisors.
    let compared = sign.map_or(near, |sign| l.b.ins().bor(near, sign));
    let order = IntCC::UnsignedLessThan;
    let is_near = l.b.ins().icmp(order, compared, positive);
    let (far, next) = (l.cold_block(), l.fresh_block());
    let remainder = l.b.append_block_param(next, kind);
    let near = [BlockArg::Value(near)];
    l.b.ins().brif(is_near, next, &near, far, &[]);
    l.enter(far);
    let divided = [BlockArg::Value(divided_remainder(l, ty, a, b))];
    l.b.ins().jump(next, &divided);
    l.enter(next);
    remainder
}

/// The remainder by the host's division.
fn divided_remainder(l: &mut Lower<'_>, ty: Type, a: Value, b: Value) -> Value {
    // By 1 it is what it is by -1: 0.
    let safe = safe_divisor(l, ty, b);
    let remainder = match signed(ty) {
        true => l.b.ins().srem(a, safe),
        false => l.b.ins().urem(a, safe),
    };
    ones_by_zero(l, remainder, b)
}

/// The divisor; 1 in the place of one that the host's division may trap by: 0, and -1.
fn safe_divisor(l: &mut Lower<'_>, ty: Type, b: Value) -> Value {
    let mut special = l.b.ins().icmp_imm(IntCC::Equal, b, 0);
    if signed(ty) {
        let minus_one = l.b.ins().icmp_imm(IntCC::Equal, b, -1);
        special = l.b.ins().bor(special, minus_one);
    }
    let one = l.b.ins().iconst(value_type(ty), 1);
    l.b.ins().select(special, one, b)
}

/// A result, or all ones if the divisor is zero.
fn ones_by_zero(l: &mut Lower<'_>, result: Value, b: Value) -> Value {
    let by_zero = l.b.ins().icmp_imm(IntCC::Equal, b, 0);
    let kind = l.b.func.dfg.value_type(result);
    let ones = l.b.ins().iconst(kind, -1);
    l.b.ins().select(by_zero, ones, result)
}

/// Whether the host's division by a constant does it.
fn is_plain(ty: Type, divisor: Option<u64>) -> bool {
    let mask = u64::MAX >> (64 - value_type(ty).bits());
    divisor.is_some_and(|divisor| divisor & mask != 0 && divisor & mask != mask)
}

/// All ones where the divisors are zero.
fn or_ones(l: &mut Lower<'_>, result: Value, divisors: Value) -> Value {
    let zero = l.word(0);
    let by_zero = l.b.ins().icmp(IntCC::Equal, divisors, zero);
    l.b.ins().bor(result, by_zero)
}

/// Quotients of words, each towards zero; any by zero. Numbers of 64 bits hold words, and what
/// rounding adds to a quotient of theirs, at most 2^-21 of `1 / b`, never makes it whole.
///
/// Where all are divided by one, they are multiplied with what that leaves of 1, half a word away
/// from zero: what rounding takes is at most 2^-19 of `1 / b`, and there is half of that to the
/// next whole number.
fn divide_vectors(l: &mut Lower<'_>, signed: bool, a: Value, b: Value) -> Value {
    // A word in the lower half of 2^52 adds its value to that.
    const WHOLE: f64 = (1u64 << 52) as f64;
    let words = |l: &mut Lower<'_>, word: u32| l.word(i64::from(word as i32));
    let numbers = |l: &mut Lower<'_>, number: f64| {
        let number = l.b.ins().f64const(number);
        l.b.ins().splat(types::F64X2, number)
    };
    // The sign's bit turned over: 2^31 more than the number.
    let more = if signed { 1u32 << 31 } else { 0 };
    let upper = words(l, (WHOLE.to_bits() >> 32) as u32);
    let less = numbers(l, WHOLE + f64::from(more));
    let wide = |l: &mut Lower<'_>, value: Value, half: [u8; 4]| {
        let value = match signed {
            false => value,
            true => {
                let turned = words(l, more);
                l.b.ins().bxor(value, turned)
            }
        };
        let pair = l.shuffled(value, upper, half);
        let pair = l.as_vector(pair, types::F64X2);
        l.b.ins().fsub(pair, less)
    };
    let one = match l.made_by(b) {
        Some((Opcode::Splat, &[one], _)) => Some(one),
        _ => None,
    };
    let part = one.map(|divisor| {
        let divisor = match signed {
            true => l.b.ins().sextend(types::I64, divisor),
            false => l.b.ins().uextend(types::I64, divisor),
        };
        let divisor = l.b.ins().fcvt_from_sint(types::F64, divisor);
        let one = l.b.ins().f64const(1.0);
        let part = l.b.ins().fdiv(one, divisor);
        l.b.ins().splat(types::F64X2, part)
    });
    // In the lower half of what holds 2^51 besides, also numbers below zero are words.
    let whole = numbers(l, 1.5 * WHOLE);
    let [low, high] = [[0, 4, 1, 5], [2, 6, 3, 7]].map(|half| {
        let number = wide(l, a, half);
        let quotient = match part {
            None => {
                let divisor = wide(l, b, half);
                l.b.ins().fdiv(number, divisor)
            }
            Some(part) => {
                let mut away = numbers(l, 0.5);
                if signed {
                    let sign = numbers(l, -0.0);
                    let sign = l.b.ins().band(number, sign);
                    away = l.b.ins().bor(away, sign);
                }
                let number = l.b.ins().fadd(number, away);
                l.b.ins().fmul(number, part)
            }
        };
        let quotient = l.b.ins().trunc(quotient);
        l.b.ins().fadd(quotient, whole)
    });
    let quotient = l.shuffled(low, high, [0, 2, 4, 6]);
    l.as_vector(quotient, types::I32X4)
}
