//! Who uses the parameters of an executable, and what they were given.

use std::sync::Arc;

use smallvec::SmallVec;

use super::script::{Changes, Traced};
use super::shape::{NotApplied, Shape};
use crate::Result;
use crate::exec::Patch;
use crate::graph::NodeId;
use crate::kernel::{AnyParam, Arguments, tracked};
use crate::record::{Make, checked};

/// An operation that a closure makes of parameters.
pub(super) struct Made {
    /// The place of its node in the script.
    pub item: u32,
    make: Arc<Make>,
    params: Vec<Arc<dyn AnyParam>>,
}

impl Made {
    /// Makes the operation.
    pub(super) fn new(item: usize, make: Arc<Make>) -> Result<(Made, crate::AnyOp)> {
        let (op, params) = tracked(|| make());
        let item = item as u32;
        Ok((Made { item, make, params }, op?))
    }
}

/// A parameter of an executable.
pub(super) struct Bound {
    param: Arc<dyn AnyParam>,
    /// The version of the value that its users have. None if it is not known.
    applied: Option<u64>,
    /// That value.
    value: Arguments,
    /// The kernels that have it as an argument, and which of their uses of parameters it is.
    kernels: Vec<(NodeId, u16)>,
    /// Closures that look at it, by their place in the list.
    made: Vec<usize>,
    /// Loops and branches whose flag it is, by their item.
    flows: Vec<u32>,
}

/// The parameters of an executable.
#[derive(Default)]
pub(super) struct Params {
    /// Operations that closures make, in the order of their items.
    pub made: Vec<Made>,
    /// None if it is not known who uses which.
    bound: Option<Vec<Bound>>,
    /// Room to work in.
    nodes: Vec<NodeId>,
}

impl Params {
    /// The operations were replaced: who uses what is to be found anew.
    pub(super) fn forget(&mut self) {
        self.bound = None;
    }
}

/// The entry of `param`.
fn entry<'a>(bound: &'a mut Vec<Bound>, param: &Arc<dyn AnyParam>) -> &'a mut Bound {
    let is_same = |bound: &Bound| Arc::ptr_eq(&bound.param, param);
    let at = bound.iter().position(is_same).unwrap_or_else(|| {
        bound.push(Bound {
            param: param.clone(),
            applied: None,
            value: Arguments::default(),
            kernels: Vec::new(),
            made: Vec::new(),
            flows: Vec::new(),
        });
        bound.len() - 1
    });
    &mut bound[at]
}

impl Shape {
    /// Who uses which parameter.
    fn bound(&mut self) -> &mut Vec<Bound> {
        if self.params.bound.is_none() {
            let mut bound = Vec::new();
            self.exec.each_use(&mut |node, op| {
                for (index, used) in (0..).zip(op.arguments().used()) {
                    entry(&mut bound, &used.param).kernels.push((node, index));
                }
            });
            for (index, made) in self.params.made.iter().enumerate() {
                for param in &made.params {
                    let users = &mut entry(&mut bound, param).made;
                    if users.last() != Some(&index) {
                        users.push(index);
                    }
                }
            }
            self.each_flow(&mut |item, flow| {
                if let Some(param) = &flow.param {
                    entry(&mut bound, param).flows.push(item);
                }
            });
            self.params.bound = Some(bound);
        }
        self.params.bound.as_mut().expect("it was just made")
    }

    /// Checks the value of a parameter against what uses it. Returns whether anything does.
    pub(super) fn check_param(&mut self, param: &Arc<dyn AnyParam>) -> Result<bool> {
        let bound = self
            .bound()
            .iter()
            .position(|bound| Arc::ptr_eq(&bound.param, param));
        let Some(at) = bound else { return Ok(false) };
        let bound = &self.bound()[at];
        let (made, flows) = (bound.made.clone(), bound.flows.len());
        if flows > 0
            && let Some(region) = param.region()?
        {
            checked(region)?;
        }
        for made in made {
            (self.params.made[made].make)()?;
        }
        Ok(true)
    }

