//! Lanes that do things together after parting, queues, tables, graphs, atomics of floats.

use std::hint::black_box;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use super::{add_float, down, sorted, sync, up, zeros};
use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("filter_coalesced", filter_coalesced),
    ("filter_activemask", filter_activemask),
    ("compact_leader", compact_leader),
    ("hist_match_any", hist_match_any),
    ("queue_collatz", queue_collatz),
    ("hash_insert", hash_insert),
    ("hash_lookup", hash_lookup),
    ("union_edges", union_edges),
    ("sssp_push", sssp_push),
    ("index_add_rows", index_add_rows),
    ("scatter_add", scatter_add),
    ("gradient_cells", gradient_cells),
    ("dot_f64_atomic", dot_f64_atomic),
    ("channel_max", channel_max),
];

const PART: usize = 1 << 14;

/// What a part keeps, each in a vector of its own, then together.
fn filtered<T: Copy + Send + Sync, R: Copy + Send + Sync>(
    values: &[T],
    keep: impl Fn(usize, T) -> Option<R> + Sync,
) -> Vec<R> {
    let parts: Vec<Vec<R>> = values
        .par_chunks(PART)
        .enumerate()
        .map(|(i, values)| {
            let values = values.iter().enumerate();
            values.filter_map(|(j, &v)| keep(i * PART + j, v)).collect()
        })
        .collect();
    parts.concat()
}

fn filter_coalesced(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 1_000_003usize;
    let (ni, limit) = (n as i32, 600i32);
    let f = gpu.kernel(name)?;
    let a = below(1000, n, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<i32>(gpu, n)?);
    let mut cd = zeros::<i32>(gpu, 1)?;
    let mut out = vec![];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut cd)?;
            let config = gpu.cover(n, 256);
            launch!(gpu, f, config, &ad, &mut od, &mut cd, &ni, &limit);
            sync(gpu)
        },
        || out = filtered(black_box(&a), |_, v| (v > limit).then_some(v)),
    )?;
    let mut got = down(gpu, &od)?;
    got.truncate(down(gpu, &cd)?[0] as usize);
    times.print(check(&sorted(got), &sorted(out), 0.0))
}

fn filter_activemask(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 1_000_003usize;
    let ni = n as u32;
    let f = gpu.kernel(name)?;
    let a = noise(n, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, n)?);
    let mut cd = zeros::<u32>(gpu, 1)?;
    let mut out = vec![];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut cd)?;
            launch!(gpu, f, line(96, 256), &ad, &mut od, &mut cd, &ni);
            sync(gpu)
        },
        || out = filtered(black_box(&a), |_, v| (v > 0.0).then_some(v)),
    )?;
    let mut got = down(gpu, &od)?;
    got.truncate(down(gpu, &cd)?[0] as usize);
    got.sort_by(f32::total_cmp);
    out.sort_by(f32::total_cmp);
    times.print(check(&got, &out, 0.0))
}

fn compact_leader(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 800_003usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let a = below(1000, n * 2, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<i32>(gpu, n)?);
    let mut cd = zeros::<i32>(gpu, 1)?;
    let mut out = vec![];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut cd)?;
            launch!(gpu, f, gpu.cover(n, 128), &ad, &mut od, &mut cd, &ni);
            sync(gpu)
        },
        || {
            let pairs = black_box(&a[..]).as_chunks::<2>().0;
            out = filtered(pairs, |i, [a, b]| (a < b).then_some(i as i32));
        },
    )?;
    let mut got = down(gpu, &od)?;
    got.truncate(down(gpu, &cd)?[0] as usize);
    times.print(check(&sorted(got), &sorted(out), 0.0))
}

fn hist_match_any(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 2_000_003usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let keys: Vec<u8> = noise(n, 1)
        .iter()
        .map(|v| (128.0 + 120.0 * v * v * v) as u8)
        .collect();
    let (kd, mut bd) = (up(gpu, &keys)?, zeros::<u32>(gpu, 64)?);
    let mut bins = [0u32; 64];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut bd)?;
            launch!(gpu, f, line(64, 256), &kd, &mut bd, &ni);
            sync(gpu)
        },
        || {
            bins = black_box(&keys[..])
                .par_chunks(1 << 17)
                .map(|keys| {
                    let mut bins = [0u32; 64];
                    keys.iter().for_each(|k| bins[(k >> 2) as usize] += 1);
                    bins
                })
                .reduce(|| [0; 64], |a, b| std::array::from_fn(|i| a[i] + b[i]));
        },
    )?;
    times.print(check(&down(gpu, &bd)?, &bins, 0.0))
}

