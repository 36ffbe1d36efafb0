//! New runs: what they leave, where, and what they say.

use crate::place::{Place, Said, tiny};
use std::fs;
use std::io::Read;

const CHECKPOINT: [&str; 4] =
    ["config.json", "model.safetensors", "tokenizer.json", "training_state.safetensors"];

#[test]
fn a_run_leaves_its_folder_and_the_next_one_gets_a_number() {
    let place = Place::new();
    place.train("").succeeded();
    assert_eq!(
        place.names("runs/quick"),
        ["best", "config.toml", "last", "loss.svg", "metrics.csv", "metrics.jsonl", "samples.txt"]
    );
    for checkpoint in ["runs/quick/best", "runs/quick/last"] {
        assert_eq!(place.names(checkpoint), CHECKPOINT);
    }
    assert_eq!(place.step_of("runs/quick/last"), 20);
    assert_eq!(place.read("runs/quick/metrics.jsonl").lines().count(), 20 + 5);
    assert!(place.read("runs/quick/config.toml").contains("n_layer = 1 "));
    assert!(place.read("runs/quick/samples.txt").contains("=== step 20 ==="));
    let said = place.train("--max-iters 2").succeeded();
    assert!(said.out.contains("tinygpt sample runs/quick-2"), "{}", said.out);
    assert_eq!(place.names("runs"), ["latest", "quick", "quick-2"]);
    assert_eq!(fs::canonicalize(place.at("runs/latest")).unwrap().file_name().unwrap(), "quick-2");
}

#[test]
fn a_run_in_the_way_is_replaced_only_when_asked_and_a_users_files_stay() {
    let place = Place::new();
    place.write("my.txt", "to be or not to be ".repeat(40));
    place.train("my.txt --out-dir out").succeeded();
    for path in ["out/notes.txt", "out/data/mine.csv", "out/best/readme"] {
        place.write(path, "mine");
    }
    let before = place.read("out/metrics.jsonl");
    let error = place.train("my.txt --out-dir out").failed(1);
    for way_out in ["--resume", "--overwrite", "--out-dir"] {
        assert!(error.contains(way_out), "{error}");
    }
    assert_eq!(place.read("out/metrics.jsonl"), before);
    let overwrite = "my.txt --out-dir out --overwrite --max-iters 2";
    let error = place.train(overwrite).failed(1);
    assert!(error.contains("out/best/readme is in the way"), "{error}");
    assert_eq!(place.step_of("out/best"), 20);
    fs::remove_file(place.at("out/best/readme")).unwrap();
    place.train(overwrite).succeeded();
    assert_eq!(place.step_of("out/last"), 2);
    for path in ["out/notes.txt", "out/data/mine.csv"] {
        assert_eq!(place.read(path), "mine");
    }
    assert!(place.train("--overwrite").failed(2).contains("--out-dir"));
    let error = place.train("--out-dir .").failed(1);
    assert!(error.contains("neither empty nor a run"), "{error}");
}

#[test]
fn an_overwriting_start_that_fails_takes_nothing_away() {
    let place = Place::new();
    place.train("--out-dir out").succeeded();
    for mistake in ["nothing.txt", "--threads 2000000", "--n-head 3", "--block-size 2000000"] {
        assert_ne!(place.train(&format!("--out-dir out --overwrite {mistake}")).code, Some(0));
        assert_eq!(place.step_of("out/last"), 20, "{mistake}");
    }
}

#[test]
fn nanogpts_lines_are_there_in_a_pipe() {
    let said = Place::new().train("").succeeded();
    let decimal = |text: &str, places| match text.split_once('.') {
        Some((whole, fraction)) => {
            whole.parse::<u64>().is_ok()
                && fraction.len() == places
                && fraction.parse::<u64>().is_ok()
        }
        None => false,
    };
    // "^iter \d+: loss \d+\.\d{4}, time \d+\.\d{2}ms, " and
    // "^step \d+: train loss \d+\.\d{4}, val loss \d+\.\d{4}".
    let step = |line: &str| -> Option<bool> {
        let (iter, rest) = line.strip_prefix("iter ")?.split_once(": loss ")?;
        let (loss, rest) = rest.split_once(", time ")?;
        let (time, _) = rest.split_once("ms, ")?;
        Some(iter.parse::<u64>().is_ok() && decimal(loss, 4) && decimal(time, 2))
    };
    let evaluation = |line: &str| -> Option<bool> {
        let (iter, rest) = line.strip_prefix("step ")?.split_once(": train loss ")?;
        let (train, val) = rest.split_once(", val loss ")?;
        let val = val.split(',').next()?;
        Some(iter.parse::<u64>().is_ok() && decimal(train, 4) && decimal(val, 4))
    };
    let count = |is: &dyn Fn(&str) -> Option<bool>| {
        said.out.lines().filter(|line| is(line) == Some(true)).count()
    };
    assert_eq!((count(&step), count(&evaluation)), (20, 5), "{}", said.out);
}

