//! `mbarrier`: see [`grid::mbarrier`](crate::grid::mbarrier) for what an object is.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::{Immediate, Space, Type};

use super::Lower;
use super::async_copy::bracketed;
use super::cluster::Reach;
use crate::grid::mbarrier::{FAILED, MBARRIER, MBARRIER_TEST, Op, PENDING_COUNT, TEST_FAILED};
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Takes};

/// Changes an object.
#[derive(Debug)]
struct Change {
    op: Op,
    reach: Reach,
    address: Arg,
    count: Arg,
    bytes: Arg,
    /// Where the object before goes.
    state: Arg,
}

/// `test_wait` and `try_wait`.
#[derive(Debug)]
struct Test {
    reach: Reach,
    address: Arg,
    state: State,
    to: Arg,
}

/// What names a phase.
#[derive(Debug)]
enum State {
    Whole(Arg),
    Parity(Arg),
}

/// `pending_count`
#[derive(Debug)]
struct Pending {
    to: Arg,
    state: Arg,
}

/// `cp.async.mbarrier.arrive` that counts its arrival before: all in all it changes nothing.
#[derive(Debug)]
struct Touch {
    reach: Reach,
    address: Arg,
}

const fn int(bits: u64) -> Arg {
    Arg::Imm(Immediate::Int {
        bits,
        signed: false,
    })
}

/// Decodes every `mbarrier` instruction.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Word {
        Does(Op),
        Test,
        Try,
        Pending,
    }
    let word = r.expect_any(&[
        ("init", Word::Does(Op::Init)),
        ("inval", Word::Does(Op::Invalidate)),
        ("expect_tx", Word::Does(Op::Expect)),
        ("complete_tx", Word::Does(Op::Complete)),
        ("arrive", Word::Does(Op::Arrive)),
        ("arrive_drop", Word::Does(Op::Drop)),
        ("test_wait", Word::Test),
        ("try_wait", Word::Try),
        ("pending_count", Word::Pending),
    ])?;
    if word == Word::Pending {
        r.ty_of(&[Type::B64])?;
        let [to, state] = r.finish()?;
        r.check(&[
            (&to, Takes::To(Type::U32)),
            (&state, Takes::From(Type::U64)),
        ])?;
        return Ok(Box::new(Pending { to, state }));
    }
    let arrives = matches!(word, Word::Does(Op::Arrive | Op::Drop));
    let (mut expects, mut no_complete, mut parity) = (false, false, false);
    if arrives && r.eat("expect_tx") {
        expects = true;
    } else if arrives && r.eat("noComplete") {
        no_complete = true;
    } else if matches!(word, Word::Test | Word::Try) && r.eat("parity") {
        parity = true;
    }
    let orders: &[(&str, ())] = match word {
        Word::Does(Op::Init | Op::Invalidate) | Word::Pending => &[],
        Word::Does(Op::Expect | Op::Complete) => &[("relaxed", ())],
        Word::Does(_) => &[("release", ()), ("relaxed", ())],
        Word::Test | Word::Try => &[("acquire", ()), ("relaxed", ())],
    };
    if r.eat_any(orders).is_some() {
        r.expect_any(&[("cta", ()), ("cluster", ())])?;
    }
    let reach = Reach::of(r);
    let remote = reach == Reach::Cluster;
    let fits = match reach {
        Reach::Own(space) => matches!(space, None | Some(Space::Shared)),
        Reach::Cluster => {
            arrives && !no_complete || matches!(word, Word::Does(Op::Expect | Op::Complete))
        }
    };
    if !fits {
        return Err(r.invalid("does not work on that state space".into()));
    }
    r.ty_of(&[Type::B64])?;
    r.end()?;
    let change = |op, address: &Arg, count: Arg, bytes: Arg, state: &Arg| {
        r.check(&[
            (&count, Takes::From(Type::U32)),
            (&bytes, Takes::From(Type::U32)),
            (state, Takes::ToOrNothing(Type::U64)),
        ])?;
        Ok(Box::new(Change {
            op,
            reach,
            address: bracketed(r, address)?,
            count,
            bytes,
            state: state.clone(),
        }) as Box<dyn Operation>)
    };
    match (word, r.args) {
        (Word::Does(Op::Init), [address, count]) => {
            change(Op::Init, address, count.clone(), int(0), &Arg::Sink)
        }
        (Word::Does(Op::Invalidate), [address]) => {
            change(Op::Invalidate, address, int(0), int(0), &Arg::Sink)
        }
        (Word::Does(op @ (Op::Expect | Op::Complete)), [address, bytes]) => {
            change(op, address, int(0), bytes.clone(), &Arg::Sink)
        }
        (Word::Does(Op::Arrive | Op::Drop), [state, ..]) if remote && *state != Arg::Sink => {
            Err(r.invalid("has no result in the cluster's shared memory".into()))
        }
        (Word::Does(op @ (Op::Arrive | Op::Drop)), [state, address, bytes]) if expects => {
            change(op, address, int(1), bytes.clone(), state)
        }
        (Word::Does(op @ (Op::Arrive | Op::Drop)), [state, address])
            if !expects && !no_complete =>
        {
            change(op, address, int(1), int(0), state)
        }
        (Word::Does(op @ (Op::Arrive | Op::Drop)), [state, address, count]) if !expects => {
            if no_complete && matches!(count, Arg::Imm(Immediate::Int { bits: 0, .. })) {
                return Err(r.invalid("counts one arrival at least".into()));
            }
            change(op, address, count.clone(), int(0), state)
        }
        (Word::Test, [to, address, state])
        | (Word::Try, [to, address, state] | [to, address, state, _]) => {
            let takes = match parity {
                true => Takes::From(Type::U32),
                false => Takes::From(Type::U64),
            };
            r.check(&[(to, Takes::To(Type::Pred)), (state, takes)])?;
            if let (true, Arg::Imm(Immediate::Int { bits: 2.., .. })) = (parity, state) {
                return Err(r.invalid("takes a parity of 0 or 1".into()));
            }
            if let [_, _, _, hint] = r.args {
                r.check(&[(hint, Takes::From(Type::U32))])?;
            }
            Ok(Box::new(Test {
                reach,
                address: bracketed(r, address)?,
                state: match parity {
                    true => State::Parity(state.clone()),
                    false => State::Whole(state.clone()),
                },
                to: to.clone(),
            }))
        }
        _ => Err(r.invalid("has not the operands that it takes".into())),
    }
}

