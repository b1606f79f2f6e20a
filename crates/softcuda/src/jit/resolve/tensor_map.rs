//! `tensormap.cp_fenceproxy` becomes a load and a store by each lane, as the device's compiler does
//! it. The fence is none here: all memory is reached by one way.

use ptx::ast::{Immediate, Type};

use super::fragments::{Steps, Wrong, expect, number};
use crate::grid::tensor::map::SIZE;
use crate::jit::decode::{Arg, Special};

impl Steps<'_, '_, '_> {
    /// `.global.shared::cta.tensormap::generic.release.scope.sync.aligned [to], [from], 128`, where
    /// lane `n` copies word `n`. The lanes meet before, as some may have written the map, and
    /// after, as some may use it.
    pub(super) fn copy_of_map(&mut self, modifiers: &[&str], args: &[Arg]) -> Result<(), Wrong> {
        let mut words = modifiers.iter().copied().peekable();
        for word in ["global", "shared::cta", "tensormap::generic", "release"] {
            expect(&mut words, word)?;
        }
        let scope = words.next();
        if !matches!(scope, Some("cta" | "cluster" | "gpu" | "sys")) {
            return Err("takes a scope: .cta, .cluster, .gpu or .sys".into());
        }
        for word in ["sync", "aligned"] {
            expect(&mut words, word)?;
        }
        if let Some(word) = words.next() {
            return Err(format!("modifier .{word} is not known here"));
        }
        let [to, from, size] = args else {
            return Err("takes two addresses and 128".into());
        };
        if !matches!(size, Arg::Imm(Immediate::Int { bits, .. }) if *bits == SIZE as u64) {
            return Err("copies 128 bytes".into());
        }
        self.meet();
        let lane = self.value(Type::U32, "mov.u32", &[Arg::Special(Special::Laneid)]);
        let [to, from] = [self.address(to)?, self.address(from)?].map(|start| {
            let place = self.value(Type::U64, "mad.wide.u32", &[lane.clone(), number(4), start]);
            Arg::Address(Box::new(place), 0)
        });
        let word = self.value(Type::U32, "ld.shared.u32", &[from]);
        self.step("st.global.u32", vec![to, word]);
        self.meet();
        Ok(())
    }
}
