"""A codec for the tensors of large models: weights, KV cache, activations, gradients.

State a goal, get a blob that meets it, from lossless down to less than one bit a value:

>>> import numpy as np, tenfold
>>> x = np.random.default_rng(0).standard_normal((512, 512), dtype=np.float32)
>>> blob = tenfold.encode(x, bits=2.5)
>>> tenfold.inspect(blob).ratio > 12.5
True
>>> tenfold.decode(blob).shape
(512, 512)

Whole models: :func:`save`, :func:`load` and, lazily, :func:`open`. Every exception is a subclass of :class:`Error`; its
class says who must act.
"""

from types import ModuleType as _ModuleType

from . import delta, plan
from ._codec import (
    Codec,
    capabilities,
    curvature,
    decode,
    encode,
    encode_calibrated,
    inspect,
    max_encoded_len,
    verify,
)
from ._errors import (
    ArgumentError,
    DataError,
    DtypeError,
    EngineUnavailableError,
    Error,
    LimitError,
    MachineError,
    NotFoundError,
    PeerError,
    RawDtypeWarning,
    UnsupportedError,
    WrongBaseError,
)
from ._model import Model, load, open
from ._native import FORMAT_VERSION, BlobInfo, Capabilities, Curvature, Report, TensorInfo, __version__
from ._pull import Pulled, pull, pull_tensors
from ._write import compress, decompress, save

__all__ = [
    "ArgumentError",
    "BlobInfo",
    "Capabilities",
    "Codec",
    "Curvature",
    "DataError",
    "DtypeError",
    "EngineUnavailableError",
    "Error",
    "FORMAT_VERSION",
    "LimitError",
    "MachineError",
    "Model",
    "NotFoundError",
    "PeerError",
    "Pulled",
    "RawDtypeWarning",
    "Report",
    "TensorInfo",
    "UnsupportedError",
    "WrongBaseError",
    "__version__",
    "capabilities",
    "compress",
    "curvature",
    "decode",
    "decompress",
    "delta",
    "encode",
    "encode_calibrated",
    "inspect",
    "load",
    "max_encoded_len",
    "open",
    "plan",
    "pull",
    "pull_tensors",
    "save",
    "verify",
]


def __getattr__(name: str) -> _ModuleType:
    """Imports ``tenfold.torch`` on first use: torch is large, and many do not need it."""
    if name == "torch":
        import importlib

        return importlib.import_module("tenfold.torch")
    raise AttributeError(f"module 'tenfold' has no attribute {name!r}")
