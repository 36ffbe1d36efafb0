//! Small tokenizers of the kinds that people have, beside the library.

use super::super::Tokenizer;
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// BERT's kind: words and, after `##`, their parts.
fn word_pieces() -> Value {
    json!({
        "version": "1.0",
        "truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0,
            "direction": "Right"},
        "padding": null,
        "added_tokens": [{"id": 0, "content": "[SEP]", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": null,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {"[SEP]": 0, "[UNK]": 1, "the": 2, "cat": 3, "##s": 4, "sep": 5, "[": 6, "]": 7}},
    })
}

/// Llama's kind: likely pieces, `▁` for a blank, bytes for what is unknown.
fn unigrams() -> Value {
    json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
            "split": true},
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": [
            ["<unk>", 0.0], ["▁the", -1.0], ["▁cat", -2.0], ["▁", -3.0], ["s", -3.0],
            ["<0xC3>", -9.0], ["<0xA9>", -9.0]]},
    })
}

fn read(json: &Value) -> Tokenizer {
    Tokenizer::from_json(&json.to_string()).unwrap()
}

#[test]
fn other_kinds_give_the_librarys_ids_and_text_and_their_file_as_it_was() {
    let tokenizer = read(&word_pieces());
    assert_eq!((tokenizer.name(), tokenizer.vocab_size(), tokenizer.start()), ("foreign", 8, 0));
    let ids = tokenizer.encode("The cats the CAT dog", "x").unwrap();
    assert_eq!(ids, [2, 3, 4, 2, 3, 1], "in full, whatever the file says of its length");
    assert_eq!(tokenizer.decode(&ids), "the cats the cat [UNK]");
    assert_eq!(tokenizer.encode("[SEP]", "x").unwrap(), [6, 5, 7]);
    assert_eq!(tokenizer.encode_with_special("the[SEP]", "x").unwrap(), [2, 0]);
    assert_eq!(tokenizer.to_json(), word_pieces().to_string());
    assert_eq!(Tokenizer::from_json(&tokenizer.to_json()).unwrap(), tokenizer);

    let tokenizer = read(&unigrams());
    let ids = tokenizer.encode("the cats é", "x").unwrap();
    assert_eq!(ids, [1, 2, 4, 3, 5, 6]);
    let mut decoder = tokenizer.decoder();
    let pieces: Vec<String> = ids.iter().map(|&id| decoder.push(id)).collect();
    assert_eq!(pieces[4..], ["", "é"], "a character comes whole");
    assert_eq!(tokenizer.decode(&[1, 5]), "▁the\u{fffd}");
    assert_eq!(tokenizer.decode(&[1, 99, u32::MAX]), "▁the\u{fffd}\u{fffd}");
}

#[test]
fn what_has_no_token_and_no_name_for_that_is_an_error() {
    let mut nameless = word_pieces();
    nameless["model"]["vocab"].as_object_mut().unwrap().remove("[UNK]");
    let error = read(&nameless).encode("the dog", "my.txt").unwrap_err();
    assert!(error.to_string().starts_with("my.txt has something"), "{error}");
}

/// Llama 3's kind: its own cut into pieces, then bytes.
fn other_cut() -> Value {
    let regex = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let gpt2 = Tokenizer::Bpe(super::super::Bpe::gpt2());
    let mut json: Value = serde_json::from_str(&gpt2.to_json()).unwrap();
    json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
    ]});
    json
}

/// Llama 2's kind: no pieces, one word as long as the text.
fn no_cut() -> Value {
    let mut json = unigrams();
    json["pre_tokenizer"] = Value::Null;
    json["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ]});
    json
}

/// What the library makes of a text that it is given as a whole.
fn whole(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let Tokenizer::Foreign(foreign) = tokenizer else { panic!("of the library's kinds") };
    foreign.plain.encode_fast(text, false).unwrap().get_ids().to_vec()
}

/// The ids of a text that comes in parts.
fn streamed(tokenizer: &Tokenizer, text: &str, part: usize) -> Vec<u32> {
    let (mut encoder, mut ids, mut rest) = (tokenizer.encoder(false), Vec::new(), text);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(boundary(rest, part.max(4)));
        assert!(encoder.push(part, &mut ids));
        rest = after;
    }
    assert!(encoder.finish(&mut ids));
    ids
}

