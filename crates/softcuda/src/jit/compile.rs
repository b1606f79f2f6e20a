//! A kernel and the functions it can reach become native code.
//!
//! Each kernel is compiled by itself, with its own copies of the functions it reaches: the layout
//! of shared memory, the numbers of access sites and the mode (loop or fiber) are the kernel's.
//! Nothing is shared between compilations, so they can run on any thread.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cranelift_codegen::ir::{self, AbiParam, InstBuilder, types};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, ModuleError};
use parking_lot::Mutex;

use super::analysis;
use super::decode::Callee;
use super::dump::Dump;
use super::layout::align_up;
use super::liveness::{self, Kept};
use super::lower;
use super::module::Compiled;
use super::program::{Body, Program, Signature, Step};
use super::runtime::RuntimeFn;
use super::runtime::access::Access;
use super::spmd::Plan;
use crate::grid::context::{KernelFn, Mode, ThreadContext};
use crate::grid::rounds::Wait;

/// The largest frame that a compiled function may take of the native stack: what the grid leaves
/// below the limit that functions compare with must hold one, and what runtime functions need.
const MAX_NATIVE_FRAME: u32 = 16 << 10;
/// The largest frame of a kernel, for which the grid makes room: thousands of registers at once,
/// and arguments of calls.
const MAX_KERNEL_FRAME: u32 = 1 << 20;
/// The most instructions of one compilation: beyond, it would take minutes.
const MAX_INSTRUCTIONS: usize = 400_000;
/// The most waits times registers of a kernel that runs in rounds: each register is defined anew
/// where a thread goes on.
const MAX_DEFINITIONS: usize = 1 << 22;

/// Why a kernel could not be compiled.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{kernel}` cannot be compiled: {what}")]
pub(crate) struct CompileError {
    kernel: String,
    what: String,
}

/// Native code of a kernel.
pub(crate) struct Code {
    /// What the grid runs.
    pub compiled: Compiled,
    /// How long compilation took.
    pub time: Duration,
    /// Bytes of machine code.
    pub size: usize,
    /// What indirect calls look their target up in; compiled code has its address.
    _table: Box<[Target]>,
    /// Accesses that it refers to.
    #[expect(clippy::vec_box, reason = "compiled code has their addresses")]
    _accesses: Vec<Box<Access>>,
    /// The places where its threads wait, in rounds; compiled code has the address.
    _waits: Box<[Wait]>,
    /// Owns the memory that the code is in.
    module: Mutex<Option<JITModule>>,
}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.module.lock().take() {
            // SAFETY: a launch keeps the module of its kernel, and so this code, for as long as it
            // runs.
            unsafe { module.free_memory() };
        }
    }
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

/// Where the shared variables of a kernel lie.
#[derive(Debug, Default)]
pub(crate) struct SharedLayout {
    offsets: HashMap<u32, u64>,
    /// The bytes that static variables take.
    pub used: u64,
    /// Where dynamic shared memory starts.
    pub dynamic: u64,
}

impl SharedLayout {
    /// The layout of the variables that these functions name.
    fn of<'a>(program: &Program, bodies: impl Iterator<Item = &'a Body>) -> SharedLayout {
        let mut named: Vec<u32> = bodies
            .flat_map(|body| body.uses.shared.iter().copied())
            .collect();
        named.sort_unstable();
        named.dedup();
        let mut layout = SharedLayout::default();
        let (dynamic, fixed): (Vec<u32>, Vec<u32>) = named
            .into_iter()
            .partition(|at| program.shared[*at as usize].dynamic);
        let (reserved, fixed): (Vec<u32>, Vec<u32>) = fixed
            .into_iter()
            .partition(|at| program.shared[*at as usize].reserved);
        let mut end = 0;
        let mut place = |layout: &mut SharedLayout, at: u32| {
            let variable = &program.shared[at as usize];
            let offset = align_up(end, variable.align);
            layout.offsets.insert(at, offset);
            end = offset + variable.size;
            end
        };
        for at in fixed {
            layout.used = place(&mut layout, at);
        }
        for at in reserved {
            place(&mut layout, at);
        }
        let align = dynamic
            .iter()
            .map(|at| program.shared[*at as usize].align)
            .max();
        layout.dynamic = align_up(end, align.unwrap_or(1));
        for at in dynamic {
            layout.offsets.insert(at, layout.dynamic);
        }
        layout
    }

    /// The shared address of a variable.
    pub fn offset(&self, at: u32) -> u64 {
        self.offsets.get(&at).copied().unwrap_or(0)
    }
}

