//! The shared memory of other blocks of the cluster: `.shared::cluster`, `mapa`, `getctarank`.

use cranelift_codegen::ir::{BlockArg, InstBuilder, Value, types};
use ptx::ast::{Space, Type};

use super::{Lower, address, value_type};
use crate::grid::cluster::{
    CLUSTER_ACCESS, CLUSTER_TO_GENERIC, GENERIC_TO_CLUSTER, GETCTARANK, IS_IN_CLUSTER, MAPA,
};
use crate::grid::context::FAULTED;
use crate::grid::launch::FaultKind;
use crate::jit::decode::{Arg, Operation, Reader, Refusal, Takes};

/// The state space that an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Of the thread or its block; `None` is generic.
    Own(Option<Space>),
    /// `.shared::cluster`
    Cluster,
}

impl Reach {
    /// Takes the next modifier if it is a space.
    pub fn of(r: &mut Reader<'_>) -> Reach {
        match address::space(r) {
            None if r.eat("shared::cluster") => Reach::Cluster,
            space => Reach::Own(space),
        }
    }

    /// The space; that of the cluster is shared memory.
    pub fn space(self) -> Option<Space> {
        match self {
            Reach::Own(space) => space,
            Reach::Cluster => Some(Space::Shared),
        }
    }
}

/// [`IN_SHARED`](crate::jit::resolve::fragments::IN_SHARED) of an address.
pub(super) fn decode_in_shared(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let [_, address] = r.finish()?;
    Ok(Box::new(InShared(address)))
}

/// A generic address is one of shared memory, or the thread faults.
#[derive(Debug)]
struct InShared(Arg);

impl Operation for InShared {
    fn lower(&self, l: &mut Lower<'_>) {
        l.must_be_shared(&self.0, 16);
    }
}

impl Lower<'_> {
    /// As [`checked_address`](Self::checked_address), of an address that may be in another block.
    pub(super) fn reached_address(
        &mut self,
        address: &Arg,
        reach: Reach,
        size: u32,
        write: bool,
    ) -> Value {
        match reach {
            Reach::Own(space) => self.checked_address(address, space, size, write),
            Reach::Cluster => {
                let value = self.address(address);
                let size = self.b.ins().iconst(types::I32, i64::from(size));
                let args = [self.thread, self.block, value, size];
                let host = self.call_value(&CLUSTER_ACCESS, &args);
                self.leave_unless(host);
                host
            }
        }
    }

    /// Leaves the function with a fault unless a generic address is in the cluster's shared memory.
    pub(super) fn must_be_shared(&mut self, address: &Arg, size: u32) {
        let address = self.address(address);
        let found = self.in_cluster(address);
        let (next, other) = (self.fresh_block(), self.cold_block());
        self.b.ins().brif(found, next, &[], other, &[]);
        self.enter(other);
        self.fault_at(FaultKind::IllegalInstruction, address, size);
        self.b.ins().jump(next, &[]);
        self.enter(next);
    }

    /// Leaves the function where a call has recorded a fault: where this is 0.
    pub(super) fn leave_unless(&mut self, went_well: Value) {
        let (next, leave) = (self.fresh_block(), self.leave);
        let faulted = self.b.ins().iconst(types::I32, i64::from(FAULTED));
        let faulted = [BlockArg::Value(faulted)];
        self.b.ins().brif(went_well, next, &[], leave, &faulted);
        self.enter(next);
    }

    /// `cvta` of an address of the cluster's shared memory, either way.
    pub(super) fn convert_cluster_address(&mut self, value: Value, to_generic: bool) -> Value {
        let function = match to_generic {
            true => &CLUSTER_TO_GENERIC,
            false => &GENERIC_TO_CLUSTER,
        };
        self.call_value(function, &[self.block, value])
    }

    /// Whether a generic address is in the cluster's shared memory, as a predicate.
    pub(super) fn in_cluster(&mut self, address: Value) -> Value {
        let found = self.call_value(&IS_IN_CLUSTER, &[self.block, address]);
        self.b.ins().ireduce(types::I8, found)
    }
}

#[derive(Debug)]
struct Mapa {
    generic: bool,
    ty: Type,
    args: [Arg; 3],
}

#[derive(Debug)]
struct Rank {
    generic: bool,
    args: [Arg; 2],
}

/// `mapa{.shared::cluster}.type d, a, rank`, `getctarank{.shared::cluster}.type d, a`
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let generic = !r.eat("shared::cluster");
    let ty = r.ty_of(&[Type::U32, Type::U64])?;
    // A variable of shared memory is an address as well.
    let address = |from: &Arg| match from {
        Arg::Symbol(..) => Ok(()),
        from => r.check(&[(from, Takes::From(ty))]),
    };
    match r.opcode {
        "mapa" => {
            let [to, from, rank] = r.finish()?;
            address(&from)?;
            r.check(&[(&to, Takes::To(ty)), (&rank, Takes::From(Type::U32))])?;
            let args = [to, from, rank];
            Ok(Box::new(Mapa { generic, ty, args }))
        }
        _ => {
            let [to, from] = r.finish()?;
            address(&from)?;
            r.check(&[(&to, Takes::To(Type::U32))])?;
            let args = [to, from];
            Ok(Box::new(Rank { generic, args }))
        }
    }
}

/// An address as it is computed with: a variable in shared memory stands for its generic address
/// where that is wanted.
fn place(l: &mut Lower<'_>, arg: &Arg, ty: Type) -> Value {
    let value = l.read(arg, ty);
    l.fit(value, types::I64, false)
}

impl Operation for Mapa {
    fn lower(&self, l: &mut Lower<'_>) {
        let [to, from, rank] = &self.args;
        let from = place(l, from, self.ty);
        let rank = l.read(rank, Type::U32);
        let generic = l.b.ins().iconst(types::I32, i64::from(self.generic));
        let found = l.call_value(&MAPA, &[l.block, from, rank, generic]);
        let found = l.fit(found, value_type(self.ty), false);
        l.write(to, self.ty, found);
    }

    fn pure(&self) -> bool {
        true
    }

    fn reaches(&self) -> bool {
        true
    }
}

impl Operation for Rank {
    fn lower(&self, l: &mut Lower<'_>) {
        let [to, from] = &self.args;
        let from = match (from, self.generic) {
            (Arg::Reg(id), _) => {
                let ty = l.body.tables.registers[id.0 as usize];
                place(l, from, ty)
            }
            _ => l.read(from, Type::U64),
        };
        let generic = l.b.ins().iconst(types::I32, i64::from(self.generic));
        let rank = l.call_value(&GETCTARANK, &[l.block, from, generic]);
        l.write(to, Type::U32, rank);
    }

    fn pure(&self) -> bool {
        true
    }

    fn reaches(&self) -> bool {
        true
    }
}
