//! Matrix products of a warp, `mma` and `wmma.mma`, and how lanes exchange parts of matrices: see
//! [`crate::grid::matrix`].

use cranelift_codegen::ir::{InstBuilder, MemFlags, types};
use ptx::ast::{Immediate, Type};

use super::Lower;
use super::warp;
use crate::grid::matrix::rows::{How, Rows};
use crate::grid::matrix::{Element, Product, Tiles};
use crate::grid::rounds::Wait;
use crate::grid::warp::{LANE, MEET, Meeting, OPERANDS, STATUS_SHIFT, multiplication};
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Takes};
use crate::jit::resolve::fragments::ROWS;
use crate::jit::runtime::float::Rounding;

/// An operation of the whole warp in which a lane brings and takes more than a word.
#[derive(Debug)]
pub(super) struct Exchange {
    pub kind: u32,
    pub brought: Vec<(Arg, Type)>,
    pub taken: Vec<(Arg, Type)>,
}

/// Decodes `mma`, `wmma.mma`, `movmatrix` and the step in which lanes tell each other where rows
/// are.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    match r.opcode {
        "mma" => mma(r),
        "wmma" => wmma(r),
        "movmatrix" => movmatrix(r),
        ROWS => rows(r),
        _ => Err(r.invalid("becomes other steps".into())),
    }
}

/// Where the rows of matrices are, of which each lane says one: or what is there.
fn rows(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let reads = r.eat("read");
    let turned = r.expect_any(&[("rows", false), ("trans", true)])?;
    let [to, address] = r.finish()?;
    let Arg::Vector(taken) = to else {
        return Err(r.invalid("takes a list".into()));
    };
    let (how, brought) = match address {
        Arg::Vector(parts) => (How::ReadAt, parts),
        address if reads => (How::Read, vec![address]),
        address => (How::Tell, vec![address]),
    };
    let of_address = if how == How::ReadAt {
        Type::B32
    } else {
        Type::B64
    };
    let ty = if reads { Type::B32 } else { Type::B64 };
    Ok(Box::new(Exchange {
        kind: Rows {
            count: taken.len() as u32,
            turned,
            how,
        }
        .kind(),
        brought: brought.into_iter().map(|arg| (arg, of_address)).collect(),
        taken: taken.into_iter().map(|arg| (arg, ty)).collect(),
    }))
}

/// `movmatrix.sync.aligned.m8n8.trans.b16 d, a`
fn movmatrix(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    for word in ["sync", "aligned", "m8n8", "trans"] {
        r.expect_any(&[(word, ())])?;
    }
    r.ty_of(&[Type::B16])?;
    let [to, value] = r.finish()?;
    r.check(&[
        (&to, Takes::To(Type::B32)),
        (&value, Takes::Register(Type::B32)),
    ])?;
    Ok(warp::exchange(Meeting::Transpose, value, to))
}

/// `m16n8k16`: its numbers.
pub(super) fn shape(r: &mut Reader<'_>) -> Result<[u32; 3], Refusal> {
    let numbers = r.peek().and_then(|word| {
        let (rows, rest) = word.strip_prefix('m')?.split_once('n')?;
        let (columns, depth) = rest.split_once('k')?;
        let [m, n, k] = [rows, columns, depth].map(|number| number.parse().ok());
        Some([m?, n?, k?])
    });
    match numbers {
        Some(numbers) => {
            r.skip();
            Ok(numbers)
        }
        None => Err(r.unknown_modifier()),
    }
}

fn layout(r: &mut Reader<'_>) -> Result<bool, Refusal> {
    r.expect_any(&[("row", false), ("col", true)])
}

