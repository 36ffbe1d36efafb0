//! The model: its parameters, its activations, its two mirror pages.
//!
//! Read `tensors.rs` (what there is), then `forward.rs`, `head.rs` and `backward.rs` (what happens to
//! it).

pub mod tensors;
mod params;
mod narrow;
mod attention;
mod dropout;
mod activations;
pub(crate) mod forward;
mod head;
mod backward;
mod pass;
pub mod reference;

use crate::config::{Activation, GptConfig};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
pub use activations::logits_rows;
pub(crate) use activations::{Activations, Keep};
pub use attention::Attention;
pub use dropout::Dropout;
pub(crate) use narrow::Matrices;
pub use narrow::Precision;
pub use params::Params;
pub use pass::Pass;
use std::sync::Arc;
pub use tensors::{Spec, Tensors};
use tinygpt_kernels::{Cpu, Isa, Op, activation::Kind};

/// Random streams, one a purpose: no draw for one can move another. (2..=9 are the data's, 10 draws
/// samples, 11 is `check`'s.)
pub(crate) const INIT_STREAM: u32 = 1;
/// The first of 3 L + 1 dropout sites.
pub(crate) const DROPOUT_STREAM: u32 = 16;

/// A GPT: parameters, gradients, the activations of the last forward pass, and a processor.
pub struct Gpt {
    config: GptConfig,
    pub(crate) params: Params,
    grads: Params,
    pub(crate) acts: Activations,
    pub(crate) cpu: Cpu,
    pub(crate) attention: Attention,
    pub(crate) matrices: Matrices,
    /// What the last forward pass saw, for [`Gpt::backward`].
    seen: Option<Seen>,
}

struct Seen {
    idx: Vec<u32>,
    targets: Vec<i32>,
    dims: (usize, usize),
}

impl From<Activation> for Kind {
    fn from(activation: Activation) -> Kind {
        match activation {
            Activation::Gelu => Kind::Gelu,
            Activation::GeluTanh => Kind::GeluTanh,
            Activation::Silu => Kind::Silu,
        }
    }
}

impl Gpt {
    /// A new model with random parameters, on every thread this process may use.
    ///
    /// ```
    /// use tinygpt::{Gpt, GptConfig};
    /// let config = GptConfig { vocab_size: 11, block_size: 8, n_layer: 2, n_head: 2, n_embd: 16,
    /// ..GptConfig::default() };
    /// let mut gpt = Gpt::new(config, 1337)?;
    /// let (logits, loss) = gpt.forward(&[1, 2, 3, 4], Some(&[2, 3, 4, 5]), (1, 4))?;
    /// assert_eq!(logits.len(), 4 * 11); // (B, T, V)
    /// assert!((loss.unwrap() - 11f32.ln()).abs() < 0.1); // knows nothing yet
    /// # Ok::<(), tinygpt::Error>(())
    /// ```
    pub fn new(config: GptConfig, seed: u64) -> Result<Self> {
        Self::new_on(config, seed, Cpu::new(0, Isa::best()))
    }

    /// The same on a given processor.
    pub fn new_on(config: GptConfig, seed: u64, cpu: Cpu) -> Result<Self> {
        config.check()?;
        let params = Params::init(Arc::new(Tensors::of(&config)), seed);
        Self::with_params(config, params, cpu)
    }

    /// A model of given parameters on a given processor. Panics when the parameters are not laid
    /// out by the configuration's table.
    pub fn with_params(config: GptConfig, mut params: Params, cpu: Cpu) -> Result<Self> {
        config.check()?;
        let expected = Tensors::of(&config);
        assert!(params.table().iter().eq(expected.iter()), "parameters of another configuration");
        // The unembedding's gradient has its own place even when tied, and joins the embedding's
        // at the end: so the order of every sum is the same however the batch is cut.
        let table = Tensors::of(&GptConfig { tied: false, ..config.clone() });
        let grads = Params::zeros(Arc::new(table));
        let (acts, attention) = (Activations::default(), Attention::default());
        let matrices = Matrices::of(&cpu, &mut params, Precision::F32);
        Ok(Self { config, params, grads, acts, cpu, attention, matrices, seen: None })
    }

