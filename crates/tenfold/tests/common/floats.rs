//! Elements to real numbers and back, written from the definitions of the types.

use tenfold::Dtype;

/// Bytes of quiet and signalling NaNs with payloads, infinities where the type has them, negative zero.
pub fn specials(dtype: Dtype) -> Vec<Vec<u8>> {
    match dtype {
        Dtype::F64 => [0x7ff8_0000_dead_beefu64, 0xfff0_0000_0000_0001, 0x7ff0 << 48, 0xfff0 << 48, 1 << 63]
            .map(|v| v.to_le_bytes().to_vec())
            .to_vec(),
        Dtype::F32 => [0x7fc1_2345u32, 0xff80_0001, 0x7f80_0000, 0xff80_0000, 1 << 31]
            .map(|v| v.to_le_bytes().to_vec())
            .to_vec(),
        Dtype::F16 => [0x7e12u16, 0xfc01, 0x7c00, 0xfc00, 0x8000].map(|v| v.to_le_bytes().to_vec()).to_vec(),
        Dtype::Bf16 => [0x7fc3u16, 0xff81, 0x7f80, 0xff80, 0x8000].map(|v| v.to_le_bytes().to_vec()).to_vec(),
        Dtype::F8E4M3 => [0x7fu8, 0xff, 0x80].map(|v| vec![v]).to_vec(),
        Dtype::F8E5M2 => [0x7du8, 0xff, 0x7c, 0xfc, 0x80].map(|v| vec![v]).to_vec(),
        _ => vec![vec![0xff; dtype.size()]],
    }
}

/// Value of an 8-bit float, written from its definition.
fn f8(dtype: Dtype, b: u8) -> f64 {
    let (man_bits, bias) = if dtype == Dtype::F8E4M3 { (3, 7) } else { (2, 15) };
    let sign = if b >= 0x80 { -1.0 } else { 1.0 };
    let (exp, man) = ((b & 0x7f) >> man_bits, (b & ((1 << man_bits) - 1)) as f64);
    match dtype {
        Dtype::F8E4M3 if b & 0x7f == 0x7f => return f64::NAN,
        Dtype::F8E5M2 if exp == 31 && man > 0.0 => return f64::NAN,
        Dtype::F8E5M2 if exp == 31 => return sign * f64::INFINITY,
        _ => {}
    }
    let unit = 1.0 / (1 << man_bits) as f64;
    if exp == 0 {
        sign * man * unit * 2f64.powi(1 - bias)
    } else {
        sign * (1.0 + man * unit) * 2f64.powi(exp as i32 - bias)
    }
}

fn to_f8(dtype: Dtype, v: f64) -> u8 {
    // Finite magnitudes grow with the byte: the nearest is a binary search away.
    let top = if dtype == Dtype::F8E4M3 { 0x7e } else { 0x7b };
    let (mut low, mut high) = (0u8, top);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if f8(dtype, middle) <= v.abs() { low = middle } else { high = middle }
    }
    let near = if v.abs() - f8(dtype, low) <= f8(dtype, high) - v.abs() { low } else { high };
    near | if v.is_sign_negative() { 0x80 } else { 0 }
}

/// Bytes of real numbers, rounded to a dtype; integers wrap.
pub fn to_bytes(dtype: Dtype, reals: &[f64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(reals.len() * dtype.size());
    for &v in reals {
        match dtype {
            Dtype::F64 => out.extend_from_slice(&v.to_le_bytes()),
            Dtype::F32 => out.extend_from_slice(&(v as f32).to_le_bytes()),
            Dtype::F16 => out.extend_from_slice(&half::f16::from_f64(v).to_le_bytes()),
            Dtype::Bf16 => out.extend_from_slice(&half::bf16::from_f64(v).to_le_bytes()),
            Dtype::F8E4M3 | Dtype::F8E5M2 => out.push(to_f8(dtype, v)),
            Dtype::Bool => out.push((v > 0.0) as u8),
            _ => out.extend_from_slice(&((v * 30.0) as i64).to_le_bytes()[..dtype.size()]),
        }
    }
    out
}

/// Real numbers of a float dtype's bytes.
pub fn to_reals(dtype: Dtype, data: &[u8]) -> Vec<f64> {
    let element = |b: &[u8]| match dtype {
        Dtype::F64 => f64::from_le_bytes(b.try_into().unwrap()),
        Dtype::F32 => f32::from_le_bytes(b.try_into().unwrap()) as f64,
        Dtype::F16 => half::f16::from_le_bytes(b.try_into().unwrap()).to_f64(),
        Dtype::Bf16 => half::bf16::from_le_bytes(b.try_into().unwrap()).to_f64(),
        _ => f8(dtype, b[0]),
    };
    data.chunks_exact(dtype.size()).map(element).collect()
}
