//! Launch attributes of kernel nodes.

use std::mem;

use cudarc::driver::sys::{
    CUclusterSchedulingPolicy, CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue,
    CUlaunchAttribute, CUlaunchAttributeID,
};

use crate::{Result, driver};

/// A launch attribute of a kernel node.
#[derive(Clone)]
#[non_exhaustive]
pub enum LaunchAttribute {
    /// The blocks may synchronize as one grid.
    Cooperative(bool),
    /// The shape of a cluster, in blocks.
    Cluster(u32, u32, u32),
    /// How clusters are placed.
    ClusterScheduling(CUclusterSchedulingPolicy),
    /// The priority, lower is sooner.
    Priority(i32),
    /// How much of the L1 cache is shared memory, in per cent.
    SharedMemoryCarveout(u32),
    /// Any other, as the driver has it.
    Raw(RawAttribute),
}

/// An attribute by its number. Its value may be an address or a handle, which the driver trusts.
#[derive(Clone, Copy)]
pub struct RawAttribute {
    id: CUkernelNodeAttrID,
    value: CUkernelNodeAttrValue,
}

// SAFETY: plain data; addresses and handles in it may be used from any thread, by `new`'s contract.
unsafe impl Send for RawAttribute {}
// SAFETY: as above.
unsafe impl Sync for RawAttribute {}

impl RawAttribute {
    /// The attribute `id` with this value.
    ///
    /// # Safety
    ///
    /// The value is one of this attribute, its unused bytes are zero, and what its addresses and handles mean lives for as long as a graph,
    /// executable or launch has the attribute.
    pub unsafe fn new(id: CUkernelNodeAttrID, value: CUkernelNodeAttrValue) -> RawAttribute {
        RawAttribute { id, value }
    }

    /// Which attribute it is.
    pub fn id(&self) -> CUkernelNodeAttrID {
        self.id
    }

    /// Its value.
    pub fn value(&self) -> &CUkernelNodeAttrValue {
        &self.value
    }
}

impl LaunchAttribute {
    pub(crate) fn id(&self) -> CUkernelNodeAttrID {
        use CUlaunchAttributeID as Id;
        match self {
            LaunchAttribute::Cooperative(_) => Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
            LaunchAttribute::Cluster(..) => Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            LaunchAttribute::ClusterScheduling(_) => {
                Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
            }
            LaunchAttribute::Priority(_) => Id::CU_LAUNCH_ATTRIBUTE_PRIORITY,
            LaunchAttribute::SharedMemoryCarveout(_) => {
                Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            }
            LaunchAttribute::Raw(raw) => raw.id,
        }
    }

    fn value(&self) -> CUkernelNodeAttrValue {
        // SAFETY: the union is plain data with a member of bytes.
        let mut value: CUkernelNodeAttrValue = unsafe { mem::zeroed() };
        match self {
            LaunchAttribute::Cooperative(on) => value.cooperative = i32::from(*on),
            LaunchAttribute::Cluster(x, y, z) => {
                value.clusterDim.x = *x;
                value.clusterDim.y = *y;
                value.clusterDim.z = *z;
            }
            LaunchAttribute::ClusterScheduling(policy) => {
                value.clusterSchedulingPolicyPreference = *policy
            }
            LaunchAttribute::Priority(priority) => value.priority = *priority,
            LaunchAttribute::SharedMemoryCarveout(percent) => value.sharedMemCarveout = *percent,
            LaunchAttribute::Raw(raw) => value = raw.value,
        }
        value
    }

    /// The same attribute as a plain launch has it.
    pub(crate) fn plain(&self) -> LaunchAttribute {
        match self {
            LaunchAttribute::Cooperative(_) => LaunchAttribute::Cooperative(false),
            LaunchAttribute::Cluster(..) => LaunchAttribute::Cluster(1, 1, 1),
            LaunchAttribute::Priority(_) => LaunchAttribute::Priority(0),
            other => {
                // SAFETY: the union is plain data with a member of bytes; of no attribute is zero an address or a handle.
                LaunchAttribute::Raw(unsafe { RawAttribute::new(other.id(), mem::zeroed()) })
            }
        }
    }

    /// As launches outside of graphs take it.
    pub(super) fn of_launch(&self) -> CUlaunchAttribute {
        CUlaunchAttribute {
            id: self.id(),
            pad: [0; 4],
            value: self.value(),
        }
    }

    /// Gives a node this attribute.
    pub(crate) fn set(&self, node: CUgraphNode) -> Result<()> {
        driver::node::set_attribute(node, self.id(), &self.value())
    }

    /// The attributes of a node that differ from a plain launch, as far as the driver tells.
    pub(super) fn read(node: CUgraphNode) -> Vec<LaunchAttribute> {
        use CUlaunchAttributeID as Id;
        let mut found = Vec::new();
        if let Ok(value) = driver::node::attribute(node, Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
            // SAFETY: the driver answered with the member that the attribute names.
            if unsafe { value.cooperative } != 0 {
                found.push(LaunchAttribute::Cooperative(true));
            }
        }
        if let Ok(value) = driver::node::attribute(node, Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        {
            // SAFETY: as above.
            let cluster = unsafe { value.clusterDim };
            if cluster.x > 0 && (cluster.x, cluster.y, cluster.z) != (1, 1, 1) {
                found.push(LaunchAttribute::Cluster(cluster.x, cluster.y, cluster.z));
            }
        }
        if let Ok(value) = driver::node::attribute(node, Id::CU_LAUNCH_ATTRIBUTE_PRIORITY) {
            // SAFETY: as above.
            let priority = unsafe { value.priority };
            if priority != 0 {
                found.push(LaunchAttribute::Priority(priority));
            }
        }
        found
    }

    fn bytes(&self) -> [std::ffi::c_char; 64] {
        // SAFETY: the value was made from zero bytes, or is a raw one, whose maker says so: all of them are initialized.
        unsafe { self.value().pad }
    }
}

impl std::fmt::Debug for RawAttribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.id)
    }
}

impl PartialEq for LaunchAttribute {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id() && self.bytes() == other.bytes()
    }
}

impl std::fmt::Debug for LaunchAttribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LaunchAttribute::Cooperative(on) => write!(f, "cooperative {on}"),
            LaunchAttribute::Cluster(x, y, z) => write!(f, "cluster {x}x{y}x{z}"),
            LaunchAttribute::ClusterScheduling(policy) => write!(f, "{policy:?}"),
            LaunchAttribute::Priority(priority) => write!(f, "priority {priority}"),
            LaunchAttribute::SharedMemoryCarveout(percent) => {
                write!(f, "shared memory carve-out {percent} %")
            }
            LaunchAttribute::Raw(raw) => write!(f, "{:?}", raw.id),
        }
    }
}
