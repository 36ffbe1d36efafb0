//! Texts in tokens of every kind, read in pieces of a few bytes.

use super::*;
use crate::data::{Count, Split};
use crate::tokenizer::{Tokenizer, TokenizerKind};
use proptest::prelude::*;

fn of(tokenizer: TokenizerKind) -> DataOptions {
    DataOptions { tokenizer, ..everything_trains() }
}

fn gpt2() -> Tokenizer {
    TokenizerKind::Gpt2.ready().unwrap().unwrap()
}

#[test]
fn tiny_shakespeare_has_as_many_of_gpt_2s_tokens_as_in_nanogpt() {
    let mut options = of(TokenizerKind::Gpt2);
    let whole = build(&Input::TinyShakespeare, &options).unwrap();
    assert_eq!((whole.train.len(), whole.train_bytes), (338_025, 1_115_394));
    assert_eq!(whole.train.width, 2);
    options.val_fraction = 0.1;
    let split = build(&Input::TinyShakespeare, &options).unwrap();
    assert_eq!((split.train.len(), split.val.unwrap().len()), (301_966, 36_059));
}

#[test]
fn a_learned_vocabulary_is_that_of_the_whole_text_and_kept_beside_the_tokens() {
    let folder =
        Folder::new(&[("a.txt", b"the cat, the dog,\n the bird 7 77\n".repeat(9).as_slice())]);
    let options = of(TokenizerKind::Bpe(270));
    let dir = folder.path().join("data");
    let input = folder.input(&["a.txt"]);
    let dataset = Dataset::build(&input, &options, Some(&dir), &mut |_, _| ()).unwrap();
    let text = fs::read_to_string(folder.path().join("a.txt")).unwrap();
    assert_eq!(dataset.tokenizer, Tokenizer::from_text(&options.tokenizer, &text).unwrap());
    assert_eq!(dataset.tokenizer.vocab_size(), 270);
    assert!(dataset.train.len() < text.len() / 2);
    assert_eq!(text_of(&dataset), text);
    assert_eq!(Dataset::open(&dir).unwrap().tokenizer, dataset.tokenizer);
    let dataset = build_text("abcd", &of(TokenizerKind::Bpe(270))).unwrap();
    assert_has(&dataset.notices[0], &["too short for 270 tokens", "256"]);
}

#[test]
fn the_end_of_a_document_is_text_unless_it_is_asked_for() {
    let text = "one<|endoftext|>two <|endoftext|>";
    let ordinary = build_text(text, &of(TokenizerKind::Gpt2)).unwrap();
    assert!(!ids(&ordinary.train).contains(&50256));
    assert_eq!(text_of(&ordinary), text);
    for tokenizer in [TokenizerKind::Gpt2, TokenizerKind::Bpe(258)] {
        let options = DataOptions { allow_special: true, ..of(tokenizer) };
        let special = build_text(text, &options).unwrap();
        let end = special.tokenizer.start();
        assert_eq!(ids(&special.train).iter().filter(|&&id| id == end).count(), 2);
        assert_eq!(text_of(&special), text);
    }
    let options = DataOptions { allow_special: true, ..everything_trains() };
    assert_has(&build_text(text, &options).unwrap().notices[1], &["allow_special changes nothing"]);
}

