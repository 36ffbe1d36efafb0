//! THE TABLE: every parameter's name, shape, first value, decay group and place, once.
//!
//! Parameters, gradients, moments, checkpoints and the parameter count are walks over it.
//! [`Tensors`] is generic over what sits in each slot: a [`Spec`] in the table itself, a slice in a
//! view. The numbers are in `params.rs`. Names are nanoGPT's; a weight is (out, in).

use crate::config::GptConfig;
use std::ops::Range;
use tinygpt_kernels::buffer::LINE;

/// What the table says of one parameter tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// nanoGPT's name: `transformer.h.0.attn.c_attn.weight`.
    pub name: String,
    /// One or two dimensions; a weight is (out, in).
    pub shape: Vec<usize>,
    /// How it starts.
    pub init: Init,
    /// Where it lies among all parameters, in floats. Starts on a 64-byte line.
    pub range: Range<usize>,
}

impl Spec {
    /// Weight decay acts on tensors of two or more dimensions only (nanoGPT's rule).
    pub fn decays(&self) -> bool {
        self.shape.len() >= 2
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Never true: no dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

/// How a tensor starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Independent draws from N(0, std).
    Normal(f32),
    /// A LayerNorm's gain.
    Ones,
    /// A bias.
    Zeros,
}

/// A LayerNorm: gain (C), bias (C) if the model has biases.
#[derive(Clone, Debug)]
pub struct Norm<T> {
    /// (C)
    pub weight: T,
    /// (C)
    pub bias: Option<T>,
}

/// A linear layer: weight (out, in), bias (out) if the model has biases.
#[derive(Clone, Debug)]
pub struct Linear<T> {
    /// (out, in)
    pub weight: T,
    /// (out)
    pub bias: Option<T>,
}

/// The attention of a block.
#[derive(Clone, Debug)]
pub struct Attn<T> {
    /// (3C, C): queries, keys, values, each split into H heads of D.
    pub c_attn: Linear<T>,
    /// (C, C)
    pub c_proj: Linear<T>,
}

/// The MLP of a block.
#[derive(Clone, Debug)]
pub struct Mlp<T> {
    /// (4C, C)
    pub c_fc: Linear<T>,
    /// (C, 4C)
    pub c_proj: Linear<T>,
}

/// One Transformer block.
#[derive(Clone, Debug)]
pub struct Block<T> {
    /// before the attention
    pub ln_1: Norm<T>,
    /// what moves information between positions
    pub attn: Attn<T>,
    /// before the MLP
    pub ln_2: Norm<T>,
    /// what computes at each position
    pub mlp: Mlp<T>,
}

/// The whole model, one `T` per parameter tensor.
#[derive(Clone, Debug)]
pub struct Tensors<T> {
    /// (V, C) token embedding
    pub wte: T,
    /// (block_size, C) position embedding
    pub wpe: T,
    /// L blocks
    pub h: Vec<Block<T>>,
    /// the last LayerNorm
    pub ln_f: Norm<T>,
    /// (V, C) unembedding, absent when it is `wte`
    pub lm_head: Option<T>,
}

impl Tensors<Spec> {
    /// The table for one configuration.
    pub fn of(config: &GptConfig) -> Self {
        let (c, std) = (config.n_embd, 0.02);
        // GPT-2: the two projections that add to the residual stream start smaller, so that its
        // variance does not grow with depth.
        let residual_std = std / (2.0 * config.n_layer as f32).sqrt();
        let mut row = Row { at: 0, bias: config.bias };
        Tensors {
            wte: row.tensor("transformer.wte.weight", &[config.vocab_size, c], Init::Normal(std)),
            wpe: row.tensor("transformer.wpe.weight", &[config.block_size, c], Init::Normal(std)),
            h: (0..config.n_layer)
                .map(|l| {
                    let name = |part| format!("transformer.h.{l}.{part}");
                    Block {
                        ln_1: row.norm(&name("ln_1"), c),
                        attn: Attn {
                            c_attn: row.linear(&name("attn.c_attn"), [3 * c, c], std),
                            c_proj: row.linear(&name("attn.c_proj"), [c, c], residual_std),
                        },
                        ln_2: row.norm(&name("ln_2"), c),
                        mlp: Mlp {
                            c_fc: row.linear(&name("mlp.c_fc"), [4 * c, c], std),
                            c_proj: row.linear(&name("mlp.c_proj"), [c, 4 * c], residual_std),
                        },
                    }
                })
                .collect(),
            ln_f: row.norm("transformer.ln_f", c),
            lm_head: (!config.tied)
                .then(|| row.tensor("lm_head.weight", &[config.vocab_size, c], Init::Normal(std))),
        }
    }
}

/// Writes the table row by row, handing out places.
struct Row {
    at: usize,
    bias: bool,
}

impl Row {
    fn tensor(&mut self, name: &str, shape: &[usize], init: Init) -> Spec {
        let range = self.at..self.at + shape.iter().product::<usize>();
        self.at = range.end.next_multiple_of(LINE);
        Spec { name: name.into(), shape: shape.into(), init, range }
    }

