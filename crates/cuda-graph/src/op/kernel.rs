//! Launching a kernel.

use std::fmt;
use std::mem;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeParams,
    CUlaunchAttribute, CUstream,
};
use cudarc::driver::{CudaContext, LaunchConfig};
use smallvec::SmallVec;

use super::{LaunchAttribute, Op, Tag, labelled};
use crate::error::NodeKind;
use crate::kernel::{Arguments, AsKernel, Kernel, KernelArguments, Pointers};
use crate::{Owner, Result, driver};

/// A kernel launch: the function, its grid, its arguments, its attributes. It keeps the module loaded and the buffers allocated.
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
/// # .visible .entry store(.param .u64 to, .param .u32 value)
/// # {
/// #     .reg .b32 %v;
/// #     .reg .b64 %p;
/// #     ld.param.u64 %p, [to];
/// #     ld.param.u32 %v, [value];
/// #     st.global.u32 [%p], %v;
/// #     ret;
/// # }";
/// # let store = device.context().load_module(cudarc::nvrtc::Ptx::from_src(ptx))?.load_function("store")?;
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

/// All of it in one place, which never moves: the driver's parameters are made once.
// What updates read comes first.
#[repr(C)]
struct Launch {
    /// `kernelParams` points to `pointers`; the context is the graph's.
    params: CUDA_KERNEL_NODE_PARAMS,
    /// Into `arguments`.
    pointers: Pointers,
    /// The kernel is the last of their owners.
    arguments: Arguments,
    attributes: Box<[LaunchAttribute]>,
    tag: Tag,
}

// SAFETY: the pointers lead into the structure itself, and are read by the driver alone; a function's handle may be used from any thread.
unsafe impl Send for Launch {}
// SAFETY: as above.
unsafe impl Sync for Launch {}

impl Launch {
    /// A launch whose arguments are yet to be put where they stay.
    #[inline(always)]
    fn empty(kernel: &Kernel, config: &LaunchConfig, tag: Tag) -> Unshared {
        let launch = Arc::<Launch>::new_uninit();
        // SAFETY: nobody else has it yet, and every field is written before it is read. Field by field, because a whole one would be put
        // together on the stack and copied from there.
        unsafe {
            let place = Arc::as_ptr(&launch).cast_mut().cast::<Launch>();
            (&raw mut (*place).params).write(CUDA_KERNEL_NODE_PARAMS {
                func: kernel.raw(),
                gridDimX: config.grid_dim.0,
                gridDimY: config.grid_dim.1,
                gridDimZ: config.grid_dim.2,
                blockDimX: config.block_dim.0,
                blockDimY: config.block_dim.1,
                blockDimZ: config.block_dim.2,
                sharedMemBytes: config.shared_mem_bytes,
                kernelParams: ptr::null_mut(),
                extra: ptr::null_mut(),
                kern: ptr::null_mut(),
                ctx: ptr::null_mut(),
            });
            (&raw mut (*place).pointers).write(Pointers::new());
            (&raw mut (*place).attributes).write(Box::default());
            (&raw mut (*place).tag).write(tag);
            Arguments::none(&mut *(&raw mut (*place).arguments).cast());
            Unshared(launch.assume_init())
        }
    }

    fn config(&self) -> LaunchConfig {
        let params = &self.params;
        LaunchConfig {
            grid_dim: (params.gridDimX, params.gridDimY, params.gridDimZ),
            block_dim: (params.blockDimX, params.blockDimY, params.blockDimZ),
            shared_mem_bytes: params.sharedMemBytes,
        }
    }
}

/// A launch that nobody else has. To ask for that, as `Arc::get_mut` does, would cost as much as all the rest of making one.
struct Unshared(Arc<Launch>);

impl Unshared {
    #[inline(always)]
    fn get(&mut self) -> &mut Launch {
        // SAFETY: the type's invariant; it gives out no clone.
        unsafe { &mut *Arc::as_ptr(&self.0).cast_mut() }
    }

    /// The operation, whose arguments and owners are there.
    #[inline(always)]
    fn done(mut self) -> KernelOp {
        let launch = self.get();
        launch.arguments.point(&mut launch.pointers);
        launch.params.kernelParams = launch.pointers.as_mut_ptr();
        KernelOp { launch: self.0 }
    }
}

labelled!(KernelOp);

impl KernelOp {
    /// To change what the driver's parameters do not lead to.
    fn edit(&mut self) -> &mut Launch {
        if Arc::get_mut(&mut self.launch).is_none() {
            let old = &*self.launch;
            let mut copy = Launch::empty(&self.kernel(), &old.config(), old.tag.clone());
            let new = copy.get();
            new.attributes = old.attributes.clone();
            new.arguments = old.arguments.clone();
            *self = copy.done();
        }
        Arc::get_mut(&mut self.launch).expect("it is the only one")
    }

    /// A launch of `kernel` with `arguments`: a tuple of values and references to buffers, in the order of the parameters.
    ///
    /// # Errors
    ///
    /// [`ArgumentCount`](crate::Error::ArgumentCount) and [`ArgumentSize`](crate::Error::ArgumentSize) when the kernel's parameters are
    /// others.
    ///
    /// # Safety
    ///
    /// With these arguments and this grid, the kernel does not touch memory that it may not, whenever the operation runs: its
    /// parameters mean what the arguments are, and memory that it reaches by addresses not among the arguments lives.
    #[track_caller]
    pub unsafe fn new(
        kernel: impl AsKernel,
        config: LaunchConfig,
        arguments: impl KernelArguments,
    ) -> Result<KernelOp> {
        let tag = Tag::here();
        let kernel = kernel.as_kernel()?;
        let mut launch = Launch::empty(&kernel, &config, tag);
        let place = &mut launch.get().arguments;
        arguments.add_to(place);
        place.check(&kernel)?;
        place.keep(kernel.into_owner());
        Ok(launch.done())
    }

