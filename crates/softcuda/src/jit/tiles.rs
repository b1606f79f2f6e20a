//! Sums of products of which there are more than vector registers, as in products of matrices whose
//! threads have a tile of the result each:
//!
//! ```text
//! for k: for row: for column: sum[row][column] += a[k][row] * b[k][column]
//! ```
//!
//! Unrolled, that is one block. As it stands, each sum is loaded and stored for each product. Here
//! the products are done where the first sum is needed, for a few sums at a time, which stay in
//! registers meanwhile: those of some rows and columns, for all `k`. What they multiply lies in the
//! native stack, and is loaded once for each few.

use std::collections::{HashMap, HashSet};

use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{
    self, Block, Function, Inst, InstBuilder, MemFlags, Opcode, StackSlot, Value, ValueDef, types,
};

/// With so many sums, there is no register for anything else.
const MANY: usize = 16;
/// Fewer products of each are not worth it.
const LEAST: usize = 4;
/// So many sums are done at a time: the other registers have what is multiplied, and the time that
/// a product takes is that of so many others.
const AT_ONCE: usize = 8;
/// Columns among them at most.
const COLUMNS: usize = 4;

/// Sums that are done in tiles.
pub(super) struct Tiles {
    blocks: Vec<(Block, Vec<Sum>)>,
}

/// The products that are added to one sum, in order.
type Sum = Vec<Inst>;

/// The factors of a product, by which it is told to which row and column its sum belongs.
fn factors_of(func: &Function, product: Inst) -> [Value; 2] {
    let args = func.dfg.inst_args(product);
    [args[0], args[1]].map(|value| func.dfg.resolve_aliases(value))
}

impl Tiles {
    /// Finds the sums.
    pub fn of(func: &Function) -> Tiles {
        let mut tiles = Tiles { blocks: vec![] };
        let mut uses = None;
        for block in func.layout.blocks() {
            let is_product = |inst: &Inst| is_product(func, *inst);
            let products: Vec<Inst> = func.layout.block_insts(block).filter(is_product).collect();
            if func.layout.is_cold(block) || products.len() < MANY * LEAST {
                continue;
            }
            let uses = uses.get_or_insert_with(|| uses_of(func));
            let mut sums = sums(func, products, uses);
            leave_out_those_of_others(func, block, &mut sums);
            if sums.len() >= MANY {
                tiles.blocks.push((block, sums));
            }
        }
        tiles
    }

    /// The products of all sums.
    pub fn products(&self) -> HashSet<Inst> {
        let sums = self.blocks.iter().flat_map(|(_, sums)| sums);
        sums.flatten().copied().collect()
    }

    /// Does the products in tiles, where what they multiply is computed early enough.
    pub fn arrange(self, func: &mut Function) {
        for (block, sums) in self.blocks {
            let Some(end) = first_needed(func, block, &sums) else {
                continue;
            };
            let mut factors = Factors::default();
            for tile in in_tiles(func, &sums) {
                let computed = |sum: &usize| {
                    let mut values = values_of(func, &sums[*sum]);
                    values.all(|value| is_before(func, value, end))
                };
                if tile.iter().all(computed) {
                    arrange(func, &sums, &tile, end, &mut factors);
                }
            }
            factors.keep(func);
        }
    }
}

/// The instruction of a block before which the sums must be complete.
fn first_needed(func: &Function, block: Block, sums: &[Sum]) -> Option<Inst> {
    let products: HashSet<Inst> = sums.iter().flatten().copied().collect();
    let result = |sum: &Sum| sum.last().map(|last| func.dfg.first_result(*last));
    let results: HashSet<Value> = sums.iter().filter_map(result).collect();
    let needs = |inst: &Inst| {
        let mut values = func.dfg.inst_values(*inst);
        !products.contains(inst)
            && values.any(|value| results.contains(&func.dfg.resolve_aliases(value)))
    };
    let mut insts = func.layout.block_insts(block);
    insts.find(needs).or(func.layout.last_inst(block))
}

