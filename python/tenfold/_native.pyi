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
    "Curvature",
    "DecodeRequests",
    "DeltaFile",
    "DeltaInfo",
    "DeltaPlan",
    "DeviceDelta",
    "EncodeOptions",
    "FORMAT_VERSION",
    "MODEL_FORMAT",
    "Report",
    "SLOT_TRIALS",
    "TensorInfo",
    "VideoLanes",
    "VideoPending",
    "VideoSessions",
    "__version__",
    "capabilities",
    "checksum",
    "choose_way",
    "compress",
    "cuda_apply_deltas",
    "cuda_can_convert",
    "cuda_can_decode",
    "cuda_decoded",
    "cuda_fingerprints",
    "cuda_lane_values",
    "decode_into",
    "decompress",
    "delta_apply",
    "delta_apply_file",
    "delta_collect",
    "delta_fingerprint",
    "delta_inspect",
    "delta_make",
    "delta_make_file",
    "delta_make_state",
    "delta_model_fingerprint",
    "encode",
    "encode_calibrated",
    "encode_into",
    "fit_cost",
    "holds_pictures",
    "inspect",
    "main",
    "max_encoded_len",
    "model_tags",
    "next_slot_step",
    "parse_bandwidth",
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
        curvature: Curvature | None = None,
    ) -> EncodeOptions: ...
    @property
    def goal(self) -> tuple[str, float | None]: ...

@final
class Curvature:
    def __new__(
        cls, inputs: Sequence[np.ndarray], outputs: Sequence[float] | None = None, damping: float | None = None
    ) -> Curvature: ...
    @property
    def cols(self) -> int: ...
    @property
    def damping(self) -> float: ...
    def unit(self) -> float: ...
    def loss(self, original: Any, instead: Any) -> float: ...

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
    def transposed(self) -> bool: ...
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
def encode_calibrated(
    tensor: Any, options: EncodeOptions, dtype: str | None = None
) -> tuple[bytes, float, float, str | None]: ...
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
def pull(
    url: str,
    output: str | os.PathLike[str],
    settings: dict[str, Any],
    progress: Callable[[int, int], object] | None = None,
) -> tuple[int, int, int, int]: ...
def pull_tensors(
    url: str,
    each: Callable[[str, str, tuple[int, ...], Any, bool], object],
    settings: dict[str, Any],
    progress: Callable[[int, int], object] | None = None,
) -> tuple[int, int, int, int]: ...
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

# Memory of layers; blocks, slots, heads and bytes of a head; strides of blocks, slots and heads.
_Pool = tuple[list[_Memory], tuple[int, int, int, int], tuple[int, int, int], str]

_Groups = tuple[int, int]

def cuda_pages_workspace(parts: Sequence[tuple[CudaPages, CudaLoad, _Groups]]) -> int: ...
def cuda_pages_queue(
    parts: Sequence[tuple[CudaPages, CudaLoad, _Groups, _Memory, list[tuple[_Pool, _Pool]]]],
    status: int,
    workspace: _Memory,
    stream: int,
) -> None: ...
@final
class CudaPages:
    def __new__(cls, codec: Pages, device: CudaDevice) -> CudaPages: ...
    def plan(self, pages: list[Any]) -> CudaLoad: ...
    def save(self, tokens: int, steps: Sequence[float], columns: Sequence[Sequence[int]], dtype: str) -> CudaSave: ...
    def save_lossless(self, tokens: int, count: int, columns: Sequence[Sequence[int]], dtype: str) -> CudaSave: ...
    def budget(self, save: CudaSave, cap: int, exact: int) -> int | None: ...
    def looks(self, save: CudaSave) -> list[tuple[tuple[int, int], int, int]]: ...
    def queue_looks(
        self,
        save: CudaSave,
        sides: Sequence[tuple[int, int]],
        pools: Sequence[Sequence[_Pool]],
        given: Sequence[_Memory],
        seen: _Memory,
        lanes: Sequence[tuple[int, _Memory]],
    ) -> None: ...
    def guesses(self, save: CudaSave) -> list[tuple[tuple[int, int], int, int]]: ...
    def queue_guesses(
        self,
        save: CudaSave,
        sides: Sequence[tuple[int, int]],
        pools: Sequence[Sequence[_Pool]],
        given: Sequence[_Memory],
        sizes: _Memory,
        lanes: Sequence[tuple[int, _Memory]],
    ) -> None: ...
    def ladder(self, save: CudaSave, budgets: Sequence[int | None], guessed: Sequence[bytes]) -> CudaLadder: ...
    def batches(self, save: CudaSave, seen: Sequence[bytes]) -> list[CudaBatch]: ...
    def queue_saves(
        self,
        save: CudaSave,
        batches: Sequence[CudaBatch],
        pools: Sequence[Sequence[_Pool]],
        given: Sequence[Sequence[_Memory]],
        blobs: _Memory,
        status: int,
        lanes: Sequence[tuple[int, _Memory]],
    ) -> None: ...
    def places(self, save: CudaSave, batch: CudaBatch, statuses: bytes) -> list[tuple[int, int] | None]: ...
    def queue_exact(
        self, save: CudaSave, side: tuple[int, int], pool: _Pool, slots: _Memory, rows: _Memory, stream: int
    ) -> None: ...
    def encode_exact(self, save: CudaSave, rows: Sequence[Any]) -> CudaExact: ...
    def assemble(
        self, save: CudaSave, batches: Sequence[tuple[CudaBatch, Any, Sequence[tuple[int, int] | None]]], exact: CudaExact
    ) -> list[bytes | None]: ...

