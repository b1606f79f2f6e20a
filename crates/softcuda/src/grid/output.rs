//! What a launch prints: gathered while it runs, made into text and written when it ends.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// A part of what one `printf` prints.
#[derive(Debug)]
pub(crate) enum Piece {
    /// As it is.
    Text(Vec<u8>),
    /// A value, by C's conversion specification with its zero byte; an integer's is for `long
    /// long`.
    Conversion(Vec<u8>, Value),
}

/// The value of a conversion.
#[derive(Debug)]
pub(crate) enum Value {
    /// For `c`, `d`, `i`, `o`, `u`, `x`, `X` and `p`.
    Int(i64),
    /// For `a`, `e`, `f`, `g` and their capitals.
    Float(f64),
    /// For `s`.
    Text(Vec<u8>),
}

/// The most that is kept, in bytes; beyond it the oldest output is lost, as on a device.
const MOST: usize = 64 << 20;

/// What the `printf` calls of a launch made, in order.
#[derive(Default)]
pub(crate) struct Output(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    calls: VecDeque<Vec<Piece>>,
    size: usize,
}

impl Output {
    /// Adds what one call prints.
    pub fn push(&self, pieces: Vec<Piece>) {
        let mut kept = self.0.lock();
        kept.size += footprint(&pieces);
        kept.calls.push_back(pieces);
        while kept.size > MOST
            && let Some(oldest) = kept.calls.pop_front()
        {
            kept.size -= footprint(&oldest);
        }
    }

    /// Writes what there is, some calls at a time: a conversion of two bytes can print thousands.
    /// What one call prints is written at once unless it is very long.
    pub fn flush(&self) {
        const SOME: usize = 1 << 16;
        const MUCH: usize = 1 << 24;
        let kept = std::mem::take(&mut *self.0.lock());
        let mut text = Vec::new();
        let flush = |text: &mut Vec<u8>, beyond: usize| {
            if text.len() > beyond {
                write(text);
                text.clear();
            }
        };
        for call in &kept.calls {
            for piece in call {
                piece.print(&mut text);
                flush(&mut text, MUCH);
            }
            flush(&mut text, SOME);
        }
        flush(&mut text, 0);
    }

    /// Takes what there is, as text.
    #[cfg(test)]
    pub fn take(&self) -> Vec<u8> {
        let kept = std::mem::take(&mut *self.0.lock());
        let mut text = Vec::new();
        kept.calls
            .iter()
            .flatten()
            .for_each(|piece| piece.print(&mut text));
        text
    }
}

fn footprint(pieces: &[Piece]) -> usize {
    let size = |piece: &Piece| match piece {
        Piece::Text(text) => text.len(),
        Piece::Conversion(spec, Value::Text(text)) => spec.len() + text.len(),
        Piece::Conversion(spec, _) => spec.len(),
    };
    pieces
        .iter()
        .map(|piece| size_of::<Piece>() + size(piece))
        .sum()
}

impl Piece {
    fn print(&self, out: &mut Vec<u8>) {
        let (spec, value) = match self {
            Piece::Text(text) => return out.extend_from_slice(text),
            Piece::Conversion(spec, value) => (spec, value),
        };
        let text = match value {
            Value::Text(text) => [text, &b"\0"[..]].concat(),
            _ => Vec::new(),
        };
        // The value's text, or as much of it as fits, and how long it is.
        let print = |to: &mut [u8]| {
            let (to, size, format) = (to.as_mut_ptr().cast(), to.len(), spec.as_ptr().cast());
            // SAFETY: the format is one conversion that ends in a zero byte and fits the one value
            // passed; C writes no more than `size` bytes. A string ends in a zero byte.
            let length = unsafe {
                match value {
                    Value::Int(value) if spec.ends_with(b"c\0") => {
                        libc::snprintf(to, size, format, *value as libc::c_int)
                    }
                    Value::Int(value) => libc::snprintf(to, size, format, *value),
                    Value::Float(value) => libc::snprintf(to, size, format, *value),
                    Value::Text(_) => libc::snprintf(to, size, format, text.as_ptr()),
                }
            };
            usize::try_from(length).unwrap_or(0)
        };
        let mut short = [0; 64];
        let length = print(&mut short);
        if length < short.len() {
            return out.extend_from_slice(&short[..length]);
        }
        let mut long = vec![0; length + 1];
        print(&mut long);
        out.extend_from_slice(&long[..length]);
    }
}

unsafe extern "C" {
    /// C's standard output stream.
    static stdout: *mut libc::FILE;
}

/// Writes to C's standard output stream and flushes it: text that a C program printed before stays
/// before.
fn write(text: &[u8]) {
    // SAFETY: `stdout` is libc's own stream, open unless the program closed it, in which case
    // writing to it fails; the pointer and length are a live slice's.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
        libc::fflush(stdout);
    }
}
