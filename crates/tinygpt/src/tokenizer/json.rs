//! Hugging Face's `tokenizer.json`: the layouts that say exactly what our tokenizers do.
//!
//! - Characters: a `WordLevel` model behind a `Split` that isolates every character, the decoder
//!   `Fuse` joins them again. `WordLevel` demands the name of a token for unknown words. `<unk>` is
//!   longer than a character, so it cannot be one of the vocabulary, and it has no id: there an
//!   unknown character is an error as it is here, and the vocabulary keeps its size.
//! - Bytes: a byte-level `BPE` without merges.
//! - Runs of bytes: a byte-level `BPE` behind GPT-2's cut into pieces, as GPT-2's own file has it.
//!
//! Every other is left to the library, and written as it was read.

use super::bpe::{ALPHABET, Bpe};
use super::{Chars, Foreign, Tokenizer};
use crate::error::{Error, Result};
use serde_json::{Value, json};
use std::sync::Arc;

const UNKNOWN: &str = "<unk>";
const EXPECTED: &str = "expected single characters (WordLevel, Split into characters, Fuse) or a \
                        byte-level BPE as GPT-2 has it (BPE, ByteLevel, ByteLevel)";

pub(super) fn write(tokenizer: &Tokenizer) -> String {
    let (model, pre_tokenizer, decoder) = match tokenizer {
        Tokenizer::Char(chars) => (
            json!({
                "type": "WordLevel",
                "vocab": vocab(chars.list()),
                "unk_token": UNKNOWN,
            }),
            json!({
                "type": "Split",
                "pattern": { "Regex": r"[\s\S]" },
                "behavior": "Isolated",
                "invert": false,
            }),
            json!({ "type": "Fuse" }),
        ),
        // Splitting into pieces would change nothing: there are no merges to keep apart.
        Tokenizer::Byte => {
            (merging(vocab(*ALPHABET), json!([])), byte_level(false), byte_level(false))
        }
        Tokenizer::Bpe(bpe) => {
            let merges = bpe.merges().iter().map(|(a, b)| format!("{a} {b}"));
            let model = merging(vocab(bpe.tokens()), merges.collect());
            (model, byte_level(true), byte_level(true))
        }
        Tokenizer::Foreign(foreign) => return foreign.json().into(),
    };
    let added = tokenizer.special().iter().map(|(name, id)| {
        json!({
            "id": id,
            "content": name,
            "single_word": false,
            "lstrip": false,
            "rstrip": false,
            "normalized": false,
            "special": true,
        })
    });
    let added: Value = added.collect();
    let whole = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": decoder,
        "model": model,
    });
    format!("{whole:#}\n")
}

fn vocab(symbols: impl IntoIterator<Item = impl ToString>) -> Value {
    symbols.into_iter().zip(0u32..).map(|(c, id)| (c.to_string(), Value::from(id))).collect()
}

fn merging(vocab: Value, merges: Value) -> Value {
    json!({
        "type": "BPE",
        "dropout": null,
        "unk_token": null,
        "continuing_subword_prefix": null,
        "end_of_word_suffix": null,
        "fuse_unk": false,
        "byte_fallback": false,
        "vocab": vocab,
        "merges": merges,
    })
}

fn byte_level(use_regex: bool) -> Value {
    json!({
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": true,
        "use_regex": use_regex,
    })
}

pub(super) fn read(text: &str) -> Result<Tokenizer> {
    let whole: Value = serde_json::from_str(text)
        .map_err(|error| Error::data(super::TOKENIZER_FILE, format!("is not JSON: {error}")))?;
    own(&whole).or_else(|ours| match Foreign::read(text) {
        Ok(foreign) => Ok(Tokenizer::Foreign(Arc::new(foreign))),
        // Who wrote one of our layouts wrongly wants to know what is wrong with it.
        Err(theirs) => Err(theirs.with_hint(format!("of TinyGPT's own kinds it is none: {ours}"))),
    })
}

/// A tokenizer of one of our layouts, or a word about what it has that they have not.
fn own(whole: &Value) -> Result<Tokenizer> {
    for (part, allowed) in [
        // Only these would change tokens; truncation and padding would not.
        ("normalizer", None),
        ("post_processor", Some("ByteLevel")),
    ] {
        let kind = whole[part]["type"].as_str();
        if !whole[part].is_null()
            && !adds_nothing(&whole[part])
            && (kind != allowed || kind.is_none())
        {
            return Err(other(format!("{part} {}", name(&whole[part]["type"]))));
        }
    }
    let (model, split, decoder) = (&whole["model"], &whole["pre_tokenizer"], &whole["decoder"]);
    match (kind(model), kind(split), kind(decoder)) {
        ("WordLevel", "Split", "Fuse") => {
            if split["pattern"]["Regex"] != r"[\s\S]" || split["behavior"] != "Isolated" {
                return Err(other(format!(
                    "a Split by {} ({})",
                    split["pattern"],
                    name(&split["behavior"])
                )));
            }
            if let Some(token) = added(whole).next() {
                return Err(other(format!("the added token {}", name(&token["content"]))));
            }
            Ok(Tokenizer::Char(Chars::in_order(symbols(model)?)))
        }
        ("BPE", "ByteLevel", "ByteLevel") => runs_of_bytes(whole),
        (model, split, decoder) => Err(other(format!(
            "the model {model} with the pre-tokenizer {split} and the decoder {decoder}"
        ))),
    }
}

