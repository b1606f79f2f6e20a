//! Launching a kernel.

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::ptr;

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUcontext, CUfunction, CUgraph, CUgraphExec, CUgraphNode,
    CUlaunchAttribute, CUstream,
};
use cudarc::driver::{CudaContext, LaunchConfig};
use smallvec::SmallVec;
use triomphe::{Arc, UniqueArc};

use super::access::Access;
use super::{LaunchAttribute, Op, Tag, expected, operation};
use crate::error::NodeKind;
use crate::kernel::{Arguments, AsKernel, Function, Kernel, KernelArguments, Matching, Used};
use crate::memory::{Region, Source, Target};
use crate::{Owner, Result, driver};

/// A kernel launch: the function, its grid, its arguments, its attributes. It keeps the module
/// loaded and the buffers allocated.
///
/// ```
/// # use cuda_graph::{Buffer, Graph, KernelOp};
/// # use cudarc::driver::LaunchConfig;
/// # let device = cuda_graph::device(0)?;
/// # let stream = device.context().default_stream();
/// # let ptx = "
/// # .version 7.0
/// # .target sm_70
/// # .address_size 64
/// # .visible .entry store(.param .u64 to, .param .u32 value) {
/// #     .reg .b32 %v; .reg .b64 %p;
/// #     ld.param.u64 %p, [to];
/// #     ld.param.u32 %v, [value];
/// #     st.global.u32 [%p], %v;
/// #     ret;
/// # }";
/// # let module = device.context().load_module(cudarc::nvrtc::Ptx::from_src(ptx))?;
/// # let store = module.load_function("store")?;
/// let buffer = Buffer::<u32>::zeroed(&stream, 1)?;
/// // SAFETY: `store` writes one value to where its first argument points.
/// let op = unsafe { KernelOp::new(&store, LaunchConfig::for_num_elems(1), (&buffer, 7u32)) }?;
/// let graph = Graph::new(device.context())?;
/// graph.add(op, ())?;
/// let mut exec = graph.instantiate()?;
/// exec.launch(&stream)?;
/// assert_eq!(buffer.to_host(&stream)?, [7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct KernelOp {
    launch: Arc<Launch>,
}

/// All of it in one place. The driver's parameters are put together for each call.
// What calls of the driver read comes first, in the first cache lines.
#[derive(Clone)]
#[repr(C)]
pub(super) struct Launch {
    function: Function,
    config: LaunchConfig,
    /// Of the arguments as they are, or [`Outline::OTHER`].
    outline: Outline,
    tag: Tag,
    /// The kernel is the last of their owners.
    arguments: Arguments,
    rare: Option<Box<Rare>>,
}

/// What few launches have. Absent if there is none of it.
#[derive(Clone, Default, PartialEq)]
struct Rare {
    attributes: Vec<LaunchAttribute>,
    /// What it reads and writes, as far as that is declared.
    accesses: Option<Vec<Access>>,
    /// The address of a number. Where that is 0 it is declared to do nothing.
    idle_flag: Option<u64>,
}

/// What the arguments of a plain launch are, and how many owners they have besides the kernel; 0
/// for all others. So frequent calls ask one number what would be a dozen questions.
///
/// A plain launch has no attributes, declarations, label, conditions and values of parameters; it
/// holds what it uses, and its arguments are few and a word each. It may be given the values of
/// another one with the same outline, if both have the same owners: the kernel is one of them.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Outline(u32);

impl Outline {
    /// Of a launch that is not plain, or changed since it was made.
    const OTHER: Outline = Outline(0);

    /// Of a launch with these arguments and nothing else that is not plain. The kernel is added to
    /// their owners then, and nothing else changes.
    #[inline(always)]
    fn of(arguments: &Arguments) -> Outline {
        Outline(arguments.outline().map_or(0, NonZero::get))
    }

    #[inline(always)]
    fn is_plain(self) -> bool {
        self != Outline::OTHER
    }

    /// How many owners a plain launch has, with the kernel.
    #[inline(always)]
    fn owners(self) -> usize {
        Arguments::owners_in(self.0) + 1
    }
}

