//! The arguments of a kernel: their bytes, and what they keep alive.

use std::any::TypeId;
use std::arch::asm;
use std::ffi::c_void;
use std::hint::assert_unchecked;
use std::mem::{self, MaybeUninit};
use std::num::NonZero;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use cudarc::driver::DeviceRepr;
use smallvec::SmallVec;

use super::{AnyParam, Kernel, Parameter, digest_of};
use crate::memory::{Region, Source};
use crate::{Buffer, Error, Owner, PinnedBuffer, RawMemory, Result};

/// How many words of arguments there is room for in place.
const FEW: usize = 6;

/// Eight bytes of arguments. What a value has no bytes for is zero.
#[derive(Clone, Copy, PartialEq)]
#[repr(transparent)]
pub(crate) struct Word(u64);

impl Word {
    /// A word that begins with `bytes`, of which there are 8 at most.
    ///
    /// # Safety
    ///
    /// If they are of a number, every byte is initialized.
    #[inline(always)]
    unsafe fn new(bytes: &[MaybeUninit<u8>], is_number: bool) -> Word {
        let mut word = MaybeUninit::new(0u64);
        let start = word.as_mut_ptr();
        // SAFETY: both have so many bytes. The assembly stands for code that gives bytes of
        // padding, which are uninitialized, some value; it leaves the machine's bytes as they are.
        unsafe {
            start
                .cast::<MaybeUninit<u8>>()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len().min(size_of::<Word>()));
            if !is_number {
                asm!("/* {} */", in(reg) start, options(nostack, preserves_flags));
            }
            Word(word.assume_init())
        }
    }
}

/// The bytes of a kernel's arguments, and the owners of what they point to.
///
/// What most kernels take fits in place, so that it is one allocation with the operation.
// What updates of executables read comes first.
#[derive(Clone, Default)]
#[repr(C)]
pub struct Arguments {
    /// Each argument starts at a word.
    words: SmallVec<[Word; FEW]>,
    forms: SmallVec<[Form; 8]>,
    /// Bit i is set if argument i is memory that is owned. [`KEPT`] stands for other owners.
    owned: u64,
    owners: SmallVec<[Owner; 4]>,
    rare: Option<Box<Rare>>,
}

/// What few arguments have. Absent if there is none of it.
#[derive(Clone, Default, PartialEq)]
struct Rare {
    /// The graph of the conditions among them: 0 for none, and [`SEVERAL`].
    conditions_of: u64,
    /// What parameters gave of it.
    used: SmallVec<[Used; 1]>,
}

/// What a parameter gave to arguments.
#[derive(Clone)]
pub(crate) struct Used {
    pub param: Arc<dyn AnyParam>,
    /// It had a value.
    is_bound: bool,
    pub words: Range<u16>,
    owners: Range<u16>,
}

impl Used {
    #[inline]
    fn places(&self) -> (Range<usize>, Range<usize>) {
        let place = |range: &Range<u16>| range.start.into()..range.end.into();
        (place(&self.words), place(&self.owners))
    }
}

impl PartialEq for Used {
    fn eq(&self, other: &Used) -> bool {
        let is_same = Arc::ptr_eq(&self.param, &other.param);
        is_same && (&self.words, &self.owners) == (&other.words, &other.owners)
    }
}

/// The size of an argument in bytes, and whether it is a number.
#[derive(Clone, Copy, PartialEq)]
struct Form(u16);

impl Form {
    /// A number: every byte is initialized.
    const NUMBER: u16 = 1 << 15;

    /// An argument of nearly this size or larger fits no kernel: parameters are 32,764 bytes at
    /// most. Its one word holds its size instead of its bytes.
    const HUGE: u16 = Form::NUMBER - 1;

    #[inline(always)]
    fn is_number(self) -> bool {
        self.0 & Form::NUMBER != 0
    }

    /// A condition, which is a number of eight bytes.
    const CONDITION: u16 = Form::NUMBER | (Form::HUGE - 1);

    #[inline(always)]
    fn size(self) -> u16 {
        match self.0 {
            Form::CONDITION => 8,
            form => form & !Form::NUMBER,
        }
    }

    #[inline(always)]
    fn words(self) -> usize {
        match self.size() {
            Form::HUGE => 1,
            size => usize::from(size).div_ceil(size_of::<Word>()).max(1),
        }
    }
}

