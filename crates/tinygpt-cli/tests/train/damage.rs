//! Kills and full disks: the last checkpoint stays.

use crate::place::{Place, Said, tiny, wait_until};
use std::process::{Child, Stdio};
use std::{fs, thread::sleep, time::Duration};
use tinygpt::checkpoint::{exists, read_progress};

/// Saves at every step.
const BUSY: &str = "--eval-interval 1 --log-interval 0 --warmup-iters 1 --max-iters 100000";

/// A run's folder after a kill or a full disk holds nothing that a run would not make.
#[track_caller]
fn nothing_stray(place: &Place, run: &str) {
    let known = [
        "best",
        "config.toml",
        "data",
        "last",
        "loss.svg",
        "metrics.csv",
        "metrics.jsonl",
        "samples.txt",
    ];
    let names = place.names(run);
    assert!(names.iter().all(|name| known.contains(&name.as_str())), "{names:?}");
}

/// A run that nobody listens to, so that no full pipe stops it.
fn unheard(place: &Place, words: &str) -> Child {
    place.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_kill_at_any_moment_leaves_checkpoints_that_load_and_a_run_that_resumes() {
    let place = Place::new();
    let last = place.at("runs/quick/last");
    let (mut words, mut step) = (tiny(BUSY), 0);
    for kill in 0..20 {
        let mut child = unheard(&place, &words);
        wait_until("it saves", || match read_progress(&last) {
            Ok(Some(progress)) => progress.step > step,
            _ => false,
        });
        // Moments spread over a few saves, in no rhythm with them.
        sleep(Duration::from_micros(kill * 7919 % 20_000));
        child.kill().unwrap();
        child.wait().unwrap();
        place.step_of("runs/quick/best");
        let now = place.step_of("runs/quick/last");
        assert!(now > step, "step {now} after {step}");
        (words, step) = ("train --resume".into(), now);
    }
    let end = step + 10;
    place.run(&format!("train --resume --max-iters {end}")).succeeded();
    assert_eq!(place.step_of("runs/quick/last"), end);
    nothing_stray(&place, "runs/quick");
    let lines = place.timeless_metrics("runs/quick");
    for iter in 0..end {
        let line = format!("{{\"iter\":{iter},");
        assert_eq!(lines.matches(&line).count(), 2, "step {iter}: a step and an evaluation");
    }
}

#[test]
fn a_kill_during_the_very_first_save_leaves_a_run_that_says_what_it_is() {
    for kill in 0..12u64 {
        let place = Place::new();
        let mut child = unheard(&place, &tiny(BUSY));
        let metrics = place.at("runs/quick/metrics.jsonl");
        wait_until("the run's folder", || metrics.exists());
        sleep(Duration::from_micros(kill * 2000));
        child.kill().unwrap();
        child.wait().unwrap();
        let saved = ["best", "last"].iter().any(|name| exists(&place.at("runs/quick").join(name)));
        let said = place.run("train --resume --max-iters 1");
        if saved {
            // Without a word of trouble, but the kill may have come after the last step.
            assert!(said.code == Some(0) && !said.err.contains("error"), "{said:?}");
        } else {
            let error = said.failed(1);
            let known = ["has not saved a checkpoint yet", "there is no latest run yet"];
            assert!(known.iter().any(|text| error.contains(text)), "{error}");
        }
        place.train("--max-iters 1").succeeded();
    }
}

/// A disk of its own, if this user may mount one.
#[cfg(target_os = "linux")]
struct SmallDisk<'a>(&'a std::path::Path);

