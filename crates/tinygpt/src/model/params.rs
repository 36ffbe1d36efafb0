//! Numbers laid out by the table: parameters, their gradients, an optimizer's moments.
//!
//! One arena, a tensor after another as in the table, each at the start of a 64-byte line. Or, for a
//! call from a framework that owns the numbers, each tensor wherever that keeps it.

use super::tensors::{Block, Init, Norm, Spec, Tensors};
use crate::config::GptConfig;
use std::ops::Range;
use std::sync::Arc;
use tinygpt_kernels::{Buffer, Cpu, Lent, bulk, rng::Stream};

/// One number for every element of every tensor of a table.
#[derive(Debug)]
pub struct Params {
    table: Arc<Tensors<Spec>>,
    floats: Floats,
}

/// Where the numbers are.
#[derive(Debug)]
enum Floats {
    /// In one arena.
    Own(Buffer),
    /// Each tensor by itself, after the place it would have in the arena, ascending.
    Lent(Vec<(usize, Lent)>),
}

impl Params {
    /// All zero.
    pub fn zeros(table: Arc<Tensors<Spec>>) -> Self {
        let len = table.iter().map(|spec| spec.range.end).max().unwrap_or(0);
        Self { table, floats: Floats::Own(Buffer::zeros(len)) }
    }

    /// Tensors that somebody else keeps, in the table's order.
    ///
    /// # Panics
    /// Unless there is one of the right length for each row of the table.
    pub fn lent(table: Arc<Tensors<Spec>>, tensors: Vec<Lent>) -> Self {
        assert_eq!(tensors.len(), table.iter().len(), "a tensor for each row");
        for (spec, tensor) in table.iter().zip(&tensors) {
            assert_eq!(tensor.len(), spec.len(), "floats of {}", spec.name);
        }
        let starts = table.iter().map(|spec| spec.range.start);
        let floats = Floats::Lent(starts.zip(tensors).collect());
        Self { table, floats }
    }