/// The type of the elements of `A` or `B`.
pub(super) fn element(r: &mut Reader<'_>) -> Result<Element, Refusal> {
    r.expect_any(&[
        ("f16", Element::F16),
        ("bf16", Element::Bf16),
        ("tf32", Element::Tf32),
        ("f64", Element::F64),
        ("e4m3", Element::E4m3),
        ("e5m2", Element::E5m2),
        ("s8", Element::S8),
        ("u8", Element::U8),
        ("s4", Element::S4),
        ("u4", Element::U4),
        ("b1", Element::B1),
    ])
}

/// The type of `C` or `D`: halves, or what else the elements make.
pub(super) fn sum(r: &mut Reader<'_>) -> Result<Type, Refusal> {
    r.ty_of(&[Type::F16, Type::F32, Type::F64, Type::S32])
}

/// The type that sums of these elements have; some may be halves as well.
pub(super) fn natural(element: Element) -> Type {
    match element {
        Element::F64 => Type::F64,
        element if element.is_integer() => Type::S32,
        _ => Type::F32,
    }
}

/// `mma{.sp{::ordered_metadata}}.sync.aligned.shape.alayout.blayout{.satfinite}{.rnd}.d.a.b.c
/// {.op.popc}`
fn mma(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let sparse = r.eat("sp") || r.eat("sp::ordered_metadata");
    for word in ["sync", "aligned"] {
        r.expect_any(&[(word, ())])?;
    }
    let [m, n, k] = shape(r)?;
    let by_columns = [layout(r)?, layout(r)?];
    let saturates = r.eat("satfinite");
    let rounding = rounding(r);
    let of_d = sum(r)?;
    let elements = [element(r)?, element(r)?];
    let of_c = sum(r)?;
    let xor = bits_combined(r, elements)?;
    r.end()?;
    if n != 8 || !is_shape([m, k], elements[0], sparse) {
        return Err(r.invalid("has no such shape for these elements".into()));
    }
    let selector = match (sparse, r.args) {
        (false, _) => None,
        (true, [.., Arg::Imm(Immediate::Int { bits, .. })]) => {
            Some(u32::try_from(*bits).unwrap_or(u32::MAX))
        }
        (true, _) => return Err(r.invalid("takes a number as selector".into())),
    };
    let product = Product {
        rows: m,
        depth: k,
        tiles: Tiles::One,
        elements,
        halves: [of_c, of_d].map(|ty| ty == Type::F16),
        saturates,
        xor,
        sparse: selector,
        turned: [by_columns[0], !by_columns[1]],
    };
    check_rounding(r, rounding, product)?;
    if product.in_quads() {
        check_sums(r, product, [of_c, of_d], true)?;
    } else {
        check_sums(r, product, [of_c, of_d], false)?;
        if by_columns != [false, true] {
            return Err(r.invalid("goes by rows of A and columns of B".into()));
        }
    }
    if let Some(selector) = selector
        && selector >= selectors(product)
    {
        // The driver's compiler takes them. What they mean is written nowhere.
        if elements[0] == Element::F16 && selector < 4 {
            return Err(r.not_run(format!("selector {selector}")));
        }
        return Err(r.invalid(format!("takes no selector {selector}")));
    }
    match (sparse, r.args) {
        (false, [d, a, b, c]) => multiply(r, product, [a, b, c], d, None),
        (true, [d, a, b, c, metadata, _]) => multiply(r, product, [a, b, c], d, Some(metadata)),
        _ => Err(r.invalid("takes D, A, B and C, and metadata where A is sparse".into())),
    }
}

/// How many lanes of four can be the ones that have the metadata.
fn selectors(product: Product) -> u32 {
    let bits = product.elements[0].bits();
    match (product.depth * bits / 256, bits) {
        (1, 16..) => 4,
        (2, 16..) | (1, _) => 2,
        _ => 1,
    }
}

