//! Blocks that wait for others, groups of lanes, locks, searches.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use super::{down, sorted, sync, up, zeros};
use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[
    ("scan_look_back", look_back),
    ("sums_by_key", sums_by_key),
    ("row_norms_tile8", row_norms),
    ("locked_accounts", accounts),
    ("lower_bounds", lower_bounds),
    ("merge_path", merge),
    ("kd_nearest", kd_nearest),
];

const PART: usize = 1 << 14;

fn look_back(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 1_000_003usize;
    let (ni, tiles) = (n as i32, n.div_ceil(1024));
    let f = gpu.kernel(name)?;
    let a = below(100, n, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<i32>(gpu, n)?);
    let (mut sd, mut td) = (zeros::<u64>(gpu, tiles)?, zeros::<u32>(gpu, 1)?);
    let mut out = vec![0i32; n];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut sd)?;
            gpu.stream.memset_zeros(&mut td)?;
            launch!(
                gpu,
                f,
                line(tiles, 256),
                &ad,
                &mut od,
                &mut sd,
                &mut td,
                &ni
            );
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            let totals: Vec<i32> = a.par_chunks(PART).map(|a| a.iter().sum()).collect();
            let starts = totals.iter().scan(0, |sum, total| {
                *sum += total;
                Some(*sum - total)
            });
            let starts: Vec<i32> = starts.collect();
            out.par_chunks_mut(PART)
                .zip(a.par_chunks(PART))
                .zip(starts)
                .for_each(|((out, a), mut sum)| {
                    for (out, v) in out.iter_mut().zip(a) {
                        sum += v;
                        *out = sum;
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn sums_by_key(gpu: &Gpu, name: &str) -> Outcome<f64> {
    const KEYS: usize = 50;
    let n = 300_007usize;
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let (keys, values) = (below(KEYS as u32, n, 1), below(1000, n, 2));
    let (kd, vd, mut sd) = (up(gpu, &keys)?, up(gpu, &values)?, zeros::<i32>(gpu, KEYS)?);
    let mut sums = [0i32; KEYS];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut sd)?;
            launch!(gpu, f, gpu.cover(n, 256), &kd, &vd, &mut sd, &ni);
            sync(gpu)
        },
        || {
            sums = black_box(&keys[..])
                .par_chunks(PART)
                .zip(values.par_chunks(PART))
                .map(|(keys, values)| {
                    let mut sums = [0i32; KEYS];
                    let pairs = keys.iter().zip(values);
                    pairs.for_each(|(&k, v)| sums[k as usize] += v);
                    sums
                })
                .reduce(|| [0; KEYS], |a, b| std::array::from_fn(|i| a[i] + b[i]));
        },
    )?;
    times.print(check(&down(gpu, &sd)?, &sums, 0.0))
}

