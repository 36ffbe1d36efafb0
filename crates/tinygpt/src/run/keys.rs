//! Every setting's name, heading, meaning and choices, once: the help, the config file and the
//! command line are walks over this table.
//!
//! A key's type and default are those of its field in [`GptConfig`], [`TrainConfig`] or
//! [`RunSettings`]; a test holds table and structs together.
//!
//! [`GptConfig`]: crate::GptConfig
//! [`TrainConfig`]: crate::TrainConfig
//! [`RunSettings`]: super::values::RunSettings

use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// The heading a key stands under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The architecture: what a checkpoint's tensors are shaped by, so fixed for its life.
    Model,
    /// The optimizer and its schedule.
    Training,
    /// When to look at the model, and how closely.
    Evaluation,
    /// From text to tokens.
    Data,
    /// Where and how the run happens.
    Run,
}

impl Group {
    /// All, in the order of the help.
    pub const ALL: [Group; 5] =
        [Group::Model, Group::Training, Group::Evaluation, Group::Data, Group::Run];

    /// The heading in words.
    pub fn title(self) -> &'static str {
        match self {
            Group::Model => "Model",
            Group::Training => "Training",
            Group::Evaluation => "Evaluation",
            Group::Data => "Data",
            Group::Run => "Run",
        }
    }
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// nanoGPT's name where nanoGPT has one, with `_`.
    pub name: &'static str,
    /// Its heading.
    pub group: Group,
    /// What it does, in one line.
    pub help: &'static str,
    /// The only values allowed, when they are few.
    pub choices: &'static [&'static str],
    /// What a value looks like, where its type does not say.
    pub forms: &'static str,
}

impl Key {
    /// Whether the key shapes the model, and so cannot change when a run is resumed.
    pub fn is_architecture(&self) -> bool {
        self.group == Group::Model
    }
}

const fn row(group: Group, name: &'static str, help: &'static str) -> Key {
    Key { name, group, help, choices: &[], forms: "" }
}

const fn choice(
    group: Group,
    name: &'static str,
    choices: &'static [&'static str],
    help: &'static str,
) -> Key {
    Key { name, group, help, choices, forms: "" }
}

use Group::{Data, Evaluation, Model, Run, Training};

/// The table.
pub const KEYS: &[Key] = &[
    row(Model, "vocab_size", "V: tokens in the vocabulary; 0 takes the tokenizer's"),
    row(Model, "block_size", "T: the longest context, in tokens"),
    row(Model, "n_layer", "L: Transformer blocks"),
    row(Model, "n_head", "H: attention heads in a block; must divide n_embd"),
    row(Model, "n_embd", "C: width of the residual stream"),
    row(Model, "bias", "Biases in the linear layers and LayerNorms"),
    row(Model, "tied", "Use the token embedding as the unembedding too"),
    choice(
        Model,
        "activation",
        &["gelu", "gelu_tanh", "silu"],
        "Non-linearity of the MLP; the published GPT-2 has gelu_tanh",
    ),
    row(Training, "max_iters", "Optimizer steps in all"),
    row(Training, "batch_size", "B: sequences in a micro-step"),
    row(Training, "gradient_accumulation_steps", "Micro-steps that make one optimizer step"),
    row(Training, "dropout", "Probability of zeroing an element in training, in [0, 1)"),
    row(Training, "learning_rate", "The highest learning rate"),
    row(Training, "decay_lr", "Warm up, then decay along a cosine; false keeps learning_rate"),
    row(
        Training,
        "warmup_iters",
        "Steps of linear warm-up; unless set, at most lr_decay_iters / 10",
    ),
    row(Training, "lr_decay_iters", "Step at which min_lr is reached; follows max_iters"),
    row(Training, "min_lr", "Learning rate after the decay; follows learning_rate / 10"),
    row(Training, "weight_decay", "Decay of every matrix; biases and norms never decay"),
    row(Training, "beta1", "AdamW: decay of the mean gradient"),
    row(Training, "beta2", "AdamW: decay of the mean squared gradient"),
    row(Training, "adam_eps", "AdamW: what is added to the denominator"),
    row(Training, "grad_clip", "Largest norm of all gradients together; 0 never clips"),
    choice(
        Training,
        "dtype",
        &Dtype::NAMES,
        "bf16 rounds what products multiply; auto does where the processor multiplies bf16",
    ),
    row(Evaluation, "eval_interval", "Steps between evaluations; 0 evaluates only at the end"),
    row(Evaluation, "eval_iters", "Random batches of each split in an evaluation"),
    row(Evaluation, "eval_full", "Evaluate on the whole of each split instead"),
    row(Evaluation, "eval_only", "Evaluate once and stop"),
    row(Evaluation, "log_interval", "Steps between log lines; 0 is silent between evaluations"),
    row(Evaluation, "patience", "Stop after so many evaluations without progress; 0 never"),
    row(Evaluation, "sample_tokens", "Tokens the model writes at an evaluation; 0 writes none"),
    Key {
        forms: "char|byte|gpt2|bpe:SIZE|FILE",
        ..row(
            Data,
            "tokenizer",
            "A token is a character of the text, a byte, one of GPT-2's 50,257, one of SIZE learned \
             from the text, or as a tokenizer.json says",
        )
    },
    row(Data, "val_fraction", "Share of the text kept for validation, in [0, 1)"),
    choice(
        Data,
        "split",
        &["contiguous", "shuffled"],
        "Validate on the end of the text, or on blocks from all over it",
    ),
    choice(
        Data,
        "newline",
        &["keep", "normalize"],
        "Keep \\r\\n as two characters, or make it \\n",
    ),
    row(Data, "lossy", "Replace bytes that are not UTF-8 instead of refusing them"),
    row(Data, "allow_special", "Make <|endoftext|> in the text one token, not ordinary text"),
    row(Run, "seed", "Whence every random number of the run comes"),
    row(
        Run,
        "threads",
        "Threads; 0 takes RAYON_NUM_THREADS or all there are. Any number, same result",
    ),
    row(Run, "tensorboard", "Write the metrics for TensorBoard too: tensorboard --logdir runs"),
    row(Run, "out_dir", "Folder of the run; empty makes runs/PRESET, then runs/PRESET-2, ..."),
];

