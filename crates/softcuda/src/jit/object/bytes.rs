//! An object as bytes, and back. Bytes may be anything: what is no object is `None`.

use super::{Object, Outside, Reached, Relocation};
use crate::grid::context::Mode;
use crate::grid::rounds::{Tiles, Wait};
use crate::jit::runtime::access::{Access, Indices, Window};
use crate::jit::runtime::arrays::Array;

/// A value that an object is made of.
trait Part: Sized {
    fn write(&self, to: &mut Vec<u8>);
    fn read(from: &mut &[u8]) -> Option<Self>;

    fn write_all(items: &[Self], to: &mut Vec<u8>) {
        items.iter().for_each(|item| item.write(to));
    }

    fn read_all(count: usize, from: &mut &[u8]) -> Option<Vec<Self>> {
        // A wrong count must not take memory.
        let mut items = Vec::with_capacity(count.min(4096));
        for _ in 0..count {
            items.push(Self::read(from)?);
        }
        Some(items)
    }
}

macro_rules! numbers {
    ($($ty:ty),*) => { $(impl Part for $ty {
        fn write(&self, to: &mut Vec<u8>) {
            to.extend_from_slice(&self.to_le_bytes());
        }

        fn read(from: &mut &[u8]) -> Option<Self> {
            let (bytes, rest) = from.split_first_chunk()?;
            *from = rest;
            Some(<$ty>::from_le_bytes(*bytes))
        }
    })* };
}
numbers!(u32, u64, i64);

impl Part for u8 {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(*self);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        Some(*byte)
    }

    // Machine code, in one piece.
    fn write_all(items: &[Self], to: &mut Vec<u8>) {
        to.extend_from_slice(items);
    }

    fn read_all(count: usize, from: &mut &[u8]) -> Option<Vec<Self>> {
        let (items, rest) = from.split_at_checked(count)?;
        *from = rest;
        Some(items.to_vec())
    }
}

/// Structures, field by field.
macro_rules! structures {
    ($($ty:ident { $($field:ident),* $(,)? })*) => { $(impl Part for $ty {
        fn write(&self, to: &mut Vec<u8>) {
            let $ty { $($field),* } = self;
            $($field.write(to);)*
        }

        fn read(from: &mut &[u8]) -> Option<Self> {
            Some($ty { $($field: Part::read(from)?),* })
        }
    })* };
}
structures! {
    Object { code, relocations, entry, mode, kept, spins, passes, reaches, sites, frame, waits, accesses, arrays, table, targets }
    Relocation { at, of, addend }
    Reached { function, at, blocks }
    Wait { kind, mask, b, c, tiles }
    Tiles { size, of_rows }
    Access { site, window, log2, write, sum, offsets, threads, stride, indices }
    Indices { more, by, signed }
    Array { param, low, length, by, log2, write }
}

/// Enumerations without data, by number.
macro_rules! choices {
    ($($ty:ident { $($number:literal => $choice:ident),* $(,)? })*) => { $(impl Part for $ty {
        fn write(&self, to: &mut Vec<u8>) {
            let number: u8 = match self { $($ty::$choice => $number),* };
            number.write(to);
        }

        fn read(from: &mut &[u8]) -> Option<Self> {
            Some(match u8::read(from)? { $($number => $ty::$choice,)* _ => return None })
        }
    })* };
}
choices! {
    Mode { 0 => Loop, 1 => Rounds, 2 => Fibers }
    Window { 0 => Host, 1 => Shared, 2 => Local, 3 => Params, 4 => Global }
}

impl Part for bool {
    fn write(&self, to: &mut Vec<u8>) {
        u8::from(*self).write(to);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        match u8::read(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<T: Part> Part for Option<T> {
    fn write(&self, to: &mut Vec<u8>) {
        self.is_some().write(to);
        if let Some(value) = self {
            value.write(to);
        }
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        Some(match bool::read(from)? {
            true => Some(T::read(from)?),
            false => None,
        })
    }
}

impl<T: Part> Part for Vec<T> {
    fn write(&self, to: &mut Vec<u8>) {
        (self.len() as u32).write(to);
        T::write_all(self, to);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        T::read_all(u32::read(from)? as usize, from)
    }
}

impl Part for Outside {
    fn write(&self, to: &mut Vec<u8>) {
        let (tag, index) = self.parts();
        tag.write(to);
        index.write(to);
    }

    fn read(from: &mut &[u8]) -> Option<Self> {
        Outside::of_parts(u8::read(from)?, u32::read(from)?)
    }
}

impl Object {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.code.len() + 4096);
        self.write(&mut bytes);
        bytes
    }

    /// The same, made of its bytes.
    #[cfg(test)]
    pub fn again(self) -> Object {
        Object::of_bytes(&self.to_bytes()).expect("what was written can be read")
    }

    /// The object that has these bytes, all of them.
    pub fn of_bytes(mut bytes: &[u8]) -> Option<Object> {
        let object = Object::read(&mut bytes)?;
        bytes.is_empty().then_some(object)
    }
}
