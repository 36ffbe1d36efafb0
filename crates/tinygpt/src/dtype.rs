//! What numbers are kept in, as a user says it.

use serde::{Deserialize, Serialize};
use tinygpt_kernels::{Isa, narrow::Factors};

/// What to keep numbers in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Whichever of the others is the better choice here.
    #[default]
    Auto,
    /// 32 bits.
    F32,
    /// The upper 16 bits of an f32.
    Bf16,
}

impl Dtype {
    /// The names, as they are typed.
    pub const NAMES: [&str; 3] = ["auto", "f32", "bf16"];

    /// nanoGPT's names, and ours for each.
    pub const NANOGPT: [(&str, &str); 2] = [("float32", "f32"), ("bfloat16", "bf16")];

    /// The one called `name`, by us or by nanoGPT.
    pub fn named(name: &str) -> Option<Self> {
        let theirs = Self::NANOGPT.iter().find(|(theirs, _)| *theirs == name);
        let name = theirs.map_or(name, |(_, ours)| ours);
        [Self::Auto, Self::F32, Self::Bf16].into_iter().find(|dtype| dtype.name() == name)
    }

    /// One of [`NAMES`](Self::NAMES).
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }

    /// What products round their factors to, with the instruction set `isa`.
    pub fn factors(self, isa: Isa) -> Factors {
        match self.resolve(isa) {
            Self::Bf16 => Factors::Bf16,
            _ => Factors::F32,
        }
    }

    /// Itself, or for `Auto` bf16 where the processor multiplies bf16 and f32 elsewhere.
    pub fn resolve(self, isa: Isa) -> Self {
        match self {
            Self::Auto if isa.multiplies_bf16() => Self::Bf16,
            Self::Auto => Self::F32,
            chosen => chosen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_and_only_auto_is_resolved() {
        for name in Dtype::NAMES {
            let dtype = Dtype::named(name).unwrap();
            assert_eq!(dtype.name(), name);
            assert_eq!(serde_json::to_string(&dtype).unwrap(), format!("\"{name}\""));
            assert_eq!(dtype.resolve(Isa::best()) == dtype, dtype != Dtype::Auto);
        }
        assert_eq!(Dtype::named("f64"), None);
        assert_eq!(Dtype::named("bfloat16"), Some(Dtype::Bf16));
    }
}
