//! An executable of a graph that passes put better to the driver.
//!
//! The driver's executable is of another definition than the program's, one that was made of a
//! [`Plan`]. Updates name nodes of the program's graph: what stands for a node is set, and where an
//! update breaks what a pass had made of the node, the graph is planned anew with that node left as
//! it is, and instantiated.
//!
//! Neither the plan nor the other definition holds what operations use: the table does, as it does
//! for other executables. So an update lets go of what it replaces.

mod disabled;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode, CUresult};
use smallvec::SmallVec;

use super::others::Others;
use super::{Exec, InstantiateOptions};
use crate::driver::event::Event;
use crate::error::{NodeKind, NodeName, UpdateFailure};
use crate::graph::diff::{counterparts, is_taken_over};
use crate::graph::setter;
use crate::graph::state::State;
use crate::graph::{AnyOp, Graph, NodeId};
use crate::op::{KernelOp, Op};
use crate::optimize::emit::Emitted;
use crate::optimize::plan::{Does, NotPlanned, Place, Plan, Planned};
use crate::optimize::{Given, Optimize, Report, Words};
use crate::{Error, Owner, Result, driver};

/// What stands for the nodes of a graph.
pub(super) struct Optimized {
    /// The program's graph.
    base: Plan,
    plan: Plan,
    emitted: Emitted,
    /// Made when it is asked for.
    stands: OnceLock<StandsFor>,
    /// Nodes that passes leave alone.
    pinned: HashSet<Place>,
    disabled: HashSet<Place>,
    /// Memory that passes use.
    words: Option<Owner>,
    /// Graphs of the program's whose copies do something else by now.
    replaced: HashSet<u32>,
    /// Nodes of copies that were set since.
    set_in_copies: HashSet<Place>,
    /// What nodes were set to that the table does not know yet.
    pending: HashMap<Place, AnyOp>,
}

/// What became of a graph: an executable of another one, unless it is left as it is.
pub(super) struct Made {
    pub report: Box<Report>,
    pub exec: Option<Instantiated>,
}

/// The driver's executable, whose turns it takes, and what stands for what in it.
type Instantiated = (CUgraphExec, Option<Arc<Others>>, Box<Optimized>);

/// By a node of the program's, what stands for it: a graph and a number in the plan.
type StandsFor = HashMap<Place, SmallVec<[(u32, u32); 1]>>;

/// What passes made of a graph.
struct Planning {
    base: Plan,
    plan: Plan,
    pinned: HashSet<Place>,
    words: Words,
}

/// Why a node could not be set.
enum NotSet {
    /// A pass assumed something else of it.
    Assumed,
    Error(Error),
}

/// The places of nodes in a plan, where they have one, and the driver's handles.
type Stands = SmallVec<[(Option<(u32, u32)>, CUgraphNode); 1]>;

impl Optimized {
    /// Plans `graph` and instantiates that.
    // Not inlined: its frame is large, and most graphs are instantiated as they are.
    #[inline(never)]
    pub(super) fn make(
        graph: &Graph,
        state: &mut State,
        options: &InstantiateOptions,
    ) -> Result<Made> {
        let left = |left: NotPlanned| {
            Ok(Made {
                report: Box::new(Report::left(left)),
                exec: None,
            })
        };
        let base = match Plan::of(state, graph.body_index())? {
            Ok(base) => base,
            Err(why) => return left(why),
        };
        let (context, nothing) = (graph.context(), HashSet::new());
        let pinned = HashSet::new();
        let (planning, report) =
            Optimized::planned(base, context, options.optimize, pinned, &nothing);
        let report = Box::new(report);
        if !report.has_changed() {
            return Ok(Made { report, exec: None });
        }
        let made = Emitted::of(&planning.plan, context)
            .and_then(|emitted| Optimized::instantiated(planning, emitted, options, nothing));
        match made {
            Ok(made) => Ok(Made {
                report,
                exec: Some(made),
            }),
            Err(error) => {
                tracing::debug!("a graph is instantiated as it is: {error}");
                left(NotPlanned {
                    node: None,
                    why: "the driver does not take what the passes made of it",
                })
            }
        }
    }