/// Whether a value is there before an instruction.
fn is_before(func: &Function, value: Value, inst: Inst) -> bool {
    match func.dfg.value_def(value) {
        ValueDef::Result(by, _) => {
            func.layout.inst_block(by) != func.layout.inst_block(inst)
                || func.layout.pp_cmp(by, inst).is_lt()
        }
        _ => true,
    }
}

/// A product of vectors, and what is added to it.
fn is_product(func: &Function, inst: Inst) -> bool {
    func.dfg.insts[inst].opcode() == Opcode::Fma
        && func.dfg.value_type(func.dfg.first_result(inst)).bits() == 128
}

/// By value, how often it is used.
fn uses_of(func: &Function) -> Vec<u32> {
    let mut uses = vec![0; func.dfg.num_values()];
    for block in func.layout.blocks() {
        for inst in func.layout.block_insts(block) {
            for value in func.dfg.inst_values(inst) {
                uses[func.dfg.resolve_aliases(value).as_u32() as usize] += 1;
            }
        }
    }
    uses
}

/// The sums of a block's products.
fn sums(func: &Function, products: Vec<Inst>, uses: &[u32]) -> Vec<Sum> {
    let mut sums: Vec<Sum> = vec![];
    // By the last product of a sum so far, the sum's number.
    let mut last: HashMap<Value, usize> = HashMap::new();
    for product in products {
        let added = func.dfg.resolve_aliases(func.dfg.inst_args(product)[2]);
        let sum = last.remove(&added);
        let sum = sum.filter(|_| uses[added.as_u32() as usize] == 1);
        let sum = sum.unwrap_or_else(|| {
            sums.push(vec![]);
            sums.len() - 1
        });
        sums[sum].push(product);
        last.insert(func.dfg.first_result(product), sum);
    }
    sums.retain(|sum| sum.len() >= LEAST);
    sums
}

/// Leaves out sums that others are needed for: they are done in any order.
fn leave_out_those_of_others(func: &Function, block: Block, sums: &mut Vec<Sum>) {
    loop {
        let products: HashSet<Inst> = sums.iter().flatten().copied().collect();
        // What is computed from one of them.
        let mut derived: HashSet<Value> = HashSet::new();
        for inst in func.layout.block_insts(block) {
            let mut values = func.dfg.inst_values(inst);
            let derives = values.any(|value| derived.contains(&func.dfg.resolve_aliases(value)));
            if derives || products.contains(&inst) {
                derived.extend(func.dfg.inst_results(inst));
            }
        }
        let before = sums.len();
        sums.retain(|sum| {
            let mut values = values_of(func, sum);
            values.all(|value| !derived.contains(&value))
        });
        if sums.len() == before {
            return;
        }
    }
}

/// What a sum is computed from: its factors, and what they are added to.
fn values_of<'a>(func: &'a Function, sum: &'a Sum) -> impl Iterator<Item = Value> + 'a {
    let begins = func.dfg.inst_args(sum[0])[2];
    let factors = sum.iter().flat_map(|product| factors_of(func, *product));
    factors.chain([func.dfg.resolve_aliases(begins)])
}

