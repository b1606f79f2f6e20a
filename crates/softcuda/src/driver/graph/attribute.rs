//! The attributes of kernel nodes: `CUkernelNodeAttrID`.

use std::collections::BTreeMap;

use crate::driver::stream::{Attribute, GREATEST_PRIORITY};
use crate::driver::{CUresult, Result};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

const ACCESS_POLICY_WINDOW: u32 = 1;
const COOPERATIVE: u32 = 2;
const CLUSTER_DIMENSION: u32 = 4;
const CLUSTER_SCHEDULING_POLICY_PREFERENCE: u32 = 5;
const PRIORITY: u32 = 8;
const MEM_SYNC_DOMAIN_MAP: u32 = 9;
const MEM_SYNC_DOMAIN: u32 = 10;
const DEVICE_UPDATABLE_KERNEL_NODE: u32 = 13;
const PREFERRED_SHARED_MEMORY_CARVEOUT: u32 = 14;
const NVLINK_UTIL_CENTRIC_SCHEDULING: u32 = 16;

/// Domains of a device.
const SYNC_DOMAINS: u8 = 4;

/// The attributes of a node.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Those that were set.
    set: BTreeMap<u32, Attribute>,
    /// The node is of a launch that a capture recorded: those that were not set are a launch's.
    of_launch: bool,
}

fn words(value: &Attribute) -> [u32; 3] {
    [value[0] as u32, (value[0] >> 32) as u32, value[1] as u32]
}

fn value(words: [u32; 3]) -> Attribute {
    let mut value = [0; 8];
    value[0] = u64::from(words[0]) | u64::from(words[1]) << 32;
    value[1] = u64::from(words[2]);
    value
}

impl Attributes {
    /// Those of a kernel that a capture records, as an H200 has them.
    pub fn of_launch(
        priority: i32,
        cooperative: bool,
        cluster: Option<[u32; 3]>,
    ) -> Result<Attributes> {
        let mut attributes = Attributes {
            of_launch: true,
            ..Attributes::default()
        };
        if priority != 0 {
            attributes.set(PRIORITY, value([priority as u32, 0, 0]))?;
        }
        if cooperative {
            attributes.set(COOPERATIVE, value([1, 0, 0]))?;
        }
        if let Some(cluster) = cluster {
            attributes.set(CLUSTER_DIMENSION, value(cluster))?;
        }
        Ok(attributes)
    }

    /// `cuGraphKernelNodeGetAttribute`.
    pub fn get(&self, id: u32) -> Result<Attribute> {
        let default = match id {
            CLUSTER_SCHEDULING_POLICY_PREFERENCE if self.of_launch => value([1, 0, 0]),
            ACCESS_POLICY_WINDOW
            | COOPERATIVE
            | CLUSTER_DIMENSION
            | CLUSTER_SCHEDULING_POLICY_PREFERENCE
            | PRIORITY
            | MEM_SYNC_DOMAIN
            | DEVICE_UPDATABLE_KERNEL_NODE
            | PREFERRED_SHARED_MEMORY_CARVEOUT => [0; 8],
            // A map of two bytes: the default domain and the remote one.
            MEM_SYNC_DOMAIN_MAP => value([0x0100, 0, 0]),
            _ => return Err(INVALID),
        };
        Ok(self.set.get(&id).copied().unwrap_or(default))
    }

    /// `cuGraphKernelNodeSetAttribute`.
    pub fn set(&mut self, id: u32, mut to: Attribute) -> Result {
        let [first, ..] = words(&to);
        let fine = match id {
            // A size that does not fit is refused with the rest of the launch.
            ACCESS_POLICY_WINDOW
            | CLUSTER_DIMENSION
            | COOPERATIVE
            | CLUSTER_SCHEDULING_POLICY_PREFERENCE => true,
            MEM_SYNC_DOMAIN_MAP => to[0].to_le_bytes()[..2].iter().all(|&it| it < SYNC_DOMAINS),
            MEM_SYNC_DOMAIN | NVLINK_UTIL_CENTRIC_SCHEDULING => first <= 1,
            PRIORITY => {
                let priority = (first as i32).clamp(GREATEST_PRIORITY, 0);
                to = value([priority as u32, 0, 0]);
                true
            }
            PREFERRED_SHARED_MEMORY_CARVEOUT => first <= 100,
            DEVICE_UPDATABLE_KERNEL_NODE if first == 0 => true,
            // Kernels cannot update nodes here.
            DEVICE_UPDATABLE_KERNEL_NODE => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            _ => false,
        };
        if !fine {
            return Err(INVALID);
        }
        self.set.insert(id, to);
        Ok(())
    }

    /// Blocks may wait for each other.
    pub fn cooperative(&self) -> bool {
        self.set
            .get(&COOPERATIVE)
            .is_some_and(|value| words(value)[0] != 0)
    }

    /// The priority; 0 is the lowest, and smaller numbers are higher.
    pub fn priority(&self) -> i32 {
        self.set
            .get(&PRIORITY)
            .map_or(0, |value| words(value)[0] as i32)
    }

    /// Blocks of a cluster, where that is set.
    pub fn cluster(&self) -> Option<[u32; 3]> {
        let cluster = words(self.set.get(&CLUSTER_DIMENSION)?);
        (cluster != [0; 3]).then_some(cluster)
    }
}
