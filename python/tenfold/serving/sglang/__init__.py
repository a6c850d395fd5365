"""A storage backend for SGLang's HiCache: pages of the host pool, compressed, in files.

SGLang loads it by name, ``--hicache-storage-backend dynamic`` with ``"module_path": "tenfold.serving.sglang"`` and
``"class_name": "TenfoldStorage"`` in its extra configuration. docs/sglang.md has the command and an example that runs.

:class:`SlotCodec` is the codec beneath: pages of a fixed size that decode layer by layer, for a compressed host pool. :func:`load_delta` applies deltas to the weights of a running
engine (docs/delta-python.md).
"""

try:
    import sglang as _sglang  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
except ImportError as error:
    raise ImportError("tenfold.serving.sglang needs SGLang (0.5.23 was tried): pip install sglang") from error

from .codec import PageShape, SlotCodec
from .deltas import load_delta
from .storage import TenfoldStorage

__all__ = ["PageShape", "SlotCodec", "TenfoldStorage", "load_delta"]
