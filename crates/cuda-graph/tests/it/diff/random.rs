//! Random graphs and random edits of them: what is predicted of an update is what it then answers.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaEvent, CudaStream, LaunchConfig};
use cuda_graph::{
    AllocOp, AnyOp, BatchOp, Buffer, ChildOp, Condition, CopyOp, Difference, EmptyOp, Error, Exec,
    FillOp, FreeOp, Graph, HostOp, IfElseOp, IfOp, InstantiateOptions, KernelOp, MemoryLocation,
    NodeId, PinnedBuffer, RecordEventOp, Result, Verdict, WaitEventOp, WhileOp,
};
use proptest::prelude::*;

use super::plan::{Dice, Does, Edit, Place, Plan, mutate, plan};
use crate::fixture::{add, alone, context, is_software, kernel, store, stream, words};
use crate::random::cases;

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// What the graphs of a case use.
struct World {
    stream: Arc<CudaStream>,
    buffers: [Buffer<u32>; 3],
    pinned: PinnedBuffer<u32>,
    sink: PinnedBuffer<u32>,
    events: [Arc<CudaEvent>; 2],
}

impl World {
    fn new() -> World {
        let stream = stream();
        let event = || Arc::new(context().new_event(None).unwrap());
        World {
            buffers: std::array::from_fn(|_| words(&stream, &[0; 8])),
            pinned: PinnedBuffer::from_slice(&context(), &[5; 8]).unwrap(),
            sink: PinnedBuffer::from_slice(&context(), &[0; 8]).unwrap(),
            events: [event(), event()],
            stream,
        }
    }

    fn build(&self, plan: &Plan) -> Result<Graph> {
        let graph = Graph::new(&context())?;
        self.fill(&graph, plan)?;
        match plan.cloned {
            // Graphs with conditions are not cloned.
            true => Ok(graph.try_clone().unwrap_or(graph)),
            false => Ok(graph),
        }
    }

    fn fill(&self, graph: &Graph, plan: &Plan) -> Result<()> {
        let mut nodes = Vec::new();
        for (does, waits) in &plan.nodes {
            let after: Vec<NodeId> = waits.iter().map(|&from| nodes[from]).collect();
            nodes.push(self.add(graph, does, after)?);
        }
        for edit in &plan.edits {
            // Edits that cannot be are none.
            let node = |at: usize| nodes.get(at).copied();
            match *edit {
                Edit::AddEdge(from, to) => {
                    if let (Some(from), Some(to)) = (node(from), node(to)) {
                        let _ = graph.add_edge(from, to);
                    }
                }
                Edit::RemoveEdge(from, to) => {
                    if let (Some(from), Some(to)) = (node(from), node(to)) {
                        let _ = graph.remove_edge(from, to);
                    }
                }
                Edit::Destroy(at) => {
                    if let Some(at) = node(at) {
                        let _ = graph.destroy(at);
                    }
                }
                Edit::AddNode(after) => {
                    let after = node(after).filter(|&after| graph.contains(after));
                    nodes.push(graph.add(EmptyOp::new(), after)?.id());
                }
            }
        }
        Ok(())
    }

