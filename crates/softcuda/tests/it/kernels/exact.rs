//! Exactly rounded arithmetic on IEEE formats, in integers alone: the oracle for every kernel whose
//! result the PTX manual determines. It shares nothing with the software driver's own arithmetic,
//! nor with the host's.
//!
//! Values travel as bits in a `u64`. A result that is no number is the format's canonical one, all
//! ones but the sign.

/// A binary floating-point format: precision with the hidden bit, and the exponents of its normal
/// numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Format {
    width: u32,
    precision: u32,
    least: i32,
}

pub const F16: Format = Format {
    width: 16,
    precision: 11,
    least: -14,
};
pub const BF16: Format = Format {
    width: 16,
    precision: 8,
    least: -126,
};
pub const F32: Format = Format {
    width: 32,
    precision: 24,
    least: -126,
};
pub const F64: Format = Format {
    width: 64,
    precision: 53,
    least: -1022,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Nearest,
    Zero,
    Up,
    Down,
}

/// The roundings in the order in which the kernels write their columns.
pub const ROUNDINGS: [Round; 4] = [Round::Nearest, Round::Zero, Round::Up, Round::Down];

/// A decoded value: `magnitude * 2^exponent`.
#[derive(Clone, Copy)]
enum Value {
    Nan,
    Infinite {
        negative: bool,
    },
    Finite {
        negative: bool,
        magnitude: u128,
        exponent: i32,
    },
}

impl Format {
    fn fraction_bits(self) -> u32 {
        self.precision - 1
    }

    fn sign_bit(self) -> u64 {
        1 << (self.width - 1)
    }

    pub fn infinity(self) -> u64 {
        (self.sign_bit() - 1) >> self.fraction_bits() << self.fraction_bits()
    }

    pub fn nan(self) -> u64 {
        self.sign_bit() - 1
    }

    pub fn is_nan(self, bits: u64) -> bool {
        bits & (self.sign_bit() - 1) > self.infinity()
    }

    pub fn negate(self, bits: u64) -> u64 {
        bits ^ self.sign_bit()
    }

    pub fn absolute(self, bits: u64) -> u64 {
        bits & !self.sign_bit()
    }

    pub fn is_negative(self, bits: u64) -> bool {
        bits & self.sign_bit() != 0
    }

    /// A subnormal number becomes zero of its sign.
    pub fn flush(self, bits: u64) -> u64 {
        let magnitude = self.absolute(bits);
        if magnitude >> self.fraction_bits() == 0 {
            bits & self.sign_bit()
        } else {
            bits
        }
    }

    fn decode(self, bits: u64) -> Value {
        let negative = self.is_negative(bits);
        let magnitude = self.absolute(bits);
        if self.is_nan(bits) {
            return Value::Nan;
        }
        if magnitude == self.infinity() {
            return Value::Infinite { negative };
        }
        let biased = (magnitude >> self.fraction_bits()) as i32;
        let fraction = (magnitude & ((1 << self.fraction_bits()) - 1)) as u128;
        let hidden = if biased == 0 {
            0
        } else {
            1u128 << self.fraction_bits()
        };
        let exponent = self.least - self.fraction_bits() as i32 + biased.max(1) - 1;
        Value::Finite {
            negative,
            magnitude: fraction | hidden,
            exponent,
        }
    }

    fn zero(self, negative: bool) -> u64 {
        if negative { self.sign_bit() } else { 0 }
    }

    fn signed_infinity(self, negative: bool) -> u64 {
        self.zero(negative) | self.infinity()
    }

