//! The threads, and the way into the engine and out of it again.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use tinygpt_kernels::{Cpu, Isa};

/// The processor that nobody uses at the moment, and the process it belongs to: threads do not
/// survive a fork.
static IDLE: Mutex<Option<(u32, Cpu)>> = Mutex::new(None);

/// A processor of `threads` threads. It is taken, not locked: whoever comes while another computes
/// (a thread, or a callback of a long call) makes threads of its own, and nobody waits for anybody.
pub fn take(threads: usize) -> Cpu {
    let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).take();
    match idle {
        Some((process, cpu)) if process != std::process::id() => {
            // Its threads are the parent's: nothing here may wait for them.
            std::mem::forget(cpu);
            new(threads)
        }
        Some((_, cpu)) if cpu.threads() == threads.max(1) => cpu,
        _ => new(threads),
    }
}

fn new(threads: usize) -> Cpu {
    Cpu::new(threads.max(1), Isa::best())
}

/// Keeps a processor for the next call.
pub fn put_back(cpu: Cpu) {
    *IDLE.lock().unwrap_or_else(PoisonError::into_inner) = Some((std::process::id(), cpu));
}

/// Runs `work` without the interpreter's lock. A panic, which would be a fault of the engine, becomes
/// a RuntimeError.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    let result = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    result.unwrap_or_else(|panic| Err(fault(&*panic)))
}

/// What a panic said.
pub fn fault(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a panic");
    PyRuntimeError::new_err(format!("a fault in TinyGPT's engine: {text}"))
}
