//! From files to tokens, as a user's files are: every kind of damage and every size.

use super::*;
use crate::error::Result;
use crate::tokenizer::{Tokenizer, TokenizerKind};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

/// Files in a folder that goes away with the value.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, bytes) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn input(&self, names: &[&str]) -> Input {
        Input::Paths(names.iter().map(|name| self.path().join(name)).collect())
    }
}

fn build(input: &Input, options: &DataOptions) -> Result<Dataset> {
    Dataset::build(input, options, None, &mut |_, _| ())
}

fn build_text(text: impl AsRef<[u8]>, options: &DataOptions) -> Result<Dataset> {
    let folder = Folder::new(&[("text.txt", text.as_ref())]);
    build(&folder.input(&["text.txt"]), options)
}

fn everything_trains() -> DataOptions {
    DataOptions { val_fraction: 0.0, ..Default::default() }
}

fn ids(tokens: &Tokens) -> Vec<u32> {
    let mut ids = vec![0; tokens.len()];
    tokens.read(0, &mut ids).unwrap();
    ids
}

fn text_of(dataset: &Dataset) -> String {
    let val = dataset.val.as_ref().map(ids).unwrap_or_default();
    dataset.tokenizer.decode(&[ids(&dataset.train), val].concat())
}

/// Message and hint of what must fail.
fn failure(result: Result<Dataset>) -> String {
    let error = result.unwrap_err();
    format!("{error} | {}", error.hint().unwrap_or("no hint"))
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn tiny_shakespeare_is_the_original_and_splits_as_nanogpt_does() {
    use sha2::Digest;
    let dataset = build(&Input::TinyShakespeare, &DataOptions::default()).unwrap();
    let text = text_of(&dataset);
    let hash: String = sha2::Sha256::digest(&text).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hash, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed");
    assert_eq!(text.len(), 1_115_394);
    assert_eq!(dataset.tokenizer.vocab_size(), 65);
    assert_eq!(dataset.train.len(), 1_003_854);
    assert_eq!(dataset.val.as_ref().unwrap().len(), 111_540);
    assert_eq!((dataset.train_bytes, dataset.val_bytes), (1_003_854, 111_540));
    assert_eq!(ids(&dataset.train)[..5], [18, 47, 56, 57, 58]);
    assert!(dataset.notices.is_empty(), "{:?}", dataset.notices);
}

#[test]
fn a_text_shorter_than_the_context_is_told_the_largest_block_size_that_works() {
    let dataset = build_text("x".repeat(40), &everything_trains()).unwrap();
    let error = dataset.check(64).unwrap_err();
    assert_has(
        &error.to_string(),
        &["text.txt", "training split has 40 tokens", "block_size = 64 needs 65", "works is 39"],
    );
    dataset.check(39).unwrap();
    dataset.check(40).unwrap_err();

    let one = build_text("x", &everything_trains()).unwrap();
    assert_has(&one.check(1).unwrap_err().to_string(), &["has 1 token, ", "no block_size works"]);
}

#[test]
fn a_validation_split_shorter_than_the_context_is_found_before_training() {
    let dataset = build_text("x".repeat(500), &DataOptions::default()).unwrap();
    let error = dataset.check(64).unwrap_err();
    assert_has(&error.to_string(), &["validation split has 50 tokens", "works is 49"]);
    assert_has(error.hint().unwrap(), &["val_fraction = 0", "smaller block_size"]);
    dataset.check(49).unwrap();

    let most = DataOptions { val_fraction: 0.9, ..Default::default() };
    let error = build_text("x".repeat(500), &most).unwrap().check(64).unwrap_err();
    assert_has(&error.to_string(), &["training split has 49 tokens", "works is 48"]);
}

#[test]
fn a_val_fraction_of_zero_means_no_validation_and_one_is_refused() {
    let dataset = build_text("x".repeat(500), &everything_trains()).unwrap();
    assert!(dataset.val.is_none() && dataset.train.len() == 500);
    for val_fraction in [1.0, -0.1, f64::NAN, f64::INFINITY] {
        let options = DataOptions { val_fraction, ..Default::default() };
        assert_has(&failure(build_text("x", &options)), &["val_fraction = ", "must be in [0, 1)"]);
    }
    let hardly_any = DataOptions { val_fraction: 1e-20, ..Default::default() };
    let dataset = build_text("x".repeat(500), &hardly_any).unwrap();
    assert_has(&dataset.check(9).unwrap_err().to_string(), &["validation split has 0 tokens"]);
}

#[test]
fn a_file_that_is_not_utf_8_is_told_the_byte_and_the_line() {
    let mut bytes = "0123456789abcde\n0123456789é\n".repeat(40).into_bytes();
    bytes.truncate(1000);
    bytes.push(0xff);
    bytes.extend(b"more");
    assert_has(
        &failure(build_text(&bytes, &everything_trains())),
        &["text.txt is not UTF-8: 0xFF at byte 1000 (line 69)", "iconv", "lossy"],
    );
    let lossy = DataOptions { lossy: true, ..everything_trains() };
    let dataset = build_text(&bytes, &lossy).unwrap();
    assert_eq!(text_of(&dataset), String::from_utf8_lossy(&bytes));
    assert_has(&dataset.notices[0], &["replaced by U+FFFD: 1, the first at byte 1000 (line 69)"]);

    let cut = failure(build_text(&"é".as_bytes()[..1], &everything_trains()));
    assert_has(&cut, &["0xC3 and the end of the file at byte 0 (line 1)"]);
}

#[test]
fn a_file_in_utf_16_is_recognised_with_and_without_its_mark() {
    let utf_16 = |mark: &str| -> Vec<u8> {
        format!("{mark}Some words\n").encode_utf16().flat_map(u16::to_le_bytes).collect()
    };
    for bytes in [utf_16("\u{feff}"), utf_16("")] {
        let error = failure(build_text(bytes, &everything_trains()));
        assert_has(&error, &["looks like UTF-16", "iconv -f UTF-16"]);
    }
}

#[test]
fn a_chinese_file_in_another_encoding_is_not_read_as_garbage() {
    let gbk = [0xc4, 0xe3, 0xba, 0xc3];
    assert_has(&failure(build_text(gbk, &everything_trains())), &["0xC4 at byte 0 (line 1)"]);
    let dataset = build_text("你好你好", &everything_trains()).unwrap();
    assert_eq!((dataset.tokenizer.vocab_size(), dataset.train.len()), (2, 4));
    assert_eq!(dataset.train_bytes, 12);
}

#[test]
fn a_binary_file_is_called_one() {
    let error = failure(build_text(b"\x7fELF\x02\x01\x01\x00\x00ab", &everything_trains()));
    assert_has(&error, &["is not a text: byte 7 is 0"]);
}

#[test]
fn characters_outside_ascii_come_back_as_they_were() {
    let text = "“quoted” é ※ 😊 你好\n";
    for tokenizer in [TokenizerKind::Char, TokenizerKind::Byte] {
        let options = DataOptions { tokenizer, ..everything_trains() };
        assert_eq!(text_of(&build_text(text, &options).unwrap()), text);
    }
}

#[test]
fn one_byte_order_mark_is_left_out_and_said_so() {
    let dataset = build_text("\u{feff}ab\u{feff}", &everything_trains()).unwrap();
    assert_eq!(text_of(&dataset), "ab\u{feff}");
    assert_has(&dataset.notices[0], &["text.txt: a byte order mark"]);
    let dataset =
        build_text("\u{feff}abababababababababababababababababababab", &everything_trains());
    assert_eq!(dataset.unwrap().tokenizer.vocab_size(), 2);
}

#[test]
fn windows_line_ends_are_kept_with_a_notice_or_normalized_on_request() {
    let unix = "First line\nand a second\n\n\n".repeat(9);
    let windows = unix.replace('\n', "\r\n");
    let kept = build_text(&windows, &everything_trains()).unwrap();
    assert_eq!(text_of(&kept), windows);
    assert_has(&kept.notices[0], &["\\r, 36 times", "token of its own"]);

    let options = DataOptions { newline: Newline::Normalize, ..everything_trains() };
    let normalized = build_text(&windows, &options).unwrap();
    assert_eq!(text_of(&normalized), unix);
    assert_eq!(normalized.tokenizer.vocab_size() + 1, kept.tokenizer.vocab_size());
    assert_has(&normalized.notices[0], &["(\\r\\n, 36 times)"]);
    assert_eq!(text_of(&build_text("a\r\rb\r", &options).unwrap()), "a\n\nb\n");
}

#[test]
fn a_vocabulary_that_is_large_for_its_text_is_noticed() {
    let many: String = ('\u{4e00}'..).take(10_001).collect::<String>().repeat(25);
    for (text, large) in [(many, true), ("ab".repeat(10), true), ("ab".repeat(20), false)] {
        let notices = build_text(&text, &everything_trains()).unwrap().notices;
        assert_eq!(
            notices.iter().any(|n| n.contains("different characters")),
            large,
            "{notices:?}"
        );
    }
}

#[test]
fn files_are_joined_in_order_with_one_line_break_between() {
    let folder = Folder::new(&[
        ("b.txt", b"second"),
        ("a/z.TXT", b"first\n"),
        ("a/skipped.md", b"no"),
        ("c.txt", b""),
        ("d.txt", "\u{feff}last".as_bytes()),
    ]);
    let dataset = build(&folder.input(&[""]), &everything_trains()).unwrap();
    assert_eq!(text_of(&dataset), "first\nsecond\nlast");
    assert_has(&dataset.source, &["z.TXT and 3 more"]);
    assert!(dataset.notices.iter().any(|n| n.ends_with("c.txt is empty")), "{:?}", dataset.notices);

    let dataset = build(&folder.input(&["b.txt", "a/z.TXT", "b.txt"]), &everything_trains());
    assert_eq!(text_of(&dataset.unwrap()), "second\nfirst\nsecond");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = Folder::new(&[("empty.txt", b""), ("docs/readme.md", b"x")]);
    for (names, parts) in [
        (vec!["empty.txt"], vec!["empty.txt is empty"]),
        (vec!["none.txt"], vec!["cannot read", "none.txt"]),
        (vec!["docs"], vec!["docs: no .txt file in this folder"]),
        (vec![], vec!["no file was named"]),
    ] {
        assert_has(&failure(build(&folder.input(&names), &everything_trains())), &parts);
    }
    assert_has(
        &failure(Dataset::open(folder.path())),
        &["has no tokenizer.json", "the text itself"],
    );
}

#[cfg(unix)]
#[test]
fn what_cannot_be_read_in_a_folder_is_left_out_and_named() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new(&[("a.txt", b"x"), ("b.txt", b"y"), ("shut/c.txt", b"z")]);
    let at = |name: &str| folder.path().join(name);
    symlink(folder.path(), at("loop")).unwrap();
    symlink("nowhere", at("gone.txt")).unwrap();
    symlink("/dev/zero", at("zero.txt")).unwrap();
    for name in ["b.txt", "shut"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    // Rights do not hold back an administrator.
    let shut = fs::read(at("b.txt")).is_err();
    let dataset = build(&folder.input(&[""]), &everything_trains()).unwrap();
    assert_eq!(text_of(&dataset), if shut { "x" } else { "x\ny\nz" });
    let names = ["loop", "gone.txt", "zero.txt", "b.txt", "shut"];
    let told = if shut { &names[..] } else { &names[..3] };
    let left_out = dataset.notices.iter().filter(|notice| notice.contains("was left out"));
    assert_eq!(left_out.count(), told.len(), "{:?}", dataset.notices);
    assert_has(&dataset.notices.join("\n"), told);
    assert_has(&dataset.notices.join("\n"), &["leads back to", "No such file", "regular file"]);
    fs::set_permissions(at("shut"), fs::Permissions::from_mode(0o700)).unwrap();

    assert_has(
        &failure(build(&Input::Paths(vec!["/dev/zero".into()]), &everything_trains())),
        &["/dev/zero is a device"],
    );
    fs::remove_file(at("a.txt")).unwrap();
    fs::remove_file(at("b.txt")).unwrap();
    fs::remove_dir_all(at("shut")).unwrap();
    let none = failure(build(&folder.input(&[""]), &everything_trains()));
    assert_has(&none, &["no .txt file in this folder", "was left out"]);
}

#[test]
fn byte_tokens_take_any_bytes() {
    let bytes: Vec<u8> =
        (0..=255).rev().chain([0xff, 0xfe, 0, 0, 0xe2, 0x82]).cycle().take(700).collect();
    let options = DataOptions { tokenizer: TokenizerKind::Byte, ..everything_trains() };
    for text in [bytes.clone(), [&b"\xff\xfea\0b\0"[..], &bytes].concat(), vec![0; 9]] {
        let dataset = build_text(&text, &options).unwrap();
        let found: Vec<u8> = ids(&dataset.train).into_iter().map(|id| id as u8).collect();
        assert!(found == text, "{} bytes of {}", found.len(), text.len());
        assert_eq!(dataset.train_bytes, text.len() as u64);
    }
    let halves = DataOptions { val_fraction: 0.5, ..options.clone() };
    let dataset = build_text(&bytes, &halves).unwrap();
    let both = [ids(&dataset.train), ids(&dataset.val.unwrap())].concat();
    assert!(both.iter().map(|&id| id as u8).eq(bytes.iter().copied()));
    assert_has(&dataset.notices.join("\n"), &["not UTF-8, kept byte by byte"]);
    let bytes = &bytes[2..]; // without what looks like UTF-16's mark
    let replaced = build_text(bytes, &DataOptions { lossy: true, ..options }).unwrap();
    assert_eq!(text_of(&replaced), String::from_utf8_lossy(bytes));
}

#[test]
fn a_given_vocabulary_is_used_and_what_it_lacks_is_placed() {
    let folder = Folder::new(&[("a.txt", b"abba\n"), ("b.txt", "ab\nb\u{e9}z".as_bytes())]);
    let vocabulary = |text: &str| DataOptions {
        vocabulary: Some(Tokenizer::from_chars(text.chars())),
        ..everything_trains()
    };
    let input = folder.input(&["a.txt", "b.txt"]);
    let dataset = build(&input, &vocabulary("\nabéz and more")).unwrap();
    assert_eq!(text_of(&dataset), "abba\nab\nbéz");
    assert_has(
        &failure(build(&input, &vocabulary("ab\n"))),
        &["b.txt: 2 characters not in the vocabulary of 3: 'é' at line 2, column 2; 'z' at"],
    );
}

#[test]
fn a_shuffled_split_validates_on_both_halves_of_a_text() {
    let text = "a".repeat(5000) + &"b".repeat(5000);
    let count = |split| {
        let dataset = build_text(&text, &DataOptions { split, ..Default::default() }).unwrap();
        let val = ids(&dataset.val.unwrap());
        (dataset.train.len(), val.iter().filter(|&&id| id == 0).count(), val.len())
    };
    assert_eq!(count(Split::Contiguous), (9000, 0, 1000));
    assert_eq!(count(Split::Shuffled), (9000, 500, 1000));
}

#[test]
fn byte_tokens_split_at_the_same_character() {
    let text = "é".repeat(95) + "abcde";
    let options = DataOptions { tokenizer: TokenizerKind::Byte, ..Default::default() };
    let dataset = build_text(text, &options).unwrap();
    assert_eq!((dataset.train.len(), dataset.val.unwrap().len()), (180, 15));
    assert_eq!((dataset.train_bytes, dataset.val_bytes), (180, 15));
}

#[test]
fn a_folder_of_tokens_is_the_same_in_memory_and_opened_again() {
    let folder = Folder::new(&[("text.txt", "Tokens é 😊\n".repeat(50).as_bytes())]);
    let (input, dir) = (folder.input(&["text.txt"]), folder.path().join("new/run"));
    for (tokenizer, val_fraction) in [(TokenizerKind::Char, 0.1), (TokenizerKind::Byte, 0.0)] {
        let options = DataOptions { tokenizer, val_fraction, ..Default::default() };
        let (mut calls, mut last) = (0, (0, 0));
        let filed = Dataset::build(&input, &options, Some(&dir), &mut |done, total| {
            assert!(done >= last.0 && done <= total);
            (calls, last) = (calls + 1, (done, total));
        })
        .unwrap();
        assert!(calls > 2 && last.0 == last.1 && last.1 == 2 * 750, "{last:?}");
        let memory = build(&input, &options).unwrap();
        let opened = Dataset::open(&dir).unwrap();
        for dataset in [&filed, &opened] {
            assert_eq!(dataset.tokenizer, memory.tokenizer);
            assert_eq!(ids(&dataset.train), ids(&memory.train));
            assert_eq!(dataset.val.as_ref().map(ids), memory.val.as_ref().map(ids));
            assert_eq!(dataset.train_bytes, memory.train_bytes);
            assert_eq!(dataset.val_bytes, memory.val_bytes);
        }
        let mut names: Vec<PathBuf> =
            dir.read_dir().unwrap().map(|file| file.unwrap().file_name().into()).collect();
        names.sort();
        let expected: &[&str] = match val_fraction > 0.0 {
            true => &["tokenizer.json", "train.bin", "val.bin"],
            false => &["tokenizer.json", "train.bin"],
        };
        assert!(names.iter().eq(expected.iter().map(Path::new)), "{names:?}");
    }
    let chars = Tokenizer::from_chars("ab".chars());
    fs::write(dir.join("tokenizer.json"), chars.to_json()).unwrap();
    assert_has(&failure(Dataset::open(&dir)), &["train.bin belongs to another tokenizer"]);
}

#[test]
fn a_failed_build_leaves_the_folder_as_it_was() {
    let folder = Folder::new(&[("good.txt", b"abc"), ("bad.txt", b"ab\xff")]);
    let dir = folder.path().join("run");
    let build = |name| {
        let input = folder.input(&[name]);
        Dataset::build(&input, &everything_trains(), Some(&dir), &mut |_, _| ())
    };
    build("good.txt").unwrap();
    build("bad.txt").unwrap_err();
    assert_eq!(text_of(&Dataset::open(&dir).unwrap()), "abc");
    assert_eq!(dir.read_dir().unwrap().count(), 2);
}

#[cfg(unix)]
#[test]
fn a_pipe_can_be_read_although_every_text_is_read_twice() {
    let folder = Folder::new(&[]);
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for dir in [None, Some(folder.path())] {
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::write(pipe, "piped text\n".repeat(20)).unwrap()
        });
        let input = Input::Paths(vec![pipe.clone()]);
        let dataset = Dataset::build(&input, &everything_trains(), dir, &mut |_, _| ()).unwrap();
        writer.join().unwrap();
        assert_eq!(text_of(&dataset), "piped text\n".repeat(20));
    }
}

