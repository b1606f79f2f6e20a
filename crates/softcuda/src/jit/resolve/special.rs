//! The names of special registers.

use ptx::ast::Immediate;

use crate::jit::decode::{Arg, ClusterReg, Special};

/// Bytes of shared memory that are reserved for the system's libraries in kernels that ask where it
/// is. Cooperative groups keep barriers there.
pub(super) const RESERVED_SHARED: u64 = 1024;

/// A special register or named constant; with its components, where it has some.
pub(super) fn named(name: &str) -> Option<Arg> {
    use Special::*;
    Some(Arg::Special(match name {
        "WARP_SZ" => {
            return Some(Arg::Imm(Immediate::Int {
                bits: 32,
                signed: true,
            }));
        }
        "%laneid" => Laneid,
        "%warpid" => Warpid,
        "%nwarpid" => Nwarpid,
        "%smid" => Smid,
        "%nsmid" => Nsmid,
        "%gridid" => Gridid,
        "%lanemask_eq" => LanemaskEq,
        "%lanemask_le" => LanemaskLe,
        "%lanemask_lt" => LanemaskLt,
        "%lanemask_ge" => LanemaskGe,
        "%lanemask_gt" => LanemaskGt,
        "%clock" => Clock,
        "%clock_hi" => ClockHi,
        "%clock64" => Clock64,
        "%globaltimer" => Globaltimer,
        "%globaltimer_lo" => GlobaltimerLo,
        "%globaltimer_hi" => GlobaltimerHi,
        "%dynamic_smem_size" => DynamicSmemSize,
        "%total_smem_size" | "%aggr_smem_size" => TotalSmemSize,
        "%cluster_ctarank" => ClusterCtarank,
        "%cluster_nctarank" => ClusterNctarank,
        "%is_explicit_cluster" => IsExplicitCluster,
        "%current_graph_exec" => CurrentGraphExec,
        _ => {
            if let Some(special) = with_components(name) {
                return Some(Arg::SpecialVector(special));
            }
            if let Some(number) = name.strip_prefix("%envreg") {
                Envreg(number.parse().ok().filter(|n| *n < 32)?)
            } else {
                let number = name.strip_prefix("%pm")?;
                let number = number.strip_suffix("_64").unwrap_or(number);
                Pm(number.parse().ok().filter(|n| *n < 8)?)
            }
        }
    }))
}

/// Where in the shared memory that is reserved for the system's libraries a special register
/// points.
pub(super) fn reserved_shared(name: &str) -> Option<i64> {
    Some(match name.strip_prefix("%reserved_smem_offset_")? {
        "begin" | "0" | "1" => 0,
        "end" | "cap" => RESERVED_SHARED as i64,
        _ => return None,
    })
}

/// A component of a special register.
pub(super) fn component(name: &str, component: u8) -> Option<Arg> {
    use Special::*;
    Some(Arg::Special(match with_components(name)? {
        Tid(_) => Tid(component),
        Ntid(_) => Ntid(component),
        Ctaid(_) => Ctaid(component),
        Nctaid(_) => Nctaid(component),
        Cluster(register, _) => Cluster(register, component),
        _ => return None,
    }))
}

fn with_components(name: &str) -> Option<Special> {
    use Special::*;
    Some(match name {
        "%tid" => Tid(0),
        "%ntid" => Ntid(0),
        "%ctaid" => Ctaid(0),
        "%nctaid" => Nctaid(0),
        "%clusterid" => Cluster(ClusterReg::Clusterid, 0),
        "%nclusterid" => Cluster(ClusterReg::Nclusterid, 0),
        "%cluster_ctaid" => Cluster(ClusterReg::Ctaid, 0),
        "%cluster_nctaid" => Cluster(ClusterReg::Nctaid, 0),
        _ => return None,
    })
}
