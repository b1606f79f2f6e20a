//! A kernel and the functions it can reach become native code.
//!
//! Each kernel is compiled by itself, with its own copies of the functions it reaches: the layout
//! of shared memory, the numbers of access sites and the mode (loop or fiber) are the kernel's.
//! Nothing is shared between compilations, so they can run on any thread, and several at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, AbiParam, InstBuilder, MemFlags, Value, types};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::print_errors::pretty_error;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{CodegenResult, Context};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use parking_lot::Mutex;

use super::analysis;
use super::blocks;
use super::code::Target;
use super::decode::Callee;
use super::dump::Dump;
use super::layout::align_up;
use super::liveness::{self, Kept};
use super::lower;
use super::object::{Image, Name, Object, Outside, Piece, Reached};
use super::program::{Body, Program, Step};
use super::runtime::access::{self, Access};
use super::runtime::arrays::Array;
use super::runtime::{self, RuntimeFn};
use super::schedule;
use super::spins::spins;
use super::spmd::{Plan, Rows};
#[cfg(target_arch = "x86_64")]
use super::stand_ins;
use super::tiles::Tiles;
use super::{constants, exits, phis};
use crate::grid::context::{Asked, BlockContext, CONTINUE, Mode, ThreadContext};
use crate::grid::rounds::Wait;

/// The largest frame that a compiled function may take of the native stack: what the grid leaves
/// below the limit that functions compare with must hold one, and what runtime functions need.
pub(crate) const MAX_NATIVE_FRAME: u32 = 16 << 10;
/// The largest frame of a kernel, for which the grid makes room: thousands of registers at once,
/// and arguments of calls.
const MAX_KERNEL_FRAME: u32 = 1 << 20;
/// The most instructions of one compilation: beyond, it would take minutes.
const MAX_INSTRUCTIONS: usize = 400_000;
/// The most waits times registers of a kernel that runs in rounds: each register is defined anew
/// where a thread goes on.
const MAX_DEFINITIONS: usize = 1 << 22;

/// The most arrays of a kernel: they are looked up at each launch.
const MOST_ARRAYS: usize = 64;

/// Why a kernel could not be compiled.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{kernel}` cannot be compiled: {what}")]
pub(crate) struct CompileError {
    kernel: String,
    what: String,
    /// It reaches an instruction that is right PTX and not run.
    pub unsupported: bool,
}

