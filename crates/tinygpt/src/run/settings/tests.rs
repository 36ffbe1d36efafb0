//! What layers of settings come to, and what is written and read back.

use super::super::read::PRESETS;
use super::*;

fn resolve(preset: Option<&str>, file: Option<&str>, flags: &[(&str, &str)]) -> Settings {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    let layers = Layers {
        preset: preset.map(Into::into),
        file: file.map(|text| std::fs::write(&path, text).map(|()| path.clone()).unwrap()),
        command_line: flags.iter().map(|&(k, v)| (k.into(), v.into())).collect(),
        ..Layers::default()
    };
    Settings::resolve(&layers).unwrap()
}

#[test]
fn the_table_and_the_structs_hold_the_same_keys() {
    let values = default_table();
    let names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
    assert!(values.keys().all(|key| names.contains(&key.as_str())), "{values:?}");
    assert_eq!(values.len(), names.len());
    for key in KEYS {
        for choice in key.choices {
            let settings = resolve(None, None, &[(key.name, choice)]);
            assert_eq!(settings.values()[key.name].as_str(), Some(*choice));
        }
    }
}

#[test]
fn each_layer_covers_the_one_below_and_every_value_knows_its_layer() {
    let settings = resolve(None, Some("n_head = 2\nn-layer = 3"), &[("n_layer", "6")]);
    assert_eq!((settings.model.n_embd, settings.model.n_head), (128, 2));
    assert_eq!(settings.model.n_layer, 6);
    assert_eq!(settings.origins["n_embd"].to_string(), "preset quick");
    assert!(settings.origins["n_head"].to_string().ends_with("my.toml"));
    assert_eq!(settings.origins["n_layer"].to_string(), "command line");
    assert_eq!(settings.origins["weight_decay"].to_string(), "default");
}

#[test]
fn the_command_lines_preset_covers_the_files() {
    let file = "preset = \"gpt2\"\nn_head = 3";
    assert_eq!(resolve(None, Some(file), &[]).preset, "gpt2");
    let settings = resolve(Some("shakespeare-char"), Some(file), &[]);
    assert_eq!((settings.model.n_embd, settings.model.n_head), (384, 3));
}

#[test]
fn every_preset_resolves_and_says_only_what_differs_from_the_defaults() {
    let defaults = Settings::default().shown();
    for (name, text) in PRESETS {
        let shown = resolve(Some(name), None, &[]).shown();
        for (key, value) in ConfigFile::parse(text, name).unwrap().settings {
            assert_eq!(shown[key.name], show(&value), "{name}: {}", key.name);
            assert_ne!(shown[key.name], defaults[key.name], "{name}: {}", key.name);
        }
    }
}

#[test]
fn what_is_written_reads_back_to_equal_values_with_their_origins() {
    for (preset, _) in PRESETS {
        let flags = [("dropout", "0.3"), ("adam_eps", "1e-9"), ("out_dir", "a\n\"b\" # c")];
        let mut settings = resolve(Some(preset), None, &flags);
        settings.settle_vocab_size(65).unwrap();
        settings.text = vec!["a \"b\"\n.txt".into(), "-".into()];
        settings.origins.insert("seed", Origin::File("a\nb = 3".into()));
        let text = settings.to_toml();
        let back = resolve(None, Some(&text), &[]);
        assert_eq!(diff(&settings, &back), []);
        assert_eq!((&settings.model, &settings.train), (&back.model, &back.train));
        assert_eq!((&settings.run, &settings.preset), (&back.run, &back.preset));
        assert_eq!(back.text, [absolute("a \"b\"\n.txt").unwrap(), "-".into()]);
        assert!(text.contains("dropout = 0.3 "), "{text}");
        assert!(text.contains("adam_eps = 1e-9 "), "{text}");
        assert!(text.contains("# command line\n"), "{text}");
    }
}

#[test]
fn the_recipe_for_weights_that_are_there_is_refused_to_new_ones() {
    let written = resolve(Some("finetune"), None, &[]).to_toml();
    for settings in [resolve(Some("finetune"), None, &[]), resolve(None, Some(&written), &[])] {
        let error = settings.check_from_scratch().unwrap_err();
        assert!(error.hint().unwrap().contains("--init-from"), "{error}");
    }
    resolve(Some("quick"), Some(&written), &[]).check_from_scratch().unwrap();
}

#[test]
fn the_cosine_ends_where_training_ends_unless_told_otherwise() {
    let settings = resolve(None, None, &[("max_iters", "5000")]);
    assert_eq!(settings.train.lr_decay_iters, 5000);
    assert_eq!(settings.origins["lr_decay_iters"].to_string(), "follows max_iters");
    let flags = [("max_iters", "5000"), ("lr_decay_iters", "4000")];
    assert_eq!(resolve(None, None, &flags).train.lr_decay_iters, 4000);
    // Resumed for longer, a run whose cosine ended elsewhere keeps its end.
    let resumed = |old: &str| resolve(None, Some(old), &[("max_iters", "9000")]);
    assert_eq!(resumed("max_iters = 3000").train.lr_decay_iters, 9000);
    assert_eq!(resumed("lr_decay_iters = 4000").train.lr_decay_iters, 4000);
    // Set by the user, it stays though both were the same, as in nanoGPT.
    let mine = resumed("max_iters = 5000\nlr_decay_iters = 5000");
    assert_eq!((mine.train.max_iters, mine.train.lr_decay_iters), (9000, 5000));
}