    /// The one place that rounds: `magnitude * 2^exponent`, plus something below its last bit where
    /// `sticky`.
    fn round(
        self,
        negative: bool,
        magnitude: Wide,
        exponent: i32,
        sticky: bool,
        round: Round,
    ) -> u64 {
        let length = magnitude.length() as i32;
        if length == 0 {
            return self.zero(negative);
        }
        let top = exponent + length - 1;
        let mut last = top.max(self.least) - self.fraction_bits() as i32;
        let (mut kept, half, rest) = magnitude.split(last - exponent);
        let rest = rest || sticky;
        let up = match round {
            Round::Nearest => half && (rest || kept & 1 == 1),
            Round::Zero => false,
            Round::Up => !negative && (half || rest),
            Round::Down => negative && (half || rest),
        };
        kept += up as u128;
        if kept >> self.precision != 0 {
            kept >>= 1;
            last += 1;
        }
        if kept >> self.fraction_bits() == 0 {
            return self.zero(negative) | kept as u64;
        }
        let biased = (last + self.fraction_bits() as i32 - self.least + 1) as u64;
        let bits =
            (biased << self.fraction_bits()) + (kept as u64 & ((1 << self.fraction_bits()) - 1));
        if bits >= self.infinity() {
            let to_infinity = match round {
                Round::Nearest => true,
                Round::Zero => false,
                Round::Up => !negative,
                Round::Down => negative,
            };
            return self.signed_infinity(negative) - !to_infinity as u64;
        }
        self.zero(negative) | bits
    }
}

/// 256 bits, enough for the sum of two products with a guard below them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wide {
    high: u128,
    low: u128,
}

impl Wide {
    fn from(low: u128) -> Self {
        Wide { high: 0, low }
    }

    fn length(self) -> u32 {
        if self.high != 0 {
            256 - self.high.leading_zeros()
        } else {
            128 - self.low.leading_zeros()
        }
    }

    fn is_zero(self) -> bool {
        self.high == 0 && self.low == 0
    }

    fn left(self, by: u32) -> Self {
        match by {
            0 => self,
            1..128 => Wide {
                high: self.high << by | self.low >> (128 - by),
                low: self.low << by,
            },
            128..256 => Wide {
                high: self.low << (by - 128),
                low: 0,
            },
            _ => Wide::from(0),
        }
    }

    fn right(self, by: u32) -> Self {
        match by {
            0 => self,
            1..128 => Wide {
                high: self.high >> by,
                low: self.low >> by | self.high << (128 - by),
            },
            128..256 => Wide::from(self.high >> (by - 128)),
            _ => Wide::from(0),
        }
    }

    fn bit(self, at: u32) -> bool {
        self.right(at).low & 1 == 1
    }

    /// Whether any of the lowest `count` bits is set.
    fn any_below(self, count: u32) -> bool {
        if count >= 256 {
            !self.is_zero()
        } else {
            self.right(count).left(count) != self
        }
    }

    fn plus(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        Wide {
            high: self.high + other.high + carry as u128,
            low,
        }
    }

    fn minus(self, other: Self) -> Self {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Wide {
            high: self.high - other.high - borrow as u128,
            low,
        }
    }

    /// The value without its lowest `count` bits, the first bit dropped, and whether any further
    /// one was set. A negative count shifts up.
    fn split(self, count: i32) -> (u128, bool, bool) {
        if count <= 0 {
            return (self.left(count.unsigned_abs()).low, false, false);
        }
        let count = count as u32;
        let half = count <= 256 && self.bit(count - 1);
        (self.right(count).low, half, self.any_below(count - 1))
    }
}

pub fn add(format: Format, a: u64, b: u64, round: Round) -> u64 {
    sum(format, format.decode(a), format.decode(b), round)
}

pub fn sub(format: Format, a: u64, b: u64, round: Round) -> u64 {
    add(format, a, format.negate(b), round)
}

pub fn mul(format: Format, a: u64, b: u64, round: Round) -> u64 {
    match product(format.decode(a), format.decode(b)) {
        Value::Nan => format.nan(),
        Value::Infinite { negative } => format.signed_infinity(negative),
        Value::Finite {
            negative,
            magnitude,
            exponent,
        } => format.round(negative, Wide::from(magnitude), exponent, false, round),
    }
}