impl Launch {
    /// The driver's parameters, with a pointer to each argument.
    #[inline(always)]
    fn params(&self, context: CUcontext, pointers: *mut *mut c_void) -> CUDA_KERNEL_NODE_PARAMS {
        CUDA_KERNEL_NODE_PARAMS {
            func: self.function.0,
            gridDimX: self.config.grid_dim.0,
            gridDimY: self.config.grid_dim.1,
            gridDimZ: self.config.grid_dim.2,
            blockDimX: self.config.block_dim.0,
            blockDimY: self.config.block_dim.1,
            blockDimZ: self.config.block_dim.2,
            sharedMemBytes: self.config.shared_mem_bytes,
            kernelParams: pointers,
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: context,
        }
    }

    /// Takes over everything but the arguments of a launch that is like this one, of the same
    /// kernel.
    #[inline(always)]
    fn assign_rest(&mut self, other: &Launch) {
        debug_assert!(self.function.0 == other.function.0);
        self.config = other.config;
        self.tag.location = other.tag.location;
    }

    /// Whether it may take the place of another. Of plain launches an [`Outline`] tells that.
    #[cold]
    #[inline(never)]
    fn is_like(&self, other: &Launch) -> bool {
        let is_simple = |launch: &Launch| launch.rare.is_none() && launch.tag.label.is_none();
        is_simple(self) && is_simple(other) && self.arguments.are_like(&other.arguments)
    }
}

/// A launch that nobody shares yet, without arguments.
#[inline(always)]
fn unshared(kernel: &Kernel, config: LaunchConfig, tag: Tag) -> UniqueArc<Launch> {
    let mut launch = UniqueArc::<Launch>::new_uninit();
    let place = (*launch).as_mut_ptr();
    // SAFETY: every field is written, here or by `write_none`. Field by field, because a whole
    // launch would be put together on the stack and copied from there.
    unsafe {
        (&raw mut (*place).function).write(Function(kernel.raw()));
        (&raw mut (*place).config).write(config);
        (&raw mut (*place).outline).write(Outline::OTHER);
        Arguments::write_none(&raw mut (*place).arguments);
        (&raw mut (*place).rare).write(None);
        (&raw mut (*place).tag).write(tag);
        UniqueArc::assume_init(launch)
    }
}

operation!(KernelOp);

/// The expected operation, if the one to be made is the same.
#[inline(always)]
fn same_as_expected(
    function: CUfunction,
    config: &LaunchConfig,
    arguments: &impl KernelArguments,
    tag: &Tag,
) -> Option<KernelOp> {
    let expected = expected::kernel()?;
    // SAFETY: it lives while it is there, by the contract of `Expected::set`.
    let launch = unsafe { &*expected };
    let mut matching = Matching::with(&launch.arguments);
    let is_same = launch.function.0 == function
        && launch.config.grid_dim == config.grid_dim
        && launch.config.block_dim == config.block_dim
        && launch.config.shared_mem_bytes == config.shared_mem_bytes
        && launch.rare.is_none()
        && launch.tag.is_plain_as(tag)
        && launch.arguments.used().is_empty()
        && arguments.matches(&mut matching)
        && matching.is_over();
    is_same.then(|| {
        // SAFETY: the pointer is an `Arc`'s, which is not dropped here.
        let launch = ManuallyDrop::new(unsafe { Arc::from_raw(expected) });
        KernelOp {
            launch: Arc::clone(&launch),
        }
    })
}

