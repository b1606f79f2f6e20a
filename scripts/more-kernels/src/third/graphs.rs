//! Graphs, and clusters of points.

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("bfs_frontier", bfs),
    ("bellman_ford", bellman_ford),
    ("pagerank_pull", pagerank),
    ("kmeans_update", kmeans),
];

/// For each vertex, from where to where its neighbours lie, and the neighbours.
fn graph(n: usize, fewest: usize, most: usize, seed: u64) -> (Vec<i32>, Vec<i32>) {
    let mut words = words(seed);
    let mut next = |limit: usize| (words.next().unwrap() >> 32) as usize % limit;
    let (mut offsets, mut adjacent) = (vec![0i32], Vec::new());
    for _ in 0..n {
        for _ in 0..fewest + next(most - fewest + 1) {
            adjacent.push(next(n) as i32);
        }
        offsets.push(adjacent.len() as i32);
    }
    (offsets, adjacent)
}

fn bfs(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 150_001usize;
    let f = gpu.kernel("bfs_frontier")?;
    let (offsets, adjacent) = graph(n, 2, 10, 1);
    let (od, ad) = (
        gpu.stream.clone_htod(&offsets)?,
        gpu.stream.clone_htod(&adjacent)?,
    );
    let mut start = vec![-1i32; n];
    start[0] = 0;
    let mut ld = gpu.stream.alloc_zeros::<i32>(n)?;
    let (mut fd, mut nd) = (
        gpu.stream.alloc_zeros::<i32>(n)?,
        gpu.stream.alloc_zeros::<i32>(n)?,
    );
    let mut sd = gpu.stream.alloc_zeros::<i32>(1)?;
    let level: Vec<AtomicI32> = (0..n).map(|_| AtomicI32::new(0)).collect();
    let times = race(
        name,
        || {
            gpu.stream.memcpy_htod(&start, &mut ld)?;
            gpu.stream.memset_zeros(&mut fd)?;
            let (mut size, mut depth) = (1i32, 1i32);
            while size > 0 {
                gpu.stream.memset_zeros(&mut sd)?;
                launch!(
                    gpu,
                    f,
                    gpu.cover(size as usize, 256),
                    &od,
                    &ad,
                    &mut ld,
                    &fd,
                    &size,
                    &mut nd,
                    &mut sd,
                    &depth
                );
                size = gpu.stream.clone_dtoh(&sd)?[0];
                std::mem::swap(&mut fd, &mut nd);
                depth += 1;
            }
            Ok(())
        },
        || {
            level
                .iter()
                .zip(black_box(&start))
                .for_each(|(l, &s)| l.store(s, Relaxed));
            let (mut frontier, mut depth) = (vec![0i32], 1);
            while !frontier.is_empty() {
                let parts: Vec<Vec<i32>> = frontier
                    .par_chunks(1 << 10)
                    .map(|some| {
                        let mut next = Vec::new();
                        for &u in some {
                            let u = u as usize;
                            for &v in &adjacent[offsets[u] as usize..offsets[u + 1] as usize] {
                                let l = &level[v as usize];
                                if l.load(Relaxed) == -1
                                    && l.compare_exchange(-1, depth, Relaxed, Relaxed).is_ok()
                                {
                                    next.push(v);
                                }
                            }
                        }
                        next
                    })
                    .collect();
                frontier = parts.concat();
                depth += 1;
            }
        },
    )?;
    let want: Vec<i32> = level.into_iter().map(AtomicI32::into_inner).collect();
    times.print(check(&gpu.stream.clone_dtoh(&ld)?, &want, 0.0))
}

fn bellman_ford(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 20_001usize;
    let f = gpu.kernel("bellman_ford")?;
    let (offsets, adjacent) = graph(n, 4, 12, 1);
    let weights = below(100, adjacent.len(), 2);
    let mut edges: Vec<[i32; 3]> = (0..n)
        .flat_map(|u| (offsets[u]..offsets[u + 1]).map(move |e| (u, e as usize)))
        .map(|(u, e)| [u as i32, adjacent[e], 1 + weights[e]])
        .collect();
    // In no order.
    for (i, w) in words(3).take(edges.len()).enumerate() {
        edges.swap(i, (w >> 32) as usize % (i + 1));
    }
    let flat: Vec<i32> = edges.concat();
    let ed = gpu.stream.clone_htod(&flat)?;
    let mut start = vec![i32::MAX; n];
    start[0] = 0;
    let mut dd = gpu.stream.alloc_zeros::<i32>(n)?;
    let mut cd = gpu.stream.alloc_zeros::<i32>(1)?;
    let dist: Vec<AtomicI32> = (0..n).map(|_| AtomicI32::new(0)).collect();
    let times = race(
        name,
        || {
            gpu.stream.memcpy_htod(&start, &mut dd)?;
            let count = edges.len() as i32;
            loop {
                gpu.stream.memset_zeros(&mut cd)?;
                launch!(gpu, f, line(96, 512), &ed, &count, &mut dd, &mut cd);
                if gpu.stream.clone_dtoh(&cd)?[0] == 0 {
                    return Ok(());
                }
            }
        },
        || {
            dist.iter()
                .zip(black_box(&start))
                .for_each(|(d, &s)| d.store(s, Relaxed));
            let changed = AtomicBool::new(true);
            while changed.swap(false, Relaxed) {
                edges.par_chunks(1 << 12).for_each(|edges| {
                    let mut any = false;
                    for &[u, v, w] in edges {
                        let d = dist[u as usize].load(Relaxed);
                        if d == i32::MAX {
                            continue;
                        }
                        let v = &dist[v as usize];
                        if d + w < v.load(Relaxed) {
                            any |= v.fetch_min(d + w, Relaxed) > d + w;
                        }
                    }
                    if any {
                        changed.store(true, Relaxed);
                    }
                });
            }
        },
    )?;
    let want: Vec<i32> = dist.into_iter().map(AtomicI32::into_inner).collect();
    times.print(check(&gpu.stream.clone_dtoh(&dd)?, &want, 0.0))
}