fn queue_collatz(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 60_000usize;
    let (ni, first) = (n as i32, 1_000_000u32);
    let f = gpu.kernel(name)?;
    let (mut qd, mut sd) = (zeros::<i32>(gpu, 1)?, zeros::<i32>(gpu, n)?);
    let mut steps = vec![0i32; n];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut qd)?;
            launch!(gpu, f, line(32, 128), &mut qd, &ni, &first, &mut sd);
            sync(gpu)
        },
        || {
            let first = black_box(first);
            steps.par_iter_mut().enumerate().for_each(|(i, steps)| {
                let mut v = first as u64 + i as u64;
                *steps = 0;
                while v != 1 {
                    v = if v & 1 == 1 { 3 * v + 1 } else { v >> 1 };
                    *steps += 1;
                }
            });
        },
    )?;
    times.print(check(&down(gpu, &sd)?, &steps, 0.0))
}

fn hash32(mut k: u32) -> u32 {
    k ^= k >> 16;
    k = k.wrapping_mul(0x85eb_ca6b);
    k ^= k >> 13;
    k = k.wrapping_mul(0xc2b2_ae35);
    k ^ (k >> 16)
}

const SLOTS: usize = 1 << 18;

fn keys(n: usize, seed: u64) -> Vec<u32> {
    let keys = below(150_000, n, seed).into_iter();
    keys.map(|k| 1 + k as u32 * 7919).collect()
}

fn insert(table: &[[AtomicU32; 2]], key: u32) {
    let mut slot = hash32(key) as usize & (SLOTS - 1);
    loop {
        let [held, count] = &table[slot];
        let now = held.load(Relaxed);
        let is_mine = now == key
            || now == 0
                && match held.compare_exchange(0, key, Relaxed, Relaxed) {
                    Ok(_) => true,
                    Err(other) => other == key,
                };
        if is_mine {
            count.fetch_add(1, Relaxed);
            return;
        }
        slot = (slot + 1) & (SLOTS - 1);
    }
}

fn hash_insert(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 300_007usize;
    let (ni, mask) = (n as i32, SLOTS as u32 - 1);
    let f = gpu.kernel(name)?;
    let keys = keys(n, 1);
    let (kd, mut td) = (up(gpu, &keys)?, zeros::<u32>(gpu, SLOTS * 2)?);
    let mut table: Vec<[AtomicU32; 2]> = vec![];
    table.resize_with(SLOTS, Default::default);
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut td)?;
            launch!(gpu, f, gpu.cover(n, 256), &mut td, &kd, &ni, &mask);
            sync(gpu)
        },
        || {
            table
                .par_iter_mut()
                .for_each(|slot| *slot = Default::default());
            let keys = black_box(&keys[..]).par_iter().with_min_len(1 << 12);
            keys.for_each(|&key| insert(&table, key));
        },
    )?;
    let got = down(gpu, &td)?.as_chunks::<2>().0.to_vec();
    let want = table
        .iter()
        .map(|slot| slot.each_ref().map(|v| v.load(Relaxed)));
    let (got, want) = (sorted(got).concat(), sorted(want.collect()).concat());
    times.print(check(&got, &want, 0.0))
}