impl KernelOp {
    /// A launch of `kernel` with `arguments`: a tuple of values and references to buffers, in the
    /// order of the parameters.
    ///
    /// # Errors
    ///
    /// [`ArgumentCount`](crate::Error::ArgumentCount) and
    /// [`ArgumentSize`](crate::Error::ArgumentSize) when the kernel's parameters are others.
    ///
    /// # Safety
    ///
    /// With these arguments and this grid, the kernel does not touch memory that it may not,
    /// whenever the operation runs: its parameters mean what the arguments are, and memory that it
    /// reaches by addresses not among the arguments lives.
    #[track_caller]
    pub unsafe fn new(
        kernel: impl AsKernel,
        config: LaunchConfig,
        arguments: impl KernelArguments,
    ) -> Result<KernelOp> {
        let tag = Tag::here();
        if let Some(same) = same_as_expected(kernel.handle(), &config, &arguments, &tag) {
            return Ok(same);
        }
        let kernel = kernel.as_kernel()?;
        let mut launch = unshared(&kernel, config, tag);
        arguments.add_to(&mut launch.arguments);
        // Before anything else: here the compiler knows how many there are.
        launch.outline = Outline::of(&launch.arguments);
        launch.arguments.check(&kernel)?;
        launch.arguments.keep_kernel(kernel.into_owner());
        let launch = launch.shareable();
        Ok(KernelOp { launch })
    }

    /// The launch, to be changed: of a copy, if others have this operation too.
    #[inline]
    fn launch_mut(&mut self) -> &mut Launch {
        let launch = Arc::make_mut(&mut self.launch);
        launch.outline = Outline::OTHER;
        launch
    }

    /// The same launch with an attribute, which replaces one of the same name.
    pub fn attribute(mut self, attribute: LaunchAttribute) -> Self {
        let attributes = &mut self.rare_mut().attributes;
        attributes.retain(|other| other.id() != attribute.id());
        attributes.push(attribute);
        self
    }

    fn rare_mut(&mut self) -> &mut Rare {
        self.launch_mut().rare.get_or_insert_default()
    }

    /// The same launch, which is declared to read `memory`.
    ///
    /// A launch with declarations, of reads, of writes or of both, is taken to touch no other
    /// memory that other operations touch. Without any it may touch everything. So
    /// [`Graph::add_after_data`](crate::Graph::add_after_data) knows what it waits for. A launch
    /// that sets a condition, or has memory by a [`Param`](crate::Param) among its arguments, may
    /// touch everything whatever is declared.
    ///
    /// A declaration keeps nothing alive. One of memory of no bytes declares that it touches none.
    pub fn reads(self, memory: impl Source) -> Self {
        self.declare(&memory.source(), false)
    }

    /// The same launch, which is declared to write `memory`, as [`reads`](KernelOp::reads) does for
    /// memory that is read. What is read and written is declared to be written.
    pub fn writes(self, memory: impl Target) -> Self {
        self.declare(&memory.target(), true)
    }

    /// The same launch, which is declared to do nothing where the first number of `flag` is 0: its
    /// kernel looks at that by itself, before it changes any memory. It may clear the flag, and
    /// then does all the same what there is to do.
    ///
    /// [`Pass::Loops`](crate::Pass::Loops) repeats the body of a loop without guards if all of its
    /// kernels are declared to do nothing where the loop's flag is 0. That is cheaper, and serves
    /// kernels whose PTX is not known. A declaration keeps nothing alive.
    pub fn idle_without(mut self, flag: impl Source) -> Self {
        self.rare_mut().idle_flag = Some(flag.source().address());
        self
    }

    /// The address of the flag that it does nothing [without](KernelOp::idle_without).
    pub(crate) fn idle_flag(&self) -> Option<u64> {
        self.launch.rare.as_ref()?.idle_flag
    }

    fn declare(mut self, region: &Region, writes: bool) -> Self {
        let accesses = self.rare_mut().accesses.get_or_insert_default();
        accesses.extend(Access::to(region, writes));
        self
    }

    /// The same launch, whose blocks may synchronize as one grid.
    pub fn cooperative(self) -> Self {
        self.attribute(LaunchAttribute::Cooperative(true))
    }

    /// The same launch in clusters of so many blocks.
    pub fn cluster(self, x: u32, y: u32, z: u32) -> Self {
        self.attribute(LaunchAttribute::Cluster(x, y, z))
    }

    /// The same launch at a priority; it counts in executables instantiated with node priorities.
    pub fn priority(self, priority: i32) -> Self {
        self.attribute(LaunchAttribute::Priority(priority))
    }

