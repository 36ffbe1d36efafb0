//! Logits -> one token: temperature, top-k, top-p, min-p, and a draw.

use crate::error::{Error, Result};
use tinygpt_kernels::rng::Stream;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by this; 0 takes the most likely token, the lowest id on a tie.
    pub temperature: f64,
    /// Keep the k most likely tokens and those as likely as the k-th; 0 keeps all.
    pub top_k: usize,
    /// Keep the fewest most likely tokens whose probabilities reach this sum (Holtzman et al., "The
    /// curious case of neural text degeneration", 2020); 1 keeps all, the best is always kept.
    pub top_p: f64,
    /// Keep tokens at least this share as likely as the best; 0 keeps all.
    pub min_p: f64,
    /// Whence the draws come.
    pub seed: u64,
    /// Only ids below this are drawn: the tokenizer's size, when the model's vocabulary is padded.
    pub vocab_size: usize,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 1337,
            vocab_size: usize::MAX,
        }
    }
}

impl Sampling {
    /// Always the most likely token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Says the first thing that cannot work.
    pub fn check(&self) -> Result<()> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(Error::config(
                "temperature",
                self.temperature,
                "must be a finite number, 0 or more",
            )
            .with_hint("0 is greedy, 0.8 is usual, above 1 is wild"));
        }
        for (key, value) in [("top_p", self.top_p), ("min_p", self.min_p)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(Error::config(key, value, "must be in [0, 1]"));
            }
        }
        if self.vocab_size == 0 {
            return Err(Error::config("vocab_size", 0, "no token could be drawn"));
        }
        Ok(())
    }
}

/// Chooses tokens one after the other, without allocating after the first.
pub struct Sampler {
    sampling: Sampling,
    stream: Stream,
    /// (probability, id); the first of them in order, as far as was needed.
    kept: Vec<(f64, u32)>,
}

/// A sum of probabilities this near to `top_p` has reached it: 0.5 + 0.3 reaches 0.8.
const REACHED: f64 = 1e-6;

impl Sampler {
    /// The sampler of the `index`-th text under the settings' seed.
    ///
    /// # Errors
    /// Settings that cannot work.
    pub fn new(sampling: &Sampling, index: u32) -> Result<Self> {
        sampling.check()?;
        let stream = Stream::new(sampling.seed, super::SAMPLE_STREAM, index);
        Ok(Self { sampling: sampling.clone(), stream, kept: Vec::new() })
    }

    /// Whether it always takes the most likely token.
    pub fn is_greedy(&self) -> bool {
        self.sampling.temperature == 0.0
    }

    /// One token from `logits` (V).
    ///
    /// # Errors
    /// A logit that is NaN or infinite.
    pub fn pick(&mut self, logits: &[f32]) -> Result<u32> {
        if let Some((id, &value)) = logits.iter().enumerate().find(|(_, x)| !x.is_finite()) {
            let what = format!("the logit of token {id}");
            let hint = "the model holds NaN or infinite weights; use an earlier checkpoint";
            return Err(Error::NotFinite { what, value, hint: Some(hint.into()) });
        }
        let logits = &logits[..logits.len().min(self.sampling.vocab_size)];
        let best = logits.iter().fold(f32::NEG_INFINITY, |best, &x| best.max(x));
        if self.sampling.temperature == 0.0 {
            let id = logits.iter().position(|&x| x == best).expect("there is a best logit");
            return Ok(id as u32);
        }
        let mut sorted = self.keep_likely(logits, best);
        let total: f64 = self.kept.iter().map(|(p, _)| p).sum();
        let mut left = self.stream.uniform() * total;
        for at in 0..self.kept.len() {
            let (p, id) = most_likely(&mut self.kept, &mut sorted, at);
            left -= p;
            if left < 0.0 {
                return Ok(id);
            }
        }
        Ok(self.kept.last().expect("the best token is always kept").1)
    }

