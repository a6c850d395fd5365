"""Element types, and what is special about their elements."""

import sys

# id: name, bytes, exponent bits of a float, largest finite number
DTYPES = {
    0: ("bool", 1, 0, 0.0), 1: ("u8", 1, 0, 0.0), 2: ("i8", 1, 0, 0.0), 3: ("u16", 2, 0, 0.0),
    4: ("i16", 2, 0, 0.0), 5: ("u32", 4, 0, 0.0), 6: ("i32", 4, 0, 0.0), 7: ("u64", 8, 0, 0.0),
    8: ("i64", 8, 0, 0.0), 16: ("f8_e4m3", 1, 4, 448.0), 17: ("f8_e5m2", 1, 5, 57344.0),
    18: ("f16", 2, 5, 65504.0), 19: ("bf16", 2, 8, float.fromhex("0x1.FEp127")),
    20: ("f32", 4, 8, float.fromhex("0x1.FFFFFEp127")), 21: ("f64", 8, 11, sys.float_info.max),
}


def kind_of(name, bits):
    """What is special about an element, if anything."""
    size, exponent_bits, _ = next(d[1:] for d in DTYPES.values() if d[0] == name)
    mantissa = 8 * size - 1 - exponent_bits
    magnitude = bits & ((1 << 8 * size - 1) - 1)
    top = ((1 << exponent_bits) - 1) << mantissa
    infinity = magnitude + 1 if name == "f8_e4m3" else top
    nan = magnitude == 0x7F if name == "f8_e4m3" else magnitude > top
    if nan:
        return "NaN"
    if magnitude == infinity:
        return "infinity"
    if magnitude == 0:
        return "negative zero" if bits else None
    if magnitude < 1 << mantissa:
        return "denormal"
    return "largest" if magnitude == (0x7E if name == "f8_e4m3" else top - 1) else None
