//! Conditional nodes: graphs that the node owns, and a condition that says which of them run and
//! how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::types::CUgraph;
use crate::driver::context::Context;
use crate::driver::graph::definition::Graph;
use crate::driver::graph::update::Refusal;
use crate::driver::{CUresult, Result};
use crate::grid::device_functions::condition::Condition;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// The most bodies of a node.
const MOST_BODIES: u32 = 1 << 20;

/// What a condition handle means.
pub(crate) struct GraphCondition {
    /// What kernels set, in executables made of its graph.
    pub value: Arc<Condition>,
    /// What each launch begins with; `None` is what was there.
    default: Option<u32>,
    context: Arc<Context>,
    /// A node has it.
    used: AtomicBool,
}

impl GraphCondition {
    /// A new one, that no node has.
    pub fn new(context: Arc<Context>, default: Option<u32>) -> GraphCondition {
        GraphCondition {
            value: Condition::new(context.device()),
            default,
            context,
            used: AtomicBool::new(false),
        }
    }

    /// A node has it.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// A node gets it: no other has it.
    pub fn take(&self) -> Result {
        match self.used.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(INVALID),
        }
    }

    /// Its node has gone.
    pub fn give_back(&self) {
        self.used.store(false, Ordering::Relaxed);
    }

    /// What each launch begins with; `None` is what was there.
    pub fn default(&self) -> Option<u32> {
        self.default
    }
}

/// `CUgraphConditionalNodeType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Choice {
    If = 0,
    While = 1,
    Switch = 2,
}

impl Choice {
    /// Of a number, for so many bodies.
    pub fn of_number(number: u32, bodies: u32) -> Result<Choice> {
        let (choice, most) = match number {
            0 => (Choice::If, 2),
            1 => (Choice::While, 1),
            2 => (Choice::Switch, u32::MAX),
            _ => return Err(INVALID),
        };
        match bodies {
            0 => Err(INVALID),
            _ if bodies > most => Err(INVALID),
            _ if bodies > MOST_BODIES => Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
            _ => Ok(choice),
        }
    }

    /// The body that runs with a value, of so many.
    pub fn body(self, value: u32, bodies: usize) -> Option<usize> {
        let body = match (self, value) {
            (Choice::Switch, body) => body as usize,
            (Choice::If, 0) => 1,
            (Choice::While, 0) => return None,
            (Choice::If | Choice::While, _) => 0,
        };
        (body < bodies).then_some(body)
    }
}

/// What a conditional node does.
pub(crate) struct ConditionalNode {
    condition: Arc<GraphCondition>,
    choice: Choice,
    bodies: Box<[Arc<Graph>]>,
    /// The handles of the bodies, where the program reads them.
    handles: Box<[CUgraph]>,
}

impl ConditionalNode {
    /// With these bodies.
    pub fn new(
        condition: Arc<GraphCondition>,
        choice: Choice,
        bodies: Box<[Arc<Graph>]>,
    ) -> ConditionalNode {
        ConditionalNode {
            handles: bodies.iter().map(|body| body.handle()).collect(),
            condition,
            choice,
            bodies,
        }
    }

    /// What it goes by.
    pub fn condition(&self) -> &Arc<GraphCondition> {
        &self.condition
    }

    /// How it goes by that.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// The graphs that it owns.
    pub fn bodies(&self) -> &[Arc<Graph>] {
        &self.bodies
    }

    /// Their handles, at an address that is good as long as the node is.
    pub fn handles(&self) -> &[CUgraph] {
        &self.handles
    }

    /// The context of its condition.
    pub fn context(&self) -> &Arc<Context> {
        &self.condition.context
    }

    /// The node ends: its bodies do, and its condition is free for another.
    pub fn end(&self) {
        self.bodies.iter().for_each(|body| body.dismantle());
        self.condition.give_back();
    }

    /// Another condition can take this one's place; what the bodies hold is looked at node by node.
    pub fn check_update(&self, next: &ConditionalNode) -> std::result::Result<(), Refusal> {
        match self.choice == next.choice && self.bodies.len() == next.bodies.len() {
            true => Ok(()),
            false => Err(Refusal::NotSupported),
        }
    }
}
