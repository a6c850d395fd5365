"""What all parts of the decoder stand on: refusals, readers of bytes and bits, and floats of every width."""

import math
import struct


class Refused(Exception):
    """A blob that must not be read; `kind` is data, unsupported or limit."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def corrupt(message):
    return Refused("data", message)


def require(condition, message):
    if not condition:
        raise corrupt(message)


def up(n, by=4):
    """The next multiple."""
    return -(-n // by) * by


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        require(n <= len(self.data) - self.at, "a field reaches past the end")
        self.at += n
        return self.data[self.at - n:self.at]

    def u8(self):
        return self.take(1)[0]

    def u32(self):
        return int.from_bytes(self.take(4), "little")

    def varint(self):
        value = 0
        for i in range(10):
            byte = self.u8()
            value |= (byte & 127) << (7 * i)
            if byte < 128:
                require(i == 0 or byte > 0, "a varint is not the shortest")
                require(value < 1 << 64, "a varint is too large")
                return value
        raise corrupt("a varint is too long")


class Bits:
    """A bit string, least significant bit first."""

    def __init__(self, data):
        self.data, self.at, self.length = int.from_bytes(data, "little"), 0, 8 * len(data)

    def take(self, n):
        require(self.at + n <= self.length, "a bit string ends early")
        value = (self.data >> self.at) & ((1 << n) - 1)
        self.at += n
        return value

    def gamma(self):
        n = 0
        while not self.take(1):
            n += 1
            require(n <= 16, "a gamma code is too long")
        return (1 << n) + self.take(n) - 1

    def used_up(self):
        return up(self.at, 8) == self.length


def f32(v):
    """Rounds to f32, infinite where that is too large."""
    try:
        return struct.unpack("<f", struct.pack("<f", v))[0]
    except OverflowError:
        return math.copysign(math.inf, v)


def to_element(name, exponent_bits, y):
    """Bytes of the element nearest to a number within the type's range, ties to even."""
    if name in ("f16", "f32", "f64"):
        return struct.pack({"f16": "<e", "f32": "<f", "f64": "<d"}[name], y)
    width = 2 if name == "bf16" else 1
    mantissa = 8 * width - 1 - exponent_bits
    bias = (1 << exponent_bits - 1) - 1
    # Counted in the smallest step of the number's binade; Python rounds ties to even.
    exponent = max(math.frexp(y)[1] - 1, 1 - bias) if y else 1 - bias
    steps = round(math.ldexp(abs(y), mantissa - exponent))
    code = (exponent + bias - 1 << mantissa) + steps
    sign = math.copysign(1, y) < 0
    return (code | sign << 8 * width - 1).to_bytes(width, "little")