    fn add(&self, graph: &Graph, does: &Does, after: Vec<NodeId>) -> Result<NodeId> {
        let buffer = |at: usize| &self.buffers[at];
        let op: AnyOp = match does {
            Does::Store(to, value) => store(buffer(*to), *value).into(),
            Does::Add(to, from) => add(buffer(*to), buffer(*from)).into(),
            &Does::Bump {
                to,
                n,
                threads,
                cooperative,
                priority,
            } => {
                let config = LaunchConfig {
                    grid_dim: (1, 1, 1),
                    block_dim: (threads, 1, 1),
                    shared_mem_bytes: 0,
                };
                // SAFETY: it writes as many words as there are threads at most.
                let mut op = unsafe { KernelOp::new(kernel("bump"), config, (buffer(to), n)) }?;
                if cooperative {
                    op = op.cooperative();
                }
                if priority != 0 {
                    op = op.priority(priority);
                }
                op.into()
            }
            Does::Fill(to, value, len) => FillOp::new(&buffer(*to).slice(0..*len)?, *value)?.into(),
            Does::FillByte(to, value) => FillOp::pattern(buffer(*to), *value)?.into(),
            Does::Rows {
                to,
                value,
                width,
                height,
            } => FillOp::rows(buffer(*to), 0x0102_0300 + *value, *width, *height, 16)?.into(),
            Does::Copy(to, from, len) => CopyOp::new(
                buffer(*to).slice(0..*len)?,
                buffer(*from).slice(4..4 + *len)?,
            )?
            .into(),
            Does::CopyRows(to, from, height) => {
                CopyOp::rows(buffer(*to), 8, buffer(*from), 16, 4, *height)?.into()
            }
            Does::FromHost(to) => CopyOp::new(buffer(*to), &self.pinned)?.into(),
            Does::ToHost(from) => CopyOp::new(&self.sink, buffer(*from))?.into(),
            Does::Empty => EmptyOp::new().into(),
            Does::Host(which) => {
                // SAFETY: the function does nothing with its data.
                unsafe { HostOp::raw(nothing, *which as *mut c_void, None) }.into()
            }
            Does::Record(event) => RecordEventOp::new(&self.events[*event]).into(),
            Does::Wait(event) => WaitEventOp::new(&self.events[*event]).into(),
            Does::Memory(bytes) => {
                let place = MemoryLocation::Device(0);
                let alloc = graph.add(AllocOp::new(place, *bytes), after)?;
                // SAFETY: it is freed behind its allocation, and not used.
                let memory = unsafe { graph.allocation(alloc) }?;
                return Ok(graph.add(FreeOp::new(&memory), alloc)?.id());
            }
            Does::Batch(to, value, twice) => {
                let batch = BatchOp::new().write32(buffer(*to), *value)?;
                match twice {
                    true => batch.write32(buffer(*to), 9)?.into(),
                    false => batch.into(),
                }
            }
            Does::Child(plan) => ChildOp::new(&self.build(plan)?).into(),
            Does::If(plan) => {
                let node = graph.add(IfOp::new(&self.condition(graph, 1)?), after)?;
                self.fill(&graph.body(node)?, plan)?;
                return Ok(node.id());
            }
            Does::IfElse(plan, other) => {
                let node = graph.add(IfElseOp::new(&self.condition(graph, 1)?), after)?;
                let bodies = graph.bodies(node)?;
                self.fill(&bodies[0], plan)?;
                self.fill(&bodies[1], other)?;
                return Ok(node.id());
            }
            Does::While(plan) => {
                // It does not turn, so no kernel must end it.
                let node = graph.add(WhileOp::new(&self.condition(graph, 0)?), after)?;
                self.fill(&graph.body(node)?, plan)?;
                return Ok(node.id());
            }
        };
        Ok(graph.add(op, after)?.id())
    }

    fn condition(&self, graph: &Graph, default: u32) -> Result<Condition> {
        graph.condition(Some(default))
    }

    /// What a launch leaves in the buffers.
    fn run(&self, exec: &mut Exec) -> Vec<Vec<u32>> {
        for (at, buffer) in (1u32..).zip(&self.buffers) {
            let fresh: Vec<u32> = (0..8).map(|word| 100 * at + word).collect();
            buffer.copy_from_host(&self.stream, &fresh).unwrap();
        }
        exec.launch(&self.stream).unwrap();
        self.stream.synchronize().unwrap();
        let buffers = self.buffers.iter();
        buffers
            .map(|buffer| buffer.to_host(&self.stream).unwrap())
            .collect()
    }
}

/// Whether an update answered what was predicted. A verdict that leaves it open is right.
pub fn check(predicted: &Difference, answer: &Result<()>) {
    match (predicted.verdict(), answer) {
        (Verdict::InPlace, Ok(())) | (Verdict::Unknown { .. }, _) => {}
        (
            Verdict::Refused { reason, node, .. },
            Err(Error::Update {
                reason: why,
                node: at,
                ..
            }),
        ) => {
            assert_eq!(reason, why, "{predicted}");
            let number = |node: &Option<Box<cuda_graph::NodeName>>| {
                node.as_ref()
                    .map(|node| (node.kind, node.index, node.location))
            };
            assert_eq!(number(node), number(at), "{predicted}");
        }
        (
            Verdict::SideBySide { first, second, .. },
            Err(Error::SideBySide {
                first: one,
                second: other,
            }),
        ) => assert_eq!((first, second), (one, other)),
        (verdict, answer) => panic!("{verdict:?} was predicted, and came {answer:?}\n{predicted}"),
    }
}

