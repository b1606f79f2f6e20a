//! Parameters of blocks that hold one value whichever way the block is entered.
//!
//! Where loops lie in loops, what both leave as it is has a parameter at either head, and each is
//! passed to the other. Cranelift removes such parameters only where the value comes from an
//! instruction; where it is a parameter itself, of a block before the loops, it would be moved from
//! place to place in each turn. So parameters that depend on each other are looked at together,
//! after Braun and others, "Simple and Efficient Construction of Static Single Assignment Form"
//! (2013), section 3.2: if all that come from elsewhere are one value, they are that value.

use std::collections::HashMap;

use cranelift_codegen::entity::{SecondaryMap, packed_option::PackedOption};
use cranelift_codegen::ir::{Block, BlockArg, BlockCall, Function, Value};

use super::blocks::given;

/// A parameter of a block.
struct Phi {
    value: Value,
    /// What it is given.
    given: Vec<Value>,
    /// When the search came to it, and the first of those it leads back to.
    seen: u32,
    low: u32,
    /// The search has not left it.
    open: bool,
    /// The component that it is in.
    component: u32,
}

/// The search does not go there.
const OUTSIDE: u32 = u32::MAX;
/// The search has not come there yet.
const UNSEEN: u32 = u32::MAX - 1;

struct Phis {
    all: Vec<Phi>,
    of_value: SecondaryMap<Value, Option<u32>>,
    /// What those are that are needless.
    instead: SecondaryMap<Value, PackedOption<Value>>,
    components: u32,
}

/// Removes them.
pub(super) fn remove(func: &mut Function) {
    let mut phis = Phis::of(func);
    let all: Vec<u32> = (0..phis.all.len() as u32).collect();
    phis.find(&all);
    let blocks: Vec<Block> = func.layout.blocks().collect();
    let mut kept: HashMap<Block, Vec<bool>> = HashMap::new();
    for block in &blocks {
        let params = func.dfg.block_params(*block).to_vec();
        let stays = params.iter().map(|param| phis.instead[*param].is_none());
        let stays: Vec<bool> = stays.collect();
        if stays.iter().all(|stays| *stays) {
            continue;
        }
        // The last first: those behind move up.
        for (param, _) in params
            .iter()
            .zip(&stays)
            .rev()
            .filter(|(_, stays)| !**stays)
        {
            func.dfg.remove_block_param(*param);
            func.dfg.change_to_alias(*param, phis.known(*param));
        }
        kept.insert(*block, stays);
    }
    for block in &blocks {
        let Some(branch) = func.layout.last_inst(*block) else {
            continue;
        };
        let dfg = &mut func.dfg;
        let calls = dfg.insts[branch]
            .branch_destination_mut(&mut dfg.jump_tables, &mut dfg.exception_tables);
        for call in calls {
            let to = call.block(&dfg.value_lists);
            if let Some(stays) = kept.get(&to) {
                let args = call.args(&dfg.value_lists).zip(stays);
                let args = args.filter_map(|(arg, stays)| stays.then_some(arg));
                let args: Vec<BlockArg> = args.collect();
                *call = BlockCall::new(to, args, &mut dfg.value_lists);
            }
        }
    }
}

impl Phis {
    fn of(func: &Function) -> Phis {
        let (mut all, mut of_value) = (vec![], SecondaryMap::new());
        let mut first: HashMap<Block, usize> = HashMap::new();
        for block in func.layout.blocks().skip(1) {
            first.insert(block, all.len());
            for param in func.dfg.block_params(block) {
                of_value[*param] = Some(all.len() as u32);
                all.push(Phi {
                    value: *param,
                    given: vec![],
                    seen: OUTSIDE,
                    low: 0,
                    open: false,
                    component: 0,
                });
            }
        }
        for block in func.layout.blocks() {
            let Some(branch) = func.layout.last_inst(block) else {
                continue;
            };
            let dfg = &func.dfg;
            let calls =
                dfg.insts[branch].branch_destination(&dfg.jump_tables, &dfg.exception_tables);
            for call in calls {
                // Nothing leads to the entry.
                let Some(first) = first.get(&call.block(&dfg.value_lists)) else {
                    continue;
                };
                for (phi, given) in all[*first..].iter_mut().zip(given(func, *call)) {
                    phi.given.push(given);
                }
            }
        }
        Phis {
            all,
            of_value,
            instead: SecondaryMap::new(),
            components: 0,
        }
    }

    /// The value that one is, as far as that is known.
    fn known(&self, mut value: Value) -> Value {
        while let Some(instead) = self.instead[value].expand() {
            value = instead;
        }
        value
    }