#[test]
fn the_end_of_text_stands_between_files_where_the_tokenizer_has_it_and_nowhere_else() {
    let files: [(&str, &[u8]); 4] =
        [("a.txt", b"one two\n"), ("b.txt", b""), ("c.txt", b"three"), ("d.txt", b"four\n\n")];
    let (folder, text) = (Folder::new(&files), "one two\nthree\nfour\n\n");
    let input = folder.input(&["a.txt", "b.txt", "c.txt", "d.txt"]);
    let encode = |text: &str| gpt2().encode(text, "x").unwrap();
    let expected =
        [encode("one two\n"), vec![50256], encode("three\n"), vec![50256], encode("four\n\n")];
    let data = build(&input, &of(TokenizerKind::Gpt2)).unwrap();
    assert_eq!(ids(&data.train), expected.concat());
    assert_eq!(data.train_bytes, text.len() as u64, "it stands for no text");
    assert!(data.notices.iter().any(|note| note.contains("<|endoftext|> stands between its 4")));
    let count = Count::of(&input, &of(TokenizerKind::Gpt2), None, &mut |_, _| ()).unwrap();
    assert_eq!((count.times[50256], count.tokens() as usize), (2, data.train.len()));
    // In whichever split the file before it ends.
    let tenth = DataOptions { val_fraction: 0.3, ..of(TokenizerKind::Gpt2) };
    let data = build(&input, &tenth).unwrap();
    assert_eq!(ids(&data.train), expected[..4].concat());
    for tokenizer in [TokenizerKind::Char, TokenizerKind::Bpe(260)] {
        let data = build(&input, &of(tokenizer)).unwrap();
        assert_eq!(text_of(&data), text);
    }
    let alone = build(&folder.input(&["a.txt"]), &of(TokenizerKind::Gpt2)).unwrap();
    assert_eq!(ids(&alone.train), encode("one two\n"));
}

#[test]
fn a_tokenizer_file_that_is_not_there_or_no_tokenizer_is_named() {
    let folder = Folder::new(&[("no.json", b"{}"), ("empty/x", b"")]);
    let build = |name: &str| {
        let path = folder.path().join(name);
        failure(build_text("abc", &of(TokenizerKind::File(path))))
    };
    assert_has(&build("none.json"), &["none.json", "cannot read"]);
    assert_has(&build("no.json"), &["no.json is none that can be read"]);
    assert_has(&build("empty"), &["empty has no tokenizer.json"]);
}

#[test]
fn a_text_that_its_tokenizer_can_only_take_as_a_whole_is_refused_where_it_is_long() {
    let json = r#"{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null, "model": {"type": "Unigram", "unk_id": 0,
        "vocab": [["<unk>", 0.0], ["the ", -1.0], ["the", -2.0]]}}"#;
    let vocabulary = Some(Tokenizer::from_json(json).unwrap());
    let options = DataOptions { vocabulary, ..everything_trains() };
    let short = build_text("the ".repeat(4096), &options).unwrap();
    assert!(ids(&short.train) == [1; 4096], "other ids");
    let text = "the ".repeat(4096 + 64);
    let folder = Folder::new(&[("text.txt", text.as_bytes())]);
    let (input, dir) = (folder.input(&["text.txt"]), folder.path().join("data"));
    let count = Count::of(&input, &options, Some(&dir), &mut |_, _| ()).unwrap_err();
    for error in [build(&input, &options).unwrap_err(), count] {
        let said = error.to_string();
        assert_has(&said, &["text.txt has over 16384 bytes without a place", "expected at most"]);
        assert_has(error.hint().unwrap(), &["take a shorter text", "another tokenizer: gpt2"]);
    }
    assert!(!dir.exists(), "no half of a file is left");
    // A part of a split is a text of its own.
    let split = DataOptions { val_fraction: 0.5, ..options };
    assert!(build(&input, &split).is_ok());
}