/// The functions that a kernel can reach, itself first.
pub(crate) fn reachable(program: &Program, kernel: u32) -> Vec<u32> {
    let mut found = vec![kernel];
    let mut next = 0;
    let mut indirect = false;
    let mut seen = vec![false; program.functions.len()];
    seen[kernel as usize] = true;
    while let Some(at) = found.get(next).copied() {
        next += 1;
        let Some(body) = &program.functions[at as usize].body else {
            continue;
        };
        let mut add = |at: u32| {
            if !std::mem::replace(&mut seen[at as usize], true) {
                found.push(at);
            }
        };
        for step in &body.steps {
            let Step::Instruction(instruction) = step else {
                continue;
            };
            match instruction.operation.callee() {
                Callee::None | Callee::Device => {}
                Callee::Function(at) => add(at),
                Callee::Indirect if !indirect => {
                    indirect = true;
                    program.address_taken.iter().copied().for_each(&mut add);
                }
                Callee::Indirect => {}
            }
        }
    }
    found.retain(|at| program.functions[*at as usize].body.is_some());
    found
}

/// The layout of a kernel's shared memory.
pub(crate) fn shared_layout(program: &Program, kernel: u32) -> SharedLayout {
    let reachable = reachable(program, kernel);
    SharedLayout::of(program, bodies(program, &reachable))
}

fn bodies<'a>(program: &'a Program, functions: &'a [u32]) -> impl Iterator<Item = &'a Body> {
    functions
        .iter()
        .filter_map(|at| program.functions[*at as usize].body.as_ref())
}

/// One compilation.
pub(crate) struct Unit {
    /// The module.
    pub program: Arc<Program>,
    /// The kernel's shared memory.
    pub shared: SharedLayout,
    /// How the kernel runs a block.
    pub mode: Mode,
    /// Neighbouring threads run together where they can.
    pub vectors: bool,
    /// In rounds: threads of the kernel may spin, so that polls are waits.
    pub spins: bool,
    /// In rounds: what threads of the kernel keep while they wait.
    pub live: Kept,
    /// In rounds: the bytes that each thread keeps.
    pub kept: u32,
    /// In rounds: the places where the kernel's threads wait, in source order; compiled code has
    /// their address.
    pub waits: Box<[Wait]>,
    jit: JITModule,
    functions: HashMap<u32, FuncId>,
    runtime: HashMap<usize, FuncId>,
    /// Stubs that call a runtime function and leave all registers as they are.
    cold: HashMap<usize, (&'static RuntimeFn, FuncId)>,
    symbols: Symbols,
    sites: u32,
    table: Box<[Target]>,
    #[expect(clippy::vec_box, reason = "compiled code has their addresses")]
    accesses: Vec<Box<Access>>,
}

/// Names of runtime functions that this compilation calls, and where they are.
type Symbols = Arc<Mutex<HashMap<String, usize>>>;

impl Unit {
    /// The number of a new access site.
    pub fn site(&mut self) -> u32 {
        self.sites += 1;
        self.sites - 1
    }

    /// The table that indirect calls use: its address and length.
    pub fn table(&mut self) -> (u64, u64) {
        if self.table.is_empty() {
            self.table = vec![Target::NONE; self.program.functions.len()].into();
        }
        (self.table.as_ptr() as u64, self.table.len() as u64)
    }

    /// The address of accesses for compiled code, which live as long as it.
    pub fn keep(&mut self, access: Access) -> u64 {
        let access = Box::new(access);
        let address = &raw const *access as u64;
        self.accesses.push(access);
        address
    }

