//! `fma` of eight `.f16` or `.bf16` at once, for processors that have the instructions
//! ([`are_there`]): what takes Cranelift dozens.
//!
//! Compiled code calls these often, from loops that have much in vectors, so they keep most of
//! those ([`RuntimeFn::keeps_vectors`]). Vectors of 128 bits go by reference in that convention,
//! which both compilers know by themselves.

#![expect(
    improper_ctypes_definitions,
    reason = "a vector goes as C's `__m128i` does, and Cranelift's `I32X4`"
)]

use std::arch::x86_64::*;

use super::RuntimeFn;
use super::float::{Format, Rounding, fma_narrow};

/// Whether the processor has what the functions here need.
pub(crate) fn are_there() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

/// As [`runtime!`](super::runtime), for functions that need the processor's instructions.
/// Compiled code calls them only where they [are there](are_there).
macro_rules! at_once {
    ($($(#[$meta:meta])* $konst:ident = fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty $body:block)*) => { $(
        $(#[$meta])*
        #[target_feature(enable = "avx2,f16c")]
        pub(crate) extern "win64" fn $name($($arg: $ty),*) -> $ret $body

        $(#[$meta])*
        pub(crate) static $konst: RuntimeFn = RuntimeFn {
            name: stringify!($name),
            address: || $name as *const () as usize,
            params: &[$(<$ty as super::Crosses>::TYPE),*],
            result: Some(<$ret as super::Crosses>::TYPE),
            keeps_vectors: true,
        };
    )*

        /// The runtime functions of this file.
        pub(crate) static FUNCTIONS: &[&RuntimeFn] = &[$(&$konst),*];
    };
}

at_once! {
    /// `a * b + c` of `.f16`, each rounded once to nearest; NaN is 0x7fff.
    FMA_F16 = fn softcuda_fma_f16(a: __m128i, b: __m128i, c: __m128i) -> __m128i {
        let product = _mm256_mul_ps(_mm256_cvtph_ps(a), _mm256_cvtph_ps(b));
        narrow_f16(sum_to_odd(product, _mm256_cvtph_ps(c)))
    }

    /// `a * b + c` of `.bf16`
    FMA_BF16 = fn softcuda_fma_bf16_at_once(a: __m128i, b: __m128i, c: __m128i) -> __m128i {
        let (wide_a, wide_b, wide_c) = (widen_bf16(a), widen_bf16(b), widen_bf16(c));
        let product = _mm256_mul_ps(wide_a, wide_b);
        // Away from the ends of the format of singles, the product is exact, and so is the error of
        // the sum.
        let zero = _mm256_setzero_ps();
        let magnitude = _mm256_set1_ps(f32::from_bits(0x7fff_ffff));
        let size = _mm256_and_ps(product, magnitude);
        let greatest = _mm256_max_ps(_mm256_and_ps(wide_c, magnitude), size);
        let of_zero = _mm256_or_ps(
            _mm256_cmp_ps::<_CMP_EQ_OQ>(wide_a, zero),
            _mm256_cmp_ps::<_CMP_EQ_OQ>(wide_b, zero),
        );
        let not_small = _mm256_cmp_ps::<_CMP_GE_OQ>(size, _mm256_set1_ps(2f32.powi(-100)));
        // `max` may pass over what is not a number.
        let not_great = _mm256_and_ps(
            _mm256_cmp_ps::<_CMP_LT_OQ>(greatest, _mm256_set1_ps(2f32.powi(126))),
            _mm256_cmp_ps::<_CMP_ORD_Q>(product, wide_c),
        );
        let exact = _mm256_and_ps(not_great, _mm256_or_ps(not_small, of_zero));
        if _mm256_movemask_ps(exact) == 0xff {
            pack(narrow_bf16(sum_to_odd(product, wide_c)))
        } else {
            one_by_one(wide_a, wide_b, wide_c)
        }
    }
}

/// Each as one at a time.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx2")]
fn one_by_one(a: __m256, b: __m256, c: __m256) -> __m128i {
    let [a, b, c] = [a, b, c].map(|vector| {
        let mut values = [0f32; 8];
        // SAFETY: there is room for eight.
        unsafe { _mm256_storeu_ps(values.as_mut_ptr(), vector) };
        values
    });
    let mut results = [0u16; 8];
    for ((result, a), (b, c)) in results.iter_mut().zip(a).zip(b.into_iter().zip(c)) {
        *result = fma_narrow(Format::BF16, a, b, c, Rounding::Nearest) as u16;
    }
    // SAFETY: the results are as long as what is loaded.
    unsafe { _mm_loadu_si128(results.as_ptr().cast()) }
}

/// The sum, rounded to odd where it is not exact: rounding it again gives what rounding once gives.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn sum_to_odd(product: __m256, addend: __m256) -> __m256 {
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
    _mm256_castsi256_ps(_mm256_or_si256(odd, _mm256_srli_epi32::<31>(inexact)))
}

/// Rounds to nearest, ties to even.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn narrow_f16(values: __m256) -> __m128i {
    let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(values, values));
    let nan = _mm_packs_epi32(
        _mm256_castsi256_si128(nan),
        _mm256_extracti128_si256::<1>(nan),
    );
    let canonical = _mm_srli_epi16::<1>(nan);
    _mm_or_si128(_mm_andnot_si128(nan, halves), canonical)
}

