//! Solvers, transforms, searches, codes.

use std::f32::consts::PI;
use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use super::{down, set, sync, up, zeros};
use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("cg_update", cg_update),
    ("pcr_256", pcr),
    ("inverse_4x4", inverse),
    ("lu_8x8", lu),
    ("fft1024_radix4", fft),
    ("pi_xorshift", pi),
    ("queens_by_thread", queens),
    ("floyd_rest", floyd),
    ("smith_waterman", smith_waterman),
    ("sha256_threads", sha256),
    ("crc32_records", crc32),
    ("aes_ctr", aes),
    ("lz_matches", lz),
    ("cp_async_norms", cp_async),
    ("smooth_grid_sync", smooth),
];

fn cg_update(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 600_011usize;
    let (ni, a) = (n as i32, 1e-3f64);
    let f = gpu.kernel(name)?;
    let (mut x, mut r, p, q) = (noise64(n, 1), noise64(n, 2), noise64(n, 3), noise64(n, 4));
    let (mut xd, mut rd, pd, qd) = (up(gpu, &x)?, up(gpu, &r)?, up(gpu, &p)?, up(gpu, &q)?);
    let mut sd = zeros::<f64>(gpu, 1)?;
    let mut sum = 0.0;
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut sd)?;
            launch!(
                gpu,
                f,
                line(64, 256),
                &mut xd,
                &mut rd,
                &pd,
                &qd,
                &a,
                &mut sd,
                &ni
            );
            sync(gpu)
        },
        || {
            const PART: usize = 1 << 13;
            sum = x
                .par_chunks_mut(PART)
                .zip(r.par_chunks_mut(PART))
                .zip(black_box(&p[..]).par_chunks(PART).zip(q.par_chunks(PART)))
                .map(|((x, r), (p, q))| {
                    x.iter_mut().zip(p).for_each(|(x, p)| *x += a * p);
                    r.iter_mut().zip(q).for_each(|(r, q)| *r -= a * q);
                    let (parts, rest) = r.as_chunks::<8>();
                    let mut sums = [0.0f64; 8];
                    for part in parts {
                        sums.iter_mut().zip(part).for_each(|(s, v)| *s += v * v);
                    }
                    sums.iter().sum::<f64>() + rest.iter().map(|v| v * v).sum::<f64>()
                })
                .sum();
        },
    )?;
    let checked = check(&down(gpu, &sd)?, &[sum], 1e-9);
    let checked = checked.and(check(&down(gpu, &xd)?, &x, 1e-9));
    times.print(checked.and(check(&down(gpu, &rd)?, &r, 1e-9)))
}

fn pcr(gpu: &Gpu, name: &str) -> Outcome<f64> {
    const N: usize = 256;
    let systems = 500usize;
    let f = gpu.kernel(name)?;
    let n = systems * N;
    let (a, b, c) = (noise(n, 1), between(3.0, 4.0, n, 2), noise(n, 3));
    let d = noise(n, 4);
    let (ad, bd, cd, dd) = (up(gpu, &a)?, up(gpu, &b)?, up(gpu, &c)?, up(gpu, &d)?);
    let mut xd = zeros::<f32>(gpu, n)?;
    let mut x = vec![0.0f32; n];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(systems, N), &ad, &bd, &cd, &dd, &mut xd);
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            x.par_chunks_mut(N).enumerate().for_each(|(i, x)| {
                let part = i * N..(i + 1) * N;
                let (a, b) = (&a[part.clone()], &b[part.clone()]);
                let (c, d) = (&c[part.clone()], &d[part]);
                let mut slopes = [0.0f32; N];
                (slopes[0], x[0]) = (c[0] / b[0], d[0] / b[0]);
                for i in 1..N {
                    let k = 1.0 / (b[i] - a[i] * slopes[i - 1]);
                    (slopes[i], x[i]) = (c[i] * k, (d[i] - a[i] * x[i - 1]) * k);
                }
                for i in (0..N - 1).rev() {
                    x[i] -= slopes[i] * x[i + 1];
                }
            });
        },
    )?;
    times.print(check(&down(gpu, &xd)?, &x, 1e-4))
}

