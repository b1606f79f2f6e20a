//! Linking: several PTX texts become one.
//!
//! Linked code is PTX again, with each symbol's definition in the place of its declarations, so it
//! loads like any other. What one text keeps to itself gets a name of its own where another text
//! has the same.

mod archive;
mod device_runtime;
mod merge;
mod symbols;

use parking_lot::Mutex;
use ptx::ast::Module;

use self::archive::Object;
use self::merge::{closed, merge};
use self::symbols::{Symbols, undefined};
use super::code::{self, Code, Refused};
use super::handle::{Found, Table};
use super::jit_options::Options;
use super::{CUresult, Result, image};
use crate::abi::types::CUlinkState;
use crate::memory::Device;

static LINKS: Table<Link> = Table::new(8);

/// `CUjitInputType`.
mod input {
    pub const CUBIN: u32 = 0;
    pub const PTX: u32 = 1;
    pub const FATBINARY: u32 = 2;
    pub const OBJECT: u32 = 3;
    pub const LIBRARY: u32 = 4;
    /// NVVM's intermediate form.
    pub const NVVM: u32 = 5;
}

/// A linker's state.
pub(crate) struct Link {
    handle: usize,
    options: Options,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What was added, with its name.
    inputs: Vec<(String, Module)>,
    symbols: Symbols,
    /// How many inputs there were, right and wrong.
    added: u32,
    /// Lines of the error log.
    log: Vec<String>,
    /// An input did not fit to those before: the link cannot be completed any more.
    failed: Option<CUresult>,
    /// The linked text with its NUL: the caller may read it until the state is destroyed.
    linked: Option<Box<[u8]>>,
}

/// `cuLinkCreate`.
pub(crate) fn create(options: Options) -> CUlinkState {
    let link = LINKS.insert(|handle| Link {
        handle,
        options,
        state: Mutex::default(),
    });
    CUlinkState(link.handle)
}