pub fn fma(format: Format, a: u64, b: u64, c: u64, round: Round) -> u64 {
    sum(
        format,
        product(format.decode(a), format.decode(b)),
        format.decode(c),
        round,
    )
}

pub fn div(format: Format, a: u64, b: u64, round: Round) -> u64 {
    use Value::*;
    match (format.decode(a), format.decode(b)) {
        (Nan, _) | (_, Nan) | (Infinite { .. }, Infinite { .. }) => format.nan(),
        (Infinite { negative: n }, Finite { negative: m, .. }) => format.signed_infinity(n != m),
        (Finite { negative: n, .. }, Infinite { negative: m }) => format.zero(n != m),
        (Finite { magnitude: 0, .. }, Finite { magnitude: 0, .. }) => format.nan(),
        (
            Finite { negative: n, .. },
            Finite {
                negative: m,
                magnitude: 0,
                ..
            },
        ) => format.signed_infinity(n != m),
        (
            Finite {
                negative: n,
                magnitude: 0,
                ..
            },
            Finite { negative: m, .. },
        ) => format.zero(n != m),
        (
            Finite {
                negative: n,
                magnitude: x,
                exponent: e,
            },
            Finite {
                negative: m,
                magnitude: y,
                exponent: f,
            },
        ) => {
            let shift = x.leading_zeros() - 1;
            let x = x << shift;
            format.round(
                n != m,
                Wide::from(x / y),
                e - shift as i32 - f,
                x % y != 0,
                round,
            )
        }
    }
}

pub fn sqrt(format: Format, a: u64, round: Round) -> u64 {
    match format.decode(a) {
        Value::Finite { magnitude: 0, .. } => a,
        Value::Infinite { negative: false } => a,
        Value::Finite {
            negative: false,
            magnitude,
            exponent,
        } => {
            let mut shift = magnitude.leading_zeros() - 1;
            shift -= ((exponent - shift as i32) & 1) as u32;
            let wide = magnitude << shift;
            let root = wide.isqrt();
            format.round(
                false,
                Wide::from(root),
                (exponent - shift as i32) / 2,
                root * root != wide,
                round,
            )
        }
        _ => format.nan(),
    }
}

/// The value of one format in another.
pub fn convert(from: Format, to: Format, a: u64, round: Round) -> u64 {
    match from.decode(a) {
        Value::Nan => to.nan(),
        Value::Infinite { negative } => to.signed_infinity(negative),
        Value::Finite {
            negative,
            magnitude,
            exponent,
        } => to.round(negative, Wide::from(magnitude), exponent, false, round),
    }
}

pub fn from_integer(format: Format, n: i128, round: Round) -> u64 {
    format.round(n < 0, Wide::from(n.unsigned_abs()), 0, false, round)
}

/// The integer nearest in the direction asked; `None` for no number. Large values stop at 2^100.
pub fn to_integer(format: Format, a: u64, round: Round) -> Option<i128> {
    const LIMIT: i128 = 1 << 120;
    match format.decode(a) {
        Value::Nan => None,
        Value::Infinite { negative } => Some(if negative { -LIMIT } else { LIMIT }),
        Value::Finite { magnitude: 0, .. } => Some(0),
        Value::Finite {
            negative,
            magnitude,
            exponent,
        } => {
            // Beyond the 64 bits of any integer, whatever the format's least magnitude.
            if exponent >= 64 {
                return Some(if negative { -LIMIT } else { LIMIT });
            }
            let (kept, half, rest) = Wide::from(magnitude).split(-exponent);
            let up = match round {
                Round::Nearest => half && (rest || kept & 1 == 1),
                Round::Zero => false,
                Round::Up => !negative && (half || rest),
                Round::Down => negative && (half || rest),
            };
            let n = (kept + up as u128) as i128;
            Some(if negative { -n } else { n })
        }
    }
}

