//! `tinygpt bench`, driven as a user drives it.

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const TINY: &str = "--n-layer 2 --n-head 2 --n-embd 16 --block-size 8 --batch-size 2 --threads 2 \
     --seconds 0.2";

/// Exit code, standard output and standard error, in an empty folder that must stay so.
fn bench(args: &str, isa: Option<&str>) -> (i32, String, String) {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tinygpt"));
    command.arg("bench").args(args.split_whitespace()).current_dir(folder.path());
    command.env_remove("TINYGPT_ISA").stdin(Stdio::null());
    if let Some(isa) = isa {
        command.env("TINYGPT_ISA", isa);
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{args}: it left files");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[track_caller]
fn measured(args: &str) -> Value {
    let (code, stdout, stderr) = bench(&format!("{args} {TINY} --json"), None);
    assert_eq!(code, 0, "{args}: {stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{args}: {error}: {stdout}"))
}

#[track_caller]
fn positive(json: &Value, keys: &[&str]) {
    for key in keys {
        assert!(json[key].as_f64().is_some_and(|x| x > 0.0), "{key} in {json:#}");
    }
}

const OF_ALL: [&str; 10] = [
    "parameters",
    "parameters_without_positions",
    "n_layer",
    "block_size",
    "batch_size",
    "threads",
    "peak_gflop_per_s",
    "peak_before_gflop_per_s",
    "peak_after_gflop_per_s",
    "memory_gb_per_s",
];

#[test]
fn training_has_times_speeds_and_the_share_of_the_peak() {
    let json = measured("train");
    positive(&json, &OF_ALL);
    positive(&json, &["steps", "step_ms", "step_p10_ms", "step_p90_ms", "step_best_ms"]);
    positive(&json, &["tokens_per_s", "flop_per_token", "gflop_per_s", "share_of_peak"]);
    assert_eq!((&json["what"], &json["preset"]), (&"train".into(), &"quick".into()));
    assert_eq!((&json["threads"], &json["tokens_per_step"]), (&2.into(), &16.into()));
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    // 6 N + 12 L C T
    let n = json["parameters_without_positions"].as_f64().unwrap();
    assert_eq!(json["flop_per_token"].as_f64(), Some(6.0 * n + 12.0 * 2.0 * 16.0 * 8.0));
    #[cfg(target_os = "linux")]
    positive(&json, &["peak_memory_bytes"]);
    for text in ["isa", "processor"] {
        assert!(json[text].as_str().is_some_and(|text| !text.is_empty()), "{text}: {json:#}");
    }
}

#[test]
fn forward_passes_cost_a_third() {
    let (eval, train) = (measured("eval"), measured("train --seconds 0.05"));
    positive(&eval, &OF_ALL);
    positive(&eval, &["pass_ms", "tokens_per_pass", "tokens_per_s", "share_of_peak"]);
    let flops = |json: &Value| json["flop_per_token"].as_f64().unwrap();
    assert!((3.0 * flops(&eval) / flops(&train) - 1.0).abs() < 1e-9);
}

#[test]
fn generation_has_a_prompt_and_tokens_and_the_weights_they_read() {
    let json = measured("generate");
    positive(&json, &OF_ALL);
    positive(&json, &["token_ms", "tokens", "tokens_per_s", "weights_gb_per_s"]);
    positive(&json, &["share_of_memory", "prompt_ms", "prompt_tokens_per_s"]);
    assert_eq!(json["prompt_tokens"], 4);
    // Tied: the embedding is read whole, as the unembedding.
    let n = json["parameters_without_positions"].as_u64().unwrap();
    assert_eq!(json["weight_bytes"].as_u64(), Some(4 * n));
    let untied = measured("generate --tied=false --block-size 2");
    assert_eq!(untied["weight_bytes"].as_u64(), Some(4 * n));
}

#[test]
fn the_ops_of_a_step_add_up_to_it() {
    let json = measured("kernels --dropout 0.1 --bias");
    let ops = json["ops"].as_array().unwrap();
    for name in [
        "batch",
        "zero",
        "embedding forward",
        "dropout",
        "layernorm forward",
        "linear forward",
        "attention forward",
        "residual forward",
        "activation forward",
        "loss forward",
        "loss backward",
        "activation backward",
        "residual backward",
        "attention backward",
        "linear backward dx",
        "linear backward dw",
        "linear backward db",
        "layernorm backward",
        "embedding backward",
        "tied gradients",
        "gradient norm",
        "AdamW",
        "rest",
    ] {
        assert!(ops.iter().any(|op| op["op"] == name), "no {name}: {json:#}");
    }
    let sum = |key: &str| ops.iter().map(|op| op[key].as_f64().unwrap()).sum::<f64>();
    assert!((sum("share") - 1.0).abs() < 1e-3, "{json:#}");
    let times: Vec<_> = ops.iter().map(|op| op["ms"].as_f64().unwrap()).collect();
    assert!(times[..times.len() - 1].is_sorted_by(|a, b| a >= b), "{json:#}");
    let qkv = ops.iter().find(|op| op["sizes"] == serde_json::json!([16, 16, 48])).unwrap();
    assert_eq!(qkv["calls"], 2.0);
}

#[test]
fn every_page_fits_eighty_columns() {
    for what in ["", "generate", "eval", "kernels --gradient-accumulation-steps 3"] {
        let (code, stdout, stderr) = bench(&format!("{what} {TINY}"), Some("portable"));
        assert_eq!(code, 0, "{what}: {stderr}");
        assert!(stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
        assert!(stdout.contains("portable, f32\n") && !stdout.contains("NaN"), "{stdout}");
        assert!(stdout.contains("of the peak\n") && stdout.contains("\nlimits "), "{stdout}");
    }
}

#[test]
fn a_vocabulary_of_any_size_is_measured_without_a_text() {
    assert_eq!(measured("train --vocab-size 3")["vocab_size"], 3);
    assert_eq!(measured("eval --vocab-size 70000")["vocab_size"], 70000);
}

#[test]
fn training_and_evaluating_are_measured_in_both_dtypes() {
    for what in ["train", "eval", "kernels"] {
        for (flag, dtype) in [("--dtype bf16", "bf16"), ("--dtype=float32", "f32")] {
            let json = measured(&format!("{what} {flag}"));
            assert_eq!(json["dtype"], dtype, "{what}");
            positive(&json, &["share_of_peak", "peak_gflop_per_s"]);
        }
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_would_work() {
    for (args, isa, said) in [
        ("trian", None, "did you mean train?"),
        ("train --seconds 0", None, "--seconds 0: must be a number above 0"),
        ("train --seconds=-1", None, "--seconds -1: must be a number above 0"),
        ("train --seconds soon", None, "--seconds soon: must be a number above 0"),
        ("train --seconds nan", None, "--seconds nan: must be a number above 0"),
        ("train --warmup few", None, "--warmup few: "),
        ("train --max-iters 3", None, "unknown flag --max-iters"),
        ("train --preset quik", None, "did you mean quick?"),
        ("train --n-head 48", None, "n_head = 48"),
        ("train --batch-size 0", None, "batch_size = 0"),
        ("generate --block-size 1", None, "takes at least 2"),
        ("train --threads 5000", None, "threads = 5000: must be at most 1024"),
        ("train", Some("abacus"), "TINYGPT_ISA=abacus: this machine has portable"),
    ] {
        let (code, stdout, stderr) = bench(args, isa);
        assert_eq!((code, &*stdout), (2, ""), "{args}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(said), "{args}: {stderr}");
    }
}

#[test]
fn generation_alone_knows_eight_bits_and_several_texts() {
    let one = measured("generate");
    let eight = measured("generate --num-samples 8 --quantize int8");
    assert_eq!((&eight["num_samples"], &eight["precision"]), (&8.into(), &"int8".into()));
    assert!(eight["weight_bytes"].as_u64() < one["weight_bytes"].as_u64());
    for flag in ["--quantize int8", "--num-samples 2"] {
        let (code, _, stderr) = bench(&format!("train {flag} {TINY}"), None);
        let name = flag.split(' ').next().unwrap();
        assert_eq!(code, 2, "{flag}: {stderr}");
        assert!(stderr.contains(&format!("{name} is for `bench generate`")), "{stderr}");
    }
}
