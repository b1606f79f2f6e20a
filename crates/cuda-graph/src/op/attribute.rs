//! Launch attributes of kernel nodes.

use std::fmt;
use std::mem;

use cudarc::driver::sys::{
    CUclusterSchedulingPolicy, CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue,
    CUlaunchAttribute, CUlaunchAttributeID as Id,
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
pub struct RawAttribute(CUlaunchAttribute);

// SAFETY: plain data; addresses and handles in it may be used from any thread, by `new`'s contract.
unsafe impl Send for RawAttribute {}
// SAFETY: as above.
unsafe impl Sync for RawAttribute {}

impl RawAttribute {
    /// The attribute `id` with this value.
    ///
    /// # Safety
    ///
    /// The value is one of this attribute, its unused bytes are zero, and what its addresses and
    /// handles mean lives for as long as a graph, executable or launch has the attribute.
    pub unsafe fn new(id: CUkernelNodeAttrID, value: CUkernelNodeAttrValue) -> RawAttribute {
        let pad = [0; 4];
        RawAttribute(CUlaunchAttribute { id, pad, value })
    }

    /// Which attribute it is.
    pub fn id(&self) -> CUkernelNodeAttrID {
        self.0.id
    }

    /// Its value.
    pub fn value(&self) -> &CUkernelNodeAttrValue {
        &self.0.value
    }
}

impl LaunchAttribute {
    pub(crate) fn id(&self) -> CUkernelNodeAttrID {
        self.raw().id
    }

    /// As the driver takes it.
    pub(super) fn raw(&self) -> CUlaunchAttribute {
        // SAFETY: the union is plain data with a member of bytes.
        let mut value: CUkernelNodeAttrValue = unsafe { mem::zeroed() };
        let id = match *self {
            LaunchAttribute::Cooperative(on) => {
                value.cooperative = on.into();
                Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            }
            LaunchAttribute::Cluster(x, y, z) => {
                value.clusterDim.x = x;
                value.clusterDim.y = y;
                value.clusterDim.z = z;
                Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            }
            LaunchAttribute::ClusterScheduling(policy) => {
                value.clusterSchedulingPolicyPreference = policy;
                Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
            }
            LaunchAttribute::Priority(priority) => {
                value.priority = priority;
                Id::CU_LAUNCH_ATTRIBUTE_PRIORITY
            }
            LaunchAttribute::SharedMemoryCarveout(percent) => {
                value.sharedMemCarveout = percent;
                Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            }
            LaunchAttribute::Raw(raw) => return raw.0,
        };
        let pad = [0; 4];
        CUlaunchAttribute { id, pad, value }
    }

    /// The same attribute as a plain launch has it: zero, but for a cluster.
    pub(crate) fn plain(&self) -> LaunchAttribute {
        match self {
            LaunchAttribute::Cluster(..) => LaunchAttribute::Cluster(1, 1, 1),
            // SAFETY: the union is plain data with a member of bytes; zero is no attribute's
            // address or handle.
            _ => LaunchAttribute::Raw(unsafe { RawAttribute::new(self.id(), mem::zeroed()) }),
        }
    }

    /// Gives a node this attribute.
    pub(crate) fn set(&self, node: CUgraphNode) -> Result<()> {
        driver::node::set_attribute(node, self.id(), &self.raw().value)
    }

    /// The attributes of a node that differ from a plain launch, as far as the driver tells.
    pub(super) fn read(node: CUgraphNode) -> Vec<LaunchAttribute> {
        let ask = |id| driver::node::attribute(node, id).ok();
        // SAFETY: the driver answers with the member that the attribute names.
        let told = unsafe {
            [
                ask(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
                    .map(|value| LaunchAttribute::Cooperative(value.cooperative != 0)),
                ask(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
                    .map(|value| value.clusterDim)
                    .filter(|cluster| cluster.x > 0)
                    .map(|cluster| LaunchAttribute::Cluster(cluster.x, cluster.y, cluster.z)),
                ask(Id::CU_LAUNCH_ATTRIBUTE_PRIORITY)
                    .map(|value| LaunchAttribute::Priority(value.priority)),
            ]
        };
        let differs = |attribute: &LaunchAttribute| *attribute != attribute.plain();
        told.into_iter().flatten().filter(differs).collect()
    }
}

/// Whether the blocks of a launch with these attributes may synchronize as one grid.
pub(crate) fn is_cooperative(attributes: &[LaunchAttribute]) -> bool {
    attributes.iter().any(|attribute| {
        let raw = attribute.raw();
        // SAFETY: the member is the one that the attribute names.
        raw.id == Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE && unsafe { raw.value.cooperative } != 0
    })
}

/// The priority of a launch with these attributes.
pub(crate) fn priority(attributes: &[LaunchAttribute]) -> i32 {
    let of = |attribute: &LaunchAttribute| {
        let raw = attribute.raw();
        // SAFETY: the value was made from zero bytes, or is a raw one, whose maker says so: all of
        // it is initialized.
        let priority = unsafe { raw.value.priority };
        (raw.id == Id::CU_LAUNCH_ATTRIBUTE_PRIORITY).then_some(priority)
    };
    attributes.iter().find_map(of).unwrap_or(0)
}

impl fmt::Debug for RawAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.id())
    }
}

impl PartialEq for LaunchAttribute {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.raw(), other.raw());
        // SAFETY: the values were made from zero bytes, or are raw ones, whose maker says so: all
        // of them are initialized.
        a.id == b.id && unsafe { a.value.pad == b.value.pad }
    }
}

impl fmt::Debug for LaunchAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchAttribute::Cooperative(on) => write!(f, "cooperative {on}"),
            LaunchAttribute::Cluster(x, y, z) => write!(f, "cluster {x}x{y}x{z}"),
            LaunchAttribute::ClusterScheduling(policy) => write!(f, "{policy:?}"),
            LaunchAttribute::Priority(priority) => write!(f, "priority {priority}"),
            LaunchAttribute::SharedMemoryCarveout(percent) => {
                write!(f, "shared memory carve-out {percent} %")
            }
            LaunchAttribute::Raw(raw) => raw.fmt(f),
        }
    }
}
