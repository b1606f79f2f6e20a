//! What names a kernel in the cache: a hash of everything that its code depends on.

use std::fmt::Write as _;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::HASH;
use crate::jit::compile::{self, How};
use crate::jit::module::LoadOptions;

/// A module's source and how it is loaded.
#[derive(Clone, Debug)]
pub(crate) struct Source(Sha256);

impl Source {
    /// Of this text.
    pub fn of(text: &[u8], options: &LoadOptions) -> Source {
        let LoadOptions {
            capability,
            form,
            newest: _,
            device: _,
            cache: _,
        } = options;
        let mut hash = Sha256::new();
        put(&mut hash, compiler().as_bytes());
        put(&mut hash, format!("{capability} {form:?}").as_bytes());
        put(&mut hash, text);
        Source(hash)
    }
}

/// A kernel, compiled in one way.
#[derive(Debug)]
pub(crate) struct Key([u8; HASH]);

impl Key {
    /// Of the kernel that is this function of a module.
    pub fn new(source: &Source, function: u32, name: &str, how: How) -> Key {
        let mut hash = source.0.clone();
        put(&mut hash, name.as_bytes());
        put(&mut hash, format!("{function} {how:?}").as_bytes());
        Key(hash.finalize().into())
    }

    /// The hash.
    pub fn bytes(&self) -> &[u8; HASH] {
        &self.0
    }

    /// The name of its file.
    pub fn name(&self) -> String {
        let mut name = String::with_capacity(2 * HASH + 7);
        for byte in self.0 {
            let _ = write!(name, "{byte:02x}");
        }
        name + ".kernel"
    }
}

/// Adds a part, with its length, so that no two lists of parts are the same bytes.
fn put(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

/// What compiles: this library to the last byte of its source, how it was built, Cranelift, and the
/// processor that code is for.
fn compiler() -> &'static str {
    static COMPILER: OnceLock<String> = OnceLock::new();
    COMPILER.get_or_init(|| {
        let isa = match compile::isa() {
            Ok(isa) => format!(
                "{} {} {:?}",
                isa.triple(),
                isa.flags(),
                isa.isa_flags()
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
            ),
            // Then no kernel is compiled.
            Err(error) => error,
        };
        // Of the processor's, what Cranelift does not ask for.
        #[cfg(target_arch = "x86_64")]
        let halves = crate::jit::runtime::halves::are_there();
        #[cfg(not(target_arch = "x86_64"))]
        let halves = false;
        format!(
            "softcuda {} build {} test {} checks {} Cranelift {} halves {halves} for {isa}",
            env!("CARGO_PKG_VERSION"),
            env!("SOFTCUDA_BUILD"),
            cfg!(test),
            cfg!(debug_assertions),
            cranelift_codegen::VERSION,
        )
    })
}
