//! `cp.async.bulk.tensor`, `cp.reduce.async.bulk.tensor` and `tensormap.replace`.

use super::super::block::Block;
use super::super::bulk::{Place, Who, in_block};
use super::super::context::{BlockContext, CONTINUE, Status, ThreadContext};
use super::super::launch::FaultKind;
use super::super::reduce::{self, Element, Reduction};
use super::boxes::{self, Run};
use super::map::{DataType, Interleave, MOST_RANK, SIZE, Shape, Swizzle, TensorMap};
use crate::jit::runtime::runtime;
use crate::memory;

/// What a copy is told: fields of the number that compiled code passes.
pub(crate) mod how {
    /// The dimensions that the instruction names.
    pub const RANK: u32 = 0;
    /// It takes columns of pixels.
    pub const COLUMNS: u32 = 1 << 4;
    /// It goes to global memory.
    pub const STORES: u32 = 1 << 5;
    /// It reduces there.
    pub const REDUCES: u32 = 1 << 6;
    /// It goes to all blocks of a mask.
    pub const MULTICAST: u32 = 1 << 7;
    /// Where the [`Reduction`](super::Reduction) is.
    pub const REDUCTION: u32 = 8;
    /// Where the [`Place`](super::Place) of its destination in shared memory is.
    pub const TO: u32 = 12;
}

/// The alignment of boxes in shared memory.
const BOX_ALIGN: u64 = 128;
/// The alignment of a map.
const MAP_ALIGN: u64 = 64;

/// A copy of a box.
struct Copy<'a> {
    how: u32,
    map: TensorMap,
    at: [i32; MOST_RANK],
    offsets: [u16; 3],
    /// Where the box is in shared memory.
    shared: u64,
    object: u64,
    mask: u32,
    who: &'a Who,
}

/// Reads the map at a generic address.
fn map_at(who: Who, address: u64) -> Result<TensorMap, Status> {
    let at = who.end(Place::Generic, address, MAP_ALIGN, SIZE as u64, false)?;
    // SAFETY: the range was checked for the bytes of a map.
    let bytes = unsafe { at.cast::<[u8; SIZE]>().read_unaligned() };
    let wrong = |kind, what| Err(who.fault(kind, (address, SIZE as u64), what));
    match TensorMap::of_bytes(&bytes).filter(TensorMap::is_sound) {
        Some(map) if map.address.is_multiple_of(16) => Ok(map),
        Some(_) => wrong(
            FaultKind::Misaligned,
            "the tensor's address is no multiple of 16",
        ),
        None => wrong(
            FaultKind::IllegalInstruction,
            "what is there is no tensor map",
        ),
    }
}

