//! Eight lanes in a 256-bit register: AVX2 with fused multiply-add.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one SAFETY for the file: an `Avx2` exists only where AVX2 and FMA were detected, and \
              each pointer comes from a slice whose length was checked or from the caller's promise"
)]

use super::{Level, Simd};
use std::arch::x86_64::*;

/// Proof that the processor has AVX2 and FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor has AVX2 and FMA.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

const N: usize = 8;

/// A mask of the first `n` lanes, for n < 8.
#[inline(always)]
fn first_lanes(n: usize) -> __m256i {
    static BITS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(n <= N, "{n} of {N} lanes");
    unsafe { _mm256_loadu_si256(BITS.as_ptr().add(N - n).cast()) }
}

/// Eight rows of eight.
///
/// # Safety
/// The processor has AVX2; the places are valid, as for [`Simd::transpose`].
#[inline(always)]
pub(super) unsafe fn transpose(
    to: *mut f32,
    to_stride: usize,
    from: *const f32,
    from_stride: usize,
) {
    unsafe {
        // Pairs of rows, then fours, then the two halves of the registers.
        let row = |r: usize| _mm256_loadu_ps(from.add(r * from_stride));
        let mut four = [[_mm256_setzero_ps(); 4]; 2];
        for (half, four) in four.iter_mut().enumerate() {
            let r = 4 * half;
            let (low, high) =
                (_mm256_unpacklo_ps(row(r), row(r + 1)), _mm256_unpackhi_ps(row(r), row(r + 1)));
            let (low2, high2) = (
                _mm256_unpacklo_ps(row(r + 2), row(r + 3)),
                _mm256_unpackhi_ps(row(r + 2), row(r + 3)),
            );
            *four = [
                _mm256_shuffle_ps::<0x44>(low, low2),
                _mm256_shuffle_ps::<0xEE>(low, low2),
                _mm256_shuffle_ps::<0x44>(high, high2),
                _mm256_shuffle_ps::<0xEE>(high, high2),
            ];
        }
        let [top, bottom] = four;
        for c in 0..4 {
            let (left, right) = (
                _mm256_permute2f128_ps::<0x20>(top[c], bottom[c]),
                _mm256_permute2f128_ps::<0x31>(top[c], bottom[c]),
            );
            _mm256_storeu_ps(to.add(c * to_stride), left);
            _mm256_storeu_ps(to.add((c + 4) * to_stride), right);
        }
    }
}

impl Simd for Avx2 {
    const LEVEL: Level = Level::Avx2;
    const LANES: usize = N;
    const TILE: (usize, usize) = (6, 2);
    type F = __m256;
    type U = __m256i;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    fn load(self, p: &[f32]) -> Self::F {
        assert!(p.len() >= N);
        unsafe { _mm256_loadu_ps(p.as_ptr()) }
    }
    #[inline(always)]
    fn load_part(self, p: &[f32]) -> Self::F {
        unsafe { _mm256_maskload_ps(p.as_ptr(), first_lanes(p.len())) }
    }
    #[inline(always)]
    fn store(self, p: &mut [f32], x: Self::F) {
        assert!(p.len() >= N);
        unsafe { _mm256_storeu_ps(p.as_mut_ptr(), x) }
    }
    #[inline(always)]
    fn store_part(self, p: &mut [f32], x: Self::F) {
        unsafe { _mm256_maskstore_ps(p.as_mut_ptr(), first_lanes(p.len()), x) }
    }
    #[inline(always)]
    unsafe fn load_ptr(self, p: *const f32) -> Self::F {
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        unsafe {
            let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn store_ptr(self, p: *mut f32, x: Self::F) {
        unsafe { _mm256_storeu_ps(p, x) }
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        to: *mut f32,
        to_stride: usize,
        from: *const f32,
        from_stride: usize,
    ) {
        unsafe { transpose(to, to_stride, from, from_stride) }
    }
    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        unsafe { _mm256_sqrt_ps(a) }
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn exp2_int(self, n: Self::F) -> Self::F {
        unsafe {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    fn select_negative(self, a: Self::F, x: Self::F, y: Self::F) -> Self::F {
        unsafe { _mm256_blendv_ps(y, x, a) }
    }
    #[inline(always)]
    fn round_bf16(self, a: Self::F) -> Self::F {
        unsafe {
            let bits = _mm256_castps_si256(a);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
            let nearest = _mm256_castsi256_ps(_mm256_add_epi32(bits, up));
            let quiet = _mm256_or_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x40_0000)));
            let rounded = _mm256_blendv_ps(nearest, quiet, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
            _mm256_and_ps(rounded, _mm256_castsi256_ps(_mm256_set1_epi32(!0xFFFF)))
        }
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        unsafe {
            let x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        }
    }
    #[inline(always)]
    fn largest(self, a: Self::F) -> f32 {
        unsafe {
            let x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
        }
    }

    #[inline(always)]
    fn splat_u(self, x: u32) -> Self::U {
        unsafe { _mm256_set1_epi32(x as i32) }
    }
    #[inline(always)]
    fn count_from(self, x: u32) -> Self::U {
        unsafe {
            _mm256_add_epi32(_mm256_set1_epi32(x as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
        }
    }
    #[inline(always)]
    fn xor(self, a: Self::U, b: Self::U) -> Self::U {
        unsafe { _mm256_xor_si256(a, b) }
    }
    #[inline(always)]
    fn mul_wide(self, a: Self::U, b: Self::U) -> (Self::U, Self::U) {
        unsafe {
            // `mul_epu32` multiplies the even lanes; the odd ones are shifted down for a second
            // one.
            let even = _mm256_mul_epu32(a, b);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
            let high = _mm256_blend_epi32::<0b1010_1010>(_mm256_srli_epi64::<32>(even), odd);
            let low = _mm256_blend_epi32::<0b1010_1010>(even, _mm256_slli_epi64::<32>(odd));
            (high, low)
        }
    }
    #[inline(always)]
    fn high_half(self, a: Self::U) -> Self::U {
        unsafe { _mm256_srli_epi32::<16>(a) }
    }
    #[inline(always)]
    fn low_half(self, a: Self::U) -> Self::U {
        unsafe { _mm256_and_si256(a, _mm256_set1_epi32(0xFFFF)) }
    }
    #[inline(always)]
    fn zero_where_less(self, a: Self::U, b: Self::U, x: Self::F) -> Self::F {
        unsafe { _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a)), x) }
    }
}