    /// A function of the module.
    pub fn function(&self, at: u32) -> FuncId {
        self.functions[&at]
    }

    /// A runtime function.
    pub fn runtime(&mut self, function: &'static RuntimeFn) -> FuncId {
        let address = (function.address)();
        if let Some(id) = self.runtime.get(&address) {
            return *id;
        }
        let mut signature = ir::Signature::new(CallConv::triple_default(self.jit.isa().triple()));
        signature
            .params
            .extend(function.params.iter().map(|ty| AbiParam::new(*ty)));
        signature
            .returns
            .extend(function.result.iter().map(|ty| AbiParam::new(*ty)));
        // Two families may use one name, so the address is part of it.
        let name = format!("{}@{address:x}", function.name);
        let id = self
            .jit
            .declare_function(&name, Linkage::Import, &signature)
            .expect("the name is new");
        self.symbols.lock().insert(name, address);
        self.runtime.insert(address, id);
        id
    }

    /// A stub for a runtime function with a status, to be called in cold paths: it changes no
    /// register, and puts the status into the `ThreadContext`, which is the function's first
    /// argument. So values that live across the call need not be spilled on the hot path.
    pub fn cold(&mut self, function: &'static RuntimeFn) -> FuncId {
        let address = (function.address)();
        if let Some((_, id)) = self.cold.get(&address) {
            return *id;
        }
        let signature = cold_signature(function);
        let name = format!("cold {}@{address:x}", function.name);
        let id = self
            .jit
            .declare_function(&name, Linkage::Local, &signature)
            .expect("the name is new");
        self.cold.insert(address, (function, id));
        id
    }

    fn define_cold(
        &mut self,
        context: &mut cranelift_codegen::Context,
        builder_context: &mut FunctionBuilderContext,
    ) -> Result<(), String> {
        let stubs: Vec<_> = self.cold.values().copied().collect();
        for (function, id) in stubs {
            context.func.signature = cold_signature(function);
            context.func.name = ir::UserFuncName::user(0, id.as_u32());
            let callee = self.runtime(function);
            let callee = self.import(callee, &mut context.func);
            let mut b = FunctionBuilder::new(&mut context.func, builder_context);
            let block = b.create_block();
            b.append_block_params_for_function_params(block);
            b.switch_to_block(block);
            b.seal_block(block);
            let args = b.block_params(block).to_vec();
            let call = b.ins().call(callee, &args);
            let status = b.inst_results(call)[0];
            let offset = std::mem::offset_of!(ThreadContext, status) as i32;
            b.ins()
                .store(ir::MemFlags::trusted(), status, args[0], offset);
            b.ins().return_(&[]);
            b.finalize();
            self.jit.define_function(id, context).map_err(describe)?;
            self.jit.clear_context(context);
        }
        Ok(())
    }

    /// Makes a function known to the one being compiled.
    pub fn import(&mut self, function: FuncId, into: &mut ir::Function) -> ir::FuncRef {
        let reference = self.jit.declare_func_in_func(function, into);
        // Code is placed function by function, anywhere: a call must be able to reach all of the
        // address space.
        into.dfg.ext_funcs[reference].colocated = false;
        reference
    }

    /// The signature of device functions.
    pub fn device_signature(&self) -> ir::Signature {
        let mut signature = self.kernel_signature();
        signature.params.extend([AbiParam::new(types::I64); 2]);
        signature
    }

