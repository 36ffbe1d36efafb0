//! PyTorch's memory as slices, for the length of one call: the only `unsafe` of this crate.
//!
//! What a tensor is (class, kind, place, layout, size, alignment) is checked here, so that no tensor
//! makes the engine read or write where it must not. That gradients have memory of their own is
//! `engine.py`'s part, which makes them.
#![allow(unsafe_code)]

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::ptr::NonNull;
use tinygpt_kernels::{Lent, pages};

/// The `len` floats of an f32 tensor, without a copy. The caller holds `tensor`, and lets nobody else
/// at it, until the result is dropped.
pub fn floats(tensor: &Bound<'_, PyAny>, len: usize, name: &str) -> PyResult<Lent> {
    let (start, found) = place(tensor, Kind::Float32, name)?;
    if found != len {
        let problem = format!("{name} has {found} numbers, the configuration says {len}");
        return Err(PyValueError::new_err(problem));
    }
    // SAFETY: PyTorch says that so many f32 lie there in a row, aligned. (Those that nobody has
    // written to yet are whatever the system's memory holds, which is an f32 too.) Every call of the
    // engine holds its tensors until after it has dropped what it makes of them, and they are aliases
    // (`engine.py`), whose memory nobody can take from under them. That nobody else writes it
    // meanwhile is what PyTorch's own operations ask of their callers too.
    Ok(unsafe { Lent::new(start.cast(), len) })
}

/// The same of a tensor that PyTorch has just made and that nobody has written to yet. Large ones
/// (logits, gradients) are new memory of the system's in every step, which it hands over page by page:
/// fewer, where they are of 2 MiB.
pub fn new_floats(tensor: &Bound<'_, PyAny>, len: usize, name: &str) -> PyResult<Lent> {
    let (start, found) = place(tensor, Kind::Float32, name)?;
    pages::ask_for_large(NonNull::slice_from_raw_parts(start.cast::<f32>(), found));
    floats(tensor, len, name)
}

/// A copy of the numbers of an i64 tensor.
pub fn integers(tensor: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<i64>> {
    let (start, len) = place(tensor, Kind::Int64, name)?;
    // SAFETY: as above; they are copied while `tensor` is held here.
    Ok(unsafe { std::slice::from_raw_parts(start.cast::<i64>().as_ptr(), len) }.to_vec())
}

/// What a tensor's numbers must be.
#[derive(Clone, Copy)]
enum Kind {
    Float32,
    Int64,
}

impl Kind {
    /// PyTorch's object for it.
    fn dtype(self, py: Python<'_>) -> PyResult<&Py<PyAny>> {
        static DTYPES: PyOnceLock<[Py<PyAny>; 2]> = PyOnceLock::new();
        let both = DTYPES.get_or_try_init(py, || {
            let torch = py.import("torch")?;
            PyResult::Ok([torch.getattr("float32")?.unbind(), torch.getattr("int64")?.unbind()])
        })?;
        Ok(&both[self as usize])
    }
}

/// Where the numbers of a tensor start, and how many there are.
fn place(tensor: &Bound<'_, PyAny>, kind: Kind, name: &str) -> PyResult<(NonNull<u8>, usize)> {
    static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static PARAMETER: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let (py, class) = (tensor.py(), tensor.get_type());
    // A class of somebody else's may answer what it likes.
    let known = class.is(TENSOR.import(py, "torch", "Tensor")?)
        || class.is(PARAMETER.import(py, "torch.nn", "Parameter")?);
    if !known {
        return Err(PyTypeError::new_err(format!("{name} is not a tensor: {class}")));
    }
    let dtype = tensor.getattr("dtype")?;
    let expected = kind.dtype(py)?;
    let in_place = tensor.getattr("is_cpu")?.extract::<bool>()?
        && tensor.call_method0("is_contiguous")?.extract::<bool>()?;
    if !dtype.is(expected) || !in_place {
        let problem = format!("{name} is {dtype}, expected a contiguous {expected} on the CPU");
        return Err(PyTypeError::new_err(problem));
    }
    let len = tensor.call_method0("numel")?.extract()?;
    let start: usize = tensor.call_method0("data_ptr")?.extract()?;
    let size = match kind {
        Kind::Float32 => size_of::<f32>(),
        Kind::Int64 => size_of::<i64>(),
    };
    if !start.is_multiple_of(size) {
        return Err(PyValueError::new_err(format!(
            "{name} lies {} bytes off its places",
            start % size
        )));
    }
    let start = NonNull::new(start as *mut u8);
    start.map(|start| (start, len)).ok_or_else(|| {
        PyValueError::new_err(format!("{name} has no numbers, expected at least one"))
    })
}
