//! Rust types that kernels know too, and what C calls them.

use std::marker::PhantomData;

use crate::device::DeviceSlice;

/// A type with a name in C.
pub(crate) trait Named {
    /// The name.
    fn name() -> String;
}

/// A type whose values go to kernels as they are.
pub(crate) trait CType: Named + Copy {
    /// All bits zero.
    const ZERO: Self;

    /// The declaration of fields.
    fn declare(fields: &[String]) -> String {
        format!("{} {}", Self::name(), fields.join(", "))
    }
}

macro_rules! numbers {
    ($($type:ident $name:literal $zero:literal),*) => {$(
        impl Named for $type {
            fn name() -> String {
                $name.into()
            }
        }
        impl CType for $type {
            const ZERO: Self = $zero;
        }
    )*};
}

numbers!(u8 "u8" 0, u16 "u16" 0, u32 "u32" 0, u64 "u64" 0, i32 "i32" 0, f32 "float" 0.0, f64 "double" 0.0);

impl<T: CType, const N: usize> Named for [T; N] {
    fn name() -> String {
        T::name()
    }
}

impl<T: CType, const N: usize> CType for [T; N] {
    const ZERO: Self = [T::ZERO; N];

    fn declare(fields: &[String]) -> String {
        T::declare(&fields.iter().map(|field| format!("{field}[{N}]")).collect::<Vec<_>>())
    }
}

/// What a kernel only reads.
#[derive(Clone, Copy)]
pub(crate) struct Const<T>(PhantomData<T>);

impl<T: Named> Named for Const<T> {
    fn name() -> String {
        format!("const {}", T::name())
    }
}

/// Types that C or the kernels define: what they are to the host, and their names.
macro_rules! named {
    ($($(#[doc = $doc:literal])* $type:ident($of:ty) $name:literal),*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $type(#[allow(dead_code)] $of);

        impl Named for $type {
            fn name() -> String {
                $name.into()
            }
        }
    )*};
}

named! {
    /// C's `void`.
    Void(()) "void",
    /// CUDA's pair of numbers.
    Uint2([u32; 2]) "uint2",
    /// The state of a search for a plan, which the host does not look into.
    Rate(()) "Rate"
}

/// Where something lies in the device's memory; zero for nowhere.
#[repr(transparent)]
pub(crate) struct Address<T>(u64, PhantomData<fn() -> T>);

impl<T> Address<T> {
    /// Nowhere.
    pub(crate) const NONE: Address<T> = Address(0, PhantomData);

    /// As a number.
    pub(crate) fn get(self) -> u64 {
        self.0
    }

    /// The same place, for something else.
    pub(crate) fn cast<U>(self) -> Address<U> {
        self.0.into()
    }
}

impl<T> Clone for Address<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Address<T> {}

impl<T> From<u64> for Address<T> {
    fn from(address: u64) -> Self {
        Address(address, PhantomData)
    }
}

impl<T> From<DeviceSlice> for Address<T> {
    fn from(slice: DeviceSlice) -> Self {
        slice.address.into()
    }
}

impl<T: Named> Named for Address<T> {
    fn name() -> String {
        format!("{} *", T::name())
    }
}

impl<T: Named> CType for Address<T> {
    const ZERO: Self = Address::NONE;

    fn declare(fields: &[String]) -> String {
        format!("{}{}", Self::name(), fields.join(", *"))
    }
}

/// Memory of each tensor of a batch: where the first one's lies, and how many bytes further on the next one's.
#[repr(C)]
pub(crate) struct Each<T> {
    pub(crate) first: Address<T>,
    /// Less than 2^32: kernels multiply by it in one instruction.
    pub(crate) apart: u64,
}

impl<T> Each<T> {
    /// For each tensor of a batch.
    pub(crate) fn new(first: u64, apart: usize) -> Each<T> {
        Each { first: first.into(), apart: apart as u64 }
    }

    /// For a tensor that is alone.
    pub(crate) fn one(first: impl Into<Address<T>>) -> Each<T> {
        Each { first: first.into(), apart: 0 }
    }

    /// What lies so many bytes further on.
    pub(crate) fn plus<U>(self, bytes: usize) -> Each<U> {
        Each { first: (self.first.get() + bytes as u64).into(), apart: self.apart }
    }

    /// The same places, for something else.
    pub(crate) fn cast<U>(self) -> Each<U> {
        self.plus(0)
    }
}

impl<T> Clone for Each<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Each<T> {}

impl<T: Named> Named for Each<T> {
    fn name() -> String {
        format!("Each<{}>", T::name())
    }
}

impl<T: Named> CType for Each<T> {
    const ZERO: Self = Each { first: Address::NONE, apart: 0 };
}

/// Structures that host and device share: `repr(C)` here, and written for C by `write_structs`. Fields of one type may stand
/// together, as in C.
macro_rules! shared_structs {
    ($(
        $(#[doc = $doc:literal])*
        $vis:vis struct $name:ident $(: $($derived:ident),+)? {
            $($(#[doc = $about:literal])* $field:ident $(, $more:ident)*: $type:ty;)*
        }
    )*) => {
        $(
            $(#[doc = $doc])*
            #[repr(C)]
            #[derive(Clone, Copy $($(, $derived)+)?)]
            $vis struct $name {
                $($(#[doc = $about])* pub $field: $type, $(pub $more: $type,)*)*
            }

            impl $crate::abi::Named for $name {
                fn name() -> String {
                    stringify!($name).into()
                }
            }

            impl $crate::abi::CType for $name {
                const ZERO: Self = $name {
                    $($field: <$type as $crate::abi::CType>::ZERO, $($more: <$type as $crate::abi::CType>::ZERO,)*)*
                };
            }
        )*

        /// Writes these structures for C.
        pub(super) fn write_structs(header: &mut $crate::abi::Header) {
            $(header.write_struct(
                stringify!($name),
                &[$($doc),*],
                size_of::<$name>(),
                &[$($crate::abi::Fields {
                    about: &[$($about),*],
                    declare: <$type as $crate::abi::CType>::declare,
                    offsets: &[
                        (stringify!($field), std::mem::offset_of!($name, $field)),
                        $((stringify!($more), std::mem::offset_of!($name, $more)),)*
                    ],
                }),*],
            );)*
        }
    };
}
pub(crate) use shared_structs;

/// Numbers that host and device share, written for C by `write_constants`.
macro_rules! shared_constants {
    ($($(#[doc = $doc:literal])* const $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[doc = $doc])* pub(crate) const $name: $type = $value;)*

        /// Writes these numbers for C.
        pub(super) fn write_constants(header: &mut $crate::abi::Header) {
            $(
                let suffix = if stringify!($type) == "f32" { "f" } else { "" };
                header.write_constant(stringify!($name), &[$($doc),*], &format!("{:?}{suffix}", $name));
            )*
        }
    };
}
pub(super) use shared_constants;
