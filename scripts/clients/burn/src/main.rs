//! Does operations, and trains a small network, on burn's CUDA backend and on its ndarray backend,
//! from the same numbers, and compares.
//!
//! Without arguments it lists its checks; with the name of one it runs that.

use burn::backend::{Autodiff, Cuda, NdArray};
use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::activation::{relu, softmax};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
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
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn data<const D: usize>(&mut self, shape: [usize; D], scale: f32) -> TensorData {
        let values: Vec<f32> = (0..shape.iter().product())
            .map(|_| self.next() * scale)
            .collect();
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
            let values: Vec<f32> = (0..shape.iter().product())
                .map(|_| noise.next() * 0.2)
                .collect();
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
        net.first.weight = Param::from_tensor(Tensor::from_data(first, device));
        net.first.bias = None;
        net.hidden.weight = Param::from_tensor(Tensor::from_data(hidden, device));
        net.hidden.bias = None;
        net.last.weight = Param::from_tensor(Tensor::from_data(last, device));
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
    let images = Tensor::<B, 4>::from_data(noise.data([BATCH, 1, SIDE, SIDE], 1.0), device);
    let classes: Vec<i32> = (0..BATCH).map(|at| (at % CLASSES) as i32).collect();
    let classes = Tensor::<B, 1, Int>::from_data(TensorData::new(classes, [BATCH]), device);
    let loss = CrossEntropyLossConfig::new().init(device);
    let mut optimizer = SgdConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let value = loss.forward(net.forward(images.clone()), classes.clone());
        let gradients = GradientsParams::from_grads(value.backward(), &net);
        losses.push(
            value
                .into_data()
                .convert::<f32>()
                .to_vec()
                .expect("one float")[0],
        );
        net = optimizer.step(0.3, net, gradients);
    }
    let out = softmax(net.forward(images), 1);
    (
        losses,
        out.into_data().convert::<f32>().to_vec().expect("floats"),
    )
}

const OPERATIONS: [&str; 14] = [
    "matmul",
    "batched matmul",
    "exp and log",
    "tanh",
    "powers",
    "sum of rows",
    "mean of columns",
    "maximum",
    "softmax",
    "argmax",
    "transpose",
    "slice",
    "concatenation",
    "convolution",
];

/// One operation on tensors that are the same on each backend, as a list of floats.
fn operation<B: Backend>(name: &str, device: &B::Device) -> Vec<f32> {
    let mut noise = Noise(11);
    let a = Tensor::<B, 2>::from_data(noise.data([65, 130], 1.0), device);
    let b = Tensor::<B, 2>::from_data(noise.data([130, 70], 1.0), device);
    let cubes = Tensor::<B, 3>::from_data(noise.data([4, 32, 48], 1.0), device);
    let flat = match name {
        "matmul" => a.matmul(b).flatten(0, 1),
        "batched matmul" => cubes.clone().matmul(cubes.swap_dims(1, 2)).flatten(0, 2),
        "exp and log" => (a.exp() + 1.0).log().flatten(0, 1),
        "tanh" => a.tanh().flatten(0, 1),
        "powers" => a.abs().powf_scalar(1.7).flatten(0, 1),
        "sum of rows" => a.sum_dim(1).flatten(0, 1),
        "mean of columns" => a.mean_dim(0).flatten(0, 1),
        "maximum" => a.max_dim(1).flatten(0, 1),
        "softmax" => softmax(a, 1).flatten(0, 1),
        "argmax" => a.argmax(1).float().flatten(0, 1),
        "transpose" => a.transpose().flatten(0, 1),
        "slice" => a.slice([3..20, 5..100]).flatten(0, 1),
        "concatenation" => Tensor::cat(vec![a.clone(), a * 2.0], 0).flatten(0, 1),
        "convolution" => {
            let images = Tensor::<B, 4>::from_data(noise.data([2, 3, 12, 13], 1.0), device);
            let weights = Tensor::<B, 4>::from_data(noise.data([5, 3, 3, 3], 1.0), device);
            let options = ConvOptions::new([2, 1], [1, 1], [1, 1], 1);
            conv2d(images, weights, None, options).flatten(0, 3)
        }
        _ => panic!("there is no check {name}"),
    };
    let flat: Tensor<B, 1> = flat;
    flat.into_data().convert::<f32>().to_vec().expect("floats")
}

/// The largest difference, relative to 1 or what is larger.
fn difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    ours.iter()
        .zip(theirs)
        .map(|(a, b)| (a - b).abs() / b.abs().max(1.0))
        .fold(0.0, |most, each| {
            // A NaN is no small difference.
            if each <= most { most } else { each }
        })
}

type Gpu = Autodiff<Cuda>;
type Host = Autodiff<NdArray>;

/// The checks by name: an operation each, and the training.
fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = OPERATIONS.to_vec();
    names.push("training");
    names
}

/// Runs one check, and says what is wrong.
fn check(name: &str) -> Result<(), String> {
    let near = |what: &str, ours: &[f32], theirs: &[f32], limit: f32| {
        let off = difference(ours, theirs);
        let text = format!("{what}: the largest difference is {off:e}, of {limit:e} allowed");
        println!("{text}");
        if off <= limit { Ok(()) } else { Err(text) }
    };
    if name != "training" {
        let (ours, theirs) = (
            operation::<Cuda>(name, &Default::default()),
            operation::<NdArray>(name, &Default::default()),
        );
        // Tensor cores read 10 bits of the mantissa of what they multiply.
        return near(
            name,
            &ours,
            &theirs,
            if name.contains("matmul") || name == "convolution" {
                2e-2
            } else {
                1e-4
            },
        );
    }
    let (losses, out) = train::<Gpu>(&Default::default());
    let (their_losses, their_out) = train::<Host>(&Default::default());
    println!("losses: {losses:?}");
    near("losses", &losses, &their_losses, 1e-2)?;
    near("outputs", &out, &their_out, 5e-2)?;
    if losses[STEPS - 1] < losses[0] {
        Ok(())
    } else {
        Err("the loss does not fall".into())
    }
}

fn main() {
    let Some(name) = std::env::args().nth(1) else {
        names().iter().for_each(|name| println!("{name}"));
        return;
    };
    if let Err(text) = check(&name) {
        eprintln!("{text}");
        std::process::exit(1);
    }
}
