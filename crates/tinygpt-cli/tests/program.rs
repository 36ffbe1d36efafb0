//! The real program, driven as a user drives it.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn tinygpt(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinygpt"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = tinygpt(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn succeeds(args: &[&str]) -> String {
    let (code, stdout, stderr) = run(args);
    assert_eq!((code, &*stderr), (0, ""), "{args:?}");
    stdout
}

/// Bad usage: exit code 2, nothing on standard output, an `error:` line and perhaps a `hint:`.
fn refused(args: &[&str]) -> String {
    let (code, stdout, stderr) = run(args);
    assert_eq!((code, &*stdout), (2, ""), "{args:?}: {stderr}");
    assert!(stderr.starts_with("error: "), "{args:?}: {stderr}");
    assert!(stderr.lines().skip(1).all(|line| line.starts_with("hint: ")), "{args:?}: {stderr}");
    stderr
}

const PRESETS: [&str; 6] =
    ["quick", "shakespeare-char", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"];

#[test]
fn alone_it_prints_its_help() {
    let help = succeeds(&[]);
    assert_eq!(help, succeeds(&["--help"]));
    assert_eq!(help, succeeds(&["help"]));
    assert_eq!(succeeds(&["train", "--help"]), succeeds(&["help", "train"]));
    for verb in ["train", "sample", "eval", "prepare", "info", "check", "bench", "completions"] {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb}");
    }
    assert_eq!(succeeds(&["--version"]), concat!("tinygpt ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn every_verbs_help_has_examples_and_fits_a_hundred_columns() {
    for verb in ["train", "sample", "eval", "prepare", "info", "check", "bench", "completions"] {
        let help = succeeds(&[verb, "--help"]);
        assert!(help.contains(&format!("Examples:\n  tinygpt {verb}")), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
}

#[test]
fn the_help_of_train_shows_every_setting_with_its_default() {
    let help = succeeds(&["train", "--help"]);
    for line in succeeds(&["train", "--print-config"]).lines() {
        if let Some((key, _)) = line.split_once(" = ") {
            assert!(help.contains(&format!("--{}", key.replace('_', "-"))), "{key}");
        }
    }
    for heading in ["Model:", "Training:", "Evaluation:", "Data:", "Run:"] {
        assert!(help.contains(heading), "{heading}");
    }
    assert!(help.contains("[default: 12; quick: 4]"), "{help}");
}

#[test]
fn misspelt_flags_verbs_and_values_are_told_the_nearest() {
    for (args, near) in [
        (&["train", "--learning_rte", "1e-3"][..], "--learning-rate"),
        (&["train", "--learning-rte=1e-3"], "--learning-rate"),
        (&["sample", "--temperture", "1"], "--temperature"),
        (&["trian"], "train"),
        (&["train", "--tokenizer", "chr"], "`char`"),
        (&["train", "--preset", "quik"], "quick"),
        (&["info", "shakespere-char"], "shakespeare-char"),
    ] {
        let message = refused(args);
        assert!(message.contains(&format!("hint: did you mean {near}?")), "{message}");
    }
}

#[test]
fn flags_of_nanogpt_that_have_no_place_here_are_told_why() {
    assert!(refused(&["train", "--device=cuda"]).contains("must be cpu"));
    assert!(refused(&["train", "--dtype=float16"]).contains("must be one of auto, f32, bf16"));
    assert!(refused(&["train", "--lr", "1e-3"]).contains("learning_rate"));
    assert!(refused(&["train", "--epochs=3"]).contains("max_iters"));
    assert!(refused(&["train", "--no-bias"]).contains("`bias` itself: false"));
}

#[test]
fn bad_values_name_the_key_the_value_and_what_was_expected() {
    let message = refused(&["train", "--n_layer=six"]);
    assert!(message.contains("n_layer = \"six\": must be a whole number, 0 or more"), "{message}");
    let message = refused(&["train", "--bias=maybe"]);
    assert!(message.contains("bias = \"maybe\": must be true or false"), "{message}");
    let message = refused(&["train", "--n-head", "48", "--n-embd", "1600"]);
    assert!(message.contains("1600") && message.contains("48") && message.contains("50"));
    let message = refused(&["sample", "--top_k=-1"]);
    assert!(message.contains("--top-k -1: must be a whole number, 0 or more"), "{message}");
    let message = refused(&["sample", "--temp", "hot"]);
    assert!(message.contains("--temperature hot: must be a number"), "{message}");
    for args in [
        &["info", "--batch-size", "0"][..],
        &["info", "--block-size", "65"],
        &["info", "nowhere/at/all"],
        &["completions", "tcsh"],
        &["completions"],
        &["train", "--resume", "--preset", "quick"],
        &["sample", "-p", "a", "--prompt-file", "b"],
        &["eval", "one", "two"],
        &["train", "--preset"],
    ] {
        refused(args);
    }
}

#[test]
fn a_setting_may_be_spelt_in_every_usual_way() {
    for args in [
        &["--weight-decay", "0"][..],
        &["--weight_decay=0"],
        &["--weight_decay", "0.0"],
        &["--weight-decay=0e0"],
    ] {
        let config = succeeds(&[&["train", "--print-config"], args].concat());
        let line = config.lines().find(|line| line.starts_with("weight_decay")).unwrap();
        assert!(line.starts_with("weight_decay = 0.0 "), "{line}");
        assert!(line.ends_with("# command line"), "{line}");
    }
    let config =
        succeeds(&["train", "--print-config", "--bias=True", "--eval-full", "--dropout=0"]);
    assert!(config.contains("bias = true ") && config.contains("eval_full = true "), "{config}");
    assert!(config.contains("dropout = 0.0 "), "{config}");
}

#[test]
fn a_printed_config_is_a_config_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    let printed = succeeds(&["train", "--print-config", "--preset", "gpt2", "--n_layer", "3"]);
    std::fs::write(&path, &printed).unwrap();
    let again = succeeds(&["train", "--print-config", "--config", path.to_str().unwrap()]);
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" #").next().unwrap().trim_end().into()).collect()
    };
    assert_eq!(values(&printed), values(&again));
    assert!(again.contains("my.toml\n"), "{again}");
}

