//! Settings at their edges, through the program.

use crate::place::Place;

#[test]
fn intervals_of_zero_are_off_and_an_evaluation_of_nothing_is_refused() {
    let place = Place::new();
    let said = place.train("--eval-interval 0").succeeded();
    assert_eq!(said.out.matches("\nfirst loss  ").count(), 1, "{}", said.out);
    assert_eq!(said.out.matches(": train loss ").count(), 1, "{}", said.out);
    assert!(said.out.contains("\nstep 20: "), "{}", said.out);
    let said = place.train("--log-interval 0").succeeded();
    assert!(!said.out.contains("\niter "), "{}", said.out);
    assert_eq!(place.read("runs/quick-2/metrics.jsonl").lines().count(), 20 + 5);
    let error = place.train("--eval-iters 0").failed(2);
    assert!(error.contains("eval_iters = 0: must be at least 1"), "{error}");
    place.train("--eval-iters 0 --eval-full --max-iters 1").succeeded();
    place.train("--max-iters 0").succeeded();
    place.train("--sample-tokens 0").succeeded();
    assert!(!place.names("runs/quick-5").contains(&"samples.txt".into()));
    let said = place.train("--eval-only").succeeded();
    assert!(said.out.contains("\nstep 0: ") && !said.out.contains("\niter "), "{}", said.out);
}

#[test]
fn a_run_says_and_keeps_its_dtype_and_may_change_it_when_it_goes_on() {
    let place = Place::new();
    let said = place.train("--dtype=bfloat16 --max-iters 3").succeeded();
    assert!(said.out.contains(", bf16\n"), "{}", said.out);
    assert!(place.read("runs/quick/config.toml").contains("dtype = \"bf16\" "));
    let in_f32 = place.train("--dtype f32 --max-iters 3").succeeded();
    let loss = |said: &str| -> f64 {
        let line = said.lines().find_map(|line| line.strip_prefix("iter 2: loss ")).unwrap();
        line.split(',').next().unwrap().parse().unwrap()
    };
    let (bf16, f32) = (loss(&said.out), loss(&in_f32.out));
    assert!((bf16 - f32).abs() < 0.02, "{bf16} in bf16, {f32} in f32");
    let said = place.run("train --resume quick --dtype float32 --max-iters 5").succeeded();
    assert!(said.err.contains("changed: dtype \"bf16\" -> \"f32\"\n"), "{}", said.err);
    let said = place.run("train --resume quick --max-iters 6").succeeded();
    assert!(said.out.contains(", f32\n") && !said.err.contains("dtype"), "{}", said.err);
    place.train("--dtype auto --max-iters 1").succeeded();
    assert!(place.read("runs/quick-3/config.toml").contains("# auto, for this processor"));
}

#[test]
fn settings_that_cannot_work_name_the_numbers_and_leave_nothing() {
    let place = Place::new();
    for (words, parts) in [
        (
            "--warmup-iters 30 --lr-decay-iters 20",
            &["warmup_iters = 30", "lr_decay_iters = 20"][..],
        ),
        ("--n-embd 1600 --n-head 48", &["1600", "48", "is 50"]),
        ("--learning_rte 1e-3", &["did you mean --learning-rate?"]),
        ("--dropout 1", &["dropout = 1: must be in [0, 1)"]),
        ("--vocab-size 10", &["vocab_size = 10", "65 different tokens"]),
        ("--threads 2000000", &["threads = 2000000: must be at most 1024"]),
        ("--batch-size 0", &["batch_size = 0"]),
        ("--max-iters -1", &["max_iters"]),
        (
            "--batch-size 65536 --gradient-accumulation-steps 65536",
            &["gradient_accumulation_steps = 65536", "batch_size = 65536", "below 4294967296"],
        ),
        ("--eval-iters 4000000000", &["eval_iters = 4000000000", "batch_size = 2"]),
        (
            "--n-layer 4 --n-head 1 --n-embd 40000",
            &["n_embd = 40000: training such a model takes", "TB of memory", "lower n_embd"],
        ),
        ("--vocab-size 4000000000 --n-embd 64", &["vocab_size = 4000000000", "of memory"]),
        (
            "--block-size 900000 --val-fraction 0 --n-layer 9999",
            &["block_size = 900000", "TB of memory"],
        ),
    ] {
        let error = place.train(words).failed(2);
        assert!(parts.iter().all(|part| error.contains(part)), "{words}: {error}");
        assert!(place.names(".").is_empty(), "{words} left {:?}", place.names("."));
    }
    let output = place.command("train").env("TINYGPT_ISA", "abacus").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(place.names(".").is_empty());
}