/// Something is held that is not known to be the owner of memory among the arguments.
const KEPT: u64 = 1 << 63;

/// Conditions of several graphs, which is that of none.
const SEVERAL: u64 = u64::MAX;

impl Arguments {
    /// Writes none of them to `place`, field by field.
    ///
    /// # Safety
    ///
    /// `place` is valid for writes.
    #[inline(always)]
    pub(crate) unsafe fn write_none(place: *mut Arguments) {
        // SAFETY: by the caller.
        unsafe {
            (&raw mut (*place).rare).write(None);
            (&raw mut (*place).words).write(SmallVec::new());
            (&raw mut (*place).forms).write(SmallVec::new());
            (&raw mut (*place).owned).write(0);
            (&raw mut (*place).owners).write(SmallVec::new());
        }
    }

    /// Adds an argument by value.
    ///
    /// No kernel takes an argument of 32,767 bytes or more. The bytes of such a value are not
    /// kept, and [`KernelOp::new`](crate::KernelOp::new) refuses it.
    #[inline]
    pub fn value<T: DeviceRepr>(&mut self, value: &T) {
        // SAFETY: the reference is to as many bytes, any of which may be uninitialized; those of a
        // number are not.
        unsafe {
            let bytes = slice::from_raw_parts((&raw const *value).cast(), size_of::<T>());
            self.bytes(bytes, is_number::<T>());
        }
    }

    /// Adds an argument of so many words.
    pub(crate) fn words_of(&mut self, words: &[u64]) {
        // SAFETY: the words are initialized, and `MaybeUninit` lies as what it is of.
        unsafe {
            let bytes = slice::from_raw_parts(words.as_ptr().cast(), mem::size_of_val(words));
            self.bytes(bytes, true);
        }
    }

    /// Has the operation keep `owner` alive.
    #[inline]
    pub fn keep(&mut self, owner: Owner) {
        self.owned |= KEPT;
        self.owners.push(owner);
    }

    /// Has the operation keep its kernel loaded: this owner comes last.
    #[inline]
    pub(crate) fn keep_kernel(&mut self, owner: Owner) {
        self.owners.push(owner);
    }

    /// Takes the last argument and the last kernel away. Returns the kernel before.
    pub(crate) fn take_variant(&mut self) -> Option<Kernel> {
        self.forms.pop()?;
        self.words.pop()?;
        self.owners.pop()?;
        Kernel::from_owner(self.owners.last()?)
    }