#[test]
fn a_config_file_that_is_wrong_names_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    let refused_text = |text: &str| {
        std::fs::write(&path, text).unwrap();
        refused(&["train", "--config", path.to_str().unwrap()])
    };
    let message = refused_text("n_layer = 2\nlearning_rte = 1\n");
    assert!(message.contains("my.toml, line 2: unknown key `learning_rte`"), "{message}");
    assert!(message.contains("hint: did you mean `learning_rate`?"), "{message}");
    assert!(refused_text("n_layer = 2\nbias = False\n").contains("line 2"));
    #[cfg(unix)]
    assert!(refused(&["train", "--config", "/dev/zero"]).contains("larger than 1048576 bytes"));
    assert!(refused(&["train", "--config", "/"]).contains("is a folder"));
    std::fs::remove_file(&path).unwrap();
    assert!(refused(&["info", path.to_str().unwrap()]).contains("my.toml"));
}

#[test]
fn info_describes_every_preset_within_a_hundred_columns() {
    for (preset, parameters) in PRESETS.iter().zip([
        "0.80M parameters, 0.80M without",
        "10.75M parameters, 10.65M without",
        "124.44M parameters, 123.65M without",
        "354.82M parameters, 353.77M without",
        "774.03M parameters, 772.72M without",
        "1557.61M parameters, 1555.97M without",
    ]) {
        let page = succeeds(&["info", preset]);
        assert!(page.contains(parameters), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    }
    let page = succeeds(&["info", "--batch-size", "2", "--block_size=32"]);
    assert!(page.contains("(2, 4, 32, 32)"), "{page}");
    assert!(succeeds(&["info", "--all"]).contains("transformer.h.3.mlp.c_proj.weight"));
}

#[test]
fn info_reads_a_config_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    std::fs::write(&path, "n_layer = 5").unwrap();
    let page = succeeds(&["info", path.to_str().unwrap()]);
    assert!(page.contains("x 5, all blocks alike"), "{page}");
}

#[test]
fn there_are_completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = succeeds(&["completions", shell]);
        assert!(script.contains("completions") && script.contains("learning-rate"), "{shell}");
    }
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    // More than a pipe holds, so that the program meets the closed end while writing.
    let mut child = tinygpt(&["info", "gpt2-xl", "--all"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut few = [0; 10];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut few).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
}

#[test]
#[cfg(unix)]
fn a_full_disk_is_an_error() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        eprintln!("skipped: no /dev/full");
        return;
    }
    let output = tinygpt(&["info"])
        .stdout(std::fs::OpenOptions::new().write(true).open(full).unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to standard output"));
}