    /// Finds the needless ones among some, of which none was found to be.
    fn find(&mut self, among: &[u32]) {
        for together in self.components(among) {
            let (mut value, mut is_one, mut inner) = (None, true, vec![]);
            for phi in &together {
                let Phi {
                    given, component, ..
                } = &self.all[*phi as usize];
                let from_outside = given.iter().filter_map(|given| {
                    let given = self.known(*given);
                    let inside = self.of_value[given]
                        .is_some_and(|given| self.all[given as usize].component == *component);
                    (!inside).then_some(given)
                });
                let mut is_inner = true;
                for given in from_outside {
                    is_inner = false;
                    is_one &= *value.get_or_insert(given) == given;
                }
                if is_inner {
                    inner.push(*phi);
                }
            }
            match value {
                Some(value) if is_one => {
                    for phi in together {
                        self.instead[self.all[phi as usize].value] = value.into();
                    }
                }
                Some(_) if !inner.is_empty() => self.find(&inner),
                // Where none comes from outside, nobody comes there.
                _ => {}
            }
        }
    }

    /// The strongly connected components of some, each behind those that it is given: Tarjan's
    /// algorithm, without recursion.
    fn components(&mut self, among: &[u32]) -> Vec<Vec<u32>> {
        for phi in among {
            self.all[*phi as usize].seen = UNSEEN;
        }
        let (mut open, mut components, mut count) = (vec![], vec![], 0);
        // Those on the way from a root, and which of what each is given comes next.
        let mut path: Vec<(u32, usize)> = vec![];
        for root in among {
            let mut next = (self.all[*root as usize].seen == UNSEEN).then_some(*root);
            loop {
                if let Some(phi) = next.take() {
                    let entered = &mut self.all[phi as usize];
                    (entered.seen, entered.low, entered.open) = (count, count, true);
                    count += 1;
                    open.push(phi);
                    path.push((phi, 0));
                }
                let Some((phi, at)) = path.last_mut() else {
                    break;
                };
                let phi = *phi;
                if let Some(given) = self.all[phi as usize].given.get(*at) {
                    *at += 1;
                    if let Some(given) = self.of_value[self.known(*given)] {
                        let there = &self.all[given as usize];
                        let seen = there.seen;
                        match (seen, there.open) {
                            (UNSEEN, _) => next = Some(given),
                            (_, true) => {
                                let here = &mut self.all[phi as usize];
                                here.low = here.low.min(seen);
                            }
                            _ => {}
                        }
                    }
                    continue;
                }
                path.pop();
                let left = &self.all[phi as usize];
                let (low, is_first) = (left.low, left.low == left.seen);
                if let Some((before, _)) = path.last() {
                    let before = &mut self.all[*before as usize];
                    before.low = before.low.min(low);
                }
                if is_first {
                    let from = open.iter().rposition(|open| *open == phi);
                    let component = open.split_off(from.expect("it is open"));
                    self.components += 1;
                    for phi in &component {
                        let closed = &mut self.all[*phi as usize];
                        (closed.open, closed.component) = (false, self.components);
                    }
                    components.push(component);
                }
            }
        }
        for phi in among {
            self.all[*phi as usize].seen = OUTSIDE;
        }
        components
    }
}

#[cfg(test)]
mod tests {
    use cranelift_codegen::ir::{AbiParam, Function, InstBuilder, InstructionData, types};
    use cranelift_codegen::settings::{self, Flags};
    use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
    use proptest::prelude::*;

    use super::*;

    /// How a block ends: where it leads to, with which values; by none, the function does.
    /// Values are counted from the block's parameters on; the function's own come last.
    #[derive(Clone, Debug)]
    struct Ends {
        params: usize,
        asks: usize,
        ways: Vec<(usize, Vec<usize>)>,
    }

    const ARGUMENTS: usize = 3;

    fn build(blocks: &[Ends]) -> Function {
        let mut func = Function::new();
        let arguments = [AbiParam::new(types::I32); ARGUMENTS];
        func.signature.params.extend(arguments);
        func.signature.returns.push(AbiParam::new(types::I32));
        let mut context = FunctionBuilderContext::new();
        let mut b = FunctionBuilder::new(&mut func, &mut context);
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        let own = b.block_params(entry).to_vec();
        let made: Vec<Block> = blocks.iter().map(|_| b.create_block()).collect();
        for (block, ends) in made.iter().zip(blocks) {
            for _ in 0..ends.params {
                b.append_block_param(*block, types::I32);
            }
        }
        let args = |all: &[Value], to: usize, from: &[usize]| -> Vec<BlockArg> {
            let values = (0..blocks[to].params).map(|at| all[from[at % from.len()] % all.len()]);
            values.map(BlockArg::Value).collect()
        };
        b.switch_to_block(entry);
        b.ins().jump(made[0], &args(&own, 0, &[0, 1, 2]));
        for (block, ends) in made.iter().zip(blocks) {
            b.switch_to_block(*block);
            let all = [b.block_params(*block), &own].concat();
            let asks = all[ends.asks % all.len()];
            match &ends.ways[..] {
                [] => _ = b.ins().return_(&[asks]),
                [(to, from)] => {
                    let to = to % blocks.len();
                    b.ins().jump(made[to], &args(&all, to, from));
                }
                [(to, from), (other, with), ..] => {
                    let (to, other) = (to % blocks.len(), other % blocks.len());
                    let (from, with) = (args(&all, to, from), args(&all, other, with));
                    b.ins().brif(asks, made[to], &from, made[other], &with);
                }
            }
        }
        b.seal_all_blocks();
        b.finalize();
        func
    }

