//! The vector interface every kernel is written over, and the choice of instruction set.
//!
//! A kernel is one `#[inline(always)] fn kernel<S: Simd>(s: S, ..)`. [`dispatch!`] compiles it once
//! for each instruction set and picks one at run time; nothing needs `target-cpu`. An [`Isa`] can
//! only be had for what the processor really has, and so can the tokens, of which each file here has one.
//!
//! Whatever a hot loop calls must be inlined into it, or it loses the instruction set: functions
//! say `#[inline(always)]`, and closures are small and have one caller.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod math;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use portable::Portable;

/// A vector of `LANES` f32 and one of `LANES` u32, with the few operations the kernels need.
///
/// `load`/`store` touch exactly the first `LANES` elements of a slice and panic when there are
/// fewer; the `_part` forms touch all of a slice shorter than that (absent lanes read as zero).
pub(crate) trait Simd: Copy {
    /// Which instruction set this is; a token of it proves that the processor has it.
    const LEVEL: Level;
    /// Elements in a vector.
    const LANES: usize;
    /// Rows and vectors of the tile of accumulators that the registers hold.
    const TILE: (usize, usize);
    type F: Copy;
    type U: Copy;

    fn splat(self, x: f32) -> Self::F;
    fn load(self, p: &[f32]) -> Self::F;
    fn load_part(self, p: &[f32]) -> Self::F;
    fn store(self, p: &mut [f32], x: Self::F);
    fn store_part(self, p: &mut [f32], x: Self::F);
    /// # Safety
    /// `p` is valid for reading `LANES` floats.
    unsafe fn load_ptr(self, p: *const f32) -> Self::F;
    /// The values of as many bf16.
    /// # Safety
    /// `p` is valid for reading `LANES` of them.
    unsafe fn load_bf16(self, p: *const u16) -> Self::F;
    /// The values of as many integers.
    /// # Safety
    /// `p` is valid for reading `LANES` of them.
    unsafe fn load_i8(self, p: *const i8) -> Self::F;
    /// # Safety
    /// `p` is valid for writing `LANES` floats.
    unsafe fn store_ptr(self, p: *mut f32, x: Self::F);
    /// `to[c * to_stride + r] = from[r * from_stride + c]` for r, c below `LANES`.
    /// # Safety
    /// Those places are valid for writing and reading.
    unsafe fn transpose(self, to: *mut f32, to_stride: usize, from: *const f32, from_stride: usize);
    /// Asks for the cache line of `p`, which may be any address.
    fn prefetch(self, p: *const f32);

    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger; the second operand where either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// The smaller; the second operand where either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// `2^n` for integral `n` in -126..=127.
    fn exp2_int(self, n: Self::F) -> Self::F;
    /// `a < 0 ? x : y`, lane by lane.
    fn select_negative(self, a: Self::F, x: Self::F, y: Self::F) -> Self::F;
    /// The nearest bf16 of each lane, as [`to_bf16`](crate::narrow::to_bf16).
    fn round_bf16(self, a: Self::F) -> Self::F;
    /// Two bf16 to a lane, in the bits of an f32: the nearest to `first` in the high half, the
    /// nearest to `second` in the low. This and the next two only where
    /// [`Level::multiplies_pairs`].
    fn pair(self, first: Self::F, second: Self::F) -> Self::F {
        _ = (first, second);
        unreachable!("{NO_PAIRS}")
    }
    /// The same of neighbours: of `2 LANES` numbers, `a` and then `b`, the first and the second,
    /// the third and the fourth, ...
    fn pair_neighbours(self, a: Self::F, b: Self::F) -> Self::F {
        _ = (a, b);
        unreachable!("{NO_PAIRS}")
    }
    /// `(c + a's first * b's first) + a's second * b's second`, each rounded as by
    /// [`mul_add`](Self::mul_add).
    fn dot_pairs(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        _ = (a, b, c);
        unreachable!("{NO_PAIRS}")
    }
    /// The sum of all lanes, by halves.
    fn sum(self, a: Self::F) -> f32;
    /// The largest lane.
    fn largest(self, a: Self::F) -> f32;

