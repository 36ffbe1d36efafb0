//! GGUF, llama.cpp's format: one file with a model, its tokenizer and what they are.
//!
//! ```text
//!   "GGUF", version u32, tensors u64, keys u64
//!   keys      name, kind u32, value                          name: length u64, UTF-8
//!   tensors   name, dimensions u32, each u64 (the innermost first), kind u32, offset u64
//!   data      from the next multiple of general.alignment (32): each tensor at its offset
//! ```
//!
//! Matrices are (out, in), as ours. Its GPT-2 has the tanh GELU and every bias.

mod header;
mod read;
mod write;

pub(super) use read::open;
pub(super) use write::write;

/// GGUF's names of the table's tensors, and of the parts of a block after `blk.N.`.
const WHOLE: [(&str, &str); 4] = [
    ("transformer.wte", "token_embd"),
    ("transformer.wpe", "position_embd"),
    ("transformer.ln_f", "output_norm"),
    ("lm_head", "output"),
];
const OF_BLOCK: [(&str, &str); 6] = [
    ("ln_1", "attn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("ln_2", "ffn_norm"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
];

/// The table's name for GGUF's; what is none of its names stays as it is.
fn our_name(name: &str) -> String {
    let Some((stem, end)) = name.rsplit_once('.') else { return name.into() };
    if let Some((block, part)) = stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.'))
        && let Some((ours, _)) = OF_BLOCK.iter().find(|(_, theirs)| *theirs == part)
    {
        return format!("transformer.h.{block}.{ours}.{end}");
    }
    match WHOLE.iter().find(|(_, theirs)| *theirs == stem) {
        Some((ours, _)) => format!("{ours}.{end}"),
        None => name.into(),
    }
}

/// GGUF's name of one of the table's tensors.
fn their_name(name: &str) -> String {
    let (stem, end) = name.rsplit_once('.').expect("every name of the table has a dot");
    if let Some((block, part)) =
        stem.strip_prefix("transformer.h.").and_then(|rest| rest.split_once('.'))
    {
        let (_, theirs) =
            OF_BLOCK.iter().find(|(ours, _)| *ours == part).expect("every part has a name");
        return format!("blk.{block}.{theirs}.{end}");
    }
    let (_, theirs) =
        WHOLE.iter().find(|(ours, _)| *ours == stem).expect("every tensor has a name");
    format!("{theirs}.{end}")
}

/// The numbers of GGUF's kinds of values.
mod kind {
    pub const U8: u32 = 0;
    pub const I8: u32 = 1;
    pub const U16: u32 = 2;
    pub const I16: u32 = 3;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const TEXT: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
    pub const I64: u32 = 11;
    pub const F64: u32 = 12;
}

/// The key of the tokens' kinds, the one list of numbers that is looked at.
const TOKEN_TYPES: &str = "tokenizer.ggml.token_type";

/// Kinds of tokens.
mod token {
    pub const NORMAL: u32 = 1;
    pub const CONTROL: u32 = 3;
    pub const UNUSED: u32 = 5;
}
