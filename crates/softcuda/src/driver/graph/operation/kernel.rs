//! Kernel nodes.

use std::sync::Arc;

use crate::abi::types::CUkernel;
use crate::driver::function::Function;
use crate::driver::graph::attribute::Attributes;
use crate::driver::graph::update::Refusal;
use crate::driver::launch::{self, Config};
use crate::driver::{CUresult, Result};
use crate::grid::launch::Launch;

/// A kernel node.
#[derive(Clone)]
pub(crate) struct KernelNode {
    function: Arc<Function>,
    /// What the program named, where it named a kernel rather than a function.
    kernel: Option<CUkernel>,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    params: Arc<Params>,
    attributes: Attributes,
}

/// The values of a kernel's parameters, and where each is: the program may read them there.
struct Params {
    values: Box<[u8]>,
    places: Box<[usize]>,
}

impl KernelNode {
    /// A node that launches `function`. `params` are laid out as the kernel's signature says.
    pub fn new(
        function: Arc<Function>,
        kernel: Option<CUkernel>,
        config: &Config,
        params: Box<[u8]>,
        attributes: Attributes,
    ) -> Result<KernelNode> {
        let start = params.as_ptr() as usize;
        let places = function.kernel().params.iter();
        let places = places.map(|&(offset, _)| start + offset).collect();
        let node = KernelNode {
            function,
            kernel,
            grid: config.grid,
            block: config.block,
            dynamic_shared: config.dynamic_shared,
            params: Arc::new(Params {
                values: params,
                places,
            }),
            attributes,
        };
        node.check()
    }

    /// Refuses what cannot be launched. In a graph too much shared memory comes before the question
    /// how many blocks fit with it.
    fn check(self) -> Result<KernelNode> {
        if self.dynamic_shared > self.function.settings().max_dynamic_shared() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        launch::check(&self.function, &self.config()).map(|_| self)
    }

    /// The function.
    pub fn function(&self) -> &Arc<Function> {
        &self.function
    }

    /// What the program named, where it named a kernel.
    pub fn kernel(&self) -> Option<CUkernel> {
        self.kernel
    }

    /// Blocks, threads of each, bytes of dynamic shared memory of each.
    pub fn shape(&self) -> ([u32; 3], [u32; 3], u32) {
        (self.grid, self.block, self.dynamic_shared)
    }

    /// Where the value of each parameter is; lives as long as the node has it.
    pub fn places(&self) -> &[usize] {
        &self.params.places
    }

    /// Its attributes.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The same node with other attributes.
    pub fn with_attributes(&self, attributes: Attributes) -> Result<KernelNode> {
        let node = KernelNode {
            attributes,
            ..self.clone()
        };
        node.check()
    }

    fn config(&self) -> Config {
        // A kernel that leaves clusters to its launches takes none for one, in a graph.
        let explicit =
            self.function.kernel().explicit_cluster && self.function.settings().cluster().is_none();
        let cluster = self.attributes.cluster();
        Config {
            cooperative: self.attributes.cooperative(),
            cluster: cluster.or(explicit.then_some([1; 3])),
            ..Config::new(self.grid, self.block, self.dynamic_shared)
        }
    }

    /// The launch, checked and compiled.
    pub fn prepare(&self) -> Result<Arc<Launch>> {
        let values = self.params.values.clone();
        launch::prepare(&self.function, &self.config(), values).map(Arc::new)
    }

    /// Everything may change but the context and whether blocks may wait for each other.
    pub fn check_update(&self, next: &KernelNode) -> std::result::Result<(), Refusal> {
        if self.function.context().id() != next.function.context().id() {
            return Err(Refusal::FunctionChanged);
        }
        match self.attributes.cooperative() == next.attributes.cooperative() {
            true => Ok(()),
            false => Err(Refusal::AttributesChanged),
        }
    }
}
