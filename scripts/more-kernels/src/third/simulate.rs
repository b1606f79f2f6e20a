//! Finance, fractals and particles.

use std::hint::black_box;

use cudarc::driver::{DeviceRepr, PushKernelArg};
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("black_scholes_erfc", black_scholes),
    ("mandelbrot_f64", mandelbrot),
    ("monte_carlo_call", monte_carlo),
    ("nbody_tiles", nbody),
    ("lj_forces", lennard_jones),
    ("heat3d_periodic", heat),
];

fn black_scholes(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 200_003usize;
    let f = gpu.kernel("black_scholes_erfc")?;
    let some = |from, to, seed| -> Vec<f64> {
        between(from, to, n, seed)
            .into_iter()
            .map(f64::from)
            .collect()
    };
    let (price, strike, years) = (
        some(5.0, 100.0, 1),
        some(1.0, 100.0, 2),
        some(0.25, 10.0, 3),
    );
    let (pd, sd, yd) = (
        gpu.stream.clone_htod(&price)?,
        gpu.stream.clone_htod(&strike)?,
        gpu.stream.clone_htod(&years)?,
    );
    let (mut cd, mut ud) = (
        gpu.stream.alloc_zeros::<f64>(n)?,
        gpu.stream.alloc_zeros::<f64>(n)?,
    );
    let (mut call, mut put) = (vec![0.0f64; n], vec![0.0f64; n]);
    let (rate, vol) = (0.02f64, 0.3f64);
    let times = race(
        name,
        || {
            let ni = n as i32;
            launch!(
                gpu,
                f,
                gpu.cover(n, 128),
                &mut cd,
                &mut ud,
                &pd,
                &sd,
                &yd,
                &rate,
                &vol,
                &ni
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let cdf = |x: f64| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
            (&mut call, &mut put, black_box(&price), &strike, &years)
                .into_par_iter()
                .with_min_len(1 << 11)
                .for_each(|(call, put, &s, &x, &t)| {
                    let sq = vol * t.sqrt();
                    let d1 = ((s / x).ln() + (rate + 0.5 * vol * vol) * t) / sq;
                    let d2 = d1 - sq;
                    let discounted = x * (-rate * t).exp();
                    let c = s * cdf(d1) - discounted * cdf(d2);
                    (*call, *put) = (c, c + discounted - s);
                });
        },
    )?;
    let checked = check(&gpu.stream.clone_dtoh(&cd)?, &call, 1e-10);
    times.print(checked.and(check(&gpu.stream.clone_dtoh(&ud)?, &put, 1e-10)))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct View {
    x0: f64,
    y0: f64,
    dx: f64,
    dy: f64,
}
// SAFETY: plain numbers, laid out as in C.
unsafe impl DeviceRepr for View {}

fn mandelbrot(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h, limit) = (601usize, 433usize, 256i32);
    let f = gpu.kernel("mandelbrot_f64")?;
    let view = View {
        x0: -2.1,
        y0: -1.2,
        dx: 3.0 / w as f64,
        dy: 2.4 / h as f64,
    };
    let mut od = gpu.stream.alloc_zeros::<i32>(w * h)?;
    let mut out = vec![0i32; w * h];
    let times = race(
        name,
        || {
            let (wi, hi) = (w as u32, h as u32);
            launch!(
                gpu,
                f,
                gpu.plane(w, h, 8, 8),
                &mut od,
                &wi,
                &hi,
                &view,
                &limit
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let v = black_box(view);
            out.par_chunks_exact_mut(w)
                .enumerate()
                .for_each(|(py, out)| {
                    let cy = v.y0 + py as f64 * v.dy;
                    // 8 pixels at a time: what escaped stays outside.
                    for (chunk, out) in out.chunks_mut(8).enumerate() {
                        let cx: [f64; 8] =
                            std::array::from_fn(|i| v.x0 + (chunk * 8 + i) as f64 * v.dx);
                        let (mut x, mut y, mut count) = ([0.0f64; 8], [0.0f64; 8], [0.0f64; 8]);
                        for _ in 0..limit / 8 {
                            let before = count;
                            for _ in 0..8 {
                                for i in 0..8 {
                                    let (xx, yy) = (x[i] * x[i], y[i] * y[i]);
                                    count[i] += if xx + yy <= 4.0 { 1.0 } else { 0.0 };
                                    y[i] = 2.0 * x[i] * y[i] + cy;
                                    x[i] = xx - yy + cx[i];
                                }
                            }
                            if count == before {
                                break;
                            }
                        }
                        for (out, count) in out.iter_mut().zip(count) {
                            *out = count as i32;
                        }
                    }
                });
        },
    )?;
    // Fused products round otherwise, and near the border that grows.
    times.print(check_some(&gpu.stream.clone_dtoh(&od)?, &out, 0.0, 1e-2))
}

struct Xorshift([u32; 4]);

impl Xorshift {
    fn new(seed: u32) -> Xorshift {
        let x = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        Xorshift([
            x,
            x ^ 362_436_069,
            (x >> 7) ^ 521_288_629,
            (x << 9) ^ 88_675_123,
        ])
    }
    fn uniform(&mut self) -> f32 {
        let [x, y, z, w] = self.0;
        let t = x ^ (x << 11);
        let next = w ^ (w >> 19) ^ t ^ (t >> 8);
        self.0 = [y, z, w, next];
        ((next >> 8) + 1) as f32 * (1.0 / 16_777_216.0)
    }
}

fn monte_carlo(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (threads, pairs) = (12_001usize, 20i32);
    let f = gpu.kernel("monte_carlo_call")?;
    let (s0, strike, vol) = (100.0f32, 105.0f32, 0.2f32);
    let drift = 0.03 - 0.5 * vol * vol;
    let mut sd = gpu.stream.alloc_zeros::<f64>(1)?;
    let mut sum = 0.0f64;
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut sd)?;
            let t = threads as i32;
            launch!(
                gpu,
                f,
                gpu.cover(threads, 256),
                &s0,
                &strike,
                &drift,
                &vol,
                &pairs,
                &t,
                &mut sd
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let vol = black_box(vol);
            sum = (0..threads)
                .into_par_iter()
                .with_min_len(128)
                .map(|id| {
                    let mut rng = Xorshift::new(id as u32 + 1);
                    (0..pairs)
                        .map(|_| {
                            let r = (-2.0 * rng.uniform().ln()).sqrt();
                            let (s, c) = (std::f32::consts::TAU * rng.uniform()).sin_cos();
                            let a = s0 * (drift + vol * r * c).exp();
                            let b = s0 * (drift + vol * r * s).exp();
                            ((a - strike).max(0.0) + (b - strike).max(0.0)) as f64
                        })
                        .sum::<f64>()
                })
                .sum();
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&sd)?, &[sum], 1e-5))
}

