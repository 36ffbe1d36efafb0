//! What a run is told: defaults, then a preset, then a config file, then the command line, each
//! laid over the last.
//!
//! The keys are one flat set ([`super::keys`]). Every resolved value remembers where it came from,
//! and [`Settings::to_toml`] writes both down, so that a run's `config.toml` explains the run.

use super::keys::{Group, KEYS, Key};
use super::layers::{Origin, Stack};
use super::read::{ConfigFile, FINETUNE, preset_text, show, typed_value};
use super::values::{RunSettings, default_table, defaults, table};
use crate::config::{GptConfig, TrainConfig};
use crate::data::TINY_SHAKESPEARE;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf, absolute};
use tinygpt_kernels::Isa;
use toml::{Table, Value};

/// The preset of a run that names none.
pub const DEFAULT_PRESET: &str = "quick";

/// What the user gave: the layers above the defaults, lowest first.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// A preset's name; above the one that `file` may name.
    pub preset: Option<String>,
    /// The preset where neither names one; [`DEFAULT_PRESET`] if this does not either.
    pub usual_preset: Option<&'static str>,
    /// Keys and values that come with the model of another program's at that path, above the
    /// preset; those that are no settings here are left out.
    pub brought: Option<(PathBuf, Vec<(String, String)>)>,
    /// A TOML file of flat keys, or one of nanoGPT's, whose name ends in `.py`.
    pub file: Option<PathBuf>,
    /// The texts to train on; above those that `file` may name.
    pub text: Vec<PathBuf>,
    /// Keys and values as typed.
    pub command_line: Vec<(String, String)>,
    /// Whether the weights come from elsewhere, as a file of nanoGPT's may demand.
    pub has_weights: bool,
}

/// Every setting of a run, with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The preset beneath it all.
    pub preset: String,
    /// The texts to train on, as [`Input::Paths`](crate::Input::Paths) has them; none is the
    /// built-in one.
    pub text: Vec<PathBuf>,
    /// The model. `vocab_size` is 0 until [`Settings::settle_vocab_size`].
    pub model: GptConfig,
    /// How to train it.
    pub train: TrainConfig,
    /// Everything else.
    pub run: RunSettings,
    /// Where each key's value came from.
    pub origins: BTreeMap<&'static str, Origin>,
    /// What the user should know of the file, in whole sentences without a stop.
    pub notices: Vec<String>,
}

impl Settings {
    /// Lays the layers over the defaults.
    ///
    /// # Errors
    /// A file that cannot be read or is not flat TOML; an unknown key, preset or choice; a value
    /// of the wrong type; values that cannot work together.
    pub fn resolve(layers: &Layers) -> Result<Self> {
        let file = layers.file.as_deref().map(ConfigFile::read).transpose()?;
        let preset = layers
            .preset
            .as_deref()
            .or(file.as_ref().and_then(|file| file.preset.as_deref()))
            .or(layers.usual_preset)
            .unwrap_or(DEFAULT_PRESET);
        let mut stack = Stack::of(&default_table());
        let rows = ConfigFile::parse(preset_text(preset)?, &format!("preset {preset}"))?.settings;
        stack.lay(rows, Origin::Preset(preset.into()));
        if let Some((path, brought)) = &layers.brought {
            let rows = brought.iter().filter_map(|(key, text)| typed_value(key, text).ok());
            stack.lay(rows.collect(), Origin::File(path.clone()));
        }
        if let (Some(file), Some(path)) = (&file, &layers.file) {
            stack.lay_file(file, Origin::File(path.clone()));
        }
        if let Some(file) = &file {
            check_found(file, layers)?;
        }
        let text = match (&file, &layers.text[..]) {
            (Some(file), []) => file.text.clone(),
            _ => layers.text.clone(),
        };
        let typed = layers.command_line.iter();
        let rows = typed.map(|(key, text)| typed_value(key, text)).collect::<Result<_>>()?;
        stack.lay(rows, Origin::CommandLine);
        stack.shorten_warmup();
        let settings = Self {
            preset: preset.into(),
            text,
            model: stack.part(),
            train: stack.part(),
            run: stack.part(),
            origins: stack.origins(),
            notices: file.map_or_else(Vec::new, |file| file.notices),
        };
        settings.train.check()?;
        // The tokenizer may still have to say how many tokens there are.
        let vocab_size = settings.model.vocab_size.max(1);
        GptConfig { vocab_size, ..settings.model.clone() }.check()?;
        Ok(settings)
    }

    /// Whether a run under these settings may start from new weights.
    ///
    /// # Errors
    /// They are the recipe for weights that are there already, far too gentle for new ones.
    pub fn check_from_scratch(&self) -> Result<()> {
        if self.preset != FINETUNE {
            return Ok(());
        }
        Err(Error::config("preset", FINETUNE, "is for weights that are there already").with_hint(
            "`tinygpt train TEXT --init-from MODEL` names them; preset quick is for new ones",
        ))
    }

    /// Takes the tokenizer's size for `vocab_size` when that is 0, or was another tokenizer's.
    ///
    /// # Errors
    /// A `vocab_size` too small for the tokenizer.
    pub fn settle_vocab_size(&mut self, tokenizer: usize) -> Result<()> {
        match self.model.vocab_size {
            size if size == 0 || self.origins["vocab_size"] == Origin::Tokenizer => {
                self.model.vocab_size = tokenizer;
                self.origins.insert("vocab_size", Origin::Tokenizer);
                Ok(())
            }
            size if size < tokenizer => Err(Error::config(
                "vocab_size",
                size,
                format!("the text has {tokenizer} different tokens"),
            )
            .with_hint("vocab_size = 0 takes as many as the text has")),
            _ => Ok(()),
        }
    }

