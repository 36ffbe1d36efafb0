//! Which windows of the tokens make a batch, and the batch made of them.
//!
//! A window is `block_size` tokens and, one place later, the `block_size` tokens to be predicted.
//! Where it starts is a pure function of (seed, stream, step, index in the step): resuming a run
//! needs no stored position, and an evaluation disturbs no training batch.

use super::{EVAL_TRAIN_STREAM, EVAL_VAL_STREAM, TRAIN_STREAM, Tokens};
use crate::error::Result;
use std::ops::Range;
use tinygpt_kernels::rng::philox;

/// What windows are drawn for. Streams never overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WindowStream {
    /// Training batches.
    Train = TRAIN_STREAM,
    /// Evaluation on the training split.
    EvalTrain = EVAL_TRAIN_STREAM,
    /// Evaluation on the validation split.
    EvalVal = EVAL_VAL_STREAM,
}

/// Where window `i` of `step` starts: uniform in `0..tokens - block_size`, so that the window and
/// its last target are inside.
///
/// # Panics
/// If `tokens <= block_size`; `Dataset::check` finds this out beforehand.
pub fn window_start(
    seed: u64,
    stream: WindowStream,
    step: u64,
    i: u32,
    tokens: usize,
    block_size: usize,
) -> usize {
    assert!(tokens > block_size, "{tokens} tokens hold no window of {block_size} and a target");
    let key = [seed as u32, (seed >> 32) as u32];
    // The third word is the stream's name, as in `rng::Stream`: no other purpose can draw these.
    let words = philox(key, [i, step as u32, stream as u32, (step >> 32) as u32]);
    let random = ((words[0] as u128) << 32) | words[1] as u128;
    // Multiply and shift: its bias is below starts / 2^64.
    ((random * (tokens - block_size) as u128) >> 64) as usize
}

/// Reads one window per start into a batch: `idx` (B, T) written, `targets` (B, T) written, the
/// same windows one token later. B is the number of starts; T follows from the lengths.
///
/// # Errors
/// A token file that cannot be read.
///
/// # Panics
/// If the lengths do not fit, or a window or its last target lies outside the tokens.
pub fn fill(
    tokens: &Tokens,
    starts: impl ExactSizeIterator<Item = usize>,
    idx: &mut [u32],
    targets: &mut [i32],
) -> Result<()> {
    let windows = starts.len();
    assert_eq!(idx.len(), targets.len(), "idx and targets differ in length");
    assert!(
        windows > 0 && idx.len() >= windows && idx.len().is_multiple_of(windows),
        "{} places for {windows} windows",
        idx.len()
    );
    let block_size = idx.len() / windows;
    let rows = idx.chunks_exact_mut(block_size).zip(targets.chunks_exact_mut(block_size));
    for (start, (idx, targets)) in starts.zip(rows) {
        tokens.read(start, idx)?;
        let mut after = [0];
        tokens.read(start + block_size, &mut after)?;
        for (target, next) in targets.iter_mut().zip(idx[1..].iter().chain(&after)) {
            *target = *next as i32;
        }
    }
    Ok(())
}

/// The windows of a walk over all tokens, in order: every token but the first is a target exactly
/// once. Each range is a window's inputs; the last may be shorter than `block_size`.
///
/// # Panics
/// If `block_size` is 0.
pub fn walk(tokens: usize, block_size: usize) -> impl ExactSizeIterator<Item = Range<usize>> {
    let inputs = tokens.saturating_sub(1);
    (0..inputs)
        .step_by(block_size)
        .map(move |start| start..inputs.min(start.saturating_add(block_size)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counting(tokens: usize) -> Tokens {
        let ids: Vec<u32> = (0..tokens as u32).collect();
        Tokens::from_ids(&ids, tokens.max(1)).unwrap()
    }

    #[test]
    fn windows_reach_both_ends_and_are_spread_evenly() {
        let (tokens, block_size) = (14, 4);
        let mut counts = [0; 10];
        for step in 0..1000 {
            for i in 0..20 {
                counts[window_start(3, WindowStream::Train, step, i, tokens, block_size)] += 1;
            }
        }
        assert!(counts.iter().all(|&n| (1800..2200).contains(&n)), "{counts:?}");
    }

    #[test]
    fn windows_depend_on_seed_stream_step_and_index_and_on_nothing_else() {
        use WindowStream::*;
        let start = |seed, stream, step, i| window_start(seed, stream, step, i, 1 << 40, 64);
        let base = start(1, Train, 2, 3);
        assert_eq!(base, start(1, Train, 2, 3));
        for other in [
            start(2, Train, 2, 3),
            start(1 | 1 << 40, Train, 2, 3),
            start(1, EvalTrain, 2, 3),
            start(1, EvalVal, 2, 3),
            start(1, Train, 3, 3),
            start(1, Train, 2 | 1 << 32, 3),
            start(1, Train, 2, 4),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn a_step_draws_the_same_windows_in_any_version() {
        let starts =
            [0, 1, 2].map(|i| window_start(1337, WindowStream::Train, 0, i, 1_003_854, 64));
        assert_eq!(starts, [887_695, 296_887, 846_751]);
    }

    proptest! {
        #[test]
        fn every_window_and_its_target_is_inside_at_every_size(
            block_size in 1usize..20, more in 1usize..70, seed: u64, step: u64, windows in 1u32..9,
        ) {
            let tokens = counting(block_size + more);
            let starts = (0..windows as usize).map(|i| window_start(
                seed, WindowStream::EvalVal, step, i as u32, tokens.len(), block_size,
            ));
            let mut idx = vec![0; block_size * windows as usize];
            let mut targets = vec![0i32; idx.len()];
            fill(&tokens, starts.clone(), &mut idx, &mut targets).unwrap();
            for (row, start) in idx.chunks(block_size).zip(starts) {
                prop_assert!(row.iter().copied().eq((start as u32..).take(block_size)));
            }
            prop_assert!(idx.iter().zip(&targets).all(|(&x, &y)| y == x as i32 + 1));
        }

        #[test]
        fn a_walk_predicts_every_token_but_the_first_exactly_once(
            block_size in 1usize..9, blocks in 0usize..5, edge in -1isize..3,
        ) {
            let size = (blocks * block_size).saturating_add_signed(edge);
            let tokens = counting(size);
            let mut predicted = Vec::new();
            for window in walk(size, block_size) {
                prop_assert!((1..=block_size).contains(&window.len()));
                let (mut idx, mut targets) = (vec![0; window.len()], vec![0; window.len()]);
                fill(&tokens, [window.start].into_iter(), &mut idx, &mut targets).unwrap();
                prop_assert_eq!(idx[0] as usize, window.start);
                predicted.extend(targets);
            }
            prop_assert!(predicted.into_iter().eq(1..size as i32));
        }
    }
}