impl CompileError {
    /// Says what is wrong with a kernel.
    pub fn new(kernel: &str, what: String) -> CompileError {
        CompileError {
            kernel: kernel.to_owned(),
            what,
            unsupported: false,
        }
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

/// A kernel that reaches what is not run is not compiled.
pub(crate) fn check_reachable(program: &Program, kernel: u32) -> Result<(), CompileError> {
    for at in reachable(program, kernel) {
        let function = &program.functions[at as usize];
        let body = function.body.as_ref();
        let Some(refusal) = body.and_then(|body| body.not_run.first()) else {
            continue;
        };
        let (line, what) = (refusal.pos.line, &refusal.what);
        return Err(CompileError {
            kernel: program.functions[kernel as usize].name.clone(),
            what: format!("line {line}, in `{}`: {what}", function.name),
            unsupported: true,
        });
    }
    Ok(())
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
    /// The blocks that it is for.
    pub rows: Rows,
    /// In rounds: threads of the kernel may spin, so that polls are waits.
    pub spins: bool,
    /// Blocks may go through a loop in step.
    pub passes: bool,
    /// Threads may add to integers [aside](crate::grid::sums).
    pub sums: bool,
    /// Its functions have frames in local memory, which addresses may point to.
    pub local: bool,
    /// In rounds: what threads of the kernel keep while they wait.
    pub live: Kept,
    /// The bytes of each thread that matrix products take behind a warp's tile.
    pub operands: u32,
    /// The same, and in rounds the bytes that each thread keeps.
    pub kept: u32,
    /// In rounds: the places where the kernel's threads wait, in source order.
    pub waits: Box<[Wait]>,
    isa: OwnedTargetIsa,
    /// Runtime functions that are called through stubs, which leave all registers as they are.
    cold: BTreeSet<u32>,
    sites: u32,
    /// The code calls functions by their addresses.
    table: bool,
    accesses: Vec<Access>,
    arrays: Vec<Array>,
    image: Image,
}

impl Unit {
    /// The number of a new access site.
    pub fn site(&mut self) -> u32 {
        self.sites += 1;
        self.sites - 1
    }

    /// How many entries the table of indirect calls has.
    pub fn table(&mut self) -> u64 {
        self.table = true;
        self.program.functions.len() as u64
    }

    /// The number of an array; `None` if there are too many.
    pub fn array(&mut self, array: Array) -> Option<u32> {
        let known = self.arrays.iter().position(|known| *known == array);
        let number = known.unwrap_or(self.arrays.len());
        if number == MOST_ARRAYS {
            return None;
        }
        if known.is_none() {
            self.arrays.push(array);
        }
        Some(number as u32)
    }

    /// The number of accesses that compiled code looks up.
    pub fn keep(&mut self, access: Access) -> u32 {
        self.accesses.push(access);
        self.accesses.len() as u32 - 1
    }

    /// A stub for a runtime function with a status, to be called in cold paths: it changes no
    /// register, and puts the status into the `ThreadContext`, which is the function's first
    /// argument. So values that live across the call need not be spilled on the hot path.
    pub fn cold(&mut self, function: &'static RuntimeFn) -> Name {
        let number = runtime::number(function);
        self.cold.insert(number);
        if std::ptr::eq(function, &access::RESOLVE_ELSEWHERE) {
            self.cold.insert(runtime::number(&access::RESOLVE));
        }
        Name::Cold(number)
    }

    /// Adds the stubs. They are the same for all kernels, so each is compiled once.
    fn define_cold(&mut self, compiler: &mut Compiler) -> Result<(), String> {
        static STUBS: Mutex<BTreeMap<u32, Arc<Piece>>> = Mutex::new(BTreeMap::new());
        for number in std::mem::take(&mut self.cold) {
            let known = STUBS.lock().get(&number).map(Arc::clone);
            let stub = match known {
                Some(stub) => stub,
                None => {
                    let stub = Arc::new(self.compile_cold(number, compiler)?);
                    STUBS.lock().insert(number, Arc::clone(&stub));
                    stub
                }
            };
            self.image.place(Name::Cold(number), &stub)?;
        }
        Ok(())
    }

    fn compile_cold(&mut self, number: u32, compiler: &mut Compiler) -> Result<Piece, String> {
        let looks = number == runtime::number(&access::RESOLVE_ELSEWHERE);
        let callee = match looks {
            // Two stubs, so that what does not go beyond this one saves no more than it changes.
            true => Name::Cold(runtime::number(&access::RESOLVE)),
            false => Name::Outside(Outside::Runtime(number)),
        };
        let context = &mut compiler.context;
        context.func.signature = self.signature(Name::Cold(number));
        let callee = self.import(callee, &mut context.func);
        let mut b = FunctionBuilder::new(&mut context.func, &mut compiler.builder);
        let block = b.create_block();
        b.append_block_params_for_function_params(block);
        b.switch_to_block(block);
        b.seal_block(block);
        let args = b.block_params(block).to_vec();
        if looks {
            return_if_in_site(&mut b, args[0]);
        }
        let call = b.ins().call(callee, &args);
        if let Some(status) = b.inst_results(call).first().copied() {
            set_status(&mut b, args[0], status);
        }
        b.ins().return_(&[]);
        b.finalize();
        let (stub, _) = compiler.compile(&self.isa, &Dump::NONE)?;
        Ok(stub)
    }

    /// Makes a function known to the one being compiled.
    pub fn import(&self, name: Name, into: &mut ir::Function) -> ir::FuncRef {
        let signature = into.import_signature(self.signature(name));
        let external = into.declare_imported_user_function(name.external());
        into.import_function(ir::ExtFuncData {
            name: ir::ExternalName::user(external),
            signature,
            // The kernel's functions lie together. A call of any other must be able to reach all of
            // the address space.
            colocated: !matches!(name, Name::Outside(_)),
            patchable: false,
        })
    }

    /// The signature of a function.
    fn signature(&self, name: Name) -> ir::Signature {
        let runtime = |number| runtime::numbered(number).expect("the number is a function's");
        let (convention, function) = match name {
            Name::Function(at) if self.program.functions[at as usize].kernel => {
                return self.kernel_signature();
            }
            Name::Function(_) => return self.device_signature(),
            Name::Second(_) => return self.kernel_signature(),
            Name::Cold(number) => (CallConv::PreserveAll, runtime(number)),
            Name::Outside(Outside::Runtime(number)) => match runtime(number) {
                function if function.keeps_vectors => (CallConv::WindowsFastcall, function),
                function => (self.convention(), function),
            },
            Name::Outside(data) => unreachable!("{data:?} is no function"),
        };
        let mut signature = ir::Signature::new(convention);
        let params = function.params.iter().map(|ty| AbiParam::new(*ty));
        signature.params.extend(params);
        if let Name::Outside(_) = name {
            let results = function.result.iter().map(|ty| AbiParam::new(*ty));
            signature.returns.extend(results);
        }
        signature
    }

    /// The signature of device functions.
    pub fn device_signature(&self) -> ir::Signature {
        let mut signature = self.kernel_signature();
        signature.params.extend([AbiParam::new(types::I64); 2]);
        signature
    }

    fn kernel_signature(&self) -> ir::Signature {
        let mut signature = ir::Signature::new(self.convention());
        signature.params.extend([AbiParam::new(types::I64); 2]);
        signature.returns.push(AbiParam::new(types::I32));
        signature
    }

    fn convention(&self) -> CallConv {
        CallConv::triple_default(self.isa.triple())
    }
}

/// In a stub: puts the status where code looks for it.
fn set_status(b: &mut FunctionBuilder<'_>, thread: Value, status: Value) {
    let offset = offset_of!(ThreadContext, status) as i32;
    b.ins().store(MemFlags::trusted(), status, thread, offset);
}

/// In a stub: returns where the accesses that a thread asks for are where its site's last one was.
fn return_if_in_site(b: &mut FunctionBuilder<'_>, thread: Value) {
    let flags = MemFlags::trusted();
    let field = |b: &mut FunctionBuilder<'_>, ty, from, at: usize| {
        let value = b.ins().load(ty, flags, from, at as i32);
        match ty {
            types::I32 => b.ins().uextend(types::I64, value),
            _ => value,
        }
    };
    let asked = offset_of!(ThreadContext, asked);
    let number = field(b, types::I32, thread, asked + offset_of!(Asked, access));
    let first = field(b, types::I64, thread, asked + offset_of!(Asked, first));
    let block = field(b, types::I64, thread, offset_of!(ThreadContext, block));
    let accesses = field(b, types::I64, block, offset_of!(BlockContext, accesses));
    let at = b.ins().imul_imm(number, access::ACCESS_SIZE);
    let of = b.ins().iadd(accesses, at);
    let log2 = field(b, types::I32, of, offset_of!(Access, log2));
    let number = field(b, types::I32, of, offset_of!(Access, site));
    let sites = field(b, types::I64, block, offset_of!(BlockContext, sites));
    let at = b.ins().imul_imm(number, i64::from(access::SITE_SIZE));
    let site = b.ins().iadd(sites, at);
    let base = field(b, types::I64, site, access::SITE_BASE as usize);
    let units = field(b, types::I64, site, access::SITE_UNITS as usize);
    let distance = b.ins().isub(first, base);
    let distance = b.ins().rotr(distance, log2);
    let inside = b.ins().icmp(IntCC::UnsignedLessThan, distance, units);
    let [known, other] = [b.create_block(), b.create_block()];
    b.ins().brif(inside, known, &[], other, &[]);
    b.seal_block(known);
    b.seal_block(other);
    b.switch_to_block(known);
    let status = b.ins().iconst(types::I32, i64::from(CONTINUE));
    set_status(b, thread, status);
    b.ins().return_(&[]);
    b.switch_to_block(other);
}

/// The machine that we compile for: this one, with what it has.
pub(super) fn isa() -> Result<OwnedTargetIsa, String> {
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

/// In which way a kernel is compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// How it runs a block.
    pub mode: Mode,
    /// Neighbouring threads run together where they can.
    pub vectors: bool,
    /// For which blocks.
    pub rows: Rows,
}

/// Whether a kernel that runs in vectors is to be compiled anew for blocks whose rows are not whole
/// warps: where lanes of a warp shuffle and vote, no other block needs most of the code for these.
pub(crate) fn rows_matter(body: &Body) -> bool {
    body.steps.iter().any(|step| match step {
        Step::Instruction(instruction) => instruction.operation.is_of_warp(),
        Step::Label(_) => false,
    })
}

/// Compiles a kernel.
pub(crate) fn compile(
    program: &Arc<Program>,
    kernel: u32,
    how: How,
) -> Result<Object, CompileError> {
    // A mistake of ours, or a limit of Cranelift that it enforces by panicking, must not take the
    // program down.
    let result = catch_unwind(AssertUnwindSafe(|| compile_unit(program, kernel, how)));
    let what = match result {
        Ok(Ok(object)) => return Ok(object),
        Ok(Err(what)) => what,
        Err(panic) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "the compiler panicked".into()),
    };
    // A frame that is too large for vectors may do for one thread.
    if how.vectors && !cfg!(test) {
        tracing::warn!(
            "{}: no vectors: {what}",
            program.functions[kernel as usize].name
        );
        let vectors = false;
        return compile(program, kernel, How { vectors, ..how });
    }
    Err(CompileError::new(
        &program.functions[kernel as usize].name,
        what,
    ))
}