#[cfg(target_os = "linux")]
impl<'a> SmallDisk<'a> {
    fn mount(at: &'a std::path::Path, kib: u32) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let size = format!("size={kib}k");
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(at)
            .output();
        let mounted = mount.is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("skipped: no right to mount a small disk");
        }
        mounted.then_some(Self(at))
    }
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fills_up_costs_no_checkpoint_and_no_line() {
    let place = Place::new();
    let at = place.at("disk");
    let Some(_disk) = SmallDisk::mount(&at, 1024) else { return };
    place.train("--out-dir disk/run").succeeded();
    // Room for config.toml and some lines of metrics; a checkpoint of four files needs 29 kB.
    let _ = fs::write(at.join("filler"), vec![0; 2 << 20]);
    let filler = fs::File::options().write(true).open(at.join("filler")).unwrap();
    filler.set_len(filler.metadata().unwrap().len() - (20 << 10)).unwrap();
    drop(filler);
    let said = place.run("train --resume disk/run --max-iters 30");
    assert!(said.err.contains("warning: disk/run: its disk has 20.48 kB free"), "{}", said.err);
    assert!(said.err.contains("; training goes on and tries again"), "{}", said.err);
    let error = said.failed(1);
    assert!(error.contains("cannot write disk/run/"), "{error}");
    assert!(error.contains("No space left"), "{error}");
    assert_eq!((place.step_of("disk/run/best"), place.step_of("disk/run/last")), (20, 20));
    nothing_stray(&place, "disk/run");

    fs::remove_file(at.join("filler")).unwrap();
    place.run("train --resume disk/run --max-iters 30").succeeded();
    assert_eq!(place.step_of("disk/run/last"), 30);
    assert_eq!(place.timeless_metrics("disk/run").lines().count(), 30 + 7);
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_goes_on_while_its_disk_is_full_and_saves_when_there_is_room() {
    let place = Place::new();
    let at = place.at("disk");
    let Some(_disk) = SmallDisk::mount(&at, 8192) else { return };
    let words = "--out-dir disk/run --eval-interval 50 --max-iters 100000";
    let heard = fs::File::create(place.at("heard")).unwrap();
    let child = place.command(&tiny(words)).stdout(heard).spawn().unwrap();
    let metrics = at.join("run/metrics.jsonl");
    wait_until("it trains", || {
        fs::read_to_string(&metrics).is_ok_and(|text| text.contains("\"iter\":200"))
    });
    let _ = fs::write(at.join("filler"), vec![0; 16 << 20]);
    sleep(Duration::from_millis(500));
    place.step_of("disk/run/best");
    let saved = place.step_of("disk/run/last");
    fs::remove_file(at.join("filler")).unwrap();
    wait_until("it saves again", || match read_progress(&at.join("run/last")) {
        Ok(Some(progress)) => progress.step > saved,
        _ => false,
    });
    crate::place::signal(&child, "INT");
    let said = Said::of(child.wait_with_output().unwrap());
    let said = Said { out: place.read("heard"), ..said }.stopped();
    assert!(said.err.contains("training goes on and tries again"), "{}", said.err);
    let step = place.step_of("disk/run/last");
    let lines = place.timeless_metrics("disk/run");
    for iter in 0..step {
        assert!(lines.contains(&format!("{{\"iter\":{iter},")), "no line of step {iter}");
    }
    nothing_stray(&place, "disk/run");
}

#[test]
fn a_kill_while_a_text_is_read_leaves_nothing_for_long() {
    let place = Place::new();
    let left = place.at(".preparing-left");
    fs::create_dir(&left).unwrap();
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    fs::File::open(&left).unwrap().set_modified(old).unwrap();
    place.write("my.txt", "to be or not to be ".repeat(40));
    place.train("my.txt").succeeded();
    assert_eq!(place.names("."), ["my.txt", "runs"]);
}

#[test]
fn a_save_that_meets_a_limit_keeps_what_was_there() {
    let place = Place::new();
    place.train("--n-embd 16").succeeded();
    // No file over 8 KiB from here on; the checkpoint's are larger.
    let script = "ulimit -f 16; exec \"$0\" train --resume --max-iters 21";
    let mut command = place.command_of("sh", "-c");
    command.args([script, env!("CARGO_BIN_EXE_tinygpt")]);
    let said = Said::of(command.output().unwrap());
    let error = said.failed(1);
    assert!(error.contains("cannot write runs/quick/"), "{error}");
    assert!(error.contains("is as it was before"), "{error}");
    assert_eq!((place.step_of("runs/quick/best"), place.step_of("runs/quick/last")), (20, 20));
    nothing_stray(&place, "runs/quick");
    place.run("train --resume --max-iters 21").succeeded();
}

#[test]
fn metrics_that_meet_a_limit_cost_a_warning_and_no_step() {
    let place = Place::new();
    let mut command = place.command_of("sh", "-c");
    // No file over 32 KiB, which is more than a checkpoint's and less than 300 lines of metrics.
    command.args(["ulimit -f 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tinygpt")]);
    command.args(tiny("--max-iters 300 --eval-interval 0").split_whitespace());
    let said = Said::of(command.output().unwrap());
    assert_eq!(said.err.matches("training goes on").count(), 1, "{}", said.err);
    let error = said.failed(1);
    assert!(error.contains("cannot write runs/quick/metrics.jsonl"), "{error}");
    assert!(error.contains("the model is saved, as of step 300, in runs/quick/last"), "{error}");
    assert_eq!(place.step_of("runs/quick/last"), 300);
}

