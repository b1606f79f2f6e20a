//! A loaded module as the driver and the grid see it.
//!
//! Invariant: the module's variables and the code of its kernels live for as long as anyone holds
//! it, or a kernel of it; a launch does.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock, Weak};
#[cfg(test)]
use std::time::Duration;
use std::time::Instant;

use ptx::ast::{FunctionDirective, Linkage};

use super::analysis::{self, Facts};
use super::cache::{self, Cache, Key};
use super::code::Code;
use super::compile::{self, CompileError, How};
use super::decode::{Refusal, Symbol};
use super::layout::Field;
use super::program::{Function, Program};
use super::resolve::{self, Names};
use super::runtime::access::Accesses;
use super::runtime::arrays::Arrays;
use super::spmd::Rows;
use super::variables::{self, VariableError, Variables};
use crate::grid::context::{KernelFn, Mode};
use crate::memory::Device;

/// The newest PTX that is taken: what a driver for CUDA 13.0 takes.
const NEWEST: (u32, u32) = (9, 0);
/// The newest that is taken on request: what nvcc of CUDA 13.5 writes.
const KNOWN: (u32, u32) = (9, 5);

/// The newest PTX that is taken: 9.0, or what `SOFTCUDA_PTX_VERSION` says.
fn newest_of_environment() -> (u32, u32) {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let Ok(text) = std::env::var("SOFTCUDA_PTX_VERSION") else {
            return NEWEST;
        };
        parse_newest(&text).unwrap_or_else(|| {
            tracing::warn!(
                "SOFTCUDA_PTX_VERSION={text} is no version from {}.{} to {}.{}: it is ignored",
                NEWEST.0,
                NEWEST.1,
                KNOWN.0,
                KNOWN.1
            );
            NEWEST
        })
    })
}

fn parse_newest(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    let version = (major.parse().ok()?, minor.parse().ok()?);
    (NEWEST..=KNOWN).contains(&version).then_some(version)
}

/// A kernel in native code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compiled {
    /// Its code; lives as long as the module.
    pub entry: KernelFn,
    /// How it runs a block.
    pub mode: Mode,
    /// In rounds: the bytes that each thread keeps while it waits.
    pub kept: u32,
    /// How many entries [`BlockContext::sites`](crate::grid::context::BlockContext::sites) must
    /// have.
    pub sites: u32,
    /// What its code looks up by number; live as long as it.
    pub accesses: Accesses,
    /// Arrays that its parameters point to.
    pub arrays: Arrays,
    /// Bytes that `entry` itself takes of the native stack. It does not look whether there are so
    /// many; functions that it calls do.
    pub frame: u32,
    /// Its threads may spin, in rounds: a run may end with
    /// [`SUSPENDED`](crate::grid::context::SUSPENDED).
    pub spins: bool,
    /// Blocks may go through a loop in [step](super::spmd::Passes).
    pub passes: bool,
    /// It may reach the shared memory of other blocks of its cluster: they must all be there.
    pub reaches: bool,
}

/// How a module is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadOptions {
    /// The device's compute capability, as `major * 10 + minor`: code for a later one is refused.
    pub capability: u32,
    /// The newest PTX that is taken.
    pub newest: (u32, u32),
    /// How its kernels wait.
    pub form: Form,
    /// Where compiled kernels are kept from run to run.
    pub cache: Option<&'static Cache>,
    /// The device whose memory its variables are.
    pub device: Device,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            capability: 90,
            newest: newest_of_environment(),
            form: Form::of_environment(),
            cache: Cache::of_environment(),
            device: Device::FIRST,
        }
    }
}

/// How kernels run that can run so: the best form, or one beside it, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Neighbouring threads together, in vectors.
    Vectors,
    /// Thread by thread; where threads wait, in rounds.
    Rounds,
    /// Thread by thread; those that wait as fibers.
    Fibers,
}

impl Form {
    /// What `SOFTCUDA_FORM` says (`vectors`, `rounds`, `fibers`); vectors without.
    pub fn of_environment() -> Form {
        static FORM: OnceLock<Form> = OnceLock::new();
        *FORM.get_or_init(|| match std::env::var("SOFTCUDA_FORM").as_deref() {
            Ok("fibers") => Form::Fibers,
            Ok("rounds") => Form::Rounds,
            Ok("vectors") | Err(_) => Form::Vectors,
            Ok(text) => {
                tracing::warn!(
                    "SOFTCUDA_FORM={text} is not vectors, rounds or fibers: it is ignored"
                );
                Form::Vectors
            }
        })
    }
}