#[test]
fn texts_may_be_cut_where_the_tokenizers_own_pieces_say_so() {
    use Place::{AfterLine, BeforeBlank};
    for (json, expected) in [
        (word_pieces(), &[AfterLine, BeforeBlank][..]),
        (other_cut(), &[AfterLine, BeforeBlank]),
        // A mark would come before a block that begins with a word.
        (unigrams(), &[BeforeBlank]),
        (no_cut(), &[]),
    ] {
        let Tokenizer::Foreign(foreign) = read(&json) else { panic!("of the library's kinds") };
        assert_eq!(foreign.places, expected);
    }
    let mut named = word_pieces();
    named["added_tokens"][0]["content"] = "the cat".into();
    let Tokenizer::Foreign(foreign) = read(&named) else { panic!("of the library's kinds") };
    assert_eq!(foreign.places, [], "a name with a blank may be parted");
}

#[test]
fn a_long_stretch_without_a_place_to_cut_is_refused_with_the_ways_out_and_a_shorter_one_is_whole() {
    let lines = "the cats the cat\n".repeat(3 * BLOCK / 17);
    let all = |bytes: usize| "the.".repeat(bytes / 4);
    for (json, fits, long) in [
        (word_pieces(), lines.clone() + &all(LONGEST), lines.clone() + &all(2 * LONGEST)),
        (no_cut(), "the ".repeat(LONGEST / 4), "the ".repeat(LONGEST / 4 + AROUND)),
    ] {
        let tokenizer = read(&json);
        assert!(tokenizer.encode(&fits, "x").unwrap() == whole(&tokenizer, &fits), "other ids");
        for error in [
            tokenizer.encode(&long, "my.txt").unwrap_err(),
            tokenizer.encode_with_special(&long, "my.txt").unwrap_err(),
        ] {
            assert_eq!(
                error.to_string(),
                "my.txt has over 16384 bytes without a place where its tokenizer can cut it; \
                 expected at most so many, which are encoded as a whole"
            );
            assert!(error.hint().unwrap().contains("gpt2, byte and bpe:SIZE take any"));
        }
        for part in [777, LONGEST + 1] {
            let (mut encoder, mut ids) = (tokenizer.encoder(false), Vec::new());
            let took = |part| encoder.push(std::str::from_utf8(part).unwrap(), &mut ids);
            assert!(!long.as_bytes().chunks(part).all(took), "told before the text ends");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_text_in_parts_has_the_ids_that_the_library_gives_the_whole(
        words in prop::collection::vec(
            "the|cats?|é|dog| |  |   |\n|\n\n|\r\n|\t| the cat|\nthe|[.!]{1,2}|'s|7{1,5}|\\[SEP\\]|你好",
            200..2000,
        ),
        part in 4..9000usize,
        times in 1..9usize,
    ) {
        let text = words.concat().repeat(times);
        for json in [word_pieces(), unigrams(), other_cut(), no_cut()] {
            let tokenizer = read(&json);
            // It has no place to be cut.
            let text = if json == no_cut() { words.concat() } else { text.clone() };
            if json == no_cut() && text.len() > LONGEST {
                continue;
            }
            let expected = whole(&tokenizer, &text);
            prop_assert!(streamed(&tokenizer, &text, part) == expected, "other ids: {}", json);
            prop_assert!(tokenizer.encode(&text, "x").unwrap() == expected);
        }
    }
}

proptest! {
    #[test]
    fn no_file_makes_the_reader_panic(
        at in any::<prop::sample::Index>(), byte: u8, cut: bool, other: bool,
    ) {
        let json = if other { word_pieces() } else { unigrams() };
        let mut bytes = json.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if cut {
            bytes.remove(at);
        }
        if let Ok(tokenizer) = Tokenizer::from_json(&String::from_utf8_lossy(&bytes))
            && let Ok(ids) = tokenizer.encode("the cats é", "x")
        {
            tokenizer.decode(&ids);
        }
    }

    #[test]
    fn no_value_makes_the_reader_panic(
        pointer in "(/model|/normalizer|/pre_tokenizer|/decoder|/added_tokens/0|/post_processor)(/type|/vocab|/unk_id|/unk_token|/id|/content|/prefix|/replacement|/decoders)?",
        value in prop_oneof![
            Just(Value::Null), Just(json!(-1)), Just(json!(4_000_000_000u32)), Just(json!("")),
            Just(json!([])), Just(json!({})), Just(json!("BPE")), Just(json!("Unigram")),
            Just(json!([["", 0.0]])), Just(json!({"": 5})), Just(json!({"a": 4_000_000_000u32})),
        ],
        other: bool,
    ) {
        let mut json = if other { word_pieces() } else { unigrams() };
        if let Some(place) = json.pointer_mut(&pointer) {
            *place = value;
        }
        if let Ok(tokenizer) = Tokenizer::from_json(&json.to_string())
            && let Ok(ids) = tokenizer.encode_with_special("the cats é", "x")
        {
            tokenizer.decode(&ids);
        }
    }
}
