//! `tinygpt sample`.

use super::*;
use std::io::Read;

#[test]
fn a_prompt_may_be_typed_in_a_file_or_on_standard_input() {
    let place = Place::with_run(&[]);
    place.write("prompt.txt", "To be");
    place.write("marked.txt", "\u{feff}To be");
    let text = place.succeeds(&["sample", "--prompt", "To be", "-n", "40"]);
    assert!(text.starts_with("To be") && text.ends_with('\n'), "{text}");
    assert_eq!(text.chars().count(), 5 + 40 + 1);
    for prompt in [
        &["-p", "To be"][..],
        &["--start=To be"],
        &["--start=FILE:prompt.txt"],
        &["--prompt-file", "prompt.txt"],
        &["--prompt_file=marked.txt"],
    ] {
        assert_eq!(place.succeeds(&[&["sample", "-n", "40"], prompt].concat()), text, "{prompt:?}");
    }
    for prompt in [&["-p", "-"][..], &["--prompt-file", "-"], &["--start=FILE:-"]] {
        let args = [&["sample", "--num_tokens", "40"], prompt].concat();
        assert_eq!(place.succeeds_given("To be", &args), text, "{prompt:?}");
    }
    #[cfg(unix)]
    {
        let args = ["sample", "-n", "40", "--prompt-file", "/dev/stdin"];
        assert_eq!(place.succeeds_given("To be", &args), text);
    }
    let escaped = place.succeeds(&["sample", "-e", "-p", r"To\nbe", "-n", "0"]);
    assert_eq!(escaped, "To\nbe\n");
}

#[test]
#[cfg(unix)]
fn standard_input_that_nobody_closes_is_not_waited_for() {
    let place = Place::with_run(&[]);
    let mut child = place.tinygpt(&["sample", "-n", "7"]).stdin(Stdio::piped()).spawn().unwrap();
    let open = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(open);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), place.succeeds(&["sample", "-n", "7"]));
    let note = String::from_utf8(output.stderr).unwrap();
    assert!(note.contains("standard input is not read; --prompt -"), "{note}");
}

#[test]
#[cfg(unix)]
fn prompts_without_an_end_are_refused_at_their_limit() {
    let place = Place::with_run(&[]);
    let message = place.fails(1, &["sample", "--prompt-file", "/dev/zero"]);
    assert!(message.contains("/dev/zero is larger than 16777216 bytes"), "{message}");
    let mut command = place.tinygpt(&["sample", "--prompt", "-"]);
    command.stdin(std::fs::File::open("/dev/zero").unwrap());
    let (code, _, message) = ended(command);
    assert!(code == 1 && message.contains("standard input is larger than"), "{message}");
    assert!(place.fails(1, &["sample", "--prompt-file", "runs"]).contains("runs is a folder"));
}

#[test]
fn a_prompt_typed_where_a_run_belongs_is_told_where_it_goes() {
    let place = Place::with_run(&[]);
    let message = place.fails(1, &["sample", "O God, O"]);
    assert!(message.contains("tinygpt sample --prompt 'O God, O'"), "{message}");
    assert!(message.contains("runs/quick"), "{message}");
}

#[test]
fn a_model_that_goes_round_in_a_circle_is_told_to_be_freer() {
    let place = Place::with_run(&[]);
    let (code, text, note) = place.run(&["sample", "-n", "300", "--temperature", "0"]);
    assert_eq!((code, text.chars().count()), (0, 301));
    assert!(note.contains("--temperature 0.8"), "{note}");
}

#[test]
fn a_damaged_best_checkpoint_leads_to_the_last_and_weights_need_no_training_state() {
    let place = Place::with_run(&[]);
    for checkpoint in ["best", "last"] {
        place.write(&format!("runs/quick/{checkpoint}/training_state.safetensors"), "damaged");
    }
    for verb in ["sample", "eval", "check"] {
        let words = if verb == "check" { &["--only", "weights"][..] } else { &[] };
        place.succeeds(&[&[verb, "runs/quick"], words].concat());
    }
    let page = place.succeeds(&["info", "runs/quick"]);
    assert!(page.contains("best       damaged: ") && page.contains("PARAMETERS"), "{page}");
    place.train(&["my.txt", "--init-from", "runs/quick"]);

    let model = std::fs::read(place.path("runs/quick/best/model.safetensors")).unwrap();
    place.write("runs/quick/best/model.safetensors", &model[..model.len() / 2]);
    for args in [
        &["sample", "runs/quick"][..],
        &["eval", "quick"],
        &["check", "runs/quick"],
        &["train", "--init-from", "runs/quick"],
    ] {
        let message = place.fails(1, args);
        assert!(message.contains("runs/quick/best/model.safetensors: file truncated"), "{message}");
        assert!(message.contains("hint: runs/quick/last is whole"), "{message}");
    }
    place.succeeds(&["info", "runs/quick"]);
    place.succeeds(&["sample", "runs/quick/last"]);
}