    /// What passes make of `base`.
    fn planned(
        base: Plan,
        context: &Arc<CudaContext>,
        optimize: Optimize,
        pinned: HashSet<Place>,
        disabled: &HashSet<Place>,
    ) -> (Planning, Report) {
        let mut plan = base.clone();
        let words = Words::default();
        let given = Given {
            context,
            pinned: &pinned,
            disabled,
            words: &words,
            unroll: optimize.repetitions(),
        };
        let report = optimize.run(&mut plan, &given);
        let planning = Planning {
            base,
            plan,
            pinned,
            words,
        };
        (planning, report)
    }

    /// Instantiates what was planned and emitted. Nodes in `disabled` are disabled.
    fn instantiated(
        planning: Planning,
        emitted: Emitted,
        options: &InstantiateOptions,
        disabled: HashSet<Place>,
    ) -> Result<Instantiated> {
        let mut state = emitted.graph().hierarchy().lock();
        let (raw, others) = emitted.graph().instantiate_raw(&mut state, options)?;
        drop(state);
        let Planning {
            base,
            plan,
            pinned,
            words,
        } = planning;
        let context = emitted.graph().context().clone();
        let mut optimized = Box::new(Optimized {
            base,
            plan,
            emitted: emitted.released(),
            stands: OnceLock::new(),
            pinned,
            disabled,
            words: words.into_owner(),
            replaced: HashSet::new(),
            set_in_copies: HashSet::new(),
            pending: HashMap::new(),
        });
        if let Err(error) = optimized.disable_in(&context, raw) {
            driver::log_leak("an executable", driver::exec::destroy(raw));
            return Err(error);
        }
        optimized.base.release();
        optimized.plan.release();
        Ok((raw, others, optimized))
    }

    /// Whether it does what nodes of other code do, which that may have user objects for. The
    /// driver's own graph holds those, so launches hold that.
    pub(super) fn has_read(&self) -> bool {
        !self.base.read.is_empty()
    }

    /// The handles of what stands for a node, with their places in the plan. What was copied as it
    /// is has none.
    fn handles(&self, place: Place) -> Stands {
        if let Some(stands) = self.stands().get(&place) {
            let handle = |&(graph, node): &(u32, u32)| {
                Some((Some((graph, node)), self.emitted.handle(graph, node)?))
            };
            return stands.iter().filter_map(handle).collect();
        }
        let copies = self.emitted.copied.values();
        let found = copies.filter_map(|copied| copied.handle(place));
        found.take(1).map(|handle| (None, handle)).collect()
    }