/// The sums' numbers, a few together: those of some rows and columns.
fn in_tiles(func: &Function, sums: &[Sum]) -> Vec<Vec<usize>> {
    let mut by_factors: HashMap<[Value; 2], Vec<usize>> = HashMap::new();
    let of = |sum: usize| factors_of(func, sums[sum][0]);
    for sum in (0..sums.len()).rev() {
        by_factors.entry(of(sum)).or_default().push(sum);
    }
    let unique = |which: usize| {
        let mut seen = HashSet::new();
        let all = (0..sums.len()).map(|sum| of(sum)[which]);
        all.filter(|value| seen.insert(*value)).collect::<Vec<_>>()
    };
    let (rows, columns) = (unique(0), unique(1));
    let mut tiles = vec![];
    for first in 0..sums.len() {
        let there = |row: Value, column: Value, all: &HashMap<[Value; 2], Vec<usize>>| {
            all.get(&[row, column]).is_some_and(|left| !left.is_empty())
        };
        let [row, column] = of(first);
        if by_factors[&[row, column]].last() != Some(&first) {
            continue; // it is in a tile
        }
        let others = columns.iter().copied();
        let others = others.filter(|other| *other != column && there(row, *other, &by_factors));
        let mut across = vec![column];
        across.extend(others.take(COLUMNS - 1));
        let whole = |other: &Value| {
            let mut across = across.iter();
            *other != row && across.all(|column| there(*other, *column, &by_factors))
        };
        let mut down = vec![row];
        let most = AT_ONCE.div_ceil(across.len());
        down.extend(rows.iter().copied().filter(whole).take(most - 1));
        let mut tile = vec![];
        for row in down {
            for column in &across {
                let left = by_factors.get_mut(&[row, *column]);
                tile.extend(left.and_then(Vec::pop));
            }
        }
        tiles.push(tile);
    }
    tiles
}

/// Does the products of some sums before an instruction.
fn arrange(func: &mut Function, sums: &[Sum], tile: &[usize], end: Inst, factors: &mut Factors) {
    let longest = tile.iter().map(|sum| sums[*sum].len()).max();
    for turn in 0..longest.unwrap_or(0) {
        let mut loaded = HashMap::new();
        for sum in tile {
            let Some(product) = sums[*sum].get(turn).copied() else {
                continue;
            };
            for which in 0..2 {
                let factor = func.dfg.inst_args(product)[which];
                let factor = func.dfg.resolve_aliases(factor);
                let factor = match loaded.get(&factor) {
                    Some(loaded) => *loaded,
                    None => {
                        let value = factors.load(func, factor, end);
                        loaded.insert(factor, value);
                        value
                    }
                };
                func.dfg.inst_args_mut(product)[which] = factor;
            }
            func.layout.remove_inst(product);
            func.layout.insert_inst(product, end);
        }
    }
}

/// What is multiplied in tiles, by where it lies in the native stack.
#[derive(Default)]
struct Factors {
    slot: Option<StackSlot>,
    /// The factors, one behind the other.
    kept: Vec<Value>,
    /// By factor, its number.
    numbers: HashMap<Value, usize>,
}

impl Factors {
    /// Loads a factor before an instruction, if it is kept.
    fn load(&mut self, func: &mut Function, factor: Value, before: Inst) -> Value {
        let ValueDef::Result(..) = func.dfg.value_def(factor) else {
            return factor;
        };
        let slot = *self.slot.get_or_insert_with(|| {
            let kind = ir::StackSlotKind::ExplicitSlot;
            func.create_sized_stack_slot(ir::StackSlotData::new(kind, 0, 4))
        });
        let number = *self.numbers.entry(factor).or_insert_with(|| {
            self.kept.push(factor);
            self.kept.len() - 1
        });
        let ty = func.dfg.value_type(factor);
        let mut cursor = FuncCursor::new(func).at_inst(before);
        let from = cursor
            .ins()
            .stack_addr(types::I64, slot, 16 * number as i32);
        cursor.ins().load(ty, MemFlags::trusted(), from, 0)
    }