/// Gives some nodes of an executable other operations, if the driver lets them.
fn edit_nodes(dice: &mut Dice, world: &World, old: &Graph, exec: &mut Exec) -> bool {
    let mut is_edited = false;
    for node in old.nodes().unwrap() {
        if let Some(node) = node.typed::<KernelOp>() {
            let op = store(&world.buffers[dice.below(3)], 7);
            is_edited |= exec.update(node, op).is_ok();
        } else if let Some(node) = node.typed::<ChildOp>() {
            let row = dice.in_a_row;
            if let Ok(graph) = world.build(&plan(dice, Place::Child, 0)) {
                is_edited |= exec.update(node, ChildOp::new(&graph)).is_ok();
            }
            dice.in_a_row = row;
        }
    }
    is_edited
}

/// The rules are those of softcuda. Some answers of an H200 to such graphs are others: which of two
/// reasons it gives, and copies of which it refuses the update.
/// Says which verdict came.
fn case(seed: u64) -> Option<String> {
    let mut dice = Dice {
        state: seed,
        in_a_row: false,
    };
    dice.in_a_row = dice.chance(2);
    let _alone = alone();
    let world = World::new();
    let old_plan = plan(&mut dice, Place::Root, 2);
    let mut new_plan = old_plan.clone();
    for _ in 0..dice.below(3) {
        mutate(&mut dice, &mut new_plan, Place::Root, 1);
    }
    let options = InstantiateOptions {
        node_priority: dice.chance(4),
        loops_at_once: dice.chance(4),
        ..InstantiateOptions::default()
    };
    let (Ok(old), Ok(new)) = (world.build(&old_plan), world.build(&new_plan)) else {
        return None;
    };
    assert!(
        old.diff(&old).unwrap().is_empty(),
        "{}",
        old.diff(&old).unwrap()
    );
    let Ok(mut exec) = old.instantiate_with(&options) else {
        return None;
    };
    check(&exec.diff(&old).unwrap(), &exec.update_in_place(&old));
    let between = old.diff(&new).unwrap();
    if dice.chance(2) {
        // Edits of the definition count for nothing.
        let nodes = old.nodes().unwrap();
        old.add(EmptyOp::new(), nodes.first().copied()).unwrap();
        if let Some(&node) = nodes.last() {
            // Not where memory is allocated.
            let _ = old.destroy(node);
        }
    }
    let is_edited = dice.chance(4) && edit_nodes(&mut dice, &world, &old, &mut exec);
    // It has the memory that the new graph allocates.
    let beside = dice.chance(4).then(|| new.instantiate());
    let predicted = exec.diff(&new).unwrap();
    if !options.node_priority && !options.loops_at_once && !is_edited && beside.is_none() {
        assert_eq!(predicted.verdict(), between.verdict());
    }
    if !is_edited {
        assert_eq!(predicted.changes(), between.changes());
    }
    if old_plan == new_plan && !is_edited {
        assert!(predicted.is_empty(), "{predicted}");
    }
    let before = (old_plan.is_in_a_row() && new_plan.is_in_a_row()).then(|| world.run(&mut exec));
    let answer = exec.update_in_place(&new);
    check(&predicted, &answer);
    if let Err(Error::Update { difference, .. }) = &answer {
        let difference = difference.as_ref().expect("its source is known");
        assert_eq!(difference.changes(), predicted.changes());
    }
    if let Some(before) = before
        && (answer.is_err() || predicted.is_empty())
    {
        assert_eq!(world.run(&mut exec), before, "{predicted}");
    }
    // Once more, from what it does now.
    mutate(&mut dice, &mut new_plan, Place::Root, 1);
    if let Ok(next) = world.build(&new_plan) {
        check(&exec.diff(&next).unwrap(), &exec.update_in_place(&next));
    }
    Some(match predicted.verdict() {
        Verdict::InPlace => format!("in place, {}", predicted.is_empty()),
        Verdict::Refused { reason, .. } => format!("{reason:?}"),
        Verdict::SideBySide { .. } => "side by side".into(),
        verdict => format!("{verdict:?}"),
    })
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_prediction_is_what_an_update_answers(seed: u64) {
        if is_software() {
            case(seed);
        }
    }
}

#[test]
fn every_verdict_comes() {
    if !is_software() {
        return;
    }
    let verdicts: BTreeSet<String> = (0..2000).filter_map(case).collect();
    let expected = [
        "AttributesChanged",
        "Driver",
        "KindChanged",
        "NotSupported",
        "ParametersChanged",
        "TopologyChanged",
        "in place, false",
        "in place, true",
    ];
    assert_eq!(verdicts, expected.map(str::to_owned).into());
}
