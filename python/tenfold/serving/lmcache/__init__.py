"""A serde for LMCache: chunks of keys and values, compressed between its memory and its storage.

Importing this module registers it with LMCache as ``"tenfold"``, so that ``"serde": {"type": "tenfold", "bits": 4}`` in the
configuration of an L2 adapter takes it. A server of LMCache imports nothing by itself: :class:`Adapter` makes it do so.
docs/lmcache.md has the command and an example that runs.
"""

try:
    import lmcache as _lmcache  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
except ImportError as error:
    raise ImportError("tenfold.serving.lmcache needs LMCache (0.5.6 was tried): pip install lmcache") from error

from ._adapter import Adapter
from ._chunks import ChunkCodec
from ._options import Options
from ._serde import NAME, TenfoldDeserializer, TenfoldSerializer, create, register

__all__ = ["NAME", "Adapter", "ChunkCodec", "Options", "TenfoldDeserializer", "TenfoldSerializer", "create"]

register()
