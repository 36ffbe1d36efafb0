//! How vectors are read of numbers that are kept in f32, in bf16, or in int8 with scales.

use crate::narrow::{from_bf16, from_int8};
use crate::simd::Simd;

/// Numbers that are kept: those of a weight, keys, values.
pub(crate) trait Kept: Copy {
    /// How many are in 64 bytes.
    const LINE: usize;
    /// Where number `at` is, or would be.
    fn place(self, at: usize) -> *const f32;
    fn len(self) -> usize;
    /// The scale of the `group`-th group of all, where there are any.
    #[inline(always)]
    fn scale(self, _group: usize) -> f32 {
        1.0
    }
    /// Number `at`, of the `group`-th group.
    fn one(self, at: usize, group: usize) -> f32;
    /// `LANES` of them with their scale.
    /// # Safety
    /// There are as many from `at` on.
    unsafe fn load<S: Simd>(self, s: S, at: usize, scale: S::F) -> S::F;
}

impl Kept for &[f32] {
    const LINE: usize = 16;
    #[inline(always)]
    fn place(self, at: usize) -> *const f32 {
        self.as_ptr().wrapping_add(at)
    }
    #[inline(always)]
    fn len(self) -> usize {
        self.len()
    }
    #[inline(always)]
    fn one(self, at: usize, _: usize) -> f32 {
        self[at]
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, at: usize, _: S::F) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load_ptr(self.as_ptr().add(at)) }
    }
}

impl Kept for &[u16] {
    const LINE: usize = 32;
    #[inline(always)]
    fn place(self, at: usize) -> *const f32 {
        self.as_ptr().wrapping_add(at).cast()
    }
    #[inline(always)]
    fn len(self) -> usize {
        self.len()
    }
    #[inline(always)]
    fn one(self, at: usize, _: usize) -> f32 {
        from_bf16(self[at])
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, at: usize, _: S::F) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load_bf16(self.as_ptr().add(at)) }
    }
}

impl Kept for (&[i8], &[f32]) {
    const LINE: usize = 64;
    #[inline(always)]
    fn place(self, at: usize) -> *const f32 {
        self.0.as_ptr().wrapping_add(at).cast()
    }
    #[inline(always)]
    fn len(self) -> usize {
        self.0.len()
    }
    #[inline(always)]
    fn scale(self, group: usize) -> f32 {
        self.1[group]
    }
    #[inline(always)]
    fn one(self, at: usize, group: usize) -> f32 {
        from_int8(self.0[at], self.1[group])
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, at: usize, scale: S::F) -> S::F {
        // SAFETY: the caller's promise.
        s.mul(unsafe { s.load_i8(self.0.as_ptr().add(at)) }, scale)
    }
}
