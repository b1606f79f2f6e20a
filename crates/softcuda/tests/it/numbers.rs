//! Numbers that look random, the same in every run and on every machine.

/// Where the numbers go on from.
pub struct Numbers(pub u64);

impl Numbers {
    /// A number below a limit, which is not zero.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    /// Whether something happens that does so once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