#[test]
fn a_count_is_that_of_the_tokens_and_its_file_opens() {
    let folder = Folder::new(&[("a.txt", "né the the".as_bytes())]);
    let path = folder.path().join("a.tokens");
    let (input, options) = (folder.input(&["a.txt"]), of(TokenizerKind::Gpt2));
    let count = Count::of(&input, &options, Some(&path), &mut |_, _| ()).unwrap();
    let expected = gpt2().encode("né the the", "x").unwrap();
    assert_eq!((count.tokens(), count.bytes), (expected.len() as u64, 11));
    assert_eq!(count.distinct(), expected.len() - 1);
    let (tokens, bytes) = Tokens::open(&path, &gpt2()).unwrap();
    assert_eq!((ids(&tokens), bytes), (expected, 11));
    let left: Vec<_> = folder.path().read_dir().unwrap().collect();
    assert_eq!(left.len(), 2, "no temporary file stays behind");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_text_read_in_pieces_has_the_ids_of_the_whole(
        words in prop::collection::vec(
            "<\\|endoftext\\|>|<\\|end|'|'s|'ll|l| |   |\n|\r\n|[a-zé]{1,20}|[0-9]|你好|😊|[!.]{1,3}", 1..40,
        ),
        allow_special: bool, val_fraction in 0.0..0.9f64, shuffled: bool,
    ) {
        let text = words.concat();
        let split = if shuffled { Split::Shuffled } else { Split::Contiguous };
        let options = DataOptions { allow_special, split, val_fraction, ..of(TokenizerKind::Gpt2) };
        let dataset = build_text(&text, &options).unwrap();
        let encode = |text: &str| match allow_special {
            true => gpt2().encode_with_special(text, "x").unwrap(),
            false => gpt2().encode(text, "x").unwrap(),
        };
        let chars: Vec<char> = text.chars().collect();
        let mut borders = match val_fraction > 0.0 {
            true => split.borders(chars.len() as u64, val_fraction, options.seed),
            false => Vec::new(),
        };
        borders.push(chars.len() as u64);
        // Neighbours on the same side, which an empty block leaves, are one text.
        let (mut texts, mut at): (Vec<(usize, String)>, usize) = (Vec::new(), 0);
        for (i, end) in borders.into_iter().enumerate() {
            let part: String = chars[at..end as usize].iter().collect();
            at = end as usize;
            match texts.last_mut() {
                _ if part.is_empty() => {}
                Some((side, text)) if *side == i % 2 => text.push_str(&part),
                _ => texts.push((i % 2, part)),
            }
        }
        let mut parts = [Vec::new(), Vec::new()];
        texts.iter().for_each(|(side, text)| parts[*side].extend(encode(text)));
        prop_assert_eq!(&ids(&dataset.train), &parts[0]);
        let val = dataset.val.as_ref().map(ids).unwrap_or_default();
        prop_assert_eq!(&val, &parts[1]);
        prop_assert_eq!(dataset.train_bytes + dataset.val_bytes, text.len() as u64);
    }
}

#[test]
fn nanogpts_files_of_bare_ids_are_copied_and_checked() {
    let bare = |ids: &[u16]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>();
    let (train, val) = (bare(&[15496, 995, 50256]), bare(&[995, 995]));
    let folder = Folder::new(&[("d/train.bin", &*train), ("d/val.bin", &*val)]);
    let (from, to) = (folder.path().join("d"), folder.path().join("to"));
    let adopt = |options: &DataOptions| Dataset::adopt(&from, options, &to, &mut |_, _| ());
    let gpt2s = DataOptions { tokenizer: TokenizerKind::Gpt2, ..DataOptions::default() };
    assert!(Dataset::is_prepared(&from) && !Dataset::is_prepared(folder.path()));
    let dataset = adopt(&gpt2s).unwrap();
    assert_eq!(ids(&dataset.train), [15496, 995, 50256]);
    assert_eq!((dataset.train_bytes, dataset.val_bytes), (24, 12));
    assert_eq!(text_of(&dataset), "Hello world<|endoftext|> world world");
    // What was copied is prepared too, and says what it is.
    let again = Dataset::adopt(&to, &DataOptions::default(), &from.join("x"), &mut |_, _| ());
    assert_eq!(text_of(&again.unwrap()), text_of(&dataset));

    assert_has(
        &failure(adopt(&DataOptions::default())),
        &["no tokenizer.json", "--tokenizer gpt2"],
    );
    let bytes = DataOptions { tokenizer: TokenizerKind::Byte, ..DataOptions::default() };
    assert_has(&failure(adopt(&bytes)), &["token id 15496 at offset 0 >= vocab_size 256"]);
    fs::write(from.join("val.bin"), b"abc").unwrap();
    assert_has(&failure(adopt(&gpt2s)), &["val.bin has 3 bytes"]);
    fs::remove_file(from.join("val.bin")).unwrap();
    assert_has(&failure(adopt(&gpt2s)), &["no val.bin", "val_fraction = 0"]);
    let all = adopt(&of(TokenizerKind::Gpt2)).unwrap();
    assert!(all.val.is_none());
}