    /// The same model with another attention.
    pub fn with_attention(self, attention: Attention) -> Self {
        Self { attention, ..self }
    }

    /// The same model with the factors of its linear layers, forward and backward, rounded to
    /// `dtype`; what multiplies them in writing is [`keep_in`](Self::keep_in)'s affair.
    pub fn with_dtype(self, dtype: Dtype) -> Self {
        let factors = dtype.factors(self.cpu.isa());
        Self { cpu: self.cpu.with_factors(factors), ..self }
    }

    /// What it was built from.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// The parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The parameters, mutably. They are f32 from here on, rounded or not.
    pub fn params_mut(&mut self) -> &mut Params {
        self.keep_in(Precision::F32);
        &mut self.params
    }

    /// Rounds the matrices that the model multiplies by, and keeps them in fewer bits for writing,
    /// which is as fast as they can be read; keys and values then are in bf16. Rounded they stay: f32
    /// after that are the rounded ones. (Of parameters that are lent, a copy is rounded.)
    pub fn keep_in(&mut self, precision: Precision) {
        if precision != self.matrices.precision {
            self.params.own(&self.cpu);
            self.matrices = Matrices::of(&self.cpu, &mut self.params, precision);
        }
    }

    /// Bytes of weights that are read to write a token.
    pub fn weight_bytes_read(&self) -> usize {
        self.matrices.bytes_read(self.params.table())
    }

    /// What they are kept in.
    pub fn precision(&self) -> Precision {
        self.matrices.precision
    }

    /// The threads and the instruction set it runs on.
    pub fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// Number of parameters, all of them. nanoGPT prints the number without the position table:
    /// `num_params() - block_size * n_embd`.
    pub fn num_params(&self) -> usize {
        self.params.table().iter().map(|spec| spec.len()).sum()
    }

    /// Logits (B, T, V) and, given targets (B, T), the mean loss over those that are not -1 (NaN
    /// when all are). No dropout.
    ///
    /// # Errors
    /// `idx` or `targets` not B x T, T above block_size, an id or target outside the vocabulary.
    pub fn forward(
        &mut self,
        idx: &[u32],
        targets: Option<&[i32]>,
        dims @ (b, t): (usize, usize),
    ) -> Result<(&[f32], Option<f32>)> {
        self.check_batch(idx, targets, dims)?;
        self.run_trunk(idx, Dropout::NONE, Keep::All, dims);
        head::logits(self, 0..b * t);
        let loss = targets.map(|targets| {
            self.seen = Some(Seen { idx: idx.into(), targets: targets.into(), dims: (b, t) });
            let valid = targets.iter().filter(|&&target| target != -1).count();
            (head::loss_of_logits(self, targets, 0..b * t) / valid as f64) as f32
        });
        Ok((&self.acts.logits, loss))
    }

    /// Adds the gradients of the loss that the last [`forward`](Self::forward) with targets gave to
    /// [`grads`](Self::grads). Once for each forward: the logits are used up.
    ///
    /// # Panics
    /// Without such a forward.
    pub fn backward(&mut self) {
        let seen = self.seen.take().expect("a forward pass with targets before its backward");
        let valid = seen.targets.iter().filter(|&&target| target != -1).count();
        let scale = 1.0 / valid.max(1) as f32;
        head::loss_and_gradient(self, &seen.targets, scale);
        backward::trunk(self, &seen.idx, Dropout::NONE, seen.dims);
        self.fold_tied_grads();
    }

    /// Gradients, by [`Params::iter`]. After [`accumulate`](Self::accumulate), those of a tied
    /// unembedding are still apart, under `lm_head.weight`; see
    /// [`fold_tied_grads`](Self::fold_tied_grads).
    pub fn grads(&self) -> &Params {
        &self.grads
    }

    /// All gradients zero.
    pub fn zero_grad(&mut self) {
        self.grads.zero(&self.cpu);
    }