/// Why a module was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadErrorKind {
    /// It is no PTX at all.
    InvalidImage,
    /// It is wrong, or uses what is not run.
    InvalidPtx,
    /// It is of a later version than is understood.
    UnsupportedPtxVersion,
    /// It is for a later device.
    NoBinaryForGpu,
    /// Its variables do not fit.
    OutOfMemory,
}

/// Why a module was not loaded, and the text for the driver's error log.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{log}")]
pub(crate) struct LoadError {
    /// What.
    pub kind: LoadErrorKind,
    /// A line for each thing wrong.
    pub log: String,
}

impl LoadError {
    fn new(kind: LoadErrorKind, log: impl Into<String>) -> LoadError {
        LoadError {
            kind,
            log: log.into(),
        }
    }

    fn refused(refusals: &[Refusal]) -> LoadError {
        let mut log = String::new();
        if let [refusal] = refusals
            && refusal.pos.line == 0
        {
            log = format!("ptxas fatal   : {}", refusal.what);
            return LoadError::new(LoadErrorKind::InvalidPtx, log);
        }
        for refusal in refusals {
            let _ = writeln!(
                log,
                "ptxas application ptx input, line {}; error   : {}",
                refusal.pos.line, refusal.what
            );
        }
        let _ = write!(log, "ptxas fatal   : Ptx assembly aborted due to errors");
        LoadError::new(LoadErrorKind::InvalidPtx, log)
    }
}

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Module {
    program: Arc<Program>,
    names: Names,
    facts: Vec<Facts>,
    form: Form,
    /// Where its kernels are kept, and what names its source there.
    cache: Option<(&'static Cache, cache::Source)>,
    kernels: Vec<Arc<Kernel>>,
    _variables: Variables,
    /// What the driver writes into its information log when it is asked for more.
    pub info: String,
    /// What it writes there always: instructions that are not run.
    pub warnings: String,
}

impl Module {
    /// What was checked.
    #[cfg(test)]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The same, to be compiled.
    #[cfg(test)]
    pub fn shared_program(&self) -> Arc<Program> {
        Arc::clone(&self.program)
    }

    /// Parses and checks PTX, and makes its variables.
    ///
    /// # Errors
    /// With a log that names every line at fault.
    pub fn load(source: &[u8], options: &LoadOptions) -> Result<Arc<Module>, LoadError> {
        if !looks_like_ptx(source) {
            return Err(LoadError::new(
                LoadErrorKind::InvalidImage,
                "the image is no PTX",
            ));
        }
        let tree =
            ptx::parse_bytes(source).map_err(|errors| parse_error(source, &errors, options))?;
        check_header(&tree, options)?;
        let (mut program, names) =
            resolve::resolve(&tree).map_err(|list| LoadError::refused(&list))?;
        let variables = variables::allocate(&mut program, &names, options.device);
        let variables = variables.map_err(|error| match error {
            VariableError::Refused(refusal) => LoadError::refused(&[refusal]),
            VariableError::OutOfMemory => LoadError::new(
                LoadErrorKind::OutOfMemory,
                "no memory for the module's variables",
            ),
        })?;
        let facts = analysis::analyse(&program);
        let program = Arc::new(program);
        Ok(Arc::new_cyclic(|module| {
            let kernels: Vec<Arc<Kernel>> = (0..)
                .zip(&program.functions)
                .filter(|(_, function)| function.kernel && function.body.is_some())
                .map(|(at, function)| {
                    let way = (facts[at as usize].mode(), options.form);
                    Arc::new(Kernel::new(module, &program, at, function, &variables, way))
                })
                .collect();
            let info = match kernels.len() {
                0 => String::new(),
                n => format!(
                    "softcuda: {n} kernels checked for sm_{}\n",
                    options.capability
                ),
            };
            Module {
                program: Arc::clone(&program),
                names,
                facts,
                form: options.form,
                cache: options
                    .cache
                    .map(|cache| (cache, cache::Source::of(source, options))),
                kernels,
                _variables: variables,
                info,
                warnings: warnings(&program),
            }
        }))
    }

    /// A kernel by name.
    #[cfg(test)]
    pub fn kernel(&self, name: &str) -> Option<&Arc<Kernel>> {
        self.kernels.iter().find(|kernel| &*kernel.name == name)
    }

    /// All kernels, in source order.
    pub fn kernels(&self) -> &[Arc<Kernel>] {
        &self.kernels
    }

    /// The address and size of a variable in `.global` or `.const`.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        let Some(Symbol::Global(at)) = self.names.get(name) else {
            return None;
        };
        let global = &self.program.globals[*at as usize];
        (global.linkage != Linkage::Extern).then_some((global.address, global.size))
    }

    /// An address is in one of its variables.
    pub fn has(&self, address: u64) -> bool {
        let mut globals = self.program.globals.iter();
        globals.any(|global| address.wrapping_sub(global.address) < global.size)
    }
}

