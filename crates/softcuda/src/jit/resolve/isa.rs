//! Words of the PTX ISA, up to sm_90, beyond those that are run: an instruction of such words is
//! right, so its module loads, and a kernel that reaches the instruction does not launch. Any other
//! word is refused when the module is loaded, as the driver's compiler does.

use std::borrow::Cow;

use ptx::ast::{Instruction, Operand};
use ptx::opcode::{Opcode, Since, Target, Version};

/// Modifiers that are no types. Those with `::` are hints, scopes and spaces, of which later
/// versions bring more.
const MODIFIERS: &str = "
    1d 2d 2dms 3d 4d 5d NaN a a1d a2d a2dms abs acq_rel acquire acube add aligned all and
    any approx arrive async b b1x16 b4e ballot base bfly bulk ca cas cbrt cg clamp clc
    cluster cm_sup col const cp_fenceproxy cs cta cube cv dec down ecl eq equ exch expect_tx
    f4e finite ftz full g gather4 ge geom geu global gpu grad gt gtu hi hs idx inc infinite
    irnd le leu level lo local ls lt ltu lu m8n8 max min mmio multimem nan nc ne neu noftz
    noinc normal notanumber num number or param popc r rc16 rc8 red relaxed release relu rm
    rmi rn rna rni row rp rpi rs rz rzi sat satfinite sc shared shiftamt sp subnormal sync
    sys to trans trap uni unified up v2 v4 v8 volatile wb weak wide wrap wt x1 x2 x4 xor
    xorsign zero
";

/// Opcodes of which some forms are right and not run; of all others every form is.
const OF_MORE_FORMS: &str = "atom cvt prefetch red";

/// Those of them that have forms of more types.
const OF_MORE_TYPES: &str = "atom cvt red";

fn has(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|found| found == word)
}

/// Whether this is an opcode of any target.
pub(super) fn is_opcode(name: &str) -> bool {
    Opcode::of(name).is_some()
}

/// The words of an instruction that say [since](ptx::opcode::since()) when it is there.
pub(super) fn words(instruction: &Instruction) -> Vec<&str> {
    let mut words: Vec<&str> = instruction.modifiers.iter().map(String::as_str).collect();
    if let Some(Operand::Sink) = instruction.operands.first() {
        words.push("_");
    }
    if instruction.operands.len() == 3 {
        words.push("/3");
    }
    words
}

/// What is too old in a module of this target and version for it to have what is there since then.
pub(super) fn too_old(since: Since, target: Option<Target>, version: Version) -> Option<String> {
    let needs = match (since.target, since.version) {
        (Some(least), _) if target < Some(least) => format!(".target {least}"),
        (_, Some(least)) if version < least => format!(".version {}.{}", least.0, least.1),
        _ => return None,
    };
    Some(format!("needs {needs} or newer"))
}

/// The instruction with what a module of this version need not say: before 6.3, all of `wmma` is
/// `.aligned`.
pub(super) fn spelt_out(instruction: &Instruction, version: Version) -> Cow<'_, Instruction> {
    let says = |word: &str| instruction.modifiers.iter().position(|said| said == word);
    match says("sync") {
        Some(sync) if instruction.opcode == "wmma" && version < (6, 3) => {
            let mut whole = instruction.clone();
            whole.modifiers.insert(sync + 1, "aligned".into());
            Cow::Owned(whole)
        }
        _ => Cow::Borrowed(instruction),
    }
}

/// Whether a modifier that an instruction does not take here may be right all the same.
pub(crate) fn is_modifier(opcode: &str, name: &str) -> bool {
    match ptx::ast::Type::from_name(name) {
        Some(_) => has(OF_MORE_TYPES, opcode),
        None => has(OF_MORE_FORMS, opcode) && (name.contains("::") || has(MODIFIERS, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::lower;

    #[test]
    fn all_opcodes_but_these_run() {
        let not_run: Vec<_> = Opcode::all()
            .iter()
            .map(|opcode| opcode.name)
            .filter(|name| lower::decoder(name).is_none())
            .collect();
        let expected = "clusterlaunchcontrol multimem pmevent suld suq sured sust tcgen05 \
            tex tld4 txq";
        assert_eq!(not_run.join(" "), expected);
    }
}
