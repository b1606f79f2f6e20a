//! Trains a small network on burn's CUDA backend and on its ndarray backend, from the same weights
//! and on the same data, and compares losses and outputs.

use burn::backend::{Autodiff, Cuda, NdArray};
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::activation::{relu, softmax};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};

const BATCH: usize = 16;
const SIDE: usize = 8;
const CLASSES: usize = 4;
const STEPS: usize = 10;

#[derive(Module, Debug)]
struct Net<B: Backend> {
    first: Conv2d<B>,
    hidden: Linear<B>,
    last: Linear<B>,
}

/// Numbers in [-1, 1) that are the same wherever they are made.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn data<const D: usize>(&mut self, shape: [usize; D], scale: f32) -> TensorData {
        let values: Vec<f32> =
            (0..shape.iter().product()).map(|_| self.next() * scale).collect();
        TensorData::new(values, shape)
    }
}

impl<B: Backend> Net<B> {
    /// A network whose weights come from `noise`, not from the backend's own random numbers.
    fn new(noise: &mut Noise, device: &B::Device) -> Self {
        let mut net = Self {
            first: Conv2dConfig::new([1, 6], [3, 3]).init(device),
            hidden: LinearConfig::new(6 * (SIDE - 2) * (SIDE - 2), 32).init(device),
            last: LinearConfig::new(32, CLASSES).init(device),
        };
        let mut fill = |shape: Vec<usize>| {
            let values: Vec<f32> =
                (0..shape.iter().product()).map(|_| noise.next() * 0.2).collect();
            TensorData::new(values, shape)
        };
        let mut weights = Vec::new();
        for shape in [
            net.first.weight.dims().to_vec(),
            net.hidden.weight.dims().to_vec(),
            net.last.weight.dims().to_vec(),
        ] {
            weights.push(fill(shape));
        }
        let mut weights = weights.into_iter();
        let mut next = || weights.next().expect("one for each layer");
        let (first, hidden, last) = (next(), next(), next());
        net.first.weight = net.first.weight.map(|_| Tensor::from_data(first, device));
        net.first.bias = None;
        net.hidden.weight = net.hidden.weight.map(|_| Tensor::from_data(hidden, device));
        net.hidden.bias = None;
        net.last.weight = net.last.weight.map(|_| Tensor::from_data(last, device));
        net.last.bias = None;
        net
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = relu(self.first.forward(images)).flatten(1, 3);
        self.last.forward(relu(self.hidden.forward(x)))
    }
}

/// Returns the loss of each step, and the probabilities at the end.
fn train<B: AutodiffBackend>(device: &B::Device) -> (Vec<f32>, Vec<f32>) {
    let mut noise = Noise(7);
    let mut net = Net::<B>::new(&mut noise, device);
    let images =
        Tensor::<B, 4>::from_data(noise.data([BATCH, 1, SIDE, SIDE], 1.0), device);
    let classes: Vec<i32> = (0..BATCH).map(|at| (at % CLASSES) as i32).collect();
    let classes = Tensor::<B, 1, Int>::from_data(TensorData::new(classes, [BATCH]), device);
    let loss = CrossEntropyLossConfig::new().init(device);
    let mut optimizer = SgdConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let value = loss.forward(net.forward(images.clone()), classes.clone());
        let gradients = GradientsParams::from_grads(value.backward(), &net);
        losses.push(value.into_data().convert::<f32>().to_vec().expect("one float")[0]);
        net = optimizer.step(0.3, net, gradients);
    }
    let out = softmax(net.forward(images), 1);
    (losses, out.into_data().convert::<f32>().to_vec().expect("floats"))
}

/// Sums, products and reductions of larger tensors, each as a list of floats.
fn operations<B: Backend>(device: &B::Device) -> Vec<(&'static str, Vec<f32>)> {
    let mut noise = Noise(11);
    let a = Tensor::<B, 2>::from_data(noise.data([65, 130], 1.0), device);
    let b = Tensor::<B, 2>::from_data(noise.data([130, 70], 1.0), device);
    let cubes = Tensor::<B, 3>::from_data(noise.data([4, 32, 48], 1.0), device);
    let list = |t: Tensor<B, 1>| t.into_data().convert::<f32>().to_vec().expect("floats");
    vec![
        ("matmul", list(a.clone().matmul(b).flatten(0, 1))),
        ("batched matmul", list(cubes.clone().matmul(cubes.clone().swap_dims(1, 2)).flatten(0, 2))),
        ("exp and log", list((a.clone().exp() + 1.0).log().flatten(0, 1))),
        ("tanh", list(a.clone().tanh().flatten(0, 1))),
        ("sum of rows", list(a.clone().sum_dim(1).flatten(0, 1))),
        ("mean of columns", list(a.clone().mean_dim(0).flatten(0, 1))),
        ("maximum", list(a.clone().max_dim(1).flatten(0, 1))),
        ("softmax", list(softmax(a.clone(), 1).flatten(0, 1))),
        ("argmax", list(a.clone().argmax(1).float().flatten(0, 1))),
        ("transpose", list(a.clone().transpose().flatten(0, 1))),
        ("slice", list(a.clone().slice([3..20, 5..100]).flatten(0, 1))),
        ("concatenation", list(Tensor::cat(vec![a.clone(), a * 2.0], 0).flatten(0, 1))),
    ]
}

/// The largest difference, relative to 1 or what is larger.
fn difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    ours.iter().zip(theirs).map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, |most, each| {
        // A NaN is no small difference.
        if each <= most { most } else { each }
    })
}

fn main() {
    let mut failed = 0;
    let mut check = |name: &str, ours: &[f32], theirs: &[f32], limit: f32| {
        let off = difference(ours, theirs);
        let good = off <= limit;
        failed += usize::from(!good);
        println!("{name}: {} (largest difference {off:e})", if good { "passed" } else { "FAILED" });
    };
    let ours = operations::<Cuda>(&Default::default());
    let theirs = operations::<NdArray>(&Default::default());
    for ((name, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        check(name, ours, theirs, 1e-4);
    }
    let (losses, out) = train::<Autodiff<Cuda>>(&Default::default());
    let (their_losses, their_out) = train::<Autodiff<NdArray>>(&Default::default());
    println!("losses: {losses:?}");
    check("losses", &losses, &their_losses, 1e-3);
    check("outputs", &out, &their_out, 1e-2);
    let learnt = losses[STEPS - 1] < losses[0];
    println!("the loss falls: {}", if learnt { "passed" } else { "FAILED" });
    failed += usize::from(!learnt);
    println!("burn: {failed} failed");
    std::process::exit(i32::from(failed > 0));
}
