//! Every op once more, in scalar f64 and as naive as possible: the oracle of the tests.
//!
//! Nothing here is fast and everything is obvious. Shapes and names are those of the fast twin.

use crate::rng::Stream;

/// `n` draws from N(0, 1), always the same for one `seed`: test data.
pub fn random(seed: u64, n: usize) -> Vec<f32> {
    let mut stream = Stream::new(seed, 0, 0);
    (0..n).map(|_| stream.normal() as f32).collect()
}
