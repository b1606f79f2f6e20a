//! `cuLink*`.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;

use super::types::CUlinkState;
use super::{In, InOut, Out, export};
use crate::driver::jit_options::Options;
use crate::driver::{CUresult, Result, context, link};

fn create(count: u32, names: In<u32>, values: InOut<usize>, state: Out<CUlinkState>) -> Result {
    state.some()?;
    context::current()?;
    state.set(link::create(Options::read(count, names, values)?))
}

fn add_file(state: CUlinkState, kind: u32, path: In<c_char>) -> Result {
    let state = link::resolve(state)?;
    let name = path.text()?;
    let path = OsStr::from_bytes(name.to_bytes());
    let data = std::fs::read(path).map_err(|_| CUresult::CUDA_ERROR_FILE_NOT_FOUND)?;
    state.add(kind, &data, Some(&name.to_string_lossy()))
}

fn add_data(state: CUlinkState, kind: u32, data: In<u8>, size: usize, name: In<c_char>) -> Result {
    let name = match name.is_null() {
        true => None,
        false => Some(name.text()?.to_string_lossy()),
    };
    link::resolve(state)?.add(kind, data.bytes(size)?, name.as_deref())
}

export! {
    /// Makes a linker.
    fn cuLinkCreate(count: u32, names: In<u32>, values: InOut<usize>, state: Out<CUlinkState>) {
        create(count, names, values, state)
    }

    /// Makes a linker.
    fn cuLinkCreate_v2(count: u32, names: In<u32>, values: InOut<usize>, state: Out<CUlinkState>) {
        create(count, names, values, state)
    }

    /// Adds code from memory: PTX, or what holds PTX.
    fn cuLinkAddData(
        state: CUlinkState, kind: u32, data: In<u8>, size: usize, name: In<c_char>, count: u32, names: In<u32>,
        values: InOut<usize>,
    ) {
        let _ = (count, names, values);
        add_data(state, kind, data, size, name)
    }

    /// Adds code from memory: PTX, or what holds PTX.
    fn cuLinkAddData_v2(
        state: CUlinkState, kind: u32, data: In<u8>, size: usize, name: In<c_char>, count: u32, names: In<u32>,
        values: InOut<usize>,
    ) {
        Options::read(count, names, values)?;
        add_data(state, kind, data, size, name)
    }

    /// Adds code from a file: PTX, or what holds PTX.
    fn cuLinkAddFile(
        state: CUlinkState, kind: u32, path: In<c_char>, count: u32, names: In<u32>, values: InOut<usize>,
    ) {
        let _ = (count, names, values);
        add_file(state, kind, path)
    }

    /// Adds code from a file: PTX, or what holds PTX.
    fn cuLinkAddFile_v2(
        state: CUlinkState, kind: u32, path: In<c_char>, count: u32, names: In<u32>, values: InOut<usize>,
    ) {
        Options::read(count, names, values)?;
        add_file(state, kind, path)
    }

    /// Links what was added; the result lives as long as the linker.
    fn cuLinkComplete(state: CUlinkState, image: Out<usize>, size: Out<usize>) {
        let state = link::resolve(state)?;
        let (address, bytes) = state.complete()?;
        image.set_if_wanted(address);
        size.set_if_wanted(bytes);
        Ok(())
    }

    /// Destroys a linker.
    fn cuLinkDestroy(state: CUlinkState) { link::destroy(state) }
}
