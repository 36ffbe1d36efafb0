//! Text <-> tokens, for Python.

use crate::failure::exception;
use crate::processor::detached;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use tinygpt::{DataOptions, Dataset, Input, TokenizerKind};

/// Bytes of a text that are encoded between two looks for Ctrl-C.
const PART: usize = 1 << 20;

/// What the tokens of a model stand for: see the stub.
#[pyclass(frozen, module = "tiny_gpt", eq)]
#[derive(PartialEq)]
pub struct Tokenizer(pub tinygpt::Tokenizer);

#[pymethods]
impl Tokenizer {
    #[new]
    fn new(py: Python<'_>, json: &str) -> PyResult<Self> {
        detached(py, || tinygpt::Tokenizer::from_json(json).map(Self).map_err(exception))
    }

    #[staticmethod]
    #[pyo3(signature = (text, kind = "char"))]
    fn from_text(py: Python<'_>, text: &str, kind: &str) -> PyResult<Self> {
        let kind = TokenizerKind::try_from(kind.to_owned()).map_err(PyValueError::new_err)?;
        if text.is_empty() && matches!(kind, TokenizerKind::Char | TokenizerKind::Bpe(_)) {
            return Err(PyValueError::new_err("an empty text has nothing to make tokens of"));
        }
        detached(py, || tinygpt::Tokenizer::from_text(&kind, text).map(Self).map_err(exception))
    }

    #[getter]
    fn start(&self) -> u32 {
        self.0.start()
    }

    #[getter]
    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    #[pyo3(signature = (text, special = false))]
    fn encode(&self, py: Python<'_>, text: &str, special: bool) -> PyResult<Vec<u32>> {
        let (mut encoder, mut ids) = (self.0.encoder(special), Vec::new());
        let (mut rest, mut all) = (text, true);
        while all && !rest.is_empty() {
            let end = (PART..rest.len()).find(|&at| rest.is_char_boundary(at));
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            all = detached(py, || Ok(encoder.push(part, &mut ids)))?;
            py.check_signals()?;
            rest = after;
        }
        if detached(py, || Ok(all && encoder.finish(&mut ids)))? {
            return Ok(ids);
        }
        // Says what has no token, and where it stands.
        let encode = || match special {
            true => self.0.encode_with_special(text, "the text"),
            false => self.0.encode(text, "the text"),
        };
        detached(py, || encode().map_err(exception))
    }

    fn decode(&self, py: Python<'_>, ids: Vec<i64>) -> PyResult<String> {
        let narrow = |id: i64| {
            u32::try_from(id).map_err(|_| PyIndexError::new_err(format!("{id} is no token id")))
        };
        let ids = ids.into_iter().map(narrow).collect::<PyResult<Vec<_>>>()?;
        detached(py, || Ok(self.0.decode(&ids)))
    }

    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || Ok(self.0.to_json()))
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (String,))> {
        Ok((slf.get_type().into_any().unbind(), (slf.get().0.to_json(),)))
    }

    fn __repr__(&self) -> String {
        format!("Tokenizer({} tokens)", self.0.vocab_size())
    }
}

/// The text that the engine carries.
#[pyfunction]
pub fn tiny_shakespeare(py: Python<'_>) -> PyResult<String> {
    let bytes =
        DataOptions { tokenizer: TokenizerKind::Byte, val_fraction: 0.0, ..DataOptions::default() };
    let text = || {
        let data = Dataset::build(&Input::TinyShakespeare, &bytes, None, &mut |_, _| {})?;
        let mut ids = vec![0; data.train.len()];
        data.train.read(0, &mut ids)?;
        Ok(data.tokenizer.decode(&ids))
    };
    detached(py, || text().map_err(exception))
}
