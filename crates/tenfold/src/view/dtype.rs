//! Element types and their stored numbers.

/// Element type of a tensor. The discriminant is the number stored in a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
#[allow(missing_docs)] // the names say it all
pub enum Dtype {
    Bool = 0,
    U8 = 1,
    I8 = 2,
    U16 = 3,
    I16 = 4,
    U32 = 5,
    I32 = 6,
    U64 = 7,
    I64 = 8,
    F8E4M3 = 16,
    F8E5M2 = 17,
    F16 = 18,
    Bf16 = 19,
    F32 = 20,
    F64 = 21,
}

impl Dtype {
    /// Every dtype, in the order of the stored numbers.
    pub const ALL: [Dtype; 15] = [
        Dtype::Bool,
        Dtype::U8,
        Dtype::I8,
        Dtype::U16,
        Dtype::I16,
        Dtype::U32,
        Dtype::I32,
        Dtype::U64,
        Dtype::I64,
        Dtype::F8E4M3,
        Dtype::F8E5M2,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::F32,
        Dtype::F64,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bool | Dtype::U8 | Dtype::I8 | Dtype::F8E4M3 | Dtype::F8E5M2 => 1,
            Dtype::U16 | Dtype::I16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::U32 | Dtype::I32 | Dtype::F32 => 4,
            Dtype::U64 | Dtype::I64 | Dtype::F64 => 8,
        }
    }

    /// Whether lossy goals apply.
    pub const fn is_float(self) -> bool {
        self as u8 >= Dtype::F8E4M3 as u8
    }

    /// The number stored in a blob.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The dtype of a stored number.
    pub fn from_id(id: u8) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|d| d.id() == id)
    }

    /// Name for people, lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::U8 => "u8",
            Dtype::I8 => "i8",
            Dtype::U16 => "u16",
            Dtype::I16 => "i16",
            Dtype::U32 => "u32",
            Dtype::I32 => "i32",
            Dtype::U64 => "u64",
            Dtype::I64 => "i64",
            Dtype::F8E4M3 => "f8_e4m3",
            Dtype::F8E5M2 => "f8_e5m2",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
