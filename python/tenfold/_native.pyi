"""Types of the native module; the package `tenfold` is what to import."""

import os
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

__all__ = [
    "Archive",
    "BlobInfo",
    "Capabilities",
    "CudaDevice",
    "DecodeRequests",
    "EncodeOptions",
    "FORMAT_VERSION",
    "MODEL_FORMAT",
    "Report",
    "SLOT_TRIALS",
    "TensorInfo",
    "__version__",
    "capabilities",
    "checksum",
    "compress",
    "cuda_can_convert",
    "cuda_can_decode",
    "cuda_decoded",
    "cuda_lane_values",
    "decode_into",
    "decompress",
    "encode",
    "encode_into",
    "inspect",
    "main",
    "max_encoded_len",
    "model_tags",
    "next_slot_step",
    "save",
    "time_decode",
    "time_encode",
    "verify",
]

__version__: str
FORMAT_VERSION: int
GOALS: list[str]
MODEL_FORMAT: int
SLOT_TRIALS: int

@final
class EncodeOptions:
    def __new__(
        cls,
        goal: str,
        value: float | None = None,
        effort: str = "balanced",
        threads: int = 0,
        lane_values: int = 0,
        importance: Sequence[float] | None = None,
        prepare: str | None = None,
        residual: Sequence[tuple[str, float | None]] | None = None,
        format: str | None = None,
    ) -> EncodeOptions: ...
    @property
    def goal(self) -> tuple[str, float | None]: ...

@final
class Capabilities:
    @property
    def encodes(self) -> list[str]: ...
    @property
    def decodes(self) -> list[str]: ...
    @property
    def dtypes(self) -> list[str]: ...
    @property
    def goals(self) -> list[str]: ...
    @property
    def does(self) -> list[str]: ...
    @property
    def undoes(self) -> list[str]: ...

def capabilities(engine: str, waits: bool) -> Capabilities: ...