/// Attributes of a kernel, as `cuFuncGetAttribute` tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Bytes of shared memory that its static variables take.
    pub static_shared: u32,
    /// Where dynamic shared memory starts: the same, aligned for it. What a launch gives as its
    /// static shared memory.
    pub shared_offset: u32,
    /// Bytes of constant memory of its module.
    pub constant: u32,
    /// Bytes of local memory of a thread, without what called functions take.
    pub local: u32,
    /// An estimate.
    pub registers: u32,
    /// The most threads in a block.
    pub max_threads: u32,
    /// `.maxntid`, where given.
    pub maxntid: Option<[u32; 3]>,
    /// `.reqntid`, where given.
    pub reqntid: Option<[u32; 3]>,
    /// `.minnctapersm`, where given.
    pub min_blocks: Option<u32>,
    /// `.reqnctapercluster`, where given.
    pub cluster: Option<[u32; 3]>,
    /// `.maxclusterrank`, where given.
    pub max_cluster_rank: Option<u32>,
    /// `.explicitcluster` or `.reqnctapercluster` is given.
    pub cluster_must_be_set: bool,
    /// `major * 10 + minor` of `.version`.
    pub ptx_version: u32,
    /// `major * 10 + minor` of `.target`.
    pub binary_version: u32,
}