@final
class CudaSave:
    @property
    def coded(self) -> tuple[int, int]: ...
    @property
    def exact(self) -> list[int]: ...
    def exact_len(self, group: int, side: int) -> int: ...

@final
class CudaBatch:
    @property
    def side(self) -> tuple[int, int]: ...
    @property
    def pages(self) -> list[int]: ...
    @property
    def workspace_len(self) -> int: ...
    @property
    def blobs_len(self) -> int: ...

@final
class CudaExact:
    @property
    def sizes(self) -> list[int]: ...
    def of(self, pages: Sequence[int]) -> CudaExact: ...

@final
class CudaLadder:
    def standing(self) -> list[tuple[int, float]]: ...
    def tried(self, page: int, size: int | None) -> bool: ...

@final
class CudaLoad:
    @property
    def tokens(self) -> int: ...
    @property
    def dtype(self) -> str | None: ...
    @property
    def staged_len(self) -> int: ...
    @property
    def workspace_len(self) -> int: ...
    @property
    def waves(self) -> list[_Groups]: ...
    def statuses(self, groups: _Groups) -> int: ...
    def staged(self, groups: _Groups) -> tuple[int, int]: ...
    def stage(self, groups: _Groups, pages: list[Any], slots: list[int], to: Any) -> None: ...
    def check(self, groups: _Groups, statuses: bytes) -> list[Exception | None]: ...

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
    def encode_calibrated(
        self,
        tensor: _Memory,
        dtype: str,
        shape: list[int],
        options: EncodeOptions,
        allocate: Any,
        stream: int,
    ) -> tuple[Any, float, float, str | None]: ...
    def curvature_unit(self, curvature: Curvature, allocate: Any, stream: int) -> float: ...
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
        items: Sequence[tuple[_Memory, _Memory, str, bool, BlobInfo | None]],
        checksums: bool = True,
        max_bytes: int | None = None,
        multiprocessors: int | None = None,
    ) -> DecodeRequests: ...
    @property
    def workspace_len(self) -> int: ...
    def __len__(self) -> int: ...

@final
class VideoLanes:
    def __new__(
        cls, device: CudaDevice, lanes: int = 0, idle_bytes: int | None = None, patience: float | None = None
    ) -> VideoLanes: ...
    def submit(
        self,
        blob: bytes | np.ndarray,
        tensor: Any,
        out: _Memory,
        dtype: str,
        max_bytes: int | None,
        stream: int,
    ) -> VideoPending: ...
    @property
    def counters(self) -> dict[str, int]: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...

@final
class VideoPending:
    @property
    def ready(self) -> bool: ...
    def result(self, stream: int) -> None: ...
    def abandon(self) -> None: ...

@final
class VideoSessions:
    def __new__(cls, device: CudaDevice) -> VideoSessions: ...
    @property
    def codecs(self) -> list[str]: ...
    def encode(
        self,
        lanes: VideoLanes,
        tensor: np.ndarray,
        dtype: str,
        options: EncodeOptions,
        codec: str,
        depth: int | None = None,
        qp: int | None = None,
        scale: str = "tensor",
    ) -> bytes: ...
    def close(self) -> None: ...

@final
class DeltaPlan:
    def __new__(cls, blob: bytes | np.ndarray, max_bytes: int | None = None) -> DeltaPlan: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def tensor_len(self) -> int: ...
    @property
    def blob_len(self) -> int: ...
    @property
    def changed(self) -> int: ...
    @property
    def setup(self) -> bytes: ...
    @property
    def workspace_len(self) -> int: ...
    def check(self, said: bytes) -> tuple[int, int]: ...

