//! Sorting and transforms in shared memory.

use std::hint::black_box;

use cudarc::driver::PushKernelArg;
use rayon::prelude::*;

use crate::Row;
use crate::harness::*;

pub const ROWS: &[Row] = &[("bitonic_1024", bitonic), ("fft256", fft)];

fn bitonic(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let n = 400_123usize;
    let f = gpu.kernel("bitonic_1024")?;
    let a: Vec<u32> = words(1).take(n).map(|w| w as u32).collect();
    let ad = gpu.stream.clone_htod(&a)?;
    let mut od = gpu.stream.alloc_zeros::<u32>(n)?;
    let mut out = vec![0u32; n];
    let times = race(
        name,
        || {
            let ni = n as i32;
            launch!(gpu, f, line(n.div_ceil(1024), 512), &ad, &mut od, &ni);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            out.par_chunks_mut(1024)
                .zip(black_box(&a[..]).par_chunks(1024))
                .for_each(|(out, a)| {
                    out.copy_from_slice(a);
                    out.sort_unstable();
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 0.0))
}

fn fft(gpu: &Gpu, name: &str) -> Outcome<f64> {
    let count = 2001usize;
    let f = gpu.kernel("fft256")?;
    let a = noise(count * 512, 1);
    let twiddles: Vec<f32> = (0..128)
        .flat_map(|k| {
            let angle = -2.0 * std::f64::consts::PI * k as f64 / 256.0;
            [angle.cos() as f32, angle.sin() as f32]
        })
        .collect();
    let (ad, td) = (
        gpu.stream.clone_htod(&a)?,
        gpu.stream.clone_htod(&twiddles)?,
    );
    let mut od = gpu.stream.alloc_zeros::<f32>(count * 512)?;
    let mut out = vec![0.0f32; count * 512];
    let times = race(
        name,
        || {
            launch!(gpu, f, line(count, 128), &ad, &mut od, &td);
            Ok(gpu.stream.synchronize()?)
        },
        || {
            let (w, _) = twiddles.as_chunks::<2>();
            // Real and imaginary parts apart, twiddles of each stage in a line.
            let stages: Vec<(Vec<f32>, Vec<f32>)> = (0..8)
                .map(|s| {
                    (0..1usize << s)
                        .map(|k| {
                            let t = w[k * (128 >> s)];
                            (t[0], t[1])
                        })
                        .unzip()
                })
                .collect();
            out.par_chunks_exact_mut(512)
                .zip(black_box(&a[..]).par_chunks_exact(512))
                .with_min_len(16)
                .for_each(|(out, a)| {
                    let ((out, _), (a, _)) = (out.as_chunks_mut::<2>(), a.as_chunks::<2>());
                    let (mut re, mut im) = ([0.0f32; 256], [0.0f32; 256]);
                    for (i, v) in a.iter().enumerate() {
                        let j = usize::from((i as u8).reverse_bits());
                        (re[j], im[j]) = (v[0], v[1]);
                    }
                    for (s, (wr, wi)) in stages.iter().enumerate() {
                        let half = 1 << s;
                        for (re, im) in re
                            .chunks_exact_mut(2 * half)
                            .zip(im.chunks_exact_mut(2 * half))
                        {
                            let ((ar, br), (ai, bi)) =
                                (re.split_at_mut(half), im.split_at_mut(half));
                            for (((((ar, br), ai), bi), wr), wi) in
                                ar.iter_mut().zip(br).zip(ai).zip(bi).zip(wr).zip(wi)
                            {
                                let (tr, ti) = (*br * wr - *bi * wi, *br * wi + *bi * wr);
                                (*br, *bi) = (*ar - tr, *ai - ti);
                                (*ar, *ai) = (*ar + tr, *ai + ti);
                            }
                        }
                    }
                    for (i, out) in out.iter_mut().enumerate() {
                        *out = [re[i], im[i]];
                    }
                });
        },
    )?;
    times.print(check(&gpu.stream.clone_dtoh(&od)?, &out, 1e-4))
}
