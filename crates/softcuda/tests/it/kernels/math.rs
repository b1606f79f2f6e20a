//! `math_f32.cu`, `math_f64.cu`: the math library, within the errors that the CUDA programming
//! guide gives for each function, and the approximating instructions, within those of the PTX
//! manual.
//!
//! A column marked as determined is compiled to exact instructions alone, and must be the H200's
//! bit for bit.

use super::case::{Bound, Case, Ptx, absolute, args, relative, ulp};
use super::input::Inputs;

const F32: Ptx = super::ptx!("math_f32");
const F64: Ptx = super::ptx!("math_f64");
const N: usize = 128;

super::cases! {
    elementary_f64, special_f64, binary_f64, elementary_f32, special_f32, power_f32, remainders_f32, fast_f32,
    fast_limits, sincos_f32, mandelbrot,
}

// The host's math library has what Rust's floats have no method for.
#[link(name = "m")]
unsafe extern "C" {
    safe fn erf(x: f64) -> f64;
    safe fn erfc(x: f64) -> f64;
    safe fn tgamma(x: f64) -> f64;
    safe fn lgamma(x: f64) -> f64;
    safe fn j0(x: f64) -> f64;
    safe fn y1(x: f64) -> f64;
    safe fn asinh(x: f64) -> f64;
    safe fn acosh(x: f64) -> f64;
    safe fn atanh(x: f64) -> f64;
    safe fn exp10(x: f64) -> f64;
    safe fn remainder(x: f64, y: f64) -> f64;
    safe fn nextafter(x: f64, y: f64) -> f64;
    safe fn nextafterf(x: f32, y: f32) -> f32;
    safe fn fdim(x: f64, y: f64) -> f64;
    safe fn logb(x: f64) -> f64;
}

/// A function's result exact whatever the machine.
const EXACT: Bound = ulp(0).determined();

/// The twenty functions of the elementary kernels.
const ELEMENTARY: [fn(f64) -> f64; 20] = [
    f64::sin,
    f64::cos,
    f64::tan,
    f64::asin,
    f64::acos,
    f64::atan,
    f64::sinh,
    f64::cosh,
    f64::tanh,
    |x| asinh(x),
    |x| acosh(x),
    |x| atanh(x),
    f64::exp,
    f64::exp2,
    f64::exp_m1,
    f64::ln,
    f64::log2,
    f64::log10,
    f64::ln_1p,
    |x| exp10(x),
];

/// Values around one, around zero, and farther out.
fn mixed(inputs: &mut Inputs, count: usize, far: f64) -> Vec<f64> {
    inputs.make(count, |s| match s.below(5) {
        0 => s.between(-far, far),
        1 => s.between(-1.0, 1.0) * 2f64.powi(-(s.below(30) as i32)),
        2 => s.between(0.0, 20.0),
        _ => s.between(-2.0, 2.0),
    })
}

fn elementary_f64(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let mut values = mixed(&mut inputs, N, 700.0);
    values[..8].copy_from_slice(&[
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1e22,
    ]);
    values[8..12].copy_from_slice(&[3.0e5, -1.0e9, std::f64::consts::FRAC_PI_2, 6.3e15]);
    let mut case = Case::new(name, F64);
    let (input, out) = (case.input(&values), case.output::<f64>(20 * N));
    let bounds = [2, 2, 2, 2, 2, 2, 2, 1, 1, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1];
    let pure = [0, 1, 6, 12, 13, 14, 19];
    let bounds: Vec<Bound> = bounds
        .iter()
        .enumerate()
        .map(|(i, &n)| {
            if pure.contains(&i) {
                ulp(n).determined()
            } else {
                ulp(n)
            }
        })
        .collect();
    case.near(out, &bounds);
    case.expect(
        out,
        &values
            .iter()
            .flat_map(|&x| ELEMENTARY.map(|f| f(x)))
            .collect::<Vec<f64>>(),
    );
    case.launch(name, N as u32 / 128, 128, args![input, out]);
    case
}

/// The inverse of `erf`, by Newton's method.
fn erf_inverse(x: f64) -> f64 {
    if x.abs() > 1.0 {
        return f64::NAN;
    }
    let slope = |y: f64| 2.0 / std::f64::consts::PI.sqrt() * (-y * y).exp();
    (0..60).fold(0.0, |y: f64, _| y - (erf(y) - x) / slope(y))
}