/// The linker of a handle.
pub(crate) fn resolve(handle: CUlinkState) -> Result<std::sync::Arc<Link>> {
    LINKS.get(handle.0).or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// `cuLinkDestroy`.
pub(crate) fn destroy(handle: CUlinkState) -> Result {
    match LINKS.remove(handle.0) {
        Found::Live(_) => Ok(()),
        Found::Destroyed | Found::Unknown => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
}

impl Link {
    /// `cuLinkAddData`: a text, or something that holds texts. `name` is what logs call it.
    ///
    /// What has no name goes by its number.
    pub fn add(&self, kind: u32, data: &[u8], name: Option<&str>) -> Result {
        let mut state = self.state.lock();
        state.added += 1;
        let numbered = format!("Input {}", state.added);
        let name = name.unwrap_or(&numbered);
        match kind {
            input::CUBIN => match archive::object(data) {
                Object::Cubin => Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU),
                Object::Host(_) | Object::Other => {
                    state.failed = Some(CUresult::CUDA_ERROR_INVALID_IMAGE);
                    Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
                }
            },
            input::PTX | input::FATBINARY => match archive::object(data) {
                Object::Host(_) => {
                    const LINE: &str =
                        "error   : Binary format for key='0', ident='' is not recognized";
                    // An H200's driver says so twice of a fat binary.
                    for _ in 0..kind {
                        self.say(&mut state, LINE, CUresult::CUDA_ERROR_INVALID_IMAGE);
                    }
                    Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
                }
                Object::Cubin | Object::Other => {
                    let text = image::read_sized(data, code::capability())?;
                    self.add_text(&mut state, &text, name)
                }
            },
            input::OBJECT => match archive::object(data) {
                Object::Host(fatbins) if !fatbins.is_empty() => {
                    self.add_fatbins(&mut state, &fatbins, name, false)
                }
                Object::Cubin | Object::Host(_) => Err(CUresult::CUDA_ERROR_INVALID_IMAGE),
                Object::Other => Err(self.say(
                    &mut state,
                    &format!("fatal   : Could not find fatbin in '{name}'"),
                    CUresult::CUDA_ERROR_UNKNOWN,
                )),
            },
            input::LIBRARY => self.add_library(&mut state, data, name),
            input::NVVM => Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Adds all device code of an archive, as an H200 does, whether it is used or not.
    fn add_library(&self, state: &mut State, data: &[u8], name: &str) -> Result {
        let Ok(members) = archive::members(data) else {
            return Err(self.say(
                state,
                "fatal   : unexpected archive format",
                CUresult::CUDA_ERROR_UNKNOWN,
            ));
        };
        let mut any = false;
        for member in members {
            if member.name == device_runtime::MEMBER {
                any = true;
                self.add_text(state, device_runtime::TEXT.as_bytes(), name)?;
            } else if let Object::Host(fatbins) = archive::object(member.data) {
                any |= !fatbins.is_empty();
                self.add_fatbins(state, &fatbins, name, true)?;
            }
        }
        match any {
            true => Ok(()),
            false => Err(CUresult::CUDA_ERROR_INVALID_IMAGE),
        }
    }

    /// Adds the PTX of fat binaries. A library may have machine code alone, of which nothing can be
    /// taken, and is often only listed.
    fn add_fatbins(
        &self,
        state: &mut State,
        fatbins: &[&[u8]],
        name: &str,
        library: bool,
    ) -> Result {
        for fatbin in fatbins {
            match image::read_sized(fatbin, code::capability()) {
                Ok(text) => self.add_text(state, &text, name)?,
                Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU) if library => {
                    tracing::info!(name, "a member of a library has no PTX and is left out");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn add_text(&self, state: &mut State, text: &[u8], name: &str) -> Result {
        if let Some(error) = state.failed {
            return Err(error);
        }
        let module = match ptx::parse_bytes(text) {
            Ok(module) => module,
            Err(_) => return Err(self.refuse(state, text)),
        };
        if Code::load(closed(&module).to_string().as_bytes(), Device::FIRST).is_err() {
            return Err(self.refuse(state, text));
        }
        if let Err(line) = state.symbols.add(&module, name) {
            let error = CUresult::CUDA_ERROR_INVALID_SOURCE;
            state.failed = Some(error);
            return Err(self.say(state, &line, error));
        }
        state.inputs.push((name.to_owned(), module));
        Ok(())
    }

    /// The error of a text that does not load, with its log. What it leaves to other texts to
    /// define is in the log too.
    fn refuse(&self, state: &mut State, text: &[u8]) -> CUresult {
        match Code::load(text, Device::FIRST) {
            Err(Refused { error, log }) => self.say(state, &log, error),
            Ok(_) => CUresult::CUDA_ERROR_INVALID_PTX,
        }
    }

    /// Adds to the error log, which grows over the calls, and gives the error back.
    fn say(&self, state: &mut State, text: &str, error: CUresult) -> CUresult {
        state.log.push(text.trim_end().to_owned());
        self.options.log_error(&state.log.join("\n"));
        error
    }

    /// `cuLinkComplete`: address and size of what loads as a module.
    pub fn complete(&self) -> Result<(usize, usize)> {
        let mut state = self.state.lock();
        if let Some(error) = state.failed {
            return Err(error);
        }
        if state.linked.is_none() {
            let missing = undefined(&state.inputs);
            if !missing.is_empty() {
                return Err(self.say(
                    &mut state,
                    &missing.join("\n"),
                    CUresult::CUDA_ERROR_INVALID_SOURCE,
                ));
            }
            let modules: Vec<&Module> = state.inputs.iter().map(|(_, module)| module).collect();
            let text = merge(&modules).to_string();
            // What does not load is refused here, with its log.
            if let Err(Refused { error, log }) = Code::load(text.as_bytes(), Device::FIRST) {
                return Err(self.say(&mut state, &log, error));
            }
            state.linked = Some([text.as_bytes(), b"\0"].concat().into_boxed_slice());
        }
        let linked = state.linked.as_ref().expect("it was just put there");
        Ok((linked.as_ptr() as usize, linked.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::archive::tests::{archive, host_object, member};
    use super::*;

    const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";
    const USER: &str = ".extern .func twice();\n.visible .entry k() { call twice; ret; }";
    const TWICE: &str = ".visible .func twice() { ret; }";

    /// A fat binary with one entry, of PTX or of machine code.
    fn fatbin(kind: u16, contents: &str) -> Vec<u8> {
        let mut payload = contents.as_bytes().to_vec();
        payload.resize(payload.len().next_multiple_of(8), 0);
        let mut fatbin = 0xba55_ed50u32.to_le_bytes().to_vec();
        fatbin.extend([1, 0, 16, 0]);
        fatbin.extend((64 + payload.len() as u64).to_le_bytes());
        fatbin.extend(kind.to_le_bytes());
        fatbin.extend([1, 1, 64, 0, 0, 0]);
        fatbin.extend((payload.len() as u64).to_le_bytes());
        fatbin.extend((payload.len() as u32).to_le_bytes());
        fatbin.extend([0; 8]);
        fatbin.extend(80u32.to_le_bytes());
        fatbin.resize(16 + 64, 0);
        fatbin.extend(payload);
        fatbin
    }

    fn object(fatbin: &[u8]) -> Vec<u8> {
        host_object(62, "__nv_relfatbin", fatbin)
    }

    fn user() -> std::sync::Arc<Link> {
        let link = resolve(create(Options::default())).unwrap();
        let text = format!("{HEAD}{USER}");
        link.add(input::PTX, text.as_bytes(), Some("user")).unwrap();
        link
    }

    #[test]
    fn what_members_of_a_library_define_is_linked() {
        let text = format!("{HEAD}{TWICE}");
        let library = archive(&[
            member("/", b"symbols"),
            member("host.o/", &host_object(62, ".text", b"")),
            member("code.o/", &object(&fatbin(2, "machine code"))),
            member("twice.o/", &object(&fatbin(1, &text))),
        ]);
        let link = user();
        link.add(input::LIBRARY, &library, Some("library")).unwrap();
        assert!(link.complete().is_ok());
        let link = user();
        link.add(input::OBJECT, &object(&fatbin(1, &text)), None)
            .unwrap();
        assert!(link.complete().is_ok());
    }

    #[test]
    fn a_library_of_machine_code_may_be_listed() {
        let library = archive(&[member("a.o/", &object(&fatbin(2, "machine code")))]);
        let link = user();
        link.add(input::LIBRARY, &library, Some("library")).unwrap();
        let undefined = Err(CUresult::CUDA_ERROR_INVALID_SOURCE);
        assert_eq!(link.complete(), undefined);
        let text = format!("{HEAD}{TWICE}");
        link.add(input::PTX, text.as_bytes(), None).unwrap();
        assert!(link.complete().is_ok());
        // Named by itself it is needed.
        let object = object(&fatbin(2, "machine code"));
        assert_eq!(
            user().add(input::OBJECT, &object, None),
            Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU)
        );
    }

    #[test]
    fn the_device_runtime_is_that_of_its_library_alone() {
        let text = format!(
            "{HEAD}.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 s);
             .extern .func (.param .b32 r) cudaGetLastError();
             .extern .func (.param .b32 r) cudaPeekAtLastError();
             .visible .entry k() {{
                 .param .b32 s; .param .b64 r;
                 call (r), cudaCGGetIntrinsicHandle, (s);
                 call (s), cudaGetLastError; call (s), cudaPeekAtLastError; ret;
             }}"
        );
        let code = object(&fatbin(2, "machine code"));
        let names = member("//", b"cuda_device_runtime.o/\n");
        let library = archive(&[names, member("/0", &code)]);
        for library_first in [true, false] {
            let link = resolve(create(Options::default())).unwrap();
            if library_first {
                link.add(input::LIBRARY, &library, Some("library")).unwrap();
            }
            link.add(input::PTX, text.as_bytes(), Some("user")).unwrap();
            if !library_first {
                link.add(input::LIBRARY, &library, Some("library")).unwrap();
            }
            assert!(link.complete().is_ok());
        }
        let link = resolve(create(Options::default())).unwrap();
        link.add(input::PTX, text.as_bytes(), Some("user")).unwrap();
        assert!(link.complete().is_err());
        assert!(Code::load(text.as_bytes(), Device::FIRST).is_err());
    }

    #[test]
    fn broken_libraries_are_errors() {
        let text = format!("{HEAD}{TWICE}");
        let library = archive(&[member("a.o/", &object(&fatbin(1, &text)))]);
        for cut in 0..library.len() {
            let link = user();
            assert!(link.add(input::LIBRARY, &library[..cut], None).is_err());
        }
        for at in 8..library.len() {
            let mut damaged = library.clone();
            damaged[at] ^= 0x55;
            _ = user().add(input::LIBRARY, &damaged, None);
        }
    }
}