/// Whether a post-processor leaves a single text as it is: transformers saves one without special
/// tokens where there was none.
fn adds_nothing(post_processor: &Value) -> bool {
    let single = post_processor["single"].as_array();
    kind(post_processor) == "TemplateProcessing"
        && single.is_some_and(|parts| parts.len() == 1 && parts[0].get("Sequence").is_some())
}

/// A byte-level BPE, or a word about what it has that GPT-2's has not.
fn runs_of_bytes(whole: &Value) -> Result<Tokenizer> {
    let (model, split) = (&whole["model"], &whole["pre_tokenizer"]);
    if split["add_prefix_space"] == true {
        return Err(other("a ByteLevel that puts a blank before every text".into()));
    }
    for option in ["dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"] {
        if !(model[option].is_null() || model[option] == "" || model[option] == false) {
            return Err(other(format!("a BPE with {option} {}", model[option])));
        }
    }
    let mut ids: Vec<(String, &Value)> =
        vocabulary(model)?.map(|(t, id)| (t.clone(), id)).collect();
    let mut special = Vec::new();
    for token in added(whole) {
        let content = token["content"].as_str().unwrap_or_default().to_owned();
        if ["single_word", "lstrip", "rstrip"].iter().any(|&option| token[option] == true) {
            return Err(other(format!("the added token {content:?}, which takes blanks or words")));
        }
        match model["vocab"].get(&content) {
            None => ids.push((content.clone(), &token["id"])),
            Some(id) if *id == token["id"] => {}
            Some(id) => {
                return Err(other(format!("the token {content:?} as {id} and as {}", token["id"])));
            }
        }
        special.push(content);
    }
    let tokens = in_order(ids)?;
    let merges = merges(model)?;
    let bytes = ALPHABET.iter().map(char::to_string);
    if merges.is_empty() && special.is_empty() && bytes.eq(tokens.iter().cloned()) {
        return Ok(Tokenizer::Byte);
    }
    let bpe = Bpe::from_parts(tokens, merges, &special)?;
    if split["use_regex"] == false {
        return Err(other("a ByteLevel without GPT-2's cut into pieces".into()));
    }
    Ok(Tokenizer::Bpe(Arc::new(bpe)))
}

/// The merges of a BPE in their order: `"a b"` or `["a", "b"]`.
pub(super) fn merges(model: &Value) -> Result<Vec<(String, String)>> {
    let pair = |merge: &Value| match merge {
        Value::String(text) => text.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())),
        Value::Array(pair) => match &pair[..] {
            [Value::String(a), Value::String(b)] => Some((a.clone(), b.clone())),
            _ => None,
        },
        _ => None,
    };
    let merges = model["merges"].as_array().map(Vec::as_slice).unwrap_or_default();
    let read = |merge| pair(merge).ok_or_else(|| other(format!("the merge {merge}")));
    merges.iter().map(read).collect()
}

fn added(whole: &Value) -> impl Iterator<Item = &Value> {
    whole["added_tokens"].as_array().into_iter().flatten()
}

fn vocabulary(model: &Value) -> Result<impl Iterator<Item = (&String, &Value)>> {
    let vocab = model["vocab"].as_object();
    Ok(vocab.ok_or_else(|| other("a model without a vocabulary".into()))?.iter())
}

/// The characters of a vocabulary in the order of their ids.
fn symbols(model: &Value) -> Result<Vec<char>> {
    let of_one = |(token, id): (&String, &Value)| {
        let mut chars = token.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => Ok((c, id.clone())),
            _ => Err(other(format!("the token {token:?}"))),
        }
    };
    let symbols = vocabulary(model)?.map(of_one).collect::<Result<Vec<_>>>()?;
    in_order(symbols.iter().map(|(c, id)| (*c, id)).collect())
}

/// Symbols in the order of their ids, which must be `0..` without gaps.
fn in_order<T: Clone + std::fmt::Debug>(symbols: Vec<(T, &Value)>) -> Result<Vec<T>> {
    let size = symbols.len();
    let mut list = vec![None; size];
    for (token, id) in symbols {
        let slot = id.as_u64().and_then(|id| list.get_mut(usize::try_from(id).ok()?));
        match slot {
            Some(slot @ None) => *slot = Some(token),
            _ => {
                return Err(other(format!(
                    "id {id} of token {token:?}, which is not one of 0..{size} or is there twice"
                )));
            }
        }
    }
    // As many ids as places and none twice: every place is filled.
    let list: Vec<T> = list.into_iter().flatten().collect();
    if list.is_empty() {
        return Err(other("an empty vocabulary".into()));
    }
    Ok(list)
}

