//! The arguments of a kernel: their bytes, and what they keep alive.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use cudarc::driver::DeviceRepr;
use smallvec::SmallVec;

use super::Kernel;
use crate::{Buffer, Error, Owner, PinnedBuffer, RawMemory, Result};

/// The strictest alignment that a parameter has.
const ALIGN: u32 = 16;

/// How many words of arguments, and how many arguments, there is room for in place.
const FEW: usize = 6;

/// A pointer to each argument.
pub(crate) type Pointers = SmallVec<[*mut c_void; FEW]>;

/// The bytes of a kernel's arguments, and the owners of what they point to.
///
/// What most kernels take fits in place, so that it is one allocation with the operation.
#[derive(Clone)]
pub struct Arguments {
    /// Units of 16 bytes, as many as are used.
    units: SmallVec<[u128; FEW / 2]>,
    owners: SmallVec<[Owner; 3]>,
    /// Of each argument, in bytes.
    sizes: SmallVec<[u32; FEW]>,
    /// The graph of the conditions among them: 0 for none, and [`SEVERAL`].
    conditions_of: u64,
    /// Where the last argument ends, in bytes.
    end: u32,
}

impl Default for Arguments {
    fn default() -> Arguments {
        let mut arguments = MaybeUninit::uninit();
        Arguments::none(&mut arguments);
        // SAFETY: just written.
        unsafe { arguments.assume_init() }
    }
}

/// Where an argument of `size` bytes starts after those that end at `end`. No value of up to 8 bytes is aligned more strictly than to 8.
#[inline(always)]
fn start(end: u32, size: u32) -> u32 {
    let align = if size > 8 { ALIGN } else { 8 };
    // `next_multiple_of` takes four times as long, not knowing that these are powers of two.
    (end + align - 1) & !(align - 1)
}

/// Conditions of several graphs, which is that of none.
const SEVERAL: u64 = u64::MAX;

impl Arguments {
    /// Writes none of them to `place`: field by field, because a whole one would be put together on the stack and copied from there.
    #[inline(always)]
    pub(crate) fn none(place: &mut MaybeUninit<Arguments>) {
        let place = place.as_mut_ptr();
        // SAFETY: the place is valid for writes, and nothing in it needs to be dropped.
        unsafe {
            (&raw mut (*place).units).write(SmallVec::new());
            (&raw mut (*place).owners).write(SmallVec::new());
            (&raw mut (*place).sizes).write(SmallVec::new());
            (&raw mut (*place).conditions_of).write(0);
            (&raw mut (*place).end).write(0);
        }
    }

    /// Adds an argument by value.
    #[inline]
    pub fn value<T: DeviceRepr>(&mut self, value: &T) {
        // SAFETY: the bytes of a `T`, padding included, are only copied, through `MaybeUninit`-like raw memory.
        unsafe { self.bytes((value as *const T).cast(), size_of::<T>()) }
    }

    /// Has the operation keep `owner` alive.
    #[inline]
    pub fn keep(&mut self, owner: Owner) {
        self.owners.push(owner);
    }

    /// There is a condition among them of the graph whose conditions are told by `of`.
    pub(crate) fn sets_condition_of(&mut self, of: u64) {
        self.conditions_of = match self.conditions_of {
            0 => of,
            same if same == of => same,
            _ => SEVERAL,
        };
    }

    /// The graph whose conditions are among them, if any are.
    #[inline]
    pub(crate) fn condition_of(&self) -> Option<u64> {
        (self.conditions_of != 0).then_some(self.conditions_of)
    }

