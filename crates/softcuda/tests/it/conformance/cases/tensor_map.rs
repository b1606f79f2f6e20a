//! Tensor maps: what the driver says to each of their arguments.

use std::ffi::c_void;
use std::ptr::null;

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, alone, case};
use crate::conformance::fixture::*;

/// Where maps go: aligned to 128 bytes.
#[repr(align(128))]
struct Room([u8; 512]);

fn room() -> *mut c_void {
    Box::leak(Box::new(Room([0; 512]))).0.as_mut_ptr().cast()
}

/// The arguments of both functions, right unless a case changes them.
struct Arguments {
    map: *mut c_void,
    data: u32,
    rank: u32,
    address: usize,
    dims: [u64; 5],
    strides: [u64; 5],
    size: [u32; 5],
    lower: [i32; 3],
    upper: [i32; 3],
    channels: u32,
    pixels: u32,
    steps: [u32; 5],
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
}

impl Arguments {
    fn new(rank: u32, address: usize) -> Arguments {
        Arguments {
            map: room(),
            data: 1,
            rank,
            address,
            dims: [64, 20, 8, 8, 8],
            strides: [128, 2560, 20_480, 163_840, 0],
            size: [32, 8, 1, 1, 1],
            lower: [0; 3],
            upper: [0; 3],
            channels: 32,
            pixels: 16,
            steps: [1; 5],
            interleave: 0,
            swizzle: 0,
            promotion: 0,
            fill: 0,
        }
    }

    /// # Safety
    /// As `cuda.h` says, but for what a case is wrong about.
    unsafe fn tiled(&self) -> Answer {
        // SAFETY: the caller's promise.
        unsafe {
            cuTensorMapEncodeTiled(
                self.map,
                self.data,
                self.rank,
                self.address,
                self.dims.as_ptr(),
                self.strides.as_ptr(),
                self.size.as_ptr(),
                self.steps.as_ptr(),
                self.interleave,
                self.swizzle,
                self.promotion,
                self.fill,
            )
        }
    }

    /// # Safety
    /// As `cuda.h` says, but for what a case is wrong about.
    unsafe fn columns(&self) -> Answer {
        // SAFETY: the caller's promise.
        unsafe {
            cuTensorMapEncodeIm2col(
                self.map,
                self.data,
                self.rank,
                self.address,
                self.dims.as_ptr(),
                self.strides.as_ptr(),
                self.lower.as_ptr(),
                self.upper.as_ptr(),
                self.channels,
                self.pixels,
                self.steps.as_ptr(),
                self.interleave,
                self.swizzle,
                self.promotion,
                self.fill,
            )
        }
    }
}

