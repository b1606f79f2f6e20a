//! Who uses the parameters of an executable, and what they were given.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::script::{Captured, Changes, Traced};
use super::shape::{Fit, NotApplied, Shape};
use super::standing::{Changing, set_words};
use super::walk::or_nothing;
use crate::Result;
use crate::exec::{Patch, Ready};
use crate::graph::{AnyOp, NodeId};
use crate::kernel::{AnyParam, Arguments, LookedAt, tracked};
use crate::op::Op;
use crate::record::{Make, checked};

/// An operation that a closure makes of parameters.
#[derive(Clone)]
pub(super) struct Made {
    /// The place of its node in the script.
    pub item: u32,
    make: Arc<Make>,
    /// What it looked at. A version is that of the value that the node has.
    params: Vec<LookedAt>,
    /// The versions once the operation that was made last is the node's.
    next: Option<Vec<u64>>,
}

impl Made {
    /// Makes the operation.
    pub(super) fn new(item: usize, make: Arc<Make>) -> Result<(Made, AnyOp)> {
        let (op, params) = tracked(|| make());
        let item = item as u32;
        let next = None;
        let made = Made {
            item,
            make,
            params,
            next,
        };
        Ok((made, op?))
    }

    /// Whether what it looked at has the values that it had.
    fn is_current(&self) -> bool {
        let same = |(param, version): &LookedAt| param.version() == *version;
        self.params.iter().all(same)
    }

    /// The node has what was made last.
    pub(super) fn commit(&mut self) {
        let next = self.next.take().unwrap_or_default();
        for ((_, version), next) in self.params.iter_mut().zip(next) {
            *version = next;
        }
    }
}

/// A parameter of an executable.
pub(super) struct Bound {
    param: Arc<dyn AnyParam>,
    /// The version of the value that its users have. None if it is not known.
    applied: Option<u64>,
    /// The version that it had when a run began.
    seen: Option<u64>,
    /// That value.
    value: Arguments,
    /// The kernels that have it as an argument, and which of their uses of parameters it is.
    kernels: Vec<(NodeId, u16)>,
    /// The same kernels, by their place among those that are ready, and the words of the argument.
    words: SmallVec<[(u32, Range<u16>); 1]>,
    /// All of them are ready.
    is_ready: bool,
    /// The executable's table does not know the value yet.
    is_ahead: bool,
    /// Closures that look at it, by their place in the list.
    made: Vec<usize>,
    /// Loops and branches whose flag it is, by their item.
    flows: Vec<u32>,
}

impl Bound {
    /// Its users have another value than it has, or it is not known what they have.
    #[inline]
    fn is_stale(&self) -> bool {
        self.applied != Some(self.param.version())
    }

    /// What its users have, once kernels were given `version`. Closures and flags looked at the
    /// value before that, and another thread may have set it since.
    fn applied_with(&self, version: u64) -> Option<u64> {
        match self.made.is_empty() && self.flows.is_empty() {
            true => Some(version),
            false => self.seen,
        }
    }
}

/// What parameters with new values ask for.
#[derive(Clone, Copy)]
pub(super) struct Stale {
    /// How many there are.
    pub params: usize,
    /// The place of one of them.
    pub first: usize,
    /// They are arguments of kernels, and nothing else.
    pub is_patched: bool,
    /// It is known what their users have.
    pub is_known: bool,
}

impl Default for Stale {
    fn default() -> Stale {
        Stale {
            params: 0,
            first: 0,
            is_patched: true,
            is_known: true,
        }
    }
}