    /// The same launch of a variant of its kernel, with the address of a guard if that has one.
    /// Whoever holds the launch holds what the variant's module goes with.
    pub(crate) fn with_variant(&self, variant: &Kernel, guard: Option<u64>) -> KernelOp {
        let mut op = self.clone();
        let launch = op.launch_mut();
        launch.function = Function(variant.raw());
        launch.arguments.keep(variant.clone().into_owner());
        if let Some(guard) = guard {
            launch.arguments.value(&guard);
        }
        op
    }

    /// The launch that this one is a [variant](KernelOp::with_variant) of, with a guard.
    pub(crate) fn without_variant(&self) -> Option<KernelOp> {
        let mut op = self.clone();
        let launch = op.launch_mut();
        let kernel = launch.arguments.take_variant()?;
        launch.function = Function(kernel.raw());
        Some(op)
    }

    /// The kernel.
    pub fn kernel(&self) -> Kernel {
        let owner = self.launch.arguments.owners().last();
        let kernel = owner.and_then(Kernel::from_owner);
        kernel.expect("the kernel is the last of the owners")
    }

    /// The grid, in blocks.
    pub fn grid(&self) -> (u32, u32, u32) {
        self.launch.config.grid_dim
    }

    /// A block, in threads.
    pub fn block(&self) -> (u32, u32, u32) {
        self.launch.config.block_dim
    }

    /// The dynamic shared memory of a block, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.launch.config.shared_mem_bytes
    }

    /// The arguments.
    pub fn arguments(&self) -> &Arguments {
        &self.launch.arguments
    }

    /// The attributes.
    #[inline]
    pub fn attributes(&self) -> &[LaunchAttribute] {
        let rare = self.launch.rare.as_ref();
        rare.map_or(&[], |rare| &rare.attributes)
    }

    /// The arguments, to be changed: of a copy, if others have this operation too.
    #[inline]
    pub(crate) fn arguments_mut(&mut self) -> &mut Arguments {
        &mut self.launch_mut().arguments
    }

    /// Where it lies, for as long as it lives.
    #[inline]
    pub(super) fn address(&self) -> *const Launch {
        Arc::as_ptr(&self.launch)
    }

    /// The operation with the values that its parameters have now, if one of them has another.
    pub(crate) fn with_values_of_now(&self) -> Result<Option<KernelOp>> {
        let mut now = None;
        for (index, used) in self.arguments().used().iter().enumerate() {
            let mut value = Arguments::default();
            used.param.write(&mut value)?;
            if !self.arguments().has(index, &value) {
                let now = now.get_or_insert_with(|| self.clone());
                now.arguments_mut().patch(index, &value, drop);
            }
        }
        Ok(now)
    }

    /// Calls the driver with this launch's parameters, in a context or the current one (null).
    #[inline(always)]
    pub(crate) fn with_launch<R>(
        &self,
        context: CUcontext,
        call: impl FnOnce(&CUDA_KERNEL_NODE_PARAMS) -> R,
    ) -> R {
        let launch = &*self.launch;
        let few = match launch.outline.is_plain() {
            // SAFETY: an outline that is not `OTHER` is that of the arguments.
            true => Some(unsafe { launch.arguments.words_in_place() }),
            false => launch.arguments.few_words(),
        };
        match few {
            Some(words) => {
                let mut pointers = Arguments::pointers_to(words);
                call(&launch.params(context, pointers.as_mut_ptr()))
            }
            None => {
                let mut pointers = launch.arguments.pointers();
                call(&launch.params(context, pointers.as_mut_ptr()))
            }
        }
    }

    /// This launch and `to`, which nobody shares, if both are plain and have the same outline.
    #[inline(always)]
    pub(crate) fn alike<'a>(&'a self, to: &'a mut KernelOp) -> Option<Alike<'a>> {
        let (from, to) = (&*self.launch, Arc::get_mut(&mut to.launch)?);
        let are_alike = from.outline.is_plain() && from.outline == to.outline;
        are_alike.then_some(Alike { from, to })
    }
}