proptest! {
    #[test]
    fn any_text_is_its_tokens_whatever_it_is_cut_into(text in "[^\0\r]{1,80}") {
        let text = text.trim_start_matches('\u{feff}');
        prop_assume!(!text.is_empty());
        for tokenizer in [TokenizerKind::Char, TokenizerKind::Byte] {
            let options = DataOptions { tokenizer, ..Default::default() };
            prop_assert_eq!(text_of(&build_text(text, &options).unwrap()), text);
        }
    }

    #[test]
    fn any_bytes_are_read_as_the_standard_library_reads_them(
        bytes in prop::collection::vec(prop_oneof![Just(b'a'), Just(0xe2), Just(0x82), 1u8..], 1..60)
    ) {
        let marks: [&[u8]; 3] = [&[0xff, 0xfe], &[0xfe, 0xff], &[0xef, 0xbb, 0xbf]];
        prop_assume!(!marks.iter().any(|mark| bytes.starts_with(mark)));
        prop_assert_eq!(
            build_text(&bytes, &everything_trains()).is_ok(),
            std::str::from_utf8(&bytes).is_ok()
        );
        let lossy = DataOptions { lossy: true, ..everything_trains() };
        let read = text_of(&build_text(&bytes, &lossy).unwrap());
        prop_assert_eq!(read, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn normalized_newlines_do_not_depend_on_where_the_text_is_cut(text in "[a\r\n]{1,60}") {
        let options = DataOptions { newline: Newline::Normalize, ..everything_trains() };
        let expected = text.replace("\r\n", "\n").replace('\r', "\n");
        prop_assert_eq!(text_of(&build_text(&text, &options).unwrap()), expected);
    }
}