    /// Fills `kept` with the tokens that the settings leave, and how likely each is beside the best,
    /// whose logit is `best`. Returns how many of the first are in order.
    fn keep_likely(&mut self, logits: &[f32], best: f32) -> usize {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        self.kept.clear();
        self.kept.extend(logits.iter().zip(0..).map(|(&x, id)| (f64::from(x), id)));
        if top_k > 0 && top_k < self.kept.len() {
            // Before anything is computed or sorted: a vocabulary is large, what is kept is not.
            let kth = self.kept.select_nth_unstable_by(top_k - 1, order).1.0;
            self.kept.retain(|&(x, _)| x >= kth);
        }
        // Subtracting the best first: the exponent never overflows, however small the temperature,
        // and the best's is 1.
        for (x, _) in &mut self.kept {
            *x = ((*x - f64::from(best)) / temperature).exp();
        }
        let mut sorted = 0;
        if top_p < 1.0 || min_p > 0.0 {
            let total: f64 = self.kept.iter().map(|(p, _)| p).sum();
            let (mut len, mut sum) = (0, 0.0);
            while len < self.kept.len() {
                let p = most_likely(&mut self.kept, &mut sorted, len).0;
                if len > 0 && p < min_p {
                    break;
                }
                (len, sum) = (len + 1, sum + p / total);
                if top_p < 1.0 && sum >= top_p - REACHED {
                    break;
                }
            }
            self.kept.truncate(len);
        }
        sorted.min(self.kept.len())
    }
}