#[test]
fn a_chart_that_cannot_be_written_is_named_and_the_model_is_said_to_be_saved() {
    let place = Place::new();
    place.train("").succeeded();
    fs::remove_file(place.at("runs/quick/loss.svg")).unwrap();
    fs::create_dir(place.at("runs/quick/loss.svg")).unwrap();
    let error = place.run("train --resume --max-iters 30").failed(1);
    assert!(error.contains("cannot write runs/quick/loss.svg"), "{error}");
    assert!(error.contains("the model is saved, as of step 30"), "{error}");
    assert_eq!(place.step_of("runs/quick/last"), 30);
}

#[test]
fn a_checkpoint_without_its_model_is_said_before_the_first_step() {
    let place = Place::new();
    place.train("").succeeded();
    let metrics = place.read("runs/quick/metrics.jsonl");
    let [best, last] = ["best", "last"].map(|name| place.at("runs/quick").join(name));
    let (model, aside) = ("model.safetensors", place.at("aside"));
    fs::rename(last.join(model), &aside).unwrap();
    let error = place.run("train --resume --max-iters 30").failed(1);
    assert!(error.contains("runs/quick/last is no checkpoint: it has no model.saf"), "{error}");
    assert!(error.contains("runs/quick/best is whole, of step 20: remove runs/quick/"), "{error}");

    fs::remove_file(best.join(model)).unwrap();
    for words in ["train --resume", "sample"] {
        let error = place.run(words).failed(1);
        assert!(error.contains("it has no model.safetensors"), "{words}: {error}");
        assert!(!error.contains("--overwrite"), "{words}: {error}");
    }

    fs::rename(&aside, last.join(model)).unwrap();
    let error = place.run("train --resume --max-iters 30").failed(1);
    assert!(error.contains("hint: remove runs/quick/best: runs/quick/last is what"), "{error}");
    assert_eq!(place.read("runs/quick/metrics.jsonl"), metrics);
    fs::remove_dir_all(best).unwrap();
    place.run("train --resume --max-iters 30").succeeded();
}

#[test]
fn a_damaged_best_tokenizer_is_in_no_resumes_way() {
    let place = Place::new();
    place.train("").succeeded();
    fs::write(place.at("runs/quick/best/tokenizer.json"), "{").unwrap();
    place.run("train --resume --max-iters 30").succeeded();
}