    /// Adds the unembedding's gradient to the embedding's, when they are one tensor.
    pub fn fold_tied_grads(&mut self) {
        if self.config.tied {
            let n = self.config.vocab_size * self.config.n_embd;
            let _time = self.cpu.timed(Op::new("tied gradients", &[], n, 4 * n));
            self.grads.fold_unembedding();
        }
    }

    /// Forward and backward over a part of a batch: adds `scale` times its gradient to the
    /// gradients, and returns the sum of its losses. Allocates nothing once it has seen the
    /// largest (B, T).
    ///
    /// # Errors
    /// As for [`forward`](Self::forward).
    pub fn accumulate(
        &mut self,
        idx: &[u32],
        targets: &[i32],
        scale: f32,
        drop: Dropout,
        dims: (usize, usize),
    ) -> Result<f64> {
        self.check_batch(idx, Some(targets), dims)?;
        self.run_trunk(idx, drop, Keep::All, dims);
        let loss = head::loss_and_gradient(self, targets, scale);
        backward::trunk(self, idx, drop, dims);
        Ok(loss)
    }

    /// The sum of the losses over a part of a batch, without dropout and without gradients.
    ///
    /// # Errors
    /// As for [`forward`](Self::forward).
    pub fn loss_sum(&mut self, idx: &[u32], targets: &[i32], dims: (usize, usize)) -> Result<f64> {
        self.check_batch(idx, Some(targets), dims)?;
        self.run_trunk(idx, Dropout::NONE, Keep::Last, dims);
        Ok(head::loss(self, targets))
    }

    /// The attention probabilities (B, H, T, T) of block `l` in the last forward pass.
    ///
    /// # Panics
    /// Unless the model was built [`with_attention`](Self::with_attention) a naive one.
    pub fn attention_probabilities(&self, l: usize) -> &[f32] {
        assert!(self.attention != Attention::Fused, "the fused attention keeps no probabilities");
        &self.acts.h[l].seen
    }

    fn run_trunk(&mut self, idx: &[u32], drop: Dropout, keep: Keep, dims: (usize, usize)) {
        // A backward that was due for what is now overwritten would be wrong.
        self.seen = None;
        forward::trunk(self, idx, drop, keep, dims);
    }

    pub(crate) fn split_for_optimizer(&mut self) -> (&mut Params, &Params, &Cpu) {
        self.keep_in(Precision::F32);
        (&mut self.params, &self.grads, &self.cpu)
    }

    /// Whether every id is in the vocabulary.
    pub(crate) fn check_ids(&self, idx: &[u32]) -> Result<()> {
        let v = self.config.vocab_size;
        match idx.iter().enumerate().find(|&(_, &id)| id as usize >= v) {
            Some((at, id)) => {
                Err(Error::data("idx", format!("token id {id} at offset {at} >= vocab_size {v}")))
            }
            None => Ok(()),
        }
    }

    /// Marks the activations as someone else's: the next backward needs a forward of its own.
    pub(crate) fn forget_forward(&mut self) {
        self.seen = None;
    }

    fn check_batch(
        &self,
        idx: &[u32],
        targets: Option<&[i32]>,
        (b, t): (usize, usize),
    ) -> Result<()> {
        let v = self.config.vocab_size;
        if t > self.config.block_size {
            let most = self.config.block_size;
            return Err(Error::data("idx", format!("{t} tokens, block_size is {most}")));
        }
        if b * t == 0 || idx.len() != b * t {
            return Err(Error::data("idx", format!("{} ids, expected {b} x {t} > 0", idx.len())));
        }
        self.check_ids(idx)?;
        let Some(targets) = targets else { return Ok(()) };
        if targets.len() != b * t {
            let found = targets.len();
            return Err(Error::data("targets", format!("{found} targets, expected {b} x {t}")));
        }
        let valid = |target: i32| target == -1 || (0..v as i64).contains(&(target as i64));
        match targets.iter().enumerate().find(|&(_, &target)| !valid(target)) {
            Some((at, target)) => Err(Error::data(
                "targets",
                format!("target {target} at offset {at} is neither -1 nor below vocab_size {v}"),
            )),
            None => Ok(()),
        }
    }
}
