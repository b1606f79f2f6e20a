//! Allocation and free nodes, and the figures of graph memory.

use super::graph::dependencies;
use super::graph_params::{AllocParams, FreeParams, Params, no_data};
use super::types::{CUdevice, CUdeviceptr, CUgraph, CUgraphNode, Unused};
use super::{In, InOut, Out, export};
use crate::driver::graph::definition::{self, By};
use crate::driver::graph::edge::Edges;
use crate::driver::graph::memory::{self, GraphMemory};
use crate::driver::{Result, context, device};

/// Adds an allocation node; the address goes into the caller's structure.
pub(super) fn add_alloc(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    on: &Edges,
    params: InOut<AllocParams>,
) -> Result {
    node.some()?;
    let graph = definition::resolve(graph)?;
    let given = params.get()?;
    let made = GraphMemory::new(given.decode()?, context::usable()?)?;
    let added = definition::add_alloc(By::Program, &graph, on, &made)?;
    params.set(given.with_address(made.address()))?;
    node.set(added)
}

/// Adds a free node.
pub(super) fn add_free(
    node: Out<CUgraphNode>,
    graph: CUgraph,
    on: &Edges,
    address: CUdeviceptr,
) -> Result {
    node.some()?;
    let graph = definition::resolve(graph)?;
    node.set(definition::add_free(By::Program, &graph, on, address)?)
}

export! {
    /// Adds a node that allocates memory, whose address is known from now on.
    fn cuGraphAddMemAllocNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, params: InOut<AllocParams>,
    ) {
        add_alloc(node, graph, &dependencies(nodes, no_data(), count)?, params)
    }

    /// What a node allocates.
    fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: Out<AllocParams>) {
        params.some()?;
        params.set(AllocParams::encode(&definition::operation_of(node)?)?)
    }

    /// Adds a node that frees what an allocation node allocated.
    fn cuGraphAddMemFreeNode(
        node: Out<CUgraphNode>, graph: CUgraph, nodes: In<CUgraphNode>, count: usize, address: CUdeviceptr,
    ) {
        add_free(node, graph, &dependencies(nodes, no_data(), count)?, address)
    }

    /// What a node frees.
    fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: Out<CUdeviceptr>) {
        address.some()?;
        address.set(FreeParams::encode(&definition::operation_of(node)?)?.0)
    }

    /// A figure of graph memory.
    fn cuDeviceGetGraphMemAttribute(of: CUdevice, attribute: u32, value: Out<Unused>) {
        let of = device::check(of)?;
        value.some()?;
        value.cast::<u64>().set(memory::attribute(of, attribute)?)
    }

    /// Sets a high mark of graph memory to what is now.
    fn cuDeviceSetGraphMemAttribute(of: CUdevice, attribute: u32, value: In<Unused>) {
        memory::set_attribute(device::check(of)?, attribute, value.cast::<u64>().get()?)
    }

    /// Gives back graph memory that nothing uses.
    fn cuDeviceGraphMemTrim(of: CUdevice) {
        memory::trim(device::check(of)?);
        Ok(())
    }
}