    /// The handles of the conditions among them.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = u64> + '_ {
        let conditions = self.places().filter(|(_, form)| form.0 == Form::CONDITION);
        conditions.map(|(start, _)| self.words[start].0)
    }

    /// The words of all others.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let others = self.places().filter(|(_, form)| form.0 != Form::CONDITION);
        let words = others.flat_map(|(start, form)| &self.words[start..start + form.words()]);
        words.map(|word| word.0)
    }

    /// Adds memory, and what keeps it alive.
    #[inline]
    fn memory(&mut self, address: u64, owner: Owner) {
        self.value(&address);
        let index = self.forms.len() - 1;
        self.owned |= if index < 63 { 1 << index } else { KEPT };
        self.owners.push(owner);
    }

    /// Adds the value of a parameter.
    pub(crate) fn parameter(&mut self, param: Arc<dyn AnyParam>) {
        let (words, owners) = (self.words.len() as u16, self.owners.len() as u16);
        let is_bound = param.write(self).is_ok();
        let used = Used {
            param,
            is_bound,
            words: words..self.words.len() as u16,
            owners: owners..self.owners.len() as u16,
        };
        self.rare.get_or_insert_default().used.push(used);
    }

    /// What parameters gave.
    #[inline]
    pub(crate) fn used(&self) -> &[Used] {
        self.rare.as_ref().map_or(&[], |rare| &rare.used)
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.forms.clear();
        self.owners.clear();
        self.rare = None;
        self.owned = 0;
    }

    /// The words, and where each argument starts among them.
    pub(crate) fn to_words(&self) -> (impl Iterator<Item = usize>, &[u64]) {
        let starts = self.places().map(|(start, _)| start);
        (starts, self.words())
    }

    /// Takes over the words of arguments of the same sizes.
    #[inline]
    pub(crate) fn copy_words(&mut self, new: &[u64]) {
        for (word, new) in self.words.iter_mut().zip(new) {
            *word = Word(*new);
        }
    }

    /// The words.
    #[inline]
    pub(crate) fn words(&self) -> &[u64] {
        // SAFETY: a word is a number and nothing else.
        unsafe { slice::from_raw_parts(self.words.as_ptr().cast(), self.words.len()) }
    }

    /// Whether they hold nothing.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.owners.is_empty()
    }

    /// The bytes of use number `used`, in whole words.
    pub(crate) fn bytes_used(&self, used: usize) -> usize {
        self.used()[used].words.len() * size_of::<Word>()
    }

    /// The bytes of all, in whole words.
    pub(crate) fn bytes_of_all(&self) -> usize {
        self.words.len() * size_of::<Word>()
    }

    /// Whether use number `used` is the value `new`, and held by the same.
    pub(crate) fn has(&self, used: usize, new: &Arguments) -> bool {
        let (words, owners) = self.used()[used].places();
        let (words, owners) = (&self.words[words], &self.owners[owners]);
        let same = |(own, other): (&Owner, &Owner)| Arc::ptr_eq(own, other);
        words == &new.words[..]
            && owners.len() == new.owners.len()
            && owners.iter().zip(&new.owners).all(same)
    }

    /// Puts the value `new` where use number `used` is. What was held for it goes to `let_go`.
    /// `false` if it has another size.
    #[inline]
    pub(crate) fn patch(
        &mut self,
        used: usize,
        new: &Arguments,
        mut let_go: impl FnMut(Owner),
    ) -> bool {
        let Some(rare) = &mut self.rare else {
            return false;
        };
        let (words, owners) = rare.used[used].places();
        if words.len() != new.words.len() {
            return false;
        }
        for (place, word) in self.words[words].iter_mut().zip(&new.words) {
            *place = *word;
        }
        if owners.len() == new.owners.len() {
            for (place, owner) in self.owners[owners].iter_mut().zip(&new.owners) {
                if !Arc::ptr_eq(place, owner) {
                    let_go(mem::replace(place, owner.clone()));
                }
            }
            return true;
        }
        // Memory that the program vouches for is owned, or not.
        self.owned |= KEPT;
        let (start, difference) = (owners.start, new.owners.len() as i32 - owners.len() as i32);
        self.owners.drain(owners).for_each(let_go);
        self.owners.insert_many(start, new.owners.iter().cloned());
        let move_by = |place: &mut u16| *place = (i32::from(*place) + difference) as u16;
        move_by(&mut rare.used[used].owners.end);
        for later in &mut rare.used[used + 1..] {
            move_by(&mut later.owners.start);
            move_by(&mut later.owners.end);
        }
        true
    }

    /// Adds the driver's handle of a condition, of the graph whose conditions are told by `of`.
    pub(crate) fn condition(&mut self, handle: u64, of: u64) {
        self.words.push(Word(handle));
        self.forms.push(Form(Form::CONDITION));
        let conditions_of = &mut self.rare.get_or_insert_default().conditions_of;
        *conditions_of = match *conditions_of {
            0 => of,
            same if same == of => same,
            _ => SEVERAL,
        };
    }

    /// Gives each condition the handle that `other` says. Returns whether it knows them all.
    pub(crate) fn exchange_conditions(&mut self, other: impl Fn(u64) -> Option<u64>) -> bool {
        let mut all = true;
        let starts = self.places().filter(|(_, form)| form.0 == Form::CONDITION);
        for start in starts.map(|(start, _)| start).collect::<SmallVec<[_; 2]>>() {
            match other(self.words[start].0) {
                Some(handle) => self.words[start] = Word(handle),
                None => all = false,
            }
        }
        all
    }

    /// The graph whose conditions are among them, if any are.
    #[inline]
    pub(crate) fn condition_of(&self) -> Option<u64> {
        let rare = self.rare.as_ref()?;
        (rare.conditions_of != 0).then_some(rare.conditions_of)
    }

    /// Adds an argument by its bytes.
    ///
    /// # Safety
    ///
    /// If it is a number, every byte is initialized.
    #[inline(always)]
    pub(crate) unsafe fn bytes(&mut self, bytes: &[MaybeUninit<u8>], is_number: bool) {
        if bytes.len() >= usize::from(Form::HUGE - 1) {
            self.words.push(Word(bytes.len() as u64));
            self.forms.push(Form(Form::HUGE));
            return;
        }
        let mut rest = bytes;
        loop {
            let (first, after) = rest.split_at(rest.len().min(size_of::<Word>()));
            // SAFETY: by the caller.
            self.words.push(unsafe { Word::new(first, is_number) });
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let number = if is_number { Form::NUMBER } else { 0 };
        self.forms.push(Form(bytes.len() as u16 | number));
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.forms.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// The bytes of argument `index`; `None` for one too large for any kernel.
    ///
    /// The padding of a `#[repr(C)]` structure may be any bytes.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let (start, form) = self.places().nth(index)?;
        (form.size() != Form::HUGE).then(|| &self.bytes_from(start)[..form.size().into()])
    }

    /// The value of argument `index`, if it is a number of up to 8 bytes.
    fn number(&self, index: usize) -> Option<u64> {
        let (_, form) = self.places().nth(index)?;
        let bytes = self.get(index).filter(|bytes| bytes.len() <= 8)?;
        form.is_number().then(|| number(bytes))
    }

    /// The size of argument `index`, in bytes.
    fn size(&self, index: usize) -> usize {
        let (start, form) = self.places().nth(index).expect("there is such an argument");
        match form.size() {
            Form::HUGE => self.words[start].0 as usize,
            size => size.into(),
        }
    }

    /// The word at which each argument starts, and its form.
    #[inline(always)]
    fn places(&self) -> impl Iterator<Item = (usize, Form)> + '_ {
        self.forms.iter().scan(0, |end, &form| {
            let start = *end;
            *end += form.words();
            Some((start, form))
        })
    }

    /// The bytes of the words from number `start` on.
    fn bytes_from(&self, start: usize) -> &[u8] {
        let words = &self.words[start..];
        // SAFETY: a word is eight bytes and nothing else.
        unsafe { slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
    }

    #[inline]
    pub(crate) fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// A number that tells how many owners there are, which arguments are numbers, and which are
    /// memory that is owned, if the arguments [are few](Arguments::are_few), lie in place, and
    /// there are neither conditions nor values of parameters among them.
    #[inline(always)]
    pub(crate) fn outline(&self) -> Option<NonZero<u32>> {
        const MARK: u32 = 1 << 31;
        let owners = u8::try_from(self.owners.len()).ok()?;
        if !self.are_few() || !self.are_in_place() || self.rare.is_some() {
            return None;
        }
        let forms = (0..FEW).zip(&self.forms);
        let numbers = forms.map(|(index, form)| u32::from(form.is_number()) << index);
        let numbers = numbers.fold(0, |all, number| all | number);
        let owned = self.owned as u32 & ((1 << FEW) - 1) | u32::from(self.owned & KEPT != 0) << FEW;
        NonZero::new(MARK | owned << 16 | numbers << 8 | u32::from(owners))
    }

    /// How many owners there were when they had this outline.
    #[inline(always)]
    pub(crate) fn owners_in(outline: u32) -> usize {
        (outline & 0xff) as usize
    }

    /// Whether no list lies elsewhere but that of many owners.
    #[inline(always)]
    fn are_in_place(&self) -> bool {
        let has_many = self.owners.len() > self.owners.inline_size();
        !self.words.spilled() && !self.forms.spilled() && self.owners.spilled() == has_many
    }

    /// Whether there are as many words, arguments and owners as in `other`, and in both neither
    /// conditions nor values of parameters.
    pub(crate) fn are_like(&self, other: &Arguments) -> bool {
        self.forms.len() == other.forms.len()
            && self.words.len() == other.words.len()
            && self.owners.len() == other.owners.len()
            && self.rare.is_none()
            && other.rare.is_none()
    }

    /// As [`has_owners_of`](Arguments::has_owners_of), where both have `count` owners. So fewer
    /// cache lines are looked at.
    ///
    /// # Safety
    ///
    /// Both have so many, and had an [outline](Arguments::outline) before
    /// [`keep_kernel`](Arguments::keep_kernel), which was called once on each since.
    #[inline(always)]
    pub(crate) unsafe fn has_owners_of_alike(&self, other: &Arguments, count: usize) -> bool {
        if count > self.owners.inline_size() {
            return self.has_many_owners_of(other);
        }
        // SAFETY: by the caller: so few lie in place.
        let (own, other) = unsafe {
            assert_unchecked(!self.owners.spilled() && !other.owners.spilled());
            let own = slice::from_raw_parts(self.owners.as_ptr(), count);
            (own, slice::from_raw_parts(other.owners.as_ptr(), count))
        };
        let mut owners = own.iter().zip(other);
        owners.all(|(own, other)| Arc::ptr_eq(own, other))
    }

    #[cold]
    #[inline(never)]
    fn has_many_owners_of(&self, other: &Arguments) -> bool {
        self.has_owners_of(other)
    }

    /// As [`assign`](Arguments::assign), without asking where the values lie, and without the rest:
    /// that is the same in both.
    ///
    /// # Safety
    ///
    /// Both have the same [outline](Arguments::outline) and are of the same kernel.
    #[inline(always)]
    pub(crate) unsafe fn assign_in_place(&mut self, other: &Arguments) {
        // SAFETY: by the caller. Both pointers are taken before the first write; otherwise the
        // compiler would ask again where the lists lie.
        unsafe {
            assert_unchecked(!self.words.spilled() && !other.words.spilled());
            let (to, from) = (self.words.as_mut_ptr(), other.words.as_ptr());
            copy_all::<Word, FEW>(to, from);
        }
    }

    /// Whether the owners are those of `other`, of which there are as many.
    #[inline(always)]
    pub(crate) fn has_owners_of(&self, other: &Arguments) -> bool {
        let mut owners = self.owners.iter().zip(&other.owners);
        owners.all(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// Takes over the values of `other`, which [are like](Arguments::are_like) these and have the
    /// same owners.
    pub(crate) fn assign(&mut self, other: &Arguments) {
        self.words.copy_from_slice(&other.words);
        self.forms.copy_from_slice(&other.forms);
        self.owned = other.owned;
    }

    /// Whether both are the same bytes, and the same of it is owned. What else they keep is the
    /// same too: nothing tells what it keeps alive.
    #[inline(always)]
    pub(crate) fn is_same(&self, other: &Arguments) -> bool {
        self.forms.len() == other.forms.len()
            && self.words.len() == other.words.len()
            && self.owners.len() == other.owners.len()
            && self.rare == other.rare
            && self.words == other.words
            && self.forms == other.forms
            && self.owned == other.owned
            && (self.owned & KEPT == 0 || self.has_owners_of(other))
    }

    /// A number that tells them from most others.
    pub(crate) fn digest(&self) -> u64 {
        digest_of(self.words.iter().map(|word| word.0))
    }

    /// Whether there are few and each is one word.
    #[inline(always)]
    pub(crate) fn are_few(&self) -> bool {
        self.words.len() == self.len() && self.len() <= FEW
    }

    /// Where the words are, if they [are few](Arguments::are_few).
    #[inline(always)]
    pub(crate) fn few_words(&self) -> Option<*const Word> {
        self.are_few().then(|| self.words.as_ptr())
    }

    /// Where the words are, without asking.
    ///
    /// # Safety
    ///
    /// They have an [outline](Arguments::outline).
    #[inline(always)]
    pub(crate) unsafe fn words_in_place(&self) -> *const Word {
        // SAFETY: by the caller.
        unsafe { assert_unchecked(!self.words.spilled()) };
        self.words.as_ptr()
    }

    /// A pointer to each of the arguments whose words these are, as the driver wants them, if they
    /// [are few](Arguments::are_few). It copies what they lead to, by size, so a word's alignment
    /// is enough.
    #[inline(always)]
    pub(crate) fn pointers_to(words: *const Word) -> [*mut c_void; FEW] {
        std::array::from_fn(|word| words.wrapping_add(word).cast_mut().cast())
    }

    /// A pointer to each argument, however many there are.
    #[cold]
    #[inline(never)]
    pub(crate) fn pointers(&self) -> Vec<*mut c_void> {
        let words = self.words.as_ptr();
        let pointers = self.places().map(|(start, _)| words.wrapping_add(start));
        pointers.map(|word| word.cast_mut().cast()).collect()
    }

    /// Checks them against what `kernel` takes.
    #[inline]
    pub(crate) fn check(&self, kernel: &Kernel) -> Result<()> {
        if let Some(rare) = &self.rare
            && let Some(used) = rare.used.iter().find(|used| !used.is_bound)
        {
            return Err(Error::Unbound {
                name: used.param.name().into(),
            });
        }
        let parameters = kernel.parameters();
        let fits = |(parameter, form): (&Parameter, &Form)| {
            parameter.size == form.size().into() && form.size() != Form::HUGE
        };
        if parameters.len() == self.len() && parameters.iter().zip(&self.forms).all(fits) {
            return Ok(());
        }
        Err(self.why_not(kernel))
    }

    #[cold]
    fn why_not(&self, kernel: &Kernel) -> Error {
        let (parameters, kernel) = (kernel.parameters(), kernel.name().into());
        let (wants, got) = (parameters.len(), self.len());
        let differs = |&index: &usize| parameters[index].size != self.size(index);
        match (0..wants.min(got)).find(differs) {
            Some(index) if wants == got => Error::ArgumentSize {
                kernel,
                index,
                wants: parameters[index].size,
                got: self.size(index),
            },
            _ => Error::ArgumentCount { kernel, wants, got },
        }
    }
}

/// Compares arguments one by one with those of an operation, without holding anything for them.
pub struct Matching<'a> {
    forms: &'a [Form],
    words: &'a [Word],
    /// Bit 0 is set if the next argument is memory that is owned.
    owned: u64,
}

impl<'a> Matching<'a> {
    /// Compares with `arguments`.
    #[inline(always)]
    pub(crate) fn with(arguments: &'a Arguments) -> Matching<'a> {
        Matching {
            forms: &arguments.forms,
            words: &arguments.words,
            owned: arguments.owned,
        }
    }

    /// Whether all were compared.
    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        // Nothing else is kept.
        self.forms.is_empty() && self.owned == 0
    }

    /// Whether the next argument is this number.
    #[inline(always)]
    fn value<T: DeviceRepr>(&mut self, value: &T) -> bool {
        let is_owned = self.owned & 1 != 0;
        self.next(value) && !is_owned
    }

    #[inline(always)]
    fn next<T: DeviceRepr>(&mut self, value: &T) -> bool {
        // What has padding, or takes several words, is compared as an operation.
        if size_of::<T>() > size_of::<Word>() || size_of::<T>() == 0 || !is_number::<T>() {
            return false;
        }
        // SAFETY: the reference is to as many bytes, and those of a number are initialized.
        let word = unsafe {
            let bytes = slice::from_raw_parts((&raw const *value).cast(), size_of::<T>());
            Word::new(bytes, true)
        };
        let ([form, forms @ ..], [own, words @ ..]) = (self.forms, self.words) else {
            return false;
        };
        (self.forms, self.words) = (forms, words);
        // The bit for other owners stays set until the end, which no argument moves to bit 0.
        self.owned = (self.owned & KEPT) | ((self.owned & !KEPT) >> 1);
        *own == word && form.0 == size_of::<T>() as u16 | Form::NUMBER
    }

    /// Whether the next argument is memory at this address, and owned.
    #[inline(always)]
    fn memory(&mut self, address: u64) -> bool {
        let is_owned = self.owned & 1 != 0;
        self.next(&address) && is_owned
    }
}

/// Copies `N` values, any of which may be uninitialized. A copy of fixed size is a few
/// instructions, without a call.
///
/// # Safety
///
/// Both point to room for `N` values, and do not overlap.
#[inline(always)]
unsafe fn copy_all<T: Copy, const N: usize>(to: *mut T, from: *const T) {
    // SAFETY: by the caller.
    unsafe {
        to.cast::<[MaybeUninit<T>; N]>()
            .write(from.cast::<[MaybeUninit<T>; N]>().read());
    }
}

/// The number that has these bytes, of which there are 8 at most.
fn number(bytes: &[u8]) -> u64 {
    let mut value = [0; 8];
    value[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(value)
}

/// Whether `T` is one of Rust's numbers, which have no padding.
#[inline(always)]
fn is_number<T>() -> bool {
    macro_rules! is_one_of {
        ($($number:ty),+) => { $(typeid::of::<T>() == TypeId::of::<$number>())||+ };
    }
    is_one_of!(
        u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, bool
    )
}

impl std::fmt::Debug for Arguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut list = f.debug_list();
        for index in 0..self.len() {
            match self.number(index) {
                Some(value) => list.entry(&format_args!("{value:#x}")),
                None => list.entry(&format_args!("{} bytes", self.size(index))),
            };
        }
        list.finish()
    }
}