@final
class BlobInfo:
    @property
    def version(self) -> int: ...
    @property
    def codec(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def blob_bytes(self) -> int: ...
    @property
    def header_bytes(self) -> int: ...
    @property
    def bits_per_value(self) -> float: ...
    @property
    def ratio(self) -> float: ...
    @property
    def tiles(self) -> int: ...
    @property
    def layers(self) -> list[int]: ...
    @property
    def tile_values(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def step(self) -> float | None: ...
    @property
    def states(self) -> int | None: ...
    @property
    def classes(self) -> int | None: ...
    @property
    def low_bits(self) -> int | None: ...
    @property
    def transforms(self) -> list[str]: ...

@final
class TensorInfo:
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def stored_bytes(self) -> int: ...
    @property
    def compressed(self) -> bool: ...
    @property
    def file(self) -> str: ...
    @property
    def blob(self) -> BlobInfo | None: ...

@final
class Report:
    @property
    def tensors(self) -> int: ...
    @property
    def compressed(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def stored_bytes(self) -> int: ...
    @property
    def bits_per_value(self) -> float: ...
    @property
    def ratio(self) -> float: ...

@final
class Archive:
    def __new__(cls, path: str | os.PathLike[str]) -> Archive: ...
    def names(self) -> list[str]: ...
    def find(self, name: str) -> int | None: ...
    def metadata(self) -> dict[str, str]: ...
    def is_compressed(self) -> bool: ...
    def info(self, index: int) -> TensorInfo: ...
    def read_into(
        self,
        index: int,
        out: Any,
        rows: tuple[int, int] | None = None,
        threads: int = 0,
        max_bytes: int | None = None,
    ) -> None: ...
    def verify(self, index: int, threads: int = 0) -> None: ...

def encode(tensor: Any, options: EncodeOptions, dtype: str | None = None) -> bytes: ...
def encode_into(tensor: Any, options: EncodeOptions, out: np.ndarray, dtype: str | None = None) -> int: ...
def decode_into(
    blob: bytes | np.ndarray,
    out: Any,
    rows: tuple[int, int] | None = None,
    threads: int = 0,
    max_bytes: int | None = None,
    layers: int = 0,
) -> None: ...
def verify(blob: bytes | np.ndarray, threads: int = 0, max_bytes: int | None = None) -> None: ...
def inspect(blob: bytes | np.ndarray) -> BlobInfo: ...
def max_encoded_len(dtype: str, shape: Sequence[int], layers: int = 1) -> int: ...
def save(
    tensors: Sequence[tuple[str, Any]],
    metadata: dict[str, str],
    path: str | os.PathLike[str],
    options: EncodeOptions,
    write: dict[str, Any],
    progress: Callable[[int, int], object] | None = None,
) -> Report: ...
def compress(
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: EncodeOptions,
    write: dict[str, Any],
    progress: Callable[[int, int], object] | None = None,
) -> Report: ...
def decompress(
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    threads: int = 0,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> None: ...
def checksum(tensor: Any) -> int: ...
def model_tags(
    blobs: Sequence[tuple[str, str, Sequence[int]]],
    plain: Sequence[tuple[str, int]] | None,
    metadata: dict[str, str],
) -> dict[str, str]: ...
def time_encode(tensor: Any, options: EncodeOptions) -> float: ...
def time_decode(blob: bytes | np.ndarray, out: Any = None, threads: int = 0) -> float: ...

# An address on a device, and bytes.
_Memory = tuple[int, int]

@final
class CudaDevice:
    def __new__(cls, ordinal: int) -> CudaDevice: ...
    @property
    def name(self) -> str: ...
    def decode(self, requests: DecodeRequests, status: int, workspace: _Memory, stream: int) -> None: ...
    def open(self, requests: DecodeRequests, status: int, workspace: _Memory, stream: int) -> None: ...
    def decode_opened(self, requests: DecodeRequests, status: int, workspace: _Memory, stream: int) -> None: ...
    def multiply(
        self, matrix: _Memory, vector: _Memory, bias: _Memory | None, to: _Memory, dtype: str, stream: int
    ) -> None: ...
    def time_decode(
        self, requests: Sequence[DecodeRequests], status: int, workspace: _Memory, stream: int
    ) -> float: ...
    def encode(
        self,
        tensor: _Memory,
        dtype: str,
        shape: Sequence[int],
        options: EncodeOptions,
        allocate: Callable[[int], tuple[Any, int]],
        stream: int,
    ) -> Any: ...
    def decode_any(
        self,
        blob: _Memory,
        out: _Memory,
        layers: int,
        checksums: bool,
        max_bytes: int | None,
        host: bytes | np.ndarray | None,
        allocate: Callable[[int], tuple[Any, int]],
        stream: int,
    ) -> None: ...

@final
class DecodeRequests:
    def __new__(
        cls,
        items: Sequence[tuple[_Memory, _Memory, str, BlobInfo | None]],
        checksums: bool = True,
        max_bytes: int | None = None,
        multiprocessors: int | None = None,
    ) -> DecodeRequests: ...
    @property
    def workspace_len(self) -> int: ...
    def __len__(self) -> int: ...

@final
class Bases:
    @staticmethod
    def open(path: str) -> Bases: ...
    @property
    def model(self) -> str | None: ...
    @property
    def head_dim(self) -> int | None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def sets(self) -> list[str]: ...
    @property
    def groups(self) -> list[tuple[int, int]]: ...
    def check_model(self, fingerprint: str) -> None: ...

def fit_bases(
    sets: list[tuple[str | None, float, list[str]]],
    each: bool,
    out: str,
    group: int,
    bits: float,
    rope: str | None,
    max_bytes: int,
    metric: str | None,
    overwrite: bool,
) -> str: ...
@final
class Hidden:
    def __new__(cls, bases: Bases, layer: int, effort: str, threads: int) -> Hidden: ...
    def encode(self, tensor: Any, goal: str, value: float | None) -> bytes: ...
    def decode_into(self, blob: Any, out: Any) -> None: ...

@final
class PageInfo:
    """What a page says of itself."""

    @property
    def tokens(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def exact(self) -> tuple[int, int]: ...
    @property
    def nbytes(self) -> int: ...

@final
class Pages:
    def __new__(
        cls,
        bases: Bases | None,
        layers: int,
        group: int,
        rope: tuple[int, float, str, int | None, tuple[str, list[float]] | None] | None,
        effort: str,
        exact: tuple[int, int],
        steps: tuple[float, float],
        threads: int,
    ) -> Pages: ...
    @property
    def layers(self) -> int: ...
    @property
    def groups(self) -> list[tuple[int, int]]: ...
    def part(self, group: int) -> Pages: ...
    def encode(
        self,
        pages: list[tuple[list[Any], list[Any], int | None, list[int] | None]],
        goal: str,
        value: float | None,
    ) -> list[bytes]: ...
    def encode_together(
        self, pages: list[tuple[list[Any], list[Any], int | None, list[int] | None]], cap: int
    ) -> list[bytes]: ...
    def decode(self, pages: list[Any], layer: int, outs: list[tuple[Any, Any]]) -> None: ...
    def describe(self, page: Any, layer: int) -> tuple[str, int, int]: ...
    def inspect(self, page: Any) -> PageInfo: ...

def cuda_decoded(said: bytes) -> None: ...
def cuda_can_decode(info: BlobInfo) -> None: ...
def cuda_can_convert(info: BlobInfo, dtype: str) -> bool: ...
def cuda_lane_values(values: int) -> int: ...
def next_slot_step(step: float, bytes: int, values: int, room: int) -> tuple[float, bool]: ...
def main(args: Sequence[str]) -> int: ...