fn inverse(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 60_007usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let mut a = noise(n * 16, 1);
    for m in a.as_chunks_mut::<16>().0 {
        (0..4).for_each(|i| m[i * 5] += 4.0);
    }
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, n * 16)?);
    let mut out = vec![0.0f32; n * 16];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.cover(n, 128), &ad, &mut od, &ni);
            sync(gpu)
        },
        || {
            let matrices = black_box(&a[..]).as_chunks::<16>().0;
            out.as_chunks_mut::<16>()
                .0
                .par_iter_mut()
                .zip(matrices)
                .with_min_len(1 << 10)
                .for_each(|(out, m)| *out = inverted(m));
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-4))
}

fn inverted(m: &[f32; 16]) -> [f32; 16] {
    let minor =
        |top: usize, a: usize, b: usize| m[top + a] * m[top + 4 + b] - m[top + 4 + a] * m[top + b];
    let s = [
        minor(0, 0, 1),
        minor(0, 0, 2),
        minor(0, 0, 3),
        minor(0, 1, 2),
        minor(0, 1, 3),
        minor(0, 2, 3),
    ];
    let c = [
        minor(8, 0, 1),
        minor(8, 0, 2),
        minor(8, 0, 3),
        minor(8, 1, 2),
        minor(8, 1, 3),
        minor(8, 2, 3),
    ];
    let det = s[0] * c[5] - s[1] * c[4] + s[2] * c[3] + s[3] * c[2] - s[4] * c[1] + s[5] * c[0];
    let k = 1.0 / det;
    [
        m[5] * c[5] - m[6] * c[4] + m[7] * c[3],
        -m[1] * c[5] + m[2] * c[4] - m[3] * c[3],
        m[13] * s[5] - m[14] * s[4] + m[15] * s[3],
        -m[9] * s[5] + m[10] * s[4] - m[11] * s[3],
        -m[4] * c[5] + m[6] * c[2] - m[7] * c[1],
        m[0] * c[5] - m[2] * c[2] + m[3] * c[1],
        -m[12] * s[5] + m[14] * s[2] - m[15] * s[1],
        m[8] * s[5] - m[10] * s[2] + m[11] * s[1],
        m[4] * c[4] - m[5] * c[2] + m[7] * c[0],
        -m[0] * c[4] + m[1] * c[2] - m[3] * c[0],
        m[12] * s[4] - m[13] * s[2] + m[15] * s[0],
        -m[8] * s[4] + m[9] * s[2] - m[11] * s[0],
        -m[4] * c[3] + m[5] * c[1] - m[6] * c[0],
        m[0] * c[3] - m[1] * c[1] + m[2] * c[0],
        -m[12] * s[3] + m[13] * s[1] - m[14] * s[0],
        m[8] * s[3] - m[9] * s[1] + m[10] * s[0],
    ]
    .map(|v| v * k)
}