@final
class DeviceDelta:
    def __new__(cls, device: CudaDevice) -> DeviceDelta: ...
    def apply(
        self,
        blob: bytes | np.ndarray,
        tensor: _Memory,
        dtype: str,
        shape: Sequence[int],
        stream: int,
        max_bytes: int | None = None,
        check_only: bool = False,
    ) -> tuple[int, int]: ...
    def apply_decoded(
        self,
        blob: bytes | np.ndarray,
        copy: bytes | np.ndarray,
        tensor: _Memory,
        dtype: str,
        shape: Sequence[int],
        stream: int,
        threads: int = 0,
        max_bytes: int | None = None,
    ) -> tuple[int, int]: ...

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

def check_fit(sets: list[tuple[str | None, float, list[str]]], args: tuple[bool, int, float, int]) -> None: ...
def fit_bases(
    sets: list[tuple[str | None, float, list[str]]],
    args: tuple[bool, int, float, int],
    out: str,
    rope: str | None,
    metric: str | None,
    overwrite: bool,
    progress: Callable[[int, int], object] | None = None,
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
    def decode_all(self, pages: list[Any], outs: list[tuple[list[Any], list[Any]]]) -> None: ...
    def describe(self, page: Any, layer: int) -> tuple[str, int, int]: ...
    def inspect(self, page: Any) -> PageInfo: ...

def cuda_apply_deltas(
    device: CudaDevice,
    requests: Sequence[tuple[DeltaPlan, _Memory, _Memory, _Memory]],
    status: int,
    workspace: _Memory,
    stream: int,
) -> None: ...
def cuda_decoded(said: bytes) -> None: ...
def cuda_fingerprints(
    device: CudaDevice, tensors: Sequence[tuple[_Memory, str, Sequence[int]]], stream: int
) -> list[str]: ...
def holds_pictures(info: BlobInfo) -> bool: ...
def cuda_can_decode(info: BlobInfo) -> None: ...
def cuda_can_convert(info: BlobInfo, dtype: str) -> bool: ...
def cuda_lane_values(values: int) -> int: ...
def next_slot_step(step: float, bytes: int, values: int, room: int) -> tuple[float, bool]: ...
def choose_way(
    nbytes: int,
    chunk: int,
    ways: Sequence[tuple[str, tuple[float, ...], tuple[float, ...], float, float | None]],
    link: tuple[float, float],
    cores: tuple[int, int],
) -> tuple[int | None, str, str, float, float]: ...
def fit_cost(small: tuple[float, float], large: tuple[float, float]) -> tuple[float, float]: ...
def parse_bandwidth(text: str) -> float: ...
def main(args: Sequence[str]) -> int: ...

@final
class DeltaInfo:
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def base(self) -> str: ...
    @property
    def result(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def changed(self) -> int: ...
    @property
    def tiles(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def blob_bytes(self) -> int: ...

def delta_make(base: Any, new: Any, dtype: str | None = None, threads: int = 0) -> bytes: ...
def delta_apply(
    pairs: Sequence[tuple[bytes | np.ndarray, Any]],
    names: Sequence[str] | None = None,
    verify: str = "whole",
    threads: int = 0,
    max_bytes: int | None = None,
    check_only: bool = False,
) -> list[tuple[int, int]]: ...
def delta_inspect(blob: bytes | np.ndarray) -> DeltaInfo: ...
def delta_fingerprint(tensor: Any, dtype: str | None = None) -> str: ...

@final
class DeltaFile:
    @staticmethod
    def open(path: str | os.PathLike[str]) -> DeltaFile: ...
    @staticmethod
    def parse(bytes: bytes | np.ndarray) -> DeltaFile: ...
    def base(self) -> str: ...
    def result(self) -> str: ...
    def removed(self) -> list[str]: ...
    def changes(
        self,
    ) -> list[
        tuple[str, str, str | None, str | None, list[int] | None, str | None, str, int | None, int]
    ]: ...
    def info(self, name: str) -> DeltaInfo: ...
    def blob(self, name: str) -> bytes: ...
    def patch(
        self,
        tensors: Sequence[tuple[str, Any, str | None]],
        only: Sequence[str] | None = None,
        verify: str = "whole",
        threads: int = 0,
    ) -> list[tuple[str, str, list[int], bytes | None]]: ...

def delta_make_state(
    base: Sequence[tuple[str, Any, str | None]], new: Sequence[tuple[str, Any, str | None]], options: dict[str, Any]
) -> bytes: ...
def delta_collect(prints: dict[str, str], blobs: Sequence[tuple[str, bytes]]) -> tuple[bytes, str]: ...
def delta_model_fingerprint(prints: dict[str, str]) -> str: ...
def delta_make_file(
    base: str | os.PathLike[str],
    new: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: dict[str, Any],
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> None: ...
def delta_apply_file(
    base: str | os.PathLike[str],
    deltas: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    verify: str = "whole",
    threads: int = 0,
    overwrite: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> None: ...
