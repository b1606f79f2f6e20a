//! `bar`, `barrier` and `barrier.cluster`.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::{Immediate, Type};

use super::Lower;
use crate::grid::barrier::{BARRIER_ARRIVE, BARRIER_RED, BARRIER_SYNC};
use crate::grid::cluster::{CLUSTER_ARRIVE, CLUSTER_WAIT};
use crate::grid::rounds::{BarrierKind, Wait};
use crate::grid::warp::{Meeting, Tile};
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Takes};

#[derive(Debug)]
enum Barrier {
    Sync {
        id: Arg,
        count: Option<Arg>,
    },
    Arrive {
        id: Arg,
        count: Arg,
    },
    /// `bar.red`: how many predicates are true, or whether all or any are.
    Reduce {
        op: Reduction,
        to: Arg,
        id: Arg,
        count: Option<Arg>,
        predicate: Arg,
    },
    ClusterArrive,
    ClusterWait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduction {
    Popc,
    And,
    Or,
}

/// `bar{.cta}.sync a{, b}`, `.arrive a, b`, `.red.op.type d, a{, b}, c`, `bar.warp.sync mask`;
/// `barrier` likewise, with or without `.aligned`, which `bar` always is; `barrier.cluster.arrive`
/// and `.wait`.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    if r.opcode == "bar" && r.eat("warp") {
        if !r.eat("sync") {
            return Err(r.unknown_modifier());
        }
        let [mask] = r.finish()?;
        r.check(&[(&mask, Takes::From(Type::U32))])?;
        return Ok(super::warp::meeting(Meeting::Sync, mask));
    }
    if r.opcode == "barrier" && r.eat("cluster") {
        let wait = r.expect_any(&[("arrive", false), ("wait", true)])?;
        match wait {
            true => r.eat("acquire"),
            false => r.eat("release") || r.eat("relaxed"),
        };
        r.eat("aligned");
        let [] = r.finish()?;
        return Ok(Box::new(if wait {
            Barrier::ClusterWait
        } else {
            Barrier::ClusterArrive
        }));
    }
    r.eat("cta");
    let aligned = |r: &mut Reader<'_>| r.opcode == "barrier" && r.eat("aligned");
    let barrier = if r.eat("sync") {
        aligned(r);
        r.end()?;
        match r.args {
            [id] => Barrier::Sync {
                id: id.clone(),
                count: None,
            },
            [id, count] => Barrier::Sync {
                id: id.clone(),
                count: Some(count.clone()),
            },
            _ => return Err(r.invalid("takes a barrier and a number of threads".into())),
        }
    } else if r.eat("arrive") {
        aligned(r);
        let [id, count] = r.finish()?;
        Barrier::Arrive { id, count }
    } else if r.eat("red") {
        let op = r.expect_any(&[
            ("popc", Reduction::Popc),
            ("and", Reduction::And),
            ("or", Reduction::Or),
        ])?;
        aligned(r);
        r.ty_of(&[if op == Reduction::Popc {
            Type::U32
        } else {
            Type::Pred
        }])?;
        r.end()?;
        let (to, id, count, predicate) = match r.args {
            [to, id, predicate] => (to, id, None, predicate),
            [to, id, count, predicate] => (to, id, Some(count.clone()), predicate),
            _ => {
                return Err(
                    r.invalid("takes a barrier, a number of threads and a predicate".into())
                );
            }
        };
        let result = match op {
            Reduction::Popc => Type::U32,
            Reduction::And | Reduction::Or => Type::Pred,
        };
        r.check(&[
            (to, Takes::To(result)),
            (predicate, Takes::From(Type::Pred)),
        ])?;
        let (to, id, predicate) = (to.clone(), id.clone(), predicate.clone());
        Barrier::Reduce {
            op,
            to,
            id,
            count,
            predicate,
        }
    } else {
        return Err(r.unknown_modifier());
    };
    barrier.check_numbers(r)?;
    Ok(Box::new(barrier))
}

