//! `Lent`: floats that belong to somebody else, as a framework that keeps the parameters of a model
//! and hands them over for one call.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A fixed number of f32 in memory that somebody else frees. Dereferences to `[f32]`. Kernels are
/// right wherever it starts, and fastest where that is a 64-byte line.
#[derive(Debug)]
pub struct Lent {
    start: NonNull<f32>,
    len: usize,
}

impl Lent {
    /// The `len` floats from `start`.
    ///
    /// # Safety
    /// As long as the result lives these floats stay where they are, are initialised, and nobody
    /// else reads them while they are written through it or writes them at all.
    ///
    /// # Panics
    /// When `start` is not aligned for f32.
    pub unsafe fn new(start: NonNull<f32>, len: usize) -> Self {
        assert!(start.is_aligned(), "{start:?} is not aligned for f32");
        Self { start, len }
    }
}

impl From<&'static mut [f32]> for Lent {
    /// Floats that nobody else will ever be at.
    fn from(floats: &'static mut [f32]) -> Self {
        Self { start: NonNull::from(&mut *floats).cast(), len: floats.len() }
    }
}

// SAFETY: nothing about the floats depends on the thread; who lends them promises that nobody else
// is at them meanwhile.
unsafe impl Send for Lent {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for Lent {}

impl Deref for Lent {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: aligned, initialised and alive by the promise made to `new`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_through_it_is_in_its_owners_memory() {
        let mut owner = vec![1.0; 5];
        let start = NonNull::new(owner[1..].as_mut_ptr()).unwrap();
        // SAFETY: `owner` is not used while `lent` lives.
        let mut lent = unsafe { Lent::new(start, 3) };
        assert_eq!(&lent[..], [1.0; 3]);
        lent[2] = 7.0;
        assert_eq!(owner, [1.0, 1.0, 1.0, 7.0, 1.0]);
    }
}
