//! Sparse matrices and graphs.

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("spmv_csr8", csr8),
    ("spmv_ell", ell),
    ("spmv_coo", coo),
    ("bfs_vertices", bfs),
];

fn random_rows(
    count: usize,
    columns: usize,
    shortest: usize,
    longest: usize,
    seed: u64,
) -> (Vec<i32>, Vec<i32>) {
    let mut words = words(seed);
    let mut next = |limit: usize| (words.next().unwrap() >> 32) as usize % limit;
    let (mut ptr, mut col) = (vec![0i32], Vec::new());
    for _ in 0..count {
        let length = shortest + next(longest - shortest + 1);
        let mut row: Vec<i32> = (0..length).map(|_| next(columns) as i32).collect();
        row.sort();
        col.extend(row);
        ptr.push(col.len() as i32);
    }
    (ptr, col)
}

fn csr8(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let rows = 100_003usize;
    let f = gpu.kernel("spmv_csr8")?;
    let (ptr, col) = random_rows(rows, rows, 4, 28, 1);
    let (val, x) = (noise(col.len(), 2), noise(rows, 3));
    let (pd, cd) = (gpu.stream.clone_htod(&ptr)?, gpu.stream.clone_htod(&col)?);
    let (vd, xd) = (gpu.stream.clone_htod(&val)?, gpu.stream.clone_htod(&x)?);
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows)?;
    let mut y = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            let r = rows as i32;
            launch!(
                gpu,
                f,
                line((rows * 8).div_ceil(256), 256),
                &r,
                &pd,
                &cd,
                &vd,
                &xd,
                &mut yd
            );
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let x = black_box(&x[..]);
            y.par_iter_mut()
                .enumerate()
                .with_min_len(1 << 10)
                .for_each(|(row, y)| {
                    let range = ptr[row] as usize..ptr[row + 1] as usize;
                    *y = col[range.clone()]
                        .iter()
                        .zip(&val[range])
                        .map(|(&c, &v)| v * x[c as usize])
                        .sum();
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-4))
}

fn ell(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, width) = (100_003usize, 16usize);
    let f = gpu.kernel("spmv_ell")?;
    let (ptr, flat) = random_rows(rows, rows, 6, 16, 1);
    let (mut col, mut val) = (vec![-1i32; rows * width], vec![0.0f32; rows * width]);
    let some = noise(rows * width, 2);
    for row in 0..rows {
        for (k, &c) in flat[ptr[row] as usize..ptr[row + 1] as usize]
            .iter()
            .enumerate()
        {
            col[k * rows + row] = c;
            val[k * rows + row] = some[k * rows + row];
        }
    }
    let x = noise(rows, 3);
    let (cd, vd, xd) = (
        gpu.stream.clone_htod(&col)?,
        gpu.stream.clone_htod(&val)?,
        gpu.stream.clone_htod(&x)?,
    );
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows)?;
    let mut y = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            let (r, w) = (rows as i32, width as i32);
            launch!(gpu, f, gpu.cover(rows, 256), &r, &w, &cd, &vd, &xd, &mut yd);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let x = black_box(&x[..]);
            y.par_chunks_mut(1024).enumerate().for_each(|(chunk, y)| {
                y.fill(0.0);
                for k in 0..width {
                    let at = k * rows + chunk * 1024;
                    for ((y, &c), &v) in y.iter_mut().zip(&col[at..]).zip(&val[at..]) {
                        if c >= 0 {
                            *y += v * x[c as usize];
                        }
                    }
                }
            });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-4))
}

fn coo(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let rows = 100_003usize;
    let f = gpu.kernel("spmv_coo")?;
    let (ptr, col) = random_rows(rows, rows, 4, 24, 1);
    let row: Vec<i32> = (0..rows)
        .flat_map(|r| std::iter::repeat_n(r as i32, (ptr[r + 1] - ptr[r]) as usize))
        .collect();
    let nnz = col.len();
    let (val, x) = (noise(nnz, 2), noise(rows, 3));
    let (rd, cd) = (gpu.stream.clone_htod(&row)?, gpu.stream.clone_htod(&col)?);
    let (vd, xd) = (gpu.stream.clone_htod(&val)?, gpu.stream.clone_htod(&x)?);
    let mut yd = gpu.stream.alloc_zeros::<f32>(rows)?;
    let mut y = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut yd)?;
            let n = nnz as i32;
            launch!(gpu, f, gpu.cover(nnz, 256), &n, &rd, &cd, &vd, &xd, &mut yd);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            // Rows are sorted: each part of the rows has one range of elements.
            let x = black_box(&x[..]);
            y.par_chunks_mut(2048).enumerate().for_each(|(chunk, y)| {
                y.fill(0.0);
                let first = chunk * 2048;
                let start = row.partition_point(|&r| (r as usize) < first);
                for ((&r, &c), &v) in row[start..].iter().zip(&col[start..]).zip(&val[start..]) {
                    let Some(y) = y.get_mut(r as usize - first) else {
                        break;
                    };
                    *y += v * x[c as usize];
                }
            });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&yd)?, &y, 1e-4))
}

fn bfs(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 60_001usize;
    let f = gpu.kernel("bfs_vertices")?;
    let (ptr, adj) = random_rows(n, n, 2, 10, 1);
    let (pd, ad) = (gpu.stream.clone_htod(&ptr)?, gpu.stream.clone_htod(&adj)?);
    let mut start = vec![-1i32; n];
    start[0] = 0;
    let mut ld = gpu.stream.clone_htod(&start)?;
    let mut changed = gpu.stream.alloc_zeros::<i32>(1)?;
    let level: Vec<AtomicI32> = start.iter().map(|&l| AtomicI32::new(l)).collect();
    let times = race(
        name,
        || {
            gpu.stream.memcpy_htod(&start, &mut ld)?;
            let ni = n as i32;
            for current in 0i32.. {
                gpu.stream.memset_zeros(&mut changed)?;
                launch!(
                    gpu,
                    f,
                    gpu.cover(n, 256),
                    &ni,
                    &pd,
                    &ad,
                    &mut ld,
                    &current,
                    &mut changed
                );
                if gpu.stream.clone_dtoh(&changed)?[0] == 0 {
                    break;
                }
            }
            Ok(())
        },
        || {
            level
                .iter()
                .zip(black_box(&start))
                .for_each(|(l, &s)| l.store(s, Relaxed));
            for current in 0i32.. {
                let changed = AtomicBool::new(false);
                (0..n).into_par_iter().with_min_len(1 << 10).for_each(|v| {
                    if level[v].load(Relaxed) == current {
                        let mut any = false;
                        for &u in &adj[ptr[v] as usize..ptr[v + 1] as usize] {
                            let u = &level[u as usize];
                            if u.load(Relaxed) == -1 {
                                u.store(current + 1, Relaxed);
                                any = true;
                            }
                        }
                        if any {
                            changed.store(true, Relaxed);
                        }
                    }
                });
                if !changed.into_inner() {
                    break;
                }
            }
        },
    )?;
    let want: Vec<i32> = level.into_iter().map(AtomicI32::into_inner).collect();
    times.print(check(&gpu.stream.clone_dtoh(&ld)?, &want, 0.0))
}