fn special_f64(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let values = inputs.make(N, |s| match s.below(3) {
        0 => s.between(0.02, 0.9),
        1 => s.between(0.5, 3.0),
        _ => s.between(2.0, 8.0),
    });
    let mut case = Case::new(name, F64);
    let (input, out) = (case.input(&values), case.output::<f64>(16 * N));
    let pi = std::f64::consts::PI;
    let row = |&x: &f64| {
        let part = x % 2.0;
        [
            erf(x),
            erfc(x),
            tgamma(x),
            lgamma(x),
            x.cbrt(),
            1.0 / x.cbrt(),
            (x * x).exp() * erfc(x),
            j0(x),
            y1(x),
            0.5 * erfc(-x / 2f64.sqrt()),
            (pi * part).sin(),
            (pi * part).cos(),
            logb(x),
            x.round(),
            x.round_ties_even(),
            erf_inverse(x),
        ]
    };
    let near_zero = |n: u64| ulp(n).or_absolute(2e-15);
    let bounds = [
        ulp(2),
        ulp(5),
        ulp(10),
        near_zero(4),
        ulp(1),
        ulp(2),
        ulp(4).or_relative(3e-14),
        near_zero(7),
        near_zero(7),
        ulp(5),
        near_zero(2).determined(),
        near_zero(2).determined(),
        EXACT,
        EXACT,
        EXACT,
        ulp(5).or_relative(1e-13),
    ];
    case.near(out, &bounds);
    case.expect(out, &values.iter().flat_map(row).collect::<Vec<f64>>());
    case.launch(name, N as u32 / 128, 128, args![input, out]);
    case
}

/// A number's fraction in [1/2, 1) and its exponent.
fn split(x: f64) -> (f64, i32) {
    if x == 0.0 {
        return (x, 0);
    }
    let exponent = logb(x) as i32 + 1;
    let (half, rest) = (exponent / 2, exponent - exponent / 2);
    (x * 2f64.powi(-half) * 2f64.powi(-rest), exponent)
}

/// Numbers only, of every size.
fn numbers(values: Vec<f64>) -> Vec<f64> {
    values
        .into_iter()
        .map(|v| if v.is_finite() { v } else { 1.75 })
        .collect()
}

fn binary_f64(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let mut a = numbers(inputs.f64s(N));
    let mut b = numbers(inputs.f64s(N));
    for (x, y) in a.iter_mut().zip(&mut b).take(N * 3 / 4) {
        (*x, *y) = (inputs.between(-3.0, 40.0), inputs.between(-12.0, 12.0));
    }
    a.iter_mut()
        .zip(&mut b)
        .step_by(9)
        .for_each(|(x, y)| (*x, *y) = (x.round(), y.round()));
    let mut case = Case::new(name, F64);
    let (da, db, out) = (case.input(&a), case.input(&b), case.output::<f64>(14 * N));
    let row = |i: usize| {
        let (x, y) = (a[i], b[i]);
        let (fraction, exponent) = split(x);
        [
            x.powf(y),
            x.atan2(y),
            x.hypot(y),
            x % y,
            remainder(x, y),
            fdim(x, y),
            nextafter(x, y),
            x * 2f64.powi(i as i32 % 200 - 100),
            fraction,
            exponent as f64,
            x.fract().copysign(x),
            x.trunc(),
            remainder(x, y),
            1.0 / x.sqrt(),
        ]
    };
    let pure = ulp(2).determined();
    let mut bounds = [EXACT; 14];
    (bounds[0], bounds[1], bounds[2], bounds[13]) = (pure, pure, ulp(2), ulp(1));
    case.near(out, &bounds);
    case.expect(out, &(0..N).flat_map(row).collect::<Vec<f64>>());
    case.launch(name, N as u32 / 128, 128, args![da, db, out]);
    case
}

