//! The driver's own picture.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use cudarc::driver::sys::CUgraphDebugDot_flags as Flag;

use crate::{Error, Graph, Result, driver};

/// The fields of [`DriverDot`], each with the end of its flag's name.
macro_rules! flags {
    ($($(#[$doc:meta])* $field:ident = $flag:ident,)+) => {
        /// What the driver's picture shows: one field for each of its flags. [`DriverDot::all`]
        /// shows everything.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is what the driver's flag of that name shows")]
        pub struct DriverDot {
            $($(#[$doc])* pub $field: bool,)+
        }

        impl DriverDot {
            /// Everything, in the driver API's names of types.
            pub fn all() -> DriverDot {
                DriverDot {
                    runtime_types: false,
                    ..DriverDot { $($field: true,)+ }
                }
            }

            fn bits(self) -> u32 {
                0 $(| if self.$field { Flag::$flag as u32 } else { 0 })+
            }
        }
    };
}

flags! {
    /// All of the others, as the driver sees fit.
    verbose = CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE,
    /// The runtime API's names of types.
    runtime_types = CU_GRAPH_DEBUG_DOT_FLAGS_RUNTIME_TYPES,
    kernel_params = CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS,
    copy_params = CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS,
    fill_params = CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS,
    host_params = CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS,
    event_params = CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS,
    signal_params = CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_SIGNAL_NODE_PARAMS,
    wait_params = CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_WAIT_NODE_PARAMS,
    kernel_attributes = CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES,
    handles = CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES,
    alloc_params = CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS,
    free_params = CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS,
    batch_params = CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS,
    /// Edge data.
    topology = CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO,
    conditional_params = CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS,
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
        let path =
            CString::new(file.as_os_str().as_bytes()).map_err(|error| failed(error.into()))?;
        driver::bind(self.context())?;
        let state = self.hierarchy().lock();
        driver::graph::print_dot(state.body(self.body_index())?.raw, &path, show.bits())?;
        drop(state);
        std::fs::read_to_string(&file).map_err(failed)
    }
}