    /// Sets what stands for a node. `now` says what the program's nodes are to do. Where a pass
    /// assumed something else, nothing is set.
    fn set<'o>(
        &self,
        context: &Arc<CudaContext>,
        exec: CUgraphExec,
        place: Place,
        now: &dyn Fn(Place) -> Option<&'o AnyOp>,
    ) -> std::result::Result<(), NotSet> {
        let handles = self.handles(place);
        let mut ops = SmallVec::<[AnyOp; 1]>::with_capacity(handles.len());
        for (planned, _) in &handles {
            let planned = planned.map(|at| self.planned_at(at));
            let mut op = match planned {
                Some(node) if !self.latches_for(node, now) => return Err(NotSet::Assumed),
                Some(node) => node
                    .op_for(context, now, &self.disabled)
                    .map_err(NotSet::Error)?
                    .map_err(|_| NotSet::Assumed)?,
                None => now(place).ok_or(NotSet::Assumed)?.clone(),
            };
            self.base.name_conditions(&mut op);
            // A pass may have done without the node that looks at its condition.
            ops.push(self.emitted.with_conditions(&op).ok_or(NotSet::Assumed)?);
        }
        for ((_, handle), op) in handles.iter().zip(&ops) {
            op.set_in(context, exec, *handle).map_err(NotSet::Error)?;
        }
        // A memset node that is disabled does something in the driver's eyes.
        if self.disabled.contains(&place) && ops.iter().any(|op| op.kind() == NodeKind::Fill) {
            return self
                .enable_in(context, exec, place, now(place), false)
                .map_err(NotSet::Error);
        }
        Ok(())
    }

    /// Whether a latch is still one for what sets its condition; other nodes are none.
    fn latches_for<'o>(&self, node: &Planned, now: &dyn Fn(Place) -> Option<&'o AnyOp>) -> bool {
        let Does::Latch(latch) = node.does else {
            return true;
        };
        let mut op = node.of.first().and_then(|place| now(*place)).cloned();
        op.iter_mut().for_each(|op| self.base.name_conditions(op));
        let set = |op: &KernelOp| op.arguments().conditions().any(|it| it == latch.condition);
        matches!(&op, Some(AnyOp::Kernel(op)) if set(op))
    }

    /// What stands for a node, as planned.
    fn standing(&self, place: Place) -> impl Iterator<Item = &Planned> {
        let stands = self.stands().get(&place).into_iter().flatten();
        stands.map(|at| self.planned_at(*at))
    }

    fn planned_at(&self, (graph, node): (u32, u32)) -> &Planned {
        &self.plan.graphs[graph as usize][node as usize]
    }

    /// The nodes that were set and break what a pass assumed of several: that they name the flag
    /// that others of their loop name, or that lines are ordered by their data.
    fn parted<'o>(
        &self,
        edits: &[(NodeId, &AnyOp)],
        context: &Arc<CudaContext>,
        now: &dyn Fn(Place) -> Option<&'o AnyOp>,
    ) -> Vec<Place> {
        let Plan {
            one_flag, ordered, ..
        } = &self.plan;
        if one_flag.is_empty() && ordered.is_empty() {
            return Vec::new();
        }
        let edited: HashSet<Place> = edits.iter().map(|(id, _)| place(*id)).collect();
        let is_edited = |at: &&Place| edited.contains(at);
        let setters = setter::of(context).ok();
        let flag = |at: &Place| setters.as_ref()?.flag_of(now(*at)?);
        let names_one = |nodes: &[Place]| {
            let first = flag(&nodes[0]);
            first.is_some() && nodes.iter().all(|at| flag(at) == first)
        };
        let loops = one_flag.iter().filter(|nodes| {
            let is_touched = nodes.iter().any(|at| is_edited(&at));
            is_touched && !names_one(nodes)
        });
        let lines = ordered.iter().filter(|line| {
            let is_touched = line.nodes.iter().any(|at| is_edited(&at));
            is_touched && !line.is_right(now)
        });
        let nodes = loops.flatten().chain(lines.flat_map(|line| &line.nodes));
        nodes.filter(is_edited).copied().collect()
    }

    /// Whether a node is one of the driver's copy of a graph.
    fn is_in_a_copy(&self, place: Place) -> bool {
        matches!(self.handles(place)[..], [(None, _)])
    }

    /// Whether a node is done together with others.
    fn is_joined(&self, place: Place) -> bool {
        self.standing(place).any(|node| node.of.len() > 1)
    }

    /// What stands for which node.
    fn stands(&self) -> &StandsFor {
        self.stands.get_or_init(|| {
            let mut stands = StandsFor::with_capacity(self.plan.len());
            for (graph, nodes) in (0..).zip(&self.plan.graphs) {
                for (number, node) in (0..).zip(nodes) {
                    for place in &node.of {
                        stands.entry(*place).or_default().push((graph, number));
                    }
                }
            }
            stands
        })
    }
}

fn place(id: NodeId) -> Place {
    (id.body, id.index)
}

impl Graph {
    /// What passes make of the graph, to be looked at and drawn, and what they did. The graph stays
    /// as it is; [`InstantiateOptions::optimize`] has an executable made of the same.
    ///
    /// ```
    /// # use cuda_graph::{Buffer, FillOp, Graph, Optimize};
    /// # let device = cuda_graph::device(0)?;
    /// # let stream = device.context().default_stream();
    /// # let buffers = [0, 1].map(|_| Buffer::<u32>::zeroed(&stream, 8).unwrap());
    /// let graph = Graph::new(device.context())?;
    /// graph.add(FillOp::new(&buffers[0], 1)?, ())?;
    /// graph.add(FillOp::new(&buffers[1], 2)?, ())?;
    /// let (made, report) = graph.optimized(Optimize::ALL)?;
    /// assert_eq!(report.nodes, (2, 1));
    /// let made = made.expect("both fills became one kernel");
    /// assert_eq!(made.nodes()?.len(), 1);
    /// println!("{report}");
    /// # Ok::<(), cuda_graph::Error>(())
    /// ```
    ///
    /// There is no graph where the report says that nothing was changed, and none where other code
    /// put nodes into this one: what those use, this graph alone holds.
    ///
    /// # Errors
    ///
    /// When the driver fails to read the graph or to make another.
    pub fn optimized(&self, optimize: impl Into<Optimize>) -> Result<(Option<Graph>, Report)> {
        driver::bind(self.context())?;
        let mut state = self.hierarchy().lock();
        let base = match Plan::of(&mut state, self.body_index())? {
            Ok(base) => base,
            Err(left) => return Ok((None, Report::left(left))),
        };
        drop(state);
        let (context, nothing) = (self.context(), HashSet::new());
        let (planning, report) =
            Optimized::planned(base, context, optimize.into(), HashSet::new(), &nothing);
        if !report.has_changed() || !planning.base.read.is_empty() {
            return Ok((None, report));
        }
        let made = Emitted::of(&planning.plan, context)?.into_graph();
        if let Some(words) = planning.words.into_owner() {
            made.keep(words)?;
        }
        Ok((Some(made), report))
    }
}

