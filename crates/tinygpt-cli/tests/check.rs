//! `tinygpt check`, driven as a user drives it.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use tinygpt::model::{Params, Tensors};
use tinygpt::{GptConfig, checkpoint};

fn check(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinygpt"));
    let output = command.arg("check").args(args).stdin(Stdio::null()).output().unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// A checkpoint of a small model, after `change`.
fn saved(folder: &Path, change: impl FnOnce(&mut Params)) {
    let config = GptConfig {
        vocab_size: 11,
        block_size: 80,
        n_layer: 2,
        n_head: 2,
        n_embd: 16,
        ..GptConfig::default()
    };
    let mut params = Params::init(Arc::new(Tensors::of(&config)), 1);
    change(&mut params);
    checkpoint::save(folder, &config, &params, None, None).unwrap();
}

#[test]
fn every_fact_holds_for_the_preset_quick_and_is_shown_within_80_columns() {
    let (code, stdout, stderr) = check(&[]);
    assert_eq!((code, &*stderr), (0, ""), "{stdout}");
    for name in tinygpt::check::CHECKS.iter().map(|check| check.name) {
        assert!(stdout.contains(&format!("\n{name}\n  ")), "no {name}: {stdout}");
    }
    assert!(stdout.contains("attn.c_attn.weight") && stdout.contains("Without:"), "{stdout}");
    assert!(stdout.contains("rows as expected") && !stdout.contains("FAIL"), "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
    let questions = include_str!("../../../docs/questions.md");
    for number in ["0.98", "31.37", "4.204", "8,320"] {
        assert!(stdout.contains(number) && questions.contains(number), "{number}: {stdout}");
    }
}

#[test]
fn threads_are_as_many_as_asked_for_or_as_other_rust_programs_are_told() {
    for (variable, flags, said) in [
        ("3", &[][..], "threads: 3\n"),
        ("3", &["--threads", "2"], "threads: 2\n"),
        ("3000", &[], "error: RAYON_NUM_THREADS = 3000: must be at most 1024\n"),
        (
            "two",
            &[],
            "error: RAYON_NUM_THREADS=two: must be a whole number\nhint: unset it, or say --threads\n",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tinygpt"))
            .args(["check", "--only", "weights"])
            .args(flags)
            .env("RAYON_NUM_THREADS", variable)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(said), "{variable} {flags:?}: {text}");
    }
}

#[test]
fn a_large_preset_is_made_smaller_and_says_so() {
    let (code, stdout, _) = check(&["gpt2-xl", "--only", "parameters,causality"]);
    assert_eq!(code, 0, "{stdout}");
    assert!(
        stdout.contains("1,557,611,200") && stdout.contains("L = 2, H = 8, C = 512.\n"),
        "{stdout}"
    );
    assert!(stdout.contains("\ncausality\n") && !stdout.contains("\ntying\n"), "{stdout}");
}

#[test]
fn a_checkpoint_is_checked_on_its_own_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    saved(&path, |_| {});
    let args = [path.to_str().unwrap(), "--only", "weights,kv-cache", "--only=threads"];
    let (code, stdout, stderr) = check(&args);
    assert_eq!((code, &*stderr), (0, ""), "{stdout}");
    assert!(stdout.contains("seconds: T = 64.\n"), "{stdout}");
}

#[test]
fn a_checkpoint_with_a_nan_fails_and_names_the_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    saved(&path, |params| params.block_mut(1).mlp.c_fc.weight[3] = f32::NAN);
    let (code, stdout, stderr) = check(&[path.to_str().unwrap()]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("transformer.h.1.mlp.c_fc.weight"), "{stdout}");
    assert!(stdout.contains("FAIL"), "{stdout}");
    assert!(stderr.starts_with("error: not as expected: weights\nhint: "), "{stderr}");
}

#[test]
fn unknown_names_are_told_the_nearest() {
    for (args, near) in [
        (&["shakespere-char"][..], "shakespeare-char"),
        (&["quick", "--only", "causalty"], "causality"),
        (&["--onyl", "tying"], "--only"),
    ] {
        let (code, stdout, stderr) = check(args);
        assert_eq!((code, &*stdout), (2, ""), "{stderr}");
        assert!(stderr.contains(&format!("hint: did you mean {near}?")), "{stderr}");
    }
}