    /// The parameters whose users have another value, by their place in the list.
    fn stale(&mut self) -> SmallVec<[usize; 8]> {
        let bound = self.bound().iter().enumerate();
        let stale = bound.filter(|(_, bound)| bound.applied != Some(bound.param.version()));
        stale.map(|(index, _)| index).collect()
    }

    /// Notes what new values of parameters change about operations that closures make, and about
    /// flags.
    pub(super) fn note_params(&mut self, changes: &mut Changes) -> Result<()> {
        let stale = self.stale();
        let mut items = SmallVec::<[(u32, Option<usize>); 8]>::new();
        for &index in &stale {
            let bound = &self.bound()[index];
            let flows = bound.flows.iter().map(|&item| (item, None));
            items.extend(flows);
            let made = bound.made.clone();
            items.extend(made.iter().map(|&at| (self.params.made[at].item, Some(at))));
        }
        items.sort_unstable();
        items.dedup();
        let mut looks_elsewhere = false;
        for (item, made) in items {
            let at = item as usize;
            match made {
                Some(made) => {
                    let made = &mut self.params.made[made];
                    let (op, params) = tracked(|| (made.make)());
                    let op = op?;
                    let same = made.params.len() == params.len()
                        && made
                            .params
                            .iter()
                            .zip(&params)
                            .all(|(one, other)| Arc::ptr_eq(one, other));
                    if !same {
                        made.params = params;
                        looks_elsewhere = true;
                    }
                    if !self.op(at).is_some_and(|(_, now)| op.is_same_as(now)) {
                        self.note(changes, at, Traced::Op(op));
                    }
                }
                None => {
                    if let Some(flow) = self.flow(at)
                        && let Some(param) = &flow.param
                        && let Some(region) = param.region()?
                        && !checked(region.clone())?.is_same(&flow.flag)
                    {
                        let mut flow = flow.clone();
                        flow.flag = region;
                        self.note(changes, at, Traced::Flow(flow));
                    }
                }
            }
        }
        if looks_elsewhere {
            self.params.forget();
        }
        Ok(())
    }

    /// Gives kernels the new values of parameters, all or none. Returns how many nodes were set.
    pub(super) fn patch_params(&mut self) -> std::result::Result<u64, NotApplied> {
        let as_it_was = |error| NotApplied {
            error,
            restored: true,
        };
        let stale = self.stale();
        let mut new = SmallVec::<[(usize, u64, Arguments); 2]>::new();
        for index in stale {
            let mut value = Arguments::default();
            let version = self.bound()[index]
                .param
                .write(&mut value)
                .map_err(as_it_was)?;
            new.push((index, version, value));
        }
        let Some(bound) = self.params.bound.as_mut() else {
            return Ok(0);
        };
        // Where it is not known what the users have, those that have the value stay as they are.
        let mut unknown = SmallVec::<[Vec<(NodeId, u16)>; 2]>::new();
        for (index, _, value) in &new {
            let bound = &bound[*index];
            let mut users = Vec::new();
            if bound.applied.is_none() {
                for &(node, used) in &bound.kernels {
                    let op = self.exec.now(node).and_then(crate::op::Op::launch);
                    if !op.is_some_and(|op| op.arguments().has(used.into(), value)) {
                        users.push((node, used));
                    }
                }
            }
            unknown.push(users);
        }
        let patches = new
            .iter()
            .zip(&unknown)
            .map(|((index, _, value), unknown)| {
                let bound = &bound[*index];
                let uses = match bound.applied {
                    Some(_) => &bound.kernels,
                    None => unknown,
                };
                Patch {
                    uses,
                    old: bound.applied.map(|_| &bound.value),
                    new: value,
                }
            });
        let patches: SmallVec<[Patch<'_>; 2]> = patches.collect();
        let set = self.exec.patch_each(&patches, &mut self.params.nodes);
        drop(patches);
        match set {
            Ok(set) => {
                for (index, version, value) in new {
                    bound[index].applied = Some(version);
                    bound[index].value = value;
                }
                Ok(set)
            }
            Err(refused) => Err(NotApplied {
                error: refused.error,
                restored: refused.restored,
            }),
        }
    }
}
