//! Texts of every kind, good and bad, through the program.

use crate::place::{Place, Said, tiny};
use std::io::Write;
use std::process::Stdio;

/// A start that fails leaves nothing: no run, no folder of runs, no half-made tokens.
#[track_caller]
fn fails_cleanly(place: &Place, code: i32, words: &str) -> String {
    let before = place.names(".");
    let error = place.train(words).failed(code);
    assert_eq!(place.names("."), before, "{words}");
    error
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in: {text}");
}

fn prose() -> String {
    "To be, or not to be: that is the question.\n".repeat(30)
}

#[test]
fn texts_too_short_are_told_what_would_work() {
    let place = Place::new();
    place.write("short.txt", "a".repeat(40));
    let error = fails_cleanly(&place, 1, "short.txt --block-size 64 --val-fraction 0");
    contains(&error, &["short.txt", "40 tokens", "block_size = 64", "works is 39"]);
    let error = fails_cleanly(&place, 1, "short.txt --block-size 64");
    contains(&error, &["block_size = 64", "works is 3", "val_fraction = 0"]);
    place.write("500.txt", "abcde".repeat(100));
    let error = fails_cleanly(&place, 1, "500.txt --block-size 64");
    contains(&error, &["validation split has 50 tokens", "works is 49"]);
    place.train("500.txt --block-size 49").succeeded();
    place.train("short.txt --block-size 39 --val-fraction 0").succeeded();
    let place = Place::new();
    place.write("empty.txt", "");
    contains(&fails_cleanly(&place, 1, "empty.txt"), &["empty.txt", "is empty"]);
    contains(&fails_cleanly(&place, 1, "missing.txt"), &["cannot read missing.txt"]);
    contains(&fails_cleanly(&place, 1, "missing.txt --out-dir a/b/c"), &["missing.txt"]);
}

#[test]
fn validation_is_a_share_of_the_text_or_nothing() {
    let place = Place::new();
    for wrong in ["1", "1.5", "-0.1", "nan"] {
        let error = fails_cleanly(&place, 2, &format!("--val-fraction {wrong}"));
        contains(&error, &["val_fraction", "[0, 1)"]);
    }
    place.write("my.txt", prose());
    let said = place.train("my.txt --val-fraction 0 --patience 1").succeeded();
    contains(&said.out, &["no validation", "step 20: train loss "]);
    assert!(!said.out.contains("best so far") && !said.out.contains("val loss"), "{}", said.out);
    assert_eq!(place.step_of("runs/quick/best"), 20);
    place.run("train --resume --max-iters 25").succeeded();
    place.train("my.txt --split shuffled").succeeded();
}

#[test]
fn bytes_that_are_not_utf_8_are_named_with_their_place() {
    let place = Place::new();
    let mut bytes = "line\n".repeat(200).into_bytes();
    bytes.insert(1000, 0xff);
    bytes.extend("more\n".repeat(40).bytes());
    place.write("bad.txt", &bytes);
    let error = fails_cleanly(&place, 1, "bad.txt");
    contains(&error, &["bad.txt", "0xFF at byte 1000 (line 201)", "lossy"]);
    let said = place.train("bad.txt --lossy").succeeded();
    contains(&said.out, &["U+FFFD", "byte 1000"]);
    let utf_16: Vec<u8> = prose().encode_utf16().flat_map(u16::to_le_bytes).collect();
    for bytes in [[&[0xff, 0xfe], &utf_16[..]].concat(), utf_16] {
        place.write("wide.txt", bytes);
        contains(&fails_cleanly(&place, 1, "wide.txt"), &["looks like UTF-16", "iconv"]);
    }
}