impl Operation for Barrier {
    fn lower(&self, l: &mut Lower<'_>) {
        if l.rounds() {
            return self.lower_in_rounds(l);
        }
        let (thread, block) = (l.thread, l.block);
        let status = match self {
            Barrier::Sync { id, count } => {
                let [id, count] = numbers(l, id, count.as_ref());
                l.call_value(&BARRIER_SYNC, &[thread, block, id, count])
            }
            Barrier::Arrive { id, count } => {
                let [id, count] = numbers(l, id, Some(count));
                l.call_value(&BARRIER_ARRIVE, &[thread, block, id, count])
            }
            Barrier::Reduce {
                op,
                to,
                id,
                count,
                predicate,
            } => {
                let [id, count] = numbers(l, id, count.as_ref());
                let predicate = l.read(predicate, Type::Pred);
                let predicate = l.b.ins().uextend(types::I32, predicate);
                let all =
                    l.b.ins()
                        .iconst(types::I32, i64::from(*op == Reduction::And));
                let answer =
                    l.call_value(&BARRIER_RED, &[thread, block, id, count, predicate, all]);
                let status = l.b.ins().ushr_imm(answer, 32);
                let status = l.b.ins().ireduce(types::I32, status);
                l.check_status(status);
                let value = l.b.ins().ireduce(types::I32, answer);
                return match op {
                    Reduction::Popc => l.write(to, Type::U32, value),
                    _ => {
                        let any = l.b.ins().icmp_imm(IntCC::NotEqual, value, 0);
                        l.write(to, Type::Pred, any);
                    }
                };
            }
            Barrier::ClusterArrive => l.call_value(&CLUSTER_ARRIVE, &[thread, block]),
            Barrier::ClusterWait => l.call_value(&CLUSTER_WAIT, &[thread, block]),
        };
        l.check_status(status);
    }

    fn waits(&self) -> bool {
        true
    }

    fn waits_in_rounds(&self) -> bool {
        !matches!(self, Barrier::ClusterArrive | Barrier::ClusterWait)
    }

    fn tells_nobody(&self) -> bool {
        self.waits_in_rounds()
    }
}

impl Barrier {
    /// Numbers that are known are those of a barrier, and of threads in whole warps.
    fn check_numbers(&self, r: &Reader<'_>) -> Result<(), Refusal> {
        let (id, count, arrives) = match self {
            Barrier::Sync { id, count } | Barrier::Reduce { id, count, .. } => {
                (id, count.as_ref(), false)
            }
            Barrier::Arrive { id, count } => (id, Some(count), true),
            Barrier::ClusterArrive | Barrier::ClusterWait => return Ok(()),
        };
        r.check(&[(id, Takes::From(Type::U32))])?;
        if let Arg::Imm(Immediate::Int { bits: 16.., .. }) = id {
            return Err(r.invalid("has barriers 0 to 15".into()));
        }
        let Some(count) = count else {
            return Ok(());
        };
        r.check(&[(count, Takes::From(Type::U32))])?;
        match count {
            Arg::Imm(Immediate::Int { bits: 0, .. }) if arrives => {
                Err(r.invalid("takes a number of threads that is not 0".into()))
            }
            Arg::Imm(Immediate::Int { bits, .. }) if bits % 32 != 0 => {
                Err(r.invalid("takes a number of threads in whole warps".into()))
            }
            _ => Ok(()),
        }
    }

    /// In rounds: the lane is done until it may go on.
    fn lower_in_rounds(&self, l: &mut Lower<'_>) {
        let (kind, id, count) = match self {
            Barrier::Sync { id, count } => (BarrierKind::Sync, id, count.as_ref()),
            Barrier::Arrive { id, count } => (BarrierKind::Arrive, id, Some(count)),
            Barrier::Reduce { id, count, .. } => (BarrierKind::Reduce, id, count.as_ref()),
            Barrier::ClusterArrive | Barrier::ClusterWait => {
                unreachable!("analysis found that this waits for fibers alone")
            }
        };
        let wait = Wait {
            kind: kind as u32,
            b: l.bring_number(id, offset_of!(Tile, b)),
            mask: match count {
                Some(count) => l.bring_number(count, offset_of!(Tile, masks)),
                None => Some(0),
            },
            c: Some(0),
            tiles: None,
        };
        if let Barrier::Reduce { predicate, .. } = self {
            l.bring(predicate, Type::Pred, offset_of!(Tile, values), None);
        }
        l.wait(wait);
        let Barrier::Reduce { op, to, .. } = self else {
            return;
        };
        match op {
            Reduction::Popc => l.take(to, Type::U32),
            Reduction::And => l.take_predicate(to),
            Reduction::Or => l.take(to, Type::Pred),
        }
    }
}

/// The barrier's number and how many threads it waits for, 0 for all.
fn numbers(l: &mut Lower<'_>, id: &Arg, count: Option<&Arg>) -> [Value; 2] {
    let id = l.read(id, Type::U32);
    let count = match count {
        Some(count) => l.read(count, Type::U32),
        None => l.b.ins().iconst(types::I32, 0),
    };
    [id, count]
}