/// What can be an argument of a kernel: plain data (cudarc's `DeviceRepr`: scalars, and
/// `#[repr(C)]` structures that say so), a [`Buffer`], [`PinnedBuffer`] or [`RawMemory`] or a
/// reference to one, which pass their address and are kept alive.
pub trait KernelArgument {
    /// Adds the argument.
    fn add_to(self, arguments: &mut Arguments);

    /// The memory that it is.
    #[doc(hidden)]
    fn region(&self) -> Option<Region> {
        None
    }

    /// Whether it is the next of the arguments that are compared. `false` where that is not told.
    #[doc(hidden)]
    #[inline(always)]
    fn matches(&self, _: &mut Matching<'_>) -> bool {
        false
    }
}

impl<T: DeviceRepr> KernelArgument for T {
    #[inline(always)]
    fn matches(&self, arguments: &mut Matching<'_>) -> bool {
        arguments.value(self)
    }

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
                arguments.memory(self.address(), self.into_owner());
            }

            fn region(&self) -> Option<Region> {
                Some(self.source())
            }

            #[inline(always)]
            fn matches(&self, arguments: &mut Matching<'_>) -> bool {
                arguments.memory(self.address())
            }
        }

        impl<T> KernelArgument for &$memory {
            #[inline(always)]
            fn matches(&self, arguments: &mut Matching<'_>) -> bool {
                arguments.memory(self.address())
            }

            #[inline]
            fn add_to(self, arguments: &mut Arguments) {
                arguments.memory(self.address(), self.owner());
            }
        }
    )+};
}