    fn splat_u(self, x: u32) -> Self::U;
    /// `x, x + 1, x + 2, ..`
    fn count_from(self, x: u32) -> Self::U;
    fn xor(self, a: Self::U, b: Self::U) -> Self::U;
    /// High and low words of the 64-bit product.
    fn mul_wide(self, a: Self::U, b: Self::U) -> (Self::U, Self::U);
    /// The high 16 bits of each word.
    fn high_half(self, a: Self::U) -> Self::U;
    /// The low 16 bits of each word.
    fn low_half(self, a: Self::U) -> Self::U;
    /// `a < b ? 0 : x` for words below 2^31.
    fn zero_where_less(self, a: Self::U, b: Self::U, x: Self::F) -> Self::F;
}

/// The most lanes that an instruction set has.
pub(crate) const MOST_LANES: usize = 16;

/// An instruction set that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(pub(crate) Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
}

const NO_PAIRS: &str = "this instruction set multiplies rounded f32";

impl Level {
    /// Whether bf16 are multiplied two by two, and not as f32: where that is an instruction, and in
    /// the portable set, so that every machine tests it.
    pub(crate) const fn multiplies_pairs(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16 => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => false,
        }
    }
}

impl Isa {
    /// Every instruction set there is a version for, the fastest last.
    pub const NAMES: [&str; 4] = ["portable", "avx2", "avx512", "avx512bf16"];

    /// Every instruction set available here, the fastest last.
    pub fn available() -> Vec<Isa> {
        #[allow(unused_mut, reason = "grows only where the architecture has more than one")]
        let mut isas = vec![Isa(Level::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            let bf16 = avx512 && is_x86_feature_detected!("avx512bf16");
            let found = [(avx2, Level::Avx2), (avx512, Level::Avx512), (bf16, Level::Avx512Bf16)];
            isas.extend(found.into_iter().filter(|(has, _)| *has).map(|(_, level)| Isa(level)));
        }
        isas
    }

    /// The fastest one here.
    pub fn best() -> Isa {
        *Self::available().last().expect("the portable set is always there")
    }

    /// The one called `name`, if this processor has it.
    pub fn named(name: &str) -> Option<Isa> {
        Self::available().into_iter().find(|isa| isa.name() == name)
    }

    /// Whether this processor multiplies bf16 itself, and not only f32 made of it.
    pub fn multiplies_bf16(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.0 == Level::Avx512Bf16;
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// One of [`NAMES`](Self::NAMES).
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16 => "avx512bf16",
        }
    }
}

/// Runs `kernel(token, args..)` compiled for the instruction set `isa`.
macro_rules! dispatch {
    ($isa:expr, $kernel:path, $($arg:ident: $ty:ty),+ $(,)?) => {{
        use $crate::simd::Level;
        match $isa.0 {
            Level::Portable => $kernel($crate::simd::Portable, $($arg),+),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => {
                #[target_feature(enable = "avx2,fma")]
                fn avx2(s: $crate::simd::Avx2, $($arg: $ty),+) {
                    $kernel(s, $($arg),+)
                }
                // SAFETY: an `Isa` of this level exists only where both features were detected.
                unsafe { avx2($crate::simd::Avx2::new(), $($arg),+) }
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512(s: $crate::simd::Avx512<false>, $($arg: $ty),+) {
                    $kernel(s, $($arg),+)
                }
                // SAFETY: an `Isa` of this level exists only where all of them were detected.
                unsafe { avx512($crate::simd::Avx512::new(), $($arg),+) }
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16 => {
                #[target_feature(
                    enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"
                )]
                fn avx512_bf16(s: $crate::simd::Avx512<true>, $($arg: $ty),+) {
                    $kernel(s, $($arg),+)
                }
                // SAFETY: an `Isa` of this level exists only where all of them were detected.
                unsafe { avx512_bf16($crate::simd::Avx512::new(), $($arg),+) }
            }
        }
    }};
}
pub(crate) use dispatch;
