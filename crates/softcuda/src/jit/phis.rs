//! Parameters of blocks that hold one value whichever way the block is entered.
//!
//! Where loops lie in loops, what both leave as it is has a parameter at either head, and each is
//! passed to the other. Cranelift removes such parameters only where the value comes from an
//! instruction; where it is a parameter itself, of a block before the loops, it would be moved from
//! place to place in each turn. So parameters that depend on each other are looked at together here,
//! after Braun and others, "Simple and Efficient Construction of Static Single Assignment Form"
//! (2013), section 3.2: if all that come from elsewhere are one value, they are that value.

use std::collections::HashMap;

use cranelift_codegen::entity::{SecondaryMap, packed_option::PackedOption};
use cranelift_codegen::ir::{Block, BlockArg, BlockCall, Function, Value};

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
                for (phi, arg) in all[*first..].iter_mut().zip(call.args(&dfg.value_lists)) {
                    let given = arg.as_value().expect("no call is a branch here");
                    phi.given.push(dfg.resolve_aliases(given));
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
