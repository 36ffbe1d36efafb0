//! `Buffer`: f32 storage whose first element lies on a 64-byte line, so that no vector load of an
//! aligned row ever touches two cache lines.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ops::{Deref, DerefMut};

/// Floats in one 64-byte cache line: lengths rounded up to this keep what follows aligned.
pub const LINE: usize = 16;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// A fixed number of f32, zero at first, aligned to 64 bytes. Dereferences to `[f32]`.
#[derive(Clone, Default)]
pub struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

impl Buffer {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let count = len.div_ceil(LINE);
        if count == 0 {
            return Self::default();
        }
        let layout = Layout::array::<Line>(count).expect("a length that memory could have");
        // Zeros of the system's: memory that is never written to is never taken, as the gradients
        // of a model that only writes text. (`vec!` knows zeros only in numbers and arrays.)
        // SAFETY: `count` > 0, so the layout is not empty.
        let ptr = unsafe { alloc_zeroed(layout) }.cast::<Line>();
        if ptr.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: from the global allocator with the layout of so many `Line`s, for which all bits
        // zero is a value.
        Self { lines: unsafe { Vec::from_raw_parts(ptr, count, count) }, len }
    }

    /// Changes the length; what the floats then hold is not said. Allocates only when `len` is more
    /// than it ever was.
    pub fn resize(&mut self, len: usize) {
        if len > self.lines.len() * LINE {
            *self = Self::zeros(len);
        }
        self.len = len;
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: `lines` holds at least `len` initialised floats, contiguous because `Line` is
        // `repr(C)` with no padding (64 bytes of floats at an alignment of 64).
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} f32)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_zeroed_aligned_and_exact() {
        for len in [0, 1, 15, 16, 17, 1000] {
            let buffer = Buffer::zeros(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&x| x == 0.0));
            assert_eq!(buffer.as_ptr() as usize % 64, 0);
        }
    }

    #[test]
    fn a_buffer_that_shrinks_and_grows_back_stays_where_it_was() {
        let mut buffer = Buffer::zeros(100);
        let place = buffer.as_ptr();
        for len in [3, 0, 100] {
            buffer.resize(len);
            assert_eq!((buffer.len(), buffer.as_ptr()), (len, place));
        }
        buffer.resize(1000);
        assert_eq!(buffer.len(), 1000);
    }
}
