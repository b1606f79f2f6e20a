//! The modifiers of floating-point instructions. They may stand in any order, and each is said to
//! be allowed or not by the instruction that reads them.

use crate::jit::decode::{Reader, Refusal};
use crate::jit::runtime::float::Rounding;

/// A modifier that is present or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    /// `.ftz`: subnormal inputs and results become zeros.
    Ftz,
    /// `.sat`: the result is clamped to [0, 1], or to the range of an integer type.
    Sat,
    /// `.relu`: a negative result becomes 0.
    Relu,
    /// `.satfinite`: an infinite result becomes the greatest finite number.
    Satfinite,
    /// `.NaN`: one NaN operand makes the result NaN.
    Nan,
    /// `.xorsign`
    Xorsign,
    /// `.abs`
    Abs,
    /// `.oob`
    Oob,
    /// `.approx`
    Approx,
    /// `.full`
    Full,
}

const FLAGS: [(&str, Flag); 10] = [
    ("ftz", Flag::Ftz),
    ("sat", Flag::Sat),
    ("relu", Flag::Relu),
    ("satfinite", Flag::Satfinite),
    ("NaN", Flag::Nan),
    ("xorsign", Flag::Xorsign),
    ("abs", Flag::Abs),
    ("oob", Flag::Oob),
    ("approx", Flag::Approx),
    ("full", Flag::Full),
];

const ROUNDINGS: [(&str, Rounding); 5] = [
    ("rn", Rounding::Nearest),
    ("rz", Rounding::Zero),
    ("rm", Rounding::Down),
    ("rp", Rounding::Up),
    ("rna", Rounding::Away),
];

const INTEGER_ROUNDINGS: [(&str, Rounding); 4] = [
    ("rni", Rounding::Nearest),
    ("rzi", Rounding::Zero),
    ("rmi", Rounding::Down),
    ("rpi", Rounding::Up),
];

/// What stood between an opcode and its type.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Modifiers {
    /// `.rn`, `.rz`, `.rm`, `.rp`, `.rna`
    pub rounding: Option<Rounding>,
    /// `.rni`, `.rzi`, `.rmi`, `.rpi`
    pub integer: Option<Rounding>,
    flags: u16,
}

impl Modifiers {
    /// Reads modifiers up to the first that is none of these.
    pub fn read(r: &mut Reader<'_>) -> Result<Modifiers, Refusal> {
        let mut read = Modifiers::default();
        read.more(r)?;
        Ok(read)
    }

    /// Reads on, as after a type.
    pub fn more(&mut self, r: &mut Reader<'_>) -> Result<(), Refusal> {
        loop {
            let twice = if let Some(flag) = r.eat_any(&FLAGS) {
                let had = self.has(flag);
                self.flags |= 1 << flag as u16;
                had
            } else if let Some(rounding) = r.eat_any(&ROUNDINGS) {
                self.rounding.replace(rounding).is_some()
            } else if let Some(rounding) = r.eat_any(&INTEGER_ROUNDINGS) {
                self.integer.replace(rounding).is_some()
            } else {
                return Ok(());
            };
            if twice {
                return Err(r.invalid("a modifier is given twice".into()));
            }
        }
    }

    /// Whether no flag was given.
    pub fn is_plain(&self) -> bool {
        self.flags == 0
    }

    /// Whether the flag was given.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags & 1 << flag as u16 != 0
    }

    /// Refuses every flag but these.
    pub fn allow(&self, r: &Reader<'_>, allowed: &[Flag]) -> Result<(), Refusal> {
        match FLAGS
            .iter()
            .find(|(_, flag)| self.has(*flag) && !allowed.contains(flag))
        {
            Some((name, _)) => Err(r.invalid(format!(".{name} is not allowed here"))),
            None => Ok(()),
        }
    }

    /// The rounding mode out of `.rn`, `.rz`, `.rm` and `.rp`; `.rn` where none was given and it is
    /// `optional`.
    pub fn mode(&self, r: &Reader<'_>, optional: bool) -> Result<Rounding, Refusal> {
        match self.rounding {
            Some(Rounding::Away) => Err(r.invalid(".rna is not allowed here".into())),
            Some(mode) => Ok(mode),
            None if optional => Ok(Rounding::Nearest),
            None => Err(r.invalid("a rounding modifier is required".into())),
        }
    }

    /// Refuses a rounding modifier.
    pub fn no_rounding(&self, r: &Reader<'_>) -> Result<(), Refusal> {
        match (self.rounding, self.integer) {
            (None, None) => Ok(()),
            _ => Err(r.invalid("a rounding modifier is not allowed here".into())),
        }
    }
}