/// A plain launch, and another with the same outline that may take its values.
pub(crate) struct Alike<'a> {
    from: &'a Launch,
    to: &'a mut Launch,
}

impl Alike<'_> {
    /// As [`Op::set_in`], of the launch that is taken.
    #[inline(always)]
    pub(crate) fn set_in(
        &self,
        context: &CudaContext,
        exec: CUgraphExec,
        node: CUgraphNode,
    ) -> Result<()> {
        // SAFETY: the arguments of a plain launch have an outline.
        let words = unsafe { self.from.arguments.words_in_place() };
        let mut pointers = Arguments::pointers_to(words);
        let params = self.from.params(context.cu_ctx(), pointers.as_mut_ptr());
        driver::exec::set_kernel(exec, node, &params)
    }

    /// Makes the other one the same launch, if both hold the same.
    #[inline(always)]
    pub(crate) fn assign(self) -> bool {
        let Alike { from, to } = self;
        let owners = from.outline.owners();
        // SAFETY: the arguments of plain launches have an outline, which is the same one.
        let is_held = unsafe { to.arguments.has_owners_of_alike(&from.arguments, owners) };
        if is_held {
            // SAFETY: as above. The kernel is one of the owners.
            unsafe { to.arguments.assign_in_place(&from.arguments) };
            to.assign_rest(from);
        }
        is_held
    }
}

impl Op for KernelOp {
    #[inline]
    fn kind(&self) -> NodeKind {
        NodeKind::Kernel
    }

    #[inline]
    fn tag(&self) -> &Tag {
        &self.launch.tag
    }

    fn tag_mut(&mut self) -> &mut Tag {
        &mut self.launch_mut().tag
    }

    #[inline]
    fn owners(&self) -> &[Owner] {
        self.launch.arguments.owners()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((gx, gy, gz), (bx, by, bz)) = (self.grid(), self.block());
        write!(f, " `{}`", self.kernel().name())?;
        write!(f, " <<<{gx}x{gy}x{gz}, {bx}x{by}x{bz}, ")?;
        write!(f, "{}>>> {:?}", self.shared_bytes(), self.arguments())?;
        match self.attributes() {
            [] => Ok(()),
            attributes => write!(f, " {attributes:?}"),
        }
    }

    #[inline]
    fn condition_of(&self) -> Option<u64> {
        self.launch.arguments.condition_of()
    }

    #[inline]
    fn launch(&self) -> Option<&KernelOp> {
        Some(self)
    }

    fn assign_to(&self, other: &mut Self) -> bool {
        if Arc::ptr_eq(&self.launch, &other.launch) {
            return true;
        }
        let Some(to) = Arc::get_mut(&mut other.launch) else {
            return false;
        };
        let from = &*self.launch;
        let is_like = from.is_like(to) && to.arguments.has_owners_of(&from.arguments);
        if is_like {
            to.arguments.assign(&from.arguments);
            to.assign_rest(from);
            to.outline = from.outline;
        }
        is_like
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        let (launch, other) = (&*self.launch, &*other.launch);
        ptr::eq(launch, other)
            || launch.function.0 == other.function.0
                && launch.config.grid_dim == other.config.grid_dim
                && launch.config.block_dim == other.config.block_dim
                && launch.config.shared_mem_bytes == other.config.shared_mem_bytes
                && launch.rare == other.rare
                && launch.arguments.is_same(&other.arguments)
    }

    fn digest(&self) -> u64 {
        self.launch.arguments.digest()
    }

    fn accesses(&self) -> Option<Vec<Access>> {
        let declared = self.launch.rare.as_ref()?.accesses.as_ref()?;
        // What a parameter gives may be other memory by the next launch.
        let may_move = |used: &Used| !matches!(used.param.region(), Ok(None));
        let is_fixed = !self.arguments().used().iter().any(may_move);
        (is_fixed && self.condition_of().is_none()).then(|| declared.clone())
    }

