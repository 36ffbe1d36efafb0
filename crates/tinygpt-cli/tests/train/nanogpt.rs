//! What somebody who comes from nanoGPT types: its config files, and its folders of tokens.

use crate::place::Place;

const CONFIG: &str = "\
# a tiny model
import time
out_dir = 'out-char'
eval_interval = 5 # often
eval_iters = 1
wandb_run_name = 'mini' + str(time.time())
dataset = 'shakespeare_char'
gradient_accumulation_steps = 1
batch_size = 2
block_size = 8
n_layer = 1
n_head = 2
n_embd = 4 * n_head
max_iters = 5000
lr_decay_iters = 5000
compile = False
";

#[test]
fn a_config_of_nanogpts_trains_without_python_and_flags_lie_over_it() {
    let place = Place::new();
    place.write("config/char.py", CONFIG);
    let said = place.run("train config/char.py --max_iters=10").succeeded();
    assert!(said.err.contains("mean nothing here: wandb_run_name, compile"), "{}", said.err);
    assert!(said.err.contains("data/shakespeare_char is not here: the built-in text"));
    assert_eq!(place.step_of("out-char/last"), 10);
    let table = place.read("out-char/metrics.csv");
    assert!(table.starts_with("iter,train/loss,val/loss,") && table.lines().count() == 1 + 10 + 3);
    place.run("train --resume out-char --max-iters 12").succeeded();
    place.run("train --config config/char.py --max-iters 1 --out-dir b").succeeded();
    let error = place.run("train config/char.py config/char.py").failed(2);
    assert!(error.contains("two config files"), "{error}");
}

#[test]
fn a_prepared_folder_trains_under_its_name_and_without_our_own_file_in_it() {
    let place = Place::new();
    place.write("my.txt", "To be, or not to be: that is the question.\n".repeat(20));
    let said = place.run("prepare my.txt --out data/mine").succeeded();
    assert!(said.out.contains("meta.pkl tokenizer.json train.bin val.bin"), "{}", said.out);
    let error = place.run("prepare my.txt --out data/mine").failed(1);
    assert!(error.contains("is there already") && error.contains("--force"), "{error}");
    place.run("prepare my.txt --out data/mine --force").succeeded();
    std::fs::remove_file(place.at("data/mine/tokenizer.json")).unwrap();
    place.train("data/mine --out-dir a").succeeded();
    place.write("mine.py", CONFIG.replace("shakespeare_char", "mine"));
    let said = place.run("train mine.py --max_iters=3 --out-dir b").succeeded();
    assert!(said.out.contains("text        data/mine: 774 training"), "{}", said.out);
    assert_eq!(place.names("."), ["a", "b", "data", "mine.py", "my.txt", "runs"]);
}

#[test]
fn what_a_config_of_nanogpts_wants_and_is_not_here_is_said_with_what_to_type() {
    let place = Place::new();
    for (text, parts) in [
        ("init_from = 'resume'", ["line 1", "tinygpt train --resume"]),
        ("init_from = 'gpt2'", ["weights of gpt2", "tinygpt train my.py --init-from"]),
        ("dataset = 'mine'", ["data/mine", "tinygpt prepare my.txt --out data/mine"]),
        ("n_layer = 1\nprint(n_layer)", ["my.py, line 2", "read, not run"]),
    ] {
        place.write("my.py", text);
        let error = place.run("train my.py").failed(2);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert_eq!(place.names("."), ["my.py"]);
    }
}

#[test]
fn nanogpts_flags_that_change_nothing_here_are_noted_once_and_a_gpu_is_refused() {
    let place = Place::new();
    let said = place
        .train("--device=cpu --compile=False --wandb_log=False --wandb-project x --max-iters 1")
        .succeeded();
    let note = "note: these keys of nanoGPT's mean nothing here: ";
    let notes: Vec<_> = said.err.lines().filter(|line| line.starts_with(note)).collect();
    assert_eq!(notes, [format!("{note}device, compile, wandb_log, wandb_project")]);
    // A word after a switch is a text, as for every other.
    place.write("my.txt", "to be or not to be ".repeat(40));
    let said = place.train("--compile my.txt --max-iters 1").succeeded();
    assert!(said.out.contains("text        my.txt"), "{}", said.out);
    place.write("char.py", CONFIG);
    let said = place.run("train char.py --compile False --device cpu --max_iters=1").succeeded();
    assert_eq!(said.err.matches("mean nothing here").count(), 1, "{}", said.err);
    assert!(said.err.contains(": wandb_run_name, compile, device\n"), "{}", said.err);
    place.run("train --resume out-char --device=cpu --max-iters 2").succeeded();
    for words in ["train --device=cuda", "train --device=mps", "sample --device cuda:0"] {
        let error = place.run(words).failed(2);
        assert!(error.contains("must be cpu: every kernel here"), "{error}");
    }
    let said = place.run("sample out-char --device=cpu --compile=False -n 1").succeeded();
    assert!(said.err.contains(": device, compile\n"), "{}", said.err);
}

#[test]
fn nanogpts_words_for_how_a_training_starts_are_understood() {
    let place = Place::new();
    place.train("--init_from=scratch --out_dir=out-a --max_iters=1").succeeded();
    for (step, words) in
        [(2, "--init_from=resume --out_dir=out-a"), (3, "--out-dir out-a --init-from resume")]
    {
        place.run(&format!("train {words} --max_iters={step}")).succeeded();
        assert_eq!(place.step_of("out-a/last"), step);
    }
    assert_eq!(place.names("."), ["out-a", "runs"]);
    let error = place.run("train --init_from=resume --out_dir=out-b").failed(1);
    assert!(error.contains("out-b: there is no such run"), "{error}");
    for words in ["--init_from=resume --out_dir=out-a", "--init_from out-a"] {
        let said = place.run(&format!("sample {words} --start=To --max_new_tokens=3")).succeeded();
        assert!(said.out.starts_with("To"), "{}", said.out);
    }
    let error = place.run("sample --init_from=gpt2-xl --start=To").failed(1);
    assert!(error.contains("hf download"), "{error}");
    // What is called so is meant.
    place.train("--out-dir scratch --max-iters 1").succeeded();
    place.train("--init-from scratch --max-iters 1 --out-dir b").succeeded();
    let config = place.read("b/config.toml");
    assert!(config.contains("scratch"), "{config}");
}