    /// The first values of a model, a function of `seed` and each tensor's place in the table.
    pub fn init(table: Arc<Tensors<Spec>>, seed: u64) -> Self {
        let mut params = Self::zeros(table.clone());
        for (i, spec) in table.iter().enumerate() {
            let tensor = params.get_mut(spec);
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
    ///
    /// # Panics
    /// When they are [`lent`](Self::lent): those are not in one place.
    pub fn data(&self) -> &[f32] {
        match &self.floats {
            Floats::Own(arena) => arena,
            Floats::Lent(_) => panic!("lent tensors are not in one place"),
        }
    }

    /// All numbers, mutably.
    ///
    /// # Panics
    /// As [`data`](Self::data).
    pub fn data_mut(&mut self) -> &mut [f32] {
        match &mut self.floats {
            Floats::Own(arena) => arena,
            Floats::Lent(_) => panic!("lent tensors are not in one place"),
        }
    }

    /// Every number 0.
    pub(super) fn zero(&mut self, cpu: &Cpu) {
        match &mut self.floats {
            Floats::Own(arena) => bulk::zero(cpu, arena),
            Floats::Lent(all) => all.iter_mut().for_each(|(_, one)| bulk::zero(cpu, one)),
        }
    }

    /// Takes a copy of numbers that somebody else keeps, to change it.
    pub(super) fn own(&mut self, cpu: &Cpu) {
        if let Floats::Lent(_) = self.floats {
            let mut copy = Self::zeros(self.table.clone());
            for spec in self.table.iter() {
                bulk::copy(cpu, copy.get_mut(spec), self.get(spec));
            }
            *self = copy;
        }
    }

    /// A hash of every number (FNV-1a over the bits of each): two models that differ have, but for
    /// chance, different ones.
    pub fn fingerprint(&self) -> u64 {
        let words = self.iter().flat_map(|(_, values)| values).map(|x| u64::from(x.to_bits()));
        words.fold(0xCBF2_9CE4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0100_0000_01B3))
    }

    /// One tensor.
    pub fn get(&self, spec: &Spec) -> &[f32] {
        self.at(&spec.range)
    }

    /// One tensor, mutably.
    pub fn get_mut(&mut self, spec: &Spec) -> &mut [f32] {
        match &mut self.floats {
            Floats::Own(arena) => &mut arena[spec.range.clone()],
            Floats::Lent(tensors) => {
                let i = place(tensors, &spec.range);
                &mut tensors[i].1
            }
        }
    }

    /// The tensor whose row of the table has this range.
    pub(super) fn at(&self, range: &Range<usize>) -> &[f32] {
        match &self.floats {
            Floats::Own(arena) => &arena[range.clone()],
            Floats::Lent(tensors) => &tensors[place(tensors, range)].1,
        }
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
        let mut rest = Cut::of(&mut self.floats);
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
        let mut rest = Cut::of(&mut self.floats);
        (rest.take(&self.table.wte.range), rest.take(&self.table.wpe.range))
    }

    /// The last LayerNorm.
    pub fn ln_f(&self) -> Norm<&[f32]> {
        self.table.ln_f.map(&mut |spec| self.get(spec))
    }

    /// The last LayerNorm, mutably.
    pub fn ln_f_mut(&mut self) -> Norm<&mut [f32]> {
        let mut rest = Cut::of(&mut self.floats);
        self.table.ln_f.map(&mut |spec| rest.take(&spec.range))
    }

    /// The unembedding (V, C): `lm_head`, or `wte` when tied.
    pub fn unembedding(&self) -> &[f32] {
        self.get(self.table.lm_head.as_ref().unwrap_or(&self.table.wte))
    }

    /// The unembedding, mutably: its own place in a table that has one.
    pub(super) fn unembedding_mut(&mut self) -> &mut [f32] {
        let table = self.table.clone();
        self.get_mut(table.lm_head.as_ref().unwrap_or(&table.wte))
    }

    /// Moves the unembedding's numbers into the token embedding's, by adding, where they are apart.
    pub(super) fn fold_unembedding(&mut self) {
        let Some(lm_head) = &self.table.lm_head else { return };
        let mut rest = Cut::of(&mut self.floats);
        let (wte, lm_head) = (rest.take(&self.table.wte.range), rest.take(&lm_head.range));
        for (sum, x) in wte.iter_mut().zip(lm_head) {
            *sum += std::mem::take(x);
        }
    }
}

impl Clone for Params {
    /// The numbers in an arena of their own.
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.table.clone());
        match &self.floats {
            Floats::Own(arena) => copy.floats = Floats::Own(arena.clone()),
            Floats::Lent(_) => {
                for spec in self.table.iter() {
                    copy.get_mut(spec).copy_from_slice(self.get(spec));
                }
            }
        }
        copy
    }
}

/// Which of the lent tensors has this range of the table.
fn place(tensors: &[(usize, Lent)], range: &Range<usize>) -> usize {
    let found = tensors.binary_search_by_key(&range.start, |&(start, _)| start);
    found.expect("a row of this table")
}

/// Disjoint mutable slices, taken in ascending order.
enum Cut<'a> {
    /// Off the front of an arena.
    Own {
        floats: &'a mut [f32],
        at: usize,
    },
    Lent(std::slice::IterMut<'a, (usize, Lent)>),
}

impl<'a> Cut<'a> {
    fn of(floats: &'a mut Floats) -> Self {
        match floats {
            Floats::Own(arena) => Cut::Own { floats: arena, at: 0 },
            Floats::Lent(tensors) => Cut::Lent(tensors.iter_mut()),
        }
    }

    fn take(&mut self, range: &Range<usize>) -> &'a mut [f32] {
        match self {
            Cut::Own { floats, at } => {
                let (_, from) = std::mem::take(floats).split_at_mut(range.start - *at);
                let (tensor, rest) = from.split_at_mut(range.len());
                (*floats, *at) = (rest, range.end);
                tensor
            }
            Cut::Lent(tensors) => {
                let found = tensors.find(|(start, _)| *start == range.start);
                &mut found.expect("a row of this table, after the last one").1
            }
        }
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