/// Keys of nanoGPT and of other programs that are not settings here, and what to do instead.
const ELSEWHERE: &[(&str, &str)] = &[
    ("device", "everything runs on the CPU: leave `device` out"),
    ("compile", "there is nothing to compile: leave `compile` out"),
    ("backend", "one process with `threads` threads: leave `backend` out"),
    ("dataset", "name the text itself: tinygpt train my.txt"),
    ("init_from", "tinygpt train --init-from PATH, or --resume [RUN]"),
    ("always_save_checkpoint", "the best and the last checkpoint are always kept: leave it out"),
    ("lr", "the highest learning rate is `learning_rate`"),
    ("epochs", "a run is counted in steps, `max_iters`; its start says how many epochs they are"),
    ("wandb_log", "every run writes metrics.jsonl: leave `wandb_log` out"),
    ("wandb_project", "every run writes metrics.jsonl: leave `wandb_project` out"),
    ("wandb_run_name", "every run writes metrics.jsonl: leave `wandb_run_name` out"),
];

/// Keys of nanoGPT's without which a run here is the same, each with whether it is true or false.
/// nanoGPT's config files and command lines may have them, and one notice says so.
pub const IDLE: [(&str, bool); 7] = [
    ("device", false),
    ("compile", true),
    ("backend", false),
    ("always_save_checkpoint", true),
    ("wandb_log", true),
    ("wandb_project", false),
    ("wandb_run_name", false),
];

/// Whether `name` is one of the keys that change nothing here.
pub fn is_idle(name: &str) -> bool {
    IDLE.iter().any(|(idle, _)| *idle == name)
}

/// Whether such a key may be typed with that value.
///
/// # Errors
/// A `device` that there is none of here: who types it waits for its speed. A text where true or
/// false belongs.
pub fn check_idle(name: &str, text: &str) -> Result<()> {
    let truths = ["true", "false", "True", "False", "0", "1"];
    match IDLE.iter().find(|(idle, _)| *idle == name) {
        Some((name, true)) if !truths.contains(&text) => {
            return Err(Error::config(name, text, "must be true or false"));
        }
        _ => {}
    }
    if name != "device" || text == "cpu" {
        return Ok(());
    }
    Err(Error::config("device", text, "must be cpu: every kernel here is written for processors")
        .with_hint("leave `device` out; `tinygpt bench` says how fast this processor is"))
}

/// What to say of those that were there, in a sentence without a stop.
pub fn idle_notice(names: &[String]) -> String {
    format!("these keys of nanoGPT's mean nothing here: {}", names.join(", "))
}

/// The row called `name`, where `-` and `_` are the same.
pub fn find(name: &str) -> Option<&'static Key> {
    let name = name.replace('-', "_");
    KEYS.iter().find(|key| key.name == name)
}

/// What to do instead of setting `name`, a key that only other programs have.
pub fn elsewhere(name: &str) -> Option<String> {
    let name = name.replace('-', "_");
    let known = ELSEWHERE.iter().find(|(key, _)| *key == name);
    let negated = || {
        let key = find(name.strip_prefix("no_")?)?;
        Some(format!("set `{}` itself: false turns it off, or 0 if it is a number", key.name))
    };
    known.map(|(_, instead)| instead.to_string()).or_else(negated)
}

/// What to say to someone who wrote `name`, which is not a key.
pub fn suggest(name: &str) -> Option<String> {
    let name = name.replace('-', "_");
    let near = || nearest(&name, KEYS.iter().map(|key| key.name));
    elsewhere(&name).or_else(|| near().map(|key| format!("did you mean `{key}`?")))
}

/// The word that `wrong` was most likely meant to be, if any comes close.
pub fn nearest<'a>(wrong: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    words
        .into_iter()
        .map(|word| (strsim::jaro_winkler(wrong, word), word))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_is_told_the_nearest() {
        for (wrong, right) in [
            ("learning_rte", "learning_rate"),
            ("n-layers", "n_layer"),
            ("n_heads", "n_head"),
            ("batchsize", "batch_size"),
            ("max_iter", "max_iters"),
        ] {
            assert_eq!(suggest(wrong).unwrap(), format!("did you mean `{right}`?"));
        }
        assert_eq!(suggest("xyzzy"), None);
    }

    #[test]
    fn nanogpts_other_keys_are_told_what_to_do_instead() {
        assert!(suggest("device").unwrap().contains("CPU"));
        assert!(suggest("init-from").unwrap().contains("--resume"));
        assert!(suggest("lr").unwrap().contains("learning_rate"));
        assert!(suggest("no-bias").unwrap().contains("`bias` itself: false"));
        assert!(suggest("epochs").unwrap().contains("max_iters"));
        assert!(ELSEWHERE.iter().all(|(name, _)| find(name).is_none()));
        assert!(IDLE.iter().all(|(name, _)| elsewhere(name).is_some()));
        check_idle("device", "cpu").and(check_idle("compile", "True")).unwrap();
        let error = check_idle("compile", "maybe").unwrap_err();
        assert_eq!(error.to_string(), "compile = maybe: must be true or false");
        let error = check_idle("device", "cuda:1").unwrap_err();
        assert!(error.to_string().starts_with("device = cuda:1: must be cpu"), "{error}");
    }
}
