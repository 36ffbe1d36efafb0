//! Ctrl-C and SIGTERM, once and twice, in training and before.

use crate::place::{Place, Said, signal, tiny, wait_until};
use std::fs;

#[test]
fn a_run_stopped_by_a_signal_goes_on_as_if_nothing_had_happened() {
    let long = "--max-iters 4000 --eval-interval 500 --dropout 0.1";
    let whole = Place::new();
    whole.train(long).succeeded();
    for name in ["INT", "TERM"] {
        let place = Place::new();
        let child = place.command(&tiny(long)).spawn().unwrap();
        let metrics = place.at("runs/quick/metrics.jsonl");
        wait_until("it trains", || {
            fs::read_to_string(&metrics).is_ok_and(|text| text.contains("\"iter\":60"))
        });
        signal(&child, name);
        let said = Said::of(child.wait_with_output().unwrap()).stopped();
        assert!(said.err.contains("to save"), "{}", said.err);
        let step = place.step_of("runs/quick/last");
        assert!((60..4000).contains(&step), "stopped at {step}");
        assert!(said.out.contains("tinygpt train --resume runs/quick\n"), "{}", said.out);

        let said = place.run("train --resume").succeeded();
        assert!(said.out.contains(&format!("iter {step}: ")), "{}", said.out);
        assert_eq!(place.timeless_metrics("runs/quick"), whole.timeless_metrics("runs/quick"));
        for file in ["last/model.safetensors", "best/model.safetensors", "samples.txt"] {
            let read = |place: &Place| fs::read(place.at("runs/quick").join(file)).unwrap();
            assert!(read(&place) == read(&whole), "{file} differs after {name} at {step}");
        }
    }
}

#[test]
fn a_second_signal_stops_at_once_and_the_checkpoint_before_stays() {
    let place = Place::new();
    // A step is one part, of about a second.
    let slow = "--n-layer 6 --n-embd 384 --block-size 1024 --max-iters 1000";
    let child = place.command(&tiny(slow)).spawn().unwrap();
    wait_until("the first checkpoint", || place.at("runs/quick/last").exists());
    signal(&child, "INT");
    // Signals of one kind that come together are one.
    std::thread::sleep(std::time::Duration::from_millis(200));
    signal(&child, "INT");
    let said = Said::of(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(!said.out.contains("go on"), "{}", said.out);
    assert_eq!(place.step_of("runs/quick/last"), 0);
}

#[test]
fn one_signal_ends_an_evaluation_a_sample_and_a_step_that_take_minutes() {
    for slow in [
        "--eval-iters 20000000",
        "--eval-interval 1 --sample-tokens 50000000",
        "--eval-interval 0 --gradient-accumulation-steps 20000000",
    ] {
        let place = Place::new();
        let child = place.command(&tiny(slow)).spawn().unwrap();
        wait_until("it trains", || place.at("runs/quick/config.toml").exists());
        std::thread::sleep(std::time::Duration::from_millis(300));
        signal(&child, "INT");
        Said::of(child.wait_with_output().unwrap()).stopped();
        assert_eq!(place.step_of("runs/quick/last"), 0);
        assert_eq!(place.read("runs/quick/metrics.jsonl"), "");
    }
}

#[test]
fn a_run_stopped_in_its_last_evaluation_goes_on_with_that() {
    let place = Place::new();
    let slow = "--eval-interval 0 --eval-iters 20000000";
    let child = place.command(&tiny(slow)).spawn().unwrap();
    let metrics = place.at("runs/quick/metrics.jsonl");
    wait_until("the steps are done", || {
        fs::read_to_string(&metrics).is_ok_and(|text| text.lines().count() == 20)
    });
    signal(&child, "INT");
    Said::of(child.wait_with_output().unwrap()).stopped();
    let said = place.run("train --resume --eval-iters 1").succeeded();
    assert!(said.out.contains("\nstep 20: train loss "), "{}", said.out);
    assert_eq!(place.step_of("runs/quick/best"), 20);
    assert!(place.run("train --resume").succeeded().out.contains("already at 20 of 20"));
}

#[test]
fn a_signal_while_a_text_is_read_leaves_nothing() {
    let place = Place::new();
    let mut command = place.command(&tiny("-"));
    let child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    wait_until("it reads", || place.names(".").iter().any(|n| n.starts_with(".preparing-")));
    std::thread::sleep(std::time::Duration::from_millis(50));
    signal(&child, "TERM");
    // Its input stays open: the signal alone ends it.
    wait_until("it has gone", || place.names(".").is_empty());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_was_ignored_when_the_program_started_stays_ignored() {
    let place = Place::new();
    let mut command = place.command_of("sh", "-c");
    command.args(["trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tinygpt")]);
    let long = tiny("--max-iters 1000000 --eval-interval 0 --log-interval 0");
    let child = command.args(long.split_whitespace()).spawn().unwrap();
    let metrics = place.at("runs/quick/metrics.jsonl");
    let lines = || fs::read_to_string(&metrics).map_or(0, |text| text.lines().count());
    wait_until("it trains", || lines() > 10);
    signal(&child, "HUP");
    std::thread::sleep(std::time::Duration::from_millis(100));
    let then = lines();
    wait_until("it goes on", || lines() > then + 10);
    signal(&child, "TERM");
    let said = Said::of(child.wait_with_output().unwrap()).stopped();
    assert_eq!(said.err.matches("to save").count(), 1, "{}", said.err);
}
