//! `tinygpt export`, and every verb on what it wrote.

use super::*;
use tinygpt::run::thousands;

/// The tensors of a model, whatever its format, as bits by name.
fn tensors(path: &Path) -> Vec<(String, Vec<u32>)> {
    let params = tinygpt::formats::Model::open(path).unwrap().read().unwrap();
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect();
    params.iter().map(|(spec, values)| (spec.name.clone(), bits(values))).collect()
}

#[test]
fn a_run_goes_to_every_format_and_back_bit_for_bit_and_every_verb_takes_it() {
    let flags = ["--tokenizer", "byte", "--activation", "gelu_tanh", "--bias=true"];
    let place = Place::with_run(&flags);
    let sample = |model: &str| {
        let args = ["sample", model, "--prompt", "To be", "--temperature", "0", "-n", "20"];
        let (code, text, said) = place.run(&args);
        assert_eq!(code, 0, "{said}");
        text
    };
    let (expected, text) = (tensors(&place.path("runs/quick/best")), sample("runs/quick"));
    for (format, out) in
        [("hf", "hf"), ("gguf", "m.gguf"), ("nanogpt", "out"), ("safetensors", "m")]
    {
        let (code, said, notes) = place.run(&["export", "runs/quick", "--to", format, out]);
        assert_eq!(code, 0, "{notes}");
        assert!(said.starts_with(&format!("written  {out}: ")), "{said}");
        // nanoGPT would read these bytes as other tokens.
        let elsewhere = format != "nanogpt";
        assert_eq!(said.contains("\nopen     "), elsewhere, "{said}");
        assert_eq!(notes.contains("nanoGPT's scripts know characters"), !elsewhere, "{notes}");
        assert_eq!(notes.contains("exact GELU"), format == "nanogpt", "{notes}");
        assert_eq!(tensors(&place.path(out)), expected, "{format}");
        let page = place.succeeds(&["info", out]);
        assert!(page.contains("\nformat     a"), "{page}");
        // nanoGPT's has another activation.
        if format != "nanogpt" {
            assert_eq!(sample(out), text, "{format}");
            let (code, page, said) = place.run(&["eval", out, "--text", "my.txt"]);
            assert!(code == 0 && page.contains("text"), "{said}");
            assert_eq!(place.run(&["check", out, "--only", "kv-cache"]).0, 0);
        }
        let again = place.path("again");
        let words = ["export", out, "--to", "safetensors", "again", "--force"];
        assert_eq!(place.run(&words).0, 0);
        assert_eq!(tensors(&again), expected, "{format}");
    }
}

#[test]
fn nothing_is_replaced_unless_asked_and_then_only_what_an_export_wrote() {
    let place = Place::with_run(&[]);
    place.succeeds(&["export", "--to", "safetensors", "m"]);
    assert!(place.fails(2, &["export", "--to", "hf", ""]).contains("[MODEL] OUT needs a value"));
    let message = place.fails(1, &["export", "--to", "safetensors", "my.txt", "--force"]);
    assert!(message.contains("my.txt") && message.contains("is no model, which"), "{message}");
    let device = place.fails(1, &["export", "--to", "safetensors", "/dev/null", "--force"]);
    assert!(device.contains("a device"), "{device}");
    let (_, said, notes) = place.run(&["export", "--to", "nanogpt", "bare.pt"]);
    assert!(!said.contains("out_dir") && notes.contains("does not hold the tokenizer"), "{notes}");
    assert!(place.fails(1, &["sample", "bare.pt"]).contains("meta.pkl"));
    let message = place.fails(1, &["export", "--to", "safetensors", "m"]);
    assert!(message.contains("is there already") && message.contains("--force"), "{message}");
    place.succeeds(&["export", "--to", "safetensors", "m", "--force"]);
    assert!(
        place.fails(1, &["export", "--to", "safetensors", "runs", "--force"]).contains("folder")
    );

    std::fs::create_dir(place.path("hf")).unwrap();
    let (code, ..) = place.run(&["export", "--to", "hf", "hf"]);
    assert_eq!(code, 0, "an empty folder is nobody's");
    place.write("hf/README.md", "mine");
    assert!(place.fails(1, &["export", "--to", "hf", "hf"]).contains("is there already"));
    assert_eq!(place.run(&["export", "--to", "hf", "hf", "--force"]).0, 0);
    assert_eq!(std::fs::read_to_string(place.path("hf/README.md")).unwrap(), "mine");
    for own in ["runs/quick/best", "runs/quick/best/model.safetensors"] {
        let to = if own.ends_with("best") { "hf" } else { "safetensors" };
        let message = place.fails(1, &["export", "--to", to, own, "--force"]);
        assert!(message.contains("is a checkpoint of TinyGPT's, and no export"), "{message}");
    }
    place.succeeds(&["sample", "runs/quick", "-n", "1"]);
    std::fs::create_dir(place.path("thesis")).unwrap();
    place.write("thesis/thesis.tex", "mine");
    let message = place.fails(1, &["export", "--to", "hf", "thesis", "--force"]);
    assert!(message.contains("neither empty nor"), "{message}");
    assert_eq!(std::fs::read_dir(place.path("thesis")).unwrap().count(), 1);
}