#[test]
fn a_reader_that_stops_reading_does_not_stop_the_training() {
    let place = Place::new();
    // More lines than a pipe holds.
    let words = crate::place::tiny("--max-iters 3000 --eval-interval 0");
    let mut child = place.command(&words).spawn().unwrap();
    let mut first = [0; 5];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(place.step_of("runs/quick/last"), 3000);
}

#[test]
fn a_folder_called_latest_does_not_stop_a_training() {
    let place = Place::new();
    place.write("runs/latest/notes.txt", "mine");
    let said = place.train("").succeeded();
    assert!(said.err.contains("runs/latest cannot be made to name this run"), "{}", said.err);
    assert!(place.run("sample").failed(1).contains("runs/latest is a folder"));
    place.run("sample runs/quick -n 3").succeeded();
    assert_eq!(place.read("runs/latest/notes.txt"), "mine");
}

#[test]
fn runs_that_start_together_each_have_a_folder() {
    let place = Place::new();
    let words = crate::place::tiny("");
    let children: Vec<_> = (0..6).map(|_| place.command(&words).spawn().unwrap()).collect();
    for child in children {
        crate::place::Said::of(child.wait_with_output().unwrap()).succeeded();
    }
    assert_eq!(place.names("runs").len(), 7);
}

#[test]
fn weights_alone_start_a_run_in_their_own_shape() {
    let place = Place::new();
    place.train("--n-embd 12 --dropout 0.1").succeeded();
    place.write("weights/readme", "");
    for name in ["model.safetensors", "config.json", "tokenizer.json"] {
        fs::copy(place.at("runs/quick/best").join(name), place.at("weights").join(name)).unwrap();
    }
    let train = |words: &str| {
        let schedule = "--max-iters 3 --eval-iters 1 --batch-size 2 --sample-tokens 4 --threads 1";
        place.run(&format!("train {schedule} {words}"))
    };
    let said = train("--init-from weights").succeeded();
    assert!(said.err.contains("weights only"), "{}", said.err);
    let config = place.read("runs/quick-2/config.toml");
    assert!(config.contains("n_embd = 12 ") && config.contains("block_size = 8 "), "{config}");
    let error = train("--init-from weights --n-embd 16").failed(2);
    assert!(error.contains("n_embd = 16") && error.contains("n_embd = 12"), "{error}");
    train("--init-from weights --n-embd 12").succeeded();
    train("--init-from runs/quick/best/model.safetensors").succeeded();
    let said = train("--init-from runs/quick").succeeded();
    assert!(!said.err.contains("weights only"), "{}", said.err);
    // A text with letters the weights do not know.
    place.write("greek.txt", "αβγ".repeat(100));
    let error = train("greek.txt --init-from weights").failed(1);
    assert!(error.contains('α') && error.contains("not in the vocabulary"), "{error}");
    assert!(train("--init-from nowhere").failed(1).contains("nowhere"));
}

#[test]
fn of_several_starts_in_one_folder_one_trains_and_the_others_say_why_not() {
    let place = Place::new();
    let start = || place.command(&tiny("--out-dir race")).spawn().unwrap();
    let started: Vec<_> = (0..6).map(|_| start()).collect();
    let ended = started.into_iter().map(|child| Said::of(child.wait_with_output().unwrap()));
    let (won, lost): (Vec<_>, Vec<_>) = ended.partition(|said| said.code == Some(0));
    assert_eq!(won.len(), 1, "{lost:?}");
    for said in lost {
        let error = said.failed(1);
        let known = ["there is a run already", "another process is training this run"];
        assert!(known.iter().any(|text| error.contains(text)), "{error}");
    }
    assert_eq!(place.step_of("race/last"), 20);
}