    /// Keeps them where they are computed.
    fn keep(self, func: &mut Function) {
        let Some(slot) = self.slot else {
            return;
        };
        func.sized_stack_slots[slot].size = 16 * self.kept.len() as u32;
        for (at, factor) in (0..).step_by(16).zip(self.kept) {
            let ValueDef::Result(by, _) = func.dfg.value_def(factor) else {
                continue;
            };
            let mut cursor = FuncCursor::new(func).after_inst(by);
            let to = cursor.ins().stack_addr(types::I64, slot, at);
            cursor.ins().store(MemFlags::trusted(), factor, to, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use cranelift_frontend::FunctionBuilder;

    use super::*;
    use crate::jit::schedule::tests::{function, opcodes};

    /// What the first sum is needed for.
    #[derive(Clone, Copy, PartialEq)]
    enum Needed {
        InTheEnd,
        /// Stored before it is complete.
        Early,
        /// A factor of the others, in their last turn.
        ByOthers,
    }

    /// Sums of products of four columns with each of some rows, `turns` of each.
    fn products(rows: usize, turns: i32, needed: Needed) -> Function {
        function(|b, from| sums_of(b, from, rows, turns, needed))
    }

    fn sums_of(b: &mut FunctionBuilder<'_>, from: Value, rows: usize, turns: i32, needed: Needed) {
        let flags = MemFlags::trusted();
        let load =
            |b: &mut FunctionBuilder<'_>, at: i32| b.ins().load(types::F32X4, flags, from, 16 * at);
        let begins = load(b, 0);
        let mut sums = vec![begins; 4 * rows];
        for turn in 0..turns {
            let factors: Vec<Value> = (0..4 + rows as i32).map(|at| load(b, at)).collect();
            for at in 0..sums.len() {
                let row = match needed == Needed::ByOthers && turn == turns - 1 && at > 0 {
                    true => sums[0],
                    false => factors[at / 4],
                };
                sums[at] = b.ins().fma(row, factors[rows + at % 4], sums[at]);
            }
            if needed == Needed::Early && turn == 1 {
                b.ins().store(flags, sums[0], from, 0);
            }
        }
        for (at, sum) in (0..).zip(&sums) {
            b.ins().store(flags, *sum, from, 16 * at);
        }
    }

    fn arranged(mut func: Function) -> Vec<Opcode> {
        Tiles::of(&func).arrange(&mut func);
        cranelift_codegen::verify_function(
            &func,
            &cranelift_codegen::settings::Flags::new(cranelift_codegen::settings::builder()),
        )
        .expect("it is a function");
        opcodes(&func).remove(0)
    }

    /// Products of two rows and four columns follow each other, each turn behind the loads of its
    /// factors.
    #[test]
    fn a_few_sums_are_done_at_a_time() {
        let all = arranged(products(4, 5, Needed::InTheEnd));
        let is = |opcode: &Opcode| *opcode == Opcode::Fma;
        let first = all.iter().position(is).expect("it multiplies");
        let turn = |at: usize| {
            all[at..]
                .iter()
                .take(20)
                .filter(|opcode| is(opcode))
                .count()
        };
        // Six loads, each with its address, for eight products.
        assert_eq!(all.iter().filter(|opcode| is(opcode)).count(), 80);
        assert_eq!(turn(first - 4), 8, "{all:?}");
        let stored = all[..first]
            .iter()
            .filter(|it| **it == Opcode::Store)
            .count();
        assert_eq!(stored, 5 * 8, "each factor is kept once");
    }

    /// Few sums, and those of few products, stay as they are.
    #[test]
    fn few_stay() {
        for (rows, turns) in [(3, 9), (4, 3)] {
            let before = products(rows, turns, Needed::InTheEnd);
            let expected = opcodes(&before).remove(0);
            assert_eq!(arranged(before), expected);
        }
    }

    /// What is stored early is complete there, and what others are multiplied with before them.
    #[test]
    fn sums_that_are_needed() {
        let loads = |needed| {
            let all = arranged(products(8, 6, needed));
            let is = |opcode: &&Opcode| **opcode == Opcode::Fma;
            assert_eq!(all.iter().filter(is).count(), 6 * 32, "{all:?}");
            all.iter().filter(|opcode| **opcode == Opcode::Load).count()
        };
        let before = 1 + 6 * 12;
        assert_eq!(loads(Needed::InTheEnd), before + 6 * 4 * 6);
        assert!(loads(Needed::Early) > before, "the others are");
        // Nothing is done in tiles: all but one wait for that one.
        assert_eq!(loads(Needed::ByOthers), before);
    }
}
