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
