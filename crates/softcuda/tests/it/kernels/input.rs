//! The kernels' inputs: the same on every machine and every run, with the values that break
//! arithmetic among them.

use half::{bf16, f16};

/// A stream of numbers, named after the case so that cases do not depend on each other.
pub struct Inputs {
    state: u64,
}

impl Inputs {
    pub fn new(name: &str) -> Self {
        let state = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
            (h ^ b as u64).wrapping_mul(0x100_0000_01b3)
        });
        Inputs { state }
    }

    pub fn seed(&self) -> u64 {
        self.state
    }

    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Uniform in [0, 1), of 24 bits, so that it is exact in both formats.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 40) as f64 / (1u64 << 24) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub fn make<T>(&mut self, count: usize, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..count).map(|_| one(self)).collect()
    }

    /// Words of every size: small, large, powers of two and their neighbours, all ones.
    pub fn words64(&mut self, count: usize) -> Vec<u64> {
        self.make(count, |s| {
            let word = s.next();
            let width = s.below(64) as u32;
            match s.below(8) {
                0 => [
                    0,
                    1,
                    2,
                    u64::MAX,
                    u64::MAX - 1,
                    i64::MAX as u64,
                    i64::MIN as u64,
                    1 << 32,
                ][word as usize % 8],
                1 => (1u64 << width).wrapping_add(word % 3).wrapping_sub(1),
                2 | 3 => word >> width,
                4 => (word >> width).wrapping_neg(),
                _ => word,
            }
        })
    }

    pub fn words32(&mut self, count: usize) -> Vec<u32> {
        self.make(count, |s| {
            let word = s.next();
            let width = s.below(32) as u32;
            match s.below(8) {
                0 => [
                    0,
                    1,
                    2,
                    u32::MAX,
                    u32::MAX - 1,
                    i32::MAX as u32,
                    i32::MIN as u32,
                    1 << 16,
                ][word as usize % 8],
                1 => (1u32 << width)
                    .wrapping_add(word as u32 % 3)
                    .wrapping_sub(1),
                2 | 3 => (word as u32) >> width,
                4 => ((word as u32) >> width).wrapping_neg(),
                _ => word as u32,
            }
        })
    }

    /// Floats of every kind: moderate ones mostly, any bit pattern, and the limits of the format.
    pub fn f32s(&mut self, count: usize) -> Vec<f32> {
        self.make(count, |s| f32::from_bits(s.float_bits(8, 23) as u32))
    }

    pub fn f64s(&mut self, count: usize) -> Vec<f64> {
        self.make(count, |s| f64::from_bits(s.float_bits(11, 52)))
    }

    pub fn f16s(&mut self, count: usize) -> Vec<f16> {
        self.make(count, |s| f16::from_bits(s.float_bits(5, 10) as u16))
    }

    pub fn bf16s(&mut self, count: usize) -> Vec<bf16> {
        self.make(count, |s| bf16::from_bits(s.float_bits(8, 7) as u16))
    }

    /// Only numbers, of moderate size.
    pub fn moderate(&mut self, count: usize, bound: f64) -> Vec<f32> {
        self.make(count, |s| s.between(-bound, bound) as f32)
    }

    fn float_bits(&mut self, exponent: u32, fraction: u32) -> u64 {
        let sign = 1u64 << (exponent + fraction);
        let infinity = (sign - 1) >> fraction << fraction;
        let bias = infinity >> (fraction + 1) << fraction;
        let word = self.next();
        let magnitude = match self.below(16) {
            0 => [
                0,
                1,
                infinity,
                infinity - 1,
                sign - 1,
                infinity + 1,
                1 << fraction,
                (1 << fraction) - 1,
            ][word as usize % 8],
            1 => word & ((1 << fraction) - 1),
            2 => word & (sign - 1),
            // Integers and halves: ties of roundings to integers.
            3 => {
                let n = 1 + word % (1 << (fraction.min(20) - 2));
                let top = 63 - n.leading_zeros();
                let exponent = bias + ((top as u64) << fraction);
                let shifted = (n << (fraction - top)) & ((1 << fraction) - 1);
                let halved = if word >> 63 == 1 { 1 << fraction } else { 0 };
                exponent + shifted - halved
            }
            // Few set bits: ties of roundings of sums and products.
            4 => {
                bias + ((word >> 60) << fraction) - (4 << fraction)
                    + (1u64 << (word % fraction as u64))
            }
            // Any fraction, an exponent near one's.
            _ => {
                bias + ((word >> 60) << fraction) - (8 << fraction) + (word & ((1 << fraction) - 1))
            }
        };
        magnitude | (self.next() & sign)
    }
}
