//! Native code that can run: an [`Object`] in executable memory, its addresses filled in.

use std::ptr;
use std::time::Duration;

use wasmtime_jit_icache_coherence as icache;

use super::module::Compiled;
use super::object::{Object, Outside, Relocation};
use super::program::{Program, Signature};
use super::runtime;
use super::runtime::access::{Access, Accesses};
use super::runtime::arrays::{Array, Arrays};
use crate::grid::context::KernelFn;
use crate::grid::rounds::Wait;

/// Native code of a kernel.
pub(crate) struct Code {
    /// What the grid runs.
    pub compiled: Compiled,
    /// How long it took to compile, or to read from the cache.
    pub time: Duration,
    /// It was read from the cache.
    pub cached: bool,
    /// Bytes of machine code.
    pub size: usize,
    /// What indirect calls look their target up in; compiled code has its address.
    _table: Box<[Target]>,
    /// The places where its threads wait, in rounds; compiled code has the address.
    _waits: Box<[Wait]>,
    /// The accesses that it looks up by number.
    _accesses: Box<[Access]>,
    /// The arrays that it accesses.
    _arrays: Box<[Array]>,
    _memory: Memory,
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Code")
            .field("compiled", &self.compiled)
            .finish_non_exhaustive()
    }
}

/// A function that an indirect call may reach, as compiled code sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Where it is.
    pub code: u64,
    /// The sizes of its blocks of returns and parameters: a caller that has others would write past
    /// them.
    pub blocks: u64,
}

impl Target {
    /// No function is called so.
    const NONE: Target = Target {
        code: 0,
        blocks: u64::MAX,
    };

    /// What [`blocks`](Self::blocks) must be for a call with this signature.
    pub fn blocks(signature: &Signature) -> u64 {
        signature.returns.size << 32 | signature.params.size
    }
}

impl Code {
    /// Puts the code of a kernel of this module into memory. An object that was not made for it is
    /// an error; that every offset is inside of what it is for is checked here, whoever made it.
    pub fn load(object: Object, program: &Program) -> Result<Code, String> {
        let size = object.code.len();
        let functions = program.functions.len();
        let wrong = || "the object does not fit the module".to_owned();
        if object.entry as usize >= size
            || !(object.table == 0 || object.table as usize == functions)
            || object
                .accesses
                .iter()
                .any(|access| !access.is_sound(object.sites))
            || !object.arrays.iter().all(Array::is_sound)
        {
            return Err(wrong());
        }
        let memory = Memory::new(size).map_err(|error| format!("memory for code: {error}"))?;
        let base = memory.base as u64;
        let mut table = vec![Target::NONE; object.table as usize].into_boxed_slice();
        for reached in &object.targets {
            let target = table.get_mut(reached.function as usize).ok_or_else(wrong)?;
            if reached.at as usize >= size {
                return Err(wrong());
            }
            *target = Target {
                code: base + u64::from(reached.at),
                blocks: reached.blocks,
            };
        }
        let waits = object.waits.into_boxed_slice();
        let accesses = object.accesses.into_boxed_slice();
        let arrays = object.arrays.into_boxed_slice();
        let address = |of: Outside| {
            Some(match of {
                Outside::Runtime(number) => (runtime::numbered(number)?.address)() as u64,
                Outside::Global(at) => program.globals.get(at as usize)?.address,
                Outside::Functions => program.function_base,
                Outside::Table => table.as_ptr() as u64,
                Outside::Waits => waits.as_ptr() as u64,
            })
        };
        let mut code = object.code;
        for Relocation { at, of, addend } in object.relocations {
            let at = at as usize;
            let field = code.get_mut(at..at + 8).ok_or_else(wrong)?;
            let address = address(of).ok_or_else(wrong)?;
            field.copy_from_slice(&address.wrapping_add_signed(addend).to_ne_bytes());
        }
        memory
            .fill(&code)
            .map_err(|error| format!("memory for code: {error}"))?;
        let entry = base + u64::from(object.entry);
        // SAFETY: the object's code was compiled with the signature that `KernelFn` is, starts at
        // `entry`, and stays in executable memory for as long as this value lives.
        let entry = unsafe { std::mem::transmute::<*const u8, KernelFn>(entry as *const u8) };
        Ok(Code {
            compiled: Compiled {
                entry,
                mode: object.mode,
                kept: object.kept,
                sites: object.sites,
                frame: object.frame,
                spins: object.spins,
                passes: object.passes,
                reaches: object.reaches,
                accesses: Accesses::of(&accesses),
                arrays: Arrays::of(&arrays),
            },
            time: Duration::ZERO,
            cached: false,
            size,
            _table: table,
            _waits: waits,
            _accesses: accesses,
            _arrays: arrays,
            _memory: memory,
        })
    }
}

/// Pages for code: writable until they are filled, executable from then on.
struct Memory {
    base: *mut u8,
    size: usize,
}

// SAFETY: whoever has the value owns the pages, and no thread writes to them once they are shared.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(size: usize) -> std::io::Result<Memory> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: asks for new pages anywhere, so no memory in use changes.
        let base = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0) };
        match base == libc::MAP_FAILED {
            true => Err(std::io::Error::last_os_error()),
            false => Ok(Memory {
                base: base.cast(),
                size,
            }),
        }
    }

    /// Puts the code there; once only.
    fn fill(&self, code: &[u8]) -> std::io::Result<()> {
        assert_eq!(code.len(), self.size, "the pages are for this code");
        // SAFETY: the pages are ours, writable and as large as the code, and nobody runs them yet.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), self.base, code.len()) };
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: the pages are ours; from here on they are only read and run.
        unsafe {
            icache::clear_cache(self.base.cast(), self.size)?;
            if libc::mprotect(self.base.cast(), self.size, protection) != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        icache::pipeline_flush_mt()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the pages are ours, and a launch keeps the module of its kernel, and so this
        // code, for as long as it runs.
        unsafe { libc::munmap(self.base.cast(), self.size) };
    }
}
