//! Constant expressions fold as NVIDIA's assembler folds them: these values are what ptxas 13.0 put
//! in its object files.

use ptx::ast::{Immediate, Init, Item};

fn fold(expression: &str) -> Immediate {
    let source = format!(".version 9.0 .target sm_90 .global .u64 x = {expression};");
    let module = ptx::parse(&source).unwrap_or_else(|errors| panic!("{expression}: {errors}"));
    match &module.items[..] {
        [Item::Variable(variable)] => match variable.init {
            Some(Init::Value(value)) => value,
            ref other => panic!("{expression} is {other:?}"),
        },
        other => panic!("{expression} is {other:?}"),
    }
}

#[test]
fn of_integers() {
    let cases: &[(&str, u64)] = &[
        ("-1", 0xffffffffffffffff),
        ("-1 >> 1", 0xffffffffffffffff),
        ("(-8) >> 1", 0xfffffffffffffffc),
        ("-8 / 3", 0xfffffffffffffffe),
        ("-8 / 3U", 0x5555555555555552),
        ("-8 % 3", 0x2),
        ("-7 % 3 >> 1", 0x0),
        ("(-2 % -1) >> 1", 0x7fffffffffffffff),
        ("(~0) >> 1", 0x7fffffffffffffff),
        ("~0", 0xffffffffffffffff),
        ("(.s64)~0 >> 1", 0xffffffffffffffff),
        ("(.u64)-1 >> 1", 0x7fffffffffffffff),
        ("(1 | -8) >> 1", 0xfffffffffffffffc),
        ("(-8 & -4) >> 1", 0xfffffffffffffffc),
        ("(-8 ^ 1) >> 1", 0xfffffffffffffffc),
        ("(1 | -8U) >> 1", 0x7ffffffffffffffc),
        ("(1 ^ -8U) >> 1", 0x7ffffffffffffffc),
        ("(-8 + 1U) >> 1", 0x7ffffffffffffffc),
        ("1 << 63", 0x8000000000000000),
        ("1 << 64", 0x1),
        ("1 << 65", 0x2),
        ("-8 >> 64", 0xfffffffffffffff8),
        ("-8 >> 70", 0xffffffffffffffff),
        ("-8 >> -1", 0xffffffffffffffff),
        ("8U >> 64", 0x8),
        ("1 << 2 + 1", 0x8),
        ("1 | 2 == 2", 0x1),
        ("1 < 2 == 1", 0x1),
        ("-1 < 1U", 0x0),
        ("-1 < 1", 0x1),
        ("-1 == 18446744073709551615", 0x1),
        ("(1 ? -8 : 8U) >> 1", 0xfffffffffffffffc),
        ("(0 ? -8 : -8U) >> 1", 0x7ffffffffffffffc),
        ("(0 ? -8U : -8) >> 1", 0xfffffffffffffffc),
        ("1 ? 2 : 1 ? 3 : 4", 0x2),
        ("0 ? 2 : 0 ? 3 : 4", 0x4),
        ("!5", 0x0),
        ("!0", 0x1),
        ("2 && 0", 0x0),
        ("2 || 0", 0x1),
        ("010", 0x8),
        ("0b101", 0x5),
        ("0B11", 0x3),
        ("0X1F", 0x1f),
        ("0xFFU", 0xff),
        ("9223372036854775808", 0x8000000000000000),
        ("-9223372036854775808 >> 1", 0x4000000000000000),
        ("(-9223372036854775807-1) >> 1", 0xc000000000000000),
        ("1 + 2 * 3", 0x7),
        ("2 - 1 - 1", 0x0),
        ("10 % 3", 0x1),
        ("- - 5", 0x5),
        ("+5", 0x5),
        ("1.5 < 2.5", 0x1),
        ("WARP_SZ", 0x20),
        ("WARP_SZ * 2", 0x40),
        ("-WARP_SZ", 0xffffffffffffffe0),
    ];
    for (expression, expected) in cases {
        let Immediate::Int { bits, .. } = fold(expression) else {
            panic!("{expression} is no integer")
        };
        assert_eq!(
            bits, *expected,
            "{expression} is {bits:#x}, not {expected:#x}"
        );
    }
}

#[test]
fn of_integers_that_overflow() {
    let int = |bits: u64, signed| Immediate::Int { bits, signed };
    assert_eq!(fold("9223372036854775807 + 1"), int(1 << 63, true));
    assert_eq!(fold("(-9223372036854775807 - 1) / -1"), int(1 << 63, true));
    assert_eq!(
        fold("18446744073709551615 * 18446744073709551615"),
        int(1, false)
    );
    assert_eq!(fold("0 - 1U"), int(u64::MAX, false));
}

#[test]
fn of_floating_point() {
    let double = |value: f64| Immediate::F64(value.to_bits());
    assert_eq!(fold("1.5"), double(1.5));
    assert_eq!(fold(".5"), double(0.5));
    assert_eq!(fold("5."), double(5.0));
    assert_eq!(fold(".5e-3"), double(0.5e-3));
    assert_eq!(fold(".5e3"), double(500.0));
    assert_eq!(fold("1e3"), double(1000.0));
    assert_eq!(fold("-0.0"), double(-0.0));
    assert_eq!(fold("1e999"), double(f64::INFINITY));
    assert_eq!(fold("0.1 + 0.2 * 2.0"), double(0.1 + 0.2 * 2.0));
    assert_eq!(fold("1 ? 0.5 : 1.5"), double(0.5));
    assert_eq!(fold("0d7FF0000000000000"), double(f64::INFINITY));
    assert_eq!(fold("0D3ff8000000000000"), double(1.5));
    assert_eq!(fold("0f3f800000"), Immediate::F32(1.0f32.to_bits()));
    assert_eq!(fold("0F7FC00001"), Immediate::F32(0x7FC00001));
}