    fn kernel_signature(&self) -> ir::Signature {
        let mut signature = ir::Signature::new(CallConv::triple_default(self.jit.isa().triple()));
        signature.params.extend([AbiParam::new(types::I64); 2]);
        signature.returns.push(AbiParam::new(types::I32));
        signature
    }
}

fn cold_signature(function: &RuntimeFn) -> ir::Signature {
    let mut signature = ir::Signature::new(CallConv::PreserveAll);
    signature
        .params
        .extend(function.params.iter().map(|ty| AbiParam::new(*ty)));
    signature
}

/// The machine that we compile for: this one, with what it has.
fn isa() -> Result<OwnedTargetIsa, String> {
    static ISA: OnceLock<Result<OwnedTargetIsa, String>> = OnceLock::new();
    ISA.get_or_init(|| {
        let mut flags = settings::builder();
        for (name, value) in [
            ("opt_level", "speed"),
            ("is_pic", "false"),
            ("use_colocated_libcalls", "false"),
            ("unwind_info", "false"),
            ("enable_probestack", "false"),
            (
                "enable_verifier",
                if cfg!(debug_assertions) {
                    "true"
                } else {
                    "false"
                },
            ),
        ] {
            flags.set(name, value).map_err(|error| error.to_string())?;
        }
        cranelift_native::builder()?
            .finish(settings::Flags::new(flags))
            .map_err(|error| error.to_string())
    })
    .clone()
}

/// Compiles a kernel.
pub(crate) fn compile(
    program: &Arc<Program>,
    kernel: u32,
    mode: Mode,
    vectors: bool,
) -> Result<Code, CompileError> {
    // A mistake of ours, or a limit of Cranelift that it enforces by panicking, must not take the
    // program down.
    let result = catch_unwind(AssertUnwindSafe(|| {
        compile_unit(program, kernel, mode, vectors)
    }));
    let what = match result {
        Ok(Ok(code)) => return Ok(code),
        Ok(Err(what)) => what,
        Err(panic) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "the compiler panicked".into()),
    };
    // A frame that is too large for vectors may do for one thread.
    if vectors && !cfg!(test) {
        tracing::warn!(
            "{}: no vectors: {what}",
            program.functions[kernel as usize].name
        );
        return compile(program, kernel, mode, false);
    }
    Err(CompileError {
        kernel: program.functions[kernel as usize].name.clone(),
        what,
    })
}

/// What threads of a kernel keep where they wait; `None` for a kernel that is too large.
fn kept(program: &Program, kernel: u32) -> Option<Kept> {
    let body = program.functions[kernel as usize].body.as_ref()?;
    let waits = analysis::waits_in_rounds(body);
    let definitions = waits.len().checked_mul(body.tables.registers.len())?;
    (definitions <= MAX_DEFINITIONS).then(|| liveness::kept(body, &waits))?
}

fn compile_unit(
    program: &Arc<Program>,
    kernel: u32,
    mode: Mode,
    vectors: bool,
) -> Result<Code, String> {
    let start = Instant::now();
    let functions = reachable(program, kernel);
    let instructions: usize = bodies(program, &functions)
        .map(|body| body.steps.len())
        .sum();
    if instructions > MAX_INSTRUCTIONS {
        return Err(format!("{instructions} instructions are too many"));
    }
    let shared = SharedLayout::of(program, bodies(program, &functions));
    let live = match mode {
        Mode::Rounds => kept(program, kernel),
        _ => None,
    };
    let mode = match (mode, &live) {
        (Mode::Rounds, None) => Mode::Fibers,
        (mode, _) => mode,
    };
    let body = program.functions[kernel as usize].body.as_ref();
    let spins = mode == Mode::Rounds && body.is_some_and(analysis::spins);
    let symbols = Symbols::default();
    let mut builder = JITBuilder::with_isa(isa()?, cranelift_module::default_libcall_names());
    let known = Arc::clone(&symbols);
    builder.symbol_lookup_fn(Box::new(move |name| {
        known.lock().get(name).map(|address| *address as *const u8)
    }));
    let mut unit = Unit {
        program: Arc::clone(program),
        shared,
        mode,
        vectors,
        spins,
        live: live.unwrap_or_default(),
        kept: 0,
        waits: Box::new([]),
        jit: JITModule::new(builder),
        functions: HashMap::new(),
        runtime: HashMap::new(),
        cold: HashMap::new(),
        symbols,
        sites: 0,
        table: Box::new([]),
        accesses: vec![],
    };
    let result = unit.define(&functions);
    let entry = match result.and_then(|sizes| {
        unit.jit
            .finalize_definitions()
            .map_err(describe)
            .map(|()| sizes)
    }) {
        Ok((size, frame)) => {
            for at in &functions {
                if let Some(target) = unit.table.get_mut(*at as usize) {
                    *target = Target {
                        code: unit.jit.get_finalized_function(unit.functions[at]) as u64,
                        blocks: Target::blocks(&program.functions[*at as usize].signature),
                    };
                }
            }
            if let Some(target) = unit.table.get_mut(kernel as usize) {
                *target = Target::NONE;
            }
            let code = unit.jit.get_finalized_function(unit.functions[&kernel]);
            // SAFETY: the code was compiled with the signature that `KernelFn` is.
            let entry = unsafe { std::mem::transmute::<*const u8, KernelFn>(code) };
            Ok((entry, size, frame))
        }
        Err(what) => Err(what),
    };
    let Unit {
        jit,
        table,
        accesses,
        waits,
        kept,
        mode,
        sites,
        ..
    } = unit;
    match entry {
        Ok((entry, size, frame)) => Ok(Code {
            compiled: Compiled {
                entry,
                mode,
                kept,
                sites,
                frame,
                spins,
            },
            time: start.elapsed(),
            size,
            _table: table,
            _accesses: accesses,
            _waits: waits,
            module: Mutex::new(Some(jit)),
        }),
        Err(what) => {
            // SAFETY: nothing of it was handed out.
            unsafe { jit.free_memory() };
            Err(what)
        }
    }
}

