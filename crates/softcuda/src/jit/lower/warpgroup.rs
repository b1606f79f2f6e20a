//! Matrix products of a warpgroup, `wgmma`: see [`crate::grid::matrix::group`].
//!
//! A product is made when its instruction is reached, so there is nothing to wait for.

use ptx::ast::{Immediate, Type};

use super::control;
use super::matrix::{self, Exchange};
use crate::grid::matrix::Element;
use crate::grid::matrix::group::GroupProduct;
use crate::grid::warp::group_multiplication;
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Takes};

/// Decodes `wgmma`.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let what = r.expect_any(&[
        ("mma_async", 0),
        ("fence", 1),
        ("commit_group", 1),
        ("wait_group", 2),
    ])?;
    let sparse = what == 0 && r.eat("sp");
    for word in ["sync", "aligned"] {
        r.expect_any(&[(word, ())])?;
    }
    match (what, r.args) {
        (0, _) => mma_async(r, sparse),
        (1, []) => r.end().map(|()| control::nothing()),
        (2, [Arg::Imm(Immediate::Int { bits, .. })]) if *bits as i64 >= 0 => {
            r.end().map(|()| control::nothing())
        }
        (1, _) => Err(r.invalid("takes no operands".into())),
        _ => Err(r.invalid("takes a number that is not negative".into())),
    }
}

/// `wgmma.mma_async{.sp}.sync.aligned.shape.d.a.b{.and.popc}{.satfinite} d, a, b{, metadata,
/// selector}, scale-d{, imm-scale-a, imm-scale-b{{, imm-trans-a}, imm-trans-b}}`
fn mma_async(r: &mut Reader<'_>, sparse: bool) -> Result<Box<dyn Operation>, Refusal> {
    let [rows, columns, depth] = matrix::shape(r)?;
    let of_d = matrix::sum(r)?;
    let elements = [matrix::element(r)?, matrix::element(r)?];
    let bits = elements[0] == Element::B1;
    if bits {
        for word in ["and", "popc"] {
            r.expect_any(&[(word, ())])?;
        }
    }
    let saturates = r.eat("satfinite");
    r.end()?;
    let (d, a, b, metadata, scale, rest) = match (sparse, r.args) {
        (false, [d, a, b, scale, rest @ ..]) => (d, a, b, None, scale, rest),
        (true, [d, a, b, metadata, selector, scale, rest @ ..]) => {
            (d, a, b, Some((metadata, selector)), scale, rest)
        }
        _ => return Err(r.invalid("takes D, A, B and whether D counts".into())),
    };
    let whole = elements[0].is_integer();
    let in_registers = matches!(a, Arg::Vector(_));
    let of_16 = matches!(elements[0], Element::F16 | Element::Bf16);
    let numbers = match (whole, of_16, in_registers) {
        (true, ..) => 0,
        (false, true, false) => 4,
        (false, true, true) => 3,
        _ => 2,
    };
    if rest.len() != numbers {
        let before = if sparse { 6 } else { 4 };
        return Err(r.invalid(format!("takes {} operands", before + numbers)));
    }
    let number = |at: usize| match rest.get(at) {
        None => Ok(None),
        Some(Arg::Imm(Immediate::Int { bits, .. })) => Ok(Some(*bits as i32)),
        Some(_) => Err(r.invalid("takes numbers behind the predicate".into())),
    };
    let negated = |at: usize| match number(at)? {
        None | Some(1) => Ok(false),
        Some(-1) => Ok(true),
        Some(_) => Err(r.invalid("scales by 1 or -1".into())),
    };
    let turned = |at: usize| match number(at)? {
        None | Some(0) => Ok(false),
        Some(1) => Ok(true),
        Some(_) => Err(r.invalid("turns a matrix, or not: 1 or 0".into())),
    };
    // Four lanes have the metadata of bytes, otherwise two of them.
    let selectors = if elements[0].bits() == 8 { 1 } else { 2 };
    let selector = match metadata {
        None => None,
        Some((_, Arg::Imm(Immediate::Int { bits, .. }))) if *bits < selectors => Some(*bits as u32),
        Some(_) => return Err(r.invalid("takes no such selector".into())),
    };
    let product = GroupProduct {
        columns,
        elements,
        half: of_d == Type::F16,
        saturates,
        in_registers,
        negated: [negated(0)?, negated(1)?],
        turned: match in_registers {
            true => [false, turned(2)?],
            false => [turned(2)?, turned(3)?],
        },
        sparse: selector,
    };
    let alike = elements[0] == elements[1]
        || elements.iter().all(|element| element.is_fp8())
        || elements
            .iter()
            .all(|e| matches!(e, Element::S8 | Element::U8));
    let there = !matches!(elements[0], Element::F64 | Element::S4 | Element::U4);
    let halves = elements[0] == Element::F16 || elements[0].is_fp8();
    let sums = of_d == matrix::natural(elements[0]) || halves && product.half;
    if !alike || !there || !sums || saturates && (!whole || bits) || sparse && bits {
        return Err(r.invalid("has types that do not go together".into()));
    }
    // Of integers, there are 24 and multiples of 16 beside 8.
    let step = if whole { 16 } else { 8 };
    let columns_fit = matches!(columns, 8 | 24) || columns % step == 0;
    let columns_fit = columns_fit && (8..=256).contains(&columns);
    if rows != 64 || !columns_fit || depth != product.depth() {
        return Err(r.invalid("has no such shape for these elements".into()));
    }
    let list = |arg: &Arg, count: usize| match arg {
        Arg::Vector(list) if list.len() == count => Ok(list.clone()),
        _ => Err(r.invalid(format!("takes {count} registers"))),
    };
    let sums = list(d, product.sums())?;
    let of_a = match in_registers {
        true => list(a, 4)?,
        false => vec![a.clone()],
    };
    let type_of_d = match of_d {
        Type::F16 => Type::F16x2,
        ty => ty,
    };
    let takes_a = match in_registers {
        true => Takes::Register(Type::B32),
        false => Takes::From(Type::U64),
    };
    r.check(&[
        (d, Takes::To(type_of_d)),
        (a, takes_a),
        (b, Takes::From(Type::U64)),
        (scale, Takes::From(Type::Pred)),
    ])?;
    if let Some((metadata, _)) = metadata {
        r.check(&[(metadata, Takes::Register(Type::B32))])?;
    }
    let words = |list: &[Arg]| list.iter().map(|arg| (arg.clone(), Type::B32)).collect();
    let taken: Vec<(Arg, Type)> = words(&sums);
    let mut brought = taken.clone();
    match in_registers {
        true => brought.extend(words(&of_a)),
        false => brought.push((a.clone(), Type::B64)),
    }
    brought.push((b.clone(), Type::B64));
    brought.push((scale.clone(), Type::Pred));
    brought.extend(metadata.map(|(metadata, _)| (metadata.clone(), Type::B32)));
    Ok(Box::new(Exchange {
        kind: group_multiplication(product),
        brought,
        taken,
    }))
}
