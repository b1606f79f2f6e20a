//! `mma.m8n8k4` of halves, the shape of the first tensor cores: four products of 8 rows and
//! columns, each by eight lanes, `4 q` to `4 q + 3` and those 16 above. Later devices compute it in
//! singles, without their tensor cores, and so does this.

use super::float::{half, half_of, single_bits};
use super::{Product, Words};

/// Computes all four.
pub(super) fn compute(product: Product, a: &[Words], b: &[Words], c: &[Words], d: &mut [Words]) {
    for quad in 0..4 {
        let lane = |unit: usize| 4 * quad + unit % 4 + 16 * (unit / 4);
        let at = |words: &[Words], unit: usize, n: usize| {
            half((words[n / 2][lane(unit)] >> (16 * (n % 2))) as u16)
        };
        let (mut rows, mut columns) = ([[0.0; 4]; 8], [[0.0; 4]; 8]);
        for unit in 0..8 {
            for n in 0..4 {
                let far = (n + unit / 4 * 4, unit % 4);
                let (row, k) = if product.turned[0] { far } else { (unit, n) };
                rows[row][k] = at(a, unit, n);
                let (column, k) = if product.turned[1] { far } else { (unit, n) };
                columns[column][k] = at(b, unit, n);
            }
        }
        let [half_c, half_d] = product.halves;
        for (row, [a0, a1, a2, a3]) in rows.into_iter().enumerate() {
            for (column, [b0, b1, b2, b3]) in columns.into_iter().enumerate() {
                let (unit, n) = place(row, column, half_c);
                let sum = match half_c {
                    true => at(c, unit, n),
                    false => f32::from_bits(c[n][lane(unit)]),
                };
                let sum = if half_c && half_d {
                    let (first, second) = (a1.mul_add(b1, a0 * b0), a3.mul_add(b3, a2 * b2));
                    (sum + first) + second
                } else {
                    let terms = a1.mul_add(b1, a0.mul_add(b0, 0.0));
                    sum + a3.mul_add(b3, a2.mul_add(b2, terms))
                };
                let (unit, n) = place(row, column, half_d);
                if half_d {
                    let word = &mut d[n / 2][lane(unit)];
                    *word |= u32::from(half_of(f64::from(sum))) << (16 * (n % 2));
                } else {
                    d[n][lane(unit)] = single_bits(sum);
                }
            }
        }
    }
}

/// Which lane of the eight has an element of `C` or `D`, and as which of its own.
fn place(row: usize, column: usize, half: bool) -> (usize, usize) {
    if half {
        return (row, column);
    }
    let unit = row / 4 * 4 + row % 2 + column / 2 % 2 * 2;
    (unit, row / 2 % 2 * 2 + column / 4 * 4 + column % 2)
}