memory!(Buffer<T>, PinnedBuffer<T>);

impl KernelArgument for RawMemory {
    fn add_to(self, arguments: &mut Arguments) {
        (&self).add_to(arguments);
    }

    fn region(&self) -> Option<Region> {
        Some(self.source())
    }
}

impl KernelArgument for &RawMemory {
    fn add_to(self, arguments: &mut Arguments) {
        match &self.region().owner {
            Some(owner) => arguments.memory(self.address(), owner.clone()),
            None => arguments.value(&self.address()),
        }
    }
}

/// The arguments of a kernel, in order: a tuple of [`KernelArgument`]s (up to 16), `()` for none,
/// or [`Arguments`] filled by hand.
pub trait KernelArguments {
    /// Adds them to `arguments`.
    fn add_to(self, arguments: &mut Arguments);

    /// Whether they are those that are compared. `false` where that is not told.
    #[doc(hidden)]
    #[inline(always)]
    fn matches(&self, _: &mut Matching<'_>) -> bool {
        false
    }
}

impl KernelArguments for Arguments {
    fn add_to(self, arguments: &mut Arguments) {
        *arguments = self;
    }
}

macro_rules! tuples {
    () => {
        impl KernelArguments for () {
            fn add_to(self, _: &mut Arguments) {}

            #[inline(always)]
            fn matches(&self, _: &mut Matching<'_>) -> bool {
                true
            }
        }
    };
    ($first:ident $($rest:ident)*) => {
        impl<$first: KernelArgument, $($rest: KernelArgument),*> KernelArguments
            for ($first, $($rest,)*)
        {
            #[inline]
            fn add_to(self, arguments: &mut Arguments) {
                #[allow(non_snake_case, reason = "a type parameter's name serves as its variable's")]
                let ($first, $($rest,)*) = self;
                KernelArgument::add_to($first, arguments);
                $(KernelArgument::add_to($rest, arguments);)*
            }

            #[inline(always)]
            fn matches(&self, arguments: &mut Matching<'_>) -> bool {
                #[allow(non_snake_case, reason = "a type parameter's name serves as its variable's")]
                let ($first, $($rest,)*) = self;
                $first.matches(arguments) $(&& $rest.matches(arguments))*
            }
        }

        tuples!($($rest)*);
    };
}

tuples!(A B C D E F G H I J K L M N O P);
