//! Things that must make no difference, and one tensor that must be two.

use super::{Batch, Row, difference, uncached};
use crate::config::TrainConfig;
use crate::error::Result;
use crate::model::Gpt;
use crate::optim::AdamW;
use crate::run::thousands;
use crate::sample::Cache;
use tinygpt_kernels::Cpu;

/// With `W_U = W_E^T` a row of the embedding is a row of the unembedding too: moving it moves the
/// logit of its token, although the token is not in the text. Apart, it must not.
pub(super) fn tying(gpt: &mut Gpt, tied: bool) -> Result<Vec<Row>> {
    let (v, c) = (gpt.config().vocab_size, gpt.config().n_embd);
    let absent = v - 1;
    let before = uncached(gpt, &[0])?;
    let wte = gpt.params_mut().embeddings_mut().0;
    let row = wte[absent * c..].to_vec();
    wte[absent * c..].iter_mut().enumerate().for_each(|(i, x)| *x += 0.1 * (i % 3) as f32 + 0.1);
    let after = uncached(gpt, &[0]);
    gpt.params_mut().embeddings_mut().0[absent * c..].copy_from_slice(&row);

    let moved = before.iter().zip(after?).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    let saved = if gpt.params().table().lm_head.is_none() { v * c } else { 0 };
    let expected = if tied { v * c } else { 0 };
    // A channel alone is normalised to 0: no logit shows what the embedding is.
    let tied = tied && c > 1;
    let (tied, what) = if tied { (1, "shared") } else { (0, "apart") };
    Ok(vec![
        Row::new(
            format!("logits moved by a row of wte, {what}"),
            moved.to_string(),
            tied.to_string(),
            moved == tied,
        ),
        Row::new("parameters saved", thousands(saved), thousands(expected), saved == expected),
    ])
}

/// New tokens past the context's end: the window slides and the cache must be computed anew.
const PAST: usize = 8;

/// Logits (V) after some tokens, each time one more than the time before.
pub(super) type Logits<'a> = &'a mut dyn FnMut(&mut Gpt, &[u32]) -> Vec<f32>;

/// What generation uses.
pub(super) fn cached(gpt: &Gpt) -> impl FnMut(&mut Gpt, &[u32]) -> Vec<f32> + use<> {
    let mut cache = Cache::new(gpt, 1, gpt.config().block_size);
    move |gpt, tokens| cache.logits(gpt, &[0], &[tokens.to_vec()]).to_vec()
}

/// Writes greedily from the first three quarters of `prompt` (fewer tokens would be read one by one)
/// until past the context, with the cache and by a whole forward pass for each token, and compares the
/// logits.
///
/// A mistake here never shows in training, and in a text only as worse words.
pub(super) fn kv_cache(gpt: &mut Gpt, prompt: &[u32], cached: Logits) -> Result<Row> {
    let mut tokens = prompt[..prompt.len() - prompt.len() / 4].to_vec();
    let (written, mut worst) = (prompt.len() - tokens.len() + PAST, 0.0f64);
    for _ in 0..written {
        let found = cached(gpt, &tokens);
        let exact = uncached(gpt, &tokens)?;
        let error = difference(&found, &exact);
        worst = if worst.is_nan() || error <= worst { worst } else { error };
        let best = (0..exact.len()).max_by(|&a, &b| exact[a].total_cmp(&exact[b])).unwrap_or(0);
        tokens.push(best as u32);
    }
    Ok(Row::error(format!("{written} tokens, {PAST} past the context"), worst, 1e-4))
}

/// What a step of training leaves.
pub(super) struct Step {
    logits: Vec<f32>,
    grads: Vec<f32>,
    params: Vec<f32>,
}

/// Forward, backward and one optimizer step on so many threads. The model stays as it was.
pub(super) fn step_on(gpt: &mut Gpt, batch: &Batch, threads: usize) -> Result<Step> {
    let cpu = Cpu::new(threads, gpt.cpu.isa());
    let cpu = std::mem::replace(&mut gpt.cpu, cpu);
    let before = gpt.params().clone();
    gpt.zero_grad();
    let logits = gpt.forward(&batch.idx, Some(&batch.targets), batch.dims)?.0.to_vec();
    gpt.backward();
    AdamW::new(gpt).step(gpt, &TrainConfig::default(), 1e-3);
    let after = std::mem::replace(gpt.params_mut(), before);
    gpt.cpu = cpu;
    Ok(Step { logits, grads: gpt.grads().data().to_vec(), params: after.data().to_vec() })
}

/// Sums are not associative in floating point, so each has one order here, whoever computes it.
/// Then a change in the loss has a cause in the code.
pub(super) fn threads(one: &Step, many: &Step, threads: usize) -> Vec<Row> {
    let row = |what: &str, one: &[f32], many: &[f32]| {
        let differ = one.iter().zip(many).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        let what = format!("{what}, 1 against {threads} threads");
        let pass = differ == 0 && one.len() == many.len();
        Row::new(what, format!("{} differ", thousands(differ)), "0", pass)
    };
    vec![
        row("logits", &one.logits, &many.logits),
        row("gradients", &one.grads, &many.grads),
        row("stepped weights", &one.params, &many.params),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::Subject;
    use super::*;
    use crate::config::GptConfig;
    use tinygpt_kernels::Isa;

    fn subject(tied: bool) -> Subject {
        let config = GptConfig { tied, ..GptConfig::tiny() };
        Subject::fresh(&config, Cpu::new(2, Isa::best())).unwrap()
    }

    #[test]
    fn an_embedding_that_is_not_tied_as_the_configuration_says_is_found() {
        for tied in [true, false] {
            let gpt = &mut subject(tied).gpt;
            assert!(tying(gpt, tied).unwrap().iter().all(|row| row.pass));
            assert!(tying(gpt, !tied).unwrap().iter().all(|row| !row.pass));
        }
    }

    #[test]
    fn a_cache_whose_positions_are_off_by_one_or_that_forgets_the_window_is_found() {
        let mut subject = subject(true);
        let (prompt, gpt) = (subject.sequence(), &mut subject.gpt);
        let mut healthy = cached(gpt);
        assert!(kv_cache(gpt, &prompt, &mut healthy).unwrap().pass);
        // The first token lost: every other stands one position too early.
        let mut shifted = |gpt: &mut Gpt, tokens: &[u32]| uncached(gpt, &tokens[1..]).unwrap();
        assert!(!kv_cache(gpt, &prompt, &mut shifted).unwrap().pass);
        // Right until the context is full, then still the first window.
        let mut stuck =
            |gpt: &mut Gpt, tokens: &[u32]| uncached(gpt, &tokens[..tokens.len().min(9)]).unwrap();
        assert!(!kv_cache(gpt, &prompt, &mut stuck).unwrap().pass);
    }

    #[test]
    fn one_bit_that_depends_on_the_threads_is_found() {
        let mut subject = subject(true);
        let batch = subject.batch().unwrap();
        let one = step_on(&mut subject.gpt, &batch, 1).unwrap();
        let mut many = step_on(&mut subject.gpt, &batch, 3).unwrap();
        assert!(threads(&one, &many, 3).iter().all(|row| row.pass));
        assert!(one.params != subject.gpt.params().data(), "a step that changes nothing");
        many.grads[7] = f32::from_bits(many.grads[7].to_bits() ^ 1);
        many.params[9] = f32::from_bits(many.params[9].to_bits() ^ 1);
        let rows = threads(&one, &many, 3);
        assert_eq!(rows.iter().map(|row| row.pass).collect::<Vec<_>>(), [true, false, false]);
    }
}