    fn norm(&mut self, name: &str, c: usize) -> Norm<Spec> {
        Norm {
            weight: self.tensor(&format!("{name}.weight"), &[c], Init::Ones),
            bias: self.bias.then(|| self.tensor(&format!("{name}.bias"), &[c], Init::Zeros)),
        }
    }

    fn linear(&mut self, name: &str, shape: [usize; 2], std: f32) -> Linear<Spec> {
        Linear {
            weight: self.tensor(&format!("{name}.weight"), &shape, Init::Normal(std)),
            bias: self.bias.then(|| self.tensor(&format!("{name}.bias"), &shape[..1], Init::Zeros)),
        }
    }
}

impl<T> Norm<T> {
    pub(super) fn map<'a, U>(&'a self, f: &mut impl FnMut(&'a T) -> U) -> Norm<U> {
        Norm { weight: f(&self.weight), bias: self.bias.as_ref().map(f) }
    }
}

impl<T> Linear<T> {
    pub(super) fn map<'a, U>(&'a self, f: &mut impl FnMut(&'a T) -> U) -> Linear<U> {
        Linear { weight: f(&self.weight), bias: self.bias.as_ref().map(f) }
    }
}

impl<T> Block<T> {
    pub(super) fn map<'a, U>(&'a self, f: &mut impl FnMut(&'a T) -> U) -> Block<U> {
        Block {
            ln_1: self.ln_1.map(f),
            attn: Attn { c_attn: self.attn.c_attn.map(f), c_proj: self.attn.c_proj.map(f) },
            ln_2: self.ln_2.map(f),
            mlp: Mlp { c_fc: self.mlp.c_fc.map(f), c_proj: self.mlp.c_proj.map(f) },
        }
    }
}

impl<T> Tensors<T> {
    /// The same model with `f` of each slot, visited in the table's order.
    pub fn map<'a, U>(&'a self, mut f: impl FnMut(&'a T) -> U) -> Tensors<U> {
        let f = &mut f;
        Tensors {
            wte: f(&self.wte),
            wpe: f(&self.wpe),
            h: self.h.iter().map(|block| block.map(f)).collect(),
            ln_f: self.ln_f.map(f),
            lm_head: self.lm_head.as_ref().map(f),
        }
    }

    /// Every slot, in the table's order.
    pub fn iter(&self) -> std::vec::IntoIter<&T> {
        let mut slots = Vec::new();
        self.map(|slot| slots.push(slot));
        slots.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn char_config() -> GptConfig {
        GptConfig {
            vocab_size: 65,
            block_size: 256,
            n_layer: 6,
            n_head: 6,
            n_embd: 384,
            bias: false,
            ..Default::default()
        }
    }

    #[test]
    fn the_char_model_has_nanogpts_counts_and_decay_groups() {
        let table = Tensors::of(&char_config());
        let group = |decays| {
            let rows: Vec<_> = table.iter().filter(|spec| spec.decays() == decays).collect();
            (rows.len(), rows.iter().map(|spec| spec.len()).sum::<usize>())
        };
        assert_eq!(group(true), (26, 10_740_096));
        assert_eq!(group(false), (13, 4_992));
        assert_eq!(table.wpe.len(), 98_304);
    }

    #[test]
    fn tensors_start_on_lines_in_order_and_do_not_overlap() {
        let config = GptConfig { n_embd: 39, n_head: 3, vocab_size: 67, ..char_config() };
        for tied in [true, false] {
            let table = Tensors::of(&GptConfig { tied, bias: true, ..config.clone() });
            let mut end = 0;
            for spec in table.iter() {
                assert!(spec.range.start >= end && spec.range.start.is_multiple_of(LINE));
                assert_eq!(spec.len(), spec.shape.iter().product::<usize>());
                end = spec.range.end;
            }
            assert_eq!(table.lm_head.is_some(), !tied);
        }
    }
}
