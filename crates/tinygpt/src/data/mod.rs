//! From texts to batches: texts -> tokens on disk or in memory -> train and validation split ->
//! seeded windows.
//!
//! - **Texts are UTF-8.** One leading byte order mark is dropped, `\r\n` is kept unless asked
//!   otherwise, a byte that is not UTF-8 is an error with its place, unless tokens are bytes.
//!   Several files are joined in order, with a line break between two when the former does not end
//!   in one; a tokenizer that has `<|endoftext|>` puts it there too, as GPT-2's texts are joined.
//!   What a user should know is in [`Dataset::notices`]; nothing is printed.
//! - **The split is nanoGPT's**: the first 90 % of the characters train, whatever the tokens.
//! - **Ids are checked once**, when tokens are made or a file is opened, and never wrapped.
//! - **Memory does not grow with the text** when a folder for the token files is given: the text
//!   is read twice in pieces (first for the vocabulary, then for the tokens) and windows are read
//!   from the file by position, not mapped, so that the resident memory stays small as well.
//! - **Windows are a function** of (seed, stream, step, index): nothing to save, nothing to resume.
//!
//! Windows may cross from one file or document into the next, as in nanoGPT.

mod reader;
mod corpus;
mod split;
mod token_file;
mod tokens;
mod token_writer;
mod prepared;
mod dataset;
mod count;
mod adopt;
mod room;
mod sampler;

#[cfg(test)]
mod tests;

pub use corpus::Input;
pub use count::Count;
pub use dataset::{DataOptions, Dataset};
pub use reader::Newline;
pub(crate) use room::Room;
pub use sampler::{WindowStream, fill, walk, window_start};
pub use split::Split;
pub use tokens::Tokens;

/// What the built-in text is called.
pub const TINY_SHAKESPEARE: &str = "Tiny Shakespeare";

/// Random stream (see `model::INIT_STREAM`) for the windows of training batches.
const TRAIN_STREAM: u32 = 2;
/// Random stream for evaluation batches of the training split.
const EVAL_TRAIN_STREAM: u32 = 3;
/// Random stream for evaluation batches of the validation split.
const EVAL_VAL_STREAM: u32 = 4;
/// Random stream for the blocks of a shuffled split.
const SPLIT_STREAM: u32 = 5;
