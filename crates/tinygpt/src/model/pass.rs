//! Forward and backward for a framework that keeps parameters, logits and gradients itself, and may
//! have several forward passes on the way to their backward at once.
//!
//! What a backward needs of its forward is therefore in a [`Pass`], not in the model, and a model
//! laid over the framework's memory ([`Gpt::over`]) lives for one call.

use super::{Activations, Attention, Dropout, Gpt, Keep, Matrices, Params, Precision};
use super::{backward, forward, head};
use crate::config::GptConfig;
use crate::error::Result;
use tinygpt_kernels::Cpu;

/// A forward pass, kept for its backward.
#[derive(Default)]
pub struct Pass {
    acts: Activations,
    idx: Vec<u32>,
    targets: Option<Vec<i32>>,
    drop: Option<Dropout>,
    dims: (usize, usize),
    /// Whether there is to be no backward.
    alone: bool,
    /// Whether a backward has used up what the forward left.
    used: bool,
}

impl Pass {
    /// A pass to be made over `idx` (B, T). With `targets` (B, T), of which -1 count nothing, it has
    /// a loss. Its memory is that of `old`, a pass that nobody goes back any more.
    pub fn new(
        old: Pass,
        idx: Vec<u32>,
        targets: Option<Vec<i32>>,
        drop: Dropout,
        dims: (usize, usize),
    ) -> Self {
        Self { acts: old.acts, idx, targets, drop: Some(drop), dims, alone: false, used: false }
    }

    /// The same without a backward: it takes the memory of one block.
    pub fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    fn drop(&self) -> Dropout {
        self.drop.unwrap_or(Dropout::NONE)
    }
}

impl Gpt {
    /// A model of somebody else's parameters, and of gradients that [`backward_pass`] adds to; none
    /// when there is to be no backward. Panics when these are not laid out by the configuration's
    /// table.
    ///
    /// [`backward_pass`]: Self::backward_pass
    ///
    /// # Errors
    /// A configuration that cannot work.
    pub fn over(
        config: GptConfig,
        mut params: Params,
        grads: Option<Params>,
        cpu: Cpu,
    ) -> Result<Self> {
        config.check()?;
        let grads = grads.unwrap_or_else(|| Params::zeros(params.table().clone()));
        let matrices = Matrices::of(&cpu, &mut params, Precision::F32);
        let (acts, attention) = (Activations::default(), Attention::default());
        Ok(Self { config, params, grads, acts, cpu, attention, matrices, seen: None })
    }

    /// The processor, for the next model.
    pub fn into_cpu(self) -> Cpu {
        self.cpu
    }

    /// Makes `pass`: writes the `logits`, of all positions (B, T, V) or, when there is room for no
    /// more, of each sequence's last (B, V). Returns the mean loss over the targets that are not -1
    /// (NaN when all are), if there are targets.
    ///
    /// # Errors
    /// As for [`forward`](Self::forward).
    ///
    /// # Panics
    /// When `logits` has neither length, or targets have no logits.
    pub fn forward_pass(&mut self, pass: &mut Pass, logits: &mut [f32]) -> Result<Option<f32>> {
        let dims @ (b, t) = pass.dims;
        self.check_batch(&pass.idx, pass.targets.as_deref(), dims)?;
        std::mem::swap(&mut self.acts, &mut pass.acts);
        let keep = if pass.alone { Keep::Last } else { Keep::All };
        forward::trunk(self, &pass.idx, pass.drop(), keep, dims);
        if logits.len() == b * self.config.vocab_size && pass.targets.is_none() {
            head::last_logits(self, logits, dims);
        } else {
            head::all_logits(self, logits, b * t);
        }
        let loss = pass.targets.as_ref().map(|targets| {
            let valid = targets.iter().filter(|&&target| target != -1).count();
            (head::loss_of(self, logits, targets) / valid as f64) as f32
        });
        std::mem::swap(&mut self.acts, &mut pass.acts);
        pass.used = false;
        Ok(loss)
    }