/// The most likely first, the lowest id on a tie.
fn order(a: &(f64, u32), b: &(f64, u32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The `at`-th most likely of `kept`, of which the first `sorted` are already in order. More are
/// sorted only when they are asked for: a vocabulary is large, and draws are seldom far down.
fn most_likely(kept: &mut [(f64, u32)], sorted: &mut usize, at: usize) -> (f64, u32) {
    if at >= *sorted {
        let (from, to) = (*sorted, kept.len().min((4 * *sorted).max(128)));
        let rest = &mut kept[from..];
        if to - from < rest.len() {
            rest.select_nth_unstable_by(to - from, order);
        }
        rest[..to - from].sort_unstable_by(order);
        *sorted = to;
    }
    kept[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which tokens ever come up in many draws from `probabilities`.
    fn support(sampling: &Sampling, probabilities: &[f32]) -> Vec<u32> {
        let logits: Vec<f32> = probabilities.iter().map(|p| p.ln()).collect();
        let mut sampler = Sampler::new(sampling, 0).unwrap();
        let mut seen: Vec<u32> = (0..5000).map(|_| sampler.pick(&logits).unwrap()).collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    const P: [f32; 4] = [0.3, 0.1, 0.1, 0.5];

    fn with(change: impl FnOnce(&mut Sampling)) -> Sampling {
        let mut sampling = Sampling::default();
        change(&mut sampling);
        sampling
    }

    #[test]
    fn each_filter_keeps_exactly_what_it_says() {
        for (sampling, kept) in [
            (with(|_| {}), vec![0, 1, 2, 3]),
            (with(|s| s.top_k = 1), vec![3]),
            (with(|s| s.top_k = 2), vec![0, 3]),
            (with(|s| s.top_k = 3), vec![0, 1, 2, 3]), // a tie at the k-th
            (with(|s| s.top_k = 4), vec![0, 1, 2, 3]),
            (with(|s| s.top_k = 200), vec![0, 1, 2, 3]),
            (with(|s| s.top_p = 0.0), vec![3]),
            (with(|s| s.top_p = 0.5), vec![3]),
            (with(|s| s.top_p = 0.8), vec![0, 3]),
            (with(|s| s.top_p = 0.81), vec![0, 1, 3]),
            (with(|s| s.top_p = 1.0), vec![0, 1, 2, 3]),
            (with(|s| s.min_p = 0.5), vec![0, 3]),
            (with(|s| s.min_p = 1.0), vec![3]),
            (with(|s| s.temperature = 1e-8), vec![3]),
            (with(|s| s.vocab_size = 2), vec![0, 1]),
            (Sampling::greedy(), vec![3]),
        ] {
            assert_eq!(support(&sampling, &P), kept, "{sampling:?}");
        }
    }

    /// Everything sorted first, and one filter after the other.
    fn pick_slowly(sampling: &Sampling, logits: &[f32], stream: &mut Stream) -> u32 {
        let mut all: Vec<(f64, u32)> = logits
            .iter()
            .zip(0..)
            .map(|(&x, id)| (f64::from(x) / sampling.temperature, id))
            .collect();
        all.sort_by(order);
        let (best, kth) = (all[0].0, all[sampling.top_k.clamp(1, all.len()) - 1].0);
        all.retain(|&(x, _)| sampling.top_k == 0 || x >= kth);
        all.iter_mut().for_each(|(x, _)| *x = (*x - best).exp());
        let mut total: f64 = all.iter().map(|(p, _)| p).sum();
        let enough = if sampling.top_p < 1.0 { sampling.top_p - REACHED } else { f64::MAX };
        let (mut sum, mut before) = (0.0, 0.0);
        all.retain(|&(p, _)| {
            (before, sum) = (sum, sum + p / total);
            before == 0.0 || (before < enough && p >= sampling.min_p)
        });
        total = all.iter().map(|(p, _)| p).sum();
        let mut left = stream.uniform() * total;
        let drawn = all.iter().find(|(p, _)| {
            left -= p;
            left < 0.0
        });
        drawn.or(all.last()).unwrap().1
    }

    #[test]
    fn a_large_vocabulary_is_drawn_from_as_if_all_of_it_were_sorted() {
        let mut stream = Stream::new(5, 0, 0);
        let logits: Vec<f32> = (0..5000).map(|_| 3.0 * stream.normal() as f32).collect();
        let all = with(|_| {});
        let flat = with(|s| s.temperature = 5.0);
        let k = with(|s| s.top_k = 1000);
        let p = with(|s| s.top_p = 0.9);
        let min = with(|s| s.min_p = 0.01);
        let three = with(|s| (s.top_k, s.top_p, s.min_p) = (1500, 0.95, 0.001));
        for sampling in [all, flat, k, p, min, three] {
            let mut sampler = Sampler::new(&sampling, 0).unwrap();
            let mut stream = Stream::new(sampling.seed, super::super::SAMPLE_STREAM, 0);
            for _ in 0..200 {
                let expected = pick_slowly(&sampling, &logits, &mut stream);
                assert_eq!(sampler.pick(&logits).unwrap(), expected, "{sampling:?}");
            }
        }
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits: Vec<f32> = P.iter().map(|p| p.ln()).collect();
        let mut sampler = Sampler::new(&Sampling::default(), 0).unwrap();
        let mut counts = [0.0; 4];
        for _ in 0..40_000 {
            counts[sampler.pick(&logits).unwrap() as usize] += 1.0 / 40_000.0;
        }
        assert!(counts.iter().zip(P).all(|(count, p)| (count - p).abs() < 0.01), "{counts:?}");
    }

    #[test]
    fn greedy_takes_the_lowest_id_of_a_tie() {
        let mut sampler = Sampler::new(&Sampling::greedy(), 0).unwrap();
        assert_eq!(sampler.pick(&[1.0, 5.0, 5.0]).unwrap(), 1);
        assert_eq!(sampler.pick(&[-7.0; 3]).unwrap(), 0);
    }

    #[test]
    fn impossible_settings_and_logits_are_errors() {
        for (key, sampling) in [
            ("temperature", with(|s| s.temperature = -1.0)),
            ("temperature", with(|s| s.temperature = f64::NAN)),
            ("top_p", with(|s| s.top_p = 1.5)),
            ("min_p", with(|s| s.min_p = -0.1)),
        ] {
            let error = Sampler::new(&sampling, 0).err().unwrap().to_string();
            assert!(error.starts_with(key), "{error}");
        }
        for bad in [f32::NAN, f32::INFINITY] {
            let mut sampler = Sampler::new(&Sampling::default(), 0).unwrap();
            let error = sampler.pick(&[0.0, bad]).unwrap_err().to_string();
            assert!(error.contains("token 1") && error.contains("not finite"), "{error}");
        }
    }

    #[test]
    fn texts_of_one_seed_differ_and_repeat() {
        let draw = |index| {
            let mut sampler = Sampler::new(&Sampling::default(), index).unwrap();
            (0..20).map(|_| sampler.pick(&[0.0; 50]).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draw(0), draw(0));
        assert_ne!(draw(0), draw(1));
    }
}
