//! nanoGPT's folders of tokens (`data.rs`), and its `ckpt.pt`: what PyTorch's `torch.save` makes of a model, its optimizer and a few
//! numbers.
//!
//! ```text
//!   archive/data.pkl   a pickle (`../pickle/`): a dict of
//!     model              state_dict: names of the table, lm_head.weight too, (out, in)
//!     model_args         n_layer n_head n_embd block_size bias vocab_size dropout
//!     optimizer          state: number -> step, exp_avg, exp_avg_sq; param_groups: which numbers
//!     iter_num best_val_loss config
//!   archive/data/0 ..  the bytes of each storage, not compressed
//! ```
//!
//! The optimizer numbers its parameters: first those that decay, then the others, each in the order
//! of the table. An unembedding that is the embedding has no number.

mod archive;
mod meta;
mod data;
mod read;
mod write;

pub(super) use archive::check_sums;
pub use data::{Prepared, adopt, prepare, tokenizer as prepared_tokenizer};
#[cfg(test)]
pub(super) use meta::read as read_meta;
pub(super) use read::{goes_on, open};
pub(super) use write::{write, write_folder};

use crate::model::Tensors;
use crate::model::tensors::Spec;
use crate::tokenizer::TOKENIZER_FILE as TOKENIZER;

pub(super) const CHECKPOINT: &str = "ckpt.pt";
const META: &str = "meta.pkl";
/// nanoGPT does not look at it; the tokens of a model whose `meta.pkl` could not say them.
/// All that an export's folder holds, nanoGPT's `out_dir`.
pub(super) const FILES: [&str; 3] = [CHECKPOINT, META, TOKENIZER];
/// What nanoGPT calls the best loss where there is none yet.
const NO_LOSS: f64 = 1e9;

/// The table's rows as PyTorch's optimizer numbers them.
fn optimizers_order(table: &Tensors<Spec>) -> Vec<&Spec> {
    let group = |decays| table.iter().filter(move |spec| spec.decays() == decays);
    group(true).chain(group(false)).collect()
}