#[test]
fn marks_and_line_ends_of_windows_are_told() {
    let place = Place::new();
    place.write("mark.txt", format!("\u{feff}{}", prose()));
    let said = place.train("mark.txt").succeeded();
    contains(&said.out, &["byte order mark"]);
    assert!(!place.read("runs/quick/data/tokenizer.json").contains('\u{feff}'));
    let vocabulary = |run: &str| {
        let config = place.read(&format!("{run}/config.toml"));
        let line = config.lines().find(|line| line.starts_with("vocab_size")).unwrap();
        line.split_whitespace().nth(2).unwrap().parse::<u32>().unwrap()
    };
    let letters = vocabulary("runs/quick");
    place.write("windows.txt", prose().replace('\n', "\r\n"));
    let said = place.train("windows.txt").succeeded();
    contains(&said.out, &["\\r, 30 times", "--newline normalize"]);
    assert_eq!(vocabulary("runs/quick-2"), letters + 1);
    let said = place.train("windows.txt --newline normalize").succeeded();
    contains(&said.out, &["turned into \\n"]);
    assert_eq!(vocabulary("runs/quick-3"), letters);
}

#[test]
fn files_folders_and_standard_input_are_texts() {
    let place = Place::new();
    place.write("books/one.txt", prose());
    place.write("books/more/two.TXT", prose());
    place.write("books/picture.png", [0, 159, 146, 150]);
    contains(&place.train("books").succeeded().out, &["text        books: 2,322 training"]);
    contains(&place.train("books/one.txt books/more/two.TXT").succeeded().out, &["and 1 more"]);
    contains(&fails_cleanly(&place, 1, "books/picture.png"), &["is not a text: byte 0 is 0"]);
    place.write("pictures/a.png", "");
    contains(&fails_cleanly(&place, 1, "pictures"), &["no .txt file in this folder"]);

    let piped = |text: &[u8], words: &str| {
        let mut child = place.command(&tiny(words)).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        Said::of(child.wait_with_output().unwrap())
    };
    contains(&piped(prose().as_bytes(), "-").succeeded().out, &["standard input"]);
    let before = place.names("runs");
    contains(&piped(b"", "-").failed(1), &["standard input", "is empty"]);
    assert_eq!(place.names("runs"), before);
}

#[cfg(unix)]
#[test]
fn bytes_of_any_kind_train_as_bytes_and_a_folder_with_broken_links_trains() {
    let place = Place::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(2000).collect();
    place.write("picture.bin", bytes);
    contains(&fails_cleanly(&place, 1, "picture.bin"), &["--tokenizer byte"]);
    place.train("picture.bin --tokenizer byte").succeeded();
    place.write("books/a.txt", prose());
    std::os::unix::fs::symlink("..", place.at("books/up")).unwrap();
    std::os::unix::fs::symlink("nowhere.txt", place.at("books/gone.txt")).unwrap();
    let said = place.train("books").succeeded();
    contains(&said.out, &["gone.txt was left out", "up was left out: it leads back to"]);
    contains(&fails_cleanly(&place, 1, "/dev/zero"), &["/dev/zero is a device"]);
}

#[test]
fn every_script_trains_as_characters_and_as_bytes() {
    let place = Place::new();
    place.write("world.txt", "你好，世界！😊 “naïve” Привет\n".repeat(40));
    for tokenizer in ["char", "byte"] {
        let words = format!("world.txt --tokenizer {tokenizer} --sample-tokens 30");
        let said = place.train(&words).succeeded();
        let measure = if tokenizer == "char" { "bits per character" } else { "bits per byte" };
        contains(&said.out, &[measure]);
    }
    assert!(place.read("runs/quick-2/config.toml").contains("vocab_size = 256 "));
    // A text in which nearly every character is new.
    let many: String = ('\u{4e00}'..'\u{5000}').cycle().take(2000).collect();
    place.write("many.txt", many);
    contains(&place.train("many.txt").succeeded().out, &["different characters"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_in_which_nothing_comes_is_said_to_be_waited_for() {
    let place = Place::new();
    let heard = std::fs::File::create(place.at("heard")).unwrap();
    let mut command = place.command(&tiny("-"));
    let mut child = command.stdin(Stdio::piped()).stderr(heard).spawn().unwrap();
    crate::place::wait_until("it says so", || {
        place.read("heard").contains("waiting for standard input ...\n")
    });
    let text = "to be or not to be ".repeat(40);
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}
