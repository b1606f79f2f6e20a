//! Two devices, and what tests have of each.

use std::ffi::CStr;

use super::api::*;
use super::fixture::*;
use super::structs::{Access, AllocationProperties, Location};

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const DEVICE: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub const READ_WRITE: u32 = 3;

/// What there is of a device: its primary context, a stream, the suite's kernels, a word of memory.
pub struct Side {
    pub device: i32,
    pub context: Handle,
    pub stream: Handle,
    pub module: Handle,
    /// Holds ten more than the device's number.
    pub word: u64,
}

impl Side {
    /// Leaves its context current.
    pub unsafe fn new(device: i32) -> Side {
        let mut context = 0;
        cuDevicePrimaryCtxRetain(&mut context, device).must();
        cuCtxSetCurrent(context).must();
        let word = memory(4);
        fill_words(word, device as u32 + 10, 1);
        Side {
            device,
            context,
            stream: stream(),
            module: module(),
            word,
        }
    }

    pub unsafe fn enter(&self) {
        cuCtxSetCurrent(self.context).must();
    }

    /// A kernel of the suite, in this context.
    pub unsafe fn function(&self, name: &CStr) -> Handle {
        function_of(self.module, name)
    }

    /// Writes a word by a kernel of this device.
    pub unsafe fn store(&self, mut address: u64, mut value: u32) -> Answer {
        self.enter();
        let mut arguments = [void(&mut address), void(&mut value)];
        let store = self.function(c"store");
        launch(store, 1, 1, self.stream, &mut arguments).must();
        cuStreamSynchronize(self.stream)
    }

    pub unsafe fn read(&self, address: u64) -> u32 {
        self.enter();
        word(address)
    }
}

/// The first two devices. The second one's context is current then.
pub unsafe fn sides() -> [Side; 2] {
    cuInit(0).must();
    [Side::new(0), Side::new(1)]
}

pub fn location(device: i32) -> Location {
    Location {
        kind: DEVICE,
        id: device,
    }
}

pub fn access(device: i32) -> Access {
    Access {
        location: location(device),
        flags: READ_WRITE,
    }
}

/// Physical memory of a device.
pub fn physical(device: i32) -> AllocationProperties {
    AllocationProperties {
        kind: 1,
        handle_types: 0,
        location: location(device),
        win32_metadata: 0,
        flags: [0; 8],
    }
}
