//! Configs as nanoGPT has them, and everything else that a line may hold.

use super::*;
use crate::run::{Layers, Settings};
use proptest::prelude::*;

fn read(text: &str) -> Result<ConfigFile> {
    parse(text, "my.py", tempfile::tempdir().unwrap().path(), None)
}

fn value(expression: &str) -> Read<Found> {
    let mut script = Script::default();
    script.line("five = 5", String::new())?;
    script.line(&format!("x = {expression}"), String::new())?;
    Ok(script.names["x"].1.clone())
}

fn problem(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn a_character_config_of_nanogpts_kind_gives_its_settings_over_nanogpts_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train_char.py");
    let text = "# a small one\n\nout_dir = 'out-char'\neval_interval = 250 # often\n\
                wandb_log = False\nwandb_run_name = 'a' + str(b)\ndataset = 'shakespeare_char'\n\
                gradient_accumulation_steps = 1\nn = 2\nn_layer = 3*n\nn_head = 6\n\
                n_embd = 64 * n_head\nlearning_rate = 1e-3 # high\nmin_lr = learning_rate / 10\n\
                decay_lr = True\ndevice = 'cpu'  # run on cpu only\ncompile = False\n";
    std::fs::write(&path, text).unwrap();
    let layers = Layers { file: Some(path), ..Layers::default() };
    let settings = Settings::resolve(&layers).unwrap();
    assert_eq!((settings.model.n_layer, settings.model.n_embd), (6, 384));
    assert_eq!(settings.train.learning_rate, 1e-3);
    assert_eq!((settings.train.batch_size, settings.train.eval_interval), (12, 250));
    assert!(!settings.model.bias);
    assert_eq!(settings.run.out_dir, "out-char");
    assert_eq!(settings.run.tokenizer.to_string(), "char");
    assert!(settings.text.is_empty() && settings.preset == "nanogpt");
    let said = settings.notices.join("; ");
    assert!(said.contains("wandb_log, wandb_run_name, device, compile"), "{said}");
}

#[test]
fn arithmetic_is_pythons() {
    for (text, expected) in [
        ("5 * 8", "40"),
        ("-2 ** 2", "-4"),
        ("2 ** -1", "0.5"),
        ("2 ** 3 ** 2", "512"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("7 % -3", "-2"),
        ("7 / 2", "3.5"),
        ("8/4", "2.0"),
        ("(1 + 2) * five", "15"),
        ("1_000", "1000"),
        ("6e-4", "0.0006"),
        (".5", "0.5"),
        ("1.", "1.0"),
        ("--5", "5"),
        ("-five", "-5"),
        ("'a' + \"b\"", "\"ab\""),
        ("None", "None"),
        ("7.5 // 2", "3.0"),
        ("True", "true"),
        ("'#' # a comment", "\"#\""),
        ("1e+2", "100.0"),
    ] {
        assert_eq!(value(text).unwrap().to_string(), expected, "{text}");
    }
}

#[test]
fn what_is_no_value_is_an_error_that_says_what_stands_there() {
    for (text, part) in [
        ("print('hi')", "found `(` after `print`"),
        ("x = open('a')", "`open` has no value in the lines before"),
        ("x = [1]", "found `[`, expected a value"),
        ("x = 1, 2", "found `,` where the line should end"),
        ("x += 1", "found `+=` after `x`"),
        ("x = (1", "found the end of the line, expected `)`"),
        ("x = 'a", "does not end in its line"),
        ("x = 1 / 0", "divides by zero"),
        ("x = 0x10", "`0x10` is no number"),
        ("x = 99999999999999999999", "too large"),
        ("x = 9 ** 99", "too large"),
        ("x = 1e999", "too large"),
        ("x = 'a' * 9", "needs two numbers"),
        ("  x = 1", "found `x`, expected `name = value`"),
        ("from a import b", "found `a` after `from`"),
    ] {
        let error = problem(&format!("n_layer = 2\n{text}\n"));
        assert!(error.starts_with("my.py, line 2: ") && error.contains(part), "{error}");
    }
    assert!(problem("learning_rte = 1").contains("line 1: unknown key `learning_rte`"));
    assert!(problem("n_layer = 1.5").contains("a whole number"));
    assert!(read("import time\nn_layer = 2").is_ok());
}

#[test]
fn other_weights_and_missing_data_are_told_with_what_to_type() {
    let resolve = |text: &str, change: fn(&mut Layers)| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.py");
        std::fs::write(&path, text).unwrap();
        let mut layers = Layers { file: Some(path), ..Layers::default() };
        change(&mut layers);
        Settings::resolve(&layers)
    };
    let error = resolve("init_from = 'gpt2-xl'\ndataset = 'shakespeare'", |_| ()).unwrap_err();
    assert!(error.hint().unwrap().contains("--init-from"), "{error}");
    let text = "init_from = 'gpt2-xl'\ndataset = 'shakespeare'";
    let settings = resolve(text, |layers| layers.has_weights = true).unwrap();
    assert_eq!(settings.run.tokenizer.to_string(), "gpt2");
    let error = resolve("init_from = 'resume'", |_| ()).unwrap_err();
    assert!(error.hint().unwrap().contains("--resume"), "{error}");
    let error = resolve("dataset = 'mine'", |_| ()).unwrap_err();
    assert!(error.to_string().contains("data/mine"), "{error}");
    assert!(error.hint().unwrap().contains("tinygpt prepare"), "{error}");
    let texts = |layers: &mut Layers| layers.text = vec!["my.txt".into()];
    assert_eq!(
        resolve("dataset = 'mine'", texts).unwrap().text,
        ["my.txt".to_owned()].map(std::path::PathBuf::from)
    );
    assert!(resolve("dataset = '../mine'", texts).is_err());
}

#[test]
fn prepared_tokens_below_the_current_folder_are_found_with_their_tokenizer() {
    let here = tempfile::tempdir().unwrap();
    let folder = here.path().join("data/mine");
    std::fs::create_dir_all(&folder).unwrap();
    let tokenizer = || {
        let file = parse("dataset = 'mine'", "my.py", here.path(), None).unwrap();
        assert_eq!(file.text, [Path::new("data/mine")]);
        let found = file.settings.into_iter().find(|(key, _)| key.name == "tokenizer");
        found.unwrap().1.as_str().unwrap().to_owned()
    };
    std::fs::write(folder.join("train.bin"), "").unwrap();
    assert_eq!(tokenizer(), "gpt2");
    std::fs::write(folder.join("meta.pkl"), "").unwrap();
    assert_eq!(tokenizer(), "char");
}

#[test]
fn nesting_ends_before_the_stack_does() {
    for open in ["(", "-", "2**"] {
        assert!(problem(&format!("n_layer = {}1", open.repeat(100_000))).contains("more than"));
    }
    assert!(problem(&format!("a = 'x'\n{}", "a = a + a\n".repeat(64))).contains("longer than"));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(?s).{0,200}") {
        let _ = read(&text);
    }

    #[test]
    fn nothing_like_arithmetic_makes_the_reader_panic(
        words in prop::collection::vec(
            "[-+*/%()]|\\*\\*|//|9223372036854775807|0|1e308|-1|.5|'a'|five|None|True| |é|#", 0..24,
        )
    ) {
        let _ = value(&words.concat());
    }
}
