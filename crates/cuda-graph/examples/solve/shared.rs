//! What a device does with the others that have parts of the same matrix: it brings the halo of a
//! vector up to date, and adds up sums.

use std::ops::Range;
use std::sync::Arc;

use cuda_graph::cudarc::driver::{CudaStream, LaunchConfig};
use cuda_graph::{
    Buffer, CollectiveOp, Communicator, Kernel, KernelOp, Module, Recorder, Reduction, Result,
    Transmission,
};

use super::partition::{Neighbour, Part};

/// The threads of a block of `cg_pack`.
const THREADS: u32 = 256;

pub struct Shared {
    communicator: Communicator,
    pack: Kernel,
    /// The places of all that is sent, by neighbour.
    places: Buffer<u32>,
    packed: Buffer<f64>,
    /// What each neighbour is sent of what is packed, and where what it sends goes.
    messages: Vec<(u32, Range<usize>, Range<usize>)>,
}

impl Shared {
    pub fn new(
        stream: &Arc<CudaStream>,
        module: &Module,
        part: &Part,
        communicator: Communicator,
    ) -> Result<Shared> {
        let places: Vec<u32> = part
            .neighbours
            .iter()
            .flat_map(|neighbour| neighbour.sends.iter().copied())
            .collect();
        let mut packed = 0;
        let message = |neighbour: &Neighbour| {
            let from = packed;
            packed += neighbour.sends.len();
            let receives = neighbour.receives.clone();
            (neighbour.rank as u32, from..packed, receives)
        };
        Ok(Shared {
            communicator,
            pack: module.kernel("cg_pack")?,
            messages: part.neighbours.iter().map(message).collect(),
            packed: Buffer::zeroed(stream, places.len())?,
            places: Buffer::from_host(stream, &places)?,
        })
    }

    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// Sends others what they need of `vector`, and puts what they send behind its own values.
    pub fn fill_halo(&self, to: &mut dyn Recorder, vector: &Buffer<f64>) -> Result<()> {
        if self.messages.is_empty() {
            return Ok(());
        }
        if let count @ 1.. = self.places.len() as u32 {
            let config = LaunchConfig {
                grid_dim: (count.div_ceil(THREADS), 1, 1),
                block_dim: (THREADS, 1, 1),
                shared_mem_bytes: 0,
            };
            let arguments = (count, &self.places, vector, &self.packed);
            // SAFETY: these are the kernel's parameters; places are those of values of the vector.
            to.record(unsafe { KernelOp::new(&self.pack, config, arguments) }?)?;
        }
        let mut transmissions = Vec::new();
        for (peer, sends, receives) in &self.messages {
            if !sends.is_empty() {
                let part = self.packed.slice(sends.clone())?;
                transmissions.push(Transmission::send(&part, *peer));
            }
            if !receives.is_empty() {
                let part = vector.slice(receives.clone())?;
                transmissions.push(Transmission::recv(&part, *peer));
            }
        }
        to.record(CollectiveOp::exchange(&self.communicator, transmissions)?)?;
        Ok(())
    }

    /// Adds up `parts` over all devices.
    pub fn sum(
        &self,
        to: &mut dyn Recorder,
        sums: &Buffer<f64>,
        parts: &Buffer<f64>,
    ) -> Result<()> {
        to.record(CollectiveOp::all_reduce(
            &self.communicator,
            sums,
            parts,
            Reduction::Sum,
        )?)?;
        Ok(())
    }
}