/// Whether a tile of these rows and this depth is there for such elements.
fn is_shape([rows, depth]: [u32; 2], element: Element, sparse: bool) -> bool {
    let unit = 128 / element.bits();
    match (rows, sparse, element) {
        (8, false, Element::F64 | Element::F16) => depth == 4,
        (8, false, _) => element.is_integer() && depth == unit,
        (16, false, Element::F64) => matches!(depth, 4 | 8 | 16),
        (16, false, _) => depth == unit || depth == 2 * unit,
        (16, true, Element::F64 | Element::B1) => false,
        (16, true, _) if element.is_fp8() => depth == 4 * unit,
        (16, true, _) => depth == 2 * unit || depth == 4 * unit,
        _ => false,
    }
}

/// Whether the types go together.
fn check_sums(
    r: &Reader<'_>,
    product: Product,
    [of_c, of_d]: [Type; 2],
    mixed: bool,
) -> Result<(), Refusal> {
    let [a, b] = product.elements;
    let alike = a == b
        || a.is_fp8() && b.is_fp8()
        || a.is_integer() && b.is_integer() && a.bits() == b.bits();
    let halves = a == Element::F16 || a.is_fp8();
    let fits = |ty: Type| ty == natural(a) || halves && ty == Type::F16;
    let saturates = !product.saturates || a.is_integer() && a != Element::B1;
    if alike && fits(of_c) && fits(of_d) && (mixed || of_c == of_d) && saturates {
        return Ok(());
    }
    Err(r.invalid("has types that do not go together".into()))
}

/// How products of doubles are rounded, if the instruction says so.
fn rounding(r: &mut Reader<'_>) -> Option<Rounding> {
    r.eat_any(&[
        ("rn", Rounding::Nearest),
        ("rz", Rounding::Zero),
        ("rm", Rounding::Down),
        ("rp", Rounding::Up),
    ])
}

/// Only products of doubles say how they round, and only those that round to nearest are run.
fn check_rounding(
    r: &Reader<'_>,
    rounding: Option<Rounding>,
    product: Product,
) -> Result<(), Refusal> {
    match rounding {
        Some(_) if product.elements[0] != Element::F64 => {
            Err(r.invalid("a rounding modifier is for .f64".into()))
        }
        None | Some(Rounding::Nearest) => Ok(()),
        Some(_) => Err(r.not_run("this rounding".into())),
    }
}

/// How bits are combined, which only products of bits say.
fn bits_combined(r: &mut Reader<'_>, elements: [Element; 2]) -> Result<bool, Refusal> {
    if elements != [Element::B1; 2] {
        return Ok(false);
    }
    let xor = r.expect_any(&[("xor", true), ("and", false)])?;
    r.expect_any(&[("popc", ())])?;
    Ok(xor)
}

/// `wmma.mma{.op.popc}.sync.aligned.alayout.blayout.shape.d{.a.b}.c{.satfinite}{.rn}`
fn wmma(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    r.expect_any(&[("mma", ())])?;
    let bits = r.eat_any(&[("xor", true), ("and", false)]);
    if bits.is_some() {
        r.expect_any(&[("popc", ())])?;
    }
    for word in ["sync", "aligned"] {
        r.expect_any(&[(word, ())])?;
    }
    let by_columns = [layout(r)?, layout(r)?];
    let shape = shape(r)?;
    let of_d = sum(r)?;
    // Halves are not named.
    let halves = r.peek() == Some("f32") || r.peek() == Some("f16") && r.is_last();
    let elements = match halves {
        true => [Element::F16; 2],
        false => [element(r)?, element(r)?],
    };
    let of_c = sum(r)?;
    let saturates = r.eat("satfinite");
    let rounding = rounding(r);
    r.end()?;
    let (rows, tiles) = match (shape, elements[0]) {
        ([16, 16, 16], Element::F16 | Element::Bf16 | Element::S8 | Element::U8)
        | ([16, 16, 8], Element::Tf32) => (16, Tiles::Beside),
        ([32, 8, 16], Element::F16 | Element::Bf16 | Element::S8 | Element::U8) => {
            (16, Tiles::Stacked)
        }
        ([8, 32, 16], Element::F16 | Element::Bf16 | Element::S8 | Element::U8) => {
            (16, Tiles::Transposed)
        }
        ([8, 8, 4], Element::F64)
        | ([8, 8, 32], Element::S4 | Element::U4)
        | ([8, 8, 128], Element::B1) => (8, Tiles::One),
        _ => return Err(r.invalid("has no such shape for these elements".into())),
    };
    if elements[0].bits() < 8 && by_columns != [false, true] {
        return Err(r.invalid("goes by rows of A and columns of B".into()));
    }
    let product = Product {
        rows,
        depth: shape[2],
        tiles,
        elements,
        halves: [of_c, of_d].map(|ty| ty == Type::F16),
        saturates,
        xor: bits.unwrap_or(false),
        sparse: None,
        turned: [false; 2],
    };
    check_rounding(r, rounding, product)?;
    if bits.is_some() != (elements[0] == Element::B1) {
        return Err(r.invalid("has types that do not go together".into()));
    }
    check_sums(r, product, [of_c, of_d], true)?;
    match r.args {
        [d, a, b, c] => multiply(r, product, [a, b, c], d, None),
        _ => Err(r.invalid("takes D, A, B and C".into())),
    }
}

