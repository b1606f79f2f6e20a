//! Each misuse gives its typed error and changes nothing, on drivers that crash on it too
//! (invariant L2).

mod allocations;
mod edges;
mod executables;
mod handles;
mod operations;

use cuda_graph::Graph;

use crate::fixture::context;

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}
