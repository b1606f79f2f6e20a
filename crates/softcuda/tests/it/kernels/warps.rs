//! `warp.cu`: shuffles, votes, matches, partial masks, lane registers.

use super::case::{Case, Ptx, args};
use super::input::Inputs;

const PTX: Ptx = super::ptx!("warp");

super::cases! { shuffles, votes, partial_masks, lane_registers }

/// The value a lane takes, and whether its source lay inside its segment.
fn shuffled(warp: &[i32], lane: usize, mode: &str, operand: i32, width: usize) -> (i32, bool) {
    let first = lane / width * width;
    let source = match mode {
        "idx" => first as i64 + (operand as i64 & (width as i64 - 1)),
        "up" => lane as i64 - operand as i64,
        "down" => lane as i64 + operand as i64,
        "xor" => (lane ^ operand as usize) as i64,
        _ => unreachable!("a mode of shfl"),
    };
    let inside = match mode {
        "up" => source >= first as i64,
        _ => source < (first + width) as i64,
    };
    (
        if inside {
            warp[source as usize]
        } else {
            warp[lane]
        },
        inside,
    )
}

fn shuffles(name: &'static str) -> Case {
    let values = Inputs::new(name).make(96, |s| s.next() as i32);
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(&values), case.output::<i32>(32 * 96));
    let mut expected = Vec::new();
    for (w, warp) in values.chunks(32).enumerate() {
        for lane in 0..32 {
            let shuffle = |mode, operand, width| shuffled(warp, lane, mode, operand, width).0;
            let v = warp[lane];
            let mut row = Vec::new();
            for width in [32, 16, 8, 4, 2] {
                row.push(shuffle("idx", v & 31, width));
                row.push(shuffle("up", 3, width));
                row.push(shuffle("down", 1, width));
                row.push(shuffle("xor", width as i32 / 2, width));
            }
            row.push(shuffle("idx", -1, 32));
            row.push(shuffle("xor", 31, 32));
            let from = if lane + 5 < 32 { lane + 5 } else { lane };
            let wide = (warp[from] as i64) << 20 | (32 * w + from) as i64;
            row.push((wide >> 10) as i32);
            row.push(shuffle("up", 7, 32));
            row.push(shuffle("xor", 9, 32));
            let (value, inside) = shuffled(warp, lane, "down", 4, 8);
            row.extend([value, inside as i32]);
            // Segments of four, with the clamp inside them.
            let (value, inside) = shuffled(warp, lane, "idx", ((32 * w + lane) as i32 % 9) & 3, 4);
            row.extend([value, inside as i32]);
            row.resize(32, 0);
            expected.extend(row);
        }
    }
    case.columns(out, 32);
    case.expect(out, &expected);
    case.launch(name, 1, 96, args![input, out]);
    case
}

fn votes(name: &'static str) -> Case {
    let mut inputs = Inputs::new(name);
    let mut values = inputs.make(128, |s| s.below(1000) as i32);
    values[32..64].iter_mut().for_each(|v| *v = 901 + *v % 90);
    values[64..96].fill(12);
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(&values), case.output::<u32>(12 * 128));
    let mut expected = Vec::new();
    for warp in values.chunks(32) {
        let ballot =
            |keep: &dyn Fn(usize) -> bool| (0..32).fold(0u32, |m, i| m | (keep(i) as u32) << i);
        let uniform = |keep: &dyn Fn(i32) -> bool| {
            warp.iter().all(|&v| keep(v)) || !warp.iter().any(|&v| keep(v))
        };
        for (lane, &v) in warp.iter().enumerate() {
            let same = warp.iter().all(|&w| w / 500 == v / 500);
            let even = || warp.iter().step_by(2);
            let mut row = vec![
                warp.iter().all(|&v| v > 0) as u32,
                warp.iter().any(|&v| v > 900) as u32,
                ballot(&|i| warp[i] & 1 == 1),
                uniform(&|v| v > 500) as u32,
                ballot(&|i| warp[i] % 4 == v % 4),
                if same { u32::MAX } else { 0 },
                same as u32,
                ballot(&|i| warp[i] % 3 == v % 3),
                u32::MAX.wrapping_add(1),
                u32::MAX,
            ];
            let partial = (even().any(|&v| v > 990)) as u32 | (even().all(|&v| v > 10) as u32) << 1;
            match lane % 2 {
                0 => row.extend([ballot(&|i| i % 2 == 0 && warp[i] & 2 != 0), partial]),
                _ => row.extend([0, 0]),
            }
            expected.extend(row);
        }
    }
    case.columns(out, 12);
    case.expect(out, &expected);
    case.launch(name, 2, 64, args![input, out]);
    case
}

fn partial_masks(name: &'static str) -> Case {
    let values = Inputs::new(name).make(256, |s| s.next() as u32);
    let mut case = Case::new(name, PTX);
    let (input, out) = (case.input(&values), case.output::<u32>(256));
    let mut expected = Vec::new();
    for warp in values.chunks(32) {
        let result = |lane: usize| match lane {
            0..8 => warp[..8]
                .iter()
                .fold(0u32, |s, v| s.wrapping_add(*v))
                .wrapping_add(lane as u32 ^ 1),
            8..24 => {
                let first = lane / 8 * 8;
                warp[first..first + 8].iter().max().expect("eight lanes") ^ 0x00ff_ff00
            }
            _ => {
                let peers = (24..32).fold(0u32, |m, i| {
                    m | ((warp[i] & 3 == warp[lane] & 3) as u32) << i
                });
                peers.wrapping_add(warp[25])
            }
        };
        let last = result(31);
        expected.extend((0..32).map(|lane| result(lane).wrapping_add(last)));
    }
    case.expect(out, &expected);
    case.launch(name, 1, 256, args![input, out]);
    case
}

fn lane_registers(name: &'static str) -> Case {
    let (grid, block) = ((2u32, 3u32, 2u32), (5u32, 4u32, 3u32));
    let threads = (grid.0 * grid.1 * grid.2 * 60) as usize;
    let mut case = Case::new(name, PTX);
    let out = case.output::<u32>(20 * threads);
    let row = |i: u32| {
        let (b, t) = (i / 60, i % 60);
        let lane = t % 32;
        let eq = 1u32 << lane;
        [
            lane,
            eq,
            eq | (eq - 1),
            eq - 1,
            !(eq - 1),
            !(eq - 1) & !eq,
            t % 5,
            t / 5 % 4,
            t / 20,
            5,
            4,
            3,
            b % 2,
            b / 2 % 3,
            b / 6,
            2,
            3,
            2,
            7,
            96 << 1 | 1,
        ]
    };
    case.columns(out, 20);
    case.expect(
        out,
        &(0..threads as u32).flat_map(row).collect::<Vec<u32>>(),
    );
    case.launch(name, grid, block, args![out]).shared(96);
    case
}