/// What threads of a kernel keep where they wait; `None` for a kernel that is too large.
fn kept(program: &Program, kernel: u32) -> Option<Kept> {
    let body = program.functions[kernel as usize].body.as_ref()?;
    let waits = analysis::waits_in_rounds(body);
    let definitions = waits.len().checked_mul(body.tables.registers.len())?;
    (definitions <= MAX_DEFINITIONS).then(|| liveness::kept(body, &waits))?
}

fn compile_unit(program: &Arc<Program>, kernel: u32, how: How) -> Result<Object, String> {
    let How {
        mode,
        vectors,
        rows,
    } = how;
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
    let may_spin = mode == Mode::Rounds && body.is_some_and(spins);
    let steps = bodies(program, &functions).flat_map(|body| &body.steps);
    let operands = steps.map(|step| match step {
        Step::Instruction(instruction) => instruction.operation.brings(),
        Step::Label(_) => 0,
    });
    let operands = operands.max().unwrap_or(0);
    let mut unit = Unit {
        program: Arc::clone(program),
        shared,
        mode,
        vectors,
        rows,
        spins: may_spin,
        passes: false,
        sums: body.is_some_and(analysis::tells_nobody),
        local: bodies(program, &functions).any(analysis::has_local),
        live: live.unwrap_or_default(),
        operands,
        kept: operands,
        waits: Box::new([]),
        isa: isa()?,
        cold: BTreeSet::new(),
        sites: 0,
        table: false,
        accesses: vec![],
        arrays: vec![],
        image: Image::default(),
    };
    let frame = unit.define(&functions)?;
    let start = |at: u32| {
        let start = unit.image.start(Name::Function(at));
        start.expect("every function that is reached is in the image")
    };
    let entry = start(kernel);
    let targets = functions.iter().filter(|at| unit.table && **at != kernel);
    let targets = targets.map(|at| Reached {
        function: *at,
        at: start(*at),
        blocks: Target::blocks(&program.functions[*at as usize].signature),
    });
    let targets = targets.collect();
    let (code, relocations) = unit.image.link()?;
    Ok(Object {
        code,
        relocations,
        entry,
        mode,
        kept: unit.kept,
        spins: may_spin,
        passes: unit.passes,
        reaches: bodies(program, &functions).any(analysis::reaches),
        sites: unit.sites,
        frame,
        waits: unit.waits.into_vec(),
        accesses: unit.accesses,
        arrays: unit.arrays,
        table: match unit.table {
            true => program.functions.len() as u32,
            false => 0,
        },
        targets,
    })
}

