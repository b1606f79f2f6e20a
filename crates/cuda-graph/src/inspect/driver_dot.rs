//! The driver's own picture.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use cudarc::driver::sys::CUgraphDebugDot_flags as Flag;

use crate::{Error, Graph, Result, driver};

/// What the driver's picture shows: one field for each of its flags. [`DriverDot::all`] shows
/// everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each is what the driver's flag of that name shows"
)]
pub struct DriverDot {
    /// All of the others, as the driver sees fit.
    pub verbose: bool,
    /// The runtime API's names of types.
    pub runtime_types: bool,
    pub kernel_params: bool,
    pub copy_params: bool,
    pub fill_params: bool,
    pub host_params: bool,
    pub event_params: bool,
    pub signal_params: bool,
    pub wait_params: bool,
    pub kernel_attributes: bool,
    pub handles: bool,
    pub alloc_params: bool,
    pub free_params: bool,
    pub batch_params: bool,
    /// Edge data.
    pub topology: bool,
    pub conditional_params: bool,
}

impl DriverDot {
    /// Everything.
    pub fn all() -> DriverDot {
        DriverDot {
            verbose: true,
            kernel_params: true,
            copy_params: true,
            fill_params: true,
            host_params: true,
            event_params: true,
            signal_params: true,
            wait_params: true,
            kernel_attributes: true,
            handles: true,
            alloc_params: true,
            free_params: true,
            batch_params: true,
            topology: true,
            conditional_params: true,
            runtime_types: false,
        }
    }

    fn bits(self) -> u32 {
        [
            (self.verbose, Flag::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE),
            (
                self.runtime_types,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_RUNTIME_TYPES,
            ),
            (
                self.kernel_params,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS,
            ),
            (
                self.copy_params,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS,
            ),
            (
                self.fill_params,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS,
            ),
            (
                self.host_params,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS,
            ),
            (
                self.event_params,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS,
            ),
            (
                self.signal_params,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_SIGNAL_NODE_PARAMS,
            ),
            (
                self.wait_params,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_WAIT_NODE_PARAMS,
            ),
            (
                self.kernel_attributes,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES,
            ),
            (self.handles, Flag::CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES),
            (
                self.alloc_params,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS,
            ),
            (
                self.free_params,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS,
            ),
            (
                self.batch_params,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS,
            ),
            (
                self.topology,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO,
            ),
            (
                self.conditional_params,
                Flag::CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS,
            ),
        ]
        .into_iter()
        .filter(|(on, _)| *on)
        .fold(0, |bits, (_, flag)| bits | flag as u32)
    }
}

impl Graph {
    /// The driver's picture of the graph, in Graphviz' language. The driver writes files alone, so
    /// it goes through one in a private folder of the temporary folder.
    pub fn driver_dot(&self, show: DriverDot) -> Result<String> {
        let failed = |error: std::io::Error| Error::Picture {
            why: format!("the driver's file: {error}"),
        };
        // Nobody else can put a file, or a link, where the driver writes.
        let folder = tempfile::Builder::new()
            .prefix("cuda-graph-")
            .tempdir()
            .map_err(failed)?;
        let file = folder.path().join("graph.dot");
        let path = CString::new(file.as_os_str().as_bytes()).map_err(|error| Error::Picture {
            why: error.to_string(),
        })?;
        driver::bind(self.context())?;
        let state = self.hierarchy().lock();
        driver::graph::print_dot(state.body(self.body_index())?.raw, &path, show.bits())?;
        drop(state);
        std::fs::read_to_string(&file).map_err(failed)
    }
}