#[test]
fn a_data_set_is_named_as_in_nanogpt_and_its_tokens_are_those_there() {
    let place = Place::new();
    place.write("my.txt", "To be, or not to be: that is the question.\n".repeat(20));
    place.run("prepare my.txt --out data/mine").succeeded();
    let said = place.train("--dataset=mine --out-dir a --max-iters 1").succeeded();
    assert!(said.out.contains("text        data/mine: 774 training"), "{}", said.out);
    let by_name = place.read("a/metrics.csv");
    place.train("data/mine --out-dir b --max-iters 1").succeeded();
    let losses = |table: &str| {
        let row = |row: &str| row.split(',').take(3).map(String::from).collect::<Vec<_>>();
        table.lines().map(row).collect::<Vec<_>>()
    };
    assert_eq!(losses(&by_name), losses(&place.read("b/metrics.csv")));
    // Over the data set of a config, whose own is not asked for.
    place.write("other.py", CONFIG.replace("shakespeare_char", "missing"));
    let said = place.run("train other.py --dataset mine --max_iters=1 --out-dir c").succeeded();
    assert!(said.out.contains("text        data/mine: 774"), "{}", said.out);
    // GPT-2's tokens have no meta.pkl, and need no word.
    place.run("prepare my.txt --out data/tokens --tokenizer gpt2").succeeded();
    std::fs::remove_file(place.at("data/tokens/tokenizer.json")).unwrap();
    let said = place.train("--dataset=tokens --out-dir d --max-iters 1").succeeded();
    assert!(said.out.contains("vocabulary 50257 (gpt2)"), "{}", said.out);
    let said = place.train("--dataset shakespeare_char --out-dir e --max-iters 1").succeeded();
    assert!(said.err.contains("data/shakespeare_char is not here: the built-in text"));
    for (words, code, parts) in [
        ("train --dataset=no", 2, ["data/no is not here", "prepare my.txt --out data/no"]),
        ("train --dataset=../x", 2, ["dataset = ../x", "tinygpt train my.txt"]),
        ("train my.txt --dataset=mine", 2, ["--dataset mine and my.txt: two texts", "leave one"]),
        ("train --resume a --dataset=mine", 2, ["keeps its text", "--init-from"]),
    ] {
        let error = place.run(words).failed(code);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn a_folder_of_tokens_keeps_its_tokenizer_and_the_run_says_which() {
    let place = Place::new();
    place.write("my.txt", "To be, or not to be: that is the question.\n".repeat(20));
    place.run("prepare my.txt --out chars").succeeded();
    place.run("prepare my.txt --out bytes --tokenizer byte").succeeded();
    for (words, own) in [("chars --tokenizer gpt2", "char"), ("bytes --tokenizer char", "byte")] {
        let error = place.train(words).failed(2);
        assert!(error.contains(&format!("have their own, {own}")), "{error}");
    }
    assert_eq!(place.names("."), ["bytes", "chars", "my.txt"]);
    place.train("bytes --out-dir a --max-iters 1").succeeded();
    assert!(place.read("a/config.toml").contains("tokenizer = \"byte\""));
}

#[test]
fn a_folder_of_nanogpts_is_a_models_tokenizer_and_weights_without_one_need_their_own() {
    let place = Place::new();
    place.write("my.txt", "To be, or not to be: that is the question.\n".repeat(20));
    place.train("my.txt --out-dir a --max-iters 1").succeeded();
    place.run("export a --to nanogpt out").succeeded();
    assert_eq!(place.names("out"), ["ckpt.pt", "meta.pkl"]);
    place.train("my.txt --tokenizer out --out-dir b --max-iters 1").succeeded();
    std::fs::remove_file(place.at("out/meta.pkl")).unwrap();
    let error = place.train("my.txt --init-from out --tokenizer byte").failed(2);
    assert!(
        error.contains("hint: name the tokenizer that the weights were trained with"),
        "{error}"
    );
    assert_eq!(place.names("."), ["a", "b", "my.txt", "out", "runs"]);
}

#[test]
fn what_tensorboard_reads_is_kept_through_a_resume_and_goes_with_the_run() {
    let place = Place::new();
    let said = place.train("--tensorboard --out-dir out").succeeded();
    assert!(said.out.contains("\ntensorboard tensorboard --logdir out\n"), "{}", said.out);
    assert!(said.out.contains(" samples.txt events.out.tfevents.*\n"), "{}", said.out);
    let ours = || {
        let names = place.names("out").into_iter();
        names.filter(|name| name.starts_with("events.out.tfevents.")).collect::<Vec<_>>()
    };
    let first = ours();
    assert_eq!(first.len(), 1);
    place.run("train --resume out --max-iters 22").succeeded();
    let two = ours();
    assert!(two.len() == 2 && two[0] == first[0], "{two:?}");
    let said = place.run("train --resume out --max-iters 23 --tensorboard=false").succeeded();
    assert!(said.err.contains("changed: tensorboard true -> false"), "{}", said.err);
    assert_eq!(ours(), two);
    place.train("--out-dir out --overwrite").succeeded();
    assert_eq!(ours(), [""; 0]);
}