/// The value rounded to an integer, in its own format: zero keeps the sign.
pub fn integral(format: Format, a: u64, round: Round) -> u64 {
    match (format.decode(a), to_integer(format, a, round)) {
        (Value::Nan, _) => format.nan(),
        (Value::Infinite { .. }, _) => a,
        (Value::Finite { exponent, .. }, _) if exponent >= 0 => a,
        (_, Some(n)) => {
            format.absolute(from_integer(format, n, Round::Zero))
                | format.zero(format.is_negative(a))
        }
        (_, None) => format.nan(),
    }
}

/// `a < b`, `a == b`, and whether they have an order at all.
pub fn compare(format: Format, a: u64, b: u64) -> Option<std::cmp::Ordering> {
    if format.is_nan(a) || format.is_nan(b) {
        return None;
    }
    let key = |bits: u64| {
        let magnitude = format.absolute(bits) as i128;
        if format.is_negative(bits) {
            -magnitude
        } else {
            magnitude
        }
    };
    Some(key(a).cmp(&key(b)))
}

/// The lesser of two, -0 below +0; a number wins over no number.
pub fn min(format: Format, a: u64, b: u64) -> u64 {
    pick(format, a, b, std::cmp::Ordering::Less)
}

/// The greater of two, -0 below +0; a number wins over no number.
pub fn max(format: Format, a: u64, b: u64) -> u64 {
    pick(format, a, b, std::cmp::Ordering::Greater)
}

fn pick(format: Format, a: u64, b: u64, wanted: std::cmp::Ordering) -> u64 {
    match (format.is_nan(a), format.is_nan(b)) {
        (true, true) => return format.nan(),
        (true, false) => return b,
        (false, true) => return a,
        (false, false) => {}
    }
    let order = compare(format, a, b).expect("both are numbers");
    let order = order.then(format.is_negative(b).cmp(&format.is_negative(a)));
    if order == wanted { a } else { b }
}

fn product(a: Value, b: Value) -> Value {
    use Value::*;
    match (a, b) {
        (Nan, _) | (_, Nan) => Nan,
        (Infinite { .. }, Finite { magnitude: 0, .. })
        | (Finite { magnitude: 0, .. }, Infinite { .. }) => Nan,
        (Infinite { negative: n }, Infinite { negative: m } | Finite { negative: m, .. })
        | (Finite { negative: n, .. }, Infinite { negative: m }) => Infinite { negative: n != m },
        (
            Finite {
                negative: n,
                magnitude: x,
                exponent: e,
            },
            Finite {
                negative: m,
                magnitude: y,
                exponent: f,
            },
        ) => Finite {
            negative: n != m,
            magnitude: x * y,
            exponent: e + f,
        },
    }
}

