//! Special registers.

use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::Lower;
use super::entry::Entry;
use crate::jit::decode::{ClusterReg, Special};
use crate::jit::runtime::access;

/// `%nwarpid`: warps that a multiprocessor of compute capability 9.0 can hold.
const WARPS: i64 = 64;

impl Lower<'_> {
    /// The value of a special register, in its own width.
    pub(super) fn special(&mut self, special: Special) -> Value {
        use Special::*;
        match special {
            Tid(n @ 0..3) => self.tid(n),
            Ntid(n @ 0..3) => self.entry(Entry::Ntid(n)),
            Ctaid(n @ 0..3) => self.entry(Entry::Ctaid(n)),
            Nctaid(n @ 0..3) => self.entry(Entry::Nctaid(n)),
            Tid(_) | Ctaid(_) => self.number(0),
            Ntid(_) | Nctaid(_) => self.number(1),
            Laneid => {
                let linear = self.linear();
                self.b.ins().band_imm(linear, 31)
            }
            Warpid => {
                let linear = self.linear();
                self.b.ins().ushr_imm(linear, 5)
            }
            Nwarpid => self.number(WARPS),
            Smid => self.entry(Entry::Smid),
            Nsmid => self.entry(Entry::Nsmid),
            Gridid => self.entry(Entry::Gridid),
            LanemaskEq => self.lane_bit(),
            LanemaskLt => {
                let bit = self.lane_bit();
                self.b.ins().iadd_imm(bit, -1)
            }
            LanemaskGe => {
                let bit = self.lane_bit();
                self.b.ins().ineg(bit)
            }
            LanemaskLe => {
                let below = self.special(LanemaskLt);
                let bit = self.lane_bit();
                self.b.ins().bor(below, bit)
            }
            LanemaskGt => {
                let up = self.special(LanemaskLe);
                self.b.ins().bnot(up)
            }
            Clock64 => self.call_value(&access::CLOCK, &[]),
            Clock => {
                let clock = self.call_value(&access::CLOCK, &[]);
                self.b.ins().ireduce(types::I32, clock)
            }
            ClockHi => {
                let clock = self.call_value(&access::CLOCK, &[]);
                self.high(clock)
            }
            Globaltimer => self.call_value(&access::GLOBALTIMER, &[]),
            GlobaltimerLo => {
                let time = self.call_value(&access::GLOBALTIMER, &[]);
                self.b.ins().ireduce(types::I32, time)
            }
            GlobaltimerHi => {
                let time = self.call_value(&access::GLOBALTIMER, &[]);
                self.high(time)
            }
            DynamicSmemSize => self.entry(Entry::DynamicShared),
            TotalSmemSize => {
                let size = self.entry(Entry::SharedSize);
                self.b.ins().ireduce(types::I32, size)
            }
            Envreg(1) => {
                let workspace = self.entry(Entry::Workspace);
                self.high(workspace)
            }
            Envreg(2) => {
                let workspace = self.entry(Entry::Workspace);
                self.b.ins().ireduce(types::I32, workspace)
            }
            Envreg(_) | Pm(_) => self.number(0),
            Cluster(register, n) => self.cluster(register, n),
            ClusterCtarank => {
                let mut rank = self.cluster(ClusterReg::Ctaid, 2);
                for n in [1, 0] {
                    let size = self.entry(Entry::Cluster(n));
                    rank = self.b.ins().imul(rank, size);
                    let at = self.cluster(ClusterReg::Ctaid, n);
                    rank = self.b.ins().iadd(rank, at);
                }
                rank
            }
            ClusterNctarank => {
                let [x, y, z] = [0, 1, 2].map(|n| self.entry(Entry::Cluster(n)));
                let plane = self.b.ins().imul(x, y);
                self.b.ins().imul(plane, z)
            }
            // No graph is launched by the device.
            CurrentGraphExec => self.b.ins().iconst(types::I64, 0),
            IsExplicitCluster => {
                let blocks = self.special(ClusterNctarank);
                self.b.ins().icmp_imm(
                    cranelift_codegen::ir::condcodes::IntCC::UnsignedGreaterThan,
                    blocks,
                    1,
                )
            }
        }
    }

    fn number(&mut self, number: i64) -> Value {
        self.b.ins().iconst(types::I32, number)
    }

    fn high(&mut self, value: Value) -> Value {
        let high = self.b.ins().ushr_imm(value, 32);
        self.b.ins().ireduce(types::I32, high)
    }

    fn lane_bit(&mut self) -> Value {
        let lane = self.special(Special::Laneid);
        let one = self.number(1);
        self.b.ins().ishl(one, lane)
    }

    fn cluster(&mut self, register: ClusterReg, n: u8) -> Value {
        if n > 2 {
            return self.number(i64::from(matches!(
                register,
                ClusterReg::Nclusterid | ClusterReg::Nctaid
            )));
        }
        // A division by zero would end the process; the grid gives 1 where there is no cluster.
        let size = self.entry(Entry::Cluster(n));
        let one = self.number(1);
        let divisor = self.b.ins().umax(size, one);
        match register {
            ClusterReg::Nctaid => size,
            ClusterReg::Clusterid => {
                let at = self.entry(Entry::Ctaid(n));
                self.b.ins().udiv(at, divisor)
            }
            ClusterReg::Nclusterid => {
                let count = self.entry(Entry::Nctaid(n));
                self.b.ins().udiv(count, divisor)
            }
            ClusterReg::Ctaid => {
                let at = self.entry(Entry::Ctaid(n));
                self.b.ins().urem(at, divisor)
            }
        }
    }
}