/// What Cranelift keeps from function to function, and how long it worked.
struct Compiler {
    context: Context,
    builder: FunctionBuilderContext,
    time: Duration,
}

impl Compiler {
    /// Compiles the function that was built; the bytes of its frame, too.
    fn compile(&mut self, isa: &OwnedTargetIsa, dump: &Dump) -> Result<(Piece, u32), String> {
        let start = Instant::now();
        let context = &mut self.context;
        let control = &mut ControlPlane::default();
        optimize(context, isa, control).map_err(|error| pretty_error(&context.func, error))?;
        let tiles = Tiles::of(&context.func);
        schedule::early(&mut context.func, &context.domtree, &tiles.products());
        tiles.arrange(&mut context.func);
        if constants::on_the_way(&mut context.func) {
            context.compute_cfg();
            context.compute_domtree();
        }
        #[cfg(target_arch = "x86_64")]
        stand_ins::mark(&mut context.func);
        let compiled = isa.compile_function(
            &context.func,
            &context.domtree,
            context.want_disasm,
            control,
        );
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut compiled = compiled.map_err(|error| format!("{error:?}"))?;
        #[cfg(target_arch = "x86_64")]
        {
            let marked = compiled.buffer.get_srclocs_sorted().iter();
            let marked = marked.filter(|it| !it.loc.is_default());
            let locations = marked.map(|it| it.start..it.end).collect();
            stand_ins::replace(compiled.buffer.data_mut(), locations)?;
        }
        let compiled = &compiled.apply_params(&context.func.params);
        dump.compiled(&context.func, compiled);
        let frame = compiled.buffer.frame_layout();
        let frame = frame.map_or(0, |layout| layout.frame_to_fp_offset);
        let piece = Piece::of(&context.func, compiled, isa.function_alignment().minimum)?;
        context.clear();
        self.time += start.elapsed();
        Ok((piece, frame))
    }
}

