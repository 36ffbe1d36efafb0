//! Memory in pages of 2 MiB, where the system has them (Linux).
//!
//! A step walks through hundreds of megabytes. In pages of 4 KiB the processor looks up a hundred
//! thousand addresses for that, and on a virtual machine each of them twice (`docs/performance.md` has
//! what that cost).

use std::ptr::NonNull;

/// Memory that is to be in large pages begins on a multiple of this.
pub(crate) const LARGE: usize = if cfg!(target_os = "linux") { 2 << 20 } else { 64 };

/// Asks for large pages wherever whole ones lie in `memory`, best before anybody writes to it: the
/// system would have to copy what they hold.
#[cfg(target_os = "linux")]
pub fn ask_for_large<T>(memory: NonNull<[T]>) {
    let first = memory.as_ptr().cast::<u8>();
    let start = first.addr().next_multiple_of(LARGE);
    let end = (first.addr() + memory.len() * size_of::<T>()) / LARGE * LARGE;
    if start < end {
        let first = first.with_addr(start).cast();
        // SAFETY: the advice changes nothing that these pages hold, whoever has them. Where it is
        // not taken, nothing is lost.
        unsafe { libc::madvise(first, end - start, libc::MADV_HUGEPAGE) };
    }
}

/// Other systems choose for themselves.
#[cfg(not(target_os = "linux"))]
pub fn ask_for_large<T>(_: NonNull<[T]>) {}
