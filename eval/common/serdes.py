"""Serdes of LMCache on a CPU: a chunk of keys and values to bytes and back, with LMCache's own classes.

Two of them are written for CUDA. CacheGen's coder has a twin for CPUs in the package, and runs as it is. TurboQuant is Triton
kernels only; :func:`turbo` says how it is judged without a GPU.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

# Read when Triton is imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

import torch  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey  # noqa: E402
    from lmcache.v1.distributed.serde import asym_k16_v8, fp8  # noqa: E402
    from lmcache.v1.distributed.serde.turboquant import turboquant  # noqa: E402
    from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj  # noqa: E402
    from tenfold.serving.lmcache import ChunkCodec, Options, TenfoldDeserializer, TenfoldSerializer  # noqa: E402

KEY = ObjectKey(b"\1" * 32, "smollm2", 0x1000100)


@dataclass
class Coded:
    """A chunk that went through a serde."""

    nbytes: int
    decoded: torch.Tensor
    encode_seconds: float
    decode_seconds: float


Serde = Callable[[torch.Tensor], Coded]


@dataclass(frozen=True)
class Named:
    """A serde with its setting."""

    name: str
    setting: str
    serde: Serde


def memory(tensor: torch.Tensor) -> TensorMemoryObj:
    """An object of LMCache that holds a tensor."""
    raw = tensor.contiguous().flatten().view(torch.uint8)
    about = MemoryObjMetadata(
        tensor.shape, tensor.dtype, 0, raw.numel(), 1, fmt=MemoryFormat.KV_2LTD, shapes=[tensor.shape], dtypes=[tensor.dtype]
    )
    return TensorMemoryObj(raw, about, None)


def single(serializer: Any, deserializer: Any) -> Serde:
    """Of a serializer and a deserializer that take keys and values in one object."""

    def code(chunk: torch.Tensor) -> Coded:
        room = serializer.estimate_serialized_size(MemoryLayoutDesc([chunk.shape], [chunk.dtype]))
        source, target, out = memory(chunk), memory(torch.zeros(room, dtype=torch.uint8)), memory(torch.zeros_like(chunk))
        return timed(
            lambda: serializer.serialize(source, target, KEY), lambda: deserializer.deserialize(target, out, KEY), out
        )

    return code


def pair(serializer: Any, deserializer: Any) -> Serde:
    """Of those that take keys and values as two objects."""

    def code(chunk: torch.Tensor) -> Coded:
        half = MemoryLayoutDesc([chunk[0].shape], [chunk.dtype])
        target = memory(torch.zeros(serializer.estimate_serialized_size((half, half)), dtype=torch.uint8))
        source, outs = [memory(part) for part in chunk], [memory(torch.zeros_like(part)) for part in chunk]
        done = timed(
            lambda: serializer.serialize(source, target, KEY), lambda: deserializer.deserialize(target, outs, KEY), outs[0]
        )
        done.decoded = torch.stack([out.tensor for out in outs])
        return done

    return code


def timed(encode: Callable[[], int], decode: Callable[[], None], out: TensorMemoryObj) -> Coded:
    start = time.perf_counter()
    size = encode()
    between = time.perf_counter()
    decode()
    end = time.perf_counter()
    return Coded(size, out.tensor, between - start, end - between)


def tenfold(threads: int, **options: Any) -> Serde:
    """Ours, as shipped."""
    codec = ChunkCodec(Options.parse({"threads": threads} | options))
    return single(TenfoldSerializer(codec), TenfoldDeserializer(codec))


def float8(dtype: torch.dtype) -> Serde:
    return single(fp8.Fp8QuantizationSerializer(dtype), fp8.Fp8QuantizationDeserializer(dtype))


def asymmetric() -> Serde:
    return pair(asym_k16_v8.AsymK16V8MultiSerializer(), asym_k16_v8.AsymK16V8MultiDeserializer())


def turbo(preset: str, head: int, *, interpreted: bool = False) -> Serde:
    """TurboQuant with all layers quantised: by default it leaves two at either end as they are, which a few layers out of
    the middle of a model should not pay for.

    Its Triton kernels are for CUDA. Triton's interpreter runs them on a CPU, at a minute a chunk, so :func:`quantised` has
    their arithmetic; a test holds it against them.
    """
    from lmcache.v1.distributed.serde.turboquant import decode_kernel, store_kernel

    config = turboquant.TurboQuantSerdeConfig(preset=preset, head_dim=head, skip_first_layers=0, skip_last_layers=0)
    serializer = turboquant.TurboQuantSerializer(config)
    plain = single(serializer, turboquant.TurboQuantDeserializer(config))

    def code(chunk: torch.Tensor) -> Coded:
        if not interpreted:
            size = serializer.estimate_serialized_size(MemoryLayoutDesc([chunk.shape], [chunk.dtype]))
            return Coded(size, quantised(chunk, config), math.nan, math.nan)
        with (
            mock.patch.object(turboquant, "_select_cuda_device", lambda *_: torch.device("cpu")),
            mock.patch.object(decode_kernel, "_use_fp8_e4b15", lambda *_: 0),
            mock.patch.object(store_kernel, "_use_fp8_e4b15", lambda *_: 0),
        ):
            return plain(chunk)

    return code


def quantised(chunk: torch.Tensor, config: Any) -> torch.Tensor:
    """What TurboQuant makes of a chunk: keys in float8, or normalised, rotated and put to the nearest centroid; values between
    the least and the greatest of a token's head, both in float16."""
    planes = chunk.float().view(*chunk.shape[:3], -1, config.head_dim)
    keys = []
    for layer, rows in enumerate(planes[0]):
        if config.key_fp8:
            keys.append(rows.to(torch.float8_e4m3fn).half().float())
            continue
        rotation, midpoints, centroids = turboquant._make_tq_tensors_for_layer(config, layer, torch.device("cpu"))
        norms = rows.norm(dim=-1, keepdim=True)
        found = centroids[torch.bucketize((rows / (norms + 1e-8)) @ rotation, midpoints, right=True)]
        if config.norm_correction:
            found = found / (found.square().sum(-1, keepdim=True) + 1e-16).sqrt()
        keys.append(((norms.half().float() * found).half().float() @ rotation.T).half().float())
    values, levels = planes[1], 2**config.value_quant_bits - 1
    least = values.amin(-1, keepdim=True)
    scale = ((values.amax(-1, keepdim=True) - least) / levels).clamp(min=1e-8)
    number = ((values - least) / scale + 0.5).int().clamp(0, levels)
    values = (number * scale.half().float() + least.half().float()).half().float()
    return torch.stack([torch.stack(keys), values]).view(chunk.shape).to(chunk.dtype)