#[inline]
#[target_feature(enable = "avx2")]
fn widen_bf16(halves: __m128i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
}

/// Rounds to nearest, ties to even; each in the lower half of a word.
#[inline]
#[target_feature(enable = "avx2")]
fn narrow_bf16(values: __m256) -> __m256i {
    let bits = _mm256_castps_si256(values);
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(values, values));
    // Half a unit less one, and one more where the last bit kept is odd. No number carries out of
    // its word.
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    let rounded = _mm256_srli_epi32::<16>(rounded);
    _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fff), nan)
}

/// The lower halves of words.
#[inline]
#[target_feature(enable = "avx2")]
fn pack(words: __m256i) -> __m128i {
    let high = _mm256_extracti128_si256::<1>(words);
    _mm_packus_epi32(_mm256_castsi256_si128(words), high)
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
        match *state % 6 {
            0 => bits & 0x83ff,
            // Near 1, so that eight `.bf16` in a row have ordinary products.
            5 => bits & 0x8fff | 0x3000,
            1 => {
                bits & 0x8000
                    | [0, 1, 0x3ff, 0x400, 0x7bff, 0x7c00, 0x7e01, 0x3c00][*state as usize >> 8 & 7]
            }
            2 => bits & 0xfc00,
            _ => bits,
        }
    }

    #[test]
    fn as_one_at_a_time() {
        if !are_there() {
            return;
        }
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..100_000 {
            let [a, b, c] = [(); 3].map(|()| [(); 8].map(|()| some(&mut state)));
            // SAFETY: the processor has what they need.
            let (f16, bf16) = unsafe {
                (
                    softcuda_fma_f16(of(a), of(b), of(c)),
                    softcuda_fma_bf16_at_once(of(a), of(b), of(c)),
                )
            };
            let (f16, bf16) = (halves(f16), halves(bf16));
            for n in 0..8 {
                let [a, b, c] = [a[n], b[n], c[n]];
                let fma = |format, of: fn(u16) -> f32| {
                    fma_narrow(format, of(a), of(b), of(c), Rounding::Nearest) as u16
                };
                let what = format!("{a:#x} * {b:#x} + {c:#x}");
                assert_eq!(f16[n], fma(Format::F16, single), "{what}");
                let upper = |half| f32::from_bits(u32::from(half) << 16);
                assert_eq!(bf16[n], fma(Format::BF16, upper), "{what}");
            }
        }
    }
}