/// How many registers a fragment of `wmma` has: of halves always eight, which hold some elements
/// more than once.
fn fragment(product: Product, words: usize) -> usize {
    match product.tiles {
        Tiles::One => words,
        _ if product.elements[0] == Element::F16 => 8,
        _ => words,
    }
}

/// A product whose operands have the registers that it takes.
fn multiply(
    r: &Reader<'_>,
    product: Product,
    [a, b, c]: [&Arg; 3],
    d: &Arg,
    metadata: Option<&Arg>,
) -> Result<Box<dyn Operation>, Refusal> {
    let registers = |arg: &Arg| match arg {
        Arg::Vector(list) => Ok(list.clone()),
        _ => Err(r.invalid("takes registers in braces".into())),
    };
    let of_register = words_of_register(product) as usize;
    let words = product.words();
    let counts = [
        fragment(product, words[0]),
        fragment(product, words[1]),
        words[2],
        words[3],
    ];
    let mut lists = [registers(a)?, registers(b)?, registers(c)?, registers(d)?];
    for (n, list) in lists.iter_mut().enumerate() {
        let (takes, has) = (counts[n] / of_register, list.len());
        if takes != has {
            let what = format!(
                "takes {takes} registers of {}, not {has}",
                ["A", "B", "C", "D"][n]
            );
            return Err(r.invalid(what));
        }
        list.truncate(words[n] / of_register);
        let size = 4 * words_of_register(product);
        let fits = |arg: &Arg| match arg {
            Arg::Reg(id) => r.registers[id.0 as usize].size() == size,
            Arg::Imm(_) => n < 3,
            Arg::Sink => n == 3,
            _ => false,
        };
        if !list.iter().all(fits) {
            return Err(r.invalid(format!("takes registers of {} bits", 8 * size)));
        }
    }
    let [of_a, of_b] = product.elements.map(|element| factor_type(r, element));
    let [of_c, of_d] = product.halves.map(|half| match half {
        // Sums of sparse products may be in any register.
        _ if product.sparse.is_some() => Type::B32,
        true => Type::F16x2,
        false => natural(product.elements[0]),
    });
    r.check(&[
        (a, Takes::From(of_a)),
        (b, Takes::From(of_b)),
        (c, Takes::From(of_c)),
        (d, Takes::ToOrNothing(of_d)),
    ])?;
    let [a, b, c, taken] = lists;
    if let Some(metadata) = metadata {
        r.check(&[(metadata, Takes::Register(Type::B32))])?;
    }
    let ty = match of_register {
        2 => Type::B64,
        _ => Type::B32,
    };
    let typed = |arg: Arg| (arg, ty);
    let brought = [a, b, c].concat().into_iter().chain(metadata.cloned());
    Ok(Box::new(Exchange {
        kind: multiplication(product),
        brought: brought.map(typed).collect(),
        taken: taken.into_iter().map(typed).collect(),
    }))
}

