//! `vprintf`: a kernel's `printf`.
//!
//! The call only takes what it prints, strings included; the text is made when the launch ends, on
//! a large stack, by C's own `snprintf`, piece by piece.

use super::{Caller, give, param};
use crate::grid::context::{BlockContext, CONTINUE, Status, ThreadContext};
use crate::grid::output::{Piece, Value};
use crate::jit::runtime::runtime;

/// More width or precision than this is not taken.
const WIDEST: i64 = 1 << 12;

runtime! {
    /// `int vprintf(const char* format, void* arguments)`: the number of arguments, or -1 without a
    /// format.
    VPRINTF = fn vprintf(
        thread: *mut ThreadContext, block: *mut BlockContext, returns: *mut u8, params: *const u8,
    ) -> u32 {
        let caller = Caller { thread, block };
        let (format, arguments): (u64, u64) = (param(params, 0), param(params, 8));
        if format == 0 {
            give(returns, -1i32);
            return CONTINUE;
        }
        match print(&caller, format, arguments) {
            Ok(count) => {
                give(returns, count);
                CONTINUE
            }
            Err(status) => status,
        }
    }
}

fn print(caller: &Caller, format: u64, arguments: u64) -> Result<i32, Status> {
    let format = caller.string(format)?;
    let mut arguments = Arguments {
        caller,
        start: arguments,
        offset: 0,
        count: 0,
    };
    let pieces = parse(&format, &mut arguments)?;
    caller.owner().running().output.push(pieces);
    Ok(arguments.count)
}

/// The arguments of a call: each at the next multiple of its size, integers shorter than 32 bits
/// and singles promoted.
struct Arguments<'a> {
    caller: &'a Caller,
    start: u64,
    offset: u64,
    count: i32,
}

impl Arguments<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Status> {
        self.offset = self.offset.next_multiple_of(N as u64);
        let bytes = self.caller.read(self.start.wrapping_add(self.offset))?;
        self.offset += N as u64;
        self.count += 1;
        Ok(bytes)
    }

    fn int(&mut self) -> Result<i32, Status> {
        Ok(i32::from_ne_bytes(self.take()?))
    }

    fn long(&mut self) -> Result<i64, Status> {
        Ok(i64::from_ne_bytes(self.take()?))
    }
}

/// Splits a format into text and conversions with their values. What is no conversion is text.
fn parse(format: &[u8], arguments: &mut Arguments<'_>) -> Result<Vec<Piece>, Status> {
    let mut pieces = Vec::new();
    let mut text = Vec::new();
    let mut rest = format;
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            text.push(byte);
            rest = after;
        } else if let Some(b'%') = after.first() {
            text.push(b'%');
            rest = &after[1..];
        } else {
            match conversion(after, arguments)? {
                None => {
                    text.push(byte);
                    rest = after;
                }
                Some((piece, after)) => {
                    if !text.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut text)));
                    }
                    pieces.push(piece);
                    rest = after;
                }
            }
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// A conversion whose `%` has been read, and what follows it; `None` when it is none.
fn conversion<'a>(
    mut rest: &'a [u8],
    arguments: &mut Arguments<'_>,
) -> Result<Option<(Piece, &'a [u8])>, Status> {
    // Looked at to its end first: what turns out to be text takes no arguments.
    let kind = rest
        .iter()
        .find(|byte| !b"-+ #0123456789.*hlLqjzt".contains(byte));
    if !kind.is_some_and(|kind| b"cdiouxXpeEfFgGaAs".contains(kind)) {
        return Ok(None);
    }
    let mut spec = vec![b'%'];
    while let [flag @ (b'-' | b'+' | b' ' | b'#' | b'0'), after @ ..] = rest {
        if !spec[1..].contains(flag) {
            spec.push(*flag);
        }
        rest = after;
    }
    let Some(width) = number(&mut rest, arguments)? else {
        return Ok(None);
    };
    if width < 0 {
        spec.push(b'-');
    }
    if width != 0 {
        spec.extend_from_slice(width.unsigned_abs().to_string().as_bytes());
    }
    if let [b'.', after @ ..] = rest {
        rest = after;
        let Some(precision) = number(&mut rest, arguments)? else {
            return Ok(None);
        };
        if precision >= 0 {
            spec.extend_from_slice(format!(".{precision}").as_bytes());
        }
    }
    let (mut long, mut short) = (false, 0);
    while let [
        length @ (b'h' | b'l' | b'L' | b'q' | b'j' | b'z' | b't'),
        after @ ..,
    ] = rest
    {
        if *length == b'h' {
            short += 1;
        } else {
            long = true;
        }
        rest = after;
    }
    let [kind @ b'a'..=b'z' | kind @ b'A'..=b'Z', after @ ..] = rest else {
        return Ok(None);
    };
    let value = match kind {
        b'c' => Value::Int(i64::from(arguments.int()?)),
        b'd' | b'i' => {
            let value = if long {
                arguments.long()?
            } else {
                i64::from(arguments.int()?)
            };
            Value::Int(match short {
                0 => value,
                1 => i64::from(value as i16),
                _ => i64::from(value as i8),
            })
        }
        b'o' | b'u' | b'x' | b'X' => {
            let value = if long {
                arguments.long()? as u64
            } else {
                u64::from(arguments.int()? as u32)
            };
            Value::Int(match short {
                0 => value,
                1 => value & 0xffff,
                _ => value & 0xff,
            } as i64)
        }
        b'p' => Value::Int(arguments.long()?),
        b's' => match arguments.long()? as u64 {
            0 => Value::Text(b"(null)".to_vec()),
            address => Value::Text(arguments.caller.string(address)?),
        },
        _ => Value::Float(f64::from_ne_bytes(arguments.take()?)),
    };
    if let b'd' | b'i' | b'o' | b'u' | b'x' | b'X' = kind {
        spec.extend_from_slice(b"ll");
    }
    spec.extend_from_slice(&[*kind, 0]);
    Ok(Some((Piece::Conversion(spec, value), after)))
}

/// A width or precision: digits, a `*` that takes an argument, or nothing, which is 0; `None` when
/// it is too large.
fn number(rest: &mut &[u8], arguments: &mut Arguments<'_>) -> Result<Option<i64>, Status> {
    if let [b'*', after @ ..] = *rest {
        *rest = after;
        let value = i64::from(arguments.int()?);
        return Ok(Some(value.clamp(-WIDEST, WIDEST)));
    }
    let mut value = 0i64;
    while let [digit @ b'0'..=b'9', after @ ..] = *rest {
        value = (value * 10 + i64::from(digit - b'0')).min(WIDEST + 1);
        *rest = after;
    }
    Ok((value <= WIDEST).then_some(value))
}
