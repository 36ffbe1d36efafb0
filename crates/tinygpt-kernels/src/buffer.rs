//! `Buffer`: storage whose first element lies on a 64-byte line, so that no vector load of an aligned
//! row ever touches two cache lines.

use crate::pages::{self, LARGE};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Floats in one 64-byte cache line: lengths rounded up to this keep what follows aligned.
pub const LINE: usize = 16;

/// What a buffer can hold: f32, the bits of bf16, int8.
pub trait Number: Copy + Send + Sync + zeros::AreNumbers {}

impl<T: Copy + Send + Sync + zeros::AreNumbers> Number for T {}

mod zeros {
    /// # Safety
    /// Zeroed memory holds values of the type, and it has no alignment above a line's.
    pub unsafe trait AreNumbers {}

    // SAFETY: zeros are 0.
    unsafe impl AreNumbers for f32 {}
    // SAFETY: as above.
    unsafe impl AreNumbers for u16 {}
    // SAFETY: as above.
    unsafe impl AreNumbers for i8 {}
}

/// A fixed number of numbers, zero at first, aligned to 64 bytes. Dereferences to a slice.
pub struct Buffer<T: Number = f32> {
    memory: Option<Memory>,
    len: usize,
    of: PhantomData<T>,
}

/// What the system gave: zeros of its own, so that memory that is never written to is never taken,
/// as the gradients of a model that only writes text. (It gives those only at its own alignment; at
/// a larger one the standard library would write them.)
struct Memory {
    given: NonNull<u8>,
    layout: Layout,
    /// The first line in it, of `room` bytes; where they fill a large page, that begins with them.
    start: NonNull<u8>,
    room: usize,
}

// SAFETY: it is the only owner of what it points to, as a `Vec` is.
unsafe impl Send for Memory {}
// SAFETY: as above; it changes nothing through a shared reference.
unsafe impl Sync for Memory {}

impl Memory {
    const BYTES_OF_LINE: usize = LINE * size_of::<f32>();

    /// At least `len` numbers of `size` bytes, for `len` > 0.
    fn zeros(len: usize, size: usize) -> Self {
        let bytes = len.checked_mul(size).expect("a length that memory could have");
        let lines = bytes.div_ceil(Self::BYTES_OF_LINE);
        let align = if lines < LARGE / Self::BYTES_OF_LINE { Self::BYTES_OF_LINE } else { LARGE };
        let layout = Layout::array::<[f32; LINE]>(lines + align / Self::BYTES_OF_LINE)
            .expect("a length that memory could have");
        // SAFETY: there is at least one line, so the layout is not empty.
        let given = NonNull::new(unsafe { alloc_zeroed(layout) });
        let given = given.unwrap_or_else(|| handle_alloc_error(layout));
        let skip = given.addr().get().next_multiple_of(align) - given.addr().get();
        // SAFETY: less than `align`, and there is as much more than is needed.
        let start = unsafe { given.add(skip) };
        let room = lines * Self::BYTES_OF_LINE;
        pages::ask_for_large(NonNull::slice_from_raw_parts(start, room));
        Self { given, layout, start, room }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: from the global allocator with this layout.
        unsafe { dealloc(self.given.as_ptr(), self.layout) }
    }
}

impl<T: Number> Buffer<T> {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let memory = (len > 0).then(|| Memory::zeros(len, size_of::<T>()));
        Self { memory, len, of: PhantomData }
    }

    /// Changes the length; what the numbers then are is not said. Allocates only when `len` is more
    /// than it ever was.
    pub fn resize(&mut self, len: usize) {
        if len > self.memory.as_ref().map_or(0, |memory| memory.room / size_of::<T>()) {
            *self = Self::zeros(len);
        }
        self.len = len;
    }
}

impl<T: Number> Default for Buffer<T> {
    fn default() -> Self {
        Self::zeros(0)
    }
}

impl<T: Number> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl<T: Number> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        let Some(memory) = &self.memory else { return &[] };
        // SAFETY: it has room for at least `len` numbers, all of which were given as zeros, and is
        // aligned to a line.
        unsafe { std::slice::from_raw_parts(memory.start.as_ptr().cast(), self.len) }
    }
}

impl<T: Number> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let Some(memory) = &mut self.memory else { return &mut [] };
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(memory.start.as_ptr().cast(), self.len) }
    }
}

impl<T: Number> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} {})", self.len, std::any::type_name::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_zeroed_aligned_and_exact() {
        fn check<T: Number + Default + PartialEq>() {
            let large = LARGE / size_of::<T>();
            for len in [0, 1, 15, 16, 17, 1000, 2 * large - 17, 2 * large + 1] {
                let buffer = Buffer::<T>::zeros(len);
                assert_eq!(buffer.len(), len);
                assert!(buffer.iter().all(|x| *x == T::default()));
                let align = if len < large { 64 } else { LARGE };
                assert!(len == 0 || buffer.as_ptr().addr().is_multiple_of(align), "{len}");
            }
        }
        check::<f32>();
        check::<u16>();
        check::<i8>();
    }

    #[test]
    #[should_panic(expected = "a length that memory could have")]
    fn a_length_that_no_memory_has_is_refused() {
        Buffer::<f32>::zeros(usize::MAX);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn large_pages_are_asked_for() {
        let buffer = Buffer::<f32>::zeros(1 << 22);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let range =
                range.map(|(a, b)| (usize::from_str_radix(a, 16), usize::from_str_radix(b, 16)));
            if let Some((Ok(from), Ok(to))) = range {
                inside = (from..to).contains(&buffer.as_ptr().addr());
            } else if let (true, Some(flags)) = (inside, line.strip_prefix("VmFlags:")) {
                let has = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
                assert!(!has || flags.split(' ').any(|flag| flag == "hg"), "{flags}");
                return;
            }
        }
        eprintln!("skipped: /proc/self/smaps does not show the buffer's memory");
    }

    /// Of a gibibyte, two pages; other tests take some meanwhile.
    #[cfg(target_os = "linux")]
    #[test]
    fn memory_that_is_never_written_to_is_never_taken() {
        let resident = || -> u64 {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse().unwrap()
        };
        let before = resident();
        let buffer = Buffer::<f32>::zeros(1 << 28);
        assert_eq!((buffer[0], buffer[(1 << 28) - 1]), (0.0, 0.0));
        let pages = resident().saturating_sub(before);
        assert!(pages < 1 << 16, "{pages} pages of {} were taken", 1 << 18);
    }

    #[test]
    fn a_buffer_that_shrinks_and_grows_back_stays_where_it_was() {
        let mut buffer = Buffer::<f32>::zeros(100);
        let place = buffer.as_ptr();
        for len in [3, 0, 100] {
            buffer.resize(len);
            assert_eq!((buffer.len(), buffer.as_ptr()), (len, place));
        }
        buffer.resize(1000);
        assert_eq!(buffer.len(), 1000);
    }
}
