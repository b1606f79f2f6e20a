//! Sums and products of singles, rounded towards zero or an infinity, for one value or a vector of
//! them.
//!
//! The nearest single is moved by one where it lies on the wrong side of the exact result. Which
//! side that is, doubles tell: the product of two singles is exact in one, and a sum of doubles is
//! known together with what its rounding leaves over.
//!
//! `a * b + c` is mostly told without doubles. Where the nearest single `r` is between `c / 2` and
//! `2 c`, `c - r` is exact (Sterbenz), and the sign of `a * b + (c - r)` is right though it is
//! rounded: a small sum may become zero, but keeps its sign. CUDA's `expf` is such a case: it adds
//! a constant. Where a constant is added, a function of the runtime does the rest.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, InstructionData, MemFlags, Value, types};

use super::Lower;
use super::float::host_has_fma;
use super::float_value::{bits, const_f64, from_bits};
use crate::grid::context::BlockContext;
use crate::jit::runtime::float::{FMA_DOWN, FMA_UP, Rounding};

/// A rounded sum, and on which side of the exact one it lies.
struct Rounded {
    single: Value,
    above: Value,
    below: Value,
}

impl Lower<'_> {
    /// `a * b + c`, or `a + c` without `b`, or `a * b` without `c`.
    pub(super) fn directed_single(
        &mut self,
        a: Value,
        b: Option<Value>,
        c: Option<Value>,
        mode: Rounding,
    ) -> Value {
        match (b, c) {
            (Some(b), Some(c)) if mode != Rounding::Zero && host_has_fma() => {
                self.directed_near(a, b, c, mode)
            }
            _ => self.directed_by_doubles(a, b, c, mode),
        }
    }

    /// `a * b + c`, down or up: by singles where all of the results are near `c`.
    fn directed_near(&mut self, a: Value, b: Value, c: Value, mode: Rounding) -> Value {
        let nearest = self.b.ins().fma(a, b, c);
        let up = mode == Rounding::Up;
        // Not -0 where they are the same.
        let apart = match up {
            true => self.b.ins().fsub(nearest, c),
            false => self.b.ins().fsub(c, nearest),
        };
        let [apart_by, c_by, nearest_by] =
            [apart, c, nearest].map(|value| self.b.ins().fabs(value));
        let less = self.b.ins().fcmp(FloatCC::LessThan, c_by, nearest_by);
        let limit = self.select(less, c_by, nearest_by);
        let far = FloatCC::UnorderedOrGreaterThanOrEqual;
        let far = self.b.ins().fcmp(far, apart_by, limit);
        let any = self.any(far);
        let (seldom, near, next) = (self.cold_block(), self.fresh_block(), self.fresh_block());
        let ty = self.b.func.dfg.value_type(nearest);
        let result = self.b.append_block_param(next, ty);
        self.b.ins().brif(any, seldom, &[], near, &[]);
        self.enter(seldom);
        let single = match self.is_constant(c) {
            true => self.directed_elsewhere([a, b, c], up),
            false => self.directed_by_doubles(a, Some(b), Some(c), mode),
        };
        self.b.ins().jump(next, &[single.into()]);
        self.enter(near);
        let a = match up {
            true => self.b.ins().fneg(a),
            false => a,
        };
        // Negative where the nearest is beyond the exact result.
        let beyond = self.b.ins().fma(a, b, apart);
        let [beyond, bits] = [beyond, nearest].map(|value| bits(self, value));
        let [beyond, negative] = [beyond, bits].map(|bits| self.b.ins().sshr_imm(bits, 31));
        // One less in magnitude, or one more: down if positive, up if negative.
        let less = match up {
            true => self.b.ins().bnot(negative),
            false => negative,
        };
        let by = self.b.ins().bxor(beyond, less);
        let by = self.b.ins().isub(by, less);
        let moved = self.b.ins().iadd(bits, by);
        let single = from_bits(self, moved);
        self.b.ins().jump(next, &[single.into()]);
        self.enter(next);
        result
    }

    /// The same by a function of the runtime, which changes no register.
    fn directed_elsewhere(&mut self, numbers: [Value; 3], up: bool) -> Value {
        let ty = self.b.func.dfg.value_type(numbers[0]);
        let at = offset_of!(BlockContext, floats) as i32;
        let (thread, block, flags) = (self.thread, self.block, MemFlags::trusted());
        for (n, number) in (0..).zip(numbers) {
            self.b.ins().store(flags, number, block, at + 16 * n);
        }
        let function = self.unit.cold(if up { &FMA_UP } else { &FMA_DOWN });
        let function = self.import(function);
        self.b.ins().call(function, &[thread]);
        self.b.ins().load(ty, flags, block, at)
    }

    /// Whether a float is a constant, or all of a vector are the same one.
    fn is_constant(&self, value: Value) -> bool {
        let dfg = &self.b.func.dfg;
        let Some(inst) = dfg.value_def(value).inst() else {
            return false;
        };
        match dfg.insts[inst] {
            InstructionData::UnaryIeee32 { .. } | InstructionData::UnaryImm { .. } => true,
            InstructionData::Unary { arg, .. } => self.is_constant(arg),
            InstructionData::LoadNoOffset { arg, .. } => self.is_constant(arg),
            _ => false,
        }
    }

    fn directed_by_doubles(
        &mut self,
        a: Value,
        b: Option<Value>,
        c: Option<Value>,
        mode: Rounding,
    ) -> Value {
        let Rounded {
            single,
            above,
            below,
        } = match self.in_vectors() {
            false => {
                let [a, b, c] = [Some(a), b, c]
                    .map(|value| value.map(|value| self.b.ins().fpromote(types::F64, value)));
                self.rounded(a, b, c)
            }
            true => {
                let halves = [false, true].map(|high| {
                    let [a, b, c] =
                        [Some(a), b, c].map(|value| value.map(|value| self.promoted(value, high)));
                    self.rounded(a, b, c)
                });
                let [low, high] = halves;
                Rounded {
                    single: self.low_halves(low.single, high.single),
                    above: self.narrow_masks(low.above, high.above),
                    below: self.narrow_masks(low.below, high.below),
                }
            }
        };
        let all = bits(self, single);
        let zero = self.word(0);
        let one = self.word(1);
        // All ones in what is negative.
        let negative = self.b.ins().sshr_imm(all, 31);
        // To the next single of greater or of lesser magnitude.
        let (moves, by) = match mode {
            Rounding::Down => {
                let sign = self.b.ins().bor(negative, one);
                (above, self.b.ins().ineg(sign))
            }
            Rounding::Up => (below, self.b.ins().bor(negative, one)),
            _ => {
                let negative = self.b.ins().icmp(IntCC::SignedLessThan, all, zero);
                (self.select_mask(negative, below, above), self.word(-1))
            }
        };
        let moved = self.b.ins().iadd(all, by);
        let mut all = self.select(moves, moved, all);
        if let (Rounding::Down, Some(c)) = (mode, c) {
            let magnitude = self.b.ins().ishl_imm(all, 1);
            let nothing = self.b.ins().icmp(IntCC::Equal, magnitude, zero);
            let any = self.any(nothing);
            let ty = self.b.func.dfg.value_type(all);
            let (seldom, next) = (self.cold_block(), self.fresh_block());
            let result = self.b.append_block_param(next, ty);
            self.b.ins().brif(any, seldom, &[], next, &[all.into()]);
            self.enter(seldom);
            // Zero is negative unless both terms are positive zeros.
            let product = match b {
                Some(b) => {
                    let (a, b) = (bits(self, a), bits(self, b));
                    self.b.ins().bxor(a, b)
                }
                None => bits(self, a),
            };
            let c = bits(self, c);
            let either = self.b.ins().bor(product, c);
            let sign = self.word(i64::from(i32::MIN));
            let sign = self.b.ins().band(either, sign);
            let exact = self.neither(above, below);
            let nothing = self.b.ins().band(nothing, exact);
            let signed = self.select(nothing, sign, all);
            self.b.ins().jump(next, &[signed.into()]);
            self.enter(next);
            all = result;
        }
        from_bits(self, all)
    }

    /// Of doubles that are singles.
    fn rounded(&mut self, a: Option<Value>, b: Option<Value>, c: Option<Value>) -> Rounded {
        let a = a.expect("there is a first operand");
        let product = match b {
            Some(b) => self.b.ins().fmul(a, b),
            None => a,
        };
        let (sum, rest) = match c {
            None => (product, None),
            Some(c) => {
                let sum = self.b.ins().fadd(product, c);
                // Knuth's: what the sum has rounded away.
                let second = self.b.ins().fsub(sum, product);
                let first = self.b.ins().fsub(sum, second);
                let first = self.b.ins().fsub(product, first);
                let second = self.b.ins().fsub(c, second);
                (sum, Some(self.b.ins().fadd(first, second)))
            }
        };
        let vector = self.in_vectors();
        let (single, back) = match vector {
            true => {
                let single = self.b.ins().fvdemote(sum);
                (single, self.b.ins().fvpromote_low(single))
            }
            false => {
                let single = self.b.ins().fdemote(types::F32, sum);
                (single, self.b.ins().fpromote(types::F64, single))
            }
        };
        let mut above = self.b.ins().fcmp(FloatCC::GreaterThan, back, sum);
        let mut below = self.b.ins().fcmp(FloatCC::LessThan, back, sum);
        if let Some(rest) = rest {
            let same = self.b.ins().fcmp(FloatCC::Equal, back, sum);
            let zero = const_f64(self, 0);
            let less = self.b.ins().fcmp(FloatCC::LessThan, rest, zero);
            let more = self.b.ins().fcmp(FloatCC::GreaterThan, rest, zero);
            let less = self.b.ins().band(same, less);
            let more = self.b.ins().band(same, more);
            above = self.b.ins().bor(above, less);
            below = self.b.ins().bor(below, more);
        }
        Rounded {
            single,
            above,
            below,
        }
    }

    /// Two of a vector's singles as doubles.
    fn promoted(&mut self, value: Value, high: bool) -> Value {
        let value = match high {
            false => value,
            true => self.shuffled(value, value, [2, 3, 2, 3]),
        };
        self.b.ins().fvpromote_low(value)
    }

    /// The first two singles of each.
    fn low_halves(&mut self, low: Value, high: Value) -> Value {
        self.shuffled(low, high, [0, 1, 4, 5])
    }

    /// Four words of two vectors, as singles.
    pub(super) fn shuffled(&mut self, a: Value, b: Value, words: [u8; 4]) -> Value {
        let bytes = words
            .iter()
            .flat_map(|word| (0..4).map(move |byte| 4 * word + byte));
        let bytes: Vec<u8> = bytes.collect();
        let bytes = self.b.func.dfg.immediates.push(bytes.into());
        let [a, b] = [a, b].map(|value| self.as_vector(value, types::I8X16));
        let both = self.b.ins().shuffle(a, b, bytes);
        self.as_vector(both, types::F32X4)
    }

    /// `a` where a predicate is true, otherwise `b`, which are predicates too.
    fn select_mask(&mut self, predicate: Value, a: Value, b: Value) -> Value {
        let yes = self.b.ins().band(predicate, a);
        let no = self.b.ins().band_not(b, predicate);
        self.b.ins().bor(yes, no)
    }

    /// Whether a predicate is true for some thread.
    fn any(&mut self, predicate: Value) -> Value {
        match self.in_vectors() {
            true => self.b.ins().vany_true(predicate),
            false => predicate,
        }
    }

    /// Neither predicate is true.
    fn neither(&mut self, a: Value, b: Value) -> Value {
        let either = self.b.ins().bor(a, b);
        self.not(either)
    }
}
