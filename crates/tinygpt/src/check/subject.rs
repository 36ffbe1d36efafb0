//! What the checks look at: a trained model, or a fresh one, cut down to what takes seconds.

use super::{Batch, CHECK_STREAM};
use crate::config::GptConfig;
use crate::data::{Tokens, fill};
use crate::error::Result;
use crate::model::{Gpt, Params, Spec, Tensors};
use tinygpt_kernels::Cpu;
use tinygpt_kernels::rng::Stream;

/// Every kind of position is among the first 64; more would only take longer.
const MOST_POSITIONS: usize = 64;
/// A fresh model above this many parameters (48 MB) is replaced by a smaller one of its kind.
const MOST_PARAMETERS: usize = 12_000_000;
/// The replacement's sizes: at most so many blocks, channels and tokens.
const SMALLER: (usize, usize, usize) = (2, 512, 1024);
/// nanoGPT's.
const SEED: u64 = 1337;
/// Windows in a batch.
const WINDOWS: usize = 4;

/// A model to check.
pub struct Subject {
    /// What the user asked about, in full size.
    pub(super) config: GptConfig,
    /// What is measured.
    pub(super) gpt: Gpt,
}

impl Subject {
    /// A new model of that kind.
    ///
    /// # Errors
    /// A configuration that cannot work.
    pub fn fresh(config: &GptConfig, cpu: Cpu) -> Result<Self> {
        config.check()?;
        let gpt = Gpt::new_on(smaller(config), SEED, cpu)?;
        Ok(Self { config: config.clone(), gpt })
    }

    /// A trained model, with all of its weights but for those of late positions.
    ///
    /// # Errors
    /// A configuration that cannot work.
    pub fn trained(config: GptConfig, params: Params, cpu: Cpu) -> Result<Self> {
        let short = first_positions(&config);
        let kept = params.first_positions(&short);
        let gpt = Gpt::with_params(short, kept, cpu)?;
        Ok(Self { config, gpt })
    }

    /// Bytes that a [`fresh`](Self::fresh) one and its checks take, about.
    pub fn fresh_bytes(config: &GptConfig) -> u64 {
        bytes(&smaller(config))
    }

    /// Bytes that a [`trained`](Self::trained) one and its checks take beside the checkpoint,
    /// about.
    pub fn trained_bytes(config: &GptConfig) -> u64 {
        bytes(&first_positions(config))
    }

    /// The model that was asked about.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// The model that is measured: the same, unless that would take long.
    pub fn measured(&self) -> &GptConfig {
        self.gpt.config()
    }

    /// The threads and the instruction set it is measured on.
    pub fn cpu(&self) -> &Cpu {
        self.gpt.cpu()
    }

    pub(super) fn table(&self) -> Tensors<Spec> {
        Tensors::of(&self.config)
    }

    /// An untrained model, whatever the subject has learnt.
    pub(super) fn untrained(&self) -> Result<Gpt> {
        let cpu = Cpu::new(self.cpu().threads(), self.cpu().isa());
        Gpt::new_on(smaller(&self.config), SEED, cpu)
    }

    /// Random tokens that fill the context.
    pub(super) fn sequence(&self) -> Vec<u32> {
        random_tokens(self.gpt.config().block_size, self.gpt.config().vocab_size)
    }

    /// Random windows, shifted into targets by the code that training uses.
    pub(super) fn batch(&self) -> Result<Batch> {
        let (t, v) = (self.gpt.config().block_size, smaller(&self.config).vocab_size);
        let tokens = Tokens::from_ids(&random_tokens(WINDOWS * t + 1, v), v)?;
        let (mut idx, mut targets) = (vec![0; WINDOWS * t], vec![0; WINDOWS * t]);
        fill(&tokens, (0..WINDOWS).map(|i| i * t), &mut idx, &mut targets)?;
        Ok(Batch { idx, targets, dims: (WINDOWS, t) })
    }
}

/// A model, its gradients, and two copies of both for checks that compare; the logits of a batch
/// and their gradients.
fn bytes(measured: &GptConfig) -> u64 {
    let parameters: usize = Tensors::of(measured).iter().map(Spec::len).sum();
    let logits = WINDOWS * measured.block_size * measured.vocab_size;
    (size_of::<f32>() * (6 * parameters + 2 * logits)) as u64
}

fn random_tokens(n: usize, v: usize) -> Vec<u32> {
    let mut stream = Stream::new(SEED, CHECK_STREAM, 0);
    (0..n).map(|_| stream.below(v as u64) as u32).collect()
}

fn first_positions(config: &GptConfig) -> GptConfig {
    GptConfig { block_size: config.block_size.min(MOST_POSITIONS), ..config.clone() }
}

/// A model of the same kind that fits in little memory: fewer blocks, heads and tokens if need be.
fn smaller(config: &GptConfig) -> GptConfig {
    let short = first_positions(config);
    let parameters: usize = Tensors::of(&short).iter().map(Spec::len).sum();
    if parameters <= MOST_PARAMETERS {
        return short;
    }
    let (blocks, width, tokens) = SMALLER;
    let head_size = config.head_size().min(width);
    let n_head = config.n_head.min(width / head_size);
    GptConfig {
        vocab_size: config.vocab_size.min(tokens),
        n_layer: config.n_layer.min(blocks),
        n_head,
        n_embd: n_head * head_size,
        ..short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tinygpt_kernels::Isa;

    #[test]
    fn a_large_model_is_measured_on_a_small_one_of_its_kind() {
        let xl = GptConfig { n_layer: 48, n_head: 25, n_embd: 1600, ..GptConfig::default() };
        let subject = Subject::fresh(&xl, Cpu::new(1, Isa::best())).unwrap();
        assert_eq!(subject.measured().head_size(), xl.head_size());
        let size = subject.gpt.num_params();
        assert!(size < MOST_PARAMETERS, "{size}");
        assert_eq!(subject.config, xl);
    }

    #[test]
    fn a_trained_model_keeps_its_weights_and_its_first_positions() {
        let config = GptConfig {
            vocab_size: 7,
            block_size: 100,
            n_layer: 1,
            n_head: 1,
            n_embd: 3,
            ..GptConfig::default()
        };
        let params = Params::init(Arc::new(Tensors::of(&config)), 5);
        let whole = params.clone();
        let subject = Subject::trained(config, params, Cpu::new(1, Isa::best())).unwrap();
        let kept = subject.gpt.params();
        assert_eq!(kept.wpe(), &whole.wpe()[..64 * 3]);
        assert_eq!(kept.block(0).mlp.c_proj.weight, whole.block(0).mlp.c_proj.weight);
    }
}