fn hash_lookup(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 500_009usize;
    let (ni, mask) = (n as i32, SLOTS as u32 - 1);
    let f = gpu.kernel(name)?;
    let mut table: Vec<[AtomicU32; 2]> = vec![];
    table.resize_with(SLOTS, Default::default);
    keys(200_000, 1).iter().for_each(|&k| insert(&table, k));
    let table: Vec<[u32; 2]> = table
        .iter()
        .map(|slot| slot.each_ref().map(|v| v.load(Relaxed)))
        .collect();
    let asked = keys(n, 2);
    let (td, kd, mut od) = (
        up(gpu, &table.concat())?,
        up(gpu, &asked)?,
        zeros::<u32>(gpu, n)?,
    );
    let mut out = vec![0u32; n];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.cover(n, 256), &td, &kd, &mut od, &ni, &mask);
            sync(gpu)
        },
        || {
            out.par_iter_mut()
                .zip(black_box(&asked[..]))
                .with_min_len(1 << 12)
                .for_each(|(out, &key)| {
                    let mut slot = hash32(key) as usize & (SLOTS - 1);
                    *out = loop {
                        match table[slot] {
                            [0, _] => break 0,
                            [held, count] if held == key => break count,
                            _ => slot = (slot + 1) & (SLOTS - 1),
                        }
                    };
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn root_of(parent: &[AtomicI32], mut v: i32) -> i32 {
    loop {
        let p = parent[v as usize].load(Relaxed);
        if p == v {
            return v;
        }
        v = p;
    }
}

fn union_edges(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (n, count) = (200_003usize, 180_000usize);
    let (ni, ci) = (n as i32, count as i32);
    let (f, flatten) = (gpu.kernel(name)?, gpu.kernel("flatten_roots")?);
    let edges: Vec<i32> = below(3000, count, 1)
        .iter()
        .zip(below(n as u32, count, 2))
        .flat_map(|(&step, v)| [v, (v + step - 1500).clamp(0, n as i32 - 1)])
        .collect();
    let own: Vec<i32> = (0..n as i32).collect();
    let (ed, mut pd) = (up(gpu, &edges)?, up(gpu, &own)?);
    let mut parent: Vec<AtomicI32> = own.iter().map(|&v| v.into()).collect();
    let times = race(
        name,
        || {
            gpu.stream.memcpy_htod(&own, &mut pd)?;
            launch!(gpu, f, gpu.cover(count, 256), &ed, &mut pd, &ci);
            launch!(gpu, flatten, gpu.cover(n, 256), &mut pd, &ni);
            sync(gpu)
        },
        || {
            for (parent, &own) in parent.iter_mut().zip(&own) {
                *parent.get_mut() = own;
            }
            let edges = black_box(&edges[..]).as_chunks::<2>().0.par_iter();
            edges.with_min_len(1 << 11).for_each(|&[u, v]| {
                let (mut a, mut b) = (root_of(&parent, u), root_of(&parent, v));
                while a != b {
                    if a < b {
                        std::mem::swap(&mut a, &mut b);
                    }
                    let old = parent[a as usize].fetch_min(b, Relaxed);
                    if old == a {
                        break;
                    }
                    (a, b) = (root_of(&parent, old), root_of(&parent, b));
                }
            });
            (0..n).into_par_iter().with_min_len(1 << 12).for_each(|v| {
                parent[v].store(root_of(&parent, v as i32), Relaxed);
            });
        },
    )?;
    let want: Vec<i32> = parent.into_iter().map(AtomicI32::into_inner).collect();
    times.print(check(&down(gpu, &pd)?, &want, 0.0))
}

fn sssp_push(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 60_001usize;
    let f = gpu.kernel(name)?;
    let degrees = below(9, n, 1);
    let mut row_ptr = vec![0i32];
    row_ptr.extend(degrees.iter().scan(0, |sum, d| {
        *sum += d;
        Some(*sum)
    }));
    let count = row_ptr[n] as usize;
    let adj: Vec<[i32; 2]> = below(n as u32, count, 2)
        .into_iter()
        .zip(below(100, count, 3))
        .map(|(to, weight)| [to, 1 + weight])
        .collect();
    let start = degrees.iter().position(|&d| d > 3).unwrap() as i32;
    let mut fresh = vec![i32::MAX; n];
    fresh[start as usize] = 0;
    let (rd, ad, mut dd) = (
        up(gpu, &row_ptr)?,
        up(gpu, adj.as_flattened())?,
        up(gpu, &fresh)?,
    );
    let (mut qd, mut nd) = (zeros::<i32>(gpu, n)?, zeros::<i32>(gpu, n)?);
    let (mut sd, mut md) = (zeros::<i32>(gpu, 1)?, zeros::<i32>(gpu, n)?);
    let dist: Vec<AtomicI32> = fresh.iter().map(|&d| d.into()).collect();
    let stamp: Vec<AtomicI32> = fresh.iter().map(|_| 0.into()).collect();
    let times = race(
        name,
        || {
            gpu.stream.memcpy_htod(&fresh, &mut dd)?;
            gpu.stream.memset_zeros(&mut md)?;
            gpu.stream.memcpy_htod(&[start], &mut qd)?;
            let (mut size, mut round) = (1i32, 1i32);
            while size > 0 {
                gpu.stream.memset_zeros(&mut sd)?;
                let config = gpu.cover(size as usize, 128);
                launch!(
                    gpu, f, config, &rd, &ad, &mut dd, &qd, &size, &mut nd, &mut sd, &mut md,
                    &round
                );
                size = down(gpu, &sd)?[0];
                round += 1;
                std::mem::swap(&mut qd, &mut nd);
            }
            Ok(())
        },
        || {
            dist.iter()
                .zip(&fresh)
                .for_each(|(d, &f)| d.store(f, Relaxed));
            stamp.iter().for_each(|s| s.store(0, Relaxed));
            let (mut queue, mut round) = (vec![start], 1);
            while !queue.is_empty() {
                let parts: Vec<Vec<i32>> = queue
                    .par_chunks(512)
                    .map(|part| {
                        let mut next = vec![];
                        for &u in part {
                            let d = dist[u as usize].load(Relaxed);
                            let edges =
                                row_ptr[u as usize] as usize..row_ptr[u as usize + 1] as usize;
                            for &[to, weight] in &black_box(&adj[..])[edges] {
                                let at = &dist[to as usize];
                                if d + weight < at.load(Relaxed)
                                    && d + weight < at.fetch_min(d + weight, Relaxed)
                                    && stamp[to as usize].swap(round, Relaxed) != round
                                {
                                    next.push(to);
                                }
                            }
                        }
                        next
                    })
                    .collect();
                queue = parts.concat();
                round += 1;
            }
        },
    )?;
    let want: Vec<i32> = dist.iter().map(|d| d.load(Relaxed)).collect();
    times.print(check(&down(gpu, &dd)?, &want, 0.0))
}

fn index_add_rows(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols, slots) = (20_003usize, 64usize, 3000usize);
    let (ri, ci) = (rows as i32, cols as i32);
    let f = gpu.kernel(name)?;
    let (src, index) = (noise(rows * cols, 1), below(slots as u32, rows, 2));
    let (sd, id, mut dd) = (
        up(gpu, &src)?,
        up(gpu, &index)?,
        zeros::<f32>(gpu, slots * cols)?,
    );
    let mut out = vec![0.0f32; slots * cols];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut dd)?;
            let config = shape((rows.div_ceil(4), 1, 1), (32, 4, 1));
            launch!(gpu, f, config, &mut dd, &sd, &id, &ri, &ci);
            sync(gpu)
        },
        || {
            // Each part of the destination looks through all of the indices.
            let part = slots.div_ceil(4);
            let (src, index) = (black_box(&src[..]), &index[..]);
            out.par_chunks_mut(part * cols)
                .enumerate()
                .for_each(|(i, out)| {
                    out.fill(0.0);
                    for (row, &slot) in src.chunks_exact(cols).zip(index) {
                        let slot = (slot as usize).wrapping_sub(i * part);
                        if slot < out.len() / cols {
                            let out = &mut out[slot * cols..][..cols];
                            out.iter_mut().zip(row).for_each(|(o, v)| *o += v);
                        }
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &dd)?, &out, 1e-4))
}

fn scatter_add(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (n, slots) = (700_001usize, 50_000usize);
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let (src, index) = (noise(n, 1), below(slots as u32, n, 2));
    let (sd, id, mut dd) = (up(gpu, &src)?, up(gpu, &index)?, zeros::<f32>(gpu, slots)?);
    let mut out: Vec<AtomicU32> = vec![];
    out.resize_with(slots, Default::default);
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut dd)?;
            launch!(gpu, f, gpu.cover(n, 256), &mut dd, &sd, &id, &ni);
            sync(gpu)
        },
        || {
            out.iter_mut().for_each(|v| *v.get_mut() = 0);
            black_box(&src[..])
                .par_iter()
                .zip(&index)
                .with_min_len(1 << 13)
                .for_each(|(&v, &i)| add_float(&out[i as usize], v));
        },
    )?;
    let want: Vec<f32> = out
        .iter()
        .map(|v| f32::from_bits(v.load(Relaxed)))
        .collect();
    times.print(check(&down(gpu, &dd)?, &want, 1e-4))
}

