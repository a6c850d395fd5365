//! Which instruction sets this machine has, and how one source becomes several compiled versions.
//!
//! Hot loops are written once over fixed-size arrays; [`multiversion!`] compiles the loop for the
//! baseline, for AVX2 and for AVX-512. Floating-point contraction is never enabled, so all versions
//! give the same bits. Loops that need real intrinsics (entropy coding) have hand-written twins.
#![allow(unsafe_code)]

pub(crate) mod wide;

/// Instruction set of a code path, from plainest to widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Isa {
    /// Portable Rust: the oracle of the others.
    Plain,
    /// AVX2, with the shifts of BMI2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ, VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The widest instruction set that this machine runs.
    pub(crate) fn detect() -> Isa {
        static WIDEST: std::sync::OnceLock<Isa> = std::sync::OnceLock::new();
        *WIDEST.get_or_init(|| *Isa::available().last().unwrap_or(&Isa::Plain))
    }

    /// Every instruction set that this machine runs, plainest first.
    pub(crate) fn available() -> Vec<Isa> {
        #[allow(unused_mut)]
        let mut sets = vec![Isa::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi2")
            {
                sets.push(Isa::Avx2);
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                {
                    sets.push(Isa::Avx512);
                }
            }
        }
        sets
    }
}

/// Compiles an `#[inline(always)]` function for each [`Isa`] and defines a dispatcher whose first
/// argument is the instruction set.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident / $inner:ident $(<$(const $g:ident: $gt:ty),*>)? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, unsafe_code)]
        $vis fn $name $(<$(const $g: $gt),*>)? (isa: $crate::simd::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi2")]
            fn avx2 $(<$(const $g: $gt),*>)? ($($arg: $ty),*) $(-> $ret)? { $inner $(::<$($g),*>)? ($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
            fn avx512 $(<$(const $g: $gt),*>)? ($($arg: $ty),*) $(-> $ret)? { $inner $(::<$($g),*>)? ($($arg),*) }
            match isa {
                $crate::simd::Isa::Plain => $inner $(::<$($g),*>)? ($($arg),*),
                // SAFETY: an `Isa` other than `Plain` only comes from `Isa::available`, which has
                // checked the features of that set on this machine.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Isa::Avx2 => unsafe { avx2 $(::<$($g),*>)? ($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Isa::Avx512 => unsafe { avx512 $(::<$($g),*>)? ($($arg),*) },
            }
        }
    };
}
pub(crate) use multiversion;

/// Like [`multiversion!`] for a function that is generic over [`wide::Wide`].
macro_rules! widen {
    ($(#[$meta:meta])* $vis:vis fn $name:ident / $inner:ident $(<$(const $g:ident: $gt:ty),*>)? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, unsafe_code)]
        $vis fn $name $(<$(const $g: $gt),*>)? (isa: $crate::simd::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi2")]
            fn avx2 $(<$(const $g: $gt),*>)? ($($arg: $ty),*) $(-> $ret)? {
                $inner::<$crate::simd::wide::Avx2 $($(, $g)*)?>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi2")]
            fn avx512 $(<$(const $g: $gt),*>)? ($($arg: $ty),*) $(-> $ret)? {
                $inner::<$crate::simd::wide::Avx512 $($(, $g)*)?>($($arg),*)
            }
            match isa {
                $crate::simd::Isa::Plain => $inner::<$crate::simd::wide::Plain $($(, $g)*)?>($($arg),*),
                // SAFETY: an `Isa` other than `Plain` only comes from `Isa::available`, which has
                // checked the features of that set on this machine.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Isa::Avx2 => unsafe { avx2 $(::<$($g),*>)? ($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Isa::Avx512 => unsafe { avx512 $(::<$($g),*>)? ($($arg),*) },
            }
        }
    };
}
pub(crate) use widen;

/// Asks for the cache line of a byte that is needed soon, into the second cache: the first has fewer places for lines on their way. Any place
/// will do; beyond the data it asks for a line that nobody needs.
#[inline(always)]
pub(crate) fn prefetch(data: &[u8], at: usize) {
    // SAFETY: a prefetch is a hint: it changes nothing, and faults on no address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(data.as_ptr().wrapping_add(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, at);
}