impl Exec {
    /// What the passes did that [`InstantiateOptions::optimize`] named; none if it named none.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_deref()
    }

    /// Memory that passes use.
    pub(super) fn take_words(&mut self) -> Option<Owner> {
        self.optimized.as_mut()?.words.take()
    }

    /// Whether nodes are set through what stands for them.
    #[inline]
    pub(super) fn is_optimized(&self) -> bool {
        self.optimized.is_some()
    }

    /// Has the driver set what stands for some nodes, all or none. The table is left as it is.
    /// `name` says what errors call them.
    pub(super) fn set_optimized(
        &mut self,
        edits: &[(NodeId, &AnyOp)],
        name: &dyn Fn(&Exec, NodeId, &AnyOp) -> NodeName,
    ) -> std::result::Result<(), (Error, bool)> {
        let Some(optimized) = &self.optimized else {
            return Err((Error::UnknownSource, true));
        };
        let known = |at: Place| self.known(at);
        let edited: HashMap<Place, &AnyOp> = match edits {
            [_] => HashMap::new(),
            edits => edits.iter().map(|(id, op)| (place(*id), *op)).collect(),
        };
        let now = |at: Place| match edits {
            [(id, op)] if place(*id) == at => Some(*op),
            _ => edited.get(&at).copied().or_else(|| known(at)),
        };
        // They are not set: if planning anew fails, one that is alone does what it did.
        let parted = optimized.parted(edits, self.context(), &now);
        let mut broken = parted.clone();
        for (done, (id, op)) in edits.iter().enumerate() {
            let is_refused = known(place(*id)).is_some_and(|was| !is_taken_over(was, op));
            let set = match is_refused {
                // A node that does it itself would be refused by the driver.
                true => Err(NotSet::Error(Error::Call {
                    call: "cuGraphExecNodeSetParams",
                    code: CUresult::CUDA_ERROR_INVALID_VALUE,
                })),
                false if parted.contains(&place(*id)) => continue,
                false => optimized.set(self.context(), self.raw, place(*id), &now),
            };
            let error = match set {
                Ok(()) => continue,
                Err(NotSet::Assumed) => {
                    broken.push(place(*id));
                    continue;
                }
                Err(NotSet::Error(error)) => error,
            };
            let restored = edits[..=done].iter().rev().all(|(id, _)| {
                let set = optimized.set(self.context(), self.raw, place(*id), &known);
                broken.contains(&place(*id)) || set.is_ok()
            });
            return Err((error.about(name(self, *id, op), "updating"), restored));
        }
        if !broken.is_empty() {
            // One that is alone was not set.
            let is_alone = edits.len() == 1;
            self.plan_anew(Pins::More(&broken), edits)
                .map_err(|error| match edits {
                    [(id, op)] => error.about(name(self, *id, op), "updating"),
                    _ => error,
                })
                .map_err(|error| (error, is_alone))?;
        }
        if let Some(optimized) = &mut self.optimized {
            let pending = edits.iter().map(|(id, op)| (place(*id), (*op).clone()));
            optimized.pending.extend(pending);
            let places = edits.iter().map(|(id, _)| place(*id));
            let set: Vec<Place> = places.filter(|at| optimized.is_in_a_copy(*at)).collect();
            optimized.set_in_copies.extend(set);
        }
        Ok(())
    }

    /// The table knows what nodes were [set](Exec::set_optimized) to.
    pub(super) fn note_optimized(&mut self) {
        if let Some(optimized) = &mut self.optimized {
            optimized.pending.clear();
        }
    }

    /// What a node of the definition does now, if that is known.
    fn known(&self, (body, index): Place) -> Option<&AnyOp> {
        let pending = self.optimized.as_ref().map(|optimized| &optimized.pending);
        if let Some(op) = pending.and_then(|pending| pending.get(&(body, index))) {
            return Some(op);
        }
        let hierarchy = self.source.as_ref().map_or(0, |(source, _)| source.id);
        let id = NodeId {
            hierarchy,
            body,
            index,
            kind: NodeKind::Empty,
        };
        self.table.get(id).and_then(AnyOp::op)
    }

    /// How the driver would pair the nodes of graph `body` with those of the definition.
    pub(super) fn pairing_with(
        &self,
        theirs: &mut State,
        ours: Option<&mut State>,
        body: u32,
    ) -> Pairing {
        let Some((_, root)) = &self.source else {
            return Pairing::Driver;
        };
        let own = match ours {
            None if *root == body => return Pairing::Own,
            None => self.shape(theirs),
            Some(ours) => self.shape(ours),
        };
        let (Some(own), Ok(other)) = (own, theirs.shape(body)) else {
            return Pairing::Driver;
        };
        let mut names = HashMap::new();
        counterparts(&own, &other, &mut |own, other, nodes| {
            names.extend(nodes.iter().map(|&(was, is)| ((other, is), (own, was))));
        });
        Pairing::Of(names)
    }

    /// Whether anything is left of what passes did.
    fn has_passes(&self) -> bool {
        let report = self.report.as_ref();
        report.is_none_or(|report| report.has_changed())
    }

    /// Gives up all that passes did.
    pub(super) fn without_passes(&mut self) -> Result<()> {
        match self.has_passes() {
            true => self.plan_anew(Pins::All, &[]),
            false => Ok(()),
        }
    }

    /// The driver's handle of what stands for a node alone.
    pub(super) fn stand_of(&self, id: NodeId) -> Result<CUgraphNode> {
        let optimized = self.optimized.as_ref().ok_or(Error::UnknownSource)?;
        let handle = optimized.handles(place(id)).first().copied();
        handle.map(|(_, handle)| handle).ok_or(Error::GraphGone)
    }

    /// Plans and instantiates the graph anew, with what its nodes do now and what `edits` say.
    #[cold]
    fn plan_anew(&mut self, pins: Pins<'_>, edits: &[(NodeId, &AnyOp)]) -> Result<()> {
        driver::bind(self.context())?;
        let Some(optimized) = &self.optimized else {
            return Err(Error::UnknownSource);
        };
        let mut options = self.options.clone().unwrap_or_default();
        let (mut pinned, disabled) = (optimized.pinned.clone(), optimized.disabled.clone());
        match pins {
            Pins::More(places) => pinned.extend(places),
            Pins::All => options.optimize = Optimize::NONE,
        }
        let mut base = optimized.base.clone();
        let edited: HashMap<Place, &AnyOp> =
            edits.iter().map(|(id, op)| (place(*id), *op)).collect();
        for node in base.graphs.iter_mut().flatten() {
            let Some(&(body, index)) = node.of.first() else {
                continue;
            };
            let now = edited.get(&(body, index)).copied();
            let now = now.or_else(|| self.known((body, index)));
            if let Some(now) = now {
                node.op = now.clone();
                optimized.base.name_conditions(&mut node.op);
                base.read.remove(&(body, index));
            }
            if let Does::Copies(copied) = &mut node.does
                && let Some(now) = optimized.emitted.copied.get(&(body, index))
            {
                **copied = now.clone();
            }
        }
        let behind = self.end_of_launches()?;
        let (planning, mut report) =
            Optimized::planned(base, self.context(), options.optimize, pinned, &disabled);
        let emitted = Emitted::of(&planning.plan, self.context())?;
        let mut made = Optimized::instantiated(planning, emitted, &options, disabled)?;
        let (raw, _, new) = &mut made;
        // The driver's copies do what they did at first.
        new.set_in_copies.clone_from(&optimized.set_in_copies);
        let now = |at: Place| edited.get(&at).copied().or_else(|| self.known(at));
        let set = |at: &Place| new.set(self.context(), *raw, *at, &now);
        let mut failed = new.set_in_copies.iter().filter_map(|at| set(at).err());
        if let Some(NotSet::Error(error)) = failed.find(|why| matches!(why, NotSet::Error(_))) {
            driver::log_leak("an executable", driver::exec::destroy(*raw));
            return Err(error);
        }
        report.fallbacks = self.fallbacks() + 1;
        tracing::debug!("an update broke what a pass had assumed: the graph is planned anew");
        self.go_on_with(made, behind, report);
        Ok(())
    }

    /// How often the graph was planned anew.
    fn fallbacks(&self) -> u64 {
        self.report.as_ref().map_or(0, |report| report.fallbacks)
    }

    /// Goes on with another executable, whose launches come behind this one's.
    fn go_on_with(
        &mut self,
        (raw, others, mut new): Instantiated,
        behind: Option<Arc<Event>>,
        report: Report,
    ) {
        let old_raw = std::mem::replace(&mut self.raw, raw);
        if let Some(old) = &mut self.optimized {
            new.pending = std::mem::take(&mut old.pending);
        }
        let words = self.take_words();
        words.into_iter().for_each(|words| self.let_go(words));
        // Launches in flight go on. The definition goes after its executable.
        let mut old = Exec::alone(old_raw, self.context());
        old.branches = self.branches;
        old.optimized = self.optimized.replace(new);
        drop(old);
        (self.others, self.behind) = (others, behind);
        self.report = Some(Box::new(report));
    }

    /// Has every node do what its counterpart in graph `body` does, in place or by another
    /// instantiation. The table is left as it is.
    pub(super) fn update_all_optimized(
        &mut self,
        theirs: &mut State,
        body: u32,
        raw: CUgraph,
        pairing: Pairing,
    ) -> Result<()> {
        let failed = |reason, node| Error::Update {
            difference: None,
            reason,
            node,
            code: CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
        };
        let fallbacks = self.fallbacks();
        let context = self.context().clone();
        let Some(optimized) = &mut self.optimized else {
            return Err(Error::UnknownSource);
        };
        let base = match (Plan::of(theirs, body)?, &pairing) {
            (_, Pairing::Driver) => None,
            (Ok(base), Pairing::Own) => Some(base),
            (Ok(mut base), Pairing::Of(names)) => {
                base.rename(names, &optimized.base).then_some(base)
            }
            (Err(left), _) => return Err(failed(UpdateFailure::NotSupported, left.node)),
        };
        let Some(base) = base else {
            self.without_passes()?;
            return self.update_raw(theirs, raw);
        };
        if matches!(pairing, Pairing::Own) && !base.has_shape_of(&optimized.base) {
            return Err(failed(UpdateFailure::TopologyChanged, None));
        }
        let options = self.options.clone().unwrap_or_default();
        let (pinned, disabled) = (optimized.pinned.clone(), optimized.disabled.clone());
        let (planning, mut report) =
            Optimized::planned(base, &context, options.optimize, pinned, &disabled);
        report.fallbacks = fallbacks;
        let emitted = Emitted::of(&planning.plan, &context)?;
        let raw = emitted.graph().hierarchy().look().body(0)?.raw;
        if planning.plan.has_shape_of(&optimized.plan)
            && planning.plan.has_names_of(&optimized.plan)
            && emitted.copied.is_empty()
            && !planning.words.is_used()
            && driver::exec::update(self.raw, raw).0.is_ok()
        {
            (optimized.base, optimized.plan) = (planning.base, planning.plan);
            optimized.stands = OnceLock::new();
            optimized.base.release();
            optimized.plan.release();
            self.report = Some(Box::new(report));
            return Ok(());
        }
        let behind = self.end_of_launches()?;
        let made = Optimized::instantiated(planning, emitted, &options, disabled)?;
        report.fallbacks += 1;
        self.go_on_with(made, behind, report);
        Ok(())
    }
}

/// How the nodes of a graph are paired with those of the definition.
pub(super) enum Pairing {
    /// They are the same.
    Own,
    /// By the nodes of the graph.
    Of(HashMap<Place, Place>),
    /// As the driver pairs them.
    Driver,
}

/// Which nodes passes are to leave alone from now on.
enum Pins<'a> {
    More(&'a [Place]),
    All,
}
