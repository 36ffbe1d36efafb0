//! The model's passes over PyTorch's parameters, and text from them.

use crate::failure::exception;
use crate::memory::{floats, integers, new_floats};
use crate::processor::{detached, put_back, take};
use crate::tokenizer::Tokenizer;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tinygpt::checkpoint::{self, check_finite};
use tinygpt::model::{Dropout, Params, Pass, Spec, Tensors};
use tinygpt::run::{self, folder::RUNS, model_path, open_model};
use tinygpt::{Dtype, Gpt, GptConfig, Precision, Sampler, Sampling};
use tinygpt_kernels::{Isa, Lent};

/// Tensors of Python's, in the table's order.
type PyTensors<'py> = Vec<Bound<'py, PyAny>>;
/// [`floats`] or [`new_floats`].
type Slice = fn(&Bound<'_, PyAny>, usize, &str) -> PyResult<Lent>;
/// The memory of a pass that is over, for the next one.
type Spare = Arc<Mutex<Pass>>;

/// A model's shape, and the memory that its passes take in turn.
#[pyclass(frozen, module = "tiny_gpt._engine")]
pub struct Engine {
    config: GptConfig,
    dtype: Dtype,
    table: Arc<Tensors<Spec>>,
    spare: Spare,
}

/// A forward pass, kept by autograd's graph until nobody can go back any more.
#[pyclass(module = "tiny_gpt._engine")]
pub struct ForwardPass {
    /// None while a backward is at it.
    pass: Option<Pass>,
    spare: Spare,
}

impl Drop for ForwardPass {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = pass;
        }
    }
}

#[pymethods]
impl Engine {
    #[new]
    fn new(config: &str, dtype: &str) -> PyResult<Self> {
        let config: GptConfig = serde_json::from_str(config)
            .map_err(|error| PyValueError::new_err(format!("the configuration: {error}")))?;
        config.check().map_err(exception)?;
        let dtype = Dtype::named(dtype).ok_or_else(|| {
            let names = Dtype::NAMES.join(", ");
            PyValueError::new_err(format!("dtype = {dtype}: expected one of {names}"))
        })?;
        let table = Arc::new(Tensors::of(&config));
        Ok(Self { config, dtype, table, spare: Spare::default() })
    }