    /// # Safety
    ///
    /// `from` is valid for reads of `size` bytes.
    #[inline(always)]
    pub(crate) unsafe fn bytes(&mut self, from: *const u8, size: usize) {
        let narrow = |bytes| u32::try_from(bytes).expect("arguments of 4 GiB do not exist");
        let start = start(self.end, narrow(size));
        self.end = narrow(start as usize + size);
        let units = self.end.div_ceil(ALIGN) as usize;
        while self.units.len() < units {
            self.units.push(0);
        }
        self.sizes.push(narrow(size));
        // SAFETY: `from` by the caller; the target was just made large enough.
        unsafe {
            let to = self.units.as_mut_ptr().cast::<u8>().add(start as usize);
            ptr::copy_nonoverlapping(from, to, size);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The bytes of argument `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let (start, size) = self.places().nth(index)?;
        // SAFETY: the place lies within the units, whose bytes were all initialized when they were made.
        Some(unsafe {
            std::slice::from_raw_parts(
                self.units.as_ptr().cast::<u8>().add(start as usize),
                size as usize,
            )
        })
    }

    /// Where each argument starts, and its size, in bytes.
    #[inline(always)]
    fn places(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.sizes.iter().scan(0, |end, &size| {
            let start = start(*end, size);
            *end = start + size;
            Some((start, size))
        })
    }

    #[inline]
    pub(crate) fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// Puts pointers to the arguments into `pointers`, as the driver wants them. They hold while `self` stays where it is, unchanged.
    #[inline(always)]
    pub(crate) fn point(&mut self, pointers: &mut Pointers) {
        let units = self.units.as_mut_ptr().cast::<u8>();
        for (start, _) in self.places() {
            // SAFETY: the place lies within the units.
            pointers.push(unsafe { units.add(start as usize) }.cast());
        }
    }

    /// Checks them against what `kernel` takes.
    #[inline]
    pub(crate) fn check(&self, kernel: &Kernel) -> Result<()> {
        let Some(parameters) = kernel.parameters() else {
            return Ok(());
        };
        if parameters.len() != self.len() {
            return Err(Error::ArgumentCount {
                kernel: kernel.name().into(),
                wants: parameters.len(),
                got: self.len(),
            });
        }
        for (index, (parameter, &size)) in parameters.iter().zip(&self.sizes).enumerate() {
            if parameter.size != size as usize {
                return Err(Error::ArgumentSize {
                    kernel: kernel.name().into(),
                    index,
                    wants: parameter.size,
                    got: size as usize,
                });
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Arguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut list = f.debug_list();
        for index in 0..self.len() {
            let bytes = self.get(index).unwrap_or_default();
            match bytes.len() {
                1 | 2 | 4 | 8 => {
                    let value = bytes
                        .iter()
                        .rev()
                        .fold(0u64, |value, &byte| value << 8 | u64::from(byte));
                    list.entry(&format_args!("{value:#x}"));
                }
                size => {
                    list.entry(&format_args!("{size} bytes"));
                }
            }
        }
        list.finish()
    }
}

/// What can be an argument of a kernel: plain data (cudarc's `DeviceRepr`: scalars, and `#[repr(C)]` structures that say so), a
/// [`Buffer`], [`PinnedBuffer`] or [`RawMemory`] or a reference to one, which pass their address and are kept alive.
pub trait KernelArgument {
    /// Adds the argument.
    fn add_to(self, arguments: &mut Arguments);
}

impl<T: DeviceRepr> KernelArgument for T {
    #[inline]
    fn add_to(self, arguments: &mut Arguments) {
        arguments.value(&self);
    }
}

macro_rules! memory {
    ($($memory:ty),+) => {$(
        impl<T> KernelArgument for $memory {
            #[inline]
            fn add_to(self, arguments: &mut Arguments) {
                arguments.value(&self.address());
                arguments.keep(self.into_owner());
            }
        }

        impl<T> KernelArgument for &$memory {
            #[inline]
            fn add_to(self, arguments: &mut Arguments) {
                arguments.value(&self.address());
                arguments.keep(self.owner());
            }
        }
    )+};
}

memory!(Buffer<T>, PinnedBuffer<T>);

impl KernelArgument for RawMemory {
    fn add_to(self, arguments: &mut Arguments) {
        (&self).add_to(arguments);
    }
}

impl KernelArgument for &RawMemory {
    fn add_to(self, arguments: &mut Arguments) {
        arguments.value(&self.address());
        if let Some(owner) = &self.region().owner {
            arguments.keep(owner.clone());
        }
    }
}

/// The arguments of a kernel, in order: a tuple of [`KernelArgument`]s (up to 16), `()` for none, or [`Arguments`] filled by hand.
pub trait KernelArguments {
    /// Adds them to `arguments`.
    fn add_to(self, arguments: &mut Arguments);
}

impl KernelArguments for Arguments {
    fn add_to(self, arguments: &mut Arguments) {
        *arguments = self;
    }
}

impl KernelArguments for () {
    fn add_to(self, _: &mut Arguments) {}
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name: KernelArgument),+> KernelArguments for ($($name,)+) {
            #[inline]
            fn add_to(self, arguments: &mut Arguments) {
                #[allow(non_snake_case, reason = "a type parameter's name serves as its variable's")]
                let ($($name,)+) = self;
                $(KernelArgument::add_to($name, arguments);)+
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
tuples!(A B C D E F G H I J K);
tuples!(A B C D E F G H I J K L);
tuples!(A B C D E F G H I J K L M);
tuples!(A B C D E F G H I J K L M N);
tuples!(A B C D E F G H I J K L M N O);
tuples!(A B C D E F G H I J K L M N O P);