impl Unit {
    /// Lowers and compiles each function; the bytes of machine code, and of the kernel's frame.
    fn define(&mut self, functions: &[u32]) -> Result<(usize, u32), String> {
        let program = Arc::clone(&self.program);
        for at in functions {
            let signature = match program.functions[*at as usize].kernel {
                true => self.kernel_signature(),
                false => self.device_signature(),
            };
            // Names of functions may be anything, so the number keeps them apart from runtime
            // functions.
            let name = format!("{}#{at}", program.functions[*at as usize].name);
            let id = self
                .jit
                .declare_function(&name, Linkage::Local, &signature)
                .map_err(describe)?;
            self.functions.insert(*at, id);
        }
        let (mut size, mut kernel_frame) = (0, 0);
        let mut context = self.jit.make_context();
        let mut builder_context = FunctionBuilderContext::new();
        for at in functions {
            let function = &program.functions[*at as usize];
            let Some(body) = &function.body else {
                continue;
            };
            let id = self.functions[at];
            let dump = Dump::of(&program, *at);
            context.func.signature = match function.kernel {
                true => self.kernel_signature(),
                false => self.device_signature(),
            };
            context.func.name = ir::UserFuncName::user(0, id.as_u32());
            context.set_disasm(dump.wanted());
            if dump.wanted()
                && self.vectors
                && let Some(plan) = Plan::of(function, body)
            {
                dump.planned(&plan);
            }
            lower::function::lower(
                self,
                function,
                body,
                &mut context.func,
                &mut builder_context,
            );
            dump.lowered(&context.func);
            self.jit
                .define_function(id, &mut context)
                .map_err(|error| format!("{}: {}", function.name, describe(error)))?;
            if let Some(code) = context.compiled_code() {
                size += code.code_buffer().len();
                dump.compiled(&context.func, code);
                let frame = code
                    .buffer
                    .frame_layout()
                    .map_or(0, |layout| layout.frame_to_fp_offset);
                let most = if function.kernel {
                    kernel_frame = frame;
                    MAX_KERNEL_FRAME
                } else {
                    MAX_NATIVE_FRAME
                };
                if frame > most {
                    return Err(format!(
                        "{}: a native frame of {frame} bytes is too large",
                        function.name
                    ));
                }
            }
            self.jit.clear_context(&mut context);
        }
        self.define_cold(&mut context, &mut builder_context)?;
        Ok((size, kernel_frame))
    }
}

fn describe(error: ModuleError) -> String {
    match error {
        ModuleError::Compilation(error) => format!("{error:?}"),
        error => error.to_string(),
    }
}
