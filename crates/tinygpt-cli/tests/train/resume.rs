//! Runs that go on.

use crate::place::{Place, Said, tiny};
use std::fs;

#[test]
fn a_finished_run_says_so_and_goes_on_when_told_for_how_long() {
    let place = Place::new();
    place.train("").succeeded();
    let said = place.run("train --resume").succeeded();
    assert!(said.out.contains("already at 20 of 20"), "{}", said.out);
    assert!(said.out.contains("--max-iters 40"), "{}", said.out);
    let said = place.run("train --resume quick --max-iters 30 --learning-rate 0.01").succeeded();
    for change in [
        "max_iters 20 -> 30",
        "lr_decay_iters 20 -> 30",
        "learning_rate 0.002 -> 0.01",
        "min_lr 0.0002 -> 0.001",
    ] {
        assert!(said.err.contains(&format!("changed: {change}\n")), "{}", said.err);
    }
    assert_eq!(place.step_of("runs/quick/last"), 30);
    // The schedule is the new one: from 0.01 at step 20 on its way down to 0.001.
    let lr = |iter: u64| -> f64 {
        let metrics = place.read("runs/quick/metrics.jsonl");
        let start = format!("{{\"iter\":{iter},");
        let line = metrics.lines().find(|line| line.starts_with(&start) && line.contains("\"lr\""));
        let (_, lr) = line.unwrap().split_once("\"lr\":").unwrap();
        lr.split(',').next().unwrap().parse().unwrap()
    };
    assert!(lr(19) < 0.002 && lr(20) > 0.002 && lr(29) < 0.004, "{} {} {}", lr(19), lr(20), lr(29));
    assert!(place.read("runs/quick/config.toml").contains("max_iters = 30 "));
}

#[test]
fn a_resumed_run_keeps_the_name_of_its_text() {
    let place = Place::new();
    place.write("my.txt", "Two roads diverged in a yellow wood. ".repeat(40));
    for text in ["my.txt", "./my.txt my.txt"] {
        let name = text.replace("./my.txt my.txt", "my.txt and 1 more");
        let said = place.train(&format!("{text} --out-dir run --overwrite")).succeeded();
        let line = format!("text        {name}: ");
        assert!(said.out.contains(&line), "{}", said.out);
        let short = "note        warmup_iters = 2, a tenth of lr_decay_iters = 20: ";
        assert!(said.out.contains(short), "{}", said.out);
        let said = place.run("train --resume run --max-iters 30").succeeded();
        assert!(said.out.contains(&line), "{}", said.out);
        assert!(said.out.contains("run: best/ last/ data/ config.toml "), "{}", said.out);
        let chart = place.read("run/loss.svg");
        assert!(chart.contains(&format!(">run: {name}<")), "{chart}");
    }
}

#[test]
fn what_a_run_is_cannot_change_when_it_resumes() {
    let place = Place::new();
    place.train("").succeeded();
    for (flag, key, old) in [
        ("--n-layer 2", "n_layer", "1"),
        ("--n-embd 16", "n_embd", "8"),
        ("--block-size 16", "block_size", "8"),
        ("--vocab-size 70", "vocab_size", "65"),
        ("--bias true", "bias", "false"),
        ("--activation silu", "activation", "\"gelu\""),
        ("--tokenizer byte", "tokenizer", "\"char\""),
        ("--val-fraction 0.2", "val_fraction", "0.1"),
        ("--seed 1", "seed", "1337"),
        ("--out-dir other", "out_dir", "\"\""),
    ] {
        let error = place.run(&format!("train --resume --max-iters 30 {flag}")).failed(2);
        assert!(error.contains(&format!("this run has {key} = {old}")), "{error}");
    }
    assert!(place.run("train --resume --eval-only").failed(2).contains("tinygpt eval"));
    assert!(place.read("runs/quick/config.toml").contains("max_iters = 20 "));
    assert_eq!(place.names("runs"), ["latest", "quick"]);
    place.write("my.txt", "another text");
    // A file after --resume is what to resume; before it, a text.
    assert!(place.run("train my.txt --resume").failed(2).contains("keeps its text"));
    assert!(place.run("train --resume my.txt").failed(1).contains("my.txt is no run"));
}

#[test]
fn what_was_edited_in_config_toml_is_told_or_refused_when_a_run_resumes() {
    let place = Place::new();
    place.train("").succeeded();
    let config = place.read("runs/quick/config.toml");
    let edited = |from: &str, to: &str| {
        assert!(config.contains(from), "{from}: {config}");
        place.write("runs/quick/config.toml", config.replace(from, to));
        place.run("train --resume --max-iters 22")
    };
    for (from, to) in [
        ("seed = 1337 ", "seed = 1 "),
        ("split = \"contiguous\"", "split = \"shuffled\""),
        ("tokenizer = \"char\"", "tokenizer = \"byte\""),
        ("val_fraction = 0.1 ", "val_fraction = 0.2 "),
        ("newline = \"keep\"", "newline = \"normalize\""),
        ("lossy = false", "lossy = true"),
        ("n_layer = 1 ", "n_layer = 2 "),
    ] {
        let error = edited(from, to).failed(2);
        assert!(error.contains(&format!("this run has {}", from.trim())), "{error}");
        assert_eq!(place.step_of("runs/quick/last"), 20);
    }
    let said = edited("learning_rate = 0.002 ", "learning_rate = 0.003 ").succeeded();
    assert!(said.err.contains("changed: learning_rate 0.002 -> 0.003\n"), "{}", said.err);
    let said = place.run("train --resume --max-iters 24").succeeded();
    assert!(!said.err.contains("learning_rate"), "{}", said.err);
}