/// `cp.async.mbarrier.arrive{.noinc}{.shared}.b64 [address]`: all copies before are complete.
pub(super) fn decode_arrival_of_copies(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    r.expect_any(&[("mbarrier", ())])?;
    r.expect_any(&[("arrive", ())])?;
    let counted = r.eat("noinc");
    let reach = Reach::of(r);
    if !matches!(reach, Reach::Own(None | Some(Space::Shared))) {
        return Err(r.invalid("does not work on that state space".into()));
    }
    r.ty_of(&[Type::B64])?;
    let [address] = r.finish()?;
    let address = bracketed(r, &address)?;
    Ok(match counted {
        true => Box::new(Change {
            op: Op::Arrive,
            reach,
            address,
            count: int(1),
            bytes: int(0),
            state: Arg::Sink,
        }),
        false => Box::new(Touch { reach, address }),
    })
}

/// The host address of an object.
fn object(l: &mut Lower<'_>, reach: Reach, address: &Arg) -> Value {
    l.reached_address(address, reach, 8, true)
}

impl Operation for Change {
    fn lower(&self, l: &mut Lower<'_>) {
        let count = l.read(&self.count, Type::U32);
        let bytes = l.read(&self.bytes, Type::U32);
        let address = object(l, self.reach, &self.address);
        let op = l.b.ins().iconst(types::I32, self.op as i64);
        let args = [l.thread, l.block, address, op, count, bytes];
        let before = l.call_value(&MBARRIER, &args);
        let went_well = l.b.ins().icmp_imm(IntCC::NotEqual, before, FAILED as i64);
        l.leave_unless(went_well);
        l.write(&self.state, Type::B64, before);
    }

    fn reaches(&self) -> bool {
        self.reach == Reach::Cluster
    }
}

impl Operation for Test {
    fn lower(&self, l: &mut Lower<'_>) {
        l.poll();
        let address = object(l, self.reach, &self.address);
        let state = match &self.state {
            State::Whole(state) => l.read(state, Type::B64),
            State::Parity(parity) => {
                let parity = l.read(parity, Type::U32);
                let parity = l.b.ins().uextend(types::I64, parity);
                l.b.ins().ishl_imm(parity, 63)
            }
        };
        let args = [l.thread, l.block, address, state];
        let complete = l.call_value(&MBARRIER_TEST, &args);
        let failed = i64::from(TEST_FAILED);
        let went_well = l.b.ins().icmp_imm(IntCC::NotEqual, complete, failed);
        l.leave_unless(went_well);
        let complete = l.b.ins().ireduce(types::I8, complete);
        l.write(&self.to, Type::Pred, complete);
    }

    fn polls(&self) -> bool {
        true
    }

    fn tests_mbarrier(&self) -> bool {
        true
    }
}

impl Operation for Pending {
    fn lower(&self, l: &mut Lower<'_>) {
        let state = l.read(&self.state, Type::B64);
        let count = l.call_value(&PENDING_COUNT, &[state]);
        l.write(&self.to, Type::U32, count);
    }

    fn pure(&self) -> bool {
        true
    }
}

impl Operation for Touch {
    fn lower(&self, l: &mut Lower<'_>) {
        object(l, self.reach, &self.address);
    }
}
