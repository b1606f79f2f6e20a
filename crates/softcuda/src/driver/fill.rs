//! Fills: the memory is checked when they are called, they run in stream order.

use std::sync::Arc;

use super::copy::Until;
use super::memory::{Place, device_place};
use super::reach::Reacher;
use super::stream::Stream;
use super::{CUresult, Result, capture, graph};
use crate::memory::{self, access};

/// A fill as the program asks for it: elements of 1, 2 or 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Where.
    pub address: u64,
    /// From one row to the next, in bytes; `None` for elements in a line.
    pub pitch: Option<u64>,
    /// With what.
    pub value: u32,
    /// Bytes of an element.
    pub element: u32,
    /// Elements of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

impl Request {
    /// The fill, checked, of memory that `by` reaches; `None` where there is nothing to fill.
    pub fn check(&self, by: Reacher) -> Result<Option<Fill>> {
        let Request {
            address,
            pitch,
            value,
            element,
            width,
            height,
        } = *self;
        match pitch {
            None => Fill::line((address, by), value, element, width),
            Some(pitch) => Fill::rows((address, by), pitch, value, element, width, height),
        }
    }

    /// Puts the fill behind all that the stream was given; in a capture it becomes a node.
    pub fn run(self, stream: &Arc<Stream>, until: Until) -> Result {
        if stream.is_capturing() {
            if until == Until::Done {
                capture::refuse(stream)?;
            }
            return capture::fill(stream, self);
        }
        match self.check(stream.context().fills())? {
            Some(fill) => fill.run(stream, until),
            None => Ok(()),
        }
    }
}

/// A fill that was checked.
#[derive(Clone)]
pub(crate) struct Fill {
    address: u64,
    pitch: u64,
    value: u32,
    /// Bytes of an element: 1, 2 or 4.
    element: u32,
    /// Elements in a row.
    width: u64,
    height: u64,
    place: Place,
    /// The fill leaves the allocation: it fails when it has come to the end.
    runs_over: bool,
}

impl Fill {
    /// A fill of elements in a line; `None` where there are none.
    ///
    /// More bytes than a number of 64 bits can say are accepted, as the device's driver does, and
    /// fail when they run.
    fn line(
        (address, by): (u64, Reacher),
        value: u32,
        element: u32,
        count: u64,
    ) -> Result<Option<Self>> {
        if count.checked_mul(element.into()).is_some() {
            return Self::rows((address, by), 0, value, element, count, 1);
        }
        device_place(address, 1, by)?;
        let allocation = memory::find(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let fits = (allocation.end() - address) / u64::from(element);
        let fill = Self::rows((address, by), 0, value, element, fits, 1)?;
        Ok(fill.map(|fill| Fill {
            runs_over: true,
            ..fill
        }))
    }

    /// A fill of rows of elements, at an address that `by` reaches; `None` where there are none.
    pub fn rows(
        (address, by): (u64, Reacher),
        pitch: u64,
        value: u32,
        element: u32,
        width: u64,
        height: u64,
    ) -> Result<Option<Self>> {
        const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
        if width == 0 || height == 0 {
            return Ok(None);
        }
        let row = width.checked_mul(element.into()).ok_or(INVALID)?;
        let several = height > 1;
        if several && (pitch < row || !pitch.is_multiple_of(element.into())) {
            return Err(INVALID);
        }
        let before = pitch.checked_mul(height - 1).ok_or(INVALID)?;
        let place = device_place(address, before.checked_add(row).ok_or(INVALID)?, by)?;
        if !address.is_multiple_of(element.into()) {
            return Err(INVALID);
        }
        Ok(Some(Fill {
            address,
            pitch,
            value,
            element,
            width,
            height,
            place,
            runs_over: false,
        }))
    }

    /// Puts the fill behind all that the stream was given.
    pub fn run(self, stream: &Arc<Stream>, until: Until) -> Result {
        graph::memory::check_reach(self.address)?;
        let wait = until == Until::Done && self.place != Place::Device;
        let bytes = self.width * u64::from(self.element) * self.height;
        stream.submit_sized(bytes, move || self.execute())?;
        match wait {
            true => stream.synchronize(),
            false => Ok(()),
        }
    }

    /// Fills, on the calling thread, some time after the call: the memory may have been freed
    /// since.
    pub fn execute_late(&self) -> Result {
        let row = self.width * u64::from(self.element);
        let size = (self.height - 1) * self.pitch + row;
        match device_place(self.address, size, Reacher::Anybody) {
            Ok(_) => self.execute(),
            Err(_) => Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS),
        }
    }

    /// Fills, on the calling thread.
    fn execute(&self) -> Result {
        if memory::was_unmapped(self.address) {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        for row in 0..self.height {
            let address = self.address + row * self.pitch;
            // SAFETY: the range was checked to be allocations in the arena, which stays mapped, or
            // registered memory, which is not unregistered before this has run.
            unsafe { access::fill(address, self.value, self.element, self.width) };
        }
        match self.runs_over {
            true => Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS),
            false => Ok(()),
        }
    }
}