fn row_norms(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (rows, cols) = (20_003usize, 44usize);
    let (ri, ci) = (rows as i32, cols as i32);
    let f = gpu.kernel(name)?;
    let a = noise(rows * cols, 1);
    let (ad, mut od) = (up(gpu, &a)?, zeros::<f32>(gpu, rows)?);
    let mut out = vec![0.0f32; rows];
    let times = race(
        name,
        || {
            let config = gpu.cover(rows * 8, 128);
            launch!(gpu, f, config, &ad, &mut od, &ri, &ci);
            sync(gpu)
        },
        || {
            out.par_iter_mut()
                .zip(black_box(&a[..]).par_chunks(cols))
                .with_min_len(512)
                .for_each(|(out, row)| {
                    let mut sums = [0.0f32; 4];
                    for part in row.as_chunks::<4>().0 {
                        sums.iter_mut().zip(part).for_each(|(s, v)| *s += v * v);
                    }
                    *out = sums.iter().sum::<f32>().sqrt();
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 1e-5))
}

fn accounts(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (n, count) = (200_003usize, 1000usize);
    let ni = n as i32;
    let f = gpu.kernel(name)?;
    let (which, amount) = (below(count as u32, n, 1), noise64(n, 2));
    let (wd, md) = (up(gpu, &which)?, up(gpu, &amount)?);
    let mut ad = zeros::<u64>(gpu, count * 2)?;
    let mut all: Vec<(u32, f64)> = vec![];
    let times = race(
        name,
        || {
            gpu.stream.memset_zeros(&mut ad)?;
            launch!(gpu, f, gpu.cover(n, 128), &mut ad, &wd, &md, &ni);
            sync(gpu)
        },
        || {
            all = black_box(&which[..])
                .par_chunks(1 << 15)
                .zip(amount.par_chunks(1 << 15))
                .map(|(which, amount)| {
                    let mut all = vec![(0u32, 0.0f64); count];
                    for (&which, amount) in which.iter().zip(amount) {
                        let account = &mut all[which as usize];
                        account.0 += 1;
                        account.1 += amount;
                    }
                    all
                })
                .reduce_with(|mut a, b| {
                    for (a, b) in a.iter_mut().zip(b) {
                        a.0 += b.0;
                        a.1 += b.1;
                    }
                    a
                })
                .unwrap();
        },
    )?;
    let got = down(gpu, &ad)?;
    let (got, sums): (Vec<u32>, Vec<f64>) = got
        .as_chunks::<2>()
        .0
        .iter()
        .map(|[head, sum]| ((head >> 32) as u32, f64::from_bits(*sum)))
        .unzip();
    let (counts, wanted): (Vec<u32>, Vec<f64>) = all.into_iter().unzip();
    let checked = check(&got, &counts, 0.0);
    times.print(checked.and(check(&sums, &wanted, 1e-9)))
}

fn lower_bounds(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (n, queries) = (100_003usize, 200_003usize);
    let (ni, qi) = (n as i32, queries as i32);
    let f = gpu.kernel(name)?;
    let keys = |count, seed| -> Vec<u32> { words(seed).take(count).map(|w| w as u32).collect() };
    let (table, asked) = (sorted(keys(n, 1)), keys(queries, 2));
    let (td, ad, mut od) = (
        up(gpu, &table)?,
        up(gpu, &asked)?,
        zeros::<i32>(gpu, queries)?,
    );
    let mut out = vec![0i32; queries];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(100, 256), &td, &ad, &mut od, &ni, &qi);
            sync(gpu)
        },
        || {
            out.par_iter_mut()
                .zip(black_box(&asked[..]))
                .with_min_len(1 << 11)
                .for_each(|(out, key)| *out = table.partition_point(|v| v < key) as i32);
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

fn merge(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (na, nb) = (300_007usize, 250_001usize);
    let (ai, bi, n) = (na as i32, nb as i32, na + nb);
    let f = gpu.kernel(name)?;
    let (a, b) = (sorted(below(1 << 20, na, 1)), sorted(below(1 << 20, nb, 2)));
    let (ad, bd, mut od) = (up(gpu, &a)?, up(gpu, &b)?, zeros::<i32>(gpu, n)?);
    let mut out = vec![0i32; n];
    let times = race(
        name,
        || {
            let config = gpu.cover(n.div_ceil(8), 128);
            launch!(gpu, f, config, &ad, &ai, &bd, &bi, &mut od);
            sync(gpu)
        },
        || {
            let a = black_box(&a[..]);
            out.par_chunks_mut(PART)
                .enumerate()
                .for_each(|(part, out)| {
                    let diagonal = part * PART;
                    let (mut lo, mut hi) = (diagonal.saturating_sub(nb), diagonal.min(na));
                    while lo < hi {
                        let mid = (lo + hi) / 2;
                        if a[mid] <= b[diagonal - 1 - mid] {
                            lo = mid + 1;
                        } else {
                            hi = mid;
                        }
                    }
                    let (mut a, mut b) = (&a[lo..], &b[diagonal - lo..]);
                    for out in out {
                        let first = match (a.first(), b.first()) {
                            (Some(x), Some(y)) => x <= y,
                            (x, _) => x.is_some(),
                        };
                        let from = if first { &mut a } else { &mut b };
                        *out = from[0];
                        *from = &from[1..];
                    }
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}

/// Orders points so that the middle of each range splits it.
fn split(points: &mut [[f32; 2]], axis: usize) {
    if points.len() > 1 {
        let mid = points.len() / 2;
        points.select_nth_unstable_by(mid, |a, b| a[axis].total_cmp(&b[axis]));
        let (low, high) = points.split_at_mut(mid);
        split(low, 1 - axis);
        split(&mut high[1..], 1 - axis);
    }
}

struct Nearest<'a> {
    tree: &'a [[f32; 2]],
    asked: [f32; 2],
    least: f32,
    best: i32,
}

impl Nearest<'_> {
    fn look(&mut self, lo: usize, hi: usize, axis: usize) {
        if lo >= hi {
            return;
        }
        let mid = (lo + hi) / 2;
        let m = self.tree[mid];
        let d = [self.asked[0] - m[0], self.asked[1] - m[1]];
        let distance = d[0] * d[0] + d[1] * d[1];
        if distance < self.least {
            (self.least, self.best) = (distance, mid as i32);
        }
        let side = d[axis];
        let (near, far) = if side < 0.0 {
            ((lo, mid), (mid + 1, hi))
        } else {
            ((mid + 1, hi), (lo, mid))
        };
        self.look(near.0, near.1, 1 - axis);
        if side * side < self.least {
            self.look(far.0, far.1, 1 - axis);
        }
    }
}

fn kd_nearest(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let (n, queries) = (50_001usize, 20_003usize);
    let (ni, qi) = (n as i32, queries as i32);
    let f = gpu.kernel(name)?;
    let mut tree = noise(n * 2, 1).as_chunks::<2>().0.to_vec();
    split(&mut tree, 0);
    let asked = noise(queries * 2, 2);
    let (td, ad) = (up(gpu, tree.as_flattened())?, up(gpu, &asked)?);
    let mut od = zeros::<i32>(gpu, queries)?;
    let mut out = vec![0i32; queries];
    let times = race(
        name,
        || {
            launch!(gpu, f, gpu.cover(queries, 128), &td, &ad, &mut od, &ni, &qi);
            sync(gpu)
        },
        || {
            out.par_iter_mut()
                .zip(black_box(&asked[..]).as_chunks::<2>().0)
                .with_min_len(128)
                .for_each(|(out, &asked)| {
                    let mut nearest = Nearest {
                        tree: &tree,
                        asked,
                        least: f32::INFINITY,
                        best: -1,
                    };
                    nearest.look(0, n, 0);
                    *out = nearest.best;
                });
        },
    )?;
    times.print(check(&down(gpu, &od)?, &out, 0.0))
}