def cachegen(layers: Sequence[int], of: int, heads: int, head: int, tokens: int) -> Serde:
    """CacheGen with as many bins for each layer as it takes for a model of `of` layers of which these are some."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lmcache import device_ops
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.storage_backend.naive_serde import cachegen_basics, cachegen_decoder, cachegen_encoder

    def specs(fine: int) -> list[Any]:
        # As CacheGenConfig.from_model_name has it for models that it does not know, of ten layers and more.
        return [cachegen_basics.QuantizationSpec(at, at + 1, 32 if n < fine else 16) for at, n in enumerate(layers)]

    if of < 10:
        raise ValueError("CacheGen takes other bins for so few layers")
    config = cachegen_basics.CacheGenConfig(len(layers), specs(10), specs(2))
    engine = LMCacheEngineConfig.from_defaults(chunk_size=tokens)
    about = mock.Mock(model_name="smollm2", kv_shape=(len(layers), 2, tokens, heads, head), kv_dtype=torch.bfloat16)
    with (
        mock.patch.object(cachegen_encoder.CacheGenConfig, "from_model_name", lambda _: config),
        mock.patch.object(cachegen_decoder.CacheGenConfig, "from_model_name", lambda _: config),
    ):
        serializer = cachegen_encoder.CacheGenSerializer(engine, about)
        deserializer = cachegen_decoder.CacheGenDeserializer(engine, about)

    cdf = device_ops.calculate_cdf

    def code(chunk: torch.Tensor) -> Coded:
        source = memory(chunk)
        start = time.perf_counter()
        # A whole model has layers of 32 bins among keys and among values, and tables of that size for all.
        with mock.patch.object(device_ops, "calculate_cdf", lambda symbols, _: cdf(symbols, 32)):
            stored = serializer.serialize(source)
        between = time.perf_counter()
        found = deserializer.deserialize(stored)
        end = time.perf_counter()
        # Its object is not of bytes, as others are.
        decoded = found.raw_data.view(chunk.shape)
        return Coded(len(stored.byte_array), decoded, between - start, end - between)

    return code


def errors(decoded: Sequence[torch.Tensor], chunks: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Relative squared errors of keys and of values, over all chunks."""
    found = []
    for plane in (0, 1):
        want = torch.stack([chunk[plane] for chunk in chunks]).double()
        got = torch.stack([chunk[plane] for chunk in decoded]).double()
        error = float((got - want).square().sum() / want.square().sum())
        found.append(error if math.isfinite(error) else math.inf)
    return found[0], found[1]