fn kind(part: &Value) -> &str {
    part["type"].as_str().unwrap_or("(none)")
}

fn name(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| format!("{text:?}"))
}

fn other(found: String) -> Error {
    Error::data(super::TOKENIZER_FILE, format!("has {found}; {EXPECTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn both() -> [Tokenizer; 2] {
        [Tokenizer::from_chars("\n \"\\\0ab\u{301}é<unk>😊".chars()), Tokenizer::Byte]
    }

    #[test]
    fn the_byte_alphabet_is_gpt_2s() {
        let alphabet = *ALPHABET;
        for (byte, c) in [(b'\n', 'Ċ'), (b' ', 'Ġ'), (b'A', 'A'), (0xad, '\u{143}'), (0xff, 'ÿ')]
        {
            assert_eq!(alphabet[byte as usize], c);
        }
    }

    #[test]
    fn what_other_tokenizers_have_is_named() {
        let change = |pointer: &str, value: Value| {
            let [chars, bytes] = both().map(|tokenizer| {
                let mut whole: Value = serde_json::from_str(&tokenizer.to_json()).unwrap();
                match whole.pointer_mut(pointer) {
                    Some(place) => *place = value.clone(),
                    None => return String::new(),
                }
                own(&whole).map_or_else(|e| e.to_string(), |_| "".into())
            });
            chars + &bytes
        };
        for (pointer, value, found) in [
            ("/model/type", json!("Unigram"), "the model Unigram"),
            ("/model/merges", json!(["a b"]), "the merge \"a\" \"b\", not all"),
            ("/model/merges", json!(["ab"]), "the merge \"ab\""),
            ("/model/merges", json!([["a", 1]]), "the merge [\"a\",1]"),
            ("/model/end_of_word_suffix", json!("</w>"), "end_of_word_suffix \"</w>\""),
            ("/model/dropout", json!(0.1), "a BPE with dropout 0.1"),
            ("/model/vocab/a", json!(7.5), "id 7.5"),
            ("/model/vocab/a", json!(3), "there twice"),
            ("/model/vocab", json!({"the": 0}), "the token \"the\""),
            ("/model/vocab", json!({"": 0}), "the token \"\""),
            ("/model/vocab", json!({}), "an empty vocabulary"),
            ("/model/vocab", json!(null), "without a vocabulary"),
            ("/pre_tokenizer/type", json!("Whitespace"), "pre-tokenizer Whitespace"),
            ("/pre_tokenizer/pattern", json!({"String": " "}), "a Split by"),
            ("/pre_tokenizer/add_prefix_space", json!(true), "puts a blank"),
            ("/normalizer", json!({"type": "NFC"}), "normalizer \"NFC\""),
            ("/normalizer", json!(5), "normalizer null"),
            ("/post_processor", json!({"type": "BertProcessing"}), "BertProcessing"),
            ("/added_tokens", json!([{"content": "<pad>"}]), "added token \"<pad>\""),
            ("/decoder", json!(null), "decoder (none)"),
        ] {
            let error = change(pointer, value);
            assert!(error.contains(found), "{pointer}: {error}");
        }
        assert!(Tokenizer::from_json("{").unwrap_err().to_string().contains("is not JSON"));
    }

    #[test]
    fn a_file_that_hugging_face_saved_again_is_still_ours() {
        // `Tokenizer.save` writes null for what is off; transformers may add padding.
        for tokenizer in both() {
            let mut whole: Value = serde_json::from_str(&tokenizer.to_json()).unwrap();
            whole["padding"] = json!({"strategy": "BatchLongest", "pad_id": 0});
            whole.as_object_mut().unwrap().remove("normalizer");
            assert_eq!(Tokenizer::from_json(&whole.to_string()).unwrap(), tokenizer);
        }
    }

    proptest! {
        #[test]
        fn any_vocabulary_survives_the_file(text: String) {
            prop_assume!(!text.is_empty());
            let tokenizer = Tokenizer::from_chars(text.chars());
            prop_assert_eq!(&Tokenizer::from_json(&tokenizer.to_json()).unwrap(), &tokenizer);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text: String, cut: prop::sample::Index, byte: u8) {
            let _ = Tokenizer::from_json(&text);
            for tokenizer in both() {
                let mut bytes = tokenizer.to_json().into_bytes();
                let at = cut.index(bytes.len());
                bytes[at] = byte;
                let _ = Tokenizer::from_json(&String::from_utf8_lossy(&bytes));
                bytes.truncate(at);
                let _ = Tokenizer::from_json(&String::from_utf8_lossy(&bytes));
            }
        }
    }
}
