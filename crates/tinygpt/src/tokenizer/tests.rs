//! Every kind of tokenizer: characters that are not there, GPT-2's ids, learned vocabularies, texts in
//! parts, files.

use super::pieces::tests::texts;
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

#[test]
fn characters_are_sorted_and_counted_once() {
    let tokenizer = Tokenizer::from_text(&TokenizerKind::Char, "hello\n😊é").unwrap();
    assert_eq!(tokenizer.vocab_size(), 7);
    assert_eq!(tokenizer.encode("\nehloé😊", "x").unwrap(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(tokenizer.start(), 0);
    assert_eq!(Tokenizer::from_chars("ba".chars()).start(), 0);
    assert_eq!(Tokenizer::Byte.start(), 10);
}

#[test]
fn unknown_characters_are_listed_with_their_place_or_skipped_on_request() {
    let tokenizer = Tokenizer::from_chars("abc \n".chars());
    let error = tokenizer.encode("ab\ncdé d\u{301}", "the prompt").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the prompt: 3 characters not in the vocabulary of 5: 'd' at line 2, column 2; \
         'é' at line 2, column 3; '\\u{301}' at line 2, column 6"
    );
    assert!(error.hint().is_some());
    assert_eq!(tokenizer.encode_known("adéb"), [2, 3]);

    let many = tokenizer.encode("0123456789", "x").unwrap_err().to_string();
    assert!(many.ends_with("; and 5 more: 5 6 7 8 9"), "{many}");
}

#[test]
fn an_id_outside_the_vocabulary_decodes_to_the_replacement_character() {
    assert_eq!(Tokenizer::from_chars("ab".chars()).decode(&[0, 2, u32::MAX, 1]), "a��b");
    assert_eq!(Tokenizer::Byte.decode(&[0x61, 256, 0xe2, 0x82, u32::MAX, 0x62]), "a���b");
}

#[test]
fn fingerprints_tell_vocabularies_apart_and_never_change() {
    let of = |text: &str| Tokenizer::from_chars(text.chars()).fingerprint();
    assert_eq!(of("ab"), of("ba"));
    assert_ne!(of("ab"), of("abc"));
    assert_ne!(of(""), Tokenizer::Byte.fingerprint());
    assert_eq!(of("ab"), 0xd802_1d72_de19_3516);
}

fn gpt2() -> Tokenizer {
    Tokenizer::Bpe(Bpe::gpt2())
}

fn learned(size: usize, text: &str) -> Tokenizer {
    Tokenizer::from_text(&TokenizerKind::Bpe(size), text).unwrap()
}

/// A vocabulary as [`naive`] looks things up in it.
struct Ranked {
    tokenizer: Tokenizer,
    ranks: HashMap<(String, String), usize>,
    ids: HashMap<String, u32>,
}

impl Ranked {
    fn of(tokenizer: Tokenizer) -> Self {
        let Tokenizer::Bpe(bpe) = &tokenizer else { panic!("no runs of bytes") };
        let ranks = bpe.merges().iter().cloned().zip(0..).collect();
        let ids = bpe.tokens().iter().cloned().zip(0..).collect();
        Self { tokenizer, ranks, ids }
    }
}

/// GPT-2's algorithm as its paper has it: of all pairs the one that was learned first, everywhere,
/// until none is left.
fn naive(Ranked { ranks, ids, .. }: &Ranked, text: &str) -> Vec<u32> {
    let mut all = Vec::new();
    pieces::cut(text, true, &[], &mut |part| {
        let pieces::Part::Piece(piece) = part else { unreachable!("no name was given") };
        let mut word: Vec<String> =
            piece.bytes().map(|byte| bpe::ALPHABET[usize::from(byte)].into()).collect();
        loop {
            let pairs = word.windows(2).map(|pair| (pair[0].clone(), pair[1].clone()));
            let first =
                pairs.filter(|pair| ranks.contains_key(pair)).min_by_key(|pair| ranks[pair]);
            let Some(pair) = first else { break };
            let mut at = 0;
            while at + 1 < word.len() {
                if (&word[at], &word[at + 1]) == (&pair.0, &pair.1) {
                    let right = word.remove(at + 1);
                    word[at] += &right;
                }
                at += 1;
            }
        }
        all.extend(word.iter().map(|token| ids[token]));
    });
    all
}

#[test]
fn gpt_2s_ids_are_those_of_openais_tiktoken() {
    let gpt2 = gpt2();
    for (text, ids) in [
        ("Hello world, naïve", &[15496, 995, 11, 41492][..]),
        ("abc abc", &[39305, 450, 66]),
        ("a <|endoftext|> b", &[64, 1279, 91, 437, 1659, 5239, 91, 29, 275]),
        ("hello   world", &[31373, 220, 220, 995]),
        ("it'sall", &[270, 338, 439]),
        ("don't DON'T", &[9099, 470, 23917, 6, 51]),
        (
            "a  b   c    d     e",
            &[64, 220, 275, 220, 220, 269, 220, 220, 220, 288, 220, 220, 220, 220, 304],
        ),
        ("a\tb\n\nc", &[64, 197, 65, 198, 198, 66]),
        ("a\u{a0}b", &[64, 1849, 65]),
        (
            "Привет, мир",
            &[140, 253, 21169, 18849, 38857, 16843, 20375, 11, 12466, 120, 18849, 21169],
        ),
        (
            "😊 “quoted” 你好",
            &[47249, 232, 564, 250, 421, 5191, 447, 251, 220, 19526, 254, 25001, 121],
        ),
        (" .", &[764]),
        ("  \n  x\n", &[220, 220, 198, 220, 2124, 198]),
        ("0123456789 42", &[486, 1954, 2231, 3134, 4531, 5433]),
        ("", &[]),
    ] {
        assert_eq!(gpt2.encode(text, "x").unwrap(), ids, "{text:?}");
        assert_eq!(gpt2.decode(ids), text);
    }
    assert_eq!((gpt2.vocab_size(), gpt2.start(), gpt2.name()), (50_257, 50_256, "gpt2"));
    // What token files of every version say.
    assert_eq!(gpt2.fingerprint(), 0xe75a_658d_6f29_7dc0);
}

#[test]
fn the_end_of_a_text_is_a_token_where_it_is_allowed_and_text_elsewhere() {
    let text = "a <|endoftext|> b<|endoftext|><|endoftext|>";
    let ids = gpt2().encode_with_special(text, "x").unwrap();
    assert_eq!(ids, [64, 220, 50256, 275, 50256, 50256]);
    assert_eq!(gpt2().decode(&ids), text);
    assert!(!gpt2().encode(text, "x").unwrap().contains(&50256));
}

#[test]
fn one_piece_as_long_as_a_book_takes_no_more_than_a_moment() {
    let started = Instant::now();
    for (text, tokens) in [
        ("^".repeat(1_000_000), 250_000),
        ("a".repeat(100_000), 25_000),
        ("A".repeat(1_000_000), 125_000),
        (" ".repeat(1_000_000), 1_000_000),
    ] {
        let ids = gpt2().encode(&text, "x").unwrap();
        assert_eq!(ids.len(), tokens, "{:?}", &text[..1]);
        assert_eq!(gpt2().decode(&ids), text);
    }
    // A quadratic algorithm would take hours.
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn an_id_outside_the_vocabulary_is_no_panic() {
    assert_eq!(gpt2().decode(&[15496, 50257, u32::MAX, 995]), "Hello\u{fffd}\u{fffd} world");
    // The first half of a character, then something else.
    assert_eq!(gpt2().decode(&[47249, 50300, 232]), "\u{fffd}\u{fffd}\u{fffd}");
}

#[test]
fn what_a_text_repeats_becomes_tokens() {
    let text = "the cat and the dog and the bird\n".repeat(9);
    let tokenizer = learned(300, &text);
    assert!(tokenizer.vocab_size() <= 300);
    let ids = tokenizer.encode(" the cat", "x").unwrap();
    assert_eq!(ids.len(), 2);
    assert_eq!(tokenizer.decode(&ids), " the cat");
    assert_eq!(tokenizer.encode("😊\u{0}", "x").unwrap().len(), 5);
    assert_eq!(tokenizer.decode(&[tokenizer.start()]), "\n");
    assert_eq!(learned(300, &text), tokenizer, "the same text gives the same tokens");
    assert_eq!(learned(300, "").vocab_size(), 256);
}

#[test]
fn a_vocabulary_for_documents_has_a_token_for_their_end() {
    let mut learner = Learner::new(true);
    for part in ["one two<|endof", "text|>one two one<|endoftext|>"] {
        learner.push(part);
    }
    let bpe = learner.learn(300).unwrap();
    let end = bpe.tokens().len() as u32 - 1;
    assert_eq!(bpe.special(), [(END_OF_TEXT.to_owned(), end)]);
    assert!(!bpe.merges().iter().any(|(a, b)| format!("{a}{b}").contains("<|")));
    let tokenizer = Tokenizer::Bpe(Arc::new(bpe));
    assert_eq!(tokenizer.start(), end);
    let ids = tokenizer.encode_with_special("one<|endoftext|>", "x").unwrap();
    assert_eq!(ids.last(), Some(&end));
}

#[test]
fn a_vocabulary_that_cannot_be_is_told_what_it_lacks() {
    let parts = || (bpe::bytes_in_order(), Vec::new());
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    type Parts = (Vec<String>, Vec<(String, String)>);
    let said = |change: &dyn Fn(&mut Parts), special: &[&str]| {
        let (mut parts, special) = (parts(), special.iter().map(|&s| s.to_owned()));
        change(&mut parts);
        let made = Bpe::from_parts(parts.0, parts.1, &special.collect::<Vec<_>>());
        made.map_or_else(|error| error.to_string(), |_| String::new())
    };
    assert_eq!(said(&|_| {}, &[]), "");
    assert!(said(&|parts| parts.0.push("a".into()), &[]).contains("\"a\""));
    assert!(said(&|parts| parts.0.truncate(255), &[]).contains("no token for the byte"));
    assert!(said(&|parts| parts.0.push("the cat".into()), &[]).contains("\"the cat\""));
    assert!(said(&|parts| parts.0.push(String::new()), &[]).contains("\"\""));
    assert!(said(&|parts| parts.1.push(pair("a", "b")), &[]).contains("merge \"a\" \"b\""));
    assert!(said(&|_| {}, &["<s>"]).contains("no special token \"<s>\""));
    assert!(said(&|_| {}, &[""]).contains("without a name"));
}

#[test]
fn parts_of_a_vocabulary_make_it_again() {
    let bpe = Bpe::gpt2();
    let special: Vec<_> = bpe.special().iter().map(|(name, _)| name.clone()).collect();
    let again = Bpe::from_parts(bpe.tokens().to_vec(), bpe.merges().to_vec(), &special).unwrap();
    assert_eq!(again, *bpe);
}

#[test]
fn gpt_2s_own_file_layouts_are_read() {
    let json = gpt2().to_json();
    assert_eq!(Tokenizer::from_json(&json).unwrap().name(), "gpt2");
    // As newer versions of the library write merges, and as GPT-2's file is published.
    let mut whole: serde_json::Value = serde_json::from_str(&json).unwrap();
    for merge in whole["model"]["merges"].as_array_mut().unwrap() {
        let (a, b) = merge.as_str().unwrap().split_once(' ').unwrap();
        *merge = serde_json::json!([a, b]);
    }
    for part in ["pre_tokenizer", "decoder"] {
        whole[part].as_object_mut().unwrap().remove("use_regex");
    }
    whole["post_processor"] = serde_json::json!({"type": "ByteLevel", "trim_offsets": false});
    assert_eq!(Tokenizer::from_json(&whole.to_string()).unwrap().name(), "gpt2");
    // As transformers saves it again.
    let sequence = |id: &str| serde_json::json!({"Sequence": {"id": id, "type_id": 0}});
    whole["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [sequence("A")],
        "pair": [sequence("A"), sequence("B")],
        "special_tokens": {},
    });
    assert_eq!(Tokenizer::from_json(&whole.to_string()).unwrap().name(), "gpt2");
    let end = serde_json::json!({"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}});
    whole["post_processor"]["single"].as_array_mut().unwrap().push(end);
    let ends =
        serde_json::json!({"id": "<|endoftext|>", "ids": [50256], "tokens": ["<|endoftext|>"]});
    whole["post_processor"]["special_tokens"]["<|endoftext|>"] = ends;
    assert_eq!(Tokenizer::from_json(&whole.to_string()).unwrap().name(), "foreign");
}

static BOTH: LazyLock<[Ranked; 2]> = LazyLock::new(|| {
    let text = "the cat, the dog's bird'll sing  la la la\n\n la 你好 你好 7 42 42";
    [gpt2(), learned(300, text)].map(Ranked::of)
});

proptest! {
    #[test]
    fn ids_are_those_of_the_naive_algorithm(text in texts()) {
        for ranked in &*BOTH {
            let ids = ranked.tokenizer.encode(&text, "x").unwrap();
            prop_assert_eq!(ids, naive(ranked, &text));
        }
    }

    #[test]
    fn a_text_in_parts_has_the_ids_it_has_in_one(
        text in texts(), cuts in prop::collection::vec(1usize..6, 1..9), special: bool,
    ) {
        let tokenizer = gpt2();
        let whole = match special {
            true => tokenizer.encode_with_special(&text, "x").unwrap(),
            false => tokenizer.encode(&text, "x").unwrap(),
        };
        let mut encoder = tokenizer.encoder(special);
        let (mut chars, mut ids) = (text.chars().peekable(), Vec::new());
        for &n in cuts.iter().cycle() {
            if chars.peek().is_none() {
                break;
            }
            let part: String = chars.by_ref().take(n).collect();
            prop_assert!(encoder.push(&part, &mut ids));
        }
        encoder.finish(&mut ids);
        prop_assert_eq!(&ids, &whole);
        prop_assert_eq!(tokenizer.decode(&ids), text);
    }

    #[test]
    fn streamed_runs_of_bytes_are_the_whole_text(ids in prop::collection::vec(0u32..50_300, 0..40)) {
        let tokenizer = gpt2();
        let mut decoder = tokenizer.decoder();
        let mut streamed: String = ids.iter().map(|&id| decoder.push(id)).collect();
        streamed += &decoder.finish();
        prop_assert_eq!(&streamed, &tokenizer.decode(&ids));
        if ids.iter().all(|&id| id < 50_257) {
            let bytes = ids.iter().flat_map(|&id| Bpe::gpt2().bytes(id).unwrap().to_vec());
            let bytes: Vec<u8> = bytes.collect();
            prop_assert_eq!(&streamed, &String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn every_text_survives_encoding_and_decoding(text: String) {
        for kind in [TokenizerKind::Char, TokenizerKind::Byte, TokenizerKind::Gpt2] {
            let tokenizer = Tokenizer::from_text(&kind, &text).unwrap();
            let ids = tokenizer.encode(&text, "x").unwrap();
            prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
            prop_assert_eq!(tokenizer.decode(&ids), text.as_str());
        }
    }
}
