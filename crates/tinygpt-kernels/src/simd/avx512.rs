//! Sixteen lanes in a 512-bit register: AVX-512 (F, BW, DQ, VL), and where `BF16` with the
//! instructions that round to bf16 and multiply pairs of them.
//!
//! Those treat numbers below 2^-126 as zero; else they give the bits that are computed without them.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one SAFETY for the file: an `Avx512` exists only where all of that was detected, and \
              each pointer comes from a slice whose length was checked or from the caller's promise"
)]

use super::{Level, Simd, avx2};
use std::arch::x86_64::*;
use std::mem::transmute;

/// Proof that the processor has AVX-512, and where `BF16` AVX512_BF16.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const BF16: bool>(());

impl<const BF16: bool> Avx512<BF16> {
    /// # Safety
    /// The processor has AVX2, FMA, AVX-512 F, BW, DQ and VL, and where `BF16` AVX512_BF16.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

const N: usize = 16;

/// A mask of the first `n` lanes, for n < 16.
#[inline(always)]
fn first_lanes(n: usize) -> __mmask16 {
    assert!(n <= N, "{n} of {N} lanes");
    (1u32 << n).wrapping_sub(1) as __mmask16
}

/// Every odd lane.
const ODD: __mmask16 = 0xAAAA;
impl<const BF16: bool> Simd for Avx512<BF16> {
    const LEVEL: Level = if BF16 { Level::Avx512Bf16 } else { Level::Avx512 };
    const LANES: usize = N;
    const TILE: (usize, usize) = (12, 2);
    type F = __m512;
    type U = __m512i;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn load(self, p: &[f32]) -> Self::F {
        assert!(p.len() >= N);
        unsafe { _mm512_loadu_ps(p.as_ptr()) }
    }
    #[inline(always)]
    fn load_part(self, p: &[f32]) -> Self::F {
        unsafe { _mm512_maskz_loadu_ps(first_lanes(p.len()), p.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, p: &mut [f32], x: Self::F) {
        assert!(p.len() >= N);
        unsafe { _mm512_storeu_ps(p.as_mut_ptr(), x) }
    }
    #[inline(always)]
    fn store_part(self, p: &mut [f32], x: Self::F) {
        unsafe { _mm512_mask_storeu_ps(p.as_mut_ptr(), first_lanes(p.len()), x) }
    }
    #[inline(always)]
    unsafe fn load_ptr(self, p: *const f32) -> Self::F {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        unsafe {
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn store_ptr(self, p: *mut f32, x: Self::F) {
        unsafe { _mm512_storeu_ps(p, x) }
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        to: *mut f32,
        to_stride: usize,
        from: *const f32,
        from_stride: usize,
    ) {
        for (down, along) in [(0, 0), (0, 8), (8, 0), (8, 8)] {
            // A quarter, which lands on the other side of the diagonal.
            unsafe {
                let to = to.add(along * to_stride + down);
                avx2::transpose(to, to_stride, from.add(down * from_stride + along), from_stride);
            }
        }
    }
    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        unsafe { _mm512_sqrt_ps(a) }
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn exp2_int(self, n: Self::F) -> Self::F {
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    fn select_negative(self, a: Self::F, x: Self::F, y: Self::F) -> Self::F {
        unsafe { _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(a)), y, x) }
    }
    #[inline(always)]
    fn round_bf16(self, a: Self::F) -> Self::F {
        unsafe {
            let bits = _mm512_castps_si512(a);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
            let (nearest, nan) =
                (_mm512_add_epi32(bits, up), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a));
            let rounded = _mm512_mask_or_epi32(nearest, nan, bits, _mm512_set1_epi32(0x40_0000));
            _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(!0xFFFF)))
        }
    }
    #[inline(always)]
    fn pair(self, first: Self::F, second: Self::F) -> Self::F {
        /// Of the words of `second` and then `first`, one of each in turn.
        static IN_TURN: [u16; 32] = [
            0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27,
            12, 28, 13, 29, 14, 30, 15, 31,
        ];
        assert!(BF16, "{}", super::NO_PAIRS);
        unsafe {
            let words = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(first, second));
            let order = _mm512_loadu_si512(IN_TURN.as_ptr().cast());
            _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, words))
        }
    }
    #[inline(always)]
    fn pair_neighbours(self, a: Self::F, b: Self::F) -> Self::F {
        assert!(BF16, "{}", super::NO_PAIRS);
        unsafe {
            let words = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(b, a));
            _mm512_castsi512_ps(_mm512_rol_epi32::<16>(words))
        }
    }
    #[inline(always)]
    fn dot_pairs(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        assert!(BF16, "{}", super::NO_PAIRS);
        let words = |x| unsafe { transmute::<__m512, __m512bh>(x) };
        // It begins with the high halves.
        unsafe { _mm512_dpbf16_ps(c, words(a), words(b)) }
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        unsafe {
            let x = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        }
    }
    #[inline(always)]
    fn largest(self, a: Self::F) -> f32 {
        unsafe {
            let x = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
        }
    }

    #[inline(always)]
    fn splat_u(self, x: u32) -> Self::U {
        unsafe { _mm512_set1_epi32(x as i32) }
    }
    #[inline(always)]
    fn count_from(self, x: u32) -> Self::U {
        unsafe {
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            _mm512_add_epi32(_mm512_set1_epi32(x as i32), lanes)
        }
    }
    #[inline(always)]
    fn xor(self, a: Self::U, b: Self::U) -> Self::U {
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    fn mul_wide(self, a: Self::U, b: Self::U) -> (Self::U, Self::U) {
        unsafe {
            // `mul_epu32` multiplies the even lanes; the odd ones are shifted down for a second
            // one.
            let even = _mm512_mul_epu32(a, b);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
            let high = _mm512_mask_blend_epi32(ODD, _mm512_srli_epi64::<32>(even), odd);
            let low = _mm512_mask_blend_epi32(ODD, even, _mm512_slli_epi64::<32>(odd));
            (high, low)
        }
    }
    #[inline(always)]
    fn high_half(self, a: Self::U) -> Self::U {
        unsafe { _mm512_srli_epi32::<16>(a) }
    }
    #[inline(always)]
    fn low_half(self, a: Self::U) -> Self::U {
        unsafe { _mm512_and_si512(a, _mm512_set1_epi32(0xFFFF)) }
    }
    #[inline(always)]
    fn zero_where_less(self, a: Self::U, b: Self::U, x: Self::F) -> Self::F {
        unsafe { _mm512_maskz_mov_ps(_mm512_cmpge_epi32_mask(a, b), x) }
    }
}