#[test]
fn what_a_format_cannot_hold_is_refused_with_the_reason_and_nothing_is_written() {
    let place = Place::with_run(&["--activation", "silu", "--tied=false"]);
    for (to, more, part) in [
        ("nanogpt", &[][..], "activation = silu: nanoGPT computes gelu only"),
        ("gguf", &[], "activation = silu: llama.cpp's GPT-2 has gelu only"),
        ("hf", &["--dtype", "q8_0"], "only GGUF has it"),
    ] {
        let message = place.fails(2, &[&["export", "--to", to, "out"], more].concat());
        assert!(message.contains(part), "{message}");
        assert!(!place.path("out").exists());
    }
    place.train(&["my.txt", "--out-dir", "chars"]);
    let message = place.fails(2, &["export", "chars", "--to", "gguf", "out"]);
    assert!(message.contains("made by merging bytes") && message.contains("--to hf"), "{message}");
    place.train(&["my.txt", "--out-dir", "bytes", "--tokenizer", "byte"]);
    let words = ["export", "bytes", "--to", "gguf", "out", "--dtype", "q8_0"];
    assert!(place.fails(2, &words).contains("n_embd = 16 is no multiple of 32"));
    let (code, _, notes) = place.run(&["export", "bytes", "--to", "gguf", "out"]);
    assert!(code == 0 && notes.contains("tanh's GELU") && notes.contains("as zeros"), "{notes}");
}

#[test]
fn a_training_of_nanogpts_goes_on_from_its_step_with_its_recipe() {
    let place = Place::with_run(&["--max-iters", "3", "--learning-rate", "0.004"]);
    let said = place.succeeds(&["export", "runs/quick/last", "--to", "nanogpt", "out"]);
    assert!(said.contains("with the optimizer of step 3"), "{said}");
    assert!(said.contains("out/meta.pkl into nanoGPT's data/tinygpt/"), "{said}");
    let message = place.fails_noting(2, &["train", "my.txt", "--resume", "out"]);
    assert!(message.contains("already at 3 of 3 steps"), "{message}");
    let resume = [
        "train",
        "my.txt",
        "--resume",
        "out/ckpt.pt",
        "--max-iters",
        "5",
        "--eval-interval",
        "1",
        "--log-interval",
        "1",
    ];
    let (code, said, notes) = place.run(&resume);
    assert_eq!(code, 0, "{notes}");
    assert!(said.contains("step 3:") && said.contains("iter 3:"), "{said}");
    assert!(!said.contains("iter 2:"), "{said}");
    // The two steps of 2 x 16 tokens that were taken here.
    let metrics = std::fs::read_to_string(place.path("runs/nanogpt/metrics.jsonl")).unwrap();
    let seconds = metrics.rsplit("\"elapsed_s\":").next().unwrap().split(',').next().unwrap();
    let speed = thousands((64.0 / seconds.parse::<f64>().unwrap()) as u64);
    assert!(said.contains(&format!("of training, {speed} tokens/s")), "{speed}: {said}");
    let message = place.fails_noting(2, &["train", "--resume", "out"]);
    assert!(message.contains("names no text"), "{message}");
    assert!(message.contains("tinygpt train TEXT --resume out"), "{message}");
    let config = std::fs::read_to_string(place.path("runs/nanogpt/config.toml")).unwrap();
    assert!(config.contains("learning_rate = 0.004 "), "{config}");
    // Without its characters those of another text are no substitute.
    std::fs::copy(place.path("out/ckpt.pt"), place.path("alone.pt")).unwrap();
    place.write("other.txt", "abc ".repeat(200));
    let guess = ["train", "other.txt", "--resume", "alone.pt", "--max-iters", "5"];
    let message = place.fails_noting(2, &guess);
    assert!(message.contains("nothing says what the model's"), "{message}");
    // Weights alone cannot be gone on with.
    place.succeeds(&["export", "runs/quick/last/model.safetensors", "--to", "safetensors", "m"]);
    let message = place.fails_noting(1, &["train", "my.txt", "--resume", "m"]);
    assert!(message.contains("weights only") && message.contains("--init-from"), "{message}");
}