fn lu(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 3001usize;
    let f = gpu.kernel(name)?;
    let mut a = noise64(n * 64, 1);
    for m in a.as_chunks_mut::<64>().0 {
        (0..8).for_each(|i| m[i * 9] += 9.0);
    }
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f64>(gpu, n * 64)?);
    let mut out = vec![0.0f64; n * 64];
    let times = race(
        name,
        || {
            launch!(gpu, f, shape((n, 1, 1), (8, 8, 1)), &ad, &mut od);
            sync(gpu)
        },
        || {
            let matrices = black_box(&a[..]).as_chunks::<64>().0;
            out.as_chunks_mut::<64>()
                .0
                .par_iter_mut()
                .zip(matrices)
                .with_min_len(64)
                .for_each(|(out, m)| {
                    *out = *m;
                    let rows = out.as_chunks_mut::<8>().0;
                    for k in 0..7 {
                        let (top, rest) = rows.split_at_mut(k + 1);
                        let pivot = &top[k];
                        for row in rest {
                            row[k] /= pivot[k];
                            let l = row[k];
                            for (v, p) in row[k + 1..].iter_mut().zip(&pivot[k + 1..]) {
                                *v -= l * p;
                            }
                        }
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-9))
}

fn fft(gpu: &Gpu, name: &str) -> Outcome<f64> {
    const N: usize = 1024;
    type C = [f32; 2];
    let batches = 200usize;
    let f = gpu.kernel(name)?;
    let a = noise(batches * N * 2, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, a.len())?);
    let mut out = vec![0.0f32; a.len()];
    let twiddles: Vec<[C; 3]> = [1usize, 4, 16, 64, 256]
        .into_iter()
        .flat_map(|ns| {
            (0..ns).map(move |k| {
                [1.0f32, 2.0, 3.0].map(|r| {
                    let angle = -0.5 * PI * r * k as f32 / ns as f32;
                    [angle.cos(), angle.sin()]
                })
            })
        })
        .collect();
    let times = race(
        name,
        || {
            launch!(gpu, f, line(batches, 256), &ad, &mut od);
            sync(gpu)
        },
        || {
            let add = |a: C, b: C| [a[0] + b[0], a[1] + b[1]];
            let sub = |a: C, b: C| [a[0] - b[0], a[1] - b[1]];
            let mul = |a: C, b: C| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]];
            out.par_chunks_mut(N * 2)
                .zip(black_box(&a[..]).par_chunks(N * 2))
                .for_each(|(out, a)| {
                    let mut from: [C; N] = a.as_chunks::<2>().0.try_into().unwrap();
                    let mut to = [[0.0f32; 2]; N];
                    let (mut ns, mut turns) = (1, &twiddles[..]);
                    while ns < N {
                        let (now, later) = turns.split_at(ns);
                        for (part, to) in to.chunks_exact_mut(4 * ns).enumerate() {
                            let src = |r: usize| &from[r * 256 + part * ns..][..ns];
                            let (v0, v1, v2, v3) = (src(0), src(1), src(2), src(3));
                            let (t0, rest) = to.split_at_mut(ns);
                            let (t1, rest) = rest.split_at_mut(ns);
                            let (t2, t3) = rest.split_at_mut(ns);
                            for k in 0..ns {
                                let [w1, w2, w3] = now[k];
                                let (b, c, d) = (mul(v1[k], w1), mul(v2[k], w2), mul(v3[k], w3));
                                let (s0, s1, s2) = (add(v0[k], c), sub(v0[k], c), add(b, d));
                                let s3 = [b[1] - d[1], d[0] - b[0]];
                                (t0[k], t1[k]) = (add(s0, s2), add(s1, s3));
                                (t2[k], t3[k]) = (sub(s0, s2), sub(s1, s3));
                            }
                        }
                        std::mem::swap(&mut from, &mut to);
                        turns = later;
                        ns *= 4;
                    }
                    out.copy_from_slice(from.as_flattened());
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 2e-4))
}

fn mixed(mut k: u32) -> u32 {
    k ^= k >> 16;
    k = k.wrapping_mul(0x85eb_ca6b);
    k ^= k >> 13;
    k = k.wrapping_mul(0xc2b2_ae35);
    k ^ (k >> 16)
}

fn pi(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (threads, draws) = (10_000usize, 200i32);
    let ti = threads as i32;
    let f = gpu.kernel(name)?;
    let mut id = zeros::<u64>(gpu, 1)?;
    let mut inside = 0u64;
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut id)?;
            launch!(gpu, f, gpu.cover(threads, 128), &mut id, &draws, &ti);
            sync(gpu)
        },
        || {
            // Several generators next to each other.
            const LANES: usize = 8;
            let draws = black_box(draws);
            inside = (0..threads / LANES)
                .into_par_iter()
                .with_min_len(32)
                .map(|part| {
                    let mut v: [u32; LANES] =
                        std::array::from_fn(|i| mixed((part * LANES + i + 1) as u32) | 1);
                    let mut hits = [0u32; LANES];
                    for _ in 0..draws {
                        for (v, hits) in v.iter_mut().zip(&mut hits) {
                            *v ^= *v << 13;
                            *v ^= *v >> 17;
                            *v ^= *v << 5;
                            let (x, y) = (*v >> 16, *v & 0xffff);
                            *hits += !(x * x).overflowing_add(y * y).1 as u32;
                        }
                    }
                    hits.iter().map(|&h| h as u64).sum::<u64>()
                })
                .sum();
        },
    )?;
    let got = down(gpu, &id)?[0];
    times.print(check(&[got as f64], &[inside as f64], 0.0))
}

