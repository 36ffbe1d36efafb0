//! Tokens of every kind, from the text to the samples; and `tinygpt tokenize`.

use super::*;
use serde_json::Value;

const DOCUMENT: &str = "The cat's 7 kittens — naïve, 你好 😊 — don't sleep.\n";

fn with_tokens(kind: &str) -> Place {
    let place = Place::new();
    place.write("my.txt", DOCUMENT.repeat(40));
    place.train(&["my.txt", "--tokenizer", kind]);
    place
}

/// A training that may say things on the way.
#[track_caller]
fn trains(place: &Place, flags: &[&str]) {
    let (code, _, said) = place.run(&[&["train"], flags].concat());
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_model_of_any_tokens_trains_samples_and_is_measured_by_the_byte() {
    for (kind, vocabulary, tokens) in
        [("gpt2", "50257", "gpt2, 50,257 tokens"), ("bpe:280", "280", "bpe, 280 tokens")]
    {
        let place = with_tokens(kind);
        let config = std::fs::read_to_string(place.path("runs/quick/config.toml")).unwrap();
        assert!(config.contains(&format!("vocab_size = {vocabulary} ")), "{config}");
        assert!(config.contains(&format!("tokenizer = \"{kind}\"")), "{config}");
        for prompt in ["", "The cat's 😊", "a <|endoftext|> b"] {
            let text = place.succeeds(&["sample", "-p", prompt, "-n", "20", "--temp=2"]);
            assert!(text.starts_with(prompt), "{text}");
            // Streamed or not, alone or with others.
            let two = place.succeeds(&[
                "sample",
                "-p",
                prompt,
                "-n",
                "20",
                "--temp=2",
                "--num-samples=2",
            ]);
            assert!(two.starts_with(&text), "{two}");
        }
        let page = place.succeeds(&["eval", "--split", "both"]);
        assert!(page.contains("bits/byte"), "{page}");
        assert!(place.succeeds(&["info", "runs/quick"]).contains(tokens));
        let metrics = std::fs::read_to_string(place.path("runs/quick/metrics.jsonl")).unwrap();
        assert!(metrics.contains("\"val/bits_per_byte\":"), "{metrics}");
        trains(&place, &["--resume", "--max-iters", "4", "--sample-tokens", "9"]);
    }
}

#[test]
fn files_that_come_joined_are_one_text_without_an_end_of_text_between_them() {
    let place = Place::new();
    place.write("a.txt", "one two\n");
    place.write("b.txt", "three\n");
    let (_, page, notes) = place.run(&["tokenize", "a.txt", "b.txt", "--json"]);
    assert!(notes.contains("<|endoftext|> stands between its 2 files"), "{notes}");
    let joined = place.succeeds_given("one two\nthree\n", &["tokenize", "-", "--json"]);
    let tokens = |page: &str| serde_json::from_str::<Value>(page).unwrap()["tokens"].clone();
    assert_eq!((tokens(&page), tokens(&joined)), (6.into(), 5.into()));
}

#[test]
fn a_stop_is_found_among_tokens_and_unknown_ids_are_never_written() {
    let place = with_tokens("gpt2");
    let text = place.succeeds(&["sample", "-p", "The", "-n", "60", "--temp=3", "--stop", "e"]);
    assert!(!text.trim_start_matches("The").contains('e'), "{text}");
    let place = Place::new();
    place.write("my.txt", DOCUMENT.repeat(40));
    place.train(&["my.txt", "--tokenizer", "bpe:300", "--vocab-size", "9000"]);
    let text = place.succeeds(&["sample", "-n", "200", "--temp=99", "--top-k=0"]);
    assert!(text.len() > 200, "{text}");
}

#[test]
fn a_run_may_take_anothers_tokenizer_and_weights_keep_their_own() {
    let place = with_tokens("bpe:300");
    place.train(&["my.txt", "--tokenizer", "runs/quick", "--out-dir", "same"]);
    let read = |path: &str| std::fs::read_to_string(place.path(path)).unwrap();
    assert_eq!(read("same/best/tokenizer.json"), read("runs/quick/best/tokenizer.json"));
    assert!(!read("same/config.toml").contains("\"runs/quick\""), "a path that says where");
    trains(&place, &["--resume", "same", "--max-iters", "4"]);

    let from = ["my.txt", "--init-from", "runs/quick", "--max-iters", "1", "--out-dir"];
    let all =
        |dir: &'static str, more: &[&'static str]| [&["train"], &from[..], &[dir], more].concat();
    let (code, _, said) = place.run(&all("on", &["--tokenizer", "same/best/tokenizer.json"]));
    assert_eq!(code, 0, "{said}");
    let message = place.fails(2, &all("off", &["--tokenizer", "gpt2"]));
    assert!(
        message.contains("tokenizer = gpt2") && message.contains("their own, bpe"),
        "{message}"
    );
    let message = place.fails(2, &["train", "--resume", "same", "--tokenizer", "char"]);
    assert!(message.contains("this run has tokenizer"), "{message}");
}

