//! Who sees whom: causality, the order of the heads, and the two attentions being one.

use super::start::{Attend, naive};
use super::{Batch, CHECK_STREAM, Row, difference};
use crate::config::GptConfig;
use crate::error::Result;
use crate::model::{Attention, Gpt};
use tinygpt_kernels::attention::Dims;
use tinygpt_kernels::reference;
use tinygpt_kernels::rng::Stream;

/// Tokens that are changed, one at a time, spread over the context with the last among them.
const TRIED: usize = 8;

/// Changes one token and looks at the logits of all others: those before it must be the same to
/// the last bit, and some after it must not.
///
/// A model that reads what it is to predict trains to a wonderful loss and writes nonsense.
pub(super) fn causality(gpt: &mut Gpt, idx: &[u32]) -> Result<Vec<Row>> {
    let (t, v) = (idx.len(), gpt.config().vocab_size);
    // One token is never another, and a channel alone is always normalised to 0.
    let tell_apart = v > 1 && gpt.config().n_embd > 1;
    let before = gpt.forward(idx, None, (1, t))?.0.to_vec();
    let (mut early, mut unseen, mut changed) = (0, 0, idx.to_vec());
    let tried = t.min(TRIED);
    for at in (1..=tried).map(|i| i * t / tried - 1) {
        changed[at] = (idx[at] + 1) % v as u32;
        let after = gpt.forward(&changed, None, (1, t))?.0;
        changed[at] = idx[at];
        let differs = |i: &usize| {
            let row = i * v..(i + 1) * v;
            before[row.clone()].iter().zip(&after[row]).any(|(a, b)| a.to_bits() != b.to_bits())
        };
        early += (0..at).filter(differs).count();
        unseen += usize::from(at + 1 < t && tell_apart && !(at + 1..t).any(|i| differs(&i)));
    }
    Ok(vec![
        Row::new("positions that saw a later token", early.to_string(), "0", early == 0),
        Row::new("tokens that no later position saw", unseen.to_string(), "0", unseen == 0),
    ])
}

/// Splitting C into (H, D) is a change of reading, bringing H before T a change of order. Who reads
/// the rows of (T, C) as (H, T, D) without moving anything gets heads that mix positions with
/// channels. Joined by the same mistake, the model is still causal and still learns: only a
/// comparison with a reference finds it.
pub(super) fn head_order(config: &GptConfig, attend: Attend) -> Vec<Row> {
    let dims @ (b, t, c, h) = (2, 16, config.n_embd, config.n_head);
    let mut stream = Stream::new(1337, CHECK_STREAM, 1);
    let qkv: Vec<f32> = (0..b * t * 3 * c).map(|_| stream.normal() as f32).collect();
    let (exact, _) = reference::attention(&qkv, |i, j| j <= i, dims);
    let exact: Vec<f32> = exact.iter().map(|&y| y as f32).collect();
    let error = |attend: Attend| {
        let (mut y, mut p) = (vec![0.0; b * t * c], vec![0.0; b * h * t * t]);
        attend(&mut y, &mut p, &qkv, dims);
        difference(&y, &exact)
    };
    let mut rows = vec![Row::error("our heads against the reference", error(attend), 1e-5)];
    if h > 1 {
        let wrong = error(untransposed);
        let measured = format!("{wrong:.2}");
        rows.push(Row::new("heads by reshape alone", measured, "above 0.1", wrong > 0.1));
    }
    rows
}

/// Attention with heads split and joined by reshape alone.
fn untransposed(y: &mut [f32], p: &mut [f32], qkv: &[f32], dims @ (_, t, c, h): Dims) {
    let d = c / h;
    // What lies at (t, h, d) of one sequence's rows lies there as if it were at (h, t, d).
    let place = |at: usize| (at / d % t * h + at / d / t) * d + at % d;
    let mut moved = qkv.to_vec();
    for (moved, qkv) in moved.chunks_exact_mut(t * 3 * c).zip(qkv.chunks_exact(t * 3 * c)) {
        for (part, at) in (0..3 * t * c).map(|x| (x / (t * c), x % (t * c))) {
            let column = |at: usize| at / c * 3 * c + part * c + at % c;
            moved[column(place(at))] = qkv[column(at)];
        }
    }
    naive(y, p, &moved, dims);
    for y in y.chunks_exact_mut(t * c) {
        let joined: Vec<f32> = (0..t * c).map(|at| y[place(at)]).collect();
        y.copy_from_slice(&joined);
    }
}

/// What one forward and backward leave.
pub(super) struct Outcome {
    logits: Vec<f32>,
    grads: Vec<f32>,
}

/// The same batch through the fused and the naive attention.
pub(super) fn both(gpt: &mut Gpt, batch: &Batch) -> Result<[Outcome; 2]> {
    let mut with = |attention| {
        let before = std::mem::replace(&mut gpt.attention, attention);
        gpt.zero_grad();
        let logits = gpt.forward(&batch.idx, Some(&batch.targets), batch.dims)?.0.to_vec();
        gpt.backward();
        gpt.attention = before;
        Ok(Outcome { logits, grads: gpt.grads().data().to_vec() })
    };
    Ok([with(Attention::Fused)?, with(Attention::Naive)?])
}

/// The fused attention never holds the (T, T) matrices, computes scores twice and sums in another
/// order; what comes out must be the same but for rounding.
pub(super) fn naive_fused(fused: &Outcome, naive: &Outcome) -> Vec<Row> {
    vec![
        Row::error("difference of logits", difference(&fused.logits, &naive.logits), 1e-4),
        Row::error("difference of gradients", difference(&fused.grads, &naive.grads), 1e-4),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::Subject;
    use super::*;
    use tinygpt_kernels::{Cpu, Isa};

    fn subject() -> Subject {
        Subject::fresh(&GptConfig::tiny(), Cpu::new(1, Isa::best())).unwrap()
    }

    #[test]
    fn a_model_without_a_mask_is_found_to_see_the_future() {
        let mut subject = subject();
        let idx = subject.sequence();
        subject.gpt.attention = Attention::NaiveUnmasked;
        let rows = causality(&mut subject.gpt, &idx).unwrap();
        assert!(!rows[0].pass && rows[1].pass, "{rows:?}");
    }

    #[test]
    fn a_model_that_sees_only_the_last_token_is_found() {
        let mut subject = subject();
        let idx = subject.sequence();
        for l in 0..2 {
            let attn = subject.gpt.params_mut().block_mut(l).attn;
            attn.c_proj.weight.fill(0.0);
        }
        let rows = causality(&mut subject.gpt, &idx).unwrap();
        assert!(rows[0].pass && !rows[1].pass, "{rows:?}");
    }

    #[test]
    fn heads_without_the_transpose_are_found_though_they_are_causal() {
        let config = GptConfig::tiny();
        let rows = head_order(&config, naive);
        assert!(rows.len() == 2 && rows.iter().all(|row| row.pass), "{rows:?}");
        assert!(!head_order(&config, untransposed)[0].pass);
    }

    #[test]
    fn a_fused_attention_that_differs_in_forward_or_backward_is_found() {
        let mut subject = subject();
        let batch = subject.batch().unwrap();
        let [fused, mut naive] = both(&mut subject.gpt, &batch).unwrap();
        assert!(naive_fused(&fused, &naive).iter().all(|row| row.pass));
        naive.grads.iter_mut().for_each(|g| *g *= 1.001);
        let rows = naive_fused(&fused, &naive);
        assert!(rows[0].pass && !rows[1].pass, "{rows:?}");
        naive.logits[5] += 0.01;
        assert!(!naive_fused(&fused, &naive)[0].pass);
    }
}