/// The parameters of an executable.
#[derive(Default)]
pub(super) struct Params {
    /// Operations that closures make, in the order of their items.
    pub made: Vec<Made>,
    /// None if it is not known who uses which.
    bound: Option<Vec<Bound>>,
    /// The kernels that have parameters as arguments.
    ready: Vec<Ready>,
    /// Some parameter is ahead of the executable's table.
    is_ahead: bool,
    /// Room to work in.
    nodes: Vec<NodeId>,
    room: Arguments,
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
            seen: None,
            value: Arguments::default(),
            kernels: Vec::new(),
            words: SmallVec::new(),
            is_ready: true,
            is_ahead: false,
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
            let (mut bound, mut ready) = (Vec::new(), Vec::new());
            let exec = &self.exec;
            exec.each_use(&mut |node, op| {
                let kernel = exec.ready(node);
                for (index, used) in (0..).zip(op.arguments().used()) {
                    let bound = entry(&mut bound, &used.param);
                    bound.kernels.push((node, index));
                    match kernel.is_ok() {
                        true => bound.words.push((ready.len() as u32, used.words.clone())),
                        false => bound.is_ready = false,
                    }
                }
                ready.extend(kernel);
            });
            self.params.ready = ready;
            for (index, made) in self.params.made.iter().enumerate() {
                for (param, _) in &made.params {
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

    /// Returns whether anything uses a parameter. If `checks`, its value is checked against that.
    pub(super) fn check_param(&mut self, param: &dyn AnyParam, checks: bool) -> Result<bool> {
        let is_same = |bound: &Bound| std::ptr::addr_eq(Arc::as_ptr(&bound.param), param);
        let bound = self.bound().iter().position(is_same);
        let Some(at) = bound else { return Ok(false) };
        let bound = &self.bound()[at];
        if !checks || bound.made.is_empty() && bound.flows.is_empty() {
            return Ok(true);
        }
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

    /// What parameters with new values ask for.
    #[inline]
    pub(super) fn stale(&mut self) -> Stale {
        let mut stale = Stale::default();
        for (index, bound) in self.bound().iter_mut().enumerate() {
            if bound.is_stale() {
                bound.seen = Some(bound.param.version());
                stale.params += 1;
                stale.first = index;
                stale.is_patched &= bound.made.is_empty() && bound.flows.is_empty();
                stale.is_known &= bound.applied.is_some() && bound.is_ready;
            }
        }
        stale
    }

    /// Notes what new values of parameters change about operations that closures make, and about
    /// flags.
    pub(super) fn note_params(&mut self, changes: &mut Changes) -> Result<()> {
        self.catch_up();
        self.bound();
        for made in &mut self.params.made {
            made.next = None;
        }
        let mut items = SmallVec::<[(u32, Option<usize>); 8]>::new();
        for bound in self
            .params
            .bound
            .iter()
            .flatten()
            .filter(|bound| bound.is_stale())
        {
            let flows = bound.flows.iter().map(|&item| (item, None));
            items.extend(flows);
            let made = bound.made.iter();
            let made = made.filter(|at| !self.params.made[**at].is_current());
            items.extend(made.map(|&at| (self.params.made[at].item, Some(at))));
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
                    let op = match op {
                        Ok(op) => op,
                        Err(error) => {
                            // It looked at some of them at least.
                            for (param, _) in params {
                                if !made.params.iter().any(|(one, _)| Arc::ptr_eq(one, &param)) {
                                    made.params.push((param, u64::MAX));
                                    looks_elsewhere = true;
                                }
                            }
                            if looks_elsewhere {
                                self.params.forget();
                            }
                            return Err(error);
                        }
                    };
                    let same = made.params.len() == params.len()
                        && made
                            .params
                            .iter()
                            .zip(&params)
                            .all(|((one, _), (other, _))| Arc::ptr_eq(one, other));
                    made.next = Some(params.iter().map(|(_, version)| *version).collect());
                    if !same {
                        // The node has none of these values yet.
                        made.params = params
                            .into_iter()
                            .map(|(param, _)| (param, u64::MAX))
                            .collect();
                        // Who uses what is found anew, also if something fails below.
                        looks_elsewhere = true;
                    }
                    let noted = self.note_made(changes, at, op);
                    if let Err(error) = noted {
                        if looks_elsewhere {
                            self.params.forget();
                        }
                        return Err(error);
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

    /// Notes that item `at` becomes what a closure made, if it is something else.
    fn note_made(&self, changes: &mut Changes, at: usize, op: AnyOp) -> Result<()> {
        let new = match or_nothing(op) {
            AnyOp::Child(child) => Traced::Captured(Captured::of(&child)?),
            op => Traced::Op(op),
        };
        match self.fit(at, new.view()) {
            Fit::Same => {}
            Fit::Changed => self.note(changes, at, new),
            Fit::Other => {
                changes.others.push((at as u32, new));
            }
        }
        Ok(())
    }

    /// Gives kernels the new value of the only parameter that has one.
    #[inline]
    pub(super) fn patch_param(&mut self, stale: Stale) -> std::result::Result<u64, NotApplied> {
        let Params {
            bound: Some(bound),
            ready,
            is_ahead,
            room,
            ..
        } = &mut self.params
        else {
            return Ok(0);
        };
        let bound = &mut bound[stale.first];
        room.clear();
        let version = bound.param.write(room).map_err(NotApplied::as_it_was)?;
        let (old, new) = (bound.value.words(), room.words());
        if room.is_plain() && bound.value.is_plain() && old.len() == new.len() {
            self.exec.bind_some().map_err(NotApplied::as_it_was)?;
            let set = set_words(self.exec.raw(), ready, &bound.words, old, new)?;
            bound.applied = Some(version);
            bound.is_ahead = true;
            *is_ahead = true;
            bound.value.copy_words(room.words());
            return Ok(set);
        }
        // What is known of the nodes is about to be sent to the driver again.
        self.catch_up();
        let Params {
            bound: Some(bound),
            ready,
            room,
            nodes,
            ..
        } = &mut self.params
        else {
            return Ok(0);
        };
        let bound = &mut bound[stale.first];
        let patch = Patch {
            uses: &bound.kernels,
            old: Some(&bound.value),
            new: room,
        };
        let set = self.exec.patch_each(&[patch], nodes);
        if set.is_ok() {
            for (kernel, words) in &bound.words {
                ready[*kernel as usize].patch(words, room.words());
            }
            bound.applied = Some(version);
            std::mem::swap(&mut bound.value, room);
        }
        // What it held is let go.
        room.clear();
        set.map_err(NotApplied::from)
    }

    /// The parameter at `place`, if all that it is are arguments that hold nothing. Until that is
    /// [taken back](Shape::take_back), the executable is left as it is.
    pub(super) fn changing(&mut self, place: usize) -> Option<Changing> {
        let Params { bound, ready, .. } = &mut self.params;
        let bound = bound.as_ref()?.get(place)?;
        let is_plain = bound.is_ready
            && bound.value.is_plain()
            && bound.made.is_empty()
            && bound.flows.is_empty();
        let applied = bound.applied.filter(|_| is_plain)?;
        Some(Changing {
            param: bound.param.clone(),
            applied,
            words: SmallVec::from_slice(bound.value.words()),
            users: bound.words.clone(),
            ready: std::mem::take(ready),
            place,
        })
    }

    pub(super) fn take_back(&mut self, changing: Changing) {
        self.params.ready = changing.ready;
        if let Some(bound) = self.params.bound.as_mut()
            && let Some(bound) = bound.get_mut(changing.place)
        {
            bound.applied = Some(changing.applied);
            bound.value.copy_words(&changing.words);
            bound.is_ahead = true;
            self.params.is_ahead = true;
        }
    }

    /// Brings the executable's table up to date.
    pub(super) fn catch_up(&mut self) {
        if !std::mem::take(&mut self.params.is_ahead) {
            return;
        }
        for bound in self.params.bound.iter_mut().flatten() {
            if std::mem::take(&mut bound.is_ahead) {
                self.exec.note_patch(&bound.kernels, &bound.value);
            }
        }
    }

    /// Gives kernels the new values of parameters, all or none. Returns how many nodes were set.
    #[cold]
    pub(super) fn patch_params(&mut self) -> std::result::Result<u64, NotApplied> {
        self.catch_up();
        self.bound();
        let Params {
            bound: Some(bound),
            ready,
            nodes,
            ..
        } = &mut self.params
        else {
            return Ok(0);
        };
        /// A new value, and where it is not known what the users have, those that have another.
        struct New<'a> {
            bound: &'a mut Bound,
            version: u64,
            value: Arguments,
            others: Vec<(NodeId, u16)>,
        }
        let mut new = Vec::new();
        for bound in bound.iter_mut().filter(|bound| bound.is_stale()) {
            let mut value = Arguments::default();
            let version = bound
                .param
                .write(&mut value)
                .map_err(NotApplied::as_it_was)?;
            let mut others = bound.kernels.clone();
            others.retain(|(node, used)| {
                let op = self.exec.now(*node).and_then(Op::launch);
                !op.is_some_and(|op| op.arguments().has((*used).into(), &value))
            });
            new.push(New {
                bound,
                version,
                value,
                others,
            });
        }
        let patches = new.iter().map(|new| Patch {
            uses: &new.others,
            old: new.bound.applied.map(|_| &new.bound.value),
            new: &new.value,
        });
        let patches: Vec<Patch<'_>> = patches.collect();
        let set = self.exec.patch_each(&patches, nodes)?;
        for new in new {
            for (kernel, words) in &new.bound.words {
                ready[*kernel as usize].patch(words, new.value.words());
            }
            new.bound.applied = new.bound.applied_with(new.version);
            new.bound.value = new.value;
        }
        Ok(set)
    }
}