fn sum(format: Format, a: Value, b: Value, round: Round) -> u64 {
    use Value::*;
    let (n, x, e, m, y, f) = match (a, b) {
        (Nan, _) | (_, Nan) => return format.nan(),
        (Infinite { negative: n }, Infinite { negative: m }) if n != m => return format.nan(),
        (Infinite { negative }, _) | (_, Infinite { negative }) => {
            return format.signed_infinity(negative);
        }
        (
            Finite {
                negative: n,
                magnitude: x,
                exponent: e,
            },
            Finite {
                negative: m,
                magnitude: y,
                exponent: f,
            },
        ) => (n, x, e, m, y, f),
    };
    let cancelled = round == Round::Down;
    if x == 0 && y == 0 {
        return format.zero(if n == m { n } else { cancelled });
    }
    // The operand whose top bit is higher comes first, at bit 240; the other is cut off far below
    // it.
    let top = |magnitude: u128, exponent: i32| match magnitude {
        0 => i32::MIN,
        _ => exponent + 128 - magnitude.leading_zeros() as i32,
    };
    let ((n, x, e), (m, y, f)) = if top(x, e) >= top(y, f) {
        ((n, x, e), (m, y, f))
    } else {
        ((m, y, f), (n, x, e))
    };
    let shift = 240 - (128 - x.leading_zeros());
    let large = Wide::from(x).left(shift);
    let exponent = e - shift as i32;
    let (small, sticky) = if f >= exponent {
        (Wide::from(y).left((f - exponent) as u32), false)
    } else {
        let by = (exponent - f) as u32;
        (Wide::from(y).right(by), Wide::from(y).any_below(by))
    };
    if n == m {
        return format.round(n, large.plus(small), exponent, sticky, round);
    }
    match large.cmp(&small) {
        std::cmp::Ordering::Equal => format.zero(cancelled),
        std::cmp::Ordering::Less => format.round(m, small.minus(large), exponent, false, round),
        std::cmp::Ordering::Greater => {
            // What was cut off the smaller one is owed: one less, and something above it.
            let difference = large.minus(small).minus(Wide::from(sticky as u128));
            format.round(n, difference, exponent, sticky, round)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::input::Inputs;

    /// Where the host rounds to nearest, the two must agree.
    #[test]
    fn agrees_with_the_host() {
        let mut inputs = Inputs::new("exact");
        let (a, b, c) = (inputs.f64s(4000), inputs.f64s(4000), inputs.f64s(4000));
        let (d, e, f) = (inputs.f32s(4000), inputs.f32s(4000), inputs.f32s(4000));
        let same = |got: u64, want: f64| {
            assert!(
                got == want.to_bits() || want.is_nan() && F64.is_nan(got),
                "{got:016x} {want:e}"
            );
        };
        let same32 = |got: u64, want: f32| {
            assert!(
                got == want.to_bits() as u64 || want.is_nan() && F32.is_nan(got),
                "{got:08x} {want:e}"
            );
        };
        for i in 0..4000 {
            let (x, y, z) = (a[i], b[i], c[i]);
            let (p, q, r) = (x.to_bits(), y.to_bits(), z.to_bits());
            same(add(F64, p, q, Round::Nearest), x + y);
            same(sub(F64, p, q, Round::Nearest), x - y);
            same(mul(F64, p, q, Round::Nearest), x * y);
            same(div(F64, p, q, Round::Nearest), x / y);
            same(fma(F64, p, q, r, Round::Nearest), x.mul_add(y, z));
            same(sqrt(F64, p, Round::Nearest), x.sqrt());
            same(integral(F64, p, Round::Nearest), x.round_ties_even());
            same(integral(F64, p, Round::Down), x.floor());
            same(integral(F64, p, Round::Up), x.ceil());
            same32(convert(F64, F32, p, Round::Nearest), x as f32);
            let (x, y, z) = (d[i], e[i], f[i]);
            let (p, q, r) = (x.to_bits() as u64, y.to_bits() as u64, z.to_bits() as u64);
            same32(add(F32, p, q, Round::Nearest), x + y);
            same32(mul(F32, p, q, Round::Nearest), x * y);
            same32(div(F32, p, q, Round::Nearest), x / y);
            same32(fma(F32, p, q, r, Round::Nearest), x.mul_add(y, z));
            same32(sqrt(F32, p, Round::Nearest), x.sqrt());
            assert_eq!(
                to_integer(F32, p, Round::Zero)
                    .unwrap_or(0)
                    .clamp(i64::MIN as i128, i64::MAX as i128) as i64,
                x as i64
            );
            let half = half::f16::from_f32(x);
            assert!(convert(F32, F16, p, Round::Nearest) == half.to_bits() as u64 || half.is_nan());
            let brain = half::bf16::from_f32(x);
            assert!(
                convert(F32, BF16, p, Round::Nearest) == brain.to_bits() as u64 || brain.is_nan()
            );
        }
        for n in inputs.words64(1000) {
            same(from_integer(F64, n as i128, Round::Nearest), n as f64);
            same32(
                from_integer(F32, n as i64 as i128, Round::Nearest),
                n as i64 as f32,
            );
        }
    }
}