#[test]
fn tokens_that_were_removed_are_made_again_from_the_text_as_it_was() {
    let place = Place::new();
    place.write("my.txt", "to be or not to be ".repeat(40));
    place.train("my.txt").succeeded();
    fs::remove_dir_all(place.at("runs/quick/data")).unwrap();
    let said = place.run("train --resume --max-iters 30").succeeded();
    assert!(said.out.contains("were made again from"), "{}", said.out);
    assert!(place.run("eval").succeeded().err.contains("were made again from"));
    place.write("my.txt", "to be or not to be ".repeat(41));
    let error = place.run("train --resume --max-iters 40").failed(1);
    assert!(error.contains("training tokens now") && error.contains("--init-from"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_model_that_is_too_large_for_a_limit_on_memory_is_said_whatever_the_verb() {
    let place = Place::new();
    place.train("--n-layer 2 --n-embd 64 --block-size 32 --max-iters 1").succeeded();
    for verb in [
        "check gpt2 --only weights",
        "eval",
        "check runs/quick --only weights",
        "train --resume --max-iters 2",
    ] {
        for mib in [30, 60, 90] {
            let limit = format!("ulimit -v {}; exec \"$0\" \"$@\"", mib << 10);
            let mut command = place.command_of("sh", "-c");
            command.args([&*limit, env!("CARGO_BIN_EXE_tinygpt")]).args(verb.split(' '));
            let said = Said::of(command.args(["--threads", "1"]).output().unwrap());
            let refused = said.err.contains("of memory, and");
            assert!(said.code == Some(0) || refused, "{verb} in {mib} MiB: {said:?}");
        }
    }
}

/// The tiny training where no file may be larger than 1 KiB, which is less than config.toml.
fn without_room(place: &Place, words: &str) -> Said {
    let mut command = place.command_of("sh", "-c");
    command.args(["ulimit -f 2; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tinygpt")]);
    Said::of(command.args(tiny(words).split_whitespace()).output().unwrap())
}

#[test]
fn a_start_that_cannot_write_its_settings_takes_back_what_it_made() {
    let place = Place::new();
    place.write("my.txt", "to be or not to be ".repeat(20));
    fs::create_dir(place.at("mine")).unwrap();
    for words in ["", "my.txt", "my.txt --out-dir a/b/c", "my.txt --out-dir mine", "--out-dir mine"]
    {
        let error = without_room(&place, words).failed(1);
        assert!(error.contains("/config.toml: ") && error.contains("too large"), "{error}");
        assert_eq!(place.names("."), ["mine", "my.txt"], "{words}");
        assert!(place.names("mine").is_empty(), "{words}");
    }
    place.train("").succeeded();
    without_room(&place, "").failed(1);
    assert_eq!(place.names("runs"), ["latest", "quick"]);
    place.run("sample -n 3").succeeded();
    place.write("runs/quick/notes.txt", "mine");
    without_room(&place, "my.txt --out-dir runs/quick --overwrite").failed(1);
    assert_eq!(place.names("runs/quick"), ["notes.txt"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_start_on_a_disk_that_is_full_takes_back_what_it_made_wherever_it_fails() {
    let place = Place::new();
    let at = place.at("disk");
    let Some(_disk) = SmallDisk::mount(&at, 256) else { return };
    let mut failures = std::collections::BTreeSet::new();
    for free in 0..8 {
        let _ = fs::write(at.join("filler"), vec![0; 1 << 20]);
        let filler = fs::File::options().write(true).open(at.join("filler")).unwrap();
        filler.set_len(filler.metadata().unwrap().len() - (free << 12)).unwrap();
        let error = place.train("--out-dir disk/run").failed(1);
        assert!(error.contains("No space left"), "{error}");
        let file = error.split(": ").nth(1).unwrap().rsplit('/').next().unwrap().to_owned();
        // What is trained stays, a checkpoint or not.
        let trained = !["metrics.jsonl", "metrics.csv", "config.toml", "run"].contains(&&*file);
        assert_eq!(
            at.join("run").exists() && place.at("runs/latest").is_symlink(),
            trained,
            "{error}"
        );
        failures.insert(file);
        let _ = fs::remove_dir_all(at.join("run"));
        let _ = fs::remove_dir_all(place.at("runs"));
    }
    assert!(failures.contains("config.toml"), "{failures:?}");
}
