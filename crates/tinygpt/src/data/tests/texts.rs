//! What the bytes of a text become: encodings, marks, line ends, vocabularies.

use super::*;
use crate::data::Newline;
use crate::tokenizer::TokenizerKind;
use proptest::prelude::*;

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
fn a_file_in_utf_32_is_not_taken_for_utf_16() {
    for mark in ["\u{feff}", ""] {
        let chars = || mark.chars().chain("Some words\n".chars()).map(u32::from);
        let little: Vec<u8> = chars().flat_map(u32::to_le_bytes).collect();
        let big: Vec<u8> = chars().flat_map(u32::to_be_bytes).collect();
        for bytes in [little, big] {
            let error = failure(build_text(bytes, &everything_trains()));
            assert_has(&error, &["looks like UTF-32", "iconv -f UTF-32"]);
        }
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
        bytes in prop::collection::vec(
            prop_oneof![Just(b'a'), Just(0xe2), Just(0x82), 1u8..],
            1..60,
        )
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