    /// The names of the parameters, in the order in which every call takes them.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.table.iter().map(|spec| spec.name.clone()).collect()
    }

    /// Their shapes.
    #[getter]
    fn shapes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.table.iter().map(|spec| PyTuple::new(py, &spec.shape)).collect()
    }

    /// Writes `logits`, (B, T, V) or (B, 1, V), for `idx` (B, T). Returns what a backward needs, and
    /// the mean loss if there are targets. A pass that is `alone` has no backward, and needs less memory.
    #[pyo3(signature = (params, idx, targets, logits, *, dropout, seed, threads, alone=false))]
    fn forward(
        &self,
        py: Python<'_>,
        params: PyTensors<'_>,
        idx: &Bound<'_, PyAny>,
        targets: Option<&Bound<'_, PyAny>>,
        logits: &Bound<'_, PyAny>,
        dropout: f32,
        seed: u64,
        threads: usize,
        alone: bool,
    ) -> PyResult<(ForwardPass, Option<f32>)> {
        let dims = idx.getattr("shape")?.extract()?;
        let ids = self.ids(idx)?;
        let targets = targets.map(|targets| self.targets(targets)).transpose()?;
        let params = self.lent(&params)?;
        let len = logits.call_method0("numel")?.extract()?;
        let mut logits = new_floats(logits, len, "logits")?;
        if !(0.0..1.0).contains(&dropout) {
            let problem = format!("dropout = {dropout}: must be in [0, 1)");
            return Err(PyValueError::new_err(problem));
        }
        let drop = Dropout::new(dropout, seed, 0, 0);
        let (pass, loss) = detached(py, || {
            let old = std::mem::take(&mut *self.spare());
            let pass = Pass::new(old, ids, targets, drop, dims);
            let mut pass = if alone { pass.alone() } else { pass };
            let loss = self.with(params, None, self.dtype, threads, |gpt| {
                gpt.forward_pass(&mut pass, &mut logits)
            })?;
            Ok((pass, loss))
        })?;
        Ok((ForwardPass { pass: Some(pass), spare: self.spare.clone() }, loss))
    }

    /// Writes `grads`: those of `dloss` times the loss of `kept`, and of whatever has the gradient
    /// `dlogits` (B, T, V) in its `logits`.
    #[pyo3(signature = (kept, params, grads, logits, dlogits, dloss, *, threads))]
    fn backward(
        &self,
        py: Python<'_>,
        kept: &Bound<'_, ForwardPass>,
        params: PyTensors<'_>,
        grads: PyTensors<'_>,
        logits: &Bound<'_, PyAny>,
        dlogits: Option<&Bound<'_, PyAny>>,
        dloss: Option<f32>,
        threads: usize,
    ) -> PyResult<()> {
        let (params, grads) = (self.lent(&params)?, self.lent_by(&grads, new_floats)?);
        let len = logits.call_method0("numel")?.extract()?;
        let logits = floats(logits, len, "logits")?;
        let dlogits = dlogits.map(|d| floats(d, len, "the gradient of the logits")).transpose()?;
        let Some(mut pass) = kept.borrow_mut().pass.take() else {
            let problem = "two threads go back through one forward pass at the same time";
            return Err(PyRuntimeError::new_err(problem));
        };
        let pass = detached(py, || {
            self.with(params, Some(grads), self.dtype, threads, |gpt| {
                gpt.zero_grad();
                gpt.backward_pass(&mut pass, &logits, dlogits.as_deref(), dloss);
                Ok(pass)
            })
        })?;
        kept.borrow_mut().pass = Some(pass);
        Ok(())
    }

    /// `idx` (B, T) as lists, each with up to `max_new_tokens` more; a token of `stop` ends its text.
    /// `on_token(row, token)` is called with each.
    #[pyo3(signature = (
        params, idx, max_new_tokens, *, temperature, top_k, top_p, min_p, seed, stop, on_token,
        vocab_size, quantize, threads
    ))]
    fn generate(
        &self,
        py: Python<'_>,
        params: PyTensors<'_>,
        idx: &Bound<'_, PyAny>,
        max_new_tokens: usize,
        temperature: f64,
        top_k: usize,
        top_p: f64,
        min_p: f64,
        seed: u64,
        stop: Vec<u32>,
        on_token: Option<Py<PyAny>>,
        vocab_size: usize,
        quantize: Option<&str>,
        threads: usize,
    ) -> PyResult<Vec<Vec<u32>>> {
        let (b, t): (usize, usize) = idx.getattr("shape")?.extract()?;
        let ids = self.ids(idx)?;
        let texts: Vec<Vec<u32>> = ids.chunks_exact(t).map(<[u32]>::to_vec).collect();
        let sampling = Sampling { temperature, top_k, top_p, min_p, seed, vocab_size };
        let samplers: Result<Vec<_>, _> =
            (0..b as u32).map(|row| Sampler::new(&sampling, row)).collect();
        let mut samplers = samplers.map_err(exception)?;
        let params = self.lent(&params)?;
        let precision = match quantize {
            None => Precision::of(self.dtype, Isa::best()),
            Some(name) if name == Precision::Int8.name() => Precision::Int8,
            Some(other) => {
                let problem = format!("quantize = {other:?}: expected \"int8\" or None");
                return Err(PyValueError::new_err(problem));
            }
        };
        detached(py, || {
            let mut failed = None;
            // Rounded weights are multiplied as f32, as the program does it.
            let texts = self.with(params, None, Dtype::F32, threads, |gpt| {
                gpt.keep_in(precision);
                gpt.continue_texts(texts, max_new_tokens, &mut samplers, |row, token| {
                    if failed.is_none() {
                        failed = Python::attach(|py| told(py, on_token.as_ref(), row, token)).err();
                    }
                    match failed.is_some() || stop.contains(&token) {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                })
            })?;
            failed.map_or(Ok(texts), Err)
        })
    }

    /// Saves a checkpoint that the program `tinygpt` opens, whole or not at all.
    fn save(
        &self,
        py: Python<'_>,
        params: PyTensors<'_>,
        folder: PathBuf,
        tokenizer: Option<&Bound<'_, Tokenizer>>,
    ) -> PyResult<()> {
        let params = self.lent(&params)?;
        let json = tokenizer.map(|tokenizer| tokenizer.get().0.to_json());
        detached(py, || {
            checkpoint::save(&folder, &self.config, &params, json.as_deref(), None)
                .map_err(exception)
        })
    }
}

