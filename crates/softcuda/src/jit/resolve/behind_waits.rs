//! Numbers are written behind waits instead of before them.
//!
//! `nvcc` writes the number of `int t = 0; if (...) t = ...;` long before it tests, and often
//! before a barrier. A thread that waits in rounds would keep it meanwhile: a store and a load of
//! each.

use std::collections::HashSet;

use crate::jit::decode::{Flow, RegId};
use crate::jit::program::Step;

/// How many steps behind the number are looked at.
const MOST: usize = 256;

/// Moves each step that writes a number to a register behind the last wait before which nothing
/// else touches that register, and which control comes to from the step. What nobody reads stays.
pub(super) fn move_numbers(steps: &mut [Step]) {
    let mut read = HashSet::new();
    for step in &*steps {
        if let Step::Instruction(step) = step {
            read.extend(&step.reads);
            read.extend(step.guard.map(|(guard, _)| guard));
        }
    }
    // From the last: steps that are moved do not change what is behind others.
    for at in (0..steps.len()).rev() {
        if let Some(wait) = last_wait(&steps[at..], &read) {
            steps[at..=at + wait].rotate_left(1);
        }
    }
}

/// The last wait behind the first of these steps, if that writes a number which nothing reads or
/// writes before.
fn last_wait(steps: &[Step], read: &HashSet<RegId>) -> Option<usize> {
    let Step::Instruction(first) = &steps[0] else {
        return None;
    };
    let [register] = first.writes[..] else {
        return None;
    };
    if first.guard.is_some() || first.operation.number().is_none() || !read.contains(&register) {
        return None;
    }
    let mut wait = None;
    for (at, step) in steps.iter().enumerate().take(MOST).skip(1) {
        let Step::Instruction(step) = step else { break };
        if step.touches(register) || step.operation.flow() != Flow::Next {
            break;
        }
        if step.operation.waits() {
            wait = Some(at);
        }
    }
    wait
}

#[cfg(test)]
mod tests {
    use crate::jit::harness::load;
    use crate::jit::program::Step;

    /// The steps of a body, each as a word.
    fn steps(body: &str) -> Vec<String> {
        let text = format!(
            ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 p) {{
            .reg .b32 %r<4>;\n.reg .pred %p;\n.shared .b32 s[32];\n{body}\nret; }}"
        );
        let module = load(&text);
        let body = module.program().functions[0]
            .body
            .as_ref()
            .expect("it has a body");
        let word = |step: &Step| match step {
            Step::Label(_) => "label".to_owned(),
            Step::Instruction(step) => match step.operation.number() {
                Some((_, number)) => format!("{number:?}"),
                None if step.operation.waits() => "wait".to_owned(),
                None => "other".to_owned(),
            },
        };
        body.steps.iter().map(word).collect()
    }

    #[test]
    fn numbers_go_behind_waits() {
        let two = steps(
            "mov.u32 %r1, 7; bar.sync 0; mov.u32 %r0, %tid.x; bar.sync 0; st.shared.u32 [s], %r1;",
        );
        assert_eq!(two[..3], ["wait", "other", "wait"], "{two:?}");
        assert!(two[3].contains('7'), "{two:?}");
    }

    #[test]
    fn numbers_stay_where_they_are_read_or_control_parts() {
        for body in [
            "mov.u32 %r1, 7; st.shared.u32 [s], %r1; bar.sync 0;",
            "mov.u32 %r1, 7; mov.u32 %r1, %tid.x; bar.sync 0;",
            "mov.u32 %r1, 7; @%p bra L; L: bar.sync 0; st.shared.u32 [s], %r1;",
            "mov.u32 %r1, 7; L: bar.sync 0; bra L;",
            "@%p mov.u32 %r1, 7; bar.sync 0; st.shared.u32 [s], %r1;",
            "mov.u32 %r1, 7; bar.sync 0;",
        ] {
            let steps = steps(body);
            assert!(steps[0].contains('7'), "{steps:?}");
        }
    }
}
