//! A value for each graph of a hierarchy.

use std::iter;
use std::ops::{Index, IndexMut};

/// A value for each graph of a hierarchy, by its number.
///
/// The root's lies in place: most calls are about that one.
#[derive(Default)]
pub(crate) struct Graphs<T> {
    root: T,
    others: Vec<T>,
}

impl<T> Graphs<T> {
    #[inline(always)]
    pub(crate) fn new(root: T) -> Graphs<T> {
        Graphs {
            root,
            others: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        match number {
            0 => Some(&self.root),
            _ => self.others.get(number as usize - 1),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        match number {
            0 => Some(&mut self.root),
            _ => self.others.get_mut(number as usize - 1),
        }
    }

    /// How many there are, and the number of the next.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        1 + self.others.len() as u32
    }

    pub(crate) fn push(&mut self, value: T) {
        self.others.push(value);
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        iter::once(&self.root).chain(&self.others)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        iter::once(&mut self.root).chain(&mut self.others)
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        iter::once(self.root).chain(self.others)
    }
}

impl<T> Index<u32> for Graphs<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u32) -> &T {
        match number {
            0 => &self.root,
            _ => &self.others[number as usize - 1],
        }
    }
}

impl<T> IndexMut<u32> for Graphs<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        match number {
            0 => &mut self.root,
            _ => &mut self.others[number as usize - 1],
        }
    }
}