#[test]
fn an_empty_prompt_starts_a_line_and_a_blank_one_is_kept() {
    let place = Place::with_run(&[]);
    for prompt in [&[][..], &["-p", ""]] {
        let text = place.succeeds(&[&["sample", "-n", "7"], prompt].concat());
        assert_eq!(text.chars().count(), 7 + 1, "{text:?}");
    }
    assert!(place.succeeds(&["sample", "-p", " ", "-n", "7"]).starts_with(' '));
}

#[test]
fn nothing_to_add_prints_the_prompt_and_a_prompt_of_many_contexts_is_printed_whole() {
    let place = Place::with_run(&[]);
    assert_eq!(place.succeeds(&["sample", "-p", "To be", "-n", "0"]), "To be\n");
    assert_eq!(place.succeeds(&["sample", "--num-samples", "0"]), "");
    let (prompt, new) = (&TEXT.repeat(2)[..3 * BLOCK_SIZE], (5 * BLOCK_SIZE).to_string());
    let text = place.succeeds(&["sample", "-p", prompt, "--max-new-tokens", &new]);
    assert!(text.starts_with(prompt), "{text}");
    assert_eq!(text.chars().count(), 8 * BLOCK_SIZE + 1);
}

#[test]
fn characters_the_model_does_not_know_are_named_and_can_be_skipped() {
    let place = Place::with_run(&[]);
    let message = place.fails(1, &["sample", "-p", "to\nbé"]);
    assert!(message.contains("the prompt: 1 character not in the vocabulary"), "{message}");
    assert!(message.contains("'é' at line 2, column 2"), "{message}");
    assert!(message.contains("hint: --skip-unknown"), "{message}");
    let skipped = |prompt| place.succeeds(&["sample", "-p", prompt, "--skip-unknown", "-n", "5"]);
    assert!(skipped("to\nbé").starts_with("to\nb"));
    assert_eq!(skipped("éÉ").chars().count(), 5 + 1);
}

#[test]
fn every_way_to_choose_works_at_its_edges_and_impossible_ones_are_refused() {
    let place = Place::with_run(&[]);
    let text = |flag: &str| place.succeeds(&["sample", "-n", "60", flag]);
    // Which may say that the text goes round in a circle.
    let greedy = place.run(&["sample", "-n", "60", "--temperature=0"]).1;
    for flag in ["--top-p=0", "--top_k=1", "--temp=1e-8", "--min-p=1"] {
        assert_eq!(text(flag), greedy, "{flag}");
    }
    let all = text("--top-k=0");
    for flag in ["--top-k=200", "--top-k=18", "--top-k=999999999", "--top-p=1", "--min-p=0"] {
        assert_eq!(text(flag), all, "{flag}");
    }
    for (flag, problem) in [
        ("--temperature=-1", "temperature = -1: must be a finite number, 0 or more"),
        ("--temperature=nan", "temperature = NaN: must be"),
        ("--temperature=inf", "temperature = inf: must be"),
        ("--top-p=1.5", "top_p = 1.5: must be in [0, 1]"),
        ("--min-p=-0.1", "min_p = -0.1: must be in [0, 1]"),
        ("--top-k=-1", "--top-k -1: must be a whole number"),
        ("--num-samples=-1", "--num-samples -1: must be a whole number"),
        ("--max-new-tokens=many", "--max-new-tokens many: must be a whole number"),
        ("--stop=", "--stop is empty"),
    ] {
        let message = place.fails(2, &["sample", flag]);
        assert!(message.contains(problem), "{message}");
    }
}

#[test]
fn a_seed_repeats_its_texts_on_any_number_of_threads() {
    let place = Place::with_run(&[]);
    let text = |flags: &[&str]| place.succeeds(&[&["sample", "-n", "50"], flags].concat());
    assert_eq!(text(&[]), text(&["--seed", "1337", "--threads", "3"]));
    assert_ne!(text(&[]), text(&["-s", "1"]));
    let three = text(&["--num_samples=3"]);
    let texts: Vec<_> = three.split("---------------\n").collect();
    assert_eq!((texts.len(), texts[0]), (3, &*text(&[])));
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{three}");
}

