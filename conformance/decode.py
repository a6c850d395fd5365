#!/usr/bin/env python3
"""A second decoder of tenfold blobs, written from docs/format.md alone.

    decode.py BLOB OUT           decode one blob to raw little-endian elements
    decode.py DELTA BASE OUT     apply a delta to the elements of its base
    decode.py --check            decode every golden vector and refuse every golden error

Plain Python, nothing to install. It is meant to be read beside the page, not to be fast.
"""

import json
import math
import pathlib
import struct
import sys
import zlib

import delta as deltas
from basics import Reader, Refused, corrupt, f32, require, to_element, up
from dtypes import DTYPES, kind_of
from tiles import CODECS
from transforms import Transforms

MAX_BYTES = 64 << 30
MAX_DIMS = 16


# --- Blob -----------------------------------------------------------------------------------------

def head(blob, layer=False):
    """The number of the codec and of the dtype, the shape, where the header ends, and a reader behind the shape."""
    if not blob or blob[:4] != b"TNFD"[:len(blob)]:
        raise corrupt("not a blob: magic")
    require(len(blob) >= 12, "truncated")
    version, codec, dtype, dims = blob[4:8]
    if version != 1:
        raise Refused("unsupported", f"version {version}")
    header_len = int.from_bytes(blob[8:12], "little")
    require(header_len >= 16, "header length")
    require(header_len <= len(blob), "truncated")
    check = int.from_bytes(blob[header_len - 4:header_len], "little")
    require(zlib.crc32(blob[:header_len - 4]) == check, "header checksum")
    require(not layer or codec in (1, 2, 5), "codec of a layer")
    if dtype not in DTYPES:
        raise Refused("unsupported", f"dtype {dtype}")
    if dims > MAX_DIMS:
        raise Refused("limit", "dimensions")
    r = Reader(blob[:header_len - 4])
    r.at = 12
    shape = [r.varint() for _ in range(dims)]
    size = DTYPES[dtype][1]
    n = math.prod(shape)
    require(n * size < 1 << 63, "size overflows")
    if n * size > MAX_BYTES:
        raise Refused("limit", "bytes")
    return codec, dtype, shape, header_len, r


