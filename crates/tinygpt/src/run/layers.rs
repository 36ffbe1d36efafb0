//! Values laid over values, each remembering where it came from.
//!
//! Two rules of thumb of nanoGPT's tie keys together: the cosine ends where training ends
//! (`lr_decay_iters = max_iters`), at a tenth of the highest rate (`min_lr = learning_rate / 10`).
//! While a rule holds, a layer that changes one of the pair alone takes the other along, unless the
//! user has set that one, in a file or on the command line. And a
//! recipe's warm-up is at most a tenth of the way there: a short run is to learn, not to warm up.
//!
//! A value that nobody chose is written to a run's `config.toml` with the reason it has, and has
//! that reason again when the file is read: it goes on to follow.

use super::keys::KEYS;
use super::read::{ConfigFile, Setting};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use toml::{Table, Value};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said otherwise.
    Default,
    /// The preset of this name.
    Preset(String),
    /// This config file.
    File(PathBuf),
    /// A flag.
    CommandLine,
    /// An argument of the Python module's `train`.
    Argument,
    /// It goes with another key.
    Follows(&'static str),
    /// The tokenizer decided.
    Tokenizer,
    /// It suits the processor that the run began on.
    Processor,
}

impl Origin {
    /// Whether the user said so now: neither a file nor a preset did.
    pub(super) fn is_typed(&self) -> bool {
        matches!(self, Origin::CommandLine | Origin::Argument)
    }

    /// Whether the user said so, now or in a file.
    pub(super) fn is_chosen(&self) -> bool {
        self.is_typed() || matches!(self, Origin::File(_))
    }
}

const PRESET: &str = "preset ";
const FROM_TOKENIZER: &str = "from the tokenizer";
const FOR_PROCESSOR: &str = "auto, for this processor";

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::Preset(name) => write!(f, "{PRESET}{name}"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::CommandLine => write!(f, "command line"),
            Origin::Argument => write!(f, "argument"),
            Origin::Follows(key) => write!(f, "follows {key}"),
            Origin::Tokenizer => write!(f, "{FROM_TOKENIZER}"),
            Origin::Processor => write!(f, "{FOR_PROCESSOR}"),
        }
    }
}

/// Values in the making.
pub(super) struct Stack(BTreeMap<&'static str, (Value, Origin)>);

impl Stack {
    /// The lowest layer: a value for every key.
    pub fn of(values: &Table) -> Self {
        Self(KEYS.iter().map(|k| (k.name, (values[k.name].clone(), Origin::Default))).collect())
    }

    /// Lays `rows` over what is there.
    pub fn lay(&mut self, rows: Vec<Setting>, origin: Origin) {
        let sets = |name| rows.iter().any(|(key, _)| key.name == name);
        let chosen = |name: &str| self.0[name].1.is_chosen();
        let takes_along = |leader, follower| sets(leader) && !sets(follower) && !chosen(follower);
        let decay_follows = takes_along("max_iters", "lr_decay_iters")
            && self.value("max_iters") == self.value("lr_decay_iters");
        let min_follows = takes_along("learning_rate", "min_lr")
            && self.value("min_lr") == &tenth(self.value("learning_rate"));
        for (key, value) in rows {
            self.0.insert(key.name, (value, origin.clone()));
        }
        if decay_follows {
            self.follow("lr_decay_iters", self.value("max_iters").clone(), "max_iters");
        }
        if min_follows {
            self.follow("min_lr", tenth(self.value("learning_rate")), "learning_rate");
        }
    }

    /// Lays a file over what is there. A value that its comment says nobody chose has the origin it
    /// had, unless it was edited.
    pub fn lay_file(&mut self, file: &ConfigFile, origin: Origin) {
        let beneath = self.0.clone();
        self.lay(file.settings.clone(), origin);
        for (&key, comment) in &file.comments {
            let value = self.value(key).clone();
            let unchosen = match comment.as_str() {
                FROM_TOKENIZER if key == "vocab_size" => (value, Origin::Tokenizer),
                FOR_PROCESSOR if key == "dtype" => (value, Origin::Processor),
                "follows max_iters" if &value == self.value("max_iters") => {
                    (value, Origin::Follows("max_iters"))
                }
                "follows learning_rate" if value == tenth(self.value("learning_rate")) => {
                    (value, Origin::Follows("learning_rate"))
                }
                // The recipe's own, to be shortened again.
                "follows lr_decay_iters" if value == self.short_warmup(&beneath[key].0) => {
                    beneath[key].clone()
                }
                "default" if value == beneath[key].0 => beneath[key].clone(),
                text if text.starts_with(PRESET) && value == beneath[key].0 => beneath[key].clone(),
                _ => continue,
            };
            self.0.insert(key, unchosen);
        }
    }

    /// Keeps a recipe's warm-up, which is meant for a whole run, from being all of a short one.
    pub fn shorten_warmup(&mut self) {
        let (warmup, origin) = &self.0["warmup_iters"];
        let short = self.short_warmup(warmup);
        if matches!(origin, Origin::Default | Origin::Preset(_)) && *warmup != short {
            self.follow("warmup_iters", short, "lr_decay_iters");
        }
    }

    fn short_warmup(&self, warmup: &Value) -> Value {
        let whole = |value: &Value| value.as_integer().unwrap_or_default();
        whole(warmup).min(whole(self.value("lr_decay_iters")) / 10).into()
    }

    /// Where each value came from.
    pub fn origins(self) -> BTreeMap<&'static str, Origin> {
        self.0.into_iter().map(|(key, (_, origin))| (key, origin)).collect()
    }

    fn follow(&mut self, follower: &'static str, value: Value, leader: &'static str) {
        self.0.insert(follower, (value, Origin::Follows(leader)));
    }

    fn value(&self, key: &str) -> &Value {
        &self.0[key].0
    }

    /// The keys that are fields of `T`, as a `T`.
    pub fn part<T: Default + Serialize + DeserializeOwned>(&self) -> T {
        let fields = Table::try_from(T::default()).expect("a flat struct is a table");
        let values = fields.into_iter().map(|(key, _)| {
            let value = self.value(&key).clone();
            (key, value)
        });
        values.collect::<Table>().try_into().expect("every value was fitted to its key")
    }
}

/// In decimal, so that a tenth of 3e-4 is 3e-5 and not 2.9999999999999997e-5.
fn tenth(rate: &Value) -> Value {
    let rate = rate.as_float().unwrap_or_default();
    format!("{rate}e-1").parse::<f64>().unwrap_or(rate).into()
}