    /// What a function asks on its way, and gives.
    fn follow(func: &Function, arguments: [u32; ARGUMENTS]) -> Vec<u32> {
        let dfg = &func.dfg;
        let mut holds: HashMap<Value, u32> = HashMap::new();
        let mut block = func.layout.entry_block().expect("it has blocks");
        let entry = dfg.block_params(block).iter().copied();
        holds.extend(entry.zip(arguments));
        let mut seen = vec![];
        while seen.len() < 200 {
            let last = func.layout.last_inst(block).expect("it is filled");
            let holds_now = |value: Value| holds[&dfg.resolve_aliases(value)];
            let call = match dfg.insts[last] {
                InstructionData::Jump { destination, .. } => destination,
                InstructionData::Brif { arg, blocks, .. } => {
                    seen.push(holds_now(arg));
                    blocks[usize::from(holds_now(arg) == 0)]
                }
                _ => {
                    seen.push(holds_now(dfg.inst_args(last)[0]));
                    break;
                }
            };
            let given: Vec<u32> = call
                .args(&dfg.value_lists)
                .map(|arg| holds_now(arg.as_value().expect("it is a value")))
                .collect();
            block = call.block(&dfg.value_lists);
            let params = dfg.block_params(block);
            assert_eq!(params.len(), given.len());
            holds.extend(params.iter().copied().zip(given));
            seen.push(block.as_u32());
        }
        seen
    }

    fn params(func: &Function) -> Vec<usize> {
        let blocks = func.layout.blocks().skip(1);
        let params = blocks.map(|block| func.dfg.block_params(block).len());
        params.collect()
    }

    fn verified(func: &Function) {
        let flags = Flags::new(settings::builder());
        if let Err(errors) = cranelift_codegen::verify_function(func, &flags) {
            panic!("{errors}\n{}", func.display());
        }
    }

    /// Two loops pass each other what is one of two values before them.
    #[test]
    fn what_loops_leave_as_it_is() {
        let ends = |params, asks, ways: &[(usize, &[usize])]| Ends {
            params,
            asks,
            ways: ways.iter().map(|(to, from)| (*to, from.to_vec())).collect(),
        };
        let blocks = [
            ends(0, 0, &[(1, &[1]), (1, &[2])]),
            ends(1, 0, &[(2, &[0, 2])]),
            // The outer loop, the inner one, and the end of either.
            ends(2, 0, &[(3, &[0, 1])]),
            ends(2, 1, &[(3, &[0, 2]), (4, &[0, 1])]),
            ends(2, 1, &[(2, &[0, 3]), (5, &[0])]),
            ends(1, 0, &[]),
        ];
        let mut func = build(&blocks);
        assert_eq!(params(&func), [0, 1, 2, 2, 2, 1]);
        let before = follow(&func, [1, 2, 0]);
        remove(&mut func);
        verified(&func);
        // The outer loop's second is always an argument.
        assert_eq!(params(&func), [0, 1, 0, 1, 0, 0]);
        assert_eq!(follow(&func, [1, 2, 0]), before);
    }

    fn any_end() -> impl Strategy<Value = Ends> {
        let from = || prop::collection::vec(0..8usize, 4);
        let ways = prop::collection::vec((0..12usize, from()), 0..3);
        (0..5usize, 0..8usize, ways).prop_map(|(params, asks, ways)| Ends { params, asks, ways })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// Whatever leads where: functions go the same way with the same values.
        #[test]
        fn functions_do_what_they_did(
            blocks in prop::collection::vec(any_end(), 1..12),
            arguments in [0..3u32, 0..3u32, 0..3u32],
        ) {
            let mut func = build(&blocks);
            let before = follow(&func, arguments);
            let count: usize = params(&func).iter().sum();
            remove(&mut func);
            verified(&func);
            prop_assert_eq!(follow(&func, arguments), before);
            // Nothing is left to be found.
            let left = params(&func);
            prop_assert!(left.iter().sum::<usize>() <= count);
            remove(&mut func);
            prop_assert_eq!(params(&func), left);
        }
    }
}