    /// The same launch with an attribute, which replaces one of the same name.
    pub fn attribute(mut self, attribute: LaunchAttribute) -> Self {
        let launch = self.edit();
        let mut attributes = mem::take(&mut launch.attributes).into_vec();
        attributes.retain(|other| other.id() != attribute.id());
        attributes.push(attribute);
        launch.attributes = attributes.into();
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

    /// The kernel.
    pub fn kernel(&self) -> Kernel {
        let owner = self.launch.arguments.owners().last();
        owner
            .and_then(Kernel::from_owner)
            .expect("the kernel is the last of the owners")
    }

    /// The grid, in blocks.
    pub fn grid(&self) -> (u32, u32, u32) {
        self.launch.config().grid_dim
    }

    /// A block, in threads.
    pub fn block(&self) -> (u32, u32, u32) {
        self.launch.config().block_dim
    }

    /// The dynamic shared memory of a block, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.launch.params.sharedMemBytes
    }

    /// The arguments.
    pub fn arguments(&self) -> &Arguments {
        &self.launch.arguments
    }

    /// The attributes.
    pub fn attributes(&self) -> &[LaunchAttribute] {
        &self.launch.attributes
    }

    /// Calls the driver with this launch's parameters.
    #[inline(always)]
    fn with_launch<R>(
        &self,
        context: &CudaContext,
        call: impl FnOnce(&CUDA_KERNEL_NODE_PARAMS) -> R,
    ) -> R {
        call(&CUDA_KERNEL_NODE_PARAMS {
            ctx: context.cu_ctx(),
            ..self.launch.params
        })
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
        &mut self.edit().tag
    }

    #[inline]
    fn owners(&self) -> &[Owner] {
        self.launch.arguments.owners()
    }

    #[inline]
    fn condition_of(&self) -> Option<u64> {
        self.launch.arguments.condition_of()
    }

    #[inline]
    fn attributes(&self) -> &[LaunchAttribute] {
        &self.launch.attributes
    }

    fn kernel_name(&self) -> Option<String> {
        Some(self.kernel().name().to_owned())
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.launch, &other.launch)
    }

    fn with_params<R>(
        &self,
        _: &CudaContext,
        _: impl FnOnce(&mut CUgraphNodeParams) -> R,
    ) -> Result<R> {
        unreachable!("launches have driver calls of their own")
    }

    fn run(&self, stream: CUstream) -> Option<Result<()>> {
        let attributes = self.launch.attributes.iter();
        let mut attributes: SmallVec<[CUlaunchAttribute; 4]> =
            attributes.map(LaunchAttribute::of_launch).collect();
        Some(driver::run::kernel(&self.launch.params, &mut attributes, stream))
    }

    #[inline]
    fn add_to(
        &self,
        context: &CudaContext,
        graph: CUgraph,
        after: &[CUgraphNode],
    ) -> Result<CUgraphNode> {
        let node = self.with_launch(context, |params| {
            driver::node::add_kernel(graph, after, params)
        })?;
        for attribute in &self.launch.attributes {
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
        self.with_launch(context, |params| driver::node::set_kernel(node, params))?;
        let new = self.attributes();
        for attribute in old.map(|old| old.attributes()).unwrap_or_default() {
            if new.iter().all(|new| new.id() != attribute.id()) {
                attribute.plain().set(node)?;
            }
        }
        new.iter().try_for_each(|attribute| attribute.set(node))
    }

    #[inline(always)]
    fn set_in(&self, context: &CudaContext, exec: CUgraphExec, node: CUgraphNode) -> Result<()> {
        self.with_launch(context, |params| {
            driver::exec::set_kernel(exec, node, params)
        })
    }

    fn read(node: CUgraphNode) -> Result<KernelOp> {
        let params = driver::node::kernel_params(node)?;
        let function = if params.func.is_null() {
            // The driver gives functions of libraries as kernels; both name a function to the calls made here.
            params.kern.cast()
        } else {
            params.func
        };
        let kernel = Kernel::unowned(function)?;
        let config = LaunchConfig {
            grid_dim: (params.gridDimX, params.gridDimY, params.gridDimZ),
            block_dim: (params.blockDimX, params.blockDimY, params.blockDimZ),
            shared_mem_bytes: params.sharedMemBytes,
        };
        let mut launch = Launch::empty(&kernel, &config, Tag::read());
        let place = launch.get();
        place.attributes = LaunchAttribute::read(node).into();
        if let Some(parameters) = kernel.parameters()
            && !params.kernelParams.is_null()
        {
            for (index, parameter) in parameters.iter().enumerate() {
                // SAFETY: the driver gives a pointer per parameter, each to as many bytes as the parameter has.
                unsafe {
                    let from = *params.kernelParams.add(index);
                    place
                        .arguments
                        .bytes(from.cast_const().cast(), parameter.size);
                }
            }
        }
        place.arguments.keep(kernel.into_owner());
        Ok(launch.done())
    }
}

impl fmt::Debug for KernelOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let launch = &*self.launch;
        let (grid, block) = (self.grid(), self.block());
        write!(
            f,
            "KernelOp `{}` <<<{}x{}x{}, {}x{}x{}, {}>>> {:?}",
            self.kernel().name(),
            grid.0,
            grid.1,
            grid.2,
            block.0,
            block.1,
            block.2,
            self.shared_bytes(),
            launch.arguments
        )?;
        if !launch.attributes.is_empty() {
            write!(f, " {:?}", launch.attributes)?;
        }
        write!(f, " made at {:?}", launch.tag)
    }
}
