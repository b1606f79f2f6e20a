//! Parts of matrices between memory and the registers of a warp: `ldmatrix`, `stmatrix`,
//! `wmma.load` and `wmma.store` become ordinary loads and stores, so that these are checked and put
//! into vectors like all others. Where the lanes must be there together, they meet before.
//!
//! [`crate::grid::matrix`] says which lane has which element.

use ptx::ast::{self, Immediate, Type};

use super::body::Resolve;
use super::order;
use super::types;
use crate::grid::matrix::{Element, Product, Tiles};
use crate::jit::decode::{Arg, RegId, Special};

/// The opcode of the step in which lanes tell each other the addresses of their rows; no text of a
/// module has it.
pub(crate) const ROWS: &str = "rows of matrices";

/// The step in which a lane looks whether a row of its own is in shared memory. It writes `_`.
pub(crate) const IN_SHARED: &str = "address in shared memory";

/// An instruction on the way to its steps.
pub(super) struct Steps<'s, 'r, 'a> {
    resolve: &'s mut Resolve<'r, 'a>,
    at: &'s ast::Instruction,
    guard: Option<(RegId, bool)>,
}

/// What is wrong with an instruction.
pub(super) type Wrong = String;

/// Adds the steps of an instruction that becomes several; false for any other.
pub(super) fn expand(
    resolve: &mut Resolve<'_, '_>,
    at: &ast::Instruction,
    guard: Option<(RegId, bool)>,
    args: &[Arg],
) -> bool {
    let modifiers: Vec<&str> = at.modifiers.iter().map(String::as_str).collect();
    let mut steps = Steps { resolve, at, guard };
    let result = match (at.opcode.as_str(), modifiers.first()) {
        ("ldmatrix", _) => steps.rows(&modifiers, args, true),
        ("stmatrix", _) => steps.rows(&modifiers, args, false),
        ("wmma", Some(&"load")) => steps.fragment(&modifiers[1..], args, true),
        ("wmma", Some(&"store")) => steps.fragment(&modifiers[1..], args, false),
        ("tensormap", Some(&"cp_fenceproxy")) => steps.copy_of_map(&modifiers[1..], args),
        _ => return false,
    };
    let is_elsewhere = || types::is_elsewhere(at, args, &resolve.module.program.globals);
    let result = match result {
        Ok(()) if is_elsewhere() => Err(types::ELSEWHERE.to_string()),
        result => result,
    };
    if let Err(what) = result {
        let text = [at.opcode.as_str()]
            .into_iter()
            .chain(modifiers)
            .collect::<Vec<_>>();
        let what = format!("`{}`: {what}", text.join("."));
        resolve.module.invalid(at.pos, what);
    }
    true
}

pub(super) fn number(bits: u64) -> Arg {
    Arg::Imm(Immediate::Int {
        bits,
        signed: false,
    })
}

/// Takes the next word, which must be this one.
pub(super) fn expect<'w>(
    words: &mut impl Iterator<Item = &'w str>,
    word: &str,
) -> Result<(), Wrong> {
    match words.next() {
        Some(found) if found == word => Ok(()),
        Some(found) => Err(format!("modifier .{found} where .{word} is expected")),
        None => Err(format!("modifier .{word} is missing")),
    }
}

/// The state space in a modifier: its text, for an access.
fn space(word: &str) -> Option<&'static str> {
    match word {
        "shared" | "shared::cta" => Some(".shared"),
        "global" => Some(".global"),
        _ => None,
    }
}

