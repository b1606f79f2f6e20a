//! `membar` and `fence`.
//!
//! On x86-64 loads and stores keep every order but that of a store and a later load, so a fence
//! that is weaker than `.sc` only has to keep the compiler from moving accesses over it, as does
//! one among the threads of a block: one thread runs them all.

use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, MemFlags, types};

use super::Lower;
use super::async_copy::literal;
use super::function::slot;
use crate::jit::decode::{Arg, Operation, Reader, Refusal};

#[derive(Debug)]
struct Fence {
    full: bool,
}

/// `membar.level`, `fence{.sem}.scope`, and the fences between proxies that are one here.
pub(super) fn decode(r: &mut Reader<'_>) -> Result<Box<dyn Operation>, Refusal> {
    let mut names_memory = false;
    let full = match r.opcode {
        "membar" => {
            let full = r.eat_any(&[("cta", false), ("gl", true), ("sys", true)]);
            match full {
                Some(full) => full,
                None => {
                    names_memory = proxy(r)?;
                    false
                }
            }
        }
        _ if r.peek() == Some("proxy") => {
            names_memory = proxy(r)?;
            false
        }
        _ => {
            if r.eat("mbarrier_init") {
                r.expect_any(&[("release", ())])?;
                r.expect_any(&[("cluster", ())])?;
                let [] = r.finish()?;
                return Ok(Box::new(Fence { full: false }));
            }
            let strong = r.eat("sc");
            if !strong && (r.eat("acquire") || r.eat("release")) {
                r.eat_any(&[
                    ("sync_restrict::shared::cluster", ()),
                    ("sync_restrict::shared::cta", ()),
                ]);
            } else if !strong {
                r.eat("acq_rel");
            }
            let wide = r.expect_any(&[
                ("cta", false),
                ("cluster", true),
                ("gpu", true),
                ("sys", true),
            ])?;
            strong && wide
        }
    };
    if names_memory {
        let [address, size] = r.finish()?;
        if !matches!(address, Arg::Address(..)) || literal(r, &size)? != 128 {
            return Err(r.invalid("takes an address in brackets, and 128".into()));
        }
    } else {
        let [] = r.finish()?;
    }
    Ok(Box::new(Fence { full }))
}

/// `.proxy.kind`: all memory is reached by one way here. Says whether the fence takes an address
/// and a size.
fn proxy(r: &mut Reader<'_>) -> Result<bool, Refusal> {
    if !r.eat("proxy") {
        return Err(r.invalid("names neither a level nor a proxy".into()));
    }
    if r.eat("alias") {
        return Ok(false);
    }
    if r.eat("async") {
        r.eat_any(&[("global", ()), ("shared::cta", ()), ("shared::cluster", ())]);
        return Ok(false);
    }
    let tensors = r.expect_any(&[("tensormap::generic", true), ("async::generic", false)])?;
    let acquires = r.expect_any(&[("acquire", true), ("release", false)])?;
    if tensors {
        r.expect_any(&[("cta", ()), ("cluster", ()), ("gpu", ()), ("sys", ())])?;
        return Ok(acquires);
    }
    r.expect_any(&[match acquires {
        true => ("sync_restrict::shared::cluster", ()),
        false => ("sync_restrict::shared::cta", ()),
    }])?;
    r.expect_any(&[("cluster", ())])?;
    Ok(false)
}

impl Operation for Fence {
    fn lower(&self, l: &mut Lower<'_>) {
        if !cfg!(target_arch = "x86_64") {
            l.b.ins().fence();
        } else if self.full {
            // An exchange keeps every order, too, and takes less time than `mfence`.
            let own = slot(&mut l.b, 4);
            let own = l.b.ins().stack_addr(types::I64, own, 0);
            let zero = l.b.ins().iconst(types::I32, 0);
            let exchange = AtomicRmwOp::Xchg;
            l.b.ins()
                .atomic_rmw(types::I32, MemFlags::trusted(), exchange, own, zero);
        } else {
            // The compiler moves nothing over an atomic load, which costs no more than any other.
            let at = l.thread;
            l.b.ins().atomic_load(types::I32, MemFlags::trusted(), at);
        }
    }
}
