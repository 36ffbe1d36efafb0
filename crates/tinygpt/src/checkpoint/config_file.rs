//! `config.json`: the keys of [`GptConfig`], and what tells our layout from another program's.

use crate::config::GptConfig;
use crate::error::{Error, Result};
use crate::files;
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::Path;

const MODEL_TYPE: &str = "tinygpt";
/// Rises when an older program would misread what a newer one writes.
const FORMAT_VERSION: u64 = 1;
const LONGEST: u64 = 1 << 20;

#[derive(Serialize)]
struct File<'a> {
    model_type: &'a str,
    format_version: u64,
    #[serde(flatten)]
    config: &'a GptConfig,
}

pub(super) fn to_json(config: &GptConfig) -> String {
    let file = File { model_type: MODEL_TYPE, format_version: FORMAT_VERSION, config };
    serde_json::to_string_pretty(&file).expect("numbers, booleans and names") + "\n"
}

/// Reads and checks a configuration. Every key must be there: a default would be a guess about
/// weights that exist.
///
/// # Errors
/// [`Error::Checkpoint`] says why it is no text, or names the key that is missing, unknown or
/// impossible; [`Error::Io`] if it cannot be read.
pub(super) fn read(path: &Path) -> Result<GptConfig> {
    if !path.exists() {
        return Err(Error::checkpoint(
            path,
            "there is no such file; a model needs its config.json",
        )
        .with_hint("copy it from the folder that the weights came from"));
    }
    let problem = |text: String| Error::checkpoint(path, text);
    let text = files::read_text(path, LONGEST).map_err(|error| error.in_checkpoint(path))?;
    let mut keys: Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| problem(format!("is not valid: {error}")))?;
    match keys.remove("model_type") {
        Some(Value::String(kind)) if kind == MODEL_TYPE => {}
        Some(Value::String(kind)) if kind == "gpt2" => {
            return Err(problem("model_type is gpt2: a model in Hugging Face's layout".into())
                .with_hint("`formats::Model::open` reads it; a run of TinyGPT's has its own"));
        }
        other => {
            let found = other.map_or("missing".into(), |value| value.to_string());
            return Err(problem(format!("model_type is {found}; expected \"gpt2\"")));
        }
    }
    match keys.remove("format_version") {
        Some(version) if version == FORMAT_VERSION => {}
        other => {
            let found = other.map_or("missing".into(), |value| value.to_string());
            return Err(problem(format!("format_version is {found}; expected {FORMAT_VERSION}"))
                .with_hint("a newer TinyGPT may have written it"));
        }
    }
    let known = serde_json::to_value(GptConfig::default()).expect("numbers, booleans and names");
    let mut known = known.as_object().expect("a struct is an object").keys();
    if let Some(missing) = known.find(|key| !keys.contains_key(*key)) {
        return Err(problem(format!("has no {missing}")));
    }
    let config: GptConfig =
        serde_json::from_value(Value::Object(keys)).map_err(|error| problem(error.to_string()))?;
    config.check().map_err(|error| error.in_checkpoint(path))?;
    Ok(config)
}
