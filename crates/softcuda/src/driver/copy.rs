//! Copies: which memory they touch is checked when they are called, they run in stream order.

use std::sync::Arc;

use super::memory::{Place, copied_place, device_place, place};
use super::reach::Reacher;
use super::stream::Stream;
use super::{CUresult, Result, array, capture, device, graph};
use crate::memory::access::{self, Rows};
use crate::memory::{Device, was_unmapped};

/// The most that is read from pageable memory during the call and written later; a larger copy is
/// waited for.
const STAGED: u64 = 64 << 10;

/// When a copy's call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// When the copy has ended, if it touches the host's memory; otherwise when it has been queued.
    Done,
    /// When it has been queued, if the program's pageable memory is not touched after that.
    Queued,
}

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Memory of the host's.
    Host(u64),
    /// Memory that the device reaches.
    Device(u64),
    /// Any memory: the address says whose.
    Unified(u64),
    /// An array, by handle.
    Array(usize),
}

impl End {
    /// Where it is; 0 for an array.
    pub fn address(self) -> u64 {
        match self {
            End::Host(address) | End::Device(address) | End::Unified(address) => address,
            End::Array(_) => 0,
        }
    }
}

/// One end of a copy of rows: where, and how its rows lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    /// The memory.
    pub end: End,
    /// Offset in a row, in bytes.
    pub x: u64,
    /// Rows before the first.
    pub y: u64,
    /// Slices before the first.
    pub z: u64,
    /// From one row to the next, in bytes.
    pub pitch: u64,
    /// Rows in a slice.
    pub height: u64,
}

/// How much is copied: bytes of a row, rows, slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub width: u64,
    pub height: u64,
    pub depth: u64,
}

impl Extent {
    /// One row.
    fn line(width: u64) -> Self {
        Extent {
            width,
            height: 1,
            depth: 1,
        }
    }

    fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    fn bytes(&self) -> u64 {
        self.width
            .saturating_mul(self.height)
            .saturating_mul(self.depth)
    }
}

/// A copy as the program asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// Bytes.
    Line {
        /// To where.
        target: End,
        /// From where.
        source: End,
        /// How many.
        size: u64,
    },
    /// Rows.
    Rows {
        /// To where.
        target: Side,
        /// From where.
        source: Side,
        /// How much.
        extent: Extent,
    },
}

impl Request {
    /// The copy, checked, of memory that a device's copies reach; `None` where there is nothing to
    /// copy.
    pub fn check(&self, device: Device) -> Result<Option<Copy>> {
        self.check_between([device; 2])
    }

    /// As [`check`](Self::check), with a device for the target and one for the source.
    fn check_between(&self, devices: [Device; 2]) -> Result<Option<Copy>> {
        let [to, from] = devices.map(Reacher::Copies);
        match *self {
            Request::Line {
                target,
                source,
                size,
            } => Copy::bytes((target, to), (source, from), size),
            Request::Rows {
                target,
                source,
                extent,
            } => Copy::rows((target, to), (source, from), extent),
        }
    }

    /// Both ends and how much, as rows.
    pub fn as_rows(&self) -> (Side, Side, Extent) {
        let side = |end| Side {
            end,
            x: 0,
            y: 0,
            z: 0,
            pitch: 0,
            height: 0,
        };
        match *self {
            Request::Line {
                target,
                source,
                size,
            } => (side(target), side(source), Extent::line(size)),
            Request::Rows {
                target,
                source,
                extent,
            } => (target, source, extent),
        }
    }

    /// Puts the copy behind all that the stream was given; in a capture it becomes a node.
    pub fn run(self, stream: &Arc<Stream>, until: Until) -> Result {
        let device = stream.context().device();
        self.run_between([device; 2], stream, until)
    }