def decode(blob, layer=False):
    """Returns dtype name, shape, elements, features; of a layer if it is one."""
    codec, dtype, shape, header_len, r = head(blob, layer)
    n, dims = math.prod(shape), len(shape)
    if codec == 6:
        raise Refused("caller", "a delta needs its base")
    transforms = Transforms(r, codec, DTYPES[dtype], n, shape)
    if codec == 4:
        return layers(blob, r, header_len, dtype, shape)
    if codec not in CODECS:
        raise Refused("unsupported", f"codec {codec}")
    # Behind transforms, levels are those of a tensor of working values.
    n, coded = transforms.rows * transforms.cols, shape[:-1] + [transforms.cols] if shape else shape
    known = transforms.scales if transforms.ends_in_basis else None
    name, reader = CODECS[codec]
    params = reader(r, DTYPES[transforms.worked or dtype], n, coded, known)
    params.worked = transforms.worked
    tiles = -(-n // params.tile_values)
    out = []
    for i, tile in enumerate(read_tiles(blob, r, header_len, tiles)):
        start = i * params.tile_values
        out.append(params.tile(Reader(tile), start, min(params.tile_values, n - start)))
    seen = params.seen | transforms.seen | {f"{name} {DTYPES[dtype][0]}", f"{name} dims {dims}", f"{name} lanes {params.lanes}"}
    seen.add(f"{name} several tiles" if tiles > 1 else f"{name} one tile")
    if n == 0:
        seen.add(f"{name} empty")
    if tiles > 1 and n % params.tile_values:
        seen.add(f"{name} short last tile")
    if tiles and n - (tiles - 1) * params.tile_values < params.lanes:
        seen.add(f"{name} fewer values than lanes")
    data = transforms.undo(b"".join(out))
    if transforms.worked and "exact finite" in seen:
        seen.add("exact working value")
    return DTYPES[dtype][0], shape, data, seen | kinds_of_elements(name, dtype, data)


def apply(blob, base):
    """Applies a delta to the elements of its base; returns dtype name, shape, elements, features."""
    codec, dtype, shape, header_len, r = head(blob)
    if codec != 6:
        raise Refused("caller", "a tensor, not a delta")
    if r.u8():
        raise Refused("unsupported", "transforms before a delta")
    params, n = deltas.Delta(r, dtype, shape), math.prod(shape)
    if len(base) != n * params.size:
        raise Refused("caller", "a base of another size")
    tiles = -(-n // params.tile_values) if params.tile_values else 0
    parts = [(Reader(tile), i * params.tile_values) for i, tile in enumerate(read_tiles(blob, r, header_len, tiles))]
    params.seen.add("delta several tiles" if tiles > 1 else "delta one tile" if tiles else "delta no tiles")
    return DTYPES[dtype][0], shape, deltas.apply(params, parts, base), params.seen


def read_tiles(blob, r, header_len, tiles):
    """The tiles of a blob, from the directory on."""
    require(not any(r.take(up(r.at) - r.at)), "padding of the header")
    require(len(r.data) - r.at == 8 * tiles, "the directory does not match the tiles")
    directory = [(r.u32(), r.u32()) for _ in range(tiles)]
    need = header_len + sum(length for length, _ in directory)
    require(len(blob) >= need, "truncated")
    require(len(blob) == need, "bytes after the last tile")
    at = header_len
    for length, sum_ in directory:
        tile = blob[at:at + length]
        at += length
        require(zlib.crc32(tile) == sum_, "tile checksum")
        require(length % 4 == 0, "length of a tile")
        yield tile


# --- Layers ---------------------------------------------------------------------------------------

def layers(blob, r, header_len, dtype, shape):
    name, size, exponent, largest = DTYPES[dtype]
    count = r.u8()
    require(exponent, "layers of a dtype that is not a float")
    require(2 <= count <= 8, "number of layers")
    wide = name == "f64"
    seen = {f"layers {name}", f"layers dims {len(shape)}", f"layers {count}"}
    sums = None
    for tile in read_tiles(blob, r, header_len, count):
        if tile[:4] != b"TNFD":
            raise corrupt("a layer is not a blob")
        of, its_shape, data, its = decode(tile, True)
        require(of == ("f64" if wide else "f32"), "dtype of a layer")
        require(its_shape == shape, "shape of a layer")
        seen.add(f"layer of {CODECS[tile[5]][0]}")
        if its & {"weights of columns", "weights of rows", "means", "delta", "kept elements"}:
            seen.add("layer with steps")
        width = 8 if wide else 4
        next_ = [data[i:i + width] for i in range(0, len(data), width)]
        sums = next_ if sums is None else [joined(a, b, wide) for a, b in zip(sums, next_)]
    if not sums:
        seen.add("layers empty")
    data = b"".join(narrowed(s, name, size, exponent, largest, wide) for s in sums)
    return name, shape, data, seen | kinds_of_elements("layers", dtype, data)


def number(element, wide):
    return struct.unpack("<d" if wide else "<f", element)[0]


def joined(a, b, wide):
    """The bytes of a sum so far and the next layer."""
    x, y = number(a, wide), number(b, wide)
    if not math.isfinite(x):
        return a
    if not math.isfinite(y):
        return b
    top = sys.float_info.max if wide else DTYPES[20][3]
    # A sum of two f32 in f64 is rounded to f32 as the exact sum would be.
    total = max(-top, min(x + y if wide else f32(x + y), top))
    return struct.pack("<d" if wide else "<f", total)


def narrowed(s, name, size, exponent, largest, wide):
    """The element of a sum."""
    if name in ("f32", "f64"):
        return s
    v = number(s, wide)
    if math.isfinite(v):
        return to_element(name, exponent, max(-largest, min(v, largest)))
    bits = int.from_bytes(s, "little")
    sign = bits >> 31 << 8 * size - 1
    if name == "f8_e4m3":
        return (sign | (0x7F if math.isnan(v) else 0x7E)).to_bytes(1, "little")
    mantissa = 8 * size - 1 - exponent
    kept = (bits & 0x7FFFFF) >> 23 - mantissa
    if math.isnan(v) and not kept:
        kept = 1 << mantissa - 1
    return (sign | (1 << exponent) - 1 << mantissa | kept).to_bytes(size, "little")


def kinds_of_elements(codec, dtype, data):
    name, size, exponent_bits, _ = DTYPES[dtype]
    if not exponent_bits:
        return set()
    elements = {data[i:i + size] for i in range(0, len(data), size)}
    kinds = {kind_of(name, int.from_bytes(e, "little")) for e in elements}
    return {f"{codec} {name} {kind}" for kind in kinds if kind}


# --- Check ----------------------------------------------------------------------------------------

def near(name, data, expected):
    """Whether elements agree as format.md asks: within a part of the largest, and a rounding to the dtype."""
    size, exponent_bits = next(d[1:3] for d in DTYPES.values() if d[0] == name)
    one, other = ([real(name, d[i:i + size]) for i in range(0, len(d), size)] for d in (data, expected))
    most = max(abs(v) for v in other if math.isfinite(v))
    part, rounding = 2.0 ** (-40 if name == "f64" else -18), 2.0 ** (exponent_bits - 8 * size + 1)
    same = lambda a, b: a == b or abs(a - b) <= 4 * part * most + rounding * max(abs(b), most * part)
    odd = lambda i: not math.isfinite(other[i])
    return len(one) == len(other) and all(
        data[i * size:][:size] == expected[i * size:][:size] if odd(i) else same(one[i], other[i]) for i in range(len(one)))


def real(name, element):
    """The number that an element is."""
    if name in ("f16", "f32", "f64"):
        return struct.unpack({"f16": "<e", "f32": "<f", "f64": "<d"}[name], element)[0]
    if name == "bf16":
        return struct.unpack("<f", bytes(2) + element)[0]
    raise ValueError(f"no vector of {name} is compared loosely")


def check(root):
    faults = []
    index = json.loads((root / "index.json").read_text())
    for entry in index:
        try:
            dtype, shape, data, seen = decode((root / entry["file"]).read_bytes())
        except Refused as error:
            faults.append(f"{entry['name']}: refused: {error}")
            continue
        expected = (root / entry["expected"]).read_bytes()
        # Steps that round differently from one implementation to the next.
        loose = seen & {"Hadamard", "DCT", "rotary positions", "basis"}
        if data != expected and not (loose and near(dtype, data, expected)):
            faults.append(f"{entry['name']}: different elements")
        if (dtype, shape) != (entry["dtype"], entry["shape"]):
            faults.append(f"{entry['name']}: {dtype} {shape}")
        if sorted(seen) != sorted(entry["features"]):
            faults.append(f"{entry['name']}: features {sorted(seen ^ set(entry['features']))}")
    errors = json.loads((root / "errors" / "errors.json").read_text())
    for entry in errors:
        try:
            decode((root / "errors" / entry["file"]).read_bytes())
            faults.append(f"{entry['name']}: not refused")
        except Refused as error:
            if error.kind != entry["kind"]:
                faults.append(f"{entry['name']}: {error.kind} ({error}), not {entry['kind']}")
    given = check_deltas(root / "deltas", faults)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(index)} vectors, {len(errors)} errors and {given} deltas, {len(faults)} faults")
    return 1 if faults or not index or not errors or not given else 0


def check_deltas(root, faults):
    """Applies every golden delta, and refuses those that must be; says how many there are."""
    index = json.loads((root / "deltas.json").read_text())
    for entry in index:
        blob, base = ((root / entry[key]).read_bytes() for key in ("file", "base"))
        kind = entry.get("kind")
        try:
            dtype, shape, data, seen = apply(blob, base)
        except Refused as error:
            if error.kind != kind:
                faults.append(f"{entry['name']}: {error.kind} ({error}), not {kind or 'applied'}")
            continue
        if kind:
            faults.append(f"{entry['name']}: not refused")
            continue
        if data != (root / entry["expected"]).read_bytes():
            faults.append(f"{entry['name']}: different elements")
        if (dtype, shape, sorted(seen)) != (entry["dtype"], entry["shape"], sorted(entry["features"])):
            faults.append(f"{entry['name']}: {dtype} {shape}, features {sorted(seen ^ set(entry['features']))}")
    return len(index)


def main():
    if sys.argv[1:] == ["--check"]:
        return check(pathlib.Path(__file__).resolve().parent / "v1")
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    *given, out = map(pathlib.Path, sys.argv[1:])
    try:
        out.write_bytes((decode if len(given) == 1 else apply)(*(path.read_bytes() for path in given))[2])
    except Refused as error:
        print(f"{sys.argv[1]}: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
