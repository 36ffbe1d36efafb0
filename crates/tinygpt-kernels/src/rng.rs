//! Random numbers as a pure function of a counter: Philox 4x32-10.
//!
//! Nothing is stored and nothing depends on who computes it: `philox(key, counter)` always gives
//! the same four words. Initial weights, batches, dropout and sampling each draw from their own
//! [`Stream`], so no one of them can disturb another.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

pub(crate) const MUL: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
pub(crate) const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words for one 128-bit counter under a 64-bit key.
pub fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let ([mut k0, mut k1], [mut c0, mut c1, mut c2, mut c3]) = (key, counter);
    for _ in 0..10 {
        let (p0, p1) = (c0 as u64 * MUL[0] as u64, c2 as u64 * MUL[1] as u64);
        (c0, c2) = ((p1 >> 32) as u32 ^ c1 ^ k0, (p0 >> 32) as u32 ^ c3 ^ k1);
        (c1, c3) = (p1 as u32, p0 as u32);
        (k0, k1) = (k0.wrapping_add(WEYL[0]), k1.wrapping_add(WEYL[1]));
    }
    [c0, c1, c2, c3]
}

/// An endless row of random words: the counter's last two words name the stream, the first two
/// count.
#[derive(Clone, Debug)]
pub struct Stream {
    key: [u32; 2],
    name: [u32; 2],
    block: u64,
    words: [u32; 4],
    used: usize,
}

impl Stream {
    /// The stream called `(a, b)` under `seed`. Different names never overlap.
    pub fn new(seed: u64, a: u32, b: u32) -> Self {
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            name: [a, b],
            block: 0,
            words: [0; 4],
            used: 4,
        }
    }

    /// The next 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            let counter =
                [self.block as u32, (self.block >> 32) as u32, self.name[0], self.name[1]];
            (self.words, self.block, self.used) = (philox(self.key, counter), self.block + 1, 0);
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        let (high, low) = (self.next_u32() as u64, self.next_u32() as u64);
        ((high << 21) ^ (low >> 11)) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform among 0..n, without bias (Lemire's multiply-and-reject).
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "cannot draw below {n}");
        loop {
            let x = ((self.next_u32() as u64) << 32) | self.next_u32() as u64;
            let wide = x as u128 * n as u128;
            if wide as u64 >= n.wrapping_neg() % n {
                return (wide >> 64) as u64;
            }
        }
    }

    /// Standard normal, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_random123_vectors() {
        let ones = u32::MAX;
        for (key, counter, expected) in [
            ([0, 0], [0; 4], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([ones; 2], [ones; 4], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0xa4093822, 0x299f31d0],
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ] {
            assert_eq!(philox(key, counter), expected);
        }
    }

    #[test]
    fn draws_have_the_moments_they_should() {
        let mut stream = Stream::new(7, 1, 2);
        let n = 100_000;
        let (mut sum, mut square, mut below) = (0.0, 0.0, [0u32; 3]);
        for _ in 0..n {
            let x = stream.normal();
            (sum, square) = (sum + x, square + x * x);
            below[stream.below(3) as usize] += 1;
        }
        assert!((sum / n as f64).abs() < 0.01, "mean {}", sum / n as f64);
        assert!((square / n as f64 - 1.0).abs() < 0.015, "variance {}", square / n as f64);
        assert!(
            below.iter().all(|&k| (k as f64 / n as f64 - 1.0 / 3.0).abs() < 0.005),
            "{below:?}"
        );
    }

    #[test]
    fn streams_of_other_names_or_seeds_differ() {
        let first = |seed, a, b| Stream::new(seed, a, b).next_u32();
        assert_ne!(first(1, 0, 0), first(2, 0, 0));
        assert_ne!(first(1, 0, 0), first(1, 1, 0));
        assert_ne!(first(1, 0, 0), first(1, 0, 1));
        assert_eq!(first(1, 2, 3), first(1, 2, 3));
    }
}