impl Engine {
    fn spare(&self) -> std::sync::MutexGuard<'_, Pass> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work` with a model laid over these tensors, whose products round to `dtype`.
    fn with<T>(
        &self,
        params: Params,
        grads: Option<Params>,
        dtype: Dtype,
        threads: usize,
        work: impl FnOnce(&mut Gpt) -> tinygpt::Result<T>,
    ) -> PyResult<T> {
        let cpu = take(threads);
        let gpt = Gpt::over(self.config.clone(), params, grads, cpu).map_err(exception)?;
        let mut gpt = gpt.with_dtype(dtype);
        let result = work(&mut gpt);
        put_back(gpt.into_cpu());
        result.map_err(exception)
    }

    fn lent(&self, tensors: &[Bound<'_, PyAny>]) -> PyResult<Params> {
        self.lent_by(tensors, floats)
    }

    fn lent_by(&self, tensors: &[Bound<'_, PyAny>], slice: Slice) -> PyResult<Params> {
        let expected = self.table.iter().len();
        if tensors.len() != expected {
            let problem = format!("{} parameters, expected {expected}", tensors.len());
            return Err(PyValueError::new_err(problem));
        }
        let rows = self.table.iter().zip(tensors);
        let lent = rows.map(|(spec, tensor)| slice(tensor, spec.len(), &spec.name));
        Ok(Params::lent(self.table.clone(), lent.collect::<PyResult<_>>()?))
    }

    /// Token ids, every one in the vocabulary.
    fn ids(&self, idx: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let v = self.config.vocab_size;
        let id = |(at, id): (usize, i64)| match usize::try_from(id) {
            Ok(small) if small < v => Ok(small as u32),
            _ => Err(outside(format!("token id {id} at offset {at} of idx"), v)),
        };
        integers(idx, "idx")?.into_iter().enumerate().map(id).collect()
    }

    /// The same, or -1.
    fn targets(&self, targets: &Bound<'_, PyAny>) -> PyResult<Vec<i32>> {
        let v = self.config.vocab_size;
        let target = |(at, id): (usize, i64)| match id == -1 || (0..v as i64).contains(&id) {
            true => Ok(id as i32),
            false => Err(outside(format!("target {id} at offset {at} is not -1 and"), v)),
        };
        integers(targets, "targets")?.into_iter().enumerate().map(target).collect()
    }
}

fn outside(what: String, v: usize) -> PyErr {
    PyIndexError::new_err(format!("{what} is not in the vocabulary of {v} tokens"))
}

/// Ctrl-C ends a text, and so does an exception of the caller's.
fn told(py: Python<'_>, on_token: Option<&Py<PyAny>>, row: usize, token: u32) -> PyResult<()> {
    py.check_signals()?;
    on_token.map_or(Ok(()), |call| call.call1(py, (row, token)).map(drop))
}

/// The configuration of the model that a path means (a run, a checkpoint, another program's model),
/// as JSON, the path of the model, and what was assumed of it.
#[pyfunction]
pub fn read_config(py: Python<'_>, path: PathBuf) -> PyResult<(String, PathBuf, Vec<String>)> {
    detached(py, || {
        let path = model_path(Path::new(RUNS), Some(&path)).map_err(exception)?;
        let model = open_model(&path).map_err(exception)?;
        let json = serde_json::to_string(&model.config).expect("numbers, booleans and names");
        Ok((json, path, model.notices))
    })
}

/// Copies the parameters of the model at `path` to tensors of its configuration. Returns its
/// tokenizer, if it has one.
#[pyfunction]
pub fn read_model(
    py: Python<'_>,
    path: PathBuf,
    engine: &Engine,
    params: PyTensors<'_>,
) -> PyResult<Option<Tokenizer>> {
    let mut to = engine.lent(&params)?;
    detached(py, || {
        let model = open_model(&path).map_err(exception)?;
        let (params, tokenizer) = run::read_model(&model).map_err(exception)?;
        check_finite(&params, &path).map_err(exception)?;
        for spec in engine.table.iter() {
            to.get_mut(spec).copy_from_slice(params.get(spec));
        }
        Ok(tokenizer.map(Tokenizer))
    })
}