    /// Adds to the gradients those of `dloss` times the loss of `pass`, and of whatever has the
    /// gradient `dlogits` (B, T, V) in its `logits`, which are those that
    /// [`forward_pass`](Self::forward_pass) wrote. The parameters must still be the same. May be
    /// called again.
    ///
    /// # Panics
    /// After a forward [`alone`](Pass::alone).
    pub fn backward_pass(
        &mut self,
        pass: &mut Pass,
        logits: &[f32],
        dlogits: Option<&[f32]>,
        dloss: Option<f32>,
    ) {
        assert!(!pass.alone, "a forward pass that was to have a backward");
        std::mem::swap(&mut self.acts, &mut pass.acts);
        if pass.used {
            forward::trunk(self, &pass.idx, pass.drop(), Keep::All, pass.dims);
        }
        let loss = pass.targets.as_ref().zip(dloss).map(|(targets, dloss)| {
            let valid = targets.iter().filter(|&&target| target != -1).count();
            (&targets[..], dloss / valid.max(1) as f32)
        });
        head::gradient(self, logits, loss, dlogits);
        backward::trunk(self, &pass.idx, pass.drop(), pass.dims);
        self.fold_tied_grads();
        std::mem::swap(&mut self.acts, &mut pass.acts);
        pass.used = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tensors;
    use std::sync::Arc;
    use tinygpt_kernels::{Isa, Lent};

    const DIMS: (usize, usize) = (3, 7);

    fn config() -> GptConfig {
        GptConfig { dropout: 0.3, ..GptConfig::tiny() }
    }

    fn model() -> Gpt {
        Gpt::new_on(config(), 5, Cpu::new(2, Isa::best())).unwrap()
    }

    /// Each tensor somewhere by itself, as a framework has them.
    fn lent(params: &Params) -> Params {
        let lend = |values: &[f32]| Lent::from(values.to_vec().leak());
        let tensors = params.iter().map(|(_, values)| lend(values)).collect();
        Params::lent(params.table().clone(), tensors)
    }

    fn batch(salt: usize) -> (Vec<u32>, Vec<i32>) {
        let (n, v) = (DIMS.0 * DIMS.1, config().vocab_size);
        let id = |i: usize| (i * i + salt) % v;
        let target = |i: usize| if i % 5 == 3 { -1 } else { id(i + 1) as i32 };
        ((0..n).map(|i| id(i) as u32).collect(), (0..n).map(target).collect())
    }

    /// The gradients that `Gpt::accumulate` makes, and the mean loss.
    fn expected(salt: usize, drop: Dropout) -> (Params, f32) {
        let ((idx, targets), mut gpt) = (batch(salt), model());
        let valid = targets.iter().filter(|&&target| target != -1).count() as f32;
        let sum = gpt.accumulate(&idx, &targets, 1.0 / valid, drop, DIMS).unwrap();
        gpt.fold_tied_grads();
        (gpt.grads().clone(), sum as f32 / valid)
    }

    fn assert_same(grads: &Params, expected: &Params, times: f32) {
        for (spec, found) in grads.iter() {
            let expected = expected.iter().find(|(row, _)| row.name == spec.name).unwrap().1;
            for (x, y) in found.iter().zip(expected) {
                assert!((x - times * y).abs() < 1e-6, "{}: {x}, expected {y}", spec.name);
            }
        }
    }

    fn over(params: &Params) -> Gpt {
        let grads = lent(&Params::zeros(Arc::new(Tensors::of(&config()))));
        Gpt::over(config(), lent(params), Some(grads), Cpu::new(2, Isa::best())).unwrap()
    }

    #[test]
    fn what_is_kept_in_fewer_bits_is_a_copy_of_lent_numbers() {
        for precision in [Precision::Bf16, Precision::Int8] {
            let mut gpt = over(model().params());
            let (place, exact) = (gpt.params().wte().as_ptr(), gpt.params().clone());
            gpt.keep_in(precision);
            assert_ne!(gpt.params().wte().as_ptr(), place);
            assert_ne!(gpt.params().wte(), exact.wte());
            assert_eq!(gpt.params().wpe(), exact.wpe());
        }
    }

    #[test]
    fn passes_on_lent_memory_go_back_in_any_order_and_more_than_once() {
        let mut gpt = over(model().params());
        let mut logits = vec![vec![f32::NAN; DIMS.0 * DIMS.1 * config().vocab_size]; 2];
        let drops = [1, 2].map(|seed| Dropout::new(0.3, seed, 0, 0));
        let mut passes = [0, 1].map(|salt| {
            let (idx, targets) = batch(salt);
            let mut pass = Pass::new(Pass::default(), idx, Some(targets), drops[salt], DIMS);
            let loss = gpt.forward_pass(&mut pass, &mut logits[salt]).unwrap().unwrap();
            assert!((loss - expected(salt, drops[salt]).1).abs() < 1e-6);
            pass
        });
        for (salt, times) in [(0, 1.0), (1, 1.0), (0, -2.0)] {
            gpt.zero_grad();
            gpt.backward_pass(&mut passes[salt], &logits[salt], None, Some(times));
            assert_same(gpt.grads(), &expected(salt, drops[salt]).0, times);
        }
    }

    #[test]
    fn a_pass_without_a_backward_gives_the_same_bits_in_the_memory_of_one_block() {
        for n_layer in 1..4 {
            let config = GptConfig { n_layer, ..config() };
            let (table, cpu) = (Arc::new(Tensors::of(&config)), Cpu::new(2, Isa::best()));
            let mut gpt = Gpt::over(config, Params::init(table, 7), None, cpu).unwrap();
            let mut made = |old, alone| {
                let (idx, targets) = batch(1);
                let mut logits = vec![0.0; idx.len() * gpt.config().vocab_size];
                let pass = Pass::new(old, idx, Some(targets), Dropout::new(0.3, 5, 0, 0), DIMS);
                let mut pass = if alone { pass.alone() } else { pass };
                let loss = gpt.forward_pass(&mut pass, &mut logits).unwrap();
                (pass, logits, loss)
            };
            let (alone, logits, loss) = made(Pass::default(), true);
            assert_eq!((alone.acts.h.len(), alone.acts.x.len()), (1, 2));
            let (whole, ..) = made(alone, false);
            assert_eq!(whole.acts.h.len(), n_layer);
            for alone in [false, true] {
                let (_, again, loss_again) = made(Pass::default(), alone);
                assert_eq!((again, loss_again), (logits.clone(), loss));
            }
            assert_eq!(made(whole, true).1, logits, "in the memory of another kind of pass");
        }
    }

    #[test]
    fn a_gradient_through_the_logits_is_that_of_the_loss_they_make() {
        let mut gpt = over(model().params());
        let (idx, targets) = batch(0);
        let (v, valid) = (config().vocab_size, targets.iter().filter(|&&t| t != -1).count());
        let mut logits = vec![0.0; idx.len() * v];
        let mut pass = Pass::new(Pass::default(), idx, None, Dropout::NONE, DIMS);
        assert!(gpt.forward_pass(&mut pass, &mut logits).unwrap().is_none());
        let mut dlogits = vec![0.0; logits.len()];
        for (i, &target) in targets.iter().enumerate().filter(|(_, target)| **target != -1) {
            let row = &logits[i * v..][..v];
            let sum: f32 = row.iter().map(|x| x.exp()).sum();
            for (id, d) in dlogits[i * v..][..v].iter_mut().enumerate() {
                let hit = (id as i32 == target) as u8 as f32;
                *d = (row[id].exp() / sum - hit) / valid as f32;
            }
        }
        gpt.backward_pass(&mut pass, &logits, Some(&dlogits), None);
        assert_same(gpt.grads(), &expected(0, Dropout::NONE).0, 1.0);
    }

    #[test]
    fn the_last_positions_logits_are_those_of_a_whole_forward() {
        let (mut gpt, (idx, _), v) = (model(), batch(0), config().vocab_size);
        let mut last = vec![0.0; DIMS.0 * v];
        let mut pass = Pass::new(Pass::default(), idx.clone(), None, Dropout::NONE, DIMS);
        gpt.forward_pass(&mut pass, &mut last).unwrap();
        let (all, _) = gpt.forward(&idx, None, DIMS).unwrap();
        for (b, last) in last.chunks_exact(v).enumerate() {
            let row = (b + 1) * DIMS.1 - 1;
            let all = &all[row * v..(row + 1) * v];
            assert!(last.iter().zip(all).all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }
}