/// A change of the arguments, with a name for the record.
type Change = (&'static str, fn(&mut Arguments));

/// # Safety
/// As `cuda.h` says, but for what the changes are wrong about.
unsafe fn tiled(line: &mut Line, rank: u32, changes: &[Change]) {
    let address = memory(1 << 20) as usize;
    for (name, change) in changes {
        let mut arguments = Arguments::new(rank, address);
        change(&mut arguments);
        // SAFETY: the caller's promise.
        let answer = unsafe { arguments.tiled() };
        line.says_as(name, answer);
    }
}

/// # Safety
/// As `cuda.h` says, but for what the changes are wrong about.
unsafe fn columns(line: &mut Line, rank: u32, changes: &[Change]) {
    let address = memory(1 << 20) as usize;
    for (name, change) in changes {
        let mut arguments = Arguments::new(rank, address);
        change(&mut arguments);
        // SAFETY: the caller's promise.
        let answer = unsafe { arguments.columns() };
        line.says_as(name, answer);
    }
}

pub const CASES: &[Case] = &[
    case!("tensor_map/tiled/places", |line| {
        context();
        let changes: &[Change] = &[
            ("right", |_| {}),
            ("map_16", |a| a.map = a.map.wrapping_byte_add(16)),
            ("map_32", |a| a.map = a.map.wrapping_byte_add(32)),
            ("map_64", |a| a.map = a.map.wrapping_byte_add(64)),
            ("address_null", |a| a.address = 0),
            ("address_8", |a| a.address += 8),
            ("address_16", |a| a.address += 16),
            ("address_wild", |a| a.address = 0x12_3450),
            ("address_47", |a| a.address = 1 << 47),
            ("address_56", |a| a.address = 1 << 56),
            ("address_57", |a| a.address = 1 << 57),
            ("address_high", |a| a.address = usize::MAX & !15),
        ];
        tiled(line, 2, changes);
    }),
    case!("tensor_map/tiled/types", |line| {
        context();
        for data in 0..18 {
            let mut arguments = Arguments::new(2, memory(4096) as usize);
            arguments.data = data;
            line.says_as(data, arguments.tiled());
        }
        for data in 0..13 {
            let mut arguments = Arguments::new(2, memory(4096) as usize);
            (arguments.data, arguments.fill) = (data, 1);
            line.says_as(format_args!("nan_{data}"), arguments.tiled());
        }
        for (fill, promotion) in [(2, 0), (0, 1), (0, 2), (0, 3), (0, 4)] {
            let mut arguments = Arguments::new(2, memory(4096) as usize);
            (arguments.data, arguments.fill, arguments.promotion) = (6, fill, promotion);
            line.says_as(
                format_args!("fill_{fill}_promotion_{promotion}"),
                arguments.tiled(),
            );
        }
    }),
    case!("tensor_map/tiled/dimensions", |line| {
        context();
        for rank in [0, 1, 3, 4, 5, 6, u32::MAX] {
            tiled(line, rank, &[("rank", |_| {})]);
        }
        let changes: &[Change] = &[
            ("none", |a| a.dims[0] = 0),
            ("none_1", |a| a.dims[1] = 0),
            ("most", |a| a.dims[0] = 1 << 32),
            ("more", |a| a.dims[0] = (1 << 32) + 1),
            ("most_1", |a| a.dims[1] = 1 << 32),
            ("more_1", |a| a.dims[1] = (1 << 32) + 1),
            ("unused_none", |a| a.dims[3] = 0),
            ("stride_none", |a| a.strides[0] = 0),
            ("stride_8", |a| a.strides[0] = 8),
            ("stride_16", |a| a.strides[0] = 16),
            ("stride_136", |a| a.strides[0] = 136),
            ("stride_less", |a| a.strides[0] = 64),
            ("stride_most", |a| a.strides[0] = (1 << 40) - 16),
            ("stride_more", |a| a.strides[0] = 1 << 40),
        ];
        tiled(line, 2, changes);
        let changes: &[Change] = &[
            ("outer_less", |a| a.strides[1] = 64),
            ("outer_no_multiple", |a| a.strides[1] = 2576),
            ("outer_none", |a| a.strides[1] = 0),
        ];
        tiled(line, 3, changes);
    }),
    case!("tensor_map/tiled/boxes", |line| {
        context();
        let changes: &[Change] = &[
            ("none", |a| a.size[0] = 0),
            ("none_1", |a| a.size[1] = 0),
            ("most", |a| a.size[0] = 256),
            ("more", |a| a.size[0] = 257),
            ("more_16", |a| a.size[0] = 264),
            ("most_1", |a| a.size[1] = 256),
            ("more_1", |a| a.size[1] = 257),
            ("bytes_14", |a| a.size[0] = 7),
            ("bytes_8", |a| a.size[0] = 4),
            ("bytes_48", |a| a.size[0] = 24),
            ("larger", |a| a.size[1] = 64),
            ("huge", |a| a.size = [256; 5]),
            ("step_none", |a| a.steps[0] = 0),
            ("step_none_1", |a| a.steps[1] = 0),
            ("step_most", |a| a.steps[0] = 8),
            ("step_more", |a| a.steps[0] = 9),
            ("step_most_1", |a| a.steps[1] = 8),
            ("step_more_1", |a| a.steps[1] = 9),
            ("step_past", |a| (a.steps[1], a.size[1]) = (8, 4)),
        ];
        tiled(line, 2, changes);
    }),
    case!("tensor_map/tiled/layouts", |line| {
        context();
        for swizzle in 0..8 {
            for row in [8, 16, 24, 32, 64, 128] {
                let mut arguments = Arguments::new(2, memory(4096) as usize);
                (arguments.swizzle, arguments.size[0]) = (swizzle, row);
                line.says_as(format_args!("swizzle_{swizzle}_{row}"), arguments.tiled());
            }
        }
        for interleave in 1..4 {
            for rank in 2..4 {
                for swizzle in 0..4 {
                    let mut arguments = Arguments::new(rank, memory(4096) as usize);
                    (arguments.interleave, arguments.swizzle) = (interleave, swizzle);
                    let name = format!("interleave_{interleave}_{rank}_{swizzle}");
                    line.says_as(name, arguments.tiled());
                }
            }
        }
        let changes: &[Change] = &[
            ("slices_7", |a| (a.interleave, a.size[0]) = (1, 7)),
            ("slices_8", |a| (a.interleave, a.size[0]) = (1, 8)),
            ("slices_256", |a| (a.interleave, a.size[0]) = (1, 256)),
            ("slices_257", |a| (a.interleave, a.size[0]) = (1, 257)),
            ("slices_step", |a| (a.interleave, a.steps[0]) = (1, 2)),
            ("wide_16", |a| {
                (a.interleave, a.swizzle, a.size[0]) = (2, 1, 16)
            }),
            ("wide_32", |a| {
                (a.interleave, a.swizzle, a.size[0]) = (2, 1, 32)
            }),
            ("wide_address", |a| {
                (a.interleave, a.swizzle) = (2, 1);
                a.address += 16;
            }),
            ("wide_stride", |a| {
                (a.interleave, a.swizzle) = (2, 1);
                a.strides = [144, 2880, 23_040, 184_320, 0];
            }),
            ("stride_16", |a| {
                a.interleave = 1;
                a.strides = [16, 336, 2880, 23_040, 0];
            }),
        ];
        tiled(line, 3, changes);
    }),
    case!("tensor_map/columns/corners", |line| {
        context();
        for rank in [2, 3, 4, 5, 6] {
            columns(line, rank, &[("rank", |_| {})]);
        }
        let changes: &[Change] = &[
            ("low", |a| a.lower[0] = -32_768),
            ("lower", |a| a.lower[0] = -32_769),
            ("high", |a| a.lower[0] = 32_767),
            ("higher", |a| a.lower[0] = 32_768),
            ("upper_high", |a| a.upper[0] = 32_767),
            ("upper_higher", |a| a.upper[0] = 32_768),
            ("upper_low", |a| a.upper[0] = -32_768),
            ("upper_lower", |a| a.upper[0] = -32_769),
        ];
        columns(line, 3, changes);
        let changes: &[Change] = &[
            ("low", |a| a.lower[1] = -128),
            ("lower", |a| a.lower[1] = -129),
            ("high", |a| a.lower[0] = 127),
            ("higher", |a| a.lower[0] = 128),
            ("upper_high", |a| a.upper[0] = 127),
            ("upper_higher", |a| a.upper[1] = 128),
            ("upper_low", |a| a.upper[0] = -128),
            ("upper_lower", |a| a.upper[0] = -129),
            ("nothing_left", |a| (a.lower[0], a.upper[0]) = (100, -100)),
        ];
        columns(line, 4, changes);
        let changes: &[Change] = &[
            ("low", |a| a.lower[2] = -16),
            ("lower", |a| a.lower[2] = -17),
            ("high", |a| a.lower[0] = 15),
            ("higher", |a| a.lower[0] = 16),
            ("upper_high", |a| a.upper[1] = 15),
            ("upper_higher", |a| a.upper[1] = 16),
        ];
        columns(line, 5, changes);
    }),
    case!("tensor_map/columns/sizes", |line| {
        context();
        let changes: &[Change] = &[
            ("right", |_| {}),
            ("no_channels", |a| a.channels = 0),
            ("most_channels", |a| a.channels = 256),
            ("more_channels", |a| a.channels = 257),
            ("bytes_14", |a| a.channels = 7),
            ("no_pixels", |a| a.pixels = 0),
            ("most_pixels", |a| a.pixels = 1024),
            ("more_pixels", |a| a.pixels = 1025),
            ("all", |a| (a.channels, a.pixels) = (256, 1024)),
            ("step_most", |a| a.steps[1] = 8),
            ("step_more", |a| a.steps[1] = 9),
            ("step_more_0", |a| a.steps[0] = 9),
            ("step_none", |a| a.steps[2] = 0),
            ("address_8", |a| a.address += 8),
            ("address_null", |a| a.address = 0),
            ("stride_8", |a| a.strides[0] = 8),
            ("map_16", |a| a.map = a.map.wrapping_byte_add(16)),
            ("dim_none", |a| a.dims[0] = 0),
            ("swizzled_64", |a| (a.swizzle, a.channels) = (3, 64)),
            ("swizzled_128", |a| (a.swizzle, a.channels) = (3, 128)),
            ("swizzled_32", |a| (a.swizzle, a.channels) = (1, 32)),
            ("nan", |a| a.fill = 1),
            ("slices", |a| a.interleave = 1),
            ("wide", |a| a.interleave = 2),
            ("wide_swizzled", |a| (a.interleave, a.swizzle) = (2, 1)),
        ];
        columns(line, 4, changes);
    }),
    case!("tensor_map/replace", |line| {
        context();
        let arguments = Arguments::new(2, memory(4096) as usize);
        arguments.tiled().must();
        let (map, address) = (arguments.map, arguments.address);
        line.says_as("right", cuTensorMapReplaceAddress(map, address + 256));
        line.says_as("null", cuTensorMapReplaceAddress(map, 0));
        line.says_as("address_8", cuTensorMapReplaceAddress(map, address + 8));
        line.says_as("address_57", cuTensorMapReplaceAddress(map, 1 << 57));
        let other = map.wrapping_byte_add(16);
        line.says_as("map_16", cuTensorMapReplaceAddress(other, address));
    }),
    alone!("tensor_map/null/map", |line| {
        context();
        let mut arguments = Arguments::new(2, memory(4096) as usize);
        let other = arguments.address;
        arguments.map = std::ptr::null_mut();
        line.says_as("replace", cuTensorMapReplaceAddress(arguments.map, other));
        line.says_as("tiled", arguments.tiled());
    }),
    alone!("tensor_map/null/strides", |line| {
        context();
        let a = Arguments::new(1, memory(4096) as usize);
        let (dims, size, steps) = (a.dims.as_ptr(), a.size.as_ptr(), a.steps.as_ptr());
        for rank in [1, 2] {
            let answer = cuTensorMapEncodeTiled(
                a.map,
                1,
                rank,
                a.address,
                dims,
                null(),
                size,
                steps,
                0,
                0,
                0,
                0,
            );
            line.says_as(rank, answer);
        }
    }),
    alone!("tensor_map/null/dims", |line| {
        context();
        let a = Arguments::new(2, memory(4096) as usize);
        let (strides, size, steps) = (a.strides.as_ptr(), a.size.as_ptr(), a.steps.as_ptr());
        line.says(cuTensorMapEncodeTiled(
            a.map,
            1,
            2,
            a.address,
            null(),
            strides,
            size,
            steps,
            0,
            0,
            0,
            0,
        ));
    }),
    alone!("tensor_map/null/size", |line| {
        context();
        let a = Arguments::new(2, memory(4096) as usize);
        let (dims, strides, steps) = (a.dims.as_ptr(), a.strides.as_ptr(), a.steps.as_ptr());
        line.says(cuTensorMapEncodeTiled(
            a.map,
            1,
            2,
            a.address,
            dims,
            strides,
            null(),
            steps,
            0,
            0,
            0,
            0,
        ));
    }),
    alone!("tensor_map/null/steps", |line| {
        context();
        let a = Arguments::new(2, memory(4096) as usize);
        let (dims, strides, size) = (a.dims.as_ptr(), a.strides.as_ptr(), a.size.as_ptr());
        line.says(cuTensorMapEncodeTiled(
            a.map,
            1,
            2,
            a.address,
            dims,
            strides,
            size,
            null(),
            0,
            0,
            0,
            0,
        ));
    }),
    alone!("tensor_map/null/corners", |line| {
        context();
        let a = Arguments::new(4, memory(4096) as usize);
        let (dims, strides, steps) = (a.dims.as_ptr(), a.strides.as_ptr(), a.steps.as_ptr());
        let corners = a.lower.as_ptr();
        line.says_as(
            "upper",
            cuTensorMapEncodeIm2col(
                a.map,
                1,
                4,
                a.address,
                dims,
                strides,
                corners,
                null(),
                32,
                16,
                steps,
                0,
                0,
                0,
                0,
            ),
        );
        line.says_as(
            "lower",
            cuTensorMapEncodeIm2col(
                a.map,
                1,
                4,
                a.address,
                dims,
                strides,
                null(),
                corners,
                32,
                16,
                steps,
                0,
                0,
                0,
                0,
            ),
        );
    }),
];