fn gradient_cells(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (w, h) = (640usize, 480usize);
    let (wi, hi) = (w as i32, h as i32);
    let f = gpu.kernel(name)?;
    let img = noise(w * h, 1);
    let cells = (w / 8, h / 8);
    let (ad, mut od) = (up(gpu, &img)?, zeros::<f32>(gpu, cells.0 * cells.1 * 9)?);
    let mut out = vec![0.0f32; cells.0 * cells.1 * 9];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.plane(w, h, 8, 8), &ad, &mut od, &wi, &hi);
            sync(gpu)
        },
        || {
            let img = black_box(&img[..]);
            out.par_chunks_mut(cells.0 * 9)
                .enumerate()
                .for_each(|(cy, out)| {
                    out.fill(0.0);
                    for y in cy * 8..cy * 8 + 8 {
                        let row = |y: usize| &img[y * w..][..w];
                        let (above, mid) = (row(y.saturating_sub(1)), row(y));
                        let below = row((y + 1).min(h - 1));
                        for x in 0..w {
                            let gx = mid[(x + 1).min(w - 1)] - mid[x.saturating_sub(1)];
                            let gy = below[x] - above[x];
                            let angle = gy.atan2(gx);
                            let pi = std::f32::consts::PI;
                            let angle = if angle < 0.0 { angle + pi } else { angle };
                            let at = angle * (9.0 / pi);
                            let bin = at as usize;
                            let (part, mag) = (at - bin as f32, (gx * gx + gy * gy).sqrt());
                            let bins = &mut out[x / 8 * 9..][..9];
                            bins[bin % 9] += mag * (1.0 - part);
                            bins[(bin + 1) % 9] += mag * part;
                        }
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-4))
}

fn dot_f64_atomic(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 1_000_003usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let (a, b) = (noise64(n, 1), noise64(n, 2));
    let (ad, bd, mut od) = (up(gpu, &a)?, up(gpu, &b)?, zeros::<f64>(gpu, 1)?);
    let mut sum = 0.0;
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut od)?;
            launch!(gpu, f, line(40, 192), &ad, &bd, &mut od, &ni);
            sync(gpu)
        },
        || {
            sum = black_box(&a[..])
                .par_chunks(PART)
                .zip(b.par_chunks(PART))
                .map(|(a, b)| {
                    let mut sums = [0.0f64; 8];
                    let (a, b) = (a.as_chunks::<8>(), b.as_chunks::<8>());
                    for (a, b) in a.0.iter().zip(b.0) {
                        sums.iter_mut()
                            .zip(a.iter().zip(b))
                            .for_each(|(s, (a, b))| *s += a * b);
                    }
                    let rest: f64 = a.1.iter().zip(b.1).map(|(a, b)| a * b).sum();
                    rest + sums.iter().sum::<f64>()
                })
                .sum();
        },
    )?;
    times.print(check(&down(gpu, &od)?, &[sum], 1e-9))
}

