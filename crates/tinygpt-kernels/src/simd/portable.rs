//! Eight lanes in an array, for any processor: the compiler maps them to what the target has.

use super::{Level, Simd};
use crate::narrow::{from_bf16, to_bf16};

/// The instruction set that needs nothing.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

const N: usize = 8;

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; N] {
    std::array::from_fn(f)
}

#[inline(always)]
fn each_u(f: impl Fn(usize) -> u32) -> [u32; N] {
    std::array::from_fn(f)
}

impl Simd for Portable {
    const LEVEL: Level = Level::Portable;
    const LANES: usize = N;
    const TILE: (usize, usize) = (4, 1);
    type F = [f32; N];
    type U = [u32; N];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; N]
    }
    #[inline(always)]
    fn load(self, p: &[f32]) -> Self::F {
        *p.first_chunk().expect("a whole vector")
    }
    #[inline(always)]
    fn load_part(self, p: &[f32]) -> Self::F {
        each(|i| p.get(i).copied().unwrap_or(0.0))
    }
    #[inline(always)]
    fn store(self, p: &mut [f32], x: Self::F) {
        *p.first_chunk_mut().expect("a whole vector") = x;
    }
    #[inline(always)]
    fn store_part(self, p: &mut [f32], x: Self::F) {
        p.copy_from_slice(&x[..p.len()]);
    }
    #[inline(always)]
    unsafe fn load_ptr(self, p: *const f32) -> Self::F {
        // SAFETY: the caller's promise; arrays of f32 need only the alignment of f32.
        unsafe { p.cast::<[f32; N]>().read() }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        // SAFETY: the caller's promise; arrays of u16 need only the alignment of u16.
        let words = unsafe { p.cast::<[u16; N]>().read() };
        each(|i| from_bf16(words[i]))
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        // SAFETY: the caller's promise.
        let values = unsafe { p.cast::<[i8; N]>().read() };
        each(|i| values[i] as f32)
    }
    #[inline(always)]
    unsafe fn store_ptr(self, p: *mut f32, x: Self::F) {
        // SAFETY: the caller's promise; arrays of f32 need only the alignment of f32.
        unsafe { p.cast::<[f32; N]>().write(x) }
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        to: *mut f32,
        to_stride: usize,
        from: *const f32,
        from_stride: usize,
    ) {
        for r in 0..N {
            for c in 0..N {
                // SAFETY: the caller's promise.
                unsafe { *to.add(c * to_stride + r) = *from.add(r * from_stride + c) };
            }
        }
    }
    #[inline(always)]
    fn prefetch(self, _: *const f32) {}

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // Without a fused instruction `f32::mul_add` is a slow library call.
        if cfg!(target_arch = "aarch64") {
            each(|i| a[i].mul_add(b[i], c[i]))
        } else {
            each(|i| a[i] * b[i] + c[i])
        }
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        each(|i| a[i].sqrt())
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        each(|i| a[i].abs())
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        // Adding and taking away 1.5 * 2^23 leaves the nearest integer of any |a| below 2^22.
        each(|i| (a[i] + 12_582_912.0) - 12_582_912.0)
    }
    #[inline(always)]
    fn exp2_int(self, n: Self::F) -> Self::F {
        each(|i| f32::from_bits(((n[i] as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    fn select_negative(self, a: Self::F, x: Self::F, y: Self::F) -> Self::F {
        each(|i| if a[i].is_sign_negative() { x[i] } else { y[i] })
    }
    #[inline(always)]
    fn round_bf16(self, a: Self::F) -> Self::F {
        each(|i| from_bf16(to_bf16(a[i])))
    }
    #[inline(always)]
    fn pair(self, first: Self::F, second: Self::F) -> Self::F {
        each(|i| f32::from_bits(u32::from(to_bf16(first[i])) << 16 | u32::from(to_bf16(second[i]))))
    }
    #[inline(always)]
    fn pair_neighbours(self, a: Self::F, b: Self::F) -> Self::F {
        let at = |i: usize| if i < N { a[i] } else { b[i - N] };
        self.pair(each(|i| at(2 * i)), each(|i| at(2 * i + 1)))
    }
    #[inline(always)]
    fn dot_pairs(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        let first = |x: [f32; N]| each(|i| f32::from_bits(x[i].to_bits() & 0xFFFF_0000));
        let second = |x: [f32; N]| each(|i| f32::from_bits(x[i].to_bits() << 16));
        let c = self.mul_add(first(a), first(b), c);
        self.mul_add(second(a), second(b), c)
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    fn largest(self, a: Self::F) -> f32 {
        let mut largest = a[0];
        for x in &a[1..] {
            largest = if *x > largest { *x } else { largest };
        }
        largest
    }

    #[inline(always)]
    fn splat_u(self, x: u32) -> Self::U {
        [x; N]
    }
    #[inline(always)]
    fn count_from(self, x: u32) -> Self::U {
        each_u(|i| x.wrapping_add(i as u32))
    }
    #[inline(always)]
    fn xor(self, a: Self::U, b: Self::U) -> Self::U {
        each_u(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    fn mul_wide(self, a: Self::U, b: Self::U) -> (Self::U, Self::U) {
        (
            each_u(|i| ((a[i] as u64 * b[i] as u64) >> 32) as u32),
            each_u(|i| a[i].wrapping_mul(b[i])),
        )
    }
    #[inline(always)]
    fn high_half(self, a: Self::U) -> Self::U {
        each_u(|i| a[i] >> 16)
    }
    #[inline(always)]
    fn low_half(self, a: Self::U) -> Self::U {
        each_u(|i| a[i] & 0xFFFF)
    }
    #[inline(always)]
    fn zero_where_less(self, a: Self::U, b: Self::U, x: Self::F) -> Self::F {
        each(|i| if a[i] < b[i] { 0.0 } else { x[i] })
    }
}
