//! Arithmetic on eight `.f16` at once, for processors that convert them to singles and back
//! ([`are_there`]): what takes Cranelift dozens of instructions.

#![expect(
    improper_ctypes_definitions,
    reason = "a vector goes as C's `__m128i` does, and Cranelift's `I32X4`"
)]

use std::arch::x86_64::*;

use super::runtime;

/// Whether the processor has what the functions here need.
pub(crate) fn are_there() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

runtime! {
    /// `a + b`, each rounded once to nearest; NaN is 0x7fff. Compiled code calls this and the
    /// others only where they [are there](are_there).
    ADD_HALVES = fn softcuda_add_halves(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: the processor has what it needs, as above.
        unsafe { add(a, b) }
    }

    /// `a - b`
    SUB_HALVES = fn softcuda_sub_halves(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { sub(a, b) }
    }

    /// `a * b`
    MUL_HALVES = fn softcuda_mul_halves(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { mul(a, b) }
    }

    /// `a * b + c`
    FMA_HALVES = fn softcuda_fma_halves(a: __m128i, b: __m128i, c: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { fma(a, b, c) }
    }
}

/// A sum of two halves that is rounded to 24 bits and then to 11 is the one that is rounded once.
#[target_feature(enable = "avx2,f16c")]
fn add(a: __m128i, b: __m128i) -> __m128i {
    narrow(_mm256_add_ps(_mm256_cvtph_ps(a), _mm256_cvtph_ps(b)))
}

#[target_feature(enable = "avx2,f16c")]
fn sub(a: __m128i, b: __m128i) -> __m128i {
    narrow(_mm256_sub_ps(_mm256_cvtph_ps(a), _mm256_cvtph_ps(b)))
}

/// Products of halves are exact as singles.
#[target_feature(enable = "avx2,f16c")]
fn mul(a: __m128i, b: __m128i) -> __m128i {
    narrow(_mm256_mul_ps(_mm256_cvtph_ps(a), _mm256_cvtph_ps(b)))
}

/// The sum is rounded to odd, so that rounding it again gives what rounding once gives.
#[target_feature(enable = "avx2,f16c")]
fn fma(a: __m128i, b: __m128i, c: __m128i) -> __m128i {
    let product = _mm256_mul_ps(_mm256_cvtph_ps(a), _mm256_cvtph_ps(b));
    let addend = _mm256_cvtph_ps(c);
    let sum = _mm256_add_ps(product, addend);
    let of_addend = _mm256_sub_ps(sum, product);
    let of_product = _mm256_sub_ps(sum, of_addend);
    let error = _mm256_add_ps(
        _mm256_sub_ps(product, of_product),
        _mm256_sub_ps(addend, of_addend),
    );
    // Infinity and NaN have no error that compares.
    let inexact = _mm256_cmp_ps::<_CMP_NEQ_OQ>(error, _mm256_setzero_ps());
    let inexact = _mm256_castps_si256(inexact);
    // Of a sum that is too great, the one before is odd or becomes so.
    let signs = _mm256_xor_ps(error, sum);
    let too_great = _mm256_and_si256(inexact, _mm256_srai_epi32::<31>(_mm256_castps_si256(signs)));
    let odd = _mm256_add_epi32(_mm256_castps_si256(sum), too_great);
    let odd = _mm256_or_si256(odd, _mm256_srli_epi32::<31>(inexact));
    narrow(_mm256_castsi256_ps(odd))
}

/// Rounds to nearest, ties to even.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrow(values: __m256) -> __m128i {
    let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(values, values));
    let nan = _mm_packs_epi32(
        _mm256_castsi256_si128(nan),
        _mm256_extracti128_si256::<1>(nan),
    );
    let canonical = _mm_srli_epi16::<1>(nan);
    _mm_or_si128(_mm_andnot_si128(nan, halves), canonical)
}

#[cfg(test)]
mod tests {
    use super::super::float::{Format, Rounding, fma_narrow};
    use super::*;

    fn of(halves: [u16; 8]) -> __m128i {
        // SAFETY: both are 16 bytes of which all values are allowed.
        unsafe { std::mem::transmute(halves) }
    }

    fn halves(vector: __m128i) -> [u16; 8] {
        // SAFETY: as above.
        unsafe { std::mem::transmute(vector) }
    }

    fn single(half: u16) -> f32 {
        let (exponent, fraction) = (i32::from(half >> 10 & 31), f32::from(half & 0x3ff));
        let magnitude = match exponent {
            31 if fraction == 0.0 => f32::INFINITY,
            31 => f32::NAN,
            0 => fraction * 2f32.powi(-24),
            _ => (fraction + 1024.0) * 2f32.powi(exponent - 25),
        };
        if half & 0x8000 != 0 {
            -magnitude
        } else {
            magnitude
        }
    }

    /// Values at the edges often, and otherwise any.
    fn some(state: &mut u64) -> u16 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let bits = (*state >> 20) as u16;
        match *state % 5 {
            0 => bits & 0x83ff,
            1 => {
                bits & 0x8000
                    | [0, 1, 0x3ff, 0x400, 0x7bff, 0x7c00, 0x7e01, 0x3c00][*state as usize >> 8 & 7]
            }
            2 => bits & 0xfc00,
            _ => bits,
        }
    }

    /// Each as one at a time, by `fma`: `a + b` is `a * 1 + b`, and `a * b` is `a * b - 0` where
    /// that has its sign.
    #[test]
    fn as_one_at_a_time() {
        if !are_there() {
            return;
        }
        let expected = |a: u16, b: u16, c: u16| {
            let [a, b, c] = [a, b, c].map(single);
            fma_narrow(Format::F16, a, b, c, Rounding::Nearest) as u16
        };
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..100_000 {
            let [a, b, c] = [(); 3].map(|()| [(); 8].map(|()| some(&mut state)));
            let fma = halves(softcuda_fma_halves(of(a), of(b), of(c)));
            let add = halves(softcuda_add_halves(of(a), of(b)));
            let sub = halves(softcuda_sub_halves(of(a), of(b)));
            let mul = halves(softcuda_mul_halves(of(a), of(b)));
            for n in 0..8 {
                let [a, b, c] = [a[n], b[n], c[n]];
                assert_eq!(fma[n], expected(a, b, c), "{a:#x} * {b:#x} + {c:#x}");
                assert_eq!(add[n], expected(a, 0x3c00, b), "{a:#x} + {b:#x}");
                assert_eq!(sub[n], expected(b, 0xbc00, a), "{a:#x} - {b:#x}");
                let zero = (a ^ b) & 0x8000;
                assert_eq!(mul[n], expected(a, b, zero), "{a:#x} * {b:#x}");
            }
        }
    }
}