fn queens(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 11usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let mut td = zeros::<u32>(gpu, 1)?;
    let mut total = 0u32;
    fn count(full: u32, cols: u32, left: u32, right: u32) -> u32 {
        if cols == full {
            return 1;
        }
        let mut open = full & !(cols | left | right);
        let mut found = 0;
        while open != 0 {
            let bit = open & open.wrapping_neg();
            open ^= bit;
            found += count(full, cols | bit, (left | bit) << 1, (right | bit) >> 1);
        }
        found
    }
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut td)?;
            launch!(gpu, f, gpu.cover(n * n * n, 64), &ni, &mut td);
            sync(gpu)
        },
        || {
            let n = black_box(n);
            total = (0..n * n)
                .into_par_iter()
                .map(|id| {
                    let (a, b) = (1u32 << (id % n), 1u32 << (id / n));
                    if (a | a << 1 | a >> 1) & b != 0 {
                        return 0;
                    }
                    let (left, right) = ((a << 1 | b) << 1, (a >> 1 | b) >> 1);
                    count((1 << n) - 1, a | b, left, right)
                })
                .sum();
        },
    )?;
    times.print(check(&down(gpu, &td)?, &[total], 0.0))
}

fn floyd(gpu: &Gpu, name: &str) -> Outcome<f64> {
    const T: usize = 16;
    let n = 256usize;
    let ni = n as i32;
    let (corner, cross) = (gpu.kernel("floyd_corner")?, gpu.kernel("floyd_cross")?);
    let rest = gpu.kernel(name)?;
    let start: Vec<i32> = below(1000, n * n, 1)
        .into_iter()
        .zip(below(100, n * n, 2))
        .enumerate()
        .map(|(i, (weight, chance))| match (i / n == i % n, chance) {
            (true, _) => 0,
            (false, 0..10) => 1 + weight,
            _ => 1 << 28,
        })
        .collect();
    let mut dd = up(gpu, &start)?;
    let mut dist = start.clone();
    let times = race(
        name,
        || {
            gpu.stream.memcpy_htod(&start, &mut dd)?;
            for k in 0..(n / T) as i32 {
                launch!(gpu, corner, shape((1, 1, 1), (T, T, 1)), &mut dd, &ni, &k);
                launch!(
                    gpu,
                    cross,
                    shape((n / T, 2, 1), (T, T, 1)),
                    &mut dd,
                    &ni,
                    &k
                );
                launch!(
                    gpu,
                    rest,
                    shape((n / T, n / T, 1), (T, T, 1)),
                    &mut dd,
                    &ni,
                    &k
                );
            }
            sync(gpu)
        },
        || {
            dist.copy_from_slice(black_box(&start));
            for k in 0..n {
                let through = dist[k * n..(k + 1) * n].to_vec();
                dist.par_chunks_mut(n).with_min_len(64).for_each(|row| {
                    let first = row[k];
                    for (d, &t) in row.iter_mut().zip(&through) {
                        *d = (*d).min(first + t);
                    }
                });
            }
        },
    )?;
    times.print(check(&down(gpu, &dd)?, &dist, 0.0))
}