fn elementary_f32(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let mut values: Vec<f32> = mixed(&mut inputs, N, 85.0)
        .into_iter()
        .map(|v| v as f32)
        .collect();
    values[..8].copy_from_slice(&[
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e10,
    ]);
    values[8..12].copy_from_slice(&[3.0e5, -1.0e9, std::f32::consts::FRAC_PI_2, 6.3e7]);
    let mut case = Case::new(name, F32);
    let (input, out) = (case.input(&values), case.output::<f32>(20 * N));
    let functions: Vec<fn(f64) -> f64> = ELEMENTARY[..19]
        .iter()
        .copied()
        .chain([f64::cbrt as fn(f64) -> f64])
        .collect();
    let bounds = [2, 2, 4, 2, 2, 2, 3, 2, 2, 3, 4, 3, 2, 2, 1, 1, 1, 2, 1, 1];
    let pure = [0, 1, 15, 16, 17, 18];
    let bounds: Vec<Bound> = bounds
        .iter()
        .enumerate()
        .map(|(i, &n)| {
            if pure.contains(&i) {
                ulp(n).determined()
            } else {
                ulp(n)
            }
        })
        .collect();
    let expected: Vec<f32> = values
        .iter()
        .flat_map(|&x| functions.iter().map(move |f| f(x as f64) as f32))
        .collect();
    case.near(out, &bounds);
    case.expect(out, &expected);
    case.launch(name, N as u32 / 128, 128, args![input, out]);
    case
}

fn special_f32(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let values: Vec<f32> = inputs.make(N, |s| match s.below(2) {
        0 => s.between(0.02, 2.0) as f32,
        _ => s.between(0.5, 9.0) as f32,
    });
    let mut case = Case::new(name, F32);
    let (input, out) = (case.input(&values), case.output::<f32>(8 * N));
    let row = |&v: &f32| {
        let x = v as f64;
        let sine = (std::f64::consts::PI * (x % 2.0)).sin();
        [
            erf(x),
            erfc(x),
            tgamma(x),
            lgamma(x),
            1.0 / x.sqrt(),
            exp10(x),
            sine,
            x.round(),
        ]
        .map(|v| v as f32)
    };
    let gamma = ulp(6).or_absolute(1e-6);
    let bounds = [
        ulp(2),
        ulp(4),
        ulp(5),
        gamma,
        ulp(2),
        ulp(2),
        ulp(1).or_absolute(1e-9).determined(),
        EXACT,
    ];
    case.near(out, &bounds);
    case.expect(out, &values.iter().flat_map(row).collect::<Vec<f32>>());
    case.launch(name, N as u32 / 128, 128, args![input, out]);
    case
}

fn power_f32(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let a: Vec<f32> = inputs.make(N, |s| s.between(-2.0, 20.0) as f32);
    let b: Vec<f32> = inputs.make(N, |s| {
        if s.below(4) == 0 {
            s.below(9) as f32 - 4.0
        } else {
            s.between(-9.0, 9.0) as f32
        }
    });
    let mut case = Case::new(name, F32);
    let (da, db, out) = (case.input(&a), case.input(&b), case.output::<f32>(3 * N));
    let row = |(&x, &y): (&f32, &f32)| {
        let (x, y) = (x as f64, y as f64);
        [x.powf(y), x.atan2(y), x.hypot(y)].map(|v| v as f32)
    };
    case.near(out, &[ulp(4), ulp(3).determined(), ulp(3).determined()]);
    case.expect(out, &a.iter().zip(&b).flat_map(row).collect::<Vec<f32>>());
    case.launch(name, N as u32 / 128, 128, args![da, db, out]);
    case
}

fn remainders_f32(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let finite = |v: Vec<f32>| {
        v.into_iter()
            .map(|v| if v.is_finite() { v } else { 2.75 })
            .collect::<Vec<f32>>()
    };
    let (a, b) = (finite(inputs.f32s(N)), finite(inputs.f32s(N)));
    let mut case = Case::new(name, F32);
    let (da, db, out) = (case.input(&a), case.input(&b), case.output::<f32>(8 * N));
    let row = |i: usize| {
        let (x, y) = (a[i], b[i]);
        let (fraction, exponent) = split(x as f64);
        [
            x % y,
            remainder(x as f64, y as f64) as f32,
            fdim(x as f64, y as f64) as f32,
            nextafterf(x, y),
            (x as f64 * 2f64.powi(i as i32 % 60 - 30)) as f32,
            fraction as f32,
            exponent as f32,
            x.fract().copysign(x),
        ]
    };
    case.columns(out, 8);
    case.expect(out, &(0..N).flat_map(row).collect::<Vec<f32>>());
    case.launch(name, N as u32 / 128, 128, args![da, db, out]);
    case
}

