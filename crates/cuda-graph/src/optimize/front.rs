//! What a planned node does, from what the program's nodes do.

use std::collections::HashSet;
use std::sync::Arc;

use cudarc::driver::CudaContext;

use super::Given;
use super::plan::{Does, Front, Place, Planned};
use crate::Result;
use crate::graph::AnyOp;
use crate::graph::setter::{self, Latch, Setters};
use crate::kernel::Variant;
use crate::op::lowered::{Sizes, lower};
use crate::op::{KernelOp, LaunchAttribute};

/// Why a node cannot do what it is to do.
pub(crate) type Unfit = &'static str;

impl Planned {
    /// What it does, if the program's nodes do what `now` says and those of `disabled` nothing.
    pub(crate) fn op_for<'o>(
        &self,
        context: &Arc<CudaContext>,
        now: &dyn Fn(Place) -> Option<&'o AnyOp>,
        disabled: &HashSet<Place>,
    ) -> Result<std::result::Result<AnyOp, Unfit>> {
        const UNKNOWN: Unfit = "what it does is not known";
        let op = match &self.does {
            Does::Same => match self.of.first().and_then(|place| now(*place)) {
                Some(op) => op.clone(),
                None => return Ok(Err(UNKNOWN)),
            },
            Does::Transfers => {
                let ops: Option<Vec<&AnyOp>> = self.of.iter().map(|place| now(*place)).collect();
                let Some(ops) = ops else {
                    return Ok(Err(UNKNOWN));
                };
                // The driver disables one that is alone.
                let is_on = |at: usize| ops.len() == 1 || !disabled.contains(&self.of[at]);
                match lower(context, &ops, is_on, Sizes::All) {
                    Some(launch) => AnyOp::Kernel(launch?),
                    None => return Ok(Err("its memory or its size is not a kernel's")),
                }
            }
            Does::Latch(latch) => {
                let Some(op) = self.of.first().and_then(|place| now(*place)) else {
                    return Ok(Err(UNKNOWN));
                };
                match setter::of(context)?.latch(op, *latch) {
                    Some(launch) => AnyOp::Kernel(launch?),
                    None => return Ok(Err("it sets its condition in another way now")),
                }
            }
            Does::Copies(_) => return Ok(Err("it is a copy of an embedded graph")),
        };
        in_front(op, context, self.front)
    }
}

/// Guards.
impl Planned {
    /// Whether a kernel can be guarded.
    pub(super) fn can_be_guarded(&self, given: &Given<'_>) -> std::result::Result<(), Unfit> {
        if self.front.guard.is_some() || matches!(self.does, Does::Latch(_)) {
            return Ok(());
        }
        let guard = Front {
            guard: Some(0),
            ..self.front
        };
        fitted(self.op.clone(), given.context, guard).map(drop)
    }

    /// Has a kernel do nothing where the word at `address` is 0. One that has a guard looks at a
    /// latch of the same body: guarding that is enough.
    pub(super) fn guard(
        &mut self,
        address: u64,
        given: &Given<'_>,
        setters: &Setters,
    ) -> std::result::Result<(), Unfit> {
        match (&self.op, self.does.clone(), self.front.guard) {
            (_, Does::Latch(latch), _) => match latch.around {
                Some(_) => Ok(()),
                None => self.latch(
                    Latch {
                        around: Some(address),
                        ..latch
                    },
                    setters,
                ),
            },
            (AnyOp::Kernel(_), _, None) => {
                self.front.guard = Some(address);
                self.op = fitted(self.op.clone(), given.context, self.front)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Has a node that sets a condition, or is a latch, be this latch.
    pub(super) fn latch(
        &mut self,
        latch: Latch,
        setters: &Setters,
    ) -> std::result::Result<(), Unfit> {
        let op = setters.latch(&self.op, latch);
        let op = op.ok_or("a kernel of the program sets its condition")?;
        let op = op.map_err(|_| "the latch cannot be loaded")?;
        self.op = AnyOp::Kernel(op);
        self.does = Does::Latch(latch);
        Ok(())
    }
}

/// The operation with something in front of its kernel.
fn in_front(
    op: AnyOp,
    context: &Arc<CudaContext>,
    front: Front,
) -> Result<std::result::Result<AnyOp, Unfit>> {
    if front == Front::default() {
        return Ok(Ok(op));
    }
    let AnyOp::Kernel(launch) = &op else {
        return Ok(Err("it is no kernel"));
    };
    Ok(variant(launch, context, front)?.map(AnyOp::Kernel))
}

fn variant(
    launch: &KernelOp,
    context: &Arc<CudaContext>,
    front: Front,
) -> Result<std::result::Result<KernelOp, Unfit>> {
    if !has_plain_attributes(launch) {
        return Ok(Err("its launch has attributes"));
    }
    let wanted = Variant {
        guard: front.guard.is_some(),
        wait: front.wait,
        trigger: front.trigger,
    };
    match launch.kernel().variant(context, wanted)? {
        Ok(variant) => Ok(Ok(launch.with_variant(&variant, front.guard))),
        Err(why) => {
            tracing::debug!(
                "kernel `{}` is left as it is: {why}",
                launch.kernel().name()
            );
            Ok(Err(why.in_short()))
        }
    }
}

/// The operation with something in front of its kernel, or why there is none.
pub(super) fn fitted(
    op: AnyOp,
    context: &Arc<CudaContext>,
    front: Front,
) -> std::result::Result<AnyOp, Unfit> {
    in_front(op, context, front).unwrap_or_else(|error| {
        tracing::debug!("a kernel is left as it is: {error}");
        Err("the driver fails to load what was made of it")
    })
}

/// Whether a launch has no attributes that a variant of its kernel could break.
pub(super) fn has_plain_attributes(launch: &KernelOp) -> bool {
    let is_plain = |attribute: &LaunchAttribute| matches!(attribute, LaunchAttribute::Priority(_));
    launch.attributes().iter().all(is_plain)
}