fn nbody(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 3001usize;
    let f = gpu.kernel("nbody_tiles")?;
    let mut pos = noise(n * 4, 1);
    for p in pos.chunks_exact_mut(4) {
        p[3] = (p[3] + 1.0) / 2.0;
    }
    let pd = gpu.stream.clone_htod(&pos)?;
    let mut ad = gpu.stream.alloc_zeros::<f32>(n * 4)?;
    let mut accel = vec![0.0f32; n * 4];
    let soft2 = 0.01f32;
    let mut config = gpu.cover(n, 256);
    config.shared_mem_bytes = 256 * 16;
    let times = race(
        name,
        || {
            let ni = n as i32;
            launch!(gpu, f, config, &pd, &mut ad, &ni, &soft2);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            // 8 bodies at a time, a lane each.
            let bodies = black_box(&pos[..]).as_chunks::<4>().0;
            accel
                .par_chunks_mut(32)
                .zip(bodies.par_chunks(8))
                .with_min_len(8)
                .for_each(|(accel, some)| {
                    let me = |axis: usize| -> [f32; 8] {
                        std::array::from_fn(|i| some.get(i).map_or(0.0, |p| p[axis]))
                    };
                    let (mx, my, mz) = (me(0), me(1), me(2));
                    let (mut ax, mut ay, mut az) = ([0.0f32; 8], [0.0f32; 8], [0.0f32; 8]);
                    for b in bodies {
                        for i in 0..8 {
                            let (dx, dy, dz) = (b[0] - mx[i], b[1] - my[i], b[2] - mz[i]);
                            let inv = 1.0 / (dx * dx + dy * dy + dz * dz + soft2).sqrt();
                            let s = b[3] * inv * inv * inv;
                            ax[i] += dx * s;
                            ay[i] += dy * s;
                            az[i] += dz * s;
                        }
                    }
                    for (i, out) in accel.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                        *out = [ax[i], ay[i], az[i], 0.0];
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&ad)?, &accel, 1e-3))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Lj {
    cutoff2: f64,
    sigma6: f64,
    epsilon48: f64,
}
// SAFETY: plain numbers, laid out as in C.
unsafe impl DeviceRepr for Lj {}

fn lennard_jones(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let [nx, ny, nz] = [24i32, 22, 21];
    let n = (nx * ny * nz) as usize;
    let f = gpu.kernel("lj_forces")?;
    // Atoms near the points of a lattice; neighbours are those within sqrt(6) steps.
    let jitter = noise64(n * 3, 1);
    let point = |i: usize| [i as i32 % nx, i as i32 / nx % ny, i as i32 / (nx * ny)];
    let pos: Vec<[f64; 3]> = (0..n)
        .map(|i| std::array::from_fn(|d| 1.1 * point(i)[d] as f64 + 0.15 * jitter[i * 3 + d]))
        .collect();
    let neighbours: Vec<Vec<i32>> = (0..n)
        .map(|i| {
            let [x, y, z] = point(i);
            let mut list = Vec::new();
            for (dz, dy, dx) in
                (-2..=2).flat_map(|z| (-2..=2).flat_map(move |y| (-2..=2).map(move |x| (z, y, x))))
            {
                let (u, v, w) = (x + dx, y + dy, z + dz);
                let near = (1..=6).contains(&(dx * dx + dy * dy + dz * dz));
                if near && (0..nx).contains(&u) && (0..ny).contains(&v) && (0..nz).contains(&w) {
                    list.push((w * ny + v) * nx + u);
                }
            }
            list
        })
        .collect();
    let counts: Vec<i32> = neighbours.iter().map(|l| l.len() as i32).collect();
    let most = neighbours.iter().map(Vec::len).max().unwrap();
    let mut list = vec![0i32; most * n];
    for (i, l) in neighbours.iter().enumerate() {
        for (k, &j) in l.iter().enumerate() {
            list[k * n + i] = j;
        }
    }
    let axis = |d: usize| -> Vec<f64> { pos.iter().map(|p| p[d]).collect() };
    let (xd, yd, zd) = (
        gpu.stream.clone_htod(&axis(0))?,
        gpu.stream.clone_htod(&axis(1))?,
        gpu.stream.clone_htod(&axis(2))?,
    );
    let (cd, ld) = (
        gpu.stream.clone_htod(&counts)?,
        gpu.stream.clone_htod(&list)?,
    );
    let mut fd = gpu.stream.alloc_zeros::<f64>(n * 4)?;
    let mut force = vec![0.0f64; n * 4];
    let p = Lj {
        cutoff2: 2.42 * 2.42,
        sigma6: 1.0,
        epsilon48: 48.0,
    };
    let times = race(
        name,
        || {
            let ni = n as i32;
            launch!(
                gpu,
                f,
                gpu.cover(n, 64),
                &xd,
                &yd,
                &zd,
                &cd,
                &ld,
                &mut fd,
                &p,
                &ni
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let pos = black_box(&pos[..]);
            force
                .par_chunks_exact_mut(4)
                .enumerate()
                .with_min_len(128)
                .for_each(|(i, force)| {
                    let me = pos[i];
                    let mut sums = [0.0f64; 4];
                    for &j in &neighbours[i] {
                        let other = pos[j as usize];
                        let d: [f64; 3] = std::array::from_fn(|k| me[k] - other[k]);
                        let r2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
                        if r2 < p.cutoff2 {
                            let inv = 1.0 / r2;
                            let s6 = p.sigma6 * inv * inv * inv;
                            let f = p.epsilon48 * s6 * (s6 - 0.5) * inv;
                            for (sum, d) in sums.iter_mut().zip(d) {
                                *sum += f * d;
                            }
                            sums[3] += p.epsilon48 / 24.0 * s6 * (s6 - 1.0);
                        }
                    }
                    force.copy_from_slice(&sums);
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&fd)?, &force, 1e-9))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Int3([i32; 3]);
// SAFETY: plain numbers, laid out as in C.
unsafe impl DeviceRepr for Int3 {}

fn heat(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (nx, ny, nz) = (125usize, 110usize, 91usize);
    let n = nx * ny * nz;
    let f = gpu.kernel("heat3d_periodic")?;
    let u = noise64(n, 1);
    let ud = gpu.stream.clone_htod(&u)?;
    let mut vd = gpu.stream.alloc_zeros::<f64>(n)?;
    let mut v = vec![0.0f64; n];
    let k = 0.1f64;
    let config = shape((nx.div_ceil(8), ny.div_ceil(8), nz.div_ceil(4)), (8, 8, 4));
    let times = race(
        name,
        || {
            let size = Int3([nx, ny, nz].map(|v| v as i32));
            launch!(gpu, f, config, &ud, &mut vd, &size, &k);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let u = black_box(&u[..]);
            let row = |y: usize, z: usize| &u[(z * ny + y) * nx..][..nx];
            v.par_chunks_exact_mut(nx)
                .enumerate()
                .with_min_len(64)
                .for_each(|(i, v)| {
                    let (y, z) = (i % ny, i / ny);
                    let here = row(y, z);
                    let sides = [
                        row((y + ny - 1) % ny, z),
                        row((y + 1) % ny, z),
                        row(y, (z + nz - 1) % nz),
                        row(y, (z + 1) % nz),
                    ];
                    let next = |l: f64, c: f64, r: f64, [a, b, d, e]: [f64; 4]| {
                        c + k * (l + r + a + b + d + e - 6.0 * c)
                    };
                    v[0] = next(here[nx - 1], here[0], here[1], sides.map(|s| s[0]));
                    v[nx - 1] = next(
                        here[nx - 2],
                        here[nx - 1],
                        here[0],
                        sides.map(|s| s[nx - 1]),
                    );
                    let [a, b, d, e] = sides.map(|s| &s[1..nx - 1]);
                    for (((((v, h), a), b), d), e) in v[1..nx - 1]
                        .iter_mut()
                        .zip(here.windows(3))
                        .zip(a)
                        .zip(b)
                        .zip(d)
                        .zip(e)
                    {
                        *v = next(h[0], h[1], h[2], [*a, *b, *d, *e]);
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&vd)?, &v, 1e-12))
}
