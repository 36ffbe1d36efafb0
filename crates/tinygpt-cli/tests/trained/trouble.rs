//! Full disks, what a kill left, pipes, and two at once: for the verbs that write files for others.

use super::*;

/// The formats of an export, each with a name to write.
const OUTS: [(&str, &str); 4] =
    [("hf", "hf"), ("gguf", "m.gguf"), ("nanogpt", "out"), ("safetensors", "m")];

/// A place with a run that every format holds.
fn place() -> Place {
    let flags = ["--tokenizer", "byte", "--activation", "gelu_tanh", "--bias=true"];
    let place = Place::with_run(&flags);
    place.write("my.txt", TEXT.repeat(200));
    place
}

fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path("")).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn weights(path: &Path) -> Vec<f32> {
    tinygpt::formats::Model::open(path).unwrap().read().unwrap().data().to_vec()
}

/// The command where no file may have more than 2 KiB.
fn limited(place: &Place, args: &[&str]) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 4; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tinygpt")]);
    command.args(args).current_dir(place.path("")).stdin(Stdio::null());
    let (code, _, said) = ended(command);
    assert!(code == 1 && said.contains("error: cannot write"), "{args:?}: {code} {said}");
    said
}

#[test]
fn a_full_disk_leaves_what_was_there_and_nothing_beside_it() {
    let place = place();
    for (to, out) in OUTS {
        let before = names(&place);
        limited(&place, &["export", "--to", to, out]);
        assert_eq!(names(&place), before, "{to}");
        assert_eq!(place.run(&["export", "--to", to, out]).0, 0);
        let whole = weights(&place.path(out));
        limited(&place, &["export", "--to", to, out, "--force"]);
        assert!(weights(&place.path(out)) == whole, "{to}");
    }
    let before = names(&place);
    let prepare = ["prepare", "my.txt", "--out", "data"];
    limited(&place, &prepare);
    let tokenize = ["tokenize", "my.txt", "--out", "my.tokens"];
    limited(&place, &tokenize);
    assert_eq!(names(&place), before);
    place.succeeds(&prepare);
    let tokens = std::fs::read(place.path("data/train.bin")).unwrap();
    limited(&place, &[&prepare[..], &["--force"]].concat());
    assert_eq!(std::fs::read(place.path("data/train.bin")).unwrap(), tokens);
    place.succeeds(&tokenize);
    let tokens = std::fs::read(place.path("my.tokens")).unwrap();
    limited(&place, &[&tokenize[..], &["--force"]].concat());
    assert_eq!(std::fs::read(place.path("my.tokens")).unwrap(), tokens);
}

#[test]
fn what_a_kill_left_is_in_nobodys_way() {
    let place = place();
    for name in [".m.gguf.tmp-abcdef", ".m.tmp-abcdef", ".my.tokens.tmp-abcdef"] {
        place.write(name, "half");
    }
    for (folder, file) in [
        ("hf.saving", "model.safetensors"),
        ("out.saving", "ckpt.pt"),
        (".preparing-abcdef", "train.bin"),
    ] {
        std::fs::create_dir(place.path(folder)).unwrap();
        place.write(&format!("{folder}/{file}"), "half");
    }
    for (to, out) in OUTS {
        assert_eq!(place.run(&["export", "--to", to, out]).0, 0, "{to}");
        assert!(weights(&place.path(out)) == weights(&place.path("runs/quick/best")), "{to}");
    }
    place.succeeds(&["prepare", "my.txt", "--out", "data"]);
    place.succeeds(&["tokenize", "my.txt", "--out", "my.tokens"]);
    assert!(!names(&place).iter().any(|name| name.ends_with(".saving")), "{:?}", names(&place));
}

#[test]
fn two_exports_at_once_leave_one_whole_model() {
    let place = place();
    let expected = weights(&place.path("runs/quick/best"));
    for (to, out) in OUTS {
        for force in [&[][..], &["--force"], &["--force"]] {
            let args = [&["export", "--to", to, out], force].concat();
            let both = [place.tinygpt(&args).spawn(), place.tinygpt(&args).spawn()];
            let both = both.map(|child| child.unwrap().wait_with_output().unwrap());
            assert!(both.iter().any(|output| output.status.success()), "{to}");
            for output in both.iter().filter(|output| !output.status.success()) {
                let said = String::from_utf8_lossy(&output.stderr);
                let known = ["another process is writing there", "is there already"];
                assert!(known.iter().any(|part| said.contains(part)), "{to}: {said}");
            }
            assert!(weights(&place.path(out)) == expected, "{to}");
        }
    }
    assert_eq!(names(&place), ["hf", "m", "m.gguf", "my.txt", "out", "runs"]);
}

#[test]
fn a_pipe_is_read_and_never_replaced_and_a_reader_who_leaves_is_no_failure() {
    let place = place();
    let made = Command::new("mkfifo").arg(place.path("pipe")).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no mkfifo");
        return;
    }
    for args in [
        &["export", "--to", "gguf", "pipe", "--force"][..],
        &["export", "--to", "hf", "pipe", "--force"],
        &["tokenize", "my.txt", "--out", "pipe", "--force"],
        &["prepare", "my.txt", "--out", "pipe", "--force"],
    ] {
        let (code, _, said) = place.run(args);
        let known = ["a pipe", "expected", "no folder"];
        assert!(code != 0 && known.iter().any(|part| said.contains(part)), "{args:?}: {said}");
    }
    for (args, written) in [
        (&["prepare", "pipe", "--out", "data"][..], "data/train.bin"),
        (&["tokenize", "pipe", "--out", "my.tokens"], "my.tokens"),
    ] {
        let child = place.tinygpt(args).spawn().unwrap();
        std::fs::write(place.path("pipe"), TEXT.repeat(9)).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(place.path(written).is_file());
    }
    for args in [
        &["export", "--to", "safetensors", "m"][..],
        &["prepare", "my.txt", "--out", "more"],
        &["tokenize", "my.txt", "--tokenizer", "char", "--json"],
        &["tokenize", &"to be ".repeat(20_000)],
    ] {
        let mut child = place.tinygpt(args).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("error"), "{said}");
    }
    assert!(place.path("m").is_file() && place.path("more/train.bin").is_file());
}

#[test]
fn a_text_that_is_being_prepared_is_in_no_trainings_way_and_stays() {
    let place = place();
    let mut child =
        place.tinygpt(&["prepare", "-", "--out", "data"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(TEXT.repeat(99).as_bytes()).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let room = loop {
        assert!(std::time::Instant::now() < deadline, "it makes no room");
        match names(&place).into_iter().find(|name| name.starts_with(".preparing-")) {
            Some(name) => break place.path(&name),
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    };
    // Old enough to have been left by a kill, once its maker has had time to lock it.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::open(&room).unwrap().set_modified(old).unwrap();
    place.train(&["my.txt"]);
    assert!(room.exists());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