#[test]
fn the_lowest_rate_is_a_tenth_of_the_highest_unless_told_otherwise() {
    let settings = resolve(None, None, &[("learning_rate", "3e-4")]);
    assert_eq!(settings.train.min_lr, 3e-5);
    assert_eq!(settings.origins["min_lr"].to_string(), "follows learning_rate");
    let flags = [("learning_rate", "3e-4"), ("min_lr", "0")];
    assert_eq!(resolve(None, None, &flags).train.min_lr, 0.0);
    let file = "learning_rate = 1e-3\nmin_lr = 1e-4";
    let mine = resolve(None, Some(file), &[("learning_rate", "3e-4")]);
    assert_eq!(mine.train.min_lr, 1e-4);
}

#[test]
fn a_short_run_shortens_a_recipes_warmup_but_not_the_users() {
    let settings = resolve(None, None, &[("max_iters", "20")]);
    assert_eq!(settings.train.warmup_iters, 2);
    assert_eq!(settings.origins["warmup_iters"].to_string(), "follows lr_decay_iters");
    let mine = resolve(None, None, &[("max_iters", "20"), ("warmup_iters", "20")]);
    assert_eq!(mine.train.warmup_iters, 20);
    let layers = Layers {
        command_line: vec![("max_iters".into(), "20".into()), ("warmup-iters".into(), "50".into())],
        ..Default::default()
    };
    let error = Settings::resolve(&layers).unwrap_err();
    assert!(error.to_string().contains("lr_decay_iters = 20"), "{error}");
}

#[test]
fn a_run_keeps_the_dtype_that_auto_meant_where_it_began() {
    let mut written = resolve(None, None, &[]);
    written.settle_dtype(Isa::named("portable").unwrap());
    assert_eq!(written.train.dtype, Dtype::F32);
    let mut same = resolve(None, Some(&written.to_toml()), &[]);
    assert_eq!(same.origins["dtype"], Origin::Processor);
    same.settle_dtype(Isa::best());
    assert_eq!(same, Settings { origins: same.origins.clone(), ..written.clone() });
    let mut chosen = resolve(None, Some(&written.to_toml()), &[("dtype", "bfloat16")]);
    chosen.settle_dtype(Isa::best());
    assert_eq!(chosen.train.dtype, Dtype::Bf16);
    assert_eq!(chosen.origins["dtype"], Origin::CommandLine);
}

#[test]
fn what_followed_when_it_was_written_follows_when_it_is_read_back() {
    let mut written = resolve(None, None, &[("max_iters", "500"), ("learning_rate", "1e-3")]);
    written.settle_vocab_size(65).unwrap();
    let text = written.to_toml();
    let same = resolve(None, Some(&text), &[]);
    for key in ["warmup_iters", "lr_decay_iters", "min_lr", "vocab_size", "n_layer", "beta1"] {
        assert_eq!(same.origins[key], written.origins[key], "{key}");
    }
    let short = resolve(None, Some(&text), &[("max_iters", "30"), ("learning_rate", "1e-4")]);
    let TrainConfig { warmup_iters, lr_decay_iters, min_lr, .. } = short.train;
    assert_eq!((warmup_iters, lr_decay_iters, min_lr), (3, 30, 1e-5));
    let long = resolve(None, Some(&text), &[("max_iters", "5000")]);
    assert_eq!((long.train.warmup_iters, long.train.lr_decay_iters), (100, 5000));
    let mut other_text = same;
    other_text.settle_vocab_size(80).unwrap();
    assert_eq!(other_text.model.vocab_size, 80);
}

#[test]
fn a_value_that_was_edited_is_the_users_whatever_its_comment_says() {
    let text = resolve(None, None, &[("max_iters", "500")]).to_toml();
    for (from, to) in [
        ("warmup_iters = 50 ", "warmup_iters = 20 "),
        ("lr_decay_iters = 500 ", "lr_decay_iters = 400 "),
        ("min_lr = 0.0002 ", "min_lr = 0.0001 "),
        ("n_layer = 4 ", "n_layer = 3 "),
    ] {
        assert!(text.contains(from), "{text}");
        let read = resolve(None, Some(&text.replace(from, to)), &[("max_iters", "1000")]);
        let key = from.split(' ').next().unwrap();
        assert_eq!(format!("{key} = {} ", read.shown()[key]), to);
        assert!(read.origins[key].to_string().ends_with("my.toml"), "{key}");
    }
}

#[test]
fn values_that_cannot_work_together_are_refused_before_any_work() {
    let layers = Layers { command_line: vec![("n_head".into(), "3".into())], ..Default::default() };
    let error = Settings::resolve(&layers).unwrap_err();
    assert!(error.to_string().contains("n_embd = 128"), "{error}");
}

#[test]
fn the_tokenizer_decides_the_vocabulary_unless_the_user_did() {
    let mut settings = resolve(None, None, &[]);
    settings.settle_vocab_size(65).unwrap();
    assert_eq!(settings.model.vocab_size, 65);
    let mut padded = resolve(None, None, &[("vocab_size", "65")]);
    padded.settle_vocab_size(60).unwrap();
    assert_eq!(padded.model.vocab_size, 65);
    assert!(padded.settle_vocab_size(66).unwrap_err().to_string().contains("66"));
}

#[test]
fn a_difference_names_key_old_and_new_and_whether_it_is_the_architecture() {
    let old = resolve(None, None, &[]);
    let new = resolve(None, None, &[("n_layer", "6"), ("dropout", "0.1")]);
    let changes = diff(&old, &new);
    let told: Vec<_> =
        changes.iter().map(|c| (c.key.name, &*c.old, &*c.new, c.key.is_architecture())).collect();
    assert_eq!(told, [("n_layer", "4", "6", true), ("dropout", "0.0", "0.1", false)]);
}