#[test]
fn info_and_the_room_that_training_asks_for_name_the_same_memory() {
    let place = Place::new();
    for words in [
        "--n-head 1 --n-embd 40000 --n-layer 4 --block-size 16",
        "--n-head 1 --n-embd 40000 --n-layer 4 --block-size 16 --tied false --bias false \
         --gradient-accumulation-steps 3",
        "--block-size 900000 --val-fraction 0 --n-layer 9999",
    ] {
        let error = place.train(words).failed(2);
        let memory = error.split("such a model takes ").nth(1).expect("it says how much");
        let memory = memory.split(" of memory").next().unwrap();
        let config = place.train(&format!("{words} --print-config")).succeeded();
        place.write("my.toml", config.out);
        let page = place.run("info my.toml").succeeded().out;
        let row = page.lines().find(|line| line.starts_with("memory to train ")).unwrap();
        assert!(row.contains(&format!(" {memory}  about")), "{error}\n{row}");
    }
}

#[test]
fn settings_at_their_edges_train() {
    let place = Place::new();
    for words in [
        "--dropout=0",
        "--warmup-iters 20 --lr-decay-iters 20",
        "--warmup-iters 0 --lr-decay-iters 0",
        "--learning-rate=1 --min-lr=0",
        "--batch-size 1 --gradient-accumulation-steps 3",
        "--block-size 1",
        "--bias --tied false --activation silu",
    ] {
        place.train(words).succeeded();
    }
}

#[test]
fn a_runs_config_starts_another_on_its_text_whose_values_follow_as_they_did() {
    let place = Place::new();
    place.write("my text.txt", "to be or not to be ".repeat(40));
    let words = crate::place::tiny("--max-iters 40");
    let mut command = place.command(&words);
    crate::place::Said::of(command.arg("my text.txt").output().unwrap()).succeeded();
    let config = place.read("runs/quick/config.toml");
    assert!(config.contains("my text.txt\"]\n"), "{config}");
    assert!(config.contains("warmup_iters = 4 ") && config.contains("vocab_size = 7 "), "{config}");
    let again = "train --config runs/quick/config.toml --max-iters";
    let said = place.run(&format!("{again} 2")).succeeded();
    assert!(said.out.contains("my text.txt: 684 training"), "{}", said.out);
    assert!(place.read("runs/quick-2/config.toml").contains("warmup_iters = 0 "));
    place.write("other.txt", "the question ".repeat(90));
    let said = place.run(&format!("{again} 3 other.txt")).succeeded();
    assert!(said.out.contains("other.txt") && said.out.contains("vocabulary 10"), "{}", said.out);

    let said = place.train("--eval-only").succeeded();
    let command = "tinygpt train --resume runs/quick-4 --eval-only=false";
    assert!(said.out.contains(command), "{}", said.out);
    let tail = command.strip_prefix("tinygpt ").unwrap();
    place.run(&format!("{tail} --max-iters 2")).succeeded();
    assert_eq!(place.step_of("runs/quick-4/last"), 2);
    assert!(place.read("runs/quick-4/config.toml").contains("# text: Tiny Shakespeare"));
}

#[test]
fn a_model_out_of_proportion_and_a_run_that_only_warms_up_are_noted() {
    let place = Place::new();
    place.write("few.txt", "to be or not to be ".repeat(3));
    let said = place.train("few.txt --n-embd 64 --val-fraction 0").succeeded();
    assert!(said.out.contains("57 training tokens: enough to learn"), "{}", said.out);
    let said = place.train("--warmup-iters 20").succeeded();
    assert!(said.out.contains("the whole run is warm-up"), "{}", said.out);
    let said = place.train("").succeeded();
    assert!(said.out.contains("warmup_iters = 2, a tenth of lr_decay_iters"), "{}", said.out);
    let said = place.train("--warmup-iters 2").succeeded();
    assert!(!said.out.contains("warm-up") && !said.out.contains("by heart"), "{}", said.out);
}

