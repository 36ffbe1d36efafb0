//! Numbers laid out by the table: parameters, their gradients, an optimizer's moments.
//!
//! One arena, a tensor after another as in the table, each at the start of a 64-byte line.

use super::tensors::{Block, Init, Norm, Spec, Tensors};
use crate::config::GptConfig;
use std::ops::Range;
use std::sync::Arc;
use tinygpt_kernels::{Buffer, rng::Stream};

/// One number for every element of every tensor of a table.
#[derive(Clone, Debug)]
pub struct Params {
    table: Arc<Tensors<Spec>>,
    data: Buffer,
}

impl Params {
    /// All zero.
    pub fn zeros(table: Arc<Tensors<Spec>>) -> Self {
        let len = table.iter().map(|spec| spec.range.end).max().unwrap_or(0);
        Self { table, data: Buffer::zeros(len) }
    }

    /// The first values of a model, a function of `seed` and each tensor's place in the table.
    pub fn init(table: Arc<Tensors<Spec>>, seed: u64) -> Self {
        let mut params = Self::zeros(table.clone());
        for (i, spec) in table.iter().enumerate() {
            let tensor = &mut params.data[spec.range.clone()];
            match spec.init {
                Init::Zeros => {}
                Init::Ones => tensor.fill(1.0),
                Init::Normal(std) => {
                    let mut stream = Stream::new(seed, super::INIT_STREAM, i as u32);
                    tensor.iter_mut().for_each(|x| *x = stream.normal() as f32 * std);
                }
            }
        }
        params
    }

    /// The same for a model of fewer positions, which keeps the first of them: every tensor is as
    /// long as it was, or as the beginning of it that `config` has room for.
    pub fn first_positions(&self, config: &GptConfig) -> Self {
        let mut kept = Self::zeros(Arc::new(Tensors::of(config)));
        for (spec, (_, values)) in kept.table.clone().iter().zip(self.iter()) {
            kept.get_mut(spec).copy_from_slice(&values[..spec.len()]);
        }
        kept
    }

    /// The table these numbers are laid out by.
    pub fn table(&self) -> &Arc<Tensors<Spec>> {
        &self.table
    }

    /// All numbers, with zeros in the gaps that keep tensors aligned.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// All numbers, mutably.
    pub fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// A hash of every number (FNV-1a over the bits of each): two models that differ have, but for
    /// chance, different ones.
    pub fn fingerprint(&self) -> u64 {
        let words = self.iter().flat_map(|(_, values)| values).map(|x| u64::from(x.to_bits()));
        words.fold(0xCBF2_9CE4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0100_0000_01B3))
    }

    /// One tensor.
    pub fn get(&self, spec: &Spec) -> &[f32] {
        &self.data[spec.range.clone()]
    }

    /// One tensor, mutably.
    pub fn get_mut(&mut self, spec: &Spec) -> &mut [f32] {
        &mut self.data[spec.range.clone()]
    }

    /// Every tensor with its row of the table, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Spec, &[f32])> {
        self.table.iter().map(|spec| (spec, self.get(spec)))
    }

    /// The tensors of block `l`.
    pub fn block(&self, l: usize) -> Block<&[f32]> {
        self.table.h[l].map(&mut |spec| self.get(spec))
    }

    /// The tensors of block `l`, mutably.
    pub fn block_mut(&mut self, l: usize) -> Block<&mut [f32]> {
        let mut rest = Cut { floats: &mut self.data, at: 0 };
        self.table.h[l].map(&mut |spec| rest.take(&spec.range))
    }

    /// Token embedding (V, C).
    pub fn wte(&self) -> &[f32] {
        self.get(&self.table.wte)
    }

    /// Position embedding (block_size, C).
    pub fn wpe(&self) -> &[f32] {
        self.get(&self.table.wpe)
    }

    /// Token and position embedding: (V, C), (block_size, C).
    pub fn embeddings_mut(&mut self) -> (&mut [f32], &mut [f32]) {
        let mut rest = Cut { floats: &mut self.data, at: 0 };
        (rest.take(&self.table.wte.range), rest.take(&self.table.wpe.range))
    }

    /// The last LayerNorm.
    pub fn ln_f(&self) -> Norm<&[f32]> {
        self.table.ln_f.map(&mut |spec| self.get(spec))
    }

    /// The last LayerNorm, mutably.
    pub fn ln_f_mut(&mut self) -> Norm<&mut [f32]> {
        let mut rest = Cut { floats: &mut self.data, at: 0 };
        self.table.ln_f.map(&mut |spec| rest.take(&spec.range))
    }

    /// The unembedding (V, C): `lm_head`, or `wte` when tied.
    pub fn unembedding(&self) -> &[f32] {
        self.get(self.table.lm_head.as_ref().unwrap_or(&self.table.wte))
    }

    /// The unembedding's own place, in a table that has one.
    pub(super) fn unembedding_mut(&mut self) -> &mut [f32] {
        let spec = self.table.lm_head.as_ref().expect("gradients keep the unembedding apart");
        &mut self.data[spec.range.clone()]
    }

    /// Moves the unembedding's numbers into the token embedding's, by adding.
    pub(super) fn fold_unembedding(&mut self) {
        let spec = self.table.lm_head.as_ref().expect("gradients keep the unembedding apart");
        let (wte, lm_head) = self.data.split_at_mut(spec.range.start);
        for (sum, x) in wte[self.table.wte.range.clone()].iter_mut().zip(lm_head) {
            *sum += std::mem::take(x);
        }
    }
}