/// The type of a register with factors.
fn factor_type(r: &Reader<'_>, element: Element) -> Type {
    match element {
        Element::F16 => Type::F16x2,
        Element::Bf16 => Type::Bf16x2,
        Element::Tf32 => Type::Tf32,
        Element::F64 => Type::F64,
        element if r.opcode == "wmma" && element.is_integer() => Type::U32,
        _ => Type::B32,
    }
}

/// How many words a register has.
fn words_of_register(product: Product) -> u32 {
    if product.elements[0] == Element::F64 {
        2
    } else {
        1
    }
}

/// How many words of the tile a lane uses for a value.
fn words_of(ty: Type) -> usize {
    match ty {
        Type::Pred => 1,
        ty => ty.size().div_ceil(4) as usize,
    }
}

/// Where in the tile the values of a list lie: an array for the words, or for the lower and the
/// upper ones.
fn places(list: &[(Arg, Type)]) -> impl Iterator<Item = (&Arg, Type, usize, Option<usize>)> {
    let place = |word: usize| OPERANDS + 4 * 32 * word;
    let mut next = 0;
    list.iter().map(move |(arg, ty)| {
        let (words, first) = (words_of(*ty), next);
        next += words;
        let upper = (words == 2).then(|| place(first + 1));
        (arg, *ty, place(first), upper)
    })
}

impl Operation for Exchange {
    fn lower(&self, l: &mut Lower<'_>) {
        let kind = self.kind;
        if l.rounds() {
            for (arg, ty, low, high) in places(&self.brought) {
                l.bring(arg, ty, low, high);
            }
            l.wait(Wait {
                kind,
                mask: Some(u32::MAX),
                b: Some(0),
                c: Some(0),
                tiles: None,
            });
            for (arg, ty, low, high) in places(&self.taken) {
                l.take_from(arg, ty, low, high);
            }
            return;
        }
        let flags = MemFlags::trusted();
        let (thread, block) = (l.thread, l.block);
        let lane = l.call_value(&LANE, &[thread, block]);
        for (arg, ty, low, high) in places(&self.brought) {
            let value = l.read(arg, ty);
            let value = l.fit(value, types::I64, false);
            l.b.ins().istore32(flags, value, lane, low as i32);
            if let Some(high) = high {
                let value = l.b.ins().ushr_imm(value, 32);
                l.b.ins().istore32(flags, value, lane, high as i32);
            }
        }
        let kind = l.b.ins().iconst(types::I32, i64::from(kind));
        let mask = l.b.ins().iconst(types::I32, i64::from(u32::MAX));
        let none = [types::I64, types::I32, types::I32].map(|ty| l.b.ins().iconst(ty, 0));
        let args = [thread, block, kind, mask, none[0], none[1], none[2]];
        let answer = l.call_value(&MEET, &args);
        let status = l.b.ins().ushr_imm(answer, i64::from(STATUS_SHIFT));
        let status = l.b.ins().ireduce(types::I32, status);
        l.check_status(status);
        for (arg, ty, low, high) in places(&self.taken) {
            let mut value = l.b.ins().load(types::I32, flags, lane, low as i32);
            if let Some(high) = high {
                let upper = l.b.ins().load(types::I32, flags, lane, high as i32);
                value = l.joined(value, upper);
            }
            l.write(arg, ty, value);
        }
    }

    fn waits(&self) -> bool {
        true
    }

    fn waits_in_rounds(&self) -> bool {
        true
    }

    fn brings(&self) -> u32 {
        let words = |list: &[(Arg, Type)]| list.iter().map(|(_, ty)| words_of(*ty)).sum::<usize>();
        4 * words(&self.brought).max(words(&self.taken)) as u32
    }
}
