//! Fills.

use crate::conformance::api::*;
use crate::conformance::case::{Case, alone, case};
use crate::conformance::fixture::*;

pub const CASES: &[Case] = &[
    case!("fill/values", |line| {
        context();
        let pointer = memory(64);
        line.says(cuMemsetD8_v2(pointer, 0xab, 64));
        line.value("bytes", format!("{:#x}", word(pointer)));
        line.says(cuMemsetD16_v2(pointer, 0x1234, 8));
        line.value(
            "halves",
            format!("{:#x} {:#x}", word(pointer), word(pointer + 16)),
        );
        line.says(cuMemsetD32_v2(pointer + 4, 0xdead_beef, 1));
        line.value(
            "words",
            format!(
                "{:#x} {:#x} {:#x}",
                word(pointer),
                word(pointer + 4),
                word(pointer + 8)
            ),
        );
    }),
    case!("fill/nothing", |line| {
        context();
        line.says(cuMemsetD8_v2(memory(4), 0, 0));
        line.says_as("null", cuMemsetD8_v2(0, 0, 0));
        line.says_as("wild", cuMemsetD32_v2(WILD, 0, 0));
        line.says_as("misaligned", cuMemsetD32_v2(memory(8) + 1, 0, 0));
        line.says_as("async_null", cuMemsetD8Async(0, 0, 0, 0));
    }),
    alone!("fill/misaligned", |line| {
        context();
        let pointer = memory(64);
        line.says_as("halves_odd", cuMemsetD16_v2(pointer + 1, 1, 4));
        line.says_as("words_half", cuMemsetD32_v2(pointer + 2, 1, 4));
        line.says_as("words_odd", cuMemsetD32_v2(pointer + 1, 1, 4));
        line.says_as("async", cuMemsetD32Async(pointer + 2, 1, 4, stream()));
        line.says_as("rows", cuMemsetD2D32_v2(pointer + 2, 16, 1, 2, 2));
        line.says_as("rows_pitch", cuMemsetD2D32_v2(pointer, 18, 1, 2, 2));
        line.says(cuCtxSynchronize());
    }),
    alone!("fill/wrong", |line| {
        context();
        let pointer = memory(4 << 20);
        line.says_as("null", cuMemsetD8_v2(0, 0, 4));
        line.says_as("wild", cuMemsetD8_v2(WILD, 0, 4));
        line.says_as("past_the_end", cuMemsetD8_v2(pointer, 0, 1 << 40));
        line.says_as("one_past_the_end", cuMemsetD8_v2(pointer, 0, (4 << 20) + 1));
        line.says_as("count_wraps", cuMemsetD32_v2(pointer, 0, usize::MAX / 2));
        line.says_as(
            "pageable",
            cuMemsetD8_v2(Box::leak(Box::new([0u8; 64])).as_ptr() as u64, 0, 4),
        );
        line.says_as("pinned", cuMemsetD8_v2(pinned(64) as u64, 5, 4));
        line.says_as("async_wild", cuMemsetD8Async(WILD, 0, 4, stream()));
        line.says_as("context_lives", cuCtxSynchronize());
    }),
    case!("fill/rows", |line| {
        context();
        let pointer = memory(256);
        cuMemsetD8_v2(pointer, 0, 256).must();
        line.says(cuMemsetD2D8_v2(pointer, 16, 0x11, 5, 3));
        line.value(
            "first",
            format!(
                "{:#x} {:#x} {:#x}",
                word(pointer),
                word(pointer + 4),
                word(pointer + 16)
            ),
        );
        line.value("after", format!("{:#x}", word(pointer + 48)));
        line.says(cuMemsetD2D16_v2(pointer, 16, 0x2222, 2, 2));
        line.says(cuMemsetD2D32_v2(pointer, 16, 0x3333_3333, 2, 2));
        line.value(
            "second",
            format!(
                "{:#x} {:#x} {:#x}",
                word(pointer),
                word(pointer + 4),
                word(pointer + 8)
            ),
        );
        line.says(cuMemsetD2D8Async(pointer, 16, 0x44, 1, 1, stream()));
        line.says(cuMemsetD2D32Async(pointer, 16, 1, 1, 1, stream()));
        line.says(cuCtxSynchronize());
    }),
    alone!("fill/rows/wrong", |line| {
        context();
        let pointer = memory(256);
        line.says_as("no_width", cuMemsetD2D8_v2(pointer, 16, 0, 0, 3));
        line.says_as("no_height", cuMemsetD2D8_v2(pointer, 16, 0, 5, 0));
        line.says_as("pitch_small", cuMemsetD2D8_v2(pointer, 4, 0, 5, 3));
        line.says_as("pitch_zero", cuMemsetD2D8_v2(pointer, 0, 0, 5, 3));
        line.says_as("pitch_zero_one_row", cuMemsetD2D8_v2(pointer, 0, 0, 5, 1));
        line.says_as("null", cuMemsetD2D8_v2(0, 16, 0, 5, 3));
        line.says_as("past_the_end", cuMemsetD2D8_v2(pointer, 1 << 30, 0, 5, 100));
        line.says(cuCtxSynchronize());
    }),
    case!("fill/async", |line| {
        context();
        let (stream, pointer) = (stream(), memory(64));
        line.says(cuMemsetD8Async(pointer, 1, 4, stream));
        line.says(cuMemsetD16Async(pointer + 4, 2, 2, stream));
        line.says(cuMemsetD32Async(pointer + 8, 3, 1, stream));
        cuStreamSynchronize(stream).must();
        line.value(
            "values",
            format!(
                "{:#x} {:#x} {:#x}",
                word(pointer),
                word(pointer + 4),
                word(pointer + 8)
            ),
        );
        line.says_as("legacy", cuMemsetD8Async(pointer, 1, 4, LEGACY));
        line.says_as("per_thread", cuMemsetD8Async(pointer, 1, 4, PER_THREAD));
    }),
];