/// The bits of what is outside of a tensor.
fn fill(map: &TensorMap) -> [u8; 8] {
    use DataType::*;
    match (map.nan, map.data) {
        (false, _) => [0; 8],
        // As an H200 fills halves.
        (true, Float16 | Bfloat16) => [0xf7, 0x7f, 0xf7, 0x7f, 0xf7, 0x7f, 0xf7, 0x7f],
        (true, Float64) => [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        (true, _) => [0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f],
    }
}

/// What becomes of an element on its way to shared memory.
fn convert(data: DataType, bytes: &mut [u8]) {
    let singles = |bytes: &mut [u8], change: &dyn Fn(u32) -> u32| {
        for word in bytes.chunks_exact_mut(4) {
            let bits = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            word.copy_from_slice(&change(bits).to_le_bytes());
        }
    };
    // To the nearest that is left with 10 bits of fraction.
    let rounded = |bits: u32| match bits & 0x7fff_ffff {
        0..=0x7f80_0000 => (bits + 0x1000) & !0x1fff,
        _ => (bits | 0x40_0000) & !0x1fff,
    };
    match data {
        DataType::Tfloat32 | DataType::Tfloat32Ftz => singles(bytes, &rounded),
        _ => {}
    }
}

impl Copy<'_> {
    fn run(&self) -> Result<(), Status> {
        let (map, who) = (&self.map, *self.who);
        let columns = self.how & how::COLUMNS != 0;
        let is_columns = matches!(map.shape, Shape::Im2col { .. });
        if u32::from(map.rank) != self.how >> how::RANK & 15 || columns != is_columns {
            let what = "the tensor map is of another kind than the instruction";
            return Err(who.fault(FaultKind::IllegalInstruction, (0, 0), what));
        }
        if map.interleave != Interleave::None {
            let what = "copies of interleaved tensors are not supported";
            return Err(who.fault(FaultKind::LaunchFailure, (0, 0), what));
        }
        if !boxes::begins(map, &self.at) {
            let what = "a box begins at no multiple of 16 bytes, or outside of its bounds";
            return Err(who.fault(FaultKind::IllegalInstruction, (0, 0), what));
        }
        match self.how & how::STORES {
            0 => self.load(who),
            _ => self.store(who),
        }?;
        let block = Block::of(who.block);
        block.events.set(block.events.get() + 1);
        Ok(())
    }

    /// Where bytes of the box lie that is at an offset of shared memory: pieces of at most 16 bytes
    /// where they are swizzled.
    fn pieces(&self, offset: u64, length: u64, mut piece: impl FnMut(u64, u64, usize)) {
        let swizzle = self.map.swizzle;
        if swizzle == Swizzle::None {
            return piece(offset, 0, length as usize);
        }
        let mut done = 0;
        while done < length {
            let at = offset + done;
            let count = (16 - at % 16).min(length - done);
            piece(swizzle.place(at), done, count as usize);
            done += count;
        }
    }

    /// The bytes of shared memory that the box may reach: swizzled, it reaches all of its lines.
    fn span(&self) -> u64 {
        let span = boxes::span(&self.map);
        match self.map.swizzle {
            Swizzle::None => span,
            _ => span.next_multiple_of(BOX_ALIGN),
        }
    }

    fn load(&self, who: Who) -> Result<(), Status> {
        let multicast = self.how & how::MULTICAST != 0;
        let place = Place::of(self.how >> how::TO & 3);
        let size = boxes::size(&self.map);
        let fill = fill(&self.map);
        for rank in who.ranks(multicast.then_some(self.mask)) {
            let to = who.end(
                place,
                in_block(self.shared, rank),
                BOX_ALIGN,
                self.span(),
                true,
            )?;
            // Swizzling goes by the offset in the block's shared memory.
            let start = self.shared & 0xff_ffff;
            let mut row = vec![];
            boxes::each::<Status>(&self.map, &self.at, &self.offsets, |run: Run| {
                row.clear();
                row.extend(fill.iter().cycle().take(run.length as usize));
                if run.inside > 0 {
                    let from = who.end(Place::Generic, run.address, 1, run.inside, false)?;
                    let into = &mut row[run.before as usize..][..run.inside as usize];
                    // SAFETY: the range was checked for as many bytes as `into` has, which is the
                    // copy's own.
                    unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
                    convert(self.map.data, into);
                }
                self.pieces(start + run.offset, run.length, |at, done, count| {
                    let at = at.wrapping_sub(start) as isize;
                    let bytes = &row[done as usize..][..count];
                    // SAFETY: `to` was checked for all lines of the box, and swizzling leaves bytes
                    // in the line of 128 bytes that they are in.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.offset(at), count) };
                });
                Ok(())
            })?;
            who.complete(place, in_block(self.object, rank), size)?;
        }
        Ok(())
    }

    fn store(&self, who: Who) -> Result<(), Status> {
        if !boxes::goes_back(&self.map, &self.at) {
            let what = "a box that is stored begins before the tensor, or has pixels outside of it";
            return Err(who.fault(FaultKind::IllegalInstruction, (0, 0), what));
        }
        let from = who.end(Place::Block, self.shared, BOX_ALIGN, self.span(), false)?;
        let reduction =
            (self.how & how::REDUCES != 0).then(|| Reduction::of(self.how >> how::REDUCTION & 15));
        let element = reduction.and_then(|reduction| element(self.map.data, reduction));
        if reduction.is_some() && element.is_none() {
            let what = "the reduction does not take elements of the tensor's type";
            return Err(who.fault(FaultKind::IllegalInstruction, (0, 0), what));
        }
        let mut row = vec![];
        boxes::each(&self.map, &self.at, &self.offsets, |run: Run| {
            if run.inside == 0 {
                return Ok(());
            }
            let inside = stored(&run);
            let to = who.end(Place::Generic, run.address, 1, inside, true)?;
            row.clear();
            row.resize(run.length as usize, 0u8);
            self.pieces(self.shared + run.offset, run.length, |at, done, count| {
                let at = at.wrapping_sub(self.shared) as isize;
                let into = &mut row[done as usize..][..count];
                // SAFETY: as in `load`.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.offset(at), into.as_mut_ptr(), count);
                };
            });
            let bytes = &row[run.before as usize..][..inside as usize];
            match reduction.zip(element) {
                // SAFETY: the range was checked for as many bytes.
                None => unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                },
                Some((reduction, element)) => {
                    for at in (0..bytes.len()).step_by(element.size()) {
                        // SAFETY: as above; a tensor's address and strides are multiples of 16, so
                        // that its elements are aligned.
                        unsafe {
                            reduce::reduce(reduction, element, to.add(at), bytes[at..].as_ptr())
                        };
                    }
                }
            }
            Ok(())
        })
    }
}

