//! Writes a model.

use super::{TOKEN_TYPES, kind, their_name, token};
use crate::config::GptConfig;
use crate::formats::export::Row;
use crate::formats::{Export, Kept};
use crate::tokenizer::{ALPHABET, END_OF_TEXT, Tokenizer};
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// A multiple of this is where the data and every tensor begin.
const ALIGNMENT: usize = 32;

/// Writes the model.
pub(in crate::formats) fn write(export: &Export, file: &mut File) -> io::Result<()> {
    let rows = export.rows(true);
    // llama.cpp adds positions and vectors in f32 only.
    let kept = |row: &Row| match row.shape.len() == 2 && row.name != "transformer.wpe.weight" {
        true => export.kept,
        false => Kept::F32,
    };
    let mut header = Bytes::default();
    header.0.extend(b"GGUF");
    header.u32(3);
    header.u64(rows.len() as u64);
    let mut keys = Bytes::default();
    let count = write_keys(&mut keys, export);
    header.u64(count);
    header.0.extend(keys.0);
    let mut at = 0;
    for row in &rows {
        header.text(&their_name(&row.name));
        header.u32(row.shape.len() as u32);
        row.shape.iter().rev().for_each(|&dim| header.u64(dim as u64));
        header.u32(match kept(row) {
            Kept::F32 => 0,
            Kept::F16 => 1,
            Kept::Q8 => 8,
            Kept::Bf16 => 30,
        });
        header.u64(at as u64);
        at = (at + kept(row).bytes(row.values.len())).next_multiple_of(ALIGNMENT);
    }
    header.0.resize(header.0.len().next_multiple_of(ALIGNMENT), 0);
    file.write_all(&header.0)?;
    let mut file = BufWriter::new(file);
    for row in &rows {
        kept(row).write(&mut file, &row.values)?;
        let bytes = kept(row).bytes(row.values.len());
        file.write_all(&[0; ALIGNMENT][..bytes.next_multiple_of(ALIGNMENT) - bytes])?;
    }
    file.flush()
}

/// Writes every key, and returns how many.
fn write_keys(to: &mut Bytes, export: &Export) -> u64 {
    let GptConfig { block_size, n_layer, n_head, n_embd, vocab_size, .. } = *export.config;
    let mut n = 0;
    let mut key = |name: &str, kind: u32, value: &dyn Fn(&mut Bytes)| {
        to.text(name);
        to.u32(kind);
        value(to);
        n += 1;
    };
    key("general.architecture", kind::TEXT, &|to| to.text("gpt2"));
    key("general.name", kind::TEXT, &|to| to.text(export.name));
    let file_type = match export.kept {
        Kept::F32 => 0,
        Kept::F16 => 1,
        Kept::Q8 => 7,
        Kept::Bf16 => 32,
    };
    for (name, value) in [
        ("general.file_type", file_type),
        ("general.quantization_version", 2),
        ("gpt2.block_count", n_layer),
        ("gpt2.context_length", block_size),
        ("gpt2.embedding_length", n_embd),
        ("gpt2.feed_forward_length", 4 * n_embd),
        ("gpt2.attention.head_count", n_head),
        ("gpt2.vocab_size", vocab_size),
    ] {
        key(name, kind::U32, &|to| to.u32(value as u32));
    }
    let epsilon = |to: &mut Bytes| to.0.extend(1e-5f32.to_le_bytes());
    key("gpt2.attention.layer_norm_epsilon", kind::F32, &epsilon);
    let (tokens, merges, special): (Vec<String>, _, &[(String, u32)]) = match export.tokenizer {
        Some(Tokenizer::Byte) => (ALPHABET.iter().map(char::to_string).collect(), vec![], &[]),
        Some(Tokenizer::Bpe(bpe)) => {
            let merges = bpe.merges().iter().map(|(a, b)| format!("{a} {b}")).collect();
            (bpe.tokens().to_vec(), merges, bpe.special())
        }
        _ => return n,
    };
    let mut kinds = vec![token::NORMAL; tokens.len()];
    special.iter().for_each(|(_, id)| kinds[*id as usize] = token::CONTROL);
    // llama.cpp wants a token for every row of the embedding.
    let padding = (tokens.len()..vocab_size).map(|id| format!("[PAD{id}]"));
    let tokens: Vec<_> = tokens.into_iter().chain(padding).collect();
    kinds.resize(vocab_size, token::UNUSED);
    key("tokenizer.ggml.model", kind::TEXT, &|to| to.text("gpt2"));
    key("tokenizer.ggml.pre", kind::TEXT, &|to| to.text("gpt-2"));
    for (name, texts) in [("tokenizer.ggml.tokens", &tokens), ("tokenizer.ggml.merges", &merges)] {
        key(name, kind::ARRAY, &|to| {
            to.u32(kind::TEXT);
            to.u64(texts.len() as u64);
            texts.iter().for_each(|text| to.text(text));
        });
    }
    key(TOKEN_TYPES, kind::ARRAY, &|to| {
        to.u32(kind::I32);
        to.u64(kinds.len() as u64);
        kinds.iter().for_each(|&kind| to.u32(kind));
    });
    if let Some((_, end)) = special.iter().find(|(name, _)| name == END_OF_TEXT) {
        key("tokenizer.ggml.bos_token_id", kind::U32, &|to| to.u32(*end));
        key("tokenizer.ggml.eos_token_id", kind::U32, &|to| to.u32(*end));
    }
    n
}

/// Bytes in the making.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u64(text.len() as u64);
        self.0.extend(text.as_bytes());
    }
}