    /// Launch attributes are fixed when the graph is instantiated.
    fn can_follow(&self, old: &Self) -> bool {
        KernelOp::attributes(self) == KernelOp::attributes(old)
    }

    fn run(&self, stream: CUstream) -> Option<Result<()>> {
        let attributes = KernelOp::attributes(self).iter();
        let mut attributes: SmallVec<[CUlaunchAttribute; 4]> =
            attributes.map(LaunchAttribute::raw).collect();
        Some(self.with_launch(ptr::null_mut(), |params| {
            driver::run::kernel(params, &mut attributes, stream)
        }))
    }

    #[inline]
    fn add_to(
        &self,
        context: &CudaContext,
        graph: CUgraph,
        after: &[CUgraphNode],
    ) -> Result<CUgraphNode> {
        let node = self.with_launch(context.cu_ctx(), |params| {
            driver::node::add_kernel(graph, after, params)
        })?;
        for attribute in KernelOp::attributes(self) {
            if let Err(error) = attribute.set(node) {
                // The node and its attributes appear together or not at all.
                if let Err(error) = driver::node::destroy(node) {
                    tracing::error!(
                        "a kernel node without its attributes stays in its graph, and what it uses leaks: {error}"
                    );
                    std::mem::forget(self.clone());
                }
                return Err(error);
            }
        }
        Ok(node)
    }

    fn set(&self, context: &CudaContext, node: CUgraphNode, old: Option<&Self>) -> Result<()> {
        self.with_launch(context.cu_ctx(), |params| {
            driver::node::set_kernel(node, params)
        })?;
        let new = KernelOp::attributes(self);
        for attribute in old.map(KernelOp::attributes).unwrap_or_default() {
            if new.iter().all(|new| new.id() != attribute.id()) {
                attribute.plain().set(node)?;
            }
        }
        new.iter().try_for_each(|attribute| attribute.set(node))
    }

    #[inline]
    fn set_in(&self, context: &CudaContext, exec: CUgraphExec, node: CUgraphNode) -> Result<()> {
        self.with_launch(context.cu_ctx(), |params| {
            driver::exec::set_kernel(exec, node, params)
        })
    }

    fn read(node: CUgraphNode) -> Result<KernelOp> {
        // SAFETY: the driver gives lists and values of its own, which live as long as the node.
        read(node, |kernel, params| unsafe {
            Arguments::read(kernel, params.kernelParams, params.extra)
        })
    }
}

impl KernelOp {
    /// As [`Op::read`], without arguments if they cannot be told.
    pub(crate) fn read_in_part(node: CUgraphNode) -> Result<KernelOp> {
        KernelOp::read(node).or_else(|_| read(node, |_, _| Ok(Arguments::default())))
    }
}

/// What a node launches. `arguments` gives the arguments.
fn read(
    node: CUgraphNode,
    arguments: impl FnOnce(&Kernel, &CUDA_KERNEL_NODE_PARAMS) -> Result<Arguments>,
) -> Result<KernelOp> {
    let params = driver::node::kernel_params(node)?;
    // The driver gives functions of libraries as kernels; both name a function to the calls
    // made here.
    let kernel = if params.func.is_null() {
        Kernel::unowned(params.kern.cast())
    } else {
        Kernel::found(params.func)
    }?;
    let config = LaunchConfig {
        grid_dim: (params.gridDimX, params.gridDimY, params.gridDimZ),
        block_dim: (params.blockDimX, params.blockDimY, params.blockDimZ),
        shared_mem_bytes: params.sharedMemBytes,
    };
    let mut launch = unshared(&kernel, config, Tag::read());
    launch.arguments = arguments(&kernel, &params)?;
    launch.arguments.keep_kernel(kernel.into_owner());
    let attributes = LaunchAttribute::read(node);
    let rare = (!attributes.is_empty()).then_some(Rare {
        attributes,
        ..Rare::default()
    });
    launch.rare = rare.map(Box::new);
    let launch = launch.shareable();
    Ok(KernelOp { launch })
}