/// A kernel of a module.
pub(crate) struct Kernel {
    /// Its name.
    pub name: Arc<str>,
    /// Its attributes.
    pub attributes: Attributes,
    /// Where its parameters lie.
    pub params: Vec<Field>,
    /// Size of all parameters.
    pub params_size: u32,
    module: Weak<Module>,
    function: u32,
    /// Blocks whose rows are not whole warps have code of their own.
    rows_matter: bool,
    /// Blocks whose rows are no groups have code of their own: whether its threads wait.
    groups_matter: Option<bool>,
    /// Its code: for blocks whose rows are whole warps, or for all; for other rows of groups; and
    /// for rows that are none.
    codes: [OnceLock<Result<Code, CompileError>>; 5],
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.name)
            .field("attributes", &self.attributes)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    fn new(
        module: &Weak<Module>,
        program: &Program,
        at: u32,
        function: &Function,
        variables: &Variables,
        (mode, form): (Mode, Form),
    ) -> Kernel {
        let shared = compile::shared_layout(program, at);
        let body = function
            .body
            .as_ref()
            .expect("only kernels with a body are listed");
        let waits = mode == Mode::Rounds;
        let in_vectors = form == Form::Vectors && mode != Mode::Fibers;
        let rows_matter = in_vectors && waits && compile::rows_matter(body);
        let mut attributes = Attributes {
            static_shared: u32::try_from(shared.used).unwrap_or(u32::MAX),
            shared_offset: u32::try_from(shared.dynamic).unwrap_or(u32::MAX),
            constant: variables.constant as u32,
            local: body.tables.frame as u32,
            registers: (body.tables.registers.len() as u32).clamp(16, 255),
            max_threads: 1024,
            ptx_version: program.version.0 * 10 + program.version.1,
            binary_version: capability(&program.target).unwrap_or(0),
            ..Attributes::default()
        };
        for directive in &function.directives {
            attributes.directive(directive);
        }
        Kernel {
            name: function.name.as_str().into(),
            attributes,
            params: function.signature.params.fields.clone(),
            params_size: function.signature.params.size as u32,
            module: Weak::clone(module),
            function: at,
            rows_matter,
            groups_matter: in_vectors.then_some(waits),
            codes: [const { OnceLock::new() }; 5],
        }
    }

    /// Its code for blocks of this shape, compiled on first use. What launches it keeps the module
    /// for as long as it runs.
    ///
    /// # Errors
    /// What the compiler could not do; the same each time.
    pub fn compile_for(&self, block: [u32; 3]) -> Result<Compiled, CompileError> {
        let rows = match self.groups_matter.map(|waits| Rows::of(block, waits)) {
            Some(Rows::OfWarps) if !self.rows_matter => Rows::Any,
            rows => rows.unwrap_or(Rows::Any),
        };
        self.code(rows).map(|code| code.compiled)
    }

    /// The same for blocks of the shape that it requires, or of the usual one.
    ///
    /// # Errors
    /// As above.
    pub fn compile(&self) -> Result<Compiled, CompileError> {
        self.compile_for(self.attributes.reqntid.unwrap_or([32, 1, 1]))
    }

    /// How long it took to compile, and the bytes of machine code, once it is.
    #[cfg(test)]
    pub fn compile_cost(&self) -> Option<(Duration, usize)> {
        let code = self.codes[0].get()?.as_ref().ok()?;
        Some((code.time, code.size))
    }

    /// Its number among the functions of the module.
    #[cfg(test)]
    pub fn function(&self) -> u32 {
        self.function
    }

    /// Whether its code came from the cache, once it has any.
    #[cfg(test)]
    pub fn is_cached(&self) -> Option<bool> {
        Some(self.codes[0].get()?.as_ref().ok()?.cached)
    }

    fn code(&self, rows: Rows) -> Result<&Code, CompileError> {
        // Each kernel has cells of its own, so threads compile different kernels at once.
        let [usual, other, none, row, across] = &self.codes;
        let code = match rows {
            Rows::OfWarps => usual,
            Rows::Any if self.rows_matter => other,
            Rows::Any => usual,
            Rows::WithRest | Rows::Across => none,
            Rows::RowAndRest => row,
            Rows::AcrossAndRest => across,
        };
        let code = code.get_or_init(|| self.make_code(rows));
        code.as_ref().map_err(Clone::clone)
    }

    /// Its code from the cache, or else from the compiler.
    fn make_code(&self, rows: Rows) -> Result<Code, CompileError> {
        let start = Instant::now();
        let module = self.module();
        compile::check_reachable(&module.program, self.function)?;
        let mode = match (module.facts[self.function as usize].mode(), module.form) {
            (Mode::Rounds, Form::Fibers) => Mode::Fibers,
            (mode, _) => mode,
        };
        let how = How {
            mode,
            vectors: module.form == Form::Vectors,
            rows,
        };
        let kept = module.cache.as_ref().map(|(cache, source)| {
            let key = Key::new(source, self.function, &self.name, how);
            (cache, key)
        });
        let found = kept.as_ref().and_then(|(cache, key)| {
            // An object that does not fit is as bad as none.
            Code::load(cache.get(key)?, &module.program).ok()
        });
        let cached = found.is_some();
        let mut code = match found {
            Some(code) => code,
            None => {
                let object = compile::compile(&module.program, self.function, how)?;
                if let Some((cache, key)) = &kept {
                    cache.put(key, &object);
                }
                // So every test runs code that could as well come from the cache.
                #[cfg(test)]
                let object = object.again();
                Code::load(object, &module.program)
                    .map_err(|what| CompileError::new(&self.name, what))?
            }
        };
        code.cached = cached;
        code.time = start.elapsed();
        tracing::debug!(
            kernel = &*self.name,
            time = ?code.time,
            bytes = code.size,
            mode = ?code.compiled.mode,
            cached,
            "compiled"
        );
        Ok(code)
    }

    /// The module that it is in.
    pub fn module(&self) -> Arc<Module> {
        self.module
            .upgrade()
            .expect("whoever uses a kernel holds its module")
    }
}

impl Attributes {
    fn directive(&mut self, directive: &FunctionDirective) {
        let FunctionDirective::Numbers(name, numbers) = directive else {
            return;
        };
        let at = |n: usize| numbers.get(n).copied().unwrap_or(1);
        let dims = [at(0), at(1), at(2)];
        let threads = dims
            .iter()
            .fold(1u32, |threads, dim| threads.saturating_mul(*dim));
        match name.as_str() {
            "maxntid" => {
                self.maxntid = Some(dims);
                self.max_threads = self.max_threads.min(threads.max(1));
            }
            "reqntid" => {
                self.reqntid = Some(dims);
                self.max_threads = self.max_threads.min(threads.max(1));
            }
            "minnctapersm" => self.min_blocks = numbers.first().copied(),
            "reqnctapercluster" => {
                self.cluster = Some(dims);
                self.cluster_must_be_set = true;
            }
            "explicitcluster" => self.cluster_must_be_set = true,
            "maxclusterrank" => self.max_cluster_rank = numbers.first().copied(),
            "maxnreg" => self.registers = self.registers.min(at(0).max(1)),
            _ => {}
        }
    }
}

/// A line for each instruction that is right PTX and not run.
fn warnings(program: &Program) -> String {
    let mut log = String::new();
    for function in &program.functions {
        for refusal in function.body.iter().flat_map(|body| &body.not_run) {
            let (line, what) = (refusal.pos.line, &refusal.what);
            let _ = writeln!(
                log,
                "ptxas application ptx input, line {line}; warning : {what} by softcuda: \
                 a launch that reaches `{}` fails",
                function.name
            );
        }
    }
    log
}

