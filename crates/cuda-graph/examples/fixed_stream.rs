//! Records code that has one stream of its own, inside of a loop inside of a branch.
//!
//! [`Scaler`] stands for such code, as candle's devices and cuBLAS' handles are: it was given a
//! stream when it was made, and launches on that, whoever calls it. Between two typed operations it
//! halves a vector and saves it, as often as a counter on the device says.
//!
//! `cargo run --release --example fixed_stream`

use std::sync::Arc;

use cuda_graph::cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg,
};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{Buffer, CopyOp, Eager, Graph, KernelOp, Recorder, Result};

/// `halve(x, n)`: `x[i] /= 2`. `count(n, by)`: `*n += by`.
const KERNELS: &str = "
.version 7.0
.target sm_70
.address_size 64

.visible .entry halve(.param .u64 x, .param .u32 n)
{
    .reg .pred %out;
    .reg .b32 %i, %block, %size, %n;
    .reg .b64 %x, %at;
    .reg .f32 %v;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %i, %tid.x;
    mad.lo.u32 %i, %block, %size, %i;
    ld.param.u32 %n, [n];
    setp.ge.u32 %out, %i, %n;
    @%out ret;
    ld.param.u64 %x, [x];
    mul.wide.u32 %at, %i, 4;
    add.u64 %x, %x, %at;
    ld.global.f32 %v, [%x];
    mul.rn.f32 %v, %v, 0f3F000000;
    st.global.f32 [%x], %v;
    ret;
}

.visible .entry count(.param .u64 n, .param .u32 by)
{
    .reg .b32 %v, %by;
    .reg .b64 %p;
    ld.param.u64 %p, [n];
    ld.param.u32 %by, [by];
    ld.global.u32 %v, [%p];
    add.u32 %v, %v, %by;
    st.global.u32 [%p], %v;
    ret;
}
";

/// So many numbers are in the vector.
pub const LEN: usize = 1000;

/// Code that knows nothing of graphs: it keeps a stream, and launches on it.
struct Scaler {
    stream: Arc<CudaStream>,
    halve: CudaFunction,
    x: Arc<CudaSlice<f32>>,
    saved: Arc<CudaSlice<f32>>,
}

impl Scaler {
    /// Halves the vector, and saves it.
    fn step(&self) -> Result<()> {
        let (x, saved) = (Buffer::from(&self.x), Buffer::from(&self.saved));
        let (address, len) = (x.address(), LEN as u32);
        let mut launch = self.stream.launch_builder(&self.halve);
        launch.arg(&address).arg(&len);
        // SAFETY: `halve` uses so many numbers, which the vector has.
        unsafe { launch.launch(LaunchConfig::for_num_elems(len)) }?;
        let (to, raw) = (saved.address(), self.stream.cu_stream());
        // SAFETY: both vectors are so long.
        unsafe {
            cuda_graph::cudarc::driver::result::memcpy_dtod_async(to, address, 4 * LEN, raw)
        }?;
        Ok(())
    }
}

/// A step, and the memory that it works on.
pub struct Job {
    /// The stream that everything runs on, the scaler's own among it.
    pub stream: Arc<CudaStream>,
    scaler: Arc<Scaler>,
    count: CudaFunction,
    /// Whether anything is to be done.
    go: Buffer<u32>,
    /// How many turns are left, and how many were made.
    left: Buffer<u32>,
    turns: Buffer<u32>,
    result: Buffer<f32>,
}

impl Job {
    /// Loads the kernels and allocates the memory.
    pub fn new(context: &Arc<CudaContext>) -> Result<Job> {
        let stream = context.new_stream()?;
        let module = context.load_module(Ptx::from_src(KERNELS))?;
        let zeros = || Ok::<_, cuda_graph::Error>(Arc::new(stream.alloc_zeros::<f32>(LEN)?));
        let scaler = Scaler {
            stream: stream.clone(),
            halve: module.load_function("halve")?,
            x: zeros()?,
            saved: zeros()?,
        };
        let word = || Buffer::zeroed(&stream, 1);
        Ok(Job {
            count: module.load_function("count")?,
            go: word()?,
            left: word()?,
            turns: word()?,
            result: Buffer::zeroed(&stream, LEN)?,
            scaler: Arc::new(scaler),
            stream,
        })
    }

    /// What the step is to do.
    pub fn start(&self, go: bool, turns: u32) -> Result<()> {
        let x = Buffer::from(&self.scaler.x);
        let numbers: Vec<f32> = (0..LEN).map(|i| i as f32).collect();
        x.copy_from_host(&self.stream, &numbers)?;
        Buffer::from(&self.scaler.saved).copy_from_host(&self.stream, &[-1.0; LEN])?;
        self.result.copy_from_host(&self.stream, &[0.0; LEN])?;
        self.go.copy_from_host(&self.stream, &[u32::from(go)])?;
        self.left.copy_from_host(&self.stream, &[turns])?;
        self.turns.copy_from_host(&self.stream, &[0])
    }

    /// Turns made, and the vector that the last one copied.
    pub fn result(&self) -> Result<(u32, Vec<f32>)> {
        let turns = self.turns.to_host(&self.stream)?[0];
        Ok((turns, self.result.to_host(&self.stream)?))
    }

    fn add(&self, to: &Buffer<u32>, by: u32) -> Result<KernelOp> {
        let one = LaunchConfig {
            grid_dim: (1, 1, 1),
            block_dim: (1, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: `count` adds to one word.
        unsafe { KernelOp::new(&self.count, one, (to, by)) }
    }

    /// The step, for any recorder with this job's stream.
    pub fn step(&self, r: &mut dyn Recorder) -> Result<()> {
        r.if_nonzero(&self.go, |r| {
            r.while_nonzero(&self.left, |r| {
                r.record(self.add(&self.turns, 1)?)?;
                // The graph runs what the scaler launched long after this call.
                r.keep(self.scaler.clone())?;
                // SAFETY: the scaler keeps what its launches use, and is kept.
                unsafe { r.foreign(|_| self.scaler.step()) }?;
                let saved = Buffer::from(&self.scaler.saved);
                r.record(CopyOp::new(&self.result, &saved)?)?;
                r.record(self.add(&self.left, u32::MAX)?).map(drop)
            })
        })
    }
}

#[allow(dead_code, reason = "a test runs the step without it")]
fn main() -> Result<()> {
    let device = cuda_graph::device(0)?;
    println!("device: {}, driver: {}", device.name()?, device.driver());
    let job = Job::new(device.context())?;
    let (graph, ()) = Graph::capture(&job.stream, |path| job.step(path))?;
    let mut exec = graph.instantiate()?;
    for (go, turns) in [(true, 5), (true, 0), (false, 5), (true, 1)] {
        job.start(go, turns)?;
        job.step(&mut Eager::new(&job.stream)?)?;
        let wanted = job.result()?;
        job.start(go, turns)?;
        exec.launch(&job.stream)?;
        let got = job.result()?;
        assert_eq!(got, wanted);
        println!(
            "go: {go}, turns: {turns}: made {} turns, the last number is {}, as the host does it",
            got.0,
            got.1[LEN - 1]
        );
    }
    Ok(())
}