    /// Takes for a `dtype` of auto what suits the instruction set `isa`: a run keeps it wherever it
    /// goes on.
    pub fn settle_dtype(&mut self, isa: Isa) {
        if self.train.dtype == Dtype::Auto {
            self.train.dtype = Dtype::Auto.resolve(isa);
            self.origins.insert("dtype", Origin::Processor);
        }
    }

    /// Every key with its value and, as a comment, its origin. Read back, it gives the same values.
    pub fn to_toml(&self) -> String {
        let values = self.values();
        let mut text = String::from("# Every setting of this run, and where it came from.\n");
        text += &format!("preset = {}\n", Value::from(self.preset.as_str()));
        let paths = self.text.iter().map(|path| {
            // A file says the same wherever it is read from; standard input has no place.
            let fixed = if path == Path::new("-") { Ok(path.clone()) } else { absolute(path) };
            Value::from(&*fixed.as_ref().unwrap_or(path).to_string_lossy())
        });
        text += &match self.text.is_empty() {
            true => format!("# text: {TINY_SHAKESPEARE}, the built-in one\n"),
            false => format!("text = {}\n", Value::Array(paths.collect())),
        };
        for group in Group::ALL {
            text += &format!("\n# {}\n", group.title());
            for key in KEYS.iter().filter(|key| key.group == group) {
                let setting = format!("{} = {}", key.name, show(&values[key.name]));
                // A comment ends with its line, and a path may hold anything.
                let origin = self.origins[key.name].to_string().replace(char::is_control, "?");
                text += &format!("{setting:<36} # {origin}\n");
            }
        }
        text
    }

    /// Every key's value, as text.
    pub fn shown(&self) -> BTreeMap<&'static str, String> {
        let values = self.values();
        KEYS.iter().map(|key| (key.name, show(&values[key.name]))).collect()
    }

    fn values(&self) -> Table {
        table((&self.model, &self.train, &self.run))
    }
}

impl Default for Settings {
    /// The defaults alone, without the default preset.
    fn default() -> Self {
        let (model, train, run) = defaults();
        let origins = KEYS.iter().map(|key| (key.name, Origin::Default)).collect();
        Self {
            preset: String::new(),
            text: Vec::new(),
            model,
            train,
            run,
            origins,
            notices: Vec::new(),
        }
    }
}

/// Whether what a file of nanoGPT's needs beside itself is there.
fn check_found(file: &ConfigFile, layers: &Layers) -> Result<()> {
    let path = layers.file.as_deref().unwrap_or(Path::new("")).display();
    if let Some(weights) = file.init_from.as_ref().filter(|_| !layers.has_weights) {
        let problem = format!("starts from the published weights of {weights} (init_from)");
        return Err(Error::data(path.to_string(), problem).with_hint(format!(
            "say where they are: tinygpt train {path} --init-from FOLDER; \
             `hf download openai-community/{weights} --local-dir {weights}` brings them"
        )));
    }
    let missing = file.missing.as_ref().filter(|_| layers.text.is_empty());
    missing.map_or(Ok(()), |folder| {
        let folder = folder.display();
        Err(Error::data(path.to_string(), format!("has its text in {folder}, which is not here"))
            .with_hint(format!(
                "name the text, tinygpt train {path} my.txt, or prepare it: \
                 tinygpt prepare my.txt --out {folder}"
            )))
    })
}

/// A setting that two runs, or two halves of one, do not share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub key: &'static Key,
    /// Its value before.
    pub old: String,
    /// Its value now.
    pub new: String,
}

/// Every setting that differs, in the table's order.
pub fn diff(old: &Settings, new: &Settings) -> Vec<Change> {
    let (mut old, mut new) = (old.shown(), new.shown());
    let mut take = |key: &'static Key| {
        let values = (old.remove(key.name)?, new.remove(key.name)?);
        (values.0 != values.1).then_some(Change { key, old: values.0, new: values.1 })
    };
    KEYS.iter().filter_map(&mut take).collect()
}

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn the_lowest_rate_is_a_tenth_of_the_highest_unless_told_otherwise() {
        let settings = resolve(None, None, &[("learning_rate", "3e-4")]);
        assert_eq!(settings.train.min_lr, 3e-5);
        assert_eq!(settings.origins["min_lr"].to_string(), "follows learning_rate");
        let flags = [("learning_rate", "3e-4"), ("min_lr", "0")];
        assert_eq!(resolve(None, None, &flags).train.min_lr, 0.0);
    }

    #[test]
    fn a_short_run_shortens_a_recipes_warmup_but_not_the_users() {
        let settings = resolve(None, None, &[("max_iters", "20")]);
        assert_eq!(settings.train.warmup_iters, 2);
        assert_eq!(settings.origins["warmup_iters"].to_string(), "follows lr_decay_iters");
        let mine = resolve(None, None, &[("max_iters", "20"), ("warmup_iters", "20")]);
        assert_eq!(mine.train.warmup_iters, 20);
        let layers = Layers {
            command_line: vec![
                ("max_iters".into(), "20".into()),
                ("warmup-iters".into(), "50".into()),
            ],
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
        let layers =
            Layers { command_line: vec![("n_head".into(), "3".into())], ..Default::default() };
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
        let told: Vec<_> = changes
            .iter()
            .map(|c| (c.key.name, &*c.old, &*c.new, c.key.is_architecture()))
            .collect();
        assert_eq!(told, [("n_layer", "4", "6", true), ("dropout", "0.0", "0.1", false)]);
    }
}