#[test]
fn texts_written_together_are_those_written_one_by_one_with_stops_and_all() {
    let place = Place::with_run(&[]);
    for flags in [&["--temp=9"][..], &["--temp=9", "--stop", "e"], &["--quantize", "int8"]] {
        let text = |n: &str| {
            let args = ["sample", "-p", "To be", "-n", "40", "--num-samples", n];
            place.succeeds(&[&args, flags].concat())
        };
        // More than go together.
        let all = text("19");
        let texts: Vec<_> = all.split("---------------\n").collect();
        assert_eq!(texts.len(), 19);
        for n in [1, 2, 3, 8, 9, 17] {
            assert_eq!(text(&n.to_string()), texts[..n].join("---------------\n"), "{flags:?}");
        }
    }
}

#[test]
fn weights_in_fewer_bits_write_and_impossible_ones_are_refused() {
    let place = Place::with_run(&[]);
    let text = |flags: &[&str]| place.succeeds(&[&["sample", "-n", "30"], flags].concat());
    assert_eq!(text(&["--dtype", "auto"]), text(&[]));
    for flags in [&["--dtype=f32"][..], &["--dtype", "bf16"], &["--quantize=int8"]] {
        assert_eq!(text(flags).chars().count(), 31, "{flags:?}");
        assert_eq!(text(flags), text(&[flags, &["--threads", "3"]].concat()));
    }
    for flags in [&["--dtype", "f64"][..], &["--quantize", "int4"]] {
        place.fails(2, &[&["sample"], flags].concat());
    }
    place.fails(2, &["sample", "--quantize", "int8", "--dtype", "f32"]);
    place.break_a_weight();
    for flags in [&["--dtype=f32"][..], &["--dtype", "bf16"], &["--quantize=int8"]] {
        let message = place.fails(1, &[&["sample"], flags].concat());
        assert!(message.contains("is not finite"), "{message}");
    }
}

#[test]
fn a_text_ends_before_the_first_stop_that_comes_after_the_prompt() {
    let place = Place::with_run(&[]);
    let text = |flags: &[&str]| {
        place.succeeds(&[&["sample", "-p", "To be", "-n", "90", "--temp=9"], flags].concat())
    };
    let whole = text(&[]);
    for at in [5, 20, 70] {
        let stop: String = whole.chars().skip(at).take(3).collect();
        let expected = whole[..5 + whole[5..].find(&stop).unwrap()].to_owned() + "\n";
        assert_eq!(text(&["--stop", &stop]), expected);
        assert_eq!(text(&["--stop", "unheard of", "--stop", &stop]), expected);
    }
    let line = text(&["--escape", "--stop", r"\n"]);
    assert_eq!(line.lines().count(), 1);
    assert_eq!(line.trim_end(), whole.lines().next().unwrap().trim_end());
    assert_eq!(text(&["--stop", "unheard of"]), whole);
}

#[test]
fn a_reader_that_stops_reading_ends_the_text_quietly() {
    let place = Place::with_run(&[]);
    let endless = ["sample", "-n", "1000000000", "--num-samples", "9"];
    let mut child = place.tinygpt(&endless).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 10]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    let said = unnamed(String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), &*said), (Some(0), ""));
}

#[test]
#[cfg(unix)]
fn a_full_disk_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        eprintln!("skipped: no /dev/full");
        return;
    };
    let place = Place::with_run(&[]);
    let mut command = place.tinygpt(&["sample", "-n", "1000000000"]);
    command.stdout(full);
    let (code, _, message) = ended(command);
    assert_eq!(code, 1);
    assert!(message.contains("cannot write to standard output"), "{message}");
}

#[test]
fn bytes_become_whole_characters_or_replacements_wherever_the_text_is_cut() {
    let place = Place::new();
    place.write("my.txt", "😊 “你好” ".repeat(30));
    place.train(&["my.txt", "--tokenizer", "byte"]);
    for n in 0..9 {
        let n = n.to_string();
        for flags in [&["--temp=9", "--top-k=0", "-s", &n][..], &["--temp=0"]] {
            // `run` insists on UTF-8.
            let text = place.succeeds(&[&["sample", "-p", "é😊", "-n", &n], flags].concat());
            assert!(text.starts_with("é😊"), "{text}");
        }
    }
}

