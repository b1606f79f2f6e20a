//! The weights of a model: made on the host, used on the device.

use super::sizes::{Sizes, VOCABULARY};

/// The weights of a layer. A matrix of `rows` and `columns` lies column by column: as the kernel
/// `multiply` reads it.
pub struct Layer<V> {
    pub attention_gain: V,
    /// `3 * width` rows: queries, keys, values.
    pub attention_in: V,
    pub attention_out: V,
    pub feed_gain: V,
    pub feed_in: V,
    pub feed_out: V,
}

/// All weights: `Weights<Vec<f32>>` on the host, `Weights<Buffer<f32>>` on the device.
pub struct Weights<V> {
    /// A row for each token.
    pub tokens: V,
    /// A row for each position.
    pub positions: V,
    pub layers: Vec<Layer<V>>,
    pub last_gain: V,
    /// A row for each token.
    pub logits: V,
}

/// Numbers that look random and are the same everywhere: SplitMix64.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Numbers around `middle`, at most `reach` away.
    fn around(&mut self, middle: f32, reach: f32, count: usize) -> Vec<f32> {
        // 24 bits: as many as a float keeps.
        let mut unit = || (self.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
        (0..count).map(|_| middle + reach * unit()).collect()
    }

    /// Numbers whose squares are 1 in the mean.
    fn rows(&mut self, count: usize) -> Vec<f32> {
        self.around(0.0, 3f32.sqrt(), count)
    }

    /// A matrix whose product with such numbers is of such numbers.
    fn matrix(&mut self, rows: usize, columns: usize) -> Vec<f32> {
        self.around(0.0, (3.0 / columns as f32).sqrt(), rows * columns)
    }

    fn gain(&mut self, width: usize) -> Vec<f32> {
        self.around(1.0, 0.5, width)
    }
}

impl Weights<Vec<f32>> {
    /// Random weights. Two things keep the greedy text from repeating one byte: logits have a matrix
    /// of their own, not the table of the tokens, and positions weigh as much as tokens.
    pub fn random(sizes: &Sizes, seed: u64) -> Self {
        let (width, inner) = (sizes.width, sizes.inner());
        let mut random = Random(seed);
        Weights {
            tokens: random.rows(VOCABULARY * width),
            positions: random.rows(sizes.context * width),
            layers: (0..sizes.layers)
                .map(|_| Layer {
                    attention_gain: random.gain(width),
                    attention_in: random.matrix(3 * width, width),
                    attention_out: random.matrix(width, width),
                    feed_gain: random.gain(width),
                    feed_in: random.matrix(inner, width),
                    feed_out: random.matrix(width, inner),
                })
                .collect(),
            last_gain: random.gain(width),
            logits: random.matrix(VOCABULARY, width),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        let mut count = 0;
        let counted = self.try_map(|values| {
            count += values.len();
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(_) = counted;
        count
    }
}

impl<V> Weights<V> {
    /// The same weights elsewhere.
    pub fn try_map<W, E>(&self, mut put: impl FnMut(&V) -> Result<W, E>) -> Result<Weights<W>, E> {
        let tokens = put(&self.tokens)?;
        let positions = put(&self.positions)?;
        let layers = self.layers.iter().map(|layer| {
            Ok(Layer {
                attention_gain: put(&layer.attention_gain)?,
                attention_in: put(&layer.attention_in)?,
                attention_out: put(&layer.attention_out)?,
                feed_gain: put(&layer.feed_gain)?,
                feed_in: put(&layer.feed_in)?,
                feed_out: put(&layer.feed_out)?,
            })
        });
        Ok(Weights {
            tokens,
            positions,
            layers: layers.collect::<Result<_, E>>()?,
            last_gain: put(&self.last_gain)?,
            logits: put(&self.logits)?,
        })
    }
}