/// What Cranelift does before it selects instructions, less what has been done: nothing is left
/// that cannot be reached, nor a parameter that needs not be.
fn optimize(
    context: &mut Context,
    isa: &OwnedTargetIsa,
    control: &mut ControlPlane,
) -> CodegenResult<()> {
    context.verify_if(&**isa)?;
    context.legalize(&**isa)?;
    context.compute_cfg();
    context.compute_domtree();
    context.func.dfg.resolve_all_aliases();
    context.egraph_pass(&**isa, control)
}

impl Unit {
    /// Lowers and compiles each function; the bytes of the kernel's frame.
    fn define(&mut self, functions: &[u32]) -> Result<u32, String> {
        let start = Instant::now();
        let program = Arc::clone(&self.program);
        let (mut size, mut kernel_frame) = (0, 0);
        let mut compiler = Compiler {
            context: Context::new(),
            builder: FunctionBuilderContext::new(),
            time: Duration::ZERO,
        };
        for at in functions {
            let function = &program.functions[*at as usize];
            let Some(body) = &function.body else {
                continue;
            };
            let forms = [(Name::Function(*at), true), (Name::Second(*at), false)];
            for (name, grants) in forms {
                let dump = Dump::of(&program, *at);
                let context = &mut compiler.context;
                context.func.signature = self.signature(name);
                context.set_disasm(dump.wanted());
                if dump.wanted()
                    && self.vectors
                    && let Some(plan) = Plan::of(function, body, (self.rows, grants))
                {
                    dump.planned(&plan);
                }
                let has_second = lower::function::lower(
                    self,
                    (function, body),
                    grants,
                    &mut context.func,
                    &mut compiler.builder,
                );
                let of_function = |error: String| format!("{}: {error}", function.name);
                exits::first(context, self.isa.flags())
                    .map_err(|error| of_function(pretty_error(&context.func, error)))?;
                blocks::join(&mut context.func);
                phis::remove(&mut context.func);
                dump.lowered(&context.func);
                let compiled = compiler.compile(&self.isa, &dump);
                let (piece, frame) = compiled.map_err(of_function)?;
                self.image.place(name, &piece)?;
                size += piece.size();
                let most = if function.kernel {
                    // One form calls the other.
                    kernel_frame += frame;
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
                if !has_second {
                    break;
                }
            }
        }
        self.define_cold(&mut compiler)?;
        let lowering = start.elapsed().saturating_sub(compiler.time);
        tracing::debug!(?lowering, cranelift = ?compiler.time, bytes = size, "functions compiled");
        Ok(kernel_frame)
    }
}