#[test]
fn a_last_checkpoint_that_is_damaged_or_not_finite_leads_to_the_best() {
    let place = Place::new();
    place.train("").succeeded();
    let last = place.at("runs/quick/last");
    let state = last.join("training_state.safetensors");
    let whole = fs::read(&state).unwrap();
    fs::write(&state, &whole[..whole.len() / 2]).unwrap();
    let error = place.run("train --resume --max-iters 30").failed(1);
    assert!(error.contains("truncated"), "{error}");
    assert!(
        error.contains("runs/quick/best is whole, of step 20: remove runs/quick/last"),
        "{error}"
    );
    fs::write(&state, &whole).unwrap();

    let mut weights = fs::read(last.join("model.safetensors")).unwrap();
    let end = weights.len();
    weights[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(last.join("model.safetensors"), weights).unwrap();
    let error = place.run("train --resume --max-iters 30").failed(1);
    assert!(
        error.contains("transformer.ln_f.weight[7] of runs/quick/last is not finite"),
        "{error}"
    );
    assert!(!error.contains("learning_rate") && error.contains("best is whole"), "{error}");
    let error = place.run("train --init-from runs/quick/last").failed(1);
    assert!(
        error.contains("is not finite (NaN)") && error.contains("another checkpoint"),
        "{error}"
    );
    fs::remove_dir_all(&last).unwrap();
    place.run("train --resume --max-iters 30").succeeded();
}

#[test]
fn a_run_without_a_checkpoint_says_how_to_begin_anew() {
    let place = Place::new();
    place.write("out run/metrics.jsonl", "");
    let mut command = place.command("train --resume");
    let error = Said::of(command.arg("out run").output().unwrap()).failed(1);
    assert!(error.contains("tinygpt train --overwrite --out-dir 'out run'"), "{error}");
    let error =
        Said::of(place.command(&tiny("--out-dir")).arg("out run").output().unwrap()).failed(1);
    assert!(error.contains("--overwrite starts it anew") && !error.contains("--resume"), "{error}");
    let mut command = place.command(&tiny("--overwrite --out-dir"));
    let said = Said::of(command.arg("out run").output().unwrap()).succeeded();
    assert!(said.out.contains("tinygpt sample 'out run'\n"), "{}", said.out);
}

#[test]
fn a_checkpoint_without_its_training_state_says_what_is_missing() {
    let place = Place::new();
    assert!(place.run("train --resume").failed(1).contains("no latest run yet"));
    place.train("").succeeded();
    fs::remove_file(place.at("runs/quick/last/training_state.safetensors")).unwrap();
    let error = place.run("train --resume --max-iters 30").failed(1);
    assert!(error.contains("no training_state.safetensors"), "{error}");
    assert!(error.contains("--init-from"), "{error}");
    fs::remove_dir_all(place.at("runs/quick/last")).unwrap();
    place.run("train --resume --max-iters 30").succeeded(); // from the best
    assert_eq!(place.step_of("runs/quick/last"), 30);
    for checkpoint in ["runs/quick/last", "runs/quick/best"] {
        fs::remove_dir_all(place.at(checkpoint)).unwrap();
    }
    let error = place.run("train --resume --max-iters 40").failed(1);
    assert!(error.contains("has not saved a checkpoint yet"), "{error}");
    assert!(error.contains("tinygpt train --overwrite --out-dir runs/quick"), "{error}");
}

#[test]
fn a_run_resumes_with_its_text_although_that_has_gone() {
    let place = Place::new();
    place.write("my.txt", "to be or not to be ".repeat(40));
    place.train("my.txt").succeeded();
    fs::remove_file(place.at("my.txt")).unwrap();
    place.run("train --resume --max-iters 30").succeeded();
    assert_eq!(place.step_of("runs/quick/last"), 30);
    fs::remove_file(place.at("runs/quick/data/val.bin")).unwrap();
    fs::write(place.at("runs/quick/data/train.bin"), "TGPTTOKS").unwrap();
    let error = place.run("train --resume --max-iters 40").failed(1);
    assert!(error.contains("train.bin") && error.contains("cut short"), "{error}");
}

#[test]
fn a_run_resumes_with_the_vocabulary_of_the_weights_it_began_with() {
    let place = Place::new();
    // All of Tiny Shakespeare's letters and a few more, so that the ids differ.
    let all: String = (' '..='~').chain(['\n']).collect();
    place.write("all.txt", all.repeat(10));
    place.train("all.txt").succeeded();
    let begin = |words: &str| {
        let small = "--lr-decay-iters 8 --eval-interval 0 --eval-iters 1 --sample-tokens 4";
        place.run(&format!("train --init-from runs/quick {small} --threads 1 {words}")).succeeded()
    };
    begin("--max-iters 8 --out-dir whole");
    begin("--max-iters 4 --out-dir parts");
    place.run("train --resume parts --max-iters 8").succeeded();
    let steps = |run: &str| -> Vec<String> {
        let metrics = place.timeless_metrics(run);
        metrics.lines().filter(|line| line.contains("\"lr\"")).map(Into::into).collect()
    };
    assert_eq!(steps("parts"), steps("whole"));
}
