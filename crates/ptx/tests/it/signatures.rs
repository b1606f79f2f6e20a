//! Where parameters lie.

use ptx::Signature;
use ptx::ast::{Item, Type};

fn signature(params: &str) -> Signature {
    let module = ptx::parse(&format!(
        ".version 8.0 .target sm_90 .entry k({params}) {{ ret; }}"
    ))
    .expect("a kernel");
    let Item::Function(function) = &module.items[0] else {
        panic!("no function")
    };
    function.signature()
}

/// Offset, size and alignment of each parameter, and the size of all.
fn layout(params: &str) -> (Vec<(u64, u64, u32)>, u64) {
    let signature = signature(params);
    (
        signature
            .params
            .iter()
            .map(|param| (param.offset, param.size, param.align))
            .collect(),
        signature.size,
    )
}

#[test]
fn scalars_take_their_natural_alignment() {
    assert_eq!(layout(""), (vec![], 0));
    assert_eq!(
        layout(".param .u8 a, .param .u32 b, .param .u8 c, .param .f64 d, .param .b16 e"),
        (
            vec![(0, 1, 1), (4, 4, 4), (8, 1, 1), (16, 8, 8), (24, 2, 2)],
            26
        )
    );
    assert_eq!(
        layout(".param .b8 a, .param .b128 b"),
        (vec![(0, 1, 1), (16, 16, 16)], 32)
    );
}

#[test]
fn arrays_vectors_and_declared_alignments() {
    assert_eq!(
        layout(
            ".param .u64 a, .param .align 8 .b8 b[16], .param .align 16 .b8 c[16], .param .u64 d, .param .u32 e"
        ),
        (
            vec![(0, 8, 8), (8, 16, 8), (32, 16, 16), (48, 8, 8), (56, 4, 4)],
            60
        )
    );
    assert_eq!(
        layout(".param .b8 a, .param .b8 b[3], .param .b16 c[2][3], .param .v4 .f32 d"),
        (vec![(0, 1, 1), (1, 3, 1), (4, 12, 2), (16, 16, 16)], 32)
    );
    assert_eq!(
        layout(".param .align 1 .u32 a, .param .align 64 .b8 map[128]"),
        (vec![(0, 4, 1), (64, 128, 64)], 192)
    );
    assert_eq!(
        layout(".param .b8 a, .param .b8 open[]"),
        (vec![(0, 1, 1), (1, 0, 1)], 1)
    );
}

/// `.align` behind `.ptr` is that of what is pointed to.
#[test]
fn pointers_are_plain_numbers() {
    assert_eq!(
        layout(".param .u32 a, .param .u64 .ptr .global .align 256 p, .param .u64 .ptr .align 1 q"),
        (vec![(0, 4, 4), (8, 8, 8), (16, 8, 8)], 24)
    );
}

#[test]
fn names_types_and_returns() {
    let source =
        ".version 8.0 .target sm_90 .func (.param .b32 r) f(.param .b64 a, .reg .f32 b) { ret; }";
    let module = ptx::parse(source).expect("a function");
    let Item::Function(function) = &module.items[0] else {
        panic!("no function")
    };
    let signature = Signature::of(function);
    assert_eq!(signature.returns.len(), 1);
    assert_eq!(
        (
            signature.returns[0].name.as_str(),
            signature.returns[0].offset
        ),
        ("r", 0)
    );
    assert_eq!(
        (signature.params[1].name.as_str(), signature.params[1].ty),
        ("b", Type::F32)
    );
    assert_eq!((signature.size, signature.align), (12, 8));
}

#[test]
fn sizes_beyond_all_measure_saturate() {
    let huge = ".param .b64 a[0xFFFFFFFFFFFFFFFF], .param .align 2147483648 .b8 b[0xFFFFFFFFFFFFFFFF][4], .param .b8 c";
    let (params, size) = layout(huge);
    assert_eq!(params[0].1, u64::MAX);
    assert_eq!(params[1].0, u64::MAX);
    assert_eq!(size, u64::MAX);
}