#[test]
fn tokenizers_that_cannot_be_are_told_what_can() {
    let place = Place::new();
    place.write("my.txt", DOCUMENT);
    for (kind, code, parts) in [
        ("bpe:9", 2, &["bpe:9", "257"][..]),
        ("bpe:many", 2, &["bpe:SIZE"]),
        ("word", 2, &["char, byte, gpt2"]),
        ("none/tokenizer.json", 1, &["none/tokenizer.json"]),
        ("./my.txt", 1, &["is not JSON"]),
    ] {
        for verb in ["train", "tokenize"] {
            let message = place.fails(code, &[verb, "my.txt", "--tokenizer", kind]);
            assert!(parts.iter().all(|part| message.contains(part)), "{verb} {kind}: {message}");
        }
    }
    let message = place.fails(1, &["train", "my.txt", "--tokenizer", "gpt2"]);
    assert!(message.contains("block_size"), "{message}");
}

#[test]
fn a_text_shows_its_tokens_and_files_are_counted() {
    let place = Place::new();
    place.write("my.txt", DOCUMENT.repeat(3));
    let page = place.succeeds(&["tokenize", "Hello world, naïve\n"]);
    let lines: Vec<_> = page.lines().collect();
    assert_eq!(lines[..2], [" 15496  \"Hello\"", "   995  \" world\""]);
    assert_eq!(lines[4], "   198  \"\\n\"");
    assert_eq!(lines[5], "5 tokens, 20 bytes, 4.00 a token (gpt2, vocabulary 50,257)");
    let page = place.succeeds(&["tokenize", "😊"]);
    assert!(page.contains("\"\\xf0\\x9f\\x98\"") && page.contains("\"\\x8a\""), "{page}");

    let json = |args: &[&str]| -> Value {
        serde_json::from_str(&place.succeeds(&[&["tokenize", "--json"], args].concat())).unwrap()
    };
    let shown = json(&["a <|endoftext|> b"]);
    assert_eq!(shown["ids"].as_array().unwrap().len(), 9);
    let shown = json(&["--allow-special", "a <|endoftext|> b"]);
    assert_eq!(shown["ids"], serde_json::json!([64, 220, 50256, 275]));
    assert_eq!(shown["pieces"][2], "<|endoftext|>");
    let counted = json(&["my.txt", "--tokenizer", "bpe:280"]);
    assert_eq!(
        (&counted["vocab_size"], &counted["bytes"]),
        (&280.into(), &(3 * DOCUMENT.len()).into())
    );
    assert!(counted["tokens"].as_u64().unwrap() > 0);

    let page = place.succeeds(&["tokenize", "my.txt", "--out", "my.tokens"]);
    assert!(page.contains("distinct") && page.contains("written    my.tokens"), "{page}");
    let gpt2 = tinygpt::TokenizerKind::Gpt2.ready().unwrap().unwrap();
    let (tokens, bytes) = tinygpt::Tokens::open(&place.path("my.tokens"), &gpt2).unwrap();
    assert_eq!(bytes, 3 * DOCUMENT.len() as u64);
    let ids = gpt2.encode(&DOCUMENT.repeat(3), "x").unwrap();
    assert_eq!(tokens.len(), ids.len());
    let counted = place.succeeds_given(DOCUMENT, &["tokenize", "-"]);
    assert!(counted.contains("standard input"), "{counted}");
}

#[test]
fn what_cannot_be_tokenized_is_said() {
    let place = Place::new();
    place.write("my.txt", DOCUMENT);
    let (code, _, note) = place.run(&["tokenize", "other.txt"]);
    assert_eq!((code, &*note), (0, "note: there is no file other.txt: it is taken for the text\n"));
    assert!(place.fails(2, &["tokenize", "my.txt", "other.txt"]).contains("other.txt"));
    assert!(place.fails(2, &["tokenize", "a b", "--out", "x"]).contains("a b: there is no such"));
    assert!(place.fails(2, &["tokenize", "my.txt", "--out", "my.txt"]).contains("the text itself"));
    assert_eq!(std::fs::read_to_string(place.path("my.txt")).unwrap(), DOCUMENT);
    let again = ["tokenize", "my.txt", "--out", "my.tokens"];
    place.succeeds(&again);
    assert!(place.fails(2, &again).contains("my.tokens: is there already"));
    place.succeeds(&[&again[..], &["--force"]].concat());
    let error = place.fails(2, &["tokenize", "my.txt", "--force", "--out", "./my.txt"]);
    assert!(error.contains("the text itself"), "{error}");
    assert!(place.fails(1, &["tokenize", "my.txt", "--out", "no/x"]).contains("no/x"));
    place.write("bad.txt", b"abc\xff");
    assert!(place.fails(1, &["tokenize", "bad.txt"]).contains("byte 3"));
    let (code, _, note) = place.run(&["tokenize", "bad.txt", "--tokenizer", "byte"]);
    assert!(code == 0 && note.contains("kept byte by byte"), "{note}");
    place.fails(2, &["tokenize"]);
    let (code, ..) = place.run(&["tokenize", ""]);
    assert_eq!(code, 0);
}
