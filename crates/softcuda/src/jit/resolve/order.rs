//! Modifiers in another order than the ISA writes them, which the driver's compiler takes and
//! libraries write: `ldmatrix.sync.aligned.x4.m8n8.shared.b16`.
//!
//! Words that make up the instruction's name stay where they are, and types, state spaces and
//! layouts stay in their order, for they say which operand they are about. All others may stand
//! anywhere.

use ptx::ast::{Space, Type};

/// At most this many orders of an instruction are tried.
const MOST_TRIES: usize = 300;

/// Whether the word belongs to the instruction's name, which begins with the opcode.
fn is_name(opcode: &str, word: &str) -> bool {
    let words = match opcode {
        "mul" | "mad" | "madc" | "mul24" | "mad24" | "dp2a" => "lo hi wide",
        "shf" => "l r",
        "div" => "full",
        "cvta" => "to",
        "bar" | "barrier" => "warp cluster cta arrive sync red wait",
        "cp" => {
            "async bulk tensor reduce prefetch commit_group wait_group wait_all mbarrier \
            arrive noinc"
        }
        "mbarrier" => {
            "init inval arrive arrive_drop expect_tx complete_tx test_wait try_wait \
            parity pending_count"
        }
        "st" | "red" => "async bulk",
        "mma" => "sp sp::ordered_metadata",
        "wmma" => "load store mma a b c d",
        "wgmma" => "mma_async sp fence commit_group wait_group",
        "fence" => "proxy mbarrier_init",
        "tensormap" => "replace cp_fenceproxy",
        "createpolicy" => "fractional range cvt",
        "prefetch" => "tensormap",
        _ => "",
    };
    words.split_whitespace().any(|name| name == word)
}

/// Words of one kind stay in their order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Type,
    Space,
    Layout,
    /// Of the two of `createpolicy` the first comes first.
    Priority,
    Free,
}

fn kind(word: &str) -> Kind {
    let space = word.split("::").next().unwrap_or_default();
    if Type::from_name(word).is_some() {
        Kind::Type
    } else if Space::from_name(space).is_some() {
        Kind::Space
    } else if matches!(word, "row" | "col") {
        Kind::Layout
    } else if word.starts_with("L2::evict_") {
        Kind::Priority
    } else {
        Kind::Free
    }
}

/// Finds an order of the modifiers that can be read. `read` gives how many words it took where it
/// stopped.
pub(super) fn read_in_any<T>(
    opcode: &str,
    modifiers: &[String],
    mut read: impl FnMut(&[String]) -> Result<T, usize>,
) -> Option<T> {
    let name = modifiers.iter().take_while(|word| is_name(opcode, word));
    let (name, rest) = modifiers.split_at(name.count());
    if rest.iter().any(|word| is_name(opcode, word)) {
        return None;
    }
    let mut tries = MOST_TRIES;
    extend(&mut name.to_vec(), rest, &mut |words| {
        tries = tries.checked_sub(1)?;
        Some(read(words))
    })
    .flatten()
}

/// Tries the orders that begin with `done`; `None` once there are no more tries.
fn extend<T>(
    done: &mut Vec<String>,
    left: &[String],
    read: &mut impl FnMut(&[String]) -> Option<Result<T, usize>>,
) -> Option<Option<T>> {
    for (at, word) in left.iter().enumerate() {
        let kind_of_word = kind(word);
        let stays = |other: &String| {
            other == word || kind_of_word != Kind::Free && kind(other) == kind_of_word
        };
        if left[..at].iter().any(stays) {
            continue;
        }
        let mut rest = left.to_vec();
        done.push(rest.remove(at));
        let whole: Vec<String> = done.iter().chain(&rest).cloned().collect();
        let found = match read(&whole)? {
            Ok(found) => Some(found),
            Err(taken) if taken >= done.len() => extend(done, &rest, read)?,
            Err(_) => None,
        };
        done.pop();
        if found.is_some() {
            return Some(found);
        }
    }
    Some(None)
}

