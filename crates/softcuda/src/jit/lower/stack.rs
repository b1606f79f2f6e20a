//! `alloca`, `stacksave`, `stackrestore`: a thread's local memory above its frames.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use ptx::ast::{Immediate, Type};

use super::entry::Entry;
use super::{Lower, value_type};
use crate::grid::context::ThreadContext;
use crate::grid::launch::FaultKind;
use crate::jit::decode::{Arg, Operation, Reader, Refusal};

const TOP: usize = offset_of!(ThreadContext, local_top);

#[derive(Debug)]
enum Stack {
    Alloca {
        ty: Type,
        to: Arg,
        size: Arg,
        align: u64,
    },
    Save {
        ty: Type,
        to: Arg,
    },
    Restore {
        from: Arg,
    },
}

pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let ty = reader.ty_of(&[Type::U32, Type::U64])?;
    Ok(Box::new(match reader.opcode {
        "alloca" => {
            reader.end()?;
            let (to, size, align) = match reader.args {
                [to, size] => (to, size, 8),
                [to, size, Arg::Imm(Immediate::Int { bits, .. })] => (to, size, *bits),
                _ => return Err(reader.invalid("takes a register, a size and an alignment".into())),
            };
            if !align.is_power_of_two() || align > 1 << 16 {
                return Err(reader.invalid(format!("{align} is no alignment")));
            }
            Stack::Alloca {
                ty,
                to: to.clone(),
                size: size.clone(),
                align,
            }
        }
        "stacksave" => {
            let [to] = reader.finish()?;
            Stack::Save { ty, to }
        }
        _ => {
            let [from] = reader.finish()?;
            Stack::Restore { from }
        }
    }))
}

impl Operation for Stack {
    fn lower(&self, l: &mut Lower<'_>) {
        match self {
            Stack::Alloca {
                ty,
                to,
                size,
                align,
            } => {
                let size = l.read(size, *ty);
                let size = l.fit(size, types::I64, false);
                // The top stays a multiple of 16 for the frames above it.
                let align = (*align).max(16) as i64;
                let top = l.thread_field(types::I64, TOP);
                let start = l.b.ins().iadd_imm(top, align - 1);
                let start = l.b.ins().band_imm(start, -align);
                let limit = l.entry(Entry::LocalSize);
                let room = l.b.ins().isub(limit, start);
                let below = l.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, start, limit);
                let fits = l.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, size, room);
                let ok = l.b.ins().band(below, fits);
                overflow_unless(l, ok);
                let end = l.b.ins().iadd(start, size);
                let end = l.b.ins().iadd_imm(end, 15);
                let end = l.b.ins().band_imm(end, -16);
                l.set_thread_field(end, TOP);
                let start = l.fit(start, value_type(*ty), false);
                l.write(to, *ty, start);
            }
            Stack::Save { ty, to } => {
                let top = l.thread_field(types::I64, TOP);
                let top = l.fit(top, value_type(*ty), false);
                l.write(to, *ty, top);
            }
            Stack::Restore { from } => {
                // Frames rely on the top being inside local memory.
                let top = l.read(from, Type::U64);
                let top = l.b.ins().band_imm(top, -16);
                let limit = l.entry(Entry::LocalSize);
                let inside = l.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, top, limit);
                overflow_unless(l, inside);
                l.set_thread_field(top, TOP);
            }
        }
    }

    fn uses_stack(&self) -> bool {
        true
    }
}

fn overflow_unless(l: &mut Lower<'_>, ok: Value) {
    let (next, cold) = (l.fresh_block(), l.cold_block());
    l.b.ins().brif(ok, next, &[], cold, &[]);
    l.enter(cold);
    l.fault(FaultKind::StackOverflow);
    l.b.ins().jump(next, &[]);
    l.enter(next);
}
