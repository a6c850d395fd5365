"""What layers of a tensor are made of and added up to, with torch's functions, wherever the tensor is.

The same bits come of it as on the CPU: docs/format.md, 'Layers'.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import _native
from .._errors import DataError
from ._tensors import from_bytes, host_bytes, name_of

# Bits of the mantissa of dtypes narrower than f32.
_MANTISSA = {torch.float8_e4m3fn: 3, torch.float8_e5m2: 2, torch.float16: 10, torch.bfloat16: 7}
# Integers as wide as an element.
_INTEGERS = {1: torch.uint8, 2: torch.int16}


def worked(tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor of floats in the precision that layers are made in; None if something in it is not finite."""
    values = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.to(torch.float32)
    return values if bool(values.isfinite().all()) else None


def plain(values: torch.Tensor, options: _native.EncodeOptions) -> _native.EncodeOptions:
    """Options that say all by themselves: where these speak of a tensor's range, it is looked at."""
    if not options.rounds or not values.is_floating_point():
        return options
    sizes = values.to(torch.float64 if values.dtype == torch.float64 else torch.float32).abs()
    return options.within(float(torch.where(sizes.isfinite(), sizes, 0.0).amax()))


def left(values: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """What a sum of layers has left of finite values."""
    most = torch.finfo(values.dtype).max
    return (values - total).clamp_(-most, most)


def add(total: torch.Tensor, layer: torch.Tensor) -> torch.Tensor:
    """A sum of layers and the next one: finite sums stay so, and what is not finite stays what it is."""
    most = torch.finfo(total.dtype).max
    both = torch.where(layer.isfinite(), (total + layer).clamp_(-most, most), layer)
    return torch.where(total.isfinite(), both, total)


def rounded(total: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A sum of layers as elements of the tensor's dtype."""
    if dtype == total.dtype:
        return total
    most = torch.finfo(dtype).max
    elements = total.clamp(-most, most).to(dtype)
    size = elements.element_size()
    raw, special = elements.view(_INTEGERS[size]), _special(total.view(torch.int32), dtype, 8 * size)
    return torch.where(total.isfinite(), raw, special.to(raw.dtype)).view(dtype)


def _special(bits: torch.Tensor, dtype: torch.dtype, width: int) -> torch.Tensor:
    """What is not finite as an element: the sign, and as much of the mantissa as there is room for."""
    mantissa = _MANTISSA[dtype]
    sign = (bits >> 31 & 1) << (width - 1)
    low = bits & 0x7F_FFFF
    if dtype == torch.float8_e4m3fn:
        # It has no infinities: its largest numbers stand for them.
        return sign | torch.where(low == 0, 0x7E, 0x7F)
    rest = low >> (23 - mantissa)
    rest = torch.where((rest == 0) & (low != 0), 1 << (mantissa - 1), rest)
    return sign | ((1 << (width - 1 - mantissa)) - 1) << mantissa | rest


def joined(layers: Sequence[torch.Tensor], dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """The blob of some layers, where they are. Their bytes are fetched for the checksums in its header."""
    fetched = [host_bytes(layer.cpu()) for layer in layers]
    header = from_bytes(_native.layers_header(name_of(dtype), list(shape), fetched))
    return torch.cat([header.to(layers[0].device), *layers])


def parts(blob: torch.Tensor, info: _native.BlobInfo) -> list[torch.Tensor]:
    """Copies of the layers of a blob, each at an address that a device reads from; the blob has them all."""
    flat = blob.reshape(-1)[info.header_bytes : info.blob_bytes]
    return [part.clone() for part in torch.split(flat, info.layers)]


def check(info: _native.BlobInfo, layer: _native.BlobInfo, length: int) -> None:
    """Refuses what is no layer of a blob."""
    working = "float64" if info.dtype == "float64" else "float32"
    for wrong, what in (
        (layer.codec not in ("lossy", "lossless"), "codec of a layer"),
        (layer.blob_bytes != length, "a layer is not a whole blob"),
        (layer.dtype != working, "dtype of a layer"),
        (layer.shape != info.shape, "shape of a layer"),
    ):
        if wrong:
            raise DataError(f"the blob is corrupt: {what}")