#[test]
fn another_programs_model_is_fine_tuned_gently_and_every_default_is_told() {
    let place = Place::with_run(&["--tokenizer", "byte"]);
    let (code, ..) = place.run(&["export", "--to", "hf", "hf"]);
    assert_eq!(code, 0);
    place.write("short.txt", "to be, or not to be, that is the question; to be.\n".repeat(2));
    let tune = ["train", "short.txt", "--init-from", "hf", "--max-iters", "2", "-t", "1"];
    let (code, said, notes) = place.run(&tune);
    assert_eq!(code, 0, "{notes}");
    assert!(said.contains("runs/finetune"), "{said}");
    for part in [
        "note: preset finetune: ",
        ", learning_rate = 3e-5, ",
        "block_size = 9 instead of 16",
        "the optimizer starts afresh",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    let config = std::fs::read_to_string(place.path("runs/finetune/config.toml")).unwrap();
    assert!(config.contains("learning_rate = 3e-5 "), "{config}");
    assert!(config.contains("block_size = 9 "), "{config}");
    let shorter =
        ["train", "my.txt", "--init-from", "hf", "--block-size", "4", "--eval-only", "-t", "1"];
    let (code, said, notes) = place.run(&shorter);
    assert!(code == 0 && said.contains("context 4,"), "{notes}");
    let longer = ["train", "my.txt", "--init-from", "hf", "--block-size", "64"];
    assert!(place.fails_noting(2, &longer).contains("have block_size = 16"));
}

#[test]
fn a_name_of_the_hub_is_told_how_its_model_comes_here() {
    let place = Place::new();
    for name in ["gpt2", "gpt2-medium", "openai-community/gpt2"] {
        let message = place.fails(1, &["sample", name]);
        assert!(message.contains("hf download") && message.contains(name), "{message}");
    }
    // A folder of that name is what is tried, and what it lacks is said.
    std::fs::create_dir(place.path("gpt2")).unwrap();
    place.write("gpt2/config.json", r#"{"model_type": "gpt2"}"#);
    let message = place.fails(1, &["sample", "gpt2"]);
    assert!(message.contains("gpt2 has neither model.safetensors nor"), "{message}");
    let message = place.fails(1, &["sample", "gpt2/config.json"]);
    assert!(message.contains("is no model's file"), "{message}");
}

#[test]
fn a_tokenizer_inside_a_models_file_is_named_by_that_file_and_read_from_it() {
    let place = Place::with_run(&["--tokenizer", "bpe:280", "--activation", "gelu_tanh"]);
    assert_eq!(place.run(&["export", "--to", "gguf", "m.gguf"]).0, 0);
    assert_eq!(place.run(&["export", "--to", "safetensors", "m"]).0, 0);
    std::fs::remove_dir_all(place.path("runs")).unwrap();
    for (model, out) in [("m.gguf", "a"), ("m", "b")] {
        place.train(&["my.txt", "--init-from", model, "--out-dir", out]);
        let config = std::fs::read_to_string(place.path(&format!("{out}/config.toml"))).unwrap();
        let named = config.lines().find(|line| line.starts_with("tokenizer = ")).unwrap();
        let path = named.split('"').nth(1).unwrap();
        assert_eq!(Path::new(path), place.path(model).canonicalize().unwrap(), "{named}");
        let (code, _, said) = place.run(&["train", "--resume", out, "--max-iters", "4"]);
        assert_eq!(code, 0, "{said}");
        // What the settings name can be read again, by every verb that takes a tokenizer.
        place.train(&["my.txt", "--tokenizer", path, "--out-dir", &format!("{out}-2")]);
        let config = format!("{out}/config.toml");
        place.train(&["--config", &config, "--init-from", model, "--out-dir", &format!("{out}-3")]);
        assert!(place.succeeds(&["tokenize", "to be", "--tokenizer", model]).contains("(bpe, "));
        place.succeeds(&["prepare", "my.txt", "--tokenizer", model, "--out", &format!("{out}-d")]);
    }
}

#[test]
fn a_model_whose_tokens_nothing_explains_is_not_trained_on_a_texts_characters() {
    let place = Place::with_run(&["--tokenizer", "byte"]);
    assert_eq!(place.run(&["export", "--to", "hf", "hf"]).0, 0);
    std::fs::remove_file(place.path("hf/tokenizer.json")).unwrap();
    let tune = ["train", "my.txt", "--init-from", "hf", "--max-iters", "1", "-t", "1"];
    let message = place.fails_noting(2, &tune);
    assert!(message.contains("has no tokenizer, which says what its 256 tokens mean"), "{message}");
    assert!(message.contains("--tokenizer"), "{message}");
    let (code, _, said) = place.run(&[&tune[..], &["--tokenizer", "byte"]].concat());
    assert_eq!(code, 0, "{said}");
}

#[test]
fn the_settings_that_are_printed_are_those_of_the_model_that_a_run_would_start_from() {
    let place = Place::with_run(&["--tokenizer", "byte"]);
    assert_eq!(place.run(&["export", "--to", "hf", "hf"]).0, 0);
    let print = |more: &[&str]| {
        let (code, page, said) = place.run(&[&["train", "--print-config"], more].concat());
        assert_eq!(code, 0, "{said}");
        page
    };
    for model in ["hf", "runs/quick"] {
        let page = print(&["--init-from", model]);
        for line in
            ["vocab_size = 256 ", "n_embd = 16 ", "block_size = 16 ", "tokenizer = \"byte\""]
        {
            assert!(page.contains(line), "{model}: {line}: {page}");
        }
        assert!(print(&["--init-from", model, "--block-size", "4"]).contains("block_size = 4 "));
        let message = place
            .fails_noting(2, &["train", "--print-config", "--init-from", model, "--n-layer=9"]);
        assert!(message.contains("n_layer = 9: the weights at"), "{message}");
    }
}

#[test]
fn an_export_whose_target_was_forgotten_says_so_and_offers_no_replacement() {
    let place = Place::with_run(&[]);
    for own in ["runs/quick", "runs/quick/last"] {
        let message = place.fails(2, &["export", own, "--to", "hf"]);
        assert!(message.contains(&format!("{own} is a run's: what to write is missing")));
        assert!(message.contains(&format!("tinygpt export {own} OUT --to hf")), "{message}");
        assert!(!message.contains("--force"), "{message}");
    }
    place.succeeds(&["export", "--to", "safetensors", "m"]);
    let message = place.fails(1, &["export", "m", "--to", "safetensors"]);
    assert!(message.contains("tinygpt export m OUT --to safetensors"), "{message}");
    assert!(message.contains("--force replaces it"), "{message}");
}
