//! `Buffer`: f32 storage whose first element lies on a 64-byte line, so that no vector load of an
//! aligned row ever touches two cache lines.

use crate::pages::{self, LARGE};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Floats in one 64-byte cache line: lengths rounded up to this keep what follows aligned.
pub const LINE: usize = 16;

/// A fixed number of f32, zero at first, aligned to 64 bytes. Dereferences to `[f32]`.
#[derive(Default)]
pub struct Buffer {
    memory: Option<Memory>,
    len: usize,
}

/// What the system gave: zeros of its own, so that memory that is never written to is never taken,
/// as the gradients of a model that only writes text. (It gives those only at its own alignment; at
/// a larger one the standard library would write them.)
struct Memory {
    given: NonNull<u8>,
    layout: Layout,
    /// The first line in it, of `room` floats; where they fill a large page, that begins with them.
    start: NonNull<f32>,
    room: usize,
}

// SAFETY: it is the only owner of what it points to, as a `Vec` is.
unsafe impl Send for Memory {}
// SAFETY: as above; it changes nothing through a shared reference.
unsafe impl Sync for Memory {}

impl Memory {
    const BYTES_OF_LINE: usize = LINE * size_of::<f32>();

    /// At least `len` floats, for `len` > 0.
    fn zeros(len: usize) -> Self {
        let lines = len.div_ceil(LINE);
        let align = if lines < LARGE / Self::BYTES_OF_LINE { Self::BYTES_OF_LINE } else { LARGE };
        let layout = Layout::array::<[f32; LINE]>(lines + align / Self::BYTES_OF_LINE)
            .expect("a length that memory could have");
        // SAFETY: there is at least one line, so the layout is not empty.
        let given = NonNull::new(unsafe { alloc_zeroed(layout) });
        let given = given.unwrap_or_else(|| handle_alloc_error(layout));
        let skip = given.addr().get().next_multiple_of(align) - given.addr().get();
        // SAFETY: less than `align`, and there is as much more than is needed.
        let start: NonNull<f32> = unsafe { given.add(skip) }.cast();
        let room = lines * LINE;
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

impl Buffer {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        Self { memory: (len > 0).then(|| Memory::zeros(len)), len }
    }

    /// Changes the length; what the floats then hold is not said. Allocates only when `len` is more
    /// than it ever was.
    pub fn resize(&mut self, len: usize) {
        if len > self.memory.as_ref().map_or(0, |memory| memory.room) {
            *self = Self::zeros(len);
        }
        self.len = len;
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        let Some(memory) = &self.memory else { return &[] };
        // SAFETY: it has room for at least `len` floats, all of which were given as zeros.
        unsafe { std::slice::from_raw_parts(memory.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        let Some(memory) = &mut self.memory else { return &mut [] };
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(memory.start.as_ptr(), self.len) }
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
        let large = LARGE / size_of::<f32>();
        for len in [0, 1, 15, 16, 17, 1000, 2 * large - 17, 2 * large + 1] {
            let buffer = Buffer::zeros(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&x| x == 0.0));
            let align = if len < large { 64 } else { LARGE };
            assert!(len == 0 || buffer.as_ptr().addr().is_multiple_of(align), "{len}");
        }
    }

    #[test]
    #[should_panic(expected = "a length that memory could have")]
    fn a_length_that_no_memory_has_is_refused() {
        Buffer::zeros(usize::MAX);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn large_pages_are_asked_for() {
        let buffer = Buffer::zeros(1 << 22);
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
        let buffer = Buffer::zeros(1 << 28);
        assert_eq!((buffer[0], buffer[(1 << 28) - 1]), (0.0, 0.0));
        let pages = resident().saturating_sub(before);
        assert!(pages < 1 << 16, "{pages} pages of {} were taken", 1 << 18);
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