fn fast_f32(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let (a, b) = (
        inputs.moderate(N, 3.125),
        inputs.make(N, |s| s.between(0.5, 8.0) as f32),
    );
    let mut case = Case::new(name, F32);
    let (da, db, out) = (case.input(&a), case.input(&b), case.output::<f32>(12 * N));
    let row = |(&x, &y): (&f32, &f32)| {
        let (x, y) = (x as f64, y as f64);
        let values = [
            x.sin(),
            x.cos(),
            x.exp2(),
            x.abs().log2(),
            x.tanh(),
            1.0 / x,
            1.0 / x.abs().sqrt(),
            x.abs().sqrt(),
            x / y,
            x / y,
            x.exp(),
            x.abs().ln(),
        ];
        values.map(|v| v as f32)
    };
    let bounds = [
        absolute(2f64.powi(-20)),
        absolute(2f64.powi(-20)),
        ulp(2),
        relative(2f64.powi(-22)).or_absolute(2f64.powi(-22)),
        relative(2f64.powi(-11)),
        ulp(1),
        relative(2f64.powf(-22.9)),
        relative(2f64.powi(-22)),
        ulp(2),
        ulp(2),
        ulp(2 + 4),
        ulp(3).or_absolute(2f64.powf(-21.4)),
    ];
    case.near(out, &bounds);
    case.expect(out, &a.iter().zip(&b).flat_map(row).collect::<Vec<f32>>());
    case.launch(name, N as u32 / 128, 128, args![da, db, out]);
    case
}

/// The manual's tables of limits.
fn fast_limits(name: &'static str) -> Case {
    const INF: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;
    let values = [0.0, -0.0, INF, -INF, NAN, -NAN];
    let mut case = Case::new(name, F32);
    let (input, out) = (case.input(&values), case.output::<f32>(60));
    let expected = [
        [0.0, 1.0, 1.0, -INF, 0.0, INF, INF, 0.0, 1.0, INF],
        [-0.0, 1.0, 1.0, -INF, -0.0, -INF, -INF, -0.0, 1.0, -INF],
        [NAN, NAN, INF, INF, 1.0, 0.0, 0.0, INF, INF, 0.0],
        [NAN, NAN, 0.0, NAN, -1.0, -0.0, NAN, NAN, 0.0, -0.0],
        [NAN; 10],
        [NAN; 10],
    ];
    case.columns(out, 10);
    case.expect(out, expected.as_flattened());
    case.launch(name, 1, 6, args![input, out]);
    case
}

fn sincos_f32(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let values: Vec<f32> = inputs.make(N, |s| {
        let far = 10f64.powi(s.below(9) as i32);
        s.between(-far, far) as f32
    });
    let mut case = Case::new(name, F32);
    let (input, out) = (case.input(&values), case.output::<f32>(2 * N));
    let row = |&x: &f32| [(x as f64).sin() as f32, (x as f64).cos() as f32];
    case.near(out, &[ulp(2).determined(), ulp(2).determined()]);
    case.expect(out, &values.iter().flat_map(row).collect::<Vec<f32>>());
    case.launch(name, N as u32 / 128, 128, args![input, out]);
    case
}

fn mandelbrot(name: &'static str) -> Case {
    let (width, height, limit) = (48u32, 32u32, 200u32);
    let (x0, y0, step) = (-2.0f32, -1.0f32, 0.0625f32);
    let mut case = Case::new(name, F32);
    let out = case.output::<u32>((width * height) as usize);
    let cell = |i: u32| {
        let cr = ((i % width) as f32).mul_add(step, x0);
        let ci = ((i / width) as f32).mul_add(step, y0);
        let (mut zr, mut zi) = (0f32, 0f32);
        let mut n = 0;
        while n < limit && zr.mul_add(zr, zi * zi) <= 4.0 {
            let next = zr.mul_add(zr, -(zi * zi)) + cr;
            zi = (zr + zr).mul_add(zi, ci);
            zr = next;
            n += 1;
        }
        n
    };
    case.columns(out, width as usize);
    case.expect(out, &(0..width * height).map(cell).collect::<Vec<u32>>());
    case.launch(
        name,
        (3, 4),
        (16, 8),
        args![out, width, x0, y0, step, limit],
    );
    case
}