fn pagerank(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 100_003usize;
    let f = gpu.kernel("pagerank_pull")?;
    let (offsets, sources) = graph(n, 2, 22, 1);
    let (offsets, sources): (Vec<u32>, Vec<u32>) = (
        offsets.into_iter().map(|v| v as u32).collect(),
        sources.into_iter().map(|v| v as u32).collect(),
    );
    let mut degree = vec![0u32; n];
    for &s in &sources {
        degree[s as usize] += 1;
    }
    let mut rank = vec![1.0 / n as f32; n];
    let mut share: Vec<f32> = rank
        .iter()
        .zip(&degree)
        .map(|(r, &d)| if d > 0 { r / d as f32 } else { 0.0 })
        .collect();
    let mut next = vec![0.0f32; n];
    let (od, sd, dd) = (
        gpu.stream.clone_htod(&offsets)?,
        gpu.stream.clone_htod(&sources)?,
        gpu.stream.clone_htod(&degree)?,
    );
    let (mut rd, mut hd, mut nd) = (
        gpu.stream.clone_htod(&rank)?,
        gpu.stream.clone_htod(&share)?,
        gpu.stream.clone_htod(&next)?,
    );
    let mut ed = gpu.stream.alloc_zeros::<f32>(1)?;
    let damping = 0.85f32;
    // Of the first step: later ones change little.
    let (mut first_gpu, mut first) = (None, None);
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut ed)?;
            let ni = n as u32;
            launch!(
                gpu,
                f,
                gpu.cover(n, 256),
                &od,
                &sd,
                &hd,
                &dd,
                &mut rd,
                &mut nd,
                &mut ed,
                &damping,
                &ni
            );
            std::mem::swap(&mut hd, &mut nd);
            if first_gpu.is_none() {
                first_gpu = Some(gpu.stream.clone_dtoh(&ed)?);
            }
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let share_now = black_box(&share[..]);
            let error: f32 = (&mut rank, &mut next, &degree, offsets.par_windows(2))
                .into_par_iter()
                .with_min_len(1 << 11)
                .map(|(rank, next, &degree, range)| {
                    let sum: f32 = sources[range[0] as usize..range[1] as usize]
                        .iter()
                        .map(|&s| share_now[s as usize])
                        .sum();
                    let r = (1.0 - damping) / n as f32 + damping * sum;
                    let change = (r - *rank).abs();
                    *rank = r;
                    *next = if degree > 0 { r / degree as f32 } else { 0.0 };
                    change
                })
                .sum();
            first.get_or_insert(error);
            std::mem::swap(&mut share, &mut next);
        },
    )?;
    let scaled = |v: Vec<f32>| -> Vec<f32> { v.into_iter().map(|v| v * n as f32).collect() };
    let checked = check(&scaled(gpu.stream.clone_dtoh(&rd)?), &scaled(rank), 1e-3);
    times.print(checked.and(check(&first_gpu.unwrap(), &[first.unwrap()], 1e-4)))
}

fn kmeans(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (n, k) = (600_011usize, 40usize);
    let f = gpu.kernel("kmeans_update")?;
    let (points, labels) = (between(0.0, 1.0, n * 4, 1), below(k as u32, n, 2));
    let (pd, ld) = (
        gpu.stream.clone_htod(&points)?,
        gpu.stream.clone_htod(&labels)?,
    );
    let (mut sd, mut cd) = (
        gpu.stream.alloc_zeros::<f32>(k * 4)?,
        gpu.stream.alloc_zeros::<i32>(k)?,
    );
    let mut result: Vec<([f32; 4], i32)> = Vec::new();
    let mut config = line(64, 256);
    config.shared_mem_bytes = k as u32 * 20;
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut sd)?;
            gpu.stream.memset_zeros(&mut cd)?;
            let (ni, ki) = (n as i32, k as i32);
            launch!(gpu, f, config, &pd, &ld, &mut sd, &mut cd, &ni, &ki);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            result = black_box(&points[..])
                .as_chunks::<4>()
                .0
                .par_chunks(1 << 14)
                .zip(labels.par_chunks(1 << 14))
                .map(|(points, labels)| {
                    let mut all = vec![([0.0f32; 4], 0i32); k];
                    for (p, &l) in points.iter().zip(labels) {
                        let (sums, count) = &mut all[l as usize];
                        sums.iter_mut().zip(p).for_each(|(s, p)| *s += p);
                        *count += 1;
                    }
                    all
                })
                .reduce_with(|mut a, b| {
                    for ((sums, count), (s, c)) in a.iter_mut().zip(b) {
                        sums.iter_mut().zip(s).for_each(|(a, s)| *a += s);
                        *count += c;
                    }
                    a
                })
                .unwrap();
        },
    )?;
    let (sums, counts): (Vec<[f32; 4]>, Vec<i32>) = result.into_iter().unzip();
    let checked = check(&gpu.stream.clone_dtoh(&cd)?, &counts, 0.0);
    times.print(checked.and(check(&gpu.stream.clone_dtoh(&sd)?, &sums.concat(), 1e-4)))
}