/// How many bytes of a run a store takes: an H200 stores whole 16 bytes, also where the tensor ends
/// within them. Its allocations have room for that; where ours has none, the rest is left out.
fn stored(run: &Run) -> u64 {
    let whole = run.inside.next_multiple_of(16).min(run.length - run.before);
    let has_room = memory::find(run.address).is_some_and(|found| {
        let from = run.address - found.base;
        from <= found.size && whole <= found.size - from
    });
    if has_room { whole } else { run.inside }
}

/// What is reduced of a tensor of this type; `None` where the reduction does not take it, as an
/// H200 answers.
fn element(data: DataType, reduction: Reduction) -> Option<Element> {
    use DataType::*;
    let bits = matches!(reduction, Reduction::And | Reduction::Or | Reduction::Xor);
    let element = match data {
        Uint8 | Uint16 => return None,
        Int32 if bits => Element::U32,
        Uint32 => Element::U32,
        Int32 => Element::S32,
        Uint64 => Element::U64,
        Int64 => Element::S64,
        Float16 => Element::F16,
        Bfloat16 => Element::Bf16,
        Float64 => Element::F64,
        Float32 | Tfloat32 => Element::WholeF32,
        Float32Ftz | Tfloat32Ftz => Element::F32,
    };
    reduction.takes(element).then_some(element)
}

/// Replaces a field of a map: the number that compiled code passes. A field keeps the bits that a
/// device's map has for it, of a size one less than it is.
fn replace(map: &mut TensorMap, field: u32, ord: u32, value: u64) -> Option<()> {
    let number = value as u32;
    let ord = ord as usize;
    let less = number.wrapping_sub(1);
    match field {
        0 => map.address = value,
        1 => {
            let rank = (number & 7) as u8 + 1;
            map.rank = Some(rank).filter(|rank| usize::from(*rank) <= MOST_RANK)?;
        }
        2 => match &mut map.shape {
            Shape::Tile(size) => *size.get_mut(ord)? = (less & 0xff) as u16 + 1,
            Shape::Im2col { .. } => return None,
        },
        3 => *map.dims.get_mut(ord)? = u64::from(less) + 1,
        4 => *map.strides.get_mut(ord)? = value & 0xff_ffff_fff0,
        5 => *map.steps.get_mut(ord)? = (less & 7) as u8 + 1,
        6 => map.data = DataType::of_kernels(number)?,
        7 => map.interleave = Interleave::of(number)?,
        8 => map.swizzle = Swizzle::of(number)?,
        9 => map.nan = number != 0,
        _ => return None,
    }
    Some(())
}

runtime! {
    /// A copy of a box by the map at a generic address: see [`how`]. `at` has five coordinates, and
    /// three offsets of pixels. `shared` is where the box is in shared memory. The answer is a
    /// status.
    TENSOR_COPY = fn tensor_copy(
        thread: *mut ThreadContext, block: *mut BlockContext, how: u32, map: u64, at: *const u32, shared: u64,
        object: u64, mask: u32,
    ) -> u32 {
        let who = Who { thread, block };
        // SAFETY: compiled code passes eight words on its stack.
        let words = unsafe { at.cast::<[u32; 8]>().read() };
        let copy = map_at(who, map).map(|map| Copy {
            how,
            map,
            at: std::array::from_fn(|at| words[at] as i32),
            offsets: std::array::from_fn(|at| words[MOST_RANK + at] as u16),
            shared,
            object,
            mask,
            who: &who,
        });
        copy.and_then(|copy| copy.run()).err().unwrap_or(CONTINUE)
    }

    /// `tensormap.replace` of a field, and of its element `ord` if it has several, in the map at an
    /// address in a [`Place`]. The answer is a status.
    TENSOR_REPLACE = fn tensor_replace(
        thread: *mut ThreadContext, block: *mut BlockContext, place: u32, map: u64, field: u32, ord: u32, value: u64,
    ) -> u32 {
        let who = Who { thread, block };
        let at = match who.end(Place::of(place), map, MAP_ALIGN, SIZE as u64, true) {
            Ok(at) => at.cast::<[u8; SIZE]>(),
            Err(status) => return status,
        };
        // SAFETY: the range was checked for the bytes of a map.
        let bytes = unsafe { at.read_unaligned() };
        let changed = TensorMap::of_bytes(&bytes).and_then(|mut map| {
            replace(&mut map, field, ord, value)?;
            Some(map)
        });
        let Some(changed) = changed else {
            let what = "no tensor map, or none with such a field";
            return who.fault(FaultKind::IllegalInstruction, (map, SIZE as u64), what);
        };
        // SAFETY: as above.
        unsafe { at.write_unaligned(changed.to_bytes()) };
        CONTINUE
    }
}
