//! Which files are read, in which order, and the folder that keeps their tokens.

use super::*;
use crate::tokenizer::{Tokenizer, TokenizerKind};
use std::path::PathBuf;

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
    assert_eq!(dataset.source, folder.path().join("").display().to_string());
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
    fs::write(dir.join("tokenizer.json"), "{").unwrap();
    let named = format!("{} is not JSON", dir.join("tokenizer.json").display());
    assert_has(&failure(Dataset::open(&dir)), &[&named]);
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
