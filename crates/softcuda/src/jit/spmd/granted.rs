//! What a plan takes for granted of a launch, so that most of what it [assumes](super::assumed) of
//! groups is so: what threads' numbers are divided by is not small. Where it is, the kernel's
//! second form runs, which does not assume that.

use crate::jit::decode::{RegId, Special};
use crate::jit::program::{Body, Step};

/// The most steps that compute what is taken for granted.
const MOST_STEPS: usize = 32;

/// What is taken for granted of a launch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Granted {
    /// The steps that compute it, in order: of the kernel's parameters and the launch's dimensions.
    pub steps: Vec<usize>,
    /// The divisors.
    pub divisors: Vec<RegId>,
    /// What each is at least, as a number without a sign.
    pub least: u64,
}

impl Granted {
    /// Whether a launch tells what a register is.
    pub fn tells(body: &Body, register: RegId) -> bool {
        steps_of(body, register, &mut vec![], &mut vec![]).is_some()
    }

    /// That these are at least so much; each is told by a launch.
    pub fn of(body: &Body, divisors: &[RegId], least: u64) -> Granted {
        let mut granted = Granted {
            least,
            ..Granted::default()
        };
        for register in divisors {
            if !granted.divisors.contains(register)
                && steps_of(body, *register, &mut granted.steps, &mut vec![]).is_some()
            {
                granted.divisors.push(*register);
            }
        }
        granted
    }
}

/// Adds the steps that compute a register, each behind those that it needs. `None` where it is not
/// from the launch alone, or by too many steps. `path` are the registers that it is needed for.
fn steps_of(
    body: &Body,
    register: RegId,
    steps: &mut Vec<usize>,
    path: &mut Vec<RegId>,
) -> Option<()> {
    if path.contains(&register) || path.len() + steps.len() >= MOST_STEPS {
        return None;
    }
    let mut writes = body.steps.iter().enumerate().filter_map(|(at, step)| {
        let Step::Instruction(step) = step else {
            return None;
        };
        step.writes.contains(&register).then_some((at, step))
    });
    let (at, step) = writes.next()?;
    if steps.contains(&at) {
        return Some(());
    }
    let of_launch = |special: &Special| matches!(special, Special::Ntid(_) | Special::Nctaid(_));
    let operation = &step.operation;
    let is_told = writes.next().is_none()
        && step.guard.is_none()
        && (operation.pure() || operation.loads_parameter())
        && step.specials.iter().all(of_launch);
    if !is_told {
        return None;
    }
    path.push(register);
    for read in &step.reads {
        steps_of(body, *read, steps, path)?;
    }
    path.pop();
    steps.push(at);
    Some(())
}
