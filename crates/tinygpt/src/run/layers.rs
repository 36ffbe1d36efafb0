//! Values laid over values, each remembering where it came from.
//!
//! Two rules of thumb of nanoGPT's tie keys together: the cosine ends where training ends
//! (`lr_decay_iters = max_iters`), at a tenth of the highest rate (`min_lr = learning_rate / 10`).
//! While a rule holds, a layer that changes one of the pair alone takes the other along.

use super::keys::KEYS;
use super::read::Setting;
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
    /// It goes with another key.
    Follows(&'static str),
    /// The tokenizer decided.
    Tokenizer,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::Preset(name) => write!(f, "preset {name}"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::CommandLine => write!(f, "command line"),
            Origin::Follows(key) => write!(f, "follows {key}"),
            Origin::Tokenizer => write!(f, "from the tokenizer"),
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
        let takes_along = |leader, follower| sets(leader) && !sets(follower);
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

    /// A recipe's warm-up is meant for a whole run; a shorter one must not be refused for it.
    pub fn shorten_warmup(&mut self) {
        let (warmup, origin) = &self.0["warmup_iters"];
        let end = self.value("lr_decay_iters");
        if matches!(origin, Origin::Default | Origin::Preset(_))
            && warmup.as_integer() > end.as_integer()
        {
            self.follow("warmup_iters", end.clone(), "lr_decay_iters");
        }
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