/// Disjoint mutable slices, cut off the front of an arena in ascending order.
struct Cut<'a> {
    floats: &'a mut [f32],
    at: usize,
}

impl<'a> Cut<'a> {
    fn take(&mut self, range: &Range<usize>) -> &'a mut [f32] {
        let (_, from) = std::mem::take(&mut self.floats).split_at_mut(range.start - self.at);
        let (tensor, rest) = from.split_at_mut(range.len());
        (self.floats, self.at) = (rest, range.end);
        tensor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialisation_has_the_standard_deviations_of_the_table() {
        // Large enough for a sample's deviation to be within a percent of the table's.
        let config =
            GptConfig { vocab_size: 65, block_size: 256, n_embd: 384, ..Default::default() };
        let params = Params::init(Arc::new(Tensors::of(&config)), 1);
        for (spec, values) in params.iter() {
            let n = values.len() as f64;
            let mean = values.iter().map(|&x| x as f64).sum::<f64>() / n;
            let std = (values.iter().map(|&x| (x as f64 - mean).powi(2)).sum::<f64>() / n).sqrt();
            let (mean0, std0) = match spec.init {
                Init::Zeros => (0.0, 0.0),
                Init::Ones => (1.0, 0.0),
                Init::Normal(std) => (0.0, std as f64),
            };
            assert!(
                (mean - mean0).abs() < 1e-3 && (std - std0).abs() <= 0.01 * std0,
                "{}",
                spec.name
            );
            if spec.name.ends_with("c_proj.weight") {
                assert!((std - 0.02 / 24f64.sqrt()).abs() < 1e-4, "{}: {std}", spec.name);
            }
        }
    }

    #[test]
    fn mutable_views_are_the_same_places_as_shared_ones() {
        let config = GptConfig { tied: false, ..GptConfig::tiny() };
        let mut params = Params::init(Arc::new(Tensors::of(&config)), 1);
        let shared = params.clone();
        assert_eq!(params.block_mut(1).mlp.c_fc.weight, shared.block(1).mlp.c_fc.weight);
        assert_eq!(params.embeddings_mut().1, shared.get(&shared.table.wpe));
        assert_eq!(params.ln_f_mut().bias.unwrap(), shared.ln_f().bias.unwrap());
    }
}