#[test]
fn a_text_whose_end_is_unlike_the_rest_is_explained_once() {
    let place = Place::new();
    place.write("two.txt", "a".repeat(2000) + &"bcdefgh".repeat(30));
    let flags = "two.txt --max-iters 200 --eval-interval 50 --learning-rate 0.03";
    let said = place.train(flags).succeeded();
    assert_eq!(said.out.matches("is far above train").count(), 1, "{}", said.out);
    assert!(said.out.contains("--split shuffled"), "{}", said.out);
}

#[test]
fn patience_ends_a_run_and_says_so() {
    let place = Place::new();
    let said = place.train("--learning-rate 0 --decay-lr false --patience 2").succeeded();
    assert!(said.out.contains("stopped     at step 10: 2 evaluations without"), "{}", said.out);
    assert_eq!(place.step_of("runs/quick/last"), 10);
}

#[test]
fn a_padded_vocabulary_trains_and_writes_only_letters_of_the_text() {
    let place = Place::new();
    place.write("ab.txt", "ab".repeat(300));
    place.train("ab.txt --vocab-size 128 --sample-tokens 200").succeeded();
    let samples = place.read("runs/quick/samples.txt");
    let texts: String = samples.lines().filter(|line| !line.starts_with("===")).collect();
    assert!(texts.len() > 900 && texts.chars().all(|c| "ab".contains(c)), "{samples}");
    assert!(place.read("runs/quick/config.toml").contains("vocab_size = 128 "));
}

#[test]
fn any_number_of_threads_and_a_lesser_processor_train() {
    let place = Place::new();
    for threads in ["1", "2", "3"] {
        place.train(&format!("--threads {threads} --n-embd 24 --dropout 0.1")).succeeded();
    }
    let one = place.timeless_metrics("runs/quick");
    assert_eq!(one, place.timeless_metrics("runs/quick-2"));
    assert_eq!(one, place.timeless_metrics("runs/quick-3"));
    let mut portable = place.command(&crate::place::tiny(""));
    let output = portable.env("TINYGPT_ISA", "portable").output().unwrap();
    let said = crate::place::Said::of(output).succeeded();
    assert!(said.out.contains("1 thread, portable"), "{}", said.out);
}

#[test]
fn a_loss_that_is_not_finite_names_its_step_and_leaves_the_checkpoints() {
    let place = Place::new();
    let error = place.train("--learning-rate 1e30 --grad-clip 0 --decay-lr false").failed(1);
    assert!(error.contains("of step 1 is not finite"), "{error}");
    assert!(error.contains("learning_rate"), "{error}");
    assert_eq!((place.step_of("runs/quick/best"), place.step_of("runs/quick/last")), (0, 0));
}

#[test]
fn the_recipe_for_weights_that_are_there_names_what_is_missing_when_there_are_none() {
    let place = Place::new();
    let config = place.run("train --preset finetune --print-config").succeeded().out;
    place.write("my.toml", config);
    for words in ["--preset finetune", "--config my.toml"] {
        let error = place.train(words).failed(2);
        assert!(error.contains("--init-from MODEL"), "{words}: {error}");
        assert_eq!(place.names("."), ["my.toml"]);
    }
}

#[test]
fn the_tokens_of_a_run_are_had_by_its_name() {
    let place = Place::new();
    place.train("--out-dir mine").succeeded();
    place.train("").succeeded();
    for name in ["mine", "runs/quick"] {
        let said = place.train(&format!("--tokenizer {name}")).succeeded();
        assert!(said.out.contains("vocabulary 65 "), "{name}: {}", said.out);
    }
    let error = place.train("--tokenizer quikc").failed(2);
    assert!(error.contains("a folder with one, a model, or a run"), "{error}");
}

#[test]
fn a_short_run_is_told_in_whole_words_and_lists_the_files_that_are_there() {
    let place = Place::new();
    let said = place.train("--max-iters 1 --sample-tokens 0").succeeded();
    assert!(said.out.contains("; 1 step = under 0.1 epochs\n"), "{}", said.out);
    assert!(said.out.contains("done        1 step; "), "{}", said.out);
    let kept = "runs/quick: best/ last/ config.toml loss.svg metrics.csv metrics.jsonl\n";
    assert!(said.out.contains(kept), "{}", said.out);
}