impl Steps<'_, '_, '_> {
    pub(super) fn step(&mut self, text: &str, args: Vec<Arg>) {
        self.resolve.step(self.at.pos, self.guard, text, args);
    }

    fn fresh(&mut self, ty: Type) -> Arg {
        Arg::Reg(self.resolve.scopes.fresh(ty))
    }

    /// A step that writes a fresh register.
    pub(super) fn value(&mut self, ty: Type, text: &str, operands: &[Arg]) -> Arg {
        let to = self.fresh(ty);
        let args = [to.clone()].into_iter().chain(operands.iter().cloned());
        self.step(text, args.collect());
        to
    }

    fn type_of(&self, arg: &Arg) -> Option<Type> {
        match arg {
            Arg::Reg(id) => Some(self.resolve.scopes.types()[id.0 as usize]),
            _ => None,
        }
    }

    /// An address in a register of 64 bits. An offset is added in the width of the register that it
    /// has in the text.
    pub(super) fn address(&mut self, arg: &Arg) -> Result<Arg, Wrong> {
        let Arg::Address(base, offset) = arg else {
            return Err("takes an address".into());
        };
        let start = match &**base {
            Arg::Symbol(symbol, more) => {
                let whole = Arg::Symbol(*symbol, more.wrapping_add(*offset));
                return Ok(self.value(Type::U64, "mov.u64", &[whole]));
            }
            Arg::Imm(Immediate::Int { bits, .. }) => {
                let whole = number(bits.wrapping_add(*offset as u64));
                return Ok(self.value(Type::U64, "mov.u64", &[whole]));
            }
            base => match self.type_of(base).map(Type::size) {
                Some(4) => {
                    let more = number(*offset as u32 as u64);
                    let sum = match offset {
                        0 => base.clone(),
                        _ => self.value(Type::U32, "add.u32", &[base.clone(), more]),
                    };
                    return Ok(self.value(Type::U64, "cvt.u64.u32", &[sum]));
                }
                _ => base.clone(),
            },
        };
        Ok(match offset {
            0 => start,
            offset => self.value(Type::U64, "add.u64", &[start, number(*offset as u64)]),
        })
    }

    /// An address in a register of 32 bits, and the number that is added to it.
    fn address_in_two(&self, arg: &Arg) -> Option<Vec<Arg>> {
        let Arg::Address(base, offset) = arg else {
            return None;
        };
        let of_32_bits = self.type_of(base).map(Type::size) == Some(4);
        of_32_bits.then(|| vec![(**base).clone(), number(*offset as u32 as u64)])
    }

    /// `ldmatrix.sync.aligned.m8n8.num{.trans}{.space}.b16 r, [p]`, and `stmatrix`, the other way
    /// round.
    fn rows(&mut self, modifiers: &[&str], args: &[Arg], load: bool) -> Result<(), Wrong> {
        let mut words = order::of_fragment(modifiers).into_iter().peekable();
        for word in ["sync", "aligned", "m8n8"] {
            expect(&mut words, word)?;
        }
        let count = match words.next() {
            Some("x1") => 1,
            Some("x2") => 2,
            Some("x4") => 4,
            _ => return Err("takes 1, 2 or 4 matrices: .x1, .x2 or .x4".into()),
        };
        let turned = words.next_if_eq(&"trans").is_some();
        let space = match words.next_if(|word| space(word).is_some()) {
            Some("global") => return Err("takes shared memory".into()),
            Some(word) => space(word).unwrap_or_default(),
            None => "",
        };
        expect(&mut words, "b16")?;
        if let Some(word) = words.next() {
            return Err(format!("modifier .{word} is not known here"));
        }
        let (address, list) = match (load, args) {
            (true, [Arg::Vector(list), address]) | (false, [address, Arg::Vector(list)]) => {
                (address, list)
            }
            _ => return Err("takes registers in braces and an address".into()),
        };
        let fits = |arg: &Arg| match self.type_of(arg) {
            Some(ty) => ty.size() == 4,
            None => load && *arg == Arg::Sink,
        };
        if list.len() != count || !list.iter().all(fits) {
            return Err(format!("takes {count} registers of 32 bits"));
        }
        let how = if turned { "trans" } else { "rows" };
        if load && !space.is_empty() {
            let text = format!("{ROWS}.read.{how}");
            let own = match self.address_in_two(address) {
                Some(parts) => Arg::Vector(parts),
                None => self.address(address)?,
            };
            self.step(&text, vec![Arg::Vector(list.clone()), own]);
            return Ok(());
        }
        let own = self.address(address)?;
        let each = if turned { 2 } else { 1 };
        let rows: Vec<Arg> = (0..count * each).map(|_| self.fresh(Type::U64)).collect();
        self.step(
            &format!("{ROWS}.{how}"),
            vec![Arg::Vector(rows.clone()), own],
        );
        if !load && space.is_empty() {
            // A load takes rows from anywhere, as an H200 does.
            for row in &rows {
                self.step(IN_SHARED, vec![Arg::Sink, row.clone()]);
            }
        }
        for (register, rows) in list.iter().zip(rows.chunks(each)) {
            let places = rows
                .iter()
                .map(|row| Arg::Address(Box::new(row.clone()), 0));
            let places: Vec<Arg> = places.collect();
            self.access(load, space, Type::B16, register, &places);
        }
        if !load {
            self.meet();
        }
        Ok(())
    }

    /// The lanes meet. A device does such an instruction for all lanes at once, and programs rely
    /// on it.
    pub(super) fn meet(&mut self) {
        self.step("bar.warp.sync", vec![number(u64::from(u32::MAX))]);
    }

    /// Loads or stores the elements of a register of 32 bits or one double: in one access where
    /// there is one place, otherwise one by one.
    fn access(&mut self, load: bool, space: &str, element: Type, register: &Arg, places: &[Arg]) {
        let whole = self.type_of(register).map_or(4, Type::size);
        let ty = if whole == 8 { "b64" } else { "b32" };
        if let [place] = places {
            match load {
                true => self.step(
                    &format!("ld{space}.{ty}"),
                    vec![register.clone(), place.clone()],
                ),
                false => self.step(
                    &format!("st{space}.{ty}"),
                    vec![place.clone(), register.clone()],
                ),
            }
            return;
        }
        let bits = 8 * u64::from(element.size());
        if load {
            let mut joined = None;
            for (at, place) in (0..).zip(places) {
                let text = format!("ld{space}.u{bits}");
                let part = self.value(Type::U32, &text, std::slice::from_ref(place));
                joined = Some(match joined.take() {
                    None => part,
                    Some(before) => {
                        let shift = number(1 << (bits * at));
                        self.value(Type::U32, "mad.lo.u32", &[part, shift, before])
                    }
                });
            }
            let joined = joined.expect("a register has elements");
            self.step("mov.b32", vec![register.clone(), joined]);
        } else {
            let word = self.value(Type::U32, "mov.b32", std::slice::from_ref(register));
            for (at, place) in (0..).zip(places) {
                let part = self.value(Type::U32, "shr.u32", &[word.clone(), number(bits * at)]);
                self.step(&format!("st{space}.u{bits}"), vec![place.clone(), part]);
            }
        }
    }

    /// `wmma.load.{a,b,c}.sync.aligned.layout.shape{.space}.type r, [p]{, stride}`, and
    /// `wmma.store.d`.
    fn fragment(&mut self, modifiers: &[&str], args: &[Arg], load: bool) -> Result<(), Wrong> {
        let (matrix, rest) = match (load, modifiers) {
            (true, ["a", rest @ ..]) => (Matrix::A, rest),
            (true, ["b", rest @ ..]) => (Matrix::B, rest),
            (true, ["c", rest @ ..]) | (false, ["d", rest @ ..]) => (Matrix::Sum, rest),
            _ => return Err("loads a, b or c, and stores d".into()),
        };
        let mut words = order::of_fragment(rest).into_iter().peekable();
        for word in ["sync", "aligned"] {
            expect(&mut words, word)?;
        }
        let by_columns = match words.next() {
            Some("row") => false,
            Some("col") => true,
            _ => return Err("goes by rows or columns: .row or .col".into()),
        };
        let shape = words.next().unwrap_or_default();
        let space = words.next_if(|word| space(word).is_some()).and_then(space);
        let ty = words.next().unwrap_or_default();
        if let Some(word) = words.next() {
            return Err(format!("modifier .{word} is not known here"));
        }
        let fragment = Fragment::of(matrix, shape, ty)
            .ok_or_else(|| format!("has no fragment of .{shape}.{ty}"))?;
        let (address, list, stride) = match (load, args) {
            (true, [list, address]) => (address, list, None),
            (true, [list, address, stride]) => (address, list, Some(stride)),
            (false, [address, list]) => (address, list, None),
            (false, [address, list, stride]) => (address, list, Some(stride)),
            _ => return Err("takes registers, an address and a stride".into()),
        };
        let Arg::Vector(list) = list else {
            return Err("takes registers in braces".into());
        };
        let size = if fragment.element == Type::B64 { 8 } else { 4 };
        let fits = |arg: &Arg| self.type_of(arg).is_some_and(|ty| ty.size() == size);
        if list.len() != fragment.registers || !list.iter().all(fits) {
            let count = fragment.registers;
            return Err(format!("takes {count} registers of {} bits", 8 * size));
        }
        if fragment.bits < 8 && by_columns != (matrix == Matrix::B) && matrix != Matrix::Sum {
            return Err("goes by rows of A and columns of B".into());
        }
        // Lanes may load what others stored before.
        self.meet();
        let base = self.address(address)?;
        let line = match stride {
            None => number(fragment.line(by_columns)),
            Some(Arg::Imm(Immediate::Int { bits, .. })) => number(*bits),
            Some(stride) => match self.type_of(stride).map(Type::size) {
                Some(4) => self.value(Type::U64, "cvt.u64.u32", std::slice::from_ref(stride)),
                _ => return Err("takes a stride of 32 bits".into()),
            },
        };
        let line = self.value(Type::U64, "mul.lo.u64", &[line, number(fragment.bits)]);
        let line = self.value(Type::U64, "shr.u64", &[line, number(3)]);
        let lane = self.value(Type::U32, "mov.u32", &[Arg::Special(Special::Laneid)]);
        let group = self.value(Type::U32, "shr.u32", &[lane.clone(), number(2)]);
        let thread = self.value(Type::U32, "and.b32", &[lane, number(3)]);
        let [group, thread] =
            [group, thread].map(|part| self.value(Type::U64, "cvt.u64.u32", &[part]));
        // Where elements of a register lie beside each other, they are one access.
        let together = fragment.together(by_columns);
        let apart = fragment.apart();
        let lines = match together {
            true => group.clone(),
            false => self.value(Type::U64, "mul.lo.u64", &[thread.clone(), number(apart)]),
        };
        let across = match together {
            true => self.value(
                Type::U64,
                "mul.lo.u64",
                &[thread, number(apart * fragment.bits / 8)],
            ),
            false => self.value(Type::U64, "mul.lo.u64", &[group, number(fragment.bits / 8)]),
        };
        let start = self.value(Type::U64, "mad.lo.u64", &[lines, line.clone(), base]);
        let start = self.value(Type::U64, "add.u64", &[start, across]);
        let mut starts: Vec<(u64, Arg)> = vec![(0, start.clone())];
        for (at, register) in list.iter().enumerate() {
            let places = fragment.places(at, together);
            let places: Vec<Arg> = places
                .into_iter()
                .map(|(lines, elements)| {
                    let known = starts.iter().find(|(count, _)| *count == lines);
                    let start = match known {
                        Some((_, start)) => start.clone(),
                        None => {
                            let operands = [line.clone(), number(lines), start.clone()];
                            let start = self.value(Type::U64, "mad.lo.u64", &operands);
                            starts.push((lines, start.clone()));
                            start
                        }
                    };
                    let offset = (elements * fragment.bits / 8) as i64;
                    Arg::Address(Box::new(start), offset)
                })
                .collect();
            let space = space.unwrap_or_default();
            self.access(load, space, fragment.element, register, &places);
        }
        if !load {
            self.meet();
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Matrix {
    A,
    B,
    /// `C` or `D`.
    Sum,
}

/// What a lane has of a matrix of `wmma`.
struct Fragment {
    matrix: Matrix,
    /// Rows and columns of the matrix.
    size: [u64; 2],
    tiles: Tiles,
    /// Bits of an element.
    bits: u64,
    /// The type of an element, or of as many as a byte has.
    element: Type,
    /// How many registers there are.
    registers: usize,
    /// How many of them hold something that no other does.
    distinct: usize,
    /// How many registers of a tile lie in the same columns.
    high: usize,
}

impl Fragment {
    fn of(matrix: Matrix, shape: &str, ty: &str) -> Option<Fragment> {
        let (size, tiles) = match shape {
            "m16n16k16" => ([16, 16, 16], Tiles::Beside),
            "m16n16k8" => ([16, 16, 8], Tiles::Beside),
            "m32n8k16" => ([32, 8, 16], Tiles::Stacked),
            "m8n32k16" => ([8, 32, 16], Tiles::Transposed),
            "m8n8k4" => ([8, 8, 4], Tiles::One),
            "m8n8k32" => ([8, 8, 32], Tiles::One),
            "m8n8k128" => ([8, 8, 128], Tiles::One),
            _ => return None,
        };
        let factor = match ty {
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "tf32" => Element::Tf32,
            "f64" => Element::F64,
            "s8" | "u8" => Element::S8,
            "s4" | "u4" => Element::S4,
            "b1" => Element::B1,
            "f32" | "s32" if matrix == Matrix::Sum => Element::Tf32,
            _ => return None,
        };
        let fits = match (shape, factor) {
            ("m16n16k8", Element::Tf32) => true,
            ("m8n8k4", Element::F64) => true,
            ("m8n8k32", Element::S4) | ("m8n8k128", Element::B1) => true,
            ("m8n8k32" | "m8n8k128", _) => matrix == Matrix::Sum && ty == "s32",
            ("m16n16k16" | "m32n8k16" | "m8n32k16", _) => match matrix {
                Matrix::Sum => matches!(ty, "f16" | "f32" | "s32"),
                _ => matches!(factor, Element::F16 | Element::Bf16 | Element::S8),
            },
            _ => false,
        };
        let sums = matches!(ty, "f16" | "f32" | "s32" | "f64") || matrix != Matrix::Sum;
        if !fits || !sums || (matrix == Matrix::Sum && shape == "m16n16k8" && ty != "f32") {
            return None;
        }
        let product = Product {
            rows: if tiles == Tiles::One { 8 } else { 16 },
            depth: size[2] as u32,
            tiles,
            elements: [factor; 2],
            halves: [ty == "f16"; 2],
            saturates: false,
            xor: false,
            sparse: None,
            turned: [false; 2],
        };
        let [a, b, c, _] = product.words();
        let [m, n, k] = size;
        let words = match matrix {
            Matrix::A => a,
            Matrix::B => b,
            Matrix::Sum => c,
        };
        let doubles = factor == Element::F64;
        let distinct = if doubles { words / 2 } else { words };
        let rows_of_tile = if tiles == Tiles::One { 1 } else { 2 };
        let of_tile_b = (matrix == Matrix::B) != (tiles == Tiles::Transposed);
        Some(Fragment {
            matrix,
            size: match matrix {
                Matrix::A => [m, k],
                Matrix::B => [k, n],
                Matrix::Sum => [m, n],
            },
            tiles,
            bits: u64::from(factor.bits()),
            element: match factor.bits() {
                64 => Type::B64,
                32 => Type::B32,
                16 => Type::B16,
                _ => Type::B8,
            },
            registers: match (factor, matrix) {
                (Element::F16, Matrix::A | Matrix::B) => 8,
                _ => distinct,
            },
            distinct,
            high: if of_tile_b { 1 } else { rows_of_tile },
        })
    }

    /// How many elements a line has in memory, where it is not said.
    fn line(&self, by_columns: bool) -> u64 {
        self.size[usize::from(!by_columns)]
    }

    /// Whether the elements of a register lie beside each other in memory.
    fn together(&self, by_columns: bool) -> bool {
        match self.matrix {
            Matrix::A => !by_columns,
            Matrix::B => by_columns,
            Matrix::Sum => by_columns == (self.tiles == Tiles::Transposed),
        }
    }

    /// How many elements a register holds.
    fn each(&self) -> u64 {
        32 / self.bits.min(32)
    }

    /// How many elements lie between the first of a lane and of the next.
    fn apart(&self) -> u64 {
        match self.matrix {
            Matrix::Sum => 2,
            _ => self.each(),
        }
    }

    /// Where the elements of a register lie, beyond those of the first lane's first: lines, and
    /// elements in a line. One place, where they lie beside each other.
    fn places(&self, register: usize, together: bool) -> Vec<(u64, u64)> {
        let two_tiles = match self.matrix {
            Matrix::A => self.tiles == Tiles::Stacked,
            Matrix::B => matches!(self.tiles, Tiles::Beside | Tiles::Transposed),
            Matrix::Sum => self.tiles != Tiles::One,
        };
        let of_tile = self.distinct >> usize::from(two_tiles);
        let register = register % self.distinct;
        let (tile, at) = ((register / of_tile) as u64, register % of_tile);
        // Rows and columns; of `B` the other way round, and of the sum where it is transposed.
        let (row, column) = if self.matrix == Matrix::Sum {
            let first = at as u64 * self.each();
            let (row, column) = (8 * (first / 2), first % 2);
            match self.tiles {
                Tiles::Beside => (row, column + 8 * tile),
                _ => (row + 16 * tile, column),
            }
        } else {
            let row = 8 * (at % self.high + self.high * tile as usize) as u64;
            (row, 4 * self.each() * (at / self.high) as u64)
        };
        match together {
            true => vec![(row, column)],
            false => (0..self.each()).map(|e| (column + e, row)).collect(),
        }
    }
}