#[test]
fn ids_that_only_pad_the_vocabulary_are_never_written() {
    let place = Place::with_run(&["--vocab-size", "64"]);
    let text = place.succeeds(&["sample", "-n", "400", "--temp=99", "--top-k=0"]);
    assert_eq!(text.chars().count(), 401);
    assert!(text.chars().all(|c| TEXT.contains(c)), "{text}");
}

#[test]
fn prompts_that_cannot_be_read_name_their_file_and_place() {
    let place = Place::with_run(&[]);
    place.write("latin1.txt", b"caf\xe9");
    let message = place.fails(1, &["sample", "--prompt-file", "latin1.txt"]);
    assert!(message.contains("latin1.txt is not UTF-8 text (byte 3)"), "{message}");
    let message = place.fails(1, &["sample", "-p", "FILE:nowhere.txt"]);
    assert!(message.contains("cannot read nowhere.txt"), "{message}");
}

#[test]
fn a_model_that_is_not_there_yet_or_not_whole_says_what_to_do() {
    let place = Place::new();
    let message = place.fails(1, &["sample"]);
    assert!(message.contains("no latest run yet") && message.contains("`tinygpt train`"));
    let message = place.fails(1, &["sample", "runs/quik"]);
    assert!(message.contains("runs/quik: there is no such run"), "{message}");

    let place = Place::with_run(&[]);
    let message = place.fails(1, &["sample", "quik"]);
    assert!(message.contains("the runs here: runs/quick"), "{message}");
    let said = |folder: &str| place.fails(1, &["sample", folder]);
    let damaged = |name: &str, file: &str, contents: &[u8]| {
        copy(&place.path("runs/quick/best"), &place.path(name));
        place.write(&format!("{name}/{file}"), contents);
        said(name)
    };
    let model = std::fs::read(place.path("runs/quick/best/model.safetensors")).unwrap();
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    for (name, file, contents, problem) in [
        ("cut", "model.safetensors", &model[..model.len() / 2], "file truncated: expected"),
        ("lfs", "model.safetensors", pointer, "Git LFS pointer"),
        ("torch", "model.safetensors", b"PK\x03\x04\x00\x00\x00\x00\x00", "zip archive"),
        ("hf", "config.json", br#"{"model_type": "gpt2"}"#, "n_layer = 12"),
        ("bpe", "tokenizer.json", br#"{"model": {"type": "Unigram"}}"#, "Unigram"),
        ("broken", "tokenizer.json", b"{", "tokenizer.json"),
        ("words", "tokenizer.json", tokens(99).as_bytes(), "has 99 tokens, its model 18"),
    ] {
        let message = damaged(name, file, contents);
        assert!(message.contains(problem) && message.contains(name), "{message}");
    }
    std::fs::remove_file(place.path("words/tokenizer.json")).unwrap();
    assert!(said("words").contains("words has no tokenizer.json"));
    place.write("my.bin", b"PK\x03\x04\x00\x00\x00\x00\x00");
    assert!(said("my.bin").contains("a zip archive that is damaged or cut short"));
}

/// The tokenizer.json of `n` characters.
fn tokens(n: u32) -> String {
    tinygpt::Tokenizer::from_chars((0..n).filter_map(char::from_u32)).to_json()
}

#[test]
fn weights_that_are_not_finite_are_an_error_and_nothing_is_made_up() {
    let place = Place::with_run(&[]);
    place.break_a_weight();
    let (code, stdout, stderr) = place.run(&["sample", "-p", "To"]);
    assert_eq!((code, &*stdout), (1, "To\n"));
    assert!(stderr.starts_with("error: the logit of token "), "{stderr}");
    assert!(stderr.contains("not finite (NaN)\nhint: "), "{stderr}");
}

#[test]
fn a_model_is_a_run_a_checkpoint_or_a_file() {
    let place = Place::with_run(&[]);
    let text = place.succeeds(&["sample"]);
    for model in [
        "quick",
        "runs/quick",
        "runs/latest",
        "runs/quick/best",
        "runs/quick/best/model.safetensors",
        "--out-dir=runs/quick",
        "--out_dir=quick",
    ] {
        assert_eq!(place.succeeds(&["sample", model]), text, "{model}");
    }
}

#[test]
fn a_prompt_of_no_file_is_bad_usage() {
    let place = Place::with_run(&[]);
    let (code, _, message) = place.run(&["sample", "--prompt", "FILE:"]);
    assert!(code == 2 && message.contains("--prompt FILE: names no file"), "{message}");
}
