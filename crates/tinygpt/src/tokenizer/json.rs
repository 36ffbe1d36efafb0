//! Hugging Face's `tokenizer.json`: the two layouts that say exactly what our tokenizers do.
//!
//! - Characters: a `WordLevel` model behind a `Split` that isolates every character, the decoder
//!   `Fuse` joins them again. `WordLevel` demands the name of a token for unknown words. `<unk>` is
//!   longer than a character, so it cannot be one of the vocabulary, and it has no id: there an
//!   unknown character is an error as it is here, and the vocabulary keeps its size.
//! - Bytes: a byte-level `BPE` without merges. GPT-2 writes bytes as printable characters: a
//!   visible Latin-1 character stands for its own code, the 68 others are U+0100 and up, in order.
//!
//! Every other tokenizer is refused with a word about what it is.

use super::{Chars, Tokenizer};
use crate::error::{Error, Result};
use serde_json::{Value, json};

const UNKNOWN: &str = "<unk>";
const EXPECTED: &str = "expected single characters (WordLevel, Split into characters, Fuse) or the \
                        256 bytes (ByteLevel BPE without merges)";

pub(super) fn write(tokenizer: &Tokenizer) -> String {
    let (model, pre_tokenizer, decoder) = match tokenizer {
        Tokenizer::Char(chars) => (
            json!({
                "type": "WordLevel",
                "vocab": vocab(chars.list().iter().copied()),
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
        Tokenizer::Byte => (
            json!({
                "type": "BPE",
                "dropout": null,
                "unk_token": null,
                "continuing_subword_prefix": null,
                "end_of_word_suffix": null,
                "fuse_unk": false,
                "byte_fallback": false,
                "vocab": vocab(byte_alphabet()),
                "merges": [],
            }),
            byte_level(),
            byte_level(),
        ),
    };
    let whole = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": decoder,
        "model": model,
    });
    format!("{whole:#}\n")
}

fn vocab(symbols: impl Iterator<Item = char>) -> Value {
    symbols.zip(0u32..).map(|(c, id)| (c.to_string(), Value::from(id))).collect()
}

fn byte_level() -> Value {
    json!({
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": true,
        // Splitting into words would change nothing: there are no merges to keep apart.
        "use_regex": false,
    })
}

/// GPT-2's printable character for each byte, in the order of the bytes.
fn byte_alphabet() -> impl Iterator<Item = char> {
    let mut others = '\u{100}'..;
    (0..=255u8).map(move |byte| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        _ => others.next().expect("there are 68 others"),
    })
}

pub(super) fn read(text: &str) -> Result<Tokenizer> {
    let whole: Value = serde_json::from_str(text)
        .map_err(|error| Error::data("tokenizer.json", format!("is not JSON: {error}")))?;
    for (part, allowed) in [
        // Only these would change tokens; truncation and padding would not.
        ("normalizer", None),
        ("post_processor", Some("ByteLevel")),
    ] {
        let kind = whole[part]["type"].as_str();
        if !whole[part].is_null() && (kind != allowed || kind.is_none()) {
            return Err(other(format!("{part} {}", name(&whole[part]["type"]))));
        }
    }
    if let Some(token) = whole["added_tokens"].as_array().and_then(|tokens| tokens.first()) {
        return Err(other(format!("the added token {}", name(&token["content"]))));
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
            Ok(Tokenizer::Char(Chars::in_order(symbols(&model["vocab"])?)))
        }
        ("BPE", "ByteLevel", "ByteLevel") => {
            let merges = model["merges"].as_array().map_or(0, Vec::len);
            if merges > 0 {
                return Err(other(format!("a BPE with {merges} merges")));
            }
            if split["add_prefix_space"] == true {
                return Err(other("a ByteLevel that puts a blank before every text".into()));
            }
            if !symbols(&model["vocab"])?.into_iter().eq(byte_alphabet()) {
                return Err(other("a BPE vocabulary whose ids are not the bytes".into()));
            }
            Ok(Tokenizer::Byte)
        }
        (model, split, decoder) => Err(other(format!(
            "the model {model} with the pre-tokenizer {split} and the decoder {decoder}"
        ))),
    }
}

/// The characters in the order of their ids, which must be `0..` without gaps.
fn symbols(vocab: &Value) -> Result<Vec<char>> {
    let vocab = vocab.as_object().ok_or_else(|| other("a model without a vocabulary".into()))?;
    let mut list = vec![None; vocab.len()];
    for (token, id) in vocab {
        let mut chars = token.chars();
        let (Some(c), None) = (chars.next(), chars.next()) else {
            return Err(other(format!("the token {token:?}")));
        };
        let slot = id.as_u64().and_then(|id| list.get_mut(usize::try_from(id).ok()?));
        match slot {
            Some(slot @ None) => *slot = Some(c),
            _ => {
                return Err(other(format!(
                    "id {id} of token {token:?}, which is not one of 0..{} or is there twice",
                    vocab.len()
                )));
            }
        }
    }
    // As many ids as places and none twice: every place is filled.
    let list: Vec<char> = list.into_iter().flatten().collect();
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
    Error::data("tokenizer.json", format!("has {found}; {EXPECTED}"))
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
        let alphabet: Vec<char> = byte_alphabet().collect();
        assert_eq!(alphabet.len(), 256);
        for (byte, c) in [(b'\n', 'Ċ'), (b' ', 'Ġ'), (b'A', 'A'), (0xad, '\u{143}'), (0xff, 'ÿ')]
        {
            assert_eq!(alphabet[byte as usize], c);
        }
    }

    #[test]
    fn other_tokenizers_are_refused_by_name() {
        let change = |pointer: &str, value: Value| {
            let [chars, bytes] = both().map(|tokenizer| {
                let mut whole: Value = serde_json::from_str(&tokenizer.to_json()).unwrap();
                match whole.pointer_mut(pointer) {
                    Some(place) => *place = value.clone(),
                    None => return String::new(),
                }
                Tokenizer::from_json(&whole.to_string())
                    .map_or_else(|e| e.to_string(), |_| "".into())
            });
            chars + &bytes
        };
        for (pointer, value, found) in [
            ("/model/type", json!("Unigram"), "the model Unigram"),
            ("/model/merges", json!(["a b"]), "1 merges"),
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
