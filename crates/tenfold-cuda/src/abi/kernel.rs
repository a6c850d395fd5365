//! Kernels by name, with the type of their arguments.

use std::marker::PhantomData;

use tenfold::Dtype;

/// A kernel that takes an `A`. `kernels!` makes these; nothing else should.
pub(crate) struct Kernel<A> {
    pub(crate) name: &'static str,
    args: PhantomData<fn(A)>,
}

impl<A> Kernel<A> {
    pub(super) const fn new([name]: [&'static str; 1]) -> Kernel<A> {
        Kernel { name, args: PhantomData }
    }
}

impl<A> Clone for Kernel<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Kernel<A> {}

/// Families of kernels: one for each thing that a kernel is compiled for.
macro_rules! families {
    ($($(#[doc = $doc:literal])* $name:ident[$count:literal]($key:ident: $type:ty) $pick:expr;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name<A>([Kernel<A>; $count]);

        impl<A> $name<A> {
            pub(super) const fn new(names: [&'static str; $count]) -> Self {
                let mut all = [Kernel::new([names[0]]); $count];
                let mut i = 1;
                while i < $count {
                    all[i] = Kernel::new([names[i]]);
                    i += 1;
                }
                $name(all)
            }

            /// The kernel for this one.
            pub(crate) fn select(self, $key: $type) -> Kernel<A> {
                self.0[$pick]
            }
        }
    )*};
}

families! {
    /// By bytes of an element.
    BySize[4](size: usize) size.ilog2() as usize & 3;
    /// By the dtype of floats.
    ByFloat[6](dtype: Dtype) match dtype {
        Dtype::F8E4M3 => 0,
        Dtype::F8E5M2 => 1,
        Dtype::F16 => 2,
        Dtype::Bf16 => 3,
        Dtype::F32 => 4,
        _ => 5,
    };
    /// By the working precision: f64 for tensors of f64, f32 for all others.
    ByReal[2](dtype: Dtype) (dtype == Dtype::F64) as usize;
}

/// Names of a family's kernels, in order.
macro_rules! names {
    (Kernel $name:ident) => { [stringify!($name)] };
    (ByReal $name:ident) => { $crate::abi::names!(@ $name "4" "8") };
    (BySize $name:ident) => { $crate::abi::names!(@ $name "1" "2" "4" "8") };
    (ByFloat $name:ident) => { $crate::abi::names!(@ $name "f8_e4m3" "f8_e5m2" "f16" "bf16" "f32" "f64") };
    (@ $name:ident $($suffix:literal)*) => { [$(concat!(stringify!($name), "_", $suffix)),*] };
}
pub(super) use names;

/// Declares kernels under their own names: a constant each here, a prototype each for C by `prototypes`. Kernels marked
/// `#[grid_constant]` read their arguments in place, without a copy of their own.
macro_rules! kernels {
    ($($(#[$grid:ident])? $family:ident<$args:ident>: $($name:ident),+;)*) => {
        $($(
            #[allow(non_upper_case_globals)] // as the kernels have it
            pub(crate) const $name: $crate::abi::$family<$args> =
                $crate::abi::$family::new($crate::abi::names!($family $name));
        )+)*

        /// Writes the prototypes of these kernels for C.
        pub(super) fn write_prototypes(header: &mut $crate::abi::Header) {
            $(
                let in_place = false $(|| stringify!($grid) == "grid_constant")?;
                $(for name in $crate::abi::names!($family $name) {
                    header.write_kernel::<$args>(name, in_place);
                })+
            )*
        }
    };
}
pub(super) use kernels;
