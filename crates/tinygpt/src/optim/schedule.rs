//! The learning rate at each step: nanoGPT's warm-up and cosine.

use crate::config::TrainConfig;

/// ```text
/// it < warmup_iters     learning_rate (it + 1) / (warmup_iters + 1)
/// it > lr_decay_iters   min_lr
/// else                  min_lr + (learning_rate - min_lr) (1 + cos(π r)) / 2,
///                       r = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
/// ```
/// Constant without `decay_lr`. Defined for every checked configuration, also where warm-up and
/// decay end together. Source: Loshchilov and Hutter, "SGDR" (2017), without restarts.
///
/// ```
/// use tinygpt::{TrainConfig, optim::learning_rate};
/// let config = TrainConfig { learning_rate: 6e-4, warmup_iters: 2000, ..TrainConfig::default() };
/// assert!((learning_rate(&config, 0) - 3e-7).abs() < 1e-9);
/// assert_eq!(learning_rate(&config, 2000), 6e-4);
/// ```
pub fn learning_rate(config: &TrainConfig, it: u64) -> f64 {
    let TrainConfig { learning_rate, min_lr, warmup_iters, lr_decay_iters, .. } = *config;
    if !config.decay_lr {
        return learning_rate;
    }
    if it < warmup_iters {
        return learning_rate * (it + 1) as f64 / (warmup_iters + 1) as f64;
    }
    if it > lr_decay_iters {
        return min_lr;
    }
    let span = (lr_decay_iters - warmup_iters).max(1) as f64;
    let ratio = (it - warmup_iters) as f64 / span;
    min_lr + 0.5 * (1.0 + (std::f64::consts::PI * ratio).cos()) * (learning_rate - min_lr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_nanogpt_holds() {
        let config = TrainConfig {
            learning_rate: 6e-4,
            min_lr: 6e-5,
            warmup_iters: 2000,
            lr_decay_iters: 600_000,
            ..TrainConfig::default()
        };
        for (it, expected) in [
            (0, 2.998_5e-7),
            (1000, 3.001_499e-4),
            (2000, 6e-4),
            (301_000, 3.3e-4),
            (600_000, 6e-5),
            (700_000, 6e-5),
        ] {
            let found = learning_rate(&config, it);
            assert!(
                (found - expected).abs() < 1e-4 * expected,
                "{it}: {found}, expected {expected}"
            );
        }
    }

    #[test]
    fn every_corner_of_the_schedule_is_finite_and_positive() {
        for (warmup_iters, lr_decay_iters) in [(0, 0), (100, 100), (0, 1), (0, 100), (99, 100)] {
            let config = TrainConfig { warmup_iters, lr_decay_iters, ..TrainConfig::default() };
            config.check().unwrap();
            for it in 0..=200 {
                let lr = learning_rate(&config, it);
                assert!(
                    lr > 0.0 && lr <= config.learning_rate,
                    "{warmup_iters}/{lr_decay_iters} at {it}: {lr}"
                );
            }
        }
    }

    #[test]
    fn without_decay_the_rate_is_constant() {
        let config = TrainConfig { decay_lr: false, ..TrainConfig::default() };
        assert!((0..10).all(|it| learning_rate(&config, it) == config.learning_rate));
    }
}