fn channel_max(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (2003usize, 700usize);
    let (ri, ci) = (rows as i32, cols as i32);
    let f = gpu.kernel(name)?;
    // Some channels have no value above zero.
    let mut x = noise(rows * cols, 1);
    for row in x.chunks_exact_mut(cols) {
        row.iter_mut().step_by(3).for_each(|v| *v -= 2.0);
    }
    let least = vec![f32::NEG_INFINITY; cols];
    let (xd, mut bd) = (up(gpu, &x)?, up(gpu, &least)?);
    let mut best = least.clone();
    let times = race(
        name,
        || {
            gpu.stream.memcpy_htod(&least, &mut bd)?;
            let config = shape((cols.div_ceil(128), 16, 1), (128, 1, 1));
            launch!(gpu, f, config, &xd, &mut bd, &ri, &ci);
            sync(gpu)
        },
        || {
            let most = |best: &mut [f32], row: &[f32]| {
                for (best, &v) in best.iter_mut().zip(row) {
                    *best = if v > *best { v } else { *best };
                }
            };
            best = black_box(&x[..])
                .par_chunks(cols * 128)
                .map(|rows| {
                    let mut best = rows[..cols].to_vec();
                    rows.chunks_exact(cols).for_each(|row| most(&mut best, row));
                    best
                })
                .reduce_with(|mut a, b| {
                    most(&mut a, &b);
                    a
                })
                .unwrap();
        },
    )?;
    times.print(check(&down(gpu, &bd)?, &best, 0.0))
}