    /// As [`run`](Self::run), of a copy between contexts: a device for the target and one for the
    /// source.
    pub fn run_between(self, devices: [Device; 2], stream: &Arc<Stream>, until: Until) -> Result {
        if stream.is_capturing() {
            if until == Until::Done {
                capture::refuse(stream)?;
            }
            return capture::copy(stream, self);
        }
        match self.check_between(devices)? {
            Some(copy) => copy.run(stream, until),
            None => Ok(()),
        }
    }
}

/// A copy that was checked.
#[derive(Clone)]
pub(crate) struct Copy {
    target: Rows,
    target_place: Place,
    source: Rows,
    source_place: Place,
    extent: Extent,
}

/// A line of bytes has no rows behind it.
fn line(start: u64) -> Rows {
    Rows {
        start,
        pitch: 0,
        slice: 0,
    }
}

fn locate(end: End, size: u64, by: Reacher) -> Result<(u64, Place)> {
    match end {
        End::Host(0) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        End::Host(address) | End::Unified(address) => Ok((address, place(address, size, by)?)),
        End::Device(address) => Ok((address, copied_place(address, size, by)?)),
        End::Array(_) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

impl Copy {
    /// A copy of bytes; `None` where there are none to copy.
    fn bytes(target: (End, Reacher), source: (End, Reacher), size: u64) -> Result<Option<Self>> {
        if size == 0 {
            return Ok(None);
        }
        let (target, target_place) = locate(target.0, size, target.1)?;
        let (source, source_place) = locate(source.0, size, source.1)?;
        let extent = Extent::line(size);
        Ok(Some(Copy {
            target: line(target),
            target_place,
            source: line(source),
            source_place,
            extent,
        }))
    }

    /// A copy of rows; `None` where there are none to copy.
    fn rows(
        target: (Side, Reacher),
        source: (Side, Reacher),
        extent: Extent,
    ) -> Result<Option<Self>> {
        if extent.is_empty() {
            return Ok(None);
        }
        let (target, target_place) = target.0.locate(&extent, target.1)?;
        let (source, source_place) = source.0.locate(&extent, source.1)?;
        Ok(Some(Copy {
            target,
            target_place,
            source,
            source_place,
            extent,
        }))
    }

    /// Whose memory it writes and reads.
    pub fn places(&self) -> (Place, Place) {
        (self.target_place, self.source_place)
    }

    /// Puts the copy behind all that the stream was given.
    pub fn run(self, stream: &Arc<Stream>, until: Until) -> Result {
        graph::memory::check_reach(self.target.start)?;
        graph::memory::check_reach(self.source.start)?;
        let on_device = self.target_place == Place::Device && self.source_place == Place::Device;
        let reads_pageable = self.source_place == Place::Pageable;
        let wait = match until {
            Until::Done => !on_device,
            Until::Queued => {
                self.target_place == Place::Pageable
                    || reads_pageable && self.extent.bytes() > STAGED
            }
        };
        if wait {
            stream.submit_sized(self.extent.bytes(), move || self.execute())?;
            return stream.synchronize();
        }
        if reads_pageable {
            return self.run_staged(stream);
        }
        stream.submit_sized(self.extent.bytes(), move || self.execute())
    }

    /// Reads the source now.
    fn run_staged(self, stream: &Arc<Stream>) -> Result {
        stream.context().check()?;
        let Extent { width, height, .. } = self.extent;
        let mut staged = vec![0u8; self.extent.bytes() as usize];
        let packed = move |start: u64| Rows {
            start,
            pitch: width,
            slice: width * height,
        };
        // SAFETY: the source is the program's memory, which it gave for this call; the target is
        // the vector.
        unsafe { self.copy_rows(packed(staged.as_mut_ptr() as u64), self.source) };
        stream.submit_sized(self.extent.bytes(), move || {
            // SAFETY: the target was checked to be allocations in the arena, which stays mapped, or
            // registered memory, which is not unregistered before this has run.
            unsafe { self.copy_rows(self.target, packed(staged.as_ptr() as u64)) };
            Ok(())
        })
    }

    /// Copies, on the calling thread, some time after the call: memory of the device's may have
    /// been freed since.
    pub fn execute_late(&self) -> Result {
        let ends = [
            (self.target, self.target_place),
            (self.source, self.source_place),
        ];
        for (rows, place) in ends {
            let Extent {
                width,
                height,
                depth,
            } = self.extent;
            let size = (depth - 1) * rows.slice + (height - 1) * rows.pitch + width;
            if place != Place::Pageable && device_place(rows.start, size, Reacher::Anybody).is_err()
            {
                return Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            }
        }
        self.execute()
    }

    /// Copies, on the calling thread.
    fn execute(&self) -> Result {
        if was_unmapped(self.target.start) || was_unmapped(self.source.start) {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        // SAFETY: both ranges were checked to be allocations in the arena, which stays mapped, or
        // registered memory, which is mapped, and not unregistered before this has run; or they
        // are the program's memory, which it gave for a call that waits, or for the launches of a
        // graph.
        unsafe { self.copy_rows(self.target, self.source) };
        Ok(())
    }

    /// # Safety
    /// As for [`access::copy`], for every row of the extent.
    unsafe fn copy_rows(&self, target: Rows, source: Rows) {
        let Extent {
            width,
            height,
            depth,
        } = self.extent;
        // SAFETY: the caller upholds it.
        unsafe { access::copy_rows(target, source, width, height, depth) }
    }
}

impl Side {
    /// Where the rows are, and whose memory that is.
    fn locate(self, extent: &Extent, by: Reacher) -> Result<(Rows, Place)> {
        const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
        if let End::Array(handle) = self.end {
            let rows = array::resolve(handle)?.rows(self.x, self.y, self.z, extent)?;
            return Ok((rows, Place::Device));
        }
        let row_end = self.x.checked_add(extent.width).ok_or(INVALID)?;
        let rows_end = self.y.checked_add(extent.height).ok_or(INVALID)?;
        let pitch = match self.pitch {
            0 => row_end,
            pitch => pitch,
        };
        let height = match self.height {
            0 => rows_end,
            height => height,
        };
        let one_row = extent.height == 1 && extent.depth == 1 && self.y == 0 && self.z == 0;
        if pitch > device::MAX_PITCH
            || !one_row && pitch < row_end
            || extent.depth > 1 && height < rows_end
        {
            return Err(INVALID);
        }
        let slice = pitch.checked_mul(height).ok_or(INVALID)?;
        let before = |z: u64, y: u64, x: u64| {
            z.checked_mul(slice)?
                .checked_add(y.checked_mul(pitch)?)?
                .checked_add(x)
        };
        let first = before(self.z, self.y, self.x).ok_or(INVALID)?;
        let last_slice = self.z.checked_add(extent.depth - 1).ok_or(INVALID)?;
        let end = before(last_slice, rows_end - 1, row_end).ok_or(INVALID)?;
        let shifted = |address: u64| match address {
            0 => Ok(0),
            address => address.checked_add(first).ok_or(INVALID),
        };
        let end_with = match self.end {
            End::Host(address) => End::Host(shifted(address)?),
            End::Device(address) => End::Device(shifted(address)?),
            End::Unified(address) => End::Unified(shifted(address)?),
            End::Array(_) => return Err(INVALID),
        };
        let (start, place) = locate(end_with, end - first, by)?;
        Ok((
            Rows {
                start,
                pitch,
                slice,
            },
            place,
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::{self, Kind};

    const SIZE: u64 = 4096;

    /// The ends of a copy and its size, right for the most part; `wrong` is where one number is
    /// anything, and what.
    fn copies() -> impl Strategy<Value = ([u64; 5], [u64; 5], [u64; 3])> {
        let side = || [0u64..8, 0..4, 0..3, 20..40, 8..12];
        let anything = prop_oneof![
            0u64..40,
            SIZE - 40..SIZE + 40,
            (0u32..64).prop_map(|bit| 1 << bit),
            u64::MAX - 40..u64::MAX
        ];
        let wrong = prop::option::of((0usize..13, anything));
        (side(), side(), [0u64..13, 0..5, 0..4], wrong).prop_map(|(source, target, size, wrong)| {
            let mut numbers = [&source[..], &target, &size].concat();
            if let Some((place, number)) = wrong {
                numbers[place] = number;
            }
            let part = |from: usize| std::array::from_fn(|at| numbers[from + at]);
            (part(0), part(5), [numbers[10], numbers[11], numbers[12]])
        })
    }

    fn placed(address: u64, [x, y, z, pitch, height]: [u64; 5]) -> Side {
        Side {
            end: End::Device(address),
            x,
            y,
            z,
            pitch,
            height,
        }
    }

    proptest! {
        /// Whatever is asked for, a copy that is accepted touches the allocations alone, and does
        /// what its description says.
        #[test]
        fn rows_stay_inside_and_arrive((source, target, size) in copies()) {
            let [width, height, depth] = size;
            let (from, to) = (memory::alloc(memory::Device::FIRST, SIZE, 1, Kind::Pinned).unwrap(), memory::alloc(memory::Device::FIRST, SIZE, 1, Kind::Pinned).unwrap());
            let extent = Extent { width, height, depth };
            let ends = [placed(to.base, target), placed(from.base, source)];
            let [to_end, from_end] = ends.map(|end| (end, Reacher::Copies(memory::Device::FIRST)));
            let answer = Copy::rows(to_end, from_end, extent);
            let beyond = |[x, y, z, pitch, rows]: &[u64; 5]| {
                ((z + depth).saturating_sub(1) * rows + (y + height).saturating_sub(1)) * pitch + x + width > SIZE
            };
            let small = [&source[..], &target, &size].concat().iter().all(|&number| number <= 40);
            prop_assert!(answer.is_ok() || !small || source[3] < 20 || target[3] < 20 || source[4] < 8 || target[4] < 8
                || source[0] + width > 20 || target[0] + width > 20 || height + source[1].max(target[1]) > 8
                || depth + source[2].max(target[2]) > 6 || beyond(&source) || beyond(&target), "right, and refused");
            if let Ok(Some(copy)) = answer {
                let mut own = true;
                for slice in [0, depth - 1] {
                    for row in [0, height - 1] {
                        for (rows, memory) in [(copy.source, from), (copy.target, to)] {
                            let start = rows.start + row * rows.pitch + slice * rows.slice;
                            own &= start >= memory.base && start + width <= memory.end();
                            let there = memory::find(start);
                            prop_assert!(own || there.is_some_and(|there| start + width <= there.end()));
                        }
                    }
                }
                // An offset may lead into another allocation that lives: that is no fault, but not
                // ours to copy.
                if !own {
                    memory::free(from.base);
                    memory::free(to.base);
                    return Ok(());
                }
                let original: Vec<u8> = (0..SIZE).map(|at| (at * 31 + at / 256) as u8).collect();
                // SAFETY: both are live allocations of this size.
                unsafe {
                    access::write(from.base, &original);
                    access::fill(to.base, 0, 1, SIZE);
                }
                copy.execute().unwrap();
                let mut arrived = vec![0; SIZE as usize];
                // SAFETY: it is a live allocation of this size.
                unsafe { access::read(to.base, &mut arrived) };
                let mut expected = vec![0; SIZE as usize];
                let place = |[x, y, z, pitch, rows]: [u64; 5], row: u64, slice: u64| {
                    let pitch = if pitch == 0 { x + width } else { pitch };
                    let rows = if rows == 0 { y + height } else { rows };
                    (((z + slice) * rows + y + row) * pitch + x) as usize
                };
                for slice in 0..depth {
                    for row in 0..height {
                        let (from, to) = (place(source, row, slice), place(target, row, slice));
                        let width = width as usize;
                        expected[to..to + width].copy_from_slice(&original[from..from + width]);
                    }
                }
                prop_assert_eq!(arrived, expected);
            }
            memory::free(from.base);
            memory::free(to.base);
        }
    }
}