fn smith_waterman(gpu: &Gpu, name: &str) -> Outcome<f64> {
    const N: usize = 128;
    let pairs = 150usize;
    let f = gpu.kernel(name)?;
    let letters = |seed| -> Vec<u8> {
        let letters = below(4, pairs * N, seed).into_iter();
        letters.map(|v| v as u8).collect()
    };
    let (a, b) = (letters(1), letters(2));
    let (ad, bd, mut od) = (up(gpu, &a)?, up(gpu, &b)?, zeros::<i32>(gpu, pairs)?);
    let mut out = vec![0i32; pairs];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(pairs, N), &ad, &bd, &mut od);
            sync(gpu)
        },
        || {
            out.par_iter_mut()
                .zip(black_box(&a[..]).par_chunks(N).zip(b.par_chunks(N)))
                .for_each(|(out, (a, b))| {
                    // By diagonals too, of 16 bits, along which cells do not depend on each other.
                    let (mut now, mut last, mut before) = ([0i16; N + 1], [0; N + 1], [0; N + 1]);
                    let mut reversed: [u8; N] = a.try_into().unwrap();
                    reversed.reverse();
                    let mut most = [0i16; N];
                    for d in 0..2 * N - 1 {
                        let (lo, hi) = (d.saturating_sub(N - 1), N.min(d + 1));
                        let (a, b) = (&reversed[N - 1 + lo - d..], &b[lo..hi]);
                        let cells = now[lo + 1..].iter_mut().zip(&mut most[lo..]);
                        let sources = before[lo..].iter().zip(&last[lo..]).zip(&last[lo + 1..]);
                        let letters = a.iter().zip(b);
                        for (((cell, most), ((corner, left), up)), (a, b)) in
                            cells.zip(sources).zip(letters)
                        {
                            let through: i16 = corner + if a == b { 3 } else { -2 };
                            *cell = through.max(0).max(*left.max(up) - 2);
                            *most = (*most).max(*cell);
                        }
                        (now, last, before) = (before, now, last);
                    }
                    *out = most.iter().copied().max().unwrap_or(0) as i32;
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

/// The first bits of the fractions of the cube roots of the first primes.
fn sha_constants() -> [u32; 64] {
    let mut primes = (2u32..).filter(|n| (2..*n).all(|d| n % d != 0));
    std::array::from_fn(|_| {
        let root = f64::from(primes.next().unwrap()).cbrt();
        (root.fract() * 4_294_967_296.0) as u32
    })
}

fn sha256(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 20_003usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let k = sha_constants();
    set(gpu, "sha_k", &k)?;
    let messages: Vec<u32> = words(1).take(n * 8).map(|w| w as u32).collect();
    let (md, mut od) = (up(gpu, &messages)?, zeros::<u32>(gpu, n * 8)?);
    let mut out = vec![0u32; n * 8];
    let start = [
        0x6a09_e667u32,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.cover(n, 128), &md, &mut od, &ni);
            sync(gpu)
        },
        || {
            let messages = black_box(&messages[..]).as_chunks::<8>().0;
            let digests = out.as_chunks_mut::<8>().0.par_iter_mut();
            digests
                .zip(messages)
                .with_min_len(64)
                .for_each(|(out, message)| {
                    let mut w = [0u32; 64];
                    for (w, m) in w.iter_mut().zip(message) {
                        *w = m.swap_bytes();
                    }
                    (w[8], w[15]) = (0x8000_0000, 256);
                    for i in 16..64 {
                        let (x, y) = (w[i - 15], w[i - 2]);
                        let s0 = x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3);
                        let s1 = y.rotate_right(17) ^ y.rotate_right(19) ^ (y >> 10);
                        w[i] = w[i - 16]
                            .wrapping_add(s0)
                            .wrapping_add(w[i - 7])
                            .wrapping_add(s1);
                    }
                    let mut s = start;
                    for (&w, &k) in w.iter().zip(&k) {
                        let [a, b, c, d, e, f, g, h] = s;
                        let t1 = h
                            .wrapping_add(
                                e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25),
                            )
                            .wrapping_add((e & f) ^ (!e & g))
                            .wrapping_add(k)
                            .wrapping_add(w);
                        let t2 = (a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22))
                            .wrapping_add((a & b) ^ (a & c) ^ (b & c));
                        s = [t1.wrapping_add(t2), a, b, c, d.wrapping_add(t1), e, f, g];
                    }
                    *out = std::array::from_fn(|i| s[i].wrapping_add(start[i]));
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn crc32(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (n, size) = (4003usize, 256usize);
    let (ni, si) = (n as i32, size as i32);
    let f = gpu.kernel(name)?;
    let table: [u32; 256] = std::array::from_fn(|i| {
        (0..8).fold(i as u32, |v, _| {
            (v >> 1) ^ if v & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    });
    let data: Vec<u8> = words(1).take(n * size).map(|w| w as u8).collect();
    let (dd, td, mut od) = (up(gpu, &data)?, up(gpu, &table)?, zeros::<u32>(gpu, n)?);
    let mut out = vec![0u32; n];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.cover(n, 256), &dd, &td, &mut od, &ni, &si);
            sync(gpu)
        },
        || {
            out.par_iter_mut()
                .zip(black_box(&data[..]).par_chunks(size))
                .with_min_len(16)
                .for_each(|(out, record)| {
                    *out = !record.iter().fold(!0u32, |crc, &byte| {
                        table[(crc as u8 ^ byte) as usize] ^ (crc >> 8)
                    });
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn double(v: u8) -> u8 {
    (v << 1) ^ if v & 128 != 0 { 0x1b } else { 0 }
}

/// The table of bytes of AES.
fn aes_bytes() -> [u8; 256] {
    let product = |a: u8, b: u8| {
        let mut power = a;
        (0..8).fold(0u8, |sum, i| {
            let term = if b >> i & 1 == 1 { power } else { 0 };
            power = double(power);
            sum ^ term
        })
    };
    std::array::from_fn(|v| {
        let inverse = (0..=255u8).find(|&w| product(v as u8, w) == 1).unwrap_or(0);
        (1..5).fold(inverse, |sum, i| sum ^ inverse.rotate_left(i)) ^ 0x63
    })
}

fn aes(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 40_003usize;
    let (ni, nonce) = (n as i32, 0x1234_5678u32);
    let f = gpu.kernel(name)?;
    let bytes = aes_bytes();
    let table = bytes.map(|s| u32::from_be_bytes([double(s), s, s, double(s) ^ s]));
    let mut keys = [0u32; 44];
    keys[..4].copy_from_slice(&[0x2b7e_1516, 0x28ae_d2a6, 0xabf7_1588, 0x09cf_4f3c]);
    let mut constant = 1u8;
    for i in 4..44 {
        let mut word = keys[i - 1];
        if i % 4 == 0 {
            let turned = word.rotate_left(8).to_be_bytes();
            word = u32::from_be_bytes(turned.map(|b| bytes[b as usize]));
            word ^= (constant as u32) << 24;
            constant = double(constant);
        }
        keys[i] = keys[i - 4] ^ word;
    }
    set(gpu, "aes_keys", &keys)?;
    let a: Vec<u32> = words(1).take(n * 4).map(|w| w as u32).collect();
    let (ad, mut od) = (up(gpu, &a)?, zeros::<u32>(gpu, n * 4)?);
    let td = up(gpu, &table)?;
    let mut out = vec![0u32; n * 4];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.cover(n, 256), &ad, &mut od, &td, &ni, &nonce);
            sync(gpu)
        },
        || {
            let blocks = black_box(&a[..]).as_chunks::<4>().0;
            let results = out.as_chunks_mut::<4>().0.par_iter_mut();
            let rounds = keys.as_chunks::<4>().0;
            results
                .zip(blocks)
                .enumerate()
                .with_min_len(256)
                .for_each(|(i, (out, block))| {
                    let first = rounds[0];
                    let mut s = [nonce ^ first[0], first[1], first[2], i as u32 ^ first[3]];
                    let byte = |s: &[u32; 4], c: usize, b: usize| {
                        table[(s[(c + b) % 4] >> (24 - 8 * b) & 255) as usize]
                    };
                    for key in &rounds[1..10] {
                        s = std::array::from_fn(|c| {
                            byte(&s, c, 0)
                                ^ byte(&s, c, 1).rotate_right(8)
                                ^ byte(&s, c, 2).rotate_right(16)
                                ^ byte(&s, c, 3).rotate_right(24)
                                ^ key[c]
                        });
                    }
                    *out = std::array::from_fn(|c| {
                        let bytes = [0, 1, 2, 3].map(|b| (byte(&s, c, b) >> 8) as u8);
                        block[c] ^ u32::from_be_bytes(bytes) ^ rounds[10][c]
                    });
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn lz(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 60_007usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    // Some runs repeat what was a little before.
    let mut data: Vec<u8> = below(6, n, 1).into_iter().map(|v| v as u8).collect();
    for (i, back) in below(60, n / 40, 2).into_iter().enumerate().skip(2) {
        let at = i * 40;
        data.copy_within(at - 1 - back as usize..at - 1 - back as usize + 14, at);
    }
    let (dd, mut od) = (up(gpu, &data)?, zeros::<i32>(gpu, n)?);
    let mut out = vec![0i32; n];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.cover(n, 128), &dd, &mut od, &ni);
            sync(gpu)
        },
        || {
            let data = black_box(&data[..]);
            let results = out.par_iter_mut().enumerate().with_min_len(512);
            results.for_each(|(i, out)| {
                let (mut best, mut at) = (0, 0);
                let ahead = &data[i..n.min(i + 16)];
                for off in 1..=i.min(64) {
                    let same = ahead
                        .iter()
                        .zip(&data[i - off..])
                        .take_while(|(a, b)| a == b);
                    let count = same.count();
                    if count > best {
                        (best, at) = (count, off);
                    }
                }
                *out = (best << 8 | at) as i32;
            });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn cp_async(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let tiles = 3001usize;
    let ti = tiles as i32;
    let f = gpu.kernel(name)?;
    let a = noise(tiles * 512, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, 1)?);
    let mut sum = 0.0f32;
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut od)?;
            launch!(gpu, f, line(48, 128), &ad, &mut od, &ti);
            sync(gpu)
        },
        || {
            sum = black_box(&a[..])
                .par_chunks(1 << 14)
                .map(|a| {
                    let mut sums = [0.0f32; 16];
                    for a in a.as_chunks::<16>().0 {
                        sums.iter_mut().zip(a).for_each(|(s, a)| *s += a * a);
                    }
                    sums.iter().sum::<f32>()
                })
                .sum();
        },
    )?;
    times.print(check(&down(gpu, &od)?, &[sum], 1e-4))
}

fn smooth(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (n, steps) = (100_003usize, 20i32);
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let start = noise(n, 1);
    let (mut ad, mut bd) = (up(gpu, &start)?, zeros::<f32>(gpu, n)?);
    let (mut a, mut b) = (start.clone(), vec![0.0f32; n]);
    let times = race(
        name,
        || {
            gpu.stream.memcpy_htod(&start, &mut ad)?;
            let mut call = gpu.stream.launch_builder(&f);
            call.arg(&mut ad).arg(&mut bd).arg(&ni).arg(&steps);
            // SAFETY: the arguments are those of the kernel, and the arrays have `n` floats.
            unsafe { call.launch_cooperative(line(16, 256)) }?;
            sync(gpu)
        },
        || {
            const PART: usize = 1 << 14;
            a.copy_from_slice(black_box(&start));
            for _ in 0..steps {
                b.par_chunks_mut(PART).enumerate().for_each(|(i, out)| {
                    let from = i * PART;
                    let last = out.len() - 1;
                    let at = |i: usize| a[i % n];
                    for edge in [0, last] {
                        let i = from + edge;
                        out[edge] = 0.25 * (at(i + n - 1) + at(i + 1)) + 0.5 * at(i);
                    }
                    let windows = a[from..from + last + 1].windows(3);
                    for (out, m) in out[1..last].iter_mut().zip(windows) {
                        *out = 0.25 * (m[0] + m[2]) + 0.5 * m[1];
                    }
                });
                std::mem::swap(&mut a, &mut b);
            }
        },
    )?;
    times.print(check(&down(gpu, &ad)?, &a, 1e-5))
}
