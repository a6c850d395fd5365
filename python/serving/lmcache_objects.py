"""Objects, keys and a storage manager of LMCache, for tests of its serde: what a server has, on a CPU."""

from __future__ import annotations

import contextlib
import json
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lmcache.v1.distributed.api import (
        GroupedObjectKeys,
        MemoryLayoutDesc,
        ObjectKey,
        PrefetchTaskSpec,
    )
    from lmcache.v1.distributed.config import parse_args
    from lmcache.v1.distributed.storage_manager import StorageManager
    from lmcache.v1.memory_management import MemoryObjMetadata, TensorMemoryObj
    from tenfold.serving.lmcache import ChunkCodec, Options, TenfoldDeserializer, TenfoldSerializer

MODEL = "org/model"
Shapes = Sequence[Sequence[int]]
Dtypes = Sequence[torch.dtype]


def key(number: int = 1, **other: Any) -> ObjectKey:
    return ObjectKey(**({"chunk_hash": number.to_bytes(32, "big"), "model_name": MODEL, "kv_rank": 0x1000100} | other))


def described(shapes: Shapes, dtypes: Dtypes) -> MemoryLayoutDesc:
    return MemoryLayoutDesc(shapes=[torch.Size(shape) for shape in shapes], dtypes=list(dtypes))


def memory(shapes: Shapes, dtypes: Dtypes) -> TensorMemoryObj:
    """An object as LMCache's allocators make them: bytes in a row, with shapes and dtypes, and more room than is used."""
    size = sum(math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True))
    sizes = [torch.Size(shape) for shape in shapes]
    about = MemoryObjMetadata(
        sizes[0], dtypes[0], address=0, phy_size=size + 64, ref_count=1, shapes=sizes, dtypes=list(dtypes)
    )
    return TensorMemoryObj(torch.full((size + 64,), 0xA5, dtype=torch.uint8), about, None)


def buffer(size: int) -> TensorMemoryObj:
    return memory([[size]], [torch.uint8])


def parts(held: TensorMemoryObj) -> list[torch.Tensor]:
    return [held.get_tensor(index) for index in range(len(held.metadata.shapes))]


def fill(held: TensorMemoryObj, seed: int = 1) -> TensorMemoryObj:
    """Puts rows with means and scales of their own, as caches have them, or any bytes where there are no floats."""
    made = torch.Generator().manual_seed(seed)
    for tensor in parts(held):
        if not tensor.dtype.is_floating_point:
            tensor.copy_(torch.randint(0, 100, tensor.shape, generator=made))
            continue
        columns = tensor.shape[-1]
        scales = torch.rand(columns, generator=made) * 2 + 0.1
        rows = torch.randn(tensor.shape, generator=made) * scales + torch.randn(columns, generator=made)
        tensor.copy_(rows.to(tensor.dtype))
    return held


def serde(**options: Any) -> tuple[TenfoldSerializer, TenfoldDeserializer]:
    codec = ChunkCodec(Options.parse(options))
    return TenfoldSerializer(codec), TenfoldDeserializer(codec)


def there_and_back(shapes: Shapes, dtypes: Dtypes, seed: int = 1, **options: Any) -> tuple[Any, Any, int]:
    """An object, what it is after its record was stored and read, and the record's bytes."""
    serializer, deserializer = serde(**options)
    before, after = fill(memory(shapes, dtypes), seed), memory(shapes, dtypes)
    room = buffer(serializer.estimate_serialized_size(described(shapes, dtypes)))
    size = serializer.serialize(before, room, key())
    deserializer.deserialize(room, after, key())
    return before, after, size


def nmse(found: torch.Tensor, want: torch.Tensor) -> float:
    want = want.double()
    return float((found.double() - want).square().sum() / want.square().sum())


def same_bytes(a: TensorMemoryObj, b: TensorMemoryObj) -> bool:
    return torch.equal(a.raw_data[: a.get_size()], b.raw_data[: b.get_size()])


def adapter(folder: Path, **options: Any) -> dict[str, Any]:
    """The configuration of an adapter for files, with the serde."""
    return {"type": "fs", "base_path": str(folder), "serde": {"type": "tenfold"} | options}


@contextlib.contextmanager
def storage(*adapters: dict[str, Any]) -> Iterator[StorageManager]:
    """A storage manager as the server makes it of its command line."""
    words = ["--l1-size-gb", "0.25", "--no-l1-use-lazy", "--eviction-policy", "LRU"]
    for spec in adapters:
        words += ["--l2-adapter", json.dumps(spec)]
    manager = StorageManager(parse_args(words))
    try:
        yield manager
    finally:
        manager.close()


def store(manager: StorageManager, keys: Sequence[ObjectKey], shapes: Shapes, dtypes: Dtypes) -> list[list[torch.Tensor]]:
    """Writes objects, which goes to storage in the background; what they hold."""
    reserved = manager.reserve_write(list(keys), described(shapes, dtypes))
    for number, name in enumerate(keys):
        fill(reserved[name], number + 1)
    held = [[tensor.clone() for tensor in parts(reserved[name])] for name in keys]
    manager.finish_write(list(keys))
    return held


def load(manager: StorageManager, keys: Sequence[ObjectKey], shapes: Shapes, dtypes: Dtypes) -> list[list[torch.Tensor]]:
    """Objects of a prefix as far as it is found."""
    rows = [GroupedObjectKeys(list(keys), 0, described(shapes, dtypes), -1)]
    handle = manager.submit_prefetch_task(PrefetchTaskSpec(rows))
    result = until(lambda: manager.query_prefetch_status(handle))
    hits = [name for number, name in enumerate(keys) if result.hit_cells[0].test(number)]
    if not hits:
        return []
    with manager.read_prefetched_results(hits) as objects:
        held = [[tensor.clone() for tensor in parts(found)] for found in objects]
    manager.finish_read_prefetched(hits)
    return held


def until(done: Any, seconds: float = 20) -> Any:
    """What a call gives as soon as that is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := done():
            return found
        time.sleep(0.01)
    raise AssertionError("nothing came of it in time")


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".tmp")
