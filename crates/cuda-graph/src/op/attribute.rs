//! Launch attributes of kernel nodes.

use std::mem;

use cudarc::driver::sys::{
    CUclusterSchedulingPolicy, CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue,
    CUlaunchAttributeID,
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
    Raw(CUkernelNodeAttrID, CUkernelNodeAttrValue),
}

// SAFETY: plain data; what a raw value's handles mean is the driver's business, and handles may be used from any thread.
unsafe impl Send for LaunchAttribute {}
// SAFETY: as above.
unsafe impl Sync for LaunchAttribute {}

impl LaunchAttribute {
    pub(super) fn id(&self) -> CUkernelNodeAttrID {
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
            LaunchAttribute::Raw(id, _) => *id,
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
            LaunchAttribute::Raw(_, raw) => value = *raw,
        }
        value
    }

    /// The same attribute as a plain launch has it.
    pub(super) fn plain(&self) -> LaunchAttribute {
        match self {
            LaunchAttribute::Cooperative(_) => LaunchAttribute::Cooperative(false),
            LaunchAttribute::Cluster(..) => LaunchAttribute::Cluster(1, 1, 1),
            LaunchAttribute::Priority(_) => LaunchAttribute::Priority(0),
            other => {
                // SAFETY: the union is plain data with a member of bytes.
                LaunchAttribute::Raw(other.id(), unsafe { mem::zeroed() })
            }
        }
    }

    /// Gives a node this attribute.
    pub(super) fn set(&self, node: CUgraphNode) -> Result<()> {
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
        // SAFETY: the value was made from zero bytes, so all of them are initialized.
        unsafe { self.value().pad }
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
            LaunchAttribute::Raw(id, _) => write!(f, "{id:?}"),
        }
    }
}