/// Comments and blank space, then a directive: whatever does not begin so was never meant as PTX.
fn looks_like_ptx(source: &[u8]) -> bool {
    let mut rest = source;
    loop {
        rest = rest.trim_ascii_start();
        if let Some(comment) = rest.strip_prefix(b"//") {
            let end = comment.iter().position(|byte| *byte == b'\n');
            rest = &comment[end.unwrap_or(comment.len())..];
        } else if let Some(comment) = rest.strip_prefix(b"/*") {
            let end = comment.windows(2).position(|two| two == b"*/");
            rest = end.map_or(&[][..], |end| &comment[end + 2..]);
        } else {
            return rest.starts_with(b".version");
        }
    }
}

fn parse_error(source: &[u8], errors: &ptx::Errors, options: &LoadOptions) -> LoadError {
    // A later version may have syntax that is unknown here: then that is what is wrong.
    if let Some(version) = version_of(source)
        && version > options.newest
    {
        return unsupported(version, options.newest);
    }
    let mut log = String::new();
    for error in errors.iter() {
        let _ = writeln!(
            log,
            "ptxas application ptx input, line {}; fatal   : Parsing error near {}: expected {}",
            error.pos.line, error.found, error.expected
        );
    }
    let _ = write!(log, "ptxas fatal   : Ptx assembly aborted due to errors");
    LoadError::new(LoadErrorKind::InvalidPtx, log)
}

/// The version that a source says it has, also where the rest of it is not understood.
fn version_of(source: &[u8]) -> Option<(u32, u32)> {
    let at = source.windows(8).position(|word| word == b".version")?;
    let rest = std::str::from_utf8(source.get(at + 8..(at + 40).min(source.len()))?).ok()?;
    let (major, rest) = rest.trim_start().split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn unsupported((major, minor): (u32, u32), newest: (u32, u32)) -> LoadError {
    LoadError::new(
        LoadErrorKind::UnsupportedPtxVersion,
        format!(
            "ptxas application ptx input, line 1; fatal   : Unsupported .version {major}.{minor}; current version is '{}.{}'",
            newest.0, newest.1
        ),
    )
}

fn check_header(tree: &ptx::ast::Module, options: &LoadOptions) -> Result<(), LoadError> {
    if tree.version > options.newest {
        return Err(unsupported(tree.version, options.newest));
    }
    let target = tree.target.first().map_or("", String::as_str);
    match capability(target) {
        Some(capability) if capability > options.capability => Err(LoadError::new(
            LoadErrorKind::NoBinaryForGpu,
            format!(
                "ptxas fatal   : PTX code for {target} does not run on a device of compute capability {}.{}",
                options.capability / 10,
                options.capability % 10
            ),
        )),
        None => Err(LoadError::new(
            LoadErrorKind::InvalidPtx,
            format!("ptxas fatal   : Unknown target '{target}'"),
        )),
        Some(capability) if tree.version < first_version(capability) => Err(LoadError::new(
            LoadErrorKind::InvalidPtx,
            format!("ptxas fatal   : PTX of this version does not know target '{target}'"),
        )),
        Some(_) if tree.address_size != 64 => Err(LoadError::new(
            LoadErrorKind::InvalidPtx,
            "ptxas fatal   : 32-bit addresses are not supported",
        )),
        Some(_) => Ok(()),
    }
}

/// The version of PTX that brought a target.
fn first_version(capability: u32) -> (u32, u32) {
    match capability {
        ..=61 => (0, 0),
        62..=70 => (6, 0),
        71..=72 => (6, 1),
        73..=75 => (6, 3),
        76..=80 => (7, 0),
        81..=86 => (7, 1),
        87 => (7, 4),
        88..=90 => (7, 8),
        91..=101 => (8, 6),
        102..=120 => (8, 7),
        121.. => (8, 8),
    }
}

/// `sm_90`, `sm_90a`: 90.
fn capability(target: &str) -> Option<u32> {
    let number = target
        .strip_prefix("sm_")
        .or_else(|| target.strip_prefix("compute_"))?;
    number
        .trim_end_matches(|c: char| c.is_ascii_lowercase())
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_versions_are_taken_as_far_as_they_are_known() {
        for (text, version) in [
            ("9.0", Some((9, 0))),
            ("9.5", Some((9, 5))),
            ("9.6", None),
            ("8.8", None),
            ("9", None),
            ("", None),
            ("9.x", None),
        ] {
            assert_eq!(parse_newest(text), version, "{text}");
        }
    }
}