/// The modifiers of a load or store of parts of matrices, in the order in which the ISA has them.
pub(super) fn of_fragment<'w>(words: &[&'w str]) -> Vec<&'w str> {
    let mut words = words.to_vec();
    words.sort_by_key(|word| match *word {
        "sync" => 0,
        "aligned" => 1,
        "row" | "col" => 2,
        "x1" | "x2" | "x4" => 4,
        "trans" => 5,
        word if word.starts_with('m') => 3,
        word => match kind(word) {
            Kind::Space => 6,
            _ => 7,
        },
    });
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::module::{LoadOptions, Module};

    /// Reads `words` as a decoder does that wants these, some of which may be left out.
    fn read(wanted: &[&[&str]], words: &[String]) -> Result<Vec<String>, usize> {
        let mut taken = 0;
        for choice in wanted {
            let word = words.get(taken).map_or("", String::as_str);
            if choice.contains(&word) {
                taken += 1;
            } else if !choice.contains(&"") {
                return Err(taken);
            }
        }
        match taken == words.len() {
            true => Ok(words.to_vec()),
            false => Err(taken),
        }
    }

    fn found(opcode: &str, modifiers: &str, wanted: &[&[&str]]) -> Option<String> {
        let modifiers: Vec<String> = modifiers.split('.').map(str::to_owned).collect();
        read_in_any(opcode, &modifiers, |words| read(wanted, words)).map(|words| words.join("."))
    }

    #[test]
    fn free_words_find_their_places() {
        let fma: &[&[&str]] = &[&["rn", "rz"], &["ftz", ""], &["sat", ""], &["f32"]];
        for order in ["f32.ftz.rn", "ftz.f32.rn", "rn.f32.ftz", "f32.rn.ftz"] {
            assert_eq!(found("fma", order, fma).as_deref(), Some("rn.ftz.f32"));
        }
        assert_eq!(found("fma", "f32.ftz", fma), None);
        assert_eq!(found("fma", "f32.rn.rn", fma), None);
        assert_eq!(found("fma", "f32.rn.up", fma), None);
    }

    #[test]
    fn types_spaces_and_layouts_stay_in_order() {
        let cvt: &[&[&str]] = &[&["rn", ""], &["f32"], &["s32"]];
        assert_eq!(
            found("cvt", "f32.s32.rn", cvt).as_deref(),
            Some("rn.f32.s32")
        );
        assert_eq!(found("cvt", "s32.f32.rn", cvt), None);
        let cp: &[&[&str]] = &[&["async"], &["ca", "cg"], &["shared"], &["global"]];
        let order = found("cp", "async.shared.ca.global", cp);
        assert_eq!(order.as_deref(), Some("async.ca.shared.global"));
        assert_eq!(found("cp", "async.global.ca.shared", cp), None);
        let mma: &[&[&str]] = &[&["sync"], &["row"], &["col"]];
        assert_eq!(
            found("mma", "row.sync.col", mma).as_deref(),
            Some("sync.row.col")
        );
        assert_eq!(found("mma", "col.row.sync", mma), None);
    }

    #[test]
    fn names_stay_where_they_are() {
        let mul: &[&[&str]] = &[&["lo", "hi"], &["s32"]];
        assert_eq!(found("mul", "lo.s32", mul).as_deref(), Some("lo.s32"));
        assert_eq!(found("mul", "s32.lo", mul), None);
    }

    /// What ptxas 13.0 takes, and what it does not.
    #[test]
    fn instructions_as_the_drivers_compiler_takes_them() {
        const TAKEN: &[&str] = &[
            "cvt.f32.rn.s32 %f1, %r1",
            "cvt.sat.f16.rn.ftz.f32 %h1, %f1",
            "atom.u32.relaxed.gpu.add.global %r1, [%rd1], %r2",
            "shfl.b32.bfly.sync %r1, %r2, 1, 31, -1",
            "vote.b32.ballot.sync %r1, %p1, -1",
            "setp.f32.and.lt %p1, %f1, %f2, %p2",
            "ld.f32.L1::no_allocate.global.nc.v2 {%f1, %f2}, [%rd1]",
            "st.f32.global [%rd1], %f1",
            "cvta.to.u64.global %rd1, %rd2",
            "prmt.f4e.b32 %r1, %r2, %r3, %r4",
            "fence.sys.acq_rel",
            "fma.f32.sat.rn.ftz %f1, %f2, %f3, %f4",
            "ldmatrix.b16.m8n8.shared.aligned.sync.x4.trans {%r1, %r2, %r3, %r4}, [%r5]",
            "stmatrix.aligned.trans.sync.b16.x1.m8n8.shared [%r1], {%r2}",
            "mma.f32.row.f16.m16n8k16.f16.aligned.sync.col.f32 {%f1, %f2, %f3, %f4},
                {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}",
            "cp.async.shared.global.cg.L2::128B [%r1], [%rd1], 16",
            "mbarrier.arrive.expect_tx.b64.shared %rd1, [%r1], %r2",
            "redux.s32.add.sync %r1, %r2, -1",
            "match.b32.sync.any %r1, %r2, -1",
            "shf.l.b32.wrap %r1, %r2, %r3, %r4",
            "set.u32.f32.eq %r1, %f1, %f2",
            "testp.f32.finite %p1, %f1",
            "wgmma.wait_group.aligned.sync 0",
        ];
        const REFUSED: &[&str] = &[
            "mul.s32.lo %r1, %r2, %r3",
            "cvt.s32.rn.f32 %f1, %r1",
            "cvta.global.to.u64 %rd1, %rd2",
            "cp.async.global.ca.shared [%r1], [%rd1], 16",
            "mbarrier.arrive.b64.expect_tx.shared %rd1, [%r1], %r2",
            "shf.wrap.l.b32 %r1, %r2, %r3, %r4",
            "div.f32.full %f1, %f2, %f3",
            "wgmma.sync.aligned.fence",
            "fence.async.proxy.shared::cta",
        ];
        let load = |instruction: &str| {
            let source = format!(
                ".version 8.7
                .target sm_90a
                .address_size 64
                .visible .entry k() {{
                    .reg .f32 %f<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;
                    .reg .b16 %h<9>;
                    {instruction};
                    ret;
                }}"
            );
            match Module::load(source.as_bytes(), &LoadOptions::default()) {
                Ok(module) => module.warnings.clone(),
                Err(error) => error.log,
            }
        };
        for instruction in TAKEN {
            assert_eq!(load(instruction), "", "{instruction}");
        }
        for instruction in REFUSED {
            assert_ne!(load(instruction), "", "{instruction}");
        }
    }

    #[test]
    fn the_search_ends() {
        let words: Vec<String> = (0..60).map(|n| format!("w{n}")).collect();
        let mut tries = 0;
        let found = read_in_any("ld", &words, |_| -> Result<(), usize> {
            tries += 1;
            Err(60)
        });
        assert!(found.is_none() && tries == MOST_TRIES);
    }
}
